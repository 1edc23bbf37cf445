"""Open runs that answer one call from another run.

A call to a latent tool, to `solve` in a clean room, or to a published idea is answered by another
run, the call's room.

- The room has its own journal and ideas. Its id consists of the ids of the parent and of the call
  (`room_name`), so any process that resumes the parent finds the room, and the call never runs
  twice.
- `Rooms.open` starts or reopens the room. This file composes the room's context. A latent call sees
  the context of its Request. A clean room sees only the call and its imports.
- No task waits for a room. When the room ends, its driver posts `CallFinished` to the parent. If
  another process drives the parent, the driver tries again until the parent has the result. The
  other process might also read the result itself at its next heartbeat.
- If the call ends before its room does (it was cancelled, or the parent has ended), the room is
  cancelled and never continues. All rooms of a run count against its budget.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias

import anyio

from ideabridge.bridge.context.messages import read_message
from ideabridge.bridge.context.mind import TURNS
from ideabridge.bridge.context.references import Path, format_reference, parse_reference
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
from ideabridge.bridge.minds.choice import AUTO, SAMPLING, Choice, choose
from ideabridge.bridge.runs.decision import ORPHANED
from ideabridge.bridge.runs.registry import Registry
from ideabridge.bridge.runs.replay import Replay, Ways
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.runs.services import Services
from ideabridge.bridge.runs.starts import Start, start_solve, start_step
from ideabridge.bridge.store.errors import PASSING, StoreError, UnknownRunError
from ideabridge.bridge.store.run_record import ENDED
from ideabridge.bridge.store.users import owner_of
from ideabridge.tools.encoding import JSON, JSONObject, encode_text, plain_text
from ideabridge.tools.schema import check_schema
from ideabridge.tools.tool import PROGRAM_STEP, Tool

_AGAIN: Final = 1.0
"""The time, in seconds, after which a room tries again to hand its result to a parent that another
process drives.
"""

_COUNTED: Final = (RequestMade, CallProposed, SolutionProposed, UsageNoted)

_TASK: Final = (
    "Write the result of the call below as `output`, as the tool's description asks; it must "
    "satisfy the output's schema. There are no calls to make."
)


Create: TypeAlias = Callable[[Start, str, str, tuple[str, Run]], Awaitable[Run]]
"""Creates the run of a room; see `Runs.create`."""


class Rooms:
    """Opens rooms, and hands their results to their parents.

    Args:
        services: what all runs of this process use. In the rooms of a plan, the mind of `services`
            answers. In the rooms of any other run, the mind of that run answers.
        registry: finds runs and rooms.
        ways: decides how published ideas are answered.
        create: creates the runs of rooms.
    """

    def __init__(self, services: Services, registry: Registry, ways: Ways, create: Create) -> None:
        self._services = services
        self._store = services.store
        self._registry = registry
        self._ways = ways
        self._create = create

    # -- opening -----------------------------------------------------------------------------------

    async def open(self, run: Run, effect: Execute) -> None:
        """Open the room of a call that has started, or reopen it."""
        try:
            opened = await self._enter(run, effect)
        except InterruptedRunError:
            # Another process drives the room, and will post its result.
            return
        except Exception as error:  # noqa: BLE001 - an error fails only the call of the room
            opened = CallFinished(*effect.key, error=run.runner.explain_own(error))
        try:
            await run.patiently(lambda: self._opened(run, effect.key, opened))
        except Exception as error:  # noqa: BLE001 - an error must end only this run
            # If this process has lost the run, do nothing: the process that continues it reads the
            # journals.
            if run.runner.lost is None:
                run.runner.fail(error)

    def _opened(self, run: Run, key: ExecutionKey, opened: Run | CallFinished) -> None:
        if isinstance(opened, CallFinished):
            self._answer(run, opened)
            return
        if opened.is_orphan:
            # The call that opened the room ended while the room was being opened.
            self._cancel(run, opened, ORPHANED)
            return

        run.rooms[key] = opened
        if opened.machine.ended and not opened.runner.is_behind:
            self._answer(run, opened.as_call())

        run.moved()

    @staticmethod
    def _answer(run: Run, finished: CallFinished) -> None:
        if run.runner.lost is None and (finished.call, finished.item) in run.machine.open_rooms:
            run.rooms.pop((finished.call, finished.item), None)
            run.drive(finished)

    async def _enter(self, run: Run, effect: Execute) -> Run | CallFinished:
        room_id = room_name(run.id, effect.key)
        record = self._store.runs.get(room_id)
        if record is not None:
            return self._registry.reach(record, run)

        machine = run.machine
        choice = self._choice(run)
        depth = machine.settings.depth
        if depth < 1:
            raise RoomError(
                f"the settings do not allow rooms to be nested any deeper: {_nesting(run, effect)}"
            )

        # The rooms of a lazy run are not lazy themselves, because a person has accepted the plan as
        # a whole. The calls in the rooms ask for approval as usual.
        settings = dataclasses.replace(
            machine.settings, planning="eager", depth=depth - 1, output_by_instance=False
        )
        offer = self._services.offer.to(run.caller)
        settings = offer.settings(settings)
        if effect.call.room == "idea":
            name = effect.tool.name_in_module
            # The run has this tool, so its profile allows either this idea or another one that
            # calls it.
            publication = self._store.publications.named(name, caller=owner_of(run.caller))
            answer = await self._ways.answer(
                publication,
                effect.parameters,
                caller=run.caller,
                settings=settings,
                choice=choice,
                before=_import_messages(effect.imports),
            )
            if isinstance(answer, Replay):
                return CallFinished(*effect.key, value=answer.output)
            start = answer
        elif effect.tool.key == PROGRAM_STEP:
            program = effect.parameters.get("program")
            program_input = effect.parameters.get("input")
            recorded = choice if choice.name == SAMPLING else None
            before = _import_messages(effect.imports)
            start = start_step(machine, str(program), program_input, settings, before, recorded)
        elif effect.tool.module is None:
            seen_context: list[JSON] = []
            if effect.call.room == "latent":
                seen_context = _context_of_call(machine, run.runner.request, effect.call.instance)
            start = start_solve(
                _latent_context(effect, seen_context),
                Catalogue(()),
                settings,
                effect.tool.output,
                choice,
            )
        else:
            start = _start_clean_room(machine, effect, settings, choice, offer.has_tool)

        if not run.runner.wanted or effect.key not in run.machine.open_rooms:
            raise RoomError("the run of this room has ended")
        return await self._create(
            start, run.caller, f"{effect.tool.name}, for {run.id}", (room_id, run)
        )

    def _choice(self, run: Run) -> Choice:
        """Return the mind that answers in the rooms of a run.

        In a run that a mind solves, this is the run's own mind. In a plan that is itself a room, it
        is the mind for the rooms of its parent, unless that mind is `turns`. In any other plan, it
        is the mind that `auto` chooses.
        """
        if run.machine.mode == "solve":
            return Choice(
                run.turns.mind or TURNS,
                run.turns.why or "it answers in the run that the room belongs to",
            )
        above = None if run.parent is None else self._choice(run.parent)
        if above is not None and above.name != TURNS:
            return above
        return choose(AUTO, self._services.mind, samples=run.turns.mind == SAMPLING)

    # -- following and ending rooms ----------------------------------------------------------------

    def watch(self, run: Run, event: Event) -> None:
        """Handle an event of a run or room. If another process drives the run, only call the
        watchers.
        """
        is_following = run.runner.is_following
        parent = run.parent
        if isinstance(event, CallFinished):
            room = run.rooms.pop((event.call, event.item), None)
            if room is not None and not is_following:
                self._cancel(run, room, "the call that this room answers was cancelled")
        elif isinstance(event, RunEnded):
            if not is_following:
                for room in list(run.rooms.values()):
                    self._cancel(run, room, "the run of this room has ended")
            run.rooms.clear()

        if parent is None:
            return

        if isinstance(event, RunEnded) and not is_following:
            self._services.group.start_soon(self._settle, run, parent)
        elif (
            isinstance(event, _COUNTED) and not is_following and run.root.over_budget() is not None
        ):
            # Use a separate task, because ending the root also ends this room, which is still
            # applying an event.
            self._services.group.start_soon(_end, run.root)

        for watcher in list(run.root.room_watchers):
            watcher(run, event)

        parent.runner.poke()

    async def _settle(self, room: Run, parent: Run) -> None:
        """Hand the result of a room to its parent, retrying as long as another process drives the
        parent.
        """
        key = room.key
        while True:
            try:
                parent = self._registry.get(parent.id, parent.caller)
                if key in parent.machine.open_rooms:
                    self._answer(parent, room.as_call())
                return
            except UnknownRunError:
                return
            except (InterruptedRunError, StoreError):
                await anyio.sleep(_AGAIN)
            except Exception as error:  # noqa: BLE001 - an error must end only this run
                parent.runner.fail(error)
                return

    def _cancel(self, run: Run, room: Run, reason: str) -> None:
        # Keep the rooms that are ending, because the run's events count as unwritten until these
        # rooms have written their end.
        run.ending = [
            ending for ending in run.ending if ending.runner.is_behind or ending.is_being_left
        ]
        run.ending.append(room)
        # If another process drives the room, it notices the end of the call when it tries to hand
        # over the result.
        with contextlib.suppress(InterruptedRunError, FinishedRunError):
            try:
                room.cancel(reason)
            except PASSING:
                self._services.group.start_soon(self._cancel_later, room, reason)

    @staticmethod
    async def _cancel_later(room: Run, reason: str) -> None:
        with contextlib.suppress(InterruptedRunError, FinishedRunError, StoreError):
            # If this fails, the room is ended by the process that later resumes it.
            await room.patiently(lambda: room.cancel(reason))

    def look(self, run: Run) -> None:
        """At each heartbeat of a run, check its rooms that other processes drive and, if the run is
        itself a room, its parent.
        """
        with contextlib.suppress(InterruptedRunError, FinishedRunError, StoreError):
            # If the store fails, the check is repeated at the next heartbeat.
            above = None if run.parent is None else self._store.runs.get(run.root.id)
            if above is not None and above.status in ENDED:
                run.cancel(ORPHANED)
                return
            if run.machine.open_rooms:
                self._registry.reopen(run)
                for room in list(run.rooms.values()):
                    if room.machine.ended and not room.runner.is_behind:
                        self._answer(run, room.as_call())
                run.moved()


def _nesting(run: Run, effect: Execute) -> str:
    """Return how rooms are nested, outermost first: `idea:a > idea:b > ...`."""
    names = [effect.tool.module or effect.tool.name]
    while run.parent is not None:
        tool = run.parent.machine.history[run.key[0]].call.tool
        names.append("?" if tool is None else tool.module or tool.name)
        run = run.parent
    return " > ".join(reversed(names))


def _start_clean_room(
    machine: Machine,
    effect: Execute,
    settings: Settings,
    choice: Choice,
    admits: Callable[[Tool], bool],
) -> Start:
    """Return the start of `solve` in a clean room, which has only those of its parent's tools that
    the profile admits.
    """
    task, data, schema = (
        effect.parameters.get(name) for name in ("task", "input", "output_schema")
    )
    wanted = effect.parameters.get("tools")
    if isinstance(wanted, list):
        patterns = [pattern for pattern in wanted if isinstance(pattern, str)]
    else:
        patterns = []

    if isinstance(schema, dict):
        check_schema(schema, what="output_schema")

    # An idea's plan can have tools that are not in the profile, and a mind must not get these.
    tools = chosen_tools(filter(admits, machine.offer.current.tools), patterns)
    if patterns and not tools:
        raise RoomError(f"tools: this run has no tool that matches {', '.join(patterns)[:200]}")

    keys = {tool.key for tool in tools}
    catalogue = Catalogue(tools, [key for key in machine.offer.current.latent if key in keys])
    context = [*_import_messages(effect.imports), str(task)]
    if data is not None:
        context.append({"type": "input", "input": data})

    return start_solve(
        context, catalogue, settings, schema if isinstance(schema, dict) else None, choice
    )


async def _end(run: Run) -> None:
    # Count the budget again, because a room that is being closed might have been counted twice: in
    # the journal of its parent, and as an open room.
    reason = run.over_budget()
    if reason is not None and run.machine.phase not in ("ended", "ending"):
        try:
            run.end_at_limit(reason)
        except (InterruptedRunError, StoreError):
            # The process that continues the run will count the budget again.
            return
        except Exception as error:  # noqa: BLE001 - an error must end only this run
            run.runner.fail(error)


# -- the contexts of rooms -------------------------------------------------------------------------


def _import_messages(imports: Iterable[tuple[Path, JSON]]) -> list[JSON]:
    """Return context messages for the imports (path, value), under the run's paths."""
    messages: list[JSON] = []
    for path, value in imports:
        kind = path[0]
        rest = list(path[1:])
        if kind == "results":
            # The room did not make these calls itself, so it sees their results as data.
            kind = "data"
            rest = ["results", *rest]

        if kind == "data" and rest:
            messages.append({"type": "data", "kind": rest[0], "data": _nested(rest[1:], value)})
        elif kind == "data" and isinstance(value, dict):
            messages.extend(
                {"type": "data", "kind": data_kind, "data": data}
                for data_kind, data in value.items()
            )
        else:
            messages.append({"type": kind, kind: _nested(rest, value)})

    return messages


