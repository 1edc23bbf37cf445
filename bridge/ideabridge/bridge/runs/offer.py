"""Offer: every tool of the toolbox and of the modules, under names that do not collide.

`Offer` compiles the tools into catalogues: the tools that modules have listed in this process, to
run calls, and all known tools, to name and search them. It waits for modules whose tools a plan or
a task needs. `ModuleLists` stores what each module listed when it was last up, so that names do not
depend on which modules are up.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Collection, Container, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from typing import Final

import anyio

from ideabridge.bridge.configuration import Configuration, module_fingerprint
from ideabridge.bridge.context.errors import MessageError
from ideabridge.bridge.context.messages import Message, read_context
from ideabridge.bridge.context.reader import is_reader
from ideabridge.bridge.context.references import quoted
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.loop.catalogue import Catalogue, chosen_tools, has_wildcard, matcher
from ideabridge.bridge.loop.policy import allows_by_name, effective_hints
from ideabridge.bridge.modules.errors import ToolNotAllowedError
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.modules.settings import ModuleStatus, Way
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.programs.names import IDEAS, ProgramNames, identifier
from ideabridge.bridge.programs.sandbox import ASK, AbsentServers
from ideabridge.bridge.programs.steps import RUN_PROGRAM, names_program, programs_in, with_effects
from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ToolDefinitionError, UnknownToolError
from ideabridge.tools.names import (
    did_you_mean,
    is_disguised,
    is_safe_name,
    safe_name,
    shown_name,
    skeleton,
)
from ideabridge.tools.schema import check_schema
from ideabridge.tools.tool import ANONYMOUS, IDEA, Tool, ToolKey
from ideabridge.tools.toolbox import Toolbox, with_fixed

logger: Final = logging.getLogger(__name__)

_LOGGED_TOOLS: Final = 5
"""Most tools that one line of the log names."""

_AWAY: Final = 600
"""Most characters that an error about an unknown tool spends on the reasons why
modules are not up."""

_REFUSED: Final = 5
"""Most reasons for tools that cannot be called in an error about a program."""

_LOOK_SECONDS: Final = 3.0
"""Seconds that a plan waits for failed modules that may have a tool which no other module has."""

MAX_PATTERNS: Final = 100
"""The most patterns with wildcards that choose tools: each is held against the name of every
tool."""

MAX_IDEAS: Final = 100
"""The most published ideas that patterns such as `idea:*` offer: each adds its schema
to every Request."""

_SHOWN_PATTERNS: Final = 10
_SHOWN_PATTERN: Final = 100
"""The most patterns that an error repeats, and the most characters of each."""

SETTLE_SECONDS: Final = 30.0
"""Seconds that a run waits for modules that are connecting before it reports that a
tool is unknown."""


SOLVE: Final = Tool(
    "solve",
    "Solve a task in a clean room: the agent loop on the task, which sees its input and "
    "_imports and nothing else.",
    {
        "type": "object",
        "properties": {
            "task": {"type": "string", "description": "What to do, in words."},
            "input": {"type": "object", "description": "What †input reads there."},
            "tools": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Names or patterns of tools of this run that it may call; none if absent.",
            },
            "output_schema": {
                "type": "object",
                "description": "JSON Schema of the result; text if absent.",
            },
        },
        "required": ["task"],
        "additionalProperties": False,
    },
    module=ANONYMOUS,
)
"""The tool of `_module: "anonymous"`; latent tools of the process can be called there, too."""


class Offer:
    """The tools of a toolbox and of the modules.

    Args:
        idea: returns the tool of `idea:NAME` for a caller; see `idea_tool`.
        idea_names: returns the names of the ideas that are published to a caller, the
            most used first.
        configuration: says whether rules allow tools by their names alone (see `names_settled`),
            and whether a project file is not used.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        modules: Modules,
        idea: Callable[[str, str], Tool | None],
        idea_names: Callable[[str], list[str]],
        configuration: Configuration,
    ) -> None:
        self._toolbox = toolbox
        self._modules = modules
        self._idea = idea
        self._idea_names = idea_names
        self._configuration = configuration
        self._by_name = allows_by_name(configuration.approval_setting)
        self._known: list[Tool] | None = None
        self._catalogue: Catalogue | None = None
        self._all: Catalogue | None = None
        for tool in toolbox:
            if (
                tool.module is not None
                and not tool.in_room
                and tool.module not in configuration.modules
            ):
                logger.warning(
                    "tool %s is not offered: no server %r is configured", tool.name, tool.module
                )

    def forget(self) -> None:
        """Forget the compiled tools after a module came up, went down or changed its tools."""
        self._known = self._catalogue = self._all = None

    @property
    def known(self) -> list[Tool]:
        """Every tool of the toolbox and of the modules, by the last list of each module, which an
        earlier process may have stored. So a name does not depend on which modules are up. The same
        list object until something changes.
        """
        if self._known is None:
            offered = offered_tools(
                self._toolbox, self._modules.known_tools(), self._modules.reserved()
            )
            self._known = self._with_targets(offered)
        return self._known

    def _with_targets(self, offered: list[Tool]) -> list[Tool]:
        """Let tools of the toolbox that name a server pass their calls to its tools. One whose tool
        is not known, and one that names an idea, which not every caller has, is left out.
        """
        own = {id(tool) for tool in self._toolbox if tool.module is not None}
        if not own:
            return offered

        remote = Catalogue(
            tool for tool in offered if tool.module is not None and id(tool) not in own
        )
        found: list[Tool] = []
        for tool in offered:
            if id(tool) not in own:
                found.append(tool)
            elif not tool.in_room:
                with suppress(UnknownToolError):
                    found.append(passing(tool, _remote_target(tool, remote)))

        return found

    def _passing_to_ideas(self, caller: str) -> list[Tool]:
        """The tools of the toolbox that pass their calls to ideas, as far as these are
        published to a caller.
        """
        own = [tool for tool in self._toolbox if tool.in_room]
        targets = [(tool, self._idea(str(tool.module), caller)) for tool in own]
        return [passing(tool, target) for tool, target in targets if target is not None]

    def _defined(self, tool: Tool, caller: str) -> Tool:
        """A tool that a context defines, with the tool that answers its calls.

        A context may come from a mind: what it defines runs nothing that does not exist here
        already, under the rules for what runs.

        Raises:
            PlanError: there is no such tool or idea here.
        """
        if tool.module is None and tool.activity is None:
            return tool
        try:
            if tool.module is None:
                # An activity without a tool has no hints, so a person is asked.
                name = self._toolbox.activity(str(tool.activity)).name
                code = self._toolbox.tools.get(name) or Tool(name)
                return dataclasses.replace(tool, annotations=code.annotations, passes_to=code)
            if not tool.in_room:
                return passing(tool, _remote_target(tool, self.catalogue))
            target = self._idea(tool.module, caller)
            if target is None:
                raise UnknownToolError(f"nothing is published to you as {quoted(tool.module)}")
            return passing(tool, target)
        except UnknownToolError as error:
            member = "_activity" if tool.module is None else "_module"
            raise PlanError(
                f"tool {quoted(tool.name)}: {member}: {error}{self.missing()}"
            ) from None

    @property
    def known_catalogue(self) -> Catalogue:
        """The tools of `known`, compiled: to describe them, not to run them."""
        if self._all is None:
            self._all = self._compiled(self.known)
        return self._all

    @property
    def catalogue(self) -> Catalogue:
        """The tools that runs are made with, compiled: those that modules have listed
        in this process.
        """
        if self._catalogue is None:
            tools = [
                tool
                for tool in self.known
                if tool.module is None or self._modules[tool.module].listed
            ]
            self._catalogue = self._compiled(tools)
        return self._catalogue

    def _compiled(self, tools: list[Tool]) -> Catalogue:
        return Catalogue(tools, self.latent(tools))

    def latent(self, tools: Iterable[Tool]) -> list[ToolKey]:
        """The tools of this process that have no activity, so that a mind writes their result."""
        own = [tool for tool in tools if tool.module is None and not is_reader(tool)]
        return [tool.key for tool in own if self._toolbox.activity_for(tool) is None]

    async def settled(self) -> Catalogue:
        """The catalogue once every module is up or has failed, at most `SETTLE_SECONDS` later."""
        await self._modules.settled(timeout=SETTLE_SECONDS)
        return self.catalogue

    async def names_settled(self) -> None:
        """Where rules allow tools by their names alone, wait until the tools of every module are
        known, at most `SETTLE_SECONDS`: a module that is up first has a name for itself until
        another module lists a tool of that name.
        """
        if self._by_name:
            await self._modules.known(SETTLE_SECONDS)

    async def reach(self, modules: Iterable[str | None]) -> None:
        """Wait until these modules, as far as they are configured, are up or have failed, at most
        `SETTLE_SECONDS`.
        """
        await self.names_settled()
        names = {*modules} & {*self._modules.names}
        await self._modules.reach(
            [one for one in names if one and not self._modules[one].listed], SETTLE_SECONDS
        )

    async def listed(self, needed: Collection[str | None]) -> list[ModuleStatus]:
        """Wait until modules have listed their tools or have failed, at most `SETTLE_SECONDS`;
        return those that have not listed their tools.

        None among the names means every module. Modules that are disabled or not
        configured are ignored.
        """
        names = [one.name for one in self._unlisted(needed)]
        if names:
            await self._modules.reach(names, SETTLE_SECONDS)
        return self._unlisted(needed)

    def _unlisted(self, needed: Collection[str | None]) -> list[ModuleStatus]:
        return [
            one
            for one in self._modules.away()
            if not self._modules[one.name].listed and (one.name in needed or None in needed)
        ]

    def has_all(self, patterns: Iterable[str] | None) -> bool:
        """True if all patterns are names of present tools or ideas, so that waiting for modules
        is not necessary.
        """
        names = {tool.name for tool in self.catalogue.tools}
        return bool(patterns) and all(one in names or one.startswith(IDEA) for one in patterns)

    async def catalogue_of(self, plan: Plan, caller: str) -> Catalogue:
        """The tools that a plan names, for its journal and its idea. If one is unknown: all tools,
        so that the error can name the nearest.

        Raises:
            SchemaError, PlanError: the plan's input schema is invalid, or its input does
                not satisfy it.
            PlanError: a call names a version of an idea that does not exist.
        """
        plan.check_input()
        await self.names_settled()
        if plan.tools:
            await self.reach(tool.module for tool in _tools_of(plan))

        catalogue = self.of_plan(plan, caller, plain_ideas=False)
        calls = [call for call in plan.calls if isinstance(call, dict)]
        missing = [call for call in calls if catalogue.look_up(call) is None]
        if missing:
            # Any module may have them.
            unowned = [call for call in missing if not isinstance(call.get("_module"), str)]

            def has_all() -> bool:
                present = self.of_plan(plan, caller, plain_ideas=False)
                return all(present.look_up(call) is not None for call in unowned)

            until = anyio.current_time() + SETTLE_SECONDS
            owners = self._modules_of(missing)
            if owners is None:
                await self._modules.until(has_all, SETTLE_SECONDS)
                owners = self._modules_of(
                    call for call in missing if isinstance(call.get("_module"), str)
                )

            await self._modules.reach(owners or (), max(0.0, until - anyio.current_time()))
            # An idea has its plain name only where no tool, also of a module that is
            # not up, has it.
            self._expect_up(plan, self.of_plan(plan, caller, plain_ideas=False))
            catalogue = self.of_plan(plan, caller)
            if any(catalogue.look_up(call) is None for call in unowned):
                await self._modules.until(has_all, max(0.0, until - anyio.current_time()))
                away = [one.name for one in self._modules.away()]
                await self._modules.reach(away, _LOOK_SECONDS)
                self._expect_up(plan, self.of_plan(plan, caller, plain_ideas=False))
                catalogue = self.of_plan(plan, caller)

            self._expect_versions(plan, catalogue, caller)

        known = all(catalogue.look_up(call) is not None for call in calls)
        if known:
            more = [
                *_for_rooms(catalogue, calls),
                *await self._for_programs(plan, catalogue, caller),
            ]
            return catalogue.used_by(plan.calls, more)

        return Catalogue(catalogue.tools, catalogue.latent, self.missing(missing))

    async def _for_programs(self, plan: Plan, catalogue: Catalogue, caller: str) -> list[Tool]:
        """The tools that the programs among the calls of a plan may call, and `run_program`
        with their effects.
        """
        programs = programs_in(plan.calls, catalogue)
        if not programs:
            return []

        names = await self.of_program("\n".join(programs), caller)
        tools: dict[ToolKey, Tool] = {}
        for program, place in programs.items():
            used = names.used_by(program)
            try:
                called = self.tools_of(
                    ProgramNames.of(used, names.listed), asks=ASK in program
                ).tools
            except PlanError as error:
                raise PlanError(f"calls[{place}]: {error}") from None

            modules = used["modules"] if isinstance(used["modules"], dict) else {}
            # A server that is only imported has to be there, too.
            imported = [
                tool
                for name, held in modules.items()
                if not held
                for tool in names.tools[name].values()
            ]
            tools |= {tool.key: tool for tool in (*called, *imported)}

        effects = with_effects(tool for tool in tools.values() if not tool.asks_mind)
        more = [*tools.values(), effects]
        known = ProgramNames(catalogue.used_by(plan.calls, more).tools)
        for program, place in programs.items():
            if known.used_by(program) != names.used_by(program):
                raise PlanError(
                    f"calls[{place}].program: its names depend on tools that the "
                    "plan does not have, because several names look alike in "
                    "Python; run it as a plan of its own"
                )

        return more

    async def of_program(self, program: str, caller: str) -> ProgramNames:
        """The names of all tools in a program, once the modules that it names are up
        or have failed.
        """
        words = {*re.findall(r"\w+", program)}
        modules = {identifier(name): name for name in self._modules.names}
        await self.reach(
            name for python, name in modules.items() if python in words or name in words
        )
        rooms = self._rooms(
            [f"{IDEA}{word}" for word in sorted(words)] if IDEAS in words else (), caller
        )
        return ProgramNames([*self.known, *rooms])

    def tools_of(self, names: ProgramNames, *, asks: bool) -> Catalogue:
        """Compile the tools that a program uses; `asks`: it asks a mind.

        Raises:
            PlanError: the module of one has never been up here. A call waits for one that
                is tried again.
        """
        tools = names.listed
        present = self.catalogue
        for tool in tools:
            absent = tool.module is not None and not tool.in_room and present.get(tool.key) is None
            if tool.module is not None and absent:
                why = self.why_away(tool.module)
            else:
                why = None
            if why is not None:
                raise PlanError(f"{tool.label}: {why}")

        return self._compiled([*tools, SOLVE] if asks else tools)

    def why_away(self, module: str) -> str | None:
        """Return a sentence that says why a configured module is not up, has not listed its tools
        or has none; None if it has some, or does not exist.
        """
        for one in self._modules.statuses():
            if one.name == module:
                return _why_away(one, listed=self._modules[module].listed)
        return None

    def why_refused(self, name: str, module: str | None = None) -> str | None:
        """Return a sentence that says why a tool cannot be called that a module has or may have:
        the configuration does not allow it, its definition cannot be used, or the module is
        disabled, not up or without a list. None for a tool that is unknown.

        Args:
            name: the tool's name, or MODULE_NAME.
            module: the module that a call names; None: any module.
        """
        if module is None:
            for owner in self._modules.names:
                own_name = name.removeprefix(f"{owner}_")
                for refused in self._modules[owner].refused:
                    if refused in (name, own_name):
                        return str(self._modules[owner].why_without(refused))

            return None

        if module not in self._modules:
            return None

        why = self._modules[module].why_without(name)
        if isinstance(why, ToolNotAllowedError):
            return str(why)

        away = self.why_away(module)
        if away is not None:
            return away
        return None if why is None else str(why)

    @contextmanager
    def naming_refused(self, program: str) -> Generator[None]:
        """Add to an error about a program why tools and servers that it may name
        cannot be called.
        """
        try:
            yield
        except PlanError as error:
            words = {*re.findall(r"\w+", program)}
            reasons: list[str] = []
            for module in self._modules.names:
                if {module, identifier(module)} & words:
                    reasons += self._refused_among(words, module)
            more = "".join(
                f"\n{reason}" for reason in reasons[:_REFUSED] if reason not in str(error)
            )
            raise PlanError(f"{error}{more}") from None

    def _refused_among(self, words: set[str], module: str) -> list[str]:
        held = self._modules[module]
        if held.state == "disabled":
            return [f"server {module!r} is disabled in the configuration"]
        names = [name for name in held.refused if {name, identifier(name)} & words]
        return [str(held.why_without(name)) for name in names]

    def absent(self) -> AbsentServers:
        """Why a module that a program imports may not be here."""
        servers: dict[str, str] = {}
        for one in self._modules.statuses():
            why = _why_away(one, listed=self._modules[one.name].listed)
            if why is not None and not self._modules[one.name].tools:
                servers[identifier(one.name)] = servers[one.name] = why
        return AbsentServers(servers, self.missing())

    def missing(self, calls: Iterable[JSONObject] = ()) -> str:
        """Why tools may be missing, as sentences for errors about unknown tools, each after a
        space: the project file is not used, or modules are not up. Empty: there is no such reason.
        The modules that the calls name are the first.
        """
        return f"{self.unused_file()}{self.away(calls)}"

    def unused_file(self) -> str:
        """Say after a space that the project file is not used; empty if it is, or there is none."""
        untrusted = self._configuration.untrusted
        return "" if untrusted is None else f" {untrusted.told_to_hosts()}"

    def lacking(self, key: ToolKey) -> str | None:
        """Return what a call of a tool lacks here, whatever is up; see `lacking`."""
        return lacking(self._configuration, key, self._toolbox)

    def away(self, calls: Iterable[JSONObject] = ()) -> str:
        """The modules that are not up, as a sentence for errors about unknown tools; empty if all
        are up. Those that the calls name are the first.
        """
        named = [call.get("_module") for call in calls]
        away = list[str]()
        left = _AWAY
        for one in sorted(self._modules.away(), key=lambda status: status.name not in named):
            why = f"{one.name} ({one.why[:_AWAY]})"
            left -= len(why)
            # A reason that was cut off may lose the command that helps.
            away.append(why if left >= 0 or not away else one.name)

        return f" Servers that are not up: {', '.join(away)}." if away else ""

    def _modules_of(self, calls: Iterable[JSONObject]) -> list[str] | None:
        """The modules that calls name, or that are known to have their tools; None if any module
        may have one of them. Names of modules that are not configured are left out.
        """
        known = Catalogue(self.known)
        names: list[str] = []
        for call in calls:
            tool = known.look_up(call)
            named = call.get("_module")
            owner = tool.module if tool is not None else None
            if isinstance(named, str):
                owner = named

            if owner is None:
                return None
            if owner in self._modules:
                names.append(owner)

        return names

    def _expect_up(self, plan: Plan, catalogue: Catalogue) -> None:
        """Refuse a tool name without its module if that module is not up, because the name could
        mean another tool.
        """
        away = {module: {*names} for module, names in self._modules.reserved().items()}
        for tool in self._modules.known_tools():
            if tool.module is not None and not self._modules[tool.module].listed:
                away.setdefault(tool.module, set()).add(tool.name)

        for place, call in enumerate(plan.calls):
            if isinstance(call, dict) and "_module" not in call and catalogue.look_up(call) is None:
                name = call.get("_tool")
                owners = [module for module, names in away.items() if name in names]
                why = [reason for module in owners if (reason := self.why_away(module)) is not None]
                if why:
                    raise PlanError(f"calls[{place}]: {name}: {why[0]}")

    def expect_callable(self, plan: Plan, catalogue: Catalogue) -> None:
        """Refuse a tool that a module has or may have, and that cannot be called, with the reason.

        Raises:
            PlanError: a call names such a tool, which is not in `catalogue` (`catalogue_of`).
        """
        for place, call in enumerate(plan.calls):
            if not isinstance(call, dict) or catalogue.look_up(call) is not None:
                continue
            name = call.get("_tool")
            module = call.get("_module")
            if isinstance(name, str) and (module is None or isinstance(module, str)):
                why = self.why_refused(name, module)
                if why is not None:
                    raise PlanError(f"calls[{place}]: {name[:100]}: {why}")

    def _expect_versions(self, plan: Plan, catalogue: Catalogue, caller: str) -> None:
        """Refuse a call of an idea in a version that does not exist."""
        for place, call in enumerate(plan.calls):
            if not isinstance(call, dict) or catalogue.look_up(call) is not None:
                continue
            module = call.get("_module")
            if (
                isinstance(module, str)
                and module.startswith(IDEA)
                and self._idea(module, caller) is None
            ):
                current = self._idea(module.partition("@")[0], caller)
                if current is not None:
                    raise PlanError(
                        f"calls[{place}]: {module[:100]!r}: there is no such version; "
                        f"{current.module!r} stands for {current.remote_name}"
                    )

    def of_plan(self, plan: Plan, caller: str, *, plain_ideas: bool = True) -> Catalogue:
        """The present tools, with the rooms that a plan names and the tools that it defines.

        Args:
            plan: the plan.
            caller: the ideas must be published to it.
            plain_ideas: also the ideas that calls name without `_module`, if no tool
                has their name.
        """
        named = (
            call.get("_module")
            for call in plan.calls
            if isinstance(call, dict) and not _is_step(call)
        )
        rooms = self._rooms(named, caller)
        known = self.catalogue
        if any(names_program(call, self.known_catalogue) for call in plan.calls):
            rooms.append(RUN_PROGRAM)

        rooms += self._passing_to_ideas(caller)
        if plan.tools:
            catalogue = self.with_defined(known.tools, _tools_of(plan), rooms, caller=caller)
        else:
            catalogue = Catalogue([*known.tools, *rooms], known.latent) if rooms else known

        ideas = self._plain_ideas(plan, catalogue, caller) if plain_ideas else []
        return catalogue.joined(ideas, ()) if ideas else catalogue

    def _plain_ideas(self, plan: Plan, catalogue: Catalogue, caller: str) -> list[Tool]:
        """The ideas that calls name without `_module`, because no tool has their name."""
        names = {
            str(call.get("_tool"))
            for call in plan.calls
            if isinstance(call, dict) and "_module" not in call and catalogue.look_up(call) is None
        }
        ideas = (
            self._idea(f"{IDEA}{name}", caller) for name in sorted(names) if is_safe_name(name)
        )
        return [idea for idea in ideas if idea is not None]

    def _rooms(self, modules: Iterable[JSON], caller: str) -> list[Tool]:
        """The tools of clean rooms and ideas among modules."""
        tools: list[Tool] = []
        for module in dict.fromkeys(one for one in modules if isinstance(one, str)):
            if module == ANONYMOUS:
                tool = SOLVE
            elif module.startswith(IDEA):
                tool = self._idea(module, caller)
            else:
                tool = None

            if tool is not None:
                tools.append(tool)

        return tools

    async def offered(
        self, patterns: Collection[str] | None, defined: Iterable[Tool] = (), *, caller: str
    ) -> Catalogue:
        """`chosen`, once the modules of these tools are up or have failed.

        Raises:
            PlanError: no tool matches the patterns, or too many have wildcards.
        """
        wild = sum(1 for one in set(patterns or ()) if has_wildcard(one))
        if wild > MAX_PATTERNS:
            raise PlanError(
                f"tools: expected at most {MAX_PATTERNS} patterns such as git_*, "
                f"besides names; found {wild:,}"
            )

        await self.names_settled()
        defined = list(defined)
        await self.reach(tool.module for tool in defined)
        if not self.has_all(patterns):
            await self._modules.until(lambda: self.has_all(patterns), SETTLE_SECONDS)
            await self.reach(tool.module for tool in chosen_tools(self.known, patterns or ()))

        catalogue = self.chosen(patterns, defined, caller=caller)
        if patterns and not catalogue.tools:
            there = [*(tool.name for tool in self.known), *self._idea_names(caller)]
            first = next(iter(patterns)).removeprefix(IDEA)
            shown = ", ".join(one[:_SHOWN_PATTERN] for one in [*patterns][:_SHOWN_PATTERNS])
            if len(patterns) > _SHOWN_PATTERNS:
                shown += f" and {len(patterns) - _SHOWN_PATTERNS:,} more"

            raise PlanError(
                f"tools: nothing matches {shown}.{did_you_mean(first, there)}{self.missing()}"
            )

        return catalogue

    def expect_tool(self, offered: Catalogue, name: str) -> None:
        """Check that a tool that a context names is offered.

        Raises:
            PlanError: it is not; the message has the nearest names.
        """
        if chosen_tools(offered.tools, [name]):
            return
        near = did_you_mean(name, [tool.name for tool in self.known])
        raise PlanError(
            f"context: a tool message names {quoted(name)}, which is not "
            f"here.{near}{self.missing()}"
        )

    def chosen(
        self, patterns: Iterable[str] | None, defined: Iterable[Tool] = (), *, caller: str
    ) -> Catalogue:
        """The tools whose names match the patterns (None: all), and those that a context defines.

        A name that no tool has, and a pattern such as `*` or `idea:*`, also stand for published
        ideas. A pattern that begins with `idea:` offers the `MAX_IDEAS` most used ideas that match,
        any other pattern the `listed_ideas` most used ones.

        Args:
            patterns: names or patterns such as `git_*`; `anonymous.solve`: clean rooms;
                `idea:NAME`: an idea.
            defined: tools of `tool` messages; each replaces a tool of the same name.
            caller: the ideas must be published to it.
        """
        own = list(defined)
        passing_to_ideas = self._passing_to_ideas(caller)
        if patterns is None and not own and not passing_to_ideas:
            return self.catalogue

        wanted = list(patterns or ())
        tools = [*self.catalogue.tools, *passing_to_ideas]
        if patterns is not None:
            tools = chosen_tools(tools, wanted)

        plain = [name for name in wanted if is_safe_name(name) and not self._names_tool(name)]
        matching, left_out = self._matching_ideas(wanted, caller)
        modules = [ANONYMOUS if one == f"{ANONYMOUS}.solve" else one for one in wanted]
        modules += [f"{IDEA}{name}" for name in (*plain, *matching)]
        chosen = self.with_defined(tools, own, self._rooms(modules, caller), caller=caller)
        if not left_out:
            return chosen

        missing = (
            f" {left_out:,} more published ideas match tools, and are offered "
            "only by name: idea:NAME."
        )
        return Catalogue(chosen.tools, chosen.latent, missing)

    def _names_tool(self, name: str) -> bool:
        """Return whether a tool of the toolbox or of a module, which may not be up, has a name."""
        return any(name in (tool.name, tool.remote_name) for tool in self.known) or any(
            name in names for names in self._modules.reserved().values()
        )

    def _matching_ideas(self, patterns: Iterable[str], caller: str) -> tuple[list[str], int]:
        """The names of the ideas that patterns with wildcards match, and how many more match."""
        wild = [one for one in dict.fromkeys(patterns) if has_wildcard(one)]
        if not wild:
            return [], 0

        of_ideas = matcher([one.removeprefix(IDEA) for one in wild if one.startswith(IDEA)])
        of_all = matcher([one for one in wild if not one.startswith(IDEA)])
        names = self._idea_names(caller)
        named = [name for name in names if of_ideas(name)]
        others = [name for name in names if of_all(name)]
        found = dict.fromkeys((*named[:MAX_IDEAS], *others[: self._configuration.listed_ideas]))
        return [*found], len({*named, *others}) - len(found)

    def named(self, keys: Iterable[ToolKey], caller: str) -> list[Tool]:
        """The present tools with these keys, rooms among them, each once."""
        keys = list(keys)
        known = Catalogue(
            [*self.catalogue.tools, *self._rooms((module for module, _ in keys), caller)]
        )
        found = [known.get(key) for key in keys]
        return list({tool.key: tool for tool in found if tool is not None}.values())

    def with_defined(
        self,
        tools: Iterable[Tool],
        defined: Iterable[Tool],
        more: Iterable[Tool] = (),
        *,
        caller: str,
    ) -> Catalogue:
        """Compile tools and `more`, with those a context defines in place of the process's tools
        of their names.

        Raises:
            PlanError: what a definition names to answer its calls is not here.
        """
        own = {tool.name: self._defined(tool, caller) for tool in defined}
        left = [tool for tool in tools if tool.module is not None or tool.name not in own]
        return self._compiled([*left, *own.values(), *more])


