"""Resolve the references in the parameters of calls and in the output of a run, and check the
results.

`Readiness` decides whether a call can run, and with what parameters. `OutputSchema` produces the
output of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from ideabridge.bridge.context.computed import Computed, Doubts, put_in
from ideabridge.bridge.context.errors import ClosedStateError
from ideabridge.bridge.context.references import Expression, Path, fill
from ideabridge.bridge.context.state import MISSING, Missing
from ideabridge.bridge.loop.call import Call, ErrorKind, Read
from ideabridge.bridge.loop.event import JournalError
from ideabridge.bridge.loop.graph import Graph, of_instance
from ideabridge.bridge.loop.initial_documents import InitialDocuments
from ideabridge.bridge.loop.memory import Memory
from ideabridge.bridge.loop.progress import Absent, CallStatus, Item, Judge, Progress, Wait
from ideabridge.bridge.loop.size import NO_SIZE, LargeSizes, Size, measure, too_large
from ideabridge.tools.compose import wrap_output
from ideabridge.tools.encoding import JSON, JSONObject, content_hash, normalise, object_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import show
from ideabridge.tools.schema import Validator

_EXPLAINED: Final = 20
"""Maximum number of invalid items in one `_each` that are explained."""


class Filling:
    """Replaces references with their values, and adds up the sizes of those values.

    Args:
        values: the values, keyed by the text of their references.
        sizes: the sizes of values that have been measured, keyed by the text of their references.
        measure: measures any other value.

    Attributes:
        size: the total size of the values used.
    """

    def __init__(
        self,
        values: Mapping[str, JSON],
        sizes: dict[str, Size] | None = None,
        measure: Callable[[JSON], Size] = measure,
    ) -> None:
        self._values = values
        self._sizes = {} if sizes is None else sizes
        self._measure = measure
        self.size = NO_SIZE

    def __call__(self, expression: Expression) -> JSON:
        """Return the value of a reference, without copying it."""
        text = expression.text
        value = self._values[text]
        size = self._sizes.get(text)
        if size is None:
            size = self._sizes[text] = self._measure(value)

        self.size += size
        return value


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a call, or an edited call, cannot run with its current values."""

    message: str
    kind: ErrorKind = "runtime"


@dataclass(slots=True)
class _Reads:
    """The values that the references of a call read, keyed by the text of the reference.

    Attributes:
        values: the values that the call itself reads.
        known: these values, and the existing values that the call's computed literals read.
        by_item: the reads of `†item`, whose values differ between executions.
        absent: why values that the call itself reads do not exist.
        failing: why computed literals lack a value, if the call that would provide it has failed.
    """

    values: dict[str, JSON] = field(default_factory=dict[str, JSON])
    known: dict[str, JSON] = field(default_factory=dict[str, JSON])
    by_item: list[Read] = field(default_factory=list[Read])
    absent: list[Absent] = field(default_factory=list[Absent])
    failing: dict[str, Absent] = field(default_factory=dict[str, Absent])


