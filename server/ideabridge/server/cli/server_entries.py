"""The commands `ideabridge servers add`, `edit`, `remove`, `enable` and `disable`, which change one
entry in an `ideabridge.json`.

The user's own file is always trusted. A project's file is used only after a person has trusted its
exact content, so a server that these commands add to such a file, or enable in it, starts only
after that.
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
    say_wrapped,
)
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.servers import app
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.names import nearest

if TYPE_CHECKING:
    from ideabridge.server.hosts.entries import EntryFile, PlannedEntry

ServerArgument = Annotated[str, typer.Argument(metavar="SERVER", help="The name of the server.")]


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
        UsageError: no file has the server, or both files have it and `--scope` is not set.
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
        hint = f"nearest: {names}" if near else f"its servers are {names}"
        places = " or ".join(str(file.path) for file in files)
        raise UsageError(f"there is no server {name[:100]!r} in {places}; {hint}")

    return having[0]


@app.command("add")
@command("config", "project", "scope", "secret", "plain", "json")
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

    Every running ideabridge uses the server immediately. The project's configuration has to be
    trusted first. No secret is written into a file that a repository might contain. The value of a
    secret is replaced in every output, log and page, so do not declare an ordinary word as a
    secret.
    """
    from ideabridge.server.hosts.entries import plan_addition, started_by

    if options.config is None and options.scope is None:
        file = _read_files(_with_user_scope(options))[0]
    else:
        file = _read_files(options)[0]

    typed = _new_entry(words or [], url, env or [], header or [])
    _set_places(typed, cwd, file)
    addition = plan_addition(file, name, typed, _chosen(typed, options))
    entry = addition.entry
    stored_in = addition.store_secrets()
    outcome = _change(options, file, name, entry, starts=True)
    if options.json:
        print_json({**outcome.to_json(name, entry), **_secrets_json(addition, stored_in)})
        return ExitCode.DONE

    _tell(f"{name} is in {file.title}", "green")
    label = "it starts" if "command" in entry else "its address"
    _tell(f"  {label}: {started_by(entry)}")
    _say_backup(outcome)
    _say_secrets(addition, stored_in)
    _say_unfound(entry)
    _say_namesake(options, name, file)
    _say_next(name, outcome)
    return ExitCode.DONE


def _chosen(entry: JSONObject, options: Options) -> dict[str, bool]:
    """Return, for each location in an entry that `--secret` or `--plain` names, whether its value
    is a secret.

    Raises:
        UsageError: the entry has no such variable or header, or both options name the same variable
            or header.
    """
    chosen: dict[str, bool] = {}
    for option, names, is_secret in (
        ("--secret", options.secret, True),
        ("--plain", options.plain, False),
    ):
        for name in names or ():
            places = [
                f"{part}.{name}"
                for part in ("env", "headers")
                if name in object_or_empty(entry.get(part))
            ]
            if not places:
                raise UsageError(f"{option}: the server has no variable or header {name[:100]!r}")
            if places[0] in chosen:
                raise UsageError(f"--secret and --plain name {name[:100]!r}; expected one")
            chosen[places[0]] = is_secret

    return chosen


def _secrets_json(planned: PlannedEntry, stored_in: str | None) -> JSONObject:
    """Return the new secrets of an entry and where they are stored, as `--json` prints them."""
    secrets: JSONObject = {place.place: place.name for place in planned.recognised.places}
    return {"secrets": secrets, "stored_in": stored_in}


def _say_secrets(planned: PlannedEntry, stored_in: str | None) -> None:
    """Report which values are stored as secrets, and which remain in the file."""
    for place in planned.recognised.places:
        _tell(f"  {place.place} is a secret ({place.why}): the file has ${{secret:{place.name}}}")
    if stored_in is not None:
        _tell(f"  stored in {stored_in}")
    if planned.in_plain_text:
        places = ", ".join(planned.in_plain_text)
        _tell(f"  {places}: in plain text in that file, but never shown", "yellow")


