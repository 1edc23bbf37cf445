"""Guidance: a plan message, and where its calls stand at a later Request.

A call whose output path is written is done. One without an output path is done where the run has made the same call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from ideabridge.bridge.context.document import Missing, read
from ideabridge.bridge.context.errors import ReferenceSyntaxError
from ideabridge.bridge.context.message import Message
from ideabridge.bridge.context.reference import Path, parse_target
from ideabridge.bridge.loop.progress import Progress, Standing
from ideabridge.tools.encoding import JSON, JSONObject, encode_text

_CALLS: Final = 200
"""Calls of one plan whose standing is told."""

_NAMED: Final = 5
"""Instances named where a call is not done in them."""


class Guidance:
    """Tells where plans stand.

    Args:
        documents: of the run, by instance.
        instances: of the run.
        history: its calls so far.
    """

    def __init__(self, documents: Mapping[str, JSON], instances: list[str], history: Iterable[Progress]) -> None:
        self._documents = documents
        self._instances = instances
        self._made = {(one.call.instance, _written(one.call.raw)) for one in history if one.standing is Standing.DONE}

    def told(self, message: Message) -> Message:
        """A plan message with `standing`: of each call `{"place", "tool", "writes"?, "done"}`; where there are
        instances, `done` is in how many `of` them, and `not_done` names some of the others.
        """
        plan: JSONObject = message.value if isinstance(message.value, dict) else {"calls": message.value}
        calls = plan.get("calls")
        if not isinstance(calls, list):
            return message
        standing: list[JSON] = [
            self._entry(place, call, message.instance)
            for place, call in enumerate(calls[:_CALLS])
            if isinstance(call, dict)
        ]
        return dataclasses.replace(message, value={**plan, "standing": standing})

    def has_begun(self, message: Message) -> bool:
        """Whether any call of a plan message is done."""
        told = self.told(message).value
        standing = told.get("standing") if isinstance(told, dict) else None
        return isinstance(standing, list) and any(isinstance(one, dict) and one["done"] for one in standing)

    def _entry(self, place: int, call: JSONObject, instance: str) -> JSONObject:
        entry: JSONObject = {"place": place, "tool": call.get("_tool")}
        target = call.get("_outputPath")
        if isinstance(target, str):
            entry["writes"] = target
        named = call.get("_instance", instance)
        where = [named] if isinstance(named, str) and named else self._instances
        if not where:
            return {**entry, "done": self._is_done(call, "")}
        left = [one for one in where if not self._is_done(call, one)]
        if len(where) == 1:
            return {**entry, "instance": where[0], "done": not left}
        entry |= {"done": len(where) - len(left), "of": len(where)}
        if left and len(left) < len(where):
            entry["not_done"] = list[JSON](left[:_NAMED])
        return entry

    def _is_done(self, call: JSONObject, instance: str) -> bool:
        paths = _paths(call)
        if not paths:
            return (instance, _written(call)) in self._made
        document = self._documents.get(instance, {})
        return any(not isinstance(read(document, path), Missing) for path in paths)


def _paths(call: JSONObject) -> tuple[Path, ...]:
    target = call.get("_outputPath")
    try:
        return parse_target(target).paths if isinstance(target, str) else ()
    except ReferenceSyntaxError:
        # A plan that guides need not be one that could run.
        return ()


def _written(call: JSONObject) -> str:
    return encode_text({key: value for key, value in call.items() if key != "_instance"})
