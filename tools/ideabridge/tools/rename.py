"""Parameters and meta-properties of a call share one object: renames parameters whose names collide, and finds names
that are neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject, decode
from ideabridge.tools.errors import IdeabridgeError, LimitExceededError
from ideabridge.tools.keywords import REFERRING, children, list_names, resolve, show
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.tool import META_PROPERTIES

_ALTERNATIVES = ("allOf", "anyOf", "oneOf", "if", "then", "else", "not", "dependentSchemas", "dependencies")


def rename_meta_parameters(schema: JSONObject) -> tuple[JSONObject, dict[str, str]]:
    """Give every parameter with a meta-property's name another one: `_output` becomes `output_`.

    Args:
        schema: the parameters of a remote tool.

    Raises:
        LimitExceededError: the schema nests or refers too deep.

    Returns:
        (the schema by our names, our name -> the module's name); the schema itself and {} where nothing was taken.
    """
    parts = _parts(schema)
    found = {name for part in parts.values() for name in _names(part.schema)}
    theirs = [name for name in META_PROPERTIES if name in found]
    if not theirs:
        return schema, {}
    taken = found
    ours: dict[str, str] = {}
    for name in theirs:
        wanted = f"{name.lstrip('_')}_"
        candidate = wanted
        number = 1
        while candidate in taken:
            number += 1
            candidate = f"{wanted}{number}"
        taken.add(candidate)
        ours[name] = candidate
    try:
        renamed = _rename(schema, schema, ours, _naming(parts, ours), frozenset())
    except RecursionError:
        raise LimitExceededError("the parameters refer from one definition to the next too often") from None
    assert isinstance(renamed, dict)
    return renamed, {mine: name for name, mine in ours.items()}


class _Part:
    """A schema that says something of the object itself, and the alternatives and definitions it says it by."""

    def __init__(self, schema: JSONObject, root: JSONObject) -> None:
        self.schema = schema
        onward: list[JSON] = [child for place, child in children(schema) if place[0] in _ALTERNATIVES]
        pointer = schema.get("$ref")
        if isinstance(pointer, str):
            onward.append(resolve(root, pointer))
        self.onward = [item for item in onward if isinstance(item, dict)]


def _parts(root: JSONObject) -> dict[int, _Part]:
    """The schema and all parts it says something of the object by, by identity."""
    parts: dict[int, _Part] = {}
    stack = [root]
    while stack:
        schema = stack.pop()
        if id(schema) not in parts:
            parts[id(schema)] = part = _Part(schema, root)
            stack.extend(part.onward)
    return parts


def _names(schema: JSONObject) -> Iterator[str]:
    """Every property one part names."""
    for keyword in ("properties", "dependentRequired", "dependentSchemas", "dependencies"):
        members = schema.get(keyword)
        if isinstance(members, dict):
            yield from members
    required = schema.get("required")
    if isinstance(required, list):
        yield from (name for name in required if isinstance(name, str))


def _naming(parts: dict[int, _Part], ours: dict[str, str]) -> set[int]:
    """The parts that name a property of `ours`, or lead to one that does."""
    leading: dict[int, list[int]] = {}
    for key, part in parts.items():
        for item in part.onward:
            leading.setdefault(id(item), []).append(key)
    stack = [key for key, part in parts.items() if not ours.keys().isdisjoint(_names(part.schema))]
    naming: set[int] = set()
    while stack:
        key = stack.pop()
        if key not in naming:
            naming.add(key)
            stack.extend(leading.get(key, ()))
    return naming


def _rename(schema: JSON, root: JSONObject, ours: dict[str, str], naming: set[int], open_now: frozenset[int]) -> JSON:
    if not isinstance(schema, dict):
        return schema
    result: JSONObject = {}
    for keyword, value in schema.items():
        if keyword == "properties" and isinstance(value, dict):
            result[keyword] = {ours.get(name, name): item for name, item in value.items()}
        elif keyword == "required" and isinstance(value, list):
            result[keyword] = _renamed_list(value, ours)
        elif keyword in ("dependentRequired", "dependentSchemas", "dependencies") and isinstance(value, dict):
            result[keyword] = {
                ours.get(name, name): _renamed_list(item, ours)
                if isinstance(item, list)
                else _rename(item, root, ours, naming, open_now)
                for name, item in value.items()
            }
        elif keyword in _ALTERNATIVES:
            if isinstance(value, list):
                result[keyword] = [_rename(item, root, ours, naming, open_now) for item in value]
            else:
                result[keyword] = _rename(value, root, ours, naming, open_now)
        else:
            result[keyword] = value
    pointer = schema.get("$ref")
    target = resolve(root, pointer) if isinstance(pointer, str) else None
    if isinstance(target, dict) and id(target) in naming:
        # Others may refer to the target for values that are no parameters: only this use of it is renamed.
        del result["$ref"]
        if id(target) not in open_now:
            parts = result.get("allOf")
            inner = _rename(target, root, ours, naming, open_now | {id(target)})
            result["allOf"] = [*(parts if isinstance(parts, list) else []), inner]
    return result


def _renamed_list(names: list[JSON], ours: dict[str, str]) -> list[JSON]:
    return [ours.get(name, name) if isinstance(name, str) else name for name in names]


def matches_meta(pattern: str) -> bool:
    """Whether a `patternProperties` pattern may match the name of a meta-property."""
    # The names are short and ours: a pattern cannot be made to run away on them.
    try:
        return any(re.search(pattern, name) for name in META_PROPERTIES)
    except re.error:
        return True


def room_for_meta(schema: JSONObject) -> JSONObject:
    """Let a closed object that will be a call also hold the meta-properties."""
    closed = any(schema.get(word, True) is not True for word in ("additionalProperties", "unevaluatedProperties"))
    if closed:
        properties = schema.get("properties")
        names: JSONObject = dict.fromkeys(META_PROPERTIES, True)
        schema["properties"] = {**(properties if isinstance(properties, dict) else {}), **names}
    return schema


_NAMING: Final = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies")
_FURTHER: Final = ("additionalProperties", "unevaluatedProperties")
_BARE: Final = frozenset({"type", "title", "description"})
_WRAPPERS: Final = frozenset({"args", "arguments", "params", "parameters", "input"})
"""Names under which other protocols put the parameters of a call together."""

_HINTS: Final = 10
_SURELY: Final = 0.85
_LONG: Final = ("_outputPath", "_outputMethod")


class ParameterNames:
    """The names that the parameters of a tool have.

    They are *known* where the schema lists them in `properties`, directly or through `$ref`, `allOf`, `anyOf`, `oneOf`
    and conditions, and says nothing of further names (`additionalProperties`, `patternProperties`). A schema without
    properties takes any name.

    Args:
        tool: the name of the tool, for messages.
        schema: of its parameters.
    """

    def __init__(self, tool: str, schema: JSONObject) -> None:
        self._tool = tool
        self._listed, self.known = _collect(schema)
        self._names = frozenset(self._listed)

    def faults(self, call: JSONObject, *, briefly: bool = False) -> dict[str, str]:
        """What is wrong with the names in a call: by name, a message that says what was probably meant.

        Args:
            call: the parameters; meta-properties may stand beside them.
            briefly: do not look for the nearest names; it is not done for more than a few names either.
        """
        if self.known and call.keys() <= self._names:
            return {}
        found: dict[str, str] = {}
        for name, value in call.items():
            if name not in self._names and name not in META_PROPERTIES:
                meant = self._meant(name, value, briefly=briefly or len(found) >= _HINTS)
                if meant is not None:
                    found[name] = f"parameters: {name[:100]}: {meant}"
        return found

    def _meant(self, name: str, value: JSON, *, briefly: bool) -> str | None:
        meta = meant_meta(name)
        if meta is not None and (self.known or _is_surely(name, meta)):
            return f"found {show(value)}, expected no parameter of this name. Did you mean '{meta}'?"
        if not self.known:
            return None
        inside = _wrapped(value) if name in _WRAPPERS else None
        if inside is not None:
            written = show({"_tool": self._tool, **inside}, 200)
            return f"the parameters of a call stand beside _tool, not in an object of their own; write {written}"
        hint = "" if briefly else did_you_mean(name, self._listed)
        known = f"{list_names(self._listed)}{'.' if hint else ''}{hint}"
        return f"found {show(value)}, expected no parameter of this name; {known}"


def _wrapped(value: JSON) -> JSONObject | None:
    """The parameters in a wrapper: an object, or the text of one."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = decode(value)
        except IdeabridgeError:
            return {}
    return value if isinstance(value, dict) else None


@lru_cache(maxsize=1024)
def meant_meta(name: str) -> str | None:
    """The meta-property somebody meant who wrote `name`: `_outputpath`, `outputPath`, `_ouputPath` -> `_outputPath`.
    None: none.
    """
    if name in META_PROPERTIES or len(name) > 40:
        return None
    plain = _plain(name)
    for one in META_PROPERTIES:
        if plain == _plain(one):
            return one
    if not name.startswith("_"):
        return None
    ratio, nearest = max((SequenceMatcher(None, plain, _plain(one)).ratio(), one) for one in META_PROPERTIES)
    return nearest if ratio >= 0.75 else None


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()


def _is_surely(name: str, meta: str) -> bool:
    """Whether a tool that takes any name hardly has this one."""
    if not name.startswith("_"):
        return False
    plain, other = _plain(name), _plain(meta)
    return plain == other or (meta in _LONG and SequenceMatcher(None, plain, other).ratio() >= _SURELY)


def _collect(schema: JSONObject) -> tuple[tuple[str, ...], bool]:
    """(names of the parameters, whether there are no others)."""
    names: dict[str, None] = {}
    properties, known = False, True
    seen: set[int] = set()
    stack: list[JSONObject] = [schema]
    while stack:
        part = stack.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        names.update(dict.fromkeys(_names(part)))
        properties |= bool(part.get("properties"))
        known &= "patternProperties" not in part and all(part.get(word, False) is False for word in _FURTHER)
        for keyword in (word for word in REFERRING if word in part):
            target = resolve(schema, str(part[keyword])) if keyword == "$ref" else None
            # What leads elsewhere may name any property.
            known &= isinstance(target, dict)
            if isinstance(target, dict):
                stack.append(target)
        for place, child in children(part):
            if place[0] in _NAMING:
                # An alternative that asks for nothing takes any name.
                known &= place[0] not in ("anyOf", "oneOf") or (isinstance(child, dict) and not child.keys() <= _BARE)
                if isinstance(child, dict):
                    stack.append(child)
    return tuple(names), known and properties
