"""Convert a server's `tools/list` into `Tool`s, within limits, and note each omitted tool."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, cast

import mcp_types as types

from ideabridge.bridge.context.preview import cut_description
from ideabridge.bridge.modules.errors import ModuleProtocolError
from ideabridge.bridge.modules.repairs import hints_as_sent, schema_as_sent
from ideabridge.bridge.modules.settings import ModuleConfiguration
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSON, JSONObject, encode, normalise
from ideabridge.tools.errors import IdeabridgeError, LimitExceededError
from ideabridge.tools.keywords import DEFINITIONS, SchemaKeywords, references_in, show
from ideabridge.tools.names import folded, known_as, matches_any
from ideabridge.tools.rename import rename_meta_parameters
from ideabridge.tools.tool import Annotations, SentSchema, Tool
from ideabridge.tools.typed import read_as
from ideabridge.tools.usable import UsableSchema, usable_schema

MAX_WIRE_BYTES: Final = 64 * 1024
MAX_NOTES: Final = 50
MAX_REPAIR_SECONDS: Final = 10.0
"""The maximum processor time, in seconds, that is spent on the odd schemas in one list. After this
time, no further odd schemas are checked.
"""
_NAME_LENGTH: Final = 256

_WIRE: Final = {"title", "annotations", "icons", "execution", "meta"}
_MARK: Final = "x-fastmcp-wrap-result"
_OF_WRAPPER: Final = frozenset(
    {
        "type",
        "properties",
        "required",
        "title",
        "description",
        "additionalProperties",
        "$schema",
        *DEFINITIONS,
        _MARK,
    }
)
# A wrapper's title is the name of a Python function, which begins with a lower-case letter,
# followed by "Output".
_MADE: Final = re.compile(r"[a-z_]\w*Output|_WrappedResult")


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of one server, in the server's order.

    Attributes:
        tools: the allowed and usable tools, keyed by name.
        notes: human-readable notes about the tools.
        left_out: why a listed tool is not in `tools`, keyed by the tool's name.
        denied: the names of tools that the server lists, but the configuration does not allow.
        unfinished: True if a page failed or did not arrive, so that the server might have more
            tools.
    """

    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    notes: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    denied: frozenset[str] = frozenset()
    unfinished: bool = False


def make_listing(
    module: str,
    sent_tools: Iterable[types.Tool],
    configuration: ModuleConfiguration,
    notes: Iterable[str] = (),
    *,
    unfinished: bool = False,
) -> Listing:
    """Build a listing of the allowed tools in `sent_tools`, with checked schemas.

    The notes of the listing are those in `notes`, followed by notes about these tools. Parameters
    named like meta-properties are renamed. For `unfinished`, see `Listing`.
    """
    tools: dict[str, Tool] = {}
    omitted: dict[str, str] = {}
    denied: set[str] = set()
    remarks = list(notes)
    seconds = 0.0
    for tool in sent_tools:
        if not is_allowed(module, tool.name, configuration):
            denied.add(tool.name[:_NAME_LENGTH])
            continue
        if tool.name in tools:
            remarks.append(
                f"tool {_short(tool.name)} is listed twice; ideabridge uses the first one"
            )
            continue

        began = time.thread_time()
        try:
            usable_tool, remark = _make_tool(module, tool, may_repair=seconds < MAX_REPAIR_SECONDS)
        except IdeabridgeError as error:
            omitted.setdefault(tool.name[:_NAME_LENGTH], str(error)[:300])
            remarks.append(f"tool {_short(tool.name)} is left out: {str(error)[:300]}")
            continue

        tools[usable_tool.name] = usable_tool
        if usable_tool.sent_parameters is not None or usable_tool.sent_output is not None:
            seconds += time.thread_time() - began

        if remark:
            remarks.append(remark)

    omitted = {name: reason for name, reason in omitted.items() if name not in tools}
    return Listing(tools, bounded_notes(remarks), omitted, frozenset(denied), unfinished)


