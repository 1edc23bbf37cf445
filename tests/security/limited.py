"""limited.py DESCRIPTORS SCRIPT ARGUMENTS...: run a script with so many descriptors at most."""

import resource
import runpy
import sys

most = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
