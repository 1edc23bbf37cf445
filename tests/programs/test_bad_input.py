"""Programs that are hostile or wrong: each ends with an error that says what is wrong, and the
bridge goes on.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.errors import ProgramError
from ideabridge.bridge.programs import sandbox
from ideabridge.bridge.programs.names import TOOLS, ProgramNames
from ideabridge.bridge.runs.run import Run
from ideabridge.server.views.checks import Findings, check_interpreter
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Activity, ActivityContext, Annotations, Tool
from ideabridge.tools.toolbox import Toolbox
from tests.asking import ASKS
from tests.waiting import until

pytestmark = pytest.mark.anyio

CALLS = 50


@tool(read_only=True)
async def size(of: str) -> int:
    """The length of a text."""
    return len(of)


@tool(read_only=True)
async def echo(x: JSON = None) -> JSON:
    """Return what it gets."""
    return x


@tool
async def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


def named(name: str) -> tuple[Tool, Activity]:
    """A tool with a name that programs cannot use as it is."""

    async def run(parameters: JSONObject, _: ActivityContext) -> JSON:
        return [name, parameters]

    schema: JSONObject = {
        "type": "object",
        "properties": {"class": {"type": "string"}, "self": {"type": "string"}},
    }
    return Tool(name, "A tool.", schema, annotations=Annotations(read_only=True)), Activity(
        name, run
    )


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for all tests of this file, because most share a bridge."""
    return "asyncio"


def new_bridge() -> Bridge:
    configuration = parse_configuration(
        {"limits": {"calls": CALLS}, "approval": {"default": "read_only"}}
    )
    return Bridge(configuration, toolbox=Toolbox(size, echo, send))


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[Bridge]:
    async with new_bridge() as opened:
        yield opened


@pytest.fixture
async def bridge(shared: Bridge) -> AsyncIterator[Bridge]:
    yield shared
    # Whatever came before, the bridge still works.
    run = await shared.run_plan({"program": "import tools\nawait tools.size(of='abc')"})
    assert await run.result() == 3


async def ended(bridge: Bridge, program: str) -> Run:
    run = await bridge.run_plan({"program": program})
    with anyio.fail_after(60):
        await run.wait()
    return run


CATCHING = "while True:\n    try:\n        {}\n    except{}:\n        pass"


@pytest.mark.parametrize(
    ("program", "error"),
    [
        (
            "x = []\nwhile True:\n    x.append('a' * 1_000_000)",
            "line 3: MemoryError: memory limit exceeded: a program may use at most 256 MB",
        ),
        ("x = []\n" + CATCHING.format("x.append('a' * 1_000_000)", " MemoryError"), "memory limit"),
        ("9 ** 9 ** 9", "a program may use at most 256 MB"),
        ("'a' * 10 ** 12", "a program may use at most 256 MB"),
        ("'%1000000000d' % 1", "a program may use at most 256 MB"),
        ("def f(n):\n    return f(n + 1)\nf(0)", "line 2: RecursionError"),
        ("import json\njson.loads('[' * 100_000)", "JSONDecodeError: recursion limit"),
        ("import tools\nwhile True:\n    await tools.size(of='a')", f"at most {CALLS} calls"),
        (
            "import tools\n" + CATCHING.format("await tools.size(of='a')", " Exception"),
            f"at most {CALLS} calls",
        ),
        (
            "import tools\n" + CATCHING.format("await tools.size(of='a')", ""),
            f"at most {CALLS} calls",
        ),
        (
            "import tools\ncalls = [tools.size(of='a') for _ in range(10_000)]",
            f"at most {CALLS} calls",
        ),
        ("raise ValueError('no')", "line 1: ValueError: no"),
        ("raise KeyboardInterrupt()", "line 1: KeyboardInterrupt"),
        ("raise SystemExit(3)", "RuntimeError"),
        ("exit()", "line 1: TypeError: exit() is not available"),
        ("().__class__.__bases__[0].__subclasses__()", "no attribute '__class__'"),
        ("import pathlib\npathlib.Path('/etc/passwd').read_text()", "PermissionError"),
    ],
)
async def test_a_program_that_goes_wrong_ends_with_a_reason(
    bridge: Bridge, program: str, error: str
) -> None:
    run = await ended(bridge, program)
    assert run.status == "failed"
    assert error in str(run.errors())


@pytest.mark.long
@pytest.mark.parametrize("caught", ["", " Exception", " TimeoutError"])
async def test_an_endless_loop_is_ended(bridge: Bridge, caught: str) -> None:
    endless = "while True:\n            pass"
    run = await ended(bridge, CATCHING.format(endless, caught))
    assert run.status == "failed"
    assert (
        "TimeoutError: time limit exceeded: a program may compute for at most "
        "5 s between two calls" in str(run.errors())
    )


