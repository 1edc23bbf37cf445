"""Exposed tools: a module's or a tool file's tool as a tool of this server (`expose`).

Whether to make a direct call is up to the host and its user, except where the configuration's `approval` has a rule for
the tool: `deny` refuses the call, and `ask` makes it a run of one call, which waits for approval like any other. Every
direct call is recorded (`direct_calls.py`).
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, cast

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.context.reference import escaped
from ideabridge.bridge.loop.policy import direct_policy, policy_named, with_folded_names
from ideabridge.bridge.run import Run
from ideabridge.server.answers import ToolAnswer, bounded, error_line, refusal, text_answer, value_answer
from ideabridge.server.direct_calls import DirectCalls, Entry
from ideabridge.server.rounds import InputRequired, ToolRequest
from ideabridge.server.running import WAIT_S, Running
from ideabridge.server.told_schema import object_input, object_output, showable
from ideabridge.tools.activity import ActivityFunction
from ideabridge.tools.encoding import JSON, JSONObject, normalise
from ideabridge.tools.errors import ActivityError, IdeabridgeError
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import META_PROPERTIES, Tool

_ERROR_CHARACTERS: Final = 4096
_BLOCKS: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})


class DirectCallError(IdeabridgeError):
    """A direct call that the configuration denies, or that cannot be made a run of one call."""


class UncertainCallError(IdeabridgeError):
    """A direct call that may have taken effect, although it gave no result."""


class ServedTool(Protocol):
    """What a tool of this server is to the catalogue: its definition, and what a call of it does."""

    @property
    def definition(self) -> dict[str, Any]:
        """The tool in its wire form."""
        ...

    async def call(self, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Answer a call; raises an `IdeabridgeError` for what a caller shall be told."""
        ...


def definition_of(name: str, tool: Tool, output: JSONObject | None) -> dict[str, Any]:
    """A tool in its wire form, under a name of this server."""
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
        bridge: runs it where a rule asks.
        running: waits for such a run.
        record: takes down every direct call.
    """

    def __init__(
        self, name: str, tool: Tool, output: JSONObject | None, bridge: Bridge, running: Running, record: DirectCalls
    ) -> None:
        self.definition = definition_of(name, tool, output)
        self.tool = tool
        self.name = name
        self._bridge = bridge
        self._running = running
        self._record = record
        self._policy = direct_policy(bridge.configuration.approval_setting, name)
        self._in_run = policy_named(with_folded_names(bridge.configuration.approval_setting))

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
            # Cancelled, where nothing else was said.
            self._record.end(entry, result)

    async def _answered(self, arguments: JSONObject, asked: ToolRequest, entry: Entry) -> ToolAnswer:
        if asked.resumed is not None:
            return await self._of_run(asked.resumed, asked, entry)
        tool = await self.current()
        # Rules speak of a module's tool by the name it is offered as: its own name may be another module's, too.
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
            # Its run would not ask: runs do not know under which name a tool is exposed.
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
        """The answer of a call that waits for approval: that of the tool itself, once it has run."""
        entry.run = run.id
        with self._running.cancelling(run, asked):
            status = await self._running.wait(run, WAIT_S, asked)
        made = run.calls()[0] if run.calls() else None
        if status != "done" or made is None:
            # Hosts hold structured content against the output schema unless it is an error.
            entry.outcome = "asked" if status == "needs_approval" else "error"
            return {**self._running.answer_of(run, asked), "isError": True}
        if run.errors():
            entry.outcome = "denied" if (made.error or {}).get("kind") == "denied" else "error"
            return refusal("\n".join(error_line(error) for error in run.errors()))
        ran = made.tool
        if ran is None or (ran.module, ran.name) != (self.tool.module, self.tool.name):
            # A person had another tool called in its place.
            return {**self._running.answer_of(run, asked), "isError": True}
        return self.answer(ran, made.value)

    @abstractmethod
    async def current(self) -> Tool:
        """The tool by the definition that is in force now."""

    @abstractmethod
    async def run(self, tool: Tool, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Call it."""

    @abstractmethod
    def answer(self, tool: Tool, value: JSON) -> ToolAnswer:
        """The answer whose value is `value`."""


class LocalTool(ExposedTool):
    """A Python tool of the toolbox."""

    def __init__(
        self, name: str, tool: Tool, run: ActivityFunction, bridge: Bridge, running: Running, record: DirectCalls
    ) -> None:
        output, self._wrapped = object_output(tool.output)
        super().__init__(name, tool, output, bridge, running, record)
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
        except Exception as error:  # noqa: BLE001 - whatever an activity raises fails its call alone
            raise ActivityError(f"{type(error).__name__}: {str(error)[:_ERROR_CHARACTERS]}") from None
        value = normalise(result, what=f"the result of {tool.name}")
        if self._output is not None:
            await self._output.check_apart(value)
        return self.answer(tool, self._bridge.secrets.redact(value))

    def answer(self, tool: Tool, value: JSON) -> ToolAnswer:
        """The answer whose value is `value`."""
        return value_answer(value, wrapped=self._wrapped)


class ModuleTool(ExposedTool):
    """A tool of a module, passed on."""

    def __init__(self, name: str, tool: Tool, bridge: Bridge, running: Running, record: DirectCalls) -> None:
        output, self._wrapped = object_output(tool.wrapper or tool.output)
        super().__init__(name, tool, output, bridge, running, record)
        self._parameters = Validator(tool.parameters, what=f"parameters of {name}")

    async def current(self) -> Tool:
        """The tool as its module lists it now: this one may be from its last list.

        Raises:
            ModuleError: the module does not come up, or has no such tool.
        """
        return await self._bridge.modules.current(self.tool.module or "", self.tool.remote_name or self.tool.name)

    async def run(self, tool: Tool, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Call it at its module.

        Raises:
            ModuleError: what went wrong there, by cause.
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
    """The result of a module's tool that declares no output: text and blocks as they came."""
    if isinstance(value, dict):
        return value_answer(value, wrapped=False)
    if value is None:
        return {"content": [], "resultType": "complete"}
    if isinstance(value, list) and value and all(isinstance(one, dict) and one.get("type") in _BLOCKS for one in value):
        return bounded({"content": cast("list[Any]", value), "resultType": "complete"})
    return text_answer(value)


class DirectContext:
    """What an activity is told and may do when the host calls its tool directly: an `ActivityContext`."""

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
        """None: there are no instances here."""
        return None

    @property
    def output_paths(self) -> tuple[str, ...]:
        """Empty: there is no state here."""
        return ()

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the client."""
        await self._asked.context.session.report_progress(progress, total, message)

    def add_message(self, message: JSONObject) -> None:
        """There is no next Request here; the message has nowhere to go and is left out."""

    def choose(self, path: str) -> None:
        """There is nothing to choose from."""
        raise ActivityError(f"cannot choose output path {path!r}: called directly, the call has no _outputPath")
