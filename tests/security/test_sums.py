"""What is bounded one by one is bounded in sum: costly checks, references, and words that
are looked for.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from mcp import Client

from ideabridge.bridge.driving.driver import is_large_value
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.loop.solution import MOST_REFERENCES
from ideabridge.server.search import ToolSearch
from ideabridge.tools import schema as schemas
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import LimitExceededError
from ideabridge.tools.schema import BLOCKED_IN_SUM, Blocking, Validator
from tests.server.serving import call, configured, http_process, plain, refused

pytestmark = pytest.mark.anyio

WIDE: Final[JSONObject] = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [{"type": "string", "minLength": number} for number in range(2500)]
    },
}
"""87 KB: a value with 10,000 keys takes longer than may be checked at once."""


async def test_a_plan_of_costly_literals_holds_up_everybody_for_a_bounded_time(
    tmp_path: Path,
) -> None:
    trap = {"name": "trap", "inputSchema": {"type": "object", "properties": {"x": WIDE}}}
    value = {f"k{number}": 1 for number in range(2_000)}
    with http_process(
        configured(tmp_path, mcpServers={"hostile": plain(tmp_path, "hostile", trap)})
    ) as url:
        async with Client(url, mode="auto") as client:
            begun = time.monotonic()
            said = await refused(client, "run_plan", calls=[{"_tool": "trap", "x": value}] * 40)
            took = time.monotonic() - begun

    # Each of the 40 checks may block for 1.3 s by itself.
    assert took < 5 * BLOCKED_IN_SUM
    assert (
        "not checked, because slow checks have already blocked this process" in said
        or "fits the schema" in said
    )


def test_checks_that_block_do_so_for_a_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0

    def take(job: str, argument: JSON, *, what: str, seconds: float) -> JSON:
        nonlocal now
        now += seconds
        raise LimitExceededError(f"{what}: {job} stopped after {seconds:g} s")

    blocking = Blocking(lambda: now)
    monkeypatch.setattr(schemas, "blocking", blocking)
    monkeypatch.setattr(schemas.workers, "wait", take)
    validator = Validator(WIDE, what="the input")
    value: JSON = {f"k{number}": 1 for number in range(10_000)}
    for _ in range(100):
        with pytest.raises(LimitExceededError, match=r"stopped after|not checked, because"):
            validator.check(value)

    assert now - 100 < BLOCKED_IN_SUM * 1.2
    with pytest.raises(LimitExceededError, match=r"blocked this process for 2 s; try again later"):
        validator.check(value)

    now += 1_000
    assert blocking.left() == BLOCKED_IN_SUM


async def test_a_plan_with_200_000_references_is_refused_before_they_are_bound(
    tmp_path: Path,
) -> None:
    calls: list[dict[str, Any]] = [
        {
            "_tool": "pick",
            "data": [f"†state.a{other}" for other in range(max(0, number - 200), number)],
            "path": "[0]",
            "_outputPath": f"a{number}",
        }
        for number in range(1_000)
    ]
    with http_process(configured(tmp_path)) as url:
        async with Client(url, mode="auto") as client:
            said = await refused(client, "run_plan", calls=calls)
    assert f"179,900 references; the limit of one plan is {MOST_REFERENCES:,}" in said


def test_calls_wait_for_each_other_a_bounded_number_of_times() -> None:
    graph = Graph(Catalogue(builtin_toolbox()), {})
    graph.most_bound = 10_000
    writers: list[JSON] = [
        {"_tool": "count", "items": [1], "_outputPath": f"a.b{number}"} for number in range(1_000)
    ]
    readers: list[JSON] = [
        {"_tool": "count", "items": "†state.a || †state.a.b1"} for _ in range(1_000)
    ]
    graph.take([*writers, *readers], None)
    assert [text for _, text in graph.problems] == [
        (
            "its calls depend on each other in more than 10,000 ways; let fewer calls read what "
            "many calls write, or use _each"
        )
    ]


def test_a_plan_within_the_bounds_is_bound_as_before() -> None:
    graph = Graph(Catalogue(builtin_toolbox()), {})
    graph.most_bound = 10_000
    writers: list[JSON] = [
        {"_tool": "count", "items": [1], "_outputPath": f"a.b{number}"} for number in range(100)
    ]
    graph.take([*writers, {"_tool": "count", "items": "†state.a"}], "†state.a")
    assert not graph.problems
    assert graph.depends_on(graph.calls[-1]) == set(range(100))


def test_megabytes_of_words_are_not_taken_apart() -> None:
    search = ToolSearch()
    tools = list(builtin_toolbox())
    begun = time.thread_time()
    search.find(tools, "filter " + "aB" * 2_000_000, 5)
    search.fits(tools, "filter " + "aB" * 2_000_000)
    assert time.thread_time() - begun < 0.3
    assert search.find(tools, "filter " + "x" * 20_000, 5)[0][0].name == "filter"


LONG: Final = """
from ideabridge.tools.decorator import tool

@tool(read_only=True)
async def long(n: int) -> str:
    return "x y" * (n // 3)
"""


async def test_many_large_results_at_once_leave_turns_to_others(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(LONG)
    slowest = 0.0
    over = anyio.Event()
    with http_process(configured(tmp_path, tools=[str(tmp_path / "long.py")])) as url:
        async with (
            Client(url, mode="auto") as one,
            Client(url, mode="auto") as other,
            anyio.create_task_group() as group,
        ):

            async def attack() -> None:
                async with anyio.create_task_group() as runs:
                    for _ in range(20):
                        runs.start_soon(
                            lambda: call(
                                one,
                                "run_plan",
                                calls=[{"_tool": "long", "n": 7_900_000}],
                                wait_s=45,
                            )
                        )
                over.set()

            group.start_soon(attack)
            while not over.is_set():
                begun = time.monotonic()
                await other.list_tools(cache_mode="bypass")
                slowest = max(slowest, time.monotonic() - begun)
                await anyio.sleep(0.05)

    # All of them in one pass would take more than 4 s.
    assert slowest < 2


def test_large_is_told_without_looking_at_everything() -> None:
    nested: JSON = {"a": [{str(number): number for number in range(10_001)}]}
    many: JSON = [None for _ in range(10_001)]
    texts: JSON = ["x" * 100_000, "x" * 100_000, "x" * 100_000]
    assert all(is_large_value(value) for value in (nested, many, texts, "x" * 300_000))
    few: JSON = {"a": [None for _ in range(9_000)]}
    assert not any(is_large_value(value) for value in ("x", 1, few))
