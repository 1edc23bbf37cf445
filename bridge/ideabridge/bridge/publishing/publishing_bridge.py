"""The interface of the bridge that publishing uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from ideabridge.bridge.context.mind import Mind
from ideabridge.bridge.minds.choice import Choice, MindName
from ideabridge.bridge.plan import PlanLike
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import LOCAL
from ideabridge.tools.encoding import JSON, JSONObject

T = TypeVar("T")


class PublishingBridge(Protocol):
    """The members of `Bridge` that publishing uses. Publishing cannot import `Bridge`, which itself
    imports publishing.
    """

    @property
    def mind(self) -> Mind | None:
        """The mind of the bridge."""
        ...

    @property
    def store(self) -> Store:
        """The open store."""
        ...

    async def run_plan(self, plan: PlanLike, *, caller: str = LOCAL, title: str = "") -> Run:
        """See `Bridge.run_plan`."""
        ...

    async def solve(
        self,
        task: str,
        *,
        output_schema: JSONObject,
        tools: Sequence[str],
        context: Sequence[JSON],
        limits: JSONObject | None = None,
        mind: MindName | Choice = "auto",
        caller: str = LOCAL,
    ) -> Run:
        """See `Bridge.solve`."""
        ...

    async def dry_run(self, plan: PlanLike, *, caller: str = LOCAL) -> dict[str, Any]:
        """See `Bridge.dry_run`."""
        ...

    async def patiently(self, call: Callable[[], T]) -> T:
        """See `Bridge.patiently`."""
        ...

    async def write(self, job: Callable[[], T]) -> T:
        """See `Bridge.write`."""
        ...
