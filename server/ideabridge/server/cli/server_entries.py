"""`ideabridge servers add`, `remove`, `enable` and `disable`: change one entry of an
`ideabridge.json`.

The user's own file is trusted as it is. A project's file is used only after a person has trusted
its exact content, so a server that these commands add or enable there starts only after that.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ideabridge.server.cli.console import (
    ExitCode,
    UsageError,
    at_terminal,
    print_json,
    say,
    terminal_width,
    wrapped,
)
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.servers import app
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.names import nearest

if TYPE_CHECKING:
    from ideabridge.server.hosts.entries import EntryFile

ServerArgument = Annotated[str, typer.Argument(metavar="SERVER", help="The server.")]


def _read_files(options: Options) -> list[EntryFile]:
    """Return the files that `--config` and `--scope` select, the user's own first."""
    from ideabridge.bridge.configuration import is_user_file, user_file
    from ideabridge.bridge.trust import FILE_NAME
    from ideabridge.server.hosts.entries import read_entry_file

    if options.config is not None:
        if options.scope is not None:
            raise UsageError("give --config or --scope, not both")
        file = options.config.expanduser().absolute()
        if is_user_file(file):
            return [read_entry_file(file, "user", None)]
        if options.project_file() is not None:
            return [read_entry_file(file, "project", options.folder())]
        return [read_entry_file(file, "file", None)]

    files: list[EntryFile] = []
    if options.scope != "project":
        files.append(read_entry_file(user_file(), "user", None))

    project_file = options.folder() / FILE_NAME
    if options.scope != "user" and not is_user_file(project_file):
        files.append(read_entry_file(project_file, "project", options.folder()))

    if not files:
        raise UsageError(f"--scope project: {project_file} is your own configuration")
    return files


def _file_of(options: Options, name: str) -> EntryFile:
    """Return the file that has a server.

    Raises:
        UsageError: no file has it, or both have it and `--scope` does not say which one is meant.
    """
    files = _read_files(options)
    having = [file for file in files if name in file.servers]
    if len(having) > 1:
        places = " and ".join(str(file.path) for file in having)
        raise UsageError(f"{places} have a server {name!r}: add --scope user or --scope project")

    if not having:
        known = dict.fromkeys(known for file in files for known in file.servers)
        near = nearest(name, known)
        names = ", ".join(near or known) or "none"
        hint = f"nearest: {names}" if near else f"there are: {names}"
        places = " or ".join(str(file.path) for file in files)
        raise UsageError(f"no server {name[:100]!r} in {places}; {hint}")

    return having[0]


@app.command("add")
@command("config", "project", "scope", "json")
def add_server(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the new server.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND]...",
            help="After --, the command that starts it, with its arguments; or its address.",
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="The address of a server over HTTP.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            "-e",
            metavar="KEY=VALUE",
            help="A variable of its environment; may be repeated. ${VAR} names one of yours.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="'NAME: VALUE'",
            help="An HTTP header of each request; may be repeated.",
        ),
    ] = None,
    cwd: Annotated[
        str | None,
        typer.Option(
            "--cwd",
            metavar="DIR",
            help="The folder that it runs in. Default: the project folder.",
        ),
    ] = None,
) -> int:
    """Add a server to your own configuration, or with --scope project to the project's.

    Every running ideabridge uses it at once. The project's configuration has to be trusted
    first. No secret is written into a file that a repository might contain.
    """
    from ideabridge.server.hosts.entries import plan_addition, started_by

    if options.config is None and options.scope is None:
        file = _read_files(_with_user_scope(options))[0]
    else:
        file = _read_files(options)[0]

    typed = _new_entry(words or [], url, env or [], header or [])
    _set_places(typed, cwd, file)
    addition = plan_addition(file, name, typed)
    entry = addition.entry
    stored_in = addition.store_secrets()
    outcome = _change(options, file, name, entry, starts=True)
    if options.json:
        secrets: JSONObject = {place.place: place.name for place in addition.recognised.places}
        print_json({**outcome.to_json(name, entry), "secrets": secrets, "stored_in": stored_in})
        return ExitCode.DONE

    _tell(f"{name} is in {file.title}", "green")
    _tell(f"  {'it starts' if 'command' in entry else 'its address'}: {started_by(entry)}")
    _say_backup(outcome)
    for place in addition.recognised.places:
        _tell(f"  {place.place} is a secret ({place.why}): the file has ${{secret:{place.name}}}")
    if stored_in is not None:
        _tell(f"  stored in {stored_in}")
    if addition.in_plain_text:
        places = ", ".join(addition.in_plain_text)
        _tell(f"  {places}: in plain text in that file, but never shown", "yellow")

    _say_unfound(entry)
    _say_namesake(options, name, file)
    _say_next(name, outcome)
    return ExitCode.DONE


