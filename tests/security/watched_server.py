"""watched_server.py FILE EXECUTABLE ARGUMENTS...: run a command, and note in a file what holds
its event loop.

Each line of the file is a `Hold` as JSON: one round of the event loop, in which it served nobody
else, that took more than `NOTED` seconds of processor time or five times as long on the clock.
"""

from __future__ import annotations

import asyncio
import gc
import json
import runpy
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Final

NOTED: Final = 0.03
"""Seconds of processor time of a round that is noted."""

_PAUSE: Final = 0.005
"""Seconds between two looks at what the event loop does."""

_DEPTH: Final = 10
"""Places of a stack that are noted."""


class Watch:
    """Measures the rounds of the event loop of the main thread, and looks at what it
    does in long ones.
    """

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", buffering=1)
        self._begun: float | None = None
        self._collecting = 0.0
        self._collected = 0.0
        self._seen: Counter[str] = Counter()
        self._main = threading.main_thread().ident

    def begin(self) -> None:
        """Measure from now on."""
        loops: Any = asyncio.SelectorEventLoop
        run_once = loops._run_once
        process_events = loops._process_events

        def measured(loop: Any) -> None:
            before = time.thread_time()
            self._collected = 0.0
            run_once(loop)
            processor = time.thread_time() - before
            begun = self._begun
            self._begun = None
            clock = 0.0 if begun is None else time.monotonic() - begun
            if processor > NOTED or clock > 5 * NOTED:
                self._note(processor, clock)

            self._seen.clear()

        def awake(loop: Any, listed: Any) -> None:
            self._begun = time.monotonic()
            process_events(loop, listed)

        loops._run_once = measured
        loops._process_events = awake
        gc.callbacks.append(self._collect)
        threading.Thread(target=self._look, daemon=True).start()

    def _note(self, processor: float, clock: float) -> None:
        hold = {
            "at": time.monotonic(),
            "processor": round(processor, 4),
            "clock": round(clock, 4),
            "collected": round(self._collected, 4),
            "places": [f"{count}x {place}" for place, count in Counter(self._seen).most_common(4)],
        }
        self._file.write(f"{json.dumps(hold)}\n")

    def _collect(self, phase: str, _about: dict[str, int]) -> None:
        if threading.get_ident() != self._main:
            return
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collected += time.thread_time() - self._collecting

    def _look(self) -> None:
        while True:
            time.sleep(_PAUSE)
            begun = self._begun
            if begun is not None and time.monotonic() - begun > NOTED:
                frame = sys._current_frames().get(self._main or 0)  # pyright: ignore[reportPrivateUsage]
                self._seen[_places(frame)] += 1


def _places(frame: FrameType | None) -> str:
    """The innermost places of a stack that are code of ideabridge, and the innermost of all."""
    found: list[str] = []
    while frame is not None and len(found) < _DEPTH:
        name = frame.f_code.co_filename
        if not found or "/ideabridge/" in name:
            found.append(f"{Path(name).name}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back

    return " < ".join(found)


if __name__ == "__main__":
    file, *words = sys.argv[1:]
    Watch(Path(file)).begin()
    sys.argv[:] = words
    runpy.run_path(words[0], run_name="__main__")
