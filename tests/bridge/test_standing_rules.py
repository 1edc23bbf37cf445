"""Standing rules: a person allows a tool always, and its calls in this workspace ask no more, until
the tool changes or the person withdraws the rule.
"""

from __future__ import annotations

import json
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ideabridge.bridge import Bridge, Configuration
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.errors import DecisionError
from ideabridge.bridge.loop.effect import Execute
from ideabridge.bridge.loop.event import (
    APPROVER,
    AT_TERMINAL,
    BY_COMMAND,
    ApprovalAsked,
    CallDecided,
    Decider,
    JournalError,
    event_from_json,
)
from ideabridge.bridge.loop.machine import Machine
from ideabridge.bridge.loop.standing import StandingTool
from ideabridge.bridge.runs.people import Decision
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.standing_rules import (
    MAX_BYTES,
    MAX_RULES,
    StandingRule,
    StandingRuleError,
    StandingRules,
    allow_always,
    rules_path,
    workspace_of,
)
from ideabridge.bridge.store.rule_changes import ALWAYS as ALLOWED
from ideabridge.bridge.store.rule_changes import ASKS, RuleChange
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import LOCAL, SEES_ALL
from ideabridge.tools.encoding import JSON, JSONObject
from tests.security.listing import Modules, described

pytestmark = pytest.mark.anyio

ALWAYS = Decision("approve", by=AT_TERMINAL, always=True)
BOB = Decider("person", "form", "bob")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of the user, outside the project."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    return folder


@pytest.fixture
def modules(tmp_path: Path) -> Modules:
    """The servers `git` and `mail`, both with a tool `push`, in a project."""
    folder = tmp_path / "project"
    folder.mkdir()
    found = Modules(folder)
    found.lists("git", described("push", read_only=False), described("tag", read_only=False))
    found.lists("mail", described("push", read_only=False))
    return found


def configuration_of(modules: Modules, *more: str, **top: Any) -> Configuration:
    servers = {"git": modules.entry("git", *more), "mail": modules.entry("mail")}
    return parse_configuration({"mcpServers": servers, **top}, project=modules.folder)


@asynccontextmanager
async def opened(
    modules: Modules, *more: str, store: Path | None = None, **top: Any
) -> AsyncGenerator[Bridge]:
    configuration = configuration_of(modules, *more, **top)
    place = store or modules.folder / "ideas.sqlite"
    async with Bridge(configuration, store=place, standing_rules=True) as bridge:
        yield bridge


def pushing(*repos: str, module: str = "git", name: str = "push") -> JSONObject:
    return {"calls": [{"_tool": name, "_module": module, "repo": repo} for repo in repos]}


async def pushed(bridge: Bridge, *repos: str, caller: str = LOCAL, **keys: Any) -> Run:
    run = await bridge.run_plan(pushing(*repos, **keys), caller=caller)
    with anyio.fail_after(30):
        await run.wait()
    return run


async def allow(bridge: Bridge, *, caller: str = LOCAL, by: Decider = AT_TERMINAL) -> Run:
    """A run whose call a person has allowed always."""
    run = await pushed(bridge, "a", caller=caller)
    [asked] = run.pending()
    assert asked.always
    await bridge.decide(run, asked.approval, Decision("approve", by=by, always=True))
    with anyio.fail_after(30):
        assert await run.wait() == "done", run.errors()
    return run


def rules_of(bridge: Bridge) -> StandingRules:
    rules = bridge.standing_rules
    assert rules is not None
    return rules


async def decisions(run: Run) -> list[CallDecided]:
    return [one async for one in run.events() if isinstance(one, CallDecided)]


# -- what a rule does ------------------------------------------------------------------------------


