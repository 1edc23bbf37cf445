"""Exposed tools: tools of modules and tool files that are tools of this server (`expose`), and the record of calls.

The host and its user decide about direct calls, unless the configuration's `approval` has a rule for the tool: `deny`
refuses the call, and `ask` makes it a run of one call, which waits for approval. Every direct call is recorded.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import secrets
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Protocol, cast

import anyio
from starlette.requests import Request

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.context.references import escaped
from ideabridge.bridge.loop.policy import direct_policy, policy_named
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.journal import DirectCall, DirectOutcome
from ideabridge.server.answers import (
    ToolAnswer,
    bounded,
    error_line,
    object_input,
    object_output,
    refusal,
    showable,
    size_of,
    text_answer,
    value_answer,
)
from ideabridge.server.asking.rounds import InputRequired, ToolRequest
from ideabridge.server.running import Running
from ideabridge.tools.encoding import JSON, JSONObject, encode, normalise
from ideabridge.tools.errors import ActivityError, IdeabridgeError
from ideabridge.tools.names import safe_name
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import META_PROPERTIES, ActivityFunction, Tool, ToolKey

# -- names -----------------------------------------------------------------------------------------------------------

MAX_EXPOSED: Final = 60 - len("mcp__ideabridge__")
"""Characters of a name: hosts add a prefix, and allow 60 in all."""

_MARK: Final = 6
"""Characters of the hash that distinguishes two tools whose shortened names are equal."""


def exposed_names(
    tools: Iterable[Tool], is_taken: Callable[[str, Tool], bool], given: Mapping[ToolKey, str] | None = None
) -> list[str]:
    """A name for each tool, in their order, of at most `MAX_EXPOSED` characters `a-z`, `0-9` and `_`.

    A tool keeps an earlier name. Otherwise it gets the first of these that is free: its own name, the name after the
    name of its module, the name before a hash of both. Two modules' tools that want the same name both get the next
    form, so that no name depends on which module connected first. Tools of this process precede those of modules.

    Args:
        tools: the tools of this process and of modules.
        is_taken: whether something else has a name, so that a tool cannot get it.
        given: the earlier names by `Tool.origin`.
    """
    tools = list(tools)
    before = {place: (given or {}).get(tool.origin) for place, tool in enumerate(tools)}
    names: dict[int, str] = {
        place: name for place, name in before.items() if name is not None and not is_taken(name, tools[place])
    }
    taken: set[str] = {*names.values()}
    for ways in (_own, _with_module, _with_hash):
        # Tools of this process first.
        for of_module in (False, True):
            wanted = {
                place: name
                for place, tool in enumerate(tools)
                if place not in names and (tool.module is not None) == of_module and (name := ways(tool)) is not None
            }
            count = Counter(wanted.values())
            free = {
                place: name
                for place, name in wanted.items()
                if count[name] == 1 and name not in taken and not is_taken(name, tools[place])
            }
            names.update(free)
            taken.update(free.values())
    for place, tool in enumerate(tools):
        if place not in names:
            names[place] = _numbered(tool, taken, is_taken)
            taken.add(names[place])
    return [names[place] for place in range(len(tools))]


def _own(tool: Tool) -> str | None:
    name = safe_name(tool.name)
    # No character of the name is allowed in a safe name.
    lost = name == "tool" and "tool" not in tool.name.lower()
    return name if len(name) <= MAX_EXPOSED and not lost else None


def _with_module(tool: Tool) -> str | None:
    if tool.module is None:
        return None
    name = f"{safe_name(tool.module)}_{safe_name(tool.name)}"
    return name if len(name) <= MAX_EXPOSED else None


def _with_hash(tool: Tool) -> str:
    whole = f"{tool.module or ''}\n{tool.remote_name or tool.name}".encode(errors="replace")
    return f"{_cut(tool, _MARK)}_{sha256(whole).hexdigest()[:_MARK]}"


def _cut(tool: Tool, tail: int) -> str:
    return safe_name(tool.name)[: MAX_EXPOSED - tail - 1].rstrip("_")


def _numbered(tool: Tool, taken: set[str], is_taken: Callable[[str, Tool], bool]) -> str:
    """A number for two tools of one module with one name, or if the name with the hash is taken."""
    number = 2
    while (name := f"{_cut(tool, len(str(number)))}_{number}") in taken or is_taken(name, tool):
        number += 1
    return name


# -- direct calls ----------------------------------------------------------------------------------------------------
#
# The record of direct calls. A separate task writes them to the store in batches, within a second of their end and when
# the server ends. A crash loses the calls of the last second.

FLUSH_SECONDS: Final = 1.0
_AT_ONCE: Final = 500
"""The number of calls that are written at once."""

_MOST_KEPT: Final = 20_000
"""The number of calls kept in memory while the store cannot be written; the oldest are dropped."""

_CLIENT: Final = 120
_CLIENTS: Final = 256
_DIGITS: Final = 32

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Entry:
    """A direct call in progress. `outcome` applies unless the call returns a result."""

    started: float
    at: float
    asked: ToolRequest
    name: str
    tool: Tool
    bytes_in: int
    parameters: str
    outcome: DirectOutcome = "cancelled"
    run: str | None = None


class DirectCalls:
    """The record of direct calls.

    Args:
        bridge: has the store and the secrets.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._ended: list[DirectCall] = []
        self._some = anyio.Event()
        self._lost = 0
        self._failing = False
        self._clients: dict[str, str] = {}
        # The session of stdio: one client per process.
        self._process = _hashed(secrets.token_hex(16))

    def begin(self, name: str, tool: Tool, arguments: JSONObject, asked: ToolRequest) -> Entry:
        """Begin the record of a direct call under a name; of the arguments only size and digest are kept."""
        data = encode(arguments)
        masked = self._bridge.secrets.redact(arguments)
        digest = hashlib.sha256(data if masked is arguments else encode(masked)).hexdigest()[:_DIGITS]
        return Entry(time.perf_counter(), time.time(), asked, name, tool, len(data), digest)

    def end(self, entry: Entry, result: ToolAnswer | None) -> None:
        """Complete the record of a call; `result` is None if it has none."""
        outcome = entry.outcome
        if result is not None and outcome == "cancelled":
            outcome = "error" if result.get("isError") else "ok"
        tool = entry.tool
        self._ended.append(
            DirectCall(
                at=entry.at,
                caller=entry.asked.caller,
                client=self._client(entry.asked),
                session=self._session(entry.asked),
                name=entry.name,
                module=tool.module,
                tool=tool.remote_name or tool.name,
                parameters=entry.parameters,
                seconds=round(time.perf_counter() - entry.started, 6),
                outcome=outcome,
                run=entry.run,
                bytes_in=entry.bytes_in,
                bytes_out=0 if result is None else _bytes_of(result),
            )
        )
        if len(self._ended) >= _AT_ONCE:
            self.flush()
        elif not self._some.is_set():
            self._some.set()

    def _client(self, asked: ToolRequest) -> str:
        params = asked.context.session.client_params
        if params is None:
            return ""
        given = f"{params.client_info.name} {params.client_info.version}"
        found = self._clients.get(given)
        if found is None:
            if len(self._clients) >= _CLIENTS:
                self._clients.clear()
            # Masked before it is cut, because a part of a secret is not recognised.
            found = self._clients[given] = self._bridge.secrets.mask(given[: 4 * _CLIENT]).strip()[:_CLIENT]
        return found

    def _session(self, asked: ToolRequest) -> str:
        request = asked.context.request
        if not isinstance(request, Request):
            return self._process
        session = request.headers.get("mcp-session-id")
        return "" if session is None else _hashed(session)

    async def run(self) -> None:
        """Write ended calls to the store every second, until cancelled."""
        while True:
            await self._some.wait()
            await anyio.sleep(FLUSH_SECONDS)
            self._some = anyio.Event()
            self.flush()

    def flush(self) -> None:
        """Write ended calls. If the store fails, they are kept for the next attempt."""
        if not self._ended:
            return
        calls, self._ended = self._ended, []
        try:
            self._bridge.store.direct_calls.add(calls, time.time())
        except StoreError as error:
            waiting = len(calls)
            self._ended = calls[-_MOST_KEPT:]
            self._lost += max(0, waiting - len(self._ended))
            self._some.set()
            if not self._failing:
                logger.warning("direct calls cannot be recorded, and wait in memory: %s", error)
            self._failing = True
            return
        if self._failing:
            logger.warning("direct calls are recorded again; %d are lost", self._lost)
        self._failing, self._lost = False, 0


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _bytes_of(result: ToolAnswer) -> int:
    """Bytes of the content of a result; texts are not encoded again."""
    size = 0
    for block in cast("list[dict[str, Any]]", result.get("content") or []):
        text = block.get("text") or block.get("data")
        if isinstance(text, str):
            size += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        else:
            size += size_of(block)
    return size


