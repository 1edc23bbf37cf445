"""A program that is no MCP server: it writes its words and its environment to standard
error, and ends.
"""

from __future__ import annotations

import os
import sys

# The tests start this hundreds of times, and importing `json` takes nearly as long as starting
# Python, so import only the part of it that writes text.
from _json import encode_basestring_ascii

words = [encode_basestring_ascii(word) for word in sys.argv[1:]]
members = [
    f"{encode_basestring_ascii(name)}: {encode_basestring_ascii(value)}"
    for name, value in os.environ.items()
]
print(f"my words: [{', '.join(words)}]", file=sys.stderr)
print(f"my environment: {{{', '.join(members)}}}", file=sys.stderr)
sys.exit(1)
