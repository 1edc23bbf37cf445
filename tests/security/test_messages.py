"""Messages that cost far more than their size: millions of empty lists, from clients
and from modules.
"""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from ideabridge.server.transports.quotas import MAX_MESSAGE_VALUES
from ideabridge.tools.encoding import (
    JSON,
    MAX_VALUES,
    count_encoded_values,
    count_values,
    decode,
    encode,
)
from ideabridge.tools.errors import LimitExceededError
from tests.server.conftest import shared_url as shared_url
from tests.server.serving import configured
from tests.server.test_bad_input import Raw

pytestmark = pytest.mark.anyio

LISTS = 2_600_000
NEW = "2026-07-28"


def message(value: str, **extra: Any) -> bytes:
    """A call of `run_plan` with JSON text as a part of its input."""
    params: dict[str, Any] = {
        "name": "run_plan",
        "arguments": {"calls": [], "input": {"x": "HERE"}},
        **extra,
    }
    call: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    return json.dumps(call).replace('"HERE"', value).encode()


def lists(count: int) -> str:
    return "[" + ",".join(["[]"] * count) + "]"


def test_eight_megabytes_of_empty_lists_are_refused_over_stdio(tmp_path: Path) -> None:
    raw = Raw(configured(tmp_path))
    raw.send(message(lists(LISTS)) + b"\n")
    told = raw.answer()
    assert told["id"] == 7
    assert told["result"]["isError"]
    assert f"more than {MAX_MESSAGE_VALUES:,} JSON values" in told["result"]["content"][0]["text"]
    # Text may contain any number of brackets and commas.
    raw.send(message(json.dumps(lists(LISTS))) + b"\n")
    assert raw.answer()["result"]["structuredContent"]["status"] == "done"
    raw.end()


@pytest.mark.parametrize(("value", "count"), [("[]", LISTS), ("1", 4_000_000), ('""', LISTS)])
def test_millions_of_values_are_refused_over_http(value: str, count: int, shared_url: str) -> None:
    text = "[" + f"{value}," * count + "1]"
    meta = {
        "io.modelcontextprotocol/protocolVersion": NEW,
        "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": NEW,
        "mcp-method": "tools/call",
        "mcp-name": "run_plan",
    }
    request = urllib.request.Request(shared_url, message(text, _meta=meta), headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        told = json.loads(answer.read())

    assert told["id"] == 7
    assert f"more than {MAX_MESSAGE_VALUES:,} JSON values" in told["result"]["content"][0]["text"]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[]", 1),
        ("[1,2,3]", 3),
        ('{"a":[1,{"b":2}],"c":"x,[{"}', 5),
        (r'["\",[", "\\", "\\\"[["]', 3),
        ('"[[[[,,,,{{{{"', 0),
    ],
)
def test_values_are_counted_outside_of_texts(text: str, count: int) -> None:
    # Brackets and commas alone would exceed the limit, so that strings must be examined.
    assert count_values(text.encode(), count) == count
    assert count_values(text.encode(), 0) in (0, count, 1)


COUNTED: list[JSON] = [
    1,
    "[,{",
    [],
    [1, [], {}, ["[]"]],
    {"a": [1, {"b,": '"\\"'}], "c": {}},
    [{"a": []}],
]


@pytest.mark.parametrize("value", COUNTED)
def test_the_values_of_a_value_are_counted_exactly(value: JSON) -> None:
    assert count_encoded_values(encode(value)) == number_of_values(value)


def number_of_values(value: JSON) -> int:
    members = list(value.values()) if isinstance(value, dict) else value
    return 1 + (sum(map(number_of_values, members)) if isinstance(members, list) else 0)


def test_text_that_is_read_as_json_is_bounded_as_well() -> None:
    with pytest.raises(LimitExceededError, match=f"contains more than {MAX_VALUES:,} values"):
        decode("[" + "1," * MAX_VALUES + "1]")
