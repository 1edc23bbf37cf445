"""Scoring: how a model does at a task, and the table of all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge import Bridge, Run
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.encoding import JSON, encode_text
from tests_model.references import References, calls_of, count_references
from tests_model.tasks import OFFERED, Task

REQUESTS: Final = 3
"""Requests a task may take."""


@dataclass(frozen=True, slots=True)
class Score:
    """What came of one task.

    Attributes:
        faults: for each answer, whether anything of it was wrong: it could not be read, a call or
            the output was refused or failed, or it held neither.
        picked: the tools of the first answer's calls, in order.
        references: how the answers gave what tools or the input had to give.
        written: characters of the Solutions; llama-cpp-python counts no tokens of what it streams.
        seconds: from the start to the end of the run.
    """

    task: Task
    status: str
    output: JSON
    faults: tuple[bool, ...]
    picked: tuple[str, ...]
    references: References
    written: int
    seconds: float

    @property
    def solved(self) -> bool:
        return self.status == "done" and self.output == self.task.expected

    @property
    def valid_first(self) -> bool:
        return bool(self.faults) and not self.faults[0]

    @property
    def valid_after_repair(self) -> bool:
        """Also where a later answer was valid: one that was told what was wrong with
        an earlier one.
        """
        return not all(self.faults)

    @property
    def began_right(self) -> bool:
        """Whether the first call is of the right tool."""
        return self.picked[:1] == self.task.tools[:1]

    @property
    def called_right(self) -> bool:
        """Whether the right tools were called, in order, and no others."""
        return self.picked == self.task.tools


async def score(bridge: Bridge, task: Task, tools: Sequence[str] = OFFERED) -> Score:
    """Have the bridge's mind solve a task."""
    began = time.monotonic()
    run = await bridge.solve(
        task.text,
        input=task.input,
        output_schema=task.output,
        tools=tools,
        limits={"requests": REQUESTS},
    )
    status = await run.wait()
    seconds = time.monotonic() - began
    answer = run.answer()
    solutions = [
        bridge.store.ideas.get(record.id, caller=SEES_ALL).idea.solution
        for record in bridge.store.ideas.of_run(run.id)
    ]
    return Score(
        task,
        str(status),
        answer.get("output"),
        _faults(run, bridge),
        tuple(str(call.get("_tool")) for call in calls_of(solutions[0])) if solutions else (),
        count_references(
            solutions,
            task.input,
            [one.value for one in run.calls() if one.status is CallStatus.DONE],
        ),
        sum(len(encode_text(one)) for one in solutions),
        seconds,
    )


def _faults(run: Run, bridge: Bridge) -> tuple[bool, ...]:
    """Whether each answer had a fault: the next Request tells of it; after the last
    one, the run does.
    """
    told: list[bool] = []
    for record in bridge.store.ideas.of_run(run.id)[1:]:
        context = bridge.store.ideas.get(record.id, caller=SEES_ALL).idea.context
        told.append(any(isinstance(one, dict) and one.get("type") == "error" for one in context))
    return (*told, bool(run.errors()) or run.answer()["status"] == "stalled")


def table(scores: Sequence[Score]) -> str:
    """The table of all tasks, and what they come to."""
    head = (
        f"{'task':<68} {'calls':>5} {'solved':>6} {'first':>5} {'later':>5} "
        f"{'tool':>4} {'tools':>5}"
    )
    lines = [f"{head} {'refs':>5} {'req':>3} {'chars':>5} {'s':>5}  output"]
    for one in scores:
        marks = " ".join(
            f"{'yes' if mark else 'no':>{width}}"
            for mark, width in (
                (one.solved, 6),
                (one.valid_first, 5),
                (one.valid_after_repair, 5),
                (one.began_right, 4),
                (one.called_right, 5),
            )
        )
        shown = encode_text(one.output)[:40] if one.status == "done" else f"({one.status})"
        used = f"{one.references.written}/{one.references.possible}"
        lines.append(
            f"{one.task.text[:68]:<68} {one.task.calls:>5} {marks} {used:>5} {len(one.faults):>3} "
            f"{one.written:>5} {one.seconds:>5.1f}  {shown}"
        )

    lines.append(summary(scores))
    return "\n".join(lines)


def summary(scores: Sequence[Score]) -> str:
    """Solved, valid at the first try and later, tools picked, references written, and how fast."""
    by_calls = ", ".join(
        f"{sum(one.solved for one in scores if one.task.calls == calls)} of"
        f" {sum(one.task.calls == calls for one in scores)} of {calls} call{'s' * (calls > 1)}"
        for calls in sorted({one.task.calls for one in scores})
    )
    seconds = sum(one.seconds for one in scores)
    copied = sum(one.references.copied for one in scores)
    guessed = sum(one.references.guessed for one in scores)
    return (
        f"solved {sum(one.solved for one in scores)} of {len(scores)} ({by_calls});"
        f" valid at the first try {sum(one.valid_first for one in scores)},"
        f" after repair {sum(one.valid_after_repair for one in scores)};"
        f" began with the right tool {sum(one.began_right for one in scores)},"
        f" called the right tools and no others {sum(one.called_right for one in scores)};"
        f" wrote a reference {sum(one.references.written for one in scores)} times of"
        f" {sum(one.references.possible for one in scores)} where one was possible"
        f" (copied {copied}, guessed {guessed});"
        f" {sum(len(one.faults) for one in scores)} Requests in {seconds:.0f} s"
    )
