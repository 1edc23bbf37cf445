"""Replay: answer a call of a published idea with its recorded output, by its plan, or by solving it anew."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from ideabridge.bridge.context.messages import read_context, read_message
from ideabridge.bridge.errors import MeantToolError, PlanError, PublicationError
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.minds.choice import SAMPLING, Choice
from ideabridge.bridge.plan import Plan, read_published
from ideabridge.bridge.runs.offer import Offer, defined_tools
from ideabridge.bridge.runs.pins import (
    Pin,
    PinCheck,
    calls_in,
    check_pins,
    defined_in,
    pinned_tools,
    read_pins,
    with_own_module,
)
from ideabridge.bridge.runs.recorded import read_run
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.runs.starts import Start, start_plan, start_solve
from ideabridge.bridge.store.errors import UnknownPublicationError
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.shapes import need_of, tools_in
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject, content_hash, encode_text
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import ANONYMOUS, IDEA, Tool

# -- replay ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replay:
    """The answer to a call of a published idea.

    Attributes:
        answer: the way that was taken: `recorded`, `plan` or `solve`.
        output: the recorded output; unset for the others.
        run: the run that answers, started; wait for it.
    """

    answer: Literal["recorded", "plan", "solve"]
    output: Any = None
    run: Run | None = None


def same_input(value: JSON) -> JSON:
    """An input with the keys of its objects sorted: two inputs are the same if these are.

    Nothing else is made alike: 1.0 is not 1, and a member that is left out is not its default.
    """
    if isinstance(value, dict):
        return {key: same_input(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [same_input(item) for item in value]
    return value


def recorded_answer(publication: Publication, arguments: JSONObject) -> JSON:
    """The stored output, for the stored input alone.

    Raises:
        PublicationError: another input was given.
    """
    recorded = publication.recorded
    if not isinstance(recorded, dict):
        raise PublicationError(f"{publication.name} holds no recorded answer")
    known = recorded.get("input")
    if content_hash(same_input(known)) != content_hash(same_input(arguments)):
        text = encode_text(known)
        raise PublicationError(
            f"{publication.name} answers only for the input it was recorded with:"
            f" {text if len(text) <= 300 else text[:297] + '...'}"
        )
    return recorded.get("output")


def plan_of(publication: Publication, arguments: JSONObject) -> Plan:
    """The published plan with new input.

    Raises:
        PublicationError: it holds no plan.
    """
    plan = publication.plan
    if plan is None:
        raise PublicationError(f"{publication.name} holds no plan")
    return read_published(plan, arguments, publication.input_schema, publication.output_schema, name=publication.name)


def check_arguments(publication: Publication, arguments: JSONObject) -> None:
    """Check the arguments of a call against the tool's parameters.

    Raises:
        ValueMismatchError: path, found, expected.
    """
    if publication.input_schema is not None:
        Validator(publication.input_schema, what=f"the input of {publication.name}").check(arguments)


# -- ideas that a plan calls ----------------------------------------------------------------------------------------


def asking_calls(store: Store, catalogue: Catalogue, calls: list[JSON]) -> list[int]:
    """The places of the calls of a plan for which a model is asked each time: latent ones, clean rooms, and ideas that
    are solved anew or whose plans have such calls.

    Args:
        store: holds the publications.
        catalogue: the tools there are.
        calls: as the plan lists them.
    """
    return [place for place, call in enumerate(calls) if _asks(store, catalogue, call, set())]


def _asks(store: Store, catalogue: Catalogue, call: JSON, seen: set[tuple[str, int]]) -> bool:
    if not isinstance(call, dict) or "_output" in call:
        return False
    tool = catalogue.look_up(call)
    if call.get("_module") == ANONYMOUS or (tool is not None and tool.key in catalogue.latent):
        return True
    for found in _called(store, [call]):
        if (found.name, found.version) not in seen:
            seen.add((found.name, found.version))
            if found.guide is not None or any(_asks(store, catalogue, below, seen) for below in _calls_of(found)):
                return True
    return False


def next_version(store: Store, name: str) -> int:
    """The version that the next publication of a name is."""
    try:
        return store.publications.versions(name)[0].version + 1
    except UnknownPublicationError:
        return 1


def cycle_through(store: Store, name: str, version: int, calls: Iterable[JSON]) -> list[str] | None:
    """The ideas through which a plan that is, or is to be, published under a name would call itself, that name first
    and last; None: it would not.

    Args:
        store: holds the publications.
        name: what the plan is called.
        version: which version of the name it is; it may be named before it is there.
        calls: as the plan lists them.
    """
    # Any other version that is named stays what it is.
    own = (f"{IDEA}{name}", f"{IDEA}{name}@{version}")
    left: list[tuple[list[str], Iterable[JSON]]] = [([name], calls)]
    seen: set[tuple[str, int]] = set()
    while left:
        path, listed = left.pop()
        listed = list(listed)
        if any(isinstance(call, dict) and call.get("_module") in own for call in listed):
            return [*path, name]
        for found in _called(store, listed):
            if (found.name, found.version) not in seen:
                seen.add((found.name, found.version))
                left.append(([*path, found.name], _calls_of(found)))
    return None


def _called(store: Store, calls: Iterable[JSON]) -> Iterator[Publication]:
    """The publications that calls name, those that are there."""
    for call in calls:
        module = call.get("_module") if isinstance(call, dict) else None
        if not isinstance(module, str) or not module.startswith(IDEA):
            continue
        try:
            yield store.publications.named(module.removeprefix(IDEA))
        except UnknownPublicationError:
            # One that is gone is told where the call itself is checked.
            continue


def _calls_of(publication: Publication) -> list[JSON]:
    """What it may call: the calls of its plan, and the ideas that a mind is offered where it is solved anew."""
    listed = (publication.plan or {}).get("calls")
    found: list[JSON] = list(listed) if isinstance(listed, list) else []
    offered = (publication.guide or {}).get("tools")
    found += [{"_module": pair[0]} for pair in (offered if isinstance(offered, list) else []) if isinstance(pair, list)]
    return found


# -- solving anew ---------------------------------------------------------------------------------------------------


def without_cycles(store: Store, name: str, version: int, tools: Iterable[Tool]) -> list[Tool]:
    """The tools through which a version of an idea published as `name` cannot come to be called inside its own run."""
    return [
        tool
        for tool in tools
        if tool.module is None
        or not tool.module.startswith(IDEA)
        or (
            tool.module.removeprefix(IDEA).partition("@")[0] != name
            and cycle_through(store, name, version, [{"_module": tool.module}]) is None
        )
    ]


def context_of(guide: JSONObject, arguments: JSONObject) -> list[JSON]:
    """The context of a fresh run: the idea's own, with the caller's input, and its plan before that input."""
    found: list[JSON] = []
    plan = guide.get("plan")
    told: list[JSON] = (
        [] if plan is None else [{"type": "plan", "plan": plan, "description": "how it was solved before"}]
    )
    context = guide.get("context")
    for raw in context if isinstance(context, list) else []:
        message = read_message(raw)
        if message.type == "input" and not message.instance:
            found += [*told, dataclasses.replace(message, value=arguments).to_json()]
            told = []
        else:
            found.append(raw)
    return [*found, *told]


def tools_of(guide: JSONObject) -> list[tuple[str | None, str]]:
    """(module, name) of the tools a fresh run may call, besides those its context defines."""
    tools = guide.get("tools")
    return [
        (pair[0] if isinstance(pair[0], str) else None, str(pair[1]))
        for pair in (tools if isinstance(tools, list) else [])
        if isinstance(pair, list) and len(pair) == 2
    ]


def calls_of(guide: JSONObject) -> list[JSON]:
    """The calls of its plan."""
    plan = guide.get("plan")
    calls = plan.get("calls") if isinstance(plan, dict) else None
    return calls if isinstance(calls, list) else []


# -- ways of answering ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Way:
    """How one call is answered.

    Attributes:
        answer: `recorded`: with `output`; else by a run.
        output: the stored output.
        start: of the run.
    """

    answer: Literal["recorded", "plan", "solve"]
    output: JSON = None
    start: Start | None = None


Patiently = Callable[[Callable[[], Publication]], Awaitable[Publication]]


class Ways:
    """Decides how calls are answered, and starts the runs that do.

    Args:
        store: holds the publications.
        offer: the tools there are now.
        patiently: writes into the store, see `Writer.patiently`.
    """

    def __init__(self, store: Store, offer: Offer, patiently: Patiently) -> None:
        self._store = store
        self._offer = offer
        self._patiently = patiently

    async def answer(
        self,
        publication: Publication,
        arguments: JSONObject,
        *,
        caller: str,
        settings: Settings,
        choice: Choice,
        before: Sequence[JSON] = (),
    ) -> Way:
        """Answer a call of a published idea: with its recorded output, or by a run, of which this is the start.

        Args:
            publication: what is called.
            arguments: its input.
            caller: who calls.
            settings: of the run.
            choice: of the mind that answers; of a plan, in its rooms.
            before: context messages before its own.

        Raises:
            ValueMismatchError: the arguments do not satisfy the parameters.
            PublicationError: `recorded` with another input, or there is nothing to answer with.
            PlanError, SchemaError: the plan cannot run.
            MeantToolError: a tool that it calls, or was solved with, is gone, away or changed.
        """
        check_arguments(publication, arguments)
        if publication.answer == "recorded":
            return Way("recorded", recorded_answer(publication, arguments))
        # `auto` is the plan, if there is one.
        planned = publication.answer == "plan" or (publication.answer == "auto" and publication.plan is not None)
        publication = await self.pinned(publication, caller)
        if planned:
            return Way("plan", start=await self._start_plan(publication, arguments, caller, settings, choice, before))
        return Way("solve", start=await self._start_solve(publication, arguments, caller, settings, choice, before))

    async def _start_plan(
        self,
        publication: Publication,
        arguments: JSONObject,
        caller: str,
        settings: Settings,
        choice: Choice,
        before: Sequence[JSON],
    ) -> Start:
        plan = plan_of(publication, arguments)
        settings = dataclasses.replace(settings, output_by_instance=plan.output_by_instance)
        # As in any plan, each room chooses its mind when it opens; only a client's model must be recorded now.
        recorded = choice if choice.name == SAMPLING else None
        catalogue = await self._offer.catalogue_of(plan, caller)
        self._expect(publication, publication.plan, plan.calls, catalogue)
        return start_plan(plan, catalogue, settings, [*before], recorded)

    async def _start_solve(
        self,
        publication: Publication,
        arguments: JSONObject,
        caller: str,
        settings: Settings,
        choice: Choice,
        before: Sequence[JSON],
    ) -> Start:
        guide = publication.guide
        if guide is None:
            raise PublicationError(f"{publication.name} holds nothing to solve it with; publish it again")
        context = [*before, *context_of(guide, arguments)]
        defined = defined_tools(read_context(context))
        await self._offer.reach(module for module, _ in tools_of(guide))
        offered = self._offer.named(tools_of(guide), caller)
        tools = without_cycles(self._store, publication.name, publication.version, offered)
        catalogue = self._offer.with_defined(tools, defined)
        self._expect(publication, guide, calls_of(guide), catalogue)
        settings = dataclasses.replace(settings, output_by_instance=guide.get("by_instance") is True)
        schema = guide.get("output_schema")
        asked = schema if isinstance(schema, dict) else None
        return start_solve(context, catalogue, settings, asked, choice, idea=publication.idea_id)

    # -- which tools are meant ---------------------------------------------------------------------------------

    async def pinned(self, publication: Publication, caller: str) -> Publication:
        """The publication with pins for the tools that its calls use.

        `Store.publish`, called by an application, and an imported document store a plan without pins: a pin holds the
        digest of a definition, and neither of them knows the definitions. So the first use of the publication pins it,
        and the store keeps the pins. The definitions come from the journal of the run that the plan was lifted from.
        Without this journal they are the present ones, of the modules that the schema of the idea names. If a module is
        down, the publication stays without pins, and the next use tries again.
        """
        plan, guide = publication.plan, publication.guide
        held = plan or guide
        if held is None or read_pins(held) is not None:
            return publication
        calls = calls_in(plan) if plan is not None else calls_of(held)
        defined = defined_in(held)
        then = self._then(publication)
        if then is None or not all(_is_found(call, then, {}) for call in calls):
            listed = tools_in(self._store.ideas.get(publication.idea_id).idea.schema)
            calls = [_with_module(call, listed) for call in calls]
            try:
                then = await self._offer.catalogue_of(Plan(calls=calls, tools=_definitions(held)), caller)
            except PlanError:
                # A module is down: the call itself says so.
                then = Catalogue(())
            if not all(_is_found(call, then, listed) for call in calls):
                # What they are is not known before their modules are there.
                return publication if plan is None else dataclasses.replace(publication, plan={**plan, "calls": calls})
        said = [with_own_module(call, then) for call in calls]
        tools = pinned_tools(said, then, defined)
        pins: list[JSON] = [Pin.of(tool).to_json() for tool in tools]
        if plan is not None:
            plan = cast("JSONObject", {**plan, "calls": said, "pins": pins})
        else:
            inner = held.get("plan")
            shown: JSONObject = {**inner, "calls": said} if isinstance(inner, dict) else {}
            guide = cast("JSONObject", {**held, "pins": pins, **({"plan": shown} if shown else {})})
        definitions = {tool.digest: tool.essence for tool in tools}
        return await self._patiently(lambda: self._store.publications.pin(publication, plan, guide, definitions))

    def _then(self, publication: Publication) -> Catalogue | None:
        """The tools of the run that a version was published from; None: its journal is not here."""
        lifting = (publication.plan or {}).get("lifting")
        named = lifting.get("run") if isinstance(lifting, dict) else None
        for run in [str(named)] if named else self._store.ideas.runs_of(publication.idea_id):
            found = read_run(self._store, run)
            if found is not None:
                return found.machine.catalogue
        return None

    def _expect(
        self, publication: Publication, held: JSONObject | None, calls: list[JSON], catalogue: Catalogue
    ) -> None:
        checked = self.check_pins(held, calls, catalogue)
        if checked.faults:
            raise MeantToolError(checked.text(publication.name))

    def check_pins(self, held: JSONObject | None, calls: list[JSON], catalogue: Catalogue) -> PinCheck:
        """How the tools that calls of a published plan mean are now.

        Args:
            held: the plan or the guide that holds the pins.
            calls: of it.
            catalogue: the tools there are now.
        """
        return check_pins(
            read_pins(held),
            calls,
            catalogue,
            defined=defined_in(held),
            definition=self._store.tool_memory.definition,
            away=self._offer.why_away,
        )


def _with_module(call: JSON, listed: dict[str, str]) -> JSON:
    """A call with the module that the schema it was written for says."""
    need = need_of(call, {tool: module for tool, module in listed.items() if module})
    if not isinstance(call, dict) or need is None or not need.module or "_module" in call:
        return call
    return {**call, "_tool": need.tool, "_module": need.module}


def _is_found(call: JSON, catalogue: Catalogue, listed: dict[str, str]) -> bool:
    if not isinstance(call, dict):
        return True
    tool = catalogue.look_up(call)
    # What was a tool of the process is none of a module that has the same name.
    return tool is not None and (tool.module is None or "_module" in call or listed.get(str(call.get("_tool"))) != "")


def _definitions(held: JSONObject) -> tuple[JSONObject, ...]:
    listed = held.get("tools")
    return tuple(one for one in listed if isinstance(one, dict)) if isinstance(listed, list) else ()
