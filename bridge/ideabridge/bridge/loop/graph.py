"""The calls of one Solution, bound to each other by what they read and write.

Theory of operation
-------------------

A call can wait for other calls for three reasons: the call reads what they write, the call names
them in `_after`, or the call must keep its place in the listed order. `Graph` finds the first two
reasons, `ListedOrder` the third.

*Data.* A read is bound to the value from before the Solution and to the calls listed before it that
write an overlapping path. Only if neither exists is the read bound to calls that are listed after
it. These calls are not known until the answer has ended. A Solution therefore means the same
whether it is streamed, arrives in one piece, is resumed or is replayed. `add` reads a call and
binds what it can; `close` binds the rest, finds references that nothing supplies, and names cycles.

*Listed order.* Tools rarely declare everything they touch, so a plan does what its author meant
only if its effects happen in the listed order. Within one server and instance:

- a *change* (a call whose tool does not declare that it is read-only) waits for all calls listed
  before it;
- a *read* waits for the changes listed before it. Reads can run at the same time.

A pair (module, instance) is a *lane*. In-process Python tools share one lane. A call to an idea is
in the lane of every server that its plan calls, or in all lanes if a mind answers it; a clean room
is in the lanes of the tools that it is given; latent calls and built-in tools are in no lane. A
call waits until the earlier calls have settled, however they ended: unlike `_after`, the order does
not require success. The order delays a call's execution but not its approval.

*Conflicts.* Data and `_after` take precedence over the order. If an earlier call reads what a later
call writes, data and order form a cycle; `rearrange` then drops the order within that cycle and
keeps it everywhere else. Later alternatives (`a || b`), which the run might never need, can form a
cycle through data alone. The calls in such a cycle keep their order until no other call can run.
Then `give_way` lets a call run before an earlier call that is waiting for it.

*Cost.* A call does not list all the calls that it waits for, because long Solutions would then take
quadratic time. Each lane keeps its members in order, and `before` looks backwards from a call for
the nearest member that has not settled.

Example: `[{"_tool": "read", "_outputPath": "x"}, {"_tool": "write", "text": "†state.x"}]`, both of
server `files`. Call 1 waits for call 0 because it reads what call 0 writes. Even without this read,
call 1 would wait, because it is a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

from ideabridge.bridge.context.computed import Computations, holds
from ideabridge.bridge.context.errors import ClosedStateError
from ideabridge.bridge.context.plan_literals import read_computations
from ideabridge.bridge.context.references import (
    Compiled,
    Expression,
    Hole,
    Path,
    PathIndex,
    Reference,
    clipped,
    compile_value,
    escaped,
    fill,
    format_path,
    parse_reference,
    quoted,
)
from ideabridge.bridge.context.state import MISSING, Missing, describe_missing, read
from ideabridge.bridge.loop.call import Call, Read, look_for_wrong_references, read_call
from ideabridge.bridge.loop.catalogue import Catalogue, chosen_tools
from ideabridge.bridge.loop.event import Pattern
from ideabridge.bridge.loop.initial_documents import InitialDocuments
from ideabridge.bridge.loop.settings import ModuleOrder, Settings
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import show
from ideabridge.tools.names import did_you_mean, matches_any
from ideabridge.tools.tool import EVERY_MODULE, META_PROPERTIES, Order, Tool


def _literal(compiled: Compiled) -> Compiled:
    """Return the compiled value with its strings escaped again, so that only references look like
    references.
    """
    if isinstance(compiled, Hole):
        return compiled
    if isinstance(compiled, str):
        return escaped(compiled)
    if isinstance(compiled, list):
        return [_literal(item) for item in cast("list[object]", compiled)]
    if isinstance(compiled, dict):
        return {key: _literal(item) for key, item in cast("dict[str, object]", compiled).items()}
    return compiled


_DEFAULT: Final = ModuleOrder()

_MOST_REFERENCES_NAMED: Final = 3
"""Maximum number of references named in an error about an unsuitable value."""

_MOST_NAMED: Final = 20
"""Maximum number of calls in a cycle that an error names, and maximum number of missing values that
are explained.
"""


class Graph:
    """The calls and the output of one Solution.

    Args:
        catalogue: the tools of the run.
        base: the documents before the Solution, keyed by instance ("" if the context names no
            instances).
        settings: the settings of the run.
        opening: the instances in the context, one of which each call must name if there are any,
            and their state schemas.
        first: the index of the first call.
        earlier_ids: the ids of calls in earlier Solutions. All of these calls have ended.
        pattern: how the calls form a group; see `SolutionProposed`. The calls of a group of
            alternatives have no order, and no call sees data that another call adds.

    Attributes:
        explained: the literals to compute when the Solution runs; see `read_computations`.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        base: Mapping[str, JSON],
        settings: Settings | None = None,
        opening: InitialDocuments | None = None,
        *,
        first: int = 0,
        earlier_ids: Iterable[str] = (),
        pattern: Pattern | None = None,
    ) -> None:
        settings = settings or Settings()
        opening = opening or InitialDocuments()
        order: Order = settings.order if pattern in (None, "all") else "none"
        self.explained: JSONObject | None = None
        self._settings = settings
        self.computations = Computations()
        self.catalogue = catalogue
        self.base = base
        self.first = first
        self.calls: list[Call] = []
        self.closed = False
        self.output: object = None
        self.output_holes: list[Hole] = []
        self.output_reads: dict[str, list[Read]] = {}
        self.output_problems: list[str] = []
        self.output_faults: dict[str, list[str]] = {}
        self._instances = list(opening.instances)
        self.order = ListedOrder(order, settings.modules)
        self._earlier_ids = set(earlier_ids)
        self._schemas = opening.schemas
        self.output_instances = self._instances if settings.output_by_instance else [""]
        self._writers: dict[str, PathIndex] = {}
        self._alternatives = pattern in ("any", "race")
        self._adding: dict[str, list[int]] = {}
        self._ids: dict[tuple[str, str], int] = {}
        self._cycles: dict[int, list[str]] = {}
        self._forward = False
        self._open_ended: set[int] = set()
        self._explained = 0
        self._malformed = 0
        # Maximum number of edges between the calls. A Solution that has more is malformed.
        self.most_bound: int | None = None
        self._bound = 0
        # Maximum number of references that calls read only in order to explain their literals.
        self.most_sources: int | None = None

    def call(self, index: int) -> Call:
        """Return the call with this index in the run."""
        return self.calls[index - self.first]

    # -- listing -----------------------------------------------------------------------------------

    def add(self, raw: JSON, place: int | None = None) -> Call:
        """Read another call, and bind everything that can be bound so far."""
        index = self.first + len(self.calls)
        at = index if place is None else place
        # Explain only the first mistakes in detail: every call in a plan might be wrong, and
        # explaining all of them would take minutes.
        briefly = self._malformed >= _MOST_NAMED
        call = read_call(raw, index, at, self.catalogue, briefly=briefly)
        self._malformed += bool(call.problems)
        call.first = self.first
        self.calls.append(call)
        self._add_computed(call)
        self._check_instance(call)
        self._check_activity(call)
        self._check_written_result(call)
        self._check_targets(call)
        self._note_id(call)
        for item in call.reads:
            item.bound = self._bind(item, call.instance, index)
            if not self._open(item):
                self._unsupplied(call, item)

        if call.edges is None:
            self._find_edges(call)

        if self._settings.foresight and not call.problems:
            self._foresee(call, briefly=briefly)
            self._malformed += bool(call.problems)

        self.order.note(call, self._touching(call))
        if self._is_open_ended(call):
            self._open_ended.add(index)

        writers = self._writers.setdefault(call.instance, PathIndex())
        for path in call.writes:
            writers.add(path, index)

        if call.may_add and not self._alternatives:
            self._adding.setdefault(call.instance, []).append(index)

        return call

    def _add_computed(self, call: Call) -> None:
        """Let a call read the values that its computed literals are derived from, if these values
        exist.
        """
        computation = self.computations.calls.get(call.place)
        if computation is None:
            return

        for keys in computation.at:
            if not holds(call.raw, keys):
                call.problems.append(f"explained: the call has no {'.'.join(keys)}")
            elif keys[0] in META_PROPERTIES and keys[0] != "_each":
                call.problems.append(
                    f"explained: {keys[0]} is not a parameter; expected a parameter or _each"
                )

        if computation.at:
            call.constant = False

        call.reads += [Read(parse_reference(text), lenient=True) for text in computation.references]

    def set_output(self, output: JSON) -> None:
        """Read the output. `close` binds its references."""
        faults: list[tuple[Path, str]] = []
        self.output = compile_value(output, self.output_holes, faults)
        self.output_problems.extend(
            f"output{format_path(path)}: {message}" for path, message in faults
        )
        look_for_wrong_references(output, "output", self.output_problems)
        computation = self.computations.output
        lenient: Sequence[str] = ()
        if computation is not None:
            lenient = computation.references
            for keys in computation.at:
                if not holds(output, keys):
                    path = ".".join(("output", *keys))
                    self.output_problems.append(f"explained: there is no {path}")

        self.output_reads = {
            instance: [
                *(Read(hole.expression) for hole in self.output_holes),
                *(Read(parse_reference(text), lenient=True) for text in lenient),
            ]
            for instance in self.output_instances
        }
        for hole in self.output_holes:
            if hole.expression.uses_item:
                self.output_problems.append(
                    f"{hole.expression.text}: †item can be read only in a call with _each"
                )

    def drop_output(self) -> None:
        """Discard the output of an answer that was cut off."""
        self.output = None
        self.output_reads = {}
        self.output_problems = []
        self.output_faults = {}

    def close(self) -> None:
        """End the answer: bind reads to later calls, and find cycles and unsupplied references."""
        self.closed = True
        end = self.first + len(self.calls)
        for call in self.calls:
            for item in call.reads:
                if self._open(item):
                    self._forward = True
                    item.bound = self._bind(item, call.instance, call.index)
                    self._unsupplied(call, item)

            if call.edges is None:
                self._forward = True
                self._find_edges(call)

        if self._is_over:
            self.output_problems.append(
                f"its calls depend on each other in more than {self.most_bound:,} ways; let fewer "
                "calls read what many calls write, or use _each"
            )
            return

        if self._forward:
            self._loosen()

        for instance, reads in self.output_reads.items():
            for item in reads:
                item.bound = self._bind(item, instance, end)
                message = None if item.lenient else self._missing(item, instance)
                if message is not None:
                    where = f"output{of_instance(instance)}"
                    self.output_faults.setdefault(instance, []).append(f"{where}: {message}")

        if len(self.output_faults) == len(self.output_reads):
            # Every instance has faults, so none can have an output. If only some have faults, those
            # are reported at the end, so that the other instances keep their output.
            self.output_problems.extend(
                text for texts in self.output_faults.values() for text in texts
            )

        if self._forward:
            self._name_cycles()
            self._reorder()

    def take(
        self, calls: Sequence[JSON], output: JSON, places: Sequence[JSON] | None = None
    ) -> None:
        """Add the calls of a Solution that arrived in one piece, and close the graph.

        `places` is as in `SolutionProposed`.
        """
        if self.explained is not None:
            self.computations = read_computations(
                self.explained, calls, output, places, rules=self._settings.rules
            )
            self.output_problems.extend(self.computations.problems)
            by_instance = [place for place in places or () if isinstance(place, int)]
            listed = (
                self.computations.calls.get(place) for place in by_instance or range(len(calls))
            )
            count = sum(
                len(computation.references) for computation in listed if computation is not None
            )
            if self.most_sources is not None and count > self.most_sources:
                self.output_problems.append(
                    f"explained: its calls read {count:,} values for their explanations; the limit "
                    f"is {self.most_sources:,}"
                )
                return

        for number, raw in enumerate(calls):
            place = places[number] if places is not None else None
            self.add(raw, place if isinstance(place, int) else None)

        if output is not None:
            self.set_output(output)
        elif self.computations.output is not None:
            self.output_problems.append("explained: the plan has no output")

        self.close()

    def errors(self) -> list[JSONObject]:
        """Return the structural problems as errors: `{"call", "place", "in_solution"?,
        "error"}`.
        """
        return [
            {
                **(call.located if call else {"call": None, "place": None}),
                "error": {"kind": "structural", "message": text},
            }
            for call, text in self.problems
        ]

    @property
    def problems(self) -> list[tuple[Call | None, str]]:
        """Return each structural problem with its call, in listing order. The call is None for a
        problem with the output.
        """
        problems: list[tuple[Call | None, str]] = [
            (call, text)
            for call in self.calls
            for text in (*call.problems, *self._cycles.get(call.index, ()))
        ]
        problems.extend((None, text) for text in self.output_problems)
        return problems

    # -- checks of one call ------------------------------------------------------------------------

    def _check_instance(self, call: Call) -> None:
        if self._instances and not call.instance:
            call.problems.append(f"_instance: expected one of {', '.join(self._instances[:10])}")
        elif call.instance and call.instance not in self._instances:
            if self._instances:
                hint = f"the instances are {', '.join(self._instances[:10])}"
            else:
                hint = "this run has no instances, so leave _instance out"
            call.problems.append(f"_instance: unknown instance {quoted(call.instance)}; {hint}")

    def _check_activity(self, call: Call) -> None:
        names = self._settings.activities
        if call.activity is not None and names is not None and call.activity not in names:
            hint = did_you_mean(call.activity, names)
            call.problems.append(f"_activity: unknown activity {quoted(call.activity)}.{hint}")

    def _check_written_result(self, call: Call) -> None:
        """If a tool's definition does not describe its result, check that the result that a mind
        wrote is text.
        """
        if self._settings.rules < 1 or not call.has_written_result or call.problems:
            return
        if (
            call.tool is not None
            and call.tool.output is None
            and not isinstance(call.written_result, str | Hole)
        ):
            call.problems.append(
                f"_output: expected text, because the definition of {quoted(call.name)} "
                "does not describe its result"
            )

    # -- values that exist already -----------------------------------------------------------------

    def known(self, item: Read, instance: str) -> JSON | Missing:
        """Return the value of a read, or MISSING if the value does not exist before the Solution or
        is changed by a call before the reader.

        If the read has alternatives, only the first can supply the value, because the others are
        read only if the first is absent.
        """
        if (
            not item.bound
            or item.expression.uses_item
            or any(writers != () for writers in item.bound[0])
        ):
            return MISSING

        value: JSON | Missing = MISSING
        for operand in item.expression.alternatives[0]:
            value = read(self.base.get(operand.instance or instance, {}), operand.full)
            if isinstance(value, Missing):
                return MISSING

        return value

    def _foresee(self, call: Call, *, briefly: bool) -> None:
        """Check a call's parameters in advance, using the values that are already known for its
        references.

        A call might not run at all if it depends on a test, or if it runs for each item of an
        unknown or empty list. Such a call is checked only when its turn comes.
        """
        tool = call.tool
        if tool is None or not call.reads or self.explained is not None:
            return

        values: dict[str, JSON] = {}
        for item in call.reads:
            value = self.known(item, call.instance)
            if not isinstance(value, Missing):
                values[item.expression.text] = value

        if not values or not self._runs_at_least_once(call, values):
            return

        texts: dict[str, None] = {}
        unknown = False

        def value_of(expression: Expression) -> JSON:
            nonlocal unknown
            if expression.text not in values:
                unknown = True
                return expression.text
            texts[expression.text] = None
            return values[expression.text]

        filled = fill(call.parameters, value_of)
        if not texts:
            return

        validator = self.catalogue.exact(tool)
        if unknown:
            # Leave the unknown values as references, and write all others as literals.
            validator = self.catalogue.admitted(tool)
            filled = fill(
                _literal(call.parameters),
                lambda read: escaped(values[read.text]) if read.text in values else read.text,
            )

        try:
            validator.check_unless_costly(filled, briefly=briefly)
        except IdeabridgeError as error:
            names = ", ".join(list(texts)[:_MOST_REFERENCES_NAMED])
            call.problems.append(f"{error} (with the current value of {clipped(names)})")

    def _runs_at_least_once(self, call: Call, values: Mapping[str, JSON]) -> bool:
        """Return whether a call is certain to run. If the value of its `_each` is known but is not
        an array, record a fault.
        """
        if not call.has_each:
            return True
        if isinstance(call.each, Hole):
            text = call.each.expression.text
            if text not in values:
                return False
            if not isinstance(values[text], list):
                call.problems.append(
                    f"_each: expected an array, found {show(values[text])} at {clipped(text)}"
                )
                return False

            return bool(values[text])

        return bool(call.each)

    def _check_targets(self, call: Call) -> None:
        schema = self._schemas.get(call.instance)
        if schema is None or call.target is None:
            return
        for path in call.target.paths:
            try:
                schema.allow(path[1:])
            except ClosedStateError as error:
                call.problems.append(f"_outputPath: {error}")

    def _note_id(self, call: Call) -> None:
        if call.id is None:
            return
        if (call.instance, call.id) in self._ids:
            call.problems.append(f"_id: an earlier call already has the id {quoted(call.id)}")
        else:
            self._ids[(call.instance, call.id)] = call.index

    def _touching(self, call: Call) -> list[Tool]:
        """Return the tools that the call can use to change or read something: its own tool, or the
        tools of its clean room.
        """
        tool = call.tool
        if (
            tool is None
            or call.has_written_result
            or (call.activity is None and tool.key in self.catalogue.latent)
        ):
            # A mind writes the result, so the call neither changes nor reads anything.
            return []

        if not tool.asks_mind:
            return [call.code or tool] if self._settings.rules >= 1 else [tool]

        chosen = call.raw.get("tools", [])
        if isinstance(chosen, list):
            patterns = [pattern for pattern in chosen if isinstance(pattern, str)]
        else:
            patterns = []

        if not isinstance(chosen, list) or any(pattern.startswith("†") for pattern in patterns):
            # A reference supplies the tools, so they are unknown until the call runs.
            return [tool]

        return chosen_tools(self.catalogue.tools, patterns)

    # -- binding -----------------------------------------------------------------------------------

    def _bind(self, item: Read, instance: str, reader: int) -> list[list[tuple[int, ...] | None]]:
        """Return the calls that each operand is bound to. Alternatives after one that is certain to
        exist are omitted.
        """
        bound: list[list[tuple[int, ...] | None]] = []
        if self._is_over:
            return bound

        for alternative in item.expression.alternatives:
            operands: list[tuple[int, ...] | None] = []
            for operand in alternative:
                operands.append(self._bind_operand(operand, instance, reader, lenient=item.lenient))
                self._bound += len(operands[-1] or ())
                if self._is_over:
                    return []

            bound.append(operands)
            is_unwritten = all(operand == () for operand in operands)
            if is_unwritten and self._all_exist(alternative, instance):
                break

        return bound

    @property
    def _is_over(self) -> bool:
        return self.most_bound is not None and self._bound > self.most_bound

    def _all_exist(self, operands: Iterable[Reference], instance: str) -> bool:
        """Return whether all values that some operands read exist before the Solution."""
        return all(
            operand.kind != "item" and self._exists(operand, instance) for operand in operands
        )

    def _exists(self, operand: Reference, instance: str) -> bool:
        document = self.base.get(operand.instance or instance, {})
        return not isinstance(read(document, operand.full), Missing)

    def _bind_operand(
        self, operand: Reference, instance: str, reader: int, *, lenient: bool = False
    ) -> tuple[int, ...] | None:
        if operand.kind == "data" and operand.path[:1] != ("error",):
            # Bind the operand to every earlier call that can add data.
            return tuple(
                index
                for index in self._adding.get(operand.instance or instance, ())
                if index < reader
            )

        if operand.kind not in ("state", "results"):
            return ()

        writers = self._writers.get(operand.instance or instance)
        overlapping = writers.overlapping(operand.full) if writers else set[int]()
        earlier = sorted(index for index in overlapping if index < reader)
        if earlier or lenient or self._exists(operand, instance):
            # The read does not need later calls, so bind only earlier ones. A lenient read may have
            # none at all, because the value that a literal was copied from existed before the call.
            return tuple(earlier)
        if not self.closed:
            return None
        return tuple(sorted(index for index in overlapping if index != reader))

    @staticmethod
    def _open(item: Read) -> bool:
        return any(operand is None for alternative in item.bound for operand in alternative)

    def waits_for_end(self, call: Call) -> bool:
        """Return whether what this call waits for is known only when the answer ends."""
        return not self.closed and call.index in self._open_ended

    def _is_open_ended(self, call: Call) -> bool:
        """Return whether the call, or a call that it might wait for, depends on calls that are not
        listed yet.

        Later alternatives count even if they are never needed, because the calls that read them can
        form a cycle, and the listed order is not kept within a cycle. Without this rule, a call
        could start earlier than if the answer had arrived in one piece.
        """
        if call.edges is None or any(self._open(item) for item in call.reads):
            return True
        before = self._open_ended
        return bool(before) and not before.isdisjoint(self.depends_on(call).union(call.order))

    def _missing(self, item: Read, instance: str) -> str | None:
        """Return why nothing supplies the read, or None if something might supply it."""
        reasons: list[str] = []
        if self._is_over:
            # `close` reports the reason once for the whole Solution.
            return None

        for operands, bound in item.alternatives():
            unbound = [
                operand
                for operand, writers in zip(operands, bound, strict=True)
                if not writers and operand.kind != "item"
            ]
            lacking = [operand for operand in unbound if not self._exists(operand, instance)]
            if not lacking:
                return None
            reasons.append(self._explain(lacking[0], instance))

        return "; ".join(reasons)

    def _explain(self, operand: Reference, instance: str) -> str:
        where = operand.instance or instance
        missing = f"nothing supplies {clipped(operand.text)}"
        self._explained += 1
        if self._explained > _MOST_NAMED:
            # Don't explain any further: building an explanation means searching all calls, and
            # every call in the plan might need one.
            return missing
        if where and where not in self._instances:
            return f"{missing}: there is no instance {quoted(where)}"

        if operand.kind == "results" and operand.path and operand.path[0].isdecimal():
            for call in self.calls:
                if (
                    str(call.place) == operand.path[0]
                    and call.instance == where
                    and call.target is not None
                ):
                    return (
                        f"{missing}: {call.label} writes to "
                        f"{clipped(' and '.join(call.target.texts))}"
                    )

        document = self.base.get(where, {})
        written = sorted(
            {
                path[1]
                for call in self.calls
                for path in call.writes
                if path[0] == "state" and path[1:]
            }
        )
        if operand.kind == "state" and operand.path:
            hint = did_you_mean(operand.path[0], written)
        else:
            hint = ""

        return f"{missing}: {describe_missing(document, operand.full, operand.instance)}.{hint}"

    def _unsupplied(self, call: Call, item: Read) -> None:
        if item.lenient:
            return
        message = self._missing(item, call.instance)
        if message is not None:
            call.problems.append(message)

    # -- order -------------------------------------------------------------------------------------

    def _find_edges(self, call: Call) -> None:
        edges: list[int] = []
        unknown: list[str] = []
        for name in call.after:
            index = self._ids.get((call.instance, name), self._ids.get(("", name)))
            if index == call.index:
                call.problems.append(f"_after: a call cannot wait for itself ({quoted(name)})")
            elif index is not None:
                edges.append(index)
                self._bound += 1
            elif name not in self._earlier_ids:
                unknown.append(name)

        if unknown and not self.closed:
            return

        if unknown:
            ids = sorted({name for _, name in self._ids})
            call.problems.append(
                f"_after: no call has the _id {quoted(unknown[0])}.{did_you_mean(unknown[0], ids)}"
            )

        call.edges = tuple(edges)

    def replace(self, call: Call, tool: Tool) -> None:
        """Replace the tool of a call, and move the call to the position in the listed order that
        the new tool requires.
        """
        self.order.join(call, tool)
        self._reorder()

    def depends_on(self, call: Call, *, certainly: bool = False) -> set[int]:
        """Return the calls that a call waits for because of data and `_after`.

        Args:
            call: a call of this Solution.
            certainly: whether to omit alternatives after the first, because they might never be
                needed.
        """
        indexes: set[int] = set(call.edges or ())
        for item in call.reads:
            alternatives = item.bound[:1] if certainly else item.bound
            for alternative in alternatives:
                for operand in alternative:
                    indexes.update(operand or ())
        return indexes

    def _name_cycles(self) -> None:
        # A plan with a cycle is rejected. In a run, the tick fails the calls in a cycle only when
        # no other call can run, because until then a later alternative or the failure of one of the
        # calls might still dissolve the cycle.
        for cycle in cycles(
            {call.index: self.depends_on(call, certainly=True) for call in self.calls}
        ):
            message = self.cycle_message(cycle)
            for index in cycle:
                self._cycles.setdefault(index, []).append(message)

    def _loosen(self) -> None:
        """Unbind calls' reads of context data from the calls that wait for the reader."""
        for part in components({call.index: self.depends_on(call) for call in self.calls}):
            if len(part) == 1:
                continue

            cycle = frozenset(part)
            for index in part:
                call = self.call(index)
                for item in call.reads:
                    self._unbind_data(item, call.instance, cycle)

    def _unbind_data(self, item: Read, instance: str, cycle: frozenset[int]) -> None:
        """Unbind each operand that is existing context data from the calls in `cycle`."""
        for operands, bound in item.alternatives():
            for number, operand in enumerate(operands):
                if operand.kind == "data" and self._exists(operand, instance):
                    writers = bound[number] or ()
                    bound[number] = tuple(writer for writer in writers if writer not in cycle)

    def cycle_message(self, cycle: Sequence[int]) -> str:
        """Return the error for calls that wait for each other in a cycle."""
        labels = [self.call(index).label for index in cycle[:_MOST_NAMED]]
        if len(cycle) > _MOST_NAMED:
            labels.append(f"{len(cycle) - _MOST_NAMED:,} more calls")
        return (
            f"a cycle: {' -> '.join([*labels, labels[0]])} (each reads what the next one writes, "
            "or waits for it)"
        )

    def _reorder(self) -> None:
        self.order.rearrange(
            {call.index: sorted(self.depends_on(call)) for call in self.calls}, self.call
        )


