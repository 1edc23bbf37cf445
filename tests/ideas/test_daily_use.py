"""How much a store was used, by day and by tool, in a file and in PostgreSQL."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from ideabridge.bridge.store.daily_use import DayOfUse, UsedTool
from ideabridge.bridge.store.direct_calls import DirectCall, DirectOutcome
from ideabridge.bridge.store.idea import Idea, IdeaMeta, NewPublication
from ideabridge.bridge.store.journal import RunSource
from ideabridge.bridge.store.run_filter import RunFilter
from ideabridge.bridge.store.run_record import StoredSummary
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.encoding import JSON

MONDAY = date(2026, 11, 23)
TUESDAY = date(2026, 11, 24)
WEDNESDAY = date(2026, 11, 25)


def at(day: date, hour: int = 12) -> float:
    return datetime(day.year, day.month, day.day, hour, tzinfo=UTC).timestamp()


def run(
    store: Store,
    name: str,
    day: date,
    status: str,
    caller: str = "ada",
    parent: str | None = None,
    errors: int = 0,
) -> None:
    store.runs.create(
        name,
        kind="plan",
        caller=caller,
        title=name,
        fingerprint="",
        parent=parent,
        source=RunSource(at(day)),
    )
    epoch = store.leases.acquire(name, "driver", 10, at(day))
    assert epoch is not None
    store.runs.set_status(name, epoch, status, StoredSummary(errors=errors))


def direct_call(
    day: date,
    tool: str,
    outcome: DirectOutcome = "ok",
    caller: str = "ada",
    hour: int = 12,
    module: str | None = None,
) -> DirectCall:
    return DirectCall(
        at(day, hour), caller, "", "", tool, module, tool, "", 0.1, outcome, None, 10, 10
    )


def calling(*tools: str) -> Idea:
    """An idea whose Solution calls some tools."""
    solution: JSON = {"calls": [{"_tool": tool} for tool in tools], "output": None}
    return Idea([], {"type": "object"}, solution)


@pytest.fixture
def used(store: Store) -> Store:
    run(store, "first", MONDAY, "done")
    run(store, "wrong", MONDAY, "done", errors=2)
    run(store, "room", MONDAY, "done", parent="first")
    run(store, "second", WEDNESDAY, "failed")
    run(store, "third", WEDNESDAY, "limit")
    run(store, "others", WEDNESDAY, "running", caller="bob")
    run(store, "before", date(2026, 11, 22), "done")

    store.direct_calls.add(
        [
            direct_call(date(2026, 11, 22), "list", hour=23),
            direct_call(TUESDAY, "list", hour=0),
            direct_call(TUESDAY, "list", "denied", hour=23),
            direct_call(WEDNESDAY, "write", "asked"),
            direct_call(WEDNESDAY, "write", "error", caller="bob"),
        ],
        at(WEDNESDAY),
    )

    for name, day, tools in (
        ("first", MONDAY, ("list", "read")),
        ("second", WEDNESDAY, ("read",)),
        ("others", WEDNESDAY, ("read", "write")),
    ):
        store.ideas.save(
            calling(*tools),
            IdeaMeta(
                run=name,
                step=1,
                mind="model",
                usage={"input_tokens": 100, "output_tokens": 7, "requests": 1},
                time=f"{day}T10:00:00.000+00:00",
                outcome="done",
            ),
        )

    store.ideas.index_all()
    return store


def test_the_use_of_each_day(used: Store) -> None:
    assert used.daily_use.days(MONDAY, WEDNESDAY, caller="ada") == [
        DayOfUse(MONDAY, runs=2, failed_runs=1, input_tokens=100, output_tokens=7),
        DayOfUse(TUESDAY, direct_calls=2),
        DayOfUse(
            WEDNESDAY, runs=2, failed_runs=2, direct_calls=1, input_tokens=100, output_tokens=7
        ),
    ]


def test_who_sees_all_sees_the_use_of_everybody(used: Store) -> None:
    (wednesday,) = used.daily_use.days(WEDNESDAY, WEDNESDAY, caller=SEES_ALL)
    assert wednesday == DayOfUse(
        WEDNESDAY,
        runs=3,
        failed_runs=2,
        direct_calls=2,
        failed_direct_calls=1,
        input_tokens=200,
        output_tokens=14,
    )
    assert wednesday.tokens == 214


def test_days_without_use_are_there(store: Store) -> None:
    days = store.daily_use.days(MONDAY, WEDNESDAY, caller=SEES_ALL)
    assert days == [DayOfUse(MONDAY), DayOfUse(TUESDAY), DayOfUse(WEDNESDAY)]
    assert store.daily_use.most_used(MONDAY, caller=SEES_ALL) == []


def test_the_tools_used_most(used: Store) -> None:
    most_used = used.daily_use.most_used
    # A direct call that was denied, or that waits for a decision, has not run.
    assert most_used(MONDAY, caller="ada") == [UsedTool("list", 2), UsedTool("read", 2)]
    assert most_used(WEDNESDAY, limit=2, caller=SEES_ALL) == [
        UsedTool("read", 2),
        UsedTool("write", 2),
    ]


def save(store: Store, run_name: str, *tools: str) -> str:
    """Save the idea of a run that called these tools; returns its id."""
    time = "2026-11-23T10:00:00.000+00:00"
    meta = IdeaMeta(run=run_name, step=1, time=time, outcome="done")
    return store.ideas.save(calling(*tools), meta)


def test_each_run_of_the_same_calls_is_a_use(store: Store) -> None:
    for name in ("first", "again", "once more"):
        run(store, name, MONDAY, "done")
        save(store, name, "list")
    store.ideas.index_all()
    assert store.daily_use.most_used(MONDAY, caller="ada") == [UsedTool("list", 3)]


def test_a_published_tool_is_used_by_its_runs(store: Store) -> None:
    for name, title, caller in (
        ("made from", "the largest order", "ada"),
        ("called", "largest_order", "ada"),
        ("by another", "largest_order", "bob"),
        ("not shared", "secret", "bob"),
    ):
        store.runs.create(
            name,
            kind="plan",
            caller=caller,
            title=title,
            fingerprint="",
            source=RunSource(at(MONDAY), client="Cursor 2.4"),
        )
        saved = save(store, name, "list")
    store.ideas.index_all()

    for tool, owner in (("largest_order", None), ("secret", "user:ada")):
        store.publications.publish(
            NewPublication(
                name=tool,
                idea_id=saved,
                description="d",
                answer="solve",
                input_schema=None,
                output_schema=None,
                annotations={},
                owner=owner,
            )
        )

    most_used = store.daily_use.most_used
    assert most_used(MONDAY, caller="ada") == [UsedTool("list", 2), UsedTool("largest_order", 1)]
    [by_cursor] = store.daily_use.tools_by_asker(MONDAY.isoformat(), caller="ada").values()
    assert set(by_cursor) == {UsedTool("list", 2), UsedTool("largest_order", 1)}
    # The title of a run does not tell whether someone else has a tool of this name.
    assert most_used(MONDAY, caller="bob") == [UsedTool("list", 2), UsedTool("largest_order", 1)]
    called = RunFilter(tool="largest_order")
    assert [one.id for one in store.runs.newest("ada", chosen=called)] == ["called"]


def calling_modules(store: Store, run_name: str, *modules: str) -> None:
    """Save an idea of a run, whose calls name these modules."""
    calls: list[JSON] = [{"_tool": "read", "_module": module} for module in modules]
    solution: JSON = {"calls": calls, "output": None}
    store.ideas.save(
        Idea([], {"type": "object"}, solution),
        IdeaMeta(run=run_name, step=1, time="2026-11-01T10:00:00.000+00:00", outcome="done"),
    )


def test_when_modules_were_used_last(store: Store) -> None:
    run(store, "first", MONDAY, "done")
    calling_modules(store, "first", "files", "mail")
    # This is the same idea again, so its row still names the first run.
    run(store, "again", TUESDAY, "done")
    calling_modules(store, "again", "files", "mail")
    run(store, "others", WEDNESDAY, "done", caller="bob")
    calling_modules(store, "others", "files")
    store.direct_calls.add(
        [
            direct_call(MONDAY, "read", module="mail"),
            direct_call(TUESDAY, "read", module="web", hour=9),
            direct_call(WEDNESDAY, "read", module="mail", hour=9),
            direct_call(WEDNESDAY, "pick"),
        ],
        at(WEDNESDAY),
    )
    store.ideas.index_all()

    used = store.daily_use.modules_used
    assert used(100, caller="ada") == {
        "files": at(TUESDAY),
        "mail": at(WEDNESDAY, 9),
        "web": at(TUESDAY, 9),
    }
    assert used(100, caller=SEES_ALL)["files"] == at(WEDNESDAY)
    assert used(100, caller="carol") == {}
    # Only the newest runs are examined.
    assert used(1, caller=SEES_ALL) == {"files": at(WEDNESDAY)}

    uses = store.daily_use.latest_uses
    assert len(uses("files", 5, 100, caller=SEES_ALL)) > len(uses("files", 5, 100, caller="ada"))
    assert len(uses("files", 1, 100, caller=SEES_ALL)) == 1
    assert uses("files", 5, 100, caller="carol") == []


def test_imported_calls_do_not_use_a_module(store: Store) -> None:
    store.runs.create(
        "imported",
        kind="session",
        caller="ada",
        title="",
        fingerprint="",
        source=RunSource(at(MONDAY)),
    )
    calling_modules(store, "imported", "files")
    store.ideas.index_all()
    assert store.daily_use.modules_used(100, caller="ada") == {}


def test_each_program_has_its_runs_and_their_tools(store: Store) -> None:
    for name, client, caller, tools in (
        ("first", "Cursor 2.4", "ada", ("list", "read")),
        ("same", "Cursor 2.4", "ada", ("list", "read")),
        ("other", "Codex 1.0", "ada", ("write",)),
        ("unnamed", "", "ada", ("write",)),
        ("bob's", "Codex 1.0", "bob", ("list",)),
    ):
        source = RunSource(at(MONDAY), client=client)
        store.runs.create(
            name, kind="plan", caller=caller, title=name, fingerprint="", source=source
        )
        save(store, name, *tools)
    store.ideas.index_all()

    since = MONDAY.isoformat()
    daily_use = store.daily_use
    assert daily_use.runs_by_asker(since, caller="ada") == {"Cursor 2.4": 2, "Codex 1.0": 1}
    assert daily_use.runs_by_asker(since, caller=SEES_ALL)["Codex 1.0"] == 2
    assert daily_use.runs_by_asker(TUESDAY.isoformat(), caller=SEES_ALL) == {}
    by_asker = daily_use.tools_by_asker(since, caller="ada")
    assert set(by_asker) == {"Cursor 2.4", "Codex 1.0"}
    assert set(by_asker["Cursor 2.4"]) == {UsedTool("list", 2), UsedTool("read", 2)}
    assert by_asker["Codex 1.0"] == [UsedTool("write", 1)]
