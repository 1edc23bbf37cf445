"""Compose the schema of a Solution from the tools and the schema of the output.

A reference can replace any part of a call, so `Admitter` widens schemas to accept references.
`solution_schema` combines the widened schemas of the calls with the meta-properties and the output.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.errors import ToolDefinitionError
from ideabridge.tools.json_parts import values_in
from ideabridge.tools.keywords import (
    REFERENCE_PATTERN,
    REFERRING,
    add_to_all_of,
    check_size,
    children,
    describe,
    json_schema_draft,
    move_refs,
    resolve,
    schemas_in,
)
from ideabridge.tools.names import safe_name
from ideabridge.tools.rename import matches_meta, room_for_meta
from ideabridge.tools.tool import ANONYMOUS, META_PROPERTIES, Tool, ToolKey

_REFERENCE: Final[JSONObject] = {
    "type": "string",
    "pattern": REFERENCE_PATTERN,
    "description": "A reference to a value, read when the call runs: †state.x, †input.x, †results.0.x",
}
_DROPPED: Final = frozenset(
    {
        *(
            "$id",
            "$schema",
            "$anchor",
            "$dynamicAnchor",
            "$recursiveAnchor",
            "$vocabulary",
            "$comment",
        ),
        # Definitions are not copied here. Each one is written when a schema refers to it.
        *("$defs", "definitions"),
        # These keywords either cannot be checked while a part is still a reference, or are handled
        # together with another keyword (`then`, `else`, `additionalItems`).
        *("not", "uniqueItems", "maxContains", "contentSchema", "then", "else", "additionalItems"),
    }
)
_ANNOTATIONS: Final = ("title", "description", "default", "examples", "deprecated")
_BESIDE_TEXT: Final = frozenset({*_ANNOTATIONS, "type", "minLength", "readOnly", "writeOnly"})
_OLD: Final = frozenset(f"json-schema.org/draft-0{number}/schema" for number in range(3, 8))
"""Drafts in which the keywords next to a `$ref` are ignored."""

_INLINE_DEPTH: Final = 12
"""The depth below which nested schemas become definitions, to keep the composed schema shallow
enough for a validator.
"""

_COPIES: Final = 1000
"""Maximum number of copies of referenced schemas at the top of one schema. References to references
could otherwise multiply without end.
"""

_SPELLED: Final = 2000
"""Maximum total number of values in constant arrays and objects that are spelled out as schemas. A
spelled-out digit takes 60 bytes.
"""


def admit_references(schema: JSONObject, *, top: bool = False) -> JSONObject:
    """Return a schema that also accepts a reference string instead of any value.

    The result accepts every value that satisfies `schema` once its references are replaced, and
    still rejects values that are wrong outside the references. Constraints that cannot be checked
    while a part is a reference are dropped: `oneOf` becomes `anyOf`; `not`, `uniqueItems` and
    `maxContains` are omitted. Once the constant arrays and objects hold more than 2,000 values in
    total, further constants are checked only for their type. Targets of local `$ref`s move to
    `$defs`, and keywords of older drafts are written as 2020-12.

    Args:
        schema: the exact schema.
        top: whether to also accept a reference instead of the whole value: True for an output,
            False for parameters.

    Raises:
        LimitExceededError: the schema is too large or too deeply nested.
    """
    admitter = Admitter()
    result = admitter.admit(schema) if top else admitter.within(schema)
    admitted: JSONObject = {}
    if isinstance(result, dict):
        admitted.update(result)
    elif result is False:
        admitted["not"] = {}

    return admitter.finish(admitted)


class Admitter:
    """Admits references in several schemas that share the `$defs` of one document."""

    def __init__(self) -> None:
        self.defs: JSONObject = {}
        # Maps the target of each `$ref` to its name in `$defs`. The key is the `id()` of the target
        # and the `id()` of its root. The entry keeps both alive so that their ids cannot be reused.
        self._names: dict[tuple[int, int], tuple[str, JSON, JSON]] = {}

    def reference(self) -> JSONObject:
        """Return a `$ref` to the schema of a reference string."""
        return self.define("reference", _REFERENCE)

    def define(self, name: str, schema: JSONObject) -> JSONObject:
        """Store `schema` once under `name`, and return a `$ref` to it."""
        self.defs.setdefault(name, schema)
        return {"$ref": f"#/$defs/{name}"}

    def admit(self, schema: JSONObject, label: str = "") -> JSON:
        """Return `schema` with references accepted, even instead of the whole value."""
        admission = _Admission(self, schema, label)
        return admission.finished(admission.admit(schema, schema, 0))

    def within(self, schema: JSONObject, label: str = "", *, top: bool = False) -> JSON:
        """Return `schema` with references admitted below the top. Definition names begin with
        `label`.

        If `top` is set, the object that `schema` describes will also contain a call's
        meta-properties.
        """
        admission = _Admission(self, schema, label)
        return admission.finished(admission.within(schema, schema, 0, top=top))

    def finish(self, schema: JSONObject) -> JSONObject:
        """Return a complete document: `schema` together with the definitions that it refers to."""
        if self.defs:
            schema["$defs"] = {**self.defs}
        return schema

    def name_of(self, target: JSON, root: JSON, proposed: str) -> tuple[str, bool]:
        """Return the name of `target` in `$defs`, and whether its definition is not written yet."""
        earlier = self._names.get((id(target), id(root)))
        if earlier is not None:
            return earlier[0], False

        name = safe_name(proposed, self.defs)
        self.defs[name] = (
            True  # Reserve the name first, because the definition can refer to itself.
        )
        self._names[id(target), id(root)] = (name, target, root)
        return name, True


@dataclass(slots=True)
class _Part:
    """The state of one schema while it is being extended to accept references.

    Attributes:
        root: the document that the schema's `$ref`s refer to.
        top: whether the object that the schema describes will also contain a call's
            meta-properties.
        out: the keywords written so far.
        also: schemas to add to `allOf`.
    """

    schema: JSONObject
    root: JSONObject
    depth: int
    top: bool
    out: JSONObject
    also: list[JSON]


class _Admission:
    """The state of one pass that admits references in a schema."""

    def __init__(self, admitter: Admitter, root: JSONObject, label: str) -> None:
        check_size(root, label or "schema")
        self._admitter = admitter
        self._label = label
        self._inlined: set[int] = set()
        self._copies = 0
        self._spelled = 0
        self._pending: list[tuple[str, JSONObject, JSONObject]] = []
        self._named: dict[str, JSONObject] = {}
        self._unevaluated = False
        self._old = json_schema_draft(root) in _OLD
        for _, part in schemas_in(root):
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(anchor := part.get(keyword), str):
                    self._named.setdefault(f"#{anchor}", part)
            if isinstance(identity := part.get("$id"), str):
                self._named.setdefault(identity.rstrip("#"), part)
            self._unevaluated |= "unevaluatedProperties" in part or "unevaluatedItems" in part

    def finished(self, result: JSON) -> JSON:
        """Write the definitions that `result` refers to, and return `result`. This method loops
        instead of recursing, because chains of references can be long.
        """
        while self._pending:
            name, target, root = self._pending.pop()
            self._admitter.defs[name] = self.within(target, root, 0)
        return result

    def admit(self, schema: JSON, root: JSONObject, depth: int) -> JSON:
        """Return a schema that accepts either `schema` or a reference. Annotations stay outside the
        alternatives.
        """
        inner = self.within(schema, root, depth)
        if not isinstance(inner, dict) or _takes_references(inner):
            return inner

        outer: JSONObject = {word: inner.pop(word) for word in _ANNOTATIONS if word in inner}
        branches = inner.get("anyOf")
        if len(inner) == 1 and isinstance(branches, list):
            return {**outer, "anyOf": [*branches, self._admitter.reference()]}
        return {**outer, "anyOf": [inner, self._admitter.reference()]}

    def within(self, schema: JSON, root: JSONObject, depth: int, *, top: bool = False) -> JSON:
        """Admit references inside a value of `schema` that is itself not a reference."""
        if not isinstance(schema, dict):
            return schema if isinstance(schema, bool) else True
        if depth > _INLINE_DEPTH and not top:
            return self._refer(schema, root, "part")

        if schema is not root and isinstance(schema.get("$id"), str):
            root = schema

        part = _Part(schema, root, depth, top, {}, [])
        for keyword, value in schema.items():
            if keyword in REFERRING:
                self._reference(part, value)
            elif keyword not in _DROPPED and not (self._old and "$ref" in schema):
                self._keyword(part, keyword, value)

        if part.also:
            add_to_all_of(part.out, *part.also)

        return room_for_meta(part.out) if top else part.out

    def _reference(self, part: _Part, value: JSON) -> None:
        if not isinstance(value, str):
            return
        if value.startswith(("https://json-schema.org/", "http://json-schema.org/")):
            part.also.append({"$ref": value})
            return

        root = part.root
        target = resolve(root, value)
        if target is None:
            target = self._named.get(value.rstrip("#"))
            if target is not None and not value.startswith("#"):
                root = target

        if not isinstance(target, dict):
            # Ignore a reference that leads nowhere: the check of the exact schema reports it.
            if target is False:
                part.also.append(False)
        elif not part.top:
            reference = self._refer(target, root, value.rsplit("/", 1)[-1])
            if "$ref" in part.out:
                part.also.append(reference)
            else:
                part.out.update(reference)
        elif id(target) not in self._inlined and self._copies < _COPIES:
            # A call's parameters and its meta-properties are members of the same object, so the
            # target must also allow the meta-properties. Allow them in a copy, because elsewhere
            # the target might describe an ordinary value.
            self._copies += 1
            self._inlined.add(id(target))
            part.also.append(self.within(target, root, part.depth, top=True))
            self._inlined.discard(id(target))

    def _refer(self, target: JSONObject, root: JSONObject, name: str) -> JSONObject:
        if self._label:
            proposed = f"{self._label}_{name.lstrip('#')}"
        else:
            proposed = name.lstrip("#") or "root"

        name, is_new = self._admitter.name_of(target, root, proposed)
        if is_new:
            self._pending.append((name, target, root))
        return {"$ref": f"#/$defs/{name}"}

    def _keyword(self, part: _Part, keyword: str, value: JSON) -> None:
        schema = part.schema
        root = part.root
        top = part.top
        out = part.out
        below = part.depth + 1
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
            case (
                (
                    "items"
                    | "additionalProperties"
                    | "unevaluatedProperties"
                    | "unevaluatedItems"
                    | "contains"
                ),
                _,
            ):
                out[keyword] = self.admit(value, root, below)
            case "propertyNames", _:
                names = self.within(value, root, below)
                out[keyword] = {"anyOf": [names, {"enum": list(META_PROPERTIES)}]} if top else names
            case (("allOf" | "anyOf" | "oneOf"), list()):
                branches: list[JSON] = [self.within(item, root, below, top=top) for item in value]
                # Use `anyOf`, because several alternatives can fit as long as the property that
                # distinguishes them is still a reference.
                if keyword == "oneOf" and "anyOf" in schema:
                    part.also.append({"anyOf": branches})
                else:
                    out["anyOf" if keyword == "oneOf" else keyword] = branches
            case "if", _:
                # Either `if` and `then` both hold, or `else` does. This is known only after the
                # references have been replaced, so allow both.
                if self._unevaluated or ("then" in schema and "else" in schema):
                    words = ("if", "then", "else")
                    test, then, other = (
                        self.within(schema.get(word, True), root, below, top=top) for word in words
                    )
                    part.also.append({"anyOf": [{"allOf": [test, then]}, other]})
            case "dependentSchemas", dict():
                out[keyword] = {
                    name: self.within(item, root, below, top=top) for name, item in value.items()
                }
            case "dependencies", dict():
                names_of: JSONObject = {
                    name: item for name, item in value.items() if isinstance(item, list)
                }
                schemas: JSONObject = {
                    name: self.within(item, root, below, top=top)
                    for name, item in value.items()
                    if name not in names_of
                }
                if names_of:
                    out["dependentRequired"] = names_of
                if schemas:
                    out["dependentSchemas"] = schemas
            case (("const" | "enum"), _):
                if not top:
                    self._constant(
                        part, value if isinstance(value, list) and keyword == "enum" else [value]
                    )
            case (("exclusiveMinimum" | "exclusiveMaximum"), bool()):
                bound = schema.get(keyword.replace("exclusiveM", "m"))
                if value and bound is not None:
                    out[keyword] = bound
            case (("minProperties" | "maxProperties"), _) if top:
                pass  # The count would include the meta-properties.
            case _:
                out[keyword] = value

    def _constant(self, part: _Part, values: list[JSON]) -> None:
        plain: list[JSON] = [value for value in values if not isinstance(value, dict | list)]
        if len(plain) == len(values):
            if len(values) == 1 and "const" not in part.out:
                part.out["const"] = values[0]
            else:
                part.out["enum"] = values
            return

        containers = [value for value in values if isinstance(value, dict | list)]
        count = sum(1 for value in containers for _ in values_in(value))
        branches: list[JSON]
        if self._spelled + count <= _SPELLED:
            self._spelled += count
            branches = [self._exactly(value) for value in containers]
        else:
            kinds = {"array" if isinstance(value, list) else "object" for value in containers}
            branches = [{"type": kind} for kind in sorted(kinds)]

        if plain:
            branches.append({"enum": plain})

        part.also.append(branches[0] if len(branches) == 1 else {"anyOf": branches})

    def _exactly(self, value: JSON, *, below: bool = False) -> JSON:
        """Return a schema for a constant, any part of which can be a reference."""
        if isinstance(value, list):
            items: list[JSON] = [self._exactly(item, below=True) for item in value]
            schema: JSONObject = {"type": "array", "minItems": len(items), "maxItems": len(items)}
            if items:
                schema["prefixItems"] = items
        elif isinstance(value, dict):
            members: JSONObject = {
                key: self._exactly(item, below=True) for key, item in value.items()
            }
            schema = {
                "type": "object",
                "properties": members,
                "required": list(value),
                "additionalProperties": False,
            }
        else:
            schema = {"const": value}
        return {"anyOf": [schema, self._admitter.reference()]} if below else schema


def _takes_references(schema: JSONObject) -> bool:
    """Return whether a composed schema already accepts any reference string."""
    if not schema.keys() - set(_ANNOTATIONS):
        return True
    kind = schema.get("type")
    is_text = kind == "string" or (isinstance(kind, list) and "string" in kind)
    return is_text and not schema.keys() - _BESIDE_TEXT and schema.get("minLength", 0) in (0, 1)


# -- schemas of calls and Solutions ----------------------------------------------------------------

MAX_LISTED_INSTANCES: Final = 50
"""Maximum number of instances that `_instance` lists in an enum. If there are more, the value is
checked when the call is read.
"""

_RESULT: Final = 300
"""Maximum length, in characters, of a description of the shape of a result."""

_ID: Final[JSONObject] = {
    "type": "string",
    "description": "A name for this call, for _after of others",
}
_AFTER: Final[JSONObject] = {
    "type": "array",
    "items": {"type": "string"},
    "description": "_id of calls to wait for, where no reference says so",
}
_OUTPUT_PATH: Final[JSONObject] = {
    "type": "string",
    "description": "Where in the state the result is written: †state.x. 'p || q': a failure goes to q. 'p "
    "&& q': both. Left out, it is †results.N, N counting this run's calls from 0",
}
_OUTPUT_METHOD: Final[JSONObject] = {
    "enum": ["set", "merge", "push"],
    "description": (
        "How it is written there: set (default) replaces, merge joins objects, "
        "push appends to an array"
    ),
}
_ACTIVITY: Final[JSONObject] = {
    "type": "string",
    "description": "Name of other code to run this call; usually left out",
}
_IMPORTS: Final[JSONObject] = {
    "type": "array",
    "items": {"type": "string"},
    "description": (
        'References a clean room may see, such as "input" or "†state.doc"; it '
        "sees nothing else from here"
    ),
}
_CLEAN: Final[JSONObject] = {
    "const": ANONYMOUS,
    "description": "Have it answered in a clean room, which sees the parameters and _imports alone",
}
OUTPUT_NOTE: Final = (
    "The result, once known; null while calls must run first and their results be seen"
)
"""The last sentence in the description of an output."""

_RESULT_HERE: Final = (
    "The result, written now. Left out where it must be written once the values the "
    "parameters refer to are known"
)


EITHER: Final[tuple[JSONObject, ...]] = (
    {"required": ["calls", "output"]},
    {"required": ["program"]},
)
"""The alternatives for a Solution that can be a program."""


def call_schema(tool: Tool, *, latent: bool, instances: Sequence[str] = ()) -> JSONObject:
    """Return the schema of a call to `tool`: a closed object, as a complete document.

    Args:
        tool: the tool of the call.
        latent: whether no activity runs the tool, so that the mind writes `_output`.
        instances: the ids that `_instance` can have. If empty, the call has no `_instance`.

    Raises:
        ToolDefinitionError: a parameter has the name of a meta-property (see
            `rename_meta_parameters`).
        LimitExceededError: the tool's schema is too large or too deeply nested.
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
    required: Sequence[str] = (),
    program: JSONObject | None = None,
    wraps: bool = True,
) -> JSONObject:
    """Return the schema that a Solution must satisfy: `{"calls": [...], "output": ... or null}`, in
    this order.

    If `program` is set, a Solution can also be `{"program": TEXT}`, but it cannot have both calls
    and a program.

    Args:
        tools: the tools that can be called, in display order. If there are none, `calls` is an
            empty array.
        output: the schema of the output, or None for text. A schema that allows null is wrapped
            (see `wrap_output`).
        latent: the keys of the tools without an activity.
        instances: the ids that `_instance` can have.
        extra: the properties before `calls`, such as `thought_process`.
        required: the names of the required properties in `extra`.
        program: the schema of the program text, or None if a Solution cannot be a program.
        wraps: whether to wrap an output that can be null. Without the wrapper, null could mean
            either a null output or no output.

    Raises:
        ToolDefinitionError, LimitExceededError: as for `call_schema`.
        SchemaError: the schema of the output is invalid.
    """
    admitter = Admitter()
    calls: JSONObject = {
        "type": "array",
        "description": "Calls to run; those that share no data run in parallel",
    }
    if tools:
        listed: list[JSON] = [
            _call(tool, tool.key in latent, instances, admitter) for tool in tools
        ]
        calls["items"] = {"anyOf": listed}
    else:
        calls["maxItems"] = 0

    before = {
        name: move_refs(schema, ("properties", name)) for name, schema in (extra or {}).items()
    }
    properties: JSONObject = {
        **before,
        "calls": calls,
        "output": _output(output, admitter, wraps=wraps),
    }
    result: JSONObject = {"type": "object", "properties": properties}
    if program is None:
        result["required"] = [*required, "calls", "output"]
    else:
        properties["program"] = program
        if required:
            result["required"] = [*required]
        result["oneOf"] = [*EITHER]

    result["additionalProperties"] = False
    return admitter.finish(result)


