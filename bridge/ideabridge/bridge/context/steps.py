"""Steps: conversions of one value into another, such as a date in another format or a part of a text.

Everything here is pure. A value that a step cannot be applied to, or that is too long, has no conversion.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.state import MISSING, Missing, parsed_text
from ideabridge.tools.encoding import JSON, encode_text
from ideabridge.tools.keywords import show

CHARACTERS: Final = 1_000_000
"""The longest text that is taken apart or made."""

_INT, _FLOAT, _STR = (int,), (int, float), (str,)

STEPS: Final[Mapping[str, tuple[tuple[type, ...], ...]]] = {
    "number": (),
    "text": (),
    "lower": (),
    "upper": (),
    "title": (),
    "strip": (),
    "date": (_STR, _STR, _INT),
    "word": (_INT,),
    "part": (_STR, _INT),
    "between": (_STR, _STR),
    "add": (_FLOAT,),
    "multiply": (_FLOAT,),
    "length": (),
}
"""The steps of conversion by name, with the types of their arguments.

`number` and `text` change the type; `date` reads a date in the first format, adds days and writes it in the second
format; `word` is the n-th word of a text, from 0, and from the end if negative; `part` the n-th part between
separators; `between` is what follows the first text in its line, up to the second (or to the end of the line if that is
empty); `add` and `multiply` are one arithmetic step with a constant; `length` is that of a text, a list or an object.
"""


def convert(value: JSON, by: tuple[JSON, ...]) -> JSON | Missing:
    """Apply one step of conversion, such as `("add", 1)`, to a value; MISSING if it cannot be applied."""
    if isinstance(value, str) and len(value) > CHARACTERS:
        return MISSING
    match by:
        case ("text",):
            return as_text(value)
        case ("length",):
            return _length(value)
        case ("add" | "multiply", int() | float() as constant):
            return _calculated(value, str(by[0]), constant)
        case _ if not isinstance(value, str):
            return MISSING
        case ("number",):
            return _to_number(value)
        case ("lower" | "upper" | "title" | "strip" as change,):
            return {"lower": str.lower, "upper": str.upper, "title": str.title, "strip": str.strip}[change](value)
        case ("date", str(given), str(wanted), int(days)) if len(value) <= 40:
            return _date(value, given, wanted, days)
        case ("word", int(number)):
            return _nth(value.split(), number)
        case ("part", str(separator), int(number)) if separator in value:
            return _nth(value.split(separator), number)
        case ("between", str(before), str(after)):
            return _between(value, before, after)
        case _:
            return MISSING


def shown_step(by: tuple[JSON, ...]) -> str:
    """Return a step as words for people."""
    match by:
        case ("number" | "text" as kind,):
            return f"as a {kind}" if kind == "number" else "as text"
        case ("lower" | "upper" as change,):
            return f"in {change} case"
        case ("title",):
            return "with capitals"
        case ("strip",):
            return "without spaces around it"
        case ("add", int() | float() as constant):
            return f"{constant:+}"
        case ("multiply", int() | float() as constant):
            return f"times {constant}"
        case ("date", str(given), str(wanted), int(days)):
            return f"date{f' {days:+} days' if days else ''}{f' as {wanted}' if given != wanted else ''}"
        case ("word", int(number)):
            return f"word {_ordinal(number)}"
        case ("part", str(separator), int(number)):
            return f"part {_ordinal(number)} between {show(separator)}"
        case ("between", str(before), str(after)):
            return f"after {show(before)} {f'up to {show(after)}' if after else 'to the end of its line'}"
        case _:
            return "its length"


def _ordinal(number: int) -> str:
    return f"{number + 1}" if number >= 0 else f"{-number} from the end"


_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?")


def _to_number(value: str) -> JSON | Missing:
    text = value.strip()
    if _NUMBER.fullmatch(text) is None:
        return MISSING
    return float(text) if "." in text else int(text)


def as_text(value: JSON | Missing) -> JSON | Missing:
    """Return a number as text; MISSING for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return MISSING
    return str(int(value)) if isinstance(value, float) and value.is_integer() else encode_text(value)


def _calculated(value: JSON, operation: str, constant: float) -> JSON | Missing:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return MISSING
    try:
        found = value + constant if operation == "add" else value * constant
        # What arithmetic on binary fractions adds beyond ten digits is noise.
        return found if isinstance(found, int) else round(found, 10)
    except OverflowError:
        return MISSING


def _nth(parts: list[str], number: int) -> JSON | Missing:
    return parts[number].strip() if -len(parts) <= number < len(parts) else MISSING


def _between(value: str, before: str, after: str) -> JSON | Missing:
    start = value.find(before)
    if start < 0:
        return MISSING
    start += len(before)
    end = value.find("\n", start)
    line = value[start:] if end < 0 else value[start:end]
    if not after:
        return line.strip()
    found, mark, _ = line.partition(after)
    return found.strip() if mark else MISSING


def _length(value: JSON) -> JSON | Missing:
    inner = parsed_text(value) if isinstance(value, str) else value
    inner = value if isinstance(inner, Missing) else inner
    return len(inner) if isinstance(inner, str | list | dict) else MISSING


_FORMAT = re.compile(r"(?:%[YmdeBbHMS]|[^%]){1,40}")


@lru_cache(maxsize=1024)
def _date(value: str, given: str, wanted: str, days: int) -> JSON | Missing:
    try:
        moment = datetime.strptime(value, given.replace("%e", "%d"))  # noqa: DTZ007
        # strptime also reads forms that the format does not write, such as a day without its zero.
        return written_date(moment + timedelta(days=days), wanted) if written_date(moment, given) == value else MISSING
    except (ValueError, OverflowError):
        return MISSING


def written_date(moment: datetime, form: str) -> str:
    """Write a date in a format of the step `date`: that of strftime, and `%e` for the day without a zero."""
    return f"{moment.year:04d}".join(moment.strftime(part) for part in form.replace("%e", str(moment.day)).split("%Y"))


def check_step(name: str, arguments: list[JSON], where: str) -> None:
    """Check the arguments of a step.

    Raises:
        ExplanationError: they do not fit; the message says what was expected.
    """
    wanted = STEPS[name]
    fits = len(arguments) == len(wanted) and all(
        isinstance(one, types) and not isinstance(one, bool) for one, types in zip(arguments, wanted, strict=True)
    )
    if fits and name == "date":
        fits = all(isinstance(one, str) and _FORMAT.fullmatch(one) for one in arguments[:2])
    if fits and name == "part":
        fits = arguments[0] != ""
    if not fits:
        expected = ", ".join(" or ".join(one.__name__ for one in types) for types in wanted) or "nothing"
        raise ExplanationError(f"{where}.by: {name} takes {expected}, found {show(list[JSON](arguments))}")
