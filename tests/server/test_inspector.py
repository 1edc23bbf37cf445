"""The MCP inspector, an MCP client that nobody here wrote, against
`ideabridge serve` in both eras.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from tests.npm import needs, program

from .serving import call, configured, listening, served

pytestmark = needs("@modelcontextprotocol/inspector")

INSPECTED = ("legacy", "modern")
PLAN: dict[str, Any] = {
    "calls": [
        {"_tool": "add", "a": "†input.a", "b": "†input.b", "_outputPath": "sum"},
        {"_tool": "count_words", "text": "†input.text", "_outputPath": "counted"},
    ],
    "input": {"a": 1, "b": 2, "text": "one word"},
    "output": {"sum": "†state.sum", "words": "†state.counted.words"},
}


@dataclass(frozen=True)
class Inspector:
    """`mcp-inspector --cli` against one server: a process for each question."""

    folder: Path
    target: list[str]
    era: str

    def __call__(self, method: str, *options: str, code: int = 0) -> dict[str, Any]:
        """The result of a method. `code`: what the inspector exits with; 5: the tool says
        that it failed.
        """
        asked = [
            "--protocol-era",
            self.era,
            "--format",
            "json",
            "--quiet",
            "--method",
            method,
            *options,
        ]
        done = subprocess.run(
            [*program("mcp-inspector"), "--cli", *asked, *self.target],
            env={**os.environ, "HOME": str(self.folder)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)["result"]

    def call(self, name: str, code: int = 0, /, **arguments: Any) -> dict[str, Any]:
        """What a call of a tool gives."""
        return self(
            "tools/call", "--tool-name", name, "--tool-args-json", json.dumps(arguments), code=code
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inspected")


@pytest.fixture(scope="module")
def url(folder: Path) -> Generator[str]:
    with listening(served(configured(folder), "--http", "127.0.0.1:0")) as url:
        yield url


@pytest.mark.parametrize("era", INSPECTED)
def test_what_one_process_publishes_the_inspector_calls_in_another(
    folder: Path, url: str, era: str
) -> None:
    other = Inspector(folder, ["--transport", "http", "--server-url", url], era)
    # Start a separate process for each question.
    one = Inspector(folder, ["--", *served(folder / "ideabridge.json")], era)
    run = other.call("run_plan", **PLAN)["structuredContent"]["run"]
    name = f"sum_and_count_{era}"
    told = one.call("publish_idea", idea=run, name=name, description="Adds a and b, counts words.")
    assert told["structuredContent"]["answer"] == "auto"
    # The Inspector's own arguments are text, which it converts to what the input schema requires.
    found = other(
        "tools/call", "--tool-name", name, "--tool-arg", "a=20", "b=22", "text=three words now"
    )
    assert found["structuredContent"] == {"sum": 42, "words": 3}
    failed = other.call(name, 5, a=1, text="")
    assert failed["isError"] is True
    assert "b: missing, expected a number" in failed["content"][0]["text"]


async def publish_a_plan(url: str, name: str) -> None:
    async with Client(url) as client:
        await call(client, "run_plan", **PLAN, save_as=name)


async def publish_an_idea(url: str, name: str) -> None:
    solution = {
        "calls": [{"_tool": "add", "a": "†input.a", "b": "†input.b"}],
        "output": "†results.0",
    }
    async with Client(url) as client:
        asked = await call(
            client,
            "solve",
            task="Add a and b.",
            input={"a": 1, "b": 2},
            output_schema={"type": "integer"},
        )
        await call(client, "solve", run=asked["run"], turn=0, solution=solution)
        await call(client, "publish_idea", idea=asked["run"], name=name)


@pytest.mark.parametrize("era", INSPECTED)
def test_no_schema_has_what_hosts_stumble_over(folder: Path, url: str, era: str) -> None:
    other = Inspector(folder, ["--transport", "http", "--server-url", url], era)
    anyio.run(publish_a_plan, url, f"strict_{era}")
    # With --strict, the Inspector exits with code 6 if a host would reject a schema.
    tools = {tool["name"]: tool for tool in other("tools/list", "--strict")["tools"]}
    assert {"run_plan", "solve", f"strict_{era}"} <= tools.keys()
    assert tools[f"strict_{era}"]["annotations"]["readOnlyHint"] is True


@pytest.mark.parametrize("era", INSPECTED)
def test_an_idea_is_read_as_a_resource_and_got_as_a_prompt(
    folder: Path, url: str, era: str
) -> None:
    other = Inspector(folder, ["--transport", "http", "--server-url", url], era)
    name = f"shown_{era}"
    anyio.run(publish_an_idea, url, name)
    (content,) = other("resources/read", "--uri", f"idea://{name}")["contents"]
    assert json.loads(content["text"])["ideabridge"] == 2
    prompt = other("prompts/get", "--prompt-name", name, "--prompt-args", "a=31", "b=2")
    words = [message["content"]["text"] for message in prompt["messages"]]
    assert "Add a and b." in words
    assert "31" in words[-1]
