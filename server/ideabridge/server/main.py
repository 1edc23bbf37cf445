"""The `ideabridge` command. It answers `--version` before it imports anything that loads slowly."""

from __future__ import annotations

import gc
import io
import os
import sys

STOPPED = '{"error": {"kind": "Stopped", "message": "stopped by Ctrl-C"}, "exit": 130}'
"""The output of a command with `--json` that was stopped by Ctrl-C."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code (`docs/cli.md`).

    Args:
        arguments: the words after `ideabridge`, or None to use the arguments of this process.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if arguments is None:
        # With Python's own thresholds (700, 10, 10), garbage collections take a sixth of the time
        # of the imports, and free nothing.
        gc.set_threshold(10_000, 10, 10)

    _prepare_streams()
    try:
        code = _run(words)
    except KeyboardInterrupt:
        # Ctrl-C was pressed while a command was importing modules.
        code = 130
        if "--json" in words:
            print(STOPPED)

    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Nobody is reading the output any more. Discard it, because Python would otherwise report
        # an error about this when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    if arguments is None:
        # The process is about to end, so skip the last garbage collection, which is useless and
        # takes up to 0.2 s.
        import signal

        gc.freeze()
        # Without this, Python would report an error if Ctrl-C is pressed again while it is waiting
        # for threads.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    return code


def _run(words: list[str]) -> int:
    if words[:1] in (["--version"], ["-V"]):
        from importlib.metadata import version

        print(f"ideabridge {version('ideabridge')}")
        return 0

    from ideabridge.server.cli.app import run_command_line

    return run_command_line(words)


def _prepare_streams() -> None:
    """Open the standard streams that the parent process has closed.

    Output streams escape characters that their encoding lacks, instead of raising an error.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # Take the descriptor of the closed stream, so that no file that is opened later can get
            # it.
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
