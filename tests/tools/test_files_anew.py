"""Tool files that are loaded again while the code of an earlier load may run."""

import sys
import threading
from pathlib import Path

import pytest

from ideabridge.tools import Toolbox, load_tool_file
from ideabridge.tools.errors import ToolFileError
from ideabridge.tools.tool_files import helpers_of, load_tool_files_anew

TOOLS = """
from ideabridge.tools import tool
import {helper}

@tool
async def grade() -> str:
    return {helper}.GRADE
"""


class Files:
    """A tool file with a module of its own folder."""

    def __init__(self, folder: Path) -> None:
        self.helper = f"helper_{folder.name}"
        self.tools = folder / "grading.py"
        self.module = folder / f"{self.helper}.py"
        self.module.write_text("GRADE = 'A'\n")
        self.tools.write_text(TOOLS.format(helper=self.helper))

    def load_anew(self, *others: Path) -> dict[str, Toolbox | ToolFileError]:
        return load_tool_files_anew([(str(path), None) for path in (self.tools, *others)])


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


pytestmark = pytest.mark.anyio


async def grade_of(toolbox: Toolbox | ToolFileError) -> object:
    assert isinstance(toolbox, Toolbox)
    return await toolbox.activity("grade").run({}, None)  # pyright: ignore[reportArgumentType]


async def test_a_module_of_the_folder_is_imported_again_beside_the_old_one(files: Files) -> None:
    before = load_tool_file(files.tools)
    files.module.write_text("GRADE = 'B'\n")

    loaded = files.load_anew()[str(files.tools)]

    assert await grade_of(loaded) == "B"
    assert await grade_of(before) == "A"
    assert helpers_of(files.tools.parent) == [files.module]


async def test_files_of_one_folder_share_its_modules(files: Files) -> None:
    other = files.tools.with_name("marking.py")
    other.write_text(files.tools.read_text().replace("async def grade", "async def mark"))
    load_tool_file(files.tools)
    load_tool_file(other)
    files.module.write_text("GRADE = []\n")

    loaded = files.load_anew(other)

    first, second = loaded.values()
    assert isinstance(first, Toolbox)
    assert isinstance(second, Toolbox)
    assert sys.modules[files.helper].GRADE == []


def test_a_file_that_fails_leaves_the_modules_of_its_folder(files: Files) -> None:
    load_tool_file(files.tools)
    before = sys.modules[files.helper]
    files.module.write_text("GRADE = \n")

    error = files.load_anew()[str(files.tools)]

    assert isinstance(error, ToolFileError)
    assert "SyntaxError" in str(error)
    assert sys.modules[files.helper] is before


def test_what_nobody_waits_for_any_more_leaves_the_old_modules(files: Files) -> None:
    load_tool_file(files.tools)
    before = sys.modules[files.helper]
    load_tool_files_anew([(str(files.tools), None)], is_wanted=lambda: False)
    assert sys.modules[files.helper] is before


def test_modules_of_others_are_not_imported_again(files: Files) -> None:
    files.tools.write_text("import json\n" + files.tools.read_text())
    load_tool_file(files.tools)
    json = sys.modules["json"]
    files.load_anew()
    assert sys.modules["json"] is json
    assert files.module in helpers_of(files.tools.parent)


def test_a_load_does_not_wait_for_an_earlier_one_for_ever(files: Files, tmp_path: Path) -> None:
    started = threading.Event()
    release = threading.Event()
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import sys\nstarted, release = sys.modules['events_of_a_test']\n"
        "started.set()\nrelease.wait(30)\n"
    )
    sys.modules["events_of_a_test"] = (started, release)  # pyright: ignore[reportArgumentType]
    thread = threading.Thread(target=load_tool_files_anew, args=([(str(slow), None)],))
    thread.start()
    try:
        assert started.wait(10)
        error = files.load_anew()[str(files.tools)]
        assert isinstance(error, ToolFileError)
        assert "still being imported" in str(error)
    finally:
        release.set()
        thread.join()
        del sys.modules["events_of_a_test"]


async def test_folders_have_their_own_modules_of_one_name(tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        (folder / "grading.py").write_text(TOOLS.format(helper="helper_of_many"))
        (folder / "helper_of_many.py").write_text(f"GRADE = {folder.name!r}\n")

    tools = [folder / "grading.py" for folder in folders]
    assert [await grade_of(load_tool_file(file)) for file in tools] == ["first", "second"]
    assert [helpers_of(folder) for folder in folders] == [
        [folder / "helper_of_many.py"] for folder in folders
    ]

    # Whichever was imported last, each folder finds its own module again, even after a change.
    (folders[0] / "helper_of_many.py").write_text("GRADE = 'changed'\n")
    for file, grade in zip(tools, ("changed", "second"), strict=True):
        loaded = load_tool_files_anew([(str(file), None)])
        assert await grade_of(loaded[str(file)]) == grade
        assert await grade_of(load_tool_file(file)) == grade
