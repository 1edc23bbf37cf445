"""List the open and past decisions of all runs, and make decisions.

A form that allows a call must contain the question's seal, which proves that the page showed the
question in full (`views/shown.py`). Without the seal, a visitor can only refuse.
"""

from __future__ import annotations

import contextlib
import hmac
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal
from urllib.parse import quote, urlencode

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ideabridge.bridge.configuration import reason_of_setting
from ideabridge.bridge.errors import DecisionError
from ideabridge.bridge.loop.event import decider_text
from ideabridge.bridge.loop.output import resolved_call
from ideabridge.bridge.loop.policy import (
    CHANGING,
    DESTRUCTIVE,
    UNDECLARED,
    named_tool,
    only_persons,
)
from ideabridge.bridge.loop.question import Choice, Question
from ideabridge.bridge.runs.people import Decision, DecisionName
from ideabridge.bridge.standing_rules import ListedRule, StandingRuleError
from ideabridge.bridge.store.decisions import Decided
from ideabridge.bridge.store.errors import StoreError, UnknownRunError
from ideabridge.bridge.store.rule_changes import ALWAYS, RuleChange
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.bridge.store.users import sees_run_of
from ideabridge.server.ui.access import (
    FormFields,
    Note,
    PageLink,
    Visitor,
    expect_owner,
    form_of,
    visitor_of,
)
from ideabridge.server.ui.call_values import (
    NO_VALUES,
    CallValues,
    EarlierCall,
    ValueRow,
    compared_values,
    earlier_call,
    named_thing,
    short_values,
    shown_value,
)
from ideabridge.server.ui.deciders import may_choose_deciders, write_deciders
from ideabridge.server.ui.edited_call import (
    EditField,
    EditFieldError,
    call_of_fields,
    edit_fields,
    has_edited_fields,
)
from ideabridge.server.ui.forms import number_from
from ideabridge.server.ui.readable_names import run_name
from ideabridge.server.ui.server_forms import file_to_change
from ideabridge.server.ui.showing import as_json, capital, in_one_line
from ideabridge.server.ui.site import Site
from ideabridge.server.ui.tool_effects import EFFECTS
from ideabridge.server.views.pending import Pending
from ideabridge.server.views.records import input_of
from ideabridge.server.views.shown import (
    PAGE,
    REFUSING,
    WHOLE_PAGE,
    Room,
    ShownQuestion,
    call_without_ids,
    shown_without_ids,
)
from ideabridge.server.views.trace import Trace, module_of
from ideabridge.tools import Tool
from ideabridge.tools.encoding import JSON, JSONObject, decode
from ideabridge.tools.errors import ArgumentError, IdeabridgeError
from ideabridge.tools.names import counted, visible
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.tool import IDEA

MOST: Final = 200
"""Maximum number of open decisions that a page looks for."""

MOST_CARDS: Final = 20
"""Maximum number of open decisions on a page."""

_ROOM: Final = 4_500
"""Number of characters after which no further decision is added to a page. In its forms, a card
contains the text of its call up to five times.
"""

_DECIDED: Final = 25
_LATEST_DECIDED: Final = 5
"""Number of past decisions that the page of the open decisions shows."""

_BEGINNINGS: Final = (2, 60)
"""How many of a run's first events are read, in successive attempts, to find the call that a
decision was about. The first two events contain the calls of a plan, while a program or a model
proposes its calls later.
"""

_MOST_BYTES: Final = 20_000
"""Maximum size, in bytes, of these events."""

_MOST_NAMED: Final = 5
"""Maximum number of failed calls whose tools a card names."""

_MOST_VALUES: Final = 3
_LONGEST_VALUE: Final = 48
"""Maximum length, in characters, of a value in such a call."""

_MOST_SHARED: Final = 2
"""Maximum number of values that a card shows of another call about the same thing."""

_LONGEST_CLAIM: Final = 140
"""Maximum length, in characters, of what a card shows from the description of a tool."""

_EDITABLE: Final = 5000
"""Maximum size, in bytes, of a call that can be edited together with others. `MOST` such calls fit
into one form. A larger call is edited on its own.
"""

_NAMES: Final[dict[str, DecisionName]] = {
    "approve": "approve",
    "grant": "approve",
    "always": "approve",
    "deny": "deny",
    "edit": "edit",
    "fields": "edit",
    "retry": "retry",
    "skip": "skip",
    "value": "value",
}
_MADE: Final[dict[str, str]] = {
    "approve": "approved",
    "always": "approved, and the tool is always allowed",
    "deny": "denied",
    "edit": "edited",
    "skip": "skipped",
    "retry": "run again",
}
"""The page's word for each kind of past decision."""

_SHOWN_DECISIONS: Final = {
    "approved": frozenset({"approve", "edit"}),
    "denied": frozenset({"deny"}),
}
"""The decisions that the list of past decisions can be limited to."""

_THE_SERVER_SAYS: Final = "The server says that it "

DECLARED: Final[dict[str, str]] = {
    DESTRUCTIVE: f"{_THE_SERVER_SAYS}{EFFECTS['deletes']}",
    CHANGING: f"{_THE_SERVER_SAYS}{EFFECTS['changes']}",
}
"""The page's words for what a tool declares about itself."""

ONLY_ADDS: Final = f"{_THE_SERVER_SAYS}{EFFECTS['adds']}"
"""The page's words for a tool that changes things, but declares that it only adds."""


