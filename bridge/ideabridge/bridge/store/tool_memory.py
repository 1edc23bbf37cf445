"""ToolMemory: what the store keeps of tools: the last list of each module, what the tools that published calls mean
were, and the shapes of results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast

from ideabridge.bridge.store.database import Database, now_text
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode, encode_text

MAX_LISTS: Final = 256
"""Modules whose list is kept, of all configurations that use the store; the oldest lists go first."""

MAX_LIST_BYTES: Final = 8 * 1024 * 1024
"""Bytes of JSON a list may have to be kept."""

MAX_SHAPES: Final = 4096
"""Tools, of all owners, whose shapes are kept; the oldest go first."""


class ToolMemory:
    """The tables `module_tools`, `tool_definitions`, `exposed_names` and `observed_shapes`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def tools(self, module: str) -> list[JSON] | None:
        """The definitions a module listed last; None where no list is kept.

        Args:
            module: the fingerprint of the module's configuration.
        """
        with self._database.guard:
            row = self._database.execute("SELECT tools FROM module_tools WHERE module = ?", (module,)).fetchone()
        return None if row is None else cast("list[JSON]", decode_trusted(row[0]))

    def names(self, name: str) -> list[str]:
        """The names of the tools that a module of a name listed last, under whatever configuration."""
        with self._database.guard:
            rows = self._database.execute(
                "SELECT json_extract(tool.value, '$.name') FROM json_each("
                "(SELECT tools FROM module_tools WHERE name = ? ORDER BY number DESC LIMIT 1)) AS tool",
                (name,),
            ).fetchall()
        return [str(row[0]) for row in rows]

    def keep_tools(self, module: str, name: str, tools: list[JSON]) -> None:
        """Keep what a module lists, if it is not what it listed before. A list that is too large is not kept.

        Args:
            module: the fingerprint of the module's configuration.
            name: the module's name, for people.
            tools: the definitions.
        """
        body = encode(tools)
        text = body.decode() if len(body) <= MAX_LIST_BYTES else None
        with self._database.guard:
            row = self._database.execute("SELECT tools FROM module_tools WHERE module = ?", (module,)).fetchone()
        if text == (None if row is None else row[0]):
            return
        with self._database.transaction():
            execute = self._database.execute
            execute("DELETE FROM module_tools WHERE module = ?", (module,))
            if text is not None:
                values = (module, name, text, now_text())
                execute("INSERT INTO module_tools(module, name, tools, time) VALUES (?, ?, ?, ?)", values)
            execute(
                "DELETE FROM module_tools WHERE number NOT IN "
                "(SELECT number FROM module_tools ORDER BY number DESC LIMIT ?)",
                (MAX_LISTS,),
            )

    def exposed_names(self, scope: str) -> dict[str, tuple[str, str]]:
        """Whose each exposed name is: name -> (module or "" for the process, name of the tool there).

        Args:
            scope: the folder of the configuration; stores are shared by projects.
        """
        with self._database.guard:
            rows = self._database.execute(
                "SELECT name, module, tool FROM exposed_names WHERE scope = ? ORDER BY name", (scope,)
            ).fetchall()
        return {name: (module, tool) for name, module, tool in rows}

    def keep_exposed_names(self, scope: str, names: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
        """Keep whose names are, but for those that another process has given meanwhile; returns whose each is now."""
        with self._database.transaction():
            self._database.connection.executemany(
                "INSERT OR IGNORE INTO exposed_names(scope, name, module, tool) VALUES (?, ?, ?, ?)",
                [(scope, name, module, tool) for name, (module, tool) in names.items()],
            )
            return self.exposed_names(scope)

    def free_exposed_names(self, scope: str, names: Iterable[str]) -> None:
        """Let names be given anew: their modules are not configured any more."""
        with self._database.transaction():
            self._database.connection.executemany(
                "DELETE FROM exposed_names WHERE scope = ? AND name = ?", [(scope, name) for name in names]
            )

    def definition(self, digest: str) -> JSONObject | None:
        """What a tool was that a published call means; None: it is not kept here.

        Args:
            digest: of its essence (`Tool.digest`).
        """
        with self._database.guard:
            row = self._database.execute("SELECT essence FROM tool_definitions WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else cast("JSONObject", decode_trusted(row[0]))

    def keep_definitions(self, essences: Mapping[str, JSONObject]) -> None:
        """Keep what tools are that published calls mean, by digest, so that a change can be shown."""
        rows = [(digest, encode_text(essence), now_text()) for digest, essence in essences.items()]
        with self._database.transaction():
            self._database.connection.executemany(
                "INSERT OR IGNORE INTO tool_definitions(digest, essence, time) VALUES (?, ?, ?)", rows
            )

    def shapes(self, owner: str, tool: str) -> list[JSON]:
        """The latest different shapes of a tool's results in an owner's runs, the latest first.

        Args:
            owner: the caller of the runs.
            tool: the digest of the tool's definition.
        """
        with self._database.guard:
            row = self._database.execute(
                "SELECT shapes FROM observed_shapes WHERE owner = ? AND tool = ?", (owner, tool)
            ).fetchone()
        return [] if row is None else cast("list[JSON]", decode_trusted(row[0]))

    def keep_shapes(self, owner: str, tool: str, name: str, shapes: list[JSON]) -> None:
        """Keep the shapes of a tool's results in the place of those before.

        Args:
            owner: the caller of the runs.
            tool: the digest of the tool's definition.
            name: the tool's name, for people.
            shapes: JSON Schemas.
        """
        with self._database.transaction():
            execute = self._database.execute
            execute("DELETE FROM observed_shapes WHERE owner = ? AND tool = ?", (owner, tool))
            values = (owner, tool, name, encode_text(shapes), now_text())
            execute("INSERT INTO observed_shapes(owner, tool, name, shapes, time) VALUES (?, ?, ?, ?, ?)", values)
            execute(
                "DELETE FROM observed_shapes WHERE number <= (SELECT max(number) FROM observed_shapes) - ?",
                (MAX_SHAPES,),
            )
