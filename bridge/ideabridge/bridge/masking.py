"""Show a server's definition with `•••` in place of its secrets.

A person reads the result to decide whether to trust a command. Therefore only the secret is hidden:
the name in front of it, the host in an address and `${VAR}` stay visible. A value with spaces,
quotes or shell metacharacters might be a command, so it is shown unless it is a header or the
password in an address. In text that an interpreter executes, such as the argument of `sh -c`, only
values that look like secrets are hidden. When in doubt, a word counts as executed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal

from ideabridge.bridge.command_line import Argument, program_name, read_arguments
from ideabridge.bridge.secrets import HARMLESS_HEADERS, NAME_PATTERN, is_secret_name
from ideabridge.bridge.server_entry import ServerStart
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.typed import read_as

MASK: Final = "•••"

_VARIABLE: Final = re.compile(
    rf"(\$?\$\{{(?:secret:{NAME_PATTERN}(?=\}})|[A-Za-z_][A-Za-z0-9_]*(?::-)?))([^{{}}]*)\}}"
)
"""A variable, with its default if there is one, or the name of a stored secret."""

_PREFIXES: Final = (
    r"gh[opsur]_|github_pat_|glpat-|xox[a-z]-|xapp-|sk-ant-|sk-proj-|sk-or-|[sr]k_(?:live|test)_|npm_|pypi-|hf_|gsk_"
    r"|shpat_|sbp_|ntn_|lin_api_|figd_|tvly-|dop_v1_|pat-|whsec_|nvapi-|xai-|pplx-|hvs\.|ATATT|sk-|AKIA|ASIA|AIza"
    r"|ya29\.|SG\.|secret_|key-"
)
_PREFIX: Final = re.compile(_PREFIXES)
_TOKEN: Final = re.compile(
    # After a slash, match only unmistakable kinds of tokens, because a program's name could
    # otherwise look like a token.
    r"(?<!\w\w)(?:"
    r"(?:gh[opsur]_|github_pat_|glpat-|xox[a-z]-)(?=[\w.-]{0,200}\d)[\w.-]{12,}"
    rf"|(?<![./\\])(?:{_PREFIXES})(?=[\w.=-]{{0,200}}\d)[\w.=-]{{12,}}"
    r"|eyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?"
    # Tokens without a distinctive prefix: Discord, Airtable, Telegram.
    r"|[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}|pat\w{14}\.[0-9a-f]{32,}|\d{8,10}:AA[\w-]{32,}"
    r")"
)
"""Tokens that are recognised by their prefix or their format."""

_RANDOM: Final = re.compile(
    r"(?<![\w./\\@-])(?<!sha256:)(?=(?:\w*\d){4})(?=(?:\w*[A-Za-z]){4})\w{24,}(?![\w./\\-])"
)
_SEGMENT: Final = re.compile(
    # The quantifiers are possessive, so that a long part that is not a secret fails immediately
    # instead of causing backtracking.
    r"(?=(?:[\w:-]*\d){4})(?:\w*+:)?(?:\w{20,}+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})[\w-]*+"
)
"""A random-looking part of an address's path."""

_URL: Final = re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>`\\]+")
_CODE_URL: Final = re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>`\\;|$(){}]+")
"""Matches an address in executed text, which ends before the first character that a shell acts
on.
"""

_OTHER_ENDS: Final = re.compile(r"https?|wss?|git.*|ssh.*|s?ftps?|file|docker|oci", re.IGNORECASE)
"""The schemes of addresses in which a slash ends the password. In a database address, the password
can contain a slash.
"""

_ACCOUNT: Final = re.compile(
    r"([\w.+-]+:)([^\s:@/\"'`]{4,})(@[A-Za-z][\w.-]*(?::\d+)?(?:/[\w.-]*)?)"
)
"""A user, a password and a host, as in an address without its scheme."""

_NAME_AND_PASSWORD: Final = re.compile(r"((?:\$\{[^{}]*\}|(?!\$\{)[^:])*):(.*)", re.DOTALL)
"""The user in an address with a password. The colon in `${VAR:-default}` does not match."""

_PACKAGES: Final = re.compile(r"(npm|jsr|file|link|workspace|git\w*|docker|oci):", re.IGNORECASE)
_CONNECTION: Final = re.compile(
    r"(?:\s*\w+\s*=\s*(?:'[\w.~+/=:@%#!*^?, -]*'|[\w.~+/=:@%#!*^?,-]+))+\s*"
)
"""The parameters of a PostgreSQL connection. Executed as a command, such a string would only set
shell variables.
"""

_PARAMETER: Final = re.compile(r"(\w+)(\s*=\s*)('?)([^\s']*|(?<=')[^']*)(?=\3)")
_SCHEME: Final = re.compile(r"(bearer|basic|token|digest|apikey|bot)\s+", re.IGNORECASE)
_AUTHORIZATION: Final = re.compile(
    r"(:\s*(?:bearer|basic|token)\s+)([^\s\"'`$();|&<>\\]+)", re.IGNORECASE
)
_USER: Final = re.compile(
    r"((?<![\w-])(?:-u|--user)[ "
    r"=][\"']?[^\s:\"'`$();|&<>\\]+:)([^\s\"'`$();|&<>\\/][^\s\"'`$();|&<>\\]*)"
)
"""The user and password in an option of curl or wget."""

