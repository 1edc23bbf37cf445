"""The tests."""

import os
import sys

# The tests start hundreds of processes. If Python keeps no bytecode, as is common in containers,
# each process compiles all sources again, and each worker all tests. So let Python keep
# it in `__pycache__`, which git ignores. This must come before every other import, because pytest
# rewrites the assertions of Hypothesis, and keeps them only if this is set.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
