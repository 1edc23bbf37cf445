"""The store: references to ideas, lists, search."""

import itertools
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge.store.errors import AmbiguousIdeaError, CursorError, UnknownIdeaError
from ideabridge.bridge.store.idea import IdeaMeta
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from tests.ideas.values import idea_of, publish


def test_an_idea_is_found_by_every_kind_of_reference(store: Store) -> None:
    first = idea_of("first")
    last = idea_of("last")
    store.ideas.save(first, IdeaMeta(run="run-1", step=1))
    store.ideas.save(last, IdeaMeta(run="run-1", step=2, outcome="done"))
    publish(store, "report", first.id)
    publish(store, "report", last.id)
    for ref in (last.id, last.id[:6], last.id[:17], "report", "report@2", "run-1"):
        assert store.ideas.get(ref, caller=SEES_ALL).id == last.id, ref

    assert store.ideas.get("report@1", caller=SEES_ALL).id == first.id
    assert store.ideas.get("run-1", caller=SEES_ALL).meta.outcome == "done"


def test_unknown_and_ambiguous_references_say_what_was_expected(store: Store) -> None:
    publish(store, "weekly_report", store.ideas.save(idea_of("x"), IdeaMeta()))
    with pytest.raises(UnknownIdeaError, match="nearest names: weekly_report"):
        store.ideas.get("weekly_reprot", caller=SEES_ALL)

    for ref in (
        "",
        "abc",
        "weekly_report@9",
        "weekly_report@x",
        "weekly_report@",
        "f" * 64,
        "F" * 64,
        "a\0b",
    ):
        with pytest.raises(UnknownIdeaError):
            store.ideas.get(ref, caller=SEES_ALL)

    with pytest.raises(AmbiguousIdeaError, match="write more digits"):
        store.ideas.get(shared_prefix(store), caller=SEES_ALL)


def shared_prefix(store: Store) -> str:
    """Save ideas until two share their first 6 hex digits: some thousands."""
    seen: set[str] = set()
    with store.transaction():
        for number in itertools.count():
            prefix = store.ideas.save(idea_of(str(number)), IdeaMeta())[:6]
            if prefix in seen:
                return prefix
            seen.add(prefix)

    raise AssertionError


def test_a_second_save_is_another_occurrence(store: Store) -> None:
    idea = idea_of("x")
    store.ideas.save(idea, IdeaMeta(run="a", step=1, title="first"))
    for run in ("a", "b", "b"):
        assert store.ideas.save(idea, IdeaMeta(run=run, step=1, title="again")) == idea.id

    assert store.ideas.get(idea.id, caller=SEES_ALL).meta.title == "first"
    assert [record.meta.title for record in store.ideas.of_run("a")] == ["first"]
    assert [record.meta.title for record in store.ideas.of_run("b")] == ["again"]
    assert store.ideas.get("b", caller=SEES_ALL).id == idea.id
    assert len(store.ideas.page().items) == 1
    assert store.ideas.of_run("no such run") == []


def test_ideas_of_a_request_newest_first(store: Store) -> None:
    ideas = [idea_of("x", output) for output in (1, 2)]
    for idea in ideas:
        store.ideas.save(idea, IdeaMeta())
    found = store.ideas.of_request(ideas[0].request_id)
    assert [stored.id for stored in found] == [ideas[1].id, ideas[0].id]
    assert store.ideas.of_request("0" * 64) == store.ideas.of_request("x") == []


def test_pages_hold_every_idea_once(store: Store) -> None:
    saved = [
        store.ideas.save(idea_of(str(n)), IdeaMeta(run=f"r{n % 2}", step=n)) for n in range(25)
    ]
    seen: list[str] = []
    after = None
    while True:
        page = store.ideas.page(4, after)
        seen += [record.id for record in page.items]
        after = page.next
        if len(seen) == 8:
            # Adding an idea in the meantime does not move the pages after it.
            store.ideas.save(idea_of("later"), IdeaMeta())

        if after is None:
            break

    assert seen == saved[::-1]
    assert [record.id for record in store.ideas.page(run="r1").items] == saved[1::2][::-1]
    assert store.ideas.page(26).next is None


@pytest.mark.parametrize("after", ["", "x", "-1", "1.5", "9" * 30, "١"])
def test_cursors_from_elsewhere_are_refused(store: Store, after: str) -> None:
    with pytest.raises(CursorError, match="cursor"):
        store.ideas.page(after=after)


