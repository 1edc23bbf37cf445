"""Publish: an idea becomes a tool (DESIGN 4.11)."""

from __future__ import annotations

from typing import Literal

from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.ideas.records import Publication
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.replay.consistency import inconsistency
from ideabridge.bridge.replay.constants import constants_of, unaccepted
from ideabridge.bridge.replay.function import Function, read_function
from ideabridge.bridge.replay.order import unbound_orders
from ideabridge.bridge.replay.replay import read_published
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import UnknownToolError
from ideabridge.tools.names import did_you_mean

Answer = Literal["auto", "recorded", "plan"]

_SENTENCES = {
    "recorded": "Gives the answer recorded for its one input; nothing runs.",
    "plan": "Replays a saved plan with your input; no model is asked."
    " Self-consistent: the recorded results give the recorded output.",
}


def publish(
    store: Store,
    catalogue: Catalogue,
    ref: str,
    name: str,
    *,
    description: str | None = None,
    answer: str = "auto",
    choices: JSONObject | None = None,
    caller: str,
    owner: str | None = None,
) -> Publication:
    """Publish an idea, or the last idea of a run, as a tool. A published name gets a new version.

    What is published is what one run did: the run `ref` names, else the caller's latest that ended with the idea.

    Args:
        store: holds the idea.
        catalogue: the tools there are now; a plan's must be among them.
        ref: id, unique prefix, name, `name@version`, or a run's id.
        name: what the tool is called: `^[a-z][a-z0-9_]{0,47}$`.
        description: what it does, for the models that may call it.
        answer: `recorded`, `plan`, or `auto`: `plan` where that is possible, else `recorded`.
        choices: `{"accept": true}` or `{"accept": ["calls.0.repo_path", "order", ...]}`: constants a person accepts,
            and the order of calls that nothing but their listing gives.
        caller: who publishes; the idea must come from a run of theirs.
        owner: the caller it is published to; None: everyone.

    Raises:
        PublicationError: it cannot be published so; the message says what is missing.
        UnknownIdeaError, UnknownRunError: there is none for this caller.
        PublicationNameError: the name cannot be a tool's.
    """
    if answer not in ("auto", "recorded", "plan"):
        raise PublicationError(f"answer: expected 'auto', 'recorded' or 'plan', found {answer!r}")
    unknown = [key for key in choices or {} if key != "accept"]
    if unknown:
        raise PublicationError(f"choices: unknown key {unknown[0]!r}; expected 'accept'")
    function = read_function(store, ref, caller)
    chosen: Literal["recorded", "plan"] = "recorded"
    if answer != "recorded":
        impossible = _impossible(function, catalogue)
        if impossible is None:
            # What a person may still accept is asked for, also by `auto`: a replay of one input is not what was meant.
            _demand_acceptance(function, catalogue, (choices or {}).get("accept"))
            chosen = "plan"
        elif answer == "plan":
            raise PublicationError(f"it cannot be replayed as a plan: {impossible}")
    meta = function.stored.meta
    text = description or meta.description or meta.title or f"Runs {', '.join(meta.tools) or name}"
    return store.publish(
        name,
        function.stored.id,
        description=f"{text.rstrip()}{'' if text.rstrip().endswith('.') else '.'} {_SENTENCES[chosen]}",
        answer=chosen,
        input_schema=function.input_schema,
        output_schema=function.output_schema,
        annotations=_annotations(function, catalogue, chosen),
        plan=function.plan() if chosen == "plan" else None,
        recorded={"input": function.input or {}, "output": function.run.result},
        owner=owner,
    )


def _impossible(function: Function, catalogue: Catalogue) -> str | None:
    """Why the calls cannot run again for other inputs, whatever is accepted; None where they can."""
    if function.run.machine.step > 0:
        return "its run took several Requests; only a run of one can be published as a plan yet"
    if not function.calls:
        return "it has no calls to replay"
    changed = function.run.not_as_listed()
    if changed:
        more = f"; and {len(changed) - 20} more" if len(changed) > 20 else ""
        return f"its calls did not all run as listed: {'; '.join(changed[:20])}{more}"
    if function.faults:
        return "; ".join(function.faults)
    for place, call in enumerate(function.calls):
        if isinstance(call, dict):
            module = call.get("_module")
            try:
                catalogue.find(str(call.get("_tool")), module if isinstance(module, str) else None)
            except UnknownToolError as error:
                return f"calls.{place}: {error}"
    plan = read_published(
        function.plan(), function.input or {}, function.input_schema, function.output_schema, name="it"
    )
    return inconsistency(function.run, plan)


def _orders(function: Function) -> list[str]:
    """The calls with effects that only their listing puts in order."""
    machine = Machine(function.run.machine.catalogue)
    machine.receive(function.run.started)
    calls, output, _ = function.run.machine.solution
    machine.intake.check(calls, output, function.run.places)
    graph = machine.intake.checked.graph if machine.intake.checked is not None else None
    return unbound_orders(graph) if graph is not None else []


def _demand_acceptance(function: Function, catalogue: Catalogue, accept: JSON) -> None:
    """Every constant must be demanded by a schema or accepted by a person, and so must an order without data.

    Raises:
        PublicationError: names those that are not, and paths accepted at which nothing stands.
    """
    constants = constants_of(function.calls, function.output, catalogue, function.instances)
    orders = _orders(function)
    left = unaccepted(constants, accept)
    asked: list[str] = []
    if left:
        shown = "; ".join(one.shown for one in left[:20])
        more = f"; and {len(left) - 20} more" if len(left) > 20 else ""
        asked.append(
            f"these are constants, the same for every input: {shown}{more}. Make them references (†input...), accept"
            ' them (choices {"accept": ["calls.0.x", ...]} or {"accept": true})'
        )
    if orders and accept is not True and not (isinstance(accept, list) and "order" in accept):
        asked.append(
            "these calls have effects, and nothing but their listing puts them in order:"
            f" {'; '.join(f'order: {one}' for one in orders[:20])}. Let one read what the other gives, or accept the"
            ' order (choices {"accept": ["order", ...]} or {"accept": true})'
        )
    if asked:
        raise PublicationError(f'{". And ".join(asked)}, or publish with answer "recorded"')
    if isinstance(accept, list):
        known = [*(one.path for one in constants), *(["order"] if orders else [])]
        for path in accept:
            if not any(one == path or one.startswith(f"{path}.") for one in known):
                raise PublicationError(
                    f"choices.accept: nothing constant stands at {path!r}.{did_you_mean(str(path), known)}"
                )


def _annotations(function: Function, catalogue: Catalogue, answer: str) -> JSONObject:
    """What can honestly be said: a recorded answer reads; a plan is what all its calls are."""
    if answer == "recorded":
        return {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
    read_only = idempotent = True
    destructive = open_world = False
    for call in function.calls:
        if not isinstance(call, dict):
            continue
        tool = catalogue.look_up(call)
        if tool is None:
            continue
        said = tool.annotations
        read_only = read_only and said.read_only is True
        idempotent = idempotent and said.repeatable
        destructive = destructive or (said.read_only is not True and said.destructive is not False)
        # A tool here that says nothing is taken to stay here; a module that says nothing may reach anywhere.
        open_world = open_world or (
            said.open_world is not False if tool.module is not None else said.open_world is True
        )
    return {
        "readOnlyHint": read_only,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": open_world,
    }
