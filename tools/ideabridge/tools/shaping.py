"""The computations of the built-in tools that select, filter, count and format values.

A computation runs in the event loop. If its arguments are large or it exceeds its budget, it runs
in a worker process instead. `_COMPUTATIONS`, at the end, maps each tool to its function. The tools
themselves are defined in `ideabridge.tools.builtins`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized
from functools import lru_cache
from typing import Any, Final, cast

import jmespath
import jmespath.exceptions
import jmespath.functions
import jmespath.visitor

from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    decode,
    encode,
    normalise,
    plain_text,
)
from ideabridge.tools.errors import ActivityError, IdeabridgeError
from ideabridge.tools.json_parts import values_in
from ideabridge.tools.keywords import show
from ideabridge.tools.names import counted, did_you_mean
from ideabridge.tools.worker import workers

# -- queries ---------------------------------------------------------------------------------------
# JMESPath queries are limited, because even a short one can take a very long time and need more
# memory than the machine has.

MAX_QUERY: Final = 2_000
"""Maximum number of characters in a query."""

MAX_STEPS: Final = 4_000_000
"""Limit on the nodes that one query can visit plus the values that it can produce."""

MAX_RESULT: Final = 64 * 1024 * 1024
"""Maximum size, in bytes of JSON, of the result of one query or template. The limit on the values
that a run stores is lower.
"""

_VISIT: Final = 20
"""The cost of visiting a node, in addition to the length of its result."""

_Interpreter: Any = cast("Any", jmespath.visitor).TreeInterpreter
_Functions: Any = cast("Any", jmespath.functions).Functions
_signature: Any = cast("Any", jmespath.functions).signature


def _size(value: Any) -> int:
    if isinstance(value, list | dict | str):
        return len(cast("Sized", value))
    return 0


class _TooMuchError(Exception):
    pass


class OverBudgetError(Exception):
    """Raised when the budget of a call is used up, so that a worker process must compute the
    result.
    """


class Budget:
    """The limit on the total cost of the queries in one call. Unlimited by default.

    Visiting a node costs 20, and a value of length n costs n. A cost of 10 corresponds to about a
    microsecond.
    """

    __slots__ = ("left",)

    def __init__(self, left: float = math.inf) -> None:
        self.left = left

    def spend(self, cost: int) -> None:
        """Deduct a cost.

        Raises:
            OverBudgetError: the cost exceeds the remaining budget.
        """
        self.left -= cost
        if self.left < 0:
            raise OverBudgetError


class _Bounded(_Interpreter):
    """Visits nodes as jmespath does, and counts the results of each node.

    Counting is necessary because each `[@,@][]` in a query doubles a list.
    """

    def __init__(self, budget: Budget) -> None:
        _Interpreter.__init__(self, _OPTIONS)
        self._left = MAX_STEPS
        self._budget = budget

    def search(self, query: Any, data: JSON) -> Any:
        """Return the part of `data` selected by a parsed query, with a fresh limit on its steps."""
        self._left = MAX_STEPS
        return self.visit(query, data)

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        result = _Interpreter.visit(self, node, *args, **kwargs)
        # Count the steps inline rather than in another function, because a query can visit millions
        # of nodes.
        size = _size(result)
        self._left -= 1 + size
        if self._left < 0:
            raise _TooMuchError
        self._budget.spend(_VISIT + size)
        return result

    def visit_projection(self, node: Any, value: Any) -> Any:
        """Return the same result as jmespath, and count the same steps.

        jmespath itself would spend most of its time visiting each item of `items[]` or `items[*]`
        only to return it.
        """
        left, right = node["children"]
        if right["type"] != "identity":
            return _Interpreter.visit_projection(self, node, value)

        items = self.visit(left, value)
        if not isinstance(items, list):
            return None

        projected = cast("list[Any]", items)
        visits = len(projected)
        size = sum(map(_size, projected))
        self._left -= visits + size
        if self._left < 0:
            raise _TooMuchError
        self._budget.spend(visits * _VISIT + size)
        return [item for item in projected if item is not None]


class _BoundedFunctions(_Functions):
    @_signature({"types": ["string"]}, {"types": ["string"]})
    def _func_split(self, text: str, separator: str) -> list[str]:
        return text.split(separator) if separator else list(text)

    def call_function(self, function_name: str, resolved_args: list[Any]) -> Any:
        if function_name == "to_string":
            for value in resolved_args:
                _check_nodes(value, Budget())
        return _Functions.call_function(self, function_name, resolved_args)


_OPTIONS: Final = jmespath.Options(custom_functions=_BoundedFunctions())


def _check_nodes(value: Any, budget: Budget) -> None:
    """Reject a value that is too large when its shared parts are written out
    (`[@,@]|[@,@]|...`).
    """
    left = MAX_STEPS // 4
    size = MAX_RESULT
    for part in values_in(value):
        left -= 1
        # Count the length of every occurrence of a string, because each one is written out in full.
        if isinstance(part, str):
            size -= len(part)
        if left < 0 or size < 0:
            raise _TooMuchError
        budget.spend(_VISIT // 4)


@lru_cache(maxsize=256)
def _parse(text: str) -> Any:
    return cast("Any", jmespath.compile(text)).parsed


def check_query(text: str, *, what: str) -> None:
    """Check that a string is a JMESPath expression that uses only known functions. `what` names the
    parameter in errors.

    Raises:
        ActivityError: the string is not such an expression; the message says where the error is, or
            suggests the nearest function.
    """
    if len(text) > MAX_QUERY:
        raise ActivityError(
            f"{what}: expected at most {MAX_QUERY:,} characters, found {len(text):,}"
        )

    try:
        stack: list[Any] = [_parse(text)]
    except RecursionError:
        raise ActivityError(f"{what}: {show(text)} is nested too deeply") from None
    except jmespath.exceptions.JMESPathError as error:
        raise ActivityError(
            f"{what}: {show(text)} is not a JMESPath expression: {_first(error)}"
        ) from None

    while stack:
        node = stack.pop()
        if not isinstance(node, dict):
            continue

        parts = cast("dict[str, Any]", node)
        arguments: list[Any] = parts.get("children") or []
        stack.extend(arguments)
        if parts.get("type") == "function_expression":
            _check_function(str(parts.get("value")), len(arguments), text, what)


def _check_function(name: str, count: int, text: str, what: str) -> None:
    functions: dict[str, Any] = _BoundedFunctions.FUNCTION_TABLE
    if name not in functions:
        raise ActivityError(
            f"{what}: {show(text)}: JMESPath has no function "
            f"{name[:60]!r}.{did_you_mean(name, functions)}"
        )

    parameters: tuple[dict[str, Any], ...] = functions[name]["signature"]
    least = len(parameters)
    is_variadic = bool(parameters) and bool(parameters[-1].get("variadic"))
    if count < least or (count > least and not is_variadic):
        many = counted(least, "argument")
        if is_variadic:
            many = f"at least {many}"

        raise ActivityError(
            f"{what}: {show(text)}: the function {name} takes {many}, found {count}"
        )


def search(text: str, data: JSON, *, what: str) -> JSON:
    """Return the part of `data` that a JMESPath expression selects, or null if it selects nothing.
    `what` names the parameter in errors.

    Raises:
        ActivityError: the string is not a JMESPath expression, fails on this data, or exceeds the
            limit on steps.
    """
    return next(_searches(text, (data,), what, Budget()))


def _searches(
    text: str, values: Iterable[JSON], what: str, budget: Budget, *, only_truth: bool = False
) -> Iterator[JSON]:
    """Yield the result of `search` for each of `values`.

    If `only_truth` is set, yield whether the result counts as true (see `_holds`) instead.
    """
    if len(text) > MAX_QUERY:
        raise ActivityError(
            f"{what}: expected at most {MAX_QUERY:,} characters, found {len(text):,}"
        )

    interpreter = _Bounded(budget)
    for data in values:
        try:
            result = interpreter.search(_parse(text), data)
            if only_truth and (result is None or isinstance(result, bool | str | list | dict)):
                yield _holds(cast("JSON", result))
                continue

            _check_nodes(result, budget)
            selected = normalise(result, what=what)
        except _TooMuchError:
            raise ActivityError(
                f"{what}: {show(text)} takes more than the limit of {MAX_STEPS:,} steps"
            ) from None
        except RecursionError:
            raise ActivityError(f"{what}: {show(text)} is nested too deeply") from None
        except jmespath.exceptions.JMESPathError as error:
            raise ActivityError(
                f"{what}: {show(text)} is not a JMESPath expression for this data: {_first(error)}"
            ) from None
        except IdeabridgeError as error:
            raise ActivityError(str(error)) from None
        except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
            # Some of jmespath's functions let Python's own exceptions escape.
            raise ActivityError(
                f"{what}: {show(text)} fails on this data: {_first(error)}"
            ) from None

        yield _holds(selected) if only_truth else selected


def _first(error: Exception) -> str:
    lines = str(error).splitlines()
    if lines:
        line = re.sub(r"^invalid jmespath expression: ", "", lines[0], flags=re.IGNORECASE)
    else:
        line = ""
    return line[:200].rstrip(":") or type(error).__name__


def _opened(data: JSON) -> JSON:
    """Return the JSON object or array in a string, as for references. Any other value is returned
    unchanged.
    """
    if not isinstance(data, str) or data.lstrip()[:1] not in ("[", "{"):
        return data
    try:
        return decode(data.strip())
    except IdeabridgeError:
        return data


def _holds(value: JSON) -> bool:
    """Return whether a value counts as true in JMESPath: all values do except false, null, "", []
    and {}, so 0 does too.
    """
    return value is not None and value is not False and value != "" and value != [] and value != {}


# -- the tools -------------------------------------------------------------------------------------

MAX_TEXT: Final = 8 * 1024 * 1024
"""Maximum number of characters in a string that `join` or `template` produces."""

HERE_BYTES: Final = 64 * 1024
"""Maximum size, in bytes, of a call's arguments if the call is computed in the event loop."""

