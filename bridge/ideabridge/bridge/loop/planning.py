"""Planning: the plan of a lazy run, from its first piece until it is accepted as a whole or set aside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from ideabridge.bridge.loop.effect import AskPlan
from ideabridge.bridge.loop.event import (
    CallProposed,
    JournalError,
    OutputProposed,
    PlanAsked,
    PlanDecided,
    SolutionClosed,
    SolutionProposed,
)
from ideabridge.bridge.loop.intake import SolutionReader
from ideabridge.bridge.loop.output import error_message
from ideabridge.bridge.loop.proposal import Proposal
from ideabridge.bridge.loop.question import Question
from ideabridge.tools.encoding import JSONObject

PlanEvent: TypeAlias = CallProposed | OutputProposed | SolutionClosed | PlanAsked | PlanDecided


@dataclass(frozen=True, slots=True)
class PlanResult:
    """What becomes of a plan.

    Attributes:
        plan: as it was proposed.
        runs: what runs; None: nothing of it.
        errors, corrections: what the mind is told.
        reason: why nothing of it runs, where a person said so.
    """

    plan: Proposal
    runs: Proposal | None = None
    errors: list[JSONObject] = field(default_factory=list[JSONObject])
    corrections: list[JSONObject] = field(default_factory=list[JSONObject])
    reason: str | None = None


class Planning:
    """One plan.

    Args:
        intake: of the run.
        step: of the run.
        plan: where it came whole; else its pieces are taken.
    """

    def __init__(self, intake: SolutionReader, step: int, plan: Proposal | None = None) -> None:
        self.plan = plan or Proposal(intake.graph())
        self.step = step
        self._intake = intake
        self._asked = False

    @property
    def listed(self) -> int:
        """How many calls it has."""
        return len(self.plan.calls)

    @property
    def question(self) -> Question:
        """Whether it is accepted."""
        return self.plan.question(self.step)

    @property
    def waits(self) -> bool:
        """Whether it is there whole, and waits to be accepted."""
        return not self.plan.streams

    def due(self) -> list[AskPlan]:
        """That somebody is asked, once it waits and nobody has been."""
        if not self.waits or self._asked:
            return []
        question = self.question
        return [AskPlan(question.approval, question.digest)]

    def settled(self, broken: str | None = None) -> PlanResult | None:
        """What becomes of the plan without asking anybody, now that its end has come; None: it waits to be accepted.

        Args:
            broken: why the answer broke off, where it did.
        """
        plan = self.plan
        if broken is not None:
            # A plan that breaks off is not used: nothing of it has run, and nothing of it will.
            return PlanResult(plan, errors=[error_message("structural", f"the answer broke off: {broken}")])
        if not plan.calls:
            return PlanResult(plan, plan)
        return PlanResult(plan, errors=plan.graph.errors()) if plan.graph.problems else None

    def take(self, event: PlanEvent) -> PlanResult | None:
        """Take one event.

        Returns:
            What becomes of the plan, where that is settled now.

        Raises:
            JournalError: it does not fit.
        """
        match event:
            case CallProposed():
                self.plan.add(event.call, event.place)
            case OutputProposed():
                self.plan.set_output(event.output)
            case SolutionClosed():
                self.plan.close(event.extra)
                return self.settled(event.broken)
            case PlanAsked():
                self._expect(event.digest)
                self._asked = True
            case PlanDecided():
                self._expect(event.digest)
                return self._decided(event)
        return None

    def _expect(self, digest: str) -> None:
        if not self.waits:
            raise JournalError("the plan is still being written; nobody can decide on it")
        if self.question.digest != digest:
            raise JournalError("the decision is bound to another plan than the one that waits")

    def _decided(self, event: PlanDecided) -> PlanResult:
        plan, by, reason = self.plan, event.by, event.reason
        if event.decision == "deny":
            why = f"the plan was denied by {by}: {reason or 'no reason given'}"
            return PlanResult(plan, corrections=[plan.correction(None, str(by), reason)], reason=why)
        if event.decision == "approve":
            return PlanResult(plan, plan)
        proposed = SolutionProposed(event.calls or [], event.output, None, event.places)
        edited = self._intake.take(proposed).expect_well_formed()
        edited.extra = plan.extra
        return PlanResult(plan, edited, corrections=[plan.correction(edited, str(by), reason)])
