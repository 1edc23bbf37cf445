"""The parameters of a call to a server's tool, and the answer to the call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    # Import these only for type checkers, because importing the SDK takes a long time.
    from ideabridge.bridge.context.inquiry import Asker
    from ideabridge.bridge.modules.asking import DirectClient
    from ideabridge.tools.encoding import JSON, JSONObject
    from ideabridge.tools.tool import Tool

OnProgress: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]
"""A function that is called with `(progress, total, message)` while a call runs."""


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """A call to a server's tool, with its timeout and everybody involved in it.

    Attributes:
        tool_name: the name of the tool in `Module.tools`.
        arguments: the arguments, named as in the Tool's parameters. They are not validated.
        timeout: the timeout, in seconds, for all attempts of the remote call together, or None for
            the configured `timeout`. The time spent connecting before the first attempt and waiting
            for other calls (`parallel`) does not count.
        progress: called with the server's progress notifications.
        queue_key: a value that all calls in one queue share, such as the id of their run; see
            `FairLimiter`.
        asker: answers the server's questions during the call, or None if nobody can. The time spent
            waiting for answers does not count.
        client: the client of a direct call, which answers the server's questions. The answer to a
            direct call contains the whole result.
        meant: the definition that was seen and approved, or None for the current definition.
        patience: see `Module.reach`.
    """

    tool_name: str
    arguments: JSONObject
    timeout: float | None = None
    progress: OnProgress | None = None
    queue_key: Hashable = None
    asker: Asker | None = None
    client: DirectClient | None = None
    meant: Tool | None = None
    patience: float | None = None


class Answer(NamedTuple):
    """The answer to a call.

    Attributes:
        value: the value of the call in a run; see `ResultReader.value`.
        result: the whole result of a direct call, as protocol JSON, or None in a run.
        aside: in a run, the content blocks of the result if they differ from the value.
    """

    value: JSON
    result: JSONObject | None
    aside: list[JSON] | None = None
