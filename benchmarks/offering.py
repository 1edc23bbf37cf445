"""Tokens that the offer of programs costs and saves in `solve`: calls and programs, with and
without the offer.

    pip install '.[bench,dev]' bpe-openai      (the tokenizer; it has the vocabulary o200k)
    python -m benchmarks.offering [--json]

The tasks are those of tests/programs/three_ways.py and tokens_parts/tasks.py, as far as their
servers are installed. A scripted mind does each by a Solution of calls, by a program, and with one
call in each Solution, as a mind does that wants to see each result. The first two are asked for in
the same Requests; a Request that offers no programs is that of `"programs": false`. A token that is
written counts 5, a token that is read 1, and one that was read before in the conversation 0.1 in
each later turn, as in tokens.py.

Minds:
    turns: the model of a host, which reads the answers of `solve`; the tools of the server have been read before.
    endpoint: a model endpoint, which reads instructions, schema and messages anew in each Request.

Offers: the tools that the task needs, or every tool there is.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.context.references import escaped
from ideabridge.bridge.minds.instructions import instructions
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError

# Add the folder above, because this file may also be run as a script.
sys.path.insert(1, str(Path(__file__).parents[1]))
from benchmarks.tokens import Conversation, Count, answer_of, dumped, tokenizer
from benchmarks.tokens_parts import catalogue
from benchmarks.tokens_parts.tasks import more_tasks
from tests.programs.test_three_ways import Stage, staged
from tests.programs.three_ways import Task

WAYS = ("calls", "program", "steps")
OFFERS = ("needed", "all")
ANYTHING: JSONObject = {"type": ["string", "number", "boolean", "array", "object"]}
"""The output schema of each task: anything but null, which asks for the next Request."""

Key = tuple[str, str, str, bool]
"""Mind, offer of tools, way, and whether programs are offered."""


def tools_of(task: Task) -> list[str]:
    """The tools that the calls of a task name."""
    return list(dict.fromkeys(name.rpartition(".")[2] for name, *_ in task.calls))


def solution_of(task: Task, way: str) -> JSONObject:
    """The one Solution of a task, with calls or a program."""
    if way == "program":
        return {"program": task.program}
    return {"calls": task.plan["calls"], "output": task.output}


# -- by turns --------------------------------------------------------------------------------------


@dataclass
class ByTurns:
    """A task that the model of a host solves."""

    stage: Stage
    task: Task
    talk: Conversation
    run: str = ""
    turn: int = 0

    async def begin(self, offer: str) -> None:
        """Ask for the task, and read the first Request."""
        asked: JSONObject = {
            "task": self.task.name,
            "input": self.task.given,
            "output_schema": ANYTHING,
        }
        if offer == "needed":
            asked["tools"] = list[JSON](tools_of(self.task))
        # The model has already read the tools of the server.
        self.talk.seen()
        self.run = str((await self._call({**asked, "mind": "turns"}))["run"])

    async def submit(self, solution: JSONObject) -> dict[str, Any]:
        """Hand in the next Solution, and read what came of it."""
        told = await self._call({"run": self.run, "turn": self.turn, "solution": solution})
        self.turn += 1
        return told

    async def _call(self, arguments: JSONObject) -> dict[str, Any]:
        self.talk.write({"name": "solve", "input": arguments})
        result = await self.stage.client.call_tool("solve", arguments)
        self.talk.read(answer_of(result))
        told: Any = result.structured_content
        if result.is_error:
            raise SystemExit(f"{self.task.name}: {result.content}")
        return told


async def by_turns(stage: Stage, task: Task, count: Count, offer: str, way: str) -> float:
    """The price of a task."""
    stage.desk.notes.clear()
    solving = ByTurns(stage, task, Conversation(count))
    await solving.begin(offer)
    if way != "steps":
        told = await solving.submit(solution_of(task, way))
        if told["status"] != "done":
            raise SystemExit(f"{task.name} by turns, {way}: {told}")
    else:
        made = 0

        async def call(name: str, /, **parameters: Any) -> Any:
            nonlocal made
            module, _, own = name.rpartition(".")
            written = {key: escaped(value) for key, value in parameters.items()}
            calls: list[JSON] = [
                {"_tool": own, **({"_module": module} if module else {}), **written}
            ]
            told = await solving.submit({"calls": calls, "output": None})
            place = made
            made = made + 1
            if told.get("errors"):
                raise ActivityError(str(told["errors"]))

            run = await stage.bridge.run(solving.run)
            return run.value(f"†results.{place}")

        output = await task.by_hand(call, dict(task.given))
        told = await solving.submit({"calls": [], "output": escaped(output)})
        if told["status"] != "done":
            raise SystemExit(f"{task.name} by turns, {way}: {told}")

    # The model reads the last answer once in order to report the result.
    solving.talk.price += solving.talk.context * 0.1
    return solving.talk.price


# -- an endpoint -----------------------------------------------------------------------------------


async def by_endpoint(bridge: Bridge, task: Task, count: Count, offer: str, way: str) -> float:
    """The price of a task in one Request."""
    tools = tools_of(task) if offer == "needed" else None
    solution = solution_of(task, way)
    # The Request is the same whoever answers it, so any mind will do.
    run = await bridge.solve(
        task.name, input=task.given, output_schema=ANYTHING, tools=tools, mind="turns"
    )
    await run.wait()
    request = run.runner.request
    if request is None:
        raise SystemExit(f"{task.name}: there is no Request")
    run.submit(0, solution)
    if await run.wait() != "done":
        raise SystemExit(f"{task.name} by an endpoint, {way}: {run.answer()}")

    text = instructions(request.schema, is_shown=True)
    read = (
        count(text)
        + count(dumped(request.schema))
        + sum(count(dumped(one)) for one in request.texts)
    )
    return read + 5.0 * count(dumped(solution))


# -- all together ----------------------------------------------------------------------------------


async def measure(folder: Path, count: Count) -> dict[Key, dict[str, float]]:
    """The price of each task."""
    more: JSONObject = {"office": {"command": sys.executable, "args": [catalogue.__file__]}}
    prices: dict[Key, dict[str, float]] = {}
    async with staged(await anyio.Path(folder).resolve(), more) as stage:
        every = [*stage.tasks, *(task for task in more_tasks() if "memory." not in str(task.calls))]
        configured = stage.bridge.configuration
        for programs in (True, False):
            stage.bridge.configuration = configured.model_copy(update={"programs": programs})
            for task in every:
                for offer in OFFERS:
                    for way in WAYS:
                        if way == "program" and not programs:
                            continue
                        price = await by_turns(stage, task, count, offer, way)
                        prices.setdefault(("turns", offer, way, programs), {})[task.name] = price
                        if way != "steps":
                            stage.desk.notes.clear()
                            price = await by_endpoint(stage.bridge, task, count, offer, way)
                            prices.setdefault(("endpoint", offer, way, programs), {})[task.name] = (
                                price
                            )

    return prices


def rows_of(prices: dict[Key, dict[str, float]]) -> list[dict[str, JSON]]:
    """The rows: each mean price beside that of a Solution of calls without the offer."""
    rows: list[dict[str, JSON]] = []
    for (mind, offer, way, programs), listed in prices.items():
        base = statistics.mean(prices[mind, offer, "calls", False].values())
        price = statistics.mean(listed.values())
        said = "programs offered" if programs else "not offered"
        row: dict[str, JSON] = {
            "what": f"{mind}, tools {offer}, {way}, {said}",
            "ours": price,
            "peer": base,
        }
        rows.append({**row, "floor": None, "ratio": price / base, "target": None, "met": None})

    return rows


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    count = tokenizer()
    if count is None:
        skipped = "the tokenizer is not installed: pip install bpe-openai"
        print(
            json.dumps({"benchmark": "offering", "rows": [], "skipped": skipped})
            if arguments.json
            else skipped
        )
        return 0

    with tempfile.TemporaryDirectory() as folder:
        prices = anyio.run(measure, Path(folder), count)

    rows = rows_of(prices)
    if arguments.json:
        print(json.dumps({"benchmark": "offering", "rows": rows}))
        return 0

    print(f"{len(next(iter(prices.values())))} tasks")
    for row in rows:
        print(f"{row['what']:48} {row['ours']:8,.0f} {row['ratio']:5.2f}")

    return 0


if __name__ == "__main__":
    sys.exit(main())
