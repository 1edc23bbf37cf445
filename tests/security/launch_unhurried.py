"""Serve a configuration file, and take every declined form for one that nobody was shown: however
slow this machine is, a client that declines by itself is found out.
"""

import runpy
from pathlib import Path

from ideabridge.server.asking import elicitation

setattr(elicitation, "AT_ONCE_S", 3600.0)  # noqa: B010 - it is Final

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).parent.parent / "server" / "launch.py"), run_name="__main__")
