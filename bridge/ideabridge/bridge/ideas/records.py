"""What the store gives back: records, hits and pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from ideabridge.bridge.ideas.idea import Idea, IdeaMeta
from ideabridge.tools.encoding import JSON, JSONObject

Item = TypeVar("Item")

Answer = Literal["recorded", "plan", "solve", "auto"]
"""How a call of a published idea is answered."""

ANSWERS: Final = ("recorded", "plan", "solve", "auto")


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """One page of a list. `next` is the cursor to hand back as `after`; None: this is the last page."""

    items: list[Item]
    next: str | None


@dataclass(frozen=True, slots=True)
class StoredIdea:
    """An idea as the store holds it, with the metadata of its first save."""

    idea: Idea
    meta: IdeaMeta
    id: str
    request_id: str


@dataclass(frozen=True, slots=True)
class IdeaRecord:
    """One line of a list of ideas. `names`: the names it is published under now."""

    id: str
    request_id: str
    meta: IdeaMeta
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IdeaHit:
    """One found idea, best first. For a run, its last idea; `score` is larger for better hits."""

    id: str
    meta: IdeaMeta
    names: tuple[str, ...]
    score: float


@dataclass(frozen=True, slots=True)
class Repeated:
    """Something that was done over and over: the latest idea of it, and how many runs did the same with other
    literals.
    """

    latest: IdeaRecord
    times: int


@dataclass(frozen=True, slots=True)
class Publication:
    """One version of a published name.

    Attributes:
        name: what the tool is called.
        version: 1, 2, ...; nothing is overwritten.
        idea_id: the idea it publishes.
        description: the tool's description.
        answer: how a call is answered.
        input_schema: the tool's parameters; None where the idea takes none.
        output_schema: schema of the output; None where it does not say.
        annotations: by their MCP names.
        plan: the lifted plan, for `answer="plan"`, and `"auto"` where there is one.
        recorded: what its run was: `input` and `output`, from which `answer="recorded"` answers; for `"solve"`, and
            `"auto"` without a plan, `solve`: what a fresh run begins with.
        owner: whose it is, and to whom it is published besides those it is shared with; None: everybody.
        time: when, ISO 8601 in UTC.
        live: whether this version is the one the name stands for now.
        pinned: whether the name stays with it when another is published.
    """

    name: str
    version: int
    idea_id: str
    description: str
    answer: Answer
    input_schema: JSONObject | None
    output_schema: JSONObject | None
    annotations: JSONObject
    plan: JSONObject | None
    recorded: JSON
    owner: str | None
    time: str
    live: bool
    pinned: bool = False

    @property
    def guide(self) -> JSONObject | None:
        """What a fresh run of it begins with: `{"context", "tools", "plan"?, "output_schema", "by_instance"}`; None: no
        mind is asked for it.
        """
        found = self.recorded.get("solve") if isinstance(self.recorded, dict) else None
        return found if isinstance(found, dict) else None


@dataclass(frozen=True, slots=True)
class Change:
    """What is other in one idea, or version of a name, than in another: a line for each.

    Attributes:
        lines: `+ what is new`, `- what is gone`, `~ what is other`, each with its place.
        breaking: which of the changes break a caller: a new required parameter, a removed or retyped parameter or
            field, an answer for one input alone, effects where there were none.
    """

    lines: list[str]
    breaking: list[str]


LEASE_SECONDS: Final = 15.0
"""How long a lease holds without a heartbeat, unless its driver says otherwise."""


class Lease(NamedTuple):
    """Who drives a run, as the store has it: equal ones are the same lease without a heartbeat between.

    Attributes:
        run: the run's id.
        driver: who holds it; None: nobody.
        epoch: the current fencing epoch.
        until: changes with each heartbeat. A time by the driver's clock: for lists, see `RunRecord`.
        seconds: how long it holds without a heartbeat.
    """

    run: str
    driver: str | None
    epoch: int
    until: float
    seconds: float


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run. Times are seconds since 1970 for the lease (the driver's clock), ISO 8601 in UTC elsewhere.

    Attributes:
        id: the run's id.
        kind: `plan`, `solve`, ...
        caller: whose run it is.
        title: one line for people.
        fingerprint: of the configuration it was made under.
        parent: the run it is part of.
        status: `running` until `set_status` says otherwise.
        summary: what the last `set_status` stored.
        driver: who holds the lease; None: nobody.
        epoch: the current fencing epoch; 0: never acquired.
        lease_s: how long the lease holds without a heartbeat.
        lease_until: when the lease ends by the driver's clock, which may differ from ours: for lists alone.
        created: when it was created.
        updated: when its status last changed.
        last_event: sequence number of its last event; 0: none.
        forked_from: the run it was forked from.
        forked_at: after which event of that run.
    """

    id: str
    kind: str
    caller: str
    title: str
    fingerprint: str
    parent: str | None
    status: str
    summary: JSONObject | None
    driver: str | None
    epoch: int
    lease_until: float
    created: str
    updated: str
    last_event: int
    forked_from: str | None = None
    forked_at: int | None = None
    lease_s: float = LEASE_SECONDS

    @property
    def lease(self) -> Lease:
        """Who drives it."""
        return Lease(self.id, self.driver, self.epoch, self.lease_until, self.lease_s)
