"""Tools that are always there: they shape data between calls, change nothing and reach nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

from pydantic import Field

from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.keywords import show
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.query import as_text, holds, opened, search
from ideabridge.tools.tool import QUERY_FORMAT
from ideabridge.tools.toolbox import Toolbox

_MAX_TEXT: Final = 8 * 1024 * 1024

_Query = Annotated[str, Field(json_schema_extra={"format": QUERY_FORMAT})]

_COUNTS: Final[JSONObject] = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
    ]
}


@tool(name="pick", read_only=True, idempotent=True, open_world=False)
async def pick(data: JSON, path: _Query) -> JSON:
    """Select or reshape a part of data with a JMESPath expression. Gives null where nothing matches. Text that holds a
    JSON object or array is read as that.

    Examples of paths: `items[0].name`, `items[*].{id: id, title: name}`, `items[?stars > `10`].name`,
    `sort_by(items, &date)[-1]`, `lists[]` (flattens one level), `length(items)`; of plain text `split(@, ', ')[0]`.

    Args:
        data: What to select from; usually a reference.
        path: A JMESPath expression. Numbers and JSON literals stand in backticks, text in single quotes.
    """
    return search(path, opened(data), what="path")


@tool(name="filter", read_only=True, idempotent=True, open_world=False)
async def filter_items(items: list[JSON], where: _Query) -> list[JSON]:
    """Keep the items of an array for which a condition holds, in their order.

    Examples of conditions: `count > `3``, `state == 'open' && !draft`, `contains(name, 'test')`, `author.email`.

    Args:
        items: The array; usually a reference.
        where: A JMESPath condition on one item (`@` is the item itself). Missing fields, null, false, "", [] and {}
            count as false.
    """
    return [item for item in items if holds(search(where, item, what="where"))]


@tool(name="join", read_only=True, idempotent=True, open_world=False)
async def join_items(items: list[JSON], separator: str = "") -> str:
    """Join the items of an array into one text. Text is taken as it is, other items as JSON.

    To join arrays into one array, use pick with the path `[]`.

    Args:
        items: The array; usually a reference.
        separator: What stands between the items, such as a line break.
    """
    texts = [as_text(item) for item in items]
    if sum(map(len, texts)) + len(separator) * len(texts) > _MAX_TEXT:
        raise ActivityError(f"the text would be longer than {_MAX_TEXT:,} characters")
    return separator.join(texts)


@tool(name="count", read_only=True, idempotent=True, open_world=False, output_schema=_COUNTS)
async def count_items(items: list[JSON] | JSONObject | str, by: _Query | None = None) -> JSON:
    """Count items: of an array, properties of an object, or characters of a text; with `by`, per group.

    Args:
        items: What to count; usually a reference.
        by: A JMESPath expression on one item that names its group, such as `author.name`. The result is then an
            object from group to number; text groups are named as they are, others by their JSON.
    """
    if by is None:
        return len(items)
    if isinstance(items, str):
        raise ActivityError("by: a text has no items to group; expected an array or an object in items")
    counts: dict[str, int] = {}
    for item in items.values() if isinstance(items, dict) else items:
        group = as_text(search(by, item, what="by"))
        counts[group] = counts.get(group, 0) + 1
    return dict[str, JSON](counts)


@tool(name="template", read_only=True, idempotent=True, open_world=False)
async def fill_template(
    text: Annotated[str, Field(max_length=_MAX_TEXT)],
    values: JSONObject,
) -> str:
    """Fill the placeholders of a text with values. Text is put in as it is, other values as JSON.

    Example: text `{user.name} has {length(issues)} issues` with values `{"user": ..., "issues": ...}`.

    Args:
        text: Text with placeholders `{name}` or `{JMESPath expression}`, each on the values; `{{` and `}}` stand for
            single braces.
        values: The values by name; usually references.
    """
    pieces: list[str] = []
    size = 0
    for piece, is_placeholder in _pieces(text):
        filled = _value(piece, values) if is_placeholder else piece
        size += len(filled)
        if size > _MAX_TEXT:
            raise ActivityError(f"the text would be longer than {_MAX_TEXT:,} characters")
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


def _value(expression: str, values: JSONObject) -> str:
    if expression in values:
        return as_text(values[expression])
    if not expression:
        raise ActivityError("text: found an empty placeholder {}, expected a name in it")
    found = search(expression, values, what=f"text: placeholder {{{expression}}}")
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


def builtin_toolbox() -> Toolbox:
    """A fresh Toolbox of the built-in tools: pick, filter, join, count, template."""
    toolbox = Toolbox(pick, filter_items, join_items, count_items, fill_template)
    # They touch nothing, so that no call waits for them, nor they for any, but by data.
    toolbox.add(*(replace(one, reaches=()) for one in toolbox))
    return toolbox
