"""Names and stubs: what programs call tools, and the types that programs are checked against."""

from __future__ import annotations

import ast
import asyncio
import keyword
import time
import unicodedata
from collections.abc import Iterable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge.programs.names import ProgramNames, identifier
from ideabridge.bridge.programs.runner import setting_of
from ideabridge.bridge.programs.sandbox import Sandbox
from ideabridge.bridge.programs.stubs import SIGNATURE, stub
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import IDEA, Tool

pytestmark = pytest.mark.anyio

TEXT: JSONObject = {"type": "string"}
HOSTILE = [
    '"',
    "'",
    "\n",
    "\\",
    "'''",
    '"""',
    "#",
    ")",
    "]",
    "}",
    ":",
    "\u2028",
    "\x00",
    "\u202e",
    "__class__",
]


def made(
    name: str,
    properties: JSONObject | None = None,
    output: JSONObject | None = None,
    *,
    module: str | None = "srv",
    description: str = "",
    required: list[JSON] | None = None,
    more: JSONObject | None = None,
) -> Tool:
    """A tool; `more` is added to the schema of its parameters."""
    parameters: JSONObject = {
        "type": "object",
        "properties": properties or {},
        "required": required or [],
        **(more or {}),
    }
    return Tool(name, description, parameters, output, module=module)


def line_of(tool: Tool) -> str:
    """What a stub says about the only tool of a module."""
    [line] = [
        one for one in ProgramNames([tool]).stub("srv").splitlines() if one.startswith("async def ")
    ]
    return line.removeprefix("async def ").removesuffix(":")


@pytest.fixture(scope="module")
def sandbox() -> Iterable[Sandbox]:
    opened = Sandbox()
    yield opened
    opened.close()


async def checked(sandbox: Sandbox, tools: Iterable[Tool], program: str) -> str | None:
    return await sandbox.check(
        program, setting_of(ProgramNames(tools), {"input": {}, "state": {}}, 0.0, "seed")
    )


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("git_log", "git_log"),
        ("get-weather.now", "get_weather_now"),
        ("class", "class_"),
        ("match", "match"),
        ("type", "type"),
        ("__class__", "class__"),
        ("__", "name"),
        ("", "name"),
        ("2fast", "n2fast"),
        ("ﬁnd", "find"),
        ("gіt", "g_t"),
        ("None", "None_"),
    ],
)
def test_a_name_becomes_an_identifier(name: str, expected: str) -> None:
    assert identifier(name) == expected