async def test_a_tool_that_is_allowed_always_asks_no_more(modules: Modules) -> None:
    async with opened(modules) as bridge:
        first = await allow(bridge)
        [listed] = rules_of(bridge).listed(LOCAL)
        rule = listed.rule
        [given_by] = await decisions(first)
        assert (given_by.always, given_by.rule, listed.state) == (rule.id, None, "holds")

        second = await pushed(bridge, "b", "c")
        assert second.status == "done"
        for made in await decisions(second):
            assert (made.decision, made.by, made.rule) == ("approve", AT_TERMINAL, rule.cited)
        assert not [one async for one in second.events() if isinstance(one, ApprovalAsked)]
        day = listed.to_json()["at"]
        assert isinstance(day, str)
        assert second.answer()["decided"][0].endswith(
            f"approve (the standing rule {rule.id} of {day[:10]}) by the person at the terminal"
        )

        # Another tool of the same server still asks, and so does a tool of the same name on another
        # server.
        assert (await pushed(bridge, "b", name="tag")).status == "needs_approval"
        assert (await pushed(bridge, "b", module="mail")).status == "needs_approval"

    # The rule still applies in the next process.
    async with opened(modules) as bridge:
        assert (await pushed(bridge, "d")).status == "done"


async def test_calls_that_wait_already_are_approved_too(modules: Modules) -> None:
    async with opened(modules, order="none") as bridge:
        run = await pushed(bridge, "a", "b", "c")
        first, *_ = run.pending()
        await bridge.decide(run, first.approval, ALWAYS)
        with anyio.fail_after(30):
            assert await run.wait() == "done"
        made = await decisions(run)
        assert [one.rule is None for one in made] == [True, False, False]


async def test_a_rule_that_is_given_elsewhere_answers_no_call_that_waits(modules: Modules) -> None:
    async with opened(modules, order="none") as bridge:
        calls: list[JSON] = [
            {"_tool": name, "_module": "git", "repo": "a"} for name in ("push", "tag")
        ]
        run = await bridge.run_plan({"calls": calls})
        with anyio.fail_after(30):
            await run.wait()
        push, tag = run.pending()
        [known] = [tool for tool in bridge.modules["git"].known_tools if tool.name == "tag"]
        allow_always(known, bridge.configuration, AT_TERMINAL)

        await bridge.decide(run, push.approval, ALWAYS)
        with anyio.fail_after(30):
            assert await run.wait() == "needs_approval"
        assert [asked.approval for asked in run.pending()] == [tag.approval]
        # Another run did not ask about either of them before.
        assert (await pushed(bridge, "b", name="tag")).status == "done"


async def test_a_withdrawn_rule_covers_no_further_call(modules: Modules) -> None:
    async with opened(modules) as bridge:
        done = await allow(bridge)
        # This is what a command does in another process.
        with Store.open(":memory:") as store:
            others = StandingRules(bridge.configuration, store)
            [listed] = others.listed(SEES_ALL)
            assert others.withdraw(listed.rule, BOB)
            assert not others.withdraw(listed.rule, BOB)

        assert (await pushed(bridge, "b")).status == "needs_approval"
        journal = [event for _, event in bridge.store.runs.events(done.id)]

    # What the rule has decided stays decided, because folding the journal needs no rules.
    machine = Machine()
    for event in journal:
        machine.receive(event_from_json(event))
    assert machine.status == "done"


async def test_who_gave_and_withdrew_a_rule_is_remembered(modules: Modules) -> None:
    async with opened(modules) as bridge:
        await allow(bridge)
        rules = rules_of(bridge)
        [listed] = rules.listed(LOCAL)
        # A rule that is given again, or is already withdrawn, changes nothing.
        rules.give(listed.rule)
        assert rules.withdraw(listed.rule, BOB)
        assert not rules.withdraw(listed.rule, BOB)

        changes = bridge.store.rule_changes
        withdrawn, given = changes.latest(LOCAL)
        assert (given.before, given.after, given.by) == (ASKS, ALLOWED, AT_TERMINAL.to_json())
        assert (withdrawn.before, withdrawn.after, withdrawn.by) == (ALLOWED, ASKS, BOB.to_json())
        assert given.tool == listed.rule.tool.name
        assert changes.latest(SEES_ALL) == [withdrawn, given]
        assert changes.latest("bob") == []


