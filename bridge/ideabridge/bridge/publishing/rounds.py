"""Publish the programs that a mind submits for a run, one after another, until the recordings
accept one.

Theory of operation. A mind that saw a run submits a program. `hand_in` publishes it or reports how
it differs from the run. Each program is journaled as a separate run: the Request to the mind is the
context, and the answer is the Solution. A record in the store lists the runs of these rounds with
the differences, so all processes share the count. The record belongs to the run to publish,
regardless of the tool's name, and is emptied once a program is accepted.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from ideabridge.bridge.context.mind import TURNS
from ideabridge.bridge.errors import (
    ConstantsOpenError,
    ProgramRefusedError,
    PublicationError,
    RejectedSolutionError,
)
from ideabridge.bridge.minds.choice import Choice, MindName
from ideabridge.bridge.publishing.distilling import ROUNDS, ask_program
from ideabridge.bridge.publishing.program_answer import ProgramAnswer
from ideabridge.bridge.publishing.program_request import RefusedProgram, ToolWords
from ideabridge.bridge.publishing.publish_request import PublishRequest
from ideabridge.bridge.publishing.publisher import Publisher
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.idea import Publication
from ideabridge.tools.encoding import JSONObject, decode_trusted, encode, list_or_empty

_RECORD: Final = "program_rounds."
"""The prefix of the keys under which the store records the rounds of a run."""


def _setting_of(request: PublishRequest) -> str:
    """Return the key under which the store records the rounds of a run.

    It does not depend on the tool's name or on the additional runs, so nobody gets more rounds by
    changing them.
    """
    digest = sha256(f"{request.caller}\0{request.ref}".encode()).hexdigest()
    return _RECORD + digest[:32]


@dataclass(frozen=True, slots=True)
class ProgramRound:
    """A program that was submitted and refused.

    Attributes:
        run: the id of the run that contains the Request and the program.
        program: the program.
        why: how the program differs from the recording.
    """

    run: str
    program: str
    why: str


class Rounds:
    """Publishes the programs that minds submit, and counts the refused ones."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    def refused(self, request: PublishRequest) -> list[ProgramRound]:
        """Return the programs that were refused so far, in order."""
        return _read_rounds(self._publisher.store.settings.get(_setting_of(request)))

    async def ask(self, request: PublishRequest, mind: MindName | Choice) -> Run:
        """Start the run in which a mind writes the next program; see `ask_program`."""
        refused = [
            RefusedProgram(attempt.program, attempt.why) for attempt in self.refused(request)
        ]
        words = ToolWords(request.name, request.description)
        program_request = await self._publisher.program_request(
            request.refs, request.caller, refused, words=words
        )
        return await ask_program(self._publisher.bridge, program_request, mind, request.caller)

    async def hand_in(
        self, request: PublishRequest, answer: ProgramAnswer, run: Run | None = None
    ) -> Publication:
        """Publish a mind's program if the recordings accept it.

        Args:
            request: the request to publish the program.
            answer: the program.
            run: the run in which the mind wrote the program, or None to create a run for a program
                that was submitted without one.

        Raises:
            ConstantsOpenError: the program reproduces the runs, but contains recorded values. This
                does not count as a round.
            ProgramRefusedError: the program differs from the runs. The message states the
                difference and the number of rounds that are left.
            PublicationError: see `Bridge.publish`.
        """
        journaled = run.id if run is not None else await self._journal(request, answer)
        try:
            publication = await self._publisher.publish(request.for_program(answer))
        except ConstantsOpenError:
            raise
        except ProgramRefusedError as error:
            await self._publisher.note_refused(journaled, str(error))
            count = await self._count(request, ProgramRound(journaled, answer.program, str(error)))
            raise ProgramRefusedError(f"{error}. {_left(count)}") from None

        await self._forget(request)
        return publication

    async def _journal(self, request: PublishRequest, answer: ProgramAnswer) -> str:
        """Store a submitted program as the answer in a new run, and return the id of the run."""
        run = await self.ask(request, TURNS)
        solution: JSONObject = {"calls": [], "output": answer.to_json()}
        try:
            await run.patiently(lambda: run.submit(0, solution))
        except RejectedSolutionError as error:
            run.cancel("the program had the wrong form")
            raise PublicationError(
                f"the submission does not have the requested form: {error}"
            ) from None

        await run.wait()
        return run.id

    async def _count(self, request: PublishRequest, refused: ProgramRound) -> int:
        """Record a refused program, and return how many were refused so far."""
        counts: list[int] = []

        def add(raw: bytes) -> bytes:
            rounds = [*_read_rounds(raw), refused]
            counts.append(len(rounds))
            return encode({"rounds": [dataclasses.asdict(attempt) for attempt in rounds]})

        await self._publisher.bridge.write(
            lambda: self._publisher.store.settings.change(_setting_of(request), add)
        )
        return counts[-1]

    async def _forget(self, request: PublishRequest) -> None:
        settings = self._publisher.store.settings
        if self.refused(request):
            await self._publisher.bridge.write(
                lambda: settings.set(_setting_of(request), encode({"rounds": []}))
            )


def _read_rounds(raw: bytes | None) -> list[ProgramRound]:
    record = decode_trusted(raw) if raw else None
    listed = record.get("rounds") if isinstance(record, dict) else None
    rounds: list[ProgramRound] = []
    for entry in list_or_empty(listed):
        if isinstance(entry, dict):
            rounds.append(ProgramRound(str(entry["run"]), str(entry["program"]), str(entry["why"])))

    return rounds


def _left(count: int) -> str:
    left = ROUNDS - count
    if left > 1:
        return f"You can submit {left} more programs"
    if left == 1:
        return "You can submit one more program"
    return (
        f"{count} programs were refused, so do not submit another unless the person asks for one: "
        "what is published does not change"
    )
