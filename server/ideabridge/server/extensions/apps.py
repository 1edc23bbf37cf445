"""Show a view of a run inside an assistant, for clients that declare MCP Apps (SEP-1865).

Such a client reads the resource `ui://ideabridge/run`, a page that loads nothing from elsewhere. It
shows the page next to the answers from `run_plan`, `solve`, `check_run` and `decide_approval`, and
passes on the calls that the page makes. The view calls `view_run`, a tool only for views, which is
not shown to models. Other clients see neither the view nor this tool.

The view shows a question as the page does (`views/shown.py`). If it cannot show a question in full,
the question can only be denied there. A click in the view reaches the server as a call to
`decide_approval`, which a model could also send. So a decision in the view counts as the
assistant's, and is refused if only a person is allowed to decide, because the client has forms or
because of `approval.by` in the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.bridge.reading import read_beside
from ideabridge.bridge.store.run_record import ENDED
from ideabridge.server.answers import ToolAnswer, answer
from ideabridge.server.asking.rounds import ToolRequest
from ideabridge.server.own_tools import VIEW_RUN
from ideabridge.server.ui.histories import Histories
from ideabridge.server.ui.run_view import run_view, run_view_of
from ideabridge.server.ui.showing import in_one_line
from ideabridge.server.views.pending import Pending
from ideabridge.server.views.records import run_status
from ideabridge.server.views.shown import VIEW
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ArgumentError
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.typed import member, read_as

EXTENSION: Final = "io.modelcontextprotocol/ui"
URI: Final = "ui://ideabridge/run"
MIME: Final = "text/html;profile=mcp-app"
VIEWED: Final = ("run_plan", "solve", "check_run", "decide_approval")
"""The tools whose answers the view shows."""

TOOL: Final[dict[str, Any]] = {
    "name": VIEW_RUN,
    "title": "View a run",
    "description": "The timeline of a run and its open decisions, for the view of a run.",
    "inputSchema": {
        "type": "object",
        "properties": {"run": {"type": "string"}},
        "required": ["run"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
    "_meta": {"ui": {"resourceUri": URI, "visibility": ["app"]}},
}


def wants_views(request: ToolRequest) -> bool:
    """Return whether the client declares that it can show views in HTML."""
    capabilities = request.context.session.client_capabilities
    extensions = None if capabilities is None else capabilities.extensions
    return MIME in read_as(_Views, (extensions or {}).get(EXTENSION)).types


@dataclass(frozen=True, slots=True)
class _Views:
    """The part of a client's capabilities that concerns views."""

    types: tuple[str, ...] = field(default=(), metadata=member("mimeTypes"))


def with_views(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a page of tools for a client that shows views. Own tools name the view, and the page
    that contains own tools also includes `view_run`.
    """
    views: list[dict[str, Any]] = []
    for tool in tools:
        if tool["name"] in VIEWED:
            meta = {**tool.get("_meta", {}), "ui": {"resourceUri": URI}}
            views.append({**tool, "_meta": meta})
        else:
            views.append(tool)

    if any(tool["name"] == "run_plan" for tool in tools):
        return [*views, TOOL]
    return views


def page() -> dict[str, Any]:
    """Return the result of reading the view's resource."""
    text = (Path(__file__).parent / "app.html").read_text(encoding="utf-8")
    content = {"uri": URI, "mimeType": MIME, "text": text, "_meta": {"ui": {"prefersBorder": True}}}
    return {"contents": [content], "resultType": "complete"}


class RunViews:
    """Answers `view_run`."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._histories = Histories(bridge.store)

    async def call(self, arguments: JSONObject, caller: str, *, may_decide: bool) -> ToolAnswer:
        """Return the timeline of one of the caller's runs, with its errors and open decisions.

        Raises:
            ArgumentError: the arguments are not `{"run": ID}`.
            UnknownRunError: this caller has no run with that id.
        """
        run_id = arguments.get("run")
        if not isinstance(run_id, str) or len(arguments) != 1:
            raise ArgumentError('view_run: expected {"run": ID}')

        store = self._bridge.store
        record = store.runs.find(run_id, caller=caller)
        status, reason = run_status(record)
        waits = status == "needs_approval"
        async with self._histories.reading(record.id, fold=waits) as read:
            last = read.trace.last
            history = read.history
            decisions = list[Pending]()
            if history is not None and status not in ENDED:
                decisions = await self._histories.pending(record, history)

            view: JSONObject | None = None
            # Do not fold the journal of a large run, because its trace is enough.
            if history is not None or not (waits or read.is_small):
                view = await compute_in_thread(run_view_of, read)

        if view is None:
            task = f"reading run {record.id}"
            read_view = await read_beside(
                run_view, store, record.id, last, is_small=False, what=task
            )
            view = cast("JSONObject", read_view)

        if history is None and waits:
            decisions = await self._histories.pending(record)

        # Use a thread, because a call can be large.
        approvals = await compute_in_thread(lambda: [_approval(pending) for pending in decisions])
        answered: JSONObject = {
            "run": record.id,
            "title": record.title,
            "status": status,
            "ended": status in ENDED,
            "reason": reason,
            **view,
            "approvals": list[JSON](approvals),
            "mayDecide": may_decide,
        }
        return answer(answered, f"run {record.id}: {status}")


def _approval(pending: Pending) -> JSONObject:
    content = pending.shown(VIEW)
    tool = WrittenCall.of(pending.question.shown).tool
    title = in_one_line(tool or pending.question.kind, 80)
    if content.sums:
        title += f" {content.sums}"

    choices = content.choices(pending.question.choices)
    return {
        "approval": pending.approval,
        "what": title,
        "call": content.content,
        "why": content.reasons,
        "omitted": content.omitted,
        "choices": [choice for choice in choices if choice in ("approve", "deny")],
    }
