"""Old runs and ideas leave the store; what is needed stays whole, whatever others do meanwhile."""

import contextlib
import itertools
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.store import contents, pruning, search
from ideabridge.bridge.store import pruning as reach
from ideabridge.bridge.store.database import is_address
from ideabridge.bridge.store.errors import FilterError, UnknownIdeaError, UnknownRunError
from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.ideas import IdeaFilter
from ideabridge.bridge.store.run_record import StoredSummary
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.main import main
from ideabridge.tools.encoding import JSON, JSONObject
from tests import preloaded
from tests.ideas.test_processes import HEAD, check
from tests.ideas.values import idea_of, publish, said
from tests.postgres import check_server, run_sql

pytestmark = pytest.mark.anyio

LONG_AGO = "2020-01-01"
SOON = "2100-01-01"


def age(path: str, run: str, day: int) -> None:
    """Let a run have ended on a day of 2020."""
    at = f"2020-01-{day:02}T00:00:00.000+00:00"
    run_sql(path, "UPDATE runs SET created = ?1, updated = ?1 WHERE id = ?2", (at, run))


def end(store: Store, run: str, status: str = "done") -> None:
    """Let a run end, after three events."""
    epoch = store.leases.acquire(run, "driver", 10, time.time())
    assert epoch is not None
    store.runs.append(run, epoch, [{"n": number, "run": run} for number in range(3)])
    store.runs.set_status(run, epoch, status, StoredSummary())
    store.leases.release(run, epoch)


def append(store: Store, run: str, event: JSONObject) -> None:
    """Journal one more event of a run."""
    epoch = store.leases.acquire(run, "driver", 10, time.time())
    assert epoch is not None
    store.runs.append(run, epoch, [event])
    store.leases.release(run, epoch)


def old_run(
    store: Store, run: str, *ideas: Idea, status: str = "done", parent: str | None = None
) -> list[str]:
    """A run of 2020 that saved ideas; returns their ids."""
    saved = ended_run(store, run, *ideas, status=status, parent=parent)
    age(store.path, run, 1)
    return saved


def ended_run(
    store: Store, run: str, *ideas: Idea, status: str = "done", parent: str | None = None
) -> list[str]:
    """A run of today that saved ideas; returns their ids."""
    store.runs.create(run, kind="plan", caller="", title=run, fingerprint="", parent=parent)
    saved = [
        store.ideas.save(idea, IdeaMeta(run=run, step=step)) for step, idea in enumerate(ideas, 1)
    ]
    end(store, run, status)
    return saved


def age_all(store: Store) -> None:
    """Let all runs have ended in 2020. For each by itself, a connection would be opened."""
    at = "2020-01-01T00:00:00.000+00:00"
    run_sql(store.path, "UPDATE runs SET created = ?1, updated = ?1", (at,))


def newest(store: Store) -> str:
    """A run and an idea of today: the newest are never pruned."""
    store.runs.create("newest", kind="plan", caller="", title="", fingerprint="")
    idea = store.ideas.save(idea_of("newest"), IdeaMeta(run="newest", step=1))
    end(store, "newest")
    return idea


def kept(store: Store) -> set[str]:
    """The ids of all runs there are."""
    return {one.id for one in store.runs.newest(limit=1000, caller=SEES_ALL)}


USES = "SELECT what, time, idea FROM idea_uses ORDER BY 1, 2, 3"

HAVING = """
WITH placed AS (SELECT number AS idea, run, time FROM ideas WHERE number <= (
    SELECT coalesce(max(value), 0) FROM counters WHERE key = 'indexed')),
called AS (SELECT idea, 'tool:' || tool AS use FROM idea_calls UNION
    SELECT idea, 'module:' || module FROM idea_calls WHERE module <> '')
SELECT use, placed.time, placed.idea FROM placed JOIN called ON called.idea = placed.idea UNION
SELECT use, placed.time, placed.idea FROM placed JOIN placed AS other ON other.run = placed.run
    JOIN called ON called.idea = other.idea UNION
SELECT 'tag:' || tag.value, ideas.time, number FROM ideas JOIN json_each(meta, '$.tags') AS tag ORDER BY 1, 2, 3
"""
"""What ideas must be listed by: what any step of their run calls, and their own tags."""


