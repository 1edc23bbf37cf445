"""Keep the parameters of tools apart from the meta-properties of calls.

Parameters and meta-properties share the object of a call, so parameters whose names collide with a
meta-property are renamed, and wrong names are reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import lru_cache, partial
from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject, decode, object_or_empty
from ideabridge.tools.errors import IdeabridgeError, LimitExceededError
from ideabridge.tools.keywords import (
    REFERRING,
    add_to_all_of,
    children,
    list_names,
    map_children,
    resolve,
    show,
)
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.tool import META_PROPERTIES

_BY_PROPERTY: Final = ("properties", "dependentRequired", "dependentSchemas", "dependencies")
_FURTHER: Final = ("additionalProperties", "unevaluatedProperties")
_ALTERNATIVES: Final = (
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "then",
    "else",
    "not",
    "dependentSchemas",
    "dependencies",
)


def rename_meta_parameters(schema: JSONObject) -> tuple[JSONObject, dict[str, str]]:
    """Rename every parameter of a remote tool that has the same name as a meta-property: `_output`
    becomes `output_`.

    Returns:
        The schema with the new names, and a mapping from each new name to the server's name. If no
        names collide, these are the same schema and {}.

    Raises:
        LimitExceededError: the schema is nested too deeply, or its chains of references are too
            long.
    """
    parts = _parts(schema)
    taken_names = {name for part in parts.values() for name in _names(part)}
    colliding = [name for name in META_PROPERTIES if name in taken_names]
    if not colliding:
        return schema, {}

    new_names: dict[str, str] = {}
    for name in colliding:
        plain = f"{name.lstrip('_')}_"
        candidate = plain
        number = 1
        while candidate in taken_names:
            number += 1
            candidate = f"{plain}{number}"

        taken_names.add(candidate)
        new_names[name] = candidate

    try:
        renamed = _rename(schema, schema, new_names, _naming(parts, schema, new_names), frozenset())
    except RecursionError:
        raise LimitExceededError("the chain of references in the parameters is too long") from None

    assert isinstance(renamed, dict)
    return renamed, {mine: name for name, mine in new_names.items()}


def _onward(schema: JSONObject, root: JSONObject) -> list[JSONObject]:
    """Return the schemas that `schema` combines or refers to and that apply to the same object."""
    onward: list[JSON] = [child for place, child in children(schema) if place[0] in _ALTERNATIVES]
    pointer = schema.get("$ref")
    if isinstance(pointer, str):
        onward.append(resolve(root, pointer))
    return [item for item in onward if isinstance(item, dict)]


def _parts(root: JSONObject) -> dict[int, JSONObject]:
    """Return the schema and all parts of it that apply to the object itself, keyed by `id()`."""
    parts: dict[int, JSONObject] = {}
    stack = [root]
    while stack:
        schema = stack.pop()
        if id(schema) not in parts:
            parts[id(schema)] = schema
            stack.extend(_onward(schema, root))

    return parts


def _names(schema: JSONObject) -> Iterator[str]:
    """Yield the names of the properties in one part."""
    for keyword in _BY_PROPERTY:
        members = schema.get(keyword)
        if isinstance(members, dict):
            yield from members

    required = schema.get("required")
    if isinstance(required, list):
        yield from (name for name in required if isinstance(name, str))


def _naming(parts: dict[int, JSONObject], root: JSONObject, new_names: dict[str, str]) -> set[int]:
    """Return the `id()` of each part that names a renamed property, or leads to such a part."""
    leading: dict[int, list[int]] = {}
    for key, part in parts.items():
        for item in _onward(part, root):
            leading.setdefault(id(item), []).append(key)

    stack = [key for key, part in parts.items() if not new_names.keys().isdisjoint(_names(part))]
    naming: set[int] = set()
    while stack:
        key = stack.pop()
        if key not in naming:
            naming.add(key)
            stack.extend(leading.get(key, ()))

    return naming


def _rename(
    schema: JSON,
    root: JSONObject,
    new_names: dict[str, str],
    naming: set[int],
    open_now: frozenset[int],
) -> JSON:
    if not isinstance(schema, dict):
        return schema

    inside: JSONObject = {
        keyword: value for keyword, value in schema.items() if keyword in _ALTERNATIVES
    }
    rename = partial(_rename, root=root, new_names=new_names, naming=naming, open_now=open_now)
    result: JSONObject = {**schema, **map_children(inside, rename)}
    for keyword in _BY_PROPERTY:
        members = result.get(keyword)
        if isinstance(members, dict):
            result[keyword] = {
                new_names.get(name, name): _renamed(item, new_names)
                for name, item in members.items()
            }

    if "required" in schema:
        result["required"] = _renamed(schema["required"], new_names)
    pointer = schema.get("$ref")
    target = resolve(root, pointer) if isinstance(pointer, str) else None
    if isinstance(target, dict) and id(target) in naming:
        # Rename the parameters in a separate copy of the target for this reference, because other
        # references to the target might not describe parameters.
        del result["$ref"]
        if id(target) not in open_now:
            add_to_all_of(result, _rename(target, root, new_names, naming, open_now | {id(target)}))

    return result


def _renamed(names: JSON, new_names: dict[str, str]) -> JSON:
    """Replace the names in a list of names. A schema is returned unchanged."""
    if not isinstance(names, list):
        return names
    return [new_names.get(name, name) if isinstance(name, str) else name for name in names]


def matches_meta(pattern: str) -> bool:
    """Return whether a `patternProperties` pattern can match the name of a meta-property."""
    # No time limit is needed: the names are so short that no pattern can take long.
    try:
        return any(re.search(pattern, name) for name in META_PROPERTIES)
    except re.error:
        return True


def room_for_meta(schema: JSONObject) -> JSONObject:
    """Add the meta-properties to a closed object that becomes a call."""
    if any(schema.get(word, True) is not True for word in _FURTHER):
        properties = schema.get("properties")
        names: JSONObject = dict.fromkeys(META_PROPERTIES, True)
        schema["properties"] = {**object_or_empty(properties), **names}
    return schema


_NAMING: Final = frozenset(_ALTERNATIVES) - {"not"}
_BARE: Final = frozenset({"type", "title", "description"})
_WRAPPERS: Final = frozenset({"args", "arguments", "params", "parameters", "input"})
"""The names that other protocols use for the object that contains the parameters."""

_MOST_HINTS: Final = 10
_SURE_SIMILARITY: Final = 0.85
_LONG_META_PROPERTIES: Final = ("_outputPath", "_outputMethod")


class ParameterNames:
    """The names of a tool's parameters.

    The names are *known* if the schema lists them in `properties`, directly or through `$ref`,
    `allOf`, `anyOf`, `oneOf` and conditions, and allows no further names (`additionalProperties`,
    `patternProperties`). A schema without properties accepts any name.
    """

    def __init__(self, tool: str, schema: JSONObject) -> None:
        self._tool = tool
        self._names, self.known = _collect(schema)

    @property
    def listed(self) -> list[str]:
        """The names that the schema lists."""
        return list(self._names)

    def faults(self, call: JSONObject, *, briefly: bool = False) -> dict[str, str]:
        """Return a message for each wrong name in a call, keyed by the name. The message suggests
        which name was probably meant.

        `call` can also contain meta-properties. If `briefly` is set, no names are suggested.
        Otherwise, names are suggested only for the first few wrong names.
        """
        if self.known and call.keys() <= self._names.keys():
            return {}

        faults: dict[str, str] = {}
        for name, value in call.items():
            if name not in self._names and name not in META_PROPERTIES:
                meant = self._meant(name, value, briefly=briefly or len(faults) >= _MOST_HINTS)
                if meant is not None:
                    faults[name] = f"parameters: {name[:100]}: {meant}"

        return faults

    def _meant(self, name: str, value: JSON, *, briefly: bool) -> str | None:
        meta = meant_meta(name)
        if meta is not None and (self.known or _is_surely(name, meta)):
            return f"there is no parameter with this name. Did you mean '{meta}'?"

        if not self.known:
            return None

        inside = _wrapped(value) if name in _WRAPPERS else None
        if inside is not None:
            written = show({"_tool": self._tool, **inside}, 200)
            return (
                f"a call's parameters go next to _tool, not into a separate object; write {written}"
            )

        if not self._names:
            return "the tool has no parameters"

        names = list_names(self._names, "parameter", "parameters")
        message = f"there is no parameter with this name; {names}"
        hint = "" if briefly else did_you_mean(name, self._names)
        return f"{message}.{hint}" if hint else message


def _wrapped(value: JSON) -> JSONObject | None:
    """Return the parameters in a wrapper, which is an object or the JSON text of one. Return {} if
    the text is not JSON.
    """
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = decode(value)
        except IdeabridgeError:
            return {}
    return value if isinstance(value, dict) else None


@lru_cache(maxsize=1024)
def meant_meta(name: str) -> str | None:
    """Return the meta-property that `name` resembles (`outputPath`, `_ouputPath` -> `_outputPath`),
    or None if it resembles none.
    """
    if name in META_PROPERTIES or len(name) > 40:
        return None

    plain = _plain(name)
    for meta in META_PROPERTIES:
        if plain == _plain(meta):
            return meta

    if not name.startswith("_"):
        return None

    ratio, nearest = max(
        (SequenceMatcher(None, plain, _plain(meta)).ratio(), meta) for meta in META_PROPERTIES
    )
    return nearest if ratio >= 0.75 else None


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()


def _is_surely(name: str, meta: str) -> bool:
    """Return whether a name almost certainly means `meta`, even for a tool that accepts any
    name.
    """
    if not name.startswith("_"):
        return False
    plain = _plain(name)
    plain_meta = _plain(meta)
    return plain == plain_meta or (
        meta in _LONG_META_PROPERTIES
        and SequenceMatcher(None, plain, plain_meta).ratio() >= _SURE_SIMILARITY
    )


def _collect(schema: JSONObject) -> tuple[dict[str, None], bool]:
    """Return the names of the parameters, and whether no other names are allowed."""
    names: dict[str, None] = {}
    properties = False
    complete = True
    visited: set[int] = set()
    stack: list[JSONObject] = [schema]
    while stack:
        part = stack.pop()
        if id(part) in visited:
            continue
        visited.add(id(part))
        names.update(dict.fromkeys(_names(part)))
        properties |= bool(part.get("properties"))
        complete &= "patternProperties" not in part and all(
            part.get(word, False) is False for word in _FURTHER
        )
        for keyword in (word for word in REFERRING if word in part):
            target = resolve(schema, str(part[keyword])) if keyword == "$ref" else None
            # A referenced schema that is not resolved here might name any property.
            complete &= isinstance(target, dict)
            if isinstance(target, dict):
                stack.append(target)

        for place, child in children(part):
            if place[0] in _NAMING:
                # An alternative that constrains nothing accepts any name.
                complete &= place[0] not in ("anyOf", "oneOf") or (
                    isinstance(child, dict) and not child.keys() <= _BARE
                )
                if isinstance(child, dict):
                    stack.append(child)

    return names, complete and properties
