"""Data files: a server's own data does not end trust where a person confirmed it, and nothing else
can be confirmed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from ideabridge.bridge.trust import is_trusted, trust_path
from ideabridge.server.main import main
from tests import preloaded
from tests.cli.terminal import Terminal
from tests.server.serving import all_tools
from tests.trusting import write_trusted

EXECUTABLE = Path(sys.executable).parent / "ideabridge"

SERVER = '''
import sys
from pathlib import Path
from mcp.server.mcpserver import MCPServer

server = MCPServer("notes")


@server.tool()
def note(text: str) -> str:
    """Write a note."""
    with Path(sys.argv[sys.argv.index("--db-path") + 1]).open("a", encoding="utf-8") as file:
        file.write(text)
    return "written"


server.run()
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder, which is the current one, in a home of nobody's."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "IDEABRIDGE_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    monkeypatch.setenv("HOME", str(home))
    # A variable need not mean the same where trust is asked for as where a server starts.
    monkeypatch.delenv("SHELL", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return project


def write(folder: Path, servers: dict[str, Any], **settings: Any) -> Path:
    path = folder / "ideabridge.json"
    path.write_text(json.dumps({"mcpServers": servers, **settings}), encoding="utf-8")
    return path


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The answer of `ideabridge trust --show`."""
    capsys.readouterr()
    main(["trust", "--show", "--json", *words])
    return json.loads(capsys.readouterr().out)