def test_only_the_latest_changes_of_rules_are_kept() -> None:
    with Store.open(":memory:") as store:
        for number in range(120):
            change = RuleChange(float(number), BOB.to_json(), "m", "t", ASKS, ALLOWED)
            store.rule_changes.add("bob", change)
        store.rule_changes.add(
            "bob profile:narrow", RuleChange(120.0, None, "m", "t", ALLOWED, ASKS)
        )
        changes = store.rule_changes.latest("bob")

    assert [change.at for change in changes] == [float(number) for number in range(120, 20, -1)]


async def test_what_a_rule_decided_holds_after_a_crash(modules: Modules) -> None:
    async with opened(modules) as bridge:
        await allow(bridge)
        run = await pushed(bridge, "b", "c")
        events = [event for _, event in bridge.store.runs.events(run.id)]
        [listed] = rules_of(bridge).listed(LOCAL)
        rules_of(bridge).withdraw(listed.rule, BOB)

    # The process dies after the decision on the first call, but before the call starts.
    begun = next(n for n, event in enumerate(events) if event["event"] == "call_started")
    machine = Machine()
    for event in events[:begun]:
        machine.receive(event_from_json(event))
    assert not machine.waits_for_people
    assert [effect.key for effect in machine.due() if isinstance(effect, Execute)] == [(0, None)]


async def test_a_call_that_asked_before_the_rule_waits_in_other_runs(modules: Modules) -> None:
    async with opened(modules) as bridge:
        waiting = await pushed(bridge, "before")
        await allow(bridge)
        assert waiting.status == "needs_approval"
        [asked] = waiting.pending()
        await bridge.decide(waiting, asked.approval, Decision("deny", by=AT_TERMINAL))
        await waiting.wait()
        assert waiting.errors()


WORK = """
import anyio

from ideabridge.tools import tool


@tool
def note(text: str) -> str:
    "Note."
    return text


@tool(read_only=True)
async def wait() -> str:
    "Never end."
    await anyio.sleep_forever()
    return ""
"""


async def test_a_run_that_another_process_drives_is_decided_always(modules: Modules) -> None:
    """The process that asked the person stores the rule, and nobody else."""
    file = modules.folder / "tools.py"
    file.write_text(WORK, encoding="utf-8")
    configuration = parse_configuration({"tools": [str(file)]}, project=modules.folder)
    plan: JSONObject = {"calls": [{"_tool": "wait"}, {"_tool": "note", "text": "x"}]}
    store = modules.folder / "s"
    async with (
        Bridge(configuration, store=store) as driver,
        Bridge(configuration, store=store, standing_rules=True) as other,
    ):
        driven = await driver.run_plan(plan)
        with anyio.fail_after(30):
            while not driven.pending():
                await driven.runner.wait_changed()

        run = await other.run(driven.id)
        [asked] = run.pending()
        await other.decide(run, asked.approval, ALWAYS)
        [made] = [
            event
            for _, event in other.store.runs.events(driven.id)
            if event["event"] == "call_decided"
        ]
        [listed] = rules_of(other).listed(LOCAL)
        assert made["always"] == listed.rule.id

        # Somebody else was faster, so the person's answer does not count and gives no rule.
        rules_of(other).withdraw(listed.rule, BOB)
        driven = await driver.run_plan(plan)
        with anyio.fail_after(30):
            while not driven.pending():
                await driven.runner.wait_changed()

        run = await other.run(driven.id)
        [asked] = run.pending()
        driven.settle(asked.approval, Decision("deny", by=AT_TERMINAL))
        with pytest.raises(DecisionError):
            await other.decide(run, asked.approval, ALWAYS)
        assert rules_of(other).listed(LOCAL) == []
        await driver.cancel(driven.id, "the test ends", caller=LOCAL)


# -- to what it is bound ---------------------------------------------------------------------------


