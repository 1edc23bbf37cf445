"""What the bytes of a module are read as: messages, noise, and errors in place of answers."""

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from ideabridge.bridge.modules.messages import DeepResponse, MessageReader, OddResultError, Replaced
from ideabridge.bridge.modules.oddities import MAX_ODDITIES, Oddities

ANSWER: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 3,
    "result": {"content": [{"type": "text", "text": "ok"}]},
}
LINE = json.dumps(ANSWER)


def read(data: str | bytes, **options: Any) -> tuple[list[JSONRPCMessage], list[str]]:
    oddities = Oddities()
    reader = MessageReader(oddities, **options)
    messages = reader.read(
        data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    )
    return messages, oddities.lines


def only(data: str | bytes | dict[str, Any]) -> JSONRPCMessage:
    messages, _ = read(json.dumps(data) if isinstance(data, dict) else data)
    assert len(messages) == 1, messages
    return messages[0]


def is_answer(message: JSONRPCMessage) -> bool:
    return (
        isinstance(message, JSONRPCResponse)
        and message.id == 3
        and message.result == ANSWER["result"]
    )


def test_a_well_formed_message_is_read_without_a_note() -> None:
    messages, notes = read(LINE)
    assert is_answer(messages[0])
    assert len(messages) == 1
    assert notes == []


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + LINE.encode(),
        b"\0" + LINE.encode() + b"\0",
        LINE.encode("utf-16-le"),
        f"> {LINE}",
        f"\x1b[32mserver is up\x1b[0m{LINE}",
        f"{LINE} done",
        f"{LINE};",
        f"[{LINE}]",
        f'{{"level": 30, "msg": "up"}}{LINE}',
        f"{{}}{LINE}",
    ],
)
def test_what_stands_around_a_message_is_skipped(data: str | bytes) -> None:
    messages, _ = read(data)
    assert [is_answer(message) for message in messages] == [True]


def test_one_byte_order_mark_is_not_worth_a_note() -> None:
    assert read(b"\xef\xbb\xbf" + LINE.encode())[1] == []


def test_several_messages_on_one_line_are_read_in_order() -> None:
    lines = "".join(json.dumps({**ANSWER, "id": number}) for number in (1, 2, 3))
    assert [message.id for message in read(lines)[0] if isinstance(message, JSONRPCResponse)] == [
        1,
        2,
        3,
    ]
    batch = "[" + ",".join(json.dumps({**ANSWER, "id": number}) for number in (1, 2, 3)) + "]"
    assert [message.id for message in read(batch)[0] if isinstance(message, JSONRPCResponse)] == [
        1,
        2,
        3,
    ]


@pytest.mark.parametrize(
    "noise", ["", "[DONE]", "{}", "[]", "null", "5", "ping", '{"json": true}', "[1, 2]", "\0\0"]
)
def test_noise_is_no_message(noise: str) -> None:
    assert read(noise)[0] == []


@pytest.mark.parametrize(
    "log",
    [
        '{"level": "error", "id": 3, "error": "boom"}',
        '{"id": 3, "result": {}, "time": 5}',
        '{"method": "GET", "path": "/", "status": 200}',
        'DEBUG got {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "x"}}',
        'fetched ({"jsonrpc": "2.0", "id": 3, "result": {}}) from the web',
        'user said {"id": 3, "result": {}}',
        'DEBUG sent {"jsonrpc": "2.0", "id": 3, "result": {"cont...',
    ],
)
def test_a_log_is_not_taken_for_a_message(log: str) -> None:
    assert read(log)[0] == []


def test_what_is_within_a_malformed_answer_is_no_message_of_its_own() -> None:
    inner = json.dumps({**ANSWER, "id": 4})
    for data in (
        f'{{"jsonrpc": "2.0", "id": 3, "result": {{"structuredContent": {inner}}},}}',
        f'{{"jsonrpc": "2.0" "id": 3, "result": {{"structuredContent": {inner}}}}}',
    ):
        messages, _ = read(data)
        assert [(type(m), m.id) for m in messages if not isinstance(m, JSONRPCNotification)] == [
            (JSONRPCError, 3)
        ]


