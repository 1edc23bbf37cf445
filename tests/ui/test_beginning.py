"""A person who has never seen ideabridge begins on the page: after `ideabridge ui`, nothing needs a
terminal.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Page, expect

from tests import preloaded
from tests.modules.authorized import Authorized, authorized
from tests.ui.serving import served

OWN_SERVER = Path(__file__).parents[1] / "cli" / "own_server.py"


@pytest.fixture
def tickets() -> Generator[Authorized]:
    """A server that wants a sign-in, in a thread of its own."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(authorized()) as server,
    ):
        yield server


@pytest.fixture
def site(tmp_path: Path) -> Generator[str]:
    """The page of somebody who has Cursor, and no configuration of ideabridge."""
    cursor = tmp_path / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    cursor.write_text('{"mcpServers": {}}', encoding="utf-8")
    project = tmp_path / "project"
    project.mkdir()
    with served(tmp_path, "--project", str(project)) as url:
        yield url


class Assistant:
    """An assistant that speaks to the server which the entry in its own file starts."""

    def __init__(self, sent: IO[str], answers: IO[str]) -> None:
        self._sent = sent
        self._answers = answers
        self._id = 0

    def notify(self, method: str) -> None:
        """Send a notification."""
        self._sent.write(json.dumps({"jsonrpc": "2.0", "method": method}) + "\n")
        self._sent.flush()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request, and return its result."""
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self._sent.write(json.dumps(message) + "\n")
        self._sent.flush()
        for line in self._answers:
            answer = json.loads(line)
            if answer.get("id") == self._id and "method" not in answer:
                return answer["result"]
        raise AssertionError("the server ended")


@contextmanager
def assistant(home: Path) -> Generator[Assistant]:
    """Start what Cursor would start."""
    file = home / ".cursor" / "mcp.json"
    entry = json.loads(file.read_text(encoding="utf-8"))["mcpServers"]["ideabridge"]
    environment = {**os.environ, "XDG_CONFIG_HOME": str(home / "config"), "HOME": str(home)}
    with subprocess.Popen(
        preloaded.python(entry["command"], *entry["args"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=home / "project",
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        speaking = Assistant(process.stdin, process.stdout)
        client = {"name": "cursor", "version": "1"}
        speaking.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
        speaking.notify("notifications/initialized")
        yield speaking
        process.terminate()


def connect_an_assistant(page: Page, site: str) -> None:
    page.goto(f"{site}home")
    page.get_by_role("button", name="Connect Cursor").click()
    expect(page.get_by_role("status")).to_contain_text("Cursor is connected")


def add_a_server(page: Page, begin: str, name: str, start: str) -> None:
    page.goto(begin)
    page.get_by_role("link", name="Add a server").click()
    page.get_by_role("link", name="Something else").click()
    page.get_by_label("Name", exact=True).fill(name)
    if start.startswith("http"):
        page.get_by_role("radio", name="On the web").check()
        page.get_by_label("Address", exact=True).fill(start)
    else:
        page.get_by_label("Command", exact=True).fill(start)
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("status")).to_contain_text(f"{name} is added")


def sign_in(page: Page) -> None:
    expect(page.locator("#state")).to_contain_text("needs sign-in")
    page.locator("#state").get_by_role("button", name="Sign in", exact=True).click()
    with page.expect_popup() as popup:
        page.get_by_role("link", name="Sign in on").click()
    expect(popup.value.get_by_text("has received the answer")).to_be_visible()
    expect(page.get_by_role("status")).to_contain_text("You are signed in")
    popup.value.close()


def approve(page: Page, text: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name="Approvals").click()
    card = page.locator("article.asking")
    expect(card).to_contain_text(text)
    card.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("1 call approved.")


def make_a_tool(page: Page, site: str, name: str, title: str) -> None:
    page.goto(f"{site}runs?status=done")
    page.locator("#runs tbody").get_by_role("link").first.click()
    page.get_by_role("link", name="Make it a tool").click()
    page.get_by_label("Name of the tool").fill(name)
    page.get_by_role("button", name="Make the tool").click()
    expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
    expect(page.locator(".page-head .code-name")).to_have_text(name)


def test_from_the_first_page_to_a_tool_that_is_called(
    page: Page, tmp_path: Path, site: str, tickets: Authorized
) -> None:
    connect_an_assistant(page, site)
    add_a_server(page, f"{site}home", "notes", f"{sys.executable} -I {OWN_SERVER}")
    expect(page.locator("#state")).to_contain_text("up")
    add_a_server(page, f"{site}modules", "tickets", tickets.url)
    sign_in(page)

    calls = [
        {"_tool": "read", "_outputPath": "ticket"},
        {"_tool": "save", "text": "†state.ticket"},
    ]
    with assistant(tmp_path) as cursor:
        plan = {"calls": calls, "output": "†state.ticket"}
        answer = cursor.ask("tools/call", name="run_plan", arguments=plan)
        assert "needs_approval" in json.dumps(answer)
        page.goto(f"{site}home")
        expect(page.locator("#waits").get_by_role("link").first).to_be_visible()
        approve(page, "read")
        # The assistant's server made the call, in the folder in which it runs.
        page.goto(f"{site}runs?status=done")
        expect(page.locator("#runs tbody tr")).to_have_count(1)
        assert (tmp_path / "project" / "saved.txt").read_text(encoding="utf-8") == "read"

        make_a_tool(page, site, "save_ticket", "Save ticket")
        page.locator("#call-form").get_by_role("button", name="Run", exact=True).click()
        approve(page, "read")
        page.goto(f"{site}runs?status=done")
        expect(page.locator("#runs tbody tr")).to_have_count(2)

        # The assistant has the tool immediately as well.
        listed = cursor.ask("tools/list")
        assert "save_ticket" in [tool["name"] for tool in listed["tools"]]
