"""`notify`: a command and a webhook say that something waits, once for a burst, without values."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import Bridge, Configuration
from ideabridge.bridge.configuration import (
    ApprovalRules,
    NotifySettings,
    load_configuration,
    load_workspace,
)
from ideabridge.server.asking.forms import Commands
from ideabridge.server.operations import notifying
from ideabridge.server.operations.notifying import Notifying
from ideabridge.tools import Toolbox, tool
from tests.ui.serving import ask, client, served
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

PAGE = "http://127.0.0.1:1/ui"
SECRET_WORDS = "words-of-a-call"


@tool
def refund(note: str) -> str:
    """Pay money back."""
    return note


@dataclass(slots=True)
class Receiver:
    """A webhook: what it received, and how it answers."""

    url: str
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    status: int = 204
    location: str = ""


@contextmanager
def receiver() -> Generator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            webhook.messages.append(json.loads(body))
            self.send_response(webhook.status)
            if webhook.location:
                self.send_header("Location", webhook.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        webhook = Receiver(f"http://127.0.0.1:{server.server_port}/hook/token")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield webhook
        finally:
            server.shutdown()
            thread.join()


def command_that_writes(file: Path) -> tuple[str, ...]:
    """A command that appends its last argument to a file."""
    program = f"import sys; open({str(file)!r}, 'a').write(sys.argv[-1] + '\\n')"
    return (sys.executable, "-c", program)


@asynccontextmanager
async def notified(settings: NotifySettings | None) -> AsyncGenerator[Bridge]:
    """A bridge whose questions are announced, with a tool `refund` that asks."""
    configuration = Configuration(notify=settings, approval=ApprovalRules(default="ask"))
    async with (
        Bridge(configuration, toolbox=Toolbox(refund), store=":memory:") as bridge,
        anyio.create_task_group() as group,
    ):
        group.start_soon(Notifying(bridge, Commands(page=PAGE)).run)
        yield bridge
        group.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "GATHER_SECONDS", 0.2)
    monkeypatch.setattr(notifying, "REST_SECONDS", 0.0)


async def question(bridge: Bridge) -> Any:
    """A run that asks."""
    run = await bridge.run_plan({"calls": [{"_tool": "refund", "note": SECRET_WORDS}]})
    while not run.pending():
        await anyio.lowlevel.checkpoint()
    return run


async def test_a_burst_is_one_message_by_command_and_webhook(tmp_path: Path) -> None:
    file = tmp_path / "messages"
    with receiver() as webhook:
        settings = NotifySettings(command=command_that_writes(file), webhook=webhook.url)
        async with notified(settings) as bridge:
            runs = [await question(bridge) for _ in range(3)]
            await until(lambda: webhook.messages)
            text = f"ideabridge: 3 decisions are pending: {PAGE}/approvals"
            message = {"text": text, "waiting": 3, "link": f"{PAGE}/approvals"}
            assert webhook.messages == [message]
            assert file.read_text() == f"{text}\n"

            # A later question makes another message, which counts everything that is waiting.
            runs[0].decide(runs[0].pending()[0].approval, "deny", by="test")
            await question(bridge)
            await until(lambda: len(webhook.messages) == 2)
            assert webhook.messages[1]["waiting"] == 3
            assert SECRET_WORDS not in f"{webhook.messages}{file.read_text()}"
            assert webhook.url not in bridge.secrets.mask(f"see {webhook.url}")


async def test_what_is_answered_at_once_makes_no_message() -> None:
    with receiver() as webhook:
        async with notified(NotifySettings(webhook=webhook.url)) as bridge:
            run = await question(bridge)
            run.decide(run.pending()[0].approval, "approve", by="test")
            await run.wait()
            later = await question(bridge)
            await until(lambda: webhook.messages)
            assert [message["waiting"] for message in webhook.messages] == [1]
            assert later.pending()


async def test_failures_are_logged_and_block_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    with receiver() as elsewhere, receiver() as webhook:
        webhook.status = 307
        webhook.location = elsewhere.url
        settings = NotifySettings(command=("/no/such/program",), webhook=webhook.url)
        async with notified(settings) as bridge:
            run = await question(bridge)
            await until(lambda: "responded with status 307" in caplog.text)
            assert "/no/such/program cannot be started" in caplog.text
            # The address of a webhook is a secret, and only its host was allowed.
            assert "/hook/token" not in caplog.text.replace("HTTP Request", "")
            assert elsewhere.messages == []
            run.decide(run.pending()[0].approval, "approve", by="test")
            assert await run.wait() == "done"


async def test_a_command_that_fails_or_hangs_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifying, "COMMAND_SECONDS", 0.5)
    ends = ("import sys; sys.exit(3)", "ended with code 3")
    hangs = ("import threading; threading.Event().wait()", "did not end")
    for program, text in (ends, hangs):
        settings = NotifySettings(command=(sys.executable, "-c", program))
        async with notified(settings) as bridge:
            await question(bridge)
            await until(lambda text=text: text in caplog.text)


def test_a_server_says_that_something_waits(tmp_path: Path) -> None:
    file = tmp_path / "messages"
    own = tmp_path / "config" / "ideabridge" / "ideabridge.json"
    own.parent.mkdir(parents=True)
    own.write_text(json.dumps({"notify": {"command": command_that_writes(file)}}))
    with served(tmp_path) as url, client(url) as http:
        ask(http, {"_tool": "refund", "order": 1, "amount": 5, "note": SECRET_WORDS})
        while not file.exists() or not file.read_text().endswith("\n"):
            threading.Event().wait(0.05)
        assert file.read_text() == f"ideabridge: 1 decision is pending: {url}approvals\n"


def _trust(*_: object) -> bool:
    return True


# -- the configuration -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("notify", "problem"),
    [
        ({"webhook": "http://example.com/x"}, "expected https://"),
        ({"webhook": "https://user:word@example.com/x"}, "expected an address such as"),
        ({"webhook": "file:///etc/passwd"}, "expected an address such as"),
        ({"command": [""]}, "expected the name of a program as the first word"),
        ({"command": ["a\0b"]}, "expected words without NUL characters"),
    ],
)
def test_odd_settings_are_not_used(tmp_path: Path, notify: Any, problem: str) -> None:
    file = tmp_path / "ideabridge.json"
    file.write_text(json.dumps({"notify": notify}))
    configuration = load_configuration(file)
    assert configuration.notify is None
    assert problem in "\n".join(configuration.warnings)


@pytest.mark.parametrize("host", ["hooks.example.com", "other.example.com"])
def test_a_project_names_no_command_and_only_listed_hosts(
    tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / "config" / "ideabridge" / "ideabridge.json"
    own.parent.mkdir(parents=True)
    own.write_text(json.dumps({"notify": {"command": ["say"], "hosts": ["hooks.example.com"]}}))
    project = tmp_path / "project"
    project.mkdir()
    file = project / "ideabridge.json"
    evil = {"command": ["evil"], "hosts": [host], "webhook": f"https://{host}/x"}
    file.write_text(json.dumps({"notify": evil}))
    configuration = load_workspace(file, project=project, ask=_trust)
    assert configuration.notify is not None
    assert configuration.notify.command == ("say",)
    assert configuration.notify.hosts == ("hooks.example.com",)
    refused = "\n".join(line for layer in configuration.layers for line in layer.refused)
    assert "notify.command is not used" in refused
    assert "notify.hosts is not used" in refused
    if host == "hooks.example.com":
        assert configuration.notify.webhook == f"https://{host}/x"
    else:
        assert configuration.notify.webhook is None
        assert "other.example.com is not in notify.hosts" in refused
