"""The tools and output schema that each Request of a run offers.

A run begins with a catalogue and an output schema. Message handlers can change both for a Request,
and the event of the Request records the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, cast

from ideabridge.bridge.loop.catalogue import Catalogue, read_keys, stored_keys, stored_tool
from ideabridge.bridge.loop.event import JournalError
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ArgumentError, ToolDefinitionError
from ideabridge.tools.tool import Tool, ToolKey

Latent: TypeAlias = Callable[[Iterable[Tool]], Iterable[ToolKey]]
"""A function that returns the keys of the tools without code, for which the mind writes
`_output`.
"""


class ToolOffer:
    """The tools and output schemas of a run and of its current Request.

    Args:
        initial: the tools that the run began with.
        output_schema: the output schema that the run began with.

    Attributes:
        initial, initial_schema: the arguments.
        current, output_schema: the tools and output schema of the current Request.
        every: all tools that the run has ever had.
    """

    def __init__(self, initial: Catalogue, output_schema: JSONObject | None = None) -> None:
        self.initial = initial
        self.current = initial
        self.every = initial
        self.initial_schema = output_schema
        self.output_schema = output_schema
        self._change: JSONObject | None = None

    def change(self, change: JSONObject | None) -> bool:
        """Set the offer of the next Request. Return whether it differs from that of the last
        Request.

        Args:
            change: see `change_of_offer`. None means the run's initial tools and output schema.

        Raises:
            JournalError: see `offered_by`.
        """
        if change == self._change:
            return False

        # Call `offered_by` before changing anything, because it can raise an error.
        current = offered_by(self.initial, change)
        self._change = change
        self.current = current
        keys = {tool.key for tool in self.every.tools}
        new = [tool for tool in current.tools if tool.key not in keys]
        if new:
            self.every = self.every.joined(new, current.latent)

        self.output_schema = self.initial_schema
        if change is not None and "output_schema" in change:
            schema = change["output_schema"]
            self.output_schema = schema if isinstance(schema, dict) else None
        return True


def change_of_offer(
    base: Catalogue,
    base_schema: JSONObject | None,
    tools: Sequence[object],
    output_schema: object,
    latent: Latent,
) -> JSONObject | None:
    """Return how message handlers changed the tools and the output schema, or None if they did not.

    The result is `RequestMade.offered`, so that a folded run accepts the same Solutions:
    `{"tools"?: [...], "latent"?: [...], "output_schema"?: ...}`. In `tools`, an initial tool is
    represented by its number, and a new tool by its definition. `output_schema` is null if the
    output is text.

    Args:
        base: the initial tools of the run.
        base_schema: the initial output schema of the run.
        tools: the tools after the handlers ran.
        output_schema: the output schema after the handlers ran.
        latent: returns the keys of the tools without code.

    Raises:
        ArgumentError: a tool is not a Tool, or the schema is neither a dict nor None.
        ToolDefinitionError: two tools have the same name and server.
    """
    if not isinstance(output_schema, dict | None):
        raise ArgumentError.of(
            "output_schema of a handler", "a JSON Schema (a dict) or None", output_schema
        )

    change: JSONObject = {}
    if output_schema != base_schema:
        change["output_schema"] = cast("JSON", output_schema)

    initial = base.tools
    numbers = {id(tool): number for number, tool in enumerate(initial)}
    if [id(tool) for tool in tools] == list(numbers):
        return change or None

    offered = _tools_by_key(tools)
    change["tools"] = [
        numbers[id(tool)] if id(tool) in numbers else stored_tool(tool) for tool in offered.values()
    ]
    initial_keys = {tool.key for tool in initial}
    new = [tool for key, tool in offered.items() if key not in initial_keys]
    latent_keys = [*base.latent.intersection(offered), *latent(new)]
    if latent_keys:
        change["latent"] = stored_keys(latent_keys)

    return change


def _tools_by_key(tools: Sequence[object]) -> dict[ToolKey, Tool]:
    """Return the tools left by the message handlers, in the handlers' order."""
    by_key: dict[ToolKey, Tool] = {}
    for tool in tools:
        if not isinstance(tool, Tool):
            raise ArgumentError.of("tools of a handler", "a Tool", tool)
        if tool.key in by_key:
            raise ToolDefinitionError(
                f"tools of a handler: {tool.name!r} occurs twice; to change a tool, replace it in "
                "place"
            )
        by_key[tool.key] = tool

    return by_key


def offered_by(base: Catalogue, change: JSONObject | None) -> Catalogue:
    """Return the tools that a Request offers.

    Args:
        base: the initial tools of the run.
        change: the result of `change_of_offer`.

    Raises:
        JournalError: a number in `change` is not the number of an initial tool.
    """
    listed = change.get("tools") if change is not None else None
    if change is None or not isinstance(listed, list):
        return base

    initial = base.tools
    tools: list[Tool] = []
    for entry in listed:
        if isinstance(entry, dict):
            tools.append(Tool.from_json(entry))
        elif isinstance(entry, int) and 0 <= entry < len(initial):
            tools.append(initial[entry])
        else:
            raise JournalError(
                f"a Request offered tool {entry!r}, but the run began with {len(initial)} tools"
            )

    latent = change.get("latent")
    return Catalogue(tools, read_keys(latent) if isinstance(latent, list) else [])