def wrap_output(schema: JSONObject | None) -> tuple[JSONObject, bool]:
    """Return the schema of the output that the mind writes, and whether the output is wrapped as
    `{"value": ...}`.

    Null means "no output yet", so a schema that allows null is wrapped, unless it already is. None
    is the schema of text.

    Raises:
        SchemaError, LimitExceededError: the schema cannot be used.
    """
    if schema is None:
        return {"type": "string"}, False
    from ideabridge.tools.schema import Validator

    if not Validator(schema, what="the output").is_valid(None):
        return schema, False

    if schema.get("$schema") is None:
        wrapped: JSONObject = {}
    else:
        wrapped = {"$schema": schema["$schema"]}

    wrapped |= {
        "type": "object",
        "properties": {"value": move_refs(schema, ("properties", "value"))},
    }
    wrapped |= {"required": ["value"], "additionalProperties": False}
    return wrapped, True


def _output(schema: JSONObject | None, admitter: Admitter, *, wraps: bool) -> JSON:
    wrapped, is_wrapped = wrap_output(schema)
    if is_wrapped and not wraps:
        if not schema:
            return {}
        # The null that the schema itself allows gets its own branch, separate from the null that
        # means "no output yet".
        own: JSON = admitter.admit(schema, "output")
        return {"description": OUTPUT_NOTE, "anyOf": [own, {"type": "null"}]}

    composed = admitter.admit(wrapped, "output")
    admitted: JSONObject = object_or_empty(composed)
    description = _with_note(admitted.pop("description", None), OUTPUT_NOTE)
    branches = admitted.get("anyOf") if len(admitted) == 1 else None
    whole: list[JSON] = [*branches] if isinstance(branches, list) else [admitted]
    return {"description": description, "anyOf": [*whole, {"type": "null"}]}


