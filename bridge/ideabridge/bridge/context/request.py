"""Request: a question to a mind."""

from __future__ import annotations

from dataclasses import dataclass

from ideabridge.tools.encoding import JSON, JSONObject, content_hash


@dataclass(frozen=True, slots=True)
class Request:
    """One self-contained question to a mind. It refers to no earlier Request.

    Attributes:
        context: the typed messages, as the idea stores them.
        schema: JSON Schema of the Solution.
        texts: the messages as the mind reads them: `{"role", "content"}`.
        model: settings for the model that handlers asked for.
        offered: the tools and the output schema that handlers changed, in the form of `RequestMade`; None without
            changes.
    """

    context: list[JSON]
    schema: JSONObject
    texts: list[JSONObject]
    model: JSONObject
    offered: JSONObject | None = None

    @property
    def id(self) -> str:
        """SHA-256 of context and schema. Equal Requests have equal ids."""
        return content_hash({"context": self.context, "schema": self.schema})
