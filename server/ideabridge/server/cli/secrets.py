"""The command `ideabridge secrets`, which manages the values of `${secret:NAME}` in servers'
entries.
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from ideabridge.server.cli.console import (
    ExitCode,
    UsageError,
    at_terminal,
    confirm,
    interruptible,
    report,
    say,
)
from ideabridge.server.cli.options import Options, command
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.names import visible

if TYPE_CHECKING:
    from ideabridge.bridge.configuration import Configuration
    from ideabridge.bridge.modules.settings import ModuleConfiguration
    from ideabridge.bridge.stored_secrets import SecretOwner, StoredSecret

_MOST_INPUT = 1024 * 1024

app = typer.Typer(help="Store, list and remove the values of ${secret:NAME}.", no_args_is_help=True)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the secret, as in ${secret:NAME}.")
]


@dataclass(frozen=True, slots=True)
class _Use:
    """A server whose entry names a secret.

    Attributes:
        server: the name of the server.
        places: where the server's entry names the secret, for example `env.TOKEN`.
        entry: the entry of the server.
        allowed: whether the server is allowed to use the stored secret.
    """

    server: str
    places: tuple[str, ...]
    entry: ModuleConfiguration
    allowed: bool


@app.command("set")
@command("config", "json")
def set_value(options: Options, name: NameArgument) -> None:
    """Store a secret, or replace its value.

    The value is typed at the terminal, where it is not shown, or comes from standard input. It is
    stored in the system's keyring or, if there is none, in a file that only you can read. The
    servers in your own configuration can use it. With --config, the servers in that file that
    currently name the secret can use it.
    """
    from ideabridge.bridge.modules.settings import entry_digest
    from ideabridge.bridge.secrets import MIN_LENGTH
    from ideabridge.bridge.stored_secrets import secret_name_problem, set_secret

    problem = secret_name_problem(name)
    if problem is not None:
        raise UsageError(problem)

    owner = _owner(options)
    uses = _uses(_configuration(owner), name, None)
    if owner.file is not None:
        _check_named(owner, name, uses)
        _say_uses(uses)

    value = _typed_value(name) if at_terminal() else _piped_value()
    servers = {} if owner.file is None else {use.server: entry_digest(use.entry) for use in uses}
    place = set_secret(owner, name, value, servers)
    result: JSONObject = {
        "name": name,
        "file": owner.file,
        "stored_in": place,
        "servers": _uses_json(uses),
    }
    options.print_or_say(result, f"{name} is stored in {place}")
    if options.json:
        return

    if len(value) < MIN_LENGTH:
        say(
            f"values with fewer than {MIN_LENGTH} characters are not hidden in results and logs",
            "yellow",
        )
    if not uses:
        say(f"write ${{secret:{name}}} where a server of yours needs the value", "dim")


@app.command("list")
@command("config", "project", "json")
def list_secrets(options: Options) -> int:
    """List secrets: who owns them, where their values are stored, and which servers use them.
    Values are never shown. The exit code is 1 if a server cannot get a secret that it names.
    """
    from ideabridge.bridge.stored_secrets import secret_owner, stored_secrets

    secrets = {(secret.file, secret.name): secret for secret in stored_secrets()}
    owners = [secret_owner(None)]
    project = options.project_file() or options.config
    if project is not None and project.is_file():
        owners.append(secret_owner(project.absolute()))

    owners += [secret_owner(Path(file)) for file, _ in secrets if file is not None]
    rows: list[tuple[str, ...]] = []
    listed: list[JSON] = []
    is_well = True
    for owner in dict.fromkeys(owners):
        configuration = _listed_configuration(owner)
        names = {name for file, name in secrets if file == owner.file}
        names |= _names_in(configuration)
        for name in sorted(names):
            secret = secrets.get((owner.file, name))
            uses = _uses(configuration, name, secret)
            state = _state(secret, uses)
            is_well = is_well and state == "stored"
            rows.append(_row(owner, name, secret, uses))
            listed.append(
                {
                    "name": name,
                    "file": owner.file,
                    "state": state,
                    "place": None if secret is None else secret.place,
                    "servers": _uses_json(uses),
                }
            )

    options.print_rows(
        {"secrets": listed},
        ("secret", "belongs to", "place", "used by"),
        rows,
        empty="no secrets are stored, and no server names any",
    )
    if not options.json:
        _say_commands(listed)
    return ExitCode.DONE if is_well else ExitCode.FAILED


@app.command("remove")
@command("config", "json")
def remove_value(options: Options, name: NameArgument) -> int:
    """Remove a secret from the keyring or the file. Servers that name it can no longer start."""
    from ideabridge.bridge.stored_secrets import remove_secret

    owner = _owner(options)
    removed = remove_secret(owner, name)
    if options.json or removed:
        options.print_or_say(
            {"name": name, "file": owner.file, "removed": removed}, f"{name} is removed"
        )
    else:
        report(f"no secret {name} is stored for {owner.shown}; `ideabridge secrets list` lists all")
    return ExitCode.DONE if removed else ExitCode.FAILED


@app.command("allow")
@command("config", "json")
def allow_servers(options: Options, name: NameArgument) -> int:
    """Let the servers in a file that is not your own, as they are now, use a stored secret.

    Use this command after such a server has changed, because the changed server might send the
    secret elsewhere. A person at the terminal decides.
    """
    from ideabridge.bridge.modules.settings import entry_digest
    from ideabridge.bridge.stored_secrets import allow_secret

    owner = _owner(options)
    if owner.file is None:
        raise UsageError("your own servers need no permission; --config names another file")

    uses = _uses(_configuration(owner), name, None)
    _check_named(owner, name, uses)
    if not at_terminal():
        raise UsageError(f"a person must review it at a terminal. Run: {owner.allow_command(name)}")

    _say_uses(uses)
    if not confirm(f"Let them use the secret {name}?"):
        say("nothing was changed", "yellow")
        return ExitCode.FAILED

    allow_secret(owner, name, {use.server: entry_digest(use.entry) for use in uses})
    result: JSONObject = {"name": name, "file": owner.file, "servers": _uses_json(uses)}
    servers = ", ".join(use.server for use in uses)
    options.print_or_say(result, f"{servers} can now use {name}")
    return ExitCode.DONE


# -- the value -------------------------------------------------------------------------------------


def _typed_value(name: str) -> str:
    with interruptible():
        return getpass.getpass(f"Value of {name} (it is not shown): ", sys.stderr)


def _piped_value() -> str:
    """Return the value from standard input, without the line ending that `echo` adds.

    Raises:
        UsageError: the value is not UTF-8 or is too long.
    """
    data = sys.stdin.buffer.read(_MOST_INPUT)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise UsageError("the value on standard input is not UTF-8") from None
    return text.removesuffix("\n").removesuffix("\r")


# -- owners and users of secrets -------------------------------------------------------------------


def _owner(options: Options) -> SecretOwner:
    """Return the owner of the secrets that a command manages."""
    from ideabridge.bridge.stored_secrets import secret_owner

    file = options.config
    return secret_owner(None if file is None else file.expanduser().absolute())


def _configuration(owner: SecretOwner) -> Configuration:
    """Read the configuration that the secrets belong to, without starting its servers.

    Raises:
        ConfigurationError: the configuration cannot be read, or there are problems with it.
    """
    from ideabridge.bridge.configuration import load_configuration, user_configuration

    if owner.file is None:
        return user_configuration(Path.cwd())
    return load_configuration(owner.file)


def _listed_configuration(owner: SecretOwner) -> Configuration:
    """Read a configuration for the list.

    If the configuration cannot be read, report the error and return an empty configuration, so that
    only stored secrets are listed.
    """
    from ideabridge.bridge.configuration import Configuration, ConfigurationError

    try:
        return _configuration(owner)
    except ConfigurationError as error:
        report(str(error))
        return Configuration()


def _names_in(configuration: Configuration) -> set[str]:
    from ideabridge.bridge.modules.settings import secrets_named

    return {name for entry in configuration.modules.values() for name in secrets_named(entry)}


def _uses(configuration: Configuration, name: str, secret: StoredSecret | None) -> list[_Use]:
    """Return the servers that name a secret. `secret` is the stored secret with that name."""
    from ideabridge.bridge.modules.settings import entry_digest, secrets_named

    uses: list[_Use] = []
    for server, entry in configuration.modules.items():
        places = secrets_named(entry).get(name)
        if places is None:
            continue

        allowed = secret is not None and (
            secret.file is None or secret.servers.get(server) == entry_digest(entry)
        )
        uses.append(_Use(server, tuple(places), entry, allowed))

    return uses


def _check_named(owner: SecretOwner, name: str, uses: list[_Use]) -> None:
    """Raise `UsageError` if no server in the file names the secret."""
    if not uses:
        raise UsageError(
            f"no server of {owner.shown} names ${{secret:{name}}}. Name it in the entry of a "
            "server first, because a secret of this file is only for servers that already name it"
        )


# -- output ----------------------------------------------------------------------------------------


def _say_uses(uses: Iterable[_Use]) -> None:
    """Report which servers get a secret, with their commands or addresses, and the other settings
    that determine where the secret is sent.
    """
    from ideabridge.server.hosts.entries import start_line

    for use in uses:
        places = ", ".join(use.places)
        shown = _shown(use.entry)
        # Make the text visible, because it comes from a file that might be someone else's.
        say(visible(f"{use.server} receives it, in {places}: {start_line(shown)}"))
        if "cwd" in shown:
            say(visible(f"  in the folder {shown['cwd']}"))
        for key, what in (("env", "the variable"), ("headers", "the header"), ("auth", "auth")):
            members = shown.get(key)
            for name, value in object_or_empty(members).items():
                say(visible(f"  with {what} {name}: {value}"))


def _shown(entry: ModuleConfiguration) -> JSONObject:
    """Return an entry without secrets."""
    from ideabridge.bridge.masking import shown_definition

    return shown_definition(cast("JSONObject", entry.model_dump(mode="json", exclude_unset=True)))


def _state(
    secret: StoredSecret | None, uses: Iterable[_Use]
) -> Literal["stored", "missing", "not allowed"]:
    if secret is None:
        return "missing"
    return "stored" if all(use.allowed for use in uses) else "not allowed"


def _row(
    owner: SecretOwner, name: str, secret: StoredSecret | None, uses: Iterable[_Use]
) -> tuple[str, ...]:
    servers = [
        use.server if use.allowed or secret is None else f"{use.server} (not allowed)"
        for use in uses
    ]
    place = "missing" if secret is None else secret.place
    whose = "yours" if owner.file is None else owner.shown
    return name, whose, place, ", ".join(servers) or "-"


def _say_commands(listed: Iterable[JSON]) -> None:
    """Report the commands that store missing secrets or allow servers to use them."""
    from ideabridge.bridge.stored_secrets import SecretOwner

    for entry in cast("list[JSONObject]", listed):
        owner = SecretOwner(cast("str | None", entry["file"]))
        name = str(entry["name"])
        if entry["state"] == "missing":
            say(f"{name} is not stored; run: {owner.set_command(name)}", "yellow")
        elif entry["state"] == "not allowed":
            say(
                f"{name} is not allowed for all servers that name it; run: "
                f"{owner.allow_command(name)}",
                "yellow",
            )


def _uses_json(uses: Iterable[_Use]) -> list[JSON]:
    from ideabridge.server.hosts.entries import start_line

    return [
        {
            "name": use.server,
            "places": list[JSON](use.places),
            "target": start_line(_shown(use.entry)),
        }
        for use in uses
    ]