_BEARER: Final = re.compile(r"(\b(?:bearer|basic)\s+)([\w.~+/-]{8,}=*)", re.IGNORECASE)
_HEADER: Final = re.compile(r"([A-Za-z][\w-]*)(\s*:\s*)(.+)", re.DOTALL)
_HEADER_IN_TEXT: Final = re.compile(
    r"(?<![\w$-])(?<!\$\{)([A-Za-z][\w-]*)(:\s*)(?!(?:bearer|basic|token)\s)([^\s\"'`$();|&<>\\/]+)",
    re.IGNORECASE,
)
_ASSIGNMENT: Final = re.compile(
    r"(?<![\w$-])(-{0,2}[A-Za-z_][\w-]*)(=[\"']?)([^\s\"'`$();|&<>\\]+)"
)
_OPTION: Final = re.compile(
    r"(?<![\w-])(--[A-Za-z][\w-]*)(\s+[\"']?)([^\s\"'`$();|&<>\\-][^\s\"'`$();|&<>\\]*)"
)
_MEMBER: Final = re.compile(
    r"(?<!\\)(?P<quote>\\*\")(?P<name>[^\"\\]+)(?P=quote)\s*:\s*"
    r"(?P<value>(?P=quote)(?:(?!(?P=quote))(?:\\.|[^\\]))*(?P=quote)|\[[^\[\]]*\])",
    re.DOTALL,
)
"""Matches a member of JSON, or of JSON inside a JSON string, whose value is a string or a list."""

_SINGLE: Final = re.compile(r"(?<!\\)'([^'\\]+)'(\s*:\s*')([^'\\]*)(?=')")
"""A member of an object in Python or JavaScript."""

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_READS_ANY: Final = re.compile(r"\beval\b|\$\{!|\$\{\(|\$\{\^|\bexec\s*\(|\bFunction\b")
"""Matches text that can execute the value of any variable."""

_CREDENTIAL: Final = re.compile(r"(?!-|data:)[\w.~+/=:@%#!*^?,\[\]-]+")
"""A value that every program and every shell reads as one word."""

_CODE_CREDENTIAL: Final = re.compile(r"(?!-|data:)[\w.~+/=:@%-]+")
_GOES_ON: Final = frozenset("($`{[\\")
"""Characters after a value which show that the value is part of an expression, as in
`token=require(...)`.
"""

_SHELLS: Final = "(?!ssh)[a-z]{0,2}sh|rbash|mksh|pdksh|oksh|loksh|tcsh|yash|xonsh|elvish|nu"
_INTERPRETER: Final = re.compile(
    rf"(?:(python|pypy|node|nodejs|ruby|perl|php|lua|luajit|deno|bun|tclsh)|({_SHELLS}))"
    r"(?:[\d.]+[a-z]?|w|d)?(?:[-.](?:dbg|debug|static|\d|x86|i\d86|aarch|arm|linux).*)?"
)
"""The names of interpreters, including those that systems give to particular versions."""

_RUNNERS: Final = frozenset(
    (
        "npx",
        "bunx",
        "pnpx",
        "pipx",
        "poetry",
        "hatch",
        "pdm",
        "uvx",
        "uv",
        "npm",
        "pnpm",
        "yarn",
        "bun",
    )
)
_INLINE: Final = re.compile(r"-[A-Za-z]+|--eval|--print|--command|--call")
"""The options after which interpreters expect program text."""

_PROGRAM_TEXT: Final = re.compile(r"\$[\w@*({]|`|\w\(")
_MOST_INTERPRETERS: Final = 4
_LEAST_DIGITS: Final = 6
_JSON_TOKEN: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|-?\d[\d.eE+-]*|[{}\[\],:]", re.DOTALL)
_PAIR_NAMES: Final = frozenset({"name", "key", "header", "variable"})
_PAIR_VALUES: Final = frozenset({"value", "secret", "text"})
_NO_SECRET: Final = re.compile(
    r"type|method|scheme|url|uri|host|file|path|user|args|name|enabled", re.IGNORECASE
)
"""Names of members that are shown even inside a member that has a secret's name."""

_TEXT: Final = re.compile(r"(\\*\")((?:[^\"\\]|\\[^\"])*)(\\*\")")
_PAIR: Final = re.compile(r"([?&#;])([^=&#;?]+)=([^&#;]*)")
_QUERY_NAMES: Final = frozenset({"code", "sig", "k", "pass"})

