"""What modules ask, over the real server: forms in both eras of client and module, and by turns."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, types

from tests import preloaded

from .serving import (
    ERAS,
    call,
    configured,
    http_process,
    in_memory,
    over_stdio,
    read_by_a_person,
    refused,
    text,
)

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parent.parent / "modules" / "servers" / "asks.py"


def module(era: str) -> dict[str, Any]:
    return preloaded.module(SERVER, *(["--legacy"] if era == "legacy" else []))


def asking(folder: Path, era: str, **top: Any) -> Path:
    return configured(folder, mcpServers={"asks": module(era)}, **top)


class Person:
    """Answers forms, in order; notes what each said and wanted."""

    def __init__(self, *answers: types.ElicitResult) -> None:
        self.forms: list[tuple[str, dict[str, Any]]] = []
        self._answers = answers

    async def __call__(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.forms.append((params.message, params.requested_schema))
        answer = self._answers[min(len(self.forms), len(self._answers)) - 1]
        if answer.action == "decline":
            await read_by_a_person()
        return answer


def filled(**content: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=content)


def book(who: str, tool: str = "book") -> dict[str, Any]:
    return {"calls": [{"_tool": tool, "who": who, "_outputPath": "got"}], "output": "†state.got"}


@pytest.mark.parametrize("module_era", ["modern", "legacy"])
@pytest.mark.parametrize("client_era", ERAS)
async def test_a_question_reaches_the_person_at_the_client_and_the_answer_its_call(
    tmp_path: Path, client_era: str, module_era: str
) -> None:
    person = Person(filled(name="Ann", seats=9), filled(name="Ann", seats=2, meals=["fish"]))
    async with over_stdio(
        asking(tmp_path, module_era), client_era, elicitation_callback=person
    ) as client:
        told = await call(client, "run_plan", **book("ann"))
        assert told["status"] == "done"
        assert told["output"].startswith("ann:\n")
        assert '"content": {"meals": ["fish"], "name": "Ann", "seats": 2}' in told["output"]

    (first, form), (second, _) = person.forms
    assert first.startswith(
        "Server asks asks while it runs book of server asks (the text is its own):"
    )
    assert "\n  | Seats for ann?\n" in first
    assert "The last answer was not accepted: " in second
    assert "seats: found 9, expected at most 5" in second
    assert form["properties"].keys() == {"name", "seats", "meals", "window"}


@pytest.mark.parametrize("module_era", ["modern", "legacy"])
@pytest.mark.parametrize("client_era", ERAS)
async def test_what_the_person_declines_or_leaves_is_told_as_that(
    tmp_path: Path, client_era: str, module_era: str
) -> None:
    person = Person(types.ElicitResult(action="decline"), types.ElicitResult(action="cancel"))
    async with in_memory(
        asking(tmp_path, module_era), client_era, elicitation_callback=person
    ) as client:
        for action in ("decline", "cancel"):
            told = await call(client, "run_plan", **book("ann"))
            assert f'"action": "{action}"' in told["output"]


@pytest.mark.parametrize("module_era", ["modern", "legacy"])
@pytest.mark.parametrize("client_era", ERAS)
async def test_by_turns_the_deciding_tool_answers(
    tmp_path: Path, client_era: str, module_era: str
) -> None:
    async with in_memory(asking(tmp_path, module_era), client_era) as client:
        result = await client.call_tool("run_plan", book("ann"))
        told: Any = result.structured_content
        assert told["status"] == "needs_approval"
        [entry] = told["approvals"]
        assert entry["question"]["message"] == "Seats for ann?"
        assert (
            f'{entry["approval"]} (value, deny, skip): server asks asks: "Seats '
            'for ann?" (value fits {'
        ) in text(result)
        run = told["run"]
        wrong = {
            "approval": entry["approval"],
            "decision": "value",
            "value": {"name": "Ann", "seats": "two"},
        }
        assert "seats: found" in await refused(
            client, "decide_approval", run=run, decisions=[wrong]
        )
        assert (await call(client, "check_run", run=run, wait_s=0))["approvals"] == [entry]
        right = {**wrong, "value": {"name": "Ann", "seats": 2}}
        told = await call(client, "decide_approval", run=run, decisions=[right])
        assert (told["status"], '"seats": 2' in told["output"]) == ("done", True)


@pytest.fixture(scope="module", params=["modern", "legacy"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with http_process(asking(tmp_path_factory.mktemp("asking"), request.param)) as url:
        yield url


@pytest.mark.parametrize("client_era", ERAS)
async def test_people_at_several_clients_are_asked_about_their_own_calls_alone(
    url: str, client_era: str
) -> None:
    people = {who: Person(filled(name=who, seats=1)) for who in ("ann", "bob", "cy", "di")}
    # The first call to a module of 2025 asks alone, because only then is it known that the module
    # asks.
    first = Person(filled(name="first", seats=1))
    async with Client(
        url, mode=client_era, read_timeout_seconds=60, elicitation_callback=first
    ) as client:
        await call(client, "run_plan", **book("first"))

    async def ask(who: str) -> None:
        async with Client(
            url, mode=client_era, read_timeout_seconds=60, elicitation_callback=people[who]
        ) as client:
            told = await call(client, "run_plan", **book(who))
            assert told["output"].startswith(f"{who}:\n")
            assert f'"name": "{who}"' in told["output"]

    async with anyio.create_task_group() as group:
        for who in people:
            group.start_soon(ask, who)

    for who, person in people.items():
        [(message, _)] = person.forms
        assert f"Seats for {who}?" in message
        assert f'  | who          "{who}"\n' in message


async def test_a_run_with_a_refused_question_says_so(tmp_path: Path) -> None:
    person = Person()
    async with in_memory(asking(tmp_path, "modern"), "auto", elicitation_callback=person) as client:
        plan = {"calls": [{"_tool": "hostile", "how": "url", "_outputPath": "got"}]}
        result = await client.call_tool("run_plan", plan)
    assert person.forms == []
    assert "it asks the person to open an address (url mode)" in text(result)


async def test_a_tool_called_by_the_host_itself_has_nobody_to_ask_and_says_so(
    tmp_path: Path,
) -> None:
    async with in_memory(asking(tmp_path, "modern", expose=["modules"]), "auto") as client:
        with anyio.fail_after(20):
            while "book" not in [
                one.name for one in (await client.list_tools(cache_mode="bypass")).tools
            ]:
                continue
        said = await refused(client, "book", who="ann")
        assert (
            "nobody was asked for elicitation: the client does not declare "
            "elicitation; within a run"
        ) in said
