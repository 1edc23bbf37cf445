"""Ask a mind to write a program that does what recorded runs did.

Theory of operation. `program_request` describes the runs to a mind. The mind answers with a
program, a description of the tool, and an input for each run that had none. `Publisher.publish`
judges the answer: with the recorded results, the program must do what every run did. If it does
not, `distill` reports the differences to the mind, which has three attempts in total. Thus, the
mind proposes how to generalise the runs, and the recordings decide whether the program is accepted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

from ideabridge.bridge.arguments import read_object
from ideabridge.bridge.context.mind import TURNS
from ideabridge.bridge.errors import ProgramRefusedError, PublicationError
from ideabridge.bridge.lifting.function import Function
from ideabridge.bridge.minds.choice import Choice, MindName
from ideabridge.bridge.publishing.program_answer import ProgramAnswer, read_program_answer
from ideabridge.bridge.publishing.program_request import (
    ANSWER_SCHEMA,
    ProgramRequest,
    RefusedProgram,
)
from ideabridge.bridge.publishing.publishing_bridge import PublishingBridge
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.idea import Publication
from ideabridge.tools.encoding import JSON, JSONObject

ROUNDS: Final = 3
"""The maximum number of programs that a mind can write."""


def read_inputs(functions: Sequence[Function], inputs: Sequence[JSON] | None) -> list[JSONObject]:
    """Return the input of each run, including the properties that the program's author added.

    Raises:
        ProgramRefusedError: the number of inputs differs from the number of runs, or an input has a
            property that the run's own input already has.
    """
    if inputs is not None and len(inputs) != len(functions):
        raise ProgramRefusedError(
            f"inputs: expected one input for each of the {len(functions)} runs, found {len(inputs)}"
        )

    inputs_of_runs: list[JSONObject] = []
    for number, function in enumerate(functions):
        own = function.input or {}
        more = read_object(f"inputs.{number}", inputs[number] if inputs is not None else None) or {}
        twice = [name for name in more if name in own]
        if twice:
            raise ProgramRefusedError(
                f"inputs.{number}.{twice[0][:80]}: the input of the run already has this member; "
                "leave it out"
            )

        inputs_of_runs.append({**own, **more})

    return inputs_of_runs


async def ask_program(
    bridge: PublishingBridge, request: ProgramRequest, mind: MindName | Choice, caller: str
) -> Run:
    """Start the run in which a mind writes a program, and return it. It has no tools, and its
    output is the mind's answer.
    """
    context: list[JSON] = [{"role": "system", "content": request.text}]
    task = request.title
    return await bridge.solve(
        task, output_schema=ANSWER_SCHEMA, tools=[], context=context, mind=mind, caller=caller
    )


async def distill(
    bridge: PublishingBridge,
    describe: Callable[[Sequence[RefusedProgram]], Awaitable[ProgramRequest]],
    publish: Callable[[ProgramAnswer], Coroutine[Any, Any, Publication]],
    refuse: Callable[[str, str], Awaitable[None]],
    mind: MindName | Choice,
    caller: str,
) -> tuple[Publication, list[RefusedProgram]]:
    """Ask a mind for programs until one of them is published.

    Args:
        bridge: asks the mind.
        describe: returns the Request, including the programs that were refused so far.
        publish: publishes an answer, or raises `ProgramRefusedError`.
        refuse: records that the program of a run was refused, with the reason.
        mind: the mind to ask.
        caller: the user who distils.

    Returns:
        The publication, and the programs that were refused before it.

    Raises:
        PublicationError: the mind does not answer, or all of its programs differ from the runs.
    """
    refused: list[RefusedProgram] = []
    while len(refused) < ROUNDS:
        run = await ask_program(bridge, await describe(refused), mind, caller)
        if run.turns.mind == TURNS:
            run.cancel("there is no mind to ask")
            raise PublicationError(
                "no mind is configured; write the program yourself, and publish the run with it"
            )

        answer = await answer_of(run)
        try:
            return await publish(answer), refused
        except ProgramRefusedError as error:
            await refuse(run.id, str(error))
            refused.append(RefusedProgram(answer.program, str(error)))

    raise PublicationError(
        f"none of the {ROUNDS} programs does what the runs did; the last one was rejected: "
        f"{refused[-1].why}"
    )


async def answer_of(run: Run) -> ProgramAnswer:
    """Wait for the program that a mind writes in a run, and return its answer.

    Raises:
        PublicationError: the mind did not write a program.
    """
    status = await run.wait()
    if status != "done":
        raise PublicationError(f"the mind wrote no program: its run {run.id} is {status}")
    return read_program_answer(run.given())
