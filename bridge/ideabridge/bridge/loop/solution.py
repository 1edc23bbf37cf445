"""The calls and output of one answer, read and checked before any of the calls runs.

`SolutionReader` turns each Solution that arrives in one piece into a `Proposal`: it binds the
references and finds the problems. In a lazy run, every Solution is a plan (`Planning`). The reader
collects the pieces of the plan, and a person decides on it. The plan then either runs as a whole or
goes back to the mind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias

from ideabridge.bridge.context.failure import ErrorEntry, read_failure
from ideabridge.bridge.loop.call import gathered
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.effect import AskPlan
from ideabridge.bridge.loop.event import (
    CallProposed,
    JournalError,
    OutputProposed,
    Pattern,
    PlanAsked,
    PlanDecided,
    ProgramProposed,
    SolutionClosed,
    SolutionProposed,
    denial_text,
)
from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.loop.initial_documents import InitialDocuments
from ideabridge.bridge.loop.memory import Memory
from ideabridge.bridge.loop.output import error_message
from ideabridge.bridge.loop.progress import Progress
from ideabridge.bridge.loop.question import Question
from ideabridge.bridge.loop.settings import Settings, Spending
from ideabridge.tools.encoding import JSON, JSONObject, content_hash
from ideabridge.tools.json_parts import strings_in
from ideabridge.tools.typed import read_as

BROKE_OFF: Final = "the answer was cut off: "

LAZY_REASON: Final = "the run is lazy: no part of its plan runs before the whole plan is accepted"

LAZY = (
    "Write a plan: list every call the task needs as far as you can see, wired by references. No "
    "part of it runs before a person has accepted the whole plan; if the person denies it, you get "
    "the reason."
)
"""The instructions for the mind in a lazy run."""


@dataclass(slots=True)
class CurrentSolution:
    """The Solution that a machine is running, with the parts written so far.

    Attributes:
        calls: the calls of the Solution.
        output: the output, or None if the Solution has no output or the answer was cut off.
        extra: the other members of the answer, keyed by name.
        places: the places of the calls in the plan, if instances share them; see `CallProposed`.
        broken: why the answer was cut off, or None if it was not.
        program: the program, if the answer is one. `calls` then contains the calls that the program
            has made so far.
        failed: whether the program has ended with an error.
        printed: what the program has printed, in pieces.
    """

    calls: list[JSON] = field(default_factory=list[JSON])
    output: JSON = None
    extra: JSONObject = field(default_factory=dict[str, JSON])
    places: list[JSON] | None = None
    broken: str | None = None
    program: ProgramProposed | None = None
    failed: bool = False
    printed: list[str] = field(default_factory=list[str])

    def to_json(self) -> JSONObject:
        """Return the Solution as stored in an idea: `{..., "calls", "output"}`, or `{...,
        "program"}`.
        """
        if self.program is not None:
            return {**self.extra, "program": self.program.program}
        return {**self.extra, "calls": self.calls, "output": self.output}


@dataclass(slots=True)
class Proposal:
    """A Solution whose calls are bound to each other. For `pattern`, see `Group`."""

    graph: Graph
    solution: CurrentSolution = field(default_factory=CurrentSolution)
    pattern: Pattern | None = None

    @classmethod
    def whole(cls, graph: Graph, event: SolutionProposed) -> Self:
        """Bind a Solution that arrived in one piece."""
        graph.take(event.calls, event.output, event.places)
        if event.pattern is not None:
            _check_group(graph, event.pattern, event.output)
        return cls(
            graph, CurrentSolution(event.calls, event.output, places=event.places), event.pattern
        )

    def expect_well_formed(self) -> Self:
        """Return the proposal if it is well formed.

        Raises:
            JournalError: the Solution is malformed.
        """
        if self.graph.problems:
            raise JournalError(f"a malformed Solution was accepted: {self.graph.problems[0][1]}")
        return self

    def shown(self) -> JSONObject:
        """Return the plan as shown to people: `{"calls", "output"}`.

        Each call is listed once for all instances.
        """
        return {
            "calls": gathered(self.solution.calls, self.solution.places),
            "output": self.solution.output,
        }

    def correction(self, ran: Proposal | None, by: str, reason: str | None) -> JSONObject:
        """Return the correction shown to a mind after a person's decision on the plan.

        The person replaced the plan with `ran` or, if `ran` is None, denied it.
        """
        return {
            "proposed": self.shown(),
            "ran": ran.shown() if ran is not None else None,
            "by": by,
            "reason": reason,
        }


def _check_group(graph: Graph, pattern: Pattern, output: JSON) -> None:
    """Record the problems with a group: alternatives that depend on each other, an output, or no
    calls.
    """
    if output is not None:
        graph.output_problems.append(
            f"output: the calls of a group ({pattern}) return their values; a group has no output"
        )

    if not graph.calls:
        graph.output_problems.append(f"calls: a group ({pattern}) needs at least one call")

    if pattern == "all":
        return
    for call in graph.calls:
        for index in sorted(graph.depends_on(call)):
            call.problems.append(
                f"the calls are alternatives ({pattern}), so none may depend on another: "
                f"{call.label} reads what {graph.call(index).label} writes, or waits for it"
            )


_REJECTION: Final = 16_000
"""The number of characters after which further errors in a malformed Solution are only counted."""


def rejection(errors: Sequence[JSONObject]) -> str:
    """Return the errors in a malformed Solution, one per line. After 16,000 characters, the
    remaining errors are only counted.
    """
    lines: list[str] = []
    cycles: set[str] = set()
    room = _REJECTION
    for number, entry in enumerate(errors):
        if room < 0:
            lines.append(f"... and {len(errors) - number:,} more")
            break

        read = read_as(ErrorEntry, entry)
        message = read_failure(read.error).message
        if message.startswith("a cycle: "):
            # The error of a cycle names all its calls and is the same for each, so list it only
            # once.
            if message in cycles:
                continue
            cycles.add(message)

        line = message
        if read.call is not None:
            place = read.place if read.in_solution is None else read.in_solution
            line = f"calls[{place}] ({read.call.get('_tool')}): {message}"

        lines.append(line)
        room -= len(line)

    return "\n".join(lines)


# -- reading a solution ----------------------------------------------------------------------------

MOST_REFERENCES: Final = 20_000
"""Maximum number of references in a Solution that arrives in one piece. Binding each reference
takes 30 us on the event loop.
"""

MOST_BOUND: Final = 200_000
"""Maximum number of edges between the calls of such a Solution. If each of 5,000 calls read what
all of them write, there would be 25 million edges.
"""


@dataclass(frozen=True, slots=True)
class CheckedSolution:
    """A Solution that has been checked, but is not part of the run yet.

    Attributes:
        event: the event that adds it to the run.
        errors: a list of `{"call", "place", "error"}`; empty if the Solution is well formed.
        proposal: the Solution with its calls bound, or None if it has too many calls or references
            to be bound.
    """

    event: SolutionProposed
    errors: list[JSONObject]
    proposal: Proposal | None = None


class SolutionReader:
    """Reads the Solutions of a run.

    Args:
        catalogue, settings, opening, memory, spending: the run's own objects.

    Attributes:
        listed: the number of calls that the run has listed.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        settings: Settings,
        opening: InitialDocuments,
        memory: Memory,
        spending: Spending,
    ) -> None:
        self.listed = 0
        self._checked: CheckedSolution | None = None
        self._catalogue = catalogue
        self._settings = settings
        self._opening = opening
        self._memory = memory
        self._spending = spending
        self._ids: set[str] = set()

    @property
    def room(self) -> int:
        """The number of calls that the run and its rooms can still list."""
        return self._settings.calls - self._spending.calls - self.listed

    def offer(self, catalogue: Catalogue) -> None:
        """Set the tools that later Solutions can call."""
        self._catalogue = catalogue
        self._checked = None

    def follow(self, settings: Settings) -> None:
        """Read later Solutions with different settings."""
        self._settings = settings
        self._checked = None

    def graph(self, pattern: Pattern | None = None, explained: JSONObject | None = None) -> Graph:
        """Return an empty graph for the next Solution."""
        graph = Graph(
            self._catalogue,
            self._memory.documents,
            self._settings,
            self._opening,
            first=self.listed,
            earlier_ids=self._ids,
            pattern=pattern,
        )
        graph.explained = explained
        return graph

    def check(self, event: SolutionProposed) -> CheckedSolution:
        """Check a Solution that arrived in one piece. A later `take` does not bind it again."""
        errors = self.check_count(len(event.calls)) or _over_references(event.calls, event.output)
        if errors:
            return CheckedSolution(event, errors)

        graph = self.graph(event.pattern, event.explained)
        graph.most_bound = MOST_BOUND
        graph.most_sources = MOST_REFERENCES
        proposal = Proposal.whole(graph, event)
        self._checked = CheckedSolution(event, graph.errors(), proposal)
        return self._checked

    def check_count(self, calls: int) -> list[JSONObject]:
        """Return a list with one error if the run is not allowed to list this many more calls, and
        an empty list otherwise.
        """
        if calls <= self.room:
            return []
        return _refusal(
            f"{calls:,} more calls; a run may list at most {self._settings.calls:,} in total"
        )

    def take(self, event: SolutionProposed) -> Proposal:
        """Return the proposal for a whole Solution. If this event was the last one that `check`
        checked, its calls are already bound.
        """
        checked = self._checked
        self._checked = None
        if checked is not None and checked.event is event and checked.proposal is not None:
            proposal = checked.proposal
        else:
            proposal = Proposal.whole(self.graph(event.pattern, event.explained), event)

        proposal.solution.extra = {**(event.extra or {})}
        if event.pattern is not None:
            # Keep the pattern, because the idea records it.
            proposal.solution.extra["pattern"] = event.pattern
        return proposal

    def note(self, listed: Iterable[Progress]) -> None:
        """Count calls that become part of the run, and record their ids."""
        for progress in listed:
            self.listed += 1
            if progress.call.id is not None:
                self._ids.add(progress.call.id)


