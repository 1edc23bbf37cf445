"""Commands on dirty input: stores that are none, encodings, closed pipes, odd files, Ctrl-C."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from ideabridge.server.cli.app import app
from ideabridge.server.main import main
from tests import preloaded

from .conftest import EXECUTABLE

GREETING = "Grüße ✓ → {name} 日本"
PLAN = {
    "calls": [
        {
            "_tool": "template",
            "text": GREETING,
            "values": {"name": "†input.name"},
            "_outputPath": "text",
        }
    ],
    "input": {"name": "Ada"},
    "output": "†state.text",
}

ALSO = {
    "demo": ["--repo", "nowhere"],
    "ideas prune": ["--older-than", "90d"],
    "history import": ["--yes"],
    "ideas add": ["--yes"],
}
"""What a command needs besides its arguments."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command in this process printed, and its exit code."""

    code: int
    out: str
    err: str

    def answer(self) -> dict[str, Any]:
        """The one object on standard output."""
        assert self.out.count("\n") == 1, self
        answer: dict[str, Any] = json.loads(self.out)
        assert type(answer) is dict, self
        return answer

    def expect_clear(self) -> None:
        """Check that the command did not stop at a defect, and that it says what is wrong."""
        assert self.code in (0, 1, 2, 3, 4), self
        assert "Traceback" not in self.err
        assert "internal error" not in self.err
        assert self.code in (0, 1) or self.err.startswith(("ideabridge: ", "mind: ")), self


class ClosedPipe(io.RawIOBase):
    """A pipe whose reader has gone."""

    def writable(self) -> bool:
        return True

    def write(self, _data: object) -> int:
        raise BrokenPipeError


