"""Python text is parsed by several threads."""

from __future__ import annotations

import ast
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ideabridge.tools.syntax import parse_python

DEEP = f"x = {'[' * 40}1{']' * 40}\n" * 200


def test_many_threads_parse_at_once() -> None:
    with ThreadPoolExecutor(8) as threads:
        trees = list(threads.map(parse_python, [DEEP] * 32))

    assert {len(tree.body) for tree in trees} == {200}


def test_an_expression_is_told_from_statements() -> None:
    assert isinstance(parse_python("1 + 2", "eval"), ast.Expression)
    with pytest.raises(SyntaxError):
        parse_python("x = 1", "eval")


def test_another_parser_in_the_same_moment_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = ast.parse
    errors = [SystemError("AST constructor recursion depth mismatch (before=120, after=34)")]

    def parse_beside_another_thread(*arguments: Any, **options: Any) -> ast.AST:
        # A library that parses in another thread does not take turns. The error is rare.
        if errors:
            raise errors.pop()
        return parse(*arguments, **options)

    monkeypatch.setattr(ast, "parse", parse_beside_another_thread)
    assert len(parse_python("x = 1").body) == 1
