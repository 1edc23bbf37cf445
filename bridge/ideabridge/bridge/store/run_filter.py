"""The conditions that select the runs in a list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ideabridge.bridge.context.failure import NO_OUTPUT
from ideabridge.bridge.store.ideas import past_time

Outcome: TypeAlias = Literal["failed", "denied"]
"""What became of the calls of a run that has ended; see `RunFilter`."""

_CALLS_TOOL: Final = (
    "(title = ? OR EXISTS (SELECT 1 FROM idea_calls WHERE tool = ? AND idea IN ("
    "SELECT number FROM ideas WHERE ideas.run = runs.id "
    "UNION ALL SELECT idea FROM occurrences WHERE occurrences.run = runs.id)))"
)
"""The SQL condition, on a row of `runs`, that the run is a call of a published tool (the run's
title is the tool's name) or that one of its ideas calls a tool. The row of an idea names the first
run that made it, and `occurrences` names the others.
"""


_ERRORS: Final = "coalesce(CAST(json_extract(summary, '$.errors') AS INTEGER), 0)"
_DENIED: Final = "coalesce(CAST(json_extract(summary, '$.denied') AS INTEGER), 0)"
_HAS_ERRORS: Final = f"{_ERRORS} > {_DENIED}"
_LACKS_OUTPUT: Final = (
    "(status = 'failed' "
    f"AND coalesce(CAST(json_extract(summary, '$.reason') AS TEXT), '') = '{NO_OUTPUT}' "
    f"AND {_DENIED} > 0)"
)
HAS_FAILED: Final = (
    f"({_HAS_ERRORS} OR (status IN ('failed', 'stalled', 'limit') AND NOT {_LACKS_OUTPUT}))"
)
"""The SQL condition, on a row of `runs`, that the run failed, or ended with errors that were not
caused by denied calls. A run whose output is missing only because calls were denied has not failed.
"""

_OUTCOMES: Final[dict[Outcome, str]] = {
    "failed": f"(status IN ('done', 'failed') AND {HAS_FAILED})",
    "denied": (
        f"((status = 'done' OR {_LACKS_OUTPUT}) AND {_DENIED} > 0 AND {_ERRORS} = {_DENIED})"
    ),
}
"""SQL conditions, on a row of `runs`, for each outcome of `RunFilter`."""

ASKER: Final = (
    "coalesce(nullif(client, ''), CAST(json_extract(summary, '$.origin.host') AS TEXT), "
    "CAST(json_extract(summary, '$.origin.client') AS TEXT), '')"
)
"""The SQL expression, on a row of `runs`: the program that asked for the run, with its version, or
the host that the run was imported from.
"""

_BEFORE_LAST_WORD: Final = f"rtrim({ASKER}, replace({ASKER}, ' ', ''))"

_IS_ASKED_BY: Final = (
    f"(lower({ASKER}) = lower(?) OR (lower(rtrim({_BEFORE_LAST_WORD})) = lower(?) "
    f"AND instr('0123456789', substr({ASKER}, length({_BEFORE_LAST_WORD}) + 1, 1)) > 0))"
)
"""The SQL condition, on a row of `runs`, that a program asked for it: the row has the program's
name, alone or followed by a version, which begins with a digit.
"""


_SEARCHED: Final = "title || ' ' || id || ' ' || replace(title, '_', ' ')"
"""SQL expression for the text, in a row of `runs`, in which words are searched for."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Conditions for runs, all of which a run must meet. None or an empty list of names means no
    condition.

    Attributes:
        tool: a published tool that the run calls, or a tool that one of the run's Solutions calls.
            Call `Ideas.index_all` first, so that the latest Solutions are indexed.
        since, until: when the run began, as a date (`2026-11-21`), a time (`2026-11-21T10:00`) or
            an age (`3d`, `12h`, `2w`).
        words: a part of the run's title or id. A space also matches an underscore in the title,
            because people often see the name of a tool with spaces.
        askers: names of programs, without versions and ignoring case, one of which must have asked
            for the run.
        outcome: the outcome of the run's calls: `failed` if the run or any of its calls failed,
            `denied` if nothing failed, but calls were denied.
        failed: whether the run failed, stalled, reached a limit or ended with errors other than
            denied calls.
    """

    tool: str | None = None
    since: str | None = None
    until: str | None = None
    words: str | None = None
    askers: tuple[str, ...] = ()
    outcome: Outcome | None = None
    failed: bool = False

    def clauses(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield `(SQL condition on a row of runs, values)` for each condition.

        Raises:
            FilterError: a time cannot be read.
        """
        if self.tool is not None:
            yield _CALLS_TOOL, (self.tool, self.tool)

        if self.since is not None:
            yield "created >= ?", (past_time(self.since, "since"),)

        if self.until is not None:
            yield "created < ?", (past_time(self.until, "until"),)

        if self.words is not None:
            yield f"instr(lower({_SEARCHED}), lower(?)) > 0", (self.words,)

        if self.askers:
            condition = " OR ".join(_IS_ASKED_BY for _ in self.askers)
            values = tuple(name for asker in self.askers for name in (asker, asker))
            yield f"({condition})", values

        if self.outcome is not None:
            yield _OUTCOMES[self.outcome], ()

        if self.failed:
            yield HAS_FAILED, ()
