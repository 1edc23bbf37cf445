"""Serve a configuration file: what `ideabridge serve` does, without its command line.

launch.py CONFIGURATION [PORT]: over stdio, or over HTTP on loopback.
"""

import sys
from functools import partial
from pathlib import Path

import anyio

from ideabridge.bridge.configuration import load_configuration
from ideabridge.server.serve import HttpOptions, serve_http, serve_stdio


def main() -> None:
    configuration = load_configuration(Path(sys.argv[1]))
    if len(sys.argv) > 2:
        anyio.run(partial(serve_http, configuration, HttpOptions(port=int(sys.argv[2]))))
    else:
        anyio.run(serve_stdio, configuration)


if __name__ == "__main__":
    main()
