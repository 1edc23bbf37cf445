"""What goes wrong inside is told as what it is, and ends no more than the run it met."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from ideabridge.bridge import ApprovalRequest, Bridge, Configuration, Decision, Limits
from ideabridge.bridge.context.messages import Draft, Handlers, Message
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.runs.run import Run
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON

pytestmark = pytest.mark.anyio

ADD = '{"calls": [{"_tool": "add", "a": 1, "b": 2, "_outputPath": "sum"}], "output": %s}'


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(read_only=False)
def send(text: str) -> str:
    """Send."""
    return text


class Saying:
    """A mind that says the same each time."""

    name = "saying"

    def __init__(self, answer: str) -> None:
        self.text = answer

    async def answer(self, request: Request) -> AsyncIterator[str]:
        yield self.text


def breaking_when(kind: str) -> Handlers:
    """Handlers of which the one for a kind of message divides by nothing."""
    handlers = Handlers()

    def handler(message: Message, draft: Draft) -> None:
        raise ZeroDivisionError(f"no {kind} today")

    handlers.register(kind, handler)
    return handlers


def reason(run: Run) -> str:
    return str(run.answer()["reason"])


async def sums(bridge: Bridge) -> JSON:
    """What a plan gives that has nothing to do with it."""
    call: JSON = {"_tool": "add", "a": 20, "b": 22, "_outputPath": "sum"}
    run = await bridge.run_plan(read_plan({"calls": [call], "output": "†state.sum"}))
    assert await run.wait() == "done"
    return run.given()


def traced(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]


async def test_a_defect_after_a_call_is_no_journal_that_cannot_be_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Bridge(
        toolbox=Toolbox(add), mind=Saying(ADD % "null"), handlers=breaking_when("state")
    ) as bridge:
        run = await bridge.solve("Add.")
        assert await run.wait() == "interrupted"
        assert (
            reason(run)
            == "the handler of messages of type 'state' failed: ZeroDivisionError: no state today"
        )
        assert await sums(bridge) == 42

    [told] = traced(caplog)
    assert told.startswith("Traceback")
    assert told.endswith("ZeroDivisionError: no state today")


async def test_a_defect_after_a_decision_leaves_the_other_runs_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def approver(request: ApprovalRequest) -> Decision:
        return Decision("deny", reason="not today")

    mind = Saying('{"calls": [{"_tool": "send", "text": "hi"}], "output": null}')
    handlers = breaking_when("correction")
    async with Bridge(
        toolbox=Toolbox(add, send), mind=mind, handlers=handlers, approver=approver
    ) as bridge:
        run = await bridge.solve("Send.")
        assert await run.wait() == "interrupted"
        assert reason(run) == (
            "the handler of messages of type 'correction' failed: "
            "ZeroDivisionError: no correction today"
        )
        assert await sums(bridge) == 42

    assert len(traced(caplog)) == 1


async def test_a_defect_in_a_room_fails_the_call_it_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mind = Saying(ADD % "3")
    async with Bridge(toolbox=Toolbox(add), mind=mind, handlers=breaking_when("input")) as bridge:
        room: JSON = {"_tool": "solve", "_module": "anonymous", "task": "Add.", "input": {"a": 1}}
        run = await bridge.run_plan(read_plan({"calls": [room]}))
        assert await run.wait() == "done"
        [error] = run.errors()
        assert (
            "the handler of messages of type 'input' failed: ZeroDivisionError: no input today"
            in str(error)
        )

    [told] = traced(caplog)
    assert told.startswith("Traceback")


async def test_a_journal_that_cannot_be_written_is_told_as_that(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool(read_only=True)
    def shut(text: str) -> str:
        """Take the store away."""
        bridge.store.close()
        return text

    bridge = Bridge(
        toolbox=Toolbox(shut),
        mind=Saying('{"calls": [{"_tool": "shut", "text": "x"}], "output": null}'),
    )
    async with bridge:
        run = await bridge.solve("Shut it.")
        assert await run.wait() == "interrupted"
        assert reason(run).startswith("the run's journal could not be written: ")

    assert not traced(caplog)


async def test_a_mind_that_fails_when_it_is_hung_up_on_is_asked_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Sulking(Saying):
        def __init__(self) -> None:
            super().__init__('{"calls": [], "output": "†state.sum"}')
            self.asked = 0

        async def answer(self, request: Request) -> AsyncIterator[str]:
            self.asked += 1
            if self.asked > 1:
                yield self.text
                return

            try:
                yield '{"calls": [{"_tool": "add", "a": 1, "b": 2, "_outputPath": "sum"}, '
                yield '{"_tool": "add", "a": 3, "b": 4}'
                yield "and more, which nobody takes"
            finally:
                raise ZeroDivisionError("hung up on")

    async with Bridge(
        toolbox=Toolbox(add), mind=Sulking(), configuration=Configuration(limits=Limits(calls=1))
    ) as bridge:
        run = await bridge.solve("Add.", output_schema={"type": "integer"})
        assert await run.wait() == "done"
        assert run.given() == 3

    [told] = traced(caplog)
    assert told.endswith("ZeroDivisionError: hung up on")