def check_whole(path: str) -> None:
    """No row refers to one that is gone, and none is left of what is gone."""
    if is_address(path):
        check_server(path)
        return

    check(Path(path))
    with closing(sqlite3.connect(path)) as connection:
        lost = "SELECT count(*) FROM events WHERE id >> 32 NOT IN (SELECT number FROM runs)"
        assert connection.execute(lost).fetchone() == (0,)
        assert connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE name LIKE '%_new'"
        ).fetchone() == (0,)
        lost = "SELECT count(*) FROM content_keys WHERE number NOT IN (SELECT number FROM contents)"
        assert connection.execute(lost).fetchone() == (0,)
        lost = """
            SELECT count(*) FROM events JOIN json_tree(events.parts) AS part ON part.type = 'integer'
            WHERE abs(part.value) NOT IN (SELECT number FROM contents)"""
        assert connection.execute(lost).fetchone() == (0,)
        lost = (
            "SELECT count(*) FROM ideas WHERE solved IS NOT NULL AND solved NOT IN "
            "(SELECT number FROM contents)"
        )
        assert connection.execute(lost).fetchone() == (0,)
        assert connection.execute(USES).fetchall() == connection.execute(HAVING).fetchall()
        told = (
            "SELECT count(*) FROM idea_messages",
            "SELECT coalesce(sum(json_array_length(context)), 0) FROM ideas",
        )
        assert connection.execute(told[0]).fetchone() == connection.execute(told[1]).fetchone()


@dataclass
class Made:
    """One run of a random store."""

    ideas: list[int]
    day: int
    status: str
    parent: int | None
    fork: int | None


RUNS = st.lists(
    st.builds(
        Made,
        st.lists(st.integers(0, 12), max_size=4),
        st.integers(1, 28),
        st.sampled_from(["done", "done", "done", "failed", "needs_solution", "running"]),
        st.none() | st.integers(0, 9),
        st.none() | st.none() | st.integers(0, 9),
    ),
    min_size=1,
    max_size=10,
)


def family_of(runs: list[Made], one: int) -> set[int]:
    """The runs that stay or go with one."""
    links = [
        (n, other)
        for n, made in enumerate(runs)
        for other in (made.parent, made.fork)
        if other is not None
    ]
    found = {one}
    while True:
        more = (
            found
            | {a for a, b in links if b in found}
            | {b for a, b in links if a in found and b < a}
        )
        if more == found:
            return found
        found = more


