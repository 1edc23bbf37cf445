"""A plan runs programs as calls: what they return and ask, what is refused, and what is
published.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration, parse_configuration
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.limits import Limits
from ideabridge.bridge.runs.run import Run
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.toolbox import Toolbox
from tests.asking import ASKS

pytestmark = pytest.mark.anyio

SUM = """
import tools
total = 0
for item in input["items"]:
    try:
        total += await tools.price(item=item)
    except RuntimeError:
        print("no price for", item)
total
"""

SELL = "import tools\n[(await tools.sell(item=one))['item'] for one in input['items']]"


class Shop:
    """Tools, and what they were called with."""

    def __init__(self) -> None:
        self.did: list[str] = []

        @tool(read_only=True)
        async def price(item: str) -> int:
            """The price of an item."""
            if item == "nothing":
                raise ActivityError("there is no such item")
            self.did.append(f"price {item}")
            return len(item)

        @tool
        async def sell(item: str) -> dict[str, JSON]:
            """Sell an item."""
            self.did.append(f"sell {item}")
            return {"item": item}

        self.toolbox = Toolbox(price, sell)


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def bridge(shop: Shop) -> AsyncIterator[Bridge]:
    async with Bridge(ASKS, toolbox=shop.toolbox) as opened:
        yield opened


def step(program: str, given: JSON = None, **more: JSON) -> JSONObject:
    call: JSONObject = {"_tool": "run_program", "program": program, **more}
    return call if given is None else {**call, "input": given}


async def ended(bridge: Bridge, plan: JSONObject) -> Run:
    run = await bridge.run_plan(plan)
    with anyio.fail_after(30):
        await run.wait()
    return run


async def test_a_program_is_one_call_among_others(bridge: Bridge) -> None:
    run = await ended(
        bridge,
        {
            "input": {"items": ["pen", "nothing", "paper"]},
            "calls": [
                {
                    "_tool": "pick",
                    "data": "†input.items",
                    "path": "[?@ != 'pen']",
                    "_outputPath": "left",
                },
                step(SUM, {"items": "†state.left"}, _outputPath="sum"),
                {
                    "_tool": "compute",
                    "code": "sum * 2",
                    "sum": "†state.sum",
                    "_outputPath": "twice",
                },
                step(SUM, {"items": ["†item"]}, _each="†input.items", _outputPath="each"),
            ],
            "output": {"twice": "†state.twice", "each": "†state.each"},
        },
    )
    assert (run.status, run.answer()["output"]) == ("done", {"twice": 10, "each": [3, 0, 5]})


async def test_the_result_of_a_program_without_a_value_is_null(bridge: Bridge) -> None:
    plan: JSONObject = {
        "calls": [
            {"_tool": "run_program", "program": "None", "_outputPath": "nothing"},
            {
                "_tool": "run_program",
                "program": "import tools\nx = await tools.price(item='a')",
                "_outputPath": "called",
            },
        ],
        "output": ["†state.nothing", "†state.called"],
    }
    run = await bridge.run_plan(plan)
    assert await run.result() == [None, None]


async def test_it_runs_once_for_each_instance(bridge: Bridge) -> None:
    plan: JSONObject = {
        "instances": {"one": {"items": ["pen"]}, "two": {"items": ["paper", "ink"]}},
        "calls": [step(SUM, {"items": "†state.items"}, _outputPath="sum")],
        "output": "†state.sum",
    }
    assert (await ended(bridge, plan)).answer()["output"] == {"one": 3, "two": 8}


async def test_a_program_over_instances_runs_once_for_each_with_its_own_state(
    bridge: Bridge,
) -> None:
    program = """
import tools
if state["item"] == "none":
    raise ValueError("nothing to buy")