def _call(tool: Tool, latent: bool, instances: Sequence[str], admitter: Admitter) -> JSONObject:
    label = tool.name if tool.module is None else f"{tool.module}_{tool.name}"
    composed = admitter.within(tool.parameters, label, top=True)
    parameters = object_or_empty(composed)
    declared = object_or_empty(tool.parameters.get("properties"))
    for name in declared:
        if name in META_PROPERTIES:
            raise ToolDefinitionError(
                f"tool {tool.name!r}: parameter {name!r} has the name of a meta-property"
            )

    properties = parameters.pop("properties", {})
    own: JSONObject = {}
    if isinstance(properties, dict):
        own = {name: schema for name, schema in properties.items() if name not in META_PROPERTIES}

    before, needed = _meta_before(tool, latent, instances, admitter)
    after = _meta_after(tool, latent, admitter)
    names, opened = _inside(parameters)
    rest: JSONObject = {
        name: True for name in names if name not in own and name not in META_PROPERTIES
    }
    # If the schema lists no properties, any property is accepted.
    opened |= tool.parameters.get("properties") is None and not rest
    required = parameters.pop("required", None)
    if isinstance(required, list):
        required_names = [name for name in required if isinstance(name, str)]
    else:
        required_names = []

    result: JSONObject = {"type": "object"}
    description = _description(tool)
    if description:
        result["description"] = description

    result["properties"] = {**before, **own, **rest, **after}
    result["required"] = [*dict.fromkeys([*needed, *required_names])]
    for word in ("type", "title", "description", "default", "examples"):
        parameters.pop(word, None)

    result.update(parameters)
    if not opened and "unevaluatedProperties" not in result:
        result.setdefault("additionalProperties", False)

    return result