@settings(deadline=None, max_examples=60)
@given(
    runs=RUNS,
    tagged=st.sets(st.integers(0, 12)),
    published=st.sets(st.integers(0, 12)),
    day=st.integers(1, 29),
)
def test_what_is_kept_is_whole_and_what_may_go_is_gone(
    tmp_path_factory: pytest.TempPathFactory,
    runs: list[Made],
    tagged: set[int],
    published: set[int],
    day: int,
) -> None:
    for n, made in enumerate(runs):
        if made.parent is None or made.parent >= n:
            made.parent = None
        else:
            made.parent = made.parent
        if made.fork is None or made.fork >= n or made.parent is not None:
            made.fork = None
        else:
            made.fork = made.fork

    path = tmp_path_factory.mktemp("store") / "ideas.db"
    ideas = {n: idea_of(f"word{n}", f"output {n % 3}") for n in range(13)}
    for n, idea in ideas.items():
        calls: list[JSON] = [{"_tool": f"tool{one}", "_module": "m"} for one in range(n % 4)]
        ideas[n] = Idea(idea.context, idea.schema, {"calls": calls, "output": f"output {n % 3}"})

    with Store.open(path) as store:
        begun: dict[str, JSONObject] = {}
        for n, made in enumerate(runs):
            parent = None if made.parent is None else f"r{made.parent}"
            ended_run(
                store,
                f"r{n}",
                *(ideas[one] for one in made.ideas),
                status=made.status,
                parent=parent,
            )
            # This journal shares its tools and messages with others, and refers to contents of
            # ideas.
            listed: list[JSON] = [
                {"name": f"tool {one}", "description": "x" * 200} for one in made.ideas
            ]
            begun[f"r{n}"] = {
                "event": "run_started",
                "context": [said(f"word{n}")],
                "tools": listed,
            }
            append(store, f"r{n}", begun[f"r{n}"])
            if made.fork is not None:
                run_sql(
                    str(path),
                    "UPDATE runs SET forked_from = ? WHERE id = ?",
                    (f"r{made.fork}", f"r{n}"),
                )

            age(store.path, f"r{n}", made.day)

        saved = {one for made in runs for one in made.ideas}
        for one in tagged & saved:
            store.ideas.tag(ideas[one].id, ["kept"])

        for one in published & saved:
            publish(store, f"name{one}", ideas[one].id)

        last = newest(store)
        if day % 2:
            while store.ideas.index():
                pass

        before = {run: [one.id for one in store.ideas.of_run(run)] for run in kept(store)}
        found = store.prunable(before=f"2020-01-{day:02}")
        pruned = store.prune(found)
        assert (pruned.runs, pruned.ideas) == (found.runs, found.ideas)

        left = kept(store)
        for n in range(len(runs)):
            family = family_of(runs, n)
            needed = any(runs[one].status in ("needs_solution", "running") for one in family)
            young = any(runs[one].day >= day for one in family)
            held = any(set(runs[one].ideas) & (tagged | published) for one in family)
            if needed or young:
                assert f"r{n}" in left
            elif not held:
                assert f"r{n}" not in left

            # A family is always deleted or kept as a whole.
            assert {f"r{one}" in left for one in family} == {f"r{n}" in left}

        for run in left:
            assert [one.id for one in store.ideas.of_run(run)] == before[run]
            assert [event for _, event in store.runs.events(run)][3:] == (
                [begun[run]] if run in begun else []
            )

        everything = {one.id for one in store.ideas.page(100).items}
        expected = {last} | {one for run in left for one in before[run]}
        assert everything == expected
        for one in saved:
            if one in tagged | published:
                assert ideas[one].id in everything
                assert any(run in left for run, had in before.items() if ideas[one].id in had)

            hits = [
                hit
                for hit in store.ideas.search(f"word{one}", 100, caller=SEES_ALL)
                if ideas[one].id in before[hit.meta.run or ""]
            ]
            assert bool(hits) == (ideas[one].id in everything)
            if ideas[one].id in everything:
                assert store.ideas.get(ideas[one].id, caller=SEES_ALL).idea == ideas[one]
                assert set(store.ideas.runs_of(ideas[one].id)) <= left

        assert store.prunable(before=f"2020-01-{day:02}").runs == 0

    check_whole(str(path))


def test_an_idea_of_a_pruned_run_moves_to_another_it_occurred_in(store: Store) -> None:
    shared = idea_of("shared")
    own = idea_of("own")
    old_run(store, "first", shared, own)
    store.ideas.tag(shared.id, ["mine"])
    store.runs.create("second", kind="plan", caller="", title="", fingerprint="")
    store.ideas.save(shared, IdeaMeta(run="second", step=7, title="again"))
    end(store, "second")
    newest(store)
    assert store.prune(store.prunable(before="2021-01-01")).runs == 1
    assert store.ideas.runs_of(shared.id) == ["second"]
    meta = store.ideas.get(shared.id, caller=SEES_ALL).meta
    assert (meta.run, meta.step, meta.title, meta.tags) == ("second", 7, "again", ("mine",))
    with pytest.raises(UnknownIdeaError):
        store.ideas.get(own.id, caller=SEES_ALL)

    assert [hit.id for hit in store.ideas.search("own", caller=SEES_ALL)] == []
    with pytest.raises(UnknownRunError):
        store.leases.acquire("first", "late", 10, time.time())


def test_an_idea_saved_without_a_run_does_not_go_with_a_run_that_made_it_too(store: Store) -> None:
    young, tagged, published, old = (
        idea_of(text) for text in ("young", "tagged", "published", "old")
    )
    store.ideas.save(young, IdeaMeta())
    for idea in (tagged, published, old):
        store.ideas.save(idea, IdeaMeta(time="2020-01-01T00:00:00.000+00:00"))

    store.ideas.tag(tagged.id, ["mine"])
    publish(store, "published", published.id)
    for step, idea in enumerate((tagged, published, old), 1):
        # An import whose run is in another store saves ideas like this.
        store.ideas.save(
            idea, IdeaMeta(run="elsewhere", step=step, time="2020-01-01T00:00:00.000+00:00")
        )

    old_run(store, "here", young, old)
    newest(store)
    pruned = store.prune(store.prunable(before="2021-01-01"))
    assert (pruned.runs, pruned.ideas) == (1, 1)
    assert [
        store.ideas.get(one.id, caller=SEES_ALL).meta.run for one in (young, tagged, published)
    ] == [None] * 3
    assert [store.ideas.runs_of(one.id) for one in (young, tagged, published)] == [[], [], []]
    with pytest.raises(UnknownIdeaError):
        store.ideas.get(old.id, caller=SEES_ALL)

    assert store.prunable(before="2021-01-01").ideas == 0
    check_whole(store.path)


