"""Offered: the tools and the output schema of one Request, where handlers of messages changed them.

A journal holds the change in `RequestMade.offered`, so that a run that is folded again takes the same Solutions:
`{"tools"?: [...], "latent"?: [...], "output_schema"?: ...}`. A tool is a number, its place among the tools that the run
began with, or the definition of one that it did not have. `output_schema` is null where text is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.journaled import JournalError
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ArgumentError, ToolDefinitionError
from ideabridge.tools.tool import Tool, ToolKey

Latent = Callable[[Iterable[Tool]], Iterable[ToolKey]]
"""The keys of the tools that nothing runs: the mind writes their `_output`."""


def change_of(
    base: Catalogue, asked: JSONObject | None, tools: Sequence[object], output_schema: object, latent: Latent
) -> JSONObject | None:
    """What handlers made of the tools and the output schema, as a journal holds it; None: nothing.

    Args:
        base: the tools the run began with.
        asked: the output schema the run began with.
        tools: as the handlers left them.
        output_schema: likewise.
        latent: tells which tools nothing runs.

    Raises:
        ArgumentError: something else than Tools, or than a schema or None.
        ToolDefinitionError: two tools of one name and module.
    """
    changed: JSONObject = {}
    if not isinstance(output_schema, dict | None):
        raise ArgumentError.of("output_schema of a handler", "a JSON Schema (a dict) or None", output_schema)
    if output_schema != asked:
        changed["output_schema"] = cast("JSON", output_schema)
    known = base.tools
    if len(tools) == len(known) and all(one is other for one, other in zip(tools, known, strict=True)):
        return changed or None
    left: list[Tool] = []
    for one in tools:
        if not isinstance(one, Tool):
            raise ArgumentError.of("tools of a handler", "a Tool", one)
        left.append(one)
    keys = {one.key for one in left}
    if len(keys) < len(left):
        twice = next(one.name for place, one in enumerate(left) if one.key in {other.key for other in left[:place]})
        raise ToolDefinitionError(f"tools of a handler: {twice!r} is there twice; replace a tool in its place")
    places = {id(one): place for place, one in enumerate(known)}
    own = {one.key for one in known}
    changed["tools"] = [places[id(one)] if id(one) in places else one.to_json() for one in left]
    found = [*(key for key in base.latent if key in keys), *latent(one for one in left if one.key not in own)]
    if found:
        changed["latent"] = [[module, name] for module, name in sorted(found, key=str)]
    return changed


def offered_by(base: Catalogue, changed: JSONObject | None) -> Catalogue:
    """The tools of a Request.

    Args:
        base: the tools the run began with.
        changed: what `change_of` gave.

    Raises:
        JournalError: it names a tool that the run did not have.
    """
    listed = (changed or {}).get("tools")
    if not isinstance(listed, list):
        return base
    known, latent = base.tools, (changed or {}).get("latent")
    tools: list[Tool] = []
    for one in listed:
        if isinstance(one, dict):
            tools.append(Tool.from_json(one))
        elif isinstance(one, int) and 0 <= one < len(known):
            tools.append(known[one])
        else:
            raise JournalError(f"a Request offered tool {one!r}, and the run began with {len(known)}")
    return Catalogue(tools, Catalogue.from_json([], latent if isinstance(latent, list) else []).latent)