def _refusal(message: str) -> list[JSONObject]:
    return [{"call": None, "error": {"kind": "structural", "message": message}}]


def _over_references(calls: list[JSON], output: JSON) -> list[JSONObject]:
    """Return a list with one error if a Solution has too many references, and an empty list
    otherwise.
    """
    # This counts `a || b` twice. It also counts escaped daggers, which are rare.
    count = sum(
        text.count("†")
        for text in strings_in([output, *calls])
        if text.startswith("†") and not text.startswith("††")
    )
    if count <= MOST_REFERENCES:
        return []
    return _refusal(
        f"{count:,} references; the limit of one plan is {MOST_REFERENCES:,}: read what several "
        "calls write with one reference, or use _each"
    )


# -- the plan of a lazy run ------------------------------------------------------------------------

PlanEvent: TypeAlias = CallProposed | OutputProposed | SolutionClosed | PlanAsked | PlanDecided


@dataclass(frozen=True, slots=True)
class PlanResult:
    """The result of planning.

    Attributes:
        plan: the plan as it was proposed.
        runs: the plan to run, or None if no plan runs.
        errors, corrections: reports for the mind.
        reason: why a person denied the plan.
    """

    plan: Proposal
    runs: Proposal | None = None
    errors: list[JSONObject] = field(default_factory=list[JSONObject])
    corrections: list[JSONObject] = field(default_factory=list[JSONObject])
    reason: str | None = None


