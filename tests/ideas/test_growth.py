"""What a run adds to the store: what others hold already is kept once, and is read
whole all the same.
"""

import json
import time
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.store import pruning
from ideabridge.bridge.store import pruning as reach
from ideabridge.bridge.store.errors import StoreFormatError
from ideabridge.bridge.store.run_record import StoredSummary
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.bridge.store.store import Store
from ideabridge.server.main import main
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from tests.ideas.test_pruning import age, check_whole, newest, old_run
from tests.ideas.values import VALUES, idea_of
from tests.postgres import run_sql

pytestmark = pytest.mark.anyio


def lookups(count: int) -> Toolbox:
    """Tools with definitions as long as those of servers mostly are."""
    toolbox = Toolbox()
    for number in range(count):

        async def look(query: str, limit: int = 5, state: str | None = None) -> dict[str, Any]:
            """Look things up, the newest first: returns the number, the title and the state of
            what was found.

            Args:
                query: Words to look for, as one types them into a search box.
                limit: How many at most, from 1 to 50.
                state: Only what is in this state: open or closed.
            """
            return {"title": f"about {query}", "limit": limit, "state": state or "open"}

        toolbox.add(tool(name=f"look_{number}", read_only=True)(look))

    return toolbox


def five_calls(turn: int, tools: int) -> list[JSON]:
    """Five small calls."""
    return [
        {
            "_tool": f"look_{place % tools}",
            "query": f"words {turn} {place}",
            "_outputPath": f"found.r{place}",
        }
        for place in range(5)
    ]


def rows(path: str, sql: str) -> list[tuple[Any, ...]]:
    """What a query answers with, to whoever reads the file."""
    return run_sql(path, sql)


