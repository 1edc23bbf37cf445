"""Translate the calls in a conversation into calls in a run, as if they had been made through
ideabridge.

A conversation is split into stretches at pauses of ten minutes. Each stretch becomes a run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ideabridge.bridge.history.conversation import Conversation, HistoryCall
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.runs.stretch import EndedCall
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSON, JSONObject, decode, encode, normalise, object_or_empty
from ideabridge.tools.errors import IdeabridgeError, InvalidJSONError
from ideabridge.tools.tool import Tool

STRETCH_PAUSE: Final = 600.0
"""The minimum length, in seconds, of a pause that ends a stretch."""

LONGEST_CALL: Final = 3600.0
"""The maximum time, in seconds, that a call without a result counts as running."""


@dataclass(slots=True)
class Stretch:
    """Calls in a conversation without a long pause between them.

    Attributes:
        conversation: the conversation.
        calls: the calls, at least one.
    """

    conversation: Conversation
    calls: list[HistoryCall]

    @property
    def time(self) -> float | None:
        """When the stretch began, in seconds since 1970."""
        return next((call.time for call in self.calls if call.time is not None), None)

    @property
    def last(self) -> float | None:
        """The last time at which a call in the stretch was active."""
        times = [call.last_seen for call in self.calls]
        return max((time for time in times if time is not None), default=None)

    @property
    def modules(self) -> list[str]:
        """The servers that the stretch calls, without duplicates."""
        return list(dict.fromkeys(call.module for call in self.calls))

    @property
    def prompt(self) -> str:
        """The person's request."""
        return next((call.prompt for call in self.calls if call.prompt), "")


def stretches(conversation: Conversation, is_taken: Callable[[HistoryCall], bool]) -> list[Stretch]:
    """Split a conversation at its pauses, leaving out calls that were imported earlier.

    Time during which a call is active does not count as a pause.
    """
    cut: list[Stretch] = []
    last: float | None = None
    for call in conversation.calls:
        is_after_pause = False
        if call.time is not None:
            is_after_pause = last is not None and call.time - last >= STRETCH_PAUSE

        seen = call.last_seen
        if seen is not None:
            last = seen if last is None else max(last, seen)

        if is_taken(call):
            continue
        if not cut or is_after_pause:
            cut.append(Stretch(conversation, []))

        cut[-1].calls.append(call)

    return cut


_REPLACED: Final = re.compile(r"[^A-Za-z0-9_-]")
"""The characters of a tool's name that hosts replace in logs."""


class Tools:
    """Finds the tools of servers by their names in logs, in which hosts replace some characters.

    Args:
        catalogue: the current tools.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._by_name: dict[tuple[str, str], Tool] = {}
        for listed in catalogue.tools:
            tool = listed.real
            if tool.module is not None:
                self._by_name[tool.module, tool.origin[1]] = tool
                self._by_name.setdefault((tool.module, _plain(tool.origin[1])), tool)

    def of(self, call: HistoryCall) -> Tool | None:
        """Return the tool of a call, or None if the call's server does not offer it now."""
        tool = self._by_name.get((call.module, call.tool))
        if tool is not None:
            return tool
        return self._by_name.get((call.module, _plain(call.tool)))


def _plain(name: str) -> str:
    return _REPLACED.sub("_", name)


@dataclass(slots=True)
class Recording:
    """The calls in a stretch that can become calls in a run.

    Attributes:
        calls: the calls in the log.
        ended: the same calls, as calls in a run.
        left: the number of calls that cannot be part of a run, keyed by reason.
        incomplete: why results differ from what the tools returned, keyed by the number of the call
            in the run.
    """

    calls: list[HistoryCall] = field(default_factory=list[HistoryCall])
    ended: list[EndedCall] = field(default_factory=list[EndedCall])
    left: Counter[str] = field(default_factory=Counter[str])
    incomplete: dict[int, str] = field(default_factory=dict[int, str])


