"""Parameters of a module whose names are meta-properties of ours: named back for the call (DESIGN 4.2)."""

from __future__ import annotations

from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.tool import META_PROPERTIES


def rename_parameters(schema: JSONObject) -> tuple[JSONObject, dict[str, str]]:
    """The schema with such parameters renamed (`_id` -> `id_`), and ours -> theirs."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not any(name in META_PROPERTIES for name in properties):
        return schema, {}
    theirs: dict[str, str] = {}
    renamed: JSONObject = {}
    for name, value in properties.items():
        ours = name
        if name in META_PROPERTIES:
            ours = name.strip("_") + "_"
            while ours in properties or ours in theirs:
                ours += "_"
            theirs[ours] = name
        renamed[ours] = value
    back = {name: ours for ours, name in theirs.items()}
    required = schema.get("required")
    result: JSONObject = {**schema, "properties": renamed}
    if isinstance(required, list):
        result["required"] = [back.get(str(name), name) for name in required]
    return result, theirs


def their_arguments(arguments: JSONObject, renamed: dict[str, str]) -> JSONObject:
    """Arguments by our names -> by the module's. Names that are theirs already stay."""
    return {renamed.get(name, name): value for name, value in arguments.items()} if renamed else arguments
