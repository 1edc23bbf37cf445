"""Format values, times and names as text for pages. Templates escape these texts."""

from __future__ import annotations

import difflib
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from ideabridge.bridge.modules.settings import ModuleStatus
from ideabridge.bridge.modules.sign_ins import login_command
from ideabridge.bridge.store.idea import Publication
from ideabridge.server.ui.askers import AskingProgram, deciders_as_read_by, kind_of_assistant
from ideabridge.server.ui.readable_names import (
    code_name_of,
    is_spelling_of,
    readable,
)
from ideabridge.server.views.text import Beginning, source_text
from ideabridge.tools.encoding import JSON, encode
from ideabridge.tools.names import (
    age_text,
    counted,
    duration_text,
    printable,
    readable_json,
    size_text,
    until_text,
    visible,
    whole_duration_text,
)

LONGEST: Final = 12_000
"""Maximum number of characters that a page shows from a value. The rest is loaded on demand."""

CUT: Final = "…"
"""The last line of a comparison that is cut off."""


def duration(seconds: float | None) -> str:
    """Return the `duration_text` of a duration, or "" for None."""
    return "" if seconds is None else duration_text(seconds)


def size(number: int | None) -> str:
    """Return the `size_text` of a number of bytes, or "" for None."""
    return "" if number is None else size_text(number)


def ago(at: float | str | None, now: float) -> str:
    """Return the `age_text` of a time, or "" for None. A string is a time from the store."""
    return age_text(now - _seconds(at)) if at else ""


def age(at: float | str | None, now: float) -> Markup:
    """Return the `age_text` of a time in an element that a script keeps up to date while the page
    is open. The element's tooltip shows the exact time.
    """
    if not at:
        return Markup()
    seconds = max(0, int(now - _seconds(at)))
    element = Markup('<time data-age="{}" title="{} UTC" datetime="{}">{}</time>')
    return element.format(seconds, moment(at), machine_moment(at), ago(at, now))


def until(at: float | str | None, now: float) -> Markup:
    """Return the time left, such as `in 3 days`, or the age of a past time, in an element that
    contains the exact time.
    """
    if not at:
        return Markup()
    seconds = _seconds(at) - now
    if seconds <= 0:
        return age(at, now)
    element = Markup('<time title="{} UTC" datetime="{}">{}</time>')
    return element.format(moment(at), machine_moment(at), until_text(seconds))


def local_time(at: float | str | None) -> Markup:
    """Return a time, such as `22 Nov 2026, 10:15`, in an element that a script converts to the
    reader's time zone. Without scripts, the time is labelled as UTC.
    """
    if not at:
        return Markup()
    then = datetime.fromtimestamp(_seconds(at), UTC)
    element = Markup('<time data-local datetime="{}">{} {:%b %Y, %H:%M} UTC</time>')
    return element.format(machine_moment(at), then.day, then)


def _seconds(at: float | str) -> float:
    """Return a time in seconds since 1970. A string is a time from the store."""
    if isinstance(at, str):
        return datetime.fromisoformat(at).timestamp()
    return at


def moment(at: float | str | None) -> str:
    """Return a time in UTC as text, such as `2026-11-22 10:15:03`, or "" for None."""
    return exact_moment(at).partition(".")[0]


def machine_moment(at: float | str) -> str:
    """Return a UTC time in HTML format, such as `2026-11-22T10:15:03Z`."""
    return f"{moment(at).replace(' ', 'T')}Z"


def day(at: str | float, now: float) -> str:
    """Return the UTC day of a time, such as `3 Nov`, with the year unless it is the current one.
    Return "" if `at` is not a valid time.
    """
    try:
        then = datetime.fromtimestamp(_seconds(at), UTC)
    except (ValueError, OverflowError, OSError):
        return ""

    text = f"{then.day} {then:%b}"
    if then.year == datetime.fromtimestamp(now, UTC).year:
        return text
    return f"{text} {then.year}"


def exact_moment(at: float | str | None) -> str:
    """Return a time in UTC with milliseconds, such as `2026-11-22 10:15:03.120`, or "" for None."""
    if not at:
        return ""
    if isinstance(at, str):
        then = datetime.fromisoformat(at)
    else:
        then = datetime.fromtimestamp(at, UTC)
    return then.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def as_json(value: JSON) -> str:
    """Return a value as indented, readable JSON."""
    return readable_json(value, 2)


def text_of(value: JSON) -> str:
    """Return a value as readable text: a string with hidden characters made visible, or any other
    value as indented JSON.
    """
    if isinstance(value, str):
        return visible(value, "\n\t")
    return as_json(value)


