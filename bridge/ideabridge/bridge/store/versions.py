"""Find the changes between two ideas, and report which of them break callers."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.explanations import as_it_runs
from ideabridge.bridge.context.references import is_reference
from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.bridge.store.idea import (
    NewPublication,
    Publication,
    StoredIdea,
    function_schemas,
    seen_type,
)
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    encode_text,
    list_or_empty,
    object_or_empty,
)
from ideabridge.tools.keywords import SchemaKeywords
from ideabridge.tools.reading import Solution
from ideabridge.tools.schema import inline_refs
from ideabridge.tools.typed import read_as

_WIDEST_VALUE: Final = 120
"""The maximum length, in characters, of a value in a line of `changes`."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two ideas that are compared."""

    description: str
    answer: str
    input_schema: JSONObject | None
    output_schema: JSONObject | None
    annotations: JSONObject
    solution: Solution
    recorded_output: JSON
    context: list[JSON]
    lifting: JSONObject
    """The data that lifting stores next to the calls: `explained` by place, `seen`, `watch`,
    `decisions`, `strict`, `fixed`.
    """

    @classmethod
    def of(cls, stored: StoredIdea, publication: Publication | None) -> Side:
        """Return the side for an idea and the publication that callers see."""
        solution = stored.idea.solution_parts
        plan = object_or_empty(stored.idea.solution)
        description = stored.meta.title
        answer = ""
        input_schema, output_schema = function_schemas(stored.idea)
        annotations: JSONObject = {}
        recorded_output: JSON = None
        if publication is not None:
            if publication.plan:
                solution = publication.plan_parts
                plan = publication.plan
            description = publication.description
            answer = publication.answer
            input_schema = publication.input_schema
            output_schema = publication.output_schema
            annotations = publication.annotations
            recorded_output = publication.recording.output

        return cls(
            description=description,
            answer=answer,
            input_schema=input_schema,
            output_schema=output_schema,
            annotations=annotations,
            solution=solution,
            recorded_output=recorded_output,
            context=list(stored.idea.context),
            lifting=_lifting_of(plan),
        )


def _lifting_of(plan: JSONObject) -> JSONObject:
    explained: JSONObject = {}
    for literal in list_or_empty(plan.get("explained")):
        members = dict(object_or_empty(literal))
        at = list_or_empty(members.pop("at", None))
        if at:
            path = ".".join(map(str, at))
            explained[path] = members

    lifting: JSONObject = {"explained": explained}
    for key in ("seen", "watch", "decisions", "strict", "fixed"):
        if key in plan:
            lifting[key] = plan[key]

    return lifting


def differences(old: NewPublication, new: NewPublication) -> list[str]:
    """Return one line, with complete values, for each change that callers of a name see when `new`
    replaces `old`.

    The lines cover the description, how calls are answered, the schemas, the plan or program, and
    the recording.
    """
    # For copied values, compare the values that would be sent.
    before = as_it_runs(old.plan or {})
    after = as_it_runs(new.plan or {})

    lines = list(_interface(old, new, None))
    old_plan = read_as(Solution, before)
    new_plan = read_as(Solution, after)
    lines += _calls(old_plan.calls, new_plan.calls, widest=None)
    lines += _program(old_plan, new_plan)
    for key in _keys_of(before, after):
        # The calls, the program and the pins have lines of their own, and callers do not see how a
        # plan was lifted.
        if key not in ("calls", "program", "lifting", "pins"):
            lines += _lines(f"plan.{key}", before.get(key), after.get(key), None)

    lines += _pins(before, after)
    lines += _pins(old.guide or {}, new.guide or {})
    lines += _lines("recorded", _without_pins(old.recorded), _without_pins(new.recorded), None)
    return lines


def _pins(old: JSONObject, new: JSONObject) -> Iterator[str]:
    """Yield the differences between the pinned tools of two plans or guides.

    Pins on only one side do not count, because an import adds pins to a document that has none.
    """
    if "pins" in old and "pins" in new:
        yield from _lines("tools", _pinned_in(old), _pinned_in(new), None)


def _pinned_in(plan: JSONObject) -> list[JSON]:
    """Return the pins without the digests of descriptions, because descriptions can differ between
    machines.
    """
    pinned: list[JSON] = []
    for pin in map(object_or_empty, list_or_empty(plan["pins"])):
        pinned.append({key: pin.get(key) for key in ("module", "tool", "digest")})

    return pinned


