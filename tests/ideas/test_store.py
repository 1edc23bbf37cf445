"""The store: references to ideas, lists, search, publications, portable documents, settings."""

import itertools
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge.ideas import Idea, IdeaMeta, Publication, Store
from ideabridge.bridge.ideas.errors import (
    AmbiguousIdeaError,
    CursorError,
    IdeaDocumentError,
    NameTakenError,
    PublicationContentError,
    PublicationNameError,
    TamperedIdeaError,
    UnknownIdeaError,
    UnknownPublicationError,
)
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import LimitExceededError
from tests.ideas.values import idea_of


def publish(store: Store, name: str, idea_id: str, owner: str | None = None, description: str = "") -> Publication:
    return store.publish(
        name,
        idea_id,
        description=description,
        answer="solve",
        input_schema=None,
        output_schema=None,
        annotations={},
        owner=owner,
    )


def test_an_idea_is_found_by_every_kind_of_reference(store: Store) -> None:
    first, last = idea_of("first"), idea_of("last")
    store.save_idea(first, IdeaMeta(run="run-1", step=1))
    store.save_idea(last, IdeaMeta(run="run-1", step=2, outcome="done"))
    publish(store, "report", first.id)
    publish(store, "report", last.id)
    for ref in (last.id, last.id[:6], last.id[:17], "report", "report@2", "run-1"):
        assert store.idea(ref).id == last.id, ref
    assert store.idea("report@1").id == first.id
    assert store.idea("run-1").meta.outcome == "done"


def test_unknown_and_ambiguous_references_say_what_was_expected(store: Store) -> None:
    publish(store, "weekly_report", store.save_idea(idea_of("x"), IdeaMeta()))
    with pytest.raises(UnknownIdeaError, match="nearest names: weekly_report"):
        store.idea("weekly_reprot")
    for ref in ("", "abc", "weekly_report@9", "weekly_report@x", "weekly_report@", "f" * 64, "F" * 64, "a\0b"):
        with pytest.raises(UnknownIdeaError):
            store.idea(ref)
    with pytest.raises(AmbiguousIdeaError, match="write more digits"):
        store.idea(shared_prefix(store))


def shared_prefix(store: Store) -> str:
    """Save ideas until two share their first 6 hex digits: some thousands."""
    seen: set[str] = set()
    with store.transaction():
        for number in itertools.count():
            prefix = store.save_idea(idea_of(str(number)), IdeaMeta())[:6]
            if prefix in seen:
                return prefix
            seen.add(prefix)
    raise AssertionError


def test_a_second_save_is_another_occurrence(store: Store) -> None:
    idea = idea_of("x")
    store.save_idea(idea, IdeaMeta(run="a", step=1, title="first"))
    for run in ("a", "b", "b"):
        assert store.save_idea(idea, IdeaMeta(run=run, step=1, title="again")) == idea.id
    assert store.idea(idea.id).meta.title == "first"
    assert [record.meta.title for record in store.step_ideas("a")] == ["first"]
    assert [record.meta.title for record in store.step_ideas("b")] == ["again"]
    assert store.idea("b").id == idea.id
    assert len(store.ideas().items) == 1
    assert store.step_ideas("no such run") == []


def test_ideas_of_a_request_newest_first(store: Store) -> None:
    ideas = [idea_of("x", output) for output in (1, 2)]
    for idea in ideas:
        store.save_idea(idea, IdeaMeta())
    found = store.ideas_of_request(ideas[0].request_id)
    assert [stored.id for stored in found] == [ideas[1].id, ideas[0].id]
    assert store.ideas_of_request("0" * 64) == store.ideas_of_request("x") == []


def test_pages_hold_every_idea_once(store: Store) -> None:
    saved = [store.save_idea(idea_of(str(n)), IdeaMeta(run=f"r{n % 2}", step=n)) for n in range(25)]
    seen: list[str] = []
    after = None
    while True:
        page = store.ideas(4, after)
        seen += [record.id for record in page.items]
        after = page.next
        if len(seen) == 8:
            # What is added meanwhile does not move the pages after.
            store.save_idea(idea_of("later"), IdeaMeta())
        if after is None:
            break
    assert seen == saved[::-1]
    assert [record.id for record in store.ideas(run="r1").items] == saved[1::2][::-1]
    assert store.ideas(26).next is None


