"""Complete names from the store and the configuration in the shell.

The shell asks at every key press, so completion must be fast: it reads configurations as plain JSON
(the project's only if trusted), and the store with read-only SQL. If anything goes wrong, it offers
no completions, because the shell would print an error into the line that the user is typing.
"""

from __future__ import annotations

# Use Python's own module, because it loads faster than the store's. This is safe, because this
# process has no store open.
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import typer
from typer.models import ArgumentInfo, OptionInfo

from ideabridge.tools.errors import IdeabridgeError

Completions = list[tuple[str, str]]
"""A completed word and its description."""

_MOST_ENTRIES: Final = 100

_RUNS: Final = (
    "SELECT id, status || coalesce(': ' || title, '') FROM runs "
    "WHERE substr(id, 1, length(?1)) = ?1 AND parent IS NULL ORDER BY number DESC LIMIT ?2"
)
_NAMES: Final = (
    "SELECT name, description FROM publication_list WHERE live "
    "AND substr(name, 1, length(?1)) = ?1 "
    "ORDER BY name LIMIT ?2"
)
_VERSIONS: Final = (
    "SELECT name || '@' || version, description FROM publication_list "
    "WHERE substr(name || '@' || version, 1, length(?1)) = ?1 ORDER BY name, version DESC LIMIT ?2"
)
_IDEAS: Final = (
    "SELECT substr(id, 1, 12), coalesce(title, '') FROM idea_list "
    "WHERE substr(id, 1, length(?1)) = ?1 "
    "ORDER BY number DESC LIMIT ?2"
)
_TOOLS: Final = (
    "SELECT DISTINCT tool, module FROM call_list WHERE substr(tool, 1, length(?1)) = ?1 "
    "ORDER BY tool LIMIT ?2"
)
_TAGS: Final = (
    "SELECT DISTINCT tag, '' FROM tag_list WHERE substr(tag, 1, length(?1)) = ?1 "
    "ORDER BY tag LIMIT ?2"
)


def _from_store(*queries: str) -> Callable[[typer.Context, str], Completions]:
    """Return a completion that runs the given queries. Each query has two parameters: the prefix to
    complete and the maximum number of rows.
    """

    def complete(ctx: typer.Context, incomplete: str) -> Completions:
        completions: dict[str, str] = {}
        try:
            store = _store(ctx)
            if not store.is_file():
                return []
            address = f"file:{quote(str(store))}?mode=ro"
            with closing(sqlite3.connect(address, uri=True, timeout=0.1)) as connection:
                for query in queries:
                    for name, description in connection.execute(query, (incomplete, _MOST_ENTRIES)):
                        text = " ".join(str(description or "").split())
                        completions.setdefault(str(name), text[:60])
        except (OSError, ValueError, RecursionError, IdeabridgeError, sqlite3.Error):
            return []

        return list(completions.items())

    return complete


def _hosts(incomplete: str) -> Completions:
    from ideabridge.server.hosts.table import HOSTS

    return [(host.name, host.title) for host in HOSTS if host.name.startswith(incomplete)]


def _servers(ctx: typer.Context, incomplete: str) -> Completions:
    names: dict[str, Any] = {}
    try:
        for _, content in _configurations(ctx):
            servers = content.get("mcpServers")
            if isinstance(servers, dict):
                names |= cast("dict[str, Any]", servers)
    except (OSError, ValueError, RecursionError, IdeabridgeError):
        return []

    return [(name, "") for name in names if name.startswith(incomplete)]


def _ideas(ctx: typer.Context, incomplete: str) -> Completions:
    queries = (_VERSIONS,) if "@" in incomplete else (_NAMES, _RUNS, _IDEAS)
    return _from_store(*queries)(ctx, incomplete)


complete_names: Final = _from_store(_NAMES)
"""Completes a published name."""

_BY_METAVAR: Final[dict[str, Callable[..., Completions]]] = {
    "HOST": _hosts,
    "SERVER": _servers,
    "RUN": _from_store(_RUNS),
    "RUN|APPROVAL": _from_store(_RUNS),
    "REF": _ideas,
    "NAME@VERSION": _from_store(_VERSIONS),
    "TOOL": _from_store(_TOOLS),
    "TAG": _from_store(_TAGS),
}
"""The completion for each argument or option value, keyed by metavar."""


def _store(ctx: typer.Context) -> Path:
    """Return the path of the store's file: the one given on the command line, the configured one,
    or the default, in this order.
    """
    chosen = _shared_option(ctx, "store")
    if chosen is not None:
        return Path(chosen).expanduser().absolute()

    for folder, content in _configurations(ctx):
        configured = content.get("store")
        if isinstance(configured, str):
            return folder / Path(configured).expanduser()

    return Path(default_store())


def _configurations(ctx: typer.Context) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the folder and the unchecked content of each configuration in use, highest priority
    first.

    Raises:
        OSError, IdeabridgeError: a configuration cannot be read.
    """
    import platformdirs

    from ideabridge.bridge.file_content import decode_file_content
    from ideabridge.bridge.trust import (
        FILE_NAME,
        MAX_FILE_BYTES,
        is_project_file,
        is_trusted,
        read_own,
    )

    project = (_shared_option(ctx, "project") or Path.cwd()).expanduser().absolute()
    chosen = _shared_option(ctx, "config")
    own = platformdirs.user_config_path("ideabridge") / FILE_NAME
    if chosen is None:
        file = project / FILE_NAME
    else:
        file = chosen.expanduser().absolute()

    if chosen is not None and not is_project_file(file, project):
        files = [file]
    elif file.is_file() and is_trusted(file):
        files = [file, own]
    else:
        files = [own]

    for file in files:
        if file.is_file():
            content = decode_file_content(
                read_own(file), what=file.name, max_bytes=MAX_FILE_BYTES, workspace=project
            ).content
            yield file.parent, cast("dict[str, Any]", content)


def _shared_option(ctx: Any, name: str) -> Path | None:
    """Return the value of a shared option, which can be before or after the command."""
    while ctx is not None:
        if ctx.params.get(name) is not None:
            return Path(str(ctx.params[name]))
        ctx = ctx.parent
    return None


def set_completion(annotation: Any) -> None:
    """Set the shell completion for an argument or option."""
    for info in getattr(annotation, "__metadata__", ()):
        if (
            isinstance(info, ArgumentInfo | OptionInfo)
            and info.autocompletion is None
            and info.metavar is not None
        ):
            info.autocompletion = _BY_METAVAR.get(info.metavar.strip("[].").removesuffix("]"))


def default_store() -> str:
    """Return the path of the default store. Opening the store creates its folder."""
    import platformdirs

    return str(platformdirs.user_data_path("ideabridge") / "ideas.sqlite")
