"""Finding ideas by what they call, when, how they ended and who answered; and what was
done over and over.
"""

import random
from datetime import UTC, datetime
from itertools import combinations, product
from typing import Any

import pytest

from ideabridge.bridge.store import ideas as table
from ideabridge.bridge.store.errors import FilterError
from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.ideas import IdeaFilter, past_time
from ideabridge.bridge.store.shapes import CallIndex, is_literal, shape_of
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.reading import Solution
from ideabridge.tools.typed import read_as
from tests.ideas.values import publish, said


def call(tool: str, **more: JSON) -> JSON:
    return {"_tool": tool, **more}


def saved(store: Store, text: str, *calls: JSON, meta: IdeaMeta | None = None) -> str:
    idea = Idea([said(text)], {"type": "object"}, {"calls": list(calls), "output": None})
    return store.ideas.save(idea, meta or IdeaMeta(title=text, outcome="done"))


def found(store: Store, words: str = "", **chosen: str) -> list[str]:
    return [
        hit.meta.title
        for hit in store.ideas.search(words, 20, IdeaFilter(**chosen), caller=SEES_ALL)
    ]


@pytest.fixture
def filled(store: Store) -> Store:
    """A store with ideas that differ in everything a filter looks at."""
    saved(
        store,
        "mail monday",
        call("send", _module="mail"),
        meta=IdeaMeta(title="monday", time="2026-01-05T08:00:00"),
    )
    meta = IdeaMeta(
        title="tuesday", outcome="failed", mind="turns", time="2026-01-06T08:00:00", tags=("odd",)
    )
    saved(store, "mail tuesday", call("send", _module="post"), meta=meta)
    for step, calls in ((1, [call("look")]), (2, [])):
        meta = IdeaMeta(
            run="r",
            step=step,
            title="steps",
            outcome="done" if step == 2 else "open",
            mind="model",
            time=f"2026-01-0{6 + step}T08:00:00",
        )
        saved(store, f"mail steps {step}", *calls, meta=meta)

    return store


@pytest.mark.parametrize(
    ("chosen", "titles"),
    [
        ({"tool": "send"}, ["tuesday", "monday"]),
        ({"module": "mail"}, ["monday"]),
        # The hit for a run is its last idea, whichever step made the call.
        ({"tool": "look"}, ["steps"]),
        ({"outcome": "failed"}, ["tuesday"]),
        ({"mind": "model"}, ["steps"]),
        ({"mind": ""}, ["monday"]),
        ({"since": "2026-01-06", "until": "2026-01-07"}, ["tuesday"]),
        ({"since": "2026-01-08"}, ["steps"]),
        ({"tag": "odd"}, ["tuesday"]),
        ({"tool": "send", "outcome": "failed", "mind": "turns"}, ["tuesday"]),
        ({"tool": "nothing"}, []),
        ({}, ["steps", "tuesday", "monday"]),
    ],
)
def test_filters_hold_together(filled: Store, chosen: dict[str, str], titles: list[str]) -> None:
    assert sorted(found(filled, "mail", **chosen)) == sorted(titles)
    if chosen:
        listed = [one.meta.title for one in filled.ideas.page(chosen=IdeaFilter(**chosen)).items]
        assert set(titles) == set(listed)
        assert set(found(filled, **chosen)) == set(titles)


def test_a_rare_one_is_found_below_many_that_fit_the_words_better(store: Store) -> None:
    for number in range(300):
        saved(store, f"mail mail mail {number}", call("send"))
    saved(store, "a mail among many other words that make it rank low", call("rare"))
    assert found(store, "mail", tool="rare") == [
        "a mail among many other words that make it rank low"
    ]
    assert len(found(store, "mail", tool="send")) == 20


def test_times_are_dates_times_or_ages() -> None:
    now = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
    assert past_time("2d", "since", now) == "2026-03-08T12:00:00.000+00:00"
    assert past_time("90m", "since", now) == "2026-03-10T10:30:00.000+00:00"
    assert past_time("2026-03-01T10:00+02:00", "since") == "2026-03-01T08:00:00.000+00:00"
    for wrong in ("yesterday", "", "3 years", "3y"):
        with pytest.raises(FilterError, match="since: expected a date"):
            past_time(wrong, "since", now)