def passing(tool: Tool, target: Tool) -> Tool:
    """A tool that passes its calls to `target`, under its own name and description, and with its
    own parameters, if it has any.
    """
    return dataclasses.replace(
        target,
        name=tool.name,
        description=tool.description or target.description,
        parameters=tool.parameters if tool.parameters.get("properties") else target.parameters,
        output=tool.output or target.output,
        remote_name=target.name_in_module,
        wire=None,
        passes_to=target,
    )


def _remote_target(tool: Tool, known: Catalogue) -> Tool:
    """The tool of a server that a definition names. UnknownToolError suggests the nearest names."""
    name = tool.activity or tool.name
    found = known.get((tool.module, name))
    return known.find(name, tool.module) if found is None else found


def _tools_of(plan: Plan) -> list[Tool]:
    """The tools that a plan defines."""
    return defined_tools(
        read_context([{"type": "tool", "tool": tool} for tool in plan.tools or ()])
    )


def named_tools(messages: Iterable[Message]) -> list[str]:
    """The existing tools that `tool` messages name: `{"type": "tool", "tool": "git_log"}`.

    Raises:
        MessageError: a name is empty or a pattern.
    """
    names: list[str] = []
    for message in messages:
        if message.type != "tool" or not isinstance(message.value, str):
            continue
        if not message.value or has_wildcard(message.value):
            raise MessageError(
                "a message of type 'tool': expected the name of one tool, "
                f"found {quoted(message.value)}"
            )

        names.append(message.value)

    return names


