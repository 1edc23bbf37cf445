"""Sessions of hosts while the configuration changes: nothing is restarted, neither the host nor
ideabridge.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from tests.npm import needs
from tests.server.serving import listening, plain
from tests.server.test_inspector import INSPECTED, Inspector
from tests.trusting import write_own, write_trusted
from tests.waiting import PAUSE

from ideabridge.bridge.configuration import user_file
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.trust import trust_file

from .endpoint import ScriptedModel, Step
from .hosts import CLAUDE_CODE, HOSTS, Host, claude_code, missing

IDEABRIDGE: Final = Path(sys.executable).parent / "ideabridge"

Offers = Literal["the present ones", "those of its start", "all that it has seen"]
"""Which tools a host offers its model within one session."""

OFFERS: Final[dict[str, Offers]] = {
    "codex": "those of its start",
    "claude": "all that it has seen",
}
"""The hosts that do not offer the present ones."""

LOOKS: Final = 40
"""How often a model looks whether its host has listed the tools again."""

SECONDS: Final = 20.0
"""How long, in seconds, the server may take to notice a change."""


class Followed:
    """The files that a server follows, and its account of their changes.

    Attributes:
        folder: the project folder.
        servers: the servers of the user's own file, by name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: dict[str, Any] = {"one": plain(folder, "one", "first")}
        self._store = folder / "ideas.sqlite"
        write_own(self._own())
        self.project_file = write_trusted(folder, self._project("ours"))

    def _own(self) -> dict[str, Any]:
        return {
            "expose": ["modules"],
            "approval": "allow_all",
            "store": str(self._store),
            "mcpServers": self.servers,
        }

    def _project(self, tool: str) -> dict[str, Any]:
        return {
            "expose": ["modules"],
            "approval": "allow_all",
            "store": str(self._store),
            "mcpServers": {"ours": plain(self.folder, tool, tool)},
        }

    def _noted(self) -> int:
        with Store.open(self._store) as store:
            return len(store.configuration_log.newest(100))

    def _change(self, write: Callable[[], object]) -> None:
        """Change a file, and wait until the server has stored what it makes of the change."""
        before = self._noted()
        write()
        deadline = time.monotonic() + SECONDS
        while self._noted() == before:
            assert time.monotonic() < deadline, "the server did not notice the change"
            time.sleep(PAUSE)

    def set_server(self, name: str, tool: str) -> None:
        """Add a server with one tool to the user's own file, or change it."""
        self.servers[name] = plain(self.folder, f"{name}-{tool}", tool)
        self._change(lambda: write_own(self._own()))

    def remove_server(self, name: str) -> None:
        """Remove a server from the user's own file."""
        del self.servers[name]
        self._change(lambda: write_own(self._own()))

    def break_own(self) -> None:
        """Leave half of the user's own file."""
        half = json.dumps(self._own())[:60]
        self._change(lambda: user_file().write_text(half))

    def misuse_own(self) -> None:
        """Write a file whose rules nobody can understand."""
        odd = json.dumps({**self._own(), "approval": "sometimes"})
        self._change(lambda: user_file().write_text(odd))

    def mend_own(self) -> None:
        """Write the user's own file as it was before it was broken, with another server."""
        self.set_server("three", "mended")

    def change_project(self, tool: str) -> None:
        """Change the project's file, which nobody has trusted in its new form."""
        text = json.dumps(self._project(tool))
        self._change(lambda: self.project_file.write_text(text))

    def trust_project(self) -> None:
        """Trust the project's file as it is now."""
        self._change(lambda: trust_file(self.project_file))


def calling(tool: str, server: str, x: str) -> Step:
    """A plan that calls a tool of a server."""
    call = {"_tool": tool, "_module": server, "x": x, "_outputPath": "answer"}
    return "run_plan", {"calls": [call]}


