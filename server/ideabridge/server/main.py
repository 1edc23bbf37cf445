"""The command `ideabridge`. `--version` answers before anything is imported that takes time (DESIGN 8)."""

from __future__ import annotations

import os
import sys


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code (`docs/cli.md`).

    Args:
        arguments: the words after `ideabridge`; None: those of the process.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] in (["--version"], ["-V"]):
        from importlib.metadata import version

        print(f"ideabridge {version('ideabridge')}")
        return 0
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # Closed by who started us. It must not become the number of a file that is opened later.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))
    try:
        from ideabridge.server.cli.app import run

        code = run(words)
    except KeyboardInterrupt:
        # While the modules of a command are still being imported.
        return 130
    if arguments is None:
        # The process ends: searching all that was imported for garbage would take up to 0.2 s longer.
        import gc

        gc.freeze()
    return code
