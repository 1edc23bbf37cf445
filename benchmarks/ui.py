"""The page: how soon it opens, and whether it stays responsive while runs finish.

    python benchmarks/ui.py [--json]

A browser (Chromium) opens the list over 5,000 runs and the page of a run of 10,000 calls; a figure
is the time until the document is complete (`load`). Then the list is open while another process
finishes 50 runs a second in the same store; the figure is the time in which the browser could not
have answered a key (95th percentile of the delay of a timer, and the longest). Pages of every kind
are also requested without a browser, of runs and questions that are large as well: a figure is the
best of three times until the whole text is there, and its size. Targets are bounds: there is no
peer that shows the same.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx

from ideabridge.bridge import ApprovalRules, Bridge, Configuration
from ideabridge.bridge.store.store import Store
from ideabridge.server.serve import link_to
from ideabridge.tools import Toolbox, tool

RUNS = 5000
CALLS = 10_000
RATE = 50
SECONDS = 10.0
MOST_SECONDS = 1.0
MOST_PAGE_SECONDS = 0.1
MOST_PAGE_KILOBYTES = 100
WAITING = 100
NOTE = "Your order came late, and we pay the price back. " * 12
PAGES = (
    "home",
    "runs",
    "runs/direct",
    "approvals",
    "ideas",
    "ideas?show=saved",
    "modules",
    "modules/tools",
    "modules/tools/tools/compute",
    "servers/add",
    "servers/import",
    "assistants",
    "playground",
    "write",
    "admin",
)
MOST_DELAY = 0.1
"""Seconds: people notice a longer delay of an answer to a key."""

PLAN: dict[str, Any] = {
    "calls": [
        {"_tool": "compute", "code": "a + 1", "a": 1, "_outputPath": "one"},
        {"_tool": "compute", "code": "a + 1", "a": "†state.one"},
    ],
    "output": "†results.1",
}


async def fill(path: Path, runs: int) -> None:
    """Make runs."""
    async with Bridge(Configuration(), store=path) as bridge:
        for _ in range(runs):
            await (await bridge.run_plan(PLAN)).wait()


def chain(length: int) -> list[dict[str, Any]]:
    """Calls of which each, but for the first hundred, reads one before it."""
    return [
        {
            "_tool": "compute",
            "code": "a + 1",
            "a": f"†results.{number - 100}" if number >= 100 else number,
        }
        for number in range(length)
    ]


@tool
async def pay(order: int, note: str) -> str:
    """Pay money back."""
    return f"paid for {order}: {note}"


async def large(path: Path) -> dict[str, str]:
    """Make runs whose pages have much to show, publish a tool, and save an idea; returns the paths
    of their pages, by what they show.
    """
    asks = Configuration(approval=ApprovalRules(default="read_only"))
    async with Bridge(asks, toolbox=Toolbox(pay), store=path) as bridge:

        async def run_of(calls: list[dict[str, Any]], output: object) -> str:
            run = await bridge.run_plan(calls=calls, output=output)
            await run.wait()
            return run.id

        small = await run_of(PLAN["calls"], PLAN["output"])
        middle = await run_of(chain(40), "†results.39")
        again = await run_of(chain(40), "†results.38")
        long = await run_of(chain(CALLS), f"†results.{CALLS - 1}")
        table = await run_of([], [{"id": number, "text": NOTE} for number in range(1000)])
        failing = [{"_tool": "compute", "code": f"1 / ({number} * 0)"} for number in range(100)]
        failed = await run_of(failing, None)
        questions = [{"_tool": "pay", "order": number, "note": NOTE} for number in range(50)]
        asking = await run_of(questions, None)
        for number in range(WAITING):
            await run_of([{"_tool": "pay", "order": number, "note": NOTE}], None)

        await bridge.publish(small, "plus_two", description=NOTE[:500])
        messages = [{"role": "user", "content": f"{number}: {NOTE * 4}"} for number in range(50)]
        saved: dict[str, Any] = {
            "context": messages,
            "schema": {},
            "solution": {"calls": [], "output": 1},
        }
        idea = await bridge.save_idea(saved)

    return {
        "a run": f"runs/{small}",
        "a run of 40 calls": f"runs/{middle}",
        f"a run of {CALLS:,} calls": f"runs/{long}",
        "a run with a table": f"runs/{table}",
        "a run with 100 errors": f"runs/{failed}",
        "a run with 50 questions": f"runs/{asking}",
        "a call": f"runs/{middle}/calls/20",
        "two runs beside each other": f"runs/{again}/compare?with={middle}",
        "a published tool": "ideas/plus_two",
        "publishing a run": f"ideas/publish?ref={middle}",
        "a saved idea of 50 messages": f"ideas/id/{idea.idea_id}",
    }


async def finish(path: Path, seconds: float) -> int:
    """Finish `RATE` runs a second; returns how many were finished."""
    done = 0
    async with Bridge(Configuration(), store=path) as bridge, anyio.create_task_group() as group:

        async def one() -> None:
            nonlocal done
            await (await bridge.run_plan(PLAN)).wait()
            done += 1

        begun = time.monotonic()
        for number in range(int(seconds * RATE)):
            await anyio.sleep(max(0.0, begun + number / RATE - time.monotonic()))
            group.start_soon(one)

    return done


@contextmanager
def served(path: Path) -> Generator[str]:
    """The page over a store, in a process of its own; yields its URL."""
    command = [
        sys.executable,
        "-m",
        "ideabridge.server",
        "ui",
        "127.0.0.1:0",
        "--no-browser",
        "--store",
        str(path),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=path.parent) as process:
        assert process.stdout is not None
        try:
            yield next(line.strip() for line in process.stdout if line.strip().endswith("/ui/"))
        finally:
            process.terminate()
            process.stdout.read()


def opened(page: Any, url: str) -> float:
    """Seconds until a page is complete."""
    page.goto(url)
    return page.evaluate("performance.getEntriesByType('navigation')[0].duration") / 1000


def row(what: str, seconds: float, target: float) -> dict[str, Any]:
    """A row whose target is a bound in seconds."""
    ratio = seconds / target
    return {
        "what": what,
        "ours": seconds,
        "peer": None,
        "floor": target,
        "ratio": ratio,
        "target": 1,
        "met": ratio <= 1,
    }


def page_rows(path: Path, url: str, pages: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of pages, by what they show, that are requested without a browser, by the owner."""
    rows: list[dict[str, Any]] = []
    with Store.open(path) as store:
        link = link_to(url, store.owner_links)
    with httpx.Client(base_url=url, follow_redirects=True, timeout=60) as http:
        http.get(link)
        for what, page in pages.items():
            times: list[float] = []
            size = 0
            for _ in range(3):
                began = time.perf_counter()
                answer = http.get(page)
                times.append(time.perf_counter() - began)
                answer.raise_for_status()
                size = len(answer.content)

            rows.append(row(f"{what}, s", min(times), MOST_PAGE_SECONDS))
            rows.append(row(f"{what}, kB", size / 1000, MOST_PAGE_KILOBYTES))

    return rows