# -- listed order ----------------------------------------------------------------------------------


class _Position(NamedTuple):
    """The lanes of a call (None for every lane of its instance), and whether it might change
    something.
    """

    modules: tuple[str, ...] | None
    instance: str
    changes: bool


class _Sequence:
    """Calls in order. No matter how often `last_open` is called, it skips each settled call only
    once.
    """

    __slots__ = ("_nearest", "indexes")

    def __init__(self) -> None:
        self.indexes: list[int] = []
        # For each position, an earlier one. All calls between the two have settled.
        self._nearest: list[int] = []

    def append(self, index: int) -> None:
        self._nearest.append(len(self.indexes) - 1)
        self.indexes.append(index)

    def last_open(self, below: int, settled: Callable[[int], bool]) -> int | None:
        """Return the last unsettled call before the position `below`."""
        position = below - 1
        passed: list[int] = []
        while position >= 0 and settled(self.indexes[position]):
            passed.append(position)
            position = self._nearest[position]

        for passed_position in passed:
            self._nearest[passed_position] = position

        return self.indexes[position] if position >= 0 else None


@dataclass(slots=True)
class _Lane:
    """The calls to one server in one instance, in listed order.

    Attributes:
        everyone, changes: all calls in the lane, and the calls that might change something.
        tail: the last change and the reads after it. The next change waits directly for these.
        last: the last change.
    """

    everyone: _Sequence = field(default_factory=_Sequence)
    changes: _Sequence = field(default_factory=_Sequence)
    tail: list[int] = field(default_factory=list[int])
    last: int | None = None

    def add(self, index: int, *, changes: bool) -> None:
        self.everyone.append(index)
        if changes:
            self.changes.append(index)
            self.tail = [index]
            self.last = index
        else:
            self.tail.append(index)