@pytest.mark.parametrize("after", ["", "x", "-1", "1.5", "9" * 30, "١"])
def test_cursors_from_elsewhere_are_refused(store: Store, after: str) -> None:
    with pytest.raises(CursorError, match="cursor"):
        store.ideas(after=after)


def test_limits_are_bounded(store: Store) -> None:
    for limit in (0, -1, 1001):
        for call in (store.ideas, store.publications):
            with pytest.raises(CursorError, match="from 1 to 1000"):
                call(limit)
        with pytest.raises(CursorError):
            store.search_ideas("x", limit)
        with pytest.raises(CursorError):
            store.runs(limit=limit)
    with pytest.raises(CursorError):
        store.publications(after="No name")


def test_search_looks_at_titles_texts_tools_tags_and_names(store: Store) -> None:
    meta = IdeaMeta(
        title="Quarterly numbers", description="Sums it up", tools=("github.createIssue",), tags=("finance",)
    )
    wanted = store.save_idea(idea_of("Collect the sales of Zürich, 東京 and Москва"), meta)
    store.save_idea(idea_of("something else"), IdeaMeta(title="other"))
    for words in (
        "quarterly", "number", "sums", "sale", "ZURICH", "zürich", "京", "東京", "москва", "create issue",
        "createIssue", "github", "finance", "sales quarterly nowhere", "quart",
    ):  # fmt: skip
        hits = store.search_ideas(words)
        assert [hit.id for hit in hits] == [wanted], words
    publish(store, "till_closing", wanted, description="Ledger run")
    assert store.search_ideas("ledger")[0].names == ("till_closing",)
    assert store.search_ideas("till_closing")[0].id == wanted
    store.unpublish("till_closing")
    assert store.search_ideas("ledger") == []


def test_search_puts_all_words_before_some_and_published_first(store: Store) -> None:
    some = store.save_idea(idea_of("alpha alpha alpha alpha"), IdeaMeta())
    both = store.save_idea(idea_of("alpha beta in a longer text than that of the others"), IdeaMeta())
    assert [hit.id for hit in store.search_ideas("alpha beta")] == [both, some]
    publish(store, "alpha", some)
    assert [hit.id for hit in store.search_ideas("alpha beta")] == [some, both]


def test_a_run_is_one_hit_its_last_idea(store: Store) -> None:
    steps = [store.save_idea(idea_of("walk the graph", n), IdeaMeta(run="long", step=n)) for n in range(1, 200)]
    other = store.save_idea(idea_of("walk the dog"), IdeaMeta())
    assert {hit.id for hit in store.search_ideas("walk", limit=5)} == {steps[-1], other}


def test_search_finds_what_follows_a_rolled_back_save(store: Store) -> None:
    def lose() -> None:
        with store.transaction():
            for number in range(150):
                store.save_idea(idea_of(f"gone {number}"), IdeaMeta(run="run", step=number))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lose()
    assert store.search_ideas("gone") == []
    kept = store.save_idea(idea_of("gone 1"), IdeaMeta(run="run", step=1))
    assert [hit.id for hit in store.search_ideas("gone")] == [kept]


