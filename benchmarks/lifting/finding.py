"""Search for tools in public catalogues: how many of the true tools are among the first
eight that it finds.

    python -m benchmarks.lifting.finding --data DATA/lib/python3.11/site-packages [--json]

`public.py` says how DATA is made. The catalogues are the functions of BFCL (live and written) with
the questions of users, and the tools of agentdojo and tau2 with the whole prompts of their tasks,
which need up to 16 tools. The weights of the search were chosen with one half of the questions, by
a hash of their names; the figures are of the other half. No weight was chosen with the functions of
BFCL that stand alone with their question: all questions about them count. Prompts that need more
than one tool have no target, because some need more than `FIRST`.
The peer is BM25 over all words of a tool, without stems and weights. The exit code is 1 if less
than `TARGET` is found.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import math
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from benchmarks.lifting.suites import load

from ideabridge.server.search import ToolSearch
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Tool

FIRST = 8
TARGET = 0.85
"""The share of the true tools that is to be found in each catalogue."""

MANY = 5_000
ALONE = [
    "simple_python",
    "simple_java",
    "simple_javascript",
    "parallel",
    "live_simple",
    "live_parallel",
]
PROMPTS = "agentdojo and tau2"


@dataclass
class Catalogue:
    """Tools by name, and questions: (name, text, the true tools)."""

    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    questions: list[tuple[str, str, set[str]]] = field(
        default_factory=list["tuple[str, str, set[str]]"]
    )
    is_unseen: bool = False

    def held_out(self) -> list[tuple[str, str, set[str]]]:
        """The questions that the weights were not chosen with."""
        return [
            one
            for one in self.questions
            if one[2] and (self.is_unseen or hashlib.sha256(one[0].encode()).digest()[0] % 2)
        ]


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file with one on each line."""
    return [
        json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
    ]


def functions(parts: list[str], *, is_unseen: bool = False) -> Catalogue:
    """Parts of BFCL."""
    folder = Path(str(importlib.import_module("bfcl_eval").__path__[0])) / "data"
    found = Catalogue(is_unseen=is_unseen)
    for part in parts:
        file = f"BFCL_v4_{part}.json"
        truths = {
            one["id"]: one["ground_truth"] for one in lines(folder / "possible_answer" / file)
        }
        for entry in lines(folder / file):
            for one in entry["function"]:
                module, _, name = str(one["name"]).rpartition(".")
                schema: JSONObject = {
                    "type": "object",
                    "properties": one["parameters"].get("properties", {}),
                }
                found.tools.setdefault(
                    one["name"], Tool(name, one["description"], schema, module=module or None)
                )

            said = " ".join(
                part["content"]
                for turn in entry["question"]
                for part in turn
                if part["role"] == "user"
            )
            true = {str(name) for one in truths[entry["id"]] for name in one}
            found.questions.append((entry["id"], said, true))

    return found


def suites(folder: Path) -> Catalogue:
    """The tools and prompts of agentdojo and tau2."""
    found = Catalogue()
    for suite in ("agentdojo", "tau2"):
        for case in load(folder, suite):
            module = case.suite.split()[1]
            for one in case.tools:
                tool = Tool(one.name, one.description, one.parameters, module=module)
                found.tools.setdefault(f"{module}.{one.name}", tool)

            true = {f"{module}.{step.tool}" for step in case.steps}
            found.questions.append((f"{case.suite} {case.name}", case.prompt, true))

    return found


Find = Callable[[str], list[str]]


def ours(tools: dict[str, Tool]) -> Find:
    """The search of the product."""
    listed = list(tools.values())
    names = {id(tool): name for name, tool in tools.items()}
    search = ToolSearch()
    return lambda text: [names[id(tool)] for tool in search.find(listed, text, FIRST)[0]]


def plain(tools: dict[str, Tool]) -> Find:
    """BM25 over all words of a tool."""
    names = list(tools)

    def words(text: str) -> list[str]:
        return re.findall(
            r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower().replace("_", " ")
        )

    documents: list[Counter[str]] = []
    for tool in tools.values():
        properties = cast("dict[str, object]", tool.parameters.get("properties") or {})
        documents.append(
            Counter(
                words(f"{tool.module or ''} {tool.name} {tool.description} {' '.join(properties)}")
            )
        )

    frequency = Counter(word for one in documents for word in one)
    lengths = [one.total() for one in documents]
    mean = sum(lengths) / len(lengths)

    def score(place: int, wanted: set[str]) -> float:
        total = 0.0
        for word in wanted & documents[place].keys():
            rarity = math.log(
                1 + (len(documents) - frequency[word] + 0.5) / (frequency[word] + 0.5)
            )
            count = documents[place][word]
            total += rarity * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * lengths[place] / mean))
        return total

    def find(text: str) -> list[str]:
        wanted = set(words(text))
        ranked = sorted(range(len(documents)), key=lambda place: -score(place, wanted))
        return [names[place] for place in ranked[:FIRST]]

    return find


def share(find: Find, questions: list[tuple[str, str, set[str]]]) -> float:
    """The share of the true tools that are found."""
    found = sum(len(true & set(find(text))) for _, text, true in questions)
    return found / sum(len(true) for _, _, true in questions)


def speed(tools: dict[str, Tool]) -> tuple[float, float]:
    """(milliseconds for an index of `MANY` tools, milliseconds for a search in it)."""
    some = list(tools.values())
    many = [
        Tool(f"{one.name}_{n}", one.description, one.parameters, module=one.module)
        for n in range(MANY // len(some) + 1)
        for one in some
    ]
    many = many[:MANY]
    search = ToolSearch()
    begun = time.perf_counter()
    search.find(many, "anything", FIRST)
    built = time.perf_counter()
    for text in (
        "find the cheapest flight to Rome",
        "send an email to Ann",
        "list the files of a folder",
    ):
        search.find(many, text, FIRST)

    return (built - begun) * 1e3, (time.perf_counter() - built) * 1e3 / 3


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description="Search for tools in public catalogues.")
    parser.add_argument(
        "--data", type=Path, required=True, help="the folder into which the packages are installed"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    options = parser.parse_args()
    sys.path.append(str(options.data))
    catalogues = {
        "BFCL, live": functions(["live_multiple", "live_parallel_multiple"]),
        "BFCL, written": functions(["multiple", "parallel_multiple"]),
        "BFCL, alone": functions(ALONE, is_unseen=True),
        PROMPTS: suites(options.data),
    }
    rows: list[JSON] = []
    is_met = True
    for name, one in catalogues.items():
        questions = [entry for entry in one.held_out() if entry[2] <= one.tools.keys()]
        found = share(ours(one.tools), questions)
        peer = share(plain(one.tools), questions)
        what = f"{name}: share of the true tools among the first {FIRST}"
        target = None if name == PROMPTS else TARGET
        met = None if target is None else found >= target
        row: JSONObject = {
            "what": what,
            "ours": found,
            "peer": peer,
            "floor": None,
            "ratio": found,
            "target": target,
        }
        rows.append({**row, "met": met, "tools": len(one.tools), "questions": len(questions)})
        is_met = is_met and met is not False
        if not options.json:
            print(
                f"{name:20} {len(one.tools):4} tools {len(questions):4} questions: "
                f"{found:.3f}, plain BM25 {peer:.3f}"
            )

    built, searched = speed(catalogues["BFCL, live"].tools)
    if options.json:
        print(json.dumps({"rows": rows, "index_ms": built, "search_ms": searched}, indent=1))
    else:
        print(f"{MANY:,} tools: {built:.0f} ms for the index, {searched:.1f} ms for a search")

    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