@pytest.mark.parametrize("cut", [10, 25, 40, 60, len(LINE) - 1])
def test_a_cut_answer_is_an_error_of_its_request(cut: int) -> None:
    messages, notes = read(LINE[:cut])
    assert notes
    if '"result"' in LINE[:cut]:
        assert isinstance(messages[0], JSONRPCError)
        assert (messages[0].id, messages[0].error.data) == (3, Replaced.UNREADABLE)

    # If a value is missing, the next message could also be read as a part of the truncated one.
    after, _ = read(LINE[:cut] + LINE)
    assert not after or is_answer(after[-1]) or isinstance(after[-1], JSONRPCError)


@pytest.mark.parametrize(
    "data",
    [
        '{"jsonrpc": "2.0", "result": {"items": [{"a": {}, "id": 7}',
        '{"jsonrpc": "2.0", "result": {"id": 7, "items": [',
        '{"jsonrpc": "2.0", "result": {"text": "\\"id\\": 7, ',
        '{"jsonrpc": "2.0", "result": "x", "params": {"id": 7}',
        '{"jsonrpc": "2.0", "id": 3, "result": {"id": 7, "jsonrpc": "2.0", "items": [',
    ],
)
def test_what_is_within_a_cut_answer_is_never_its_id(data: str) -> None:
    messages, _ = read(data)
    assert [message.id for message in messages if isinstance(message, JSONRPCError)] in ([], [3])


def test_the_id_may_come_last_in_an_answer_that_is_not_cut() -> None:
    message = only('{"jsonrpc": "2.0", "result": {"content": [}, {"id": 7}]}, "id": 3}')
    assert isinstance(message, JSONRPCError)
    assert message.id == 3


def test_halves_of_surrogate_pairs_are_replaced_and_whole_ones_are_not() -> None:
    text = r"a \ud83d b \ude00 \ud83d\ude00 \\ud83d"
    messages, notes = read(LINE.replace("ok", text))
    assert isinstance(messages[0], JSONRPCResponse)
    assert messages[0].result["content"][0]["text"] == "a \ufffd b \ufffd \U0001f600 \\ud83d"
    assert len(notes) == 1


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    messages, notes = read(LINE.replace("ok", "café").encode("latin-1"))
    assert isinstance(messages[0], JSONRPCResponse)
    assert messages[0].result["content"][0]["text"] == "caf\ufffd"
    assert len(notes) == 1


# -- several lines ---------------------------------------------------------------------------------


def read_lines(lines: list[str]) -> list[JSONRPCMessage]:
    reader = MessageReader(Oddities(), joins_lines=True)
    messages = [message for line in lines for message in reader.read(line.encode())]
    return [*messages, *reader.end()]


@pytest.mark.parametrize("indent", [0, 2, "\t"])
def test_a_message_on_several_lines_is_read_as_one(indent: int | str) -> None:
    pretty = json.dumps(
        {**ANSWER, "result": {"content": [{"type": "text", "text": 'a { " [ \\ b'}]}}, indent=indent
    )
    messages = read_lines([*pretty.splitlines(), LINE])
    assert isinstance(messages[0], JSONRPCResponse)
    assert messages[0].result["content"][0]["text"] == 'a { " [ \\ b'
    assert is_answer(messages[1])
    batch = json.dumps([ANSWER, ANSWER], indent=indent)
    assert [is_answer(message) for message in read_lines(batch.splitlines())] == [True, True]


def test_a_line_that_begins_what_never_ends_holds_nothing_up() -> None:
    assert [is_answer(message) for message in read_lines(["{", LINE, "[", LINE, "}"])] == [
        True,
        True,
    ]
    messages = read_lines(["{", "  jsonrpc: '2.0',", "  id: 3", "}", LINE])
    assert [is_answer(message) for message in messages] == [True]


