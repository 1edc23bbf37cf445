"""Versions: what changed between two ideas, and which of the changes break a caller."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.explanations import as_it_runs
from ideabridge.bridge.context.references import is_reference
from ideabridge.bridge.context.state import MISSING, Missing
from ideabridge.bridge.store.idea import (
    NewPublication,
    Publication,
    StoredIdea,
    function_schemas,
    seen_type,
)
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.schema import inline_refs

_WIDEST: Final = 120


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two ideas that are compared."""

    description: str
    answer: str
    input_schema: JSONObject | None
    output_schema: JSONObject | None
    annotations: JSONObject
    calls: list[JSON]
    program: str
    output: JSON
    given: JSON
    context: list[JSON]
    lifted: JSONObject
    """What lifting keeps beside the calls: `explained` by place, `seen`, `watch`, `decisions`,
    `strict`, `fixed`."""

    @classmethod
    def of(cls, stored: StoredIdea, publication: Publication | None) -> Side:
        """An idea, with the publication under which callers see it."""
        if publication is not None and publication.plan:
            solution: JSON = publication.plan
        else:
            solution = stored.idea.solution

        body = solution if isinstance(solution, dict) else {}
        calls = body.get("calls")
        recorded = publication.recorded if publication is not None else None
        taken, given = function_schemas(stored.idea)
        if publication is not None:
            taken = publication.input_schema
            given = publication.output_schema

        return cls(
            description=publication.description if publication is not None else stored.meta.title,
            answer=publication.answer if publication is not None else "",
            input_schema=taken,
            output_schema=given,
            annotations=publication.annotations if publication is not None else {},
            calls=calls if isinstance(calls, list) else [],
            program=str(body.get("program") or ""),
            output=body.get("output"),
            given=recorded.get("output") if isinstance(recorded, dict) else None,
            context=list(stored.idea.context),
            lifted=_lifted(body),
        )


def _lifted(plan: JSONObject) -> JSONObject:
    found: JSONObject = {
        key: plan[key] for key in ("seen", "watch", "decisions", "strict", "fixed") if key in plan
    }
    listed = plan.get("explained")
    by_place: JSONObject = {}
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict) and isinstance(at := one.get("at"), list):
            by_place[".".join(map(str, at))] = {
                key: value for key, value in one.items() if key != "at"
            }

    return {"explained": by_place, **found}


def differences(old: NewPublication, new: NewPublication) -> list[str]:
    """The differences for callers of a name when `new` replaces `old`, one line each, with whole
    values: description, way of answering, schemas, plan or program, recording.
    """
    lines = [*_interface(old, new, None)]
    # With what would be sent in the place of copied values.
    before, after = as_it_runs(old.plan or {}), as_it_runs(new.plan or {})
    calls = [one.get("calls") for one in (before, after)]
    lines += _calls(*(one if isinstance(one, list) else [] for one in calls), widest=None)
    lines += _program(*(str(one.get("program") or "") for one in (before, after)))
    for key in dict.fromkeys((*before, *after)):
        if key not in ("calls", "program", "lifting", "pins"):
            lines += _lines(f"plan.{key}", before.get(key), after.get(key), None)

    guides = old.guide or {}, new.guide or {}
    for one, other in (
        (before.get("pins"), after.get("pins")),
        (guides[0].get("pins"), guides[1].get("pins")),
    ):
        if isinstance(one, list) and isinstance(other, list):
            # A document without pins is pinned on import. Descriptions of a tool may differ
            # between machines.
            lines += _lines(
                "tools", [_tool_of(pin) for pin in one], [_tool_of(pin) for pin in other], None
            )

    return [
        *lines,
        *_lines("recorded", _without_pins(old.recorded), _without_pins(new.recorded), None),
    ]


def _tool_of(pin: JSON) -> JSON:
    if isinstance(pin, dict):
        return {key: pin.get(key) for key in ("module", "tool", "digest")}
    return pin


def _without_pins(recorded: JSON) -> JSON:
    """What is recorded, without pins, and without the members of the document that it
    was written as.
    """
    if not isinstance(recorded, dict):
        return recorded

    recorded = {key: value for key, value in recorded.items() if key != "written"}
    guide = recorded.get("solve")
    if not isinstance(guide, dict):
        return recorded
    return {**recorded, "solve": {key: value for key, value in guide.items() if key != "pins"}}


def changes(old: Side, new: Side) -> list[str]:
    """The differences of two ideas, one line each: schemas, plan with its constants and the
    explanations of copied values, program, context.
    """
    return [
        *_interface(old, new, _WIDEST),
        *_calls(old.calls, new.calls),
        *_program(old.program, new.program),
        *_lines("output", old.output, new.output),
        *_lines("context", old.context, new.context),
        *_lines("plan", old.lifted, new.lifted),
    ]


def _interface(
    old: Side | NewPublication, new: Side | NewPublication, widest: int | None
) -> Iterator[str]:
    """The differences that a caller sees before calling."""
    yield from _lines("description", old.description, new.description, widest)
    yield from _lines("answer", old.answer, new.answer, widest)
    yield from _lines("input", old.input_schema, new.input_schema, widest)
    yield from _lines("output schema", old.output_schema, new.output_schema, widest)
    yield from _lines("annotations", old.annotations, new.annotations, widest)


