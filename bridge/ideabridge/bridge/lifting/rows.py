"""The table that describes a tool to people. For each parameter, it shows an example, and the value
that is used if the caller omits the parameter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from ideabridge.bridge.context.copied import DECISION
from ideabridge.bridge.context.explanations import (
    CUT,
    NOTED,
    Constant,
    Explained,
    Explanation,
    PathTo,
)
from ideabridge.bridge.context.references import DAGGER
from ideabridge.bridge.context.state import Missing, read
from ideabridge.bridge.context.written_call import written_calls
from ideabridge.bridge.lifting.evidence import explained_in
from ideabridge.bridge.store.idea import Publication
from ideabridge.tools.encoding import JSON, JSONObject, encode_text, object_or_empty
from ideabridge.tools.keywords import SchemaKeywords
from ideabridge.tools.names import joined
from ideabridge.tools.reading import Solution
from ideabridge.tools.typed import read_as

REQUIRED: Final = "required"
OPTIONAL: Final = "may be left out"
SAME: Final = "always the same"

_SHOWN_CHARACTERS: Final = 200
"""The maximum length, in characters, of an example."""

_MOST_SOURCES: Final = 5
"""The maximum number of sources named in a note about the kinds of values."""

_MOST_OTHERS: Final = 2
"""The maximum number of alternative explanations named in a row."""

_REFERENCE: Final = re.compile(rf"{DAGGER}(input|state|results)((?:\.[^\s.,;|&]+)*)")


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A parameter of a tool, or a value that cannot be passed.

    Attributes:
        name: the name of the parameter, or the path of the value in the plan: `calls.1.owner`,
            `output.title`.
        example: the recorded value as JSON, or "" if no value was recorded.
        otherwise: what happens if the caller omits the parameter: `required`, `may be left out`,
            `always the same`, `taken from ...`.
        is_parameter: False if the value cannot be passed.
        is_certain: False if the value might be wrong for other data.
        description: the description of the parameter.
    """

    name: str
    example: str
    otherwise: str
    is_parameter: bool = True
    is_certain: bool = True
    description: str = ""

    def to_json(self) -> JSONObject:
        """Return the attributes, keyed by name."""
        return asdict(self)


def rows_of(
    schema: JSONObject, arguments: JSONObject, explained: Sequence[Explained], plan: JSONObject
) -> list[ReportRow]:
    """Return the table of a plan: first its parameters, then the values that cannot be passed.

    Args:
        schema: the JSON Schema of the input.
        arguments: the input for which the plan repeats its run.
        explained: the literals that have several possible explanations.
        plan: the plan's calls and output.
    """
    tools = _tools_of(read_as(Solution, plan).calls)
    others: dict[str, list[Explanation]] = {}
    reasons: dict[str, str] = {}
    values: list[ReportRow] = []
    for literal in explained:
        name = _parameter_of(literal)
        if name is None:
            values.append(_value_row(literal, tools, plan))
            continue

        others.setdefault(name, []).extend(
            other for other in literal.by[1:] if not isinstance(other, Constant)
        )
        if literal.why is not None:
            reasons.setdefault(name, literal.why)

    rows: list[ReportRow] = []
    for row in parameter_rows(schema, arguments):
        doubt = _because(reasons.get(row.name)) + _or_from(others.get(row.name, []), tools)
        if doubt and row.otherwise != REQUIRED:
            row = replace(row, otherwise=row.otherwise + doubt, is_certain=False)
        rows.append(row)

    return [*rows, *values]


def publication_rows(publication: Publication) -> list[ReportRow]:
    """Return the table of a published tool, based on its current evidence."""
    plan = publication.present_plan or {}
    arguments = publication.recording.input or {}
    explained = explained_in(publication.present_plan_parts.explained)
    return rows_of(publication.input_schema or {}, arguments, explained, plan)


def publication_notes(publication: Publication) -> list[str]:
    """Return the notes on a published plan, one line each.

    They list uncertainties that rarely make an answer wrong: limits that the search reached, keys
    that might be data, calls that might have been decisions, and sources whose kind of value is
    checked.
    """
    plan = publication.present_plan_parts
    notes: list[str] = []
    for literal in explained_in(plan.explained):
        at = ".".join(literal.at)
        if literal.cut:
            notes.append(f"{at}: {CUT}")
        if literal.why in NOTED:
            notes.append(f"{at}: {literal.why}")

    tools = _tools_of(plan.calls)
    for place in plan.decisions:
        if place < len(tools):
            notes.append(f"calls.{place} ({tools[place]}): {DECISION}")

    sources = [source_in_words(reference, tools) for reference in plan.seen]
    if sources:
        notes.append(f"a value of another kind than before, in {joined(sources, _MOST_SOURCES)}")

    return notes


