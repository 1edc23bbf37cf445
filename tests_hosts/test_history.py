"""The log of a session that a host itself has written: an import takes its calls as they were made,
and the run becomes a tool that repeats them, also for another customer.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import (
    ApprovalRequest,
    Bridge,
    Decision,
    HistoryReport,
    parse_configuration,
)
from ideabridge.bridge.lifting.function import Function, read_function

from .endpoint import ScriptedModel, Step
from .hosts import CLAUDE_CODE, HOSTS, Host, claude_code, missing

SHOP = Path(__file__).parent.parent / "tests" / "history" / "shop.py"
SERVER = [sys.executable, str(SHOP)]
NAME = "ideabridge"
"""The name under which the hosts are given their only server."""


def session(_: ScriptedModel) -> Generator[Step, str]:
    found = yield "find_orders", {"customer": "ann"}
    assert "o-17" in found, found
    told = yield "describe", {"order": "o-17"}
    assert "Order o-17: 12 EUR" in told, told
    failed = yield "find_orders", {"customer": "nobody"}
    assert "Error executing tool find_orders" in failed, failed
    sent = yield "send", {"to": "ann", "text": "Order o-17: 12 EUR"}
    assert "sent to ann" in sent, sent


async def taken(host: str, home: Path) -> tuple[HistoryReport, Function, list[Any]]:
    """What an import takes, an hour later, and what the tool made of it returns: as recorded, and
    for another customer.
    """
    shop = {"command": SERVER[0], "args": SERVER[1:]}
    configuration = parse_configuration({"mcpServers": {"shop": shop}}, project=home)

    async def approve(_: ApprovalRequest) -> Decision:
        return Decision("approve")

    store = home / "store.sqlite"
    async with Bridge(configuration, store=store, approver=approve) as bridge:
        history = bridge.history(host, modules={NAME: "shop"})
        history.now += 3600
        report = await history.take()
        (one,) = report.runs
        assert one.run is not None
        await bridge.publish(one.run, "tell_customer", answer="plan")
        answers = [
            await bridge.call_idea("tell_customer"),
            await bridge.call_idea("tell_customer", {"customer": "bob"}),
        ]
        return report, read_function(bridge.store, one.run, "local"), answers


def hosts() -> list[Any]:
    known: dict[str, tuple[str, Host]] = {
        "codex": HOSTS["codex"],
        "claude-code": (CLAUDE_CODE, claude_code),
        "gemini-cli": HOSTS["gemini"],
        "opencode": HOSTS["opencode"],
    }
    why = {name: missing(package) for name, (package, _) in known.items()}
    return [
        pytest.param(
            name, host, marks=pytest.mark.skipif(why[name] is not None, reason=why[name] or "")
        )
        for name, (_, host) in known.items()
    ]


@pytest.mark.parametrize(("name", "host"), hosts())
def test_a_log(name: str, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedModel(session)
    with model.serving() as address:
        host(tmp_path, SERVER, address)

    if model.failure is not None:
        raise model.failure

    for variable in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "GEMINI_CLI_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(variable, raising=False)

    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    report, function, answers = anyio.run(taken, name, tmp_path / "home")
    assert (report.logs, report.unread, report.others, report.failed) == (1, {}, {}, {})
    assert report.runs[0].title == "Go."
    calls = [
        (one.call.name, one.items[0].parameters, one.value) for one in function.run.machine.history
    ]
    # These two hosts keep the text of a result, but not its structured content.
    is_incomplete = name in ("gemini-cli", "opencode")
    assert report.runs[0].incomplete == is_incomplete
    assert calls == [
        ("find_orders", {"customer": "ann"}, None if is_incomplete else ["o-17", "o-23"]),
        ("describe", {"order": "o-17"}, "Order o-17: 12 EUR"),
        ("find_orders", {"customer": "nobody"}, None),
        ("send", {"to": "ann", "text": "Order o-17: 12 EUR"}, "sent to ann: Order o-17: 12 EUR"),
    ]
    assert function.run.steps == (0, 1, 2, 3)
    # Without structured content, nothing shows that the order came from the first call, so it is a
    # parameter with the recorded order as its default.
    order = "o-17" if is_incomplete else "o-31"
    assert answers == ["sent to ann: Order o-17: 12 EUR", f"sent to bob: Order {order}: 12 EUR"]