def test_an_answer_that_ends_early_is_an_error_at_the_next_message_or_the_end() -> None:
    begun = '{"jsonrpc": "2.0", "id": 3, "result": {"content": ['
    for rest in ([], [json.dumps({**ANSWER, "id": 4})]):
        message = read_lines([begun, *rest])[0]
        assert isinstance(message, JSONRPCError)
        assert message.id == 3


# -- the envelope ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, 2.0, 2, "1.0", "2", [], "absent"])
def test_a_wrong_jsonrpc_is_noted(version: Any) -> None:
    message = {**ANSWER, "jsonrpc": version}
    if version == "absent":
        del message["jsonrpc"]
    messages, notes = read(json.dumps(message))
    assert is_answer(messages[0])
    assert len(notes) == 1


@pytest.mark.parametrize("number", [3, "3", 3.0])
def test_an_answer_belongs_to_the_request_with_its_id(number: Any) -> None:
    assert is_answer(only({**ANSWER, "id": number}))
    assert is_answer(only({**ANSWER, "id": number, "method": "tools/call", "params": {}}))


@pytest.mark.parametrize("number", [None, True, 3.5, [3], {"id": 3}])
def test_an_answer_without_a_usable_id_belongs_to_nobody(number: Any) -> None:
    messages, notes = read(json.dumps({**ANSWER, "id": number}))
    assert messages == []
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        ("no such city", -32603, "no such city"),
        (None, -32603, "an error without a message"),
        ({}, -32603, "{}"),
        (False, -32603, "false"),
        (["a", "b"], -32603, '["a", "b"]'),
        ({"message": "no such city"}, -32603, "no such city"),
        ({"code": -32001}, -32001, '{"code": -32001}'),
        ({"code": "-32001", "message": "x"}, -32001, "x"),
        ({"code": "ENOENT", "message": "no such city"}, -32603, "no such city (ENOENT)"),
        (
            {"code": 5, "message": {"text": "no such city"}},
            5,
            '{"code": 5, "message": {"text": "no such city"}}',
        ),
        ({"code": 5.0, "message": "x", "data": [1]}, 5, "x"),
        ({"detail": "no such city"}, -32603, '{"detail": "no such city"}'),
    ],
)
def test_the_words_of_an_error_reach_the_caller(error: Any, code: int, words: str) -> None:
    message = only({"jsonrpc": "2.0", "id": 3, "error": error})
    assert isinstance(message, JSONRPCError)
    assert (message.id, message.error.code, message.error.message) == (3, code, words)


@pytest.mark.parametrize("error", [{"code": 1, "message": "no"}, "no", {}, False, 0, "", []])
def test_an_answer_with_an_error_is_no_success(error: Any) -> None:
    assert isinstance(only({**ANSWER, "error": error}), JSONRPCError)
    assert isinstance(only({**ANSWER, "result": None, "error": error}), JSONRPCError)


def test_an_error_that_is_null_beside_a_result_is_none() -> None:
    assert is_answer(only({**ANSWER, "error": None}))


@pytest.mark.parametrize("result", [None, "done", [], [1], 5, True, False])
def test_a_result_that_is_no_object_is_an_error_with_its_words(result: Any) -> None:
    message = only({**ANSWER, "result": result})
    assert isinstance(message, OddResultError)
    assert message.id == 3
    assert message.value == result
    assert (result if isinstance(result, str) else json.dumps(result)) in message.error.message


def test_an_answer_with_neither_is_an_error() -> None:
    message = only({"jsonrpc": "2.0", "id": 3})
    assert isinstance(message, JSONRPCError)
    assert message.error.data is Replaced.UNREADABLE


