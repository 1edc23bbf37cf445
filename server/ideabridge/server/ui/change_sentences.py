"""Describe in sentences what a change to the configuration did."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ideabridge.bridge.store.configuration_log import LoggedChange

_OF_SERVER: Final = re.compile(r"server (?P<name>\S+): (?P<past>[a-z ]+)")
"""Matches a line of `ConfigurationChange.lines` about a server."""


def change_sentences(change: LoggedChange) -> list[str]:
    """Return what a change did, such as `Servers mail and notes were added`, or why it has no
    effect.
    """
    if change.status == "withheld":
        return list(change.lines)

    servers: dict[str, list[str]] = {}
    others: list[str] = []
    for line in change.lines:
        of_server = _OF_SERVER.fullmatch(line)
        if of_server is None:
            others.append(_other_sentence(line))
        else:
            servers.setdefault(of_server["past"], []).append(of_server["name"])

    return [_server_sentence(names, past) for past, names in servers.items()] + others


def _server_sentence(names: Sequence[str], past: str) -> str:
    if len(names) == 1:
        return f"Server {names[0]} was {past}"
    return f"Servers {', '.join(names[:-1])} and {names[-1]} were {past}"


def _other_sentence(line: str) -> str:
    """Return a sentence for a line about a setting or a tool file."""
    what, _, how = line.partition(": ")
    if what.startswith("tool file "):
        path = what.removeprefix("tool file ")
        return f"Tool file {path} was {how or 'added or removed'}"
    return f"Setting {what} {how}" if how else line