class Readiness:
    """Decides which calls of one Solution can run.

    Args:
        graph: the graph of the Solution's calls.
        judge: evaluates reads.
        progress: the progress of every call listed so far, keyed by index.
        items: the maximum number of items in one `_each`.
    """

    def __init__(
        self, graph: Graph, judge: Judge, progress: Mapping[int, Progress], items: int
    ) -> None:
        self._graph = graph
        self._judge = judge
        self._progress = progress
        self._items = items
        self._sizes = LargeSizes()

    def look(self, call: Call) -> list[Item] | Wait | Absent | Refusal:
        """Return the executions of a call with references resolved.

        If the call cannot run yet, return what it is waiting for. If it will never run, return why.
        """
        blocked = self._blocked(call)
        if blocked is not None:
            return blocked

        reads = self._evaluate(call)
        if isinstance(reads, Wait):
            return reads

        computed = self._compute(call, reads)
        if isinstance(computed, Absent):
            return computed
        if reads.absent:
            order = ("failed", "skipped", "missing")
            return min(reads.absent, key=lambda reason: order.index(reason.why))

        self._progress[call.index].doubts.add(computed.doubts, call.instance)
        if computed.problem is not None:
            return Refusal(computed.problem)
        if not call.has_each:
            return [self._item(call, reads.values, [], MISSING, {}, computed.values)]
        return self._items_of(call, reads, computed.values)

    def _evaluate(self, call: Call) -> _Reads | Wait:
        """Return the values that a call's references read, or a `Wait` for the first call that must
        settle.
        """
        reads = _Reads()
        for read in call.reads:
            text = read.expression.text
            if read.expression.uses_item:
                reads.by_item.append(read)
                waits = self._judge.waits(read)
                if waits is not None:
                    return waits
                continue

            value = self._judge.evaluate(read, call.instance)
            if isinstance(value, Wait):
                return value
            if not isinstance(value, Absent):
                reads.known[text] = value
                if not read.lenient:
                    reads.values[text] = value
            elif not read.lenient:
                reads.absent.append(value)
            elif value.why == "failed":
                reads.failing[text] = value

        return reads

    def _items_of(
        self, call: Call, reads: _Reads, parts: Mapping[Path, JSON]
    ) -> list[Item] | Refusal:
        """Return the executions of a call with `_each`. `parts` contains its computed literals."""
        each = fill(call.each, lambda expression: reads.values[expression.text])
        if parts:
            each = put_in(
                each, {keys[1:]: value for keys, value in parts.items() if keys[0] == "_each"}
            )

        if not isinstance(each, list):
            return Refusal(f"_each: expected an array, found {show(each)}")
        if len(each) > self._items:
            return Refusal(f"_each: {len(each):,} items; the limit is {self._items:,}")

        items: list[Item] = []
        sizes: dict[str, Size] = {}
        failed = 0
        for item in each:
            briefly = failed >= _EXPLAINED
            items.append(
                self._item(call, reads.values, reads.by_item, item, sizes, parts, briefly=briefly)
            )
            failed += items[-1].error is not None

        return items

    def _compute(self, call: Call, reads: _Reads) -> Computed | Absent:
        """Return the computed literals of a call, or why it does not run."""
        computation = self._graph.computations.calls.get(call.place)
        if computation is None:
            return Computed()

        for text, absence in reads.failing.items():
            if text in computation.needs:
                return absence

        progress = self._progress[call.index]
        computed = computation.compute(reads.known, only_reads=progress.hints.read_only is True)
        if computed.skipped is None:
            return computed
        progress.doubts.add(computed.doubts, call.instance)
        return Absent("skipped", computed.skipped)

    def _blocked(self, call: Call) -> Wait | Absent | None:
        if not self._graph.closed and self._graph.waits_for_end(call):
            return Wait(None)

        for index in call.edges or ():
            before = self._progress[index]
            if not before.settled:
                return Wait(index)
            if before.status is CallStatus.FAILED:
                return Absent("failed", f"_after: {before.call.label} failed")

        return None

    def _item(
        self,
        call: Call,
        values: dict[str, JSON],
        by_item: list[Read],
        each: JSON | Missing,
        sizes: dict[str, Size],
        parts: Mapping[Path, JSON],
        *,
        briefly: bool = False,
    ) -> Item:
        values_of_item = values
        if by_item:
            values_of_item = dict(values)
            for read in by_item:
                value = self._judge.evaluate(read, call.instance, each)
                if isinstance(value, Absent | Wait):
                    message = value.message if isinstance(value, Absent) else "not supplied"
                    return Item(
                        {},
                        finished=True,
                        error={"kind": "runtime", "message": f"not run: {message}"},
                    )

                values_of_item[read.expression.text] = value
                # Forget the size of the previous item's value. All other values are measured only
                # once.
                sizes.pop(read.expression.text, None)

        filling = Filling(values_of_item, sizes, self._sizes.measure)
        parameters = fill(call.parameters, filling)
        if parts:
            parameters = put_in(parameters, parts)
            filling.size = sum(map(measure, parts.values()), filling.size)

        latent = fill(call.written_result, filling) if call.has_written_result else None
        problem = too_large("its parameters", filling.size)
        if problem is not None:
            return Item(
                {}, finished=True, error={"kind": "runtime", "message": f"not run: {problem}"}
            )

        imports = tuple(
            (next(expression.operands()).full, values[expression.text])
            for expression in call.imports
        )
        item = Item(object_or_empty(parameters), imports=imports)
        item.latent = latent
        item.read_size = filling.size
        if not call.constant and call.tool is not None:
            try:
                exact = self._graph.catalogue.exact(call.tool)
                if call.room is None:
                    item.unchecked = not exact.check_unless_costly(parameters, briefly=briefly)
                else:
                    exact.check(parameters, briefly=briefly)
            except IdeabridgeError as error:
                # The parameters are either invalid, or too deeply nested now that their values are
                # filled in.
                item.finished = True
                item.error = {"kind": "runtime", "message": f"not run: {error}"}

        return item


