"""Everything that a run of this bridge can currently call, under names that do not collide.

`Offer` compiles two catalogues: the tools that servers have listed in this process, for running
calls, and all known tools, for naming and searching tools. `ModuleLists` stores what each server
listed when it was last up, so that names do not depend on which servers are up.

The catalogue of a run is selected from the offer by `PlanTools` (a plan), `catalogue_of_program` (a
program) or `TaskTools` (a task), which wait for the servers whose tools the run needs.
`MissingTools` explains why a tool is missing.

`Offer.to` returns the part of the offer that a caller's profile allows. Every function that takes a
caller uses `Offer.to`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Final

import anyio

from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.context.reader import is_reader
from ideabridge.bridge.context.references import quoted
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.policy import allows_by_name
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.modules.settings import ModuleStatus
from ideabridge.bridge.offer.defined_tools import passing
from ideabridge.bridge.offer.missing_tools import MissingTools
from ideabridge.bridge.offer.named_tools import NamedTools, name_tools
from ideabridge.bridge.profiles import Profile, Profiles
from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import UnknownToolError
from ideabridge.tools.tool import ANONYMOUS, IDEA, Tool, ToolKey
from ideabridge.tools.toolbox import Toolbox

logger: Final = logging.getLogger(__name__)

SETTLE_SECONDS: Final = 30.0
"""How long, in seconds, a run waits for connecting servers before it reports an unknown tool."""


SOLVE: Final = Tool(
    "solve",
    "Solve a task in a clean room: the agent loop runs on the task, and sees only its input and "
    "_imports.",
    {
        "type": "object",
        "properties": {
            "task": {"type": "string", "description": "What to do, in words."},
            "input": {"type": "object", "description": "What †input reads there."},
            "tools": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Names or patterns of the run's tools it may call; default: none.",
            },
            "output_schema": {
                "type": "object",
                "description": "JSON Schema of the result; default: text.",
            },
        },
        "required": ["task"],
        "additionalProperties": False,
    },
    module=ANONYMOUS,
)
"""The tool of `_module: "anonymous"`. Latent tools of this process can also be called under that
name.
"""


class Offer:
    """The tools of a toolbox and of the servers, and published ideas.

    `settle`, `know_names` and `reach` wait as the table in `modules.py` describes. `until` waits
    until a condition holds.

    Args:
        idea: returns the tool of `idea:NAME` for a caller; see `idea_tool`.
        idea_names: returns the names of the ideas published to a caller, most used first.
        configuration: says whether rules allow tools by name alone (see `know_names`), and whether
            a project file is ignored. Its profiles restrict callers.
        whole: the whole offer, if this offer is the part that a profile allows.
        profile: the profile, or None for the whole offer.

    Attributes:
        servers, idea, idea_names, configuration, profile: the arguments.
        missing: explains why tools are missing.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        modules: Modules,
        idea: Callable[[str, str], Tool | None],
        idea_names: Callable[[str], list[str]],
        configuration: Configuration,
        whole: Offer | None = None,
        profile: Profile | None = None,
    ) -> None:
        self.modules = modules
        self.idea = idea
        self.idea_names = idea_names
        self.configuration = configuration
        self.profile = profile
        self.missing = MissingTools(configuration, modules, toolbox, profile, self._hidden)
        self._toolbox = toolbox
        self._whole = whole
        self._profiles = Profiles(configuration)
        self._of_profiles: dict[str, Offer] = {}
        self._by_name = allows_by_name(configuration.approval_setting)
        self._named: NamedTools | None = None
        self._real_catalogue: Catalogue | None = None
        self._catalogue: Catalogue | None = None
        self._known_catalogue: Catalogue | None = None
        if whole is None:
            self._report_unoffered()

    def follow(self, configuration: Configuration) -> None:
        """Switch to another configuration, after the toolbox and the servers have done so."""
        self.configuration = configuration
        self.missing.follow(configuration)
        self._by_name = allows_by_name(configuration.approval_setting)
        for offer in self._of_profiles.values():
            offer.follow(configuration)

        self.forget()
        if self._whole is None:
            self._report_unoffered()

    def _report_unoffered(self) -> None:
        for tool in self._toolbox:
            if tool.module is None or tool.in_room or tool.module in self.configuration.modules:
                continue
            logger.warning(
                "tool %s is not offered: no server %r is configured", tool.name, tool.module
            )

    def forget(self) -> None:
        """Discard the compiled tools, because a server came up, went down or changed its tools."""
        self._named = None
        self._real_catalogue = None
        self._catalogue = None
        self._known_catalogue = None
        for offer in self._of_profiles.values():
            offer.forget()

    # -- profiles ----------------------------------------------------------------------------------

    def to(self, caller: str) -> Offer:
        """Return the part of this offer that a caller's profile allows, or this offer itself if the
        caller has no profile.
        """
        if self._whole is not None:
            return self._whole.to(caller)

        profile = self._profiles.of(caller)
        if profile is None:
            return self

        offer = self._of_profiles.get(profile.name)
        if offer is None:
            offer = Offer(
                self._toolbox,
                self.modules,
                self.idea,
                self.idea_names,
                self.configuration,
                whole=self,
                profile=profile,
            )
            self._of_profiles[profile.name] = offer
        return offer

    def has_server(self, name: str) -> bool:
        """Return whether this offer can have tools from a server."""
        return self.profile is None or self.profile.admits_server(name)

    def has_tool(self, tool: Tool) -> bool:
        """Return whether this offer can have a tool."""
        return self.profile is None or self.profile.admits_tool(tool)

    def _hidden(self) -> list[Tool]:
        """Return the known tools that are outside the profile."""
        if self._whole is None:
            return []
        named = self._whole._all
        return [tool for tool in (*named.shown, *named.hidden) if not self.has_tool(tool)]

    @property
    def activities(self) -> tuple[str, ...]:
        """The names of the activities that calls can name in `_activity`."""
        names = tuple(self._toolbox.activities)
        if self.profile is None:
            return names
        return tuple(name for name in names if self.has_tool(self._tool_of_activity(name)))

    def settings(self, settings: Settings) -> Settings:
        """Return the settings for a run, or for a room in it, with the activities of the
        profile.
        """
        if self.profile is None:
            return settings
        return dataclasses.replace(settings, activities=self.activities)

    def _tool_of_activity(self, name: str) -> Tool:
        """Return the tool that an activity implements.

        If there is none, return a tool without hints, so that a person is asked about calls to it.
        """
        return self._toolbox.tools.get(name) or Tool(name)

    # -- catalogues --------------------------------------------------------------------------------

    @property
    def known(self) -> list[Tool]:
        """All tools in the toolbox and of the servers.

        The latest list of each server is used, even if it comes from an earlier process, so that
        names do not depend on which servers are up. Changed tools appear as the configuration shows
        them, and hidden tools are omitted. The list is the same object until something changes.
        """
        return self._all.shown

    @property
    def _all(self) -> NamedTools:
        if self._named is not None:
            return self._named

        if self._whole is not None:
            # Take the names from the whole offer, so that a tool has the same name in every
            # profile.
            named = self._whole._all
            self._named = NamedTools(
                real=list(filter(self.has_tool, named.real)),
                shown=list(filter(self.has_tool, named.shown)),
                hidden=list(filter(self.has_tool, named.hidden)),
            )
        else:
            named = name_tools(self._toolbox, self.modules)
            self._named = dataclasses.replace(
                named, real=self._with_targets(named.real), shown=self._with_targets(named.shown)
            )
        return self._named

    @property
    def known_catalogue(self) -> Catalogue:
        """The compiled tools of `known`, which are used to describe tools, not to run them."""
        if self._known_catalogue is None:
            known = self.known
            self._known_catalogue = Catalogue(known, self.latent(known), unlisted=self._all.hidden)
        return self._known_catalogue

    @property
    def catalogue(self) -> Catalogue:
        """The compiled tools for new runs: the toolbox, the tools that servers have listed in this
        process, and the latest lists of servers that start when one of their tools is called.
        """
        if self._catalogue is None:
            self._catalogue = self.compiled(self._present(self.known))
        return self._catalogue

    @property
    def real_catalogue(self) -> Catalogue:
        """Like `catalogue`, but with every tool as listed by its server, for plans of published
        ideas.
        """
        if self._real_catalogue is None:
            self._real_catalogue = self.compiled(self._present(self._all.real))
        return self._real_catalogue

    def _present(self, tools: Iterable[Tool]) -> list[Tool]:
        """Return the tools that runs can call: those of this process and of callable servers."""
        return [
            tool for tool in tools if tool.module is None or self.modules[tool.module].is_callable
        ]

    def compiled(self, tools: list[Tool]) -> Catalogue:
        """Return a catalogue of tools, some of which can be latent. Calls can also name hidden
        tools.
        """
        hidden = self._present(self._all.hidden)
        return Catalogue(tools, self.latent(tools), unlisted=hidden)

    def latent(self, tools: Iterable[Tool]) -> list[ToolKey]:
        """Return the tools of this process without an activity, whose results a mind writes."""
        own = [tool for tool in tools if tool.module is None and not is_reader(tool)]
        return [tool.key for tool in own if self._toolbox.activity_for(tool) is None]

    def named(self, keys: Iterable[ToolKey], caller: str) -> list[Tool]:
        """Return the current tools with these keys, including rooms, each only once."""
        keys = list(keys)
        rooms = self.rooms((module for module, _ in keys), caller)
        present = self.to(caller).real_catalogue.joined(rooms, ())
        tools: dict[ToolKey, Tool] = {}
        for key in keys:
            tool = present.get(key)
            if tool is not None:
                tools[tool.key] = tool

        return list(tools.values())

    def rooms(self, modules: Iterable[JSON], caller: str) -> list[Tool]:
        """Return the tools of the clean rooms and ideas among these servers."""
        tools: list[Tool] = []
        for module in dict.fromkeys(name for name in modules if isinstance(name, str)):
            if module == ANONYMOUS:
                tools.append(SOLVE)
            elif module.startswith(IDEA):
                idea = self.idea(module, caller)
                if idea is not None:
                    tools.append(idea)

        return tools

    # -- tools that pass their calls to others -----------------------------------------------------

    def _with_targets(self, offered: list[Tool]) -> list[Tool]:
        """Let each tool in the toolbox that names a server pass its calls to a tool of that server.

        If the server's tool is unknown, the tool that names it is omitted. Tools that name ideas
        are also omitted, because not every caller is allowed to use these ideas.
        """
        own = {id(tool) for tool in self._toolbox if tool.module is not None}
        if not own:
            return offered

        remote = Catalogue(
            tool for tool in offered if tool.module is not None and id(tool) not in own
        )
        tools: list[Tool] = []
        for tool in offered:
            if id(tool) not in own:
                tools.append(tool)
            elif not tool.in_room:
                with suppress(UnknownToolError):
                    tools.append(passing(tool, _remote_target(tool, remote)))

        return tools

    def passing_to_ideas(self, caller: str) -> list[Tool]:
        """Return the tools in the toolbox that pass calls to ideas published to this caller."""
        tools: list[Tool] = []
        for tool in self._toolbox:
            if tool.in_room:
                target = self.idea(str(tool.module), caller)
                if target is not None and self.to(caller).has_tool(tool):
                    tools.append(passing(tool, target))

        return tools

    def with_defined(
        self,
        tools: Iterable[Tool],
        defined: Iterable[Tool],
        more: Iterable[Tool] = (),
        *,
        caller: str,
    ) -> Catalogue:
        """Compile `tools` and `more`. Tools defined by a context replace tools of this process with
        the same names.

        Raises:
            PlanError: a definition passes its calls to a tool or an idea that does not exist here.
        """
        own = {tool.name: self._completed(tool, caller) for tool in defined}
        left = [tool for tool in tools if tool.module is not None or tool.name not in own]
        return self.to(caller).compiled([*left, *own.values(), *more])

    def _completed(self, tool: Tool, caller: str) -> Tool:
        """Return a copy of a tool defined by a context, completed with the tool that answers its
        calls.

        A context can come from a mind. Its definitions can therefore run only tools that already
        exist in this process, and the rules for these tools apply.

        Raises:
            PlanError: there is no such tool or idea in this process.
        """
        if tool.module is None and tool.activity is None:
            return tool
        try:
            if tool.module is None:
                return self._with_activity(tool, str(tool.activity), caller)
            if tool.in_room:
                target = self.idea(tool.module, caller)
            else:
                target = _remote_target(tool, self.to(caller).catalogue)
            if target is None:
                raise UnknownToolError(f"you have no published idea {quoted(tool.module)}")
            return passing(tool, target)
        except UnknownToolError as error:
            member = "_activity" if tool.module is None else "_module"
            raise PlanError(
                f"tool {quoted(tool.name)}: {member}: {error}{self.to(caller).missing.sentences()}"
            ) from None

    def _with_activity(self, tool: Tool, activity: str, caller: str) -> Tool:
        """Return a tool that passes its calls to an activity in the toolbox and has the hints of
        the activity's tool.
        """
        code = self._tool_of_activity(self._toolbox.activity(activity).name)
        profile = self.to(caller).profile
        if profile is not None and not profile.admits_tool(code):
            raise UnknownToolError(profile.refusal("tool", code.name))
        return dataclasses.replace(tool, annotations=code.annotations, passes_to=code)

    # -- waiting for servers -----------------------------------------------------------------------

    async def settle(self) -> Catalogue:
        """Wait up to `SETTLE_SECONDS` for every server to be up or have failed, and return the
        catalogue.
        """
        await self.modules.settled(timeout=SETTLE_SECONDS)
        return self.catalogue

    async def know_names(self) -> None:
        """If rules allow tools by name alone, wait up to `SETTLE_SECONDS` until every server's
        tools are known. Otherwise, the first server to come up would own a name until another
        server lists a tool with the same name.
        """
        if self._by_name:
            await self.modules.known(SETTLE_SECONDS)

    async def reach(self, modules: Iterable[str | None]) -> None:
        """Wait up to `SETTLE_SECONDS` for these servers to list their tools or fail.

        Servers that are not configured are ignored, as is None, which means this process.
        """
        await self.know_names()
        configured = {*modules} & {*self.modules.names}
        unlisted = [name for name in configured if name and not self.modules[name].listed]
        await self.modules.reach(unlisted, SETTLE_SECONDS)

    async def unreached(self, modules: Collection[str | None]) -> list[ModuleStatus]:
        """Wait as `reach` does, and return the servers that have not listed their tools.

        If None is among the names, wait for every server. Servers that are disabled or not
        configured are ignored.
        """
        names = [status.name for status in self._unlisted(modules)]
        if names:
            await self.modules.reach(names, SETTLE_SECONDS)
        return self._unlisted(modules)

    def _unlisted(self, modules: Collection[str | None]) -> list[ModuleStatus]:
        return [
            status
            for status in self.modules.statuses()
            if status.state != "disabled"
            and not self.modules[status.name].listed
            and (status.name in modules or None in modules)
        ]

    def deadline(self) -> float:
        """Return the time, on the clock of `anyio.current_time`, until which a run that starts now
        can wait for servers.
        """
        return anyio.current_time() + SETTLE_SECONDS

    async def until(self, enough: Callable[[], bool], deadline: float) -> None:
        """Wait until `enough` is true, no server is connecting, or the deadline has passed."""
        await self.modules.until(enough, max(0.0, deadline - anyio.current_time()))


def _remote_target(tool: Tool, catalogue: Catalogue) -> Tool:
    """Return the server's tool that a definition names.

    If the tool does not exist, raise `UnknownToolError`, whose message suggests the nearest names.
    """
    name = tool.activity or tool.name
    return catalogue.get((tool.module, name)) or catalogue.find(name, tool.module)
