"""Check plans and programs, and create the `Start` of each run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ideabridge.bridge.checking import check_beside
from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.policy import policy_named
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.minds.choice import Choice
from ideabridge.bridge.offer.offer import Offer
from ideabridge.bridge.offer.plan_tools import PlanTools
from ideabridge.bridge.offer.program_tools import catalogue_of_program, names_for_program
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.programs.names import ProgramNames
from ideabridge.bridge.programs.sandbox import ASK, Sandbox
from ideabridge.bridge.programs.steps import expect_sound, programs_in
from ideabridge.bridge.runs.replay import Ways
from ideabridge.bridge.runs.starts import (
    NO_PROGRAMS,
    Start,
    expect_programs,
    start_plan,
    start_program,
)
from ideabridge.tools.tool import IDEA


class PlanStarts:
    """Checks plans against the tools that are available in this process, and creates the `Start` of
    each run.

    Args:
        offer: the tools that plans can call.
        ways: decides which published ideas can be called in this process.
        sandbox: checks programs.
    """

    def __init__(self, offer: Offer, ways: Ways, sandbox: Sandbox) -> None:
        self._offer = offer
        self._ways = ways
        self._sandbox = sandbox

    async def start(
        self, plan: Plan, settings: Settings, choice: Choice | None, caller: str
    ) -> Start:
        """Check a plan, and create the start of its run.

        Args:
            plan: the plan.
            settings: the settings of the run.
            choice: the mind of the run's rooms, or None if each room chooses its mind when it
                opens.
            caller: who runs the plan.

        Raises:
            PlanError: the plan is malformed, is not allowed in this process, or calls something
                that this process does not have.
            SchemaError: the plan's input schema or output schema is invalid.
            MeantToolError: an idea that the plan calls cannot be called in this process.
            ProgramError: the interpreter for the plan's programs is missing.
        """
        if plan.program is not None:
            return await self._start_program(plan, settings, choice, caller)

        catalogue = await self.catalogue_of(plan, settings, caller)
        return await check_beside(plan, start_plan, plan, catalogue, settings, None, choice)

    async def catalogue_of(self, plan: Plan, settings: Settings, caller: str) -> Catalogue:
        """Check the ideas and programs that a plan calls, and return the result of
        `PlanTools.catalogue`.

        Raises:
            PlanError, ProgramError, MeantToolError: a check fails.
        """
        tools = PlanTools(self._offer, plan, caller)
        calls = tools.calls
        self._ways.expect_here([call.module for call in calls], caller)
        catalogue = await tools.catalogue()
        tools.expect_callable(catalogue)
        self._expect_plain_ideas_here(calls, catalogue, caller)

        programs = programs_in(calls, catalogue)
        if not programs:
            return catalogue
        if not settings.programs:
            raise PlanError(NO_PROGRAMS)

        # All programs of the plan share the names of tools.
        names = await names_for_program(self._offer, "\n".join(programs), caller)
        missing = self._offer.to(caller).missing
        for program, place in programs.items():
            description = f"calls[{place}].program"
            with missing.naming_refused(program):
                await expect_sound(self._sandbox, program, names, {}, description, caller=caller)

        return catalogue

    def _expect_plain_ideas_here(
        self, calls: Iterable[WrittenCall], catalogue: Catalogue, caller: str
    ) -> None:
        """Raise an error if a call without `_module` names an idea that cannot be called in this
        process.
        """
        unknown: list[str] = []
        ideas: list[str] = []
        for call in calls:
            if call.module is not None:
                continue

            tool = catalogue.look_up(call)
            if tool is None:
                unknown.append(f"{IDEA}{call.tool}")
            elif tool.module is not None and tool.in_room:
                ideas.append(tool.module)

        # Refuse an idea outside the profile here, so that it is not reported as unknown.
        self._ways.expect_here([*unknown, *ideas], caller)

    async def _start_program(
        self, plan: Plan, settings: Settings, choice: Choice | None, caller: str
    ) -> Start:
        expect_programs(settings)
        if plan.names is not None:
            # A published program has already been checked against its pinned tools.
            published = PlanTools(self._offer, plan, caller, published=True)
            catalogue = await published.catalogue()
            return start_program(plan, catalogue, settings, plan.names, choice=choice)

        program = plan.program or ""
        names = await self._checked_program(plan, caller)
        used_names = names.used_by(program)
        tools = ProgramNames.of(used_names, names.listed)
        self._ways.expect_here([tool.module for tool in tools.listed], caller)
        offer = self._offer.to(caller)
        catalogue = catalogue_of_program(offer, tools, asks=ASK in program)
        return start_program(plan, catalogue, settings, used_names, choice=choice)

    async def rehearse_program(self, plan: Plan, settings: Settings, caller: str) -> dict[str, Any]:
        """Check a program, and describe the tools that it contains; see `Bridge.dry_run`.

        Raises:
            PlanError: the program is malformed, or programs are not allowed in this process.
            ProgramError: the interpreter is missing.
        """
        expect_programs(settings)
        names = await self._checked_program(plan, caller)
        used_names = names.used_by(plan.program or "")
        called = ProgramNames.of(used_names, names.listed)
        policy = policy_named(settings.approval)
        tools: list[dict[str, Any]] = []
        for tool in called.listed:
            entry: dict[str, Any] = {"tool": tool.label, "signature": called.signature(tool)}
            verdict = policy(tool, {})
            if verdict.verdict == "ask":
                entry["asks"] = verdict.why
            elif verdict.verdict == "deny":
                entry["denied"] = verdict.why

            tools.append(entry)

        return {
            "program": True,
            "tools": tools,
            "renamed": [list(renaming) for renaming in called.renamed],
        }

    async def _checked_program(self, plan: Plan, caller: str) -> ProgramNames:
        plan.check_input()
        program = plan.program or ""
        if plan.names is None:
            names = await names_for_program(self._offer, program, caller)
        else:
            published = PlanTools(self._offer, plan, caller, published=True)
            catalogue = await published.catalogue()
            names = ProgramNames.of(plan.names, catalogue.tools)

        program_input = plan.input or {}
        missing = self._offer.to(caller).missing
        with missing.naming_refused(program):
            await expect_sound(
                self._sandbox, program, names, program_input, "the program", caller=caller
            )

        return names
