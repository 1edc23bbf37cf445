"""Ideas as resources and prompts."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, types
from mcp.shared.exceptions import MCPError

from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.store import Store
from tests.ideas.values import publish

from .serving import call, configured, over_stdio

pytestmark = pytest.mark.anyio


async def published(client: Client, name: str) -> str:
    """A solved task published under a name of this client's era."""
    name = f"{name}_{client.protocol_version[:4]}"
    run = (
        await call(
            client,
            "solve",
            task="Greet politely.",
            input={"who": "Ada", "times": 2},
            output_schema={
                "type": "object",
                "properties": {"n": {"type": "integer"}},
                "required": ["n"],
            },
            tools=["add"],
        )
    )["run"]
    solution = {
        "calls": [{"_tool": "add", "a": "†input.times", "b": "†input.times", "_outputPath": "n"}],
        "output": {"n": "†state.n"},
    }
    done = await call(client, "submit_solution", run=run, turn=0, solution=solution)
    assert done["output"] == {"n": 4}
    # Nothing reads the name of the person to be greeted.
    await call(client, "publish_idea", idea=run, name=name)
    return name


async def test_published_ideas_are_resources(client: Client) -> None:
    name = await published(client, "greet")
    listed = await client.list_resources(cache_mode="bypass")
    assert f"idea://{name}" in [str(resource.uri) for resource in listed.resources]
    for uri in (f"idea://{name}", f"idea://{name}/1"):
        content = (await client.read_resource(uri)).contents[0]
        assert isinstance(content, types.TextResourceContents)
        document: Any = json.loads(content.text)
        assert document["publication"]["name"] == name
        assert document["context"][0]["content"] == "Greet politely."

    for uri in (f"idea://{name}/7", "idea://nothing_such", "file:///etc/passwd"):
        with pytest.raises(MCPError, match="unknown resource"):
            await client.read_resource(uri)

    with pytest.raises(MCPError, match="cursor"):
        await client.list_resources(cursor="Not A Cursor")

    with pytest.raises(MCPError, match="cursor"):
        await client.list_tools(cursor="Not A Cursor")


async def test_names_and_versions_are_completed(client: Client) -> None:
    name = await published(client, "completed")
    templates = await client.list_resource_templates()
    assert [template.uri_template for template in templates.resource_templates] == [
        "idea://{name}",
        "idea://{name}/{version}",
    ]
    reference = types.ResourceTemplateReference(uri="idea://{name}/{version}")
    for start in ("c", "compl", name):
        found = await client.complete(reference, {"name": "name", "value": start})
        assert name in found.completion.values

    assert (
        await client.complete(reference, {"name": "name", "value": "zz"})
    ).completion.values == []
    versions = await client.complete(
        reference, {"name": "version", "value": ""}, context_arguments={"name": name}
    )
    assert versions.completion.values == ["1"]


async def test_versions_after_a_pinned_one_are_completed_and_read(tmp_path: Path) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        idea = store.ideas.save(
            Idea([], {"type": "object"}, {"calls": [], "output": 1}), IdeaMeta()
        )
        for _ in range(3):
            publish(store, "pinned", idea)
        store.publications.stand_for("pinned", 1, pinned=True)
    async with over_stdio(configured(tmp_path), "auto") as client:
        reference = types.ResourceTemplateReference(uri="idea://{name}/{version}")
        argument = {"name": "version", "value": ""}
        found = await client.complete(reference, argument, context_arguments={"name": "pinned"})
        assert found.completion.values == ["3", "2", "1"]
        for version in found.completion.values:
            content = (await client.read_resource(f"idea://pinned/{version}")).contents[0]
            assert isinstance(content, types.TextResourceContents)
            assert json.loads(content.text)["publication"]["version"] == int(version)


async def test_ideas_with_words_are_prompts(client: Client) -> None:
    name = await published(client, "prompt")
    prompts = {
        prompt.name: prompt for prompt in (await client.list_prompts(cache_mode="bypass")).prompts
    }
    assert [argument.name for argument in prompts[name].arguments or []] == ["who", "times"]
    got = await client.get_prompt(name, {"who": "Eve", "times": "3"})
    texts = [
        message.content.text
        for message in got.messages
        if isinstance(message.content, types.TextContent)
    ]
    assert texts == ["Greet politely.", 'Input: {"who":"Eve","times":3}']
    with pytest.raises(MCPError, match="missing: times"):
        await client.get_prompt(name, {"who": "Eve"})

    with pytest.raises(MCPError, match="unknown prompt"):
        await client.get_prompt("nothing_such")
