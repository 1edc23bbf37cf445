"""Course: whether a run goes on with another Request after a Solution that gave no output (DESIGN 4.4.4, 4.4.5)."""

from __future__ import annotations

from ideabridge.bridge.loop.effect import Finish
from ideabridge.bridge.loop.output import error_message
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.loop.spending import Spending
from ideabridge.tools.encoding import JSONObject


class Course:
    """Counts the Solutions that did nothing, and knows the limits."""

    def __init__(self) -> None:
        self._idle = 0

    def note(self, errors: list[JSONObject], *, acted: bool) -> Finish | None:
        """A Solution has run; the end, where it is the second in a row that did nothing.

        Args:
            errors: those of the Solution; one is added where it did nothing.
            acted: it held calls, or an output.
        """
        if acted:
            self._idle = 0
            return None
        self._idle += 1
        # An answer that broke off before its first call has been told of already.
        if not errors:
            errors.append(error_message("output", "the solution holds neither calls nor an output; give either"))
        if self._idle > 1:
            return Finish("stalled", "two solutions in a row held neither calls nor an output")
        return None

    @staticmethod
    def limit(step: int, settings: Settings, spending: Spending) -> Finish | None:
        """The end, where a limit leaves no room for another Request after the one of that step."""
        over = spending.over(settings, step + 1)
        return None if over is None else Finish("limit", over)
