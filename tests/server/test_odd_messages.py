"""Odd messages of a client: each is answered as JSON-RPC says, and the others are served as if it
were not there.
"""

from __future__ import annotations

import copy
import json
import select
import subprocess
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .serving import command, configured

SECONDS = 30
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "odd", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": "hello",
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "odd", "version": "1"},
    },
}


def dumped(message: object) -> bytes:
    return json.dumps(message).encode()


class Speaker:
    """A server on stdio, spoken to in lines."""

    def __init__(self, configuration: Path, errors: Path) -> None:
        self.errors = errors
        with errors.open("wb") as file:
            self.process = subprocess.Popen(
                command(configuration),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                bufsize=0,
            )
        self._pending = b""
        self._lines: deque[bytes] = deque()

    def send(self, *lines: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(lines))

    def answers(self) -> Iterator[dict[str, Any]]:
        """What the server sends, until it sends nothing for `SECONDS`."""
        assert self.process.stdout is not None
        while True:
            while self._lines:
                yield json.loads(self._lines.popleft())
            if not select.select([self.process.stdout], [], [], SECONDS)[0]:
                return
            chunk = self.process.stdout.read(65536)
            assert chunk, f"the server has ended: {self.errors.read_text()[-2000:]}"
            *lines, self._pending = (self._pending + chunk).split(b"\n")
            self._lines.extend(lines)

    def until(self, request: object) -> list[dict[str, Any]]:
        """The answers up to that of a request, which is the last one."""
        answers: list[dict[str, Any]] = []
        for answer in self.answers():
            if "method" in answer:
                continue
            answers.append(answer)
            if answer.get("id") == request:
                return answers

        raise AssertionError(f"{request!r} is not answered; answered are {answers}")

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self.send(dumped(message) + b"\n")
        return self.until(message["id"])[-1]


@contextmanager
def speaking(folder: Path, *, modern: bool = False) -> Generator[Speaker]:
    speaker = Speaker(configured(folder), folder / "errors")
    try:
        if not modern:
            assert "result" in speaker.ask(INITIALIZE)
            speaker.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        yield speaker
        assert speaker.process.stdin is not None
        speaker.process.stdin.close()
        assert speaker.process.wait(SECONDS) == 0
        # There may be lines for dropped notifications, and a line that says how many more there
        # were.
        for line in speaker.errors.read_text().splitlines():
            assert line.startswith(("dropped 'notifications/", "... "))
    finally:
        speaker.process.kill()
        speaker.process.wait()
        for stream in (speaker.process.stdin, speaker.process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Generator[Speaker]:
    with speaking(tmp_path_factory.mktemp("odd")) as speaker:
        yield speaker


PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}


def changed(**members: Any) -> bytes:
    return dumped({**PING, **members})


def without(*names: str) -> bytes:
    return dumped({name: value for name, value in PING.items() if name not in names})


REFUSED = [
    (changed(id=None), None, -32600, "id: expected a string or an integer, found null"),
    (changed(id=True), None, -32600, "found true"),
    (changed(id={"a": 1}), None, -32600, "found an object"),
    (changed(id=[7]), None, -32600, "found a list"),
    (changed(id=1.5), 1.5, -32600, "found a number with a fraction"),
    (changed(jsonrpc="1.0"), 7, -32600, 'jsonrpc: expected "2.0"'),
    (changed(jsonrpc=2.0), 7, -32600, "jsonrpc"),
    (changed(jsonrpc=None, id=None), None, -32600, "jsonrpc"),
    (without("jsonrpc"), 7, -32600, "jsonrpc"),
    (without("method"), 7, -32600, "method: expected a string, found null"),
    (changed(method=5), 7, -32600, "method: expected a string, found a number"),
    (dumped({"jsonrpc": "2.0", "method": 1, "params": "bar"}), None, -32600, "method"),
    (changed(params="bar"), 7, -32600, "params: expected an object, found a string"),
    (changed(params=[1]), 7, -32602, "params: expected an object, found a list"),
    (changed(method="no/such"), 7, -32601, ""),
    (b"{}", None, -32600, "jsonrpc"),
    (b"5", None, -32600, "found a number"),
    (b'"text"', None, -32600, "found a string"),
    (b"null", None, -32600, "found null"),
    (b"[]", None, -32600, "the batch is empty"),
    (b"[5]", None, -32600, "found a number"),
    (b"[[]]", None, -32600, "found a list"),
    (b"no JSON", None, -32700, "cannot be read"),
    (b"Debugger attached. " + dumped(PING), None, -32700, "cannot be read"),
    (
        b'{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]',
        None,
        -32700,
        "cannot be read",
    ),
    # The id certainly belongs to the request, so its sender need not wait.
    (
        b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"na',
        7,
        -32700,
        "cannot be read",
    ),
    # Here, the id may be the beginning of a longer one, or belong to something inside.
    (b'{"jsonrpc": "2.0", "id": 7', None, -32700, "cannot be read"),
    (b'{"method": "ping", "params": {"id": 7}', None, -32700, "cannot be read"),
    # These are not ids.
    (b'{"jsonrpc": "2.0", "id": 007, "method": "ping"}', None, -32700, "cannot be read"),
    (b'{"jsonrpc": "2.0", "id": "\x01", "method": "ping"}', None, -32700, "cannot be read"),
    (
        b'{"jsonrpc": "2.0", "id": 007, "method": "ping", "params": ' + b"[" * 500,
        None,
        -32600,
        "is nested deeper than",
    ),
    (
        b'{"jsonrpc": "2.0", "id": "\xff", "method": "ping", ' + b"[" * 500,
        None,
        -32600,
        "is nested deeper than",
    ),
    (b'\xff\xfe{"\0', None, -32700, "cannot be read"),
    (b"9" * 10_000, None, -32700, "cannot be read"),
    (b"[" * 10_000, None, -32600, "is nested deeper than"),
]


