"""The bridge, which runs plans and the agent loop with a toolbox and the configured servers.

An application opens a `Bridge`. It owns the store, the servers and the runs of its process, and
passes each call to `Offer` (the tools), `Runs`, `Publisher` or `Ways` (calls to published ideas).
"""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypedDict, TypeVar, Unpack, overload

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from ideabridge.bridge import checking
from ideabridge.bridge.arguments import (
    check_object,
    check_parts,
    check_text,
    check_type,
    read_given_plan,
    read_messages,
    read_names,
    read_object,
    read_objects,
    read_schema,
)
from ideabridge.bridge.configuration import Configuration, fingerprint, module_fingerprint
from ideabridge.bridge.configuration_change import (
    ConfigurationChange,
    applicable,
    change_between,
)
from ideabridge.bridge.context.messages import Handlers, read_context, title_of, with_instances
from ideabridge.bridge.context.mind import TURNS, Mind
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.context.shown import read_shown
from ideabridge.bridge.driving.notices import Notices
from ideabridge.bridge.driving.queue import Queue, Role
from ideabridge.bridge.errors import PlanError, PublicationError
from ideabridge.bridge.history.host_logs import HostLogs
from ideabridge.bridge.history.importer import HistoryImport
from ideabridge.bridge.lifting.choices import read_choices
from ideabridge.bridge.lifting.draft import PlanDraft
from ideabridge.bridge.lifting.function import read_function
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.event import APPROVER, Decider, decider_of
from ideabridge.bridge.loop.policy import ApprovalSetting, embedded_tools
from ideabridge.bridge.loop.rules_in_force import RulesInForce
from ideabridge.bridge.loop.settings import Planning, Settings
from ideabridge.bridge.loop.solution import LAZY
from ideabridge.bridge.minds.choice import AUTO, SAMPLING, Choice, MindName, choose
from ideabridge.bridge.minds.function import MindFunction, as_mind
from ideabridge.bridge.minds.model import ModelMind
from ideabridge.bridge.modules.modules import Modules, stored_values
from ideabridge.bridge.modules.settings import StoredValues, learn_secrets, secrets_named
from ideabridge.bridge.offer.defined_tools import defined_tools, named_in_messages
from ideabridge.bridge.offer.module_lists import ModuleLists
from ideabridge.bridge.offer.offer import Offer
from ideabridge.bridge.offer.task_tools import TaskTools
from ideabridge.bridge.plan import Plan, PlanLike
from ideabridge.bridge.profiles import Profiles
from ideabridge.bridge.programs.sandbox import Sandbox
from ideabridge.bridge.publishing.drafting import drafted
from ideabridge.bridge.publishing.idea_tools import hints_now, idea_tool
from ideabridge.bridge.publishing.importing import SavedIdea
from ideabridge.bridge.publishing.program_answer import ProgramAnswer
from ideabridge.bridge.publishing.program_request import ProgramRequest, ToolWords
from ideabridge.bridge.publishing.publish_request import PublishRequest, program_to_publish
from ideabridge.bridge.publishing.publisher import Publisher
from ideabridge.bridge.publishing.saving import Saver
from ideabridge.bridge.publishing.suggestions import Suggestion, suggest
from ideabridge.bridge.publishing.teaching import Teaching
from ideabridge.bridge.publishing.verify import Verdict
from ideabridge.bridge.publishing.written import written_document
from ideabridge.bridge.runs.admitted_ideas import AdmittedIdeas
from ideabridge.bridge.runs.direct import DirectSessions
from ideabridge.bridge.runs.executor import Executor
from ideabridge.bridge.runs.forks import fork
from ideabridge.bridge.runs.people import Approver, Decision
from ideabridge.bridge.runs.pins import ChangedTool
from ideabridge.bridge.runs.recovery import Recovery, Tell
from ideabridge.bridge.runs.replay import Replay
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.runs.runs import ListedRun, Runs
from ideabridge.bridge.runs.services import InForce, Services
from ideabridge.bridge.runs.session import Session, open_session
from ideabridge.bridge.runs.starts import settings_under, start_solve
from ideabridge.bridge.runs.values import schema_of, typed
from ideabridge.bridge.runs.worker import Worker
from ideabridge.bridge.screen import Screen
from ideabridge.bridge.secrets import Secrets
from ideabridge.bridge.standing_rules import StandingRules
from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.idea import Answer, Publication
from ideabridge.bridge.store.leaks import check_leaks
from ideabridge.bridge.store.portable import request_of
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import LOCAL, Viewer
from ideabridge.bridge.store.writer import KEEPS_TRYING_SECONDS, Writer
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import JSON, JSONObject, ObjectLike, normalise
from ideabridge.tools.errors import ArgumentError, ToolFileError
from ideabridge.tools.names import printable_line
from ideabridge.tools.tool import Tool
from ideabridge.tools.tool_files import load_tool_file
from ideabridge.tools.toolbox import Toolbox

TOKEN_VARIABLE: Final = "IDEABRIDGE_TOKEN"  # noqa: S105 - the name of the variable, not a token
"""The environment variable with the bearer token that the HTTP server requires."""

_KEYRING_SECONDS: Final = 2.0
"""Time, in seconds, for which the bridge waits for the keyring when it starts. The keyring might
itself be waiting for a person.
"""

T = TypeVar("T")


class CallOptions(TypedDict, total=False):
    """The options of a call that is made without a session.

    Attributes:
        input: the value of `†input`.
        state: the initial value of `†state`.
        caller: the owner of the run.
    """

    input: ObjectLike | None
    state: ObjectLike | None
    caller: str


logger: Final = logging.getLogger(__name__)


