"""Check callers' plans without blocking the event loop.

A small plan is checked on the event loop. For a dry run or a drawing, a larger plan is rehearsed in
a worker process with a deadline and a memory limit. A larger plan that is about to run is checked
in a thread instead, because the run needs the graph that the check builds. Building the graph again
would take as long as the check itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final, Literal, TypeVar, TypeVarTuple, Unpack, cast

from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.dry_run import FORMS
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.loop.solution import rejection
from ideabridge.bridge.plan import Plan, rehearse
from ideabridge.tools.encoding import JSON, JSONObject, encode
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.worker import workers

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

SMALL_CALLS: Final = 50
"""Maximum number of calls, over all instances, in a plan that is checked on the event loop. Such a
check takes a few milliseconds.
"""

SMALL_BYTES: Final = 8_000
"""Maximum size, in bytes, of a plan that is checked on the event loop. A plan of this size contains
at most a few hundred references, which take longer to check than calls.
"""

_JOB: Final = "ideabridge.bridge.checking:rehearsed"

Answer = Literal["dry_run", "mermaid", "text"]
"""The result of a rehearsal: the dry run, or a drawing."""


async def check_beside(
    plan: Plan, check: Callable[[Unpack[Arguments]], T], *arguments: *Arguments
) -> T:
    """Call a function that checks a plan, and return its result. If the plan is large, call it in a
    thread.
    """
    if _is_small(plan):
        return check(*arguments)
    return await compute_in_thread(check, *arguments)


async def dry_run(plan: Plan, catalogue: Catalogue, settings: Settings) -> JSONObject:
    """Return what a plan would do; see `Bridge.dry_run`.

    Raises:
        PlanError: the plan is malformed.
        LimitExceededError: checking the plan takes too long or too much memory.
    """
    return cast("JSONObject", await _rehearse(plan, catalogue, settings, "dry_run"))


async def drawing(
    plan: Plan, catalogue: Catalogue, settings: Settings, form: Literal["mermaid", "text"]
) -> str:
    """Draw a plan; see `Bridge.draw`.

    Raises:
        PlanError: the plan is malformed, or the form is unknown.
        LimitExceededError: checking the plan takes too long or too much memory.
    """
    if form not in FORMS:
        expected = " or ".join(map(repr, FORMS))
        raise PlanError(f"drawing: expected {expected}, found {form!r}")

    return str(await _rehearse(plan, catalogue, settings, form))


def _is_small(plan: Plan) -> bool:
    # Each instance has a copy of the calls, and each copy is checked.
    copies = max(1, len(plan.instances))
    if len(plan.calls) * copies > SMALL_CALLS:
        return False

    written = encode([plan.calls, plan.output, plan.explained])
    return len(written) * copies <= SMALL_BYTES


async def _rehearse(plan: Plan, catalogue: Catalogue, settings: Settings, answer: Answer) -> JSON:
    if _is_small(plan):
        return _answer_of(plan, catalogue, settings, answer)

    parts: JSONObject = {}
    for member in fields(plan):
        parts[member.name] = getattr(plan, member.name)

    tools, latent = catalogue.to_json()
    offered: list[JSON] = [tools, latent, catalogue.missing]
    rehearsal = await workers.run(
        _JOB,
        [parts, offered, settings.to_json(), answer],
        what=f"checking a plan of {len(plan.calls):,} calls",
    )
    report = cast("JSONObject", rehearsal)
    if "errors" in report:
        faults = cast("list[JSONObject]", report["errors"])
        raise PlanError(rejection(faults), faults)

    return report["answer"]


def _answer_of(plan: Plan, catalogue: Catalogue, settings: Settings, answer: Answer) -> JSON:
    rehearsal = rehearse(plan, catalogue, settings)
    if answer == "dry_run":
        return rehearsal.dry_run()
    return rehearsal.draw(answer)


# -- in the worker process -------------------------------------------------------------------------


def rehearsed(
    parts: dict[str, Any], offered: list[Any], settings: JSONObject, answer: Answer
) -> JSONObject:
    """Rehearse a plan. Return the result as `{"answer"}`, or the plan's faults as `{"errors"}`."""
    # On the way here, the tuple has become a list.
    parts["tools"] = tuple(parts["tools"])
    plan = Plan(**parts)
    tools, latent, missing = offered
    catalogue = Catalogue.from_json(tools, latent, missing)
    try:
        rehearsal = _answer_of(plan, catalogue, Settings.from_json(settings), answer)
    except PlanError as error:
        if not error.errors:
            raise
        return {"errors": list[JSON](error.errors)}

    return {"answer": rehearsal}
