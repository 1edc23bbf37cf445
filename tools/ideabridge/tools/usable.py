"""Convert a server's schema to one that values can be checked against.

A valid schema is used unchanged. Any other schema is repaired (`repair`). A schema that is too
large, too deep or too slow is reduced to the names and types of its properties, or to the schema of
any object. The tool remains callable: ideabridge checks what it can, and the server checks the
rest.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

import orjson

from ideabridge.tools.encoding import JSON, JSONObject, encode, normalise, object_or_empty
from ideabridge.tools.errors import IdeabridgeError, LimitExceededError
from ideabridge.tools.keywords import (
    ANNOTATIONS,
    SchemaKeywords,
    json_schema_draft,
    map_schemas,
    show,
)
from ideabridge.tools.repair import DRAFT_3, DRAFT_4, DRAFT_6, DRAFT_7, DRAFT_2019, Repair
from ideabridge.tools.schema import check_schema
from ideabridge.tools.typed import read_as

MAX_SCHEMA_BYTES: Final = 256 * 1024
"""Maximum size, in bytes of JSON, of a schema that is used in full."""

MAX_REPAIRED_BYTES: Final = 4 * 1024 * 1024
"""Maximum size, in bytes of JSON, of a schema that is repaired. A larger schema is replaced by one
that accepts any object.
"""

_OLD_FORMS: Final = (
    *(b'"dependencies":', b'"additionalItems":', b'"divisibleBy":', b'"extends":', b'"disallow":'),
    b'"enum":[]',
)
_REFERENCE: Final = b'"$ref":'
_ONLY_REFERENCE: Final = re.compile(rb'\{"\$ref":"[^"\\]*"\}')


@dataclass(frozen=True, slots=True)
class UsableSchema:
    """A schema to check values against, and the original schema that it was derived from.

    Attributes:
        schema: a valid schema within the limits.
        sent: the value that the server sent, if it differs from `schema`, or `{"sha256": ...}` if
            that value is too large or not JSON.
        was_valid: whether the value that the server sent is a valid schema.
        notes: the parts of the original schema that were ignored or reinterpreted, with their
            locations.
    """

    schema: JSONObject
    sent: JSON = None
    was_valid: bool = True
    notes: tuple[str, ...] = ()

    @property
    def is_as_sent(self) -> bool:
        """True if `schema` is exactly what the server sent."""
        return self.was_valid and self.sent is None


def usable_schema(
    sent: JSON, *, what: str, of_object: bool, may_repair: bool = True
) -> UsableSchema:
    """Return the schema to check values against, given the schema that a server sent.

    Args:
        sent: any value, even one that is not JSON.
        what: the name of the schema in messages, such as "input schema".
        of_object: whether it is the schema of an object, such as the parameters of a tool.
        may_repair: whether to repair the schema. If False, a schema that cannot be used unchanged
            is replaced with a schema that accepts any value.
    """
    if of_object and isinstance(sent, dict) and "type" not in sent:
        # The protocol requires a tool's parameters to be an object.
        sent = {"type": "object", **sent}

    valid, data = _valid(sent, what, of_object)
    if valid is not None and not _may_change(valid, data, of_object):
        return UsableSchema(valid)

    if may_repair:
        schema, notes = _repaired(sent, what, of_object)
    else:
        schema = _any(of_object)
        notes = ["not checked: too much of this list has to be repaired"]

    if valid is None:
        return UsableSchema(
            schema or _any(of_object), _bounded(sent), was_valid=False, notes=tuple(notes)
        )

    if schema is None:
        return UsableSchema(valid)
    return UsableSchema(schema, valid, notes=tuple(notes))


def _any(of_object: bool) -> JSONObject:
    return {"type": "object"} if of_object else {}


def _valid(sent: JSON, what: str, of_object: bool) -> tuple[JSONObject | None, bytes]:
    """Return a normalised copy of a schema and its JSON, or `(None, b"")` if it is not a valid
    schema or exceeds the limits.
    """
    if not isinstance(sent, dict):
        return None, b""

    try:
        schema = cast("JSONObject", normalise(sent, what=what))
        data = encode(schema)
        if len(data) > MAX_SCHEMA_BYTES or (of_object and schema.get("type") != "object"):
            return None, b""
        check_schema(schema, what=what)
    except IdeabridgeError:
        return None, b""

    return schema, data


def _may_change(schema: JSONObject, data: bytes, of_object: bool) -> bool:
    """Return whether a repair might change a valid schema. Return False only if the schema
    certainly uses no forms from older drafts and accepts at least one value.
    """
    if of_object and _refused_names(schema):
        return True

    draft = json_schema_draft(schema) if "$schema" in schema else ""
    if draft in (DRAFT_3, DRAFT_4) or any(form in data for form in _OLD_FORMS):
        return True
    if draft not in (DRAFT_6, DRAFT_7, DRAFT_2019):
        return False
    # In these drafts, only `items` with a list and keywords beside a `$ref` mean something
    # different.
    if b'"items":[' in data or b'"$recursiveRef":' in data:
        return True
    return data.count(_REFERENCE) > len(_ONLY_REFERENCE.findall(data))


def _refused_names(schema: JSONObject) -> list[str]:
    """Return the names that a closed object requires but does not allow."""
    is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    if not is_closed:
        return []

    keywords = read_as(SchemaKeywords, schema)
    return [name for name in keywords.required if name not in keywords.properties]


def _repaired(sent: JSON, what: str, of_object: bool) -> tuple[JSONObject | None, list[str]]:
    """Return the repaired schema and the notes. The schema is None if the repair changed
    nothing.
    """
    if json_size(sent) > MAX_REPAIRED_BYTES:
        return _any(of_object), [f"more than {MAX_REPAIRED_BYTES:,} bytes: not checked"]

    try:
        repair = Repair(sent)
    except (LimitExceededError, RecursionError):
        return _any(of_object), ["too many parts: not checked"]

    notes = list(repair.notes)
    # A schema that rejects every value would make the tool useless, so ignore it.
    result = object_or_empty(repair.result)
    if repair.result is False:
        notes.append("found false: ignored")

    if sent is True:
        kind = "parameters" if of_object else "value"
        notes.append(f"found true, read as any {kind}")

    if of_object:
        result = _of_object(result, notes)

    usable, note = _within_bounds(result, what, of_object)
    if note:
        notes.append(note)

    if not repair.is_changed and not notes:
        return None, []
    return usable, notes


def _of_object(schema: JSONObject, notes: list[str]) -> JSONObject:
    """Return the schema as a schema of an object. Required names that the schema itself rejects are
    omitted.
    """
    kind = schema.get("type", "object")
    if kind != "object":
        notes.append(f'type: found {show(kind, 60)}, read as "object"')

    refused = _refused_names(schema)
    if refused:
        names = show(list[JSON](refused), 60)
        notes.append(f"required: found {names}, which additionalProperties refuses: ignored")
        without = set(refused)
        required = [name for name in cast("list[JSON]", schema["required"]) if name not in without]
        schema = {**schema, "required": required}

    return {**schema, "type": "object"}


def _within_bounds(schema: JSONObject, what: str, of_object: bool) -> tuple[JSONObject, str]:
    """Return the largest part of the schema within the limits, and a note on what remains."""
    reason = ""
    for form, left in _forms(schema):
        if len(encode(form)) > MAX_SCHEMA_BYTES:
            reason = reason or f"more than {MAX_SCHEMA_BYTES:,} bytes"
            continue
        try:
            check_schema(form, what=what)
        except LimitExceededError:
            reason = reason or "takes too long to check"
        except IdeabridgeError:
            reason = reason or "cannot be used as a whole"
        else:
            return form, f"{reason}: {left}" if reason else ""

    return _any(of_object), f"{reason}: not checked"


def _forms(schema: JSONObject) -> Iterator[tuple[JSONObject, str]]:
    """Yield the schema, then smaller and smaller parts of it, each with a description of what
    remains.
    """
    yield schema, ""
    yield cast("JSONObject", map_schemas(schema, _without_annotations)), "used without descriptions"
    yield _outline(schema, typed=True), "the names and types of its properties are checked"
    yield _outline(schema, typed=False), "the names of its properties are checked"


def _without_annotations(schema: JSONObject) -> JSONObject:
    return {keyword: value for keyword, value in schema.items() if keyword not in ANNOTATIONS}


def _outline(schema: JSONObject, *, typed: bool) -> JSONObject:
    """Return an object schema reduced to its properties and its required and allowed names."""
    outline: JSONObject = {"type": schema["type"]} if "type" in schema else {}
    if "properties" in schema:
        listed: JSONObject = {}
        for name, part in read_as(SchemaKeywords, schema).properties.items():
            kind = object_or_empty(part).get("type")
            listed[name] = {"type": kind} if typed and kind is not None else {}
        outline["properties"] = listed

    if "required" in schema:
        outline["required"] = schema["required"]

    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        outline["additionalProperties"] = False

    return outline


# -- values that might not be JSON -----------------------------------------------------------------


def _bounded(sent: JSON) -> JSON:
    """Return the original value as JSON, or its digest if it is not JSON or is too large."""
    try:
        normal = normalise(sent)
        if len(encode(normal)) <= MAX_SCHEMA_BYTES:
            return normal
    except IdeabridgeError:
        pass
    return {"sha256": value_digest(sent)}


def json_size(value: JSON) -> int:
    """Return the approximate size of a value in bytes of JSON, or any number above the limit if the
    value is too large.
    """
    try:
        return len(orjson.dumps(value))
    except orjson.JSONEncodeError:
        pass

    size = 0
    stack = [value]
    while stack and size <= MAX_REPAIRED_BYTES:
        item = stack.pop()
        size += 8
        if isinstance(item, dict):
            members = item
            size += sum(map(len, members))
            stack.extend(members.values())
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, str):
            size += len(item)

    return size


def value_digest(value: JSON) -> str:
    """Return the SHA-256 of a value, regardless of the order of its keys. The value need not be
    JSON.
    """
    try:
        # Unlike `encode`, `json.dumps` accepts any string, and also numbers that JSON does not
        # have.
        data = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        return hashlib.sha256(data).hexdigest()
    except (ValueError, RecursionError):
        pass

    # The value is nested too deeply, or contains a number with thousands of digits, so hash it
    # piece by piece.
    digest = hashlib.sha256()
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            members = item
            names = sorted(members)
            digest.update(json.dumps(names).encode())
            stack.extend(members[name] for name in names)
        elif isinstance(item, list):
            items = item
            digest.update(b"[%d]" % len(items))
            stack.extend(items)
        elif isinstance(item, int) and not isinstance(item, bool):
            digest.update(b"%x;" % item)
        else:
            digest.update(json.dumps(item).encode())

    return digest.hexdigest()
