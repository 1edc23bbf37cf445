"""Seen: whether a published function was answered for an input before, and whether that still holds (DESIGN 4.11)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ideabridge.bridge.ideas.records import Publication
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.effect import room_name
from ideabridge.bridge.loop.progress import Standing
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.replay.recorded import RecordedRun, read_run
from ideabridge.tools.encoding import JSON, JSONObject, content_hash
from ideabridge.tools.tool import ANONYMOUS, Annotations, Tool


@dataclass(frozen=True, slots=True)
class Seen:
    """An answer that was given before.

    Attributes:
        output: what the run gave.
        run: the run.
        at: when it began, in seconds since 1970: nothing in it is older.
    """

    output: JSON
    run: str
    at: float


def same_input(value: JSON) -> JSON:
    """An input with the keys of its objects in one order: where this is the same, the input is.

    Nothing else is made alike. What is left to a default of the schema is not given to the run either, and 1.0 put
    into a text is not 1.
    """
    if isinstance(value, dict):
        return {key: same_input(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [same_input(item) for item in value]
    return value


def subject_of(publication: Publication, arguments: JSONObject) -> bytes:
    """What an answer belongs to, as 32 bytes: how it is worked out, by whom it may be seen, and the input.

    Versions of a name that differ in their description alone share their answers.
    """
    plan = {key: value for key, value in (publication.plan or {}).items() if key not in ("lifting", "pins")}
    return bytes.fromhex(
        content_hash(
            {
                "owner": publication.owner,
                "plan": plan,
                "solve": publication.guide,
                "input_schema": publication.input_schema,
                "output_schema": publication.output_schema,
                "arguments": same_input(arguments),
            }
        )
    )


def seen_before(
    store: Store,
    publication: Publication,
    arguments: JSONObject,
    tools: Callable[[Plan], Catalogue],
    fingerprint: str,
    *,
    caller: str,
    since: float,
) -> Seen | None:
    """The latest answer to the same input that still holds; None: there is none, and it is worked out anew.

    Args:
        store: holds the runs.
        publication: what is called.
        arguments: its input.
        tools: the tools there are now, with those that calls name.
        fingerprint: of the configuration now: an answer of another project, or of other servers, is none of here.
        caller: whose runs count, besides the one it was published from.
        since: none that began before, in seconds since 1970.
    """
    if Annotations.from_json(publication.annotations).read_only is not True:
        return None
    for run, at in store.answers(subject_of(publication, arguments), caller, since):
        found = read_run(store, run)
        if found is not None and changed_since(store, found, tools, fingerprint) is None:
            return Seen(found.result, run, at)
    return None


def changed_since(store: Store, run: RecordedRun, tools: Callable[[Plan], Catalogue], fingerprint: str) -> str | None:
    """Why what a run gave is not given again; None: it ended without errors, its calls only read, as their tools say
    now, and the tools are what they were.

    Args:
        store: holds the rooms of the run, which are looked at too.
        run: the run.
        tools: the tools there are now, with those that calls name.
        fingerprint: of the configuration now.
    """
    record = store.run(run.id)
    if record is None or record.fingerprint != fingerprint:
        return "the configuration is another than it was"
    if run.machine.errors:
        return "it ended with errors"
    otherwise = run.not_as_listed()
    if otherwise:
        return otherwise[0]
    machine = run.machine
    calls: list[JSON] = [one.call.raw for one in machine.history]
    defined = tuple(one.value for one in machine.messages if one.type == "tool" and isinstance(one.value, dict))
    now = tools(Plan(calls=calls, tools=defined))
    rooms = {room.id: room for room in store.rooms_of(run.id)}
    for one in machine.history:
        then = one.tool
        if one.standing is Standing.CAUGHT:
            return f"{one.call.name} failed"
        if one.unasked or any(item.questions for item in one.items):
            # What a person said is theirs, and of that call.
            return f"the module of {one.call.name} asked something"
        if one.call.has_latent or then is None or then.key in machine.catalogue.latent or then.module == ANONYMOUS:
            # A mind wrote it, or a room answered it, whose own calls are looked at below.
            continue
        tool = now.same(then)
        if tool is None:
            return f"{then.name} is gone"
        if tool.annotations.read_only is not True:
            return f"{tool.name} does not say that it only reads"
        # The remote name of an idea has its version.
        if tool.digest != then.digest or (then.in_room and tool.remote_name != then.remote_name):
            return f"{tool.name} is another than it was"
        items = range(len(one.items)) if one.call.has_each else [None]
        named = [room_name(run.id, (one.call.index, item)) for item in items]
        if then.in_room and not rooms.keys() >= {*named} and _answers_by_itself(store, then):
            # It may be as old as it may be, and would be given again for as long.
            return f"{then.name} gave a stored answer"
    for room in rooms.values():
        inner = read_run(store, room.id)
        why = "it did not end well" if inner is None else changed_since(store, inner, tools, fingerprint)
        if why is not None:
            return f"{room.id}: {why}"
    return None


def _answers_by_itself(store: Store, tool: Tool) -> bool:
    name, _, version = (tool.remote_name or tool.name).partition("@")
    return store.publication(name, int(version)).answer == "auto"
