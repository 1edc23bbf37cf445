"""The schema of what a mind writes: a reference may stand for any part (DESIGN 4.2, 4.3)."""

from __future__ import annotations

import re
from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.explain import REFERENCE_PATTERN
from ideabridge.tools.keywords import REFERRING, check_size, children, resolve
from ideabridge.tools.names import safe_name
from ideabridge.tools.rename import matches_meta, room_for_meta
from ideabridge.tools.tool import META_PROPERTIES

REFERENCE: Final = "reference"
"""Name in `$defs` of the alternative "a reference"."""

_DROPPED: Final = frozenset(
    {
        *("$id", "$schema", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$comment"),
        # Definitions are hoisted when something refers to them.
        *("$defs", "definitions"),
        # Not to be judged while a part is a reference; `then` and `else` go with `if`, `additionalItems` with `items`.
        *("not", "uniqueItems", "maxContains", "contentSchema", "then", "else", "additionalItems"),
    }
)
_ANNOTATIONS: Final = ("title", "description", "default", "examples", "deprecated")
_BESIDE_TEXT: Final = frozenset({*_ANNOTATIONS, "type", "minLength", "readOnly", "writeOnly"})
_OLD: Final = re.compile(r"https?://json-schema\.org/draft-0[3-7]/schema#?")
# Deeper parts become definitions: a composed schema stays within what a validator takes.
_HOISTED_BELOW: Final = 12
# References to references can multiply without end.
_COPIES: Final = 1000


def admit_references(schema: JSONObject, *, top: bool = False) -> JSONObject:
    """A schema that also admits a reference string wherever `schema` wants a value.

    It admits every value that becomes valid once its references are read, and still refuses what is wrong outside
    them. What cannot be judged while a part is a reference is not judged: `oneOf` becomes `anyOf`; `not`,
    `uniqueItems` and `maxContains` go. Local `$ref`s, recursive ones too, live on in `$defs`; keywords of older drafts
    are written as 2020-12.

    Args:
        schema: the exact schema.
        top: whether a reference may also stand for the whole value (for an output; never for parameters).

    Raises:
        LimitExceededError: the schema is too large or too deep.
    """
    admitter = Admitter()
    result = admitter.admit(schema) if top else admitter.within(schema)
    whole = dict(result) if isinstance(result, dict) else _as_object(result)
    return admitter.finish(whole)


def _as_object(schema: JSON) -> JSONObject:
    return {} if schema is True else {"not": {}}


class Admitter:
    """Admits references in several schemas that will share one document and its `$defs`."""

    def __init__(self) -> None:
        self.defs: JSONObject = {}
        # Targets of `$ref` by their identity and their root's; both are kept, so that no identity is used twice.
        self._names: dict[tuple[int, int], tuple[str, JSON, JSON]] = {}

    def reference(self) -> JSONObject:
        """A `$ref` to the schema of a reference string."""
        self.defs.setdefault(
            REFERENCE,
            {
                "type": "string",
                "pattern": REFERENCE_PATTERN,
                "description": "A reference to a value, read when the call runs: †state.x, †input.x, †results.0.x",
            },
        )
        return {"$ref": f"#/$defs/{REFERENCE}"}

    def define(self, name: str, schema: JSONObject) -> JSONObject:
        """A `$ref` to `schema`, kept once under `name`."""
        self.defs.setdefault(name, schema)
        return {"$ref": f"#/$defs/{name}"}

    def admit(self, schema: JSONObject, label: str = "") -> JSON:
        """`schema` or a reference in its place."""
        admission = _Admission(self, schema, label)
        return admission.finished(admission.admit(schema, schema, 0))

    def within(self, schema: JSONObject, label: str = "") -> JSON:
        """`schema` with references admitted below the top."""
        admission = _Admission(self, schema, label)
        return admission.finished(admission.within(schema, schema, 0))

    def parameters(self, schema: JSONObject, label: str) -> JSONObject:
        """As `within`, for an object that will hold the meta-properties of a call too."""
        admission = _Admission(self, schema, label)
        result = admission.finished(admission.within(schema, schema, 0, top=True))
        return result if isinstance(result, dict) else {}

    def finish(self, schema: JSONObject) -> JSONObject:
        """The document: `schema` and the definitions it refers to."""
        if self.defs:
            schema["$defs"] = {**self.defs}
        return schema

    def hoist(self, target: JSON, root: JSON, wanted: str) -> tuple[str, bool]:
        """(name in `$defs` of the definition made of `target`, whether it is new)."""
        known = self._names.get((id(target), id(root)))
        if known is not None:
            return known[0], False
        name = safe_name(wanted, self.defs)
        self.defs[name] = True  # holds the name while the definition, maybe recursive, is made
        self._names[id(target), id(root)] = (name, target, root)
        return name, True


class _Admission:
    """One pass over one schema."""

    def __init__(self, admitter: Admitter, root: JSONObject, label: str) -> None:
        check_size(root, label or "schema")
        self._admitter = admitter
        self._label = label
        self._inlined: set[int] = set()
        self._copies = 0
        self._pending: list[tuple[str, JSONObject, JSONObject]] = []
        self._named: dict[str, JSONObject] = {}
        self._unevaluated = False
        declared = root.get("$schema")
        self._old = isinstance(declared, str) and _OLD.fullmatch(declared) is not None
        stack: list[JSON] = [root]
        while stack:
            item = stack.pop()
            if isinstance(item, dict):
                self._index(item)
                stack.extend(child for _, child in children(item))

    def _index(self, schema: JSONObject) -> None:
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(keyword)
            if isinstance(anchor, str):
                self._named.setdefault(f"#{anchor}", schema)
        identity = schema.get("$id")
        if isinstance(identity, str):
            self._named.setdefault(identity.rstrip("#"), schema)
        self._unevaluated |= "unevaluatedProperties" in schema or "unevaluatedItems" in schema

    def finished(self, result: JSON) -> JSON:
        """`result`, once the definitions it refers to are made, one after the other: chains of them can be long."""
        while self._pending:
            name, target, root = self._pending.pop()
            self._admitter.defs[name] = self.within(target, root, 0)
        return result

    def admit(self, schema: JSON, root: JSONObject, depth: int) -> JSON:
        """`schema` or a reference; its annotations stay outside the alternatives."""
        inner = self.within(schema, root, depth)
        if not isinstance(inner, dict) or _takes_references(inner):
            return inner
        outer: JSONObject = {word: inner.pop(word) for word in _ANNOTATIONS if word in inner}
        branches = inner.get("anyOf")
        if len(inner) == 1 and isinstance(branches, list):
            return {**outer, "anyOf": [*branches, self._admitter.reference()]}
        return {**outer, "anyOf": [inner, self._admitter.reference()]}

    def within(self, schema: JSON, root: JSONObject, depth: int, *, top: bool = False) -> JSON:
        """`schema` for a value that is itself no reference but may hold some."""
        if not isinstance(schema, dict):
            return schema if isinstance(schema, bool) else True
        if depth > _HOISTED_BELOW and not top:
            return self._refer(schema, root, "part")
        if schema is not root and isinstance(schema.get("$id"), str):
            root = schema
        out: JSONObject = {}
        parts: list[JSON] = []
        for keyword, value in schema.items():
            if keyword in REFERRING:
                self._reference(value, root, depth, out, parts, top=top)
            elif self._old and "$ref" in schema:
                continue  # draft 7 and older: what stands beside `$ref` does not count
            elif keyword not in _DROPPED:
                self._keyword(keyword, value, schema, root, depth, out, parts, top=top)
        if parts:
            before = out.get("allOf")
            out["allOf"] = [*(before if isinstance(before, list) else []), *parts]
        return room_for_meta(out) if top else out

    def _reference(
        self, value: JSON, root: JSONObject, depth: int, out: JSONObject, parts: list[JSON], *, top: bool
    ) -> None:
        if not isinstance(value, str):
            return
        if value.startswith(("https://json-schema.org/", "http://json-schema.org/")):
            parts.append({"$ref": value})
            return
        found = resolve(root, value)
        target_root = root
        if found is None:
            found = self._named.get(value.rstrip("#"))
            if found is not None and not value.startswith("#"):
                target_root = found
        if not isinstance(found, dict):
            # What leads nowhere is not judged here; the exact schema reports it.
            if found is False:
                parts.append(False)
            return
        if not top:
            reference = self._refer(found, target_root, value.rsplit("/", 1)[-1])
            if "$ref" in out:
                parts.append(reference)
            else:
                out.update(reference)
        elif id(found) not in self._inlined and self._copies < _COPIES:
            # The parameters of a call share its object with the meta-properties: a copy that makes room for them.
            self._copies += 1
            self._inlined.add(id(found))
            parts.append(self.within(found, target_root, depth, top=True))
            self._inlined.discard(id(found))

    def _refer(self, target: JSONObject, root: JSONObject, name: str) -> JSONObject:
        wanted = f"{self._label}_{name.lstrip('#')}" if self._label else name.lstrip("#") or "root"
        found, new = self._admitter.hoist(target, root, wanted)
        if new:
            self._pending.append((found, target, root))
        return {"$ref": f"#/$defs/{found}"}

    def _keyword(
        self,
        keyword: str,
        value: JSON,
        schema: JSONObject,
        root: JSONObject,
        depth: int,
        out: JSONObject,
        parts: list[JSON],
        *,
        top: bool,
    ) -> None:
        below = depth + 1
        match keyword, value:
            case "properties", dict():
                out[keyword] = {name: self.admit(item, root, below) for name, item in value.items()}
            case "patternProperties", dict():
                out[keyword] = {
                    name: True if top and matches_meta(name) else self.admit(item, root, below)
                    for name, item in value.items()
                }
            case ("items", list()) | ("prefixItems", list()):
                out["prefixItems"] = [self.admit(item, root, below) for item in value]
                if keyword == "items" and "additionalItems" in schema:
                    out["items"] = self.admit(schema["additionalItems"], root, below)
            case (("items" | "additionalProperties" | "unevaluatedProperties" | "unevaluatedItems" | "contains"), _):
                out[keyword] = self.admit(value, root, below)
            case "propertyNames", _:
                names = self.within(value, root, below)
                out[keyword] = {"anyOf": [names, {"enum": list(META_PROPERTIES)}]} if top else names
            case (("allOf" | "anyOf" | "oneOf"), list()):
                branches: list[JSON] = [self.within(item, root, below, top=top) for item in value]
                if keyword == "oneOf":
                    # Two may fit while what tells them apart is a reference.
                    if "anyOf" in schema:
                        parts.append({"anyOf": branches})
                    else:
                        out["anyOf"] = branches
                else:
                    out[keyword] = branches
            case "if", _:
                self._condition(schema, root, below, parts, top=top)
            case "dependentSchemas", dict():
                out[keyword] = {name: self.within(item, root, below, top=top) for name, item in value.items()}
            case "dependencies", dict():
                self._dependencies(value, root, below, out, top=top)
            case (("const" | "enum"), _):
                if not top:
                    self._constant(value if isinstance(value, list) and keyword == "enum" else [value], out, parts)
            case (("exclusiveMinimum" | "exclusiveMaximum"), bool()):
                bound = schema.get(keyword.replace("exclusiveM", "m"))
                if value and bound is not None:
                    out[keyword] = bound
            case (("minProperties" | "maxProperties"), _) if top:
                pass  # meta-properties would count
            case _:
                out[keyword] = value

    def _condition(self, schema: JSONObject, root: JSONObject, depth: int, parts: list[JSON], *, top: bool) -> None:
        """`if` holds and `then`, or `else`: one of the two, whichever it is once references are read."""
        if not self._unevaluated and not ("then" in schema and "else" in schema):
            return
        words = ("if", "then", "else")
        test, then, other = (self.within(schema.get(word, True), root, depth, top=top) for word in words)
        parts.append({"anyOf": [{"allOf": [test, then]}, other]})

    def _dependencies(self, value: JSONObject, root: JSONObject, depth: int, out: JSONObject, *, top: bool) -> None:
        needed: JSONObject = {name: item for name, item in value.items() if isinstance(item, list)}
        if needed:
            out["dependentRequired"] = needed
        schemas: JSONObject = {
            name: self.within(item, root, depth, top=top) for name, item in value.items() if not isinstance(item, list)
        }
        if schemas:
            out["dependentSchemas"] = schemas

    def _constant(self, values: list[JSON], out: JSONObject, parts: list[JSON]) -> None:
        plain: list[JSON] = [value for value in values if not isinstance(value, dict | list)]
        if len(plain) == len(values):
            if len(values) == 1 and "const" not in out:
                out["const"] = values[0]
            else:
                out["enum"] = values
            return
        branches: list[JSON] = [self._exactly(value) for value in values if isinstance(value, dict | list)]
        if plain:
            branches.append({"enum": plain})
        parts.append(branches[0] if len(branches) == 1 else {"anyOf": branches})

    def _exactly(self, value: JSON, *, below: bool = False) -> JSON:
        """The schema of one value, any part of which may be a reference."""
        if isinstance(value, list):
            items: list[JSON] = [self._exactly(item, below=True) for item in value]
            schema: JSONObject = {"type": "array", "minItems": len(items), "maxItems": len(items)}
            if items:
                schema["prefixItems"] = items
        elif isinstance(value, dict):
            members: JSONObject = {key: self._exactly(item, below=True) for key, item in value.items()}
            schema = {"type": "object", "properties": members, "required": list(value), "additionalProperties": False}
        else:
            schema = {"const": value}
        return {"anyOf": [schema, self._admitter.reference()]} if below else schema


def _takes_references(schema: JSONObject) -> bool:
    """Whether a composed schema takes any reference string without saying so."""
    if not schema.keys() - set(_ANNOTATIONS):
        return True
    kind = schema.get("type")
    text = kind == "string" or (isinstance(kind, list) and "string" in kind)
    return text and not schema.keys() - _BESIDE_TEXT and schema.get("minLength", 0) in (0, 1)
