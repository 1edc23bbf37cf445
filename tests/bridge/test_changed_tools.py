"""Tools of others as the user wants them: other names, descriptions and defaults, whose calls are
calls of the tools that the servers list.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from ideabridge.bridge import Bridge, PlanError
from ideabridge.bridge.configuration import load_workspace, parse_configuration
from ideabridge.bridge.loop.event import AT_TERMINAL
from ideabridge.bridge.minds.function import FunctionMind
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.users import LOCAL, in_profile
from ideabridge.bridge.stored_secrets import SecretOwner, set_secret
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from tests.server.serving import PLAIN
from tests.trusting import write_own, write_trusted

pytestmark = pytest.mark.anyio

TEXT: JSONObject = {"type": "string"}
CREATE: JSONObject = {
    "name": "create_issue",
    "description": "Create an issue in a repository.",
    "title": "Create an issue",
    "inputSchema": {
        "type": "object",
        "properties": {
            "owner": {**TEXT, "description": "Whose repository."},
            "repo": TEXT,
            "title": TEXT,
            "priority": {"enum": ["low", "high"]},
        },
        "required": ["owner", "repo", "title"],
        "additionalProperties": False,
    },
}
LIST: JSONObject = {
    "name": "list_issues",
    "inputSchema": {"type": "object", "properties": {"owner": TEXT, "token": TEXT}},
}
DELETE: JSONObject = {
    "name": "delete_all",
    "inputSchema": {"type": "object", "properties": {}},
    "annotations": {"readOnlyHint": True},
}
CHANGED: JSONObject = {
    "create_issue": {
        "name": "report_bug",
        "description": "Report a bug in our application.",
        "defaults": {"owner": "acme", "repo": "app"},
        "hide_parameters": ["owner", "repo"],
    }
}
REAL: JSONObject = {"owner": "acme", "repo": "app", "title": "It hangs"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return project


def server(tools: JSON, *listed: JSONObject, name: str = "bugs") -> dict[str, Any]:
    """The entry of a server that answers each call with the tool and the arguments that it got."""
    file = Path.cwd() / f"{name}.json"
    file.write_text(json.dumps({"tools": listed or (CREATE, LIST, DELETE), "hold": None}))
    command = {"command": sys.executable, "args": ["-I", "-S", str(PLAIN), str(file)]}
    return {**command, "tools": tools} if tools is not None else command


@asynccontextmanager
async def opened(tools: JSON, *listed: JSONObject, **top: Any) -> AsyncGenerator[Bridge]:
    entry = server(tools, *listed)
    content = {"mcpServers": {"bugs": entry}, "approval": "allow_all", **top}
    configuration = parse_configuration(content, project=Path.cwd())
    assert configuration.warnings == []
    async with Bridge(configuration, store=Path.cwd() / "ideas.sqlite") as bridge:
        await bridge.modules.settled(20)
        yield bridge


async def ended(run: Run) -> Run:
    with anyio.fail_after(30):
        assert await run.wait() == "done"
    return run


async def got(bridge: Bridge, call: JSONObject) -> Any:
    """What the server got from a call."""
    run = await ended(await bridge.run_plan({"calls": [call], "output": "†results.0"}))
    assert run.errors() == []
    return json.loads(cast("str", run.given()))


def notes_of(bridge: Bridge) -> list[str]:
    [status] = bridge.modules.statuses()
    return list(status.notes)


async def test_a_call_of_the_changed_tool_is_a_call_of_the_real_one() -> None:
    async with opened(CHANGED, approval="default") as bridge:
        run = await bridge.run_plan({"calls": [{"_tool": "report_bug", "title": "It hangs"}]})
        with anyio.fail_after(30):
            await run.wait()
        [asked] = run.pending()
        assert asked.call == {"_tool": "create_issue", "_module": "bugs", **REAL}
        assert asked.tool is not None
        assert asked.tool == bridge.modules["bugs"].tool("create_issue")
        run.decide(asked.approval, "approve", by=AT_TERMINAL)
        await ended(run)
        [(_, call)] = [(progress.tool, progress.call.raw) for progress in run.machine.history]
        assert call == {"_tool": "create_issue", "_module": "bugs", **REAL}
        assert run.idea is not None
        idea = bridge.store.ideas.get(run.idea, caller="local").idea
        assert object_or_empty(idea.solution)["calls"] == [call]
        assert "report_bug" not in json.dumps([run.machine.catalogue.to_json(), idea.solution])


async def test_the_changed_tool_is_shown_and_its_digest_is_the_real_one() -> None:
    async with opened(CHANGED) as bridge:
        [shown] = [tool for tool in bridge.tools() if tool.module == "bugs" and tool.is_changed]
        assert shown.name == "report_bug"
        assert shown.description == "Report a bug in our application."
        assert shown.parameters["properties"] == {
            "title": TEXT,
            "priority": {"enum": ["low", "high"]},
        }
        assert shown.parameters["required"] == ["title"]
        assert "create_issue" not in [tool.name for tool in bridge.tools()]
        real = bridge.modules["bugs"].tool("create_issue")
        assert shown.digest == real.digest
        assert "Create" not in json.dumps([shown.wire, shown.annotations.to_json()])


async def test_a_default_is_optional_and_a_call_may_give_another_value() -> None:
    tools: JSONObject = {"create_issue": {"defaults": {"owner": "acme", "repo": "app"}}}
    async with opened(tools) as bridge:
        assert await got(bridge, {"_tool": "create_issue", "title": "It hangs"}) == {
            "tool": "create_issue",
            "arguments": REAL,
        }
        other = await got(bridge, {"_tool": "create_issue", "title": "x", "repo": "docs"})
        assert other["arguments"]["repo"] == "docs"
        [shown] = [tool for tool in bridge.tools() if tool.is_changed]
        properties = cast("JSONObject", shown.parameters["properties"])
        assert properties["repo"] == {**TEXT, "default": "app"}


async def test_a_default_is_never_a_reference() -> None:
    tools: JSONObject = {"create_issue": {"defaults": {"owner": "†input.x", "repo": "††y"}}}
    async with opened(tools) as bridge:
        told = await got(bridge, {"_tool": "create_issue", "title": "x"})
        assert told["arguments"] == {"owner": "†input.x", "repo": "††y", "title": "x"}


async def test_plans_with_the_real_names_go_on_to_work() -> None:
    async with opened({**CHANGED, "delete_all": {"hide": True}}) as bridge:
        for module in ({}, {"_module": "bugs"}):
            call: JSONObject = {"_tool": "create_issue", **module, **REAL, "owner": "other"}
            assert (await got(bridge, call))["arguments"]["owner"] == "other"
            assert (await got(bridge, {"_tool": "delete_all", **module}))["tool"] == "delete_all"
        assert "delete_all" not in [tool.name for tool in bridge.tools()]
        # A call that uses the real name of a renamed tool calls that tool, without the defaults.
        with pytest.raises(Exception, match="owner"):
            await got(bridge, {"_tool": "create_issue", "title": "x"})


async def test_errors_use_the_name_that_the_author_wrote() -> None:
    async with opened(CHANGED) as bridge:
        with pytest.raises(Exception, match=r"\(report_bug\).*titel.*'title'"):
            await got(bridge, {"_tool": "report_bug", "titel": "x"})


async def test_published_ideas_name_the_real_tool_and_need_no_configuration() -> None:
    async with opened(CHANGED) as bridge:
        plan: JSONObject = {
            "calls": [{"_tool": "report_bug", "title": "†input.title", "_outputPath": "bug"}],
            "input": {"title": "It hangs"},
            "output": "†state.bug",
        }
        run = await ended(await bridge.run_plan(plan))
        published = await bridge.publish(run.id, "file_bug", answer="plan")
        assert "report_bug" not in json.dumps(published.plan)

    async with opened(None) as bridge:
        run = await ended(cast("Run", (await bridge.start_idea("file_bug", {"title": "x"})).run))
        assert json.loads(cast("str", run.given()))["arguments"] == {**REAL, "title": "x"}

    # A different default today does not change what has been published.
    tools: JSONObject = {"create_issue": {"defaults": {"repo": "other", "priority": "high"}}}
    async with opened(tools) as bridge:
        run = await ended(cast("Run", (await bridge.start_idea("file_bug", {"title": "x"})).run))
        assert json.loads(cast("str", run.given()))["arguments"] == {**REAL, "title": "x"}


PROGRAM = "import bugs\nawait bugs.report_bug(title=input['title'])"


async def test_programs_call_the_changed_tool_also_once_they_are_published() -> None:
    async with opened(CHANGED) as bridge:
        run = await ended(await bridge.run_program(PROGRAM, input={"title": "It hangs"}))
        assert json.loads(cast("str", run.given())) == {"tool": "create_issue", "arguments": REAL}
        assert [progress.call.raw for progress in run.machine.history] == [
            {"_tool": "create_issue", "_module": "bugs", **REAL}
        ]
        await bridge.publish(run.id, "file_bug", answer="program")

    async with opened(None) as bridge:
        run = await ended(cast("Run", (await bridge.start_idea("file_bug", {"title": "x"})).run))
        assert json.loads(cast("str", run.given()))["arguments"] == {**REAL, "title": "x"}


async def test_a_mind_sees_the_changed_tool_and_its_idea_satisfies_its_schema() -> None:
    requests: list[Any] = []

    def mind(request: Any) -> JSONObject:
        requests.append(request)
        calls: list[JSON] = [{"_tool": "report_bug", "_module": "bugs", "title": "It hangs"}]
        return {"calls": calls, "output": "†results.0"}

    entry = server(CHANGED)
    content = {"mcpServers": {"bugs": entry}, "approval": "allow_all"}
    configuration = parse_configuration(content, project=Path.cwd())
    async with Bridge(configuration, mind=FunctionMind(mind)) as bridge:
        run = await ended(await bridge.solve("Report it", tools=["bugs.*"]))
        assert json.loads(cast("str", run.given())) == {"tool": "create_issue", "arguments": REAL}
        schema = json.dumps(requests[0].schema)
        assert "report_bug" in schema
        assert "create_issue" not in schema
        [progress] = run.machine.history
        assert progress.call.raw == {"_tool": "create_issue", "_module": "bugs", **REAL}
        assert progress.tool is not None
        assert progress.tool.name == "create_issue"
        assert run.idea is not None
        idea = bridge.store.ideas.get(run.idea, caller="local").idea
        assert object_or_empty(idea.solution)["calls"] == [
            {"_tool": "report_bug", "_module": "bugs", "title": "It hangs"}
        ]
        published = await bridge.publish(run.id, "file_bug", answer="plan")
        assert "report_bug" not in json.dumps(published.plan)


async def test_rules_name_the_real_tool() -> None:
    rules: JSONObject = {
        "default": "allow",
        "rules": [{"module": "bugs", "tool": "create_issue", "then": "deny", "why": "not today"}],
    }
    async with opened(CHANGED, approval=rules) as bridge:
        run = await bridge.run_plan({"calls": [{"_tool": "report_bug", "title": "x"}]})
        with anyio.fail_after(30):
            await run.wait()
        assert "not today" in json.dumps(run.errors())


async def test_a_profile_names_the_real_tool() -> None:
    profiles: JSONObject = {"review": {"tools": ["bugs.create_issue"]}}
    reviewer = in_profile("review", LOCAL)
    async with opened(CHANGED, profiles=profiles) as bridge:
        shown = bridge.offer.to(reviewer)
        names = {tool.name for tool in shown.catalogue.tools if tool.module == "bugs"}
        assert names == {"report_bug"}
        for name in ("report_bug", "create_issue"):
            call = {**REAL, "_tool": name, "_outputPath": "got"}
            run = await ended(await bridge.run_plan(calls=[call], caller=reviewer))
            assert run.errors() == []

        with pytest.raises(PlanError, match="not in profile 'review'"):
            await bridge.run_plan(calls=[{"_tool": "list_issues"}], caller=reviewer)


def test_where_a_name_that_tools_gives_matches_nothing_that_is_said() -> None:
    content = {
        "mcpServers": {"bugs": {**server(CHANGED), "deny": ["report_bug"]}},
        "profiles": {"review": {"tools": ["list_*", "bugs.report_bug", "create_issue"]}},
        "approval": {"rules": [{"tool": "report_bug", "then": "deny"}]},
    }
    warnings = parse_configuration(content, project=Path.cwd()).warnings
    rest = (
        "is the name that mcpServers.bugs.tools gives to 'create_issue'. This place accepts "
        "only names that servers list, so write 'create_issue'"
    )
    assert warnings == [
        f"profiles.review.tools[1]: 'bugs.report_bug' {rest}",
        f"mcpServers.bugs.deny[0]: 'report_bug' {rest}",
        f"approval.rules[0].tool: 'report_bug' {rest}",
    ]


async def test_what_does_not_fit_is_left_out_alone_and_said() -> None:
    tools: JSONObject = {
        "create_issue": {
            "name": "list_issues",
            "description": "Still described.",
            "defaults": {
                "ownr": "acme",
                "priority": "medium",
                "repo": "app",
                "owner": "the ${OWNER:-acme} group",
            },
            "hide_parameters": ["title", "repos", "repo"],
        },
        "list_issue": {"hide": True},
    }
    async with opened(tools) as bridge:
        notes = "\n".join(notes_of(bridge))
        for said in (
            "tools.create_issue.name: list_issues is the name of another tool",
            "tools.create_issue.defaults.ownr: the tool has no such parameter. Did you mean",
            "tools.create_issue.defaults.priority: ",
            "tools.create_issue.defaults.owner: ${OWNER:-acme} names an environment variable",
            "tools.create_issue.hide_parameters.title: every call must pass this parameter",
            "tools.create_issue.hide_parameters.repos: the tool has no such parameter. Did",
            "tools.list_issue: the server does not list this tool, or the tool is not allowed. Did",
        ):
            assert said in notes
        [shown] = [tool for tool in bridge.tools() if tool.is_changed]
        assert (shown.name, shown.description) == ("create_issue", "Still described.")
        assert shown.defaults == {"repo": "app"}
        assert shown.parameters["required"] == ["owner", "title"]
        assert "list_issues" in [tool.name for tool in bridge.tools()]


async def test_a_name_that_another_server_uses_gets_a_prefix() -> None:
    other: JSONObject = {**LIST, "name": "report_bug"}
    servers = {"bugs": server(CHANGED), "desk": server(None, other, name="desk")}
    content = {"mcpServers": servers, "approval": "allow_all"}
    async with Bridge(parse_configuration(content, project=Path.cwd())) as bridge:
        await bridge.modules.settled(20)
        names = {tool.module: tool.name for tool in bridge.tools() if "report_bug" in tool.name}
        assert names == {"bugs": "bugs_report_bug", "desk": "desk_report_bug"}
        told = await got(bridge, {"_tool": "report_bug", "_module": "bugs", "title": "It hangs"})
        assert told == {"tool": "create_issue", "arguments": REAL}


def test_malformed_changes_leave_the_server_usable() -> None:
    tools: JSONObject = {
        "create_issue": {"name": "no spaces", "hide": ["owner"], "colour": "red", "defaults": [1]},
        "list_issues": 3,
    }
    configuration = parse_configuration({"mcpServers": {"bugs": server(tools)}})
    assert not configuration.unusable
    settings = configuration.modules["bugs"].tools["create_issue"]
    assert settings.hide_parameters == ("owner",)
    warnings = "\n".join(configuration.warnings)
    for place in (
        "create_issue.name",
        "create_issue.colour",
        "create_issue.defaults",
        "list_issues",
    ):
        assert f"mcpServers.bugs.tools.{place}" in warnings


@pytest.mark.parametrize("key", ["enabled", "denied", "approval"])
def test_a_key_that_may_forbid_calls_is_not_ignored(key: str) -> None:
    entry = server({"create_issue": {key: False}})
    configuration = parse_configuration({"mcpServers": {"bugs": entry}})
    assert "bugs" in configuration.unusable


async def test_a_change_of_the_configuration_holds_at_once_on_the_same_process() -> None:
    async with opened(None) as bridge:
        before = bridge.modules["bugs"]
        entry = server(CHANGED)
        content = {"mcpServers": {"bugs": entry}, "approval": "allow_all"}
        await bridge.reconfigure(parse_configuration(content, project=Path.cwd()))
        assert bridge.modules["bugs"] is before
        told = await got(bridge, {"_tool": "report_bug", "title": "It hangs"})
        assert told == {"tool": "create_issue", "arguments": REAL}


# -- whether a tool only reads ---------------------------------------------------------------------

READS: JSONObject = {"list_issues": {"read_only": True}, "delete_all": {"read_only": False}}


async def asks(bridge: Bridge, tool: str) -> bool:
    run = await bridge.run_plan({"calls": [{"_tool": tool, "_module": "bugs"}]})
    with anyio.fail_after(30):
        await run.wait()
    return run.status == "needs_approval"


async def test_in_the_users_own_file_it_decides_about_approval_too() -> None:
    async with opened(READS, approval="default") as bridge:
        assert not await asks(bridge, "list_issues")
        assert await asks(bridge, "delete_all")
        hints = {tool.name: tool.annotations.read_only for tool in bridge.tools()}
        assert hints["list_issues"] is True
        assert hints["delete_all"] is False

    rules: JSONObject = {"rules": [{"tool": "list_issues", "then": "ask"}]}
    async with opened(READS, approval=rules) as bridge:
        assert await asks(bridge, "list_issues")


async def test_in_a_projects_file_it_decides_about_the_order_only(home: Path) -> None:
    write_own({"store": str(home / "ideas.sqlite")})
    file = write_trusted(home, {"mcpServers": {"bugs": server(READS)}})
    configuration = load_workspace(file, project=home)
    async with Bridge(configuration) as bridge:
        await bridge.modules.settled(20)
        assert await asks(bridge, "list_issues")
        assert not await asks(bridge, "delete_all")
        assert {tool.is_changed for tool in bridge.tools()} == {False}
        order = bridge.settings().modules["bugs"]
        assert order.reads == ("list_issues",)
        assert order.changes == ("delete_all",)


# -- secrets ---------------------------------------------------------------------------------------


async def test_a_secret_is_filled_in_only_when_the_call_runs() -> None:
    value = "Zq8vK1mN-4pR7tX2y"
    set_secret(SecretOwner(), "BUGS", value, {})
    tools: JSONObject = {
        "list_issues": {
            "defaults": {"token": "Bearer ${secret:BUGS}", "owner": "acme"},
            "hide_parameters": ["token"],
        }
    }
    async with opened(tools) as bridge:
        run = await ended(
            await bridge.run_plan({"calls": [{"_tool": "list_issues"}], "output": "†results.0"})
        )
        told = cast("str", run.given())
        # The server received the value, and its answer shows a placeholder instead.
        assert value not in told
        assert "${secret" not in told
        assert "Bearer " in told
        database = Path.cwd() / "ideas.sqlite"
        stored = b"".join(file.read_bytes() for file in Path.cwd().glob(f"{database.name}*"))
        assert value.encode() not in stored

        # Text from a mind is never filled in.
        for call in (
            {"_tool": "list_issues", "owner": "${secret:BUGS}"},
            {"_tool": "create_issue", **REAL, "title": "Bearer ${secret:BUGS}"},
        ):
            assert "${secret:BUGS}" in json.dumps(await got(bridge, cast("JSONObject", call)))


async def test_a_missing_secret_fails_the_call_and_nothing_else() -> None:
    tools: JSONObject = {"list_issues": {"defaults": {"token": "${secret:NONE}"}}}
    async with opened(tools) as bridge:
        run = await ended(await bridge.run_plan({"calls": [{"_tool": "list_issues"}]}))
        assert "ideabridge secrets set NONE" in json.dumps(run.errors())
        assert (await got(bridge, {"_tool": "list_issues", "token": "own"}))["arguments"] == {
            "token": "own"
        }
