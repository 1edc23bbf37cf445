"""Activity: the code behind a Tool (DESIGN 2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Tool


class ActivityContext(Protocol):
    """What a running activity may know of, and say to, the run it works for.

    The runner makes one for each execution of a Call; a function takes it by a parameter with this annotation.
    """

    @property
    def call(self) -> JSONObject:
        """The Call being run, its references resolved."""
        ...

    @property
    def instance(self) -> str | None:
        """The instance the Call is for (`_instance`), or None."""
        ...

    @property
    def output_paths(self) -> tuple[str, ...]:
        """The places `_outputPath` names, in order; empty where the result is only `†results.N`."""
        ...

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the work is, in units of the activity's own (MCP progress)."""
        ...

    def add_message(self, message: JSONObject) -> None:
        """Add a typed message (DESIGN 4.1) to the context that the next Request of this run sees.

        Raises:
            ActivityError: the calls of its Solution have all ended, so that Request is made already (an activity that
                kept its context, or left a thread behind).
        """
        ...

    def choose(self, path: str) -> None:
        """Where `_outputPath` is `p || q`: write the result to `path`, one of `output_paths` (DESIGN 4.3)."""
        ...


ActivityFunction: TypeAlias = Callable[[JSONObject, ActivityContext], Awaitable[JSON]]
"""Parameters (without meta-properties, references resolved) and context -> result. Raises to fail its call."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Code under the name tools and calls know it by.

    Attributes:
        name: the name in the registry of activities; a Tool of the same name finds it.
        run: the async function.
        copies: it keeps nothing of what it is given and gives a fresh JSON value, so that nobody has to copy either.
    """

    name: str
    run: ActivityFunction
    copies: bool = False


DEFINITION: Final = "__ideabridge__"
"""Attribute in which a decorated function keeps its Definition."""


@dataclass(frozen=True, slots=True)
class Definition:
    """What one function defines: a Tool and the Activity behind it."""

    tool: Tool
    activity: Activity


def definition_of(item: object) -> Definition | None:
    """The Definition a decorated function carries; None for anything else."""
    found = getattr(item, DEFINITION, None)
    return found if isinstance(found, Definition) else None
