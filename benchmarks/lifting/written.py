"""Public data by program: what programs that minds write from a Request do with other data.

    python -m benchmarks.lifting.written --data DATA/lib/python3.11/site-packages FOLDER [--tasks N] [--seed N]
        [--suite TEXT] [--prepared FILE] [--json]

`public.py` says how DATA is made, and what is right; with `bpe-openai` in DATA, tokens are counted.
A random 40 tasks, ten of each data set, are carried out by hand in world 0, with the prompt of the
user as the task, and with the entities that the user names as the input. For each task the
benchmark writes the Request for its program to `FOLDER/NAME.request.txt`. A mind that sees nothing
else writes `FOLDER/NAME.1.json`: `{"program": TEXT, "inputs"?, "description"?, "parameters"?,
"constants"?}`, or only its program: `FOLDER/NAME.1.py`. The next start of the benchmark judges it.
If it is refused, the Request gets the reason, and the mind writes `NAME.2.py`, at most `NAME.3.py`.
First answers are kept: a written file is never replaced.

An accepted program is a tool, which is called in worlds 3, 4 and 5. The caller passes the entities
that the user names, and the true values of other required parameters, which are counted. The exit
code is 1 if a program that was written is not accepted, or if an accepted one is silently wrong.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from benchmarks.lifting.public import NEW, Row, Stage, by_hand, replayed
from benchmarks.lifting.suites import Prepared, drawn, load
from benchmarks.lifting.worlds import Case, Renaming

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.errors import ProgramRefusedError, PublicationError
from ideabridge.bridge.publishing.distilling import ROUNDS
from ideabridge.bridge.publishing.program_answer import read_program_answer
from ideabridge.bridge.publishing.program_request import RefusedProgram
from ideabridge.bridge.store.users import LOCAL
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.toolbox import Toolbox

TASKS = 10
"""The tasks of each data set."""

NAME = "written"


@dataclass
class Written:
    """What became of the program of one task.

    Attributes:
        row: what its calls did.
        open: what copied values leave open, by kind. A task without is published as a plan, and
            needs no program.
        tokens: of the Request; None if no tokenizer is installed.
        rounds: the answers that were judged.
        refused: why answers were refused.
        filled: the required parameters that the user does not name.
    """

    row: Row
    open: list[str] = field(default_factory=list[str])
    tokens: int | None = None
    bytes: int = 0
    rounds: int = 0
    refused: list[str] = field(default_factory=list[str])
    filled: list[str] = field(default_factory=list[str])

    def to_json(self) -> JSONObject:
        """All members."""
        return {
            **self.row.to_json(),
            "open": list[JSON](self.open),
            "tokens": self.tokens,
            "bytes": self.bytes,
            "rounds": self.rounds,
            "refused": list[JSON](self.refused),
            "filled": list[JSON](self.filled),
        }


def tokenizer() -> Callable[[str], int] | None:
    """Counts tokens of o200k, as `benchmarks/tokens.py` does; None where the tokenizer
    is not installed.
    """
    if importlib.util.find_spec("bpe_openai") is None:
        return None
    library: Any = importlib.import_module("bpe_openai")
    encoding = library.get_encoding("o200k_base")
    return lambda text: len(encoding.encode(text))


def answers(folder: Path, name: str) -> Iterator[JSONObject]:
    """The answers that a mind has written for a task, in order."""
    for number in range(1, ROUNDS + 1):
        whole = folder / f"{name}.{number}.json"
        program = folder / f"{name}.{number}.py"
        if whole.exists():
            yield json.loads(whole.read_text(encoding="utf-8"))
        elif program.exists():
            yield {"program": program.read_text(encoding="utf-8")}
        else:
            return


def filled_in(
    case: Case, world: Renaming, schema: JSONObject, answer: JSONObject
) -> tuple[JSONObject, list[str]]:
    """What a caller passes in a world, and the required parameters among them that the
    user does not name.

    Args:
        case: the task.
        world: where the tool is called.
        schema: of the input of the tool.
        answer: the answer of the mind, with the values that its own parameters had in world 0.
    """
    properties = schema.get("properties")
    given = case.given(world)
    if schema.get("additionalProperties") is False and isinstance(properties, dict):
        # A caller sees only the schema, and what the program reads from results needs no parameter.
        given = {key: value for key, value in given.items() if key in properties}

    inputs = answer.get("inputs")
    first = inputs[0] if isinstance(inputs, list) and inputs else None
    recorded: JSONObject = dict(first) if isinstance(first, dict) else {}
    if isinstance(properties, dict):
        for key, shape in properties.items():
            if isinstance(shape, dict) and "default" in shape:
                recorded.setdefault(key, shape["default"])

    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    filled: list[str] = []
    for key, value in recorded.items():
        if key in given:
            continue
        if case.says(value):
            given[key] = world.value(value)
        elif key in needed:
            given[key] = world.value(value)
            filled.append(key)

    return given, filled


async def looked_at(case: Case, folder: Path, count: Callable[[str], int] | None) -> Written:
    """Write the Request of a task, judge the answers to it, and call the tool of the one
    that is accepted.
    """
    name = re.sub(r"\W+", "_", f"{case.suite} {case.name}")
    world = case.world(0)
    stage = Stage(case.start(world))
    toolbox = Toolbox()
    for shape in case.tools:
        toolbox.add(*stage.defined(shape))

    async with Bridge(Configuration(store=":memory:"), toolbox=toolbox) as bridge:
        run = await by_hand(bridge, stage, case, world, with_input=True, task=case.prompt)
        written = Written(Row(case.suite, case.name, case.part, with_input=True, runs=1))
        request = await bridge.program_request(run.id)
        written.open = sorted({point.kind for point in request.open})
        written.bytes = len(request.text.encode())
        written.tokens = None if count is None else count(request.text)
        refused: list[RefusedProgram] = []
        for answer in answers(folder, name):
            written.rounds += 1
            try:
                made = await bridge.publish(run.id, NAME, program=read_program_answer(answer))
            except (ProgramRefusedError, PublicationError) as error:
                refused.append(RefusedProgram(str(answer["program"]), str(error)))
                continue

            written.row.published = "program"
            await called(bridge, stage, case, written, made.input_schema or {}, answer)
            break

        written.refused = [one.why for one in refused]
        if written.row.published != "program":
            written.row.published = "refused" if refused else "not written"
            request = await bridge.publisher.program_request([run.id], LOCAL, refused)

        (folder / f"{name}.request.txt").write_text(request.text, encoding="utf-8")

    return written


async def called(
    bridge: Bridge,
    stage: Stage,
    case: Case,
    written: Written,
    schema: JSONObject,
    answer: JSONObject,
) -> None:
    """Call the tool in the new worlds."""
    for number in NEW:
        world = case.world(number)
        given, filled = filled_in(case, world, schema, answer)
        written.filled = filled
        truth = case.true_steps(world)
        results = case.executed(world)
        stage.enter(case.start(world))
        await replayed(
            bridge, stage, written.row, NAME, given, truth, results, schema.get("properties")
        )


def report(tasks: list[Written]) -> list[str]:
    """The figures."""
    lines: list[str] = []
    data_sets = sorted({one.row.suite.split(" ")[0] for one in tasks})
    for data_set in (*data_sets, ""):
        of = [one for one in tasks if one.row.suite.startswith(data_set)]
        rounds = Counter(one.rounds for one in of if one.row.published == "program")
        states = Counter(one.row.published for one in of)
        counts = sum((one.row.counts for one in of), Counter[str]())
        figures = ", ".join(f"{counts[kind]} {kind}" for kind in ANSWERS if counts[kind])
        open_tasks = sum(bool(one.open) for one in of)
        filled = sum(bool(one.filled) for one in of)
        lines.append(
            f"{data_set or 'all'}: {len(of)} tasks, {open_tasks} of them open; {dict(states)};"
            f" accepted by round {dict(sorted(rounds.items()))}; answers: {figures or 'none'};"
            f" {filled} with required parameters that the user does not name"
        )

    tokens = sorted(one.tokens for one in tasks if one.tokens is not None)
    if tokens:
        lines.append(
            f"tokens of a Request: median {tokens[len(tokens) // 2]}, at most {tokens[-1]}"
        )

    sizes = sorted(one.bytes for one in tasks)
    if sizes:
        lines.append(f"bytes of a Request: median {sizes[len(sizes) // 2]}, at most {sizes[-1]}")

    return lines


ANSWERS = (
    "right",
    "right, assumed",
    "wrong, assumed",
    "failed",
    "silently wrong, default",
    "silently wrong",
)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(
        description="What programs that minds write from a Request do with other data."
    )
    parser.add_argument("folder", type=Path, help="where the Requests and the programs are")
    parser.add_argument(
        "--data", type=Path, required=True, help="the folder into which the packages are installed"
    )
    parser.add_argument("--suite", default="", help="only suites whose name contains this")
    parser.add_argument(
        "--tasks", type=int, default=TASKS, help="the number of tasks of each data set"
    )
    parser.add_argument("--seed", type=int, default=1, help="draws the tasks of each data set")
    parser.add_argument(
        "--prepared", type=Path, help="a file that keeps what preparing the tasks found"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    options = parser.parse_args()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    cases = load(options.data, options.suite)
    count = tokenizer()
    prepared = Prepared(options.prepared)
    tasks: list[Written] = []
    for case in drawn(cases, options.tasks, options.seed, prepared, Counter()):
        tasks.append(anyio.run(partial(looked_at, case, folder, count)))
        print(f"\r{len(tasks)} tasks", end="", file=sys.stderr, flush=True)

    print(file=sys.stderr)
    if options.json:
        print(json.dumps({"tasks": [one.to_json() for one in tasks]}, indent=1))
    else:
        print("\n".join(report(tasks)))
        for one in tasks:
            for wrong in one.row.wrong:
                print(f"{one.row.suite} {one.row.task}: {wrong}")
            if one.row.published == "refused":
                print(f"{one.row.suite} {one.row.task} refused: {one.refused[-1]}")

    is_bad = any(
        one.row.published == "refused" or one.row.counts["silently wrong"] for one in tasks
    )
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