def defined_tools(messages: Iterable[Message]) -> list[Tool]:
    """The tools that `tool` messages define: `{"type": "tool", "tool": {"name", "description"?,
    "parameters"?, "output"?}}`, with the values they fix for their calls (see `with_fixed`). The
    activity that they fix runs them, or the one of the same name; without one they are latent. A
    definition that names a server or an idea is completed by `Offer.with_defined`.

    Raises:
        MessageError: a definition is malformed.
        SchemaError: a schema is invalid.
    """
    tools: list[Tool] = []
    for message in messages:
        if message.type != "tool" or isinstance(message.value, str):
            # A text names a tool that exists; see `named_tools`.
            continue

        value = message.value if isinstance(message.value, dict) else {}
        name = value.get("name")
        description = value.get("description", "")
        parameters = value.get("parameters", {"type": "object", "properties": {}})
        output = value.get("output")
        if not isinstance(name, str) or not name or not isinstance(description, str):
            raise MessageError("a message of type 'tool' needs a tool with a name, which is text")
        if not isinstance(parameters, dict) or not isinstance(output, dict | None):
            raise MessageError(
                f"tool {name[:100]!r}: parameters and output must be JSON "
                "Schemas, which are objects"
            )

        try:
            tool = with_fixed(Tool(name, description, parameters, output), value)
        except ToolDefinitionError as error:
            raise MessageError(str(error)) from None

        parameters = tool.parameters
        output = tool.output
        check_schema(parameters, what=f"the parameters of {name[:100]}")
        if output is not None:
            check_schema(output, what=f"the output of {name[:100]}")

        tools.append(tool)

    return tools


