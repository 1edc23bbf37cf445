"""Request: a question to a mind."""

from __future__ import annotations

from dataclasses import dataclass, field

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
        shown: how many bytes of results the texts show, `{"value": bytes, "request": bytes}`: of one, and of all. None
            if no limit was recorded.
    """

    context: list[JSON]
    schema: JSONObject
    texts: list[JSONObject]
    model: JSONObject
    offered: JSONObject | None = None
    shown: JSONObject | None = None
    _ids: list[str] = field(default_factory=list[str], init=False, repr=False, compare=False)

    @property
    def id(self) -> str:
        """SHA-256 of context, schema and `shown`, computed once. Equal Requests have equal ids."""
        if not self._ids:
            content: JSONObject = {"context": self.context, "schema": self.schema}
            if self.shown is not None:
                content["shown"] = self.shown
            # The schema has the definitions of all tools, which may be megabytes.
            self._ids.append(content_hash(content))
        return self._ids[0]
