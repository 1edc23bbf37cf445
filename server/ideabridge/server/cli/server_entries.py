"""`ideabridge servers add`, `remove`, `enable` and `disable`: change one entry of an
`ideabridge.json`.

The user's own file is trusted as it is. A project's file is used only after a person has trusted
its exact content, so a server that these commands add or enable there starts only after that.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

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
from ideabridge.server.cli.servers import app, started_by
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.names import nearest

if TYPE_CHECKING:
    from ideabridge.bridge.modules.settings import ModuleConfiguration
    from ideabridge.bridge.recognising import RecognisedSecrets
    from ideabridge.bridge.trust import ProjectTrust
    from ideabridge.server.hosts.editing.host_text import HostText

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET: Final = re.compile(r"(?<!\$)\$\{secret:([^{}]*)\}")
_OFF: Final = ("disabled", "enabled")
"""The keys that say whether a server is used."""

ServerArgument = Annotated[str, typer.Argument(metavar="SERVER", help="The server.")]


@dataclass(frozen=True, slots=True)
class EntryFile:
    """A configuration file, one entry of which changes.

    Attributes:
        text: the file as it was read.
        scope: whose file it is: the user's own, the project's, or the one that --config names.
        project: the project folder that the file belongs to, or None.
        in_repository: whether a repository may hold the file, so that no secret is written to it.
    """

    text: HostText
    scope: Literal["user", "project", "file"]
    project: Path | None
    in_repository: bool

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.text.path

    @property
    def title(self) -> str:
        """The file in a sentence."""
        if self.scope == "user":
            return f"your own configuration, {self.path}"
        if self.scope == "project":
            return f"the project's configuration, {self.path}"
        return str(self.path)

    @property
    def servers(self) -> JSONObject:
        """The entries of the file, by name."""
        return self.text.entries(self._keys)

    @property
    def _keys(self) -> tuple[str, ...]:
        """The keys that lead to the entries of the file. A name that other hosts use stands for
        `mcpServers` if it is the only one.
        """
        from ideabridge.bridge.file_content import OTHER_NAMES

        names = [name for name in OTHER_NAMES if name in self.text.content]
        if "mcpServers" not in self.text.content and len(names) == 1:
            return (names[0],)
        return ("mcpServers",)

    def entry(self, name: str) -> JSONObject:
        """Return one entry. Raise `UsageError` if it is not an object."""
        entry = self.servers[name]
        if not isinstance(entry, dict):
            raise UsageError(f"{self.path}: mcpServers.{name} is not an object; change it by hand")
        return entry

    def edited(self, name: str, entry: JSONObject | None) -> HostText:
        """Return the text with an entry, or without the one of this name.

        Raises:
            HostFileError: the file cannot be edited without changing more of it.
        """
        if entry is None:
            return self.text.without_entry(self._keys, name)
        return self.text.with_entry(self._keys, name, entry)


def _read_files(options: Options) -> list[EntryFile]:
    """Return the files that `--config` and `--scope` leave: the user's own first."""
    from ideabridge.bridge.configuration import is_user_file, user_file
    from ideabridge.bridge.trust import FILE_NAME

    if options.config is not None:
        if options.scope is not None:
            raise UsageError("give --config or --scope, not both")
        file = options.config.expanduser().absolute()
        if is_user_file(file):
            return [_read_file(file, "user", None)]
        if options.project_file() is not None:
            return [_read_file(file, "project", options.folder())]
        return [_read_file(file, "file", None)]

    files: list[EntryFile] = []
    if options.scope != "project":
        files.append(_read_file(user_file(), "user", None))

    project_file = options.folder() / FILE_NAME
    if options.scope != "user" and not is_user_file(project_file):
        files.append(_read_file(project_file, "project", options.folder()))

    if not files:
        raise UsageError(f"--scope project: {project_file} is your own configuration")
    return files