@pytest.mark.parametrize(("line", "request_id", "code", "why"), REFUSED)
def test_what_cannot_be_served_is_answered_with_an_error(
    speaker: Speaker, line: bytes, request_id: object, code: int, why: str
) -> None:
    speaker.send(line, b"\n", changed(id="next"), b"\n")
    # A call may be answered after the request that follows it.
    answers = speaker.until("next")
    if len(answers) == 1:
        answers = [*speaker.until(request_id), *answers]

    [answer] = [one for one in answers if one["id"] != "next"]
    assert answer["id"] == request_id
    assert type(answer["id"]) is type(request_id)
    assert answer["error"]["code"] == code
    assert why in answer["error"]["message"]


SERVED = [
    b"\xef\xbb\xbf" + dumped(PING),
    b"\0\0" + dumped(PING) + b"\0",
    dumped(PING) + b"\r",
    b"\n \n\r\n\t" + dumped(PING),
    changed(id=7.0),
    changed(params=None),
    changed(params=[]),
    changed(params={"_meta": {"text": "\ud800"}}),
    changed(params={"_meta": {"text": "x"}}).replace(b"x", b"\xff"),
    changed(more=1),
    b"[" + dumped(PING) + b"]",
    dumped(PING) + dumped({"jsonrpc": "2.0", "method": "notifications/odd"}),
    b'{"jsonrpc": "2.0", "method": "notifications/odd"} ' + dumped(PING),
    changed(result=None, error=None),
    changed(result={}),
]


@pytest.mark.parametrize("line", SERVED)
def test_what_is_odd_and_clear_is_served(speaker: Speaker, line: bytes) -> None:
    speaker.send(line, b"\n")
    assert speaker.until(7) == [{"jsonrpc": "2.0", "id": 7, "result": {}}]


def test_each_message_of_a_line_is_answered(speaker: Speaker) -> None:
    speaker.send(
        changed(id=1), changed(id=2), b"rest\n", b"[", changed(id=3), b",5,", changed(id=4), b"]\n"
    )
    answers: list[dict[str, Any]] = []
    for answer in speaker.answers():
        answers.append(answer)
        if len(answers) == 6:
            break

    assert sorted(answer["id"] for answer in answers if "result" in answer) == [1, 2, 3, 4]
    assert [answer["error"]["code"] for answer in answers if answer["id"] is None] == [
        -32700,
        -32600,
    ]


UNANSWERED = [
    dumped({"jsonrpc": "2.0", "method": "notifications/unknown", "params": {"a": 1}}),
    dumped({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 12345}}),
    dumped({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {}}}),
    dumped(
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": True}}
    ),
    dumped({"jsonrpc": "2.0", "method": "notifications/initialized", "params": [1]}),
    dumped({"jsonrpc": "1.0", "method": "notifications/initialized"}),
    dumped({"method": "notifications/initialized"}),
    dumped({"jsonrpc": "2.0", "method": "ping"}),
    dumped({"jsonrpc": "2.0", "id": 99, "result": {}}),
    dumped({"jsonrpc": "2.0", "id": 99, "result": "text"}),
    dumped({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "x"}}),
    dumped({"jsonrpc": "2.0", "id": 99, "error": "text"}),
    dumped({"jsonrpc": "2.0", "id": {}, "result": {}, "error": []}),
    b"",
    b" \t ",
    b"\0",
    b"\xef\xbb\xbf",
]


