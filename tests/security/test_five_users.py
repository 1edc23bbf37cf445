"""Five users, two servers on one store, 1,000 mixed requests: nobody sees another's, the journal
names who decided.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest
from anyio.abc import TaskGroup
from mcp import Client, MCPError, types
from mcp.client.streamable_http import streamable_http_client

from ideabridge.bridge.loop.event import Decider, read_decider
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from tests import preloaded
from tests.server.serving import BIN, configured, listening, structured, text

pytestmark = pytest.mark.anyio

USERS: Final = ("alice", "bob", "carol", "dan", "erin")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Person:
    """One user: what only they may see has their marker in it."""

    name: str
    token: str
    marker: str
    forms: bool
    runs: dict[str, str] = field(default_factory=dict[str, str])
    """Runs, and the text each was given."""
    waiting: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    tools: dict[str, str] = field(default_factory=dict[str, str])
    """Names, and the text each was recorded with."""
    decided: Counter[str] = field(default_factory=Counter[str])


class Crowd:
    """Everybody, and what was seen of whom."""

    def __init__(self, people: list[Person], folder: Path) -> None:
        self.people = people
        self.folder = folder
        self.done: Counter[str] = Counter()
        self.refused = 0
        self.shared: dict[str, set[str]] = {}

    def check(self, person: Person, answer: str, asked_for: str = "") -> None:
        """Nothing of others is in an answer, but what the request itself named."""
        seen = answer.replace(asked_for, "") if asked_for else answer
        for other in self.people:
            assert other is person or other.marker not in seen, (
                person.name,
                other.name,
                seen[:2000],
            )


class Worker:
    """One client of one user at one server."""

    def __init__(self, crowd: Crowd, person: Person, client: Client, seed: int) -> None:
        self.crowd = crowd
        self.person = person
        self.client = client
        self.random = random.Random(seed)
        self.count = 0

    def others(self) -> Person:
        return self.random.choice([one for one in self.crowd.people if one is not self.person])

    async def tool(
        self, name: str, asked_for: str = "", /, **arguments: Any
    ) -> types.CallToolResult:
        self.count += 1
        result = await self.client.call_tool(name, arguments)
        self.crowd.check(self.person, result.model_dump_json(), asked_for)
        return result

    async def works(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        result = await self.tool(name, **arguments)
        assert not result.is_error, text(result)
        return structured(result)

    async def fails(self, name: str, asked_for: str, /, **arguments: Any) -> None:
        result = await self.tool(name, asked_for, **arguments)
        assert result.is_error, (self.person.name, name, arguments, text(result))
        self.crowd.refused += 1

    async def asks(self, asked: Awaitable[Any], asked_for: str = "") -> str:
        self.count += 1
        try:
            answer = (await asked).model_dump_json()
        except MCPError as error:
            answer = f"error: {error}"
        self.crowd.check(self.person, answer, asked_for)
        return answer

    # -- what a user does --------------------------------------------------------------------------

    async def run(self) -> None:
        plan = {"calls": [{"_tool": "count_words", "text": "†input.text", "_outputPath": "n"}]}
        words = f"{self.person.marker} {self.random.randrange(10**6)}"
        output = {"n": "†state.n", "of": "†input.text"}
        told = await self.works("run_plan", **plan, input={"text": words}, output=output)
        assert self.person.marker in json.dumps(told)
        self.person.runs[told["run"]] = words

    async def change(self) -> None:
        place = str(self.crowd.folder / f"{self.person.marker}.txt")
        call = {"_tool": "write_note", "path": place, "text": self.person.marker}
        told = await self.works("run_plan", calls=[call])
        if self.person.forms:
            assert told["status"] == "done", told
            self.person.decided[told["run"]] += 1
        else:
            assert told["status"] == "needs_approval", told
            self.person.waiting.append((told["run"], told["approvals"][0]["approval"]))

    async def decide(self) -> None:
        if not self.person.waiting:
            await self.change()
            return

        run, approval = self.person.waiting.pop()
        decision = self.random.choice(["approve", "deny"])
        await self.works(
            "decide_approval", run=run, decisions=[{"approval": approval, "decision": decision}]
        )
        self.person.decided[run] += 1

    async def decide_for_another(self) -> None:
        waiting = [
            (one, *pair)
            for one in self.crowd.people
            if one is not self.person
            for pair in one.waiting
        ]
        if not waiting:
            await self.change()
            return

        other, run, approval = self.random.choice(waiting)
        told = [{"approval": approval, "decision": "approve"}]
        await self.fails("decide_approval", run, run=run, decisions=told)
        assert other is not self.person

    async def look(self) -> None:
        if not self.person.runs:
            await self.run()
            return
        told = await self.works(
            "check_run", run=self.random.choice([*self.person.runs]), paths=["†output"]
        )
        assert self.person.marker in json.dumps(told)

    async def latest(self) -> None:
        await self.works("check_run")

    async def look_at_another(self) -> None:
        other = self.others()
        if not other.runs:
            await self.run()
            return

        run = self.random.choice([*other.runs])
        keys = self.random.choice([{}, {"paths": ["†output", "†input.text"]}, {"cancel": True}])
        await self.fails("check_run", run, run=run, **keys)

    async def publish(self) -> None:
        if not self.person.runs:
            await self.run()
            return

        run, words = self.random.choice([*self.person.runs.items()])
        answer = self.random.choice(["plan", "recorded"])
        name = f"{self.person.marker}_{answer}_{self.random.randrange(10**9)}"
        given = {"description": f"Of {self.person.marker}.", "answer": answer}
        await self.works("publish_idea", idea=run, name=name, **given)
        self.person.tools[name] = words

    async def share(self) -> None:
        plan = {
            "calls": [{"_tool": "add", "a": "†input.a", "b": 2, "_outputPath": "s"}],
            "output": "†state.s",
        }
        made = await self.works("run_plan", **plan, input={"a": self.random.randrange(10**6)})
        name = f"{self.person.name}_gives_{self.random.randrange(10**9)}"
        to = self.random.choice([("all",), (self.others().name, self.others().name)])
        given = {"description": "Add 2.", "answer": "plan"}
        await self.works("publish_idea", idea=made["run"], name=name, to=",".join(to), **given)
        self.crowd.shared[name] = set(USERS if to == ("all",) else (*to, self.person.name))

    async def use_shared(self) -> None:
        if not self.crowd.shared:
            await self.share()
            return

        name, to = self.random.choice([*self.crowd.shared.items()])
        if self.person.name in to:
            result = await self.tool(name, a=3)
            assert not result.is_error, text(result)
            assert "5" in text(result)
        else:
            await self.fails(name, "", a=3)

    async def replay(self) -> None:
        if not self.person.tools:
            await self.publish()
            return
        name, words = self.random.choice([*self.person.tools.items()])
        result = await self.tool(name, text=words)
        assert not result.is_error, text(result)

    async def take_anothers(self) -> None:
        other = self.others()
        if not other.tools:
            await self.publish()
            return

        name, words = self.random.choice([*other.tools.items()])
        way = self.random.randrange(6)
        if way == 0:
            await self.fails(name, name, text=words)
        elif way == 1:
            await self.fails("solve", name, task="Do it.", idea=name)
        elif way == 2:
            await self.fails(
                "run_plan", name, calls=[{"_tool": name, "_module": f"idea:{name}", "text": "x"}]
            )
        elif way == 3:
            await self.fails("publish_idea", name, idea=name, name="mine")
        elif way == 4:
            assert "error" in await self.asks(self.client.read_resource(f"idea://{name}"), name)
        else:
            assert "error" in await self.asks(self.client.get_prompt(name), name)

    async def list(self) -> None:
        way = self.random.randrange(6)
        name = types.ResourceTemplateReference(uri="idea://{name}")
        if way == 0:
            await self.asks(self.client.list_tools(cache_mode="bypass"))
        elif way == 1:
            await self.asks(self.client.list_resources())
        elif way == 2:
            await self.asks(self.client.list_prompts())
        elif way == 3:
            start = self.others().marker[:3]
            await self.asks(self.client.complete(name, {"name": "name", "value": start}), start)
        else:
            words = self.random.choice(["count", "words", "add", self.others().marker])
            await self.tool(
                self.random.choice(["search_ideas", "search_tools"]), words, words=words
            )

    def deeds(self) -> list[Callable[[], Awaitable[None]]]:
        often = [
            self.run,
            self.change,
            self.decide,
            self.look,
            self.look_at_another,
            self.take_anothers,
            self.list,
        ]
        return [
            *often,
            *often,
            self.decide_for_another,
            self.latest,
            self.publish,
            self.share,
            self.use_shared,
            self.replay,
        ]

    async def work(self, requests: int) -> None:
        while self.count < requests:
            deed = self.random.choice(self.deeds())
            self.crowd.done[deed.__name__] += 1
            await deed()


@asynccontextmanager
async def client_of(
    url: str, person: Person, people: list[Person], mode: str
) -> AsyncGenerator[Client]:
    async def approve(_context: Any, params: Any) -> types.ElicitResult:
        # A form is only about the person's own call, or about what that person publishes.
        assert not any(other.marker in params.message for other in people if other is not person)
        fields = params.requested_schema["properties"]
        chosen: dict[str, Any] = {
            name: "approve" for name, field in fields.items() if "approve" in json.dumps(field)
        }
        return types.ElicitResult(action="accept", content=chosen)

    keys: dict[str, Any] = {"elicitation_callback": approve} if person.forms else {}
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {person.token}"}, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, **keys) as client,
    ):
        yield client


def deciders(store: Store) -> list[tuple[str, str, Decider]]:
    """(run, whose it is, who decided) of every decision in the store."""
    found: list[tuple[str, str, Decider]] = []
    for record in store.runs.newest(limit=1000, caller=SEES_ALL):
        for _, event in store.runs.events(record.id):
            if event["event"] == "call_decided":
                found.append((record.id, record.caller, read_decider(event["by"])))
    return found


@pytest.mark.parametrize("requests", [300, pytest.param(1000, marks=pytest.mark.long)])
async def test_of_mixed_requests_no_answer_holds_anything_of_another_user(
    requests: int, tmp_path: Path
) -> None:
    configuration = configured(tmp_path)
    people: list[Person] = []
    with Store.open(tmp_path / "ideas.sqlite") as store:
        for number, name in enumerate(USERS):
            store.users.add(name)
            marker = f"zq{number}{random.Random(number).randrange(10**8):08}"
            people.append(Person(name, store.users.add_token(name)[1], marker, forms=number < 2))

    crowd = Crowd(people, tmp_path)
    serve = preloaded.python(
        BIN / "ideabridge", "serve", "--config", str(configuration), "--http", "127.0.0.1:0"
    )
    with listening(serve) as one, listening(serve) as other:
        async with AsyncExitStack() as stack:
            workers: list[Worker] = []
            for number, person in enumerate(people):
                for place, url in enumerate((one, other)):
                    client = await stack.enter_async_context(
                        client_of(url, person, people, ("legacy", "auto")[(number + place) % 2])
                    )
                    workers.append(Worker(crowd, person, client, number * 2 + place))

            failures: list[Exception] = []

            async def work(worker: Worker, working: TaskGroup) -> None:
                try:
                    await worker.work(requests // len(workers))
                except Exception as error:  # noqa: BLE001 - raised below
                    # Do not raise the error here, because it would pass through ten clients and be
                    # wrapped in twenty groups.
                    failures.append(error)
                    working.cancel_scope.cancel()

            async with anyio.create_task_group() as working:
                for worker in workers:
                    working.start_soon(work, worker, working)

        for failure in failures:
            raise failure
        assert sum(worker.count for worker in workers) >= requests

    assert crowd.refused > requests / 10
    assert len(crowd.done) == 13
    with Store.open(tmp_path / "ideas.sqlite") as store:
        decided = deciders(store)
        assert len(decided) > requests / 20
        ways = {
            f"user:{one.name}": ("person", "form") if one.forms else ("assistant", "tool")
            for one in people
        }
        for _, caller, by in decided:
            assert caller == f"user:{by.user}"
            assert (by.kind, by.via) == ways[caller]

        wanted = {(run, f"user:{person.name}") for person in people for run in person.decided}
        assert {(run, caller) for run, caller, _ in decided} == wanted