@dataclass(frozen=True, slots=True)
class Risk:
    """The effect that a tool declares.

    Attributes:
        words: the effect, as a phrase that follows "it".
        style: the style of the phrase: `bad`, `ask`, or "" if the effect is not unusual.
    """

    words: str
    style: Literal["bad", "ask", ""]


@dataclass(frozen=True, slots=True)
class SharedThing:
    """Something that several calls refer to while they wait for decisions.

    Attributes:
        name: the name of the parameter.
        text: the value that identifies the thing.
        other: the oldest of the other decisions.
        tool: the name of the tool of the other call, or "" if both calls are of the same tool.
        values: the first short values of the other call, apart from the shared one.
        more: how many further decisions there are.
        is_on_page: whether `other` is on the same page.
    """

    name: str
    text: str
    other: Pending
    tool: str
    values: tuple[ValueRow, ...]
    more: int
    is_on_page: bool


@dataclass(frozen=True, slots=True)
class Card:
    """An open decision on a page.

    Attributes:
        pending: the open decision.
        shown: the question as the page shows it.
        choices: the decisions that the page offers.
        seal: see `ShownQuestion.seal`.
        since: a sentence about the run's calls that have failed since the question was asked.
        always: whether the visitor can allow the tool permanently.
        tool: the name of the called tool.
        server: the tool's server, or "" if the tool is not from a server.
        values: the parameters of a call, as a table. The table is empty if the question is not
            about a call, or if the page does not show all parameters.
        shared: what this call and other open calls of the same server refer to, or None if they
            have nothing in common.
        typed: the rejected form, with what the visitor typed. The form is empty the first time that
            the page shows the decision.
        fault: why the form was rejected, or "".
        faulty: the name of the field to correct, or "".
    """

    pending: Pending
    shown: ShownQuestion
    choices: tuple[Choice, ...]
    seal: str
    since: str = ""
    always: bool = False
    tool: str = ""
    server: str = ""
    values: CallValues = NO_VALUES
    shared: SharedThing | None = None
    typed: FormFields = field(default_factory=FormFields)
    fault: str = ""
    faulty: str = ""

    @property
    def risk(self) -> Risk | None:
        """The most severe effect that the tool declares, or None if it declares no effect."""
        question = self.pending.question
        if question.kind != "call" or question.tool is None:
            return None

        annotations = question.tool.annotations
        if annotations.destructive is True and annotations.read_only is not True:
            return Risk(EFFECTS["deletes"], "bad")
        if annotations.open_world is True:
            return Risk("reaches other systems", "ask")
        if annotations.read_only is False:
            return Risk(EFFECTS["changes" if annotations.destructive is None else "adds"], "")
        return None

    @property
    def is_reason_in_risk(self) -> bool:
        """True if `risk` already states the only reason for the question."""
        risk = self.risk
        return risk is not None and self.reason == f"{_THE_SERVER_SAYS}{risk.words}"

    @property
    def reason(self) -> str:
        """Why a decision is needed. The card's title names the tool, so the reason calls the tool
        "it".
        """
        return reason_in_words(self.shown.reasons, self.pending.question.tool)

    @property
    def claim(self) -> str:
        """See `claim_of`."""
        tool = self.pending.question.tool
        return "" if tool is None else claim_of(tool)

    @property
    def is_quoted(self) -> bool:
        """Whether the claim comes from a server or from elsewhere outside this process. Tools of
        this process were written by the person who configured them.
        """
        tool = self.pending.question.tool
        return tool is not None and tool.module is not None

    @property
    def is_of_server(self) -> bool:
        """Whether the tool belongs to a server rather than to an idea."""
        return bool(self.server) and not self.server.startswith(IDEA)

    @property
    def is_undeclared(self) -> bool:
        """True if the only reason for the question is that the tool does not declare that it is
        read-only.
        """
        tool = self.pending.question.tool
        return tool is not None and self.shown.reasons == f"{named_tool(tool)} {UNDECLARED}"

    @property
    def editable(self) -> JSONObject:
        """The part that a visitor can edit: a call without its ids, or a plan with the ids by which
        its calls refer to each other.
        """
        return _editable(self.pending.question)

    @property
    def is_json_typed(self) -> bool:
        """True if the visitor edited the JSON in the rejected form."""
        text = self.typed.get("value").strip()
        return bool(text) and _differs(text, self.editable)

    @property
    def fields(self) -> list[EditField]:
        """See `edit_fields`."""
        return edit_fields(self.pending.question)

    @classmethod
    def of(
        cls,
        pending: Pending,
        visitor: Visitor,
        room: Room = PAGE,
        earlier: EarlierCall | None = None,
    ) -> Card:
        """Return the card that shows a decision to a visitor.

        Creating the card takes 50 ms per MB of the decision's content. `earlier` is the call with
        which the values are compared.
        """
        shown = pending.shown(room)
        question = pending.question
        is_own = sees_run_of(visitor.caller, pending.record.caller)
        values = NO_VALUES
        if shown.whole and question.kind in ("call", "outcome"):
            values = compared_values(question.shown, earlier)

        return cls(
            pending,
            shown,
            shown.choices(question.choices),
            shown.seal(visitor.secret, pending.key),
            always=question.standing is not None and is_own,
            tool=_named(question.shown, "_tool") or "it",
            server=_named(question.shown, "_module"),
            values=values,
        )


