"""Logs of hosts, written line by line as the hosts write them."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Line = dict[str, Any]

START = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)


def write(path: Path, lines: list[Line | str], *, after: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    with path.open("a", encoding="utf-8") as file:
        file.write("\n".join(texts) + after)
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


def text(value: str) -> list[Line]:
    """The content of a result that is one text."""
    return [{"type": "text", "text": value}]
