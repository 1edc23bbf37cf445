"""A mind whose Solutions are prepared, and which keeps the Requests that it was asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from ideabridge.bridge.context.request import Request
from ideabridge.tools.encoding import JSON


class Prepared:
    """Answers the first Request with the first Solution, and so on."""

    name = "prepared"

    def __init__(self, *solutions: JSON) -> None:
        self.solutions = list(solutions)
        self.requests: list[Request] = []

    async def answer(self, request: Request) -> AsyncIterator[str | bytes]:
        """Give the next Solution in one piece."""
        self.requests.append(request)
        yield json.dumps(self.solutions.pop(0), ensure_ascii=False)

    def context(self, number: int) -> list[Any]:
        """The messages of a Request as JSON."""
        request: Any = self.requests[number]
        return getattr(request, "context_json", request.context)

    def read(self, number: int) -> str:
        """All that a Request shows, one message after another."""
        return "\n".join(str(message["content"]) for message in self.requests[number].texts)
