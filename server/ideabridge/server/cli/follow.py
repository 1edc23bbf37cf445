"""Follow a run: show its calls, ask the person where it waits, stop it at Ctrl-C, and print its result or its history.

`follow` returns when the run has ended or waits for someone who is not at this terminal. `Board` collects what the
displays show, `Turns` reads Solutions from standard input, and `RunHistory` is a run as its journal records it.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import anyio.to_thread

from ideabridge.bridge.loop import event as events
from ideabridge.bridge.loop.event import Event, event_from_json
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.progress import Progress
from ideabridge.bridge.runs.run import Run
from ideabridge.server.cli.console import (
    ExitCode,
    at_terminal,
    clean,
    counted,
    err,
    errors_text,
    print_json,
    print_value,
    report,
    say,
    shortened,
    taken_beside,
)
from ideabridge.server.cli.inputs import as_object, ask_all, decline_all
from ideabridge.server.cli.modules import signature
from ideabridge.server.cli.options import Options
from ideabridge.tools.encoding import JSON, JSONObject, decode, encode_text
from ideabridge.tools.errors import IdeabridgeError

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from ideabridge.bridge.context.request import Request


# -- progress --------------------------------------------------------------------------------------------------------

ROWS: Final = 24
"""Rows the live table shows at most: what settled first makes room."""

_TITLES: Final = ("", "call", "tool", "status", "time", "")

_LEAST: Final = 12
"""Characters that are shown of an error or a note on the narrowest terminal."""

_AROUND: Final = 8
"""Lines of the live table that are no rows, and some to spare."""

_MARKS: Final = {
    "waiting": ("·", "dim"),
    "asking": ("?", "bold yellow"),
    "queued": ("·", "dim"),
    "running": ("▶", "cyan"),
    "done": ("✓", "green"),
    "caught": ("!", "yellow"),
    "failed": ("✗", "red"),
    "skipped": ("–", "dim"),
}


@dataclass(slots=True)
class Times:
    """When a call started and finished, in seconds of a clock that only goes forward."""

    started: float
    finished: float | None = None

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        return (self.finished if self.finished is not None else time.monotonic()) - self.started


@dataclass(slots=True)
class Board:
    """What is known of the calls of one run.

    Attributes:
        run: the run.
        times: by the call's index.
        notes: the last progress message of a call at work.
    """

    run: Run
    times: dict[int, Times] = field(default_factory=dict[int, Times])
    notes: dict[int, str] = field(default_factory=dict[int, str])

    def take(self, event: Event) -> None:
        """Note an event of the run."""
        from ideabridge.bridge.loop.event import CallFinished, CallStarted

        now = time.monotonic()
        if isinstance(event, CallStarted):
            self.times.setdefault(event.call, Times(now))
        elif isinstance(event, CallFinished):
            times = self.times.setdefault(event.call, Times(now))
            # Of several items, the last to finish counts.
            times.finished = now
            self.notes.pop(event.call, None)

    def rows(self) -> list[JSONObject]:
        """One object for each call: what `--json` tells."""
        return [self._row(progress) for progress in self.run.calls()]

    def _row(self, progress: Progress) -> JSONObject:
        call = progress.call
        row: JSONObject = {"call": call_name(progress), "tool": tool_name(progress), "status": progress.status.value}
        if progress.tool is not None and progress.tool.module is not None:
            row["module"] = progress.tool.module
        times = self.times.get(call.index)
        if times is not None:
            row["seconds"] = round(times.seconds, 4)
        if progress.error is not None:
            row["error"] = progress.error.get("message")
        return row


def tool_name(progress: Progress) -> str:
    """`module/tool`, or the tool."""
    tool = progress.tool
    if tool is None:
        return progress.call.name
    name = tool.remote_name or tool.name
    return f"{tool.module}/{name}" if tool.module else name


def call_name(progress: Progress) -> str:
    """The call's own `_id`, else its place in the plan; with its instance where it has one."""
    call = progress.call
    name = call.id or str(call.place)
    return f"{call.instance} {name}" if call.instance else name


def message_of(error: JSON) -> str:
    """The message of an error entry, in one line."""
    found = error.get("message", error) if isinstance(error, dict) else error
    return str(found).replace("\n", " ")


