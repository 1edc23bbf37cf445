"""`ideabridge ideas export` and `import`: ideas as files, one document for each idea."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ideabridge.server.cli.console import UsageError, at_terminal, print_json, report, say
from ideabridge.server.cli.ideas import app, document_lines
from ideabridge.server.cli.inputs import read_json
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.stores import REF_HELP, open_store, resolve_idea
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import is_safe_name, printable

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.publishing.importing import ImportResult
    from ideabridge.bridge.store.shapes import Need
    from ideabridge.bridge.store.store import Store


@contextmanager
def _reading(options: Options) -> Generator[Bridge]:
    """A bridge over the store of the configuration. It is not entered: no module is started."""
    from ideabridge.bridge.bridge import Bridge

    with open_store(options) as store:
        yield Bridge(options.configuration(), store=store)


@app.command("export")
@command("config", "project", "store")
def export_ideas(
    options: Options,
    refs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[REF]...",
            help=f"{REF_HELP} May be repeated.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: standard output.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", metavar="DIR", help="Write a file for each idea to this folder: NAME.json or ID.json."
        ),
    ] = None,
    published: Annotated[bool, typer.Option("--published", help="Export everything that is published.")] = False,
) -> int:
    """Write ideas as portable JSON documents, with their publications where REF is a name.

    An idea that holds a secret is refused: a configured one, or one of a well-known shape.
    """
    wanted = list(refs or [])
    if output is not None and folder is not None:
        raise UsageError("--output, --folder: give one of them")
    if folder is None and (published or len(wanted) != 1):
        raise UsageError("REF: expected one idea; several go into a folder (--folder DIR)")
    with _reading(options) as bridge:
        if published:
            wanted += [name for name in _published(bridge.store) if name not in wanted]
        if folder is not None:
            return _export_all(bridge, wanted, folder.expanduser())
        document = bridge.export_idea(resolve_idea(bridge.store, wanted[0]))
    text = _text(document)
    if output is None:
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
        return 0
    write_file(output.expanduser(), text, "--output")
    say(f"written to {output}", "green")
    return 0


def _published(store: Store) -> list[str]:
    names: list[str] = []
    after: str | None = None
    while True:
        page = store.publications.page(500, after)
        names += [one.name for one in page.items]
        if page.next is None:
            return names
        after = page.next


def _export_all(bridge: Bridge, refs: list[str], folder: Path) -> int:
    """Each into a file of its own; one that cannot be exported is told, and holds up none of the others."""
    if not refs:
        raise UsageError("REF: nothing to export: name ideas, or publish some")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--folder: {folder} cannot be made: {error.strerror or error}") from None
    refused = 0
    for ref in refs:
        try:
            document = bridge.export_idea(resolve_idea(bridge.store, ref))
        except IdeabridgeError as error:
            refused += 1
            report(f"{ref}: {error}")
            continue
        told = document.get("publication")
        # `NAME@2` keeps its version; nothing else of what was typed becomes part of a path.
        name = str(document["id"])[:12]
        if isinstance(told, dict) and is_safe_name(str(told["name"])):
            name = f"{told['name']}@{int(str(told['version']))}" if "@" in ref else str(told["name"])
        write_file(folder / f"{name}.json", _text(document), "--folder", named=False)
    say(f"{len(refs) - refused} ideas written to {folder}{f', {refused} refused' if refused else ''}", "green")
    return 1 if refused else 0


def _text(document: JSONObject) -> str:
    # It may go to a terminal, now or later.
    return printable(json.dumps(document, ensure_ascii=False, indent=2)) + "\n"


def write_file(path: Path, text: str, option: str = "", *, named: bool = True) -> None:
    """Write a file whole or not at all, readable for its owner alone. A link is never followed: whoever made the folder
    does not choose which other file of this machine is overwritten.

    Args:
        path: the file.
        text: what goes into it.
        option: stands before errors.
        named: a person named this very file, which may be a device or a pipe then.

    Raises:
        UsageError: it cannot be written, or is there and no plain file.
    """
    from ideabridge.bridge.trust import write_own

    where = f"{option}: {path}" if option else str(path)
    try:
        kind = _kind(path)
        if kind == "device" and named:
            # /dev/stdout, or a pipe that somebody reads.
            path.write_text(text, encoding="utf-8")
            return
        if kind == "folder":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if kind not in ("absent", "file"):
            raise UsageError(f"{where} is a {kind}, which is not written to")
        write_own(path, text)
    except OSError as error:
        raise UsageError(f"{where} cannot be written: {error.strerror or error}") from None


def _kind(path: Path) -> str:
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) and not (stat.S_ISCHR(path.stat().st_mode) or stat.S_ISFIFO(path.stat().st_mode)):
            return "link"
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "link" if path.is_symlink() else "absent"
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "device" if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) else "socket"


@app.command("import")
@command("config", "project", "store", "tools", "json")
def import_ideas(
    options: Options,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|DIR...", help="Files that export wrote, folders of them, or - for standard input."
        ),
    ],
    publish: Annotated[bool, typer.Option("--publish", help="Publish it too, under the name in the document.")] = False,
    replace: Annotated[
        list[str] | None,
        typer.Option(
            "--replace",
            metavar="NAME[@VERSION]",
            help="A published name that a document may replace; may be repeated. At a terminal you are asked.",
        ),
    ] = None,
    edited: Annotated[
        bool,
        typer.Option(
            "--edited",
            help="Take documents that were changed after export, or have no digest: you are shown each, and asked.",
        ),
    ] = False,
) -> int:
    """Save exported ideas in this store. The content of each is checked against its digest; servers and tools that it
    needs and that are missing here are named. Exit code 1 if one of several was refused.
    """
    import anyio

    if edited and (options.json or not at_terminal()):
        raise UsageError("--edited: a person looks at the documents, which takes a terminal, and not --json")
    if replace and not publish:
        raise UsageError("--replace goes with --publish")
    return anyio.run(_import, options, _files(files), publish, edited, tuple(replace or ()))


def _files(words: list[str]) -> list[tuple[str, bool]]:
    """(file, whether somebody named it itself) of what is named, and of what is in the folders named."""
    found: list[tuple[str, bool]] = []
    for word in words:
        path = Path(word).expanduser()
        if word != "-" and path.is_dir():
            # A folder from elsewhere cannot point at other files of this machine.
            inside = sorted(path.glob("*.json"))
            for file in inside:
                if file.is_symlink():
                    say(f"{file} is a link, and is not followed", "yellow")
            plain = [(str(file), False) for file in inside if file.is_file() and not file.is_symlink()]
            if not plain:
                raise UsageError(f"FILE: {word} holds no .json files")
            found += plain
        else:
            found.append((word, True))
    return found


async def _import(
    options: Options, files: list[tuple[str, bool]], publish: bool, edited: bool, replace: tuple[str, ...]
) -> int:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.publishing.importing import missing
    from ideabridge.server.cli.connecting import connected

    saved: list[tuple[str, ImportResult]] = []
    needed: list[Need] = []
    refused: list[JSON] = []
    async with AsyncExitStack() as stack:
        store = stack.enter_context(open_store(options, create=True))
        bridge = Bridge(options.configuration(), store=store)
        if publish:
            # The tools here say what a plan may do, so the modules are started.
            await stack.enter_async_context(connected(bridge))
        for file, named in files:
            try:
                document = read_json(file, "FILE", follow=named)
                adopted, needs = await _taken(bridge, document, options, publish, edited, replace)
                saved.append((file, adopted))
                needed += needs
            except IdeabridgeError as error:
                if len(files) == 1:
                    raise
                refused.append({"file": file, "error": str(error)})
                report(f"{file}: {error}")
        if publish:
            lacking = missing(needed, store, bridge.modules, bridge.tools())
        else:
            lacking = await _missing(options, store, needed)
    if options.json:
        ideas: list[JSON] = [{"file": file, **_adopted(one)} for file, one in saved]
        one: JSONObject = {"idea": saved[0][1].idea_id} if len(saved) == 1 else {}
        print_json({**one, "ideas": ideas, "published": publish, "refused": refused, "missing": list[JSON](lacking)})
    else:
        for file, adopted in saved:
            where = f"{file}: " if len(files) > 1 else ""
            told, before = adopted.publication, adopted.before
            named_as = f" and published as {told.name}, version {told.version}" if told is not None else ""
            say(f"{where}idea {adopted.idea_id[:12]} is saved{named_as}", "green")
            if told is not None and before is not None:
                stays = "which the name is pinned to" if not told.live else f"idea {before.idea_id[:12]}"
                say(
                    f"{where}{told.name} was published here already: version {before.version}, {stays}"
                    f" (`ideas diff {told.name}@{before.version} {told.name}@{told.version}`)",
                    "yellow",
                )
        for line in lacking:
            say(f"missing: {line}", "yellow")
    return 1 if refused else 0


async def _taken(
    bridge: Bridge, document: JSON, options: Options, publish: bool, edited: bool, replace: tuple[str, ...]
) -> tuple[ImportResult, list[Need]]:
    """Import one document; what a person must see first is shown, and asked about at a terminal."""
    from ideabridge.bridge.errors import NameInUseError
    from ideabridge.bridge.store.portable import read_document

    read, changed = read_document(document, "nothing" if edited else "whole"), False
    try:
        if edited:
            read_document(document)
    except IdeabridgeError as error:
        changed = True
        for text, style in document_lines(read):
            say(text, style)
        say(f"{error}", "yellow")
        if not typer.confirm("Take it as it is shown?", err=True):
            raise
    try:
        adopted = await bridge.import_idea(document, publish=publish, edited=changed, replace=replace)
    except NameInUseError as error:
        if options.json or not at_terminal():
            raise
        say(f"{error.ref} is published here. With this document in its place:", "bold")
        for line in error.lines:
            say(f"  {line}", {"+": "green", "-": "red", "~": "yellow"}.get(line[0]))
        if not typer.confirm(f"Replace {error.ref}?", err=True):
            raise
        adopted = await bridge.import_idea(document, publish=publish, edited=changed, replace=(*replace, error.ref))
    return adopted, read.needs


def _adopted(one: ImportResult) -> JSONObject:
    told: JSONObject = {"idea": one.idea_id}
    if one.publication is not None:
        told |= {"name": one.publication.name, "version": one.publication.version}
        told["before"] = None if one.before is None else one.before.version
    return told


async def _missing(options: Options, store: Store, needs: list[Need]) -> list[str]:
    """What the ideas need and is not here. The modules they name are asked, so they are started."""
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.publishing.importing import missing
    from ideabridge.server.cli.connecting import connected

    if not needs:
        return []
    async with connected(Bridge(options.configuration(), store=store)) as bridge:
        return missing(needs, store, bridge.modules, bridge.tools())
