"""Ways: how a call of a published idea is answered: by its recorded output, by its plan, or by solving it anew."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ideabridge.bridge.context.message import read_context
from ideabridge.bridge.errors import MeantToolError, PublicationError
from ideabridge.bridge.ideas.records import Publication
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.minds.choice import SAMPLING, Choice
from ideabridge.bridge.offer import Offer, defined_tools
from ideabridge.bridge.replay.pins import (
    Standing,
    defined_in,
    read_pins,
    standing_of,
)
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


class Ways:
    """Decides how calls are answered, and starts the runs that do.

    Args:
        store: holds the publications.
        offer: the tools there are now.
    """

    def __init__(self, store: Store, offer: Offer) -> None:
        self._store = store
        self._offer = offer

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
