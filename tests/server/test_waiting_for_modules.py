"""Lists, searches and direct calls while modules are still connecting, and names that do not depend
on which are up.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from mcp import Client, MCPError, types

from ideabridge.bridge import read_plan
from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.errors import ModulesAwayError
from ideabridge.bridge.offer import offer
from ideabridge.bridge.store.portable import sealed
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server import catalogue, finding, offerings
from ideabridge.server.server import Front
from ideabridge.tools.encoding import JSONObject
from tests.waiting import until

from .serving import (
    ERAS,
    Gate,
    Heard,
    all_tools,
    call,
    configured,
    in_memory,
    over_stdio,
    plain,
    refused,
    structured,
    text,
)

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def fronted(
    folder: Path, modules: dict[str, Any], expose: tuple[str, ...] = ("modules",)
) -> AsyncGenerator[Front]:
    """A server in this process, whose store stays."""
    configuration = parse_configuration(
        {"mcpServers": modules, "expose": list(expose)}, project=folder
    )
    async with (
        Bridge(configuration, store=folder / "ideas.sqlite") as bridge,
        anyio.create_task_group() as group,
    ):
        yield Front(bridge, group, "0")
        group.cancel_scope.cancel()


def patient(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "LIST_SECONDS", seconds)
    monkeypatch.setattr(finding, "LIST_SECONDS", seconds)


def names_of(answer: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in answer["tools"]]


@pytest.mark.parametrize("mode", ERAS)
async def test_the_first_list_search_and_call_wait_for_a_module(
    tmp_path: Path, gate: Gate, mode: str
) -> None:
    modules = {"trees": plain(tmp_path, "trees", "climb", hold=gate.path)}
    configuration = configured(tmp_path, mcpServers=modules, expose=["modules"])
    got: dict[str, Any] = {}
    async with in_memory(configuration, mode) as client, anyio.create_task_group() as group:

        async def listed() -> None:
            got["list"] = await all_tools(client)

        async def searched() -> None:
            got["search"] = await call(client, "search_tools", words="climb a tree")

        async def called() -> None:
            got["call"] = text(await client.call_tool("climb", {"x": "oak"}))

        for one in (listed, searched, called):
            group.start_soon(one)

        # In the meantime, the server answers other requests, and the earlier one waits.
        with pytest.raises(MCPError):
            await client.read_resource("idea://none")

        assert got == {}
        gate.open()

    assert "climb" in got["list"]
    assert names_of(got["search"])[0] == "climb"
    assert "unavailable" not in got["search"]
    assert '"oak"' in got["call"]


SEARCH_BY_PLACE: dict[str, Any] = {
    "name": "search",
    "inputSchema": {
        "type": "object",
        "properties": {"place": {"type": "string"}},
        "required": ["place"],
    },
}


async def test_the_next_server_knows_names_and_tools_before_their_modules_are_up(
    tmp_path: Path, gate: Gate
) -> None:
    modules = {name: plain(tmp_path, name, "search", f"{name}_only") for name in ("mail", "web")}
    configuration = configured(tmp_path, mcpServers=modules, expose=["modules"])
    names = {"mail_search", "web_search", "mail_only", "web_only"}
    async with in_memory(configuration, "legacy") as client:
        assert names <= (await all_tools(client)).keys()

    # With the same configuration, one module now comes up with another definition, and the other
    # does not come up for now.
    plain(tmp_path, "mail", SEARCH_BY_PLACE)
    plain(tmp_path, "web", "search", "web_only", hold=gate.path)
    heard = Heard()
    answered: list[str] = []
    async with (
        in_memory(configuration, "legacy", message_handler=heard) as client,
        anyio.create_task_group() as group,
    ):
        before = await all_tools(client)
        if "mail_only" in before:
            assert names <= before.keys()
            await heard.until("notifications/tools/list_changed")

        tools = await all_tools(client)
        assert names & tools.keys() == names - {"mail_only"}
        assert "place" in tools["mail_search"].input_schema["properties"]
        # Arguments are checked against the definition that the module lists now.
        assert "place" in await refused(client, "mail_search", x="oak")
        assert '"search"' in text(await client.call_tool("mail_search", {"place": "inbox"}))
        assert names_of(await call(client, "search_tools", words="web only"))[:1] == ["web_only"]

        async def called() -> None:
            answered.append(text(await client.call_tool("web_search", {"x": "oak"})))

        group.start_soon(called)
        await client.list_prompts()
        assert answered == []
        gate.open()

    assert '"oak"' in answered[0]


async def test_a_listed_definition_that_is_gone_calls_nothing_else(
    tmp_path: Path, gate: Gate
) -> None:
    modules = {"mail": plain(tmp_path, "mail", "search", "send"), "mute": plain(tmp_path, "mute")}
    async with fronted(tmp_path, modules) as front, Client(front.server) as client:
        assert {"search", "send"} <= (await all_tools(client)).keys()

    plain(tmp_path, "mail", SEARCH_BY_PLACE, hold=gate.path)
    # Nobody waits for a module that had no tools.
    mute = Gate(tmp_path, "mute_gate")
    plain(tmp_path, "mute", hold=mute.path)
    errors: dict[str, str] = {}
    async with (
        fronted(tmp_path, modules) as front,
        Client(front.server) as client,
        anyio.create_task_group() as group,
    ):
        assert {"search", "send"} <= (await all_tools(client)).keys()
        assert [tool.name for tool in front.catalogue.bridge.tools() if tool.module] == []

        async def called(name: str) -> None:
            errors[name] = await refused(client, name, x="oak")

        group.start_soon(called, "search")
        group.start_soon(called, "send")
        await client.list_prompts()
        assert errors == {}
        gate.open()

    mute.close()
    assert "place" in errors["search"]
    assert "has no tool 'send'" in errors["send"]


async def test_a_plan_is_made_with_what_its_module_lists_now(tmp_path: Path, gate: Gate) -> None:
    mute = Gate(tmp_path, "mute")
    modules: JSONObject = {
        "mail": plain(tmp_path, "mail", "search"),
        "mute": plain(tmp_path, "mute", "hum", hold=mute.path),
    }
    configuration = parse_configuration(
        {"mcpServers": modules, "approval": "allow_all"}, project=tmp_path
    )
    async with Bridge(configuration, store=tmp_path / "ideas.sqlite") as bridge:
        await bridge.modules["mail"].ready(30)

    plain(tmp_path, "mail", SEARCH_BY_PLACE, hold=gate.path)
    async with Bridge(configuration, store=tmp_path / "ideas.sqlite") as bridge:
        gate.open()
        plan = read_plan({"calls": [{"_tool": "search", "place": "inbox", "_outputPath": "found"}]})
        # Nobody waits for a module that cannot have the tool.
        with anyio.fail_after(20):
            run = await bridge.run_plan(plan)
            assert '"inbox"' in str(await run.result())

        assert bridge.modules["mute"].status().state == "connecting"

    mute.open()
    mute.close()


async def test_another_module_of_the_same_name_does_not_take_the_list_over(tmp_path: Path) -> None:
    first = plain(tmp_path, "mail", "search")
    async with fronted(tmp_path, {"mail": first}) as front, Client(front.server) as client:
        assert "search" in await all_tools(client)

    for other in (
        plain(tmp_path, "other", "send"),
        {**first, "deny": ["search"]},
        {**first, "disabled": True},
    ):
        async with fronted(tmp_path, {"mail": other}) as front:
            bridge = front.catalogue.bridge
            assert [tool.name for tool in bridge.offer.known if tool.module] == []
            await bridge.modules.settled(30)


async def test_what_is_missing_is_named(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient(0.05, monkeypatch)
    modules = {
        "mute": plain(tmp_path, "mute", "hum", hold=gate.path),
        "gone": {"command": "no-such-program"},
        "trees": plain(tmp_path, "trees", "climb"),
    }
    async with fronted(tmp_path, modules) as front, Client(front.server) as client:
        await front.catalogue.bridge.modules["trees"].ready(30)
        assert "climb" in await all_tools(client)
        for words in ("hum a song", "climb"):
            result = await client.call_tool("search_tools", {"words": words})
            told = {one["module"]: one["state"] for one in structured(result)["unavailable"]}
            assert told == {"mute": "connecting", "gone": "failed"}
            assert "search again" in text(result)

        assert "unavailable" not in await call(
            client, "search_tools", words="climb", module="trees"
        )
        with monkeypatch.context() as patch:
            for where in (catalogue, offer):
                patch.setattr(where, "SETTLE_SECONDS", 0.05)
            plan = [{"_tool": "hum", "x": "a song"}]
            for error in (
                await refused(client, "hum", x="a song"),
                await refused(client, "run_plan", calls=plan),
            ):
                assert "unknown tool 'hum'" in error
                assert "mute (connecting)" in error
                assert "no-such-program" in error


async def test_a_name_goes_on_meaning_its_tool_when_another_comes(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient(0.05, monkeypatch)
    modules = {
        "mail": plain(tmp_path, "mail", "search"),
        "web": plain(tmp_path, "web", "search", hold=gate.path),
    }
    async with fronted(tmp_path, modules) as front, Client(front.server) as client:
        bridge = front.catalogue.bridge
        await bridge.modules["mail"].ready(30)
        assert "search" in text(await client.call_tool("search", {"x": "oak"}))
        gate.open()
        await bridge.modules["web"].ready(30)
        assert {"search", "web_search"} <= (await all_tools(client)).keys()
        assert '"tool": "search"' in text(await client.call_tool("search", {"x": "oak"}))


async def test_no_secret_gets_into_a_list_that_is_kept(tmp_path: Path) -> None:
    secret = "tr0ub4dor-and-three"
    told: dict[str, Any] = {
        "name": "search",
        "description": f"Search as {secret}.",
        "inputSchema": {
            "type": "object",
            "properties": {"place": {"type": "string", "default": secret}},
        },
        "outputSchema": {"type": "object", "description": secret},
    }
    modules = {
        "mail": {**plain(tmp_path, "mail", told, f"search_{secret}"), "env": {"API_TOKEN": secret}}
    }
    async with fronted(tmp_path, modules) as front, Client(front.server) as client:
        tools = await all_tools(client)
        assert tools["search"].description == "Search as [secret:API_TOKEN]."
        assert secret not in str(tools)
        assert "contains a secret" in str(front.catalogue.bridge.modules["mail"].status().notes)

    stored = [await file.read_bytes() async for file in anyio.Path(tmp_path).glob("ideas.sqlite*")]
    assert b"Search as [secret" in b"".join(stored)
    assert secret.encode() not in b"".join(stored)


# -- publishing ------------------------------------------------------------------------------------

LOOKED_UP: dict[str, Any] = {
    "calls": [{"_tool": "search", "_module": "mail", "x": "†input.x", "_outputPath": "found"}],
    "input": {"x": "oak"},
    "output": "†state.found",
}
READS: dict[str, Any] = {
    "name": "search",
    "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}},
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}


@asynccontextmanager
async def bridged(folder: Path, modules: dict[str, Any]) -> AsyncGenerator[Bridge]:
    configuration = parse_configuration(
        {"mcpServers": modules, "approval": "allow_all"}, project=folder
    )
    async with Bridge(configuration, store=folder / "ideas.sqlite") as bridge:
        yield bridge


async def run_before(folder: Path, modules: dict[str, Any]) -> str:
    """A run that ended in an earlier process."""
    async with bridged(folder, modules) as bridge:
        run = await bridge.run_plan(read_plan(LOOKED_UP))
        await run.result()
        return run.id


async def test_the_early_publication_waits_for_the_modules_it_calls(
    tmp_path: Path, gate: Gate
) -> None:
    mute = Gate(tmp_path, "mute")
    modules = {
        "mail": plain(tmp_path, "mail", READS),
        "mute": plain(tmp_path, "mute", "hum", hold=mute.path),
    }
    run = await run_before(tmp_path, modules)
    plain(tmp_path, "mail", READS, hold=gate.path)
    published: list[Any] = []
    async with bridged(tmp_path, modules) as bridge, anyio.create_task_group() as group:

        async def publish() -> None:
            published.append(await bridge.publish(run, "look_up"))

        group.start_soon(publish)
        await anyio.wait_all_tasks_blocked()
        assert published == []
        gate.open()
        await until(lambda: published, 20)
        assert bridge.modules["mute"].status().state == "connecting", "it waits for no other server"
        [publication] = published
        assert publication.answer == "auto"
        assert publication.plan is not None
        assert (
            publication.annotations["readOnlyHint"],
            publication.annotations["openWorldHint"],
        ) == (True, False)
        with anyio.fail_after(20):
            [verdict] = await bridge.verify(["look_up"])

        assert verdict.faults == []

    mute.open()
    mute.close()


async def test_nothing_is_published_while_a_module_is_not_up(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {"mail": plain(tmp_path, "mail", READS)}
    run = await run_before(tmp_path, modules)
    async with bridged(tmp_path, modules) as bridge:
        publication = await bridge.publish(run, "look_up")
        document = bridge.store.export_idea("look_up", caller=SEES_ALL)

    published = cast("JSONObject", document["publication"])
    changed = sealed({**document, "publication": {**published, "description": "Looks up."}})
    plain(tmp_path, "mail", READS, hold=gate.path)
    monkeypatch.setattr(offer, "SETTLE_SECONDS", 0.05)
    async with bridged(tmp_path, modules) as bridge:
        for answer in ("auto", "plan"):
            with pytest.raises(
                ModulesAwayError, match="a server that is unavailable: server 'mail' is connecting"
            ):
                await bridge.publish(run, "early", answer=answer)

        with pytest.raises(
            ModulesAwayError, match="a server that is unavailable: server 'mail' is connecting"
        ):
            await bridge.import_idea(changed, publish=True, replace=["look_up"])

        [verdict] = await bridge.verify(["look_up"])
        assert "mail" in str(verdict.faults)
        assert [
            one.name for one in bridge.store.publications.page(10, None, caller=SEES_ALL).items
        ] == ["look_up"]
        assert (
            bridge.store.publications.get("look_up", caller=SEES_ALL).version == publication.version
        )
        # What needs no module is published immediately.
        assert (await bridge.publish(run, "stored", answer="recorded")).answer == "recorded"
        gate.open()
        await bridge.modules["mail"].ready(20)
        assert (await bridge.publish(run, "early")).annotations == publication.annotations


# -- slow modules ----------------------------------------------------------------------------------

LISTS = Path(__file__).parents[1] / "modules" / "servers" / "lists.py"
SLOW = pytest.mark.parametrize("slow", ["connecting", "tools_hang", "others_hang"])
AT_ONCE = 5.0
"""Seconds on a busy machine; each wait for all modules is longer."""


def lists(mode: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", str(LISTS), mode]}


@asynccontextmanager
async def with_a_slow_module(
    folder: Path, slow: str, mode: str = "legacy", **top: Any
) -> AsyncGenerator[Client]:
    """A client of a server over stdio that nobody has asked for a list, with a slow module
    before a fast one.
    """
    gate = Gate(folder, "slow")
    if slow == "connecting":
        entry = plain(folder, "slow", "hum", hold=gate.path)
    else:
        entry = lists(slow)

    configuration = configured(
        folder, mcpServers={"slow": entry, "fast": lists("plain")}, expose=["modules"], **top
    )
    began = anyio.current_time()
    async with over_stdio(configuration, mode) as client:
        assert anyio.current_time() - began < AT_ONCE
        yield client
        gate.open()

    gate.close()


@SLOW
@pytest.mark.parametrize("mode", ERAS)
async def test_a_call_of_a_fast_module_does_not_wait_for_a_slow_one(
    tmp_path: Path, slow: str, mode: str
) -> None:
    async with with_a_slow_module(tmp_path, slow, mode) as client:
        with anyio.fail_after(AT_ONCE):
            told = text(await client.call_tool("e0", {}))
            assert "done" in told or "approval" in told


@SLOW
async def test_plans_and_programs_with_a_fast_module_do_not_wait_for_a_slow_one(
    tmp_path: Path, slow: str
) -> None:
    async with with_a_slow_module(tmp_path, slow, approval="allow_all") as client:
        with anyio.fail_after(AT_ONCE):
            told = await call(
                client, "run_plan", calls=[{"_tool": "e0", "_outputPath": "x"}], output="†state.x"
            )
            assert told["output"] == "done"
        with anyio.fail_after(AT_ONCE):
            told = await call(client, "run_plan", program="import fast\nawait fast.e0()")
            assert told["output"] == "done"


@SLOW
async def test_lists_of_a_fast_module_do_not_wait_for_a_slow_one(tmp_path: Path, slow: str) -> None:
    async with with_a_slow_module(tmp_path, slow) as client:
        with anyio.fail_after(finding.LIST_SECONDS + AT_ONCE):
            # Soon after the start, lists wait for the modules that are connecting.
            await client.list_resources()
        for _ in range(2):
            with anyio.fail_after(AT_ONCE):
                resources = await client.list_resources()
                assert "test://e0" in [one.uri for one in resources.resources]
                assert "e0" in [one.name for one in (await client.list_prompts()).prompts]
        with anyio.fail_after(AT_ONCE):
            assert "e0" in await all_tools(client)
            found = await call(client, "search_tools", words="nothing like this")
        if slow != "others_hang":
            assert [(one["module"], one["state"]) for one in found["unavailable"]] == [
                ("slow", "connecting")
            ]
        with anyio.fail_after(AT_ONCE):
            assert "read" in str(await client.read_resource("test://e0"))
            assert "done" in str(await client.get_prompt("e0"))
            reference = types.PromptReference(name="e0")
            assert "done" in str(await client.complete(reference, {"name": "x", "value": "d"}))


async def test_a_list_that_arrives_late_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offerings, "LATE_SECONDS", 0.05)
    late = anyio.Event()
    modules = {"fast": lists("plain")}
    async with fronted(tmp_path, modules) as front:
        module = front.catalogue.bridge.modules["fast"]
        await module.ready(30)
        offered = module.offered

        async def slowly(kind: Any) -> Any:
            await late.wait()
            return await offered(kind)

        monkeypatch.setattr(module, "offered", slowly)
        arrived: list[str] = []
        front.offerings.arrived = lambda name, _kind: arrived.append(name)
        async with Client(front.server) as client:
            names = [one.name for one in (await client.list_prompts(cache_mode="bypass")).prompts]
            assert "e0" not in names
            late.set()
            await until(lambda: arrived)
            assert "e0" in [
                one.name for one in (await client.list_prompts(cache_mode="bypass")).prompts
            ]


def saved_in(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer["saved"].items() if key != "description"}


async def test_a_run_that_goes_on_after_a_restart_is_saved_when_its_modules_are_there(
    tmp_path: Path, gate: Gate
) -> None:
    modules = {"mail": plain(tmp_path, "mail", READS)}
    configuration = configured(tmp_path, mcpServers=modules)
    noted = {"_tool": "write_note", "path": "†input.path", "text": "†state.found"}
    given = {"x": "oak", "path": str(tmp_path / "note")}
    plan = {**LOOKED_UP, "calls": [*LOOKED_UP["calls"], noted], "input": given}
    async with over_stdio(configuration, "legacy") as client:
        told = await call(client, "run_plan", **plan, save_as="noted")
        assert told["status"] == "needs_approval"
        [approval] = told["approvals"]
        assert approval["call"]["_tool"] == "write_note"

    # The next server is asked to continue before the module is up, and the one after that while the
    # module is broken.
    plain(tmp_path, "mail", READS, hold=gate.path)
    approve = {
        "run": told["run"],
        "decisions": [{"approval": approval["approval"], "decision": "approve"}],
    }
    async with over_stdio(configuration, "legacy") as client:
        told = await call(client, "decide_approval", **approve, wait_s=0)
        told = await call(client, "check_run", run=told["run"], wait_s=1)
        assert told["status"] == "done"
        waits = "it is being published. Unavailable servers: mail (connecting)."
        assert saved_in(told) == {"name": "noted", "pending": waits}
        assert "noted" not in await all_tools(client)

    (tmp_path / "mail.json").rename(tmp_path / "away.json")
    async with over_stdio(configuration, "legacy") as client:
        # The reason is known once the server has ended and the publication has been tried.
        with anyio.fail_after(20):
            pending = ""
            while "server 'mail' ended with exit code 1" not in pending:
                told = await call(client, "check_run", run=told["run"])
                assert told["saved"].keys() == {"name", "pending"}
                pending = told["saved"]["pending"]

        assert "its calls require tools of a server that is unavailable" in pending

    plain(tmp_path, "mail", READS)
    heard = Heard()
    async with over_stdio(configuration, "legacy", message_handler=heard) as client:
        # Nobody asks for the run.
        with anyio.fail_after(20):
            while "noted" not in await all_tools(client):
                await heard.until("notifications/tools/list_changed")
        told = await call(client, "check_run", run=told["run"])
        assert saved_in(told) == {"name": "noted", "version": 1, "answer": "auto"}