def reason_in_words(reasons: str, tool: Tool | None) -> str:
    """Return the reasons for a question as sentences for the page, without a final full stop.

    Args:
        reasons: the reasons that the question gives, one per line, or only their beginning.
        tool: the tool that the question is about, or None if the question is not about a tool.
    """
    return ". ".join(_sentence(line.rstrip("."), tool) for line in reasons.split("\n"))


def _sentence(why: str, tool: Tool | None) -> str:
    if tool is None:
        return capital(why)

    named = f"{named_tool(tool)} "
    declared = why.removeprefix(named)
    if declared == CHANGING and tool.annotations.destructive is False:
        return ONLY_ADDS
    if declared in DECLARED:
        return DECLARED[declared]
    if why.startswith(named):
        return f"It {declared}"

    chosen = reason_of_setting(tool.module or "", tool.name_in_module, read_only=False)
    if why == chosen:
        return "You chose to be asked"
    return capital(why)


def claim_of(tool: Tool) -> str:
    """Return the first paragraph of a tool's description on one line. A server describes its tools
    itself, so this is only a claim.
    """
    return in_one_line(tool.description.strip().partition("\n\n")[0], _LONGEST_CLAIM)


def oldest_first(decisions: Iterable[Pending]) -> list[Pending]:
    """Return open decisions in the order in which pages show them, with new decisions last so that
    the others keep their position.
    """
    return sorted(decisions, key=_place)


def _place(pending: Pending) -> tuple[float, str]:
    return pending.asked or 0.0, pending.key


def cards_of(
    decisions: Iterable[tuple[Pending, EarlierCall | None]],
    visitor: Visitor,
    waiting: Iterable[Pending],
    room: Room = PAGE,
) -> list[Card]:
    """Return cards for as many of the first decisions as fit on one page, but at least one. This
    can be slow; see `Card.of`.

    Args:
        decisions: each decision, with the call to compare its values with.
        visitor: the visitor who views the cards.
        waiting: the open decisions of all runs that the visitor can see.
        room: how long a question can be for the page to show it in full.
    """
    cards: list[Card] = []
    left = _ROOM
    for pending, earlier in decisions:
        card = Card.of(pending, visitor, room, earlier)
        left -= len(card.shown.content)
        if cards and left < 0:
            break
        cards.append(card)
    return _with_shared_things(cards, waiting)


def _with_shared_things(cards: list[Card], waiting: Iterable[Pending]) -> list[Card]:
    """Return the cards with `Card.shared` filled in."""
    decisions_by_thing = defaultdict[tuple[str, str, str], list[Pending]](list)
    things: dict[str, tuple[str, str, str]] = {}
    for pending in oldest_first(waiting):
        thing = _thing_of(pending)
        if thing is not None:
            things[pending.key] = thing
            decisions_by_thing[thing].append(pending)

    keys_on_page = {card.pending.key for card in cards}
    marked: list[Card] = []
    for card in cards:
        shared = None
        thing = things.get(card.pending.key)
        if thing is not None and card.shown.whole:
            shared = _shared(card, thing, decisions_by_thing[thing], keys_on_page)
        marked.append(replace(card, shared=shared))
    return marked


def _thing_of(pending: Pending) -> tuple[str, str, str] | None:
    """Return the thing that a call refers to, as its server, parameter and value. Return None if
    the call refers to no thing.
    """
    question = pending.question
    if question.kind != "call":
        return None
    row = named_thing(question.shown)
    if row is None:
        return None
    return _named(question.shown, "_module"), row.name, row.text


