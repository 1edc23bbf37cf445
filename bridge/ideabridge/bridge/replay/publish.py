"""Publish: an idea becomes a tool (DESIGN 4.11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.ideas.records import Publication
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.replay.asking import asks_of, demand
from ideabridge.bridge.replay.called import asking_calls, cycle_through
from ideabridge.bridge.replay.choices import Choices, read_choices
from ideabridge.bridge.replay.decide import Decided, decide
from ideabridge.bridge.replay.function import Function, read_function
from ideabridge.bridge.replay.lift import lift_function
from ideabridge.bridge.replay.report import counts_of
from ideabridge.bridge.replay.telling import told_of
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import UnknownToolError

Answer = Literal["auto", "recorded", "plan"]

_RECORDED = "Gives the answer recorded for its one input; nothing runs."


def publish(
    store: Store,
    tools: Callable[[Plan], Catalogue],
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
        tools: the tools there are now, with those that calls name; a plan's must be among them.
        ref: id, unique prefix, name, `name@version`, or a run's id.
        name: what the tool is called: `^[a-z][a-z0-9_]{0,47}$`.
        description: what it does, for the models that may call it.
        answer: `recorded`, `plan`, or `auto`: `plan` where that is possible, else `recorded`.
        choices: what a person decides about a plan; see `read_choices`, and `docs/lifting.md`.
        caller: who publishes; the idea must come from a run of theirs.
        owner: the caller it is published to; None: everyone.

    Raises:
        PublicationError: it cannot be published so; the message says what is missing.
        UnknownIdeaError, UnknownRunError: there is none for this caller.
        PublicationNameError: the name cannot be a tool's.
    """
    if answer not in ("auto", "recorded", "plan"):
        raise PublicationError(f"answer: expected 'auto', 'recorded' or 'plan', found {answer!r}")
    chosen = read_choices(choices)
    function = read_function(store, ref, caller)
    plan: JSONObject | None = None
    decided: Decided | None = None
    sentences = _RECORDED
    if answer != "recorded":
        found = _lifted(function, store, caller, chosen, tools, name)
        if isinstance(found, Decided):
            # What a person may still accept is asked for, also by `auto`: a replay of one input is not what was meant.
            demand(found)
            decided, confirmed = found, _confirmations(found)
            catalogue = tools(found.with_input(function.input or {}))
            asking = asking_calls(store, catalogue, found.calls)
            plan, sentences = _with_decisions(found, confirmed), _sentences(found, confirmed, asking)
        elif answer == "plan":
            raise PublicationError(f"it cannot be replayed as a plan: {found}")
    meta = function.stored.meta
    text = (description or meta.description or told_of(function, name)).rstrip()
    return store.publish(
        name,
        function.stored.id,
        description=f"{text}{'' if text.endswith('.') else '.'} {sentences}",
        answer="recorded" if plan is None else "plan",
        input_schema=function.input_schema,
        output_schema=function.output_schema,
        annotations=_annotations(decided, tools),
        plan=plan,
        recorded={"input": function.input or {}, "output": function.run.result},
        owner=owner,
    )


def _lifted(
    function: Function, store: Store, caller: str, choices: Choices, tools: Callable[[Plan], Catalogue], name: str
) -> Decided | str:
    """The plan with everything decided put in, or why there can be none whatever is accepted."""
    try:
        lifted = lift_function(function, store, caller, choices.runs)
    except PublicationError as error:
        if choices.runs is not None:
            raise
        return str(error)
    decided = decide(lifted, choices)
    cycle = cycle_through(store, name, decided.calls)
    if cycle is not None:
        return f"it would call itself: {' -> '.join(cycle)}"
    catalogue = tools(decided.with_input(function.input or {}))
    for place, call in enumerate(decided.calls):
        if isinstance(call, dict):
            module = call.get("_module")
            try:
                catalogue.find(str(call.get("_tool")), module if isinstance(module, str) else None)
            except UnknownToolError as error:
                return f"calls.{place}: {error}"
    difference = decided.difference()
    if difference is not None and choices.take:
        raise PublicationError(f"with what was taken, it does not do what its run did: {difference}")
    return decided if difference is None else difference


def _confirmations(decided: Decided) -> list[str]:
    """The runs with other input that the plan reproduces.

    Raises:
        PublicationError: there is one that it does not reproduce.
    """
    agree, differ = decided.confirmations()
    if differ and (decided.choices.runs is not None or not decided.choices.accepts("course")):
        raise PublicationError(
            f"it does not do what other runs of the same task did: {'; '.join(differ[:5])}. Name the runs that count"
            ' (choices {"runs": [...]}), accept it (choices {"accept": ["course"]}) where they were not named, or'
            ' publish with answer "recorded"'
        )
    return agree


def _sentences(decided: Decided, confirmed: list[str], asking: list[int]) -> str:
    """What the description says of how it answers."""
    asked = ", ".join(f"calls.{place} ({_tool(decided.calls[place])})" for place in asking)
    model = f"a model is asked for {asked} alone" if asked else "no model is asked"
    told = f"Replays a saved plan with your input; {model}."
    if confirmed:
        runs = "another run" if len(confirmed) == 1 else f"{len(confirmed)} other runs"
        return f"{told} Confirmed: it does and gives what {runs} with other input did and gave."
    return f"{told} Self-consistent: the recorded results give the recorded output."


def _tool(call: JSON) -> str:
    return str(call.get("_tool")) if isinstance(call, dict) else ""


def _with_decisions(decided: Decided, confirmed: list[str]) -> JSONObject:
    """The plan as it is kept: with what was decided, by whom or what, and how far it was checked."""
    accepted: list[JSON] = [one.text for one in asks_of(decided)]
    lifting: JSONObject = {
        "run": decided.lifted.run,
        "checked": "confirmed" if confirmed else "self-consistent",
        "confirmed_by": list[JSON](confirmed),
        "choices": decided.choices.to_json(),
        "accepted": accepted,
        "taken": dict[str, JSON](decided.replaced),
        "counts": counts_of(decided),
    }
    return {**decided.plan(), "lifting": lifting}


def _annotations(decided: Decided | None, tools: Callable[[Plan], Catalogue]) -> JSONObject:
    """What can honestly be said: a recorded answer (no plan) reads; a plan is what all its calls are."""
    if decided is None:
        return {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
    catalogue = tools(decided.with_input(decided.lifted.function.input or {}))
    read_only = idempotent = True
    destructive = open_world = False
    for call in decided.calls:
        if not isinstance(call, dict):
            continue
        tool = catalogue.look_up(call)
        if tool is None or tool.key in catalogue.latent:
            # Only a mind is asked.
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
