"""Import the private names of the MCP SDK that this project uses. No other file imports them.

The SDK publishes `Transport`, but not the types of the two streams that a transport opens. While a
request is waiting for a person, the SDK stops the clock of the request only if the wait is part of
the SDK's own authorization grant. `tests/test_private_names.py` reports a name that no longer
exists.
"""

from __future__ import annotations

from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.shared._request_clock import waiting_on_a_person

__all__ = ["ReadStream", "TransportStreams", "WriteStream", "waiting_on_a_person"]