def offered_tools(
    toolbox: Toolbox, remote: Iterable[Tool], away: Mapping[str, Iterable[str]] | None = None
) -> list[Tool]:
    """The tools of the toolbox and of the modules. No tool shadows another: a module's tool gets
    the module as prefix if another tool has its name, or one that looks like it, or if it looks
    like a name of another module's tool.

    Args:
        toolbox: its tools keep their names.
        remote: the tools of the modules.
        away: by module that is not up, the names of its tools that `remote` therefore
            lacks; possibly none.
    """
    offered: list[Tool] = list(toolbox.tools.values())
    remote = list(remote)
    names = [(None, tool.name) for tool in offered] + [(tool.module, tool.name) for tool in remote]
    names += [(module, name) for module, others in (away or {}).items() for name in others]
    owners: dict[str, set[str | None]] = {}
    for module, name in names:
        owners.setdefault(skeleton(name), set()).add(module)

    modules = {*(away or ()), *(module for module, _ in names if module is not None)}
    # A tool also owns the name that it has with the prefix, and `module.tool`.
    prefixed: dict[str, set[str | None]] = {}
    for module, name in names:
        if module is not None:
            prefixed.setdefault(skeleton(f"{module}_{name}"), set()).add(module)

    qualifying = {f"{skeleton(module)}{sign}": module for module in modules for sign in "./"}

    def is_doubtful(tool: Tool) -> bool:
        shape = skeleton(tool.name)
        claimed = prefixed.get(shape, set()) | {
            module for start, module in qualifying.items() if shape.startswith(start)
        }
        return len(owners[shape]) > 1 or bool(claimed - {tool.module}) or is_disguised(tool.name)

    taken = {tool.name for tool in offered} | {
        tool.name for tool in remote if not is_doubtful(tool)
    }
    # Sorted: two prefixed names may differ only in a number, which must not depend on which
    # module came first.
    for place in sorted(
        range(len(remote)), key=lambda place: (remote[place].module or "", remote[place].name)
    ):
        tool = remote[place]
        if is_doubtful(tool):
            name = safe_name(f"{tool.module}_{tool.name}", taken)
            taken.add(name)
            remote[place] = dataclasses.replace(tool, name=name, remote_name=tool.name_in_module)

    return [*offered, *remote]