class Display(Protocol):
    """Shows a board while a run goes on."""

    def changed(self, event: Event | None = None) -> None:
        """Something happened."""
        ...

    @contextmanager
    def aside(self) -> Generator[None]:
        """Out of the way, while a person is asked something."""
        ...

    def close(self) -> None:
        """The run is over; what was shown stays."""
        ...


class PlainDisplay:
    """One line for each call that starts and finishes."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._settled: set[int] = set()
        self._started: set[int] = set()

    def changed(self, event: Event | None = None) -> None:
        """Print what is new since the last time."""
        for progress in self._board.run.calls():
            index = progress.call.index
            if progress.status.value == "running" and index not in self._started:
                self._started.add(index)
                say(f"▶ {_named(progress)}")
            if progress.settled and index not in self._settled:
                self._settled.add(index)
                mark, _ = _MARKS[progress.status.value]
                times = self._board.times.get(index)
                took = f" in {times.seconds:.2f} s" if times else ""
                why = f": {message_of(progress.error)}" if progress.error else ""
                say(f"{mark} {_named(progress)} {progress.status.value}{took}{why}")

    @contextmanager
    def aside(self) -> Generator[None]:
        """Nothing is in the way."""
        yield

    def close(self) -> None:
        """Nothing stays open."""


def _named(progress: Progress) -> str:
    return f"{call_name(progress)} {tool_name(progress)}"


class LiveDisplay:
    """A table that lives on the terminal. It goes away while a person is asked something, and what they were asked
    and answered stays.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._began = time.monotonic()
        self._closed = False
        self._live = self._started()

    def _started(self) -> Live:
        """A new display below what the terminal shows: one that was stopped would draw over what came after it."""
        from rich.live import Live

        live = Live(
            get_renderable=self._table, console=err(), refresh_per_second=8, transient=True, redirect_stdout=False
        )
        live.start()
        return live

    def changed(self, event: Event | None = None) -> None:
        """The table draws itself eight times a second."""

    @contextmanager
    def aside(self) -> Generator[None]:
        """Take the table away meanwhile."""
        self._live.stop()
        try:
            yield
        finally:
            self._live = self._started()

    def close(self) -> None:
        """Draw the last state and leave it; of a run without calls there is nothing to leave."""
        self._closed = True
        self._live.transient = not any(True for _ in self._board.run.calls())
        self._live.stop()

    def _table(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        # Drawn by a thread of rich's: the list is copied before it is looked at.
        calls = list(self._board.run.calls())
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title_justify="left")
        settled = sum(1 for progress in calls if progress.settled)
        table.title = f"{settled} of {len(calls)} calls, {time.monotonic() - self._began:.1f} s"
        # A table taller than the terminal could not be taken away again.
        console = err()
        most = ROWS if self._closed else max(1, min(ROWS, console.height - _AROUND))
        hidden = max(0, len(calls) - most)
        shown = _shown(calls, most)
        rows = [self._row(progress) for progress in shown]
        room = max(_LEAST, console.width - taken_beside([_TITLES, *rows]))
        for title in _TITLES[:-1]:
            table.add_column(title, no_wrap=True, justify="right" if title == "time" else "left")
        table.add_column(_TITLES[-1], no_wrap=True, overflow="ellipsis", max_width=room)
        for progress, row in zip(shown, rows, strict=True):
            style = _MARKS[progress.status.value][1]
            styles = (style, "", "", style, "", "red" if progress.error else "dim")
            table.add_row(*(Text(cell, style=style) for cell, style in zip(row, styles, strict=True)))
        if hidden:
            table.caption = f"and {hidden} more"
        return table

    def _row(self, progress: Progress) -> tuple[str, ...]:
        index = progress.call.index
        times = self._board.times.get(index)
        note = message_of(progress.error) if progress.error else self._board.notes.get(index, "")
        return (
            _MARKS[progress.status.value][0],
            clean(call_name(progress)),
            clean(tool_name(progress)),
            progress.status.value,
            f"{times.seconds:.2f} s" if times else "",
            clean(note).replace("\n", " "),
        )


