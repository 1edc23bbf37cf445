"""Turn ideas without a finished run into tools.

Such an idea was written by hand, came from elsewhere, or comes from a run that did not end
successfully. `read_idea` reads it without looking at any tools. This file adds everything that
depends on the tools of this bridge: whether the idea can run, which effects it might have, and
which definitions its calls refer to.

Saving makes no calls. A plan or program is checked as in a dry run. Names, cycles and secrets are
checked as for any publication. If a tool that the idea needs is missing, the idea is still saved,
with the most cautious hints, and the result names what is missing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.messages import read_context
from ideabridge.bridge.context.references import clipped, format_reference
from ideabridge.bridge.context.written_call import WrittenCall, written_calls
from ideabridge.bridge.errors import (
    ModulesAwayError,
    NameInUseError,
    NoFinishedRunError,
    PublicationError,
)
from ideabridge.bridge.loop.catalogue import chosen_tools, has_wildcard
from ideabridge.bridge.loop.event import SolutionProposed
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.loop.solution import LAZY
from ideabridge.bridge.minds.choice import AUTO, Choice
from ideabridge.bridge.offer.defined_tools import defined_tools
from ideabridge.bridge.offer.plan_tools import PlanTools
from ideabridge.bridge.offer.program_tools import names_for_program
from ideabridge.bridge.offer.task_tools import TaskTools
from ideabridge.bridge.plan import Plan, needed_inputs, read_published
from ideabridge.bridge.publishing.idea_tools import hints_of
from ideabridge.bridge.publishing.importing import SavedIdea, missing, own_cycle
from ideabridge.bridge.publishing.outline import first_names
from ideabridge.bridge.publishing.prepared_tool import RECORDED, describe_guide
from ideabridge.bridge.publishing.programs import declared_calls
from ideabridge.bridge.publishing.publish_request import PublishRequest
from ideabridge.bridge.publishing.publisher import Publisher
from ideabridge.bridge.publishing.written import MAX_TEXT, WrittenIdea, read_idea, written_texts
from ideabridge.bridge.runs.called_ideas import asking_calls
from ideabridge.bridge.runs.pins import pins_for, with_own_module
from ideabridge.bridge.runs.recorded import read_run
from ideabridge.bridge.runs.replay import context_to_solve, with_module
from ideabridge.bridge.runs.starts import start_solve
from ideabridge.bridge.store.idea import Idea, NewPublication, Publication, StoredIdea
from ideabridge.bridge.store.published import PublishedGuide
from ideabridge.bridge.store.shapes import Need
from ideabridge.bridge.store.store import CAUTIOUS, Store
from ideabridge.bridge.store.users import LOCAL, profile_of, publisher_of, user_of
from ideabridge.bridge.store.versions import differences
from ideabridge.tools.compose import wrap_output
from ideabridge.tools.composed import SolutionSchema
from ideabridge.tools.encoding import JSON, JSONObject, ObjectLike, object_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import all_parameters
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.tool import ANONYMOUS, IDEA, Tool
from ideabridge.tools.typed import read_as

_SENTENCE_ENDS: Final = (".", "!", "?")


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The parts of a publication that depend on the tools of this bridge, and the tools that are
    missing.
    """

    plan: JSONObject | None
    guide: JSONObject | None
    annotations: JSONObject
    sentence: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Saver:
    """Saves ideas that have no finished run in this store. For the methods, see `Bridge`."""

    publisher: Publisher

    async def save(
        self,
        document: ObjectLike | JSON,
        *,
        name: str | None = None,
        publish: bool | None = None,
        replace: Collection[str] | None = None,
        to: str | Iterable[str] | None = None,
        caller: str = LOCAL,
    ) -> SavedIdea:
        """See `Bridge.save_idea`."""
        written = read_idea(document, name=name)
        self.publisher.screen.check(written_texts(written))
        publishes = written.name is not None if publish is None else publish
        if not publishes:
            return await self._only_save(written, caller)
        if written.name is None:
            raise PublicationError("name: a tool needs a name, such as weekly_report")
        return await self.publish(
            written,
            written.name,
            replace=replace,
            to=to,
            caller=caller,
            members=dict(written.members),
        )

    async def _only_save(self, written: WrittenIdea, caller: str) -> SavedIdea:
        if user_of(caller) is not None or profile_of(caller) is not None:
            # Such an idea would be visible only to the owner of the store.
            raise PublicationError(
                "name: a user of this server, or a session in a profile, can save an idea only "
                "under a name"
            )
        publisher = self.publisher
        return SavedIdea(
            await publisher.bridge.patiently(
                lambda: publisher.store.ideas.save(written.idea, written.meta)
            )
        )

    async def publish(
        self,
        written: WrittenIdea,
        name: str,
        *,
        description: str | None = None,
        replace: Collection[str] | None = None,
        to: str | Iterable[str] | None = None,
        caller: str = LOCAL,
        members: JSONObject | None = None,
    ) -> SavedIdea:
        """Publish an idea without a finished run.

        Args:
            written: the idea.
            name: the name of the idea's tool.
            description: what the tool does, or None to use the description of the idea.
            replace: see `Bridge.save_idea`.
            to: see `Bridge.publish`.
            caller: the caller who publishes the idea.
            members: the properties of the original document, stored so that it can be restored, or
                None if there is no document.

        Raises:
            PublicationError, ModulesAwayError, PublicationNameError, NameInUseError: see
                `Bridge.save_idea`.
        """
        publisher = self.publisher
        publisher.check_free(name, caller=caller)
        audience = None if to is None else publisher.audience(to, caller)
        prepared = await self._prepare(written, name, caller)
        text = description or written.description or written.title or _description_of(written, name)
        text = text if text.endswith(_SENTENCE_ENDS) else f"{text}."
        recorded: JSONObject = {"input": written.example}
        if written.answer == "recorded":
            recorded["output"] = written.recorded_output()

        if prepared.guide is not None:
            recorded["solve"] = prepared.guide

        if members is not None:
            recorded["written"] = members

        store = publisher.store
        new = NewPublication(
            name=name,
            idea_id=written.idea.id,
            description=f"{text} {prepared.sentence}".rstrip(),
            answer=written.answer,
            input_schema=written.input_schema,
            output_schema=written.output_schema,
            annotations=prepared.annotations,
            plan=prepared.plan,
            recorded=recorded,
            owner=publisher_of(caller),
        )

        def keep() -> tuple[Publication | None, Publication]:
            with store.transaction():
                before = store.publications.look_up(name, caller=caller)
                lines = [] if before is None else differences(before, new)
                if before is not None and before.idea_id == new.idea_id and not lines:
                    if audience is not None:
                        store.publications.share(name, audience)
                    return before, before
                if before is not None and lines and replace is not None:
                    ref = f"{name}@{before.version}"
                    if not {name, ref} & set(replace):
                        raise NameInUseError(ref, lines)
                store.ideas.save(written.idea, written.meta)
                return before, store.publications.publish(
                    new, audience=audience, replaces=store.users.manages(caller)
                )

        before, after = await publisher.bridge.patiently(keep)
        if after is before:
            return SavedIdea(new.idea_id, before, before, prepared.missing)
        # Pin the calls to the tools that are available now.
        pinned = await publisher.ways.pinned(after, caller)
        return SavedIdea(new.idea_id, pinned, before, prepared.missing)

    async def publish_run(self, request: PublishRequest) -> Publication:
        """Publish a run; see `Bridge.publish`. If no run in this store adds anything to the idea
        itself, publish the idea as it is.
        """
        try:
            return await self.publisher.publish(request)
        except NoFinishedRunError as error:
            if request.decides_on_a_run:
                raise PublicationError(
                    f"{error}: parameters, choices, strict, or_solve and program apply only to "
                    "what a run did. Leave them out, or write the idea by hand "
                    "(save_idea, `ideas add`)"
                ) from None
        return await self._publish_as_it_is(request)

    async def _publish_as_it_is(self, request: PublishRequest) -> Publication:
        """Publish an idea that has no successful run in this store.

        The tool makes the calls as they are written, with every literal as a constant. If there are
        none, a mind solves the task in the idea's context, with its schema.

        Raises:
            PublicationError: the idea cannot become a tool. The message says why, and what would
                help.
        """
        document, idea = self._document(request.ref, request.caller)
        self.publisher.screen.check({"name": request.name, "description": request.description})

        async def publish(members: JSONObject) -> SavedIdea:
            written = read_idea({**document, **members}, stored=True)
            if idea is not None:
                # The idea is already in the store, so publish it unchanged.
                written = dataclasses.replace(written, idea=idea)
            return await self.publish(
                written,
                request.name,
                description=request.description,
                to=request.to,
                caller=request.caller,
            )

        try:
            saved = await publish({"answer": request.answer})
        except ModulesAwayError:
            raise
        except IdeabridgeError as error:
            if request.answer != "auto" or not document.get("solution"):
                raise PublicationError(f"it cannot become a tool: {error}") from None
            # The calls need earlier results of the run, or tools that are not available here, so
            # let a mind solve the idea again.
            saved = await publish({"answer": "solve", "solution": None})

        if saved.publication is None:
            raise PublicationError(f"{request.name} was not published")
        return saved.publication

    def _document(self, ref: str, caller: str) -> tuple[JSONObject, Idea | None]:
        """Return an idea as a document, and the idea itself, or None if it is not in the store.

        `ref` is the id of an idea, a unique prefix of one, or the id of a run that ended early.
        """
        store = self.publisher.store
        record = store.runs.get(ref)
        if record is not None and record.caller == caller and not store.ideas.of_run(ref):
            return _document_of_run(store, ref), None
        stored = store.ideas.get(ref, caller=caller)
        return _document_of(stored), stored.idea

    async def _prepare(self, written: WrittenIdea, name: str, caller: str) -> _Prepared:
        if written.answer == "recorded":
            return _Prepared(None, None, hints_of(()), RECORDED, ())
        if written.answer == "solve":
            return await self._prepare_guide(written, name, caller)

        publisher = self.publisher
        planned = written.published_plan()
        program = written.solution.program
        if program is not None:
            names = await names_for_program(publisher.offer, program, caller)
            planned["names"] = names.used_by(program)
            planned["calls"] = declared_calls(planned["names"], program)
        else:
            known = publisher.offer.known_catalogue
            planned["calls"] = [
                known.as_real(call) if isinstance(call, dict) else call
                for call in written.solution.calls
            ]

        plan = read_published(
            planned, written.example, written.input_schema, written.schema, name=name
        )
        if not written.has_example:
            # The input is unknown until the tool is called.
            _expect_parameters(plan)
            plan = dataclasses.replace(plan, input=None, input_schema=None)
        elif plan.input is None:
            # A tool without parameters is called without an input.
            plan = dataclasses.replace(plan, input={})

        annotations = await publisher.check_plan(plan, name, caller, where="solution")
        catalogue = PlanTools(publisher.offer, plan, caller, published=True).present()
        calls = plan.calls
        if program is None:
            planned["calls"] = [with_own_module(call, catalogue) for call in calls]

        places = asking_calls(publisher.store, catalogue, calls)
        called = written_calls(calls)
        asking = ", ".join(called[place].tool for place in places)
        lacking = [
            Need(call.tool, call.module or "")
            for call in called
            if call.tool and not call.has_result and catalogue.look_up(call) is None
        ]
        sentence = f"A model is asked for {asking}." if asking else ""
        return _Prepared(planned, None, annotations, sentence, self._missing(lacking))

    async def _prepare_guide(self, written: WrittenIdea, name: str, caller: str) -> _Prepared:
        publisher = self.publisher
        offer = publisher.offer
        context = [message.to_json() for message in written.messages]
        defined = defined_tools(read_context(context))
        own = {tool.name for tool in defined}
        requested_tools = written.tools
        if requested_tools is None:
            called = [call for call in written_calls(written.solution.calls) if not call.has_result]
            requested_tools = tuple(dict.fromkeys(_named(call) for call in called if call.tool))

        patterns = [pattern for pattern in requested_tools if pattern not in own]
        offered: list[Tool] = []
        if patterns:
            await offer.reach(tool.module for tool in chosen_tools(offer.known, patterns))
            chosen = TaskTools(offer, patterns, caller=caller).present()
            offered = [tool for tool in chosen.tools if tool.name not in own]

        origins: list[JSON] = [list[JSON](tool.origin) for tool in offered]
        absent = _absent_from(offered, patterns)
        unknown = next((pattern for pattern in absent if has_wildcard(pattern)), None)
        if unknown is not None:
            raise PublicationError(
                f"tools: no tool here matches {unknown!r}; write exact names, or start their server"
            )

        needs = [_need_of_name(pattern) for pattern in absent]
        for need in needs:
            origins.append([need.module or None, need.tool])

        guide = written.guide(origins)
        try:
            start_solve(
                context_to_solve(read_as(PublishedGuide, guide), written.example),
                offer.with_defined(offered, defined, caller=caller),
                Settings(),
                written.schema,
                Choice(AUTO, "it is written by hand"),
            )
        except IdeabridgeError as error:
            raise PublicationError(f"a run cannot begin with this idea: {error}") from None

        ideas = (WrittenCall("", pattern) for pattern in requested_tools)
        cycle = own_cycle(publisher.store, name, [*written_calls(written.solution.calls), *ideas])
        if cycle is not None:
            raise PublicationError(f"tools: {cycle}")

        if isinstance(plan := guide.get("plan"), dict):
            catalogue = offer.with_defined(offered, defined, caller=caller)
            calls = [with_own_module(call, catalogue) for call in written.solution.calls]
            guide["plan"] = {**plan, "calls": calls}
            if not absent:
                guide["pins"] = pins_for(read_as(PublishedGuide, guide), calls, catalogue)

        # Be cautious if a tool is missing, because its effects are unknown.
        if needs:
            hints = dict(CAUTIOUS)
        else:
            hints = hints_of(tool for tool in offered if tool.module != ANONYMOUS)

        return _Prepared(None, guide, hints, describe_guide(offered, hints), self._missing(needs))

    def _missing(self, needs: list[Need]) -> tuple[str, ...]:
        publisher = self.publisher
        if needs:
            return tuple(missing(needs, publisher.store, publisher.modules, publisher.offer.known))
        return ()