def lacking(configuration: Configuration, key: ToolKey, own: Container[str] | None) -> str | None:
    """Return what a call of a tool lacks under a configuration, as in "the server 'git', which is
    not configured here"; None if the tool may be here once its module is up.

    Args:
        configuration: has the modules.
        key: the module and the name of the tool.
        own: the names of the tools of the process; None: they are not known.
    """
    module, name = key
    if module is None:
        if own is None or name in own:
            return None
        return f"the tool {shown_name(name)[:64]!r}, which no file of tools has here"

    entry = configuration.modules.get(module)
    server = f"the server {shown_name(module)[:64]!r}"
    untrusted = configuration.untrusted
    if entry is None and untrusted is not None and module in untrusted.servers:
        return (
            f"{server}, which is only in the project's ideabridge.json, and nobody has "
            "trusted that as it is now"
        )

    if entry is None:
        return f"{server}, which is not configured here (mcpServers)"
    return f"{server}, which is disabled here" if entry.disabled else None


def look_alikes(tools: Iterable[Tool]) -> dict[ToolKey, str]:
    """Warnings about tools whose names could be mistaken for those of others, by `Tool.origin`."""
    groups: dict[str, list[Tool]] = {}
    for tool in tools:
        groups.setdefault(skeleton(tool.origin[1]), []).append(tool)

    warnings: dict[ToolKey, str] = {}
    for group in groups.values():
        plain = {tool.origin[1] for tool in group if is_safe_name(tool.origin[1])}
        for tool in group:
            name = tool.origin[1]
            if {name} == plain:
                # The others look like this one.
                continue

            others = [
                one for one in group if one.origin[1] != name and not is_disguised(one.origin[1])
            ]
            if len(plain) == 1:
                others = [one for one in others if one.origin[1] in plain]

            if others:
                warnings[tool.origin] = (
                    f"{shown_name(name)} looks like {', '.join(one.label for one in others[:3])}"
                )
            elif is_disguised(name):
                warnings[tool.origin] = (
                    f"{shown_name(name)} is not written in ASCII, as it seems to be"
                )

    return warnings


