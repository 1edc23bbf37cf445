"""The bridge for scripts that do not use `async`. The event loop runs in a thread, and each call
blocks until its result exists.

from ideabridge.bridge.sync import Bridge

with Bridge() as bridge:
    print(bridge.run_plan({"calls": [...], "output": "†state.x"}))
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from anyio import to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from ideabridge.bridge import (
    ApprovalRequest,
    Approver,
    Configuration,
    Decision,
    Handlers,
    Mind,
    MindFunction,
    PlanLike,
    Run,
    Store,
)
from ideabridge.bridge import Bridge as AsyncBridge
from ideabridge.bridge import Session as AsyncSession
from ideabridge.bridge.arguments import check_approver, check_type
from ideabridge.bridge.context.assumption import assumption_lines, note_lines
from ideabridge.bridge.runs.values import typed
from ideabridge.tools import ObjectLike, Tool, Toolbox

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)

SyncApprover: TypeAlias = "Callable[[ApprovalRequest], Decision] | Approver"
"""A function that decides on one call: a plain function, which can block, or a coroutine
function.
"""


class _PlanParts(TypedDict, total=False):
    calls: Sequence[ObjectLike]
    input: ObjectLike | None
    instances: Mapping[str, ObjectLike] | None


class _SolveOptions(TypedDict, total=False):
    input: ObjectLike | None
    output_schema: ObjectLike | None
    tools: Iterable[str] | None
    limits: ObjectLike | None
    thought_process: bool | None
    shown: Mapping[str, int] | None


class _CallOptions(TypedDict, total=False):
    input: ObjectLike | None
    state: ObjectLike | None


class _Blocking(Generic[A]):
    """Wraps an object in the event loop's thread, and holds the portal to that thread."""

    def __init__(self, underlying: A, portal: BlockingPortal | None = None) -> None:
        self.underlying = underlying
        self._portal = portal

    @property
    def portal(self) -> BlockingPortal:
        """The portal, which calls functions in the event loop's thread."""
        if self._portal is None:
            raise RuntimeError("the bridge is not open; use `with Bridge(...)`")
        return self._portal


def _blocking(
    method: Callable[Concatenate[A, P], Awaitable[T] | T],
) -> Callable[Concatenate[_Blocking[A], P], T]:
    """Return a blocking version of an async method, with the same parameters."""

    @wraps(method)
    def call(self: _Blocking[A], *args: P.args, **kwargs: P.kwargs) -> T:
        return cast("T", self.portal.call(partial(method, self.underlying, *args, **kwargs)))

    return call


class Session(_Blocking[AsyncSession]):
    """The methods of `ideabridge.bridge.Session`, without `async`. `Bridge.session`
    opens a session.
    """

    value = _blocking(AsyncSession.value)
    run = _blocking(AsyncSession.run)
    run_all = _blocking(AsyncSession.run_all)
    run_any = _blocking(AsyncSession.run_any)
    run_race = _blocking(AsyncSession.run_race)

    @property
    def id(self) -> str:
        """The id of the run. `Bridge.session(run_id=...)` continues it."""
        return self.underlying.id

    @property
    def state(self) -> dict[str, Any]:
        """The current state."""
        return self.portal.call(lambda: self.underlying.state)


