"""Distilling: a mind writes a program that does what recorded runs did.

Theory of operation. `distilling_context` describes the runs for a mind: the task, the input, the calls with previews of
their results, the output, and what lifting leaves open. The answer is a program, with the input that each run would
have had if it had none. `Publisher.publish` judges the answer: with the recorded results the program must do what every
run did. `distill` gives the differences back to the mind, at most three times. The mind proposes how the runs
generalise; the recordings decide.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ideabridge.bridge.arguments import read_object
from ideabridge.bridge.context.mind import TURNS
from ideabridge.bridge.context.preview import reference_to
from ideabridge.bridge.errors import ProgramRefusedError, PublicationError
from ideabridge.bridge.lifting.function import Function
from ideabridge.bridge.minds.choice import Choice, MindName
from ideabridge.bridge.programs.names import ProgramNames
from ideabridge.bridge.publishing.programs import RecordedCall, RecordedResults
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.users import LOCAL
from ideabridge.tools.encoding import JSON, JSONObject, encode_text

ROUNDS: Final = 3
"""How often a mind may write a program."""

_CALLS: Final = 100
_RESULT: Final = 1_000
_ROOM: Final = 16_000
"""The most characters of all previews."""

ANSWER_SCHEMA: Final[JSONObject] = {
    "type": "object",
    "properties": {
        "program": {"type": "string", "description": "The text of the program."},
        "inputs": {
            "type": "array",
            "items": {"type": "object"},
            "description": "For each run, in order: the members of `input` that the run was not given but would have"
            " had, with the values of that run. Leave it out if the program reads no such members.",
        },
    },
    "required": ["program"],
    "additionalProperties": False,
}
"""JSON Schema of the answer."""

TASK: Final = (
    "Write one Python program that does what the recorded runs did, and does it for other inputs, too. With the input"
    " of a run it must make the same calls with the same parameters and return the same output; what the built-in tools"
    " do (pick, filter, join, count, template, compute) it may do in Python. Take values from the results of its own"
    " calls and from `input`; write down only what is the same for every input."
)

_RULES: Final = """Rules of the program:
- `import SERVER`, then `await SERVER.TOOL(name=value)`, with keyword arguments only; `import tools` for tools of the \
user. The signatures are below.
- The value of the last expression is the output; it must be JSON. There is no `return` at the top.
- `input` is a dict with the parameters of the tool that it becomes: `input["city"]`, `input.get("days", 3)`.
- `await ask("what to decide", data, schema={...})` asks a model where no code can decide.
- The interpreter knows a part of Python: no inheritance, no own exceptions, no `open`, no `create_task`; `re`, \
`json`, `math`, `datetime`, `itertools`, `collections` and `asyncio.gather` are there.
- A call that fails raises RuntimeError."""


class _Solver(Protocol):
    """The method of `Bridge` that distilling uses."""

    async def solve(
        self,
        task: str,
        *,
        output_schema: JSONObject,
        tools: Sequence[str],
        context: Sequence[JSON],
        mind: MindName | Choice,
        caller: str = LOCAL,
    ) -> Run: ...


@dataclass(frozen=True, slots=True)
class Refused:
    """A program that was refused, and the reason."""

    program: str
    why: str


def distilling_context(
    functions: Sequence[tuple[Function, RecordedResults]], left_open: str, refused: Sequence[Refused] = ()
) -> list[JSON]:
    """The messages that describe recorded runs to a mind that writes a program for them.

    Args:
        functions: the runs; the first one gives the tool its description.
        left_open: what lifting leaves open, or why it refuses the run; may be empty.
        refused: the programs that the mind wrote before.
    """
    tools = {call.tool.key: call.tool for _, results in functions for call in results.calls}
    names = ProgramNames(tools.values())
    signatures = [f"{names.signature(tool)}: {_first_line(tool.description)}" for tool in names.listed]
    room = _ROOM
    parts = [_RULES, "Signatures:\n" + "\n".join(f"- {one}" for one in signatures)]
    for number, (function, results) in enumerate(functions):
        lines = [f"Run {number}:"]
        for message in function.run.machine.messages:
            if message.type == "text" and isinstance(message.value, str):
                lines.append(f"  task: {message.value[:_RESULT]}")
            elif message.type in ("data", "state"):
                what = " ".join(filter(None, (message.type, message.kind)))
                lines.append(f"  {what}, which a program does not see: {_shown(message.value, _RESULT)}")
        given = (
            "none; choose its members and give them in `inputs`" if not function.input else encode_text(function.input)
        )
        lines.append(f"  input: {given[:_RESULT]}")
        for call in results.calls[:_CALLS]:
            shown = _preview(call, room)
            room = max(0, room - len(shown))
            lines.append(f"  call {call.index}: {_as_python(names, call)} -> {shown}")
        if len(results.calls) > _CALLS:
            lines.append(f"  and {len(results.calls) - _CALLS} more calls")
        lines.append(f"  output: {_shown(results.output, 4 * _RESULT)}")
        parts.append("\n".join(lines))
    if left_open:
        parts.append(f"What could not be found out from the recordings alone: {left_open}")
    for one in refused:
        parts.append(f"This program was refused:\n{one.program}\nWhy: {one.why}")
    return [{"role": "system", "content": text} for text in parts]


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")[:200]


def _as_python(names: ProgramNames, call: RecordedCall) -> str:
    place = names.place(call.tool)
    if place is None:
        return f"ask({encode_text(call.parameters)[:_RESULT]})"
    real = {name: python for python, name in names.parameters(call.tool).items()}
    arguments = ", ".join(f"{real.get(name, name)}={value!r}" for name, value in call.parameters.items())
    return f"{place[0]}.{place[1]}({arguments})"


def _preview(call: RecordedCall, room: int) -> str:
    if call.result.exception is not None:
        return f"{call.result.exception}: {call.result.message[:300]}"
    return _shown(call.result.value, min(_RESULT, room))


def _shown(value: JSON, most: int) -> str:
    text = encode_text(value)
    if len(text) <= most:
        return text
    if isinstance(value, str):
        return f"{encode_text(value[:most])} (cut; {len(value):,} characters)"
    return f"{encode_text(reference_to(value, ('results',))['preview'])} (cut; {len(text):,} characters of JSON)"


def read_inputs(functions: Sequence[Function], inputs: Sequence[JSON] | None) -> list[JSONObject]:
    """The input of each run, with the members that the author of a program adds.

    Raises:
        ProgramRefusedError: there are not as many as runs, or a member that the run had is among them.
    """
    if inputs is not None and len(inputs) != len(functions):
        raise ProgramRefusedError(f"inputs: expected one for each of {len(functions)} runs, found {len(inputs)}")
    found: list[JSONObject] = []
    for number, function in enumerate(functions):
        own = function.input or {}
        more = read_object(f"inputs.{number}", inputs[number] if inputs is not None else None) or {}
        twice = [name for name in more if name in own]
        if twice:
            raise ProgramRefusedError(f"inputs.{number}.{twice[0][:80]}: the run was given this member; leave it out")
        found.append({**own, **more})
    return found


async def distill(
    bridge: _Solver,
    describe: Callable[[Sequence[Refused]], Awaitable[list[JSON]]],
    publish: Callable[[str, list[JSON] | None], Coroutine[Any, Any, Publication]],
    mind: MindName | Choice,
    caller: str,
) -> tuple[Publication, list[Refused]]:
    """Ask a mind for the program, until one is published.

    Args:
        bridge: asks the mind.
        describe: returns the context, with the programs that were refused.
        publish: publishes (program, inputs), or raises ProgramRefusedError.
        mind: who is asked.
        caller: who distils.

    Returns:
        (the publication, the programs that were refused before).

    Raises:
        PublicationError: the mind gives no answer, or none of its programs does what the runs did.
    """
    refused: list[Refused] = []
    while len(refused) < ROUNDS:
        context = await describe(refused)
        run = await bridge.solve(TASK, output_schema=ANSWER_SCHEMA, tools=[], context=context, mind=mind, caller=caller)
        if run.turns.mind == TURNS:
            run.cancel("nobody is asked by turns here")
            raise PublicationError("no mind is configured; write the program yourself, and publish with it")
        status = await run.wait()
        answer = run.given() if status == "done" else None
        if not isinstance(answer, dict):
            raise PublicationError(f"the mind wrote no program: its run {run.id} is {status}")
        program, inputs = str(answer["program"]), answer.get("inputs")
        try:
            return await publish(program, inputs if isinstance(inputs, list) else None), refused
        except ProgramRefusedError as error:
            refused.append(Refused(program, str(error)))
    raise PublicationError(f"none of {ROUNDS} programs does what the runs did; the last one: {refused[-1].why}")
