"""The folder in which a server starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge.configuration import load_configuration, module_fingerprint
from ideabridge.server.main import main
from tests.trusting import write_own, write_trusted

OWN_SERVER = Path(__file__).with_name("own_server.py")


def entry(*arguments: str, **keys: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", str(OWN_SERVER), *arguments], **keys}


def started_in(name: str, capsys: pytest.CaptureFixture[str], *options: str) -> Path:
    capsys.readouterr()
    assert main(["servers", "test", name, "where", "--json", *options]) == 0
    return Path(json.loads(capsys.readouterr().out)["result"]).resolve()


def test_a_server_of_the_users_own_file_starts_in_the_project(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = write_own({"mcpServers": {"mine": entry(), "pinned": entry(cwd=".")}})
    assert started_in("mine", capsys) == project.resolve()
    assert started_in("pinned", capsys) == own.parent.resolve()
    other = tmp_path / "other"
    other.mkdir()
    assert started_in("mine", capsys, "--project", str(other)) == other.resolve()


def test_a_server_of_a_project_starts_beside_its_file(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trusted(project, {"mcpServers": {"theirs": entry()}})
    assert started_in("theirs", capsys) == project.resolve()
    elsewhere = tmp_path / "elsewhere" / "servers.json"
    elsewhere.parent.mkdir()
    elsewhere.write_text(json.dumps({"mcpServers": {"theirs": entry()}}), encoding="utf-8")
    found = started_in("theirs", capsys, "--config", str(elsewhere))
    assert found == elsewhere.parent.resolve()


@pytest.mark.parametrize(
    "keys",
    [
        {"args": ["server.py"]},
        {"args": ["--script=server.py"]},
        {"env": {"DATABASE": "server.py"}},
    ],
)
def test_a_file_beside_the_users_file_is_never_replaced_by_one_of_the_project(
    keys: dict[str, Any], project: Path
) -> None:
    own = write_own({"mcpServers": {"mine": {"command": "x", **keys}}})
    (project / "server.py").write_text("", encoding="utf-8")
    assert load_configuration(project=project).working_folder_of("mine") == project
    (own.parent / "server.py").write_text("", encoding="utf-8")
    assert load_configuration(project=project).working_folder_of("mine") == own.parent


def test_a_run_is_bound_to_the_folder_in_which_its_server_started(
    project: Path, tmp_path: Path
) -> None:
    write_own(
        {"mcpServers": {"mine": entry(), "pinned": entry(cwd="."), "far": {"url": "http://x"}}}
    )
    here = load_configuration(project=project)
    there = load_configuration(project=tmp_path)
    assert module_fingerprint(here, "mine") != module_fingerprint(there, "mine")
    assert module_fingerprint(here, "pinned") == module_fingerprint(there, "pinned")
    assert module_fingerprint(here, "far") == module_fingerprint(there, "far")


def test_a_waiting_run_continues_only_where_its_server_ran(
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_own({"mcpServers": {"mine": entry()}})
    plan = project / "plan.json"
    call = {"_tool": "save", "text": "kept", "_outputPath": "saved"}
    plan.write_text(json.dumps({"calls": [call]}), encoding="utf-8")
    assert main(["run", str(plan)]) == 4
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    capsys.readouterr()
    main(["approvals", "decide", "approve", "last"])
    assert "if the run began in another project folder, name it with" in capsys.readouterr().err
    assert main(["approvals", "decide", "approve", "last", "--project", str(project)]) == 0
    assert (project / "saved.txt").read_text(encoding="utf-8") == "kept"
    assert list(other.iterdir()) == []
