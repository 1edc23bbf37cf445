"""Show what a plan would do, both as data and as a drawing (Mermaid for documents and hosts, text
for terminals).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, Literal, TypeAlias, get_args

from ideabridge.bridge.context.references import clipped, format_reference
from ideabridge.bridge.loop.call import Call, Read
from ideabridge.bridge.loop.graph import Graph, depths
from ideabridge.tools.encoding import JSON, JSONObject


def _waits(graph: Graph) -> dict[int, set[int]]:
    """Return the calls that each call waits for because of data, `_after`, or the order of
    effects.
    """
    waits: dict[int, set[int]] = {}
    for call in graph.calls:
        waits[call.index] = graph.depends_on(call).union(call.order)

    return waits


def _layers(graph: Graph) -> list[list[Call]]:
    """Arrange the calls of a closed graph in layers, so that each call is in a later layer than the
    calls that it waits for.
    """
    # Later alternatives can make calls wait for each other in a cycle. Such calls share a layer.
    depth_of = depths(_waits(graph))
    count = 1 + max(depth_of.values(), default=-1)
    layers: list[list[Call]] = [[] for _ in range(count)]
    for call in graph.calls:
        layers[depth_of[call.index]].append(call)

    return layers


def _name_of(call: Call) -> int | str:
    """Return the call's place, with the call's instance if it has one."""
    if call.instance:
        return f"{call.place} ({call.instance})"
    return call.place


def _is_read_only(call: Call) -> bool:
    return call.hints.read_only is True


def _may_change(call: Call) -> bool:
    """Return whether a call runs code that is not declared read-only."""
    return not _is_read_only(call) and not call.has_written_result


def _order_of(graph: Graph, call: Call) -> set[int]:
    """Return the calls that `call` waits for only because of the order of effects."""
    return set(call.order) - graph.depends_on(call)


def dry_run_report(graph: Graph, missing: Sequence[str] = ()) -> JSONObject:
    """Report the order of a closed graph: which calls run in parallel, what each call reads and
    writes, and which calls are not read-only.

    Args:
        graph: the graph of a plan that can run.
        missing: the references to members of the input that the plan did not receive.

    Returns:
        `{"layers": [[place...]...], "calls": [{"place", "tool", "module"?, "instance"?, "reads",
        "writes", "after", "ordered_after"?, "read_only"}], "not_read_only": [place...],
        "missing_inputs": [reference...], "notes"?: [text...]}`. The calls in a layer can run at the
        same time. Each call starts as soon as its own inputs exist, so the layers show what is
        possible rather than the actual timing. `after` lists every call that a call waits for
        directly, and `ordered_after` lists the calls that it waits for only because of the order of
        effects.
    """
    before = _waits(graph)
    calls: list[JSON] = []
    for call in graph.calls:
        calls.append(_entry(graph, call, before[call.index]))

    layers: list[JSON] = []
    for layer in _layers(graph):
        layers.append([_name_of(call) for call in layer])

    report: JSONObject = {
        "layers": layers,
        "calls": calls,
        "not_read_only": [_name_of(call) for call in graph.calls if _may_change(call)],
        "missing_inputs": list[JSON](missing),
    }
    notes = list[JSON](_notes(graph))
    if notes:
        report["notes"] = notes
    return report


def _entry(graph: Graph, call: Call, before: set[int]) -> JSONObject:
    """Return the entry for a call in the report. `before` contains the calls that it waits for."""
    entry: JSONObject = {"place": call.place, "tool": call.name}
    if call.tool is not None and call.tool.module is not None:
        entry["module"] = call.tool.module

    if call.instance:
        entry["instance"] = call.instance

    entry["reads"] = [read.expression.text for read in call.reads]
    entry["writes"] = [format_reference(path) for path in call.writes]
    entry["after"] = [graph.call(index).place for index in sorted(before)]
    ordered = sorted(_order_of(graph, call))
    if ordered:
        entry["ordered_after"] = [graph.call(index).place for index in ordered]

    entry["read_only"] = _is_read_only(call)
    return entry


_MOST_NAMED: Final = 5
"""Maximum number of tools named in one note."""


def _notes(graph: Graph) -> list[str]:
    """Return notes about the order of effects for the author of a plan."""
    notes: list[str] = []
    undeclared = _undeclared(graph)
    if undeclared:
        names = ", ".join(undeclared[:_MOST_NAMED])
        if len(undeclared) > _MOST_NAMED:
            names += ", ..."

        notes.append(
            "Some calls wait for earlier calls of their server, because a tool does not declare "
            f"whether it only reads: {names}. If it does, declare it: read_only=True in @tool, or "
            "read_only in the server's configuration."
        )

    if len({call.instance for call in graph.calls}) > 1:
        notes.append(
            "The calls of different instances do not wait for each other, "
            "unless data connects them."
        )

    return notes


def _undeclared(graph: Graph) -> list[str]:
    """Return the names of tools that force calls into an order by not declaring whether they are
    read-only.
    """
    # A dictionary keeps the order of the names.
    names: dict[str, None] = {}
    for call in graph.calls:
        if not _order_of(graph, call):
            continue

        predecessors = [graph.call(index) for index in call.order]
        for ordered in [call, *predecessors]:
            is_undeclared = ordered.tool is not None and ordered.hints.read_only is None
            if is_undeclared and graph.order.may_change(ordered):
                names[ordered.name] = None

    return list(names)


# -- drawings --------------------------------------------------------------------------------------

Form: TypeAlias = Literal["mermaid", "text"]
"""The form in which a plan is drawn."""

FORMS: Final[tuple[Form, ...]] = get_args(Form)

_LONGEST_NAME: Final = 60
"""Maximum length of a name or a reference in a drawing, in characters."""


def plan_drawing(graph: Graph, form: Form = "mermaid", missing: Collection[str] = ()) -> str:
    """Draw a closed graph. The drawing ends with a line ending.

    Args:
        graph: the graph of a plan that can run.
        form: `mermaid` for a flowchart with named arrows for values and dotted arrows for order;
            `text` for one line per call, grouped by layer.
        missing: the references to members of the input that the plan did not receive, which the
            drawing marks.
    """
    if form == "mermaid":
        lines = _Flowchart(graph, missing).lines()
    else:
        lines = _text(graph, missing)
    return "\n".join(lines) + "\n"


def _shown(text: str) -> str:
    """Return the beginning of an external string on one line, without control characters."""
    beginning = clipped(text, _LONGEST_NAME)
    return "".join(char if char.isprintable() else "·" for char in beginning)


def _title(call: Call) -> str:
    name = call.name
    if call.tool is not None and call.tool.module:
        name = f"{call.tool.module}.{name}"

    title = f"{_name_of(call)} {_shown(name)}"
    if call.has_each:
        title += " for each"
    return title


def _written(call: Call) -> str:
    return _shown(" ".join(format_reference(path) for path in call.writes))


def _direct(call: Call) -> list[int]:
    """Return the calls that must run before `call` because of `_after` or the order of effects."""
    direct = set(call.order)
    if call.edges is not None:
        direct.update(call.edges)
    return sorted(direct)


# -- text ------------------------------------------------------------------------------------------

_TITLE_WIDTH: Final = 40
"""Maximum width of the column of titles, in characters. Longer titles push the next column."""


def _text(graph: Graph, missing: Collection[str]) -> Iterator[str]:
    # Each row has a title, what is read and written, and remarks.
    rows: list[tuple[str, str, str]] = []
    for number, layer in enumerate(_layers(graph), start=1):
        label = str(number)
        for call in layer:
            title = f"{label:>3}  {_title(call)}"
            reads = _texts_of(call.reads) or "-"
            flow = f"{reads} -> {_written(call)}"
            rows.append((title, flow, _remarks(graph, call)))
            # Show the number of a layer only in its first row.
            label = ""

    if graph.output is not None:
        output_reads = chain.from_iterable(graph.output_reads.values())
        flow = _texts_of(output_reads) or "constant"
        rows.append(("     output", flow, ""))

    longest = max((len(title) for title, _, _ in rows), default=0)
    width = min(_TITLE_WIDTH, longest)
    for title, flow, remarks in rows:
        yield f"{title:<{width}}  {flow}{remarks}".rstrip()

    if missing:
        references = ", ".join(_shown(reference) for reference in missing)
        yield f"missing inputs: {references}"


def _texts_of(reads: Iterable[Read]) -> str:
    """Return the references that are read, without duplicates."""
    texts = [_shown(read.expression.text) for read in reads]
    return ", ".join(dict.fromkeys(texts))


def _remarks(graph: Graph, call: Call) -> str:
    remarks = ""
    before = [str(_name_of(graph.call(index))) for index in _direct(call)]
    if before:
        remarks += f"  (after {', '.join(before)})"

    if _may_change(call):
        remarks += "  ! not read-only"
    return remarks


# -- mermaid ---------------------------------------------------------------------------------------

_SPECIAL: Final = frozenset('"#&<>`\\|;')
"""The characters that have a meaning in Mermaid or HTML."""


class _Flowchart:
    """A plan as a Mermaid flowchart: calls, the values that exist from the start, and arrows."""

    def __init__(self, graph: Graph, missing: Collection[str]) -> None:
        self._graph = graph
        self._missing = frozenset(missing)
        # Maps the reference of each value that exists from the start to its node.
        self._values: dict[str, str] = {}
        # The lines of the arrows, in order and without duplicates.
        self._arrows: dict[str, None] = {}

    def lines(self) -> Iterator[str]:
        """Return the lines of the chart."""
        graph = self._graph
        yield "flowchart TD"
        for call in graph.calls:
            node = f"c{call.index}"
            title = _label(_title(call))
            writes = _label(_written(call))
            yield f'  {node}["{title}<br/>{writes}"]'
            self._add_arrows(call.reads, node)
            for index in _direct(call):
                self._arrows[f"  c{index} -.-> {node}"] = None

        if graph.output is not None:
            yield '  output(["output"])'
            for reads in graph.output_reads.values():
                self._add_arrows(reads, "output")

        for text, node in self._values.items():
            yield f'  {node}[/"{_label(_shown(text))}"/]'

        yield from self._arrows
        changing = [f"c{call.index}" for call in graph.calls if _may_change(call)]
        lacking = [node for text, node in self._values.items() if text in self._missing]
        yield from _styled(changing, "changing", "stroke-width:3px")
        yield from _styled(lacking, "missing", "stroke-dasharray:4")

    def _add_arrows(self, reads: Iterable[Read], node: str) -> None:
        """Add arrows to a node from everything that it reads."""
        sources = chain.from_iterable(read.sources() for read in reads)
        for operand, writers in sources:
            name = _label(_shown(operand.text))
            for index in writers:
                self._arrows[f'  c{index} -->|"{name}"| {node}'] = None

            if not writers:
                # No call writes this value, so it exists from the start.
                text = format_reference(operand.full, operand.instance)
                value = self._values.setdefault(text, f"g{len(self._values)}")
                self._arrows[f"  {value} --> {node}"] = None


def _styled(nodes: list[str], name: str, style: str) -> Iterator[str]:
    """Yield the lines that style the nodes, if there are any."""
    if nodes:
        yield f"  class {','.join(nodes)} {name}"
        yield f"  classDef {name} {style}"


def _label(text: str) -> str:
    """Escape a string for use in quotes.

    Characters that have a meaning in Mermaid or HTML are replaced by character codes.
    """
    return "".join(f"#{ord(char)};" if char in _SPECIAL else char for char in text)