@app.command("edit")
@command("config", "project", "scope", "secret", "plain", "json")
def edit_server(
    options: Options,
    name: ServerArgument,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND]...",
            help="After --, another command with its arguments; or another address.",
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            "-e",
            metavar="KEY=VALUE",
            help="A variable that is added or changed; may be repeated.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="'NAME: VALUE'",
            help="An HTTP header that is added or changed; may be repeated.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Another setting, such as timeout=120 or 'deny=[\"delete_*\"]': JSON, or text; "
            "may be repeated.",
        ),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset",
            metavar="KEY",
            help="A setting that is removed: idle, env.REGION, 'headers.X-Team'; may be repeated.",
        ),
    ] = None,
) -> int:
    """Change a server in your own configuration, or in the project's. Everything that you do not
    name stays the same. A backup is kept.

    A new secret gets a new name. The previous secret stays stored, so that the backup can be used.
    """
    from ideabridge.server.hosts.entries import plan_change

    file = _file_of(options, name)
    before = file.entry(name)
    changed = _edited_entry(before, words or [], env or [], header or [])
    changed = _with_settings(changed, settings or [], unset or [])
    changed = _with_places(changed, before, file)
    if changed == before and not options.secret:
        raise UsageError(
            "nothing would change: expected --set, --unset, --env or --header with a different "
            "value, or a different command or address"
        )

    planned = plan_change(file, name, changed, _chosen(changed, options))
    stored_in = planned.store_secrets()
    outcome = _change(options, file, name, planned.entry, starts=True)
    left = planned.left_secrets()
    if options.json:
        shown: JSONObject = {**_secrets_json(planned, stored_in), "left_secrets": list[JSON](left)}
        print_json({**outcome.to_json(name, planned.entry), **shown})
        return ExitCode.DONE

    _tell(f"{name} is changed in {file.title}", "green")
    for change in planned.changes:
        if change.before is not None:
            _tell(f"  - {change.name} {change.before}", "red")
        if change.after is not None:
            _tell(f"  + {change.name} {change.after}", "green")

    _say_backup(outcome)
    _say_secrets(planned, stored_in)
    for former in left:
        _tell(f"  its former secret {former} stays: `ideabridge secrets remove {former}`", "dim")
    _say_unfound(planned.entry)
    _say_next(name, outcome)
    return ExitCode.DONE


def _edited_entry(
    before: JSONObject, words: list[str], env: list[str], header: list[str]
) -> JSONObject:
    """Return the entry with a different command or address, and with additional variables and
    headers.
    """
    from ideabridge.bridge.server_entry import with_own_keys, with_settings

    now = with_own_keys(before)
    start: JSONObject = {}
    if words:
        start = _new_entry(words, None, [], [])
        if ("url" in start) != ("url" in now):
            # Remove settings that belong to the other kind of server, because they would be
            # rejected.
            start = {**dict.fromkeys(_OF_ONE_KIND), **start}
        elif "command" in start:
            start = {"args": None, **start}

    members = now if "type" not in start else start
    variables: JSONObject = dict(_variable(text) for text in env)
    headers: JSONObject = dict(_header(text) for text in header)
    if variables:
        start["env"] = {**object_or_empty(members.get("env")), **variables}
    if headers:
        start["headers"] = {**object_or_empty(members.get("headers")), **headers}
    return with_settings(before, start)


_OF_ONE_KIND = ("type", "command", "args", "env", "cwd", "url", "headers", "auth")
"""The settings that belong to a command or to an address, but not to both."""


def _with_settings(entry: JSONObject, settings: list[str], unset: list[str]) -> JSONObject:
    """Return the entry with some settings changed and others removed.

    Raises:
        UsageError: there is no such setting, or another command changes it.
    """
    from ideabridge.bridge.server_entry import with_own_keys, with_settings

    changes: JSONObject = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set: expected KEY=VALUE, found {text[:40]!r}")
        _expect_setting(key, "--set")
        changes[key] = _json_or_text(value)

    for place in unset:
        key, _, member = place.partition(".")
        _expect_setting(key, "--unset")
        now = with_own_keys(entry).get(key)
        if now is None or (member and member not in object_or_empty(now)):
            raise UsageError(f"--unset {place[:100]}: the server has no such setting")
        if not member:
            changes[key] = None
            continue
        rest = {name: value for name, value in object_or_empty(now).items() if name != member}
        entry = with_settings(entry, {key: rest or None})

    return with_settings(entry, changes)


