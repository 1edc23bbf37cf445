"""opencode: reads its database, `~/.local/share/opencode/opencode.db`.

The table `session` contains the conversations, `message` their messages, and `part` the parts of
the messages, each with its content as JSON in `data`. A call is a part of type `tool`, with
`callID`, `tool` and `state`: `status`, `input`, `output` or `error`, and `time` in milliseconds. A
tool of an MCP server is named `SERVER_TOOL`, so only the names of configured servers can be
distinguished from opencode's own tools. Sessions of subagents have a `parent_id`, and are separate
conversations.

Versions before 1.2 kept a file for each part; later versions move these into the database.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ideabridge.bridge.history.conversation import (
    MAX_LINE,
    CallsById,
    Conversation,
    HistoryCall,
    Names,
    decoded,
    folder_of_host,
    open_plain,
    shortened_prompt,
)
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty

NAME: Final = "opencode"
PATTERNS: Final = ("opencode.db",)

_REJECTED: Final = re.compile(r"The user rejected permission|.{0,80}rejected permission to use")
_LATEST: Final = 4_102_444_800_000

_PARTS: Final = """
    SELECT part.rowid,
    CASE WHEN json_valid(message.data) THEN json_extract(message.data, '$.role') END,
    CASE WHEN length(part.data) <= ? THEN part.data END
    FROM part LEFT JOIN message ON message.id = part.message_id
    WHERE part.session_id = CAST(? AS TEXT)
    ORDER BY message.time_created, message.id, part.id
"""
"""The parts of a session, and their authors. A part that is too long is null. The message of a part
can be missing or damaged.
"""


def folders(home: Path, variables: Mapping[str, str]) -> list[Path]:
    """Return the folders with the database."""
    return [folder_of_host(variables, "XDG_DATA_HOME", home / ".local" / "share") / "opencode"]


def read_log(path: Path, names: Names) -> list[Conversation]:
    """Read the conversations in a database.

    Raises:
        OSError: the database cannot be read.
    """
    # SQLite would follow a link.
    os.close(open_plain(path))
    address = f"file:{quote(str(path))}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            database.execute("PRAGMA query_only=ON")
            database.execute("PRAGMA trusted_schema=OFF")
            # One bad byte in a text would end a query.
            database.text_factory = bytes
            sessions = database.execute("SELECT id, directory FROM session ORDER BY id").fetchall()
            conversations: list[Conversation] = []
            for session, folder in sessions:
                conversation = Conversation(NAME, _text(session)[:200], path, _text(folder))
                conversations.append(_Session(database, names, conversation).read(session))
            return conversations
    except sqlite3.Error as error:
        raise OSError(f"it cannot be read as a database of opencode: {error}") from error


class _Session:
    def __init__(self, database: Any, names: Names, conversation: Conversation) -> None:
        self._database = database
        self._names = names
        self._conversation = conversation
        self._calls = CallsById()
        self._prompt = ""

    def read(self, session: object) -> Conversation:
        conversation = self._conversation
        try:
            for number, role, data in self._parts(session):
                if role == b"user" and data.get("type") == "text":
                    self._ask(data)
                elif data.get("type") == "tool":
                    self._take(number, data)
        except sqlite3.OperationalError:
            # The database is locked, for example. No part of it is damaged.
            raise
        except sqlite3.DatabaseError:
            conversation.skip("after the damage of the database")

        conversation.sort()
        return conversation

    def _ask(self, data: JSONObject) -> None:
        if data.get("synthetic") is not True:
            self._prompt = shortened_prompt(str(data.get("text") or "")) or self._prompt

    def _parts(self, session: object) -> Iterator[tuple[int, bytes, JSONObject]]:
        conversation = self._conversation
        for number, role, content in self._database.execute(_PARTS, (MAX_LINE, session)):
            conversation.lines += 1
            if content is None:
                conversation.skip("too long")
                continue

            data = decoded(content) if isinstance(content, bytes) else None
            if isinstance(data, dict):
                yield number, role, data
            else:
                conversation.skip("unreadable")

    def _take(self, number: int, data: JSONObject) -> None:
        call_id = data.get("callID")
        name = data.get("tool")
        state = object_or_empty(data.get("state"))
        arguments = state.get("input")
        tool = self._names.split(name, "_") if isinstance(name, str) else None
        if tool is None or tool.module is None:
            return
        if not isinstance(call_id, str) or not isinstance(arguments, dict):
            self._conversation.skipped["without id or arguments"] += 1
            return

        times = object_or_empty(state.get("time"))
        call = HistoryCall(
            call_id,
            tool.module,
            tool.name,
            arguments,
            number,
            _seconds(times.get("start")),
            self._prompt,
        )
        size = len(str(state.get("output"))) + 1000
        if self._calls.take(call, self._conversation, size):
            _end(call, number, _seconds(times.get("end")), state)


def _end(call: HistoryCall, number: int, at: float | None, state: JSONObject) -> None:
    status = state.get("status")
    if status == "completed":
        is_cut = object_or_empty(state.get("metadata")).get("truncated") is True
        missing = "the host cut it" if is_cut else None
        call.end(number, state.get("output"), at=at, missing=missing)
    elif status == "error":
        error = str(state.get("error") or "")
        call.fail(number, error, at=at, rejected=_REJECTED.match(error) is not None)


def _text(value: object) -> str:
    """Return a text of the database, or "" if the value is not a text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _seconds(milliseconds: JSON) -> float | None:
    if not isinstance(milliseconds, int | float) or not 0 <= milliseconds < _LATEST:
        return None
    return milliseconds / 1000
