"""What the built-in tools compute: here while the budget lasts, in a worker beyond it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from ideabridge.tools.encoding import JSON, JSONObject, encode
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.keywords import show
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.query import Budget, OverBudgetError, as_text, opened, search, searches
from ideabridge.tools.worker import workers

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
