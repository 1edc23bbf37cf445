"""What the answer of a published idea rests on: its assumptions, and what no earlier run had seen.

Hosts show a model the text of a result, its structured content, or both. So both have it, as lines of at most
`TEXT_BYTES`, and `_meta` has it whole. An answer without assumptions is not changed.

The structured content has the lines in its members `assumed` and `unseen`, which the output schema declares as
optional. An output that could not have them is wrapped as `{"result": output}`: one that is no object, one that has
members of these names, and one whose schema could refuse more members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, cast

from ideabridge.bridge.context.assumption import assumption_lines, unseen_lines
from ideabridge.bridge.runs.pins import calls_in
from ideabridge.bridge.runs.replay import tools_of
from ideabridge.bridge.store.idea import Publication
from ideabridge.server.answers import ToolAnswer, fitting_list, object_output
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import IDEA

_TITLES: Final = {
    "assumed": "assumed, because the runs that this tool was made from do not determine it:",
    "unseen": "new, not seen in the runs that this tool was made from:",
}

_DECLARED: Final[dict[str, JSONObject]] = {
    "assumed": {"description": "What was assumed, and what else it could be; absent if nothing was."},
    "unseen": {"description": "What no earlier run had; absent if there is nothing new."},
}

_LINES: Final[JSONObject] = {"type": "array", "items": {"type": "string"}}

_META_BYTES: Final = 32_000
"""Bytes of JSON of each of both lists in `_meta`."""

_EXTENSIBLE: Final = frozenset(
    {"type", "properties", "required", "additionalProperties", "minProperties", "title", "description", "default"}
    | {"examples", "deprecated", "$schema", "$id", "$comment", "$defs", "definitions"}
)
"""The keywords at the top of a schema that cannot refuse two more declared members."""


class Doubtful(Protocol):
    """What a run reports about its answer; see `Run`."""

    @property
    def assumed(self) -> Sequence[JSON]:
        """What was not determined."""
        ...

    @property
    def unseen(self) -> Sequence[JSON]:
        """What no earlier run had."""
        ...


def may_assume(publication: Publication) -> bool:
    """Return whether an answer of a publication can rest on assumptions: its plan has explained values or watches what
    it reads, or it can call an idea, whose assumptions become its own.
    """
    plan, guide = publication.plan or {}, publication.guide or {}
    modules = [one.get("_module") for one in calls_in(plan) if isinstance(one, dict)]
    modules += [module for module, _ in tools_of(guide)]
    named = any(isinstance(one, str) and one.startswith(IDEA) for one in modules)
    return publication.answer != "recorded" and (
        named or any(plan.get(key) for key in ("explained", "seen", "decisions"))
    )


def reporting_output(publication: Publication) -> tuple[JSONObject | None, bool]:
    """(the output schema of a publication for hosts, whether values are wrapped as `{"result": value}`)."""
    output, wrapped = object_output(publication.output_schema)
    if output is None or not may_assume(publication):
        return output, wrapped
    recorded = publication.recorded.get("output") if isinstance(publication.recorded, dict) else None
    if not wrapped and not _is_extensible(output, recorded):
        # Already an object, and the only member of another one.
        whole: JSONObject = {"type": "object", "properties": {"result": output}, "required": ["result"]}
        output, wrapped = {**whole, "additionalProperties": False}, True
    own = output.get("properties")
    properties: JSONObject = dict(own) if isinstance(own, dict) else {}
    # Other members of an open object have any type, also below these names.
    lines = _LINES if output.get("additionalProperties") is False else {}
    for name, one in _DECLARED.items():
        properties[name] = {**lines, **one}
    return {**output, "properties": properties}, wrapped


def _is_extensible(schema: JSONObject, recorded: JSON) -> bool:
    properties, required = schema.get("properties"), schema.get("required")
    used: list[JSON] = []
    for names in (properties, required, recorded):
        used += list(names) if isinstance(names, dict | list) else []
    return (
        schema.keys() <= _EXTENSIBLE
        and isinstance(schema.get("additionalProperties", True), bool)
        and not any(name in used for name in _DECLARED)
    )


def with_report(result: ToolAnswer, run: Doubtful) -> ToolAnswer:
    """Add what a run assumed, and what was new to it, to its result: to the text, the structured content (unless it is
    an error, which has another one) and `_meta`.
    """
    whole: dict[str, list[JSON]] = {"assumed": [*run.assumed], "unseen": [*run.unseen]}
    lines = {"assumed": assumption_lines(whole["assumed"]), "unseen": unseen_lines(whole["unseen"])}
    told = {name: found for name, found in lines.items() if found}
    if not told:
        return result
    text = "\n".join("\n".join([_TITLES[name], *(f"- {line}" for line in found)]) for name, found in told.items())
    changed: ToolAnswer = {**result, "content": [*result["content"], {"type": "text", "text": text}]}
    structured = result.get("structuredContent")
    if structured is not None and not result.get("isError"):
        changed["structuredContent"] = _with_members(structured, told)
    return {**changed, "_meta": {f"ideabridge/{name}": fitting_list(whole[name], _META_BYTES) for name in told}}


def _with_members(structured: Mapping[str, Any], told: Mapping[str, list[str]]) -> JSONObject:
    members = cast("JSONObject", dict(structured))
    for name, lines in told.items():
        # An open object may have a member of this name, which no run has shown before.
        while name in members:
            name = f"{name}_"
        members[name] = list[JSON](lines)
    return members
