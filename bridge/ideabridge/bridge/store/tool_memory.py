"""Store lists, definitions, result shapes, uses and the latest approvals of tools."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from ideabridge.bridge.store.database import Database, now_text, time_text
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode, encode_text

MAX_LISTS: Final = 256
"""The maximum number of servers whose lists are stored, over all configurations that use the store.
The oldest lists are deleted first.
"""

MAX_LIST_BYTES: Final = 8 * 1024 * 1024
"""The maximum size of a stored list, in bytes of JSON."""

MAX_SHAPES: Final = 4096
"""The maximum number of tools whose result shapes are stored, over all owners. The oldest shapes
are deleted first.
"""

MAX_APPROVED: Final = 4096
"""The maximum number of tools whose latest approved call is stored, over all owners. The oldest
entries are deleted first.
"""

_SAME_SECONDS: Final = 60.0
"""The minimum age, in seconds, of the stored time of an unchanged list before it is updated."""

_LIST: Final = "list"
_INSTRUCTIONS: Final = "instructions"
_OFFERED: Final = "offered"
_TOKEN: Final = "token"  # noqa: S105 - a kind of value
_WAY: Final = "way"
_DEFINITION: Final = "definition"
_SHAPES: Final = "shapes"
_APPROVED: Final = "approved"


@dataclass(frozen=True, slots=True)
class ApprovedCall:
    """A call that a person approved, identified by its run (or room) and its number in that run."""

    run: str
    call: int


class ToolMemory:
    """The tables `exposed_names`, `tool_uses` and `tool_memory`. `tool_memory` stores eight kinds
    of values.

    | kind | key | value |
    |---|---|---|
    | `list` | the fingerprint of a server's configuration | the tools that the server listed last |
    | `instructions` | the same | the server's latest instructions for its use |
    | `offered` | the same | its lists of resources, templates and prompts, as last read |
    | `token` | the same | present if requests to the server carried a token from a sign-in |
    | `way` | the same | how to reach the server without trying several ways (`Way`) |
    | `definition` | the digest of a tool (`Tool.digest`) | its definition, if a published call refers to it |
    | `shapes` | the digest of a tool's definition, and the caller of the runs | the latest shapes of its results |
    | `approved` | how the tool's server starts, the caller of the runs, and the tool | the call of it that a person approved last |
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def _text(self, kind: str, key: str) -> str | None:
        with self._database.guard:
            row = self._database.execute(
                "SELECT value FROM tool_memory WHERE kind = ? AND key = ?", (kind, key)
            ).fetchone()

        if row is None:
            return None
        return row[0]

    def _object(self, kind: str, key: str) -> JSONObject | None:
        """Return a stored value that is a JSON object, or None if it is not stored."""
        text = self._text(kind, key)
        if text is None:
            return None
        return cast("JSONObject", decode_trusted(text))

    def _list(self, kind: str, key: str) -> list[JSON] | None:
        """Return a stored value that is a JSON list, or None if it is not stored."""
        text = self._text(kind, key)
        if text is None:
            return None
        return cast("list[JSON]", decode_trusted(text))

    def _replace(self, kind: str, key: str, name: str, text: str | None, most: int) -> None:
        """Replace a value, or delete it if `text` is None. If there are more than `most` values of
        its kind, delete the oldest ones.
        """
        with self._database.transaction():
            execute = self._database.execute
            execute("DELETE FROM tool_memory WHERE kind = ? AND key = ?", (kind, key))
            if text is not None:
                execute(
                    "INSERT INTO tool_memory(kind, key, name, value, time) VALUES (?, ?, ?, ?, ?)",
                    (kind, key, name, text, now_text()),
                )

            execute(
                "DELETE FROM tool_memory WHERE kind = ?1 AND number <= "
                "(SELECT number FROM tool_memory WHERE kind = ?1 ORDER BY number DESC "
                "LIMIT 1 OFFSET ?2)",
                (kind, most),
            )

    def tools(self, module: str) -> list[JSON] | None:
        """Return the definitions that a server listed last, or None if no list is stored.

        Args:
            module: the fingerprint of the server's configuration.
        """
        return self._list(_LIST, module)

    def listed_at(self, module: str) -> str:
        """Return when a server last sent its stored tool list, as ISO 8601 in UTC, or "" if no list
        is stored. `module` is the fingerprint of the server's configuration.
        """
        with self._database.guard:
            row = self._database.execute(
                "SELECT time FROM tool_memory WHERE kind = ? AND key = ?", (_LIST, module)
            ).fetchone()

        if row is None:
            return ""
        return str(row[0])

    def names(self, name: str) -> list[str]:
        """Return the names of the tools that the given server listed last, under any
        configuration.
        """
        with self._database.guard:
            rows = self._database.execute(
                "SELECT json_extract(tool.value, '$.name') FROM json_each("
                "(SELECT value FROM tool_memory WHERE kind = ? AND name = ? ORDER BY number DESC "
                "LIMIT 1)) AS tool",
                (_LIST, name),
            ).fetchall()

        return [str(tool_name) for (tool_name,) in rows]

    def keep_tools(self, module: str, name: str, tools: list[JSON]) -> None:
        """Store a server's tool list, or record that it is still the same. Lists that are too large
        are not stored.

        Args:
            module: the fingerprint of the server's configuration.
            name: the server's name, stored for people who read the table.
            tools: the definitions.
        """
        body = encode(tools)
        text: str | None = None
        if len(body) <= MAX_LIST_BYTES:
            text = body.decode()

        if text != self._text(_LIST, module):
            self._replace(_LIST, module, name, text, MAX_LISTS)
            return
        if text is None:
            return

        # Do not write the time of the same list again and again.
        oldest = time_text(time.time() - _SAME_SECONDS)
        if self.listed_at(module) < oldest:
            with self._database.transaction():
                self._database.execute(
                    "UPDATE tool_memory SET time = ? WHERE kind = ? AND key = ?",
                    (now_text(), _LIST, module),
                )

    def instructions(self, module: str) -> str:
        """Return a server's latest instructions for its use. `module` is the fingerprint of the
        server's configuration.
        """
        return self._text(_INSTRUCTIONS, module) or ""

    def keep_instructions(self, module: str, name: str, text: str) -> None:
        """Store a server's instructions for its use, if they have changed. For the arguments, see
        `keep_tools`.
        """
        if text != self.instructions(module):
            self._replace(_INSTRUCTIONS, module, name, text or None, MAX_LISTS)

    def offered(self, module: str) -> JSONObject:
        """Return a server's lists of resources, templates and prompts, keyed by kind.

        The value is null for a kind of which the server has no entries. A kind whose list was never
        read is left out. `module` is the fingerprint of the server's configuration.
        """
        return self._object(_OFFERED, module) or {}

    def keep_offered(self, module: str, name: str, lists: JSONObject) -> None:
        """Store a server's lists of resources, templates and prompts, if they have changed.

        Lists that are too large are not stored. For the other arguments, see `keep_tools`.
        """
        body = encode(lists)
        text: str | None = None
        if lists and len(body) <= MAX_LIST_BYTES:
            text = body.decode()

        if text != self._text(_OFFERED, module):
            self._replace(_OFFERED, module, name, text, MAX_LISTS)

    def had_token(self, module: str) -> bool:
        """Return whether the latest requests to a server carried a token from a sign-in. `module`
        is the fingerprint of the server's configuration.
        """
        return self._text(_TOKEN, module) is not None

    def keep_token(self, module: str, name: str, *, had_token: bool) -> None:
        """Store whether requests to a server carry a token, if this has changed. For the other
        arguments, see `keep_tools`.
        """
        if had_token != self.had_token(module):
            text = "true" if had_token else None
            self._replace(_TOKEN, module, name, text, MAX_LISTS)

    def way(self, module: str) -> JSONObject | None:
        """Return the stored way to reach a server, or None if no way is stored. `module` is the
        fingerprint of the server's configuration.
        """
        return self._object(_WAY, module)

    def keep_way(self, module: str, name: str, way: JSONObject | None) -> None:
        """Store how a server is reached, if this has changed. None deletes the stored way. For the
        other arguments, see `keep_tools`.
        """
        if way != self.way(module):
            text = None if way is None else encode_text(way)
            self._replace(_WAY, module, name, text, MAX_LISTS)

    def exposed_names(self, scope: str) -> dict[str, tuple[str, str]]:
        """Return the tool behind each exposed name, as `(module, tool)`. The server of a tool of
        this process is "".

        Args:
            scope: the folder of the configuration, because projects share stores.
        """
        with self._database.guard:
            rows = self._database.execute(
                "SELECT name, module, tool FROM exposed_names WHERE scope = ? ORDER BY name",
                (scope,),
            ).fetchall()

        return {name: (module, tool) for name, module, tool in rows}

    def keep_exposed_names(
        self, scope: str, names: Mapping[str, tuple[str, str]]
    ) -> dict[str, tuple[str, str]]:
        """Assign exposed names to tools, except names that another process has already assigned.
        Return all names in the scope.
        """
        with self._database.transaction():
            self._database.many(
                "INSERT INTO exposed_names(scope, name, module, tool) VALUES (?, ?, ?, ?) "
                "ON CONFLICT DO NOTHING",
                [(scope, name, module, tool) for name, (module, tool) in names.items()],
            )
            return self.exposed_names(scope)

    def free_exposed_names(self, scope: str, names: Iterable[str]) -> None:
        """Allow names to be assigned again after their servers were removed from the
        configuration.
        """
        with self._database.transaction():
            self._database.many(
                "DELETE FROM exposed_names WHERE scope = ? AND name = ?",
                [(scope, name) for name in names],
            )

    def note_uses(self, counts: Mapping[str, int]) -> None:
        """Add to the numbers of calls to published tools, keyed by name."""
        with self._database.transaction():
            self._database.many(
                "INSERT INTO tool_uses(tool, count, last) VALUES (?1, ?2, ?3) "
                "ON CONFLICT(tool) DO UPDATE SET count = tool_uses.count + ?2, last = ?3",
                [(tool, count, now_text()) for tool, count in counts.items()],
            )

    def definition(self, digest: str) -> JSONObject | None:
        """Return the definition of a tool that a published call refers to (the tool's essence; see
        `Tool.digest`), or None if it is not stored.
        """
        return self._object(_DEFINITION, digest)

    def keep_definitions(self, essences: Mapping[str, JSONObject]) -> None:
        """Store the definitions of tools that published calls refer to, keyed by digest, so that
        later changes can be shown.
        """
        now = now_text()
        rows: list[tuple[str, str, str, str]] = []
        for digest, essence in essences.items():
            rows.append((_DEFINITION, digest, encode_text(essence), now))

        with self._database.transaction():
            self._database.many(
                "INSERT INTO tool_memory(kind, key, name, value, time) VALUES (?, ?, '', ?, ?) "
                "ON CONFLICT DO NOTHING",
                rows,
            )

    def shapes(self, owner: str, tool: str) -> list[JSON]:
        """Return the latest distinct shapes of a tool's results in an owner's runs, latest first.

        Args:
            owner: the caller of the runs.
            tool: the digest of the tool's definition.
        """
        return self._list(_SHAPES, f"{tool} {owner}") or []

    def keep_shapes(self, owner: str, tool: str, name: str, shapes: list[JSON]) -> None:
        """Replace the shapes (JSON Schemas) of a tool's results.

        For `owner` and `tool`, see `shapes`. `name` is the tool's name, stored for people who read
        the table.
        """
        self._replace(_SHAPES, f"{tool} {owner}", name, encode_text(shapes), MAX_SHAPES)

    def approved(self, owner: str, server: str, tool: str) -> ApprovedCall | None:
        """Return the last call to a tool that a person approved in an owner's runs, or None if
        there is none. The run of this call might have been deleted.

        Args:
            owner: the caller of the runs.
            server: the start definition of the tool's server; see `start_definitions`.
            tool: the name of the tool on its server.
        """
        text = self._text(_APPROVED, f"{server} {owner} {tool}")
        if text is None:
            return None

        run, call = cast("tuple[str, int]", decode_trusted(text))
        return ApprovedCall(run, call)

    def keep_approved(self, owner: str, server: str, tool: str, call: ApprovedCall) -> None:
        """Store the last call to a tool that a person approved. For the other arguments, see
        `approved`.
        """
        text = encode_text([call.run, call.call])
        self._replace(_APPROVED, f"{server} {owner} {tool}", tool, text, MAX_APPROVED)
