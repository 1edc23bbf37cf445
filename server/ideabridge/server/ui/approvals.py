"""Approvals: the open decisions of all runs in one list, deciding them, and who decided what."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ideabridge.bridge.context.state import MISSING
from ideabridge.bridge.errors import DecisionError
from ideabridge.bridge.loop.event import read_decider
from ideabridge.bridge.runs.people import Decision, DecisionName
from ideabridge.bridge.store.errors import UnknownRunError
from ideabridge.server.ui.access import PREFIX, FormFields, form_of, visitor_of
from ideabridge.server.ui.site import Site
from ideabridge.server.views.pending import Pending, pending
from ideabridge.tools.encoding import JSON, JSONObject, decode
from ideabridge.tools.errors import ArgumentError, IdeabridgeError

MOST: Final = 200
"""Open decisions of a page."""

_DECIDED: Final = 50
_NAMES: Final[dict[str, DecisionName]] = {
    "approve": "approve",
    "grant": "approve",
    "deny": "deny",
    "edit": "edit",
    "retry": "retry",
    "skip": "skip",
    "value": "value",
}
_MADE: Final[dict[str, str]] = {"approve": "approved", "deny": "denied", "edit": "edited", "skip": "skipped"}
"""How a decision is called after it was made."""


@dataclass(frozen=True, slots=True)
class Card:
    """An open decision, and what has happened in its run since it was asked."""

    pending: Pending
    since: str


class ApprovalPages:
    """The pages about decisions."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge

    def routes(self) -> list[Route]:
        """The routes under `/ui`."""
        return [
            Route("/approvals", self.list),
            Route("/approvals/decide", self._site.changing(self.decide), methods=["POST"]),
        ]

    async def list(self, request: Request) -> Response:
        """Every open decision, and the latest ones that were made."""
        visitor, store = visitor_of(request), self._bridge.store
        # A thread folds the journals.
        found = await anyio.to_thread.run_sync(
            lambda: list(itertools.islice(pending(store, caller=visitor.scope), MOST + 1))
        )
        cards = [Card(one, await self._since(one)) for one in found[:MOST]]
        decided: list[JSONObject] = []
        for one in store.runs.decisions(visitor.scope, _DECIDED):
            event = one.event if isinstance(one.event, dict) else {}
            decided.append(
                {
                    "run": one.run,
                    "title": one.title,
                    "caller": one.caller,
                    "at": one.at,
                    "call": event.get("call"),
                    "decision": _MADE.get(decision := str(event.get("decision") or event.get("action")), decision),
                    "by": str(read_decider(event.get("by"))),
                    "reason": event.get("reason"),
                }
            )
        return self._site.page(request, "approvals.html", cards=cards, more=len(found) > MOST, decided=decided)

    async def _since(self, one: Pending) -> str:
        """The calls of its run that ended after a question was asked."""
        if one.asked is None:
            return ""
        async with self._site.histories.reading(one.record.id) as read:
            bars = [bar for bar in read.trace.bars if bar.finished is not None and bar.finished > one.asked]
        failed = sum(bar.status == "failed" for bar in bars)
        if not bars:
            return ""
        names = ", ".join(dict.fromkeys(bar.name for bar in bars[:5]))
        ended = "1 call ended" if len(bars) == 1 else f"{len(bars)} calls ended"
        more, faults = ", ..." if len(bars) > 5 else "", f", {failed} failed" if failed else ""
        return f"Since it was asked, {ended} ({names}{more}){faults}."

    async def decide(self, request: Request) -> Response:
        """Make one decision about each chosen question. The runs continue here, or in the process that drives them."""
        visitor, form = visitor_of(request), form_of(request)
        name = _NAMES.get(form.get("decision"))
        which = list(dict.fromkeys(form.all("which")))
        if name is None:
            raise DecisionError(f"decision: expected {', '.join(_NAMES)}, found {form.get('decision')[:40]!r}")
        if not which:
            raise DecisionError("choose at least one call first")
        if len(which) > 1 and name not in ("approve", "deny", "retry", "skip"):
            raise DecisionError("this decision is for one call")
        faults: list[str] = []
        for one in which:
            run_id, _, approval = one.partition(":")
            try:
                record = self._site.record(request, run_id)
                run = await self._bridge.run(record.id, caller=record.caller)
                self._site.front.running.publish_when_done(run)
                kind = next((asked.kind for asked in run.pending() if asked.approval == approval), "call")
                decision = _decision(form, name, plan=kind == "plan")
                await self._bridge.decide(run, approval, _by(decision, request))
            except UnknownRunError:
                raise
            except IdeabridgeError as error:
                faults.append(f"{run_id}: {error}" if run_id not in str(error) else str(error))
        done = len(which) - len(faults)
        if done:
            what = {"approve": "approved", "deny": "denied", "skip": "skipped", "retry": "run again"}.get(
                name, "decided"
            )
            visitor.notes.append(("good", f"{done} {'call' if done == 1 else 'calls'} {what}."))
        if faults:
            raise DecisionError("\n".join(faults))
        run_id = which[0].partition(":")[0]
        stays = request.headers.get("referer", "").partition("?")[0].endswith("/approvals")
        return self._site.back(request, f"{PREFIX}/approvals" if stays else f"{PREFIX}/runs/{run_id}")


def _by(decision: Decision, request: Request) -> Decision:
    from dataclasses import replace

    return replace(decision, by=visitor_of(request).decider)


def _decision(form: FormFields, name: DecisionName, *, plan: bool) -> Decision:
    reason = form.get("reason").strip() or None
    value: JSON = None
    if name in ("edit", "value"):
        text = form.get("value").strip()
        if not text:
            raise ArgumentError("write what runs instead, as JSON" if name == "edit" else "write the value, as JSON")
        value = decode(text, what="the value")
    grant: JSONObject | None = None
    if form.get("decision") == "grant":
        grant = {"for": "run"}
        most = form.get("max").strip()
        if most:
            if not (most.isascii() and most.isdigit()):
                raise ArgumentError(f"at most: expected a number of calls, found {most[:20]!r}")
            grant["max"] = int(most)
    return Decision(
        name,
        call=value if name == "edit" and not plan else None,
        plan=value if name == "edit" and plan else None,
        value=value if name == "value" else MISSING,
        reason=reason,
        grant=grant,
    )
