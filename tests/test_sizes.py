"""Functions and classes stay small. `sizes.txt` names those that are not, and only gets shorter."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
EXCEPTIONS: Final = ROOT / "tests" / "sizes.txt"
RULES: Final = "C901,PLR0904,PLR0913,PLR0915"
"""Complexity, public methods, parameters and statements; pyproject.toml has the limits."""
MOST: Final = 86
"""The length of the list. Whoever shortens the list lowers this number."""


def names(tree: ast.AST, outer: str = "") -> Iterator[tuple[int, str]]:
    """(line of the name, qualified name) of each function and class."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, outer + node.name
            yield from names(node, f"{outer}{node.name}.")
        elif not isinstance(node, ast.expr):
            # No expression holds a definition, and most nodes are expressions.
            yield from names(node, outer)


@cache
def too_large() -> frozenset[str]:
    """`FILE NAME RULE` of each function and class that is over a limit."""
    command = [sys.executable, "-m", "ruff", "check", ".", "--preview", "--no-cache"]
    options = ["--select", RULES, "--output-format", "json", "--exit-zero"]
    report = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, check=True)
    lines: set[str] = set()
    for problem in json.loads(report.stdout):
        path = Path(problem["filename"])
        named = dict(names(ast.parse(path.read_text(encoding="utf-8"))))
        name = named[problem["location"]["row"]]
        lines.add(f"{path.relative_to(ROOT).as_posix()} {name} {problem['code']}")
    return frozenset(lines)


def exceptions() -> list[str]:
    return EXCEPTIONS.read_text(encoding="utf-8").splitlines()


def test_functions_and_classes_are_small_but_for_named_exceptions() -> None:
    assert sorted(too_large() - set(exceptions())) == [], "divide these into named steps"


def test_the_list_of_exceptions_names_only_what_is_still_too_large() -> None:
    assert sorted(set(exceptions()) - too_large()) == [], f"take these out of {EXCEPTIONS.name}"


def test_the_list_of_exceptions_is_sorted_and_gets_no_longer() -> None:
    assert exceptions() == sorted(set(exceptions()))
    assert len(exceptions()) <= MOST


if __name__ == "__main__":  # python -m tests.test_sizes writes the list
    EXCEPTIONS.write_text("".join(f"{line}\n" for line in sorted(too_large())), encoding="utf-8")
