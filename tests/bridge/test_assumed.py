"""Assumptions of published plans in the Python API: what a run reports, and how an
approver chooses.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ideabridge.bridge import ApprovalRequest, Bridge, Decision
from ideabridge.bridge.sync import Bridge as SyncBridge
from ideabridge.tools import Toolbox
from tests.server.assuming import ADDING, ASSUMED, WRITING, publish
from tests.server.tools import add, write_note


@pytest.mark.anyio
async def test_a_run_reports_what_it_assumed(tmp_path: Path) -> None:
    publish(tmp_path / "s.sqlite", "sums", ADDING)
    async with Bridge(toolbox=Toolbox(add), store=tmp_path / "s.sqlite") as bridge:
        run = (await bridge.start_idea("sums", {"n": 0, "m": 7})).run
        assert run is not None
        assert await run.result() == {"total": 7}
        assert [(one["at"], one["taken"]) for one in run.assumed] == [("calls.0.b", 7)]
        assert run.noted == [{"at": "†input.n", "what": "zero, 0, which no earlier run had"}]
        assert run.answer()["assumed"] == run.assumed
        # A bridge in another process reads it from the journal.
        async with Bridge(toolbox=Toolbox(add), store=tmp_path / "s.sqlite") as other:
            assert (await other.run(run.id)).assumed == run.assumed


def test_a_script_that_gets_only_the_result_is_told_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publish(tmp_path / "s.sqlite", "sums", ADDING)
    with (
        SyncBridge(toolbox=Toolbox(add), store=tmp_path / "s.sqlite") as bridge,
        caplog.at_level(logging.WARNING),
    ):
        assert bridge.call_idea("sums", {"n": 2, "m": 5}) == {"total": 7}
        assert caplog.messages == []
        assert bridge.call_idea("sums", {"n": 2, "m": 7}) == {"total": 9}

    [message] = caplog.messages
    assert ASSUMED.format(7) in message


@pytest.mark.anyio
async def test_an_approver_chooses_among_the_values(tmp_path: Path) -> None:
    asked: list[ApprovalRequest] = []

    async def approver(request: ApprovalRequest) -> Decision:
        asked.append(request)
        [assumption] = request.assumed
        return Decision("edit", call=request.with_choices({assumption.at: assumption.choices[1]}))

    publish(tmp_path / "s.sqlite", "noted", WRITING)
    async with Bridge(
        toolbox=Toolbox(write_note), store=tmp_path / "s.sqlite", approver=approver
    ) as bridge:
        run = (
            await bridge.start_idea("noted", {"path": str(tmp_path / "note"), "words": "bye"})
        ).run
        assert run is not None
        assert await run.result() == 5
        assert (tmp_path / "note").read_text() == "hello"
        assert run.assumed == []

    assert asked[0].call["text"] == "bye"
    assert '"hello" (always "hello")' in asked[0].why
