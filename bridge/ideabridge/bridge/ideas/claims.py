"""Claims: what an imported publication says of how it answers and was checked; nothing of it was seen here."""

from __future__ import annotations

import re
from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject

_OURS: Final = re.compile(
    r"^\W*(replays a saved plan|gives the answer recorded for|a model is asked to solve|the same input within"
    r"|confirmed\b|imported:)|\bconfirmed\s*:|\bself-consistent\b",
    re.IGNORECASE,
)
"""A sentence as only publishing writes it."""

_TOLD: Final = {
    "recorded": "Gives the answer recorded for its one input; nothing runs. Imported: that answer was not given here.",
    "plan": "Replays a saved plan with your input. Imported: whether it does what its run did was not checked here.",
    "solve": "A model is asked to solve it anew with your input. Imported: it was not tried here.",
}
UNCHECKED: Final = "not here"
"""How far an imported plan was checked: the member `checked` of its `lifting`."""


def told_here(description: str, answer: str, plan: JSON) -> str:
    """The description of an imported publication: its author's words without those that publishing writes, and how it
    answers in our own.

    Args:
        description: that of the document.
        answer: how it is answered: `recorded`, `plan`, `solve`, or `auto`, which replays a plan where there is one.
        plan: its plan; null: none.
    """
    parts = [*re.split(r"((?<=[.!?])\s+|\n+)", description.strip()), ""]
    # Each sentence with the white space after it.
    kept = [parts[place] + parts[place + 1] for place in range(0, len(parts), 2) if not _OURS.search(parts[place])]
    own = "".join(kept).strip()
    told = _TOLD[answer if answer != "auto" else "plan" if isinstance(plan, dict) and plan.get("calls") else "solve"]
    return f"{own}{'' if own.endswith(('.', '!', '?')) else '.'} {told}" if own else told


def unchecked(plan: JSON) -> JSON:
    """An imported plan: what it says of its lifting stands as the document's claim."""
    if not isinstance(plan, dict) or "lifting" not in plan:
        return plan
    lifting = plan["lifting"]
    if isinstance(lifting, dict) and lifting.get("checked") == UNCHECKED:
        # It was imported before it was exported.
        lifting = lifting.get("claimed")
    told: JSONObject = {"checked": UNCHECKED, "claimed": lifting}
    return {**plan, "lifting": told}
