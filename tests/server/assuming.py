"""A published plan with values that its run copied, for the tests of what callers see and what
people are asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ideabridge.bridge.store.idea import Idea, IdeaMeta, NewPublication, Publication
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject

ADDING: JSONObject = {
    "calls": [{"_tool": "add", "a": "†input.n", "b": 5}],
    "output": {"total": "†results.0"},
    "explained": [{"at": ["calls", "0", "b"], "by": ["†input.m", {"constant": 5}]}],
    "seen": {"†input.n": {"number": {"signs": [1], "range": [1, 10]}}},
}
"""It adds two numbers of the input, and its one run had 5 for the second."""

TOTAL: JSONObject = {
    "type": "object",
    "properties": {"total": {"type": "integer"}},
    "required": ["total"],
    "additionalProperties": False,
}

WRITING: JSONObject = {
    "calls": [{"_tool": "write_note", "path": "†input.path", "text": "hello"}],
    "output": "†results.0",
    "explained": [{"at": ["calls", "0", "text"], "by": ["†input.words", {"constant": "hello"}]}],
}
"""It writes words of the input into a file, and its one run had "hello" there."""

ASSUMED = "calls.0.b is {} (†input.m); it could also be 5 (always 5): its explanations differ"


def publish(
    store: Path, name: str, plan: JSONObject, output: JSONObject | None = None, **more: Any
) -> Publication:
    """Publish a plan as it is; `more` are other members of the publication."""
    values = {"n": "integer", "m": "integer", "path": "string", "words": "string"}
    properties: JSONObject = {key: {"type": kind} for key, kind in values.items()}
    recorded: JSON = {"input": {}, "output": None}
    with Store.open(store) as opened:
        idea = opened.ideas.save(Idea(["x"], {}, {"calls": [], "output": None}), IdeaMeta())
        members: dict[str, Any] = {
            "description": "A test.",
            "answer": "auto",
            "input_schema": {"type": "object", "properties": properties},
            "output_schema": output,
            "annotations": {},
            "plan": plan,
            "recorded": recorded,
            **more,
        }
        return opened.publications.publish(NewPublication(name=name, idea_id=idea, **members))
