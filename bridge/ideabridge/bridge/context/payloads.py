"""Find and replace the base64 of images, sounds and files, and the text of resources, in content
blocks inside values.

Base64 is useless to people and minds reading a value as text.
"""

from __future__ import annotations

from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.json_parts import map_parts


def payload_of(block: JSONObject) -> str:
    """Return the base64 or text in a block, or "" for a link."""
    holder = _holder(block)
    for key in ("data", "blob", "text"):
        payload = holder.get(key)
        if isinstance(payload, str):
            return payload
    return ""


def with_payload(block: JSONObject, payload: str) -> JSONObject:
    """Return a copy of a block without nulls and with its base64 or text replaced by `payload`.
    Links have neither.
    """
    copied: JSONObject = {key: member for key, member in block.items() if member is not None}
    resource = block.get("resource")
    if isinstance(resource, dict):
        copied["resource"] = {key: member for key, member in resource.items() if member is not None}
    write_payload(copied, payload)
    return copied


def write_payload(block: JSONObject, payload: str) -> None:
    """Replace the base64 or text of a block with `payload`."""
    holder = _holder(block)
    for key in ("data", "blob", "text"):
        if key in holder:
            holder[key] = payload


def _holder(block: JSONObject) -> JSONObject:
    return object_or_empty(block.get("resource")) or block


def without_payloads(value: JSON) -> JSON:
    """Return a value for reading as text.

    In each image, sound and file, the base64 is replaced by its length.
    """
    if isinstance(value, dict):
        plain = without_payload(value)
        if plain is not value:
            return plain
    return map_parts(value, without_payloads)


def without_payload(value: JSONObject) -> JSONObject:
    """Return an object for reading as text.

    In an image, a sound or a file, the base64 is replaced by its length. Any other object is
    returned unchanged.
    """
    resource = value.get("resource")
    is_media = value.get("type") in ("image", "audio") and isinstance(value.get("data"), str)
    if is_media or (isinstance(resource, dict) and isinstance(resource.get("blob"), str)):
        return with_payload(value, f"{len(payload_of(value)):,} characters")
    return value
