"""What is published: an sdist and a wheel, a desktop bundle (.mcpb), and server.json for
the MCP registry.

    python packaging/dist.py [FOLDER]      (make dist)

Everything is built into a new folder, checked with the tools of those who receive it,
and started once:

- `twine check` reads the metadata as the index does; `contents` compares the files with what has
  to be in there.
- `uvx --from WHEEL` installs the wheel as a user does.
- `mcpb` validates and packs the bundle; the packed one is unpacked, and answers
  `initialize` over stdio.
- `skillsaw` validates server.json against the schema that the registry has published.

The examples for Compose and Kubernetes in this folder are checked, too: by Compose itself, and
against the schemas of Kubernetes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
BIN: Final = Path(sys.executable).parent
MCPB: Final = ROOT / ".node" / "node_modules" / "@anthropic-ai" / "mcpb" / "dist" / "cli" / "cli.js"

NAMESPACE: Final = "io.github.ideabridge"
"""The namespace in the registry. Who publishes proves to the registry that it is theirs,
or replaces it."""

SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"

NEEDED: Final = (
    "ideabridge/tools/py.typed",
    "ideabridge/bridge/py.typed",
    "ideabridge/server/py.typed",
    "ideabridge/server/demo/git_history.json",
    "ideabridge/server/ideabridge.schema.json",
    "ideabridge/server/extensions/app.html",
    "ideabridge/server/ui/templates/base.html",
    "ideabridge/server/ui/static/ui.css",
    "ideabridge/server/ui/static/ui.js",
)
"""Files without which an installed ideabridge would not work."""

FOREIGN: Final = ("tests", "tests_model", "tests_hosts", "benchmarks", ".github", ".ci", "site")
"""Folders that a wheel does not contain."""


def run(*words: str | Path, cwd: Path | None = None, given: str | None = None) -> str:
    """Run a command; returns its output, or ends with what it said."""
    command = [str(word) for word in words]
    done = subprocess.run(
        command, cwd=cwd, input=given, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def project() -> dict[str, Any]:
    """The metadata in pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def build(folder: Path) -> Path:
    """Build the sdist, and the wheel from the sdist; returns the wheel."""
    run(BIN / "python", "-m", "build", "--outdir", folder, ROOT)
    run(BIN / "twine", "check", "--strict", *folder.iterdir())
    [wheel] = folder.glob("*.whl")
    [sdist] = folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()

    missing = [name for name in NEEDED if name not in names]
    foreign = sorted(
        name
        for name in names
        if name.split("/")[0] in FOREIGN or name.endswith((".pyc", ".sqlite"))
    )
    with tarfile.open(sdist) as archive:
        heads = {name.split("/")[1] for name in archive.getnames() if "/" in name}

    missing += [name for name in ("README.md", "LICENSE", "docs", "examples") if name not in heads]
    if missing or foreign:
        sys.exit(f"missing: {missing}; does not belong there: {foreign}")

    # The registry looks for this line in the package's page, in order to know that the package and
    # the server have the same owner.
    if f"mcp-name: {NAMESPACE}/ideabridge" not in metadata:
        sys.exit(f"README.md: expected the comment `mcp-name: {NAMESPACE}/ideabridge`")

    return wheel


