"""The tests."""

import os
import sys

# The tests start hundreds of processes. Where Python is told to keep no bytecode, as containers
# often do, each of them compiles all our sources again, and each worker all tests. It is kept in
# `__pycache__`, which git ignores. This comes before every other import: pytest rewrites the
# assertions of Hypothesis, and keeps what it has rewritten only if this is set.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
