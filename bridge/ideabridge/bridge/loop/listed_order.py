"""Listed order: which calls wait for those listed before them though they share no data (DESIGN 4.4.2)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ideabridge.bridge.loop.call import Call
from ideabridge.bridge.loop.cycles import emission
from ideabridge.tools.tool import Order, Tool

_Group: TypeAlias = "tuple[str | None, str]"


class ListedOrder:
    """Keeps calls of one Solution in the order they are listed, within module and instance.

    Args:
        order: which calls keep it: those of tools that declare effects, all, or none.
    """

    def __init__(self, order: Order) -> None:
        self._order: Order = order
        self._groups: dict[_Group, list[int]] = {}
        self._joined: dict[_Group, list[int]] = {}

    def note(self, call: Call) -> None:
        """A call is listed; its tool is known, its instance too."""
        key = self._group(call, call.tool)
        if key is None:
            return
        group = self._groups.setdefault(key, [])
        if group:
            call.order = [group[-1], *self._joined.get(key, ())]
        group.append(call.index)

    def _group(self, call: Call, tool: Tool | None) -> _Group | None:
        keeps = self._order == "all" or (
            self._order == "declared" and tool is not None and tool.annotations.declares_effects
        )
        return (tool.module if tool else None, call.instance) if keeps else None

    def join(self, call: Call, tool: Tool) -> None:
        """Another tool runs in the place of a call's own: it keeps the order of that tool's group, where the call
        stands. `rearrange` follows.
        """
        for key, group in self._groups.items():
            if call.index in group:
                group.remove(call.index)
                if call.index in self._joined.get(key, ()):
                    self._joined[key].remove(call.index)
        call.order = []
        key = self._group(call, tool)
        if key is not None:
            insort(self._groups.setdefault(key, []), call.index)
            self._joined.setdefault(key, []).append(call.index)

    def rearrange(self, data: Mapping[int, Sequence[int]], call_of: Callable[[int], Call]) -> None:
        """Listed order gives way where data flows backwards: an earlier call that reads a later one runs after it.

        Args:
            data: what each call waits for, in listing order.
            call_of: the call of an index.
        """
        group_of = {index: key for key, group in self._groups.items() for index in group}
        last: dict[_Group, list[int]] = {}
        joined: dict[_Group, list[int]] = {}
        for part in emission({index: [*targets] for index, targets in data.items()}, self._groups.values()):
            here: dict[_Group, list[int]] = {}
            for index in part:
                key = group_of.get(index)
                if key is not None:
                    # Who had begun when another joined did not wait for it: who follows waits for both.
                    call_of(index).order = list(dict.fromkeys([*last.get(key, ()), *joined.get(key, ())]))
                    here.setdefault(key, []).append(index)
            for key, indexes in here.items():
                late = self._joined.get(key, ())
                joined.setdefault(key, []).extend(index for index in indexes if index in late)
            last.update(here)

    def late(self, call: Call) -> Sequence[int]:
        """The calls a call has to wait for although it was put up already: one of its group joined late."""
        return call.order if self._joined else ()
