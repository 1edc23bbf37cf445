"""Print results to standard output and everything else to standard error, with colours only on
terminals.

All output of the commands passes through this module, because text from outside must not control
the terminal. Each function escapes hidden characters (`ideabridge.tools.names`). Everything that
rich draws is escaped a second time, so that safety does not depend on the callers.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TextIO, cast

from ideabridge.bridge.context.payloads import without_payloads
from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import (
    counted,
    printable,
    printable_line,
    readable_json,
    whole_duration_text,
)

if TYPE_CHECKING:
    from rich.console import Console


_STEADY_SECONDS: Final = 1.0
"""Minimum time, in seconds, that a question must be visible before an answer counts. It is the same
on the page.
"""

_DELAY_SECONDS: Final = 0.5
"""Delay, in seconds, before a line about work in progress appears."""

_LEAST_WIDTH: Final = 12
"""Minimum width, in columns, of the last column of a table, no matter how narrow the terminal
is.
"""


def out() -> Console:
    """Return the console for standard output. Writing to it raises `BrokenPipeError` if the reader
    has closed the pipe.
    """
    return _console(sys.stdout, _raise_broken_pipe)


def err() -> Console:
    """Return the console for standard error. If the reader has closed the pipe, the command
    continues without this output.
    """
    return _console(sys.stderr, _drop_errors)


@functools.lru_cache(maxsize=4)
def _console(file: TextIO, broken: Callable[[], object]) -> Console:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            # Do not call the original method, because it would end the process.
            broken()

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for text, style, control in super().render(renderable, options):
                # Leave control segments as they are, because Rich moves the cursor with them.
                yield Segment(text if control else printable(text), style, control)

    return Plain(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)


def _raise_broken_pipe() -> None:
    raise BrokenPipeError


def _drop_errors() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def drop_output() -> None:
    """Discard any buffered output, and everything that is written to standard output from now
    on.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def say(text: str, style: str | None = None) -> None:
    """Print a line to standard error for the user."""
    err().print(printable(text), style=style)


def say_wrapped(text: str, style: str | None = None, *, further: str = "") -> None:
    """Print a message to standard error, wrapped to the width of the terminal. Continuation lines
    begin with `further`.
    """
    width = terminal_width(of_errors=True)
    lines = [text] if width is None else wrapped(text, width, further=further)
    for line in lines:
        say(line, style)


def report(message: str) -> None:
    """Print an error to standard error, one line per problem."""
    console = err()
    for line in message.splitlines() or [""]:
        if line.strip():
            from rich.text import Text

            console.print(
                Text("ideabridge: ", style="bold red") + Text(printable(line), style="default")
            )


def show_line(text: str, style: str | None = None) -> None:
    """Print a line of the result to standard output."""
    out().print(printable(text), style=style)


def terminal_width(*, of_errors: bool = False) -> int | None:
    """Return the width in columns of the terminal that shows results or, with `of_errors`,
    messages. Return None if the output goes to a pipe or a file.
    """
    if of_errors:
        return err().width if sys.stderr.isatty() else None
    return out().width if sys.stdout.isatty() else None


def fit(text: str, indent: int | None = None) -> str:
    """Wrap a line if standard output is a terminal.

    Continuation lines are indented by `indent` spaces or, if it is None, as much as the line
    itself.
    """
    if not sys.stdout.isatty():
        return text
    if indent is None:
        indent = len(text) - len(text.lstrip())
    return "\n".join(wrapped(text, out().width, further=" " * indent))


_FILLER: Final = "\ue000"
"""Represents the second column of a wide character while text is wrapped."""


def wrapped(text: str, width: int, *, first: str = "", further: str = "") -> list[str]:
    """Split text into lines of at most `width` columns.

    The first line begins with `first`, and the other lines begin with `further`. The terminal must
    not wrap the lines itself, because the author of the text could then make the rest of a line
    look like a line from ideabridge.
    """
    import textwrap
    from unicodedata import east_asian_width

    # Escape private-use characters, too, so that the text cannot contain the filler.
    plain = printable(text)
    # Treat characters of ambiguous width as wide, because some terminals show them that way.
    filled = "".join(
        f"{character}{_FILLER}" if east_asian_width(character) in "WFA" else character
        for character in plain
    )
    if len(first) + len(filled) <= width:
        return [first + plain]

    # Leave one column free, because a line might be cut between the two columns of a wide
    # character.
    room = width - (len(filled) > len(plain))
    lines = textwrap.wrap(
        filled, room, initial_indent=first, subsequent_indent=further, break_on_hyphens=False
    )
    return [line.replace(_FILLER, "") for line in lines]


