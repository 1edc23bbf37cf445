"""A folder of ideas that somebody wrote by hand: added, called from two hosts, exported, and
called elsewhere.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests import preloaded

from .serving import BIN, ERAS, all_tools, call, configured, http_process, over_stdio, refused, text

pytestmark = pytest.mark.anyio

IDEAS = Path(__file__).parent.parent.parent / "examples" / "ideas"
CALLS: list[tuple[str, dict[str, Any], Any]] = [
    (
        "company",
        {},
        {
            "name": "Example Ltd",
            "address": "1 Main Street, Springfield",
            "tax_number": "12 345 678",
        },
    ),
    ("vat_rate", {"country": "DE"}, {"percent": 19}),
    ("with_tax", {"net": 50}, {"tax": 9.5, "gross": 59.5}),
    (
        "contact",
        {"first": "Bo", "last": "Li"},
        {"family_name": "Li", "given_name": "Bo", "source": "form"},
    ),
    (
        "quarters",
        {"goal": 70},
        {"q1": {"sum": 60, "reached": False}, "q2": {"sum": 75, "reached": True}},
    ),
    (
        "invoice",
        {"items": [{"name": "Chair", "net": 10}]},
        {"lines": [{"tax": 1.9, "gross": 11.9}], "total": 11.9},
    ),
]
DOUBLE: dict[str, Any] = {
    "context": [{"type": "input", "input": {"n": 3}}],
    "schema": {"type": "object"},
    "solution": {
        "calls": [{"_tool": "compute", "code": "n + n", "n": "†input.n", "_outputPath": "double"}],
        "output": {"double": "†state.double"},
    },
}


def command(configuration: Path, *words: str) -> dict[str, Any]:
    """Run a command on the store of a configuration, which nobody has trusted, so that only the
    store is taken.
    """
    home = str(configuration.parent)
    done = subprocess.run(
        preloaded.python(
            BIN / "ideabridge", *words, "--store", str(configuration.parent / "ideas.sqlite")
        ),
        cwd=home,
        env={
            **os.environ,
            "HOME": home,
            "USERPROFILE": home,
            "XDG_DATA_HOME": home,
            "XDG_CONFIG_HOME": home,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout.startswith("{") else {}


async def answers(client: Client) -> None:
    """Every idea is a tool with its own parameters, and answers as its document says."""
    tools = await all_tools(client)
    assert {path.stem for path in IDEAS.iterdir() if path.suffix != ".md"} <= tools.keys()
    assert list(tools["with_tax"].input_schema["properties"]) == ["net", "percent"]
    for name, arguments, output in CALLS:
        answer = await call(client, name, **arguments)
        assert answer == output or answer.get("output", answer.get("result")) == output, (
            name,
            answer,
        )

    order = await call(client, "order", fruit="pear", count=2)
    assert order["sum"] == 18
    words = await client.call_tool("longest_words", {"text": "a bbb cc dddd", "most": 2})
    assert not words.is_error
    assert "dddd" in str(words.structured_content)
    assert "answers only for the input" in await refused(client, "vat_rate", country="FR")
    # Until it is answered, the call has no result.
    waiting = await client.call_tool("translate", {"text": "Hello, Ann!", "language": "French"})
    assert "needs_solution" in text(waiting)
    asked = (waiting.meta or {})["ideabridge/structured"]
    assert asked["status"] == "needs_solution"
    solution: dict[str, Any] = {"calls": [], "output": {"text": "Bonjour, Ann !"}}
    done = await call(
        client, "submit_solution", run=asked["run"], turn=asked["turn"], solution=solution
    )
    assert done["output"] == {"text": "Bonjour, Ann !"}


def folder(path: Path, name: str) -> Path:
    place = path / name
    place.mkdir()
    return configured(place)


async def test_a_folder_of_ideas_goes_from_one_store_to_another(tmp_path: Path) -> None:
    here, there = folder(tmp_path, "here"), folder(tmp_path, "there")
    added = command(here, "ideas", "add", str(IDEAS), "--yes", "--json")
    assert len(added["ideas"]) == 10
    assert (added["refused"], added["missing"]) == ([], [])
    assert all(
        one["unchanged"]
        for one in command(here, "ideas", "add", str(IDEAS), "--yes", "--json")["ideas"]
    )

    # Two hosts, one over stdio and one over HTTP, use the same store.
    async with over_stdio(here, ERAS[0]) as host:
        await answers(host)

    with http_process(here) as url:
        async with Client(url, mode=ERAS[-1], read_timeout_seconds=60) as other:
            await answers(other)

    exported = tmp_path / "exported"
    command(here, "ideas", "export", "--published", "--folder", str(exported))
    first = {file.name: file.read_text(encoding="utf-8") for file in exported.iterdir()}
    assert len(first) == 10
    assert all(
        one["unchanged"]
        for one in command(here, "ideas", "add", str(exported), "--yes", "--json")["ideas"]
    )
    adopted = command(there, "ideas", "add", str(exported), "--yes", "--json")
    assert [one["version"] for one in adopted["ideas"]] == [1] * 10
    assert {one["name"]: one["idea"] for one in adopted["ideas"]} == {
        one["name"]: one["idea"] for one in added["ideas"]
    }
    again = tmp_path / "again"
    command(there, "ideas", "export", "--published", "--folder", str(again))
    assert {file.name: file.read_text(encoding="utf-8") for file in again.iterdir()} == first
    async with over_stdio(there, ERAS[-1]) as host:
        await answers(host)


async def test_an_assistant_publishes_an_idea_that_it_wrote(
    client: Client, request: pytest.FixtureRequest
) -> None:
    name = f"double_{abs(hash(request.node.name)) % 10**8}"
    told = await call(
        client, "publish_idea", idea=DOUBLE, name=name, description="Doubles a number"
    )
    assert (told["name"], told["version"], told["answer"]) == (name, 1, "plan")
    assert told["annotations"]["readOnlyHint"] is True
    assert await call(client, name, n=21) == {"double": 42}
    # Models also write an object as text. Publishing the same idea makes no new version.
    again = await client.call_tool(
        "publish_idea",
        {"idea": json.dumps(DOUBLE), "name": name, "description": "Doubles a number"},
    )
    assert "nothing changed" in str(again.content)
    assert (await call(client, "publish_idea", idea=DOUBLE, name=name, answer="solve"))[
        "answer"
    ] == "solve"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"idea": {"context": []}}, "no content"),
        ({"idea": {"context": ["x"], "command": "rm"}}, "command"),
        ({"idea": DOUBLE, "strict": True}, "strict: applies only to a run"),
        ({"idea": DOUBLE, "answer": "recorded"}, "its output has references"),
        ({"idea": {"context": ["x"], "solution": {"calls": [{"_tool": "compute"}]}}}, "code"),
        ({"idea": [1]}, "idea"),
        ({"idea": "{not json"}, "idea"),
    ],
)
async def test_what_an_assistant_cannot_publish_is_refused_with_the_reason(
    client: Client, arguments: dict[str, Any], why: str
) -> None:
    assert why in await refused(client, "publish_idea", name="never_published", **arguments)
    assert "never_published" not in await all_tools(client)


async def test_a_plan_that_was_only_looked_at_becomes_a_tool(client: Client) -> None:
    name = f"rehearsed_{client.protocol_version.replace('-', '_')}"
    calls = [{"_tool": "compute", "code": "a * b", "a": "†input.a", "b": 3, "_outputPath": "x"}]
    told = await call(
        client, "run_plan", calls=calls, output="†state.x", dry_run=True, save_as=name
    )
    assert told["missing_inputs"] == ["†input.a"]
    assert told["published"]["answer"] == "plan"
    assert list(told["published"]["input_schema"]["properties"]) == ["a"]
    done = await client.call_tool(name, {"a": 5})
    assert not done.is_error
    assert "15" in str(done.structured_content)