def _read_file(
    path: Path, scope: Literal["user", "project", "file"], project: Path | None
) -> EntryFile:
    from ideabridge.bridge.trust import repository_of
    from ideabridge.server.hosts.editing.host_text import read_host_text

    in_repository = repository_of(Path(os.path.realpath(path)).parent) is not None
    text = read_host_text(path, "json")
    return EntryFile(text, scope, project, in_repository or scope == "project")


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
    """Add a server to your own configuration, or with --scope project to that of the project.

    Servers of ideabridge that run use it at once. The project's configuration has to be trusted
    first. No secret is written into a file that a repository may hold.
    """
    if options.config is None and options.scope is None:
        file = _read_files(_with_user_scope(options))[0]
    else:
        file = _read_files(options)[0]

    if name in file.servers:
        raise UsageError(
            f"{file.path} already has a server {name!r}; `ideabridge servers remove {name}` "
            "removes it"
        )

    typed = _new_entry(words or [], url, env or [], header or [])
    _set_places(typed, cwd, file)
    recognised = _without_secrets(name, typed, file)
    entry = recognised.entry
    left = _check_entry(name, entry, file)
    stored_in = _store_secrets(name, recognised, file)
    outcome = _change(options, file, name, entry, starts=True)
    if options.json:
        secrets: JSONObject = {place.place: place.name for place in recognised.places}
        print_json({**outcome.to_json(name, entry), "secrets": secrets, "stored_in": stored_in})
        return ExitCode.DONE

    _tell(f"{name} is in {file.title}", "green")
    _tell(f"  {'it starts' if 'command' in entry else 'its address'}: {started_by(entry)}")
    _say_backup(outcome)
    for place in recognised.places:
        _tell(f"  {place.place} is a secret ({place.why}): the file has ${{secret:{place.name}}}")
    if stored_in is not None:
        _tell(f"  stored in {stored_in}")
    if left:
        _tell(f"  {', '.join(left)}: in plain text in that file, but never shown", "yellow")

    _say_unfound(entry)
    _say_namesake(options, name, file)
    _say_next(name, outcome)
    return ExitCode.DONE


def _say_namesake(options: Options, name: str, file: EntryFile) -> None:
    """Report a server of the same name in the project's file, which replaces one of the user's."""
    from ideabridge.bridge.trust import FILE_NAME
    from ideabridge.server.hosts.host import HostFileError

    if file.scope != "user":
        return
    try:
        project = _read_file(options.folder() / FILE_NAME, "project", None)
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
        UsageError: the command line does not say how to reach a server, or says it twice.
    """
    if url is None and len(words) == 1 and words[0].lower().startswith(("http://", "https://")):
        url = words[0]
        words = []

    if url is not None and words:
        raise UsageError("give --url or a command, not both")
    if url is not None:
        entry: JSONObject = {"url": url}
        if env:
            raise UsageError("--env requires a command: for an address, use --header")
        headers: JSONObject = dict(_header(text) for text in header)
        if headers:
            entry["headers"] = headers
    elif words:
        arguments: list[JSON] = [*words[1:]]
        entry = {"command": words[0], "args": arguments} if arguments else {"command": words[0]}
        if header:
            raise UsageError("--header requires --url: for a program, use --env")
    else:
        raise UsageError(
            "give the command after --, or the address: `ideabridge servers add NAME -- npx -y "
            "some-server`, `ideabridge servers add NAME --url https://example.com/mcp`"
        )

    variables: JSONObject = dict(_variable(text) for text in env)
    if variables:
        entry["env"] = variables
    return entry


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not _VARIABLE.fullmatch(name):
        # The text may be a secret.
        raise UsageError("--env: expected KEY=VALUE; KEY=${KEY} passes on one of your variables")
    return name, value


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise UsageError("--header: expected 'NAME: VALUE'")
    return name.strip(), value.strip()


def _set_places(entry: JSONObject, cwd: str | None, file: EntryFile) -> None:
    """Write the paths of the command line, which are relative to the current folder, as the file
    needs them.
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


def _without_secrets(name: str, entry: JSONObject, file: EntryFile) -> RecognisedSecrets:
    """Return an entry with `${secret:NAME}` in the place of each secret. No secret that is stored
    already has one of these names.
    """
    from ideabridge.bridge.recognising import recognise_secrets
    from ideabridge.bridge.stored_secrets import find_secret, secret_owner

    owner = secret_owner(file.path)
    recognised = recognise_secrets(name, entry)
    number = 2
    while any(find_secret(owner, secret) is not None for secret in recognised.values):
        recognised = recognise_secrets(f"{name}-{number}", entry)
        number += 1
    return recognised


def _check_entry(name: str, entry: JSONObject, file: EntryFile) -> list[str]:
    """Return the places of what still looks like a secret in an entry.

    Raises:
        ConfigurationError: the entry cannot be used.
        UsageError: a repository may hold the file, and the entry has a secret.
    """
    from ideabridge.bridge.masking import hidden_in

    _parsed(name, entry)
    places = list(dict.fromkeys(hidden.place for hidden in hidden_in(entry)))
    if places and file.in_repository:
        holds = "holds" if len(places) == 1 else "hold"
        raise UsageError(
            f"{', '.join(places)} {holds} what looks like a secret, and {file.path} may be in a "
            "repository. Write ${VAR} in its place, and set the variable"
        )
    return places


