"""Drawing: a plan as a picture, for people. Mermaid for documents and hosts, text for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, Literal, TypeAlias, get_args

from ideabridge.bridge.context.reference import Reference, clipped, format_reference
from ideabridge.bridge.loop.call import Call, Read
from ideabridge.bridge.loop.dry_run import is_read_only, layers, name_of
from ideabridge.bridge.loop.graph import Graph

Form: TypeAlias = Literal["mermaid", "text"]
"""How a plan is drawn."""

FORMS: Final[tuple[Form, ...]] = get_args(Form)

_LONGEST: Final = 60
"""Characters of a name or a reference that a drawing shows."""


def draw(graph: Graph, form: Form = "mermaid", missing: Collection[str] = ()) -> str:
    """A drawing of a closed graph, ending in a line break.

    Args:
        graph: of a plan that can run.
        form: `mermaid`: a flowchart, whose arrows are values (named) and bare order (dotted); `text`: a line for each
            call, grouped by layer.
        missing: references to an input that the plan was not given; they are marked.
    """
    lines = _mermaid(graph, missing) if form == "mermaid" else _text(graph, missing)
    return "\n".join(lines) + "\n"


def _sources(read: Read) -> Iterator[tuple[Reference, tuple[int, ...]]]:
    """Every operand that may be looked at, with the calls that write it; none: it is there from the start."""
    for alternative, bound in zip(read.expression.alternatives, read.bound, strict=False):
        for operand, writers in zip(alternative, bound, strict=True):
            if operand.kind != "item":
                yield operand, writers or ()


def _shown(text: str) -> str:
    """Text from outside on one line: its beginning where it is long, without what a terminal would obey."""
    return "".join(char if char.isprintable() else "·" for char in clipped(text, _LONGEST))


def _title(call: Call) -> str:
    module = call.tool.module if call.tool is not None else None
    name = _shown(f"{module}.{call.name}" if module else call.name)
    return f"{name_of(call)} {name}{' for each' if call.has_each else ''}"


def _written(call: Call) -> str:
    return _shown(" ".join(format_reference(path) for path in call.writes))


# -- text ------------------------------------------------------------------------------------------------------


def _text(graph: Graph, missing: Collection[str]) -> Iterator[str]:
    rows: list[tuple[str, str, str]] = []
    for number, layer in enumerate(layers(graph)):
        for call in layer:
            head = f"{number + 1 if call is layer[0] else '':>3}  {_title(call)}"
            reads = ", ".join(dict.fromkeys(_shown(read.expression.text) for read in call.reads))
            order = _places(graph, [*(call.edges or ()), *call.order])
            rows.append((head, f"{reads or '-'} -> {_written(call)}", _remarks(call, order)))
    outputs = [read for reads in graph.output_reads.values() for read in reads]
    if graph.output is not None:
        reads = ", ".join(dict.fromkeys(_shown(read.expression.text) for read in outputs))
        rows.append(("     output", reads or "constant", ""))
    width = min(40, max((len(head) for head, _, _ in rows), default=0))
    for head, flow, remarks in rows:
        yield f"{head:<{width}}  {flow}{remarks}".rstrip()
    if missing:
        yield f"missing inputs: {', '.join(map(_shown, missing))}"


def _places(graph: Graph, indexes: list[int]) -> str:
    return ", ".join(str(name_of(graph.call(index))) for index in sorted(set(indexes)))


def _remarks(call: Call, order: str) -> str:
    after = f"  (after {order})" if order else ""
    changes = "" if is_read_only(call) or call.has_latent else "  ! not read-only"
    return after + changes


# -- mermaid ---------------------------------------------------------------------------------------------------


def _mermaid(graph: Graph, missing: Collection[str]) -> Iterator[str]:
    yield "flowchart TD"
    givens: dict[str, str] = {}
    arrows: list[str] = []
    changing: list[str] = []
    for call in graph.calls:
        node = f"c{call.index}"
        yield f'  {node}["{_label(_title(call))}<br/>{_label(_written(call))}"]'
        if not is_read_only(call) and not call.has_latent:
            changing.append(node)
        for read in call.reads:
            arrows.extend(_arrows(read, node, givens))
        arrows.extend(f"  c{index} -.-> {node}" for index in sorted({*(call.edges or ()), *call.order}))
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
            yield from (f'  c{index} -->|"{_label(_shown(operand.text))}"| {node}' for index in writers)
        else:
            text = format_reference(operand.full, operand.instance)
            yield f"  {givens.setdefault(text, f'g{len(givens)}')} --> {node}"


def _label(text: str) -> str:
    """Text as it may stand in quotes: what Mermaid or HTML would read as its own becomes a character code."""
    return "".join(f"#{ord(char)};" if char in '"#&<>`\\|;' else char for char in text)
