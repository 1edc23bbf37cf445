"""Large results stay in this process: a program gets handles, and reads parts of them or
passes them on.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration, parse_configuration
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.loop.event import CallProposed, OutputProposed
from ideabridge.bridge.runs.run import Run
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.toolbox import Toolbox
from tests import preloaded
from tests.asking import ASKS
from tests.programs.test_resume import cut_journal

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parents[1] / "modules" / "servers" / "large.py"

N = 5_000
"""So many rows have about 1.4 MB, and 10 rows 3 KB."""


def row(n: int) -> dict[str, Any]:
    return {"n": n, "name": f"row {n}{' ' * 250}"}


def rows(n: int = N) -> list[dict[str, Any]]:
    return [row(one) for one in range(n)]


def configured(folder: Path, name: str = "large") -> Configuration:
    return parse_configuration({"mcpServers": {name: preloaded.module(SERVER, str(folder))}})


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("large")


@pytest.fixture(scope="module")
async def bridge(folder: Path) -> AsyncIterator[Bridge]:
    """One server for all tests."""
    async with Bridge(configured(folder), toolbox=Toolbox()) as opened:
        yield opened


async def ended(bridge: Bridge, program: str, given: JSONObject | None = None) -> Run:
    run = await bridge.run_plan(
        {"program": f"import large, tools\n{program}", "input": {"n": N, **(given or {})}}
    )
    with anyio.fail_after(30):
        await run.wait()
    return run


async def output(bridge: Bridge, program: str) -> JSON:
    run = await ended(bridge, program)
    assert run.status == "done", run.errors()
    return run.given()


def kept(folder: Path) -> Any:
    return json.loads((folder / "kept").read_text(encoding="utf-8"))


async def proposed(run: Run) -> list[JSON]:
    """The calls as they are journaled."""
    return [one.call async for one in run.events() if isinstance(one, CallProposed)]


async def test_a_large_result_is_a_handle_and_a_small_one_a_value(bridge: Bridge) -> None:
    program = """
large_one = await large.rows(n=input["n"])
small = await large.rows(n=2)
assert isinstance(large_one, tools.Handle)
print(large_one)
[large_one.call, large_one.type, large_one.length, large_one.path, isinstance(small, tools.Handle), small]
"""
    run = await ended(bridge, program)
    assert run.given() == [0, "object", 1, "", False, {"rows": rows(2)}]
    size = len(json.dumps({"rows": rows()}, separators=(",", ":")))
    assert (
        run.answer()["printed"]
        == f"Handle(call=0, path='', type='object', length=1, bytes={size})\n"
    )


async def test_parts_are_read_by_paths_of_references(bridge: Bridge) -> None:
    program = """
found = await large.rows(n=input["n"])
small = await large.rows(n=2)
part = await tools.read(found, "rows")
[
    await tools.read(found, "rows.4999.name"),
    await tools.read(found, '["rows"][7]'),
    await tools.read(part, "3"),
    await tools.read(small, "rows.1.n"),
    await tools.read(result=small, path="rows.0"),
    await tools.read({"a": [5]}, "a.0"),
    [part.path, part.length, part.type],
]
"""
    assert await output(bridge, program) == [
        row(4999)["name"],
        row(7),
        row(3),
        1,
        row(0),
        5,
        ["rows", N, "array"],
    ]


async def test_a_text_that_holds_json_is_read_like_a_reference_reads_it(bridge: Bridge) -> None:
    program = """
text = await large.text(n=input["n"])
[text.type, await tools.read(text, "rows.1"), text.length > 1_000_000]
"""
    assert await output(bridge, program) == ["text", row(1), True]


async def test_a_handle_is_passed_on_as_its_value_and_journaled_as_a_reference(
    bridge: Bridge, folder: Path
) -> None:
    program = """
found = await large.rows(n=input["n"])
size = await large.keep(data=found)
part = await tools.read(found, "rows")
await large.keep(data={"whole": [found], "part": part, "text": "†results.0"})
size
"""
    run = await ended(bridge, program)

    assert run.status == "done", run.errors()
    assert kept(folder) == {"whole": [{"rows": rows()}], "part": rows(), "text": "†results.0"}
    assert run.given() == str(len(json.dumps({"rows": rows()})))
    _, first, second = await proposed(run)
    assert first == {"_tool": "keep", "_module": "large", "data": "†results.0"}
    data = {"whole": ["†results.0"], "part": "†results.0.rows", "text": "††results.0"}
    assert second == {"_tool": "keep", "_module": "large", "data": data}


async def test_a_handle_that_is_the_output_becomes_the_value(bridge: Bridge) -> None:
    found = 'found = await large.rows(n=input["n"])\n'
    run = await ended(bridge, f"{found}found")
    assert run.given() == {"rows": rows()}
    assert [one.output async for one in run.events() if isinstance(one, OutputProposed)] == [
        "†results.0"
    ]
    assert await output(bridge, f'{found}{{"all": (await tools.read(found, "rows"), "†x")}}') == {
        "all": [rows(), "†x"]
    }


async def test_a_result_that_imitates_a_handle_is_data(bridge: Bridge, folder: Path) -> None:
    program = """
