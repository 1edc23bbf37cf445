"""Secrets: values that are never shown or stored (DESIGN 7).

What counts as one: values of headers, of the environment and of `${VAR}` given in the configuration, and the
credentials in an address. What does not, because hiding it would only garble messages: values under 6 characters,
words such as `production`, numbers, and, unless their name says otherwise (`TOKEN`, `PASSWORD`, ...), plain paths and
addresses without credentials.

Two strengths: errors and logs lose every such value (`mask`). Results are data that a plan goes on with, so they
lose only what is a secret by its place or name (`redact`); and only that may stand in no task and no call (`places`).
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from ideabridge.tools.encoding import JSON, encode_text

MIN_LENGTH: Final = 6
"""Shorter values occur in ordinary text: masking them would garble it and give them away."""

_SECRET_NAME: Final = re.compile(
    r"token|secret|passw|pwd|passphrase|api[-_]?key|apikey|(^|[-_])key($|[-_])|credential|auth|bearer|cookie|session|private|signature|dsn|(^|[-_])pat($|[-_])",
    re.IGNORECASE,
)
_ABOUT_SECRETS: Final = re.compile(r"[-_](mode|type|method|scheme|provider|algorithm|backend)$", re.IGNORECASE)
"""What a name ends in that tells of secrets and holds none: `AUTH_TYPE`."""
_WORD: Final = re.compile(
    r"enabled|disabled|development|production|staging|testing|default|verbose|warning|application/json|utf-?8",
    re.IGNORECASE,
)
"""Nobody's secret, wherever it stands: a task in which the word occurs must not be refused."""
_HARMLESS: Final = re.compile(r"[-+]?[\d.,:_]+|[a-z]{2}_[A-Z]{2}(\.[\w-]+)?|[A-Za-z]+/[A-Za-z_]+", re.IGNORECASE)
_PATH: Final = re.compile(r"(~|\.{1,2})?[/\\]\S*|[A-Za-z]:[/\\].*")
_HARMLESS_HEADERS: Final = frozenset(
    {"accept", "content-type", "user-agent", "accept-language", "host", "mcp-protocol-version"}
)
_TOKEN: Final = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])[\w.~+/=-]{16,}")
_BEARER: Final = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9\-._~+/]{8,}=*", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether a name of a variable, header or parameter says that its value is secret."""
    return _SECRET_NAME.search(name) is not None and _ABOUT_SECRETS.search(name) is None


def _is_harmless(value: str) -> bool:
    if _HARMLESS.fullmatch(value) or _PATH.fullmatch(value):
        return True
    if value.lower().startswith(("http://", "https://")):
        parts = urlsplit(value)
        return "@" not in parts.netloc and not parts.query
    return False


