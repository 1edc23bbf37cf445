"""EndRules: whether a run goes on with another Request after a Solution, or ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ideabridge.bridge.loop.effect import Finish
from ideabridge.bridge.loop.output import error_message
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.loop.spending import Spending
from ideabridge.tools.encoding import JSONObject


@dataclass(frozen=True, slots=True)
class SolutionOutcome:
    """What a Solution that has run held: calls, an output; and whether the output could be given."""

    calls: bool = False
    output: bool = False
    given: bool = False


BROKE_OFF: Final = "the answer broke off: "

CUT_OFF: Final = "the process ended while the answer streamed in"
"""Why an answer broke off that a crash cut off, which is not the fault of the mind."""


def _broken(error: JSONObject) -> str | None:
    """Why an answer broke off, where that is what the error says."""
    said = error.get("error")
    message = said.get("message") if isinstance(said, dict) else None
    return message.removeprefix(BROKE_OFF) if isinstance(message, str) and message.startswith(BROKE_OFF) else None


class EndRules:
    """Counts the Solutions that did nothing, and knows the limits."""

    def __init__(self) -> None:
        self._idle = 0

    def after(
        self, mode: Literal["plan", "solve"], outcome: SolutionOutcome, errors: list[JSONObject]
    ) -> Finish | None:
        """The end, where a Solution leads to it: it gave the output, its author answers once only, or it is the second
        in a row that did nothing.

        Args:
            mode: of the run.
            outcome: of the Solution.
            errors: those of the Solution; one is added where it did nothing.
        """
        if outcome.given:
            return Finish("done")
        if mode == "plan":
            return Finish("failed", "the output could not be made") if outcome.output else Finish("done")
        if outcome.calls or outcome.output:
            self._idle = 0
            return None
        broken = next((told for one in errors if (told := _broken(one)) is not None), None)
        if broken == CUT_OFF:
            return None
        self._idle += 1
        # An answer that broke off before its first call has been told of already.
        if not errors:
            errors.append(error_message("output", "the solution holds neither calls nor an output; give either"))
        if self._idle > 1:
            reason = "two solutions in a row held neither calls nor an output"
            return Finish("stalled", reason if broken is None else f"{broken} ({reason})")
        return None

    @staticmethod
    def limit(step: int, settings: Settings, spending: Spending) -> Finish | None:
        """The end, where a limit leaves no room for another Request after the one of that step."""
        over = spending.over(settings, step + 1)
        return None if over is None else Finish("limit", over)