def naming_notes(toolbox: Toolbox, remote: Iterable[Tool]) -> list[str]:
    """Notes for people on the names of modules' tools: those that look like another's, and those
    that have another name in plans.
    """
    offered = offered_tools(toolbox, remote)
    flags = look_alikes(offered)
    notes: list[str] = []
    for tool in offered:
        module, name = tool.origin
        flag = flags.get(tool.origin)
        if module is None or (flag is None and tool.name == name):
            continue

        said = (
            flag or f"another server has a tool of the name {shown_name(name)}, or of one like it"
        )
        notes.append(
            f"{module}: {said}{'' if tool.name == name else f'; plans call it {tool.name}'}"
        )

    return notes


def _is_step(call: JSONObject) -> bool:
    return (call.get("_module"), call.get("_tool")) == RUN_PROGRAM.key


def _for_rooms(catalogue: Catalogue, calls: Iterable[JSONObject]) -> list[Tool]:
    """The tools that the clean rooms of a plan may call."""
    tools: list[Tool] = []
    for call in calls:
        wanted = call.get("tools")
        if (
            call.get("_module") == ANONYMOUS
            and call.get("_tool") == SOLVE.name
            and isinstance(wanted, list)
        ):
            tools.extend(
                chosen_tools(catalogue.tools, [one for one in wanted if isinstance(one, str)])
            )
    return tools


