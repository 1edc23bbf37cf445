"""Publish: turn an idea into a tool.

Theory of operation. `publish` reads the run that made an idea as a function, and chooses how calls will be answered:

| answer | what a call does | what is stored |
|---|---|---|
| `plan` | runs the lifted plan with the new input | the plan and its pins |
| `solve` | asks a mind anew, with the plan as guidance | a guide: context, tools, output schema, plan |
| `recorded` | returns the stored output for the stored input | nothing more |

`auto` chooses the first of these that is possible. If a person must still accept something about the plan, it raises
`UndecidedError` and does not try the next. A version that it publishes as a plan or for solving keeps the answer
`auto`. Input and output are always stored, so that `verify` can compare them later.

Invariants. A plan is published only if it is self-consistent (with the recorded results it returns the recorded
output), a person has accepted everything that lifting asks about, and it does not call itself through other ideas.
After the tools are known, nothing waits until the version is written: the plan is checked against the tools that its
pins name. A failed publication stores nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from ideabridge.bridge.context.messages import read_message
from ideabridge.bridge.errors import PublicationError, UndecidedError
from ideabridge.bridge.lifting.asking import asks_of, counts_of, demand
from ideabridge.bridge.lifting.draft import Choices, PlanDraft, apply_choices, read_choices
from ideabridge.bridge.lifting.function import Function, read_function
from ideabridge.bridge.lifting.lift import lift_function
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.event import APPROVER, Decider
from ideabridge.bridge.loop.solution import LAZY
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.publishing.idea_tools import hints_of
from ideabridge.bridge.runs.pins import (
    Pin,
    calls_in,
    check_pins,
    defined_in,
    essences_of,
    pinned_tools,
    read_pins,
    with_own_module,
)
from ideabridge.bridge.runs.replay import asking_calls, cycle_through, next_version, without_cycles
from ideabridge.bridge.store.idea import ANSWERS, Answer, Publication
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import ANONYMOUS

_NAMED: Final = 8
"""Tools, and members of the output, that a description names."""

T = TypeVar("T")


class PublishingHost(Protocol):
    """What `publish` needs besides the store."""

    async def tools_for(self, plan: Plan, stored: JSONObject, *, name: str, caller: str) -> Catalogue:
        """The present tools, with those that the calls of a plan name, when all modules that they need have listed
        theirs. Nothing waits from then until the plan is published.

        Args:
            plan: to be published.
            stored: the plan as a publication stores it.
            name: what it is to be called.
            caller: who publishes.
        """
        ...

    async def patiently(self, call: Callable[[], T]) -> T:
        """Call what writes into the store; call it again while another program keeps the store locked."""
        ...


_RECORDED = "Gives the answer recorded for its one input; nothing runs."


async def publish(
    store: Store,
    host: PublishingHost,
    ref: str,
    name: str,
    *,
    description: str | None = None,
    answer: str = "auto",
    choices: JSONObject | None = None,
    by: Decider = APPROVER,
    caller: str,
    owner: str | None = None,
    audience: tuple[str, ...] | None = None,
    replaces: bool = False,
) -> Publication:
    """Publish an idea, or the last idea of a run, as a tool. A published name gets a new version.

    What is published is what one run did: the run `ref` names, else the caller's latest that ended with the idea.

    Args:
        store: holds the idea.
        host: waits for the tools of the plan, and repeats writes that the store refuses.
        ref: id, unique prefix, name, `name@version`, or a run's id.
        name: what the tool is called: `^[a-z][a-z0-9_]{0,47}$`.
        description: what it does, for the models that may call it.
        answer: `recorded`, `plan`, `solve`; or `auto`: the plan where there is one, else `solve`; `recorded` where it
            can neither be a plan nor be solved anew.
        choices: what a person decides about a plan; see `read_choices`, and `docs/lifting.md`.
        by: who made the choices; kept with the version.
        caller: who publishes; the idea must come from a run of theirs.
        owner: whose the name is, where it is new; None: the local person's, for everybody.
        audience: to whom it is given besides its owner; None: as before. See `Publications.share`.
        replaces: whether the owner may publish a version of what others have given to it.

    Raises:
        PublicationError: it cannot be published so; the message says what is missing.
        UnknownIdeaError, UnknownRunError: this caller has none of that name.
        PublicationNameError: the name cannot be a tool's.
    """
    if answer not in ANSWERS:
        raise PublicationError(f"answer: expected 'auto', 'recorded', 'plan' or 'solve', found {answer!r}")
    chosen = read_choices(choices)
    function = read_function(store, ref, caller)
    meta = function.stored.meta
    text = (description or meta.description or _description_of(function, name)).rstrip()
    text = text if text.endswith(".") else f"{text}."
    made = _Made("recorded", _RECORDED, hints_of(()))
    if answer in ("auto", "plan"):
        found = await _lifted(function, store, caller, chosen, host, name)
        if isinstance(found, _Lifted):
            # What a person may still accept is asked for, also by `auto`: a replay of one input is not what was meant.
            demand(found.draft)
            made = _as_plan(found, answer, store, by)
        elif answer == "plan":
            raise PublicationError(f"it cannot be replayed as a plan: {found}")
    if answer == "solve" or (answer == "auto" and made.plan is None):
        guide = guide_of(function, _shape(function, store, caller, chosen), text, store, name)
        if isinstance(guide, dict):
            made = _as_guide(guide, answer, function)
        elif answer == "solve":
            raise PublicationError(f"it cannot be solved anew: {guide}")
    recorded: JSONObject = {"input": function.input or {}, "output": function.run.result}
    if made.guide is not None:
        recorded["solve"] = made.guide
    pins = read_pins(made.plan or made.guide) or []
    essences = essences_of(function.run.machine.catalogue)

    def keep() -> Publication:
        with store.transaction():
            store.tool_memory.keep_definitions(
                {pin.digest: essences[pin.digest] for pin in pins if pin.digest in essences}
            )
            return store.publications.publish(
                name,
                function.stored.id,
                description=f"{text} {made.sentences}",
                answer=made.answer,
                input_schema=function.input_schema,
                output_schema=function.output_schema,
                annotations=made.annotations,
                plan=made.plan,
                recorded=recorded,
                owner=owner,
                audience=audience,
                replaces=replaces,
            )

    return await host.patiently(keep)


@dataclass(frozen=True, slots=True)
class _Made:
    """What becomes of an idea: the way it answers, what the description says of it, and what is kept for it."""

    answer: Answer
    sentences: str
    annotations: JSONObject
    plan: JSONObject | None = None
    guide: JSONObject | None = None


@dataclass(frozen=True, slots=True)
class _Lifted:
    """A plan with every choice applied, and the tools that its calls mean."""

    draft: PlanDraft
    catalogue: Catalogue


def _as_plan(found: _Lifted, answer: str, store: Store, by: Decider) -> _Made:
    draft, catalogue = found.draft, found.catalogue
    confirmed = _confirmations(draft)
    asking = asking_calls(store, catalogue, draft.calls)
    plan = _with_decisions(draft, confirmed, by)
    listed = [call for call in calls_in(plan) if isinstance(call, dict)]
    # Of a latent call only a mind is asked.
    called = [tool for call in listed if (tool := catalogue.look_up(call)) and tool.key not in catalogue.latent]
    return _Made(
        "auto" if answer == "auto" else "plan",
        _sentences(draft, confirmed, asking),
        hints_of(called),
        plan=plan,
    )


def _as_guide(guide: JSONObject, answer: str, function: Function) -> _Made:
    machine = function.run.machine
    # Clean rooms have no other tools than the run itself.
    offered = [one for one in machine.catalogue.tools if one.key not in machine.catalogue.latent]
    offered = [one for one in offered if one.module != ANONYMOUS]
    hints = hints_of(offered)
    names = [one.name for one in offered]
    reads = ", which only read" if hints["readOnlyHint"] is True else ""
    may = f"; it may call {_first(names)}{reads}" if names else ""
    count = len(calls_in(guide.get("plan")))
    guided = f", guided by a saved plan of {count} call{'' if count == 1 else 's'}" if count else ""
    told = f"A model is asked to solve it anew with your input{guided}{may}."
    return _Made("auto" if answer == "auto" else "solve", told, hints, guide=guide)


def _description_of(function: Function, name: str) -> str:
    """What a run did, in one sentence for models: its task in the words of whoever set it, or else the tools that it
    called and the members of its output.
    """
    meta = function.stored.meta
    tools = list(meta.tools)
    if meta.title and meta.title != ", ".join(tools):
        return meta.title
    if not tools:
        return f"Runs {name}"
    output = function.run.result
    gives = f" and gives {_first(list(output))}" if isinstance(output, dict) and output else ""
    return f"Calls {_first(tools)}{gives}"


def _first(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _shape(function: Function, store: Store, caller: str, choices: Choices) -> JSONObject | None:
    """Its plan as far as it can be lifted, whatever is still asked; None: it cannot be at all."""
    try:
        return apply_choices(lift_function(function, store, caller, choices.runs), choices).plan()
    except PublicationError:
        return None


async def _lifted(
    function: Function, store: Store, caller: str, choices: Choices, host: PublishingHost, name: str
) -> _Lifted | str:
    """The plan with every choice applied, or why there can be none whatever is accepted."""
    try:
        lifted = lift_function(function, store, caller, choices.runs)
    except PublicationError as error:
        if choices.runs is not None:
            raise
        return str(error)
    draft = apply_choices(lifted, choices)
    plan = draft.plan()
    catalogue = await host.tools_for(draft.with_input(function.input or {}), plan, name=name, caller=caller)
    cycle = cycle_through(store, name, next_version(store, name), draft.calls)
    if cycle is not None:
        return f"it would call itself: {' -> '.join(cycle)}"
    checked = check_pins(plan, calls_in(plan), catalogue, essences_of(lifted.catalogue).get)
    if checked.faults:
        return checked.faults[0]
    difference = draft.difference()
    if difference is not None and choices.take:
        raise PublicationError(f"with what was taken, it does not do what its run did: {difference}")
    return _Lifted(draft, catalogue) if difference is None else difference


def _confirmations(draft: PlanDraft) -> list[str]:
    """The runs with other input that the plan reproduces.

    Raises:
        PublicationError: there is one that it does not reproduce.
    """
    agree, differ = draft.confirmations()
    if differ and (draft.choices.runs is not None or not draft.choices.accepts("course")):
        what = f"it does not do what other runs of the same task did: {'; '.join(differ[:5])}"
        raise UndecidedError(
            f'{what}. Name the runs that count (choices {{"runs": [...]}}), accept it (choices'
            ' {"accept": ["course"]}) where they were not named, or publish with answer "recorded"',
            [what],
            ["course"] if draft.choices.runs is None else [],
            [],
        )
    return agree


def _sentences(draft: PlanDraft, confirmed: list[str], asking: list[int]) -> str:
    """What the description says of how it answers."""
    asked = ", ".join(f"calls.{place} ({_tool(draft.calls[place])})" for place in asking)
    model = f"a model is asked for {asked} alone" if asked else "no model is asked"
    told = f"Replays a saved plan with your input; {model}."
    if confirmed:
        runs = "another run" if len(confirmed) == 1 else f"{len(confirmed)} other runs"
        return f"{told} Confirmed: it does and gives what {runs} with other input did and gave."
    return f"{told} Self-consistent: the recorded results give the recorded output."


def _tool(call: JSON) -> str:
    return str(call.get("_tool")) if isinstance(call, dict) else ""


def _with_decisions(draft: PlanDraft, confirmed: list[str], by: Decider) -> JSONObject:
    """The plan as it is kept: with what was draft, by whom or what, and how far it was checked."""
    accepted: list[JSON] = [one.text for one in asks_of(draft)]
    lifting: JSONObject = {
        "run": draft.lifted.run,
        "checked": "confirmed" if confirmed else "self-consistent",
        "confirmed_by": list[JSON](confirmed),
        "choices": draft.choices.to_json(),
        "accepted": accepted,
        "taken": dict[str, JSON](draft.replaced),
        "counts": counts_of(draft),
    }
    if lifting["choices"]:
        lifting["decided_by"] = by.to_json()
    return {**draft.plan(), "lifting": lifting}


def guide_of(function: Function, lifted: JSONObject | None, task: str, store: Store, name: str) -> JSONObject | str:
    """What a fresh run begins with, as a publication holds it (see `Publication.guide`), or why there can be none.

    Args:
        function: the idea as its run made it.
        lifted: its plan as far as it could be lifted: references stand in place of literals.
        task: what to do, where the run was a plan, which nobody asked for in words.
        store: holds what else is published.
        name: what it is to be called.
    """
    machine = function.run.machine
    if not machine.has_output:
        return "its run gave its state, and a mind is asked for an output: run it with an `output`"
    solved = machine.mode == "solve"
    context: list[JSON] = [] if solved else [{"role": "user", "content": task}]
    defined: set[JSON] = set()
    for raw in function.run.started.context:
        message = read_message(raw)
        if message.type == "plan" or (message.type == "text" and message.value == LAZY):
            # It is guided by its own plan, and a call of it is not planned with a person.
            continue
        if message.type == "tool" and isinstance(message.value, dict):
            defined.add(message.value.get("name"))
        if message.type == "input" and not message.instance:
            message = dataclasses.replace(message, value={})
        context.append(message.to_json())
    if lifted is not None:
        calls, output = lifted.get("calls"), lifted.get("output")
    else:
        listed: list[JSON] = [one.call.raw for one in machine.history]
        calls, output = listed if function.run.places is None else function.calls, function.output
    version = next_version(store, name)
    if isinstance(calls, list):
        cycle = cycle_through(store, name, version, calls)
        if cycle is not None:
            return f"it would call itself: {' -> '.join(cycle)}"
    offered: list[JSON] = [
        list[JSON](tool.origin)
        for tool in without_cycles(store, name, version, machine.catalogue.tools)
        if tool.module is not None or tool.name not in defined
    ]
    asked = machine.output_schema if solved else function.part_schema or function.output_schema or {}
    guide: JSONObject = {"context": context, "tools": offered, "output_schema": asked}
    guide["by_instance"] = machine.settings.output_by_instance
    if isinstance(calls, list) and calls:
        known = machine.catalogue
        said = [with_own_module(call, known) for call in calls]
        guide["plan"] = {"calls": said, "output": output}
        guide["pins"] = [Pin.of(tool).to_json() for tool in pinned_tools(said, known, defined_in(guide))]
    return guide
