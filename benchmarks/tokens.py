"""Tokens that tasks cost the model of a host: plans and programs, beside FastMCP's code mode and a
host's tool search.

    pip install '.[bench,dev]' bpe-openai      (the tokenizer; it has the vocabulary o200k)
    python -m benchmarks.tokens [--json]

The tasks are those of tests/programs/three_ways.py and tokens_parts/tasks.py: real servers of git,
time, files and memory, a server with a catalogue of 43 tools, and tools of a file; 85 tools in all.
A scripted model does each in a conversation of its own: it searches for tools, makes its calls, and
reads the answers.
Every answer comes over the wire. A token that is written counts 5, a token that is read for the
first time counts 1, and one that was read before in the conversation counts 0.1 in each later turn
(prices of cached prompts). Most results of these tasks are small, and what a model computes in its
head from them costs nothing here: that favours single calls.

cold: the tools of the server, the search, and the task. warm: the same task later in the
conversation: the tools of the server and the answers of the search stand in the context, and
have been read.

Ways:
    plan, program: through ideabridge, with `run_plan`.
    code mode: FastMCP's, over the same servers; only where `fastmcp` is installed. Tasks that do not run there are left
        out of the comparison: those with tools of a file, and those that catch errors.
    tool search: a host that searches tools itself, is given the schemas of the five best, and makes one call a turn.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import json
import statistics
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError

# Add the folder above, because this file may also be run as a script.
sys.path.insert(1, str(Path(__file__).parents[1]))
from benchmarks.tokens_parts import catalogue
from benchmarks.tokens_parts.tasks import ENTITIES, RELATIONS, more_tasks
from tests.npm import missing, program
from tests.programs.test_three_ways import Stage, staged
from tests.programs.three_ways import Task

READ = 1.0
AGAIN = 0.1
WRITTEN = 5.0
FOUND = 5
"""The tools that a host's tool search loads."""

SEARCH_TOOL: JSONObject = {
    "name": "tool_search",
    "description": "Search for tools by keywords. The definitions of the best are loaded and can be called.",
    "input_schema": {
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
    },
}

Count = Callable[[str], int]

OWN = frozenset(
    {
        "search_tools",
        "run_plan",
        "solve",
        "submit_solution",
        "check_run",
        "decide_approval",
        "publish_idea",
        "search_ideas",
    }
)
"""The own tools, of which a host reads those that are listed; here also decide_approval, since the
client shows no forms.
"""

OWN_LIST = 1_000
"""The most tokens of the own list of a client that shows forms, with the instructions."""

NOVEMBER = {"cold": 4774.0, "warm": 1282.0}
"""The mean price of the same tasks as plans, with the code of 6d842a7, which listed eight tools and
answered searches with schemas. It had no `compute`: a tool of the user with the same schema did it.
"""

COLD = 0.55
WARM = 0.7
"""What a task may cost, of its price in `NOVEMBER`."""


@dataclass
class Conversation:
    """What a model reads and writes, turn by turn.

    Attributes:
        count: the tokens of a text.
        context: the tokens that it has read so far.
        price: the sum of all turns.
    """

    count: Count
    context: int = 0
    price: float = 0.0
    turns: int = 0

    def read(self, text: object) -> None:
        """Something new stands in the context of the next turn."""
        size = self.count(text if isinstance(text, str) else dumped(text))
        self.context += size
        self.price += size * (READ - AGAIN)

    def seen(self) -> None:
        """All that has been read so far was read in earlier turns, and is paid."""
        self.price = 0.0
        self.turns = 0

    def write(self, value: object) -> None:
        """A turn: the model reads its context and writes a call."""
        size = self.count(dumped(value))
        self.price += self.context * AGAIN + size * WRITTEN
        self.context += size
        self.turns += 1


def dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def tokenizer() -> Count | None:
    """Counts tokens of o200k; None where the tokenizer is not installed."""
    if importlib.util.find_spec("bpe_openai") is None:
        return None
    library: Any = importlib.import_module("bpe_openai")
    encoding = library.get_encoding("o200k_base")
    return lambda text: len(encoding.encode(text))


