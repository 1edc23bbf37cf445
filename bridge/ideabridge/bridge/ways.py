"""Ways: how a call of a published idea is answered: recorded, by its plan, or by solving it anew (DESIGN 4.11)."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Literal

from ideabridge.bridge.context.message import read_context
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.ideas.records import Publication
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.minds.choice import SAMPLING, Choice
from ideabridge.bridge.offer import Offer, defined_tools
from ideabridge.bridge.replay.replay import plan_of, recorded_answer
from ideabridge.bridge.replay.seen import Seen, seen_before, subject_of
from ideabridge.bridge.replay.solving import calls_of, context_of, tools_of, without_cycles
from ideabridge.bridge.run import Run
from ideabridge.bridge.starts import Start, start_plan, start_solve
from ideabridge.tools.encoding import JSON, JSONObject


@dataclass(frozen=True, slots=True)
class Way:
    """How one call is answered.

    Attributes:
        answer: `recorded`: with `output`; else by a run.
        output: the stored output.
        seen: the run that gave it, where `auto` found it.
    """

    answer: Literal["recorded", "plan", "solve"]
    output: JSON = None
    seen: Seen | None = None


class Ways:
    """Decides how calls are answered, and starts the runs that do.

    Args:
        store: holds what was answered before.
        offer: the tools there are now.
        fingerprint: of the configuration.
        max_age_s: how old a stored answer may be for `auto`, in seconds; what the publication says may be less.
    """

    def __init__(self, store: Store, offer: Offer, fingerprint: str, max_age_s: float) -> None:
        self._store = store
        self._offer = offer
        self._fingerprint = fingerprint
        self._max_age = max_age_s

    def way(self, publication: Publication, arguments: JSONObject, caller: str, *, now: float | None = None) -> Way:
        """How a call is answered. `auto`: with the stored answer, where the same input was seen and it still holds,
        else by the plan, else by solving it anew.

        Args:
            publication: what is called.
            arguments: its input, checked.
            caller: who calls: what others were answered is not told, but for what it was published from.
            now: in seconds since 1970; None: by the clock.

        Raises:
            PublicationError: `recorded` with another input.
        """
        if publication.answer == "recorded":
            return Way("recorded", recorded_answer(publication, arguments))
        if publication.answer == "auto":
            age = min(self._max_age, publication.max_age_s)
            if age > 0:
                since = (time.time() if now is None else now) - age
                found = seen_before(
                    self._store,
                    publication,
                    arguments,
                    lambda plan: self._offer.of_plan(plan, caller),
                    self._fingerprint,
                    caller=caller,
                    since=since,
                )
                if found is not None:
                    return Way("recorded", found.output, found)
            return Way("plan" if publication.plan is not None else "solve")
        return Way(publication.answer)

    def note(self, publication: Publication, arguments: JSONObject, run: Run) -> None:
        """Keep that a run, just begun, answers a call: once it is done, `auto` finds it."""
        if publication.answer == "auto" and min(self._max_age, publication.max_age_s) > 0:
            self._store.note_answer(subject_of(publication, arguments), run.caller, time.time(), run.id)

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
            PublicationError: a tool that it was solved with is gone.
        """
        if way.answer == "plan":
            plan = plan_of(publication, arguments)
            settings = dataclasses.replace(settings, output_by_instance=plan.output_by_instance)
            # As for any plan, who answers in its rooms is left to when they open; a client's model is there only now.
            told = choice if choice.name == SAMPLING else None
            return start_plan(plan, await self._offer.catalogue_of(plan, caller), settings, before, told)
        guide = publication.guide
        if guide is None:
            raise PublicationError(f"{publication.name} holds nothing to solve it with; publish it again")
        context = [*before, *context_of(guide, arguments)]
        defined = defined_tools(read_context(context))
        await self._offer.settled()
        offered = self._offer.named(tools_of(guide), caller)
        tools = without_cycles(self._store, publication.name, publication.version, offered)
        catalogue = self._offer.with_defined(tools, defined)
        gone = [call for call in calls_of(guide) if isinstance(call, dict) and catalogue.look_up(call) is None]
        if gone:
            names = ", ".join(dict.fromkeys(str(call.get("_tool")) for call in gone))
            raise PublicationError(f"{publication.name} was solved with {names[:300]}, which is not here now")
        settings = dataclasses.replace(settings, output_by_instance=guide.get("by_instance") is True)
        schema = guide.get("output_schema")
        asked = schema if isinstance(schema, dict) else None
        return start_solve(context, catalogue, settings, asked, choice, idea=publication.idea_id)
