"""preloaded_demo.py INTERPRETER: the demo of a cluster, whose processes are all forked.

INTERPRETER is that of `preloaded.interpreter`.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parents[2]))
from examples.cluster import demo

from tests.members import PreloadedMember

# The demo kills the worker that drives the run, and finds it by its process id.
demo.Member = PreloadedMember  # pyright: ignore[reportPrivateImportUsage]
sys.executable = sys.argv[1]
sys.exit(demo.main())