def _nested(path: list[str], value: JSON) -> JSON:
    for key in reversed(path):
        value = {key: value}
    return value


def _context_of_call(machine: Machine, request: Request | None, instance: str) -> list[JSON]:
    """Return the context of the Request in which a latent call was proposed, or of the plan if no
    Request proposed it.

    The context contains the messages that the call's instance sees. In the room, these messages
    have no instance.
    """
    if request is not None:
        context = request.context_json
    else:
        context = [message.to_json() for message in machine.messages]

    messages: list[JSON] = []
    for raw in context:
        message = read_message(raw)
        # Leave out messages about tools, plans and errors, because only a mind that writes calls
        # needs them.
        if message.instance not in ("", instance) or message.type in ("tool", "plan", "error"):
            continue

        value = message.value
        if message.type == "state":
            # Other calls in the same Solution might have written to the state since the Request.
            value = machine.state_of(message.instance)
        elif message.type == "call" and isinstance(value, dict):
            value = _call_in_room(value, instance)

        messages.append(dataclasses.replace(message, value=value, instance="").to_json())

    return messages


def _call_in_room(call: JSONObject, instance: str) -> JSONObject:
    """Return an earlier call with its references rewritten so that they can be read in the room,
    where its result is data.
    """
    changed = dict(call)
    for name in ("value", "also"):
        texts = call.get(name)
        if isinstance(texts, str):
            changed[name] = _reference_in_room(texts, instance)
        elif isinstance(texts, list):
            changed[name] = [
                _reference_in_room(reference, instance)
                for reference in texts
                if isinstance(reference, str)
            ]

    return changed


def _reference_in_room(text: str, instance: str) -> str:
    reference = next(parse_reference(text).operands())
    if reference.kind == "results":
        return format_reference(("data", *reference.full))
    if (reference.instance or "") == instance:
        return format_reference(reference.full)
    return text


def _latent_context(effect: Execute, before: list[JSON]) -> list[JSON]:
    """Return the context in which a mind writes the result of a latent call: the messages in
    `before`, a message for each import, and the call.
    """
    call: JSONObject = {"_tool": effect.tool.name}
    if effect.tool.description:
        call["description"] = effect.tool.description
    call["parameters"] = effect.parameters
    shown: list[JSON] = [
        f"{format_reference(path)}:\n{plain_text(value)}" for path, value in effect.imports
    ]
    return [*before, *shown, f"{_TASK}\n{encode_text(call)}"]
