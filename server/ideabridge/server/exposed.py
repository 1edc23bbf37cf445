"""Exposed tools: a module's or a tool file's tool as a tool of this server (DESIGN 6, `--expose`).

A direct call by the host is the host's own decision: no approval, no journal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, cast

from ideabridge.bridge.bridge import Bridge
from ideabridge.server.answers import ToolAnswer, bounded, text_answer, value_answer
from ideabridge.server.callers import Asked
from ideabridge.server.told_schema import object_input, object_output
from ideabridge.tools.activity import ActivityFunction
from ideabridge.tools.encoding import JSON, JSONObject, normalise
from ideabridge.tools.errors import ActivityError, IdeabridgeError
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Tool

_ERROR_CHARACTERS: Final = 4096
_BLOCKS: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})


class ServedTool(Protocol):
    """What a tool of this server is to the catalogue: its definition, and what a call of it does."""

    @property
    def definition(self) -> dict[str, Any]:
        """The tool in its wire form."""
        ...

    async def call(self, arguments: JSONObject, asked: Asked) -> ToolAnswer:
        """Answer a call; raises an `IdeabridgeError` for what a caller shall be told."""
        ...


def definition_of(name: str, tool: Tool, output: JSONObject | None) -> dict[str, Any]:
    """A tool in its wire form, under a name of this server."""
    told: dict[str, Any] = {"name": name, "inputSchema": object_input(tool.parameters)}
    if tool.description:
        told["description"] = tool.description
    if output is not None:
        told["outputSchema"] = output
    annotations = tool.annotations.to_json()
    if annotations:
        told["annotations"] = annotations
        if tool.annotations.title:
            told["title"] = tool.annotations.title
    return told


class LocalTool:
    """A Python tool of the toolbox."""

    def __init__(self, name: str, tool: Tool, run: ActivityFunction) -> None:
        output, self._wrapped = object_output(tool.output)
        self.definition = definition_of(name, tool, output)
        self.tool = tool
        self._run = run
        self._parameters = Validator(tool.parameters, what=f"parameters of {name}")
        self._output = Validator(tool.output, what=f"the result of {name}") if tool.output is not None else None

    async def call(self, arguments: JSONObject, asked: Asked) -> ToolAnswer:
        """Run its activity.

        Raises:
            ActivityError: what it raised.
            ValueMismatchError: the arguments, or the result, do not satisfy their schema.
            InvalidJSONError: the result is not JSON.
        """
        await self._parameters.check_apart(arguments)
        try:
            result = await self._run(arguments, DirectContext(self.tool.name, arguments, asked))
        except IdeabridgeError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever an activity raises fails its call alone (DESIGN 4.5)
            raise ActivityError(f"{type(error).__name__}: {str(error)[:_ERROR_CHARACTERS]}") from None
        value = normalise(result, what=f"the result of {self.tool.name}")
        if self._output is not None:
            await self._output.check_apart(value)
        return value_answer(value, wrapped=self._wrapped)


class ModuleTool:
    """A tool of a module, passed on."""

    def __init__(self, name: str, tool: Tool, bridge: Bridge) -> None:
        output, self._wrapped = object_output(tool.wrapper or tool.output)
        self.definition = definition_of(name, tool, output)
        self.tool = tool
        self._name = name
        self._bridge = bridge
        self._parameters = Validator(tool.parameters, what=f"parameters of {name}")

    async def call(self, arguments: JSONObject, asked: Asked) -> ToolAnswer:
        """Call it at its module, by the definition that the module lists now: this one may be from its last list.

        Raises:
            ModuleError: what went wrong there, by cause.
            ValueMismatchError: the arguments do not satisfy their schema.
        """
        tool = self.tool
        now = await self._bridge.modules.current(tool.module or "", tool.remote_name or tool.name)
        if (now.parameters, now.output, now.renamed) == (tool.parameters, tool.output, tool.renamed):
            return await self._call(arguments, asked)
        return await ModuleTool(self._name, now, self._bridge)._call(arguments, asked)

    async def _call(self, arguments: JSONObject, asked: Asked) -> ToolAnswer:
        await self._parameters.check_apart(arguments)
        tool = self.tool
        progress: Callable[[float, float | None, str | None], Awaitable[None]] | None = None
        if asked.wants_progress:
            progress = asked.context.session.report_progress
        value = await self._bridge.modules.call(
            tool.module or "", tool.remote_name or tool.name, arguments, progress=progress
        )
        if tool.output is None:
            return _unstructured(value)
        return value_answer(value, wrapped=self._wrapped)


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

    def __init__(self, name: str, arguments: JSONObject, asked: Asked) -> None:
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
