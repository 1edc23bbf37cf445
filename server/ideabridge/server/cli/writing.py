"""The command `ideabridge ideas add`, which saves hand-written ideas from files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ideabridge.bridge.context.written_call import written_calls
from ideabridge.server.cli.console import (
    UsageError,
    at_terminal,
    confirm,
    err,
    print_json,
    report,
    say,
)
from ideabridge.server.cli.ideas import app, document_lines, written_lines
from ideabridge.server.cli.inputs import about_file, file_name, read_bytes
from ideabridge.server.cli.options import Line, Options, command
from ideabridge.server.cli.sharing import list_files, saved_json, say_all_saved
from ideabridge.server.cli.stores import open_store
from ideabridge.tools.documents import JSON_SUFFIXES, YAML_SUFFIXES, read_written
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import printable, safe_name, visible, wrap_visible
from ideabridge.tools.tool import IDEA

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.publishing.importing import SavedIdea
    from ideabridge.bridge.publishing.written import WrittenIdea

_MAX_FILES = 1000


@dataclass(frozen=True, slots=True)
class _Read:
    """A file that was read.

    Attributes:
        file: the path of the file.
        document: the idea in the file.
        name: the name of the idea's tool, or "" if the idea is not a tool.
        is_export: whether `ideas export` wrote the file as a portable document.
        lines: the text that a person must see before the idea is saved.
        mentions: the tools, servers and ideas that the idea's calls name.
    """

    file: str
    document: JSONObject
    name: str
    is_export: bool
    lines: list[Line]
    mentions: frozenset[str]


@app.command("add")
@command("config", "project", "store", "tools", "json")
async def add_ideas(
    options: Options,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|DIR...",
            help=(
                "Ideas written by hand, as JSON, JSON with comments or YAML; folders of "
                "them; - for standard input."
            ),
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="The name of the tool. Default: the name in the file, or the name of the file.",
        ),
    ] = None,
    replace: Annotated[
        list[str] | None,
        typer.Option(
            "--replace",
            metavar="NAME[@VERSION]",
            help=(
                "A published name that a file may replace; may be repeated. At "
                "a terminal you are asked."
            ),
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask, but still show everything.")
    ] = False,
) -> int:
    """Save ideas that were written by hand, and publish each as a tool.

    Everything that a call would run, or tell a model, is shown before it is saved, and you are
    asked. The command does not run any call. The content of an idea decides how its tool answers:
    with a program, with calls, with an output, or else by asking a model. Files that `ideas export`
    wrote are accepted, too. The exit code is 1 if a file was refused.
    """
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.server.cli.connecting import connected

    if not yes and (options.json or not at_terminal()):
        raise UsageError(
            "cannot ask for confirmation without a terminal: review the files, then add --yes"
        )

    files = list_files(paths, (*JSON_SUFFIXES, *YAML_SUFFIXES))
    if len(files) > _MAX_FILES:
        raise UsageError(f"FILE: found {len(files):,} files; the limit is {_MAX_FILES:,}")
    if name is not None and len(files) != 1:
        raise UsageError("--name requires exactly one file")

    refused: list[JSON] = []

    def refuse(file: str, error: IdeabridgeError) -> None:
        message = about_file(file, error)
        if len(files) == 1:
            raise UsageError(message) from None
        refused.append({"file": file, "error": str(error)})
        report(message)

    read = _read_all(files, name, refuse)
    if not options.json:
        for idea in read:
            _show(idea, alone=len(files) == 1)

    if not yes and not _confirmed(read):
        say("nothing was saved", "yellow")
        return 1

    with open_store(options, create=True) as store:
        # Start the servers, because the definitions of their tools say what a plan might do.
        async with connected(Bridge(options.configuration(), store=store)) as bridge:
            saved = await _save_all(bridge, read, options, tuple(replace or ()), refuse)

    missing = list(dict.fromkeys(line for _, idea in saved for line in idea.missing))
    if options.json:
        ideas: list[JSON] = [
            {"file": file, **saved_json(idea), "unchanged": idea.is_unchanged}
            for file, idea in saved
        ]
        print_json({"ideas": ideas, "refused": refused, "missing": list[JSON](missing)})
    else:
        say_all_saved(saved, missing, with_files=len(files) > 1)

    return 1 if refused else 0


def _confirmed(ideas: list[_Read]) -> bool:
    """Ask the person whether to save the ideas. If there are none, do not ask."""
    if not ideas:
        return True
    return confirm("Save it?" if len(ideas) == 1 else f"Save these {len(ideas)} ideas?")


def _read_all(
    files: list[tuple[str, bool]],
    name: str | None,
    refuse: Callable[[str, IdeabridgeError], None],
) -> list[_Read]:
    """Read `files`, which `list_files` has returned, and return those that are ideas. Pass the
    others to `refuse`.
    """
    read: list[_Read] = []
    by_name: dict[str, _Read] = {}
    for file, is_named in files:
        try:
            idea = _read(file, name, follow=is_named)
            _expect_own_name(idea, by_name)
        except IdeabridgeError as error:
            refuse(file, error)
        else:
            read.append(idea)

    return read


async def _save_all(
    bridge: Bridge,
    ideas: list[_Read],
    options: Options,
    replaced: tuple[str, ...],
    refuse: Callable[[str, IdeabridgeError], None],
) -> list[tuple[str, SavedIdea]]:
    """Save the ideas, and return each saved idea with its file. Pass ideas that cannot be saved to
    `refuse`.
    """
    saved: list[tuple[str, SavedIdea]] = []
    for idea in _in_order(ideas):
        try:
            saved.append((idea.file, await _save(bridge, idea, options, replaced)))
        except IdeabridgeError as error:
            refuse(idea.file, error)

    return saved


def _in_order(read: list[_Read]) -> list[_Read]:
    """Sort the ideas so that each idea comes after the ideas that it calls.

    Ideas that call one another in a cycle keep the order of their files, and are refused when they
    are saved.
    """
    by_name = {idea.name: idea for idea in read if idea.name}
    begun: set[str] = set()
    ordered: list[_Read] = []

    def called_by(idea: _Read) -> Iterator[_Read]:
        return (by_name[name] for name in sorted(idea.mentions & by_name.keys()))

    for root in read:
        if root.file in begun:
            continue
        begun.add(root.file)
        path = [(root, called_by(root))]
        while path:
            idea, called = path[-1]
            further = next((callee for callee in called if callee.file not in begun), None)
            if further is None:
                ordered.append(idea)
                path.pop()
            else:
                begun.add(further.file)
                path.append((further, called_by(further)))

    return ordered


def _read(file: str, name: str | None, *, follow: bool) -> _Read:
    from ideabridge.bridge.publishing.written import read_idea
    from ideabridge.bridge.store.portable import read_document

    document = read_written(
        read_bytes(file, "FILE", follow=follow), what=file_name(file), name=Path(file).name
    )
    if isinstance(document, dict) and "ideabridge" in document:
        exported = read_document(document)
        publication = exported.publication or {}
        if name is not None and name != publication.get("name"):
            raise UsageError("--name: an exported idea keeps its name")

        called = frozenset(need.module.removeprefix(IDEA) for need in exported.needs)
        return _Read(
            file, document, str(publication.get("name", "")), True, document_lines(exported), called
        )

    if not isinstance(document, dict):
        raise UsageError(f'{file_name(file)}: expected an object, {{"context": [...], ...}}')

    if name is not None:
        document = {**document, "name": name}

    stem = safe_name(Path(file).stem) if file != "-" else None
    written = read_idea(document, name=stem)
    return _Read(
        file, document, written.name or "", False, written_lines(written), _mentions(written)
    )


def _expect_own_name(idea: _Read, by_name: dict[str, _Read]) -> None:
    """Refuse an idea with the same name as another idea but different content. Otherwise, record
    its name.
    """
    first = by_name.setdefault(idea.name, idea) if idea.name else idea
    if first.lines != idea.lines:
        raise UsageError(
            f"name: {idea.name!r} is also the name of {visible(first.file)}; give one of them "
            "another name"
        )


def _mentions(written: WrittenIdea) -> frozenset[str]:
    words = set(re.findall(r"\w+", written.solution.program or ""))
    calls = written_calls(written.solution.calls)
    named = [name for call in calls for name in (call.tool, call.module) if name]
    words.update(name.removeprefix(IDEA) for name in (*named, *(written.tools or ())))
    return frozenset(words)


def _show(idea: _Read, *, alone: bool) -> None:
    if not alone:
        say(visible(idea.file), "bold cyan")
    for text, style in idea.lines:
        # Break long lines here. If the terminal did it, the rest would begin at the left edge,
        # where it could pass for a line of its own.
        for line in wrap_visible(printable(text), err().width, further="        | "):
            say(line, style)


async def _save(
    bridge: Bridge, idea: _Read, options: Options, replace: tuple[str, ...]
) -> SavedIdea:
    """Save one idea. If it would replace another idea, first show the differences to the person and
    ask.
    """
    from ideabridge.bridge.errors import NameInUseError

    async def save(replaced: tuple[str, ...]) -> SavedIdea:
        if idea.is_export:
            return await bridge.import_idea(
                idea.document, publish="publication" in idea.document, replace=replaced
            )
        return await bridge.save_idea(idea.document, name=idea.name or None, replace=replaced)

    try:
        return await save(replace)
    except NameInUseError as error:
        if options.json or not at_terminal():
            raise
        say(f"{error.ref} is published here. With {visible(idea.file)} in its place:", "bold")
        for line in error.lines:
            say(f"  {line}", {"+": "green", "-": "red", "~": "yellow"}.get(line[0]))

        if not confirm(f"Replace {error.ref}?"):
            raise
        return await save((*replace, error.ref))
