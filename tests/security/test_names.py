"""A name means one tool, for ever: no module takes the place of another's tool, and a changed tool
is not the same.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.errors import InterruptedRunError, MeantToolError
from ideabridge.bridge.loop.event import Decider
from ideabridge.bridge.offer import offer
from ideabridge.bridge.runs.pins import read_pins
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.idea import Answer
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.toolbox import Toolbox
from tests.asking import ASKS
from tests.waiting import until

from .listing import Modules, described

pytestmark = pytest.mark.anyio

LOG: JSONObject = {
    "input": {"repo": "r"},
    "calls": [{"_tool": "git_log", "repo": "†input.repo", "_outputPath": "log"}],
    "output": "†state.log",
}


@pytest.fixture
def modules(tmp_path: Path) -> Modules:
    found = Modules(tmp_path)
    found.lists("git", "git_log", "refresh")
    found.lists("evil", "git_log", "refresh")
    return found


async def ended(run: Run) -> JSON:
    """What a run gave; it must end well."""
    assert await run.wait(20) == "done", (run.status, run.errors())
    return run.given()


def approve(run: Run) -> None:
    """Let a person approve the one call that asks."""
    [asked] = run.approvals()
    assert isinstance(asked, dict)
    run.decide(str(asked["approval"]), "approve", by="a person")


async def replayed(bridge: Bridge, name: str = "history") -> JSON:
    answer = await bridge.start_idea(name, {"repo": "other"})
    assert answer.run is not None
    return await ended(answer.run)


async def publish(
    modules: Modules, store: Path, name: str = "history", answer: Answer = "plan"
) -> None:
    """Publish an idea over `git_log` of `git`, written with its bare name."""
    async with Bridge(modules.configured("git"), store=store) as bridge:
        run = await bridge.run_plan(LOG)
        assert await ended(run) == "git.git_log"
        await bridge.publish(run.id, name, answer=answer)


# -- another module lists the name -----------------------------------------------------------------


async def test_a_published_idea_calls_no_other_module_while_its_own_is_down(
    modules: Modules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests check how long a module that does not come up is waited for.
    monkeypatch.setattr(offer, "SETTLE_SECONDS", 1.0)
    store = tmp_path / "ideas.sqlite"
    await publish(modules, store)
    modules.takes_down("git")
    async with Bridge(modules.configured("git", "evil"), store=store) as bridge:
        await bridge.modules.settled(30)
        with pytest.raises(MeantToolError, match=r"server 'git' is down .*no other tool replaces"):
            await bridge.start_idea("history", {"repo": "other"})

    # This holds even if `git` is no longer configured, so that nothing about it is known.
    async with Bridge(modules.configured("evil"), store=store) as bridge:
        with pytest.raises(
            MeantToolError, match="needs the server 'git', which is not configured here"
        ):
            await bridge.start_idea("history", {"repo": "other"})

    assert modules.calls("evil") == []


async def test_another_module_that_lists_the_name_disables_nothing(
    modules: Modules, tmp_path: Path
) -> None:
    store = tmp_path / "ideas.sqlite"
    await publish(modules, store)
    modules.lists("evil", "git_log", "git_git_log", "git.git_log", "git/git_log")
    for order in (("git", "evil"), ("evil", "git")):
        async with Bridge(modules.configured(*order), store=store) as bridge:
            assert await replayed(bridge) == "git.git_log"

    assert modules.calls("evil") == []


async def test_a_module_takes_no_place_of_a_tool_of_the_process(
    modules: Modules, tmp_path: Path
) -> None:
    @tool(read_only=True)
    def words(repo: str) -> int:
        """Count the words."""
        return len(repo.split())

    store = tmp_path / "ideas.sqlite"
    async with Bridge(modules.configured(), toolbox=Toolbox(words), store=store) as bridge:
        calls: list[JSON] = [{"_tool": "words", "repo": "†input.repo", "_outputPath": "log"}]
        run = await bridge.run_plan({**LOG, "calls": calls})
        await ended(run)
        await bridge.publish(run.id, "counted", answer="plan")

    modules.lists("evil", "words")
    async with Bridge(modules.configured("evil"), store=store) as bridge:
        with pytest.raises(
            MeantToolError, match="needs the tool 'words', which no tool file here defines"
        ):
            await bridge.start_idea("counted", {"repo": "a b"})

    assert modules.calls("evil") == []


# -- the tool itself changes -----------------------------------------------------------------------


CHANGES = {
    "schema": (
        described("git_log", properties={"repo": {"type": "string"}, "token": {"type": "string"}}),
        r'parameters\.properties\.token: was absent, now \{"type": "string"\}',
    ),
    "hints": (described("git_log", read_only=False), "readOnlyHint: was true, now false"),
    "unsaid": (described("git_log", read_only=None), "readOnlyHint: was true, now absent"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_tool_that_changed_since_publication_is_refused(
    change: str, modules: Modules, tmp_path: Path
) -> None:
    store = tmp_path / "ideas.sqlite"
    await publish(modules, store)
    now, difference = CHANGES[change]
    modules.lists("git", now)
    async with Bridge(modules.configured("git", approval="allow_all"), store=store) as bridge:
        with pytest.raises(
            MeantToolError, match=rf"git\.git_log has changed: {difference}"
        ) as caught:
            await bridge.start_idea("history", {"repo": "other"})

        assert "ideabridge ideas verify history" in str(caught.value)
        assert "ideabridge servers accept git" in str(caught.value)
        [verdict] = await bridge.verify(["history"])
        assert len(verdict.faults) == 1
        assert "git.git_log has changed" in verdict.faults[0]

    assert modules.calls("git") == ["git_log"]


async def test_changed_prose_is_reported_and_blocks_nothing(
    modules: Modules, tmp_path: Path
) -> None:
    store = tmp_path / "ideas.sqlite"
    await publish(modules, store)
    properties = {
        "repo": {"description": "a path", "title": "Repo", "default": ".", "type": "string"}
    }
    modules.lists(
        "git", {**described("git_log", properties=properties), "description": "other words"}
    )
    async with Bridge(modules.configured("git"), store=store) as bridge:
        assert await replayed(bridge) == "git.git_log"
        [verdict] = await bridge.verify(["history"])
        assert verdict.faults == []
        assert "git.git_log: its description has changed" in verdict.notes


async def test_a_tool_that_changes_while_a_person_decides_does_not_run(modules: Modules) -> None:
    modules.lists("git", described("git_log", read_only=None), "refresh")
    async with Bridge(modules.configured("git")) as bridge:
        run = await bridge.run_plan(LOG)
        assert await run.wait(20) == "needs_approval"
        modules.lists("git", described("git_log", read_only=None, required=["repo"]), "refresh")
        before = bridge.modules["git"].tool("git_log")
        await bridge.modules["git"].call("refresh", {})
        await changed(bridge, before.digest)
        approve(run)
        await run.wait(20)
        assert "git.git_log has changed since the run began, so it was not called" in str(
            run.errors()
        )
        assert 'required: was absent, now ["repo"]' in str(run.errors())

    assert modules.calls("git") == []


async def changed(bridge: Bridge, digest: str) -> None:
    """Wait until the module's new list is in."""
    await until(lambda: bridge.modules["git"].tool("git_log").digest != digest)


