"""Recognise and mask secrets, the values that are never shown or stored.

Secrets are the configured values of headers, environment variables and `${VAR}`, and the
credentials in addresses. Values shorter than 6 characters and words such as `production` are not
secrets, because hiding them would garble messages. Neither are numbers, plain paths and addresses
without credentials, unless they have the name of a secret (`TOKEN`).

`mask` removes all of these values from errors and logs. A secret is *certain* if its place or its
name says that it is secret. A plan continues to use results as data, so `redact` removes only
certain secrets from results. Likewise, a task or a call is refused only if it contains a certain
secret (`places`).
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import logging
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from threading import RLock
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import quote, quote_plus, unquote, urlsplit
from weakref import WeakSet

from ideabridge.tools.encoding import JSON, encode
from ideabridge.tools.names import printable

MIN_LENGTH: Final = 6
"""The minimum length of a secret, in characters. Shorter values occur in ordinary text, which
masking would garble.
"""

NAME_PATTERN: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"
"""The pattern for the name of a stored secret: NAME in `${secret:NAME}`."""

_LEAST_BASE64: Final = 7
"""The minimum length of a base64 form, in characters. Two random strings of seven characters are
equal in one of 4 * 10^12 cases.
"""

_HALF: Final = re.compile("[\ud800-\udfff]")
_WRAPPED: Final = re.compile(
    r"\r?\n(?:(?<=[A-Za-z0-9+/]{40}\n)|(?<=[A-Za-z0-9+/]{40}\r\n))(?=[A-Za-z0-9+/])"
)
"""Matches a line ending within base64. `base64` and MIME write lines of 76 characters, and PEM
writes lines of 64.
"""
_PERCENT: Final = re.compile(rb"%[0-9A-Fa-f]{2}")
_Kind: TypeAlias = Literal["any", "certain", "leaking"]

_SECRET_NAME: Final = re.compile(
    r"token|secret|passw|pwd|passphrase|api[-_]?key|access[-_]?key|(^|[-_])key($|[-_])|credential|auth|bearer|cookie|session|private|signature|dsn|(^|[-_])pat($|[-_])|(^|[-_])(pass|pw|pin|jwt|creds?)$",
    re.IGNORECASE,
)
_ABOUT_SECRETS: Final = re.compile(
    r"[-_](mode|type|method|scheme|provider|algorithm|backend)$", re.IGNORECASE
)
"""The suffix of a name that describes a secret without holding one, such as `AUTH_TYPE`."""
_WORD: Final = re.compile(
    r"enabled|disabled|development|production|staging|testing|default|verbose|warning|application/json|utf-?8",
    re.IGNORECASE,
)
"""Words that are never secrets, because a task that contains one must not be refused."""
_HARMLESS: Final = re.compile(
    r"[-+]?[\d.,:_]+|[a-z]{2}_[A-Z]{2}(\.[\w-]+)?|[A-Za-z]+/[A-Za-z_]+", re.IGNORECASE
)
_PATH: Final = re.compile(r"(~|\.{1,2})?[/\\]\S*|[A-Za-z]:[/\\].*")
HARMLESS_HEADERS: Final = frozenset(
    {"accept", "content-type", "user-agent", "accept-language", "host", "mcp-protocol-version"}
)
_TOKEN: Final = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])[\w.~+/=-]{16,}")
_BEARER: Final = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9\-._~+/]{8,}=*", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Return whether the name of a variable, header or parameter says that its value is secret."""
    return _SECRET_NAME.search(name) is not None and _ABOUT_SECRETS.search(name) is None


def _is_harmless(value: str) -> bool:
    if _HARMLESS.fullmatch(value) or _PATH.fullmatch(value):
        return True
    if value.lower().startswith(("http://", "https://")):
        parts = urlsplit(value)
        return "@" not in parts.netloc and not parts.query
    return False


_LIVE: Final[WeakSet[Secrets]] = WeakSet()
"""All instances in this process. Their secrets are removed from log records."""
_LOCK: Final = RLock()
"""Guards `_LIVE`, because threads also write logs."""


