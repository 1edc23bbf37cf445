"""Ask a person before others get a tool whose program and descriptions an assistant wrote.

Theory of operation. The question is a plan with one call to `publish_idea`. The plan contains the
whole program, and runs nothing. A plan can wait until it is accepted, so the question reaches a
person as every approval does: in a form of the client, on the page, or at a terminal. If the
assistant repeats its call to `publish_idea`, the call finds its question (`WaitingCalls`), and
publishes once a person has accepted it. If an assistant accepts the question, it counts as
unanswered.
"""

from __future__ import annotations

from typing import Final

from ideabridge.bridge.context.references import escaped
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.loop.event import Decider, PlanDecided
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.publishing.program_answer import ProgramAnswer
from ideabridge.bridge.publishing.publish_request import PublishRequest
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.run_record import ENDED
from ideabridge.bridge.store.users import person_of
from ideabridge.server.answers import ToolAnswer, answer
from ideabridge.server.asking.rounds import ToolRequest
from ideabridge.server.direct_calls import DirectCalls
from ideabridge.server.running import Running
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty

_TOOL: Final = "publish_idea"
"""The tool in the plan. No tool of a server or of a tool file has this name."""

_DEFINED: Final[JSONObject] = {
    "name": _TOOL,
    "description": "Share a tool whose program and descriptions an assistant wrote. The assistant "
    "has read results that someone else wrote.",
}

_AGAIN: Final = (
    "After the decision, call publish_idea again with the same arguments to publish it; the "
    "person is asked only once."
)


class Sharing:
    """Asks a person before others get a tool.

    Args:
        running: carries out runs on behalf of requests.
        record: finds the question belonging to a repeated call.
    """

    def __init__(self, running: Running, record: DirectCalls) -> None:
        self._running = running
        self._bridge = running.bridge
        self._waiting = record.waiting

    async def find(self, publish_request: PublishRequest, written: ProgramAnswer) -> Run | None:
        """Return the question about a program, even if a person refused it, or None if nobody has
        been asked.
        """
        return await self._waiting.find(
            publish_request.digest_with(written.to_json()), publish_request.caller, refused=True
        )

    async def ask(self, publish_request: PublishRequest, written: ProgramAnswer) -> Run:
        """Return the question about a program, creating it the first time."""

        async def start() -> Run:
            title = f"share {publish_request.name} with others"
            plan = self._plan(publish_request, written)
            return await self._bridge.run_plan(
                plan, caller=publish_request.caller, title=title, planning="lazy"
            )

        return await self._waiting.run_of(
            publish_request.digest_with(written.to_json()), publish_request.caller, start
        )

    async def decided(self, question: Run, request: ToolRequest, seconds: float) -> Decider | None:
        """Wait up to `seconds` for a person to accept. Return the person, or None if nobody has
        answered yet.

        Raises:
            InputRequired: the person is asked in a form, and the client repeats the request.
            PublicationError: a person refused, or the question ended without a person's answer.
        """
        status = await self._running.wait(question, seconds, request)
        if status not in ENDED:
            return None

        decision = await _decision_on(question)
        if decision is None or decision.by.kind != "person":
            await self.forget(question)
            who = "nobody" if decision is None else str(decision.by)
            raise PublicationError(
                f"only a person can share a tool that an assistant wrote, but {who} answered; "
                "nothing was published. To ask again, repeat the call"
            )

        if decision.decision != "approve":
            await self.forget(question)
            reason = f": {decision.reason}" if decision.reason else ""
            raise PublicationError(
                f"the person refused to share the tool{reason}; nothing was published"
            )

        return decision.by

    async def forget(self, question: Run) -> None:
        """Forget the question about a program that was published or refused, so that the same call
        asks again.
        """
        await self._waiting.give(question)

    def waits(
        self, publish_request: PublishRequest, question: Run, request: ToolRequest
    ) -> ToolAnswer:
        """Return the answer to a call while nobody has decided yet."""
        deciding = self._running.deciding
        places = deciding.commands_of(request).places
        decides = deciding.by_person(question, request) or f"only the person can decide, {places}"
        approvals = [f"{question.id}:{approval.approval}" for approval in question.pending()]
        result: JSONObject = {
            "name": publish_request.name,
            "needs_person": {
                "run": question.id,
                "approvals": list[JSON](approvals),
                "decides": decides,
            },
        }
        if request.notes:
            result["notes"] = list[JSON](request.notes)

        text = (
            f"the program for {publish_request.name} does what the recorded runs did. An assistant "
            "wrote it and others would get it, so nothing is published until a person approves it "
            f"({', '.join(approvals)}): {decides}. {_AGAIN}"
        )
        return answer(result, "\n".join([text, *request.notes]))

    def _plan(self, publish_request: PublishRequest, written: ProgramAnswer) -> Plan:
        """Return the plan that represents a question: a single call whose result is already
        written.
        """
        plan: JSONObject = {
            "name": publish_request.name,
            "with": list[JSON](self._audience_names(publish_request)),
            **written.to_json(),
        }
        if publish_request.description is not None:
            plan["description"] = publish_request.description
        values = escaped(plan)
        parameters = object_or_empty(values)
        return Plan([{"_tool": _TOOL, **parameters, "_output": "agreed"}], tools=(_DEFINED,))

    def _audience_names(self, publish_request: PublishRequest) -> list[str]:
        """Return the names of the users, besides the owner, who would get the tool. `all` means
        everyone.
        """
        if publish_request.to is None:
            callers = self._bridge.store.publications.shares(publish_request.name)
        else:
            callers = self._bridge.publisher.audience(publish_request.to, publish_request.caller)
        return [person_of(caller) or "all" for caller in callers]


async def _decision_on(question: Run) -> PlanDecided | None:
    """Return the decision about the plan of an ended run, or None if there was none."""
    async for event in question.events():
        if isinstance(event, PlanDecided):
            return event
    return None
