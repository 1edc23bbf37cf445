"""The view of a run inside an assistant: MCP Apps, with the host library of the extension in
a real browser.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from playwright.sync_api import FrameLocator, Page, expect

from tests import npm
from tests.ui.serving import served

MIME: Final = "text/html;profile=mcp-app"
EXTENSION: Final = {"io.modelcontextprotocol/ui": {"mimeTypes": [MIME]}}
HOST: Final = """
import { AppBridge, PostMessageTransport, getToolUiResourceUri } from "@modelcontextprotocol/ext-apps/app-bridge";
window.showApp = async (html, result) => {
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts");
  frame.style.width = "700px";
  document.body.append(frame);
  const info = { name: "host", version: "1" };
  const bridge = new AppBridge(null, info, { serverTools: {} }, { hostContext: { theme: "dark" } });
  bridge.oncalltool = async (params) => JSON.parse(await window.callTool(JSON.stringify(params)));
  bridge.onsizechange = ({ height }) => { frame.style.height = `${height}px`; };
  bridge.oninitialized = async () => {
    await bridge.sendToolInput({ arguments: {} });
    await bridge.sendToolResult(result);
  };
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  frame.srcdoc = html;
};
window.uriOf = (tool) => getToolUiResourceUri(tool);
"""
REFUND: Final = [
    {"_tool": "list_orders", "_outputPath": "orders"},
    {
        "_tool": "refund",
        "order": "†state.orders.0.id",
        "amount": 5,
        "note": "<img src=x onerror=alert(1)>",
    },
]


class McpClient:
    """A client of the handshake era over HTTP, which declares what it is told to."""

    def __init__(self, url: str, capabilities: dict[str, Any], name: str = "test host") -> None:
        self._http = httpx.Client(
            timeout=30, headers={"Accept": "application/json, text/event-stream"}
        )
        self._url = url.partition("/ui/")[0] + "/mcp"
        self._id = 0
        hello = {"protocolVersion": "2025-11-25", "capabilities": capabilities}
        self.ask("initialize", {**hello, "clientInfo": {"name": name, "version": "1"}})
        self._http.post(self._url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request; returns its result."""
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        answer = self._http.post(self._url, json=message)
        if "mcp-session-id" in answer.headers:
            self._http.headers["mcp-session-id"] = answer.headers["mcp-session-id"]

        if answer.headers["content-type"].startswith("text/event-stream"):
            events = [
                line.removeprefix("data: ")
                for line in answer.text.splitlines()
                if line.startswith("data: {")
            ]
            return next(
                found for one in events if (found := json.loads(one)).get("id") == self._id
            )["result"]

        return answer.json()["result"]

    def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool; returns its structured result."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments})["structuredContent"]

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of a host, made of the library of the extension."""
    folder = tmp_path_factory.mktemp("host")
    source = folder / "host.js"
    bundled = folder / "bundle.js"
    source.write_text(HOST, encoding="utf-8")
    command = [
        *npm.program("esbuild"),
        str(source),
        "--bundle",
        "--format=iife",
        f"--outfile={bundled}",
    ]
    subprocess.run(
        command, check=True, capture_output=True, env={**os.environ, "NODE_PATH": str(npm.FOLDER)}
    )
    return bundled.read_text(encoding="utf-8")


@pytest.fixture
def url(tmp_path: Path) -> Generator[str]:
    with served(tmp_path) as found:
        yield found


def shown(page: Page, client: McpClient, host: str, result: dict[str, Any]) -> FrameLocator:
    """The view in a page that is a host."""

    def call_tool(text: str) -> str:
        return json.dumps(client.ask("tools/call", json.loads(text)))

    page.goto("about:blank")
    page.expose_function("callTool", call_tool)  # pyright: ignore[reportUnknownMemberType] - Playwright's own type
    page.add_script_tag(content=host)
    [content] = client.ask("resources/read", {"uri": "ui://ideabridge/run"})["contents"]
    assert content["mimeType"] == MIME
    assert "default-src 'none'" in content["text"]
    assert len(content["text"].encode()) < 60_000
    page.evaluate("([html, result]) => window.showApp(html, result)", [content["text"], result])
    return page.frame_locator("iframe")


def test_other_clients_see_no_difference(url: str) -> None:
    plain = McpClient(url, {})
    viewing = McpClient(url, {"extensions": EXTENSION})
    before, after = plain.ask("tools/list", {})["tools"], viewing.ask("tools/list", {})["tools"]
    assert not [
        tool for tool in before if tool["name"] == "view_run" or "ui" in tool.get("_meta", {})
    ]
    assert [tool["name"] for tool in after] == [*(tool["name"] for tool in before), "view_run"]
    named = {tool["name"]: tool["_meta"]["ui"] for tool in after if "ui" in tool.get("_meta", {})}
    assert set(named) == {"run_plan", "solve", "check_run", "decide_approval", "view_run"}
    assert named["view_run"]["visibility"] == ["app"]
    for client in (plain, viewing):
        client.close()


def test_a_run_of_somebody_else_is_not_shown(url: str) -> None:
    client = McpClient(url, {"extensions": EXTENSION})
    for wrong in ({"run": "run_0000000000000000"}, {}, {"run": 3}, {"run": "x", "more": 1}):
        assert client.ask("tools/call", {"name": "view_run", "arguments": wrong})["isError"]
    client.close()


@npm.needs("@modelcontextprotocol/ext-apps")
def test_a_host_shows_a_run_and_passes_a_decision_on(page: Page, url: str, host: str) -> None:
    client = McpClient(url, {"extensions": EXTENSION})
    plan = {"calls": REFUND, "output": "†results.1"}
    result = client.ask("tools/call", {"name": "run_plan", "arguments": plan})
    assert result["structuredContent"]["status"] == "needs_approval"
    view = shown(page, client, host, result)
    expect(view.locator(".status")).to_have_text("needs approval")
    expect(view.locator("tr.done")).to_contain_text("list_orders")
    expect(view.locator("section.question pre")).to_contain_text("<img src=x")
    assert view.locator("html").get_attribute("data-theme") == "dark"
    view.get_by_label("Reason").fill("as agreed")
    view.get_by_role("button", name="Approve").click()
    expect(view.locator(".status")).to_have_text("done")
    expect(view.locator("pre.output")).to_contain_text("refunded 5 for order 1")
    expect(view.locator("section.question")).to_contain_text("It waits no longer.")
    # The host passes the click on as a call, so it counts as the assistant's.
    told = client.ask(
        "tools/call",
        {"name": "check_run", "arguments": {"run": result["structuredContent"]["run"]}},
    )
    assert "by the assistant" in json.dumps(told["structuredContent"]["decided"])
    client.close()


@npm.needs("@modelcontextprotocol/ext-apps")
def test_what_the_view_does_not_show_whole_can_only_be_denied(
    page: Page, url: str, host: str
) -> None:
    client = McpClient(url, {"extensions": EXTENSION})
    note = "# harmless\u202e " + "x" * 30_000 + " rm -rf ~"
    plan = {"calls": [{"_tool": "refund", "order": 1, "amount": 5, "note": note}]}
    result = client.ask("tools/call", {"name": "run_plan", "arguments": plan})
    run_id = result["structuredContent"]["run"]
    told = client.ask("tools/call", {"name": "view_run", "arguments": {"run": run_id}})[
        "structuredContent"
    ]
    [approval] = told["approvals"]
    assert approval["choices"] == ["deny"]
    assert len(approval["call"]) < 7000
    view = shown(page, client, host, result)
    question = view.locator("section.question")
    expect(question.locator("pre")).to_contain_text("\\u202e")
    expect(question).to_contain_text("more characters are not shown here")
    expect(question.get_by_role("button")).to_have_count(1)
    question.get_by_role("button", name="Deny").click()
    expect(question).to_contain_text("It waits no longer.")
    client.close()


@npm.needs("@modelcontextprotocol/ext-apps")
def test_in_a_client_with_forms_the_view_does_not_decide(page: Page, url: str, host: str) -> None:
    client = McpClient(url, {"extensions": EXTENSION, "elicitation": {}})
    plan = {"calls": REFUND, "output": "†results.1", "wait_s": 0}
    result = client.ask("tools/call", {"name": "run_plan", "arguments": plan})
    view = shown(page, client, host, result)
    expect(view.locator("section.question")).to_contain_text("You are asked in a form")
    expect(view.get_by_role("button")).to_have_count(0)
    client.close()
