"""Run calls, in this process or at their servers, and limit the results of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias, cast

from ideabridge.bridge.context.inquiry import Asker
from ideabridge.bridge.context.reader import is_reader, meant_reference, read_part
from ideabridge.bridge.context.references import format_reference
from ideabridge.bridge.loop.call import UNCERTAIN
from ideabridge.bridge.loop.effect import Execute
from ideabridge.bridge.loop.event import Event
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import Progress
from ideabridge.bridge.modules.errors import ModuleError, SharedQuestionError
from ideabridge.bridge.modules.module_call import Answer, ModuleCall
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.store.users import user_of
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.compose import result_schema
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    encode,
    memory_of,
    normalise,
    object_or_empty,
)
from ideabridge.tools.errors import (
    ActivityError,
    IdeabridgeError,
    LimitExceededError,
    ResultLimitError,
    UnknownToolError,
)
from ideabridge.tools.message import DataMessage
from ideabridge.tools.names import size_text
from ideabridge.tools.schema import Validator
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.tool import Activity, Annotations, Tool, changes_of_essence
from ideabridge.tools.toolbox import Toolbox

ProgressCallback = Callable[[float, float | None, str | None], Awaitable[None]]

PATIENCE = 30.0
"""How long, in seconds, a call waits for a server to connect. A resumed run can continue before its
servers have connected.
"""

_ERROR_CHARACTERS = 4096


CALLER_MEMORY = 1024 * 1024 * 1024
"""The limit on the approximate memory, in bytes, that the contexts, results and outputs of one
caller's runs take together.
"""

MEMORY_STEP = 4 * 1024 * 1024
"""The memory of the caller's other runs is counted again each time a run takes this many more
bytes.
"""

_SMALL_RESULT = 16 * 1024


class KeptBytes:
    """Counts the bytes of results, and of calls by programs, that a run and its rooms keep in
    memory and in journals.

    Args:
        most: the maximum number of bytes to keep.
        beside: returns the approximate memory, in bytes, that the caller's other runs take.

    Attributes:
        memory: the approximate memory, in bytes, that the run's context and results take.
    """

    def __init__(self, most: int, beside: Callable[[], int]) -> None:
        self.memory = 0
        self._most = most
        self._beside = beside
        self._bytes = 0
        self._looked_at = 0

    def note(self, size: int) -> None:
        """Count bytes that are already in a journal."""
        self._bytes += size
        self.memory += size

    def list_call(self, size: int) -> None:
        """Count a call that a program makes. `size` is the size of the call in bytes of JSON.

        Raises:
            LimitExceededError: the run would keep too many bytes.
        """
        if self._bytes + size > self._most:
            raise LimitExceededError(f"the run cannot make a call of {size:,} bytes: {self._why()}")
        self.note(size)

    def expect_room(self, tool: str) -> None:
        """Raise `LimitExceededError` if the run cannot keep any more bytes."""
        if self._bytes >= self._most:
            raise LimitExceededError(f"{tool} was not run: {self._why()}")

    def take(self, size: int, tool: str, memory: int) -> None:
        """Count a result of `size` bytes of JSON that takes about `memory` bytes of memory.

        Raises:
            ResultLimitError: the run, or the caller, would keep too many bytes.
        """
        if self._bytes + size > self._most:
            raise ResultLimitError(
                f"the result of {tool} is {size:,} bytes long and was discarded: {self._why()}"
            )

        # Count the other runs only from time to time, because there can be hundreds of them.
        if self.memory + memory - self._looked_at > MEMORY_STEP:
            total = self.memory + memory + self._beside()
            if total > CALLER_MEMORY:
                raise ResultLimitError(
                    f"the result of {tool} is {size:,} bytes long and was discarded: with it, your "
                    f"runs would take about {size_text(total)} of memory; the limit for one caller "
                    f"is {size_text(CALLER_MEMORY)}. Wait until runs end, cancel some, or have the "
                    "tools return less"
                )

            self._looked_at = self.memory + memory

        self._bytes += size
        self.memory += memory

    def _why(self) -> str:
        return (
            f"this run already has {self._bytes:,} bytes of results and calls; the limit is "
            f"{self._most:,} (limits.run_bytes)"
        )


@dataclass(frozen=True, slots=True)
class CallingRun:
    """What the executor needs to know about a run to make a call.

    Attributes:
        id: identifies the run, so that a server can let calls from different runs take turns.
        caller: the owner of the run.
        kept_bytes: limits the results of the run.
    """

    id: str
    caller: str
    kept_bytes: KeptBytes


class CallContext:
    """The `ActivityContext` of one call, with additional members for the executor.

    Attributes:
        run: the run that makes the call.
        asker: handles the questions that the call's server asks.
        most_shown: the maximum size, in bytes of JSON, of a value that the run's Requests show in
            full.
        chosen: the path of `p || q` that the activity has chosen.
        content: the content blocks of the result of a server's tool, if they say more than the
            value of the result.
        returned: the message that the activity returned, whose data is the result of the call.
    """

    def __init__(
        self,
        effect: Execute,
        on_progress: ProgressCallback,
        on_message: Callable[[JSONObject], None],
        run: CallingRun,
        asker: Asker | None,
        most_shown: int,
    ) -> None:
        self.run = run
        self.most_shown = most_shown
        self.asker = asker
        self.call: JSONObject = {"_tool": effect.tool.name, **effect.parameters}
        self.instance: str | None = effect.call.instance or None
        self.output_paths: tuple[str, ...] = ()
        if effect.call.target:
            self.output_paths = effect.call.target.texts

        self._is_clean = effect.is_clean
        if self._is_clean:
            # In a clean room, code sees nothing but the parameters and the imports.
            self.instance = None
            self.output_paths = ()
            if effect.imports:
                self.call["_imports"] = {
                    format_reference(path): normalise(value) for path, value in effect.imports
                }

        self.chosen: str | None = None
        self.content: list[JSON] | None = None
        self.returned: JSONObject | None = None
        self._item = effect.item
        self._on_progress = on_progress
        self._on_message = on_message

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report the progress of the call to the watchers of the run."""
        await self._on_progress(progress, total, message)

    def add_message(self, message: JSONObject) -> None:
        """Add a typed message to the context of the next Request."""
        if self._is_clean:
            raise ActivityError(
                "add_message: a clean room cannot add to the context of the run that calls it"
            )
        self._on_message(message)

    def note_returned(self, kind: str, data: JSON, description: str | None) -> None:
        """Record the message that the activity returned.

        Raises:
            ActivityError: the call runs in a clean room, whose code cannot add to the context.
        """
        if self._is_clean:
            raise ActivityError(
                f"it ran and returned a DataMessage ({kind}); a clean room cannot add to the "
                "context of the run that calls it"
            )
        self.returned = {"type": "data", "kind": kind, "data": data}
        if description is not None:
            self.returned["description"] = description

    def note_content(self, content: list[JSON]) -> None:
        """Record the content blocks of a result, which the journal stores in addition to the value.

        Raises:
            ResultLimitError: the run, or the caller, would keep too many bytes.
        """
        data = encode(content)
        self.run.kept_bytes.take(len(data), str(self.call["_tool"]), _memory_of(data))
        self.content = content

    def choose(self, path: str) -> None:
        """Choose the path of `p || q` that the result is written to."""
        if self._item is not None:
            raise ActivityError(
                "cannot choose an output path for one item: with _each, all results go to the "
                "same path"
            )
        if path not in self.output_paths:
            if self.output_paths:
                hint = f"expected one of {', '.join(self.output_paths)}"
            else:
                hint = "the call has no _outputPath"
            raise ActivityError(f"cannot choose output path {path!r}; {hint}")
        self.chosen = path


