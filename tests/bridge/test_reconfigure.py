"""A bridge follows another configuration while runs and calls are under way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import Bridge, Run
from ideabridge.bridge.configuration import Configuration, parse_configuration
from ideabridge.bridge.errors import FinishedRunError, PlanError
from ideabridge.tools import Toolbox, load_tool_file
from ideabridge.tools.encoding import JSONObject
from tests.security.listing import Modules, described
from tests.server.serving import plain
from tests.waiting import until

pytestmark = pytest.mark.anyio


def calling(name: str, module: str | None = None, **arguments: Any) -> JSONObject:
    call: JSONObject = {"_tool": name, **arguments, "_outputPath": "result"}
    if module is not None:
        call["_module"] = module
    return {"calls": [call], "output": "†state.result"}


def reading(folder: Path, servers: dict[str, Any], **top: Any) -> Configuration:
    return parse_configuration(
        {"approval": "allow_all", "mcpServers": servers, **top}, project=folder
    )


async def result_of(bridge: Bridge, plan: JSONObject) -> object:
    run = await bridge.run_plan(plan)
    return await run.result()


async def test_servers_are_added_replaced_and_removed(tmp_path: Path) -> None:
    modules = Modules(tmp_path)
    modules.lists("git", "git_log")
    modules.lists("mail", "mail_list")
    git = modules.entry("git")
    async with Bridge(reading(tmp_path, {"git": git})) as bridge:
        await bridge.modules.settled(20)
        kept = bridge.modules["git"]

        change = await bridge.reconfigure(
            reading(tmp_path, {"git": git, "mail": modules.entry("mail")})
        )
        assert change.lines() == ["server mail: added"]
        assert await result_of(bridge, calling("mail_list", "mail", repo="a")) == "mail.mail_list"
        assert bridge.modules["git"] is kept
        assert kept.state == "up"

        mail = bridge.modules["mail"]
        await bridge.reconfigure(
            reading(tmp_path, {"git": git, "mail": modules.entry("mail", "more")})
        )
        assert bridge.modules["mail"] is not mail
        assert await result_of(bridge, calling("mail_list", "mail", repo="a")) == "mail.mail_list"

        await bridge.reconfigure(reading(tmp_path, {"git": git}))
        assert bridge.modules.names == ["git"]
        with pytest.raises(PlanError, match="mail"):
            await bridge.run_plan(calling("mail_list", "mail", repo="a"))

        change = await bridge.reconfigure(reading(tmp_path, {"git": {**git, "timeout": 5}}))
        assert change.servers == {"git": "adjust"}
        assert bridge.modules["git"] is kept
        assert kept.configuration.timeout == 5
        assert kept.state == "up"


async def test_a_borrowed_server_is_renewed_where_it_runs(tmp_path: Path) -> None:
    modules = Modules(tmp_path)
    modules.lists("git", "git_log")
    configuration = reading(tmp_path, {"git": modules.entry("git")})
    async with (
        Bridge(configuration) as lender,
        Bridge(configuration, lender=lender) as borrower,
    ):
        await lender.modules.settled(20)
        before = lender.modules["git"]
        assert borrower.modules["git"] is before

        await borrower.renew("git")
        assert lender.modules["git"] is not before
        assert borrower.modules["git"] is lender.modules["git"]
        assert await result_of(borrower, calling("git_log", "git", repo="a")) == "git.git_log"
        await until(lambda: before.state != "up")


async def test_a_call_that_runs_ends_on_the_server_that_was_replaced(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    parameters = {"type": "object", "properties": {"gate": {"type": "string"}}}
    entry = plain(tmp_path, "slow", {"name": "gated", "inputSchema": parameters})
    async with Bridge(reading(tmp_path, {"slow": entry})) as bridge:
        old = bridge.modules["slow"]
        run = await bridge.run_plan(calling("gated", "slow", gate=str(gate)))
        with anyio.fail_after(20):
            writing = await anyio.to_thread.run_sync(os.open, gate, os.O_WRONLY)

        try:
            await bridge.reconfigure(reading(tmp_path, {"slow": {**entry, "env": {"A": "b"}}}))
            assert bridge.modules["slow"] is not old
            assert old.state == "up"
            os.write(writing, b"open\n")
            assert await run.result() == "1"
            await until(lambda: old.state != "up")
        finally:
            os.close(writing)

        await bridge.modules.settled(20)
        assert bridge.modules["slow"].state == "up"


async def asks(bridge: Bridge, plan: JSONObject) -> Run:
    run = await bridge.run_plan(plan)
    assert await run.wait(20) == "needs_approval", run.errors()
    return run


async def test_a_waiting_call_stays_with_the_server_it_was_meant_for(tmp_path: Path) -> None:
    modules = Modules(tmp_path)
    modules.lists("git", described("git_push", read_only=False))
    modules.lists("mail", described("mail_send", read_only=False))

    def configured(*more: str) -> Configuration:
        servers = {"git": modules.entry("git", *more), "mail": modules.entry("mail")}
        return reading(tmp_path, servers, approval="default")

    async with Bridge(configured()) as bridge:
        push = await asks(bridge, calling("git_push", "git", repo="a"))
        send = await asks(bridge, calling("mail_send", "mail", repo="a"))
        await bridge.reconfigure(configured("more"))

        [question] = push.pending()
        push.decide(question.approval, "approve", by="ada")
        await push.wait(20)
        assert "starts differently from when the run began" in str(push.errors())
        assert modules.calls("git") == []

        [question] = send.pending()
        send.decide(question.approval, "approve", by="ada")
        assert await send.result() == "mail.mail_send"


TOOL = """
from ideabridge.tools import tool

