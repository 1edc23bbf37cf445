"""Recompute the values that a published plan copied from its run; see `Computation`.

A read-only call runs with the value that the cheapest explanation yields, and the run reports the
assumption. Before a call that might change something, the run asks a person, regardless of the
approval policy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.computed import Computed, Doubts
from ideabridge.bridge.context.explanations import (
    NOTED,
    Explained,
    Joined,
    Read,
    Settled,
    assumption,
    references_of,
    settle,
)
from ideabridge.bridge.context.references import Path
from ideabridge.bridge.context.seen import unseen
from ideabridge.bridge.context.state import MISSING, Missing
from ideabridge.tools.encoding import JSON, JSONObject

DECISION: Final = (
    "whoever made this call had already seen results, and may have made it because of them"
)

_TRIED: Final = 3
"""The maximum number of explanations that are named in the error for a literal without a value."""


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What a plan records about its values in addition to their explanations.

    Attributes:
        seen: profiles of the values that earlier runs read, keyed by reference; see
            `context/seen.py`.
        companions: for each literal's location, the other literals whose values come from the same
            object, and can be passed as parameters by the caller.
        strict: whether a person is asked before any undetermined value is used.
    """

    seen: Mapping[str, JSONObject]
    companions: Mapping[Path, Sequence[Explained]]
    strict: bool = False


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What a plan records about one of its calls.

    Attributes:
        place: the place of the call.
        watched: the references that the call does not read although its author had seen their
            values.
        may_decide: whether the call might have been made because of a result that the call does not
            read.
        is_idle: whether nothing reads the call's result.
    """

    place: int
    watched: Sequence[str] = ()
    may_decide: bool = False
    is_idle: bool = False


class CopiedLiterals:
    """Copied literals that are computed together.

    Args:
        literals: the literals with their explanations.
        facts: what the plan records about its values in addition to their explanations.
        depth: the number of leading keys in a location that identify the call or the output. The
            remaining keys lead to the literal in it.
    """

    def __init__(self, literals: Sequence[Explained], facts: PlanFacts, depth: int) -> None:
        self.at = [literal.at[depth:] for literal in literals]
        self._literals = literals
        self._facts = facts
        self._copied = frozenset(references_of(literals))
        self.references: Sequence[str] = self._read_by_literals()

    @property
    def needs(self) -> Collection[str]:
        """No references, because a literal's explanations do not depend on any particular value."""
        return ()

    @property
    def shared_reason(self) -> str | None:
        """Always None, because an output shares no reasons with calls."""
        return None

    def _read_by_literals(self) -> list[str]:
        """Return the references that the literals read, and those that show which companions were
        passed.
        """
        references = dict.fromkeys(references_of(self._literals))
        for literal in self._literals:
            companions = self._facts.companions.get(literal.at, ())
            references.update(
                dict.fromkeys(
                    companion.given for companion in companions if companion.given is not None
                )
            )
        return list(references)

    def settle_all(self, read: Read) -> Computed:
        """Evaluate the explanations of all literals."""
        doubts = Doubts(strict=self._facts.strict)
        computed = Computed(doubts=doubts)
        for keys, literal in zip(self.at, self._literals, strict=True):
            settled = self.settle_literal(literal, read)
            if isinstance(settled.value, Missing):
                computed.problem = computed.problem or _without_value(literal)
                continue

            computed.values[keys] = settled.value
            if settled.assumed is not None:
                doubts.assumed.append(settled.assumed)
                continue

            if settled.note is not None:
                doubts.notes.append(self.note_of(literal, settled.note))

            passed = self._passed_companion(literal, read)
            if passed is not None:
                reason = (
                    f"{passed} was passed, but this value was recorded together with another "
                    f"value of {passed}"
                )
                doubts.assumed.append(assumption(literal, settled.value, reason))

        return computed

    def settle_literal(self, literal: Explained, read: Read) -> Settled:
        """Evaluate the explanations of one literal."""
        return settle(literal, read)

    def note_of(self, literal: Explained, reason: str) -> JSONObject:
        """Return a note on why a literal is not determined. This reason alone does not make the
        value doubtful.
        """
        note: JSONObject = {"at": ".".join(literal.at), "what": reason}
        if NOTED.get(reason, True):
            note["mild"] = True
        return note

    def _passed_companion(self, literal: Explained, read: Read) -> str | None:
        """Return the reference to another value from the literal's object that the caller passed.

        Return None if there is none, or if the caller passed the literal's own value.
        """
        if was_passed(literal, read):
            return None
        companions = self._facts.companions.get(literal.at, ())
        return next(
            (companion.given for companion in companions if was_passed(companion, read)), None
        )

    def novelties(
        self, read: Read, references: Iterable[str], watched: Collection[str] = ()
    ) -> list[JSONObject]:
        """Return a note for each property of the referenced values that no run has seen.

        Args:
            read: returns the value of a reference.
            references: the references as strings.
            watched: the members of `references` that the call does not read.
        """
        notes: list[JSONObject] = []
        for text in dict.fromkeys(references):
            profile = self._facts.seen.get(text)
            if profile is None:
                continue
            for novelty in unseen(profile, read(text)):
                if novelty.lone and text not in watched:
                    # A number that the plan only passes on is expected to be different each time,
                    # so it gets no note. A value that the plan does not read does get one, because
                    # a decision might have depended on it.
                    continue

                if novelty.notation and text not in self._copied:
                    continue

                note: JSONObject = {"at": text, "what": novelty.text}
                if novelty.mild:
                    note["mild"] = True

                notes.append(note)

        return notes