def session(model: ScriptedModel, files: Followed, offers: Offers) -> Generator[Step, str]:
    answer = yield "search_tools", {"words": "first"}
    assert "one.first" in answer, answer

    files.set_server("two", "second")
    answer = yield calling("second", "two", "added")
    assert "added" in answer, answer
    assert "done" in answer, answer
    if offers != "those of its start":
        yield from _listed_again(model, lambda: model.named("second") is not None)
        answer = yield "second", {"x": "directly"}
        assert "directly" in answer, answer

    files.set_server("two", "third")
    answer = yield calling("third", "two", "changed")
    assert "changed" in answer, answer
    answer = yield calling("second", "two", "of before")
    assert "has no tool 'second'" in answer, answer

    files.break_own()
    answer = yield "search_tools", {"words": "third"}
    assert "cannot be used as it is now" in answer, answer
    assert "ideabridge doctor" in answer, answer
    answer = yield calling("third", "two", "although half")
    assert "although half" in answer, answer
    assert "cannot be used as it is now" in answer, answer

    files.misuse_own()
    answer = yield "search_tools", {"words": "third first"}
    assert "cannot be used as it is now" in answer, answer
    files.mend_own()
    answer = yield calling("mended", "three", "whole again")
    assert "whole again" in answer, answer
    assert "cannot be used" not in answer, answer

    files.change_project("theirs")
    answer = yield "search_tools", {"words": "theirs"}
    assert "has changed since the user trusted it" in answer, answer
    assert "theirs.theirs" not in answer, answer
    answer = yield calling("ours", "ours", "as it was trusted")
    assert "as it was trusted" in answer, answer
    files.trust_project()
    answer = yield calling("theirs", "ours", "as it is trusted")
    assert "as it is trusted" in answer, answer

    files.remove_server("two")
    answer = yield calling("third", "two", "removed")
    assert "unknown" in answer, answer
    if offers == "the present ones":
        yield from _listed_again(model, lambda: model.named("third") is None)
    elif offers == "all that it has seen":
        answer = yield "third", {"x": "directly"}
        assert "directly" not in answer, answer


def _listed_again(model: ScriptedModel, holds: Callable[[], bool]) -> Generator[Step, str]:
    """Ask for something until the tools that the host offers are as wanted. Each time it is
    something else, or hosts take it for a loop.
    """
    for number in range(LOOKS):
        if holds():
            return
        yield "search_tools", {"words": f"first {number}", "limit": 1}

    raise AssertionError(f"the host has not listed the tools again: {sorted(model.offered)}")


def hosts() -> list[Any]:
    every = {**HOSTS, "claude": (CLAUDE_CODE, claude_code)}
    return [
        pytest.param(
            name,
            host,
            marks=pytest.mark.skipif(missing(package) is not None, reason=str(missing(package))),
        )
        for name, (package, host) in every.items()
    ]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Followed:
    """The files of a user with a home folder of nobody's, beside the project folder."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for folder in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.delenv(f"XDG_{folder}_HOME", raising=False)
    return Followed(tmp_path)


@pytest.mark.parametrize(("name", "host"), hosts())
def test_a_session_follows_changes(name: str, host: Host, files: Followed) -> None:
    offers = OFFERS.get(name, "the present ones")
    model = ScriptedModel(lambda model: session(model, files, offers))
    server = [str(IDEABRIDGE), "serve", "--project", str(files.folder)]
    with model.serving() as address:
        host(files.folder, server, address)

    if model.failure is not None:
        raise model.failure
    assert model.finished


@needs("@modelcontextprotocol/inspector")
@pytest.mark.parametrize("era", INSPECTED)
def test_the_inspector_sees_the_changes_of_a_running_server(era: str, files: Followed) -> None:
    server = [str(IDEABRIDGE), "serve", "--project", str(files.folder), "--http", "127.0.0.1:0"]
    with listening(server) as url:
        inspector = Inspector(files.folder, ["--transport", "http", "--server-url", url], era)

        def listed() -> set[str]:
            return {tool["name"] for tool in inspector("tools/list")["tools"]}

        assert {"first", "ours"} <= listed()
        files.set_server("two", "second")
        assert "second" in str(inspector.call("second", x="added"))
        files.set_server("two", "third")
        tools = listed()
        assert {"first", "third"} <= tools
        assert "second" not in tools

        files.break_own()
        assert "cannot be used as it is now" in str(inspector.call("search_tools", words="third"))
        assert "although half" in str(inspector.call("third", x="although half"))
        files.mend_own()

        files.change_project("theirs")
        told = str(inspector.call("search_tools", words="theirs"))
        assert "has changed since the user trusted it" in told
        files.trust_project()
        files.remove_server("two")
        tools = listed()
        assert {"first", "mended", "theirs"} <= tools
        assert not {"third", "ours"} & tools
