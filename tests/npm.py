"""Programs of npm that some tests drive: `make npm` installs what constraints-npm.txt names.

A machine needs neither node nor npm for the tests: without, these are skipped, and the
marker says why.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / ".node" / "node_modules"
OLDEST_NODE = 20


@cache
def missing(package: str) -> str | None:
    """Why a package cannot be driven here; None: it can."""
    if not (FOLDER / package / "package.json").is_file():
        return f"{package} is not installed: run make npm"

    node = shutil.which("node")
    if node is None:
        return f"{package} needs node, and there is none"

    version = subprocess.run(
        [node, "--version"], check=True, capture_output=True, text=True
    ).stdout.strip()
    if int(version.removeprefix("v").split(".")[0]) < OLDEST_NODE:
        return f"{package} needs node {OLDEST_NODE} or later, and this is {version}"
    return None


def needs(package: str) -> pytest.MarkDecorator:
    """Skips tests, and says why, where a package cannot be driven."""
    reason = missing(package)
    return pytest.mark.skipif(reason is not None, reason=reason or "")


def program(name: str) -> list[str]:
    """The command of a program of an installed package."""
    return ["node", str((FOLDER / ".bin" / name).resolve())]