def _meta_before(
    tool: Tool, latent: bool, instances: Sequence[str], admitter: Admitter
) -> tuple[JSONObject, list[str]]:
    """Return the meta-properties that precede the parameters, and the names of those that are
    required.
    """
    meta: JSONObject = {"_tool": {"const": tool.name}}
    needed = ["_tool"]
    is_constant = _is_constant(tool, latent)
    if tool.module is not None:
        meta["_module"] = {"const": tool.module}
        needed.append("_module")
    elif latent and not tool.clean and not is_constant:
        meta["_module"] = admitter.define("_module", _CLEAN)
    elif not latent and not tool.clean and tool.activity is None:
        meta["_activity"] = admitter.define("_activity", _ACTIVITY)

    if instances:
        description = "Which instance the call is for"
        listed: JSONObject = {"description": description, "enum": list(instances)}
        if len(instances) > MAX_LISTED_INSTANCES:
            some = f"one of {len(instances)} ({', '.join(instances[:3])}, …)"
            listed = {"type": "string", "description": f"{description}: {some}"}

        meta["_instance"] = admitter.define("_instance", listed)
        needed.append("_instance")

    if tool.in_room or tool.clean or (latent and not is_constant):
        meta["_imports"] = admitter.define("_imports", _IMPORTS)

    return meta, needed


