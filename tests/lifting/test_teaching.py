"""What replays teach: values that a person confirmed become evidence once the run has ended."""

from __future__ import annotations

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.loop.event import AT_TERMINAL, Decider
from ideabridge.bridge.store.portable import read_document, sealed
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.toolbox import Toolbox
from tests.asking import ASKS
from tests.lifting.runs import Turn, solved, turn

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def person(name: str) -> JSONObject:
    """A person."""
    return {
        "email": f"{name}@example.org",
        "login": f"{name}@example.org" if name == "ann" else f"x-{name}",
    }


@tool(read_only=False)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


TURNS: list[Turn] = [
    lambda _: turn({"_tool": "person", "name": "†input.name"}),
    lambda s: turn({"_tool": "send", "to": s.result(0, "email")}),
    lambda _: turn(output="†results.1"),
]


async def replayed(bridge: Bridge, name: str, by: Decider) -> list[str]:
    """Call the tool, approve what asks, and return the reasons of the questions."""
    replay = await bridge.start_idea("letter", {"name": name})
    assert replay.run is not None
    reasons: list[str] = []
    while await replay.run.wait(30) == "needs_approval":
        for question in replay.run.questions():
            reasons.append(question.why)
            replay.run.decide(question.approval, "approve", by=by)

    assert await replay.run.result() == f"sent to {name}@example.org"
    return reasons


async def test_what_a_person_confirms_is_learned_and_what_an_assistant_does_is_not() -> None:
    async with Bridge(ASKS, toolbox=Toolbox(person, send)) as bridge:
        run = await solved(bridge, "x", {"name": "ann"}, TURNS, {"type": "string"})
        await bridge.publish(run.id, "letter")
        for by, learned in ((Decider("assistant", "tool", "local"), False), (AT_TERMINAL, True)):
            (reason,) = await replayed(bridge, f"bob{by.kind[0]}", by)
            assert "x-bob" in reason
            # The next call makes use of what was learned.
            (reason,) = await replayed(bridge, "carl", Decider("assistant", "tool", "local"))
            assert ("x-carl" in reason) is not learned
        assert len(bridge.store.evidence.records("letter", 1, caller=SEES_ALL)) >= 1


async def test_the_evidence_of_named_runs_is_stored() -> None:
    async with Bridge(ASKS, toolbox=Toolbox(person, send)) as bridge:
        run = await solved(bridge, "x", {"name": "ann"}, TURNS, {"type": "string"})
        other = await solved(bridge, "x", {"name": "bob"}, TURNS, {"type": "string"})
        await bridge.publish(run.id, "letter", choices={"runs": [other.id]})
        (record,) = bridge.store.evidence.records("letter", 1, caller=SEES_ALL)
        assert (record["run"], record["kind"]) == (other.id, "run")


async def test_an_import_claims_no_evidence() -> None:
    async with Bridge(ASKS, toolbox=Toolbox(person, send)) as bridge:
        run = await solved(bridge, "x", {"name": "ann"}, TURNS, {"type": "string"})
        others: list[JSON] = []
        for name in ("bob", "carl"):
            others.append((await solved(bridge, "x", {"name": name}, TURNS, {"type": "string"})).id)
        await bridge.publish(run.id, "letter", choices={"runs": others})
        assert "assumed" not in (await replayed(bridge, "dora", AT_TERMINAL))[0]
        document = bridge.export_idea("letter", caller=SEES_ALL)
        read_document(document, "whole")
    async with Bridge(ASKS, toolbox=Toolbox(person, send)) as elsewhere:
        await elsewhere.import_idea(document, publish=True)
        (reason,) = await replayed(elsewhere, "dora", AT_TERMINAL)
        assert "calls.1.to" in reason
        assert "its evidence is not in the document" in reason


@pytest.mark.parametrize(
    "claim",
    [{}, {"runs": 99}, {"why": None}, {"runs": 99, "why": None}, {"why": ""}, {"why": "checked"}],
)
async def test_a_document_cannot_claim_that_its_values_are_determined(claim: JSONObject) -> None:
    async with Bridge(ASKS, toolbox=Toolbox(person, send)) as bridge:
        run = await solved(bridge, "x", {"name": "ann"}, TURNS, {"type": "string"})
        await bridge.publish(run.id, "letter")
        document = bridge.export_idea("letter", caller=SEES_ALL)

    published = document["publication"]
    assert isinstance(published, dict)
    plan = published["plan"]
    assert isinstance(plan, dict)
    explained: list[JSON] = [{"at": ["calls", "1", "to"], "by": ["†results.0.email"], **claim}]
    forged = sealed(
        {**document, "publication": {**published, "plan": {**plan, "explained": explained}}}
    )
    async with Bridge(ASKS, toolbox=Toolbox(person, send)) as elsewhere:
        await elsewhere.import_idea(forged, publish=True)
        replay = await elsewhere.start_idea("letter", {"name": "bob"})
        assert replay.run is not None
        assert await replay.run.wait(30) == "needs_approval"
        [question] = replay.run.questions()
        assert "its evidence is not in the document" in question.why