def _shared(
    card: Card,
    thing: tuple[str, str, str],
    decisions: list[Pending],
    keys_on_page: Collection[str],
) -> SharedThing | None:
    """Return what a card has in common with other decisions about the same thing, or None if there
    are no other decisions.
    """
    others = [pending for pending in decisions if pending.key != card.pending.key]
    if not others:
        return None
    _, name, text = thing
    other = others[0]
    tool = _named(other.question.shown, "_tool")
    own_tool = _named(card.pending.question.shown, "_tool")
    values = [row for row in short_values(other.question.shown) if row.name != name]
    return SharedThing(
        name,
        text,
        other,
        "" if tool == own_tool and values else tool,
        tuple(values[:_MOST_SHARED]),
        len(others) - 1,
        other.key in keys_on_page,
    )


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A row in the form that decides on several calls.

    Attributes:
        key: the decision's key, `RUN:APPROVAL`.
        pending: the open decision, or None if it has been settled.
        text: the call in the row's text field, or None if the row has no text field.
        seal: the seal of the card.
        chosen: whether the row's box is checked.
        fault: why the decision cannot be made as chosen and edited.
        shared: see `Card.shared`.
    """

    key: str
    pending: Pending | None
    text: str | None
    seal: str = ""
    chosen: bool = False
    fault: str = ""
    shared: SharedThing | None = None

    @classmethod
    def of(cls, card: Card) -> DecisionRow:
        """Return the row of an open decision before the visitor has chosen or edited anything."""
        pending = card.pending
        if pending.question.kind == "call" and card.seal:
            text = as_json(card.editable)
        else:
            text = None
        is_short = text is not None and len(text.encode()) <= _EDITABLE
        return cls(pending.key, pending, text if is_short else None, card.seal, shared=card.shared)

    @property
    def shown(self) -> JSONObject:
        """The call or plan to decide on, as the row shows it."""
        question = None if self.pending is None else self.pending.question
        return {} if question is None else shown_without_ids(question)

    @property
    def reason(self) -> str:
        """See `Card.reason`."""
        if self.pending is None:
            return ""
        question = self.pending.question
        return reason_in_words(question.why, question.tool)

    @property
    def is_changed(self) -> bool:
        """True if someone has changed the call."""
        if self.pending is None or self.text is None:
            return False
        return _differs(self.text, self.shown)


@dataclass(frozen=True, slots=True)
class PastDecision:
    """A row in the list of past decisions.

    Attributes:
        decided: the decision, as the journal records it.
        verdict: the page's word for the decision.
        by: the decider, in words. For a rule or a grant, this is the person who gave it.
        counted: how many calls a rule or a grant approved, in words, or "" for other decisions.
        tool, server: the tool of the decided call, and its server. Both are "" if the decision was
            about a plan or the call is unknown.
        values: the first values in the call, on one line, or "" if unknown.
        has_references: whether some of the values are only known from the whole run, because the
            call refers to results of other calls.
        record: the run, or None if it has been deleted.
    """

    decided: Decided
    verdict: str
    by: str
    counted: str = ""
    tool: str = ""
    server: str = ""
    values: str = ""
    has_references: bool = False
    record: RunRecord | None = None

    @property
    def at(self) -> float | None:
        """The time of the decision in seconds since 1970, or None if unknown."""
        return self.decided.at


@dataclass(frozen=True, slots=True)
class PastRuleChange:
    """A row in the list of past decisions that shows a change to the rule for a tool.

    Attributes:
        change: the stored change.
        by: the person, in words.
        page: the path of the tool's page, relative to the path of all pages, or "" if the tool is
            unknown.
    """

    change: RuleChange
    by: str
    page: str

    @property
    def at(self) -> float:
        """The time of the change, in seconds since 1970."""
        return self.change.at

    @property
    def verdict(self) -> str:
        """The page's word for the change."""
        return "rule withdrawn" if self.change.before == ALWAYS else "rule changed"