def parameter_rows(schema: JSONObject, arguments: JSONObject) -> list[ReportRow]:
    """Return a row for each parameter, required parameters first.

    Args:
        schema: the JSON Schema of the input.
        arguments: an input, for the examples.
    """
    takes = read_as(SchemaKeywords, schema)
    rows: list[ReportRow] = []
    for name, raw in takes.properties.items():
        declared = object_or_empty(raw)
        example = ""
        if name in arguments:
            example = shortened(encode_text(arguments[name]), _SHOWN_CHARACTERS)

        otherwise = OPTIONAL
        if name in takes.required:
            otherwise = REQUIRED
        elif "default" in declared:
            otherwise = SAME
            example = shortened(encode_text(declared["default"]), _SHOWN_CHARACTERS)

        description = read_as(SchemaKeywords, declared).description or ""
        rows.append(ReportRow(name, example, otherwise, description=description))

    rows.sort(key=lambda row: row.otherwise != REQUIRED)
    return rows


def _parameter_of(literal: Explained) -> str | None:
    """Return the parameter that fills a literal, even if there are other explanations, or None if
    no parameter does.
    """
    match literal.by[0]:
        case PathTo(path=("input", name)):
            return name
        case _:
            return None


def _value_row(literal: Explained, tools: Sequence[str], plan: JSONObject) -> ReportRow:
    recorded = read(plan, literal.at)
    example = ""
    if not isinstance(recorded, Missing):
        example = shortened(encode_text(recorded), _SHOWN_CHARACTERS)

    is_certain = len(literal.by) == 1 and literal.why is None and not literal.cut
    return ReportRow(".".join(literal.at), example, taken_from(literal, tools), False, is_certain)


def taken_from(literal: Explained, tools: Sequence[str]) -> str:
    """Return a phrase that says where a copied value comes from when the data is different, and
    what else might explain it.

    Args:
        literal: the value with its explanations.
        tools: the tools of the calls, by place.
    """
    cheapest, *others = literal.by
    text = SAME
    if not isinstance(cheapest, Constant):
        text = f"taken from {source_in_words(cheapest.shown, tools)}"
    return text + _because(literal.why) + _or_from(others, tools)


def _because(why: str | None) -> str:
    return "" if why is None else f" ({why})"


def _or_from(others: Sequence[Explanation], tools: Sequence[str]) -> str:
    """Return a phrase with the other possible explanations for a value, such as `; or from owner of
    result 0 (get_issue); or the same`.
    """
    text = ""
    for other in others[:_MOST_OTHERS]:
        if isinstance(other, Constant):
            text += "; or the same"
        else:
            text += f"; or from {source_in_words(other.shown, tools)}"

    if len(others) > _MOST_OTHERS:
        text += f"; or {len(others) - _MOST_OTHERS} more"
    return text


def source_in_words(shown: str, tools: Sequence[str]) -> str:
    """Return a phrase that says where a value comes from, such as `owner of result 1 (get_issue)`
    for `†results.1.owner`.

    Args:
        shown: see `Explanation.shown`.
        tools: the tools of the calls, by place.
    """

    def in_words(match: re.Match[str]) -> str:
        kind = match[1]
        keys = match[2].split(".")[1:]
        if kind != "results":
            return f"{kind} {'.'.join(keys)}".rstrip()

        place = keys.pop(0) if keys else ""
        if keys[:1] == ["result"]:
            # Leave out the member `result`, because servers only use it to wrap a result that is
            # not an object.
            keys.pop(0)

        result = f"result {place}"
        if place.isdecimal() and int(place) < len(tools):
            result += f" ({tools[int(place)]})"

        return f"{'.'.join(keys)} of {result}" if keys else result

    return _REFERENCE.sub(in_words, shown)


def _tools_of(calls: list[JSON]) -> list[str]:
    return [call.tool for call in written_calls(calls)]


def shortened(text: str, most: int) -> str:
    """Return a string, truncated to at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
