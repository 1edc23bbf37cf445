"""What a server seals and hands to a client is of use to the user alone for whom it was made."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final, cast

import httpx2
import pytest

from ideabridge.bridge.store.store import Store
from tests import preloaded
from tests.server.serving import configured, http_process

pytestmark = pytest.mark.anyio

ASKS: Final = Path(__file__).parents[1] / "modules" / "servers" / "asks.py"
META: Final[dict[str, Any]] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}


class Served:
    """A server with a module that asks, and the tokens of its users."""

    def __init__(self, url: str, tokens: dict[str, str]) -> None:
        self.url = url
        self.tokens = tokens

    async def call(
        self, who: str, name: str, arguments: dict[str, str], **more: Any
    ) -> dict[str, Any]:
        """The answer to a call of a tool, as it comes over HTTP."""
        params = {"name": name, "arguments": arguments, "_meta": META, **more}
        headers = {
            "authorization": f"Bearer {self.tokens[who]}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": name,
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        async with httpx2.AsyncClient(headers=headers, timeout=20) as http:
            answer = (await http.post(self.url, json=message)).text
        return cast(
            "dict[str, Any]", json.loads(answer[answer.index("{") : answer.rindex("}") + 1])
        )


@pytest.fixture(scope="module", params=["modern", "legacy"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Served]:
    folder = tmp_path_factory.mktemp("states")
    with Store.open(folder / "ideas.sqlite") as store:
        tokens = {
            name: store.users.add_token(store.users.add(name).name)[1] for name in ("alice", "bob")
        }

    module = preloaded.module(ASKS, *(["--legacy"] if request.param == "legacy" else []))
    configuration = configured(folder, mcpServers={"asks": module}, expose=["modules"])
    with http_process(configuration) as url:
        yield Served(url, tokens)


async def test_the_state_of_a_module_is_of_no_use_to_another_user(served: Served) -> None:
    asked = (await served.call("alice", "book", {"who": "alice"}))["result"]
    [question] = asked["inputRequests"]
    content = {"name": "Ada", "seats": 2}
    reply = {
        "requestState": asked["requestState"],
        "inputResponses": {question: {"action": "accept", "content": content}},
    }
    stolen = await served.call("bob", "book", {"who": "alice"}, **reply)
    assert stolen["error"]["message"] == "Invalid or expired requestState"
    # It still works for the user who was asked.
    answered = (await served.call("alice", "book", {"who": "alice"}, **reply))["result"]
    assert "Ada" in answered["content"][0]["text"]