class ApprovalPages:
    """The pages about decisions."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge

    def routes(self) -> list[Route]:
        """Return the routes under `/ui`."""
        return [
            Route("/approvals", self.list),
            Route("/approvals", self._site.changing(self.decide_several), methods=["POST"]),
            Route("/approvals/past", self.show_past),
            Route("/approvals/whole", self.show_whole),
            # A rejected form is shown at this URL, so an open page can load it again.
            Route("/approvals/decide", self.show_whole),
            Route("/approvals/decide", self._site.changing(self.decide), methods=["POST"]),
            Route("/approvals/rules", self._site.changing(self.withdraw), methods=["POST"]),
            Route(
                "/approvals/deciders",
                self._site.changing(self.choose_deciders),
                methods=["POST"],
            ),
        ]

    async def list(self, request: Request) -> Response:
        """Show every open decision, the standing rules, and the latest past decisions."""
        return await self._list(request)

    async def _list(self, request: Request, tried: list[DecisionRow] | None = None) -> Response:
        """Return the page. `tried` contains the rows of a rejected form."""
        visitor = visitor_of(request)
        decisions = await self._site.histories.all_pending(visitor.scope, MOST + 1)
        has_more = len(decisions) > MOST
        after = _read_place(request.query_params.get("after", ""))
        following = [
            pending for pending in oldest_first(decisions[:MOST]) if _place(pending) > after
        ]
        compared = [
            (pending, await earlier_call(self._site, pending)) for pending in following[:MOST_CARDS]
        ]

        def write() -> tuple[list[Card], dict[str, DecisionRow]]:
            cards = cards_of(compared, visitor, decisions)
            return cards, {card.pending.key: DecisionRow.of(card) for card in cards}

        # Use a thread, because calls can be large.
        open_cards, rows = await compute_in_thread(write)
        decided = await self._past(visitor, _LATEST_DECIDED)
        rules, problem = await compute_in_thread(self._rules, visitor)
        cards = [replace(card, since=await self._since(card.pending)) for card in open_cards]
        later = ""
        if len(cards) < len(following):
            asked, key = _place(cards[-1].pending)
            later = f"?{urlencode({'after': f'{asked}:{key}'})}"

        rows.update({row.key: row for row in tried or ()})
        configuration = self._bridge.configuration
        return self._site.page(
            request,
            "approvals.html",
            code=200 if tried is None else 400,
            cards=cards,
            rows=list(rows.values()),
            tried=tried,
            reason=form_of(request).get("reason"),
            later=later,
            later_count=len(following) - len(cards),
            is_later=after != _FIRST,
            more=has_more,
            decided=decided,
            has_rules=self._bridge.standing_rules is not None,
            rules=rules,
            rules_problem=problem,
            only_people=only_persons(configuration.approval_setting),
            may_choose_deciders=may_choose_deciders(configuration, visitor),
        )

    async def show_past(self, request: Request) -> Response:
        """Show the latest past decisions, or only those that approved or denied a call."""
        show = request.query_params.get("show", "")
        if show not in _SHOWN_DECISIONS:
            show = ""

        decided = await self._past(visitor_of(request), _DECIDED, show)
        return self._site.page(
            request, "approvals_past.html", decided=decided, most=_DECIDED, show=show
        )

    async def _past(
        self, visitor: Visitor, most: int, show: str = ""
    ) -> list[PastDecision | PastRuleChange]:
        """Return the rows in the list of past decisions, latest first. `show` is a key of
        `_SHOWN_DECISIONS`, or "" for all decisions.
        """
        rows = await compute_in_thread(self._past_rows, visitor, most, show)
        return [
            await self._with_results(row)
            if isinstance(row, PastDecision) and row.has_references
            else row
            for row in rows
        ]

    async def _with_results(self, row: PastDecision) -> PastDecision:
        """Return a row with the values that the call's references resolved to."""
        number = row.decided.call
        try:
            async with self._site.histories.reading(row.decided.run, fold=True) as read:
                # A run can be too large to read for a page.
                if read.history is None or number is None:
                    return row
                calls = read.history.machine.history
                if number >= len(calls) or not calls[number].items:
                    return row
                values = _in_words(resolved_call(calls[number]), {})
        except StoreError:
            # As in `_beginning_of`.
            return row
        return replace(row, values=values or row.values)

    def _past_rows(
        self, visitor: Visitor, most: int, show: str
    ) -> list[PastDecision | PastRuleChange]:
        store = self._bridge.store
        decisions = store.decisions.latest(visitor.scope, most, _SHOWN_DECISIONS.get(show))
        profile = self._bridge.offer.to(visitor.caller).profile
        changes = [
            change
            for change in (() if show else store.rule_changes.latest(visitor.scope))
            if profile is None or profile.admits(change.module or None, change.tool)
        ]
        latest: list[Decided | RuleChange] = [*decisions, *changes[:most]]
        latest.sort(key=lambda row: row.at or 0, reverse=True)
        return [
            self._past_decision(row, visitor)
            if isinstance(row, Decided)
            else self._past_rule_change(row)
            for row in latest[:most]
        ]

    def _past_rule_change(self, change: RuleChange) -> PastRuleChange:
        page = ""
        if change.module in self._bridge.modules:
            page = f"modules/{quote(change.module, safe='')}/tools/{quote(change.tool, safe='')}"
        return PastRuleChange(change, decider_text({"by": change.by}), page)

    def _past_decision(self, decided: Decided, visitor: Visitor) -> PastDecision:
        trace = self._beginning_of(decided)
        tool = ""
        server = ""
        values = ""
        has_references = False
        if trace is not None and decided.call is not None:
            bar = trace.bars[decided.call]
            tool = bar.name
            server = module_of(bar, trace)
            if not _has_unknown_values(decided):
                values = _in_words(bar.call, input_of(self._bridge.store, decided.run))
                has_references = any(map(_refers_to_result, bar.call.values()))

        return PastDecision(
            decided,
            _verdict(decided),
            decider_text({"by": decided.by}),
            _counted_calls(decided),
            tool,
            server,
            values,
            has_references,
            self._record_of(decided, visitor),
        )

    def _record_of(self, decided: Decided, visitor: Visitor) -> RunRecord | None:
        try:
            return self._bridge.store.runs.find(decided.run, caller=visitor.scope)
        except UnknownRunError:
            # The run has been deleted in the meantime.
            return None

    def _beginning_of(self, decided: Decided) -> Trace | None:
        """Return the trace of the first events of a run, including the decided call as its author
        wrote it. Return None if the decision was about a plan, or if these events do not contain
        the call.
        """
        if decided.call is None:
            return None

        for most in _BEGINNINGS:
            try:
                events = self._bridge.store.runs.beginning(decided.run, most, _MOST_BYTES)
            except StoreError:
                # The run has been deleted, or its journal is damaged, which the run's own page will
                # say.
                return None

            trace = Trace()
            for number, event in enumerate(events, 1):
                trace.add_event(number, event, None)
            if decided.call < len(trace.bars):
                return trace

        return None

    def _rules(self, visitor: Visitor) -> tuple[list[ListedRule], str]:
        """Return the standing rules that a visitor may see, and why the rules cannot be read, or ""
        if they can.
        """
        try:
            return self._listed_rules(visitor), ""
        except (StandingRuleError, StoreError) as error:
            return [], str(error)

    def _listed_rules(self, visitor: Visitor) -> list[ListedRule]:
        """Return the standing rules that a visitor may see. In a profile, these are the visitor's
        rules for the tools of the profile.

        Raises:
            StandingRuleError, StoreError: the rules cannot be read.
        """
        rules = self._bridge.standing_rules
        if rules is None:
            return []

        listed = rules.listed(visitor.scope)
        profile = self._bridge.offer.to(visitor.caller).profile
        if profile is None:
            return listed
        return [
            one
            for one in listed
            if profile.admits(one.rule.tool.module or None, one.rule.tool.name)
        ]

    async def withdraw(self, request: Request) -> Response:
        """Withdraw a standing rule."""
        visitor = visitor_of(request)
        rules = self._bridge.standing_rules
        ident = form_of(request).get("rule")
        listed = await compute_in_thread(self._listed_rules, visitor)
        chosen = next((one.rule for one in listed if one.rule.id == ident), None)
        if rules is None or chosen is None:
            raise DecisionError(
                f"there is no standing rule {ident[:40]!r}; it may have been withdrawn"
            )

        await compute_in_thread(rules.withdraw, chosen, visitor.decider)
        tool = self._site.titles(visitor).with_server(chosen.tool.name, chosen.tool.module)
        visitor.notes.append(Note("good", f"From now on, {tool} asks again."))
        return self._site.back_to_form(request)

    async def choose_deciders(self, request: Request) -> Response:
        """Choose whether only people decide or whether assistants may pass on people's answers."""
        visitor = visitor_of(request)
        expect_owner(visitor)
        configuration = self._bridge.configuration
        file = file_to_change(configuration)
        reloading = self._site.front.reloading
        if file is None or reloading is None or not may_choose_deciders(configuration, visitor):
            raise ArgumentError("who decides is set in a configuration that the page cannot change")

        by = form_of(request).get("by")
        if by not in ("people", "anyone"):
            raise ArgumentError(f"by: expected people or anyone, found {by[:40]!r}")

        only_people = by == "people"
        await anyio.to_thread.run_sync(partial(write_deciders, file, only_people=only_people))
        await reloading.look()
        if only_people:
            text = f"Only people decide now. This is written to {file}."
        else:
            text = f"Assistants can pass on your answers. This is written to {file}."
        return self._site.back(request, "/approvals", text)

    async def show_whole(self, request: Request) -> Response:
        """Show a single open decision, with everything that approving it would allow."""
        key = request.query_params.get("which", "")
        pending = await self._pending(request, key)
        card = None
        if pending is not None:
            card = await self._whole_card(pending, visitor_of(request))

        return await self._site.page_beside(
            request, "whole.html", card=card, run=key.partition(":")[0]
        )

    async def _whole_card(self, pending: Pending, visitor: Visitor) -> Card:
        """Return the card of a decision that has a page of its own."""
        earlier = await earlier_call(self._site, pending)
        waiting = await self._site.histories.all_pending(visitor.scope, MOST)
        compared = [(pending, earlier)]
        [card] = await compute_in_thread(cards_of, compared, visitor, waiting, WHOLE_PAGE)
        return card

    async def _pending(self, request: Request, key: str) -> Pending | None:
        """Return the open decision `RUN:APPROVAL`, or None if it has been settled.

        Raises:
            UnknownRunError: the visitor cannot see a run with this id.
        """
        record = self._site.record(request, key.partition(":")[0])
        decisions = await self._site.histories.pending(record)
        return next((decision for decision in decisions if decision.key == key), None)

    async def _since(self, pending: Pending) -> str:
        """Return a sentence about the run's calls that failed after the question was asked."""
        if pending.asked is None:
            return ""

        async with self._site.histories.reading(pending.record.id) as read:
            bars = [
                bar
                for bar in read.trace.bars
                if bar.status == "failed"
                and bar.finished is not None
                and bar.finished > pending.asked
            ]

        if not bars:
            return ""

        names = ", ".join(dict.fromkeys(bar.name for bar in bars[:_MOST_NAMED]))
        more = ", …" if len(bars) > _MOST_NAMED else ""
        verb = "has" if len(bars) == 1 else "have"
        other = counted(len(bars), "other call")
        return f"While this question waited, {other} of the run {verb} failed ({names}{more})."

    async def decide(self, request: Request) -> Response:
        """Make a decision. The run continues in this process or in the process that drives it.

        If the decision cannot be made, the page shows the reason and keeps what the visitor typed.
        """
        form = form_of(request)
        name = _NAMES.get(form.get("decision"))
        if name is None:
            raise DecisionError(
                f"decision: expected {', '.join(_NAMES)}, found {form.get('decision')[:40]!r}"
            )

        key = form.get("which")
        pending = await self._pending(request, key)
        if pending is None:
            raise DecisionError(_waits_no_longer(key))

        try:
            decision = _by(_decision(form, name, pending.question), request)
            await compute_in_thread(
                _expect_seen, pending, decision, form.get("seal"), visitor_of(request)
            )
            await compute_in_thread(_expect_no_other_edit, pending.question, form)
            await self._take(pending, decision)
        except IdeabridgeError as error:
            return await self._ask_again(request, key, error)

        made = _MADE.get("always" if decision.always else name, "decided")
        stays = request.headers.get("referer", "").partition("?")[0].endswith("/approvals")
        run = f"/runs/{pending.record.id}"
        link = _link_to([pending]) if stays else None
        visitor_of(request).notes.append(Note("good", f"1 call {made}.", link))
        return self._site.back(request, "/approvals" if stays else run)

    async def _ask_again(self, request: Request, key: str, error: IdeabridgeError) -> Response:
        """Return the page of a decision whose form was rejected, with what the visitor typed.

        Raises:
            IdeabridgeError: the given error, if the decision has been settled in the meantime.
        """
        pending = await self._pending(request, key)
        if pending is None:
            raise error

        card = replace(
            await self._whole_card(pending, visitor_of(request)),
            typed=form_of(request),
            fault=self._bridge.secrets.mask(str(error)),
            faulty=error.field if isinstance(error, EditFieldError) else "",
        )
        run = pending.record.id
        return await self._site.page_beside(request, "whole.html", code=400, card=card, run=run)

    async def decide_several(self, request: Request) -> Response:
        """Approve or deny each chosen call. A call whose text was changed is edited rather than
        approved.

        All decisions are checked before any of them is made. If one cannot be made, nothing is
        decided, and the page shows the reason next to that decision's field and keeps what the
        visitor wrote.
        """
        form = form_of(request)
        visitor = visitor_of(request)
        verdict = form.get("decision")
        if verdict not in ("approve", "deny"):
            raise DecisionError(f"decision: expected approve or deny, found {verdict[:40]!r}")

        rows = await self._rows_of_form(request)
        checked: list[DecisionRow] = []
        ready: list[tuple[Pending, Decision]] = []
        for row in rows:
            fault = ""
            try:
                if row.chosen:
                    ready.append(await self._checked(request, row))
                elif row.is_changed:
                    fault = "it was changed but not selected: select it, or undo the change"
            except IdeabridgeError as error:
                fault = self._bridge.secrets.mask(str(error))

            checked.append(replace(row, fault=fault))

        if any(row.fault for row in checked):
            visitor.notes.append(Note("bad", "Nothing was decided."))
            return await self._list(request, checked)
        if not ready:
            fault = "Nothing was decided: select at least one call first."
            visitor.notes.append(Note("bad", fault))
            return await self._list(request, checked)

        faults = await self._take_several(ready, visitor)
        if faults:
            raise DecisionError("\n".join(faults))
        return self._site.back(request, "/approvals")

    async def _checked(self, request: Request, row: DecisionRow) -> tuple[Pending, Decision]:
        """Return the pending question of a chosen row, and the decision to make on it.

        Raises:
            IdeabridgeError: the decision cannot be made.
        """
        pending = row.pending
        if pending is None:
            raise DecisionError(_waits_no_longer(row.key))

        form = form_of(request)
        reason = form.get("reason").strip() or None
        decision = _by(_of_several(row, form.get("decision"), reason), request)
        run = await self._bridge.run(pending.record.id, caller=pending.record.caller)
        run.check(pending.approval, decision)
        await compute_in_thread(_expect_seen, pending, decision, row.seal, visitor_of(request))
        return pending, decision

    async def _take_several(
        self, decisions: list[tuple[Pending, Decision]], visitor: Visitor
    ) -> list[str]:
        """Make decisions that have already been checked, and tell the visitor how many were made.
        Return why the remaining decisions were not made.
        """
        counts = Counter[str]()
        faults: list[str] = []
        for pending, decision in decisions:
            try:
                await self._take(pending, decision)
                counts[_MADE[decision.decision]] += 1
            except IdeabridgeError as error:
                # The question was settled elsewhere, or its run ended, after the decision had been
                # checked.
                fault = str(error)
                run_id = pending.record.id
                faults.append(fault if run_id in fault else f"{run_id}: {fault}")

        if counts:
            made = [f"{counted(number, 'call')} {verdict}" for verdict, number in counts.items()]
            link = _link_to([pending for pending, _ in decisions])
            visitor.notes.append(Note("good", f"{', '.join(made)}.", link))
        return faults

    async def _rows_of_form(self, request: Request) -> list[DecisionRow]:
        """Return the rows of the form, with what the visitor chose and wrote."""
        form = form_of(request)
        chosen = form.all("which")
        texts = form.with_prefix("call.")
        seals = form.with_prefix("seal.")
        keys = list(dict.fromkeys((*texts, *chosen)))
        records: list[RunRecord] = []
        for run_id in dict.fromkeys(key.partition(":")[0] for key in keys):
            # If the run has been deleted in the meantime, its row says so.
            with contextlib.suppress(UnknownRunError):
                records.append(self._site.record(request, run_id))

        visitor = visitor_of(request)
        decisions = [
            decision
            for record in records
            for decision in await self._site.histories.pending(record)
        ]
        cards = await compute_in_thread(
            lambda: {pending.key: Card.of(pending, visitor) for pending in decisions}
        )
        rows: list[DecisionRow] = []
        for key in keys:
            card = cards.get(key)
            blank = DecisionRow(key, None, None) if card is None else DecisionRow.of(card)
            text = texts.get(key, blank.text)
            seal = seals.get(key, "")
            rows.append(replace(blank, text=text, seal=seal, chosen=key in chosen))

        # Leave out a decision that was made elsewhere, unless the visitor has chosen its row.
        return [row for row in rows if row.pending is not None or row.chosen]

    async def _take(self, pending: Pending, decision: Decision) -> None:
        run = await self._bridge.run(pending.record.id, caller=pending.record.caller)
        self._site.front.running.publish_when_done(run)
        await self._bridge.decide(run, pending.approval, decision)


