"""Ways: how a call of a published idea is answered: by its recorded output, by its plan, or by solving it anew."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from ideabridge.bridge.context.message import read_context
from ideabridge.bridge.errors import MeantToolError, PlanError, PublicationError
from ideabridge.bridge.ideas.needs import need_of, tools_in
from ideabridge.bridge.ideas.records import Publication
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.minds.choice import SAMPLING, Choice
from ideabridge.bridge.offer import Offer, defined_tools
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.replay.pins import (
    Pin,
    Standing,
    calls_in,
    defined_in,
    meant,
    read_pins,
    standing_of,
    tools_meant,
)
from ideabridge.bridge.replay.recorded import read_run
from ideabridge.bridge.replay.replay import check_arguments, plan_of, recorded_answer
from ideabridge.bridge.replay.solving import calls_of, context_of, tools_of, without_cycles
from ideabridge.bridge.starts import Start, start_plan, start_solve
from ideabridge.tools.encoding import JSON, JSONObject


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
        way = self.way(publication, arguments)
        if way.answer == "recorded":
            return way
        start = await self.start(publication, arguments, way, caller, settings, choice, [*before])
        return dataclasses.replace(way, start=start)

    @staticmethod
    def way(publication: Publication, arguments: JSONObject) -> Way:
        """How a call is answered. `auto` is the plan where there is one, else `solve`.

        Args:
            publication: what is called.
            arguments: its input, checked.

        Raises:
            PublicationError: `recorded` with another input.
        """
        if publication.answer == "recorded":
            return Way("recorded", recorded_answer(publication, arguments))
        if publication.answer == "auto":
            return Way("plan" if publication.plan is not None else "solve")
        return Way(publication.answer)

    async def start(
        self,
        publication: Publication,
        arguments: JSONObject,
        way: Way,
        caller: str,
        settings: Settings,
        choice: Choice,
        before: list[JSON],
    ) -> Start:
        """The start of the run that answers a call: of the idea's plan, or of the loop on its context.

        Args:
            publication: what is called.
            arguments: its input, checked.
            way: `plan` or `solve`.
            caller: who calls.
            settings: of the run.
            choice: of the mind that answers; of a plan, in its rooms.
            before: context messages before its own.

        Raises:
            PlanError, SchemaError: the plan cannot run.
            MeantToolError: a tool that it calls, or was solved with, is gone, away or changed.
        """
        publication = await self.pinned(publication, caller)
        if way.answer == "plan":
            plan = plan_of(publication, arguments)
            settings = dataclasses.replace(settings, output_by_instance=plan.output_by_instance)
            # As for any plan, who answers in its rooms is left to when they open; a client's model is there only now.
            told = choice if choice.name == SAMPLING else None
            catalogue = await self._offer.catalogue_of(plan, caller)
            self._expect(publication, publication.plan, plan.calls, catalogue)
            return start_plan(plan, catalogue, settings, before, told)
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
        """The publication with the tools that its calls mean. One from before plans had pins gets them now, once: those
        of its run, whose journal holds the definitions; else those of here and now, of the modules that its schema
        names.
        """
        plan, guide = publication.plan, publication.guide
        held = plan or guide
        if held is None or read_pins(held) is not None:
            return publication
        calls = calls_in(plan) if plan is not None else calls_of(held)
        defined = defined_in(held)
        then = self._then(publication)
        if then is None or not all(_is_found(call, then, {}) for call in calls):
            listed = tools_in(self._store.idea(publication.idea_id).idea.schema)
            calls = [_with_module(call, listed) for call in calls]
            try:
                then = await self._offer.catalogue_of(Plan(calls=calls, tools=_definitions(held)), caller)
            except PlanError:
                # A module is down: the call itself says so.
                then = Catalogue(())
            if not all(_is_found(call, then, listed) for call in calls):
                # What they are is not known before their modules are there.
                return publication if plan is None else dataclasses.replace(publication, plan={**plan, "calls": calls})
        said = [meant(call, then.look_up(call) if isinstance(call, dict) else None) for call in calls]
        tools = tools_meant(said, then, defined)
        pins: list[JSON] = [Pin.of(tool).to_json() for tool in tools]
        if plan is not None:
            plan = cast("JSONObject", {**plan, "calls": said, "pins": pins})
        else:
            inner = held.get("plan")
            shown: JSONObject = {**inner, "calls": said} if isinstance(inner, dict) else {}
            guide = cast("JSONObject", {**held, "pins": pins, **({"plan": shown} if shown else {})})
        definitions = {tool.digest: tool.essence for tool in tools}
        return await self._patiently(lambda: self._store.pin(publication, plan, guide, definitions))

    def _then(self, publication: Publication) -> Catalogue | None:
        """The tools of the run that a version was published from; None: its journal is not here."""
        lifting = (publication.plan or {}).get("lifting")
        named = lifting.get("run") if isinstance(lifting, dict) else None
        for run in [str(named)] if named else self._store.runs_of_idea(publication.idea_id):
            found = read_run(self._store, run)
            if found is not None:
                return found.machine.catalogue
        return None

    def _expect(
        self, publication: Publication, held: JSONObject | None, calls: list[JSON], catalogue: Catalogue
    ) -> None:
        standing = self.standing(held, calls, catalogue)
        if standing.faults:
            raise MeantToolError(standing.text(publication.name))

    def standing(self, held: JSONObject | None, calls: list[JSON], catalogue: Catalogue) -> Standing:
        """How the tools that calls of a published plan mean are now.

        Args:
            held: the plan or the guide that holds the pins.
            calls: of it.
            catalogue: the tools there are now.
        """
        return standing_of(
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
