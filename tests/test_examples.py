"""The examples run, over real stdio, and do what they say."""

import subprocess
from pathlib import Path

import pytest

from tests import preloaded

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "turns_mind.py",
            [
                "turn 0: refused: ",
                "unknown tool 'cuont'. Did you mean 'count'?",
                "done {'number': 3, 'line': 'Ada, Grace, Barbara'}",
            ],
        ),
        ("sampling_mind.py", ["MCP 2025-11-25", "MCP 2026-07-28", "done: 3, mind: sampling"]),
        (
            "recorded_mind.py",
            ["recorded: 2", "failed: no recorded solution answers", '+        "Alan"'],
        ),
    ],
)
def test_an_example_does_what_it_says(name: str, lines: list[str], tmp_path: Path) -> None:
    command = [preloaded.interpreter(tmp_path), EXAMPLES / name]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    for line in lines:
        assert line in done.stdout