def in_use(path: str) -> int:
    """The bytes of the file that hold something, once all of the log is in it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size


def journal(store: Store, run: str, *events: JSONObject) -> None:
    """A run of these events that has ended."""
    store.runs.create(run, kind="plan", caller="", title="", fingerprint="")
    epoch = store.leases.acquire(run, "driver", 10, time.time())
    assert epoch is not None
    for event in events:
        store.runs.append(run, epoch, [event])

    store.runs.set_status(run, epoch, "done", StoredSummary())
    store.leases.release(run, epoch)


def started(*tools: str, task: str = "task") -> JSONObject:
    """The first event of a run, with tools of these names."""
    listed: list[JSON] = [
        {"name": name, "description": "x" * 200, "parameters": {"default": None}} for name in tools
    ]
    context: list[JSON] = [{"role": "user", "content": task}]
    return {
        "event": "run_started",
        "mode": "solve",
        "context": context,
        "tools": listed,
        "latent": [],
        "settings": {},
    }


def solved(text: str) -> JSONObject:
    """A Solution that an idea could share."""
    return {"event": "solution_proposed", "calls": [{"_tool": "tool", "text": text * 200}]}


def repeated(value: JSON, times: int) -> JSON:
    """A long list."""
    return [value] * times


LONG: st.SearchStrategy[JSON] = st.builds(repeated, VALUES, st.integers(60, 80))
"""Values that are kept by content."""


async def test_the_definitions_of_26_tools_are_stored_once(tmp_path: Path) -> None:
    path = str(tmp_path / "ideas.db")
    async with Bridge(
        Configuration(approval="allow_all"), store=path, toolbox=lookups(26)
    ) as bridge:
        runs = [
            await bridge.solve(f"task {n}", tools=[f"look_{n}" for n in range(26)], mind="turns")
            for n in range(9)
        ]
        for turn, run in enumerate(runs):
            run.submit(0, {"calls": five_calls(turn, 26), "output": "done"})
            assert await run.result() == "done"
        run = runs[-1]
        defined = 'SELECT count(*) FROM contents WHERE body LIKE \'{"name":"look_%\''
        assert rows(path, defined) == [(26,)]
        assert rows(path, "SELECT max(length(body)) FROM events") < [(300,)]
        # The events are read whole, both by the bridge and through the view.
        first = next(bridge.store.runs.events(run.id))[1]
        assert [one["name"] for one in cast("list[Any]", first["tools"])] == [
            f"look_{n}" for n in range(26)
        ]
        [(told,)] = rows(path, f"SELECT event FROM journal WHERE run = '{run.id}' AND sequence = 1")
        assert json.loads(told) == first
        again = await bridge.fork(run.id, 1)
        assert again.machine.offer.initial.tools == run.machine.offer.initial.tools


NAMES: st.SearchStrategy[JSON] = st.sampled_from(
    ["run_started", "request_made", "solution_proposed", "call_decided", "message_added"]
)
ANYTHING: st.SearchStrategy[JSON] = LONG | VALUES
LISTS: st.SearchStrategy[JSON] = st.lists(ANYTHING, max_size=12)
MEMBERS: dict[str, st.SearchStrategy[JSON]] = {
    **dict.fromkeys(
        ("settings", "output_schema", "why", "offered", "tool", "extra", "more"), ANYTHING
    ),
    **dict.fromkeys(("tools", "context", "calls"), LISTS),
    "output": ANYTHING.filter(lambda value: value is not None),
}
EVENTS: st.SearchStrategy[list[JSONObject]] = st.lists(
    st.fixed_dictionaries({"event": NAMES}, optional=MEMBERS), max_size=4
)


def test_events_are_read_as_they_were_journaled(tmp_path: Path) -> None:
    numbers = count()

    @settings(deadline=None)
    @given(st.lists(EVENTS, min_size=1, max_size=3))
    def check(many: list[list[JSONObject]]) -> None:
        journals = {f"run {next(numbers)}": events for events in many}
        for run, events in journals.items():
            journal(store, run, *events)

        for run, events in journals.items():
            assert [event for _, event in store.runs.events(run)] == events
            told = rows(
                store.path, f"SELECT event FROM journal WHERE run = '{run}' ORDER BY sequence"
            )
            shown = [json.loads(text) for (text,) in told]
            for event, one in zip(events, shown, strict=True):
                if event["event"] == "solution_proposed":
                    one = {"output": None, **one}
                    event = {"output": None, **event}
                assert one == event

    # Use one store for all examples, because creating one takes longer than writing some events
    # into it.
    with Store.open(tmp_path / "ideas.db") as store:
        check()


def test_pruning_keeps_what_journals_refer_to_and_nothing_else(store: Store) -> None:
    journal(store, "old", started("shared", "only old", task="old"), solved("old"))
    journal(store, "young", started("shared", "only young", task="young"), solved("young"))
    old_run(store, "old ideas", idea_of("word"))
    age(store.path, "old", 1)
    newest(store)
    found = store.prunable(before="2021-01-01")
    pruned = store.prune(found)
    assert (found.runs, pruned.runs) == (2, 2)
    # What the old run had in common with the young one stays; what only the old one had, and what
    # only its idea had, is gone.
    left = str(rows(store.path, "SELECT group_concat(body) FROM contents"))
    assert [
        word in left for word in ("shared", "only young", "only old", "young", '"old"', "word")
    ] == [*(True, True, False, True, False, False)]
    assert [event for _, event in store.runs.events("young")] == [
        started("shared", "only young", task="young"),
        solved("young"),
    ]
    check_whole(store.path)


def test_what_a_run_journals_while_contents_are_swept_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The definitions that only old runs had are used again, by a run there was and by a new
    one, in the middle.
    """
    monkeypatch.setattr(reach, "_DELETED", 1)
    with Store.open(tmp_path / "ideas.db") as store, Store.open(tmp_path / "ideas.db") as other:
        other.runs.create("open", kind="plan", caller="", title="", fingerprint="")
        epoch = other.leases.acquire("open", "driver", 1000, time.time())
        assert epoch is not None
        for number in range(30):
            journal(store, f"old {number}", started(f"tool {number}", task=f"{number}"))
            age(store.path, f"old {number}", 1)
        newest(store)
        found = store.prunable(before="2021-01-01")
        used: dict[str, list[JSONObject]] = {"open": []}

        def use_again(seconds: float) -> None:
            number = 30 - sum(map(len, used.values()))
            event = started(f"tool {number}", task=f"{number}")
            if number % 2:
                used["open"].append(event)
                other.runs.append("open", epoch, [event])
            elif number > 0:
                used[f"new {number}"] = [event]
                journal(other, f"new {number}", event)

        monkeypatch.setattr(pruning.time, "sleep", use_again)
        assert store.prune(found).runs == 30
        assert len(used) > 5
        assert {run: [event for _, event in store.runs.events(run)] for run in used} == used
        check_whole(store.path)


