"""Sight: what a mind saw before it proposed a call, and no data carries: it may have decided by it (DESIGN 4.11)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ideabridge.bridge.context.document import Missing, parsed_text
from ideabridge.bridge.context.reference import Path, Reference
from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.replay.leaves import names_of
from ideabridge.bridge.replay.lift import Lifted
from ideabridge.bridge.replay.values import same
from ideabridge.bridge.replay.witness import Source
from ideabridge.tools.encoding import JSON


def unread_parts(lifted: Lifted, graph: Graph) -> dict[int, list[Source]]:
    """By place, the parts of what calls gave that nothing in the plan reads, and that were the same in every run.

    A part is a member of an object that is none itself. What another run had otherwise, while it went the same way,
    decided nothing.
    """
    read = _reads(lifted, graph)
    return {
        place: [part for part in _unread(place, value, read) if not _differs(lifted, part)]
        for place in range(len(lifted.witness.calls))
        if not isinstance(value := lifted.witness.document(place), Missing)
    }


def unread_input(lifted: Lifted, graph: Graph) -> list[Source]:
    """The parts of the input that nothing in the plan reads: those of the run, and what the tool takes besides."""
    read = _reads(lifted, graph)
    given = lifted.function.input or {}
    declared = lifted.function.input_schema.get("properties")
    more = [key for key in declared if key not in given] if isinstance(declared, dict) else []
    found = [*_unread(None, given, read), *(Source(None, (key,)) for key in more)] if given or more else []
    return [part for part in found if part.path and not _covered(part, read)]


def _reads(lifted: Lifted, graph: Graph) -> set[Source]:
    found = (lifted.witness.source_in_plan(operand) for operand in _operands(graph))
    return {source for source in found if source is not None}


def _unread(place: int | None, value: JSON, read: set[Source]) -> Iterator[Source]:
    return (part for path in _members(value, ()) if not _covered(part := Source(place, path), read))


def _covered(part: Source, read: set[Source]) -> bool:
    return any(Source(part.place, part.path[:depth]) in read for depth in range(len(part.path) + 1))


def _operands(graph: Graph) -> Iterator[Reference]:
    for call in graph.calls:
        for read in call.reads:
            yield from read.expression.operands()
    for hole in graph.output_holes:
        yield from hole.expression.operands()


def _members(value: JSON, path: Path) -> Iterator[Path]:
    inner: JSON | Missing = parsed_text(value) if isinstance(value, str) else value
    if isinstance(inner, dict) and inner:
        for key, item in inner.items():
            yield from _members(item, (*path, key))
    else:
        yield path


def _differs(lifted: Lifted, part: Source) -> bool:
    mine = lifted.witness.value(part)
    there = [other.value(part) for other in lifted.others]
    return not isinstance(mine, Missing) and any(isinstance(one, Missing) or not same(one, mine) for one in there)


def named(parts: Iterable[Source]) -> str:
    """`calls.0.level, calls.0.size` of the first few."""
    texts = [".".join(names_of(part.place, part.path)) for part in parts]
    return ", ".join(texts[:5]) + (f" and {len(texts) - 5} more" if len(texts) > 5 else "")