def test_a_message_that_reads_as_a_list_of_messages_takes_none_of_them_away(store: Store) -> None:
    # The schema and this message have the first two rows, and the messages of the long context have
    # the rows after them.
    stretches, _ = contents.stretches_of(list(range(3, 203)))
    hostile = Idea([list[JSON](stretches[0])], {}, 1)
    long = Idea([said(f"part {number}") for number in range(200)], {}, 2)
    for idea in (hostile, long, idea_of("newest")):
        store.ideas.save(idea, IdeaMeta())

    assert store.prune(store.prunable(before="2021-01-01")).contents == 0
    assert [store.ideas.get(one.id, caller=SEES_ALL).idea for one in (hostile, long)] == [
        hostile,
        long,
    ]


def test_what_is_kept_beside_a_run_goes_with_it(store: Store) -> None:
    newest(store)
    for run in ("gone", "other"):
        old_run(store, run, idea_of(run))

    age(store.path, "other", 20)
    for key in ("save_as.gone", "sampled.gone", "sampled.other", "request_state_key"):
        store.settings.set(key, b"{}")

    store.prune(store.prunable(before="2020-01-10"))
    assert kept(store) == {"newest", "other"}
    left = [
        key
        for key in ("save_as.gone", "sampled.gone", "sampled.other", "request_state_key")
        if store.settings.get(key)
    ]
    assert left == ["sampled.other", "request_state_key"]


def test_ideas_without_a_run_are_pruned_by_when_they_were_saved(store: Store) -> None:
    store.ideas.save(idea_of("old"), IdeaMeta(time="2020-05-01T00:00:00.000+00:00"))
    store.ideas.save(
        idea_of("elsewhere"), IdeaMeta(time="2020-05-01T00:00:00.000+00:00", run="far")
    )
    young = store.ideas.save(idea_of("young"), IdeaMeta())
    last = newest(store)
    found = store.prunable(before="2021-01-01")
    assert (found.runs, found.ideas, found.oldest) == (0, 2, "2020-05-01T00:00:00.000+00:00")
    store.prune(found)
    assert {one.id for one in store.ideas.page().items} == {young, last}
    with pytest.raises(FilterError, match="before: expected a date"):
        store.prunable(before="someday")


