"""Tools with odd schemas, as a host sees and calls them: directly, in plans and in programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tools.schemas import check_meta

from .serving import all_tools, call, configured, over_stdio, plain, refused, text

pytestmark = pytest.mark.anyio

BAD: list[Any] = [
    *({"type": kind} for kind in ("dict", "strange", None)),
    *(None, True, [], "x"),
    {"type": "object", "properties": None, "required": None},
    {
        "type": "object",
        "properties": {
            "x": {"$ref": "https://127.0.0.1:9/x.json"},
            "y": {"$ref": "file:///etc/passwd"},
        },
    },
    {
        "type": "object",
        "properties": {"x": {"pattern": "(", "enum": None, "minLength": -1}},
        "required": ["x", "x"],
    },
    {"$id": "https://example.com/x", "type": "object", "properties": {"x": {"type": "str"}}},
    {
        "$id": "https://example.com/x",
        "type": "object",
        "properties": {"x": {"$ref": "#/properties/y"}, "y": True},
    },
    {
        "type": "object",
        "properties": {
            "x": {"type": "string", "required": True},
            "class": {},
            "a-b c": {},
            "2": {},
        },
    },
    {
        "type": "object",
        "oneOf": [
            {"properties": {"x": {"const": "1"}}},
            {"properties": {"x": {"type": "integer"}}},
        ],
    },
]


async def test_every_tool_of_an_odd_server_is_shown_and_called(tmp_path: Path) -> None:
    tools: list[dict[str, Any]] = [
        {"name": f"t{n}", "inputSchema": schema} for n, schema in enumerate(BAD)
    ]
    tools += [
        {"name": f"o{n}", "inputSchema": {"type": "object"}, "outputSchema": one}
        for n, one in enumerate(BAD)
    ]
    servers = {"odd": plain(tmp_path, "odd", *tools)}
    configuration = configured(
        tmp_path, mcpServers=servers, expose=["modules"], schemas="plain", approval="allow_all"
    )
    async with over_stdio(configuration, "auto") as client:
        shown = await all_tools(client)
        names = [tool["name"] for tool in tools]
        assert shown.keys() >= set(names)
        for name in names:
            check_meta(shown[name].input_schema)
            check_meta(shown[name].output_schema or {})
            assert "$" not in str(shown[name].input_schema)

        for name in (name for name in names if name.startswith("t")):
            result = await client.call_tool(name, {"x": "1"})
            assert not result.is_error, (name, text(result))

        # What can be read is checked.
        assert "expected text" in await refused(client, "t10", x=5)
        calls = [{"_tool": f"odd.{name}", "x": "1"} for name in names if name.startswith("t")]
        done = await call(client, "run_plan", calls=calls)
        assert done["status"] == "done", done
        program = "\n".join(
            ["import odd", *(f'await odd.{name}(x="1")' for name in names if name.startswith("t"))]
        )
        done = await call(
            client, "run_plan", program=f"{program}\nawait odd.t12(x='1', class_=2, a_b_c=3, n2=4)"
        )
        assert done["status"] == "done", done
        told = text(await client.call_tool("search_tools", {"words": "t10"}))
        assert "t10(x: str = ...)" in told
