"""The private names of the MCP SDK that this project uses. They are imported only here.

The SDK publishes `Transport`, but not the types of the two streams that a transport opens. It stops
the clock of a request that waits for a person only during its own authorization grant.
`tests/test_private_names.py` reports a name that is gone.
"""

from __future__ import annotations

from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.shared._request_clock import waiting_on_a_person

__all__ = ["ReadStream", "TransportStreams", "WriteStream", "waiting_on_a_person"]
