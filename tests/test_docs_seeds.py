"""Every statement in docs/seeds.md is held by tests that exist, or is a decision."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "seeds.md"
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
MODULE = re.compile(r"`([\w/]+\.py)`")


def rows() -> list[tuple[str, str, str, str]]:
    return ROW.findall(PAGE.read_text(encoding="utf-8"))


@cache
def names_in(path: str) -> set[str]:
    """The names of the tests in a file."""
    if not (ROOT / path).is_file():
        return set()
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return {function.name for function in functions}


def test_the_statements_are_numbered_and_each_is_held() -> None:
    found = rows()
    lines = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| \d", line)
    ]
    assert len(found) == len(lines), "a row has another number of cells"
    assert [int(number) for number, *_ in found] == list(range(1, len(found) + 1))
    assert [number for number, _, _, held in found if not TEST.search(held)] == []


def test_the_tests_and_modules_that_are_named_exist() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [
        f"{path}::{name}" for path, name in TEST.findall(text) if name not in names_in(path)
    ] == []
    modules = {module for _, _, where, _ in rows() for module in MODULE.findall(where)}
    folders = (ROOT / "bridge/ideabridge/bridge", ROOT / "tools/ideabridge")
    assert [
        module for module in modules if not any((folder / module).is_file() for folder in folders)
    ] == []
