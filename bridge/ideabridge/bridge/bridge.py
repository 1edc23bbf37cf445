"""Bridge: runs plans and the agent loop over a toolbox and the configured modules.

An application opens a `Bridge`. It owns the store, the modules and the runs of its process, and passes each call to the
part that does the work: `Offer` (the tools), `Runs`, `Publisher`, `Ways` (calls of published ideas).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

import anyio
from anyio.abc import TaskGroup

from ideabridge.bridge.arguments import (
    check_object,
    check_parts,
    check_text,
    check_type,
    read_given_plan,
    read_messages,
    read_names,
    read_object,
    read_schema,
)
from ideabridge.bridge.configuration import Configuration, fingerprint
from ideabridge.bridge.context.messages import Handlers, read_context, with_instances
from ideabridge.bridge.context.mind import Mind
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.lifting.draft import PlanDraft, apply_choices, read_choices
from ideabridge.bridge.lifting.lift import lift
from ideabridge.bridge.loop.catalogue import chosen_tools
from ideabridge.bridge.loop.event import APPROVER, Decider
from ideabridge.bridge.loop.settings import Planning, Settings
from ideabridge.bridge.loop.solution import LAZY
from ideabridge.bridge.minds.choice import AUTO, SAMPLING, TURNS, Choice, MindName, choose
from ideabridge.bridge.minds.model import ModelMind, configured_mind
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.modules.settings import learn_secrets
from ideabridge.bridge.plan import Plan, PlanLike, Rehearsal, rehearse
from ideabridge.bridge.publishing.idea_tools import hints_now, idea_tool
from ideabridge.bridge.publishing.importing import ImportResult
from ideabridge.bridge.publishing.publisher import Publisher
from ideabridge.bridge.publishing.verify import Verdict
from ideabridge.bridge.runs.executor import Executor
from ideabridge.bridge.runs.forks import fork
from ideabridge.bridge.runs.offer import ModuleLists, Offer, defined_tools
from ideabridge.bridge.runs.people import Approver, Decision
from ideabridge.bridge.runs.pins import ChangedTool
from ideabridge.bridge.runs.recovery import Recovery, Tell
from ideabridge.bridge.runs.replay import Replay, Ways
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.runs.runs import Runs, RunSummary
from ideabridge.bridge.runs.session import Session, open_session
from ideabridge.bridge.runs.starts import settings_under, start_plan, start_solve
from ideabridge.bridge.runs.values import schema_of
from ideabridge.bridge.screen import Screen
from ideabridge.bridge.secrets import Secrets
from ideabridge.bridge.store.idea import Answer, Publication
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import LOCAL
from ideabridge.bridge.store.writer import Writer
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import JSON, JSONObject, ObjectLike, normalise
from ideabridge.tools.errors import ArgumentError
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.tool import Tool
from ideabridge.tools.toolbox import Toolbox, load_tool_file

TOKEN_VARIABLE: Final = "IDEABRIDGE_TOKEN"  # noqa: S105 - the name of the variable, not a token
"""The environment variable that holds the bearer token of the server over HTTP."""

T = TypeVar("T")


class Bridge:
    """Runs plans and the agent loop; owns the store, the modules, and the runs of this process.

    Args:
        configuration: what `ideabridge.json` holds; None: nothing is configured.
        toolbox: tools of the caller's own, besides the built-in ones and the configured tool files.
        store: a path, or an open store (which then stays open); None: the configured one, else one in memory.
        handlers: handlers of message types of the caller's own.
        mind: answers the Requests of `solve`; None: the configured model, else solutions are handed in, by turns.
        approver: decides on calls that ask, by a coroutine; None: the run waits for `Run.decide`.
        lease_seconds: how long a run is held for this process once it stops answering; None: 15.

    Raises:
        ArgumentError: an argument is of another kind.
        ToolFileError, ModelSetupError: a tool file cannot be loaded, or pydantic-ai is not installed.
    """

    def __init__(
        self,
        configuration: Configuration | None = None,
        *,
        toolbox: Toolbox | None = None,
        store: Store | Path | str | None = None,
        handlers: Handlers | None = None,
        mind: Mind | None = None,
        approver: Approver | None = None,
        on_tools_changed: Callable[[], None] | None = None,
        lease_seconds: float | None = None,
    ) -> None:
        check_parts(
            configuration=configuration,
            toolbox=toolbox,
            store=store,
            handlers=handlers,
            mind=mind,
            approver=approver,
        )
        self.configuration = configuration or Configuration()
        self.handlers = handlers or Handlers()
        self.secrets = Secrets()
        self.mind = mind or configured_mind(self.configuration.model, self.secrets)
        self.approver = approver
        self.toolbox = builtin_toolbox()
        for file in self.configuration.tools:
            self.toolbox.update(load_tool_file(file, self.configuration.digest_of(file)))
        if toolbox is not None:
            self.toolbox.update(toolbox)
        self.modules = Modules(self.configuration, secrets=self.secrets, on_change=self._on_change)
        self.fingerprint = fingerprint(self.configuration)
        self._store: Store | None = store if isinstance(store, Store) else None
        self._path = ":memory:" if isinstance(store, Store) else store or self.configuration.store or ":memory:"
        self._on_tools_changed, self._lease_seconds = on_tools_changed, lease_seconds
        self._stack = AsyncExitStack()
        self._group: TaskGroup | None = None
        self._open: Runs | None = None
        self._writer: Writer | None = None
        self._lists: ModuleLists | None = None
        self.offer = Offer(self.toolbox, self.modules, self._idea_tool)

    def _idea_tool(self, module: str, caller: str) -> Tool | None:
        return idea_tool(self.store, module, caller, self.offer.catalogue)

    # -- life --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._store is None:
            self._store = Store.open(self._path, durability=self.configuration.durability)
            self._stack.callback(self._store.close)
        # Before anything can be written down: modules come up while runs are at work already.
        self.learn_secrets()
        self._lists = ModuleLists(self.configuration, self.modules, self._store)
        self._lists.recall()
        self.offer.forget()
        await self._stack.enter_async_context(self.modules)
        if isinstance(self.mind, ModelMind):
            await self._stack.enter_async_context(self.mind)
        self._stack.callback(self._retire)
        # Left after the runs' own group: what they still write is written.
        self._writer = self._store.writer()
        await self._stack.enter_async_context(self._writer)
        self._group = await self._stack.enter_async_context(anyio.create_task_group())
        limits = self.configuration.limits
        executor = Executor(
            self.toolbox,
            self.modules,
            mask=self.secrets.mask,
            redact=self.secrets.redact,
            result_bytes=limits.result_bytes,
        )
        self._open = Runs(
            self._store,
            writer=self._writer,
            group=self._group,
            executor=executor,
            offer=self.offer,
            handlers=self.handlers,
            fingerprint=self.fingerprint,
            screen=Screen(self.secrets),
            mind=self.mind,
            approver=self.approver,
            lease_seconds=self._lease_seconds,
            most_of_user=self.configuration.users.runs,
            run_bytes=limits.run_bytes,
        )
        self._group.start_soon(self._open.heartbeat)
        self._group.start_soon(self._open.listen)
        self._group.start_soon(self._open.follow)
        return self

    def learn_secrets(self) -> None:
        """Learn what is secret in the configuration, whether the modules run or not."""
        token = os.environ.get(TOKEN_VARIABLE)
        if token:
            self.secrets.add(TOKEN_VARIABLE, token, certain=True)
        told = self.configuration
        learn_secrets(
            told.modules,
            self.secrets,
            environ=os.environ,
            folder_of=told.folder_of,
            variables_of=told.variables_of,
        )

    def _retire(self) -> None:
        if self._open is not None:
            self._open.retire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        # Runs on their way end with the process; their journals stay, and they can be taken up again.
        if self._group is not None:
            self._group.cancel_scope.cancel()
        if self._open is not None:
            self._open.release()
        if isinstance(error, Exception):
            # Told to the task group, an error of the caller's own would come back wrapped in an ExceptionGroup.
            await self._stack.__aexit__(None, None, None)
            return False
        return await self._stack.__aexit__(kind, error, trace)

    @property
    def store(self) -> Store:
        """The open store."""
        if self._store is None:
            raise RuntimeError("the bridge is not open; use `async with Bridge(...)`")
        return self._store

    @property
    def _open_runs(self) -> Runs:
        if self._open is None:
            raise RuntimeError("the bridge is not open; use `async with Bridge(...)`")
        return self._open

    @property
    def _publisher(self) -> Publisher:
        return Publisher(
            self,
            store=self.store,
            offer=self.offer,
            modules=self.modules,
            configuration=self.configuration,
            screen=Screen(self.secrets),
        )

    @property
    def ways(self) -> Ways:
        """How calls of published ideas are answered, and which tools they mean."""
        return self._open_runs.ways

    # -- tools -------------------------------------------------------------------------------------------------

    def _on_change(self, module: str) -> None:
        self.offer.forget()
        if self._lists is not None:
            self._lists.keep(module)
        if self._on_tools_changed is not None:
            self._on_tools_changed()

    def tools(self) -> list[Tool]:
        """Every tool there is now: of the toolbox and of the modules that are up."""
        return self.offer.catalogue.tools

    def known_tools(self) -> list[Tool]:
        """Every tool of the toolbox and of the modules, also of those that are not up, by the last list of each. The
        same list object until something changes.
        """
        return self.offer.known

    def hints(self, publication: Publication, *, caller: str = LOCAL) -> JSONObject:
        """What a published idea does, by MCP's names of hints, as the tools that it calls are now; see `hints_now`."""
        return hints_now(self.store, publication, caller, self.offer.known_catalogue)

    def observed(self, tool: Tool, *, caller: str = LOCAL) -> JSONObject | None:
        """The shape that results of a tool had in the caller's runs; see `Observed.of`."""
        return self._open_runs.observed.of(caller, tool)

    # -- ideas and publications --------------------------------------------------------------------------------

    def export_idea(self, ref: str) -> JSONObject:
        """An idea as a portable document, with its publication where `ref` is a name.

        Raises:
            UnknownIdeaError, AmbiguousIdeaError: no idea has that name, or several have it.
            SecretInIdeaError: it holds a secret: a configured one, or one of a well-known shape.
        """
        self.learn_secrets()
        return self.store.export_idea(ref, self.secrets.found_in)

    async def import_idea(
        self,
        document: JSON,
        *,
        publish: bool = False,
        caller: str = LOCAL,
        edited: bool = False,
        replace: Collection[str] = (),
    ) -> ImportResult:
        """Save an exported idea, and `publish` it as the next version of the name in it.

        What the document says of its effects is not believed: the annotations are those of the tools here. A plan whose
        tools are all here is checked against their schemas.

        Args:
            document: what `export_idea` gave.
            publish: publish it too.
            caller: who imports it.
            edited: somebody has looked at the document, which need not be what was exported.
            replace: the published names, each NAME or NAME@VERSION, that it may take the place of.

        Raises:
            IdeaDocumentError, TamperedIdeaError, NameTakenError: see `Store.import_idea`.
            NameInUseError: the name stands for something else here, and `replace` does not name it.
            ModulesAwayError: a module that it calls is configured and not up.
            PublicationError: its plan would call itself, or cannot run with the tools here; or no fresh run could begin
                with what it says one begins with; or its name is a tool's here.
            SecretGivenError: it holds a secret of the configuration.
        """
        return await self._publisher.import_idea(
            document, publish=publish, caller=caller, edited=edited, replace=replace
        )

    def check_free(self, name: str, *, caller: str = LOCAL) -> None:
        """Refuse a name that a publication may not have, since calls by it mean another tool: ideabridge's own, the
        built-in ones, those of tool files and of modules by every name they are reached by, and the modules' names.

        A name that stands for an idea already keeps doing so: no module takes it by listing a tool of that name.

        Raises:
            PublicationNameError: it is no name, or is ideabridge's own.
            PublicationError: it is a tool's or a module's here.
        """
        self._publisher.check_free(name, caller=caller)

    async def publish(
        self,
        ref: str,
        name: str,
        *,
        description: str | None = None,
        answer: Answer = "auto",
        choices: ObjectLike | None = None,
        by: str | Decider = APPROVER,
        to: str | Iterable[str] | None = None,
        caller: str = LOCAL,
    ) -> Publication:
        """Publish what one run did as a tool, and wait for the modules that its plan calls. A published name gets a new
        version.

        Args:
            ref: an id, a unique prefix of one, a name, `name@version`, or the id of a run. For an idea, the run is the
                caller's latest one that ended with it.
            name: what the tool is called: `^[a-z][a-z0-9_]{0,47}$`.
            description: what the tool does, for the models that may call it.
            answer: `plan`, `solve` or `recorded`: how a call is answered. `auto` is the first of them that is possible.
            choices: what a person decides about a plan; see `read_choices` and `docs/lifting.md`.
            by: who made the choices; a text is the name of an approver. It is stored with the version.
            to: the audience, see `read_audience`. None keeps the audience of a published name; a new name of the local
                person is for everybody, and one of anybody else for that caller alone.
            caller: who publishes. An admin may publish a version of what others share with them.

        Raises:
            PublicationError: it cannot be published in this way; the message says what is missing.
            UndecidedError: a person must decide something about the plan first.
            ModulesAwayError: a module that its plan calls is not up.
            UnknownUserError: `to` names a user that does not exist.
            UnknownIdeaError, UnknownRunError: no run of this caller made it.
            SecretGivenError: the name or the description contains a secret of the configuration.
            ArgumentError: `ref`, `name` or `choices` has the wrong type.
            PublicationNameError: see `check_free`.
        """
        return await self._publisher.publish(
            ref, name, description=description, answer=answer, choices=choices, by=by, to=to, caller=caller
        )

    def lift(self, ref: str, *, choices: ObjectLike | None = None, caller: str = LOCAL) -> PlanDraft:
        """The plan a run, or the run of an idea, would be published as, with what is still asked; `report_of` tells it.

        Args:
            ref: as `publish` takes it.
            choices: what is decided already; see `read_choices`.
            caller: whose runs are looked at.

        Raises:
            PublicationError: it cannot be a plan whatever is accepted, or a choice does not fit it.
            UnknownIdeaError, UnknownRunError: no run of this caller made it.
        """
        check_text("ref", ref)
        chosen = read_choices(read_object("choices", choices))
        return apply_choices(lift(self.store, ref, caller, chosen.runs), chosen)

    async def call_idea(
        self,
        name: str,
        arguments: ObjectLike,
        *,
        mind: MindName | Choice = AUTO,
        caller: str = LOCAL,
        version: int | None = None,
        samples: bool = False,
    ) -> Replay:
        """Answer a call of a published idea: with the recorded output, or by a run, started here, of its plan or one
        that solves it anew. `auto` is the plan where there is one, else solving anew.

        Args:
            name: NAME, or NAME@VERSION.
            arguments: its input.
            mind: who answers where it is solved anew, see `choose`.
            caller: who calls; a run is theirs.
            version: where the name does not say it; None: the one it stands for now.
            samples: as for `run_plan`.

        Raises:
            ValueMismatchError: the arguments do not satisfy the tool's parameters.
            PublicationError: recorded with another input, or a tool it was solved with is gone.
            PlanError: the plan cannot run (a tool is gone, say).
            MindUnavailableError: a mind that is not there.
            UnknownPublicationError: nothing is published to this caller under that name.
            ArgumentError: the name is not text, or the arguments are no object.
        """
        store = self.store
        check_text("name", name)
        given = read_object("arguments", arguments) or {}
        pinned = version is not None
        publication = (
            store.publications.get(name, version, caller=caller)
            if pinned
            else store.publications.named(name, caller=caller)
        )
        choice = mind if isinstance(mind, Choice) else choose(mind, self.mind, samples=samples)
        answer = await self.ways.answer(publication, given, caller=caller, settings=self.settings(), choice=choice)
        if isinstance(answer, Replay):
            return answer
        return Replay(answer.kind, run=await self._open_runs.create(answer, caller, publication.name))

    async def drift(
        self, plan: Plan, output: JSON, *, effects: bool = False, caller: str = LOCAL
    ) -> tuple[str | None, str | None]:
        """Run a plan with the input it was recorded with, and compare what it gives.

        Args:
            plan: with its recorded input.
            output: what it gave then.
            effects: run it also where its calls may do more than read; what asks waits for approval, and is a fault.
            caller: whose run it is.

        Returns:
            (why it is not run, what is different now); (None, None): it gives the same.
        """
        return await self._publisher.drift(plan, output, effects=effects, caller=caller)

    async def verify(
        self, names: Iterable[str] = (), *, live: bool = True, effects: bool = False, caller: str = LOCAL
    ) -> list[Verdict]:
        """Look after what is published: whether its tools are there and unchanged, the plan still does what its run
        did, and, `live`, still gives what it gave.

        Args:
            names: which, each NAME or NAME@VERSION; none: all that this caller sees.
            live: run plans that only read.
            effects: run the others too.
            caller: who asks.

        Raises:
            UnknownPublicationError: nothing is published to this caller under one of the names.
        """
        return await self._publisher.verify(names, live=live, effects=effects, caller=caller)

    async def changed_tools(self, module: str) -> list[ChangedTool]:
        """The tools of a module that changed since ideas that call them were published, of every version and owner.

        Args:
            module: the module, `idea:NAME`; "": the tools of this process.

        Raises:
            ModuleError: the module is not up.
            UnknownModuleError: no module has that name.
        """
        return await self._publisher.changed_tools(module)

    def accept(self, changed: Iterable[ChangedTool], *, by: str | Decider) -> None:
        """Let published ideas mean what changed tools are now. Each version keeps what its tools were, when that was
        accepted and by whom.

        Args:
            changed: from `changed_tools`, as a person saw them.
            by: who accepts.
        """
        self._publisher.accept(changed, by=by)

    # -- runs --------------------------------------------------------------------------------------------------

    def settings(
        self,
        *,
        output_by_instance: bool = False,
        limits: ObjectLike | None = None,
        planning: Planning = "eager",
        thought_process: bool | None = None,
    ) -> Settings:
        """The settings of a run under this configuration; see `settings_under`."""
        check_object("limits", limits)
        return settings_under(
            self.configuration,
            limits,
            output_by_instance=output_by_instance,
            planning=planning,
            thought_process=thought_process,
        )

    def runs_at_work(self, caller: str = LOCAL) -> int:
        """How many runs of a caller are at work in this process: running, not waiting for somebody."""
        return self._open_runs.at_work(caller)

    async def run_plan(
        self,
        plan: PlanLike | None = None,
        *,
        calls: Sequence[ObjectLike] | None = None,
        input: ObjectLike | None = None,  # noqa: A002 - the vocabulary's word
        instances: Mapping[str, ObjectLike] | None = None,
        output: object = None,
        caller: str = LOCAL,
        title: str = "",
        planning: Planning = "eager",
        samples: bool = False,
    ) -> Run:
        """Start a plan; nothing of it runs if it is malformed, or (`lazy`) before somebody has accepted it.

            run = await bridge.run_plan({"calls": [...], "output": "†state.n"})
            run = await bridge.run_plan(calls=[...], input={"names": ["Ada"]}, output="†state.n")

        Args:
            plan: a `Plan`, or what `read_plan` reads as one; None: `calls` is given.
            calls: of the plan, where it is not given whole.
            instances: initial states by instance, likewise.
            output: a value with references, likewise.
            input: of the plan; laid over the plan's own.
            caller: who asks; others do not see the run.
            title: one line for people; empty: the plan's.
            planning: `lazy` or `eager`.
            samples: whoever asks sees to it that its client's model answers where no mind is configured: in its rooms.

        Raises:
            PlanError: it is malformed; `errors` has every fault with its call.
            SchemaError: its input schema is invalid.
            ArgumentError: an argument is of another kind, or the plan is given whole and in parts.
        """
        plan = read_given_plan(plan, calls=calls, input=input, instances=instances, output=output)
        settings = self.settings(output_by_instance=plan.output_by_instance, planning=planning)
        choice = choose(AUTO, self.mind, samples=samples)
        told = choice if choice.name == SAMPLING else None
        start = start_plan(plan, await self.offer.catalogue_of(plan, caller), settings, choice=told)
        return await self._open_runs.create(start, caller, title or plan.title)

    async def dry_run(self, plan: PlanLike, *, caller: str = LOCAL) -> dict[str, Any]:
        """What a plan would do: order, what runs in parallel, reads and writes, what is not read-only; see `dry_run`.

        Raises:
            PlanError: it is malformed.
        """
        return (await self._rehearse(read_given_plan(plan), caller)).told()

    async def draw(self, plan: PlanLike, form: Literal["mermaid", "text"] = "mermaid", *, caller: str = LOCAL) -> str:
        """A drawing of a plan: a `mermaid` flowchart, or `text`, a line for each call.

        Raises:
            PlanError: it is malformed, or there is no such form.
        """
        return (await self._rehearse(read_given_plan(plan), caller)).drawn(form)

    async def _rehearse(self, plan: Plan, caller: str) -> Rehearsal:
        catalogue = await self.offer.catalogue_of(plan, caller)
        return rehearse(plan, catalogue, self.settings(output_by_instance=plan.output_by_instance))

    # -- the loop ----------------------------------------------------------------------------------------------

    async def solve(
        self,
        task: str,
        *,
        input: ObjectLike | None = None,  # noqa: A002 - the vocabulary's word
        output: type[object] | None = None,
        output_schema: ObjectLike | None = None,
        tools: Iterable[str] | None = None,
        context: Sequence[ObjectLike | JSON] | None = None,
        limits: ObjectLike | None = None,
        mind: MindName | Choice = "auto",
        planning: Planning = "eager",
        thought_process: bool | None = None,
        caller: str = LOCAL,
    ) -> Run:
        """Start the agent loop on a task; by turns, the caller is asked for the first solution.

        Args:
            task: what to do, in words.
            input: what `†input` reads.
            output: type of the output, as `Run.result` takes it; its JSON Schema becomes the output schema.
            output_schema: JSON Schema of the output; None: text.
            tools: names or patterns of the tools to offer; None: all.
            context: more context messages, before the task. Of several states each is an instance; those without
                `_instance` get ①, ②, ... in order.
            limits: lower limits than the configured ones.
            mind: who answers, see `choose`: `auto` is the bridge's mind, else the caller, by `turns`.
            planning: `lazy`: nothing of a Solution runs before somebody has accepted it as a whole.
            thought_process: whether the mind writes its reasoning before the calls; None: as configured.
            caller: who asks; others do not see the run.

        Raises:
            PlanError: a pattern that names no tool, or a limit that is none.
            MessageError, MindUnavailableError: a context message that is none, a mind that is not there.
            ArgumentError: an argument is of another kind, or both `output` and `output_schema` are given.
        """
        check_text("task", task)
        check_type("output", output)
        if output is not None and output_schema is not None:
            raise ArgumentError("output: expected a type here or a JSON Schema in output_schema, found both")
        wanted = read_schema("output_schema", output_schema) if output is None else schema_of(output)
        data = read_object("input", input)
        choice = mind if isinstance(mind, Choice) else choose(mind, self.mind)
        given: list[JSON] = [] if data is None else [{"type": "input", "input": data}]
        lazy: list[JSON] = [{"role": "system", "content": LAZY}] if planning == "lazy" else []
        asked: JSONObject = {"role": "user", "content": task}
        said: list[JSON] = [*read_messages("context", context), *lazy, asked, *given]
        settings = self.settings(limits=limits, planning=planning, thought_process=thought_process)
        return await self._begin(said, tools, settings, choice, caller, task, wanted)

    async def _begin(
        self,
        said: list[JSON],
        tools: Iterable[str] | None,
        settings: Settings,
        choice: Choice,
        caller: str,
        title: str,
        output_schema: JSONObject | None = None,
    ) -> Run:
        messages = with_instances([normalise(message, what="the context") for message in said])
        wanted = read_names("tools", tools)
        if not self.offer.has_all(wanted):
            await self.offer.settled()
            named = chosen_tools(self.offer.known, wanted or ())
            await self.offer.reach(tool.module for tool in named)
        catalogue = self.offer.chosen(wanted, defined_tools(read_context(messages)), caller=caller)
        if wanted and not catalogue.tools:
            there = [tool.name for tool in self.offer.known]
            raise PlanError(f"tools: nothing matches {', '.join(wanted)}.{did_you_mean(wanted[0], there)}")
        start = start_solve(messages, catalogue, settings, output_schema, choice)
        return await self._open_runs.create(start, caller, title)

    async def fork(
        self,
        run_id: str,
        at: int,
        *,
        solution: ObjectLike | JSON = None,
        input: ObjectLike | None = None,  # noqa: A002 - the vocabulary's word
        caller: str = LOCAL,
    ) -> Run:
        """A run that goes on from a point of another, which stays as it is.

        The calls started before that point keep what came of them and are not run again. What asks from now on is
        what the configuration says now.

        Args:
            run_id: the parent.
            at: after which of its events, from 1, as `Run.events` gives them.
            solution: another answer to the Request of which that event is; the fork begins at that Request. Of a plan,
                whose calls are the whole answer, it begins anew.
            input: another input, whole: as if it had been this from the beginning, and the calls before had given
                what they gave.
            caller: whose run it is.

        Raises:
            UnknownRunError: this caller has no run of that id.
            ForkError: no such event, an input it does not take, or one with which other calls would have run before.
            RejectedSolutionError, PlanError, ValueMismatchError: the solution is malformed.
            SecretGivenError: the input or the solution holds a secret of the configuration.
        """
        given = read_object("input", input)
        solved = None if solution is None else normalise(solution, what="the solution")
        fork_id = await fork(
            self._open_runs, self.configuration, run_id, at, caller=caller, given=given, solution=solved
        )
        return await self.run(fork_id, caller=caller)

    def session(
        self,
        *,
        state: ObjectLike | None = None,
        input: ObjectLike | None = None,  # noqa: A002 - the vocabulary's word
        tools: Iterable[str] | None = None,
        run_id: str | None = None,
        caller: str = LOCAL,
    ) -> AbstractAsyncContextManager[Session]:
        """A run whose steps the application answers itself, call by call or in groups; see `Session`.

        Args:
            state: what `†state` reads to begin with.
            input: what `†input` reads.
            tools: as for `solve`. No mind is asked: of the limits, that on requests does not count.
            run_id: a session whose process died, to be taken up again; state, input and tools are its own then.
            caller: whose run it is; others do not see it.

        Raises:
            ArgumentError: an argument is of another kind.
        """
        began, given = read_object("state", state) or {}, read_object("input", input) or {}
        said: list[JSON] = [{"type": "state", "state": began}, {"type": "input", "input": given}]
        tools = read_names("tools", tools)
        settings = dataclasses.replace(self.settings(), requests=self.settings().calls + 1)
        by = Choice(TURNS, "an application answers each step itself")
        start = partial(self._begin, said, tools, settings, by, caller, "a session")
        return open_session(start if run_id is None else partial(self.resume, run_id, caller=caller))

    async def run(self, run_id: str, *, caller: str = LOCAL) -> Run:
        """A run of this caller: the one at work here, or one taken up again from its journal.

        Raises:
            UnknownRunError: this caller has no run of that id.
            ArgumentError: the id is not text.
        """
        check_text("run_id", run_id)
        run = await self.patiently(lambda: self._open_runs.get(run_id, caller))
        await self._open_runs.left_by_driver(run)
        return run

    async def patiently(self, call: Callable[[], T]) -> T:
        """Call a method that writes into the store; again, where another program keeps it locked or the disk fails.

            await bridge.patiently(lambda: run.submit(0, solution))

        On the event loop nothing waits for that by itself: `Run.submit`, `decide`, `cancel` and `end`, `publish` and
        the methods of the store raise a `StoreBusyError`, `StoreFullError` or `StoreAccessError` at once, and have done
        nothing.

        Raises:
            StoreError: the store could not be written for 5 seconds.
            Exception: what the call raised.
        """
        # The store of a bridge that is not open waits by itself.
        return call() if self._writer is None else await self._writer.patiently(call)

    async def resume(self, run_id: str, *, caller: str | None = None) -> Run:
        """Take a run up again whose process died, or that was set aside, and go on with it here; see `Runs.resume` and
        what it raises. Where only a heartbeat can show whether its driver is alive, that is waited for.
        """
        return await self._open_runs.resume_when_left(run_id, caller)

    async def cancel(self, run_id: str, reason: str, *, caller: str | None = None) -> Run:
        """End a run wherever it is at work; see `Runs.cancel` and what it raises."""
        check_text("run_id", run_id)
        return await self._open_runs.cancel(run_id, caller, reason)

    async def decide(self, run: Run, approval: str, decision: Decision) -> None:
        """Settle a pending approval of a run as `Run.decide` does, also where another process is at work on the run:
        that one is asked to take the decision.

        Raises:
            DecisionError, FinishedRunError: see `Run.decide`.
            InterruptedRunError: the other process does not answer; nothing is decided.
        """
        await self._open_runs.decide(run, approval, decision)

    async def recover_runs(
        self, tell: Tell, taken_up: Callable[[Run], None] | None = None, *, keep: bool = False
    ) -> None:
        """Take up every run that was at work when its process died; see `Recovery`. Returns when none is at work; with
        `keep` never: it takes up within seconds what any process leaves behind from then on.
        """
        recovery = Recovery(self.store, self._open_runs, self.fingerprint, tell, self.secrets.mask, taken_up)
        await (recovery.keep() if keep else recovery.run())

    def runs(self, *, caller: str = LOCAL, limit: int = 20) -> list[RunSummary]:
        """The caller's latest runs, newest first.

        A run whose process has ended in the middle of it is `interrupted`, with the reason; `run` takes it up.
        """
        return self._open_runs.latest(caller, limit)
