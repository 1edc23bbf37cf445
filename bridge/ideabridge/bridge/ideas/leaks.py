"""Leaks: secrets in what is about to leave the store. They are found by their shape, wherever they stand.

The shapes are those that the makers of the tokens chose so that they can be found; what has no shape is found only
where it is configured here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from ideabridge.bridge.ideas.errors import SecretInIdeaError
from ideabridge.tools.encoding import JSON, JSONObject

Known: TypeAlias = Callable[[str], Sequence[str]]
"""The names of the configured secrets that occur in a text."""

_NAMED: Final = 10

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
_EACH: Final = {what: re.compile(f"(?<![A-Za-z0-9_])(?:{shape})") for what, shape in _SHAPES.items()}


def shapes_in(text: str) -> list[str]:
    """What kinds of secrets a text holds, by their shapes."""
    if _ANY.search(text) is None:
        return []
    return [what for what, pattern in _EACH.items() if pattern.search(text)]


def check_leaks(document: JSONObject, known: Known | None = None) -> None:
    """Refuse a document that holds a secret.

    Args:
        document: what is about to leave.
        known: finds the configured ones.

    Raises:
        SecretInIdeaError: names every place and what stands there, never the secret.
    """
    found: dict[str, None] = {}
    for path, text in _texts(document, ""):
        what = [*shapes_in(text), *(f"the secret {name}" for name in (known(text) if known is not None else ()))]
        if what:
            # The key itself may be what must not be told.
            found[f"{path}: {', '.join(what)}"] = None
    if not found:
        return
    places = list(found)
    shown = "\n".join([*places[:_NAMED], *([f"and {len(places) - _NAMED} more"] if len(places) > _NAMED else [])])
    raise SecretInIdeaError(
        "it holds secrets, so it is not given away. An idea is never changed: make it again with the secret in the"
        f" configuration of its module, or as an input that is given at each call.\n{shown}"
    )


def _texts(value: JSON, path: str) -> Iterator[tuple[str, str]]:
    stack: list[tuple[str, JSON]] = [(path, value)]
    while stack:
        where, item = stack.pop()
        if isinstance(item, str):
            yield where, item
        elif isinstance(item, list):
            stack.extend((f"{where}.{index}", inner) for index, inner in reversed(list(enumerate(item))))
        elif isinstance(item, dict):
            for number, (key, inner) in enumerate(reversed(list(item.items()))):
                clean = len(key) <= 64 and key.isprintable() and not shapes_in(key)
                yield f"{where or 'the document'}, a key", key
                shown = key if clean else f"({len(item) - 1 - number})"
                stack.append((f"{where}.{shown}" if where else shown, inner))