@pytest.mark.long
async def test_one_operation_without_end_is_ended_once(bridge: Bridge) -> None:
    with anyio.fail_after(20):
        run = await ended(bridge, "import tools\nn = await tools.size(of='a')\n10 ** 10 ** 8")
    assert run.status == "failed"
    assert (
        "TimeoutError: time limit exceeded: a program may compute for at most "
        "5 s between two calls" in str(run.errors())
    )


SAME = ["def same(x):", "    return x"]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("{1, 2}", "is a set, which is not JSON"),
        ("[b'x']", "at 0 is a bytes, which is not JSON"),
        ("[float('nan')]", "at 0 is nan, which JSON cannot represent"),
        ("{'a': float('inf')}", "at a is inf, which JSON cannot represent"),
        ("{1: 2}", "at 1 is a key that is not text"),
        ("{None: 2}", "at None is a key that is not text"),
        ("10 ** 5000", "is an integer of more than 4,300 digits"),
        ("1j", "is a complex, which is not JSON"),
        ("ValueError('x')", "is a ValueError, which is not JSON"),
        ("[lambda: 1]", "<function '<lambda>'"),
        ("size_of", "<function 'size_of'"),
        # The check of the program cannot see what `same` returns.
        ("same(tools.size(of='a'))", "which is not JSON; write await"),
        ("[same(tools.size(of=one)) for one in 'ab']", "which is not JSON; write await"),
        ("same(size_of(1))", "<coroutine object size_of>, which is not JSON; write await"),
        ("{'a': 1}.keys()", "dict_keys(['a']), which is not JSON; write list(...)"),
        ("Small", "<class 'Small'>, which is not JSON"),
        ("re", "<module 're'>, which is not JSON"),
        ("re.match('a', 'ab')", "match='a'>, which is not JSON"),
        ("[range(3)]", "range(0, 3), which is not JSON; write list(...)"),
        ("iter([1])", "<list_iterator object>, which is not JSON"),
        ("deep", "is nested deeper than the limit"),
        ("tools", "which is not JSON"),
        ("small", "has more than 64 MB once written out"),
        ("['x' * 1_000_000] * 100", "has more than 64 MB once written out"),
        ("[10 ** 4_000] * 100_000", "has more than 64 MB once written out"),
    ],
)
@pytest.mark.parametrize("passed", [False, True], ids=["output", "argument"])
async def test_what_is_no_json_is_refused(
    bridge: Bridge, value: str, error: str, passed: bool
) -> None:
    last = f"await tools.echo(x={value})" if passed else value
    if passed and error.startswith("at "):
        error = error.replace("at ", "at x.", 1)

    lines = [
        "import re, tools",
        "class Small:",
        "    pass",
        "deep = []",
        "for _ in range(5_000):",
        "    deep = [deep]",
    ]
    lines += ["small = [1] * 60", "for _ in range(5):", "    small = [small] * 60"]
    run = await ended(
        bridge, "\n".join([*lines, "async def size_of(n):", "    return n", *SAME, last])
    )
    assert run.status == "failed"
    assert error in str(run.errors())
    # The whole text is stored.
    assert (await bridge.run(run.id)).errors() == run.errors()


async def test_the_calls_of_a_program_are_bounded_together() -> None:
    configuration = parse_configuration({"limits": {"run_bytes": 5_000_000}})
    async with Bridge(configuration, toolbox=Toolbox(size)) as bridge:
        body = "lambda: tools.size(of='x' * 1_000_000)"
        caught = (
            f"call = {body}\nwhile True:\n    try:\n        await call()\n    "
            "except RuntimeError:\n        pass"
        )
        run = await ended(bridge, f"import tools\n{caught}")
        assert run.status == "failed"
        assert "the run cannot make a call of 1,000,024 bytes: this run already has" in str(
            run.errors()
        )
        assert "(limits.run_bytes)" in str(run.errors())
        assert len(run.calls()) == 4


async def test_a_text_that_looks_like_an_object_is_a_text(bridge: Bridge) -> None:
    texts = [
        "<coroutine>",
        "a <function 'f' at 0x1> b",
        "<b>bold</b>",
        "dict",
        "dictionary(1)",
        "[...]",
    ]
    texts += [
        "<function calls>",
        "<class='a'>",
        "<coroutine object>",
        "range(n, 3)",
        "<module name='x'>",
    ]
    assert (await ended(bridge, repr(texts))).given() == texts


async def test_a_call_that_the_program_keeps_is_awaited_twice_once_or_never(bridge: Bridge) -> None:
    program = """
import asyncio, tools
never = [tools.size(of="never")]
twice = tools.size(of="a")
both = tools.size(of="bb")
[await twice, await twice, await asyncio.gather(both, both)]
"""
    run = await ended(bridge, program)
    assert run.given() == [1, 1, [2, 2]]
    assert len(run.calls()) == 3


