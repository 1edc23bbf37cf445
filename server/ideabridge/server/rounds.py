"""Rounds: a request that is answered with questions to its client, and comes again with the answers (MCP 2026-07-28).

Up to 2025-11-25 questions go out on the back-channel of the request instead, while it waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ideabridge.server.callers import Asked
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode_text

ROUNDS: Final = 9
"""Rounds of forms within one call: SDK clients end a call after ten."""

STATE_SECONDS: Final = 7 * 86_400.0
"""How long a person may take to answer. Time-outs of approvals are the configuration's."""


def has_back_channel(asked: Asked) -> bool:
    """Whether a question can be sent while the request waits."""
    return asked.context.session.can_send_request


def has_rounds(asked: Asked) -> bool:
    """Whether the request can be answered with questions, and come again."""
    return asked.context.session.protocol_version in MODERN_PROTOCOL_VERSIONS


@dataclass(frozen=True, slots=True)
class Sample:
    """A Request that went out to the client's model.

    Attributes:
        run: the run that waits for the solution; it may be a room.
        turn: the turn the solution is for.
        attempt: how many answers to it were malformed before.
    """

    run: str
    turn: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Round:
    """What the sealed state of a request says when it comes again.

    Attributes:
        run: id of its run.
        number: how many rounds there were.
        asked: approvals whose forms went out last: only these may be answered.
        left: approvals the person left open: not asked about again within this request.
        samples: Requests that went out to the client's model last.
        faults: approvals asked about again, with how often the answer was not taken, and why the last was not.
        key: see `Asked.key`.
        at: when the forms went out, in seconds since 1970; 0: an earlier version, which did not say.
    """

    run: str
    number: int = 0
    asked: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()
    faults: Mapping[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    at: float = 0.0
    key: str = ""

    def to_state(self) -> str:
        """The state as text; the server seals it."""
        samples: list[JSON] = [[one.run, one.turn, one.attempt] for one in self.samples]
        faults: JSONObject = {approval: [tries, why] for approval, (tries, why) in self.faults.items()}
        left: list[JSON] = [*self.left]
        held: JSONObject = {"run": self.run, "n": self.number, "asked": [*self.asked], "left": left}
        return encode_text({**held, "samples": samples, "faults": faults, "at": self.at, "key": self.key})


def read_state(text: str) -> Round:
    """The round of an unsealed state."""
    held: Any = decode_trusted(text.encode())
    # A state of the version before, which knew no samples and no faults, may come back for days.
    samples = tuple(Sample(*one) for one in held.get("samples", ()))
    faults = {approval: (tries, why) for approval, (tries, why) in held.get("faults", {}).items()}
    return Round(
        held["run"],
        held["n"],
        tuple(held["asked"]),
        tuple(held["left"]),
        samples,
        faults,
        held.get("at", 0.0),
        held.get("key", ""),
    )


def sample_key(number: int) -> str:
    """The name under which the n-th Request of a round goes out, and its answer comes back."""
    return f"solution-{number}"


class InputRequired(Exception):  # noqa: N818 - no error: the request is answered with questions
    """The answer of a request that comes again; `result` is an `InputRequiredResult` in its wire form."""

    def __init__(self, questions: JSONObject, following: Round) -> None:
        super().__init__("input required")
        self.result: dict[str, Any] = {
            "resultType": "input_required",
            "inputRequests": questions,
            "requestState": following.to_state(),
        }