def plan(text: str, number: int = 1, words: int = 2, **more: JSON) -> JSONObject:
    first: JSONObject = {
        "_tool": "look",
        "name": text,
        "count": number,
        "words": list[JSON](["a"] * words),
        "_outputPath": "a",
    }
    return {
        "calls": [first, {"_tool": "send", "text": "†state.a", **more}],
        "output": {"sent": True},
    }


def shape_in(solution: JSON) -> bytes | None:
    return shape_of(read_as(Solution, solution))


def test_a_shape_is_a_plan_without_its_literals() -> None:
    shape = shape_in(plan("x"))
    assert shape is not None
    assert shape == shape_in(plan("y", 2, 5))
    turned = plan("z")
    calls = turned["calls"]
    assert isinstance(calls, list)
    turned["calls"] = [dict(reversed(one.items())) for one in calls if isinstance(one, dict)]
    assert shape == shape_in(turned)
    for other in (
        plan("†state.x"),
        plan("x", _module="m"),
        plan("x", _outputPath="b"),
        plan("x", subject="s"),
    ):
        assert shape_in(other) != shape

    nothing: list[JSON] = [None, {}, {"calls": []}, {"calls": {}}, []]
    assert [shape_in(one) for one in nothing] == [None] * 5


def test_a_reference_to_the_input_stands_where_a_literal_would() -> None:
    shape = shape_in(plan("x"))
    for given in ("†input", "†input.x", '†input["odd || key"].x', "††input.x"):
        same = shape_in(plan(given)) == shape
        # Text that may contain an alternative is not examined.
        assert same is ("||" not in given)
        assert is_literal(given) is given.startswith("††")

    for read in ("†input.x || †state.a", "†state.input", "†inputs.x", "†①.input.x", "†item"):
        assert shape_in(plan(read)) != shape

    several: JSONObject = {
        "calls": [{"_tool": "look", "name": "†item", "_each": "†input.names"}],
        "output": "†input.x",
    }
    listed: JSONObject = {
        "calls": [{"_tool": "look", "name": "†item", "_each": ["a", "b"]}],
        "output": "x",
    }
    assert shape_in(several) == shape_in(listed)
    # A place that contains a reference is not one that the caller of a tool would have to fill in.
    assert not is_literal(["†input.x", "a"])
    assert is_literal(["a", 1])


def test_what_was_done_over_and_over_is_told_until_it_is_published(store: Store) -> None:
    def do(name: str, text: str, run: str) -> str:
        if name == "often":
            solution: JSON = plan(text)
        else:
            solution = {"calls": [call(name, text=text)]}
        meta = IdeaMeta(run=run, step=1, title=f"{name} {text}", outcome="done")
        return store.ideas.save(Idea([said(text)], {}, solution), meta)

    last = ""
    for number in range(5):
        last = do("often", f"text {number}", f"o{number}")
        do("seldom", f"text {number}", f"s{number % 2}") if number < 2 else None

    # Repeating exactly the same work counts every time.
    for number in range(4):
        do("same", "text", f"e{number}")

    failed = Idea([said("x")], {}, {"calls": [call("fails")]})
    for number in range(4):
        store.ideas.save(failed, IdeaMeta(run=f"f{number}", step=1, outcome="failed"))

    told = [(one.latest.meta.title, one.times) for one in store.ideas.repeated()]
    assert told == [("often text 4", 5), ("same text", 4)]
    assert [one.times for one in store.ideas.repeated(2, limit=3)] == [5, 4, 2]
    publish(store, "often", last)
    assert [one.times for one in store.ideas.repeated()] == [4]
    store.publications.unpublish("often")
    assert [one.times for one in store.ideas.repeated()] == [5, 4]


