"""A module whose variable is not set: every place says which variable it is, and what helps, in
the same words.
"""

from __future__ import annotations

import json
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from ideabridge.server.main import main
from tests import preloaded
from tests.server.serving import BIN, listening
from tests.trusting import write_own, write_trusted
from tests.ui.serving import without_breaks

HELLO = {
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}
PLAN = {"calls": [{"_tool": "create_ticket", "_module": "tickets"}]}
TICKETS = {"command": "cat", "env": {"KEY": "${TICKETS_KEY}", "TOKEN": "${TICKETS_TOKEN}"}}
SERVE = (str(BIN / "ideabridge"), "serve")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, in which neither variable is set."""
    for name in (
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "CLAUDE_CONFIG_DIR",
        "TICKETS_KEY",
        "TICKETS_TOKEN",
    ):
        monkeypatch.delenv(name, raising=False)

    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def over_stdio(*calls: tuple[str, dict[str, Any]]) -> tuple[list[Any], str]:
    """The results of calls to a server in the current folder, and what it wrote to
    standard error.
    """
    with subprocess.Popen(
        preloaded.python(*SERVE),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None

        def ask(message: dict[str, Any]) -> Any:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            server.stdin.flush()
            while "id" in message:
                answer = json.loads(server.stdout.readline())
                if answer.get("id") == message["id"]:
                    return answer["result"]

            return None

        ask(HELLO)
        ask({"method": "notifications/initialized"})
        results: list[Any] = []
        for number, (name, arguments) in enumerate(calls, 2):
            params = {"name": name, "arguments": arguments}
            results.append(ask({"id": number, "method": "tools/call", "params": params}))
        server.stdin.close()
        return results, server.stderr.read()


def everywhere(capsys: pytest.CaptureFixture[str], *words: str) -> None:
    """Every place that says why the module `tickets` is not up contains these words."""
    (search, plan, unknown), log = over_stdio(
        ("search_tools", {"words": "ticket"}),
        ("run_plan", PLAN),
        ("run_plan", {"calls": [{"_tool": "create_ticket"}]}),
    )
    (away,) = search["structuredContent"]["unavailable"]
    said = [
        away["error"],
        search["content"][0]["text"],
        plan["content"][0]["text"],
        unknown["content"][0]["text"],
        log,
    ]
    assert main(["servers", "list"]) == 1
    said.append(capsys.readouterr().err)
    assert main(["doctor"]) == 1
    said.append(" ".join(capsys.readouterr().out.split()))
    with listening(preloaded.python(*SERVE, "--http", "127.0.0.1:0", "--ui")) as url:
        base = url.removesuffix("/mcp")
        with httpx.Client(base_url=base, follow_redirects=True) as http:
            for path in ("/ui/modules/tickets", "/ui/admin"):
                said.append(unescape(without_breaks(http.get(path).text)))

            rows = unescape(without_breaks(http.get("/ui/modules").text))

    for text in said:
        for part in words:
            assert part in text, text
        assert "away for" not in text

    # A row of the list contains only the first part, and the server's page contains the rest.
    first_part, _, _ = words[0].partition(";")
    assert first_part in rows

    # The log says this once, however often it is asked about.
    assert log.count("mcpServers.tickets") == 1


def test_variables_of_the_users_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Servers that a plan does not name must not take the space of the one that it names.
    others = {f"a{number}": TICKETS for number in range(4)}
    write_own({"mcpServers": {**others, "tickets": TICKETS}})
    (plan,), _ = over_stdio(("run_plan", PLAN))
    named = (
        "(mcpServers.tickets.env.KEY, env.TOKEN: the variables TICKETS_KEY "
        "and TICKETS_TOKEN are not"
    )
    assert f"server 'tickets' is down {named}" in plan["content"][0]["text"]
    write_own({"mcpServers": {"tickets": TICKETS}})
    everywhere(
        capsys,
        "mcpServers.tickets.env.KEY, env.TOKEN: the variables TICKETS_KEY and TICKETS_TOKEN are not"
        " set; set them before ideabridge (or your assistant) starts, or give a default:"
        " ${TICKETS_KEY:-...}",
    )


def test_variables_of_a_projects_file_must_also_be_allowed(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_trusted(project, {"mcpServers": {"tickets": TICKETS}})
    monkeypatch.setenv("TICKETS_KEY", "zq-the-key-itself")
    command = f"ideabridge trust --env TICKETS_KEY --env TICKETS_TOKEN {project}"
    everywhere(
        capsys,
        "the variable TICKETS_TOKEN is not set; set it before ideabridge "
        "(or your assistant) starts",
        "the variables TICKETS_KEY and TICKETS_TOKEN are not allowed in"
        f" {file}; to allow them: {command}",
    )
    monkeypatch.chdir(project.parent)
    assert main(command.split()[1:]) == 0
    monkeypatch.chdir(project)
    everywhere(
        capsys,
        "mcpServers.tickets.env.TOKEN: the variable TICKETS_TOKEN is not set; "
        "set it before ideabridge",
    )
    monkeypatch.setenv("TICKETS_TOKEN", "zq-the-token-itself")
    main(["doctor"])
    assert "TICKETS" not in capsys.readouterr().out


def test_at_a_terminal_the_status_is_the_only_line(project: Path) -> None:
    from tests.cli.terminal import Terminal

    write_own({"mcpServers": {"tickets": TICKETS}})
    terminal = Terminal(project, ["serve", "--http", "127.0.0.1:0"], columns=250)
    terminal.read_until("--allow-host")
    terminal.interrupt()
    terminal.end()
    assert terminal.seen.count("the variables TICKETS_KEY and TICKETS_TOKEN are not set") == 1
