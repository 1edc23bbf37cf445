"""Find the secrets in a server's entry and replace them with `${secret:NAME}`.

`masking.py` finds the places of secrets. It hides too much rather than too little, because hiding a
word costs nothing. Moving a value out of an entry costs more: a region, a model or a tenant's name
in the keyring is a nuisance. Therefore, this file does not move values that merely might be
secrets. If a person has decided about a value (`chosen`), the decision takes precedence over these
rules.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final, Literal

from ideabridge.bridge.masking import (
    MASK,
    Evidence,
    HiddenText,
    is_known_token,
    looks_random,
    replaced_in,
)
from ideabridge.bridge.secrets import NAME_PATTERN
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.json_parts import map_strings

_LEAST_LENGTH: Final = 4
"""Minimum length of a secret, in characters."""

_REFERENCE: Final = re.compile(rf"\$\{{secret:({NAME_PATTERN})\}}")
_MOST_NAME: Final = 100
_MOST_PLACEHOLDER: Final = 200
"""The number of characters of a value that are searched for the words of a placeholder."""


_CERTAIN_NAME: Final = re.compile(
    r"token|secret|passw|pwd|passphrase|api[-_]?key|access[-_]?key|private[-_]?key"
    r"|signing[-_]?key|encryption[-_]?key|service[-_]?key|account[-_]?key"
    r"|credential|bearer|authorization|(^|[-_.])(pat|pass|pw|pin|jwt|creds?|key|sig|code)$",
    re.IGNORECASE,
)
"""Names whose values are always secret, no matter what they look like. `AUTH` and `SESSION` are not
included, because they also name modes and people.
"""

_ABOUT_NAME: Final = re.compile(
    r"public|publishable|author(?!i)|tokeni[sz]er|(^|[-_])(max|min|num|limit|count|budget)[-_]?\w*tokens?$"
    r"|[-_](name|url|uri|file|path|dir|host|port|region|ttl|limit|count|length|size|days|hours"
    r"|minutes|seconds|expiry|expires|expiration|timeout|budget|prefix|suffix|scopes?|issuer"
    r"|endpoint|label|header|format|version|location|store|ref|policy|audience|enabled|required"
    r"|env|var|env[-_]var)$",
    re.IGNORECASE,
)
"""Names that describe a secret without holding it, such as `TOKEN_URL`."""

_CREDENTIAL_HEADER: Final = re.compile(
    r"auth|cookie|token|secret|key$|passw|credential|signature|session", re.IGNORECASE
)
_CHECKSUM_NAME: Final = re.compile(
    r"sha|commit|digest|hash|checksum|revision|version|uuid|trace|(^|[-_])id$", re.IGNORECASE
)
_PLACEHOLDER: Final = re.compile(
    # Other kinds of variables, and references to a vault.
    r"<.*>|\[.*\]|\{.*\}|\(.*\)|%\w+%|\$\w+|\$\(.*\)|(?:op|vault|keychain|env|file|aws|gcp):.*"
    # An ellipsis in place of the secret, as in `sk-...`.
    r"|.*(?:\.\.\.|…|\*\*\*|xxxx).*|(?:.*[-_])?your[-_].*|.*[-_]here"
    # Names such as `your-api-key-here` and `MY_TOKEN`.
    r"|(?:(?:your|my|our|insert|replace|enter|add|put|paste|set|the|some|any|own|real|actual|valid"
    r"|api|access|secret|private|bearer|auth|bot|user|personal|client|db)[-_ ]*)*"
    r"(?:key|token|secret|password|passwd|pass|pwd|pat|credentials?|value)(?:[-_ ]*here)?"
    r"|(?:your|insert|replace|enter|put|paste)[-_ ].*|change[-_ ]?(?:me|this|it)|replace[-_ ]?me"
    r"|todo|fixme|tbd|xxx|example|sample|dummy|placeholder|redacted|hidden|test|demo|foo|bar"
    # Modes that are written where a secret would be.
    r"|none|null|undefined|empty|n/a|basic|bearer|oauth2?|jwt|api[-_]?key|anonymous|optional"
    r"|required|true|false|auto|disabled|enabled",
    re.IGNORECASE,
)
"""Values that say where to put a secret, or that the secret is stored elsewhere."""

_WEAK_PREFIX: Final = re.compile(r"(?:key-|secret_|pat-|sk-(?!ant-|proj-|or-|svcacct-))(.*)")
Recognised = Evidence | Literal["chosen"]
"""The evidence that a value is a secret: see `Evidence`. chosen: a person has said that it is a
secret.
"""

_SAYS: Final[dict[Recognised, str]] = {
    "name": "its name",
    "header": "the header",
    "address": "its place in an address",
    "form": "the form of a known kind of token",
    "random": "it looks random",
    "chosen": "you chose it",
}

_NOTHING_CHOSEN: Final[Mapping[str, bool]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SecretPlace:
    """A secret in an entry.

    Attributes:
        place: where the secret is in the entry, for example `env.TOKEN` or `args.2`.
        name: the suggested name of the stored secret. Equal values in an entry share a name.
        evidence: how the secret was recognised.
        value: the secret.
    """

    place: str
    name: str
    evidence: Recognised
    value: str = field(repr=False)

    @property
    def why(self) -> str:
        """A description of the evidence, for users."""
        return _SAYS[self.evidence]


@dataclass(frozen=True, slots=True)
class RecognisedSecrets:
    """An entry without its secrets.

    Attributes:
        entry: the entry, with `${secret:NAME}` in place of each secret in `places`. Putting the
            secrets back into their places restores the original entry.
        places: the secrets, in the order of the entry.
        left: the places of the secrets that are still in `entry`, because something might execute
            them or the text around them would have to be escaped.
    """

    entry: JSONObject
    places: tuple[SecretPlace, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def values(self) -> dict[str, str]:
        """The secrets, keyed by suggested name."""
        return {place.name: place.value for place in self.places}


def recognise_secrets(
    server: str,
    entry: JSONObject,
    taken: Collection[str] = (),
    chosen: Mapping[str, bool] = _NOTHING_CHOSEN,
) -> RecognisedSecrets:
    """Find the secrets in a server's entry. Values that name a variable or a stored secret stay
    unchanged.

    Args:
        server: the name of the server. The suggested names begin with it.
        entry: the entry, with ideabridge's keys.
        taken: names that other secrets already use.
        chosen: a person's decisions, keyed by place, such as `env.TENANT`. False means that the
            value in this place contains no secret. True means that the whole value, which belongs
            to a variable or a header, is a secret.
    """
    recogniser = _Recogniser(server, taken, chosen)
    marked = replaced_in(entry, recogniser.replacement)
    return recogniser.finished(recogniser.with_chosen(marked))


def secret_names_in(value: JSON) -> set[str]:
    """Return the names of the stored secrets that a JSON value refers to."""
    return set(_REFERENCE.findall(json.dumps(value)))


def with_secret_values(entry: JSONObject, values: Mapping[str, str]) -> JSONObject:
    """Return an entry with values in place of `${secret:NAME}`. A name without a value stays
    unchanged.
    """

    def value_of(match: re.Match[str]) -> str:
        return values.get(match.group(1), match.group())

    return object_or_empty(map_strings(entry, partial(_REFERENCE.sub, value_of)))


class _Recogniser:
    """Collects the secrets of one entry.

    Until the entry is complete, each secret is replaced by a mark, because `${secret:NAME}` could
    itself look like a secret.
    """

    def __init__(self, server: str, taken: Collection[str], chosen: Mapping[str, bool]) -> None:
        self._server = server
        self._taken = set(taken)
        self._chosen = chosen
        self._nonce = secrets.token_hex(4)
        self._places: list[SecretPlace] = []
        self._left: list[str] = []
        self._names: dict[str, str] = {}

    def replacement(self, hidden: HiddenText) -> str | None:
        """Return the mark for a secret, or None for a string that stays in the entry."""
        if self._chosen.get(hidden.place) is False or not _is_secret(hidden):
            return None
        if hidden.may_be_command or (not hidden.is_whole and _needs_escapes(hidden.text)):
            self._left.append(hidden.place)
            return None

        return self._mark(hidden, "form" if is_known_token(hidden.text) else hidden.evidence)

    def _mark(self, hidden: HiddenText, evidence: Recognised) -> str:
        """Record a secret, and return the mark that replaces it."""
        name = self._name(hidden)
        self._places.append(SecretPlace(hidden.place, name, evidence, hidden.text))
        return f"{MASK}{self._nonce}:{len(self._places) - 1}{MASK}"

    def with_chosen(self, marked: JSONObject) -> JSONObject:
        """Return an entry in which marks also replace values that are secret only by a person's
        decision.
        """
        recognised = {place.place for place in self._places}
        result = dict(marked)
        for part in ("env", "headers"):
            members = object_or_empty(marked.get(part))
            for name, value in members.items():
                place = f"{part}.{name}"
                if self._chosen.get(place) is not True or place in recognised:
                    continue
                if isinstance(value, str) and value and "${" not in value:
                    whole = HiddenText(place, value, name=name, is_whole=True)
                    members = {**members, name: self._mark(whole, "chosen")}

            if members:
                result[part] = members

        return result

    def finished(self, marked: JSONObject) -> RecognisedSecrets:
        """Return the result, with the names of the secrets in place of the marks."""
        mark = re.compile(f"{MASK}{self._nonce}:([0-9]+){MASK}")

        def name_of(match: re.Match[str]) -> str:
            return f"${{secret:{self._places[int(match.group(1))].name}}}"

        entry = object_or_empty(map_strings(marked, partial(mark.sub, name_of)))
        return RecognisedSecrets(entry, tuple(self._places), tuple(dict.fromkeys(self._left)))

    def _name(self, hidden: HiddenText) -> str:
        """Return a name for a secret that no other value in the entry uses."""
        if hidden.text in self._names:
            return self._names[hidden.text]

        wanted = _suggested(self._server, hidden)
        name = wanted
        number = 2
        while name in self._taken:
            name = f"{wanted}-{number}"
            number += 1

        self._taken.add(name)
        self._names[hidden.text] = name
        return name


def _is_secret(hidden: HiddenText) -> bool:
    text = hidden.text.strip()
    if len(text) < _LEAST_LENGTH or _PLACEHOLDER.fullmatch(text[:_MOST_PLACEHOLDER]):
        return False
    if _is_form(text):
        return True

    name = hidden.name.lstrip("-")
    match hidden.evidence:
        case "address":
            return True
        case "header":
            return _CREDENTIAL_HEADER.search(name) is not None or looks_random(text)
        case "name":
            return _is_secret_by_name(name, text)
        case "form":
            return False
        case "random":
            return looks_random(text) and not (
                _CHECKSUM_NAME.search(name) and re.fullmatch(r"[0-9a-fA-F-]+", text)
            )


def _is_secret_by_name(name: str, text: str) -> bool:
    if _ABOUT_NAME.search(name):
        return False
    if _CERTAIN_NAME.search(name):
        # A number under a name such as `MAX_TOKENS` is a count rather than a secret.
        return not (name.lower().endswith("tokens") and text.isdigit())
    return looks_random(text) or (
        len(text) >= 16 and " " not in text and any(map(str.isdigit, text))
    )


def _is_form(text: str) -> bool:
    """Return whether a string has the format of a known kind of token.

    A prefix that also begins ordinary words, such as `key-`, must be followed by a part that looks
    random.
    """
    if not is_known_token(text):
        return False
    weak = _WEAK_PREFIX.fullmatch(text)
    if weak is None:
        return True
    return any(
        re.fullmatch(r"(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9]{12,}", part) is not None
        for part in re.split(r"[-_.]", weak.group(1))
    )


def _needs_escapes(text: str) -> bool:
    """Return whether JSON must escape characters in a string."""
    return json.dumps(text, ensure_ascii=False)[1:-1] != text


def _suggested(server: str, hidden: HiddenText) -> str:
    """Return a name such as `github-token` for a secret."""
    field_name = hidden.name.lstrip("-") or hidden.place.rpartition(".")[2]
    if field_name.isdigit() or field_name in ("url", "command", "cwd", "path", "user"):
        field_name = "token"
    if field_name.lower() in ("k", "h"):
        field_name = "key"

    owner = _slug(server)
    own = _slug(field_name)
    if not owner or own == owner or own.startswith(f"{owner}-"):
        name = own
    else:
        name = f"{owner}-{own}"
    return name[:_MOST_NAME].strip("-") or "secret"


def _slug(text: str) -> str:
    """Return a string converted to lower-case letters, digits and hyphens."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", text)
    return re.sub(r"[^a-z0-9]+", "-", spaced.lower()).strip("-")
