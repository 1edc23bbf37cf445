"""Errors of host configurations."""

from __future__ import annotations

from ideabridge.tools.errors import IdeabridgeError


class HostFileError(IdeabridgeError):
    """A host's configuration file that cannot be read or written; the message names the file."""


class CommentedHostFileError(HostFileError):
    """A host's file with comments or trailing commas: writing it would lose them."""


class UnknownHostError(IdeabridgeError):
    """No host of this name; the message names the nearest ones."""
