"""Rooms: runs that answer one call of another run.

A call of a latent tool, of `solve` in a clean room, or of a published idea is answered by a run of its own, its room.

- The room has its own journal and ideas. Its id is that of the run and of the call (`room_name`), so whoever takes the
  run up finds the room again, and a call that a room answers never runs twice.
- `Rooms.open` starts the room, or goes back into it. What it sees is composed here: a latent call sees the context of
  its Request, a clean room sees the call and its imports alone.
- Nobody waits for a room. When it ends, whoever drives it posts `CallFinished` to the run; where another process drives
  the run, it tries again until that one has taken it, or takes it at its own next heartbeat.
- A room whose call has ended without it (the call was cancelled, or the run has ended) is cancelled, and never goes on
  by itself. All rooms of a run count against the run's budget.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

import anyio

from ideabridge.bridge.context.messages import read_message
from ideabridge.bridge.context.references import Path, format_reference
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.errors import FinishedRunError, InterruptedRunError, RoomError
from ideabridge.bridge.loop.catalogue import Catalogue, chosen_tools
from ideabridge.bridge.loop.effect import Execute, ExecutionKey, room_name
from ideabridge.bridge.loop.event import (
    CallFinished,
    CallProposed,
    Event,
    RequestMade,
    RunEnded,
    SolutionProposed,
    UsageNoted,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.minds.choice import AUTO, SAMPLING, TURNS, Choice, choose
from ideabridge.bridge.runs.replay import Replay, Ways
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.runs.starts import Start, start_solve
from ideabridge.bridge.store.errors import PASSING, StoreError, UnknownRunError
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.schema import check_schema

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from ideabridge.bridge.context.mind import Mind
    from ideabridge.bridge.store.idea import RunRecord
    from ideabridge.bridge.store.store import Store

_AGAIN: Final = 1.0
"""Seconds until the result of a room is handed again to a run that another process drives."""

_ENDED: Final = ("done", "stalled", "limit", "cancelled", "failed")

_ORPHANED: Final = "the run it belongs to has ended, or its call was cancelled"

_COUNTED: Final = (RequestMade, CallProposed, SolutionProposed, UsageNoted)

_TASK: Final = (
    "Write the result of the call below as `output`, as the tool's description asks; it satisfies the output's schema."
    " There are no calls to make."
)


class _Runs(Protocol):
    """The runs of this process: `Runs`, which documents these members."""

    group: TaskGroup
    store: Store
    ways: Ways
    mind: Mind | None

    async def create(self, start: Start, caller: str, title: str, room: tuple[str, Run] | None = None) -> Run: ...
    def get(self, run_id: str, caller: str) -> Run: ...
    def enter(self, record: RunRecord, parent: Run) -> Run: ...


class Rooms:
    """Opens rooms, and hands their results to the runs they belong to.

    Args:
        runs: contains the runs and their rooms. Its mind answers in the rooms of plans; in the rooms of another run,
            the mind of that run does.
    """

    def __init__(self, runs: _Runs) -> None:
        self._runs = runs

    # -- opening -----------------------------------------------------------------------------------------------

    async def open(self, run: Run, effect: Execute) -> None:
        """Open the room of a call that was started, or go back into it."""
        try:
            found = await self._enter(run, effect)
        except InterruptedRunError:
            # Another process drives the room, and hands its result in.
            return
        except Exception as error:  # noqa: BLE001 - whatever hinders a room fails its call alone
            found = CallFinished(*effect.key, error=run.runner.explain_own(error))
        try:
            await run.patiently(lambda: self._opened(run, effect.key, found))
        except Exception as error:  # noqa: BLE001 - a run that cannot go on is given up alone, not the bridge
            # Whoever goes on with the run finds what stands in the journals.
            if run.runner.lost is None:
                run.runner.fail(error)

    def _opened(self, run: Run, key: ExecutionKey, found: Run | CallFinished) -> None:
        if isinstance(found, CallFinished):
            self._answer(run, found)
            return
        if found.is_orphan:
            # Its call has ended while it was being opened.
            self._cancel(run, found, _ORPHANED)
            return
        run.rooms[key] = found
        if found.machine.ended and not found.runner.is_behind:
            self._answer(run, found.as_call())
        run.moved()

    @staticmethod
    def _answer(run: Run, finished: CallFinished) -> None:
        if run.runner.lost is None and (finished.call, finished.item) in run.machine.open_rooms:
            run.rooms.pop((finished.call, finished.item), None)
            run.drive(finished)

    async def _enter(self, run: Run, effect: Execute) -> Run | CallFinished:
        room_id = room_name(run.id, effect.key)
        record = self._runs.store.runs.get(room_id)
        if record is not None:
            return self._runs.enter(record, run)
        machine, choice = run.machine, self._choice(run)
        depth = machine.settings.depth
        if depth < 1:
            raise RoomError(f"rooms are nested as deep as the settings allow: {_nesting(run, effect)}")
        # Rooms of a lazy run are eager: a person accepted the plan as a whole, and their calls ask like any others.
        settings = dataclasses.replace(machine.settings, planning="eager", depth=depth - 1, output_by_instance=False)
        if effect.call.room == "idea":
            publication = self._runs.store.publications.named(effect.tool.remote_name or effect.tool.name)
            answer = await self._runs.ways.answer(
                publication,
                effect.parameters,
                caller=run.caller,
                settings=settings,
                choice=choice,
                before=import_messages(effect.imports),
            )
            if isinstance(answer, Replay):
                return CallFinished(*effect.key, value=answer.output)
            start = answer
        elif effect.tool.module is None:
            context = here(machine, run.runner.request, effect.call.instance) if effect.call.room == "latent" else []
            start = start_solve(latent_context(effect, context), Catalogue(()), settings, effect.tool.output, choice)
        else:
            start = _start_clean_room(machine, effect, settings, choice)
        if not run.runner.wanted or effect.key not in run.machine.open_rooms:
            raise RoomError("the run it belongs to has ended")
        return await self._runs.create(start, run.caller, f"{effect.tool.name}, for {run.id}", (room_id, run))

    def _choice(self, run: Run) -> Choice:
        """Who answers in the rooms of a run: who answers in it. In those of a plan: who answers where the plan is a
        room itself, unless that is by turns; else whoever there is.
        """
        if run.machine.mode == "solve":
            return Choice(run.turns.mind or TURNS, run.turns.why or "it answers in the run that the room belongs to")
        above = None if run.parent is None else self._choice(run.parent)
        if above is not None and above.name != TURNS:
            return above
        return choose(AUTO, self._runs.mind, samples=run.turns.mind == SAMPLING)

    # -- what rooms report -------------------------------------------------------------------------------------

    def watch(self, room: Run, event: Event) -> None:
        """Called with every event of a run; the run that a room belongs to may end with it, or go on."""
        parent = room.parent
        if parent is None:
            return
        if isinstance(event, RunEnded):
            self._runs.group.start_soon(self._settle, room, parent)
        elif isinstance(event, _COUNTED):
            self._count(room)
        for watcher in list(room.root.room_watchers):
            watcher(room, event)
        parent.runner.poke()

    @staticmethod
    def follow(run: Run, event: Event) -> None:
        """Called with every event of a run or room that another process drives: only watchers here are informed."""
        if isinstance(event, CallFinished):
            run.rooms.pop((event.call, event.item), None)
        elif isinstance(event, RunEnded):
            run.rooms.clear()
        if run.parent is not None:
            for watcher in list(run.root.room_watchers):
                watcher(run, event)
            run.parent.runner.poke()

    def _count(self, room: Run) -> None:
        root = room.root
        if root.over_budget() is not None:
            # Not here: the room is taking an event, and ending the root ends it too.
            self._runs.group.start_soon(_end, root)

    async def _settle(self, room: Run, parent: Run) -> None:
        """Hand the result of a room to the run it belongs to; again, for as long as another process drives that run."""
        key = room.key
        while True:
            try:
                parent = self._runs.get(parent.id, parent.caller)
                if key in parent.machine.open_rooms:
                    self._answer(parent, room.as_call())
                return
            except UnknownRunError:
                return
            except (InterruptedRunError, StoreError):
                await anyio.sleep(_AGAIN)
            except Exception as error:  # noqa: BLE001 - a run that cannot go on is given up alone, not the bridge
                parent.runner.fail(error)
                return

    def leave(self, run: Run, ended: CallFinished) -> None:
        """End the room of a call that ended without it: it was cancelled."""
        room = run.rooms.pop((ended.call, ended.item), None)
        if room is not None:
            self._cancel(run, room, "the call it answers was cancelled")

    def close(self, run: Run) -> None:
        """End the rooms of a run that has ended."""
        for room in list(run.rooms.values()):
            self._cancel(run, room, "the run it belongs to has ended")
        run.rooms.clear()

    def _cancel(self, run: Run, room: Run, reason: str) -> None:
        # The run is behind until they are written too.
        run.ending = [one for one in run.ending if one.runner.is_behind or one.is_being_left]
        run.ending.append(room)
        # A room that another process drives finds out when that one hands its result in.
        with contextlib.suppress(InterruptedRunError, FinishedRunError):
            try:
                room.cancel(reason)
            except PASSING:
                self._runs.group.start_soon(self._cancel_later, room, reason)

    @staticmethod
    async def _cancel_later(room: Run, reason: str) -> None:
        with contextlib.suppress(InterruptedRunError, FinishedRunError, StoreError):
            # Whoever takes the room up later finds that nobody waits for it.
            await room.patiently(lambda: room.cancel(reason))

    def reopen(self, run: Run) -> None:
        """Find the rooms that stand open in a run taken up again."""
        for key in list(run.machine.open_rooms):
            record = self._runs.store.runs.get(room_name(run.id, key))
            if record is not None:
                run.rooms[key] = self._runs.enter(record, run)

    def look(self, run: Run) -> None:
        """One beat of a run that is driven here: what became of rooms that other processes drive, or of its own run."""
        with contextlib.suppress(InterruptedRunError, FinishedRunError, StoreError):
            # What the store refuses now is looked at again at the next beat.
            above = None if run.parent is None else self._runs.store.runs.get(run.root.id)
            if above is not None and above.status in _ENDED:
                run.cancel(_ORPHANED)
                return
            if run.machine.open_rooms:
                self.reopen(run)
                for room in list(run.rooms.values()):
                    if room.machine.ended and not room.runner.is_behind:
                        self._answer(run, room.as_call())
                run.moved()

    @staticmethod
    def end_orphan(room: Run) -> bool:
        """End a room whose call has ended without it, where the process that was to end it died; whether it is one."""
        if not room.is_orphan:
            return False
        with contextlib.suppress(InterruptedRunError, FinishedRunError):
            room.cancel(_ORPHANED)
        return True


def _nesting(run: Run, effect: Execute) -> str:
    """What is open in what, the outermost first: `idea:a > idea:b > ...`."""
    names = [effect.tool.module or effect.tool.name]
    while run.parent is not None:
        tool = run.parent.machine.history[run.key[0]].call.tool
        names.append("?" if tool is None else tool.module or tool.name)
        run = run.parent
    return " > ".join(reversed(names))


def _start_clean_room(machine: Machine, effect: Execute, settings: Settings, choice: Choice) -> Start:
    """The start of `solve` in a clean room; its tools are at most those of the run it belongs to."""
    task, given, schema = (effect.parameters.get(name) for name in ("task", "input", "output_schema"))
    wanted = effect.parameters.get("tools")
    patterns = [one for one in wanted if isinstance(one, str)] if isinstance(wanted, list) else []
    if isinstance(schema, dict):
        check_schema(schema, what="output_schema")
    tools = chosen_tools(machine.offer.current.tools, patterns)
    if patterns and not tools:
        raise RoomError(f"tools: this run has no tool that matches {', '.join(patterns)[:200]}")
    keys = {tool.key for tool in tools}
    catalogue = Catalogue(tools, [key for key in machine.offer.current.latent if key in keys])
    context = [*import_messages(effect.imports), str(task)]
    if given is not None:
        context.append({"type": "input", "input": given})
    return start_solve(context, catalogue, settings, schema if isinstance(schema, dict) else None, choice)


async def _end(run: Run) -> None:
    # Counted again: a room that is being closed stands in the journal of its run already, and is here still.
    reason = run.over_budget()
    if reason is not None and run.machine.phase not in ("ended", "ending"):
        try:
            run.end_at_limit(reason)
        except (InterruptedRunError, StoreError):
            # The budget is counted again wherever the run goes on.
            return
        except Exception as error:  # noqa: BLE001 - a run that cannot go on is given up alone, not the bridge
            run.runner.fail(error)


# -- what the run that answers a call sees ----------------------------------------------------------------------


def import_messages(imports: Iterable[tuple[Path, JSON]]) -> list[JSON]:
    """Context messages in which the imports are read under the paths they have here.

    Args:
        imports: (path, value), such as (`("state", "doc")`, value).
    """
    messages: list[JSON] = []
    for path, value in imports:
        kind, rest = path[0], list(path[1:])
        if kind == "results":
            # For a run that did not make them, the results of calls are data.
            kind, rest = "data", ["results", *rest]
        if kind == "data" and rest:
            messages.append({"type": "data", "kind": rest[0], "data": _nested(rest[1:], value)})
        elif kind == "data" and isinstance(value, dict):
            messages.extend({"type": "data", "kind": one, "data": held} for one, held in value.items())
        else:
            messages.append({"type": kind, kind: _nested(rest, value)})
    return messages


def _nested(path: list[str], value: JSON) -> JSON:
    for key in reversed(path):
        value = {key: value}
    return value


def here(machine: Machine, request: Request | None, instance: str) -> list[JSON]:
    """What the author of a latent call's result sees: the context of the call's Request, of its own instance.

    Args:
        machine: of the run the call is part of.
        request: the Request it was proposed in; None: a plan, which nobody was asked for.
        instance: of the call; inside the room it is the only one, and paths need no name.
    """
    context = request.context if request is not None else [message.to_json() for message in machine.messages]
    found: list[JSON] = []
    for raw in context:
        message = read_message(raw)
        # Tools and plans are for authors of calls, errors for those who correct them.
        if message.instance in ("", instance) and message.type not in ("tool", "plan", "error"):
            # A Request of a later step holds large values by reference, and nothing reads references in here.
            value = machine.state_of(message.instance) if message.type == "state" else message.value
            found.append(dataclasses.replace(message, value=value, instance="").to_json())
    return found


def latent_context(effect: Execute, before: list[JSON]) -> list[JSON]:
    """The context in which the result of a latent call is written: parameters and imports stand there whole.

    Args:
        effect: the call, resolved.
        before: messages to see besides.
    """
    call: JSONObject = {"_tool": effect.tool.name}
    if effect.tool.description:
        call["description"] = effect.tool.description
    call["parameters"] = effect.parameters
    shown: list[JSON] = [
        f"{format_reference(path)}:\n{value if isinstance(value, str) else encode_text(value)}"
        for path, value in effect.imports
    ]
    return [*before, *shown, f"{_TASK}\n{encode_text(call)}"]