class RunObserver(Protocol):
    """Observes a run while this process drives it. Observers must not raise errors or keep
    values.
    """

    def see(self, events: Sequence[Event]) -> None:
        """Receive events that have been journaled."""
        ...

    def around(self, effect: Execute) -> AbstractContextManager[Callable[[JSON], None]]:
        """Return a context manager around one call, which yields a function that receives the
        result.

        If the call fails, its error propagates out of the block.
        """
        ...


class ObservedRun(Protocol):
    """The part of a run that an observer can see."""

    id: str

    @property
    def parent(self) -> ObservedRun | None:
        """The run whose call this run answers, or None if this run is not a room."""
        ...

    @property
    def machine(self) -> Machine:
        """The machine of the run, which exists once the run has been created."""
        ...


Observe: TypeAlias = Callable[[ObservedRun], RunObserver]
"""A function that creates the observer of a run. It is called in the task that asks for the run."""


class Executor:
    """Runs calls: activities in the toolbox in this process, and tools of servers remotely.

    Args:
        mask: replaces secrets in text that might reach a mind.
        redact: replaces secrets in the results of activities. The results of servers are already
            redacted.
        result_bytes: the maximum size of one result, in bytes of JSON.

    Attributes:
        observers: the observers, which watch every run that begins, or is read, after they were
            added.
        traceparent: returns the trace of the current request, or None if it has none. The journals
            of the runs that the request begins record the trace.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        modules: Modules,
        *,
        mask: Callable[[str], str],
        redact: Callable[[JSON], JSON],
        result_bytes: int,
    ) -> None:
        self._toolbox = toolbox
        self._modules = modules
        self._mask = mask
        self._redact = redact
        self._result_bytes = result_bytes
        self.observers: list[Observe] = []
        self.traceparent: Callable[[], str | None] = lambda: None

    def has(self, tool: Tool) -> bool:
        """Return whether a tool exists in this process's toolbox."""
        if is_reader(tool):
            return True
        try:
            return self._toolbox.activity_for(tool) is not None
        except UnknownToolError:
            return False

    def difference(self, tool: Tool) -> str | None:
        """Return how a tool in the toolbox has changed, or None if it has not changed, or is built
        in.
        """
        now = self._toolbox.tools.get(tool.name)
        if (
            is_reader(tool)
            or now is None
            or now.digest == tool.digest
            or now == builtin_toolbox().tools.get(tool.name)
        ):
            return None
        return "; ".join(changes_of_essence(tool.essence, now.essence))

    async def execute(self, effect: Execute, context: CallContext) -> JSON:
        """Run a call, and return its result.

        Raises:
            IdeabridgeError: the call failed. A mind may see the message once secrets are masked.
        """
        tool = effect.tool
        context.run.kept_bytes.expect_room(tool.name)
        if effect.is_latent:
            what = f"the _output of {tool.name}"
            written = normalise(effect.latent, what=what)
            await Validator(result_schema(tool), what=what).check_apart(written)
            return written

        if effect.unchecked:
            try:
                await Validator(tool.parameters, what="parameters").check_apart(effect.parameters)
            except IdeabridgeError as error:
                raise ActivityError(f"not run: {error}") from None

        if tool.module is not None:
            value = await self._call_module(tool.module, effect, context)
        elif is_reader(tool):
            value = await _read(effect, context.most_shown)
        else:
            activity = self._toolbox.activity_for(tool, effect.activity)
            if activity is None:
                raise UnknownToolError(
                    f"tool {tool.name!r} has no activity here; was its tool file left out?"
                )
            value = await self._run_activity(activity, effect.parameters, context)

        self._count(value, effect, context)
        return value

    def _count(self, value: JSON, effect: Execute, context: CallContext) -> None:
        """Count a result as often as the run stores it: in bytes of JSON or, if it is a string, in
        characters.

        Raises:
            ResultLimitError: the result is too large, or the run would keep too many bytes.
        """
        if isinstance(value, str):
            size = len(value)
            memory = size
        else:
            data = encode(value)
            size = len(data)
            memory = _memory_of(data)

        name = effect.tool.name
        if size > self._result_bytes:
            raise ResultLimitError(
                f"the result of {name} has {size:,} bytes; the limit is {self._result_bytes:,}"
            )

        # The result is stored once for each path, and once more if the activity returned it in a
        # message.
        times = 1
        if effect.call.target is not None:
            times = len(effect.call.target.texts)
        if context.returned is not None:
            times += 1
        context.run.kept_bytes.take(size * times, name, memory * times)

    async def _call_module(self, name: str, effect: Execute, context: CallContext) -> JSON:
        """Call a server's tool, giving renamed parameters their original names."""
        tool = effect.tool
        call = ModuleCall(
            tool.name_in_module,
            effect.parameters,
            progress=context.progress,
            queue_key=context.run.id,
            asker=context.asker,
            meant=tool.passes_to or tool,
            patience=PATIENCE,
        )
        try:
            answer = await self._answered(name, call, user_of(context.run.caller))
        except ModuleError as error:
            _keep_sent(error, context.run.kept_bytes, tool.name)
            raise

        if answer.aside is not None:
            context.note_content(answer.aside)

        value = answer.value
        if tool.wrapper is not None and isinstance(value, dict):
            value = value["result"]
        if tool.passes_to is not None and tool.output not in (None, tool.passes_to.output):
            await Validator(tool.output, what=f"the result of {tool.name}").check_apart(value)
        return value

    async def _answered(self, name: str, call: ModuleCall, user: str | None) -> Answer:
        """Call a server.

        If the server asks a question that could belong to any of several sessions, a read-only call
        is sent again over a connection that only its session uses.
        """
        try:
            async with self._modules.using(name, user) as module:
                return await module.answer(call)
        except SharedQuestionError as error:
            if not error.repeatable:
                raise
        async with self._modules.using(name, user) as module:
            return await module.answer(call)

    async def _run_activity(
        self, activity: Activity, parameters: JSONObject, context: CallContext
    ) -> JSON:
        """Run an activity, and return its result. If it returns a message, the result is that
        message's data.
        """
        if not activity.copies:
            # Pass a copy, because the activity might change its arguments, and they can be part of
            # the state.
            copied = normalise(parameters)
            parameters = object_or_empty(copied)

        returned = await activity.run(parameters, context)
        value = cast("JSON", returned.data if isinstance(returned, DataMessage) else returned)
        if not activity.copies:
            value = normalise(value, what=f"the result of {context.call['_tool']}")

        value = self._redact(value)
        if isinstance(returned, DataMessage):
            context.note_returned(returned.kind, value, returned.description)

        return value

    def explain(self, error: Exception, hints: Annotations | None = None) -> JSONObject:
        """Return an error as a mind sees it: of limited length, masked, and without a traceback.

        The `kind` of the error is usually `runtime`. Tools that might change something have two
        other kinds: `unknown` if the call might have taken effect, and `ran` if the call ran but
        its result cannot be used. `sent` is what the tool sent besides the message; see
        `ModuleError`.
        """
        if isinstance(error, IdeabridgeError):
            text = str(error)
        else:
            text = f"{type(error).__name__}: {error}"

        masked = self._mask(text)
        if len(masked) > _ERROR_CHARACTERS:
            masked = f"{masked[:_ERROR_CHARACTERS]}... ({len(masked):,} characters)"

        outcome = error.outcome if isinstance(error, IdeabridgeError) else "failed"
        harmless = hints is None or hints.read_only is True
        kind = outcome if outcome in UNCERTAIN and not harmless else "runtime"
        if kind == "ran":
            masked = f"it ran, but its result cannot be used: {masked}"

        explained: JSONObject = {
            "kind": kind,
            "message": masked.encode("utf-8", "replace").decode(),
        }
        if isinstance(error, ModuleError) and error.sent is not None:
            explained["sent"] = error.sent

        return explained


def _keep_sent(error: ModuleError, kept_bytes: KeptBytes, tool: str) -> None:
    """Count the content that a failed call sent, because the journal stores it. Content that
    exceeds the limit is dropped.
    """
    if error.sent is None:
        return
    data = encode(error.sent)
    try:
        kept_bytes.take(len(data), tool, _memory_of(data))
    except ResultLimitError:
        error.sent = None


async def _read(effect: Execute, most: int) -> JSONObject:
    """Run a call to the reading tool. The value is already masked, as all results are."""
    arguments = effect.parameters
    value = arguments.get("reference")
    written = str(meant_reference(effect.call.raw.get("reference")))
    return await compute_in_thread(read_part, value, written, arguments, most)


def _memory_of(data: bytes) -> int:
    """Estimate the memory that a value takes, in bytes, from its JSON."""
    if len(data) < _SMALL_RESULT:
        return 8 * len(data)
    return memory_of(data)


def label(progress: Progress) -> str:
    """Return the human-readable name of a call: `git_log` or `git.git_log`."""
    tool = progress.tool
    name = progress.call.name
    if progress.replaced is not None:
        name = progress.replaced.name

    if tool is not None and tool.module:
        return f"{tool.module}.{name}"
    return name