async def test_what_is_printed_is_bounded(bridge: Bridge) -> None:
    run = await ended(bridge, "for _ in range(1_000):\n    print('x' * 100_000)\n1")
    assert run.given() == 1
    printed = str(run.answer(whole=True)["printed"])
    note = "\n... (only the first 65,536 characters are kept)\n"
    assert printed.endswith("x" + note)
    assert len(printed) == 65_536 + len(note)


@pytest.mark.parametrize("more", [0, 1])
async def test_whoever_prints_the_most_that_is_kept_loses_nothing(
    bridge: Bridge, more: int
) -> None:
    run = await ended(bridge, f"print('x' * 65_535)\nprint('y' * {more}, end='')\n1")
    printed = str(run.answer(whole=True)["printed"])
    assert printed.startswith("x" * 65_535 + "\n")
    assert ("are kept" in printed) == bool(more)


async def test_cancelling_ends_a_program_that_catches_everything(bridge: Bridge) -> None:
    program = "import asyncio, tools\n" + CATCHING.format("await asyncio.sleep(60)", "")
    run = await bridge.run_plan({"program": program})
    await until(run.calls)
    run.cancel("enough")
    with anyio.fail_after(20):
        assert await run.wait() == "cancelled"


async def test_a_denial_can_be_caught_and_is_not_asked_twice(bridge: Bridge) -> None:
    program = """
import tools
try:
    await tools.send(to="a")
except PermissionError as error:
    said = str(error)
said
"""
    run = await bridge.run_plan({"program": program})
    assert await run.wait() == "needs_approval"
    [question] = run.questions()
    run.decide(question.approval, "deny", by="me", reason="not today")
    assert await run.wait() == "done"
    assert "not today" in str(run.given())


NAMES = (
    "__class__",
    "class",
    "print",
    "a.b",
    "import",
    "tools",
    "sleep",
    "a-b",
    "ask",
    "Handle",
    "None",
    "é",
    "1st",
)


async def test_tools_of_any_name_can_be_called() -> None:
    toolbox = Toolbox()
    for name in NAMES:
        toolbox.add(*named(name))

    async with Bridge(ASKS, toolbox=toolbox) as bridge:
        names = ProgramNames(bridge.tools())
        functions = {str(names.call(TOOLS, one, {})["_tool"]): one for one in names.tools[TOOLS]}
        for name in NAMES:
            run = await ended(
                bridge, f"import tools\nawait tools.{functions[name]}(class_='x', self='y')"
            )
            assert run.given() == [name, {"class": "x", "self": "y"}], name


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
async def test_a_worker_that_is_killed_from_outside_is_replaced(bridge: Bridge) -> None:
    program = (
        "import tools\nfirst = await tools.send(to='a')\nsecond = await "
        "tools.send(to='b')\n[first, second]"
    )
    run = await bridge.run_plan({"program": program})
    for _ in range(2):
        assert await run.wait() == "needs_approval"
        kill_workers()
        [question] = run.questions()
        run.decide(question.approval, "approve", by="me")

    with anyio.fail_after(20):
        assert await run.wait() == "done"

    assert run.given() == ["sent to a", "sent to b"]
    assert len(run.calls()) == 2


def kill_workers() -> None:
    """Kill the interpreters that are children of this process."""
    killed = 0
    for folder in Path("/proc").iterdir():
        try:
            head, _, rest = (
                (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
            )
        except OSError:
            continue

        if "monty" in head and int(rest.split()[1]) == os.getpid():
            os.kill(int(folder.name), signal.SIGKILL)
            killed += 1

    assert killed


async def test_without_the_interpreter_a_program_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with new_bridge() as bridge:
        with monkeypatch.context() as patch:
            sandbox.monty.cache_clear()
            patch.setitem(sys.modules, "pydantic_monty", None)
            with pytest.raises(
                ProgramError, match="programs need pydantic-monty, which cannot be imported"
            ):
                await bridge.run_plan({"program": "1"})

        assert bridge.runs() == []
        run = await bridge.run_plan({"program": "1"})
        assert await run.result() == 1


def test_the_doctor_finds_that_the_interpreter_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Findings()
    missing = Findings()
    check_interpreter(there)
    with monkeypatch.context() as patch:
        sandbox.monty.cache_clear()
        patch.setitem(sys.modules, "pydantic_monty", None)
        check_interpreter(missing)

    assert (there.wrong, missing.wrong) == (0, 1)
    assert there.found[0].text == f"{sandbox.interpreter()} runs programs"
    assert "programs need pydantic-monty" in missing.found[0].text
