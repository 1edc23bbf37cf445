"""What a mind sees: what it was given whole, results up to a budget, and the rest
announced and readable.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import cast

import anyio
import pytest

from ideabridge.bridge import Bridge, Configuration, RequestMade, Run
from ideabridge.bridge.configuration import ApprovalRules
from ideabridge.bridge.context.messages import Handlers
from ideabridge.bridge.context.reader import READ
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.context.shown import TO_MINDS, Shown
from ideabridge.bridge.minds.settings import ShownSettings
from ideabridge.bridge.store.idea import Idea
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject, encode
from ideabridge.tools.errors import ArgumentError

from .fake import Fail, say
from .test_model import asked

pytestmark = pytest.mark.anyio

TEXT: dict[str, JSON] = {"type": "string"}


@tool(read_only=True)
def fetch(number: int, size: int) -> str:
    """A page."""
    words = " ".join(f"w{number}.{place}" for place in range(size // 4))
    return f"begin{number} {words[: size - 20]} end{number}"


class Scripted:
    """Gives answers that may depend on the Request, and keeps every Request."""

    name = "scripted"

    def __init__(self, *answers: JSONObject | Callable[[Request], JSONObject]) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []

    async def answer(self, request: Request) -> AsyncIterator[str]:
        self.requests.append(request)
        answer = self.answers.pop(0)
        yield json.dumps(
            answer if isinstance(answer, dict) else answer(request), ensure_ascii=False
        )

    def text(self, number: int) -> str:
        return "\n".join(str(one["content"]) for one in self.requests[number].texts)


def calls(*listed: JSON, output: JSON = None) -> JSONObject:
    return {"calls": list(listed), "output": output}


def fetched(number: int, size: int, **more: JSON) -> JSON:
    return {"_tool": "fetch", "number": number, "size": size, **more}


def ideas(bridge: Bridge, run: Run) -> Iterator[Idea]:
    for record in bridge.store.ideas.of_run(run.id):
        yield bridge.store.ideas.get(record.id, caller=SEES_ALL).idea


def assert_made_again(bridge: Bridge, run: Run, requests: list[Request]) -> None:
    """Every Request of a run is made again from its exported idea alone."""
    made = list(ideas(bridge, run))
    assert len(made) == len(requests)
    for idea, request in zip(made, requests, strict=True):
        document = cast("dict[str, JSONObject]", json.loads(json.dumps(_exported(idea))))
        context = cast("list[JSON]", document["context"])
        texts = Handlers().render(context, document["schema"], Shown.from_json(document["shown"]))
        assert texts == request.texts
        assert idea.request_id == request.id


def _exported(idea: Idea) -> JSONObject:
    return {"context": idea.context, "schema": idea.schema, "shown": idea.shown}


# -- what the author wrote -------------------------------------------------------------------------


async def test_an_endpoint_is_sent_what_the_budget_admits_and_told_of_the_rest() -> None:
    letter = "Dear reader, " + "word " * 60_000 + "yours, Ann"
    many = [fetched(number, 500) for number in range(200)]
    script = (
        say(json.dumps(calls(fetched(1000, 2_000_000), *many))),
        say(json.dumps(calls({"_tool": "read", "reference": "†results.0", "find": "end1000"}))),
        say(json.dumps(calls(output="done"))),
    )
    async with asked(*script, toolbox=Toolbox(fetch)) as (bridge, fake, _):
        run = await bridge.solve(
            "Summarise the letter.", input={"letter": letter}, output_schema=TEXT
        )
        assert await run.wait(60) == "done", run.answer()
        assert letter in fake.texts(0)
        assert letter in fake.texts(1)
        for number in range(200):
            assert f"end{number}" in fake.texts(1)

        assert "end1000" not in fake.texts(1)
        assert "(1 earlier ones are not listed, and made †results.0). Values" in fake.texts(1)
        assert "call read to see more of one" in fake.texts(1)
        assert "end1000" in fake.texts(2)
        assert [one.status.value for one in run.calls()] == ["done"] * 202


async def test_each_instance_sees_its_own_state_and_the_rest_is_announced_by_instance() -> None:
    context: list[JSON] = [
        {"type": "state", "state": {"letter": name * 3000}, "_instance": name}
        for name in ("a", "b", "c")
    ]
    mind = Scripted(
        calls(
            *(
                fetched(number, 20_000, _instance=name, _outputPath="page")
                for number, name in enumerate("abc")
            ),
            *(
                fetched(number, 300, _instance=name, _outputPath="note")
                for number, name in enumerate("abc", 10)
            ),
        ),
        calls({"_tool": "read", "_instance": "b", "reference": "†b.state.page", "find": "end1"}),
        calls(output="done"),
    )
    async with Bridge(toolbox=Toolbox(fetch), mind=mind) as bridge:
        run = await bridge.solve("Go.", context=context, output_schema=TEXT)
        assert await run.wait(20) == "done", run.answer()
        for number, name in enumerate("abc"):
            assert name * 3000 in mind.text(1), "the author wrote it"
            assert f"end{number + 10}" in mind.text(1)
            assert (
                f"1 value is shortened here to a preview: †{name}.state.page; call read"
                in mind.text(1)
            )

        assert 'end1\\"' in mind.text(2) or 'end1"' in mind.text(2)
        assert_made_again(bridge, run, mind.requests)


async def test_an_initial_state_is_shown_whole_until_a_call_replaces_it() -> None:
    mind = Scripted(
        calls(fetched(1, 50_000, _outputPath="new"), fetched(2, 50_000, _outputPath="old")),
        calls(output="x"),
    )
    async with Bridge(toolbox=Toolbox(fetch), mind=mind) as bridge:
        state: JSON = {"old": "o" * 9000, "kept": "k" * 40_000}
        run = await bridge.solve(
            "Go.", context=[{"type": "state", "state": state}], output_schema=TEXT
        )
        assert await run.wait(20) == "done"
        assert "k" * 40_000 in mind.text(1)
        assert "2 values are shortened here to a preview: †state.old, †state.new;" in mind.text(
            1
        ) or ("2 values are shortened here to a preview: †state.new, †state.old;" in mind.text(1))
        assert_made_again(bridge, run, mind.requests)


# -- the budget ------------------------------------------------------------------------------------


async def test_newest_results_are_shown_first_and_earlier_calls_are_counted() -> None:
    mind = Scripted(calls(*(fetched(number, 2000) for number in range(100))), calls(output="x"))
    async with Bridge(toolbox=Toolbox(fetch), mind=mind) as bridge:
        run = await bridge.solve("Go.", output_schema=TEXT, shown={"request": 20_000})
        assert await run.wait(20) == "done"
        whole = [number for number in range(100) if f'end{number}"' in mind.text(1)]
        assert whole == list(range(90, 100))
        first = ", ".join(f"†results.{number}" for number in range(5))
        assert f"(50 earlier ones are not listed, and made {first} and 45 more)" in mind.text(1)
        assert "50 fetch: done, †results.50, shortened" in mind.text(1)
        assert mind.requests[1].shown == {"value": 16384, "request": 20_000}
        assert_made_again(bridge, run, mind.requests)


async def test_what_was_read_last_is_shown_before_newer_results() -> None:
    # A page of 15,000 bytes is read in parts, and each part stays visible although newer results
    # fill the budget.
    def reading(start: int) -> JSONObject:
        others = [fetched(100 + start + number, 3500) for number in range(12)]
        return calls({"_tool": "read", "reference": "†results.0", "from": start}, *others)

    mind = Scripted(calls(fetched(7, 15_000)), reading(0), reading(3000), calls(output="x"))
    async with Bridge(toolbox=Toolbox(fetch), mind=mind) as bridge:
        limits = {"value": 4096, "request": 16_384}
        run = await bridge.solve("Go.", output_schema=TEXT, shown=limits)
        assert await run.wait(20) == "done", run.answer()
        page = str(run.value("†results.0"))
        assert page[3000:6000] in mind.text(3), "the last read"
        assert page[:3000] in mind.text(3), "and the one before"
        for number in (1, 14):
            assert len(encode(run.value(f"†results.{number}"))) <= 4096

        assert_made_again(bridge, run, mind.requests)


async def test_a_limit_of_the_configuration_holds_unless_the_run_says_otherwise() -> None:
    configuration = Configuration(shown=ShownSettings(value=512))
    for asked_for, expected in (
        (None, {"value": 512, "request": TO_MINDS.request}),
        ({"value": 1024}, {"value": 1024, "request": TO_MINDS.request}),
    ):
        mind = Scripted(calls(fetched(1, 800)), calls(output="x"))
        async with Bridge(configuration, toolbox=Toolbox(fetch), mind=mind) as bridge:
            run = await bridge.solve("Go.", output_schema=TEXT, shown=asked_for)
            assert await run.wait(20) == "done"
            assert mind.requests[1].shown == expected
            assert ("shortened" in mind.text(1)) is (asked_for is None)

    async with Bridge(configuration, toolbox=Toolbox(fetch)) as bridge:
        run = await bridge.solve("Go.")
        assert run.runner.request is not None
        assert run.runner.request.shown == {"value": 512, "request": 32 * 1024}


async def test_limits_that_make_no_sense_are_refused() -> None:
    async with Bridge(toolbox=Toolbox(fetch)) as bridge:
        bad: list[tuple[dict[str, object], str]] = [
            ({"value": 0}, "shown.value"),
            ({"value": True}, "shown.value"),
            ({"request": 10**12}, "shown.request"),
            ({"bytes": 1000}, "value and request"),
        ]
        for limits, said in bad:
            with pytest.raises(ArgumentError, match=said):
                await bridge.solve("Go.", shown=limits)  # pyright: ignore[reportArgumentType]


# -- reading ---------------------------------------------------------------------------------------


async def test_read_gives_parts_of_texts_lists_and_objects_by_references_of_any_form() -> None:
    @tool(read_only=True)
    def table() -> list[dict[str, int]]:
        """Rows."""
        return [{"id": number, "square": number * number} for number in range(2000)]

    @tool(read_only=True)
    def tree() -> dict[str, str]:
        """Leaves."""
        return {f"leaf{number}": "x" * 40 for number in range(1000)}

    def read(reference: str, **more: JSON) -> JSON:
        return {"_tool": "read", "reference": reference, **more}

    mind = Scripted(
        calls({"_tool": "table", "_outputPath": "rows"}, {"_tool": "tree"}),
        calls(
            read("state.rows", **{"from": 1000, "length": 2}),
            read("†state.rows", find='"square":1000000'),
            read("†results.1", **{"from": 10, "length": 20}),
            read("results.1.leaf7"),
            read("†state.rows.5"),
            read("†state.rows", **{"from": 5000}),
            read("the rows"),
        ),
        calls(output="x"),
    )
    async with Bridge(toolbox=Toolbox(table, tree), mind=mind) as bridge:
        run = await bridge.solve("Go.", output_schema=TEXT)
        assert await run.wait(20) == "done", run.answer()
        made = run.calls()[2:]
        assert made[0].value == {
            "reference": "†state.rows",
            "items": [{"id": 1000, "square": 1_000_000}, {"id": 1001, "square": 1_002_001}],
            "from": 1000,
            "length": 2,
            "of": 2000,
            "unit": "items",
        }
        found = cast("JSONObject", made[1].value)
        assert (found["count"], found["unit"]) == (1, "items")
        assert cast("list[JSONObject]", found["matches"])[0]["at"] == 1000
        part = cast("JSONObject", made[2].value)
        assert (part["unit"], part["length"]) == ("characters of its JSON", 20)
        assert made[3].value == {"reference": "†results.1.leaf7", "value": "x" * 40}
        assert made[4].value == {"reference": "†state.rows.5", "value": {"id": 5, "square": 25}}
        assert "past the end; the value has 2,000 items" in mind.text(2)
        assert 'reference: found "the rows", expected a reference such as †state.log' in mind.text(
            2
        )
        assert_made_again(bridge, run, mind.requests)


async def test_read_is_offered_where_something_is_shortened_and_needs_no_approval() -> None:
    mind = Scripted(
        calls(fetched(1, 100)),
        calls(fetched(2, 50_000)),
        calls({"_tool": "read", "reference": "†results.1", "find": "end2"}),
        calls(output="x"),
    )
    rules = ApprovalRules.model_validate(
        {"rules": ({"tool": "fetch", "then": "allow"},), "default": "deny"}
    )
    async with Bridge(Configuration(approval=rules), toolbox=Toolbox(fetch), mind=mind) as bridge:
        run = await bridge.solve("Go.", output_schema=TEXT)
        assert await run.wait(20) == "done", run.answer()
        offered = ['"const":"read"' in encode(one.schema).decode() for one in mind.requests]
        assert offered == [False, False, True, True]
        assert run.calls()[2].status.value == "done"
        assert "2 read †results.1: done, †results.2 = " in mind.text(3)


async def test_a_tool_of_the_user_with_that_name_keeps_it() -> None:
    @tool(read_only=True)
    def read(reference: str) -> str:
        """Read a book."""
        return f"the book {reference}"

    def check(request: Request) -> JSONObject:
        schema = encode(request.schema).decode()
        assert '"const":"read_shortened"' in schema
        assert schema.count('"const":"read"') == 1
        return calls(
            {"_tool": "read", "reference": "of hours"},
            {"_tool": "read_shortened", "reference": "†results.0", "find": "end2"},
        )

    mind = Scripted(calls(fetched(2, 50_000)), check, calls(output="x"))
    async with Bridge(toolbox=Toolbox(fetch, read), mind=mind) as bridge:
        run = await bridge.solve("Go.", output_schema=TEXT)
        assert await run.wait(20) == "done", run.answer()
        assert "call read_shortened to see more" in mind.text(1)
        assert run.calls()[1].value == "the book of hours"
        assert cast("JSONObject", run.calls()[2].value)["count"] == 1
        assert_made_again(bridge, run, mind.requests)


async def test_a_run_that_was_read_is_resumed_with_the_same_requests(tmp_path: object) -> None:
    store = f"{tmp_path}/ideas.sqlite"
    async with Bridge(toolbox=Toolbox(fetch), store=store) as bridge:
        run = await bridge.solve("Go.", output_schema=TEXT, shown={"value": 1000})
        run.submit(0, calls(fetched(1, 50_000)))
        assert await run.wait(30) == "needs_solution"
        run.submit(1, calls({"_tool": "read", "reference": "†results.0", "find": "end1"}))
        assert await run.wait(30) == "needs_solution"
        assert run.runner.request is not None
        before = run.runner.request

    async with Bridge(toolbox=Toolbox(fetch), store=store) as bridge:
        again = await bridge.resume(run.id)
        assert again.runner.request is not None
        assert again.runner.request.id == before.id
        assert again.runner.request.texts == before.texts
        again.submit(
            2, calls({"_tool": "read", "reference": "†results.0"}, output="†results.2.text")
        )
        assert await again.wait(30) == "done", again.answer()
        fork = await bridge.fork(run.id, 5)
        assert fork.machine.shown.value == 1000


# -- rooms -----------------------------------------------------------------------------------------


async def test_a_clean_room_sees_the_whole_value_that_it_imports() -> None:
    log = "line of the log\n" * 400
    plan_call: JSON = {
        "_tool": "solve",
        "_module": "anonymous",
        "task": "Summarise.",
        "_imports": ["input.log"],
        "_outputPath": "summary",
    }
    mind = Scripted(calls(output="short"))
    async with Bridge(toolbox=Toolbox(fetch), mind=mind) as bridge:
        run = await bridge.run_plan(calls=[cast("JSONObject", plan_call)], input={"log": log})
        assert await run.wait(20) == "done", run.answer()
        assert json.dumps(log)[1:-1] in mind.text(0)


async def test_a_latent_call_sees_the_results_before_it_and_can_read_them() -> None:
    def reading(request: Request) -> JSONObject:
        text = "\n".join(str(one["content"]) for one in request.texts)
        assert "0 fetch: done, †data.results.0, shortened: " in text
        return calls({"_tool": "read", "reference": "†data.results.0", "find": "end1"})

    def answering(request: Request) -> JSONObject:
        text = "\n".join(str(one["content"]) for one in request.texts)
        assert re.search(r"0 read †data\.results\.0: done, †results\.0 = .*end1", text)
        return calls(output="a title")

    title = {"_tool": "title", "page": "†state.page", "_outputPath": "title"}
    mind = Scripted(
        calls(fetched(1, 50_000), fetched(2, 100, _outputPath="page")),
        calls(cast("JSON", title)),
        reading,
        answering,
        calls(output="†state.title"),
    )
    definition: JSON = {
        "type": "tool",
        "tool": {
            "name": "title",
            "description": "Give a title.",
            "parameters": {
                "type": "object",
                "properties": {"page": {"type": "string"}},
                "required": ["page"],
            },
        },
    }
    async with Bridge(toolbox=Toolbox(fetch), mind=mind) as bridge:
        run = await bridge.solve("Go.", context=[definition], output_schema=TEXT)
        assert await run.wait(20) == "done", run.answer()
        assert await run.result() == "a title"


def test_the_tool_is_defined_once() -> None:
    assert READ.parameters["required"] == ["reference"]


# -- publishing ------------------------------------------------------------------------------------


async def test_a_published_plan_has_no_calls_that_only_showed_a_value() -> None:
    @tool(read_only=True)
    def measure(text: str) -> int:
        """The length of a text."""
        return len(text)

    mind = Scripted(
        calls(fetched(1, 50_000)),
        calls({"_tool": "read", "reference": "†results.0", "find": "end1"}),
        calls({"_tool": "measure", "text": "†results.0"}),
        calls(output="†results.2"),
    )
    async with Bridge(toolbox=Toolbox(fetch, measure), mind=mind) as bridge:
        run = await bridge.solve("How long?", output_schema={"type": "integer"})
        assert await run.wait(20) == "done", run.answer()
        published = await bridge.publish(run.id, "how_long")
        assert published.plan is not None
        names = [one["_tool"] for one in cast("list[JSONObject]", published.plan["calls"])]
        assert names == ["fetch", "measure"]
        assert published.plan["output"] == "†results.1"
        replay = await bridge.start_idea("how_long", {})
        assert replay.run is not None
        assert await replay.run.result() == run.answer()["output"]


async def test_what_was_passed_on_from_a_read_value_is_passed_on_from_its_place() -> None:
    mind = Scripted(
        calls(fetched(1, 20_000, _outputPath="page"), fetched(2, 200, _outputPath="small")),
        calls(
            {"_tool": "read", "reference": "†state.small"},
            {"_tool": "read", "reference": "†state.page", "length": 6},
        ),
        calls({"_tool": "join", "items": ["†results.2.value", "†results.3.text"]}),
        calls(output="†results.4"),
    )
    async with Bridge(toolbox=Toolbox(fetch), mind=mind) as bridge:
        run = await bridge.solve("Go.", output_schema=TEXT)
        assert await run.wait(20) == "done", run.answer()
        published = await bridge.publish(run.id, "parts")
        assert published.plan is not None
        made = cast("list[JSONObject]", published.plan["calls"])
        assert [one["_tool"] for one in made] == ["fetch", "fetch", "join"]
        assert cast("list[JSON]", made[2]["items"])[0] == "†state.small"
        replay = await bridge.start_idea("parts", {})
        assert replay.run is not None
        assert await replay.run.result() == run.answer()["output"]


# -- what a Request costs --------------------------------------------------------------------------

TOO_LARGE = [
    (
        400,
        (
            "This model's maximum context length is 8192 tokens. However, your messages "
            "resulted in 75012 tokens."
        ),
    ),
    (
        400,
        (
            "Your input exceeds the context window of this model. Please adjust "
            "your input and try again."
        ),
    ),
    (400, "prompt is too long: 213462 tokens > 200000 maximum"),
    (400, "the request exceeds the available context size (4096 tokens), try increasing it"),
    (
        400,
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    ),
    (500, "input exceeds context length"),
    (413, "request_too_large: Request exceeds the maximum size"),
]


@pytest.mark.parametrize(("status", "message"), TOO_LARGE)
async def test_a_context_too_large_for_its_model_is_an_error_that_names_the_message(
    status: int, message: str
) -> None:
    async with asked(Fail(status, message), toolbox=Toolbox(fetch)) as (bridge, fake, _):
        given: JSONObject = {"letter": "word " * 60_000, "title": "t"}
        run = await bridge.solve("Summarise.", input=given, output_schema=TEXT)
        assert await run.wait(20) == "failed"
        reason = str(run.answer()["reason"])
        assert message in reason
        assert "the Request is too long for this model" in reason
        assert "its largest message, number 2 of 2, has 300,0" in reason
        assert "Input, read as †input.KEY:" in reason
        assert "most of it is †input.letter, 300,002 bytes" in reason
        assert len(fake.bodies) == 1, "it would be refused again"


async def test_a_limit_on_tokens_holds_for_a_mind_that_reports_no_usage() -> None:
    asked = 0

    async def look_again(request: Request) -> JSONObject:
        nonlocal asked
        asked += 1
        return {"calls": [{"_tool": "count", "items": "x", "_outputPath": "n"}], "output": None}

    async with Bridge(mind=look_again) as bridge:
        run = await bridge.solve(
            "Go.", input={"letter": "word " * 20_000}, limits={"tokens": 40_000}
        )
        assert await run.wait(20) == "limit"
        # Each Request has at least about 12,500 tokens.
        assert asked == 3
        assert "(an estimate from" in str(run.machine.reason)
        again = await bridge.run(run.id)
        assert again.answer()["usage"]["estimated_tokens"] > 24_000


async def test_a_limit_on_tokens_holds_before_a_request_is_sent() -> None:
    mind = Scripted(calls(output="x"))
    async with Bridge(toolbox=Toolbox(fetch), mind=mind) as bridge:
        given: JSONObject = {"letter": "word " * 60_000}
        run = await bridge.solve("Go.", input=given, output_schema=TEXT, limits={"tokens": 10_000})
        assert await run.wait(20) == "limit"
        reason = str(run.answer()["reason"])
        assert re.search(
            r"has at least 3\d,\d{3} tokens \(an estimate from 3\d\d,\d{3} bytes of text\)", reason
        )
        assert "10,000 of 10,000 are left" in reason
        assert "†input.letter" in reason
        assert mind.requests == []


async def test_what_a_request_costs_is_shown_while_it_is_answered() -> None:
    begun, ended = anyio.Event(), anyio.Event()

    class Slow(Scripted):
        async def answer(self, request: Request) -> AsyncIterator[str]:
            begun.set()
            await ended.wait()
            async for piece in super().answer(request):
                yield piece

    mind = Slow(calls(output="x"))
    async with Bridge(toolbox=Toolbox(fetch), mind=mind) as bridge:
        run = await bridge.solve("Go.", input={"letter": "word " * 4000}, output_schema=TEXT)
        with anyio.fail_after(20):
            await begun.wait()

        told = run.answer()["usage"]["request"]
        assert 20_000 < told["bytes"] < 40_000
        assert told["about_tokens"] == told["bytes"] // 4
        made = [event async for event in aiter_until(run)]
        assert made[-1].bytes == told["bytes"]
        ended.set()
        assert await run.wait(20) == "done"
        assert "request" not in run.answer()["usage"]


async def aiter_until(run: Run) -> AsyncIterator[RequestMade]:
    async for event in run.events():
        if isinstance(event, RequestMade):
            yield event
            return
