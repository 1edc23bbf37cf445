"""Logs of every host with some calls, damaged as public bug reports describe it."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from .logs import START, ClaudeCode, Codex, Copilot, Gemini, Line, database, text, write_bytes

HOSTS: Final = ("claude-code", "codex", "copilot-cli", "gemini-cli", "opencode")

_REJECTED: Final = {
    "claude-code": "The user doesn't want to proceed with this tool use. The tool use was rejected",
    "codex": "user rejected MCP tool call",
    "copilot-cli": "The user rejected this tool call",
    "gemini-cli": "a person cancelled it",
    "opencode": "The user rejected permission to use this specific tool call.",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended: its value, or why it failed, and whether a person rejected it."""

    value: str | None
    error: str | None = None
    rejected: bool = False


class Damaged:
    """A log with some calls, and what was done to it.

    Attributes:
        outcomes: how each call ended. The arguments of a call have its number.
        lines: the lines, or the parts of the database.
        damages: the names of the damages.
        is_silent: whether a whole line was taken out, which nobody can notice.
    """

    def __init__(self, host: str, seed: int) -> None:
        self.host = host
        self.seed = seed
        self.random = random.Random(f"{host}-{seed}")
        self.numbered = self.random.random() < 0.5
        self.with_events = self.random.random() < 0.8
        self.outcomes = [self._outcome(number) for number in range(self.random.randint(1, 8))]
        make: dict[str, Callable[[], list[Any]]] = {
            "claude-code": self._claude,
            "codex": self._codex,
            "copilot-cli": self._copilot,
            "gemini-cli": self._gemini,
            "opencode": self._opencode,
        }
        self.lines = [json.dumps(record).encode() + b"\n" for record in make[host]()]
        self.damages: list[str] = []
        self.is_silent = False
        possible = OF_PARTS if host == "opencode" else DAMAGES
        for _ in range(self.random.randint(0, 3)):
            damage = self.random.choice(possible)
            self.damages.append(damage.__name__)
            damage(self)

    @property
    def loses_nothing(self) -> bool:
        """Whether every call can be read with its result."""
        harmless = {"twice", "late"}
        if self.host != "opencode":
            harmless |= {"without_break", "zero_bytes"}
        if self.host == "gemini-cli":
            # A line without `type`, such as the first one, is recognised only if it is a line of
            # its own.
            harmless -= {"without_break"}
        return set(self.damages) <= harmless

    def write(self, home: Path) -> Path:
        """Write the log where its host keeps it."""
        name = f"{self.seed:05}"
        if self.host == "opencode":
            parts = [(f"ses_{name}", "assistant", line.rstrip(b"\n")) for line in self.lines]
            return database(home / ".local/share/opencode", parts)

        place = {
            "claude-code": f".claude/projects/-home-ann-shop/{name}.jsonl",
            "codex": f".codex/sessions/2026/11/20/rollout-{name}.jsonl",
            "copilot-cli": f".copilot/session-state/{name}/events.jsonl",
            "gemini-cli": f".gemini/tmp/shop/chats/session-{name}.jsonl",
        }
        path = write_bytes(home / place[self.host], b"".join(self.lines))
        os.utime(path, (0, 0))
        return path

    def arguments(self, number: int) -> Line:
        return {"order": f"{self.seed}-{number}"}

    def number_of(self, arguments: Line) -> int | None:
        """The number of the call with these arguments, or None if there is none."""
        for number in range(len(self.outcomes)):
            if arguments == self.arguments(number):
                return number
        return None

    def _outcome(self, number: int) -> Outcome:
        chance = self.random.random()
        if chance < 0.1:
            return Outcome(None, f"failure {number}")
        if chance < 0.2:
            return Outcome(None, _REJECTED[self.host], rejected=True)
        return Outcome(f"result {self.seed}-{number}")

    def _id(self, number: int) -> str:
        return f"call_{number % 2}" if self.numbered else f"toolu_01{number:020}x"

    def _often(self) -> bool:
        return self.random.random() < 0.2

    @property
    def _start(self) -> Any:
        return START + timedelta(hours=self.seed % 200)

    def _claude(self) -> list[Any]:
        log = ClaudeCode(f"{self.seed:05}", self._start)
        log.asks("Look")
        for number, outcome in enumerate(self.outcomes):
            if self._often():
                log.asks(f"And {number}?")
            more: Line = {"agentId": "a1", "isSidechain": True} if self._often() else {}
            call = self._id(number)
            log.uses(call, "mcp__shop__describe", self.arguments(number), **more)
            error: Line = {} if outcome.error is None else {"is_error": True}
            log.returns(call, outcome.error or outcome.value, **error, **more)

        parents: list[Any] = [None]
        for record in log.lines:
            assert isinstance(record, dict)
            is_prompt = isinstance(record["message"]["content"], str)
            # A person may have gone back to an earlier place in the conversation.
            is_rewound = is_prompt and self._often()
            record["parentUuid"] = self.random.choice(parents) if is_rewound else parents[-1]
            parents.append(record["uuid"])
        return log.lines

    def _codex(self) -> list[Any]:
        log = Codex(f"{self.seed:05}", self._start)
        log.asks("Look")
        for number, outcome in enumerate(self.outcomes):
            if outcome.rejected:
                whole: Line = {"Err": outcome.error}
            elif outcome.error is not None:
                whole = {"Ok": {"content": text(outcome.error), "isError": True}}
            else:
                whole = {"Ok": {"content": text(str(outcome.value))}}

            shown = outcome.error or str(outcome.value)
            if outcome.error is not None and not outcome.rejected:
                shown = f"err: {outcome.error}"
            log.calls(self._id(number), "shop", "describe", self.arguments(number), whole, shown)
            if not self.with_events:
                del log.lines[-2]
            if self._often():
                log.event("thread_rolled_back", num_turns=1)
                log.asks("Again")
        return log.lines

    def _copilot(self) -> list[Any]:
        log = Copilot(f"{self.seed:05}", self._start)
        log.event("user.message", content="Look")
        for number, outcome in enumerate(self.outcomes):
            end: Line = {"success": True, "result": {"content": outcome.value}}
            if outcome.error is not None:
                code = "rejected" if outcome.rejected else "failure"
                end = {"success": False, "error": {"message": outcome.error, "code": code}}
            log.calls(self._id(number), "shop", "describe", self.arguments(number), **end)
        return log.lines

    def _gemini(self) -> list[Any]:
        log = Gemini(f"{self.seed:05}", self._start)
        log.asks("Look")
        for number, outcome in enumerate(self.outcomes):
            call = self._id(number)
            if self._often():
                log.uses(f"m{number}", call, "mcp_shop_describe", self.arguments(number))
            end: Line = {"output": outcome.value}
            if outcome.error is not None:
                end = {"error": outcome.error}
            status = "success" if outcome.error is None else "error"
            if outcome.rejected:
                status = "cancelled"
            log.calls(f"m{number}", call, "mcp_shop_describe", self.arguments(number), status, end)
            if self._often():
                log.lines.append({"$rewindTo": f"m{number}"})
        return log.lines

    def _opencode(self) -> list[Any]:
        parts: list[Any] = [{"type": "text", "text": "Look"}]
        for number, outcome in enumerate(self.outcomes):
            start = int(self._start.timestamp() * 1000) + number * 1000
            state: Line = {
                "status": "completed",
                "output": outcome.value,
                "input": self.arguments(number),
                "time": {"start": start, "end": start + 500},
            }
            if outcome.error is not None:
                state = {**state, "status": "error", "error": outcome.error}
            part = {"type": "tool", "tool": "shop_describe", "callID": self._id(number)}
            parts.append({**part, "state": state})
        return parts

    def place(self, last: int = 0) -> int:
        return self.random.randrange(max(1, len(self.lines) - last))

    def cut_of(self, data: bytes) -> bytes:
        return data[: self.random.randrange(1, max(2, len(data) - 2))]