def possible(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The files that can be data."""
    return [one["file"] for one in shown(capsys)["data_files"]]


def trust(capsys: pytest.CaptureFixture[str], *data: str) -> None:
    """Trust what is shown, without a terminal."""
    words = [word for file in data for word in ("--data", file)]
    assert main(["trust", "--hash", shown(capsys, *words)["hash"], *words]) == 0


MEMORY: dict[str, Any] = {
    "command": "npx",
    "args": ["-y", "@x/memory"],
    "env": {"MEMORY_FILE_PATH": "memory.jsonl"},
}
SHOP: dict[str, Any] = {"command": "uvx", "args": ["mcp-server-sqlite", "--db-path", "shop.db"]}


# -- the server's own data -------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_server_writes_its_data_and_the_next_session_has_its_tools(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "server.py").write_text(SERVER, encoding="utf-8")
    server = preloaded.module("server.py", "--db-path", "notes.jsonl")
    path = write(folder, {"notes": server}, expose=["modules"], store="s.sqlite")
    trust(capsys, "notes.jsonl")

    program, *arguments = preloaded.python(EXECUTABLE, "serve")
    parameters = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))

    async def session() -> list[str]:
        async with Client(parameters, read_timeout_seconds=60) as client:
            await client.call_tool("search_tools", {"words": "", "module": "notes"})
            names = [name for name in await all_tools(client) if name.endswith("note")]
            for name in names:
                await client.call_tool(name, {"text": "milk"})
            return names

    assert await session() != []
    assert (folder / "notes.jsonl").read_text(encoding="utf-8") == "milk"
    assert is_trusted(path)
    assert await session() != []
    assert (folder / "notes.jsonl").read_text(encoding="utf-8") == "milkmilk"
    (folder / "server.py").write_text(SERVER + "#", encoding="utf-8")
    assert not is_trusted(path)
    assert await session() == []
    assert shown(capsys)["changed"] == [{"file": "server.py", "what": "changed"}]


@pytest.mark.parametrize(
    ("entry", "file"),
    [
        (MEMORY, "memory.jsonl"),
        (SHOP, "shop.db"),
        ({"command": "x", "args": ["--db-path=shop.db"]}, "shop.db"),
        ({"command": "x", "args": ["--dbPath", "./data/shop.sqlite3"]}, "data/shop.sqlite3"),
        ({"command": "./mcp-sqlite", "args": ["shop.db"]}, "shop.db"),
        ({"command": "{folder}/mcp-sqlite", "args": ["-d", "shop.db"]}, "shop.db"),
        ({"command": "./server.py", "args": ["shop.db"]}, "shop.db"),
        ({"command": "node", "args": ["server.ts", "-d", "shop.db"]}, "shop.db"),
        ({"command": "python3.12", "args": ["-u", "server.py", "shop.db"]}, "shop.db"),
        ({"command": "python", "args": ["-m", "shop", "--log-file", "run.log"]}, "run.log"),
        (
            {"command": "uv", "args": ["run", "--with", "mcp", "server.py", "--db", "shop.db"]},
            "shop.db",
        ),
        (
            {"command": "uv", "args": ["--directory", ".", "run", "shop", "--db", "shop.db"]},
            "shop.db",
        ),
        (
            {"command": "npx", "args": ["-y", "tsx", "server.ts", "--state-file", "s.json"]},
            "s.json",
        ),
        ({"command": "x", "args": ["--db-path", "shop.db"], "cwd": "data"}, "data/shop.db"),
        ({"command": "x", "env": {"DATABASE_URL": "sqlite:///{folder}/shop.db"}}, "shop.db"),
        ({"command": "x", "env": {"MEMORY_FILE_PATH": "{folder}/memory.json"}}, "memory.json"),
    ],
    ids=str,
)
@pytest.mark.parametrize("exists", [True, False])
def test_confirmed_data_may_change_appear_and_disappear(
    folder: Path, entry: dict[str, Any], file: str, exists: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = json.loads(json.dumps(entry).replace("{folder}", str(folder)))
    (folder / "data").mkdir()
    for program in ("mcp-sqlite", "server.py", "server.ts"):
        (folder / program).touch()

    if exists:
        (folder / file).write_text("one", encoding="utf-8")

    path = write(folder, {"x": filled})
    assert file in possible(capsys)
    trust(capsys, file)
    assert is_trusted(path)
    (folder / file).write_text("two", encoding="utf-8")
    assert is_trusted(path)
    (folder / file).unlink()
    assert is_trusted(path)
    assert main(["trust", "--show"]) == 0


def test_what_nobody_confirmed_stays_covered(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(folder, {"memory": MEMORY, "shop": SHOP})
    trust(capsys, "shop.db")
    (folder / "shop.db").write_text("one", encoding="utf-8")
    assert is_trusted(path)
    (folder / "memory.jsonl").write_text("one", encoding="utf-8")
    assert not is_trusted(path)
    assert shown(capsys)["changed"] == [{"file": "memory.jsonl", "what": "new"}]


def test_data_may_be_larger_than_what_trust_reads(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(folder, {"shop": SHOP})
    with (folder / "shop.db").open("wb") as file:
        file.truncate(300 * 1024 * 1024)

    found = shown(capsys)["hash"]
    assert main(["trust", "--hash", found]) == 2
    assert "shop.db cannot be read or is too large" in capsys.readouterr().err
    trust(capsys, "shop.db")
    assert is_trusted(path)


def test_all_files_together_have_one_limit(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "server.bin").touch()
    names = [f"{number}.db" for number in range(3)]
    for name in names:
        with (folder / name).open("wb") as file:
            file.truncate(100 * 1024 * 1024)

    servers = {name: {"command": "x", "args": ["--db-path", name]} for name in names}
    path = write(folder, {**servers, "code": {"command": "./server.bin"}})
    assert main(["trust", "--hash", shown(capsys)["hash"]]) == 2
    assert "2.db cannot be read or is too large" in capsys.readouterr().err
    # A file that is confirmed as data does not count towards the limit.
    trust(capsys, "0.db")
    assert is_trusted(path)
    os.truncate(folder / "server.bin", 100 * 1024 * 1024)
    assert main(["trust", "--hash", shown(capsys, "--data", "0.db")["hash"], "--data", "0.db"]) == 2
    trust(capsys, "0.db", "1.db")
    assert is_trusted(path)


def test_data_files_count_among_the_files_that_can_be_trusted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for number in range(1000) for word in ("--db-path", f"file-{number}.db")]
    write(folder, {"x": {"command": "x", "args": words[:-2]}})
    assert len(possible(capsys)) == 999
    write(folder, {"x": {"command": "x", "args": words}})
    assert main(["trust", "--show"]) == 2
    assert "names more files than can be trusted" in capsys.readouterr().err


# -- what is trusted is what was shown -------------------------------------------------------------


def test_the_hash_covers_which_files_are_data(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(folder, {"memory": MEMORY, "shop": SHOP})
    (folder / "shop.db").write_text("one", encoding="utf-8")
    hashes = {
        words: shown(capsys, *words)["hash"]
        for words in (
            (),
            ("--data", "shop.db"),
            ("--data", "memory.jsonl"),
            ("--data", "shop.db", "--data", "memory.jsonl"),
        )
    }
    assert len(set(hashes.values())) == 4
    for words in hashes:
        for other, found in hashes.items():
            if other != words:
                assert main(["trust", "--hash", found, *words]) == 2

    assert not is_trusted(path)
    # Between looking and trusting, the content of data may change, but not that of other files.
    (folder / "shop.db").write_text("two", encoding="utf-8")
    assert main(["trust", "--hash", hashes[()]]) == 2
    assert main(["trust", "--hash", hashes["--data", "shop.db"], "--data", "shop.db"]) == 0
    assert is_trusted(path)


@pytest.mark.parametrize(
    "words", [["--data", "shop.db"], ["--data", "nothing.db"], ["--data", "../x.db"]], ids=str
)
def test_only_a_file_that_was_shown_can_be_named(
    folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"memory": MEMORY})
    assert main(["trust", "--show", *words]) == 2
    assert "Files that can be data here: memory.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "confirmed", "columns"),
    [("y", True, 80), ("y", True, 120), ("n", False, 80), ("", False, 120), ("maybe", False, 80)],
)
def test_a_terminal_asks_about_each_file(
    folder: Path, typed: str, confirmed: bool, columns: int
) -> None:
    # The server is trusted and therefore started, and npm would look for the package on the
    # network.
    path = write(folder, {"memory": {**MEMORY, "command": "no-such-program"}})
    terminal = Terminal(folder, ["tools", "list"], columns=columns)
    terminal.read_until("s(how the file): ")
    table = " ".join(terminal.seen.split())
    assert (
        "data? memory.jsonl (does not exist yet): the variable MEMORY_FILE_PATH of memory names it."
        in table
    )
    terminal.type("y")
    terminal.read_until("Is it only data, and never code? y(es), n(o): ")
    lines = terminal.seen.replace("\r", "").splitlines()
    assert max(map(len, lines)) <= columns
    terminal.type(typed)
    terminal.end()
    assert is_trusted(path)
    (folder / "memory.jsonl").write_text("one", encoding="utf-8")
    assert is_trusted(path) is confirmed


def test_entries_of_earlier_versions_keep_their_meaning(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_trusted(folder, {"mcpServers": {"shop": SHOP}})
    held = json.loads(trust_path().read_text(encoding="utf-8"))
    for entry in held["files"].values():
        del entry["data"]

    trust_path().write_text(json.dumps(held), encoding="utf-8")
    assert is_trusted(path)
    # The file was covered until now, so the first change asks once more.
    (folder / "shop.db").write_text("one", encoding="utf-8")
    assert not is_trusted(path)
    trust(capsys, "shop.db")
    (folder / "shop.db").write_text("two", encoding="utf-8")
    assert is_trusted(path)


def test_variables_that_are_allowed_later_keep_the_data(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(folder, {"shop": SHOP})
    trust(capsys, "shop.db")
    assert main(["trust", "--env", "SHOP_TOKEN"]) == 0
    (folder / "shop.db").write_text("one", encoding="utf-8")
    assert is_trusted(path)


# -- code that looks like data ---------------------------------------------------------------------

DB = "evil.db"

INTERPRETERS = (
    *("python3.13t", "python3-dbg", "pythonw", "/usr/bin/perl5.36-x86_64-linux-gnu", "bash-static"),
    *("rbash", "csh", "tcsh", "mksh", "nu", "xonsh", "expect", "gjs", "busybox.static"),
)
LAUNCHERS = (
    *(
        "flock",
        "taskset",
        "unshare",
        "strace",
        "chroot",
        "systemd-run",
        "bwrap",
        "firejail",
        "ld.so",
        "mcp-proxy",
    ),
    *("conda", "pixi", "rye", "dotenv", "op", "doppler", "dotenvx", "cross-env", "volta", "bundle"),
)


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "sh", "args": ["-c", 'exec "$2"', "x", "--db-path", DB]},
        {"command": "sh", "args": ["-c", f"exec ./{DB}"]},
        {"command": "bash", "args": [DB]},
        {"command": "bash", "args": ["--rcfile", DB, "-i"]},
        {"command": f"./{DB}"},
        {"command": "python", "args": [DB]},
        {"command": "python3.11", "args": ["-u", DB]},
        {"command": "python", "args": ["-m", "runpy", DB]},
        {"command": "python", "args": ["-c", "exec(open(sys.argv[2]).read())", "--db-path", DB]},
        {"command": "python", "args": ["-X", "importtime", DB]},
        {"command": "node", "args": ["--experimental-sqlite", DB]},
        {"command": "node", "args": ["--import", "x.js", "--experimental-sqlite", DB]},
        {"command": "node", "args": ["--require", DB, "x.js"]},
        {"command": "node", "args": ["-r", DB, "x.js"]},
        {"command": "node", "args": [f"--data-file={DB}", "x.js"]},
        {"command": "perl", "args": [DB]},
        {"command": "uv", "args": ["run", "--no-cache", DB]},
        {"command": "uv", "args": ["run", "python", DB]},
        {"command": "uvx", "args": [DB]},
        {"command": "uvx", "args": ["xonsh", DB]},
        {"command": "npx", "args": ["-y", "tsx", DB]},
        {"command": "npx", "args": ["-c", "--db-path", DB]},
        {"command": "npx", "args": ["--unknown", "--db-path", DB]},
        {"command": "env", "args": ["--db-path", DB]},
        {"command": "env", "args": ["sh", DB]},
        {"command": "docker", "args": ["run", "--volume", f"{DB}:/x"]},
        {"command": "${SHELL}", "args": [DB]},
        {"command": "other-link", "args": [DB], "env": {"PATH": "bin:${PATH}"}},
        {"command": "nodejs", "args": [DB]},
        {"command": "./shell-link", "args": [DB]},
        {"command": "mcp-sqlite", "args": [DB]},
        {"command": "mcp-sqlite", "args": ["-d", DB]},
        {"command": "own", "args": [DB]},
        {"command": "own", "args": [DB], "env": {"PATH": ".:${PATH}"}},
        {"command": "./own", "args": [DB], "cwd": "/usr/bin"},
        {"command": "./own", "args": ["sh", DB]},
        {"command": ".venv/bin/hy", "args": [DB]},
        {"command": "./node_modules/own.js", "args": [DB]},
        {"command": "./absent", "args": [DB]},
        {"command": "python", "args": ["/usr/bin/hy.py", DB]},
        {"command": "python", "args": ["outside.py", DB]},
        {"command": "python", "args": ["${X:-.}/own.py", DB]},
        {"command": "python", "args": ["-m", "hy", DB]},
        {"command": "npx", "args": ["own.js", DB]},
        {"command": "uvx", "args": ["own.py", DB]},
        {"command": "stdbuf", "args": ["-oL", "sh", DB]},
        {"command": "stdbuf", "args": ["-oL", "sh", "--db-path", DB]},
        *({"command": name, "args": [DB]} for name in INTERPRETERS),
        *({"command": name, "args": ["--data-file", DB]} for name in INTERPRETERS),
        *({"command": name, "args": ["-f", DB]} for name in ("mawk", "R", "tclsh")),
        {"command": "gdb", "args": ["-x", DB]},
        {"command": "duckdb", "args": ["-init", DB]},
        {"command": "py", "args": ["-3", DB]},
        {"command": "py", "args": ["-3", "--data-file", DB]},
        {"command": "npx", "args": ["tsx", "watch", DB]},
        {"command": "tsx", "args": ["watch", "--log-file", DB]},
        {"command": "node", "args": ["inspect", DB]},
        {"command": "node", "args": ["inspect", "--log-file", DB]},
        *({"command": launcher, "args": ["python3", DB]} for launcher in LAUNCHERS),
        *(
            {"command": launcher, "args": ["run", "--", "python3.13t", "--data-file", DB]}
            for launcher in LAUNCHERS
        ),
        *(
            {"command": launcher, "args": ["--x=/bin/mksh", "--data-file", DB]}
            for launcher in LAUNCHERS
        ),
        {"command": "uvx", "args": ["mcp-proxy", "python3", DB]},
        {"command": "uvx", "args": ["mcp-proxy", "python3", "--data-file", DB]},
        {"command": "x", "args": ["${SHELL}", "--data-file", DB]},
        {"command": "x", "args": ["${TZ:-bash}", "--data-file", DB]},
        {"command": "x", "args": ["${X:-sh}", "--data-file", DB]},
        {"command": "x", "args": ["exec sh", "--data-file", DB]},
        {"command": "sh", "args": ["-c", '. "$DB_PATH"'], "env": {"DB_PATH": DB}},
        {"command": "x", "args": ["sh", "-c", '. "$DB_PATH"'], "env": {"DB_PATH": DB}},
        {"command": "nohup", "args": ["csh", "-c", 'source "$DB_PATH"'], "env": {"DB_PATH": DB}},
        {"command": "x", "args": ["--config", DB[:-3] + ".json"]},
        {"command": "x", "args": ["--db-path", "config.json"]},
        {"command": "x", "args": ["--db-path", "evil.yaml"]},
        {"command": "x", "args": ["--db-path", "evil.sh"]},
        {"command": "x", "args": ["--db-path", "evil"]},
        {"command": "x", "args": ["--db-path", ".git/hooks.db"]},
        {"command": "x", "args": ["--db-path", "${NOWHERE_SET:-evil.py}"]},
        {"command": "x", "args": ["--db-path", "ideabridge.json"]},
        {"command": "x", "args": ["--db-path", "sub/../ideabridge.json"]},
        {"command": "x", "env": {"BASH_ENV": DB}},
        {"command": "x", "env": {"PERL5OPT": DB}},
        {"command": "x", "env": {"PERL5DB": DB}},
        {"command": "x", "env": {"PYTHONSTARTUP": DB}},
        {"command": "x", "env": {"PYTHONPATH": DB}},
        {"command": "x", "env": {"NODE_OPTIONS": f"--require ./{DB}"}},
        {"command": "x", "env": {"NODE_COMPILE_CACHE": DB}},
        {"command": "x", "env": {"GIT_SSH": DB}},
        {"command": "x", "env": {"GIT_INDEX_FILE": DB}},
        {"command": "x", "env": {"LD_PRELOAD": DB}},
        {"command": "x", "env": {"EDITOR": DB}},
        {"command": "x", "env": {"CONFIG_DB": DB}},
        {"command": "x", "env": {"ANYTHING": DB}},
    ],
    ids=str,
)
def test_what_may_be_executed_cannot_be_confirmed(
    folder: Path, entry: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "shell-link").symlink_to("/bin/sh")
    (folder / "bin").mkdir()
    (folder / "bin" / "other-link").symlink_to("/bin/sh")
    (folder / "sub").mkdir()
    outside = folder.parent / "outside.py"
    outside.touch()
    (folder / "outside.py").symlink_to(outside)
    for file in (
        "own",
        "own.py",
        "own.js",
        ".venv/bin/hy",
        "node_modules/own.js",
        "inspect",
        "watch",
    ):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()

    for exists in (False, True):
        write(folder, {"x": entry})
        assert possible(capsys) == []
        assert main(["trust", "--show", "--data", DB]) == 2
        for name in (DB, "evil.sh", "evil.yaml", "config.json", "evil.json", "evil", "evil.py"):
            (folder / name).write_text("one", encoding="utf-8")

        assert exists or not is_trusted(folder / "ideabridge.json")


@pytest.mark.parametrize(
    "other",
    [
        {"command": "python", "args": ["shop.db"]},
        {"command": "sh", "args": ["-c", "exec ./shop.db"]},
        {"command": "x", "env": {"BASH_ENV": "sub/../shop.db"}},
        {"command": "x", "args": ["linked"]},
    ],
    ids=str,
)
def test_a_file_that_another_server_executes_is_no_data(
    folder: Path, other: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "sub").mkdir()
    (folder / "shop.db").write_text("one", encoding="utf-8")
    (folder / "linked").symlink_to("shop.db")
    write(folder, {"shop": SHOP})
    assert possible(capsys) == ["shop.db"]
    write(folder, {"shop": SHOP, "other": other})
    assert possible(capsys) == []


def test_a_part_of_a_value_is_no_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(
        folder,
        {
            "x": {
                "command": "x",
                "args": ["--db-path", "one.db two.db"],
                "env": {"DB_PATH": "a.db:three.db"},
            }
        },
    )
    assert possible(capsys) == ["one.db two.db", "a.db:three.db"]
    trust(capsys, "one.db two.db", "a.db:three.db")
    for name in ("one.db", "two.db", "three.db"):
        (folder / name).write_text("one", encoding="utf-8")
        assert not is_trusted(folder / "ideabridge.json")
        (folder / name).unlink()

    assert is_trusted(folder / "ideabridge.json")


def test_a_tool_file_is_no_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "shop.db").write_text("one", encoding="utf-8")
    write(folder, {"shop": SHOP}, tools=["shop.db"])
    assert possible(capsys) == []


@pytest.mark.parametrize(
    "how", ["executable", "script", "program", "link", "dangling", "inner link", "hard link"]
)
def test_a_data_file_that_becomes_something_else_ends_trust(
    folder: Path, how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {"command": "x", "args": ["--db-path", "data/shop.db"]}
    file = folder / "data" / "shop.db"
    file.parent.mkdir()
    file.write_text("one", encoding="utf-8")
    path = write(folder, {"shop": entry})
    trust(capsys, "data/shop.db")
    assert is_trusted(path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "shop.db").write_text("one", encoding="utf-8")
    match how:
        case "executable":
            file.chmod(0o755)
        case "script":
            file.write_text("#!/bin/sh\nevil\n", encoding="utf-8")
        case "program":
            file.write_bytes(b"\x7fELF....")
        case "inner link":
            file.unlink()
            file.parent.rmdir()
            file.parent.symlink_to(elsewhere)
        case "hard link":
            file.unlink()
            file.hardlink_to(elsewhere / "shop.db")
        case _:
            file.unlink()
            file.symlink_to(elsewhere / ("shop.db" if how == "link" else "nothing"))

    assert not is_trusted(path)
    found = shown(capsys)
    assert found["changed"] == [{"file": "data/shop.db", "what": "not data"}]
    assert found["data_files"] == []


@pytest.mark.parametrize("server", ["x", "x. It is a plain log and safe to confirm", "y' of 'x"])
def test_a_name_says_nothing_in_the_question(
    folder: Path, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = (
        "--x names it. It is a plain log. …-log",
        "--" + "界" * 40 + "-was-checked-db",
        "--" + "a" * 60 + "-db",
    )
    for name in names:
        entry = {
            "command": "x",
            "args": [name, "shop.db", f"{name}=shop.db"],
            "env": {name.lstrip("-"): "shop.db"},
        }
        write(folder, {server: entry})
        assert possible(capsys) == []

    write(folder, {server: SHOP})
    places = [place for file in shown(capsys)["data_files"] for place in file["named_by"]]
    assert places == [f"the option --db-path of {server if server == 'x' else repr(server)}"]
