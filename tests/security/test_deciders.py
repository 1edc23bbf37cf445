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
    [
        AT_TERMINAL,
        TIME_OUT,
        BRIDGE,
        FORK,
        MODULE,
        Decider("assistant", "tool", "ann"),
        decider_of("Ann"),
    ],
)
def test_a_decider_is_read_again_as_it_was_journaled(decider: Decider) -> None:
    event = CallDecided(3, "digest", "deny", decider, "no")
    told = event.to_json()
    assert told["by"] == decider.to_json()
    assert event_from_json(told) == event


@pytest.mark.parametrize(
    "value",
    [
        7,
        None,
        "the approver",
        {"kind": "god", "via": "form"},
        {"kind": "person", "via": "form", "user": 1},
    ],
)
def test_a_damaged_journal_says_what_is_wrong(value: JSON) -> None:
    with pytest.raises(JournalError, match="by: expected the decider as"):
        read_decider(value)
