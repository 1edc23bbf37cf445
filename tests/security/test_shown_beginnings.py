"""Of a call with megabytes people see the beginning, and nothing more of it is written as
JSON for people.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import pytest

from ideabridge.bridge.runs.people import ApprovalRequest
from ideabridge.server import answers
from ideabridge.server.asking import forms
from ideabridge.server.asking.forms import answers_of, approval_form, message, publication_form
from ideabridge.server.views import shown
from ideabridge.server.views.shown import FORM, PAGE, VIEW, Room, show_question
from ideabridge.tools import names
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Tool

TEXT: Final = "é " * 1_000_000
"""Each character takes 0.3 us to look at."""

LARGE: Final = pytest.mark.parametrize("name", ["text", "rows", "keys", "items"])


@cache
def large(name: str) -> JSON:
    """A value of megabytes. It is made for the first test that needs it, because every process of
    the tests imports this file.
    """
    values: dict[str, Callable[[], JSON]] = {
        "text": lambda: TEXT,
        "rows": lambda: [{"n": number, "é": [True]} for number in range(100_000)],
        "keys": lambda: {f"é{number}": None for number in range(100_000)},
        "items": lambda: list[JSON]([TEXT]) * 12,
    }
    return values[name]()


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of all texts that were made visible for people."""
    lengths: list[int] = []
    visible = names.visible

    def counting(text: str, keep: str = "") -> str:
        lengths.append(len(text))
        return visible(text, keep)

    for module in (names, shown, forms):
        monkeypatch.setattr(module, "visible", counting)

    return lengths


def asked(kind: str, value: JSON) -> ApprovalRequest:
    call: JSONObject = {"_tool": "shell", "value": value}
    if kind == "plan":
        waiting: dict[str, Any] = {"calls": [call], "output": None, "drawing": "0 shell\n"}
        return ApprovalRequest(
            "run_1",
            "local",
            "p0-1",
            None,
            {},
            "a plan",
            None,
            "plan",
            ("approve", "deny", "edit"),
            waiting,
        )
    return ApprovalRequest("run_1", "local", "a0-1", Tool("shell"), call, "it changes things")


@pytest.mark.parametrize("kind", ["call", "plan"])
@LARGE
def test_a_form_writes_only_what_it_shows(name: str, kind: str, written: list[int]) -> None:
    request = asked(kind, large(name))
    text = message(request)
    form: Any = approval_form(request)
    assert form["properties"]["decision"]["enum"] == ["deny"]
    assert answers_of(request) == ("deny",)
    assert "characters, SHA-256" in text
    assert len(text) < 3000
    assert 0 < sum(written) < 100_000


@pytest.mark.parametrize("room", [FORM, VIEW, PAGE])
@LARGE
def test_a_card_writes_only_what_it_shows(name: str, room: Room, written: list[int]) -> None:
    card = show_question({"_tool": "shell", "value": large(name)}, "it changes things", room)
    assert not card.whole
    assert card.content.startswith('{\n  "_tool": "shell"')
    assert card.omitted > 100_000
    assert card.seal("secret", "run_1:a0") == ""
    assert 0 < sum(written) < 10 * room.characters


def test_long_reasons_are_not_written_whole(written: list[int]) -> None:
    card = show_question({"_tool": "shell"}, TEXT, FORM)
    assert not card.whole
    assert card.omitted > 1_000_000
    assert sum(written) < 100_000


def test_a_form_of_choices_writes_only_what_it_shows(written: list[int]) -> None:
    text, form = publication_form("run_1", "tool", {"value": TEXT}, forms.COMMANDS)
    properties: Any = form.get("properties")
    assert properties["decision"]["enum"] == ["deny"]
    assert "characters, SHA-256" in text
    assert sum(written) < 100_000


def test_an_answer_writes_only_the_beginning_of_a_call_that_waits(written: list[int]) -> None:
    waiting: JSONObject = {
        "approval": "a0-1",
        "call": {"_tool": "shell", "value": TEXT},
        "why": "it changes things",
    }
    text = answers.run_text(
        {"run": "run_1", "status": "needs_approval", "errors": [], "approvals": [waiting]}
    )
    assert "a0-1" in text
    assert 0 < sum(written) < 100_000
