"""The private names of the MCP SDK that this project uses; they are imported here alone.

The SDK publishes `Transport`, and not the types of the two streams that one opens. `tests/test_private_names.py`
reports which name is gone.
"""

from __future__ import annotations

from mcp.client._transport import ReadStream, TransportStreams, WriteStream

__all__ = ["ReadStream", "TransportStreams", "WriteStream"]
