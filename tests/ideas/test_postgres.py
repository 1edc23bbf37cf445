"""What only a store in PostgreSQL has: an address, connections that are lost, and writers
at the same time.
"""

from __future__ import annotations

import random
import select
import socket
import threading
import time
from collections.abc import Generator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import anyio
import pytest

from ideabridge.bridge import Bridge, reading
from ideabridge.bridge.configuration import ConfigurationError, load_configuration, load_workspace
from ideabridge.bridge.store.errors import (
    PASSING,
    StoreAccessError,
    StoreBusyError,
    StoreError,
    StoreVersionError,
)
from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.run_record import RunOrigin, StoredSummary
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.typed import read_as
from tests.ideas.values import idea_of, publish, said
from tests.postgres import PostgresServer, check_server, run_sql, server
from tests.trusting import write_trusted

pytestmark = pytest.mark.anyio


@pytest.fixture
def address() -> str:
    return server().address()


def patiently(store: Store, run: str, epoch: int, event: JSONObject) -> None:
    """Append an event as the writer does: until it is written."""
    while True:
        try:
            store.runs.append(run, epoch, [event])
        except PASSING:
            time.sleep(0.005)
        else:
            return


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("postgresql://me:secret@db/ideas", "the configuration must not contain a password"),
        (
            "postgresql://db/ideas?password=secret",
            "the configuration must not contain a password",
        ),
        (
            "postgresql://db/ideas?sslpassword=secret",
            "the configuration must not contain a password",
        ),
        ("postgresql://db/ideas?schema=a;drop", "expected a letter from a to z or _"),
        ("postgresql://db/ideas?schema=pg_ideas", "not beginning with pg_"),
        ("postgresql://127.0.0.1:1/ideas", "the server cannot be reached"),
    ],
)
def test_an_address_that_cannot_be_used_says_why(text: str, why: str) -> None:
    with pytest.raises(StoreAccessError, match=why) as raised:
        Store.open(text)
    assert "secret" not in str(raised.value)


def test_a_server_belongs_into_the_users_own_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.json"
    own.write_text('{"store": "postgresql://db/ideas"}')
    assert load_configuration(own).store == "postgresql://db/ideas"
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)

    project = tmp_path / "project"
    project.mkdir()
    file = write_trusted(project, {"store": "postgresql://db/ideas"})
    with pytest.raises(ConfigurationError, match="a project cannot name a database server"):
        load_workspace(file, project=project)