# -- tools -----------------------------------------------------------------------------------------------------------

_ERROR_CHARACTERS: Final = 4096
_BLOCKS: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})


class DirectCallError(IdeabridgeError):
    """The configuration denies a direct call, or it cannot become a run of one call."""


class UncertainCallError(IdeabridgeError):
    """A direct call without a result that may have taken effect."""


class ServedTool(Protocol):
    """A tool of this server, as the catalogue sees it."""

    @property
    def definition(self) -> dict[str, Any]:
        """The tool in its wire form."""
        ...

    async def call(self, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Answer a call; raises `IdeabridgeError` with a message for the caller."""
        ...


def definition_of(name: str, tool: Tool, output: JSONObject | None) -> dict[str, Any]:
    """The wire form of a tool under a name of this server."""
    told: dict[str, Any] = {"name": name, "inputSchema": showable(object_input(tool.parameters))}
    if tool.description:
        told["description"] = tool.description
    if output is not None:
        told["outputSchema"] = showable(output)
    annotations = tool.annotations.to_json()
    if annotations:
        told["annotations"] = annotations
        if tool.annotations.title:
            told["title"] = tool.annotations.title
    return told


class ExposedTool:
    """A tool of a tool file or a module under a name of this server.

    Args:
        name: the name.
        tool: the tool.
        output: its output schema, as the protocol requires it.
        running: runs a call that a rule asks about.
        record: records every direct call.
    """

    def __init__(self, name: str, tool: Tool, output: JSONObject | None, running: Running, record: DirectCalls) -> None:
        self.definition = definition_of(name, tool, output)
        self.tool = tool
        self.name = name
        self._bridge = running.bridge
        self._running = running
        self._record = record
        approval = self._bridge.configuration.approval_setting
        self._policy = direct_policy(approval, name)
        self._in_run = policy_named(approval)

    async def call(self, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Answer a direct call, and record it.

        Raises:
            DirectCallError: a rule denies it, or it cannot be made a run of one call.
            ValueMismatchError: the arguments do not satisfy their schema.
            UncertainCallError: it gave no result, and may have taken effect.
            IdeabridgeError: what went wrong in the tool or at its module, by cause.
        """
        entry = self._record.begin(self.name, self.tool, arguments, asked)
        result: ToolAnswer | None = None
        try:
            result = await self._answered(arguments, asked, entry)
            return result
        except InputRequired:
            entry.outcome = "asked"
            raise
        except Exception as error:
            entry.outcome = entry.outcome if entry.outcome == "denied" else "error"
            if not isinstance(error, IdeabridgeError) or self.tool.annotations.read_only is True:
                raise
            if error.outcome == "unknown":
                entry.outcome = "unknown"
                raise UncertainCallError(
                    f"outcome unknown: {error}. {self.name} may have taken effect: look before you call it again"
                ) from error
            if error.outcome == "ran":
                raise UncertainCallError(f"{self.name} ran, and its result cannot be used: {error}") from error
            raise
        finally:
            # Without another outcome it was cancelled.
            self._record.end(entry, result)

    async def _answered(self, arguments: JSONObject, asked: ToolRequest, entry: Entry) -> ToolAnswer:
        if asked.resumed is not None:
            return await self._of_run(asked.resumed, asked, entry)
        tool = await self.current()
        # Rules use the offered name of a tool, because its own name may occur in several modules.
        offered = tool
        if tool.name != self.tool.name:
            offered = dataclasses.replace(tool, name=self.tool.name, remote_name=self.tool.remote_name)
        verdict = self._policy(offered, arguments)
        if verdict.verdict == "allow":
            return await self.run(tool, arguments, asked)
        if verdict.verdict == "deny":
            entry.outcome = "denied"
            raise DirectCallError(f"{self.name} is denied by the configuration of ideabridge: {verdict.why}")
        if self._in_run(offered, arguments).verdict == "allow":
            # A run of it would not ask, because rules of runs do not match exposed names.
            raise DirectCallError(
                f"{self.name}: a rule asks about it by the name it is exposed under, and a run of it would not ask;"
                f" write the rule with the name of the tool, {offered.name!r}"
            )
        meta = next((key for key in arguments if key in META_PROPERTIES), None)
        if meta is not None:
            raise DirectCallError(f"{self.name} has no parameter {meta!r}")
        module: JSONObject = {} if tool.module is None else {"_module": tool.module}
        call: JSONObject = {"_tool": tool.name, **module, **cast("JSONObject", escaped(arguments))}
        run = await self._bridge.run_plan({"calls": [call]}, caller=asked.caller, title=f"a direct call of {self.name}")
        return await self._of_run(run, asked, entry)

    async def _of_run(self, run: Run, asked: ToolRequest, entry: Entry) -> ToolAnswer:
        """The result of a call that needs approval: the result of the tool, once it has run."""
        entry.run = run.id
        status = await self._running.wait_started(run, asked)
        made = run.calls()[0] if run.calls() else None
        if status != "done" or made is None:
            # Hosts validate structured content against the output schema, except in errors.
            entry.outcome = "asked" if status == "needs_approval" else "error"
            return {**self._running.answer_of(run, asked), "isError": True}
        if run.errors():
            entry.outcome = "denied" if (made.error or {}).get("kind") == "denied" else "error"
            return refusal("\n".join(error_line(error) for error in run.errors()))
        ran = made.tool
        if ran is None or (ran.module, ran.name) != (self.tool.module, self.tool.name):
            # A person has replaced the call by one of another tool.
            return {**self._running.answer_of(run, asked), "isError": True}
        return self.answer(ran, made.value)

    @abstractmethod
    async def current(self) -> Tool:
        """The current definition of the tool."""

    @abstractmethod
    async def run(self, tool: Tool, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Call it."""

    @abstractmethod
    def answer(self, tool: Tool, value: JSON) -> ToolAnswer:
        """The answer whose value is `value`."""


class LocalTool(ExposedTool):
    """A Python tool of the toolbox."""

    def __init__(self, name: str, tool: Tool, run: ActivityFunction, running: Running, record: DirectCalls) -> None:
        output, self._wrapped = object_output(tool.output)
        super().__init__(name, tool, output, running, record)
        self._run = run
        self._parameters = Validator(tool.parameters, what=f"parameters of {name}")
        self._output = Validator(tool.output, what=f"the result of {name}") if tool.output is not None else None

    async def current(self) -> Tool:
        """The tool: it does not change."""
        return self.tool

    async def run(self, tool: Tool, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Run its activity.

        Raises:
            ActivityError: what it raised.
            ValueMismatchError: the arguments, or the result, do not satisfy their schema.
            InvalidJSONError: the result is not JSON.
        """
        await self._parameters.check_apart(arguments)
        try:
            result = await self._run(arguments, DirectContext(tool.name, arguments, asked))
        except IdeabridgeError:
            raise
        except Exception as error:  # noqa: BLE001 - any exception of an activity fails only its call
            raise ActivityError(f"{type(error).__name__}: {str(error)[:_ERROR_CHARACTERS]}") from None
        value = normalise(result, what=f"the result of {tool.name}")
        if self._output is not None:
            await self._output.check_apart(value)
        return self.answer(tool, self._bridge.secrets.redact(value))

    def answer(self, tool: Tool, value: JSON) -> ToolAnswer:
        """The answer whose value is `value`."""
        return value_answer(value, wrapped=self._wrapped)


class ModuleTool(ExposedTool):
    """A tool of a module."""

    def __init__(self, name: str, tool: Tool, running: Running, record: DirectCalls) -> None:
        output, self._wrapped = object_output(tool.wrapper or tool.output)
        super().__init__(name, tool, output, running, record)
        self._parameters = Validator(tool.parameters, what=f"parameters of {name}")

    async def current(self) -> Tool:
        """The tool as its module lists it now.

        Raises:
            ModuleError: the module does not connect, or has no such tool.
        """
        return await self._bridge.modules.current(self.tool.module or "", self.tool.remote_name or self.tool.name)

    async def run(self, tool: Tool, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Call the tool of the module.

        Raises:
            ModuleError: the call failed.
            ValueMismatchError: the arguments do not satisfy their schema.
        """
        parameters = self._parameters
        if tool.parameters != self.tool.parameters:
            parameters = Validator(tool.parameters, what=f"parameters of {self.name}")
        await parameters.check_apart(arguments)
        progress: Callable[[float, float | None, str | None], Awaitable[None]] | None = None
        if asked.wants_progress:
            progress = asked.context.session.report_progress
        value = await self._bridge.modules.call(
            tool.module or "", tool.remote_name or tool.name, arguments, progress=progress, run=asked.client
        )
        return self.answer(tool, value)

    def answer(self, tool: Tool, value: JSON) -> ToolAnswer:
        """The answer whose value is `value`."""
        if tool.output is None:
            return _unstructured(value)
        wrapped = self._wrapped
        if tool.output != self.tool.output or tool.wrapper != self.tool.wrapper:
            wrapped = object_output(tool.wrapper or tool.output)[1]
        return value_answer(value, wrapped=wrapped)


def _unstructured(value: JSON) -> ToolAnswer:
    """The result of a module's tool without an output schema: its text and blocks, unchanged."""
    if isinstance(value, dict):
        return value_answer(value, wrapped=False)
    if value is None:
        return {"content": [], "resultType": "complete"}
    if isinstance(value, list) and value and all(isinstance(one, dict) and one.get("type") in _BLOCKS for one in value):
        return bounded({"content": cast("list[Any]", value), "resultType": "complete"})
    return text_answer(value)


class DirectContext:
    """The `ActivityContext` of a direct call."""

    __slots__ = ("_arguments", "_asked", "_name")

    def __init__(self, name: str, arguments: JSONObject, asked: ToolRequest) -> None:
        self._name = name
        self._arguments = arguments
        self._asked = asked

    @property
    def call(self) -> JSONObject:
        """The call, as within a plan."""
        return {"_tool": self._name, **self._arguments}

    @property
    def instance(self) -> str | None:
        """None: a direct call has no instance."""
        return None

    @property
    def output_paths(self) -> tuple[str, ...]:
        """Empty: a direct call has no state."""
        return ()

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the client."""
        await self._asked.context.session.report_progress(progress, total, message)

    def add_message(self, message: JSONObject) -> None:
        """Ignored: there is no next Request."""

    def choose(self, path: str) -> None:
        """Always an error: there are no output paths."""
        raise ActivityError(f"cannot choose output path {path!r}: called directly, the call has no _outputPath")
