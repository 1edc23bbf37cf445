"""What holds one by one must hold in sum: results of a run, products of references and items."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.loop.size import MOST_RESOLVED, MOST_VALUES
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.runs import executor, registry, runs
from ideabridge.bridge.runs.run import Run
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.errors import LimitExceededError

pytestmark = pytest.mark.anyio

MEGABYTE = 1_000_000
calls_made = 0


@tool(read_only=True)
async def megabyte(n: int = 1) -> str:
    """Text of n MB."""
    global calls_made
    calls_made += 1
    return "x" * (n * MEGABYTE)


@tool(read_only=True)
async def length(value: Any, more: Any = None) -> int:
    """How many members a value has."""
    return len(value)


@tool(read_only=True)
async def twice(value: Any) -> list[Any]:
    """A value two times."""
    return [value, value]


@tool
async def change(value: Any) -> str:
    """Changes something."""
    return "changed"


def bridge(folder: Path, **limits: int) -> Bridge:
    toolbox = Toolbox()
    for one in (megabyte, length, twice, change):
        toolbox.add(one)
    configuration = parse_configuration(
        {"store": "ideas.sqlite", "limits": limits, "approval": {"default": "read_only"}},
        project=folder,
    )
    return Bridge(configuration, toolbox=toolbox)


async def ran(open_bridge: Bridge, **plan: Any) -> Run:
    run = await open_bridge.run_plan(read_plan(plan))
    await run.wait()
    return run


def errors(run: Run) -> str:
    return "\n".join(str(one["error"]["message"]) for one in run.errors())


async def test_the_results_of_a_run_are_bounded_together(tmp_path: Path) -> None:
    global calls_made
    calls_made = 0
    each = {"_tool": "megabyte", "_each": [1] * 40, "_outputPath": "x"}
    async with bridge(tmp_path, run_bytes=10 * MEGABYTE, parallel_calls=1) as one:
        run = await ran(one, calls=[each])
        assert (
            "this run already has 10,000,000 bytes of results and calls; the limit is 10,000,000 "
            "(limits.run_bytes)"
        ) in errors(run)
        # A call whose result could not be kept does not run.
        assert calls_made == 10


async def test_a_result_counts_for_each_path_it_is_written_to(tmp_path: Path) -> None:
    paths = " && ".join(f"p{number}" for number in range(30))
    async with bridge(tmp_path, run_bytes=20 * MEGABYTE) as one:
        run = await ran(one, calls=[{"_tool": "megabyte", "n": 1, "_outputPath": paths}])
        assert "the result of megabyte is 30,000,000 bytes long and was discarded" in errors(run)


async def test_a_run_that_is_taken_up_again_remembers_what_it_keeps(tmp_path: Path) -> None:
    calls = [
        {"_tool": "megabyte", "n": 8, "_outputPath": "x"},
        {"_tool": "change", "value": "†state.x", "_id": "asks"},
        {"_tool": "megabyte", "n": 8, "_after": ["asks"]},
    ]
    async with bridge(tmp_path, run_bytes=12 * MEGABYTE) as one:
        run = await one.run_plan(read_plan({"calls": calls}))
        await run.wait()
        assert run.status == "needs_approval"

    async with bridge(tmp_path, run_bytes=12 * MEGABYTE) as one:
        again = await one.run(run.id)
        again.decide(again.pending()[0].approval, "approve", by="a person")
        await again.wait()
        assert "limits.run_bytes" in errors(again)


async def test_a_state_that_doubles_ends_at_the_bound_of_a_result(tmp_path: Path) -> None:
    calls: list[Any] = [{"_tool": "megabyte", "n": 1, "_outputPath": "x0"}]
    calls += [
        {"_tool": "twice", "value": f"†state.x{n}", "_outputPath": f"x{n + 1}"} for n in range(40)
    ]
    async with bridge(tmp_path) as one:
        run = await ran(one, calls=calls)
        assert "the result of twice has 16,000,0" in errors(run)


async def test_a_parameter_that_names_one_value_many_times_is_measured(tmp_path: Path) -> None:
    """A list of 10,000 references to 8 MB is short in memory, and 80 GB on its way to the tool."""
    big = {"_tool": "megabyte", "n": 8, "_outputPath": "x"}
    for name in ("length", "change"):
        async with bridge(tmp_path) as one:
            run = await ran(one, calls=[big, {"_tool": name, "value": ["†state.x"] * 10_000}])
            wanted = (
                "its parameters would take up 80,000,000,000 bytes including the values referred "
                f"to; the limit is {MOST_RESOLVED:,}"
            )
            assert wanted in errors(run)


async def test_items_that_each_read_a_large_value_run_one_by_one_but_are_not_asked_about(
    tmp_path: Path,
) -> None:
    big = {"_tool": "megabyte", "n": 8, "_outputPath": "x"}
    async with bridge(tmp_path) as one:
        each = {"_each": list(range(20)), "value": "†state.x", "more": "†item"}
        run = await ran(one, calls=[big, {"_tool": "length", **each}])
        assert run.status == "done"
        del each["more"]
        run = await ran(one, calls=[big, {"_tool": "change", **each}])
        assert "the call would take up 160,000,000 bytes" in errors(run)


async def test_an_output_that_names_one_value_many_times_is_refused(tmp_path: Path) -> None:
    big = {"_tool": "megabyte", "n": 8, "_outputPath": "x"}
    async with bridge(tmp_path) as one:
        run = await ran(one, calls=[big], output=["†state.x"] * 10_000)
        assert run.status == "failed"
        assert "output would take up 80,000,000,000 bytes" in errors(run)


async def test_small_values_that_are_read_many_times_are_counted(tmp_path: Path) -> None:
    """An output of 60 KB had 20 million lists in 60 MB, which took the server 14 s and 2 GB."""
    given: dict[str, Any] = {"small": [[]] * 2000}
    many = ["†input.small"] * 10_000
    wanted = (
        "would contain 20,010,000 values (numbers, strings, lists, ...) including those referred "
        f"to; the limit is {MOST_VALUES:,}"
    )
    async with bridge(tmp_path) as one:
        run = await ran(one, calls=[{"_tool": "megabyte"}], input=given, output=many)
        assert run.status == "failed"
        assert f"output {wanted}" in errors(run)
        for name in ("length", "change"):
            run = await ran(one, calls=[{"_tool": name, "value": many}], input=given)
            assert f"its parameters {wanted}" in errors(run)

        # Each item is small enough to run alone, but a person would have to decide about all of
        # them together.
        each = [{"n": number} for number in range(1000)]
        run = await ran(
            one, calls=[{"_tool": "change", "_each": each, "value": "†input.small"}], input=given
        )
        assert "the call would contain 2,001,000 values" in errors(run)


async def test_values_are_not_counted_by_what_stands_in_texts(tmp_path: Path) -> None:
    given = {"table": {"csv": '"a,b",[{' * 100_000}}
    async with bridge(tmp_path) as one:
        run = await ran(
            one, calls=[{"_tool": "length", "value": ["†input.table"] * 10}], input=given
        )
        assert run.status == "done"
        assert run.machine.history[0].items[0].read_size.values == 20


async def test_the_outputs_of_one_caller_together_keep_a_bounded_part_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "CALLER_MEMORY", 16 * MEGABYTE)
    monkeypatch.setattr(runs, "MEMORY_STEP", MEGABYTE)
    plan: dict[str, Any] = {
        "calls": [{"_tool": "length", "value": []}],
        "input": {"small": [[]] * 250},
        "output": ["†input.small"] * 100,
    }
    async with bridge(tmp_path) as one:
        ended = [weakref.ref(await ran(one, **plan)) for _ in range(20)]
        gc.collect()
        # Each run takes about 1.5 MB.
        assert 0 < sum(run() is not None for run in ended) < 10


@tool(read_only=True)
async def rows(n: int) -> list[Any]:
    """Many small objects: each takes 20 times its JSON in memory."""
    return [{"n": one, "tags": []} for one in range(n)]


async def test_the_runs_of_one_caller_together_keep_a_bounded_part_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (executor, registry, runs):
        monkeypatch.setattr(module, "CALLER_MEMORY", 22 * MEGABYTE)

    ending = anyio.Event()

    @tool(read_only=True)
    async def wait(value: Any) -> int:
        """Keeps its run at work."""
        await ending.wait()
        return len(value)

    plan: dict[str, Any] = {
        "calls": [
            {"_tool": "rows", "n": 20_000, "_outputPath": "rows"},
            {"_tool": "wait", "value": "†state.rows", "_outputPath": "length"},
        ],
        "output": "†state.length",
    }
    configuration = parse_configuration({"store": "ideas.sqlite"}, project=tmp_path)
    async with Bridge(configuration, toolbox=Toolbox(rows, wait)) as open_bridge:
        working = [await open_bridge.run_plan(read_plan(plan), caller="alice") for _ in range(8)]
        with anyio.fail_after(60):
            refused = [run for run in working if await ended_or_waiting(run)]

        assert 0 < len(refused) < len(working)
        assert "with it, your runs would take about" in str(refused[0].errors())
        assert "the limit for one caller is 21 MB" in str(refused[0].errors())
        # Another caller has a separate share.
        other = await open_bridge.run_plan(read_plan(plan), caller="bob")
        assert not await ended_or_waiting(other)
        ending.set()
        for run in (*working, other):
            await run.wait(30)

        assert {run.answer()["output"] for run in working if run not in refused} == {20_000}
        # A run that has ended makes room.
        again = await open_bridge.run_plan(read_plan(plan), caller="alice")
        await again.wait(30)
        assert again.answer()["output"] == 20_000


async def ended_or_waiting(run: Run) -> bool:
    """Wait until the rows of a run are there or were refused; whether they were refused."""
    while not (calls := run.calls()) or calls[0].status not in (CallStatus.DONE, CallStatus.FAILED):
        await run.runner.wait_changed()
    return calls[0].status is CallStatus.FAILED


async def test_the_contexts_of_waiting_runs_together_keep_a_bounded_part_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (executor, registry, runs):
        monkeypatch.setattr(module, "CALLER_MEMORY", 16 * MEGABYTE)

    plan: dict[str, Any] = {
        "calls": [{"_tool": "change", "value": 1}],
        "input": {"many": [[]] * 12_500},
    }
    async with bridge(tmp_path) as one:
        waiting: dict[str, weakref.ref[Run]] = {}
        for _ in range(30):
            run = await ran(one, **plan)
            assert run.status == "needs_approval"
            waiting[run.id] = weakref.ref(run)
            del run

        gc.collect()
        # Each run takes about 1.3 MB. A run that is not in memory is read from its journal when
        # somebody asks for it.
        assert 0 < sum(run() is not None for run in waiting.values()) < 15
        oldest = await one.run(next(iter(waiting)))
        assert oldest.status == "needs_approval"


async def test_a_run_whose_context_does_not_fit_beside_the_others_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (executor, registry, runs):
        monkeypatch.setattr(module, "CALLER_MEMORY", 8 * MEGABYTE)

    ending = anyio.Event()

    @tool(read_only=True)
    async def hold() -> None:
        """Keeps its run at work."""
        await ending.wait()

    plan: dict[str, Any] = {"calls": [{"_tool": "hold"}], "input": {"many": [[]] * 25_000}}
    configuration = parse_configuration({"store": "ideas.sqlite"}, project=tmp_path)
    async with Bridge(configuration, toolbox=Toolbox(hold)) as open_bridge:
        working = [await open_bridge.run_plan(read_plan(plan)) for _ in range(3)]
        with pytest.raises(LimitExceededError, match="the limit for one caller is 7 MB"):
            await open_bridge.run_plan(read_plan(plan))

        ending.set()
        for run in working:
            await run.wait(30)

        assert (await ran(open_bridge, **plan)).status == "done"
