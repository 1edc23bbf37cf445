"""Settings of a run: what the machine must know to take the same steps again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from ideabridge.bridge.loop.listed_order import ModuleOrder, Ordering
from ideabridge.bridge.loop.policy import ApprovalSetting
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.reading import READING

Planning: TypeAlias = Literal["eager", "lazy"]
"""When the calls of a Solution run."""

PLANNINGS: Final[tuple[Planning, ...]] = get_args(Planning)


@dataclass(frozen=True, slots=True)
class Settings:
    """Bounds and choices of one run.

    Attributes:
        order: which calls keep their listed order; see `ListedOrder`.
        modules: what the configuration says about the order of single modules, by their names.
        parallel_calls: how many calls (and items of `_each`) run at once.
        calls: how many calls a run may list.
        items: how many items one `_each` may have.
        requests: how many Requests a run may make.
        tokens: how many tokens its minds may use; None: as many as they like.
        planning: `eager`: planning is execution; `lazy`: nothing of a Solution runs before it is accepted as a whole.
        depth: how deep rooms may open in each other.
        cost: how many US dollars its minds may spend; None: as many as they like.
        wall_seconds: how long a run may take, in seconds of the clock; the runner watches it.
        output_by_instance: the output is a map by instance.
        thought_process: whether minds write their reasoning before the calls; it is journaled, and changes nothing.
        reading: by which rules calls and outputs are read; see `READING`.
        uncaught_items: `p || q` of an `_each` does not catch an item that may have taken effect; see `UNCERTAIN`.
        approval: `default` (read-only runs, all else asks), `allow_all`, or an object of rules; see `loop.policy`.
    """

    order: Ordering = "effects"
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
    reading: int = READING
    uncaught_items: bool = True

    @property
    def lazy(self) -> bool:
        """Whether plans wait to be accepted."""
        return self.planning == "lazy"

    def to_json(self) -> JSONObject:
        """The settings as a journal holds them."""
        modules: JSONObject = {
            name: {"ordered": one.ordered, "reads": list[JSON](one.reads)} for name, one in self.modules.items()
        }
        return {
            "ordering": self.order,
            "modules": modules,
            "parallel_calls": self.parallel_calls,
            "calls": self.calls,
            "items": self.items,
            "requests": self.requests,
            "wall_seconds": self.wall_seconds,
            "output_by_instance": self.output_by_instance,
            "approval": self.approval,
            "tokens": self.tokens,
            "cost": self.cost,
            "depth": self.depth,
            "planning": self.planning,
            "thought_process": self.thought_process,
            "reading": self.reading,
            "uncaught_items": self.uncaught_items,
        }

    @classmethod
    def from_json(cls, value: JSONObject) -> Settings:
        """The settings that `to_json` wrote; what was not noted then is as it was then."""
        members: dict[str, Any] = {"reading": 1, "uncaught_items": False, **value}
        modules: dict[str, Any] = members.pop("modules", {})
        if "ordering" in members:
            order = members.pop("ordering")
        else:
            # Version 0.1 wrote `order`; its `all` held within one module and instance.
            order = {"all": "listed"}.get(members["order"], members["order"])
        members["order"] = order
        members["modules"] = {name: ModuleOrder(one["ordered"], tuple(one["reads"])) for name, one in modules.items()}
        return cls(**members)
