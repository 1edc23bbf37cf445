"""Programs of users and of the documents, checked in pyright's strict mode from outside
the source tree.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.test_docs_embedding import FENCE, ROOT
from tests.typing import user_programs

HERE = Path(__file__).parent
CHECKED = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def write_programs(folder: Path) -> int:
    """Write the Python programs of the documents into a folder; give how many there are."""
    count = 0
    for path in CHECKED:
        text = path.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            kind, _, file = match.group(1).strip().partition(" ")
            if kind == "python":
                line = text.count("\n", 0, match.start()) + 1
                (folder / (file or f"{path.stem.lower()}_{line}.py")).write_text(
                    match.group(2), encoding="utf-8"
                )
                count += 1

    return count


def test_programs_pass_the_strict_checker_and_mistakes_do_not(tmp_path: Path) -> None:
    assert write_programs(tmp_path) > 15
    (tmp_path / "user_programs.py").write_bytes((HERE / "user_programs.py").read_bytes())
    mistakes = (HERE / "mistakes.py.txt").read_text(encoding="utf-8")
    (tmp_path / "mistakes.py").write_text(mistakes, encoding="utf-8")
    settings = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "reportMissingTypeStubs": False,
        "include": ["."],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [
        "-m",
        "basedpyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "-p",
        str(tmp_path),
    ]
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    told: list[dict[str, Any]] = json.loads(done.stdout)["generalDiagnostics"]
    found: dict[str, set[int]] = {}
    unexpected: list[str] = []
    for one in told:
        name = Path(one["file"]).name
        line = one["range"]["start"]["line"] + 1
        found.setdefault(name, set()).add(line)
        if name != "mistakes.py":
            unexpected.append(f"{name}:{line}: {one['message']}")

    assert unexpected == []
    wrong = {
        number for number, line in enumerate(mistakes.split("\n"), 1) if line.endswith("# wrong")
    }
    assert found.get("mistakes.py", set()) == wrong


def test_user_programs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert anyio.run(user_programs.plans) == user_programs.Line(n=2, line="Ada, Grace")
    first, *others = user_programs.configurations()
    assert first.modules["time"].command == "python"
    assert [one.thought_process for one in others] == [True, False, False]
    assert anyio.run(user_programs.approvals) == ["hello, Ada", "good day, Ada"]
    assert anyio.run(user_programs.minds) == [1, {"n": 0, "line": ""}]
    assert anyio.run(user_programs.sessions) == [2.5, 5.0, 2.5, "runtime"]
    assert anyio.run(user_programs.single_calls) == [2.5] * 7
    assert anyio.run(user_programs.function_minds) == [1, 7, 1]
    assert anyio.run(user_programs.publishing) == "Alan"
    assert user_programs.scripts() == ["Ada, Grace", 2, 5.0, "template", 2.5, 2.5, 1, "plan"]


def test_a_name_has_one_place_to_import_it_from() -> None:
    listed = {"README.md": "", **{str(path): path.read_text(encoding="utf-8") for path in CHECKED}}
    allowed = re.compile(r"^from ideabridge\.(bridge|bridge\.sync|tools) import ", re.MULTILINE)
    for name, text in listed.items():
        assert len(re.findall(r"^from ideabridge\.", text, re.MULTILINE)) == len(
            allowed.findall(text)
        ), name


EVENTS = ["call_started 0 count", "count: 2", "call_started 1 join", "join: Ada, Grace", "done"]


async def test_events_tell_the_tool(anyio_backend: Callable[[], object]) -> None:
    async with user_programs.Bridge() as bridge:
        seen = await user_programs.events(await bridge.run_plan(user_programs.PLAN))
    assert sorted(seen) == sorted(EVENTS)


pytestmark = pytest.mark.anyio
