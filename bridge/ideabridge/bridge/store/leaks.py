"""Find secrets in documents that leave the store.

Secrets are recognised by their form anywhere in a document, because issuers give many tokens a
recognisable form. A secret without such a form is found only if it is in the configuration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from ideabridge.bridge.store.errors import SecretInIdeaError
from ideabridge.tools.encoding import JSON, JSONObject

FindSecrets: TypeAlias = Callable[[str], Sequence[str]]
"""A function that returns the names of the configured secrets that occur in a string."""

_MOST_LISTED: Final = 10
"""The maximum number of places that an error lists."""

_SHAPES: Final = {
    "a GitHub token": r"gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,}",
    "a GitLab token": r"gl(?:pat|dt|rt|cbt|ptt|ft|soat)-[A-Za-z0-9_-]{20,}",
    "a Slack token": r"xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{10,}",
    "a Slack webhook": r"https://hooks\.slack\.com/services/[A-Za-z0-9/]{20,}",
    "an AWS access key": r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}",
    "a Google API key": r"AIza[A-Za-z0-9_-]{35}",
    "a Google OAuth token": r"ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,}",
    "a token of an ideabridge user": r"ibt_[0-9a-f]{12}_[A-Za-z0-9_-]{43}",
    "an Anthropic key": r"sk-ant-[A-Za-z0-9_-]{20,}",
    "an OpenAI key": r"sk-(?=[A-Za-z0-9_-]*[0-9])(?=[a-z0-9_-]*[A-Z])[A-Za-z0-9_-]{20,}",
    "a Stripe key": r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9]{24,}",
    "an npm token": r"npm_[A-Za-z0-9]{36}",
    "a PyPI token": r"pypi-[A-Za-z0-9_-]{50,}",
    "a Hugging Face token": r"hf_[A-Za-z0-9]{30,}",
    "a SendGrid key": r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    "a DigitalOcean token": r"do[opr]_v1_[a-f0-9]{64}",
    "a Telegram bot token": r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",
    "a JSON Web Token": r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "a private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----",
    "credentials in an address": r"[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"'<>\[\]]{1,100}:[^\s/:@\"'<>\[\]]{3,200}@[A-Za-z0-9.-]+",
    "a bearer token": r"[Bb]earer\s+(?=\S*[0-9])[A-Za-z0-9._~+/-]{20,}=*",
}
_ANY: Final = re.compile("|".join(f"(?<![A-Za-z0-9_])(?:{shape})" for shape in _SHAPES.values()))
_EACH: Final = {
    kind: re.compile(f"(?<![A-Za-z0-9_])(?:{shape})") for kind, shape in _SHAPES.items()
}


def shapes_in(text: str) -> list[str]:
    """Return the kinds of secrets in a string that can be recognised by their form."""
    if _ANY.search(text) is None:
        return []
    return [kind for kind, pattern in _EACH.items() if pattern.search(text)]


def check_leaks(document: JSONObject, find_secrets: FindSecrets | None = None) -> None:
    """Raise an error if a document contains a secret.

    Args:
        document: the document to export.
        find_secrets: finds the configured secrets.

    Raises:
        SecretInIdeaError: the document contains a secret. The message gives the place and the kind
            of each secret, but not the secret itself.
    """
    # Leave out keys that might themselves be secrets, even though two places can then have the same
    # name.
    places: dict[str, None] = {}
    for path, text in _texts(document):
        secrets = shapes_in(text)
        if find_secrets is not None:
            secrets += [f"the secret {name}" for name in find_secrets(text)]
        if secrets:
            places[f"{path}: {', '.join(secrets)}"] = None

    if not places:
        return

    lines = [*places][:_MOST_LISTED]
    if len(places) > _MOST_LISTED:
        lines.append(f"and {len(places) - _MOST_LISTED} more")

    listed = "\n".join(lines)
    raise SecretInIdeaError(
        "it contains secrets, so it is not exported. An idea never changes: create it again with "
        "the secret in the configuration of its server, or as an input that each call "
        f"passes.\n{listed}"
    )


def _texts(document: JSON) -> Iterator[tuple[str, str]]:
    """Yield `(place, text)` for each string and key in a document, in order. `place` never contains
    a key that might be a secret.
    """
    stack: list[tuple[str, JSON]] = [("", document)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, str):
            yield path, item
        elif isinstance(item, list):
            members = [(f"{path}.{index}", member) for index, member in enumerate(item)]
            stack.extend(reversed(members))
        elif isinstance(item, dict):
            for number, (key, member) in enumerate(reversed(list(item.items()))):
                yield f"{path or 'the document'}, a key", key
                is_harmless = len(key) <= 64 and key.isprintable() and not shapes_in(key)
                name = key if is_harmless else f"({len(item) - 1 - number})"
                stack.append((f"{path}.{name}" if path else name, member))
