"""Odd definitions as a host sees them: the tool is listed in a form that hosts take, and
called in every way.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from jsonschema import Draft202012Validator

from tests.modules.conftest import SERVERS
from tests.modules.servers.odd import RIGHT, TOOLS, Edit, changed
from tests.server.serving import all_tools, configured, over_stdio, served, text

from .laws import foreign_words
from .switches import SCHEMAS
from .test_ways import WAYS, Host, Way

WHOLE: list[tuple[str, Any]] = [
    ("null", None), ("true", True), ("a list", []), ("a text", "none"), ("empty", {}), ("an array", {"type": "array"}),
]  # fmt: skip

NEEDED: list[tuple[str, dict[str, Any]]] = [
    ('"required": true}', {"q": "x"}),
    ('"required": "q"', {"q": "x"}),
    ('"required": ["edits"', {"edits": "[]"}),
]
"""What a definition with these words requires of every call."""


def definitions() -> list[tuple[str, dict[str, Any]]]:
    """A tool for each odd schema."""
    made: list[tuple[str, dict[str, Any]]] = []
    base = {**TOOLS[0], "annotations": {"readOnlyHint": True}}
    for number, (name, path, value) in enumerate(SCHEMAS):
        if name in ("10,000 properties", "300 KB", "900 levels"):
            continue  # see the switches
        odd = changed(base, "put", ["inputSchema", *path], value)
        made.append((name, {**odd, "name": f"any_{number}"}))

    for name, value in WHOLE:
        made.append(
            (
                f"the whole is {name}",
                {**base, "inputSchema": value, "name": f"any_{len(SCHEMAS) + len(made)}"},
            )
        )

    return made


DEFINITIONS = definitions()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Generator[Host]:
    folder = tmp_path_factory.mktemp("definitions")
    edits: list[Edit] = [
        ["tools/list", "put", ["result", "tools"], [TOOLS[0], *(odd for _, odd in DEFINITIONS)]]
    ]
    # This would be too long for a command line.
    script = folder / "server.py"
    script.write_text(
        f"import json, sys\nsys.path.insert(0, {str(SERVERS)!r})\nfrom odd import Server, "
        "over_stdio\n"
        f"over_stdio(Server(json.loads({json.dumps(edits)!r})))\n"
    )
    configuration = configured(
        folder,
        mcpServers={"odd": {"command": sys.executable, "args": ["-I", "-S", str(script)]}},
        expose=["modules"],
        schemas="plain",
        approval={"default": "allow"},
    )
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(over_stdio(configuration, "auto", served)) as client,
    ):
        made = Host(portal, client)
        made.call("run_plan", {"calls": [{"_tool": "look", "_module": "odd"}]})
        made.tools = portal.call(all_tools, client)
        yield made


def marked() -> list[Any]:
    params: list[Any] = []
    for name, odd in DEFINITIONS:
        for way in WAYS:
            key = f"definition: {name}: {way}"
            params.append(pytest.param(way, odd, id=key))
    return params


@pytest.mark.parametrize(("way", "odd"), marked())
def test_a_tool_with_an_odd_schema_is_called_in_every_way(
    host: Host, way: Way, odd: dict[str, Any]
) -> None:
    schema = odd["inputSchema"]
    needed = [
        known for part, known in NEEDED if isinstance(schema, dict) and part in json.dumps(schema)
    ]
    arguments = needed[0] if needed else {}
    result = host.call_in(way, odd["name"], arguments)
    whole = result.model_dump_json(by_alias=True)
    assert not foreign_words([whole])
    assert not result.is_error, whole
    told: dict[str, Any] = result.structured_content or {}
    value = text(result) if way == "directly" else told.get("output")
    assert value == RIGHT + odd["name"], whole


def schemas_marked() -> list[Any]:
    params: list[Any] = []
    for name, odd in DEFINITIONS:
        key = f"definition: {name}: listed"
        params.append(pytest.param(odd, id=key))
    return params


@pytest.mark.parametrize("odd", schemas_marked())
def test_the_schema_that_hosts_are_shown_is_valid(host: Host, odd: dict[str, Any]) -> None:
    """It is one of an object, valid by 2020-12, without references."""
    shown = host.tools[odd["name"]].input_schema
    assert shown["type"] == "object"
    Draft202012Validator.check_schema(shown)
    written = json.dumps(shown)
    assert '"$ref": "http' not in written
    assert '"$ref": "file' not in written
