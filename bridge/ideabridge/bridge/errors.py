"""Errors of the bridge as a whole."""

from __future__ import annotations

from typing import Any

from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import IdeabridgeError


class PlanError(IdeabridgeError):
    """A plan cannot run. `errors` has an entry `{"call", "place", "error"}` for each fault."""

    def __init__(self, message: str, errors: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.errors = errors or []


class ProgramError(IdeabridgeError):
    """A program cannot run: it is malformed, or the interpreter is missing."""


class FinishedRunError(IdeabridgeError):
    """The run has ended, so it accepts no further input."""


class InterruptedRunError(IdeabridgeError):
    """The run cannot continue in this process. The message says why."""


class UnwrittenRunError(IdeabridgeError):
    """The requested values of a run are not in the journal yet, so they could still be lost.

    `await run.wait()` waits until the journal contains the values.
    """


class RunFailedError(IdeabridgeError):
    """A run has no result, or its result depends on a decision that nobody has made yet.

    Attributes:
        run: the id of the run.
        status: the status of the run.
        errors: `{"call", "place"?, "error"}` for each call or output that failed.
    """

    def __init__(self, message: str, run: str, status: str, errors: list[dict[str, Any]]) -> None:
        super().__init__(message)
        self.run = run
        self.status = status
        self.errors = errors


class ForkError(IdeabridgeError):
    """A fork is impossible: the event does not exist, the run does not accept the input, or with
    this input other calls would have run before the event.
    """


class OutputTypeError(IdeabridgeError):
    """An output does not match the requested type, or the type has no JSON Schema."""


class RoomError(IdeabridgeError):
    """The room of a call cannot be opened."""


class SettledTurnError(IdeabridgeError):
    """A turn already has a different solution, or does not belong to the run."""


class RejectedSolutionError(IdeabridgeError):
    """A solution is malformed. None of its calls ran, and the caller can send it again. The message
    lists every fault, and `errors` has an entry `{"call", "place", "error"}` for each of them.
    """

    def __init__(self, message: str, errors: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.errors = errors or []


class CallError(IdeabridgeError):
    """Calls in a session produced no value. Each cause has its own subclass.

    Attributes:
        run: the id of the session's run.
        errors: `{"call", "place", "error": {"kind", "message"}}` for each call that failed, in the
            order in which the calls are listed.
        effects: `{"call", "place", "outcome"}` for each call that might still have changed
            something, because its tool is not read-only. The outcome is `done`, `partly` (for some
            items of `_each`), or `unknown` (the call was cancelled while it ran, or its process
            ended).
    """

    def __init__(
        self, message: str, run: str, errors: list[dict[str, Any]], effects: list[dict[str, Any]]
    ) -> None:
        super().__init__(message)
        self.run = run
        self.errors = errors
        self.effects = effects


class CallFailedError(CallError):
    """The call failed or, in a race, the call that ended first failed."""


class CallDeniedError(CallError):
    """The policy or a decision denied the call."""


class UnknownOutcomeError(CallError):
    """It is unknown whether the call took effect: while it ran, its process or its server ended, or
    the server did not answer in time.
    """


class CancelledCallsError(CallError):
    """The caller cancelled the calls."""


class GroupFailedError(CallError):
    """A call in `run_all` failed. The other calls were cancelled, and no result was written to the
    state.
    """


class NoAlternativeError(CallError):
    """Every call in `run_any` failed. `errors` has one entry for each call."""


class SecretGivenError(IdeabridgeError):
    """A task, a plan or a decision contains a secret from the configuration. No part of it was
    stored.

    Attributes:
        problem: the place and the name of the secret, without the advice in the message.
    """

    def __init__(self, message: str, problem: str) -> None:
        super().__init__(message)
        self.problem = problem


class DecisionError(IdeabridgeError):
    """A decision matches no pending approval, or its edit cannot run."""


class MindUnavailableError(IdeabridgeError):
    """The requested mind does not exist."""


class PublicationError(IdeabridgeError):
    """An idea cannot be published as requested, or a published idea cannot be called in this
    way.
    """


class NoFinishedRunError(PublicationError):
    """An idea has no finished run in this store, so a tool can only be made from the idea
    itself.
    """


class NoPlanError(PublicationError):
    """A run cannot become a plan. The message says why."""


class ProgramRefusedError(PublicationError):
    """A program that was written for recorded runs is malformed, or does not reproduce the runs."""


class ConstantsOpenError(ProgramRefusedError):
    """A mind's program reproduces the run, but its text contains recorded values.

    The author of the program must declare whether these values are the same for every input.

    Attributes:
        values: the recorded values that the program's text contains.
    """

    def __init__(self, message: str, values: list[JSON]) -> None:
        super().__init__(message)
        self.values = values


class NeedsPersonError(PublicationError):
    """A person must approve the publication first, because other people would see words that a mind
    wrote. Nothing was published.
    """


class ModulesAwayError(PublicationError):
    """Some servers have not listed the tools that a publication needs. Nothing was published; the
    caller can try again later.
    """


class NameInUseError(PublicationError):
    """An import would replace a published name without permission.

    Attributes:
        ref: the publication that would be replaced, as NAME@VERSION.
        lines: one line for each difference, with complete values.
    """

    def __init__(self, ref: str, lines: list[str]) -> None:
        differences = "".join(f"\n{line}" for line in lines)
        super().__init__(
            f"{ref} is already published here, and the document would replace it. Review the "
            f"differences; to replace it, add --replace {ref}:{differences}"
        )
        self.ref = ref
        self.lines = lines


class MeantToolError(PublicationError):
    """A published idea calls a tool that is gone, unavailable, or changed. No other tool is called
    instead.
    """


class UnknownPathError(IdeabridgeError):
    """A reference has no value."""
