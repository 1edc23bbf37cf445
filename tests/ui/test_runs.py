"""The list of runs on the page: its filter, its pages, and the errors of a run."""

from __future__ import annotations

import re
from typing import Any, Final

import httpx

from ideabridge.server.ui.runs import PAGE
from tests.ui.serving import ask

ORDERS: Final[dict[str, Any]] = {"_tool": "list_orders"}
FAILING: Final[dict[str, Any]] = {"_tool": "compute", "code": "1 / 0"}


def listed(http: httpx.Client, path: str) -> list[str]:
    """The ids of the runs that a page of the list links to, in their order."""
    return re.findall(r'<a href="/ui/runs/(run_[0-9a-f]+)"', http.get(path).text)


def ended(http: httpx.Client, run_id: str) -> str:
    """The page of a run, once it has ended."""
    while 'class="status s-running"' in (page := http.get(f"/ui/runs/{run_id}").text):
        pass
    return page


def test_the_list_shows_runs_with_a_status(http: httpx.Client) -> None:
    done = ask(http, ORDERS)
    waiting = ask(http, {"_tool": "refund", "order": 1, "amount": 5})
    ended(http, done)
    ended(http, waiting)

    assert listed(http, "/ui/runs") == [waiting, done]
    assert listed(http, "/ui/runs?status=done") == [done]
    assert listed(http, "/ui/runs?status=needs_approval") == [waiting]
    assert listed(http, "/ui/runs?status=interrupted") == []
    # A status that does not exist filters nothing.
    assert listed(http, "/ui/runs?status=asleep") == [waiting, done]
    assert listed(http, "/ui/runs?status=done&tool=refund") == []


def test_the_list_has_pages(http: httpx.Client) -> None:
    runs = [ask(http, ORDERS) for _ in range(PAGE + 2)]
    for run_id in runs:
        ended(http, run_id)
    runs.reverse()

    for path in ("/ui/runs?since=1d", "/ui/runs?status=done"):
        assert listed(http, path) == runs[:PAGE]
        assert listed(http, f"{path}&after={runs[PAGE - 1]}") == runs[PAGE:]

    older = re.search(r'href="(\?[^"]*after=[^"]*)"', http.get("/ui/runs?status=done").text)
    assert older is not None
    query = older[1].replace("&amp;", "&")
    assert listed(http, f"/ui/runs{query}") == runs[PAGE:]


def test_the_list_counts_the_errors_of_a_run(http: httpx.Client) -> None:
    run_id = ask(http, FAILING)
    ended(http, run_id)

    assert "1 error" in http.get("/ui/runs").text
    assert "1 error" not in http.get("/ui/runs?status=running").text
