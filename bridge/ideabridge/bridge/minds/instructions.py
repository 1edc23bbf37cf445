"""Instructions: what a model endpoint is told besides the Request (DESIGN 5)."""

from __future__ import annotations

from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject, encode_text

# -- brief -----------------------------------------------------------------------------------------------------------
#
# Brief: what a Solution may hold, in few words: tools as signatures, types as in TypeScript (DESIGN 4.2, 5).
#
# JSON Schema costs a small model's context many times over, and it copies what it reads instead of following it.

_HERE: Final = "#/$defs/"
_REFERENCE: Final = "reference"
_PATH: Final = "_outputPath"
_DEEPEST: Final = 8
_BRIEF_TYPES: Final = {
    "null": "null",
    "boolean": "boolean",
    "integer": "integer",
    "number": "number",
    "string": "string",
}


def brief(schema: JSONObject) -> str:
    """The tools, what every call may have, the output, and the types they name.

    Args:
        schema: of a Solution, adapted.
    """
    return _Brief(schema).text()


class _Brief:
    def __init__(self, schema: JSONObject) -> None:
        self._properties = _object(schema.get("properties"))
        self._defs = _object(schema.get("$defs"))
        # Named types and meta-properties that were met, in order; told after the tools.
        self._named: dict[str, None] = {}
        self._metas: dict[str, None] = {}

    def text(self) -> str:
        lines = ["Tools (there are no others; ? marks what may be left out):", *self._tools()]
        if len(lines) == 1:
            lines = ['There are no tools: "calls" is [].']
        told = [f"  {name}: {self._meta(name)}" for name in self._metas if name != _PATH]
        if told:
            lines += ["A call may also have, where needed:", *told]
        for name, part in self._properties.items():
            if name not in ("calls", "output"):
                lines.append(f'Before "calls" comes "{name}": {self._told(part)}')
        lines.append(f'The type of "output": {self._output()}')
        done = 0
        while done < len(self._named):
            name = [*self._named][done]
            done += 1
            lines.append(f"{name} = {self._told(self._defs.get(name, {}))}")
        return "\n".join(lines)

    def _tools(self) -> list[str]:
        items = _object(_object(self._properties.get("calls")).get("items"))
        branches = items.get("anyOf")
        return [self._tool(one) for one in branches if isinstance(one, dict)] if isinstance(branches, list) else []

    def _tool(self, call: JSONObject) -> str:
        properties = _object(call.get("properties"))
        required = call.get("required")
        needed = required if isinstance(required, list) else []
        parameters: list[str] = []
        for name, part in properties.items():
            target = _target(part)
            if name == "_tool":
                continue
            if target is not None and target.startswith("_"):
                self._metas[name] = None
                if name not in needed:
                    continue
            parameters.append(f"{name}{'' if name in needed else '?'}: {self._field(part, 0)}")
        if call.get("additionalProperties") is not False:
            parameters.append("...")
        told = call.get("description")
        said = " ".join(told.split("\n")) if isinstance(told, str) else ""
        name = _object(properties.get("_tool")).get("const")
        return f"- {name}({', '.join(parameters)}){f': {said}' if said else ''}"

    def _meta(self, name: str) -> str:
        return self._told(self._defs.get(name, {}))

    def _output(self) -> str:
        part = _object(self._properties.get("output"))
        branches = part.get("anyOf")
        own = part.get("description")
        notes = own.split("\n")[:-1] if isinstance(own, str) else []
        wanted = [one for one in branches if one != {"type": "null"}] if isinstance(branches, list) else [part]
        kinds = [kind for kind in dict.fromkeys(self._type(one) for one in wanted) if kind != _REFERENCE]
        text = " | ".join(kinds) or "any"
        return f"{text} // {' '.join(notes)}" if notes else text

    def _told(self, schema: JSON) -> str:
        """A type, and what is said of it."""
        said, kind = _said(schema), self._type(schema)
        return f"{kind} // {said}" if said else kind

    def _type(self, schema: JSON, depth: int = 0) -> str:
        if not isinstance(schema, dict) or not schema or depth > _DEEPEST:
            return "any"
        target = _target(schema)
        if target is not None:
            if target != _REFERENCE:
                self._named[target] = None
            return target
        branches = schema.get("anyOf")
        if isinstance(branches, list) and "properties" not in schema:
            # That a reference may stand for any value is said once.
            kinds = dict.fromkeys(self._type(one, depth + 1) for one in branches if _target(one) != _REFERENCE)
            return " | ".join(kinds) or _REFERENCE
        if "const" in schema:
            return encode_text(schema["const"])
        listed = schema.get("enum")
        if isinstance(listed, list):
            return " | ".join(encode_text(one) for one in listed)
        kind = schema.get("type")
        if isinstance(kind, list):
            return " | ".join(self._type({**schema, "type": one}, depth + 1) for one in kind)
        if kind == "array" or (kind is None and "items" in schema):
            inner = self._type(schema.get("items", {}), depth + 1)
            return f"({inner})[]" if " | " in inner else f"{inner}[]"
        if kind == "object" or (kind is None and "properties" in schema):
            return self._fields(schema, depth)
        return _BRIEF_TYPES.get(kind, "any") if isinstance(kind, str) else "any"

    def _fields(self, schema: JSONObject, depth: int) -> str:
        required = schema.get("required")
        needed = required if isinstance(required, list) else []
        fields = [
            f"{encode_text(name)}{'' if name in needed else '?'}: {self._field(part, depth)}"
            for name, part in _object(schema.get("properties")).items()
        ]
        rest = schema.get("additionalProperties", True)
        if isinstance(rest, dict) and rest:
            fields.append(f"[name]: {self._type(rest, depth + 1)}")
        elif rest is not False or not fields:
            fields.append("...")
        return f"{{{', '.join(fields)}}}"

    def _field(self, schema: JSON, depth: int) -> str:
        said, kind = _said(schema), self._type(schema, depth + 1)
        return f"{kind} /* {said} */" if said else kind


