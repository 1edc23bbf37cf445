"""Versions of a published idea over stdio: what breaks callers is told, and NAME@VERSION stands for one of them."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
from mcp import Client

from .serving import ERAS, all_tools, call, configured, over_stdio, refused, structured, text

pytestmark = pytest.mark.anyio

NAME = "sum_of"
TWO: dict[str, Any] = {
    "calls": [{"_tool": "add", "a": "†input.a", "b": "†input.b", "_outputPath": "sum"}],
    "input": {"a": 1, "b": 2},
    "output": {"total": "†state.sum"},
}
THREE: dict[str, Any] = {
    "calls": [*TWO["calls"], {"_tool": "add", "a": "†state.sum", "b": "†input.c", "_outputPath": "all"}],
    "input": {"a": 1, "b": 2, "c": 3},
    "output": {"sum": "†state.all"},
}


async def publish(client: Client, plan: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Run a plan and publish it as the next version; what was answered, and the text of it."""
    run = (await call(client, "run_plan", **plan))["run"]
    told = await client.call_tool("publish_idea", {"idea": run, "name": NAME})
    assert not told.is_error, text(told)
    return structured(told), text(told)


def document(read: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(read.contents[0].text))


@pytest.mark.parametrize("mode", ERAS)
async def test_a_version_that_breaks_callers_says_so(tmp_path: Path, mode: str) -> None:
    async with over_stdio(configured(tmp_path), mode) as client:
        first, said = await publish(client, TWO)
        assert first["version"] == 1
        assert "breaking" not in first
        assert "breaking" not in said
        second, said = await publish(client, THREE)
        assert second["breaking"] == ["input: c: is required now", "output: total: is not told any more"]
        assert (
            "\nbreaking, against the version before:"
            " input: c: is required now; output: total: is not told any more\n" in said
        )
        # What is taken more, and told besides, breaks nobody.
        third, said = await publish(
            client, {**TWO, "output": {"sum": "†state.sum", "a": "†input.a"}, "input": {"a": 1, "b": 2}}
        )
        assert third["version"] == 3
        assert "breaking" not in third
        assert "breaking" not in said
        # The same member, of another type.
        words = {"_tool": "count_words", "text": "a b", "_outputPath": "words"}
        fourth, _ = await publish(
            client,
            {
                **TWO,
                "calls": [*TWO["calls"], {**words, "text": "†input.text"}],
                "input": {"text": "a b", **TWO["input"]},
                "output": {"sum": "†state.words", "a": "†input.a"},
            },
        )
        assert fourth["breaking"] == [
            "input: text: is required now",
            "output: sum: may be object now, was integer or number",
        ]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_version_is_called_by_its_number_everywhere(tmp_path: Path, mode: str) -> None:
    async with over_stdio(configured(tmp_path), mode) as client:
        await publish(client, TWO)
        await publish(client, THREE)
        # As a tool: lists tell the name alone, and it stands for the latest.
        listed = await all_tools(client)
        assert [name for name in listed if name.startswith(NAME)] == [NAME]
        assert await call(client, NAME, a=1, b=2, c=3) == {"sum": 6}
        assert await call(client, f"{NAME}@2", a=1, b=2, c=3) == {"sum": 6}
        assert await call(client, f"{NAME}@1", a=1, b=2) == {"total": 3}
        assert "c: found nothing" in await refused(client, f"{NAME}@2", a=1, b=2)
        assert f"unknown tool '{NAME}@9'" in await refused(client, f"{NAME}@9", a=1, b=2)
        # As a module of a plan.
        one = {"_tool": NAME, "_module": f"idea:{NAME}@1", "a": 1, "b": 2, "_outputPath": "one"}
        two = {"_tool": NAME, "_module": f"idea:{NAME}", "a": 1, "b": 2, "c": 3, "_outputPath": "two"}
        told = await call(client, "run_plan", calls=[one, two])
        assert told["state"] == {"one": {"total": 3}, "two": {"sum": 6}}
        assert await refused(client, "run_plan", calls=[{**one, "_module": f"idea:{NAME}@9"}]) == (
            f"calls[0]: 'idea:{NAME}@9': there is no such version; 'idea:{NAME}' stands for {NAME}@2"
        )
        # As a resource, as guidance, and to be published again.
        read = [document(await client.read_resource(f"idea://{NAME}{version}")) for version in ("/1", "/2", "")]
        assert [one["publication"]["version"] for one in read] == [1, 2, 2]
        assert read[0]["id"] != read[1]["id"] == read[2]["id"]
        turn = await call(client, "solve", task="Add again.", idea=f"{NAME}@1", mind="turns")
        context = str(turn["requests"][0]["context"])
        assert "†input.b" in context
        assert "†input.c" not in context
        again = await call(client, "publish_idea", idea=f"{NAME}@1", name=NAME)
        assert again["version"] == 3
        assert again["idea"] == read[0]["id"]
        assert await refused(client, "publish_idea", idea=f"{NAME}@9", name="other") == (
            f"'{NAME}' has the versions 1 to 3, not 9"
        )