class Secrets:
    """Collects secret values, and replaces them with `[secret:NAME]`, even in their encoded forms
    (`forms_of`).
    """

    def __init__(self) -> None:
        with _LOCK:
            _LIVE.add(self)
        # For each kind of secret, the name of each secret, keyed by each form that it can take.
        self._forms: dict[_Kind, dict[str, str]] = {"any": {}, "certain": {}, "leaking": {}}
        self._finders: dict[_Kind, _Finder] = {}
        # Whether any secret contains a character that JSON escapes.
        self._is_escaped = False
        # The length of the longest secret with every byte percent-encoded.
        self._longest = 0

    def add(self, name: str, value: str, *, certain: bool = False) -> None:
        """Hide `value` from now on.

        Args:
            name: NAME in the `[secret:NAME]` that replaces the value.
            value: the secret. A value of less than 6 characters is not hidden.
            certain: whether the value's place (a header, credentials) makes it a secret, regardless
                of its name or format.
        """
        certain = certain or is_secret_name(name)
        if len(value) < MIN_LENGTH or _WORD.fullmatch(value):
            return
        if not certain and _is_harmless(value):
            return

        kinds: list[_Kind] = ["any"]
        if certain:
            kinds.append("certain")
        if certain or _TOKEN.fullmatch(value):
            kinds.append("leaking")

        for form in forms_of(value):
            # A percent-encoded byte takes three characters.
            length = 3 * len(form.encode("utf-8", "surrogatepass"))
            self._longest = max(self._longest, length)
            for kind in kinds:
                self._forms[kind].setdefault(form, name)

        if any(char in '"\\' or char < " " for char in value):
            self._is_escaped = True
        self._finders.clear()

    def add_env(self, name: str, value: str) -> None:
        """Hide the value of a variable in a server's environment, or of a variable that `${VAR}`
        names.
        """
        self.add(name, value)
        if "://" in value:
            self.add_url(name, value)

    def add_header(self, name: str, value: str) -> None:
        """Hide the value of a header. If the value has a scheme, as in `Bearer abc`, also hide the
        second word alone.
        """
        if name.lower() in HARMLESS_HEADERS:
            return
        self.add(name, value, certain=True)
        scheme, _, credentials = value.partition(" ")
        if credentials and scheme.isalpha():
            self.add(name, credentials.strip(), certain=True)

    def add_url(self, name: str, url: str) -> None:
        """Hide the credentials in an address: the user and the password before `@`, and the
        parameters that have a secret's name.
        """
        try:
            parts = urlsplit(url)
            user = unquote(parts.username or "")
            password = unquote(parts.password or "")
        except ValueError:
            self.add(name, url, certain=True)
            return

        if password:
            self.add(name, password, certain=True)
            # Also add the form in which a header for basic authentication contains them.
            basic = base64.b64encode(f"{user}:{password}".encode()).decode()
            self.add(name, basic, certain=True)
        else:
            # A user name without a password is often a token.
            self.add(name, user, certain=True)

        for pair in parts.query.split("&"):
            key, _, value = pair.partition("=")
            if is_secret_name(key):
                self.add(name, value, certain=True)

    @property
    def count(self) -> int:
        """The number of hidden strings.

        Strings are never removed, so an unchanged number means unchanged strings.
        """
        return len(self._forms["any"])

    def found_in(self, text: str) -> list[str]:
        """Return the names of the secrets that prevent a string from being exported.

        These are the secrets in the string that are certain or look like tokens. Plain words from
        an environment do not count.
        """
        finder = self._finder("leaking")
        if finder is None:
            return []
        names = dict.fromkeys(span.name for span in finder.spans(text))
        return list(names)

    def mask(self, text: str) -> str:
        """Mask this instance's secrets in a string (`mask_own`), and replace bearer tokens with
        `[secret]`.
        """
        return _without_bearer(self.mask_own(text))

    def mask_own(self, text: str) -> str:
        """Replace every secret in a string, the longest first, with `[secret:NAME]`."""
        finder = self._finder("any")
        return text if finder is None else finder.replaced(text)

    def mask_start(self, text: str, limit: int) -> str:
        """Mask the first `limit` characters of a string that might be long.

        A secret that extends past the limit is masked as a whole, because the first part of a
        secret alone would not be recognised.
        """
        text = text[: limit + self._longest]
        finder = self._finder("any")
        end = limit
        if finder is not None:
            for span in finder.spans(text):
                if span.start < limit < span.end:
                    end = span.end

        return self.mask(text[:end])

    def redact(self, value: JSON) -> JSON:
        """Return a value without its certain secrets.

        If the value contains no secret, as is usual, this takes a single search.
        """
        finder = self._finder_in(value)
        return value if finder is None else _redacted(value, finder)

    def places(self, value: JSON) -> list[tuple[str, str]]:
        """Return (path, name) for every certain secret in a value, for example
        `("calls.0.text", "API_TOKEN")`. For a secret in a key, the path is the path of the
        enclosing object. If the value contains no secrets, this takes a single search.
        """
        finder = self._finder_in(value)
        if finder is None:
            return []
        places = dict.fromkeys(_places_in(value, "", finder))
        return list(places)

    def _finder(self, kind: _Kind) -> _Finder | None:
        finder = self._finders.get(kind)
        if finder is None and self._forms[kind]:
            finder = _Finder(self._forms[kind], self._is_escaped)
            self._finders[kind] = finder

        return finder

    def _finder_in(self, value: JSON) -> _Finder | None:
        """Return a finder for certain secrets if the value might contain one."""
        finder = self._finder("certain")
        if finder is not None and finder.is_in(encode(value)):
            return finder
        return None


