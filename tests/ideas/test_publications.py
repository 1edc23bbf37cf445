"""Publications, portable documents, settings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import cast

import pytest

from ideabridge.bridge.lifting.evidence import Kind, Record, teach
from ideabridge.bridge.store.errors import (
    IdeaDocumentError,
    NameTakenError,
    PublicationContentError,
    PublicationNameError,
    TamperedIdeaError,
    UnknownIdeaError,
    UnknownPublicationError,
    UnknownRunError,
)
from ideabridge.bridge.store.idea import Idea, IdeaMeta, NewPublication
from ideabridge.bridge.store.portable import read_document, sealed
from ideabridge.bridge.store.publications import Evidence
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL, Viewer
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import LimitExceededError
from tests.ideas.values import idea_of, publish


def test_versions_count_on_and_nothing_is_overwritten(store: Store) -> None:
    ideas = [store.ideas.save(idea_of(str(n)), IdeaMeta()) for n in range(3)]
    assert store.publications.last_version("name") == 0
    first = publish(store, "name", ideas[0], description="one")
    assert (first.version, first.live) == (1, True)
    assert publish(store, "name", ideas[1]).version == 2
    store.publications.unpublish("name")
    assert store.publications.last_version("name") == 2
    with pytest.raises(
        UnknownPublicationError, match="no longer published; its last version was 2"
    ):
        store.publications.get("name", caller=SEES_ALL)

    with pytest.raises(UnknownPublicationError):
        store.publications.unpublish("name")

    assert store.publications.get("name", 1, caller=SEES_ALL).description == "one"
    assert store.publications.count(caller=SEES_ALL) == 0
    assert publish(store, "name", ideas[2]).version == 3
    assert store.publications.get("name", caller=SEES_ALL).idea_id == ideas[2]
    assert store.publications.get("name", 1, caller=SEES_ALL).live is False
    with pytest.raises(UnknownPublicationError, match="versions 1 to 3, not 9"):
        store.publications.get("name", 9, caller=SEES_ALL)

    with pytest.raises(UnknownPublicationError, match="nearest: name"):
        store.publications.get("nam", caller=SEES_ALL)

    for ref in ("name", "name@1", "name@3"):
        assert store.publications.look_up(ref, caller=SEES_ALL) == store.publications.named(
            ref, caller=SEES_ALL
        )
    for ref in ("nam", "name@9", "name@", "Name", ideas[0]):
        assert store.publications.look_up(ref, caller=SEES_ALL) is None

    assert store.ideas.page().items[0].names == ("name",)
    assert store.ideas.page().items[1].names == ()


def test_a_name_uses_its_current_evidence_and_a_version_that_of_its_publication(
    store: Store,
) -> None:
    idea = store.ideas.save(idea_of("x"), IdeaMeta())
    literal: JSONObject = {"at": ["calls", "0", "n"], "by": ["†input.a", "†input.b"]}
    plan: JSONObject = {"calls": [{"_tool": "t", "n": 1}], "explained": [literal], "seen": {}}
    store.publications.publish(
        NewPublication(
            name="taught",
            idea_id=idea,
            description="d",
            answer="plan",
            input_schema=None,
            output_schema=None,
            annotations={},
            plan=plan,
        )
    )
    publish(store, "other", idea)

    def add(run: str, value: int, a: int, b: int, kind: Kind = "person") -> JSONObject | None:
        at = ("calls", "0", "n")
        record = Record(
            run, "local", kind, "2026-11-22T00:00:00Z", {at: value}, {"†input.a": a, "†input.b": b}
        )
        before = store.publications.catalogue_version()
        found = store.publications.add_evidence(
            "taught", 1, lambda told, known: teach(told, known, record)
        )
        kept = [one["run"] for one in store.evidence.records("taught", 1, caller=SEES_ALL)]
        assert (run in kept) == (store.publications.catalogue_version() > before)
        return found.learned

    unchanged: JSONObject = {"explained": [literal], "seen": {}}
    assert add("asked a mind", 2, 1, 2, "assistant") == unchanged
    learned: JSONObject = {
        "explained": [{"at": ["calls", "0", "n"], "by": ["†input.b"]}],
        "seen": {},
    }
    assert add("one", 2, 1, 2) == learned
    assert add("the same data again", 2, 1, 2) == learned

    assert [one["run"] for one in store.evidence.records("taught", 1, caller=SEES_ALL)] == [
        "asked a mind",
        "one",
    ]
    assert store.evidence.records("other", 1, caller=SEES_ALL) == []
    assert store.publications.named("taught", caller=SEES_ALL).learned == learned
    assert store.publications.page(caller=SEES_ALL).items[1].learned == learned
    at_publication = store.publications.named("taught@1", caller=SEES_ALL)
    assert (at_publication.learned, at_publication.plan) == (None, plan)
    current = store.publications.named("taught", caller=SEES_ALL)
    pinned = store.publications.pin(current, {**plan, "pins": []}, None, {})
    assert pinned.learned == learned
    assert store.publications.get("taught", 1, caller=SEES_ALL).plan == {**plan, "pins": []}
    store.publications.unpublish("taught")
    assert add("later", 9, 8, 9) == {
        "explained": [{**literal, "by": ["†input.b"], "runs": 2}],
        "seen": {},
    }
    with pytest.raises(UnknownPublicationError, match="version 1, not 2"):
        store.publications.add_evidence("taught", 2, lambda told, known: None)


def test_a_publication_is_kept_whole(store: Store) -> None:
    idea = store.ideas.save(idea_of("x"), IdeaMeta())
    schema: JSONObject = {"type": "object", "properties": {"b": {}, "a": {}}}
    told = store.publications.publish(
        NewPublication(
            name="whole",
            idea_id=idea,
            description="d",
            answer="plan",
            input_schema=schema,
            output_schema={},
            annotations={"title": "t"},
            plan={"calls": []},
            recorded=[1, None],
            owner="me",
        )
    )
    assert store.publications.get("whole", caller=SEES_ALL) == told
    assert (told.input_schema, told.output_schema, told.plan, told.recorded) == (
        schema,
        {},
        {"calls": []},
        [1, None],
    )
    assert (told.owner, told.annotations, told.answer, told.idea_id) == (
        "me",
        {"title": "t"},
        "plan",
        idea,
    )


def test_publications_that_cannot_be(store: Store) -> None:
    idea = store.ideas.save(idea_of("x"), IdeaMeta())
    for name in ("Weekly Report", "", "1a", "a" * 49, "a\n", "é"):
        with pytest.raises(PublicationNameError, match=r"for example '[a-z]"):
            publish(store, name, idea)

    with pytest.raises(UnknownIdeaError):
        publish(store, "name", "0" * 64)

    with pytest.raises(PublicationContentError, match="plan"):
        store.publications.publish(
            NewPublication(
                name="a",
                idea_id=idea,
                description="",
                answer="plan",
                input_schema=None,
                output_schema=None,
                annotations={},
            )
        )

    publish(store, "mine", idea, owner="me")
    with pytest.raises(NameTakenError):
        publish(store, "mine", idea, owner="you")

    with pytest.raises(NameTakenError):
        publish(store, "mine", idea)

    assert store.publications.count(caller=SEES_ALL) == 1


def test_pages_of_publications_by_name_and_caller(store: Store) -> None:
    idea = store.ideas.save(idea_of("x"), IdeaMeta())
    for number in range(12):
        publish(store, f"n{number:02}", idea, owner=(None, "a", "b")[number % 3])

    expected: dict[Viewer, Iterable[int]] = {
        SEES_ALL: range(12),
        "a": [n for n in range(12) if n % 3 < 2],
        "z": range(0, 12, 3),
    }
    for caller, numbers in expected.items():
        names: list[str] = []
        after = None
        while True:
            page = store.publications.page(3, after, caller=caller)
            names += [publication.name for publication in page.items]
            after = page.next
            if after is None:
                break

        assert names == [f"n{number:02}" for number in numbers]
        assert store.publications.count(caller=caller) == len(names)


def test_publications_are_found_by_a_part_of_their_name_or_description(store: Store) -> None:
    idea = store.ideas.save(idea_of("x"), IdeaMeta())
    publish(store, "large_order", idea, owner="a", description="The one that is worth 100%.")
    publish(store, "small_order", idea, owner="b")

    def names(words: str, caller: Viewer = SEES_ALL) -> list[str]:
        page = store.publications.page(caller=caller, words=words)
        return [publication.name for publication in page.items]

    assert names("ORDER") == ["large_order", "small_order"]
    assert names("rge") == names("0%") == ["large_order"]
    assert names("l%o") == []
    assert names("order", "b") == ["small_order"]


def test_the_catalogue_version_grows_with_publications_only(store: Store) -> None:
    versions = [store.publications.catalogue_version()]
    idea = store.ideas.save(idea_of("x"), IdeaMeta())
    assert store.publications.catalogue_version() == versions[0]
    for change in (lambda: publish(store, "a", idea), lambda: store.publications.unpublish("a")):
        change()
        versions.append(store.publications.catalogue_version())

    assert versions == sorted(set(versions))


def test_a_published_idea_travels(store: Store) -> None:
    idea = store.ideas.save(
        idea_of("x"), IdeaMeta(run="r", step=2, title="t", tools=("a",), usage={"tokens": 3})
    )
    publish(store, "traveller", idea, description="far")
    document = store.export_idea("traveller", caller=SEES_ALL)
    with Store.open(":memory:") as other:
        publish(other, "traveller", other.ideas.save(idea_of("theirs"), IdeaMeta()))
        assert other.import_idea(document) == idea
        assert other.publications.get("traveller", caller=SEES_ALL).version == 1
        other.import_idea(document, with_publication=True)
        arrived = other.publications.get("traveller", caller=SEES_ALL)
        assert (arrived.version, arrived.idea_id) == (2, idea)
        # The author's words come first, and then ours.
        assert arrived.description.startswith("far. ")
        assert "Imported: " in arrived.description
        assert (
            other.ideas.get(idea, caller=SEES_ALL).meta
            == store.ideas.get(idea, caller=SEES_ALL).meta
        )
        other.runs.create("s", kind="plan", caller="", title="", fingerprint="")
        joiner = Idea([], {}, None)
        store.ideas.save(joiner, IdeaMeta(run="s", step=9))
        other.import_idea(store.export_idea(joiner.id, caller=SEES_ALL))
        assert other.ideas.of_run("s") == []

    assert "publication" not in store.export_idea(idea, caller=SEES_ALL)
    with pytest.raises(IdeaDocumentError, match="publication"):
        store.import_idea(store.export_idea(idea, caller=SEES_ALL), with_publication=True)


def test_a_document_may_say_that_it_has_no_publication(store: Store) -> None:
    document = store.export_idea(
        store.ideas.save(idea_of("x"), IdeaMeta(title="t")), caller=SEES_ALL
    )
    assert read_document({**document, "publication": None}, "idea").publication is None


def test_documents_that_are_wrong_say_where(store: Store) -> None:
    good = store.export_idea(store.ideas.save(idea_of("x"), IdeaMeta(title="t")), caller=SEES_ALL)
    wrong: list[tuple[JSON, str]] = [
        (None, "an object, found null"),
        ([], "an object, found []"),
        ({}, "ideabridge: missing, expected"),
        ({**good, "more": 1}, "more: found 1, expected no property with this name"),
        ({**good, "ideabridge": 3}, "expected format 2, found 3"),
        ({**good, "ideabridge": True}, "expected format 2"),
        ({**good, "context": {}}, "context: found {}, expected an array"),
        ({**good, "id": 7}, "id: expected 64 hex digits"),
        ({**good, "meta": []}, "meta: found [], expected an object"),
        ({**good, "meta": {"run": 1}}, "meta.run: found 1, expected text"),
        ({**good, "meta": {"step": True}}, "meta.step: found true, expected an integer"),
        ({**good, "meta": {"step": 1.0}}, "meta.step: found 1.0, expected an integer"),
        (
            {**good, "publication": {"name": "a", "answer": "plan", "version": 1.0}},
            "publication.version: found 1.0, expected an integer",
        ),
        (
            {**good, "meta": {"step": 2**70}},
            "meta.step: found 1180591620717411303424, expected at most 2147483647",
        ),
        ({**good, "meta": {"tools": ["a", 1]}}, "meta.tools.1: found 1, expected text"),
        ({**good, "meta": {"secret": "x"}}, 'meta.secret: found "x", expected no property'),
        (
            {**good, "publication": {"name": "a"}},
            "publication.answer: missing, expected one of",
        ),
        (
            {**good, "publication": {"name": "a", "answer": "never"}},
            'publication.answer: found "never", expected one of',
        ),
    ]
    for document, message in wrong:
        with pytest.raises(IdeaDocumentError, match=re.escape(message)):
            store.import_idea(document)

    deep: JSON = []
    for _ in range(200):
        deep = [deep]

    with pytest.raises(LimitExceededError):
        store.import_idea({**good, "solution": deep})

    forged = sealed({**good, "publication": {"name": "No!", "answer": "solve"}})
    with pytest.raises(PublicationNameError):
        store.import_idea(forged, with_publication=True)


@pytest.mark.parametrize("part", ["id", "request", "context", "schema", "solution"])
def test_tampered_documents_are_refused(store: Store, part: str) -> None:
    document = store.export_idea(store.ideas.save(idea_of("x"), IdeaMeta()), caller=SEES_ALL)
    changed: JSONObject = {
        "context": ["y"],
        "schema": {},
        "solution": None,
        "id": "0" * 64,
        "request": "0" * 64,
    }
    document[part] = changed[part]
    with pytest.raises(TamperedIdeaError, match="changed after the export"):
        store.import_idea(document)
    assert len(store.ideas.page().items) == 1


def test_reordered_keys_are_tampering(store: Store) -> None:
    document = store.export_idea(store.ideas.save(idea_of("x"), IdeaMeta()), caller=SEES_ALL)
    document["schema"] = dict(reversed(cast("JSONObject", document["schema"]).items()))
    with pytest.raises(TamperedIdeaError):
        store.import_idea(document)


def test_settings(store: Store) -> None:
    assert store.settings.get("key") is None
    assert store.settings.ensure("key", lambda: b"one\0\xff") == b"one\0\xff"
    assert store.settings.ensure("key", lambda: b"two") == b"one\0\xff"
    store.settings.set("key", b"three")
    assert store.settings.get("key") == b"three"


def test_a_caller_finds_its_own_and_what_is_shared_with_it(store: Store) -> None:
    """One rule for runs, ideas, versions and evidence."""
    for run, caller in (("run_a", "a"), ("run_b", "b")):
        store.runs.create(run, kind="plan", caller=caller, title=run, fingerprint="")

    idea = store.ideas.save(
        idea_of("of a"), IdeaMeta(run="run_a", step=1, title="of a", tags=("secret",))
    )
    for _ in range(2):
        publish(store, "noted", idea, owner="a")

    record: JSONObject = {
        "run": "run_a",
        "by": "a",
        "kind": "person",
        "time": "",
        "values": [],
        "view": None,
    }
    store.publications.add_evidence("noted", 2, lambda _published, _records: Evidence(record, {}))

    for ref in ("noted", "noted@1", "run_a", idea, idea[:6]):
        with pytest.raises(UnknownIdeaError, match=r"no idea|nothing is published"):
            store.ideas.get(ref, caller="b")
        assert store.ideas.get(ref, caller="a").meta.tags == ("secret",)
        assert store.ideas.get(ref, caller=SEES_ALL).id == idea

    with pytest.raises(UnknownRunError, match="unknown run"):
        store.runs.find("run_a", caller="b")

    with pytest.raises(UnknownRunError, match="no run"):
        store.runs.newest("b", after="run_a")

    assert [one.id for one in store.runs.newest("b")] == ["run_b"]
    assert store.runs.find("run_a", caller="a") == store.runs.find("run_a", caller=SEES_ALL)

    assert store.publications.look_up("noted", caller="b") is None
    store.publications.share("noted", ("b",))
    shared = store.publications.look_up("noted", caller="b")
    assert shared is not None
    assert shared.version == 2
    assert store.publications.look_up("noted@1", caller="b") is None
    assert [one.version for one in store.publications.versions("noted", caller="b")] == [2]
    assert [one.version for one in store.publications.versions("noted", caller="a")] == [2, 1]
    assert store.evidence.records("noted", 2, caller="b") == []
    assert store.evidence.records("noted", 2, caller="a") == [record]
    names = ["noted", "unknown"]
    assert store.evidence.confirmations(names, caller="b") == {}
    assert store.evidence.confirmations(names, caller="a") == {"noted": 1}
    assert store.evidence.confirmations(names, caller=SEES_ALL) == {"noted": 1}
    assert store.evidence.confirmations([], caller=SEES_ALL) == {}
    meta = store.ideas.get("noted", caller="b").meta
    assert (meta.run, meta.step, meta.tags, meta.title) == (None, None, (), "of a")
    with pytest.raises(UnknownPublicationError, match="'noted' has version 2, not 1"):
        store.publications.get("noted", 1, caller="b")
