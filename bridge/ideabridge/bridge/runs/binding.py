"""Decide which tools a run from a journal can call in this process.

A run is bound to the servers that it began with: its `RunStarted` has a digest of the start
definition of each server that its tools reach (`start_definitions`). While the run is waiting,
anything else in the configuration can change. A call is refused if its server now starts in a
different way, or if its Python tool is missing or has a different definition. `Executor` compares
the definitions of a server's tools each time before it sends a call.

A run continues if none of its remaining calls would be refused. If a mind later makes a call that
is refused, only that call fails, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from ideabridge.bridge.context.reader import is_reader
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.programs.names import ProgramNames
from ideabridge.bridge.programs.sandbox import interpreter
from ideabridge.bridge.runs.executor import Executor
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import JSON, JSONObject, objects_in
from ideabridge.tools.tool import EVERY_MODULE, Tool

OWN_TOOLS = ""
"""The module name that stands for this process's Python tools, as in `Tool.reached`."""


def bound_to(
    catalogue: Catalogue, definitions: Mapping[str, str], parent: JSONObject | None
) -> JSONObject:
    """Return the start definitions to which a new run is bound, keyed by server.

    Args:
        catalogue: the tools of the run.
        definitions: the start definitions of the configuration.
        parent: for a room, the start definitions to which its parent is bound, which then also bind
            the room.
    """
    reached = {module for tool in catalogue.tools for module in tool.reached}
    current: dict[str, JSON] = {**definitions, **(parent or {})}
    if EVERY_MODULE in reached:
        return current
    return {module: digest for module, digest in current.items() if module in reached}


def sentence(why: str) -> str:
    """Return a reason as a sentence with final punctuation."""
    return why if why.endswith(("?", ".")) else f"{why}."


@cache
def _builtin_tools() -> Mapping[str, Tool]:
    """Return the definitions of the built-in tools, cached because reading a large journal looks
    them up for every call.
    """
    return builtin_toolbox().tools


class Binding:
    """Determines which tools a run can call in this process.

    Args:
        machine: the run.
        executor: the executor of this process, which has the tools.
        bound: the member `bound` of the run's `RunStarted`, or None if an earlier version wrote the
            journal.
        definitions: the start definitions of this process's configuration.
        is_same: whether the run was last driven under exactly this configuration.

    Attributes:
        is_same: the argument. It becomes True when the run continues under this configuration.
    """

    def __init__(
        self,
        machine: Machine,
        executor: Executor,
        bound: JSONObject | None,
        definitions: Mapping[str, str],
        *,
        is_same: bool,
    ) -> None:
        self._machine = machine
        self._executor = executor
        self._bound = bound
        self._definitions = definitions
        self.is_same = is_same
        defined = [message.value for message in machine.messages if message.type == "tool"]
        self._defined = {str(tool.get("name")) for tool in objects_in(defined)}
        self._began = {id(tool) for tool in machine.offer.initial.tools}

    def why_not_resumable(self) -> str | None:
        """Return why the run cannot continue in this process, or None if it can."""
        program = self._machine.program
        if program is not None and program.interpreter != interpreter():
            return (
                f"its program began in {program.interpreter}, but this process has "
                f"{interpreter()}, which may behave differently"
            )

        if self._bound is None and not self.is_same:
            return (
                "the configuration has changed since the run began, and an earlier version of "
                "ideabridge did not record which parts of the configuration the run needs"
            )

        for tool in self._needed():
            fault = self.fault_of(tool)
            if fault is not None:
                return fault

        return None

    def fault_of(self, tool: Tool) -> str | None:
        """Return why the run cannot call the tool in this process, or None if it can."""
        if tool.key in self._machine.catalogue.latent:
            return None
        if tool.module is None:
            return self._fault_of_own(tool)

        for module in tool.reached:
            fault = self._fault_of_module(module)
            if fault is not None:
                return fault

        return None

    def _fault_of_own(self, tool: Tool) -> str | None:
        if not self._executor.has(tool):
            return f"its tool {tool.name!r} is missing here; was a tool file left out?"

        if self._is_from_files(tool):
            difference = self._executor.difference(tool)
            if difference is not None:
                return f"its tool {tool.name!r} has changed since the run began: {difference}"

        if is_reader(tool) or tool == _builtin_tools().get(tool.name) or self._is_bound(OWN_TOOLS):
            return None
        return f"its tool {tool.name!r} belongs to a different project or program"

    def _is_from_files(self, tool: Tool) -> bool:
        """Return whether a tool's definition comes from a tool file or a program, rather than from
        a context or a handler.
        """
        if id(tool) in self._began:
            return tool.name not in self._defined
        # This search through the whole history is rare, because most tools come from files or
        # programs.
        return any(progress.replaced is tool for progress in self._machine.history)

    def _fault_of_module(self, module: str) -> str | None:
        """Return how the start definition of a server has changed, or None if it has not."""
        if module == EVERY_MODULE or self._is_bound(module):
            return None
        if module not in self._definitions:
            return f"its server {module!r} is no longer configured here, or is disabled"
        if self._bound is None or module not in self._bound:
            return f"its server {module!r} was chosen under another configuration"
        return (
            f"its server {module!r} starts differently from when the run began (command, "
            "arguments, working folder, address, allowed tools, or the names of headers and "
            "variables); if the run began in another project folder, name it with --project"
        )

    def _is_bound(self, module: str) -> bool:
        """Return whether a server starts here exactly as the run requires."""
        if self._bound is None or module not in self._bound:
            # The journal does not record how the server was started, so the whole configuration
            # must be unchanged.
            return self.is_same
        return self._bound[module] == self._definitions.get(module)

    def _needed(self) -> Iterator[Tool]:
        """Yield the known tools of the run's remaining calls."""
        machine = self._machine
        if machine.program is not None:
            yield from ProgramNames.of(machine.program.names, machine.catalogue.tools).listed

        if machine.waiting_plan is not None:
            yield from (
                call.tool for call in machine.waiting_plan.graph.calls if call.tool is not None
            )

        rooms = {call for call, _ in machine.open_rooms}
        for progress in machine.history:
            if progress.settled or progress.tool is None or progress.call.has_written_result:
                continue
            if progress.call.index not in rooms:
                # A call in an open room is left out, because the room has its own binding.
                yield progress.tool
