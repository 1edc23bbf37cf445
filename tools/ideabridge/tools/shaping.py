"""What the built-in tools compute: here while the budget lasts, in a worker beyond it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sized
from functools import lru_cache
from typing import Any, Final, cast

import jmespath
import jmespath.exceptions
import jmespath.functions
import jmespath.visitor

from ideabridge.tools.encoding import JSON, JSONObject, decode, encode, encode_text, normalise
from ideabridge.tools.errors import ActivityError, IdeabridgeError
from ideabridge.tools.keywords import show
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.worker import workers

# -- query -----------------------------------------------------------------------------------------------------------
#
# JMESPath queries within bounds: a few characters can ask for more than a machine holds.

MAX_QUERY: Final = 2_000
"""Characters in a query."""

MAX_STEPS: Final = 4_000_000
"""Nodes visited, and values made, by one query."""

MAX_RESULT: Final = 64 * 1024 * 1024
"""Bytes of JSON that one query or template may give; what a run keeps is bounded further."""

_VISIT: Final = 20
"""What visiting a node takes of a `Budget`; a value that comes out of it takes its length."""

_TOO_MUCH: Final = "asks for more than the limit of {:,} steps"

_Interpreter: Any = cast("Any", jmespath.visitor).TreeInterpreter
_Functions: Any = cast("Any", jmespath.functions).Functions
_signature: Any = cast("Any", jmespath.functions).signature


def _size(value: Any) -> int:
    return len(cast("Sized", value)) if isinstance(value, list | dict | str) else 0


class _TooMuchError(Exception):
    pass


class OverBudgetError(Exception):
    """The budget of a call is spent: what it computes belongs into a worker."""


class Budget:
    """What the queries of one call may take together, in the event loop.

    Args:
        left: how much; a visited node takes 20, and a value of length n takes n; a microsecond is about 10. None:
            without bound, in a worker.
    """

    __slots__ = ("left",)

    def __init__(self, left: int | None = None) -> None:
        self.left = left

    def spend(self, much: int) -> None:
        """Take something of it.

        Raises:
            OverBudgetError: there is not as much left.
        """
        if self.left is not None:
            self.left -= much
            if self.left < 0:
                raise OverBudgetError


class _Bounded(_Interpreter):
    """Visits nodes as jmespath does and counts what comes out: `[@,@][]` doubles a list each time it stands there."""

    def __init__(self, budget: Budget) -> None:
        _Interpreter.__init__(self, _OPTIONS)
        self._left = MAX_STEPS
        self._budget = budget

    def search(self, query: Any, data: JSON) -> Any:
        """What a parsed query selects in `data`; each time within the limit of steps."""
        self._left = MAX_STEPS
        return self.visit(query, data)

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        result = _Interpreter.visit(self, node, *args, **kwargs)
        size = _size(result)
        self._left -= 1 + size
        if self._left < 0:
            raise _TooMuchError
        self._budget.spend(_VISIT + size)
        return result


class _BoundedFunctions(_Functions):
    @_signature({"types": ["string"]}, {"types": ["string"]})
    def _func_split(self, text: str, separator: str) -> list[str]:
        return text.split(separator) if separator else list(text)

    def call_function(self, function_name: str, resolved_args: list[Any]) -> Any:
        if function_name == "to_string":
            for value in resolved_args:
                _check_nodes(value)
        return _Functions.call_function(self, function_name, resolved_args)


_OPTIONS: Final = jmespath.Options(custom_functions=_BoundedFunctions())


def _check_nodes(value: Any, budget: Budget | None = None) -> None:
    """Refuse a value that, its shared parts written out, is beyond the limit (`[@,@]|[@,@]|...`)."""
    left = MAX_STEPS // 4
    size = MAX_RESULT
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        left -= 1
        if left < 0:
            raise _TooMuchError
        if isinstance(item, str):
            # A long text that stands there many times is short until it is written out.
            size -= len(item)
            if size < 0:
                raise _TooMuchError
        elif isinstance(item, dict):
            stack.extend(cast("dict[str, Any]", item).values())
        elif isinstance(item, list):
            stack.extend(cast("list[Any]", item))
        if budget is not None:
            budget.spend(_VISIT // 4)


@lru_cache(maxsize=256)
def _parse(text: str) -> Any:
    return cast("Any", jmespath.compile(text)).parsed


def check_query(text: str, *, what: str) -> None:
    """Nothing, where `text` is a JMESPath expression whose functions there are.

    Args:
        text: the expression.
        what: the name of the parameter that holds the expression, for messages.

    Raises:
        ActivityError: it is none; the message says where, or names the nearest function.
    """
    if len(text) > MAX_QUERY:
        raise ActivityError(f"{what}: found {len(text):,} characters, expected at most {MAX_QUERY:,}")
    try:
        stack: list[Any] = [_parse(text)]
    except RecursionError:
        raise ActivityError(f"{what}: {show(text)} nests too deep") from None
    except jmespath.exceptions.JMESPathError as error:
        raise ActivityError(f"{what}: {show(text)} is no JMESPath expression: {_first(error)}") from None
    while stack:
        node = stack.pop()
        if not isinstance(node, dict):
            continue
        parts = cast("dict[str, Any]", node)
        given: list[Any] = parts.get("children") or []
        stack.extend(given)
        if parts.get("type") == "function_expression":
            _check_function(str(parts.get("value")), len(given), text, what)


def _check_function(name: str, given: int, text: str, what: str) -> None:
    known: dict[str, Any] = _BoundedFunctions.FUNCTION_TABLE
    if name not in known:
        raise ActivityError(f"{what}: {show(text)}: JMESPath has no function {name[:60]!r}.{did_you_mean(name, known)}")
    wanted: tuple[dict[str, Any], ...] = known[name]["signature"]
    least = len(wanted)
    if given < least or (given > least and not (wanted and wanted[-1].get("variadic"))):
        many = f"at least {least}" if wanted and wanted[-1].get("variadic") else str(least)
        raise ActivityError(f"{what}: {show(text)}: {name} takes {many} argument(s), found {given}")


def search(text: str, data: JSON, *, what: str, budget: Budget | None = None) -> JSON:
    """What the JMESPath expression `text` selects in `data`; null where it selects nothing.

    Args:
        text: the expression.
        data: what it is read from.
        what: the name of the parameter that holds the expression, for messages.
        budget: what it may take; None: only the limit of steps holds.

    Raises:
        ActivityError: it is no JMESPath expression, fails on this data, or asks for too much.
        OverBudgetError: it asks for more than the budget.
    """
    return next(searches(text, (data,), what=what, budget=budget))


def searches(
    text: str, values: Iterable[JSON], *, what: str, budget: Budget | None = None, only_truth: bool = False
) -> Iterator[JSON]:
    """What `search` selects in each of `values`; with `only_truth`, whether it counts as true (see `holds`)."""
    if len(text) > MAX_QUERY:
        raise ActivityError(f"{what}: found {len(text):,} characters, expected at most {MAX_QUERY:,}")
    interpreter = _Bounded(budget or Budget())
    for data in values:
        try:
            found = interpreter.search(_parse(text), data)
            if only_truth and (found is None or isinstance(found, bool | str | list | dict)):
                yield holds(cast("JSON", found))
                continue
            _check_nodes(found, budget)
            told = normalise(found, what=what)
        except _TooMuchError:
            raise ActivityError(f"{what}: {show(text)} {_TOO_MUCH.format(MAX_STEPS)}") from None
        except RecursionError:
            raise ActivityError(f"{what}: {show(text)} nests too deep") from None
        except jmespath.exceptions.JMESPathError as error:
            raise ActivityError(f"{what}: {show(text)} is no JMESPath expression for this: {_first(error)}") from None
        except IdeabridgeError as error:
            raise ActivityError(str(error)) from None
        except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
            # jmespath lets a few faults of its functions through as Python's own errors.
            raise ActivityError(f"{what}: {show(text)} fails on this data: {_first(error)}") from None
        yield holds(told) if only_truth else told


def _first(error: Exception) -> str:
    lines = str(error).splitlines()
    told = re.sub(r"^invalid jmespath expression: ", "", lines[0], flags=re.IGNORECASE) if lines else ""
    return told[:200].rstrip(":") or type(error).__name__


def opened(data: JSON) -> JSON:
    """The JSON object or array that a text contains; any other value unchanged. References read text this way."""
    if not isinstance(data, str) or data.lstrip()[:1] not in ("[", "{"):
        return data
    try:
        return decode(data.strip())
    except IdeabridgeError:
        return data


def holds(value: JSON) -> bool:
    """Whether JMESPath counts the value as true: not false, null, "", [] or {}; 0 is true."""
    return value is not None and value is not False and value != "" and value != [] and value != {}


def as_text(value: JSON) -> str:
    """Text as it is, anything else as JSON."""
    return value if isinstance(value, str) else encode_text(value)


# -- shaping ---------------------------------------------------------------------------------------------------------

MAX_TEXT: Final = 8 * 1024 * 1024
"""Characters of a text that `join` and `template` make."""

HERE_BYTES: Final = 64 * 1024
"""Bytes of arguments that are worked on in the event loop; more go to a worker."""

HERE_BUDGET: Final = 300_000
"""The `Budget` of one call in the event loop: about 30 ms."""


async def shaped(tool: str, *arguments: JSON) -> JSON:
    """What a built-in tool gives.

    Args:
        tool: its name.
        arguments: those of its function in this module.

    Raises:
        ActivityError: the arguments are at fault; the message says which.
        LimitExceededError: it takes too long, or too much memory.
        WorkerError: there is no worker to compute it.
    """
    size = len(encode(list(arguments)))
    if size <= HERE_BYTES:
        try:
            return shape(tool, list(arguments), Budget(HERE_BUDGET))
        except OverBudgetError:
            pass
    return await workers.run("shape", [tool, list(arguments)], what=f"{tool} over {_told(arguments, size)}")


def _told(arguments: tuple[JSON, ...], size: int) -> str:
    items = next((one for one in arguments if isinstance(one, list | dict)), None)
    return f"{size:,} bytes" if items is None else f"{len(items):,} items ({size:,} bytes)"


def shape(tool: str, arguments: list[JSON], budget: Budget | None = None) -> JSON:
    """As `shaped`, in this process and at once.

    Raises:
        OverBudgetError: it takes more than the budget; None: nothing is too much.
    """
    return _SHAPES[tool](*arguments, budget=budget)


def _pick(data: JSON, path: str, budget: Budget | None) -> JSON:
    return search(path, opened(data), what="path", budget=budget)


def _filter(items: list[JSON], where: str, budget: Budget | None) -> JSON:
    kept = searches(where, items, what="where", budget=budget, only_truth=True)
    return [item for item, holds in zip(items, kept, strict=True) if holds]


def _join(items: list[JSON], separator: str, budget: Budget | None) -> JSON:
    texts = [as_text(item) for item in items]
    if sum(map(len, texts)) + len(separator) * len(texts) > MAX_TEXT:
        raise ActivityError(f"the text would be longer than {MAX_TEXT:,} characters")
    return separator.join(texts)


def _count(items: list[JSON] | JSONObject, by: str, budget: Budget | None) -> JSON:
    counts: dict[str, int] = {}
    values = items.values() if isinstance(items, dict) else items
    for found in searches(by, values, what="by", budget=budget):
        group = as_text(found)
        counts[group] = counts.get(group, 0) + 1
    return dict[str, JSON](counts)


def _template(text: str, values: JSONObject, budget: Budget | None) -> JSON:
    pieces: list[str] = []
    size = 0
    for piece, is_placeholder in _pieces(text):
        filled = _value(piece, values, budget) if is_placeholder else piece
        size += len(filled)
        if size > MAX_TEXT:
            raise ActivityError(f"the text would be longer than {MAX_TEXT:,} characters")
        if budget is not None:
            budget.spend(len(filled))
        pieces.append(filled)
    return "".join(pieces)


def _pieces(text: str) -> list[tuple[str, bool]]:
    """The text in pieces: (literal text, False) and (expression of a placeholder, True)."""
    pieces: list[tuple[str, bool]] = []
    position = 0
    while position < len(text):
        places = [at for at in (text.find("{", position), text.find("}", position)) if at >= 0]
        if not places:
            break
        at = min(places)
        pieces.append((text[position:at], False))
        if text[at : at + 2] in ("{{", "}}"):
            pieces.append((text[at], False))
            position = at + 2
            continue
        end = text.find("}", at)
        if text[at] == "}" or end < 0:
            near = show(text[max(0, at - 20) : at + 20])
            raise ActivityError(
                f"text: a single {text[at]!r} at character {at} ({near}); write {text[at] * 2!r} for one"
            )
        pieces.append((text[at + 1 : end].strip(), True))
        position = end + 1
    pieces.append((text[position:], False))
    return pieces


def _value(expression: str, values: JSONObject, budget: Budget | None) -> str:
    if expression in values:
        return as_text(values[expression])
    if not expression:
        raise ActivityError("text: found an empty placeholder {}, expected a name in it")
    found = search(expression, values, what=f"text: placeholder {{{expression}}}", budget=budget)
    if found is None and not _exists(expression, values):
        known = ", ".join(list(values)[:20]) or "nothing"
        name = expression.split(".", 1)[0]
        raise ActivityError(
            f"values: found nothing for the placeholder {{{expression}}}; there is {known}.{did_you_mean(name, values)}"
        )
    return as_text(found)


def _exists(path: str, values: JSONObject) -> bool:
    """Whether a dotted path leads to a value, null included."""
    found: JSON = values
    for key in path.split("."):
        if not isinstance(found, dict) or key not in found:
            return False
        found = found[key]
    return True


_SHAPES: Final = cast(
    "dict[str, Callable[..., JSON]]",
    {"pick": _pick, "filter": _filter, "join": _join, "count": _count, "template": _template},
)