def _expect_parameters(plan: Plan) -> None:
    """Raise an error if a reference reads a property of the input that is not a parameter, because
    no call could pass it.
    """
    declared = all_parameters(plan.input_schema or {})
    if plan.program is not None or declared is None:
        return
    for reference in needed_inputs(plan):
        name = str(reference.path[0])
        if name not in declared:
            text = clipped(format_reference(reference.full))
            near = did_you_mean(name, declared)
            raise PublicationError(
                f"solution: nothing supplies {text}: the input has no parameter with this "
                f"name.{near}"
            )


def _document_of(stored: StoredIdea) -> JSONObject:
    """Return a document for a saved idea, with the tools that its schema lists."""
    idea = stored.idea
    tools = SolutionSchema.read(idea.schema).tools
    solution = dict(object_or_empty(idea.solution))
    calls = solution.get("calls")
    if isinstance(calls, list):
        solution["calls"] = [with_module(call, tools) for call in calls]

    names: list[JSON] = [f"{module}.{tool}" if module else tool for tool, module in tools.items()]
    document: JSONObject = {
        "context": idea.context,
        "schema": idea.schema,
        "solution": solution,
        "tools": names,
    }
    if stored.meta.description:
        document["description"] = stored.meta.description[:MAX_TEXT]

    return document


