"""Spending: what the answers of a run have taken, and the limit on it."""

from __future__ import annotations

from dataclasses import dataclass

from ideabridge.bridge.loop.settings import Settings
from ideabridge.tools.encoding import JSONObject


@dataclass(slots=True)
class Spending:
    """Tokens and cost, added up over the Requests of a run.

    Attributes:
        input_tokens, output_tokens: of every answer whose mind told.
        cost: in US dollars, of every answer whose price is known.
        last: the usage of the Request at hand; None: not told.
        requests, calls: made and listed in rooms that have ended.
        partial: how many answers took more than was told.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    last: JSONObject | None = None
    requests: int = 0
    calls: int = 0
    partial: int = 0

    def add(self, usage: JSONObject) -> None:
        """Count the usage of one answer."""
        given, written, cost = usage.get("input_tokens"), usage.get("output_tokens"), usage.get("cost")
        self.input_tokens += given if isinstance(given, int) else 0
        self.output_tokens += written if isinstance(written, int) else 0
        self.cost += cost if isinstance(cost, int | float) else 0.0
        # Of a room the number of such answers is told, of one answer whether it is one.
        partial = usage.get("partial")
        self.partial += int(partial) if isinstance(partial, int) else 0
        self.last = usage

    def add_room(self, spent: JSONObject | None) -> None:
        """Count what a room has used, as `to_json` tells it."""
        if spent is None:
            return
        last = self.last
        self.add(spent)
        self.last = last
        requests, calls = spent.get("requests"), spent.get("calls")
        self.requests += requests if isinstance(requests, int) else 0
        self.calls += calls if isinstance(calls, int) else 0

    def to_json(self) -> JSONObject:
        """The sums as an event holds them; what is 0 is left out."""
        sums: JSONObject = {
            "requests": self.requests,
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost": self.cost,
            "partial": self.partial,
        }
        return {name: value for name, value in sums.items() if value}

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.input_tokens + self.output_tokens

    def over(self, settings: Settings, made: int = 0) -> str | None:
        """The reason to make no further Request after the `made` ones; None: the limits leave room."""
        if made + self.requests >= settings.requests and made:
            return f"{settings.requests} requests were made, the most a run may make"
        if settings.tokens is not None and self.tokens >= settings.tokens:
            return f"{self.tokens:,} tokens were used; a run may use {settings.tokens:,}"
        if settings.cost is not None and self.cost >= settings.cost:
            return f"{self.cost:.4g} dollars were spent; a run may spend {settings.cost:g}"
        return None
