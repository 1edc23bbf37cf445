"""A call whose outcome nobody knows is asked about through the server: decide_approval, and
forms in both eras.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import types

from ideabridge.bridge import Bridge, Store, read_plan
from ideabridge.bridge.configuration import load_configuration
from ideabridge.bridge.loop.event import CallStarted
from ideabridge.bridge.store.users import SEES_ALL

from .serving import ERAS, call, configured, in_memory, over_stdio, read_by_a_person, refused, text

pytestmark = pytest.mark.anyio

TOOLS = '''
from pathlib import Path

import anyio

from ideabridge.tools.decorator import tool


@tool(destructive=False)
async def pay(to: str) -> dict[str, int]:
    """Pay somebody."""
    if not Path(__file__).with_name("open").exists():
        await anyio.sleep_forever()
    return {"receipt": 1}
'''


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


async def cut_off(folder: Path, count: int = 1) -> tuple[Path, list[str]]:
    """The configuration, and runs whose process ended while they paid."""
    path = folder / "ideabridge.json"
    (folder / "tools.py").write_text(TOOLS)
    path.write_text('{"store": "ideas.sqlite", "tools": ["tools.py"], "approval": "allow_all"}')
    plan = read_plan(
        {
            "calls": [{"_tool": "pay", "to": "Ada", "_outputPath": "paid"}],
            "output": "†state.paid.receipt",
        }
    )
    runs: list[str] = []
    async with Bridge(load_configuration(path, project=folder)) as bridge:
        for _ in range(count):
            run = await bridge.run_plan(plan)
            async for event in run:
                if isinstance(event, CallStarted):
                    break
            runs.append(run.id)

    (folder / "open").touch()
    return path, runs


async def test_a_host_decides_what_came_of_it(era: str, tmp_path: Path) -> None:
    path, [run] = await cut_off(tmp_path)
    async with in_memory(path, era) as client:
        told = await call(client, "check_run", run=run)
        assert told["status"] == "needs_approval"
        [entry] = told["approvals"]
        assert entry["choices"] == ["retry", "skip", "value"]
        shown = text(await client.call_tool("check_run", {"run": run}))
        assert "(retry, skip, value)" in shown
        assert "outcome unknown" in shown
        wrong = {"approval": entry["approval"], "decision": "value", "value": {"receipt": "none"}}
        assert "expected an integer" in await refused(
            client, "decide_approval", run=run, decisions=[wrong]
        )
        lacking = {"approval": entry["approval"], "decision": "value"}
        assert "requires `value`" in await refused(
            client, "decide_approval", run=run, decisions=[lacking]
        )
        right = {**wrong, "value": {"receipt": 7}}
        done = await call(client, "decide_approval", run=run, decisions=[right])
        assert (done["status"], done["output"]) == ("done", 7)


ANSWERS: list[tuple[dict[str, Any] | None, Any]] = [
    ({"decision": "retry"}, 1),
    ({"decision": "value", "value": '{"receipt": 5}'}, 5),
    ({"decision": "skip", "reason": "ask the bank"}, None),
    ({"decision": "approve"}, "waits"),
    ({"decision": "value", "value": "paid"}, "waits"),
    (None, None),
]


async def test_a_person_answers_a_form(era: str, tmp_path: Path) -> None:
    # Use one server for all answers. Each is about a run of its own that was cut off before the
    # server started.
    path, runs = await cut_off(tmp_path, len(ANSWERS))
    given: dict[str, Any] | None = None
    forms = 0

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        nonlocal forms
        assert isinstance(params, types.ElicitRequestFormParams)
        assert params.message.startswith("What was the result of pay?")
        assert set(params.requested_schema["properties"]) == {"decision", "value", "reason"}
        forms += 1
        if given is None:
            await read_by_a_person()

        return types.ElicitResult(action="decline" if given is None else "accept", content=given)

    async with over_stdio(path, era, elicitation_callback=answer) as client:
        for run, (given, output) in zip(runs, ANSWERS, strict=True):
            forms = 0
            told = await call(client, "check_run", run=run)
            assert forms, given
            if output == "waits":
                assert told["status"] == "needs_approval", given
                assert "the person's answer in the form was not accepted" in told["notes"][0], given
            elif output is None:
                assert told["status"] == "failed", given
                assert (
                    "ask the bank" in str(told["errors"])
                    if given
                    else "the person declined the form" in str(told["errors"])
                )
            else:
                assert (told["status"], told["output"]) == ("done", output), given


@pytest.mark.parametrize(("decision", "message"), [("value", "done"), ("skip", "failed")])
async def test_progress_counts_a_call_that_a_person_decided(
    tmp_path: Path, decision: str, message: str
) -> None:
    path, [run] = await cut_off(tmp_path)
    messages: list[str | None] = []

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        await read_by_a_person()
        content: dict[str, Any] = {"decision": decision}
        if decision == "value":
            content["value"] = '{"receipt": 5}'
        return types.ElicitResult(action="accept", content=content)

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message)

    # In this era, the answer arrives while the request is waiting.
    async with over_stdio(path, "legacy", elicitation_callback=answer) as client:
        await client.call_tool("check_run", {"run": run}, progress_callback=on_progress)

    assert messages == ["pay started", f"pay {message} (1 of 1)"]


async def test_an_answer_that_does_not_fit_is_told_and_asked_for_again(
    era: str, tmp_path: Path
) -> None:
    path, [run] = await cut_off(tmp_path)
    given = ["paid", None, '{"receipt": 5}']
    forms: list[str] = []

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        forms.append(params.message)
        value = given[len(forms) - 1]
        content: dict[str, Any] = {"decision": "value"} | (
            {} if value is None else {"value": value}
        )
        return types.ElicitResult(action="accept", content=content)

    async with in_memory(path, era, elicitation_callback=answer) as client:
        told = await call(client, "check_run", run=run)

    assert (told["status"], told["output"]) == ("done", 5)
    assert "notes" not in told
    first, second, third = forms
    assert "not accepted" not in first
    assert "not accepted: the value cannot be used as the call's result" in second
    assert "not accepted: value: expected the result of the call" in third


async def test_what_never_fits_is_asked_for_three_times_and_the_answer_says_why(
    era: str, tmp_path: Path
) -> None:
    path, [run] = await cut_off(tmp_path)
    forms: list[str] = []

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        forms.append(params.message)
        return types.ElicitResult(
            action="accept", content={"decision": "value", "value": '{"receipt": "none"}'}
        )

    async with in_memory(path, era, elicitation_callback=answer) as client:
        told = await call(client, "check_run", run=run)
        assert told["status"] == "needs_approval"
        assert len(forms) == 3
        [note] = told["notes"]
        assert "is still waiting" in note
        assert "expected an integer" in note
        # Another request asks again.
        await call(client, "check_run", run=run)
        assert len(forms) == 6
        assert "not accepted" not in forms[3]


async def test_a_module_that_dies_under_a_call(era: str, tmp_path: Path) -> None:
    server = Path(__file__).parents[1] / "modules" / "servers" / "pay.py"
    bank: dict[str, Any] = {"command": sys.executable, "args": ["-I", str(server), str(tmp_path)]}
    path = configured(tmp_path, mcpServers={"bank": bank}, expose=["modules"], approval="allow_all")
    died = "server 'bank' ended with exit code 3 while tool 'pay' was running"
    async with in_memory(path, era) as client:
        plan: list[Any] = [
            {
                "_tool": "pay",
                "_module": "bank",
                "to": "Ada",
                "do": "die",
                "_outputPath": "paid || refused",
            },
            {"_tool": "refund", "_module": "bank", "of": "†state.refused"},
        ]
        told = await call(client, "run_plan", calls=plan)
        assert told["status"] == "needs_approval"
        assert told["approvals"][0]["why"].startswith(f"outcome unknown: {died}")
        decision = {"approval": told["approvals"][0]["approval"], "decision": "skip"}
        told = await call(client, "decide_approval", run=told["run"], decisions=[decision])
        assert [one["error"]["kind"] for one in told["errors"]] == ["unknown", "dependency"]
        error = await refused(client, "pay", to="Bob", do="die")
        assert (
            error
            == f"outcome unknown: {died}. pay may have taken effect: check before you call it again"
        )
        # A call that only reads has done no harm.
        error = await refused(client, "look", to="Cid", do="die")
        assert error == f"{died} (the call was sent 3 times)".replace("'pay'", "'look'")
        assert (tmp_path / "ledger").read_text().splitlines() == [
            "pay Ada",
            "pay Bob",
            *["look Cid"] * 3,
        ]

    with Store.open(tmp_path / "ideas.sqlite") as store:
        kept = [(one.name, one.outcome) for one in store.direct_calls.page(caller=SEES_ALL).items]

    assert sorted(kept) == [("look", "error"), ("pay", "unknown")]
