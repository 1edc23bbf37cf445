"""Python text is parsed by several threads."""

from __future__ import annotations

import ast
from concurrent.futures import ThreadPoolExecutor

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
