"""Dry run: what a plan would do, told without doing it."""

from __future__ import annotations

from collections.abc import Sequence

from ideabridge.bridge.context.reference import format_reference
from ideabridge.bridge.loop.call import Call
from ideabridge.bridge.loop.graph import Graph
from ideabridge.tools.encoding import JSON, JSONObject


def waits(graph: Graph) -> dict[int, set[int]]:
    """The calls that each call waits for: because of data, of `_after`, and of the order of effects."""
    return {call.index: graph.depends_on(call) | set(call.order) for call in graph.calls}


def layers(graph: Graph) -> list[list[Call]]:
    """The calls of a closed graph, each in the layer after the last one it waits for."""
    before = waits(graph)
    readers: dict[int, list[int]] = {}
    for index, others in before.items():
        for other in others:
            readers.setdefault(other, []).append(index)
    depth: dict[int, int] = {}
    open_ends = {index: len(others) for index, others in before.items()}
    ready = [index for index, count in open_ends.items() if not count]
    while len(depth) < len(before):
        # Later alternatives may wait for each other in a circle; such calls are shown last, together.
        level = {
            index: 1 + max((depth[other] for other in before[index] if other in depth), default=-1)
            for index in ready or [one for one in before if one not in depth]
        }
        depth.update(level)
        following: list[int] = []
        for index in ready:
            for reader in readers.get(index, ()):
                open_ends[reader] -= 1
                if not open_ends[reader]:
                    following.append(reader)
        ready = following
    found: list[list[Call]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for call in graph.calls:
        found[depth[call.index]].append(call)
    return found


def name_of(call: Call) -> int | str:
    """A call's place, and its instance where it has one."""
    return f"{call.place} ({call.instance})" if call.instance else call.place


def is_read_only(call: Call) -> bool:
    """Whether the call's tool says that it changes nothing."""
    return call.tool is not None and call.tool.annotations.read_only is True


def dry_run(graph: Graph, missing: Sequence[str] = ()) -> JSONObject:
    """The order of a closed graph: which calls run in parallel, what each reads and writes, what is not read-only.

    Args:
        graph: of a plan that can run.
        missing: references to an input that the plan was not given.

    Returns:
        `{"layers": [[place...]...], "calls": [{"place", "tool", "module"?, "instance"?, "reads", "writes",
        "after", "ordered_after"?, "read_only"}], "not_read_only": [place...], "missing_inputs": [reference...],
        "notes"?: [text...]}`. A layer's calls may run at once; each call starts as soon as its own inputs exist, so
        layers tell what is possible, not when. `after` holds every call that a call waits for directly,
        `ordered_after` those for which it waits because of the order of effects alone.
    """
    before = waits(graph)
    told: list[JSON] = []
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
        ordered = sorted(set(call.order) - graph.depends_on(call))
        if ordered:
            entry["ordered_after"] = [graph.call(index).place for index in ordered]
        read_only = is_read_only(call)
        entry["read_only"] = read_only
        if not read_only and not call.has_latent:
            asks.append(name_of(call))
        told.append(entry)
    shown: list[JSON] = [[name_of(call) for call in layer] for layer in layers(graph)]
    found: JSONObject = {"layers": shown, "calls": told, "not_read_only": asks, "missing_inputs": [*missing]}
    notes = list[JSON](_notes(graph))
    return {**found, "notes": notes} if notes else found


def _notes(graph: Graph) -> list[str]:
    """What the author of a plan should know about its order of effects."""
    found: list[str] = []
    held = [call for call in graph.calls if set(call.order) - graph.depends_on(call)]
    unsaid = {
        one.name: None
        for call in held
        for one in (call, *(graph.call(index) for index in call.order))
        if one.tool is not None and one.tool.annotations.read_only is None and graph.may_change(one)
    }
    if unsaid:
        names = ", ".join([*unsaid][:5]) + (", ..." if len(unsaid) > 5 else "")
        found.append(
            "Some calls wait for earlier calls of their module, because a tool does not say whether it only reads:"
            f" {names}. If it does, say so: read_only=True in @tool, or read_only in the module's configuration."
        )
    if len({call.instance for call in graph.calls}) > 1:
        found.append("The calls of different instances do not wait for each other, unless data connects them.")
    return found
