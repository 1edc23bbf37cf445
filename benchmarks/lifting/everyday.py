"""How useful the tools are that users get from what their assistants did by hand.

    pip install '.[demo]' bpe-openai                           (git, time; the tokenizer)
    python -m venv SQLITE && SQLITE/bin/pip install mcp-server-sqlite 'mcp<2'      (an environment of its own)
    make npm                                                   (filesystem)
    python benchmarks/lifting/everyday.py --sqlite SQLITE/bin/mcp-server-sqlite [--json] [--only NAME]
    python benchmarks/lifting/everyday.py --sqlite ... --programs FOLDER [--always]

It starts `ideabridge serve` over stdio as a gateway over four servers that nobody here wrote
(git, filesystem, sqlite, time), and does everyday tasks as an assistant does that has never
heard of plans: it calls one tool after the other, copies values, and reads, decides and
calculates in the head. It then publishes the stretch of the session (`publish_idea`), looks at
the tool in the list, and calls it for two other inputs, whose data have other values and other
numbers of items. `everyday_filling.py` fills in its form. Each task says what is right without
ideabridge, and the same hands carry out B and C, too, so a task that expects something else than
its hands do stops the benchmark.

Verdicts:

| right | the world and the answer are as expected |
| said | wrong, and the answer names a value that is wrong among what it assumes |
| asked | wrong, and a form named a value that is wrong before something changed |
| failed | the call was refused or failed with an error |
| silent | wrong, without a word about what is wrong |

A value that is wrong is a parameter of a call, or the output, that differs from what the hands did.
A call too many is named by its number, and calls that are missing are named by what is said about a
call of the same tool. A person at the forms approves everything.

`--programs FOLDER` writes each Request for a program to FOLDER/NAME.request.json, and hands in
FOLDER/NAME.1.py (then .2.py, .3.py) as answers. Further arguments of `publish_idea` that belong to
an answer, such as `inputs`, stand in FOLDER/NAME.1.json. What comes back is written to
FOLDER/NAME.1.answer.json. `--always` asks for a program (`program: "?"`) even if the answer of
`publish_idea` names none.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import anyio
from mcp import Client, StdioServerParameters
from mcp.client import ClientRequestContext
from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult, TextContent

# The tasks are beside this file, and `benchmarks` is in a folder above it.
sys.path.insert(1, str(Path(__file__).parents[2]))
from benchmarks.lifting import everyday_data, everyday_files
from benchmarks.lifting.everyday_filling import Form, Inputs, fill
from benchmarks.lifting.everyday_task import OTHERS, RECORDED, CallFailedError, Scene, Task
from benchmarks.lifting.everyday_world import World

BIN = Path(sys.executable).parent
NODE = Path(__file__).parents[2] / ".node" / "node_modules" / ".bin"
ROUNDS = 3
PATIENCE = 120
"""Seconds for one answer."""

VERDICTS = ("right", "said", "asked", "failed", "silent")
JSON = dict[str, Any]
Arguments = Mapping[str, object]


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    sqlite: str
    filesystem: str
    folder: Path
    only: str | None
    programs: Path | None
    always: bool
    bare: bool


@dataclass(frozen=True)
class Made:
    """A call that was made: the tool and its parameters."""

    tool: str
    parameters: Arguments


@dataclass(frozen=True)
class Verdict:
    """How a call of a tool ended, and why."""

    word: str
    form: Form | None = None
    assumed: tuple[str, ...] = ()
    """What the answer says that it assumes."""
    forms: tuple[str, ...] = ()
    """What the forms said that a person had to answer."""
    differences: tuple[str, ...] = ()
    wrong_places: tuple[str, ...] = ()
    answer: str = ""


@dataclass
class Outcome:
    """What became of a task."""

    name: str
    calls_by_hand: int = 0
    description: str = ""
    """What the list of tools says about the tool."""
    schema: JSON = field(default_factory=dict[str, Any])
    report: str = ""
    plan: dict[str, Verdict] = field(default_factory=dict[str, Verdict])
    program: dict[str, Verdict] = field(default_factory=dict[str, Verdict])
    program_schema: JSON = field(default_factory=dict[str, Any])
    rounds: int | None = None
    """The round in which a program was accepted; None: none was."""
    is_asked: bool = False
    """Whether the answer of `publish_idea` asks for a program."""
    request_tokens: int | None = None
    trouble: str = ""


# -- the gateway -----------------------------------------------------------------------------------


class Person:
    """The person at the client's forms: reads them, and approves everything."""

    def __init__(self) -> None:
        self.forms: list[str] = []
        """All that the forms since the last call said."""

    async def answer(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult:
        """Answer a form: what is required gets its default or its first choice, and a
        decision is to approve.
        """
        del context
        asked = params.model_dump(mode="json", by_alias=True, exclude_none=True)
        self.forms.append(json.dumps(asked, ensure_ascii=False))
        schema = cast("JSON", asked.get("requestedSchema", {}))
        properties = cast("dict[str, JSON]", schema.get("properties", {}))
        content: dict[str, str | int | float | bool | list[str] | None] = {}
        for name in cast("list[str]", schema.get("required", [])):
            choices = cast("list[str]", properties[name].get("enum", [""]))
            if "approve" in choices:
                content[name] = "approve"
            else:
                content[name] = properties[name].get("default", choices[0])

        return ElicitResult(action="accept", content=content)


class Gateway:
    """The client of a host that is connected to ideabridge."""

    def __init__(self, client: Client, person: Person, folder: Path) -> None:
        self._client = client
        self._person = person
        self._folder = folder

    async def use(self, tool: str, arguments: Arguments) -> CallToolResult:
        """Call a tool, and answer what it asks."""
        self._person.forms.clear()
        return await self._client.call_tool(tool, dict(arguments))

    @property
    def forms(self) -> Sequence[str]:
        """What the forms during the last call said."""
        return self._person.forms

    async def tool(self, name: str) -> JSON:
        """A tool as the list of tools shows it.

        Raises:
            LookupError: it is not in the list.
        """
        cursor: str | None = None
        while True:
            # Do not use the client's cache, which the server allows for some seconds.
            page = await self._client.list_tools(cursor=cursor, cache_mode="refresh")
            for tool in page.tools:
                if tool.name == name:
                    return tool.model_dump(mode="json", by_alias=True, exclude_none=True)
            cursor = page.next_cursor
            if cursor is None:
                raise LookupError(f"{name} is not in the list of tools")

    async def calls_so_far(self) -> int:
        """How many direct calls the session of this connection has."""
        result = await self.use("check_run", {})
        sessions = cast("list[JSON]", structured(result).get("sessions", []))
        current = [session for session in sessions if session.get("in_progress")]
        return int(current[0]["calls"]) if current else 0

    async def calls_of(self, run: str) -> list[Made]:
        """The calls that a run made, as `ideabridge runs show` tells them."""
        command = [
            str(BIN / "ideabridge"),
            "runs",
            "show",
            run,
            "--json",
            "--config",
            str(self._folder / "gateway.json"),
        ]
        environment = {**os.environ, "HOME": str(self._folder / "home")}
        done = await anyio.run_process(command, env=environment, check=False, cwd=self._folder)
        if done.returncode != 0:
            raise ChildProcessError(f"runs show {run}: {done.stderr.decode()}")

        calls = cast("list[JSON]", json.loads(done.stdout)["calls"])
        return [Made(str(call["tool"]), call.get("parameters") or {}) for call in calls]


class RecordingHand:
    """Calls tools through the gateway one by one, and remembers what it called."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.made: list[Made] = []

    async def call(self, tool: str, **parameters: object) -> str:
        """Make a call, and return the text of its answer."""
        self.made.append(Made(tool, parameters))
        result = await self._gateway.use(tool, parameters)
        text = text_of(result)
        if result.is_error:
            raise CallFailedError(text)
        return text


def text_of(result: CallToolResult) -> str:
    """All texts of an answer."""
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def structured(result: CallToolResult) -> JSON:
    """The structured content of an answer; empty where it has none."""
    return cast("JSON", result.structured_content or {})


def output_of(result: CallToolResult) -> str:
    """What a tool gives, without what it assumes."""
    content = structured(result)
    if "result" in content:
        return json.dumps(content["result"], ensure_ascii=False)
    blocks = [block.text for block in result.content if isinstance(block, TextContent)]
    return blocks[0] if blocks else ""


def configuration(options: Options, world: World) -> JSON:
    """The gateway's configuration: four servers whose tools the host sees."""
    servers: dict[str, JSON] = {
        "git": {"command": str(BIN / "mcp-server-git"), "args": []},
        "files": {
            "command": "node",
            "args": [str(Path(options.filesystem).resolve()), str(world.root)],
        },
        "sqlite": {"command": options.sqlite, "args": ["--db-path", str(world.database)]},
        "time": {"command": str(BIN / "mcp-server-time"), "args": ["--local-timezone", "UTC"]},
    }
    return {
        "store": "store.sqlite",
        "mcpServers": servers,
        "expose": ["modules"],
        "listed_ideas": 100,
    }


# -- judging ---------------------------------------------------------------------------------------


def named_places(result: CallToolResult) -> dict[str, str]:
    """What the answer says that it assumes: why, by place (calls.1.path, output)."""
    entries = cast("list[JSON]", (result.meta or {}).get("ideabridge/assumed", []))
    return {str(entry.get("at")): json.dumps(entry, ensure_ascii=False) for entry in entries}


def wrong_places(made: Sequence[Made], right: Sequence[Made], is_output_wrong: bool) -> set[str]:
    """Where the calls of a tool differ from those by hand.

    `calls.1.path` is a parameter with a value that no call by hand of that tool has, `calls.1` a
    call too many (each that nobody made, if there are more calls of the tool than by hand), and
    `missing TOOL` stands for calls that were not made.
    """
    places: set[str] = {"output"} if is_output_wrong else set()
    made_counts = Counter(call.tool for call in made)
    right_counts = Counter(call.tool for call in right)
    open_calls = list(right)
    for number, call in enumerate(made):
        if call in open_calls:
            open_calls.remove(call)
            continue
        places |= _wrong_parameters(
            number, call, [other for other in right if other.tool == call.tool]
        )
        if made_counts[call.tool] > right_counts[call.tool]:
            places.add(f"calls.{number}")

    places |= {f"missing {tool}" for tool in right_counts if right_counts[tool] > made_counts[tool]}
    return places


def _wrong_parameters(number: int, call: Made, others: Sequence[Made]) -> set[str]:
    """What is wrong about a call that nobody made by hand."""
    wrong = {
        f"calls.{number}.{key}"
        for key, value in call.parameters.items()
        if all(other.parameters.get(key) != value for other in others)
    }
    return wrong if wrong and others else {*wrong, f"calls.{number}"}


def is_named(wrong: set[str], named: Sequence[str], made: Sequence[Made]) -> bool:
    """Whether what is said names a place that is wrong, or a part of it."""
    return any(_names(place, wrong, made) for place in named)


def _names(place: str, wrong: set[str], made: Sequence[Made]) -> bool:
    if any(place == bad or place.startswith(f"{bad}.") for bad in wrong):
        return True
    call = re.match(r"calls\.(\d+)", place)
    if call is None or int(call[1]) >= len(made):
        return False
    return f"missing {made[int(call[1])].tool}" in wrong


def places_in(text: str) -> list[str]:
    """The places that the text of a form names."""
    return re.findall(r"\bcalls\.\d+(?:\.\w+)*", text)


class Judge:
    """Calls tools for other inputs, and compares what happens with what is right."""

    def __init__(self, gateway: Gateway, world: World) -> None:
        self._gateway = gateway
        self._world = world

    async def by_hand(self, task: Task, variant: str) -> list[Made]:
        """Do a task by hand in a fresh world, and return the calls.

        Raises:
            AssertionError: what is then is not what the task expects.
        """
        scene = self._prepare(task, variant)
        expected = self._world.snapshot().after(task.expected(scene))
        hand = RecordingHand(self._gateway)
        await task.do(hand, scene)
        differences = expected.differences(self._world.snapshot())
        if differences:
            raise AssertionError(f"{task.name} {variant} by hand: {differences}")
        return hand.made

    async def by_tool(self, task: Task, variant: str, schema: JSON, examples: Arguments) -> Verdict:
        """Do a task with the tool that was made of variant A, and judge."""
        right = await self.by_hand(task, variant)
        scene = self._prepare(task, variant)
        expectation = task.expected(scene)
        expected = self._world.snapshot().after(expectation)
        inputs = Inputs(task.inputs(Scene(self._world, RECORDED)), task.inputs(scene))
        form = fill(schema, inputs, examples)
        if form.missing:
            return Verdict(
                "failed", form, answer=f"nothing to fill in for {', '.join(form.missing)}"
            )

        result = await self._gateway.use(task.name, form.arguments)
        output = output_of(result)
        is_output_wrong = any(text not in output for text in expectation.answer) or any(
            text in output for text in expectation.forbidden
        )
        differences = expected.differences(self._world.snapshot())
        if is_output_wrong:
            differences.append(f"answer: {output[:300]}")

        verdict = Verdict(
            "failed" if result.is_error else "right",
            form,
            assumed=tuple(named_places(result).values()),
            forms=tuple(self._gateway.forms),
            differences=tuple(differences),
            answer=text_of(result),
        )
        if result.is_error or not differences:
            return verdict
        return await self._of_wrong(verdict, result, right, is_output_wrong)

    async def _of_wrong(
        self, verdict: Verdict, result: CallToolResult, right: Sequence[Made], is_output_wrong: bool
    ) -> Verdict:
        """The verdict on a call that ended well and did something else than the hands."""
        asked = [place for text in self._gateway.forms for place in places_in(text)]
        made = await self._gateway.calls_of(str((result.meta or {}).get("ideabridge/run")))
        wrong = wrong_places(made, right, is_output_wrong)
        word = "silent"
        if is_named(wrong, asked, made):
            word = "asked"
        elif is_named(wrong, list(named_places(result)), made):
            word = "said"

        return replace(verdict, word=word, wrong_places=tuple(sorted(wrong)))

    def _prepare(self, task: Task, variant: str) -> Scene:
        self._world.clear()
        scene = Scene(self._world, variant)
        task.prepare(scene)
        return scene


# -- publishing ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Publisher:
    """Publishes tasks, and calls the tools."""

    gateway: Gateway
    judge: Judge
    options: Options
    count: Callable[[str], int]

    async def outcome(self, task: Task) -> Outcome:
        """Do a task by hand, make it a tool, and judge the tool."""
        outcome = Outcome(task.name)
        first = await self.gateway.calls_so_far()
        made = await self.judge.by_hand(task, RECORDED)
        outcome.calls_by_hand = len(made)
        stretch: JSON = {
            "idea": "session",
            "name": task.name,
            "calls": [first, first + len(made) - 1],
        }
        if not self.options.bare:
            stretch["description"] = task.description

        answer = await self.gateway.use("publish_idea", stretch)
        outcome.report = text_of(answer)
        if answer.is_error:
            outcome.trouble = outcome.report
            return outcome

        try:
            tool = await self.gateway.tool(task.name)
        except LookupError as error:
            outcome.trouble = str(error)
            return outcome

        outcome.description = str(tool.get("description"))
        outcome.schema = tool["inputSchema"]
        for variant in OTHERS:
            outcome.plan[variant] = await self.judge.by_tool(task, variant, outcome.schema, {})

        if self.options.programs is not None:
            await self._with_program(task, stretch, answer, outcome, self.options.programs)

        return outcome

    async def _with_program(
        self, task: Task, stretch: JSON, answer: CallToolResult, outcome: Outcome, folder: Path
    ) -> None:
        """Save the Request, hand in the programs that are there, and judge the tool that
        results.
        """
        request: object = structured(answer).get("needs_program")
        outcome.is_asked = request is not None
        if request is None and self.options.always:
            asked = await self.gateway.use("publish_idea", {**stretch, "program": "?"})
            request = structured(asked) or {"text": text_of(asked)}

        if request is None:
            outcome.program = outcome.plan
            outcome.rounds = 0
            return

        text = json.dumps(request, ensure_ascii=False, separators=(",", ":"))
        outcome.request_tokens = self.count(text)
        pretty = json.dumps(request, ensure_ascii=False, indent=1)
        (folder / f"{task.name}.request.json").write_text(pretty + "\n")
        for number in range(1, ROUNDS + 1):
            program = folder / f"{task.name}.{number}.py"
            if not program.exists():
                return

            more = self._more(folder / f"{task.name}.{number}.json")
            handed = await self.gateway.use(
                "publish_idea", {**stretch, "program": program.read_text(), **more}
            )
            shown = {
                "isError": handed.is_error,
                "text": text_of(handed),
                "structured": handed.structured_content,
            }
            pretty = json.dumps(shown, ensure_ascii=False, indent=1)
            (folder / f"{task.name}.{number}.answer.json").write_text(pretty + "\n")
            if not handed.is_error and structured(handed).get("version", 1) > 1:
                outcome.rounds = number
                await self._judge_program(task, outcome, more)
                return

    async def _judge_program(self, task: Task, outcome: Outcome, more: JSON) -> None:
        outcome.program_schema = (await self.gateway.tool(task.name))["inputSchema"]
        recorded = cast("list[JSON]", more.get("inputs") or [{}])
        for variant in OTHERS:
            verdict = await self.judge.by_tool(task, variant, outcome.program_schema, recorded[0])
            outcome.program[variant] = verdict

    def _more(self, file: Path) -> JSON:
        if file.exists():
            return cast("JSON", json.loads(file.read_text()))
        return {}


async def measured(options: Options) -> list[Outcome]:
    """Do all tasks, and judge their tools."""
    world = World(options.folder / "world")
    world.clear()
    (options.folder / "home").mkdir(exist_ok=True)
    for path in options.folder.glob("store.sqlite*"):
        path.unlink()

    (options.folder / "gateway.json").write_text(json.dumps(configuration(options, world)))
    arguments = ["serve", "--config", str(options.folder / "gateway.json")]
    environment = {**os.environ, "HOME": str(options.folder / "home")}
    server = StdioServerParameters(
        command=str(BIN / "ideabridge"), args=arguments, env=environment, cwd=options.folder
    )
    person = Person()
    outcomes: list[Outcome] = []
    async with Client(
        server, elicitation_callback=person.answer, read_timeout_seconds=PATIENCE
    ) as client:
        gateway = Gateway(client, person, options.folder)
        publisher = Publisher(gateway, Judge(gateway, world), options, tokenizer())
        for task in chosen(options.only):
            outcomes.append(await publisher.outcome(task))
            sys.stderr.write(f"{line_of(outcomes[-1])}\n")

    return outcomes


def chosen(only: str | None) -> list[Task]:
    """All tasks, or the one of a name.

    Raises:
        SystemExit: no task has the name.
    """
    tasks = [*everyday_files.tasks(), *everyday_data.tasks()]
    wanted = [task for task in tasks if only in (None, task.name)]
    if not wanted:
        raise SystemExit(
            f"no task is called {only}; there are {', '.join(task.name for task in tasks)}"
        )
    return wanted


def tokenizer() -> Callable[[str], int]:
    """Counts tokens of o200k, or a quarter of the characters where the tokenizer is not
    installed.
    """
    if importlib.util.find_spec("bpe_openai") is None:
        return lambda text: len(text) // 4
    library: Any = importlib.import_module("bpe_openai")
    encoding = library.get_encoding("o200k_base")
    return lambda text: len(encoding.encode(text))


# -- printing --------------------------------------------------------------------------------------


def word_of(verdict: Verdict | None) -> str:
    """A verdict in the table: a + marks a right answer that names assumptions."""
    if verdict is None:
        return "-"
    return verdict.word + ("+" if verdict.word == "right" and verdict.assumed else "")


def line_of(outcome: Outcome) -> str:
    """The line of a task in the table."""
    rounds = "-" if outcome.rounds is None else str(outcome.rounds)
    tokens = "-" if outcome.request_tokens is None else str(outcome.request_tokens)
    cells = [word_of(outcome.plan.get(variant)) for variant in OTHERS]
    cells += [word_of(outcome.program.get(variant)) for variant in OTHERS]
    columns = "".join(f"{cell:<8}" for cell in cells)
    front = f"{outcome.name:<22}{outcome.calls_by_hand:>5}"
    return f"{front}   {columns}{rounds:>6}{tokens:>8}  {outcome.trouble[:80]}".rstrip()


def totals(outcomes: Sequence[Outcome]) -> JSON:
    """The sums of the table."""
    plan = [verdict for outcome in outcomes for verdict in outcome.plan.values()]
    program = [verdict for outcome in outcomes for verdict in outcome.program.values()]
    tokens = [outcome.request_tokens for outcome in outcomes if outcome.request_tokens is not None]
    return {
        "tasks": len(outcomes),
        "published": sum(not outcome.trouble for outcome in outcomes),
        "calls_by_hand": sum(outcome.calls_by_hand for outcome in outcomes),
        "plan": _counted(plan),
        "program": _counted(program),
        "requests": len(tokens),
        "request_tokens_mean": round(sum(tokens) / len(tokens)) if tokens else None,
        "request_tokens_max": max(tokens, default=None),
        "rounds": dict(Counter(str(outcome.rounds) for outcome in outcomes if outcome.program)),
    }


def _counted(verdicts: Sequence[Verdict]) -> JSON:
    counts = Counter(verdict.word for verdict in verdicts)
    quiet = sum(verdict.word == "right" and not verdict.assumed for verdict in verdicts)
    mute = sum(verdict.word == "silent" and not verdict.assumed for verdict in verdicts)
    unpassed = sum(
        verdict.word == "silent" and bool(verdict.form and verdict.form.unused)
        for verdict in verdicts
    )
    words = {word: counts[word] for word in VERDICTS}
    return {
        "calls": len(verdicts),
        **words,
        "right_and_nothing_assumed": quiet,
        "silent_and_nothing_assumed": mute,
        "silent_and_an_input_had_no_parameter": unpassed,
        "forms": sum(len(verdict.forms) for verdict in verdicts),
    }


def table(outcomes: Sequence[Outcome]) -> str:
    """The table of all tasks."""
    names = "".join(f"{f'{way} {variant}':<8}" for way in ("plan", "prog") for variant in OTHERS)
    head = f"{'task':<22}{'calls':>5}   {names}{'rounds':>6}{'tokens':>8}"
    sums = totals(outcomes)
    lines = [
        head,
        *(line_of(outcome) for outcome in outcomes),
        "",
        "A + marks a right answer that names assumptions.",
    ]
    lines += [f"{way}: {json.dumps(sums[way])}" for way in ("plan", "program")]
    rest = {key: value for key, value in sums.items() if key not in ("plan", "program")}
    return "\n".join([*lines, json.dumps(rest)]) + "\n"


def reasons(outcomes: Sequence[Outcome]) -> str:
    """What was wrong, and what was said, for each call that was not right."""
    lines: list[str] = []
    for outcome in outcomes:
        for way, verdicts in (("plan", outcome.plan), ("program", outcome.program)):
            for variant, verdict in verdicts.items():
                if verdict.word == "right":
                    continue
                lines.append(f"{outcome.name} {variant} by {way}: {verdict.word}")
                lines.append(
                    "  passed "
                    f"{json.dumps(verdict.form.arguments if verdict.form else {}, ensure_ascii=False)}"
                )
                lines += (
                    [f"  wrong  {', '.join(verdict.wrong_places)}"] if verdict.wrong_places else []
                )
                lines += [f"  is     {difference}" for difference in verdict.differences]
                lines += [
                    f"  form   {form[:500]}" for form in verdict.forms if verdict.word == "asked"
                ]
                lines += [f"  answer {verdict.answer[:500]}"]

    return "\n".join(lines) + "\n"


def reason(options: Options) -> str | None:
    """Why nothing can be measured here."""
    if shutil.which("node") is None:
        return "there is no node"
    if not Path(options.filesystem).exists():
        return "server-filesystem is not installed: run make npm, or pass --filesystem"
    if shutil.which(options.sqlite) is None:
        return "mcp-server-sqlite is not installed: see --help, and pass --sqlite"

    missing = [name for name in ("mcp-server-git", "mcp-server-time") if not (BIN / name).exists()]
    return f"not installed: {', '.join(missing)}" if missing else None


def parsed() -> tuple[Options, argparse.Namespace]:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object with everything")
    parser.add_argument(
        "--why", action="store_true", help="print also what was wrong and what was said"
    )
    parser.add_argument("--only", metavar="NAME", help="one task")
    parser.add_argument(
        "--programs", metavar="FOLDER", type=Path, help="save Requests, and hand in programs"
    )
    parser.add_argument(
        "--always", action="store_true", help="with --programs: ask for a program for each task"
    )
    parser.add_argument("--bare", action="store_true", help="publish without a description")
    parser.add_argument("--sqlite", metavar="COMMAND", default="mcp-server-sqlite")
    parser.add_argument(
        "--filesystem", metavar="SCRIPT", default=str(NODE / "mcp-server-filesystem")
    )
    parser.add_argument(
        "--folder",
        metavar="FOLDER",
        type=Path,
        default=Path(tempfile.gettempdir()) / "ideabridge-everyday",
        help=(
            "where the world and the store are; what it contains is deleted. "
            "Requests contain its path"
        ),
    )
    found = parser.parse_args()
    options = Options(
        sqlite=found.sqlite,
        filesystem=found.filesystem,
        folder=found.folder.resolve(),
        only=found.only,
        programs=found.programs,
        always=found.always,
        bare=found.bare,
    )
    return options, found


def main() -> int:
    """Measure, and print a table or JSON; 1 if an answer is wrong without a word."""
    options, found = parsed()
    skipped = reason(options)
    if skipped is not None:
        sys.stdout.write(
            json.dumps({"rows": [], "skipped": skipped}) + "\n"
            if found.json
            else f"skipped: {skipped}\n"
        )
        return 0

    options.folder.mkdir(parents=True, exist_ok=True)
    if options.programs is not None:
        options.programs.mkdir(parents=True, exist_ok=True)

    with (options.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        outcomes = anyio.run(measured, options)

    if found.json:
        shown = {"totals": totals(outcomes), "tasks": [asdict(outcome) for outcome in outcomes]}
        sys.stdout.write(json.dumps(shown, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(table(outcomes))
        sys.stdout.write(reasons(outcomes) if found.why else "")

    if any(verdict.word == "silent" for outcome in outcomes for verdict in outcome.plan.values()):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