def _say_namesake(options: Options, name: str, file: EntryFile) -> None:
    """Report a server of the same name in the project's file, which replaces one of the user's."""
    from ideabridge.bridge.trust import FILE_NAME
    from ideabridge.server.hosts.entries import read_entry_file
    from ideabridge.server.hosts.host import HostFileError

    if file.scope != "user":
        return
    try:
        project = read_entry_file(options.folder() / FILE_NAME, "project", None)
    except HostFileError as error:
        _tell(f"  {error}", "yellow")
        return
    if project.path != file.path and name in project.servers:
        _tell(
            f"  {project.title}, also has a server with this name; once it is trusted, that one is "
            "used in this project",
            "yellow",
        )


def _with_user_scope(options: Options) -> Options:
    import dataclasses

    return dataclasses.replace(options, scope="user")


def _new_entry(words: list[str], url: str | None, env: list[str], header: list[str]) -> JSONObject:
    """Return the entry that a command line describes.

    Raises:
        UsageError: the command line does not say how to reach a server, or says so twice.
    """
    from ideabridge.server.hosts.entries import address_entry, is_server_address, program_entry

    if url is None and len(words) == 1 and is_server_address(words[0]):
        url = words[0]
        words = []

    if url is not None and words:
        raise UsageError("give --url or a command, not both")
    if url is not None and env:
        raise UsageError("--env requires a command: for an address, use --header")
    if url is not None:
        return address_entry(url, dict(_header(text) for text in header))
    if words and header:
        raise UsageError("--header requires --url: for a program, use --env")
    if words:
        return program_entry(words, dict(_variable(text) for text in env))

    raise UsageError(
        "expected a command after --, or an address: `ideabridge servers add NAME -- npx -y "
        "some-server`, `ideabridge servers add NAME --url https://example.com/mcp`"
    )


def _variable(text: str) -> tuple[str, str]:
    from ideabridge.server.hosts.entries import variable_of

    variable = variable_of(text)
    if variable is None:
        # The text might be a secret.
        raise UsageError("--env: expected KEY=VALUE; KEY=${KEY} passes on one of your variables")
    return variable


def _header(text: str) -> tuple[str, str]:
    from ideabridge.server.hosts.entries import header_of

    header = header_of(text)
    if header is None:
        raise UsageError("--header: expected 'NAME: VALUE'")
    return header


def _set_places(entry: JSONObject, cwd: str | None, file: EntryFile) -> None:
    """Write the paths of the command line, which are relative to the current folder, in the form
    that the file needs.
    """
    command_word = entry.get("command")
    if isinstance(command_word, str) and _is_relative_path(command_word):
        entry["command"] = _place(command_word, file)
    if cwd is not None:
        entry["cwd"] = _place(cwd, file)


def _is_relative_path(word: str) -> bool:
    has_folder = "/" in word or os.sep in word
    return has_folder and not word.startswith(("~", "$")) and not Path(word).is_absolute()


def _place(text: str, file: EntryFile) -> str:
    """Return a path for an entry: relative in the file of a project that contains it, so that the
    file works in other clones, and absolute otherwise.
    """
    if text.startswith(("~", "$")):
        return text

    path = Path(os.path.normpath(Path.cwd() / text))
    if file.project is not None and path.is_relative_to(file.path.parent):
        return f"./{path.relative_to(file.path.parent).as_posix()}"
    return str(path)


def _say_unfound(entry: JSONObject) -> None:
    """Report a command that is not found here."""
    from ideabridge.server.hosts.entries import missing_program

    word = missing_program(entry)
    if word is not None:
        _tell(f"  {word} is not found on this machine, so the server cannot start", "yellow")


@app.command("remove")
@command("config", "project", "scope", "json")
def remove_server(options: Options, name: ServerArgument) -> int:
    """Remove a server from your own configuration, or from the project's. A backup is kept."""
    from ideabridge.server.hosts.entries import secrets_named_in

    file = _file_of(options, name)
    named = secrets_named_in(file.servers[name])
    outcome = _change(options, file, name, None, starts=False)
    if options.json:
        print_json(outcome.to_json(name, None))
        return ExitCode.DONE

    _tell(f"{name} is removed from {file.title}", "green")
    _say_backup(outcome)
    for secret in named:
        _tell(
            f"  its secret {secret} stays; `ideabridge secrets remove {secret}` removes it", "dim"
        )
    _say_trust(outcome)
    return ExitCode.DONE


