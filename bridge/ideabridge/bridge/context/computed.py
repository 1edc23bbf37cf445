"""The values in a plan that are computed when a call runs, and their uncertainties.

A published plan can contain literals that its original run copied. The loop knows these literals
only through the types in this module: a call, or the output, can have a `Computation`. A
`Computation` names the references that it reads. Once the values of these references exist, it
computes the literals and says what it assumed. `context/plan_literals.py` reads a plan's
computations.

Anything that might make an answer wrong is *assumed*: for example, that one of several differing
explanations is right, or a position, or a mind's own words. Everything else is *noted*, such as a
new kind of value or a search that reached its limit. A note is a reason to ask before a change,
unless the note is mild.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ideabridge.bridge.context.assumption import after_edit, note_lines, read_assumption
from ideabridge.bridge.context.references import Path
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty


@dataclass(slots=True)
class Doubts:
    """The uncertainties about a call or an output.

    Attributes:
        assumed: assumptions as in `Settled.assumed`, and `{"at": "calls.PLACE", "why"}` for each
            call that might have been a decision.
        notes: `{"at": reference or place, "what": text, "mild"?: true}` for each new value, and for
            anything else that is uncertain but hardly ever wrong. A note that is not mild is a
            reason to ask before a change.
        approved: the assumptions that someone was asked about and approved, in the form of
            `assumed`. The member `approved` says who approved them. An approved assumption might
            still be wrong.
        strict: whether a person is also asked before a read-only call.

    If there are instances, each entry has its `instance`.
    """

    assumed: list[JSONObject] = field(default_factory=list[JSONObject])
    notes: list[JSONObject] = field(default_factory=list[JSONObject])
    approved: list[JSONObject] = field(default_factory=list[JSONObject])
    strict: bool = False

    def to_json(self) -> JSONObject | None:
        """Return `{"assumed"?: [...], "notes"?: [...], "approved"?: [...]}`, or None if nothing is
        uncertain.
        """
        form: JSONObject = {}
        if self.assumed:
            form["assumed"] = list[JSON](self.assumed)

        if self.notes:
            form["notes"] = list[JSON](self.notes)

        if self.approved:
            form["approved"] = list[JSON](self.approved)

        return form or None

    def add(self, other: Doubts, instance: str) -> None:
        """Add the doubts about a call or an output of an instance, which is "" if there are no
        instances.
        """
        self.strict = self.strict or other.strict
        if instance:
            self.assumed += [{**entry, "instance": instance} for entry in other.assumed]
            self.notes += [{**entry, "instance": instance} for entry in other.notes]
            self.approved += [{**entry, "instance": instance} for entry in other.approved]
        else:
            self.assumed += other.assumed
            self.notes += other.notes
            self.approved += other.approved

    def approve(self, by: str, edited: JSONObject | None) -> None:
        """Record that someone has approved the call after seeing every reason to ask.

        Args:
            by: who approved the call.
            edited: the resolved call if the person changed it, and None otherwise.
        """
        if edited is None:
            assumed = self.assumed
        else:
            assumed = after_edit(self.assumed, edited, f"chosen by {by}")

        self.approved += [{**entry, "approved": by} for entry in assumed]
        self.assumed = []
        asking = [note for note in self.notes if not note.get("mild")]
        self.approved += [
            {"at": note["at"], "why": note["what"], "approved": by} for note in asking
        ]
        self.notes = [note for note in self.notes if note.get("mild")]

    def add_room(self, at: str, doubts: JSONObject) -> None:
        """Add the doubts of the run that answered a call. `at` is the path of the call."""
        # Earlier versions wrote `unseen` instead of `notes`.
        lists = {
            "assumed": self.assumed,
            "notes": self.notes,
            "unseen": self.notes,
            "approved": self.approved,
        }
        for name, entries in lists.items():
            listed = doubts.get(name)
            for entry in list_or_empty(listed):
                if isinstance(entry, dict):
                    entries.append({**entry, "at": f"{at}: {entry.get('at')}"})

    @property
    def ask(self) -> str | None:
        """Return the reasons to ask a person, one per line, or None if nothing important is
        uncertain.
        """
        lines = [read_assumption(entry).line for entry in self.assumed]
        lines += note_lines((note for note in self.notes if not note.get("mild")), most=None)
        return "\n".join(lines) or None


@dataclass(slots=True)
class Computed:
    """The result of a computation.

    Attributes:
        values: the values of the literals, keyed by their paths relative to the call or the output.
        doubts: the uncertainties about these values.
        problem: why a literal has no value, or None if all literals have one.
        skipped: why the call is not made, or None if it is made. Only plans from earlier versions
            decide this.
    """

    values: dict[Path, JSON] = field(default_factory=dict[Path, JSON])
    doubts: Doubts = field(default_factory=Doubts)
    problem: str | None = None
    skipped: str | None = None


class Computation(Protocol):
    """The computed literals in a call or in the output of a plan. Equal input values always give
    equal results.
    """

    @property
    def at(self) -> Sequence[Path]:
        """The path of each literal, relative to the call or the output."""
        ...

    @property
    def references(self) -> Sequence[str]:
        """The references, as strings, that `compute` reads in addition to those of the call itself.
        They need not have a value.
        """
        ...

    @property
    def needs(self) -> Collection[str]:
        """The essential members of `references`.

        If the call that writes the value of an essential reference fails, the call that reads it
        also fails.
        """
        ...

    @property
    def shared_reason(self) -> str | None:
        """A reason to ask that the call shares with other calls, or None if there is none.

        A single question can name all calls that share a reason.
        """
        ...

    def compute(self, values: Mapping[str, JSON], *, only_reads: bool) -> Computed:
        """Compute the literals.

        Args:
            values: the existing values of the references that the call reads, keyed by reference
                (as a string).
            only_reads: whether the call changes nothing.
        """
        ...


@dataclass(frozen=True, slots=True)
class Computations:
    """The computations in one plan.

    Attributes:
        calls: the computation of each call, keyed by the call's place.
        output: the computation of the output, or None if the output has no computed literals.
        problems: a sentence for each malformed part.
    """

    calls: Mapping[int, Computation] = field(default_factory=dict[int, Computation])
    output: Computation | None = None
    problems: Sequence[str] = ()


def put_in(document: JSON, values: Mapping[Path, JSON]) -> JSON:
    """Return a document with different values at some paths. Paths that do not exist are
    ignored.
    """
    if not values:
        return document
    if () in values:
        return values[()]

    # Group the values by their first key, so that each array and object is copied only once, even
    # if several of its members change.
    below: dict[str, dict[Path, JSON]] = {}
    for keys, value in values.items():
        below.setdefault(keys[0], {})[keys[1:]] = value

    if isinstance(document, dict):
        return {
            key: put_in(item, below[key]) if key in below else item
            for key, item in document.items()
        }

    if isinstance(document, list):
        return [put_in(item, below.get(str(number), {})) for number, item in enumerate(document)]
    return document


def holds(document: JSON, keys: Path) -> bool:
    """Return whether `put_in` can change the value at a path. Unlike a reference, the path cannot
    continue inside a string.
    """
    for key in keys:
        if isinstance(document, dict) and key in document:
            document = document[key]
        elif (
            isinstance(document, list)
            and len(key) < 10
            and key.isdecimal()
            and int(key) < len(document)
        ):
            if key != str(int(key)):
                return False
            document = document[int(key)]
        else:
            return False
    return True
