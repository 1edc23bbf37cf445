"""Failures: reads the errors of a Solution as typed documents."""

from __future__ import annotations

from dataclasses import dataclass

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.typed import read_whole


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call failed.

    Attributes:
        message: what failed, and what was expected.
        kind: the kind of failure, such as `denied`, or "" if the failure has no particular kind.
        sent: the content that the tool sent although the call failed, or None if the tool did not
            send any.
    """

    message: str
    kind: str = ""
    sent: JSON = None


def read_failure(error: JSON) -> Failure:
    """Read a call's error. If the error has a different form, the whole error becomes the
    message.
    """
    failure = read_whole(Failure, error)
    return Failure(str(error)) if failure is None else failure


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """One of a Solution's errors, as in `Feedback.errors`.

    Attributes:
        call: the call as it was written, or None if the error belongs to no call.
        place: the place of the call in the run.
        in_solution: the call's place in the Solution, if it differs from `place`.
        error: see `read_failure`.
    """

    call: JSONObject | None = None
    place: int | None = None
    in_solution: int | None = None
    error: JSON = None