def bundle(folder: Path, wheel: Path) -> Path:
    """Pack the desktop bundle, which holds the wheel; uv installs what the wheel needs when the
    bundle is installed.
    """
    meta = project()
    inner = folder / "bundle"
    inner.mkdir()
    shutil.copy(wheel, inner)
    (inner / "server.py").write_text(
        '"""Starts the server; a host uses the command in manifest.json."""\n\n'
        "from ideabridge.server.main import main\n\nmain()\n",
        encoding="utf-8",
    )
    (inner / "pyproject.toml").write_text(
        f'[project]\nname = "ideabridge-bundle"\nversion = "{meta["version"]}"\n'
        f'requires-python = "{meta["requires-python"]}"\ndependencies = ["ideabridge"]\n\n'
        "[tool.uv]\npackage = false\n\n[tool.uv.sources]\nideabridge = { "
        f'path = "{wheel.name}" }}\n',
        encoding="utf-8",
    )
    manifest = {
        "manifest_version": "0.4",
        "name": "ideabridge",
        "display_name": "ideabridge",
        "version": meta["version"],
        "description": meta["description"],
        "author": {"name": "ideabridge"},
        "license": meta["license"],
        "keywords": meta["keywords"],
        "server": {
            "type": "uv",
            "entry_point": "server.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", "server.py", "serve"],
            },
        },
        "tools_generated": True,
        "prompts_generated": True,
        "compatibility": {
            "platforms": ["linux", "darwin"],
            "runtimes": {"python": meta["requires-python"]},
        },
    }
    (inner / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    packed = folder / f"ideabridge-{meta['version']}.mcpb"
    run("node", MCPB, "validate", inner / "manifest.json")
    run("node", MCPB, "pack", inner, packed)
    shutil.rmtree(inner)
    return packed


def start(folder: Path, packed: Path) -> str:
    """Start the packed bundle as a host does; returns the name and version with which it
    answers `initialize`.
    """
    inner = folder / "unpacked"
    run("node", MCPB, "unpack", packed, inner)
    manifest = json.loads((inner / "manifest.json").read_text(encoding="utf-8"))
    command = manifest["server"]["mcp_config"]
    words = [word.replace("${__dirname}", str(inner)) for word in command["args"]]
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "dist", "version": "1"},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    store = folder / "dist.sqlite"
    said = run(
        BIN / command["command"],
        *words,
        "--store",
        store,
        cwd=folder,
        given=json.dumps(message) + "\n",
    )
    server = json.loads(said.splitlines()[0])["result"]["serverInfo"]
    shutil.rmtree(inner)
    for one in folder.glob("dist.sqlite*"):
        one.unlink()

    return f"{server['name']} {server['version']}"


def registry(folder: Path) -> Path:
    """Write server.json, and validate it."""
    meta = project()
    server = {
        "$schema": SCHEMA,
        "name": f"{NAMESPACE}/ideabridge",
        "title": "ideabridge",
        "description": (
            "One MCP server before all your tools: plans run by data flow, and "
            "every run becomes a tool."
        ),
        "version": meta["version"],
        "repository": {"url": meta["urls"]["Homepage"], "source": "github"},
        "packages": [
            {
                "registryType": "pypi",
                "identifier": meta["name"],
                "version": meta["version"],
                "runtimeHint": "uvx",
                "packageArguments": [{"type": "positional", "value": "serve"}],
                "transport": {"type": "stdio"},
            }
        ],
    }
    alone = folder / "registry"
    alone.mkdir()
    (alone / "server.json").write_text(json.dumps(server, indent=2) + "\n", encoding="utf-8")
    run(BIN / "skillsaw", "lint", "--strict", alone)
    shutil.move(alone / "server.json", folder / "server.json")
    shutil.rmtree(alone)
    return folder / "server.json"


def examples() -> str:
    """Check the examples for Compose and Kubernetes; returns what has checked them."""
    here = Path(__file__).parent
    with tempfile.NamedTemporaryFile("w", suffix=".env", encoding="utf-8") as values:
        values.write("PGPASSWORD=anything\n")
        values.flush()
        run(
            BIN / "docker-compose",
            "--env-file",
            values.name,
            "-f",
            here / "compose.yaml",
            "config",
            "--quiet",
        )

    run(BIN / "kubernetes-validate", "--strict", "--quiet", here / "kubernetes.yaml")
    compose = run(BIN / "docker-compose", "version", "--short").strip()
    return (
        f"valid for Compose {compose} and Kubernetes "
        f"{metadata.version('kubernetes-validate').rpartition('.')[0]}"
    )


def main() -> None:
    """Build and check everything."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begun = time.monotonic()
    wheel = build(folder)
    version = run(BIN / "uvx", "--isolated", "--from", wheel, "ideabridge", "--version").strip()
    if version != f"ideabridge {project()['version']}":
        sys.exit(f"the installed wheel says that it is {version!r}")

    print(f"{wheel.name}: checked, installed with uvx, and started ({version})")
    print(f"compose.yaml and kubernetes.yaml: {examples()}")
    print(f"{registry(folder).name}: valid against {SCHEMA.rpartition('/schemas/')[2]}")
    if MCPB.is_file() and shutil.which("node"):
        packed = bundle(folder, wheel)
        print(
            f"{packed.name}: {packed.stat().st_size:,} bytes, installed with uv, answers "
            f"as {start(folder, packed)}"
        )
    else:
        print("no desktop bundle: it needs node, and `make npm`", file=sys.stderr)

    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
