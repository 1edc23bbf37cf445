"""Dry run: what a plan would do, told without doing it (DESIGN 4.9)."""

from __future__ import annotations

from ideabridge.bridge.context.reference import format_reference
from ideabridge.bridge.loop.graph import Graph
from ideabridge.tools.encoding import JSON, JSONObject


def dry_run(graph: Graph) -> JSONObject:
    """The order of a closed graph: which calls run in parallel, what each reads and writes, what is not read-only.

    Returns:
        `{"layers": [[place...]...], "calls": [{"place", "tool", "module"?, "instance"?, "reads", "writes",
        "after", "read_only"}], "not_read_only": [place...]}`. A layer's calls may run at once; each call starts as
        soon as its own inputs exist, so layers tell what is possible, not when.
    """
    waits: dict[int, set[int]] = {call.index: graph.depends_on(call) | set(call.order) for call in graph.calls}
    depth: dict[int, int] = {}
    left = set(waits)
    while left:
        ready = {index for index in left if all(before in depth for before in waits[index])}
        # Later alternatives may wait for each other in a circle; such calls are shown last, together.
        for index in ready or left:
            depth[index] = 1 + max((depth[before] for before in waits[index] if before in depth), default=-1)
        left -= ready or set(left)
    layers: list[list[JSON]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    told: list[JSON] = []
    asks: list[JSON] = []
    for call in graph.calls:
        name: JSON = call.place if not call.instance else f"{call.place} ({call.instance})"
        layers[depth[call.index]].append(name)
        entry: JSONObject = {"place": call.place, "tool": call.name}
        if call.tool is not None and call.tool.module is not None:
            entry["module"] = call.tool.module
        if call.instance:
            entry["instance"] = call.instance
        entry["reads"] = [read.expression.text for read in call.reads]
        entry["writes"] = [format_reference(path) for path in call.writes]
        entry["after"] = [graph.call(index).place for index in sorted(waits[call.index])]
        read_only = call.tool is not None and call.tool.annotations.read_only is True
        entry["read_only"] = read_only
        if not read_only and not call.has_latent:
            asks.append(name)
        told.append(entry)
    return {"layers": [list[JSON](layer) for layer in layers], "calls": told, "not_read_only": asks}