async def test_a_changed_tool_asks_again_and_its_rule_is_outdated(modules: Modules) -> None:
    async with opened(modules) as bridge:
        await allow(bridge)

    changed = described("push", read_only=False)
    changed["inputSchema"]["properties"]["force"] = {"type": "boolean"}
    modules.lists("git", changed, described("tag", read_only=False))
    async with opened(modules) as bridge:
        run = await pushed(bridge, "b")
        assert run.status == "needs_approval"
        [listed] = rules_of(bridge).listed(LOCAL)
        assert listed.state == "outdated"
        # The next answer replaces it.
        await bridge.decide(run, run.pending()[0].approval, ALWAYS)
        [again] = rules_of(bridge).listed(LOCAL)
        assert (again.state, again.rule.id != listed.rule.id) == ("holds", True)
        assert (await pushed(bridge, "c")).status == "done"


async def test_a_server_that_starts_differently_asks_again(modules: Modules) -> None:
    async with opened(modules) as bridge:
        await allow(bridge)

    async with opened(modules, "more") as bridge:
        assert (await pushed(bridge, "b")).status == "needs_approval"
        assert [one.state for one in rules_of(bridge).listed(LOCAL)] == ["outdated"]


async def test_a_rule_holds_in_its_workspace_alone(modules: Modules, tmp_path: Path) -> None:
    async with opened(modules) as bridge:
        await allow(bridge)

    other = tmp_path / "other"
    other.mkdir()
    servers: dict[str, JSON] = {"git": {**modules.entry("git"), "cwd": str(modules.folder)}}
    for project in (other, tmp_path):
        configuration = parse_configuration({"mcpServers": servers}, project=project)
        async with Bridge(configuration, store=other / "s", standing_rules=True) as bridge:
            assert (await pushed(bridge, "b")).status == "needs_approval"
            assert [one.state for one in rules_of(bridge).listed(LOCAL)] == ["elsewhere"]


def test_a_folder_around_the_home_folder_is_no_workspace(tmp_path: Path, home: Path) -> None:
    def workspace(folder: Path) -> str:
        return workspace_of(parse_configuration({}, project=folder))

    assert [workspace(folder) for folder in (home, tmp_path, Path("/"))] == ["", "", ""]
    (home / "work").mkdir()
    (tmp_path / "link").symlink_to(home / "work")
    assert workspace(tmp_path / "link") == workspace(home / "work") == str(home / "work")


async def test_the_code_of_a_tool_file_is_what_a_rule_is_bound_to(
    tmp_path: Path, modules: Modules
) -> None:
    file = modules.folder / "tools.py"
    text = (
        "from ideabridge.tools import tool\n\n"
        '@tool\ndef note(text: str) -> str:\n    "Note."\n    return text\n'
    )
    plan: JSONObject = {"calls": [{"_tool": "note", "text": "x"}]}

    async def status(content: str) -> str:
        file.write_text(content, encoding="utf-8")
        configuration = parse_configuration({"tools": [str(file)]}, project=modules.folder)
        async with Bridge(configuration, store=tmp_path / "s", standing_rules=True) as bridge:
            run = await bridge.run_plan(plan)
            reached = await run.wait()
            if reached == "needs_approval":
                await bridge.decide(run, run.pending()[0].approval, ALWAYS)
            return reached

    assert await status(text) == "needs_approval"
    assert await status(text) == "done"
    assert await status(text.replace("return text", "return text.upper()")) == "needs_approval"


# -- what a rule never does ------------------------------------------------------------------------


async def test_a_rule_never_overrules_a_denial(modules: Modules) -> None:
    async with opened(modules) as bridge:
        await allow(bridge)

    rules = {"rules": [{"module": "git", "tool": "push", "then": "deny", "why": "never"}]}
    async with opened(modules, approval=rules) as bridge:
        run = await pushed(bridge, "b")
        assert (run.status, run.errors()[0]["error"]["kind"]) == ("done", "denied")


