"""Versions of a published idea, in both eras: what breaks callers is told, and NAME@VERSION stands
for one of them.
"""

import json
from typing import Any, cast

import pytest
from mcp import Client

from .serving import all_tools, call, refused, structured, text

pytestmark = pytest.mark.anyio

TWO: dict[str, Any] = {
    "calls": [{"_tool": "add", "a": "†input.a", "b": "†input.b", "_outputPath": "sum"}],
    "input": {"a": 1, "b": 2},
    "output": {"total": "†state.sum"},
}
THREE: dict[str, Any] = {
    "calls": [
        *TWO["calls"],
        {"_tool": "add", "a": "†state.sum", "b": "†input.c", "_outputPath": "all"},
    ],
    "input": {"a": 1, "b": 2, "c": 3},
    "output": {"sum": "†state.all"},
}


def own_name(client: Client, word: str) -> str:
    """A name for each era: both share the server."""
    return f"{word}_{client.protocol_version.replace('-', '_')}"


async def publish(client: Client, name: str, plan: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Run a plan and publish it as the next version; what was answered, and the text of it."""
    run = (await call(client, "run_plan", **plan))["run"]
    told = await client.call_tool("publish_idea", {"idea": run, "name": name})
    assert not told.is_error, text(told)
    return structured(told), text(told)


def document(read: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(read.contents[0].text))


async def test_a_version_that_breaks_callers_says_so(client: Client) -> None:
    name = own_name(client, "changed")
    first, said = await publish(client, name, TWO)
    assert first["version"] == 1
    assert "breaking" not in first
    assert "breaking" not in said
    second, said = await publish(client, name, THREE)
    assert second["breaking"] == ["input: c is now required", "output: total was removed"]
    assert (
        "\nbreaking changes since the previous version: input: c is now required; "
        "output: total was removed\n"
    ) in said
    # A parameter that has been removed is named. A new field breaks nothing for callers.
    third, _ = await publish(
        client,
        name,
        {**TWO, "output": {"sum": "†state.sum", "a": "†input.a"}, "input": {"a": 1, "b": 2}},
    )
    assert third["version"] == 3
    assert third["breaking"] == ["input: c was removed"]
    # The member is the same but has another type.
    words = {"_tool": "count_words", "text": "a b", "_outputPath": "words"}
    fourth, _ = await publish(
        client,
        name,
        {
            **TWO,
            "calls": [*TWO["calls"], {**words, "text": "†input.text"}],
            "input": {"text": "a b", **TWO["input"]},
            "output": {"sum": "†state.words", "a": "†input.a"},
        },
    )
    assert fourth["breaking"] == [
        "input: text is now required",
        "output: sum: was number, is object",
    ]


async def test_a_version_is_called_by_its_number_everywhere(client: Client) -> None:
    name = own_name(client, "numbered")
    await publish(client, name, TWO)
    await publish(client, name, THREE)
    # As a tool, it is listed only by its name, which means the latest version.
    listed = await all_tools(client)
    assert [one for one in listed if one.startswith(name)] == [name]
    assert await call(client, name, a=1, b=2, c=3) == {"sum": 6}
    assert await call(client, f"{name}@2", a=1, b=2, c=3) == {"sum": 6}
    assert await call(client, f"{name}@1", a=1, b=2) == {"total": 3}
    assert "c: missing" in await refused(client, f"{name}@2", a=1, b=2)
    assert f"unknown tool '{name}@9'" in await refused(client, f"{name}@9", a=1, b=2)
    # It can be the module of a call in a plan.
    one = {"_tool": name, "_module": f"idea:{name}@1", "a": 1, "b": 2, "_outputPath": "one"}
    two = {"_tool": name, "_module": f"idea:{name}", "a": 1, "b": 2, "c": 3, "_outputPath": "two"}
    told = await call(client, "run_plan", calls=[one, two])
    assert told["state"] == {"one": {"total": 3}, "two": {"sum": 6}}
    assert await refused(client, "run_plan", calls=[{**one, "_module": f"idea:{name}@9"}]) == (
        f"calls[0]: 'idea:{name}@9': there is no such version; 'idea:{name}' refers to {name}@2"
    )
    # It can be read as a resource, used as guidance, and published again.
    read = [
        document(await client.read_resource(f"idea://{name}{version}"))
        for version in ("/1", "/2", "")
    ]
    assert [one["publication"]["version"] for one in read] == [1, 2, 2]
    assert read[0]["id"] != read[1]["id"] == read[2]["id"]
    turn = await call(client, "solve", task="Add again.", idea=f"{name}@1", mind="turns")
    context = str(turn["requests"][0]["context"])
    assert "†input.b" in context
    assert "†input.c" not in context
    again = await call(client, "publish_idea", idea=f"{name}@1", name=name)
    assert again["version"] == 3
    assert again["idea"] == read[0]["id"]
    assert await refused(client, "publish_idea", idea=f"{name}@9", name="other") == (
        f"'{name}' has the versions 1 to 3, not 9"
    )
