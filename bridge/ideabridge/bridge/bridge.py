"""Bridge: the parts put together. Runs plans and the agent loop over a toolbox and the configured modules
(DESIGN 1, 3).
"""

from __future__ import annotations

import secrets as random
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import anyio
from anyio.abc import TaskGroup

from ideabridge.bridge.configuration import Configuration, fingerprint
from ideabridge.bridge.context.handlers import Handlers
from ideabridge.bridge.context.message import read_context
from ideabridge.bridge.driver import LEASE_SECONDS, Driver, own_name
from ideabridge.bridge.errors import InterruptedRunError, PlanError, UnknownRunError
from ideabridge.bridge.ideas.idea import Idea, IdeaMeta
from ideabridge.bridge.ideas.records import Publication
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.dry_run import dry_run
from ideabridge.bridge.loop.event import Event, RunEnded, RunStarted, SolutionProposed, event_from_json
from ideabridge.bridge.loop.executor import Executor
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.request import Composer, Request
from ideabridge.bridge.loop.runner import Runner
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.modules.secrets import Secrets
from ideabridge.bridge.offer import chosen_tools, latent_keys, offered_tools
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.replay.publish import publish
from ideabridge.bridge.replay.replay import Replay, check_arguments, plan_of, recorded_answer
from ideabridge.bridge.run import Run, rejection
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import UnknownToolError
from ideabridge.tools.files import load_tool_file
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.tool import Tool
from ideabridge.tools.toolbox import Toolbox

SETTLE_SECONDS: Final = 30.0
"""How long a run waits for modules that are still connecting before it says that a tool is unknown."""