def without_secrets(listing: Listing, secrets: Secrets) -> Listing:
    """Mask the secrets in a listing, because definitions are shown and stored.

    Tools whose name, or the name of a parameter, contains a secret are left out.
    """
    tools: dict[str, Tool] = {}
    notes = [secrets.mask(note) for note in listing.notes]
    left_out = {
        name: secrets.mask(reason)
        for name, reason in listing.left_out.items()
        if secrets.mask(name) == name
    }
    for name, tool in listing.tools.items():
        definition: JSONObject = {**tool.to_json(), "wire": tool.wire}
        redacted = secrets.redact(definition)
        if redacted is definition:
            tools[name] = tool
            continue

        masked_tool = Tool.from_json(cast("JSONObject", redacted))
        if masked_tool.name == name and _parameter_names(masked_tool) == _parameter_names(tool):
            tools[name] = masked_tool
        else:
            notes.append(
                "a tool is left out: its name, or that of a parameter, contains a secret of the "
                "configuration"
            )

    denied = frozenset(name for name in listing.denied if secrets.mask(name) == name)
    return Listing(tools, bounded_notes(notes), left_out, denied, listing.unfinished)


def _parameter_names(tool: Tool) -> list[str]:
    return list(cast("JSONObject", tool.parameters.get("properties") or {}))


def bounded_notes(notes: list[str]) -> tuple[str, ...]:
    """Return at most `MAX_NOTES` notes. If there are more, the last note says how many are
    omitted.
    """
    if len(notes) <= MAX_NOTES:
        return tuple(notes)
    return (*notes[: MAX_NOTES - 1], f"and {len(notes) - MAX_NOTES + 1} more")


def is_allowed(module: str, name: str, configuration: ModuleConfiguration) -> bool:
    """Return whether the configuration allows a tool.

    If `allow` is set, it must match the exact name of the tool. `deny` must match none of the names
    by which the tool can be called (`known_as`).
    """
    if matches_any(name, configuration.deny):
        return False
    if configuration.deny:
        folded_patterns = [folded(pattern) for pattern in configuration.deny]
        names = known_as(name, None, module)
        if any(matches_any(callable_name, folded_patterns) for callable_name in names):
            return False

    return configuration.allow is None or matches_any(name, configuration.allow)


def _short(name: str) -> str:
    return repr(name if len(name) <= 60 else name[:60] + "…")


def _make_tool(
    module: str, tool: types.Tool, *, may_repair: bool = True
) -> tuple[Tool, str | None]:
    """Return the tool, and a note about any parts of its definition that were changed or left out.

    Raises:
        ModuleProtocolError: the tool has no usable name.
    """
    if not tool.name or len(tool.name) > _NAME_LENGTH or not tool.name.isprintable():
        raise ModuleProtocolError(
            module,
            f"its name is empty, has more than {_NAME_LENGTH} characters or is not printable",
        )

    remarks: list[str] = []
    parameters, renamed, sent_parameters = _parameters(
        schema_as_sent(tool.input_schema), remarks, may_repair
    )
    if renamed:
        remarks.append(
            "has parameters with different names here: "
            + ", ".join(f"{b} is {a}" for a, b in renamed.items())
        )

    wrapper, sent_output = _output(tool.output_schema, remarks, may_repair)
    output = _unwrapped(wrapper, tool.name)
    hints = tool.annotations or types.ToolAnnotations()
    usable_tool = Tool(
        name=tool.name,
        description=cut_description(tool.description or ""),
        parameters=parameters,
        output=output,
        annotations=Annotations(
            title=tool.title or hints.title,
            read_only=hints.read_only_hint,
            destructive=hints.destructive_hint,
            idempotent=hints.idempotent_hint,
            open_world=hints.open_world_hint,
        ),
        sent_hints=hints_as_sent(tool.input_schema),
        module=module,
        renamed=renamed,
        wrapper=None if output is wrapper else wrapper,
        sent_parameters=sent_parameters,
        sent_output=sent_output,
        wire=_wire(tool, remarks),
    )
    return usable_tool, f"tool {_short(tool.name)} {'; '.join(remarks)}" if remarks else None


def _parameters(
    sent: JSON, remarks: list[str], may_repair: bool
) -> tuple[JSONObject, dict[str, str], SentSchema | None]:
    """Return the schema of the parameters, the server's names for renamed parameters, and the
    schema that was sent, or None if that schema is used unchanged.
    """
    usable = usable_schema(
        {} if sent is None else sent, what="input schema", of_object=True, may_repair=may_repair
    )
    notes = usable.notes
    if sent is None:
        remarks.append("has no input schema, so it accepts any parameters")
        return usable.schema, {}, SentSchema(None, was_valid=False)

    try:
        parameters, renamed = rename_meta_parameters(usable.schema)
    except LimitExceededError as error:
        parameters: JSONObject = {"type": "object"}
        renamed: dict[str, str] = {}
        usable = UsableSchema(parameters, usable.sent or usable.schema, was_valid=False)
        notes = (str(error),)

    _remark(remarks, "input", notes, usable)
    if usable.is_as_sent:
        return parameters, renamed, None

    as_sent = usable.sent
    if usable.was_valid and isinstance(as_sent, dict):
        # Keep the parameters renamed here, because they have always been part of the digest in this
        # form.
        as_sent, _ = rename_meta_parameters(as_sent)

    return parameters, renamed, SentSchema(as_sent, usable.was_valid)