def bounded(value: JSON) -> str:
    """Return the first `LONGEST` characters of a value's `text_of`."""
    text = text_of(Beginning(value, LONGEST).value)
    return text if len(text) <= LONGEST else text[:LONGEST]


def omitted(value: JSON) -> int:
    """Return the number of characters that `bounded` leaves out. The number is an estimate for
    large values, but is 0 if and only if nothing is left out.
    """
    beginning = Beginning(value, LONGEST)
    if not beginning.is_cut:
        return max(0, len(text_of(value)) - LONGEST)
    return max(1, len(encode(value)) - LONGEST)


def in_one_line(value: JSON, most: int = 120) -> str:
    """Return a value on one line, cut after `most` characters."""
    if isinstance(value, str):
        # This many words are enough, because each has at least one character.
        line = " ".join(value.split(maxsplit=most + 1)[: most + 1])
        text = visible(line[: most + 1])
    else:
        text = readable_json(Beginning(value, most).value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def in_few_words(value: JSON, most: int = 80) -> str:
    """Return a value on one line, cut after `most` characters. For a list or an object, return its
    length instead.
    """
    if isinstance(value, list):
        return f"a list of {counted(len(value), 'item')}"
    if isinstance(value, dict):
        return f"an object with {counted(len(value), 'member')}"
    return in_one_line(value, most) or "an empty text"


def differing_lines(old: list[str], new: list[str], most: int) -> list[str]:
    """Return the lines of a unified diff, each beginning with " ", "+", "-" or "@@".

    The header is left out, and so is the "@@" line if there is only one. If there are more than
    `most` lines, the last one is `CUT`.
    """
    compared = difflib.unified_diff(old, new, lineterm="", n=2)
    lines = list(islice(compared, 2, 3 + most))
    if len(lines) > most:
        lines[most:] = [CUT]

    # A line that begins with "@@" is a place, because lines from the texts begin with a space, "+"
    # or "-".
    places = [line for line in lines if line.startswith("@@")]
    if len(places) == 1:
        lines.remove(places[0])
    return lines


_BREAKS: Final = re.compile(r"(?<=\w[/_-])(?=[\w.])|(?<=\w\.)(?=[^\W\d_])")
"""Matches the positions after the separators within a path or a name."""


def breakable(text: str | Path) -> Markup:
    """Return text that can also wrap after the separators in a path or a name, so that a narrow
    window does not break them within a word.
    """
    return Markup("<wbr>").join(_BREAKS.split(printable(str(text))))


def coded(text: str) -> Markup:
    """Return a `breakable` text in which the parts between backticks, such as commands, are shown
    as code.

    If the number of backticks is odd, nothing is shown as code, unless the text was cut. In that
    case, the text after the last backtick is code, too.
    """
    parts = text.split("`")
    if len(parts) % 2 == 0 and not text.endswith("…"):
        return breakable(text)

    shown = [
        Markup("<code>{}</code>").format(breakable(part)) if place % 2 else breakable(part)
        for place, part in enumerate(parts)
    ]
    return Markup().join(shown)


_COMMAND: Final = re.compile(r"`((?:ideabridge|pip) [^`]+)`")


@dataclass(frozen=True, slots=True)
class AdvicePart:
    """A part of a sentence that gives advice.

    Attributes:
        text: the text of the part. A command has no backticks.
        is_command: whether the part is a command for a terminal.
    """

    text: str
    is_command: bool


def commands(sentence: str) -> list[AdvicePart]:
    """Split a sentence at the commands that it quotes in backticks."""
    pieces = _COMMAND.split(sentence)
    parts = [AdvicePart(piece, place % 2 == 1) for place, piece in enumerate(pieces)]
    return [part for part in parts if part.text]


def words(status: str) -> str:
    """Return a status with spaces between its words."""
    return status.replace("_", " ")


_WORD_OF_NAME: Final = re.compile(r"[^\W_]+")
_HUES: Final = 8
"""Number of the classes `hue-1` and so on in the style sheet."""


def initial(name: str) -> str:
    """Return the first letter or digit of a name, such as "C" for `Claude Code`, or its first
    character if there is none. Two letters could be read as a word, such as "No" for `notes`.
    """
    word = _WORD_OF_NAME.search(name)
    return (word.group() if word else name)[:1].upper()


def hue(name: str) -> int:
    """Return the number of the colour for a name, from 1 to `_HUES`. The number is the same on
    every page and in every process.
    """
    # These bits of the checksum give the usual names of servers different colours.
    return (zlib.crc32(name.encode("utf-8", "replace")) >> 9) % _HUES + 1


_LIGHTS: Final = {
    "up": "up",
    "idle": "idle",
    "connecting": "starting",
    "disabled": "off",
}


def light(status: ModuleStatus) -> str:
    """Return a server's state as one of `up`, `idle`, `starting`, `needs sign-in`, `failing` and
    `off`.
    """
    if status.needs_sign_in and status.state != "disabled":
        return "needs sign-in"
    return _LIGHTS.get(status.state, "failing")


def without_login(text: str, server: str) -> str:
    """Return an error message without the sign-in command for a server.

    Use this where the page already links to the sign-in page.
    """
    return text.replace(f": {login_command(server)}", "")


def failure_reason(status: ModuleStatus) -> str:
    """Return why a server is failing, in a few words, or "" if it is not failing.

    The server's page also shows hints and the server's output; see `problem_of`.
    """
    if status.error is None or light(status) != "failing":
        return ""

    return problem_of(status).partition("; ")[0]


def problem_of(status: ModuleStatus) -> str:
    """Return a server's error where its name is already shown, or "" if there is no error."""
    error = status.error or ""
    named = f"server {status.name!r} "
    if not error.startswith(named):
        # Do not capitalize the first letter, because the error may begin with a key from a
        # configuration file.
        return error
    reason = error.removeprefix(named)
    return f"{reason[:1].upper()}{reason[1:]}"


_PLAIN_WORD: Final = re.compile(r"[a-z]+(?=[\s,:])")
"""Matches a word at the start of a text that is neither a path nor a key of a file."""


def capital(text: str) -> str:
    """Capitalize the first letter of a text, so that it can be a sentence.

    A text that begins with a key of a configuration file, such as `mcpServers.notes`, is unchanged.
    """
    if _PLAIN_WORD.match(text) is None:
        return text
    return f"{text[:1].upper()}{text[1:]}"


_QUOTED_NAME: Final = re.compile(r"'([^']+)'")


def reason(text: str) -> Markup:
    """Return a reason as a separate sentence, with names in bold instead of quotes."""
    parts = _QUOTED_NAME.split(capital(text))
    shown = [
        Markup("<b>{}</b>").format(part) if place % 2 else Markup.escape(part)
        for place, part in enumerate(parts)
    ]
    end = "" if text.endswith((".", "…")) else "."
    return Markup().join([*shown, end])


def as_read_by(text: str, reader: str) -> str:
    """Apply `deciders_as_read_by` as a template filter."""
    return deciders_as_read_by(reader, text)


def _kind_of_tool(publication: Publication) -> str:
    """Return what answers a call of a published tool: `recording`, `model`, `code` or `steps`."""
    if publication.answer == "recorded":
        return "recording"
    if publication.answer == "solve" or publication.plan is None:
        return "model"
    return "code" if publication.program is not None else "steps"


_ANSWERED: Final = {
    "recording": "a recorded answer",
    "model": "a model",
    "code": "code",
    "steps": "fixed steps",
}


def answered(publication: Publication) -> str:
    """Return a phrase that says what answers a call of a published tool."""
    return _ANSWERED[_kind_of_tool(publication)]


_MINDS: Final = {
    "": "the assistant",
    "turns": "the assistant",
    "sampling": "the client's model",
    "recorded": "a recording",
}


def answerer(mind: str) -> str:
    """Return a phrase for the mind that answers a run's Requests, given the mind's name."""
    return _MINDS.get(mind, mind)


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "asker": AskingProgram.of_run,
    "duration": duration,
    "whole_seconds": whole_duration_text,
    "breakable": breakable,
    "coded": coded,
    "commands": commands,
    "size": size,
    "age": age,
    "day": day,
    "ago": ago,
    "until": until,
    "local_time": local_time,
    "moment": moment,
    "exact_moment": exact_moment,
    "json": as_json,
    "source": source_text,
    "bounded": bounded,
    "omitted": omitted,
    "short": in_one_line,
    "count": counted,
    "few_words": in_few_words,
    "words": words,
    "initial": initial,
    "hue": hue,
    "kind_of_assistant": kind_of_assistant,
    "light": light,
    "failure_reason": failure_reason,
    "problem_of": problem_of,
    "without_login": without_login,
    "readable": readable,
    "code_name_of": code_name_of,
    "is_spelling_of": is_spelling_of,
    "as_read_by": as_read_by,
    "capital": capital,
    "reason": reason,
    "answered": answered,
    "answerer": answerer,
}