class Secrets:
    """Collects secret values and puts `[secret:NAME]` in their place."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._strong: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        self._strong_pattern: re.Pattern[str] | None = None
        self._encoded_pattern: re.Pattern[str] | None = None

    def add(self, name: str, value: str, *, certain: bool = False) -> None:
        """Hide `value` from now on.

        Args:
            name: what stands in its place, as `[secret:NAME]`.
            value: the secret; under 6 characters it is not hidden.
            certain: it is a secret by its place (a header, credentials), whatever its name or look.
        """
        certain = certain or is_secret_name(name)
        if len(value) < MIN_LENGTH or _WORD.fullmatch(value) or (not certain and _is_harmless(value)):
            return
        # The forms in which a value turns up in messages: as it is, in an address, in JSON.
        escaped = json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
        for form in {value, quote(value, safe=""), quote(value), unquote(value), *escaped}:
            if len(form) >= MIN_LENGTH:
                self._names.setdefault(form, name)
                if certain:
                    self._strong.setdefault(form, name)
        self._pattern = self._strong_pattern = self._encoded_pattern = None

    def add_env(self, name: str, value: str) -> None:
        """A variable of a module's environment, or one that `${VAR}` named."""
        self.add(name, value)
        if "://" in value:
            self.add_url(name, value)

    def add_header(self, name: str, value: str) -> None:
        """A header; of `Bearer abc` and the like the second word alone as well."""
        if name.lower() in _HARMLESS_HEADERS:
            return
        self.add(name, value, certain=True)
        scheme, _, rest = value.partition(" ")
        if rest and scheme.isalpha():
            self.add(name, rest.strip(), certain=True)

    def add_url(self, name: str, url: str) -> None:
        """The credentials in an address: user and password before `@`, and parameters whose names say so."""
        try:
            parts = urlsplit(url)
            user, password = unquote(parts.username or ""), unquote(parts.password or "")
        except ValueError:
            self.add(name, url, certain=True)
            return
        for secret in (password, user if not password else ""):
            self.add(name, secret, certain=True)
        if password:
            self.add(name, base64.b64encode(f"{user}:{password}".encode()).decode(), certain=True)
        for pair in parts.query.split("&"):
            key, _, value = pair.partition("=")
            if is_secret_name(key):
                self.add(name, value, certain=True)

    def found_in(self, text: str) -> list[str]:
        """The names of the secrets in a text that must not leave: those that are certain, and those that look like
        tokens. A plain word of an environment is none.
        """
        certain = {form: name for form, name in self._names.items() if form in self._strong or _TOKEN.fullmatch(form)}
        return list(dict.fromkeys(name for form, name in certain.items() if form in text))

    def mask(self, text: str) -> str:
        """`text` with every secret replaced by `[secret:NAME]` (longest first), bearer tokens too."""
        if self._names:
            if self._pattern is None:
                self._pattern = _compile(self._names)
            text = self._pattern.sub(lambda match: f"[secret:{self._names[match.group()]}]", text)
        return _BEARER.sub(lambda match: f"{match.group(1)} [secret]", text)

    def redact(self, value: JSON) -> JSON:
        """A result without what is certainly secret. Costs one search where, as nearly always, nothing is there."""
        pattern = self._pattern_in(value)
        return value if pattern is None else _redacted(value, pattern, self._strong)

    def places(self, value: JSON) -> list[tuple[str, str]]:
        """(path, name) of everything in a value that is certainly secret: `("calls.0.text", "API_TOKEN")`. A secret in
        a key stands at the object's path. Costs one search where there is nothing.
        """
        pattern = self._pattern_in(value)
        return [] if pattern is None else list(dict.fromkeys(_found(value, "", pattern, self._strong)))

    def _pattern_in(self, value: JSON) -> re.Pattern[str] | None:
        """The pattern of what is certainly secret, where something of a value matches it."""
        if not self._strong:
            return None
        if self._strong_pattern is None or self._encoded_pattern is None:
            self._strong_pattern = _compile(self._strong)
            # A value is looked through as JSON, in which quotes, backslashes and line ends are written otherwise.
            self._encoded_pattern = _compile([json.dumps(form, ensure_ascii=False)[1:-1] for form in self._strong])
        return self._strong_pattern if self._encoded_pattern.search(encode_text(value)) else None


class SecretsFilter(logging.Filter):
    """For log handlers: records lose every secret, those of the SDK and of HTTP libraries too."""

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the message and the traceback; let the record through."""
        record.msg, record.args = self._secrets.mask(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = self._secrets.mask(record.exc_text)
        return True


def _compile(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(form) for form in sorted(names, key=len, reverse=True)))


def _found(value: JSON, path: str, pattern: re.Pattern[str], names: dict[str, str]) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield from ((path, names[match.group()]) for match in pattern.finditer(value))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _found(item, f"{path}.{index}" if path else str(index), pattern, names)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from ((path, names[match.group()]) for match in pattern.finditer(key))
            shown = pattern.sub(lambda match: f"[secret:{names[match.group()]}]", key)
            yield from _found(item, f"{path}.{shown}" if path else shown, pattern, names)


def _redacted(value: JSON, pattern: re.Pattern[str], names: dict[str, str]) -> JSON:
    if isinstance(value, str):
        return pattern.sub(lambda match: f"[secret:{names[match.group()]}]", value)
    if isinstance(value, list):
        return [_redacted(item, pattern, names) for item in value]
    if isinstance(value, dict):
        return {
            pattern.sub(lambda match: f"[secret:{names[match.group()]}]", key): _redacted(item, pattern, names)
            for key, item in value.items()
        }
    return value
