"""Find the tools that programs can call, and their names in programs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.offer.offer import SOLVE, Offer
from ideabridge.bridge.programs.names import IDEAS, ProgramNames, identifier
from ideabridge.bridge.programs.sandbox import ASK
from ideabridge.bridge.programs.steps import programs_in, with_effects
from ideabridge.tools.encoding import object_or_empty
from ideabridge.tools.tool import IDEA, Tool, ToolKey


async def names_for_program(offer: Offer, program: str, caller: str) -> ProgramNames:
    """Wait for the servers that a program names to be up or have failed, and return the program's
    names for tools. Servers outside the caller's profile are not started.
    """
    offer = offer.to(caller)
    words = set(re.findall(r"\w+", program))
    named_modules: list[str] = []
    for module in offer.modules.names:
        is_named = module in words or identifier(module) in words
        if is_named and offer.has_server(module):
            named_modules.append(module)

    await offer.reach(named_modules)

    ideas: list[Tool] = []
    if IDEAS in words:
        # Any word in the program could be the name of an idea.
        modules = [f"{IDEA}{word}" for word in sorted(words)]
        ideas = offer.rooms(modules, caller)

    return ProgramNames([*offer.known, *ideas])


def catalogue_of_program(offer: Offer, names: ProgramNames, *, asks: bool) -> Catalogue:
    """Compile the tools that a program uses. `asks` says whether the program asks a mind.

    Raises:
        PlanError: the server of a tool has never been up in this process. If a server is only
            reconnecting, calls wait for it instead.
    """
    tools = names.listed
    present = offer.catalogue
    for tool in tools:
        if tool.module is None or tool.in_room:
            # No server has to be up for this tool.
            continue
        if present.get(tool.key) is not None:
            continue

        reason = offer.missing.why_away(tool.module)
        if reason is not None:
            raise PlanError(f"{tool.label}: {reason}")

    if asks:
        tools = [*tools, SOLVE]
    return offer.compiled(tools)


async def tools_of_programs(
    offer: Offer, calls: Sequence[WrittenCall], catalogue: Catalogue, caller: str
) -> list[Tool]:
    """Return the tools that the programs in a plan's calls can call, together with `run_program`,
    which has the effects of these tools.

    Raises:
        PlanError: the server of a tool has never been up here, or the names of a program depend on
            tools that the plan does not have.
    """
    programs = programs_in(calls, catalogue)
    if not programs:
        return []

    names = await names_for_program(offer, "\n".join(programs), caller)
    tools: dict[ToolKey, Tool] = {}
    for program, place in programs.items():
        try:
            called = _tools_of_program(offer, program, names)
        except PlanError as error:
            raise PlanError(f"calls[{place}]: {error}") from None

        for tool in called:
            tools[tool.key] = tool

    effects = with_effects(tool for tool in tools.values() if not tool.asks_mind)
    more = [*tools.values(), effects]

    # When the run carries out a program, it knows only the tools of the plan, so the names in the
    # program must then still refer to the same tools.
    plan_catalogue = catalogue.used_by(calls, more)
    plan_names = ProgramNames(plan_catalogue.tools)
    for program, place in programs.items():
        if plan_names.used_by(program) != names.used_by(program):
            raise PlanError(
                f"calls[{place}].program: its names depend on tools that the plan does not have, "
                "because several names look alike in Python; run it as a separate plan"
            )

    return more


def _tools_of_program(offer: Offer, program: str, names: ProgramNames) -> list[Tool]:
    used_names = names.used_by(program)
    called = ProgramNames.of(used_names, names.listed)
    catalogue = catalogue_of_program(offer, called, asks=ASK in program)
    tools = catalogue.tools
    for name, tools_used in object_or_empty(used_names["modules"]).items():
        if not tools_used:
            # A server that the program imports must be available here even if the program never
            # calls it.
            tools.extend(names.tools[name].values())

    return tools
