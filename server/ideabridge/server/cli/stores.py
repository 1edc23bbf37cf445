"""The command `ideabridge store`, and functions that open the store given on the command line and
look up runs and ideas in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.cli.console import (
    UsageError,
    print_json,
    print_rows,
    print_value,
    say,
    working,
)
from ideabridge.server.cli.options import Options, command
from ideabridge.tools.encoding import JSON
from ideabridge.tools.names import counted, did_you_mean, joined, size_text

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.configuration import Configuration
    from ideabridge.bridge.store.run_record import RunRecord
    from ideabridge.bridge.store.sqlite.query import Value
    from ideabridge.bridge.store.store import Store


RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run: its id, the beginning of its id, or `last` (the newest)."
    ),
]


def store_exists(place: str) -> bool:
    """Return whether there is a store to open: an existing file, or an address.

    Raises:
        StoreAccessError: `place` cannot be a file.
    """
    from ideabridge.bridge.store.database import is_address
    from ideabridge.bridge.store.sqlite.files import file_exists

    return is_address(place) or file_exists(Path(place))


def with_existing_store(options: Options) -> Configuration:
    """Return the configuration for a command that needs an existing store. Raise `StoreAccessError`
    if the store does not exist.
    """
    from ideabridge.bridge.store.errors import StoreAccessError

    configuration = options.configuration()
    if not store_exists(str(configuration.store)):
        raise StoreAccessError(
            f"{configuration.store}: no store exists at this path yet; the first run creates it. "
            "To use another store, add --store"
        )
    return configuration


def open_bridge(options: Options) -> Bridge:
    """Return a bridge for the existing store, which the caller must enter. Raise `StoreAccessError`
    if the store does not exist.
    """
    from ideabridge.bridge.bridge import Bridge

    return Bridge(with_existing_store(options), standing_rules=True)


def open_store(options: Options, *, create: bool = False) -> Store:
    """Open the configured store, without starting any servers. Raise `StoreError` if the store
    cannot be opened, or if it does not exist and `create` is false.
    """
    from ideabridge.bridge.store.store import Store

    configuration = options.configuration() if create else with_existing_store(options)
    assert configuration.store is not None
    return Store.open(configuration.store, durability=configuration.durability)


REF_HELP: Final = (
    "A published name, NAME@VERSION, an idea's id or its first 6 digits, or a "
    "run (`last`: the newest)."
)

_PART: Final = re.compile(r"([^:]+):(\d{1,6})(?:-(\d{1,6}))?")
"""A selection of a run's calls: `RUN:FIRST-LAST`, or `RUN:CALL`, counted from 0."""

_MOST_NAMED: Final = 5
"""Maximum number of runs that an error message lists."""


def resolve_run(store: Store, text: str) -> RunRecord:
    """Return the run with this id or id prefix.

    `last` refers to the newest run that is not of kind `session`. `RUN:FIRST-LAST` turns these
    calls of a run into a separate run.

    Raises:
        UnknownRunError: no run matches.
        PublicationError: these calls cannot become a separate run.
        UsageError: several runs match.
    """
    from ideabridge.bridge.store.errors import UnknownRunError

    part = _PART.fullmatch(text)
    if part is not None:
        text = _cut(store, *part.groups())

    record = store.runs.get(text)
    if record is None and text == "last":
        record = next(
            iter(store.runs.newest(limit=1, rooms=False, sessions=False, caller=SEES_ALL)), None
        )
        if record is None:
            raise UnknownRunError("there is no last run: the store has no runs yet")

    if record is not None:
        return record

    # The id of a room begins with the id of its run, so list rooms only if the text contains a dot.
    matches = [
        run_id
        for run_id in store.runs.ids(text, 100) or store.runs.ids(f"run_{text}", 100)
        if "." in text or "." not in run_id
    ]
    if not matches or not text:
        ids = [run_id.id for run_id in store.runs.newest(limit=200, caller=SEES_ALL)]
        raise UnknownRunError(f"unknown run {text[:80]!r}.{did_you_mean(text, ids)}")
    if len(matches) > 1:
        raise UsageError(f"several runs begin with {text[:80]!r}: {joined(matches, _MOST_NAMED)}")

    record = store.runs.get(matches[0])
    assert record is not None
    return record


def _cut(store: Store, run: str, first: str, last: str | None) -> str:
    from ideabridge.bridge.runs.stretch import store_part

    record = resolve_run(store, run)
    return store_part(store, record.id, int(first), int(last or first), record.caller)


def lookup_run(options: Options, text: str) -> RunRecord:
    """Call `resolve_run` for the store given on the command line."""
    with open_store(options) as store:
        return resolve_run(store, text)


def resolve_idea(store: Store, ref: str) -> str:
    """Return `ref` if it names an idea. Otherwise, return the id of the run that `resolve_run`
    finds.

    Raises:
        UnknownIdeaError, AmbiguousIdeaError: `ref` names neither an idea nor a run, or more than
            one idea.
        UsageError: several runs match.
    """
    from ideabridge.bridge.store.errors import UnknownIdeaError, UnknownRunError

    try:
        store.ideas.get(ref, caller=SEES_ALL)
    except UnknownIdeaError as error:
        try:
            return resolve_run(store, ref).id
        except UnknownRunError:
            raise error from None

    return ref


def lookup_idea(options: Options, ref: str) -> str:
    """Call `resolve_idea` for the store given on the command line."""
    with open_store(options) as store:
        return resolve_idea(store, ref)


def lookup_called(options: Options, ref: str) -> str:
    """Look up an idea as `lookup_idea` does.

    `ref` can also be `session`, or the id of an active session of direct calls.
    """
    with open_store(options) as store:
        if ref == "session" or store.sessions.get(ref) is not None:
            return ref
        return resolve_idea(store, ref)


