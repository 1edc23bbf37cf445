"""Rounds: a request that is answered with questions to its client, and comes again with the answers (MCP 2026-07-28).

Up to 2025-11-25 questions go out on the back-channel of the request instead, while it waits.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode_text

if TYPE_CHECKING:
    from mcp_types import ElicitResult

    from ideabridge.bridge.runs.run import Run

MAX_FORM_ROUNDS: Final = 9
"""Rounds of forms within one call: SDK clients end a call after ten."""

STATE_SECONDS: Final = 7 * 86_400.0
"""How long a person may take to answer. Time-outs of approvals are the configuration's."""


@dataclass(slots=True)
class ToolRequest:
    """One request for a tool: who asks, and the way back for progress.

    Attributes:
        resumed: the run the request started already, where it comes again with what a person said.
        round: how often questions went out for it, and which were left open.
        sampled: how often the client's model was asked on its back-channel, one question after the other.
        halted: its model is asked no more within this request.
        key: what tells a client without a session from others; kept in the rounds of the request.
        said: what a person said to a form that is about no run, and how many seconds after it went out, where the
            request comes again with it.
        told: notes for the caller: why it is asked for a solution, say.
    """

    caller: str
    context: ServerRequestContext[Any, Any]
    resumed: Run | None = None
    round: Round | None = None
    sampled: int = 0
    halted: bool = False
    key: str = ""
    said: tuple[ElicitResult, float] | None = None
    told: list[str] = field(default_factory=list[str])

    @property
    def wants_progress(self) -> bool:
        """Whether the client asked for progress notifications."""
        meta = self.context.meta
        return meta is not None and "progress_token" in meta

    @property
    def client(self) -> Hashable:
        """What its direct calls wait in one queue with: those of its session; over HTTP without one, those of its
        connection. Neither a user nor an address tells assistants at one machine apart.
        """
        request = self.context.request
        if not isinstance(request, Request):
            return "stdio"
        return ("client", self.caller, request.headers.get("mcp-session-id") or request.client)


def has_back_channel(asked: ToolRequest) -> bool:
    """Whether a question can be sent while the request waits."""
    return asked.context.session.can_send_request


def has_rounds(asked: ToolRequest) -> bool:
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
        key: see `ToolRequest.key`.
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
