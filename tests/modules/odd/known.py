"""The switches and cases that do not hold yet, with the reason."""

from __future__ import annotations

from typing import Final

KNOWN: Final[dict[str, str]] = {}