[await tools.price(item=state["item"]), input["currency"], "†state.item"]
"""
    plan: JSONObject = {
        "program": program,
        "input": {"currency": "EUR"},
        "instances": {"one": {"item": "pen"}, "two": {"item": "paper"}, "three": {"item": "none"}},
    }
    assert (await bridge.dry_run(plan))["layers"] == [["0 (one)", "0 (two)", "0 (three)"]]
    answer = (await ended(bridge, plan)).answer()
    assert answer["output"] == {"one": [3, "EUR", "†state.item"], "two": [5, "EUR", "†state.item"]}
    assert "nothing to buy" in answer["errors"][0]["error"]["message"]


async def test_a_malformed_program_over_instances_leaves_no_run(bridge: Bridge) -> None:
    program = "import tools\nawait tools.prise(item='pen')"
    with pytest.raises(PlanError, match="no member `prise`"):
        await bridge.run_plan({"program": program, "instances": {"a": {}, "b": {}}})
    assert bridge.runs() == []


async def test_it_sees_its_input_and_its_imports_alone(bridge: Bridge) -> None:
    program = "[sorted(input), sorted(state), state.get('seen')]"
    plan: JSONObject = {
        "input": {"secret": 1},
        "calls": [
            {"_tool": "pick", "data": {"a": 1}, "path": "a", "_outputPath": "seen"},
            {"_tool": "pick", "data": {"a": 1}, "path": "a", "_outputPath": "unseen"},
            step(program, {"own": 2}, _imports=["state.seen"], _outputPath="found"),
        ],
        "output": "†state.found",
    }
    assert (await ended(bridge, plan)).answer()["output"] == [["own"], ["seen"], 1]


async def test_programs_that_wait_for_programs_give_their_workers_up(shop: Shop) -> None:
    async with Bridge(
        Configuration(limits=Limits(parallel_calls=64)), toolbox=shop.toolbox
    ) as bridge:
        run = await bridge.run_program(
            "import tools\nawait tools.price(item=input['item'])", input={"item": "pen"}
        )
        await run.result()
        await bridge.publish(run.id, "price_of")
        shop.did.clear()
        program = """