secret = await large.rows(n=input["n"])
found = (await large.imitate())["imitations"]
print([isinstance(one, tools.Handle) for one in found])
for one in found:
    await large.keep(data=one)
    try:
        await tools.read(one, "rows.0")
        print("read")
    except RuntimeError:
        pass
await large.keep(data=found)
found
"""
    run = await ended(bridge, program)

    assert run.status == "done", run.errors()
    imitations = run.given()
    assert kept(folder) == imitations
    assert isinstance(imitations, list)
    assert len(imitations) == 5
    assert run.answer()["printed"] == f"{[False] * 5}\n"
    assert (folder / "kept").stat().st_size < 1_000


@pytest.mark.parametrize(
    ("program", "error"),
    [
        (
            "class Handle:\n    def __init__(self): self.call = 0\nawait large.keep(data=Handle())",
            "not JSON",
        ),
        (
            "class Handle:\n    def __init__(self): self.call = 0\nawait tools.read(Handle())",
            "not JSON",
        ),
        ("type(found)()", "cannot instantiate host class 'Handle'"),
        ("found.value", "'Handle' object has no attribute 'value'"),
        ("found.reference(0)", "'Handle' object has no attribute 'reference'"),
        ("found.__class__.__init__.__globals__", "AttributeError"),
        (
            "found[0]",
            (
                "is not subscriptable (a result larger than 1 MB is a Handle: read a part of it "
                "with await tools.read("
            ),
        ),
        ("for one in found: pass", "is not iterable (a result larger than 1 MB is a Handle"),
        (
            "import json\njson.dumps(found)",
            "is not JSON serializable (a result larger than 1 MB is a Handle",
        ),
        (
            'await tools.read(found, "rows.5000")',
            "†results.0.rows is an array of 5000; '5000' is not a valid",
        ),
        (
            'await tools.read(await tools.read(found, "rows"), "x")',
            "†results.0.rows is an array of 5000; 'x' is not",
        ),
        ('await tools.read({"a": 1}, "b")', "†input.result has no 'b'; it has a"),
        ('await tools.read(found, "rows || x")', "every operand starts with †"),
        ('await tools.read(found, "rows || †state.x")', "expected one path, without || and &&"),
        ('await tools.read(found, "rows..0")', "at character 14"),
        (
            "await tools.read(found, input['n'])",
            'expected a path such as "rows.0.name", found int',
        ),
        ("await tools.read(found, 'x.' * 60_000)", "characters; the limit is"),
        ("[await large.keep(data={'a': found, 'b': {1}})]", "is a set, which is not JSON"),
    ],
)
async def test_what_is_wrong_with_a_handle_is_told(
    bridge: Bridge, program: str, error: str
) -> None:
    # The value has no type, like that of a tool without an output schema.
    begin = (
        "async def large_one() -> Any:\n    "
        'return await large.rows(n=input["n"])\nfound = await large_one()\n'
    )
    run = await ended(bridge, f"from typing import Any\n{begin}{program}")

    assert run.status == "failed"
    assert error in str(run.errors()), run.errors()


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("await tools.read()", "No argument provided for required parameter `result`"),
        ('await tools.read(found, "rows", 3)', "Too many positional arguments"),
        ('await tools.read(found, at="rows")', "Argument `at` does not match any known parameter"),
        ("found.length", "has no attribute `length`"),
        ("if isinstance(found, tools.Handle): found.size", "has no attribute `size`"),
    ],
)
async def test_the_checker_knows_handles(bridge: Bridge, program: str, error: str) -> None:
    with pytest.raises(PlanError) as raised:
        await ended(bridge, f"found = (await large.rows(n=3))['rows']\n{program}")
    assert error in str(raised.value)


async def test_a_person_sees_the_value_that_is_passed(bridge: Bridge, folder: Path) -> None:
    run = await ended(
        bridge, 'found = await large.rows(n=input["n"])\nawait large.send(data=found)'
    )
    [asked] = run.pending()
    assert asked.call["data"] == {"rows": rows()}
    run.decide(asked.approval, "approve", by="me")
    with anyio.fail_after(30):
        assert await run.wait() == "done"

    assert kept(folder) == {"rows": rows()}


async def test_a_program_reads_so_many_parts_at_most(bridge: Bridge) -> None:
    run = await ended(bridge, "for _ in range(20_001):\n    await tools.read(1)")
    assert run.status == "failed"
    assert "tools.read() at most 20,000 times" in str(run.errors())


@pytest.mark.long
async def test_reading_takes_so_long_at_most(bridge: Bridge) -> None:
    program = """
