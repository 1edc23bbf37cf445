"""The private names of the MCP SDK that this project uses; they are imported here alone.

The SDK publishes `Transport`, and not the types of the two streams that one opens. It stops the
clock of a request that waits for a person in its own grant alone. `tests/test_private_names.py`
reports which name is gone.
"""

from __future__ import annotations

from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.shared._request_clock import waiting_on_a_person

__all__ = ["ReadStream", "TransportStreams", "WriteStream", "waiting_on_a_person"]