HERE_BUDGET: Final = 300_000
"""The `Budget` of one call in the event loop, about 30 ms."""


async def run_computation(tool: str, *arguments: JSON) -> JSON:
    """Compute the result of a built-in tool, in this process or in a worker process.

    Args:
        tool: the name of the tool, a key of `_COMPUTATIONS`.
        arguments: the parameters of the tool, in the order of its function in `_COMPUTATIONS`.

    Raises:
        ActivityError: an argument is wrong; the message names the argument.
        LimitExceededError: the computation takes too long or needs too much memory.
        WorkerError: no worker can compute the result.
    """
    size = len(encode(list(arguments)))
    if size <= HERE_BYTES:
        try:
            return compute_here(tool, list(arguments), Budget(HERE_BUDGET))
        except OverBudgetError:
            pass

    items = next((argument for argument in arguments if isinstance(argument, list | dict)), None)
    if items is None:
        data = f"{size:,} bytes"
    else:
        data = f"{len(items):,} items ({size:,} bytes)"

    return await workers.run("shape", [tool, list(arguments)], what=f"{tool} over {data}")


def compute_here(tool: str, arguments: list[JSON], budget: Budget) -> JSON:
    """Compute the result of a built-in tool in this process.

    Raises:
        OverBudgetError: the computation exceeds the budget.
    """
    return _COMPUTATIONS[tool](*arguments, budget=budget)