def _shown(calls: list[Progress], rows: int) -> list[Progress]:
    if len(calls) <= rows:
        return calls
    busy = [progress for progress in calls if not progress.settled]
    done = [progress for progress in calls if progress.settled]
    room = max(0, rows - len(busy))
    return [*(done[-room:] if room else []), *busy][:rows]


# -- solutions from standard input -------------------------------------------------------------------------------------


class Turns:
    """Asks for the solutions of one run.

    Args:
        run: the run. Of what its rooms ask, one after another is put.
        quiet: show nothing but errors, where nobody sits at a terminal.
    """

    def __init__(self, run: Run, *, quiet: bool) -> None:
        self._run = run
        self._quiet = quiet and not sys.stdin.isatty()
        self._shown: Request | None = None
        self._schema: JSON = None

    async def take(self) -> bool:
        """Show an open Request, read its solution from standard input and hand it in; False where none comes."""
        asking = next(self._run.open_requests(), None)
        if asking is None or asking.runner.request is None:
            return False
        if not self._quiet:
            self._show(asking.runner.request, asking.turn)
        try:
            text = await _read()
            if text is None:
                return False
            solution = decode(text, what="the solution")
            for note in await asking.patiently(lambda: asking.submit(asking.turn, solution)):
                say(f"note: {note}", "dim")
        except IdeabridgeError as error:
            report(str(error))
        return True

    def _show(self, request: Request, turn: int) -> None:
        # What has been seen is not shown again: after a malformed solution, its errors are what counts.
        if request is self._shown:
            return
        self._shown = request
        say(f"turn {turn}", "bold")
        for message in request.texts:
            say(f"[{message.get('role')}] {message.get('content')}")
        if request.schema != self._schema:
            self._schema = request.schema
            if sys.stdin.isatty():
                for line in _offered(request.schema):
                    say(line, "dim")
            else:
                say(f"schema: {encode_text(request.schema)}", "dim")
        say('write {"calls": [...], "output": ...}, and an empty line', "dim")


def _offered(schema: JSON) -> Iterator[str]:
    """What a person is told of the schema of a solution: the tools with their parameters, and what the output is."""
    schemas = as_object(as_object(schema).get("properties"))
    calls = as_object(as_object(schemas.get("calls")).get("items"))
    offered = calls.get("anyOf")
    for one in offered if isinstance(offered, list) else [calls]:
        taken = as_object(as_object(one).get("properties"))
        name = as_object(taken.get("_tool")).get("const")
        if name is not None:
            description = str(as_object(one).get("description") or "").split("\n")[0]
            own = {key: value for key, value in taken.items() if not key.startswith("_")}
            yield f"tool: {name}({signature({**as_object(one), 'properties': own})})  {description}".rstrip()
    output = as_object(schemas.get("output")).get("anyOf")
    wanted = [one for one in output if one != {"type": "null"}] if isinstance(output, list) else [schemas.get("output")]
    yield f"output: {' or '.join(map(encode_text, wanted))}"


async def _read() -> str | None:
    """The text of one solution: up to an empty line, or to where it is one whole JSON value; None at the end."""
    text = ""
    while True:
        line = await _line()
        if not line or (text and not line.strip()):
            return text or None
        text += line if line.strip() else ""
        if text.rstrip().endswith("}") and _is_whole(text):
            return text


def _is_whole(text: str) -> bool:
    try:
        decode(text, what="the solution")
    except IdeabridgeError:
        return False
    return True


async def _line() -> str:
    """One line of standard input; "" at its end. Waiting can be cancelled (Ctrl-C)."""
    if not sys.stdin.isatty() or sys.platform == "win32":
        return await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    err().print("> ", end="")
    await anyio.wait_readable(sys.stdin)
    return sys.stdin.readline()


# -- follow ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class FollowResult:
    """How following ended. `stopped`: the person ended it; `pending`: nobody is here to approve."""

    board: Board
    stopped: bool = False
    pending: bool = False

    def code(self) -> ExitCode:
        """The exit code it stands for."""
        if self.stopped:
            return ExitCode.CANCELLED
        run = self.board.run
        if self.pending or run.status == "needs_solution":
            return ExitCode.WAITING
        return ExitCode.DONE if run.status == "done" and not run.errors() else ExitCode.FAILED


