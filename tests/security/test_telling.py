"""No message that a host gets on behalf of a module holds a secret, in whatever part of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from tests import preloaded
from tests.server.serving import ERAS, configured, http_process, over_stdio, text

pytestmark = pytest.mark.anyio

SECRET = "sesame-open-now"
TELLING = Path(__file__).with_name("telling.py")
ASKS = Path(__file__).parent.parent / "modules" / "servers" / "asks.py"


class Host:
    """Answers every question, and notes every message as JSON, by its kind."""

    def __init__(self) -> None:
        self.messages: dict[str, list[str]] = {}
        self.heard_completion = anyio.Event()

    def note(self, kind: str, message: Any) -> None:
        if isinstance(message, BaseModel):
            whole = message.model_dump_json(by_alias=True)
        else:
            whole = str(message)
        self.messages.setdefault(kind, []).append(whole)

    async def heard(self, message: Any) -> None:
        method = str(getattr(message, "method", type(message).__name__))
        self.note(method, message)
        if method == "notifications/elicitation/complete":
            self.heard_completion.set()

    async def logged(self, params: types.LoggingMessageNotificationParams) -> None:
        self.note("log", params)

    async def progressed(self, progress: float, total: float | None, message: str | None) -> None:
        self.note("progress", message)

    async def elicit(self, _context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.note(type(params).__name__, params)
        return types.ElicitResult(action="decline")

    async def sample(
        self, _context: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        self.note("sampling", params)
        return types.CreateMessageResult(
            role="assistant", content=types.TextContent(text="ok"), model="tiny"
        )

    async def roots(self, context: Any) -> types.ListRootsResult:
        self.note("roots", context.meta)
        return types.ListRootsResult(roots=[])

    @property
    def callbacks(self) -> dict[str, Any]:
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.roots,
            "logging_callback": self.logged,
            "message_handler": self.heard,
        }


@pytest.mark.parametrize("era", ERAS)
async def test_no_part_of_a_message_on_behalf_of_a_module_holds_a_secret(
    era: str, tmp_path: Path
) -> None:
    host = Host()
    module = {"command": sys.executable, "args": ["-I", str(TELLING)], "env": {"API_TOKEN": SECRET}}
    with http_process(
        configured(tmp_path, mcpServers={"telling": module}, expose=["modules"])
    ) as url:
        async with Client(url, mode=era, read_timeout_seconds=60, **host.callbacks) as client:
            if era == "legacy":
                params = types.SubscribeRequestParams(uri="x://a/")
                await client.session.send_request(
                    types.SubscribeRequest(params=params), types.EmptyResult
                )

            for tool in ("form", "open", "sample", "roots"):
                assert text(await client.call_tool(tool, {})) == "done"

            with pytest.raises(MCPError) as error:
                await client.call_tool("must_open", {})

            host.note("error", error.value.error)
            assert (
                text(await client.call_tool("notify", {}, progress_callback=host.progressed))
                == "done"
            )
            if era == "legacy":
                # This arrives on a different stream from the result.
                with anyio.fail_after(20):
                    await host.heard_completion.wait()

    expected = {
        "ElicitRequestFormParams",
        "ElicitRequestURLParams",
        "sampling",
        "roots",
        "error",
        "progress",
    }
    if era == "legacy":
        expected |= {"log", "notifications/elicitation/complete", "notifications/resources/updated"}

    assert host.messages.keys() >= expected
    assert [kind for kind, messages in host.messages.items() if SECRET in "".join(messages)] == []
    assert "[secret:API_TOKEN]" in str(host.messages)


async def test_no_name_of_a_question_holds_a_secret(tmp_path: Path) -> None:
    host = Host()
    module = {**preloaded.module(ASKS), "env": {"API_TOKEN": SECRET}}
    configuration = configured(tmp_path, mcpServers={"asks": module}, expose=["modules"])
    async with over_stdio(configuration, "auto", elicitation_callback=host.elicit) as client:
        refused = text(await client.call_tool("named", {"who": SECRET[:6]}))

    assert host.messages == {}
    assert (
        "asks questions whose names contain the secret API_TOKEN from the configuration" in refused
    )
    assert SECRET not in refused
