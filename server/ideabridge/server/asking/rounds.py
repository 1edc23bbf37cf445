"""The state of a tool request across its rounds. In a round, the server responds to a request with
questions, and the client repeats the request with the answers (MCP 2026-07-28).

Up to 2025-11-25, questions are instead sent on the back-channel of the waiting request.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from ideabridge.server.callers import client_key
from ideabridge.tools.encoding import JSONObject

if TYPE_CHECKING:
    from mcp_types import ElicitResult, InputResponse

    from ideabridge.bridge.modules.module_call import OnProgress
    from ideabridge.bridge.runs.run import Run

MAX_FORM_ROUNDS: Final = 9
"""Maximum number of rounds of forms in one call. SDK clients end a call after ten rounds."""

STATE_SECONDS: Final = 7 * 86_400.0
"""Time limit, in seconds, for a person's answer. Approvals have their own configured timeout."""


@dataclass(slots=True)
class ToolRequest:
    """A request to call a tool.

    Attributes:
        resumed: the run that the request started earlier, if the request is repeated with answers.
        round: the state of the request after its rounds so far.
        sampled: the number of questions sent to the client's model on the back-channel.
        halted: whether to stop asking the client's model during this request.
        key: identifies a client that has no session. All rounds of a request have the same key.
        form_answer: the answer to a form that does not belong to a run, and the seconds since the
            form was sent.
        notes: notes for the caller, such as why the caller is asked for a solution.
        relayed: the last round of a repeated direct call whose server asked a question.
        responses: the answers in the request, keyed by the names of their questions.
    """

    caller: str
    context: ServerRequestContext[Any, Any]
    resumed: Run | None = None
    round: Round | None = None
    sampled: int = 0
    halted: bool = False
    key: str = ""
    form_answer: tuple[ElicitResult, float] | None = None
    notes: list[str] = field(default_factory=list[str])
    relayed: Round | None = None
    responses: Mapping[str, InputResponse] | None = None

    @property
    def wants_progress(self) -> bool:
        """True if the client asked for progress notifications."""
        meta = self.context.meta
        return meta is not None and "progress_token" in meta

    @property
    def progress(self) -> OnProgress | None:
        """The function that sends a progress notification, or None if the client does not want
        any.
        """
        return self.context.session.report_progress if self.wants_progress else None

    @property
    def client(self) -> Hashable:
        """The key of the client's queue of direct calls; see `client_key`."""
        return client_key(self.context)

    @property
    def has_back_channel(self) -> bool:
        """True if questions can be sent while the request is waiting."""
        return self.context.session.can_send_request

    @property
    def has_rounds(self) -> bool:
        """True if the response can contain questions and the request can be repeated."""
        return self.context.session.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def samples(self) -> bool:
        """True if the client declares sampling and can be asked."""
        capabilities = self.context.session.client_capabilities
        declared = capabilities is not None and capabilities.sampling is not None
        return declared and (self.has_back_channel or self.has_rounds)

    @property
    def samples_with_tools(self) -> bool:
        """True if the client supports tools in sampling."""
        capabilities = self.context.session.client_capabilities
        sampling = capabilities.sampling if capabilities is not None else None
        return sampling is not None and sampling.tools is not None

    @property
    def takes_forms(self) -> bool:
        """True if the client declares forms and can be asked. `elicitation` without details
        includes forms.
        """
        capabilities = self.context.session.client_capabilities
        elicitation = capabilities.elicitation if capabilities is not None else None
        declared = elicitation is not None and (
            elicitation.form is not None or elicitation.url is None
        )
        return declared and (self.has_back_channel or self.has_rounds)


@dataclass(frozen=True, slots=True)
class Sample:
    """A Request that was sent to the client's model.

    Attributes:
        run: the run (or room) that is waiting for the solution.
        turn: the turn of this Request.
        attempt: the number of malformed answers to this Request so far.
    """

    run: str
    turn: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Round:
    """The content of the sealed state in a repeated request.

    Attributes:
        run: the id of the run.
        number: the number of rounds so far.
        asked: the approvals that the last forms asked about. Only these can be answered.
        left: the approvals that the person left open, which this request does not ask about again.
        samples: the Requests that were last sent to the client's model.
        faults: for each approval that the person is asked about again, the number of rejected
            answers, and why the last one was rejected.
        at: the time at which the forms were sent, in seconds since 1970.
        key: see `ToolRequest.key`.
        state: the state of the server whose questions are relayed; see `relaying`.
        questions: the server's open questions, keyed by name, in wire form and unmarked.
        given: the answers for the server, keyed by name, in wire form.
        tries: how many times these questions have been repeated.
        parked: the key of a parked call and the process that holds it, or "".
    """

    run: str
    number: int = 0
    asked: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()
    faults: Mapping[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    at: float = 0.0
    key: str = ""
    state: str | None = None
    questions: Mapping[str, Any] = field(default_factory=dict[str, Any])
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tries: int = 0
    parked: str = ""

    @property
    def is_relayed(self) -> bool:
        """True if the round belongs to a direct call whose server asked the client something."""
        return self.state is not None or bool(self.questions) or bool(self.parked)


_STATE: Final = TypeAdapter(Round)


def read_state(text: str) -> Round:
    """Read the round from a state that is already unsealed."""
    return _STATE.validate_json(text)


def sample_key(number: int) -> str:
    """Return the name of the n-th Request in a round, which its answer also has."""
    return f"solution-{number}"


class InputRequired(Exception):  # noqa: N818 - not an error
    """Raised to respond to the request with questions. `result` is an `InputRequiredResult` in wire
    form.

    If no further round follows, the client repeats the request with only the answers.
    """

    def __init__(self, questions: JSONObject, following: Round | None) -> None:
        super().__init__("input required")
        self.result: dict[str, Any] = {
            "resultType": "input_required",
            "inputRequests": questions,
        }
        if following is not None:
            self.result["requestState"] = _STATE.dump_json(following).decode()
