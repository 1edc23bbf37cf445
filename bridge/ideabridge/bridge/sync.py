"""The bridge for scripts: the same without `async` (DESIGN 1). One thread runs the loop, everything else waits for it.

from ideabridge.bridge.sync import Bridge

with Bridge() as bridge:
    print(bridge.run_plan({"calls": [...], "output": "†state.x"}))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, TypeVar, cast, overload

import anyio.to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from ideabridge.bridge.arguments import check_approver, check_type, read_given_plan
from ideabridge.bridge.bridge import Bridge as AsyncBridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.context.handlers import Handlers
from ideabridge.bridge.ideas.records import Answer, Publication
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.minds.mind import Mind
from ideabridge.bridge.people import ApprovalRequest, Approver, Decision
from ideabridge.bridge.plan import PlanLike
from ideabridge.bridge.run import Run
from ideabridge.bridge.runs import RunSummary
from ideabridge.bridge.sync_session import Session, opened
from ideabridge.tools.encoding import ObjectLike
from ideabridge.tools.tool import Tool
from ideabridge.tools.toolbox import Toolbox

T = TypeVar("T")

SyncApprover: TypeAlias = "Callable[[ApprovalRequest], Decision] | Approver"
"""Decides on one call: a function, which may take its time, or a coroutine function."""


class Bridge:
    """A bridge that waits: each call returns when its run has ended.

    Args:
        configuration, toolbox, store, handlers, mind: as for `ideabridge.bridge.Bridge`.
        approver: decides on calls that ask; None: a run that asks raises `RunFailedError`, and waits in the store.
    """

    def __init__(
        self,
        configuration: Configuration | None = None,
        *,
        toolbox: Toolbox | None = None,
        store: Store | Path | str | None = None,
        handlers: Handlers | None = None,
        mind: Mind | None = None,
        approver: SyncApprover | None = None,
    ) -> None:
        check_approver(approver)
        self._bridge = AsyncBridge(
            configuration,
            toolbox=toolbox,
            store=store,
            handlers=handlers,
            mind=mind,
            approver=None if approver is None else _waiting(approver),
        )
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal("asyncio"))
            opened = cast("AbstractContextManager[object]", self._portal.wrap_async_context_manager(self._bridge))
            stack.enter_context(opened)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._portal = None
        return self._stack.__exit__(kind, error, trace)

    def _do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._at_work.call(work)

    @property
    def _at_work(self) -> BlockingPortal:
        if self._portal is None:
            raise RuntimeError("the bridge is not open; use `with Bridge(...)`")
        return self._portal

    # -- what is told --------------------------------------------------------------------------------------------

    def tools(self) -> list[Tool]:
        """Every tool there is, once the modules have connected or failed."""

        async def work() -> list[Tool]:
            return (await self._bridge.offer.settled()).tools

        return self._do(work)

    def dry_run(self, plan: PlanLike) -> dict[str, Any]:
        """What a plan would do; see `ideabridge.bridge.Bridge.dry_run`."""
        return self._do(lambda: self._bridge.dry_run(plan))

    def draw(self, plan: PlanLike, form: Literal["mermaid", "text"] = "mermaid") -> str:
        """A drawing of a plan; see `ideabridge.bridge.Bridge.draw`."""
        return self._do(lambda: self._bridge.draw(plan, form))

    # -- what is done --------------------------------------------------------------------------------------------

    @overload
    def run_plan(self, plan: PlanLike, *, input: ObjectLike | None = None) -> Any: ...
    @overload
    def run_plan(self, plan: PlanLike, *, input: ObjectLike | None = None, output: type[T]) -> T: ...
    @overload
    def run_plan(
        self,
        *,
        calls: Sequence[ObjectLike],
        input: ObjectLike | None = None,
        instances: Mapping[str, ObjectLike] | None = None,
        output: object = None,
    ) -> Any: ...
    def run_plan(
        self,
        plan: PlanLike | None = None,
        *,
        calls: Sequence[ObjectLike] | None = None,
        input: ObjectLike | None = None,  # noqa: A002 - the vocabulary's word
        instances: Mapping[str, ObjectLike] | None = None,
        output: Any = None,
    ) -> Any:
        """Run a plan to its end.

        Args:
            plan: a `Plan`, or what `read_plan` reads as one; None: `calls` is given.
            calls: of the plan, where it is not given whole.
            instances: initial states by instance, likewise.
            input: of the plan; laid over the plan's own.
            output: of a plan that is given whole, the type of what it gives (None: JSON); else the plan's output.

        Raises:
            PlanError: it is malformed; nothing ran.
            RunFailedError, OutputTypeError: see `Run.result`.
            ArgumentError: an argument is of another kind.
        """
        part = output if plan is None else None
        model: type[Any] | None = None if plan is None else output
        check_type("output", model)
        wanted = read_given_plan(plan, calls=calls, input=input, instances=instances, output=part)

        async def work() -> object:
            return await _result(await self._bridge.run_plan(wanted), model)

        return self._do(work)

    @overload
    def solve(
        self,
        task: str,
        *,
        input: ObjectLike | None = None,
        output_schema: ObjectLike | None = None,
        tools: Iterable[str] | None = None,
        limits: ObjectLike | None = None,
        thought_process: bool | None = None,
    ) -> Any: ...
    @overload
    def solve(
        self,
        task: str,
        *,
        input: ObjectLike | None = None,
        output: type[T],
        tools: Iterable[str] | None = None,
        limits: ObjectLike | None = None,
        thought_process: bool | None = None,
    ) -> T: ...
    def solve(
        self,
        task: str,
        *,
        input: ObjectLike | None = None,  # noqa: A002 - the vocabulary's word
        output: type[Any] | None = None,
        output_schema: ObjectLike | None = None,
        tools: Iterable[str] | None = None,
        limits: ObjectLike | None = None,
        thought_process: bool | None = None,
    ) -> Any:
        """Let the bridge's mind solve a task, to its end; see `ideabridge.bridge.Bridge.solve`.

        Raises:
            PlanError, MessageError: it cannot begin.
            RunFailedError, OutputTypeError: see `Run.result`.
        """

        async def work() -> object:
            run = await self._bridge.solve(
                task,
                input=input,
                output=output,
                output_schema=output_schema,
                tools=tools,
                limits=limits,
                thought_process=thought_process,
            )
            return await _result(run, output)

        return self._do(work)

    def call_idea(self, name: str, arguments: ObjectLike, *, version: int | None = None) -> Any:
        """Call a published idea like a function; see `ideabridge.bridge.Bridge.call_idea`."""

        async def work() -> Any:
            replay = await self._bridge.call_idea(name, arguments, version=version)
            return replay.output if replay.run is None else await replay.run.result()

        return self._do(work)

    def publish(
        self,
        ref: str,
        name: str,
        *,
        description: str | None = None,
        answer: Answer = "auto",
        choices: ObjectLike | None = None,
    ) -> Publication:
        """Publish an idea, or the last idea of a run, as a tool; see `ideabridge.bridge.Bridge.publish`."""

        async def work() -> Publication:
            return await self._bridge.publish(ref, name, description=description, answer=answer, choices=choices)

        return self._do(work)

    def session(
        self,
        *,
        state: ObjectLike | None = None,
        input: ObjectLike | None = None,  # noqa: A002 - the vocabulary's word
        tools: Iterable[str] | None = None,
        run_id: str | None = None,
    ) -> AbstractContextManager[Session]:
        """A run whose steps the script answers itself, call by call or in groups; see
        `ideabridge.bridge.Bridge.session`.

            with bridge.session(state={"city": "Oslo"}) as session:
                flights, hotels = session.run_all([{"_tool": "flights", ...}, {"_tool": "hotels", ...}])
        """
        session = self._bridge.session(state=state, input=input, tools=tools, run_id=run_id)
        return opened(session, self._at_work)

    def runs(self, *, limit: int = 20) -> list[RunSummary]:
        """The latest runs, newest first."""

        async def work() -> list[RunSummary]:
            return self._bridge.runs(limit=limit)

        return self._do(work)


async def _result(run: Run, output: type[Any] | None) -> object:
    return await run.result() if output is None else await run.result(output)


def _waiting(approver: SyncApprover) -> Approver:
    async def decide(request: ApprovalRequest) -> Decision:
        if inspect.iscoroutinefunction(approver):
            return await approver(request)
        # In a thread: it may ask a person, and the other calls go on meanwhile.
        return await anyio.to_thread.run_sync(
            cast("Callable[[ApprovalRequest], Decision]", approver), request, abandon_on_cancel=True
        )

    return decide