def resolved_call(progress: Progress) -> JSONObject:
    """Return a call with its references resolved. This is what people and policies see, and what
    decisions are bound to.
    """
    if not progress.call.has_each:
        return executed_call(progress, progress.items[0].parameters)
    return executed_call(
        progress, {"_each": [item.parameters for item in progress.items if item.error is None]}
    )


def executed_call(progress: Progress, parameters: JSONObject) -> JSONObject:
    """Return one execution of a call as it is shown to people. An item of `_each` looks like a
    call.
    """
    result: JSONObject = {key: value for key, value in progress.call.raw.items() if key in _SHOWN}
    if progress.replaced is not None:
        result = {
            key: value for key, value in result.items() if key not in ("_module", "_activity")
        }
        result["_tool"] = progress.replaced.name
    elif progress.tool is not None and result.get("_tool") not in (
        progress.tool.name,
        progress.tool.remote_name,
    ):
        # Show the tool's name, because the call may name the tool in a different form, such as
        # `module.tool`.
        result["_tool"] = progress.tool.name

    if progress.tool is not None and progress.tool.module is not None:
        result["_module"] = progress.tool.module
    return {**result, **parameters}


def digest_of(resolved: JSONObject) -> str | Refusal:
    """Return the hash of a resolved call, or a refusal if the call is nested too deeply to be
    shown.
    """
    try:
        return content_hash(normalise(resolved, what="the resolved call"))
    except IdeabridgeError as error:
        return Refusal(str(error))


_SHOWN = ("_tool", "_module", "_activity", "_instance", "_outputPath", "_outputMethod", "_id")


# -- the output of a run ---------------------------------------------------------------------------

_WRAPPED: Final = (
    '. The requested schema allows null, but "output": null means "no output yet". Therefore wrap '
    'the value: "output": {"value": ...}'
)


class OutputSchema:
    """The schema of a run's output.

    Attributes:
        memory: the approximate size in memory of the values in the last output, in bytes.

    Args:
        schema: the user's schema. None means text for a mind and any value for a plan.
        mode: the mode of the run. For a mind, null means "no output yet", so the mind wraps an
            output that can be null in `{"value": ...}`.
        by_instance: whether the output is a map keyed by instance, in which each value satisfies
            the schema.

    Raises:
        SchemaError: the schema is invalid.
    """

    def __init__(
        self, schema: JSONObject | None, *, mode: Literal["plan", "solve"], by_instance: bool
    ) -> None:
        self.memory = 0
        self._wrapped = False
        self._schema = schema
        self._by_instance = by_instance
        self._mode = mode
        if mode == "solve":
            self._schema, self._wrapped = wrap_output(schema)

        if self._schema is not None:
            # Compile now, so that an invalid schema is reported before a run begins.
            Validator(self._schema, what="the output").is_valid(None)

    def settle(self, graph: Graph, judge: Judge) -> tuple[JSON, list[str], bool, Doubts]:
        """Return the unwrapped output, its faults, whether the run has an output, and the
        uncertainties about the output.

        In a plan, an output by instance omits the instances that have faults. The run has an output
        if at least one instance remains.

        Args:
            graph: the graph of a Solution whose calls have settled.
            judge: evaluates reads.

        Raises:
            JournalError: a call has not settled.
        """
        value, faults, doubts, size = _resolve(graph, judge, by_instance=self._by_instance)
        self.memory = size.memory
        if self._by_instance and isinstance(value, dict):
            parts = {
                instance: self._checked(part, of_instance(instance), faults)
                for instance, part in value.items()
            }
            good: dict[str, JSON] = {
                instance_name: part
                for instance_name, part in parts.items()
                if not isinstance(part, Missing)
            }
            return good, faults, not faults or (self._mode == "plan" and bool(good)), doubts

        if faults:
            return None, faults, False, doubts

        checked = self._checked(value, "", faults)
        if isinstance(checked, Missing):
            return None, faults, False, doubts
        return (
            (checked["value"] if self._wrapped and isinstance(checked, dict) else checked),
            [],
            True,
            doubts,
        )

    def foreseen(self, graph: Graph) -> list[str]:
        """Return the faults in an output that can be resolved before any call runs, because all its
        references read existing values.
        """
        faults: list[str] = []
        if self._schema is None or graph.output is None:
            return faults

        for instance, reads in graph.output_reads.items():
            results = {read.expression.text: graph.known(read, instance) for read in reads}
            values = {
                text: value for text, value in results.items() if not isinstance(value, Missing)
            }
            if len(values) < len(results) or any(read.lenient for read in reads):
                continue

            value = fill(graph.output, lambda expression, values=values: values[expression.text])
            if not Validator(self._schema, what="the output").is_costly(value):
                self._checked(value, of_instance(instance), faults)

        return faults

    def fault_of_null(self) -> str | None:
        """Return why null is not a valid output of a plan. Return None if it is valid, or if the
        plan has no output schema.
        """
        faults: list[str] = []
        if self._schema is not None:
            self._checked(None, "", faults)
        return faults[0] if faults else None

    def _checked(self, value: JSON, where: str, faults: list[str]) -> JSON | Missing:
        try:
            if self._schema is None:
                return normalise(value, what=f"the output{where}")
            Validator(self._schema, what=f"the output{where}").check(value)
        except IdeabridgeError as error:
            hint = _WRAPPED if self._wrapped else ""
            faults.append(f"{error}{hint}")
            return MISSING
        return value


