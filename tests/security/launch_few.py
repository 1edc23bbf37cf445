"""Serve a configuration file, and let one caller hold few things of each kind: to take 200 of them
takes a second.
"""

import runpy
from pathlib import Path

from ideabridge.server import announcements, server
from ideabridge.server.transports import gate, http

MOST = 20

if __name__ == "__main__":
    for module, name in (
        (announcements, "_MOST_LISTENERS"),
        (gate, "_MOST_STREAMS"),
        (http, "_MOST_SESSIONS"),
        (server, "MOST_RUNS"),
    ):
        assert hasattr(module, name)
        setattr(module, name, MOST)

    runpy.run_path(str(Path(__file__).parent.parent / "server" / "launch.py"), run_name="__main__")
