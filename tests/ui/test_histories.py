"""The journals that pages keep take a bounded number of bytes, however many runs are looked at and however large."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.store.store import Store
from ideabridge.server.ui import histories
from ideabridge.server.ui.histories import Histories
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, encode, memory_of
from ideabridge.tools.toolbox import Toolbox

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def many_rows(start: int) -> JSON:
    """Many small values."""
    return [{"name": f"row {number}", "v": [number]} for number in range(start, start + 20_000)]


async def runs_with_large_results(path: Path, count: int) -> list[str]:
    async with Bridge(toolbox=Toolbox(many_rows), store=path) as bridge:
        found: list[str] = []
        for number in range(count):
            run = await bridge.run_plan({"calls": [{"_tool": "many_rows", "start": 100_000 * number}]})
            assert await run.wait() == "done"
            found.append(run.id)
    return found


async def test_journals_that_are_kept_take_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = await runs_with_large_results(tmp_path / "ideas.sqlite", 6)
    bound = 20_000_000
    monkeypatch.setattr(histories, "MOST_BYTES", bound)
    with Store.open(tmp_path / "ideas.sqlite") as store:
        kept = Histories(store)
        tracemalloc.start()
        try:
            for run in runs:
                async with kept.reading(run, fold=True) as read:
                    assert read.history is not None
                    assert len(read.history.entries) > 3
                    # One of them takes a part of the bound, all of them more than it.
                    assert bound / 6 < read.size < bound
            gc.collect()
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert taken < 1.3 * bound
        async with kept.reading(runs[0]) as again:
            assert again.history is not None


async def test_a_large_journal_is_folded_only_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [run] = await runs_with_large_results(tmp_path / "ideas.sqlite", 1)
    monkeypatch.setattr(histories, "SMALL_BYTES", 100_000)
    monkeypatch.setattr(histories, "MOST_BYTES", 1_000_000)
    with Store.open(tmp_path / "ideas.sqlite") as store:
        kept = Histories(store)
        async with kept.reading(run) as read:
            assert read.history is None
            assert len(read.trace.bars) == 1
        async with kept.reading(run, fold=True) as read:
            assert read.history is not None
        # It is larger than all that may be kept.
        async with kept.reading(run) as read:
            assert read.history is None


def test_the_estimate_of_memory_is_not_that_of_json() -> None:
    value: JSON = [{"name": f"row {number}", "v": [number]} for number in range(1_000, 21_000)]
    data = encode(value)
    del value
    tracemalloc.start()
    try:
        import orjson

        read = orjson.loads(data)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(read) == 20_000
    assert taken > 5 * len(data)
    assert 0.7 * taken < memory_of(data) < 2 * taken
