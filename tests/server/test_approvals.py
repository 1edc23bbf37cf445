"""Approvals: calls that change things wait for a person, who decides with decide_approval."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from .serving import call, refused, text

pytestmark = pytest.mark.anyio


def note(path: Path, words: str = "hello") -> dict[str, Any]:
    return {"_tool": "write_note", "path": str(path), "text": words, "_outputPath": "written"}


async def test_a_call_that_changes_things_waits_until_it_is_approved(
    client: Client, tmp_path: Path
) -> None:
    path = tmp_path / "note"
    result = await client.call_tool(
        "run_plan", {"calls": [note(path)], "output": {"length": "†state.written"}}
    )
    told: Any = result.structured_content
    assert told["status"] == "needs_approval"
    assert not path.exists()
    approval = told["approvals"][0]
    assert approval["call"]["text"] == "hello"
    assert "changes things" in approval["why"]
    assert approval["approval"] in text(result)
    said = await refused(
        client,
        "decide_approval",
        run=told["run"],
        decisions=[{"approval": "other", "decision": "approve"}],
    )
    assert approval["approval"] in said
    done = await call(
        client,
        "decide_approval",
        run=told["run"],
        decisions=[{"approval": approval["approval"], "decision": "approve", "reason": "fine"}],
    )
    assert done["status"] == "done"
    assert done["output"] == {"length": 5}
    assert path.read_text() == "hello"


async def test_an_assistant_grants_nothing(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "note"
    told = await call(client, "run_plan", calls=[note(path)])
    approval = told["approvals"][0]["approval"]
    decision = {"approval": approval, "decision": "approve", "grant": {"for": "run"}}
    said = await refused(client, "decide_approval", run=told["run"], decisions=[decision])
    assert (
        "decisions[0]: only a person can allow a tool for the rest of a run, not the assistant"
        in said
    )
    assert f"ideabridge approvals decide approve {approval} --for-run" in said
    assert (await call(client, "check_run", run=told["run"]))["status"] == "needs_approval"
    assert not path.exists()


async def test_a_denied_call_does_not_run(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "note"
    told = await call(client, "run_plan", calls=[note(path)])
    done = await call(
        client,
        "decide_approval",
        run=told["run"],
        decisions=[
            {
                "approval": told["approvals"][0]["approval"],
                "decision": "deny",
                "reason": "not there",
            }
        ],
    )
    assert done["status"] == "done"
    assert "not there" in str(done["errors"])
    assert not path.exists()


async def test_an_edited_call_runs_as_edited(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "note"
    told = await call(client, "run_plan", calls=[note(path)])
    approval = told["approvals"][0]
    wrong = {
        "approval": approval["approval"],
        "decision": "edit",
        "call": {**approval["call"], "text": 5},
    }
    assert "text" in await refused(client, "decide_approval", run=told["run"], decisions=[wrong])
    right = {**wrong, "call": {**approval["call"], "text": "edited"}}
    done = await call(client, "decide_approval", run=told["run"], decisions=[right])
    assert done["status"] == "done"
    assert path.read_text() == "edited"


async def test_another_call_runs_in_its_place(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "note"
    told = await call(client, "run_plan", calls=[note(path)])
    approval = told["approvals"][0]
    edit = {"approval": approval["approval"], "decision": "edit"}
    unknown = {**edit, "call": {"_tool": "count_word", "text": "x"}}
    assert "count_words" in await refused(
        client, "decide_approval", run=told["run"], decisions=[unknown]
    )
    # The plan names no other tool, so the person chooses from all tools.
    place = approval["call"]["_outputPath"]
    right = {**edit, "call": {"_tool": "count_words", "text": "two words", "_outputPath": place}}
    done = await call(client, "decide_approval", run=told["run"], decisions=[right])
    assert done["status"] == "done"
    assert done["state"] == {place: {"words": 2}}
    assert not path.exists()


async def test_a_published_plan_that_changes_things_asks_too(
    client: Client, tmp_path: Path
) -> None:
    name = f"write_{client.protocol_version.replace('-', '_')}"
    call_ = {
        "_tool": "write_note",
        "path": "†input.path",
        "text": "†input.text",
        "_outputPath": "written",
    }
    told = await call(
        client,
        "run_plan",
        calls=[call_],
        input={"path": str(tmp_path / "one"), "text": "one"},
        output={"length": "†state.written"},
        save_as=name,
    )
    approve = [{"approval": told["approvals"][0]["approval"], "decision": "approve"}]
    saved = (await call(client, "decide_approval", run=told["run"], decisions=approve))["saved"]
    assert saved["version"] == 1
    said = await refused(client, name, path=str(tmp_path / "two"), text="two")
    assert "needs_approval" in said
    assert not (tmp_path / "two").exists()
    result = await client.call_tool(name, {"path": str(tmp_path / "three"), "text": "three"})
    waiting: Any = result.structured_content
    approve = [{"approval": waiting["approvals"][0]["approval"], "decision": "approve"}]
    done = await call(client, "decide_approval", run=waiting["run"], decisions=approve)
    assert done["output"] == {"length": 5}


def approving(told: dict[str, Any]) -> dict[str, Any]:
    decisions = [{"approval": one["approval"], "decision": "approve"} for one in told["approvals"]]
    return {"run": told["run"], "decisions": decisions}


async def test_two_hundred_calls_of_one_module_are_asked_about_together(
    client: Client, tmp_path: Path
) -> None:
    """Each waits for the one before; its question does not."""
    path = tmp_path / "note"
    result = await client.call_tool(
        "run_plan", {"calls": [note(path, str(number)) for number in range(200)]}
    )
    told: Any = result.structured_content
    assert [one["call"]["text"] for one in told["approvals"]] == [
        str(number) for number in range(200)
    ]
    assert "more_approvals" not in told
    assert text(result).count("\n- a") == 200
    assert len(text(result)) < 60_000
    done = await call(client, "decide_approval", **approving(told), wait_s=15)
    assert done["status"] == "done"
    assert path.read_text() == "199"


async def test_more_approvals_than_an_answer_holds_are_shown_one_part_after_another(
    client: Client, tmp_path: Path
) -> None:
    path = tmp_path / "note"
    calls = [note(path, f"{number} {'x' * 6000}") for number in range(600)]
    result = await client.call_tool("run_plan", {"calls": calls})
    told: Any = result.structured_content
    seen: list[str] = []
    while told["status"] == "needs_approval":
        shown = told["approvals"]
        # Long text is shown as a preview.
        seen += [one["call"]["text"]["preview"].split()[0] for one in shown]
        left = 600 - len(seen)
        assert told.get("more_approvals", 0) == left
        assert (f"and {left} more, which are shown once these are decided" in text(result)) == (
            left > 0
        )
        assert len(text(result)) + len(json.dumps(told)) < 700_000
        result = await client.call_tool("decide_approval", {**approving(told), "wait_s": 15})
        told = result.structured_content

    assert seen == [str(number) for number in range(600)]
    assert told["status"] == "done"