def _resolve(
    graph: Graph, judge: Judge, *, by_instance: bool
) -> tuple[JSON, list[str], Doubts, Size]:
    """Return the output with its references resolved, the faults, the uncertainties, and the size
    of the values that the output reads. Instances with faults are omitted from an output by
    instance.
    """
    faults: list[str] = list(graph.output_problems)
    # An output that is malformed is not resolved for any instance.
    output_reads = {} if faults else graph.output_reads
    doubts = Doubts()
    values_by_instance: dict[str, JSON] = {}
    size = NO_SIZE
    for instance, reads in output_reads.items():
        if instance in graph.output_faults:
            faults.extend(graph.output_faults[instance])
            continue

        values = {read.expression.text: judge.evaluate(read, instance) for read in reads}
        if any(isinstance(value, Wait) for value in values.values()):
            raise JournalError("the output was read before every call had settled")

        where = f"output{of_instance(instance)}"
        needed = {read.expression.text for read in reads if not read.lenient}
        missing = [(text, value) for text, value in values.items() if isinstance(value, Absent)]
        absent = [f"{where}: {value.message}" for text, value in missing if text in needed]
        present = {
            text: value for text, value in values.items() if not isinstance(value, Absent | Wait)
        }
        computation = graph.computations.output
        if computation is None:
            computed = Computed()
        else:
            computed = computation.compute(present, only_reads=True)

        doubts.add(computed.doubts, instance)
        if computed.problem is not None:
            absent.append(f"{where}: {computed.problem}")

        if not absent:
            filling = Filling(present)
            filled = put_in(fill(graph.output, filling), computed.values)
            total = sum(map(measure, computed.values.values()), size + filling.size)
            problem = too_large(where, total)
            if problem is None:
                values_by_instance[instance] = filled
                size = total
            else:
                absent.append(problem)

        faults.extend(absent)

    return (
        (dict(values_by_instance) if by_instance else values_by_instance.get("")),
        faults,
        doubts,
        size,
    )


def error_message(kind: str, message: str) -> JSONObject:
    """Return an error that does not belong to a call: `{"call": null, "error": {"kind",
    "message"}}`.
    """
    return {"call": None, "error": {"kind": kind, "message": message}}


def state_errors(opening: InitialDocuments, memory: Memory) -> list[JSONObject]:
    """Return an error for each state that does not satisfy its schema at the end of the run."""
    errors: list[JSONObject] = []
    for instance, schema in opening.schemas.items():
        try:
            schema.check_end(memory.state(instance))
        except ClosedStateError as error:
            message = f"the state{of_instance(instance)}: {error}"
            errors.append(error_message("output", message))
    return errors
