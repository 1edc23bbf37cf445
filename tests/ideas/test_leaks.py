"""Secrets do not leave in an exported idea, and what an idea needs is told."""

import dataclasses
import json
from pathlib import Path

import jsonschema_rs
import pytest

from ideabridge.bridge.store.errors import SecretInIdeaError, TamperedIdeaError
from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.leaks import shapes_in
from ideabridge.bridge.store.portable import DOCUMENT_SCHEMA, read_document
from ideabridge.bridge.store.shapes import Need, needs_of
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import Tool
from ideabridge.tools.compose import solution_schema
from ideabridge.tools.encoding import JSON, JSONObject
from tests.ideas.values import idea_of, publish

DOCS = Path(__file__).parent.parent.parent / "docs"

# These are put together here so that no scanner of this repository takes them for real tokens.
TOKENS = {
    "a GitHub token": "ghp_" + "a1B2" * 9,
    "a GitLab token": "glpat-" + "x" * 20,
    "a Slack token": "xoxb" + "-1234567890-abc",
    "an AWS access key": "AKIA" + "ABCDEFGH23456777",
    "a Google API key": "AIza" + "Ab1-_" * 7,
    "a token of an ideabridge user": "ibt_0123456789ab_" + "aB3-" * 10 + "aB3",
    "an Anthropic key": "sk-ant-" + "api03-" + "a1" * 12,
    "an OpenAI key": "sk-proj-" + "aB3" * 8,
    "a Stripe key": "sk_live_" + "a1" * 10,
    "a JSON Web Token": "eyJ" + "hbGciOiJ9" + ".eyJ" + "zdWIiOjEyfQ" + ".c2lnbmF0dXJl",
    "a private key": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "credentials in an address": "postgres://me:" + "hunter22@db.example/x",
    "a bearer token": "Authorization: Bearer " + "a1b2c3d4e5f6g7h8i9j0",
}
HARMLESS = [
    "sk-toggleable__content-arrow of a style sheet",
    "https://example.org:8080/a@b and mail me@example.org",
    "Bearer of good news, and bearer documentation-for-everybody",
    "AKIA is how they begin; task-force-of-twenty-people-and-more",
    "a" * 64,
]


@pytest.mark.parametrize("what", TOKENS)
def test_a_token_of_a_known_shape_is_found_wherever_it_stands(store: Store, what: str) -> None:
    token = TOKENS[what]
    assert what in shapes_in(f"see {token}, please")
    places: dict[str, tuple[Idea, IdeaMeta]] = {
        "context.0.content": (idea_of(f"use {token}"), IdeaMeta()),
        "solution.output.a.1": (idea_of("x", {"a": [1, token]}), IdeaMeta()),
        "solution.output, a key": (idea_of("x", {token: 1}), IdeaMeta()),
        "meta.title": (idea_of("z"), IdeaMeta(title=token)),
    }
    for place, (idea, meta) in places.items():
        saved = store.ideas.save(idea, meta)
        with pytest.raises(SecretInIdeaError) as caught:
            store.export_idea(saved, caller=SEES_ALL)

        assert f"{place}: {what}" in str(caught.value)
        assert token not in str(caught.value)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_a_little_like_one_leaves(store: Store, text: str) -> None:
    assert store.export_idea(store.ideas.save(idea_of(text), IdeaMeta()), caller=SEES_ALL)[
        "context"
    ]


def test_a_secret_in_a_publication_is_found(store: Store) -> None:
    saved = store.ideas.save(idea_of("x"), IdeaMeta())
    publish(store, "telling", saved, description=f"call it with {TOKENS['a GitHub token']}")
    with pytest.raises(SecretInIdeaError, match=r"publication\.description: a GitHub token"):
        store.export_idea("telling", caller=SEES_ALL)
    assert store.export_idea(saved, caller=SEES_ALL)


def test_what_is_known_as_a_secret_is_found(store: Store) -> None:
    saved = store.ideas.save(idea_of("open sesame"), IdeaMeta())
    with pytest.raises(SecretInIdeaError, match=r"context\.0\.content: the secret DOOR"):
        store.export_idea(saved, lambda text: ["DOOR"] if "sesame" in text else [], caller=SEES_ALL)


def test_the_committed_schema_is_that_of_the_code_and_fits_what_is_exported(store: Store) -> None:
    committed = json.loads((DOCS / "idea.schema.json").read_text(encoding="utf-8"))
    assert committed == DOCUMENT_SCHEMA
    validator = jsonschema_rs.Draft202012Validator(committed)
    git = Tool("git_log", parameters={"type": "object"}, module="git")
    idea = Idea([], solution_schema([git], None), {"calls": [{"_tool": "git_log"}], "output": None})
    saved = store.ideas.save(idea, IdeaMeta(run="r", step=1, tags=("a",), usage={"tokens": 1}))
    publish(store, "whole", saved)
    for ref in (saved, "whole"):
        document = store.export_idea(ref, caller=SEES_ALL)
        assert document["needs"] == [{"tool": "git_log", "module": "git"}]
        assert validator.is_valid(document)
        read_document(document)

    published: JSON = store.export_idea("whole", caller=SEES_ALL)["publication"]
    bad: list[JSONObject] = [
        {"ideabridge": 1},
        {"id": "x"},
        {"other": 1},
        {"meta": {"step": -1}},
        {"context": {}},
    ]
    assert isinstance(published, dict)
    bad.append({"publication": {**published, "answer": "never"}})
    for change in bad:
        assert not validator.is_valid({**store.export_idea("whole", caller=SEES_ALL), **change}), (
            change
        )


def test_a_publication_that_was_changed_is_refused(store: Store) -> None:
    publish(store, "whole", store.ideas.save(idea_of("x"), IdeaMeta()))
    document = store.export_idea("whole", caller=SEES_ALL)
    told = document["publication"]
    assert isinstance(told, dict)
    with pytest.raises(TamperedIdeaError, match="digest: the document says"):
        store.import_idea(
            {**document, "publication": {**told, "plan": {"calls": [{"_tool": "rm"}]}}}
        )


def test_needs_are_told_by_the_calls_by_the_schema_and_by_the_plan() -> None:
    tools = [
        Tool(name, parameters={"type": "object"}, module=module)
        for name, module in (("a", "m"), ("b", None))
    ]
    schema = solution_schema(tools, None)
    solution: JSON = {
        "calls": [{"_tool": "a"}, {"_tool": "b"}, {"_tool": "c", "_module": "n"}, {"_tool": "a"}, 3]
    }
    assert needs_of(Idea([], schema, solution)) == [Need("a", "m"), Need("b"), Need("c", "n")]
    assert needs_of(Idea([], {}, {}), {"calls": [{"_tool": "d"}]}) == [Need("d")]
    assert [dataclasses.replace(Need("a"), module="m").text, Need("b").text] == ["m/a", "b"]
    odds: list[JSON] = [
        None,
        [],
        {"properties": {"calls": {"items": {"anyOf": [1, {"$ref": "x"}]}}}},
    ]
    for odd in odds:
        assert needs_of(Idea([], odd, odd)) == []