def test_a_plan_with_its_values_is_done_again_where_they_are_given_as_input(store: Store) -> None:
    saved_as = [
        store.ideas.save(
            Idea([said(given)], {}, plan(given)), IdeaMeta(run=given[-1:], step=1, outcome="done")
        )
        for given in ("one", "two", "†input.text")
    ]
    assert [one.times for one in store.ideas.repeated()] == [3]
    publish(store, "given", saved_as[-1])
    assert store.ideas.repeated() == []


def test_saving_takes_shapes_up_before_too_many_wait(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "LAG", 100)
    with store.transaction():
        for number in range(110):
            saved(store, f"text {number}", call("send", text=str(number)))
    assert store.ideas.repeated()[0].times == 110


def test_tags_are_given_taken_away_and_searched_for(filled: Store) -> None:
    monday = filled.ideas.search("monday", caller=SEES_ALL)[0].id
    assert filled.ideas.tag(monday, ["weekly", "good", "weekly"]) == ("weekly", "good")
    assert found(filled, tag="good") == ["monday"]
    assert filled.ideas.tag(monday, ["best"], ["good", "never"]) == ("weekly", "best")
    assert found(filled, tag="good") == []
    stored = filled.ideas.get(monday, caller=SEES_ALL)
    assert (stored.id, stored.meta.tags, stored.meta.title) == (
        monday,
        ("weekly", "best"),
        "monday",
    )
    for wrong in ("", "a b", "a,b", "x" * 65):
        with pytest.raises(FilterError, match="expected 1 to 64 characters"):
            filled.ideas.tag(monday, [wrong])


@pytest.mark.parametrize(
    ("few", "batch"), [(5000, 60), (0, 1), (0, 20), (12, 7), (25, 20), (5000, 1)]
)
def test_any_combination_lists_what_passes_newest_first_whichever_way_is_taken(
    store: Store, monkeypatch: pytest.MonkeyPatch, few: int, batch: int
) -> None:
    monkeypatch.setattr(table, "FEW_IDEAS", few)
    made: list[tuple[IdeaMeta, set[tuple[str, str]]]] = []
    source = random.Random(7)
    for number in range(60):
        calls = {
            (source.choice(["send", "look"]), source.choice(["", "mail"]))
            for _ in range(number % 3)
        }
        meta = IdeaMeta(
            run=f"r{number // 3}" if number % 4 else None,
            step=number if number % 4 else None,
            title=str(number),
            # Use times that are not in the order of saving, some of them equal.
            time=f"2026-01-{1 + source.randrange(12):02d}T08:00:00.000+00:00",
            outcome=source.choice(["done", "failed", ""]),
            mind=source.choice(["turns", ""]),
            tags=("odd",) if number % 2 else (),
        )
        saved(
            store,
            str(number),
            *(call(tool, **({"_module": at} if at else {})) for tool, at in calls),
            meta=meta,
        )
        made.append((meta, calls))
        # Some steps of a run are indexed together, and some later than others.
        if number % batch == batch - 1:
            store.ideas.index()

    by_run: dict[str | None, set[tuple[str, str]]] = {}
    for meta, calls in made:
        by_run.setdefault(meta.run, set()).update(calls)

    def passes(one: tuple[IdeaMeta, set[tuple[str, str]]], chosen: dict[str, str]) -> bool:
        meta, calls = one
        calls = calls if meta.run is None else by_run[meta.run]
        checks = {
            "tool": any(tool == chosen.get("tool") for tool, _ in calls),
            "module": any(at == chosen.get("module") for _, at in calls),
            "since": meta.time >= chosen.get("since", ""),
            "until": meta.time < chosen.get("until", "") + "T00:00:00.000+00:00",
            "outcome": meta.outcome == chosen.get("outcome"),
            "mind": meta.mind == chosen.get("mind"),
            "tag": chosen.get("tag") in meta.tags,
        }
        return all(checks[name] for name in chosen)

    parts = {
        "tool": "send",
        "module": "mail",
        "since": "2026-01-04",
        "until": "2026-01-10",
        "outcome": "failed",
    }
    parts |= {"mind": "turns", "tag": "odd"}
    every = [names for count in range(len(parts) + 1) for names in combinations(parts, count)]
    for names, run in product(every, (None, "r5")):
        chosen = {name: parts[name] for name in names}
        places = [
            (meta.time, place)
            for place, (meta, calls) in enumerate(made)
            if run in (None, meta.run) and passes((meta, calls), chosen)
        ]
        wanted = [made[place][0].title for _, place in sorted(places, reverse=True)]
        seen: list[str] = []
        after: str | None = None
        while True:
            page = store.ideas.page(4, after, run=run, chosen=IdeaFilter(**chosen))
            seen += [one.meta.title for one in page.items]
            after = page.next
            if after is None:
                break

        assert seen == wanted, (chosen, run)