def echo(text: str) -> None:
    """Print help or other text, which can quote the command line, to standard output."""
    _write(printable(text))


def _write(text: str) -> None:
    """Write whole lines to standard output."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    sys.stdout.flush()


def first_line(text: str) -> str:
    """Return the first line of a string, truncated to 100 characters."""
    line = text.strip().split("\n")[0]
    return line if len(line) <= 100 else line[:97] + "..."


def errors_text(count: int) -> str:
    """Return a suffix for a run's status that gives the number of errors, such as ", 2 errors", or
    "" if there are no errors.
    """
    return f", {counted(count, 'error')}" if count else ""


def print_json(value: JSON) -> None:
    """Print a JSON value on a single line of standard output."""
    _printed.has_json = True
    _write(_json(value))


@dataclass(slots=True)
class _Printed:
    """Records whether the current command has printed its answer as JSON."""

    has_json: bool = False


_printed = _Printed()


def begin_output() -> None:
    """Reset the output state for another command in this process."""
    _printed.has_json = False


def print_failure(message: str, kind: str, code: int) -> None:
    """Print the object that `--json` prints for a failed command, unless the command has already
    printed its answer. If the reader has closed the pipe, print nothing.
    """
    if _printed.has_json:
        return
    try:
        print_json({"error": {"kind": kind, "message": message}, "exit": code})
    except BrokenPipeError:
        drop_output()


def _json(value: JSON, indent: int | None = None) -> str:
    """Encode a value as JSON. Hidden characters are escaped, which does not change the value."""
    unicode = (sys.stdout.encoding or "ascii").lower().replace("-", "") == "utf8"
    if unicode:
        return readable_json(value, indent)
    return json.dumps(value, indent=indent)


def print_value(value: JSON) -> None:
    """Print a result for a person: strings unchanged, everything else as indented JSON."""
    is_terminal = sys.stdout.isatty()
    if isinstance(value, str):
        # Escape the text on a terminal only: a pipe or a file receives it unchanged.
        _write(printable(value) if is_terminal else value)
        _note_escapes(value)
    elif is_terminal:
        from rich.highlighter import JSONHighlighter

        # Leave out base64, because an image would fill the terminal. A pipe or a file still
        # receives it.
        out().print(JSONHighlighter()(_json(without_payloads(value), 2)))
    else:
        _write(_json(value, 2))


def _note_escapes(text: str) -> None:
    """Warn if the encoding of standard output lacks characters in the printed text."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        say(
            f"standard output has the encoding {encoding}, which lacks characters of this result, "
            "so they are printed as escapes. Set PYTHONIOENCODING=utf-8 to print them",
            "yellow",
        )


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, cut: bool = False) -> None:
    """Print an aligned table to standard output; see `Rows`."""
    printable_rows = [[printable_line(cell) for cell in row] for row in rows]
    columns = zip(titles, *printable_rows, strict=True)
    widths = [max(map(_columns, cells)) for cells in columns]
    table = Rows(titles, widths[:-1], cut=cut)
    for row in printable_rows:
        table.add(row)


