"""Who decided, in each way of deciding: what the journal holds, and that every place words it
so.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from html import unescape
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
import httpx
import pytest
from mcp import Client, types

from ideabridge.bridge import (
    ApprovalRequest,
    Bridge,
    Decision,
    Store,
    parse_configuration,
    read_plan,
)
from ideabridge.bridge.loop.event import decider_text
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.main import main
from ideabridge.tools import Toolbox
from tests import preloaded
from tests.cli.conftest import EXECUTABLE
from tests.cli.terminal import Terminal
from tests.server.serving import call, read_by_a_person
from tests.ui import shop
from tests.ui.serving import client, seal, send, served

pytestmark = pytest.mark.anyio

REFUND: Final = {"_tool": "refund", "order": 1, "amount": 5}
STORE: Final = "ideas.sqlite"

WAYS: Final[dict[str, tuple[dict[str, str] | None, str]]] = {
    "assistant": ({"kind": "assistant", "via": "tool", "user": "local"}, "the assistant"),
    "form": ({"kind": "person", "via": "form", "user": "local"}, "the person at the client"),
    "page": ({"kind": "person", "via": "page", "user": "local"}, "the person at the local page"),
    "terminal": (
        {"kind": "person", "via": "terminal", "user": "local"},
        "the person at the terminal",
    ),
    "command": ({"kind": "person", "via": "command", "user": "local"}, "the command line"),
    "program": ({"kind": "approver", "via": "code"}, "the approver"),
    "named program": ({"kind": "approver", "via": "code", "user": "night watch"}, "night watch"),
    "time-out": ({"kind": "nobody", "via": "time-out"}, "the timeout"),
    # The policy decides without a question, so there is no decision in the journal and nobody is
    # named.
    "rule": (None, "policy"),
}


async def by_the_assistant(site: str, here: Path) -> str:
    async with Client(f"{site}mcp", mode="auto", read_timeout_seconds=60) as assistant:
        asked = await call(assistant, "run_plan", calls=[REFUND])
        made = [{"approval": asked["approvals"][0]["approval"], "decision": "approve"}]
        await call(assistant, "decide_approval", run=asked["run"], decisions=made)
        return str(asked["run"])


async def in_a_form(site: str, here: Path) -> str:
    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        await read_by_a_person()
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    async with Client(
        f"{site}mcp", mode="auto", read_timeout_seconds=60, elicitation_callback=answer
    ) as assistant:
        return str((await call(assistant, "run_plan", calls=[REFUND]))["run"])


async def waiting(site: str) -> tuple[str, str]:
    """(id, approval) of a run that waits."""
    async with Client(f"{site}mcp", mode="auto", read_timeout_seconds=60) as assistant:
        asked = await call(assistant, "run_plan", calls=[REFUND])
    return str(asked["run"]), str(asked["approvals"][0]["approval"])


async def on_the_page(site: str, here: Path) -> str:
    run, approval = await waiting(site)
    with client(site) as http:
        key = f"{run}:{approval}"
        answer = send(
            http, "/ui/approvals/decide", which=key, decision="approve", seal=seal(http, key)
        )
        assert answer.status_code == 200
    return run


def decide(run: str, here: Path) -> list[str]:
    options = [
        "--store",
        str(here / STORE),
        "--tools",
        str(Path(shop.__file__)),
        "--project",
        str(here),
    ]
    return ["approvals", "decide", "approve", run, *options]


async def at_a_terminal(site: str, here: Path) -> str:
    run, _ = await waiting(site)
    terminal = Terminal(here, decide(run, here))
    terminal.read_until("approve this? [y/N]:")
    terminal.type("y")
    code, _ = await anyio.to_thread.run_sync(terminal.end)
    assert code == 0, terminal.seen
    return run


async def by_a_command(site: str, here: Path) -> str:
    run, _ = await waiting(site)
    # There is no terminal, as in a script.
    await anyio.run_process(preloaded.python(EXECUTABLE, *decide(run, here)))
    return run


@asynccontextmanager
async def embedded(here: Path, approval: Any = None, **keys: Any) -> AsyncGenerator[Bridge]:
    configuration = parse_configuration(
        {"approval": approval or {"default": "read_only"}}, project=here
    )
    async with Bridge(
        configuration, toolbox=Toolbox(shop.refund, shop.list_orders), store=here / STORE, **keys
    ) as bridge:
        yield bridge


async def by_a_program(site: str, here: Path) -> str:
    async def approver(request: ApprovalRequest) -> Decision:
        return Decision("approve")

    async with embedded(here, approver=approver) as bridge:
        run = await bridge.run_plan(read_plan({"calls": [REFUND]}))
        await run.wait()
        return run.id


async def by_a_program_with_a_name(site: str, here: Path) -> str:
    async with embedded(here) as bridge:
        run = await bridge.run_plan(read_plan({"calls": [REFUND]}))
        await run.wait()
        (asked,) = run.pending()
        run.decide(asked.approval, "approve", by="night watch")
        await run.wait()
        return run.id


async def by_nobody_in_time(site: str, here: Path) -> str:
    async with embedded(here, {"default": "read_only", "timeout_seconds": 0.05}) as bridge:
        run = await bridge.run_plan(read_plan({"calls": [REFUND]}))
        while not run.machine.ended:
            await run.runner.wait_changed()
        await run.wait()
        return run.id


async def by_a_rule(site: str, here: Path) -> str:
    rules = [{"tool": "refund", "then": "deny", "why": "no refunds"}]
    async with embedded(here, {"rules": rules}) as bridge:
        run = await bridge.run_plan(read_plan({"calls": [REFUND]}))
        await run.wait()
        return run.id


DECIDE: Final[dict[str, Callable[[str, Path], Awaitable[str]]]] = {
    "assistant": by_the_assistant,
    "form": in_a_form,
    "page": on_the_page,
    "terminal": at_a_terminal,
    "command": by_a_command,
    "program": by_a_program,
    "named program": by_a_program_with_a_name,
    "time-out": by_nobody_in_time,
    "rule": by_a_rule,
}


@contextmanager
def shop_at(folder: Path) -> Generator[str]:
    """The address of a server with the page."""
    with served(folder, command="serve") as url:
        yield url.removesuffix("ui/")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("deciders")
    with shop_at(folder) as url:
        yield url, folder


def shown(http: httpx.Client, path: str) -> str:
    answer = http.get(path)
    assert answer.status_code == 200, answer.text
    return unescape(answer.text)


@pytest.mark.parametrize("way", list(WAYS))
async def test_every_place_says_who_decided(
    way: str, site: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    url, here = site
    journaled, who = WAYS[way]
    # The page speaks to its own visitor.
    who_here = "you" if way == "page" else who
    run = await DECIDE[way](url, here)
    with Store.open(here / STORE) as store:
        events = [event for _, event in store.runs.events(run)]
        decided = [event["by"] for event in events if "by" in event]
        assert decided == ([] if journaled is None else [journaled])
        listed = [one for one in store.decisions.latest(caller=SEES_ALL) if one.run == run]

    with client(url) as http:
        page, detail = shown(http, f"/ui/runs/{run}"), shown(http, f"/ui/runs/{run}/calls/0")
        inbox = shown(http, "/ui/approvals/past")

    assert main(["runs", "show", run, "--store", str(here / STORE), "--project", str(here)]) == 0
    told = [capsys.readouterr().out]
    async with Client(f"{url}mcp", mode="auto", read_timeout_seconds=60) as assistant:
        told.append(json.dumps(await call(assistant, "check_run", run=run)))

    if journaled is None:
        assert listed == []
        assert "denied by policy: no refunds" in page
        assert not any("Decisions" in text or "for a decision" in text for text in (page, detail))
    else:
        if way == "time-out":
            assert f"denied by {who}: nobody decided within 0.05 s" in page
        elif "for a decision by" in page or journaled["kind"] != "approver":
            # A program may decide faster than the page explains.
            assert f"for a decision by {who_here}" in page

        assert f"<td>{who_here}</td>" in page
        decider = f'<td class="decider">{who_here}</td>'
        assert decider in inbox.partition(run)[2].partition("</tr>")[0]
        assert all(who_here in text for text in (page, detail))
        assert all(who in text for text in told)

    for text, name in ((page, who_here), (detail, who_here), *((text, who) for text in told)):
        # The decider is called a person only if the journal says so.
        assert ("the person" in text or "a person" in text) == name.startswith("the person"), text


async def test_a_call_that_a_grant_approved_names_the_grant(site: tuple[str, Path]) -> None:
    url, here = site
    calls = [REFUND, {**REFUND, "order": 2}]
    async with Client(f"{url}mcp", mode="auto", read_timeout_seconds=60) as assistant:
        asked = await call(assistant, "run_plan", calls=calls)

    run = asked["run"]
    approval = asked["approvals"][0]["approval"]
    terminal = Terminal(here, [*decide(approval, here), "--for-run"])
    code, _ = await anyio.to_thread.run_sync(terminal.end)
    assert code == 0, terminal.seen
    with client(url) as http:
        page, inbox = shown(http, f"/ui/runs/{run}"), shown(http, "/ui/approvals/past")

    why = re.findall(r'<svg class="bar" role="img"><title>(.*)</title>', page)
    by = "the person at the terminal"
    assert why[0].endswith(f" for a decision by {by}")
    grant = f"the grant of Refund 1 of 2 by {by}"
    assert ", which may change the same things; waited " in why[1]
    assert why[1].endswith(f" for a decision by {grant}")
    # The list of decisions contains only those that somebody made.
    decider = f'<td class="decider">{by}</td>'
    assert inbox.partition(run)[2].partition("</tr>")[0].count(decider) == 1


async def test_an_accepted_plan_is_why_its_calls_waited(site: tuple[str, Path]) -> None:
    url, here = site
    calls = [{"_tool": "list_orders"}, {"_tool": "list_orders", "customer": "c1"}]
    with client(url) as http:
        async with embedded(here) as bridge:
            run = await bridge.run_plan(read_plan({"calls": calls}), planning="lazy")
            await run.wait()
            (asked,) = run.pending()
            assert "the plan" in shown(http, f"/ui/runs/{run.id}")
            run.decide(asked.approval, "approve", by="night watch")
            await run.wait()

        page = shown(http, f"/ui/runs/{run.id}")

    assert re.findall(r"for a decision by (.*)</title>", page) == ["night watch"] * 2


@pytest.mark.parametrize("by", [None, "the approver", {"kind": "god", "via": "form"}])
def test_a_journal_that_does_not_say_who_decided_claims_nothing(by: Any) -> None:
    assert decider_text({"event": "call_decided", "by": by}) == ""
