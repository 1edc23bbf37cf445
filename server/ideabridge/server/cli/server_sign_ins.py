"""The commands `ideabridge servers login` and `logout`, which sign a person in to servers over HTTP
(OAuth), or out of them.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ideabridge.server.cli.console import ExitCode, UsageError, print_json, read_line, say
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.servers import app
from ideabridge.server.cli.stores import open_store
from ideabridge.tools.encoding import JSON
from ideabridge.tools.names import printable, whole_duration_text

if TYPE_CHECKING:
    from ideabridge.bridge.modules.authorization import Person
    from ideabridge.bridge.modules.device import DeviceCode, DevicePerson
    from ideabridge.bridge.modules.settings import AuthorizationSettings
    from ideabridge.bridge.modules.sign_ins import ModuleUser

UserOption = Annotated[
    str | None,
    typer.Option(
        "--user",
        metavar="USER",
        help="A user of ideabridge on this store. Default: the person who starts it.",
    ),
]


@app.command("login")
@command("config", "project", "store", "json")
async def log_in(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="SERVER", help="The name of the server.")],
    user: UserOption = None,
    no_browser: Annotated[
        bool,
        typer.Option(
            "--no-browser",
            help=(
                "Print the address, and read the address that the browser ends up at from "
                "standard input."
            ),
        ),
    ] = False,
    device: Annotated[
        bool,
        typer.Option("--device", help="Print an address and a code, for a browser on any device."),
    ] = False,
) -> int:
    """Sign in to a server over HTTP with a browser (OAuth), so that every ideabridge that runs on
    this machine can use it.

    Over SSH and in containers, --device needs no browser on this machine. With --user, only the
    calls of this user use the sign-in. The exit code is 1 if the server does not ask for a sign-in.
    """
    from ideabridge.bridge.modules.modules import Modules
    from ideabridge.server.asking.signing_in import expect_sign_in, sign_in

    if device and no_browser:
        raise UsageError(
            "give --device or --no-browser, not both: with --device, there is no address to paste"
        )

    configuration = options.configuration()
    entry = Modules(configuration)[name].configuration
    configuration.expect_usable(name)
    expect_sign_in(name, entry, user)
    module_user: ModuleUser | None = None
    if user is not None:
        module_user = _module_user(options, user)

    async with _person(entry.auth, no_browser=no_browser, device=device) as person:
        signed_in = await sign_in(configuration, name, person, module_user)

    if options.json:
        kept_in = None if signed_in is None else signed_in.kept_in
        is_signed_in = signed_in is not None
        print_json({"module": name, "user": user, "signed_in": is_signed_in, "kept_in": kept_in})
    elif signed_in is None:
        say(f"{name} does not require a sign-in")
    else:
        say(f"{_subject(user)}signed in to {name}; the tokens are in {signed_in.kept_in}", "green")

    if signed_in is not None and signed_in.problem:
        say(signed_in.problem, "red")
    return ExitCode.FAILED if signed_in is None else ExitCode.DONE


def _subject(user: str | None) -> str:
    """Return the beginning of a sentence about a sign-in.

    The text names the user, unless the sign-in belongs to the person who started ideabridge.
    """
    if user is None:
        return ""
    return f"{user} is "


def _module_user(options: Options, name: str) -> ModuleUser:
    """Return an active user from the store. Raise `UnknownUserError` if no user has this name, and
    `UserError` if the user is not active.
    """
    from ideabridge.bridge.modules.sign_ins import ModuleUser
    from ideabridge.bridge.store.errors import UserError

    with open_store(options) as store:
        state = store.users.get(name).state
        if state != "active":
            raise UserError(f"{name!r} is {state}: only an active user can sign in")
        return ModuleUser(name, store.settings.sign_in_key(make=True))


@asynccontextmanager
async def _person(
    settings: AuthorizationSettings | None, *, no_browser: bool, device: bool
) -> AsyncGenerator[Person | DevicePerson]:
    """Yield the person who signs in, through a browser or another device, depending on the
    options.
    """
    from ideabridge.bridge.modules.device import DevicePerson
    from ideabridge.server.asking.signing_in import PastingPerson, browser_person, unused_address

    redirect_uri = None if settings is None else settings.redirect_uri
    if device:
        yield DevicePerson(_show_code)
    elif no_browser:
        yield PastingPerson(
            redirect_uri or unused_address(), _show_address_to_paste, lambda: read_line("> ")
        )
    else:
        async with browser_person(redirect_uri, _show_address) as person:
            yield person


def _show_address(url: str) -> None:
    say("if no browser opens, open this address in a browser on this machine:")
    # Never wrap the link, so that it can be copied even from a narrow terminal.
    sys.stderr.write(f"  {printable(url)}\n")


def _show_address_to_paste(url: str) -> None:
    say("open this address in a browser:")
    sys.stderr.write(f"  {printable(url)}\n")
    say(
        "After that, the browser is sent to an address that it cannot open. Paste that address "
        "here:"
    )


def _show_code(code: DeviceCode) -> None:
    say("open this address in a browser on any device, and enter the code there:")
    sys.stderr.write(f"  address: {printable(code.address)}\n     code: {printable(code.code)}\n")
    if code.complete is not None:
        say("or open this address, which contains the code, and compare the code there:")
        sys.stderr.write(f"  {printable(code.complete)}\n")

    if code.stranger is not None:
        say(f"the code comes from {printable(code.stranger)}, and the page is on another host:")
        say(
            "sign in only if the page names the server or that host, and asks "
            "for rights that you expect"
        )

    say(
        "waiting until someone has signed in there; the code is valid for "
        f"{whole_duration_text(code.seconds)}",
        "dim",
    )


@app.command("logout")
@command("json")
def log_out(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="SERVER", help="The name of the server.")],
    user: UserOption = None,
) -> int:
    """Delete the tokens of one person for servers with this name. The exit code is 1 if no tokens
    are stored.
    """
    from ideabridge.bridge.modules.sign_ins import forget_sign_ins, signed_in_users

    addresses = forget_sign_ins(name, user)
    others = signed_in_users(name)
    if options.json:
        print_json(
            {
                "module": name,
                "user": user,
                "signed_out": list[JSON](addresses),
                "users": list[JSON](others),
            }
        )
        return ExitCode.DONE if addresses else ExitCode.FAILED

    for address in addresses:
        say(f"{_subject(user)}signed out of {name} at {address}", "green")

    if not addresses and user is None:
        say(f"nobody is signed in to {name}")
    elif not addresses:
        say(f"{user} is not signed in to {name}")

    if others:
        say(f"still signed in to {name} (--user signs them out): {', '.join(others)}", "dim")

    return ExitCode.DONE if addresses else ExitCode.FAILED