class _Lanes:
    """All lanes of a Solution."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str], _Lane] = {}
        # The calls that are in every lane, keyed by instance. A new lane begins with them.
        self._everywhere: dict[str, list[tuple[int, bool]]] = {}

    def of(self, place: _Position) -> list[_Lane]:
        """Return the lanes of a call, creating those that do not exist."""
        if place.modules is None:
            # Create this lane so that calls in every lane have a lane even before any server has
            # one.
            self._lane((EVERY_MODULE, place.instance))
            return [
                lane for (_, instance), lane in self._lanes.items() if instance == place.instance
            ]
        return [self._lane((module, place.instance)) for module in place.modules]

    def _lane(self, key: tuple[str, str]) -> _Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
            for index, changes in self._everywhere.get(key[1], ()):
                lane.add(index, changes=changes)
        return lane

    def add(self, index: int, place: _Position) -> None:
        """Append a call to its lanes."""
        for lane in self.of(place):
            lane.add(index, changes=place.changes)
        if place.modules is None:
            self._everywhere.setdefault(place.instance, []).append((index, place.changes))

    def before(self, place: _Position) -> list[int]:
        """Return the calls that a call at this position would directly wait for if it were appended
        now.
        """
        indexes: dict[int, None] = {}
        for lane in self.of(place):
            if place.changes:
                indexes.update(dict.fromkeys(lane.tail))
            elif lane.last is not None:
                indexes[lane.last] = None

        return list(indexes)

    def looks(self, place: _Position) -> list[tuple[_Sequence, int]]:
        """Return (sequence, count) for each sequence whose first `count` calls might include one to
        wait for.
        """
        sequences = [lane.everyone if place.changes else lane.changes for lane in self.of(place)]
        return [(sequence, len(sequence.indexes)) for sequence in sequences]


def only_reads(tool: Tool, modules: Mapping[str, ModuleOrder]) -> bool:
    """Return whether the listed order treats a tool as one that changes nothing.

    Args:
        tool: the tool.
        modules: the configured order for individual servers.
    """
    own = modules.get(tool.module or "", _DEFAULT)
    name = tool.name_in_module
    if matches_any(name, own.changes):
        return False
    return tool.annotations.read_only is True or matches_any(name, own.reads)


class ListedOrder:
    """Keeps the calls of a Solution in their listed order. For the rules, see the docstring of this
    module.

    Args:
        ordering: `effects` applies these rules. With `all`, every call waits for all calls listed
            before it. With `none`, no call waits because of the order.
        modules: the configured order for individual servers, used only with `effects`.
    """

    def __init__(self, ordering: Order, modules: Mapping[str, ModuleOrder] | None = None) -> None:
        self._ordering = ordering
        self._modules = modules or {}
        self._places: dict[int, _Position] = {}
        self._looks: dict[int, list[tuple[_Sequence, int]]] = {}
        self._given_way: dict[int, set[int]] = {}
        self._lanes = _Lanes()

    def note(self, call: Call, tools: Sequence[Tool]) -> None:
        """Assign a position to a new call. `tools` contains the tools that the call can use to
        change or read something.
        """
        place = self._place(call, tools)
        if place is None:
            return

        index = call.index
        self._places[index] = place
        self._looks[index] = self._lanes.looks(place)
        call.order = self._lanes.before(place)
        self._lanes.add(index, place)

    def _place(self, call: Call, tools: Sequence[Tool]) -> _Position | None:
        tool = call.tool
        if self._ordering == "all":
            return _Position(("",), "", changes=True)
        if self._ordering == "none" or tool is None:
            return None

        changes = not all(only_reads(used_tool, self._modules) for used_tool in tools)
        modules = dict.fromkeys(module for used_tool in tools for module in used_tool.reached)
        if EVERY_MODULE in modules:
            return _Position(None, call.instance, changes)

        ordered = tuple(module for module in modules if self._modules.get(module, _DEFAULT).ordered)
        return _Position(ordered, call.instance, changes) if ordered else None

    def may_change(self, call: Call) -> bool:
        """Return whether a call might change something. If so, later calls wait for it, and the
        items of its `_each` run one at a time.
        """
        place = self._places.get(call.index)
        return place is not None and place.changes

    def before(self, call: Call, settled: Callable[[int], bool]) -> int | None:
        """Return an earlier call that `call` waits for, or None if all such calls have settled."""
        given_way = self._given_way.get(call.index)
        for sequence, below in self._looks.get(call.index, ()):
            if given_way is None:
                earlier = sequence.last_open(below, settled)
            else:
                left = (
                    index
                    for index in reversed(sequence.indexes[:below])
                    if index not in given_way and not settled(index)
                )
                earlier = next(left, None)

            if earlier is not None:
                return earlier

        return None

    def give_way(self, call: Call, before: int) -> None:
        """Let `call` run before the earlier call `before`, which waits for the result of `call`."""
        self._given_way.setdefault(call.index, set()).add(before)

    def join(self, call: Call, tool: Tool) -> None:
        """Move a call to the position that its new tool requires. The caller must call `rearrange`
        next.
        """
        place = self._place(call, [tool])
        self._places.pop(call.index, None)
        if place is not None:
            self._places[call.index] = place

    def rearrange(self, data: Mapping[int, Sequence[int]], call_of: Callable[[int], Call]) -> None:
        """Rebuild the lanes so that a call runs after any later call whose result it reads.

        Args:
            data: the calls that each call waits for because of data and `_after`, in listing order.
            call_of: returns the call with the given index.
        """
        parts = emission(data, self._edges())
        self._lanes = _Lanes()
        self._looks.clear()
        for part in parts:
            # In a component of several calls, the calls wait for each other's data in a cycle.
            # They keep the order in which they are listed until `give_way`.
            for index in part:
                place = self._places.get(index)
                call_of(index).order = [] if place is None else self._lanes.before(place)
                if place is not None:
                    self._looks[index] = self._lanes.looks(place)
                    self._lanes.add(index, place)

    def _edges(self) -> dict[int, Iterable[int]]:
        """Return the calls that each call directly waits for if all calls keep their listed
        order.
        """
        lanes = _Lanes()
        edges: dict[int, Iterable[int]] = {}
        for index in sorted(self._places):
            edges[index] = lanes.before(self._places[index])
            lanes.add(index, self._places[index])
        return edges


# -- cycles ----------------------------------------------------------------------------------------


def of_instance(instance: str) -> str:
    """Return a phrase that names the instance, for use after a noun, or "" if there are no
    instances.
    """
    return f" of {instance}" if instance else ""


def components(edges: Mapping[int, Iterable[int]]) -> list[list[int]]:
    """Return the strongly connected components.

    Each component comes after those that it leads to (Tarjan's algorithm, without recursion).

    Args:
        edges: the nodes that each node waits for, in order. Nodes that are not keys are ignored.

    Returns:
        The components. Each is either a single node or a sorted list of nodes that form a cycle.
    """
    parts: list[list[int]] = []
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    for root in edges:
        if root in number:
            continue

        walk: list[tuple[int, Iterator[int]]] = [(root, iter(edges[root]))]
        number[root] = lowest[root] = len(number)
        path.append(root)
        on_path.add(root)
        while walk:
            node, following = walk[-1]
            for target in following:
                if target not in edges:
                    continue
                if target not in number:
                    number[target] = lowest[target] = len(number)
                    path.append(target)
                    on_path.add(target)
                    walk.append((target, iter(edges[target])))
                    break

                if target in on_path:
                    lowest[node] = min(lowest[node], number[target])
            else:
                walk.pop()
                if walk:
                    above = walk[-1][0]
                    lowest[above] = min(lowest[above], lowest[node])
                if lowest[node] == number[node]:
                    part: list[int] = []
                    while not part or part[-1] != node:
                        part.append(path.pop())

                    on_path.difference_update(part)
                    parts.append(sorted(part))

    return parts


def emission(
    data: Mapping[int, Iterable[int]], listed: Mapping[int, Iterable[int]]
) -> list[list[int]]:
    """Return an order of all calls in which data flows forwards. The listed order is kept wherever
    data allows it.

    Args:
        data: the calls that each call waits for, in listing order.
        listed: the earlier calls that each call should wait for because of the listed order.

    Returns:
        Groups of calls, to be run one after the other. The calls in a group of several wait for
        each other in a cycle, so there is no order among them.
    """
    wished = {index: [*targets, *listed.get(index, ())] for index, targets in data.items()}
    order: list[list[int]] = []
    for part in components(wished):
        if len(part) == 1:
            order.append(part)
            continue

        # The listed order and the data together form a cycle, so ignore the listed order within
        # it.
        members = set(part)
        inner = {index: [target for target in data[index] if target in members] for index in part}
        order.extend(components(inner))

    return order


def depths(edges: Mapping[int, set[int]]) -> dict[int, int]:
    """Return the depth of each node: 0 if it waits for no other node, otherwise one more than the
    largest depth of the nodes that it waits for. Nodes that wait for each other in a cycle share a
    depth.

    Args:
        edges: the nodes that each node waits for. Every node that is waited for is also a key.
    """
    depth_of: dict[int, int] = {}
    for part in components(edges):
        earlier: set[int] = set()
        for node in part:
            earlier |= edges[node]

        earlier.difference_update(part)
        depth = 1 + max((depth_of[node] for node in earlier), default=-1)
        depth_of.update(dict.fromkeys(part, depth))

    return depth_of


def cycles(edges: Mapping[int, set[int]]) -> list[list[int]]:
    """Return at least one cycle from each strongly connected component. No two cycles share a
    node.
    """
    following: dict[int, int] = {}
    for part in components(edges):
        if len(part) > 1:
            members = set(part)
            following.update((index, min(edges[index] & members)) for index in part)

    found_cycles: list[list[int]] = []
    visited: set[int] = set()
    for index in sorted(following):
        walked: list[int] = []
        while index not in visited:
            visited.add(index)
            walked.append(index)
            index = following[index]
        if index in walked:
            found_cycles.append(walked[walked.index(index) :])

    return found_cycles