@pytest.mark.parametrize(
    "part",
    [
        "#a",
        "#(",
        "import (",
        "from ",
        "import (#",
        "#import (\n",
        "(#\n",
        "import \\\n",
        ". ",
        "#",
        "a.\n",
    ],
)
@pytest.mark.parametrize("begin", ["", "import (", "from srv import (#"])
def test_a_hostile_program_is_read_at_once(begin: str, part: str) -> None:
    names = ProgramNames([made("read")])
    began = time.process_time()
    names.used_by(begin + part * (90_000 // len(part)))
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize(
    ("program", "used"),
    [
        ("import srv\nlist = [1]\nstr = len(list)\nawait srv.read()", {"srv": ["read"]}),
        ("import srv as s\nf = s . str\nawait (s\n  .read)()", {"srv": ["read", "str"]}),
        ("from srv import read as r, (str)  # list\nlist", {"srv": ["list", "read", "str"]}),
        (
            "from srv import (\n    read,  # (the first)\n    str,\n)\nlist",
            {"srv": ["read", "str"]},
        ),
        ("from srv import read, \\\n    str\nlist", {"srv": ["read", "str"]}),
        ("import other, srv; x = srv.read", {"other": [], "srv": ["read"]}),
        ("import srv\neval('srv.str()')", {"srv": ["str"]}),
        ("import srv\nsrv.ｒｅａｄ()", {"srv": ["read"]}),
        ("import json\nfrom servers import time\njson.loads(time.now())", {"time_": ["now"]}),
        ("srv.read()", {}),
    ],
)
def test_a_program_uses_what_it_imports_and_what_follows_a_dot(
    program: str, used: JSONObject
) -> None:
    tools = [made(name) for name in ("list", "read", "str")]
    tools += [made("now", module="time"), made("loads", module="json"), made("put", module="other")]
    modules = ProgramNames(tools).used_by(program)["modules"]
    assert isinstance(modules, dict)
    found = {module: sorted(held) for module, held in modules.items() if isinstance(held, dict)}
    assert found == used


def test_names_that_become_equal_are_numbered_and_reported() -> None:
    names = ProgramNames(
        [
            made("a-b"),
            made("a.b"),
            made("a_b", {"class": TEXT, "class_": TEXT}),
            made("now", module="time"),
            made("now", module="time_"),
            made("weekly", module=f"{IDEA}weekly"),
            made("pick", module=None),
        ]
    )

    assert {name: tool.name for name, tool in names.tools["srv"].items()} == {
        "a_b": "a_b",
        "a_b_2": "a-b",
        "a_b_3": "a.b",
    }
    assert names.servers == {"srv": "srv", "time": "time_2", "time_": "time_"}
    assert (list(names.tools["ideas"]), list(names.tools["tools"])) == (["weekly"], ["pick"])
    assert names.renamed == [
        ("time", "time_2"),
        ("srv.a-b", "srv.a_b_2"),
        ("srv.a.b", "srv.a_b_3"),
        ("srv.a_b(class)", "srv.a_b(class_2)"),
    ]
    assert names.call("srv", "a_b", {"class_2": "x", "class_": "y"}) == {
        "_tool": "a_b",
        "_module": "srv",
        "class": "x",
        "class_": "y",
    }


@given(
    st.lists(
        st.text() | st.sampled_from([*keyword.kwlist, "a_b", "a-b", "a_b_2", "a" * 300, "é"]),
        unique=True,
    )
)
def test_every_name_has_one_identifier_in_any_order(listed: list[str]) -> None:
    functions = {
        tool.name: python
        for python, tool in ProgramNames(map(made, listed)).tools.get("srv", {}).items()
    }

    assert sorted(functions) == sorted(listed)
    assert len({*functions.values()}) == len(listed)
    for python in functions.values():
        assert python.isidentifier()
        assert python.isascii()
        assert not keyword.iskeyword(python)

    again = ProgramNames(map(made, reversed(listed))).tools.get("srv", {})
    assert {tool.name: python for python, tool in again.items()} == functions


@given(
    st.lists(
        st.text()
        | st.sampled_from(["class", "город", "é", "e\u0301", "x²", "a-b", "٣", "а" * 300]),
        unique=True,
    )
)
def test_every_parameter_has_one_identifier_of_its_own_script(listed: list[str]) -> None:
    tool = made("find", {name: {} for name in listed})
    mapped = ProgramNames([tool]).parameters(tool)

    assert sorted(mapped.values()) == sorted(listed)
    for python in mapped:
        assert python.isidentifier()
        assert not keyword.iskeyword(python)
        assert unicodedata.normalize("NFKC", python) == python

    for name in {"город", "é"} & {*listed}:
        assert mapped[name] == name


def test_many_names_that_become_equal_are_mapped_at_once() -> None:
    started = time.process_time()
    names = ProgramNames(
        [made("é" * number) for number in range(1, 90)] + [made(f"é{n}") for n in range(20_000)]
    )
    same = ProgramNames(made("a" * 500 + str(number)) for number in range(20_000))

    assert len(names.tools["srv"]) == 20_089
    assert len(same.tools["srv"]) == 20_000
    assert time.process_time() - started < 5


# -- types -----------------------------------------------------------------------------------------


_TYPES: Final[list[tuple[JSONObject, str, str]]] = [
    (TEXT, "str", "str"),
    ({"type": "integer"}, "int", "int"),
    ({"type": ["string", "null"]}, "str | None", "str | None"),
    ({"type": "string", "nullable": True}, "str | None", "str | None"),
    (
        {"anyOf": [{"type": "null"}, {"type": "array", "items": TEXT}]},
        "Sequence[str] | None",
        "list[str] | None",
    ),
    ({"anyOf": [TEXT, {}]}, "Any", "Any"),
    ({"enum": ["a", "it's", None]}, "Literal['a', \"it's\", None]", "Literal['a', \"it's\", None]"),
    ({"const": True}, "Literal[True]", "Literal[True]"),
    ({"enum": [2**70]}, "int", "int"),
    ({"enum": [str(n) for n in range(100)]}, "str", "str"),
    ({"enum": [{}]}, "Any", "Any"),
    ({"type": "array", "items": {"enum": ["a", "b"]}}, "Sequence[str]", "list[Literal['a', 'b']]"),
    ({"type": "object", "additionalProperties": TEXT}, "Mapping[str, Any]", "dict[str, str]"),
    (
        {"type": "object", "properties": {"a": TEXT}, "additionalProperties": True},
        "Mapping[str, Any]",
        "dict[str, Any]",
    ),
    ({"allOf": [TEXT], "description": "x"}, "str", "str"),
    ({"allOf": [TEXT, {"minLength": 1}]}, "Any", "Any"),
    ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "number"}}}, "Any", "float"),
    ({"$ref": "#/anyOf/1/oneOf", "anyOf": []}, "Any", "Any"),
    ({"type": "nonsense"}, "Any", "Any"),
    ({"type": 5}, "Any", "Any"),
    ({}, "Any", "Any"),
]