import ideas, tools
before = await tools.price(item=input["item"])
[before, await ideas.price_of(item=input["item"] + "!")]
"""
        items: list[JSON] = [f"{'x' * n}" for n in range(40)]
        each = step(program, {"item": "†item"}, _each=items)
        run = await ended(bridge, {"calls": [each], "output": "†results.0"})
        assert run.given() == [[n, n + 1] for n in range(40)]
        # A program that starts again makes no call twice.
        assert len(shop.did) == 80


async def test_its_calls_ask_in_the_run(bridge: Bridge, shop: Shop) -> None:
    run = await bridge.run_plan(
        {
            "calls": [
                step(SELL, {"items": ["pen", "ink"]}, _outputPath="sold"),
                {"_tool": "price", "item": "map", "_outputPath": "after"},
            ],
            "output": "†state.sold",
        }
    )
    asked: list[JSON] = []
    with anyio.fail_after(30):
        while await run.wait() == "needs_approval":
            (question,) = run.approvals()
            assert isinstance(question, dict)
            asked.append(question["approval"])
            run.decide(str(question["approval"]), "approve", by="me")

    assert ([str(one).split("/")[0] for one in asked], run.answer()["output"]) == (
        ["0", "0"],
        ["pen", "ink"],
    )
    # Both affect the tools of this process, and the program may change something.
    assert shop.did == ["sell pen", "sell ink", "price map"]


async def test_a_program_that_only_reads_does_not_wait(bridge: Bridge) -> None:
    before: JSONObject = {"_tool": "price", "item": "a", "_outputPath": "a"}
    after: JSONObject = {"_tool": "price", "item": "c", "_outputPath": "c"}
    reads = await bridge.dry_run({"calls": [before, step(SUM, {"items": ["b"]}), after]})
    writes = await bridge.dry_run({"calls": [before, step(SELL, {"items": []}), after]})
    computes = await bridge.dry_run({"calls": [before, step("input['n']", {"n": 1}), after]})
    assert (reads["layers"], writes["layers"]) == ([[0, 1, 2]], [[0], [1], [2]])
    assert (computes["layers"], computes["not_read_only"]) == ([[0, 1, 2]], [])


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("import tools\nawait tools.prize(item='a')", r"calls\[1\]\.program: line 2, .*prize"),
        ("import tools\nawait tools.price()", r"calls\[1\]\.program: line 2, .*item"),
        ("1 +", r"calls\[1\]\.program: line 1"),
        ("import nowhere", r"calls\[1\]\.program: line 1, .*nowhere"),
        (
            "†state.text",
            r"calls\[1\]\.program: expected Python source code, found the reference",
        ),
        ("1" * 100_001, r"program"),
    ],
)
async def test_a_malformed_program_leaves_no_run_behind(
    bridge: Bridge, program: str, error: str
) -> None:
    calls: list[JSON] = [{"_tool": "price", "item": "a", "_outputPath": "text"}, step(program)]
    with pytest.raises(PlanError, match=error):
        await bridge.run_plan({"calls": calls})
    assert bridge.runs() == []


async def test_too_many_programs_are_refused(bridge: Bridge) -> None:
    calls: list[JSON] = [step(f"{number}") for number in range(51)]
    with pytest.raises(
        PlanError, match=r"51 programs .* the limits are 50 programs and 100,000 characters"
    ):
        await bridge.run_plan({"calls": calls})


async def test_the_same_program_may_run_often(bridge: Bridge) -> None:
    calls: list[JSON] = [
        step("input['n'] * 2", {"n": number}, _outputPath=f"n{number}") for number in range(60)
    ]
    run = await ended(bridge, {"calls": calls, "output": "†state.n59"})
    assert run.answer()["output"] == 118


async def test_an_error_of_the_program_is_an_error_of_its_call(bridge: Bridge) -> None:
    run = await ended(
        bridge,
        {"calls": [step("x = 1\nx / 0", _outputPath="x"), {"_tool": "price", "item": "pen"}]},
    )
    (error,) = run.answer()["errors"]
    assert "line 2: ZeroDivisionError" in str(error)


async def test_without_programs_there_are_no_steps(shop: Shop) -> None:
    configuration = parse_configuration({"programs": False})
    async with Bridge(configuration, toolbox=shop.toolbox) as bridge:
        with pytest.raises(PlanError, match="the configuration turns programs off"):
            await bridge.run_plan({"calls": [step("1")]})


async def test_a_tool_of_that_name_keeps_it() -> None:
    @tool(read_only=True)
    def run_program(program: str) -> str:
        """Something else."""
        return f"not run: {program}"

    async with Bridge(ASKS, toolbox=Toolbox(run_program)) as bridge:
        calls: list[JSON] = [
            {"_tool": "run_program", "program": "1 + 1", "_outputPath": "own"},
            step("1 + 1", _module="anonymous", _outputPath="step"),
        ]
        run = await ended(bridge, {"calls": calls})
        assert run.answer()["state"] == {"own": "not run: 1 + 1", "step": 2}


async def test_a_published_step_is_refused_once_its_tool_has_changed(tmp_path: Path) -> None:
    @tool(read_only=True)
    async def price(item: str, currency: str) -> str:
        """Another tool."""
        return f"{item} {currency}"

    configuration = Configuration(store=str(tmp_path / "ideas.sqlite"))
    called: JSONObject = {
        "_tool": "total",
        "_module": "idea:total",
        "items": ["a"],
        "_outputPath": "found",
    }
    async with Bridge(configuration, toolbox=Shop().toolbox) as bridge:
        plan: JSONObject = {
            "input": {"items": ["pen"]},
            "calls": [step(SUM, {"items": "†input.items"})],
        }
        run = await ended(bridge, {**plan, "output": "†results.0"})
        await bridge.publish(run.id, "total", answer="plan")
        assert (await ended(bridge, {"calls": [called], "output": "†state.found"})).given() == 1

    async with Bridge(configuration, toolbox=Toolbox(price)) as bridge:
        (error,) = (await ended(bridge, {"calls": [called]})).answer()["errors"]
        assert "total cannot be called: " in str(error)
        assert "currency" in str(error)


async def test_a_large_result_is_a_handle_in_a_step(bridge: Bridge) -> None:
    program = (
        "import tools\nrows = await tools.pick(data=input['rows'], "
        "path='@')\nawait tools.read(rows, '3.text')"
    )
    rows: list[JSON] = [{"text": str(number) * 100_000} for number in range(10, 20)]
    run = await ended(
        bridge,
        {"input": {"rows": rows}, "calls": [step(program, "†input")], "output": "†results.0"},
    )
    assert run.given() == "13" * 100_000


async def test_a_plan_with_a_program_is_published_and_pins_its_tools(shop: Shop) -> None:
    async with Bridge(ASKS, toolbox=shop.toolbox) as bridge:
        run = await ended(
            bridge,
            {
                "input": {"wanted": ["pen", "paper"]},
                "calls": [step(SUM, {"items": "†input.wanted"}, _outputPath="sum")],
                "output": {"sum": "†state.sum"},
            },
        )
        made = await bridge.publish(run.id, "total_price", answer="plan")
        assert made.plan is not None
        pins = made.plan["pins"]
        assert isinstance(pins, list)
        assert [one.get("tool") for one in pins if isinstance(one, dict)] == ["price"]
        assert bridge.hints(made)["readOnlyHint"] is True
        again = await ended(
            bridge,
            {
                "calls": [
                    {
                        "_tool": "total_price",
                        "_module": "idea:total_price",
                        "wanted": ["a", "bc"],
                        "_outputPath": "found",
                    }
                ],
                "output": "†state.found",
            },
        )
        assert again.answer()["output"] == {"sum": 3}
