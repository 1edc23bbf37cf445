"""Tick: the calls of one Solution on their way (DESIGN 4.4, 4.5).

A call is considered again when the one thing it waits for happens: no barrier, no polling.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from ideabridge.bridge.context.errors import StateWriteError
from ideabridge.bridge.context.reference import Path
from ideabridge.bridge.context.state_schema import StateSchema
from ideabridge.bridge.loop.call import UNCAUGHT, Call, ErrorKind
from ideabridge.bridge.loop.doubt import raise_doubt, settle_doubt
from ideabridge.bridge.loop.effect import AskApproval, Effect, Execute, ExecutionKey
from ideabridge.bridge.loop.event import CallDecided, CallFinished, JournalError, OutcomeAsked, OutcomeDecided
from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.loop.memory import Memory, Write
from ideabridge.bridge.loop.policy import Policy
from ideabridge.bridge.loop.progress import Absent, Item, Judge, Progress, Standing, Wait, items_error
from ideabridge.bridge.loop.readiness import Readiness, Refusal, digest_of, edited_parameters, resolved_call
from ideabridge.bridge.loop.settings import Settings
from ideabridge.tools.encoding import JSON, JSONObject

EffectKey: TypeAlias = "tuple[str, int, int | None]"


class Tick:
    """Runs the calls of one Solution; effects nobody has acknowledged yet stand in `due`, open rooms in `rooms`.

    Args:
        graph: the Solution's calls; closed already where it arrived whole.
        memory: the documents of the run.
        settings, policy: of the run.
        schemas: state schemas by instance.
    """

    def __init__(
        self,
        graph: Graph,
        memory: Memory,
        settings: Settings,
        policy: Policy,
        schemas: dict[str, StateSchema],
    ) -> None:
        self.graph = graph
        self.due: dict[EffectKey, Effect] = {}
        self.progress: dict[int, Progress] = {}
        self.rooms: dict[ExecutionKey, None] = {}
        self.corrections: list[JSONObject] = []
        self._memory = memory
        self._settings = settings
        self._policy = policy
        self._schemas = schemas
        self.judge = Judge(memory, self.progress)
        self._readiness = Readiness(graph, self.judge, self.progress, settings.items)
        self._waiting: dict[int | None, list[int]] = {}
        self._consider: deque[int] = deque()
        self._queue: deque[tuple[int, int]] = deque()
        self._running = 0
        self._asking = 0
        self._unsettled = 0

    # -- what comes in -----------------------------------------------------------------------------------------

    def propose(self, raw: JSON, place: int | None = None) -> None:
        """Take up one call of an answer that still streams."""
        self._list(self.graph.add(raw, place))
        self._drain()

    def take_up(self) -> None:
        """Take up every call of a Solution that arrived whole, its graph closed."""
        for call in self.graph.calls:
            self._list(call)
        self._drain()

    def close(self) -> None:
        """The answer has ended."""
        self.graph.close()
        self._consider.extend(index for index, one in self.progress.items() if one.standing is Standing.WAITING)
        self._waiting.clear()
        self._drain()

    def started(self, index: int, item: int | None) -> None:
        """An `Execute` was acknowledged."""
        if self.due.pop(("execute", index, item), None) is None:
            raise JournalError(f"call {index} was started without being due")
        self.progress[index].items[item or 0].started = True
        if self.progress[index].call.room is not None:
            self.rooms[index, item] = None

    def asked(self, index: int) -> None:
        """An `AskApproval` was acknowledged."""
        if self.due.pop(("approve", index, None), None) is None:
            raise JournalError(f"approval of call {index} was asked without being due")
        self.progress[index].asked = True

    def finished(self, event: CallFinished) -> None:
        """A call, or one item of it, ended."""
        progress = self.progress.get(event.call)
        number = event.item or 0
        if progress is None or progress.standing is not Standing.RUNNING or number >= len(progress.items):
            raise JournalError(f"call {event.call} finished without running")
        item = progress.items[number]
        if item.finished or not item.started:
            raise JournalError(f"call {event.call} finished twice or without having started")
        item.finished, item.value, item.error = True, event.value, event.error
        self._running -= 1
        self.rooms.pop((event.call, event.item), None)
        progress.open_items -= 1
        if progress.open_items == 0:
            self._complete(progress, event.chosen)
        self._drain()

    def doubted(self, event: OutcomeAsked) -> None:
        """What came of an execution in flight nobody knows: a person is asked."""
        raise_doubt(self.progress, event)
        self._running -= 1
        self._asking += 1

    def undoubted(self, event: OutcomeDecided) -> None:
        """A person said what came of it, or to run it again."""
        ended = settle_doubt(self.progress, event)
        self._asking -= 1
        if ended is None:
            self._queue.append((event.call, event.item or 0))
            self._drain()
        else:
            self._running += 1
            self.finished(ended)

    def decided(self, event: CallDecided) -> None:
        """A person, or a policy acting for one, decided on a call."""
        progress = self.progress.get(event.call)
        if progress is None or progress.approval is None or progress.standing is not Standing.ASKING:
            raise JournalError(f"call {event.call} is not waiting for a decision")
        if event.digest != progress.approval[1]:
            raise JournalError(f"the decision on call {event.call} is bound to another call than the one that waits")
        self.due.pop(("approve", event.call, None), None)
        self._asking -= 1
        resolved = progress.approval[2]
        progress.approval = None
        if event.decision == "deny":
            reason = event.reason or "no reason given"
            self._correct(resolved, None, event)
            self._fail(progress, "denied", f"denied by {event.by}: {reason}")
        else:
            if event.decision == "edit" and event.edited is not None:
                self._correct(resolved, event.edited, event)
                progress.items = [Item(parameters) for parameters in edited_parameters(event.edited)]
            self._queue_up(progress)
        self._drain()

    def _correct(self, proposed: JSONObject, ran: JSONObject | None, event: CallDecided) -> None:
        self.corrections.append({"proposed": proposed, "ran": ran, "by": event.by, "reason": event.reason})

    # -- what stands -------------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether the answer has ended and every call is settled."""
        return self.graph.closed and self._unsettled == 0

    @property
    def waits_for_people(self) -> bool:
        """Whether nothing moves here until a person decides."""
        return self._asking > 0 and self._running == 0 and self.graph.closed

    @property
    def at_rest(self) -> bool:
        """Whether nothing moves here but in rooms."""
        return self._running == len(self.rooms) and self.graph.closed

    def errors(self) -> list[JSONObject]:
        """The failed calls, in listing order: `{"call", "place", "error"}`."""
        return [
            {"call": one.call.raw, "place": one.call.place, "error": one.error}
            for one in self.progress.values()
            if one.standing is Standing.FAILED
        ]

    # -- moving on ---------------------------------------------------------------------------------------------

    def _list(self, call: Call) -> None:
        self.progress[call.index] = Progress(call)
        self._unsettled += 1
        self._consider.append(call.index)

    def _drain(self) -> None:
        while True:
            while self._consider:
                progress = self.progress[self._consider.popleft()]
                if progress.standing is Standing.WAITING:
                    self._look(progress)
            self._dispatch()
            if not self._stuck():
                return

    def _stuck(self) -> bool:
        """Name a cycle through later alternatives: nothing runs, nobody is asked, and calls still wait."""
        if not self.graph.closed or self._running or self._asking or self._queue or not self._unsettled:
            return False
        waiting = [one for one in self.progress.values() if one.standing is Standing.WAITING]
        names = " -> ".join(one.call.label for one in waiting[:10])
        self._waiting.clear()
        for progress in waiting:
            self._fail(progress, "structural", f"a cycle: {names} wait for each other")
        return bool(waiting)

    def _look(self, progress: Progress) -> None:
        call = progress.call
        if call.problems:
            self._fail(progress, "structural", "; ".join(call.problems))
            return
        found = self._readiness.look(call)
        if isinstance(found, Wait):
            self._waiting.setdefault(found.on, []).append(call.index)
        elif isinstance(found, Absent):
            self._absent(progress, found)
        elif isinstance(found, Refusal):
            self._fail(progress, "runtime", f"not run: {found.message}")
        else:
            self._put_up(progress, found)

    def _absent(self, progress: Progress, absent: Absent) -> None:
        if absent.why == "skipped":
            progress.error = {"kind": "skipped", "message": absent.message}
            self._settle(progress, Standing.SKIPPED)
        elif absent.why == "failed":
            self._fail(progress, "dependency", f"not run: {absent.message}")
        else:
            self._fail(progress, "runtime", f"not run: {absent.message}")

    def _put_up(self, progress: Progress, items: list[Item]) -> None:
        """The references are resolved: ask the policy, unless nothing is left to run."""
        call = progress.call
        progress.items = items
        if all(item.finished for item in items):
            self._complete(progress, None)
            return
        tool = call.tool
        if call.has_latent or tool is None or (call.room is not None and tool.module is None):
            # Only a mind is asked.
            self._queue_up(progress)
            return
        resolved = resolved_call(progress)
        verdict = self._policy(tool, resolved)
        if verdict.verdict == "allow":
            self._queue_up(progress)
        elif verdict.verdict == "deny":
            self._fail(progress, "denied", f"denied by policy: {verdict.why or 'no reason given'}")
        else:
            digest = digest_of(resolved)
            if isinstance(digest, Refusal):
                self._fail(progress, "runtime", f"not run: {digest.message}")
                return
            approval = f"a{call.index}-{digest[:12]}"
            progress.approval = (approval, digest, resolved, verdict.why)
            progress.standing = Standing.ASKING
            self._asking += 1
            self.due["approve", call.index, None] = AskApproval(call, approval, digest, resolved, verdict.why)

    def _queue_up(self, progress: Progress) -> None:
        progress.standing = Standing.QUEUED
        progress.open_items = 0
        for number, item in enumerate(progress.items):
            if not item.finished:
                progress.open_items += 1
                self._queue.append((progress.call.index, number))

    def _dispatch(self) -> None:
        while self._queue and self._running < self._settings.parallel_calls:
            index, number = self._queue.popleft()
            progress = self.progress[index]
            progress.standing = Standing.RUNNING
            self._running += 1
            place = number if progress.call.has_each else None
            self.due["execute", index, place] = Execute.of(progress, place)

    # -- settling ----------------------------------------------------------------------------------------------

    def _complete(self, progress: Progress, chosen: str | None) -> None:
        """Every execution of the call has ended."""
        call = progress.call
        failed = [(number, item.error) for number, item in enumerate(progress.items) if item.error is not None]
        if not call.has_each:
            if failed:
                self._fail_with(progress, failed[0][1] or {})
            else:
                self._write(progress, progress.items[0].value, chosen)
            return
        values: list[JSON] = [item.value for item in progress.items]
        if failed:
            self._fail_with(progress, items_error(progress.items), partial=values)
        else:
            self._write(progress, values, chosen)

    def _write(self, progress: Progress, value: JSON, chosen: str | None) -> None:
        call = progress.call
        target = call.target
        if target is None:
            paths = call.writes
        elif target.mode == "either":
            paths = (target.paths[target.texts.index(chosen)] if chosen in target.texts else target.paths[0],)
        else:
            paths = target.paths
        try:
            self._commit(progress, paths, value)
        except StateWriteError as error:
            self._fail(progress, "runtime", f"it ran, but its result cannot be written: {error}")
            return
        progress.value = value
        self._settle(progress, Standing.DONE)

    def _commit(self, progress: Progress, paths: tuple[Path, ...], value: JSON) -> None:
        call = progress.call
        writes = [Write(call.index, call.instance, path, call.method, value) for path in paths]
        changed = self._memory.try_write(writes)
        schema = self._schemas.get(call.instance)
        if schema is not None and any(path[0] == "state" for path in paths):
            document = changed[call.instance]
            schema.check_write(document["state"] if isinstance(document, dict) else None)
        self._memory.commit(writes, changed)
        progress.wrote = paths

    def _fail(self, progress: Progress, kind: ErrorKind, message: str) -> None:
        self._fail_with(progress, {"kind": kind, "message": message})

    def _fail_with(self, progress: Progress, error: JSONObject, partial: list[JSON] | None = None) -> None:
        """A failure goes to `q` of `p || q`, where it is caught; else the call has failed."""
        call = progress.call
        progress.error = error
        target = call.target
        if target is not None and target.mode == "either" and error.get("kind") not in UNCAUGHT:
            value: JSONObject = {**error} if partial is None else {**error, "results": partial}
            try:
                self._commit(progress, (target.paths[1],), value)
            except StateWriteError as fault:
                progress.error = {**error, "message": f"{error.get('message')}; and that cannot be written: {fault}"}
            else:
                self._settle(progress, Standing.CAUGHT)
                return
        self._settle(progress, Standing.FAILED)

    def _settle(self, progress: Progress, standing: Standing) -> None:
        progress.standing = standing
        self._unsettled -= 1
        self._consider.extend(self._waiting.pop(progress.call.index, ()))
