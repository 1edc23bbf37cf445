"""Dry run: what a plan would do, as data and as a drawing (Mermaid for documents and hosts, text
for terminals).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, Literal, TypeAlias, get_args

from ideabridge.bridge.context.references import Reference, clipped, format_reference
from ideabridge.bridge.loop.call import Call, Read
from ideabridge.bridge.loop.graph import Graph, components
from ideabridge.tools.encoding import JSON, JSONObject


def _waits(graph: Graph) -> dict[int, set[int]]:
    """The calls that each call waits for: because of data, `_after`, or the order of effects."""
    return {call.index: graph.depends_on(call) | set(call.order) for call in graph.calls}


def _layers(graph: Graph) -> list[list[Call]]:
    """The calls of a closed graph, each in the layer after those of the calls that it waits for."""
    before = _waits(graph)
    depth: dict[int, int] = {}
    for part in components(before):
        # Later alternatives may wait for each other in a circle; such calls share a layer.
        earlier = {index_before for index in part for index_before in before[index]}.difference(
            part
        )
        level = 1 + max((depth[index_before] for index_before in earlier), default=-1)
        depth.update(dict.fromkeys(part, level))

    layers: list[list[Call]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for call in graph.calls:
        layers[depth[call.index]].append(call)

    return layers


def _name_of(call: Call) -> int | str:
    """The place of a call, and its instance if it has one."""
    return f"{call.place} ({call.instance})" if call.instance else call.place


def _is_read_only(call: Call) -> bool:
    return call.hints.read_only is True


def _order_of(graph: Graph, call: Call) -> set[int]:
    """The calls that a call waits for only because of the order of effects."""
    return set(call.order) - graph.depends_on(call)


def dry_run(graph: Graph, missing: Sequence[str] = ()) -> JSONObject:
    """The order of a closed graph: which calls run in parallel, what each reads and writes, what
    is not read-only.

    Args:
        graph: the graph of a plan that can run.
        missing: references to an input that the plan was not given.

    Returns:
        `{"layers": [[place...]...], "calls": [{"place", "tool", "module"?, "instance"?, "reads",
        "writes", "after", "ordered_after"?, "read_only"}], "not_read_only": [place...],
        "missing_inputs": [reference...], "notes"?: [text...]}`. The calls of a layer may run at
        once. Each call starts when its own inputs exist, so layers show what is possible, not when
        it happens. `after` lists every call that a call waits for directly, `ordered_after` those
        for which it waits only because of the order of effects.
    """
    before = _waits(graph)
    entries: list[JSON] = []
    asks: list[JSON] = []
    for call in graph.calls:
        entry: JSONObject = {"place": call.place, "tool": call.name}
        if call.tool is not None and call.tool.module is not None:
            entry["module"] = call.tool.module

        if call.instance:
            entry["instance"] = call.instance

        entry["reads"] = [read.expression.text for read in call.reads]
        entry["writes"] = [format_reference(path) for path in call.writes]
        entry["after"] = [graph.call(index).place for index in sorted(before[call.index])]
        ordered = sorted(_order_of(graph, call))
        if ordered:
            entry["ordered_after"] = [graph.call(index).place for index in ordered]

        entry["read_only"] = _is_read_only(call)
        if not entry["read_only"] and not call.has_latent:
            asks.append(_name_of(call))

        entries.append(entry)

    layers: list[JSON] = [[_name_of(call) for call in layer] for layer in _layers(graph)]
    report: JSONObject = {
        "layers": layers,
        "calls": entries,
        "not_read_only": asks,
        "missing_inputs": [*missing],
    }
    notes = list[JSON](_notes(graph))
    return {**report, "notes": notes} if notes else report


def _notes(graph: Graph) -> list[str]:
    """Return notes for the author of a plan about its order of effects."""
    notes: list[str] = []
    waiting = [call for call in graph.calls if _order_of(graph, call)]
    unsaid = {
        related.name: None
        for call in waiting
        for related in (call, *(graph.call(index) for index in call.order))
        if related.tool is not None
        and related.hints.read_only is None
        and graph.order.may_change(related)
    }
    if unsaid:
        names = ", ".join([*unsaid][:5]) + (", ..." if len(unsaid) > 5 else "")
        notes.append(
            "Some calls wait for earlier calls of their server, because a tool does not say "
            f"whether it only reads: {names}. If it does, say so: read_only=True in @tool, or "
            "read_only in the server's configuration."
        )

    if len({call.instance for call in graph.calls}) > 1:
        notes.append(
            "The calls of different instances do not wait for each other, "
            "unless data connects them."
        )

    return notes


# -- drawings --------------------------------------------------------------------------------------

Form: TypeAlias = Literal["mermaid", "text"]
"""The form in which a plan is drawn."""

FORMS: Final[tuple[Form, ...]] = get_args(Form)

_LONGEST: Final = 60
"""Characters of a name or a reference that a drawing shows."""


def draw(graph: Graph, form: Form = "mermaid", missing: Collection[str] = ()) -> str:
    """A drawing of a closed graph, ending in a line break.

    Args:
        graph: the graph of a plan that can run.
        form: `mermaid`: a flowchart with named arrows for values and dotted arrows for order;
            `text`: a line for each call, grouped by layer.
        missing: references to an input that the plan was not given; the drawing marks them.
    """
    if form == "mermaid":
        lines = _mermaid(graph, frozenset(missing))
    else:
        lines = _text(graph, missing)
    return "\n".join(lines) + "\n"


def _sources(read: Read) -> Iterator[tuple[Reference, tuple[int, ...]]]:
    """Return every operand that may be read, with the calls that write it; none if it exists
    from the start.
    """
    for alternative, bound in zip(read.expression.alternatives, read.bound, strict=False):
        for operand, writers in zip(alternative, bound, strict=True):
            if operand.kind != "item":
                yield operand, writers or ()


def _shown(text: str) -> str:
    """The beginning of an external text on one line, without control characters."""
    return "".join(char if char.isprintable() else "·" for char in clipped(text, _LONGEST))


def _title(call: Call) -> str:
    module = call.tool.module if call.tool is not None else None
    name = _shown(f"{module}.{call.name}" if module else call.name)
    return f"{_name_of(call)} {name}{' for each' if call.has_each else ''}"


def _written(call: Call) -> str:
    return _shown(" ".join(format_reference(path) for path in call.writes))


# -- text ------------------------------------------------------------------------------------------


def _text(graph: Graph, missing: Collection[str]) -> Iterator[str]:
    rows: list[tuple[str, str, str]] = []
    for number, layer in enumerate(_layers(graph)):
        for call in layer:
            head = f"{number + 1 if call is layer[0] else '':>3}  {_title(call)}"
            reads = ", ".join(dict.fromkeys(_shown(read.expression.text) for read in call.reads))
            before = [
                str(_name_of(graph.call(index)))
                for index in sorted({*(call.edges or ()), *call.order})
            ]
            remarks = f"  (after {', '.join(before)})" if before else ""
            remarks += "" if _is_read_only(call) or call.has_latent else "  ! not read-only"
            rows.append((head, f"{reads or '-'} -> {_written(call)}", remarks))

    outputs = [read for reads in graph.output_reads.values() for read in reads]
    if graph.output is not None:
        reads = ", ".join(dict.fromkeys(_shown(read.expression.text) for read in outputs))
        rows.append(("     output", reads or "constant", ""))

    width = min(40, max((len(head) for head, _, _ in rows), default=0))
    for head, flow, remarks in rows:
        yield f"{head:<{width}}  {flow}{remarks}".rstrip()

    if missing:
        yield f"missing inputs: {', '.join(map(_shown, missing))}"


# -- mermaid ---------------------------------------------------------------------------------------


def _mermaid(graph: Graph, missing: frozenset[str]) -> Iterator[str]:
    yield "flowchart TD"
    givens: dict[str, str] = {}
    arrows: list[str] = []
    changing: list[str] = []
    for call in graph.calls:
        node = f"c{call.index}"
        yield f'  {node}["{_label(_title(call))}<br/>{_label(_written(call))}"]'
        if not _is_read_only(call) and not call.has_latent:
            changing.append(node)

        for read in call.reads:
            arrows.extend(_arrows(read, node, givens))

        arrows.extend(
            f"  c{index} -.-> {node}" for index in sorted({*(call.edges or ()), *call.order})
        )

    if graph.output is not None:
        yield '  output(["output"])'
        for reads in graph.output_reads.values():
            for read in reads:
                arrows.extend(_arrows(read, "output", givens))

    lacking: list[str] = []
    for text, node in givens.items():
        yield f'  {node}[/"{_label(_shown(text))}"/]'
        if text in missing:
            lacking.append(node)

    yield from dict.fromkeys(arrows)
    if changing:
        yield f"  class {','.join(changing)} changing"
        yield "  classDef changing stroke-width:3px"

    if lacking:
        yield f"  class {','.join(lacking)} missing"
        yield "  classDef missing stroke-dasharray:4"


def _arrows(read: Read, node: str, givens: dict[str, str]) -> Iterator[str]:
    for operand, writers in _sources(read):
        if writers:
            yield from (
                f'  c{index} -->|"{_label(_shown(operand.text))}"| {node}' for index in writers
            )
        else:
            text = format_reference(operand.full, operand.instance)
            yield f"  {givens.setdefault(text, f'g{len(givens)}')} --> {node}"


def _label(text: str) -> str:
    """A text for use in quotes: characters with a meaning in Mermaid or HTML become
    character codes.
    """
    return "".join(f"#{ord(char)};" if char in '"#&<>`\\|;' else char for char in text)
