"""A server over HTTP is never more open than the author of a file wanted that is not used."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge.store.store import Store
from tests import preloaded
from tests.cli.conftest import EXECUTABLE
from tests.server.serving import listening
from tests.trusting import write_own, write_trusted

AUTH: dict[str, Any] = {"issuer": "https://login.example", "audience": "https://tools.example/mcp"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, and a home folder of nobody's."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def command(project: Path, *words: str) -> list[str]:
    return preloaded.python(EXECUTABLE, *words, "--project", str(project))


SERVE = ("serve", "--http", "127.0.0.1:0")


def refusal(project: Path, *words: str) -> str:
    """What a server says that does not start."""
    ended = subprocess.run(
        command(project, *words), cwd=project, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode not in (0, None)
    assert "serving on" not in ended.stderr
    return " ".join(ended.stderr.split())


@pytest.mark.parametrize("words", [SERVE, ("ui", "127.0.0.1:0", "--no-browser")])
@pytest.mark.parametrize("trusted", [False, True])
def test_auth_of_a_project_file_is_not_passed_over(
    words: tuple[str, ...], project: Path, *, trusted: bool
) -> None:
    if trusted:
        write_trusted(project, {"auth": AUTH})
    else:
        (project / "ideabridge.json").write_text(json.dumps({"auth": AUTH}))

    said = refusal(project, *words)
    assert f"{project / 'ideabridge.json'}: a project file cannot set auth" in said
    assert "or remove it" in said
    # If nobody connects over HTTP, it does not matter.
    subprocess.run(
        command(project, "serve"),
        cwd=project,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=60,
    )


def test_with_ones_own_auth_that_of_a_project_does_not_matter(project: Path) -> None:
    write_own({"auth": AUTH})
    (project / "ideabridge.json").write_text(
        json.dumps({"auth": {**AUTH, "issuer": "https://other.example"}})
    )
    ended = subprocess.Popen(
        command(project, *SERVE), cwd=project, stderr=subprocess.PIPE, text=True
    )
    with ended as process:
        assert process.stderr is not None
        lines = [process.stderr.readline()]
        while lines[-1] and "serving on" not in lines[-1]:
            lines.append(process.stderr.readline())

        process.terminate()

    assert "serving on" in lines[-1]


def test_a_server_that_has_lost_the_store_with_its_users_does_not_start(project: Path) -> None:
    file = write_trusted(project, {"store": "ideas.sqlite"})
    with Store.open(project / "ideas.sqlite") as store:
        store.users.add("ann")

    with listening(command(project, *SERVE)) as url:
        assert url

    file.write_text(json.dumps({"store": "ideas.sqlite", "order": "none"}))
    said = refusal(project, *SERVE)
    assert "changed since it was trusted" in said
    assert "Trust the file again, or name the store with --store" in said
    # Now the server knows the store, which has users.
    named = subprocess.Popen(
        command(project, *SERVE, "--store", str(project / "ideas.sqlite")),
        cwd=project,
        stderr=subprocess.PIPE,
        text=True,
    )
    with named as process:
        assert process.stderr is not None
        lines = [process.stderr.readline()]
        while lines[-1] and "serving on" not in lines[-1]:
            lines.append(process.stderr.readline())

        process.terminate()

    assert "serving on" in lines[-1]
