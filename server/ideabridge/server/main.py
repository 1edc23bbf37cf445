"""The command `ideabridge`. `--version` is answered before any slow import."""

from __future__ import annotations

import os
import sys


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code (`docs/cli.md`).

    Args:
        arguments: the words after `ideabridge`, or None to use those of the process.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] in (["--version"], ["-V"]):
        from importlib.metadata import version

        print(f"ideabridge {version('ideabridge')}")
        return 0

    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # The parent process closed this stream. A file that is opened later must not get its
            # descriptor.
            setattr(
                sys,
                name,
                os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"),
            )

    try:
        from ideabridge.server.cli.app import run_command_line

        code = run_command_line(words)
    except KeyboardInterrupt:
        # The user pressed Ctrl-C while a command imported modules.
        return 130

    if arguments is None:
        # The process is about to end, and a last garbage collection would only take up to 0.2 s.
        import gc

        gc.freeze()

    return code
