"""Compose the text that a model receives in addition to the Request.

`brief` describes the schema of a Solution in short form, with tools as signatures and types as in
TypeScript. JSON Schema would take many times more tokens, and small models copy a schema instead of
following it. `instructions` is for a model endpoint, which also gets `EXAMPLES`.
`turns_instructions` is for a host's model, which answers through the `solve` tool.
"""

from __future__ import annotations

from typing import Final

from ideabridge.tools.composed import CallSchema, SolutionSchema
from ideabridge.tools.encoding import JSON, JSONObject, encode_text, list_or_empty
from ideabridge.tools.keywords import SchemaKeywords
from ideabridge.tools.typed import read_as

_DEFINITIONS: Final = "#/$defs/"
_REFERENCE: Final = "reference"
_PATH: Final = "_outputPath"
_DEEPEST: Final = 8
_SCALARS: Final = ("null", "boolean", "integer", "number", "string")


def brief(schema: JSONObject) -> str:
    """Describe briefly the tools, the meta-properties of calls, the output and the named types of a
    Solution.

    Args:
        schema: the adapted schema of the Solution.
    """
    return _Brief(schema).text()


class _Brief:
    def __init__(self, schema: JSONObject) -> None:
        self._solution = SolutionSchema.read(schema)
        # Named types and meta-properties, in the order they are found. Their descriptions come
        # after the tools.
        self._named: dict[str, None] = {}
        self._metas: dict[str, None] = {}

    def text(self) -> str:
        tools = map(self._tool, self._solution.calls)
        lines = ["Tools (there are no others; ? marks optional members):", *tools]
        if len(lines) == 1:
            lines = ['There are no tools: "calls" is [].']

        metas = [
            f"  {name}: {self._described(self._solution.definitions.get(name, {}))}"
            for name in self._metas
            if name != _PATH
        ]
        if metas:
            lines += ["A call may also have, where needed:", *metas]

        for name, part in self._solution.properties.items():
            if name not in ("calls", "output", "program"):
                lines.append(f'Before "calls" comes "{name}": {self._described(part)}')

        lines.append(f'The type of "output": {self._output()}')
        program = read_as(SchemaKeywords, self._solution.properties.get("program"))
        if program.description is not None:
            lines.append(f'Or write {{"program": TEXT}}. {program.description}')

        done = 0
        while done < len(self._named):
            name = [*self._named][done]
            done += 1
            definition = self._solution.definitions.get(name, {})
            lines.append(f"{name} = {self._described(definition)}")

        return "\n".join(lines)

    def _tool(self, call: CallSchema) -> str:
        keywords = read_as(SchemaKeywords, call.schema)
        needed = keywords.required
        parameters: list[str] = []
        for name, part in call.members.items():
            target = _target(part)
            if name == "_tool":
                continue
            if target is not None and target.startswith("_"):
                self._metas[name] = None
                if name not in needed:
                    continue

            mark = "" if name in needed else "?"
            parameters.append(f"{name}{mark}: {self._field(part, 0)}")

        if call.schema.get("additionalProperties") is not False:
            parameters.append("...")

        line = f"- {call.tool}({', '.join(parameters)})"
        text = " ".join((keywords.description or "").split("\n"))
        return f"{line}: {text}" if text else line

    def _output(self) -> str:
        description = read_as(SchemaKeywords, self._solution.output).description or ""
        notes = description.split("\n")[:-1]
        kinds = [
            kind
            for kind in dict.fromkeys(map(self._type, self._solution.outputs))
            if kind != _REFERENCE
        ]
        text = " | ".join(kinds) or "any"
        return f"{text} // {' '.join(notes)}" if notes else text

    def _described(self, schema: JSON) -> str:
        """Return a type with its description."""
        description = _said(schema)
        kind = self._type(schema)
        return f"{kind} // {description}" if description else kind

    def _type(self, schema: JSON, depth: int = 0) -> str:
        if not isinstance(schema, dict) or not schema or depth > _DEEPEST:
            return "any"

        target = _target(schema)
        if target is not None:
            if target != _REFERENCE:
                self._named[target] = None
            return target

        keywords = read_as(SchemaKeywords, schema)
        if "anyOf" in schema and "properties" not in schema:
            # Leave out the alternative that accepts a reference, because the instructions already
            # say that a reference can replace any value.
            kinds = dict.fromkeys(
                self._type(branch, depth + 1)
                for branch in list_or_empty(schema["anyOf"])
                if _target(branch) != _REFERENCE
            )
            return " | ".join(kinds) or _REFERENCE

        if "const" in schema:
            return encode_text(schema["const"])
        if keywords.enum is not None:
            return " | ".join(map(encode_text, keywords.enum))
        if len(keywords.types) > 1:
            return " | ".join(
                self._type({**schema, "type": name}, depth + 1) for name in keywords.types
            )

        kind = next(iter(keywords.types), None)
        if kind == "array" or (kind is None and "items" in schema):
            inner = self._type(schema.get("items", {}), depth + 1)
            return f"({inner})[]" if " | " in inner else f"{inner}[]"
        if kind == "object" or (kind is None and "properties" in schema):
            return self._fields(schema, depth)
        return kind if kind in _SCALARS else "any"

    def _fields(self, schema: JSONObject, depth: int) -> str:
        keywords = read_as(SchemaKeywords, schema)
        fields: list[str] = []
        for name, part in keywords.properties.items():
            mark = "" if name in keywords.required else "?"
            fields.append(f"{encode_text(name)}{mark}: {self._field(part, depth)}")

        rest = schema.get("additionalProperties", True)
        if isinstance(rest, dict) and rest:
            fields.append(f"[name]: {self._type(rest, depth + 1)}")
        elif rest is not False or not fields:
            fields.append("...")

        return f"{{{', '.join(fields)}}}"

    def _field(self, schema: JSON, depth: int) -> str:
        description = _said(schema)
        kind = self._type(schema, depth + 1)
        return f"{kind} /* {description} */" if description else kind


