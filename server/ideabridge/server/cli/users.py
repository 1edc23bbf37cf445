"""The command `ideabridge users`, which manages the people who can use a server with this store
over HTTP, and their tokens.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from ideabridge.server.cli.console import print_json, say, show_line
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.stores import open_store
from ideabridge.tools.encoding import JSONObject

if TYPE_CHECKING:
    from ideabridge.bridge.store.users import Role, State, Token, User

app = typer.Typer(
    help="Add and remove the users of a server, and their tokens.", no_args_is_help=True
)
token = typer.Typer(help="Add, list and revoke tokens.", no_args_is_help=True)
app.add_typer(token, name="token")

NameArgument = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
RoleOption = Annotated[
    Literal["member", "admin"],
    typer.Option(
        "--role",
        metavar="member|admin",
        help="admin: may also publish new versions of tools that others share.",
    ),
]
ExpiresOption = Annotated[
    str | None,
    typer.Option(
        "--expires",
        metavar="WHEN",
        help="When the token expires: 90d, 12h, or a date. Default: never.",
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="Restrict the token to a profile of the configuration. Default: no restriction.",
    ),
]
LabelOption = Annotated[
    str, typer.Option("--label", metavar="TEXT", help="A note on what the token is for.")
]


@app.command("add")
@command("config", "project", "store", "json")
def add_user(
    options: Options,
    name: NameArgument,
    role: RoleOption = "member",
    expires: ExpiresOption = None,
    profile: ProfileOption = None,
) -> None:
    """Add a user, and show their token once.

    As soon as there is a user, a server on this store refuses every HTTP request without a token.
    """
    from ideabridge.bridge.store.users import read_expiry

    until = None if expires is None else read_expiry(expires)
    _expect_profile(options, profile)
    with open_store(options, create=True) as store, store.transaction():
        user = store.users.add(name, role)
        token, text = store.users.add_token(name, "first", until, profile)
    _show_token(options, user, token, text)


def _expect_profile(options: Options, name: str | None) -> None:
    """Raise `ProfileError` if the configuration does not contain the profile."""
    if name is None:
        return
    from ideabridge.bridge.profiles import Profiles

    Profiles(options.configuration()).named(name)


def _show_token(options: Options, user: User, token: Token, text: str) -> None:
    if options.json:
        print_json({**_user(user), "token": {**_token(token), "text": text}})
        return

    label = f"Token {token.id}"
    if token.expires is not None:
        label += f", until {_time(token.expires)} UTC"
    if token.profile is not None:
        label += f", for profile {token.profile}"

    say(f"{user.name}, {user.role}. {label}; it is shown only once:", "green")
    # Print the token on standard output, as one unbroken line, so that it can be copied and used in
    # scripts.
    show_line(text)
    say(f"Clients send it as the header `Authorization: Bearer {text[:8]}...`.", "dim")


@app.command("list")
@command("config", "project", "store", "json")
def list_users(options: Options) -> None:
    """List the users: role, state, valid tokens, and last use."""
    with open_store(options) as store:
        users = store.users.all()
        tokens = store.users.tokens()

    rows: list[tuple[str, ...]] = []
    for user in users:
        own = [token for token in tokens if token.user == user.name]
        if user.issuer is None:
            valid = str(sum(token.state == "valid" for token in own))
        else:
            valid = f"of {user.issuer}"

        last = max((token.used for token in own if token.used is not None), default="")
        rows.append(
            (user.name, user.role, user.state, valid, _time(last) or "-", _time(user.created))
        )

    options.print_rows(
        {"users": [_user(user) for user in users]},
        ("user", "role", "state", "tokens", "last seen (UTC)", "added (UTC)"),
        rows,
        empty="there are no users yet: `ideabridge users add NAME` adds the first",
    )


def _change(
    options: Options, name: str, text: str, *, state: State | None = None, role: Role | None = None
) -> None:
    with open_store(options) as store:
        user = store.users.change(name, state=state, role=role)
    options.print_or_say(_user(user), text)


@app.command("disable")
@command("config", "project", "store", "json")
def disable_user(options: Options, name: NameArgument) -> None:
    """Refuse a user until `users enable` accepts the user again. Their runs and ideas are kept."""
    _change(options, name, f"{name} is refused until you run `users enable`", state="disabled")


@app.command("enable")
@command("config", "project", "store", "json")
def enable_user(options: Options, name: NameArgument) -> None:
    """Accept a disabled user again, with their previous tokens."""
    _change(options, name, f"{name} is accepted again", state="active")


@app.command("remove")
@command("config", "project", "store", "json")
def remove_user(options: Options, name: NameArgument) -> None:
    """Remove a user permanently, and revoke their tokens. Their runs and ideas are kept. The name
    is never used again.
    """
    _change(options, name, f"{name} is removed, and all their tokens are revoked", state="removed")


@app.command("role")
@command("config", "project", "store", "json")
def change_role(
    options: Options,
    name: NameArgument,
    role: Annotated[
        Literal["member", "admin"], typer.Argument(metavar="member|admin", help="The new role.")
    ],
) -> None:
    """Change the role of a user."""
    _change(options, name, f"{name} is now {role}", role=role)


@token.command("add")
@command("config", "project", "store", "json")
def add_token(
    options: Options,
    name: NameArgument,
    label: LabelOption = "",
    expires: ExpiresOption = None,
    profile: ProfileOption = None,
) -> None:
    """Add a token for a user, and show it once. To rotate: add a token, give it to the user,
    revoke the old one.
    """
    from ideabridge.bridge.store.users import read_expiry

    until = None if expires is None else read_expiry(expires)
    _expect_profile(options, profile)
    with open_store(options) as store:
        added, text = store.users.add_token(name, label, until, profile)
        user = store.users.get(name)
    _show_token(options, user, added, text)


@token.command("list")
@command("config", "project", "store", "json")
def list_tokens(
    options: Options,
    name: Annotated[
        str | None, typer.Argument(metavar="[USER]", help="List only this user's tokens.")
    ] = None,
) -> None:
    """List tokens: user, label, profile, state, expiry and last use. The text of a token is never
    shown.
    """
    with open_store(options) as store:
        tokens = store.users.tokens(name)

    rows = [
        (
            token.id,
            token.user,
            token.label or "-",
            token.profile or "-",
            token.state,
            _time(token.expires) or "never",
            _time(token.used) or "-",
        )
        for token in tokens
    ]
    options.print_rows(
        {"tokens": [_token(token) for token in tokens]},
        ("token", "user", "label", "profile", "state", "expires (UTC)", "last used (UTC)"),
        rows,
        empty="there are no tokens",
    )


@token.command("revoke")
@command("config", "project", "store", "json")
def revoke_token(
    options: Options,
    ident: Annotated[
        str, typer.Argument(metavar="TOKEN", help="The token's id, as `users token list` shows it.")
    ],
) -> None:
    """Revoke a token. Servers refuse it immediately, and its open streams end within a second."""
    with open_store(options) as store:
        revoked = store.users.revoke(ident)
    options.print_or_say(_token(revoked), f"token {revoked.id} of {revoked.user} is revoked")


def _user(user: User) -> JSONObject:
    return {**cast("JSONObject", dataclasses.asdict(user)), "caller": user.caller}


def _token(token: Token) -> JSONObject:
    return {
        "id": token.id,
        "user": token.user,
        "label": token.label,
        "profile": token.profile,
        "state": token.state,
        "created": token.created,
        "expires": token.expires,
        "used": token.used,
    }


def _time(text: str | None) -> str:
    return (text or "")[:16].replace("T", " ")