@tool({hints})
async def grade({parameters}) -> str:
    return "{grade}"
"""


async def test_a_tool_file_is_replaced_and_a_run_keeps_what_it_was_meant_to_call(
    tmp_path: Path,
) -> None:
    file = tmp_path / "grading.py"
    file.write_text(TOOL.format(hints="read_only=True", parameters="", grade="A"))
    configuration = reading(tmp_path, {}, tools=[str(file)], approval="default")
    async with Bridge(configuration) as bridge:
        bridge.add_tools(Toolbox())
        assert await result_of(bridge, calling("grade")) == "A"
        file.write_text(TOOL.format(hints="", parameters="", grade="B"))
        await bridge.reconfigure(configuration, {str(file): load_tool_file(file)})
        run = await asks(bridge, calling("grade"))

        file.write_text(TOOL.format(hints="", parameters="name: str", grade="C"))
        await bridge.reconfigure(configuration, {str(file): load_tool_file(file)})
        [question] = run.pending()
        run.decide(question.approval, "approve", by="ada")
        await run.wait(20)
        assert "has changed since the run began" in str(run.errors())


async def test_stricter_rules_ask_again_and_looser_ones_wait_for_later_sessions(
    tmp_path: Path,
) -> None:
    modules = Modules(tmp_path)
    modules.lists("git", described("git_push", read_only=False))
    servers = {"git": modules.entry("git")}
    push = calling("git_push", "git", repo="a")
    deny = {"rules": [{"tool": "git_push", "then": "deny", "why": "not today"}]}
    async with Bridge(reading(tmp_path, servers, approval="default")) as bridge:
        run = await asks(bridge, push)
        await bridge.reconfigure(reading(tmp_path, servers, approval=deny))
        [question] = run.pending()
        with pytest.raises(FinishedRunError):
            run.decide(question.approval, "approve", by="ada")
        await run.wait(20)
        assert "not today" in str(run.errors())
        assert modules.calls("git") == []

        await bridge.reconfigure(reading(tmp_path, servers, approval="allow_all"))
        run = await bridge.run_plan(push)
        await run.wait(20)
        assert "not today" in str(run.errors())

        bridge.session_begun = lambda: float("inf")
        assert await result_of(bridge, push) == "git.git_push"


async def test_stricter_rules_hold_for_a_run_at_work(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    modules = Modules(tmp_path)
    modules.lists("git", described("git_push", read_only=False))
    parameters = {"type": "object", "properties": {"gate": {"type": "string"}}}
    servers = {
        "git": modules.entry("git"),
        "slow": plain(tmp_path, "slow", {"name": "gated", "inputSchema": parameters}),
    }
    waits: JSONObject = {
        "_tool": "gated",
        "_module": "slow",
        "gate": str(gate),
        "_outputPath": "opened",
    }
    push: JSONObject = {"_tool": "git_push", "repo": "†state.opened", "_outputPath": "result"}
    async with Bridge(reading(tmp_path, servers)) as bridge:
        run = await bridge.run_plan({"calls": [waits, push]})
        with anyio.fail_after(20):
            writing = await anyio.to_thread.run_sync(os.open, gate, os.O_WRONLY)

        try:
            await bridge.reconfigure(reading(tmp_path, servers, approval="default"))
            os.write(writing, b"open\n")
            assert await run.wait(20) == "needs_approval"
            [question] = run.pending()
            run.decide(question.approval, "approve", by="ada")
            assert await run.wait(20) == "done"
            assert modules.calls("git") == ["git_push"]
        finally:
            os.close(writing)
