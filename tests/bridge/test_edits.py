"""Edits of a call that waits: other parameters, or another tool in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import ApprovalRequest, Bridge, Decision, read_plan
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.errors import DecisionError, InterruptedRunError, PublicationError
from ideabridge.bridge.loop.event import CallDecided
from ideabridge.bridge.runs.run import Run
from ideabridge.tools import ActivityContext, Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Activity
from tests.asking import ASKS

pytestmark = pytest.mark.anyio


class Office:
    """Tools that note what ran; `draft` waits until the test lets it go."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.begun, self.gate = anyio.Event(), anyio.Event()

        @tool(read_only=False, destructive=True)
        async def send(to: str) -> str:
            """Send it."""
            self.ran.append(f"send {to}")
            return "sent"

        async def quietly(parameters: JSONObject, _: ActivityContext) -> JSON:
            self.ran.append(f"send {parameters['to']}, quietly")
            return "sent quietly"

        @tool(read_only=True)
        async def draft(title: str) -> str:
            """Write a draft, which may be written twice."""
            self.ran.append(f"draft {title}")
            self.begun.set()
            await self.gate.wait()
            return f"a draft of {title}"

        @tool
        async def shred(what: str) -> str:
            """Destroy it."""
            self.ran.append(f"shred {what}")
            return "gone"

        self.send = send
        self.draft = draft
        self.shred = shred
        self.toolbox = Toolbox(send, draft, shred, Activity("quietly", quietly))


def sending(to: str = "ada", **more: JSON) -> JSONObject:
    return {"_tool": "send", "to": to, "_outputPath": to, **more}


async def waiting(bridge: Bridge, *calls: JSON) -> tuple[Run, str]:
    run = await bridge.run_plan(read_plan({"calls": list[JSON](calls)}))
    assert await run.wait(30) == "needs_approval"
    return run, pending(run)["approval"]


def pending(run: Run) -> Any:
    return run.approvals()[0]


async def test_another_call_runs_in_the_place_of_a_plans() -> None:
    office = Office()
    office.gate.set()
    async with Bridge(ASKS, toolbox=office.toolbox) as bridge:
        reads: JSONObject = {"_tool": "draft", "title": "†state.ada", "_outputPath": "about"}
        run, approval = await waiting(bridge, sending(_activity="quietly"), reads)
        # The plan does not name `shred`, and the old tool's module and activity do not carry over.
        call: JSONObject = {**pending(run)["call"], "_tool": "shred", "what": "†state.secret"}
        del call["to"]
        run.decide(approval, "edit", by="Ann", call=call, reason="safer")
        assert await run.wait(30) == "done"
        assert office.ran == ["shred †state.secret", "draft gone"]
        assert run.answer()["state"] == {"ada": "gone", "about": "a draft of gone"}
        [decided] = [event async for event in run.events() if isinstance(event, CallDecided)]
        assert decided.tool is not None
        assert decided.tool["name"] == "shred"
        with pytest.raises(
            PublicationError, match=r"a person replaced calls.0 \(send\) by 'shred'"
        ):
            await bridge.publish(run.id, "shredded", answer="plan")

        assert decided.edited == {"_tool": "shred", "what": "†state.secret", "_outputPath": "ada"}


async def test_the_mind_is_told_what_was_proposed_what_ran_by_whom_and_why() -> None:
    office = Office()
    async with Bridge(ASKS, toolbox=office.toolbox) as bridge:
        run = await bridge.solve("send it")
        run.submit(0, {"calls": [sending()], "output": None})
        assert await run.wait(30) == "needs_approval"
        call: JSON = {"_tool": "shred", "what": "it"}
        run.decide(pending(run)["approval"], "edit", by="Ann", call=call, reason="better so")
        assert await run.wait(30) == "needs_solution"
        request: Any = run.answer()["requests"]
        context = request[0]["context"]

    proposed: JSON = {"_tool": "send", "_outputPath": "ada", "to": "ada"}
    correction: JSON = {"proposed": proposed, "ran": call, "by": "Ann", "reason": "better so"}
    assert any(correction == message.get("correction") for message in run_context(run))
    told = next(message["call"] for message in run_context(run) if message.get("type") == "call")
    assert (told["tool"], told["proposed"], told["status"]) == ("shred", "send", "done")
    assert "better so" in str(context)


def run_context(run: Run) -> list[Any]:
    assert run.runner.request is not None
    return [*run.runner.request.context_json]


