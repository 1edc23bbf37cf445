"""Describe references such as `†state.orders` in words for people."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.errors import ReferenceSyntaxError
from ideabridge.bridge.context.references import (
    Path,
    PathIndex,
    Reference,
    is_reference,
    map_references,
    parse_reference,
    parse_target,
)
from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.server.ui.showing import in_one_line
from ideabridge.server.views.value_table import parameter_label, tool_of
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import ToolKey

_LONGEST_PATH: Final = 60

_REFERENCE: Final = re.compile(r'†(?:[^\s\[\]"|&,;:()]|\[\d+\]|\["(?:[^"\\]|\\.)*"\])+')
"""Matches a reference within a sentence."""

_NOT_PARAMETERS: Final = ("_tool", "_module", "_outputPath")

_TITLES: Final[dict[tuple[ToolKey, str], str]] = {((None, "compute"), "code"): "Formula"}
"""What people read as the name of a parameter whose own name does not say what to enter."""

_HOW: Final = {"_each": "for each item of", "_after": "after"}
"""Phrases for members of a call that say how it runs."""


@dataclass(frozen=True, slots=True)
class ShownParameter:
    """A parameter of a call as people see it.

    Attributes:
        name: the name of the parameter.
        value: the value of the parameter on one line, with a reference in words.
        reference: the reference as written, or "" if the value is not a reference.
    """

    name: str
    value: str
    reference: str


def parameter_title(tool: ToolKey, name: str) -> str:
    """Return what people read as the name of a parameter of a tool."""
    return _TITLES.get((tool, name), name)


class ReferenceWords:
    """Describes the references of a plan in words.

    References to the result of a call contain only its number until the call is added.

    Args:
        is_form: whether the reader enters the input, as on the page of a tool.
    """

    def __init__(self, *, is_form: bool = False) -> None:
        self._is_form = is_form
        self._written = PathIndex()
        self._paths: dict[int, list[Path]] = {}
        self._tools: dict[int, str] = {}
        self._names: dict[int, str] = {}

    def add(self, number: int, call: JSONObject, name: str = "") -> None:
        """Record the tool of a call and where the call writes its result. If `name` is given,
        descriptions contain it in place of the call's number.
        """
        self._tools[number] = tool_of(call)
        self._names[number] = name
        target = call.get("_outputPath")
        if not isinstance(target, str):
            return

        try:
            paths = parse_target(target).paths
        except ReferenceSyntaxError:
            # The page also shows plans that cannot run, and explains elsewhere why they cannot.
            return
        self._paths[number] = list(paths)
        for path in paths:
            self._written.add(path, number)

    def parameters(self, call: JSONObject) -> tuple[ShownParameter, ...]:
        """Return the parameters of a call as written, and the meta-properties that say how it
        runs.
        """
        return tuple(
            ShownParameter(self._label(call, name), self._value(value), _reference_in(value))
            for name, value in call.items()
            if name not in _NOT_PARAMETERS
        )

    def _label(self, call: JSONObject, name: str) -> str:
        written = WrittenCall.of(call)
        title = parameter_title((written.module, written.tool), name)
        if self._is_form and title != name:
            return title
        return _HOW.get(name) or parameter_label(name)

    def _value(self, value: JSON) -> str:
        if isinstance(value, str):
            return in_one_line(self.of(value) or value, 120)
        return in_one_line(map_references(value, lambda text: f"‹{self.of(text) or text}›"), 120)

    def of(self, text: str) -> str:
        """Return a description of what a reference stands for, such as `id of item 0 of the result
        of call 0 (list_orders)`, or "" if `text` is not a reference.
        """
        if not is_reference(text):
            return ""

        try:
            expression = parse_reference(text)
        except ReferenceSyntaxError:
            return ""
        return ", or ".join(
            " and ".join(map(self._operand, alternative)) for alternative in expression.alternatives
        )

    def place(self, path: Path) -> str:
        """Return a description of a place in a plan, such as `amount for refund (call 1)`."""
        if path[:1] != ("calls",) or len(path) < 3 or not path[1].isdecimal():
            return in_one_line(".".join(path), _LONGEST_PATH)
        number = int(path[1])
        name = self._names.get(number) or f"{self._tools.get(number, 'it')} (call {number})"
        return f"{_nested(path[2:])} for {name}"

    def in_text(self, text: str) -> str:
        """Return a sentence with its references replaced by words."""
        return _REFERENCE.sub(lambda match: self.of(match.group()) or match.group(), text)

    def _operand(self, operand: Reference) -> str:
        words = self._without_instance(operand)
        return words if operand.instance is None else f"{words}, in {operand.instance}"

    def _without_instance(self, operand: Reference) -> str:
        path = operand.path
        if operand.kind == "input" and path and self._is_form:
            name = in_one_line(path[0], _LONGEST_PATH)
            return _within(path[1:], f"the {name} you enter")
        if operand.kind == "input":
            return _within(path, "the input")
        if operand.kind == "item":
            return _within(path, "the current item")
        if operand.kind == "results" and path and path[0].isdecimal():
            return _within(path[1:], self._result_of(int(path[0])))
        if operand.kind != "state" or not path:
            return _within(path, f"the {operand.kind}")

        writers = self._written.overlapping(operand.full)
        if len(writers) == 1:
            [number] = writers
            for written in self._paths[number]:
                if operand.full[: len(written)] == written:
                    return _within(operand.full[len(written) :], self._result_of(number))
        return _within(path, "the state")

    def _result_of(self, number: int) -> str:
        name = self._names.get(number)
        if name:
            return f"the result of {name}"

        tool = self._tools.get(number)
        words = f"the result of call {number}"
        return f"{words} ({tool})" if tool else words


def _within(path: Path, whole: str) -> str:
    """Return a phrase for a part of a value."""
    return f"{_nested(path)} of {whole}" if path else whole


def _nested(path: Path) -> str:
    """Return a phrase for a path, which begins with its innermost key."""
    parts = [f"item {key}" if key.isdecimal() else key for key in reversed(path)]
    return in_one_line(" of ".join(parts), _LONGEST_PATH)


def _reference_in(value: JSON) -> str:
    if isinstance(value, str) and is_reference(value):
        return in_one_line(value, 200)
    return ""
