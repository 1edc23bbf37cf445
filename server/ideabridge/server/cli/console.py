"""Console: results on standard output, everything else on standard error; colours only on terminals.

Everything a command prints goes through here, and nothing that came from outside reaches a terminal as it came: each
function writes hidden characters out (`ideabridge.tools.names`). What rich draws is looked through once more, line by
line, so that nothing depends on every caller's care.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TextIO, cast

from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import printable, printable_line

if TYPE_CHECKING:
    from rich.console import Console


_LONGEST_VALUE: Final = 160

_LEAST: Final = 8
"""Characters of the last column of a table that are shown on the narrowest terminal."""


def out() -> Console:
    """Standard output. Raises `BrokenPipeError` where nobody reads it any more."""
    return _console(sys.stdout, _raise_broken_pipe)


def err() -> Console:
    """Standard error. Where nobody reads it any more, the command goes on without it."""
    return _console(sys.stderr, lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))


def _console(file: TextIO, broken: Callable[[], object]) -> Console:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            # By itself it would end the process.
            broken()

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for text, style, control in super().render(renderable, options):
                # What rich itself writes to move the cursor comes as control.
                yield Segment(text if control else clean(text), style, control)

    return Plain(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)


def _raise_broken_pipe() -> None:
    raise BrokenPipeError


def say(text: str, style: str | None = None) -> None:
    """One line for the person, on standard error."""
    err().print(clean(text), style=style)


def report(message: str) -> None:
    """An error: one line for each problem, on standard error."""
    console = err()
    for line in message.splitlines() or [""]:
        if line.strip():
            from rich.text import Text

            console.print(Text("ideabridge: ", style="bold red") + Text(clean(line), style="default"))


def show(text: str, style: str | None = None) -> None:
    """One line of a result, on standard output."""
    out().print(clean(text), style=style)


def fit(text: str, indent: int | None = None) -> str:
    """A line for standard output: on a terminal wrapped between words, and within a word longer than a line.

    Args:
        text: the line.
        indent: spaces before each further line; None: as many as the text begins with.
    """
    if not sys.stdout.isatty():
        return text
    further = " " * (len(text) - len(text.lstrip()) if indent is None else indent)
    return "\n".join(wrapped(text, out().width, further=further))


_FILLER: Final = "\ue000"
"""Takes the second column of a wide character while a text is wrapped."""


def wrapped(text: str, width: int, *, first: str = "", further: str = "") -> list[str]:
    """A text in lines of at most `width` columns. A longer line would be broken by the terminal itself, and whoever
    wrote the text could make its rest look like a line of ours.

    Args:
        text: the text.
        width: columns of a line.
        first: what the first line begins with.
        further: what each further line begins with.
    """
    import textwrap
    from unicodedata import east_asian_width

    # Characters of private use, such as the filler, are escapes then.
    plain = printable(text)
    # Ambiguous characters are wide in some terminals.
    told = "".join(f"{one}{_FILLER}" if east_asian_width(one) in "WFA" else one for one in plain)
    if len(first) + len(told) <= width:
        return [first + plain]
    # A line may end between the two columns of a character.
    room = width - (len(told) > len(plain))
    lines = textwrap.wrap(told, room, initial_indent=first, subsequent_indent=further, break_on_hyphens=False)
    return [line.replace(_FILLER, "") for line in lines]


def clean(text: str) -> str:
    """Text without what a terminal would obey, and without what nobody sees: results come from anywhere."""
    return printable(text)


def echo(text: str) -> None:
    """Text of our own on standard output, such as help, which names what stood on the command line."""
    sys.stdout.write(clean(text if text.endswith("\n") else f"{text}\n"))
    sys.stdout.flush()


def counted(count: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def shortened(value: JSON) -> str:
    """A value as JSON in one line, cut after 160 characters."""
    text = encode_text(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}... ({len(text):,} characters)"


def errors_text(count: int) -> str:
    """How many errors a run ended with, to be written behind how it stands."""
    return f", {count} error{'' if count == 1 else 's'}" if count else ""


def print_json(value: JSON) -> None:
    """Exactly one JSON value on standard output, for machines."""
    sys.stdout.write(_json(value) + "\n")
    sys.stdout.flush()


def _json(value: JSON, indent: int | None = None) -> str:
    """The value as JSON in which hidden characters are escaped: no other value, and harmless on a terminal."""
    return printable(json.dumps(value, ensure_ascii=not _takes_unicode(), indent=indent))


def _takes_unicode() -> bool:
    return (sys.stdout.encoding or "ascii").lower().replace("-", "") == "utf8"


def print_value(value: JSON) -> None:
    """A result for a person: text as it is, anything else as indented JSON."""
    if isinstance(value, str):
        # Into a pipe or a file goes the text itself; a terminal is spared what it would obey.
        text = clean(value) if sys.stdout.isatty() else value
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
        return
    text = _json(value, 2)
    if sys.stdout.isatty():
        from rich.highlighter import JSONHighlighter

        out().print(JSONHighlighter()(text))
    else:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def taken_beside(rows: Sequence[Sequence[str]]) -> int:
    """Characters of a line of a table of rich's that all columns but the last take, with what is drawn between."""
    from rich.cells import cell_len

    columns = len(rows[0]) - 1
    return sum(max(cell_len(row[column]) for row in rows) for column in range(columns)) + 2 * columns + 2


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, cut: bool = False) -> None:
    """A table on standard output, aligned. On a terminal the last column takes the room that the others leave.

    Args:
        titles: of the columns.
        rows: their cells.
        cut: cut the last column to one line on a terminal; else it runs over several. No other cell is ever cut.
    """
    listed = [[printable_line(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        console = out()
        taken = taken_beside([titles, *listed])
        room = max(_LEAST, console.width - taken)
        for title in titles[:-1]:
            table.add_column(title, no_wrap=True)
        table.add_column(titles[-1], no_wrap=cut, overflow="ellipsis" if cut else "fold", max_width=room)
        for row in listed:
            table.add_row(*(Text(cell) for cell in row))
        # On a terminal that is too narrow even so, the lines run on.
        console.width = max(console.width, taken + room)
        console.print(table, soft_wrap=False)
        return
    widths = [max(len(row[column]) for row in [list(titles), *listed]) for column in range(len(titles))]
    for row in [list(titles), *listed]:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")
    sys.stdout.flush()


class Rows:
    """A table on standard output whose rows are printed one by one, each as soon as it is known.

    Args:
        titles: of the columns.
        widths: of all columns but the last, in characters; a longer cell pushes the rest of its row to the right. On a
            terminal the last column is wrapped.
    """

    def __init__(self, titles: Sequence[str], widths: Sequence[int]) -> None:
        self._widths = [max(width, len(title)) for width, title in zip(widths, titles[:-1], strict=True)]
        self.add(titles, "bold" if sys.stdout.isatty() else None)

    def add(self, cells: Sequence[str], style: str | None = None) -> None:
        """Print a row."""
        *first, last = [printable_line(cell) for cell in cells]
        start = "".join(f"{cell.ljust(width)}  " for cell, width in zip(first, self._widths, strict=True))
        lines = [last]
        if sys.stdout.isatty():
            lines = wrapped(last, max(out().width - len(start), 20)) or [""]
        for line in lines:
            show(f"{start}{line}".rstrip(), style)
            start = " " * len(start)
        sys.stdout.flush()


def error_json(message: str, kind: str, code: int) -> JSONObject:
    """What `--json` prints where a command fails."""
    return {"error": {"kind": kind, "message": message}, "exit": code}


# -- reading a line ----------------------------------------------------------------------------------------------------


async def read_line(prompt: str) -> str | None:
    """One line from the terminal; None at its end. Waiting can be cancelled (Ctrl-C)."""
    import anyio
    import anyio.to_thread

    err().print(clean(prompt), end="")
    try:
        if sys.platform == "win32":
            text = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        else:
            # A terminal gives whole lines: readable means that reading does not block.
            await anyio.wait_readable(sys.stdin)
            text = sys.stdin.readline()
    except anyio.get_cancelled_exc_class():
        # What comes now does not stand behind the prompt.
        err().print()
        raise
    return text if text else None


# -- exit codes --------------------------------------------------------------------------------------------------------


class ExitCode(IntEnum):
    """What the process says when it ends."""

    DONE = 0
    FAILED = 1
    """What was asked for was done, and did not succeed: calls with errors, a module that is down, a wrong answer."""
    USAGE = 2
    """The command line, a plan, an input, a name or the configuration is wrong; nothing ran."""
    STORE = 3
    """The store cannot be opened, read or written."""
    WAITING = 4
    """A run waits for a person's approval, or for a solution."""
    INTERNAL = 70
    """A defect of ideabridge."""
    CANCELLED = 130
    """Ctrl-C."""


class UsageError(IdeabridgeError):
    """A command line that cannot be understood."""


_STORE = ("StoreVersionError", "StoreFormatError", "StoreAccessError", "StoreFullError", "StoreBusyError", "StoreError")
_FAILED = ("ModuleConnectError", "ModuleDownError", "ModuleToolError", "ModuleOutputError", "ModuleProtocolError")
_FAILED_TOO = ("ModuleTimeoutError", "ModuleInputRequiredError", "CheckFailedError", "InterruptedRunError")


def exit_code(error: IdeabridgeError) -> ExitCode:
    """The exit code of an error. By the name of its class, so that no error's module need be imported for it."""
    name = type(error).__name__
    if name in _STORE:
        return ExitCode.STORE
    if name in _FAILED or name in _FAILED_TOO:
        return ExitCode.FAILED
    return ExitCode.USAGE


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors inside groups of errors (task groups wrap what is raised in them)."""
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(inner)
    else:
        yield error


def own_error(error: BaseException) -> IdeabridgeError | None:
    """Our error in what was raised, if every part of it is ours or a cancellation."""
    found = [one for one in leaves(error) if type(one).__name__ != "CancelledError"]
    own = [one for one in found if isinstance(one, IdeabridgeError)]
    return own[0] if own and len(own) == len(found) else None


def at_terminal() -> bool:
    """Whether a person sits before standard input and standard error."""
    return sys.stdin.isatty() and sys.stderr.isatty()