def breaking(old: Side, new: Side) -> list[str]:
    """The plain changes that break callers of `old`: a new required parameter, a removed or
    retyped parameter or field of the output, an answer for only one input, effects of what was
    read-only. Other changes of the schemas (bounds, patterns, enumerations, alternatives) are
    only in `changes`.
    """
    before = inline_refs(old.input_schema or {})
    after = inline_refs(new.input_schema or {})
    found = [
        f"input: {line}"
        for line in [*_required(before, after), *_removed_or_retyped(before, after, is_input=True)]
    ]
    if old.output_schema is not None and new.output_schema is None:
        found.append("output: it has no schema any more")
    else:
        before = inline_refs(old.output_schema or _shape(old.output, old.given))
        after = inline_refs(new.output_schema or _shape(new.output, new.given))
        found += [f"output: {line}" for line in _removed_or_retyped(before, after, is_input=False)]

    if new.answer == "recorded" and old.answer not in ("", "recorded"):
        found.append("answer: it answers for one input only, the recorded one")

    if (
        old.annotations.get("readOnlyHint") is True
        and new.annotations.get("readOnlyHint") is not True
    ):
        found.append("annotations: it only read, and does not any more")

    return found


def _required(old: JSONObject, new: JSONObject) -> Iterator[str]:
    """A line for each parameter that only `new` requires."""
    before = old.get("required")
    after = new.get("required")
    for name in after if isinstance(after, list) else []:
        if not isinstance(before, list) or name not in before:
            yield f"{name}: is required now"


def _removed_or_retyped(old: JSON, new: JSON, path: str = "", *, is_input: bool) -> Iterator[str]:
    """A line for each member of an object, at any depth, that `new` removes or retypes. The type of
    an input may become wider, and that of an output narrower.
    """
    if not isinstance(old, dict) or not isinstance(new, dict):
        return

    before = _types(old)
    after = _types(new)
    taken, given = (after, before) if is_input else (before, after)
    if before and after and given - (taken | {"integer"} if "number" in taken else taken):
        where = f"{path}: " if path else ""
        yield f"{where}was {' or '.join(sorted(before))}, is {' or '.join(sorted(after))}"
        return

    members = old.get("properties")
    kept = new.get("properties")
    for name, schema in members.items() if isinstance(members, dict) else ():
        where = f"{path}.{name}" if path else name
        if not isinstance(kept, dict) or name not in kept:
            yield f"{where}: is removed"
        else:
            yield from _removed_or_retyped(schema, kept[name], where, is_input=is_input)

    items = f"{path}.items" if path else "items"
    yield from _removed_or_retyped(old.get("items"), new.get("items"), items, is_input=is_input)


def _types(schema: JSON) -> frozenset[str]:
    """The types that a schema and its alternatives name; empty if it does not restrict them."""
    if not isinstance(schema, dict):
        return frozenset()

    said, ways = schema.get("type"), schema.get("anyOf")
    if isinstance(said, str):
        return frozenset({said})
    if isinstance(said, list):
        return frozenset(str(one) for one in said)

    each = [_types(one) for one in ways] if isinstance(ways, list) else []
    return frozenset[str]().union(*each) if all(each) else frozenset()


def _shape(output: JSON, given: JSON) -> JSONObject:
    """The schema of an output that declares none: its literal structure, with the types of recorded
    values in the place of references. A null has no type.
    """
    if isinstance(output, dict):
        recorded = given if isinstance(given, dict) else {}
        return {
            "type": "object",
            "properties": {name: _shape(part, recorded.get(name)) for name, part in output.items()},
        }

    if output is None and isinstance(given, dict):
        # The state: its members are where the calls write.
        return {
            "type": "object",
            "properties": {name: seen_type(part) for name, part in given.items()},
        }

    refers = output is None or (isinstance(output, str) and is_reference(output))
    return seen_type(given if refers else output)


def _program(old: str, new: str) -> Iterator[str]:
    """The lines that only one of two programs has."""
    for line in difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm=""):
        if line[:1] in ("+", "-") and line.rstrip() not in ("+++", "---"):
            yield f"{line[0]} program: {line[1:]}"


def _calls(old: list[JSON], new: list[JSON], widest: int | None = _WIDEST) -> Iterator[str]:
    """The differences of two lists of calls, aligned by tool, so that an inserted
    call is one line.
    """
    matcher = difflib.SequenceMatcher(
        None, [_key(one) for one in old], [_key(one) for one in new], autojunk=False
    )
    for what, start, end, start_new, end_new in matcher.get_opcodes():
        if what == "equal":
            for number in range(end - start):
                place = start_new + number
                yield from _lines(
                    f"calls.{place} ({_name(new[place])})", old[start + number], new[place], widest
                )
            continue
        for place in range(start, end):
            yield f"- calls.{place}: {_shown(old[place], widest)}"
        for place in range(start_new, end_new):
            yield f"+ calls.{place}: {_shown(new[place], widest)}"


def _key(call: JSON) -> str:
    if not isinstance(call, dict):
        return encode_text(call)
    return f"{call.get('_module')} {call.get('_tool')}"


def _name(call: JSON) -> str:
    return str(call.get("_tool")) if isinstance(call, dict) else "?"


def _lines(
    path: str, old: JSON | Missing, new: JSON | Missing, widest: int | None = _WIDEST
) -> Iterator[str]:
    """The differences of two values, each with its path. Values of more than `widest`
    characters are cut.
    """
    if isinstance(old, Missing) or old is None:
        if not (isinstance(new, Missing) or new is None):
            yield f"+ {path}: {_shown(new, widest)}"
    elif isinstance(new, Missing) or new is None:
        yield f"- {path}: {_shown(old, widest)}"
    elif isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            yield from _lines(f"{path}.{key}", old.get(key, MISSING), new.get(key, MISSING), widest)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _lines(f"{path}.{place}", before, after, widest)
    elif encode_text(old) != encode_text(new):
        yield f"~ {path}: {_shown(old, widest)} -> {_shown(new, widest)}"


def _shown(value: JSON, widest: int | None) -> str:
    text = encode_text(value)
    if widest is None or len(text) <= widest:
        return text
    return f"{text[:widest]}... ({len(text):,} characters)"
