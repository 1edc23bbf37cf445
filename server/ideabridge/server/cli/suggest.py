"""`ideabridge ideas suggest`: what was done over and over, and is no tool yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.stores import opened
from ideabridge.tools.encoding import JSON, JSONObject

if TYPE_CHECKING:
    from ideabridge.bridge.ideas.records import Repeated
    from ideabridge.bridge.ideas.store import Store

_LOOKED_AT: Final = 500
_NAMED: Final = 3


@command("config", "project", "store", "json")
def suggest_ideas(
    options: Options,
    least: Annotated[
        int, typer.Option("--least", metavar="N", min=2, max=1000, help="Only what was done at least N times.")
    ] = 3,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=500, help="How many at most.")] = 10,
) -> int:
    """Show what was done repeatedly with different values and is not a tool yet. Exit code 1 if there is nothing."""
    from ideabridge.server.cli.console import print_json, say, show

    with opened(options) as store:
        # What ends with errors is no tool, however often it was tried.
        well = [one for one in store.repeated(least, _LOOKED_AT) if _ended_well(store, one)][:limit]
        found = [(one, store.idea(one.latest.id).idea.solution) for one in well]
    if options.json:
        ideas: list[JSON] = [
            {"times": one.times, "idea": one.latest.id, **one.latest.meta.to_json(), "literals": _literals(solution)}
            for one, solution in found
        ]
        print_json({"suggestions": ideas})
        return 0 if found else 1
    for one, solution in found:
        meta = one.latest.meta
        tools = ", ".join(meta.tools)
        what = f"{meta.title}: {tools}" if meta.title and meta.title != tools else tools
        show(f"done {one.times} times: {what[:100]}", "bold")
        for line in _lines(solution):
            show(f"    {line}", "dim")
        _advise(f"ideabridge ideas publish {meta.run or one.latest.id[:12]} NAME", _literals(solution))
    if not found:
        say(f"nothing was done {least} times that is not published already")
    return 0 if found else 1


def _ended_well(store: Store, one: Repeated) -> bool:
    record = store.run(one.latest.meta.run) if one.latest.meta.run else None
    return record is None or not (record.summary or {}).get("errors")


def _advise(publish: str, literals: list[JSON]) -> None:
    from ideabridge.server.cli.console import show

    if not literals:
        show(f"  publish it? {publish}")
        return
    named = ", ".join(str(one) for one in literals[:_NAMED]) + (", ..." if len(literals) > _NAMED else "")
    show(f"  its values stand in the calls ({named}). Run it once with them as input, †input.KEY in their places, and")
    show(f"  publish that run; or publish this one as it is: {publish} --accept all")


def _calls(solution: JSON) -> list[JSONObject]:
    calls = solution.get("calls") if isinstance(solution, dict) else None
    return [one for one in calls if isinstance(one, dict)] if isinstance(calls, list) else []


def _lines(solution: JSON) -> list[str]:
    """Each call in a line."""
    from ideabridge.server.cli.run_text import shown

    lines: list[str] = []
    for call in _calls(solution)[:10]:
        given: JSONObject = {key: value for key, value in call.items() if key not in ("_tool", "_outputPath")}
        path = call.get("_outputPath")
        lines.append(f"{call.get('_tool')} {shown(given)}{f' -> {path}' if isinstance(path, str) else ''}")
    more = len(_calls(solution)) - len(lines)
    return [*lines, f"... and {more} more"] if more else lines


def _literals(solution: JSON) -> list[JSON]:
    """The places of parameters that hold no reference: what a tool would have to be given."""
    from ideabridge.bridge.ideas.shape import is_literal
    from ideabridge.tools.tool import META_PROPERTIES

    return [
        f"calls.{place}.{key}"
        for place, call in enumerate(_calls(solution))
        for key, value in call.items()
        if (key not in META_PROPERTIES or key == "_each") and is_literal(value)
    ]
