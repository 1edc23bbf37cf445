"""Defects: exceptions that nobody expected, where one run must end alone and not take others with it."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Final

from ideabridge.bridge.ideas.errors import StaleDriverError, StoreError
from ideabridge.bridge.loop.event import JournalError
from ideabridge.tools.errors import IdeabridgeError

_CHARACTERS: Final = 500

logger = logging.getLogger(__name__)


def cause(error: Exception, mask: Callable[[str], str]) -> str:
    """Why a run goes on no more here, in words.

    An error of ours says so itself. Anything else, and an event the machine refused, is a mistake of ideabridge or of
    code it was given: it is named as that, and its traceback is logged.

    Args:
        error: what came.
        mask: takes secrets out of text.
    """
    if isinstance(error, StoreError) and not isinstance(error, StaleDriverError):
        return f"the run's journal could not be written: {error}"
    if isinstance(error, IdeabridgeError) and not isinstance(error, JournalError):
        return str(error)
    told = mask(f"internal error: {type(error).__name__}: {error}")
    log(error, mask)
    return told if len(told) <= _CHARACTERS else f"{told[:_CHARACTERS]}... ({len(told):,} characters)"


def log(error: Exception, mask: Callable[[str], str]) -> None:
    """Log an error with its traceback, without secrets."""
    logger.error("%s", mask("".join(traceback.format_exception(error))).rstrip())