def _document_of_run(store: Store, run: str) -> JSONObject:
    """Return a document with the task of a run that ended before it did anything, and the plan that
    was waiting to be accepted.

    Raises:
        PublicationError: the run has not ended, or its beginning cannot be read.
    """
    recorded = read_run(store, run, ended=True)
    if recorded is None:
        record = store.runs.get(run)
        status = "gone" if record is None else record.status
        raise PublicationError(
            f"run {run} is {status} and has not ended; cancel it first, or publish it after it ends"
        )

    started = recorded.started
    defined = {tool.name for tool in defined_tools(read_context(started.context))}
    origins = [
        tool.origin
        for tool in recorded.machine.catalogue.tools
        if tool.module is not None or tool.name not in defined
    ]
    names: list[JSON] = [f"{module}.{tool}" if module else tool for module, tool in origins]
    context = [
        message
        for message in started.context
        if not (isinstance(message, dict) and message.get("content") == LAZY)
    ]
    document: JSONObject = {"context": context, "schema": started.output_schema, "tools": names}
    proposed = [event for event in recorded.events if isinstance(event, SolutionProposed)]
    if proposed:
        # Nobody has accepted this plan.
        output = proposed[-1].output
        members = object_or_empty(output)
        if list(members) == ["value"] and wrap_output(started.output_schema)[1]:
            output = members["value"]

        document["solution"] = {"calls": proposed[-1].calls, "output": output}

    return document


def _named(call: WrittenCall) -> str:
    """Return the name of a call's tool, in the form that patterns match."""
    if call.module is None:
        return call.tool
    if call.module == ANONYMOUS:
        return f"{ANONYMOUS}.solve"
    if call.module.startswith(IDEA):
        return call.module
    return f"{call.module}.{call.tool}"


def _absent_from(offered: list[Tool], patterns: Iterable[str]) -> list[str]:
    """Return the patterns that match none of the offered tools and name none of their rooms."""
    rooms = {tool.module for tool in offered if tool.in_room}
    # A clean room needs no tool.
    present = {f"{ANONYMOUS}.solve", *rooms}
    absent: list[str] = []
    for pattern in patterns:
        if pattern not in present and not chosen_tools(offered, [pattern]):
            absent.append(pattern)

    return absent


def _need_of_name(name: str) -> Need:
    if name.startswith(IDEA):
        return Need(name.removeprefix(IDEA), name)
    module, dot, tool = name.partition(".")
    return Need(tool, module) if dot and tool else Need(name, "")


def _description_of(written: WrittenIdea, name: str) -> str:
    tools = list(written.meta.tools)
    return f"Calls {first_names(tools)}" if tools else f"Runs {name}"
