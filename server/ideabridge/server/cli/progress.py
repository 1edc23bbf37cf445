"""Progress of a run for a person: a live table on a terminal, else a line for each call started and finished."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from ideabridge.server.cli.console import clean, err, say, taken_beside
from ideabridge.tools.encoding import JSON, JSONObject

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from ideabridge.bridge.loop.event import Event
    from ideabridge.bridge.loop.progress import Progress
    from ideabridge.bridge.run import Run

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
        row: JSONObject = {"call": call_name(progress), "tool": tool_name(progress), "status": progress.standing.value}
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
            if progress.standing.value == "running" and index not in self._started:
                self._started.add(index)
                say(f"▶ {_named(progress)}")
            if progress.settled and index not in self._settled:
                self._settled.add(index)
                mark, _ = _MARKS[progress.standing.value]
                times = self._board.times.get(index)
                took = f" in {times.seconds:.2f} s" if times else ""
                why = f": {message_of(progress.error)}" if progress.error else ""
                say(f"{mark} {_named(progress)} {progress.standing.value}{took}{why}")

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
            style = _MARKS[progress.standing.value][1]
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
            _MARKS[progress.standing.value][0],
            clean(call_name(progress)),
            clean(tool_name(progress)),
            progress.standing.value,
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
