"""Nobody freezes the server: what computes for long does so in a worker process, which
can be stopped.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final, cast

import anyio
import pytest
from mcp import Client

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import load_configuration
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.plan import read_plan
from ideabridge.tools import names, worker
from ideabridge.tools import schema as schemas
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import (
    ActivityError,
    IdeabridgeError,
    LimitExceededError,
    ValueMismatchError,
)
from ideabridge.tools.rename import ParameterNames
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Annotations, Tool
from ideabridge.tools.worker import WorkerError, workers
from tests.security.test_signals import descendants, until_ended
from tests.server.serving import call, configured, http_process, plain
from tests.server.test_ending import is_there
from tests.tools.context import RecordingContext
from tests.waiting import until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="workers are found in /proc"),
]

TOOLS: Final = """
from ideabridge.tools.decorator import tool

@tool(read_only=True)
async def rows(n: int) -> list[dict[str, int | str]]:
    return [{"id": one, "name": f"row {one}", "v": one % 7} for one in range(n)]

@tool(read_only=True)
async def wide(n: int) -> dict[str, int]:
    return {str(one): 1 for one in range(n)}

@tool(read_only=True)
async def nested(n: int) -> list[dict[str, list[int]]]:
    return [{"a": [0] * 50 + [1499]} for one in range(n)]
"""
SLOW: Final = " && ".join(["contains(name, 'row')"] * 12)
"""A condition that takes longer over 30,000 rows than several requests, and holds for all."""

ENDLESS: Final = " && ".join(["contains(name, 'row')"] * 80)

UNIONS: Final[JSONObject] = {
    "anyOf": [{"type": "string", "minLength": number} for number in range(5500)]
}
"""215 KB. A value that is no text fails in 5,500 ways."""


def enumerated(count: int) -> JSONObject:
    """As many arrays, 110 bytes each. The last one is found after so many comparisons."""
    return {"enum": [{"a": [*([0] * 50), number]} for number in range(count)]}


ENUMERATED: Final = enumerated(1500)


def rows(count: int) -> list[JSON]:
    return [{"id": one, "name": f"row {one}", "v": one % 7} for one in range(count)]


async def shaped(tool: str, /, **arguments: JSON) -> JSON:
    return cast("JSON", await builtin_toolbox().activity(tool).run(arguments, RecordingContext()))


def at_work() -> set[int]:
    """The worker processes of this process."""
    script = str(worker.__file__).replace("worker.py", "worker_process.py").encode()
    found: set[int] = set()
    for pid in descendants(os.getpid()):
        try:
            if script in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.add(pid)
        except OSError:
            continue

    return found


@pytest.fixture(autouse=True)
def no_workers() -> Iterator[None]:
    """Each test begins and ends without workers."""
    workers.close()
    yield
    workers.close()


async def others_run_meanwhile(work: Callable[[], Awaitable[object]]) -> None:
    """Do some work; fails where other tasks have no turn before it is done."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await anyio.sleep(0.005)
            turns += 1

    async with anyio.create_task_group() as group:
        group.start_soon(others)
        await work()
        group.cancel_scope.cancel()

    assert turns >= 10


# -- over HTTP -------------------------------------------------------------------------------------


@asynccontextmanager
async def two_clients(folder: Path, **modules: Any) -> AsyncGenerator[tuple[Client, Client]]:
    tools = folder / "tools.py"
    tools.write_text(TOOLS)
    with http_process(configured(folder, tools=[str(tools)], **modules)) as url:
        async with Client(url, mode="auto") as one, Client(url, mode="auto") as other:
            yield one, other


async def until_done(other: Client, run: str, calls: int) -> None:
    """Ask for a run until so many of its calls are done, or it is over."""
    told: dict[str, Any] = {"status": "running", "progress": "0 of"}
    while told["status"] == "running" and int(told["progress"].split()[0]) < calls:
        told = await call(other, "check_run", run=run, wait_s=0)


async def is_answered(other: Client, run: str) -> None:
    """Another client is answered before a run is over."""
    for _ in range(3):
        assert (await other.list_tools(cache_mode="bypass")).tools
        assert (await call(other, "search_tools", words="filter"))["tools"]
    now = await call(other, "check_run", run=run, wait_s=0)
    assert now["status"] == "running", now


