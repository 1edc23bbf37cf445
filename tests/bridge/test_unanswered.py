"""A module that dies, hangs or breaks off in the middle of a call leaves an unknown outcome."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from ideabridge.bridge import ApprovalRequest, Bridge, Decision, read_plan
from ideabridge.bridge.configuration import Configuration, parse_configuration
from ideabridge.bridge.errors import GroupFailedError, UnknownOutcomeError
from ideabridge.bridge.modules.errors import ModuleDownError
from ideabridge.bridge.runs.run import Run
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import UnknownEffectError

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parents[1] / "modules" / "servers" / "pay.py"
CHOICES = ". retry: run it again; skip: let it fail as unknown; value: give its result"


class Bank:
    """A module that pays, and what it has written down."""

    def __init__(self, folder: Path, entry: dict[str, Any]) -> None:
        self.folder = folder
        self.entry = entry
        os.mkfifo(folder / "release")
        os.mkfifo(folder / "released")

    @property
    def ledger(self) -> list[str]:
        path = self.folder / "ledger"
        return path.read_text().splitlines() if path.exists() else []

    async def release(self) -> None:
        """Let a call that hangs pay, and wait until it has."""
        with anyio.fail_after(20):
            await anyio.to_thread.run_sync((self.folder / "release").write_text, "now")
            await anyio.to_thread.run_sync((self.folder / "released").read_text)

    def configuration(self, **keys: Any) -> Configuration:
        limits = {"result_bytes": 2000}
        entry = {**self.entry, **keys}
        return parse_configuration(
            {"mcpServers": {"bank": entry}, "approval": "allow_all", "limits": limits}
        )


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncGenerator[Bank]:
    command = [sys.executable, "-I", "-S", str(SERVER), str(folder)]
    if kind == "stdio":
        yield Bank(folder, {"command": command[0], "args": command[1:]})
        return

    async with await anyio.open_process([*command, "--http", "0"], stderr=None) as process:
        assert process.stdout is not None
        port = int(await process.stdout.receive())
        try:
            yield Bank(folder, {"url": f"http://127.0.0.1:{port}/mcp"})
        finally:
            if process.returncode is None:
                process.kill()


def refunding(do: str) -> JSON:
    return {
        "calls": [
            {"_tool": "pay", "to": "Ada", "do": do, "_outputPath": "paid || refused"},
            {"_tool": "refund", "of": "†state.refused.message", "_outputPath": "refunded"},
            {"_tool": "look", "to": "Bob", "_outputPath": "seen"},
        ]
    }


def only(run: Run) -> Any:
    [entry] = run.approvals()
    return entry


WHY = [
    ("stdio", "die", "server 'bank' ended with exit code 3 while tool 'pay' was running"),
    ("stdio", "hang", "server 'bank' did not answer within 3 s and was told to stop"),
    ("stdio", "close", "server 'bank' closed its output while tool 'pay' was running"),
    ("stdio", "garbage", "server 'bank': its answer is not a JSON-RPC message"),
    ("stdio", "strange", "server 'bank': its result is a string, not an object: no object"),
    ("http", "hang", "server 'bank' did not answer within 3 s and was told to stop"),
    ("http", "die", "server 'bank' cut its answer off while tool 'pay' was running"),
    ("http", "close", "server 'bank' cut its answer off while tool 'pay' was running"),
    ("http", "garbage", "server 'bank': its answer is not a JSON-RPC message"),
    (
        "http",
        "http_500",
        (
            "server 'bank' answered HTTP 500 Internal Server Error: sorry, while tool 'pay' was "
            "running"
        ),
    ),
    (
        "http",
        "http_502",
        "server 'bank' answered HTTP 502 Bad Gateway: sorry, while tool 'pay' was running",
    ),
]


@pytest.mark.parametrize(("kind", "do", "why"), WHY)
async def test_no_refund_follows_a_payment_that_was_not_answered(
    kind: str, do: str, why: str, tmp_path: Path
) -> None:
    async with opened(kind, tmp_path) as bank:
        async with Bridge(
            bank.configuration(timeout=20 if kind == "stdio" and do != "hang" else 3, order="none")
        ) as bridge:
            run = await bridge.run_plan(read_plan(refunding(do)))
            assert await run.wait(20) == "needs_approval"
            entry = only(run)
            assert (entry["call"]["_tool"], entry["call"]["to"]) == ("pay", "Ada")
            assert entry["why"].startswith(f"outcome unknown: {why}"), entry["why"]
            assert entry["why"].endswith(
                f", and the tool does not declare that it may run twice{CHOICES}"
            )
            assert entry["choices"] == ["retry", "skip", "value"]
            # What does not depend on the payment continued, but the refund does depend on it and
            # has not run.
            if kind == "stdio" or do != "die":
                assert run.value("†state.seen") == "done: look Bob"
            if do == "hang":
                await bank.release()
            assert not [line for line in bank.ledger if "refund" in line]
            run.decide(entry["approval"], "value", by="Ann", value="receipt 7")
            assert await run.wait(20) == "done"
            assert run.value("†state.paid") == "receipt 7"
            assert run.calls()[1].status.value == "skipped"
        assert sum(line.startswith("pay") for line in bank.ledger) == 1


@pytest.mark.parametrize(
    ("do", "refunded"), [("refuse", "refund no money"), ("http_403", "refund server 'bank' ")]
)
async def test_what_the_tool_or_its_server_refused_is_caught(
    do: str, refunded: str, tmp_path: Path
) -> None:
    async with opened("http", tmp_path) as bank, Bridge(bank.configuration()) as bridge:
        run = await bridge.run_plan(read_plan(refunding(do)))
        assert await run.wait(20) == "done"
        assert [line for line in bank.ledger if line.startswith(refunded)]


async def test_a_retry_a_skip_and_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    async with opened("stdio", tmp_path) as bank:
        async with Bridge(bank.configuration(), store=store) as bridge:
            run = await bridge.run_plan(read_plan(refunding("die")))
            assert await run.wait(20) == "needs_approval"
            asked = only(run)
        async with Bridge(bank.configuration(), store=store) as bridge:
            run = await bridge.run(run.id)
            # The question, including what happened, outlives the process.
            assert only(run) == asked
            run.decide(asked["approval"], "retry", by="Ann")
            assert await run.wait(20) == "needs_approval"
            again = only(run)
            assert again["approval"] != asked["approval"]
            assert "ended with exit code 3" in again["why"]
            run.decide(again["approval"], "skip", by="Ann", reason="ask the bank")
            assert await run.wait(20) == "done"
            errors: list[Any] = [*run.errors()]
            assert [one["error"]["kind"] for one in errors] == ["unknown", "dependency"]
            assert errors[0]["error"]["message"].endswith(
                "may run twice; skipped by Ann: ask the bank"
            )
        assert bank.ledger.count("pay Ada") == 2
        assert not [line for line in bank.ledger if "refund" in line]


async def test_items_of_each_are_asked_about_one_by_one_and_never_caught(tmp_path: Path) -> None:
    calls: list[JSON] = [
        {
            "_tool": "pay",
            "_each": [
                {"to": "Ada", "do": "answer"},
                {"to": "Bob", "do": "die"},
                {"to": "Cid", "do": "answer"},
            ],
            "to": "†item.to",
            "do": "†item.do",
            "_outputPath": "paid || refused",
        },
        {"_tool": "refund", "of": "†state.refused.message"},
    ]
    async with opened("stdio", tmp_path) as bank, Bridge(bank.configuration()) as bridge:
        run = await bridge.run_plan(read_plan({"calls": calls}))
        assert await run.wait(20) == "needs_approval"
        entry = only(run)
        assert (entry["item"], entry["call"]["to"]) == (1, "Bob")
        run.decide(entry["approval"], "skip", by="Ann")
        assert await run.wait(20) == "done"
        assert [one.status.value for one in run.calls()] == ["failed", "failed"]
        assert bank.ledger == ["pay Ada", "pay Bob", "pay Cid"]


async def test_a_module_that_ends_while_it_asks_is_asked_about_in_its_place(tmp_path: Path) -> None:
    plan: JSON = {
        "calls": [{"_tool": "pay", "to": "Ada", "do": "ask", "_outputPath": "paid || refused"}]
    }
    async with opened("stdio", tmp_path) as bank, Bridge(bank.configuration()) as bridge:
        run = await bridge.run_plan(read_plan(plan))
        with anyio.fail_after(20):
            while not run.approvals():
                await run.runner.wait_changed()
            assert only(run)["question"]["message"] == "Your PIN?"
            await anyio.to_thread.run_sync((bank.folder / "release").write_text, "now")
            while "question" in only(run):
                await run.runner.wait_changed()
        entry = only(run)
        assert "ended with exit code 3 while tool 'pay' was running" in entry["why"]
        run.decide(entry["approval"], "value", by="Ann", value="receipt 7")
        assert await run.wait(20) == "done"
        assert run.value("†state.paid") == "receipt 7"


async def test_what_was_not_answered_in_a_room_is_not_caught_outside_of_it(tmp_path: Path) -> None:
    inside: JSON = {
        "calls": [{"_tool": "pay", "to": "†input.to", "do": "†input.do", "_outputPath": "paid"}],
        "input": {"to": "Ada", "do": "answer"},
        "output": "†state.paid",
    }
    outside: JSON = {
        "calls": [
            {
                "_tool": "paying",
                "_module": "idea:paying",
                "to": "Bob",
                "do": "die",
                "_outputPath": "paid || refused",
            },
            {"_tool": "refund", "of": "†state.refused.message"},
        ]
    }
    async with opened("stdio", tmp_path) as bank, Bridge(bank.configuration()) as bridge:
        taught = await bridge.run_plan(read_plan(inside))
        assert await taught.wait(20) == "done"
        await bridge.publish(taught.id, "paying", answer="plan")
        run = await bridge.run_plan(read_plan(outside))
        with anyio.fail_after(20):
            while not run.approvals():
                await run.runner.wait_changed()

        entry = only(run)
        assert entry["approval"].startswith("0/o0-")
        assert "ended with exit code 3 while tool 'pay' was running" in entry["why"]
        run.decide(entry["approval"], "skip", by="Ann")
        assert await run.wait(20) == "done"
        errors: list[Any] = [*run.errors()]
        assert [one["error"]["kind"] for one in errors] == ["unknown", "dependency"]
        assert bank.ledger == ["pay Ada", "pay Bob"]


async def test_an_approver_is_asked_while_other_calls_go_on(tmp_path: Path) -> None:
    seen: list[ApprovalRequest] = []
    other = anyio.Event()

    @tool(read_only=True)
    async def wait_for_it() -> str:
        """Wait until the approver was asked."""
        await other.wait()
        return "meanwhile"

    async def approver(request: ApprovalRequest) -> Decision:
        seen.append(request)
        other.set()
        return Decision("value", value="told")

    plan: JSON = {
        "calls": [
            {"_tool": "pay", "to": "Ada", "do": "die", "_outputPath": "paid"},
            {"_tool": "wait_for_it"},
        ],
        "output": ["†state.paid", "†results.1"],
    }
    async with (
        opened("stdio", tmp_path) as bank,
        Bridge(bank.configuration(), toolbox=Toolbox(wait_for_it), approver=approver) as bridge,
    ):
        run = await bridge.run_plan(read_plan(plan))
        assert await run.wait(20) == "done"
        assert run.answer()["output"] == ["told", "meanwhile"]
        assert [(one.kind, one.choices) for one in seen] == [
            ("outcome", ("retry", "skip", "value"))
        ]


async def test_a_mind_is_told_and_nothing_is_caught(tmp_path: Path) -> None:
    async with opened("stdio", tmp_path) as bank, Bridge(bank.configuration()) as bridge:
        run = await bridge.solve("Pay Ada.", mind="turns")
        calls: list[JSON] = [
            {"_tool": "pay", "to": "Ada", "do": "die", "_outputPath": "paid || refused"},
            {"_tool": "refund", "of": "†state.refused.message"},
        ]
        run.submit(0, {"calls": calls, "output": None})
        assert await run.wait(20) == "needs_solution"
        errors: list[Any] = [*run.errors()]
        assert [one["error"]["kind"] for one in errors] == ["unknown", "dependency"]
        assert (
            "outcome unknown: server 'bank' ended with exit code 3" in errors[0]["error"]["message"]
        )
        assert bank.ledger == ["pay Ada"]


async def test_groups_name_what_may_have_happened(tmp_path: Path) -> None:
    async with (
        opened("stdio", tmp_path) as bank,
        Bridge(bank.configuration()) as bridge,
        bridge.session() as session,
    ):
        with pytest.raises(UnknownOutcomeError):
            await session.run(
                {"_tool": "pay", "to": "Ada", "do": "die", "_outputPath": "paid || refused"}
            )
        with pytest.raises(GroupFailedError, match="outcome unknown") as failed:
            await session.run_all([{"_tool": "pay", "to": "Bob", "do": "die"}, {"_tool": "look"}])
        assert [one["outcome"] for one in failed.value.effects] == ["unknown"]


async def test_a_result_over_the_limit_ran_and_is_not_caught(tmp_path: Path) -> None:
    async with opened("stdio", tmp_path) as bank, Bridge(bank.configuration()) as bridge:
        run = await bridge.run_plan(read_plan(refunding("big")))
        assert await run.wait(20) == "done"
        errors: list[Any] = [*run.errors()]
        assert [one["error"]["kind"] for one in errors] == ["ran", "dependency"]
        assert (
            "it ran, but its result cannot be used: server 'bank' answered with"
            in errors[0]["error"]["message"]
        )
        assert not [line for line in bank.ledger if "refund" in line]


async def test_an_activity_may_say_that_it_does_not_know() -> None:
    @tool(destructive=False)
    async def pay(to: str) -> str:
        """Pay somebody."""
        raise UnknownEffectError(f"the bank of {to} did not answer")

    @tool(read_only=True)
    async def look(at: JSON) -> JSON:
        """Give what it is given."""
        return at

    plan: JSON = {
        "calls": [
            {"_tool": "pay", "to": "Ada", "_outputPath": "paid || refused"},
            {"_tool": "look", "at": "†state.refused"},
        ]
    }
    async with Bridge(Configuration(approval="allow_all"), toolbox=Toolbox(pay, look)) as bridge:
        run = await bridge.run_plan(read_plan(plan))
        assert await run.wait(30) == "needs_approval"
        assert "the bank of Ada did not answer" in only(run)["why"]


@pytest.mark.parametrize("kind", ["stdio", "http"])
@pytest.mark.parametrize("tool_name", ["look", "put"])
async def test_what_may_run_twice_is_tried_again(kind: str, tool_name: str, tmp_path: Path) -> None:
    do = "die_once" if kind == "stdio" else "close_once"
    async with opened(kind, tmp_path) as bank, Bridge(bank.configuration()) as bridge:
        assert (
            await bridge.modules["bank"].call(tool_name, {"to": "Ada", "do": do})
            == f"done: {tool_name} Ada"
        )
        assert bank.ledger == [f"{tool_name} Ada"] * 2


@pytest.mark.parametrize(
    ("retry", "sends"), [({}, 3), ({"lo*": 2}, 2), ({"put": 1, "look": 1, "*": 9}, 1)]
)
async def test_tries_are_bounded_and_configured(
    retry: dict[str, int], sends: int, tmp_path: Path
) -> None:
    told = "ended with exit code 3" + (
        "" if sends == 1 else rf".* \(the call was sent {sends} times\)$"
    )
    async with opened("stdio", tmp_path) as bank, Bridge(bank.configuration(retry=retry)) as bridge:
        with pytest.raises(ModuleDownError, match=told):
            await bridge.modules["bank"].call("look", {"to": "Ada", "do": "die"})
        assert bank.ledger == ["look Ada"] * sends
        # Nothing makes ideabridge send a payment twice.
        with pytest.raises(ModuleDownError, match=r"exit code 3 while tool 'pay' was running$"):
            await bridge.modules["bank"].call("pay", {"to": "Bob", "do": "die"})
        assert bank.ledger.count("pay Bob") == 1


async def test_tries_end_with_the_time_of_the_call(tmp_path: Path) -> None:
    async with (
        opened("stdio", tmp_path) as bank,
        Bridge(bank.configuration(retry={"*": 10})) as bridge,
    ):
        await bridge.modules["bank"].ready(20)
        with pytest.raises(ModuleDownError, match="exit code 3"), anyio.fail_after(20):
            await bridge.modules["bank"].call("look", {"to": "Ada", "do": "die"}, timeout=1.0)
        assert 1 <= len(bank.ledger) < 10


async def test_what_only_reads_is_caught_and_what_may_be_repeated_is_asked_about(
    tmp_path: Path,
) -> None:
    calls: list[JSON] = [
        {"_tool": "look", "to": "Ada", "do": "die", "_outputPath": "seen || unseen"},
        {"_tool": "put", "to": "Bob", "do": "die", "_outputPath": "set || unset"},
    ]
    async with (
        opened("stdio", tmp_path) as bank,
        Bridge(bank.configuration(retry={"*": 1})) as bridge,
    ):
        run = await bridge.run_plan(read_plan({"calls": calls}))
        assert await run.wait(20) == "needs_approval"
        assert run.calls()[0].status.value == "caught"
        # Running the call twice would be harmless, but treating it as if it had not run would not
        # be.
        assert only(run)["why"] == (
            "outcome unknown: server 'bank' ended with exit code 3 while tool "
            f"'put' was running{CHOICES}"
        )