def test_what_would_go_is_counted_and_the_file_gets_smaller(file_store: Store) -> None:
    for number in range(60):
        # These texts have no pieces in common.
        text = random.Random(number).randbytes(10_000).hex()
        old_run(file_store, f"run{number:02}", idea_of(text))
        age(file_store.path, f"run{number:02}", 1 + number // 3)

    newest(file_store)
    found = file_store.prunable(before="2020-01-11")
    pruned = file_store.prune(found)
    assert (found.runs, found.ideas) == (pruned.runs, pruned.ideas) == (30, 30)
    assert pruned.before == found.used
    assert found.used * 0.4 < pruned.after < found.used * 0.6
    assert sorted(kept(file_store) - {"newest"}) == [f"run{number:02}" for number in range(30, 60)]
    assert file_store.vacuum()[1] <= pruned.after


def test_what_is_needed_by_the_time_it_would_go_stays(store: Store) -> None:
    for number in range(8):
        old_run(store, f"r{number}", idea_of(f"idea {number}"))

    newest(store)
    found = store.prunable(before=SOON)
    assert found.runs == 8
    with Store.open(store.path) as other:
        other.ideas.tag("r0", ["mine"])
        publish(other, "mine", other.ideas.get("r1", caller=SEES_ALL).id)
        # These runs have been resumed, have answered a call of another run, have been forked, and
        # have a new idea.
        assert other.leases.acquire("r2", "driver", 1000, time.time()) is not None
        other.runs.create("room", kind="solve", caller="", title="", fingerprint="", parent="r3")
        parent = other.runs.get("r4")
        assert parent is not None
        other.runs.create_fork("fork", [{"event": 1}], parent=parent, at=1, fingerprint="")
        other.ideas.save(idea_of("more"), IdeaMeta(run="r5", step=2))
        # The same idea has been made again by another run.
        other.runs.create("again", kind="plan", caller="", title="", fingerprint="")
        other.ideas.save(idea_of("idea 6"), IdeaMeta(run="again", step=1))

    assert store.prune(found).runs == 2
    assert kept(store) == {"r0", "r1", "r2", "r3", "room", "r4", "fork", "r5", "again", "newest"}
    assert store.ideas.runs_of(idea_of("idea 6").id) == ["again"]
    check_whole(store.path)


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What is done between the transactions of a pruning."""
    work: list[Callable[[], object]] = []

    def breathe(_: float) -> None:
        for one in work:
            one()

    monkeypatch.setattr("ideabridge.bridge.store.pruning.time.sleep", breathe)
    return work


def test_others_save_and_search_between_all_its_transactions(
    store: Store, between: list[Callable[[], object]]
) -> None:
    long = [said(f"part {number}") for number in range(200)]
    for number in range(100):
        ended_run(
            store,
            f"r{number}",
            Idea([*long, said(f"old {number}")], {"type": "object"}, {"calls": []}),
        )

    age_all(store)
    saved: list[Idea] = []
    with Store.open(store.path) as other:
        # This process remembers the rows of all messages, which are about to be deleted.
        mine = Idea([*long, said("mine")], {"type": "object"}, {"calls": []})
        other.ideas.save(mine, IdeaMeta(time="2020-01-01T00:00:00.000+00:00"))
        newest(store)
        for hit in other.ideas.search("old", 100, caller=SEES_ALL):
            assert hit.id

        def disturb() -> None:
            place = len(saved)
            saved.append(
                Idea([*long[place % 50 :], said(f"new{place}")], {"type": "object", "n": place}, {})
            )
            other.ideas.save(saved[-1], IdeaMeta())
            assert len(other.ideas.search(f"new{place}", caller=SEES_ALL)) == 1
            assert all(
                other.ideas.get(hit.id, caller=SEES_ALL).idea.context
                for hit in other.ideas.search("old part", caller=SEES_ALL)
            )

        between.append(disturb)
        store.prune(store.prunable(before="2021-01-01"))
        assert len(saved) > 5
        for one in saved:
            assert other.ideas.get(one.id, caller=SEES_ALL).idea == one
            assert store.ideas.get(one.id, caller=SEES_ALL).idea == one

        assert [hit for hit in other.ideas.search("old", caller=SEES_ALL) if hit.meta.run] == []

    if is_address(store.path):
        check_server(store.path)
    else:
        check(Path(store.path))


@pytest.mark.parametrize("cut_off", [0, 1, 4, 9])
def test_two_prunings_at_once_leave_the_store_whole(
    tmp_path: Path,
    between: list[Callable[[], object]],
    monkeypatch: pytest.MonkeyPatch,
    cut_off: int,
) -> None:
    monkeypatch.setattr(search, "BATCH", 4)
    monkeypatch.setattr(pruning, "_TOGETHER", 5)
    monkeypatch.setattr(reach, "_DELETED", 5)
    for place in itertools.count(0):
        path = tmp_path / f"{place}.db"
        with Store.open(path) as one, Store.open(path) as other:
            for number in range(12):
                ended_run(one, f"r{number}", idea_of(f"old {number}", number))
                one.ideas.save(idea_of(f"kept {number}", number), IdeaMeta(title=f"kept {number}"))

            age_all(one)
            newest(one)
            assert len(one.ideas.search("old", 100, caller=SEES_ALL)) == 12
            count = itertools.count(0)

            def meanwhile(
                place: int = place, other: Store = other, count: Iterator[int] = count
            ) -> None:
                now = next(count)
                if now == place:
                    with contextlib.suppress(KeyboardInterrupt):
                        other.prune(other.prunable(before="2021-01-01"))
                elif cut_off and now == place + cut_off:
                    # The other process ends after this many of its transactions.
                    raise KeyboardInterrupt

            between[:] = [meanwhile]
            with contextlib.suppress(KeyboardInterrupt):
                one.prune(one.prunable(before="2021-01-01"))

            between.clear()
            one.prune(one.prunable(before="2021-01-01"))
            for store in (one, other):
                assert store.ideas.search("old", 100, caller=SEES_ALL) == []
                assert len(store.ideas.search("kept", 100, caller=SEES_ALL)) == 12

        check_whole(str(path))
        if next(count) <= place:
            # The pruning paused less often than that.
            assert place > 8
            break


def test_a_process_that_remembers_rows_saves_them_again(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    body = """
store = Store.open(sys.argv[1])
shared = [{"role": "user", "content": f"shared {n}"} for n in range(100)]
store.ideas.save(Idea(shared, {"shared": 1}, 1), IdeaMeta(time="2020-01-01"))
store.ideas.save(idea_of("other"), IdeaMeta())
print("saved", flush=True)
sys.stdin.readline()
print(store.ideas.save(Idea(shared, {"shared": 1}, 2), IdeaMeta()), flush=True)
print(len(store.ideas.get(store.ideas.page(1).items[0].id, caller=SEES_ALL).idea.context), flush=True)
"""
    code = f"{HEAD}\n{body}"
    words = [sys.executable, "-c", code, str(path)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "saved\n"
    with Store.open(path) as store:
        pruned = store.prune(store.prunable(before="2021-01-01"))
        assert pruned.ideas == 1
        # These are the messages, the schema and the lists of messages.
        assert pruned.contents > 100
        idea, count = process.communicate("go\n")[0].split()
        assert (process.returncode, count) == (0, "100")
        assert store.ideas.get(idea, caller=SEES_ALL).idea.context == [
            said(f"shared {n}") for n in range(100)
        ]

    check(path)


KILLED = """
import os, signal
import ideabridge.bridge.store.pruning as pruning
left = [int(sys.argv[2])]
def breathe(_):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
pruning.time.sleep = breathe
store = Store.open(sys.argv[1])
store.prune(store.prunable(before="2021-01-01"))
print("done")
"""


@pytest.fixture(scope="module")
def full_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 100 old runs and 20 young ones, for tests that copy it."""
    path = tmp_path_factory.mktemp("full") / "ideas.db"
    with Store.open(path) as store:
        for number in range(100):
            ideas = [
                Idea([said(f"m{number} {step} {n}") for n in range(8)], {}, step)
                for step in range(2)
            ]
            ended_run(store, f"r{number}", *ideas)

        age_all(store)
        for number in range(20):
            store.runs.create(f"young{number}", kind="plan", caller="", title="", fingerprint="")
            store.ideas.save(idea_of(f"young {number}"), IdeaMeta(run=f"young{number}", step=1))
            end(store, f"young{number}")
        assert len(store.ideas.search("young", 100, caller=SEES_ALL)) == 20

    return path


@pytest.mark.parametrize("place", [1, 2, 4, 5, 6, 7, 8])
def test_a_pruning_that_is_killed_leaves_the_store_whole(
    tmp_path: Path, full_store: Path, place: int
) -> None:
    path = tmp_path / "ideas.db"
    shutil.copy(full_store, path)
    script = tmp_path / "prune.py"
    script.write_text(f"{HEAD}\n{KILLED}", encoding="utf-8")
    words = preloaded.python(script, str(path), str(place))
    killed = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (killed.returncode, killed.stdout) == (-9, "")
    check(path)
    with Store.open(path) as store:
        left = kept(store)
        for run in left:
            assert len(list(store.runs.events(run))) == 3
            assert [
                store.ideas.get(one.id, caller=SEES_ALL).idea.context
                for one in store.ideas.of_run(run)
            ]

        assert {hit.meta.run for hit in store.ideas.search("young", 100, caller=SEES_ALL)} == {
            f"young{n}" for n in range(20)
        }
        assert len({one.id for one in store.ideas.page(1000).items}) == 20 + 2 * (len(left) - 20)
        # The next pruning continues with what was left behind, although nothing refers to it any
        # more.
        store.prune(store.prunable(before="2021-01-01"))
        assert kept(store) == {f"young{n}" for n in range(20)}
        connection = sqlite3.connect(path)
        assert connection.execute("SELECT count(*) FROM contents").fetchone() == (21,)
        connection.close()
        assert store.ideas.search("m7", caller=SEES_ALL) == []

    check_whole(str(path))


async def test_what_is_published_answers_and_can_be_lifted_again_after_a_pruning(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ideas.db"
    calls: list[JSON] = [{"_tool": "count", "items": "†input.text", "_outputPath": "n"}]
    async with Bridge(Configuration(), store=path) as bridge:
        runs: list[str] = []
        for text in ("a", "bb", "ccc"):
            run = await bridge.run_plan(Plan(calls, input={"text": text}, output="†state.n"))
            assert await run.result() == len(text)
            runs.append(run.id)

        await bridge.publish(runs[1], "letters")
        newest(bridge.store)

    for run in runs:
        age(str(path), run, 1)

    async with Bridge(Configuration(), store=path) as bridge:
        found = bridge.store.prunable(before="2021-01-01")
        assert found.kept == {"published": 1}
        bridge.store.prune(found)
        assert kept(bridge.store) == {runs[1], "newest"}
        replay = await bridge.start_idea("letters", {"text": "dddd"})
        assert replay.run is not None
        assert await replay.run.result() == 4
        assert (await bridge.publish("letters", "letters")).version == 2
        assert (await bridge.run(runs[1])).given() == 2
        with pytest.raises(UnknownRunError):
            await bridge.run(runs[0])


def test_the_command_line_shows_asks_and_prunes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.sqlite"
    with Store.open(path) as store:
        old_run(store, "gone", idea_of("gone"))
        old_run(store, "tagged", idea_of("tagged"))
        store.ideas.tag("tagged", ["mine"])
        newest(store)

    words = ["--store", str(path), "--project", str(tmp_path)]
    assert main(["ideas", "prune", *words]) == 2
    assert "--older-than" in capsys.readouterr().err
    assert main(["ideas", "prune", "--older-than", "90d", "--dry-run", *words]) == 0
    told = capsys.readouterr().err
    assert "1 run" in told
    assert "tagged: 1" in told
    # There is nobody here who could be asked.
    assert main(["ideas", "prune", "--older-than", "90d", *words]) == 2
    assert "--yes" in capsys.readouterr().err
    assert main(["ideas", "prune", "--older-than", "2019-01-01", "--yes", *words]) == 0
    assert "nothing" in capsys.readouterr().err
    assert main(["ideas", "prune", "--older-than", "90d", "--yes", "--json", *words]) == 0
    assert '"runs": 1' in capsys.readouterr().out
    with Store.open(path) as store:
        assert kept(store) == {"tagged", "newest"}


def test_an_idea_that_moves_to_another_run_is_listed_as_it_is_there(store: Store) -> None:
    (idea,) = old_run(store, "old", idea_of("both"))
    while store.ideas.index():
        pass

    store.runs.create("later", kind="plan", caller="", title="", fingerprint="")
    store.ideas.save(idea_of("both"), IdeaMeta(run="later", step=1, outcome="failed", mind="model"))
    end(store, "later")
    newest(store)
    assert store.prune(store.prunable(before="2021-01-01")).runs == 1
    assert [
        one.id for one in store.ideas.page(chosen=IdeaFilter(outcome="failed", mind="model")).items
    ] == [idea]
    assert store.ideas.page(chosen=IdeaFilter(outcome="done", until="2021-01-01")).items == []
    assert [one.id for one in store.ideas.page(run="later").items] == [idea]
    check_whole(store.path)


@pytest.mark.parametrize("indexed", [True, False])
def test_a_step_that_another_run_made_too_has_the_tools_of_that_run(
    store: Store, indexed: bool
) -> None:
    def calling(tool: str) -> Idea:
        return Idea(
            [said(tool)], {}, {"calls": [{"_tool": tool, "_module": "here"}], "output": None}
        )

    looks = calling("look")
    sends = calling("send")
    old_run(store, "gone", looks, calling("gone"))
    old_run(store, "kept", sends, looks)
    store.ideas.tag(sends.id, ["good"])
    newest(store)
    while indexed and store.ideas.index():
        pass

    store.prune(store.prunable(before="2021-01-01"))
    for chosen in (IdeaFilter(tool="look"), IdeaFilter(tool="send"), IdeaFilter(module="here")):
        assert {one.id for one in store.ideas.page(chosen=chosen).items} == {looks.id, sends.id}

    assert store.ideas.page(chosen=IdeaFilter(tool="gone")).items == []
    assert [one.id for one in store.ideas.page(chosen=IdeaFilter(tag="good")).items] == [sends.id]
    check_whole(store.path)
