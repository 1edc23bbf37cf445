"""Parse Python source text into a syntax tree."""

from __future__ import annotations

import ast
import threading
import warnings
from typing import Literal, overload

_LOCK = threading.Lock()


@overload
def parse_python(text: str) -> ast.Module: ...


@overload
def parse_python(text: str, mode: Literal["eval"]) -> ast.Expression: ...


def parse_python(text: str, mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """Return the syntax tree of source text, without warnings about its content.

    In CPython 3.11, all threads share a single counter for the depth of the tree. If two threads
    parse at the same time, CPython can raise `SystemError`, so the threads take turns. Libraries
    that parse in other threads do not take turns, so the text is parsed again after such an error.

    Args:
        text: the source text.
        mode: `exec` for statements, `eval` for one expression.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as for `ast.parse`.
    """
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text, mode=mode)
        except SystemError:
            return ast.parse(text, mode=mode)
