"""Composes the schema of a Solution from the tools and the schema of the output.

`Admitter` widens the schema of a tool, because a reference may replace any part of a call; `solution_schema` combines
the schemas of the calls with meta-properties and the output.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ToolDefinitionError
from ideabridge.tools.keywords import (
    REFERENCE_PATTERN,
    REFERRING,
    check_size,
    children,
    describe,
    move_refs,
    resolve,
    schemas_in,
)
from ideabridge.tools.names import safe_name
from ideabridge.tools.rename import matches_meta, rename_meta_parameters, room_for_meta
from ideabridge.tools.tool import ANONYMOUS, META_PROPERTIES, Tool, ToolKey

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
        for _, part in schemas_in(root):
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(anchor := part.get(keyword), str):
                    self._named.setdefault(f"#{anchor}", part)
            if isinstance(identity := part.get("$id"), str):
                self._named.setdefault(identity.rstrip("#"), part)
            self._unevaluated |= "unevaluatedProperties" in part or "unevaluatedItems" in part

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


# -- compose ---------------------------------------------------------------------------------------------------------

__all__ = ["admit_references", "call_schema", "rename_meta_parameters", "solution_schema", "wrap_output"]

MAX_LISTED_INSTANCES: Final = 50
"""Up to this many instances, `_instance` is an enum; more are checked when the call is read."""

_RESULT: Final = 300

_ID: Final[JSONObject] = {"type": "string", "description": "A name for this call, for _after of others"}
_AFTER: Final[JSONObject] = {
    "type": "array",
    "items": {"type": "string"},
    "description": "_id of calls to wait for, where no reference says so",
}
_OUTPUT_PATH: Final[JSONObject] = {
    "type": "string",
    "description": "Where in the state the result is written: †state.x. 'p || q': a failure goes to q."
    " 'p && q': both. Left out, it is †results.N, N counting this run's calls from 0",
}
_OUTPUT_METHOD: Final[JSONObject] = {
    "enum": ["set", "merge", "push"],
    "description": "How it is written there: set (default) replaces, merge joins objects, push appends to an array",
}
_ACTIVITY: Final[JSONObject] = {
    "type": "string",
    "description": "Name of other code to run this call; usually left out",
}
_IMPORTS: Final[JSONObject] = {
    "type": "array",
    "items": {"type": "string"},
    "description": 'References a clean room may see, such as "input" or "†state.doc"; it sees nothing else from here',
}
_CLEAN: Final[JSONObject] = {
    "const": ANONYMOUS,
    "description": "Have it answered in a clean room, which sees the parameters and _imports alone",
}
_RESULT_HERE: Final = (
    "The result, written now. Left out where it must be written once the values the parameters refer to are known"
)


def call_schema(tool: Tool, *, latent: bool, instances: Sequence[str] = ()) -> JSONObject:
    """The schema of one Call of `tool`: a document by itself, a closed object.

    Args:
        tool: the tool called.
        latent: no activity stands behind it, so the mind writes `_output`.
        instances: the ids `_instance` may name; none: the call has no `_instance`.

    Raises:
        ToolDefinitionError: a parameter has the name of a meta-property (see `rename_meta_parameters`).
        LimitExceededError: the tool's schema is too large or too deep.
    """
    admitter = Admitter()
    return admitter.finish(_call(tool, latent, instances, admitter))


def solution_schema(
    tools: Sequence[Tool],
    output: JSONObject | None,
    *,
    latent: Container[ToolKey] = (),
    instances: Sequence[str] = (),
    extra: Mapping[str, JSONObject] | None = None,
) -> JSONObject:
    """The schema a Solution must satisfy: `{"calls": [...], "output": ... or null}`, in this order.

    Args:
        tools: what may be called, in the order shown; with none, `calls` is an empty array.
        output: schema of the wanted output; None: text. One that allows null is wrapped (see `wrap_output`).
        latent: keys of the tools without an activity.
        instances: the ids `_instance` may name, where there are any.
        extra: properties before `calls`, such as a `thought_process`.

    Raises:
        ToolDefinitionError, LimitExceededError: as `call_schema`.
        SchemaError: the schema of the output is invalid.
    """
    admitter = Admitter()
    calls: JSONObject = {"type": "array", "description": "Calls to run; those that share no data run in parallel"}
    if tools:
        listed: list[JSON] = [_call(tool, tool.key in latent, instances, admitter) for tool in tools]
        calls["items"] = {"anyOf": listed}
    else:
        calls["maxItems"] = 0
    properties: JSONObject = {}
    for name, schema in (extra or {}).items():
        properties[name] = move_refs(schema, ("properties", name))
    properties["calls"] = calls
    properties["output"] = _output(output, admitter)
    return admitter.finish(
        {
            "type": "object",
            "properties": properties,
            "required": ["calls", "output"],
            "additionalProperties": False,
        }
    )


def wrap_output(schema: JSONObject | None) -> tuple[JSONObject, bool]:
    """The schema of the output as the mind answers it, and whether it is wrapped as `{"value": ...}`.

    Null means "no output yet", so a schema that allows null is wrapped; None means text. Wrapping twice does nothing.

    Raises:
        SchemaError, LimitExceededError: the schema cannot be used.
    """
    if schema is None:
        return {"type": "string"}, False
    from ideabridge.tools.schema import Validator

    if not Validator(schema, what="the output").is_valid(None):
        return schema, False
    wrapped: JSONObject = {"type": "object", "properties": {"value": move_refs(schema, ("properties", "value"))}}
    wrapped.update({"required": ["value"], "additionalProperties": False})
    declared = schema.get("$schema")
    return ({"$schema": declared, **wrapped} if declared is not None else wrapped), True


def _output(schema: JSONObject | None, admitter: Admitter) -> JSON:
    wanted, _ = wrap_output(schema)
    found = admitter.admit(wanted, "output")
    admitted: JSONObject = found if isinstance(found, dict) else {}
    told = admitted.pop("description", None)
    notes = "The result, once known; null while calls must run first and their results be seen"
    branches = admitted.get("anyOf") if len(admitted) == 1 else None
    whole: list[JSON] = [*branches] if isinstance(branches, list) else [admitted]
    description = f"{told}\n{notes}" if isinstance(told, str) and told else notes
    return {"description": description, "anyOf": [*whole, {"type": "null"}]}


def _call(tool: Tool, latent: bool, instances: Sequence[str], admitter: Admitter) -> JSONObject:
    label = tool.name if tool.module is None else f"{tool.module}_{tool.name}"
    parameters = admitter.parameters(tool.parameters, label)
    own = parameters.pop("properties", {})
    if not isinstance(own, dict):
        own = {}
    declared = tool.parameters.get("properties")
    taken = [name for name in declared if name in META_PROPERTIES] if isinstance(declared, dict) else []
    if taken:
        raise ToolDefinitionError(f"tool {tool.name!r}: parameter {taken[0]!r} has the name of a meta-property")
    own = {name: schema for name, schema in own.items() if name not in META_PROPERTIES}
    before, needed = _meta_before(tool, latent, instances, admitter)
    after = _meta_after(tool, latent, admitter)
    names, opened = _inside(parameters)
    rest: JSONObject = {name: True for name in names if name not in own and name not in META_PROPERTIES}
    # A schema that does not speak of properties takes any.
    opened |= declared is None and not rest
    required = parameters.pop("required", None)
    known = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    result: JSONObject = {"type": "object"}
    description = _description(tool)
    if description:
        result["description"] = description
    result["properties"] = {**before, **own, **rest, **after}
    result["required"] = [*dict.fromkeys([*needed, *known])]
    for word in ("type", "title", "description", "default", "examples"):
        parameters.pop(word, None)
    result.update(parameters)
    if not opened and "unevaluatedProperties" not in result:
        result.setdefault("additionalProperties", False)
    return result


def _meta_before(
    tool: Tool, latent: bool, instances: Sequence[str], admitter: Admitter
) -> tuple[JSONObject, list[str]]:
    """(meta-properties before the parameters, those that are required)."""
    meta: JSONObject = {"_tool": {"const": tool.name}}
    needed = ["_tool"]
    if tool.module is not None:
        meta["_module"] = {"const": tool.module}
        needed.append("_module")
    elif tool.clean or _gives_constant(tool, latent):
        # What its definition fixes is not offered again.
        pass
    elif latent:
        meta["_module"] = admitter.define("_module", _CLEAN)
    elif tool.activity is None:
        meta["_activity"] = admitter.define("_activity", _ACTIVITY)
    if instances:
        listed: JSONObject = {"description": "Which instance the call is for"}
        if len(instances) <= MAX_LISTED_INSTANCES:
            listed["enum"] = list(instances)
        else:
            shown = ", ".join(instances[:3])
            listed = {
                "type": "string",
                "description": f"Which instance the call is for: one of {len(instances)} ({shown}, …)",
            }
        meta["_instance"] = admitter.define("_instance", listed)
        needed.append("_instance")
    if tool.in_room or tool.clean or (latent and not _gives_constant(tool, latent)):
        meta["_imports"] = admitter.define("_imports", _IMPORTS)
    return meta, needed


def _gives_constant(tool: Tool, latent: bool) -> bool:
    """Whether the definition of the tool fixes the result."""
    return latent and tool.output is not None and "const" in tool.output


def _meta_after(tool: Tool, latent: bool, admitter: Admitter) -> JSONObject:
    meta: JSONObject = {}
    if latent and not tool.clean and not _gives_constant(tool, latent):
        meta["_output"] = _described(
            True if tool.output is None else admitter.admit(tool.output, f"{tool.name}_output")
        )
    meta["_outputPath"] = admitter.define("_outputPath", _OUTPUT_PATH)
    meta["_outputMethod"] = admitter.define("_outputMethod", _OUTPUT_METHOD)
    each: JSONObject = {
        "anyOf": [admitter.reference(), {"type": "array"}],
        "description": "An array: the call runs once for each item, which parameters read as †item or †item.x",
    }
    meta["_each"] = admitter.define("_each", each)
    meta["_after"] = admitter.define("_after", _AFTER)
    meta["_id"] = admitter.define("_id", _ID)
    return meta


def _described(result: JSON) -> JSON:
    """The schema of `_output`, saying when it is written."""
    told = result.get("description") if isinstance(result, dict) else None
    description = f"{told}\n{_RESULT_HERE}" if isinstance(told, str) and told else _RESULT_HERE
    return {**result, "description": description} if isinstance(result, dict) else {"description": description}


def _inside(schema: JSONObject) -> tuple[list[str], bool]:
    """(properties that alternatives inside a call's schema name, whether any of it admits names of its own)."""
    names: dict[str, None] = {}
    opened = False
    stack: list[tuple[JSONObject, bool]] = [(schema, True)]
    while stack:
        item, outermost = stack.pop()
        properties = item.get("properties")
        if isinstance(properties, dict):
            names.update(dict.fromkeys(properties))
        if not outermost or "additionalProperties" not in item:
            opened |= "patternProperties" in item or item.get("additionalProperties", False) is not False
        for place, child in children(item):
            if isinstance(child, dict) and place[0] in ("allOf", "anyOf", "dependentSchemas"):
                stack.append((child, False))
    return list(names), opened


def _description(tool: Tool) -> str:
    """What the tool does and what comes back: a plan refers to parts of results nobody has seen yet."""
    result = _shape(tool.output, tool.output, 2) if tool.output is not None else ""
    if not result or result == "any value":
        return tool.description
    told = f"Result: {result if len(result) <= _RESULT else result[:_RESULT] + '…'}"
    return f"{tool.description.rstrip()}\n{told}" if tool.description.strip() else told


def _shape(schema: JSON, root: JSON, depth: int) -> str:
    if isinstance(schema, dict) and depth > 0:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            return (
                "{" + ", ".join(f"{name}: {_shape(item, root, depth - 1)}" for name, item in properties.items()) + "}"
            )
        items = schema.get("items")
        if isinstance(items, dict):
            return f"array of {_shape(items, root, depth)}"
    return describe(schema, root)
