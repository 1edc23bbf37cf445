"""limited.py DESCRIPTORS CONFIGURATION PORT: what `tests/server/launch.py` does, with so many
descriptors at most.
"""

import os
import resource
import runpy
import sys
from pathlib import Path

most = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
print("process", os.getpid(), file=sys.stderr, flush=True)
sys.argv[0] = str(Path(__file__).parent.parent / "server" / "launch.py")
runpy.run_path(sys.argv[0], run_name="__main__")
