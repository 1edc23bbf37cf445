"""What is odd on our own stdin: it is answered as JSON-RPC says, and the next message is served."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from itertools import count
from typing import Any

import pytest

from tests.modules.conftest import SERVERS
from tests.server.serving import configured, served

from .laws import foreign_words

PARSE = -32700
REQUEST = -32600
METHOD = -32601
PARAMS = -32602
NUMBERS = count(1000)


class Raw:
    """`ideabridge serve`, spoken to in bytes."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"},
        }
        self.send(
            json.dumps(
                {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
            ).encode()
        )
        assert self.read()["id"] == 1
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def answers(self, line: bytes) -> list[dict[str, Any]]:
        """What is written after a line, before the answer to the next request, which
        is always served.
        """
        number = next(NUMBERS)
        self.send(line)
        self.send(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % number)
        found: list[dict[str, Any]] = []
        while (told := self.read()).get("id") != number:
            found.append(told)

        assert told["result"] == {}
        return [told for told in found if "method" not in told]


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Generator[Raw]:
    odd = {"command": sys.executable, "args": ["-I", "-S", str(SERVERS / "odd.py")]}
    server = Raw(
        served(
            configured(tmp_path_factory.mktemp("door"), mcpServers={"odd": odd}, expose=["modules"])
        )
    )
    yield server
    server.process.communicate(timeout=30)


def request(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": "ping", **members}).encode()


LINES: list[tuple[str, bytes, int | None, Any]] = [
    ("a cut line", b'{"jsonrpc":"2.0","id":7,"method":"pi', PARSE, 7),
    ("a word", b"hello", PARSE, None),
    ("a blank line", b"  ", None, None),
    ("a byte that is not UTF-8", b'{"jsonrpc":"2.0","id":7,"method":"\xff"}', METHOD, 7),
    ("a byte order mark", b"\xef\xbb\xbf" + request(), 0, 7),
    ("a lone surrogate", b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":"\\ud83d"}}', 0, 7),
    ("a number", b"5", REQUEST, None),
    ("null", b"null", REQUEST, None),
    ("an empty object", b"{}", REQUEST, None),
    ("an empty list", b"[]", REQUEST, None),
    ("an id that is null", request(id=None), REQUEST, None),
    ("an id that is a float", request(id=1.5), REQUEST, 1.5),
    ("an id that is a bool", request(id=True), REQUEST, None),
    ("an id that is an object", request(id={"a": 1}), REQUEST, None),
    ("an id that is a list", request(id=[1]), REQUEST, None),
    ("an id that is an empty text", request(id=""), 0, ""),
    ("an id that is a text", request(id="seven"), 0, "seven"),
    ("an id that is large", request(id=2**53), 0, 2**53),
    ("an id that is negative", request(id=-7), 0, -7),
    ("no version", json.dumps({"id": 7, "method": "ping"}).encode(), REQUEST, 7),
    ("another version", request(jsonrpc="1.0"), REQUEST, 7),
    ("a version that is a number", request(jsonrpc=2.0), REQUEST, 7),
    ("a method that is a number", request(method=5), REQUEST, 7),
    ("a method that is null", request(method=None), REQUEST, 7),
    ("an empty method", request(method=""), METHOD, 7),
    ("an unknown method", request(method="odd/odd"), METHOD, 7),
    ("params that are null", request(params=None), 0, 7),
    ("params that are a list", request(params=[1]), PARAMS, 7),
    ("params that are a text", request(params="x"), REQUEST, 7),
    ("more members", request(extra=1), 0, 7),
    ("an unknown notification", b'{"jsonrpc":"2.0","method":"notifications/odd"}', None, None),
    ("a notification with a list", b'{"jsonrpc":"2.0","method":"notifications/odd","params":[1]}', None, None),
    ("an odd cancellation", b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}', None, None),
    ("a cancellation of nothing",
     b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}', None, None),
    ("odd progress", b'{"jsonrpc":"2.0","method":"notifications/progress","params":"x"}', None, None),
    ("an answer to nothing", b'{"jsonrpc":"2.0","id":4711,"result":{}}', None, None),
    ("an error for nothing", b'{"jsonrpc":"2.0","id":4711,"error":{"code":1,"message":"x"}}', None, None),
    ("an odd answer to nothing", b'{"jsonrpc":"2.0","id":4711,"result":5}', None, None),
    ("a call without params", request(method="tools/call"), PARAMS, 7),
    ("a call without a name", request(method="tools/call", params={}), PARAMS, 7),
    ("a call of a number", request(method="tools/call", params={"name": 5}), PARAMS, 7),
    ("a list with an odd cursor", request(method="tools/list", params={"cursor": 5}), PARAMS, 7),
    ("a resource without uri", request(method="resources/read", params={}), PARAMS, 7),
    ("initialize again", request(method="initialize", params={}), PARAMS, 7),
]  # fmt: skip


def marked() -> list[Any]:
    return [pytest.param(*rest, id=name) for name, *rest in LINES]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("line", "code", "number"), marked())
def test_an_odd_line_is_answered_and_the_next_message_is_served(
    raw: Raw, line: bytes, code: int | None, number: Any
) -> None:
    answers = raw.answers(line)
    assert not foreign_words([json.dumps(answer) for answer in answers])
    if code is None:
        assert answers == []
        return

    (answer,) = answers
    assert answer.get("id") == number
    if code == 0:
        assert "error" not in answer
    else:
        assert answer["error"]["code"] == code, answer