def _output(
    listed: dict[str, Any] | None, remarks: list[str], may_repair: bool
) -> tuple[JSONObject | None, SentSchema | None]:
    """Return the schema of the result, or None if it allows every value, and the schema that was
    sent, or None if that schema is used unchanged.
    """
    sent = schema_as_sent(listed)
    if sent is None:
        return None, None

    usable = usable_schema(sent, what="output schema", of_object=False, may_repair=may_repair)
    kinds = read_as(SchemaKeywords, usable.schema).types or ("object",)
    if sent is not listed and "object" not in kinds:
        # Up to 2025-11-25, every result is an object, so every result would violate this schema.
        remarks.append(
            f"has an output schema that is not used: type: found {show(usable.schema['type'], 60)}"
        )
        return None, SentSchema(usable.sent or usable.schema, was_valid=False)

    _remark(remarks, "output", usable.notes, usable)
    if usable.is_as_sent:
        return usable.schema, None
    return usable.schema or None, SentSchema(usable.sent, usable.was_valid)


def _remark(remarks: list[str], which: str, notes: tuple[str, ...], usable: UsableSchema) -> None:
    if not notes and not usable.was_valid:
        remarks.append(f"has an {which} schema in an older form, which was converted")
    if notes:
        remarks.append(
            f"has an odd {which} schema (its server checks what ideabridge ignores): "
            f"{'; '.join(notes)}"
        )


def _wire(tool: types.Tool, remarks: list[str]) -> JSONObject | None:
    """Return the members of a definition that are forwarded to hosts unchanged, or None if there
    are none, or they are too large.
    """
    sent = tool.model_dump(mode="json", by_alias=True, exclude_none=True, include=_WIRE)
    if tool.execution is not None and tool.execution.task_support != "forbidden":
        # The gateway does not run calls as tasks, so do not offer it.
        del sent["execution"]

    try:
        wire = cast("JSONObject", normalise(sent, what="tool"))
    except IdeabridgeError as error:
        remarks.append(f"has icons or _meta that are not shown: {str(error)[:300]}")
        return None

    if len(encode(wire)) > MAX_WIRE_BYTES:
        remarks.append(
            f"has icons and _meta of more than {MAX_WIRE_BYTES:,} bytes, which are not shown"
        )
        return None

    return wire or None


def _unwrapped(declared: JSONObject | None, name: str) -> JSONObject | None:
    """Return the schema inside a wrapper for the result. A schema that is not a wrapper is returned
    unchanged.

    The protocol requires objects, so SDKs declare `-> str` as `{"result": str}`. A schema of
    exactly this form is a wrapper, unless its title is the name of a class that the tool returns.
    """
    if declared is None or declared.keys() - _OF_WRAPPER or declared.get("type") != "object":
        return declared

    keywords = read_as(SchemaKeywords, declared)
    closed = declared.get("additionalProperties", False) is False
    if not closed or list(keywords.properties) != ["result"] or keywords.required != ("result",):
        return declared

    title = keywords.title
    is_of_sdk = title in (None, f"{name}Output") or _MADE.fullmatch(title or "") is not None
    inner = keywords.properties["result"]
    if (
        not (is_of_sdk or declared.get(_MARK) is True)
        or not isinstance(inner, dict)
        or not _stands_alone(declared)
    ):
        return declared

    shared_words: JSONObject = {
        word: declared[word] for word in ("$schema", *DEFINITIONS) if word in declared
    }
    return {**{word: value for word, value in inner.items() if word != "title"}, **shared_words}


def _stands_alone(schema: JSONObject) -> bool:
    """Return whether every reference in a schema points into the schema itself."""
    return all(
        target.startswith(("#/$defs/", "#/definitions/")) for target in references_in(schema)
    )
