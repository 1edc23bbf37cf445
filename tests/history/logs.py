"""Logs of hosts, written line by line as the hosts write them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ideabridge.bridge.store.sqlite import sqlite3

Line = dict[str, Any]

START = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)


def write(path: Path, lines: list[Line | str], *, after: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    with path.open("a", encoding="utf-8") as file:
        file.write("\n".join(texts) + after)
    return path


def write_bytes(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


class Clock:
    """The time of the next line, a second after the last one."""

    def __init__(self, start: datetime = START) -> None:
        self.now = start

    def tick(self, seconds: float = 1.0) -> str:
        self.now += timedelta(seconds=seconds)
        return self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class ClaudeCode:
    """Makes the lines of a log of Claude Code."""

    def __init__(self, session: str = "3a1c", start: datetime = START) -> None:
        self.session, self.clock = session, Clock(start)
        self.lines: list[Line | str] = []
        self._ids = itertools.count()

    def _line(self, kind: str, content: object, **more: object) -> None:
        own: Line = {
            "parentUuid": None,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/home/ann/shop",
            "sessionId": self.session,
            "version": "2.3.11",
            "gitBranch": "main",
            "type": kind,
            "message": {"role": kind, "content": content},
            "uuid": f"u-{next(self._ids)}",
            "timestamp": self.clock.tick(),
        }
        self.lines.append({**own, **more})

    def asks(self, text: str, **more: object) -> None:
        self._line("user", text, **more)

    def uses(self, call: str, name: str, arguments: Line, **more: object) -> None:
        block = {"type": "tool_use", "id": call, "name": name, "input": arguments}
        self._line("assistant", [block], **more)

    def returns(self, call: str, content: object, **more: object) -> None:
        error = {"is_error": more.pop("is_error")} if "is_error" in more else {}
        block = {"type": "tool_result", "tool_use_id": call, "content": content, **error}
        self._line("user", [block], toolUseResult=content, **more)

    def calls(self, call: str, name: str, arguments: Line, content: object, **more: object) -> None:
        """A call and its result."""
        self.uses(call, name, arguments)
        self.returns(call, content, **more)


class Codex:
    """Makes the lines of a log of Codex."""

    def __init__(self, session: str = "019f-77aa", start: datetime = START) -> None:
        self.clock = Clock(start)
        self.lines: list[Line | str] = []
        meta = {
            "id": session,
            "cwd": "/home/ann/shop",
            "originator": "codex-tui",
            "cli_version": "0.160.0",
        }
        self._line("session_meta", meta)

    def _line(self, kind: str, payload: Line) -> None:
        self.lines.append({"timestamp": self.clock.tick(), "type": kind, "payload": payload})

    def event(self, kind: str, **payload: object) -> None:
        self._line("event_msg", {"type": kind, **payload})

    def item(self, kind: str, **payload: object) -> None:
        self._line("response_item", {"type": kind, **payload})

    def asks(self, text: str) -> None:
        self.item("message", role="user", content=[{"type": "input_text", "text": text}])
        self.event("user_message", message=text, images=[])

    def calls(
        self, call: str, server: str, tool: str, arguments: Line, result: Line, output: str = ""
    ) -> None:
        """A call as a version of 2026 writes it: what the model saw, and the event with
        the whole result.
        """
        self.item(
            "function_call",
            name=tool,
            namespace=f"mcp__{server}",
            arguments=json.dumps(arguments),
            call_id=call,
        )
        invocation = {"server": server, "tool": tool, "arguments": arguments}
        duration = {"secs": 0, "nanos": 5_000_000}
        self.event(
            "mcp_tool_call_end",
            call_id=call,
            invocation=invocation,
            duration=duration,
            result=result,
        )
        self.item(
            "function_call_output",
            call_id=call,
            output=f"Wall time: 0.0050 seconds\nOutput:\n{output}",
        )


class Copilot:
    """Makes the lines of a log of Copilot CLI."""

    def __init__(self, session: str = "c-1", start: datetime = START) -> None:
        self.clock = Clock(start)
        self.lines: list[Line | str] = []
        context = {"cwd": "/home/ann/shop"}
        self.event("session.start", sessionId=session, version=1, context=context)

    def event(self, kind: str, **data: object) -> None:
        self.lines.append(
            {
                "type": kind,
                "data": data,
                "id": f"e-{len(self.lines)}",
                "timestamp": self.clock.tick(),
                "parentId": None,
            }
        )

    def calls(self, call: str, server: str, tool: str, arguments: Line, **end: object) -> None:
        self.event(
            "tool.execution_start",
            toolCallId=call,
            toolName=f"{server}-{tool}",
            mcpServerName=server,
            mcpToolName=tool,
            arguments=arguments,
        )
        self.event("tool.execution_complete", toolCallId=call, **end)


class Gemini:
    """Makes the lines of a log of Gemini CLI."""

    def __init__(self, session: str = "g-1", start: datetime = START) -> None:
        self.clock = Clock(start)
        head = {"sessionId": session, "projectHash": "h", "startTime": self.clock.tick()}
        self.lines: list[Line | str] = [head]

    def _message(self, own: str, kind: str, **more: object) -> None:
        self.lines.append({"id": own, "timestamp": self.clock.tick(), "type": kind, **more})

    def asks(self, words: str) -> None:
        self._message(f"p-{len(self.lines)}", "user", content=[{"text": words}])

    def uses(self, message: str, call: str, name: str, arguments: Line) -> None:
        """A call without a result, in a message that is written again when it has ended."""
        self._call(message, {"id": call, "name": name, "args": arguments, "status": "executing"})

    def calls(
        self, message: str, call: str, name: str, arguments: Line, status: str, response: Line
    ) -> None:
        function = {"id": call, "name": name, "response": response}
        self._call(
            message,
            {
                "id": call,
                "name": name,
                "args": arguments,
                "status": status,
                "result": [{"functionResponse": function}],
            },
        )

    def _call(self, message: str, call: Line) -> None:
        timestamp = self.clock.tick(0.5)
        self._message(message, "gemini", toolCalls=[{**call, "timestamp": timestamp}])


def database(folder: Path, parts: Sequence[tuple[str, str, Line | str | bytes]]) -> Path:
    """Write a database of opencode with parts: of which session, of whose message, and what they
    hold.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "opencode.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE IF NOT EXISTS session(id TEXT PRIMARY KEY, directory TEXT, title TEXT, "
            "parent_id TEXT);"
            "CREATE TABLE IF NOT EXISTS message(id TEXT PRIMARY KEY, session_id TEXT, "
            "time_created INTEGER, data TEXT);"
            "CREATE TABLE IF NOT EXISTS part(id TEXT PRIMARY KEY, message_id TEXT, "
            "session_id TEXT, data TEXT);"
            "CREATE INDEX IF NOT EXISTS part_session_idx ON part(session_id);"
        )
        for session in dict.fromkeys(session for session, _, _ in parts):
            connection.execute(
                "INSERT INTO session VALUES (?, '/home/ann/shop', 't', NULL)", (session,)
            )
        for number, (session, role, data) in enumerate(parts):
            own = f"{session}-{number:03}"
            said = json.dumps({"role": role})
            connection.execute(
                "INSERT INTO message VALUES (?, ?, ?, ?)", (f"msg_{own}", session, number, said)
            )
            content = json.dumps(data) if isinstance(data, dict) else data
            connection.execute(
                "INSERT INTO part VALUES (?, ?, ?, CAST(? AS TEXT))",
                (f"prt_{own}", f"msg_{own}", session, content),
            )
        connection.commit()
    return path


def text(value: str) -> list[Line]:
    """The content of a result that is one text."""
    return [{"type": "text", "text": value}]
