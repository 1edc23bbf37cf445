"""A server whose every message is a little odd: its tools work, and people see what was odd."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge.modules.errors import ModuleProtocolError, ModuleToolError
from ideabridge.bridge.modules.modules import Modules
from ideabridge.server.main import main
from tests import preloaded

from .conftest import SERVERS, configure, modules_of

pytestmark = pytest.mark.anyio

ODD: dict[str, Any] = preloaded.module(
    SERVERS / "odd_words.py", env={"API_TOKEN": "sesame-open-now"}
)


async def test_every_tool_of_a_server_that_is_always_odd_works() -> None:
    async with modules_of({"odd": ODD}) as modules:
        odd = modules["odd"]
        await odd.ready(30)
        assert [tool.name for tool in odd.tools] == [
            "echo", "list", "fails", "refuses", "half", "pretty", "twice", "quiet",
        ]  # fmt: skip
        assert odd.tool("echo").annotations.to_json() == {"readOnlyHint": True}
        assert await odd.call("echo", {}) == "echo done"
        assert await odd.call("list", {}) == [1, {"a": None}]
        assert await odd.call("half", {}) == "a \ufffd b"
        assert await odd.call("pretty", {}) == "pretty done"
        assert await odd.call("twice", {}) == "twice done"
        with pytest.raises(ModuleToolError, match="fails done"):
            await odd.call("fails", {})
        with pytest.raises(ModuleProtocolError, match="the shop is closed") as caught:
            await odd.call("refuses", {})
        assert caught.value.outcome == "failed"
        with pytest.raises(
            ModuleProtocolError, match="its result is a list, not an object"
        ) as caught:
            await odd.call("quiet", {})
        assert caught.value.outcome == "unknown"

        status = odd.status()
        assert status.protocol_version == "2025-03-26"
        notes = "\n".join(status.notes)
        for words in (
            (
                "initialize: protocolVersion: expected a known version, got a "
                "number; taken as 2025-03-26"
            ),
            "initialize: serverInfo: is missing",
            "tools/list: tools['echo'].icons: expected a list, got a string; left out",
            (
                "tools/list: tools['echo'].annotations.idempotentHint: expected true or "
                "false, got a number; left out"
            ),
            "tools/list: tools[1]: name: expected a string, got a number; left out",
            "tools/call: isError: expected true or false, got a string; taken as true",
            "wrote unpaired surrogates",
            "notifications/heartbeat: is not known",
        ):
            assert words in notes
        assert "pydantic" not in notes
        assert "validation" not in notes


async def test_calls_at_once_get_their_own_answers() -> None:
    import anyio

    values: dict[str, Any] = {}
    async with modules_of({"odd": ODD}) as modules:

        async def call(name: str) -> None:
            values[name] = await modules["odd"].call(name, {})

        async with anyio.create_task_group() as group:
            for name in ("echo", "pretty", "twice", "half"):
                group.start_soon(call, name)

    assert values == {
        "echo": "echo done",
        "pretty": "pretty done",
        "twice": "twice done",
        "half": "a \ufffd b",
    }


async def test_notes_hide_secrets_and_are_no_quotes_where_others_may_read_them() -> None:
    modules = Modules(configure({"odd": ODD}))
    async with modules:
        await modules["odd"].ready(30)
        notes = "\n".join(modules["odd"].status().notes)
        assert "such as 'starting\\u001b[0m with [secret:API_TOKEN]'" in notes
        modules.quotes = lambda: False
        notes = "\n".join(modules["odd"].status().notes)
        assert "starting" not in notes
        assert "wrote something that is not a message, which was skipped (3 times)" in notes


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def test_people_see_the_notes_in_lists_and_in_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "ideabridge.json"
    odd = {"command": sys.executable, "args": ["-I", "-S", str(SERVERS / "odd_words.py")]}
    file.write_text(json.dumps({"mcpServers": {"odd": odd}}), encoding="utf-8")
    words = "tools/list: tools['echo'].icons: expected a list, got a string; left out"
    assert main(["servers", "list", "--config", str(file), "--json"]) == 0
    (module,) = json.loads(capsys.readouterr().out)["modules"]
    assert any(words in note for note in module["notes"])
    assert main(["servers", "list", "--config", str(file)]) == 0
    assert words in printed(capsys)
    main(["doctor", "--config", str(file)])
    assert words in printed(capsys)
