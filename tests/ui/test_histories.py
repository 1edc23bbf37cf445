"""The journals that pages keep take a bounded number of bytes, however many runs are looked at
and however large.
"""

from __future__ import annotations

import base64
import gc
import re
import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.runs.people import Decision
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store import contents
from ideabridge.bridge.store.journal import TimedEvent
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import LOCAL, SEES_ALL
from ideabridge.server.ui import histories
from ideabridge.server.ui.histories import Histories
from ideabridge.server.views.pending import Pending
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode, memory_of
from ideabridge.tools.toolbox import Toolbox
from ideabridge.tools.worker import workers
from tests.asking import ASKS
from tests.ui import serving

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
            run = await bridge.run_plan(
                {"calls": [{"_tool": "many_rows", "start": 100_000 * number}]}
            )
            assert await run.wait() == "done"
            found.append(run.id)
    return found


async def test_journals_that_are_kept_take_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = await runs_with_large_results(tmp_path / "ideas.sqlite", 6)
    bound = 20_000_000
    monkeypatch.setattr(histories, "JOURNAL_CACHE_BYTES", bound)
    fold_here(monkeypatch)
    with Store.open(tmp_path / "ideas.sqlite") as store:
        kept = Histories(store)
        tracemalloc.start()
        try:
            for run in runs:
                async with kept.reading(run, fold=True) as read:
                    assert read.history is not None
                    assert len(read.history.entries) > 3
                    # One of them takes up a part of the limit, and all of them together exceed it.
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
    monkeypatch.setattr(histories, "FOLDED_BYTES", 100_000)
    monkeypatch.setattr(histories, "JOURNAL_CACHE_BYTES", 1_000_000)
    with Store.open(tmp_path / "ideas.sqlite") as store:
        # A worker folds the journal, and nothing of it is kept here.
        kept = Histories(store)
        async with kept.reading(run, fold=True) as read:
            assert read.history is None

        fold_here(monkeypatch)
        kept = Histories(store)
        async with kept.reading(run) as read:
            assert read.history is None
            assert len(read.trace.bars) == 1

        async with kept.reading(run, fold=True) as read:
            assert read.history is not None

        # It is larger than everything that may be kept.
        async with kept.reading(run) as read:
            assert read.history is None


async def test_the_journal_until_an_event_is_bounded(tmp_path: Path) -> None:
    [run] = await runs_with_large_results(tmp_path / "ideas.sqlite", 1)
    with Store.open(tmp_path / "ideas.sqlite") as store:
        last = store.runs.find(run, caller=LOCAL).last_event
        before = histories.read_until(store, run, last - 1)
        assert before.trace.last == last - 1
        assert before.history is not None
        assert len(before.history.entries) == last - 1

        before = histories.read_until(store, run, last - 1, 1_000_000)
        assert before.history is None
        assert before.trace.last == last - 1


def test_pages_of_a_large_run_are_made_whole_in_a_worker(tmp_path: Path) -> None:
    image: JSON = {
        "type": "image",
        "mimeType": "image/png",
        "data": base64.b64encode(b"picture").decode(),
    }

    async def fill() -> tuple[str, str]:
        async with Bridge(ASKS, toolbox=Toolbox(pay), store=tmp_path / "ideas.sqlite") as bridge:
            runs: list[str] = []
            for last in ([], [{"_tool": "pay", "amount": 7}]):
                counts: list[JSON] = [
                    {"_tool": "count", "items": [number], "_outputPath": "n"}
                    for number in range(80)
                ]
                pick: JSON = {
                    "_tool": "pick",
                    "data": {"content": [image], "text": "xyz"},
                    "path": "@",
                }
                run = await bridge.run_plan({"calls": [pick, *counts, *last]})
                assert await run.wait() in ("done", "needs_approval")
                assert (
                    bridge.store.runs.find(run.id, caller=LOCAL).last_event
                    > histories.FOLDED_HERE_EVENTS
                )
                runs.append(run.id)
            return runs[0], runs[1]

    done, waits = anyio.run(fill)
    with serving.served(tmp_path) as link, serving.client(link) as http:
        page = http.get(f"/ui/runs/{done}")
        assert page.status_code == 200
        assert "The state of the run" in page.text
        # The frame contains what belongs to the visitor.
        assert 'name="secret" value="' in page.text
        assert "Sign out" in page.text
        assert f'href="/ui/runs/{done}/calls/3"' in page.text
        assert "s-running" not in page.text
        earlier = http.get(f"/ui/runs/{done}?at=20").text
        assert "Intermediate results at moment 20<" in earlier
        assert earlier.count('<span class="status s-running">') > 0
        assert earlier.count('<span class="status s-waiting">') > 0
        assert "The result" in http.get(f"/ui/runs/{done}/calls/0").text
        assert http.get(f"/ui/runs/{done}/calls/999").status_code == 404
        result = http.get(f"/ui/runs/{done}/calls/0/result")
        assert result.json() == {"content": [image], "text": "xyz"}
        shown = http.get(f"/ui/runs/{done}/calls/0/images/0")
        assert (shown.content, shown.headers["content-type"]) == (b"picture", "image/png")
        assert http.get(f"/ui/runs/{done}/calls/0/images/1").status_code == 404
        assert http.get(f"/ui/runs/{done}/picture.svg").text.startswith("<svg")
        # A question is decided in the same way as on the page of a small run.
        page = http.get(f"/ui/runs/{waits}")
        assert "Needs approval" in page.text
        [approval] = re.findall(rf'name="which" value="({waits}:[^"]+)"', page.text)[:1]
        seal = serving.seal(http, approval)
        assert seal
        assert seal in page.text
        answer = serving.send(
            http, "/ui/approvals/decide", which=approval, seal=seal, decision="deny"
        )
        assert answer.status_code == 200
        assert "Needs approval" not in http.get(f"/ui/runs/{waits}").text


