"""Reply: the text of a model's answer, held back until a call of it has closed (DESIGN 5)."""

from __future__ import annotations

import re
from typing import Final

from ideabridge.bridge.loop.answer import Answer, CallPiece, EndPiece, Piece

_LONGEST: Final = 20_000
"""Characters of a spoilt answer that are shown to the model again."""

_THOUGHT: Final = re.compile(r"<(think|thinking)>", re.IGNORECASE)
_OPENINGS: Final = ("<think>", "<thinking>")
_LONGEST_TAG: Final = len("</thinking>")


class Reply:
    """Reads an answer beside the loop. Holding it back costs nothing: the loop does nothing before a call has closed.

    Attributes:
        has_begun: a call has closed, and what was held back has gone out.
        broken: why the answer cannot be read; None: it can, so far.
    """

    def __init__(self) -> None:
        self._answer = Answer()
        self._held: list[str] = []
        # What may be, or is, a thought before the answer; None: the answer itself has come.
        self._before: str | None = ""
        self._closing: re.Pattern[str] | None = None
        self.has_begun = False
        self.broken: str | None = None

    @property
    def is_spoilt(self) -> bool:
        """Whether it cannot be read, and nothing of it has gone out."""
        return self.broken is not None and not self.has_begun

    @property
    def is_whole(self) -> bool:
        """Whether the Solution has closed: what follows it says nothing."""
        return self._answer.is_whole

    @property
    def text(self) -> str:
        """What is held back, from its beginning."""
        # Half a surrogate pair could not be sent.
        return "".join(self._held)[:_LONGEST].encode("utf-8", "replace").decode()

    def take(self, piece: str) -> str:
        """Take the next piece; give what may go out now."""
        if self._before is not None:
            piece = self._without_thought(self._before + piece)
        self._read(self._answer.feed(piece))
        if self.has_begun and not self._held:
            return piece
        self._held.append(piece)
        return self._release() if self.has_begun else ""

    def close(self) -> str:
        """The answer has ended; give what may go out now: all of it where it can be read."""
        if self._before is not None and self._closing is None:
            before, self._before = self._before, None
            self.take(before)
        self._read(self._answer.close())
        return self._release() if self.has_begun or self.broken is None else ""

    def _without_thought(self, text: str) -> str:
        """The text after a thought that a server passed on in tags; nothing while it may still be one, or goes on."""
        if self._closing is None:
            # Servers may send any amount of white space before the answer.
            text = text.lstrip()
            found = _THOUGHT.match(text)
            if found is not None:
                self._closing = re.compile(f"</{found.group(1)}>", re.IGNORECASE)
            elif any(opening.startswith(text.lower()) for opening in _OPENINGS):
                self._before = text
                return ""
            else:
                self._before = None
                return text
        end = self._closing.search(text)
        if end is None:
            self._before = text[-_LONGEST_TAG:]
            return ""
        self._before = None
        return text[end.end() :]

    def _read(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, CallPiece):
                self.has_begun = True
            elif isinstance(piece, EndPiece):
                self.broken = piece.broken

    def _release(self) -> str:
        text = "".join(self._held)
        self._held = []
        return text
