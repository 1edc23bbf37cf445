"""The built-in tools."""

from __future__ import annotations

import time
from typing import cast

import jsonschema
import pytest

from ideabridge.tools import Validator, builtin_toolbox
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError
from tests.tools.context import RecordingContext

pytestmark = pytest.mark.anyio

TOOLBOX = builtin_toolbox()
DATA: JSON = {"items": [{"n": 1, "who": "ann"}, {"n": 5, "who": "bob"}, {"n": 7, "who": "bob"}]}


async def call(name: str, arguments: JSONObject) -> JSON:
    tool = TOOLBOX.tool(name)
    Validator(tool.parameters, what="parameters").check(arguments)
    result = cast("JSON", await TOOLBOX.activity(name).run(arguments, RecordingContext()))
    if tool.output is not None:
        Validator(tool.output, what="result").check(result)
    return result


def test_they_are_pure_and_described() -> None:
    assert list(TOOLBOX.tools) == [
        "pick",
        "filter",
        "join",
        "count",
        "template",
        "compute",
        "sleep",
    ]
    for tool in TOOLBOX:
        assert tool.annotations.read_only
        assert tool.annotations.idempotent
        assert len(tool.description) > 50
        jsonschema.Draft202012Validator.check_schema(tool.parameters)
        properties = tool.parameters["properties"]
        assert isinstance(properties, dict)
        assert [
            name for name, schema in properties.items() if "description" not in str(schema)
        ] == []


GIVEN: list[tuple[str, JSONObject, JSON]] = [
    ("pick", {"data": DATA, "path": "items[?n > `3`].who"}, ["bob", "bob"]),
    ("pick", {"data": DATA, "path": "nothing.here"}, None),
    ("pick", {"data": [[1], [2]], "path": "[]"}, [1, 2]),
    ("pick", {"data": [1, None, [2, None]], "path": "[]"}, [1, 2]),
    ("pick", {"data": {"a": 1}, "path": "a[*]"}, None),
    ("pick", {"data": {"a": "†state.x"}, "path": "a"}, "†state.x"),
    ("filter", {"items": [{"n": 1}, {"n": 5}], "where": "n > `3`"}, [{"n": 5}]),
    ("filter", {"items": [{"a": 0}, {"a": ""}, {}, {"a": []}], "where": "a"}, [{"a": 0}]),
    ("filter", {"items": [], "where": "a"}, []),
    ("join", {"items": ["a", 1, None, {"k": True}], "separator": ", "}, 'a, 1, null, {"k":true}'),
    ("join", {"items": ["a", "b"]}, "ab"),
    ("count", {"items": [1, 2]}, 2),
    ("count", {"items": {"a": 1}}, 1),
    ("count", {"items": "Ünï"}, 3),
    (
        "count",
        {"items": [{"w": "a"}, {"w": "a"}, {"w": 1}, {}], "by": "w"},
        {"a": 2, "1": 1, "null": 1},
    ),
    (
        "template",
        {"text": "{a.b} {{x}} {length(c)}", "values": {"a": {"b": "B"}, "c": [1]}},
        "B {x} 1",
    ),
    ("template", {"text": "{n} {o}", "values": {"n": None, "o": {"k": 1}}}, 'null {"k":1}'),
    ("template", {"text": "{odd key}", "values": {"odd key": "v"}}, "v"),
    ("template", {"text": "{a}", "values": {"a": "{b}"}}, "{b}"),
    ("template", {"text": "", "values": {}}, ""),
]


@pytest.mark.parametrize(("name", "arguments", "result"), GIVEN)
async def test_what_they_give(name: str, arguments: JSONObject, result: JSON) -> None:
    assert await call(name, arguments) == result


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("pick", {"data": 1, "path": "a["}, 'path: "a\\[" is not a JMESPath expression'),
        ("pick", {"data": 1, "path": "length(@)"}, "length"),
        ("pick", {"data": 1, "path": "nope(@)"}, "nope"),
        ("pick", {"data": 1, "path": "a" * 3000}, "characters, found 3,000"),
        ("filter", {"items": [1], "where": "&&"}, "where: "),
        ("count", {"items": "text", "by": "a"}, "text has no items"),
        (
            "template",
            {"text": "{usr.name}", "values": {"user": {}}},
            "no value for the placeholder {usr.name}.*'user'",
        ),
        (
            "template",
            {"text": "{user.__class__}", "values": {"user": {}}},
            "no value for the placeholder",
        ),
        ("template", {"text": "a } b", "values": {}}, "single '}' at character 2"),
        ("template", {"text": "a {b", "values": {}}, "single '{' at character 2"),
        ("template", {"text": "{}", "values": {}}, "empty placeholder"),
        ("template", {"text": "{a[}", "values": {}}, "is not a JMESPath expression"),
    ],
)
async def test_what_they_refuse(name: str, arguments: JSONObject, message: str) -> None:
    with pytest.raises(ActivityError, match=message):
        await call(name, arguments)


@pytest.mark.parametrize(
    "path",
    [
        "|".join(["[@,@]"] * 150),
        "|".join(["[@,@][]"] * 150),
        "|".join([*["[@,@]"] * 100, "to_string(@)"]),
        "(" * 900 + "a" + ")" * 900,
    ],
    ids=["shared", "flattened", "printed", "deep"],
)
async def test_queries_cannot_ask_for_too_much(path: str) -> None:
    start = time.process_time()
    with pytest.raises(ActivityError, match=r"takes more than the limit|is nested too deeply"):
        await call("pick", {"data": [1], "path": path})
    assert time.process_time() - start < 3


async def test_texts_are_bounded() -> None:
    items: list[JSON] = [""] * 1000
    with pytest.raises(ActivityError, match="longer than"):
        await call("join", {"items": items, "separator": "x" * 10_000})
    with pytest.raises(ActivityError, match="longer than"):
        await call("template", {"text": "{a}" * 1000, "values": {"a": "x" * 10_000}})
