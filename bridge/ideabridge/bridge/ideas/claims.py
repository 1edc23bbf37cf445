"""Claims: what an imported publication says of how it answers and how it was checked. Nothing of it was seen here."""

from __future__ import annotations

from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject

_IMPORTED: Final = "Imported: its author's description was not checked here."
_WAYS: Final = {
    "recorded": "It gives the answer recorded for its one input; nothing runs.",
    "plan": "It replays a saved plan with your input.",
    "solve": "It asks a model to solve it anew with your input.",
}
UNCHECKED: Final = "not here"
"""How far an imported plan was checked: the member `checked` of its `lifting`."""


def imported_description(description: str, answer: str, plan: JSON) -> str:
    """The description of an imported publication: the text of the document, then that it was not checked here, and how
    a call is answered.

    Args:
        description: the document's text.
        answer: how it is answered: `recorded`, `plan`, `solve`, or `auto`, which is the plan where there is one.
        plan: its plan; null: none.
    """
    way = answer if answer != "auto" else "plan" if isinstance(plan, dict) and plan.get("calls") else "solve"
    told = f"{_IMPORTED} {_WAYS[way]}"
    text = description.strip()
    if text.endswith(told):
        # The document was exported from a store that had imported it.
        return text
    end = "" if not text or text.endswith((".", "!", "?")) else "."
    return f"{text}{end} {told}".strip()


def unchecked(plan: JSON) -> JSON:
    """An imported plan: what it says of its lifting stays as the document's claim."""
    if not isinstance(plan, dict) or "lifting" not in plan:
        return plan
    lifting = plan["lifting"]
    if isinstance(lifting, dict) and lifting.get("checked") == UNCHECKED:
        # It was imported before it was exported.
        lifting = lifting.get("claimed")
    claimed: JSONObject = {"checked": UNCHECKED, "claimed": lifting}
    return {**plan, "lifting": claimed}
