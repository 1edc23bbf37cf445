"""Fold journals whose plans were proposed under version 0 or 1 of the rules for calls. Only such
journals need this module.

The plans in these journals differ in four ways:

- They can contain explanations of removed kinds; see `context/removed.py`.
- A literal at `calls.PLACE._when` contains tests that decide whether the call is made or skipped.
- If an explanation has no value, the next one of any kind is used.
- Before a call that changes something, a person is asked about every undetermined value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ideabridge.bridge.context.computed import Computed, Doubts
from ideabridge.bridge.context.copied import (
    DECISION,
    CallFacts,
    CopiedInCall,
    CopiedInOutput,
    CopiedLiterals,
    PlanFacts,
    reading,
)
from ideabridge.bridge.context.explanations import Explained, Read, Settled, settle
from ideabridge.bridge.context.state import Missing
from ideabridge.tools.encoding import JSON, JSONObject

LAST_RULES: Final = 1
"""The last version of the rules for calls that this module applies to."""

WHEN: Final = "_when"
"""The key in a call for the literal that decides whether the call is made. It is not a
parameter.
"""


class _UnderEarlierRules(CopiedLiterals):
    """Literals that take the value of the first explanation that has one. Every note about them is
    a reason to ask.
    """

    def settle_literal(self, literal: Explained, read: Read) -> Settled:
        """Evaluate the explanations of a literal."""
        by = sorted(
            literal.by, key=lambda explanation: isinstance(explanation.value(read), Missing)
        )
        return settle(replace(literal, by=tuple(by)), read)

    def note_of(self, literal: Explained, reason: str) -> JSONObject:
        """Return the note that says why a literal is not determined."""
        return {"at": ".".join(literal.at), "what": reason}


class EarlierInOutput(_UnderEarlierRules, CopiedInOutput):
    """The copied literals in an output."""


class EarlierInCall(_UnderEarlierRules, CopiedInCall):
    """The copied literals in a call, and the tests that decide whether the call is made.

    Args:
        literals, facts, call: see `CopiedInCall`.
        test: the tests, or None if the call is always made.
    """

    def __init__(
        self,
        literals: Sequence[Explained],
        facts: PlanFacts,
        call: CallFacts,
        test: Explained | None,
    ) -> None:
        super().__init__(literals, facts, call)
        self._test = test
        if test is not None:
            self.references = list(dict.fromkeys([*test.references, *self.references]))

    @property
    def needs(self) -> Collection[str]:
        """The references that the tests read.

        If one of them refers to the result of a failed call, the tests decide nothing.
        """
        return () if self._test is None else self._test.references

    @property
    def shared_reason(self) -> str | None:
        """Always None, because each call in an earlier plan asks separately."""
        return None

    def compute(self, values: Mapping[str, JSON], *, only_reads: bool) -> Computed:
        """See `Computation.compute`."""
        read = reading(values)
        decided = self._decide(read)
        if decided.skipped is not None or decided.problem is not None:
            return decided

        computed = self.settle_all(read)
        readable = [text for text in (*values, *self.references) if text not in self.needs]
        computed.doubts.notes += self.novelties(read, readable, self.call.watched)
        if self.call.may_decide:
            computed.doubts.assumed.append({"at": f"calls.{self.call.place}", "why": DECISION})

        computed.doubts.assumed[:0] = decided.doubts.assumed
        computed.doubts.notes[:0] = decided.doubts.notes
        return computed

    def _decide(self, read: Read) -> Computed:
        """Evaluate the tests."""
        computed = Computed(doubts=Doubts(strict=self._facts.strict))
        test = self._test
        if test is None:
            return computed

        settled = self.settle_literal(test, read)
        if isinstance(settled.value, Missing):
            tests = "; ".join(explanation.shown for explanation in test.by[:3])
            computed.problem = f"no test can decide whether to make this call: {tests}"
            return computed

        values = [(explanation.shown, explanation.value(read)) for explanation in test.by]
        reason = next(shown for shown, value in values if not isinstance(value, Missing))
        if settled.assumed is not None:
            why = (
                f"{settled.assumed['why']}: it may have been called for "
                f"another reason than {reason}"
            )
            unmet = [shown for shown, value in values if value is not settled.value]
            if unmet:
                decision = f"called because {reason}"
                if settled.value is not True:
                    decision = f"not called, because it is not true that {reason}"
                why = f"{decision}; runs may have called it only if {unmet[0]}"

            computed.doubts.assumed.append({"at": f"calls.{self.call.place}", "why": why})

        computed.doubts.notes += self.novelties(read, test.references, test.references)
        if settled.value is not True:
            computed.skipped = f"it is called only if {reason}"

        return computed
