"""StoredSolution: the form of a Solution that an idea stores. It satisfies the schema
of its Request.

A Solution is read leniently, and what is malformed in it fails alone. The stored one is what the
schema admits of it:

- a call that was written in another way (`_tool: "git.log"`, no `_module`, a null) is written as
  the schema says;
- a call that the schema does not admit is left out, with those that refer to its result by number,
  and the numbers of the results after it are adapted, so that the others mean the same;
- so are members that the schema does not name, and an output that it does not admit,
  which is null then;
- a required member that is missing is empty.

The journal has all of it, and so does `IdeaMeta.written`, from which a recording answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Final

from ideabridge.bridge.context.body import Body, body_of
from ideabridge.bridge.context.references import is_reference
from ideabridge.bridge.loop.call import Call
from ideabridge.bridge.loop.members import GROUP, THOUGHT_PROCESS
from ideabridge.bridge.loop.solution import Proposal
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import references_in
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import META_PROPERTIES

_DEFINED: Final = "#/$defs/"

_META: Final = frozenset(META_PROPERTIES)

_NUMBERED: Final = re.compile(r'(†(?:[^\s.\[\]|&†"]+\.)?results\.)(\d+)(?![\w-])')
"""The result of a call in a reference, by its number."""

_OWN: Final = ("calls", "output", "program")


class SolutionSchema:
    """The schema of a Solution, with a validator for each of its parts.

    A call is checked against the schema of its own tool: against the union of all tools, it would
    take a thousand times as long.

    Args:
        document: the composed schema.
    """

    def __init__(self, document: JSONObject) -> None:
        self.document = document
        self._defs = _object(document.get("$defs"))
        members = _object(document.get("properties"))
        self.members = {name: schema for name, schema in members.items() if name not in _OWN}
        self.required = [name for name in _texts(document.get("required")) if name in self.members]
        # In their places, because a `$ref` may lead through them.
        self._parts: dict[str, JSONObject] = {
            name: {"properties": {name: schema}}
            for name, schema in members.items()
            if name != "calls"
        }
        self._validators: dict[int, Validator] = {}
        self._calls: dict[tuple[JSON, JSON], JSONObject] = {}
        items = _object(_object(members.get("calls")).get("items"))
        branches = items.get("anyOf")
        for branch in branches if isinstance(branches, list) else ():
            schema = _object(branch)
            named = _object(schema.get("properties"))
            key = (
                _object(named.get("_module")).get("const"),
                _object(named.get("_tool")).get("const"),
            )
            self._calls[key] = schema

    @cached_property
    def body(self) -> Body:
        """The body of the document."""
        return body_of(self.document)

    @cached_property
    def size(self) -> int:
        """The bytes of JSON of the document."""
        return len(self.body[1].encode())

    def call(self, call: Call) -> JSONObject | None:
        """The call as the schema admits it; None if it does not."""
        tool = call.tool
        if tool is None:
            return None

        schema = self._calls.get((tool.module, tool.name))
        if schema is None:
            return None

        validator = self._validator(schema)
        is_sound = not call.problems
        if _is_valid(validator, call.raw, checked=is_sound):
            return call.raw

        written = _as_named(call, _object(schema.get("properties")))
        return written if _is_valid(validator, written, checked=is_sound) else None

    def admits(self, name: str, value: JSON, *, checked: bool = False) -> bool:
        """Return whether the schema admits a member, or the output, with this value. References
        count as values.

        `checked`: the value satisfies the schema once its references are replaced.
        """
        part = self._parts.get(name)
        return part is not None and _is_valid(self._validator(part), {name: value}, checked=checked)

    def _validator(self, part: JSONObject) -> Validator:
        """The validator of one part, which is made at its first use."""
        validator = self._validators.get(id(part))
        if validator is None:
            validator = self._validators[id(part)] = self._compiled(part)
        return validator

    def _compiled(self, part: JSONObject) -> Validator:
        """A validator of one part, with the definitions that it refers to."""
        defs: JSONObject = {}
        left: list[JSON] = [part]
        while left:
            for target in references_in(left.pop()):
                name = target.removeprefix(_DEFINED).partition("/")[0]
                if target.startswith(_DEFINED) and name in self._defs and name not in defs:
                    defs[name] = self._defs[name]
                    left.append(defs[name])

        return Validator({**part, "$defs": defs} if defs else part, what="the solution")


def stored_solution(proposal: Proposal, schema: SolutionSchema, *, has_output: bool) -> JSONObject:
    """The Solution as an idea stores it: `{..., "calls", "output"}`, or `{..., "program"}`.

    Args:
        proposal: the Solution.
        schema: that of its Request.
        has_output: whether the run has taken its output.
    """
    solution = proposal.solution
    stored: JSONObject = {}
    for name in schema.members:
        has_effect = name != GROUP or proposal.pattern is not None
        if name in solution.extra and has_effect and schema.admits(name, solution.extra[name]):
            stored[name] = solution.extra[name]
        elif name in schema.required:
            assert name == THOUGHT_PROCESS, "nothing else is required"
            stored[name] = ""

    if solution.program is not None:
        return {**stored, "program": solution.program.program}

    calls, numbers = _calls(proposal.graph.calls, schema)
    output = _renumbered(solution.output, numbers)
    if isinstance(output, _Gone) or not schema.admits("output", output, checked=has_output):
        output = None

    return {**stored, "calls": calls, "output": output}


def _calls(calls: list[Call], schema: SolutionSchema) -> tuple[list[JSON], dict[int, int | None]]:
    """The calls that the schema admits, and the new number of each result; None: its
    call is left out.
    """
    fitting = [(call, schema.call(call)) for call in calls]
    if all(written is not None for _, written in fitting):
        return [written for _, written in fitting], {}
    while True:
        numbers = _numbers(fitting)
        stored: list[JSON] = []
        is_settled = True
        for place, (call, written) in enumerate(fitting):
            if written is None:
                continue
            renumbered = _renumbered(written, numbers)
            if isinstance(renumbered, _Gone):
                fitting[place] = (call, None)
                is_settled = False
            else:
                stored.append(renumbered)

        if is_settled:
            return stored, numbers


def _numbers(fitting: list[tuple[Call, JSONObject | None]]) -> dict[int, int | None]:
    """The new number of each call's result, by its place; None if no call of the place is left.

    The instances of a plan share its places.
    """
    left = {call.place: False for call, _ in fitting}
    for call, written in fitting:
        left[call.place] |= written is not None

    numbers: dict[int, int | None] = {}
    gone = 0
    for place in sorted(left):
        numbers[place] = place - gone if left[place] else None
        gone += not left[place]

    return numbers


class _Gone:
    """Stands for a value that refers to the result of a call that is left out."""


_GONE: Final = _Gone()


def _renumbered(value: JSON, numbers: Mapping[int, int | None]) -> JSON | _Gone:
    """The value with the new numbers of results in its references."""
    if not numbers:
        return value
    if isinstance(value, str):
        if not is_reference(value):
            return value
        named = [int(number) for _, number in _NUMBERED.findall(value)]
        if any(numbers.get(number, number) is None for number in named):
            return _GONE
        return _NUMBERED.sub(
            lambda found: f"{found[1]}{numbers.get(int(found[2]), int(found[2]))}", value
        )

    if isinstance(value, list):
        items: list[JSON] = []
        for item in value:
            renumbered = _renumbered(item, numbers)
            if isinstance(renumbered, _Gone):
                return _GONE
            items.append(renumbered)

        return items

    if isinstance(value, dict):
        members: JSONObject = {}
        for key, item in value.items():
            renumbered = _renumbered(item, numbers)
            if isinstance(renumbered, _Gone):
                return _GONE
            members[key] = renumbered

        return members

    return value


def _as_named(call: Call, named: Mapping[str, JSON]) -> JSONObject:
    """The call with the names of its tool and module, and without members that mean
    nothing for it.
    """
    tool = call.tool
    written: JSONObject = {"_tool": call.name if tool is None else tool.name}
    if tool is not None and tool.module is not None:
        written["_module"] = tool.module

    for name, value in call.raw.items():
        if name in written or (name in _META and name not in named):
            continue
        if value is None and name in _META and name not in ("_output", "_each"):
            continue
        if name == "_after" and isinstance(value, str):
            written[name] = [value]
        else:
            written[name] = value

    return written


def _is_valid(validator: Validator, value: JSON, *, checked: bool) -> bool:
    try:
        # What takes long to check is not checked twice in the event loop.
        if validator.is_costly(value):
            return checked
        return validator.is_valid(value)
    except IdeabridgeError:
        return False


def _object(value: JSON) -> JSONObject:
    return value if isinstance(value, dict) else {}


def _texts(value: JSON) -> list[str]:
    if isinstance(value, list):
        return [item for item in value if isinstance(item, str)]
    return []
