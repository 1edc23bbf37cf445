"""Programs run: what they return, what they may do wrong, and what is asked before a call."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.errors import PlanError, RejectedSolutionError, SettledTurnError
from ideabridge.bridge.runs.run import Run
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.toolbox import Toolbox
from tests.asking import ASKS
from tests.security.listing import Modules

pytestmark = pytest.mark.anyio


class Shop:
    """Tools, and what they were called with."""

    def __init__(self) -> None:
        self.sold: list[str] = []
        self.together = 0
        self.all_here = anyio.Event()

        @tool(read_only=True)
        async def meet(number: int, of: int) -> int:
            """Wait until others are here."""
            self.together += 1
            if self.together == of:
                self.all_here.set()
            await self.all_here.wait()
            return number

        @tool(read_only=True)
        async def price(item: str) -> int:
            """The price of an item."""
            if item == "nothing":
                raise ActivityError("there is no such item")
            return len(item)

        @tool
        async def sell(item: str, count: int = 1) -> dict[str, JSON]:
            """Sell items."""
            self.sold.append(item)
            return {"item": item, "count": count}

        self.toolbox = Toolbox(meet, price, sell)


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def bridge(shop: Shop) -> AsyncIterator[Bridge]:
    async with Bridge(ASKS, toolbox=shop.toolbox) as opened:
        yield opened


async def ended(bridge: Bridge, program: str, given: JSONObject | None = None) -> Run:
    run = await bridge.run_plan({"program": program, "input": given or {}})
    with anyio.fail_after(30):
        await run.wait()
    return run


async def test_parameters_have_names_of_any_script() -> None:
    @tool(read_only=True)
    async def weather(город: str, días: int = 1) -> str:
        """The weather of a city."""
        return f"{город} {días}"

    async with Bridge(ASKS, toolbox=Toolbox(weather)) as bridge:
        run = await ended(
            bridge,
            "import tools\nawait tools.weather(город=input['where'], días=3)",
            {"where": "Пермь"},
        )
        assert await run.result() == "Пермь 3"
        with pytest.raises(PlanError, match="No argument provided for required parameter `город`"):
            await ended(bridge, "import tools\nawait tools.weather(días=3)")


async def test_the_last_expression_is_the_output(bridge: Bridge) -> None:
    program = """
import tools
names = [name for name in input["names"] if name]
prices = {name: await tools.price(item=name) for name in names}
{"sum": sum(prices.values()), "most": max(prices, key=lambda one: prices[one]), "text": "†state.x"}
"""
    run = await ended(bridge, program, {"names": ["pen", "", "paper"]})

    assert run.status == "done"
    assert run.given() == {"sum": 8, "most": "paper", "text": "†state.x"}
    assert [one.call.name for one in run.calls()] == ["price", "price"]


async def test_calls_run_together_before_they_are_awaited(bridge: Bridge) -> None:
    program = """
import asyncio, tools
first, second = tools.meet(number=1, of=5), tools.meet(number=2, of=5)
rest = await asyncio.gather(*[tools.meet(number=n, of=5) for n in (3, 4, 5)])
[await first, await second, *rest]
"""
    assert (await ended(bridge, program)).given() == [1, 2, 3, 4, 5]


async def test_a_text_is_literal_whatever_it_looks_like(bridge: Bridge, shop: Shop) -> None:
    run = await bridge.run_plan(
        {"program": 'import tools\nawait tools.sell(item=input["x"])', "input": {"x": "†input.x"}}
    )
    while await run.wait() == "needs_approval":
        for question in run.questions():
            run.decide(question.approval, "approve", by="me")

    assert shop.sold == ["†input.x"]


async def test_a_failed_call_can_be_caught(bridge: Bridge) -> None:
    program = """
import tools
try:
    found = await tools.price(item="nothing")
except RuntimeError as error:
    found = str(error)
found
"""
    run = await ended(bridge, program)

    assert run.status == "done"
    assert "there is no such item" in str(run.given())
    assert run.errors() == []


async def test_a_program_without_a_value_has_no_output_that_a_schema_admits(bridge: Bridge) -> None:
    plan: JSONObject = {"program": "x = 1", "output_schema": {"type": "object"}}
    run = await bridge.run_plan(plan)
    assert await run.wait() == "failed"
    assert "the output: found null, expected an object" in str(run.errors())
    run = await bridge.run_plan({**plan, "output_schema": {"type": ["object", "null"]}})
    assert await run.wait() == "done"
    assert run.given() is None


async def test_the_error_of_a_call_is_the_same_whatever_other_servers_and_calls_there_are(
    tmp_path: Path,
) -> None:
    modules = Modules(tmp_path)
    program = """
