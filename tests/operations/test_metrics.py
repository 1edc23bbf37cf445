"""`/metrics`: what Prometheus reads, that no label holds anything of users, and that the
series are bounded.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import TaskStatus
from mcp import Client
from prometheus_client.parser import text_string_to_metric_families

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import load_configuration
from ideabridge.bridge.store.store import Store
from ideabridge.server.direct_calls import DirectCalls
from ideabridge.server.operations.metrics import MOST_TOOLS, Metrics
from ideabridge.server.operations.requests import ServedRequest
from ideabridge.server.serve import HttpOptions, Ready, serve_http
from ideabridge.tools.decorator import tool
from ideabridge.tools.toolbox import Toolbox
from tests import preloaded, waiting
from tests.asking import ASKS
from tests.server.serving import (
    ERAS,
    call,
    configured,
    http_process,
    listening,
    plain,
    refused,
    served,
)

pytestmark = pytest.mark.anyio

SECRET = "a-word-that-only-users-write"
Labels = tuple[tuple[str, str], ...]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def present(labels: Mapping[str, str]) -> Labels:
    """The labels that are not empty, in the order of their names."""
    return tuple(sorted((name, label) for name, label in labels.items() if label))


class Scraped:
    """The samples of one answer of `/metrics`. An empty label is one that is not there, as for
    Prometheus.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples: dict[tuple[str, Labels], float] = {
            (sample.name, present(sample.labels)): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self.samples.get((f"ideabridge_{name}", present(labels)), 0.0)

    def labelled(self, name: str) -> list[dict[str, str]]:
        return [dict(labels) for known, labels in self.samples if known == f"ideabridge_{name}"]


async def scrape(url: str, token: str | None = None, **headers: str) -> httpx2.Response:
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    async with httpx2.AsyncClient() as http:
        return await http.get(url.replace("/mcp", "/metrics"), headers=headers)


async def until(url: str, wanted: Callable[[Scraped], bool]) -> Scraped:
    """The first answer that is as wanted: a request is counted when its answer has been sent."""
    with anyio.fail_after(20):
        while not wanted(found := Scraped((await scrape(url)).text)):  # noqa: ASYNC110 - no event
            await anyio.sleep(waiting.PAUSE)
        return found


@asynccontextmanager
async def serving(configuration: Path, toolbox: Toolbox) -> AsyncGenerator[str]:
    """The URL of a server in this process, with metrics."""
    urls: list[str] = []

    async def serve(*, task_status: TaskStatus[None]) -> None:
        def ready(ready: Ready) -> None:
            urls.append(ready.url)
            task_status.started()

        await serve_http(
            load_configuration(configuration),
            HttpOptions(port=0, metrics=True, ready=ready),
            toolbox=toolbox,
        )

    async with anyio.create_task_group() as group:
        await group.start(serve)
        yield urls[0]
        group.cancel_scope.cancel()


@pytest.mark.parametrize("mode", ERAS)
async def test_requests_calls_runs_and_decisions_are_counted_and_no_label_is_of_a_user(
    tmp_path: Path, mode: str
) -> None:
    modules = {
        "shop": plain(tmp_path, "shop", "order"),
        "missing": {"command": "no-such-program-anywhere"},
    }
    configuration = configured(tmp_path, mcpServers=modules, expose=["tools"])
    with listening(served(configuration, "--http", "0", "--metrics")) as url:
        async with Client(url, mode=mode, read_timeout_seconds=60) as client:
            add: dict[str, Any] = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "sum"}
            first = await call(
                client, "run_plan", calls=[add, {"_tool": "count_words", "text": SECRET}]
            )
            waiting = await call(client, "run_plan", calls=[{"_tool": "order", "x": SECRET}])
            assert waiting["status"] == "needs_approval"
            busy = await until(url, lambda found: found("approvals_asked_total") == 1)
            assert busy("runs_at_work") == 0
            asked = waiting["approvals"][0]["approval"]
            await call(
                client,
                "decide_approval",
                run=waiting["run"],
                decisions=[{"approval": asked, "decision": "approve", "reason": SECRET}],
            )
            await call(client, "add", a=1, b=2)
            await refused(client, f"no-{SECRET}")
            await call(
                client,
                "publish_idea",
                name=SECRET.replace("-", "_"),
                idea=first["run"],
                description=SECRET,
            )
            await call(client, SECRET.replace("-", "_"))

        found = await until(
            url,
            lambda found: (
                found("requests_total", method="tools/call", tool="idea", status="ok") == 1
            ),
        )

    assert found("requests_total", method="tools/call", tool="run_plan", status="ok") == 2
    assert found("requests_total", method="tools/call", tool="add", status="ok") == 1
    assert found("requests_total", method="tools/call", tool="", status="error") == 1
    assert found("request_seconds_count", method="tools/call") == 7
    assert found("calls_total", module="", tool="add", outcome="ok") >= 2
    assert found("calls_total", module="", tool="count_words", outcome="ok") >= 1
    assert found("calls_total", module="shop", tool="order", outcome="ok") == 1
    assert found("call_seconds_count", module="shop") == 1
    assert found("runs_ended_total", kind="plan", status="done") >= 2
    assert found("approvals_decided_total", decision="approve") == 1
    assert found("module_up", module="shop") == 1
    assert found("module_up", module="missing") == 0
    assert found("store_writable") == 1
    assert found("store_bytes") > 0
    assert found("http_responses_total", code="200") > 7
    assert found("runs_at_work") == 0
    assert "process_cpu_seconds_total" in found.text
    assert SECRET not in found.text
    assert SECRET.replace("-", "_") not in found.text