async def test_a_worker_process_reads_the_store_and_writes_nothing(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SMALL_EVENTS", 0)
    async with Bridge(store=address) as bridge:
        plan: JSONObject = {"calls": [{"_tool": "count", "items": [1, 2]}]}
        run = await bridge.run_plan(plan)
        assert await run.wait() == "done"
        assert (await bridge.publish(run.id, "counted")).report is not None
        reader = bridge.store.reader()
        assert reader is not None
        with Store.open_for_reading(reader) as other:
            assert other.publications.named("counted", caller=SEES_ALL).version == 1
            with pytest.raises(StoreError, match="allows only reads"):
                other.settings.set("key", b"value")


def test_a_store_of_a_later_version_is_refused(address: str) -> None:
    Store.open(address).close()
    run_sql(address, "UPDATE counters SET value = 99 WHERE key = 'schema'")
    with pytest.raises(StoreVersionError, match="store version 99"):
        Store.open(address)


OLD_SCHEMA = Path(__file__).with_name("schema_postgres_5.sql")
TOKEN = "0123456789ab"
SECRET = "s" * 43


def old_store(place: str) -> None:
    """Create a store of version 5, made without our code, with a user and a token."""
    import psycopg

    from ideabridge.bridge.store.postgres.database import read_address

    address, schema = read_address(place)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        connection.execute(f"SET search_path TO {schema}".encode())
        connection.execute(OLD_SCHEMA.read_bytes())
        connection.execute(
            "INSERT INTO users(name, role, state, created) VALUES ('ann', 'member', 'active', %s)",
            ("2026-11-28T00:00:00.000Z",),
        )
        digest = sha256(SECRET.encode()).digest()
        connection.execute(
            'INSERT INTO user_tokens(id, "user", hash, label, created) '
            "VALUES (%s, 'ann', %s, 'laptop', %s)",
            (TOKEN, digest, "2026-11-28T00:00:00.000Z"),
        )


SCHEMA_PARTS: tuple[str, ...] = (
    """
    SELECT table_name, column_name, data_type, is_nullable, collation_name
    FROM information_schema.columns WHERE table_schema = current_schema()
    """,
    """
    SELECT indexname, regexp_replace(indexdef, ' ON [^ ]+', '') FROM pg_indexes
    WHERE schemaname = current_schema()
    """,
    "SELECT viewname, definition FROM pg_views WHERE schemaname = current_schema()",
    "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = current_schema()::regnamespace",
)
"""Queries for everything that a store consists of."""


def test_a_store_of_version_5_is_migrated(address: str) -> None:
    old_store(address)
    new = server().address()
    Store.open(new).close()
    with Store.open(address) as store:
        [token] = store.users.tokens("ann")
        assert (token.label, token.profile) == ("laptop", None)
        bound, secret = store.users.add_token("ann", "for reviews", profile="review")
        assert bound.profile == "review"
        for text, profile in ((f"ibt_{TOKEN}_{SECRET}", None), (secret, "review")):
            known = store.users.verify(text)
            assert known is not None
            user, token = known
            assert (user.name, token.profile) == ("ann", profile)

        assert store.configuration_log.newest(10) == []
        assert store.ideas.save(idea_of("kept"), IdeaMeta())

    for sql in SCHEMA_PARTS:
        assert sorted(map(str, run_sql(address, sql))) == sorted(map(str, run_sql(new, sql))), sql

    check_server(address)


def test_processes_that_start_together_create_one_schema(address: str) -> None:
    opened: list[Store] = []
    threads = [
        threading.Thread(target=lambda: opened.append(Store.open(address))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()

    for thread in threads:
        thread.join()

    assert len(opened) == 6
    opened[0].settings.set("k", b"v")
    assert [store.settings.get("k") for store in opened] == [b"v"] * 6
    for store in opened:
        store.close()


def test_the_views_are_read_by_sql_alone(address: str) -> None:
    with Store.open(address) as store:
        # These are more messages than a context contains without lists.
        idea = Idea(
            [said(f"message {number} {'x' * 200}") for number in range(300)],
            {"type": "object"},
            {"calls": []},
        )
        store.runs.create("r", kind="solve", caller="local", title="t", fingerprint="f")
        epoch = store.leases.acquire("r", "driver", 10, 0)
        assert epoch is not None
        begun: JSONObject = {
            "event": "run_started",
            "context": [said("word " * 40)],
            "tools": [],
            "title": 'a "b" \\',
        }
        store.runs.append("r", epoch, [begun])
        saved = store.ideas.save(idea, IdeaMeta(run="r", step=1, title="t", tags=("a",)))
        publish(store, "name", saved)
        assert run_sql(address, "SELECT id, run, step, title FROM idea_list") == [
            (saved, "r", 1, "t")
        ]
        listed = run_sql(address, "SELECT message FROM idea_messages ORDER BY place")
        assert len(listed) == len(idea.context)
        assert "message 299" in listed[-1][0]
        ((event,),) = run_sql(address, "SELECT event FROM journal WHERE run = 'r'")
        assert run_sql(
            address, "SELECT (?1::json)->>'title', (?1::json)#>>'{context,0,content}'", (event,)
        ) == [('a "b" \\', "word " * 40)]
        assert run_sql(address, "SELECT run, status FROM run_list") == [("r", "running")]
        assert run_sql(address, "SELECT tag, idea FROM tag_list") == [("a", saved)]
        assert run_sql(address, "SELECT name, idea, live FROM publication_list") == [
            ("name", saved, True)
        ]
        assert run_sql(address, "SELECT * FROM call_list") == []


def test_nul_and_half_surrogates_in_json_are_kept_and_filtered_by(address: str) -> None:
    with Store.open(address) as store:
        store.runs.create("r", kind="session", caller="me", title="a\0b", fingerprint="")
        epoch = store.leases.acquire("r", "driver", 10, 0)
        assert epoch is not None
        event: JSONObject = {"event": "call_decided", "text": "a\0b \\u0000 \\\\u0000", "call": 1}
        store.runs.append("r", epoch, [event])
        origin = read_as(RunOrigin, {"host": "codex", "path": "a\0b"})
        store.runs.set_status("r", epoch, "done", StoredSummary(origin=origin))
        assert list(store.runs.events("r")) == [(1, event)]
        assert store.runs.origins("me", "codex")[0].host == "codex"
        assert [one.at is not None for one in store.decisions.latest("me")] == [True]
        assert [one.title for one in store.runs.newest("me")] == ["a\ufffdb"]


# -- lost connections ------------------------------------------------------------------------------


def test_where_connections_are_cut_nothing_acknowledged_is_lost_or_written_twice(
    address: str,
) -> None:
    ended = threading.Event()
    cuts = 0

    def cut() -> None:
        nonlocal cuts
        chance = random.Random(7)
        while not ended.wait(chance.uniform(0.001, 0.03)):
            sql = (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'ideabridge' ORDER BY random() LIMIT 1"
            )
            cuts += len(run_sql(address, sql))

    def work(name: str) -> None:
        with Store.open(address) as store:
            store.runs.create(name, kind="plan", caller="", title="", fingerprint="")
            epoch = store.leases.acquire(name, "driver", 60, time.time())
            assert epoch is not None
            ready.wait()
            for number in range(400):
                patiently(
                    store, name, epoch, {"n": number, "text": "x" * 200, "event": "call_finished"}
                )
                if number % 20 == 0:
                    with suppress(*PASSING):
                        store.ideas.save(
                            idea_of(f"{name} {number}"), IdeaMeta(run=name, step=number)
                        )

    names = [f"run{number}" for number in range(4)]
    ready = threading.Barrier(len(names) + 1)
    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()

    ready.wait()
    cutter = threading.Thread(target=cut)
    cutter.start()
    for thread in threads:
        thread.join()

    ended.set()
    cutter.join()
    assert cuts > 10
    with Store.open(address) as store:
        for name in names:
            assert [event["n"] for _, event in store.runs.events(name)] == list(range(400))

    check_server(address)


class Proxy:
    """A server's socket whose connections are cut around a commit, on request.

    Attributes:
        cut: "before": the next COMMIT does not reach the server; "after": its answer does not reach
            the client; "open": it does not reach the server, which notices that the client has gone
            when it is asked twice what came of it.
    """

    def __init__(self, target: Path, folder: Path) -> None:
        self.cut = ""
        self._open: socket.socket | None = None
        self._asked = 0
        self._target = str(target / ".s.PGSQL.5432")
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / ".s.PGSQL.5432"))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(self._target)
            while True:
                for one in select.select([client, server], [], [])[0]:
                    data = one.recv(65_536)
                    if not data:
                        return
                    if one is server:
                        client.sendall(data)
                        continue
                    is_commit = b"COMMIT" in data
                    if is_commit and self.cut in ("before", "open"):
                        self._open = server.dup() if self.cut == "open" else None
                        self._asked = 0
                        self.cut = ""
                        return
                    self._asked += b"pg_xact_status" in data
                    if self._open is not None and self._asked == 2:
                        self._open.close()
                        self._open = None
                    server.sendall(data)
                    if is_commit and self.cut == "after":
                        self.cut = ""
                        server.recv(65_536)
                        return

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Proxy, str]]:
    target = server()
    folder = target.folder / f"p{random.randrange(10**6)}"
    folder.mkdir()
    opened = Proxy(target.folder, folder)
    yield opened, target.address().replace(f"host={target.folder}", f"host={folder}")
    opened.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_of_a_commit_without_an_answer_the_server_is_asked(
    proxy: tuple[Proxy, str], when: str
) -> None:
    cutting, through = proxy
    with Store.open(through) as store:
        store.runs.create("r", kind="plan", caller="", title="", fingerprint="")
        epoch = store.leases.acquire("r", "driver", 60, time.time())
        assert epoch is not None
        store.runs.append("r", epoch, [{"n": 0}])
        cutting.cut = when
        if when == "before":
            with pytest.raises(StoreAccessError, match="the connection to the server is lost"):
                store.runs.append("r", epoch, [{"n": 1}])
            store.runs.append("r", epoch, [{"n": 1}])
        else:
            # The server has committed the write, so this is not an error.
            assert store.runs.append("r", epoch, [{"n": 1}]) == 2
        assert cutting.cut == ""
        store.runs.append("r", epoch, [{"n": 2}])
        assert [event["n"] for _, event in store.runs.events("r")] == [0, 1, 2]