@pytest.mark.parametrize(
    "by",
    [
        Decider("assistant", "tool", LOCAL),
        BY_COMMAND,
        APPROVER,
        Decider("person", "code", LOCAL),
        Decider("nobody", "time-out"),
    ],
)
async def test_only_a_person_who_is_asked_allows_always(modules: Modules, by: Decider) -> None:
    async with opened(modules) as bridge:
        run = await pushed(bridge, "a")
        [asked] = run.pending()
        for decide in (
            lambda: bridge.decide(run, asked.approval, Decision("approve", by=by, always=True)),
            lambda: run.settle(asked.approval, Decision("approve", by=by, always=True)),
        ):
            with pytest.raises(
                DecisionError, match="only a person can choose to always allow a tool"
            ):
                await maybe(decide())
        assert [one.approval for one in run.pending()] == [asked.approval]
    assert not rules_path().exists()


async def maybe(value: Any) -> None:
    if value is not None:
        await value


@pytest.mark.parametrize(
    "decision",
    [
        Decision("deny", by=AT_TERMINAL, always=True),
        Decision("edit", call={"repo": "b"}, by=AT_TERMINAL, always=True),
        Decision("approve", by=AT_TERMINAL, always=True, grant={"for": "run"}),
    ],
)
async def test_always_goes_with_a_plain_approval(modules: Modules, decision: Decision) -> None:
    async with opened(modules) as bridge:
        run = await pushed(bridge, "a")
        with pytest.raises(DecisionError, match="always requires `approve`"):
            await bridge.decide(run, run.pending()[0].approval, decision)


async def test_a_program_is_not_overruled_by_the_rules_of_its_user(modules: Modules) -> None:
    async with opened(modules) as bridge:
        await allow(bridge)

    async with Bridge(configuration_of(modules), store=modules.folder / "s") as program:
        run = await pushed(program, "b")
        [asked] = run.pending()
        assert not asked.always
        with pytest.raises(DecisionError, match="a standing rule is not possible here"):
            await program.decide(run, asked.approval, ALWAYS)


async def test_a_call_that_an_assistant_edited_is_asked_about(modules: Modules) -> None:
    assistant = Decider("assistant", "tool", LOCAL)
    plan: JSONObject = {
        "calls": [
            {"_tool": "tag", "_module": "git", "repo": "x"},
            {"_tool": "push", "_module": "git", "repo": "a"},
        ]
    }

    def asked(run: Run) -> dict[Any, Any]:
        return {one.call["_tool"]: one for one in run.pending()}

    async with opened(modules) as bridge:
        run = await bridge.run_plan(plan)
        await run.wait()
        # It runs after the first call, which is still waiting.
        call = {"_tool": "push", "_module": "git", "repo": "edited"}
        edit = Decision("edit", call=call, by=assistant)
        await bridge.decide(run, asked(run)["push"].approval, edit)
        await allow(bridge)
        run_id = run.id

    # From now on, only people decide, so the assistant's decision no longer counts.
    async with opened(modules, approval={"by": "person"}) as bridge:
        run = await bridge.run(run_id)
        denial = Decision("deny", by=AT_TERMINAL)
        await bridge.decide(run, asked(run)["tag"].approval, denial)
        assert await run.wait() == "needs_approval"
        edited = asked(run)["push"]
        assert (edited.call["repo"], edited.always) == ("edited", False)
        with pytest.raises(DecisionError, match="a standing rule is not possible"):
            await bridge.decide(run, edited.approval, ALWAYS)


