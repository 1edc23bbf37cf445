"""Imports: conversations become runs, once, which can be published and called with
other arguments.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration, parse_configuration
from ideabridge.bridge.history.report import HistoryReport
from ideabridge.bridge.lifting.function import read_function
from ideabridge.bridge.store.users import SEES_ALL
from tests import preloaded

from .logs import START, ClaudeCode, Codex, text, write

pytestmark = pytest.mark.anyio

SHOP = Path(__file__).with_name("shop.py")


def configured(**top: Any) -> Configuration:
    return parse_configuration(
        {"mcpServers": {"shop": preloaded.module(SHOP)}, **top}, project=SHOP.parent
    )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
async def bridge(home: Path) -> AsyncIterator[Bridge]:
    async with Bridge(configured(), store=home / "store.sqlite") as opened:
        yield opened


def told(customer: str, order: str, log: ClaudeCode | None = None) -> ClaudeCode:
    """A conversation: the first order of a customer is looked up, described, and a
    message about it sent.
    """
    log = log or ClaudeCode(f"about-{customer}")
    found = json.dumps({"result": [order, "o-99"]})
    log.asks(f"Tell {customer} about the first order")
    log.calls(f"{customer}-1", "mcp__shop__find_orders", {"customer": customer}, text(found))
    log.calls(f"{customer}-2", "mcp__shop__describe", {"order": order}, f"Order {order}: 12 EUR")
    note = {"to": customer, "text": f"Order {order}: 12 EUR"}
    log.calls(
        f"{customer}-3", "mcp__shop__send", note, f"sent to {customer}: Order {order}: 12 EUR"
    )
    return log


def put(home: Path, log: ClaudeCode) -> Path:
    path = home / f".claude/projects/-home-ann-shop/{log.session}.jsonl"
    path.unlink(missing_ok=True)
    return write(path, log.lines)


async def taken(bridge: Bridge, host: str = "claude-code") -> HistoryReport:
    return await bridge.history(host).take()


async def test_a_conversation_becomes_a_run_that_can_be_read_as_a_function(
    bridge: Bridge, home: Path
) -> None:
    put(home, told("ann", "o-17"))
    report = await taken(bridge)
    (one,) = report.runs
    assert one.run is not None
    assert (one.conversation, one.calls, one.modules) == ("about-ann", 3, ("shop",))
    assert (one.title, one.why, one.time) == (
        "Tell ann about the first order",
        "",
        "2026-11-20T09:00:02+00:00",
    )
    record = bridge.store.runs.get(one.run)
    assert record is not None
    assert (record.kind, record.status, record.title) == ("session", "done", one.title)
    origin = record.summary.origin
    assert (origin.host, origin.conversation, origin.document["lines"]) == (
        "claude-code",
        "about-ann",
        [2, 4, 6],
    )
    function = read_function(bridge.store, one.run, "local")
    assert [(one.call.name, one.value) for one in function.run.machine.history] == [
        # The results are not wrapped, as they are in the protocol.
        ("find_orders", ["o-17", "o-99"]),
        ("describe", "Order o-17: 12 EUR"),
        ("send", "sent to ann: Order o-17: 12 EUR"),
    ]
    assert function.run.result == "sent to ann: Order o-17: 12 EUR"
    assert function.run.steps == (0, 1, 2)
    ideas = bridge.store.ideas.of_run(record.id)
    assert [(idea.meta.title, idea.meta.tools) for idea in ideas] == [
        ("Tell ann about the first order", ("find_orders", "describe", "send"))
    ]


async def test_importing_twice_adds_nothing_and_new_calls_are_added(
    bridge: Bridge, home: Path
) -> None:
    log = told("ann", "o-17")
    put(home, log)
    first = await taken(bridge)
    again = await taken(bridge)
    assert (len(first.runs), first.known, again.runs, again.known) == (1, 0, [], 3)
    log.clock.tick(3600)
    put(home, told("bob", "o-31", log))
    grown = await taken(bridge)
    (new,) = grown.runs
    assert (new.calls, new.title, grown.known) == (3, "Tell bob about the first order", 3)
    # The host writes a copy of a conversation that is continued elsewhere.
    log.session = "copy"
    put(home, log)
    assert (await taken(bridge)).runs == []
    assert len(bridge.store.runs.newest(limit=10, caller=SEES_ALL)) == 2


async def test_a_stretch_that_may_go_on_is_left_for_later(home: Path) -> None:
    put(home, told("ann", "o-17"))
    last = START + timedelta(seconds=6)
    async with Bridge(configured(), store=home / "store.sqlite") as bridge:
        history = bridge.history("claude-code")
        history.now = last.timestamp() + 599
        (one,) = (await history.take()).runs
        assert (one.run, one.why) == (
            None,
            "its last call is less than 10 minutes old, so it may still continue",
        )
        history.now = last.timestamp() + 601
        (one,) = (await history.take()).runs
        assert one.run is not None


async def test_results_have_the_form_that_calls_here_have(bridge: Bridge, home: Path) -> None:
    log = ClaudeCode()
    structured = {"structuredContent": {"result": ["o-17", "o-23"]}}
    log.calls(
        "1",
        "mcp__shop__find_orders",
        {"customer": "ann"},
        [*text("o-17"), *text("o-23")],
        mcpMeta=structured,
    )
    log.calls("2", "mcp__shop__describe", {"order": "o-17"}, text("Order o-17: 12 EUR"))
    # Older versions keep either the text of structured content or only the text.
    log.calls("3", "mcp__shop__find_orders", {"customer": "ann"}, '{"result": ["o-17", "o-23"]}')
    log.calls("4", "mcp__shop__code", {"order": "o-17"}, '{"result": "17"}')
    log.calls("5", "mcp__shop__code", {"order": "o-17"}, text("17"))
    put(home, log)
    (one,) = (await taken(bridge)).runs
    find: Any = {"_tool": "find_orders", "customer": "ann"}
    code: Any = {"_tool": "code", "order": "o-17"}
    calls: list[Any] = [find, {"_tool": "describe", "order": "o-17"}, find, code, code]
    here = await bridge.run_plan({"calls": calls})
    await here.wait(20)
    assert one.run is not None
    imported = read_function(bridge.store, one.run, "local").run.machine.history
    assert [call.value for call in imported] == [call.value for call in here.calls()]


async def test_two_imports_at_once_store_a_stretch_once(bridge: Bridge, home: Path) -> None:
    put(home, told("ann", "o-17"))
    one = bridge.history("claude-code")
    two = bridge.history("claude-code")

    async def import_in_between() -> None:
        await one.take()

    (second,) = (await two.take(import_in_between)).runs
    (first,) = one.report.runs
    assert first.run is not None
    assert (second.run, second.why) == (None, f"another import has just saved it as {first.run}")
    assert len(bridge.store.runs.newest(limit=5, caller=SEES_ALL)) == 1


async def test_a_survey_stores_nothing_and_starts_no_module(home: Path) -> None:
    put(home, told("ann", "o-17"))
    closed = Bridge(configured())
    async with Bridge(store=home / "store.sqlite") as other:
        closed = Bridge(configured(), store=other.store)
        report = await closed.history("claude-code").survey()
        assert [(one.calls, one.modules, one.run, one.why) for one in report.runs] == [
            (3, ("shop",), None, "")
        ]
        assert other.store.runs.newest(limit=5, caller=SEES_ALL) == []


async def test_calls_that_a_run_cannot_have_are_left_and_counted(
    bridge: Bridge, home: Path
) -> None:
    log = ClaudeCode()
    log.calls("1", "mcp__shop__gone", {"x": 1}, "x")
    log.calls("2", "mcp__shop__describe", {"orders": 1}, "not as the tool is now")
    log.calls(
        "2a",
        "mcp__shop__describe",
        {"order": "a", "_output": "forged"},
        "with a property of calls here",
    )
    log.calls(
        "2b",
        "mcp__shop__describe",
        {"order": "a", "_unknown": 1},
        "with a name that calls here cannot have",
    )
    log.calls(
        "3", "mcp__shop__describe", {"order": "†results.0"}, "text that looks like a reference"
    )
    log.calls("4", "mcp__shop__find_orders", {"customer": "x"}, "KeyError", is_error=True)
    log.uses("5", "mcp__shop__send", {"to": "ann", "text": "hi"})
    log.calls(
        "6", "mcp__shop__find_orders", {"customer": "ann"}, "Orders: o-17", mcpMeta={"_meta": {}}
    )
    put(home, log)
    (one,) = (await taken(bridge)).runs
    assert one.run is not None
    assert one.left == {
        "of a tool that its server no longer has": 1,
        "with arguments that do not fit the tool now": 3,
    }
    assert (one.calls, one.incomplete) == (4, 1)
    history = read_function(bridge.store, one.run, "local").run.machine.history
    assert [(call.value, (call.error or {}).get("kind")) for call in history] == [
        ("text that looks like a reference", None),
        (None, "runtime"),
        (None, "unknown"),
        (None, None),
    ]
    assert history[0].items[0].parameters == {"order": "†results.0"}


async def test_calls_listed_together_are_one_step(bridge: Bridge, home: Path) -> None:
    log = ClaudeCode()
    log.uses("1", "mcp__shop__describe", {"order": "a"})
    log.uses("2", "mcp__shop__describe", {"order": "b"})
    log.returns("2", "B")
    log.returns("1", "A")
    log.calls("3", "mcp__shop__send", {"to": "ann", "text": "B"}, "sent")
    put(home, log)
    (one,) = (await taken(bridge)).runs
    assert one.run is not None
    run = read_function(bridge.store, one.run, "local").run
    assert run.steps == (0, 0, 1)
    assert [call.value for call in run.machine.history] == ["A", "B", "sent"]


async def test_secrets_are_not_stored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "tok-4711-4711-4711")
    module = {**preloaded.module(SHOP), "env": {"SHOP_TOKEN": "${SHOP_TOKEN}"}}
    configuration = parse_configuration({"mcpServers": {"shop": module}}, project=SHOP.parent)
    log = ClaudeCode("asks")
    log.asks("My token is tok-4711-4711-4711")
    log.calls("1", "mcp__shop__describe", {"order": "a"}, "Order a of tok-4711-4711-4711")
    log.clock.tick(3600)
    log.calls("2", "mcp__shop__describe", {"order": "tok-4711-4711-4711"}, "x")
    put(home, log)
    async with Bridge(configuration, store=home / "store.sqlite") as bridge:
        kept, refused = (await taken(bridge)).runs
        assert kept.run is not None
        assert kept.title == ""
        assert (
            read_function(bridge.store, kept.run, "local").run.result
            == "Order a of [secret:SHOP_TOKEN]"
        )
        assert refused.run is None
        assert refused.why.endswith(" contains the secret SHOP_TOKEN of the configuration")

    assert b"tok-4711" not in (home / "store.sqlite").read_bytes()


async def test_a_module_that_is_down_leaves_its_calls_for_later(home: Path) -> None:
    put(home, told("ann", "o-17"))
    down = parse_configuration(
        {"mcpServers": {"shop": {"command": "/nonexistent/shop"}}}, project=SHOP.parent
    )
    async with Bridge(down, store=home / "store.sqlite") as bridge:
        (one,) = (await taken(bridge)).runs
        assert one.run is None
        assert one.why.startswith("server 'shop' is ")

    async with Bridge(configured(), store=home / "store.sqlite") as bridge:
        (one,) = (await taken(bridge)).runs
        assert one.run is not None


async def test_a_conversation_of_codex_is_taken_under_the_name_of_another_module(
    bridge: Bridge, home: Path
) -> None:
    log = Codex()
    log.asks("What is o-17?")
    log.calls(
        "c1",
        "Shop Prod",
        "describe",
        {"order": "o-17"},
        {"Ok": {"content": text("Order o-17: 12 EUR")}},
    )
    write(home / ".codex/sessions/2026/11/20/rollout-2026-11-20T09-00-00-019f.jsonl", log.lines)
    report = await bridge.history("codex").take()
    assert (report.runs, dict(report.others)) == ([], {"Shop Prod": 1})
    (one,) = (await bridge.history("codex", modules={"Shop Prod": "shop"}).take()).runs
    assert one.run is not None
    assert (one.conversation, one.title) == ("019f-77aa", "What is o-17?")
    assert read_function(bridge.store, one.run, "local").run.result == "Order o-17: 12 EUR"


ODD: list[Any] = [
    None,
    True,
    -1,
    1e308,
    2**64,
    float("nan"),
    float("-inf"),
    "",
    "yesterday",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "2500-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "\x00\ud800",
    [],
    {},
    [[None]],
]
"""Values that no host writes in these places."""


@pytest.mark.parametrize("odd", ODD, ids=repr)
async def test_an_odd_time_costs_one_record_its_time_and_nothing_else(
    odd: Any, bridge: Bridge, home: Path
) -> None:
    log = told("ann", "o-17")
    for line in log.lines[1:3]:
        assert isinstance(line, dict)
        line["timestamp"] = odd

    put(home, log)
    put(home, told("bob", "o-31"))
    report = await taken(bridge)
    # NaN and infinity are not JSON, so the lines that contain them are ignored, including one with
    # a call.
    is_json = not isinstance(odd, float) or math.isfinite(odd)
    calls = 3 if is_json else 2
    found = {(one.conversation, one.calls, one.why) for one in report.runs}
    assert found == {("about-ann", calls, ""), ("about-bob", 3, "")}
    assert all(one.run is not None for one in report.runs)
    if not is_json:
        assert report.unread == {"unreadable": 2}
    elif odd is not None:
        assert report.unread == {"with a time that cannot be read": 2}


def mutated(lines: list[Any], odd: Any) -> Iterator[list[Any]]:
    """The lines of a log, each time with an odd value in the place of one member."""
    places = [path for number, line in enumerate(lines) for path in places_in(line, (number,))]
    for path in places:
        changed = copy.deepcopy(lines)
        at: Any = changed
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = odd
        yield changed


def places_in(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    members: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        members = [*cast("dict[str, Any]", value).items()]
    elif isinstance(value, list):
        members = [*enumerate(cast("list[Any]", value))]

    for key, member in members:
        yield (*path, key)
        yield from places_in(member, (*path, key))


@pytest.mark.parametrize("host", ["claude-code", "codex"])
async def test_no_odd_record_ends_an_import(host: str, bridge: Bridge, home: Path) -> None:
    found = [{"id": "x", "n": 1}]
    number = 0
    for odd in (None, True, 2**64, "\x00\ud800", [[None]], {"type": 1}):
        claude = ClaudeCode("s")
        claude.asks("Find orders")
        claude.calls("c", "mcp__shop__find_orders", {"customer": "ann"}, text(json.dumps(found)))
        codex = Codex("s")
        codex.asks("Find orders")
        codex.calls(
            "c", "shop", "find_orders", {"customer": "ann"}, {"Ok": {"content": text("x")}}, "x"
        )
        for lines in mutated([*(claude if host == "claude-code" else codex).lines], odd):
            number += 1
            named = json.loads(json.dumps(lines).replace('"c"', f'"call-{number}"'))
            folder = ".claude/projects/x" if host == "claude-code" else ".codex/sessions/2026"
            name = f"log-{number}" if host == "claude-code" else f"rollout-{number}"
            write(home / folder / f"{name}.jsonl", named)

    assert number > 100
    report = await taken(bridge, host)
    assert report.logs == number
    assert sum(one.run is not None for one in report.runs) > number / 2
