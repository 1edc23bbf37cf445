"""Files of tools."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ideabridge.tools import load_tool_file
from ideabridge.tools.errors import ToolFileError
from tests.tools.context import RecordingContext

pytestmark = pytest.mark.anyio

GOOD = """\
from __future__ import annotations
import beside_it
from pydantic import BaseModel
from ideabridge.tools import Activity, Tool, Toolbox, tool
from other_tools import hidden, shown
__all__ = ["go", "shown"]
print("on the way")
class Point(BaseModel):
    x: int
@tool(read_only=True)
def go(point: Point) -> int:
    'Go.'
    return point.x + beside_it.VALUE
idle = Tool("idle")
box = Toolbox(Tool("boxed"))
"""
OTHER = """\
from ideabridge.tools import tool
@tool
def hidden() -> None: ...
@tool
def shown() -> None: ...
"""


@pytest.fixture(autouse=True)
def untouched_imports() -> Iterator[None]:
    path = list(sys.path)
    modules = set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("_ideabridge_tools_") or name in ("beside_it", "other_tools"):
            del sys.modules[name]


async def test_a_file_gives_its_tools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "beside_it.py").write_text("VALUE = 40")
    (tmp_path / "other_tools.py").write_text(OTHER)
    file = tmp_path / "tools.py"
    file.write_text(GOOD)
    toolbox = load_tool_file(file)
    assert sorted(toolbox.tools) == ["boxed", "go", "idle", "shown"]
    assert await toolbox.activity("go").run({"point": {"x": 2}}, RecordingContext()) == 42
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "on the way" in printed.err


def test_a_file_is_read_afresh(tmp_path: Path) -> None:
    file = tmp_path / "tools.py"
    for name in ("one", "two"):
        file.write_text(f"from ideabridge.tools import Tool\nx = Tool('{name}')")
        assert list(load_tool_file(file).tools) == [name]


def test_a_module_that_was_written_after_a_failed_import_is_found(tmp_path: Path) -> None:
    file = tmp_path / "tools.py"
    file.write_text("import beside_it\nfrom ideabridge.tools import Tool\nx = Tool('x')")
    with pytest.raises(ToolFileError, match="No module named 'beside_it'"):
        load_tool_file(file)

    # As on a file system whose times are coarse.
    before = tmp_path.stat()
    (tmp_path / "beside_it.py").touch()
    os.utime(tmp_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert list(load_tool_file(file).tools) == ["x"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1", "tools.py defines no tools; decorate a function with @tool"),
        ("x = 1\ndef f(:", "tools.py, line 2: SyntaxError: "),
        ("import no_such_module_here", "tools.py, line 1: ModuleNotFoundError: No module named"),
        ("def f():\n    raise ValueError('a\\nb')\nf()", "tools.py, line 2: ValueError: a b"),
        ("raise SystemExit(3)", "tools.py, line 1: SystemExit: 3"),
        (
            "from ideabridge.tools import tool\n\n@tool\ndef f(a): ...",
            "tools.py: f (tools.py, line 3): parameter 'a' has no annotation",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_told_in_one_line(
    tmp_path: Path, source: str, message: str
) -> None:
    file = tmp_path / "tools.py"
    file.write_text(source)
    with pytest.raises(ToolFileError) as caught:
        load_tool_file(file)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ToolFileError, match=r"none\.py cannot be read: No such file"):
        load_tool_file(tmp_path / "none.py")
