"""Shape: which runs are runs of the same task: the same tools in the same data flow (DESIGN 4.11)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ideabridge.bridge.context.document import Missing
from ideabridge.bridge.context.reference import Hole, Path, compile_value, parse_reference
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.ideas.records import RunRecord
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.progress import Standing
from ideabridge.bridge.replay.executed import Executed, executed_calls
from ideabridge.bridge.replay.function import read_function
from ideabridge.bridge.replay.values import same
from ideabridge.bridge.replay.witness import Source, Witness
from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.tool import META_PROPERTIES, ToolKey

_SEARCHED: Final = 200
"""The latest runs that are looked through for others of the same shape."""

_TAKEN: Final = 8
"""Runs of the same task that are compared."""


class OtherShapeError(PublicationError):
    """A run that took another course than the one that is lifted."""


def aligned(mine: Witness, store: Store, run_id: str, caller: str) -> Witness:
    """Another run, its calls in the places of a plan made of mine.

    Raises:
        OtherShapeError: it took another course; the message says where.
        PublicationError: it had the same input, or cannot be looked at.
        UnknownRunError, UnknownIdeaError: there is none for this caller.
    """
    function = read_function(store, run_id, caller)
    if mine.function.run.machine.mode == "solve" and function.run.machine.mode != "solve":
        # A plan that was run again, by its name perhaps, agrees with itself.
        raise PublicationError(f"run {function.run.id} is the replay of a plan, not of a mind; it tells nothing")
    kept, _ = executed_calls(function.run)
    where = f"run {function.run.id}"
    if function.run.machine.instances:
        raise PublicationError(f"{where} is over instances; such runs are not lifted together")
    if same(function.input or {}, mine.function.input or {}):
        raise PublicationError(f"{where} had the same input, so it tells nothing of another")
    # The n-th call of a tool there stands for the n-th here, whatever independent calls stand between.
    left = list(kept)
    placed: list[Executed] = []
    for one in mine.calls:
        found = next((other for other in left if _key(other) == _key(one)), None)
        if found is None:
            raise OtherShapeError(f"{where} took another course: it made no such call of {one.name}")
        left.remove(found)
        placed.append(found)
    if left:
        raise OtherShapeError(f"{where} took another course: it also called {', '.join(one.name for one in left[:5])}")
    other = Witness(function, placed)
    fault = _contradiction(mine, other)
    if fault is not None:
        raise OtherShapeError(f"{where} is of another shape: {fault}")
    return other


def _contradiction(mine: Witness, other: Witness) -> str | None:
    """Where the data flow differs, as far as both were written by reference."""
    for place, (one, two) in enumerate(zip(mine.calls, other.calls, strict=True)):
        if _parameters(one.raw) != _parameters(two.raw) or one.progress.call.has_each != two.progress.call.has_each:
            return f"calls.{place} ({one.name}) has other parameters"
        if (one.progress.standing is Standing.DONE) != (two.progress.standing is Standing.DONE):
            return f"calls.{place} ({one.name}) took another branch"
        for keys, text in references_in(one.raw):
            written = other.written_reference(place, keys)
            if written is not None:
                here = _fields(mine.sources_of(parse_reference(text)))
                if here and here != _fields(other.sources_of(parse_reference(written))):
                    return f"calls.{place}.{'.'.join(keys)} reads {written} there"
            elif _differs(mine, other, place, keys, text):
                return f"calls.{place}.{'.'.join(keys)} is not what {text} gives there"
    return None


def _fields(sources: list[Source]) -> list[Source]:
    """Sources without the places in lists: these are what is chosen anew in every run."""
    return [Source(one.place, tuple("*" if key.isdecimal() else key for key in one.path)) for one in sources]


def _differs(mine: Witness, other: Witness, place: int, keys: Path, text: str) -> bool:
    """Whether the other run wrote a literal there that is not what my reference reads in it."""
    sources = mine.sources_of(parse_reference(text))
    there = other.leaf(place, keys)
    if len(sources) != 1 or isinstance(there, Missing):
        return False
    value = other.value(sources[0])
    return not isinstance(value, Missing) and not same(value, there)


def _key(one: Executed) -> ToolKey | None:
    return one.progress.call.tool.key if one.progress.call.tool is not None else None


def _parameters(raw: dict[str, JSON]) -> set[str]:
    return {key for key in raw if key not in META_PROPERTIES}


def references_in(raw: dict[str, JSON]) -> Iterator[tuple[Path, str]]:
    """(keys, text) of every well-formed reference in the parameters of a call, and in `_each`."""
    for key, value in raw.items():
        if key not in META_PROPERTIES or key == "_each":
            holes: list[Hole] = []
            compile_value(value, holes, [], (key,))
            for hole in holes:
                if not hole.expression.uses_item:
                    yield hole.path, hole.expression.text


def runs_like(mine: Witness, store: Store, caller: str) -> tuple[list[Witness], list[str]]:
    """The latest runs of a caller that a mind made in the same shape with other input; and why runs of the same task,
    in the same words, are of another shape.
    """
    record = store.run(mine.run_id)
    if record is None or record.kind != "solve":
        return [], []
    tools = {one.name for one in mine.calls}
    found: list[Witness] = []
    astray: list[str] = []
    for other in _ended(store, caller):
        if other.id == mine.run_id or other.kind != record.kind or other.parent is not None:
            continue
        same_words = other.title == record.title
        if not same_words and not tools <= _tools(store, other.id):
            continue
        try:
            found.append(aligned(mine, store, other.id, caller))
        except OtherShapeError as error:
            astray += [str(error)] if same_words else []
        except IdeabridgeError:
            # The same input, or a run nothing can be told of.
            continue
        if len(found) + len(astray) >= _TAKEN:
            break
    return found, astray


def _tools(store: Store, run_id: str) -> set[str]:
    return {name for step in store.step_ideas(run_id) for name in step.meta.tools}


def _ended(store: Store, caller: str) -> list[RunRecord]:
    found: list[RunRecord] = []
    after: str | None = None
    while len(found) < _SEARCHED:
        page = store.runs(caller, "done", min(100, _SEARCHED), after=after, rooms=False)
        found += page
        if len(page) < min(100, _SEARCHED):
            break
        after = page[-1].id
    return found