class CopiedInOutput(CopiedLiterals):
    """The copied literals in an output.

    Only the values that the literals are computed from are compared with what runs have read,
    because everything else in an output is a reference that someone wrote.
    """

    def __init__(self, literals: Sequence[Explained], facts: PlanFacts) -> None:
        super().__init__(literals, facts, 1)

    def compute(self, values: Mapping[str, JSON], *, only_reads: bool) -> Computed:
        """See `Computation.compute`. An output changes nothing, so `only_reads` is ignored."""
        read = reading(values)
        computed = self.settle_all(read)
        computed.doubts.notes += self.novelties(read, references_of(self._literals))
        return computed


class CopiedInCall(CopiedLiterals):
    """The copied literals in a call."""

    def __init__(self, literals: Sequence[Explained], facts: PlanFacts, call: CallFacts) -> None:
        super().__init__(literals, facts, 2)
        self.call = call
        self.references = list(dict.fromkeys([*self.references, *call.watched]))

    @property
    def shared_reason(self) -> str | None:
        """The reason to ask about a call that might have been a decision."""
        return DECISION if self.call.may_decide else None

    def compute(self, values: Mapping[str, JSON], *, only_reads: bool) -> Computed:
        """See `Computation.compute`."""
        read = reading(values)
        computed = self.settle_all(read)
        doubts = computed.doubts
        if not only_reads:
            doubts.notes += self._recorded_words(read, doubts.assumed)

        novelties = self.novelties(read, [*values, *self.references], self.call.watched)
        doubts.notes += novelties
        # An idle call affects nothing, so it makes no difference whether the call should have been
        # made.
        is_idle = only_reads and self.call.is_idle and not self._facts.strict
        if not is_idle:
            self._doubt_watched(novelties, doubts)
            if self.call.may_decide:
                # If only one input took this branch, the result might be wrong for other inputs.
                doubts.assumed.append({"at": f"calls.{self.call.place}", "why": DECISION})

        return computed

    def _recorded_words(self, read: Read, assumed: Iterable[JSONObject]) -> list[JSONObject]:
        """Return notes about a mind's words around a copied value, if only one run shows them.

        The words might depend on that run's data, even if the copied value is the same again.
        """
        named = {str(entry["at"]) for entry in assumed}
        notes: list[JSONObject] = []
        for literal in self._literals:
            cheapest = literal.by[0]
            at = ".".join(literal.at)
            if not isinstance(cheapest, Joined) or not cheapest.words or literal.runs != 1:
                continue
            if at not in named and not was_passed(literal, read):
                notes.append(
                    {"at": at, "what": f"{cheapest.words} in it comes from the recorded run"}
                )

        return notes

    def _doubt_watched(self, novelties: Iterable[JSONObject], doubts: Doubts) -> None:
        """Record everything that is new about the values that the call does not read as
        assumptions.

        The call's author had seen these values, and could only have used them for a decision.
        """
        for novelty in novelties:
            if novelty["at"] in self.call.watched:
                reason = f"{novelty['at']} is {novelty['what']}: the call may depend on it"
                doubts.assumed.append({"at": f"calls.{self.call.place}", "why": reason})


def reading(values: Mapping[str, JSON]) -> Read:
    """Return a function that reads the value of a reference, given as a string."""
    return lambda text: values.get(text, MISSING)


def was_passed(literal: Explained, read: Read) -> bool:
    """Return whether the caller passed the optional parameter that provides a literal."""
    return literal.given is not None and not isinstance(read(literal.given), Missing)


def _without_value(literal: Explained) -> str:
    tried = "; ".join(explanation.shown for explanation in literal.by[:_TRIED])
    return f"{'.'.join(literal.at)} has no value for this data: there is nothing at {tried}"
