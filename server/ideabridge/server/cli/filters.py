"""Options that choose among ideas: declared once, for every command that lists them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

_Since = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help="Saved since: 2026-11-21, or how long ago: 3d, 12h.")
]
_Outcome = Annotated[
    str | None, typer.Option("--outcome", metavar="HOW", help="Only ideas with this outcome: done, failed, ...")
]
_FILTERS: Final[dict[str, Any]] = {
    "tool": Annotated[str | None, typer.Option("--tool", metavar="TOOL", help="Only ideas that call this tool.")],
    "module": Annotated[
        str | None, typer.Option("--module", metavar="MODULE", help="Only ideas that call this module.")
    ],
    "since": _Since,
    "until": Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Saved before then.")],
    "outcome": _Outcome,
    "mind": Annotated[
        str | None, typer.Option("--mind", metavar="WHO", help="Only ideas this mind answered: turns, model, ...")
    ],
    "tag": Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only ideas with this tag.")],
}
"""The members of an `IdeaFilter`."""


def filtered(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a command the filters, as one argument `chosen`, an `IdeaFilter`."""
    # The class itself is loaded once a command runs: starting has to be fast.
    signature = inspect.signature(function, eval_str=True, locals={"IdeaFilter": object})
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "chosen"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _FILTERS.items()
    ]

    @functools.wraps(function)
    def wrapper(*words: Any, **arguments: Any) -> int | None:
        from ideabridge.bridge.ideas.filters import IdeaFilter

        given = {name: arguments.pop(name) for name in _FILTERS}
        return function(*words, chosen=IdeaFilter(**given), **arguments)

    wrapper.__dict__["__signature__"] = inspect.Signature([*own, *added])
    return wrapper
