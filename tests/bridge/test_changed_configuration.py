"""A run that waits while the configuration changes: what goes on, what asks again, and
what is refused.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import Bridge, Configuration
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.errors import DecisionError, FinishedRunError, InterruptedRunError
from ideabridge.bridge.loop.event import Decider
from ideabridge.bridge.runs.people import Decision
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.toolbox import Toolbox
from tests.asking import ASKS
from tests.security.listing import Modules, described

pytestmark = pytest.mark.anyio

ASSISTANT = Decider("assistant", "tool", "local")
PERSON = Decider("person", "page", "local")

BOTH: JSONObject = {
    "calls": [
        {"_tool": "git_push", "repo": "a", "_outputPath": "pushed"},
        {"_tool": "mail_send", "repo": "b", "_outputPath": "sent"},
    ]
}


@pytest.fixture
def modules(tmp_path: Path) -> Modules:
    """`git` with two tools that may change something, `mail` with one, and `extra`."""
    found = Modules(tmp_path)
    found.lists(
        "git", described("git_push", read_only=False), described("git_tag", read_only=False)
    )
    found.lists("mail", described("mail_send", read_only=False))
    found.lists("extra", "look")
    return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "ideas.sqlite"


def restarted(modules: Modules, *names: str, changed: str = "", **top: Any) -> Configuration:
    """A configuration in which the module `changed` starts with one argument more."""
    servers = {name: modules.entry(name, *(["more"] if name == changed else [])) for name in names}
    return parse_configuration({"mcpServers": servers, **top}, project=modules.folder)


async def waiting(configuration: Configuration, store: Path, plan: JSONObject) -> str:
    """The id of a run of the plan that waits for a decision; its bridge is closed."""
    async with Bridge(configuration, store=store) as bridge:
        run = await bridge.run_plan(plan)
        assert await run.wait(20) == "needs_approval", run.errors()
        return run.id


def asked(run: Run) -> dict[str, str]:
    """The pending approvals by the name of their tool."""
    return {str(request.call["_tool"]): request.approval for request in run.pending()}


async def decide(bridge: Bridge, run: Run, name: str, decision: Any, by: Decider = PERSON) -> None:
    """Decide about the pending call of a tool."""
    await bridge.decide(run, pending_in_journal(bridge, run)[name], Decision(decision, by=by))


def pending_in_journal(bridge: Bridge, run: Run) -> dict[str, str]:
    """The approvals that the journal has as asked, by tool, also where the run cannot go on."""
    events = [event for _, event in bridge.store.runs.events(run.id)]
    names = [call["_tool"] for call in run.machine.solution.calls if isinstance(call, dict)]
    return {
        str(names[int(str(event["call"]))]): str(event["approval"])
        for event in events
        if event["event"] == "approval_asked"
    }


# -- what has nothing to do with the run -----------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"names": ("git", "mail", "extra")},
        {"names": ("git", "mail"), "order": "all"},
        {"names": ("git", "mail"), "limits": {"calls": 50}},
        {"names": ("git", "mail"), "approval": "allow_all"},
        {"names": ("git", "mail"), "tools": ["helpers.py"]},
    ],
    ids=["a server more", "order", "limits", "looser rules", "a tool file"],
)
async def test_a_change_that_the_run_does_not_need_leaves_it_decidable(
    modules: Modules, store: Path, changed: dict[str, Any]
) -> None:
    helper = (
        "from ideabridge.tools import tool\n@tool\nasync def help_out() -> str:\n    return 'x'\n"
    )
    (modules.folder / "helpers.py").write_text(helper, encoding="utf-8")
    run_id = await waiting(modules.configured("git", "mail", "extra"), store, BOTH)
    top = dict(changed)
    configuration = modules.configured(*top.pop("names"), **top)
    async with Bridge(configuration, store=store) as bridge:
        run = await bridge.run(run_id)
        assert run.status == "needs_approval"
        assert set(asked(run)) == {"git_push", "mail_send"}
        await decide(bridge, run, "git_push", "approve")
        # Looser rules do not decide on what was asked before.
        assert await run.wait(20) == "needs_approval"
        await decide(bridge, run, "mail_send", "approve")
        assert await run.wait(20) == "done"
        assert run.given() == {"pushed": "git.git_push", "sent": "mail.mail_send"}
        record = bridge.store.runs.get(run_id)
        assert record is not None
        assert record.fingerprint == bridge.fingerprint

    # Under yet another configuration, the journal leads to the same end.
    async with Bridge(modules.configured("mail"), store=store) as bridge:
        again = await bridge.run(run_id)
        assert (again.status, again.given()) == (
            "done",
            {"pushed": "git.git_push", "sent": "mail.mail_send"},
        )


async def test_a_run_of_a_mind_goes_on_without_the_module_that_changed(
    modules: Modules, store: Path
) -> None:
    async with Bridge(
        modules.configured("git", "mail", approval="allow_all"), store=store
    ) as bridge:
        run = await bridge.solve("x", tools=["*"], output_schema={"type": "string"})
        assert run.status == "needs_solution"

    async with Bridge(
        restarted(modules, "git", "mail", changed="git", approval="allow_all"), store=store
    ) as bridge:
        run = await bridge.run(run.id)
        assert run.status == "needs_solution"
        run.submit(0, BOTH)
        assert await run.wait(20) == "needs_solution"
        [error] = run.errors()
        assert "not run: its server 'git' starts differently from when the run began" in str(error)
        assert run.state == {"sent": "mail.mail_send"}

    # The row of the run now names the new configuration, and `git` is still refused.
    async with Bridge(
        restarted(modules, "git", "mail", changed="git", approval="allow_all"), store=store
    ) as bridge:
        run = await bridge.run(run.id)
        run.submit(1, {"calls": [{"_tool": "git_tag", "repo": "a"}]})
        assert await run.wait(20) == "needs_solution"
        assert "not run: its server 'git' starts differently" in str(run.errors())

    assert modules.calls("git") == []


# -- what the run needs ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["other arguments", "not configured", "disabled"])
async def test_a_call_of_a_module_that_changed_can_only_be_denied(
    modules: Modules, store: Path, how: str
) -> None:
    run_id = await waiting(modules.configured("git", "mail"), store, BOTH)
    if how == "other arguments":
        configuration = restarted(modules, "git", "mail", changed="git")
    elif how == "not configured":
        configuration = modules.configured("mail")
    else:
        servers = {"git": {**modules.entry("git"), "disabled": True}, "mail": modules.entry("mail")}
        configuration = parse_configuration({"mcpServers": servers}, project=modules.folder)

    async with Bridge(configuration, store=store) as bridge:
        run = await bridge.run(run_id)
        assert run.status == "interrupted"
        reason = str(run.answer()["reason"])
        assert "its server 'git' " in reason
        assert f"deny (or skip) what it asks, or end it: ideabridge runs cancel {run_id}" in reason
        for name in ("git_push", "mail_send"):
            with pytest.raises(InterruptedRunError, match=r"its server 'git' .*You can still deny"):
                await decide(bridge, run, name, "approve")

        await decide(bridge, run, "git_push", "deny")
        # The run no longer needs `git`, so it continues.
        assert run.status == "needs_approval"
        await decide(bridge, run, "mail_send", "approve")
        assert await run.wait(20) == "done"
        assert run.given() == {"sent": "mail.mail_send"}
        assert "denied by the person at the local page" in str(run.errors())

    assert modules.calls("git") == []


async def test_a_denied_call_leaves_a_run_that_still_needs_the_module_interrupted(
    modules: Modules, store: Path
) -> None:
    plan: JSONObject = {
        "calls": [{"_tool": "mail_send", "repo": "b"}, {"_tool": "git_push", "repo": "a"}]
    }
    run_id = await waiting(modules.configured("git", "mail"), store, plan)
    async with Bridge(restarted(modules, "git", "mail", changed="git"), store=store) as bridge:
        run = await bridge.run(run_id)
        await decide(bridge, run, "mail_send", "deny")
        assert run.status == "interrupted"
        with pytest.raises(DecisionError, match="no approval"):
            await decide(bridge, run, "mail_send", "deny")

    # With the module as it was, the run continues, and the denial is in its journal.
    async with Bridge(modules.configured("git", "mail"), store=store) as bridge:
        run = await bridge.run(run_id)
        assert set(asked(run)) == {"git_push"}
        await decide(bridge, run, "git_push", "approve")
        assert await run.wait(20) == "done"

    assert (modules.calls("mail"), modules.calls("git")) == ([], ["git_push"])


async def test_a_run_that_cannot_go_on_can_be_ended(modules: Modules, store: Path) -> None:
    run_id = await waiting(modules.configured("git", "mail"), store, BOTH)
    async with Bridge(modules.configured("mail"), store=store) as bridge:
        run = await bridge.cancel(run_id, "not needed")
        assert run.status == "cancelled"


async def test_a_python_tool_that_changed_can_only_be_denied(store: Path) -> None:
    @tool(read_only=False)
    async def note(text: str) -> str:
        """Note."""
        return text

    async with Bridge(ASKS, toolbox=Toolbox(note), store=store) as bridge:
        run = await bridge.run_plan({"calls": [{"_tool": "note", "text": "x"}]})
        assert run.status == "needs_approval"

    @tool(name="note", read_only=False)
    async def other(text: str, place: str = "here") -> str:
        """Note."""
        return text + place

    async with Bridge(ASKS, toolbox=Toolbox(other), store=store) as bridge:
        run = await bridge.run(run.id)
        with pytest.raises(
            InterruptedRunError, match=r"its tool 'note' has changed since the run began: .*place"
        ):
            await decide(bridge, run, "note", "approve")

        await decide(bridge, run, "note", "deny")
        assert await run.wait(30) == "done"
        assert "denied" in str(run.errors())


async def test_the_python_tools_of_another_project_do_not_answer(
    tmp_path: Path, store: Path
) -> None:
    head = "from ideabridge.tools import tool\n@tool(read_only=False)\n"
    text = f"{head}async def note(text: str) -> str:\n    return text\n"
    configurations: list[Configuration] = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "tools.py").write_text(text, encoding="utf-8")
        configurations.append(parse_configuration({"tools": ["tools.py"]}, project=folder))

    run_id = await waiting(configurations[0], store, {"calls": [{"_tool": "note", "text": "x"}]})
    async with Bridge(configurations[1], store=store) as bridge:
        run = await bridge.run(run_id)
        with pytest.raises(
            InterruptedRunError, match="its tool 'note' belongs to a different project"
        ):
            await decide(bridge, run, "note", "approve")

        await decide(bridge, run, "note", "deny")
        assert await run.wait(30) == "done"


async def test_a_journal_that_does_not_say_what_it_needs_can_only_be_denied(
    modules: Modules, store: Path
) -> None:
    run_id = await waiting(modules.configured("git", "mail"), store, BOTH)
    with closing(sqlite3.connect(store)) as connection, connection:
        [row] = [
            row
            for row in connection.execute("SELECT id, body FROM events")
            if "run_started" in row[1]
        ]
        body = json.loads(row[1])
        del body["bound"]
        connection.execute("UPDATE events SET body = ? WHERE id = ?", (json.dumps(body), row[0]))

    async with Bridge(modules.configured("git", "mail", "extra"), store=store) as bridge:
        run = await bridge.run(run_id)
        with pytest.raises(
            InterruptedRunError, match="the configuration has changed since the run began"
        ):
            await decide(bridge, run, "mail_send", "approve")

        await decide(bridge, run, "git_push", "deny")
        assert run.status == "interrupted"

    async with Bridge(modules.configured("git", "mail"), store=store) as bridge:
        run = await bridge.run(run_id)
        await decide(bridge, run, "mail_send", "approve")
        assert await run.wait(20) == "done"
        assert run.given() == {"sent": "mail.mail_send"}


async def test_what_is_asked_beside_a_call_in_flight_can_be_denied(
    modules: Modules, store: Path
) -> None:
    started = anyio.Event()

    @tool(read_only=False)
    async def hang() -> None:
        """Hang."""
        started.set()
        await anyio.sleep_forever()

    only_mail: JSONObject = {"default": "allow", "rules": [{"module": "mail", "then": "ask"}]}
    plan: JSONObject = {"calls": [{"_tool": "hang"}, {"_tool": "mail_send", "repo": "b"}]}
    async with Bridge(
        modules.configured("mail", approval=only_mail), toolbox=Toolbox(hang), store=store
    ) as bridge:
        run = await bridge.run_plan(plan)
        await started.wait()

    async with Bridge(modules.configured("mail", approval=only_mail), store=store) as bridge:
        run = await bridge.run(run.id)
        assert run.status == "interrupted"
        shown = {
            str(one["approval"])[:1]: str(one["approval"])
            for one in run.approvals()
            if isinstance(one, dict)
        }
        # `o` asks how `hang` ended, and `a` whether `mail_send` may run.
        assert set(shown) == {"o", "a"}
        answer = run.answer()
        assert [one["approval"] for one in answer["approvals"]] == [shown["o"], shown["a"]]
        with pytest.raises(InterruptedRunError):
            await bridge.decide(run, shown["o"], Decision("retry", by=PERSON))

        await bridge.decide(run, shown["a"], Decision("deny", by=PERSON))
        assert run.status == "interrupted"
        await bridge.decide(run, shown["o"], Decision("skip", by=PERSON))
        assert await run.wait(30) == "done"

    assert modules.calls("mail") == []


# -- stricter rules --------------------------------------------------------------------------------


def rules(*listed: JSONObject, **top: JSON) -> JSONObject:
    """An approval setting that allows what no rule is about."""
    return {"default": "allow", "rules": list(listed), **top}


ASKS_MAIL = rules({"module": "mail", "then": "ask"})


async def test_stricter_rules_deny_what_waits(modules: Modules, store: Path) -> None:
    run_id = await waiting(modules.configured("git", "mail"), store, BOTH)
    strict: JSONObject = {"rules": [{"module": "mail", "then": "deny", "why": "no mail today"}]}
    async with Bridge(modules.configured("git", "mail", approval=strict), store=store) as bridge:
        run = await bridge.run(run_id)
        with pytest.raises(DecisionError, match="no approval"):
            await decide(bridge, run, "mail_send", "approve")

        assert set(asked(run)) == {"git_push"}
        assert "denied by policy: no mail today" in str(run.machine.history[1].error)
        await decide(bridge, run, "git_push", "approve")
        assert await run.wait(20) == "done"

    assert modules.calls("mail") == []


async def test_stricter_rules_ask_about_what_was_allowed_and_has_not_begun(
    modules: Modules, store: Path
) -> None:
    # `git_tag` is allowed and only waits for its turn after `git_push`, which asks.
    loose = rules({"tool": "git_push", "then": "ask"})
    plan: JSONObject = {
        "calls": [{"_tool": "git_push", "repo": "a"}, {"_tool": "git_tag", "repo": "a"}]
    }
    run_id = await waiting(modules.configured("git", approval=loose), store, plan)
    strict = rules({"module": "git", "then": "ask"})
    async with Bridge(modules.configured("git", approval=strict), store=store) as bridge:
        run = await bridge.run(run_id)
        assert set(asked(run)) == {"git_push"}
        await decide(bridge, run, "git_push", "approve")
        assert await run.wait(20) == "needs_approval"
        assert set(asked(run)) == {"git_tag"}
        assert modules.calls("git") == ["git_push"]
        await decide(bridge, run, "git_tag", "approve")
        assert await run.wait(20) == "done"

    assert modules.calls("git") == ["git_push", "git_tag"]


async def test_what_a_person_approved_stays_approved_and_what_the_assistant_approved_does_not(
    modules: Modules, store: Path
) -> None:
    plan: JSONObject = {
        "calls": [
            {"_tool": "git_push", "repo": "a"},
            {"_tool": "git_tag", "repo": "first"},
            {"_tool": "git_tag", "repo": "second"},
        ]
    }
    async with Bridge(modules.configured("git"), store=store) as bridge:
        run = await bridge.run_plan(plan)
        assert await run.wait(20) == "needs_approval"
        # Both are waiting for their turn after `git_push`.
        approvals = [request.approval for request in run.pending()]
        await bridge.decide(run, approvals[1], Decision("approve", by=PERSON))
        await bridge.decide(run, approvals[2], Decision("approve", by=ASSISTANT))
        assert [request.approval for request in run.pending()] == approvals[:1]
        run_id = run.id

    async with Bridge(modules.configured("git", approval={"by": "person"}), store=store) as bridge:
        run = await bridge.run(run_id)
        with pytest.raises(DecisionError, match="only a person can decide here"):
            await bridge.decide(run, approvals[0], Decision("approve", by=ASSISTANT))

        assert [request.approval for request in run.pending()] == [approvals[0], approvals[2]]
        await bridge.decide(run, approvals[0], Decision("approve", by=PERSON))
        assert await run.wait(20) == "needs_approval"
        assert modules.calls("git") == ["git_push", "git_tag"]
        await bridge.decide(run, approvals[2], Decision("approve", by=PERSON))
        assert await run.wait(20) == "done"


async def test_stricter_rules_hold_for_the_calls_that_a_mind_makes_later(
    modules: Modules, store: Path
) -> None:
    async with Bridge(
        modules.configured("git", "mail", approval="allow_all"), store=store
    ) as bridge:
        run = await bridge.solve("x", tools=["*"])
        run_id = run.id

    async with Bridge(modules.configured("git", "mail", approval=ASKS_MAIL), store=store) as bridge:
        run = await bridge.run(run_id)
        run.submit(0, BOTH)
        assert await run.wait(20) == "needs_approval"
        assert set(asked(run)) == {"mail_send"}
        assert modules.calls("git") == ["git_push"]

    # The earlier rules still apply to what they asked, even after they were withdrawn.
    async with Bridge(
        modules.configured("git", "mail", approval="allow_all"), store=store
    ) as bridge:
        run = await bridge.run(run_id)
        assert set(asked(run)) == {"mail_send"}
        await decide(bridge, run, "mail_send", "deny")
        run.submit(1, {"calls": [{"_tool": "mail_send", "repo": "c"}]})
        assert await run.wait(20) == "needs_approval"

    assert modules.calls("mail") == []


async def test_a_decision_for_another_process_keeps_to_the_rules_here(
    modules: Modules, store: Path
) -> None:
    started = anyio.Event()

    @tool(read_only=True)
    async def hang() -> None:
        """Hang."""
        started.set()
        await anyio.sleep_forever()

    plan: JSONObject = {"calls": [{"_tool": "hang"}, {"_tool": "mail_send", "repo": "b"}]}
    denies: JSONObject = {"by": "person", "rules": [{"module": "mail", "then": "deny"}]}
    async with (
        Bridge(modules.configured("mail"), toolbox=Toolbox(hang), store=store) as driving,
        Bridge(
            modules.configured("mail", approval=denies), toolbox=Toolbox(hang), store=store
        ) as deciding,
    ):
        run = await driving.run_plan(plan)
        await started.wait()
        other = await deciding.run(run.id)
        approval = asked(other)["mail_send"]
        with pytest.raises(DecisionError, match="only a person can decide here"):
            await deciding.decide(other, approval, Decision("approve", by=ASSISTANT))

        with pytest.raises(DecisionError, match="denied by policy here"):
            await deciding.decide(other, approval, Decision("approve", by=PERSON))

        await deciding.decide(other, approval, Decision("deny", by=PERSON))

    assert modules.calls("mail") == []


async def test_the_rules_hold_in_rooms(modules: Modules, store: Path) -> None:
    async with Bridge(
        modules.configured("git", "mail", approval="allow_all"), store=store
    ) as bridge:
        done = await bridge.run_plan(BOTH)
        assert await done.wait(20) == "done"
        await bridge.publish(done.id, "both", answer="plan")

    plan: JSONObject = {"calls": [{"_tool": "both", "_module": "idea:both", "_outputPath": "room"}]}
    run_id = await waiting(modules.configured("git", "mail", approval=ASKS_MAIL), store, plan)
    assert modules.calls("git") == ["git_push", "git_push"]
    # `git` is no longer needed, and `mail` is now denied.
    denies = rules({"module": "mail", "then": "deny"})
    async with Bridge(
        restarted(modules, "git", "mail", changed="git", approval=denies), store=store
    ) as bridge:
        run = await bridge.run(run_id)
        [request] = run.pending()
        # The room ends together with the call that is denied.
        with pytest.raises(FinishedRunError):
            await bridge.decide(run, request.approval, Decision("approve", by=PERSON))

        assert await run.wait(20) == "done"
        assert "denied by policy" in str(run.answer())

    assert modules.calls("mail") == ["mail_send"]


async def test_a_room_whose_module_changed_can_only_be_denied(
    modules: Modules, store: Path
) -> None:
    async with Bridge(
        modules.configured("git", "mail", approval="allow_all"), store=store
    ) as bridge:
        done = await bridge.run_plan(BOTH)
        assert await done.wait(20) == "done"
        await bridge.publish(done.id, "both", answer="plan")

    plan: JSONObject = {"calls": [{"_tool": "both", "_module": "idea:both", "_outputPath": "room"}]}
    async with Bridge(modules.configured("git", "mail", approval=ASKS_MAIL), store=store) as bridge:
        run = await bridge.run_plan(plan)
        assert await run.wait(20) == "needs_approval"
        [request] = run.pending()

    async with Bridge(
        restarted(modules, "git", "mail", changed="mail", approval=ASKS_MAIL), store=store
    ) as bridge:
        run = await bridge.run(run.id)
        with pytest.raises(InterruptedRunError, match="its server 'mail' starts differently"):
            await bridge.decide(run, request.approval, Decision("approve", by=PERSON))

        await bridge.decide(run, request.approval, Decision("deny", by=PERSON))
        assert await run.wait(20) == "done"
        assert run.given() == {}
        assert "(mail_send): denied by the person at the local page" in str(run.errors())

    assert modules.calls("mail") == ["mail_send"]
