"""Read the errors of a Solution as typed documents, and find out why its calls failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.typed import read_whole


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call failed.

    Attributes:
        message: what failed, and what was expected.
        kind: the kind of failure, such as `denied`, or "" if it has no particular kind.
        sent: the content that the tool sent although the call failed, or None if it sent none.
    """

    message: str
    kind: str = ""
    sent: JSON = None


CallFailure: TypeAlias = Literal["failed", "denied", "cancelled"]
"""Why a call has no result: it failed, a person or a rule denied it, or it was cancelled."""


def failure_of(kind: str) -> CallFailure:
    """Return why a call has no result, based on the kind of its error."""
    if kind == "denied":
        return "denied"
    return "cancelled" if kind == "cancelled" else "failed"


def graver(one: CallFailure | None, other: CallFailure | None) -> CallFailure | None:
    """Return the more serious of two outcomes of executions of a call. None means that an execution
    has a result.
    """
    return next((failure for failure in get_args(CallFailure) if failure in (one, other)), None)


NOT_RUN: Final = "dependency"
"""The kind of error of a call that never started because a call that it reads has no result."""

NO_OUTPUT: Final = "the output could not be produced"
"""Why a run failed if its output reads a value that no call wrote."""

_FOLLOWS: Final = frozenset({"denied", NOT_RUN, "output"})
"""The kinds of errors that a denied call can cause: in the call itself, in the calls that read its
result, and in the output.
"""


def caused_by_denials(errors: Sequence[JSONObject]) -> int:
    """Return how many of a Solution's errors are due to denied calls.

    If an error has another cause, only the denied calls count.
    """
    failures = [read_failure(error.get("error")) for error in errors]
    kinds = Counter(failure.kind for failure in failures)
    if kinds["denied"] and _FOLLOWS.issuperset(failure.kind for failure in failures):
        return len(failures)
    return kinds["denied"]


def not_run(errors: Sequence[JSONObject]) -> int:
    """Return how many of a Solution's calls never started because a call that they read has no
    result.
    """
    return sum(read_failure(error.get("error")).kind == NOT_RUN for error in errors)


def read_failure(error: JSON) -> Failure:
    """Read the error of a call. If the error has an unknown form, the whole error becomes the
    message.
    """
    failure = read_whole(Failure, error)
    return Failure(str(error)) if failure is None else failure


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """An error of a Solution, as in `Feedback.errors`.

    Attributes:
        call: the call as it was written, or None if the error does not belong to a call.
        place: the place of the call in the run.
        in_solution: the call's place in the Solution, if it differs from `place`.
        error: see `read_failure`.
    """

    call: JSONObject | None = None
    place: int | None = None
    in_solution: int | None = None
    error: JSON = None