app = typer.Typer(
    help="Back up, copy, query or shrink the store of ideas and runs.", no_args_is_help=True
)


@app.command("backup")
@command("config", "project", "store", "json")
def back_up(
    options: Options,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write; it must not exist.")
    ],
) -> None:
    """Copy the store to a new file, even while the store is in use. An existing file is never
    overwritten.

    The copy of a store in a file is itself a store. The copy of a store in PostgreSQL is an archive
    for pg_restore, made by pg_dump.
    """
    target = file.expanduser().absolute()
    with open_store(options) as store, working("copying the store", quiet=options.json):
        size = store.back_up(target)
    options.print_or_say(
        {"file": str(target), "bytes": size}, f"{size_text(size)} copied to {target}"
    )


@app.command("copy")
@command("json")
def copy_store(
    options: Options,
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="The store to copy: a file, or postgresql://...")
    ],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="An empty or new store, or an unfinished copy.")
    ],
) -> None:
    """Copy a store from a file into PostgreSQL, or back. Other processes can use the store
    meanwhile, but must not use the copy.

    If the command is interrupted, run it again, and it continues where it stopped. It checks the
    ids of all copied ideas.
    """
    from ideabridge.bridge.configuration import place_of
    from ideabridge.bridge.store.store import Store

    places = [place_of(place, Path.cwd()) for place in (source, target)]
    if not store_exists(places[0]):
        raise UsageError(f"FROM: there is no store {places[0]}")

    with (
        Store.open(places[0]) as old,
        Store.open(places[1], is_unfinished=True) as new,
        working("copying", quiet=options.json),
    ):
        copied = old.copy_to(new)

    options.print_or_say(
        {
            "runs": copied.runs,
            "events": copied.events,
            "ideas": copied.ideas,
            "names": copied.names,
        },
        f"{counted(copied.runs, 'run')} with {counted(copied.events, 'event')}, "
        f"{counted(copied.ideas, 'idea')} and {counted(copied.names, 'published name')} copied to "
        f"{places[1]} and checked",
    )


_WIDEST_VALUE: Final = 100
"""Maximum number of characters of a value in a table of `store query`."""


@app.command("query")
@command("config", "project", "store", "json")
def query_store(
    options: Options,
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="One statement that reads, such as SELECT.")
    ],
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="The value of :NAME in the SQL; may be repeated.",
        ),
    ] = None,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print comma-separated values with a header line.")
    ] = False,
    table: Annotated[
        bool, typer.Option("--table", help="Print a table, which is the default.")
    ] = False,
) -> None:
    """Read the views and tables of the store (docs/store.md) with SQL, for all users. Nothing is
    changed.

    At most 10,000 rows are read, in at most 30 seconds. Bytes are printed as hex digits. A table
    shortens long values. If the terminal is too narrow for it, each row is printed as lines of
    names and values. A store in PostgreSQL is read with psql.
    """
    from ideabridge.bridge.store.database import is_address
    from ideabridge.bridge.store.sqlite.query import query

    if csv + table + options.json > 1:
        raise UsageError("give only one of --csv, --json and --table")

    place = str(with_existing_store(options).store)
    if is_address(place):
        raise UsageError(
            "`store query` reads stores that are SQLite files; read one in PostgreSQL with psql"
        )

    result = query(Path(place), sql, _read_parameters(parameters or []))
    rows = [[_readable(value) for value in row] for row in result.rows]
    if options.json:
        listed: list[JSON] = [dict(zip(result.columns, row, strict=True)) for row in rows]
        print_json({"columns": [*result.columns], "rows": listed, "more": bool(result.bound)})
    elif csv:
        _print_csv(result.columns, rows)
    else:
        _print_cut(result.columns, rows)

    if result.bound:
        say(
            f"only the first {result.bound} were read: use LIMIT and OFFSET to read the others",
            "yellow",
        )


def _read_parameters(words: list[str]) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.removeprefix(":")
        if not equals or not name.isidentifier():
            raise UsageError(f"--param {word[:80]!r}: expected NAME=VALUE")
        if name in parameters:
            raise UsageError(f"--param {name[:80]!r} is given twice")
        parameters[name] = value

    return parameters


def _readable(value: Value) -> str | int | float | None:
    """Return the value in a form that JSON can represent. Bytes become hexadecimal digits, and
    infinity becomes a word.
    """
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value


def _print_csv(columns: Sequence[str], rows: Sequence[Sequence[JSON]]) -> None:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    print_value(text.getvalue())


def _print_cut(columns: Sequence[str], rows: Sequence[Sequence[JSON]]) -> None:
    """Print a table in which values are truncated to `_WIDEST_VALUE` characters, and report how
    many values were truncated.
    """
    count = 0
    lines: list[list[str]] = []
    for row in rows:
        cells = ["" if value is None else str(value) for value in row]
        count += sum(len(cell) > _WIDEST_VALUE for cell in cells)
        lines.append(
            [
                cell if len(cell) <= _WIDEST_VALUE else f"{cell[: _WIDEST_VALUE - 1]}…"
                for cell in cells
            ]
        )

    print_rows(columns, lines)
    if count:
        say(
            f"{counted(count, 'value')} shortened: use --csv or --json to print them in full", "dim"
        )


@app.command("vacuum")
@command("config", "project", "store", "json")
def vacuum(options: Options) -> None:
    """Return unused space in the store's file to the disk. Other processes wait meanwhile."""
    with open_store(options) as store, working("rewriting the store", quiet=options.json):
        before, after = store.vacuum()
    options.print_or_say(
        {"before": before, "after": after}, f"{size_text(before)} before, {size_text(after)} after"
    )
