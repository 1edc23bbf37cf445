"""The limits and options of a run, which its journal contains, and the amounts that it has used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias, get_args

from ideabridge.bridge.loop.policy import ApprovalSetting
from ideabridge.tools.encoding import JSON, JSONObject, number_or_none
from ideabridge.tools.tool import Order

Planning: TypeAlias = Literal["eager", "lazy"]
"""When the calls of a Solution run: as soon as they are listed, or once the plan is accepted."""

PLANNINGS: Final[tuple[Planning, ...]] = get_args(Planning)


@dataclass(frozen=True, slots=True)
class ModuleOrder:
    """The order of one server's calls, as configured.

    Attributes:
        ordered: whether calls to the server keep their listed order.
        reads: names or patterns of tools that only read, regardless of their annotations.
        changes: names or patterns of tools that might change something, regardless of their
            annotations. This takes precedence over `reads`.
    """

    ordered: bool = True
    reads: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


RULES: Final = 2
"""The version of the rules for calls that new runs follow. A journal is folded according to the
version under which it was written.

1: if `_activity` names code, the hints of the tool that this code belongs to also decide whether a
call asks and what it waits for; and the result of a latent tool is text unless the tool's
definition describes it. 2: in a published plan, an explanation without a value is not replaced with
an explanation of a different kind, and notes are separate from assumptions; see
`context/earlier.py`.
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """The limits and options of one run.

    Attributes:
        order: which calls keep their listed order; see `ListedOrder`.
        modules: how the configuration orders calls to individual servers, keyed by server name.
        parallel_calls: the maximum number of calls (and items of `_each`) that run concurrently.
        calls: the maximum number of calls that a run can list.
        items: the maximum number of items in one `_each`.
        requests: the maximum number of Requests in a run.
        tokens: the maximum number of tokens that the run's minds can use, or None for no limit.
        planning: with `eager`, calls run as soon as they are listed. With `lazy`, a Solution runs
            only after a person has accepted it as a whole.
        depth: the maximum number of levels of rooms within rooms.
        cost: the maximum amount, in US dollars, that the run's minds can spend, or None for no
            limit.
        wall_seconds: the maximum working time of a run, in seconds, as measured by the runner.
        output_by_instance: whether the output is a map keyed by instance.
        thought_process: whether minds write their reasoning before the calls. The reasoning is
            journaled and has no other effect.
        programs: whether Solutions and plans can be programs. If a journal lacks this setting, it
            is False, because no mind was offered programs at that time.
        groups: whether an application writes the Solutions, so that they can combine their calls
            into groups.
        foresight: whether the values that exist before a Solution are checked before any part of it
            runs. If a journal lacks this setting, it is False, because calls failed only when their
            turn came at that time.
        activities: the names that `_activity` can have, or None if they are unknown.
        rules: the version of the rules for calls; see `RULES`. It is 0 in journals that lack it.
        approval: see `ApprovalSetting`.
        shown: `value` and `request` of `Shown`, in bytes. If either is missing, it depends on the
            mind.
    """

    order: Order = "effects"
    parallel_calls: int = 16
    calls: int = 10_000
    items: int = 10_000
    requests: int = 50
    wall_seconds: float = 86_400.0
    output_by_instance: bool = False
    approval: ApprovalSetting = "default"
    tokens: int | None = None
    cost: float | None = None
    depth: int = 3
    planning: Planning = "eager"
    modules: Mapping[str, ModuleOrder] = field(default_factory=dict[str, ModuleOrder])
    thought_process: bool = False
    programs: bool = False
    shown: Mapping[str, int] = field(default_factory=dict[str, int])
    groups: bool = False
    foresight: bool = False
    activities: tuple[str, ...] | None = None
    rules: int = RULES

    @property
    def lazy(self) -> bool:
        """True if a person must accept a Solution before it runs."""
        return self.planning == "lazy"

    def to_json(self) -> JSONObject:
        """Return the settings as stored in a journal."""
        modules: JSONObject = {name: _order_to_json(order) for name, order in self.modules.items()}
        apart = ("order", "modules", "shown", "activities")
        members: JSONObject = {
            member.name: getattr(self, member.name)
            for member in fields(self)
            if member.name not in apart
        }
        if self.shown:
            members["shown"] = dict[str, JSON](self.shown)

        if self.activities is not None:
            members["activities"] = list[JSON](self.activities)

        return {"ordering": self.order, "modules": modules, **members}

    @classmethod
    def from_json(cls, value: JSONObject) -> Settings:
        """Read settings written by `to_json`."""
        members: dict[str, Any] = dict(value)
        modules: dict[str, Any] = members.pop("modules", {})
        members["order"] = members.pop("ordering")
        members["modules"] = {
            name: ModuleOrder(
                order["ordered"], tuple(order["reads"]), tuple(order.get("changes", ()))
            )
            for name, order in modules.items()
        }
        activities = members.pop("activities", None)
        members["activities"] = None if activities is None else tuple(activities)
        members.setdefault("rules", 0)
        return cls(**members)


