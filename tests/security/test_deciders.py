"""Who decided is in the journal: a person, an assistant, an approver's code, or nobody."""

from __future__ import annotations

import pytest

from ideabridge.bridge.loop.event import (
    AT_TERMINAL,
    BRIDGE,
    FORK,
    MODULE,
    TIME_OUT,
    CallDecided,
    Decider,
    JournalError,
    decider_of,
    event_from_json,
    read_decider,
)
from ideabridge.tools.encoding import JSON


@pytest.mark.parametrize(
    "decider",
    [AT_TERMINAL, TIME_OUT, BRIDGE, FORK, MODULE, Decider("assistant", "tool", "ann"), decider_of("Ann")],
)
def test_a_decider_is_read_again_as_it_was_journaled(decider: Decider) -> None:
    event = CallDecided(3, "digest", "deny", decider, "no")
    told = event.to_json()
    assert told["by"] == decider.to_json()
    assert event_from_json(told) == event


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("the person at the client", "person"),
        ("the person at the terminal", "person"),
        ("the time-out", "nobody"),
        ("the approver", "approver"),
        # It was the name of the user, whoever decided for them.
        ("local", "unknown"),
        ("the assistant", "unknown"),
    ],
)
def test_a_journal_of_an_earlier_version_is_read(text: str, kind: str) -> None:
    held = {"event": "call_decided", "call": 0, "digest": "x", "decision": "approve", "by": text}
    event = event_from_json({**held})
    assert isinstance(event, CallDecided)
    assert (event.by.kind, str(event.by)) == (kind, text)


@pytest.mark.parametrize(
    "value", [7, None, {"kind": "god", "via": "form"}, {"kind": "person", "via": "form", "user": 1}]
)
def test_a_damaged_journal_says_what_is_wrong(value: JSON) -> None:
    with pytest.raises(JournalError, match="by: expected who decided"):
        read_decider(value)
