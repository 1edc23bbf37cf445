from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests import preloaded

EXECUTABLE = Path(sys.executable).parent / "ideabridge"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


SYSTEMCTL = """\
#!/bin/sh
echo "$*" >> "$SYSTEMCTL_LOG"
case "$2" in
  is-active) [ -e "$SYSTEMCTL_LOG.running" ];;
  is-failed) exit 1;;
  restart) touch "$SYSTEMCTL_LOG.running";;
  stop|disable) rm -f "$SYSTEMCTL_LOG.running";;
  show-environment) exit "${NO_SESSION:-0}";;
esac
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of nobody's: no test reads or writes the real one."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in (
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "CLAUDE_CONFIG_DIR",
        "APPDATA",
        "IDEABRIDGE_TOKEN",
    ):
        monkeypatch.delenv(name, raising=False)

    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    return folder


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project folder, which is the current one."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def ideabridge(project: Path) -> Run:
    """Runs the installed command in the project folder, as a process of its own."""

    def run(
        *words: str, typed: str | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            preloaded.python(EXECUTABLE, *words),
            cwd=project,
            env={**os.environ, **(env or {})},
            input=typed,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The commands that a `systemctl` of the test was started with."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "systemctl"
    program.write_text(SYSTEMCTL)
    program.chmod(0o755)
    log = tmp_path / "systemctl.log"
    log.touch()
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("SYSTEMCTL_LOG", str(log))
    return lambda: log.read_text().splitlines()
