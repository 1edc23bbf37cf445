from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from ideabridge.server.main import main

from .conftest import Run

HEAVY = {"mcp", "pydantic", "httpx", "starlette", "jsonschema", "sqlite_utils", "anyio"}


def imported(words: list[str]) -> set[str]:
    """The top modules a fresh interpreter has imported after running the command line."""
    code = (
        "import sys\n"
        "from ideabridge.server.main import main\n"
        f"try:\n    main({words!r})\n"
        "except SystemExit:\n    pass\n"
        "sys.stderr.write(' '.join(sorted({name.split('.')[0] for name in sys.modules})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stderr.split())


def test_version_imports_nothing_heavy() -> None:
    found = imported(["--version"])
    assert not found & (HEAVY | {"typer", "rich"})


def test_help_imports_nothing_heavy() -> None:
    assert not imported(["--help"]) & HEAVY


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--help"],
        ["ideas"],
        ["ideas", "publish", "-h"],
        ["servers", "import", "-h"],
        ["serve", "-h"],
    ],
)
def test_help_of_commands_imports_nothing_heavy(words: list[str]) -> None:
    # Typer itself uses pydantic to read parameters.
    assert not imported(words) & (HEAVY - {"pydantic"})


def test_imports_are_hardly_interrupted_by_garbage_collections() -> None:
    code = (
        "import gc, sys\n"
        "collections = []\n"
        "gc.callbacks.append(lambda phase, info: collections.append(phase))\n"
        "from ideabridge.server.main import main\n"
        "sys.argv[1:] = ['ideas', 'list', '--store', 'nowhere.sqlite']\n"
        "main()\n"
        "sys.stdout.write(str(collections.count('start')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    # With Python's own thresholds there are more than a hundred.
    assert int(done.stdout) < 30


def test_version(ideabridge: Run) -> None:
    for option in ("--version", "-V"):
        done = ideabridge(option)
        assert (done.returncode, done.stdout, done.stderr) == (
            0,
            f"ideabridge {version('ideabridge')}\n",
            "",
        )


def test_module_runs_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ideabridge.server", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == f"ideabridge {version('ideabridge')}\n"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    bare = capsys.readouterr().out
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    for command in ("serve", "run", "ideas", "servers", "tools", "install", "demo"):
        assert command in told
        assert command in bare


def test_usage_errors_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["runn"],
        ["run"],
        ["run", "x.json", "--nope"],
        ["ideas", "publis"],
        ["install"],
        ["serve", "1:2"],
    ):
        assert main(words) == 2, words
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith("ideabridge: ")
        assert told.err.count("\n") == 1


def test_usage_errors_suggest(capsys: pytest.CaptureFixture[str]) -> None:
    main(["ideas", "publis"])
    assert "publish" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["nowhere:x", "127.0.0.1:70000", "::1:80"])
def test_bad_addresses(text: str, project: object, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["serve", "--http", text], ["serve", f"--http={text}"]):
        assert main(words) == 2
        assert capsys.readouterr().err.startswith("ideabridge: --http: ")


def test_the_world_needs_a_token(project: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--http", "0.0.0.0:0"]) == 2
    printed = capsys.readouterr()
    assert "IDEABRIDGE_TOKEN" in printed.err
    assert printed.err.count("\n") == 1


def test_addresses() -> None:
    from ideabridge.server.cli.serve import read_host_and_port

    assert read_host_and_port("8000") == ("127.0.0.1", 8000)
    assert read_host_and_port(":8000") == ("127.0.0.1", 8000)
    assert read_host_and_port("[::1]:0") == ("::1", 0)
    assert read_host_and_port("localhost") == ("localhost", 8787)
    assert read_host_and_port("0.0.0.0:1") == ("0.0.0.0", 1)


def test_no_colours_in_pipes(ideabridge: Run, project: Path) -> None:
    done = ideabridge("run", "missing.json")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr + done.stdout
    reason = "cannot be read: No such file or directory"
    assert done.stderr == f"ideabridge: PLAN.json: {project}/missing.json {reason}\n"


def test_shell_completion(ideabridge: Run) -> None:
    # Name the shell instead of letting it be guessed from the parent processes, because there may
    # be none on a build machine.
    script = ideabridge(env={"_IDEABRIDGE_COMPLETE": "source_bash"})
    words = ideabridge(
        env={
            "_IDEABRIDGE_COMPLETE": "complete_bash",
            "COMP_WORDS": "ideabridge ideas pub",
            "COMP_CWORD": "2",
        }
    )
    assert words.stdout.split() == ["publish"]
    assert script.returncode == 0
    assert "_ideabridge_completion" in script.stdout
