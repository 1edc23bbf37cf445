"""Read an entry of `mcpServers` (`ModuleConfiguration`), fill in its variables (`expand`), and
describe the status of a server for people (`ModuleStatus`).

Entries have the form that assistants use, with some additional keys. Keys that other hosts write
are accepted if they have the same meaning, and ignored if they concern only the host's user
interface. A configuration contains `${VAR}` as written. Only `expand` fills in the values. It first
registers the secret values with `Secrets`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from ideabridge.bridge.masking import hidden_in, is_token
from ideabridge.bridge.modules.errors import ModuleConfigurationError
from ideabridge.bridge.secrets import NAME_PATTERN, Secrets, is_secret_name
from ideabridge.bridge.server_entry import KINDS, MAX_SECONDS, ModuleKind
from ideabridge.bridge.stored_secrets import StoredSecretError
from ideabridge.bridge.trust import Variables, variables_text
from ideabridge.tools.encoding import JSON, JSONObject, content_hash
from ideabridge.tools.json_parts import map_strings, strings_in
from ideabridge.tools.names import duration_text

if TYPE_CHECKING:
    # Import these only for type checkers, because importing the SDK takes a long time.
    from ideabridge.bridge.modules.offering import Kind
    from ideabridge.tools.tool import Tool

Text = Annotated[str, Field(max_length=32_768, pattern=r"^[^\x00]*$")]
"""A string without NUL characters, which command lines, headers and environments do not allow."""

DEFAULT_SENDS: Final = 3
"""The default of `retry`: the maximum number of times that a call to a repeatable tool is sent if
the connection is lost before the answer.
"""

MAX_SENDS: Final = 10
"""The largest number that `retry` can contain."""

MAX_IDLE_SECONDS: Final = 86_400
"""The largest value of `idle`, in seconds."""

SECRET_KEYS: Final = ("client_secret", "private_key")
"""The keys of `auth` whose values are secrets."""


_LOOPBACK: Final = re.compile(r"http://(127\.0\.0\.1|localhost|\[::1\]):\d{1,5}/")


class AuthorizationSettings(BaseModel):
    """How ideabridge gets access tokens for a server over HTTP (OAuth 2.1). Usually no setting is
    needed: the server names its authorization server, and `ideabridge servers login` registers a
    client there.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    grant: Literal["authorization_code", "client_credentials"] = Field(
        default="authorization_code",
        description="authorization_code: a person signs in with `ideabridge servers login`. "
        "client_credentials: the client itself gets tokens, without a person.",
    )
    issuer: Annotated[Text, Field(min_length=1)] | None = Field(
        default=None,
        description=(
            "The only authorization server that is used. Needed with "
            "'client_secret' and 'private_key'."
        ),
    )
    client_id: Annotated[Text, Field(min_length=1)] | None = Field(
        default=None, description="A client that is already registered. ${VAR} is expanded."
    )
    client_secret: Annotated[Text, Field(min_length=1)] | None = Field(
        default=None,
        description=(
            "The secret of that client. ${VAR} is expanded. The value is never shown or stored."
        ),
    )
    secret_in: Literal["header", "body"] = Field(
        default="header",
        description="Where the secret is sent: header (client_secret_basic) or body (_post).",
    )
    private_key: Annotated[Text, Field(min_length=1)] | None = Field(
        default=None,
        description=(
            "With client_credentials, instead of a secret: the PEM key that signs "
            "(private_key_jwt). ${VAR} is expanded. The value is never shown or stored."
        ),
    )
    algorithm: Literal["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"] = (
        Field(default="RS256", description="The algorithm of 'private_key'.")
    )
    client_metadata_url: Text | None = Field(
        default=None,
        description=(
            "The address of a client metadata document, for servers that accept one as client_id."
        ),
    )
    redirect_uri: Text | None = Field(
        default=None,
        description=(
            "The address on this machine to which the browser returns. Default: with a free port."
        ),
    )
    scope: Annotated[Text, Field(min_length=1)] | None = Field(
        default=None,
        description="The scopes to request, separated by spaces. Default: those the server names.",
    )
    shared: bool = Field(
        default=False,
        description="true: all users of a server over HTTP act with the sign-in of the person who "
        "started it. false: each with their own.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Reject malformed addresses, and keys that contradict each other."""
        problems = [*self._address_problems(), *self._contradictions()]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _address_problems(self) -> Iterator[str]:
        issuer = self.issuer
        if issuer is not None and not issuer.startswith(("http://", "https://", "${")):
            yield "'issuer' should be an address that starts with http:// or https://"

        metadata_url = self.client_metadata_url
        if metadata_url is not None and not re.match("https://[^/]+/.", metadata_url):
            yield "'client_metadata_url' should be an address with https:// and a path"

        if self.redirect_uri is not None and not _LOOPBACK.match(self.redirect_uri):
            yield (
                "'redirect_uri' should be on this machine, with a port: "
                "http://localhost:3118/callback"
            )

    def _contradictions(self) -> Iterator[str]:
        for key in SECRET_KEYS:
            if getattr(self, key) is not None and (self.client_id is None or self.issuer is None):
                yield f"{key!r} needs 'client_id' and 'issuer', which say who it belongs to"

        if self.grant == "client_credentials":
            if (self.client_secret is None) == (self.private_key is None):
                yield "'client_credentials' needs either 'client_secret' or 'private_key'"
            if self.client_metadata_url is not None or self.redirect_uri is not None:
                yield "'client_metadata_url' and 'redirect_uri' are for people who sign in"
        elif self.private_key is not None:
            yield '\'private_key\' only goes with "grant": "client_credentials"'

        if self.client_id is not None and self.client_metadata_url is not None:
            yield "'client_metadata_url' replaces 'client_id'; give only one"


class ToolSettings(BaseModel):
    """How one tool of a server is shown, and which parameters its calls can leave out. Calls,
    approvals, rules and journals always name the tool as its server lists it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")] | None = Field(
        default=None,
        description="Another name: at most 64 letters, digits, '_', '-' and '.'.",
    )
    description: Annotated[str, Field(max_length=32_768)] | None = Field(
        default=None, description="Another description."
    )
    defaults: dict[str, JsonValue] = Field(
        default_factory=dict[str, JsonValue],
        description="Values of parameters, which are then optional. ${secret:NAME} is filled in when "
        "the call runs. Its value is never shown or stored.",
    )
    hide_parameters: tuple[str, ...] = Field(
        default=(),
        description="Parameters that are not shown. A call can still give them.",
    )
    hide: bool = Field(
        default=False,
        description="true: the tool is not shown. Calls can still name it; `deny` forbids that.",
    )
    read_only: bool | None = Field(
        default=None,
        description=(
            "Whether the tool only reads, whatever it declares itself. In your own file, this also "
            "decides whether its calls ask, unless a rule of `approval` matches it."
        ),
    )


class ModuleConfiguration(BaseModel):
    """One MCP server: a program to start (`command`) or an address to call (`url`). `${VAR}` is not
    expanded here, so the configuration contains no secrets from the environment.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    type: str | None = Field(
        default=None,
        description="stdio, http (streamable HTTP) or sse. If absent, the other keys decide.",
    )
    command: Annotated[Text, Field(min_length=1)] | None = Field(
        default=None,
        description="The program to start; it speaks MCP on stdin and stdout. ${VAR} is expanded.",
    )
    args: tuple[Text, ...] = Field(
        default=(), description="Arguments of the program. ${VAR} is expanded."
    )
    env: dict[str, Text] = Field(
        default_factory=dict[str, Text],
        description="Environment of the program, in addition to a small inherited one (PATH, "
        "HOME, LANG, ...). ${VAR} is expanded. Values are never shown or stored.",
    )
    cwd: Annotated[Text, Field(min_length=1)] | None = Field(
        default=None,
        description=(
            "Working directory; relative to the configuration file. Default: the project folder."
        ),
    )
    url: Annotated[Text, Field(min_length=1)] | None = Field(
        default=None, description="Address of a server over HTTP. ${VAR} is expanded."
    )
    headers: dict[str, Text] = Field(
        default_factory=dict[str, Text],
        description=(
            "HTTP headers of every request. ${VAR} is expanded. Values are never shown or stored."
        ),
    )
    auth: AuthorizationSettings | None = Field(
        default=None,
        description=(
            "How access tokens for the address are obtained, if signing in alone is not enough."
        ),
    )
    timeout: float = Field(
        default=60, gt=0, le=MAX_SECONDS, description="How many seconds one call can take."
    )
    connect_timeout: float = Field(
        default=30, gt=0, le=MAX_SECONDS, description="How many seconds connecting can take."
    )
    allow: tuple[str, ...] | None = Field(
        default=None, description="Only these tools: names or patterns (*, ?, [abc]). Default: all."
    )
    deny: tuple[str, ...] = Field(
        default=(),
        description="Never these tools: names or patterns. This takes precedence over 'allow'.",
    )
    order: Literal["effects", "none"] = Field(
        default="effects",
        description="none: calls of this server never wait for calls listed before them.",
    )
    read_only: tuple[str, ...] = Field(
        default=(),
        description="Tools that only read although they do not declare it: names or patterns. "
        "Their calls run in parallel; they still ask for approval.",
    )
    tools: dict[str, ToolSettings] = Field(
        default_factory=dict[str, ToolSettings],
        description="How individual tools are shown, by the names that the server lists.",
    )
    parallel: int = Field(
        default=8,
        ge=1,
        le=1000,
        description="How many calls to this server can run at once (for a browser: 1).",
    )
    retry: dict[str, Annotated[int, Field(ge=1, le=MAX_SENDS)]] = Field(
        default_factory=dict[str, int],
        description="How many times in total a call is sent if the connection is lost before its "
        "answer. The keys are names or patterns of tools, and the first match counts; "
        f"1: only once. Default: {DEFAULT_SENDS}. Only calls of tools that declare "
        "themselves read-only or idempotent are sent again.",
    )
    record: bool = Field(
        default=True,
        description="false: results of direct calls to its tools are not stored, see `sessions`.",
    )
    views: bool = Field(
        default=False,
        description=(
            "true: its views in HTML (MCP Apps) are passed on to clients, "
            "where its tools are exposed."
        ),
    )
    start: Literal["eager", "lazy"] | None = Field(
        default=None,
        description="When the server starts. eager: with ideabridge. lazy: when it is first used. "
        "Default: lazy if its list of tools is stored from an earlier start, otherwise eager.",
    )
    idle: float | None = Field(
        default=None,
        gt=0,
        le=MAX_IDLE_SECONDS,
        description="Seconds after which a server that nobody uses is stopped until its next use. "
        "Default: it keeps running, because servers keep state.",
    )
    sharing: Literal["shared", "session"] = Field(
        default="shared",
        description=(
            "Who shares one process of the server, or one connection to it, where several clients "
            "use one ideabridge over HTTP. shared: all of them. session: each session has its own, "
            "which ends with the session; for servers that keep state, such as a browser or a "
            "shell. Calls from clients without sessions (MCP 2026-07-28) are then refused."
        ),
    )
    disabled: bool = Field(default=False, description="true: the server is not used.")

    @property
    def has_sign_ins(self) -> bool:
        """Whether each person signs in to the server separately.

        This is the case if the server is at an address, its configuration contains no token or
        client credentials, and its sign-in is not shared.
        """
        if self.url is None or any(name.lower() == "authorization" for name in self.headers):
            return False
        return self.auth is None or (
            self.auth.grant == "authorization_code" and not self.auth.shared
        )

    @property
    def kind(self) -> ModuleKind:
        """The kind of connection that reaches the server."""
        if self.type is not None:
            return KINDS[self.type]
        return "stdio" if self.command is not None else "http"


def public_url(url: str) -> str:
    """Return the address without its credentials."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


_VARIABLE: Final = re.compile(r"\$?\$\{([^{}]*)\}")
_SECRET: Final = re.compile(rf"secret:({NAME_PATTERN})")
_NAME: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_EDITOR_HINTS: Final = {
    "workspaceFolder": (
        "the editor's folder is not known here; use a path relative to the configuration file in "
        "'command', relative to the folder in which the server runs in 'args', or 'cwd'"
    ),
    "workspaceRoot": (
        "the editor's folder is not known here; use a path relative to the configuration file in "
        "'command', relative to the folder in which the server runs in 'args', or 'cwd'"
    ),
    "userHome": "write ${HOME}",
    "pathSeparator": "write / or \\",
}


@dataclass(frozen=True, slots=True)
class Launch:
    """The command or address of a server, with the values of all variables. Never shown or
    stored.
    """

    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    auth: AuthorizationSettings | None = None


StoredValues = Mapping[str, str | StoredSecretError]
"""The value of each stored secret that an entry names, or the reason why the secret cannot be
used.
"""


class _Filler:
    """Expands variables and secrets in the strings of one entry, and records which ones are
    missing.
    """

    def __init__(
        self,
        module: str,
        variables: Variables | None,
        secrets: Secrets,
        stored: StoredValues | None,
    ) -> None:
        # For each variable that is not set, the first place that names it.
        self._unset: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._module = module
        self._variables = variables
        self._secrets = secrets
        self._stored_values = stored
        # For each stored secret that cannot be used, the first place that names it and the reason.
        self._unusable: dict[str, tuple[str, str]] = {}

    def fill(self, text: str, place: str, *, secret: bool) -> str:
        """Replace the variables in a string. Missing variables are left as written."""

        def replacement(match: re.Match[str]) -> str:
            if match.group().startswith("$$"):
                return match.group()[1:]
            named = _SECRET.fullmatch(match.group(1))
            if named is not None:
                value = self._stored(named.group(1), place)
            else:
                value = self._value(match.group(1), place, secret=secret)
            return match.group() if value is None else value

        return _VARIABLE.sub(replacement, text)

    def fill_secrets(self, texts: Mapping[str, str], place: str) -> dict[str, str]:
        """Replace the variables in the values of an object. Each value is treated as a secret."""
        return {
            name: self.fill(text, f"{place}.{name}", secret=True) for name, text in texts.items()
        }

    def _value(self, inside: str, place: str, *, secret: bool) -> str | None:
        name, default = _read_variable(inside, lambda why: _error(self._module, place, why))
        value = os.environ.get(name)
        is_allowed = self._variables is None or name in self._variables
        # A default that replaces an unset variable is allowed, because it reveals nothing about the
        # environment.
        if not is_allowed and (value or default is None):
            self._refused.setdefault(name, place)

        # As in a shell, `:-` also replaces a variable that is empty.
        if default is not None and not value:
            value = default

        if value is None:
            self._unset.setdefault(name, place)

        if value is None or name in self._refused:
            return None

        if secret or is_secret_name(name):
            self._secrets.add_env(name, value)

        return value

    def _stored(self, name: str, place: str) -> str | None:
        value = None if self._stored_values is None else self._stored_values[name]
        if isinstance(value, StoredSecretError):
            self._unusable.setdefault(name, (place, str(value)))
            return None
        if value is None:
            return None

        self._secrets.add(name, value, certain=True)
        if "://" in value:
            self._secrets.add_url(name, value)
        return value

    def check(self) -> None:
        """Raise an error that names every missing variable and every unusable secret, and says how
        to supply them.
        """
        parts = list[str]()
        if self._unset:
            parts.append(_unset([*self._unset]))

        if self._refused:
            assert self._variables is not None
            parts.append(self._variables.refusal(*self._refused))

        parts += [reason for _, reason in self._unusable.values()]
        if parts:
            secret_places = [place for place, _ in self._unusable.values()]
            places = dict.fromkeys([*self._unset.values(), *self._refused.values(), *secret_places])
            raise _error(self._module, ", ".join(places), "; ".join(parts))


def _unset(names: list[str]) -> str:
    verb = "is" if len(names) == 1 else "are"
    pronoun = "it" if len(names) == 1 else "them"
    return (
        f"{variables_text(names)} {verb} not set; set {pronoun} before ideabridge (or your "
        f"assistant) starts, or give a default: ${{{names[0]}:-...}}"
    )


def expand(
    module: str,
    configuration: ModuleConfiguration,
    folder: Path,
    variables: Variables | None,
    secrets: Secrets,
    *,
    working_folder: Path | None = None,
    stored: StoredValues | None = None,
) -> Launch:
    """Replace `${VAR}` and `${VAR:-default}` with values from the environment, and `${secret:NAME}`
    with stored secrets. `$${` becomes `${`.

    `cwd` is relative to `folder`. A program without `cwd` runs in `working_folder` or, if that is
    not set, in `folder`. Only the variables in `variables` are allowed, or all if it is None.
    `secrets` registers every value that must not be shown. If `stored` is not set, `${secret:NAME}`
    stays as written.

    Raises:
        ModuleConfigurationError: variables are not allowed, or are not set and have no default, or
            secrets cannot be used. The message names all of them. Also raised for an editor's
            variable (`${workspaceFolder}`), and if the result is not an address or a header.
    """
    filler = _Filler(module, variables, secrets, stored)
    launch = _filled(configuration, filler)
    _check_launch(module, launch, secrets)
    words: list[JSON] = [*launch.args]
    _add_hidden(
        {"command": launch.command, "args": words, "url": launch.url, "cwd": launch.cwd}, secrets
    )
    command = launch.command
    if command.startswith(("~", "./", "../")):
        command = str(folder / Path(command).expanduser())

    cwd = working_folder or folder
    if configuration.cwd is not None:
        cwd = folder / Path(launch.cwd).expanduser()
    return replace(launch, command=command, cwd=str(cwd))


def _filled(configuration: ModuleConfiguration, filler: _Filler) -> Launch:
    """Return an entry with the values of variables and secrets, before paths are made absolute."""
    fill = filler.fill
    words = enumerate(configuration.args)
    launch = Launch(
        command=fill(configuration.command or "", "command", secret=False),
        args=tuple(fill(text, f"args.{index}", secret=False) for index, text in words),
        env=filler.fill_secrets(configuration.env, "env"),
        cwd=fill(configuration.cwd or ".", "cwd", secret=False),
        url=fill(configuration.url or "", "url", secret=True),
        headers=filler.fill_secrets(configuration.headers, "headers"),
    )
    auth = configuration.auth
    credentials: dict[str, str] = {}
    for key in ("issuer", "client_id", *SECRET_KEYS):
        text = getattr(auth, key, None)
        if text is not None:
            credentials[key] = fill(text, f"auth.{key}", secret=key in SECRET_KEYS)

    filler.check()
    if auth is None:
        return launch
    return replace(launch, auth=auth.model_copy(update=credentials))


def _check_launch(module: str, launch: Launch, secrets: Secrets) -> None:
    """Check the filled-in values, and register the secret values."""
    for name, text in launch.env.items():
        if not name or "=" in name or "\0" in name:
            raise _error(module, "env", f"{name[:40]!r} is not a valid variable name")
        secrets.add_env(name, text)

    if launch.url:
        secrets.add_url("url", launch.url)

    for name, text in launch.headers.items():
        secrets.add_header(name, text)
        if not _HEADER_NAME.fullmatch(name):
            raise _error(module, "headers", f"{name[:40]!r} is not a valid header name")
        if not text.isprintable() or not text.isascii():
            raise _error(
                module, f"headers.{name}", "a header may contain only printable ASCII characters"
            )

    if launch.url and not launch.url.lower().startswith(("http://", "https://")):
        raise _error(module, "url", "expected an address that starts with http:// or https://")
    if launch.auth is not None:
        _check_auth(module, launch.auth, launch.headers, secrets)


def _check_auth(
    module: str, auth: AuthorizationSettings, headers: Mapping[str, str], secrets: Secrets
) -> None:
    if any(name.lower() == "authorization" for name in headers):
        raise _error(
            module, "auth", "conflicts with the header Authorization; set only one of them"
        )
    for key in SECRET_KEYS:
        secrets.add(key, getattr(auth, key) or "", certain=True)

    if auth.issuer is not None and not auth.issuer.startswith(("http://", "https://")):
        text = "expected an address that starts with http:// or https://"
        raise _error(module, "auth.issuer", text)


def filled_texts(configuration: ModuleConfiguration) -> dict[str, str]:
    """Return the strings of an entry in which variables and secrets are expanded, keyed by place,
    such as `env.TOKEN` or `args.2`.
    """
    texts = {"command": configuration.command, "cwd": configuration.cwd, "url": configuration.url}
    texts |= {f"args.{index}": text for index, text in enumerate(configuration.args)}
    texts |= {f"env.{name}": text for name, text in configuration.env.items()}
    texts |= {f"headers.{name}": text for name, text in configuration.headers.items()}
    if configuration.auth is not None:
        for key in ("issuer", "client_id", *SECRET_KEYS):
            texts[f"auth.{key}"] = getattr(configuration.auth, key)

    return {place: text for place, text in texts.items() if text}


def secrets_named(configuration: ModuleConfiguration) -> dict[str, list[str]]:
    """Return the places where an entry uses stored secrets, keyed by the name of the secret."""
    names: dict[str, list[str]] = {}
    for place, text in (*filled_texts(configuration).items(), *_texts_of_defaults(configuration)):
        for match in _VARIABLE.finditer(text):
            named = _SECRET.fullmatch(match.group(1))
            if named is not None and not match.group().startswith("$$"):
                names.setdefault(named.group(1), []).append(place)

    return names


def _texts_of_defaults(configuration: ModuleConfiguration) -> Iterator[tuple[str, str]]:
    """Yield each string in the defaults of tools that might name a secret, with its place."""
    for tool, settings in configuration.tools.items():
        for parameter, value in settings.defaults.items():
            for text in strings_in(value):
                if "${secret:" in text:
                    yield f"tools.{tool}.defaults.{parameter}", text


def with_secrets(value: JSON, stored: StoredValues, secrets: Secrets) -> JSON:
    """Return a default with the values of the secrets that it names filled in. The values are
    registered with `secrets`.

    Raises:
        StoredSecretError: a secret cannot be used.
    """

    def replacement(match: re.Match[str]) -> str:
        named = _SECRET.fullmatch(match.group(1))
        if named is None or match.group().startswith("$$"):
            return match.group()

        secret = stored[named.group(1)]
        if isinstance(secret, StoredSecretError):
            raise secret
        secrets.add(named.group(1), secret, certain=True)
        return secret

    return map_strings(value, partial(_VARIABLE.sub, replacement))


def entry_digest(configuration: ModuleConfiguration) -> str:
    """Return the SHA-256, in hex, of everything in an entry that determines where its secrets are
    sent.
    """
    keys = {"type", "command", "args", "env", "cwd", "url", "headers", "auth"}
    entry = cast("JSONObject", configuration.model_dump(mode="json", include=keys))
    named = sorted(_texts_of_defaults(configuration))
    if named:
        entry["defaults"] = [list[JSON](pair) for pair in named]
    return content_hash(entry)


def learn_secrets(
    modules: Mapping[str, ModuleConfiguration],
    secrets: Secrets,
    *,
    folder_of: Callable[[str], Path],
    variables_of: Callable[[str], Variables | None],
) -> None:
    """Register every secret value of the configured servers, including disabled ones, without
    starting any server.

    Stored secrets are not read. `folder_of` and `variables_of` return the arguments of `expand` for
    a server.
    """
    for name, configuration in modules.items():
        try:
            expand(name, configuration, folder_of(name), variables_of(name), secrets)
        except ModuleConfigurationError:
            # The configured values might be secrets even if the server cannot start.
            for key, text in configuration.env.items():
                secrets.add_env(key, text)
            for key, text in configuration.headers.items():
                secrets.add_header(key, text)
            secrets.add_url("url", configuration.url or "")
            words: list[JSON] = [*configuration.args]
            start: JSONObject = {
                "command": configuration.command,
                "args": words,
                "cwd": configuration.cwd,
            }
            _add_hidden({**start, "url": configuration.url}, secrets)
            for key in SECRET_KEYS:
                secrets.add(key, getattr(configuration.auth, key, None) or "", certain=True)


def _add_hidden(entry: JSONObject, secrets: Secrets) -> None:
    """Register the secrets in a server's command, arguments and address, because programs repeat
    them in their messages.
    """
    for hidden in hidden_in(entry):
        # A number does not look like a secret, but here its name says that it is one.
        is_certain = is_token(hidden.text) or hidden.text.isdigit()
        secrets.add(hidden.place, hidden.text, certain=is_certain)


def _error(module: str, place: str, why: str) -> ModuleConfigurationError:
    return ModuleConfigurationError(module, f"mcpServers.{module}.{place}: {why}")


def _read_variable(
    inside: str, error: Callable[[str], ModuleConfigurationError]
) -> tuple[str, str | None]:
    """Split the text in `${...}` into `(name, default)`. `default` is None if there is none."""
    match = _NAME.fullmatch(inside)
    if match is None or inside in _EDITOR_HINTS:
        kind, _, name = inside.partition(":")
        hint = _EDITOR_HINTS.get(inside) or {
            "env": f"write ${{{name}}}",
            "input": "ideabridge does not ask for values; set a variable and write ${VAR}",
            "secret": "a secret's name has letters, digits, '_', '-' and '.', and no default",
            "workspaceFolder": "only one folder is known here: write ${workspaceFolder}",
            "command": "no editor runs commands here; set a variable and write ${VAR}",
            "config": "no editor has settings here; set a variable and write ${VAR}",
        }.get(kind, "expected ${VAR}, ${VAR:-default} or ${secret:NAME}")
        raise error(f"${{{inside[:80]}}} is not a valid placeholder: {hint}")
    return match.group(1), match.group(2)


Era = Literal["legacy", "modern"]
"""The era of the protocol: `legacy` for 2025-11-25 and earlier (with a handshake), `modern` for
2026-07-28 (stateless).
"""

ModuleState = Literal["idle", "connecting", "up", "down", "failed", "unusable", "disabled"]
"""`idle`: the server is not started, and its first use starts it. `down`: the server was up, and
the next call reconnects to it. `failed`: the server could not be reached, and is tried again.
`unusable`: no attempt is made, because the server's configuration cannot be used.
"""

Sharing = Literal["shared", "session"]
"""The clients that share one process of a server; see `ModuleConfiguration.sharing`."""

_LONG_AWAY: Final = 5.0
"""The number of seconds after which the status mentions how long a server has been away."""


@dataclass(frozen=True, slots=True)
class Way:
    """How an earlier connection reached a server, so that the next one need not try other ways.

    Attributes:
        era: the era that works.
        kind: the transport that works.
        server: the name and version of the server that was reached. If it is now a different
            server, every way is tried again.
    """

    era: Era
    kind: ModuleKind
    server: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recollection:
    """What an earlier process has stored about a server with the same definition.

    Attributes:
        tools: the tools that the server listed last.
        instructions: the server's instructions for its use, or "".
        listed_at: when the server listed these tools, as ISO 8601 in UTC.
        had_token: whether requests to the server carried a token from a sign-in.
        offered: the server's lists of resources, templates and prompts, as protocol JSON, keyed by
            kind. None means that the server has no entries of that kind. A kind whose list was
            never read is missing.
    """

    tools: list[Tool]
    instructions: str
    listed_at: str
    had_token: bool
    offered: Mapping[Kind, list[JSONObject] | None]


@dataclass(frozen=True, slots=True)
class ModuleStatus:
    """The status of a server as people see it (`servers list`). In all strings, secrets are masked
    and long text is shortened.

    Attributes:
        since: the number of seconds for which the server has been in this state.
        tools: the number of allowed tools.
        listed_at: when an earlier process received the tool list in use, as ISO 8601 in UTC. None
            if the server has listed its tools in this process, or no list is used.
        notes: notes on behaviour hints that promise more than before, omitted tools, renamed
            parameters, and output that is not a message.
        error: why the server is down, failed or unusable.
        needs_sign_in: whether a person must sign in to the server before an attempt can succeed.
        away: the number of seconds since the server was last up, or since the first attempt. None
            if the server is up, unusable or disabled.
        next_try: the number of seconds until the next attempt, where 0 means now. The attempt comes
            sooner if a call needs the server.
        seconds: the number of seconds that connecting took.
        sharing: who shares the server's process; see `ModuleConfiguration.sharing`. Also `session`
            if the server once asked a question that could belong to any of several sessions.
        sessions: the number of sessions that currently have their own process or connection.
    """

    name: str
    state: ModuleState
    kind: ModuleKind
    sharing: Sharing = "shared"
    sessions: int = 0
    since: float = 0.0
    era: Era | None = None
    protocol_version: str | None = None
    server_name: str | None = None
    server_version: str | None = None
    instructions: str | None = None
    tools: int = 0
    listed_at: str | None = None
    notes: tuple[str, ...] = ()
    error: str | None = None
    needs_sign_in: bool = False
    away: float | None = None
    next_try: float | None = None
    seconds: float | None = None

    @property
    def sharing_text(self) -> str:
        """A description of which clients share the server's process or connection, or "" if they
        all share one.
        """
        if self.sharing == "shared":
            return ""
        what = "process" if self.kind == "stdio" else "connection"
        now = f", {self.sessions} now" if self.sessions else ""
        return f"one {what} for each session{now}"

    @property
    def why(self) -> str:
        """Why the server is not up, how long it has been away, and when the next attempt takes
        place.
        """
        reason = self.error or self.state
        if self.away is not None and self.away >= _LONG_AWAY:
            reason = f"{reason}; away for {duration_text(round(self.away))}"

        if self.next_try is None:
            return reason
        if self.next_try:
            return f"{reason}; next try in {math.ceil(self.next_try)} s"
        return f"{reason}; trying again now"
