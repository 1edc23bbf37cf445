"""Many logs of all hosts, damaged as public reports describe it: each call is read once, never with
the result of another one, in the order of time, and what was not read is counted.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.history.conversation import Conversation, Names
from ideabridge.bridge.history.host_logs import HISTORIES
from ideabridge.bridge.lifting.function import read_function

from .damaged import HOSTS, Damaged
from .test_import import bridge, home, taken

__all__ = ["bridge", "home"]

NAMES = Names(["shop"])


def check(log: Damaged, home: Path) -> None:
    path = log.write(home)
    conversations: list[Conversation] = HISTORIES[log.host].read(path, NAMES)
    path.unlink()
    calls = [call for conversation in conversations for call in conversation.calls]
    shown = [(call.arguments, call.result, call.error, call.doubt) for call in calls]
    said = f"seed {log.seed}, {log.damages}, {shown}"

    whole: list[int] = []
    times = Counter[int]()
    for call in calls:
        if call.doubt:
            # One byte of its line could not be read, so its arguments might be wrong.
            continue
        number = log.number_of(call.arguments)
        assert number is not None, said
        times[number] += 1
        if call.missing is not None:
            continue

        whole.append(number)
        outcome = log.outcomes[number]
        assert call.result == outcome.value, said
        assert (call.error is None) == (outcome.error is None), said
        assert str(outcome.error or "") in str(call.error), said
        assert call.rejected == outcome.rejected, said

    assert set(times.values()) <= {1}, said
    for conversation in conversations:
        began = [call.time for call in conversation.calls if call.time is not None]
        assert began == sorted(began), said

    reasons = sum((conversation.skipped for conversation in conversations), Counter[str]())
    repaired = sum(conversation.repaired for conversation in conversations)
    if len(whole) < len(log.outcomes) and not log.is_silent:
        assert reasons.total() + repaired, said
    if not log.damages:
        assert not reasons, said
    if log.loses_nothing:
        assert len(whole) == len(log.outcomes), said


@pytest.mark.parametrize("host", HOSTS)
def test_damaged_logs(host: str, tmp_path: Path) -> None:
    for seed in range(200):
        check(Damaged(host, seed), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("host", HOSTS)
def test_many_damaged_logs(host: str, tmp_path: Path) -> None:
    for seed in range(1000, 3000):
        check(Damaged(host, seed), tmp_path)


@pytest.mark.anyio
@pytest.mark.parametrize("host", HOSTS)
async def test_damaged_logs_are_imported_once(
    host: str, bridge: Bridge, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COPILOT_HOME", "GEMINI_CLI_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)

    logs = [Damaged(host, seed) for seed in range(20)]
    for log in logs:
        log.write(home)

    report = await taken(bridge, host)
    again = await taken(bridge, host)
    assert [run for run in again.runs if run.run is not None] == []

    orders: Counter[str] = Counter()
    for entry in report.runs:
        if entry.run is None:
            continue
        function = read_function(bridge.store, entry.run, "local")
        for progress in function.run.machine.history:
            order = str(progress.items[0].parameters["order"])
            if progress.value is None or "\ufffd" in order:
                continue
            orders[order] += 1
            assert progress.value == f"result {order}"

    assert set(orders.values()) == {1}
    for log in logs:
        if log.loses_nothing:
            values = [outcome.value for outcome in log.outcomes if outcome.value is not None]
            assert all(value.removeprefix("result ") in orders for value in values)
