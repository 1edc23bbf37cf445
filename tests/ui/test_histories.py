"""The journals that pages keep take a bounded number of bytes, however many runs are looked at and however large."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.runs.people import Decision
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store import contents
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import LOCAL, SEES_ALL
from ideabridge.server.ui import histories
from ideabridge.server.ui.histories import Histories
from ideabridge.server.views.pending import Pending
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode, memory_of
from ideabridge.tools.toolbox import Toolbox
from tests.asking import ASKS

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def many_rows(start: int) -> JSON:
    """Many small values."""
    return [{"name": f"row {number}", "v": [number]} for number in range(start, start + 20_000)]


@tool
def pay(amount: int) -> int:
    """Pay an amount."""
    return amount


async def runs_with_large_results(path: Path, count: int) -> list[str]:
    async with Bridge(ASKS, toolbox=Toolbox(many_rows), store=path) as bridge:
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


async def test_the_journal_until_an_event_is_read_beside_the_event_loop_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [run] = await runs_with_large_results(tmp_path / "ideas.sqlite", 1)
    with Store.open(tmp_path / "ideas.sqlite") as store:
        kept = Histories(store)
        async with kept.reading(run, fold=True) as read:
            last = read.trace.last
        readers = note_readers(store, monkeypatch)
        before = await kept.at(run, last - 1)
        assert threading.get_ident() not in readers
        assert len(readers) == last - 1
        assert before.trace.last == last - 1
        assert before.history is not None
        assert len(before.history.entries) == last - 1

        monkeypatch.setattr(histories, "MOST_BYTES", 1_000_000)
        before = await kept.at(run, last - 1)
        assert before.history is None
        assert before.trace.last == last - 1


async def test_results_are_decoded_without_the_lock_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [run] = await runs_with_large_results(tmp_path / "ideas.sqlite", 1)
    with ThreadPoolExecutor() as threads, Store.open(tmp_path / "ideas.sqlite") as store:
        last = store.runs.find(run, caller=LOCAL).last_event
        found: list[int] = []

        def noted(text: str) -> JSON:
            if len(text) > 100_000:
                # Another thread reads the store meanwhile, as the event loop does.
                found.append(threads.submit(store.runs.find, run, caller=LOCAL).result(60).last_event)
            return decode_trusted(text)

        monkeypatch.setattr(contents, "decode_trusted", noted)
        assert len(list(store.runs.events(run))) == last
        assert set(found) == {last}


async def test_waiting_runs_are_folded_once_for_everybody_who_looks_at_their_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Bridge(ASKS, toolbox=Toolbox(many_rows, pay), store=tmp_path / "ideas.sqlite") as bridge:
        runs: list[Run] = []
        for start in range(3):
            calls: JSON = [
                {"_tool": "many_rows", "_id": "rows", "start": start},
                {"_tool": "pay", "amount": start, "_after": ["rows"]},
            ]
            run = await bridge.run_plan({"calls": calls})
            assert await run.wait() == "needs_approval"
            runs.append(run)
        # Fewer folded journals than there are runs can be kept.
        monkeypatch.setattr(histories, "MOST_BYTES", 6_000_000)
        kept = Histories(bridge.store)
        readers = note_readers(bridge.store, monkeypatch)
        asked: list[list[Pending]] = []

        async def look() -> None:
            asked.append(await kept.all_pending(LOCAL, 200))

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(look)
        await look()
        # The events of each run are read once for its trace, and once to fold them.
        assert len(readers) == 2 * sum(bridge.store.runs.find(run.id, caller=LOCAL).last_event for run in runs)
        assert threading.get_ident() not in readers
        for several in asked:
            assert [one.question.shown["amount"] for one in several] == [2, 1, 0]

        # A journal that has grown is read on.
        [question] = runs[0].pending()
        await bridge.decide(runs[0], question.approval, Decision("deny"))
        await runs[0].wait()
        await look()
        assert [one.question.shown["amount"] for one in asked[-1]] == [2, 1]


async def test_nobody_hides_the_questions_of_others_by_asking_many(tmp_path: Path) -> None:
    async with Bridge(ASKS, toolbox=Toolbox(pay), store=tmp_path / "ideas.sqlite") as bridge:

        async def ask(caller: str, count: int) -> None:
            calls: JSON = [{"_tool": "pay", "amount": amount} for amount in range(count)]
            run = await bridge.run_plan({"calls": calls}, caller=caller)
            assert await run.wait() == "needs_approval"

        await ask("alice", 2)
        for _ in range(3):
            await ask("mallory", 8)
        listed = await Histories(bridge.store).all_pending(SEES_ALL, 10)
        owners = [pending.record.caller for pending in listed]
        assert sorted(owners) == ["alice"] * 2 + ["mallory"] * 8
        # Each sees their own.
        assert len(await Histories(bridge.store).all_pending("mallory", 100)) == 24


def note_readers(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The thread of each reading of an event from here on."""
    readers: list[int] = []
    events = store.runs.events

    def noted(run_id: str, after: int = 0) -> Iterator[tuple[int, JSONObject]]:
        for event in events(run_id, after):
            readers.append(threading.get_ident())
            yield event

    monkeypatch.setattr(store.runs, "events", noted)
    return readers


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
