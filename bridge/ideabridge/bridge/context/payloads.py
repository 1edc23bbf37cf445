"""Payloads: the base64 of images, sounds and files, and the text of resources, in content
blocks within values.

A reader of text, a person or a mind, learns nothing from base64.
"""

from __future__ import annotations

from ideabridge.tools.encoding import JSON, JSONObject


def payload_of(block: JSONObject) -> str:
    """Return the base64 or the text of a block; "" of a link."""
    holder = _holder(block)
    for key in ("data", "blob", "text"):
        payload = holder.get(key)
        if isinstance(payload, str):
            return payload
    return ""


def with_payload(block: JSONObject, payload: str) -> JSONObject:
    """Return a copy of a block with another text in the place of its base64 or its text, and
    without nulls. A link has neither base64 nor text.
    """
    copied: JSONObject = {key: member for key, member in block.items() if member is not None}
    resource = block.get("resource")
    if isinstance(resource, dict):
        copied["resource"] = {key: member for key, member in resource.items() if member is not None}
    write_payload(copied, payload)
    return copied


def write_payload(block: JSONObject, payload: str) -> None:
    """Put another text in the place of the base64 or the text of a block."""
    holder = _holder(block)
    for key in ("data", "blob", "text"):
        if key in holder:
            holder[key] = payload


def _holder(block: JSONObject) -> JSONObject:
    resource = block.get("resource")
    return resource if isinstance(resource, dict) else block


def without_payloads(value: JSON) -> JSON:
    """Return a value for a reader of text: the length in the place of the base64 of each image,
    sound and file in it.
    """
    if isinstance(value, list):
        return [without_payloads(item) for item in value]
    if not isinstance(value, dict):
        return value

    plain = without_payload(value)
    if plain is value:
        return {key: without_payloads(item) for key, item in value.items()}
    return plain


def without_payload(value: JSONObject) -> JSONObject:
    """Return the same for an object that is such a block itself; any other one as it is."""
    resource = value.get("resource")
    is_media = value.get("type") in ("image", "audio") and isinstance(value.get("data"), str)
    if is_media or (isinstance(resource, dict) and isinstance(resource.get("blob"), str)):
        return with_payload(value, f"{len(payload_of(value)):,} characters")
    return value
