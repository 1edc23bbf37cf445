"""A person's decisions about the copied values in a draft, and about the runs on which the draft is
based.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import read_explanation
from ideabridge.bridge.context.references import is_reference, parse_reference
from ideabridge.bridge.errors import PublicationError
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError

_KEYS: Final = ("take", "runs")

MIND: Final = "mind"
"""The choice to ask a mind for the `_output` of a call each time, if a mind wrote it in the run."""

KEEP: Final = "keep"
"""The choice to keep a literal constant for every input, instead of making it a parameter. For a
call that might have been a decision (`calls.2`), it means that the plan always makes the call.
"""


@dataclass(frozen=True, slots=True)
class Choices:
    """A person's choices about a draft.

    Attributes:
        take: the replacement for each literal, keyed by the literal's path: a reference, an
            explanation, `keep`, or `mind` for an `_output`.
        runs: other runs of the same task.
    """

    take: JSONObject = field(default_factory=dict[str, JSON])
    runs: tuple[str, ...] = ()

    def to_json(self) -> JSONObject:
        """Return the choices as JSON that `read_choices` accepts."""
        form: JSONObject = {}
        if self.take:
            form["take"] = self.take
        if self.runs:
            form["runs"] = list[JSON](self.runs)
        return form


def read_choices(raw: JSONObject | None) -> Choices:
    """Read `{"take": {path: reference | explanation | "keep" | "mind"}, "runs": [ids]}`.

    Raises:
        PublicationError: the value does not have this shape. The message says where, and what was
            expected.
    """
    raw = raw or {}
    for key in raw:
        if key not in _KEYS:
            raise PublicationError(f"choices: unknown key {key!r}; expected 'take' or 'runs'")

    take = raw.get("take", {})
    if not isinstance(take, dict):
        raise PublicationError("choices.take: expected an object that maps paths to references")

    for path, value in take.items():
        _check_take(path, value)

    listed = raw.get("runs", [])
    if not isinstance(listed, list) or not all(isinstance(run, str) for run in listed):
        raise PublicationError("choices.runs: expected an array of strings")
    return Choices(take, tuple(map(str, listed)))


def _check_take(path: str, value: JSON) -> None:
    if value == KEEP or (value == MIND and path.endswith("._output")):
        return
    try:
        if isinstance(value, str) and is_reference(value):
            parse_reference(value)
        else:
            read_explanation(value, where=f"choices.take.{path}")
    except ExplanationError as error:
        raise PublicationError(f'{error}, or "keep"') from None
    except IdeabridgeError as error:
        raise PublicationError(f"choices.take.{path}: {error}") from None