class Bridge:
    """Runs plans and the agent loop; owns the store, the modules, and the runs of this process.

    Args:
        configuration: what `ideabridge.json` holds; None: nothing is configured.
        toolbox: tools of the caller's own, besides the built-in ones and the configured tool files.
        store: a path, or an open store (which then stays open); None: the configured one, else one in memory.
        handlers: handlers of message types of the caller's own.
    """

    def __init__(
        self,
        configuration: Configuration | None = None,
        *,
        toolbox: Toolbox | None = None,
        store: Store | Path | str | None = None,
        handlers: Handlers | None = None,
        on_tools_changed: Callable[[], None] | None = None,
    ) -> None:
        self.configuration = configuration or Configuration()
        self.handlers = handlers or Handlers()
        self.toolbox = builtin_toolbox()
        for file in self.configuration.tools:
            self.toolbox.update(load_tool_file(Path(file)))
        if toolbox is not None:
            self.toolbox.update(toolbox)
        self.secrets = Secrets()
        self.modules = Modules(self.configuration, secrets=self.secrets, on_change=self._on_change)
        self.fingerprint = fingerprint(self.configuration)
        self._given_store = store
        self._store: Store | None = store if isinstance(store, Store) else None
        self._on_tools_changed = on_tools_changed
        self._group: TaskGroup | None = None
        self._stack = AsyncExitStack()
        self._runs: dict[str, Run] = {}
        self._drivers: dict[str, Driver] = {}
        self._name = own_name()
        self._offer: tuple[list[Tool], Catalogue] | None = None
        self._composer = Composer(self.handlers)
        self._executor = Executor(
            self.toolbox,
            self.modules,
            mask=self.secrets.mask,
            result_bytes=self.configuration.limits.result_bytes,
        )

    # -- life --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._store is None:
            path = self._given_store or self.configuration.store or ":memory:"
            self._store = Store.open(
                path if isinstance(path, Path | str) else ":memory:", durability=self.configuration.durability
            )
            self._stack.callback(self._store.close)
        await self._stack.enter_async_context(self.modules)
        group = await self._stack.enter_async_context(anyio.create_task_group())
        self._group = group
        group.start_soon(self._heartbeat)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        # Runs on their way end with the process; their journals stay, and they can be taken up again.
        if self._group is not None:
            self._group.cancel_scope.cancel()
        for driver in self._drivers.values():
            driver.release()
        return await self._stack.__aexit__(kind, error, trace)

    @property
    def store(self) -> Store:
        """The open store."""
        if self._store is None:
            raise RuntimeError("the bridge is not open; use `async with Bridge(...)`")
        return self._store

    async def _heartbeat(self) -> None:
        beat = LEASE_SECONDS / 5
        while True:
            await anyio.sleep(beat)
            for run_id, driver in list(self._drivers.items()):
                run = self._runs.get(run_id)
                if run is None or driver.epoch is None:
                    continue
                if not driver.renew():
                    driver.epoch = None
                    run.runner.abandon("its lease was lost to another process")
                elif run.status == "running":
                    run.active_seconds += beat
                    if run.active_seconds > run.machine.settings.wall_seconds:
                        run.runner.end_at_limit(
                            f"{run.machine.settings.wall_seconds:g} seconds, the most a run may take"
                        )

    # -- tools -------------------------------------------------------------------------------------------------

    def _on_change(self, _module: str) -> None:
        self._offer = None
        if self._on_tools_changed is not None:
            self._on_tools_changed()

    def tools(self) -> list[Tool]:
        """Every tool there is now: of the toolbox and of the modules that are up."""
        return self._offered()[0]

    def _offered(self) -> tuple[list[Tool], Catalogue]:
        if self._offer is None:
            tools = offered_tools(self.toolbox, self.modules.tools())
            self._offer = (tools, Catalogue(tools, latent_keys(self.toolbox, tools)))
        return self._offer

    async def _catalogue_for(self, calls: Iterable[JSON]) -> Catalogue:
        """The catalogue, once the modules that the calls may mean have connected or failed."""
        for call in calls:
            if not isinstance(call, dict):
                continue
            name, module = call.get("_tool"), call.get("_module")
            try:
                self._offered()[1].find(str(name), module if isinstance(module, str) else None)
            except UnknownToolError:
                await self.modules.settled(timeout=SETTLE_SECONDS)
                self._offer = None
                break
        return self._offered()[1]

    # -- runs --------------------------------------------------------------------------------------------------

    def settings(self, *, output_by_instance: bool = False, limits: JSONObject | None = None) -> Settings:
        """The settings of a run under this configuration. A caller's limits may lower the configured ones only."""
        own = self.configuration.limits
        asked = limits or {}
        unknown = [key for key in asked if key not in ("parallel_calls", "calls", "requests", "wall_seconds")]
        if unknown:
            known = ("parallel_calls", "calls", "requests", "wall_seconds")
            raise PlanError(f"limits: unknown limit {unknown[0]!r}.{did_you_mean(unknown[0], known)}")

        def lower(name: str, configured: float) -> float:
            value = asked.get(name, configured)
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise PlanError(f"limits.{name}: expected a number above 0, found {value!r}")
            return min(value, configured)

        return Settings(
            order=self.configuration.order,
            parallel_calls=max(1, int(lower("parallel_calls", own.parallel_calls))),
            calls=int(lower("calls", own.calls)),
            requests=max(1, int(lower("requests", own.requests))),
            wall_seconds=lower("wall_seconds", own.wall_seconds),
            output_by_instance=output_by_instance,
            approval=self.configuration.approval,
        )

    async def run_plan(self, plan: Plan, *, caller: str = "local", title: str = "") -> Run:
        """Start a plan; nothing of it runs if it is malformed.

        Raises:
            PlanError: it is malformed; `errors` has every fault with its call.
        """
        catalogue = await self._catalogue_for(plan.calls)
        settings = self.settings(output_by_instance=bool(plan.instances))
        machine = Machine(catalogue)
        start = self._started("plan", plan.context(), _used(catalogue, plan.calls), settings, plan.output_schema)
        calls, places = plan.expanded()
        # Checked on a machine of its own: a malformed plan leaves no run behind.
        machine.receive(start)
        errors = machine.check(calls, plan.output, places)
        if errors:
            raise PlanError(rejection(errors), [dict(error) for error in errors])
        run = self._create(machine, "plan", caller, title or plan.name or _title(plan.calls))
        run.runner.begin(start, SolutionProposed(calls, plan.output, None, places))
        return run

    async def dry_run(self, plan: Plan) -> JSONObject:
        """What a plan would do: order, what runs in parallel, reads and writes, what is not read-only.

        Raises:
            PlanError: it is malformed.
        """
        catalogue = await self._catalogue_for(plan.calls)
        machine = Machine(catalogue)
        settings = self.settings(output_by_instance=bool(plan.instances))
        machine.receive(self._started("plan", plan.context(), _used(catalogue, plan.calls), settings, None))
        calls, places = plan.expanded()
        errors = machine.check(calls, plan.output, places)
        graph = machine.checked_graph
        if errors or graph is None:
            raise PlanError(rejection(errors), [dict(error) for error in errors])
        return dry_run(graph)

    # -- ideas -------------------------------------------------------------------------------------------------

    def publish(
        self,
        ref: str,
        name: str,
        *,
        description: str | None = None,
        answer: str = "auto",
        choices: JSONObject | None = None,
        caller: str = "local",
    ) -> Publication:
        """Publish an idea, or the last idea of a run, as a tool; see `ideabridge.bridge.replay.publish`.

        Raises:
            PublicationError: it cannot be published so.
            UnknownIdeaError: there is no such idea, or the run is not this caller's.
        """
        run = self.store.run(ref)
        if run is not None and run.caller != caller:
            raise UnknownRunError(f"unknown run {ref!r}")
        catalogue = self._offered()[1]
        return publish(
            self.store, catalogue, ref, name, description=description, answer=answer, choices=choices, owner=None
        )

    async def call_idea(
        self, name: str, arguments: JSONObject, *, caller: str = "local", version: int | None = None
    ) -> Replay:
        """Answer a call of a published idea: with the recorded output, or by a run of its plan, started here.

        Raises:
            ValueMismatchError: the arguments do not satisfy the tool's parameters.
            PublicationError: recorded with another input.
            PlanError: the plan cannot run (a tool is gone, say).
            UnknownIdeaError: nothing is published under that name.
        """
        publication = self.store.publication(name, version)
        check_arguments(publication, arguments)
        if publication.answer == "recorded":
            return Replay("recorded", recorded_answer(publication, arguments))
        run = await self.run_plan(plan_of(publication, arguments), caller=caller, title=name)
        return Replay("plan", run=run)

    # -- the loop ----------------------------------------------------------------------------------------------

    async def solve(
        self,
        task: str,
        *,
        input: JSONObject | None = None,  # noqa: A002 - the vocabulary's word
        output_schema: JSONObject | None = None,
        tools: Iterable[str] | None = None,
        context: list[JSON] | None = None,
        limits: JSONObject | None = None,
        caller: str = "local",
    ) -> Run:
        """Start the agent loop on a task; by turns, the caller is asked for the first solution.

        Args:
            task: what to do, in words.
            input: what `†input` reads.
            output_schema: JSON Schema of the output; None: text.
            tools: names or patterns of the tools to offer; None: all.
            context: more context messages, before the task.
            limits: lower limits than the configured ones.
            caller: who asks; others do not see the run.

        Raises:
            PlanError: a pattern that names no tool, or a limit that is none.
            MessageError: a context message that is none.
        """
        await self.modules.settled(timeout=SETTLE_SECONDS)
        self._offer = None
        offered, _ = self._offered()
        chosen = chosen_tools(offered, tools)
        if tools is not None and not chosen:
            raise PlanError(f"tools: nothing matches {', '.join(tools)}; search_tools tells what there is")
        messages: list[JSON] = [*(context or []), {"role": "user", "content": task}]
        if input is not None:
            messages.append({"type": "input", "input": input})
        read_context(messages)
        catalogue = Catalogue(chosen, latent_keys(self.toolbox, chosen))
        machine = Machine(catalogue)
        start = self._started("solve", messages, catalogue, self.settings(limits=limits), output_schema)
        machine.receive(start)
        run = self._create(machine, "solve", caller, task)
        run.runner.begin(start)
        return run

    @staticmethod
    def _started(
        mode: str, context: list[JSON], catalogue: Catalogue, settings: Settings, output_schema: JSONObject | None
    ) -> RunStarted:
        tools, latent = catalogue.to_json()
        return RunStarted(
            "plan" if mode == "plan" else "solve", context, tools, latent, settings.to_json(), output_schema
        )

    def _create(self, machine: Machine, kind: str, caller: str, title: str) -> Run:
        run_id = f"run_{random.token_hex(8)}"
        self.store.create_run(run_id, kind=kind, caller=caller, title=title[:200], fingerprint=self.fingerprint)
        run = self._attach(run_id, caller, machine)
        self._drivers[run_id].take()
        return run

    def _attach(self, run_id: str, caller: str, machine: Machine) -> Run:
        if self._group is None:
            raise RuntimeError("the bridge is not open; use `async with Bridge(...)`")
        driver = Driver(self.store, run_id, self._name)

        def journal(events: Iterable[Event]) -> None:
            driver.journal(list(events))

        runner = Runner(
            machine,
            journal=journal,
            executor=self._executor,
            composer=self._composer,
            group=self._group,
            close_step=lambda machine, request: self._save(run, machine, request),
            rest=lambda: run.rest(),
        )
        run = Run(run_id, caller, runner, driver)
        runner.watchers.append(lambda event: self._watch(run, driver, event))
        self._runs[run_id] = run
        self._drivers[run_id] = driver
        return run

    def _watch(self, run: Run, driver: Driver, event: Event) -> None:
        if isinstance(event, RunEnded):
            output: JSONObject = (
                {"output": run.machine.output} if run.machine.has_output else {"state": run.machine.state}
            )
            summary: JSONObject = {
                **output,
                "errors": len(run.machine.errors),
                "idea": run.idea,
                "reason": event.reason,
            }
            driver.set_status(event.status, summary)
            driver.release()

    def _save(self, run: Run, machine: Machine, request: Request) -> None:
        calls, output, extra = machine.solution
        idea = Idea(request.context, request.schema, {**extra, "calls": calls, "output": output})
        ended = machine.due()
        meta = IdeaMeta(
            run=run.id,
            step=machine.step + (1 if machine.phase == "ending" else 0),
            parent=run.idea,
            mind="turns" if machine.mode == "solve" else "",
            fingerprint=self.fingerprint,
            title=self.store_title(run),
            tools=tuple(dict.fromkeys(str(call.get("_tool")) for call in calls if isinstance(call, dict))),
            outcome=(machine.status or "done") if machine.phase in ("ending", "ended") and ended else "open",
        )
        run.idea = self.store.save_idea(idea, meta)

    def store_title(self, run: Run) -> str:
        """One line that names a run for people."""
        for message in run.machine.messages:
            if message.type == "text" and isinstance(message.value, str):
                return message.value.strip().split("\n")[0][:200]
        return _title(run.machine.solution[0])

    async def run(self, run_id: str, *, caller: str = "local") -> Run:
        """A run of this caller: the one at work here, or one taken up again from its journal.

        Raises:
            UnknownRunError: there is none of that id for this caller.
        """
        record = self.store.run(run_id)
        if record is None or record.caller != caller:
            known = [one.id for one in self.store.runs(caller=caller, limit=50)]
            raise UnknownRunError(f"unknown run {run_id!r}.{did_you_mean(run_id, known)}")
        run = self._runs.get(run_id)
        if run is not None and run.is_current(record.epoch):
            return run
        return self._load(run_id, caller, record.fingerprint)

    def _load(self, run_id: str, caller: str, made_under: str) -> Run:
        events = [event_from_json(event) for _, event in self.store.events(run_id)]
        run = self._attach(run_id, caller, Machine())
        run.runner.fold(events)
        run.settle_from(events)
        record = self.store.run(run_id)
        if record is not None and record.summary is not None:
            idea = record.summary.get("idea")
            run.idea = idea if isinstance(idea, str) else None
        run.note_epoch(record.epoch if record else 0)
        if run.machine.phase == "ended" or not events:
            return run
        if made_under != self.fingerprint:
            run.runner.lost = "interrupted: the configuration has changed since it was started; start it again"
            return run
        if run.status == "running":
            try:
                self._drivers[run_id].take()
            except InterruptedRunError:
                # Another process is at work on it: what stands in the journal is what can be told here.
                return run
            run.runner.resume()
        return run

    def runs(self, *, caller: str = "local", limit: int = 20) -> list[JSONObject]:
        """The caller's latest runs, newest first: `{"run", "status", "title", "kind", "created"}`."""
        found: list[JSONObject] = []
        for record in self.store.runs(caller=caller, limit=limit):
            live = self._runs.get(record.id)
            found.append(
                {
                    "run": record.id,
                    "status": live.status if live is not None and record.status == "running" else record.status,
                    "title": record.title,
                    "kind": record.kind,
                    "created": record.created,
                }
            )
        return found


def _used(catalogue: Catalogue, calls: Iterable[JSON]) -> Catalogue:
    """The part of a catalogue that a plan's calls name: what its journal needs."""
    used: dict[tuple[str | None, str], Tool] = {}
    for call in calls:
        if isinstance(call, dict):
            module = call.get("_module")
            try:
                tool = catalogue.find(str(call.get("_tool")), module if isinstance(module, str) else None)
            except UnknownToolError:
                # The check of the plan names it, with its place.
                continue
            used[tool.key] = tool
    return Catalogue(used.values(), [key for key in catalogue.latent if key in used])


def _title(calls: Iterable[JSON]) -> str:
    names = dict.fromkeys(str(call.get("_tool")) for call in calls if isinstance(call, dict))
    return " + ".join(names)[:200] or "an empty plan"
