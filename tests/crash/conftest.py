"""What happens to runs when processes die or sleep."""

import sys

# Processes are forked, stopped and watched as Linux lets one do it.
collect_ignore = (
    [] if sys.platform == "linux" else ["test_kills.py", "test_leases.py", "test_groups.py"]
)
