"""Explaining: the explanations of every literal of a lifted run, in all runs that were named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from ideabridge.bridge.context.explanations import Constant, Explanation, Joined, PathTo, Read, operand_path
from ideabridge.bridge.context.references import DAGGER, Path, format_reference, parse_reference
from ideabridge.bridge.context.state import Missing
from ideabridge.bridge.context.steps import as_text
from ideabridge.bridge.lifting.aligned import Leaf, ValueSource, leaves_of_call, leaves_of_output
from ideabridge.bridge.lifting.function import is_distinctive, walk
from ideabridge.bridge.lifting.index import Values
from ideabridge.bridge.lifting.inside import Inside, core_of, stands_in
from ideabridge.bridge.lifting.lifted import Lifted, selects_by_data
from ideabridge.bridge.lifting.search import Found, is_common, selects
from ideabridge.bridge.lifting.search import explain as explain_literal
from ideabridge.tools.encoding import JSON, JSONObject

_PARTS: Final = 100
"""The most values of a list whose places are looked for."""


def explain(lifted: Lifted) -> None:
    """List the leaves of a lifted run, and find the explanations of its literals in all runs that were named."""
    lifted.leaves = []
    lifted.found = {}
    lifted.literals = {}
    _Explaining(lifted).run()


class _Explaining:
    """Goes through the calls in the order in which they were written, and indexes what each author had seen."""

    def __init__(self, lifted: Lifted) -> None:
        self._lifted = lifted
        self._aligned = lifted.aligned
        self._values = Values()
        self._looked: dict[tuple[int | None, Path], Found] = {}
        # The author of a plan had seen no results.
        places = range(len(self._aligned.calls)) if lifted.requests else range(0)
        self._unseen = sorted(places, key=lambda place: self._aligned.calls[place].step, reverse=True)
        self._readers: list[Read] = [partial(lifted.read, other) for other in lifted.others]

    def run(self) -> None:
        """Fill `leaves`, `found` and `literals` of the lifted run."""
        lifted = self._lifted
        calls = self._aligned.calls
        if lifted.function.input:
            self._values.add(f"{DAGGER}input", lifted.function.input)
        leaves: dict[int, list[Leaf]] = {}
        for place in sorted(range(len(calls)), key=lambda place: (calls[place].chosen, place)):
            self._see(calls[place].chosen)
            leaves[place] = list(leaves_of_call(lifted.calls[place], place, lifted.catalogue, self._is_whole))
            for leaf in leaves[place]:
                self._explain(leaf)
            self._looked.clear()
        self._see(lifted.function.run.machine.step)
        output = list(leaves_of_output(lifted.output, self._is_whole))
        for leaf in output:
            self._explain(leaf)
        lifted.leaves = [leaf for place in range(len(calls)) for leaf in leaves[place]] + output

    def _see(self, step: int) -> None:
        """Index the results of the Requests before one."""
        while self._unseen and self._aligned.calls[self._unseen[-1]].step < step:
            place = self._unseen.pop()
            root = self._aligned.reference_to(ValueSource(place, ()))
            document = self._aligned.document(place)
            if root is not None and not isinstance(document, Missing):
                self._values.add(root, document)

    # -- one literal -----------------------------------------------------------------------------------------------

    def _explain(self, leaf: Leaf) -> None:
        found: Found | None = None
        if leaf.reference is not None:
            found = self._chosen_reference(leaf)
        elif not leaf.demanded and leaf.keys[:1] != ("_output",):
            found = self._look(leaf.place, leaf.keys, leaf.value)
            found = replace(found, inside=self._inside(leaf, found))
            if leaf.place is not None and not found.is_explained and is_distinctive(leaf.value):
                self._note_literal(leaf)
        if found is not None:
            self._lifted.found[leaf.path] = replace(found, runs=self._agreeing(leaf, found.by[0]))

    def _look(self, place: int | None, keys: Path, value: JSON) -> Found:
        """Return the explanations of a literal that fit all runs."""
        known = self._looked.get((place, keys))
        if known is not None:
            return known

        name = next((key for key in reversed(keys) if not key.isdecimal()), "")
        found = explain_literal(value, self._values, name).fitting(self._elsewhere(place, keys))
        self._looked[place, keys] = found
        return found

    def _elsewhere(self, place: int | None, keys: Path) -> Iterator[tuple[JSON, Read]]:
        """Yield the value that each further run has there, if it has one, with what reads the values of that run."""
        for other, read in zip(self._lifted.others, self._readers, strict=True):
            value = other.leaf(place, keys)
            if not isinstance(value, Missing):
                yield value, read

    def _is_whole(self, place: int | None, keys: Path, value: JSON) -> bool:
        """Return whether a list or object is one leaf: if it is explained as a whole, or a list of constants."""
        if self._look(place, keys, value).is_explained:
            return True
        return isinstance(value, list) and not self._has_explained(place, keys, value)

    def _has_explained(self, place: int | None, keys: Path, value: JSON) -> bool:
        """Return whether something inside a list or object is explained."""
        if isinstance(value, dict | list) and value:
            members = value.items() if isinstance(value, dict) else ((str(n), item) for n, item in enumerate(value))
            return any(self._has_explained(place, (*keys, key), item) for key, item in members)
        return self._look(place, keys, value).is_explained

    def _note_literal(self, leaf: Leaf) -> None:
        """Let an unexplained literal explain later ones. Its reference is a name that no input has; the draft puts that
        of a parameter in its place.
        """
        if self._lifted.requests and leaf.path not in (self._lifted.function.input or {}):
            self._lifted.literals[leaf.path] = leaf
            self._values.add(format_reference(("input", leaf.path)), leaf.value, literal=True)

    def _inside(self, leaf: Leaf, found: Found) -> Inside | None:
        """Return where a part of a literal stood that its explanations leave as it is.

        What the user named is a parameter. The author of a plan wrote it for any input.
        """
        if leaf.place is None or not self._lifted.requests or _is_option(leaf.schema):
            return None
        for part in _parts_left(leaf.value, found.by[0]):
            if stands_in(part, self._lifted.task):
                continue
            for root in self._values.texts.roots_with(part):
                # Constant texts around a value of the input are compared with what the calls gave.
                if not found.is_explained or operand_path(root)[0] != "input":
                    return Inside(part, root)
        return None

    def _chosen_reference(self, leaf: Leaf) -> Found | None:
        """Return the explanations of a reference that selects from values its writer had seen, the reference first."""
        aligned = self._aligned
        expression = parse_reference(str(leaf.reference))
        operands = list(expression.operands())
        if not self._lifted.requests or expression.uses_item or len(operands) != 1 or operands[0].instance is not None:
            return None
        source = aligned.source_in_plan(operands[0])
        step = aligned.function.run.machine.step if leaf.place is None else aligned.calls[leaf.place].chosen
        value = aligned.leaf(leaf.place, leaf.keys)
        if source is None or isinstance(value, Missing) or not selects_by_data(aligned, source, step):
            return None
        found = self._look(leaf.place, leaf.keys, value)
        written = PathTo(format_reference(operands[0].full))
        if found.contradicted:
            # Each run chose another place.
            return Found([written], found.cut, contradicted=True)
        by: list[Explanation] = [
            explanation for explanation in found.by if not isinstance(explanation, Constant) and explanation != written
        ]
        if written in found.by:
            by.insert(0, written)
        return Found(by, found.cut) if by else None

    # -- several runs ----------------------------------------------------------------------------------------------

    def _agreeing(self, leaf: Leaf, first: Explanation) -> int:
        """Return how many of the runs have a value there; if its first explanation selects by a position: how many of
        them had a choice, at least 1.
        """
        others = [read for _, read in self._elsewhere(leaf.place, leaf.keys)]
        if not selects(first):
            return 1 + len(others)
        readers = [partial(self._lifted.read, self._aligned), *others]
        return max(1, sum(first.positions(read) for read in readers))


def _parts_left(literal: JSON, explanation: Explanation) -> Iterator[str]:
    """Yield what an explanation leaves of a literal as it is, and what can identify where it comes from."""
    if isinstance(explanation, Joined):
        yield str(literal)
        texts = [part.constant for part in explanation.parts if isinstance(part, Constant)]
        cores = [core_of(text) for text in texts if isinstance(text, str)]
        yield from (core for core in cores if not is_common(core))
    elif isinstance(explanation, Constant):
        for _, value in islice(walk(literal), _PARTS):
            text = value if isinstance(value, str) else as_text(value)
            if isinstance(text, str) and not is_common(value):
                yield text


def _is_option(schema: JSONObject | None) -> bool:
    """Return whether the schema of a parameter, or of its items, lists all values: such a value names no data."""
    if schema is None:
        return False
    alternatives = schema.get("anyOf")
    inner = [schema.get("items"), *(alternatives if isinstance(alternatives, list) else [])]
    return any("enum" in part for part in (schema, *inner) if isinstance(part, dict))
