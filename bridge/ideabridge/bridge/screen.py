"""Keep configured secrets out of journals, and therefore out of ideas.

Servers receive their secrets when they start, so there is no need to write a secret into a task, a
call or an answer. If a person or a mind writes text that contains a secret, the text is refused,
and no part of it is stored. Messages from activities, programs' output and errors, the reason why a
run ended, and malformed answers are stored without their secrets. `Executor` removes secrets from
results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ideabridge.bridge.errors import SecretGivenError
from ideabridge.bridge.loop import event as events
from ideabridge.bridge.loop.event import Event
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSONObject, object_or_empty

_WRITTEN: Final[dict[type[Event], tuple[str, ...]]] = {
    events.RunStarted: ("context", "output_schema"),
    events.CallProposed: ("call",),
    events.OutputProposed: ("output",),
    events.SolutionClosed: ("extra",),
    events.SolutionProposed: ("calls", "output", "extra"),
    events.ProgramProposed: ("program", "extra"),
    events.SolutionCancelled: ("reason",),
    events.CallDecided: ("edited", "by", "reason", "grant"),
    events.PlanDecided: ("calls", "output", "by", "reason"),
    events.OutcomeDecided: ("value", "by", "reason"),
    events.QuestionAnswered: ("content", "by", "reason"),
}
"""The parts of events that people and minds write."""


class Screen:
    """Checks events for secrets before they are journaled."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    def mask(self, text: str) -> str:
        """Return text without its secrets."""
        return self._secrets.mask(text)

    def faults(self, event: Event) -> list[JSONObject]:
        """Return `{"call", "error"}` for every secret in the parts of an event that a person or a
        mind wrote.
        """
        faults: list[JSONObject] = []
        for place, name in self._secrets.places(_written(event)):
            error: JSONObject = {"kind": "structural", "message": _message(place, name)}
            faults.append({"call": None, "error": error})

        return faults

    def check(self, written: JSONObject) -> None:
        """Raise an error if any of the members contains a secret.

        Raises:
            SecretGivenError: a member contains a secret. The message names the member and the
                secret.
        """
        places = self._secrets.places(written)
        if places:
            place, name = places[0]
            raise SecretGivenError(_message(place, name), _problem(place, name))

    def admit(self, new_events: Sequence[Event]) -> list[Event]:
        """Return the events without secrets, so that they can be journaled.

        Raises:
            SecretGivenError: a person or a mind has written a secret. The message names the secret
                and says where it is.
        """
        return [self._admitted(event) for event in new_events]

    def _admitted(self, event: Event) -> Event:
        if type(event) in _WRITTEN:
            self.check(_written(event))

        # Text from elsewhere cannot be refused, because what it reports has already happened.
        match event:
            case events.SolutionClosed() if event.error is not None:
                return replace(event, error=self._redacted_object(event.error))
            case events.Printed():
                return replace(event, text=self._redacted_text(event.text))
            case events.MessageAdded():
                return replace(event, message=self._redacted_object(event.message))
            case events.QuestionAsked():
                message = self._redacted_text(event.message)
                schema = self._redacted_object(event.schema)
                return replace(event, message=message, schema=schema)
            case events.RunEnded() if event.reason is not None:
                # People also write reasons, but a run must end when someone ends it.
                return replace(event, reason=self._redacted_text(event.reason))
            case events.SolutionRejected():
                solution = self._secrets.redact(event.solution)
                errors = [self._secrets.redact(error) for error in event.errors]
                return replace(event, solution=solution, errors=errors)
            case _:
                return event

    def _redacted_text(self, text: str) -> str:
        return str(self._secrets.redact(text))

    def _redacted_object(self, value: JSONObject) -> JSONObject:
        return object_or_empty(self._secrets.redact(value))


def _written(event: Event) -> JSONObject:
    """Return the parts of an event that a person or a mind wrote, keyed by name."""
    written: JSONObject = {}
    for name in _WRITTEN.get(type(event), ()):
        written[name] = getattr(event, name)

    if "by" in written:
        # Screen only the name of the decider, because no person or mind wrote the rest.
        written["by"] = str(written["by"])

    return written


def _problem(place: str, name: str) -> str:
    return f"{place} contains the secret {name} of the configuration"


def _message(place: str, name: str) -> str:
    return (
        f"{_problem(place, name)}. Nothing was stored; send it again without the secret. "
        "Servers receive their secrets when they start"
    )
