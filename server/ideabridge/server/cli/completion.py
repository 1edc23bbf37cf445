"""Completion: what the shell offers for hosts, modules, runs, ideas, tools and tags.

It is asked at each press of a key, so it reads files and nothing else: the configuration as plain JSON (the project's
where it is trusted), the store by SQL, read-only. Where anything is wrong it offers nothing: an error would be printed
into what the person types.
"""

from __future__ import annotations

import json
import sqlite3  # Python's own: it loads faster than the store's, and no store is open in this process
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import typer

from ideabridge.tools.errors import IdeabridgeError

Offers = list[tuple[str, str]]
"""(what completes the word, what it is)."""

_MOST: Final = 100

_RUNS: Final = (
    "SELECT id, status || coalesce(': ' || title, '') FROM runs "
    "WHERE substr(id, 1, length(?1)) = ?1 AND parent IS NULL ORDER BY number DESC LIMIT ?2"
)
_NAMES: Final = (
    "SELECT name, description FROM publication_list WHERE live AND substr(name, 1, length(?1)) = ?1 "
    "ORDER BY name LIMIT ?2"
)
_VERSIONS: Final = (
    "SELECT name || '@' || version, description FROM publication_list "
    "WHERE substr(name || '@' || version, 1, length(?1)) = ?1 ORDER BY name, version DESC LIMIT ?2"
)
_IDEAS: Final = (
    "SELECT substr(id, 1, 12), coalesce(title, '') FROM idea_list WHERE substr(id, 1, length(?1)) = ?1 "
    "ORDER BY number DESC LIMIT ?2"
)
_TOOLS: Final = (
    "SELECT DISTINCT tool, module FROM call_list WHERE substr(tool, 1, length(?1)) = ?1 ORDER BY tool LIMIT ?2"
)
_TAGS: Final = "SELECT DISTINCT tag, '' FROM tag_list WHERE substr(tag, 1, length(?1)) = ?1 ORDER BY tag LIMIT ?2"


def hosts(incomplete: str) -> Offers:
    """The hosts there are."""
    from ideabridge.server.hosts.host import HOSTS

    return [(host.name, host.title) for host in HOSTS if host.name.startswith(incomplete)]


def modules(ctx: typer.Context, incomplete: str) -> Offers:
    """The configured modules."""
    names: dict[str, Any] = {}
    try:
        for _, content in _configurations(ctx):
            servers = content.get("mcpServers")
            names |= cast("dict[str, Any]", servers) if isinstance(servers, dict) else {}
    except (OSError, ValueError, RecursionError, IdeabridgeError):
        return []
    return [(name, "") for name in names if name.startswith(incomplete)]


def runs(ctx: typer.Context, incomplete: str) -> Offers:
    """The latest runs."""
    return _asked(ctx, incomplete, _RUNS)


def names(ctx: typer.Context, incomplete: str) -> Offers:
    """What is published."""
    return _asked(ctx, incomplete, _NAMES)


def versions(ctx: typer.Context, incomplete: str) -> Offers:
    """Every version of what is or was published."""
    return _asked(ctx, incomplete, _VERSIONS)


def ideas(ctx: typer.Context, incomplete: str) -> Offers:
    """What names an idea: what is published, the latest runs and the latest ideas."""
    return _asked(ctx, incomplete, _VERSIONS if "@" in incomplete else _NAMES, _RUNS, _IDEAS)


def tools(ctx: typer.Context, incomplete: str) -> Offers:
    """The tools that saved ideas call."""
    return _asked(ctx, incomplete, _TOOLS)


def tags(ctx: typer.Context, incomplete: str) -> Offers:
    """The tags of ideas."""
    return _asked(ctx, incomplete, _TAGS)


BY_METAVAR: Final[dict[str, Callable[..., Offers]]] = {
    "HOST": hosts,
    "MODULE": modules,
    "RUN": runs,
    "RUN|APPROVAL": runs,
    "REF": ideas,
    "NAME@VERSION": versions,
    "TOOL": tools,
    "TAG": tags,
}
"""What completes an argument or the value of an option, by its metavar."""


def _asked(ctx: typer.Context, incomplete: str, *queries: str) -> Offers:
    found: dict[str, str] = {}
    try:
        store = _store(ctx)
        if not store.is_file():
            return []
        address = f"file:{quote(str(store))}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=0.1)) as connection:
            for query in queries:
                for name, what in connection.execute(query, (incomplete, _MOST)):
                    found.setdefault(str(name), " ".join(str(what or "").split())[:60])
    except (OSError, ValueError, RecursionError, IdeabridgeError, sqlite3.Error):
        return []
    return list(found.items())


def _store(ctx: typer.Context) -> Path:
    """Where the store is, by the command line, else the configuration, else where it is by default."""
    given = _given(ctx, "store")
    if given is not None:
        return given.expanduser().absolute()
    for folder, content in _configurations(ctx):
        configured = content.get("store")
        if isinstance(configured, str):
            return folder / Path(configured).expanduser()
    import platformdirs

    return platformdirs.user_data_path("ideabridge") / "ideas.sqlite"


def _configurations(ctx: typer.Context) -> Iterator[tuple[Path, dict[str, Any]]]:
    """(folder, content as it stands there) of each configuration that would be used, the topmost first.

    Raises:
        OSError, ValueError, TrustError: one cannot be read.
    """
    import platformdirs

    from ideabridge.bridge.trust import FILE_NAME, is_project_file, is_trusted, read_own

    project = (_given(ctx, "project") or Path.cwd()).expanduser().absolute()
    given = _given(ctx, "config")
    own = platformdirs.user_config_path("ideabridge") / FILE_NAME
    file = project / FILE_NAME if given is None else given.expanduser().absolute()
    if given is not None and not is_project_file(file, project):
        files = [file]
    else:
        files = [file, own] if file.is_file() and is_trusted(file) else [own]
    for file in files:
        if file.is_file():
            content = json.loads(read_own(file).decode("utf-8-sig"))
            yield file.parent, cast("dict[str, Any]", content) if isinstance(content, dict) else {}


def _given(ctx: typer.Context, option: str) -> Path | None:
    """The value of a shared option, wherever on the line it stands."""
    for context in _contexts(ctx):
        value = context.params.get(option)
        if value is not None:
            return Path(str(value))
    return None


def _contexts(ctx: Any) -> Iterator[Any]:
    while ctx is not None:
        yield ctx
        ctx = ctx.parent