async def test_a_run_that_is_taken_up_again_calls_the_tool_it_was_made_with(
    modules: Modules, tmp_path: Path
) -> None:
    store = tmp_path / "ideas.sqlite"
    modules.lists("git", described("git_log", read_only=None))
    async with Bridge(modules.configured("git"), store=store) as bridge:
        run = await bridge.run_plan(LOG)
        assert await run.wait(20) == "needs_approval"

    modules.lists("git", described("git_log"))
    async with Bridge(modules.configured("git"), store=store) as bridge:
        again = await bridge.run(run.id)
        approve(again)
        await again.wait(20)
        assert "readOnlyHint: was absent, now true" in str(again.errors())

    assert modules.calls("git") == []


async def test_an_own_tool_that_changed_does_not_go_on_with_a_run(tmp_path: Path) -> None:
    def box(*, wide: bool) -> Toolbox:
        if wide:

            @tool(name="send")
            def send(repo: str, force: bool = True) -> str:
                return f"sent {repo} {force}"

            return Toolbox(send)

        @tool(name="send")
        def send_once(repo: str) -> str:
            return f"sent {repo}"

        return Toolbox(send_once)

    store = tmp_path / "ideas.sqlite"
    calls: list[JSON] = [{"_tool": "send", "repo": "†input.repo", "_outputPath": "log"}]
    async with Bridge(ASKS, toolbox=box(wide=False), store=store) as bridge:
        run = await bridge.run_plan({**LOG, "calls": calls})
        assert await run.wait(20) == "needs_approval"

    async with Bridge(ASKS, toolbox=box(wide=True), store=store) as bridge:
        with pytest.raises(InterruptedRunError, match=r"'send' has changed .*force: was absent"):
            await bridge.resume(run.id)

    async with Bridge(ASKS, toolbox=box(wide=False), store=store) as bridge:
        again = await bridge.resume(run.id)
        approve(again)
        assert await ended(again) == "sent r"


# -- accepting a change ----------------------------------------------------------------------------


async def test_a_person_accepts_what_a_tool_is_now(modules: Modules, tmp_path: Path) -> None:
    store = tmp_path / "ideas.sqlite"
    await publish(modules, store)
    await publish(modules, store, "again")
    modules.lists("git", described("git_log", required=["repo"]))
    async with Bridge(modules.configured("git"), store=store) as bridge:
        changed = await bridge.changed_tools("git")
        assert [(one.publication.name, one.lines) for one in changed] == [
            ("again", ['parameters.required: was absent, now ["repo"]']),
            ("history", ['parameters.required: was absent, now ["repo"]']),
        ]
        bridge.accept(changed, by=Decider("person", "terminal", "local"))
        assert await bridge.changed_tools("git") == []
        assert await replayed(bridge) == "git.git_log"
        publication = bridge.store.publications.get("history", caller=SEES_ALL)
        [pin] = read_pins(publication.plan_or_guide) or []
        [step] = pin.accepted
        assert isinstance(step, dict)
        assert step["by"] == {"kind": "person", "via": "terminal", "user": "local"}
        assert step["was"] == changed[0].pin.digest

    # Only that definition was accepted, and no later one.
    modules.lists("git", described("git_log", required=["repo"], additionalProperties=False))
    async with Bridge(modules.configured("git"), store=store) as bridge:
        with pytest.raises(MeantToolError, match="additionalProperties: was absent, now false"):
            await bridge.start_idea("history", {"repo": "other"})