def _pick(data: JSON, path: str, budget: Budget) -> JSON:
    return next(_searches(path, (_opened(data),), "path", budget))


def _matching_items(items: list[JSON], where: str, budget: Budget) -> JSON:
    verdicts = _searches(where, items, "where", budget, only_truth=True)
    return [item for item, holds in zip(items, verdicts, strict=True) if holds]


def _join(items: list[JSON], separator: str, budget: Budget) -> JSON:
    texts = [plain_text(item) for item in items]
    if sum(map(len, texts)) + len(separator) * len(texts) > MAX_TEXT:
        raise ActivityError(f"the text would be longer than {MAX_TEXT:,} characters")
    return separator.join(texts)


def _count(items: list[JSON] | JSONObject, by: str, budget: Budget) -> JSON:
    """Count the items for each value of `by`. Without `by`, the tool itself counts."""
    values = items.values() if isinstance(items, dict) else items
    return dict[str, JSON](Counter(map(plain_text, _searches(by, values, "by", budget))))


def _template(text: str, values: JSONObject, budget: Budget) -> JSON:
    pieces: list[str] = []
    size = 0
    for piece, is_placeholder in _pieces(text):
        filled = _value(piece, values, budget) if is_placeholder else piece
        size += len(filled)
        if size > MAX_TEXT:
            raise ActivityError(f"the text would be longer than {MAX_TEXT:,} characters")
        budget.spend(len(filled))
        pieces.append(filled)

    return "".join(pieces)


_BRACE: Final = re.compile(r"[{}]")


def _pieces(text: str) -> list[tuple[str, bool]]:
    """Split a template into pairs: (literal text, False) or (placeholder expression, True)."""
    pieces: list[tuple[str, bool]] = []
    position = 0
    while brace := _BRACE.search(text, position):
        at = brace.start()
        pieces.append((text[position:at], False))
        if text[at : at + 2] in ("{{", "}}"):
            pieces.append((text[at], False))
            position = at + 2
            continue

        end = text.find("}", at)
        if text[at] == "}" or end < 0:
            near = show(text[max(0, at - 20) : at + 20])
            raise ActivityError(
                f"text: found a single {text[at]!r} at character {at} ({near}); write "
                f"{text[at] * 2!r} for a literal {text[at]!r}"
            )

        pieces.append((text[at + 1 : end].strip(), True))
        position = end + 1

    pieces.append((text[position:], False))
    return pieces


def _value(expression: str, values: JSONObject, budget: Budget) -> str:
    if expression in values:
        return plain_text(values[expression])
    if not expression:
        raise ActivityError(
            "text: expected a name between the braces, found an empty placeholder {}"
        )

    value = next(_searches(expression, (values,), f"text: placeholder {{{expression}}}", budget))
    if value is None and not _exists(expression, values):
        names = ", ".join(list(values)[:20]) or "none"
        name = expression.split(".", 1)[0]
        raise ActivityError(
            f"values: found no value for the placeholder {{{expression}}}; the names in values are "
            f"{names}.{did_you_mean(name, values)}"
        )

    return plain_text(value)


def _exists(path: str, values: JSONObject) -> bool:
    """Return whether a dotted path leads to a value, even if that value is null."""
    part: JSON = values
    for key in path.split("."):
        if not isinstance(part, dict) or key not in part:
            return False
        part = part[key]
    return True


_COMPUTATIONS: Final = cast(
    "dict[str, Callable[..., JSON]]",
    {
        "pick": _pick,
        "filter": _matching_items,
        "join": _join,
        "count": _count,
        "template": _template,
    },
)
"""The function of each tool that `run_computation` computes, keyed by the tool's name. The tool
`compute` is in `computing.py`.
"""