async def test_code_of_another_tool_is_asked_about(tmp_path: Path, modules: Modules) -> None:
    file = modules.folder / "tools.py"
    file.write_text(
        "from ideabridge.tools import tool\n\n"
        '@tool\ndef note(text: str) -> str:\n    "Note."\n    return text\n\n'
        '@tool\ndef erase(text: str) -> str:\n    "Erase."\n    return text\n',
        encoding="utf-8",
    )
    configuration = parse_configuration({"tools": [str(file)]}, project=modules.folder)
    async with Bridge(configuration, store=tmp_path / "s", standing_rules=True) as bridge:
        run = await bridge.run_plan({"calls": [{"_tool": "note", "text": "x"}]})
        await run.wait()
        await bridge.decide(run, run.pending()[0].approval, ALWAYS)
        call: JSONObject = {"_tool": "note", "text": "x", "_activity": "erase"}
        other = await bridge.run_plan({"calls": [call]})
        assert await other.wait() == "needs_approval"
        assert not other.pending()[0].always


async def test_only_the_approval_of_a_person_rests_on_a_rule(modules: Modules) -> None:
    async with opened(modules) as bridge:
        await allow(bridge)
        run = await pushed(bridge, "b")
        journal = [event for _, event in bridge.store.runs.events(run.id)]

    assistant: JSONObject = {"by": {"kind": "assistant", "via": "tool"}}
    denial: JSONObject = {"decision": "deny"}
    for change in (assistant, denial):
        machine = Machine()
        for event in journal:
            if event["event"] == "call_decided":
                forged = event_from_json({**event, **change})
                with pytest.raises(JournalError, match="cannot rest on a standing rule"):
                    machine.receive(forged)
                break
            machine.receive(event_from_json(event))


# -- users -----------------------------------------------------------------------------------------


async def test_rules_of_users_are_in_the_store_and_hold_for_their_runs(modules: Modules) -> None:
    async with opened(modules) as bridge:
        await allow(bridge, caller="user:bob", by=BOB)
        assert not rules_path().exists()
        assert (await pushed(bridge, "b", caller="user:bob")).status == "done"
        for caller in ("user:ann", LOCAL):
            run = await pushed(bridge, "b", caller=caller)
            assert run.status == "needs_approval"

        assert rules_of(bridge).listed("user:ann") == rules_of(bridge).listed(LOCAL) == []
        [listed] = rules_of(bridge).listed(SEES_ALL)
        assert listed.to_json()["caller"] == "user:bob"
        assert rules_of(bridge).withdraw(listed.rule, BOB)
        assert (await pushed(bridge, "c", caller="user:bob")).status == "needs_approval"


async def test_nobody_else_allows_always_for_a_user(modules: Modules) -> None:
    async with opened(modules) as bridge:
        run = await pushed(bridge, "a", caller="user:bob")
        for by in (AT_TERMINAL, Decider("person", "page", "admin")):
            with pytest.raises(DecisionError, match="only bob, who owns the run"):
                await bridge.decide(
                    run, run.pending()[0].approval, Decision("approve", by=by, always=True)
                )


# -- the file --------------------------------------------------------------------------------------


async def test_the_file_belongs_to_its_user_alone(modules: Modules) -> None:
    async with opened(modules) as bridge:
        await allow(bridge)
    path = rules_path()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir() if one.name.startswith(".")] == []