async def test_what_cannot_take_a_calls_place_is_refused_with_the_reason() -> None:
    office = Office()
    approval: JSON = {
        "default": "read_only",
        "rules": [{"tool": "shred", "then": "deny", "why": "nothing is destroyed here"}],
    }
    configuration = parse_configuration({"approval": approval}, project=Path.cwd())
    latent: JSON = {
        "type": "tool",
        "tool": {"name": "judge", "parameters": {"type": "object", "properties": {}}},
    }
    async with Bridge(configuration, toolbox=office.toolbox) as bridge:
        run, asked = await waiting(bridge, sending())
        solved = await bridge.solve("send it", tools=["send"], context=[latent])
        solved.submit(0, {"calls": [sending()], "output": None})
        assert await solved.wait(30) == "needs_approval"
        cases: list[tuple[Run, JSONObject, str]] = [
            (run, {"_tool": "shred", "what": "x"}, "denied by policy: nothing is destroyed here"),
            (run, {"_tool": "draft", "titel": "x"}, "titel"),
            (run, {"_tool": "drafd", "title": "x"}, "Did you mean 'draft'"),
            (run, {"_tool": "solve", "_module": "anonymous", "task": "x"}, "opens a room"),
            (run, {"_tool": "report", "_module": "idea:report"}, "opens a room"),
            (
                run,
                {"_tool": "send", "to": "x", "_outputPath": "elsewhere"},
                "_outputPath: an edit changes",
            ),
            (
                run,
                {"_tool": "send", "to": "x", "_activity": "quietly"},
                "_activity: an edit changes",
            ),
            (
                run,
                {"_tool": "draft", "_each": [{"title": "x"}]},
                "can neither add nor remove _each",
            ),
            (run, {"_tool": 5, "title": "x"}, "expected the name of a tool"),
            (solved, {"_tool": "judge"}, "has no code"),
            # A run of a mind has only the tools that its caller gave it.
            (solved, {"_tool": "draft", "title": "x"}, "unknown tool 'draft'"),
        ]
        for one, call, message in cases:
            with pytest.raises(DecisionError) as caught:
                one.decide(pending(one)["approval"], "edit", by="Ann", call=call)
            assert message in str(caught.value), call

        assert run.status == "needs_approval"
        run.decide(asked, "approve", by="Ann")
        assert await run.wait(30) == "done"

    assert office.ran == ["send ada"]


async def test_a_call_by_each_is_replaced_item_by_item() -> None:
    office = Office()
    async with Bridge(ASKS, toolbox=office.toolbox) as bridge:
        run, approval = await waiting(
            bridge, sending("†item", _each=["ada", "eve"], _outputPath="all")
        )
        call: JSON = {"_tool": "shred", "_each": [{"what": "a"}, {"what": "b"}, {"what": "c"}]}
        run.decide(approval, "edit", by="Ann", call=call)
        assert await run.wait(30) == "done"
        assert run.answer()["state"] == {"all": ["gone", "gone", "gone"]}

    assert sorted(office.ran) == ["shred a", "shred b", "shred c"]


async def test_an_approver_may_put_another_call_in_its_place() -> None:
    office = Office()

    async def approver(request: ApprovalRequest) -> Decision:
        return Decision("edit", call={"_tool": "shred", "what": request.call["to"]}, by="Ann")

    async with Bridge(toolbox=office.toolbox, approver=approver) as bridge:
        run = await bridge.run_plan(read_plan({"calls": [sending()]}))
        assert await run.wait(30) == "done"

    assert office.ran == ["shred ada"]


async def test_what_was_replaced_goes_on_after_a_restart_and_needs_its_tool_until_it_has_run(
    tmp_path: Path,
) -> None:
    store = tmp_path / "ideas.sqlite"
    office = Office()
    async with Bridge(ASKS, toolbox=office.toolbox, store=store) as bridge:
        run, approval = await waiting(bridge, sending())
        run.decide(approval, "edit", by="Ann", call={"_tool": "draft", "title": "it"})
        await office.begun.wait()

    # The edited call needs `draft`, which may run again, so having `send` is not enough.
    for bare in (Toolbox(office.send), Toolbox(office.send, office.shred)):
        async with Bridge(ASKS, toolbox=bare, store=store) as bridge:
            with pytest.raises(InterruptedRunError, match="its tool 'draft' is missing here"):
                await bridge.resume(run.id)

    office.gate.set()
    async with Bridge(ASKS, toolbox=office.toolbox, store=store) as bridge:
        assert await (await bridge.resume(run.id)).wait(30) == "done"

    assert office.ran == ["draft it", "draft it"]
    # A call that has run no longer needs its tool.
    async with Bridge(ASKS, toolbox=Toolbox(office.send), store=store) as bridge:
        again = await bridge.run(run.id)
        assert (again.status, again.answer()["state"]) == ("done", {"ada": "a draft of it"})
        assert again.calls()[0].tool is not None
        assert again.value("†state.ada") == "a draft of it"


async def test_an_edited_room_still_sees_what_its_call_imports() -> None:
    approval: JSON = {"rules": [{"module": "idea:*", "then": "ask"}]}
    configuration = parse_configuration({"approval": approval}, project=Path.cwd())
    office = Office()
    office.gate.set()
    async with Bridge(configuration, toolbox=office.toolbox) as bridge:
        made = await bridge.run_plan(
            read_plan(
                {
                    "calls": [{"_tool": "draft", "title": "†input.title", "_outputPath": "d"}],
                    "input": {"title": "x"},
                    "output": "†state.d",
                }
            )
        )
        assert await made.wait(30) == "done"
        await bridge.publish(made.id, "report")
        call: JSONObject = {
            "_tool": "report",
            "_module": "idea:report",
            "title": "old",
            "_outputPath": "r",
        }
        run, asked = await waiting(bridge, call)
        with pytest.raises(DecisionError, match="opens a room"):
            run.decide(asked, "edit", by="Ann", call={"_tool": "draft", "title": "x"})

        run.decide(asked, "edit", by="Ann", call={**call, "title": "new"})
        assert await run.wait(30) == "done"
        assert run.answer()["state"] == {"r": "a draft of new"}
