"""Order: calls with effects that only stood in this order, with no data between them (DESIGN 4.4, 4.11)."""

from __future__ import annotations

from collections.abc import Mapping

from ideabridge.bridge.loop.call import Call
from ideabridge.bridge.loop.graph import Graph


def unbound_orders(graph: Graph, apart: Mapping[int, set[int]] | None = None) -> list[str]:
    """The calls of one module and instance that declare effects and that no data and no `_after` put in order.

    Args:
        graph: of the plan.
        apart: where it was lifted from several Requests: by call, those it runs after only because it did so then. A
            Request waits for the one before, so there every call that may do more than read kept its order.

    Returns:
        `calls.0, calls.1 (send, send)` for each module and instance; what only instances tell apart stands once.
    """
    groups: dict[tuple[str | None, str], list[int]] = {}
    for call in graph.calls:
        if call.tool is not None and _counts(call, several=apart is not None):
            module = call.tool.module if apart is None else None
            groups.setdefault((module, call.instance), []).append(call.index)
    groups = {key: group for key, group in groups.items() if len(group) > 1}
    if not groups:
        return []
    waits = {call.index: graph.depends_on(call) - (apart or {}).get(call.index, set()) for call in graph.calls}
    awaited: dict[int, set[int]] = {index: set() for index in waits}
    for index, others in waits.items():
        for other in others:
            awaited[other].add(index)
    before, after = _reachable(waits), _reachable(awaited)
    found: dict[str, None] = {}
    for group in groups.values():
        all_of_it = _mask(group)
        loose = [index for index in group if (before[index] | after[index] | 1 << index) & all_of_it != all_of_it]
        if loose:
            calls = [graph.call(index) for index in loose[:20]]
            places = ", ".join(f"calls.{call.place}" for call in calls)
            more = f", and {len(loose) - 20} more" if len(loose) > 20 else ""
            found[f"{places}{more} ({', '.join(call.name for call in calls)})"] = None
    return list(found)


def _counts(call: Call, *, several: bool) -> bool:
    if call.has_latent or call.room == "latent" or call.tool is None:
        return False
    said = call.tool.annotations
    return said.read_only is not True if several else said.declares_effects


def _mask(indices: list[int]) -> int:
    mask = 0
    for index in indices:
        mask |= 1 << index
    return mask


def _reachable(steps: dict[int, set[int]]) -> dict[int, int]:
    """The calls each call leads to, by one step or many, as bits."""
    found: dict[int, int] = {}
    for root in steps:
        stack = [root]
        open_: set[int] = set()
        while stack:
            index = stack[-1]
            if index in found:
                stack.pop()
                continue
            left = [one for one in steps[index] if one not in found and one not in open_]
            if left and index not in open_:
                open_.add(index)
                stack.extend(left)
                continue
            # A circle through later alternatives says nothing of the order within it.
            stack.pop()
            mask = 0
            for one in steps[index]:
                mask |= 1 << one | found.get(one, 0)
            found[index] = mask
    return found
