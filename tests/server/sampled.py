"""One small task for every mind, and clients whose model is scripted."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
from mcp import types

from .serving import TOOLS, git_module

Solution: TypeAlias = dict[str, Any]

TASK: dict[str, Any] = {
    "task": "Count the words in the histories of both repositories.",
    "output_schema": {
        "type": "object",
        "properties": {"ours": {"type": "integer"}, "theirs": {"type": "integer"}},
        "required": ["ours", "theirs"],
        "additionalProperties": False,
    },
    "tools": ["git_log", "*git_log", "count_words"],
}
OUTPUT = {"ours": 24, "theirs": 13}

MALFORMED: Solution = {"calls": [{"_tool": "count_wrods", "text": "†state.ours"}], "output": None}
FIRST: Solution = {
    "calls": [
        {"_tool": "git_log", "_module": "ours", "repo_path": "†input.ours", "_outputPath": "ours"},
        {"_tool": "count_words", "text": "†state.ours", "_outputPath": "mine"},
        # There is no repository, so this call fails, and the next solution repairs it.
        {
            "_tool": "git_log",
            "_module": "theirs",
            "repo_path": "†input.nowhere",
            "_outputPath": "theirs",
        },
    ],
    "output": None,
}
SECOND: Solution = {
    "calls": [
        {
            "_tool": "git_log",
            "_module": "theirs",
            "repo_path": "†input.theirs",
            "_outputPath": "theirs",
        },
        {"_tool": "count_words", "text": "†state.theirs", "_outputPath": "other"},
    ],
    "output": {"ours": "†state.mine.words", "theirs": "†state.other.words"},
}
# The malformed call fails alone, in a turn of its own.
SCRIPT = (MALFORMED, FIRST, SECOND)


def _repository(folder: Path, *messages: str) -> None:
    folder.mkdir()
    when = "2026-01-02T03:04:05+00:00"
    who = {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in (("NAME", "Ada"),)
    }
    environment = {**os.environ, **who, "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    environment |= {"GIT_AUTHOR_EMAIL": "ada@example.org", "GIT_COMMITTER_EMAIL": "ada@example.org"}
    for words in (
        ["init", "-q"],
        *(["commit", "-q", "--allow-empty", "-m", message] for message in messages),
    ):
        subprocess.run(["git", *words], cwd=folder, env=environment, check=True)


def prepare(folder: Path, **top: Any) -> tuple[Path, dict[str, Any]]:
    """A configuration of two modules and a file of tools, and the arguments of `solve`."""
    _repository(folder / "ours", "First words", "And some more words")
    _repository(folder / "theirs", "Others wrote this")
    servers = {name: git_module(folder / name) for name in ("ours", "theirs")}
    path = folder / "ideabridge.json"
    content = {
        "store": "ideas.sqlite",
        "tools": [str(TOOLS)],
        "mcpServers": servers,
        "approval": "allow_all",
        **top,
    }
    path.write_text(json.dumps(content))
    given = {name: str(folder / name) for name in ("ours", "theirs", "nowhere")}
    return path, {**TASK, "input": given}


Answer: TypeAlias = (
    Solution
    | str
    | types.ErrorData
    | types.CreateMessageResult
    | types.CreateMessageResultWithTools
)


class Model:
    """A client's model that says what it was given to say, and remembers what it was asked.

    Args:
        answers: solutions, texts, errors or whole results, in order.
        tools: the client lets it be given tools, and it calls them.
    """

    def __init__(self, *answers: Answer, tools: bool = False) -> None:
        self.answers = list(answers)
        self.tools = tools
        self.asked: list[types.CreateMessageRequestParams] = []
        self.then: Callable[[], Any] | None = None

    @property
    def keys(self) -> dict[str, Any]:
        """Arguments of the client."""
        keys: dict[str, Any] = {"sampling_callback": self}
        if self.tools:
            keys["sampling_capabilities"] = types.SamplingCapability(
                tools=types.SamplingToolsCapability()
            )
        return keys

    async def __call__(self, context: Any, params: types.CreateMessageRequestParams) -> Any:
        self.asked.append(params)
        if self.then is not None:
            await self.then()

        answer = self.answers.pop(0)
        if not isinstance(answer, str | dict):
            return answer
        if self.tools and isinstance(answer, dict):
            assert params.tools is not None
            use = types.ToolUseContent(name=params.tools[0].name, id="use-1", input=answer)
            return types.CreateMessageResultWithTools(
                role="assistant", content=[use], model="scripted-1", stop_reason="toolUse"
            )

        if isinstance(answer, str):
            text = answer
        else:
            text = json.dumps(answer, ensure_ascii=False)

        content = types.TextContent(text=text)
        return types.CreateMessageResult(
            role="assistant", content=content, model="scripted-1", stop_reason="endTurn"
        )


def said(params: types.CreateMessageRequestParams) -> str:
    """All text of a question."""
    blocks = [block for message in params.messages for block in message.content_as_list]
    texts = [block.text for block in blocks if isinstance(block, types.TextContent)]
    return "\n".join([params.system_prompt or "", *texts])


def answer_of(solution: dict[str, Any] | str) -> types.CreateMessageResult:
    """What a model answered, as a client sends it in a round."""
    content = types.TextContent(
        text=solution if isinstance(solution, str) else json.dumps(solution)
    )
    return types.CreateMessageResult(role="assistant", content=content, model="by-hand")


class Alternating(httpx2.AsyncHTTPTransport):
    """Sends each request to the other of two servers."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__()
        self.ports = [httpx2.URL(url).port for url in urls]
        self.calls: list[int | None] = []
        self._next = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        port = self.ports[self._next % 2]
        self._next += 1
        if request.headers.get("mcp-method") == "tools/call":
            self.calls.append(port)

        request.url = request.url.copy_with(port=port)
        request.headers["host"] = f"127.0.0.1:{port}"
        return await super().handle_async_request(request)
