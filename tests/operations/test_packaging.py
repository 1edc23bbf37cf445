"""The Dockerfile and the unit of systemd: what they name exists, and what they start serves."""

from __future__ import annotations

import fnmatch
import getpass
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx2
import pytest

from tests import preloaded
from tests.server.serving import configured, listening

from .containers import DOCKERFILE, ROOT, builder, container, image, image_settings

UNIT = ROOT / "packaging" / "ideabridge.service"
PROGRAM = Path(sys.executable).parent / "ideabridge"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


# -- the container ---------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """(instruction, its words) of the Dockerfile, in order."""
    text = re.sub(
        r"^#.*\n", "", DOCKERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE
    ).replace("\\\n", " ")
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    return [(line[0], " ".join(line[1].split())) for line in lines]


def copied() -> list[str]:
    """What the Dockerfile copies from the working copy."""
    sources: list[str] = []
    for name, words in instructions():
        if name == "COPY" and not words.startswith("--from="):
            sources += words.split()[:-1]
    return sources


def told(name: str) -> list[str]:
    """The words of an instruction that is a list in JSON."""
    [words] = [words for one, words in instructions() if one == name]
    return json.loads(words[words.index("[") :])


def test_a_wheel_is_built_from_what_the_image_copies_and_nothing_more(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in copied():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target)

    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=source, check=True
    )
    [wheel] = (source / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())

    assert {
        "ideabridge/server/main.py",
        "ideabridge/bridge/bridge.py",
        "ideabridge/tools/decorator.py",
    } <= names
    assert {
        "ideabridge/server/ideabridge.schema.json",
        "ideabridge/server/demo/git_history.json",
    } <= names


def test_the_builder_is_sent_what_the_image_copies_and_nothing_else() -> None:
    lines = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    kept = [line[1:] for line in lines if line.startswith("!")]
    assert sorted(kept) == sorted(name for name in copied() if name != ".")
    left_out = [line for line in lines if line and line[0] not in "!#"]
    assert left_out[0] == "*"
    assert any(fnmatch.fnmatch("tools/ideabridge/__pycache__", one) for one in left_out[1:])


def test_the_image_starts_a_server_as_a_user_without_rights(tmp_path: Path) -> None:
    users = [words for name, words in instructions() if name == "USER"]
    assert len(users) == 1
    assert all(int(one) >= 10000 for one in users[0].split(":"))
    bases = [words.split()[0] for name, words in instructions() if name == "FROM"]
    assert bases == ["python:3.13-slim"] * 2
    # Start what the image starts, with its settings, but on another port and in another folder.
    assert told("ENTRYPOINT") == ["ideabridge"]
    words = [word.replace("0.0.0.0:8787", "127.0.0.1:0") for word in told("CMD")]
    assert "127.0.0.1:0" in words
    [settings] = [words for name, words in instructions() if name == "ENV"]
    environment = dict(
        one.split("=", 1) for one in settings.replace("/data", str(tmp_path)).split()
    )
    environment["PATH"] = os.environ["PATH"]
    with listening([str(PROGRAM), *words], **environment) as url:
        check = [word.replace("127.0.0.1:8787", url.split("/")[2]) for word in told("HEALTHCHECK")]
        assert check[0] == "python"
        subprocess.run([sys.executable, *check[1:]], check=True, timeout=10)
        assert (tmp_path / "ideabridge" / "ideas.sqlite").exists()

    gone = subprocess.run(
        [sys.executable, *check[1:]], check=False, capture_output=True, timeout=10
    )
    assert gone.returncode == 1


@pytest.mark.long
def test_the_image_is_built_and_serves() -> None:
    name, why = builder()
    if not name:
        pytest.skip(f"no builder of containers works here: {why}")

    with image() as tag:
        assert image_settings(name, tag)["User"] == "10001:10001"
        with container(tag, ["users", "add", "alice", "--json"]) as (served, said):
            token = json.loads(said)["token"]["text"]
            url = f"http://127.0.0.1:{served.port}"
            with httpx2.Client(transport=httpx2.HTTPTransport(retries=8), timeout=20) as http:
                assert http.get(f"{url}/healthz").json() == {"status": "ok"}
                assert http.post(f"{url}/mcp", json=INITIALIZE).status_code == 401
                headers = {
                    "authorization": f"Bearer {token}",
                    "accept": "application/json, text/event-stream",
                }
                answer = http.post(f"{url}/mcp", json=INITIALIZE, headers=headers)
                assert '"name":"ideabridge"' in answer.text

            assert served.run("id", "-u") == "10001"
            check = [word.replace(":8787", f":{served.port}") for word in told("HEALTHCHECK")]
            served.run(*(check if name == "buildah" else told("HEALTHCHECK")))


# -- the service -----------------------------------------------------------------------------------


def systemd_version() -> int:
    """The version of systemd's programs; 0 without them."""
    if shutil.which("systemd-analyze") is None:
        return 0
    said = subprocess.run(
        ["systemd-analyze", "--version"], capture_output=True, text=True, check=True
    ).stdout
    found = re.match(r"systemd (\d+)", said)
    return int(found[1]) if found else 0


def started() -> list[str]:
    """The words of what the unit starts."""
    [line] = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    return shlex.split(line)


@pytest.mark.skipif(systemd_version() < 250, reason="systemd-analyze 250 or later is not installed")
def test_systemd_accepts_the_unit_and_finds_little_exposed(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    # The command checks that the program and the user exist.
    text = UNIT.read_text(encoding="utf-8").replace("/opt/ideabridge/bin/ideabridge", str(PROGRAM))
    unit.write_text(text.replace("User=ideabridge", f"User={getpass.getuser()}"), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    # A threshold of 15 means 1.5 out of 10. Without its restrictions, the unit would score 9.6.
    words = ["systemd-analyze", "security", "--offline=yes", "--threshold=15", str(UNIT)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-200:]


def test_what_the_unit_starts_serves(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    program, *words = started()
    assert program == "/opt/ideabridge/bin/ideabridge"
    places = {
        "127.0.0.1:8787": "127.0.0.1:0",
        "/etc/ideabridge/ideabridge.json": str(configuration),
    }
    assert set(places) <= set(words)
    with listening(preloaded.python(PROGRAM, *(places.get(word, word) for word in words))) as url:
        headers = {"accept": "application/json, text/event-stream", "host": "tools.example.com"}
        with httpx2.Client(timeout=20) as http:
            assert http.post(url, json=INITIALIZE, headers=headers).status_code == 200
            assert (
                http.post(
                    url, json=INITIALIZE, headers={**headers, "host": "evil.example"}
                ).status_code
                == 421
            )