import git
if input["before"]:
    await git.log(repo="r")
arguments = {"rep": 1}
try:
    await git.log(**arguments)
except RuntimeError as error:
    found = str(error)
found
"""
    told: set[str] = set()
    for names in (("git",), ("git", "svn"), ("svn", "git")):
        for name in names:
            modules.lists(name, "log")
        async with Bridge(modules.configured(*names), store=":memory:") as bridge:
            await bridge.modules.settled(20)
            for before in (False, True):
                run = await bridge.run_program(program, input={"before": before})
                told.add(str(await run.result()))

    assert len(told) == 1, told
    assert told.pop().startswith("git.log: parameters: rep: ")


@pytest.mark.parametrize(
    ("program", "status", "error"),
    [
        (
            'import tools\nawait tools.price(item="nothing")',
            "failed",
            "line 2: RuntimeError: price: there is no",
        ),
        ("1 / 0", "failed", "line 1: ZeroDivisionError"),
        ("{1, 2}", "failed", "is a set, which is not JSON"),
        ("b'x'", "failed", "not JSON"),
        ("float('nan')", "failed", "nan, which JSON cannot represent"),
        ("[0] * 10**10", "failed", "memory limit"),
        ("def f(n): return f(n + 1)\nf(0)", "failed", "recursion"),
        ('import tools\nkept = [tools.price(item="nothing")]\n5', "done", "there is no such item"),
        ("import os\nos.environ['HOME']", "failed", "not supported"),
        ("import time\ntime.sleep(1)", "failed", "await asyncio.sleep"),
    ],
)
async def test_what_goes_wrong_is_reported(
    bridge: Bridge, program: str, status: str, error: str
) -> None:
    run = await ended(bridge, program)

    assert run.status == status
    assert error in str(run.errors())


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("1 +", "line 1"),
        ("open('/etc/passwd').read()", "Name `open` used when not defined"),
        ("import nothing", "Cannot resolve imported module `nothing`"),
        (
            "import tools\nawait tools.prize(item='a')",
            "line 2, column 7: Module `tools` has no member `prize`",
        ),
        (
            "import tools\nawait tools.price(itme='a')",
            "Argument `itme` does not match any known parameter",
        ),
        ("import tools\nawait tools.price(item=5)", "Expected `str`"),
        ("import tools\nawait tools.price()", "No argument provided for required parameter `item`"),
        ("import tools\nawait tools.price('a')", "line 2"),
        ("import tools\nawait tools.__class__()", "line 2"),
        ("x" * 200_000, "the limit is 100,000"),
    ],
)
async def test_a_malformed_program_leaves_no_run_behind(
    bridge: Bridge, program: str, error: str
) -> None:
    with pytest.raises(PlanError, match="the program: ") as refused:
        await bridge.run_plan({"program": program})

    assert error in str(refused.value)
    assert bridge.runs() == []


async def test_a_program_makes_its_own_calls(bridge: Bridge) -> None:
    with pytest.raises(PlanError, match="leave out calls"):
        await bridge.run_plan({"program": "1", "calls": [{"_tool": "price", "item": "a"}]})
    with pytest.raises(PlanError, match="so leave out lazy"):
        await bridge.run_plan({"program": "1"}, planning="lazy")


async def test_each_call_that_may_change_something_asks(bridge: Bridge, shop: Shop) -> None:
    program = """
import tools
done = []
for name in ("a", "b", "c"):
    try:
        done.append((await tools.sell(item=name))["count"])
    except PermissionError as error:
        done.append(str(error))
done
"""
    run = await bridge.run_plan({"program": program})
    for decision in ("approve", "deny", "approve"):
        assert await run.wait() == "needs_approval"
        [question] = run.questions()
        run.decide(question.approval, decision, by="me", reason="not this one")

    assert await run.wait() == "done"
    assert shop.sold == ["a", "c"]
    match run.given():
        case [1, str(denied), 1]:
            assert "not this one" in denied
        case other:
            pytest.fail(f"{other}")


async def test_thousands_of_calls_are_decided_one_by_one_in_time(
    bridge: Bridge, shop: Shop
) -> None:
    program = """
import asyncio, tools
async def sold(item):
    try:
        return await tools.sell(item=item)
    except PermissionError:
        return None