class Planning:
    """The plan of a lazy run, from its first piece until it is accepted as a whole or discarded.

    Args:
        reader: reads the Solutions of the run.
        step: the step of the run.
        plan: the plan, if it arrived in one piece. Otherwise `take` collects its pieces.
    """

    def __init__(self, reader: SolutionReader, step: int, plan: Proposal | None = None) -> None:
        self.plan = plan or Proposal(reader.graph())
        self.step = step
        self._reader = reader
        self._asked = False

    @property
    def question(self) -> Question:
        """The question of whether the plan is accepted."""
        solution = self.plan.solution
        digest = content_hash(
            {"calls": solution.calls, "output": solution.output, "places": solution.places}
        )
        return Question(
            "plan", f"p{self.step}-{digest[:12]}", digest, self.plan.shown(), LAZY_REASON
        )

    @property
    def waits(self) -> bool:
        """True if the plan is complete and waiting to be accepted."""
        return self.plan.graph.closed

    def due(self) -> list[AskPlan]:
        """Return the effect that asks a person about the waiting plan, unless one has already been
        asked.
        """
        if not self.waits or self._asked:
            return []
        question = self.question
        return [AskPlan(question.approval, question.digest)]

    def settled(self) -> PlanResult | None:
        """Return the result of a complete plan, or None if someone must be asked first."""
        plan = self.plan
        if plan.solution.broken is not None:
            # Nothing in the plan has run yet, so an incomplete plan can simply be dropped.
            errors = [error_message("structural", f"{BROKE_OFF}{plan.solution.broken}")]
            return PlanResult(plan, errors=errors)

        if not plan.solution.calls:
            return PlanResult(plan, plan)
        if plan.graph.problems:
            return PlanResult(plan, errors=plan.graph.errors())
        return None

    def take(self, event: PlanEvent) -> PlanResult | None:
        """Process one event, and return the result if the event settles the plan.

        Raises:
            JournalError: the event does not fit.
        """
        graph = self.plan.graph
        solution = self.plan.solution
        if isinstance(event, PlanAsked | PlanDecided):
            self._expect(event.digest)
            if isinstance(event, PlanDecided):
                return self._decided(event)
            self._asked = True
            return None

        if graph.closed:
            raise JournalError("the answer has already ended")

        match event:
            case CallProposed():
                graph.add(event.call, event.place)
                solution.calls.append(event.call)
            case OutputProposed():
                graph.set_output(event.output)
                solution.output = event.output
            case SolutionClosed():
                graph.close()
                solution.extra = event.extra or {}
                solution.broken = event.broken
                return self.settled()

        return None

    def _expect(self, digest: str) -> None:
        if not self.waits:
            raise JournalError("the plan is still being written, so nobody can decide on it yet")
        if self.question.digest != digest:
            raise JournalError(
                "the decision is about a different plan than the one that is waiting"
            )

    def _decided(self, event: PlanDecided) -> PlanResult:
        plan = self.plan
        by = event.by
        reason = event.reason
        if event.decision == "deny":
            why = f"the plan was {denial_text(by, reason)}"
            return PlanResult(
                plan, corrections=[plan.correction(None, str(by), reason)], reason=why
            )

        if event.decision == "approve":
            return PlanResult(plan, plan)

        proposed = SolutionProposed(event.calls or [], event.output, None, event.places)
        edited = self._reader.take(proposed).expect_well_formed()
        edited.solution.extra = plan.solution.extra
        return PlanResult(plan, edited, corrections=[plan.correction(edited, str(by), reason)])
