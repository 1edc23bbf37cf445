"""Progress of a run for a person: a live table on a terminal, else a line for each call started and finished."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from ideabridge.server.cli.console import clean, err, say
from ideabridge.tools.encoding import JSON, JSONObject

if TYPE_CHECKING:
    from rich.table import Table

    from ideabridge.bridge.loop.event import Event
    from ideabridge.bridge.loop.progress import Progress
    from ideabridge.bridge.run import Run

ROWS: Final = 24
"""Rows the live table shows at most: what settled first makes room."""

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
    """A table that lives on the terminal."""

    def __init__(self, board: Board) -> None:
        from rich.live import Live

        self._board = board
        self._began = time.monotonic()
        self._live = Live(
            get_renderable=self._table, console=err(), refresh_per_second=8, transient=False, redirect_stdout=False
        )
        self._live.start()

    def changed(self, event: Event | None = None) -> None:
        """The table draws itself eight times a second."""

    @contextmanager
    def aside(self) -> Generator[None]:
        """Stop drawing meanwhile."""
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()

    def close(self) -> None:
        """Draw the last state and leave it."""
        self._live.stop()

    def _table(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        # Drawn by a thread of rich's: the list is copied before it is looked at.
        calls = list(self._board.run.calls())
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
        settled = sum(1 for progress in calls if progress.settled)
        table.title = f"{settled} of {len(calls)} calls, {time.monotonic() - self._began:.1f} s"
        for title, options in _COLUMNS:
            table.add_column(title, **options)
        hidden = max(0, len(calls) - ROWS)
        for progress in _shown(calls):
            mark, style = _MARKS[progress.standing.value]
            times = self._board.times.get(progress.call.index)
            note = message_of(progress.error) if progress.error else self._board.notes.get(progress.call.index, "")
            table.add_row(
                Text(mark, style=style),
                Text(clean(call_name(progress))),
                Text(clean(tool_name(progress))),
                Text(progress.standing.value, style=style),
                Text(f"{times.seconds:.2f} s" if times else ""),
                Text(clean(note).replace("\n", " "), style="red" if progress.error else "dim"),
            )
        if hidden:
            table.caption = f"and {hidden} more"
        return table


_COLUMNS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("", {"width": 1}),
    ("call", {"no_wrap": True}),
    ("tool", {"no_wrap": True}),
    ("status", {}),
    ("time", {"justify": "right"}),
    ("", {"no_wrap": True, "overflow": "ellipsis"}),
)


def _shown(calls: list[Progress]) -> list[Progress]:
    if len(calls) <= ROWS:
        return calls
    busy = [progress for progress in calls if not progress.settled]
    done = [progress for progress in calls if progress.settled]
    room = max(0, ROWS - len(busy))
    return [*(done[-room:] if room else []), *busy][:ROWS]
