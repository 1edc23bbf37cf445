"""The built-in tools, which transform data between calls. They have no side effects and call no
server.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Annotated, Final, cast

import anyio
from pydantic import Field

from ideabridge.tools.computing import MAX_CODE, computed
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.shaping import MAX_TEXT, run_computation
from ideabridge.tools.tool import QUERY_FORMAT, Activity, ActivityContext, Annotations, Tool
from ideabridge.tools.toolbox import Toolbox

_Query = Annotated[str, Field(json_schema_extra={"format": QUERY_FORMAT})]

MAX_SECONDS: Final = 300
"""Maximum time, in seconds, that `sleep` waits."""

_COUNTS: Final[JSONObject] = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
    ]
}


@tool(name="pick", read_only=True, idempotent=True, open_world=False)
async def pick(data: JSON, path: _Query) -> JSON:
    """Select or reshape a part of data with a JMESPath expression. Gives null where nothing
    matches. Text that holds a JSON object or array is read as that.

    Examples of paths: `items[0].name`, `items[*].{id: id, title: name}`,
    `items[?stars > `10`].name`, `sort_by(items, &date)[-1]`, `lists[]` (flattens one level),
    `length(items)`; of plain text `split(@, ', ')[0]`.

    Args:
        data: What to select from; usually a reference.
        path: A JMESPath expression. Numbers and JSON literals stand in backticks, text
            in single quotes.
    """
    return await run_computation("pick", data, path)


@tool(name="filter", read_only=True, idempotent=True, open_world=False)
async def filter_items(items: list[JSON], where: _Query) -> list[JSON]:
    """Keep the items of an array for which a condition holds, in their order.

    Examples of conditions: `count > `3``, `state == 'open' && !draft`, `contains(name,
    'test')`, `author.email`.

    Args:
        items: The array; usually a reference.
        where: A JMESPath condition on one item (`@` is the item itself). Missing fields, null,
            false, "", [] and {} count as false.
    """
    return cast("list[JSON]", await run_computation("filter", items, where))


@tool(name="join", read_only=True, idempotent=True, open_world=False)
async def join_items(items: list[JSON], separator: str = "") -> str:
    """Join the items of an array into one text. Text is taken as it is, other items as JSON.

    To join arrays into one array, use pick with the path `[]`.

    Args:
        items: The array; usually a reference.
        separator: What stands between the items, such as a line break.
    """
    return cast("str", await run_computation("join", items, separator))


@tool(name="count", read_only=True, idempotent=True, open_world=False, output_schema=_COUNTS)
async def count_items(items: list[JSON] | JSONObject | str, by: _Query | None = None) -> JSON:
    """Count items: of an array, properties of an object, or characters of a text; with
    `by`, per group.

    Args:
        items: What to count; usually a reference.
        by: A JMESPath expression on one item that names its group, such as `author.name`. The
            result is then an object from group to number; text groups are named as they are,
            others by their JSON.
    """
    if by is None:
        return len(items)
    if isinstance(items, str):
        raise ActivityError(
            "by: expected an array or an object in items, because text has no items to group"
        )
    return await run_computation("count", items, by)


@tool(name="template", read_only=True, idempotent=True, open_world=False)
async def fill_template(
    text: Annotated[str, Field(max_length=MAX_TEXT)],
    values: JSONObject,
) -> str:
    """Fill the placeholders of a text with values. Text is put in as it is, other values as JSON.

    Example: text `{user.name} has {length(issues)} issues` with values
    `{"user": ..., "issues": ...}`.

    Args:
        text: Text with placeholders `{name}` or `{JMESPath expression}`, each on the values; `{{`
            and `}}` stand for single braces.
        values: The values by name; usually references.
    """
    return cast("str", await run_computation("template", text, values))


@tool(name="sleep", read_only=True, idempotent=True, open_world=False)
async def sleep(seconds: Annotated[float, Field(ge=0, le=MAX_SECONDS)]) -> None:
    """Wait. Calls that read the result, or name it in `_after`, run later.

    Args:
        seconds: How long, at most 300.
    """
    await anyio.sleep(seconds)


async def _compute(arguments: JSONObject, _: ActivityContext) -> JSON:
    code = arguments.get("code")
    assert isinstance(code, str)
    return await computed(
        code, {name: value for name, value in arguments.items() if name != "code"}
    )


COMPUTE: Final = Tool(
    "compute",
    "Evaluate one Python expression. The call's other parameters are its variables. json, math and "
    "re are available; a clock, files and the network are not.\n\n"
    "Examples of code: `sum(row['n'] for row in rows)`, "
    "`sorted({one['city'] for one in people})[:3]`, `re.findall(r'#([0-9]+)', text)`.",
    {
        "type": "object",
        "properties": {
            "code": {
                "type": "string",
                "maxLength": MAX_CODE,
                "description": "The expression. Its value must be JSON.",
            }
        },
        "required": ["code"],
        "additionalProperties": True,
    },
    annotations=Annotations(read_only=True, idempotent=True, open_world=False),
)
"""`compute` takes any parameters, so it cannot be declared as a Python function."""


def builtin_toolbox() -> Toolbox:
    """Return a new toolbox with the built-in tools, which every plan can call."""
    toolbox = Toolbox()
    toolbox.update(_built_in())
    return toolbox


@cache
def _built_in() -> Toolbox:
    """Define the built-in tools once per process, so that a new Bridge does not check their
    definitions again.
    """
    toolbox = Toolbox(pick, filter_items, join_items, count_items, fill_template)
    toolbox.add(COMPUTE, Activity("compute", _compute, copies=True), sleep)
    # These tools never call a server, so calls to them need to wait for another call only if they
    # read its data.
    toolbox.add(*(replace(definition, reaches=()) for definition in toolbox))
    return toolbox
