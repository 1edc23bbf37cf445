"""`ideabridge setup` in a process that is killed when it has replaced some files.

Usage: killed_setup.py COUNT [OPTION]... It ends with exit code 0 if it replaces fewer files.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from ideabridge.server.main import main

left = int(sys.argv[1])
replace = Path.replace


def replace_or_die(path: Path, target: str | os.PathLike[str]) -> Path:
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return replace(path, target)


setattr(Path, "replace", replace_or_die)  # noqa: B010 - types do not allow the assignment
sys.exit(main(["setup", *sys.argv[2:]]))