class Bridge:
    """Runs plans and the agent loop. It owns the store, the servers, and the runs of this
    process.

    Args:
        configuration: the content of `ideabridge.json`, or None for the defaults. Tool files that
            cannot be loaded are left out. In this case, a warning is logged, and calls to their
            tools fail with the reason.
        toolbox: the caller's tools, in addition to the built-in tools and the tools from the
            configured tool files. Calls to the caller's tools run without asking, unless the bridge
            has an approver or the configuration's `approval` says otherwise.
        store: a path, or an open store, which the bridge does not close, or None for the configured
            store (a store in memory if none is configured).
        handlers: handlers for the caller's message types. The bridge adds the handlers of the tool
            files and the toolbox to them, without replacing any.
        mind: answers the Requests of `solve`. A `Mind`, or a function that takes a Request and
            returns the Solution. If None, the configured model answers or, without one, the caller
            answers turn by turn.
        approver: a coroutine function that decides on calls that ask for approval. If None, such a
            call waits for `Run.decide`.
        on_tools_changed: called after the tools of a server have changed.
        lease_seconds: the time, in seconds, for which a run stays reserved for this process after
            the process has stopped responding. If None, 15 seconds.
        role: `alone` drives its own runs; `front` leaves them to workers; `worker` drives queued
            runs, through the method `worker`.
        only: the names of the servers to run in this process, or None for all. A worker takes only
            runs that need no other servers.
        standing_rules: whether tools that people have allowed *always* run without a question. The
            server and the commands of ideabridge set this. A program decides for itself.
        lender: an open bridge in this process whose servers this bridge also uses, or None. This
            bridge uses the lender's servers that both configurations start in exactly the same way,
            so that each server starts only once. Close this bridge before its lender.

    Attributes:
        session_begun: a function that returns the time at which the client of the current request
            connected, by `time.monotonic`, or None if the time is not known. Rules that became
            looser after that time do not apply to the request.

    Raises:
        ArgumentError: an argument has the wrong type.
        ModelSetupError: pydantic-ai is not installed.
    """

    def __init__(
        self,
        configuration: Configuration | None = None,
        *,
        toolbox: Toolbox | None = None,
        store: Store | Path | str | None = None,
        handlers: Handlers | None = None,
        mind: Mind | MindFunction | None = None,
        approver: Approver | None = None,
        on_tools_changed: Callable[[], None] | None = None,
        lease_seconds: float | None = None,
        role: Role = "alone",
        only: Collection[str] | None = None,
        standing_rules: bool = False,
        lender: Bridge | None = None,
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
        if toolbox is not None and approver is None:
            # A program that passes its own tools trusts them, unless it also passes an approver,
            # because then it wants calls to be approved.
            self.configuration = self.configuration.model_copy(
                update={"embedded": embedded_tools(toolbox)}
            )

        self.handlers = handlers or Handlers()
        self.secrets = Secrets()
        model = self.configuration.model
        self.mind = as_mind(mind) or (None if model is None else ModelMind(model, self.secrets))
        self.approver = approver
        self._file_tools = self._load_tool_files()
        self._program_tools = Toolbox()
        if toolbox is not None:
            self._program_tools.update(toolbox)

        self.toolbox = builtin_toolbox()
        self.toolbox.become(self._all_tools())
        self.handlers.add_missing(self.toolbox.handlers)
        self._role: Role = role
        current = self.configuration if only is None else self.configuration.with_only(only)
        self._lender = lender
        self.modules = Modules(current, secrets=self.secrets, on_change=self._on_change)
        if lender is not None:
            self.modules.borrow(lender.modules, self._borrowed(current))
        self.fingerprint = fingerprint(self.configuration)
        self._store: Store | None = store if isinstance(store, Store) else None
        if isinstance(store, Store):
            self._path = ":memory:"
        else:
            self._path = store or self.configuration.store or ":memory:"

        self._on_tools_changed = on_tools_changed
        self._lease_seconds = lease_seconds
        self._only = only
        self._has_standing_rules = standing_rules
        self.standing_rules: StandingRules | None = None
        self._rules = RulesInForce(self.configuration.approval_setting, time.monotonic)
        self.session_begun: Callable[[], float | None] = lambda: None
        self._stack = AsyncExitStack()
        self._group: TaskGroup | None = None
        self._runs: Runs | None = None
        self._teaching: Teaching | None = None
        self._writer: Writer | None = None
        self._lists: ModuleLists | None = None
        self.offer = Offer(
            self.toolbox, self.modules, self._idea_tool, self._idea_names, self.configuration
        )
        self.profiles = Profiles(self.configuration)

    def _load_tool_files(self) -> dict[str, Toolbox]:
        """Load the configured tool files, and return their tools by path.

        A file that cannot be loaded is left out and listed in the configuration's `tool_faults`.
        """
        loaded: dict[str, Toolbox] = {}
        faults: list[str] = []
        for file in self.configuration.tools:
            try:
                loaded[file] = load_tool_file(file, self.configuration.digest_of(file))
            except ToolFileError as error:
                faults.append(printable_line(str(error)))
                logger.warning("a tool file was not loaded: %s", faults[-1])

        if faults:
            self.configuration = self.configuration.model_copy(
                update={"tool_faults": tuple(faults)}
            )

        return loaded

    def _all_tools(self) -> Toolbox:
        """Return the built-in tools, the tools from tool files, and the program's tools. A later
        tool replaces an earlier tool with the same name.
        """
        toolbox = builtin_toolbox()
        for file in self.configuration.tools:
            if file in self._file_tools:
                toolbox.update(self._file_tools[file])

        toolbox.update(self._program_tools)
        return toolbox

    def add_tools(self, toolbox: Toolbox) -> None:
        """Add tools whose calls ask for approval, like those of tools from tool files."""
        self._program_tools.update(toolbox)
        self.toolbox.update(toolbox)

    @property
    def loaded_tool_files(self) -> list[str]:
        """The paths of the configured tool files that were loaded."""
        return [file for file in self.configuration.tools if file in self._file_tools]

    async def reconfigure(
        self,
        configuration: Configuration,
        tools: Mapping[str, Toolbox] | None = None,
        renewed: Collection[str] = (),
    ) -> ConfigurationChange:
        """Switch to another configuration while runs and calls are in progress.

        Servers whose entries differ are started, stopped or replaced. A running call ends on the
        server that it was sent to. Settings that take effect only at the next start do not change
        (see `applicable`). Stricter rules apply immediately to everything that has not run yet.
        Looser rules apply to clients that connect from now on; see `session_begun`.

        Args:
            configuration: the new configuration.
            tools: the tools from the tool files that have been reloaded, keyed by path. Other files
                keep their tools.
            renewed: the servers that need a new process even if their entries are the same, because
                the value of a stored secret has changed.

        Raises:
            ConfigurationError: this process runs only some servers, and one of them is not in the
                new configuration.
        """
        change = change_between(self.configuration, configuration, renewed)
        configuration = applicable(self.configuration, configuration)
        current = configuration if self._only is None else configuration.with_only(self._only)

        self.configuration = configuration
        self.fingerprint = fingerprint(configuration)
        self._learn_secrets()
        self._follow_tool_files(tools or {})
        self._follow_modules(current, change)
        self.offer.follow(configuration)
        if self.standing_rules is not None:
            self.standing_rules.follow(configuration)

        self._rules.change(configuration.approval_setting)
        await self._open_runs.follow_configuration(configuration)
        if self._on_tools_changed is not None:
            self._on_tools_changed()

        return change

    async def renew(self, server: str) -> None:
        """Reconnect to a server, for example after a person has signed out of it. Its current
        connections, including those of users, accept no new calls and end after their last call.

        Args:
            server: the name of a server of this bridge.
        """
        lender = self._lender
        if lender is not None and server in self._borrowed(self.configuration):
            await lender.renew(server)
        else:
            await self.reconfigure(self.configuration, renewed=[server])

    def _follow_tool_files(self, tools: Mapping[str, Toolbox]) -> None:
        configured = {*self.configuration.tools}
        current = {**self._file_tools, **tools}
        self._file_tools = {file: current[file] for file in current if file in configured}
        before = dict(self.toolbox.handlers)
        self.toolbox.become(self._all_tools())
        self.handlers.replace(before, self.toolbox.handlers)

    def _follow_modules(self, current: Configuration, change: ConfigurationChange) -> None:
        replaced = change.servers_to("start", "stop", "replace")
        created = self.modules.change(current, replaced, self._borrowed(current))
        if self._lists is not None:
            self._lists.follow(current, [module.name for module in created])

        if self._shares_limits:
            self._share_limits()
        self.modules.connect(created)

    def _borrowed(self, current: Configuration) -> list[str]:
        """Return the names of the servers that this bridge borrows from the lender."""
        if self._lender is None:
            return []
        change = change_between(self._lender.configuration, current)
        present = {*self._lender.modules.names} & {*current.enabled_modules}
        return [name for name in change.servers_to("keep") if name in present]

    @property
    def _shares_limits(self) -> bool:
        """True if several processes count their calls to a server against one shared limit."""
        return self.store.notifier.can_notify or self._role != "alone"

    def _share_limits(self) -> None:
        self.modules.share_limits(
            self._open_runs.shared_calls.place, partial(module_fingerprint, self.configuration)
        )

    def _idea_tool(self, module: str, caller: str) -> Tool | None:
        return idea_tool(self.store, module, caller, self.offer.catalogue)

    def _idea_names(self, caller: str) -> list[str]:
        return self.store.publications.names_by_use(caller)

    # -- opening and closing -----------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._store is None:
            self._store = Store.open(self._path, durability=self.configuration.durability)
            self._stack.callback(self._store.close)

        self._store.publications.admits = AdmittedIdeas(self._store, self.offer).admits
        # Register the secrets first, because runs can already write to the store while servers are
        # still connecting.
        self._learn_secrets()
        await self._learn_stored_secrets()
        self._lists = ModuleLists(self.configuration, self.modules, self._store)
        self._lists.recall(self.modules.own_names)
        self.offer.forget()
        self.modules.identify_store = self._store.settings.sign_in_key
        self.modules.quotes = self._has_one_user
        self.modules.is_needed = self._needs
        await self._stack.enter_async_context(self.modules)
        if isinstance(self.mind, ModelMind):
            await self._stack.enter_async_context(self.mind)

        self._stack.callback(
            lambda: self._runs.registry.retire() if self._runs is not None else None
        )
        # Enter the writer before the runs' task group, so that it closes later and still performs
        # the last writes of the runs.
        self._writer = self._store.writer()
        await self._stack.enter_async_context(self._writer)
        self._group = await self._stack.enter_async_context(anyio.create_task_group())
        self.notices = await self._stack.enter_async_context(Notices(self._store))
        limits = self.configuration.limits
        mask = self.secrets.mask
        redact = self.secrets.redact
        self._teaching = Teaching(self._store)
        if self._has_standing_rules:
            self.standing_rules = StandingRules(self.configuration, self._store)

        services = Services(
            store=self._store,
            writer=self._writer,
            group=self._group,
            notices=self.notices,
            queue=Queue(self._store, self._role),
            executor=Executor(
                self.toolbox,
                self.modules,
                mask=mask,
                redact=redact,
                result_bytes=limits.result_bytes,
            ),
            sandbox=Sandbox(lambda caller: self.offer.to(caller).missing.absent()),
            offer=self.offer,
            screen=Screen(self.secrets),
            handlers=self.handlers,
            in_force=InForce(self.configuration),
            mind=self.mind,
            approver=self.approver,
            standing_rules=self.standing_rules,
        )
        self._runs = Runs(services, run_bytes=limits.run_bytes, lease_seconds=self._lease_seconds)
        for task in (
            self._runs.heartbeat,
            self._runs.control.listen,
            self._runs.following.run,
            self._runs.shared_calls.run,
        ):
            self._group.start_soon(task)

        if self._shares_limits:
            self._share_limits()

        return self

    def _has_one_user(self) -> bool:
        """Return whether the bridge has only one user.

        Errors and notes can then quote the output of servers. With several users, a quote could
        contain another user's arguments.
        """
        try:
            return not self.store.users.exist()
        except StoreError:
            return False

    def _learn_secrets(self) -> None:
        """Register every secret in the configuration, and the server's token, even if the servers
        are not running.
        """
        self.secrets.add(TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE, ""), certain=True)
        config = self.configuration
        if config.notify is not None and config.notify.webhook is not None:
            # The address of a webhook is a secret, because anyone who knows it can send messages to
            # it.
            self.secrets.add("notify.webhook", config.notify.webhook, certain=True)

        learn_secrets(
            config.modules,
            self.secrets,
            folder_of=config.folder_of,
            variables_of=config.variables_of,
        )

    async def _learn_stored_secrets(self) -> None:
        """Register every stored secret that the configuration names, if the keyring answers soon.
        Otherwise, each secret is registered when its server starts.
        """
        modules = self.configuration.modules
        names = [name for name, entry in modules.items() if secrets_named(entry)]
        if not names:
            return

        def read() -> list[StoredValues]:
            return [stored_values(self.configuration, name) for name in names]

        with anyio.move_on_after(_KEYRING_SECONDS):
            for values in await anyio.to_thread.run_sync(read, abandon_on_cancel=True):
                for name, value in values.items():
                    if isinstance(value, str):
                        self.secrets.add(name, value, certain=True)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        # This ends the running tasks. The journals remain, so the runs can be resumed.
        if self._group is not None:
            self._group.cancel_scope.cancel()

        if self._runs is not None:
            self._runs.registry.release()
            self._runs.services.sandbox.close()

        if self._teaching is not None:
            self._teaching.learn_at_the_end()

        if isinstance(error, Exception):
            # Do not pass the caller's error to the task group, which would wrap it in an
            # ExceptionGroup.
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
    def obstacle(self) -> StoreError | None:
        """The error that currently keeps the bridge from writing to the store, or None."""
        return None if self._writer is None else self._writer.obstacle

    @property
    def _open_runs(self) -> Runs:
        if self._runs is None:
            raise RuntimeError("the bridge is not open; use `async with Bridge(...)`")
        return self._runs

    @property
    def executor(self) -> Executor:
        """The executor, which makes the calls for all runs in this process."""
        return self._open_runs.services.executor

    @property
    def publisher(self) -> Publisher:
        """The publisher, which also lets minds write programs for recorded runs
        (`Publisher.distill`).
        """
        own = (self.store, self.offer, self.modules, self.configuration, Screen(self.secrets))
        return Publisher(self, *own, lambda: self._open_runs.services.sandbox)

    @property
    def saver(self) -> Saver:
        """The saver, which turns ideas without a finished run into tools."""
        return Saver(self.publisher)

    @property
    def direct_sessions(self) -> DirectSessions:
        """The sessions of direct calls, which clients make one by one, without a plan."""
        return DirectSessions(
            self.store,
            self._writer,
            Screen(self.secrets),
            self.settings,
            self.fingerprint,
            self._idea_tool,
        )

    # -- tools -------------------------------------------------------------------------------------

    def _on_change(self, module: str) -> None:
        self.offer.forget()
        if self._lists is not None:
            self._lists.keep(module)
        if self._on_tools_changed is not None:
            self._on_tools_changed()

    def _needs(self, module: str) -> bool:
        """Return whether an active run has called a server and might call it again."""
        return self._runs is not None and self._runs.registry.need(module)

    def tools(self) -> list[Tool]:
        """Return every tool in the toolbox, of the servers that are up, and of the servers that
        start on first use.
        """
        return self.offer.catalogue.tools

    def hints(self, publication: Publication, *, caller: str = LOCAL) -> JSONObject:
        """Return the MCP behaviour hints for a published idea, given the current tools; see
        `hints_now`.
        """
        return hints_now(self.store, publication, caller, self.offer.known_catalogue)

    def why_not_here(self, publication: Publication, *, caller: str = LOCAL) -> str | None:
        """Return why a caller cannot call a published idea in this process, or None if it can.

        The reason, such as "needs the server 'git', which is not configured here", does not depend
        on which servers are up.
        """
        return self._open_runs.ways.why_not_here(publication, caller)

    def observed(self, tool: Tool, *, caller: str = LOCAL) -> JSONObject | None:
        """Return the shape that a tool's results had in the caller's runs; see `Observed.of`."""
        return self._open_runs.observed.of(caller, tool)

    # -- ideas and publications --------------------------------------------------------------------

    def export_idea(self, ref: str, *, caller: Viewer = LOCAL, results: bool = False) -> JSONObject:
        """Return an idea as a portable document, with its publication if `ref` is a name.

        Args:
            ref: as in `Ideas.get`.
            caller: the user who makes the request. An idea of another caller counts as unknown
                unless it is shared with this caller.
            results: whether to include values from the results of calls. Results can be private, so
                by default the ideas of later Requests omit them. Such a document lists the omitted
                values in `left_out`, has its own id, and names the `original`.

        Raises:
            UnknownIdeaError, AmbiguousIdeaError: no idea has this name, or several ideas have it.
            SecretInIdeaError: the idea contains a configured secret, or text that has the form of a
                well-known kind of secret.
        """
        self._learn_secrets()
        return self.store.export_idea(ref, self.secrets.found_in, caller=caller, results=results)

    def request_of(self, ref: str, *, caller: Viewer = LOCAL) -> Request:
        """Return the Request that an idea answers, with the messages that its mind received.

        Args:
            ref: as in `Ideas.get`.
            caller: the user who makes the request. Results from the runs of other callers are left
                out.

        Raises:
            UnknownIdeaError, AmbiguousIdeaError: no idea has this name, or several ideas have it.
            MessageError: the Request has a message whose type is not registered with this bridge.
        """
        return request_of(self.store.ideas.get(ref, caller=caller).idea, self.handlers)

    async def import_idea(
        self,
        document: JSON,
        *,
        publish: bool = False,
        caller: str = LOCAL,
        edited: bool = False,
        replace: Collection[str] = (),
    ) -> SavedIdea:
        """Save an exported idea. If `publish` is set, publish the idea as the next version of its
        name.

        The annotations of the publication come from the tools of this bridge, not from the
        document. If this bridge has every tool that the plan calls, the plan is checked against the
        schemas of these tools.

        Args:
            document: a result of `export_idea`.
            publish: whether to publish the idea, too.
            caller: the user who imports the idea.
            edited: whether a person has reviewed the document. If so, the content of the document
                can differ from what was exported.
            replace: the published names, each NAME or NAME@VERSION, that the import is allowed to
                replace.

        Raises:
            IdeaDocumentError, TamperedIdeaError, NameTakenError: see `Store.import_idea`.
            NameInUseError: the name is published in this store with other content, and `replace`
                does not contain it.
            ModulesAwayError: a server that the idea calls is configured but not up.
            PublicationError: the plan would call itself, or cannot run with this bridge's tools; no
                new run can begin with the idea's guide; or the name belongs to one of this bridge's
                tools.
            SecretGivenError: the document contains a secret from the configuration.
        """
        return await self.publisher.import_idea(
            document, publish=publish, caller=caller, edited=edited, replace=replace
        )

    async def save_idea(
        self,
        document: ObjectLike | JSON,
        *,
        name: str | None = None,
        publish: bool | None = None,
        replace: Collection[str] | None = None,
        to: str | Iterable[str] | None = None,
        caller: str = LOCAL,
    ) -> SavedIdea:
        """Save an idea that was written by hand, and publish it as a tool. This method runs
        nothing.

        A published name gets a new version, unless its current version is exactly this idea.

        Args:
            document: `{"name"?, "description"?, "context", "schema"?, "solution"?, "tools"?,
                "answer"?, "tags"?}`. `context` has messages in any of the accepted forms, `schema`
                is the schema of the output or of the whole Solution, `solution` is `{"calls",
                "output"}` or `{"program"}`, and `tools` names what a mind can call. The content of
                the document decides how the tool answers: with a program, with calls or with an
                output. If the document has none of them, a mind is asked. `answer` overrides this
                decision.
            name: the name of the tool if the document has no name.
            publish: whether to publish the idea as a tool. If None, the idea is published if it has
                a name.
            replace: the published names, each NAME or NAME@VERSION, that the idea is allowed to
                replace, or None for any.
            to: the audience, as in `publish`.
            caller: the user who saves the idea.

        Raises:
            IdeaDocumentError: the document is malformed; the message says where, and
                what was expected.
            MessageError, SchemaError, ValueMismatchError: a message or a schema is malformed, or a
                value does not satisfy its schema.
            PublicationError: the idea cannot answer in the way that `answer` says, has no name,
                would call itself, or cannot run with this bridge's tools.
            ModulesAwayError: a server that the idea calls is configured but not up.
            NameInUseError: the name is published with other content, and `replace` does not contain
                it.
            PublicationNameError: see `Publisher.check_free`.
            SecretGivenError: the document contains a secret from the configuration.
        """
        return await self.saver.save(
            document, name=name, publish=publish, replace=replace, to=to, caller=caller
        )

    def written_idea(self, ref: str, *, caller: Viewer = LOCAL) -> JSONObject | None:
        """Return the document of a published idea that was written by hand, in the form that
        `save_idea` reads, or None for any other idea.

        Raises:
            UnknownIdeaError, AmbiguousIdeaError, SecretInIdeaError: as for `export_idea`.
        """
        stored = self.store.ideas.get(ref, caller=caller)
        publication = self.store.publications.look_up(ref, caller=caller)
        if publication is None or publication.idea_id != stored.id:
            return None

        document = written_document(publication, stored.idea)
        if document is not None:
            self._learn_secrets()
            check_leaks(document, self.secrets.found_in)

        return document

    async def publish(
        self,
        ref: str,
        name: str,
        *,
        description: str | None = None,
        answer: Answer = "auto",
        parameters: ObjectLike | None = None,
        choices: ObjectLike | None = None,
        strict: bool = False,
        or_solve: bool = False,
        by: str | Decider = APPROVER,
        to: str | Iterable[str] | None = None,
        program: str | ProgramAnswer | Literal[False] | None = None,
        inputs: Sequence[JSON] | None = None,
        caller: str = LOCAL,
    ) -> Publication:
        """Wait for the servers that a run's plan calls, and then publish the run as a tool. A name
        that is already published gets a new version.

        If a run ended early (failed, stalled, at a limit, cancelled), the plan contains the calls
        that it had made. If it had made none, the tool solves the task of the run again. An idea
        that has no run in this store, because it was imported or written by hand, is published from
        its content, as with `save_idea`.

        Args:
            ref: the id of an idea, a unique prefix of such an id, a name, `name@version`, or the id
                of a run. For an idea, the run is the caller's latest run that ended with the idea.
            name: the name of the tool: `^[a-z][a-z0-9_]{0,47}$`.
            description: what the tool does, for the models that can call it.
            answer: how a call is answered: `program`, `plan`, `solve` or `recorded`. `auto` means
                the first of these that is possible.
            parameters: a person's decisions about the parameters of a plan: `{NAME: {"rename"?,
                "merge"?: NAME, "fix"?: true, "description"?, "required"?: true, "default"?, "at"?:
                [paths of constants]}}`.
            choices: a person's decisions about copied values, and other runs of the same task; see
                `read_choices`.
            strict: whether a replay asks before it uses any undetermined value, even in calls that
                only read.
            or_solve: whether a mind continues if the plan produces no output, for example because a
                value is missing.
            by: who made the choices, which the version records. A string is the name of an
                approver.
            to: the audience; see `read_audience`. None keeps the audience of a published name. A
                new name is for everybody if the local person publishes it, and otherwise only for
                the publishing caller.
            program: a program that reproduces the run and the other runs in `choices`. A
                `ProgramAnswer` also contains its author's description. False means that no program
                is wanted. For a version without a program, `report["open"]` lists the points that
                the copied values leave open, and `program_request` describes the program that would
                settle them.
            inputs: if `program` is text, the input that each run needs in addition to its own.
            caller: the user who publishes. An admin can publish a version of an idea that others
                share with them.

        Raises:
            PublicationError: the run cannot be published in this way; the message says what is
                missing.
            ProgramRefusedError: `program` is malformed or does not reproduce the runs; the message
                shows the difference. If a mind wrote the program and its text contains recorded
                values, the error is a `ConstantsOpenError`.
            NeedsPersonError: others would see the words of a mind, and `by` is not a person.
            ModulesAwayError: a server that the plan calls is not up.
            UnknownUserError: `to` names a user that does not exist.
            UnknownIdeaError, UnknownRunError: `ref` matches no idea or run of this caller.
            SecretGivenError: the name or the description contains a secret from the configuration.
            ArgumentError: `ref`, `name`, `parameters` or `choices` has the wrong type.
            PublicationNameError: see `Publisher.check_free`.
        """
        check_text("ref", ref)
        check_text("name", name)
        request = PublishRequest(
            ref,
            name,
            description=description,
            answer=answer,
            parameters=read_object("parameters", parameters) or {},
            choices=read_choices(read_object("choices", choices)),
            strict=strict,
            or_solve=or_solve,
            by=decider_of(by),
            to=to if to is None or isinstance(to, str) else tuple(to),
            program=program_to_publish(program, inputs),
            caller=caller,
        )
        return await self.saver.publish_run(request)

    async def program_request(
        self, *refs: str, name: str = "", description: str | None = None, caller: str = LOCAL
    ) -> ProgramRequest:
        """Return a Request that describes runs to the author of a program for `publish`. The
        Request has at most 1,500 tokens.

        Args:
            refs: runs of the same task, each named as in `publish`. The first supplies the tool's
                parameters.
            name: the name of the tool, if it is known.
            description: what the tool does, if this is known. The description can go beyond what
                the runs show.
            caller: the owner of the runs.

        Raises:
            UnknownIdeaError, UnknownRunError: one of `refs` matches no idea or run of this caller.
            PublicationError: `refs` is empty, or a run has not ended.
        """
        if not refs:
            raise PublicationError("refs: expected at least one run")
        return await self.publisher.program_request(
            refs, caller, words=ToolWords(name, description)
        )

    def lift(
        self,
        ref: str,
        *,
        parameters: ObjectLike | None = None,
        choices: ObjectLike | None = None,
        strict: bool = False,
        caller: str = LOCAL,
    ) -> PlanDraft:
        """Return the plan that `publish` would publish; `report_of` describes it.

        Args:
            ref: as in `publish`.
            parameters: as in `publish`.
            choices: as in `publish`.
            strict: as in `publish`.
            caller: the owner of the run.

        Raises:
            PublicationError: the run cannot become a plan, or a decision does not fit the plan.
            UnknownIdeaError, UnknownRunError: `ref` matches no idea or run of this caller.
        """
        check_text("ref", ref)
        chosen = read_object("choices", choices)
        decided = read_object("parameters", parameters)
        function = read_function(self.store, ref, caller)
        return drafted(self.store, function, caller, chosen, decided, strict=strict)

    @overload
    async def call_idea(
        self,
        name: str,
        arguments: ObjectLike | None = None,
        *,
        output: type[T],
        mind: MindName | Choice = AUTO,
        caller: str = LOCAL,
        version: int | None = None,
    ) -> T: ...
    @overload
    async def call_idea(
        self,
        name: str,
        arguments: ObjectLike | None = None,
        *,
        output: None = None,
        mind: MindName | Choice = AUTO,
        caller: str = LOCAL,
        version: int | None = None,
    ) -> Any: ...
    async def call_idea(
        self,
        name: str,
        arguments: ObjectLike | None = None,
        *,
        output: type[Any] | None = None,
        mind: MindName | Choice = AUTO,
        caller: str = LOCAL,
        version: int | None = None,
    ) -> Any:
        """Call a published idea, and return its output. `start_idea` does the same, and
        returns the run.

        Args:
            name: NAME, or NAME@VERSION.
            arguments: the input of the idea.
            output: the type to return, which is a pydantic model or any type that pydantic
                supports, or None for JSON.
            mind: the mind that answers if the idea is solved again; see `choose`.
            caller: the user who makes the call. The run belongs to this user.
            version: the version, if the name does not contain it, or None for the current version.

        Raises:
            RunFailedError: the run has no output, or is waiting for a decision, which can still be
                made; see `Run.result`.
            OutputTypeError: the output does not fit the type.
            ValueMismatchError, PublicationError, PlanError, MindUnavailableError,
            UnknownPublicationError, ArgumentError: as for `start_idea`.
        """
        check_type("output", output)
        replay = await self.start_idea(name, arguments, mind=mind, caller=caller, version=version)
        value = replay.output if replay.run is None else await replay.run.result()
        return value if output is None else typed(value, output)

    async def start_idea(
        self,
        name: str,
        arguments: ObjectLike | None = None,
        *,
        mind: MindName | Choice = AUTO,
        caller: str = LOCAL,
        version: int | None = None,
        samples: bool = False,
    ) -> Replay:
        """Begin to answer a call to a published idea. Return the recorded output, or a run that
        carries out the idea's plan or solves the idea again. An idea published with `auto` runs its
        plan if it has one, and is solved again otherwise.

        Args:
            name: NAME, or NAME@VERSION.
            arguments: the input of the idea.
            mind: the mind that answers if the idea is solved again; see `choose`.
            caller: the user who makes the call. The run belongs to this user.
            version: the version, if the name does not contain it, or None for the current version.
            samples: as in `run_plan`.

        Raises:
            ValueMismatchError: the arguments do not satisfy the tool's parameters.
            PublicationError: the answer is recorded for a different input, or a tool that the idea
                was solved with is gone.
            PlanError: the plan cannot run, for example because a tool is gone.
            MindUnavailableError: the mind does not exist.
            UnknownPublicationError: nothing is published to this caller under that name.
            ArgumentError: the name is not a string, or the arguments are not an object.
        """
        store = self.store
        check_text("name", name)
        given = read_object("arguments", arguments) or {}
        if self._teaching is not None:
            await self._teaching.learn()

        if version is None:
            publication = store.publications.named(name, caller=caller)
        else:
            publication = store.publications.get(name, version, caller=caller)

        if isinstance(mind, Choice):
            choice = mind
        else:
            choice = choose(mind, self.mind, samples=samples)

        ways = self._open_runs.ways
        settings = self.settings(choice=choice, caller=caller)
        answer = await ways.answer(
            publication, given, caller=caller, settings=settings, choice=choice
        )
        if isinstance(answer, Replay):
            return answer

        run = await self._open_runs.create(answer, caller, publication.name)
        if self._teaching is not None:
            self._teaching.expect(run, publication)

        return Replay(run.way, run=run)

    async def drift(
        self, plan: Plan, output: JSON, *, effects: bool = False, caller: str = LOCAL
    ) -> tuple[str | None, str | None]:
        """Run a plan with its recorded input, and compare the output with the recorded output.

        Args:
            plan: the plan with its recorded input.
            output: the recorded output.
            effects: whether to run the plan even if its calls might do more than read. In that
                case, a call that asks for approval counts as a difference.
            caller: the owner of the run.

        Returns:
            (why the plan was not run, what is different now). Both are None if the output is the
            same.
        """
        return await self.publisher.drift(plan, output, effects=effects, caller=caller)

    async def verify(
        self,
        names: Iterable[str] = (),
        *,
        live: bool = True,
        effects: bool = False,
        caller: str = LOCAL,
    ) -> list[Verdict]:
        """Check published ideas: whether their tools exist and are unchanged, and whether each plan
        still reproduces its run.

        If `live` is set, also check whether each plan still returns the recorded output.

        Args:
            names: the ideas, each as NAME or NAME@VERSION. If empty, every idea that this caller
                can see is checked.
            live: whether to run plans whose calls only read.
            effects: whether to run the other plans, too.
            caller: the user who makes the request.

        Raises:
            UnknownPublicationError: nothing is published to this caller under one of the names.
        """
        return await self.publisher.verify(names, live=live, effects=effects, caller=caller)

    async def changed_tools(self, module: str) -> list[ChangedTool]:
        """Return a server's tools that have changed since published ideas were made with them.

        Every owner and every published version is checked.

        Args:
            module: the name of a server, `idea:NAME`, or "" for the in-process tools.

        Raises:
            ModuleError: the server is not up.
            UnknownModuleError: no server has that name.
        """
        return await self.publisher.changed_tools(module)

    def accept(self, changed: Iterable[ChangedTool], *, by: str | Decider) -> None:
        """Accept changed tools, so that published ideas can call them as they are now.

        Each version records the earlier tools, who accepted the change, and when.

        Args:
            changed: the result of `changed_tools` that a person has seen.
            by: the person who accepts the changes.
        """
        self.publisher.accept(changed, by=by)

    def suggest(self, *, least: int = 2, limit: int = 10, caller: str = LOCAL) -> list[Suggestion]:
        """Suggest tools for work that a caller did repeatedly in runs, sessions and imported
        histories.

        Args:
            least: the minimum number of repetitions.
            limit: the maximum number of suggestions.
            caller: the owner of the runs.
        """
        return suggest(self.store, caller, least=least, limit=limit)

    # -- histories ---------------------------------------------------------------------------------

    def history(
        self, host: str, *, modules: Mapping[str, str] | None = None, caller: str = LOCAL
    ) -> HistoryImport:
        """Find the logs that a host keeps on this machine. Only `HistoryImport.survey` and
        `HistoryImport.take` read them.

        Args:
            host: `claude-code`, `codex`, `copilot-cli`, `gemini-cli` or `opencode`.
            modules: the servers that have a different name in the host, keyed by the name in the
                logs.
            caller: the owner of the runs.

        Raises:
            HistoryError: the host or a server does not exist.
        """
        self._learn_secrets()
        logs = HostLogs(
            host, self.store, self.configuration.enabled_modules, caller=caller, renamed=modules
        )
        return HistoryImport(
            logs, self._write_for_long, self.configuration, self.secrets, self.offer
        )

    # -- runs --------------------------------------------------------------------------------------

    def settings(
        self,
        *,
        output_by_instance: bool = False,
        limits: ObjectLike | None = None,
        planning: Planning = "eager",
        thought_process: bool | None = None,
        shown: Mapping[str, int] | None = None,
        choice: Choice | None = None,
        caller: str = LOCAL,
    ) -> Settings:
        """Return the settings for a caller's run under this configuration; see `settings_under`.

        If the mind that `choice` names has its own limits on how much it is shown, these limits
        override the configured limits.
        """
        check_object("limits", limits)
        asked = {} if shown is None else read_shown(shown)
        resolved = settings_under(
            self.configuration,
            limits,
            output_by_instance=output_by_instance,
            planning=planning,
            thought_process=thought_process,
            shown=asked if choice is None else {**choice.shown, **asked},
        )
        return dataclasses.replace(
            resolved, approval=self.approval, activities=self.offer.to(caller).activities
        )

    @property
    def approval(self) -> ApprovalSetting:
        """The approval rules for runs and direct calls that start now.

        These are the configured rules, combined with the rules that were in force when the client
        connected. For each call, the strictest rule applies.
        """
        return self._rules.since(self.session_begun())

    def runs_at_work(self, caller: Viewer = LOCAL) -> int:
        """Return the number of a caller's runs that this process currently drives. Runs that are
        waiting for someone do not count.
        """
        return self._open_runs.registry.at_work(caller)

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
        """Start a plan. If the plan is malformed, nothing runs. A `lazy` plan does not run until
        someone has accepted it.

            run = await bridge.run_plan({"calls": [...], "output": "†state.n"})
            run = await bridge.run_plan(calls=[...], input={"names": ["Ada"]}, output="†state.n")

        Args:
            plan: a `Plan`, a mapping that `read_plan` accepts, or None if the plan consists of the
                following parts.
            calls: the calls, if `plan` is None.
            instances: initial states keyed by instance, if `plan` is None.
            output: a value with references, if `plan` is None.
            input: the input. Its properties override those of the plan's input.
            caller: the user who makes the request. Other callers do not see the run.
            title: one line for people to read. If empty, the plan's title.
            planning: `lazy` or `eager`.
            samples: whether the caller's client has a model. If no mind is configured, this model
                answers in the run's rooms.

        Raises:
            PlanError: the plan is malformed; `errors` lists every fault with its call.
            SchemaError: the input schema is invalid.
            ArgumentError: an argument has the wrong type, or both a plan and its parts are passed.
        """
        plan = read_given_plan(plan, calls=calls, input=input, instances=instances, output=output)
        settings = self.settings(
            output_by_instance=plan.output_by_instance, planning=planning, caller=caller
        )
        choice = choose(AUTO, self.mind, samples=samples)
        # Each room chooses its mind when it opens. The only information that it needs for this is
        # whether the client has a model.
        rooms_choice = choice if choice.name == SAMPLING else None
        try:
            start = await self._open_runs.plan_starts.start(plan, settings, rooms_choice, caller)
        except PlanError:
            # Look for secrets before reporting the errors, because they quote values, and a quoted
            # value might be a secret.
            self._open_runs.services.screen.check(
                {"calls": plan.calls, "output": plan.output, "context": plan.context()}
            )
            raise

        tools = start.machine.catalogue.tools
        title = title or plan.title_with(tool.name for tool in tools)
        return await self._open_runs.create(start, caller, title)

    async def run_program(
        self,
        program: str,
        *,
        input: ObjectLike | None = None,  # noqa: A002 - the vocabulary's word
        caller: str = LOCAL,
        title: str = "",
        samples: bool = False,
    ) -> Run:
        """Start a program: Python text that calls tools. The value of its last expression is the
        output.

            run = await bridge.run_program("import git; await git.git_log(repo_path=input['repo'])", input={...})

        The syntax of the program, the names of its tools and their arguments are checked before
        anything runs.

        Args:
            program: the Python text. docs/programs.md describes what it can contain.
            input: the value of `input` in the program.
            caller: the user who makes the request. Other callers do not see the run.
            title: one line for people. If empty, the names of the tools that the program can call.
            samples: as in `run_plan`.

        Raises:
            PlanError: the program is malformed, or the server that a tool belongs to is not up.
            ProgramError: the interpreter is missing.
            ArgumentError: an argument has the wrong type.
        """
        check_text("program", program)
        return await self.run_plan(
            {"program": program}, input=input or {}, caller=caller, title=title, samples=samples
        )

    async def dry_run(self, plan: PlanLike, *, caller: str = LOCAL) -> dict[str, Any]:
        """Return what a plan would do: the order of calls, which calls run in parallel, reads,
        writes, and effects. For a program, return `{"program": true, "tools": [{"tool",
        "signature", "asks"?}], "renamed": [[name, name in programs]]}` with the tools that the
        program's text names.

        Raises:
            PlanError: the plan is malformed.
        """
        plan = read_given_plan(plan)
        if plan.program is not None:
            return await self._open_runs.plan_starts.rehearse_program(
                plan, self.settings(caller=caller), caller
            )
        settings, catalogue = await self._offered(plan, caller)
        return await checking.dry_run(plan, catalogue, settings)

    async def draw(
        self, plan: PlanLike, form: Literal["mermaid", "text"] = "mermaid", *, caller: str = LOCAL
    ) -> str:
        """Draw a plan as a `mermaid` flowchart, or as `text` with one line per call.

        Raises:
            PlanError: the plan is malformed, or the form is unknown.
        """
        plan = read_given_plan(plan)
        if plan.program is not None:
            raise PlanError("a program cannot be drawn; dry_run lists its tools")
        settings, catalogue = await self._offered(plan, caller)
        return await checking.drawing(plan, catalogue, settings, form)

    async def _offered(self, plan: Plan, caller: str) -> tuple[Settings, Catalogue]:
        """Return the settings for a run of this plan, and the tools that the plan can call."""
        settings = self.settings(output_by_instance=plan.output_by_instance, caller=caller)
        return settings, await self._open_runs.plan_starts.catalogue_of(plan, settings, caller)

    # -- the loop ----------------------------------------------------------------------------------

    async def solve(
        self,
        task: str | None = None,
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
        shown: Mapping[str, int] | None = None,
        caller: str = LOCAL,
    ) -> Run:
        """Start the agent loop on a task. With the mind `turns`, the run then waits for the
        caller's first Solution.

        Args:
            task: the task in plain language, or None if the context says what to do.
            input: the value of `†input`.
            output: the type of the output, as in `Run.result`. Its JSON Schema becomes the output
                schema.
            output_schema: the JSON Schema of the output, or None for text.
            tools: names or patterns of the tools to offer, or None for all. Published ideas can
                also be offered: by a name that no tool has, by `idea:NAME`, and by patterns such as
                `*` and `idea:*`; see `TaskTools`.
            context: context messages that precede the task. If several of these messages are
                states, each state is an instance, and states without `_instance` are named ①, ②,
                ... in order.
            limits: limits that are lower than the configured limits.
            mind: the mind that answers; see `choose`. `auto` means the bridge's mind or, if the
                bridge has no mind, the caller (as `turns`).
            planning: `eager`, or `lazy` if someone must accept each Solution as a whole before any
                part of it runs.
            thought_process: whether the mind writes its reasoning before the calls, or None for the
                configured value.
            shown: the number of bytes of results that the mind sees in full: `value` for one
                result, `request` for all results in a Request. If a member is absent, the mind or
                the configuration decides.
            caller: the user who makes the request. Other callers do not see the run.

        Raises:
            PlanError: a pattern matches no tool, or a limit is unknown or invalid.
            MessageError: a context message is malformed.
            MindUnavailableError: the mind does not exist.
            ArgumentError: an argument has the wrong type, both `output` and `output_schema` are
                passed, or there is neither a task nor a context.
        """
        if task is not None:
            check_text("task", task)

        check_type("output", output)
        if output is not None and output_schema is not None:
            raise ArgumentError(
                "output and output_schema: pass a type as output or a JSON Schema as output_schema, "
                "but not both"
            )

        if output is None:
            output_form = read_schema("output_schema", output_schema)
        else:
            output_form = schema_of(output)

        data = read_object("input", input)
        choice = mind if isinstance(mind, Choice) else choose(mind, self.mind)
        given = read_messages("context", context)
        if task is None and not given:
            raise ArgumentError("task: pass a task, or a context that says what to do")

        messages: list[JSON] = [*given]
        if planning == "lazy":
            messages.append({"role": "system", "content": LAZY})

        if task is not None:
            messages.append({"role": "user", "content": task})

        if data is not None:
            messages.append({"type": "input", "input": data})

        settings = self.settings(
            limits=limits,
            planning=planning,
            thought_process=thought_process,
            shown=shown,
            choice=choice,
            caller=caller,
        )
        title = title_of(given) if task is None else task
        return await self._begin(messages, tools, settings, choice, caller, title, output_form)

    async def _begin(
        self,
        context: list[JSON],
        tools: Iterable[str] | None,
        settings: Settings,
        choice: Choice,
        caller: str,
        title: str,
        output_schema: JSONObject | None = None,
    ) -> Run:
        messages = with_instances([normalise(message, what="the context") for message in context])
        read = read_context(messages)
        patterns = read_names("tools", tools)
        named = named_in_messages(read)
        if patterns is not None:
            patterns += named

        chosen = TaskTools(self.offer, patterns, defined_tools(read), caller=caller)
        catalogue = await chosen.catalogue()
        for name in named:
            # Report an unknown name here: otherwise, it would go unnoticed if every tool is
            # offered.
            chosen.expect(name, catalogue)

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
        """Start a run that continues from a point of an earlier run. The earlier run does not
        change.

        Calls that started before this point keep their results and do not run again. The current
        configuration decides which of the later calls ask for approval.

        Args:
            run_id: the parent.
            at: the number of the event after which the fork begins. The first event of `Run.events`
                has the number 1.
            solution: a different answer to the Request that the event belongs to. The fork then
                begins at this Request. A run of a plan has only one answer, so a fork with a
                different solution starts from the beginning.
            input: a different input, which replaces the whole input of the run from the start.
                Earlier calls keep their results.
            caller: the owner of the run.

        Raises:
            UnknownRunError: this caller has no run with that id.
            ForkError: the event does not exist, the run does not accept the input, or with this
                input other calls would have run before the event.
            RejectedSolutionError, PlanError, ValueMismatchError: the solution is malformed.
            SecretGivenError: the input or the solution contains a secret from the configuration.
        """
        given = read_object("input", input)
        solved = None if solution is None else normalise(solution, what="the solution")
        fork_id = await fork(
            self._open_runs,
            self.configuration,
            run_id,
            at,
            caller=caller,
            new_input=given,
            solution=solved,
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
        """Open a run to which the application itself submits steps, as single calls or groups; see
        `Session`.

        Args:
            state: the initial value of `†state`.
            input: the value of `†input`.
            tools: as in `solve`. No mind is asked, so the limit on requests does not apply.
            run_id: the id of a session whose process has ended, to continue it with its own state,
                input and tools.
            caller: the owner of the run. Other callers do not see it.

        Raises:
            ArgumentError: an argument has the wrong type.
        """
        context: list[JSON] = [
            {"type": "state", "state": read_object("state", state) or {}},
            {"type": "input", "input": read_object("input", input) or {}},
        ]
        tools = read_names("tools", tools)
        settings = self.settings(caller=caller)
        settings = dataclasses.replace(settings, requests=settings.calls + 1, groups=True)
        choice = Choice(TURNS, "an application answers each step itself")
        start = partial(self._begin, context, tools, settings, choice, caller, "a session")
        return open_session(
            start if run_id is None else partial(self.resume, run_id, caller=caller)
        )

    # -- calls without a session -------------------------------------------------------------------

    @overload
    async def call(
        self, call: ObjectLike, *, output: type[T], **options: Unpack[CallOptions]
    ) -> T: ...
    @overload
    async def call(
        self, call: ObjectLike, *, output: None = None, **options: Unpack[CallOptions]
    ) -> Any: ...
    async def call(
        self, call: ObjectLike, *, output: type[Any] | None = None, **options: Unpack[CallOptions]
    ) -> Any:
        """Make one call, and return its value.

            price = await bridge.call({"_tool": "price", "shop": "north"}, output=float)

        The call becomes a run, which is journaled and saved as an idea. The limits and approvals of
        runs apply to it.

        Args:
            call: the call.
            output: the type of the value, which is a pydantic model or any type that pydantic
                supports, or None for JSON.
            **options: `input` is the value of `†input`, `state` the initial value of `†state`,
                `caller` the owner of the run.

        Raises:
            CallFailedError, CallDeniedError, UnknownOutcomeError, CancelledCallsError: the call has
                no value.
            RunFailedError: the call asks for approval, and the bridge has no approver.
            RejectedSolutionError, ArgumentError: the call is malformed; nothing ran.
            OutputTypeError: the value does not fit the type.
        """
        listed = read_objects("calls", [call])
        async with self._step(listed, output, options) as session:
            value = await session.run(listed[0])
        return value if output is None else typed(value, output)

    @overload
    async def all(
        self, calls: Sequence[ObjectLike], *, output: type[T], **options: Unpack[CallOptions]
    ) -> list[T]: ...
    @overload
    async def all(
        self, calls: Sequence[ObjectLike], *, output: None = None, **options: Unpack[CallOptions]
    ) -> list[Any]: ...
    async def all(
        self,
        calls: Sequence[ObjectLike],
        *,
        output: type[Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> list[Any]:
        """Make calls concurrently, all or nothing, and return their values. See `Session.run_all`
        for the details and the errors.

        Args:
            calls: the calls.
            output: the type of each value, or None for JSON.
            **options: as for `call`.

        Raises:
            RunFailedError, OutputTypeError: as for `call`.
        """
        listed = read_objects("calls", calls)
        async with self._step(listed, output, options) as session:
            values = await session.run_all(listed)
        return values if output is None else [typed(value, output) for value in values]

    @overload
    async def any(
        self, calls: Sequence[ObjectLike], *, output: type[T], **options: Unpack[CallOptions]
    ) -> T: ...
    @overload
    async def any(
        self, calls: Sequence[ObjectLike], *, output: None = None, **options: Unpack[CallOptions]
    ) -> Any: ...
    async def any(
        self,
        calls: Sequence[ObjectLike],
        *,
        output: type[Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Make alternative calls concurrently, and return the value of the first call that
        succeeds. See `Session.run_any` for details and errors.

        Args:
            calls: the calls.
            output: the type of the value, or None for JSON.
            **options: as for `call`.

        Raises:
            RunFailedError, OutputTypeError: as for `call`.
        """
        listed = read_objects("calls", calls)
        async with self._step(listed, output, options) as session:
            value = await session.run_any(listed)
        return value if output is None else typed(value, output)

    @overload
    async def race(
        self, calls: Sequence[ObjectLike], *, output: type[T], **options: Unpack[CallOptions]
    ) -> T: ...
    @overload
    async def race(
        self, calls: Sequence[ObjectLike], *, output: None = None, **options: Unpack[CallOptions]
    ) -> Any: ...
    async def race(
        self,
        calls: Sequence[ObjectLike],
        *,
        output: type[Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Make alternative calls concurrently, and return the value of the first call that ends.
        See `Session.run_race` for details and errors.

        Args:
            calls: the calls.
            output: the type of the value, or None for JSON.
            **options: as for `call`.

        Raises:
            RunFailedError, OutputTypeError: as for `call`.
        """
        listed = read_objects("calls", calls)
        async with self._step(listed, output, options) as session:
            value = await session.run_race(listed)
        return value if output is None else typed(value, output)

    def _step(
        self, calls: Sequence[JSONObject], output: object, options: CallOptions
    ) -> AbstractAsyncContextManager[Session]:
        """Open a session for a single step. The session offers only the tools that the step
        calls.
        """
        check_type("output", output)
        context: list[JSON] = [
            {"type": "state", "state": read_object("state", options.get("state")) or {}},
            {"type": "input", "input": read_object("input", options.get("input")) or {}},
        ]
        caller = options.get("caller", LOCAL)
        settings = self.settings(caller=caller)
        plan = Plan(calls=list[JSON](calls))
        choice = Choice(TURNS, "an application made the calls")

        async def start() -> Run:
            catalogue = await self._open_runs.plan_starts.catalogue_of(plan, settings, caller)
            begun = start_solve(context, catalogue, settings, None, choice)
            return await self._open_runs.create(begun, caller, plan.title)

        return open_session(start, waits=False)

    async def run(self, run_id: str, *, caller: str = LOCAL) -> Run:
        """Return a run of this caller, from memory or from its journal.

        Raises:
            UnknownRunError: this caller has no run with that id.
            ArgumentError: the id is not a string.
        """
        check_text("run_id", run_id)
        run = await self._open_runs.look_up(run_id, caller)
        await self._open_runs.control.left_by_driver(run)
        return run

    async def patiently(self, call: Callable[[], T]) -> T:
        """Call a method that writes to the store. Repeat the call while another program is holding
        the lock or the disk is failing.

            await bridge.patiently(lambda: run.submit(0, solution))

        On the event loop, `Run.submit`, `decide`, `cancel`, `end` and the methods of the store do
        not wait: they immediately raise `StoreBusyError`, `StoreFullError` or `StoreAccessError`,
        and change nothing.

        Raises:
            StoreError: no attempt to write succeeded for 5 seconds.
            Exception: any other exception that the method raised.
        """
        # While the bridge is not open, there is no writer, and the store's own methods wait.
        return call() if self._writer is None else await self._writer.patiently(call)

    async def write(self, job: Callable[[], T]) -> T:
        """Like `patiently`, but call the method in the thread that writes to the store. Use this
        for calls that might write a lot.
        """
        return job() if self._writer is None else await self._writer.perform(job)

    async def _write_for_long(self, job: Callable[[], None]) -> None:
        """Like `write`, but keep trying for as long as runs do."""
        if self._writer is None:
            job()
        else:
            await self._writer.perform(job, within=KEEPS_TRYING_SECONDS)

    async def resume(self, run_id: str, *, caller: Viewer = LOCAL) -> Run:
        """Continue a run in this process after it was set aside or its process ended.

        A process that leaves runs to workers queues it instead. If only a heartbeat can show
        whether the run's driver is alive, wait for a heartbeat. `Registry.resume` lists the errors.
        """
        return await self._open_runs.resume_when_left(run_id, caller)

    async def cancel(self, run_id: str, reason: str, *, caller: Viewer = LOCAL) -> Run:
        """End a run, whichever process drives it. `Control.cancel` lists the errors."""
        check_text("run_id", run_id)
        return await self._open_runs.control.cancel(run_id, caller, reason)

    async def decide(self, run: Run, approval: str, decision: Decision) -> None:
        """Settle a pending approval of a run as `Run.decide` does. If another process drives the
        run, ask that process to apply the decision.

        Raises:
            DecisionError, FinishedRunError: see `Run.decide`.
            InterruptedRunError: the other process does not answer, so nothing is decided.
        """
        await self._open_runs.control.decide(run, approval, decision)

    async def recover_runs(
        self, tell: Tell, taken_up: Callable[[Run], None] | None = None, *, keep: bool = False
    ) -> None:
        """Continue every run whose process ended before the run did; see `Recovery`. Return when
        none of these runs is active. If `keep` is set, this method never returns. Within seconds,
        it continues every run of this configuration that a process leaves behind.
        """
        recovery = Recovery(self.store, self._open_runs, tell, self.secrets.mask, taken_up)
        await (recovery.keep() if keep else recovery.run())

    def worker(self, most: int = 32) -> Worker:
        """Return the worker of a bridge whose `role` is `worker`. The worker's `run` drives queued
        runs, up to `most` at the same time.
        """
        if self._role != "worker" or self._runs is None:
            raise RuntimeError(
                "the bridge is not open, or is not a worker; use `async with Bridge(..., "
                'role="worker")`'
            )
        return Worker(self._open_runs, most=most, modules=self._only)

    def runs(self, *, caller: str = LOCAL, limit: int = 20) -> list[ListedRun]:
        """Return the caller's latest runs, newest first.

        A run whose process ended before the run did has the status `interrupted`, with the reason;
        `run` continues it.
        """
        return self._open_runs.latest(caller, limit)