def shown(definition: dict[str, Any]) -> dict[str, Any]:
    """A tool as hosts show it to their models."""
    return {
        key: definition[key] for key in ("name", "description", "inputSchema") if key in definition
    }


def answer_of(result: Any) -> object:
    """What a model sees of an answer: the structured content, or the text where there is none."""
    if result.structured_content is not None:
        return result.structured_content
    return "\n".join(block.text for block in result.content if block.type == "text")


# -- ideabridge ------------------------------------------------------------------------------------


async def own_list(client: Any) -> list[str]:
    """What the context of every task contains: the instructions and the own tools
    that are listed.
    """
    listed = [one for one in (await client.list_tools()).tools if one.name in OWN]
    return [
        client.instructions or "",
        *(dumped(shown(one.model_dump(by_alias=True))) for one in listed),
    ]


async def ours(stage: Stage, task: Task, count: Count, way: str, *, warm: bool) -> Conversation:
    """A task as a plan or a program."""
    client = stage.client
    talk = Conversation(count)
    prefix = await own_list(client)
    for one in prefix:
        talk.read(one)

    search: JSONObject = {"words": task.name}
    talk.write({"name": "search_tools", "input": search})
    talk.read(answer_of(await client.call_tool("search_tools", search)))
    if warm:
        talk.seen()

    if way == "plan":
        plan = _shown_plan(task)
    else:
        plan = {"program": task.program, "input": task.given}

    talk.write({"name": "run_plan", "input": plan})
    stage.desk.notes.clear()
    result = await client.call_tool("run_plan", plan)
    told: Any = result.structured_content
    if result.is_error or told["status"] != "done":
        raise SystemExit(f"{task.name} as {way}: {result.content}")
    talk.read(answer_of(result))
    # The model reads the last answer once in order to report the result.
    talk.price += talk.context * AGAIN
    return talk


def _shown_plan(task: Task) -> JSONObject:
    """The plan of a task as the description of `run_plan` shows it: a tool whose name is not shared
    needs no module.
    """
    calls = cast("list[JSONObject]", task.plan["calls"])
    return {
        **task.plan,
        "calls": [{key: one for key, one in call.items() if key != "_module"} for call in calls],
    }


async def searched(stage: Stage, task: Task, count: Count, *, warm: bool) -> Conversation:
    """A task in a host that searches for tools itself, with one call a turn."""
    client, talk = stage.client, Conversation(count)
    definitions = {
        one.name: shown(one.model_dump(by_alias=True)) for one in (await client.list_tools()).tools
    }
    talk.read(SEARCH_TOOL)
    talk.write({"name": "tool_search", "input": {"query": task.name}})
    needed = list(dict.fromkeys(name.rpartition(".")[2] for name, *_ in task.calls))
    others = [name for name in definitions if name not in needed]
    for name in [*(one for one in needed if one in definitions), *others][:FOUND]:
        talk.read(definitions[name])

    if warm:
        talk.seen()

    stage.desk.notes.clear()

    async def call(name: str, /, **parameters: Any) -> Any:
        own = name.rpartition(".")[2]
        talk.write({"name": own, "input": parameters})
        result = await client.call_tool(own, parameters)
        talk.read(answer_of(result))
        if result.is_error:
            raise ActivityError(str(result.content))

        found: Any = answer_of(result)
        if isinstance(found, dict):
            unwrapped = cast("dict[str, Any]", found)
        else:
            unwrapped = {}

        return unwrapped.get("result", found)

    await task.by_hand(call, dict(task.given))
    talk.price += talk.context * AGAIN
    return talk


# -- FastMCP ---------------------------------------------------------------------------------------

HELPER = """
async def _call(name, arguments):
    found = await call_tool(name, arguments)
    return found["result"] if isinstance(found, dict) and list(found) == ["result"] else found
"""
"""What makes our programs run there; it is not counted."""


