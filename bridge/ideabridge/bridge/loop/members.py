"""The parts of a Solution other than its calls, output or program, such as `thought_process`.

The schema of a Request lists these members. They are journaled and have no other effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ideabridge.bridge.context.references import quoted
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import describe
from ideabridge.tools.schema import Validator

THOUGHT_PROCESS: Final = "thought_process"

THOUGHTS: Final[JSONObject] = {
    "type": "string",
    "description": (
        "Your reasoning, before the calls: what is known, what is missing, and which calls follow "
        "from that. It is stored, and changes nothing"
    ),
}
"""The schema of the member that the `thought_process` setting adds to answers."""

GROUP: Final = "pattern"

GROUPS: Final[JSONObject] = {
    "enum": ["all", "any", "race"],
    "description": "Makes the calls a group: all or nothing, the first that succeeds, or the first that ends",
}
"""The schema of the member that says how the calls in a group depend on each other. Only an
application creates groups.
"""

_MOST_NAMED: Final = 10
"""Maximum number of members named in one correction."""


@dataclass(frozen=True, slots=True)
class MemberFaults:
    """How the members of a Solution deviate from its schema.

    Attributes:
        unknown: the names of members that the schema does not contain.
        errors: a sentence for each member that is missing or has a value that the schema rejects.
    """

    unknown: list[str] = field(default_factory=list[str])
    errors: list[str] = field(default_factory=list[str])

    def correction(self) -> JSONObject | None:
        """Return the correction that tells the mind which members were ignored, or None if there
        are none.
        """
        if not self.unknown:
            return None
        names = ", ".join(map(quoted, self.unknown[:_MOST_NAMED]))
        more = len(self.unknown) - _MOST_NAMED
        remainder = f" and {more:,} more" if more > 0 else ""
        return {
            "left_out": f"{names}{remainder}",
            "reason": "the schema has no such member, so this member had no effect",
        }


def faults_of(
    members: Mapping[str, JSONObject], required: Sequence[str], values: JSONObject
) -> MemberFaults:
    """Compare the members of a Solution with its schema.

    Args:
        members: the schemas of the members, keyed by name.
        required: the names of the required members.
        values: the members of the Solution, without its calls, output and program.
    """
    faults = MemberFaults()
    for name in required:
        if name not in values:
            faults.errors.append(f"{name}: missing, expected {describe(members[name])} (required)")

    for name, value in values.items():
        schema = members.get(name)
        if schema is None:
            faults.unknown.append(name)
            continue
        try:
            Validator(schema, what=name).check(value)
        except IdeabridgeError as error:
            faults.errors.append(str(error))

    return faults