@pytest.mark.parametrize(("schema", "parameter", "result"), _TYPES)
def test_types_of_schemas(schema: JSONObject, parameter: str, result: str) -> None:
    tool = made("f", {"a": schema}, schema, required=["a"])

    assert line_of(tool) == f"f(*, a: {parameter}) -> {result}"


def test_a_parameter_refers_to_definitions_of_its_tool() -> None:
    tool = made(
        "f", {"a": {"$ref": "#/$defs/x", "default": 3}}, more={"$defs": {"x": {"type": "integer"}}}
    )

    assert line_of(tool) == "f(*, a: int = 3) -> Any"


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer", "default": 10}, "int = 10"),
        ({"type": "number", "default": 10}, "float = 10"),
        ({"type": "string", "default": "a\nb"}, "str = 'a\\nb'"),
        ({"type": "string", "default": None}, "str = ..."),
        ({"type": ["string", "null"], "default": None}, "str | None = None"),
        ({"type": "integer", "default": True}, "int = ..."),
        ({"enum": ["a", "b"], "default": "b"}, "Literal['a', 'b'] = 'b'"),
        ({"enum": ["a", "b"], "default": "c"}, "Literal['a', 'b'] = ..."),
        ({"type": "string", "default": "x" * 500}, "str = ..."),
        ({"type": "array", "default": []}, "Sequence[Any] = ..."),
    ],
)
def test_defaults(schema: JSONObject, expected: str) -> None:
    assert line_of(made("f", {"a": schema})) == f"f(*, a: {expected}) -> Any"


def test_what_is_required_comes_first_and_may_have_no_schema() -> None:
    tool = made(
        "f", {"more": TEXT, "a": TEXT}, required=["a", "z", 5], more={"additionalProperties": True}
    )

    assert line_of(tool) == "f(*, a: str, z: Any, more: str = ..., **more_: Any) -> Any"


def test_tools_may_be_called_like_types() -> None:
    rows: JSONObject = {"type": "array", "items": {"type": "object", "properties": {"a": TEXT}}}
    text = ProgramNames(
        [made("list", {"a": TEXT}, rows), made("str"), made("Any"), made("list_result_item")]
    ).stub("srv")

    assert "async def list(*, a: _str = ...) -> _list[list_result_item_2]:" in text
    assert "from builtins import list as _list, str as _str" in text


