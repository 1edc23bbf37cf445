"""MCP servers of an office, which the photographed pages list: `python office_servers.py NAME`."""

from __future__ import annotations

import logging
import sys

from mcp.server import MCPServer
from mcp_types import ToolAnnotations

READS = ToolAnnotations(read_only_hint=True)
ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False)
DELETES = ToolAnnotations(read_only_hint=False, destructive_hint=True)

logger = logging.getLogger("office")


def calendar() -> MCPServer:
    server = MCPServer("Calendar", version="3.4.0")

    @server.tool(title="List events", annotations=READS)
    def list_events(day: str = "today") -> list[dict[str, str]]:
        """List the events of a day."""
        return [
            {"at": "09:30", "title": "Stand-up", "day": day},
            {"at": "13:00", "title": "Returns of the week", "day": day},
        ]

    @server.tool(title="Find free time", annotations=READS)
    def find_free_time(day: str, minutes: int = 30) -> list[str]:
        """Find the times of a day at which nothing is planned."""
        return ["10:00", "11:15", "15:30"]

    @server.tool(title="Add an event", annotations=ADDS)
    def add_event(title: str, day: str, at: str = "10:00") -> str:
        """Add an event to the calendar."""
        return f"Added {title} on {day} at {at}."

    return server


def notes() -> MCPServer:
    server = MCPServer("Notes", version="1.12.1")

    @server.tool(title="List notes", annotations=READS)
    def list_notes() -> list[dict[str, str]]:
        """List the notes, newest first."""
        logger.warning("2 notes have no title")
        return [{"title": "Late deliveries"}, {"title": "Ideas for the newsletter"}]

    @server.tool(title="Read a note", annotations=READS)
    def read_note(title: str) -> str:
        """Read the text of a note."""
        return f"{title}: two orders are late since Monday."

    @server.tool(title="Add a note", annotations=ADDS)
    def add_note(title: str, text: str) -> str:
        """Add a note to the notebook."""
        return f"Added {title}."

    @server.tool(title="Delete a note", annotations=DELETES)
    def delete_note(title: str) -> str:
        """Delete a note for good."""
        return f"Deleted {title}."

    return server


def mail() -> MCPServer:
    server = MCPServer("Mail", version="0.9.2")

    @server.tool(title="Search mail", annotations=READS)
    def search_mail(words: str, most: int = 10) -> list[dict[str, str]]:
        """Search the mail for words."""
        return [{"from": "jonas.weber@example.org", "subject": "Where is my shelf?"}]

    @server.tool(title="Send a mail")
    def send_mail(to: str, subject: str, text: str) -> str:
        """Send a mail to one person."""
        return f"Sent {subject} to {to}."

    return server


SERVERS = {"calendar": calendar, "notes": notes, "mail": mail}


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    SERVERS[sys.argv[1]]().run("stdio")
