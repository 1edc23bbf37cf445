"""What happens to runs when processes die or sleep."""

import sys

# These tests fork, stop and watch processes in the way that Linux allows.
collect_ignore = (
    [] if sys.platform == "linux" else ["test_kills.py", "test_leases.py", "test_groups.py"]
)
