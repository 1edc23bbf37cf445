"""Publish: an idea becomes a tool (DESIGN 4.11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from ideabridge.bridge.context.message import Message, read_context
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.ideas.idea import function_schemas
from ideabridge.bridge.ideas.records import Publication, StoredIdea
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.replay.constants import constants_of, unaccepted
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import UnknownToolError
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.schema import Validator

Answer = Literal["auto", "recorded", "plan"]

_SENTENCES = {
    "recorded": "Gives the answer recorded for its one input; nothing runs.",
    "plan": "Replays a saved plan with your input; no model is asked.",
}


@dataclass(frozen=True, slots=True)
class Function:
    """An idea seen as a function: what it read, did and gave.

    Attributes:
        stored: the idea.
        input: what `†input` read; None where it takes none.
        input_schema: the parameters of the tool.
        output_schema: schema of the output, where the idea declares one.
        calls, output: of its solution.
        result: what its run gave; `has_result` tells null from none.
        instances: initial states by instance.
    """

    stored: StoredIdea
    input: JSONObject | None
    input_schema: JSONObject
    output_schema: JSONObject | None
    calls: list[JSON]
    output: JSON
    result: JSON
    has_result: bool
    instances: dict[str, JSONObject]


def read_function(store: Store, ref: str) -> Function:
    """The idea `ref` names, as a function.

    Raises:
        UnknownIdeaError: there is none.
        PublicationError: its solution is none.
    """
    stored = store.idea(ref)
    solution = stored.idea.solution
    if not isinstance(solution, dict) or not isinstance(solution.get("calls"), list):
        raise PublicationError(f"idea {stored.id[:12]} holds no solution with calls")
    messages = read_context(stored.idea.context)
    taken = [message for message in messages if message.type == "input"]
    given = _input(taken)
    input_schema, output_schema = function_schemas(stored.idea)
    result, has_result = _result(store, stored)
    return Function(
        stored=stored,
        input=given,
        input_schema=input_schema or {"type": "object", "properties": {}, "additionalProperties": False},
        output_schema=_unwrapped(output_schema, by_mind=stored.meta.mind != ""),
        calls=cast("list[JSON]", solution["calls"]),
        output=solution.get("output"),
        result=result,
        has_result=has_result,
        instances=_instances(messages),
    )


def _unwrapped(schema: JSONObject | None, *, by_mind: bool) -> JSONObject | None:
    """The output schema as the user asked for it: a mind writes an output that may be null as `{"value": ...}`."""
    if not schema:
        return None
    properties = schema.get("properties")
    if by_mind and isinstance(properties, dict) and list(properties) == ["value"]:
        value = properties["value"]
        if isinstance(value, dict) and Validator(value, what="the output").is_valid(None):
            return value
    return schema


def _input(messages: list[Message]) -> JSONObject | None:
    if len(messages) > 1:
        raise PublicationError("the idea has several inputs; one input is what becomes a tool's parameters")
    value = messages[0].value if messages else None
    return value if isinstance(value, dict) else None


def _instances(messages: list[Message]) -> dict[str, JSONObject]:
    return {
        message.instance: message.value
        for message in messages
        if message.type == "state" and message.instance and isinstance(message.value, dict)
    }


def _result(store: Store, stored: StoredIdea) -> tuple[JSON, bool]:
    """What the run of the idea gave: its output, or its state where no output was asked for."""
    run = store.run(stored.meta.run) if stored.meta.run else None
    if run is None or run.status != "done" or run.summary is None:
        return None, False
    for key in ("output", "state"):
        if key in run.summary:
            return run.summary[key], True
    return None, False


def publish(
    store: Store,
    catalogue: Catalogue,
    ref: str,
    name: str,
    *,
    description: str | None = None,
    answer: str = "auto",
    choices: JSONObject | None = None,
    owner: str | None = None,
) -> Publication:
    """Publish an idea, or the last idea of a run, as a tool. A published name gets a new version.

    Args:
        store: holds the idea.
        catalogue: the tools there are now; a plan's must be among them.
        ref: id, unique prefix, name, `name@version`, or a run's id.
        name: what the tool is called: `^[a-z][a-z0-9_]{0,47}$`.
        description: what it does, for the models that may call it.
        answer: `recorded`, `plan`, or `auto`: `plan` where that is possible, else `recorded`.
        choices: `{"accept": true}` or `{"accept": ["calls.0.repo_path", ...]}`: constants a person accepts.
        owner: the caller it is published to; None: everyone.

    Raises:
        PublicationError: it cannot be published so; the message says what is missing.
        UnknownIdeaError: there is no such idea.
        PublicationNameError: the name cannot be a tool's.
    """
    if answer not in ("auto", "recorded", "plan"):
        raise PublicationError(f"answer: expected 'auto', 'recorded' or 'plan', found {answer!r}")
    unknown = [key for key in choices or {} if key != "accept"]
    if unknown:
        raise PublicationError(f"choices: unknown key {unknown[0]!r}; expected 'accept'")
    function = read_function(store, ref)
    chosen: Literal["recorded", "plan"] = "recorded"
    if answer != "recorded":
        impossible = _impossible(function, catalogue)
        if impossible is None:
            # What a person may still accept is asked for, also by `auto`: a replay of one input is not what was meant.
            _demand_acceptance(function, catalogue, (choices or {}).get("accept"))
            chosen = "plan"
        elif answer == "plan" or not function.has_result:
            raise PublicationError(f"it cannot be replayed as a plan: {impossible}")
    if chosen == "recorded" and not function.has_result:
        raise PublicationError(f"no finished run of idea {function.stored.id[:12]} is in this store to answer from")
    plan: JSONObject | None = None
    if chosen == "plan":
        plan = {"calls": function.calls, "output": function.output}
        if function.instances:
            plan["instances"] = dict[str, JSON](function.instances)
    meta = function.stored.meta
    text = description or meta.description or meta.title or f"Runs {', '.join(meta.tools) or name}"
    return store.publish(
        name,
        function.stored.id,
        description=f"{text.rstrip()}{'' if text.rstrip().endswith('.') else '.'} {_SENTENCES[chosen]}",
        answer=chosen,
        input_schema=function.input_schema,
        output_schema=function.output_schema,
        annotations=_annotations(function, catalogue, chosen),
        plan=plan,
        recorded={"input": function.input or {}, "output": function.result} if function.has_result else None,
        owner=owner,
    )


def _impossible(function: Function, catalogue: Catalogue) -> str | None:
    """Why the calls cannot run again for other inputs, whatever is accepted; None where they can."""
    meta = function.stored.meta
    if meta.step is not None and meta.step > 1:
        return "its run took several Requests; only a run of one can be published as a plan yet"
    if not function.calls:
        return "it has no calls to replay"
    if not function.has_result:
        return "no run of it in this store ended well, so its calls are not known to give an answer"
    for place, call in enumerate(function.calls):
        if isinstance(call, dict):
            module = call.get("_module")
            try:
                catalogue.find(str(call.get("_tool")), module if isinstance(module, str) else None)
            except UnknownToolError as error:
                return f"calls.{place}: {error}"
    return None


def _demand_acceptance(function: Function, catalogue: Catalogue, accept: JSON) -> None:
    """Every constant must be demanded by a schema or accepted by a person.

    Raises:
        PublicationError: names those that are not, and paths accepted at which nothing stands.
    """
    constants = constants_of(function.calls, function.output, catalogue)
    left = unaccepted(constants, accept)
    if left:
        shown = "; ".join(one.shown for one in left[:20])
        more = f"; and {len(left) - 20} more" if len(left) > 20 else ""
        raise PublicationError(
            f"these are constants, the same for every input: {shown}{more}. Make them references (†input...), accept"
            ' them (choices {"accept": ["calls.0.x", ...]} or {"accept": true}), or publish with answer "recorded"'
        )
    if isinstance(accept, list):
        known = [one.path for one in constants]
        for path in accept:
            if not any(one == path or one.startswith(f"{path}.") for one in known):
                raise PublicationError(
                    f"choices.accept: nothing constant stands at {path!r}.{did_you_mean(str(path), known)}"
                )


def _annotations(function: Function, catalogue: Catalogue, answer: str) -> JSONObject:
    """What can honestly be said: a recorded answer reads; a plan is what all its calls are."""
    if answer == "recorded":
        return {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
    read_only = idempotent = True
    destructive = open_world = False
    for call in function.calls:
        if not isinstance(call, dict):
            continue
        tool = catalogue.look_up(call)
        if tool is None:
            continue
        said = tool.annotations
        read_only = read_only and said.read_only is True
        idempotent = idempotent and said.repeatable
        destructive = destructive or (said.read_only is not True and said.destructive is not False)
        open_world = open_world or (tool.module is not None and said.open_world is not False)
    return {
        "readOnlyHint": read_only,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": open_world,
    }