def record(
    stretch: Stretch, catalogue: Catalogue, secrets: Secrets, *, result_bytes: int, run_bytes: int
) -> Recording:
    """Translate the calls in a stretch into calls in a run.

    Args:
        stretch: the calls.
        catalogue: the current tools.
        secrets: the secrets to remove from results.
        result_bytes: the maximum size of a result, in bytes.
        run_bytes: the maximum size of all results together, in bytes.
    """
    recording = Recording()
    tools = Tools(catalogue)
    translated = list[tuple[Tool, JSONObject]]()
    for call in stretch.calls:
        if call.rejected:
            recording.left["that a person rejected"] += 1
            continue

        tool = tools.of(call)
        if tool is None:
            recording.left["of a tool that its server no longer has"] += 1
            continue

        parameters = _parameters(call, tool)
        if parameters is None or not catalogue.exact(tool).is_valid(parameters):
            recording.left["with arguments that do not fit the tool now"] += 1
            continue

        recording.calls.append(call)
        translated.append((tool, parameters))

    ends = _Ends(secrets, result_bytes, run_bytes)
    for place, (call, (tool, parameters), step) in enumerate(
        zip(recording.calls, translated, _steps(recording.calls), strict=True)
    ):
        end = ends.of(call, tool)
        recording.ended.append(
            EndedCall(tool, parameters, step, end.value, end.error, call.time, call.ended_at)
        )
        if end.missing is not None:
            recording.incomplete[place] = end.missing

    return recording


def _steps(calls: Sequence[HistoryCall]) -> list[int]:
    """Return the step number of each call. Calls belong to the same step if they were made before
    any of them had a result.
    """
    steps: list[int] = []
    step = 0
    ended: list[HistoryCall] = []
    for call in calls:
        if any(_follows(call, other) for other in ended):
            step += 1
            ended = []

        steps.append(step)
        if call.ended is not None:
            ended.append(call)

    return steps


def _follows(call: HistoryCall, ended: HistoryCall) -> bool:
    """Return whether a call was made after another one had ended.

    Neither the times nor the line numbers alone are sufficient, because several lines can have the
    same time, and lines can be written late.
    """
    times = (call.time, ended.ended_at)
    if times[0] is not None and times[1] is not None and times[0] != times[1]:
        return times[0] > times[1]
    return ended.ended is not None and call.line >= ended.ended


def _parameters(call: HistoryCall, tool: Tool) -> JSONObject | None:
    """Return the arguments, keyed by the current names of the tool's parameters, or None if a call
    cannot have them.
    """
    try:
        arguments = normalise(call.arguments, what="the arguments")
    except IdeabridgeError:
        return None

    if not isinstance(arguments, dict):
        return None

    own_names = {name_of_server: mine for mine, name_of_server in tool.renamed.items()}
    named = {own_names.get(name, name): value for name, value in arguments.items()}
    declared = object_or_empty(tool.parameters.get("properties"))
    # An undeclared argument could be mistaken for a meta-property such as `_output`, so its name
    # must not begin with an underscore.
    if any(name.startswith("_") and name not in declared for name in named):
        return None
    return named


@dataclass(frozen=True, slots=True)
class _End:
    value: JSON = None
    error: JSONObject | None = None
    missing: str | None = None


class _Ends:
    """Converts the results of recorded calls to the form that they have in a run: without secrets,
    and within the limits of a run.
    """

    def __init__(self, secrets: Secrets, result_bytes: int, run_bytes: int) -> None:
        self._secrets = secrets
        self._most = result_bytes
        self._left = run_bytes

    def of(self, call: HistoryCall, tool: Tool) -> _End:
        """Return the end of a call."""
        if call.error is not None:
            return _End(error={"kind": "runtime", "message": self._secrets.mask(call.error)})
        if call.ended is None:
            return _End(
                error={"kind": "unknown", "message": "the log has no result; it may have run"}
            )

        value = call.result
        missing = call.missing or call.doubt or None
        try:
            if tool.output is not None and isinstance(value, str) and missing is None:
                value = _structured(tool.output, value)

            if tool.wrapper is not None and isinstance(value, dict) and list(value) == ["result"]:
                value = value["result"]

            value = self._secrets.redact(normalise(value, what="the result"))
            size = len(encode(value))
        except IdeabridgeError as error:
            return _End(missing=f"it cannot be read: {error}")

        if size > min(self._most, self._left):
            return _End(missing=f"it has {size:,} bytes, which is more than a run may contain")
        self._left -= size
        return _End(value, missing=missing)


def _structured(output: JSONObject, text: str) -> JSON:
    """Read a structured result from the text that the host kept.

    Raises:
        InvalidJSONError, LimitExceededError: the text is not a structured result.
    """
    try:
        value = decode(text, what="its text")
    except InvalidJSONError:
        if output.get("type") != "string":
            raise
        return text

    # The host has kept either the text itself or JSON that contains it.
    if output.get("type") == "string" and not isinstance(value, dict):
        return text
    return value