HOSTILE = [
    *('"', '""', "'", "*", "a*", "NOT", "AND", "OR a", "NEAR(a b", "title:x", "-a", "(", "^a", "a + b", "{a b}: c"),
    *("\0", "\ud800", "—", "_" * 50, "x" * 100_000, "a " * 10_000, "%", "';DROP TABLE ideas;--", "\u0301"),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_is_a_search_error(store: Store, text: str) -> None:
    store.save_idea(idea_of("a b x not and or near title"), IdeaMeta())
    store.search_ideas(text)


@settings(deadline=None, max_examples=80)
@given(st.text())
def test_any_text_can_be_saved_and_searched(text: str) -> None:
    with Store.open(":memory:") as store:
        saved = store.save_idea(idea_of(text), IdeaMeta(title=text))
        assert {hit.id for hit in store.search_ideas(text)} <= {saved}


def test_versions_count_on_and_nothing_is_overwritten(store: Store) -> None:
    ideas = [store.save_idea(idea_of(str(n)), IdeaMeta()) for n in range(3)]
    first = publish(store, "name", ideas[0], description="one")
    assert (first.version, first.live) == (1, True)
    assert publish(store, "name", ideas[1]).version == 2
    store.unpublish("name")
    with pytest.raises(UnknownPublicationError, match="not published any more; its last version was 2"):
        store.publication("name")
    with pytest.raises(UnknownPublicationError):
        store.unpublish("name")
    assert store.publication("name", 1).description == "one"
    assert store.publication_count() == 0
    assert publish(store, "name", ideas[2]).version == 3
    assert store.publication("name").idea_id == ideas[2]
    assert store.publication("name", 1).live is False
    with pytest.raises(UnknownPublicationError, match="versions 1 to 3, not 9"):
        store.publication("name", 9)
    with pytest.raises(UnknownPublicationError, match="nearest: name"):
        store.publication("nam")
    assert store.ideas().items[0].names == ("name",)
    assert store.ideas().items[1].names == ()


def test_a_publication_is_kept_whole(store: Store) -> None:
    idea = store.save_idea(idea_of("x"), IdeaMeta())
    schema: JSONObject = {"type": "object", "properties": {"b": {}, "a": {}}}
    told = store.publish(
        "whole",
        idea,
        description="d",
        answer="plan",
        input_schema=schema,
        output_schema={},
        annotations={"title": "t"},
        plan={"calls": []},
        recorded=[1, None],
        owner="me",
    )
    assert store.publication("whole") == told
    assert (told.input_schema, told.output_schema, told.plan, told.recorded) == (schema, {}, {"calls": []}, [1, None])
    assert (told.owner, told.annotations, told.answer, told.idea_id) == ("me", {"title": "t"}, "plan", idea)


def test_publications_that_cannot_be(store: Store) -> None:
    idea = store.save_idea(idea_of("x"), IdeaMeta())
    for name in ("Weekly Report", "", "1a", "a" * 49, "a\n", "é"):
        with pytest.raises(PublicationNameError, match=r"for example '[a-z]"):
            publish(store, name, idea)
    with pytest.raises(UnknownIdeaError):
        publish(store, "name", "0" * 64)
    with pytest.raises(PublicationContentError, match="plan"):
        store.publish("a", idea, description="", answer="plan", input_schema=None, output_schema=None, annotations={})
    publish(store, "mine", idea, owner="me")
    with pytest.raises(NameTakenError):
        publish(store, "mine", idea, owner="you")
    with pytest.raises(NameTakenError):
        publish(store, "mine", idea)
    assert store.publication_count() == 1


def test_pages_of_publications_by_name_and_caller(store: Store) -> None:
    idea = store.save_idea(idea_of("x"), IdeaMeta())
    for number in range(12):
        publish(store, f"n{number:02}", idea, owner=(None, "a", "b")[number % 3])
    expected = {None: range(12), "a": [n for n in range(12) if n % 3 < 2], "z": range(0, 12, 3)}
    for caller, numbers in expected.items():
        names: list[str] = []
        after = None
        while True:
            page = store.publications(3, after, caller=caller)
            names += [publication.name for publication in page.items]
            after = page.next
            if after is None:
                break
        assert names == [f"n{number:02}" for number in numbers]
        assert store.publication_count(caller=caller) == len(names)


def test_the_catalogue_version_grows_with_publications_only(store: Store) -> None:
    versions = [store.catalogue_version()]
    idea = store.save_idea(idea_of("x"), IdeaMeta())
    assert store.catalogue_version() == versions[0]
    for change in (lambda: publish(store, "a", idea), lambda: store.unpublish("a")):
        change()
        versions.append(store.catalogue_version())
    assert versions == sorted(set(versions))


def test_a_published_idea_travels(store: Store) -> None:
    idea = store.save_idea(idea_of("x"), IdeaMeta(run="r", step=2, title="t", tools=("a",), usage={"tokens": 3}))
    publish(store, "traveller", idea, description="far")
    document = store.export_idea("traveller")
    with Store.open(":memory:") as other:
        publish(other, "traveller", other.save_idea(idea_of("theirs"), IdeaMeta()))
        assert other.import_idea(document) == idea
        assert other.publication("traveller").version == 1
        other.import_idea(document, with_publication=True)
        arrived = other.publication("traveller")
        assert (arrived.version, arrived.idea_id, arrived.description) == (2, idea, "far")
        assert other.idea(idea).meta == store.idea(idea).meta
        other.create_run("s", kind="plan", caller="", title="", fingerprint="")
        joiner = Idea([], {}, None)
        store.save_idea(joiner, IdeaMeta(run="s", step=9))
        other.import_idea(store.export_idea(joiner.id))
        assert other.step_ideas("s") == []
    assert "publication" not in store.export_idea(idea)
    with pytest.raises(IdeaDocumentError, match="publication"):
        store.import_idea(store.export_idea(idea), with_publication=True)


def test_documents_that_are_wrong_say_where(store: Store) -> None:
    good = store.export_idea(store.save_idea(idea_of("x"), IdeaMeta(title="t")))
    wrong: list[tuple[JSON, str]] = [
        (None, "an object, found null"),
        ([], "an object, found a list"),
        ({}, "missing: ideabridge, id"),
        ({**good, "more": 1}, "unknown members of an exported idea: more"),
        ({**good, "ideabridge": 2}, "expected format 1, found the number 2"),
        ({**good, "ideabridge": True}, "expected format 1"),
        ({**good, "context": {}}, "context: expected a list"),
        ({**good, "id": 7}, "id: expected 64 hex digits"),
        ({**good, "meta": []}, "meta: expected an object"),
        ({**good, "meta": {"run": 1}}, "meta.run: expected text, found the number 1"),
        ({**good, "meta": {"step": True}}, "meta.step: expected a whole number"),
        ({**good, "meta": {"step": 2**70}}, "meta.step: expected a whole number"),
        ({**good, "meta": {"tools": ["a", 1]}}, "meta.tools: expected a list of texts"),
        ({**good, "meta": {"secret": "x"}}, "meta.secret: unknown"),
        ({**good, "publication": {"name": "a"}}, "publication.answer: missing"),
        ({**good, "publication": {"name": "a", "answer": "never"}}, "publication.answer: expected one of"),
    ]
    for document, message in wrong:
        with pytest.raises(IdeaDocumentError, match=message.replace("(", r"\(")):
            store.import_idea(document)
    deep: JSON = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(LimitExceededError):
        store.import_idea({**good, "solution": deep})
    with pytest.raises(PublicationNameError):
        store.import_idea({**good, "publication": {"name": "No!", "answer": "solve"}}, with_publication=True)


@pytest.mark.parametrize("part", ["id", "request", "context", "schema", "solution"])
def test_tampered_documents_are_refused(store: Store, part: str) -> None:
    document = store.export_idea(store.save_idea(idea_of("x"), IdeaMeta()))
    changed: JSONObject = {"context": ["y"], "schema": {}, "solution": None, "id": "0" * 64, "request": "0" * 64}
    document[part] = changed[part]
    with pytest.raises(TamperedIdeaError, match="changed after export"):
        store.import_idea(document)
    assert len(store.ideas().items) == 1


def test_reordered_keys_are_tampering(store: Store) -> None:
    document = store.export_idea(store.save_idea(idea_of("x"), IdeaMeta()))
    document["schema"] = dict(reversed(cast("JSONObject", document["schema"]).items()))
    with pytest.raises(TamperedIdeaError):
        store.import_idea(document)


def test_settings(store: Store) -> None:
    assert store.settings("key") is None
    assert store.ensure_setting("key", lambda: b"one\0\xff") == b"one\0\xff"
    assert store.ensure_setting("key", lambda: b"two") == b"one\0\xff"
    store.set_setting("key", b"three")
    assert store.settings("key") == b"three"
