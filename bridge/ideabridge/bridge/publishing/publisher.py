"""Turn ideas into tools, and check whether published ideas still work.

Theory of operation. `Publisher.publish` reads the run that made an idea as a function, and chooses
how calls will be answered:

| answer | what a call does | what is stored |
|---|---|---|
| `plan` | runs the lifted plan with the new input | the plan and its pins |
| `program` | runs the program with the new input | the program, its tools and their pins |
| `solve` | asks a mind again, guided by the plan | context, tools, output schema and plan |
| `recorded` | returns the stored output for the stored input | nothing more |

`auto` chooses the program if the run consists of one program, and otherwise the first of the other
answers that is possible. A version that `auto` publishes as a plan or for solving keeps the answer
`auto`. Input and output are always stored, so that `verify` can compare them later. A plan is not
refused because something about it is uncertain: it keeps all explanations of a copied value, and
each answer says what it assumes.

Invariants. A plan or program is published only if it is self-consistent (with the recorded results
it returns the recorded output), and it does not call itself through other ideas. Once the tools are
known, the code does not wait for anything until the version is written. The plan is therefore
stored with exactly the tools against which it was checked. If publishing fails, nothing is stored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.context.written_call import WrittenCall, written_calls
from ideabridge.bridge.errors import (
    MeantToolError,
    ModulesAwayError,
    NameInUseError,
    NeedsPersonError,
    NoFinishedRunError,
    ProgramRefusedError,
    PublicationError,
)
from ideabridge.bridge.lifting.function import Function
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.event import APPROVER, Decider, decider_of
from ideabridge.bridge.minds.choice import AUTO, Choice, MindName
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.modules.settings import ModuleStatus
from ideabridge.bridge.offer.offer import SETTLE_SECONDS, Offer
from ideabridge.bridge.offer.plan_tools import PlanTools
from ideabridge.bridge.plan import Plan, read_published
from ideabridge.bridge.programs.names import ProgramNames
from ideabridge.bridge.programs.runner import setting_of
from ideabridge.bridge.programs.sandbox import Sandbox
from ideabridge.bridge.publishing.distilling import distill
from ideabridge.bridge.publishing.drafting import Drafted, Drafting, OutlinedRun
from ideabridge.bridge.publishing.idea_tools import needed_modules
from ideabridge.bridge.publishing.importing import (
    SavedIdea,
    check_explained,
    check_guide,
    honest_annotations,
    offered_plan,
    own_cycle,
)
from ideabridge.bridge.publishing.outline import Outline
from ideabridge.bridge.publishing.prepared_tool import (
    PreparedTool,
    guided_tool,
    planned_tool,
    recorded_tool,
    with_guide,
)
from ideabridge.bridge.publishing.program_answer import ProgramAnswer
from ideabridge.bridge.publishing.program_request import (
    MOST_TOKENS,
    MUCH_ROOM,
    NO_WORDS,
    ProgramRequest,
    RefusedProgram,
    ToolWords,
    program_request,
)
from ideabridge.bridge.publishing.program_tool import (
    AcceptedProgram,
    ProgramTrial,
    expect_confirmed,
    values_in_text,
    with_examples,
)
from ideabridge.bridge.publishing.programs import (
    Judgement,
    RecordedResults,
    input_schema_of,
    reproduce,
)
from ideabridge.bridge.publishing.publish_request import PublishRequest
from ideabridge.bridge.publishing.publishing_bridge import PublishingBridge
from ideabridge.bridge.publishing.teaching import add_record, without_claims
from ideabridge.bridge.publishing.verify import (
    Verdict,
    reason_not_to_run,
    silent_defaults,
    verify_offline,
)
from ideabridge.bridge.publishing.verify import drift as drift_of
from ideabridge.bridge.runs.called_ideas import with_plain_ideas
from ideabridge.bridge.runs.pins import (
    ChangedTool,
    Definition,
    accepted_pins,
    changed_in,
    check_pins,
    essences_in,
    pinned_definitions,
    read_pins,
    with_own_module,
)
from ideabridge.bridge.runs.replay import (
    Ways,
    plan_of,
)
from ideabridge.bridge.runs.runs import REFUSED_PROGRAM
from ideabridge.bridge.screen import Screen
from ideabridge.bridge.store.errors import PublicationNameError
from ideabridge.bridge.store.idea import NewPublication, Publication
from ideabridge.bridge.store.portable import Checks, Document, read_document
from ideabridge.bridge.store.publications import RESERVED, check_name
from ideabridge.bridge.store.published import PublishedPlan
from ideabridge.bridge.store.removed_kinds import with_present_kinds
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import (
    EVERYBODY,
    LOCAL,
    SEES_ALL,
    Viewer,
    owner_of,
    publisher_of,
    user_of,
)
from ideabridge.bridge.store.versions import differences
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import known_as, safe_name
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.tool import IDEA
from ideabridge.tools.typed import read_as

T = TypeVar("T")

_AWAY: Final = 1000
"""The maximum length, in characters, of an error's list of servers that are not up."""