async def test_others_are_answered_while_a_call_computes_over_30_000_items(tmp_path: Path) -> None:
    plan: list[dict[str, Any]] = [
        {"_tool": "rows", "n": 30_000, "_outputPath": "rows"},
        {
            "_tool": "filter",
            "items": "†state.rows",
            "where": f"v > `5` && {SLOW}",
            "_outputPath": "kept",
        },
        {
            "_tool": "pick",
            "data": "†state.kept",
            "path": "[length(@), sum([].id)]",
            "_outputPath": "told",
        },
    ]
    async with two_clients(tmp_path) as (one, other):
        begun = await call(one, "run_plan", calls=plan, output="†state.told", wait_s=0)
        await until_done(other, begun["run"], 1)
        await is_answered(other, begun["run"])
        done = await call(one, "check_run", run=begun["run"], wait_s=45)

    kept = [one for one in range(30_000) if one % 7 > 5]
    assert (done["status"], done["output"]) == ("done", [len(kept), sum(kept)])


def hostile(schema: JSONObject) -> dict[str, Any]:
    """A tool that echoes its arguments, and whose output schema is a trap."""
    argued: JSONObject = {"type": "object", "properties": {"x": schema}}
    return {
        "name": "trap",
        "inputSchema": {"type": "object", "properties": {"x": {}}},
        "outputSchema": {"type": "object", "properties": {"arguments": argued}},
        "annotations": {"readOnlyHint": True},
    }


async def test_a_hostile_output_schema_of_215_kb_fails_its_call_alone(tmp_path: Path) -> None:
    trap = hostile({"type": "object", "additionalProperties": UNIONS})
    assert 210_000 < len(json.dumps(trap)) < 256 * 1024
    plan: list[dict[str, Any]] = [
        {"_tool": "wide", "n": 2_000, "_outputPath": "wide"},
        {"_tool": "trap", "x": "†state.wide", "_outputPath": "y"},
        {"_tool": "count", "items": "†state.wide", "_outputPath": "n"},
    ]
    async with two_clients(tmp_path, mcpServers={"hostile": plain(tmp_path, "hostile", trap)}) as (
        one,
        _,
    ):
        done = await call(one, "run_plan", calls=plan, output="†state.n", wait_s=45)

    assert (done["status"], done["output"]) == ("done", 2_000)
    [error] = done["errors"]
    assert (
        "server 'hostile' declares an output schema but sent no structured content"
        in error["error"]["message"]
    )


async def test_others_are_answered_while_a_result_is_held_against_a_hostile_schema(
    tmp_path: Path,
) -> None:
    trap = hostile({"type": "array", "items": ENUMERATED})
    plan: list[dict[str, Any]] = [
        # These are nearly as many values as the parameters of a call may have.
        {"_tool": "nested", "n": 19_000, "_outputPath": "nested"},
        {"_tool": "trap", "x": "†state.nested", "_outputPath": "y"},
    ]
    async with two_clients(tmp_path, mcpServers={"hostile": plain(tmp_path, "hostile", trap)}) as (
        one,
        other,
    ):
        begun = await call(one, "run_plan", calls=plan, wait_s=0)
        await is_answered(other, begun["run"])
        assert (await call(one, "check_run", run=begun["run"], cancel=True))[
            "status"
        ] == "cancelled"


# -- built-in tools --------------------------------------------------------------------------------


def deep(text: str, times: int) -> str:
    return "|".join([text] * times)


ATTACKS: Final[list[tuple[str, Callable[[], JSONObject]]]] = [
    ("filter", lambda: {"items": rows(20_000), "where": ENDLESS}),
    ("filter", lambda: {"items": rows(1_000), "where": "[@,@]" + "[].[@,@]" * 9}),
    ("count", lambda: {"items": rows(20_000), "by": f"to_string([{','.join(['@'] * 200)}])"}),
    (
        "template",
        lambda: {"text": "{length(sort_by(r,&name))}" * 2_000, "values": {"r": rows(20_000)}},
    ),
    ("pick", lambda: {"data": rows(20_000), "path": deep("sort_by(@,&name)", 100)}),
    ("pick", lambda: {"data": json.dumps(rows(20_000)), "path": f"[?{ENDLESS}]"}),
]


@pytest.mark.parametrize("number", range(len(ATTACKS)))
async def test_a_built_in_tool_ends_at_its_deadline_and_holds_up_nobody(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "MOST_SECONDS", 0.5)
    tool, arguments = ATTACKS[number]
    given = arguments()

    async def attack() -> None:
        with pytest.raises(
            LimitExceededError,
            match=rf"^{tool} over .* \([\d,]+ bytes\): stopped after 0.5 s|bytes: s",
        ):
            await shaped(tool, **given)

    await others_run_meanwhile(attack)
    assert at_work() == set()


