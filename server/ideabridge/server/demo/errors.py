"""Errors of the demo."""

from __future__ import annotations

from ideabridge.tools.errors import IdeabridgeError


class DemoSetupError(IdeabridgeError):
    """The demo cannot start: no repository, no commits, servers that are not installed."""


class CheckFailedError(IdeabridgeError):
    """Something the demo did went wrong, or an answer is not what git says."""
