"""Listening: a mind's answer is taken up while it streams in, each call the moment it closes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ideabridge.bridge.context.request import Request
from ideabridge.bridge.ideas.errors import StaleDriverError
from ideabridge.bridge.loop.answer import Answer, CallPiece, EndPiece, OutputPiece, Piece
from ideabridge.bridge.loop.event import (
    CallProposed,
    EndStatus,
    Event,
    JournalError,
    OutputProposed,
    SolutionClosed,
    UsageNoted,
)
from ideabridge.bridge.loop.parking import ActiveRun
from ideabridge.bridge.minds.mind import Counting, Mind, MindError
from ideabridge.bridge.minds.usage import Usage
from ideabridge.tools.encoding import JSONObject


class Listener(ActiveRun, Protocol):
    """A run that takes up an answer: a runner."""

    untold: Counting | None
    """The answer under way, where it can be asked what it has taken, and nobody was told yet."""

    def end(self, status: EndStatus, reason: str | None = None) -> None:
        """End the run before its time, with everything done so far."""
        ...

    def note(self, error: Exception) -> None:
        """Log an error that changes nothing."""
        ...

    def explain(self, error: Exception) -> JSONObject:
        """An error as a mind sees it."""
        ...


async def listen(listener: Listener, mind: Mind, request: Request) -> None:
    """Let a mind answer a Request, and take its calls and its output up as they come.

    Raises:
        StaleDriverError, StoreError, JournalError: the run could not be journaled; whatever else a mind raises breaks
            its answer off, or ends the run (`MindError`).
    """
    answer = Answer()
    parts = mind.answer(request)
    listener.untold = parts if isinstance(parts, Counting) else None
    try:
        async for part in parts:
            if isinstance(part, Usage):
                listener.untold = None
                if listener.wanted:
                    listener.post(UsageNoted(part.to_json()))
            elif not _take(listener, answer.feed(part)):
                return
        _take(listener, answer.close())
    except (StaleDriverError, JournalError):
        raise
    except MindError as error:
        if listener.wanted:
            listener.end("failed", str(listener.explain(error)["message"]))
    except Exception as error:  # noqa: BLE001 - whatever a mind raises breaks its answer off
        _take(listener, [EndPiece(str(listener.explain(error)["message"]), {})])
    finally:
        listener.untold = None
        if isinstance(parts, _Closing):
            await _close(listener, parts)


async def _close(listener: Listener, parts: _Closing) -> None:
    try:
        await parts.aclose()
    except Exception as error:  # noqa: BLE001 - what was taken of the answer holds, however the mind takes its end
        listener.note(error)


@runtime_checkable
class _Closing(Protocol):
    async def aclose(self) -> None: ...


def told_so_far(listener: Listener) -> list[Event]:
    """What the answer under way has taken, where it is hung up on before it told; afterwards nothing of it is asked."""
    answer, listener.untold = listener.untold, None
    usage = None if answer is None else answer.so_far()
    return [] if usage is None else [UsageNoted(usage.to_json())]


def _take(listener: Listener, pieces: Sequence[Piece]) -> bool:
    """Post what the pieces say, together; False once the answer has ended, or nobody wants more of it."""
    if not listener.wanted:
        return False
    events: list[Event] = []
    room = listener.machine.calls_left
    for piece in pieces:
        match piece:
            case CallPiece(call) if room > 0:
                room -= 1
                events.append(CallProposed(call))
            case CallPiece():
                most = listener.machine.settings.calls
                events.extend(told_so_far(listener))
                events.append(SolutionClosed(f"a run may list at most {most:,} calls"))
                break
            case OutputPiece(output):
                events.append(OutputProposed(output))
            case EndPiece(broken, extra):
                events.extend(told_so_far(listener))
                events.append(SolutionClosed(broken, extra or None))
                break
    if events:
        listener.post(*events)
    return not events or not isinstance(events[-1], SolutionClosed)