def _with_places(entry: JSONObject, before: JSONObject, file: EntryFile) -> JSONObject:
    """Return the entry with the paths from the command line in the form that the file needs. Paths
    that are already in the file are unchanged.
    """
    from ideabridge.bridge.server_entry import with_settings

    typed = {
        key: entry[key]
        for key in ("command", "cwd")
        if key in entry and entry[key] != before.get(key)
    }
    cwd = typed.get("cwd")
    _set_places(typed, cwd if isinstance(cwd, str) else None, file)
    return with_settings(entry, typed)


def _expect_setting(key: str, option: str) -> None:
    """Raise `UsageError` if `key` is not a setting that `servers edit` changes."""
    from ideabridge.bridge.modules.settings import ModuleConfiguration

    elsewhere = {
        "disabled": "`ideabridge servers enable` and `disable`",
        "command": "the words after --",
        "args": "the words after --",
        "url": "the address in place of a command",
    }
    if key in elsewhere:
        raise UsageError(f"{option} {key}: {elsewhere[key]} changes it")
    if key not in ModuleConfiguration.model_fields:
        near = ", ".join(nearest(key, ModuleConfiguration.model_fields))
        hint = f"; nearest: {near}" if near else ""
        raise UsageError(f"{option}: a server has no setting {key[:40]!r}{hint}")


def _json_or_text(text: str) -> JSON:
    """Parse a text as JSON, or return it unchanged if it is not JSON."""
    from ideabridge.tools.encoding import decode
    from ideabridge.tools.errors import IdeabridgeError

    try:
        return decode(text, what="the value")
    except IdeabridgeError:
        return text


def _say_namesake(options: Options, name: str, file: EntryFile) -> None:
    """Report that a server in the project's file overrides one of the user's servers with the same
    name.
    """
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
        # Do not quote the text, because it might be a secret.
        raise UsageError("--env: expected KEY=VALUE; KEY=${KEY} passes on one of your variables")
    return variable


def _header(text: str) -> tuple[str, str]:
    from ideabridge.server.hosts.entries import header_of

    header = header_of(text)
    if header is None:
        raise UsageError("--header: expected 'NAME: VALUE'")
    return header


def _set_places(entry: JSONObject, cwd: str | None, file: EntryFile) -> None:
    """Set the paths from the command line, which are relative to the current folder, in the form
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
    """Return a path for an entry. In a project's file, a path inside the project is relative, so
    that the file works in other clones. Any other path is absolute.
    """
    if text.startswith(("~", "$")):
        return text

    path = Path(os.path.normpath(Path.cwd() / text))
    if file.project is not None and path.is_relative_to(file.path.parent):
        return f"./{path.relative_to(file.path.parent).as_posix()}"
    return str(path)


def _say_unfound(entry: JSONObject) -> None:
    """Report if an entry's command is not found on this machine."""
    from ideabridge.server.hosts.entries import missing_program

    word = missing_program(entry)
    if word is not None:
        _tell(f"  {word} was not found on this machine, so the server cannot start", "yellow")


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
            f"  its secret {secret} stays; run `ideabridge secrets remove {secret}` to remove it",
            "dim",
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
    """The result of changing a file.

    Attributes:
        file: the file before the change.
        backup: a copy of the previous file, or None if the file did not exist or was not changed.
        changed: whether the command changed the file.
        is_trusted: whether the current content of the file is trusted, and therefore used.
    """

    file: EntryFile
    backup: Path | None
    changed: bool = True
    is_trusted: bool = True

    def to_json(self, name: str, entry: JSONObject | None) -> JSONObject:
        """Return the outcome as `--json` prints it. `entry` is the entry after the change."""
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
    """Write a changed entry, and update the trust in the project's file.

    Args:
        options: the shared options.
        file: the file to change.
        name: the name of the server.
        entry: the new entry, or None to remove the entry.
        starts: whether the change can start a server. If not, a trusted file stays trusted, because
            the change only removes something.
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
        _tell(f"  backup: {outcome.backup}", "dim")


def _say_trust(outcome: _Outcome) -> None:
    """Name the command that trusts a project's file, unless the file is already trusted."""
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
    """Print a message, wrapped to the width of the terminal. Continuation lines are indented
    further.
    """
    indent = len(text) - len(text.lstrip()) + 2
    say_wrapped(text, style, further=" " * indent)
