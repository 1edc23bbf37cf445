"""preloaded_interpreter.py EXECUTABLE [-P] SCRIPT ARGUMENTS... or -m MODULE ARGUMENTS...:
what `preloaded.interpreter` runs in a forked process, whose `sys.executable` starts others
in the same way.
"""

import runpy
import sys
from pathlib import Path

sys.executable, *words = sys.argv[1:]
if words[0] == "-P":
    words = words[1:]
    sys.path.pop(0)
else:
    sys.path[0] = "" if words[0] == "-m" else str(Path(words[0]).parent)
if words[0] == "-m":
    sys.argv[:] = words[1:]
    runpy.run_module(words[1], run_name="__main__", alter_sys=True)
else:
    sys.argv[:] = words
    runpy.run_path(words[0], run_name="__main__")
