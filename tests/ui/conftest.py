"""A browser of the system, driven by Playwright. Where there is none, its tests are
skipped, and say so.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.ui.serving import CHROMIUM, client, link_to, served

expect.set_options(timeout=20_000)
"""How long, in milliseconds, pages may take. What is checked is what they show; how fast they are
depends on what else the machine does, and is measured in `benchmarks/ui.py`.
"""


class Chromium:
    """Headless Chromium, for one test module after another: to start Playwright and a browser takes
    0.6 s of processor time.
    """

    def __init__(self) -> None:
        self._browser: Browser | None = None
        self._open = ExitStack()

    def browser(self) -> Browser:
        """Return the browser, and start it if it is not open."""
        if self._browser is None:
            playwright = self._open.enter_context(sync_playwright())
            # Containers have no user namespaces for the sandbox, and the browser opens only our own
            # pages. Use one process for all pages, because starting one for each takes a fifth of
            # the browser's time.
            self._browser = playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox", "--renderer-process-limit=1"]
            )
            self._open.callback(self._browser.close)

        return self._browser

    def close(self) -> None:
        """End the browser and Playwright."""
        self._browser = None
        self._open.close()


chromium = Chromium()


@pytest.fixture(scope="module")
def browser() -> Browser:
    """Headless Chromium.

    While Playwright is open, its event loop occupies the thread of the tests: their modules
    have no coroutines.
    """
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine: install the package chromium")
    return chromium.browser()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """Close the browser before a module that may have coroutines, and after a failure, which may
    have ended its processes.
    """
    try:
        return (yield)
    finally:
        is_used_next = isinstance(nextitem, pytest.Function) and "browser" in nextitem.fixturenames
        stays_open = is_used_next and not item.session.testsfailed
        if nextitem is None or (nextitem.path != item.path and not stays_open):
            chromium.close()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    # A failure may have ended the run before its last test.
    chromium.close()


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest) -> Generator[Page]:
    """An empty page, signed in to the server of the fixtures `site` and `shop_site` if the test has
    one. An error of a script, or what the policy of a page forbids, fails the test.
    """
    sites = [
        request.getfixturevalue(name)
        for name in ("site", "shop_site")
        if name in request.fixturenames
    ]
    with browser.new_context(viewport={"width": 1100, "height": 900}) as context:
        found, faults = context.new_page(), list[str]()
        found.on("pageerror", lambda error: faults.append(str(error)))
        found.on(
            "console",
            lambda one: faults.append(one.text) if _is_fault(one.type, one.text) else None,
        )
        found.set_default_timeout(20_000)
        for site in sites:
            url = site if isinstance(site, str) else site[0]
            # A browser that followed the link would draw the home page, which no test needs.
            context.request.get(link_to(url), max_redirects=0)
        yield found
        assert faults == []


def _is_fault(kind: str, text: str) -> bool:
    # A page that is refused on purpose, or a stream that ends together with its server, is not a
    # fault of a script.
    return kind == "error" and "Failed to load resource" not in text and "ERR_" not in text


@pytest.fixture
def site(tmp_path: Path) -> Generator[str]:
    """The URL of a page over an empty store."""
    with served(tmp_path) as url:
        yield url


@pytest.fixture
def http(site: str) -> Generator[httpx.Client]:
    """A client of `site`, signed in as its owner."""
    with client(site) as owner:
        yield owner
