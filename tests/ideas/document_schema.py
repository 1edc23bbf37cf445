"""The JSON Schema of an exported idea, made from what the code reads. `docs/idea.schema.json` is the published copy."""

from __future__ import annotations

from ideabridge.bridge.store.idea import ANSWERS
from ideabridge.bridge.store.portable import FORMAT, META_KINDS, PUBLICATION_KINDS
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.names import MAX_NAME

_KINDS: dict[str, JSONObject] = {
    "text": {"type": "string"},
    "whole": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
    "object": {"type": "object"},
    "words": {"type": "array", "items": {"type": "string"}},
    "any": {},
}


def _closed(properties: JSONObject, required: list[JSON], description: str) -> JSONObject:
    return {
        "description": description,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _hash(description: str) -> JSONObject:
    return {"description": description, "type": "string", "pattern": "^[0-9a-f]{64}$"}


def document_schema() -> JSONObject:
    """JSON Schema (2020-12) of what `export_idea` gives and `import_idea` takes."""
    meta: JSONObject = {name: dict(_KINDS[kind]) for name, kind in META_KINDS.items()}
    publication: JSONObject = {name: dict(_KINDS[kind]) for name, kind in PUBLICATION_KINDS.items()}
    publication["name"] = {"type": "string", "pattern": f"^[a-z][a-z0-9_]{{0,{MAX_NAME - 1}}}$"}
    publication["answer"] = {"enum": list[JSON](ANSWERS)}
    need: JSONObject = {"tool": {"type": "string"}, "module": {"type": "string"}}
    content = "{context, schema, solution} as compact UTF-8 JSON, keys in the order given."
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An exported idea of ideabridge",
        **_closed(
            {
                "ideabridge": {"description": "The format.", "const": FORMAT},
                "id": _hash(f"SHA-256 of {content}"),
                "request": _hash("SHA-256 of {context, schema}, likewise."),
                "context": {"description": "The messages of the Request.", "type": "array"},
                "schema": {"description": "JSON Schema of the Solution."},
                "solution": {"description": 'The Solution: {"calls": [...], "output": ...}.'},
                "meta": _closed(meta, [], "What is known beside the triple; in no id."),
                "publication": _closed(publication, ["name", "answer"], "What the name stood for, where one was."),
                "needs": {
                    "description": "The tools its calls name, and the servers they belong to.",
                    "type": "array",
                    "items": _closed(need, ["tool"], "A tool; without module, of no server."),
                },
                "digest": _hash("SHA-256 of all other members, in the order of this schema, as compact JSON."),
            },
            ["ideabridge", "id", "request", "context", "schema", "solution", "digest"],
            "One idea: the triple (context, schema, solution), with what is known beside it.",
        ),
    }
