"""Give the programs that ask for runs the names that people know them by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.loop.event import LOCAL_USER, Decider
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.server.hosts.table import HOSTS
from ideabridge.server.ui.access import PAGE_CLIENT

_VERSION: Final = re.compile(r"(.*\S) +([0-9]\S*)", re.DOTALL)
"""A program's name, followed by its version. `RunFilter.askers` separates them in the same way."""

_PROGRAMS: Final = {
    "claude-ai": "claude-desktop",
    "codex-mcp-client": "codex",
    "cursor-vscode": "cursor",
    "gemini-cli-mcp-client": "gemini-cli",
    "visual studio code": "vscode",
    "visual studio code - insiders": "vscode",
    "windsurf-client": "windsurf",
}
"""The host of each program, keyed by the name that the program reports, in lower case. The programs
of other hosts report a name or a title from the table of hosts.
"""

_TERMINALS: Final = frozenset(
    {
        "amazon-q",
        "claude-code",
        "codex",
        "copilot-cli",
        "crush",
        "gemini-cli",
        "goose",
        "opencode",
        "qwen-code",
        "warp",
    }
)
_CHATS: Final = frozenset({"claude-desktop", "lm-studio"})
"""The hosts that run in a terminal, and those with a window for a conversation. All others are
editors or parts of editors.
"""

THIS_PAGE: Final = "this page"
"""The name of the page as a program that asks for runs."""

_ON_PAGE: Final = str(Decider("person", "page", LOCAL_USER))
_USER_ON_PAGE: Final = re.compile(rf"{_ON_PAGE} \(([^()]*)\)")
"""Matches the journal's phrases for someone who decided on the page."""


@dataclass(frozen=True, slots=True)
class AskingProgram:
    """A program that asks for runs. The program reports its name itself, so the name proves
    nothing.

    Attributes:
        name: the name that people know the program by.
        version: the version that the program reports, or "".
    """

    name: str
    version: str = ""

    @property
    def is_page(self) -> bool:
        """True if a person asked on the page."""
        return self.name == THIS_PAGE

    @classmethod
    def of(cls, client: str) -> AskingProgram | None:
        """Return the program with the name and version in `client`, or None if `client` is
        empty.
        """
        if not client:
            return None

        named = _VERSION.fullmatch(client)
        if named is None:
            return cls(_known_name(client))
        return cls(_known_name(named[1]), named[2])

    @classmethod
    def of_run(cls, record: RunRecord) -> AskingProgram | None:
        """Return the program that asked for a run, or the host that the run was imported from.
        Return None if both are unknown.
        """
        origin = record.summary.origin
        return cls.of(record.client or origin.host or origin.client)


def kind_of_assistant(name: str) -> str:
    """Return where people use the program with the given name: `terminal`, `chat`, `editor`, or
    `agent` if unknown.
    """
    host = next((host.name for host in HOSTS if host.title == name), None)
    if host is None:
        return "agent"
    if host in _TERMINALS:
        return "terminal"
    return "chat" if host in _CHATS else "editor"


def names_given_by(name: str) -> tuple[str, ...]:
    """Return the names that programs report if people know them by the given name."""
    if name == THIS_PAGE:
        return (PAGE_CLIENT,)
    host = next((host for host in HOSTS if host.title == name), None)
    if host is None:
        return (name,)
    programs = [program for program, hosted in _PROGRAMS.items() if hosted == host.name]
    return (host.title, host.name, *programs)


def deciders_as_read_by(reader: str, text: str) -> str:
    """Return a text about deciders, rephrased for a visitor of the page: the visitor becomes "you",
    and other users of the page are called by name.

    Args:
        reader: the name of the visitor.
        text: a text with phrases from `decider_text`.
    """

    def named(phrase: re.Match[str]) -> str:
        return "you" if phrase[1] == reader else f"{phrase[1]} on this page"

    text = _USER_ON_PAGE.sub(named, text)
    local = "you" if reader == LOCAL_USER else "the owner on this page"
    return text.replace(_ON_PAGE, local)


def _known_name(program: str) -> str:
    """Return the name that people know a program by, or the name that it reports if there is no
    other.
    """
    if program == PAGE_CLIENT:
        return THIS_PAGE
    lower = program.lower()
    name = _PROGRAMS.get(lower, lower)
    for host in HOSTS:
        if name in (host.name, host.title.lower()):
            return host.title
    return program