class _Calls(ast.NodeTransformer):
    """`MODULE.TOOL(a=1)` becomes `_call("MODULE_TOOL", {"a": 1})`."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
            return node

        module = function.value.id
        if module not in ("git", "time", "files", "memory", "office", "tools"):
            return node

        name = function.attr if module == "tools" else f"{module}_{function.attr}"
        keys: list[ast.expr | None] = [ast.Constant(one.arg) for one in node.keywords]
        values = [one.value for one in node.keywords]
        return ast.Call(ast.Name("_call"), [ast.Constant(name), ast.Dict(keys, values)], [])


def converted(task: Task) -> str:
    """The program of a task as code mode runs it."""
    tree = ast.parse(task.program)
    for one in tree.body:
        if isinstance(one, ast.Import):
            one.names = [name for name in one.names if name.name in ("asyncio", "json", "re")]

    tree.body = [
        one
        for one in tree.body
        if not (isinstance(one, ast.Import) and not one.names)
        and not (isinstance(one, ast.ImportFrom) and one.module == "servers")
    ]
    last = tree.body[-1]
    if isinstance(last, ast.Expr):
        tree.body[-1] = ast.Return(last.value)

    return ast.unparse(ast.fix_missing_locations(_Calls().visit(tree)))


@asynccontextmanager
async def code_mode(stage: Stage) -> AsyncGenerator[Any]:
    """A client of FastMCP's code mode over the same servers; None where FastMCP is not
    installed.
    """
    if importlib.util.find_spec("fastmcp") is None:
        yield None
        return

    fastmcp: Any = importlib.import_module("fastmcp")
    mode: Any = importlib.import_module("fastmcp.experimental.transforms.code_mode")
    proxy: Any = importlib.import_module("fastmcp.server").create_proxy
    modules = stage.bridge.configuration.modules
    server = fastmcp.FastMCP("peer", transforms=[mode.CodeMode(max_tool_calls=None)])
    for name, one in modules.items():
        started = {"command": one.command, "args": [*one.args], "env": {**one.env}}
        # Let the proxy use the era of each server instead of its client's, because some servers do
        # not know the latter.
        server.mount(proxy({"mcpServers": {name: started}}, mode="auto"), namespace=name)

    async with fastmcp.Client(server) as client:
        yield client


async def peer(client: Any, task: Task, count: Count, *, warm: bool) -> Conversation:
    """A task as code in FastMCP's code mode: search, schemas of the tools that it
    needs, and the code.
    """
    talk = Conversation(count)
    tools = [shown(one.model_dump(by_alias=True)) for one in await client.list_tools()]
    code = f"input = {task.given!r}\n{converted(task)}"
    called = list(dict.fromkeys(name for name in _names(code)))
    for one in tools:
        talk.read(one)

    for name, arguments in (("search", {"query": task.name}), ("get_schema", {"tools": called})):
        talk.write({"name": name, "input": arguments})
        talk.read(answer_of(await client.call_tool(name, arguments)))

    if warm:
        talk.seen()

    talk.write({"name": "execute", "input": {"code": code}})
    talk.read(answer_of(await client.call_tool("execute", {"code": f"{HELPER}\n{code}"})))
    talk.price += talk.context * AGAIN
    return talk


def _names(code: str) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(code)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "_call"
        ):
            first = node.args[0]
            if isinstance(first, ast.Constant):
                found.append(str(first.value))

    return found


# -- all together ----------------------------------------------------------------------------------


@dataclass
class Way:
    """The prices of the tasks in one way."""

    cold: dict[str, float] = field(default_factory=dict[str, float])
    warm: dict[str, float] = field(default_factory=dict[str, float])
    failed: list[str] = field(default_factory=list[str])


async def measure(folder: Path, count: Count) -> tuple[dict[str, Way], int]:
    """The price of each task in each way, and the tokens of the own list for a
    client with forms.
    """
    ways: dict[str, Way] = {"plan": Way(), "program": Way(), "tool search": Way()}
    graph = [
        *({"type": "entity", **one} for one in ENTITIES),
        *({"type": "relation", **one} for one in RELATIONS),
    ]
    memory = anyio.Path(folder) / "memory.jsonl"
    await memory.write_text("".join(dumped(one) + "\n" for one in graph), encoding="utf-8")
    command, *arguments = program("mcp-server-memory")
    more: JSONObject = {
        "memory": {
            "command": command,
            "args": [*arguments],
            "env": {"MEMORY_FILE_PATH": str(memory)},
        },
        "office": {"command": sys.executable, "args": [catalogue.__file__]},
    }
    async with (
        staged(await anyio.Path(folder).resolve(), more) as stage,
        code_mode(stage) as client,
    ):
        if client is not None:
            ways["code mode"] = Way()

        prefix = await own_list(stage.client)
        size = sum(count(one) for one in prefix if '"name":"decide_approval"' not in one)
        for task in [*stage.tasks, *more_tasks()]:
            for warm in (False, True):
                for name in ("plan", "program"):
                    talk = await ours(stage, task, count, name, warm=warm)
                    (ways[name].warm if warm else ways[name].cold)[task.name] = talk.price

                talk = await searched(stage, task, count, warm=warm)
                (ways["tool search"].warm if warm else ways["tool search"].cold)[task.name] = (
                    talk.price
                )
                if client is None:
                    continue

                try:
                    talk = await peer(client, task, count, warm=warm)
                except Exception as error:  # noqa: BLE001 - a task that it cannot do
                    ways["code mode"].failed.append(f"{task.name}: {error}"[:200])
                    continue

                (ways["code mode"].warm if warm else ways["code mode"].cold)[task.name] = talk.price

    return ways, size


def rows_of(ways: dict[str, Way], own: int) -> list[dict[str, JSON]]:
    """The rows: the own list, and the mean price of the tasks that both ways did. A host that
    searches itself has no target: most tasks are small, and a model computes from their
    results for nothing.
    """
    row: dict[str, JSON] = {
        "what": "tokens of the own list for a client with forms",
        "ours": own,
        "peer": None,
    }
    rows = [
        {**row, "floor": OWN_LIST, "ratio": own / OWN_LIST, "target": 1.0, "met": own <= OWN_LIST}
    ]
    for name in ("plan", "program"):
        for temperature, target in (("cold", COLD), ("warm", WARM)):
            price = statistics.mean(getattr(ways[name], temperature).values())
            ratio = price / NOVEMBER[temperature]
            row = {
                "what": f"price of a task, {name}, {temperature}; peer: November 2026",
                "ours": price,
            }
            row |= {"peer": NOVEMBER[temperature], "floor": None, "ratio": ratio, "target": target}
            rows.append({**row, "met": ratio <= target})
            for other in ways.keys() - {"plan", "program"}:
                mine: dict[str, float] = getattr(ways[name], temperature)
                theirs: dict[str, float] = getattr(ways[other], temperature)
                both = [task for task in mine if task in theirs]
                if both:
                    one = statistics.mean(mine[task] for task in both)
                    two = statistics.mean(theirs[task] for task in both)
                    row = {
                        "what": f"price of a task, {name}, {temperature}; peer: {other}",
                        "ours": one,
                        "peer": two,
                    }
                    bound = 1.0 if other == "code mode" else None
                    met = one <= two if bound else None
                    rows.append(
                        {**row, "floor": None, "ratio": one / two, "target": bound, "met": met}
                    )

    return rows


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    count = tokenizer()
    skipped = missing("@modelcontextprotocol/server-memory") or missing(
        "@modelcontextprotocol/server-filesystem"
    )
    if count is None:
        skipped = "the tokenizer is not installed: pip install bpe-openai"

    if count is None or skipped is not None:
        print(
            json.dumps({"benchmark": "tokens", "rows": [], "skipped": skipped})
            if arguments.json
            else skipped
        )
        return 0

    with tempfile.TemporaryDirectory() as folder:
        ways, own = anyio.run(measure, Path(folder), count)

    rows = rows_of(ways, own)
    code = 0 if all(row["met"] is not False for row in rows) else 1
    if arguments.json:
        print(json.dumps({"benchmark": "tokens", "rows": rows}))
        return code

    for name, way in ways.items():
        cold, warm = (statistics.mean(one.values()) if one else 0 for one in (way.cold, way.warm))
        print(f"{name:12} {len(way.cold):3} tasks   cold {cold:8,.0f}   warm {warm:8,.0f}")

    for row in rows:
        target = "" if row["target"] is None else f" (target {row['target']})"
        print(f"{row['what']}: {row['ratio']:.2f}{target}")

    for line in ways.get("code mode", Way()).failed[:10]:
        print(f"code mode: {line}", file=sys.stderr)

    return code


if __name__ == "__main__":
    sys.exit(main())