def forms_of(value: str) -> list[str]:
    """Return the forms in which a secret can occur: plain, in hex and base64, and as it is written
    in JSON, HTML and addresses.

    When a longer text is encoded in base64, only some of the characters depend on the secret alone.
    The base64 forms consist of these characters.
    """
    forms = [
        value,
        quote(value, safe="", errors="replace"),
        quote(value, errors="replace"),
        unquote(value),
    ]
    if " " in value:
        # HTML forms encode spaces as `+`.
        forms.append(quote_plus(value, errors="replace"))

    data = value.encode("utf-8", "surrogatepass")
    json_text = _json_text(value)
    forms += [
        json.dumps(value)[1:-1],
        json_text,
        html.escape(value),
        # Some encoders of JSON escape slashes, too.
        json_text.replace("/", "\\/"),
        data.hex(),
        data.hex().upper(),
        *_base64_forms(data),
    ]
    return [form for form in dict.fromkeys(forms) if len(form) >= MIN_LENGTH]


def _json_text(text: str) -> str:
    """Return a string as JSON, without the quotes around it."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _base64_forms(data: bytes) -> Iterator[str]:
    """Yield the base64 forms of data inside a longer text, including the variant of base64 for
    addresses.
    """
    # Four characters encode three bytes, so the text before the data can shift it in three
    # different ways.
    for preceding in range(3):
        text = base64.b64encode(bytes(preceding) + data).decode()
        # Leave out the characters that also encode part of a neighbouring byte.
        first = math.ceil(8 * preceding / 6)
        end = 8 * (preceding + len(data)) // 6
        inner = text[first:end]
        if len(inner) >= _LEAST_BASE64:
            yield inner
            yield inner.replace("+", "-").replace("/", "_")


class _Span(NamedTuple):
    """The position of a secret in a string, and the name of the secret."""

    start: int
    end: int
    name: str


class _Finder:
    """Finds all forms of all secrets in one pass (Aho-Corasick).

    Args:
        names: the name of the secret, keyed by form.
        is_escaped: whether JSON escapes a character in any secret.
    """

    def __init__(self, names: Mapping[str, str], is_escaped: bool) -> None:
        # Import this only when it is needed, because it takes half a millisecond and most commands
        # do not need the library.
        from ahocorasick_rs import AhoCorasick, BytesAhoCorasick

        self._forms = [form for form in names if not _HALF.search(form)]
        self._names = names
        self._text = AhoCorasick(self._forms)
        # Values are searched as JSON, where quotes, backslashes and line endings are escaped.
        self._json = BytesAhoCorasick([_json_text(form).encode() for form in self._forms])
        self._plain = BytesAhoCorasick([form.encode() for form in self._forms])
        self._is_escaped = is_escaped
        self._percent: dict[str, re.Pattern[str]] = {}

    def is_in(self, data: bytes) -> bool:
        """Return whether a value, encoded as JSON, might contain a secret, so that each of its
        strings must be searched.
        """
        if self._json.find_matches_as_indexes(data):
            return True
        if rb"\n" in data:
            # The data might be base64 that is broken into lines.
            unwrapped = data.replace(rb"\r\n", b"").replace(rb"\n", b"")
            if self._json.find_matches_as_indexes(unwrapped):
                return True

        if _PERCENT.search(data) is None:
            return False
        # A JSON string with both escapes and percent-encoding cannot be searched in one pass, so
        # assume that it might contain a secret with escapes.
        return self._is_escaped or bool(self._plain.find_matches_as_indexes(_unquoted(data)))

    def spans(self, text: str) -> list[_Span]:
        """Return the positions of the secrets in a string, in order and without overlaps."""
        if not text.isascii():
            # Replace lone surrogates, because they cannot be encoded as UTF-8. No secret contains
            # them.
            text = _HALF.sub("\ufffd", text)

        spans = self._plain_spans(text)
        if "\n" in text and _WRAPPED.search(text):
            spans += self._unwrapped_spans(text)
        if "%" in text:
            spans += self._percent_spans(text)

        # Put the longest of the spans that begin at the same place first, so that its name is used.
        spans.sort(key=lambda span: (span.start, -span.end))
        merged: list[_Span] = []
        for span in spans:
            if merged and span.start < merged[-1].end:
                before = merged.pop()
                merged.append(_Span(before.start, max(before.end, span.end), before.name))
            else:
                merged.append(span)

        return merged

    def _plain_spans(self, text: str) -> list[_Span]:
        spans: list[_Span] = []
        for number, start, end in self._text.find_matches_as_indexes(text, overlapping=True):
            spans.append(_Span(start, end, self._names[self._forms[number]]))

        return spans

    def _unwrapped_spans(self, text: str) -> list[_Span]:
        """Search a string as if base64 in it had no line endings, and return the spans in the
        original string.
        """
        # The start of each piece, in the text without line endings and in the original text.
        starts = [0]
        original_starts = [0]
        pieces: list[str] = []
        for match in _WRAPPED.finditer(text):
            piece = text[original_starts[-1] : match.start()]
            pieces.append(piece)
            starts.append(starts[-1] + len(piece))
            original_starts.append(match.end())

        pieces.append(text[original_starts[-1] :])

        def original(position: int) -> int:
            piece = bisect_right(starts, position) - 1
            return original_starts[piece] + position - starts[piece]

        spans: list[_Span] = []
        for start, end, name in self._plain_spans("".join(pieces)):
            # Map the last character rather than the position after it, because that position can be
            # in the next piece.
            spans.append(_Span(original(start), original(end - 1) + 1, name))

        return spans

    def _percent_spans(self, text: str) -> list[_Span]:
        """Return the positions of secrets, even if some of their characters are percent-encoded."""
        data = text.encode()
        if _PERCENT.search(data) is None:
            return []

        matches = self._plain.find_matches_as_indexes(_unquoted(data), overlapping=True)
        forms = {self._forms[number] for number, _, _ in matches}
        spans: list[_Span] = []
        for form in forms:
            pattern = self._percent.get(form)
            if pattern is None:
                pattern = _percent_pattern(form)
                self._percent[form] = pattern

            for match in pattern.finditer(text):
                spans.append(_Span(match.start(), match.end(), self._names[form]))

        return spans

    def replaced(self, text: str) -> str:
        """Replace each secret in a string with `[secret:NAME]`."""
        parts: list[str] = []
        last = 0
        for span in self.spans(text):
            parts += [text[last : span.start], f"[secret:{span.name}]"]
            last = span.end

        return "".join([*parts, text[last:]])


def _unquoted(data: bytes) -> bytes:
    """Decode percent-encoding with the fast decoder for quoted-printable, which is the same format
    with `=` in place of `%`.
    """
    return binascii.a2b_qp(data.replace(b"=", b"=3D").replace(b"%", b"="))


def _percent_pattern(form: str) -> re.Pattern[str]:
    """Return a pattern that matches a string even if some of its characters are percent-encoded."""
    parts: list[str] = []
    for char in form:
        encoded = "".join(f"%{byte:02x}" for byte in char.encode())
        parts.append(f"(?:{re.escape(char)}|(?i:{encoded}))")
    return re.compile("".join(parts))


def everywhere_masked(text: str) -> str:
    """Mask bearer tokens and the secrets from all configurations in this process."""
    with _LOCK:
        live = list(_LIVE)

    for secrets in live:
        text = secrets.mask_own(text)

    return _without_bearer(text)


def _without_bearer(text: str) -> str:
    return _BEARER.sub(lambda match: f"{match.group(1)} [secret]", text)


def clean_record(record: logging.LogRecord) -> bool:
    """Remove secrets and terminal control characters from the message, traceback and stack of a log
    record.

    This function returns True, so a handler can use it as a filter.
    """
    try:
        message = record.getMessage()
    except Exception as error:  # noqa: BLE001 - as in `logging`, a wrong call of a logger must not fail
        message = f"{record.msg} (cannot be formatted: {type(error).__name__})"

    # The server's log groups similar records by their template, but never writes the template
    # itself.
    record.__dict__.setdefault("template", str(record.msg))
    record.msg = _clean(message)
    record.args = None
    if record.exc_info and not record.exc_text:
        record.exc_text = logging.Formatter().formatException(record.exc_info)

    if record.exc_text:
        # Some handlers format the exception themselves, so replace it with its masked text.
        record.exc_text = _clean(record.exc_text)
        record.exc_info = None

    if record.stack_info:
        record.stack_info = _clean(record.stack_info)

    return True


def _clean(text: str) -> str:
    return printable(everywhere_masked(text))


class _CleanRecords:
    """Creates log records without secrets for every handler, including handlers that are added
    later.
    """

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, *arguments: Any, **named: Any) -> logging.LogRecord:
        record = self._make(*arguments, **named)
        clean_record(record)
        return record


def clean_logs() -> None:
    """Remove secrets from all later log records in this process, at every level, including those
    from the SDK, HTTP libraries and asyncio.
    """
    make = logging.getLogRecordFactory()
    if not isinstance(make, _CleanRecords):
        logging.setLogRecordFactory(_CleanRecords(make))


def _places_in(value: JSON, path: str, finder: _Finder) -> Iterator[tuple[str, str]]:
    """Yield (path, name) for every secret in the value at `path`; see `Secrets.places`."""
    prefix = f"{path}." if path else ""
    if isinstance(value, str):
        for span in finder.spans(value):
            yield path, span.name
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _places_in(item, f"{prefix}{index}", finder)
    elif isinstance(value, dict):
        for key, item in value.items():
            for span in finder.spans(key):
                yield path, span.name

            # The path is shown, and its key can contain a secret.
            yield from _places_in(item, f"{prefix}{finder.replaced(key)}", finder)


def _redacted(value: JSON, finder: _Finder) -> JSON:
    if isinstance(value, str):
        return finder.replaced(value)
    if isinstance(value, list):
        return [_redacted(item, finder) for item in value]
    if isinstance(value, dict):
        return {finder.replaced(key): _redacted(item, finder) for key, item in value.items()}
    return value