async def test_a_joined_text_that_would_be_too_long_is_refused_before_it_is_made() -> None:
    async def attack() -> None:
        with pytest.raises(ActivityError, match="the text would be longer than"):
            await shaped("join", items=list[JSON]([0] * 20_000), separator="x" * 1_000_000)

    await others_run_meanwhile(attack)


def test_every_built_in_tool_is_attacked() -> None:
    attacked_elsewhere = {
        "join",  # just above
        "compute",  # tests/tools/test_computing.py
        "sleep",  # It only waits, for a time that its schema bounds.
    }
    assert {tool for tool, _ in ATTACKS} | attacked_elsewhere == {
        tool.name for tool in builtin_toolbox()
    }


async def test_what_is_small_needs_no_worker() -> None:
    assert await shaped("filter", items=rows(500), where="v > `5`") == [
        one for one in rows(500) if vee(one) > 5
    ]
    assert (
        await shaped("template", text="{length(r)} {r[0].name}", values={"r": rows(100)})
        == "100 row 0"
    )
    assert at_work() == set()


def vee(row: JSON) -> int:
    assert isinstance(row, dict)
    return cast("int", row["v"])


async def test_a_worker_gives_what_the_event_loop_gives() -> None:
    many = rows(20_000)
    assert await shaped("filter", items=many, where="v > `5`") == [
        one for one in many if vee(one) > 5
    ]
    assert await shaped("count", items=many, by="v") == {
        str(v): len(range(v, 20_000, 7)) for v in range(7)
    }
    assert await shaped("pick", data=many, path="[-1].name") == "row 19999"
    assert await shaped("join", items=many[:5_000], separator="") == "".join(
        json.dumps(one, separators=(",", ":")) for one in many[:5_000]
    )
    big: JSON = [2**70, -(2**80), 1.5, "ü†😀", 1e300, *range(40_000)]
    assert await shaped("pick", data=big, path="[:5]") == big[:5]
    with pytest.raises(ActivityError, match="found an empty placeholder"):
        await shaped("template", text="{}", values={"r": many})


async def test_a_worker_that_was_killed_is_named_and_replaced() -> None:
    many = rows(20_000)
    async with anyio.create_task_group() as group:

        async def killed() -> None:
            with pytest.raises(
                WorkerError, match=r"filter over 20,000 items .* ended with code -9"
            ):
                await shaped("filter", items=many, where=ENDLESS)

        group.start_soon(killed)
        await until(lambda: bool(at_work()))
        for pid in at_work():
            os.kill(pid, signal.SIGKILL)

    assert await shaped("count", items=many, by="v[0]") == {"null": 20_000}


async def test_a_worker_has_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "WORKER_MEMORY", 150 * 1024 * 1024)
    text = "".join(chr(0x4E00 + number % 20_000) for number in range(1_900_000))
    with pytest.raises(LimitExceededError, match="needs more memory than the limit of 150 MB"):
        await shaped("pick", data=text, path="length(split(@, ''))")


# -- cancelling and the end ------------------------------------------------------------------------


async def test_cancelling_a_run_kills_the_worker_of_its_call(tmp_path: Path) -> None:
    plan: JSON = {"calls": [{"_tool": "filter", "items": "†input.rows", "where": ENDLESS}]}
    async with Bridge(store=tmp_path / "store.sqlite") as bridge:
        run = await bridge.run_plan(read_plan(plan), input={"rows": rows(20_000)})
        await until(lambda: bool(at_work()))
        [pid] = at_work()
        run.cancel("enough")
        await until(lambda: not is_there(pid))
        assert run.status == "cancelled"


PARENT: Final = """
import anyio, sys
from ideabridge.tools.worker import workers

async def main():
    items = [{"name": f"row {one}"} for one in range(20_000)]
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: workers.run("shape", ["filter", [items, sys.argv[1]]], what="filter"))
        while not workers.at_work:
            await anyio.sleep(0.01)
        print("at work", flush=True)

anyio.run(main)
"""


def test_no_worker_outlives_us_whatever_kills_us() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, ENDLESS], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        family = descendants(process.pid)
        assert len(family) == 1
        process.kill()
        process.wait()
        until_ended(family, time.monotonic() + 10)


# -- schemas ---------------------------------------------------------------------------------------


def nest(levels: int) -> JSON:
    value: JSON = 1
    for _ in range(levels):
        value = {"x": value}
    return value


def doubling(levels: int) -> JSONObject:
    """Each definition refers twice to the one before, by anchors, which nobody
    follows beforehand.
    """
    defined: JSONObject = {"d0": {"$anchor": "d0", "type": "string"}}
    for number in range(1, levels):
        twice: list[JSON] = [{"$ref": f"#d{number - 1}"}] * 2
        defined[f"d{number}"] = {"$anchor": f"d{number}", "anyOf": twice}
    return {"$defs": defined, "$ref": f"#d{levels - 1}"}


