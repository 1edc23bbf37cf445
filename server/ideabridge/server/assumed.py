"""Report the assumptions behind the answer of a published idea.

Hosts show a model the text of a result, its structured content, or both. So both contain the
assumptions, as lines of at most `TEXT_BYTES` in total. `_meta` contains them in full, together with
the notes, which appear nowhere else. An answer without assumptions and notes is not changed.

In the structured content, the lines are in the member `assumed`, which the output schema declares
as optional. This member cannot be added if the output is not an object, already has a member with
this name, or has a schema that might not allow another member. In that case, the output is wrapped
as `{"result": output}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from ideabridge.bridge.context.assumption import assumption_lines
from ideabridge.bridge.context.written_call import written_calls
from ideabridge.bridge.store.idea import Publication
from ideabridge.server.answers import ToolAnswer, fitting_list, object_output
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.keywords import SchemaKeywords
from ideabridge.tools.tool import is_idea
from ideabridge.tools.typed import read_as

_MEMBER: Final = "assumed"

_TITLE: Final = "assumed, because the runs that this tool was made from do not determine it:"

_DECLARED: Final[JSONObject] = {
    "description": "What was assumed, and what else it could be. Absent if nothing was assumed.",
}

_LINES: Final[JSONObject] = {"type": "array", "items": {"type": "string"}}

_META_BYTES: Final = 32_000
"""Limit, in bytes of JSON, on the assumptions in `_meta`. The same limit applies separately to the
notes."""

_EXTENSIBLE: Final = frozenset(
    {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "minProperties",
        "title",
        "description",
        "default",
    }
    | {"examples", "deprecated", "$schema", "$id", "$comment", "$defs", "definitions"}
)
"""Top-level schema keywords that cannot reject another declared member."""


def may_assume(publication: Publication) -> bool:
    """Return whether the answers of a publication can rest on assumptions.

    They can if the plan has followed values or watches what it reads, if the program has recorded
    defaults, or if an idea can be called, whose assumptions are inherited.
    """
    plan = publication.plan_parts
    modules = [call.module for call in written_calls(plan.calls)]
    modules += [module for module, _ in publication.guide_parts.origins]
    if publication.answer == "recorded":
        return False
    if any(is_idea(module) for module in modules):
        return True
    return bool(plan.explained or plan.seen or plan.decisions or plan.recorded_defaults)


def reporting_output(publication: Publication) -> tuple[JSONObject | None, bool]:
    """Return the output schema of a publication for hosts, and whether values are wrapped as
    `{"result": value}`.
    """
    output, wrapped = object_output(publication.output_schema)
    if output is None or not may_assume(publication):
        return output, wrapped

    if not wrapped and not _is_extensible(output, publication.recording.output):
        # This object cannot have the member, so make it the `result` of another object that can.
        whole: JSONObject = {
            "type": "object",
            "properties": {"result": output},
            "required": ["result"],
        }
        output = {**whole, "additionalProperties": False}
        wrapped = True

    properties = dict(read_as(SchemaKeywords, output).properties)
    # An open object can already have a member with this name, and of any type.
    lines = _LINES if output.get("additionalProperties") is False else {}
    properties[_MEMBER] = {**lines, **_DECLARED}
    return {**output, "properties": properties}, wrapped


def _is_extensible(schema: JSONObject, recorded: JSON) -> bool:
    keywords = read_as(SchemaKeywords, schema)
    names_used = (*keywords.properties, *keywords.required, *object_or_empty(recorded))
    return (
        schema.keys() <= _EXTENSIBLE
        and isinstance(schema.get("additionalProperties", True), bool)
        and _MEMBER not in names_used
    )


def with_report(
    result: ToolAnswer,
    *,
    assumed: Sequence[JSON],
    approved: Sequence[JSON],
    noted: Sequence[JSON],
    declared: bool = True,
) -> ToolAnswer:
    """Add the assumptions of a run to its result, including those that someone approved.

    The assumptions are added to the text, to `_meta` and to the structured content, except for the
    structured content of an error, which has its own form. The notes are added only to `_meta`.

    Args:
        result: the result.
        assumed: the assumptions that might make the answer wrong.
        approved: those that might make the answer wrong, but that a person has approved.
        noted: the uncertainties that hardly ever make the answer wrong.
        declared: whether the output schema declares the member. If not, the structured content is
            not changed.
    """
    meta: dict[str, Any] = {
        f"ideabridge/{name}": fitting_list([*listed], _META_BYTES)
        for name, listed in (
            ("assumed", assumed),
            ("approved", approved),
            ("notes", noted),
        )
        if listed
    }
    if not meta:
        return result

    changed: ToolAnswer = {**result, "_meta": meta}
    lines = assumption_lines([*assumed, *approved])
    if lines:
        text = "\n".join([_TITLE, *(f"- {line}" for line in lines)])
        changed["content"] = [*result["content"], {"type": "text", "text": text}]
        structured = result.get("structuredContent")
        if declared and structured is not None and not result.get("isError"):
            changed["structuredContent"] = _with_member(structured, lines)

    return changed


def _with_member(structured: Mapping[str, Any], lines: list[str]) -> JSONObject:
    members = cast("JSONObject", dict(structured))
    name = _MEMBER
    # An open object can already have a member with this name, even if earlier runs did not return
    # it.
    while name in members:
        name = f"{name}_"
    members[name] = list[JSON](lines)
    return members