async def follow(
    run: Run, *, quiet: bool = False, by_turns: bool = False, asks: bool = True, leaves: bool = False
) -> FollowResult:
    """Stay with `run` until it has ended or waits for somebody who is not here.

    Args:
        run: a run that was just started.
        quiet: show nothing.
        by_turns: read solutions from standard input where the run needs one.
        asks: ask the person at the terminal, if there is one, for approvals.
        leaves: at Ctrl-C leave a run waiting that waits, instead of ending it.
    """
    board = Board(run)
    outcome = FollowResult(board)
    turns = Turns(run, quiet=quiet)
    for progress in run.calls():
        if progress.status.value == "running":
            from ideabridge.bridge.loop.event import CallStarted

            # Its first calls started before anybody could watch.
            board.take(CallStarted(progress.call.index))
    run.runner.watchers.append(board.take)
    run.runner.progress_watchers.append(lambda call, _done, _total, note: board.notes.update({call: note or ""}))
    async with _stopping_at_signals(run, outcome, leaves=leaves):
        display: Display | None = None
        if not quiet:
            display = LiveDisplay(board) if sys.stderr.isatty() else PlainDisplay(board)
            run.runner.watchers.append(display.changed)
            display.changed()
        try:
            while (status := await run.wait()) in ("needs_approval", "needs_solution"):
                aside = contextlib.nullcontext() if display is None else display.aside()
                if status == "needs_solution":
                    if not by_turns:
                        break
                    with aside:
                        if not await turns.take():
                            break
                    continue
                if not (asks and at_terminal()):
                    if await decline_all(run):
                        continue
                    outcome.pending = True
                    break
                with aside:
                    await ask_all(run)
        except anyio.get_cancelled_exc_class():
            if not outcome.stopped:
                # Ctrl-C came before the signals were watched, and asyncio cancels us by itself.
                await _stop(run, leaves=leaves)
                say(f"{run.id}: {run.status}", "dim")
            raise
        finally:
            if display is not None:
                display.close()
    return outcome


async def _stop(run: Run, *, leaves: bool) -> None:
    """End a run because the person stopped the command; with `leaves`, not one that waits for a decision."""
    if not (leaves and run.status == "needs_approval"):
        await run.patiently(lambda: run.cancel("stopped at the terminal"))


@asynccontextmanager
async def _stopping_at_signals(run: Run, outcome: FollowResult, *, leaves: bool) -> AsyncGenerator[None]:
    """Ctrl-C (and SIGTERM) cancel the run and its calls, remote ones too; what was done stays in the store."""

    async def watch(signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope) -> None:
        async for _ in signals:
            outcome.stopped = True
            await _stop(run, leaves=leaves)
            scope.cancel()
            return

    if sys.platform == "win32":
        # No signal handlers in this event loop there: KeyboardInterrupt ends the process, the journal keeps the rest.
        yield
        return
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with anyio.create_task_group() as group:
            group.start_soon(watch, signals, group.cancel_scope)
            yield
            group.cancel_scope.cancel()


def result_json(outcome: FollowResult, extra: JSONObject | None = None) -> JSONObject:
    """How a run ended, for machines: its whole answer, with `calls`, and the members of `extra`."""
    calls: list[JSON] = [*outcome.board.rows()]
    return {**outcome.board.run.answer(whole=True), "calls": calls, **(extra or {})}


def print_result(outcome: FollowResult, options: Options, *, extra: JSONObject | None = None) -> ExitCode:
    """Print how a run ended: the result on standard output, everything else on standard error.

    Args:
        outcome: of `follow`.
        options: of the command; with `--json` one JSON object is printed instead.
        extra: more members for the JSON object.
    """
    run = outcome.board.run
    if options.json:
        print_json(result_json(outcome, extra))
    else:
        answer = run.answer(whole=True)
        if "output" in answer:
            print_value(answer["output"])
            if answer.get("state"):
                say(f"state: {encode_text(run.answer().get('state'))}", "dim")
        elif run.status == "done" or answer.get("state") or answer.get("results"):
            print_value({key: answer[key] for key in ("state", "results") if answer.get(key)})
        for error in run.errors():
            report(error_line(error))
        idea = f", idea {run.idea[:12]}" if run.idea else ""
        reason = f" ({answer['reason']})" if answer.get("reason") else ""
        if "\n" in reason:
            report(str(answer["reason"]))
            reason = ""
        say(f"{run.id}: {run.status}{errors_text(len(run.errors()))}{reason}{idea}", "dim")
    _advise(outcome, options)
    return outcome.code()


