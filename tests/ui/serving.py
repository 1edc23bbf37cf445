"""A server with the page in a process of its own, and a client that sends forms as a browser
would.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx

from ideabridge.bridge.store.store import Store
from ideabridge.server import serve
from tests import preloaded

CHROMIUM = next(
    filter(
        None,
        map(
            shutil.which,
            ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"),
        ),
    ),
    None,
)
TOOLS = Path(__file__).parent / "shop.py"
_SECRET = re.compile(r'name="secret" value="([^"]+)"')


@contextmanager
def served(
    folder: Path,
    *words: str,
    command: str = "ui",
    through: Sequence[str | Path] = (),
    tools: Path = TOOLS,
) -> Generator[str]:
    """Start the page over the store `folder/ideas.sqlite`; yields the URL that the command prints
    for people: of `ui` on standard output, of `serve` on standard error. It ends with `/ui/`, and
    signs nobody in; see `link_to`.

    A script `through` which it starts, with the first of its arguments, gets the command
    as further ones.
    """
    options = [
        "--store",
        str(folder / "ideas.sqlite"),
        "--tools",
        str(tools),
        "--project",
        str(folder),
    ]
    if command == "ui":
        start = ["ui", "127.0.0.1:0", "--no-browser"]
    else:
        start = ["serve", "--http", "127.0.0.1:0", "--ui"]

    environment = {**os.environ, "XDG_CONFIG_HOME": str(folder / "config"), "HOME": str(folder)}
    script, *first = map(str, [*through, Path(sys.executable).parent / "ideabridge"])
    with subprocess.Popen(
        preloaded.python(script, *first, *start, *options, *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            address = _address(process.stdout if command == "ui" else process.stderr)
            _STORES[_base(address)] = folder / "ideas.sqlite"
            yield address
        finally:
            process.terminate()
            process.communicate()


def _address(lines: IO[str]) -> str:
    read: list[str] = []
    for line in lines:
        read.append(line)
        found = re.search(r"(http://\S+/ui/\S*)", line)
        if found is not None:
            return found[1]

    raise AssertionError(f"the server ended:\n{''.join(read)}")


_STORES: dict[str, Path] = {}
"""The store of each server that was started here, by its address."""


def _base(url: str) -> str:
    return url.partition("/ui")[0].rstrip("/")


def link_to(url: str) -> str:
    """A new link that signs the owner in, once, to a page of `served`; `ideabridge ui --link`
    prints such a one.
    """
    with Store.open(_STORES[_base(url)]) as store:
        return serve.link_to(f"{_base(url)}/ui/", store.owner_links)


def stranger(url: str) -> httpx.Client:
    """A client with a cookie jar that follows redirects, at the address of the server."""
    return httpx.Client(base_url=_base(url), follow_redirects=True, timeout=30)


@contextmanager
def client(url: str) -> Generator[httpx.Client]:
    """The same, signed in to a page of `served` as its owner."""
    with stranger(url) as http:
        # The link leads to the home page, which is not made for every test.
        signed_in = http.get(link_to(url), follow_redirects=False)
        assert signed_in.headers["location"] == "/ui/home"
        yield http


def secret(http: httpx.Client, path: str = "/ui/playground") -> str:
    """The secret of the forms of this session."""
    found = _SECRET.search(http.get(path).text)
    assert found is not None
    return found[1]


def seal(http: httpx.Client, key: str, path: str = "/ui/approvals") -> str:
    """What the form of a decision `RUN:APPROVAL` holds where a page shows it whole;
    empty if none does.
    """
    name = re.escape(f'name="which" value="{key}">')
    found = re.search(
        rf'{name}\s*<input type="hidden" name="seal" value="([0-9a-f]+)"', http.get(path).text
    )
    return "" if found is None else found[1]


def without_breaks(html: str) -> str:
    """A page without the marks of where a line may end within a name or a path."""
    return html.replace("<wbr>", "")


def send(
    http: httpx.Client, path: str, page: str = "/ui/playground", **fields: str
) -> httpx.Response:
    """Send a form of a page, with its secret, and load what comes next."""
    headers = {"Origin": str(http.base_url).rstrip("/"), "Referer": str(http.base_url.join(page))}
    return http.post(path, data={"secret": secret(http, page), **fields}, headers=headers)


def ask(http: httpx.Client, *calls: dict[str, Any], **members: Any) -> str:
    """Run a plan of these calls, with further members, through the playground; returns
    the id of the run.
    """
    plan = json.dumps({"calls": list(calls), **members})
    answer = send(http, "/ui/playground", kind="plan", text=plan, input="", title="", action="run")
    assert "/runs/run_" in answer.url.path, answer.text[-2000:]
    return answer.url.path.rpartition("/")[2]
