"""Mark what an imported publication says about its answers and checks as unverified, because this
store has not checked it.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.published import PlanOrigin
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.reading import Solution
from ideabridge.tools.typed import read_as

_IMPORTED: Final = "Imported: its author's description was not checked here."
_WAYS: Final = {
    "recorded": "It returns the answer recorded for its only input; nothing runs.",
    "plan": "It replays a saved plan with your input.",
    "program": "It runs a saved program with your input.",
    "solve": "It asks a model to solve the task again with your input.",
}
UNCHECKED: Final = "not here"
"""The value of `lifting.checked` in an imported plan."""


def imported_description(description: str, answer: str, plan: JSON) -> str:
    """Return a description for an imported publication: the one from the document, followed by a
    note that says how calls are answered and that this store has not checked it.

    Args:
        description: the description from the document.
        answer: how calls are answered. `auto` means the plan, if it contains calls.
        plan: the plan of the publication, or None.
    """
    if answer != "auto":
        way = answer
    elif read_as(Solution, plan).calls:
        way = "plan"
    else:
        way = "solve"

    note = f"{_IMPORTED} {_WAYS[way]}"
    text = description.strip()
    if text.endswith(note):
        # The store that exported the idea had itself imported it, so the description already ends
        # with the note.
        return text
    if not text:
        return note
    if not text.endswith((".", "!", "?")):
        text += "."
    return f"{text} {note}"


def unchecked(plan: JSON) -> JSON:
    """Return an imported plan in which the statements about lifting are marked as claims made by
    the document.
    """
    if not isinstance(plan, dict) or "lifting" not in plan:
        return plan

    lifting = plan["lifting"]
    origin = read_as(PlanOrigin, lifting)
    if origin.checked == UNCHECKED:
        # The store that exported the idea had itself imported it, so keep the original claims.
        lifting = origin.claimed

    claimed: JSONObject = {"checked": UNCHECKED, "claimed": lifting}
    return {**plan, "lifting": claimed}


def without_runs(publication: Publication) -> Publication:
    """Return the publication without the ids of the runs that its plan was made from, for viewers
    who must not see those runs.
    """
    plan = publication.plan or {}
    lifting = plan.get("lifting")
    if not isinstance(lifting, dict):
        return publication

    claims: JSONObject = {key: lifting[key] for key in ("checked", "claimed") if key in lifting}
    return dataclasses.replace(publication, plan={**plan, "lifting": claims})
