"""Functions as tools: schema, values in, values out."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import threading
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Literal, cast

import anyio
import jsonschema
import pydantic
import pytest
from pydantic import Field
from typing_extensions import TypedDict

import ideabridge.tools
from ideabridge.tools import ActivityContext, Annotations, Toolbox, tool
from ideabridge.tools.decorator import tool_from
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError, ToolDefinitionError
from ideabridge.tools.tool import Tool, definition_of
from tests.tools.context import RecordingContext

pytestmark = pytest.mark.anyio


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(pydantic.BaseModel):
    x: int
    y: float = 0.0


@dataclasses.dataclass
class Size:
    width: int


class Row(TypedDict):
    name: str


async def call(
    function: Callable[..., Any], arguments: JSONObject, context: ActivityContext | None = None
) -> JSON:
    definition = definition_of(function) or tool_from(function)
    return cast("JSON", await definition.activity.run(arguments, context or RecordingContext()))


def made(function: Callable[..., Any]) -> Tool:
    definition = definition_of(function) or tool_from(function)
    jsonschema.Draft202012Validator.check_schema(definition.tool.parameters)
    return definition.tool


@tool(read_only=True, title="Painter")
async def paint(
    point: Point,
    colour: Colour,
    when: dt.datetime,
    schema: str,
    _depth: Literal["thin", "thick"] = "thin",
    tags: Annotated[list[str], Field(max_length=3, description="own words")] = [],  # noqa: B006
    size: Size | None = None,
    extra: JSONObject | None = None,
    context: ActivityContext | None = None,
) -> list[Point]:
    """Paint a point.

    On two
    lines.

    Args:
        point: where,
            exactly
        colour (Colour): which
        tags: not this

    Returns:
        the points
    """
    assert context is not None
    await context.progress(
        1, 2, f"{colour.value} {when.year} {schema} {_depth} {tags} {size} {extra}"
    )
    return [point]


def test_the_tool_is_told_by_the_function() -> None:
    made_tool = made(paint)
    assert made_tool.name == "paint"
    assert made_tool.description == "Paint a point.\n\nOn two lines."
    assert made_tool.annotations == Annotations(title="Painter", read_only=True)
    assert list(made_tool.parameters) == [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "$defs",
    ]
    assert made_tool.parameters["required"] == ["point", "colour", "when", "schema"]
    assert made_tool.parameters["additionalProperties"] is False
    properties = made_tool.parameters["properties"]
    assert isinstance(properties, dict)
    assert list(properties) == [
        "point",
        "colour",
        "when",
        "schema",
        "_depth",
        "tags",
        "size",
        "extra",
    ]
    assert properties["point"] == {"$ref": "#/$defs/Point", "description": "where, exactly"}
    assert properties["schema"] == {"type": "string"}
    assert "own words" in str(properties["tags"])
    assert "title" not in str(made_tool.parameters)
    assert "JsonValue" not in str(made_tool.parameters)
    assert made_tool.output == {
        "type": "array",
        "items": {"$ref": "#/$defs/Point"},
        "$defs": {
            "Point": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"default": 0.0, "type": "number"}},
                "required": ["x"],
            }
        },
    }


async def test_arguments_arrive_as_python_values() -> None:
    context = RecordingContext()
    arguments: JSONObject = {
        "point": {"x": 1, "y": 5},
        "colour": "red",
        "when": "2026-01-02T03:04:05Z",
        "schema": "s",
        "size": {"width": 2},
        "extra": {"a": [1, None]},
    }
    assert await call(paint, arguments, context) == [{"x": 1, "y": 5.0}]
    assert context.reports == [(1, 2, "red 2026 s thin [] Size(width=2) {'a': [1, None]}")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "point is required; colour is required"),
        ({"point": 1}, "point: found 1: "),
        ({"point": {"x": "a"}}, 'point.x: found "a": '),
        ({"colour": "green"}, "colour: found \"green\": Input should be 'red' or 'blue'"),
        ({"schema": 5}, "schema: found 5: Input should be a valid string"),
        ({"nope": 5}, "nope is not a parameter"),
    ],
)
async def test_arguments_that_do_not_fit_fail_the_call(arguments: JSONObject, message: str) -> None:
    fitting: JSONObject = {"point": {"x": 1}, "colour": "red", "when": "2026-01-02", "schema": "s"}
    with pytest.raises(ActivityError) as caught:
        await call(paint, {**fitting, **arguments} if arguments else {})
    assert message in str(caught.value)
    assert "pydantic" not in str(caught.value)


async def test_only_json_conversions_are_made() -> None:
    def total(count: int, ratio: float, counts: list[int]) -> float:
        return count * ratio + sum(counts)

    assert await call(total, {"count": 5.0, "ratio": 2, "counts": [1.0, 2]}) == 13.0
    wrongs: list[JSONObject] = [
        {"count": "5"},
        {"count": True},
        {"count": 5.5},
        {"ratio": "2"},
        {"counts": [None]},
    ]
    for wrong in wrongs:
        with pytest.raises(ActivityError):
            await call(total, {"count": 5, "ratio": 2, "counts": [], **wrong})


async def test_integers_past_64_bits_arrive_exactly() -> None:
    def same(number: int) -> int:
        return number

    assert await call(same, {"number": 2**80 + 1}) == 2**80 + 1


def test_the_function_stays_as_it_was() -> None:
    @tool
    def double(number: int) -> int:
        return number * 2

    assert double(4) == 8
    assert made(double).name == "double"


async def test_names_beside_a_local_function_are_found() -> None:
    class Local(pydantic.BaseModel):
        q: int

    @tool
    def read(local: Local) -> int:
        return local.q

    assert await call(read, {"local": {"q": 3}}) == 3


async def test_sync_functions_run_in_a_thread_and_async_ones_do_not() -> None:
    def where_sync() -> int:
        return threading.get_ident()

    async def where_async() -> int:
        return threading.get_ident()

    assert await call(where_sync, {}) != threading.get_ident()
    assert await call(where_async, {}) == threading.get_ident()


async def test_a_cancelled_call_does_not_wait_for_its_thread() -> None:
    started, release = threading.Event(), threading.Event()
    nothing: JSONObject = {}

    def stuck() -> None:
        started.set()
        release.wait(20)

    try:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(call, stuck, nothing)
                await anyio.to_thread.run_sync(started.wait)
                group.cancel_scope.cancel()

        assert not release.is_set()
    finally:
        release.set()


async def test_bound_methods_and_callable_objects_are_functions_too() -> None:
    class Shop:
        def price(self, item: str) -> Row:
            """Price of an item."""
            return {"name": item}

        async def __call__(self, item: str) -> str:
            return item

    toolbox = Toolbox(Shop().price)
    assert toolbox.tool("price").description == "Price of an item."
    assert await toolbox.activity("price").run({"item": "tea"}, RecordingContext()) == {
        "name": "tea"
    }
    definition = tool_from(Shop(), name="shop")
    assert await definition.activity.run({"item": "tea"}, RecordingContext()) == "tea"


async def test_results_become_json() -> None:
    def dates() -> dict[str, dt.date]:
        return {"d": dt.date(2026, 1, 2)}

    def anything():
        return {"size": Size(1), "set": {1}, "pair": (1, 2)}

    def promised() -> Point:
        return {"x": 3}  # pyright: ignore[reportReturnType] - what functions often do

    def nothing() -> None:
        return

    assert await call(dates, {}) == {"d": "2026-01-02"}
    assert await call(anything, {}) == {"size": {"width": 1}, "set": [1], "pair": [1, 2]}
    assert await call(promised, {}) == {"x": 3, "y": 0.0}
    assert await call(nothing, {}) is None
    assert made(nothing).output is None
    assert made(anything).output is None


async def test_results_that_are_no_json_fail_the_call() -> None:
    def odd() -> float:
        return float("nan")

    def wrong() -> int:
        return "x"  # pyright: ignore[reportReturnType] - the fault under test

    def strange() -> Any:
        return object()

    for function, message in (
        (odd, "nan"),
        (wrong, "its result does not match the return annotation"),
        (strange, "not JSON"),
    ):
        with pytest.raises(ActivityError, match=message):
            await call(function, {})


async def test_what_a_function_raises_is_not_changed() -> None:
    def fail() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await call(fail, {})


def _variadic(*parts: int) -> None: ...
def _keywords(**parts: int) -> None: ...
def _positional(part: int, /) -> None: ...
def _untyped(part) -> None: ...  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
def _meta(_each: int) -> None: ...
def _callback(part: Callable[[], None]) -> None: ...
def _odd_result() -> threading.Event: ...  # pyright: ignore[reportReturnType]
async def _stream() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_variadic, r"_variadic \(test_decorator.py, line \d+\): parameter \*parts"),
        (_keywords, r"parameter \*\*parts"),
        (_positional, "'part' is positional-only"),
        (cast("Callable[..., Any]", _untyped), "'part' has no annotation"),
        (_meta, "'_each' has the name of a meta-property"),
        (_callback, "parameter 'part' cannot be described by a JSON Schema"),
        (_odd_result, "the return annotation cannot be described by a JSON Schema"),
        (_stream, "a generator function cannot be a tool"),
        (Point, "expected a function"),
        (lambda: 1, "the function has no name"),
    ],
)
def test_functions_that_cannot_be_tools_are_told_why(
    function: Callable[..., Any], message: str
) -> None:
    with pytest.raises(ToolDefinitionError, match=message):
        tool(function)


def test_annotations_that_lead_nowhere_are_told() -> None:
    def lost(part: int) -> None: ...

    lost.__annotations__["part"] = "Nowhere"
    with pytest.raises(ToolDefinitionError, match="name 'Nowhere' is not defined"):
        tool(lost)


def test_a_chosen_name_must_be_safe() -> None:
    with pytest.raises(ToolDefinitionError, match="'get_it'"):
        tool(name="Get it")(_noop)
    assert tool_from(_noop, name="get_it").tool.name == "get_it"


def _noop() -> None: ...


def test_the_decorator_is_not_hidden_by_the_module_of_the_same_name() -> None:
    import ideabridge.tools.tool as _

    assert callable(ideabridge.tools.tool)
    assert ideabridge.tools.Tool is Tool
    with pytest.raises(AttributeError):
        _ = ideabridge.tools.__getattr__("nothing_of_the_kind")


def test_every_name_that_mcp_allows_is_kept() -> None:
    def getPrice(item: str) -> float:  # noqa: N802 - names of others
        """A price."""
        return 2.5

    def größe() -> int:
        """MCP's names are ASCII."""
        return 1

    assert tool_from(getPrice).tool.name == tool_from(getPrice).activity.name == "getPrice"
    assert tool_from(größe).tool.name.isascii()
    for name in ("getPrice", "GET", "a.b-c_D9", "9", "_private", "x" * 128):
        assert tool_from(getPrice, name=name).tool.name == name

    for name in ("", "a b", "größe", "a/b", "x" * 129, "a\n"):
        with pytest.raises(
            ToolDefinitionError, match=r"does not match \^\[A-Za-z0-9_.-\]\{1,128\}\$"
        ):
            tool_from(getPrice, name=name)
