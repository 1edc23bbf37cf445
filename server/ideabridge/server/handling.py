"""The implementation of the server's own tools; `own_tools` has their definitions.

Every failure of a handler is an `IdeabridgeError`, whose message becomes a tool error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import anyio

from ideabridge.bridge.context.preview import shorten_literal
from ideabridge.bridge.context.state import MISSING
from ideabridge.bridge.errors import DecisionError, PlanError, PublicationError, UnknownPathError
from ideabridge.bridge.lifting.asking import asks_of
from ideabridge.bridge.loop.event import Decider
from ideabridge.bridge.minds.choice import AUTO, choose
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.runs.people import Decision
from ideabridge.bridge.runs.run import Run
from ideabridge.server.answers import MAX_RESULT, ToolAnswer, answer, fitting
from ideabridge.server.asking.deciding import NOBODY_ASKED, by_tool, in_form
from ideabridge.server.asking.elicitation import ask_once
from ideabridge.server.asking.forms import publication_form
from ideabridge.server.asking.rounds import ToolRequest
from ideabridge.server.catalogue import ToolCatalogue
from ideabridge.server.finding import Finding
from ideabridge.server.own_tools import read_arguments
from ideabridge.server.running import WAIT_S, Running
from ideabridge.tools.encoding import JSON, JSONObject, encode, encode_text
from ideabridge.tools.errors import IdeabridgeError

_WRITTEN_S: Final = 5.0
"""Seconds that a request for values waits until the journal is written."""

_PLAN_KEYS: Final = ("calls", "input", "instances", "output", "output_schema")

Arguments: TypeAlias = dict[str, Any]
"""Arguments that satisfy the parameters of their tool."""


class OwnHandlers:
    """Answers the calls of own tools."""

    def __init__(self, catalogue: ToolCatalogue, running: Running) -> None:
        self._bridge = running.bridge
        self._catalogue = catalogue
        self._running = running
        self._finding = Finding(self._bridge)
        self._handlers: dict[str, Callable[[Arguments, ToolRequest], Awaitable[ToolAnswer]]] = {
            "search_tools": self._finding.search_tools,
            "run_plan": self._run_plan,
            "solve": self._solve,
            "submit_solution": self._submit_solution,
            "check_run": self._check_run,
            "decide_approval": self._decide_approval,
            "search_ideas": self._finding.search_ideas,
            "publish_idea": self._publish_idea,
        }

    async def call(self, name: str, arguments: JSONObject, request: ToolRequest) -> ToolAnswer:
        """Answer a call of an own tool.

        Raises:
            IdeabridgeError: the call fails; the message states the reason.
        """
        return await self._handlers[name](read_arguments(name, arguments), request)

    # -- plans -------------------------------------------------------------------------------------------------

    async def _run_plan(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        if request.resumed is not None:
            return await self._answered(request.resumed, arguments, request)
        plan = read_plan({key: arguments[key] for key in _PLAN_KEYS if key in arguments})
        save_as = arguments.get("save_as")
        if save_as is not None:
            self._check_free(save_as, request.caller)
        if arguments.get("dry_run"):
            preview = await self._bridge.dry_run(plan, caller=request.caller)
            preview["drawing"] = await self._bridge.draw(plan, "text", caller=request.caller)
            return answer(preview, f"dry run, nothing was called: {encode_text(preview)}")
        run = await self._bridge.run_plan(plan, caller=request.caller, samples=request.samples)
        if save_as is not None:
            await self._bridge.patiently(lambda: self._running.save_when_done(run, save_as))
        return await self._answered(run, arguments, request)

    async def _answered(self, run: Run, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        await self._running.wait_started(run, request, arguments.get("wait_s", WAIT_S))
        return self._running.answer_of(run, request)

    # -- turns -------------------------------------------------------------------------------------------------

    async def _solve(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        if request.resumed is not None:
            return await self._answered(request.resumed, arguments, request)
        mind = choose(arguments.get("mind", AUTO), self._bridge.mind, samples=request.samples)
        guide = arguments.get("idea")
        run = await self._bridge.solve(
            arguments["task"],
            input=arguments.get("input"),
            output_schema=arguments.get("output_schema"),
            tools=arguments.get("tools"),
            context=[] if guide is None else self._finding.guidance(guide, request.caller),
            limits=arguments.get("limits"),
            mind=mind,
            planning=arguments.get("planning", "eager"),
            caller=request.caller,
        )
        result = await self._answered(run, arguments, request)
        if result.get("isError"):
            await run.patiently(lambda: run.cancel("its first Request was too large to show"))
        return result

    async def _submit_solution(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        room = await self._run(arguments, request)
        before = room.runner.request
        notes = await room.patiently(lambda: room.submit(int(arguments["turn"]), arguments["solution"]))
        # The host started the root run, so the answer is about it, also for the turn of a room.
        run = room.root
        await self._running.wait(run, arguments.get("wait_s", WAIT_S), request)
        seen = (room.id, before) if before is not None and room.runner.request is not before else None
        return self._running.answer_of(run, request, seen=seen, notes=notes)

    # -- runs --------------------------------------------------------------------------------------------------

    async def _check_run(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        if "run" not in arguments:
            for key in ("paths", "cancel"):
                if key in arguments:
                    raise UnknownPathError(f"{key}: needs `run`; without it check_run lists your latest runs")
            return await self._latest(request.caller)
        cancel, paths = arguments.get("cancel"), arguments.get("paths")
        if cancel:
            run = await self._bridge.cancel(arguments["run"], "the caller cancelled it", caller=request.caller)
        else:
            run = await self._run(arguments, request)
        await self._running.wait(run, arguments.get("wait_s", 0.0 if cancel or paths else WAIT_S), request)
        if paths:
            # Events of the last moment may not be in the journal yet.
            with anyio.move_on_after(_WRITTEN_S):
                await run.runner.wait_written()
        if not paths or run.unwritten is not None:
            return self._running.answer_of(run, request)
        return self._values(run, paths)

    async def _latest(self, caller: str) -> ToolAnswer:
        lines: list[str] = []
        listed: list[JSONObject] = []
        for one in self._bridge.runs(caller=caller):
            entry: JSONObject = {name: str(value) for name, value in one.items()}
            listed.append(entry)
            lines.append(f"{one['run']}: {one['status']} {one['kind']} {one['title']}")
            if "reason" in one:
                lines.append(f"  {one['reason']}; check_run with this run goes on with it, or says why it cannot")
            if one["status"] == "needs_solution":
                note = self._running.sampler.unanswered_note(await self._bridge.run(str(one["run"]), caller=caller))
                if note is not None:
                    entry["note"] = note
                    lines.append(f"  {note}")
        return answer({"runs": list[JSON](listed)}, "\n".join(["your latest runs, newest first:", *lines]))

    def _values(self, run: Run, paths: list[str]) -> ToolAnswer:
        values: JSONObject = {}
        missing: dict[str, str] = {}
        # The text repeats the structured content, so each gets half of the space.
        left = MAX_RESULT // 2
        for path in paths:
            try:
                value = fitting(run.value(path), path, left)
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
        lines = [f"run {run.id}: {run.status}"]
        lines += [
            f"{path} = {value if isinstance(value, str) else encode_text(value)}" for path, value in values.items()
        ]
        lines += [f"nothing at {path}: {reason}" for path, reason in missing.items()]
        return answer(result, "\n".join(lines))

    async def _run(self, arguments: Arguments, request: ToolRequest) -> Run:
        return await self._bridge.run(arguments["run"], caller=request.caller)

    async def _decide_approval(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        """Decide approvals in order; if a decision is refused, those before it are applied."""
        run = await self._run(arguments, request)
        person = self._running.deciding.by_person(run, request)
        if person is not None:
            raise DecisionError(f"decide_approval: nothing was decided: {person}")
        # A request that comes again with the person's answers has applied its own decisions already.
        decisions: list[dict[str, Any]] = arguments["decisions"] if request.resumed is None else []
        for number, one in enumerate(decisions):
            reason = one.get("reason")
            try:
                decision = Decision(
                    one["decision"],
                    call=one.get("call"),
                    reason=reason if isinstance(reason, str) else None,
                    by=by_tool(request),
                    value=one.get("value", MISSING),
                    plan=one.get("plan"),
                )
                await self._bridge.decide(run, one["approval"], decision)
            except DecisionError as error:
                done = f"; the {number} before it hold" if number else ""
                raise DecisionError(f"decisions[{number}]: {error}{done}") from None
        if decisions:
            request.notes.append(f"the journal names the assistant as the one who decided on {len(decisions)} of these")
        await self._running.wait(run, arguments.get("wait_s", WAIT_S), request)
        return self._running.answer_of(run, request)

    # -- ideas -------------------------------------------------------------------------------------------------

    async def _publish_idea(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        name, ref, choices = arguments["name"], arguments["idea"], arguments.get("choices")
        self._check_free(name, request.caller)
        self._finding.expect_visible(ref, request.caller)
        how, by = arguments.get("answer", "auto"), by_tool(request)
        if choices and how in ("auto", "plan"):
            by = await self._chosen_by(ref, name, choices, request)
        publication = await self._bridge.publish(
            ref,
            name,
            description=arguments.get("description"),
            answer=how,
            choices=choices,
            by=by,
            to=arguments.get("to"),
            caller=request.caller,
        )
        self._running.published()
        result: JSONObject = {
            "name": publication.name,
            "version": publication.version,
            "answer": publication.answer,
            "description": publication.description,
            "idea": publication.idea_id,
            "input_schema": publication.input_schema,
            "output_schema": publication.output_schema,
            "annotations": publication.annotations,
        }
        text = f"published {name} (version {publication.version}): it is a tool now. {publication.description}"
        broken = self._bridge.store.change_of(publication).breaking
        if broken:
            result["breaking"] = list[JSON](broken)
            text += "\nbreaking, against the version before: " + "; ".join(broken)
        if not publication.live:
            result["live"] = False
            text += "\nThe name is pinned to another version and stays with it."
        return answer(result, f"{text}\ninput: {encode_text(shorten_literal(publication.input_schema))}")

    async def _chosen_by(self, ref: str, name: str, choices: JSONObject, request: ToolRequest) -> Decider:
        """Who decides on the choices of an assistant: the person, if its client shows forms.

        Raises:
            PublicationError: nobody has accepted the choices; the message states how a person does.
        """
        deciding = self._running.deciding
        if deciding.offers(request):
            return by_tool(request)
        at_terminal = f"at a terminal: {deciding.commands.publish} {ref} {name}"
        if not deciding.shows_forms(request):
            raise PublicationError(
                f"choices: only the person makes them (approval.by in the configuration), {at_terminal}"
            )
        try:
            decided = self._bridge.lift(ref, choices=choices, caller=request.caller)
            accepted = [one.text for one in asks_of(decided) if decided.choices.accepts(one.path)]
        except PublicationError:
            # The run is not a plan. `publish` reports the reason, or needs no choices.
            return by_tool(request)
        text, form = publication_form(ref, name, choices, accepted, deciding.commands)
        result = await ask_once(self._bridge.secrets.mask(text), form, request, deciding)
        if result is None:
            raise PublicationError(f"choices: {NOBODY_ASKED}. Hand them in again, or decide {at_terminal}")
        decision = (result.content or {}).get("decision")
        if result.action != "accept" or decision not in form["properties"]["decision"]["enum"]:
            raise PublicationError(
                f"choices: the person has not accepted them, and nothing was published; {at_terminal}"
            )
        if decision != "approve":
            raise PublicationError("choices: the person refused them; nothing was published")
        return in_form(request)

    def _check_free(self, name: str, caller: str) -> None:
        self._bridge.check_free(name, caller=caller)
        if name in self._catalogue.exposed_names:
            raise PlanError(f"name: {name!r} is a tool of a connected server here; choose another")