@pytest.mark.parametrize("when", ["before", "after", "open"])
async def test_the_writer_writes_once_whatever_is_cut(proxy: tuple[Proxy, str], when: str) -> None:
    cutting, through = proxy
    with Store.open(through) as store:
        store.runs.create("r", kind="plan", caller="", title="", fingerprint="")
        epoch = store.leases.acquire("r", "driver", 60, time.time())
        assert epoch is not None
        async with store.writer() as writer:
            for number in range(30):
                if number % 3 == 0:
                    cutting.cut = when
                await writer.perform(
                    lambda number=number: store.runs.append("r", epoch, [{"n": number}])
                )
        assert [event["n"] for _, event in store.runs.events("r")] == list(range(30))


async def test_a_server_that_crashes_and_comes_back_goes_on() -> None:
    own = PostgresServer(durable=True)
    try:
        address = own.address()
        with Store.open(address) as store:
            store.runs.create("r", kind="plan", caller="", title="", fingerprint="")
            epoch = store.leases.acquire("r", "driver", 60, time.time())
            assert epoch is not None
            async with store.writer() as writer:
                await writer.perform(lambda: store.runs.append("r", epoch, [{"n": 0}]))
                own.stop("immediate")
                # The event loop is blocked only for as long as the refusal takes.
                with pytest.raises(
                    StoreAccessError,
                    match=r"the server cannot be reached|connection to the server is lost",
                ):
                    store.runs.get("r")
                done = anyio.Event()
                writer.write(
                    lambda: store.runs.append("r", epoch, [{"n": 1}]),
                    lambda _: done.set(),
                    lambda _: None,
                    key="r",
                )
                await anyio.to_thread.run_sync(own.start)
                with anyio.fail_after(20):
                    await done.wait()
            assert [event["n"] for _, event in store.runs.events("r")] == [0, 1]
    finally:
        own.close()


