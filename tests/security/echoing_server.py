"""A program that is no MCP server: it writes its words and its environment to standard
error, and ends.
"""

from __future__ import annotations

import json
import os
import sys

print("my words:", json.dumps(sys.argv[1:]), file=sys.stderr)
print("my environment:", json.dumps(dict(os.environ)), file=sys.stderr)
sys.exit(1)
