"""A person's permission for later calls to a tool in the same run, which then need no approval.

A grant comes with the approval of one call and is journaled in that call's `CallDecided`. The grant
covers calls to the same tool in the same run, whether they are already waiting or come later. It
does not cover calls about which the policy asks for a different reason. Each approved call gets its
own `CallDecided`, which names the call whose approval included the grant. Grants are part of the
machine, so folding the journal restores them with their counts. A room has its own machine, and a
fork does not inherit grants, so no grant applies to another run.

    {"for": "run"}                                                  every later call to the tool
    {"for": "run", "max": 3}                                        at most three more executions
    {"for": "run", "parameters": {"properties": {"to": {"const": "Ada"}}, "required": ["to"]}}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ideabridge.bridge.loop.event import CallDecided, Decider, JournalError, rule_text
from ideabridge.bridge.loop.output import Refusal
from ideabridge.bridge.loop.progress import Progress
from ideabridge.tools.encoding import JSON, JSONObject, encode, list_or_empty, object_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import ANNOTATIONS, MANY, NAMED, ONE, REFERRING, schemas_in
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.schema import Validator, check_schema
from ideabridge.tools.tool import Tool

MOST_CALLS: Final = 1_000_000
"""Maximum value for the `max` of a grant."""

_SCHEMA_BYTES: Final = 20_000

_CHECKED: Final = (
    (ONE | MANY | NAMED | ANNOTATIONS | frozenset(REFERRING)) - {"contentSchema"}
    | {
        "$schema",
        "$id",
        "$anchor",
        "$dynamicAnchor",
        "type",
        "enum",
        "const",
        "required",
        "dependentRequired",
    }
    | {
        "multipleOf",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minLength",
        "maxLength",
        "pattern",
    }
    | {
        "minItems",
        "maxItems",
        "uniqueItems",
        "minContains",
        "maxContains",
        "minProperties",
        "maxProperties",
    }
)
"""The schema keywords that a grant can use. Any other key in a grant, such as a misplaced parameter
name, would not restrict anything.
"""


@dataclass(slots=True)
class Grant:
    """A grant for one tool in one run.

    Attributes:
        call: the index of the call whose approval included the grant.
        tool: the allowed tool, as it was defined when the grant was given.
        activity: the activity that the approved call named.
        by: the person who gave the grant.
        most: the maximum number of executions that the grant approves, or None for any number.
        where: checks the parameters of an execution, or None if any are allowed.
        used: the number of executions that the grant has approved so far.
    """

    call: int
    tool: Tool
    activity: str | None
    by: Decider
    most: int | None
    where: Validator | None
    used: int = 0

    def covers(self, progress: Progress) -> bool:
        """Return whether the grant approves a call whose references are resolved. Of the items in
        the call's `_each`, it approves either all or none.

        A call whose parameters are too costly to check is never covered, so a person is asked about
        it.
        """
        tool = progress.tool
        if tool is None or tool.key != self.tool.key or tool.digest != self.tool.digest:
            return False
        if progress.call.activity != self.activity or progress.replaced is not None:
            return False
        if self.most is not None and self.used + _executions(progress) > self.most:
            return False

        where = self.where
        if where is None:
            return True

        open_ = [item.parameters for item in progress.items if not item.finished]
        return all(not where.is_costly(value) and where.is_valid(value) for value in open_)

    def to_json(self) -> JSONObject:
        """Return `{"call", "tool", "module"?, "by", "used", "max"?, "parameters"?}`."""
        summary: JSONObject = {"call": self.call, "tool": self.tool.name}
        if self.tool.module is not None:
            summary["module"] = self.tool.module

        summary.update({"by": str(self.by), "used": self.used})
        if self.most is not None:
            summary["max"] = self.most

        if self.where is not None:
            summary["parameters"] = self.where.schema

        return summary

    def __str__(self) -> str:
        """Return a description, for people, of what the grant allows."""
        if self.most is None:
            count = f"{self.used} calls so far"
        else:
            count = f"{self.used} of {self.most} calls so far"

        if self.where is None:
            where = ""
        else:
            where = f", where the parameters match {encode(self.where.schema).decode()}"

        return (
            f"{self.tool.label} for the rest of this run (call {self.call}, by "
            f"{self.by}): {count}{where}"
        )


@dataclass(slots=True)
class Grants:
    """The grants of one run, in the order in which they were given."""

    given: list[Grant] = field(default_factory=list[Grant])

    def __iter__(self) -> Iterator[Grant]:
        return iter(self.given)

    def take(self, progress: Progress) -> Grant | None:
        """Return the first grant that covers a call, and add the call's executions to the grant's
        count. Return None if no grant covers it.
        """
        for grant in self.given:
            if grant.covers(progress):
                grant.used += _executions(progress)
                return grant
        return None

    def count(self, call: int, progress: Progress, times: int) -> None:
        """Adjust the count of the grant of `call` by the number of executions of the call in
        `progress`.

        The number is added if `times` is 1, and subtracted if `times` is -1.
        """
        self.of(call).used += times * _executions(progress)

    def of(self, call: int) -> Grant:
        """Return the grant included in a call's approval.

        Raises:
            JournalError: the approval included no grant.
        """
        for grant in self.given:
            if grant.call == call:
                return grant
        raise JournalError(f"call {call} was not approved with a grant")


def _executions(progress: Progress) -> int:
    return sum(not item.finished for item in progress.items)


def decision_text(event: CallDecided) -> str:
    """Describe a decision, for example `approve`, `approve for the rest of the run`, `approve
    (grant of call 2)`, or `approve (the standing rule 4f1a of 2026-11-29)`.
    """
    if event.rule is not None:
        return f"{event.decision} ({rule_text(event.rule)})"
    if event.always is not None:
        return f"{event.decision} always (the standing rule {event.always})"
    if event.granted is not None:
        return f"{event.decision} (grant of call {event.granted})"
    if event.grant is None:
        return event.decision
    return f"{event.decision} for the rest of the run"


def grant_of(progress: Progress, event: CallDecided) -> Grant | None:
    """Return the grant included in a decision, or None if there is none.

    Raises:
        JournalError: the decision cannot give a grant, or the grant is damaged.
    """
    if event.grant is None:
        return None

    most = event.grant.get("max")
    schema = event.grant.get("parameters")
    tool = progress.tool
    if (
        tool is None
        or event.decision != "approve"
        or event.by.kind != "person"
        or event.granted is not None
    ):
        raise JournalError(
            f"the decision on call {event.call} cannot give a grant: only a person's approval can"
        )

    if not isinstance(most, int | None) or not isinstance(schema, dict | None):
        raise JournalError(
            f"the grant of call {event.call} is damaged: max or parameters has the wrong type"
        )

    where = None if schema is None else Validator(schema, what="the parameters")
    return Grant(event.call, tool, progress.call.activity, event.by, most, where)


def read_grant(progress: Progress, grant: JSON) -> JSONObject | Refusal:
    """Check a grant included in the approval of a call.

    A schema with an unchecked keyword, or with a parameter that the tool does not have, is refused,
    because it would restrict nothing.
    """
    if (
        not isinstance(grant, dict)
        or grant.get("for") != "run"
        or not {*grant} <= {"for", "max", "parameters"}
    ):
        return Refusal(
            'grant: expected {"for": "run", "max"?: a number, "parameters"?: a JSON schema}'
        )

    if "max" in grant:
        most = grant["max"]
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MOST_CALLS:
            return Refusal(
                "grant.max: expected the number of further calls, a whole number from 1 to "
                f"{MOST_CALLS:,}"
            )

    if "parameters" in grant:
        schema = grant["parameters"]
        if not isinstance(schema, dict):
            return Refusal("grant.parameters: expected a JSON schema, an object")
        problem = _schema_problem(schema, progress.tool)
        if problem is not None:
            return Refusal(f"grant.parameters: {problem}")

    return grant


def _schema_problem(schema: JSONObject, tool: Tool | None) -> str | None:
    size = len(encode(schema))
    if size > _SCHEMA_BYTES:
        return f"expected at most {_SCHEMA_BYTES:,} bytes, found {size:,} bytes"

    try:
        check_schema(schema, what="the schema")
    except IdeabridgeError as error:
        return str(error)

    for _, part in schemas_in(schema):
        for keyword in part:
            if keyword not in _CHECKED:
                return (
                    f"{keyword[:100]!r} restricts nothing: expected the keywords "
                    "of a JSON schema, such as"
                    ' {"properties": {"to": {"const": "Ada"}}, "required": ["to"]}'
                )

    parameters = None if tool is None else tool.parameters.get("properties")
    if tool is None or not isinstance(parameters, dict):
        return None

    named = object_or_empty(schema.get("properties"))
    required = list_or_empty(schema.get("required"))
    for name in map(str, [*named, *required]):
        if name not in parameters:
            return (
                f"{name[:100]!r} is not a parameter of {tool.name}.{did_you_mean(name, parameters)}"
            )

    return None
