"""Composing the Schema of a Solution from the tools and the wanted output (DESIGN 4.2)."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Final

from ideabridge.tools.admit import Admitter, admit_references
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ToolDefinitionError
from ideabridge.tools.explain import describe
from ideabridge.tools.keywords import children, move_refs
from ideabridge.tools.rename import rename_meta_parameters
from ideabridge.tools.tool import ANONYMOUS, META_PROPERTIES, Tool, ToolKey

__all__ = ["admit_references", "call_schema", "rename_meta_parameters", "solution_schema", "wrap_output"]

MAX_LISTED_INSTANCES: Final = 50
"""Up to so many instances `_instance` is an enum; more are checked when the call is read (DESIGN 4.8)."""

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
