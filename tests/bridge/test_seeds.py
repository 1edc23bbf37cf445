"""The examples of the documents this all comes from, as they stand there: requests, instances,
streaming, people, errors.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence

import anyio
import pytest

from ideabridge.bridge import Bridge, CallFailedError, GroupFailedError
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.runs.people import ApprovalRequest, Decision
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject

pytestmark = pytest.mark.anyio


class Model:
    """Writes one prepared solution for each Request it is asked, and keeps what it was shown."""

    name = "model"

    def __init__(self, *solutions: JSONObject) -> None:
        self.solutions = list(solutions)
        self.shown: list[Request] = []

    async def answer(self, request: Request) -> AsyncIterator[str | bytes]:
        self.shown.append(request)
        yield json.dumps(self.solutions.pop(0), ensure_ascii=False)

    def read(self, step: int) -> str:
        """What the model read at a step."""
        return "\n".join(str(message["content"]) for message in self.shown[step].texts)


def tools(*functions: Callable[..., object]) -> Toolbox:
    box = Toolbox()
    for function in functions:
        box.add(tool(read_only=True)(function))
    return box


# -- 001: a request is a context and a schema; its solution satisfies the schema -------------------


async def test_a_request_without_tools_is_answered_by_its_output() -> None:
    context: list[JSON] = [{"role": "system", "content": "You are a helpful assistant."}]
    model = Model({"calls": [], "output": "Paris"})
    async with Bridge(mind=model) as bridge:
        run = await bridge.solve("What is the capital of France?", context=context)
        assert await run.result() == "Paris"
    assert model.shown[0].texts == [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "What is the capital of France?"},
    ]


# -- 011: two states in one request; a plan is aimed at each by `_instance` ------------------------


async def test_the_sentiment_of_two_texts_in_one_request() -> None:
    def analyze_sentiment(text: str) -> str:
        """Whether a text is positive or negative."""
        return "positive" if "wonderful" in text else "negative"

    context: list[JSON] = [
        {
            "_instance": "①",
            "type": "state",
            "state": {"text": "This is wonderful!"},
            "schema": {
                "type": "object",
                "properties": {"text": {"type": "string"}, "sentiment": {"type": "string"}},
                "required": ["text"],
            },
        },
        {"_instance": "②", "type": "state", "state": {"text": "This is terrible."}},
    ]
    calls: list[JSON] = [
        {
            "_tool": "analyze_sentiment",
            "_instance": "①",
            "text": "†state.text",
            "_outputPath": "sentiment",
        },
        {
            "_tool": "analyze_sentiment",
            "_instance": "②",
            "text": "†state.text",
            "_outputPath": "sentiment",
        },
    ]
    model = Model({"calls": calls}, {"output": "†①.state.sentiment"})
    async with Bridge(mind=model, toolbox=tools(analyze_sentiment)) as bridge:
        run = await bridge.solve("Analyse the sentiment of each text.", context=context)
        assert await run.result() == "positive"
        assert run.machine.state == {
            "①": {"text": "This is wonderful!", "sentiment": "positive"},
            "②": {"text": "This is terrible.", "sentiment": "negative"},
        }

    # The next Request shows the current state of each instance.
    assert '"sentiment": "negative"' in model.read(1)


# -- 010: calls are taken up while they stream, and unblock each other -----------------------------


class Streaming:
    """Writes its solution piece by piece; an event between two pieces is waited for."""

    name = "streaming"

    def __init__(self, pieces: Sequence[str | anyio.Event]) -> None:
        self.pieces = pieces

    async def answer(self, request: Request) -> AsyncIterator[str | bytes]:
        for piece in self.pieces:
            if isinstance(piece, anyio.Event):
                await piece.wait()
            else:
                yield piece


async def test_the_agent_works_on_what_it_knows_before_the_whole_plan_is_known() -> None:
    summarised = anyio.Event()
    order: list[str] = []

    async def fetch(page: str) -> str:
        """A page."""
        order.append(f"fetch {page}")
        return f"text of {page}"

    async def summarise(text: str) -> str:
        """A summary."""
        order.append("summarise")
        summarised.set()
        return text.upper()

    async def publish(summary: str) -> str:
        """Publish a summary."""
        order.append("publish")
        return f"published {summary}"

    pieces = [
        '{"calls": [{"_tool": "fetch", "page": "a", "_outputPath": "te',
        'xt"}, {"_tool": "summarise", "text": "†state.text", "_outputPath": "summary"}',
        # The rest of the plan is written only after the first half has run.
        summarised,
        ', {"_tool": "publish", "summary": "†state.summary", "_outputPath": "done"}], ',
        '"output": "†state.done"}',
    ]
    async with Bridge(mind=Streaming(pieces), toolbox=tools(fetch, summarise, publish)) as bridge:
        run = await bridge.solve("Summarise page a and publish it.")
        assert await run.result() == "published TEXT OF A"

    assert order == ["fetch a", "summarise", "publish"]


async def test_a_call_that_waits_for_data_holds_nobody_else_up() -> None:
    slow, done = anyio.Event(), anyio.Event()

    async def wait() -> str:
        """Wait."""
        await slow.wait()
        return "waited"

    async def go() -> str:
        """Go at once."""
        done.set()
        return "went"

    async def use(value: str) -> str:
        """Use a value."""
        return f"used {value}"

    calls: list[JSON] = [
        {"_tool": "wait", "_outputPath": "a"},
        {"_tool": "use", "value": "†state.a", "_outputPath": "b"},
        {"_tool": "go", "_outputPath": "c"},
    ]
    async with Bridge(
        mind=Model({"calls": calls, "output": "†state.b"}), toolbox=tools(wait, go, use)
    ) as bridge:
        run = await bridge.solve("Do all three.")
        await done.wait()
        slow.set()
        assert await run.result() == "used waited"


# -- 005, 010: a person stands between the proposal and the action ---------------------------------


async def test_a_person_corrects_a_call_and_the_model_learns_of_it() -> None:
    sent: list[str] = []

    @tool(read_only=False)
    def send_mail(to: str, text: str) -> str:
        """Send a mail."""
        sent.append(to)
        return f"sent to {to}"

    async def person(request: ApprovalRequest) -> Decision:
        # Only calls that are ready to run are shown, with their references resolved.
        assert request.call["text"] == "The report is ready."
        return Decision(
            "edit", call={**request.call, "to": "ann@example.org"}, reason="Ann is responsible"
        )

    box = Toolbox()
    box.add(send_mail)
    call: JSON = {
        "_tool": "send_mail",
        "to": "all@example.org",
        "text": "†input.text",
        "_outputPath": "sent",
    }
    model = Model({"calls": [call]}, {"output": "†state.sent"})
    async with Bridge(mind=model, toolbox=box, approver=person) as bridge:
        run = await bridge.solve("Send the text.", input={"text": "The report is ready."})
        assert await run.result() == "sent to ann@example.org"

    assert sent == ["ann@example.org"]
    told = model.read(1)
    assert "A person changed this" in told
    assert "all@example.org" in told
    assert "Ann is responsible" in told


async def test_a_person_says_no_and_the_model_finds_another_way() -> None:
    @tool(read_only=False)
    def delete_all() -> str:
        """Delete everything."""
        raise AssertionError("it must not run")

    async def person(request: ApprovalRequest) -> Decision:
        return Decision("deny", reason="never")

    box = Toolbox()
    box.add(delete_all)
    model = Model({"calls": [{"_tool": "delete_all"}]}, {"output": "left as it is"})
    async with Bridge(mind=model, toolbox=box, approver=person) as bridge:
        run = await bridge.solve("Tidy up.")
        assert await run.result() == "left as it is"

    assert "never" in model.read(1)


# -- 010: errors are data, and the next request repairs them ---------------------------------------


async def test_the_model_sees_its_failed_call_with_the_error_and_repairs_it() -> None:
    def divide(a: int, b: int) -> float:
        """a / b."""
        return a / b

    def note(text: str) -> str:
        """Keep a text."""
        return text

    model = Model(
        {
            "calls": [
                # A structural error, an error at run time, a call that depends on that error, and a
                # call that none of this affects.
                {"_tool": "divde", "a": 1, "b": 2},
                {"_tool": "divide", "a": 1, "b": 0, "_outputPath": "ratio"},
                {"_tool": "note", "text": "†state.ratio"},
                {"_tool": "note", "text": "kept", "_outputPath": "note"},
            ]
        },
        {
            "calls": [{"_tool": "divide", "a": 1, "b": 2, "_outputPath": "ratio"}],
            "output": {"ratio": "†state.ratio"},
        },
    )
    schema: JSONObject = {
        "type": "object",
        "properties": {"ratio": {"type": "number"}},
        "required": ["ratio"],
    }
    async with Bridge(mind=model, toolbox=tools(divide, note)) as bridge:
        run = await bridge.solve("Divide.", output_schema=schema)
        assert await run.result() == {"ratio": 0.5}
        # A failed call does not take the others with it.
        assert run.machine.state == {"ratio": 0.5, "note": "kept"}

    told = model.read(1)
    assert "did you mean 'divide'" in told.lower()
    assert "ZeroDivisionError: division by zero" in told
    assert "call 1 (divide), which writes it, failed" in told
    assert told.index("divde") < told.index("ZeroDivisionError") < told.index("which writes it")


async def test_an_error_branch_that_was_planned_is_no_error() -> None:
    def risky() -> str:
        """May fail."""
        raise ValueError("no luck")

    def apologise(problem: JSONObject) -> str:
        """Say sorry."""
        return f"sorry: {problem['message']}"

    def celebrate(value: str) -> str:
        """Say hooray."""
        return f"hooray: {value}"

    calls: list[JSON] = [
        {"_tool": "risky", "_outputPath": "†state.value || †state.problem"},
        {"_tool": "celebrate", "value": "†state.value", "_outputPath": "answer.good"},
        {"_tool": "apologise", "problem": "†state.problem", "_outputPath": "answer.bad"},
    ]
    model = Model({"calls": calls, "output": "†state.answer.good || †state.answer.bad"})
    async with Bridge(mind=model, toolbox=tools(risky, apologise, celebrate)) as bridge:
        run = await bridge.solve("Try.")
        assert await run.result() == "sorry: ValueError: no luck"
        assert run.errors() == []


# -- 004: one call, all of them, any, a race (`Tool(call)`, `Tool.all`, `Tool.any`, `Tool.race`) ---


class Sources:
    """Asks places for an answer; each waits for its turn, some fail."""

    def __init__(self) -> None:
        self.turns = {name: anyio.Event() for name in ("mirror", "main", "broken")}
        self.asked: list[str] = []
        self.stopped: list[str] = []
        self.all_asked = anyio.Event()

        async def ask(source: str) -> str:
            """Ask a source."""
            self.asked.append(source)
            if len(self.asked) == len(self.turns):
                self.all_asked.set()

            try:
                await self.turns[source].wait()
            except BaseException:
                self.stopped.append(source)
                raise

            if source == "broken":
                raise ConnectionError("nobody there")
            return f"from {source}"

        self.toolbox = tools(ask)

    @staticmethod
    def call(source: str) -> JSONObject:
        return {"_tool": "ask", "source": source, "_outputPath": source}

    async def give_turns(self, *names: str) -> None:
        await self.all_asked.wait()
        for name in names:
            self.turns[name].set()


async def test_a_single_call_gives_its_result_and_the_program_goes_on_with_it() -> None:
    sources = Sources()
    for turn in sources.turns.values():
        turn.set()

    async with Bridge(toolbox=sources.toolbox) as bridge, bridge.session() as session:
        first = await session.run(sources.call("main"))
        assert first == "from main"
        # Make one call at a time, with the program's own logic in between.
        if "main" in str(first):
            assert await session.run(sources.call("mirror")) == "from mirror"

        assert session.state == {"main": "from main", "mirror": "from mirror"}


async def test_all_calls_are_waited_for_and_are_all_or_nothing() -> None:
    sources = Sources()
    calls = [sources.call("main"), sources.call("mirror")]
    for turn in sources.turns.values():
        turn.set()

    async with Bridge(toolbox=sources.toolbox) as bridge, bridge.session() as session:
        with pytest.raises(GroupFailedError, match="nobody there"):
            await session.run_all([*calls, sources.call("broken")])

        assert session.state == {}
        assert await session.run_all(calls) == ["from main", "from mirror"]
        assert session.state == {"main": "from main", "mirror": "from mirror"}


async def test_any_stops_at_the_first_success() -> None:
    sources = Sources()
    async with (
        Bridge(toolbox=sources.toolbox) as bridge,
        bridge.session() as session,
        anyio.create_task_group() as group,
    ):
        group.start_soon(sources.give_turns, "broken", "mirror")
        with anyio.fail_after(20):
            assert (
                await session.run_any([sources.call(name) for name in sources.turns])
                == "from mirror"
            )

        assert session.state == {"mirror": "from mirror"}

    assert sources.stopped == ["main"]


async def test_a_race_is_over_with_the_first_to_end_whether_it_succeeds_or_not() -> None:
    sources = Sources()
    async with (
        Bridge(toolbox=sources.toolbox) as bridge,
        bridge.session() as session,
        anyio.create_task_group() as group,
    ):
        group.start_soon(sources.give_turns, "broken")
        with anyio.fail_after(20), pytest.raises(CallFailedError, match="nobody there"):
            await session.run_race([sources.call(name) for name in sources.turns])
        assert session.state == {}

    assert sorted(sources.stopped) == ["main", "mirror"]


async def test_one_line_makes_one_call_all_of_them_any_or_a_race() -> None:
    """Without a session, as the document writes it."""
    sources = Sources()
    calls = [sources.call(name) for name in sources.turns]
    for turn in sources.turns.values():
        turn.set()

    async with Bridge(toolbox=sources.toolbox) as bridge:
        assert await bridge.call(sources.call("main")) == "from main"
        assert await bridge.all(calls[:2]) == ["from mirror", "from main"]
        with pytest.raises(GroupFailedError, match="nobody there"):
            await bridge.all(calls)

        with pytest.raises(CallFailedError, match="nobody there"):
            await bridge.call(sources.call("broken"))

        # Each is a run of its own, with its own journal and idea.
        runs = bridge.runs()
        assert len(runs) == 4
        assert all(len(bridge.store.ideas.of_run(run["run"])) == 1 for run in runs)


async def test_one_line_stops_the_calls_that_lose() -> None:
    for race in (False, True):
        sources = Sources()
        calls = [sources.call(name) for name in sources.turns]
        async with Bridge(toolbox=sources.toolbox) as bridge, anyio.create_task_group() as group:
            if race:
                group.start_soon(sources.give_turns, "broken")
                with anyio.fail_after(20), pytest.raises(CallFailedError, match="nobody there"):
                    await bridge.race(calls)
            else:
                group.start_soon(sources.give_turns, "broken", "mirror")
                with anyio.fail_after(20):
                    assert await bridge.any(calls, output=str) == "from mirror"
        assert sorted(sources.stopped) == (["main", "mirror"] if race else ["main"])


# -- 011: several states in one request ------------------------------------------------------------

POSITIVE: JSON = {"type": "state", "state": {"text": "This is wonderful!"}}
NEGATIVE: JSON = {
    "role": "user",
    "content": {"type": "state", "state": {"text": "This is terrible."}},
}


def mood(text: str) -> str:
    """The mood of a text."""
    return "good" if "wonderful" in text else "bad"


def judged(instance: str) -> JSON:
    return {
        "_tool": "mood",
        "_instance": instance,
        "text": "†state.text",
        "_outputPath": "sentiment",
    }


async def test_states_without_an_instance_get_ids_in_order_and_the_answer_holds_each() -> None:
    model = Model({"calls": [judged("①"), judged("②")], "output": "†①.state.sentiment"})
    async with Bridge(toolbox=tools(mood), mind=model) as bridge:
        run = await bridge.solve("Judge both.", context=[POSITIVE, NEGATIVE])
        assert await run.result() == "good"
        states = {
            "①": {"text": "This is wonderful!", "sentiment": "good"},
            "②": {"text": "This is terrible.", "sentiment": "bad"},
        }
        assert run.state == run.answer()["state"] == states

    told = model.read(0)
    assert (
        told.index("of instance ①")
        < told.index("wonderful")
        < told.index("of instance ②")
        < told.index("terrible")
    )
    assert '"enum": ["①", "②"]' in json.dumps(model.shown[0].schema, ensure_ascii=False)


async def test_states_that_name_an_instance_keep_it_and_the_others_take_names_nobody_has() -> None:
    context: list[JSON] = [
        NEGATIVE,
        {"type": "state", "state": {"text": "wonderful"}, "_instance": "①"},
        {"type": "input", "input": {"n": 1}, "_instance": "②"},
        POSITIVE,
    ]
    async with Bridge(toolbox=tools(mood)) as bridge:
        run = await bridge.solve("Judge them.", context=context)
        assert run.state == {
            "①": {"text": "wonderful"},
            "②": {},
            "③": {"text": "This is terrible."},
            "④": {"text": "This is wonderful!"},
        }
        # A single state needs no name, and two messages about one instance do not make two
        # instances.
        alone = await bridge.solve("Judge it.", context=[POSITIVE])
        assert alone.state == {"text": "This is wonderful!"}
        named: JSON = {"type": "state", "state": {"more": 1}, "_instance": "a"}
        both = await bridge.solve("Judge it.", context=[named, {**named, "state": {"text": "x"}}])
        assert both.state == {"a": {"more": 1, "text": "x"}}
        many = await bridge.solve("Judge them.", context=[POSITIVE] * 52)
        assert list(many.state)[19:21] == ["⑳", "㉑"]
        assert list(many.state)[34:36] == ["㉟", "㊱"]
        assert list(many.state)[49:] == ["㊿", "51", "52"]


async def test_the_answer_with_an_output_holds_the_final_state_too() -> None:
    model = Model({"calls": [], "output": "done"}, {"calls": [], "output": "done"})
    async with Bridge(toolbox=tools(mood), mind=model) as bridge:
        run = await bridge.solve("Say done.", context=[POSITIVE])
        assert await run.result() == "done"
        assert run.answer()["state"] == {"text": "This is wonderful!"}
        bare = await bridge.solve("Say done.")
        assert await bare.result() == "done"
        assert "state" not in bare.answer()
