"""A module promises more of a tool than before, so that calls which asked a person run
without asking.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ideabridge.bridge import Bridge
from ideabridge.tools.encoding import JSONObject
from tests.waiting import until

from .listing import Modules, described

pytestmark = pytest.mark.anyio

PUSH: JSONObject = {"calls": [{"_tool": "git_push", "repo": "r"}]}


async def notes(modules: Modules) -> tuple[str, ...]:
    """What is reported of `git` once it is up, in a process of its own as far as the
    store is concerned.
    """
    async with Bridge(modules.configured("git"), store=modules.folder / "ideas.sqlite") as bridge:
        await bridge.modules["git"].ready(20)
        return bridge.modules["git"].status().notes


async def test_a_milder_hint_of_a_known_tool_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    modules = Modules(tmp_path)
    modules.lists(
        "git",
        described("git_push", read_only=False),
        described("git_tag", read_only=None),
        "git_log",
    )
    assert await notes(modules) == ()
    modules.lists("git", "git_push", "git_tag", described("git_log", read_only=False), "new")
    with caplog.at_level(logging.WARNING):
        told = await notes(modules)

    assert told == tuple(
        f"{name} now declares that it only reads; previously it did not"
        for name in ("git_push", "git_tag")
    )
    assert [record.getMessage() for record in caplog.records] == [f"server git: {'; '.join(told)}"]
    # The change is noted only once, because the new hints are the known ones from then on.
    assert await notes(modules) == ()


async def test_the_same_while_the_server_runs_and_rules_do_not_depend_on_it(tmp_path: Path) -> None:
    modules = Modules(tmp_path)
    push = described("git_push", read_only=False)
    modules.lists("git", push, "refresh")
    asking = modules.configured(
        "git", approval={"rules": [{"module": "git", "tool": "git_push", "then": "ask"}]}
    )
    async with Bridge(asking, store=tmp_path / "ideas.sqlite") as bridge:
        await bridge.modules["git"].ready(20)
        modules.lists(
            "git",
            {**push, "annotations": {"destructiveHint": False, "readOnlyHint": False}},
            "refresh",
        )
        run = await bridge.run_plan({"calls": [{"_tool": "refresh"}]})
        assert await run.wait(20) == "done"
        await until(lambda: bridge.modules["git"].status().notes)
        told = bridge.modules["git"].status().notes
        assert told == ("git_push now declares that it destroys nothing; previously it did not",)
        modules.lists("git", "git_push", "refresh")
        run = await bridge.run_plan(PUSH)
        assert await run.wait(20) == "needs_approval"

    assert modules.calls("git") == []
