"""A Solution in the form stored in an idea, which satisfies the schema of the Request.

A Solution is read leniently: a malformed call fails, and the others run. The stored Solution
contains only what the schema accepts:

- A call in a different notation (`_tool: "git.log"`, no `_module`, a null) is rewritten as the
  schema requires.
- A call that the schema rejects is omitted, together with the calls that refer to its result by
  number. References to later results are renumbered.
- A member that is not in the schema is omitted.
- An output that the schema rejects becomes null.
- A missing required member is stored empty.

The journal and `IdeaMeta.written` contain the Solution as it was written. A recording also answers
with the Solution as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Final

from ideabridge.bridge.context.body import Body, body_of
from ideabridge.bridge.context.references import map_references
from ideabridge.bridge.loop.call import Call
from ideabridge.bridge.loop.members import GROUP, THOUGHT_PROCESS
from ideabridge.bridge.loop.solution import Proposal
from ideabridge.tools.composed import CallSchema, SolutionSchema
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import META_PROPERTIES

_META: Final = frozenset(META_PROPERTIES)

_NUMBERED: Final = re.compile(r'(†(?:[^\s.\[\]|&†"]+\.)?results\.)(\d+)(?![\w-])')
"""Matches a reference that names the result of a call by number."""

_OWN: Final = ("calls", "output", "program")


class SolutionValidator:
    """The schema of a Solution, with a validator for each of its parts.

    A call is checked against the schema of its own tool, because checking it against the union of
    all tools' schemas would take a thousand times as long.

    Args:
        document: the composed schema.
    """

    def __init__(self, document: JSONObject) -> None:
        self.document = document
        self._schema = SolutionSchema.read(document)
        properties = self._schema.properties
        self.members = {name: schema for name, schema in properties.items() if name not in _OWN}
        required = list_or_empty(document.get("required"))
        self.required = [name for name in self.members if name in required]
        self._parts: dict[str, JSONObject] = {}
        for name, schema in properties.items():
            if name != "calls":
                # Wrap the schema in an object instead of taking it out of the document, because the
                # path in a `$ref` can lead through its place there.
                self._parts[name] = {"properties": {name: schema}}

        self._validators: dict[int, Validator] = {}

    @cached_property
    def _calls(self) -> dict[tuple[str, str], CallSchema]:
        """The schemas of calls, keyed by server and tool. The server is "" for tools without a
        server.
        """
        # Create this map only on demand: most Requests offer many tools, and some are answered
        # without a call.
        return {(call.module, call.tool): call for call in self._schema.calls}

    @cached_property
    def body(self) -> Body:
        """The body of the document."""
        return body_of(self.document)

    @cached_property
    def size(self) -> int:
        """The size of the document in bytes of JSON."""
        return len(self.body[1].encode())

    def call(self, call: Call) -> JSONObject | None:
        """Return the call in a form that the schema accepts, or None if that is impossible."""
        tool = call.changed or call.tool
        if tool is None:
            return None

        schema = self._calls.get((tool.module or "", tool.name))
        if schema is None:
            return None

        validator = self._validator(schema.schema)
        is_sound = not call.problems
        written = call.as_written or call.raw
        if _is_valid(validator, written, checked=is_sound):
            return written

        written = _as_named(call, schema.members)
        return written if _is_valid(validator, written, checked=is_sound) else None

    def admits(self, name: str, value: JSON, *, checked: bool = False) -> bool:
        """Return whether the schema accepts a value for a member or for the output. A reference
        counts as a value.

        `checked` says whether the value is known to satisfy the schema once its references are
        replaced.
        """
        part = self._parts.get(name)
        return part is not None and _is_valid(self._validator(part), {name: value}, checked=checked)

    def _validator(self, part: JSONObject) -> Validator:
        """Return the validator for one part, creating it on first use."""
        validator = self._validators.get(id(part))
        if validator is None:
            validator = self._compiled(part)
            self._validators[id(part)] = validator

        return validator

    def _compiled(self, part: JSONObject) -> Validator:
        """Return a validator for one part, including the definitions that it refers to."""
        defs = self._schema.definitions_for(part)
        schema: JSONObject = {**part, "$defs": defs} if defs else part
        return Validator(schema, what="the solution")


def stored_solution(
    proposal: Proposal, schema: SolutionValidator, *, has_output: bool
) -> JSONObject:
    """Return the Solution as stored in an idea: `{..., "calls", "output"}`, or `{..., "program"}`.

    Args:
        proposal: the Solution.
        schema: the schema of its Request.
        has_output: whether the run has accepted the output of the Solution.
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
    stored["calls"] = calls
    stored["output"] = None
    try:
        output = _renumbered(solution.output, numbers)
    except _LeftOutError:
        return stored

    if schema.admits("output", output, checked=has_output):
        stored["output"] = output
    return stored


def _calls(
    calls: list[Call], schema: SolutionValidator
) -> tuple[list[JSON], dict[int, int | None]]:
    """Return the calls that the schema accepts, and the new number of each call's result, which is
    None for omitted calls.
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
            try:
                stored.append(_renumbered(written, numbers))
            except _LeftOutError:
                fitting[place] = (call, None)
                is_settled = False

        if is_settled:
            return stored, numbers


def _numbers(fitting: list[tuple[Call, JSONObject | None]]) -> dict[int, int | None]:
    """Return the new number of the result at each place, which is None if all calls at the place
    are omitted.

    In a plan, the instances share the places.
    """
    remaining = {call.place for call, written in fitting if written is not None}
    numbers: dict[int, int | None] = {}
    removed = 0
    for place in sorted({call.place for call, _ in fitting}):
        if place in remaining:
            numbers[place] = place - removed
        else:
            numbers[place] = None
            removed += 1

    return numbers


class _LeftOutError(Exception):
    """Raised when a value refers to the result of an omitted call."""


def _renumbered(value: JSON, numbers: Mapping[int, int | None]) -> JSON:
    """Return the value with the new numbers of results in its references.

    Raises:
        _LeftOutError: a reference names a result without a new number.
    """
    if not numbers:
        return value

    def renumber(result: re.Match[str]) -> str:
        old = int(result[2])
        new = numbers.get(old, old)
        if new is None:
            raise _LeftOutError
        return f"{result[1]}{new}"

    return map_references(value, partial(_NUMBERED.sub, renumber))


def _as_named(call: Call, named: Mapping[str, JSON]) -> JSONObject:
    """Return the call with the schema's names for its tool and server, and without members that do
    not apply to it.
    """
    tool = call.changed or call.tool
    written: JSONObject = {"_tool": call.name if tool is None else tool.name}
    if tool is not None and tool.module is not None:
        written["_module"] = tool.module

    for name, value in (call.as_written or call.raw).items():
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
        # If checking the value is slow, do not check it a second time on the event loop.
        if validator.is_costly(value):
            return checked
        return validator.is_valid(value)
    except IdeabridgeError:
        return False