async def test_a_typed_result_is_checked_whatever_the_tools_are_called(sandbox: Sandbox) -> None:
    row: JSONObject = {
        "type": "object",
        "properties": {"hash": TEXT, "n": {"type": "integer"}},
        "required": ["hash"],
    }
    tools = [
        made("list", {"kind": {"enum": ["a", "b"]}}, {"type": "array", "items": row}),
        made(
            "str",
            {"row": {"type": "object", "additionalProperties": TEXT}, "rows": {"type": "array"}},
        ),
        made("TypedDict", output=row),
        made("list_result_item"),
        made("match", {"type": TEXT, "self": TEXT, "class": TEXT}),
    ]
    right = """
import srv
rows = await srv.list(kind="a")
for kind in ["a", "b"]:
    rows += await srv.list(kind=kind)
await srv.str(row=rows[0], rows=rows)
await srv.match(type="a", self="b", class_="c")
[row["hash"].upper() for row in rows] + [(await srv.TypedDict())["n"] + 1]
"""

    assert await checked(sandbox, tools, right) is None
    # A typed result is a dict, so more members may be added to it.
    advised = """
import srv
def total(row: dict) -> dict:
    row["total"] = len(row["hash"])
    return row
async def rows_of(kind):
    return await srv.list(kind=kind)
[total(row)["total"] for row in await rows_of("a")]
"""
    assert await checked(sandbox, tools, advised) is None
    for wrong, error in (
        ("(await srv.list())[0]['hsh']", "did you mean"),
        ("(await srv.list())[0]['hash'] + 1", "Operator"),
        ("await srv.list(kind='c')", "Literal"),
        ("(await srv.TypedDict())['hsh']", "did you mean"),
        ("await srv.match(typ='a')", "does not match any known parameter"),
    ):
        assert error in str(await checked(sandbox, tools, f"import srv\n{wrong}")), wrong


# -- hostile schemas -------------------------------------------------------------------------------

_TEXTS = st.text(max_size=6) | st.sampled_from(HOSTILE)
_KEYS = _TEXTS | st.sampled_from(["a", "b", "str", "more", "self", "class", "f_result"])
_VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXTS
_REFERENCES = st.sampled_from(
    ["#", "#/$defs/x", "#/properties/a", "#/anyOf/0", "#/nothing", "http://x", "#/%zz/~2"]
)


def _grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.dictionaries(_KEYS, inner, max_size=4)
    lists = st.lists(inner, max_size=3)
    return (
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": objects},
            optional={
                "required": st.lists(_KEYS, max_size=3),
                "additionalProperties": inner,
                "$defs": objects,
            },
        )
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries(
            {"anyOf": lists}, optional={"default": _VALUES, "nullable": st.booleans()}
        )
        | st.fixed_dictionaries({"allOf": lists})
        | st.fixed_dictionaries(
            {"type": st.lists(st.sampled_from(["string", "null", "object"]), max_size=3)}
        )
        | objects
        | lists
    )


_SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(["string", "integer", "number", "boolean", "null", "array"]).map(
        lambda kind: {"type": kind}
    )
    | st.lists(_VALUES, max_size=4).map(lambda values: {"enum": values})
    | _VALUES.map(lambda value: {"const": value})
    | _REFERENCES.map(lambda reference: {"$ref": reference})
    | st.fixed_dictionaries({"type": st.just("string"), "default": _VALUES})
    | _VALUES,
    _grown,
    max_leaves=12,
)
_OBJECTS = st.dictionaries(_KEYS, _SCHEMAS, max_size=4)


def _tool_of(
    name: str, properties: JSONObject, output: JSON, required: list[JSON], description: str
) -> Tool:
    return made(
        name,
        properties,
        output if isinstance(output, dict) else None,
        description=description,
        required=required,
    )


_TOOLS = st.builds(
    _tool_of,
    _KEYS | st.sampled_from(["list", "dict", "Any", "TypedDict", "_str"]),
    _OBJECTS,
    _SCHEMAS,
    st.lists(_KEYS, max_size=3),
    st.lists(_TEXTS).map("".join),
)


def _expect_only_declarations(text: str, functions: Iterable[str]) -> None:
    """Nothing but imports, classes and the functions, without any code."""
    found: list[str] = []
    for node in ast.parse(text).body:
        match node:
            case ast.ImportFrom(module="collections.abc" | "typing" | "builtins"):
                pass
            case ast.Assign(
                targets=[ast.Name()],
                value=ast.Call(func=ast.Name(), args=[ast.Constant(), ast.Dict()]),
            ):
                pass
            case ast.AsyncFunctionDef(name=name, body=body, decorator_list=[]):
                assert all(
                    isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
                    for one in body
                )
                found.append(name)
            case _:
                pytest.fail(ast.unparse(node))

        assert sum(isinstance(one, ast.Call) for one in ast.walk(node)) == isinstance(
            node, ast.Assign
        )

    assert found == [*functions]