def _order_to_json(order: ModuleOrder) -> JSONObject:
    stored: JSONObject = {"ordered": order.ordered, "reads": list[JSON](order.reads)}
    if order.changes:
        stored["changes"] = list[JSON](order.changes)
    return stored


# -- spending --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Spending:
    """Tokens and cost, added up over the Requests of a run.

    Attributes:
        input_tokens, output_tokens: the tokens in all answers whose mind reported them.
        cost: the cost in US dollars of all answers whose price is known.
        last: the usage of the current Request, or None if it was not reported.
        requests, calls: the Requests and calls of rooms that have ended.
        partial: the number of answers that used more than was reported.
        estimated: the minimum number of tokens in the Requests whose usage the mind did not report.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    last: JSONObject | None = None
    requests: int = 0
    calls: int = 0
    partial: int = 0
    estimated: int = 0

    def add(self, usage: JSONObject) -> None:
        """Count the usage of one answer."""
        self.input_tokens += _count(usage, "input_tokens")
        self.output_tokens += _count(usage, "output_tokens")
        self.cost += number_or_none(usage.get("cost")) or 0.0
        # `partial` is a number in the usage of a room, and a boolean in that of a single answer.
        self.partial += _count(usage, "partial")
        self.last = usage

    def add_room(self, spent: JSONObject | None) -> None:
        """Count the usage of a room, given in the form that `to_json` returns."""
        if spent is None:
            return

        last = self.last
        self.add(spent)
        self.last = last
        self.requests += _count(spent, "requests")
        self.calls += _count(spent, "calls")
        self.estimated += _count(spent, "estimated")

    def to_json(self) -> JSONObject:
        """Return the sums as stored in an event, omitting zeros."""
        sums: JSONObject = {
            "requests": self.requests,
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost": self.cost,
            "partial": self.partial,
            "estimated": self.estimated,
        }
        return {name: value for name, value in sums.items() if value}

    @property
    def tokens(self) -> int:
        """The sum of input and output tokens."""
        return self.input_tokens + self.output_tokens

    def over(self, settings: Settings, requests: int = 0) -> str | None:
        """Return a sentence about the limit that prevents another Request, or None if no limit
        does.

        `requests` is the number of Requests so far.
        """
        if requests + self.requests >= settings.requests and requests:
            return f"{settings.requests} requests were made, which is the limit for a run"

        tokens = self.tokens + self.estimated
        if settings.tokens is not None and tokens >= settings.tokens:
            estimate = f", {self.estimated:,} of them by an estimate" if self.estimated else ""
            return (
                f"{tokens:,} tokens were used{estimate}; the limit for a run is {settings.tokens:,}"
            )
        if settings.cost is not None and self.cost >= settings.cost:
            return f"{self.cost:.4g} dollars were spent; the limit for a run is {settings.cost:g}"
        return None


def _count(usage: JSONObject, name: str) -> int:
    value = usage.get(name)
    return int(value) if isinstance(value, int) else 0
