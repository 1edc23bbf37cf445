"""A published plan that leaves something open: a mind goes on from there, where the
publication allows it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge import Bridge, Configuration
from ideabridge.bridge.context.mind import Usage
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from tests.server.assuming import publish

pytestmark = pytest.mark.anyio

RAN: list[str] = []


@tool(read_only=True)
def find(name: str) -> dict[str, list[dict[str, str]]]:
    """Find people by name."""
    RAN.append(f"find {name}")
    return {"people": [{"name": name, "mail": f"{name}@example.org"}] if name != "nobody" else []}


@tool(read_only=False)
def send(to: str, text: str) -> str:
    """Send a text to somebody."""
    RAN.append(f"send {to}")
    return f"sent to {to}"


SENDING: JSONObject = {
    "calls": [
        {"_tool": "find", "name": "†input.name"},
        {"_tool": "send", "to": "ann@example.org", "text": "hello", "_outputPath": "sent"},
    ],
    "output": {"said": "†state.sent"},
    "explained": [{"at": ["calls", "1", "to"], "by": ["†results.0.people.0.mail"], "runs": 3}],
}
INPUT: JSONObject = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
}
OUTPUT: JSONObject = {
    "type": "object",
    "properties": {"said": {"type": "string"}},
    "required": ["said"],
}
GUIDE: JSONObject = {
    "context": [{"role": "user", "content": "Greet somebody."}],
    "tools": [[None, "find"], [None, "send"]],
    "output_schema": OUTPUT,
    "by_instance": False,
    "plan": {"calls": SENDING["calls"], "output": SENDING["output"]},
}
BY_HAND: JSONObject = {
    "calls": [
        {"_tool": "send", "to": "office@example.org", "text": "hello", "_outputPath": "sent"}
    ],
    "output": {"said": "†state.sent"},
}


class Mind:
    """Gives answers in turn; remembers what it was shown."""

    name = "scripted"

    def __init__(self, *answers: JSONObject) -> None:
        self.answers = list(answers)
        self.seen: list[str] = []

    async def answer(self, request: Request) -> AsyncIterator[str | bytes | Usage]:
        self.seen.append("\n".join(str(message["content"]) for message in request.texts))
        yield json.dumps(self.answers.pop(0), ensure_ascii=False)


def published(
    store: Path, guide: JSONObject | None = GUIDE, schema: JSONObject | None = OUTPUT, **plan: Any
) -> Path:
    solve: dict[str, JSON] = {} if guide is None else {"solve": guide}
    recorded: JSON = {
        "input": {"name": "ann"},
        "output": {"said": "sent to ann@example.org"},
        **solve,
    }
    publish(store, "greet", {**SENDING, **plan}, schema, input_schema=INPUT, recorded=recorded)
    RAN.clear()
    return store


def bridge(store: Path, mind: Mind | None = None) -> Bridge:
    return Bridge(
        Configuration(approval="allow_all"), toolbox=Toolbox(find, send), store=store, mind=mind
    )


async def greet(here: Bridge, name: str) -> Run:
    run = (await here.start_idea("greet", {"name": name})).run
    assert run is not None
    await run.wait(20)
    return run


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_plan_that_suffices_asks_no_mind(tmp_path: Path, allowed: bool) -> None:
    mind = Mind()
    async with bridge(published(tmp_path / "s.sqlite", GUIDE if allowed else None), mind) as here:
        run = await greet(here, "bob")
        assert await run.result() == {"said": "sent to bob@example.org"}
        assert (run.way, mind.seen) == ("plan", [])
        assert run.answer()["usage"]["requests"] == 0

    assert RAN == ["find bob", "send bob@example.org"]


async def test_without_permission_the_call_fails_plainly(tmp_path: Path) -> None:
    async with bridge(published(tmp_path / "s.sqlite", None), Mind(BY_HAND)) as here:
        run = await greet(here, "nobody")
        assert run.status == "failed"
        [error] = [one for one in run.errors() if one.get("place") == 1]
        assert error["error"]["kind"] == "runtime"
        assert "†results.0.people.0.mail" in error["error"]["message"]
    assert RAN == ["find nobody"]


async def test_a_mind_goes_on_from_the_call_without_a_value(tmp_path: Path) -> None:
    mind = Mind(BY_HAND)
    async with bridge(published(tmp_path / "s.sqlite"), mind) as here:
        run = await greet(here, "nobody")
        assert await run.result() == {"said": "sent to office@example.org"}
        assert (run.way, run.answer()["usage"]["requests"]) == ("solve", 1)
        steps = here.store.ideas.of_run(run.id)
        assert [one.meta.mind for one in steps] == ["plan", "scripted"]

    # The mind does not repeat what the plan has already done.
    assert RAN == ["find nobody", "send office@example.org"]
    [seen] = mind.seen
    for part in (
        "Greet somebody.",
        "how it was solved before",
        "nobody",
        "†results.0.people.0.mail",
        "people",
    ):
        assert part in seen


async def test_an_output_that_may_be_null_is_given_by_the_plan_too(tmp_path: Path) -> None:
    guide: JSONObject = {**GUIDE, "output_schema": {}}
    explained: list[JSON] = [
        {"at": ["output", "said"], "by": ["†state.sent", {"constant": "x"}], "runs": 3}
    ]
    plan: dict[str, Any] = {
        "output": {"said": "recorded"},
        "explained": [*_listed(SENDING["explained"]), *explained],
    }
    async with bridge(published(tmp_path / "s.sqlite", guide, None, **plan), Mind()) as here:
        run = await greet(here, "bob")
        assert await run.result() == {"said": "sent to bob@example.org"}
        assert [one["at"] for one in run.assumed] == ["output.value.said"]


def _listed(value: JSON) -> Sequence[JSON]:
    return value if isinstance(value, list) else []


async def test_a_mind_sees_what_a_call_assumed(tmp_path: Path) -> None:
    assumed: JSON = {"at": ["calls", "0", "name"], "by": ["†input.name", {"constant": "ann"}]}
    mind = Mind(BY_HAND)
    calls: list[JSON] = [{"_tool": "find", "name": "ann"}, *_listed(SENDING["calls"])[1:]]
    store = published(
        tmp_path / "s.sqlite", calls=calls, explained=[assumed, *_listed(SENDING["explained"])]
    )
    async with bridge(store, mind) as here:
        run = await greet(here, "nobody")
        assert await run.result() == {"said": "sent to office@example.org"}
        assert [one["at"] for one in run.assumed] == ["calls.0.name"]

    assert (
        'it assumed: calls.0.name is "nobody" (†input.name); it could also be "ann"' in mind.seen[0]
    )


async def test_by_turns_the_caller_goes_on_and_after_a_restart_too(tmp_path: Path) -> None:
    store = published(tmp_path / "s.sqlite")
    async with bridge(store) as here:
        run = await greet(here, "nobody")
        assert (run.status, run.turn) == ("needs_solution", 1)

    async with bridge(store) as here:
        again = await here.run(run.id)
        again.submit(1, BY_HAND)
        assert await again.result() == {"said": "sent to office@example.org"}

    assert RAN == ["find nobody", "send office@example.org"]


async def test_a_plan_that_may_be_followed_by_a_mind_has_the_hints_of_both(tmp_path: Path) -> None:
    reading: JSONObject = {
        "calls": [{"_tool": "find", "name": "†input.name"}],
        "output": "†results.0",
        "explained": [],
    }
    hints: list[JSON] = []
    for guide in (None, GUIDE):
        store = published(tmp_path / f"{guide is None}.sqlite", guide, None, **reading)
        async with bridge(store) as here:
            await here.start_idea("greet", {"name": "ann"})
            with Store.open(store) as opened:
                hints.append(
                    here.hints(opened.publications.named("greet", caller=SEES_ALL))["readOnlyHint"]
                )

    assert hints == [True, False]


async def test_a_run_is_published_with_the_permission_that_a_mind_goes_on() -> None:
    RAN.clear()
    mind = Mind(BY_HAND)
    async with Bridge(
        Configuration(approval="allow_all"), toolbox=Toolbox(find, send), mind=mind
    ) as here:
        run = await here.solve(
            "Greet somebody.", input={"name": "ann"}, output_schema=OUTPUT, mind="turns"
        )
        run.submit(0, {"calls": [{"_tool": "find", "name": "†input.name"}]})
        await run.wait(30)
        send_to = {
            "_tool": "send",
            "to": "†results.0.people.0.mail",
            "text": "hello",
            "_outputPath": "sent",
        }
        run.submit(1, {"calls": [send_to], "output": {"said": "†state.sent"}})
        assert await run.result() == {"said": "sent to ann@example.org"}
        told = await here.publish(run.id, "greet", answer="plan", or_solve=True)
        assert told.plan is not None
        assert told.guide is not None
        assert "Where the plan cannot continue, a model takes over." in told.description
        assert (await (await greet(here, "bob")).result()) == {"said": "sent to bob@example.org"}
        assert mind.seen == []
        assert (await (await greet(here, "nobody")).result()) == {
            "said": "sent to office@example.org"
        }
        assert len(mind.seen) == 1
        assert RAN[-3:] == ["send bob@example.org", "find nobody", "send office@example.org"]