def print_rows(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to standard output. If the terminal is too narrow, print each row as lines of
    title and cell instead.
    """
    cells = [[printable_line(cell) for cell in row] for row in (titles, *rows)]
    needed = sum(max(map(_columns, column)) + 2 for column in zip(*cells, strict=True)) - 2
    if not sys.stdout.isatty() or needed <= out().width:
        print_table(titles, rows, cut=True)
        return

    heads = cells[0]
    widths = [max(map(_columns, heads))]
    for number, row in enumerate(cells[1:], 1):
        show_line(f"row {number}", "bold")
        for head, cell in zip(heads, row, strict=True):
            for line in row_lines([head, cell], widths, out().width, cut=False):
                show_line(line)

    sys.stdout.flush()


class Rows:
    """A table on standard output. Each row is printed immediately.

    Args:
        titles: the column titles.
        widths: the width of each column except the last. A cell that is wider than its column
            shifts the rest of its row to the right.
        cut: whether to truncate the last cell of a row to one line on a terminal instead of
            wrapping it. Other cells are never truncated.
    """

    def __init__(self, titles: Sequence[str], widths: Sequence[int], *, cut: bool = False) -> None:
        self._widths = [
            max(width, len(title)) for width, title in zip(widths, titles[:-1], strict=True)
        ]
        self._cut = cut
        self.add(titles, "bold")

    def add(self, cells: Sequence[str], style: str | None = None) -> None:
        """Print a row."""
        width = out().width if sys.stdout.isatty() else None
        for line in row_lines(cells, self._widths, width, cut=self._cut):
            show_line(line, style)
        sys.stdout.flush()


def row_lines(
    cells: Sequence[str], widths: Sequence[int], width: int | None, *, cut: bool
) -> list[str]:
    """Return the lines of a table row. The last cell is wrapped or, with `cut`, truncated to one
    line.

    Args:
        cells: the cells of the row.
        widths: the width of each column except the last.
        width: the maximum width of a line, in columns; None for no limit.
        cut: whether to truncate the last cell instead of wrapping it.
    """
    *first, last = [printable_line(cell) for cell in cells]
    start = "".join(
        cell + " " * (size - _columns(cell) + 2) for cell, size in zip(first, widths, strict=True)
    )
    if width is None:
        return [f"{start}{last}".rstrip()]

    indent = _columns(start)
    room = max(width - indent, _LEAST_WIDTH)
    lines = wrapped(last, room) or [""]
    if cut and len(lines) > 1:
        from rich.cells import set_cell_size

        lines = [set_cell_size(last, room - 1).rstrip() + "…"]

    further = [f"{' ' * indent}{line}".rstrip() for line in lines[1:]]
    return [f"{start}{lines[0]}".rstrip(), *further]


def wrapped_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], width: int | None
) -> list[str]:
    """Return the lines of a table in which every cell is wrapped and none is truncated.

    Args:
        titles: the column titles.
        rows: the rows. The last column gets the remaining width.
        width: the width of the table, in columns; None for no limit.
    """
    cells = [[printable_line(cell) for cell in row] for row in (titles, *rows)]
    *first, _ = zip(*cells, strict=True)
    widths = [max(map(_columns, column)) for column in first]
    last = None
    if width is not None:
        widths = [min(size, max(_LEAST_WIDTH, width // 4)) for size in widths]
        used = sum(size + 2 for size in widths)
        last = max(_LEAST_WIDTH, width - used)

    return [line for row in cells for line in _wrapped_row(row, widths, last)]


def _wrapped_row(cells: Sequence[str], widths: Sequence[int], last: int | None) -> Iterator[str]:
    *first, final = cells
    columns = [wrapped(cell, size) for cell, size in zip(first, widths, strict=True)]
    columns.append([final] if last is None else wrapped(final, last))
    for parts in itertools.zip_longest(*columns, fillvalue=""):
        line = "".join(
            part + " " * (size - _columns(part) + 2)
            for part, size in zip(parts, widths, strict=False)
        )
        yield f"{line}{parts[-1]}".rstrip()


def _columns(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


@contextmanager
def interruptible() -> Generator[None]:
    """Let Ctrl-C interrupt a blocking read. The event loop's own handler would cancel the task only
    after the read returned.
    """
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


async def let_read() -> None:
    """Give the person at the terminal time to read what was just shown, before a prompt whose
    answer has consequences.

    Input typed before the prompt is discarded, because it was meant for something else.
    """
    import anyio

    if sys.stdin.isatty():
        await anyio.sleep(_STEADY_SECONDS)
        _discard_typed()


def confirm(question: str) -> bool:
    """Ask the person at the terminal to confirm what was just shown, after giving them time to read
    it (see `let_read`).
    """
    import typer

    if sys.stdin.isatty():
        time.sleep(_STEADY_SECONDS)
        _discard_typed()
    return typer.confirm(question, err=True)


def _discard_typed() -> None:
    if sys.platform == "win32":
        import msvcrt

        while msvcrt.kbhit():
            msvcrt.getwch()
    else:
        import termios

        # A terminal delivers one line at a time, so `sys.stdin` has not buffered any other line.
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


async def read_line(prompt: str) -> str | None:
    """Read a line from standard input, with the given prompt if it is a terminal. Return None at
    the end of input.

    Waiting for the line can be cancelled with Ctrl-C.
    """
    import anyio
    import anyio.to_thread

    is_terminal = sys.stdin.isatty()
    if is_terminal:
        err().print(printable(prompt), end="")

    try:
        if sys.platform == "win32" or not is_terminal:
            text = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        else:
            # A terminal delivers whole lines, so once it is ready, reading from it does not block.
            await anyio.wait_readable(sys.stdin)
            text = sys.stdin.readline()
    except anyio.get_cancelled_exc_class():
        if is_terminal:
            # Break the line, so that further output begins on a new one.
            err().print()
        raise

    return text or None


class ExitCode(IntEnum):
    """The exit code of the process."""

    DONE = 0
    FAILED = 1
    """The command ran but did not succeed: calls had errors, a server is down, or an answer is
    wrong.
    """
    USAGE = 2
    """The command line, a plan, an input, a name or the configuration is wrong. Nothing has run."""
    STORE = 3
    """The store cannot be opened, read or written."""
    WAITING = 4
    """A run is waiting for a person's approval or for a solution."""
    INTERNAL = 70
    """There is a bug in ideabridge."""
    CANCELLED = 130
    """The user pressed Ctrl-C."""


class UsageError(IdeabridgeError):
    """Raised when a command line cannot be understood."""


_STORE = (
    "StoreVersionError",
    "StoreFormatError",
    "StoreAccessError",
    "StoreFullError",
    "StoreBusyError",
    "StoreError",
)
_FAILED = (
    "ModuleConnectError",
    "ModuleDownError",
    "ModuleToolError",
    "ModuleOutputError",
    "ModuleProtocolError",
    "ModuleTimeoutError",
    "ModuleInputRequiredError",
    "ModuleSignInError",
    "SignInError",
    "CheckFailedError",
    "InterruptedRunError",
)


def exit_code(error: IdeabridgeError) -> ExitCode:
    """Return the exit code for an error. The class is looked up by name, so that the modules that
    define the classes need not be imported.
    """
    name = type(error).__name__
    if name in _STORE:
        return ExitCode.STORE
    if name in _FAILED:
        return ExitCode.FAILED
    return ExitCode.USAGE


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors in nested exception groups, which task groups raise."""
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(inner)
    else:
        yield error


def own_error(error: BaseException) -> IdeabridgeError | None:
    """If an exception group contains only ideabridge's own errors and cancellations, return the
    first of these errors, and None otherwise.
    """
    first: IdeabridgeError | None = None
    for leaf in leaves(error):
        if isinstance(leaf, IdeabridgeError):
            first = first or leaf
        elif type(leaf).__name__ != "CancelledError":
            return None

    return first


def at_terminal() -> bool:
    """Return whether standard input and standard error are both terminals, so that a person can be
    prompted.
    """
    return sys.stdin.isatty() and sys.stderr.isatty()


@contextmanager
def working(task: str | Callable[[], str], *, quiet: bool = False) -> Generator[None]:
    """While the block runs, show a status line on standard error: the task, as text or as a
    function that returns text, and the elapsed seconds.

    The line appears after half a second and disappears at the end. Nothing is shown if there is no
    terminal, or with `quiet`.
    """
    console = err()
    if quiet or not console.is_terminal or console.is_dumb_terminal:
        yield
        return

    from rich.live import Live
    from rich.text import Text

    began = time.monotonic()

    def line() -> Text:
        seconds = time.monotonic() - began
        state = task if isinstance(task, str) else task()
        text = "" if seconds < _DELAY_SECONDS else f"{state} ({whole_duration_text(seconds)})"
        return Text(text, "dim", no_wrap=True, overflow="ellipsis")

    # Rich draws the line in a thread of its own, so it is drawn even while this thread is waiting
    # for the disk.
    with Live(
        get_renderable=line,
        console=console,
        refresh_per_second=2,
        transient=True,
        redirect_stdout=False,
    ):
        yield