MAX_AUDIENCE: Final = 100
"""The maximum number of users that one publication can name."""


def read_audience(store: Store, to: str | Iterable[str]) -> tuple[str, ...]:
    """Return the callers that `to` refers to: `me` (only the owner), `all`, or names of users; see
    `Publications.share`.

    Raises:
        PublicationError: `to` is empty, has too many names, or combines `me` or `all` with other
            names.
        UnknownUserError: a named user does not exist.
    """
    words = to.split(",") if isinstance(to, str) else [*to]
    names = [word.strip() for word in words if word.strip()]
    if not names or (len(names) > 1 and not {"me", "all"}.isdisjoint(names)):
        raise PublicationError(
            f"to: expected 'me', 'all', or names of users, found {', '.join(names)[:80]!r}"
        )

    if len(names) > MAX_AUDIENCE:
        raise PublicationError(
            f"to: expected at most {MAX_AUDIENCE} names, found {len(names):,}; use 'all' to share "
            "with everybody"
        )

    if names == ["me"]:
        return ()
    return (EVERYBODY,) if names == ["all"] else store.users.audience(names)


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes and imports ideas, and checks what is published. For the methods, see `Bridge`.

    Attributes:
        bridge: runs plans and programs, and repeats writes that the store refuses.
        store: contains the ideas and the publications.
        offer: the current tools.
        modules: the servers whose tools published plans call.
        configuration: the configuration of the bridge.
        screen: refuses secrets.
        sandbox: returns the workers that check programs and run them with recorded results.
    """

    bridge: PublishingBridge
    store: Store
    offer: Offer
    modules: Modules
    configuration: Configuration
    screen: Screen
    sandbox: Callable[[], Sandbox]

    @property
    def drafting(self) -> Drafting:
        """The `Drafting` that lifts runs into plans."""
        return Drafting(self.store)

    @property
    def ways(self) -> Ways:
        """The object that decides how calls are answered, and pins the tools that they refer to."""
        return Ways(self.store, self.offer, self.bridge.patiently)

    async def import_idea(
        self,
        document: JSON,
        *,
        publish: bool = False,
        caller: str = LOCAL,
        edited: bool = False,
        replace: Collection[str] = (),
    ) -> SavedIdea:
        """See `Bridge.import_idea`."""
        checks: Checks = "nothing" if edited else "whole"
        read = read_document(document, checks)
        if isinstance(document, dict):
            self.screen.check(document)

        if not publish:
            idea_id = await self.bridge.patiently(
                lambda: self.store.import_idea(document, checks=checks)
            )
            return SavedIdea(idea_id, left_out=read.meta.left_out)

        name = str(read.publication_members()["name"])
        self.check_free(name, caller=caller)
        current = self.store.publications.look_up(name, caller=caller)
        if (
            current is not None
            and current.idea_id == read.idea.id
            and self._is_export_of(name, document)
        ):
            return SavedIdea(current.idea_id, current, current)

        return await self._import_published(
            document, read, checks, name=name, caller=caller, replace=replace
        )

    async def _import_published(
        self,
        document: JSON,
        read: Document,
        checks: Checks,
        *,
        name: str,
        caller: str,
        replace: Collection[str],
    ) -> SavedIdea:
        """Import a document, and publish its idea under a name."""
        check_explained(read)
        # `import_idea` has already checked the digest of the document.
        written = with_present_kinds(document)
        if written is not document and checks == "whole":
            checks = "idea"

        document = written
        read = read_document(document, checks)
        plan = offered_plan(read)
        check_guide(self.store, read)
        annotations = await self.check_plan(plan, name, caller, where="publication.plan")
        imported = _Import(
            document, checks, name, caller=caller, annotations=annotations, replace=replace
        )
        try:
            before, idea_id, after = await self.bridge.patiently(
                partial(self._store_import, imported)
            )
        except _UnchangedError as unchanged:
            return SavedIdea(
                unchanged.publication.idea_id, unchanged.publication, unchanged.publication
            )

        # A document with pins keeps them. Without pins, its calls refer to the tools of this
        # bridge.
        return SavedIdea(
            idea_id, await self.ways.pinned(after, caller), before, left_out=read.meta.left_out
        )

    def _store_import(self, imported: _Import) -> tuple[Publication | None, str, Publication]:
        """Store an idea and its publication in one transaction. Return the version that the name
        referred to before, the id of the idea, and the new version.

        Raises:
            NameInUseError: the tool would change, and the caller has not agreed to that.
            _UnchangedError: the idea is already published under the name.
        """
        name = imported.name
        with self.store.transaction():
            before = self.store.publications.look_up(name, caller=imported.caller)
            proved = without_claims(imported.document, before)
            # The digest of the original document has already been checked. Without its claims, the
            # document has a different digest, which need not be checked.
            proved_checks: Checks = imported.checks if proved is imported.document else "nothing"
            idea_id = self.store.import_idea(
                proved,
                with_publication=True,
                owner=publisher_of(imported.caller),
                annotations=imported.annotations,
                checks=proved_checks,
            )
            after = self.store.publications.versions(name, caller=SEES_ALL, limit=1)[0]
            if before is None:
                return None, idea_id, after

            lines = differences(before, after)
            current = f"{name}@{before.version}"
            if lines and not {name, current} & set(imported.replace):
                # The error rolls the transaction back, so no part of the document is stored.
                raise NameInUseError(current, lines)
            if not lines and before.idea_id == idea_id:
                raise _UnchangedError(before)
            return before, idea_id, after

    def _is_export_of(self, name: str, document: JSON) -> bool:
        """Return whether a document equals what this store would export for the given name."""
        try:
            exports = [
                self.store.export_idea(name, caller=SEES_ALL, results=results)
                for results in (False, True)
            ]
        except IdeabridgeError:
            # The idea cannot be exported, for example because it contains a secret.
            return False
        return isinstance(document, dict) and document.get("digest") in [
            export["digest"] for export in exports
        ]

    async def check_plan(
        self, plan: Plan | None, name: str, caller: str, *, where: str
    ) -> JSONObject:
        """Check the plan of a document with the tools of this bridge, and return the plan's
        behaviour hints.

        Args:
            plan: the plan with an input, or None if the idea has no plan, so that its effects are
                unknown.
            name: the name under which the idea is published.
            caller: the caller who publishes the idea.
            where: the part of the document that contains the plan, for errors.

        Raises:
            ModulesAwayError: a server that the plan calls is configured but not up.
            PublicationError: the plan would call itself, or cannot run with the tools of this
                bridge.
            PublicationNameError: see `check_free`.
        """
        if plan is None:
            return honest_annotations(None, self.offer.catalogue, self.offer.catalogue)
        await self.expect_listed(plan.calls, _defined_by(plan), caller)
        # Another caller might have taken the name in the meantime.
        self.check_free(name, caller=caller)
        present = PlanTools(self.offer, dataclasses.replace(plan, tools=()), caller).present()
        offered = PlanTools(self.offer, plan, caller, published=True).present()
        written = written_calls(plan.calls)
        named = {call.tool for call in written if offered.look_up(call) is not None}
        if self.offer.to(caller).profile is not None:
            _expect_offered(written, offered, where)
        calls = written_calls(with_own_module(call, offered) for call in plan.calls)
        cycle = own_cycle(self.store, name, with_plain_ideas(calls, named))
        if cycle is not None:
            raise PublicationError(f"{where}: {cycle}")

        if all(offered.look_up(call) is not None for call in written):
            try:
                # Like the tools of the plan itself, a tool that an inner idea lacks can be added
                # later.
                with suppress(MeantToolError):
                    await self.bridge.dry_run(plan, caller=caller)
            except IdeabridgeError as error:
                raise PublicationError(
                    f"{where}: the plan cannot run with the tools available here: {error}"
                ) from None

        return honest_annotations(plan, present, offered)

    def check_free(self, name: str, *, caller: str = LOCAL) -> None:
        """Check that a name is free for a publication.

        The names of servers, of own tools, of built-in tools, and of tools from tool files and
        servers are taken. A name that is already published stays valid: a server cannot take it by
        listing a tool with that name.

        Raises:
            PublicationNameError: the name is invalid or reserved.
            PublicationError: the name belongs to a tool or a server of this bridge.
        """
        check_name(name)
        if name in RESERVED:
            raise PublicationNameError(
                f"name: ideabridge itself uses the name {name!r}; choose another"
            )

        self._expect_in_profile(name, caller)
        tools = [
            tool
            for tool in self.offer.known
            if tool.module is None or not tool.module.startswith("idea:")
        ]
        if any(tool.module is None and name in known_as(tool.name, None, None) for tool in tools):
            raise PublicationError(
                f"name: ideabridge or a tool file here already has a tool {name!r}; choose another"
            )

        if self.store.publications.find(name, None, caller) is not None:
            return
        if any(name == safe_name(module) for module in self.configuration.modules):
            raise PublicationError(f"name: {name!r} is a server here; choose another")

        for tool in tools:
            if tool.module is not None and name in known_as(
                tool.name, tool.remote_name, tool.module
            ):
                raise PublicationError(
                    f"name: {name!r} is a tool of server {tool.module!r} here; choose another"
                )

        # Clients know the tool by this name, even if the server no longer lists it.
        module, tool = self.store.tool_memory.exposed_names(self._scope).get(name, ("", ""))
        if module in self.configuration.modules:
            raise PublicationError(
                f"name: clients see {module}.{tool} under the name {name!r}; choose another"
            )

    def _expect_in_profile(self, name: str, caller: str) -> None:
        """Raise `PublicationError` if the caller's profile does not allow ideas with the given
        name, or does not contain the idea that has this name.
        """
        profile = self.offer.to(caller).profile
        if profile is None:
            return

        publications = self.store.publications
        is_hidden = (
            publications.find(name, None, owner_of(caller)) is not None
            and publications.find(name, None, caller) is None
        )
        if is_hidden or not profile.admits_idea(name):
            raise PublicationError(f"name: {profile.refusal('idea', name)}; choose another name")

    @property
    def _scope(self) -> str:
        """The project within which the names of exposed tools are unique, because projects can
        share a store.
        """
        return str(self.configuration.folder.absolute())

    async def publish(self, request: PublishRequest) -> Publication:
        """Publish a run; see `Bridge.publish`.

        Raises:
            NoFinishedRunError: the run has nothing to publish beyond its idea; see
                `Saver.publish_run`.
        """
        request = request.with_words_of_program()
        self.screen.check({"name": request.name, "description": request.description})
        self.check_free(request.name, caller=request.caller)
        audience = None if request.to is None else self.audience(request.to, request.caller)
        run = await self.drafting.outlined(request)
        _check_answer(request, run.outline)

        task = _task_of(request, run.outline)
        prepared = await self._prepare(request, run, task)
        if request.or_solve and prepared.plan is not None:
            prepared = await self._with_guide(request, run, task, prepared)

        if request.program is not None and request.program.is_of_mind:
            # Ask a person only about a program that agrees with the recordings.
            audience = self._audience_of_mind(request, audience)

        published = await self._write(request, run.outline, task, prepared, audience)
        if prepared.draft is not None:
            for record in prepared.draft.records:
                add_record(self.store, published, record)

        return dataclasses.replace(published, report=prepared.full_report())

    async def _prepare(self, request: PublishRequest, run: OutlinedRun, task: str) -> PreparedTool:
        """Turn a run into a tool.

        If possible, the tool runs a program or a plan. Otherwise, a mind solves the idea again or,
        if that is impossible, the tool returns the recorded answer. `request.answer` can select one
        of these.

        Raises:
            PublicationError: the run cannot become what is requested.
        """
        outline = run.outline
        if request.program is not None:
            self.screen.check(request.program.to_json())
            return await self._program(request, run, request.program)

        planned: PreparedTool | str = ""
        if request.answer in ("auto", "program") and outline.program is not None:
            planned = await self._own_program(request, run, outline.program)
        elif request.answer in ("auto", "plan"):
            planned = await self._plan(request, run)

        if isinstance(planned, PreparedTool):
            return planned
        if request.answer == "auto" and not outline.is_done and not outline.has_results:
            # `Saver.publish_run` then publishes the idea as it was written.
            raise NoFinishedRunError(f"run {outline.run} is {outline.status} and did nothing")

        if request.answer in ("auto", "solve"):
            guide = await self.drafting.guide(outline.run, request.caller, task, request.name)
            if isinstance(guide, dict):
                return guided_tool(guide, request.answer, outline, planned)
            if request.answer == "solve":
                raise PublicationError(f"a mind cannot solve the task again: {guide}")
            if not outline.is_done:
                raise PublicationError(f"the run cannot become a tool: {planned}; and {guide}")

        return recorded_tool(outline, planned)

    async def _own_program(
        self, request: PublishRequest, run: OutlinedRun, program: str
    ) -> PreparedTool | str:
        """Return a tool that runs the program of a run, or why the run has no such tool.

        Raises:
            PublicationError: the run cannot be a program, and the request allows nothing else.
        """
        try:
            return await self._program(request, run, ProgramAnswer(program))
        except ProgramRefusedError as error:
            if request.answer == "program":
                raise PublicationError(
                    f"the run cannot be published as a program: {error}"
                ) from None
            return str(error)

    async def _plan(self, request: PublishRequest, run: OutlinedRun) -> PreparedTool | str:
        """Return a tool that runs the plan of a run, or why the run has no such tool.

        Raises:
            PublicationError: the run cannot be a plan and the request allows nothing else, or the
                plan does not fit what a person decided.
        """
        planned: PreparedTool | str = run.no_plan
        if run.draft is not None:
            planned = await self._lifted(request, run.outline, run.draft)
        if isinstance(planned, str) and request.answer == "plan":
            raise PublicationError(f"the run cannot become a plan: {planned}")
        return planned

    async def _lifted(
        self, request: PublishRequest, outline: Outline, draft: Drafted
    ) -> PreparedTool | str:
        """Return the plan with every choice applied, or why the run cannot be a plan."""
        plan = read_published(
            draft.plan, draft.arguments, draft.schema, outline.output_schema, name="it"
        )
        catalogue, fault = await self._present_tools(
            request, draft.plan, plan, essences_in(outline.catalogue)
        )
        if fault is not None:
            return fault
        if draft.fault is not None:
            raise PublicationError(draft.fault)
        if draft.difference is not None and request.choices.take:
            raise PublicationError(
                "with the choices in `take`, the plan does not do what its run did: "
                f"{draft.difference}"
            )

        if draft.difference is not None:
            return draft.difference
        return planned_tool(draft, catalogue, self.store, request)

    async def _present_tools(
        self,
        request: PublishRequest,
        document: JSONObject,
        plan: Plan,
        definition: Definition,
    ) -> tuple[Catalogue, str | None]:
        """Wait for the tools of a plan, and compare them with its pins. After that, do not wait for
        anything until the version is written.

        Args:
            request: the publisher's request.
            document: the plan as it is published.
            plan: the same plan as an object.
            definition: looks up the tools of the plan's run; see `Definition`.

        Returns:
            The tools in this bridge that the plan's calls refer to, and the reason why the plan
            cannot be published with these tools, or None if it can.
        """
        pinned = read_as(PublishedPlan, document)
        calls = pinned.calls
        await self.expect_listed(calls, pinned.defined, request.caller)
        # Another caller might have taken the name in the meantime.
        self.check_free(request.name, caller=request.caller)
        catalogue = PlanTools(self.offer, plan, request.caller, published=True).present()
        cycle = own_cycle(self.store, request.name, written_calls(calls))
        if cycle is not None:
            return catalogue, cycle
        away = self.offer.to(request.caller).missing.why_away
        checked = check_pins(pinned, calls, catalogue, definition, away)
        return catalogue, next(iter(checked.faults), None)

    async def _with_guide(
        self, request: PublishRequest, run: OutlinedRun, task: str, planned: PreparedTool
    ) -> PreparedTool:
        """Add a guide to a plan, so that a mind continues if the plan produces no output.

        Raises:
            PublicationError: no mind can solve the idea again.
        """
        outline = run.outline
        guide = await self.drafting.guide(outline.run, request.caller, task, request.name)
        if isinstance(guide, str):
            raise PublicationError(f"or_solve: a mind cannot solve the task again: {guide}")
        return with_guide(planned, guided_tool(guide, request.answer, outline, ""))

    async def _write(
        self,
        request: PublishRequest,
        outline: Outline,
        task: str,
        prepared: PreparedTool,
        audience: tuple[str, ...] | None,
    ) -> Publication:
        """Write the next version of a name, with the definitions of the tools that it pins."""
        new = NewPublication(
            name=request.name,
            idea_id=outline.idea,
            description=prepared.description(task, outline),
            answer=prepared.answer,
            input_schema=prepared.input_schema,
            output_schema=prepared.output_schema(outline),
            annotations=prepared.annotations,
            plan=prepared.plan,
            recorded=prepared.recorded(outline),
            owner=request.owner,
        )
        pins = read_pins(new.plan_or_guide) or []
        definitions = pinned_definitions(pins, outline.catalogue)

        def write() -> Publication:
            with self.store.transaction():
                self.store.tool_memory.keep_definitions(definitions)
                return self.store.publications.publish(
                    new, audience=audience, replaces=self.store.users.manages(request.caller)
                )

        return await self.bridge.write(write)

    def _audience_of_mind(
        self, request: PublishRequest, audience: tuple[str, ...] | None
    ) -> tuple[str, ...] | None:
        """Return the callers with whom a version is shared.

        An assistant that wrote the words of a version has read what others wrote, so a person must
        approve that others see the version. Without this approval, a new name is for the publisher
        alone.

        Raises:
            NeedsPersonError: others would see the version, and no person has approved that.
        """
        if request.by.kind == "person" or not self.store.users.exist():
            return audience

        others = audience
        publications = self.store.publications
        if others is None and publications.find(request.name, None, request.caller) is not None:
            others = publications.shares(request.name)

        if others:
            raise NeedsPersonError(
                f"{request.name!r} is shared with others, and an assistant wrote the program and "
                "its descriptions, so a person must agree first. Or choose another name and leave "
                "out `to`"
            )

        return ()

    async def _program(
        self, request: PublishRequest, run: OutlinedRun, written: ProgramAnswer
    ) -> PreparedTool:
        """Return a program as a tool.

        Raises:
            ProgramRefusedError: the program is malformed, cannot run in this process, or does not
                do what its runs did.
        """
        if request.strict or request.choices.take:
            raise PublicationError(
                "a program has no copied values to decide on: leave out strict and take"
            )

        trial = await self._trial(request, run, written)
        await self._check_form(trial)
        function = trial.functions[0]
        schema, arguments = input_schema_of(
            written.program, function, trial.inputs[0], request.decisions
        )
        if written.inputs:
            schema = await compute_in_thread(
                with_examples, schema, written.inputs[0], trial.recorded[0]
            )

        plan = trial.plan()
        present, fault = await self._present_tools(
            request,
            plan,
            read_published(plan, {}, None, None, name=request.name),
            essences_in(trial.catalogue),
        )
        if fault is not None:
            raise ProgramRefusedError(fault)

        judgements = await self._judge(trial)
        values = await compute_in_thread(values_in_text, trial, request.decisions)
        if written.is_of_mind and not trial.other_runs:
            expect_confirmed(values.copied, written.constants)

        accepted = AcceptedProgram(trial, schema, arguments, judgements, values)
        return accepted.tool(plan, present, self.store)

    async def _trial(
        self, request: PublishRequest, run: OutlinedRun, written: ProgramAnswer
    ) -> ProgramTrial:
        """Read the runs that judge a program."""
        function = run.function
        if function is None:
            function = await self.drafting.function(run.outline.run, request.caller)
        if function.instances:
            raise ProgramRefusedError("the run had several instances")

        functions = [function]
        for ref in request.choices.runs:
            functions.append(await self.drafting.function(ref, request.caller))
        recorded = [await self._results(judge) for judge in functions]
        return ProgramTrial.of(written, functions, recorded)

    async def _judge(self, trial: ProgramTrial) -> list[Judgement]:
        """Run a program with the results of each run.

        Raises:
            ProgramRefusedError: the program does not do what one of the runs did.
        """
        program = trial.written.program
        judgements: list[Judgement] = []
        for results, value in zip(trial.recorded, trial.inputs, strict=True):
            judgement = await reproduce(self.sandbox(), program, trial.names, value, results)
            if judgement.difference is not None:
                raise ProgramRefusedError(
                    f"given the results of run {results.run}, {judgement.difference}"
                )
            judgements.append(judgement)

        return judgements

    async def _check_form(self, trial: ProgramTrial) -> None:
        """Raise `ProgramRefusedError` if a program is malformed. The run's own program is not
        checked.
        """
        if trial.is_own:
            return
        names = ProgramNames(trial.catalogue.tools)
        setting = setting_of(names, {"input": {}, "state": {}}, 0.0, "")
        problem = await self.sandbox().check(trial.written.program, setting)
        if problem is not None:
            raise ProgramRefusedError(problem)

    async def _results(self, function: Function) -> RecordedResults:
        record = self.store.runs.get(function.run.id)
        if record is None:
            raise PublicationError(
                f"run {function.run.id} no longer exists: it was deleted in the meantime"
            )
        return await compute_in_thread(RecordedResults.of, function.run, record)

    async def distill(
        self, request: PublishRequest, mind: MindName | Choice = AUTO
    ) -> tuple[Publication, list[RefusedProgram]]:
        """Let a mind write a program that reproduces runs, in up to three attempts, and publish it.

        Args:
            request: the publisher's request. The first run supplies the parameters. Decisions about
                a plan are ignored.
            mind: the mind that writes the program; see `choose`.

        Returns:
            The publication, and the programs that were refused before it, each with the reason.

        Raises:
            PublicationError: no program reproduces the runs, or there is no mind.
        """
        self.check_free(request.name, caller=request.caller)
        # Nobody has seen the program yet, so the decision is not a person's.
        request = dataclasses.replace(request, by=decider_of(APPROVER))

        async def publish(answer: ProgramAnswer) -> Publication:
            return await self.publish(request.for_program(answer))

        words = ToolWords(request.name, request.description)
        describe = partial(
            self.program_request, request.refs, request.caller, words=words, room=MUCH_ROOM
        )
        return await distill(
            self.bridge, describe, publish, self.note_refused, mind, request.caller
        )

    async def note_refused(self, run: str, reason: str) -> None:
        """Record that a program that a mind wrote in a run was refused even though the run itself
        ended well.
        """
        await self.bridge.write(
            lambda: self.store.settings.set(REFUSED_PROGRAM + run, reason.encode())
        )

    async def program_request(
        self,
        refs: Sequence[str],
        caller: str,
        refused: Sequence[RefusedProgram] = (),
        *,
        words: ToolWords = NO_WORDS,
        room: int = MOST_TOKENS,
    ) -> ProgramRequest:
        """Describe runs to the author of a program for `Bridge.publish`.

        Args:
            refs: runs of the same task, each as in `Bridge.publish`.
            caller: the owner of the runs.
            refused: the refused programs that the author wrote before.
            words: the publisher's description of the tool.
            room: the maximum number of estimated tokens in the Request's text.
        """
        runs: list[tuple[Function, RecordedResults]] = []
        for ref in refs:
            function = await self.drafting.function(ref, caller)
            runs.append((function, await self._results(function)))
        points = await self.drafting.open_points(refs, caller)
        return await compute_in_thread(
            partial(program_request, runs, points, refused, words=words, room=room)
        )

    async def expect_listed(
        self, calls: Iterable[JSON], defined: frozenset[str], caller: str
    ) -> None:
        """Wait until the servers that the calls need have listed their tools; see `needed_modules`.

        Raises:
            ModulesAwayError: a server has not listed its tools.
        """
        calls = list(calls)

        async def unlisted() -> list[ModuleStatus]:
            needed = needed_modules(self.store, calls, caller, self.offer.known_catalogue, defined)
            return await self.offer.unreached(needed)

        # Check twice, because once a server has listed its tools, it can turn out that another one
        # is needed.
        if await unlisted() and (away := await unlisted()):
            problems = "; ".join(
                status.error or f"server {status.name!r} is {status.state}" for status in away
            )
            raise ModulesAwayError(
                f"its calls require tools of a server that is unavailable: {problems[:_AWAY]}. Try "
                "again when the server is available"
            )

    def audience(self, to: str | Iterable[str], caller: str) -> tuple[str, ...]:
        """Return the callers with whom a new version is shared; see `read_audience`."""
        audience = read_audience(self.store, to)
        users = self.store.users
        only_admins = self.configuration.users.share == "admins"
        if audience and only_admins and user_of(caller) is not None and not users.manages(caller):
            raise PublicationError(
                "to: only admins may publish to others here; leave out `to`, or set it to `me`"
            )
        return audience

    # -- verifying ---------------------------------------------------------------------------------

    async def drift(
        self, plan: Plan, output: JSON, *, effects: bool = False, caller: str = LOCAL
    ) -> tuple[str | None, str | None]:
        """See `Bridge.drift`."""
        try:
            await self.expect_listed(plan.calls, _defined_by(plan), caller)
        except ModulesAwayError as error:
            return str(error), None

        reason = reason_not_to_run(
            plan.calls,
            PlanTools(self.offer, plan, caller, published=True).present(),
            effects=effects,
        )
        if reason is not None:
            return reason, None

        run = await self.bridge.run_plan(
            plan, caller=caller, title=f"verify {plan.name or 'a lifted plan'}"
        )
        status = await run.wait()
        different = drift_of(run, output)
        if status != "done":
            run.cancel("it ran only for a comparison")

        return None, different

    async def verify(
        self,
        names: Iterable[str] = (),
        *,
        live: bool = True,
        effects: bool = False,
        caller: str = LOCAL,
    ) -> list[Verdict]:
        """See `Bridge.verify`."""
        publications = [
            self.store.publications.named(name, caller=caller) for name in names
        ] or self._published(caller)
        verdicts: list[Verdict] = []
        for before in publications:
            with suppress(ModulesAwayError):  # The verdict reports it.
                for part in (before.plan_parts, before.guide_parts):
                    await self.expect_listed(part.calls, part.defined, caller)

            publication = await self.ways.pinned(before, caller)
            recording = publication.recording
            plan = _plan_of(publication, recording.input or {})
            tools = PlanTools(self.offer, plan, caller, published=True).present()
            pinned = publication.plan_or_guide or PublishedPlan()
            checked = self.ways.check_pins(pinned, plan.calls, tools)
            verdict = await verify_offline(publication, self.store, checked)
            if plan.program is not None and recording.has_output and not verdict.faults:
                await self._reproduce(publication, plan, caller, verdict)

            verdict.notes += await self._silent_defaults(publication, caller)
            if publication is not before:
                verdict.notes.append("its tools are pinned now")

            if publication.plan is not None and not recording.has_output:
                verdict.notes.append("not run: no output is recorded to compare with")
            elif publication.plan is not None and live and not verdict.faults:
                reason, different = await self.drift(
                    plan, recording.output, effects=effects, caller=caller
                )
                if different is not None:
                    verdict.faults.append(different)
                verdict.notes.append(f"not run: {reason}" if reason is not None else "run again")

            verdicts.append(verdict)

        return verdicts

    async def _silent_defaults(self, publication: Publication, caller: str) -> list[str]:
        """Return the notes that are missing from a plan published by an earlier version of
        ideabridge; see `silent_defaults`.

        Only the plan's run can provide these notes, so a migration could not add them to plans
        whose run is gone.
        """
        plan = publication.plan_parts
        origin = publication.origin
        if plan.program is not None or publication.learned is not None:
            return []
        if origin.run is None or self.store.runs.get(origin.run) is None:
            return []

        try:
            draft = await self.drafting.draft(
                origin.run,
                publication.owner or caller,
                choices=origin.choices,
                parameters=origin.parameters,
                strict=plan.strict,
            )
        except IdeabridgeError as error:
            return [f"its run can no longer become this plan: {error}"]

        return silent_defaults(plan, read_as(PublishedPlan, draft.plan))

    async def _reproduce(
        self, publication: Publication, plan: Plan, caller: str, verdict: Verdict
    ) -> None:
        """Check whether a published program still reproduces its run, if the run is in this
        store.
        """
        try:
            function = await self.drafting.function(
                publication.origin.run or publication.idea_id, publication.owner or caller
            )
        except IdeabridgeError as error:
            # An imported program comes without its run.
            verdict.notes.append(f"its run cannot be read: {error}")
            return

        results = await self._results(function)
        names = plan.names or {}
        judgement = await reproduce(
            self.sandbox(), plan.program or "", names, plan.input or {}, results
        )
        difference = judgement.difference
        if difference is None:
            verdict.notes.append("with the recorded results, it does what its run did")
        else:
            verdict.faults.append(f"no longer self-consistent: {difference}")

    async def changed_tools(self, module: str) -> list[ChangedTool]:
        """See `Bridge.changed_tools`."""
        if module and not module.startswith(IDEA):
            await self.modules[module].ready(SETTLE_SECONDS)

        changed: list[ChangedTool] = []
        definition = self.store.tool_memory.definition
        for live in self._published(SEES_ALL):
            for before in self.store.publications.versions(live.name, caller=SEES_ALL):
                pinned = await self.ways.pinned(before, before.owner or LOCAL)
                tools = PlanTools(
                    self.offer, _plan_of(pinned, {}), pinned.owner or LOCAL, published=True
                ).present()
                changed += changed_in(pinned, module, tools, definition)

        return changed

    def accept(self, changed: Iterable[ChangedTool], *, by: str | Decider) -> None:
        """See `Bridge.accept`."""
        groups: dict[tuple[str, int], list[ChangedTool]] = {}
        for change in changed:
            groups.setdefault((change.publication.name, change.publication.version), []).append(
                change
            )

        with self.store.transaction():
            for group in groups.values():
                publication = group[0].publication
                plan: JSONObject | None = publication.plan
                guide: JSONObject | None = publication.guide
                pins = accepted_pins(publication, group, decider_of(by))
                if plan is not None:
                    plan = {**plan, "pins": pins}
                elif guide is not None:
                    guide = {**guide, "pins": pins}

                self.store.publications.pin(
                    publication,
                    plan,
                    guide,
                    {change.tool.digest: change.tool.essence for change in group},
                )

    def _published(self, caller: Viewer) -> list[Publication]:
        publications: list[Publication] = []
        after: str | None = None
        while True:
            page = self.store.publications.page(200, after, caller=caller)
            publications += page.items
            if page.next is None:
                return publications
            after = page.next


def _defined_by(plan: Plan) -> frozenset[str]:
    return frozenset(str(tool.get("name")) for tool in plan.tools)


def _plan_of(publication: Publication, arguments: JSONObject) -> Plan:
    """Return the plan of a publication with the given input or, if it has no plan, the calls in its
    guide.
    """
    if publication.plan is not None:
        return plan_of(publication, arguments)
    guide = publication.guide_parts
    return Plan(calls=guide.calls, tools=guide.definitions)


@dataclass(frozen=True, slots=True)
class _Import:
    """A document whose idea is published under a name when it is imported.

    Attributes:
        document: the document, which has been checked.
        checks: the checks of the document that the store has yet to make.
        name: the name.
        caller: the caller who imports the document.
        annotations: the behaviour hints of the tool.
        replace: names or versions of tools that the caller agrees to change.
    """

    document: JSON
    checks: Checks
    name: str
    caller: str
    annotations: JSONObject
    replace: Collection[str]


class _UnchangedError(Exception):
    """Raised to roll back a transaction that changes nothing."""

    def __init__(self, publication: Publication) -> None:
        self.publication = publication


def _check_answer(request: PublishRequest, outline: Outline) -> None:
    """Check that a run can be published with the requested kind of answer.

    Raises:
        NoFinishedRunError: the run did not end well, so its program can only be published as it was
            written.
        PublicationError: this kind of answer is impossible for the run.
    """
    answer = request.answer
    if outline.program is not None and request.program is None and not outline.is_done:
        # The results of a run that has not ended properly cannot show whether the program is right.
        raise NoFinishedRunError(f"run {outline.run} is {outline.status}, not done")

    if answer == "recorded" and not outline.is_done:
        raise PublicationError(
            f"answer: there is no output to record, because the run is {outline.status}; publish it "
            "with the answer 'plan' or 'solve'"
        )

    if request.program is not None and answer not in ("auto", "program"):
        raise PublicationError(f"answer: expected 'program' for a program, found {answer!r}")
    if answer == "program" and request.program is None and outline.program is None:
        raise PublicationError(
            "the run cannot be published as a program, because no program made its calls; write "
            "one, or let a mind write it (--program ask)"
        )


def _task_of(request: PublishRequest, outline: Outline) -> str:
    """Return a description of the tool in complete sentences, from the publisher or the run."""
    text = request.description or outline.description or f"Runs {request.name}"
    text = text.rstrip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _expect_offered(calls: Iterable[WrittenCall], offered: Catalogue, where: str) -> None:
    """Raise `PublicationError` if a plan calls a tool that is not offered.

    A session in a profile does not publish such a plan, because a tool that is added later might
    not be in the profile.
    """
    for place, call in enumerate(calls):
        if not call.has_result and offered.look_up(call) is None:
            raise PublicationError(
                f"{where}: calls[{place}]: the profile of this session has no tool "
                f"{call.tool[:64]!r}"
            )