def called(
    *words: str, encoding: str = "utf-8", stdin: bytes = b"", out: io.RawIOBase | None = None
) -> Ended:
    """Run a command in this process, with standard streams of its own."""
    raw_out = io.BytesIO()
    raw_err = io.BytesIO()
    stdout = io.TextIOWrapper(io.BufferedWriter(out) if out else raw_out, encoding=encoding)
    stderr = io.TextIOWrapper(raw_err, encoding=encoding, errors="backslashreplace")
    descriptors = [os.dup(number) for number in (1, 2)]
    hook = sys.excepthook
    try:
        with (
            contextlib.redirect_stdout(stdout),
            contextlib.redirect_stderr(stderr),
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding=encoding))
            code = main([*words])
            with contextlib.suppress(BrokenPipeError):
                stdout.flush()
            stderr.flush()
    finally:
        sys.excepthook = hook
        # When nobody reads its output, a command replaces the descriptor with the null device, so
        # restore it.
        for number, descriptor in zip((1, 2), descriptors, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        if out is not None:
            with contextlib.suppress(BrokenPipeError):
                stdout.detach().close()

    # Decode standard output with the expected encoding, because `ideas export` always writes UTF-8.
    return Ended(
        code,
        raw_out.getvalue().decode(encoding, "replace"),
        raw_err.getvalue().decode(encoding, "replace"),
    )


def command_lines() -> Iterator[tuple[list[str], set[str]]]:
    """The words of every command that has `--json`, with an argument where one is required, and
    the names of its options.
    """

    def walk(group: TyperGroup, path: list[str]) -> Iterator[tuple[list[str], set[str]]]:
        for name, entry in group.commands.items():
            words = [*path, name]
            if isinstance(entry, TyperGroup):
                if not entry.hidden:
                    yield from walk(entry, words)
                continue
            options = {option for parameter in entry.params for option in parameter.opts}
            needed = [
                "x"
                for parameter in entry.params
                if parameter.param_type_name == "argument" and parameter.required
            ]
            if "--json" in options:
                yield [*words, *needed, *ALSO.get(" ".join(words), [])], options

    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    yield from walk(group, [])


@pytest.fixture
def here(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose store has a run and two versions of a published tool."""
    monkeypatch.delenv("IDEABRIDGE_TRACEBACK", raising=False)
    (project / "plan.json").write_text(json.dumps(PLAN))
    assert called("run", "plan.json", "--save-as", "greet").code == 0
    for description in ("Sagt Grüße → ✓ 日本", "Sagt Grüße → ✓ 日本 neu"):
        assert called("ideas", "publish", "last", "greet", "--description", description).code == 0
    return project


# -- one object, whatever fails --------------------------------------------------------------------


def test_every_command_answers_a_mistake_with_one_object(here: Path) -> None:
    lines = list(command_lines())
    assert len(lines) > 50
    for words, _ in lines:
        ended = called(*words, "--json", "--nope")
        assert ended.code == 2, (words, ended)
        assert ended.answer()["exit"] == 2, words
        assert "--nope" in ended.answer()["error"]["message"]
        assert ended.err.count("\n") == 1, (words, ended)


EXPECTED = "expected the path of a file, or postgresql://USER@HOST/DATABASE"
NO_STORES = {
    ":memory:": (2, f"--store: :memory: would lose everything when the command ends; {EXPECTED}"),
    "mysql://ada:hidden@db/ideas": (
        2,
        f"--store: mysql:// is not a supported kind of store; {EXPECTED}",
    ),
    "sqlite:///ideas.sqlite": (
        2,
        f"--store: sqlite:// is not a supported kind of store; {EXPECTED}",
    ),
    "": (2, "--store is empty; expected the path of a file"),
    "x" * 300: (3, f"{{here}}/{'x' * 300}: the file cannot be opened: File name too long"),
    ".": (3, "{here}: the store cannot be opened: expected a file, found a folder"),
    "plan.json/a.sqlite": (
        3,
        "{here}/plan.json/a.sqlite: the file cannot be opened: Not a directory",
    ),
}
"""Texts that name no store: the exit code, and why."""


def test_every_command_says_why_a_store_is_none(here: Path) -> None:
    number = 0
    for store in (":memory:", "x" * 300):
        code, reason = NO_STORES[store]
        for words, options in command_lines():
            if "--store" not in options:
                continue
            ended = called(*words, "--json", "--store", store)
            ended.expect_clear()
            answer = ended.answer()
            if answer.get("error", {}).get("message") == reason.format(here=here):
                assert ended.code == code
                assert ended.err.count("\n") == 1, (words, ended)
                number += 1

    # Some commands fail earlier because of an argument.
    assert number > 40


@pytest.mark.parametrize("store", NO_STORES)
def test_what_is_no_store_is_named_without_its_secrets(project: Path, store: str) -> None:
    (project / "plan.json").write_text(json.dumps(PLAN))
    code, text = NO_STORES[store]
    reason = text.format(here=project)
    for words in (["runs", "list"], ["run", "plan.json"], ["approvals", "rules"]):
        ended = called(*words, "--store", store)
        assert (ended.code, ended.err) == (code, f"ideabridge: {reason}\n"), words

    ended = called("doctor", "--json", "--store", store)
    assert ended.code == 1
    assert reason in [found["text"] for found in ended.answer()["findings"]]


def test_commands_that_succeed_or_fail_print_one_object(here: Path) -> None:
    for words, _ in command_lines():
        ended = called(*words, "--json")
        ended.expect_clear()
        ended.answer()


def test_a_store_that_cannot_be_written_is_told_by_every_command(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [file] = Path(os.environ["HOME"]).rglob("ideas.sqlite")
    file.chmod(0o400)
    file.parent.chmod(0o500)
    access = os.access

    def refused(path: Any, mode: int, **more: Any) -> bool:
        # File permissions do not apply to root, so simulate them.
        is_inside = str(path).startswith(str(file.parent))
        return not (is_inside and mode & os.W_OK) and access(path, mode, **more)

    monkeypatch.setattr(os, "access", refused)
    reason = f"{file}: the file or its folder cannot be written to"
    for words in (
        ["runs", "list"],
        ["ideas", "list"],
        ["run", "plan.json"],
        ["users", "list"],
        ["approvals", "rules"],
        ["store", "vacuum"],
    ):
        ended = called(*words)
        assert (ended.code, ended.err) == (3, f"ideabridge: {reason}\n"), words

    new = file.with_name("new") / "ideas.sqlite"
    for words, text in (
        ([], reason),
        (["--store", str(new)], f"{new} does not exist yet, and {file.parent} cannot be written"),
    ):
        ended = called("doctor", "--json", *words)
        assert ended.code == 1
        wrong = [found for found in ended.answer()["findings"] if found["state"] == "wrong"]
        assert [found["text"] for found in wrong] == [text]
    file.parent.chmod(0o700)


# -- the programs of clients -----------------------------------------------------------------------


def test_doctor_looks_for_the_programs_that_clients_start(project: Path, home: Path) -> None:
    servers = {
        "ideabridge": {"command": "/nowhere/ideabridge", "args": ["serve"]},
        "gone": {"command": "no-such-program", "args": ["--token", "hidden"]},
        "there": {"command": sys.executable},
        "remote": {"type": "http", "url": "https://tickets.example/mcp"},
        "placed": {"command": "${HOME}/bin/server"},
    }
    file = project / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    ended = called("doctor", "--json")
    assert ended.code == 1
    findings = ended.answer()["findings"]
    found = [(one["topic"], one["state"], one["text"]) for one in findings]
    told = f"{file} starts ideabridge with /nowhere/ideabridge, which does not exist, is not "
    told += "executable, or is not on this PATH"
    assert ("client claude-code", "wrong", told) in found
    warned = f"1 server of its own cannot start: gone ({file})"
    assert ("client claude-code", "warning", warned) in found
    assert ("clients", "ok", f"not checked: remote ({file}), placed ({file})") in found
    assert "hidden" not in ended.out


# -- encodings and pipes ---------------------------------------------------------------------------

PRINTING = [
    ["--help"],
    ["--version"],
    ["doctor"],
    ["run", "plan.json"],
    ["run", "plan.json", "--dry-run"],
    ["run", "plan.json", "--draw", "text"],
    ["runs", "list"],
    ["runs", "show", "last"],
    ["runs", "direct"],
    ["approvals", "list"],
    ["ideas", "list"],
    ["ideas", "search", "Grüße"],
    ["ideas", "show", "greet"],
    ["ideas", "lift", "last"],
    ["ideas", "call", "greet", "-i", "name=Ö"],
    ["ideas", "history", "greet"],
    ["ideas", "diff", "greet@1", "greet@2"],
    ["ideas", "verify"],
    ["ideas", "export", "greet"],
    ["store", "query", "select * from idea_list"],
    ["servers", "list"],
    ["servers", "import", "claude-code"],
    ["install", "claude-code"],
    ["tools", "list", "--schemas"],
    ["users", "list"],
    ["secrets", "list"],
]
"""Commands that print something of the store of `here`, of its plan, or of this installation."""


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_what_an_encoding_lacks_is_escaped(here: Path, encoding: str) -> None:
    for words in PRINTING:
        ended = called(*words, encoding=encoding)
        assert ended.code in (0, 1), (words, ended)
        assert "internal error" not in ended.err

    ended = called("run", "plan.json", encoding=encoding)
    assert "\\u2713 \\u2192 Ada \\u65e5\\u672c" in ended.out
    assert f"standard output has the encoding {encoding}" in ended.err
    shown = called("run", "plan.json", "--json", encoding=encoding).answer()
    assert shown["output"] == GREETING.format(name="Ada")


def test_a_reader_that_has_gone_is_no_error(here: Path) -> None:
    for words in PRINTING:
        usual = called(*words)
        ended = called(*words, out=ClosedPipe())
        assert ended.code in (0, usual.code), (words, ended)
        assert "rror" not in ended.err, (words, ended)

    # The exit code of the failure is not changed.
    assert called("run", "gone.json", "--json", out=ClosedPipe()).code == 2


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("plan.json", b'// a plan\n{"calls": [], /* none */ "output": 1,}'),
        ("plan.jsonc", b'{"calls": [], "output": 1}'),
        ("plan.json", b'\xef\xbb\xbf{"calls": [], "output": 1}'),
        ("plan.json", b'{\r\n  "calls": [],\r\n  "output": 1\r\n}\r\n'),
        ("plan.json", '{"calls": [], "output": 1}'.encode("utf-16")),
        ("plan.json", '{"calls": [], "output": 1}'.encode("utf-16-le")),
        ("plan.json", '{"calls": [], "output": 1}'.encode("utf-32")),
        ("plan.yaml", b"calls: []\r\noutput: 1\r\n"),
        ("plan.yaml", "calls: []\noutput: 1\n".encode("utf-16")),
        ("plan.py", b"\xef\xbb\xbfone = 1\r\none\r\n"),
        ("plan.py", "one = 1\none\n".encode("utf-16")),
    ],
)
def test_plans_are_read_as_programs_of_any_system_write_them(
    project: Path, name: str, data: bytes
) -> None:
    (project / name).write_bytes(data)
    ended = called("run", name)
    assert (ended.code, ended.out) == (0, "1\n"), ended
    if not name.endswith(".py"):
        ended = called("run", "-", stdin=data)
        assert (ended.code, ended.out) == (0, "1\n"), ended


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "PLAN.json: {file} is empty"),
        (b" \r\n", "PLAN.json: {file} is empty"),
        (b'{"calls": [], "output": "\xfc"}', "PLAN.json: {file} is not UTF-8 (byte 25)"),
        (b'{"calls": [}', "PLAN.json: {file} is not JSON: "),
        (b'{"calls": {}}', "the plan: calls: expected an array of calls, found {{}}"),
        (b'"calls"', 'the plan: expected {{"calls": [...]}}, found str'),
        (None, "PLAN.json: {file} cannot be read: Is a directory"),
    ],
)
def test_plans_that_are_none_are_refused_in_one_line(
    project: Path, data: bytes | None, reason: str
) -> None:
    file = project / "plan.json"
    if data is None:
        file.mkdir()
    else:
        file.write_bytes(data)

    ended = called("run", "plan.json")
    assert ended.code == 2
    assert ended.err.startswith(f"ideabridge: {reason.format(file=file)}")
    assert ended.err.count("\n") == 1
    assert called("run", "plan.json", "--json").answer()["exit"] == 2


@pytest.mark.parametrize("path", ["gone.json", "x" * 300, "a\0b"])
def test_paths_that_lead_nowhere_are_named_whole(project: Path, path: str) -> None:
    shown = path.replace("\0", "\\u0000")
    for words in (
        ["run", path],
        ["solve", "x", "--context", path],
        ["ideas", "import", path],
        ["approvals", "decide", "edit", "x", "--call", f"@{path}"],
    ):
        ended = called(*words)
        assert ended.code == 2, words
        assert f"{project}/{shown} cannot be " in ended.err, words


def test_files_that_are_written_are_named_whole(here: Path) -> None:
    for words in (["ideas", "export", "greet", "-o", "x.json"], ["store", "backup", "x.sqlite"]):
        assert f"{here}/x." in called(*words).err

    assert f"{here}/x.sqlite: the file already exists" in called("store", "backup", "x.sqlite").err


# -- input that nothing takes ----------------------------------------------------------------------


def test_an_input_that_nothing_takes_is_refused_with_the_nearest_name(here: Path) -> None:
    (here / "one.py").write_text("input['name'] + input.get('greeting', '')")
    for words, taker in (
        (["run", "plan.json"], "the plan"),
        (["run", "one.py"], "the plan"),
        (["ideas", "call", "greet"], "greet"),
    ):
        ended = called(*words, "-i", "nmae=x")
        assert ended.code == 2
        assert ended.err.startswith(f"ideabridge: --input: {taker} has no parameter 'nmae'; the ")
        assert ended.err.endswith("Did you mean 'name'?\n")
        assert called(*words, "-i", "name=x").code == 0


def test_a_plan_that_reads_its_whole_input_takes_every_member(project: Path) -> None:
    (project / "all.json").write_text('{"calls": [], "output": "†input"}')
    (project / "all.py").write_text("input")
    for plan in ("all.json", "all.py"):
        ended = called("run", plan, "-i", "any=1")
        assert (ended.code, json.loads(ended.out)) == (0, {"any": 1})

    (project / "none.json").write_text('{"calls": [], "output": 1}')
    assert "the plan has no parameter 'any'; it takes no input" in (
        called("run", "none.json", "-i", "any=1").err
    )


# -- Ctrl-C ----------------------------------------------------------------------------------------


def stopped(here: Path, words: list[str], is_ready: Callable[[str], bool]) -> Ended:
    """Press Ctrl-C when what the installed command printed on standard error is enough."""
    with subprocess.Popen(
        preloaded.python(EXECUTABLE, *words),
        cwd=here,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        seen = ""
        while not is_ready(seen):
            line = process.stderr.readline()
            assert line, f"it ended before: {seen}"
            seen += line

        process.send_signal(signal.SIGINT)
        out = process.stdout.read()
        seen += process.stderr.read()

    return Ended(process.returncode, out, seen)


@pytest.fixture
def slow(home: Path, project: Path) -> Path:
    """A project of a user who has a server that never answers, and a plan that waits."""
    file = home / ".config" / "ideabridge" / "ideabridge.json"
    file.parent.mkdir(parents=True)
    server = {"command": sys.executable, "args": ["-I", "-c", "import time; time.sleep(60)"]}
    file.write_text(json.dumps({"mcpServers": {"slow": server}}))
    file.chmod(0o600)
    (project / "plan.json").write_text('{"calls": [{"_tool": "sleep", "seconds": 60}]}')
    return project


@pytest.mark.parametrize("command", ["servers list", "servers test slow", "tools list", "doctor"])
def test_ctrl_c_ends_a_command_that_waits_for_servers_without_noise(
    slow: Path, command: str
) -> None:
    ended = stopped(slow, [*command.split(), "--json"], lambda seen: "connecting to" in seen)
    assert ended.code == 130
    assert ended.answer() == {
        "error": {"kind": "Stopped", "message": "stopped by Ctrl-C"},
        "exit": 130,
    }
    assert ended.err == "connecting to 1 server: slow\n"


def test_ctrl_c_ends_a_run_with_its_answer(slow: Path) -> None:
    ended = stopped(slow, ["run", "plan.json"], lambda seen: "▶ 0 sleep" in seen)
    assert ended.code == 130
    assert "cancelled (stopped at the terminal)" in ended.err
    assert "Traceback" not in ended.err
