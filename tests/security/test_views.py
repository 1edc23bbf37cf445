"""Views in HTML of modules reach hosts only where the user allows it, and never in the
name of ideabridge.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests import preloaded
from tests.server.serving import BIN, ERAS, configured, in_memory, over_stdio, text

pytestmark = pytest.mark.anyio

VIEWING = Path(__file__).parent.parent / "modules" / "servers" / "viewing.py"
OWN = "ui://ideabridge/run"
MIME = "text/html;profile=mcp-app"
CLIENT_ERAS = pytest.mark.parametrize("era", ERAS)
SPELLINGS = (
    OWN,
    "UI://IDEABRIDGE/run",
    "ui://ideabridge:80/run",
    "ui://x@ideabridge/run",
    "ui://%69deabridge/run",
)


def viewing(name: str, *words: str, **more: Any) -> dict[str, Any]:
    return {**preloaded.module(VIEWING, name, *words), **more}


def exposed(folder: Path, **modules: dict[str, Any]) -> Path:
    return configured(folder, mcpServers=modules, expose=["modules"])


def wire(model: Any) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def tools_of(client: Client) -> dict[str, dict[str, Any]]:
    return {tool.name: wire(tool) for tool in (await client.list_tools()).tools}


async def everything_of(client: Client, name: str) -> list[dict[str, Any]]:
    """All that a client gets of a module without naming a view."""
    return [
        await tools_of(client),
        wire(await client.list_resources()),
        wire(await client.list_resource_templates()),
        wire(await client.list_prompts()),
        wire(await client.call_tool(f"{name}_show", {})),
        wire(await client.get_prompt(f"{name}_prompt")),
    ]


def without_reasons(found: Any) -> str:
    """What was found as JSON, without the sentences about withheld views."""
    lines = json.dumps(found, indent=1).split("\n")
    return "\n".join(line for line in lines if '"text": "(' not in line)


@CLIENT_ERAS
async def test_no_view_of_a_module_is_passed_on_unless_the_user_allows_it(
    era: str, tmp_path: Path
) -> None:
    async with over_stdio(exposed(tmp_path, evil=viewing("evil")), era) as client:
        found = await everything_of(client, "evil")
        said = without_reasons(found).lower()
        assert "ui:" not in said
        assert '"ui' not in said
        assert "text/html" not in said
        assert "<script>" not in said
        # Everything else is there, and says what is missing.
        assert found[0]["evil_show"]["_meta"] == {"kept": "yes"}
        assert "evil_refresh" not in found[0]
        assert "data://other" in said
        assert "views" in json.dumps(found[4])
        assert '"text/plain"' in said
        for uri in ("ui://evil/run", "UI://evil/run", "data://page"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)
        assert "read from evil" in json.dumps(wire(await client.read_resource("data://other")))


async def test_changes_of_views_are_told_of_an_allowed_module_alone(tmp_path: Path) -> None:
    changed: list[str] = []
    two = anyio.Event()

    async def note(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            changed.append(str(message.params.uri))
            if len(changed) == 2:
                two.set()

    modules = {"evil": viewing("evil"), "good": viewing("good", views=True)}
    async with in_memory(exposed(tmp_path, **modules), "legacy", message_handler=note) as client:
        for uri in ("ui://good/run", "ui://evil/run", "data://other"):
            params = types.SubscribeRequestParams(uri=uri)
            with suppress(MCPError):
                await client.session.send_request(
                    types.SubscribeRequest(params=params), types.EmptyResult
                )

        await client.call_tool("evil_touch", {})
        await client.call_tool("good_touch", {})
        with anyio.fail_after(20):
            await two.wait()

        assert "ui://good/run" in changed
        assert "ui://evil/run" not in changed


def test_trust_shows_that_a_project_passes_views_on(tmp_path: Path) -> None:
    file = tmp_path / "ideabridge.json"
    file.write_text(json.dumps({"mcpServers": {"evil": {"command": "evil", "views": True}}}))
    command = preloaded.python(BIN / "ideabridge", "trust", "--show", str(tmp_path))
    shown = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    ).stdout
    assert "with its views: clients run the scripts of its pages" in shown


def test_the_list_of_modules_says_whose_views_are_withheld(tmp_path: Path) -> None:
    configuration = exposed(tmp_path, evil=viewing("evil"), good=viewing("good", views=True))
    command = preloaded.python(
        BIN / "ideabridge", "servers", "list", "--config", str(configuration)
    )
    shown = subprocess.run(
        command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    )
    said = shown.stdout + shown.stderr
    assert "evil: its views in HTML are not passed on to clients" in said
    assert "good: its views" not in said


@CLIENT_ERAS
async def test_an_allowed_view_may_call_the_tools_of_its_module_alone(
    era: str, tmp_path: Path
) -> None:
    modules = {
        "good": viewing("good", views=True),
        "evil": viewing("evil"),
        "also": viewing("also", views=True),
    }
    async with in_memory(exposed(tmp_path, **modules), era) as client:
        tools = await tools_of(client)
        assert tools["good_show"]["_meta"]["ui"] == {"resourceUri": "ui://good/run"}
        assert tools["good_refresh"]["_meta"]["ui"] == {"visibility": ["app"]}
        others = [name for name in tools if not name.startswith("good_")]
        assert {"run_plan", "evil_show", "also_show"} <= {*others}
        for name in others:
            assert tools[name]["_meta"]["ui"] == {"visibility": ["model"]}
        read = wire(await client.read_resource("ui://good/run"))["contents"]
        assert [content["text"] for content in read] == ["read from good"]
        blocks = wire(await client.call_tool("good_show", {}))["content"]
        assert (
            next(block["resource"]["mimeType"] for block in blocks if block["type"] == "resource")
            == MIME
        )
        # A module may have views at any address except ours, and they are read from the allowed
        # one.
        assert "read from evil" not in json.dumps(wire(await client.read_resource("ui://evil/run")))
        assert "ui:" not in without_reasons(wire(await client.call_tool("evil_show", {}))).lower()
        # ideabridge's own view of a run is not offered beside the module's views, because it can
        # make decisions.
        assert (await client.call_tool("view_run", {"run": "run_1"})).is_error
        with pytest.raises(MCPError):
            await client.read_resource(OWN)


@CLIENT_ERAS
@pytest.mark.parametrize("is_allowed", [True, False])
async def test_no_module_has_a_view_of_ideabridge(
    is_allowed: bool, era: str, tmp_path: Path
) -> None:
    evil = viewing("evil", "ui://ideabridge", views=is_allowed)
    async with in_memory(exposed(tmp_path, evil=evil), era) as client:
        found = await everything_of(client, "evil")
        assert "ui://ideabridge" not in without_reasons(found).lower()
        for uri in SPELLINGS:
            try:
                read = wire(await client.read_resource(uri))
            except MCPError:
                continue
            assert "evil" not in json.dumps(read)


async def test_a_view_calls_a_tool_by_the_name_that_its_module_gives_it(tmp_path: Path) -> None:
    # Both modules list `same_touch`, so both tools have the name of their module in front.
    modules = {"one": viewing("same", views=True), "two": viewing("same")}
    async with in_memory(exposed(tmp_path, **modules), "auto") as client:
        tools = await tools_of(client)
        assert "same_touch" not in tools
        assert text(await client.call_tool("one_same_touch", {})) == text(
            await client.call_tool("same_touch", {})
        )