def _link_to(decided: list[Pending]) -> PageLink | None:
    """Return a link to the run that shows the results of the decisions, or None if they belong to
    several runs.
    """
    records = {pending.record.id: pending.record for pending in decided}
    if len(records) > 1:
        return None
    [record] = records.values()
    return PageLink(f"/runs/{record.id}", f"See the run {run_name(record)}")


def _has_unknown_values(decided: Decided) -> bool:
    """Return whether the values of a decided call are not those that its author wrote, because it
    was edited, or not those of one call, because a rule or a grant approved several.
    """
    return decided.decision == "edit" or decided.calls > 1


def _refers_to_result(value: JSON) -> bool:
    return isinstance(value, str) and value.startswith("†") and not value.startswith(_INPUT)


def _verdict(decided: Decided) -> str:
    """Return the page's words for a decision."""
    if decided.rule is not None:
        return "always allowed"
    if decided.granted is not None:
        return "allowed for its run"
    return _MADE.get(decided.decision, decided.decision)


def _counted_calls(decided: Decided) -> str:
    """Return how many calls a rule or a grant approved; see `PastDecision.counted`."""
    if decided.cause is None:
        return ""

    text = counted(decided.calls, "call")
    if decided.has_more:
        text = f"at least {text}"
    return f"{text}, last" if decided.calls > 1 else f"{text},"


