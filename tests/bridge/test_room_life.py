"""Rooms and the runs they belong to: what reaches from one into the other."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Literal

import anyio
import pytest

from ideabridge.bridge import Bridge, Configuration, Limits
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.context.mind import Usage
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.runs.people import ApprovalRequest, Decision
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.idea import NewPublication
from ideabridge.tools import Tool, Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from tests.asking import ASKS
from tests.modules.conftest import configure, raw

pytestmark = pytest.mark.anyio


class Mind:
    """Answers each Request by a function of its texts."""

    name = "the-name-of-the-mind"

    def __init__(self, think: Callable[[str], JSONObject]) -> None:
        self.think = think
        self.seen: list[str] = []

    async def answer(self, request: Request) -> AsyncIterator[str | bytes | Usage]:
        text = "\n".join(str(message["content"]) for message in request.texts)
        self.seen.append(
            json.dumps([request.context_json, request.schema, request.texts], ensure_ascii=False)
        )
        yield json.dumps(self.think(text), ensure_ascii=False)


def solving(task: str, **more: JSON) -> JSONObject:
    return {"_tool": "solve", "_module": "anonymous", "task": task, **more}


def publish(
    bridge: Bridge, name: str, calls: list[JSON], output: JSON, properties: JSONObject
) -> None:
    """Publish a plan nobody ran."""
    from ideabridge.bridge.store.idea import Idea, IdeaMeta

    plan: JSONObject = {"calls": calls, "output": output}
    idea = bridge.store.ideas.save(Idea([name], {"type": "object"}, plan), IdeaMeta(title=name))
    bridge.store.publications.publish(
        NewPublication(
            name=name,
            idea_id=idea,
            description=name,
            answer="plan",
            input_schema={"type": "object", "properties": properties},
            output_schema=None,
            annotations={},
            plan=plan,
        )
    )


async def until(run: Run, condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not condition():
            await run.runner.wait_changed()


# -- what reaches the outside ----------------------------------------------------------------------


async def test_cancelling_a_run_cancels_the_remote_calls_of_its_rooms() -> None:
    configuration = configure({"raw": raw()}, approval="allow_all", order="none")
    async with Bridge(configuration) as bridge:
        publish(bridge, "hanging", [{"_tool": "hang", "_module": "raw"}], None, {})
        calls: list[JSON] = [{"_tool": "hanging", "_module": "idea:hanging", "_each": [1, 2]}]
        run = await bridge.run_plan(read_plan({"calls": calls}))
        await until(
            run,
            lambda: len(run.rooms) == 2 and all(list(one.calls()) for one in run.rooms.values()),
        )
        # Both calls have reached the module before it is sent anything else.
        assert isinstance(await bridge.modules["raw"].call("echo", {}), str)
        run.cancel("enough")
        with anyio.fail_after(20):
            while len(json.loads(str(await bridge.modules["raw"].call("cancelled", {})))) < 2:
                await anyio.lowlevel.checkpoint()
        assert {one.status for one in bridge.store.runs.rooms(run.id)} == {"cancelled"}


class Payments:
    """A tool that hangs until the test lets it through, and may not run twice."""

    def __init__(self, *, open: bool) -> None:  # noqa: A002 - what it is
        self.started = anyio.Event()
        self.paid: list[str] = []

        @tool(destructive=False)
        async def pay(to: str) -> str:
            """Pay somebody."""
            self.paid.append(to)
            self.started.set()
            if not open:
                await anyio.sleep_forever()
            return f"paid {to}"

        self.toolbox = Toolbox(pay)


PAYING: list[JSON] = [{"_tool": "pay", "to": "†input.to", "_outputPath": "p"}]
PAY_IN_ROOM: JSONObject = {
    "calls": [{"_tool": "paying", "_module": "idea:paying", "to": "Ada", "_outputPath": "done"}],
    "output": "†state.done",
}
TO: JSONObject = {"to": {"type": "string"}}


@pytest.mark.parametrize(
    ("decision", "given", "paid"), [("retry", "paid Ada", ["Ada"]), ("value", "so it was", [])]
)
async def test_an_unknown_outcome_in_a_room_is_asked_of_the_run(
    tmp_path: Path, decision: Literal["retry", "value"], given: str, paid: list[str]
) -> None:
    path = tmp_path / "ideas.db"
    configuration = parse_configuration({"approval": "allow_all"}, project=tmp_path)
    first = Payments(open=False)
    second = Payments(open=True)
    async with Bridge(configuration, toolbox=first.toolbox, store=path) as bridge:
        publish(bridge, "paying", PAYING, "†state.p", TO)
        run_id = (await bridge.run_plan(read_plan(PAY_IN_ROOM))).id
        await first.started.wait()

    async with Bridge(configuration, toolbox=second.toolbox, store=path) as bridge:
        run = await bridge.run(run_id)
        await until(run, lambda: run.status == "needs_approval")
        [asked] = run.approvals()
        assert isinstance(asked, dict)
        assert str(asked["approval"]).startswith("0/o0-")
        assert "outcome unknown" in str(asked["why"])
        run.decide(
            str(asked["approval"]),
            decision,
            by="ann",
            **({"value": given} if decision == "value" else {}),
        )
        assert await run.result() == given

    assert second.paid == paid


# -- people ----------------------------------------------------------------------------------------


async def test_an_approver_is_asked_about_calls_in_rooms() -> None:
    asked: list[ApprovalRequest] = []

    async def approver(request: ApprovalRequest) -> Decision:
        asked.append(request)
        return Decision("approve", by="the desk")

    async with Bridge(toolbox=Payments(open=True).toolbox, approver=approver) as bridge:
        publish(bridge, "paying", PAYING, "†state.p", TO)
        run = await bridge.run_plan(read_plan(PAY_IN_ROOM))
        assert await run.result() == "paid Ada"
        assert [(one.run, one.call["to"]) for one in asked] == [(f"{run.id}.0", "Ada")]


async def test_nobody_who_decides_in_time_denies_a_call_in_a_room(tmp_path: Path) -> None:
    configuration = parse_configuration(
        {"approval": {"default": "ask", "timeout_seconds": 0.05}}, project=tmp_path
    )
    async with Bridge(configuration, toolbox=Payments(open=True).toolbox) as bridge:
        publish(bridge, "paying", PAYING, "†state.p", TO)
        run = await bridge.run_plan(read_plan(PAY_IN_ROOM))
        await until(run, lambda: run.machine.ended)
        assert "nobody decided within" in json.dumps(run.errors())


# -- what is kept at hand --------------------------------------------------------------------------


async def test_a_run_somebody_holds_goes_on_under_that_handle_however_many_come_after_it() -> None:
    async with Bridge() as bridge:
        run = await bridge.run_plan(
            read_plan({"calls": [solving("say", _outputPath="s")], "output": "†state.s"})
        )
        assert await run.wait() == "needs_solution"
        [room] = run.rooms.values()
        for _ in range(400):
            await bridge.session().__aenter__()
        again = await bridge.run(room.id)
        assert again is room
        assert again.root is run
        again.submit(0, {"calls": [], "output": "said"})
        assert await run.result() == "said"


# -- many, and who sees what -----------------------------------------------------------------------


async def test_a_latent_call_of_each_of_a_hundred_instances_is_answered_with_its_own() -> None:
    spell = Tool(
        "spell",
        "The number in words.",
        {"type": "object", "properties": {"n": {"type": "integer"}}},
    )

    def think(text: str) -> JSONObject:
        numbers = {line for line in text.split('"') if line.startswith("only ")}
        assert len(numbers) == 1, text
        return {"calls": [], "output": f"saw {numbers.pop()}"}

    instances: JSONObject = {
        f"i{number}": {"n": number, "mine": f"only {number}"} for number in range(100)
    }
    plan: JSONObject = {
        "calls": [{"_tool": "spell", "n": "†state.n", "_outputPath": "said"}],
        "instances": instances,
        "output": "†state.said",
    }
    async with Bridge(
        Configuration(limits=Limits(requests=100)), toolbox=Toolbox(spell), mind=Mind(think)
    ) as bridge:
        run = await bridge.run_plan(read_plan(plan))
        assert await run.result() == {f"i{number}": f"saw only {number}" for number in range(100)}
        assert len(bridge.store.runs.rooms(run.id)) == 100


async def test_nothing_of_a_run_leaks_into_its_clean_room() -> None:
    def think(text: str) -> JSONObject:
        if "the inner task" in text:
            return {"calls": [], "output": "nothing seen"}
        if "failing secret" not in text:
            failing: JSONObject = {"_tool": "fail", "secret": "failing secret"}
            return {"calls": [failing], "output": None}
        return {"calls": [solving("the inner task", _outputPath="s")], "output": "†state.s"}

    @tool(read_only=True)
    async def fail(secret: str) -> str:
        """Fail."""
        raise ValueError(secret)

    closed: JSON = {"type": "object", "properties": {"s": {}, "private_path": {"type": "string"}}}
    context: list[JSON] = [
        {"type": "state", "state": {"private_path": "private value"}, "schema": closed}
    ]
    mind = Mind(think)
    async with Bridge(ASKS, toolbox=Toolbox(fail), mind=mind) as bridge:
        run = await bridge.solve(
            "the outer task",
            context=context,
            input={"asked": "by me"},
            tools=["anonymous.solve", "fail"],
        )
        assert await run.result() == "nothing seen"
        [inner] = [
            one for one in mind.seen if "the inner task" in one and "the outer task" not in one
        ]
        for secret in (
            "private",
            "failing secret",
            "by me",
            "asked",
            mind.name,
            "_module",
            "fail",
            run.id,
        ):
            assert secret not in inner
