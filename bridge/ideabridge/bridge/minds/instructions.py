"""Instructions: what a model endpoint is told besides the Request (DESIGN 5)."""

from __future__ import annotations

from typing import Final

from ideabridge.bridge.minds.brief import brief
from ideabridge.tools.encoding import JSONObject

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
