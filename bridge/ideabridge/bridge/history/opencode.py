"""Read opencode's database, `~/.local/share/opencode/opencode.db`.

The `session` table contains the conversations, `message` their messages, and `part` the parts of
the messages, each with its content as JSON in `data`. A call is a part of type `tool` with the
members `callID`, `tool` and `state`. The state contains `status`, `input`, `output` or `error`, and
`time` in milliseconds. An MCP server's tool is named `SERVER_TOOL`, so only the tools of configured
servers can be told apart from opencode's own. Sessions of subagents have a `parent_id`, and are
separate conversations.

Versions before 1.2 kept a file for each part. Later versions move these files into the database.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
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
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.typed import member, read_whole

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
"""The parts of a session, and their authors. A part that is too long is null. The message to which
a part belongs can be missing or damaged.
"""


def folders(home: Path, variables: Mapping[str, str]) -> list[Path]:
    """Return the folders that contain the database."""
    return [folder_of_host(variables, "XDG_DATA_HOME", home / ".local" / "share") / "opencode"]


def read_log(path: Path, names: Names) -> list[Conversation]:
    """Read the conversations in a database.

    Raises:
        OSError: the database cannot be read.
    """
    # Open the file once without following links, because SQLite would follow one.
    os.close(open_plain(path))
    address = f"file:{quote(str(path))}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            database.execute("PRAGMA query_only=ON")
            database.execute("PRAGMA trusted_schema=OFF")
            # Read strings as bytes, because a single invalid byte would otherwise end the query.
            database.text_factory = bytes
            sessions = database.execute("SELECT id, directory FROM session ORDER BY id").fetchall()
            conversations: list[Conversation] = []
            for session, folder in sessions:
                conversation = Conversation(NAME, _text(session)[:200], path, _text(folder))
                conversations.append(_Session(database, names, conversation).read(session))
            return conversations
    except sqlite3.Error as error:
        raise OSError(f"it cannot be read as an opencode database: {error}") from error


@dataclass(frozen=True, slots=True)
class _Times:
    """When a call began and ended, in milliseconds since 1970."""

    start: float = -1
    end: float = -1


@dataclass(frozen=True, slots=True)
class _Metadata:
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class _State:
    """The state of a call."""

    status: str = ""
    input: JSONObject | None = None
    output: JSON = None
    error: JSON = None
    time: _Times = _Times()
    metadata: _Metadata = _Metadata()


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a message: text, a call, or something else. Text marked as `synthetic` was not
    written by the person.
    """

    type: str = ""
    text: JSON = None
    synthetic: bool = False
    call_id: str | None = field(default=None, metadata=member("callID"))
    tool: str = ""
    state: _State = _State()


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
                if role == b"user" and data.type == "text":
                    self._ask(data)
                elif data.type == "tool":
                    self._take(number, data)
        except sqlite3.OperationalError:
            # Do not catch this error, because the database might just be locked, not damaged.
            raise
        except sqlite3.DatabaseError:
            conversation.skip("after a damaged part of the database")

        conversation.sort()
        return conversation

    def _ask(self, part: _Part) -> None:
        if not part.synthetic:
            self._prompt = shortened_prompt(str(part.text or "")) or self._prompt

    def _parts(self, session: object) -> Iterator[tuple[int, bytes, _Part]]:
        conversation = self._conversation
        for number, role, content in self._database.execute(_PARTS, (MAX_LINE, session)):
            conversation.lines += 1
            if content is None:
                conversation.skip("too long")
                continue

            data = decoded(content) if isinstance(content, bytes) else None
            part = read_whole(_Part, data)
            if part is not None:
                yield number, role, part
            else:
                conversation.skip("unreadable")

    def _take(self, number: int, part: _Part) -> None:
        state = part.state
        tool = self._names.split(part.tool, "_")
        if tool.module is None:
            return
        if part.call_id is None or state.input is None:
            self._conversation.skipped["without id or arguments"] += 1
            return

        call = HistoryCall(
            part.call_id,
            tool.module,
            tool.name,
            state.input,
            number,
            _seconds(state.time.start),
            self._prompt,
        )
        size = len(str(state.output)) + 1000
        if self._calls.take(call, self._conversation, size):
            _end(call, number, _seconds(state.time.end), state)


def _end(call: HistoryCall, number: int, at: float | None, state: _State) -> None:
    if state.status == "completed":
        missing = "the host cut it" if state.metadata.truncated else None
        call.end(number, state.output, at=at, missing=missing)
    elif state.status == "error":
        error = str(state.error or "")
        call.fail(number, error, at=at, rejected=_REJECTED.match(error) is not None)


def _text(value: object) -> str:
    """Return a string from the database, or "" if the value is not a string."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _seconds(milliseconds: float) -> float | None:
    return milliseconds / 1000 if 0 <= milliseconds < _LATEST else None