def measure(chromium: str) -> list[dict[str, Any]]:
    """The rows."""
    from playwright.sync_api import sync_playwright

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "ideas.sqlite"
        anyio.run(fill, path, RUNS)
        pages = anyio.run(large, path)
        with served(path) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page()
            opened(page, f"{url}runs")
            rows.append(
                row(f"list over {RUNS:,} runs, s", opened(page, f"{url}runs"), MOST_SECONDS)
            )
            filtered = opened(page, f"{url}runs?status=done&tool=compute&words=compute")
            rows.append(row("the same with three filters, s", filtered, MOST_SECONDS))
            rows.append(
                row(
                    f"a run of {CALLS:,} calls, s",
                    opened(page, url + pages[f"a run of {CALLS:,} calls"]),
                    MOST_SECONDS,
                )
            )
            opened(page, f"{url}runs")
            page.evaluate(
                """() => {
                    window.delays = [];
                    let last = performance.now();
                    setInterval(() => {
                        const now = performance.now();
                        delays.push(now - last - 10);
                        last = now;
                    }, 10);
                }"""
            )
            command = [sys.executable, __file__, "--finish", str(path)]
            done = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            while done.poll() is None:
                page.wait_for_timeout(200)

            assert done.stdout is not None
            count = int(done.stdout.read())
            delays = sorted(page.evaluate("window.delays"))
            changes = int(page.evaluate("document.documentElement.dataset.changes || '0'"))
            what = f"delay while {count / SECONDS:.0f} runs/s finish ({changes} refreshes)"
            rows.append(
                row(
                    f"{what}, 95th percentile, s",
                    delays[int(len(delays) * 0.95)] / 1000,
                    MOST_DELAY,
                )
            )
            rows.append(row(f"{what}, longest, s", delays[-1] / 1000, MOST_DELAY))
            browser.close()
            rows += page_rows(path, url, {**{page: page for page in PAGES}, **pages})

    return rows


def main() -> int:
    """Measure, and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--finish", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.finish is not None:
        print(anyio.run(finish, asked.finish, SECONDS))
        return 0

    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        print(json.dumps({"rows": [], "skipped": "there is no Chromium on this machine"}))
        return 0

    rows = measure(chromium)
    if asked.json:
        print(json.dumps({"rows": rows}))
    else:
        for one in rows:
            print(
                f"{one['what']:<70} {one['ours']:.3f}  at most {one['floor']}  "
                f"{'yes' if one['met'] else 'NO'}"
            )

    return 0 if all(one["met"] for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
