"""Suggestions: what was done repeatedly in runs, plans and imported conversations, and the
tool it would make.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ideabridge.bridge import Bridge, Request
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.publishing.suggested_names import name_suggestions
from ideabridge.bridge.publishing.suggestions import Suggestion
from ideabridge.bridge.runs.stretch import store_part
from ideabridge.bridge.store.errors import UnknownRunError
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty, object_or_empty
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.toolbox import Toolbox

from .logs import ClaudeCode
from .test_import import configured, put, taken, told

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def find(customer: str) -> list[str]:
    """The orders of a customer."""
    if not customer:
        raise ActivityError("no customer")
    return [f"{customer}-1", f"{customer}-2"]


@tool(read_only=True)
def describe(order: str) -> str:
    """An order."""
    return f"Order {order}"


@tool
def send(to: str, text: str, urgent: bool = False) -> str:
    """Send a message."""
    return f"sent to {to}"


def opened(home: Path) -> Bridge:
    return Bridge(
        configured(approval="allow_all"),
        toolbox=Toolbox(find, describe, send),
        store=home / "store.sqlite",
    )


async def did(bridge: Bridge, *calls: object, caller: str = "local") -> str:
    run = await bridge.run_plan({"calls": [*calls]}, caller=caller)
    await run.wait(20)
    return run.id


def looked_up(customer: str, *, urgent: bool = False) -> list[object]:
    return [
        {"_tool": "find", "customer": customer},
        {"_tool": "describe", "order": f"{customer}-1"},
        {"_tool": "send", "to": customer, "text": f"Order {customer}-1", "urgent": urgent},
    ]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


async def test_what_was_done_in_conversations_is_suggested_and_published(home: Path) -> None:
    log = ClaudeCode("many")
    for customer, order in (("ann", "o-17"), ("bob", "o-31"), ("cleo", "o-40")):
        told(customer, order, log)
        log.clock.tick(3600)

    put(home, log)
    async with opened(home) as bridge:
        await taken(bridge)
        (one,) = bridge.suggest()
        assert one.signature == "find_orders_and_send(customer, order?, to?, text?)"
        assert (one.times, one.tools, one.changes) == (3, ("find_orders", "describe", "send"), True)
        latest, *others = [occurrence.ref for occurrence in one.occurrences]
        assert (
            one.command == f"ideabridge ideas publish {latest} {one.name} "
            f"--with {others[0]} --with {others[1]} --require customer"
        )
        assert {run.id for run in bridge.store.runs.newest(limit=5, caller=SEES_ALL)} == {
            latest,
            *others,
        }


async def test_parts_of_runs_are_found_without_their_failed_calls(home: Path) -> None:
    async with opened(home) as bridge:
        first = await did(bridge, {"_tool": "describe", "order": "x"}, *looked_up("ann"))
        second = await did(bridge, *looked_up("bob"))
        await did(bridge, {"_tool": "find", "customer": ""})
        (one,) = bridge.suggest()
        assert [part.ref for part in one.occurrences] == [second, f"{first}:1-3"]
        # The plans were written before there were results, so nothing in them was copied.
        assert one.signature == "find_and_send(customer, order, to, text, urgent=false)"
        assert one.parameters[0] == ("customer", {"at": ["calls.0.customer"]})


async def test_the_same_arguments_take_three_times(home: Path) -> None:
    async with opened(home) as bridge:
        for _ in range(2):
            await did(bridge, {"_tool": "send", "to": "ann", "text": "hi"})
        assert bridge.suggest() == []
        await did(bridge, {"_tool": "send", "to": "ann", "text": "hi"})
        (one,) = bridge.suggest()
        assert one.signature == 'send(to="ann", text="hi")'
        # Repeating a run in the same way proves nothing.
        assert one.command == f"ideabridge ideas publish {one.occurrences[0].ref} send"
        assert bridge.suggest(least=4) == []


async def test_other_callers_see_only_their_own(home: Path) -> None:
    async with opened(home) as bridge:
        for customer in ("ann", "bob"):
            await did(bridge, *looked_up(customer), caller="user:eve")
        assert bridge.suggest() == []
        assert [one.times for one in bridge.suggest(caller="user:eve")] == [2]


async def test_what_is_a_tool_already_is_not_suggested(home: Path) -> None:
    async with opened(home) as bridge:
        runs = [await did(bridge, *looked_up(customer)) for customer in ("ann", "bob")]
        (one,) = bridge.suggest()
        await bridge.publish(runs[0], one.name, answer="recorded")
        assert bridge.suggest() == []


async def test_a_loop_of_one_tool_is_no_work_of_its_own(home: Path) -> None:
    async with opened(home) as bridge:
        await did(bridge, *({"_tool": "describe", "order": f"o-{number}"} for number in range(9)))
        assert bridge.suggest() == []


async def test_a_part_of_a_run_is_a_run_once(home: Path) -> None:
    async with opened(home) as bridge:
        calls = looked_up("ann")
        calls[1] = {"_tool": "describe", "order": "†results.0.1"}
        run = await did(bridge, *calls)
        part = store_part(bridge.store, run, 1, 2, "local")
        assert store_part(bridge.store, run, 1, 2, "local") == part
        first, second = (await bridge.run(part)).calls()
        assert (first.value, second.value) == ("Order ann-2", "sent to ann")
        assert first.items[0].parameters == {"order": "ann-2"}
        with pytest.raises(PublicationError, match=r"has calls 0 to 2, not 2 to 3"):
            store_part(bridge.store, run, 2, 3, "local")
        with pytest.raises(UnknownRunError):
            store_part(bridge.store, run, 0, 1, "user:eve")


async def publish_as_the_command_says(bridge: Bridge, one: Suggestion) -> JSONObject:
    """Publish a suggestion with the words of its command, and return the schema of the tool."""
    _, _, _, ref, name, *options = one.command.split()
    choices: JSONObject = {}
    parameters: JSONObject = {}
    runs: list[JSON] = []
    for option, value in zip(options[::2], options[1::2], strict=True):
        if option == "--with":
            runs.append(part(bridge, value))
        else:
            assert option == "--require"
            parameters[value] = {"required": True}

    if runs:
        choices["runs"] = runs
    published = await bridge.publish(
        part(bridge, ref), name, choices=choices, parameters=parameters, answer="plan"
    )
    assert published.input_schema is not None
    return published.input_schema


def part(bridge: Bridge, ref: str) -> str:
    run, _, calls = ref.partition(":")
    if not calls:
        return run
    first, _, last = calls.partition("-")
    return store_part(bridge.store, run, int(first), int(last), "local")


def promised(one: Suggestion) -> dict[str, JSON]:
    return {name: entry.get("default", entry.get("optional")) for name, entry in one.parameters}


def kept(schema: JSONObject) -> dict[str, JSON]:
    required = list_or_empty(schema.get("required"))
    return {
        name: None if name in required else object_or_empty(entry).get("default", True)
        for name, entry in object_or_empty(schema["properties"]).items()
    }


@pytest.mark.parametrize("parts", [False, True])
async def test_a_suggestion_and_what_its_command_publishes_agree(parts: bool, home: Path) -> None:
    before: list[object] = [{"_tool": "describe", "order": "x"}] if parts else []
    async with opened(home) as bridge:
        first = await did(bridge, *looked_up("ann"))
        second = await did(bridge, *before, *looked_up("bob"))
        assert first != second
        (one,) = bridge.suggest()
        schema = await publish_as_the_command_says(bridge, one)
        assert promised(one) == kept(schema)
        # A part of a run is lifted like a session, in which values are copied from results.
        assert one.required == (["customer"] if parts else ["customer", "order", "to", "text"])
        assert schema["required"] == one.required


async def test_what_differed_has_no_default(home: Path) -> None:
    """A tool that would write the text of one customer into the file of another, if it is called
    without arguments, is worse than none.
    """
    async with opened(home) as bridge:
        for customer in ("ann", "bob"):
            await did(
                bridge,
                {"_tool": "find", "customer": customer},
                {"_tool": "send", "to": customer, "text": f"A note about {customer}"},
            )
        (one,) = bridge.suggest()
        assert one.required == ["customer", "to", "text"]
        schema = await publish_as_the_command_says(bridge, one)
        assert schema["required"] == one.required
        assert promised(one) == kept(schema)


async def test_a_suggestion_that_is_not_plain_says_what_is_open(home: Path) -> None:
    log = ClaudeCode("many")
    for customer, order in (("ann", "o-17"), ("bob", "o-31")):
        told(customer, order, log)
        log.clock.tick(3600)

    put(home, log)
    async with opened(home) as bridge:
        await taken(bridge)
        (one,) = bridge.suggest()
        assert [point.kind for point in one.open] == ["position"]
        assert one.to_json()["open"] == [point.to_json() for point in one.open]
        schema = await publish_as_the_command_says(bridge, one)
        assert promised(one) == kept(schema)


# -- names by a mind -------------------------------------------------------------------------------


async def named(home: Path, answer: str) -> tuple[list[str], list[str], list[Request]]:
    """Two suggestions with the names of a mind that answers so: the names, the notes, and the
    Requests.
    """
    requests: list[Request] = []

    def mind(request: Request) -> str:
        requests.append(request)
        return answer

    configuration = configured(approval="allow_all")
    store = home / "store.sqlite"
    tools = Toolbox(find, describe, send)
    async with Bridge(configuration, toolbox=tools, store=store, mind=mind) as bridge:
        for customer in ("ann", "bob"):
            await did(bridge, *looked_up(customer))
            await did(
                bridge,
                {"_tool": "send", "to": customer, "text": "secret words"},
                {"_tool": "find", "customer": customer},
            )
        suggestions = bridge.suggest()
        result = await name_suggestions(bridge, suggestions, "local")

    names = [suggestion.name for suggestion in result.suggestions]
    for suggestion in result.suggestions:
        assert f" {suggestion.name} " in suggestion.command
        assert suggestion.signature.startswith(f"{suggestion.name}(")
    return names, result.notes, requests


def solution(*names: object) -> str:
    return json.dumps({"calls": [], "output": {"names": names}})


async def test_a_mind_names_suggestions_in_one_request(home: Path) -> None:
    names, notes, requests = await named(home, solution("mail_orders", "greet_customer"))
    assert (names, notes) == (["mail_orders", "greet_customer"], [])
    (request,) = requests
    text = str(request.texts)
    assert "find" in text
    assert "customer" in text
    # Nothing that people or servers wrote leaves the store.
    assert "ann" not in text
    assert "secret words" not in text


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("i_i_i", "has no word"),
        ("Mail Orders", "is not 1 to 48 of a-z, 0-9 and _, beginning with a letter"),
        ("rm -rf", "is not 1 to 48 of a-z, 0-9 and _, beginning with a letter"),
        ("x" * 49, "is not 1 to 48 of a-z, 0-9 and _, beginning with a letter"),
        ("", "is not 1 to 48 of a-z, 0-9 and _, beginning with a letter"),
        ("run_plan", "is in use"),
        ("send_and_find", "is in use"),
    ],
)
async def test_a_name_that_no_tool_can_have_is_refused_alone(
    home: Path, name: str, problem: str
) -> None:
    names, notes, _ = await named(home, solution(name, "greet_customer"))
    assert names == ["find_and_send", "greet_customer"]
    assert notes == [
        f"find_and_send combines the tools' names, because the model's name {name[:64]!r} {problem}"
    ]


@pytest.mark.parametrize(
    "answer",
    [
        solution("only_one"),
        solution("one_name", "two_names", "three_names"),
        solution(1, 2),
        "I would call them mail_orders and greet_customer.",
        json.dumps({"calls": [{"_tool": "send", "to": "x", "text": "y"}], "output": None}),
    ],
)
async def test_without_an_answer_names_are_made_of_the_tools(home: Path, answer: str) -> None:
    names, notes, requests = await named(home, answer)
    assert names == ["find_and_send", "send_and_find"]
    (note,) = notes
    assert note.startswith("the names combine the tools' names, because the model gave none: ")
    assert len(requests) == 1


async def test_a_result_that_the_output_reads_from_the_state_is_not_dropped(home: Path) -> None:
    async with opened(home) as bridge:
        for customer in ("ann", "bob", "cleo"):
            found = {"_tool": "find", "customer": customer, "_outputPath": "found"}
            described = {"_tool": "describe", "order": f"{customer}-1"}
            calls = [found, described]
            run = await bridge.run_plan({"calls": calls, "output": "†state.found"})
            await run.wait(20)

        (one,) = bridge.suggest()
        dropped = [point.at for point in one.open if point.kind == "dropped_result"]
        assert dropped == ["calls.1"]