one, other = [await large.text(n=15_000 + k) for k in (0, 1)]
while True:
    # Only the text that was read last is not parsed again.
    await tools.read(one, "rows.0")
    await tools.read(other, "rows.0")
"""
    run = await ended(bridge, program)
    assert run.status == "failed"
    assert "tools.read() took more than 5 s between two calls" in str(run.errors())


async def test_a_program_needs_no_import_for_what_it_passes_on(
    bridge: Bridge, folder: Path
) -> None:
    run = await bridge.run_program(
        f"import large\nfound = await large.rows(n={N})\nawait large.keep(data=found)"
    )
    with anyio.fail_after(30):
        assert await run.wait() == "done", run.errors()
    assert kept(folder) == {"rows": rows()}


async def test_a_later_solution_refers_to_its_own_calls(bridge: Bridge, folder: Path) -> None:
    run = await bridge.solve("Keep the rows.", input={"n": N})
    first = "import large\nawait large.rows(n=1)\nNone"
    run.submit(0, {"program": first})
    with anyio.fail_after(30):
        assert await run.wait() == "needs_solution"

    program = (
        'import large\nfound = await large.rows(n=input["n"])\nawait large.keep(data=found)\n"done"'
    )
    run.submit(1, {"program": program})
    with anyio.fail_after(30):
        assert await run.wait() == "done"

    assert kept(folder) == {"rows": rows()}
    assert (await proposed(run))[-1] == {"_tool": "keep", "_module": "large", "data": "†results.1"}


async def test_handles_go_into_the_runs_of_ideas_and_come_out_of_them(bridge: Bridge) -> None:
    made = await ended(
        bridge,
        '{"n": len((await large.rows(n=2))["rows"]), "given": input["given"]}',
        {"given": [*rows(2)]},
    )
    await bridge.publish(made.id, "pass_on", answer="program")
    program = """
import ideas
found = await large.rows(n=input["n"])
passed = await ideas.pass_on(given=await tools.read(found, "rows"))
[isinstance(passed, tools.Handle), await tools.read(passed, "given.5.name"), await tools.read(passed, "n")]
"""
    assert await output(bridge, program) == [True, row(5)["name"], 2]


async def test_a_program_with_handles_is_a_tool(bridge: Bridge, folder: Path) -> None:
    program = """
found = await large.rows(n=input["n"])
await large.keep(data=await tools.read(found, "rows"))
{"last": await tools.read(found, "rows." + str(input["n"] - 1)), "all": found}
"""
    made = await ended(bridge, program)
    published = await bridge.publish(made.id, "keep_rows", answer="program")
    assert published.answer == "program"
    run = (await bridge.start_idea("keep_rows", {"n": N + 1})).run
    assert run is not None
    with anyio.fail_after(30):
        await run.wait()

    assert run.given() == {"last": row(N), "all": {"rows": rows(N + 1)}}
    assert kept(folder) == rows(N + 1)


async def test_a_resumed_program_gets_the_same_handles(tmp_path: Path) -> None:
    program = """
import large, tools
found = await large.rows(n=input["n"])
part = await tools.read(found, "rows")
sizes = [await large.keep(data=part), await large.keep(data=await tools.read(part, "2"))]
print(found, part)
[sizes, part]
"""
    async with Bridge(configured(tmp_path), store=tmp_path / "store.sqlite") as bridge:
        whole = await bridge.run_program(program, input={"n": N})
        with anyio.fail_after(30):
            assert await whole.wait() == "done", whole.errors()
        events = [event for _, event in bridge.store.runs.events(whole.id)]
        for cut in range(2, len(events)):
            run = await bridge.run(
                cut_journal(bridge.store, whole, events[:cut], bridge.fingerprint)
            )
            with anyio.fail_after(30):
                assert await run.wait() == "done", run.errors()
            assert run.given() == whole.given()
            again = [event for _, event in bridge.store.runs.events(run.id)]
            for written in ("call_proposed", "printed"):
                assert [one for one in again if one["event"] == written] == [
                    one for one in events if one["event"] == written
                ]


async def test_a_tool_named_read_gets_another_name() -> None:
    @tool(name="read", read_only=True)
    def other(path: str) -> str:
        """Read a file."""
        return f"file {path}"

    async with Bridge(ASKS, toolbox=Toolbox(other)) as bridge:
        run = await bridge.run_program(
            'import tools\n[await tools.read_(path="x"), await tools.read({"path": "y"}, "path")]'
        )
        with anyio.fail_after(30):
            assert await run.wait() == "done", run.errors()
        assert run.given() == ["file x", "y"]
