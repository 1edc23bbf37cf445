"""Run the program that is the Solution of a run, and pass its calls to the machine.

Theory of operation. To the machine, a program is a streaming answer: `CallProposed` for each call,
and `OutputProposed` and `SolutionClosed` at the end. A program waits when all of its tasks wait.
It then receives the first settled result that it has not received yet. The machine settles calls in
the order of the journal. A program that runs again, in this process or in another process,
therefore gets the same results in the same order as before, and makes the same calls.
`ProgramRunner` compares each call with the journaled one, and raises `DivergedError` if they
differ. It turns the steps of the program into events, which the `Runner` of the run posts.

A program runs only while this process holds the lease of its run. When the run is waiting for a
person, the worker is released, and the program begins again once there is something to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from anyio.abc import TaskGroup

from ideabridge.bridge.context.payloads import without_payloads
from ideabridge.bridge.errors import ProgramError
from ideabridge.bridge.loop.event import (
    CallProposed,
    Event,
    OutputProposed,
    Printed,
    ProgramProposed,
    SolutionClosed,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import CallStatus, Progress
from ideabridge.bridge.programs.handles import CLASS, READ
from ideabridge.bridge.programs.names import TOOLS, ProgramNames, ask_call
from ideabridge.bridge.programs.sandbox import (
    ASK,
    Called,
    CallSite,
    Ended,
    Failed,
    ImportedModule,
    PrintedText,
    ProgramSession,
    Result,
    Sandbox,
    Setting,
    Step,
    Waits,
)
from ideabridge.tools.encoding import JSON, JSONObject, encode, encode_text, object_or_empty
from ideabridge.tools.errors import LimitExceededError
from ideabridge.tools.keywords import show
from ideabridge.tools.turns import asked_by

_CRASHES: Final = 3
"""The number of times that a program's worker can die at the same place before the program is
abandoned.
"""

_MESSAGE: Final = 2_000
"""The maximum number of characters of an error that a program receives."""


def setting_of(names: ProgramNames, values: JSONObject, now: float, seed: str) -> Setting:
    """Return the setting of a program: a module for each server, and the global names; see
    `Setting`.
    """

    def call(module: str, function: str, arguments: JSONObject) -> JSONObject:
        if module:
            return names.call(module, function, arguments)
        if function == ASK:
            return ask_call(arguments)
        if function == "sleep":
            return names.call(TOOLS, function, arguments)
        raise ProgramError(f"{function}() is not available")

    def module_of(name: str) -> ImportedModule:
        functions = list(names.tools[name])
        return ImportedModule(
            functions, lambda: names.stub(name), name == TOOLS and not {READ, CLASS} & {*functions}
        )

    modules = {name: module_of(name) for name in names.tools}
    return Setting(modules, names.servers, values, call, now, seed)


def values_of(machine: Machine) -> JSONObject:
    """Return the global names of a program, `input` and `state`, with their initial values."""
    document = machine.documents.get("") or {}
    members = object_or_empty(document)
    return {"input": members.get("input") or {}, "state": members.get("state") or {}}


class ProgramRunner:
    """Runs the program of one run in this process.

    Args:
        machine: the machine of the run.
        sandbox: the workers.
        group: the task group of the program's sessions.
        caller: the owner of the run. Callers take turns when they wait for a worker.
        count_call: counts the bytes of a call; see `KeptBytes.list_call`.
        take: called with the program's steps as soon as they are done. `events` turns them into
            events.

    Attributes:
        waits: True while the program is waiting for a result.
    """

    def __init__(
        self,
        machine: Machine,
        sandbox: Sandbox,
        group: TaskGroup,
        caller: str,
        *,
        count_call: Callable[[int], None],
        take: Callable[[Sequence[Step]], None],
    ) -> None:
        self._machine = machine
        self._count_call = count_call
        self._take = take
        self._sandbox = sandbox
        self._group = group
        self._caller = caller
        self._session: ProgramSession | None = None
        self._program: ProgramProposed | None = None
        self._first = 0
        # The number of calls that the program has made in this session, and the calls whose results
        # it has received.
        self._made = 0
        self._heard: list[int] = []
        self.waits = False
        # The number of printed characters that are already in the journal.
        self._printed = 0
        # The number of results that the program had received when it gave up its worker to another
        # program.
        self._parked: int | None = None
        self._crashes = 0
        self._crashed_at = -1

    @property
    def computes(self) -> bool:
        """Whether the program might take a step before it receives a result."""
        return self._session is not None and not self.waits

    def drive(self) -> None:
        """Start the program of the run if it is not running. If it is waiting for a result, pass it
        the next one.

        Raises:
            DivergedError: see `feed`.
        """
        machine = self._machine
        program = machine.program
        if program is None:
            self.stop()
            return

        if self._session is None:
            if program is self._program and len(machine.settled) == self._parked:
                # This program has given up its worker to another program, and has no new result
                # yet.
                return
            self._start(program)

        self.feed()

    def stop(self) -> None:
        """End the session. `drive` starts the program again from the journal."""
        session = self._session
        self._session = None
        self.waits = False
        if session is not None:
            session.close()

    def _park(self) -> None:
        """Give up the worker. The program starts again once there is a new result for it."""
        self._parked = len(self._heard)
        self.stop()

    def _start(self, program: ProgramProposed) -> None:
        machine = self._machine
        if program is not self._program:
            self._program = program
            self._crashes = 0
            self._crashed_at = -1

        # Calls that programs make do not write to the state, so the program sees the state as it
        # was before the first call.
        names = ProgramNames.of(program.names, machine.offer.every.tools)
        setting = setting_of(names, values_of(machine), program.now, program.seed)
        self._made = 0
        self._heard = []
        self.waits = False
        self._parked = None
        self._first = len(machine.history) - len(machine.solution.calls)
        self._printed = sum(map(len, machine.solution.printed))
        first = self._first
        session = self._session = ProgramSession(
            self._sandbox,
            program.program,
            setting,
            self._take,
            lambda handle: handle.reference(first),
            calls=machine.settings.calls,
            on_park=self._park,
        )
        # A plan was checked before it began. A program that has made calls is known to be well
        # formed.
        is_checked = machine.mode == "plan" or bool(machine.solution.calls)
        self._group.start_soon(self._run, session, None if is_checked else program.program, setting)

    async def _run(self, session: ProgramSession, unchecked: str | None, setting: Setting) -> None:
        """Run a program if it is well formed. `unchecked` is its text if it has not been checked
        yet.
        """
        asked_by.set(self._caller)
        problem: str | None = None
        if unchecked is not None:
            try:
                problem = await self._sandbox.check(unchecked, setting, self._caller)
            except ProgramError as error:
                problem = str(error)

        if session is not self._session:
            return
        if problem is None:
            await session.run()
        else:
            self._take([Failed("malformed", problem)])

    # -- steps of the program ----------------------------------------------------------------------

    def events(self, steps: Sequence[Step]) -> list[Event]:
        """Return the events for the steps that the program has taken.

        Raises:
            DivergedError: a call differs from the one in the journal.
        """
        machine = self._machine
        events: list[Event] = []
        journaled = machine.solution.calls
        proposed = 0
        for step in steps:
            match step:
                case Called(call=call) if self._made < len(journaled):
                    if journaled[self._made] != call:
                        raise DivergedError(self._made, call, journaled[self._made])
                    self._made += 1
                case Called(call=call, site=site):
                    if machine.calls_left - proposed <= 0:
                        most = machine.settings.calls
                        self.stop()
                        return [
                            *events,
                            *self._closed(
                                _error("limit", f"a run may list at most {most:,} calls")
                            ),
                        ]

                    try:
                        self._count_call(len(encode(call)))
                    except LimitExceededError as error:
                        self.stop()
                        return [*events, *self._closed(_error("limit", str(error)))]

                    self._made += 1
                    proposed += 1
                    events.append(CallProposed(call, unreached=self._unreached(site)))
                case PrintedText(text):
                    repeated = min(self._printed, len(text))
                    self._printed -= repeated
                    if text[repeated:]:
                        events.append(Printed(text[repeated:]))
                case Waits():
                    self.waits = True
                case Ended(output):
                    if self._made < len(journaled):
                        raise DivergedError(self._made, None, journaled[self._made])
                    fault = machine.fault_of_null if output is None else None
                    if output is not None:
                        events.append(OutputProposed(output))

                    events += self._closed(_error("output", fault) if fault is not None else None)
                case Failed("crashed", message):
                    events += self._crashed(message)
                case Failed(kind, message):
                    kinds = {"malformed": "structural", "limit": "limit"}
                    events += self._closed(_error(kinds.get(kind, "program"), message))

        return events

    def _unreached(self, site: CallSite) -> int | None:
        """Return the line of a call that no recorded run made, or None if a recorded run made it,
        or if the program was not compared with recordings.
        """
        reached = None if self._program is None else self._program.reached
        if reached is None or site.to_json() in reached:
            return None
        return site.line

    def _crashed(self, message: str) -> list[Event]:
        """Start the program again after its worker died. If workers keep dying at the same place,
        give up on the program.
        """
        self._crashes = self._crashes + 1 if self._crashed_at == self._made else 1
        self._crashed_at = self._made
        self.stop()
        if self._crashes < _CRASHES:
            self.drive()
            return []

        reason = f"its worker crashed {_CRASHES} times at the same place: {message}"
        return self._closed(_error("program", reason))

    def refused(self, why: str) -> list[Event]:
        """Return the events that end the program because one of its events was refused."""
        return self._closed(_error("program", why))

    def _closed(self, error: JSONObject | None) -> list[Event]:
        count = len(self._machine.solution.calls)
        heard = set(self._heard)
        unheard: list[JSON] = [
            self._first + n for n in range(max(count, self._made)) if self._first + n not in heard
        ]
        session = self._session
        self._session = None
        if session is not None:
            session.close()

        return [SolutionClosed(None, None, error, unheard or None)]

    # -- results for the program -------------------------------------------------------------------

    def feed(self) -> None:
        """Pass the next journaled result to a waiting program.

        Raises:
            DivergedError: the result belongs to a call that the program has not made.
        """
        session = self._session
        machine = self._machine
        if session is None or not self.waits:
            return

        settled = machine.settled
        if len(self._heard) >= len(settled):
            return

        index = settled[len(self._heard)]
        number = index - self._first
        if number >= self._made:
            raise DivergedError(self._made, None, machine.solution.calls[number])

        self._heard.append(index)
        self.waits = False
        progress = machine.history[index]
        error = None if progress.status is CallStatus.DONE else progress.error or {}
        session.answer(number, result_for_program(progress, progress.value, error))


class DivergedError(ProgramError):
    """Raised when a program's calls differ from those in the journal."""

    def __init__(self, number: int, call: JSON, journaled: JSON) -> None:
        now = "ends" if call is None else f"calls {show(call, 500)}"
        super().__init__(
            f"the program diverged: instead of its call {number}, {show(journaled, 500)}, it now "
            f"{now}; the run keeps the results of the journaled calls"
        )


def _error(kind: str, message: str) -> JSONObject:
    return {"kind": kind, "message": message}


def result_for_program(progress: Progress, value: JSON, error: JSONObject | None) -> Result:
    """Return the result of a call as a program receives it: its value, or its error as an
    exception.

    The exception names the tool as the module does, so its text is the same for the same call in
    any run.
    """
    if error is None:
        return Result(value)

    text = _beginning(str(error.get("message")))
    if "sent" in error:
        text = (
            f"{text}\nThe server sent the following, which nobody checked: "
            f"{_beginning(encode_text(without_payloads(error['sent'])))}"
        )

    kind = "PermissionError" if error.get("kind") == "denied" else "RuntimeError"
    label = progress.call.label if progress.tool is None else progress.tool.label
    return Result(None, kind, f"{label}: {text}")


def _beginning(text: str) -> str:
    if len(text) <= _MESSAGE:
        return text
    return f"{text[:_MESSAGE]}... ({len(text):,} characters)"