def _without_pins(recorded: JSON) -> JSON:
    """Return the recording without pins, and without the additions of a hand-written document."""
    if not isinstance(recorded, dict):
        return recorded

    recorded = dict(recorded)
    recorded.pop("written", None)
    guide = recorded.get("solve")
    if isinstance(guide, dict):
        guide = dict(guide)
        guide.pop("pins", None)
        recorded["solve"] = guide

    return recorded


def changes(old: Side, new: Side) -> list[str]:
    """Return one line for each difference between two ideas: in the schemas, the plan (including
    its constants and the explanations of copied values), the program and the context.
    """
    return [
        *_interface(old, new, _WIDEST_VALUE),
        *_calls(old.solution.calls, new.solution.calls),
        *_program(old.solution, new.solution),
        *_lines("output", old.solution.output, new.solution.output),
        *_lines("context", old.context, new.context),
        *_lines("plan", old.lifting, new.lifting),
    ]


def _interface(
    old: Side | NewPublication, new: Side | NewPublication, widest: int | None
) -> Iterator[str]:
    """Yield the differences that callers see before they call."""
    yield from _lines("description", old.description, new.description, widest)
    yield from _lines("answer", old.answer, new.answer, widest)
    yield from _lines("input", old.input_schema, new.input_schema, widest)
    yield from _lines("output schema", old.output_schema, new.output_schema, widest)
    yield from _lines("annotations", old.annotations, new.annotations, widest)


def breaking(old: Side, new: Side) -> list[str]:
    """Return the obvious changes that break callers of `old`: a new required parameter, a removed
    or retyped parameter or output field, answers for only one input, or effects where there were
    none before.

    Other changes of the schemas (limits, patterns, enumerations, alternatives) are reported only by
    `changes`.
    """
    lines = [f"input: {line}" for line in _breaking_input(old, new)]
    lines += [f"output: {line}" for line in _breaking_output(old, new)]
    if new.answer == "recorded" and old.answer not in ("", "recorded"):
        lines.append("answer: the tool answers only for the recorded input")

    was_read_only = old.annotations.get("readOnlyHint") is True
    is_read_only = new.annotations.get("readOnlyHint") is True
    if was_read_only and not is_read_only:
        lines.append("annotations: the tool is no longer read-only")

    return lines


def _breaking_input(old: Side, new: Side) -> Iterator[str]:
    before = inline_refs(old.input_schema or {})
    after = inline_refs(new.input_schema or {})
    yield from _required(before, after)
    yield from _removed_or_retyped(before, after, is_input=True)


def _breaking_output(old: Side, new: Side) -> Iterator[str]:
    if old.output_schema is not None and new.output_schema is None:
        yield "it no longer has a schema"
        return

    old_schema = old.output_schema or _shape(old.solution.output, old.recorded_output)
    new_schema = new.output_schema or _shape(new.solution.output, new.recorded_output)
    before = inline_refs(old_schema)
    after = inline_refs(new_schema)
    yield from _removed_or_retyped(before, after, is_input=False)


def _required(old: JSONObject, new: JSONObject) -> Iterator[str]:
    """Yield a line for each parameter that only `new` requires."""
    before = read_as(SchemaKeywords, old)
    for name in read_as(SchemaKeywords, new).required:
        if name not in before.required:
            yield f"{name} is now required"


def _removed_or_retyped(old: JSON, new: JSON, path: str = "", *, is_input: bool) -> Iterator[str]:
    """Yield a line for each member of an object, at any depth, that `new` removes or retypes.

    An input may become wider, and an output narrower.
    """
    if not isinstance(old, dict) or not isinstance(new, dict):
        return

    before = _types(old)
    after = _types(new)
    if is_input:
        is_compatible = _admits(after, before)
    else:
        is_compatible = _admits(before, after)

    # A schema that names no types allows all of them, and only `changes` reports that.
    if before and after and not is_compatible:
        old_types = " or ".join(sorted(before))
        new_types = " or ".join(sorted(after))
        place = f"{path}: " if path else ""
        yield f"{place}was {old_types}, is {new_types}"
        return

    new_members = read_as(SchemaKeywords, new).properties
    for name, schema in read_as(SchemaKeywords, old).properties.items():
        place = _below(path, name)
        if name not in new_members:
            yield f"{place} was removed"
            continue

        member = new_members[name]
        yield from _removed_or_retyped(schema, member, place, is_input=is_input)

    items = _below(path, "items")
    yield from _removed_or_retyped(old.get("items"), new.get("items"), items, is_input=is_input)


