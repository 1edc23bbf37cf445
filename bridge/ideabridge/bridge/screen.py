"""Screen: no secret of the configuration gets into a journal, and so into no idea.

Modules are given their secrets when they start; nobody has to write one into a task, a call or an answer. What people
and minds write is therefore refused where it holds one, and nothing of it is kept; what activities say, why a run was
ended, and answers that were malformed anyway, are kept without. Results have lost
theirs before they come here (`Executor`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ideabridge.bridge.errors import SecretGivenError
from ideabridge.bridge.loop import event as events
from ideabridge.bridge.loop.event import Event
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSONObject

_WRITTEN: Final[dict[type[Event], tuple[str, ...]]] = {
    events.RunStarted: ("context", "output_schema"),
    events.CallProposed: ("call",),
    events.OutputProposed: ("output",),
    events.SolutionClosed: ("extra",),
    events.SolutionProposed: ("calls", "output", "extra"),
    events.SolutionCancelled: ("reason",),
    events.CallDecided: ("edited", "by", "reason"),
    events.PlanDecided: ("calls", "output", "by", "reason"),
    events.OutcomeDecided: ("value", "by", "reason"),
    events.QuestionAnswered: ("content", "by", "reason"),
}
"""The members of events in which something stands that a person or a mind wrote."""


class Screen:
    """Looks through events before they are taken.

    Args:
        secrets: what must not get through.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    def mask(self, text: str) -> str:
        """A text without secrets."""
        return self._secrets.mask(text)

    def faults(self, event: Event) -> list[JSONObject]:
        """`{"call", "place", "error"}` of every secret that stands in an event; empty: it may be taken."""
        places = self._secrets.places(_written(event))
        return [{"call": None, "error": {"kind": "structural", "message": _told(*place)}} for place in places]

    def check(self, written: JSONObject) -> None:
        """Let what somebody has written pass.

        Raises:
            SecretGivenError: it holds a secret; the message says where, and which.
        """
        for place, name in self._secrets.places(written):
            raise SecretGivenError(_told(place, name))

    def admit(self, taken: Sequence[Event]) -> list[Event]:
        """The events as they may be taken.

        Raises:
            SecretGivenError: a person or a mind has written a secret; the message says where, and which.
        """
        return [self._admitted(event) for event in taken]

    def _admitted(self, event: Event) -> Event:
        if type(event) in _WRITTEN:
            self.check(_written(event))
        elif isinstance(event, events.MessageAdded):
            message = self._secrets.redact(event.message)
            return replace(event, message=message) if isinstance(message, dict) else event
        elif isinstance(event, events.QuestionAsked):
            schema = self._secrets.redact(event.schema)
            message = str(self._secrets.redact(event.message))
            return replace(event, message=message, schema=schema if isinstance(schema, dict) else {})
        elif isinstance(event, events.RunEnded):
            # Not refused: who ends a run means it.
            reason = self._secrets.redact(event.reason)
            return replace(event, reason=reason) if isinstance(reason, str) else event
        elif isinstance(event, events.SolutionRejected):
            errors = [self._secrets.redact(error) for error in event.errors]
            return replace(event, solution=self._secrets.redact(event.solution), errors=errors)
        return event


def _written(event: Event) -> JSONObject:
    written: JSONObject = {name: getattr(event, name) for name in _WRITTEN.get(type(event), ())}
    if "by" in written:
        # The name of a user or of an approver.
        written["by"] = str(written["by"])
    return written


def _told(place: str, name: str) -> str:
    return (
        f"{place}: holds the secret {name} of the configuration, which stands in no task, call or answer: modules are "
        "given theirs when they start. Nothing of it was kept; send it again without"
    )