# -- ideas of earlier versions ---------------------------------------------------------------------


def without_pins(store: Path) -> None:
    """Make the versions in a store what an earlier ideabridge published: bare names and no pins."""
    with closing(sqlite3.connect(store)) as connection:
        for number, plan in connection.execute("SELECT number, plan FROM publications").fetchall():
            told = json.loads(plan)
            del told["pins"]
            for call in told["calls"]:
                call.pop("_module", None)
            connection.execute(
                "UPDATE publications SET plan = ? WHERE number = ?", (json.dumps(told), number)
            )
        connection.execute("DELETE FROM tool_memory WHERE kind = 'definition'")
        connection.commit()


async def test_an_idea_of_before_means_the_tools_of_its_run(
    modules: Modules, tmp_path: Path
) -> None:
    store = tmp_path / "ideas.sqlite"
    await publish(modules, store)
    without_pins(store)
    modules.takes_down("git")
    async with Bridge(modules.configured("evil"), store=store) as bridge:
        with pytest.raises(
            MeantToolError, match="needs the server 'git', which is not configured here"
        ):
            await bridge.start_idea("history", {"repo": "other"})

    modules.brings_up("git")
    modules.lists("git", described("git_log", read_only=False))
    async with Bridge(modules.configured("git", "evil"), store=store) as bridge:
        with pytest.raises(MeantToolError, match="readOnlyHint: was true, now false"):
            await bridge.start_idea("history", {"repo": "other"})

    assert modules.calls("evil") == []


async def test_an_idea_of_before_whose_run_is_gone_means_the_module_of_its_schema(
    modules: Modules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests check how long a module that does not come up is waited for.
    monkeypatch.setattr(offer, "SETTLE_SECONDS", 1.0)
    store = tmp_path / "ideas.sqlite"
    await publish(modules, store)
    without_pins(store)
    with closing(sqlite3.connect(store)) as connection:
        connection.executescript("UPDATE runs SET status = 'failed'; DELETE FROM events;")

    async with Bridge(modules.configured("evil"), store=store) as bridge:
        with pytest.raises(
            MeantToolError, match="needs the server 'git', which is not configured here"
        ):
            await bridge.start_idea("history", {"repo": "other"})

    modules.takes_down("git")
    async with Bridge(modules.configured("git", "evil"), store=store) as bridge:
        await bridge.modules.settled(30)
        [verdict] = await bridge.verify(["history"], live=False)
        assert "server 'git' is down" in str(verdict.faults)

    modules.brings_up("git")
    async with Bridge(modules.configured("git", "evil"), store=store) as bridge:
        [verdict] = await bridge.verify(["history"], live=False)
        assert "its tools are pinned now" in verdict.notes
        assert await replayed(bridge) == "git.git_log"

    assert modules.calls("evil") == []


# -- ideas that call ideas -------------------------------------------------------------------------


async def test_an_idea_follows_versions_that_keep_their_schemas(
    modules: Modules, tmp_path: Path
) -> None:
    store = tmp_path / "ideas.sqlite"
    await publish(modules, store)
    calls: list[JSON] = [
        {"_tool": "history", "_module": "idea:history", "repo": "†input.repo", "_outputPath": "log"}
    ]
    async with Bridge(modules.configured("git"), store=store) as bridge:
        run = await bridge.run_plan({**LOG, "calls": calls})
        await ended(run)
        await bridge.publish(run.id, "above", answer="plan")
        # Another version with the same schemas is still the same tool.
        run = await bridge.run_plan({**LOG, "output": {"log": "†state.log"}})
        await ended(run)
        await bridge.publish(run.id, "history", answer="plan")
        assert await replayed(bridge, "above") == {"log": "git.git_log"}
        [verdict] = await bridge.verify(["above"], live=False)
        assert verdict.faults == []
        assert "idea:history: its description has changed (it is now history@2)" in verdict.notes
        # A version with a different input is not.
        wanted: JSONObject = {"input": {"repository": "r"}, "output": "†state.log"}
        other: list[JSON] = [
            {"_tool": "git_log", "repo": "†input.repository", "_outputPath": "log"}
        ]
        run = await bridge.run_plan({**wanted, "calls": other})
        await ended(run)
        await bridge.publish(run.id, "history", answer="plan")
        with pytest.raises(
            MeantToolError, match=r"idea:history has changed: .*repository: was absent"
        ) as caught:
            await bridge.start_idea("above", {"repo": "other"})

        assert "servers accept idea:history" in str(caught.value)
        [changed] = await bridge.changed_tools("idea:history")
        assert changed.publication.name == "above"
