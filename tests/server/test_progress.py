"""Progress notifications for every call started and finished, where the client asks for them."""

import pytest
from mcp import Client

pytestmark = pytest.mark.anyio


async def test_every_call_is_told(client: Client) -> None:
    notes: list[tuple[float, float | None, str]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        notes.append((progress, total, message or ""))

    calls = [
        {"_tool": "add", "a": 1, "b": 1, "_outputPath": "one"},
        {"_tool": "add", "a": "†state.one", "b": 1, "_outputPath": "two", "_id": "second"},
        {"_tool": "fail", "message": "no luck", "_after": ["second"]},
        {"_tool": "count_words", "text": "a b", "_outputPath": "words"},
    ]
    result = await client.call_tool("run_plan", {"calls": calls}, progress_callback=on_progress)
    assert not result.is_error
    told = [message for _, _, message in notes]
    assert "add started" in told
    assert "count_words started" in told
    assert any(message.startswith("add done (") and message.endswith("of 4)") for message in told)
    assert len([message for message in told if "done" in message or "failed" in message]) == 4
    assert [progress for progress, _, _ in notes] == sorted({progress for progress, _, _ in notes})
    assert all(total == 4 for _, total, _ in notes)


async def test_nobody_is_told_who_did_not_ask(client: Client) -> None:
    result = await client.call_tool("run_plan", {"calls": [{"_tool": "add", "a": 1, "b": 1}]})
    assert not result.is_error