def written(path: Path, content: Any) -> None:
    path.unlink(missing_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


async def test_a_file_that_cannot_be_used_has_no_rules(
    modules: Modules, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(modules) as bridge:
        await allow(bridge)
        path = rules_path()
        good = json.loads(path.read_text())
        [entry] = good["rules"]
        elsewhere = tmp_path / "elsewhere.json"
        elsewhere.write_text(json.dumps(good))
        by_assistant = {**entry, "by": {"kind": "assistant", "via": "tool"}}
        broken: list[Any] = [
            "",
            "{",
            "[]",
            {**good, "version": 2},
            {**good, "rules": {}},
            {**good, "rules": [entry, "x"]},
            {**good, "rules": [entry, {**entry, "digest": 7}]},
            {**good, "rules": [by_assistant]},
            {**good, "rules": [{**entry, "by": {**entry["by"], "user": "x" * 5000}}]},
            *({**good, "rules": [{**entry, "at": at}]} for at in (-1, 1e300, 10**400, True, "1")),
            {**good, "rules": [{**entry, "digest": f"{n:064x}"} for n in range(MAX_RULES + 1)]},
            json.dumps(good) + " " * MAX_BYTES,
        ]
        run = await pushed(bridge, "t", name="tag")
        [asked] = run.pending()
        for content in broken:
            written(path, content)
            assert (await pushed(bridge, "b")).status == "needs_approval", content
            with pytest.raises(StandingRuleError, match=r"approvals\.json"):
                rules_of(bridge).listed(LOCAL)
            # Nothing is decided, and the file stays as it is.
            before = path.read_bytes()
            with pytest.raises(DecisionError, match="Approve only this call"):
                await bridge.decide(run, asked.approval, ALWAYS)
            assert path.read_bytes() == before

        path.unlink()
        path.symlink_to(elsewhere)
        assert (await pushed(bridge, "b")).status == "needs_approval"
        with pytest.raises(StandingRuleError, match="is a symbolic link"):
            rules_of(bridge).listed(LOCAL)

        written(path, good)
        path.chmod(0o606)
        assert (await pushed(bridge, "b")).status == "needs_approval"
        path.chmod(0o600)
        assert (await pushed(bridge, "b")).status == "done"
        path.unlink()
        path.mkdir()
        assert (await pushed(bridge, "b")).status == "needs_approval"

    assert "none of its rules apply" in caplog.text


@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_content_stops_a_process(tmp_path: Path, content: bytes) -> None:
    path = rules_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    with Store.open(":memory:") as store:
        rules = StandingRules(parse_configuration({}, project=tmp_path), store)
        assert rules.covering(LOCAL, StandingTool("git", "push", "", "0" * 64)) is None


def rule(number: int) -> StandingRule:
    tool = StandingTool("git", f"push_{number}", "", f"{number:064x}")
    return StandingRule(LOCAL, "/work", tool, "server", AT_TERMINAL, float(number))


async def test_parallel_decisions_lose_nothing(tmp_path: Path) -> None:
    """As several processes do it: each has read the file for itself."""
    configuration = parse_configuration({}, project=tmp_path)
    with Store.open(tmp_path / "s") as store:
        several = [StandingRules(configuration, store) for _ in range(8)]

        async def give(number: int) -> None:
            for one in (number, number, number + 100):
                await anyio.to_thread.run_sync(several[number % 8].give, rule(one))

        async with anyio.create_task_group() as group:
            for number in range(24):
                group.start_soon(give, number)

        listed = {one.rule.tool.name for one in several[0].listed(LOCAL)}
        assert listed == {f"push_{n}" for first in (0, 100) for n in range(first, first + 24)}
        assert len(several[3].listed(LOCAL)) == 48


def test_there_is_a_most_of_rules(tmp_path: Path) -> None:
    with Store.open(":memory:") as store:
        rules = StandingRules(parse_configuration({}, project=tmp_path), store)
        path = rules_path()
        path.parent.mkdir(parents=True)
        stored = [rule(number).to_json() for number in range(MAX_RULES)]
        path.write_text(json.dumps({"version": 1, "rules": stored}))
        with pytest.raises(StandingRuleError, match="which is the limit"):
            rules.give(rule(MAX_RULES))
        # Giving a rule a second time changes nothing.
        rules.give(rule(3))
        assert len(rules.listed(LOCAL)) == MAX_RULES


async def test_a_command_allows_a_tool_for_the_person_at_the_terminal(modules: Modules) -> None:
    async with opened(modules) as bridge:
        await bridge.modules["git"].ready()
        tool = next(one for one in bridge.modules["git"].tools if one.name_in_module == "push")
        given_rule = allow_always(tool, bridge.configuration, AT_TERMINAL)
        run = await pushed(bridge, "b")
        assert run.status == "done"
        [made] = await decisions(run)
        assert made.rule == given_rule.cited

    assert given_rule.workspace == workspace_of(configuration_of(modules))
