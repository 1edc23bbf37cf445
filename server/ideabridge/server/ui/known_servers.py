"""The servers that people can choose from on the page, so that they do not have to know commands or
addresses by heart.

Each entry fills in the form for a new server according to the publisher's documentation. The form
is then treated like one that a person filled in: nothing is started or written before the person
has seen the whole command or address.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ideabridge.server.hosts.entries import missing_program
from ideabridge.server.ui.access import FormFields
from ideabridge.server.ui.typed_server import FieldError
from ideabridge.tools.encoding import JSONObject

_MCP_PROJECT: Final = "the Model Context Protocol project"

_PACKAGES: Final = {"npx": "Node.js", "uvx": "uv"}
"""What to install to get each program that starts a known server."""


@dataclass(frozen=True, slots=True)
class KnownServer:
    """A server that the page offers.

    Attributes:
        name: the name that the form suggests. It also identifies the entry in the page's address.
        title: what the server gives access to.
        offers: a sentence that says what its tools do.
        publisher: who publishes the server.
        icon: the name of an icon in `parts.html`.
        command: the words of the command that starts the server, or none if it has an address.
        address: the server's address, or "" if it has a command.
        folder: the question that asks for the folder whose path ends the command, or "".
    """

    name: str
    title: str
    offers: str
    publisher: str
    icon: str
    command: tuple[str, ...] = ()
    address: str = ""
    folder: str = ""

    @property
    def needs(self) -> str:
        """What must be installed before the server can start, or ""."""
        entry: JSONObject = {"command": self.command[0]} if self.command else {}
        missing = missing_program(entry)
        return "" if missing is None else _PACKAGES[missing]

    def form(self, taken: Container[str]) -> FormFields:
        """Return the filled-in form for a new server. If the name is taken, the form suggests the
        name with a number appended.
        """
        start = ("command", " ".join(self.command))
        if self.address:
            start = ("address", self.address)

        name = self.name
        number = 1
        while name in taken:
            number += 1
            name = f"{self.name}{number}"
        return FormFields([("start", self.name), ("name", name), ("kind", start[0]), start])


KNOWN_SERVERS: Final = (
    KnownServer(
        name="filesystem",
        title="Files in a folder",
        offers="Reads, searches and changes the files of one folder.",
        publisher=_MCP_PROJECT,
        icon="workspace",
        command=("npx", "-y", "@modelcontextprotocol/server-filesystem"),
        folder="Which folder?",
    ),
    KnownServer(
        name="fetch",
        title="Web pages",
        offers="Reads pages as text, also those of your own network.",
        publisher=_MCP_PROJECT,
        icon="web",
        command=("uvx", "mcp-server-fetch"),
    ),
    KnownServer(
        name="git",
        title="A Git repository",
        offers="Shows its history and changes, and commits.",
        publisher=_MCP_PROJECT,
        icon="branch",
        command=("uvx", "mcp-server-git", "--repository"),
        folder="Which folder has the repository?",
    ),
    KnownServer(
        name="memory",
        title="Memory",
        offers="Keeps facts from one conversation to the next.",
        publisher=_MCP_PROJECT,
        icon="bookmark",
        command=("npx", "-y", "@modelcontextprotocol/server-memory"),
    ),
    KnownServer(
        name="time",
        title="Time",
        offers="Tells the time, and converts it between time zones.",
        publisher=_MCP_PROJECT,
        icon="clock",
        command=("uvx", "mcp-server-time"),
    ),
    KnownServer(
        name="notion",
        title="Notion",
        offers="Searches, reads and changes the pages of your workspace.",
        publisher="Notion",
        icon="document",
        address="https://mcp.notion.com/mcp",
    ),
    KnownServer(
        name="linear",
        title="Linear",
        offers="Finds, creates and updates issues and projects.",
        publisher="Linear",
        icon="task",
        address="https://mcp.linear.app/mcp",
    ),
    KnownServer(
        name="sentry",
        title="Sentry",
        offers="Shows the errors of your applications and their details.",
        publisher="Sentry",
        icon="refused",
        address="https://mcp.sentry.dev/mcp",
    ),
)


def known_server(name: str) -> KnownServer | None:
    """Return the known server with this name, or None if the name is unknown."""
    return next((known for known in KNOWN_SERVERS if known.name == name), None)


def folder_of(form: FormFields) -> str:
    """Return the absolute path of the folder typed into the form of a known server. This function
    blocks.

    Raises:
        FieldError: the path is not absolute, or this computer has no such folder.
    """
    typed = form.get("folder").strip()
    try:
        folder = Path(typed).expanduser()
    except RuntimeError:  # There is no such user.
        folder = Path(typed)
    if not folder.is_absolute():
        raise FieldError("folder", "write the whole path of the folder, for example ~/Documents")
    if not folder.is_dir():
        raise FieldError("folder", "this computer has no such folder")
    return str(folder)
