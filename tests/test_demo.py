from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ideabridge.server.demo.assistant import Bar, at_once, draw_bars
from ideabridge.server.demo.demo import (
    PLAN,
    Checks,
    Repository,
    check_answer,
    example,
    find_repository,
)
from ideabridge.server.main import main
from tests import preloaded

EXECUTABLE = Path(sys.executable).parent / "ideabridge"


def git(
    folder: Path, *words: str, when: str = "2026-03-01T23:30:00+00:00", who: str = "Ada"
) -> str:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": who,
        "GIT_AUTHOR_EMAIL": "ada@example.org",
        "GIT_COMMITTER_NAME": "committer",
        "GIT_COMMITTER_EMAIL": "committer@example.org",
        "GIT_AUTHOR_DATE": when,
        "GIT_COMMITTER_DATE": when,
    }
    done = subprocess.run(
        ["git", *words], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def commit(folder: Path, name: str, content: str | bytes, message: str, **told: str) -> None:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message, **told)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with what breaks parsers: odd names, a merge, a rename, bytes, a message that
    looks like a log.
    """
    folder = tmp_path_factory.mktemp("repository") / "with space"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(
        folder,
        "a.txt",
        "one\ntwo\n-- three\n",
        "First",
        who="Zoë O'Neil-Ünal 🦊",
        when="2026-03-01T23:30:00-08:00",
    )
    commit(
        folder,
        "b.bin",
        b"\x00\xff\xfe\n\x00",
        "Bytes\n\nCommit: not one\nAuthor: nobody\n",
        who="Ada: Lovelace",
    )
    git(folder, "checkout", "-q", "-b", "side")
    commit(
        folder,
        "side.txt",
        "side\n",
        "†input.repo",
        who="†state.log",
        when="2026-03-04T10:00:00+05:45",
    )
    git(folder, "checkout", "-q", "main")
    commit(folder, "c.txt", "c" * 30 + "\n", "On main", when="2026-03-05T10:00:00+00:00")
    git(
        folder,
        "merge",
        "-q",
        "--no-ff",
        "-m",
        "Merge side",
        "side",
        when="2026-03-06T10:00:00+00:00",
    )
    (folder / "c.txt").rename(folder / "d.txt")
    commit(folder, "a.txt", "one\n++ two\n", "Rename and remove", when="2026-03-07T01:02:00+02:00")
    return folder


def demo(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_the_demo(repository: Path, tmp_path: Path) -> None:
    interpreter = preloaded.interpreter(tmp_path)
    done = demo(interpreter, EXECUTABLE, "demo", "--repo", repository, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["ok"] is True
    assert all(check["holds"] for check in told["checks"])
    first = told["a"]
    second = told["b"]
    assert first["output"]["commits"] == 6
    assert second["content"]["commits"] == 3
    assert {"name": "Zoë O'Neil-Ünal 🦊", "commits": 1} in first["output"]["authors"]
    assert {"name": "†state.log", "commits": 1} in first["output"]["authors"]
    assert first["output"]["change"] == {**first["output"]["change"], "added": 1, "removed": 2}
    assert len(first["calls"]) == len(PLAN["calls"])
    assert first["at_once"] >= 3
    assert told["tokens"] == 0
    assert first["bytes_of_results"] > 0
    assert told["recorded"]["refused"]


def test_the_demo_on_a_shallow_clone(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", repository.as_uri(), "clone")
    before = git(tmp_path / "clone", "status", "--porcelain=v2", "--branch")
    interpreter = preloaded.interpreter(tmp_path)
    done = demo(interpreter, "-P", "-m", "ideabridge.server", "demo", "--repo", tmp_path / "clone")
    assert done.returncode == 0, done.stderr + done.stdout
    for part in (
        "What ran when",
        "Tokens used by ideabridge: 0",
        "checks passed",
        "cannot be read here",
        "█",
    ):
        assert part in done.stdout

    assert "✗" not in done.stdout
    assert git(tmp_path / "clone", "status", "--porcelain=v2", "--branch") == before


def test_what_the_demo_cannot_look_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    git(tmp_path, "init", "-q", "empty")
    (tmp_path / "plain").mkdir()
    for folder, message in (
        ("nowhere", "is not a folder"),
        ("plain", "not a git repository"),
        ("empty", "no commits yet"),
    ):
        assert main(["demo", "--repo", str(tmp_path / folder)]) == 2
        printed = capsys.readouterr()
        assert message in printed.err
        assert printed.err.count("\n") == 1


def test_a_wrong_answer_is_noticed(repository: Path) -> None:
    checks = Checks()
    found = Repository(repository, 6)
    wrong: Any = {
        "commits": 5,
        "authors": [{"name": "Ada", "commits": 6}],
        "weekdays": {"Monday": 6},
        "newest": "0" * 40,
        "newest_there": "2026-01-01T09:00:00+09:00",
        "change": {"added": 0, "removed": 0},
    }
    check_answer(checks, "somebody", wrong, found, 6, "UTC")
    assert len(checks.wrong) == len(checks.found) == 6


def test_the_default_is_this_project() -> None:
    assert find_repository(None).root == Path(__file__).resolve().parents[1]


# -- the example -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tools() -> ModuleType:
    import importlib.util

    spec = importlib.util.spec_from_file_location("git_history", example("git_history.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["git_history"] = module
    spec.loader.exec_module(module)
    return module


def test_measuring_patches(tools: ModuleType, repository: Path) -> None:
    patch = git(repository, "show", "-M", "HEAD")
    size = tools.measure_patch(patch)
    assert (size.files, size.added, size.removed) == (1, 1, 2)
    assert tools.measure_patch("").files == 0


def test_parsing_logs(tools: ModuleType) -> None:
    from ideabridge.tools.errors import ActivityError

    log = (
        "Commit history:\n"
        f"Commit: {'a' * 40}\nAuthor: X <y>\nDate: 2026-03-01 23:30:00-08:00\n"
        f"Message: one\n\nCommit: {'b' * 40}\nmore\n\n\n"
        f"Commit: {'c' * 40}\nAuthor: \nDate: 2026-03-01 00:00:00+05:45\nMessage: \n"
    )
    first, second = tools.parse_git_log(log)
    assert (first.author, first.subject, first.time) == ("X <y>", "one", "07:30")
    assert (second.author, second.subject, second.time) == ("", "", "18:15")
    with pytest.raises(ActivityError):
        tools.parse_git_log("Commit history:\n")


# -- the timeline ----------------------------------------------------------------------------------


def test_timelines() -> None:
    bars = [Bar("a", 0.0, 1.0), Bar("b", 0.0, 2.0), Bar("late", 1.0, 2.0, failed=True)]
    assert at_once(bars) == [["a", "b"], ["a", "b"], ["b", "late"]]
    lines = draw_bars(bars, width=10)
    assert lines[0] == "a    │█████     │   1000 ms"
    assert lines[1] == "b    │██████████│   2000 ms"
    assert lines[2] == "late │     █████│   1000 ms (failed, caught)"
    assert draw_bars([]) == []
    # With three spaces in front, the demo's own bars fit into 80 columns.
    assert max(map(len, draw_bars([Bar("time.get_current_time", 0.0, 1.0)]))) + 3 <= 80
    assert draw_bars([Bar("x", 1.0, 1.0)], width=4) == ["x │█   │      0 ms"]
