"""Two users of one server: alice has one object of each kind, and bob must not be able to tell."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.journal import PastEvents
from ideabridge.bridge.store.publications import Evidence
from ideabridge.bridge.store.run_record import RunOrigin, StoredSummary
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.typed import read_as
from tests import preloaded
from tests.server.serving import BIN, call, configured, listening

MARKER: Final = "zqx81alices"
"""Stands in everything that only alice may see."""

ASKS: Final = Path(__file__).parents[1] / "modules" / "servers" / "asks.py"
TALKS: Final = Path(__file__).with_name("talkative.py")
TAG: Final = f"tag_{MARKER}"
PRIVATE: Final = "walk_private"
SHARED: Final = "walk_shared"
_SECRET: Final = re.compile(r'name="secret" value="([^"]+)"')


@dataclass(frozen=True)
class Pair:
    """What one object of alice is called, and what no object is called that has the same form."""

    kind: str
    real: str
    absent: str


@dataclass
class Neighbours:
    """The server, its users, and the objects of alice."""

    url: str
    folder: Path
    tokens: dict[str, str]
    pairs: list[Pair] = field(default_factory=list[Pair])

    def __getitem__(self, kind: str) -> str:
        return next(pair.real for pair in self.pairs if pair.kind == kind)

    @property
    def base(self) -> str:
        """The address of the server."""
        return self.url.removesuffix("/mcp")

    @property
    def store(self) -> Path:
        """The file of the store."""
        return self.folder / "ideas.sqlite"

    @asynccontextmanager
    async def client(self, who: str, **keys: Any) -> AsyncGenerator[Client]:
        """A client of a user."""
        headers = {"authorization": f"Bearer {self.tokens[who]}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(streamable_http_client(self.url, http_client=http), **keys) as client,
        ):
            yield client

    @asynccontextmanager
    async def browser(self, who: str | None) -> AsyncGenerator[Browser]:
        """A browser in which a user has signed in to the page with the token; None: nobody has."""
        async with httpx2.AsyncClient(base_url=self.base, timeout=30) as http:
            browser = Browser(http)
            if who is not None:
                headers = {"origin": self.base}
                signed_in = await http.post(
                    "/ui/sign-in", data={"token": self.tokens[who]}, headers=headers
                )
                assert signed_in.status_code == 303, signed_in.text
                found = _SECRET.search((await http.get("/ui/playground")).text)
                assert found is not None
                browser.secret = found[1]
            yield browser


@dataclass
class Browser:
    """A session of the page, which does not follow redirects."""

    http: httpx2.AsyncClient
    secret: str = ""

    async def get(self, path: str, **query: str) -> httpx2.Response:
        """Open a page."""
        return await self.http.get(path, params=query or None)

    async def post(self, path: str, **fields: str) -> httpx2.Response:
        """Send a form."""
        base = str(self.http.base_url).rstrip("/")
        headers = {"origin": base, "referer": f"{base}/ui/playground"}
        return await self.http.post(path, data={"secret": self.secret, **fields}, headers=headers)


@contextmanager
def serving(folder: Path) -> Generator[Neighbours]:
    """A server with the page, two modules and two users, without objects."""
    modules = {"asks": preloaded.module(ASKS), "talks": preloaded.module(TALKS)}
    users = {"requests_per_minute": 1_000_000}
    configuration = configured(
        folder, mcpServers=modules, expose=["modules"], own_tools="all", users=users
    )
    with Store.open(folder / "ideas.sqlite") as store:
        tokens = {
            name: store.users.add_token(store.users.add(name).name)[1] for name in ("alice", "bob")
        }
        tokens["ada"] = store.users.add_token(store.users.add("ada", "admin").name)[1]

    words = ("serve", "--config", str(configuration), "--http", "127.0.0.1:0", "--ui")
    with listening(preloaded.python(BIN / "ideabridge", *words)) as url:
        yield Neighbours(url, folder, tokens)


def _like(kind: str, real: str) -> Pair:
    """An object whose name ends with hex digits, and a name of the same form."""
    return Pair(kind, real, f"{real[:-6]}{(int(real[-6:], 16) + 1) % 16**6:06x}")


def _plan(text: str) -> dict[str, Any]:
    calls = [{"_tool": "count_words", "text": "†input.text", "_outputPath": "n"}]
    return {
        "calls": calls,
        "input": {"text": text},
        "output": {"n": "†state.n", "of": "†input.text"},
    }


async def settle(neighbours: Neighbours) -> None:
    """Let alice make one object of each kind, and share what a neighbour may see."""
    add = neighbours.pairs.append
    folder = neighbours.folder
    async with neighbours.client("alice") as client:
        run = str((await call(client, "run_plan", **_plan(f"{MARKER} one")))["run"])
        add(Pair("run", run, "run_0123456789abcdef"))
        note = {"_tool": "write_note", "path": str(folder / "note"), "text": MARKER}
        waiting = await call(client, "run_plan", calls=[note])
        add(Pair("waiting run", str(waiting["run"]), "run_0123456789abcdef"))
        add(_like("approval", str(waiting["approvals"][0]["approval"])))
        asked = await call(
            client, "run_plan", calls=[{"_tool": "book", "_module": "asks", "who": MARKER}]
        )
        assert asked["status"] == "needs_approval", asked
        add(Pair("question run", str(asked["run"]), "run_0123456789abcdef"))

        description = f"Count words {MARKER}."
        await call(
            client, "publish_idea", idea=run, name=PRIVATE, answer="plan", description=description
        )
        add(Pair("publication", PRIVATE, "walk_privatf"))
        add(Pair("version", f"{PRIVATE}@1", "walk_privatf@1"))
        room = {"_tool": PRIVATE, "_module": f"idea:{PRIVATE}", "text": MARKER}
        parent = str((await call(client, "run_plan", calls=[room]))["run"])
        add(Pair("room", f"{parent}.0.0", "run_0123456789abcdef.0.0"))

        # The first version is private, and the second shares the name.
        await call(
            client, "publish_idea", idea=run, name=SHARED, answer="plan", description=description
        )
        plain = str((await call(client, "run_plan", **_plan("two words")))["run"])
        await call(
            client,
            "publish_idea",
            idea=plain,
            name=SHARED,
            answer="plan",
            description="Count words.",
            to="all",
        )
        add(Pair("earlier version", f"{SHARED}@1", f"{SHARED}@9"))
        await client.call_tool("capabilities", {})
        listed = await call(client, "check_run")
        add(_like("session", str(listed["sessions"][0]["run"])))

    imported = "run_00000000000000aa"
    with Store.open(neighbours.store) as store:
        idea = store.ideas.of_run(run)[-1].id
        add(_like("idea", idea))
        add(_like("prefix", idea[:6]))
        store.ideas.tag(idea, [TAG])
        add(Pair("tag", TAG, f"{TAG}x"))
        events = [one for _, one in store.runs.events(run)]
        store.runs.create_ended(
            imported,
            PastEvents(events),
            kind="session",
            caller="user:alice",
            title=f"imported {MARKER}",
            fingerprint="",
            summary=StoredSummary(origin=read_as(RunOrigin, {"host": "codex", "log": MARKER})),
        )
        values: list[JSON] = [[["calls", "0", "text"], MARKER]]
        record: JSONObject = {
            "run": run,
            "by": "user:alice",
            "kind": "person",
            "time": "2026-11-27T00:00:00.000+00:00",
            "values": values,
            "view": None,
        }

        def learn(_published: Publication, _records: list[JSONObject]) -> Evidence:
            return Evidence(record, {})

        latest = store.publications.get(SHARED, caller=SEES_ALL)
        store.publications.add_evidence(SHARED, latest.version, learn)

    add(Pair("import", imported, "run_00000000000000bb"))