def _named(shown: JSONObject, key: str) -> str:
    """Return the name of a call's tool or server, or "" if the call does not name it."""
    name = shown.get(key)
    return visible(name) if isinstance(name, str) else ""


def _in_words(call: JSONObject, run_input: JSONObject) -> str:
    """Return the first values in a call on one line. References to the run's input are replaced by
    their values, and other references are left out.
    """
    parameters: list[tuple[str, JSON]] = []
    for name, written in call.items():
        value = written
        if isinstance(value, str) and value.startswith(_INPUT):
            value = run_input.get(value.removeprefix(_INPUT), value)
        is_reference = value is written and isinstance(value, str) and value.startswith("†")
        if not name.startswith("_") and not is_reference:
            parameters.append((name, value))

    texts = [
        f"{visible(name)} {shown_value(value, _LONGEST_VALUE)}"
        for name, value in parameters[:_MOST_VALUES]
    ]
    return ", ".join([*texts, "…"] if len(parameters) > _MOST_VALUES else texts)


_INPUT: Final = "†input."

_FIRST: Final = (-math.inf, "")
"""The position before all decisions."""


def _read_place(text: str) -> tuple[float, str]:
    """Parse the position that `_list` writes into a link: that of the decision after which a page
    begins. Any other text means the position before all decisions.
    """
    asked, separator, key = text.partition(":")
    if separator:
        with contextlib.suppress(ValueError):
            return float(asked), key
    return _FIRST