def _below(path: str, name: str) -> str:
    if not path:
        return name
    return f"{path}.{name}"


def _admits(wider: frozenset[str], narrower: frozenset[str]) -> bool:
    """Return whether every value of one of the types in `narrower` also has one of the types in
    `wider`.
    """
    if "number" in wider:
        # Every integer is a number.
        wider |= {"integer"}
    return narrower <= wider


def _types(schema: JSON) -> frozenset[str]:
    """Return the types that a schema and its alternatives allow, or an empty set if every type is
    allowed.
    """
    keywords = read_as(SchemaKeywords, schema)
    if keywords.types:
        return frozenset(keywords.types)

    alternatives = [_types(alternative) for alternative in keywords.any_of]
    if not all(alternatives):
        # One of the alternatives allows any type.
        return frozenset()
    return frozenset[str]().union(*alternatives)


def _shape(output: JSON, recorded: JSON) -> JSONObject:
    """Return a schema for an output without a declared schema: its literal structure, with
    references replaced by the types of the recorded values. Nulls have no type.
    """
    if isinstance(output, dict):
        values = object_or_empty(recorded)
        properties: JSONObject = {}
        for name, part in output.items():
            properties[name] = _shape(part, values.get(name))
        return {"type": "object", "properties": properties}

    if output is None and isinstance(recorded, dict):
        # The output is the state, whose members are the paths that the calls write to.
        properties = {name: seen_type(value) for name, value in recorded.items()}
        return {"type": "object", "properties": properties}

    if output is None or (isinstance(output, str) and is_reference(output)):
        # Only the recording shows which value the run puts here.
        return seen_type(recorded)
    return seen_type(output)


def _program(old: Solution, new: Solution) -> Iterator[str]:
    """Yield the lines that occur in only one of two programs."""
    before = (old.program or "").splitlines()
    after = (new.program or "").splitlines()
    for line in difflib.unified_diff(before, after, n=0, lineterm=""):
        is_header = line.rstrip() in ("+++", "---")
        if line[:1] in ("+", "-") and not is_header:
            yield f"{line[0]} program: {line[1:]}"


def _calls(old: list[JSON], new: list[JSON], widest: int | None = _WIDEST_VALUE) -> Iterator[str]:
    """Yield the differences between two lists of calls, aligned by tool so that an inserted call
    takes up only one line.
    """
    old_keys = [_key(call) for call in old]
    new_keys = [_key(call) for call in new]
    matcher = difflib.SequenceMatcher(None, old_keys, new_keys, autojunk=False)
    for change, start, end, new_start, new_end in matcher.get_opcodes():
        if change == "equal":
            # The calls name the same tools, so their parameters are compared.
            for place in range(new_start, new_end):
                call = new[place]
                before = old[start + place - new_start]
                yield from _lines(f"calls.{place} ({_name(call)})", before, call, widest)
            continue

        for place in range(start, end):
            yield f"- calls.{place}: {_clipped(old[place], widest)}"
        for place in range(new_start, new_end):
            yield f"+ calls.{place}: {_clipped(new[place], widest)}"


def _key(call: JSON) -> str:
    written = WrittenCall.of(call)
    if not written.tool:
        return encode_text(call)
    return f"{written.module} {written.tool}"


def _name(call: JSON) -> str:
    return WrittenCall.of(call).tool or "?"


def _lines(path: str, old: JSON, new: JSON, widest: int | None = _WIDEST_VALUE) -> Iterator[str]:
    """Yield the differences between two values, each with its path.

    Null counts as no value. Values longer than `widest` characters are truncated.
    """
    if old is None:
        if new is not None:
            yield f"+ {path}: {_clipped(new, widest)}"
    elif new is None:
        yield f"- {path}: {_clipped(old, widest)}"
    elif isinstance(old, dict) and isinstance(new, dict):
        for key in _keys_of(old, new):
            yield from _lines(f"{path}.{key}", old.get(key), new.get(key), widest)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _lines(f"{path}.{place}", before, after, widest)
    elif encode_text(old) != encode_text(new):
        yield f"~ {path}: {_clipped(old, widest)} -> {_clipped(new, widest)}"


def _keys_of(old: JSONObject, new: JSONObject) -> list[str]:
    """Return the keys of two objects, without duplicates."""
    return list(dict.fromkeys((*old, *new)))


def _clipped(value: JSON, widest: int | None) -> str:
    text = encode_text(value)
    if widest is None or len(text) <= widest:
        return text
    return f"{text[:widest]}... ({len(text):,} characters)"
