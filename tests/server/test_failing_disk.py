"""A served payment on a disk that fails in between: nothing is lost, paid twice, or asked about."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests import preloaded
from tests.disk import REASON, SCRIPT, Disk
from tests.ideas.test_processes import check

from .serving import Gate, call, configured, over_stdio

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(bool(REASON), reason=REASON)]

SHOP = """
import json
import os
from pathlib import Path

import anyio.to_thread

from ideabridge.tools.decorator import tool

FOLDER = Path(__file__).parent


def wait():
    with (FOLDER / "paying").open("w") as pipe:
        pipe.write("paying\\n")
    with (FOLDER / "gate").open() as pipe:
        pipe.readline()


@tool(read_only=False)
async def pay(amount: int) -> str:
    "Pay, when it is let."
    await anyio.to_thread.run_sync(wait)
    with (FOLDER / "ledger").open("a") as file:
        file.write(f"paid {amount}\\n")
    return f"receipt for {amount}"


@tool(read_only=False)
async def ship(receipt: str) -> str:
    "Ship what was paid."
    with (FOLDER / "ledger").open("a") as file:
        file.write(f"shipped for {receipt}\\n")
    return "parcel"
"""
PLAN: dict[str, Any] = {
    "calls": [
        {"_tool": "pay", "amount": 7, "_outputPath": "paid || trouble"},
        {"_tool": "ship", "receipt": "†state.paid", "_outputPath": "parcel"},
        {"_tool": "ship", "receipt": "†state.trouble.message", "_outputPath": "refund"},
    ],
    "output": "†state.parcel",
}


async def test_errors_of_the_disk_in_the_middle_of_a_payment(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    configuration = configured(tmp_path, tools=["shop.py"], approval="allow_all")
    disk = Disk(tmp_path / "disk")
    gate = Gate(tmp_path)
    os.mkfifo(tmp_path / "paying")
    answers: list[dict[str, Any]] = []

    def served(path: Path) -> list[str]:
        return preloaded.python(SCRIPT, str(disk.folder), "serve", "--config", str(path))

    async with (
        over_stdio(configuration, "auto", served) as client,
        anyio.create_task_group() as group,
    ):

        async def run() -> None:
            answers.append(await call(client, "run_plan", **PLAN))

        group.start_soon(run)
        with anyio.fail_after(20):
            assert await anyio.Path(tmp_path / "paying").read_text() == "paying\n"

        disk.fail(errno.EIO)
        gate.open()
        # The result of the payment could not be journaled yet.
        await anyio.to_thread.run_sync(disk.wait_for_hits, 3)
        assert (tmp_path / "ledger").read_text() == "paid 7\n"
        with anyio.fail_after(20):
            assert "pay" in json.dumps(await call(client, "search_tools", words="pay"))

        assert not answers
        disk.heal()

    gate.close()
    (answer,) = answers
    assert (answer["status"], answer["output"], answer["errors"]) == ("done", "parcel", [])
    assert (tmp_path / "ledger").read_text() == "paid 7\nshipped for receipt for 7\n"
    check(tmp_path / "ideas.sqlite")
    async with over_stdio(configuration, "auto") as client:
        again = await call(client, "check_run", run=answer["run"])
        assert (again["status"], again["output"]) == ("done", "parcel")

    assert (tmp_path / "ledger").read_text() == "paid 7\nshipped for receipt for 7\n"
