"""The store in PostgreSQL: saving and journaling, side by side with bare psycopg and with engines
that journal there.

    python benchmarks/postgres.py [--json] [--rounds N]

It starts a server of its own, durable as by default, from the programs that are installed
(`initdb`, `pg_ctl`).
The peer of saving and journaling is one INSERT in a transaction of its own by psycopg. Where they
are installed, LangGraph's checkpointer for PostgreSQL (`langgraph-checkpoint-postgres`) stores the
same value as one step, and DBOS (`dbos`) runs steps that return it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psycopg

from ideabridge.bridge import Bridge, Configuration
from ideabridge.bridge.plan import Plan
from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.store import Store
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideas import Maker, Row

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.postgres import PostgresServer

IN_TURN = 20
"""Rounds of one side before the other's turn, so that the machine's moods fall on both alike."""


def alternating(rounds: int, *sides: Callable[[int], object]) -> list[float]:
    """Seconds for each round of each side."""
    spent = [0.0] * len(sides)
    for start in range(0, rounds, IN_TURN):
        for place, side in enumerate(sides):
            begun = time.perf_counter()
            for number in range(start, start + IN_TURN):
                side(number)
            spent[place] += time.perf_counter() - begun

    return [one / rounds for one in spent]


def saving(address: str, bare: psycopg.Connection[Any], *, fresh: bool, rounds: int) -> Row:
    maker = Maker(2 if fresh else 3)
    ideas = [maker.idea(fresh=fresh) for _ in range(rounds)]
    table = f"ideas_{'new' if fresh else 'shared'}"
    bare.execute(f"CREATE TABLE {table}(id TEXT PRIMARY KEY, document TEXT NOT NULL)".encode())
    sql = f"INSERT INTO {table} VALUES (%s, %s)".encode()

    def insert(idea: Idea) -> None:
        text = encode_text(
            {"context": idea.context, "schema": idea.schema, "solution": idea.solution}
        )
        bare.execute(sql, (hashlib.sha256(text.encode()).hexdigest(), text))

    with Store.open(address) as store:
        ours, peer = alternating(
            rounds,
            lambda number: store.ideas.save(
                ideas[number], IdeaMeta(run=f"run_{number}", step=1, title="benchmark")
            ),
            lambda number: insert(ideas[number]),
        )

    what = f"save an idea of 8 KB, {'all of it new' if fresh else 'tools and schema shared'} (us)"
    return row(what, ours, peer, "at least 0.3x the rate", 0.3)


def journaling(address: str, bare: psycopg.Connection[Any], *, batch: int, rounds: int) -> Row:
    event: JSONObject = {
        "event": "call_finished",
        "call": 12,
        "result": {"text": "x" * 230, "count": 3},
    }
    bare.execute(
        f"CREATE TABLE events_{batch}(id BIGSERIAL PRIMARY KEY, body TEXT NOT NULL)".encode()
    )
    sql = f"INSERT INTO events_{batch}(body) VALUES (%s)".encode()

    def insert(_: int) -> None:
        if batch == 1:
            bare.execute(sql, (encode_text(event),))
            return
        with bare.transaction(), bare.cursor() as cursor:
            cursor.executemany(sql, [(encode_text(event),) for _ in range(batch)])

    with Store.open(address) as store:
        run = f"run_{batch}"
        store.runs.create(run, kind="plan", caller="", title="", fingerprint="")
        epoch = store.leases.acquire(run, "driver", 3600, time.time())
        assert epoch is not None
        events = [event] * batch
        ours, peer = alternating(rounds, lambda _: store.runs.append(run, epoch, events), insert)

    what = f"journal an event of 300 bytes, {batch} at a time (us each)"
    return row(what, ours / batch, peer / batch, "at least 0.3x the rate", 0.3)


def row(what: str, ours: float, peer: float, target: str, least: float) -> Row:
    ratio = peer / ours
    return Row(what, ours * 1e6, peer * 1e6, peer * 1e6, ratio, target, ratio >= least)


async def stepping(address: str, steps: int) -> float:
    """Seconds for each call of a plan whose calls follow each other, journaled in PostgreSQL."""

    @tool(read_only=True)
    async def grow(text: str) -> str:
        """Return a text of 1 KB."""
        return (text + "x" * 1024)[:1024]

    calls: list[JSON] = [
        {"_tool": "grow", "text": f"†state.s{step - 1}" if step else "", "_outputPath": f"s{step}"}
        for step in range(steps)
    ]
    async with Bridge(Configuration(), store=address, toolbox=Toolbox(grow)) as bridge:
        await (await bridge.run_plan(Plan(calls[:2]))).result()
        begun = time.perf_counter()
        await (await bridge.run_plan(Plan(calls))).result()
        return (time.perf_counter() - begun) / steps


def with_kilobyte(name: str, state: JSONObject) -> JSONObject:
    """A step of the graph: the state with one more text of 1 KB."""
    return {**state, name: "x" * 1024}


def langgraph_steps(address: str, steps: int) -> float | None:
    """Seconds for each step of a LangGraph that is checkpointed in PostgreSQL; None: it
    is not installed.
    """
    try:
        savers: Any = importlib.import_module("langgraph.checkpoint.postgres")
        graphs: Any = importlib.import_module("langgraph.graph")
    except ImportError:
        return None

    build: Any = graphs.StateGraph(dict)
    names = [f"s{step}" for step in range(steps)]
    for name in names:
        build.add_node(name, partial(with_kilobyte, name))

    for before, after in zip([graphs.START, *names], [*names, graphs.END], strict=True):
        build.add_edge(before, after)

    saver: Any
    with savers.PostgresSaver.from_conn_string(address) as saver:
        saver.setup()
        graph = build.compile(checkpointer=saver)
        limits = {"recursion_limit": steps + 10}
        graph.invoke({}, {"configurable": {"thread_id": "warm"}, **limits})
        begun = time.perf_counter()
        graph.invoke({}, {"configurable": {"thread_id": "timed"}, **limits})
        return (time.perf_counter() - begun) / steps


def dbos_steps(address: str, steps: int) -> float | None:
    """Seconds for each step of a DBOS workflow; None: it is not installed."""
    try:
        library: Any = importlib.import_module("dbos").DBOS
    except ImportError:
        return None

    library(config={"name": "bench", "system_database_url": address, "log_level": "ERROR"})

    def grow(text: str) -> str:
        return (text + "x" * 1024)[:1024]

    step = library.step()(grow)

    def repeat(count: int) -> str:
        text = ""
        for _ in range(count):
            text = step(text)
        return text

    flow = library.workflow()(repeat)
    library.launch()
    try:
        flow(2)
        begun = time.perf_counter()
        flow(steps)
        return (time.perf_counter() - begun) / steps
    finally:
        library.destroy()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--rounds", type=int, default=400, help="how often each thing is done (400)"
    )
    options = parser.parse_args()
    server = PostgresServer(durable=True)
    try:
        plain = server.address().partition("&schema=")[0]
        with psycopg.connect(plain, autocommit=True) as bare:
            rows = [
                saving(server.address(), bare, fresh=True, rounds=options.rounds),
                saving(server.address(), bare, fresh=False, rounds=options.rounds),
                journaling(server.address(), bare, batch=1, rounds=options.rounds),
                journaling(server.address(), bare, batch=50, rounds=options.rounds // 4),
            ]

        steps = max(20, options.rounds // 4)
        ours = anyio.run(partial(stepping, server.address(), steps))
        for name, peer in (
            ("LangGraph", langgraph_steps(plain, steps)),
            ("DBOS", dbos_steps(plain, steps)),
        ):
            if peer is not None:
                rows.append(
                    row(
                        f"a step of 1 KB in a chain; peer: {name} (us)",
                        ours,
                        peer,
                        f"ahead of {name}",
                        1.0,
                    )
                )

        if not any("chain" in one.what for one in rows):
            rows.append(
                Row(
                    "a step of 1 KB in a chain (us)",
                    ours * 1e6,
                    None,
                    None,
                    None,
                    "no peer is installed",
                    True,
                )
            )
    finally:
        server.close()

    if options.json:
        print(
            json.dumps(
                {
                    "benchmark": "postgres",
                    "rounds": options.rounds,
                    "rows": [asdict(one) for one in rows],
                }
            )
        )
    else:
        for one in rows:
            peer = "" if one.peer is None else f" peer {one.peer:.0f} ratio {one.ratio:.2f}"
            print(
                f"{'ok  ' if one.met else 'MISS'} {one.what}: "
                f"{one.ours:.0f}{peer}; target {one.target}"
            )

    return 0 if all(one.met for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