def _why_away(status: ModuleStatus, *, listed: bool) -> str | None:
    match status.state:
        case "up":
            if listed and status.tools:
                return None
            if listed:
                state = "is up, but has no tools that can be called"
            else:
                state = f"is up, but {status.why}"
        case "connecting":
            state = "is still connecting"
        case "disabled":
            state = "is disabled"
        case _:
            state = f"is down ({status.why})"
    return f"server {status.name!r} {state}, and no other tool takes the place of its own"


class ModuleLists:
    """The stored lists of the modules' tools, and how the modules are reached.

    The key of a list is the fingerprint of the module's configuration: a module of the same name
    with another command, address or filter does not use it. A list contains no secrets: `Modules`
    removes them from definitions.
    """

    def __init__(self, configuration: Configuration, modules: Modules, store: Store) -> None:
        self._modules = modules
        self._memory = store.tool_memory
        self._fingerprints = {
            name: module_fingerprint(configuration, name)
            for name, module in configuration.modules.items()
            if not module.disabled
        }

    def recall(self) -> None:
        """Give the modules their stored lists, before they connect. A module whose configuration
        has changed counts as another module: only the names stay reserved for it.
        """
        for name, fingerprint in self._fingerprints.items():
            way = self._memory.way(fingerprint)
            if way is not None and way.get("era") == "legacy":
                kind = "sse" if way.get("kind") == "sse" else self._modules[name].configuration.kind
                self._modules[name].recall_way(Way("legacy", kind, str(way.get("server", ""))))
            # A value may have become secret after its list was stored.
            listed = self._modules.secrets.redact(self._memory.tools(fingerprint))
            if isinstance(listed, list):
                tools = [Tool.from_json(one) for one in listed if isinstance(one, dict)]
                self._modules[name].recall(
                    tools, self._modules.secrets.mask(self._memory.instructions(fingerprint))
                )
            else:
                self._modules[name].reserved = self._memory.names(name)

    def keep(self, name: str) -> None:
        """Store how a module that is up was reached, and its list."""
        fingerprint = self._fingerprints.get(name)
        if fingerprint is None:
            return

        module = self._modules[name]
        if module.state != "up":
            return

        try:
            self._memory.keep_way(
                fingerprint, name, None if module.way is None else dataclasses.asdict(module.way)
            )
        except StoreError as error:
            logger.warning("keeping how server %s is reached: %s", name, error)

        if not module.listed or (
            module.is_unfinished and self._memory.tools(fingerprint) is not None
        ):
            # What was listed before is more.
            return

        listed = module.tools
        tools: list[JSON] = [{**tool.to_json(), "wire": tool.wire} for tool in listed]
        try:
            milder = _milder(self._memory.tools(fingerprint) or [], listed)
            if milder:
                # The new hints are valid. People who relied on being asked must know of them.
                if len(milder) > _LOGGED_TOOLS:
                    more = f"; and {len(milder) - _LOGGED_TOOLS} more"
                else:
                    more = ""
                logger.warning("server %s: %s%s", name, "; ".join(milder[:_LOGGED_TOOLS]), more)
                self._modules[name].note(milder)

            self._memory.keep_tools(fingerprint, name, tools)
            self._memory.keep_instructions(fingerprint, name, self._modules[name].instructions)
        except StoreError as error:
            # The store is busy or full. The module works without it; its list is stored the
            # next time it is up.
            logger.warning("keeping the tools of server %s: %s", name, error)


def _milder(then: list[JSON], now: list[Tool]) -> list[str]:
    """Return the promises that are new in the hints of tools. Calls that asked a
    person may now run.
    """
    known = {
        tool.name: tool for tool in (Tool.from_json(one) for one in then if isinstance(one, dict))
    }
    lines: list[str] = []
    for tool in now:
        before = known.get(tool.name)
        if before is None or before.annotations == tool.annotations:
            continue

        was = effective_hints(before.annotations)
        new = effective_hints(tool.annotations)
        if new[0] and not was[0]:
            lines.append(f"{shown_name(tool.name)} says now that it only reads; before, it did not")
        elif was[1] and not new[1]:
            lines.append(
                f"{shown_name(tool.name)} says now that it destroys nothing; before, it did not"
            )
        elif new[2] and not was[2]:
            lines.append(
                f"{shown_name(tool.name)} says now that it may be called again; before, it did not"
            )

    return lines
