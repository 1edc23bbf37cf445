"""Compile the catalogue of a plan, which contains the tools named by its calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import anyio

from ideabridge.bridge.context.written_call import WrittenCall, written_calls
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.loop.catalogue import Catalogue, chosen_tools
from ideabridge.bridge.offer.defined_tools import defined_by_plan
from ideabridge.bridge.offer.offer import SOLVE, Offer
from ideabridge.bridge.offer.program_tools import tools_of_programs
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.programs.steps import RUN_PROGRAM, names_program
from ideabridge.tools.encoding import list_or_empty
from ideabridge.tools.names import is_safe_name
from ideabridge.tools.tool import ANONYMOUS, IDEA, Tool, is_idea

_LOOK_SECONDS: Final = 3.0
"""How long, in seconds, a plan waits for servers that have failed, if one of them might have a tool
that no other server has.
"""


class PlanTools:
    """The tools that one plan can call.

    Args:
        offer: everything that a run could call now.
        plan: the plan.
        caller: the caller who runs the plan, and to whom ideas must be published.
        published: whether this is the plan of an idea, whose calls name tools as servers list them.

    Attributes:
        calls: the calls in the plan.
    """

    def __init__(self, offer: Offer, plan: Plan, caller: str, *, published: bool = False) -> None:
        self._offer = offer.to(caller)
        self._published = published
        self._plan = plan
        self._caller = caller
        self.calls = written_calls(plan.calls)

    def present(self, *, plain_ideas: bool = True) -> Catalogue:
        """Return the current tools, the rooms that the plan names, and the tools that the plan
        defines.

        Args:
            plain_ideas: whether a call without `_module` can name an idea. A tool with the same
                name takes precedence.

        Raises:
            PlanError: a definition passes its calls to a tool or idea that does not exist here.
        """
        offer = self._offer
        catalogue = offer.catalogue
        if self._published:
            catalogue = offer.real_catalogue

        rooms = self._rooms()
        defined = defined_by_plan(self._plan)
        if defined:
            catalogue = offer.with_defined(catalogue.tools, defined, rooms, caller=self._caller)
        elif rooms:
            catalogue = catalogue.joined(rooms, ())

        if plain_ideas:
            ideas = self._plain_ideas(catalogue)
            if ideas:
                catalogue = catalogue.joined(ideas, ())
        return catalogue

    def _rooms(self) -> list[Tool]:
        """Return the rooms that the plan names, and the tools that pass their calls to ideas."""
        offer = self._offer
        modules = [call.module for call in self.calls if call.key != RUN_PROGRAM.key]
        rooms = offer.rooms(modules, self._caller)
        if any(names_program(call, offer.known_catalogue) for call in self.calls):
            rooms.append(RUN_PROGRAM)

        return [*rooms, *offer.passing_to_ideas(self._caller)]

    def _plain_ideas(self, catalogue: Catalogue) -> list[Tool]:
        """Return the ideas named by calls without `_module`. A name refers to an idea only if no
        tool has the same name.
        """
        names: set[str] = set()
        for _, call in self._unknown_to(catalogue):
            if call.module is None and is_safe_name(call.tool):
                names.add(call.tool)

        modules = [f"{IDEA}{name}" for name in sorted(names)]
        return self._offer.rooms(modules, self._caller)

    async def catalogue(self) -> Catalogue:
        """Wait for the servers of the tools that the plan names to be up or have failed, and return
        the catalogue of these tools.

        The run's journal and idea record this catalogue. If one of the tools is unknown, the
        catalogue contains all tools, so that the error can suggest the nearest names.

        Raises:
            SchemaError: the plan's input schema is invalid.
            PlanError: the input does not satisfy its schema, or a call names a version of an idea
                that does not exist.
        """
        offer = self._offer
        self._plan.check_input()
        await offer.know_names()
        if self._plan.tools:
            await offer.reach(tool.module for tool in defined_by_plan(self._plan))

        catalogue = self.present(plain_ideas=False)
        unlisted: list[WrittenCall] = []
        for call in self.calls:
            if call.tool and not self._is_listed(catalogue.look_up(call)):
                unlisted.append(call)

        if unlisted:
            catalogue = await self._catalogue_with(unlisted)

        unknown = self._unknown_to(catalogue)
        if unknown:
            modules = {call.module for _, call in unknown}
            missing = offer.missing.sentences(modules)
            return Catalogue(catalogue.tools, catalogue.latent, missing)

        room_tools = _for_rooms(catalogue, self.calls)
        program_tools = await tools_of_programs(offer, self.calls, catalogue, self._caller)
        return catalogue.used_by(self.calls, [*room_tools, *program_tools])

    def _is_listed(self, tool: Tool | None) -> bool:
        """Return whether the definition of a tool is current.

        The definition of a tool whose server has not listed its tools in this process might be
        outdated.
        """
        if tool is None:
            return False

        modules = self._offer.modules
        if tool.module is None or tool.module not in modules:
            # The tool belongs to this process, to an idea or to a room, so it is always current.
            return True
        return modules[tool.module].listed

    async def _catalogue_with(self, unlisted: list[WrittenCall]) -> Catalogue:
        """Wait for the servers that have or might have the tools of these calls to be up or have
        failed, and return the current tools.
        """
        offer = self._offer
        deadline = offer.deadline()
        # If a call names no server, any server might have the tool.
        unowned = [call for call in unlisted if call.module is None]
        owned = [call for call in unlisted if call.module is not None]

        def has_unowned() -> bool:
            present = self.present(plain_ideas=False)
            return all(present.look_up(call) is not None for call in unowned)

        owners = self._owners_of(unlisted)
        if owners is None:
            await offer.until(has_unowned, deadline)
            owners = self._owners_of(owned) or []

        seconds_left = max(0.0, deadline - anyio.current_time())
        await offer.modules.reach(owners, seconds_left)
        catalogue = self._present_if_unambiguous()
        if any(catalogue.look_up(call) is None for call in unowned):
            # Some of these tools are still unknown, so try the servers that have failed, too.
            await offer.until(has_unowned, deadline)
            away = [status.name for status in offer.modules.away()]
            await offer.modules.reach(away, _LOOK_SECONDS)
            catalogue = self._present_if_unambiguous()

        self._expect_versions(catalogue)
        return catalogue

    def _owners_of(self, calls: Iterable[WrittenCall]) -> list[str] | None:
        """Return the servers that the calls name, or that are known to have the tools. Return None
        if any server might have one of these tools. Servers that are not configured, or not in the
        profile, are omitted.
        """
        known_catalogue = self._offer.known_catalogue
        owners: list[str] = []
        for call in calls:
            owner = call.module
            if owner is None:
                tool = known_catalogue.look_up(call)
                if tool is None or tool.module is None:
                    return None
                owner = tool.module

            if owner in self._offer.modules and self._offer.has_server(owner):
                owners.append(owner)

        return owners

    def _present_if_unambiguous(self) -> Catalogue:
        """Return the result of `present`.

        An idea can be called by its plain name only if no tool has the same name, not even one of a
        server that is down.
        """
        self._expect_up(self.present(plain_ideas=False))
        return self.present()

    # -- checks ------------------------------------------------------------------------------------

    def _expect_up(self, catalogue: Catalogue) -> None:
        """Raise an error if a call without `_module` names a tool of a server that is not up,
        because the name might then refer to a different tool.
        """
        names_away = self._names_away()
        for place, call in self._unknown_to(catalogue):
            if call.module is not None:
                continue

            for module, names in names_away.items():
                if call.tool not in names:
                    continue
                reason = self._offer.missing.why_away(module)
                if reason is not None:
                    raise PlanError(f"calls[{place}]: {call.tool}: {reason}")

    def _names_away(self) -> dict[str, set[str]]:
        """Return the names of the tools of those servers in the profile that are currently not up.

        The names come from the servers' latest lists.
        """
        modules = self._offer.modules
        names_away: dict[str, set[str]] = {}
        for module, names in modules.reserved().items():
            if self._offer.has_server(module):
                names_away[module] = set(names)

        for tool in modules.known_tools():
            module = tool.module
            if module is None or modules[module].listed:
                continue
            if self._offer.has_server(module):
                names_away.setdefault(module, set()).add(tool.name)

        return names_away

    def _expect_versions(self, catalogue: Catalogue) -> None:
        """Raise an error if a call names a version of an idea that does not exist."""
        for place, call in self._unknown_to(catalogue):
            module = call.module
            if not is_idea(module):
                continue
            if self._offer.idea(module, self._caller) is not None:
                continue

            # The server of an idea can end with `@` and a version.
            without_version, _, _ = module.partition("@")
            current = self._offer.idea(without_version, self._caller)
            if current is not None:
                raise PlanError(
                    f"calls[{place}]: {module[:100]!r}: there is no such version; "
                    f"{current.module!r} refers to {current.remote_name}"
                )

    def expect_callable(self, catalogue: Catalogue) -> None:
        """Raise an error if a call names a tool that a server has or might have but that cannot be
        called. The error says why.

        Raises:
            PlanError: a call names such a tool. The argument `catalogue`, which is the result of
                the `catalogue` method, does not contain the tool.
        """
        for place, call in self._unknown_to(catalogue):
            reason = self._offer.missing.why_refused(call.tool, call.module)
            if reason is not None:
                raise PlanError(f"calls[{place}]: {call.tool[:100]}: {reason}")

    def _unknown_to(self, catalogue: Catalogue) -> list[tuple[int, WrittenCall]]:
        """Return (place, call) for each call whose tool is not in the given catalogue.

        Calls without a tool name are omitted, because checking the plan rejects them.
        """
        unknown: list[tuple[int, WrittenCall]] = []
        for place, call in enumerate(self.calls):
            if call.tool and catalogue.look_up(call) is None:
                unknown.append((place, call))

        return unknown


def _for_rooms(catalogue: Catalogue, calls: Iterable[WrittenCall]) -> list[Tool]:
    """Return the tools that the clean rooms of a plan can call."""
    tools: list[Tool] = []
    for call in calls:
        if call.key != (ANONYMOUS, SOLVE.name):
            continue

        patterns = list_or_empty(call.members.get("tools"))
        names = [pattern for pattern in patterns if isinstance(pattern, str)]
        tools.extend(chosen_tools(catalogue.tools, names))

    return tools
