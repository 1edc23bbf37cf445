"""The days that all pages count as the last seven, so that their numbers agree."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Final

DAYS: Final = 7
"""The number of days, including today."""


def first_of_last_days() -> date:
    """Return the first of the last seven days, in UTC."""
    return datetime.now(UTC).date() - timedelta(days=DAYS - 1)
