"""The implementation of the server's own tools; `own_tools` has their definitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, cast

import anyio

from ideabridge.bridge.context.preview import shorten_literal
from ideabridge.bridge.context.state import MISSING
from ideabridge.bridge.errors import DecisionError, PlanError, PublicationError, UnknownPathError
from ideabridge.bridge.lifting.asking import asks_of
from ideabridge.bridge.loop.event import Decider
from ideabridge.bridge.loop.settings import Planning
from ideabridge.bridge.minds.choice import AUTO, choose
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.runs.people import Decision
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.idea import Answer
from ideabridge.server.answers import MAX_RESULT, ToolAnswer, answer, fitting
from ideabridge.server.asking.deciding import NOBODY_ASKED, by_tool, in_form
from ideabridge.server.asking.elicitation import ask_once
from ideabridge.server.asking.forms import publication_form
from ideabridge.server.asking.rounds import ToolRequest
from ideabridge.server.asking.sampling import samples
from ideabridge.server.catalogue import ToolCatalogue
from ideabridge.server.finding import Finding
from ideabridge.server.own_tools import read_arguments
from ideabridge.server.running import WAIT_S, Running
from ideabridge.tools.encoding import JSON, JSONObject, encode, encode_text
from ideabridge.tools.errors import IdeabridgeError

_WRITTEN_S: Final = 5.0
"""Seconds that a request for values waits until the journal is written."""

_PLAN_KEYS: Final = ("calls", "input", "instances", "output", "output_schema")

Handler: TypeAlias = Callable[[JSONObject, ToolRequest], Awaitable[ToolAnswer]]


class OwnHandlers:
    """Answers the calls of own tools."""

    def __init__(self, catalogue: ToolCatalogue, running: Running) -> None:
        self._bridge = running.bridge
        self._catalogue = catalogue
        self._running = running
        self._finding = Finding(self._bridge)
        self._handlers: dict[str, Handler] = {
            "search_tools": self._finding.search_tools,
            "run_plan": self.run_plan,
            "solve": self.solve,
            "submit_solution": self.submit_solution,
            "check_run": self.check_run,
            "decide_approval": self.decide_approval,
            "search_ideas": self._finding.search_ideas,
            "publish_idea": self.publish_idea,
        }

    async def call(self, name: str, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Answer a call of an own tool.

        Raises:
            IdeabridgeError: the call fails; the message states the reason.
        """
        return await self._handlers[name](read_arguments(name, arguments), asked)

    # -- plans -------------------------------------------------------------------------------------------------

    async def run_plan(self, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Run a plan, or describe what it would do (`dry_run`).

        Raises:
            PlanError: the plan is malformed; the message lists every error.
        """
        if asked.resumed is not None:
            return await self._answered(asked.resumed, arguments, asked)
        plan = read_plan({key: arguments[key] for key in _PLAN_KEYS if key in arguments})
        save_as = arguments.get("save_as")
        if isinstance(save_as, str):
            self._check_free(save_as, asked.caller)
        if arguments.get("dry_run") is True:
            told = await self._bridge.dry_run(plan, caller=asked.caller)
            told["drawing"] = await self._bridge.draw(plan, "text", caller=asked.caller)
            return answer(told, f"dry run, nothing was called: {encode_text(told)}")
        run = await self._bridge.run_plan(plan, caller=asked.caller, samples=samples(asked))
        if isinstance(save_as, str):
            await self._bridge.patiently(lambda: self._running.save_when_done(run, save_as))
        return await self._answered(run, arguments, asked)

    async def _answered(self, run: Run, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        await self._running.wait_started(run, asked, _seconds(arguments))
        return self._running.answer_of(run, asked)

    # -- turns -------------------------------------------------------------------------------------------------

    async def solve(self, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Start the agent loop; by turns, the result contains the first Request.

        Raises:
            PlanError: unknown tools or limits.
            MindUnavailableError: the mind is not available.
            UnknownIdeaError: there is no such idea.
        """
        if asked.resumed is not None:
            return await self._answered(asked.resumed, arguments, asked)
        mind = choose(str(arguments.get("mind", AUTO)), self._bridge.mind, samples=samples(asked))
        context: list[Any] = []
        guide = arguments.get("idea")
        if isinstance(guide, str):
            context = self._finding.guidance(guide, asked.caller)
        tools = arguments.get("tools")
        run = await self._bridge.solve(
            str(arguments["task"]),
            input=_object(arguments, "input"),
            output_schema=_object(arguments, "output_schema"),
            tools=[str(one) for one in tools] if isinstance(tools, list) else None,
            context=context,
            limits=_object(arguments, "limits"),
            mind=mind,
            planning=cast("Planning", arguments.get("planning", "eager")),
            caller=asked.caller,
        )
        told = await self._answered(run, arguments, asked)
        if told.get("isError"):
            await run.patiently(lambda: run.cancel("its first Request was too large to show"))
        return told

    async def submit_solution(self, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Submit a solution, run its calls, and return the state of the run.

        Raises:
            RejectedSolutionError, ValueMismatchError: the solution is malformed; the turn stays open.
            SettledTurnError: the turn already has another solution.
            FinishedRunError, UnknownRunError: the run has ended, or there is no such run.
        """
        run = await self._run(arguments, asked)
        before = run.runner.request
        turn = arguments["turn"]
        notes = await run.patiently(lambda: run.submit(int(cast("int", turn)), arguments["solution"]))
        # The host started the root run, so the answer is about it, also for the turn of a room.
        answered, run = run, run.root
        await self._running.wait(run, _seconds(arguments), asked)
        seen = (answered.id, before) if before is not None and answered.runner.request is not before else None
        return self._running.answer_of(run, asked, seen=seen, notes=notes)

    # -- runs --------------------------------------------------------------------------------------------------

    async def check_run(self, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Return the state of a run or whole values of it, or cancel it; without `run`, list the caller's latest runs.

        Raises:
            UnknownRunError: the caller has no such run.
            UnknownPathError, ReferenceSyntaxError: none of the paths has a value.
        """
        if "run" not in arguments:
            for key in ("paths", "cancel"):
                if key in arguments:
                    raise UnknownPathError(f"{key}: needs `run`; without it check_run lists your latest runs")
            return await self._latest(asked.caller)
        cancel, paths = arguments.get("cancel") is True, arguments.get("paths")
        if cancel:
            run = await self._bridge.cancel(str(arguments["run"]), "the caller cancelled it", caller=asked.caller)
        else:
            run = await self._run(arguments, asked)
        await self._running.wait(run, _seconds(arguments, 0.0 if cancel or paths else WAIT_S), asked)
        if isinstance(paths, list) and paths:
            # Events of the last moment may not be in the journal yet.
            with anyio.move_on_after(_WRITTEN_S):
                await run.runner.wait_written()
        if not isinstance(paths, list) or not paths or run.unwritten is not None:
            return self._running.answer_of(run, asked)
        return self._values(run, [str(path) for path in paths])

    async def _latest(self, caller: str) -> ToolAnswer:
        runs = self._bridge.runs(caller=caller)
        lines: list[str] = []
        listed: list[JSONObject] = []
        for one in runs:
            entry: JSONObject = {name: str(value) for name, value in one.items()}
            listed.append(entry)
            lines.append(f"{one['run']}: {one['status']} {one['kind']} {one['title']}")
            if "reason" in one:
                lines.append(f"  {one['reason']}; check_run with this run goes on with it, or says why it cannot")
            if one["status"] == "needs_solution":
                note = self._running.sampler.unanswered(await self._bridge.run(str(one["run"]), caller=caller))
                if note is not None:
                    entry["note"] = note
                    lines.append(f"  {note}")
        return answer({"runs": list[JSON](listed)}, "\n".join(["your latest runs, newest first:", *lines]))

    def _values(self, run: Run, paths: list[str]) -> ToolAnswer:
        values: JSONObject = {}
        missing: JSONObject = {}
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
            raise UnknownPathError("\n".join(str(reason) for reason in missing.values()))
        told: JSONObject = {"run": run.id, "status": run.status, "values": values}
        if missing:
            told["missing"] = missing
        lines = [f"run {run.id}: {run.status}"]
        lines += [
            f"{path} = {value if isinstance(value, str) else encode_text(value)}" for path, value in values.items()
        ]
        lines += [f"nothing at {path}: {reason}" for path, reason in missing.items()]
        return answer(told, "\n".join(lines))

    async def _run(self, arguments: JSONObject, asked: ToolRequest) -> Run:
        return await self._bridge.run(str(arguments["run"]), caller=asked.caller)

    async def decide_approval(self, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Decide approvals; approved calls run at once.

        Raises:
            DecisionError: only a person may decide, or a decision fits no open approval; those before it are applied.
            UnknownRunError, FinishedRunError: there is no such run, or it has ended.
        """
        run = await self._run(arguments, asked)
        person = self._running.deciding.by_person(run, asked)
        if person is not None:
            raise DecisionError(f"decide_approval: nothing was decided: {person}")
        # A request that comes again with the person's answers has applied its own decisions already.
        decisions = cast("list[dict[str, Any]]", arguments["decisions"]) if asked.resumed is None else []
        for number, decision in enumerate(decisions):
            reason = decision.get("reason")
            try:
                given = Decision(
                    decision["decision"],
                    call=decision.get("call"),
                    reason=reason if isinstance(reason, str) else None,
                    by=by_tool(asked),
                    value=decision.get("value", MISSING),
                    plan=decision.get("plan"),
                )
                await self._bridge.decide(run, str(decision["approval"]), given)
            except DecisionError as error:
                done = f"; the {number} before it hold" if number else ""
                raise DecisionError(f"decisions[{number}]: {error}{done}") from None
        if decisions:
            asked.told.append(f"the journal names the assistant as the one who decided on {len(decisions)} of these")
        await self._running.wait(run, _seconds(arguments), asked)
        return self._running.answer_of(run, asked)

    # -- ideas -------------------------------------------------------------------------------------------------

    async def publish_idea(self, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Publish an idea or a run.

        Raises:
            PublicationError: it cannot be published; the message states what is missing.
            UnknownIdeaError, UnknownRunError: the caller sees no such idea or run.
            PublicationNameError, PlanError: the name is not available.
        """
        name, ref = str(arguments["name"]), str(arguments["idea"])
        self._check_free(name, asked.caller)
        how = cast("Answer", arguments.get("answer", "auto"))
        self._finding.expect_visible(ref, asked.caller)
        description, to = arguments.get("description"), arguments.get("to")
        choices = _object(arguments, "choices")
        by = by_tool(asked)
        if choices and how in ("auto", "plan"):
            by = await self._chosen_by(ref, name, choices, asked)
        publication = await self._bridge.publish(
            ref,
            name,
            description=description if isinstance(description, str) else None,
            answer=how,
            choices=choices,
            by=by,
            to=to if isinstance(to, str) else None,
            caller=asked.caller,
        )
        self._running.published()
        told: JSONObject = {
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
            told["breaking"] = list[JSON](broken)
            text += "\nbreaking, against the version before: " + "; ".join(broken)
        if not publication.live:
            told["live"] = False
            text += "\nThe name is pinned to another version and stays with it."
        return answer(told, f"{text}\ninput: {encode_text(shorten_literal(publication.input_schema))}")

    async def _chosen_by(self, ref: str, name: str, choices: JSONObject, asked: ToolRequest) -> Decider:
        """Who decides on the choices of an assistant: the person, if its client shows forms.

        Raises:
            PublicationError: nobody has accepted the choices; the message states how a person does.
        """
        deciding = self._running.deciding
        if deciding.offers(asked):
            return by_tool(asked)
        at_terminal = f"at a terminal: {deciding.commands.publish} {ref} {name}"
        if not deciding.shows_forms(asked):
            raise PublicationError(
                f"choices: only the person makes them (approval.by in the configuration), {at_terminal}"
            )
        try:
            decided = self._bridge.lift(ref, choices=choices, caller=asked.caller)
            accepted = [one.text for one in asks_of(decided) if decided.choices.accepts(one.path)]
        except PublicationError:
            # The run is not a plan. `publish` reports the reason, or needs no choices.
            return by_tool(asked)
        mask = self._bridge.secrets.mask
        text, form = publication_form(ref, name, choices, accepted, deciding.commands)
        said = await ask_once(mask(text), form, asked, deciding)
        if said is None:
            raise PublicationError(f"choices: {NOBODY_ASKED}. Hand them in again, or decide {at_terminal}")
        if (
            said.action != "accept"
            or (said.content or {}).get("decision") not in form["properties"]["decision"]["enum"]
        ):
            raise PublicationError(
                f"choices: the person has not accepted them, and nothing was published; {at_terminal}"
            )
        if (said.content or {}).get("decision") != "approve":
            raise PublicationError("choices: the person refused them; nothing was published")
        return in_form(asked)

    def _check_free(self, name: str, caller: str) -> None:
        self._bridge.check_free(name, caller=caller)
        if name in self._catalogue.exposed_names:
            raise PlanError(f"name: {name!r} is a tool of a connected server here; choose another")


def _seconds(arguments: JSONObject, default: float = WAIT_S) -> float:
    seconds = arguments.get("wait_s", default)
    return float(seconds) if isinstance(seconds, int | float) else default


def _object(arguments: JSONObject, key: str) -> JSONObject | None:
    value = arguments.get(key)
    return value if isinstance(value, dict) else None
