"""`python -m ideabridge.server`: the same as the command `ideabridge`."""

from __future__ import annotations

import sys

from ideabridge.server.main import main

sys.exit(main())