_PLAIN: Final = re.compile(r"true|false|yes|no|on|off|none|null|\d{1,2}", re.IGNORECASE)
_PATH: Final = re.compile(r"(~|\.{1,2})?[/\\].*|[A-Za-z]:[/\\].*", re.DOTALL)
_FILE: Final = re.compile(
    r"[\w./\\-]+\.(py\w?|[cm]?[jt]sx?|sh|bash|rb|pl|php|so|dll|exe|bat|cmd|ps1|json|ya?ml|toml|pem|key|crt|env|txt)",
    re.IGNORECASE,
)
_BASE64: Final = re.compile(
    r"(?=[^0-9]*[0-9])(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[A-Za-z0-9+/]{32,}={0,2}"
)
"""A base64 secret, which can look like the start of a path."""

_COMMAND_NAME: Final = re.compile(
    r"command|cmd|exec|program|helper|script|askpass|preload|options|sock", re.IGNORECASE
)
_CODE_NAME: Final = re.compile(
    r"PATH$|^(LD|DYLD|PYTHON|NODE|PERL|RUBY|BASH|GIT|SSH|JAVA|LUA|R)_?|^ENV$|EDITOR|PAGER|BROWSER|SHELL",
    re.IGNORECASE,
)
"""Variables that name code. Their values are not hidden only because they look random."""

_SHELL_TEXT: Final = re.compile(r"[\s;|&`$()<>]")
_LONG_OPTION: Final = re.compile(r"--?[A-Za-z][\w-]+")
_SWITCH: Final = re.compile(
    r"--((no|disable|enable|skip|allow|with|without)-|(new-session|private)$)", re.IGNORECASE
)
"""The prefix of options that take no value, and the `bwrap` and `firejail` options that have a
secret's name but take no value.
"""

_CONTAINER_SWITCH: Final = "--passwd"
"""A `podman run` option that has a secret's name but takes no value. The word after it can
therefore be the image.
"""

_HEADER_OPTIONS: Final = ("-H", "--header", "--headers")
_USER_OPTIONS: Final = ("-u", "--user", "--proxy-user")
_AUTH_NAMES: Final = ("secret_in", "client_metadata_url")


Evidence = Literal["name", "header", "address", "form", "random"]
"""The evidence that a string is secret. name: the name of its variable, option, parameter or member
says so. header: it is the value of a header. address: it is the password in an address, or a
random-looking part of its path. form: it looks like a known kind of token. random: it looks random.
"""


@dataclass(frozen=True, slots=True)
class _Reason:
    """The reason why a string is hidden: the evidence, and the name next to the string. The name
    is "" if the string stands alone.
    """

    evidence: Evidence
    name: str = ""


@dataclass(frozen=True, slots=True)
class HiddenText:
    """A string that is hidden in the shown definition.

    Attributes:
        place: the place of the string in the definition, for example `env.TOKEN` or `args.2`.
        text: the secret.
        evidence: what shows that the text is secret.
        name: the name of the variable, option, header, parameter or member, or "".
        is_whole: whether the secret is the whole string in this place.
        may_be_command: whether something might execute the string. Such a string is shown to the
            person who decides, but not in errors.
    """

    place: str
    text: str = field(repr=False)
    evidence: Evidence = "form"
    name: str = ""
    is_whole: bool = False
    may_be_command: bool = False


Replace = Callable[[HiddenText], str | None]
"""A function that returns the text that replaces a hidden string, or None to leave the string
unchanged. The text contains `MASK`.
"""


def shown_definition(entry: JSONObject) -> JSONObject:
    """Return a server's definition, as ideabridge or a host writes it, without its secrets."""
    return _Mask().entry(entry)


def hidden_in(entry: JSONObject) -> list[HiddenText]:
    """Return the strings that `shown_definition` hides. `${VAR}` is not a secret, but the default
    in `${VAR:-default}` can be a secret.
    """
    mask = _Mask()
    mask.entry(entry)
    return mask.hidden


def replaced_in(entry: JSONObject, replace: Replace) -> JSONObject:
    """Return a server's definition in which `replace` supplies each string that `shown_definition`
    hides.

    Values of variables that `shown_definition` shows because they might be commands are replaced,
    too. `replace` is also called for other strings that might be commands, but these stay
    unchanged.
    """
    return _Mask(replace, is_moving=True).entry(entry)


def shown_json(value: JSON) -> JSON:
    """Return a JSON value, such as another setting in a configuration, without its secrets."""
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
                if isinstance(entry, dict):
                    servers[name] = shown_definition(entry)
                else:
                    servers[name] = shown_json(entry)

            shown[key] = servers
        else:
            shown[key] = _Mask().value(key, value)

    return shown


