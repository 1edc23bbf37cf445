"""Failures: reads the errors of a Solution as documents."""

from __future__ import annotations

from dataclasses import dataclass

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.typed import read_whole


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a call failed.

    Attributes:
        message: what failed, and what was expected.
        kind: the kind of failure, such as `denied`, or "" if it is no special one.
        sent: what the tool sent although its call failed, or None if it sent nothing.
    """

    message: str
    kind: str = ""
    sent: JSON = None


def read_failure(error: JSON) -> Failure:
    """Read the error of a call. An error in another form is the message itself."""
    failure = read_whole(Failure, error)
    return Failure(str(error)) if failure is None else failure


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """One error of a Solution, as in `Feedback.errors`.

    Attributes:
        call: the call as it was written, or None if the error belongs to no call.
        place: the place of the call in the run.
        in_solution: its place in the Solution if that is another one.
        error: see `read_failure`.
    """

    call: JSONObject | None = None
    place: int | None = None
    in_solution: int | None = None
    error: JSON = None