class Bridge(_Blocking[AsyncBridge]):
    """The methods of `ideabridge.bridge.Bridge`, without `async`. Methods that start a run return
    the result of the run.

    `approver` can also be a plain function, which runs in another thread. If there is no approver,
    a method raises `RunFailedError` if its run asks for approval. The run stays in the store until
    someone decides.
    """

    dry_run = _blocking(AsyncBridge.dry_run)
    draw = _blocking(AsyncBridge.draw)
    publish = _blocking(AsyncBridge.publish)
    runs = _blocking(AsyncBridge.runs)

    def __init__(
        self,
        configuration: Configuration | None = None,
        *,
        toolbox: Toolbox | None = None,
        store: Store | Path | str | None = None,
        handlers: Handlers | None = None,
        mind: Mind | MindFunction | None = None,
        approver: SyncApprover | None = None,
    ) -> None:
        check_approver(approver)
        decide = None if approver is None else _awaitable(approver)
        super().__init__(
            AsyncBridge(
                configuration,
                toolbox=toolbox,
                store=store,
                handlers=handlers,
                mind=mind,
                approver=decide,
            )
        )

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal("asyncio"))
            stack.enter_context(self._portal.wrap_async_context_manager(self.underlying))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> bool | None:
        self._portal = None
        return self._stack.__exit__(*error)

    def tools(self) -> list[Tool]:
        """Return every tool, once each server has connected or failed."""
        return self.portal.call(self.underlying.offer.settle).tools

    @overload
    def run_plan(
        self, plan: PlanLike, *, output: type[T], input: ObjectLike | None = None
    ) -> T: ...
    @overload
    def run_plan(
        self, plan: PlanLike | None = None, *, output: object = None, **parts: Unpack[_PlanParts]
    ) -> Any: ...
    def run_plan(
        self, plan: PlanLike | None = None, *, output: Any = None, **parts: Unpack[_PlanParts]
    ) -> Any:
        """Run a plan, and return its result.

        If `plan` is passed, `output` is the type of the result. If `calls` is passed, `output` is
        the output of the plan.
        """
        if plan is None:
            return self._result(partial(self.underlying.run_plan, output=output, **parts))
        check_type("output", output)
        return self._result(partial(self.underlying.run_plan, plan, **parts), output)

    @overload
    def solve(
        self, task: str | None = None, *, output: type[T], **options: Unpack[_SolveOptions]
    ) -> T: ...
    @overload
    def solve(
        self, task: str | None = None, *, output: None = None, **options: Unpack[_SolveOptions]
    ) -> Any: ...
    def solve(
        self,
        task: str | None = None,
        *,
        output: type[Any] | None = None,
        **options: Unpack[_SolveOptions],
    ) -> Any:
        """Let the bridge's mind solve a task, and return the result. `output` is the
        type of the result.
        """
        return self._result(partial(self.underlying.solve, task, output=output, **options), output)

    @overload
    def call_idea(
        self,
        name: str,
        arguments: ObjectLike | None = None,
        *,
        output: type[T],
        version: int | None = None,
    ) -> T: ...
    @overload
    def call_idea(
        self,
        name: str,
        arguments: ObjectLike | None = None,
        *,
        output: None = None,
        version: int | None = None,
    ) -> Any: ...
    def call_idea(
        self,
        name: str,
        arguments: ObjectLike | None = None,
        *,
        output: type[Any] | None = None,
        version: int | None = None,
    ) -> Any:
        """Call a published idea, and return its output; see
        `ideabridge.bridge.Bridge.call_idea`.
        """
        check_type("output", output)
        replay = self.portal.call(
            partial(self.underlying.start_idea, name, arguments, version=version)
        )
        if replay.run is not None:
            return self._result_of(replay.run, output)
        return replay.output if output is None else typed(replay.output, output)

    @overload
    def call(self, call: ObjectLike, *, output: type[T], **options: Unpack[_CallOptions]) -> T: ...
    @overload
    def call(
        self, call: ObjectLike, *, output: None = None, **options: Unpack[_CallOptions]
    ) -> Any: ...
    def call(
        self, call: ObjectLike, *, output: type[Any] | None = None, **options: Unpack[_CallOptions]
    ) -> Any:
        """Make one call, and return its value; see `ideabridge.bridge.Bridge.call`."""
        return self.portal.call(partial(self.underlying.call, call, output=output, **options))

    @overload
    def all(
        self, calls: Sequence[ObjectLike], *, output: type[T], **options: Unpack[_CallOptions]
    ) -> list[T]: ...
    @overload
    def all(
        self, calls: Sequence[ObjectLike], *, output: None = None, **options: Unpack[_CallOptions]
    ) -> list[Any]: ...
    def all(
        self,
        calls: Sequence[ObjectLike],
        *,
        output: type[Any] | None = None,
        **options: Unpack[_CallOptions],
    ) -> list[Any]:
        """Make calls concurrently, all or nothing; see `ideabridge.bridge.Bridge.all`."""
        return self.portal.call(partial(self.underlying.all, calls, output=output, **options))

    @overload
    def any(
        self, calls: Sequence[ObjectLike], *, output: type[T], **options: Unpack[_CallOptions]
    ) -> T: ...
    @overload
    def any(
        self, calls: Sequence[ObjectLike], *, output: None = None, **options: Unpack[_CallOptions]
    ) -> Any: ...
    def any(
        self,
        calls: Sequence[ObjectLike],
        *,
        output: type[Any] | None = None,
        **options: Unpack[_CallOptions],
    ) -> Any:
        """Make alternative calls concurrently, and return the value of the first call that
        succeeds; see `ideabridge.bridge.Bridge.any`.
        """
        return self.portal.call(partial(self.underlying.any, calls, output=output, **options))

    @overload
    def race(
        self, calls: Sequence[ObjectLike], *, output: type[T], **options: Unpack[_CallOptions]
    ) -> T: ...
    @overload
    def race(
        self, calls: Sequence[ObjectLike], *, output: None = None, **options: Unpack[_CallOptions]
    ) -> Any: ...
    def race(
        self,
        calls: Sequence[ObjectLike],
        *,
        output: type[Any] | None = None,
        **options: Unpack[_CallOptions],
    ) -> Any:
        """Make alternative calls concurrently, and return the value of the first call that ends;
        see `ideabridge.bridge.Bridge.race`.
        """
        return self.portal.call(partial(self.underlying.race, calls, output=output, **options))

    def session(
        self,
        *,
        state: ObjectLike | None = None,
        input: ObjectLike | None = None,  # noqa: A002 - the vocabulary's word
        tools: Iterable[str] | None = None,
        run_id: str | None = None,
    ) -> AbstractContextManager[Session]:
        """Open a run whose steps the script itself submits, one after another; see
        `ideabridge.bridge.Bridge.session`.
        """
        opened = self.underlying.session(state=state, input=input, tools=tools, run_id=run_id)
        return _session(self.portal.wrap_async_context_manager(opened), self.portal)

    def _result(self, start: Callable[[], Awaitable[Run]], output: type[T] | None = None) -> Any:
        return self._result_of(self.portal.call(start), output)

    def _result_of(self, run: Run, output: type[T] | None = None) -> Any:
        if output is None:
            result = self.portal.call(run.result)
        else:
            result = self.portal.call(run.result, output)

        # The caller receives nothing but the result, so write assumptions and notes to the log.
        for line in assumption_lines(run.assumed):
            logger.warning("run %s assumed: %s", run.id, line)

        for line in note_lines(run.noted):
            logger.info("run %s noted: %s", run.id, line)
        return result


@contextmanager
def _session(
    opened: AbstractContextManager[AsyncSession], portal: BlockingPortal
) -> Generator[Session]:
    with opened as session:
        yield Session(session, portal)


def _awaitable(approver: SyncApprover) -> Approver:
    async def decide(request: ApprovalRequest) -> Decision:
        if inspect.iscoroutinefunction(approver):
            return await approver(request)
        # Use a thread, because other calls must continue while the approver is asking a person.
        plain = cast("Callable[[ApprovalRequest], Decision]", approver)
        return await to_thread.run_sync(plain, request, abandon_on_cancel=True)

    return decide
