"""Ideas: saving, journaling, listing and searching, side by side with bare sqlite3.

    python benchmarks/ideas.py [--json] [--ideas N]

The peer is sqlite3 by itself at the same durability (WAL, synchronous=NORMAL), one
transaction for each row.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path

import anyio

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.store.idea import Idea, IdeaMeta, NewPublication, function_schemas
from ideabridge.bridge.store.ideas import IdeaFilter
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import Tool, Toolbox, tool
from ideabridge.tools.compose import solution_schema
from ideabridge.tools.composed import SolutionSchema
from ideabridge.tools.encoding import JSON, JSONObject, encode_text


@dataclass
class Row:
    """One line of the result. Times are microseconds or milliseconds, as `what` says."""

    what: str
    ours: float
    peer: float | None
    floor: float | None
    ratio: float | None
    target: str
    met: bool


def vocabulary(random_source: random.Random, size: int = 20_000) -> list[str]:
    letters = "abcdefghijklmnoprstuvwz"
    return [
        "".join(random_source.choices(letters, k=random_source.randint(4, 10))) for _ in range(size)
    ]


class Maker:
    """Ideas of about 8 KB, with text whose words are as uneven as those of a language."""

    def __init__(self, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.words = vocabulary(self.random)
        # By Zipf's law, the word of rank r occurs in a share of about 1/r of the texts.
        self.weights = [1 / (rank + 8) for rank in range(len(self.words))]
        self.cumulative: list[float] = []
        total = 0.0
        for weight in self.weights:
            total += weight
            self.cumulative.append(total)

        self.tools: list[JSON] = [
            {
                "type": "tool",
                "tool": {"name": f"tool_{number}", "description": self.text(30), "parameters": {}},
            }
            for number in range(8)
        ]
        self.schema: JSONObject = {
            "type": "object",
            "properties": {"calls": {}, "output": {"type": "string"}},
        }

    def text(self, words: int) -> str:
        """Text of so many words."""
        return " ".join(self.random.choices(self.words, cum_weights=self.cumulative, k=words))

    def idea(self, *, fresh: bool) -> Idea:
        """An idea; `fresh`: nothing in it was stored before, else tools and schema are those
        of other ideas.
        """
        task: JSON = {"role": "user", "content": self.text(60)}
        given: JSON = {
            "type": "input",
            "input": {"text": self.text(40), "id": self.random.random()},
        }
        state: JSON = {
            "type": "state",
            "state": {"rows": [self.text(20) for _ in range(35 if fresh else 18)]},
        }
        if fresh:
            context: list[JSON] = [task, given, state]
        else:
            context = [*self.tools, task, given, state]

        if fresh:
            schema: JSON = {**self.schema, "description": self.text(4)}
        else:
            schema = self.schema

        solution: JSON = {
            "calls": [{"_tool": "tool_1", "text": self.text(80)}],
            "output": self.text(20),
        }
        return Idea(context, schema, solution)


def open_bare(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def saving(folder: Path, *, fresh: bool, rounds: int) -> list[Row]:
    """Our whole save (encode, both ids, dedupe, lookups) against encoding, hashing and
    inserting one document.

    The words are indexed by the next search, so indexing is timed by itself and has a row of
    its own.
    """
    maker = Maker(2 if fresh else 3)
    label = "new" if fresh else "shared"
    bare = open_bare(folder / f"bare_{label}.db")
    bare.execute("CREATE TABLE ideas(id TEXT PRIMARY KEY, document TEXT NOT NULL)")
    store = Store.open(folder / f"ours_{label}.db")
    # Alternate between the two stores, so that changes in the speed of the machine affect both
    # equally. Create and discard the ideas as they come, as a server does.
    ours: list[float] = []
    peer: list[float] = []
    size = 0

    def insert(idea: Idea) -> None:
        text = encode_text(
            {"context": idea.context, "schema": idea.schema, "solution": idea.solution}
        )
        bare.execute(
            "INSERT INTO ideas VALUES (?, ?)", (hashlib.sha256(text.encode()).hexdigest(), text)
        )

    for number in range(0, rounds, 50):
        part = [maker.idea(fresh=fresh) for _ in range(50)]
        size += sum(len(encode_text([idea.context, idea.schema, idea.solution])) for idea in part)
        peer.append(timed(lambda part=part: [insert(idea) for idea in part]))
        metas = [
            IdeaMeta(run=f"run_{number + i}", step=1, title="benchmark") for i in range(len(part))
        ]
        ours.append(
            timed(
                lambda part=part, metas=metas: [
                    store.ideas.save(*pair) for pair in zip(part, metas, strict=True)
                ]
            )
        )

    indexing = timed(lambda: store.ideas.search("nothing", caller=SEES_ALL)) / rounds * 1e6
    store.close()
    bare.close()
    ours_us = sum(ours) / rounds * 1e6
    peer_us = sum(peer) / rounds * 1e6
    ratio = peer_us / ours_us
    what = (
        f"save an idea of {size / rounds / 1024:.1f} KB, "
        f"{'all of it new' if fresh else 'tools and schema shared'} (us)"
    )
    return [
        Row(what, ours_us, peer_us, peer_us, ratio, "at least 0.3x the rate", ratio >= 0.3),
        Row(
            "index such an idea for the search (us)",
            indexing,
            None,
            None,
            None,
            "under 200 us",
            indexing < 200,
        ),
    ]


def reading_schemas(rounds: int) -> list[Row]:
    """The schema of a Solution that can call fifty tools: how long it takes to read, beside
    encoding it as JSON.
    """
    parameters: JSONObject = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "A path"},
            "limit": {"type": "integer"},
            "words": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["path"],
    }
    output: JSONObject = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "rows": {"type": "array", "items": parameters}},
    }
    tools = [Tool(f"tool_{number}", "Does it.", parameters) for number in range(50)]
    schema = solution_schema(tools, output)
    idea = Idea([{"type": "input", "input": {"path": "."}}], schema, None)

    # Alternate between these and take the fastest time of each, because other processes can only
    # make them slower.
    reads: dict[str, Callable[[], object]] = {
        "encode": lambda: encode_text(schema),
        "read the calls in the schema of a Solution of 50 tools (us)": lambda: (
            SolutionSchema.read(schema).calls
        ),
        "read the input and the output schema of such an idea (us)": lambda: function_schemas(idea),
    }
    times: dict[str, list[float]] = {what: [] for what in reads}
    for _ in range(rounds):
        for what, read in reads.items():
            times[what].append(timed(read))

    encoding, *ours = (min(seconds) * 1e6 for seconds in times.values())
    _, *names = reads
    limits = (2.0, 1.5)
    return [
        Row(
            what,
            ours_us,
            encoding,
            None,
            ours_us / encoding,
            f"at most {limit:g}x of encoding it",
            ours_us <= limit * encoding,
        )
        for what, ours_us, limit in zip(names, ours, limits, strict=True)
    ]


def journaling(folder: Path, *, batch: int, rounds: int) -> Row:
    bare = open_bare(folder / f"bare_journal_{batch}.db")
    bare.execute("CREATE TABLE events(id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
    store = Store.open(folder / f"journal_{batch}.db")
    store.runs.create("run", kind="plan", caller="", title="", fingerprint="")
    epoch = store.leases.acquire("run", "driver", 3600, time.time())
    assert epoch is not None
    event: JSONObject = {
        "event": "call_finished",
        "call": 12,
        "result": {"text": "x" * 230, "count": 3},
    }
    events = [event] * batch

    def insert() -> None:
        if batch == 1:
            bare.execute("INSERT INTO events(body) VALUES (?)", (encode_text(event),))
            return
        bare.execute("BEGIN IMMEDIATE")
        bare.executemany(
            "INSERT INTO events(body) VALUES (?)", [(encode_text(entry),) for entry in events]
        )
        bare.execute("COMMIT")

    ours = peer = 0.0
    for _ in range(0, rounds, 100):
        peer += timed(lambda: [insert() for _ in range(100)])
        ours += timed(lambda: [store.runs.append("run", epoch, events) for _ in range(100)])

    store.close()
    bare.close()
    ours_us = ours / rounds / batch * 1e6
    peer_us = peer / rounds / batch * 1e6
    limit = 40 if batch == 1 else 10
    what = f"journal an event of 300 bytes, {batch} at a time (us each)"
    return Row(
        what, ours_us, peer_us, peer_us, peer_us / ours_us, f"under {limit} us", ours_us < limit
    )


def long_run(folder: Path, steps: int) -> list[Row]:
    """A run whose context gains one message with each step: bytes and time must
    follow what is new.
    """
    maker = Maker(4)
    store = Store.open(folder / "long.db")
    context: list[JSON] = [{"role": "user", "content": maker.text(100)}, *maker.tools]
    times: list[float] = []
    for step in range(steps):
        context.append({"type": "data", "kind": f"result_{step}", "data": maker.text(60)})
        idea = Idea([*context], maker.schema, {"calls": [], "output": None})
        meta = IdeaMeta(run="long", step=step + 1)
        assert idea.id
        times.append(timed(lambda idea=idea, meta=meta: store.ideas.save(idea, meta)))

    store.close()
    connection = sqlite3.connect(folder / "long.db")
    pages = connection.execute("PRAGMA page_count").fetchone()[0] * 4096
    lists = connection.execute("SELECT sum(length(context)) FROM ideas").fetchone()[0]
    lists += connection.execute(
        "SELECT coalesce(sum(length(body)), 0) FROM contents WHERE body LIKE '[%'"
    ).fetchone()[0]
    connection.close()
    new = sum(len(encode_text(message)) for message in context)
    tail = sum(times[-50:]) / 50 * 1e6
    share = pages / new
    each = lists / steps
    what = f"store of a run of {steps} steps, against its new content (KB)"
    return [
        Row(what, pages / 1024, None, new / 1024, share, "at most 4x", share <= 4),
        Row(
            "context lists of that run (bytes a step)",
            each,
            None,
            None,
            None,
            "under 400",
            each < 400,
        ),
        Row(
            f"save step {steps} of that run, encoding aside (us)",
            tail,
            None,
            None,
            None,
            "under 1000 us",
            tail < 1000,
        ),
    ]


def growing_states(folder: Path, steps: int) -> list[Row]:
    """A state of 2 MB that gains 1 KB with each step: bytes and time must follow what is new.

    The piece in which the state has grown is stored again with each step, beside the list of
    pieces. So the store takes about three times what is new, whatever the size of the state.
    """
    maker = Maker(7)
    kilobytes = [maker.text(200)[:1000] for _ in range(2_000 + steps)]

    def members(count: int) -> JSON:
        return {f"key_{number}": text for number, text in enumerate(kilobytes[:count])}

    def pushed(count: int) -> JSON:
        items: list[JSON] = [{"id": 5 * number + part, "text": text[part * 190 : part * 190 + 190]}
                 for number, text in enumerate(kilobytes[:count]) for part in range(5)]  # fmt: skip
        return {"items": items, "after": "the list"}

    def grown(count: int) -> JSON:
        return {"text": "\n".join(kilobytes[:count]), "after": "the text"}

    rows: list[Row] = []
    for shape in (members, pushed, grown):
        path = folder / f"state_{shape.__name__}.db"
        times: list[float] = []
        sizes: list[int] = []
        with Store.open(path) as store:
            for step in range(steps + 1):
                idea = Idea(
                    [{"type": "state", "state": shape(2_000 + step)}],
                    {},
                    {"calls": [], "output": None},
                )
                meta = IdeaMeta(run="run", step=step + 1)
                assert idea.id
                times.append(
                    timed(lambda idea=idea, meta=meta, store=store: store.ideas.save(idea, meta))
                )
                if step in (0, steps):
                    with closing(sqlite3.connect(path)) as connection:
                        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                    sizes.append(path.stat().st_size)

        new = (len(encode_text(shape(2_000 + steps))) - len(encode_text(shape(2_000)))) / 1024
        added = (sizes[1] - sizes[0]) / 1024
        what = f"a state of 2 MB ({shape.__name__}) that grows by 1 KB in {steps} steps"
        rows.append(Row(f"store of {what}, against what is new (KB)", added, None, new, added / new, "at most 4x",
                        added / new <= 4))  # fmt: skip
        typical = percentile(times[1:], 0.5) * 1e3
        rows.append(Row(f"save a step of {what}, encoding aside (ms)", typical, None, None, None, "under 50 ms",
                        typical < 50))  # fmt: skip

    return rows


def lookups(count: int) -> Toolbox:
    """Tools with definitions as long as those of servers mostly are."""
    toolbox = Toolbox()
    for number in range(count):

        async def look(number: int, state: str | None = None) -> JSONObject:
            """Look an issue up by its number: returns the number and whether it is open, with
            what was said last.

            Args:
                number: The number of the issue, as the page of the project shows it
                    before the title.
                state: Only where it is in this state: open or closed; otherwise
                    nothing is returned.
            """
            return {"number": number, "open": state != "closed"}

        toolbox.add(tool(name=f"look_{number}", read_only=True)(look))

    return toolbox


def five_calls(turn: int) -> list[JSON]:
    """Five small calls of two tools."""
    return [
        {"_tool": f"look_{n % 2}", "number": turn * 5 + n, "_outputPath": f"r{n}"} for n in range(5)
    ]


async def growth(folder: Path, *, mode: str, tools: int, rounds: int) -> float:
    """How many bytes a run adds to the file, indexes and the search included, once the first run
    brought its tools.
    """
    path = folder / f"growth_{mode}_{tools}.db"
    sizes: list[int] = []
    names = [f"look_{number}" for number in range(tools)]
    async with Bridge(Configuration(), store=path, toolbox=lookups(tools)) as bridge:
        for turn in range(rounds + 1):
            if mode == "plan":
                run = await bridge.run_plan({"calls": five_calls(turn)})
            else:
                run = await bridge.solve(f"Is issue {turn * 5} open?", tools=names, mind="turns")
                run.submit(0, {"calls": five_calls(turn), "output": "yes"})

            await run.result()
            if turn in (0, rounds):
                while bridge.store.ideas.index():
                    pass
                with closing(sqlite3.connect(path)) as connection:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                sizes.append(path.stat().st_size)

    return (sizes[1] - sizes[0]) / rounds


def growing(folder: Path, rounds: int = 500) -> list[Row]:
    """What a run of five small calls costs in the store."""
    rows: list[Row] = []
    for mode, tools in (("plan", 2), ("solve", 2), ("solve", 26)):
        each = anyio.run(partial(growth, folder, mode=mode, tools=tools, rounds=rounds)) / 1024
        what = f"store of a {mode} of 5 small calls, {tools} tools (KB a run)"
        rows.append(Row(what, each, None, None, None, "at most 3", each <= 3))
    return rows


def catalogue(folder: Path, count: int) -> list[Row]:
    """A store of many ideas: pages of every list, and search."""
    maker = Maker(5)
    store = Store.open(folder / "many.db")
    start = time.perf_counter()
    with_names = min(count, 2_000)
    for number in range(count):
        # One in 1,000 ideas makes this call, so the ideas on a page of 50 are far apart.
        rare = number % 1_000 == 7
        # The oldest 3% of the ideas made a call that no later idea makes.
        old = number < count * 0.03
        tool, module = ("old", "gone") if old else ("rare", "far") if rare else ("tool_1", "near")
        call: JSON = {"_tool": tool, "_module": module, "n": number}
        idea = Idea(
            [
                *maker.tools[:2],
                {"role": "user", "content": maker.text(50)},
                {"type": "input", "input": {"n": number}},
            ],
            maker.schema,
            {"calls": [call], "output": maker.text(10)},
        )
        meta = IdeaMeta(
            run=f"run_{number}",
            step=1,
            title=maker.text(5),
            description=maker.text(12),
            tools=("tool_1",),
            outcome="failed" if number % 200 == 0 else "done",
            mind="turns" if number < count // 2 else "model",
            tags=("odd",) if number % 900 == 0 else (),
        )
        idea_id = store.ideas.save(idea, meta)
        store.runs.create(
            f"run_{number}", kind="plan", caller=f"c{number % 3}", title="", fingerprint=""
        )
        if number < with_names:
            store.publications.publish(
                NewPublication(
                    name=f"name_{number}",
                    idea_id=idea_id,
                    description=maker.text(12),
                    answer="solve",
                    input_schema=None,
                    output_schema=None,
                    annotations={},
                )
            )

    filled = time.perf_counter() - start
    store.ideas.search("warm", caller=SEES_ALL)
    rows = [
        Row(f"fill a store with {count:,} ideas, runs and {with_names:,} names (us each)", filled / count * 1e6, None,
            None, None, "told only", met=True)
    ]  # fmt: skip
    rows += listing(store, count)
    rows += [searching(store, maker, count, whole=whole) for whole in (False, True)]
    rows.append(pruning(store, count))
    store.close()
    return rows


def pruning(store: Store, count: int) -> Row:
    """The older half of the ideas that may go, but for what is published; others have the store
    half of the time.
    """
    with sqlite3.connect(store.path) as connection:
        connection.execute(
            "UPDATE runs SET status = 'done', updated = '2020' WHERE number <= ?", (count // 2,)
        )

    connection.close()
    found = store.prunable(before="2021-01-01")
    pruned: list[int] = []
    seconds = timed(lambda: pruned.append(store.prune(found).ideas))
    what = f"prune {pruned[0]:,} of {count:,} ideas with their runs (us each)"
    return Row(what, seconds / max(pruned[0], 1) * 1e6, None, None, None, "told only", met=True)


def listing(store: Store, count: int) -> list[Row]:
    """Each list at the median of 9 readings. The floor is SQLite reading as many whole rows
    by their numbers.
    """
    run = f"run_{count // 2}"
    middle = f"{count // 2}@{store.ideas.page(1, run=run).items[0].meta.time}"
    lists: dict[str, list[Callable[[], object]]] = {
        "ideas": [lambda: store.ideas.page(50), lambda: store.ideas.page(50, middle)],
        "steps of a run": [lambda: store.ideas.page(50, run=run), lambda: store.ideas.of_run(run)],
        "published names": [
            lambda: store.publications.page(50, "name_5", caller=SEES_ALL),
            lambda: store.publications.page(50, "name_5", caller="c1"),
        ],
        "runs": [
            lambda: store.runs.newest(limit=50, caller=SEES_ALL),
            lambda: store.runs.newest("c1", "running", 50, after=run),
            lambda: store.runs.newest("c1", "done", 50),
            lambda: store.runs.newest(SEES_ALL, "done", 50),
        ],
    }
    for name, rare, old, frequent in (
        ("tool", IdeaFilter(tool="rare"), IdeaFilter(tool="old"), IdeaFilter(tool="tool_1")),
        ("module", IdeaFilter(module="far"), IdeaFilter(module="gone"), IdeaFilter(module="near")),
    ):
        chosen = [(one, after) for one in (rare, old, frequent) for after in (None, middle)]
        lists[f"ideas by {name}"] = [
            lambda one=one, after=after: store.ideas.page(50, after, chosen=one)
            for one, after in chosen
        ]

    lists["ideas by outcome, mind, time, tag, tool, and two of them"] = [
        lambda one=one: store.ideas.page(50, chosen=one) for one in filters()
    ]
    connection = sqlite3.connect(store.path)
    sql = "SELECT * FROM ideas WHERE number < ? ORDER BY number DESC LIMIT 50"
    floor = median(lambda: connection.execute(sql, (count // 2,)).fetchall()) * 1e3
    rows: list[Row] = []
    for name, works in lists.items():
        slowest = max(median(work) for work in works) * 1e3
        what = f"a page of 50 {name}, the slowest of {len(works)}, {count:,} ideas (ms)"
        rows.append(Row(what, slowest, None, floor, None, "under 10 ms", slowest < 10))

    connection.close()
    return rows


def median(work: Callable[[], object]) -> float:
    """The median of 9 readings."""
    return percentile([timed(work) for _ in range(9)], 0.5)


def filters() -> list[IdeaFilter]:
    """Each filter, rare and common, and every pair of them."""
    parts = [
        {"outcome": "failed"},
        {"outcome": "done"},
        {"outcome": "never"},
        {"mind": "turns"},
        {"mind": "model"},
    ]
    parts += [
        {"since": "1h"},
        {"since": "2999-01-01"},
        {"until": "2999-01-01"},
        {"until": "2000-01-01"},
    ]
    parts += [
        {"tag": "odd"},
        {"tag": "never"},
        {"tool": "old"},
        {"tool": "rare"},
        {"tool": "tool_1"},
        {"tool": "never"},
    ]
    pairs = [
        {**one, **other} for one, other in combinations(parts, 2) if one.keys() != other.keys()
    ]
    return [IdeaFilter(**one) for one in (*parts, *pairs)]


def searching(store: Store, maker: Maker, count: int, *, whole: bool) -> Row:
    source = random.Random(6)
    connection = sqlite3.connect(store.path)
    times: list[float] = []
    plain: list[float] = []
    frequent = 0
    if whole:
        queries = [maker.text(12) for _ in range(100)]
    else:
        # Use words that occur in up to 5% of the ideas, including the most frequent of these words.
        connection.execute(
            "CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('main', 'idea_words', 'row')"
        )
        found = connection.execute(
            "SELECT term, doc FROM vocabulary WHERE doc <= ? AND doc > 0 ORDER BY doc DESC",
            (count * 0.05,),
        ).fetchall()
        frequent = found[0][1]
        words = [row[0] for row in found]
        queries = words[:50] + source.sample(words, min(50, len(words)))

    for query in queries:
        # Take the best of three times, because other processes must not affect the measurement.
        times.append(
            min(
                timed(lambda query=query: store.ideas.search(query, caller=SEES_ALL))
                for _ in range(3)
            )
        )
        match = " OR ".join(f'"{word}"' for word in query.split())
        sql = "SELECT rowid FROM idea_words WHERE idea_words MATCH ? ORDER BY rank LIMIT 20"
        plain.append(
            min(
                timed(lambda sql=sql, match=match: connection.execute(sql, (match,)).fetchall())
                for _ in range(3)
            )
        )

    connection.close()
    ours = percentile(times, 0.95) * 1e3
    peer = percentile(plain, 0.95) * 1e3
    limit = 50 if whole else 20
    if whole:
        what = "a sentence of 12 words"
    else:
        what = f"one word (in up to {frequent:,} ideas)"

    return Row(f"search {count:,} ideas for {what}, p95 (ms); peer: FTS5 with OR", ours, peer, None, peer / ours,
               f"under {limit} ms", ours < limit)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--ideas", type=int, default=2_000, help="how many ideas to list and search (2000)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [
            *saving(folder, fresh=True, rounds=2_000),
            *saving(folder, fresh=False, rounds=2_000),
            *reading_schemas(rounds=500),
            journaling(folder, batch=1, rounds=5_000),
            journaling(folder, batch=50, rounds=500),
            *long_run(folder, 500),
            *growing_states(folder, 200),
            *growing(folder),
            *catalogue(folder, options.ideas),
        ]

    if options.json:
        print(
            json.dumps(
                {
                    "benchmark": "ideas",
                    "ideas": options.ideas,
                    "rows": [asdict(row) for row in rows],
                }
            )
        )
    else:
        for row in rows:
            peer = "" if row.peer is None else f" peer {row.peer:.1f}"
            peer += "" if row.floor is None or row.floor == row.peer else f" floor {row.floor:.1f}"
            ratio = "" if row.ratio is None else f" ratio {row.ratio:.2f}"
            print(
                f"{'ok  ' if row.met else 'MISS'} {row.what}: "
                f"{row.ours:.1f}{peer}{ratio}; target {row.target}"
            )

    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
