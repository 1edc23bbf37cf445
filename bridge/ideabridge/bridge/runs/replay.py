"""Answer calls to published ideas with the recorded output, by running the plan, or by solving the
idea again.

A publication that has a plan and a guide runs its plan as the first answer of the agent loop: the
plan's calls are made once, and if they do not lead to an output, a mind is asked for the rest,
given their results and the plan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ideabridge.bridge.checking import check_beside
from ideabridge.bridge.context.messages import read_context, read_message
from ideabridge.bridge.context.written_call import WrittenCall, written_calls
from ideabridge.bridge.errors import MeantToolError, PlanError, PublicationError
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.minds.choice import SAMPLING, Choice
from ideabridge.bridge.offer.defined_tools import defined_tools
from ideabridge.bridge.offer.offer import Offer
from ideabridge.bridge.offer.plan_tools import PlanTools
from ideabridge.bridge.plan import Plan, read_published, with_defaults
from ideabridge.bridge.runs.called_ideas import IdeaVersion, called_ideas, without_cycles
from ideabridge.bridge.runs.idea_needs import tools_listed_by, why_not_here
from ideabridge.bridge.runs.pins import (
    Pin,
    PinCheck,
    check_pins,
    pinned_tools,
    read_pins,
    with_own_module,
)
from ideabridge.bridge.runs.recorded import read_run
from ideabridge.bridge.runs.recorded_defaults import with_passed
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.runs.starts import (
    Start,
    start_plan,
    start_program,
    start_solve,
    start_solve_by,
)
from ideabridge.bridge.store.errors import NotInProfileError, UnknownPublicationError
from ideabridge.bridge.store.idea import PLANNED, Publication
from ideabridge.bridge.store.published import PlanOrGuide, PublishedGuide
from ideabridge.bridge.store.shapes import need_of
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import owner_of
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    content_hash,
    encode_text,
)
from ideabridge.tools.json_parts import with_sorted_keys
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import IDEA, Tool, is_idea


@dataclass(frozen=True, slots=True)
class Replay:
    """The answer to a call to a published idea.

    Attributes:
        answer: the source of the output: the recording, a plan, a program, or a mind.
        output: the recorded output, if that is the answer.
        run: the run that computes the output, if the output is not recorded. The caller waits for
            it to end.
    """

    answer: Literal["recorded", "plan", "program", "solve"]
    output: Any = None
    run: Run | None = None


def same_input(value: JSON) -> JSON:
    """Return the input with sorted object keys, for comparison with a recorded input.

    Nothing else is normalised: 1.0 differs from 1, and a missing member from its default.
    """
    return with_sorted_keys(value)


def recorded_answer(publication: Publication, arguments: JSONObject) -> JSON:
    """Return the stored output if the arguments are the stored input.

    Raises:
        PublicationError: the arguments differ from the stored input.
    """
    recording = publication.recording
    if not recording.has_output:
        raise PublicationError(f"{publication.name} has no recorded answer")

    if content_hash(same_input(recording.input)) != content_hash(same_input(arguments)):
        text = encode_text(recording.input)
        if len(text) > 300:
            text = f"{text[:297]}..."
        raise PublicationError(
            f"{publication.name} answers only for the input it was recorded with: {text}"
        )

    return recording.output


def plan_of(publication: Publication, arguments: JSONObject) -> Plan:
    """Return the published plan with new input. Parameters missing from the input get their
    defaults.

    Raises:
        PublicationError: the publication has no plan.
    """
    plan = publication.present_plan
    if plan is None:
        raise PublicationError(f"{publication.name} has no plan")
    plan = with_passed(plan, arguments, publication.input_schema)
    return read_published(
        plan, arguments, publication.input_schema, publication.output_schema, name=publication.name
    )


def check_arguments(publication: Publication, arguments: JSONObject) -> None:
    """Check the arguments of a call against the tool's parameters, both as passed and with the
    defaults of omitted arguments.

    Raises:
        ValueMismatchError: the arguments do not satisfy the parameters. The message gives the path,
            what was found and what was expected.
    """
    schema = publication.input_schema
    if schema is None:
        return
    Validator(schema, what=f"the input of {publication.name}").check(arguments)
    if publication.answer == "recorded":
        return

    filled = with_defaults(arguments, schema)
    if filled is not arguments:
        Validator(schema, what=f"the input of {publication.name} with its defaults").check(filled)


# -- solving again ---------------------------------------------------------------------------------


def context_to_solve(guide: PublishedGuide, arguments: JSONObject) -> list[JSON]:
    """Return the context of a run that solves the idea again: the idea's own context, its plan, and
    the caller's input, in this order.
    """
    plan_messages: list[JSON] = []
    if guide.plan is not None:
        plan_messages.append(
            {"type": "plan", "plan": guide.plan, "description": "how it was solved before"}
        )

    messages: list[JSON] = []
    has_input = False
    for raw in guide.context:
        message = read_message(raw)
        if message.type != "input" or message.instance:
            messages.append(raw)
            continue

        if not has_input:
            messages += plan_messages
        messages.append(dataclasses.replace(message, value=arguments).to_json())
        has_input = True

    if not has_input:
        messages += plan_messages
    if arguments and not has_input:
        # The recorded run had no input, so its parameters are the arguments of its calls.
        messages.append({"type": "input", "input": arguments})

    return messages


# -- ways of answering -----------------------------------------------------------------------------


Patiently = Callable[[Callable[[], Publication]], Awaitable[Publication]]


class Ways:
    """Decides how calls to published ideas are answered, and creates the `Start` of each run that
    answers such a call.

    If the caller's profile names ideas, a plan uses every tool that it was published with, because
    a person chose its calls. A mind that solves an idea gets only the tools in the profile.

    `patiently` writes to the store; see `Writer.patiently`.
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
    ) -> Replay | Start:
        """Answer a call to a published idea with its recorded output, or with the start of a run.

        `choice` names the mind of the run or, if the run is a plan, of its rooms. The messages in
        `before` precede the context.

        Raises:
            ValueMismatchError: the arguments do not satisfy the parameters.
            PublicationError: the answer is `recorded` and the input differs, or the publication has
                no plan and no guide.
            PlanError, SchemaError: the plan cannot run.
            MeantToolError: a tool that the idea calls, or was solved with, is gone, unavailable or
                changed.
        """
        self._expect_here(publication, caller)
        check_arguments(publication, arguments)
        if publication.answer == "recorded":
            return Replay("recorded", recorded_answer(publication, arguments))

        user = self._user_of_tools(publication, caller)
        settings = self._offer.to(user).settings(settings)
        planned = _is_planned(publication)
        publication = await self.pinned(publication, caller)
        guide = publication.guide_parts
        can_solve = publication.guide is not None
        if not planned:
            if not can_solve:
                raise PublicationError(
                    f"{publication.name} does not contain what a model needs to solve it; "
                    "publish it again"
                )

            filled = with_defaults(arguments, publication.input_schema)
            context = [*before, *context_to_solve(guide, filled)]
            catalogue = await self._tools_to_solve(publication, guide, context, caller)
            self._expect(publication, guide, guide.calls, catalogue)
            return _start_solving(publication, guide, context, catalogue, settings, choice)

        plan = plan_of(publication, arguments)
        catalogue = await PlanTools(self._offer, plan, user, published=True).catalogue()
        if read_pins(publication.plan_parts) is None:
            self._expect_own_ideas(publication, plan, catalogue)

        self._expect(publication, publication.plan_parts, plan.calls, catalogue)
        if not all(self._offer.to(caller).has_tool(tool) for tool in catalogue.tools):
            # Do not let a mind continue, because it would see tools that are not in the profile.
            can_solve = False

        if can_solve:
            # The plan answers first. If it produces no output, a mind continues.
            context = [*before, *context_to_solve(guide, plan.input or {})]
            tools = await self._tools_to_solve(publication, guide, context, caller, catalogue.tools)
            solving = _start_solving(publication, guide, context, tools, settings, choice)
            return await check_beside(plan, start_solve_by, plan, solving)

        settings = dataclasses.replace(settings, output_by_instance=plan.output_by_instance)
        # As in any plan, each room chooses its mind when it opens. Only the choice of the client's
        # model is passed on.
        recorded = choice if choice.name == SAMPLING else None
        if plan.program is not None:
            return start_program(plan, catalogue, settings, plan.names or {}, [*before], recorded)
        return await check_beside(plan, start_plan, plan, catalogue, settings, [*before], recorded)

    def _user_of_tools(self, publication: Publication, caller: str) -> str:
        """Return the caller whose tools an answer uses: the caller without the profile, unless the
        profile also restricts the plans of ideas.
        """
        profile = self._offer.to(caller).profile
        if profile is None or profile.ideas is None or not _is_planned(publication):
            return caller
        return owner_of(caller)

    async def _tools_to_solve(
        self,
        publication: Publication,
        guide: PublishedGuide,
        context: list[JSON],
        caller: str,
        more: Sequence[Tool] = (),
    ) -> Catalogue:
        """Return the tools of a run that solves an idea again, plus all tools in `more`."""
        defined = defined_tools(read_context(context))
        await self._offer.reach(module for module, _ in guide.origins)
        offered = self._offer.named(guide.origins, caller)
        tools = without_cycles(self._store, IdeaVersion.of(publication), offered)
        keys = {tool.key for tool in (*tools, *defined)}
        others = [tool for tool in more if tool.key not in keys]
        return self._offer.with_defined(tools, defined, others, caller=caller)

    def _expect_own_ideas(self, publication: Publication, plan: Plan, catalogue: Catalogue) -> None:
        """Raise an error if a plan without pins would call another user's idea by its plain name.

        Raises:
            MeantToolError: one of the calls would do so.
        """
        foreign = self._idea_of_others(publication, plan.calls, catalogue)
        if foreign is not None:
            raise MeantToolError(
                f"{publication.name} cannot be called: {foreign.name} was not available when it "
                "was "
                "published, and another user has since published an idea with this name; to call "
                f"that idea, publish {publication.name} again with "
                f'"_module": "{foreign.module}"'
            )

    def why_not_here(self, publication: Publication, caller: str) -> str | None:
        """Return why a published idea cannot be called in this process; see the function
        `why_not_here`.
        """
        user = self._user_of_tools(publication, caller)
        return why_not_here(self._store, publication, user, self._offer.to(user).missing.lacking)

    def expect_here(self, modules: Iterable[JSON], caller: str) -> None:
        """Raise an error if a plan calls an idea that cannot be called in this process. Call this
        before the plan's first call runs.

        Raises:
            MeantToolError: one of the servers is an idea that lacks something in this process; see
                `why_not_here`.
        """
        ideas = dict.fromkeys(
            module for module in modules if isinstance(module, str) and module.startswith(IDEA)
        )
        for module in ideas:
            try:
                publication = self._store.publications.named(
                    module.removeprefix(IDEA), caller=caller
                )
            except NotInProfileError as error:
                raise MeantToolError(str(error)) from None
            except UnknownPublicationError:
                # The check of the call reports a publication that is unknown.
                continue
            self._expect_here(publication, caller)

    def _expect_here(self, publication: Publication, caller: str) -> None:
        lack = self.why_not_here(publication, caller)
        if lack is not None:
            unused_file = self._offer.missing.unused_file()
            raise MeantToolError(
                f"{publication.name} cannot be called here: it {lack}.{unused_file}"
            )

    # -- finding the tools of a publication --------------------------------------------------------

    async def pinned(self, publication: Publication, caller: str) -> Publication:
        """Return the publication with pins for the tools that its calls use.

        Plans stored by an import, or by an application that calls `Store.publish`, have no pins,
        because a pin contains the digest of a definition, which neither of them has. The first use
        of such a publication therefore pins its tools and stores the pins.

        The definitions come from the journal of the run from which the plan was lifted. If this
        journal is missing, the current definitions are used, from the servers that the idea's
        schema names. If such a server is down, the publication remains without pins until the next
        use. All callers share these pins, so the caller's profile does not matter.
        """
        caller = owner_of(caller)
        unpinned = publication.plan_or_guide
        if unpinned is None or read_pins(unpinned) is not None:
            return publication

        calls = unpinned.calls
        catalogue = self._recorded_catalogue(publication)
        if catalogue is None or not all(_has_tool(catalogue, call, {}) for call in calls):
            listed = tools_listed_by(self._store, publication)
            calls = [with_module(call, listed) for call in calls]
            catalogue = await self._present_catalogue(calls, unpinned.definitions, caller)
            if self._idea_of_others(publication, calls, catalogue) is not None:
                # Return the publication without pins: the call itself will be refused later.
                return publication
            if not all(_has_tool(catalogue, call, listed) for call in calls):
                # The definitions are unknown until the servers are up.
                if publication.plan is None:
                    return publication
                plan: JSONObject = {**publication.plan, "calls": calls}
                return dataclasses.replace(publication, plan=plan)

        own_calls = [with_own_module(call, catalogue) for call in calls]
        tools = pinned_tools(own_calls, catalogue, unpinned.defined)
        return await self._pin(publication, own_calls, tools)

    async def _present_catalogue(
        self, calls: list[JSON], definitions: tuple[JSONObject, ...], caller: str
    ) -> Catalogue:
        """Return the current tools for the calls in a plan or guide, which also defines tools.

        If a server is down, no tools are returned, and the call itself reports the server.
        """
        plan = Plan(calls=calls, tools=definitions)
        try:
            return await PlanTools(self._offer, plan, caller, published=True).catalogue()
        except PlanError:
            return Catalogue(())

    async def _pin(
        self, publication: Publication, calls: list[JSON], tools: list[Tool]
    ) -> Publication:
        """Store a plan or guide with pins of the given tools, and with calls that name them."""
        plan: JSONObject | None = publication.plan
        guide: JSONObject | None = publication.guide
        pins: list[JSON] = [Pin.of(tool).to_json() for tool in tools]
        if plan is not None:
            plan = {**plan, "calls": calls, "pins": pins}
        elif guide is not None:
            guide = {**guide, "pins": pins}
            inner = publication.guide_parts.plan
            if inner is not None:
                guide["plan"] = {**inner, "calls": calls}

        definitions = {tool.digest: tool.essence for tool in tools}
        return await self._patiently(
            lambda: self._store.publications.pin(publication, plan, guide, definitions)
        )

    def _idea_of_others(
        self, publication: Publication, calls: list[JSON], catalogue: Catalogue
    ) -> Tool | None:
        """Return another user's idea that a call without `_module` would reach, or None.

        This can happen if the name was free when the plan was published and another user has taken
        it since. Calls to ideas that existed by then have a `_module`.
        """
        for call in written_calls(calls):
            if call.module is not None:
                continue
            tool = catalogue.look_up(call)
            if tool is not None and is_idea(tool.module):
                ideas = called_ideas(self._store, [WrittenCall(tool.name, tool.module)])
                owners = {idea.owner for idea in ideas}
                if owners.isdisjoint({None, publication.owner}):
                    return tool
        return None

    def _recorded_catalogue(self, publication: Publication) -> Catalogue | None:
        """Return the tools of the run from which a version was published, or None if that run's
        journal is missing from the store.
        """
        named = publication.origin.run
        runs = [named] if named else self._store.ideas.runs_of(publication.idea_id)
        for run_id in runs:
            recorded = read_run(self._store, run_id)
            if recorded is not None:
                return recorded.machine.catalogue

        return None

    def _expect(
        self,
        publication: Publication,
        pinned: PlanOrGuide,
        calls: list[JSON],
        catalogue: Catalogue,
    ) -> None:
        checked = self.check_pins(pinned, calls, catalogue)
        if checked.faults:
            raise MeantToolError(checked.text(publication.name))

    def check_pins(self, pinned: PlanOrGuide, calls: list[JSON], catalogue: Catalogue) -> PinCheck:
        """Compare the pinned tools of a plan or guide with the current tools; see
        `pins.check_pins`.
        """
        definition = self._store.tool_memory.definition
        return check_pins(pinned, calls, catalogue, definition, self._offer.missing.why_away)


