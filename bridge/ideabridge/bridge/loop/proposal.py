"""Proposal: a Solution as it was written, bound and checked, of which nothing has run.

In a lazy run it is a plan that waits to be accepted as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from ideabridge.bridge.loop.event import JournalError, Pattern
from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.loop.group import refuse
from ideabridge.bridge.loop.instances import gathered
from ideabridge.bridge.loop.question import Question
from ideabridge.tools.encoding import JSON, JSONObject, content_hash

WHY = "the run is lazy: nothing of its plan runs before it is accepted as a whole"


LAZY = (
    "Write a plan: list every call the task needs as far as you can see, wired by references. Nothing of it runs before"
    " a person has accepted it as a whole; a plan that is not accepted comes back to you with the reason."
)
"""What the mind of a lazy run is told."""


class Proposal:
    """The calls and the output of one Solution.

    Args:
        graph: binds them; calls are listed by `add`, or all at once by `whole`.

    Attributes:
        calls, output, extra: as written; `extra` is what stood beside.
        places: of the calls, where instances share a plan's places.
        pattern: what the calls are to each other.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.calls: list[JSON] = []
        self.output: JSON = None
        self.extra: JSONObject = {}
        self.places: list[JSON] | None = None
        self.pattern: Pattern | None = None

    @classmethod
    def whole(
        cls,
        graph: Graph,
        calls: list[JSON],
        output: JSON,
        places: list[JSON] | None,
        pattern: Pattern | None = None,
    ) -> Self:
        """A Solution that arrived whole."""
        graph.take(calls, output, places)
        refuse(graph, pattern, output)
        proposal = cls(graph)
        proposal.calls, proposal.output, proposal.places, proposal.pattern = calls, output, places, pattern
        return proposal

    def is_of(self, calls: list[JSON], output: JSON, pattern: Pattern | None) -> bool:
        """Whether it was made of these very values."""
        return self.calls is calls and self.output is output and self.pattern == pattern

    def expect_well_formed(self) -> Self:
        """The proposal, where all of it is well formed.

        Raises:
            JournalError: it is malformed, and was taken up.
        """
        if self.graph.problems:
            raise JournalError(f"a malformed Solution was taken up: {self.graph.problems[0][1]}")
        return self

    # -- as it streams in ----------------------------------------------------------------------------------------

    @property
    def streams(self) -> bool:
        """Whether its end has not come."""
        return not self.graph.closed

    def add(self, call: JSON, place: int | None) -> None:
        """List one more call."""
        self._expect_open()
        self.graph.add(call, place)
        self.calls.append(call)

    def set_output(self, output: JSON) -> None:
        """The output, as written."""
        self._expect_open()
        self.graph.set_output(output)
        self.output = output

    def close(self, extra: JSONObject | None) -> None:
        """The answer has ended."""
        self._expect_open()
        self.graph.close()
        self.extra = extra or {}

    def _expect_open(self) -> None:
        if self.graph.closed:
            raise JournalError("the answer has ended already")

    # -- as it waits ---------------------------------------------------------------------------------------------

    def shown(self) -> JSONObject:
        """What people see of it: `{"calls", "output"}`, a call for every instance once."""
        return {"calls": gathered(self.calls, self.places), "output": self.output}

    def question(self, step: int) -> Question:
        """Whether it is accepted; bound to exactly these calls and this output.

        Args:
            step: of the run.
        """
        digest = content_hash({"calls": self.calls, "output": self.output, "places": self.places})
        return Question("plan", f"p{step}-{digest[:12]}", digest, self.shown(), WHY)

    def correction(self, ran: Proposal | None, by: str, reason: str | None) -> JSONObject:
        """What a mind is told where a person changed it, or (`ran` None) did not accept it."""
        return {"proposed": self.shown(), "ran": ran.shown() if ran is not None else None, "by": by, "reason": reason}


def rejection(errors: Sequence[JSONObject]) -> str:
    """The faults of a malformed solution or plan, one a line, at most 20."""
    lines: list[str] = []
    cycles: set[str] = set()
    for entry in errors[:20]:
        call, error = entry.get("call"), entry.get("error")
        message = error.get("message") if isinstance(error, dict) else error
        if isinstance(message, str) and message.startswith("a cycle: "):
            # Each call of a cycle has the same error, which names them all.
            if message in cycles:
                continue
            cycles.add(message)
        if isinstance(call, dict):
            place = entry.get("in_solution", entry.get("place"))
            lines.append(f"calls[{place}] ({call.get('_tool')}): {message}")
        else:
            lines.append(str(message))
    if len(errors) > 20:
        lines.append(f"... and {len(errors) - 20} more")
    return "\n".join(lines)