def result_schema(tool: Tool) -> JSONObject:
    """Return the schema of a result that a mind writes.

    This is the tool's output schema or, if it has none, the schema of a string.
    """
    return {"type": "string"} if tool.output is None else tool.output


def _is_constant(tool: Tool, latent: bool) -> bool:
    """Return whether the definition of the tool fixes the result."""
    return latent and tool.output is not None and "const" in tool.output


def _meta_after(tool: Tool, latent: bool, admitter: Admitter) -> JSONObject:
    meta: JSONObject = {}
    if latent and not tool.clean and not _is_constant(tool, latent):
        admitted = admitter.admit(result_schema(tool), f"{tool.name}_output")
        output: JSONObject = object_or_empty(admitted)
        meta["_output"] = {
            **output,
            "description": _with_note(output.get("description"), _RESULT_HERE),
        }

    meta["_outputPath"] = admitter.define("_outputPath", _OUTPUT_PATH)
    meta["_outputMethod"] = admitter.define("_outputMethod", _OUTPUT_METHOD)
    each: JSONObject = {
        "anyOf": [admitter.reference(), {"type": "array"}],
        "description": (
            "An array: the call runs once for each item, which parameters read as †item or †item.x"
        ),
    }
    meta["_each"] = admitter.define("_each", each)
    meta["_after"] = admitter.define("_after", _AFTER)
    meta["_id"] = admitter.define("_id", _ID)
    return meta