def _said(schema: JSON) -> str:
    """Return the descriptions of a schema and its alternatives, which mention the limits."""
    keywords = read_as(SchemaKeywords, schema)
    parts = [keywords, *(read_as(SchemaKeywords, part) for part in keywords.any_of)]
    return "; ".join(
        dict.fromkeys(" ".join(part.description.split()) for part in parts if part.description)
    )


def _target(schema: JSON) -> str | None:
    """Return the name in `$defs` that a schema refers to, or None if it refers to none."""
    reference = read_as(SchemaKeywords, schema).reference
    return None if reference is None else reference.removeprefix(_DEFINITIONS)


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
"""The instructions are short, because the examples show the rest."""

EXAMPLES: Final = (
    (
        (
            "Read the file of the input, then count its lines.\n\nInput, read as †input.KEY:\n{\n "
            '"file": "a.txt"\n}'
        ),
        (
            '{"calls": [{"_tool": "read_file", "path": "†input.file"},'
            ' {"_tool": "count_lines", "text": "†results.0"}], "output": "†results.1"}'
        ),
    ),
    (
        "What is the capital of Peru?",
        '{"calls": [{"_tool": "capital", "country": "Peru"}], "output": "†results.0"}',
    ),
    (
        "Multiply 6 by 7.",
        '{"calls": [{"_tool": "multiply", "x": 6, "y": 7}], "output": "†results.0"}',
    ),
)
"""(task, Solution) pairs that are sent as turns before the task. The simplest pair comes last.
Without these examples, small models write wrong references and make unnecessary calls. The tools in
these examples are invented.
"""

_TYPES: Final = "\n\n{types}\nWrite the JSON object alone: no explanation, no Markdown fence."


def instructions(schema: JSONObject, *, is_shown: bool) -> str:
    """Return the instructions. They describe the adapted schema, unless the endpoint shows it to
    the model.
    """
    if is_shown:
        if _program_hint(schema):
            return f"{INSTRUCTIONS}\n-{_program_hint(schema)}"
        return INSTRUCTIONS
    return INSTRUCTIONS + _TYPES.replace("{types}", brief(schema))


def ask_again(error: str) -> str:
    """Return the reply to an unreadable answer."""
    return (
        f"That cannot be read: {error}. No part of it ran. Write the whole answer again: "
        'one JSON object {"calls": [...], "output": ...}, with nothing before or after it.'
    )


RULES: Final = (
    "`calls` are tool calls; they run as soon as what they read exists, all"
    " independent ones at once. Pass input and results on by reference, "
    "never copied: a whole string such as"
    ' "†state.log", "†input.repo", "†results.0.name" stands for the value, '
    'and "_outputPath": "log" stores a'
    " result at †state.log (without it a result is †results.PLACE). Leave `output` null "
    "while you still need to see"
    " results; give it, with references or values, "
    "once the task is done. Text that begins with a dagger is escaped by"
    " doubling it."
)
"""The rules for writing a Solution, for any mind."""

_PROGRAMS: Final = (
    ' Where loops or conditions are needed, {"program": TEXT} may take its place: '
    "Python, as `schema` says."
)

_TURNS: Final = (
    'Write the next solution: one JSON object {"calls": [...], '
    '"output": ...} that satisfies `schema`, and hand it in'
    " with solve (same run and turn)."
)


def _program_hint(schema: JSONObject) -> str:
    """Return a sentence about programs, or "" if the schema does not offer programs."""
    return _PROGRAMS if "program" in SolutionSchema.read(schema).properties else ""


def rules(schema: JSONObject) -> str:
    """Return the rules for writing a Solution, for a mind that sees the schema."""
    return RULES + _program_hint(schema)


def turns_instructions(schema: JSONObject) -> str:
    """Return the text that a host's model receives with each Request.

    The text is short, because it takes up space in the host's context each time.
    """
    return f"{_TURNS} {rules(schema)}"
