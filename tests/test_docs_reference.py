"""docs/reference.md lists every public name, and the documents and examples import
only public names.
"""

import ast
import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ideabridge.tools import builtin_toolbox
from tests import reference

ROOT = Path(__file__).parent.parent
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PROGRAM = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MENTION = re.compile(r"\b(?:from|import) (ideabridge\.[\w.]+)")


def listed() -> dict[str, list[str]]:
    """The names in the tables of the page, by package."""
    found: dict[str, list[str]] = {}
    package = ""
    for line in (ROOT / "docs" / "reference.md").read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"## `([\w.]+)`", line):
            package = heading.group(1)
        elif line.startswith("| `"):
            found.setdefault(package, []).extend(re.findall(r"`(\w+)`", line.split("|")[1]))

    return found


def imported(text: str) -> list[tuple[str, str]]:
    """(package, name) of every import from ideabridge in a program."""
    found: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ideabridge"):
            found.extend((node.module or "", name.name) for name in node.names)
        elif isinstance(node, ast.Import):
            found.extend(
                (name.name, "") for name in node.names if name.name.startswith("ideabridge")
            )

    return found


@pytest.mark.parametrize("package", ["ideabridge.bridge", "ideabridge.tools"])
def test_the_page_lists_every_public_name_once(package: str) -> None:
    module: Any = importlib.import_module(package)
    assert sorted(listed()[package]) == sorted(module.__all__)


def test_every_listed_name_is_there() -> None:
    missing = [
        f"{package}.{name}"
        for package, names in listed().items()
        for name in names
        if not hasattr(importlib.import_module(package), name)
    ]
    assert missing == []


def test_documents_and_examples_import_only_public_names() -> None:
    programs = {
        **{
            path.name: path.read_text(encoding="utf-8")
            for path in sorted((ROOT / "examples").glob("*.py"))
        },
        **{
            f"{path.name}:{match.start()}": match.group(1)
            for path in DOCUMENTS
            for match in PROGRAM.finditer(path.read_text(encoding="utf-8"))
        },
    }
    public = listed()
    wrong = [
        f"{place}: from {package} import {name}"
        for place, text in programs.items()
        for package, name in imported(text)
        if name not in public.get(package, [])
    ]
    assert wrong == []


def test_documents_mention_no_deeper_import() -> None:
    found = {
        f"{path.name}: {package}"
        for path in DOCUMENTS
        for package in MENTION.findall(path.read_text(encoding="utf-8"))
        if package not in listed()
    }
    assert found == set()


def test_every_page_is_in_the_navigation_and_in_llms_txt() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert set(re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)) == pages
    listed_for_models = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(([^)]+)\)", listed_for_models)) == pages - {"index.md"}


@pytest.mark.parametrize("name", reference.FILES)
def test_what_comes_from_the_code_is_as_the_code_is(name: str) -> None:
    committed = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert committed == reference.content(name), "write it again with `python -m tests.reference`"


def test_the_path_of_one_call_names_functions_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("\n## The path of one call\n")[2].partition("\n## ")[0]
    named = re.findall(r"`([A-Za-z_.]+)`\s+in\s+`((?:bridge|server)/[\w/]+\.py)`", section)
    assert len(named) > 25
    missing = [f"{name} in {path}" for name, path in named if name not in defined(path)]
    assert missing == []


@cache
def defined(path: str) -> set[str]:
    """The functions and classes of a file, and the methods as `Class.method`."""
    tree = ast.parse(in_package(path).read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (
                one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            )
            names.update(f"{node.name}.{method.name}" for method in methods)

    return names


def where_to_change_what() -> list[str]:
    """The rows of the table in CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("\n## Where to change what\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 12
    return rows


def files_of(row: str) -> list[Path]:
    paths = re.findall(r"`((?:tools|bridge|server|tests)/[\w./-]+)`", row)
    return [ROOT / path if path.startswith("tests/") else in_package(path) for path in paths]


def test_where_to_change_what_names_files_that_exist() -> None:
    places = [place for row in where_to_change_what() for place in files_of(row)]
    assert len(places) > 25
    assert [str(place) for place in places if not place.exists()] == []


def test_where_to_change_what_names_what_is_in_its_files() -> None:
    missing: list[str] = []
    for row in where_to_change_what():
        where = row.split("|", 2)[2]
        files = [place for place in files_of(row) if place.suffix == ".py"]
        code = "\n".join(file.read_text(encoding="utf-8") for file in files)
        for name in re.findall(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)`", where):
            if re.search(rf"\b{name.split('.')[-1]}\b", code) is None:
                missing.append(f"{name}: {row[:60]}")

    assert missing == []


def test_documents_list_every_built_in_tool() -> None:
    names = builtin_toolbox().tools.keys()
    listed = ", ".join(f"`{name}`" for name in names)
    for file in ("glossary.md", "reference.md"):
        assert listed in (ROOT / "docs" / file).read_text(encoding="utf-8"), file


def in_package(path: str) -> Path:
    """The place of `bridge/loop/tick.py`, as the documents write it."""
    return ROOT / path.partition("/")[0] / "ideabridge" / path


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
