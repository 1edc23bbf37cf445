"""Grammar: an adapted schema as llama.cpp makes a grammar of it (DESIGN 4.2, 5).

What its converter cannot read, llama-cpp-python drops without a word, and holds the model to no schema at all. What
it reads otherwise than JSON Schema comes out narrower: `{}` admits objects only, and an object is closed unless it
says what else it holds. Both are written out here. The result is wider than the schema, or the same, but for how
texts are written: one begins neither with `†`, unless it is a reference, nor with another sign of Unicode's block
U+2000, unless that is escaped as JSON escapes; and a reference names a key that is no plain word as `["odd.key"]`.
"""

from __future__ import annotations

from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject

_KINDS: Final[list[JSON]] = ["string", "number", "boolean", "null", "object", "array"]
_SIMPLE: Final = frozenset({"number", "integer", "boolean", "null"})
_SOURCE: Final = "#/$defs/"

_LETTER: Final = r'([^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F][0-9a-fA-F][0-9a-fA-F][0-9a-fA-F])'
_FIRST: Final = _LETTER.replace("([^", r"([^\u2000-\u206f", 1)
_KIND: Final = "(results|state|input|data|item)"
_PATH: Final = r"""([.][^\x00-,./:-@\[-^`{-\xa0\u2000-\u206f]+|\[(\\"LETTER*\\"|[0-9]+)\])*""".replace(
    "LETTER", r"""[^"\\\x00-\x1f\]]"""
)
_TEXT: Final = "text"


def grammar_schema(schema: JSONObject) -> JSONObject:
    """The schema to send to a server that is, or may be, llama.cpp.

    A text that begins with one dagger is a reference here: small models write prose where a reference is asked for,
    and signs like ‡, or one that nobody sees, for †.

    Args:
        schema: adapted.
    """
    defs = schema.get("$defs")
    found = defs if isinstance(defs, dict) else {}
    # †①.state.x: an instance may have any name.
    instance = r'([^"\\\x00-\x1f.†‡]+[.])?' if "_instance" in found else ""
    one = f"†{instance}{_KIND}{_PATH}"
    reference = f"{one}( ([|][|]|&&) {one})*"
    # Names of definitions share one space with those of the converter's own rules.
    named = {_renamed(name): _converted(one) for name, one in found.items()}
    named[_renamed("reference")] = {"type": "string", "pattern": f"^{reference}$"}
    named[_TEXT] = {"type": "string", "pattern": f"^(({_FIRST}{_LETTER}*)?|{reference})$"}
    result = _converted({name: part for name, part in schema.items() if name != "$defs"})
    result["$defs"] = dict[str, JSON](named)
    return result


def _renamed(name: str) -> str:
    letters = "".join(letter if letter.isascii() and letter.isalnum() else f"-{ord(letter):x}-" for letter in name)
    return f"def-{letters}"


def _converted(schema: JSON) -> JSONObject:
    if not isinstance(schema, dict):
        return {"type": _KINDS}
    ref = schema.get("$ref")
    if isinstance(ref, str):
        return {"$ref": f"{_SOURCE}{_renamed(ref.removeprefix(_SOURCE))}"}
    properties, branches, kind = schema.get("properties"), schema.get("anyOf"), schema.get("type")
    if isinstance(branches, list) and not isinstance(properties, dict):
        return {"anyOf": [_converted(one) for one in branches]}
    if "const" in schema:
        return {"const": schema["const"]}
    if "enum" in schema:
        return {"enum": schema["enum"]}
    if isinstance(kind, list):
        return {"anyOf": [_converted({**schema, "type": one}) for one in kind]}
    if kind == "object" or (kind is None and isinstance(properties, dict)):
        return _object(schema)
    if kind == "array" or (kind is None and "items" in schema):
        return {"type": "array", "items": _converted(schema.get("items", {}))}
    if kind == "string":
        return {"$ref": f"{_SOURCE}{_TEXT}"}
    return {"type": kind} if kind in _SIMPLE else {"type": _KINDS}


def _object(schema: JSONObject) -> JSONObject:
    properties = schema.get("properties")
    known = {name: _converted(part) for name, part in properties.items()} if isinstance(properties, dict) else {}
    required = schema.get("required")
    needed = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    rest = schema.get("additionalProperties", True)
    if rest is not False:
        # What is required and not declared would be forgotten: the converter asks only for what it knows.
        known.update({name: {"type": _KINDS} for name in needed if name not in known})
    result: JSONObject = {"type": "object", "properties": dict[str, JSON](known)}
    result["required"] = [name for name in needed if name in known]
    result["additionalProperties"] = False if rest is False else _converted(rest)
    return result
