"""Show the calls of a run, ask the person for decisions, cancel the run on Ctrl-C, and print the
result.

`follow` returns when the run has ended, or when it is waiting for something that nobody at this
terminal can provide. `Turns` reads Solutions from standard input.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio

from ideabridge.bridge.loop import event as events
from ideabridge.bridge.loop.event import Event
from ideabridge.bridge.loop.progress import Progress
from ideabridge.bridge.runs.run import Run
from ideabridge.server.cli.console import (
    ExitCode,
    at_terminal,
    err,
    errors_text,
    print_json,
    print_value,
    read_line,
    report,
    row_lines,
    say,
)
from ideabridge.server.cli.inputs import ask_all, decline_all, value_of
from ideabridge.server.cli.options import Options
from ideabridge.server.views.history import doubt_lines
from ideabridge.server.views.text import (
    cost_of_request,
    error_line,
    message_of,
    parameters_text,
    skipped_line,
)
from ideabridge.tools.composed import SolutionSchema
from ideabridge.tools.encoding import JSON, JSONObject, decode
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import duration_text, readable_json, whole_duration_text

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

    from ideabridge.bridge.context.request import Request


ROWS: Final = 24
"""Maximum number of rows of the live table. If there are more calls, the ones that settled first
are hidden.
"""

_TITLES: Final = (" ", "call", "tool", "status", "time", "")

_FREE_LINES: Final = 8
"""Number of terminal lines that the live table leaves free."""

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
class Followed:
    """A run that this command follows, with the times of its calls.

    Attributes:
        run: the run.
        started, finished: when each call started and finished, keyed by call index, in seconds of
            the monotonic clock.
        notes: the latest progress message of each running call.
        asked: the number and the size of the latest Request, as text.
        stopped: whether the person stopped the command.
        pending: whether the run is waiting for an approval that cannot be given at this terminal.
    """

    run: Run
    started: dict[int, float] = field(default_factory=dict[int, float])
    finished: dict[int, float] = field(default_factory=dict[int, float])
    notes: dict[int, str] = field(default_factory=dict[int, str])
    asked: str = ""
    stopped: bool = False
    pending: bool = False

    def take(self, event: Event) -> None:
        """Update the times, the notes and the description of the latest Request from an event of
        the run.
        """
        now = time.monotonic()
        if isinstance(event, events.RequestMade) and event.bytes is not None:
            self.asked = f"; request {event.step}: {cost_of_request(event.bytes)}"
        elif isinstance(event, events.CallStarted):
            self.started.setdefault(event.call, now)
            # An earlier finish time no longer applies. There is one if another item of the call has
            # finished, or if a person repeats the call.
            self.finished.pop(event.call, None)
        elif isinstance(event, events.CallFinished | events.OutcomeDecided):
            self.started.setdefault(event.call, now)
            # A later time replaces an earlier one, because a call with several items ends when the
            # last of them finishes. A call that a person repeats is not running until it starts
            # again.
            self.finished[event.call] = now
            self.notes.pop(event.call, None)

    def seconds(self, call: int) -> float | None:
        """Return how long a call has taken so far, in seconds, or None if it has not started."""
        started = self.started.get(call)
        if started is None:
            return None
        return self.finished.get(call, time.monotonic()) - started

    def rows(self) -> list[JSON]:
        """Return the calls of the run as `--json` prints them."""
        return [self._row(progress) for progress in self.run.calls()]

    def _row(self, progress: Progress) -> JSONObject:
        row: JSONObject = {
            "call": call_name(progress),
            "tool": place_and_name(progress),
            "status": progress.status.value,
        }
        if progress.tool is not None and progress.tool.module is not None:
            row["module"] = progress.tool.module

        seconds = self.seconds(progress.call.index)
        if seconds is not None:
            row["seconds"] = round(seconds, 4)

        if progress.error is not None:
            row["error"] = progress.error.get("message")

        return row

    def code(self) -> ExitCode:
        """Return the exit code of the command."""
        if self.stopped:
            return ExitCode.CANCELLED
        if self.pending or self.run.status == "needs_solution":
            return ExitCode.WAITING
        if self.run.status == "done" and not self.run.errors():
            return ExitCode.DONE
        return ExitCode.FAILED


def place_and_name(progress: Progress) -> str:
    """Return `module/tool`, or only the name of the tool if it does not belong to a server."""
    tool = progress.tool
    if tool is None:
        return progress.call.name
    name = tool.name_in_module
    return f"{tool.module}/{name}" if tool.module else name


def call_name(progress: Progress) -> str:
    """Return the call's `_id` or, if it has none, its position in the plan, prefixed with the
    call's instance, if any.
    """
    call = progress.call
    name = call.id or str(call.place)
    return f"{call.instance} {name}" if call.instance else name


class PlainDisplay:
    """Prints a line when a call starts, and another when it finishes."""

    def __init__(self, followed: Followed) -> None:
        self._followed = followed
        self._settled: set[int] = set()
        self._started: set[int] = set()

    def changed(self, event: Event | None = None) -> None:
        """Print what has changed since the last call of this method."""
        if isinstance(event, events.RequestMade) and event.bytes is not None:
            say(f"request {event.step}: {cost_of_request(event.bytes)}", "dim")
        for progress in self._followed.run.calls():
            index = progress.call.index
            name = f"{call_name(progress)} {place_and_name(progress)}"
            if progress.status.value == "running" and index not in self._started:
                self._started.add(index)
                say(f"▶ {name}")
            if progress.settled and index not in self._settled:
                self._settled.add(index)
                status = progress.status.value
                line = f"{_MARKS[status][0]} {name} {status}"
                seconds = self._followed.seconds(index)
                if seconds is not None:
                    line += f" in {duration_text(seconds)}"
                if progress.error:
                    line += f": {message_of(progress.error)}"
                say(line)

    @contextmanager
    def aside(self) -> Generator[None]:
        """While the context is open, leave the terminal free for questions to the person."""
        yield

    def close(self) -> None:
        """End the display after the run."""


class LiveDisplay(PlainDisplay):
    """A table on the terminal that is redrawn eight times a second. It disappears while a person is
    being asked.
    """

    def __init__(self, followed: Followed) -> None:
        super().__init__(followed)
        self._began = time.monotonic()
        self._closed = False
        self._live = self._start()

    def _start(self) -> Live:
        """Start a new display below the current output, because a restarted display would draw over
        that output.
        """
        from rich.live import Live

        live = Live(
            get_renderable=self._table,
            console=err(),
            refresh_per_second=8,
            transient=True,
            redirect_stdout=False,
        )
        live.start()
        return live

    def changed(self, event: Event | None = None) -> None:
        """Do nothing, because the table redraws itself."""

    @contextmanager
    def aside(self) -> Generator[None]:
        """Remove the table while the context is open."""
        self._live.stop()
        try:
            yield
        finally:
            self._live = self._start()

    def close(self) -> None:
        """Draw the final state and leave it on the terminal, unless the run has no calls."""
        self._closed = True
        self._live.transient = not any(True for _ in self._followed.run.calls())
        self._live.stop()

    def _table(self) -> Text:
        from rich.text import Text

        # Copy the list of calls first, because this method is called in one of Rich's threads.
        calls = list(self._followed.run.calls())
        settled = sum(1 for progress in calls if progress.settled)
        console = err()
        # Show fewer rows until the end, because Rich cannot remove a table that is taller than the
        # terminal.
        most = ROWS if self._closed else max(1, min(ROWS, console.height - _FREE_LINES))
        visible_calls = _latest(calls, most)
        rows = [_TITLES, *map(self._cells, visible_calls)]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)][:-1]
        styles = ["bold", *(_MARKS[progress.status.value][1] for progress in visible_calls)]
        seconds = time.monotonic() - self._began
        head = (
            f"{settled} of {len(calls)} calls, {whole_duration_text(seconds)}{self._followed.asked}"
        )
        lines = [Text(head, "italic")]
        for cells, style in zip(rows, styles, strict=True):
            for line in row_lines(cells, widths, console.width, cut=True):
                lines.append(Text(line, style))

        if len(calls) > most:
            lines.append(Text(f"and {len(calls) - most} more", "dim italic"))

        return Text("\n").join(lines)

    def _cells(self, progress: Progress) -> tuple[str, ...]:
        index = progress.call.index
        seconds = self._followed.seconds(index)
        return (
            _MARKS[progress.status.value][0],
            call_name(progress),
            place_and_name(progress),
            progress.status.value,
            "" if seconds is None else duration_text(seconds),
            message_of(progress.error) if progress.error else self._followed.notes.get(index, ""),
        )


def _latest(calls: list[Progress], rows: int) -> list[Progress]:
    """Return at most `rows` calls: the most recently settled ones, followed by those that have not
    settled.
    """
    if len(calls) <= rows:
        return calls

    busy = [progress for progress in calls if not progress.settled]
    settled = [progress for progress in calls if progress.settled]
    room = max(0, rows - len(busy))
    return [*settled[len(settled) - room :], *busy][:rows]


class Turns:
    """Asks for the Solutions of a run and its rooms, one at a time.

    With `quiet`, it prints only errors, unless standard input is a terminal.
    """

    def __init__(self, run: Run, *, quiet: bool) -> None:
        self._run = run
        self._quiet = quiet and not sys.stdin.isatty()
        self._shown: Request | None = None
        self._schema: JSON = None

    async def take(self) -> bool:
        """Show an open Request, read its Solution from standard input, and submit it. Return False
        at the end of input, or if no Request is open.
        """
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
        # After a malformed Solution, show only the errors, not the Request again.
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
                say(f"schema: {readable_json(request.schema, compact=True)}", "dim")

        forms = '{"calls": [...], "output": ...}'
        if "program" in SolutionSchema.read(request.schema).properties:
            forms += ', or {"program": TEXT}'

        say(f"write {forms}, and an empty line", "dim")


def _offered(schema: JSON) -> Iterator[str]:
    """Yield the lines that describe the schema of a Solution for a person: the tools with their
    parameters, and the output.
    """
    solution = SolutionSchema.read(schema)
    for call in solution.calls:
        if call.tool:
            description = str(call.schema.get("description") or "").split("\n")[0]
            members = {key: part for key, part in call.members.items() if not key.startswith("_")}
            parameters = parameters_text({**call.schema, "properties": members})
            yield f"tool: {call.tool}({parameters})  {description}".rstrip()

    outputs = [readable_json(output, compact=True) for output in solution.outputs]
    yield f"output: {' or '.join(outputs)}"


async def _read() -> str | None:
    """Read one Solution as text, ending at an empty line or after a complete JSON value. Return
    None at the end of input.
    """
    text = ""
    while True:
        line = await read_line("> ")
        if not line or (text and not line.strip()):
            return text or None
        if line.strip():
            text += line
        if text.rstrip().endswith("}") and isinstance(value_of(text), dict):
            return text


async def follow(
    run: Run,
    *,
    quiet: bool = False,
    by_turns: bool = False,
    asks: bool = True,
    leaves: bool = False,
) -> Followed:
    """Follow `run` until it ends, or is waiting for something that nobody at this terminal can
    provide.

    Args:
        run: a newly started run.
        quiet: whether to show nothing.
        by_turns: whether to read the Solutions that the run needs from standard input.
        asks: whether to ask a person at the terminal for approvals.
        leaves: whether to leave a run that is waiting for approval open on Ctrl-C instead of
            cancelling it.
    """
    followed = Followed(run)
    turns = Turns(run, quiet=quiet) if by_turns else None
    for progress in run.calls():
        if progress.status.value == "running":
            # The watchers were not added yet when the first calls started, so they have not seen
            # these events.
            followed.take(events.CallStarted(progress.call.index))

    run.runner.watchers.append(followed.take)
    run.runner.progress_watchers.append(
        lambda call, _done, _total, note: followed.notes.update({call: note or ""})
    )
    async with _stopping_at_signals(followed, leaves=leaves):
        display: PlainDisplay | None = None
        if not quiet:
            display = LiveDisplay(followed) if sys.stderr.isatty() else PlainDisplay(followed)
            run.runner.watchers.append(display.changed)
            display.changed()

        try:
            while await run.wait() in ("needs_approval", "needs_solution"):
                aside = contextlib.nullcontext() if display is None else display.aside()
                if not await _answered(followed, turns, aside, asks=asks):
                    break
        except anyio.get_cancelled_exc_class():
            if not followed.stopped:
                # Ctrl-C was pressed before this process began to watch for signals, so it was
                # asyncio that cancelled this task.
                await _stop(run, leaves=leaves)
                say(f"{run.id}: {run.status}", "dim")
            raise
        finally:
            if display is not None:
                display.close()

    return followed


async def _answered(
    followed: Followed,
    turns: Turns | None,
    aside: contextlib.AbstractContextManager[None],
    *,
    asks: bool,
) -> bool:
    """Within `aside`, let the person provide the answer that the run is waiting for, or let `turns`
    read a Solution. Return False if nobody at this terminal can answer.
    """
    run = followed.run
    if run.status == "needs_solution":
        if turns is None:
            return False
        with aside:
            return await turns.take()

    if asks and at_terminal():
        with aside:
            await ask_all(run)
        return True

    if await decline_all(run):
        return True

    followed.pending = True
    return False


async def _stop(run: Run, *, leaves: bool) -> None:
    """Cancel a run because the person stopped the command. With `leaves`, a run that is waiting for
    approval is not cancelled.
    """
    if not (leaves and run.status == "needs_approval"):
        await run.patiently(lambda: run.cancel("stopped at the terminal"))


@asynccontextmanager
async def _stopping_at_signals(followed: Followed, *, leaves: bool) -> AsyncGenerator[None]:
    """While the context is open, Ctrl-C and SIGTERM cancel the run and its calls, including remote
    ones. Completed work is kept in the store.
    """

    async def watch(signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope) -> None:
        async for _ in signals:
            followed.stopped = True
            await _stop(followed.run, leaves=leaves)
            scope.cancel()
            return

    if sys.platform == "win32":
        # This event loop has no signal handlers on Windows. KeyboardInterrupt ends the process, and
        # the journal remains.
        yield
        return

    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with anyio.create_task_group() as group:
            group.start_soon(watch, signals, group.cancel_scope)
            yield
            group.cancel_scope.cancel()


def result_json(followed: Followed, extra: JSONObject | None = None) -> JSONObject:
    """Return the complete answer of a run, with its `calls` and the members of `extra`."""
    return {**followed.run.answer(whole=True), "calls": followed.rows(), **(extra or {})}


def print_result(
    followed: Followed, options: Options, *, extra: JSONObject | None = None
) -> ExitCode:
    """Print the result to standard output and everything else to standard error. With `--json`,
    print a single object that includes the members of `extra`.
    """
    if options.json:
        print_json(result_json(followed, extra))
    else:
        _print_answer(followed.run)

    _advise(followed, options)
    return followed.code()


def _print_answer(run: Run) -> None:
    answer = run.answer(whole=True)
    for line in str(answer.get("printed", "")).splitlines():
        say(line)

    _print_output(run, answer)
    for line in doubt_lines(run.machine):
        say(line, "yellow")

    for error in run.errors():
        report(error_line(error))

    for skipped in run.skipped:
        say(f"skipped: {skipped_line(skipped)}", "dim")

    line = f"{run.id}: {run.status}{errors_text(len(run.errors()))}"
    reason = answer.get("reason")
    if reason and "\n" in str(reason):
        report(str(reason))
    elif reason:
        line += f" ({reason})"

    if run.idea:
        line += f", idea {run.idea[:12]}"

    say(line, "dim")


def _print_output(run: Run, answer: JSONObject) -> None:
    """Print the output of a run or, if there is none, the state and the results."""
    if "output" in answer:
        print_value(answer["output"])
        if answer.get("state"):
            say(f"state: {readable_json(run.answer().get('state'), compact=True)}", "dim")
    elif run.status == "done" or answer.get("state") or answer.get("results"):
        print_value({key: answer[key] for key in ("state", "results") if answer.get(key)})


def _advise(followed: Followed, options: Options) -> None:
    """Tell the person how to continue a waiting run, because running the plan again would repeat
    completed calls.
    """
    run = followed.run
    again = options.again
    if run.status == "needs_solution":
        report(
            f"it is waiting for the solution of turn {run.turn}. A client connected to this store "
            "can submit it, or you can:"
        )
        report(f"  ideabridge resume {run.id}{again} (reads it from standard input, and continues)")

    if followed.pending:
        choices: list[JSON] = []
        for entry in run.approvals():
            if isinstance(entry, dict):
                report(f"approval needed ({entry.get('approval')}): {entry.get('why')}")
                choices.append(entry.get("choices", ["approve", "deny"]))

        # Repeat the options in the suggested commands, because a command that continues the run
        # needs the same configuration.
        report(
            "it is waiting in the store. A client connected to this store can decide, or you can:"
        )
        report(f"  ideabridge resume {run.id}{again} (asks you at a terminal, and continues)")
        match choices:
            case [[first, *others], *rest] if all(other == choices[0] for other in rest):
                report(
                    f"  ideabridge approvals decide {first} {run.id}{again} (or "
                    f"{', '.join(map(str, others))})"
                )
            case _:
                report(
                    f"  ideabridge approvals list {run.id}{again} (shows the possible answers to "
                    "each)"
                )