def _parsed(name: str, entry: JSONObject) -> ModuleConfiguration:
    from ideabridge.bridge.configuration import check_server_entry, parse_configuration

    check_server_entry(name, entry, project=Path.cwd())
    return parse_configuration({"mcpServers": {name: entry}}, project=Path.cwd()).modules[name]


def _store_secrets(name: str, recognised: RecognisedSecrets, file: EntryFile) -> str | None:
    """Store the secrets of an entry, for this server. Return where they are, worded for people."""
    from ideabridge.bridge.modules.settings import entry_digest
    from ideabridge.bridge.stored_secrets import secret_owner, set_secret

    stored_in: str | None = None
    owner = secret_owner(file.path)
    servers: dict[str, str] = {}
    if owner.file is not None:
        servers[name] = entry_digest(_parsed(name, recognised.entry))
    for secret, value in recognised.values.items():
        stored_in = set_secret(owner, secret, value, servers)
    return stored_in


def _say_unfound(entry: JSONObject) -> None:
    """Report a command that is not found here."""
    command_word = entry.get("command")
    if not isinstance(command_word, str) or "$" in command_word:
        return
    if shutil.which(os.path.expanduser(command_word)) is None:  # noqa: PTH111 - there may be no home
        _tell(
            f"  {command_word} is not found on this machine, so the server cannot start", "yellow"
        )


@app.command("remove")
@command("config", "project", "scope", "json")
def remove_server(options: Options, name: ServerArgument) -> int:
    """Remove a server from your own configuration, or from the project's. A backup is kept."""
    file = _file_of(options, name)
    named = dict.fromkeys(_SECRET.findall(encode_text(file.servers[name])))
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
    return _switch(options, name, is_on=True)


@app.command("disable")
@command("config", "project", "scope", "json")
def disable_server(options: Options, name: ServerArgument) -> int:
    """Keep a server in the configuration, but do not use it."""
    return _switch(options, name, is_on=False)


def _switch(options: Options, name: str, *, is_on: bool) -> int:
    file = _file_of(options, name)
    before = file.entry(name)
    was_on = not (before.get("disabled") is True or before.get("enabled") is False)
    state = "enabled" if is_on else "disabled"
    if was_on == is_on:
        if options.json:
            print_json(_Outcome(file, None, changed=False).to_json(name, before))
        else:
            _tell(f"{name} is already {state} in {file.title}")
        return ExitCode.DONE

    entry: JSONObject = {key: value for key, value in before.items() if key not in _OFF}
    if not is_on:
        entry["disabled"] = True

    outcome = _change(options, file, name, entry, starts=is_on)
    if options.json:
        print_json(outcome.to_json(name, entry))
        return ExitCode.DONE

    _tell(f"{name} is {state} in {file.title}", "green")
    _say_backup(outcome)
    if is_on:
        _say_next(name, outcome)
    else:
        _say_trust(outcome)
    return ExitCode.DONE


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a command has done to a file.

    Attributes:
        file: the file, as it was before.
        backup: where its former content is, or None if it did not exist or was not changed.
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
    """Write a changed entry, and deal with the trust in a project's file.

    Args:
        options: the shared options.
        file: the file.
        name: the name of the server.
        entry: the new entry, or None to remove it.
        starts: whether the server starts from now on. If it does not, a file that was trusted
            stays trusted, because the change only takes something away.
    """
    from ideabridge.bridge.trust import look_at, project_trust
    from ideabridge.server.cli.trust import ask_about

    text = file.edited(name, entry)
    if file.scope != "project":
        return _Outcome(file, text.write(private=file.scope == "user"))

    standing = project_trust(look_at(file.path)) if text.exists else None
    backup = text.write(project=file.project)
    if standing is not None and standing.is_trusted and not starts:
        expected = hashlib.sha256(text.data).hexdigest()
        return _Outcome(file, backup, is_trusted=_keep_trust(standing, expected))

    trusts = at_terminal() and not options.json and ask_about(file.path, options.folder())
    return _Outcome(file, backup, is_trusted=trusts)


def _keep_trust(before: ProjectTrust, expected: str) -> bool:
    """Trust a project file after a change that only takes something away. Return False if another
    program has changed the file, or one that it names, in the meantime.

    Args:
        before: the trust in the file before the change.
        expected: the digest that the file should have now.
    """
    from ideabridge.bridge.trust import keep_trusted, look_at

    trusted = {**before.found.covered(before.data), before.found.file.name: expected}
    found = look_at(before.found.file)
    data = before.data & found.data_files.keys()
    if not found.covered(data).items() <= trusted.items():
        return False
    keep_trusted(found, data)
    return True


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
