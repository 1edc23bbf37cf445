"""What is shown of a server's definition: everything, except for its secrets, which become `•••`.

A person decides by these texts whether to trust a command. So only the secret is hidden, and the name in front of it,
the host of an address and `${VAR}` stay. In what an interpreter executes, such as the text of `sh -c`, only a value in
the form of a secret is hidden: a command cannot be hidden by giving it the name of one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.command_line import Argument, read_arguments
from ideabridge.bridge.secrets import HARMLESS_HEADERS, is_secret_name
from ideabridge.tools.encoding import JSON, JSONObject

MASK: Final = "•••"

_VARIABLE: Final = re.compile(r"(\$?\$\{[A-Za-z_][A-Za-z0-9_]*(?::-)?)([^{}]*)\}")
_PREFIXES: Final = (
    r"gh[opsur]_|github_pat_|glpat-|xox[a-z]-|xapp-|sk-ant-|sk-proj-|sk-or-|[sr]k_(?:live|test)_|npm_|pypi-|hf_|gsk_"
    r"|shpat_|sbp_|ntn_|lin_api_|figd_|tvly-|dop_v1_|pat-|whsec_|nvapi-|xai-|pplx-|hvs\.|ATATT|sk-|AKIA|ASIA|AIza"
    r"|ya29\.|SG\.|secret_|key-"
)
_PREFIX: Final = re.compile(_PREFIXES)
_TOKEN: Final = re.compile(
    # Not in a path, so that the name of a program cannot look like a token.
    r"(?<![./\\])(?<!\w\w)(?:"
    r"(?:gh[opsur]_|github_pat_|glpat-|xox[a-z]-)[\w.-]+"
    rf"|(?:{_PREFIXES})(?=[\w.=-]{{0,200}}\d)[\w.=-]{{12,}}"
    r"|eyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?"
    r")"
)
"""Tokens that their prefix shows."""

_RANDOM: Final = re.compile(r"(?<![\w./\\@-])(?=(?:\w*\d){4})(?=(?:\w*[A-Za-z]){4})\w{24,}(?![\w./\\-])")
_SEGMENT: Final = re.compile(
    r"(?=(?:[\w:-]*\d){4})(?:\w*:)?(?:\w{20,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})[\w-]*"
)
"""A part of the path of an address that looks random."""

_URL: Final = re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>`\\]+")
_SCHEME: Final = re.compile(r"(bearer|basic|token|digest|apikey|bot)\s+", re.IGNORECASE)
_AUTHORIZATION: Final = re.compile(r"(:\s*(?:bearer|basic|token)\s+)([^\s\"'`$();|&<>\\]+)", re.IGNORECASE)
_USER: Final = re.compile(
    r"((?<![\w-])(?:-u|--user)[ =][\"']?[^\s:\"'`$();|&<>\\]+:)([^\s\"'`$();|&<>\\/][^\s\"'`$();|&<>\\]*)"
)
"""The user of curl and wget, with a password."""

_BEARER: Final = re.compile(r"(\b(?:bearer|basic)\s+)([\w.~+/-]{8,}=*)", re.IGNORECASE)
_HEADER: Final = re.compile(r"([A-Za-z][\w-]*)(\s*:\s*)(.+)", re.DOTALL)
_HEADER_IN_TEXT: Final = re.compile(
    r"(?<![\w$-])([A-Za-z][\w-]*)(:\s*)(?!(?:bearer|basic|token)\s)([^\s\"'`$();|&<>\\/]+)", re.IGNORECASE
)
_ASSIGNMENT: Final = re.compile(r"(?<![\w$-])(-{0,2}[A-Za-z_][\w-]*)(=[\"']?)([^\s\"'`$();|&<>\\]+)")
_OPTION: Final = re.compile(r"(?<![\w-])(--[A-Za-z][\w-]*)(\s+[\"']?)([^\s\"'`$();|&<>\\-][^\s\"'`$();|&<>\\]*)")
_MEMBER: Final = re.compile(
    r"(?<!\\)(?P<quote>\\*\")(?P<name>[^\"\\]+)(?P=quote)\s*:\s*"
    r"(?P<value>(?P=quote)(?:(?!(?P=quote))(?:\\.|[^\\]))*(?P=quote)|\[[^\[\]]*\])",
    re.DOTALL,
)
"""A member of JSON, also of JSON within a text of JSON, whose value is a text or a list."""

_READ: Final = re.compile(r"(?<=\$)\w+|(?<=\$\{)\w+|\beval\b")
"""The variables that a text reads, and `eval`, which may read any."""

_TEXT: Final = re.compile(r"(\\*\")((?:[^\"\\]|\\[^\"])*)(\\*\")")
_PAIR: Final = re.compile(r"([?&#;])([^=&#;?]+)=([^&#;]*)")
_QUERY_NAMES: Final = frozenset({"code", "sig", "k", "pass"})

_PLAIN: Final = re.compile(r"true|false|yes|no|on|off|none|null|\d{1,2}", re.IGNORECASE)
_PATH: Final = re.compile(r"(~|\.{1,2})?[/\\].*|[A-Za-z]:[/\\].*", re.DOTALL)
_FILE: Final = re.compile(
    r"[\w./\\-]+\.(py\w?|[cm]?[jt]sx?|sh|bash|rb|pl|php|so|dll|exe|bat|cmd|ps1|json|ya?ml|toml|pem|key|crt|env|txt)",
    re.IGNORECASE,
)
_BASE64: Final = re.compile(r"(?=[^0-9]*[0-9])(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[A-Za-z0-9+/]{32,}={0,2}")
"""A secret in base64, which may begin as a path does."""

_COMMAND_NAME: Final = re.compile(r"command|cmd|exec|program|helper|script|askpass|preload|options|sock", re.IGNORECASE)
_CODE_NAME: Final = re.compile(
    r"PATH$|^(LD|DYLD|PYTHON|NODE|PERL|RUBY|BASH|GIT|SSH|JAVA|LUA|R)_?|^ENV$|EDITOR|PAGER|BROWSER|SHELL", re.IGNORECASE
)
"""Variables that name code. A value of theirs is never hidden because it looks random."""

_SHELL_TEXT: Final = re.compile(r"[\s;|&`$()<>]")
_SECRET_OPTIONS: Final = ("-k",)
_SWITCH: Final = re.compile(r"--(no|disable|enable|skip|allow|with|without)-", re.IGNORECASE)
"""The beginning of an option without a value."""

_HEADER_OPTIONS: Final = ("-H", "--header", "--headers")
_USER_OPTIONS: Final = ("-u", "--user", "--proxy-user")
_AUTH_NAMES: Final = ("secret_in", "client_metadata_url")


@dataclass(frozen=True, slots=True)
class HiddenText:
    """A text that is not shown.

    Attributes:
        place: where it is in the definition, for example `env.TOKEN` or `args.2`.
        text: the secret.
    """

    place: str
    text: str


def shown_definition(entry: JSONObject) -> JSONObject:
    """Return the definition of a server, as a configuration or a host has it, without its secrets."""
    return _Mask().entry(entry)


def hidden_in(entry: JSONObject) -> list[HiddenText]:
    """Return what `shown_definition` hides. `${VAR}` is no secret; the default in `${VAR:-default}` can be one."""
    mask = _Mask()
    mask.entry(entry)
    return mask.hidden


def shown_json(value: JSON) -> JSON:
    """Return a JSON value without the secrets in it, for example another setting of a configuration."""
    return _Mask().value("", value)


def shown_configuration(content: JSON) -> JSON:
    """Return the content of an `ideabridge.json` without its secrets."""
    if not isinstance(content, dict):
        return shown_json(content)
    shown: JSONObject = {}
    for key, value in content.items():
        if key == "mcpServers" and isinstance(value, dict):
            servers: JSONObject = {}
            for name, entry in value.items():
                servers[name] = shown_definition(entry) if isinstance(entry, dict) else shown_json(entry)
            shown[key] = servers
        else:
            shown[key] = _Mask().value(key, value)
    return shown


class _Mask:
    """Masks one definition, and lists what it has hidden."""

    def __init__(self) -> None:
        self.hidden: list[HiddenText] = []
        self._place = ""
        self._program = ""

    def entry(self, entry: JSONObject) -> JSONObject:
        command = entry.get("command")
        self._program = _inline_text(entry)
        shown: JSONObject = {}
        for key, value in entry.items():
            self._place = key
            if key == "args" and isinstance(value, list):
                shown[key] = self._arguments(command if isinstance(command, str) else "", value)
            elif key == "env" and isinstance(value, dict):
                shown[key] = self._members(key, value, self._variable)
            elif key == "headers" and isinstance(value, dict):
                shown[key] = self._members(key, value, self._header)
            elif key in ("auth", "oauth") and isinstance(value, dict):
                shown[key] = self._members(key, value, self._credential)
            elif key == "command" and isinstance(value, str):
                shown[key] = self._text(value, is_code=True)
            else:
                shown[key] = self.value(key, value)
        return shown

    def value(self, name: str, value: JSON) -> JSON:
        if isinstance(value, str):
            # `key_env` names a variable.
            return value if name.endswith("_env") else self._named(name, value)
        if isinstance(value, list):
            return [self.value(name, item) for item in value]
        if isinstance(value, dict):
            return {key: self.value(key, item) for key, item in value.items()}
        return value

    def _members(self, key: str, members: JSONObject, show: Callable[[str, str], str]) -> JSONObject:
        shown: JSONObject = {}
        for name, value in members.items():
            self._place = f"{key}.{name}"
            shown[name] = show(name, value) if isinstance(value, str) else self.value(name, value)
        return shown

    def _arguments(self, command: str, words: list[JSON]) -> list[JSON]:
        texts = [word if isinstance(word, str) else "" for word in words]
        shown: list[JSON] = []
        for number, argument in enumerate(read_arguments(command, texts)):
            self._place = f"args.{number}"
            word = words[number]
            shown.append(self._argument(argument) if isinstance(word, str) else self.value("", word))
        return shown

    def _argument(self, argument: Argument) -> str:
        text = argument.text
        option = argument.option
        if argument.is_inline:
            return self._text(text, is_code=True)
        if option in _HEADER_OPTIONS:
            before = text.removesuffix(argument.value)
            return before + self._header_line(argument.value)
        is_secret = option.startswith("--") and is_secret_name(option) and not _SWITCH.match(option)
        if is_secret or (option in _SECRET_OPTIONS and not argument.is_code):
            before = text.removesuffix(argument.value)
            return before + self._named(option, argument.value, is_secret=True)
        if option in _USER_OPTIONS and not argument.is_code:
            before = text.removesuffix(argument.value)
            return before + self._user(argument.value, is_code=False)
        name, equals, value = text.partition("=")
        if equals and re.fullmatch(r"[A-Za-z_]\w*", name):
            return f"{name}={self._variable(name, value)}"
        if not argument.is_code and _HEADER.fullmatch(text) and not _URL.match(text):
            return self._header_line(text)
        return self._text(text, is_code=argument.is_code)

    def _variable(self, name: str, value: str) -> str:
        # A program text that reads the variable may execute it.
        is_run = _SHELL_TEXT.search(_VARIABLE.sub("", value)) is not None and name in self._program
        if _COMMAND_NAME.search(name) or is_run:
            return self._text(value, is_code=True)
        if is_token(value) and not _FILE.fullmatch(value) and not _CODE_NAME.search(name):
            return self._hide(value)
        return self._named(name, value)

    def _named(self, name: str, value: str, *, is_secret: bool = False) -> str:
        """Show a value that has a name. A path or a file under the name of a secret is shown."""
        if not (is_secret or is_secret_name(name)):
            return self._text(value, is_code=False)
        if _is_shown(value):
            return value
        if _URL.match(value) or _is_json(value):
            return self._text(value, is_code=False)
        return self._scheme(value)

    def _header(self, name: str, value: str) -> str:
        if name.lower() in HARMLESS_HEADERS:
            return self._text(value, is_code=False)
        return self._scheme(value)

    def _header_line(self, line: str) -> str:
        match = _HEADER.fullmatch(line)
        if match is None or not is_secret_name(match.group(1)):
            return self._text(line, is_code=False)
        return f"{match.group(1)}{match.group(2)}{self._scheme(match.group(3))}"

    def _scheme(self, value: str) -> str:
        """Hide a value; a scheme such as `Bearer` in front of it is shown."""
        match = _SCHEME.match(value)
        if match is None:
            return self._hide(value)
        return match.group() + self._hide(value[match.end() :])

    def _credential(self, name: str, value: str) -> str:
        if name in _AUTH_NAMES:
            return value
        if is_secret_name(name) or "secret" in name.lower():
            return self._hide(value)
        return self._text(value, is_code=False)

    def _hide(self, text: str) -> str:
        """Hide a text, but show the names of variables in it, and the known prefix of a token."""
        shown: list[str] = []
        last = 0
        for match in _VARIABLE.finditer(text):
            shown.append(self._hide_literal(text[last : match.start()]))
            shown.append(f"{match.group(1)}{self._hide_literal(match.group(2))}}}")
            last = match.end()
        shown.append(self._hide_literal(text[last:]))
        return "".join(shown)

    def _hide_literal(self, text: str) -> str:
        if not text.strip(" :;,=-_/"):
            return text
        prefix = _PREFIX.match(text)
        self.hidden.append(HiddenText(self._place, text))
        return (prefix.group() if prefix is not None else "") + MASK

    def _text(self, text: str, *, is_code: bool) -> str:
        """Hide what has the form of a secret within a text."""
        text = _MEMBER.sub(self._member, text)
        text = _URL.sub(lambda match: self._address(match.group(), is_code=is_code), text)
        text = _AUTHORIZATION.sub(lambda match: match.group(1) + self._hide_again(match.group(2)), text)
        text = _USER.sub(lambda match: match.group(1) + self._hide_again(match.group(2)), text)
        if not is_code:
            text = _BEARER.sub(lambda match: match.group(1) + self._hide_again(match.group(2)), text)
        read = frozenset(_READ.findall(text))
        for pattern in (_HEADER_IN_TEXT, _ASSIGNMENT, _OPTION):
            text = pattern.sub(lambda match: self._pair(match, read), text)
        text = _TOKEN.sub(lambda match: self._hide_again(match.group()), text)
        if not is_code:
            text = _RANDOM.sub(lambda match: self._hide_again(match.group()), text)
        return text

    def _hide_again(self, text: str) -> str:
        """Hide a text in which something may be hidden already."""
        return text if MASK in text else self._hide(text)

    def _pair(self, match: re.Match[str], read: frozenset[str]) -> str:
        """Hide the value behind the name of a secret, unless the text may execute it: `TOKEN=x; $TOKEN`."""
        name, between, value = match.groups()
        # In `--env=TOKEN=x` the second name says that the value is secret.
        while not is_secret_name(name):
            inner, equals, rest = value.partition("=")
            if not equals:
                return match.group()
            between = f"{between}{inner}="
            name = inner
            value = rest
        if MASK in value or "://" in value or _is_shown(value):
            return match.group()
        if (name in read or "eval" in read) and not is_token(value):
            return match.group()
        return f"{match.group(1)}{between}{self._hide(value)}"

    def _member(self, match: re.Match[str]) -> str:
        """Hide the value of a member of JSON with the name of a secret, and the texts in its list."""
        value = match["value"]
        before = match.group().removesuffix(value)
        if is_secret_name(match["name"]):
            return before + _TEXT.sub(self._json_text, value)
        # The value may be a list of objects, or a text of JSON.
        edge = 1 if value.startswith("[") else len(match["quote"])
        return f"{before}{value[:edge]}{_MEMBER.sub(self._member, value[edge:-edge])}{value[-edge:]}"

    def _json_text(self, match: re.Match[str]) -> str:
        value = match.group(2)
        if _is_shown(value):
            return match.group()
        return f"{match.group(1)}{self._scheme(value)}{match.group(3)}"

    def _address(self, url: str, *, is_code: bool) -> str:
        scheme, rest = url.split("://", 1)
        parts = re.match(r"([^/?#]*)([^?#]*)(.*)", rest, re.DOTALL)
        if parts is None:
            return url
        authority, path, query = parts.groups()
        user, at, host = authority.rpartition("@")
        if at:
            user = self._user(user, is_code=is_code)
        path = "/".join(self._segment(segment) for segment in path.split("/"))
        query = _PAIR.sub(self._parameter, query)
        return f"{scheme}://{user}{at}{host}{path}{query}"

    def _user(self, user: str, *, is_code: bool) -> str:
        if is_code and re.search(r"\$\(|[`;|&<>]", user):
            return user
        name, colon, password = user.partition(":")
        if colon:
            return f"{name}:{self._hide(password)}"
        return user if re.fullmatch(r"[a-z]{1,12}", user) else self._hide(user)

    def _segment(self, segment: str) -> str:
        is_secret = _SEGMENT.fullmatch(segment) is not None or _TOKEN.match(segment) is not None
        return self._hide(segment) if is_secret else segment

    def _parameter(self, match: re.Match[str]) -> str:
        before, name, value = match.groups()
        is_secret = is_secret_name(name) or name.lower() in _QUERY_NAMES or is_token(value)
        shown = self._hide(value) if is_secret and not _PLAIN.fullmatch(value) else value
        return f"{before}{name}={shown}"


def _is_shown(value: str) -> bool:
    """Return whether a value is shown even under the name of a secret: a switch, a path or a file."""
    if _BASE64.fullmatch(value):
        return False
    return any(pattern.fullmatch(value) is not None for pattern in (_PLAIN, _PATH, _FILE))


def _is_json(value: str) -> bool:
    if value[:1] not in ("{", "["):
        return False
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


def is_token(value: str) -> bool:
    """Return whether a value looks random: at least 12 characters, with a letter and a digit, and not a path."""
    return re.fullmatch(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])[\w.~+=-]{12,}", value) is not None


def _inline_text(entry: JSONObject) -> str:
    """Return the program text in the arguments of an interpreter, such as that of `sh -c`."""
    command, words = entry.get("command"), entry.get("args")
    if not isinstance(command, str) or not isinstance(words, list):
        return ""
    arguments = read_arguments(command, [word for word in words if isinstance(word, str)])
    return "\n".join(argument.text for argument in arguments if argument.is_inline)
