"""Journaled: what every event is to the journal: a name, and members that are JSON."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from typing import ClassVar

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError


class JournalError(IdeabridgeError):
    """A journal that cannot be folded: an event nobody knows, or one that does not fit the run's state."""


@dataclass(frozen=True, slots=True)
class Journaled:
    """Base of every event. Its member `by` is a `Decider`; all others are JSON."""

    name: ClassVar[str]

    def to_json(self) -> JSONObject:
        """The event as the journal holds it; members that stand at None of themselves are left out."""
        result: JSONObject = {"event": self.name}
        for name, is_null_by_default in _members(type(self)):
            value: JSON = getattr(self, name)
            if name == "by":
                # A `Decider`, the one member that is no JSON by itself.
                value = getattr(self, name).to_json()
            # A call that is null must be read again as one: only what is null by default goes without saying.
            if value is not None or not is_null_by_default:
                result[name] = value
        return result


@dataclass(frozen=True, slots=True)
class OfCall(Journaled):
    """Base of every event that belongs to a call, which `call` names by its place in the run.

    Attributes:
        tool_name: the call's tool. `Run.events` fills it in; the journal does not hold it, for it holds the call.
    """

    call: int
    tool_name: str = field(default="", kw_only=True, compare=False, metadata={"journaled": False})


@cache
def _members(kind: type[Journaled]) -> tuple[tuple[str, bool], ...]:
    """(name, whether it is null by default) of each member that the journal holds."""
    held = (member for member in fields(kind) if member.metadata.get("journaled", True))
    return tuple((member.name, member.default is None) for member in held)
