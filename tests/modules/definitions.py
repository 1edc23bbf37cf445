"""Definitions of tools as servers send them, and the digests that they have had since tools are pinned.

`DIGESTS` was made by the code before odd members were repaired. A pinned tool blocks when its digest
changes, so no change of the reader may change one.
"""

from typing import Any

_OBJECT: dict[str, Any] = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}


def _tool(**members: Any) -> dict[str, Any]:
    return {"name": "search", "description": "Finds things", "inputSchema": _OBJECT, **members}


DEFINITIONS: dict[str, dict[str, Any]] = {
    "plain": _tool(),
    "bare": {"name": "search", "inputSchema": {"type": "object"}},
    "no type": _tool(inputSchema={"properties": {"q": {"type": "string"}}, "required": ["q"]}),
    "no type, empty": _tool(inputSchema={}),
    "null properties": _tool(inputSchema={"type": "object", "properties": None}),
    "null members": _tool(
        title=None, description=None, annotations=None, outputSchema=None, icons=None, _meta=None, execution=None
    ),
    "unknown members": _tool(version=5, tags=["a"], strict=True),
    "odd unknown members": _tool(read_only=True, annotation={"readOnlyHint": True}),
    "title": _tool(title="Search"),
    "read-only": _tool(annotations={"readOnlyHint": True}),
    "not read-only": _tool(annotations={"readOnlyHint": False}),
    "all hints": _tool(
        annotations={
            "title": "S",
            "readOnlyHint": False,
            "destructiveHint": True,
            "idempotentHint": True,
            "openWorldHint": False,
        }
    ),
    "null hints": _tool(annotations={"readOnlyHint": None, "destructiveHint": None}),
    "unknown hints": _tool(annotations={"readOnly": True, "dangerous": "yes"}),
    "hint in words": _tool(annotations={"readOnlyHint": "true", "destructiveHint": "no"}),
    "hint in numbers": _tool(annotations={"readOnlyHint": 1, "idempotentHint": 0, "openWorldHint": 1.0}),
    "capital hint": _tool(annotations={"readOnlyHint": "True"}),
    "output": _tool(outputSchema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
    "wrapped output": _tool(
        outputSchema={
            "type": "object",
            "properties": {"result": {"type": "string"}},
            "required": ["result"],
            "title": "searchOutput",
        }
    ),
    "broken output": _tool(outputSchema={"type": "object", "properties": {"n": {"type": "strange"}}}),
    "remote output": _tool(outputSchema={"type": "object", "properties": {"n": {"$ref": "https://x.example/s"}}}),
    "icons": _tool(icons=[{"src": "https://x.example/i.png", "sizes": ["48x48"], "theme": "dark"}]),
    "task": _tool(execution={"taskSupport": "optional"}),
    "_meta": _tool(_meta={"ui": {"resourceUri": "ui://a"}, "x": [1, None]}),
    "definitions": _tool(
        inputSchema={
            "type": "object",
            "$defs": {"a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/a"}}}},
            "properties": {"a": {"$ref": "#/$defs/a"}},
        }
    ),
    "any of": _tool(
        inputSchema={"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}
    ),
    "constraints": _tool(
        inputSchema={
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 0, "maximum": 2**60, "default": 5},
                "s": {"type": "string", "pattern": "^a+$", "enum": ["b", "a"], "description": "d"},
                "l": {"type": "array", "items": {"type": "number"}, "maxItems": 3},
                "f": {"type": "number", "multipleOf": 0.01},
            },
            "additionalProperties": False,
        }
    ),
    "draft 7": _tool(inputSchema={**_OBJECT, "$schema": "http://json-schema.org/draft-07/schema#"}),
    "keywords of nobody": _tool(inputSchema={**_OBJECT, "x-order": ["q"], "nullable": True, "strict": False}),
    "boolean properties": _tool(inputSchema={"type": "object", "properties": {"a": True, "b": False}}),
    "meta-parameters": _tool(inputSchema={"type": "object", "properties": {"_id": {}, "q": {}}, "required": ["_id"]}),
    "name with spaces": _tool(name="find all things"),
    "name of unicode": _tool(name="поиск"),
    "long description": _tool(description="x" * 20_000),
    "one of at the root": _tool(inputSchema={**_OBJECT, "oneOf": [{"required": ["q"]}, {"required": []}]}),
}
"""One tool each, by what it shows."""

DIGESTS: dict[str, tuple[str, str]] = {}
"""The digest and the prose digest of each definition as the only tool of module `m`; none if it was left out."""