# -- several writers -------------------------------------------------------------------------------


def test_writers_at_the_same_time_share_contents_and_lose_nothing(address: str) -> None:
    failed: list[BaseException] = []
    saved: dict[str, list[str]] = {}

    def work(name: str) -> None:
        try:
            with Store.open(address) as store:
                saved[name] = []
                for number in range(60):
                    shared = [said(f"part {(number + one) % 40}") for one in range(30)]
                    idea = Idea(
                        [*shared, said(f"{name} {number}")], {"type": "object"}, {"calls": []}
                    )
                    while True:
                        try:
                            saved[name].append(store.ideas.save(idea, IdeaMeta(title=name)))
                            if number % 10 == 0:
                                publish(store, "shared_name", saved[name][-1])
                            if number % 15 == 0:
                                store.ideas.search(name, caller=SEES_ALL)
                        except StoreBusyError:
                            continue
                        break
        except BaseException as error:  # noqa: BLE001 - of a thread
            failed.append(error)

    names = [f"writer{number}" for number in range(4)]
    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()

    with Store.open(address) as pruner:
        while any(thread.is_alive() for thread in threads):
            with suppress(StoreBusyError):
                pruner.prune(pruner.prunable(before="2000-01-01"))

    for thread in threads:
        thread.join()

    assert failed == []
    with Store.open(address) as store:
        for name in names:
            assert len(store.ideas.search(name, 100, caller=SEES_ALL)) == 60
            for one in saved[name]:
                assert len(store.ideas.get(one, caller=SEES_ALL).idea.context) == 31
        versions = [
            one.version for one in store.publications.versions("shared_name", caller=SEES_ALL)
        ]
        assert versions == list(range(len(versions), 0, -1))

    assert run_sql(address, "SELECT count(*) FROM contents GROUP BY hash HAVING count(*) > 1") == []
    check_server(address)