async def test_a_run_is_at_work_while_its_call_runs_and_what_fails_is_an_error(
    tmp_path: Path,
) -> None:
    entered, gate, box = anyio.Event(), anyio.Event(), Toolbox()

    @tool(read_only=True)
    async def wait() -> str:
        """Wait for the test."""
        entered.set()
        await gate.wait()
        raise ValueError(SECRET)

    box.add(wait)
    async with (
        serving(configured(tmp_path), box) as url,
        Client(url, read_timeout_seconds=60) as client,
    ):
        async with anyio.create_task_group() as group:
            group.start_soon(partial(client.call_tool, "run_plan", {"calls": [{"_tool": "wait"}]}))
            await entered.wait()
            assert Scraped((await scrape(url)).text)("runs_at_work") == 1
            gate.set()

        found = await until(
            url,
            lambda found: (
                found("requests_total", method="tools/call", tool="run_plan", status="ok") == 1
            ),
        )

    assert found("runs_at_work") == 0
    assert found("calls_total", module="", tool="wait", outcome="error") == 1
    assert SECRET not in found.text


async def test_metrics_need_a_token_and_a_name_of_the_server(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    with Store.open(tmp_path / "ideas.sqlite") as store:
        token = store.users.add_token(store.users.add("prometheus").name)[1]

    with listening(served(configuration, "--http", "0", "--metrics")) as url:
        assert (await scrape(url)).status_code == 401
        assert (await scrape(url, "wrong")).status_code == 401
        assert (await scrape(url, token, host="evil.example")).status_code == 421
        answer = await scrape(url, token)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert Scraped(answer.text)("http_responses_total", code="401") == 2
        assert "prometheus" not in answer.text


async def test_metrics_are_there_only_if_they_are_asked_for(tmp_path: Path) -> None:
    with http_process(configured(tmp_path)) as url:
        assert (await scrape(url)).status_code == 404
    # The package is not even imported.
    modules = "sys, ideabridge.server.serve, ideabridge.server.transports.http"
    script = tmp_path / "script.py"
    script.write_text(f"import {modules}; print('prometheus_client' in sys.modules)")
    done = await anyio.run_process(preloaded.python(script))
    assert done.stdout == b"False\n"


SCRIPT = """
import sys

# A preloaded process has imported the installed package.
for name in [*sys.modules]:
    if name.startswith(("psycopg", "ideabridge.bridge.store.postgres")):
        del sys.modules[name]

from ideabridge.server.main import main

sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("package", "source", "command", "told"),
    [
        (
            "prometheus_client",
            "raise ModuleNotFoundError('No module named prometheus_client')",
            "serve --http 0 --metrics",
            "metrics: No module named prometheus_client; pip install 'ideabridge[metrics]'",
        ),
        (
            "prometheus_client",
            "",
            "serve --http 0 --metrics",
            "metrics: cannot import name 'CollectorRegistry' from 'prometheus_client'",
        ),
        (
            "psycopg",
            (
                "raise ImportError('no pq wrapper available.\\nAttempts made:\\n- "
                "libpq library not found')"
            ),
            "serve --store postgresql://nowhere/ideas",
            (
                "`pip install 'ideabridge[postgres]'` (no pq wrapper available. Attempts made: - "
                "libpq library not found)"
            ),
        ),
    ],
    ids=["missing", "old", "broken"],
)
def test_a_package_that_cannot_be_imported_is_told_with_why(
    tmp_path: Path, package: str, source: str, command: str, told: str
) -> None:
    # A module beside the script takes precedence over an installed package.
    (tmp_path / f"{package}.py").write_text(source, encoding="utf-8")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = [*command.split(), "--config", str(configured(tmp_path))]
    done = subprocess.run(
        preloaded.python(script, *words),
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


async def test_the_number_of_series_is_bounded_whatever_tools_there_are() -> None:
    box = Toolbox()
    metrics = Metrics("1")
    async with AsyncExitStack() as stack:
        bridge = await stack.enter_async_context(Bridge(ASKS, toolbox=box))
        stack.enter_context(metrics.watching(bridge, DirectCalls(bridge)))
        for number in range(3 * MOST_TOOLS):
            name = f"tool_{number}"
            metrics.observe(
                ServedRequest("tools/call", tool=name, kind="exposed", status="ok", is_call=True)
            )
            metrics.observe(
                ServedRequest(
                    "tools/call", tool=f"idea_{number}", kind="idea", status="ok", is_call=True
                )
            )
        found = Scraped(metrics.text().decode())
        labels = found.labelled("requests_total")
        assert len({one["tool"] for one in labels}) == MOST_TOOLS + 2
        assert (
            found("requests_total", method="tools/call", tool="other", status="ok")
            == 2 * MOST_TOOLS
        )
        assert (
            found("requests_total", method="tools/call", tool="idea", status="ok") == 3 * MOST_TOOLS
        )
        # The calls of runs count towards the same limit.
        run = await bridge.run_plan(calls=[{"_tool": "count", "items": [1]}])
        await run.wait()
        assert {
            one["tool"] for one in Scraped(metrics.text().decode()).labelled("calls_total")
        } == {"other"}
