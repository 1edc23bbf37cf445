"""Requests for tools, and rounds: requests that are answered with questions and come again (MCP 2026-07-28).

Up to 2025-11-25 questions go out on the back-channel of the waiting request instead.
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
"""How long a person may take to answer. The configuration has the time-out of approvals."""


@dataclass(slots=True)
class ToolRequest:
    """One request for a tool.

    Attributes:
        resumed: the run that the request has started, if the request comes again with answers.
        round: its rounds so far.
        sampled: the number of questions to the client's model on the back-channel.
        halted: whether the client's model is not asked again within this request.
        key: identifies a client without a session; kept in the rounds of the request.
        said: the answer to a form that belongs to no run, and the seconds since the form was sent.
        told: notes for the caller, such as why it is asked for a solution.
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
        """The key of the queue of its direct calls: its session, or over HTTP without a session its connection. User
        and address are the same for all assistants on one machine.
        """
        request = self.context.request
        if not isinstance(request, Request):
            return "stdio"
        return ("client", self.caller, request.headers.get("mcp-session-id") or request.client)


def has_back_channel(asked: ToolRequest) -> bool:
    """Whether questions can be sent while the request waits."""
    return asked.context.session.can_send_request


def has_rounds(asked: ToolRequest) -> bool:
    """Whether the request can be answered with questions and come again."""
    return asked.context.session.protocol_version in MODERN_PROTOCOL_VERSIONS


@dataclass(frozen=True, slots=True)
class Sample:
    """A Request that was sent to the client's model.

    Attributes:
        run: the run (or room) that waits for the solution.
        turn: its turn.
        attempt: the number of malformed answers before.
    """

    run: str
    turn: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Round:
    """The content of the sealed state of a request.

    Attributes:
        run: the id of its run.
        number: the number of rounds.
        asked: the approvals of the last forms; only these may be answered.
        left: the approvals that the person left open; this request does not ask about them again.
        samples: the last Requests to the client's model.
        faults: the approvals that are asked about again: the number of refused answers, and the last reason.
        key: see `ToolRequest.key`.
        at: the time of the forms in seconds since 1970.
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
    samples = tuple(Sample(*one) for one in held["samples"])
    faults = {approval: (tries, why) for approval, (tries, why) in held["faults"].items()}
    asked, left = tuple(held["asked"]), tuple(held["left"])
    return Round(held["run"], held["n"], asked, left, samples, faults, held["at"], held["key"])


def sample_key(number: int) -> str:
    """The name of the n-th Request of a round, and of its answer."""
    return f"solution-{number}"


class InputRequired(Exception):  # noqa: N818 - not an error
    """Answers the request with questions; `result` is an `InputRequiredResult` in its wire form."""

    def __init__(self, questions: JSONObject, following: Round) -> None:
        super().__init__("input required")
        self.result: dict[str, Any] = {
            "resultType": "input_required",
            "inputRequests": questions,
            "requestState": following.to_state(),
        }