def test_limits_are_bounded(store: Store) -> None:
    for limit in (0, -1, 1001):
        for call in (store.ideas.page, partial(store.publications.page, caller=SEES_ALL)):
            with pytest.raises(CursorError, match="from 1 to 1000"):
                call(limit)
        with pytest.raises(CursorError):
            store.ideas.search("x", limit, caller=SEES_ALL)
        with pytest.raises(CursorError):
            store.runs.newest(limit=limit, caller=SEES_ALL)
    with pytest.raises(CursorError):
        store.publications.page(after="No name", caller=SEES_ALL)


def test_search_looks_at_titles_texts_tools_tags_and_names(store: Store) -> None:
    meta = IdeaMeta(
        title="Quarterly numbers",
        description="Sums it up",
        tools=("github.createIssue",),
        tags=("finance",),
    )
    wanted = store.ideas.save(idea_of("Collect the sales of Zürich, 東京 and Москва"), meta)
    store.ideas.save(idea_of("something else"), IdeaMeta(title="other"))
    for words in (
        "quarterly", "number", "sums", "sale", "ZURICH", "zürich", "京", "東京", "москва", "create issue",
        "createIssue", "github", "finance", "sales quarterly nowhere", "quart",
    ):  # fmt: skip
        hits = store.ideas.search(words, caller=SEES_ALL)
        assert [hit.id for hit in hits] == [wanted], words

    publish(store, "till_closing", wanted, description="Ledger run")
    assert store.ideas.search("ledger", caller=SEES_ALL)[0].names == ("till_closing",)
    assert store.ideas.search("till_closing", caller=SEES_ALL)[0].id == wanted
    store.publications.unpublish("till_closing")
    assert store.ideas.search("ledger", caller=SEES_ALL) == []


def test_search_puts_all_words_before_some_and_published_first(store: Store) -> None:
    some = store.ideas.save(idea_of("alpha alpha alpha alpha"), IdeaMeta())
    both = store.ideas.save(
        idea_of("alpha beta in a longer text than that of the others"), IdeaMeta()
    )
    assert [hit.id for hit in store.ideas.search("alpha beta", caller=SEES_ALL)] == [both, some]
    publish(store, "alpha", some)
    assert [hit.id for hit in store.ideas.search("alpha beta", caller=SEES_ALL)] == [some, both]


def test_a_run_is_one_hit_its_last_idea(store: Store) -> None:
    steps = [
        store.ideas.save(idea_of("walk the graph", n), IdeaMeta(run="long", step=n))
        for n in range(1, 200)
    ]
    other = store.ideas.save(idea_of("walk the dog"), IdeaMeta())
    assert {hit.id for hit in store.ideas.search("walk", limit=5, caller=SEES_ALL)} == {
        steps[-1],
        other,
    }


def test_search_finds_what_follows_a_rolled_back_save(store: Store) -> None:
    def lose() -> None:
        with store.transaction():
            for number in range(150):
                store.ideas.save(idea_of(f"gone {number}"), IdeaMeta(run="run", step=number))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lose()

    assert store.ideas.search("gone", caller=SEES_ALL) == []
    kept = store.ideas.save(idea_of("gone 1"), IdeaMeta(run="run", step=1))
    assert [hit.id for hit in store.ideas.search("gone", caller=SEES_ALL)] == [kept]


HOSTILE = [
    *(
        '"',
        '""',
        "'",
        "*",
        "a*",
        "NOT",
        "AND",
        "OR a",
        "NEAR(a b",
        "title:x",
        "-a",
        "(",
        "^a",
        "a + b",
        "{a b}: c",
    ),
    *(
        "\0",
        "\ud800",
        "—",
        "_" * 50,
        "x" * 100_000,
        "a " * 10_000,
        "%",
        "';DROP TABLE ideas;--",
        "\u0301",
    ),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_is_a_search_error(store: Store, text: str) -> None:
    store.ideas.save(idea_of("a b x not and or near title"), IdeaMeta())
    store.ideas.search(text, caller=SEES_ALL)


@settings(deadline=None, max_examples=80)
@given(st.text())
def test_any_text_can_be_saved_and_searched(text: str) -> None:
    with Store.open(":memory:") as store:
        saved = store.ideas.save(idea_of(text), IdeaMeta(title=text))
        assert {hit.id for hit in store.ideas.search(text, caller=SEES_ALL)} <= {saved}
