"""Help and completion: what a person reads before a command, and while typing it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.store import Store
from ideabridge.server.cli.app import EXAMPLES, app, called
from ideabridge.server.main import main
from tests.ideas.values import publish, said
from tests.trusting import write_trusted

from .test_start import HEAVY, imported

GROUP: Any = typer.main.get_command(app)


def commands(command: Any = GROUP, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from commands(below, (*path, name))


# -- help ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_help_is_plain_text_that_fits(
    path: tuple[str, ...],
    columns: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[0].startswith(" ".join(["Usage: ideabridge", *path]))
    assert "Examples:" in lines
    assert max(map(len, lines)) <= columns
    # Nothing from the library is visible: no frames, types, colours, or marks of its own.
    for sign in ("╭", "│", "\x1b", "<", "[required]", "[default", "[[", "x<="):
        assert sign not in shown.replace("< plan.json", "")


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_every_example_is_a_command_line_that_is_understood(line: str) -> None:
    words = shlex.split(line.partition(" < ")[0])
    command: Any = GROUP
    while getattr(command, "commands", None):
        command = command.commands[words.pop(0)]
    # This reads the words but runs nothing.
    with command.make_context("it", words):
        pass


def test_only_the_command_that_is_called_is_built() -> None:
    for path in filter(None, commands()):
        built: Any = typer.main.get_command(called(app, [*path, "--json"]))
        whole = GROUP
        for name in path:
            assert list(built.commands) == [name]
            built = built.commands[name]
            whole = whole.commands[name]
        assert [one.opts for one in built.params] == [one.opts for one in whole.params]
        assert list(getattr(built, "commands", {})) == list(getattr(whole, "commands", {}))


@pytest.mark.parametrize("line", ["", "--json runs list", "--help", "rns list"])
def test_without_a_command_first_all_are_built(line: str) -> None:
    assert called(app, line.split()) is app


def test_the_earlier_name_of_servers_answers_and_is_not_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["modules", "list", "--help"]) == 0
    earlier = capsys.readouterr().out
    assert main(["servers", "list", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert set(earlier.replace("modules list", "servers list").splitlines()) <= set(lines)
    assert "Show the state of every configured server" in earlier
    assert main(["--help"]) == 0
    names = [
        line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")
    ]
    assert "servers" in names
    assert "modules" not in names


def test_a_mistake_below_a_command_is_answered_with_the_names_that_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["runs", "lst"]) == 2
    assert "list" in capsys.readouterr().err


# -- completion ------------------------------------------------------------------------------------


@pytest.fixture
def offered(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], list[str]]:
    """What bash is offered after a command line, in a project with modules, runs and ideas."""
    modules = {"git": {"command": "x"}, "github": {"command": "y"}, "time": {"command": "z"}}
    write_trusted(project, {"mcpServers": modules, "store": "s.sqlite"})
    with Store.open(project / "s.sqlite") as store:
        for number in (1, 2):
            store.runs.create(
                f"run_{number}0", kind="plan", caller="me", title="Sums\nof two", fingerprint=""
            )
        idea = Idea([said("sum")], {}, {"calls": [{"_tool": "add"}]})
        publish(
            store,
            "weekly",
            store.ideas.save(idea, IdeaMeta(run="run_10", title="Sums", tags=("kept",))),
        )

    def offer(line: str) -> list[str]:
        words = f"ideabridge {line}"
        monkeypatch.setenv("_IDEABRIDGE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        assert main([]) == 0
        shown = capsys.readouterr()
        assert shown.err == ""
        return shown.out.split()

    return offer


def test_completion_knows_hosts_modules_runs_and_ideas(
    offered: Callable[[str], list[str]], project: Path
) -> None:
    assert offered("install cu") == ["cursor"]
    assert offered("servers test git") == ["git", "github"]
    assert offered("runs show run_") == ["run_20", "run_10"]
    assert offered("resume run_1") == ["run_10"]
    assert offered("ideas call w") == ["weekly"]
    assert offered("ideas pin ") == ["weekly@1"]
    assert offered("ideas list --tool ") == ["add"]
    assert offered("ideas list --tag k") == ["kept"]
    assert offered("ideas show ")[:3] == ["weekly", "run_20", "run_10"]
    assert offered(f"--project {project} runs show run_2") == ["run_20"]
    assert offered(f"runs show --store {project / 's.sqlite'} run_2") == ["run_20"]


def test_completion_offers_nothing_where_something_is_wrong(
    offered: Callable[[str], list[str]], project: Path
) -> None:
    assert offered("runs show --store nowhere.sqlite ") == []
    assert not (project / "nowhere.sqlite").exists()
    assert offered("runs show --store ideabridge.json ") == []
    for content in ("{nope", "[" * 100_000, "[1]", '{"mcpServers": 1, "store": 1}', "\xff"):
        (project / "ideabridge.json").write_bytes(content.encode("latin-1"))
        assert offered("servers test ") == []
        assert offered("runs show ") == []


def test_completion_imports_nothing_heavy(offered: Callable[[str], list[str]]) -> None:
    assert offered("runs show ")
    # The words to complete are now in the environment.
    assert not imported([]) & (HEAVY - {"pydantic"})