class _Mask:
    """Masks one definition and records what it hides."""

    def __init__(self, replace: Replace | None = None, *, is_moving: bool = False) -> None:
        self.hidden: list[HiddenText] = []
        self._replace: Replace = _masked if replace is None else replace
        self._is_moving = is_moving
        self._place = ""
        # The string at this place, or "" if the value here is no string.
        self._whole = ""
        self._runs_text = False
        self._is_known = False

    def entry(self, entry: JSONObject) -> JSONObject:
        start = read_as(ServerStart, entry)
        self._runs_text = _runs_text(start)
        shown: JSONObject = {}
        for key, value in entry.items():
            self._enter(key, value)
            if key == "args" and value is start.args:
                shown[key] = self._arguments(start)
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

    def _enter(self, place: str, value: JSON) -> None:
        self._place = place
        self._whole = value if isinstance(value, str) else ""

    def value(self, name: str, value: JSON) -> JSON:
        if isinstance(value, str):
            # `key_env` holds the name of a variable, not a key.
            return value if name.endswith(("_env", "_env_var")) else self._named(name, value)
        if isinstance(value, list):
            return [self.value(name, item) for item in value]
        if isinstance(value, dict):
            return self._object(name, value)
        return value

    def _object(self, name: str, members: JSONObject) -> JSONObject:
        shown: JSONObject = {}
        names = [
            name,
            *(
                text
                for key, text in members.items()
                if key in _PAIR_NAMES and isinstance(text, str)
            ),
        ]
        is_secret = any(is_secret_name(text) for text in names)
        for key, item in members.items():
            if is_secret and key in _PAIR_VALUES and isinstance(item, str):
                shown[key] = self._named(key, item, is_secret=True)
            else:
                shown[key] = self.value(key, item)

        return shown

    def _members(
        self, key: str, members: JSONObject, show: Callable[[str, str], str]
    ) -> JSONObject:
        shown: JSONObject = {}
        for name, value in members.items():
            self._enter(f"{key}.{name}", value)
            if isinstance(value, str):
                shown[name] = show(name, value)
            else:
                shown[name] = self.value(name, value)

        return shown

    def _arguments(self, start: ServerStart) -> list[JSON]:
        shown: list[JSON] = []
        arguments = _read(start.command or "", start.words)
        self._is_known = any(argument.is_code for argument in arguments)
        for number, argument in enumerate(arguments):
            word = start.args[number]
            self._enter(f"args.{number}", word)
            shown.append(
                self._argument(argument) if isinstance(word, str) else self.value("", word)
            )

        return shown

    def _argument(self, argument: Argument) -> str:
        text = argument.text
        option = argument.option
        if argument.is_inline:
            return self._text(text, is_code=True)

        value = argument.value
        before = text.removesuffix(value)
        if option in _HEADER_OPTIONS:
            # An unknown command might be an interpreter, so its headers might be executed.
            is_inert = self._is_known and not argument.is_code
            return before + self._header_line(value, is_option=True, is_inert=is_inert)

        # With other commands, `-k` can be an option that takes no value.
        is_key = option == "-k" and not argument.is_code and (self._is_known or is_token(value))
        if option == _CONTAINER_SWITCH and argument.is_code and "/" in value:
            return self._executed(text)
        if is_key or _is_secret_option(option):
            return before + self._named(option, value, is_secret=True)
        if argument.is_code:
            return self._executed(text)
        if option in _USER_OPTIONS:
            return before + self._user(value, _Reason("name", "password"), is_inert=False)
        return self._word(text, value)

    def _word(self, text: str, value: str) -> str:
        """Return the displayed form of a word that no option marks as a secret.

        `value` is the part of the word that follows the option.
        """
        if _CONNECTION.fullmatch(text):
            return self._connection(text)

        name, equals, assigned = text.partition("=")
        if equals and _NAME.fullmatch(name):
            return f"{name}={self._variable(name, assigned)}"
        if _HEADER.fullmatch(text) and not _URL.match(text) and not _ACCOUNT.fullmatch(text):
            return self._header_line(text, is_option=False, is_inert=False)
        if _is_json(value):
            return text.removesuffix(value) + self._text(value, is_code=False)
        return self._text(text, is_code=False)

    def _executed(self, text: str) -> str:
        """Return the displayed form of a word that follows a program, such as `env`, that starts
        another.
        """
        name, equals, value = text.partition("=")
        if equals and _NAME.fullmatch(name) and is_secret_name(name):
            return f"{name}={self._variable(name, value)}"
        return self._text(text, is_code=True)

    def _variable(self, name: str, value: str) -> str:
        # Text that the program runs can execute a variable without containing its name.
        is_run = self._runs_text and _SHELL_TEXT.search(_VARIABLE.sub("", value)) is not None
        is_data = _is_json(value) or _is_scheme(value)
        if _COMMAND_NAME.search(name) or (is_run and not is_data):
            return self._text(value, is_code=True)
        if is_token(value) and not _FILE.fullmatch(value) and not _CODE_NAME.search(name):
            evidence: Evidence = "name" if is_secret_name(name) else "random"
            return self._hide(value, _Reason(evidence, name))
        return self._named(name, value)

    def _named(self, name: str, value: str, *, is_secret: bool = False) -> str:
        """Return the displayed form of a named value.

        A path or a file is shown even if the name suggests a secret.
        """
        if not (is_secret or is_secret_name(name)):
            return self._text(value, is_code=False)
        if _is_shown(value):
            return value
        if _URL.match(value) or _is_json(value):
            return self._text(value, is_code=False)
        if not _is_word(value) and not _is_scheme(value):
            if self._is_moving and self._is_data():
                return self._scheme(value, _Reason("name", name), is_inert=True)
            # Show the value in the definition, because it might be a command, but still hide it in
            # errors.
            self._note_command(value, _Reason("name", name))
            return self._text(value, is_code=True)

        return self._scheme(value, _Reason("name", name))

    def _is_data(self) -> bool:
        """Return whether the current value is certainly not executed.

        This is the case for a variable's value if no argument is program text.
        """
        return self._place.startswith("env.") and not self._runs_text

    def _header(self, name: str, value: str) -> str:
        if name.lower() in HARMLESS_HEADERS:
            return self._text(value, is_code=False)
        return self._scheme(value, _Reason("header", name), is_inert=True)

    def _header_line(self, line: str, *, is_option: bool, is_inert: bool) -> str:
        """Return the line `NAME: VALUE` with its secret hidden.

        A line that is the value of an option is certainly a header, so any value in the line is a
        secret.
        """
        match = _HEADER.fullmatch(line)
        if match is None:
            return self._text(line, is_code=not is_inert)

        name, colon, value = match.groups()
        if is_option:
            is_secret = name.lower() not in HARMLESS_HEADERS
        else:
            is_secret = is_secret_name(name)

        if not is_secret:
            return self._text(line, is_code=False)
        shown = self._scheme(value, _Reason("header", name), is_inert=is_inert)
        return f"{name}{colon}{shown}"

    def _scheme(self, value: str, reason: _Reason, *, is_inert: bool = False) -> str:
        """Hide a value, but show a scheme in front of it, such as `Bearer`."""
        match = _SCHEME.match(value)
        if match is None:
            return self._hide(value, reason, is_inert=is_inert)
        return match.group() + self._hide(value[match.end() :], reason, is_inert=is_inert)

    def _connection(self, text: str) -> str:
        return _PARAMETER.sub(self._connection_value, text)

    def _connection_value(self, match: re.Match[str]) -> str:
        name, equals, quote, value = match.groups()
        if not is_secret_name(name) or _is_shown(value):
            return match.group()
        shown = self._hide(value, _Reason("name", name), is_inert=True)
        return f"{name}{equals}{quote}{shown}"

    def _credential(self, name: str, value: str) -> str:
        if name in _AUTH_NAMES:
            return value
        if is_secret_name(name) or "secret" in name.lower():
            return self._hide(value, _Reason("name", name), is_inert=True)
        return self._text(value, is_code=False)

    def _note_command(self, text: str, reason: _Reason) -> None:
        """Record a string that is shown because it might be a command, but hidden in errors."""
        is_whole = text == self._whole
        hidden = HiddenText(
            self._place, text, reason.evidence, reason.name, is_whole, may_be_command=True
        )
        if self._replace(hidden) is not None:
            self.hidden.append(hidden)

    def _hide(
        self, text: str, reason: _Reason, *, is_inert: bool = False, is_code: bool = False
    ) -> str:
        """Hide a string, but show the names of variables in it, and the known prefix of a token.

        Args:
            text: the secret.
            reason: why the text is hidden.
            is_inert: whether nothing can execute the string. If so, all of it is hidden. If not, a
                string that might be more than one word is shown, but errors must hide it.
            is_code: whether the text is part of executed text.
        """
        if not is_inert and not _is_word(text, is_code=is_code):
            if not is_code:
                self._note_command(text, reason)
            return text

        if self._is_moving and _VARIABLE.search(text):
            # The value already refers to a place where it is stored, so there is nothing left to
            # hide.
            return text

        shown: list[str] = []
        last = 0
        for match in _VARIABLE.finditer(text):
            shown.append(self._hide_literal(text[last : match.start()], reason))
            shown.append(f"{match.group(1)}{self._hide_literal(match.group(2), reason)}}}")
            last = match.end()

        shown.append(self._hide_literal(text[last:], reason))
        return "".join(shown)

    def _hide_literal(self, text: str, reason: _Reason) -> str:
        if not text.strip(" :;,=-_/"):
            return text

        is_whole = text == self._whole
        hidden = HiddenText(self._place, text, reason.evidence, reason.name, is_whole)
        shown = self._replace(hidden)
        if shown is None:
            return text

        self.hidden.append(hidden)
        return shown

    def _text(self, text: str, *, is_code: bool) -> str:
        """Hide every part of a string that has the form of a secret."""
        if not is_code:
            if _is_json(text):
                return self._json(text)
            if _CONNECTION.fullmatch(text):
                return self._connection(text)

            account = _ACCOUNT.fullmatch(text)
            if account is not None and not _PACKAGES.match(text):
                password = self._hide(account.group(2), _Reason("address", "password"))
                return account.group(1) + password + account.group(3)

            text = _MEMBER.sub(self._member, text)
            text = _SINGLE.sub(self._single, text)

        # An argument of an unknown command does not count as an address, because the command might
        # be an interpreter.
        is_argument = self._place.startswith("args.")
        is_address = (
            not is_code and _URL.fullmatch(text) is not None and (self._is_known or not is_argument)
        )
        url = _CODE_URL if is_code else _URL
        text = url.sub(
            lambda match: self._address(match.group(), is_code=is_code, is_inert=is_address), text
        )

        def hide_second(match: re.Match[str], reason: _Reason) -> str:
            return match.group(1) + self._hide_again(match.group(2), reason, is_code=is_code)

        header = _Reason("header", "Authorization")
        text = _AUTHORIZATION.sub(partial(hide_second, reason=header), text)
        text = _USER.sub(partial(hide_second, reason=_Reason("name", "password")), text)
        if not is_code:
            text = _BEARER.sub(partial(hide_second, reason=header), text)

        names = _read_names(text)
        for pattern in (_HEADER_IN_TEXT, _ASSIGNMENT, _OPTION):
            text = pattern.sub(lambda match: self._pair(match, names, is_code=is_code), text)

        text = _TOKEN.sub(
            lambda match: self._hide_again(match.group(), _Reason("form"), is_code=is_code), text
        )
        if not is_code:
            text = _RANDOM.sub(
                lambda match: self._hide_again(match.group(), _Reason("random")), text
            )

        return text

    def _hide_again(self, text: str, reason: _Reason, *, is_code: bool = False) -> str:
        """Hide a string unless part of it is already hidden."""
        return text if MASK in text else self._hide(text, reason, is_code=is_code)

    def _pair(self, match: re.Match[str], names: frozenset[str] | None, *, is_code: bool) -> str:
        """Hide the value after a secret's name, unless the text might execute the value, as in
        `TOKEN=x; $TOKEN`.

        Args:
            match: the match, whose groups are the name, the text after it, and the value.
            names: the names that occur more than once in the text, because the text might read
                these variables. None if the text might read any variable.
            is_code: whether the text is executed.
        """
        name, between, value = match.groups()
        # In `--env=TOKEN=x`, it is the second name that says that the value is secret.
        while not is_secret_name(name):
            inner, equals, following = value.partition("=")
            if not equals:
                return match.group()

            between = f"{between}{inner}="
            name = inner
            value = following

        if MASK in value or "://" in value or _is_shown(value):
            return match.group()

        behind = match.string[match.end() : match.end() + 1]
        quote = between[-1]
        if behind in _GOES_ON or (quote in "\"'" and behind != quote):
            return match.group()
        if (names is None or name in names) and not is_token(value):
            return match.group()
        shown = self._hide(value, _Reason("name", name), is_code=is_code)
        return f"{match.group(1)}{between}{shown}"

    def _single(self, match: re.Match[str]) -> str:
        name, colon, value = match.groups()
        if not is_secret_name(name) or _is_shown(value):
            return match.group()
        return f"'{name}'{colon}{self._scheme(value, _Reason('name', name))}"

    def _json(self, text: str) -> str:
        """Return JSON text as it is written, with its secrets hidden."""
        shown: list[str] = []
        last = 0
        for leaf in _json_leaves(text):
            shown.append(text[last : leaf.start])
            shown.append(self._leaf(text[leaf.start : leaf.end], leaf))
            last = leaf.end

        shown.append(text[last:])
        return "".join(shown)

    def _leaf(self, literal: str, leaf: _Leaf) -> str:
        if not literal.startswith('"'):
            is_number = (
                leaf.is_secret and len(literal) >= _LEAST_DIGITS and not leaf.key.endswith("tokens")
            )
            return self._hide(literal, _Reason("name", leaf.key)) if is_number else literal

        value: str = json.loads(literal)
        if leaf.is_secret:
            shown = self._named(leaf.key, value, is_secret=True)
        else:
            shown = self._text(value, is_code=False)

        return literal if shown == value else json.dumps(shown, ensure_ascii=False)

    def _member(self, match: re.Match[str]) -> str:
        """Hide the value of a JSON member that has a secret's name or, if the value is a list, the
        strings in it.
        """
        value = match["value"]
        before = match.group().removesuffix(value)
        if is_secret_name(match["name"]):
            return before + _TEXT.sub(partial(self._json_text, match["name"]), value)
        # The value is either a list of objects or a string that contains JSON.
        edge = 1 if value.startswith("[") else len(match["quote"])
        return (
            f"{before}{value[:edge]}{_MEMBER.sub(self._member, value[edge:-edge])}{value[-edge:]}"
        )

    def _json_text(self, name: str, match: re.Match[str]) -> str:
        value = match.group(2)
        if _is_shown(value):
            return match.group()
        return f"{match.group(1)}{self._scheme(value, _Reason('name', name))}{match.group(3)}"

    def _address(self, url: str, *, is_code: bool, is_inert: bool) -> str:
        scheme, after_scheme = url.split("://", 1)
        user, at, place = _split_user(scheme, after_scheme, is_code=is_code)
        if at:
            reason = _Reason("address", "password")
            user = self._user(user, reason, is_code=is_code, is_inert=is_inert)

        parts = re.match(r"([^/?#]*)([^?#]*)(.*)", place, re.DOTALL)
        if parts is None:
            return url

        host, path, query = parts.groups()
        path = "/".join(self._segment(segment, is_code=is_code) for segment in path.split("/"))
        query = _PAIR.sub(lambda match: self._parameter(match, is_code=is_code), query)
        return f"{scheme}://{user}{at}{host}{path}{query}"

    def _user(self, user: str, reason: _Reason, *, is_inert: bool, is_code: bool = False) -> str:
        match = _NAME_AND_PASSWORD.fullmatch(user)
        if match is not None:
            name, password = match.groups()
            shown = self._hide(password, reason, is_inert=is_inert, is_code=is_code)
            return f"{name}:{shown}"
        if re.fullmatch(r"[a-z]{1,12}", user):
            return user
        return self._hide(user, _Reason("random", "user"), is_inert=is_inert, is_code=is_code)

    def _segment(self, segment: str, *, is_code: bool) -> str:
        is_secret = _SEGMENT.fullmatch(segment) is not None or _TOKEN.fullmatch(segment) is not None
        if not is_secret:
            return segment
        return self._hide(segment, _Reason("address", "path"), is_code=is_code)

    def _parameter(self, match: re.Match[str], *, is_code: bool) -> str:
        before, name, value = match.groups()
        has_secret_name = is_secret_name(name) or name.lower() in _QUERY_NAMES
        if (has_secret_name or is_token(value)) and not _PLAIN.fullmatch(value):
            reason = _Reason("name" if has_secret_name else "random", name)
            shown = self._hide(value, reason, is_code=is_code)
        else:
            shown = value
        return f"{before}{name}={shown}"


