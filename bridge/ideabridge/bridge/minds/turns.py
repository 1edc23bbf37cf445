"""Turns: the host's own model is the mind, and answers through `submit_solution` (DESIGN 5)."""

from __future__ import annotations

from typing import Final

RULES: Final = (
    "`calls` are tool calls; they run as soon as what they read exists, all"
    " independent ones at once. Pass input and results on by reference, never copied: a whole string such as"
    ' "†state.log", "†input.repo", "†results.0.name" stands for the value, and "_outputPath": "log" stores a'
    " result at †state.log (without it a result is †results.PLACE). Leave `output` null while you still need to see"
    " results; give it, with references or values, once the task is done. Text that begins with a dagger is escaped by"
    " doubling it."
)
"""How a solution is written, for any mind."""

INSTRUCTIONS: Final = (
    'Write the next solution: one JSON object {"calls": [...], "output": ...} that satisfies `schema`, and hand it in'
    f" with submit_solution (same run and turn). {RULES}"
)
"""What the host's model is told with each Request; short, for it costs the host's context every time."""