@pytest.mark.parametrize("params", [None, [], [1], "x", 5])
def test_params_that_are_no_object_are_left_out(params: Any) -> None:
    request = only({"jsonrpc": "2.0", "id": "q", "method": "roots/list", "params": params})
    assert isinstance(request, JSONRPCRequest)
    assert (request.id, request.params) == ("q", None)
    told = only({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": params})
    assert isinstance(told, JSONRPCNotification)
    assert told.params is None


def test_a_request_keeps_its_id_as_it_is() -> None:
    for number in ("7", 7, "q-1"):
        request = only({"jsonrpc": "1.0", "id": number, "method": "ping"})
        assert isinstance(request, JSONRPCRequest)
        assert request.id == number

    for odd in ("true", "1.5", "[]", "{}"):
        assert read(f'{{"jsonrpc": "2.0", "id": {odd}, "method": "ping"}}')[0] == []

    request = only({"jsonrpc": "2.0", "id": 7, "method": 5})
    assert isinstance(request, JSONRPCRequest)
    assert read('{"jsonrpc": "2.0", "method": 5}')[0] == []


# -- bounds ----------------------------------------------------------------------------------------


def test_deep_messages_are_read_up_to_a_bound() -> None:
    for depth in (150, 450):
        deep = json.loads("[" * depth + "]" * depth)
        assert isinstance(only({**ANSWER, "result": {"deep": deep}}), JSONRPCResponse)

    for depth in (600, 100_000):
        # Lists are read without anything that is nested deeper. In other results, that would be
        # part of the value.
        cut = only(LINE.replace('"ok"', "[" * depth + "]" * depth))
        assert isinstance(cut, DeepResponse)
        assert "sha256:" in json.dumps(cut.result)
        assert read("[" * depth)[0] == []

    huge = only(LINE.replace('"ok"', "[" * 600_000 + "]" * 600_000))
    assert isinstance(huge, JSONRPCError)
    assert "is nested deeper than 500 levels" in huge.error.message


def test_integers_of_any_size() -> None:
    message = only(LINE.replace('"ok"', "9" * 4000))
    assert isinstance(message, JSONRPCResponse)
    assert isinstance(only(LINE.replace('"ok"', "9" * 5000)), JSONRPCError)


@pytest.mark.parametrize(
    "line",
    [
        '{"' * 500_000,
        '{"a":' * 200_000,
        '{"a":1}' * 500_000,
        "{}" * 500_000,
        '[{"a' * 500_000,
        "[" * 1_000_000,
    ],
    ids=range(6),
)
def test_hostile_noise_takes_little_time(line: str) -> None:
    began = time.process_time()
    assert read(line, joins_lines=True)[0] == []
    assert time.process_time() - began < 2


@given(st.binary(max_size=200), st.binary(max_size=200))
@settings(max_examples=100)
def test_any_bytes_are_read_without_an_error(before: bytes, after: bytes) -> None:
    for data in (
        before,
        before + LINE.encode(),
        LINE.encode() + after,
        LINE.encode()[:40] + before,
    ):
        messages, notes = read(data, joins_lines=True)
        for message in messages:
            assert isinstance(message, JSONRPCMessage)
        assert all(len(note) < 600 for note in notes)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda parts: (
        st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=5), parts, max_size=3)
    ),
    max_leaves=5,
)


@given(
    st.dictionaries(
        st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]), _JSON
    )
)
@settings(max_examples=100)
def test_a_repair_never_makes_a_success_of_a_failure(members: dict[str, Any]) -> None:
    messages, _ = read(json.dumps(members))
    for message in messages:
        if isinstance(message, JSONRPCResponse):
            assert members.get("error") is None
            assert message.result == members["result"]
        if isinstance(message, JSONRPCRequest):
            assert message.id == members["id"]


# -- the notes -------------------------------------------------------------------------------------


def test_notes_are_counted_bounded_and_escaped() -> None:
    oddities = Oddities()
    for number in range(MAX_ODDITIES + 10):
        oddities.note(f"number {number} \x1b[31m\u202e", "\x1b[0m\n" * 200)
        oddities.note("again")

    lines = oddities.lines
    assert len(lines) == MAX_ODDITIES + 1
    assert lines[1] == f"again ({MAX_ODDITIES + 10} times)"
    assert all(line.isprintable() and len(line) < 1000 for line in lines)
    assert lines[-1] == "and 11 other oddities"


def test_notes_quote_a_module_only_where_they_may() -> None:
    oddities = Oddities(quotes=lambda: False)
    MessageReader(oddities).read(b"words of somebody else")
    assert oddities.lines == ["wrote something that is not a message, which was skipped"]