RECURSIVE: Final[JSONObject] = {
    "$ref": "#/$defs/a",
    "$defs": {
        "a": {
            "anyOf": [
                {"properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["y"]},
                {"properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["z"]},
            ]
        }
    },
}
ENDLESS_CHECKS: Final[list[tuple[JSONObject, Callable[[], JSON]]]] = [
    ({"items": ENUMERATED}, lambda: [cast("JSON", {"a": [*([0] * 50), 1499]})] * 20_000),
    (doubling(40), lambda: 1),
    (
        {"patternProperties": {f"(?=.*a)(x|y{number}|z)*q": {} for number in range(3_000)}},
        lambda: {"axyz" * 20 + str(number): 1 for number in range(1_000)},
    ),
    (
        {
            "items": {
                "oneOf": [
                    *({"type": "string", "minLength": one} for one in range(6_000)),
                    {"type": "integer"},
                ]
            }
        },
        lambda: list[JSON](range(400_000)),
    ),
]
ENDLESS_EXPLANATIONS: Final[list[tuple[JSONObject, Callable[[], JSON]]]] = [
    (RECURSIVE, lambda: nest(60)),
    (
        {"type": "object", "additionalProperties": UNIONS},
        lambda: {str(number): 1 for number in range(2_000)},
    ),
]


@pytest.mark.parametrize("number", range(len(ENDLESS_CHECKS)))
async def test_a_check_that_takes_long_holds_up_nobody(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "MOST_SECONDS", 0.5)
    monkeypatch.setattr(schemas, "SECONDS_BLOCKED", 0.3)
    # On a slow machine, compiling 3,000 patterns takes longer than is allowed, which another test
    # measures.
    monkeypatch.setattr(schemas, "_PATTERNS_SECONDS", float("inf"))
    schema, make = ENDLESS_CHECKS[number]
    value = make()
    validator = Validator(schema, what="the result")
    validator.compile()
    stopped = r"the result: checking [\d,]+ bytes against a schema of [\d,]+: stopped after 0.{} s"

    async def check() -> None:
        with pytest.raises(LimitExceededError, match=stopped.format(5)):
            await validator.check_apart(value)

    await others_run_meanwhile(check)
    # If nothing can be awaited, the check blocks for no longer than is allowed.
    with pytest.raises(LimitExceededError, match=stopped.format(3)):
        validator.check(value)

    assert at_work() == set()


@pytest.mark.parametrize("number", range(len(ENDLESS_EXPLANATIONS)))
async def test_an_explanation_that_takes_long_is_left_out(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "_EXPLAINED_SECONDS", 0.5)
    schema, make = ENDLESS_EXPLANATIONS[number]
    value = make()
    validator = Validator(schema, what="the result")

    async def check() -> None:
        with pytest.raises(ValueMismatchError, match="expected a value that fits the schema"):
            await validator.check_apart(value)

    await others_run_meanwhile(check)
    with pytest.raises(ValueMismatchError, match="expected a value that fits the schema"):
        validator.check(value)


async def test_a_worker_checks_and_explains_as_the_event_loop_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Earlier tests may have used up the seconds for which this process may block.
    monkeypatch.setattr(schemas, "blocking", schemas.Blocking())
    # A worker that starts now imports jsonschema, which takes longer than usual on a busy machine.
    monkeypatch.setattr(schemas, "_EXPLAINED_BLOCKED", 1.0)
    schema: JSONObject = {
        "items": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    }
    good = rows(100)
    bad: list[JSON] = [*rows(99), {"id": "x"}]
    told: list[str] = []
    for most, explained in ((schemas.HERE_WORK, 10**9), (0, 0)):
        monkeypatch.setattr(schemas, "HERE_WORK", most)
        monkeypatch.setattr(schemas, "_LIGHT", 0)
        monkeypatch.setattr(schemas, "_EXPLAINED_HERE", explained)
        validator = Validator(schema, what="the result")
        validator.check(good)
        await validator.check_apart(good)
        with pytest.raises(ValueMismatchError) as error:
            validator.check(bad)

        told.append(str(error.value))
        with pytest.raises(ValueMismatchError) as error:
            await validator.check_apart(bad)

        told.append(str(error.value))

    assert at_work()
    assert set(told) == {'the result: 99.id: found "x", expected an integer'}


def test_a_schema_whose_patterns_take_long_to_compile_is_refused() -> None:
    schema: JSONObject = {
        "allOf": [{"pattern": rf"(?=\w{{30}})\w{{30}}k{number}"} for number in range(2_000)]
    }
    with pytest.raises(
        LimitExceededError, match=r"the patterns of the schema \(2,000\) take too long to compile"
    ):
        Validator(schema, what="parameters").compile()


def test_a_worker_does_not_refuse_patterns_that_its_parent_has_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schemas, "_PATTERNS_SECONDS", 0.0)
    schema: JSONObject = {
        "allOf": [{"pattern": rf"(?=\w{{30}})\w{{30}}r{number}"} for number in range(40)]
    }
    with pytest.raises(LimitExceededError, match="take too long to compile"):
        Validator(schema, what="parameters").compile()

    assert schemas.valid_here(schema, 1)
    assert not schemas.valid_here(schema, "x")
    assert schemas.problems_here(schema, "x")


async def test_parameters_that_take_long_to_check_are_checked_where_the_call_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop is not blocked, the call fails alone, and what does not fit never
    reaches the tool.
    """
    monkeypatch.setattr(schemas, "SECONDS_BLOCKED", 0.0)
    # An explanation takes 2 s. On a fast machine, it would finish in time, and the message would be
    # different.
    monkeypatch.setattr(schemas, "_EXPLAINED_SECONDS", 0.2)
    array: JSONObject = {"type": "array", "items": enumerated(400)}
    told = {**hostile({}), "inputSchema": {"type": "object", "properties": {"x": array}}}
    modules = {"mcpServers": {"trap": plain(tmp_path, "trap", told)}}
    configuration = load_configuration(configured(tmp_path, tools=[], **modules))
    for last, fits in ((399, True), (401, False)):
        async with Bridge(configuration, store=tmp_path / "store.sqlite") as bridge:
            value: list[JSON] = [{"a": [*([0] * 50), last]}] * 150
            run = await bridge.run_plan(
                read_plan({"calls": [{"_tool": "trap", "x": "†input.x", "_outputPath": "y"}]}),
                input={"x": value},
            )
            with anyio.fail_after(40):
                assert await run.wait() == "done"

            errors = [str(error["error"]["message"]) for error in run.errors()]
            assert len(errors) == (0 if fits else 1)
            assert all(error.startswith("not run: parameters: found") for error in errors)


# -- what was meant --------------------------------------------------------------------------------


def test_the_nearest_of_20_000_names_take_few_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    class Counting(SequenceMatcher[str]):
        def quick_ratio(self) -> float:
            compared.append(1)
            return super().quick_ratio()

    monkeypatch.setattr(names, "SequenceMatcher", Counting)
    near = [f"some_name_long_enough_{number}_to_compare" * 2 for number in range(20_000)]
    assert names.nearest("fetch_page", [*near[:10_000], "fetch_pages", *near[10_000:]]) == [
        "fetch_pages"
    ]
    assert names.nearest(near[7] + "x", near)[0] == near[7]
    assert 0 < len(compared) <= 400


async def test_a_plan_that_is_wrong_in_every_call_is_explained_in_its_first() -> None:
    unknown: list[JSONObject] = [
        {"_tool": f"filter_{number}", "items": 1} for number in range(1_000)
    ]
    misspelt: list[JSONObject] = [
        {"_tool": "count", f"itemz_{number}": 1} for number in range(1_000)
    ]
    unions: JSONObject = {"type": "object", "properties": {"x": UNIONS}}
    misfit: list[JSONObject] = [{"_tool": "trap", "x": number} for number in range(1_000)]
    trap = Tool("trap", "", unions, annotations=Annotations(read_only=True))
    catalogue = Catalogue([*builtin_toolbox(), trap])
    graph = Graph(catalogue, base={"": {"state": {}}})
    problems = [graph.add(one).problems for one in (*unknown, *misspelt, *misfit)]
    assert all(problems)
    assert sum("Did you mean" in one for [one, *_] in problems) == 20
    assert problems[-1] == ['parameters: found {"x": 999}, expected a value that fits the schema']


def test_only_the_first_of_many_unknown_parameters_get_a_hint() -> None:
    known: JSONObject = {
        "type": "object",
        "properties": {f"name_{number}": {} for number in range(3_000)},
    }
    faults = ParameterNames("tool", known).faults({f"name_{number}x": 1 for number in range(3_000)})
    assert len(faults) == 3_000
    assert sum("Did you mean" in one for one in faults.values()) == 10


async def test_every_error_of_a_worker_is_one_of_ours() -> None:
    with pytest.raises(IdeabridgeError, match="what: KeyError"):
        await workers.run("shape", ["none", [[], ""]], what="what")
