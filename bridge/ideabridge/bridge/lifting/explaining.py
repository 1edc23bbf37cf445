"""Find, for every literal in a lifted run, the explanations that fit all named runs.

Theory of operation. The author of a call had seen the input and the results of all earlier
Requests. Only the input, these results and earlier literals can explain a literal in the call. The
calls are therefore examined in the order they were written, while an index of values (index.py)
grows. For each call:

1. The results of the Requests before it enter the index.
2. Its parameters are divided into leaves (leaves.py). A list or object is one leaf if something
   explains it as a whole.
3. Each literal is looked up (search.py), which yields its explanations in this run. An explanation
   is removed if it yields a wrong value in another named run. If none is left, the literal is
   `contradicted`.
4. If nothing explains a literal, but part of it appears in an earlier string (inside.py), the
   search records this.
5. A literal that nothing explains enters the index itself, because later literals might repeat it.

The output comes last, because its author had seen everything.

Example. A mind lists a folder, and then reads a file and writes about it:

    Request 0    calls.0  list_files(folder="notes")                     returned ["a.txt", "b.txt"]
    Request 1    calls.1  read_file(path="a.txt")                        returned {"owner": "Ann"}
    Request 2    calls.2  send(to="Ann", text="About a.txt")             returned null

| literal | what the index has then | explanations, the cheapest first |
|---|---|---|
| `calls.0.folder` | nothing | the constant; from now on the index has this literal |
| `calls.1.path` | the folder, result 0 | `†results.0.0`, the constant |
| `calls.2.to` | the same and result 1 | `†results.1.owner`, the constant |
| `calls.2.text` | the same | `"About " + †results.0.0`, the constant |

Suppose another run listed `["x.txt", "y.txt"]`, read `y.txt` and wrote "About y.txt". Then no
explanation for `calls.1.path` is left: the literal is contradicted. It therefore enters the index
as well, and explains `calls.2.text`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from ideabridge.bridge.context.explanations import (
    Constant,
    Explanation,
    Joined,
    PathTo,
    Read,
    operand_path,
)
from ideabridge.bridge.context.references import Path, Reference, format_reference, parse_reference
from ideabridge.bridge.context.state import Missing
from ideabridge.bridge.context.steps import as_text
from ideabridge.bridge.lifting.aligned import ValueSource
from ideabridge.bridge.lifting.function import is_distinctive, walk
from ideabridge.bridge.lifting.index import INPUT, Values
from ideabridge.bridge.lifting.inside import Inside, core_of, stands_in
from ideabridge.bridge.lifting.leaves import Leaf, keys_below, leaves_of_call, leaves_of_output
from ideabridge.bridge.lifting.lifted import Lifted, selects_by_data
from ideabridge.bridge.lifting.search import Found, explain_literal, is_common, is_constant, selects
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty, object_or_empty
from ideabridge.tools.json_parts import parts_of

_MAX_PARTS: Final = 100
"""The number of values inside a constant that are searched for parts that appeared earlier."""


def explain_run(lifted: Lifted) -> None:
    """List the leaves of a lifted run, and find the explanations for its literals that fit all
    named runs.
    """
    lifted.leaves = []
    lifted.explanations_by_path = {}
    lifted.literals = {}
    _Explaining(lifted).run()


class _Explaining:
    """Examines the calls in the order they were written. Before each call, indexes the values that
    its author had seen.
    """

    def __init__(self, lifted: Lifted) -> None:
        self._lifted = lifted
        self._aligned = lifted.aligned
        self._calls = lifted.aligned.calls
        self._values = Values()
        self._looked_up: dict[Path, Found] = {}
        # The calls whose results are not in the index yet. Calls are popped from the end, so those
        # of the last Request come first. For a plan, the list stays empty, because the author of a
        # plan had not seen any results.
        self._unseen: list[int] = []
        if lifted.requests:
            places = range(len(self._calls))
            self._unseen = sorted(places, key=lambda place: self._calls[place].step, reverse=True)

        self._readers: list[Read] = [partial(lifted.read, other) for other in lifted.others]

    def run(self) -> None:
        """Fill `leaves`, `explanations_by_path` and `literals` of the lifted run."""
        lifted = self._lifted
        if lifted.function.input:
            self._values.add(INPUT, lifted.function.input)

        leaves_by_place: dict[int, list[Leaf]] = {}
        places = range(len(self._calls))
        as_written = sorted(places, key=lambda place: self._calls[place].chosen)
        for place in as_written:
            self._see_results_before(self._step_of_author(place))
            call = lifted.calls[place]
            leaves = list(leaves_of_call(call, place, lifted.catalogue, self._is_whole))
            self._explain_all(leaves)
            leaves_by_place[place] = leaves

        self._see_results_before(self._step_of_author(None))
        output_leaves = list(leaves_of_output(lifted.output, self._is_whole))
        self._explain_all(output_leaves)

        # List the leaves in the order of the plan, which can differ from the order in which its
        # calls were written.
        for place in places:
            lifted.leaves += leaves_by_place[place]
        lifted.leaves += output_leaves

    def _step_of_author(self, place: int | None) -> int:
        """Return the Request that the author of a call, or of the output, was answering. The author
        had seen the results of all Requests before it.
        """
        if place is None:
            # The author of the output had seen the results of all Requests.
            return self._lifted.function.run.machine.step
        return self._calls[place].chosen

    def _see_results_before(self, step: int) -> None:
        """Index the results of all Requests before the given one."""
        while self._unseen:
            place = self._unseen[-1]
            if self._calls[place].step >= step:
                return

            self._unseen.pop()
            root = self._aligned.reference_to(ValueSource(place, ()))
            document = self._aligned.document(place)
            if root is not None and not isinstance(document, Missing):
                self._values.add(root, document)

    def _explain_all(self, leaves: list[Leaf]) -> None:
        """Explain the leaves of a call or of the output."""
        for leaf in leaves:
            if leaf.reference is None:
                explanations = self._explain_literal(leaf)
            else:
                explanations = self._explain_reference(leaf)
            if explanations is None:
                continue

            best = explanations.by[0]
            explanations = replace(explanations, runs=self._agreeing(leaf, best))
            self._lifted.explanations_by_path[leaf.path] = explanations

        self._looked_up.clear()

    # -- literals ----------------------------------------------------------------------------------

    def _explain_literal(self, leaf: Leaf) -> Found | None:
        """Return the explanations for a literal, or None if the tool allows no other value, or a
        mind is asked for the value.

        An unexplained literal enters the index, so that it can explain later literals.
        """
        if leaf.demanded or leaf.keys[:1] == ("_output",):
            return None

        explanations = self._look_up(leaf.at, leaf.value)
        # Search for its parts before the literal itself enters the index.
        explanations = replace(explanations, inside=self._inside(leaf, explanations))
        is_in_call = leaf.place is not None
        if is_in_call and not explanations.is_explained and is_distinctive(leaf.value):
            self._note_literal(leaf)

        return explanations

    def _look_up(self, at: Path, value: JSON) -> Found:
        """Return the explanations for a literal that fit all runs."""
        explanations = self._looked_up.get(at)
        if explanations is not None:
            return explanations

        # An item of a list has the name of the list.
        name = ""
        for key in keys_below(at):
            if not key.isdecimal():
                name = key

        in_this_run = explain_literal(value, self._values, name)
        explanations = in_this_run.fitting(self._elsewhere(at))
        # Remember the explanations, because the items of a list are looked up twice: first
        # together, as a list, and then one by one.
        self._looked_up[at] = explanations
        return explanations

    def _elsewhere(self, at: Path) -> Iterator[tuple[JSON, Read]]:
        """Yield the value at the same place in each other run that has one, with the function that
        reads that run's values.
        """
        for other, read in zip(self._lifted.others, self._readers, strict=True):
            value = other.leaf(at)
            if not isinstance(value, Missing):
                yield value, read

    def _is_whole(self, at: Path, value: JSON) -> bool:
        """Return whether a list or object is a single leaf: it is explained as a whole, or is a
        list of constants.
        """
        if self._look_up(at, value).is_explained:
            return True
        if not isinstance(value, list):
            return False
        return not self._has_explained(at, value)

    def _has_explained(self, at: Path, value: JSON) -> bool:
        """Return whether something inside a list or object is explained."""
        parts = list(parts_of(value))
        if not parts:
            return self._look_up(at, value).is_explained
        return any(self._has_explained((*at, str(key)), part) for key, part in parts)

    def _note_literal(self, leaf: Leaf) -> None:
        """Let an unexplained literal explain later literals.

        The reference to such a literal is `†input` followed by the literal's path. No real input
        has such a member. The draft later replaces it with a reference to a parameter.
        """
        run_input = self._lifted.function.input or {}
        if not self._lifted.requests or leaf.path in run_input:
            return

        reference = format_reference(("input", leaf.path))
        self._lifted.literals[leaf.path] = leaf
        self._values.add(reference, leaf.value, literal=True)

    def _inside(self, leaf: Leaf, explanations: Found) -> Inside | None:
        """Return a part of a literal that its explanations do not account for, and where the part
        appeared earlier, or None if there is no such part.

        Parts that appear in the user's task do not count, because they are parameters. Literals in
        a written plan have no such parts, because the author wrote the plan for any input.
        """
        if leaf.place is None or not self._lifted.requests or _is_option(leaf.schema):
            return None

        for part in _parts_left(leaf.value, explanations.by[0]):
            if stands_in(part, self._lifted.task):
                continue

            for root in self._values.texts.roots_with(part):
                if explanations.is_explained and operand_path(root)[0] == "input":
                    # The constant text around an explained value counts only if it appears in the
                    # result of a call.
                    continue
                return Inside(part, root)

        return None

    # -- references --------------------------------------------------------------------------------

    def _explain_reference(self, leaf: Leaf) -> Found | None:
        """Return the explanations for a reference, or None if the reference is certain.

        A reference is uncertain if it selects from values that its author had seen. It then comes
        first among its own explanations.
        """
        operand = _only_operand(str(leaf.reference))
        value = self._aligned.leaf(leaf.at)
        if operand is None or isinstance(value, Missing):
            return None
        if not self._selects_from_seen(leaf, operand):
            return None

        explanations = self._look_up(leaf.at, value)
        written = PathTo(format_reference(operand.full))
        if explanations.contradicted:
            # The runs selected different places, so no explanation fits all of them.
            return Found([written], explanations.cut, contradicted=True)

        by = [explanation for explanation in explanations.by if not is_constant(explanation)]
        # Put the written reference first. The sort is stable, so the others keep their order.
        by.sort(key=lambda explanation: explanation != written)
        if not by:
            return None
        return Found(by, explanations.cut)

    def _selects_from_seen(self, leaf: Leaf, operand: Reference) -> bool:
        """Return whether the author of a reference chose a position, or a key that is data, after
        having seen the values.
        """
        source = self._aligned.source_in_plan(operand)
        if source is None or not self._lifted.requests:
            return False

        return selects_by_data(self._aligned, source, self._step_of_author(leaf.place))

    # -- comparing several runs --------------------------------------------------------------------

    def _agreeing(self, leaf: Leaf, first: Explanation) -> int:
        """Return how many of the runs have a value for a leaf.

        If the leaf's first explanation selects by position, only the runs that had a choice of
        positions count, but the result is at least 1.
        """
        read_this_run = partial(self._lifted.read, self._aligned)
        readers: list[Read] = [read_this_run]
        for _, read_other in self._elsewhere(leaf.at):
            readers.append(read_other)

        if not selects(first):
            return len(readers)

        had_choice = [read for read in readers if first.positions(read)]
        return max(1, len(had_choice))


def _only_operand(reference: str) -> Reference | None:
    """Return the only operand of a reference, or None if it has several operands, or reads an
    instance or an item of `_each`.
    """
    first, *others = parse_reference(reference).operands()
    if others:
        return None
    if first.instance is not None or first.kind == "item":
        return None
    return first


def _parts_left(literal: JSON, explanation: Explanation) -> Iterator[str]:
    """Yield the parts of a literal that an explanation does not account for, and that are
    distinctive enough to identify where they come from.
    """
    if isinstance(explanation, Joined):
        yield str(literal)
        for part in explanation.parts:
            if not isinstance(part, Constant):
                continue
            core = core_of(str(part.constant))
            if not is_common(core):
                yield core

    elif isinstance(explanation, Constant):
        for _, value in islice(walk(literal), _MAX_PARTS):
            if is_common(value):
                continue
            if isinstance(value, str):
                yield value
                continue
            number = as_text(value)
            if isinstance(number, str):
                yield number


def _is_option(schema: JSONObject | None) -> bool:
    """Return whether the schema of a parameter, or of its items, lists all allowed values. A value
    from such a list is an option rather than data.
    """
    if schema is None:
        return False

    schemas = [schema, schema.get("items"), *list_or_empty(schema.get("anyOf"))]
    return any("enum" in object_or_empty(part) for part in schemas)