@pytest.mark.parametrize("line", UNANSWERED)
def test_notifications_and_responses_are_not_answered(speaker: Speaker, line: bytes) -> None:
    speaker.send(line, b"\n", dumped(PING), b"\n")
    assert speaker.until(7) == [{"jsonrpc": "2.0", "id": 7, "result": {}}]


def test_an_odd_first_line_does_not_spoil_the_session(tmp_path: Path) -> None:
    with speaking(tmp_path, modern=True) as speaker:
        speaker.send(b"\xef\xbb\xbf" + b"npm warn\n" + changed(id=None) + b"\n")
        assert [answer["error"]["code"] for answer in speaker.until(None)] == [-32700]
        assert [answer["error"]["code"] for answer in speaker.until(None)] == [-32600]
        assert "result" in speaker.ask(INITIALIZE)
        speaker.send(b'{"method":"notifications/initialized","params":[]}\n')
        assert speaker.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})["result"]["tools"]


# -- any mutation of any line ----------------------------------------------------------------------


def session(first: int, *, modern: bool) -> list[dict[str, Any]]:
    """The messages of a session; its requests have the ids from `first` on."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("tools/list", {}),
        (
            "tools/call",
            {"name": "run_plan", "arguments": {"calls": [{"_tool": "add", "a": 1, "b": 2}]}},
        ),
        ("tools/call", {"name": "search_tools", "arguments": {"words": "add", "limit": 2}}),
        ("resources/templates/list", {}),
        ("prompts/list", {}),
    ]
    notifications: list[dict[str, Any]] = [
        {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": "p", "progress": 1},
        },
        {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": "nobody", "reason": "x"},
        },
        {"jsonrpc": "2.0", "id": 10**9, "result": {"action": "accept", "content": {}}},
        {"jsonrpc": "2.0", "id": 10**9, "error": {"code": -1, "message": "no", "data": None}},
    ]
    requests: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": first + number, "method": method, "params": params}
        for number, (method, params) in enumerate(calls)
    ]
    if modern:
        for request in requests:
            request["params"]["_meta"] = META
        discover = {
            "jsonrpc": "2.0",
            "id": first + len(calls),
            "method": "server/discover",
            "params": {"_meta": META},
        }
        return [*requests, *notifications, discover]

    hello = {**INITIALIZE, "id": first + len(calls)}
    return [
        hello,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        *requests,
        *notifications,
    ]


ODD: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1.5,
        7.0,
        2**70,
        1e300,
        "",
        "x",
        "\0",
        "\ud83d",
        "†state.x",
        "x" * 5000,
    ),
    *([], [[]], [None], {}, {"a": {"a": {"a": 1}}}, {"": None}, [1, 2, 3], {"type": "object"}),
]
NOISE = [
    b"\0",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\r",
    b" ",
    b"\t",
    b"\n",
    b",",
    b"}",
    b"{",
    b'"',
    b"npm warn: ",
    b"\\",
    b"5",
]
Mutation = Callable[[dict[str, Any]], bytes]


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all members, at every depth."""
    found: list[tuple[Any, ...]] = []
    members: Iterable[tuple[Any, object]] = ()
    if isinstance(value, dict):
        members = cast("dict[str, object]", value).items()
    elif isinstance(value, list):
        members = enumerate(cast("list[object]", value))

    for key, member in members:
        found += [(*path, key), *places(member, (*path, key))]

    return found


@st.composite
def lines(draw: st.DrawFn, message: dict[str, Any]) -> bytes:
    """A message with one mutation: of a member, or of its bytes."""
    line = dumped(message)
    kind = draw(
        st.sampled_from(
            ["member", "drop", "double", "bytes", "cut", "twice", "batch", "nest", "glue"]
        )
    )
    if kind in ("member", "drop", "nest"):
        message = copy.deepcopy(message)
        *path, last = draw(st.sampled_from(places(message)))
        owner: Any = message
        for key in path:
            owner = owner[key]

        if kind == "drop":
            del owner[last]
        else:
            if kind == "member":
                owner[last] = draw(st.sampled_from(ODD))
            else:
                owner[last] = [{"a": owner[last]}]

        return dumped(message) + b"\n"

    if kind == "double":
        name = draw(st.sampled_from(sorted(message)))
        extra = dumped({name: draw(st.sampled_from(ODD))})
        return line[:-1] + b"," + extra[1:] + b"\n"

    place = draw(st.integers(0, len(line)))
    match kind:
        case "bytes":
            noise = draw(st.sampled_from(NOISE))
            # The part that is overwritten may be empty.
            return line[:place] + noise + line[place + draw(st.integers(0, 3)) :] + b"\n"
        case "cut":
            return line[:place] + b"\n"
        case "twice":
            return (line + b"\n") * 2
        case "batch":
            return b"[" + line + draw(st.sampled_from([b"", b",5", b",[]", b"," + line])) + b"]\n"
        case _:
            return line


