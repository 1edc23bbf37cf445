"""Step idea: the idea that a Request becomes once it is answered (DESIGN 4.11)."""

from __future__ import annotations

from collections.abc import Sequence

from ideabridge.bridge.context.message import Message
from ideabridge.bridge.ideas.idea import Idea, IdeaMeta
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.request import Request
from ideabridge.bridge.run import Run


def idea_of_step(run: Run, machine: Machine, request: Request, outcome: str, fingerprint: str) -> tuple[Idea, IdeaMeta]:
    """The Request that was just answered as an idea; every Request becomes one (DESIGN 4.11).

    Args:
        run: the run; its `idea` is that of the step before, else the one it was made from is the parent.
        machine: its machine.
        request: the Request.
        outcome: how the step ended: `open` where another Request follows, else as the run.
        fingerprint: of the configuration.
    """
    calls, output, extra = machine.solution
    idea = Idea(request.context, request.schema, {**extra, "calls": calls, "output": output})
    # Once the next Request is due, the step has been counted on already.
    place = machine.step if machine.phase == "asking" else machine.step + 1
    tools = tuple(dict.fromkeys(str(call.get("_tool")) for call in calls if isinstance(call, dict)))
    mind, model = _author(run, place - 1)
    meta = IdeaMeta(
        run=run.id,
        step=place,
        parent=run.idea or run.turns.idea,
        mind=mind,
        model=str((machine.spending.last or {}).get("model", model)),
        usage={key: value for key, value in (machine.spending.last or {}).items() if key != "model"},
        fingerprint=fingerprint,
        title=_title(machine.messages) or ", ".join(tools)[:200],
        tools=tools,
        outcome=outcome,
    )
    return idea, meta


def _author(run: Run, turn: int) -> tuple[str, str]:
    """(mind, model) of the solution of a turn, the model as far as whoever handed it in knew it."""
    if run.machine.mode == "plan":
        return "", ""
    if run.runner.mind is not None:
        return run.runner.mind.name, ""
    return run.turns.authors.get(turn, ("turns", ""))


def _title(messages: Sequence[Message]) -> str:
    for message in messages:
        if message.type == "text" and isinstance(message.value, str):
            return message.value.strip().split("\n")[0][:200]
    return ""
