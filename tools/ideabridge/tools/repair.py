"""Convert a server's schema to valid JSON Schema 2020-12.

Forms from older drafts are translated to 2020-12 without changing their meaning. A malformed part
is replaced with its obvious meaning (`"type": "dict"`), or ignored with a note, so that the rest is
still checked.

Ignoring a part must never make the schema accept fewer values, only more. Therefore, if the part is
below `not`, `if`, `oneOf` or `contains`, these keywords are loosened too. References are resolved
only within the schema. The repair does not fetch or open anything.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast
from urllib.parse import quote, unquote, urljoin

import jsonschema_rs

from ideabridge.tools.encoding import (
    JSON,
    MAX_DEPTH,
    JSONObject,
    encode,
    list_or_empty,
    normalise,
    number_or_none,
    object_or_empty,
)
from ideabridge.tools.errors import IdeabridgeError, LimitExceededError
from ideabridge.tools.keywords import (
    ANNOTATIONS,
    DEFINITIONS,
    PATTERNS,
    Place,
    add_to_all_of,
    children,
    json_schema_draft,
    loosen,
    resolve,
    show,
    show_path,
)

MAX_NOTES: Final = 8
"""Maximum number of notes on one schema. Any further notes are only counted."""

DRAFT_3: Final = "json-schema.org/draft-03/schema"
DRAFT_4: Final = "json-schema.org/draft-04/schema"
DRAFT_6: Final = "json-schema.org/draft-06/schema"
DRAFT_7: Final = "json-schema.org/draft-07/schema"
DRAFT_2019: Final = "json-schema.org/draft/2019-09/schema"

_MAX_SCHEMAS: Final = 50_000
_MAX_LEVELS: Final = MAX_DEPTH - 6
_PATTERNS_SECONDS: Final = 0.25
_SHOWN_CHARACTERS: Final = 60
_WHERE: Final = 120

_ALONE: Final = frozenset({DRAFT_3, DRAFT_4, DRAFT_6, DRAFT_7})
"""Drafts in which the keywords next to a `$ref` are ignored."""

_TYPE_NAMES: Final = {
    "array": ("array", "list", "tuple", "set", "sequence"),
    "boolean": ("boolean", "bool"),
    "integer": ("integer", "int", "int32", "int64", "long"),
    "null": ("null", "none", "nil"),
    "number": ("number", "float", "float32", "float64", "double", "decimal"),
    "object": ("object", "dict", "dictionary", "map", "mapping"),
    "string": ("string", "str", "text"),
}
_TYPE_OF: Final = {name: kind for kind, names in _TYPE_NAMES.items() for name in names}
_FLAG_OF: Final = {"true": True, "false": False}

_COUNTS: Final = (
    *("minLength", "maxLength", "minItems", "maxItems"),
    *("minProperties", "maxProperties", "minContains", "maxContains"),
)
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_FLAGS: Final = ("uniqueItems", "deprecated", "readOnly", "writeOnly")
_TEXTS: Final = (
    "title",
    "description",
    "$comment",
    "format",
    "contentEncoding",
    "contentMediaType",
)
_BOOLEANS: Final = ("additionalProperties", "unevaluatedItems", "unevaluatedProperties", "items")
"""Keywords whose schema is usually `true` or `false`."""

_SINGLE: Final = (
    "contains",
    "contentSchema",
    "else",
    "if",
    "not",
    "propertyNames",
    "then",
    *_BOOLEANS,
)
_MANY: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED: Final = ("$defs", "definitions", "dependentSchemas")
_IDENTITIES: Final = (
    *("$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary"),
    # `items` handles `additionalItems`.
    "additionalItems",
)
_ENCLOSING: Final = frozenset({"not", "if", "oneOf", "contains"})
"""Keywords that can accept fewer values when a schema inside them accepts more values."""

_META_SCHEMAS: Final = ("https://json-schema.org/", "http://json-schema.org/")
_PLAIN: Final = "~!$&'()*+,;=:@"
"""Characters, besides letters and digits, that a reference contains unescaped."""

_NOWHERE: Final[Place] = ("", "")
"""The place, in the result, of a schema that no reference can point to."""


class Repair:
    """The repair of one schema.

    Attributes:
        result: the repaired schema: an object, true or false.
        notes: the parts that were ignored or reinterpreted, each with its location:
            `properties.a.type: found "dict", read as "object"`. If there are too many, the last
            note gives the number of omitted ones.
        is_changed: whether the result differs from the original schema in more than schema names.
            Always True for schemas of draft 3 or 4.

    Raises:
        LimitExceededError: the schema has too many parts.
    """

    def __init__(self, sent: JSON) -> None:
        self._sent = sent
        if isinstance(sent, dict):
            self._draft = json_schema_draft(cast("JSONObject", sent))
        else:
            self._draft = ""

        self._names = _Names(sent, self._draft)
        self._deadline = time.thread_time() + _PATTERNS_SECONDS
        self._handlers = self._handlers_by_keyword()
        self._begin()
        self.result = self._whole()
        if self._loosened and self._has_enclosed_references:
            # Repair the schema again, this time without references below `not` and similar
            # keywords. The target of such a reference might now accept more values, so that `not`
            # itself would accept fewer.
            self._begin()
            self._distrusts = True
            self.result = self._whole()

        self.is_changed |= self._draft in (DRAFT_3, DRAFT_4)
        self.notes = self._bounded_notes()

    def _begin(self) -> None:
        self.is_changed = False
        self._distrusts = False
        self._noted: dict[str, None] = {}
        self._count = 0
        # The number of ignored parts that might have rejected values.
        self._loosened = 0
        self._enclosing = 0
        self._has_enclosed_references = False
        # For each schema, its path in the sent value and its new path. Indexes in these paths are
        # strings.
        self._places: dict[Place, Place] = {}
        self._references: list[tuple[JSONObject, Place, Place]] = []
        self._definitions: JSONObject = {}
        # The top-level keywords whose schemas have been moved to the definitions.
        self._moved: set[str] = set()

    def _whole(self) -> JSONObject | bool:
        result = self._schema(self._sent, (), ())
        if not isinstance(result, dict):
            return result

        written: list[tuple[JSONObject, Place]] = []
        while self._references:
            schema, place, target = self._references.pop()
            self._define(target)
            schema["$ref"] = _pointer(self._places[target])
            written.append((schema, place))

        if self._definitions:
            for keyword in self._moved - self._handlers.keys():
                # Every schema below this keyword has become a definition.
                result.pop(keyword, None)
            definitions = result.get("$defs")
            if isinstance(definitions, dict):
                result["$defs"] = {**definitions, **self._definitions}
            else:
                result["$defs"] = self._definitions

        for schema, place in written:
            if resolve(result, cast("str", schema["$ref"])) is None:
                reference = schema.pop("$ref")
                self._ignore(place, reference, "a reference to a schema that was not ignored")

        return result

    def _define(self, target: Place) -> None:
        """Write a schema from outside the usual keywords, such as `#/components/User`."""
        if target in self._places:
            return

        names = set(self._definitions)
        definitions = object_or_empty(object_or_empty(self._sent).get("$defs"))
        names.update(definitions)

        name = f"part{len(self._definitions) + 1}"
        while name in names:
            name += "_"

        new_place = ("$defs", name)
        self._places[target] = new_place
        self._moved.add(str(target[0]))
        # Take the name now, because the schema can define further schemas.
        self._definitions[name] = True
        self._definitions[name] = self._schema(self._names.at(target), target, new_place)

    def _handlers_by_keyword(self) -> dict[str, _Handler]:
        single = {
            "$ref": self._reference,
            "$dynamicRef": self._reference,
            "$recursiveRef": self._reference,
            "type": self._type,
            "disallow": self._disallow,
            "extends": self._extends,
            "properties": self._properties,
            "patternProperties": self._pattern_properties,
            "required": self._required,
            "dependentRequired": self._dependent_required,
            "dependencies": self._dependencies,
            "enum": self._enum,
            "const": self._const,
            "examples": self._examples,
            "pattern": self._pattern,
            "multipleOf": self._multiple,
            "divisibleBy": self._multiple,
        }
        groups: list[tuple[Iterable[str], _Handler]] = [
            (_IDENTITIES, self._identity),
            (_SINGLE, self._single),
            (_MANY, self._many),
            (_NAMED, self._named),
            (_COUNTS, self._counted),
            (_BOUNDS, self._bound),
            (_FLAGS, self._flag),
            (_TEXTS, self._text),
        ]
        handlers: dict[str, _Handler] = {}
        for keywords, handler in groups:
            handlers.update(dict.fromkeys(keywords, handler))

        # `items` can also be a list, unlike the other keywords of its group.
        return {**handlers, **single, "items": self._items}

    # -- notes

    def _note(self, place: Place, actual: JSON, reading: str) -> None:
        self.is_changed = True
        text = f"found {show(actual, _SHOWN_CHARACTERS)}, {reading}"
        where = show_path(place)
        if len(where) > _WHERE:
            where = f"{where[:_WHERE]}…"
        if where:
            text = f"{where}: {text}"
        self._noted[text.encode("utf-8", "replace").decode()] = None

    def _ignore(self, place: Place, actual: JSON, expected: str) -> None:
        """Ignore a part that might have rejected values."""
        self._loosened += 1
        self._note(place, actual, f"expected {expected}: ignored")

    def _bounded_notes(self) -> tuple[str, ...]:
        notes = list(self._noted)
        if len(notes) <= MAX_NOTES:
            return tuple(notes)

        shown = notes[: MAX_NOTES - 1]
        return (*shown, f"and {len(notes) - len(shown):,} more")

    # -- schemas

    def _schema(
        self, value: JSON, place: Place, target: Place, *, is_property: bool = False
    ) -> JSONObject | bool:
        """Repair the schema at the path `place` in the original, for the path `target` in the
        result.
        """
        self._count += 1
        if self._count > _MAX_SCHEMAS:
            raise LimitExceededError("the schema has too many parts")

        self._places[tuple(map(str, place))] = target
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and _TYPE_OF.get(value, "null") != "null":
            self._note(place, value, "read as the type")
            return {"type": _TYPE_OF[value]}
        if not isinstance(value, dict):
            self._ignore(place, value, "a schema")
            return True
        if len(place) > _MAX_LEVELS:
            self._ignore(place, {}, f"at most {_MAX_LEVELS} levels")
            return True

        sent = value
        if self._draft in _ALONE and isinstance(sent.get("$ref"), str):
            counting = {"$ref", *DEFINITIONS, *ANNOTATIONS, *_IDENTITIES, "id"}
            self.is_changed |= not sent.keys() <= counting
            sent = {keyword: item for keyword, item in sent.items() if keyword in counting}

        return self._keywords(_Part(sent, place, target, is_property))

    def _keywords(self, part: _Part) -> JSONObject:
        loose: list[str] = []
        for keyword, value in part.sent.items():
            before = self._loosened
            is_enclosing = keyword in _ENCLOSING
            if is_enclosing:
                self._enclosing += 1

            handler = self._handlers.get(keyword, self._other)
            handler(part, keyword, value)
            if is_enclosing:
                self._enclosing -= 1
            if self._loosened > before:
                loose.append(keyword)

        if part.required:
            names = list_or_empty(part.out.get("required"))
            names = [*cast("list[str]", names), *part.required]
            part.out["required"] = list[JSON](dict.fromkeys(names))

        for keyword in loose:
            if keyword in part.out or keyword not in _ENCLOSING:
                loosen(part.out, keyword)

        if part.also:
            add_to_all_of(part.out, *part.also)

        return part.out

    def _child(
        self, part: _Part, value: JSON, *steps: str | int, new: Place | None = None
    ) -> JSONObject | bool:
        """Return the repaired form of a schema inside a part. `new` is the path of the schema in
        the new part, and defaults to `steps`.
        """
        if new is None:
            new = steps
        return self._schema(value, (*part.place, *steps), (*part.target, *new))

    def _other(self, part: _Part, keyword: str, value: JSON) -> None:
        """Copy a keyword that is unknown or does not constrain anything."""
        if keyword == "id" and self._draft in (DRAFT_3, DRAFT_4):
            return

        try:
            name = cast("str", normalise(keyword))
            part.out[name] = part.normal(value)
        except IdeabridgeError:
            self._note((*part.place, keyword), value, "expected JSON: ignored")

    def _identity(self, part: _Part, keyword: str, value: JSON) -> None:
        """Drop the name of a schema, because references are rewritten without names."""
        is_text = keyword in ("$schema", "$id", "$anchor", "$dynamicAnchor")
        if is_text and not isinstance(value, str):
            self._ignore((*part.place, keyword), value, "a string")

    # -- references

    def _reference(self, part: _Part, keyword: str, value: JSON) -> None:
        place = (*part.place, keyword)
        if not isinstance(value, str):
            self._ignore(place, value, "a reference")
            return

        target = self._names.find(value, part.place)
        if self._enclosing:
            self._has_enclosed_references = True
            if self._distrusts:
                self._ignore(place, value, "a schema that is valid as it was sent")
                return

        if target is not None:
            holder = part.out
            if "$ref" in part.out:
                holder = dict[str, JSON]()
                part.also.append(holder)

            # The real target is filled in later, when all paths are known.
            holder["$ref"] = value
            self._references.append((holder, place, target))
        elif value.startswith(_META_SCHEMAS) and _is_valid({"$ref": value}):
            part.also.append({"$ref": value})
        else:
            self._ignore(place, value, "a place in this schema (nothing is fetched)")

    # -- types

    def _type(self, part: _Part, keyword: str, value: JSON) -> None:
        kinds, schemas = self._types(part, keyword, value)
        if kinds is None:
            return
        if schemas:
            self.is_changed = True
            alternatives: list[JSON] = [{"type": kind} for kind in kinds]
            part.also.append({"anyOf": [*alternatives, *schemas]})
        elif kinds:
            if len(kinds) == 1 and not isinstance(value, list):
                part.out["type"] = kinds[0]
            else:
                part.out["type"] = list[JSON](kinds)

    def _types(self, part: _Part, keyword: str, value: JSON) -> tuple[list[str] | None, list[JSON]]:
        """Return the types, and the schemas listed among them.

        The types are None if any value is allowed or the meaning is unclear.
        """
        place = (*part.place, keyword)
        listed = value if isinstance(value, list) else [value]
        kinds: list[str] = []
        schemas: list[JSON] = []
        for number, item in enumerate(listed):
            if isinstance(item, dict):
                schemas.append(self._schema(item, (*place, number), _NOWHERE))
                continue

            name = ""
            if isinstance(item, str):
                name = item.lower()
            elif item is None and isinstance(value, list):
                name = "null"

            if name in ("any", "mixed"):
                self.is_changed = True
                return None, []

            kind = _TYPE_OF.get(name)
            if kind is None:
                self._ignore(place, value, "a type of JSON")
                return None, []

            if kind != item:
                self._note(place, item, f'read as "{kind}"')

            kinds.append(kind)

        kinds = list(dict.fromkeys(kinds))
        if not kinds and not schemas:
            self._ignore(place, value, "a type of JSON")
            return None, []

        if len(kinds) + len(schemas) < len(listed):
            self.is_changed = True

        return kinds, schemas

    def _disallow(self, part: _Part, keyword: str, value: JSON) -> None:
        before = self._loosened
        kinds, schemas = self._types(part, keyword, value)
        if kinds is None or self._loosened > before:
            # Types that accept more values would refuse more values here.
            self._loosened += 1
            return

        self.is_changed = True
        if kinds:
            schemas.insert(0, {"type": list[JSON](kinds)})
        part.also.append({"not": {"anyOf": schemas}})

    # -- objects

    def _properties(self, part: _Part, keyword: str, value: JSON) -> None:
        place = (*part.place, keyword)
        if isinstance(value, list):
            listed = _by_name(value)
            if listed is not None:
                self._note(place, value, "read as the properties of these names")
                value = listed

        if value is None:
            self._note(place, value, "read as if it were absent")
            return
        if not isinstance(value, dict):
            self._ignore(place, value, "an object of schemas")
            self._drop_additional(part)
            return

        schemas: JSONObject = {}
        for name, item in value.items():
            target = (*part.target, keyword, name)
            schemas[_text(name)] = self._schema(item, (*place, name), target, is_property=True)
            is_required = object_or_empty(item).get("required")
            if is_required is True or is_required == "true":
                self.is_changed = True
                part.required.append(_text(name))

        part.out[keyword] = schemas

    def _pattern_properties(self, part: _Part, keyword: str, value: JSON) -> None:
        place = (*part.place, keyword)
        if not isinstance(value, dict):
            self._ignore(place, value, "an object of schemas")
            self._drop_additional(part)
            return

        schemas: JSONObject = {}
        for pattern, item in value.items():
            usable = self._usable_pattern(pattern)
            if usable is None:
                self._ignore(place, pattern, "a regular expression")
                # The names that the pattern was meant to match are unknown, so reject none.
                self._drop_additional(part)
            else:
                schemas[usable] = self._child(part, item, keyword, pattern, new=(keyword, usable))

        if schemas:
            part.out[keyword] = schemas

    def _drop_additional(self, part: _Part) -> None:
        part.drops_additional = True
        part.out.pop("additionalProperties", None)

    def _required(self, part: _Part, keyword: str, value: JSON) -> None:
        place = (*part.place, keyword)
        is_flag = isinstance(value, bool) or (isinstance(value, str) and value in _FLAG_OF)
        if is_flag and (part.is_property or value is False or self._draft == DRAFT_3):
            # The object that has this property lists it as required instead.
            self.is_changed = True
            return

        properties = part.sent.get("properties")
        if isinstance(value, str) and isinstance(properties, dict | list) and value in properties:
            self._note(place, value, "read as a list that contains only this name")
            value = [value]

        if not isinstance(value, list):
            self._ignore(place, value, "a list of names")
            return

        names = self._unique_names(place, value)
        if names:
            part.out[keyword] = list[JSON](names)

    def _unique_names(self, place: Place, listed: list[JSON]) -> list[str]:
        names = list(dict.fromkeys(_text(item) for item in listed if isinstance(item, str)))
        if len(names) < len(listed):
            self._note(place, listed, "expected different names: the others are ignored")
        return names

    def _dependent_required(self, part: _Part, keyword: str, value: JSON) -> None:
        place = (*part.place, keyword)
        if not isinstance(value, dict):
            self._ignore(place, value, "an object of lists of names")
            return

        names: JSONObject = {}
        for name, item in value.items():
            if isinstance(item, str):
                names[_text(name)] = [_text(item)]
            elif isinstance(item, list):
                unique = self._unique_names((*place, name), item)
                names[_text(name)] = list[JSON](unique)
            else:
                self._ignore((*place, name), item, "a list of names")

        part.out[keyword] = names

    def _dependencies(self, part: _Part, keyword: str, value: JSON) -> None:
        """Split `dependencies` into `dependentRequired` and `dependentSchemas`, as in 2020-12."""
        if not isinstance(value, dict):
            self._ignore((*part.place, keyword), value, "an object of lists of names")
            return

        self.is_changed = True
        needed_names: JSONObject = {}
        needed_schemas: JSONObject = {}
        for name, item in value.items():
            if isinstance(item, list | str):
                needed_names[name] = item
            else:
                needed_schemas[name] = item

        if needed_names:
            holder = _Part({}, part.place, part.target, is_property=False)
            self._dependent_required(holder, "dependentRequired", needed_names)
            part.add("dependentRequired", holder.out["dependentRequired"])

        schemas: JSONObject = {}
        for name, item in needed_schemas.items():
            new = ("dependentSchemas", name)
            schemas[_text(name)] = self._child(part, item, keyword, name, new=new)

        if schemas:
            part.add("dependentSchemas", schemas)

    # -- keywords whose values are schemas

    def _single(self, part: _Part, keyword: str, value: JSON) -> None:
        if keyword == "additionalProperties" and part.drops_additional:
            return
        if isinstance(value, str) and keyword in _BOOLEANS and value.lower() in _FLAG_OF:
            self._note((*part.place, keyword), value, "read as true or false")
            value = _FLAG_OF[value.lower()]
        part.out[keyword] = self._child(part, value, keyword)

    def _items(self, part: _Part, keyword: str, value: JSON) -> None:
        """Replace the list form of `items` with `prefixItems`, and `additionalItems` with `items`,
        as in 2020-12.
        """
        if not isinstance(value, list) or "prefixItems" in part.sent:
            self._single(part, keyword, value)
            return

        self.is_changed = True
        schemas: list[JSON] = []
        for number, item in enumerate(value):
            schemas.append(self._child(part, item, keyword, number, new=("prefixItems", number)))

        if schemas:
            part.out["prefixItems"] = schemas

        if "additionalItems" in part.sent:
            additional = part.sent["additionalItems"]
            part.out["items"] = self._child(part, additional, "additionalItems", new=("items",))

    def _many(self, part: _Part, keyword: str, value: JSON) -> None:
        if isinstance(value, dict):
            self._note((*part.place, keyword), value, "read as a list of this schema")
            value = [value]

        if not isinstance(value, list) or not value:
            self._ignore((*part.place, keyword), value, "a list of schemas")
            return

        part.out[keyword] = [
            self._child(part, item, keyword, number) for number, item in enumerate(value)
        ]

    def _extends(self, part: _Part, keyword: str, value: JSON) -> None:
        """Replace `extends` from draft 3 with `allOf`."""
        listed = value if isinstance(value, list) else [value]
        if not all(isinstance(item, dict) for item in listed):
            self._other(part, keyword, value)
            return

        self.is_changed = True
        for number, item in enumerate(listed):
            part.also.append(self._schema(item, (*part.place, keyword, number), _NOWHERE))

    def _named(self, part: _Part, keyword: str, value: JSON) -> None:
        if not isinstance(value, dict):
            self._ignore((*part.place, keyword), value, "an object of schemas")
            return
        part.out[keyword] = {
            _text(name): self._child(part, item, keyword, name) for name, item in value.items()
        }

    # -- keywords whose values are plain

    def _enum(self, part: _Part, keyword: str, value: JSON) -> None:
        try:
            values = part.normal(value)
        except IdeabridgeError:
            values = None

        if not isinstance(values, list) or not values:
            self._ignore((*part.place, keyword), value, "a list of values")
            return

        distinct = {encode(item): item for item in values}
        part.out[keyword] = list(distinct.values())

    def _const(self, part: _Part, keyword: str, value: JSON) -> None:
        try:
            part.out[keyword] = part.normal(value)
        except IdeabridgeError:
            self._ignore((*part.place, keyword), value, "JSON")

    def _examples(self, part: _Part, keyword: str, value: JSON) -> None:
        if isinstance(value, list):
            self._other(part, keyword, value)
        else:
            self._note((*part.place, keyword), value, "expected a list: ignored")

    def _pattern(self, part: _Part, keyword: str, value: JSON) -> None:
        usable: str | None = None
        if isinstance(value, str):
            usable = self._usable_pattern(value)
        if usable is None:
            self._ignore((*part.place, keyword), value, "a regular expression")
            return

        part.out[keyword] = usable
        self.is_changed |= usable != value

    def _usable_pattern(self, pattern: str) -> str | None:
        """Return a form of the pattern that can be matched, or None if there is none or if patterns
        have already taken too long.
        """
        for text in dict.fromkeys((pattern, _in_words_of_ecma(pattern))):
            if time.thread_time() > self._deadline:
                return None
            if _is_valid({"pattern": text}):
                return text

        return None

    def _counted(self, part: _Part, keyword: str, value: JSON) -> None:
        place = (*part.place, keyword)
        number = _number(value)
        is_least = keyword.startswith("min")
        if number is not None and number < 0 and is_least:
            self._note(place, value, "which every value satisfies: ignored")
            return
        if number is None or number < 0:
            self._ignore(place, value, "a whole number")
            return

        if is_least:
            whole = math.ceil(number)
        else:
            whole = math.floor(number)

        if whole != value or isinstance(value, str):
            self._note(place, value, f"read as {show(whole, _SHOWN_CHARACTERS)}")
        part.out[keyword] = whole

    def _bound(self, part: _Part, keyword: str, value: JSON) -> None:
        place = (*part.place, keyword)
        if isinstance(value, bool) and keyword.startswith("exclusive"):
            # In draft 4 and earlier, this keyword is a boolean that makes `minimum` or `maximum`
            # exclusive.
            self.is_changed = True
            limit = _number(part.sent.get(_plain_bound(keyword)))
            if value and limit is not None:
                part.out[keyword] = limit
            return

        if part.sent.get(f"exclusiveM{keyword[1:]}") is True:
            # The boolean next to this bound writes it as an exclusive one.
            return

        number = _number(value)
        if number is None:
            self._ignore(place, value, "a number")
            return

        if isinstance(value, str):
            self._note(place, value, f"read as {show(number, _SHOWN_CHARACTERS)}")

        part.out[keyword] = number

    def _multiple(self, part: _Part, keyword: str, value: JSON) -> None:
        """Repair `multipleOf`, which is called `divisibleBy` in draft 3."""
        number = _number(value)
        if number is None or number <= 0:
            self._ignore((*part.place, keyword), value, "a number above 0")
            return

        self.is_changed |= keyword != "multipleOf" or isinstance(value, str)
        part.add("multipleOf", number)

    def _flag(self, part: _Part, keyword: str, value: JSON) -> None:
        place = (*part.place, keyword)
        if isinstance(value, str) and value.lower() in _FLAG_OF:
            self._note(place, value, "read as true or false")
            value = _FLAG_OF[value.lower()]

        if isinstance(value, bool):
            part.out[keyword] = value
        elif keyword == "uniqueItems":
            self._ignore(place, value, "true or false")
        else:
            self._note(place, value, "expected true or false: ignored")

    def _text(self, part: _Part, keyword: str, value: JSON) -> None:
        if isinstance(value, str):
            part.out[keyword] = _text(value)
        else:
            self._note((*part.place, keyword), value, "expected text: ignored")


@dataclass(slots=True)
class _Part:
    """A schema while it is being repaired.

    Attributes:
        sent: the schema as it was sent.
        place: the path of the schema in the original.
        target: the path of the schema in the result.
        is_property: whether this is the schema of a property.
        out: the keywords written so far.
        also: schemas to add to `allOf`.
        required: the properties whose own schemas declare them required.
        drops_additional: whether the allowed names are unknown.
    """

    sent: JSONObject
    place: Place
    target: Place
    is_property: bool
    out: JSONObject = field(default_factory=dict[str, JSON])
    also: list[JSON] = field(default_factory=list[JSON])
    required: list[str] = field(default_factory=list[str])
    drops_additional: bool = False

    def normal(self, value: JSON) -> JSON:
        """Return the value of a keyword in normal form (see `normalise`). It must not be so deep
        that the schema around it becomes too deep.
        """
        levels_left = MAX_DEPTH - len(self.place) - 2
        return normalise(value, max_depth=max(levels_left, 0))

    def add(self, keyword: str, value: JSON) -> None:
        """Write a keyword that the schema might already contain."""
        if keyword in self.out:
            self.also.append({keyword: value})
        else:
            self.out[keyword] = value


_Handler: TypeAlias = Callable[[_Part, str, JSON], None]


class _Names:
    """The schemas that references in a schema can point to."""

    def __init__(self, root: JSON, draft: str) -> None:
        self._root = root
        # The URIs of schemas, keyed by path.
        self._bases: dict[Place, str] = {(): ""}
        self._by_uri: dict[str, Place] = {"": ()}
        self._anchors: dict[tuple[Place, str], Place] = {}
        old = draft in (DRAFT_3, DRAFT_4)
        stack: list[tuple[Place, Place, JSON]] = [((), (), root)]
        while stack:
            place, base, schema = stack.pop()
            if not isinstance(schema, dict) or len(place) > MAX_DEPTH:
                continue

            part = cast("JSONObject", schema)
            uri = part.get("id" if old else "$id")
            if isinstance(uri, str):
                base = self._named(uri, place, base)

            for keyword in ("$anchor", "$dynamicAnchor"):
                anchor = part.get(keyword)
                if isinstance(anchor, str):
                    self._anchors.setdefault((base, anchor), place)

            for step, child in children(part):
                stack.append(((*place, *map(str, step)), base, child))

    def _named(self, uri: str, place: Place, base: Place) -> Place:
        """Record the URI of a schema, and return the path of the schema that references inside it
        are relative to.
        """
        if uri.startswith("#"):
            self._anchors.setdefault((base, uri[1:]), place)
            return base

        whole = _joined(self._bases[base], uri).rstrip("#")
        self._bases[place] = whole
        self._by_uri.setdefault(whole, place)
        return place

    def find(self, reference: str, place: Place) -> Place | None:
        """Return the path of the schema that a reference at `place` points to, or None if there is
        none.
        """
        # The nearest schema around the reference that has a URI. The root always has one.
        base = tuple(map(str, place))
        while base not in self._bases:
            base = base[:-1]

        uri, _, fragment = reference.partition("#")
        if uri:
            base_of_uri = self._by_uri.get(_joined(self._bases[base], uri))
            if base_of_uri is None:
                return None
            base = base_of_uri

        if fragment and not fragment.startswith("/"):
            return self._anchors.get((base, unquote(fragment)))

        target = base
        for step in fragment.split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            target = (*target, key)

        if not isinstance(self.at(target), dict | bool):
            return None
        return target

    def at(self, place: Place) -> JSON:
        """Return the part at a path, or None if there is nothing at the path."""
        part = self._root
        for key in map(str, place):
            if isinstance(part, dict) and key in part:
                part = part[key]
            elif isinstance(part, list) and _is_index(key, part):
                part = part[int(key)]
            else:
                return None

        return part


def _is_index(key: str, listed: list[JSON]) -> bool:
    return key.isascii() and key.isdecimal() and len(key) <= 9 and int(key) < len(listed)


def _joined(base: str, uri: str) -> str:
    """Resolve a URI relative to a base URI, without fetching anything."""
    try:
        return urljoin(base, uri)
    except ValueError:
        return uri


def _pointer(place: Place) -> str:
    """Return the reference that points to a path."""
    pointer = "#"
    for key in place:
        step = str(key).replace("~", "~0").replace("/", "~1")
        pointer += f"/{quote(step, safe=_PLAIN)}"

    return pointer


def _by_name(listed: list[JSON]) -> dict[str, JSON] | None:
    """Return the properties described by a list of names or of objects with names, or None if the
    list has neither form.
    """
    properties: dict[str, JSON] = {}
    for item in listed:
        schema: JSONObject = {}
        name: JSON = item
        if isinstance(item, dict):
            schema = dict(item)
            name = schema.pop("name", None)

        if not isinstance(name, str) or name in properties:
            return None
        properties[name] = schema

    return properties


def _text(text: str) -> str:
    """Remove lone surrogates, which are not characters, from a string."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _number(value: JSON) -> int | float | None:
    """Return a number or the number in a string, or None for any other value."""
    if isinstance(value, str) and len(value) <= 30:
        try:
            value = float(value)
        except ValueError:
            return None
        if math.isfinite(value) and value.is_integer():
            value = int(value)

    number = number_or_none(value)
    # Comparing a NaN also gives False.
    if number is not None and abs(number) < 10**300:
        return number
    return None


def _plain_bound(keyword: str) -> str:
    """Return `minimum` for `exclusiveMinimum`."""
    return keyword.removeprefix("exclusive").lower()


_TRANSLATED: Final = (
    (re.compile(r"(?<!\\)((?:\\\\)*)\(\?P(?=<[A-Za-z_])"), r"\1(?"),
    (re.compile(r"(?<!\\)((?:\\\\)*)\\A"), r"\1^"),
    (re.compile(r"(?<!\\)((?:\\\\)*)\\[zZ]"), r"\1$"),
)


def _in_words_of_ecma(pattern: str) -> str:
    """Translate a pattern from the syntax of Python to that of JSON Schema."""
    for expression, replacement in _TRANSLATED:
        pattern = expression.sub(replacement, pattern)
    return pattern


def _is_valid(schema: JSONObject) -> bool:
    """Return whether a small schema can be compiled."""
    try:
        jsonschema_rs.Draft202012Validator(schema, offline=True, pattern_options=PATTERNS)
    except ValueError:
        return False
    except BaseException as error:
        # jsonschema-rs panics on some invalid schemas, and the panic's class does not derive from
        # Exception.
        if type(error).__name__ != "PanicException":
            raise
        return False
    return True