def cut_off(log: Damaged) -> None:
    place = log.place()
    log.lines[place] = log.cut_of(log.lines[place]) + b"\n"


def spliced(log: Damaged) -> None:
    place = log.place(1)
    log.lines[place] = log.cut_of(log.lines[place])


def without_break(log: Damaged) -> None:
    place = log.place(1)
    log.lines[place] = log.lines[place].rstrip(b"\n")


def zero_bytes(log: Damaged) -> None:
    place = log.place()
    log.lines[place] = b"\0" * log.random.randrange(1, 4000) + log.lines[place]


def bad_byte(log: Damaged) -> None:
    place = log.place()
    data = bytearray(log.lines[place])
    data[log.random.randrange(len(data))] = 0xFF
    log.lines[place] = bytes(data)


def inside(log: Damaged) -> None:
    place = log.place(1)
    outer = log.lines[place]
    if place + 1 < len(log.lines) and len(outer) > 3:
        middle = log.random.randrange(1, len(outer) - 2)
        inner = log.lines.pop(place + 1).rstrip(b"\n")
        log.lines[place] = outer[:middle] + inner + outer[middle:]


def twice(log: Damaged) -> None:
    place = log.place()
    log.lines.insert(log.random.randrange(place, len(log.lines)) + 1, log.lines[place])


def late(log: Damaged) -> None:
    place = log.place(1)
    log.lines[place : place + 2] = reversed(log.lines[place : place + 2])


def gone(log: Damaged) -> None:
    # Without the lines of a result and of the next call, nothing shows that a later result with the
    # same id belongs to another call.
    is_ambiguous = log.is_silent and log.numbered
    log.is_silent = True
    if len(log.lines) > 1 and not is_ambiguous:
        del log.lines[log.place()]


def garbage(log: Damaged) -> None:
    log.lines.insert(log.place(), log.random.randbytes(log.random.randrange(1, 60)) + b"\n")


def end_cut_off(log: Damaged) -> None:
    log.lines[-1] = log.cut_of(log.lines[-1])


DAMAGES: Final[list[Callable[[Damaged], None]]] = [
    cut_off,
    spliced,
    without_break,
    zero_bytes,
    bad_byte,
    inside,
    twice,
    late,
    gone,
    garbage,
    end_cut_off,
]

OF_PARTS: Final[list[Callable[[Damaged], None]]] = [
    cut_off,
    zero_bytes,
    bad_byte,
    twice,
    late,
    gone,
    garbage,
]
"""What may have been done to the parts of a database."""