def _object(value: JSON) -> JSONObject:
    return value if isinstance(value, dict) else {}


def _said(schema: JSON) -> str:
    """What the descriptions of a schema say, those of its alternatives among them: limits stand there."""
    whole = _object(schema)
    branches = whole.get("anyOf")
    parts: list[JSON] = [whole, *branches] if isinstance(branches, list) else [whole]
    said = [_object(part).get("description") for part in parts]
    return "; ".join(dict.fromkeys(" ".join(one.split()) for one in said if isinstance(one, str) and one))


def _target(schema: JSON) -> str | None:
    """The name in `$defs` that a schema refers to."""
    ref = _object(schema).get("$ref")
    return ref.removeprefix(_HERE) if isinstance(ref, str) else None


# -- instructions ----------------------------------------------------------------------------------------------------

INSTRUCTIONS: Final = """\
You solve the task by writing one JSON object, and nothing else: {"calls": [...], "output": ...}
- "calls": tool calls to run now, [] if none is needed. A call is {"_tool": NAME, its parameters}. Each starts as soon
  as what it reads exists, independent ones at once. List a call before those that read its result.
- Never copy or guess a result: refer to it. A whole string such as "†results.0", "†input.file" or "†state.log.name"
  stands for the value. "†results.N" is the result of a call, N counting the calls of this run from 0. A call with
  "_outputPath": "log" stores its result at †state.log instead.
- "output": null while you must see results first; you are asked again, with them. Otherwise the final answer, with
  references or values.
- Text that begins with † is written with two: ††."""
"""Short; the examples show the rest."""

EXAMPLES: Final = (
    (
        'Read the file of the input, then count its lines.\n\nInput, read as †input.KEY:\n{\n "file": "a.txt"\n}',
        (
            '{"calls": [{"_tool": "read_file", "path": "†input.file"},'
            ' {"_tool": "count_lines", "text": "†results.0"}], "output": "†results.1"}'
        ),
    ),
    ("What is the capital of Peru?", '{"calls": [{"_tool": "capital", "country": "Peru"}], "output": "†results.0"}'),
    ("Multiply 6 by 7.", '{"calls": [{"_tool": "multiply", "x": 6, "y": 7}], "output": "†results.0"}'),
)
"""(task, Solution), as turns before the task, the simplest last: what small models need to get references right, and
not to call more than was asked for. Their tools are made up."""

_TYPES: Final = "\n\n{types}\nWrite the JSON object alone: no explanation, no Markdown fence."


def instructions(schema: JSONObject | None) -> str:
    """The instructions; with what the adapted schema says, where the endpoint would not show it to the model."""
    return INSTRUCTIONS if schema is None else INSTRUCTIONS + _TYPES.replace("{types}", brief(schema))


def correction(error: str) -> str:
    """What is said to an answer that cannot be read."""
    return (
        f"That cannot be read: {error}. Nothing of it ran. Write the answer again, whole: one JSON object"
        ' {"calls": [...], "output": ...}, and nothing before or after it.'
    )


# -- turns -----------------------------------------------------------------------------------------------------------
#
# Turns: the host's own model is the mind, and answers through `submit_solution` (DESIGN 5).

RULES: Final = (
    "`calls` are tool calls; they run as soon as what they read exists, all"
    " independent ones at once. Pass input and results on by reference, never copied: a whole string such as"
    ' "†state.log", "†input.repo", "†results.0.name" stands for the value, and "_outputPath": "log" stores a'
    " result at †state.log (without it a result is †results.PLACE). Leave `output` null while you still need to see"
    " results; give it, with references or values, once the task is done. Text that begins with a dagger is escaped by"
    " doubling it."
)
"""How a solution is written, for any mind."""

TURNS_INSTRUCTIONS: Final = (
    'Write the next solution: one JSON object {"calls": [...], "output": ...} that satisfies `schema`, and hand it in'
    f" with submit_solution (same run and turn). {RULES}"
)
"""What the host's model is told with each Request; short, for it costs the host's context every time."""
