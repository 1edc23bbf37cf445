"""Answers of direct calls through `ideabridge serve` beside those of the same servers without it.

    python benchmarks/fidelity.py [--json] [--seed N] [--show]

It makes 99 random valid calls to five servers that nobody here wrote (git, time, filesystem, memory
and everything), each by a client of its own and through the gateway, over stdio and HTTP, in both
eras of the protocol. Two answers are equal if their content, structured content, `_meta` and errors
are. `--show` prints the others. Both answers are read by the client of the SDK, which drops unknown
keys of content blocks and annotations.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

BIN = Path(sys.executable).parent
NODE = Path(__file__).parent.parent / ".node" / "node_modules" / ".bin"
WAYS = (("stdio", "legacy"), ("stdio", "auto"), ("http", "legacy"), ("http", "auto"))
CALLS = 99
TARGET = 97
SERVERS = ("git", "time", "filesystem", "memory", "everything")

Answer = dict[str, Any]
Makers = list[Callable[[], tuple[str, dict[str, Any]]]]
"""Make a random call of a server: the tool and its arguments."""


class Call(NamedTuple):
    """A call of a tool of a server."""

    server: str
    tool: str
    arguments: dict[str, Any]


# -- servers and calls -----------------------------------------------------------------------------


def prepare(folder: Path) -> None:
    """Make the repository and the files that the calls read."""
    files = folder / "files"
    (files / "deep" / "er").mkdir(parents=True)
    for number in range(6):
        (files / f"note{number}.txt").write_text(
            "".join(f"line {line} of {number}: häuser\n" for line in range(40))
        )

    (files / "deep" / "er" / "data.json").write_text('{"a": [1, 2.0, null]}')
    (files / "picture.png").write_bytes(bytes(range(256)))
    (files / "sound.wav").write_bytes(bytes(range(128)))
    # Create what the calls will write, so that no listing depends on the calls of an earlier pass.
    (files / "made").mkdir()
    (files / "written.txt").write_text("written")
    repository = folder / "repository"
    day = "2026-01-02T03:04:05+00:00"
    who = {"NAME": "Ann", "EMAIL": "ann@example.com", "DATE": day}
    environment = dict(os.environ) | {
        f"GIT_{role}_{key}": who[key] for role in ("AUTHOR", "COMMITTER") for key in who
    }

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", repository, *arguments], check=True, env=environment)

    repository.mkdir()
    git("init", "-q", "-b", "main")
    for number in range(5):
        (repository / "story.txt").write_text(f"chapter {number}\n" * (number + 1))
        git("add", ".")
        git("commit", "-q", "-m", f"Chapter {number}")

    git("branch", "other")
    (repository / "story.txt").write_text("changed\n")
    (repository / "new.txt").write_text("new\n")
    git("add", "new.txt")


def commands(folder: Path, memory: str) -> dict[str, dict[str, Any]]:
    """How each server is started; the one of the memory writes to a file with this name."""

    def node(name: str, *arguments: str) -> dict[str, Any]:
        return {
            "command": "node",
            "args": [str((NODE / f"mcp-server-{name}").resolve()), *arguments],
        }

    return {
        "git": {
            "command": str(BIN / "mcp-server-git"),
            "args": ["--repository", str(folder / "repository")],
        },
        "time": {"command": str(BIN / "mcp-server-time"), "args": ["--local-timezone", "UTC"]},
        "filesystem": node("filesystem", str(folder / "files")),
        "memory": {**node("memory"), "env": {"MEMORY_FILE_PATH": str(folder / memory)}},
        "everything": node("everything"),
    }


def random_calls(folder: Path, seed: int) -> list[Call]:
    """Valid calls, of which some fail; a call gives the same answer when it is made again."""
    chance = random.Random(seed)
    files = folder / "files"
    repository = str(folder / "repository")
    makers: dict[str, Makers] = {
        "git": _of_git(chance, repository),
        "time": _of_time(chance),
        "filesystem": _of_files(chance, files),
        "memory": _of_memory(chance),
        "everything": _of_everything(chance),
    }
    return [
        Call(server, *chance.choice(makers[server])())
        for server in (SERVERS[n % len(SERVERS)] for n in range(CALLS))
    ]


def _of_git(chance: random.Random, path: str) -> Makers:
    names = ("main", "other", "HEAD~1", "HEAD~3", "nowhere")
    return [
        lambda: ("git_status", {"repo_path": path}),
        lambda: ("git_log", {"repo_path": path, "max_count": chance.randint(1, 6)}),
        lambda: ("git_show", {"repo_path": path, "revision": chance.choice(names)}),
        lambda: ("git_diff", {"repo_path": path, "target": chance.choice(names)}),
        lambda: ("git_diff_unstaged", {"repo_path": path, "context_lines": chance.randint(0, 5)}),
        lambda: ("git_diff_staged", {"repo_path": path}),
        lambda: ("git_branch", {"repo_path": path, "branch_type": chance.choice(("local", "all"))}),
    ]


def _of_time(chance: random.Random) -> Makers:
    zones = ("UTC", "Europe/Berlin", "Asia/Kathmandu", "America/New_York", "Nowhere/None")

    def convert() -> tuple[str, dict[str, Any]]:
        at = f"{chance.randint(0, 25):02}:{chance.randint(0, 59):02}"
        return "convert_time", {
            "source_timezone": chance.choice(zones),
            "time": at,
            "target_timezone": chance.choice(zones),
        }

    return [convert]


def _of_files(chance: random.Random, files: Path) -> Makers:
    def note() -> str:
        # The last of these files does not exist.
        return str(files / f"note{chance.randint(0, 6)}.txt")

    return [
        lambda: ("read_text_file", {"path": note()}),
        lambda: ("read_text_file", {"path": note(), "head": chance.randint(1, 9)}),
        lambda: ("read_file", {"path": note()}),
        lambda: (
            "read_media_file",
            {"path": str(files / chance.choice(("picture.png", "sound.wav")))},
        ),
        lambda: ("read_multiple_files", {"paths": [note(), note()]}),
        lambda: ("write_file", {"path": str(files / "written.txt"), "content": "written"}),
        lambda: (
            "edit_file",
            {
                "path": note(),
                "edits": [{"oldText": "line 3 ", "newText": "row 3 "}],
                "dryRun": True,
            },
        ),
        lambda: ("create_directory", {"path": str(files / "made")}),
        lambda: ("list_directory", {"path": str(files)}),
        lambda: (
            "list_directory_with_sizes",
            {"path": str(files), "sortBy": chance.choice(("name", "size"))},
        ),
        lambda: ("directory_tree", {"path": str(files / "deep")}),
        lambda: (
            "search_files",
            {"path": str(files), "pattern": chance.choice(("**/*.json", "*.txt", "*.none"))},
        ),
        lambda: ("list_allowed_directories", {}),
        lambda: ("read_text_file", {"path": "/etc/hostname"}),
    ]


def _of_memory(chance: random.Random) -> Makers:
    def name() -> str:
        return f"entity {chance.randint(0, 5)}"

    return [
        lambda: (
            "create_entities",
            {
                "entities": [
                    {
                        "name": name(),
                        "entityType": "person",
                        "observations": ["likes tea", "größer"],
                    }
                ]
            },
        ),
        lambda: (
            "create_relations",
            {"relations": [{"from": name(), "to": name(), "relationType": "knows"}]},
        ),
        lambda: (
            "add_observations",
            {
                "observations": [
                    {"entityName": name(), "contents": [f"fact {chance.randint(0, 99)}"]}
                ]
            },
        ),
        lambda: ("delete_entities", {"entityNames": [name()]}),
        lambda: ("read_graph", {}),
        lambda: ("search_nodes", {"query": chance.choice(("tea", "fact", "nothing"))}),
        lambda: ("open_nodes", {"names": [name(), name()]}),
    ]


def _of_everything(chance: random.Random) -> Makers:
    return [
        lambda: ("echo", {"message": "text " * chance.randint(0, 50)}),
        lambda: (
            "get-annotated-message",
            {
                "messageType": chance.choice(("error", "success", "debug")),
                "includeImage": chance.random() < 0.5,
            },
        ),
        lambda: ("get-resource-links", {"count": chance.randint(1, 10)}),
        lambda: (
            "get-resource-reference",
            {"resourceType": "Text", "resourceId": chance.randint(1, 9)},
        ),
        lambda: (
            "get-structured-content",
            {"location": chance.choice(("New York", "Chicago", "Los Angeles"))},
        ),
        lambda: ("get-sum", {"a": chance.randint(-9, 9), "b": chance.random()}),
        lambda: ("get-tiny-image", {}),
        lambda: (
            "gzip-file-as-resource",
            {
                "data": "data:text/plain;base64,aGVsbG8=",
                "outputType": chance.choice(("resource", "resourceLink")),
            },
        ),
        lambda: ("get-resource-reference", {"resourceType": "Text", "resourceId": -1}),
    ]


# -- calling ---------------------------------------------------------------------------------------

_CLOCK = re.compile(r"\d{1,2}:\d\d:\d\d( [AP]M)?")


async def answered(client: Client, name: str, arguments: dict[str, Any]) -> Answer:
    """The answer of a call, without what a server says about itself."""
    try:
        result = await client.session.call_tool(name, arguments)
    except MCPError as error:
        return {"error": {"code": error.code, "message": error.message, "data": error.data}}

    found = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    meta = {
        key: value
        for key, value in found.pop("_meta", {}).items()
        if key != "io.modelcontextprotocol/serverInfo"
    }
    text = json.dumps({**found, **({"_meta": meta} if meta else {})}, sort_keys=True)
    # The text of such a resource contains the time of day, so replace it.
    told: Answer = json.loads(
        _CLOCK.sub("TIME", text) if "resource-reference" in name.replace("_", "-") else text
    )
    told.pop("resultType", None)
    return told


async def directly(folder: Path, calls: list[Call]) -> list[Answer]:
    """The answers without ideabridge."""
    async with AsyncExitStack() as stack:
        clients: dict[str, Client] = {}
        for name, one in commands(folder, "direct.jsonl").items():
            parameters = StdioServerParameters(**one)
            clients[name] = await stack.enter_async_context(
                Client(parameters, mode="legacy", read_timeout_seconds=30)
            )
            await clients[name].list_tools()
        return [await answered(clients[one.server], one.tool, one.arguments) for one in calls]


@contextmanager
def gateway(folder: Path, way: str, era: str) -> Generator[StdioServerParameters | str]:
    """What a client connects to: a server in front of the five."""
    configuration = folder / f"{way}-{era}.json"
    servers = commands(folder, f"{way}-{era}.jsonl")
    configuration.write_text(
        json.dumps({"store": f"{way}-{era}.sqlite", "mcpServers": servers, "expose": ["modules"]})
    )
    program, *arguments = str(BIN / "ideabridge"), "serve", "--config", str(configuration)
    if way == "stdio":
        yield StdioServerParameters(command=program, args=arguments)
        return

    command = [program, *arguments, "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield next(line for line in process.stderr if "serving on http://" in line).split()[-1]
        finally:
            process.terminate()


async def through(target: StdioServerParameters | str, calls: list[Call], era: str) -> list[Answer]:
    """The answers through the gateway."""
    async with Client(target, mode=era, read_timeout_seconds=30) as client:
        names = await exposed(client)
        return [
            await answered(client, names.get(one.tool, one.tool), one.arguments) for one in calls
        ]


async def exposed(client: Client) -> dict[str, str]:
    """The names of tools under which the gateway has others than their own."""
    found = await client.list_tools()
    tools = found.tools
    while found.next_cursor is not None:
        found = await client.list_tools(cursor=found.next_cursor)
        tools += found.tools
    return {
        tool.name.replace("_", "-"): tool.name for tool in tools if not tool.name.startswith("git_")
    }


def reason() -> str | None:
    """Why nothing can be measured here."""
    if shutil.which("node") is None:
        return "there is no node"
    missing = [
        name
        for name in ("filesystem", "memory", "everything")
        if not (NODE / f"mcp-server-{name}").exists()
    ]
    return f"not installed: {', '.join(missing)}; run make npm" if missing else None


def measured(seed: int, *, show: bool) -> list[dict[str, Any]]:
    """The rows: the number of equal answers for each transport and era."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        prepare(folder)
        calls = random_calls(folder, seed)
        expected = anyio.run(directly, folder, calls)
        for way, era in WAYS:
            with gateway(folder, way, era) as target:
                found = anyio.run(through, target, calls, era)

            pairs = list(zip(calls, found, expected, strict=True))
            others = [pair for pair in pairs if pair[1] != pair[2]]
            equal = CALLS - len(others)
            row: dict[str, Any] = {
                "what": f"equal answers, {way}, {era}",
                "ours": equal,
                "peer": CALLS,
            }
            rows.append(
                {**row, "ratio": equal / CALLS, "target": TARGET / CALLS, "met": equal >= TARGET}
            )
            for call, mine, theirs in others if show else ():
                sys.stdout.write(f"{way} {era} {call}\n  direct  {theirs}\n  gateway {mine}\n")

    return rows


def main() -> int:
    """Measure, and print a table or JSON; 1 if a target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print the answers that differ")
    options = parser.parse_args()
    skipped = reason()
    rows = [] if skipped else measured(options.seed, show=options.show)
    if options.json:
        sys.stdout.write(
            json.dumps({"rows": rows, **({"skipped": skipped} if skipped else {})}) + "\n"
        )
    else:
        sys.stdout.write(f"skipped: {skipped}\n" if skipped else "")
        sys.stdout.write(
            "".join(f"{row['what']}: {row['ours']} of {CALLS} (target {TARGET})\n" for row in rows)
        )

    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