def _waits_no_longer(key: str) -> str:
    return f"{key[:200]} is not waiting for a decision; it may already be settled"


def _expect_seen(pending: Pending, decision: Decision, seal: str, visitor: Visitor) -> None:
    """Check that the visitor has seen everything that a decision would allow.

    Raises:
        DecisionError: the form does not come from a page that showed the question in full.
    """
    if decision.decision in REFUSING:
        return
    expected = pending.shown(WHOLE_PAGE).seal(visitor.secret, pending.key)
    if expected and hmac.compare_digest(seal.encode(), expected.encode()):
        return
    raise DecisionError(
        f"{pending.key} was not shown in full, or the question has changed since it was shown: "
        "open it with `Show all` and decide there. You can deny it anywhere"
    )


def _expect_no_other_edit(question: Question, form: FormFields) -> None:
    """Check that the visitor has made no edits in the form that this decision would ignore.

    Raises:
        DecisionError: the form contains changes that belong to another of its buttons.
    """
    decision = form.get("decision")
    if "edit" not in question.choices or _NAMES[decision] in REFUSING:
        return

    if decision != "fields" and has_edited_fields(question, form):
        raise DecisionError(
            "nothing was decided, because values were changed that this would not run: choose "
            "`Run with these values`, or undo the changes"
        )

    text = form.get("value").strip()
    if decision != "edit" and text and _differs(text, _editable(question)):
        raise DecisionError(
            "nothing was decided, because JSON was changed that this would not run: choose the "
            "button below it, or undo the change"
        )


def _editable(question: Question) -> JSONObject:
    """Return the part of a question that a visitor can edit; see `Card.editable`."""
    if question.kind == "call":
        return call_without_ids(question.shown)
    return question.shown


def _differs(text: str, shown: JSONObject) -> bool:
    """Return whether `text` is anything other than the JSON of the given call or plan."""
    written = as_json(shown)
    try:
        # Compare them as JSON, because 1 and true are equal in Python.
        return text.strip() != written and as_json(decode(text)) != written
    except IdeabridgeError:
        return True


def _of_several(row: DecisionRow, verdict: str, reason: str | None) -> Decision:
    if verdict == "deny":
        return Decision("deny", reason=reason)
    if row.text is None or not row.is_changed:
        return Decision("approve", reason=reason)
    return Decision("edit", call=decode(row.text, what="the call"), reason=reason)


def _by(decision: Decision, request: Request) -> Decision:
    return replace(decision, by=visitor_of(request).decider)


def _edit(form: FormFields, question: Question) -> Decision:
    """Return the decision to run what the visitor wrote in the form instead."""
    if form.get("decision") == "fields":
        return Decision("edit", call=call_of_fields(question, form))

    text = form.get("value").strip()
    if not text:
        raise ArgumentError("write what should run instead, as JSON")
    edited = decode(text, what="the value")
    if question.kind == "plan":
        return Decision("edit", plan=edited)
    return Decision("edit", call=edited)


def _decision(form: FormFields, name: DecisionName, question: Question) -> Decision:
    """Return the decision on a question that a form contains."""
    reason = None
    if name in REFUSING:
        # The field for the reason is part of the option to refuse.
        reason = form.get("reason").strip() or None

    text = form.get("value").strip()
    if name == "value":
        if not text:
            raise ArgumentError("write the value, as JSON")
        return Decision(name, value=decode(text, what="the value"), reason=reason)

    if name == "edit":
        return _edit(form, question)

    grant: JSONObject | None = None
    if form.get("decision") == "grant":
        grant = {"for": "run"}
        most = form.get("max").strip()
        if most:
            number = number_from(most)
            if number is None:
                raise ArgumentError(f"at most: expected a number of calls, found {most[:20]!r}")
            grant["max"] = number

    always = form.get("decision") == "always"
    return Decision(name, reason=reason, grant=grant, always=always)