@settings(max_examples=120)
@given(st.lists(_TOOLS, max_size=4, unique_by=lambda tool: tool.name))
def test_stubs_of_any_schemas_are_declarations_and_nothing_else(tools: list[Tool]) -> None:
    names = ProgramNames(tools)
    held = names.tools.get("srv", {})
    text = stub((name, tool, names.parameters(tool)) for name, tool in held.items())

    _expect_only_declarations(text, held)
    for tool in tools:
        line = names.signature(tool, tool.output)
        assert line.isprintable()
        assert len(line) <= SIGNATURE + 300


@pytest.fixture(scope="module", params=[25, pytest.param(1_000, marks=pytest.mark.long)])
def examples(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_the_checker_reads_stubs_of_any_schemas(examples: int) -> None:
    sandbox = Sandbox()

    @settings(max_examples=examples)
    @given(st.lists(_TOOLS, max_size=3, unique_by=lambda tool: tool.name))
    def check(tools: list[Tool]) -> None:
        names = ProgramNames([*tools, made("f", {"a": TEXT}, TEXT, module="other")])
        own = "import other\n" + ("import srv\n" if tools else "")
        calls = ""
        for name, tool in names.tools.get("srv", {}).items():
            given_values = ", ".join(f"{one}=input['x']" for one in names.parameters(tool))
            calls += f"await srv.{name}({given_values})\n"

        setting = setting_of(names, {"input": {}, "state": {}}, 0.0, "seed")
        assert asyncio.run(sandbox.check(own + calls, setting)) is None
        wrong = asyncio.run(sandbox.check(f"{own}{calls}await other.f(b=1)", setting))
        assert "does not match any known parameter" in str(wrong)

    try:
        check()
    finally:
        sandbox.close()


def test_large_and_recursive_schemas_are_bounded() -> None:
    def deep(levels: int, width: int) -> JSONObject:
        if levels == 0:
            return TEXT
        inner: JSONObject = {f"k{number}": deep(levels - 1, width) for number in range(width)}
        return {"type": "object", "properties": inner}

    node: JSONObject = {
        "type": "object",
        "properties": {f"k{n}": {"$ref": "#/$defs/n"} for n in range(60)},
    }
    either: JSONObject = {"anyOf": [{"$ref": "#/$defs/n"} for _ in range(8)]}
    outputs: list[JSONObject] = [
        deep(4, 12),
        deep(90, 1),
        {"$ref": "#/$defs/n", "$defs": {"n": node}},
        {"$ref": "#/$defs/n", "$defs": {"n": either}},
        {"type": "object", "properties": {"x" * 100_000: TEXT}},
        {"enum": ["x" * 100_000]},
    ]
    for output in outputs:
        started = time.process_time()
        names = ProgramNames([made("f", {"a": output}, output, description="x" * 1_000_000)])
        text = names.stub("srv")
        ast.parse(text)
        assert len(text) < 40_000
        assert len(names.signature(names.listed[0])) <= SIGNATURE
        assert time.process_time() - started < 0.5


def test_stubs_of_many_tools_are_made_once_and_quickly() -> None:
    row: JSONObject = {"type": "object", "properties": {f"k{n}": TEXT for n in range(10)}}
    properties: JSONObject = {
        f"p{n}": {"type": "string", "description": "x" * 100, "default": "y"} for n in range(8)
    }
    tools = [
        made(f"tool_{n}", properties, {"type": "array", "items": row}, description="x" * 300)
        for n in range(500)
    ]
    names = ProgramNames(tools)

    started = time.process_time()
    text = names.stub("srv")
    took = time.process_time() - started
    assert text.count("async def") == 500
    assert took < 0.5

    assert ProgramNames(tools).stub("srv") is text
    other = ProgramNames([*tools[1:], made("tool_0")])
    assert other.stub("srv") != text


# -- signatures ------------------------------------------------------------------------------------


def test_a_signature_shows_objects_and_defaults() -> None:
    place: JSONObject = {
        "type": "object",
        "properties": {"lat": {"type": "number"}, "a b": TEXT},
        "required": ["lat"],
    }
    tool = made(
        "look",
        {"places": {"type": "array", "items": place}, "unit": {"enum": ["c", "f"], "default": "c"}},
        place,
        required=["places"],
    )

    assert ProgramNames([tool]).signature(tool) == (
        "srv.look(places: list[{lat: float, 'a b'?: str}], unit: Literal['c', 'f'] = 'c') -> "
        "{lat: float, 'a b'?: str}"
    )


def test_an_observed_result_is_marked_and_not_checked() -> None:
    tool = made("look")
    names = ProgramNames([tool])

    assert (
        names.signature(tool, {"type": "array", "items": TEXT})
        == "srv.look() -> list[str] # observed"
    )
    text: JSONObject = {"type": "string", "contentSchema": {"type": "array", "items": TEXT}}
    assert names.signature(tool, text) == "srv.look() -> Json[list[str]] # observed"
    assert names.signature(tool, {}) == "srv.look() -> Any"
    assert "async def look() -> Any:" in names.stub("srv")
    declared = made("look", output=TEXT)
    assert ProgramNames([declared]).signature(declared, {"type": "integer"}) == "srv.look() -> str"


KIND: JSONObject = {
    "properties": {"kind": {"const": "file"}, "path": TEXT},
    "required": ["kind", "path"],
}
OTHER: JSONObject = {
    "properties": {"kind": {"const": "page"}, "path": {"type": "integer"}},
    "required": ["kind"],
}
COMBINED: list[tuple[JSONObject, str]] = [
    ({"allOf": [{"properties": {"a": TEXT}, "required": ["a"]}]}, "a: str, **more: Any"),
    (
        {"oneOf": [KIND, OTHER]},
        "kind: Literal['file'] | Literal['page'], path: str | int = ..., **more: Any",
    ),
    (
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        "a: Any = ..., b: Any = ..., **more: Any",
    ),
    (
        {
            "if": {"properties": {"a": {"const": 1}}},
            "then": {"properties": {"b": TEXT}, "required": ["b"]},
        },
        "a: Literal[1] = ..., b: str = ..., **more: Any",
    ),
    ({"$ref": "#/$defs/P", "$defs": {"P": KIND}}, "kind: Literal['file'], path: str, **more: Any"),
    ({"dependentSchemas": {"a": {"properties": {"b": TEXT}}}}, "b: str = ..., **more: Any"),
    ({"allOf": [{"$ref": "#"}, {"anyOf": [{"$ref": "#/allOf/1"}]}]}, "**more: Any"),
]


@pytest.mark.parametrize(("more", "expected"), COMBINED)
def test_parameters_that_are_combined_at_the_top_are_typed_as_far_as_known(
    more: JSONObject, expected: str
) -> None:
    tool = Tool("f", parameters={"type": "object", **more}, module="srv")
    named = "" if expected.startswith("**") else "*, "
    assert line_of(tool) == f"f({named}{expected}) -> Any"


def test_own_properties_are_stricter_than_alternatives() -> None:
    schema: JSONObject = {"type": "object", "properties": {"kind": TEXT}, "anyOf": [KIND, OTHER]}
    assert line_of(Tool("f", parameters=schema, module="srv")).startswith(
        "f(*, kind: str, path: str | int = ..."
    )


def test_a_schema_that_combines_itself_a_thousand_times_is_read_in_no_time() -> None:
    definitions: JSONObject = {}
    for number in range(50):
        definitions[f"d{number}"] = {
            "anyOf": [{"$ref": f"#/$defs/d{number + 1}"} for _ in range(9)]
        }

    schema: JSONObject = {"type": "object", "$ref": "#/$defs/d0", "$defs": definitions}
    began = time.process_time()
    line_of(Tool("f", parameters=schema, module="srv"))
    assert time.process_time() - began < 1