def test_a_journal_whose_contents_are_gone_is_damaged(store: Store) -> None:
    journal(store, "run", started("tool"))
    run_sql(store.path, "DELETE FROM contents WHERE body LIKE '%tool%'")
    with pytest.raises(StoreFormatError, match="refers to a message or schema that does not exist"):
        list(store.runs.events("run"))


def test_a_journal_of_an_earlier_version_is_read_beside_new_ones(store: Store) -> None:
    journal(store, "run", started("tool"))
    whole = json.dumps(started("tool"))
    run_sql(store.path, "UPDATE events SET body = ?, parts = NULL", (whole,))
    assert [event for _, event in store.runs.events("run")] == [started("tool")]
    assert rows(store.path, "SELECT event FROM journal") == [(whole,)]


@pytest.mark.parametrize("place", ["", "log"])
async def test_a_result_of_a_megabyte_is_stored_once(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "ideas.db")
    text = "†" + "0123456789abcdef" * 2**16
    toolbox = Toolbox()

    async def read_log() -> str:
        """Read the log."""
        return text

    toolbox.add(tool(name="read_log", read_only=True)(read_log))
    call: JSONObject = {"_tool": "read_log", **({"_outputPath": place} if place else {})}
    async with Bridge(Configuration(), store=path, toolbox=toolbox) as bridge:
        run = await bridge.run_plan({"calls": [call]})
        expected = {place: text} if place else {"results": {"0": text}}
        assert await run.result() == expected

    assert len(text) < in_use(path) < 1.5 * len(text)
    # Another process reads them again, from the run and from its idea.
    async with Bridge(Configuration(), store=path, toolbox=toolbox) as bridge:
        again = await bridge.run(run.id)
        assert again.given() == expected

    assert main(["ideas", "show", run.id, "--json", "--store", path]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == expected


@pytest.mark.parametrize(("mode", "tools"), [("plan", 2), ("solve", 2), ("solve", 26)])
async def test_a_run_of_five_small_calls_takes_about_three_kilobytes(
    mode: str, tools: int, tmp_path: Path
) -> None:
    """`benchmarks/ideas.py` measures 500 runs; here each table's last page weighs more."""
    path = str(tmp_path / "ideas.db")
    count = 100
    sizes: list[int] = []
    toolbox = Toolbox()
    for number in range(tools):

        async def look(number: int) -> int:
            """Look an issue up by its number, and return how many comments it has."""
            return number % 7

        toolbox.add(tool(name=f"look_{number}", description="x" * 800, read_only=True)(look))

    async with Bridge(Configuration(), store=path, toolbox=toolbox) as bridge:
        for turn in range(count + 1):
            calls: list[JSON] = [
                {"_tool": f"look_{n % 2}", "number": turn * 5 + n} for n in range(5)
            ]
            if mode == "plan":
                run = await bridge.run_plan({"calls": calls})
            else:
                run = await bridge.solve(
                    f"Is {turn} open?", tools=[f"look_{n}" for n in range(tools)], mind="turns"
                )
                run.submit(0, {"calls": calls, "output": "yes"})

            await run.result()
            if turn in (0, count):
                while bridge.store.ideas.index():
                    pass
                sizes.append(in_use(path))

    assert (sizes[1] - sizes[0]) / count < 3.3 * 1024