def _advise(outcome: FollowResult, options: Options) -> None:
    """Say what a person can do about a run that waits. Nothing of it is to be run again."""
    run, again = outcome.board.run, options.again
    if run.status == "needs_solution":
        report(f"it waits for the solution of turn {run.turn}. A host connected to this store can hand it in, or you:")
        report(f"  ideabridge resume {run.id}{again} (reads it from standard input, and goes on)")
    if outcome.pending:
        choices: list[JSON] = []
        for entry in run.approvals():
            if isinstance(entry, dict):
                report(f"approval needed ({entry.get('approval')}): {entry.get('why')}")
                choices.append(entry.get("choices", ["approve", "deny"]))
        # To take a run up, the configuration must be the same: the options that made it stand in the advice.
        report("it waits in the store. A host connected to this store can decide, or you:")
        report(f"  ideabridge resume {run.id}{again} (asks you at a terminal, and goes on)")
        match choices:
            case [[first, *others], *rest] if all(one == choices[0] for one in rest):
                report(f"  ideabridge approvals decide {first} {run.id}{again} (or {', '.join(map(str, others))})")
            case _:
                report(f"  ideabridge approvals list {run.id}{again} (shows how each may be answered)")


def error_line(entry: JSONObject) -> str:
    """One error of a run: the call it is of, and what went wrong."""
    call = entry.get("call")
    where = ""
    if isinstance(call, dict):
        where = f"{call.get('_id') or call.get('_tool')}: "
    return where + message_of(entry.get("error"))


