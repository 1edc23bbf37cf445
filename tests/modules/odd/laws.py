"""What holds for every odd server, whatever it does."""

from __future__ import annotations

import re
from typing import Any, cast

LIBRARY = re.compile(
    r"pydantic|validation "
    r"error|ValidationError|httpx|httpcore|anyio|ExceptionGroup|TaskGroup|Traceback|JSONDecodeError"
    r"|jsonschema|orjson|jsonrpc_message|KeyError|TypeError|AttributeError|ValueError|RuntimeError|IndexError"
    r"|AssertionError|ClosedResource|BrokenResource|EndOfStream|<class '|object at "
    r"0x|Expecting value|Errno"
    r"|streaming request content|For more information check|SSEError|Failed to parse|union\["
    r"|Input should be|Field required|type=|unhandled errors",
)
"""Words of libraries and of the interpreter, which say nothing to a model or a person."""


def foreign_words(texts: list[str]) -> list[str]:
    """The texts that hold words of a library."""
    return [text for text in texts if LIBRARY.search(text)]


def leaves(value: Any) -> list[Any]:
    """The scalars in a JSON value."""
    if isinstance(value, dict):
        return [
            leaf for member in cast("dict[str, Any]", value).values() for leaf in leaves(member)
        ]
    if isinstance(value, list):
        return [leaf for member in cast("list[Any]", value) for leaf in leaves(member)]
    return [value]
