"""Modules that use how odd messages are repaired: to hide a failure, to have a call sent twice, to
keep others waiting, or to show the words for one user to another.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import httpx2
import pytest
from mcp_types import JSONRPCError, JSONRPCResponse

from ideabridge.bridge.modules.errors import ModuleProtocolError, shown
from ideabridge.bridge.modules.http import is_within_origin
from ideabridge.bridge.modules.mailbox import Mailbox
from ideabridge.bridge.modules.members import MAX_SECONDS, Unusable
from ideabridge.bridge.modules.messages import MAX_PARTS, MessageReader
from ideabridge.bridge.modules.oddities import Oddities
from ideabridge.bridge.modules.repairs import repair_request, repair_result
from ideabridge.bridge.secrets import Secrets
from tests.modules.conftest import modules_of

HOSTILE = Path(__file__).with_name("hostile.py")
LEGACY = "2025-11-25"
MODERN = "2026-07-28"
TEXT: dict[str, Any] = {"type": "text", "text": "the card was refused"}


def hostile(calls: Path) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", str(HOSTILE), str(calls)]}


def repaired(
    result: dict[str, Any], version: str, oddities: Oddities | None = None
) -> dict[str, Any]:
    fixed = repair_result("tools/call", version, result, oddities or Oddities())
    assert not isinstance(fixed, Unusable)
    return fixed


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize("said", [None, False])
def test_an_error_of_another_name_is_one_beside_the_right_name(
    version: str, said: bool | None
) -> None:
    assert (
        repaired({"content": [TEXT], "isError": said, "is_error": True}, version)["isError"] is True
    )


@pytest.mark.parametrize("kind", ["failed", "task", "COMPLETE", ""])
def test_a_result_of_a_type_that_nobody_knows_is_an_error(kind: str) -> None:
    assert repaired({"content": [TEXT], "resultType": kind}, MODERN)["isError"] is True


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["oversized", "unreadable"])
async def test_a_module_cannot_say_that_its_answer_was_replaced(tmp_path: Path, name: str) -> None:
    async with modules_of({"m": hostile(tmp_path / "calls")}) as modules:
        with pytest.raises(ModuleProtocolError, match="answered with error -32000: no") as caught:
            await modules["m"].call(name, {})
        assert caught.value.outcome == "failed"


@pytest.mark.anyio
async def test_an_answer_that_speaks_of_a_session_has_no_call_sent_again(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    async with modules_of({"m": hostile(calls)}) as modules:
        with pytest.raises(ModuleProtocolError, match="Session not found") as caught:
            await modules["m"].call("lost", {})
        assert caught.value.outcome == "failed"
        assert await modules["m"].call("quick", {}) == "done"

    assert calls.read_text(encoding="utf-8") == "lost\nquick\n"


@pytest.mark.anyio
async def test_answers_to_calls_that_are_not_sent_yet_answer_nothing(tmp_path: Path) -> None:
    async with modules_of({"m": hostile(tmp_path / "calls")}) as modules:
        assert await modules["m"].call("stray", {}) == "done"
        assert await modules["m"].call("quick", {}) == "done"


# -- blocks ----------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_blocks_of_other_messages_end_no_connection_and_are_shown(tmp_path: Path) -> None:
    async with modules_of({"m": hostile(tmp_path / "calls")}) as modules:
        value = await modules["m"].call("nested", {})
        assert json.loads(str(value))["content"] == [{"type": "text", "text": 5}]
        assert await modules["m"].call("quick", {}) == "done"


def test_a_question_for_a_model_may_quote_an_odd_result_of_a_tool() -> None:
    block = {"type": "tool_result", "toolUseId": "x", "content": [{"type": "text", "text": 5}]}
    params = {"maxTokens": 5, "messages": [{"role": "user", "content": block}]}
    asked = repair_request("sampling/createMessage", LEGACY, params, Oddities())
    assert isinstance(asked, dict)
    assert asked["messages"][0]["content"]["content"] == [{"type": "text", "text": "5"}]


# -- words of others -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [LEGACY, MODERN])
def test_notes_on_a_result_have_no_words_for_one_user(version: str) -> None:
    oddities = Oddities(quotes=lambda: False)
    content = [
        {"type": "resource_link", "name": "salary-of-bob", "uri": 5, "title": 7},
        {"type": "image", "data": "AAAA", "mime_type": "words-for-bob"},
        {"type": "text", "text": 4111111111111111},
        {"type": "words-for-bob", "name": "bob"},
        {
            "type": "text",
            "text": "a",
            "annotations": {"priority": 4111111111111111, "audience": ["bob"]},
        },
    ]
    result = {"content": content, "isError": "bob", "structuredContent": {"bob": 1}, "_meta": "bob"}
    repaired(result, version, oddities)
    notes = "\n".join(oddities.lines)
    assert "content[2].text: expected a string, got a number" in notes
    assert "bob" not in notes
    assert "4111" not in notes


@pytest.mark.anyio
async def test_the_words_of_an_error_begin_no_line_of_a_note(tmp_path: Path) -> None:
    entry = hostile(tmp_path / "calls")
    async with modules_of({"m": {**entry, "args": [*entry["args"], "pages"]}}) as modules:
        await modules["m"].ready(30)
        (note,) = [note for note in modules["m"].status().notes if "page 2" in note]
        assert "\n" not in note
        assert "\x1b" not in note


def test_a_secret_at_the_end_of_a_cut_error_is_masked() -> None:
    secrets = Secrets()
    secrets.add("TOKEN", "s3cr3t-value-12345", certain=True)
    for before in range(4070, 4100):
        error = {"jsonrpc": "2.0", "id": 1, "error": ["A" * before + "s3cr3t-value-12345"]}
        (message,) = MessageReader(Oddities()).read(json.dumps(error).encode())
        assert isinstance(message, JSONRPCError)
        assert "s3cr" not in shown(message.error.message, secrets)


def test_a_cut_line_of_a_log_swallows_no_answer() -> None:
    reader = MessageReader(Oddities(), joins_lines=True)
    assert reader.read(b"{") == []
    (message,) = reader.read(b'{"jsonrpc": 2.0, "id": "1", "result": {}}')
    assert isinstance(message, JSONRPCResponse)
    assert message.id == 1


# -- addresses -------------------------------------------------------------------------------------

ELSEWHERE = [
    *(
        "//evil.test/x",
        "http://good.test@evil.test/",
        "javascript:alert(1)",
        "http://good.test:81/x",
    ),
    *("https://good.test:8443/x", "file:///etc/passwd", "http://good.test./x", "http://ɡood.test/"),
    *(
        "http://169.254.169.254/",
        "http://[::1]/",
        "http://good.test%2eevil.test/",
        "ws://good.test/",
        "/a\r\nX: y",
    ),
]


@pytest.mark.parametrize("said", ELSEWHERE)
def test_no_spelling_of_an_address_leads_elsewhere(said: str) -> None:
    url = httpx2.URL("http://user:password@good.test/sse")
    try:
        target = url.join(said)
    except (httpx2.InvalidURL, ValueError):
        return
    assert not is_within_origin(url, target)


# -- time ------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["crowd", "noise"])
async def test_what_takes_long_to_repair_keeps_no_other_module_waiting(
    tmp_path: Path, name: str
) -> None:
    async with modules_of(
        {"m": hostile(tmp_path / "m"), "other": hostile(tmp_path / "other")}
    ) as modules:
        answered = 0

        async def heavy() -> None:
            assert await modules["m"].call(name, {}, timeout=60)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(heavy)
            while True:
                await modules["other"].call("quick", {})
                answered += 1
        assert answered > 5


def test_a_message_that_is_odd_beyond_measure_costs_seconds() -> None:
    crowd = [{"type": "text", "text": 5}] * 50_000
    began = time.thread_time()
    repair_result("tools/call", LEGACY, {"content": crowd}, Oddities())
    assert time.thread_time() - began < 2 * MAX_SECONDS


def test_most_messages_of_a_huge_list_are_skipped() -> None:
    oddities = Oddities()
    data = b"[" + b",".join([b'{"jsonrpc":"2.0","method":"x"}'] * (5 * MAX_PARTS)) + b"]"
    assert len(MessageReader(oddities).read(data)) == MAX_PARTS
    assert any("the rest were skipped" in line for line in oddities.lines)


class _Inflated:
    """A response whose body arrives at once, as what was compressed does."""

    headers = httpx2.Headers({"content-type": "text/event-stream"})

    def __init__(self, piece: bytes, pieces: int) -> None:
        self._piece = piece
        self._pieces = pieces

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        for _ in range(self._pieces):
            yield self._piece


@pytest.mark.anyio
@pytest.mark.parametrize("event", [b":\n", b"data:0\n\n", b"id:0\n"])
async def test_a_stream_of_noise_leaves_other_tasks_their_turns(event: bytes) -> None:
    incoming, session = anyio.create_memory_object_stream[Any](64)
    oddities = Oddities()
    mailbox = Mailbox(incoming, MessageReader(oddities), oddities, 1_000_000)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with incoming, session, anyio.create_task_group() as group:
        group.start_soon(other)
        piece = event * (128 * 1024 // len(event))
        await mailbox.read(cast("httpx2.Response", _Inflated(piece, 2)), None)
        group.cancel_scope.cancel()

    assert turns > 3