# -- the history of a run ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One event of a run.

    Attributes:
        number: its sequence number, from 1.
        at: when, in seconds since 1970; None: an old store says nothing.
        text: what happened, for people.
        style: how to show it.
        call: the call it is about.
    """

    number: int
    at: float | None
    text: str
    style: str | None
    event: Event
    call: int | None = None


@dataclass(slots=True)
class RunHistory:
    """A run told from its journal.

    Attributes:
        entries: its events.
        machine: the journal, folded.
        broken: why the journal could not be folded to its end.
    """

    machine: Machine = field(default_factory=Machine)
    entries: list[HistoryEntry] = field(default_factory=list[HistoryEntry])
    broken: str | None = None


def read_history(journal: list[tuple[int, JSONObject]], times: Mapping[int, float]) -> RunHistory:
    """The history of a run.

    Args:
        journal: (sequence number, event) of all of it.
        times: when each came.
    """
    history = RunHistory()
    for number, raw in journal:
        try:
            event = event_from_json(raw)
            history.machine.receive(event)
        except IdeabridgeError as error:
            history.broken = f"event {number} cannot be read: {error}"
            return history
        text, style, call = _event_text(event, history.machine)
        history.entries.append(HistoryEntry(number, times.get(number), text, style, event, call))
    return history


def _event_text(event: Event, machine: Machine) -> tuple[str, str | None, int | None]:
    """(text, style, call)."""
    match event:
        case events.RunStarted():
            by = f", answered by {event.mind}" if event.mind else ", by turns" if event.mode == "solve" else ""
            return f"the run begins ({event.mode}{by}); {counted(len(event.tools), 'tool')}", "bold", None
        case events.RequestMade():
            return f"request {event.step} goes out ({event.request[:12]})", "bold", None
        case events.SolutionProposed():
            output = "" if event.output is None else f", output {shortened(event.output)}"
            return f"a solution of {counted(len(event.calls), 'call')}{output}", "cyan", None
        case events.CallProposed():
            return f"a call is listed: {shortened(event.call)}", "cyan", len(machine.history) - 1
        case events.OutputProposed():
            return f"the output is written: {shortened(event.output)}", "cyan", None
        case events.SolutionClosed():
            return f"the answer breaks off: {event.broken}" if event.broken else "the answer ends", None, None
        case events.SolutionRejected():
            return f"a solution is malformed: {shortened(event.errors)}", "red", None
        case events.UsageNoted():
            return f"used: {shortened(event.usage)}", "dim", None
        case events.MessageAdded():
            return f"{_name(machine, event.call)} adds a message: {shortened(event.message)}", None, event.call
        case events.RunEnded():
            return f"the run ends: {event.status}{_why(event.reason)}", "bold", None
        case _:
            return _of_call(event, machine)


def _of_call(event: Event, machine: Machine) -> tuple[str, str | None, int | None]:
    match event:
        case events.CallStarted():
            return f"▶ {_label(machine, event.call, event.item)} {_parameters(machine, event)}", None, event.call
        case events.CallFinished() if event.error is not None:
            message = event.error.get("message")
            return f"✗ {_label(machine, event.call, event.item)} {message}", "red", event.call
        case events.CallFinished():
            return f"✓ {_label(machine, event.call, event.item)} {shortened(event.value)}", "green", event.call
        case events.ApprovalAsked():
            asked = machine.history[event.call].approval
            resolved = shortened(asked[2]) if asked is not None else ""
            return f"? {_label(machine, event.call, None)} asks for approval: {resolved}", "yellow", event.call
        case events.CallDecided():
            edited = f", as {shortened(event.edited)}" if event.edited is not None else ""
            what = f"{event.decision} by {event.by}{_why(event.reason)}{edited}"
            return f"! {_label(machine, event.call, None)} {what}", "yellow", event.call
        case events.OutcomeAsked():
            label, why = _label(machine, event.call, event.item), _why(event.why)
            return f"? {label} was cut off{why}: what came of it?", "yellow", event.call
        case events.OutcomeDecided():
            what = f"{event.decision} by {event.by}{_why(event.reason)}"
            return f"! {_label(machine, event.call, event.item)} {what}", "yellow", event.call
        case events.QuestionAsked():
            said = f"module {event.module} asks: {shortened(event.message)} {shortened(event.schema)}"
            return f"? {_label(machine, event.call, event.item)} {said}", "yellow", event.call
        case events.QuestionAnswered():
            what = f"{event.action} by {event.by}{_why(event.reason)}"
            content = "" if event.content is None else f": {shortened(event.content)}"
            return f"! {_label(machine, event.call, event.item)} {what}{content}", "yellow", event.call
        case events.QuestionRefused():
            said = f"module {event.module} asked {shortened(event.message)}, and was not answered: {event.why}"
            return f"! {_label(machine, event.call, event.item)} {said}", "red", event.call
        case events.PlanAsked():
            return "? the plan waits to be accepted", "yellow", None
        case events.PlanDecided():
            return f"! the plan: {event.decision} by {event.by}{_why(event.reason)}", "yellow", None
        case _:
            return event.name, None, None


def _why(reason: str | None) -> str:
    return f": {reason}" if reason else ""


def _name(machine: Machine, call: int) -> str:
    return machine.history[call].call.name if call < len(machine.history) else "?"


def _label(machine: Machine, call: int, item: int | None) -> str:
    if call >= len(machine.history):
        return str(call)
    progress = machine.history[call]
    instance = f" {progress.call.instance}" if progress.call.instance else ""
    each = "" if item is None else f" item {item}"
    return f"{call} {progress.call.name}{instance}{each}"


def _parameters(machine: Machine, event: events.CallStarted) -> str:
    progress = machine.history[event.call]
    items = progress.items
    return shortened(items[event.item or 0].parameters) if (event.item or 0) < len(items) else ""


def call_json(number: int, progress: Progress) -> JSONObject:
    """A call of a run as it stands, for machines."""
    call = progress.call
    told: JSONObject = {"call": number, "tool": call.name, "status": progress.status.value}
    if call.tool is not None and call.tool.module is not None:
        told["module"] = call.tool.module
    if call.instance:
        told["instance"] = call.instance
    parameters: list[JSON] = [dict(item.parameters) for item in progress.items]
    if parameters:
        told["parameters"] = parameters if call.has_each else parameters[0]
    if progress.error is not None:
        told["error"] = progress.error
    elif progress.settled:
        told["value"] = progress.value
    return told
