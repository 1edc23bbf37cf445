"""Handle programs that are calls in a plan, `{"_tool": "run_program", "program": TEXT, "input":
{...}}`.

Such a call is answered by a separate run (a room), which begins with the program as its plan. The
run of the plan includes the tools that its programs can call, so the room uses the definitions in
the journal of that run, regardless of what servers list later. The program text is part of the plan
itself, so the result of a tool can never become a program.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator
from typing import Final

from ideabridge.bridge.context.references import is_reference, unescape
from ideabridge.bridge.context.written_call import WrittenCall, written_calls
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.programs.names import ProgramNames
from ideabridge.bridge.programs.runner import setting_of
from ideabridge.bridge.programs.sandbox import LONGEST_PROGRAM, Sandbox
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.keywords import show
from ideabridge.tools.tool import PROGRAM_STEP, Annotations, Tool

MOST_STEPS: Final = 50
"""The maximum number of different programs among the calls in one plan. Each program is checked
before anything runs.
"""

RUN_PROGRAM: Final = Tool(
    PROGRAM_STEP[1],
    "Run a program as one step: Python that calls tools. It sees only its input and _imports.",
    {
        "type": "object",
        "properties": {
            "program": {
                "type": "string",
                "maxLength": LONGEST_PROGRAM,
                "description": (
                    "The program's text. The value of its last expression is the result."
                ),
            },
            "input": {"type": "object", "description": "What `input` is in the program."},
        },
        "required": ["program"],
        "additionalProperties": False,
    },
    module=PROGRAM_STEP[0],
)
"""The tool that a plan calls. `with_effects` gives it the effects of the plan's programs."""


def names_program(call: WrittenCall, catalogue: Catalogue) -> bool:
    """Return whether a call refers to `run_program`. If there is another tool with that name, a
    call without `_module` refers to the other tool.
    """
    if call.tool != RUN_PROGRAM.name:
        return False
    if call.module is None:
        return catalogue.look_up(call) is None
    return call.module == RUN_PROGRAM.module


def programs_in(calls: Iterable[WrittenCall], catalogue: Catalogue) -> dict[str, int]:
    """Return the programs among the calls in a plan, each with the place of the first call that
    runs it.

    A program that is not a string, or is too long, is left out, because the check of the plan's
    calls refuses it.

    Raises:
        PlanError: a program is a reference, or there are too many programs.
    """
    programs: dict[str, int] = {}
    for place, call in enumerate(calls):
        program = _program_of(call, catalogue)
        if program is None or len(program) > LONGEST_PROGRAM:
            continue

        if is_reference(program):
            raise PlanError(
                f"calls[{place}].program: expected Python source code, found the reference "
                f"{show(program)}; pass values in its input"
            )

        programs.setdefault(unescape(program), place)

    if len(programs) > MOST_STEPS or sum(map(len, programs)) > LONGEST_PROGRAM:
        raise PlanError(
            f"the plan's calls include {len(programs):,} programs totalling "
            f"{sum(map(len, programs)):,} characters; the limits are {MOST_STEPS} programs and "
            f"{LONGEST_PROGRAM:,} characters"
        )

    return programs


async def expect_sound(
    sandbox: Sandbox,
    program: str,
    names: ProgramNames,
    arguments: JSONObject,
    place: str,
    *,
    caller: str,
) -> None:
    """Check a program before it runs.

    Args:
        sandbox: checks the program.
        program: the text of the program.
        names: the names of the tools that the program can call.
        arguments: the input of the program.
        place: the place of the program's call in the plan, for error messages.
        caller: who runs the program.

    Raises:
        PlanError: the program is malformed.
        ProgramError: the interpreter is missing.
    """
    values: JSONObject = {"input": arguments, "state": {}}
    setting = setting_of(names, values, time.time(), "")
    problem = await sandbox.check(program, setting, caller)
    if problem is not None:
        raise PlanError(f"{place}: {problem}")


def with_effects(tools: Iterable[Tool]) -> Tool:
    """Return `run_program` for a plan whose programs can call the given tools.

    It counts as read-only if all of these tools are read-only, and reaches every server that they
    reach.
    """
    called = list(tools)
    reads = all(tool.annotations.read_only is True for tool in called)
    reaches = dict.fromkeys(module for tool in called for module in tool.reached)
    return dataclasses.replace(
        RUN_PROGRAM, annotations=Annotations(read_only=reads), reaches=tuple(reaches)
    )


def _program_of(call: WrittenCall, catalogue: Catalogue) -> str | None:
    """Return the text of the program that a call runs, or None if it runs none."""
    if call.tool != RUN_PROGRAM.name:
        return None

    tool = catalogue.look_up(call)
    program = call.members.get("program")
    if tool is None or tool.key != PROGRAM_STEP or not isinstance(program, str):
        return None
    return program


def called_in(calls: Iterable[JSON], catalogue: Catalogue) -> Iterator[tuple[int, WrittenCall]]:
    """Yield the calls in a plan with their places. For each program, also yield the tools that it
    can call, as calls without parameters.
    """
    names: ProgramNames | None = None
    for place, call in enumerate(written_calls(calls)):
        yield place, call
        program = _program_of(call, catalogue)
        if program is not None:
            names = names or ProgramNames(catalogue.tools)
            for callable_tool in ProgramNames.of(names.used_by(program), catalogue.tools).listed:
                module, name = callable_tool.origin
                yield place, WrittenCall(name, module)
