"""What each target of the Makefile installs, in a folder where Python only notes what
pip is to install.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

NOTING = """#!/bin/sh
# Stands for Python, for pip, and for what pip installs.
case "$*" in
  "-m venv "*)
    for folder; do :; done
    rm -rf "$folder"
    mkdir -p "$folder/bin"
    for name in python ideabridge ruff zensical; do
      cp "$0" "$folder/bin/$name"
    done;;
  "-m pip install "*)
    echo "$0 $*" >>pip.txt
    if test -e conflict; then
      echo "The conflict is caused by: pymdown-extensions==13.1"
      exit 1
    fi
    if test -e interrupted; then
      . ./interrupted
      exit 1
    fi;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "python").write_text(NOTING, encoding="utf-8")
    (tmp_path / "python").chmod(0o755)
    for name in ("pyproject.toml", "constraints.txt", "constraints-docs.txt"):
        (tmp_path / name).touch()
    return tmp_path


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # The tests may themselves run under make.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "-f", str(ROOT / "Makefile"), f"PYTHON={folder / 'python'}", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def installed(folder: Path, *words: str) -> list[str]:
    """What a command of make gives pip to install: the extras of ideabridge, or the
    names of packages.
    """
    notes = folder / "pip.txt"
    notes.unlink(missing_ok=True)
    done = make(folder, *words)
    assert done.returncode == 0, done.stderr
    if notes.exists():
        lines = notes.read_text(encoding="utf-8").splitlines()
    else:
        lines = []

    return [re.sub(r".* -c constraints\S*\.txt (-e )?", "", line) for line in lines]


def test_a_target_installs_what_it_needs_and_nothing_twice(folder: Path) -> None:
    assert installed(folder, "demo") == [".[demo]"]
    assert installed(folder, "demo") == []
    assert installed(folder, "lint") == [".[postgres]", ".[dev]"]
    assert installed(folder, "lint", "demo") == []
    assert installed(folder, "docs") == ["zensical"]
    assert installed(folder, "docs") == []


def test_the_order_of_targets_makes_no_difference(folder: Path) -> None:
    assert installed(folder, "lint") == [".[demo]", ".[postgres]", ".[dev]"]
    assert installed(folder, "demo") == []


def test_targets_at_once_install_one_after_the_other(folder: Path) -> None:
    everything = installed(folder, "-j", "lint", "demo", "docs", "format")
    assert sorted(everything) == [".[demo]", ".[dev]", ".[postgres]", "zensical"]
    assert [name for name in everything if name != "zensical"] == [
        ".[demo]",
        ".[postgres]",
        ".[dev]",
    ]


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_changed_versions_are_installed_by_the_targets_that_need_them(
    folder: Path, changed: str
) -> None:
    installed(folder, "lint")
    hour_ago = time.time() - 3600
    for path in [*folder.iterdir(), *(folder / ".venv").iterdir()]:
        os.utime(path, (hour_ago, hour_ago))

    (folder / changed).touch()
    assert installed(folder, "demo") == [".[demo]"]
    assert installed(folder, "lint") == [".[postgres]", ".[dev]"]
    assert installed(folder, "demo") == []


def test_an_installation_that_failed_says_why_and_keeps_what_was_there(folder: Path) -> None:
    installed(folder, "demo")
    left = folder / ".venv" / "left"
    left.touch()
    (folder / "conflict").touch()
    failed = make(folder, "lint")
    assert failed.returncode == 2
    assert "The conflict is caused by: pymdown-extensions==13.1" in failed.stderr
    # Without a network, every attempt fails, and what was installed still works.
    assert make(folder, "lint").returncode == 2
    assert installed(folder, "demo") == []
    (folder / "conflict").unlink()
    assert installed(folder, "lint") == [".[postgres]", ".[dev]"]
    assert left.exists()


@pytest.mark.parametrize("signal", ["kill -9 $PPID", "kill -INT $PPID", "kill -9 $$"])
def test_an_interrupted_installation_starts_from_the_beginning(folder: Path, signal: str) -> None:
    installed(folder, "demo")
    left = folder / ".venv" / "left"
    left.touch()
    (folder / "interrupted").write_text(signal, encoding="utf-8")
    assert make(folder, "lint").returncode == 2
    (folder / "interrupted").unlink()
    assert installed(folder, "demo") == [".[demo]"]
    assert not left.exists()
    assert installed(folder, "lint") == [".[postgres]", ".[dev]"]