def _is_planned(publication: Publication) -> bool:
    """Return whether a publication is answered by its plan first. `auto` means the plan if there is
    one.
    """
    return publication.answer in PLANNED or (
        publication.answer == "auto" and publication.plan is not None
    )


def _start_solving(
    publication: Publication,
    guide: PublishedGuide,
    context: list[JSON],
    catalogue: Catalogue,
    settings: Settings,
    choice: Choice,
) -> Start:
    """Return the start of a run that solves an idea again."""
    settings = dataclasses.replace(settings, output_by_instance=guide.by_instance)
    return start_solve(
        context, catalogue, settings, guide.output_schema, choice, idea=publication.idea_id
    )


def with_module(call: JSON, listed: dict[str, str]) -> JSON:
    """Add to a call the server that its Request's schema names for the tool."""
    written = WrittenCall.of(call)
    need = need_of(written, {tool: module for tool, module in listed.items() if module})
    if need is None or not need.module or written.module is not None:
        return call
    return {**written.members, "_tool": need.tool, "_module": need.module}


def _has_tool(catalogue: Catalogue, call: JSON, listed: dict[str, str]) -> bool:
    written = WrittenCall.of(call)
    if not written.tool:
        # The check of the plan rejects this call.
        return True

    tool = catalogue.look_up(written)
    if tool is None:
        return False
    if tool.module is None or written.module is not None:
        return True
    # A call to a tool of this process must not become a call to a server's tool of the same name.
    return listed.get(written.tool) != ""
