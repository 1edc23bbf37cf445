"""Show a server's tools with the user's own names, descriptions and defaults.

A changed tool is a view. The author of a call sees it, but the call itself goes to the tool that
the server lists, with the defaults filled in. Approvals, journals, rules and digests therefore
refer only to that tool. Once the call is written, nothing depends on the view.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.json_parts import strings_in
from ideabridge.tools.keywords import DEFINITIONS, SchemaKeywords
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.rename import ParameterNames
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Tool
from ideabridge.tools.typed import read_as

_VARIABLE: Final = re.compile(r"\$\{(?:env:)?[A-Za-z_][A-Za-z0-9_]*(?::-[^{}]*)?\}")
"""`${VAR}`, `${env:VAR}` or `${VAR:-text}`."""


@dataclass(frozen=True, slots=True)
class ToolChange:
    """How the user's configuration changes the way a tool is shown.

    Attributes:
        name: the name to show, or None for the tool's own name.
        description: the description to show, or None for the tool's own description.
        defaults: the values of parameters that a call omits.
        hidden: the parameters that are not shown. A call can still set them.
        read_only: whether the tool is shown as read-only, or None for the tool's own hint.
    """

    name: str | None = None
    description: str | None = None
    defaults: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    hidden: Collection[str] = ()
    read_only: bool | None = None


def fitting_change(tool: Tool, change: ToolChange) -> tuple[ToolChange, list[str]]:
    """Return the parts of a change that can be applied to a tool, and a sentence for each part that
    cannot.

    A default is dropped if the tool has no such parameter, if the parameter's schema rejects it, or
    if it names an environment variable. A parameter is not hidden if the tool has no such
    parameter, or if the parameter is required and has no default.
    """
    names = ParameterNames(tool.name, tool.parameters)
    problems: list[str] = []
    defaults: dict[str, JSON] = {}
    for name, value in change.defaults.items():
        problem = (
            _unknown_parameter(name, names)
            or _named_variable(value)
            or _refused_default(tool, name, value)
        )
        if problem is None:
            defaults[name] = value
        else:
            problems.append(f"defaults.{name}: {problem} The default is not used.")

    hidden: list[str] = []
    required = read_as(SchemaKeywords, tool.parameters).required
    for name in dict.fromkeys(change.hidden):
        problem = _unknown_parameter(name, names)
        if problem is None and name in required and name not in defaults:
            problem = "every call must pass this parameter, because it has no default."

        if problem is None:
            hidden.append(name)
        else:
            problems.append(f"hide_parameters.{name}: {problem} It is not hidden.")

    return dataclasses.replace(change, defaults=defaults, hidden=tuple(hidden)), problems


def _unknown_parameter(name: str, names: ParameterNames) -> str | None:
    if not names.known or name in names.listed:
        return None
    near = did_you_mean(name, names.listed)
    return f"the tool has no such parameter.{near}"


def _named_variable(value: JSON) -> str | None:
    """Return why a default that contains `${VAR}` cannot be used, or None if it contains no
    `${VAR}`.

    It would be sent unchanged, which is almost never intended.
    """
    match = next(filter(None, map(_VARIABLE.search, strings_in(value))), None)
    if match is None:
        return None
    return (
        f"{match[0]} names an environment variable, which ideabridge does not fill in; expected "
        "the value itself, or ${secret:NAME} for a stored secret."
    )


def _refused_default(tool: Tool, name: str, value: JSON) -> str | None:
    """Return why the schema of a parameter rejects a default, or None if it accepts the default."""
    schema: JSONObject = {
        keyword: tool.parameters[keyword]
        for keyword in ("$schema", "properties", "patternProperties", *DEFINITIONS)
        if keyword in tool.parameters
    }
    try:
        Validator({**schema, "type": "object"}, what="default").check({name: value})
    except IdeabridgeError as error:
        return f"{str(error).rstrip('.')}."
    return None


def changed_tool(tool: Tool, change: ToolChange) -> Tool:
    """Return a tool as the user wants it shown. `change` comes from `fitting_change`.

    A default that refers to a secret is not a value, so it does not appear in the parameter's
    schema.
    """
    is_renamed = change.name is not None and change.name != tool.name
    annotations = tool.annotations
    wire = tool.wire
    if is_renamed:
        # Drop the title, because it is only another form of the name and would still show the old
        # one.
        annotations = dataclasses.replace(annotations, title=None)
        wire = _without_titles(wire)

    if change.read_only is not None:
        annotations = dataclasses.replace(annotations, read_only=change.read_only)
        listed = object_or_empty((wire or {}).get("annotations"))
        wire = {**(wire or {}), "annotations": {**listed, "readOnlyHint": change.read_only}}

    description = tool.description if change.description is None else change.description
    return dataclasses.replace(
        tool,
        name=change.name or tool.name,
        remote_name=None if is_renamed else tool.remote_name,
        description=description,
        parameters=_shown_parameters(tool.parameters, change),
        annotations=annotations,
        sent_parameters=None,
        wire=wire,
        defaults=dict(change.defaults),
        passes_to=tool,
    )


def _without_titles(wire: JSONObject | None) -> JSONObject | None:
    if wire is None:
        return None

    shown: JSONObject = {key: value for key, value in wire.items() if key != "title"}
    annotations = object_or_empty(shown.get("annotations"))
    if annotations:
        shown["annotations"] = {key: value for key, value in annotations.items() if key != "title"}
    return shown


def _shown_parameters(schema: JSONObject, change: ToolChange) -> JSONObject:
    """Return the schema without the hidden parameters. Parameters with a default are optional in
    it.
    """
    shown: JSONObject = {**schema}
    keywords = read_as(SchemaKeywords, schema)
    if keywords.properties:
        properties: JSONObject = {}
        for name, parameter in keywords.properties.items():
            if name in change.hidden:
                continue
            if name in change.defaults:
                properties[name] = _with_default(parameter, change.defaults[name])
            else:
                properties[name] = parameter

        shown["properties"] = properties

    needed = [name for name in keywords.required if name not in change.defaults]
    if needed:
        shown["required"] = list[JSON](needed)
    else:
        shown.pop("required", None)

    return shown


def _with_default(parameter: JSON, value: JSON) -> JSON:
    if not isinstance(parameter, dict) or names_secret(value):
        return parameter
    return {**parameter, "default": value}


def names_secret(value: JSON) -> bool:
    """Return whether a default contains `${secret:NAME}`."""
    return any("${secret:" in text for text in strings_in(value))


def real_call(call: JSONObject, tool: Tool, defaults: JSONObject) -> JSONObject:
    """Convert a call to a changed tool into a call to the real tool.

    Args:
        call: the call, including meta-properties.
        tool: the changed tool.
        defaults: the values of parameters that the call omits, in the form that calls use.
    """
    real = tool.real
    own: JSONObject = {"_tool": real.name_in_module}
    if real.module is not None:
        own["_module"] = real.module

    rest: JSONObject = {key: value for key, value in call.items() if key not in own}
    filled: JSONObject = {name: value for name, value in defaults.items() if name not in rest}
    return {**own, **filled, **rest}
