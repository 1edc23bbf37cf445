"""A script in a forked process cannot tell the difference, and neither can whoever started it."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests import preloaded

TOLD = """
import json, os, sys
print(json.dumps([sys.argv[1:], os.getcwd(), os.environ["WORD"], sys.stdin.read(), __name__, "mcp" in sys.modules]))
print("and more", file=sys.stderr)
sys.exit(7)
"""
WAITING = """
import os, time
print(os.getpid(), flush=True)
time.sleep(600)
"""


def test_it_has_its_arguments_folder_environment_streams_and_exit_code(tmp_path: Path) -> None:
    script = tmp_path / "told.py"
    script.write_text(TOLD, encoding="utf-8")
    environment = {**os.environ, "WORD": "wörd"}
    command = preloaded.python(script, "a", "†b")
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        input="typed",
        capture_output=True,
        text=True,
        check=False,
    )
    told = f'[["a", "\\u2020b"], "{tmp_path}", "w\\u00f6rd", "typed", "__main__", true]\n'
    assert (done.returncode, done.stdout, done.stderr) == (7, told, "and more\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_by_the_signal_that_its_starter_gets(
    tmp_path: Path, number: signal.Signals
) -> None:
    script = tmp_path / "waiting.py"
    script.write_text(WAITING, encoding="utf-8")
    with subprocess.Popen(preloaded.python(script), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{preloaded.number(process)}\n"
        process.send_signal(number)
        # The script, too, holds the other end of the pipe, so this read returns only once it has
        # ended.
        assert process.stdout.read() == ""
        assert process.wait() == -number


def test_a_process_that_has_ended_has_no_number(tmp_path: Path) -> None:
    script = tmp_path / "ending.py"
    script.write_text("", encoding="utf-8")
    with subprocess.Popen(preloaded.python(script)) as process:
        process.wait()
        with pytest.raises(ProcessLookupError):
            preloaded.number(process)
