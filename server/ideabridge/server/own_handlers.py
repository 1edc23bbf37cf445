"""Answer calls to the server's own tools, which are defined in `own_tools`.

`OwnHandlers.call` checks the arguments of a call and passes them to the handler of its tool. Each
handler reads the arguments that the client sent, calls the bridge, and turns the bridge's answer
into a tool result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias, cast

import anyio

from ideabridge.bridge.context.preview import shorten_literal
from ideabridge.bridge.context.state import MISSING
from ideabridge.bridge.errors import DecisionError, UnknownPathError
from ideabridge.bridge.minds.choice import AUTO, choose
from ideabridge.bridge.modules.blocks import MOST_BLOCKS, Blocks
from ideabridge.bridge.modules.start_progress import reporting_starts
from ideabridge.bridge.offer.plan_tools import PlanTools
from ideabridge.bridge.offer.program_tools import names_for_program
from ideabridge.bridge.plan import Plan, read_plan
from ideabridge.bridge.publishing.program_answer import short_words
from ideabridge.bridge.publishing.written import plan_document
from ideabridge.bridge.runs.people import Decision
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.errors import StoreError
from ideabridge.server.answers import MAX_DIRECT, MAX_RESULT, ToolAnswer, answer, fitting
from ideabridge.server.asking.elicitation import by_tool
from ideabridge.server.asking.rounds import ToolRequest
from ideabridge.server.brief import NOTHING, Known
from ideabridge.server.catalogue import ToolCatalogue
from ideabridge.server.direct_calls import DirectCalls
from ideabridge.server.finding import Finding
from ideabridge.server.own_tools import read_tool_arguments
from ideabridge.server.publishing import Publishing
from ideabridge.server.running import WAIT_S, Running
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    encode,
    encode_text,
    plain_text,
)
from ideabridge.tools.errors import ArgumentError, IdeabridgeError
from ideabridge.tools.threads import compute_beside

_WRITTEN_S: Final = 5.0
"""How long, in seconds, a request for values waits for the journal to be written."""

_LISTED: Final = 200
"""Maximum length, in characters, of a title in the list of runs, and of the reason why a call was
refused.
"""

_PLAN_KEYS: Final = ("calls", "program", "input", "instances", "output", "output_schema")

Arguments: TypeAlias = dict[str, Any]
"""Arguments that satisfy the parameters of their tool."""


class OwnHandlers:
    """Answers calls to own tools. `listed` is the list of tools that hosts see.

    Every failure of a handler is an `IdeabridgeError`, whose message becomes a tool error.
    """

    def __init__(self, running: Running, listed: ToolCatalogue, record: DirectCalls) -> None:
        self._record = record
        self._bridge = running.bridge
        self._running = running
        self._publishing = Publishing(running, listed, record)
        self._finding = Finding(self._bridge, record, running.search)
        self._handlers: dict[str, Callable[[Arguments, ToolRequest], Awaitable[ToolAnswer]]] = {
            "search_tools": self._finding.search_tools,
            "run_plan": self._run_plan,
            "solve": self._solve,
            "submit_solution": self._submit_solution,
            "check_run": self._check_run,
            "decide_approval": self._decide_approval,
            "search_ideas": self._finding.search_ideas,
            "publish_idea": self._publishing.publish_idea,
        }

    @staticmethod
    def starts_run(name: str, arguments: JSONObject) -> bool:
        """Return whether a call to an own tool starts a run."""
        return name == "run_plan" or (name == "solve" and "run" not in arguments)

    async def call(self, name: str, arguments: JSONObject, request: ToolRequest) -> ToolAnswer:
        """Answer a call to an own tool.

        Raises:
            IdeabridgeError: the call fails; the message says why.
        """
        return await self._handlers[name](await read_tool_arguments(name, arguments), request)

    # -- plans -------------------------------------------------------------------------------------

    async def _run_plan(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        if request.resumed is not None:
            return await self._answered(request.resumed, arguments, request)

        parts = {key: arguments[key] for key in _PLAN_KEYS if key in arguments}
        plan = await compute_beside(parts, read_plan, parts)
        save_as = arguments.get("save_as")
        if save_as is not None:
            self._publishing.check_free(save_as, request.caller)

        await self._start_servers(plan, request)
        if arguments.get("dry_run"):
            preview = await self._bridge.dry_run(plan, caller=request.caller)
            if plan.program is None:
                preview["drawing"] = await self._bridge.draw(plan, "text", caller=request.caller)

            text = f"dry run, nothing was called: {encode_text(preview)}"
            if save_as is not None:
                document = plan_document(plan, save_as, preview.get("missing_inputs", ()))
                preview["published"], saved = await self._publishing.save(
                    document, None, request.caller
                )
                text = f"{saved}\n{text}"

            return answer(preview, text)

        run = await self._bridge.run_plan(plan, caller=request.caller, samples=request.samples)
        if save_as is not None:
            await self._bridge.patiently(lambda: self._running.save_when_done(run, save_as))

        return await self._answered(run, arguments, request)

    async def _start_servers(self, plan: Plan, request: ToolRequest) -> None:
        """If the client wants progress, start the servers of a plan and report their progress.

        The servers start before the run begins. Waiting for servers later would miss the progress
        that the run itself reports.
        """
        statuses = self._bridge.modules.statuses()
        if request.progress is None or all(status.state == "up" for status in statuses):
            return

        wait: Callable[[], Awaitable[object]]
        if plan.program is None:
            wait = PlanTools(self._bridge.offer, plan, request.caller).catalogue
        else:
            wait = partial(names_for_program, self._bridge.offer, plan.program, request.caller)

        await reporting_starts(wait, request.progress, self._bridge.modules.connecting)

    async def _answered(
        self, run: Run, arguments: Arguments, request: ToolRequest, reader: Known = NOTHING
    ) -> ToolAnswer:
        await self._running.wait_started(run, request, arguments.get("wait_s", WAIT_S))
        return self._running.answer_of(run, request, reader=reader)

    # -- turns -------------------------------------------------------------------------------------

    async def _solve(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        begins = next((key for key in ("task", "context") if key in arguments), None)
        turn = next((key for key in ("run", "turn", "solution") if key in arguments), None)
        if begins is None and turn is None:
            raise ArgumentError(
                "solve: expected either a task or a context, or all of run, turn and solution"
            )
        if begins is None:
            return await self._submit_solution(
                await read_tool_arguments("submit_solution", arguments), request
            )

        if turn is not None:
            raise ArgumentError(
                f"solve: {begins} starts a run, and {turn} continues one; pass only one of them"
            )

        if request.resumed is not None:
            return await self._answered(request.resumed, arguments, request)

        mind = choose(arguments.get("mind", AUTO), self._bridge.mind, samples=request.samples)
        guide = arguments.get("idea")
        messages: list[JSON] = arguments.get("context", [])
        guidance = [] if guide is None else self._finding.guidance(guide, request.caller)
        if "task" not in arguments and not messages:
            raise ArgumentError(
                "solve: the context is empty; expected messages that say what to do, or a task"
            )

        solve = partial(
            self._bridge.solve,
            arguments.get("task"),
            input=arguments.get("input"),
            output_schema=arguments.get("output_schema"),
            tools=arguments.get("tools"),
            context=[*guidance, *messages],
            limits=arguments.get("limits"),
            mind=mind,
            planning=arguments.get("planning", "eager"),
            shown=arguments.get("shown"),
            thought_process=arguments.get("thought_process"),
            caller=request.caller,
        )
        # Wait for servers whose tools are not known yet, so that these tools can be offered.
        connecting = self._bridge.modules.connecting
        run = await reporting_starts(solve, request.progress, connecting)
        sent: list[JSON] = [*messages]
        if "task" in arguments:
            sent.append(arguments["task"])

        if "input" in arguments:
            sent.append({"type": "input", "input": arguments["input"]})

        result = await self._answered(run, arguments, request, Known(sent=tuple(sent)))
        if result.get("isError"):
            await run.patiently(lambda: run.cancel("its first Request was too large to show"))

        return result

    async def _submit_solution(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        room = await self._run(arguments, request)
        before = room.runner.request
        notes = await room.patiently(
            lambda: room.submit(int(arguments["turn"]), arguments["solution"])
        )
        # Answer about the root run, because that is the run that the host started, even if the turn
        # belongs to a room.
        run = room.root
        await self._running.wait(run, arguments.get("wait_s", WAIT_S), request)
        is_next = before is not None and room.runner.request is not before
        reader = Known(room.id, before) if is_next else NOTHING
        return self._running.answer_of(run, request, reader=reader, notes=notes)

    # -- runs --------------------------------------------------------------------------------------

    async def _check_run(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        if "run" not in arguments:
            for key in ("paths", "cancel"):
                if key in arguments:
                    raise UnknownPathError(
                        f"{key}: needs `run`; without `run`, check_run lists your latest runs"
                    )

            return await self._latest(request.caller)

        if (session := await self._session_shown(arguments, request)) is not None:
            return session

        cancel = arguments.get("cancel")
        paths = arguments.get("paths")
        if cancel:
            run = await self._bridge.cancel(
                arguments["run"], "the caller cancelled it", caller=request.caller
            )
        else:
            run = await self._run(arguments, request)

        await self._running.wait(
            run, arguments.get("wait_s", 0.0 if cancel or paths else WAIT_S), request
        )
        if paths:
            # Wait until the latest events are in the journal.
            with anyio.move_on_after(_WRITTEN_S):
                await run.runner.wait_written()

        if not paths or run.unwritten is not None:
            return self._running.answer_of(run, request)
        return self._values(run, paths)

    async def _session_shown(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer | None:
        """Return the calls of an active direct-call session, or None if `arguments` does not refer
        to one.
        """
        with suppress(StoreError):
            await self._record.written()

        session = self._bridge.direct_sessions.shown(arguments["run"], request.caller)
        if session is None:
            return None

        info, calls = session
        for key in ("paths", "cancel"):
            if key in arguments:
                raise UnknownPathError(
                    f"{key}: {info.run} is a session of direct calls, not yet a run"
                )

        entries: list[JSON] = []
        left = MAX_RESULT // 3
        for call in reversed(calls):
            entry = {**call, "parameters": shorten_literal(call["parameters"])}
            left -= len(encode(entry))
            if left < 0:
                break
            entries.append(entry)

        entries.reverse()
        result: JSONObject = {**info.to_json(), "shown": entries}
        return answer(result, "\n".join([info.line, *map(encode_text, entries)]))

    async def _latest(self, caller: str) -> ToolAnswer:
        lines: list[str] = []
        listed: list[JSONObject] = []
        for run in self._bridge.runs(caller=caller):
            entry = cast("JSONObject", {**run})
            entry["title"] = short_words(run["title"], _LISTED)
            if "refused" in run:
                entry["refused"] = short_words(run["refused"], _LISTED)

            listed.append(entry)
            # The program was refused, although the run in which it was written succeeded.
            status = "refused" if "refused" in run else run["status"]
            lines.append(f"{run['run']}: {status} {run['kind']} {entry['title']}")
            if "reason" in run:
                lines.append(
                    f"  {run['reason']}; check_run with this run continues it, or says why it "
                    "cannot"
                )

            if run["status"] == "needs_solution":
                note = self._running.sampler.unanswered_note(
                    await self._bridge.run(str(run["run"]), caller=caller)
                )
                if note is not None:
                    entry["note"] = note
                    lines.append(f"  {note}")

        sessions = await self._record.shown(caller)
        if sessions:
            lines += [
                "your latest sessions of direct calls, which publish_idea accepts:",
                *(session.line for session in sessions),
            ]

        result: JSONObject = {"runs": list[JSON](listed)}
        if sessions:
            result["sessions"] = [session.to_json() for session in sessions]

        return answer(result, "\n".join(["your latest runs, newest first:", *lines]))

    def _values(self, run: Run, paths: list[str]) -> ToolAnswer:
        values: JSONObject = {}
        missing: dict[str, str] = {}
        blocks = Blocks()
        # The text repeats the structured content, so each of them gets half of the space.
        left = MAX_RESULT // 2
        for path in paths:
            try:
                value = fitting(blocks.take(run.value(path)), path, left)
            except IdeabridgeError as error:
                missing[path] = self._bridge.secrets.mask(str(error))
                continue

            left = max(2000, left - len(encode(value)))
            values[path] = value

        if not values:
            raise UnknownPathError("\n".join(missing.values()))

        result: JSONObject = {"run": run.id, "status": run.status, "values": values}
        if missing:
            result["missing"] = dict[str, JSON](missing)

        content = blocks.place(
            values,
            first=1,
            room=MAX_DIRECT - 2 * len(encode(values)),
            otherwise=(
                f"the limit is {MAX_DIRECT:,} bytes and {MOST_BLOCKS} blocks; request only "
                "this value, or see the page"
            ),
        )
        lines = [f"run {run.id}: {run.status}"]
        lines += [f"{path} = {plain_text(value)}" for path, value in values.items()]
        lines += [f"nothing at {path}: {reason}" for path, reason in missing.items()]
        return answer(result, "\n".join(lines), content)

    async def _run(self, arguments: Arguments, request: ToolRequest) -> Run:
        return await self._bridge.run(arguments["run"], caller=request.caller)

    async def _decide_approval(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        """Decide approvals in order. If one decision is refused, the previous ones still apply."""
        run = await self._run(arguments, request)
        person = self._running.deciding.by_person(run, request)
        if person is not None:
            raise DecisionError(f"decide_approval: nothing was decided: {person}")

        # In a request that is repeated with the person's answers, its own decisions have already
        # been applied.
        if request.resumed is None:
            decisions: list[dict[str, Any]] = arguments["decisions"]
        else:
            decisions = []

        for number, decision_given in enumerate(decisions):
            reason = decision_given.get("reason")
            try:
                decision = Decision(
                    decision_given["decision"],
                    call=decision_given.get("call"),
                    reason=reason if isinstance(reason, str) else None,
                    by=by_tool(request),
                    value=decision_given.get("value", MISSING),
                    plan=decision_given.get("plan"),
                    grant=decision_given.get("grant"),
                )
                await self._bridge.decide(run, decision_given["approval"], decision)
            except DecisionError as error:
                done = f"; the {number} before it are valid" if number else ""
                raise DecisionError(f"decisions[{number}]: {error}{done}") from None

        if decisions:
            request.notes.append(
                "the journal names the assistant as the one who decided on "
                f"{len(decisions)} of these"
            )

        await self._running.wait(run, arguments.get("wait_s", WAIT_S), request)
        return self._running.answer_of(run, request)