def _masked(hidden: HiddenText) -> str:
    """Return `•••`, after the known prefix of a token."""
    prefix = _PREFIX.match(hidden.text)
    return (prefix.group() if prefix is not None else "") + MASK


@dataclass(slots=True)
class _Level:
    """An object or a list in JSON.

    Attributes:
        is_secret: whether an enclosing member has a secret's name.
        is_object: whether it is an object.
        key: the key of the current member.
        is_behind_key: whether the next string is a value rather than a key.
        pair_name: the name in `{"name": "TOKEN", "value": "x"}`.
    """

    is_secret: bool
    is_object: bool
    key: str = ""
    is_behind_key: bool = False
    pair_name: str = ""

    def hides_below(self) -> bool:
        """Return whether the value of the current member counts as a secret."""
        return (self.is_secret or is_secret_name(self.key)) and not _COMMAND_NAME.search(self.key)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A string or a number in JSON, from `start` to `end`, and the object or list that contains
    it.
    """

    start: int
    end: int
    key: str
    level: _Level

    @property
    def is_secret(self) -> bool:
        """True if the key of the value, an enclosing member, or the name next to the value says
        that the value is secret.
        """
        if _COMMAND_NAME.search(self.key):
            return False
        if is_secret_name(self.key):
            return True
        if self.key in _PAIR_VALUES and is_secret_name(self.level.pair_name):
            return True
        return self.level.is_secret and _NO_SECRET.search(self.key) is None


def _json_leaves(text: str) -> list[_Leaf]:
    """Return the strings and numbers of valid JSON in order, with their positions."""
    leaves: list[_Leaf] = []
    levels = [_Level(is_secret=False, is_object=False)]
    for match in _JSON_TOKEN.finditer(text):
        piece = match.group()
        level = levels[-1]
        if piece in ("{", "["):
            levels.append(_Level(is_secret=level.hides_below(), is_object=piece == "{"))
        elif piece in ("}", "]"):
            levels.pop()
        elif piece == ":":
            level.is_behind_key = True
        elif piece == ",":
            level.is_behind_key = False
        elif level.is_object and not level.is_behind_key:
            level.key = json.loads(piece)
        else:
            if level.key in _PAIR_NAMES and piece.startswith('"'):
                level.pair_name = json.loads(piece)
            leaves.append(_Leaf(match.start(), match.end(), level.key, level))

    return leaves


def _split_user(scheme: str, rest: str, *, is_code: bool) -> tuple[str, str, str]:
    """Split the text after `://` into three parts: the user and the password; `@`, or "" if there
    is no user; and the host with everything after it.
    """
    user, at, place = rest.rpartition("@")
    name, _, password = user.partition(":")
    is_port = re.match(r"\d{0,5}[/?#]", password) is not None
    is_plain = not is_code and _OTHER_ENDS.fullmatch(scheme) is None
    if at and is_plain and not is_port and re.search(r"[/?#\[]", name) is None:
        return user, at, place

    end = re.search(r"[/?#]", rest)
    authority = rest if end is None else rest[: end.start()]
    user, at, host = authority.rpartition("@")
    return user, at, host + rest[len(authority) :]


def _is_secret_option(option: str) -> bool:
    """Return whether the value of an option is secret, as with `--token`, or with `-token` in Go
    programs.
    """
    return (
        _LONG_OPTION.fullmatch(option) is not None
        and is_secret_name(option)
        and not _SWITCH.match(option)
    )


def _is_word(text: str, *, is_code: bool = False) -> bool:
    """Return whether a string, apart from any `${VAR}`, is a single word of characters that occur
    in credentials.
    """
    literal = _VARIABLE.sub(lambda match: match.group(2), text)
    form = _CODE_CREDENTIAL if is_code else _CREDENTIAL
    return not literal or form.fullmatch(literal) is not None


def _is_scheme(value: str) -> bool:
    """Return whether a value is a scheme such as `Bearer` followed by one word."""
    match = _SCHEME.match(value)
    return match is not None and _is_word(value[match.end() :])


def _read_names(text: str) -> frozenset[str] | None:
    """Return the names that occur more than once in `text`, or None if it can read any variable."""
    if _READS_ANY.search(text):
        return None
    return frozenset(name for name, count in Counter(_NAME.findall(text)).items() if count > 1)


def _read(command: str, words: Sequence[str]) -> list[Argument]:
    """Read the words after a command. If one of them is an interpreter, the words after the
    interpreter are read as its arguments.
    """
    arguments: list[Argument] = []
    program = _interpreter(command) or command
    for _ in range(_MOST_INTERPRETERS):
        start = len(arguments)
        part = _part(program, words[start:])
        inner = _inner_interpreter(part)
        if inner is None:
            return [*arguments, *part]
        arguments += part[: inner + 1]
        program = _interpreter(words[start + inner]) or ""

    return [*arguments, *_part("$", words[len(arguments) :])]


def _part(program: str, words: Sequence[str]) -> list[Argument]:
    """Read the words of one program.

    A runner might take a word after an unknown option as the name of a package, so such a word
    counts as program text.
    """
    arguments = read_arguments(program, words)
    if program_name(program) in _RUNNERS:
        return [replace(argument, is_inline=argument.is_code) for argument in arguments]
    if any(argument.is_code for argument in arguments):
        return arguments

    # The program might be an interpreter, which executes the program text and every word after it.
    for place, argument in enumerate(arguments):
        if _is_program_text(argument):
            behind = [replace(word, is_code=True, is_inline=True) for word in arguments[place:]]
            return [*arguments[:place], *behind]

    return arguments


def _is_program_text(argument: Argument) -> bool:
    if argument.option in _HEADER_OPTIONS or _is_secret_option(argument.option):
        return False
    text = _VARIABLE.sub("", argument.text)
    return (
        _PROGRAM_TEXT.search(text) is not None
        and not _URL.fullmatch(text)
        and not _is_json(argument.value)
    )


def _inner_interpreter(arguments: Sequence[Argument]) -> int | None:
    """Return the index of the first word that would start an interpreter."""
    is_known = any(argument.is_code for argument in arguments)
    for place, argument in enumerate(arguments[:-1]):
        if _interpreter(argument.text) is None:
            continue
        is_certain = argument.is_code or not is_known
        has_text = _INLINE.fullmatch(arguments[place + 1].text) is not None
        if (is_certain and not argument.is_inline) or has_text:
            return place

    return None


def _interpreter(word: str) -> str | None:
    """Return the name of an interpreter or a runner without its version, or None for any other
    word.
    """
    name = re.split(r"[/\\]", word)[-1].lower().removesuffix(".exe")
    if name in _RUNNERS:
        return name

    match = _INTERPRETER.fullmatch(name)
    if match is None:
        return None
    return match.group(1) or "sh"


def _is_shown(value: str) -> bool:
    """Return whether a value is a switch, a path or a file. Such a value is shown even under a
    secret's name.
    """
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
    """Return whether a value looks random: at least 12 characters, with a letter and a digit,
    and not a path.
    """
    return re.fullmatch(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])[\w.~+=-]{12,}", value) is not None


def is_known_token(text: str) -> bool:
    """Return whether a string has the format of a known kind of token, such as `ghp_` and a random
    part.
    """
    return _TOKEN.fullmatch(text) is not None


def looks_random(text: str) -> bool:
    """Return whether a string is too long and too mixed to have been made up by a person."""
    return _RANDOM.fullmatch(text) is not None or _BASE64.fullmatch(text) is not None


def _runs_text(start: ServerStart) -> bool:
    """Return whether the arguments contain program text, such as the text after `sh -c`."""
    if start.command is None:
        return False
    return any(
        argument.is_inline and _SHELL_TEXT.search(argument.text) is not None
        for argument in _read(start.command, start.words)
    )