found = await asyncio.gather(*[sold(str(number)) for number in range(2_000)])
[one for one in found if one is not None]
"""
    run = await ended(bridge, program)
    waiting = run.pending()
    assert len(waiting) == 2_000
    began = time.process_time()
    for one in reversed(waiting):
        run.decide(one.approval, "deny", by="a person")

    assert await run.wait() == "done"
    # Going through every question for each decision would take 20 s.
    assert time.process_time() - began < 6
    assert run.given() == []
    assert shop.sold == []


async def test_the_clock_stands_still_and_chance_repeats(bridge: Bridge) -> None:
    program = (
        "import random, time\na = time.time()\n[a == time.time(), "
        "random.random() == random.random()]"
    )
    assert (await ended(bridge, program)).given() == [True, False]


async def test_too_many_calls_end_the_program(shop: Shop) -> None:
    async with Bridge(
        parse_configuration({"limits": {"calls": 20}}), toolbox=shop.toolbox
    ) as bridge:
        run = await ended(bridge, "import tools\nwhile True:\n    await tools.price(item='a')")

    assert run.status == "failed"
    assert "at most 20 calls" in str(run.errors())
    assert len(run.calls()) == 20


async def test_a_worker_that_is_killed_is_replaced(bridge: Bridge, shop: Shop) -> None:
    program = (
        "import tools\na = await tools.price(item='aa')\nb = await "
        "tools.sell(item='b')\n[a, b['count']]"
    )
    run = await bridge.run_plan({"program": program})
    assert await run.wait() == "needs_approval"
    run.runner.program.stop()
    [question] = run.questions()
    run.decide(question.approval, "approve", by="me")

    assert await run.wait() == "done"
    assert run.given() == [2, 1]
    assert (shop.sold, len(run.calls())) == (["b"], 2)


async def test_sleeping_is_a_call(bridge: Bridge) -> None:
    run = await ended(
        bridge,
        "import asyncio\nawait asyncio.gather(asyncio.sleep(0.01), asyncio.sleep(0))\n'awake'",
    )

    assert run.given() == "awake"
    assert [one.call.name for one in run.calls()] == ["sleep", "sleep"]


async def test_a_dry_run_lists_the_tools(bridge: Bridge) -> None:
    program = "import tools\nfor name in input['names']:\n    await tools.sell(item=name)"
    found = await bridge.dry_run({"program": program})

    [entry] = found["tools"]
    assert entry["signature"] == "tools.sell(item: str, count: int = 1) -> dict[str, Any]"
    assert "asks" in entry
    with pytest.raises(PlanError, match="cannot be drawn"):
        await bridge.draw({"program": program})


async def test_a_mind_may_answer_with_a_program(bridge: Bridge, shop: Shop) -> None:
    run = await bridge.solve(
        "Sell pens", input={"pens": 2}, output_schema={"type": "integer"}, mind="turns"
    )
    looks = (
        "import tools\nfor n in range(input['pens']):\n    "
        "print(await tools.price(item='pen' * (n + 1)))"
    )
    run.submit(0, {"program": looks})
    assert await run.wait() == "needs_solution"
    assert [one.value for one in run.calls()] == [3, 6]

    run.submit(1, {"program": "import tools\nawait tools.prize(item='a')"})
    assert await run.wait() == "needs_solution"
    assert "has no member `prize`" in str(run.errors())
    # Submitting the same program again changes nothing.
    run.submit(1, {"program": "import tools\nawait tools.prize(item='a')"})

    run.submit(2, {"program": "import tools\n(await tools.price(item='ink')) + 1"})
    assert await run.wait() == "done"
    assert (run.given(), shop.sold) == (4, [])
    with pytest.raises(SettledTurnError):
        run.submit(2, {"program": "5"})


@pytest.mark.parametrize(
    ("solution", "error"),
    [
        ({"program": 5}, "expected text"),
        (
            {"program": "1", "calls": [{"_tool": "price", "item": "a"}]},
            "leave out calls and output",
        ),
        ({"program": "1", "output": 2}, "leave out calls and output"),
    ],
)
async def test_a_solution_is_a_program_or_calls(
    bridge: Bridge, solution: JSONObject, error: str
) -> None:
    run = await bridge.solve("x", mind="turns")
    with pytest.raises(RejectedSolutionError, match=error):
        run.submit(0, solution)
    assert run.status == "needs_solution"


async def test_a_program_is_refused_where_it_cannot_mean_anything(bridge: Bridge) -> None:
    states: list[JSON] = [
        {"type": "state", "state": {"x": 1}, "_instance": one} for one in ("a", "b")
    ]
    over = await bridge.solve("x", context=states, mind="turns")
    with pytest.raises(RejectedSolutionError, match="a run with instances cannot have a program"):
        over.submit(0, {"program": "1"})

    lazy = await bridge.solve("x", planning="lazy", mind="turns")
    with pytest.raises(RejectedSolutionError, match="nobody can accept its calls"):
        lazy.submit(0, {"program": "1"})
