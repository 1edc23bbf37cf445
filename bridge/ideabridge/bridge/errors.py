"""Errors of the bridge as a whole."""

from __future__ import annotations

from typing import Any

from ideabridge.tools.errors import IdeabridgeError


class PlanError(IdeabridgeError):
    """A plan that cannot run; `errors` has one entry `{"call", "place", "error"}` for each fault."""

    def __init__(self, message: str, errors: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.errors = errors or []


class FinishedRunError(IdeabridgeError):
    """The run has ended; nothing more can be handed in."""


class InterruptedRunError(IdeabridgeError):
    """The run cannot be gone on with here; the message says why."""


class UnwrittenRunError(IdeabridgeError):
    """Values of a run were asked for while its journal does not hold the last ones yet: they could still be lost.
    `await run.wait()` waits until it does.
    """


class RunFailedError(IdeabridgeError):
    """A run that gave no result, or waits for somebody before it can.

    Attributes:
        run: its id.
        status: where it stands.
        errors: `{"call", "place"?, "error"}` of each call or output that failed.
    """

    def __init__(self, message: str, run: str, status: str, errors: list[dict[str, Any]]) -> None:
        super().__init__(message)
        self.run = run
        self.status = status
        self.errors = errors


class ForkError(IdeabridgeError):
    """A fork that cannot be: no such event, an input the run does not take, or one with which other calls would have
    run before it.
    """


class OutputTypeError(IdeabridgeError):
    """An output that does not fit the type asked for, or a type of which there is no JSON Schema."""


class RoomError(IdeabridgeError):
    """A call whose room cannot be opened."""


class SettledTurnError(IdeabridgeError):
    """Another solution for a turn that is settled, or a turn that is not the run's."""


class RejectedSolutionError(IdeabridgeError):
    """A malformed solution: nothing of it ran, and it can be sent again. The message lists every fault, `errors` has
    one entry `{"call", "place", "error"}` for each.
    """

    def __init__(self, message: str, errors: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.errors = errors or []


class CallError(IdeabridgeError):
    """Calls of a session that gave no value; one class for each cause.

    Attributes:
        run: id of the session's run.
        errors: `{"call", "place", "error": {"kind", "message"}}` of each call that failed, in listing order.
        effects: `{"call", "place", "outcome"}` of each call of a tool that is not read-only which may have changed
            something outside all the same: `done`, `partly` (some items of `_each`), or `unknown` (it was cancelled
            while it ran, or its process died).
    """

    def __init__(self, message: str, run: str, errors: list[dict[str, Any]], effects: list[dict[str, Any]]) -> None:
        super().__init__(message)
        self.run = run
        self.errors = errors
        self.effects = effects


class CallFailedError(CallError):
    """The call, or the first of a race to end, failed."""


class CallDeniedError(CallError):
    """The call was denied, by a person or a policy."""


class UnknownOutcomeError(CallError):
    """Nobody knows whether the call took effect: its process or its module ended while it ran, or did not answer in
    time.
    """


class CancelledCallsError(CallError):
    """The calls were cancelled by whoever had asked for them."""


class GroupFailedError(CallError):
    """A call of `run_all` failed: the others were cancelled, and nothing was written."""


class NoAlternativeError(CallError):
    """Every call of `run_any` failed; `errors` has them all."""


class SecretGivenError(IdeabridgeError):
    """A secret of the configuration in a task, a plan or a decision: nothing of it was kept."""


class DecisionError(IdeabridgeError):
    """A decision that fits no pending approval, or an edit that cannot run."""


class MindUnavailableError(IdeabridgeError):
    """A mind that was asked for and is not there."""


class PublicationError(IdeabridgeError):
    """An idea that cannot be published as asked, or a published one that cannot be called so."""


class ModulesAwayError(PublicationError):
    """Modules whose tools a publication needs have not listed them: what it would become depends on when they are up.
    Nothing was published; the same may succeed later.
    """


class NameInUseError(PublicationError):
    """An import that would replace what a published name stands for, and nobody has said that it may.

    Attributes:
        ref: what would be replaced, as NAME@VERSION.
        lines: what would be other, a line for each, with every value whole.
    """

    def __init__(self, ref: str, lines: list[str]) -> None:
        told = "".join(f"\n{line}" for line in lines)
        super().__init__(
            f"{ref} is published here, and the document would replace it. Look at the difference, and say that it may"
            f" be replaced (--replace {ref}):{told}"
        )
        self.ref = ref
        self.lines = lines


class MeantToolError(PublicationError):
    """A published idea calls a tool that is gone, away or changed; no other tool takes its place."""


class UndecidedError(PublicationError):
    """A publication that waits for what a person must decide first.

    Attributes:
        open: what is to be decided, a line for each kind.
        paths: what `choices.accept` names it by.
        unexplained: paths that cannot be accepted: where their values come from must be said (`choices.take`).
    """

    def __init__(self, message: str, open_: list[str], paths: list[str], unexplained: list[str]) -> None:
        super().__init__(message)
        self.open = open_
        self.paths = paths
        self.unexplained = unexplained


class UnknownPathError(IdeabridgeError):
    """A reference asked for by a caller at which nothing stands."""
