"""Make `python -m ideabridge.server` equivalent to the `ideabridge` command."""

from __future__ import annotations

import os
import sys

# `python -m` searches the current folder first, so a `typer.py` in it would be imported instead of
# Typer.
if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109 - pathlib would come from there
    del sys.path[0]

from ideabridge.server.main import main

sys.exit(main())
