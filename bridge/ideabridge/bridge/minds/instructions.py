"""Instructions: what a model endpoint is told besides the Request (DESIGN 5)."""

from __future__ import annotations

from typing import Final

from ideabridge.tools.encoding import JSONObject, encode_text

INSTRUCTIONS: Final = """\
You solve the task by writing one JSON object, and nothing else: {"calls": [...], "output": ...}
- "calls": tool calls to run now, [] if none is needed. A call is {"_tool": NAME, its parameters}. Each starts as soon
  as what it reads exists, independent ones at once. List a call before those that read its result.
- Never copy or guess a result: refer to it. A whole string such as "†state.log", "†input.file" or "†results.0.name"
  stands for the value. "_outputPath": "log" stores a result at †state.log; without it, a result is †results.N, N
  counting the calls of this run from 0.
- "output": null while you must see results first; you are asked again, with them. Otherwise the final answer, with
  references or values.
- Text that begins with † is written with two: ††.
Example (tools and names made up), which needs no second answer:
{"calls": [{"_tool": "read_file", "path": "†input.file", "_outputPath": "text"},
 {"_tool": "count_words", "text": "†state.text", "_outputPath": "words"}], "output": "†state.words"}"""
"""Short, and with an example: what weak models need to get references right."""

_SCHEMA: Final = (
    "\n\nThe object must satisfy this JSON Schema. It lists every tool there is; use no other names:\n{schema}\n"
    "Write the JSON object alone: no explanation, no Markdown fence."
)


def instructions(schema: JSONObject | None) -> str:
    """The instructions; with the schema, where the endpoint would not show it to the model."""
    if schema is None:
        return INSTRUCTIONS
    return INSTRUCTIONS + _SCHEMA.replace("{schema}", encode_text(schema))


def correction(error: str) -> str:
    """What is said to an answer that cannot be read."""
    return (
        f"That cannot be read: {error}. Nothing of it ran. Write the answer again, whole: one JSON object"
        ' {"calls": [...], "output": ...}, and nothing before or after it.'
    )
