"""Sight: what a mind saw before it proposed a call, and no data carries: it may have decided by it (DESIGN 4.11)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from ideabridge.bridge.context.document import Missing, parsed_text
from ideabridge.bridge.context.reference import Path, Reference
from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.replay.lift import Lifted
from ideabridge.bridge.replay.values import same
from ideabridge.bridge.replay.witness import Source
from ideabridge.tools.encoding import JSON

_PARTS: Final = 200
"""How many parts of one result are looked at."""


def unread_parts(lifted: Lifted, graph: Graph, step: int) -> list[Source]:
    """The parts of results, seen before a Request, that nothing in the plan reads, and that were the same in every run.

    A part is a member of an object that is none itself. What another run had otherwise, while it went the same way,
    decided nothing.
    """
    witness = lifted.witness
    read = [source for operand in _operands(graph) if (source := witness.source_in_plan(operand)) is not None]
    found: list[Source] = []
    for place, one in enumerate(witness.calls):
        value = witness.document(place)
        if one.step >= step or not one.reads_only or isinstance(value, Missing):
            continue
        taken = [source.path for source in read if source.place == place]
        for path in islice(_members(value, ()), _PARTS):
            part = Source(place, path)
            if not any(path[: len(other)] == other for other in taken) and not _differs(lifted, part):
                found.append(part)
    return found


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
    """`calls.0 level, size` of the first few."""
    texts = [f"calls.{part.place}{''.join(f'.{key}' for key in part.path)}" for part in parts]
    return ", ".join(texts[:5]) + (f" and {len(texts) - 5} more" if len(texts) > 5 else "")