@app.command("enable")
@command("config", "project", "scope", "json")
def enable_server(options: Options, name: ServerArgument) -> int:
    """Use a server that was disabled."""
    return _switch(options, name, on=True)


@app.command("disable")
@command("config", "project", "scope", "json")
def disable_server(options: Options, name: ServerArgument) -> int:
    """Keep a server in the configuration, but do not use it."""
    return _switch(options, name, on=False)


def _switch(options: Options, name: str, *, on: bool) -> int:
    from ideabridge.server.hosts.entries import is_on, switched

    file = _file_of(options, name)
    before = file.entry(name)
    state = "enabled" if on else "disabled"
    if is_on(before) == on:
        if options.json:
            print_json(_Outcome(file, None, changed=False).to_json(name, before))
        else:
            _tell(f"{name} is already {state} in {file.title}")
        return ExitCode.DONE

    entry = switched(before, on=on)
    outcome = _change(options, file, name, entry, starts=on)
    if options.json:
        print_json(outcome.to_json(name, entry))
        return ExitCode.DONE

    _tell(f"{name} is {state} in {file.title}", "green")
    _say_backup(outcome)
    if on:
        _say_next(name, outcome)
    else:
        _say_trust(outcome)
    return ExitCode.DONE


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The result of a command's change to a file.

    Attributes:
        file: the file, as it was before.
        backup: the file with its former content, or None if it did not exist or was not changed.
        changed: whether it was changed.
        is_trusted: whether the file is used as it is now.
    """

    file: EntryFile
    backup: Path | None
    changed: bool = True
    is_trusted: bool = True

    def to_json(self, name: str, entry: JSONObject | None) -> JSONObject:
        """Return what `--json` prints. `entry` is the entry as it is now."""
        from ideabridge.bridge.masking import shown_definition

        return {
            "server": name,
            "file": str(self.file.path),
            "scope": self.file.scope,
            "entry": None if entry is None else shown_definition(entry),
            "changed": self.changed,
            "backup": None if self.backup is None else str(self.backup),
            "trusted": self.is_trusted,
        }


def _change(
    options: Options, file: EntryFile, name: str, entry: JSONObject | None, *, starts: bool
) -> _Outcome:
    """Write a changed entry, and update the trust in a project's file.

    Args:
        options: the shared options.
        file: the file.
        name: the name of the server.
        entry: the new entry, or None to remove it.
        starts: whether the server starts from now on. If it does not, a file that was trusted stays
            trusted, because the change only takes something away.
    """
    from ideabridge.bridge.trust import look_at, project_trust
    from ideabridge.server.cli.trust import ask_about
    from ideabridge.server.hosts.entries import keep_trust

    text = file.edited(name, entry)
    if file.scope != "project":
        return _Outcome(file, text.write(private=file.scope == "user"))

    standing = project_trust(look_at(file.path)) if text.exists else None
    backup = text.write(project=file.project)
    if standing is not None and standing.is_trusted and not starts:
        expected = hashlib.sha256(text.data).hexdigest()
        return _Outcome(file, backup, is_trusted=keep_trust(standing, expected))

    trusts = at_terminal() and not options.json and ask_about(file.path, options.folder())
    return _Outcome(file, backup, is_trusted=trusts)


def _say_backup(outcome: _Outcome) -> None:
    if outcome.backup is not None:
        _tell(f"  the file as it was: {outcome.backup}", "dim")


def _say_trust(outcome: _Outcome) -> None:
    """Name the command that trusts a project's file, if it is not trusted."""
    from ideabridge.bridge.trust import trust_command

    if not outcome.is_trusted:
        file = outcome.file.path
        _tell(
            f"  the file is not trusted; to review and trust it: {trust_command(file)}",
            "yellow",
        )


def _say_next(name: str, outcome: _Outcome) -> None:
    _say_trust(outcome)
    if outcome.is_trusted:
        _tell(f"  to try it: ideabridge servers test {name}", "dim")
        _tell("  ideabridge uses it at once, in every client that is running", "dim")


def _tell(text: str, style: str | None = None) -> None:
    """Report a line, wrapped to the terminal. Lines that follow are indented further."""
    width = terminal_width(of_errors=True)
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    lines = [text] if width is None else wrapped(text, width, further=indent)
    for line in lines:
        say(line, style)