def _with_note(description: JSON, note: str) -> str:
    if isinstance(description, str) and description:
        return f"{description}\n{note}"
    return note


def _inside(schema: JSONObject) -> tuple[list[str], bool]:
    """Return the properties named by the alternatives in a call's schema, and whether any of the
    alternatives allows other names.
    """
    names: dict[str, None] = {}
    opened = False
    stack: list[tuple[JSONObject, bool]] = [(schema, True)]
    while stack:
        item, outermost = stack.pop()
        properties = item.get("properties")
        if isinstance(properties, dict):
            names.update(dict.fromkeys(properties))

        if not outermost or "additionalProperties" not in item:
            opened |= (
                "patternProperties" in item or item.get("additionalProperties", False) is not False
            )

        for place, child in children(item):
            if isinstance(child, dict) and place[0] in ("allOf", "anyOf", "dependentSchemas"):
                stack.append((child, False))

    return list(names), opened


def _description(tool: Tool) -> str:
    """Describe what the tool does, and the shape of its result.

    The shape is included because a plan refers to parts of results that do not exist yet.
    """
    result = _shape(tool.output, tool.output, 2) if tool.output is not None else ""
    if not result or result == "any value":
        return tool.description

    if len(result) > _RESULT:
        result = f"{result[:_RESULT]}…"
    line = f"Result: {result}"
    if tool.description.strip():
        return f"{tool.description.rstrip()}\n{line}"
    return line


def _shape(schema: JSON, root: JSON, depth: int) -> str:
    if isinstance(schema, dict) and depth > 0:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            members = ", ".join(
                f"{name}: {_shape(item, root, depth - 1)}" for name, item in properties.items()
            )
            return f"{{{members}}}"
        items = schema.get("items")
        if isinstance(items, dict):
            return f"array of {_shape(items, root, depth)}"
    return describe(schema, root)