def expect_the_others(speaker: Speaker, data: st.DataObject, first: int, *, modern: bool) -> None:
    """Send a session of which one line is mutated, and expect each other request to be
    answered with a result.
    """
    messages = session(first, modern=modern)
    place = data.draw(st.integers(0, len(messages) - 1))
    line = data.draw(lines(messages[place]))
    expected = {message["id"] for message in messages if message.get("id", 10**9) != 10**9}
    expected.discard(messages[place].get("id"))
    written = [dumped(message) + b"\n" for message in messages]
    written[place] = line
    speaker.send(*written)
    # Ask for a short list, because the answer is not looked at.
    last = {
        "jsonrpc": "2.0",
        "id": first + 50,
        "method": "prompts/list",
        "params": {"_meta": META} if modern else {},
    }
    speaker.send(dumped(last) + b"\n")
    missing = {*expected, first + 50}
    for answer in speaker.answers():
        if "method" in answer:
            continue
        if answer["id"] in missing:
            assert "result" in answer, (line, answer)
            missing.discard(answer["id"])
        else:
            error = str(answer.get("error", {}).get("message"))
            assert "Traceback" not in error
            assert "pydantic" not in error
            assert "mcp_types" not in error

        if not missing:
            return

    raise AssertionError(f"{missing} are not answered after {line!r}")


def mutate(folder: Path, examples: int, *, modern: bool) -> None:
    with speaking(folder, modern=modern) as speaker:
        if modern:
            # The first request says which version of the protocol is used.
            speaker.ask(
                {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}
            )
        # All numbers have the same length, so that a mutation means the same wherever it is tried.
        numbers = iter(range(10**8, 10**9, 100))

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=examples < 1000,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
        @given(st.data())
        def run(data: st.DataObject) -> None:
            expect_the_others(speaker, data, next(numbers), modern=modern)

        run()


@pytest.mark.parametrize("modern", [False, True], ids=["2025", "2026"])
def test_a_mutated_line_spoils_no_other(tmp_path: Path, *, modern: bool) -> None:
    mutate(tmp_path, 250, modern=modern)


@pytest.mark.long
@pytest.mark.parametrize("modern", [False, True], ids=["2025", "2026"])
def test_many_mutated_lines_spoil_no_other(tmp_path: Path, *, modern: bool) -> None:
    mutate(tmp_path, 5_000, modern=modern)


# -- over HTTP -------------------------------------------------------------------------------------


def posted(url: str, body: bytes) -> tuple[int, dict[str, Any]]:
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, body, headers), timeout=SECONDS
        ) as response:
            status, content = response.status, response.read()
    except urllib.error.HTTPError as error:
        status = error.code
        content = error.read()

    return status, json.loads(content) if content.startswith(b"{") else {}


@pytest.mark.parametrize(
    ("line", "request_id", "code", "why"), [case for case in REFUSED if case[2] != -32601]
)
def test_http_answers_what_cannot_be_served(
    shared_url: str, line: bytes, request_id: object, code: int, why: str
) -> None:
    status, answer = posted(shared_url, line)
    assert status == 400
    assert answer["id"] == request_id
    assert answer["error"]["code"] == code
    assert why in answer["error"]["message"]


@pytest.mark.parametrize("count", [0, 2])
def test_a_body_holds_one_message(shared_url: str, count: int) -> None:
    status, answer = posted(shared_url, dumped(PING) * count)
    assert status == 400
    assert "expected one JSON-RPC message in the body" in answer["error"]["message"]


def test_http_serves_what_is_odd_and_clear(shared_url: str) -> None:
    hello = b"\xef\xbb\xbf" + dumped({**INITIALIZE, "id": 7.0}) + b"\0"
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    with urllib.request.urlopen(
        urllib.request.Request(shared_url, hello, headers), timeout=SECONDS
    ) as response:
        content = response.read().decode()
    assert response.status == 200
    assert '"id":7,' in content.replace(" ", "")