def test_lists_are_by_time_in_whatever_order_ideas_are_saved(store: Store) -> None:
    source = random.Random(3)
    times = list[tuple[str, int]]()
    for number in range(500):
        # Many ideas have the same time.
        time = f"2026-01-{1 + source.randrange(20):02d}T08:00:00.000+00:00"
        saved(
            store,
            str(number),
            meta=IdeaMeta(title=str(number), time=time, outcome=f"o{number % 2}"),
        )
        times.append((time, number))

    for chosen, odd in ((None, {0, 1}), (IdeaFilter(outcome="o1"), {1})):
        seen: list[str] = []
        after: str | None = None
        while True:
            page = store.ideas.page(97, after, chosen=chosen)
            seen += [one.meta.title for one in page.items]
            after = page.next
            if after is None:
                break

        assert seen == [
            str(number) for _, number in sorted(times, reverse=True) if number % 2 in odd
        ]


def test_the_ideas_of_a_request_are_the_newest_first(store: Store) -> None:
    first = Idea([said("asked")], {}, {"calls": [], "output": 0})
    ids = [store.ideas.save(first, IdeaMeta())]
    for number in range(20):
        saved(store, str(number))
    ids.append(
        store.ideas.save(Idea(first.context, first.schema, {"calls": [], "output": 1}), IdeaMeta())
    )
    assert [one.id for one in store.ideas.of_request(first.request_id)] == ids[::-1]


def test_a_save_that_is_taken_back_takes_its_place_back(store: Store) -> None:
    def fail() -> None:
        with store.transaction():
            for number in range(20):
                saved(store, f"gone {number}")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    for number in range(20):
        saved(store, f"kept {number}", meta=IdeaMeta(title=str(number), outcome="done"))

    listed = store.ideas.page(1000, chosen=IdeaFilter(outcome="done")).items
    assert sorted(int(one.meta.title) for one in listed) == list(range(20))


def test_an_idea_whose_save_was_taken_back_says_nothing_of_where_tools_are(
    file_store: Store,
) -> None:
    def idea_at(module: str) -> Idea:
        branch: JSON = {"properties": {"_tool": {"const": "send"}, "_module": {"const": module}}}
        schema: JSON = {"properties": {"calls": {"items": branch}}}
        return Idea([said("mail")], schema, {"calls": [call("send")]})

    def fail() -> None:
        with file_store.transaction():
            file_store.ideas.save(idea_at("gone"), IdeaMeta())
            file_store.ideas.index()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    kept = file_store.ideas.save(idea_at("mail"), IdeaMeta())
    assert [one.id for one in file_store.ideas.page(chosen=IdeaFilter(module="mail")).items] == [
        kept
    ]
    assert file_store.ideas.page(chosen=IdeaFilter(module="gone")).items == []


def test_a_page_is_of_one_state_whatever_others_index_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        saved(store, str(number), meta=IdeaMeta(title=str(number), outcome="done", tags=("odd",)))
        if number == 9:
            store.ideas.index()

    count = CallIndex.count

    def disturbed(*given: Any) -> int:
        found = count(*given)
        other.ideas.index()
        other.ideas.tag(newest, remove=["odd"])
        return found

    newest = store.ideas.page(1).items[0].id
    with Store.open(store.path) as other:
        monkeypatch.setattr(CallIndex, "count", disturbed)
        page = store.ideas.page(15, chosen=IdeaFilter(tag="odd", outcome="done"))

    assert [one.meta.title for one in page.items] == [str(number) for number in range(19, 4, -1)]
