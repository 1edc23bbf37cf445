"""The commands `ideabridge ideas export` and `import`, which write and read ideas as files, one
document per idea.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.cli.console import (
    UsageError,
    at_terminal,
    confirm,
    err,
    print_json,
    report,
    say,
)
from ideabridge.server.cli.ideas import app, document_lines
from ideabridge.server.cli.inputs import about_file, read_document_at
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.stores import REF_HELP, open_store, resolve_idea
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import (
    counted,
    is_safe_name,
    printable,
    readable_json,
    visible,
    wrap_visible,
)

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.publishing.importing import SavedIdea
    from ideabridge.bridge.store.shapes import Need
    from ideabridge.bridge.store.store import Store


@app.command("export")
@command("config", "project", "store")
def export_ideas(
    options: Options,
    refs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[REF]...", help=f"{REF_HELP} May be repeated."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Default: standard output."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            metavar="DIR",
            help="Write a file for each idea to this folder: NAME.json or ID.json.",
        ),
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Export every published idea.")
    ] = False,
    results: Annotated[
        bool,
        typer.Option(
            "--results", help="Also export values from results of calls, which may be private."
        ),
    ] = False,
) -> int:
    """Write ideas as portable JSON documents, with the publication if REF is a name.

    With --folder, a tool that was written by hand is exported as the document that `ideas add`
    reads.

    Without --results, the results of calls that a later Request contains are omitted: the document
    lists the missing results, and has a different id. An idea that contains a configured secret, or
    a secret in a well-known form, is refused.
    """
    from ideabridge.bridge.bridge import Bridge

    references = list(refs or [])
    if output is not None and folder is not None:
        raise UsageError("give --output or --folder, not both")
    if folder is None and (published or len(references) != 1):
        raise UsageError(
            "REF: expected one idea; to export more than one, name a folder (--folder DIR)"
        )

    with open_store(options) as store:
        # Do not enter the bridge, because entering it starts the servers.
        bridge = Bridge(options.configuration(), store=store)
        if published:
            references += [name for name in _published(store) if name not in references]

        if folder is not None:
            return _export_all(bridge, references, folder.expanduser().absolute(), results=results)
        document = bridge.export_idea(
            resolve_idea(store, references[0]), caller=SEES_ALL, results=results
        )

    _say_what_is_left_out(references[0], document)
    text = _text(document)
    if output is None:
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
        return 0

    file = output.expanduser().absolute()
    write_text(file, text, "--output")
    say(f"written to {file}", "green")
    return 0


def _published(store: Store) -> list[str]:
    names: list[str] = []
    after: str | None = None
    while True:
        page = store.publications.page(500, after, caller=SEES_ALL)
        names += [publication.name for publication in page.items]
        if page.next is None:
            return names
        after = page.next


def _say_what_is_left_out(ref: str, document: JSONObject) -> None:
    """Report on standard error which results are missing from a document."""
    left_out = document.get("left_out")
    if not isinstance(left_out, list):
        return
    size = sum(int(str(entry["bytes"])) for entry in left_out if isinstance(entry, dict))
    report(
        f"{ref}: the document leaves out {counted(len(left_out), 'value')} "
        f"({counted(size, 'byte')}), because results of calls may be private, and lists their "
        "places. `ideas export --results` includes them, if this store still has them"
    )


def _export_all(bridge: Bridge, refs: list[str], folder: Path, *, results: bool) -> int:
    """Export each idea to a file. If an idea cannot be exported, report this and continue with the
    others.
    """
    if not refs:
        raise UsageError("REF: there is nothing to export; name some ideas, or publish some first")
    from ideabridge.bridge.trust import link_out

    link = link_out(folder, Path.cwd())
    if link is not None:
        raise UsageError(
            f"--folder: {folder} was not written to, because the link {link} "
            "leads out of this folder"
        )

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--folder: {folder} cannot be created: {error.strerror or error}"
        ) from None

    refused = 0
    for ref in refs:
        try:
            resolved = resolve_idea(bridge.store, ref)
            written = None if "@" in ref else bridge.written_idea(resolved, caller=SEES_ALL)
            document = written
            if document is None:
                document = bridge.export_idea(resolved, caller=SEES_ALL, results=results)
        except IdeabridgeError as error:
            refused += 1
            report(f"{ref}: {error}")
            continue

        _say_what_is_left_out(ref, document)
        name = _file_name(document, ref)
        write_text(folder / f"{name}.json", _text(document), "--folder", named=False)

    text = f"{counted(len(refs) - refused, 'idea')} written to {folder}"
    if refused:
        text = f"{text}, {refused} refused"
    say(text, "green")
    return 1 if refused else 0


def _file_name(document: JSONObject, ref: str) -> str:
    """Return the file name, without suffix, for an exported or hand-written idea."""
    if "ideabridge" not in document:
        return str(document["name"])
    publication = document.get("publication")
    # With `NAME@2`, the file name contains the version. No other part of REF becomes part of a
    # path.
    if isinstance(publication, dict) and is_safe_name(str(publication["name"])):
        name = str(publication["name"])
        if "@" not in ref:
            return name
        return f"{name}@{int(str(publication['version']))}"
    return str(document["id"])[:12]


def _text(document: JSONObject) -> str:
    # Make hidden characters visible, because the file might be shown on a terminal, now or later.
    return readable_json(document, 2) + "\n"


def write_text(path: Path, text: str, option: str = "", *, named: bool = True) -> None:
    """Write a file atomically, readable only by its owner.

    Symbolic links are never followed. Otherwise, the folder's owner could make this process
    overwrite another file on this machine.

    `named` says whether a person typed this path, so that it can be a device or a pipe. Error
    messages begin with `option`.

    Raises:
        UsageError: the file cannot be written, or it exists and is not a regular file.
    """
    from ideabridge.bridge.trust import link_out, write_own

    where = f"{option}: {path}" if option else str(path)
    try:
        kind = _kind(path)
        link = link_out(path.parent, Path.cwd())
        if link is not None:
            raise UsageError(
                f"{where} was not written to, because the link {link} leads out of this folder"
            )

        if kind == "device" and named:
            # The path is /dev/stdout, or a pipe that has a reader.
            path.write_text(text, encoding="utf-8")
            return

        if kind == "folder":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if kind not in ("absent", "file"):
            raise UsageError(f"{where} is a {kind}; expected a file")
        write_own(path, text)
    except OSError as error:
        raise UsageError(f"{where} cannot be written to: {error.strerror or error}") from None


def _kind(path: Path) -> str:
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) and not (
            stat.S_ISCHR(path.stat().st_mode) or stat.S_ISFIFO(path.stat().st_mode)
        ):
            return "link"
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "link" if path.is_symlink() else "absent"

    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode):
        return "device"
    return "socket"


@app.command("import")
@command("config", "project", "store", "tools", "json")
async def import_ideas(
    options: Options,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|DIR...", help="Exported files, folders of them, or - for standard input."
        ),
    ],
    publish: Annotated[
        bool, typer.Option("--publish", help="Also publish it, with the name in the document.")
    ] = False,
    replace: Annotated[
        list[str] | None,
        typer.Option(
            "--replace",
            metavar="NAME[@VERSION]",
            help=(
                "A published name that a document may replace; may be repeated. At "
                "a terminal you are asked."
            ),
        ),
    ] = None,
    edited: Annotated[
        bool,
        typer.Option(
            "--edited",
            help=(
                "Accept documents that were changed after the export or have no digest: you see "
                "each one and are asked."
            ),
        ),
    ] = False,
) -> int:
    """Save exported ideas in this store. The content of each idea is checked against its digest.

    Servers and tools that an idea needs but this installation lacks are reported. The exit code is
    1 if one of several ideas was refused.
    """
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.publishing.importing import missing
    from ideabridge.server.cli.connecting import connected

    if edited and (options.json or not at_terminal()):
        raise UsageError(
            "--edited: a person must review the documents, so it requires a terminal and cannot be "
            "combined with --json"
        )

    if replace and not publish:
        raise UsageError("--replace requires --publish")

    files = list_files(paths)
    names = tuple(replace or ())
    saved: list[tuple[str, SavedIdea]] = []
    needed: list[Need] = []
    refused: list[JSON] = []
    async with AsyncExitStack() as stack:
        store = stack.enter_context(open_store(options, create=True))
        bridge = Bridge(options.configuration(), store=store)
        if publish:
            # Start the servers, because the definitions of their tools say what a plan might do.
            await stack.enter_async_context(connected(bridge))

        for file, is_named in files:
            try:
                document = read_document_at(file, "FILE", follow=is_named)
                imported, needs = await _import_document(
                    bridge, document, options, publish, edited, names
                )
                saved.append((file, imported))
                needed += needs
            except IdeabridgeError as error:
                message = about_file(file, error)
                if len(files) == 1:
                    raise UsageError(message) from None
                refused.append({"file": file, "error": str(error)})
                report(message)

        lacking: list[str] = []
        if needed:
            # Start the servers that the ideas name, so that they can be asked for their tools.
            if not publish:
                bridge = await stack.enter_async_context(
                    connected(Bridge(options.configuration(), store=store))
                )
            lacking = missing(needed, store, bridge.modules, bridge.tools())

    if options.json:
        result: JSONObject = {"idea": saved[0][1].idea_id} if len(saved) == 1 else {}
        result["ideas"] = [{"file": file, **saved_json(idea)} for file, idea in saved]
        result["published"] = publish
        result["refused"] = refused
        result["missing"] = list[JSON](lacking)
        print_json(result)
    else:
        say_all_saved(saved, lacking, with_files=len(files) > 1)

    return 1 if refused else 0


def say_all_saved(
    saved: list[tuple[str, SavedIdea]], missing: list[str], *, with_files: bool
) -> None:
    """Report the outcome for each saved idea, and which servers and tools are missing.

    `saved` contains each idea with its file. If `with_files` is true, each line begins with the
    file.
    """
    for file, idea in saved:
        _say_saved(f"{visible(file)}: " if with_files else "", idea)

    for line in missing:
        say(f"missing: {line}", "yellow")


def _say_saved(where: str, saved: SavedIdea) -> None:
    """Report the outcome of saving an idea, in lines that begin with `where`."""
    new = saved.publication
    before = saved.before
    line = f"{where}idea {saved.idea_id[:12]}"
    if new is not None and saved.is_unchanged:
        line += f" is already published as {new.name}, version {new.version}; nothing changed"
        say(line, "dim")
        return

    line += " is saved"
    if new is not None:
        line += f" and published as {new.name}, version {new.version}"

    say(line, "green")
    if saved.left_out:
        say(
            f"{where}the document lacks {counted(len(saved.left_out), 'value')} that came from "
            "results of its run",
            "yellow",
        )

    if new is not None and before is not None:
        stays = f"idea {before.idea_id[:12]}" if new.live else "which the name is pinned to"
        diff = f"`ideas diff {new.name}@{before.version} {new.name}@{new.version}`"
        text = f"{new.name} was already published here: version {before.version}, {stays} ({diff})"
        say(where + text, "yellow")


def list_files(words: list[str], suffixes: tuple[str, ...] = (".json",)) -> list[tuple[str, bool]]:
    """Return each file that `words` names, and each file in the folders that it names, with whether
    a person typed exactly this path.
    """
    files: list[tuple[str, bool]] = []
    for word in words:
        path = Path(word).expanduser()
        if word != "-" and path.is_dir():
            # A folder might come from elsewhere, so it must not be able to link to other files on
            # this machine.
            inside = sorted(file for file in path.iterdir() if file.name.lower().endswith(suffixes))
            for file in inside:
                if file.is_symlink():
                    say(f"{visible(str(file))} is a link, which is not followed", "yellow")

            plain = [
                (str(file), False) for file in inside if file.is_file() and not file.is_symlink()
            ]
            if not plain:
                raise UsageError(f"FILE: {word} contains no {' or '.join(suffixes)} files")
            files += plain
        else:
            files.append((word, True))

    return files


async def _import_document(
    bridge: Bridge,
    document: JSON,
    options: Options,
    publish: bool,
    edited: bool,
    replace: tuple[str, ...],
) -> tuple[SavedIdea, list[Need]]:
    """Import one document. If the document was changed after the export, or would replace a
    publication, first show this to the person and ask.
    """
    from ideabridge.bridge.errors import NameInUseError
    from ideabridge.bridge.store.portable import read_document

    read = read_document(document, "nothing" if edited else "whole")
    changed = False
    try:
        if edited:
            read_document(document)
    except IdeabridgeError as error:
        changed = True
        for text, style in document_lines(read):
            # Break long lines here. If the terminal did it, the rest would begin at the left edge,
            # where it could pass for a line of its own.
            for line in wrap_visible(printable(text), err().width, further="        | "):
                say(line, style)

        say(f"{error}", "yellow")
        if not confirm("Accept it as shown?"):
            raise

    try:
        imported = await bridge.import_idea(
            document, publish=publish, edited=changed, replace=replace
        )
    except NameInUseError as error:
        if options.json or not at_terminal():
            raise
        say(f"{error.ref} is published here. With this document in its place:", "bold")
        for line in error.lines:
            say(f"  {line}", {"+": "green", "-": "red", "~": "yellow"}.get(line[0]))

        if not confirm(f"Replace {error.ref}?"):
            raise
        imported = await bridge.import_idea(
            document, publish=publish, edited=changed, replace=(*replace, error.ref)
        )

    return imported, read.needs


def saved_json(saved: SavedIdea) -> JSONObject:
    """Return the outcome of saving an idea as JSON."""
    members: JSONObject = {"idea": saved.idea_id}
    if saved.left_out:
        members["left_out"] = list[JSON](saved.left_out)

    if saved.publication is None:
        return members

    before = None if saved.before is None else saved.before.version
    return {
        **members,
        "name": saved.publication.name,
        "version": saved.publication.version,
        "before": before,
    }