async def test_results_are_decoded_without_the_lock_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [run] = await runs_with_large_results(tmp_path / "ideas.sqlite", 1)
    with ThreadPoolExecutor() as threads, Store.open(tmp_path / "ideas.sqlite") as store:
        last = store.runs.find(run, caller=LOCAL).last_event
        found: list[int] = []

        def noted(text: str) -> JSON:
            if len(text) > 100_000:
                # In the meantime, another thread reads the store, as the event loop does.
                found.append(
                    threads.submit(store.runs.find, run, caller=LOCAL).result(60).last_event
                )
            return decode_trusted(text)

        monkeypatch.setattr(contents, "decode_trusted", noted)
        assert len(list(store.runs.events(run))) == last
        assert set(found) == {last}


async def test_waiting_runs_are_folded_once_for_everybody_who_looks_at_their_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Bridge(
        ASKS, toolbox=Toolbox(many_rows, pay), store=tmp_path / "ideas.sqlite"
    ) as bridge:
        runs: list[Run] = []
        for start in range(3):
            calls: JSON = [
                {"_tool": "many_rows", "_id": "rows", "start": start},
                {"_tool": "pay", "amount": start, "_after": ["rows"]},
            ]
            run = await bridge.run_plan({"calls": calls})
            assert await run.wait() == "needs_approval"
            runs.append(run)
        # The limit allows fewer folded journals than there are runs.
        monkeypatch.setattr(histories, "JOURNAL_CACHE_BYTES", 6_000_000)
        kept = Histories(bridge.store)
        readers = note_readers(bridge.store, monkeypatch)
        workers = note_workers(monkeypatch)
        asked: list[list[Pending]] = []

        async def look() -> None:
            asked.append(await kept.all_pending(LOCAL, 200))

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(look)
        await look()
        # The events of each run are read twice: once here, for its trace, and once by a worker that
        # folds them.
        assert sorted(workers) == sorted(run.id for run in runs)
        assert len(readers) == sum(
            bridge.store.runs.find(run.id, caller=LOCAL).last_event for run in runs
        )
        assert threading.get_ident() not in readers
        for several in asked:
            assert [one.question.shown["amount"] for one in several] == [2, 1, 0]

        # If a journal has grown, only the new events are read.
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
        # Everyone sees their own questions.
        assert len(await Histories(bridge.store).all_pending("mallory", 100)) == 24


async def test_a_run_that_kills_its_worker_hides_no_questions_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "FOLDED_HERE_EVENTS", 0)
    async with Bridge(ASKS, toolbox=Toolbox(pay), store=tmp_path / "ideas.sqlite") as bridge:
        runs: list[Run] = []
        for amount in range(2):
            run = await bridge.run_plan({"calls": [{"_tool": "pay", "amount": amount}]})
            assert await run.wait() == "needs_approval"
            runs.append(run)
        read_beside = histories.read_beside

        async def killed(
            work: Any, store: Store, run_id: str, *arguments: JSON, is_small: bool, what: str
        ) -> JSON:
            if run_id == runs[0].id:
                await workers.run("os:_exit", [3], what=what)
            return await read_beside(work, store, run_id, *arguments, is_small=is_small, what=what)

        monkeypatch.setattr(histories, "read_beside", killed)
        listed = await Histories(bridge.store).all_pending(LOCAL, 10)
        assert [pending.record.id for pending in listed] == [runs[1].id]


def fold_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process fold the journals from here on, as those of a store in memory."""
    monkeypatch.setattr(Histories, "has_workers", False)


def note_workers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The run of each job that workers read from here on."""
    runs: list[str] = []
    read_beside = histories.read_beside

    async def noted(
        work: Any, store: Store, run_id: str, *arguments: JSON, is_small: bool, what: str
    ) -> JSON:
        runs.append(run_id)
        return await read_beside(work, store, run_id, *arguments, is_small=is_small, what=what)

    monkeypatch.setattr(histories, "read_beside", noted)
    return runs


def note_readers(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The thread of each reading of an event from here on, whole or for a trace."""
    readers: list[int] = []
    events = store.runs.events
    timed_events = store.runs.timed_events

    def noted(run_id: str, after: int = 0) -> Iterator[tuple[int, JSONObject]]:
        for event in events(run_id, after):
            readers.append(threading.get_ident())
            yield event

    def noted_for_trace(run_id: str, after: int = 0) -> Iterator[TimedEvent]:
        for event in timed_events(run_id, after):
            readers.append(threading.get_ident())
            yield event

    monkeypatch.setattr(store.runs, "events", noted)
    monkeypatch.setattr(store.runs, "timed_events", noted_for_trace)
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
