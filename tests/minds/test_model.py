"""A model endpoint as the mind, over real HTTP: streaming, forms, retries, repairs, timeouts."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import Bridge, Configuration, Run
from ideabridge.bridge.context.messages import Draft, Handlers, Message
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.minds.model import ModelMind
from ideabridge.bridge.minds.settings import ModelConfiguration
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON
from tests import keyrings

from .fake import Behaviour, Fail, FakeEndpoint, Hang, Nothing, Refuse, Say, drop, endpoint, say

pytestmark = pytest.mark.anyio

TEXT: dict[str, JSON] = {"type": "string"}
ASKED = {"messages", "model", "response_format", "stream", "stream_options"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "TINY_KEY"):
        monkeypatch.delenv(name, raising=False)


@tool(read_only=True)
def shout(text: str) -> str:
    """Make text loud."""
    return text.upper()


def solution(*calls: JSON, output: JSON = None) -> str:
    return json.dumps({"calls": list(calls), "output": output}, ensure_ascii=False)


def call(text: str, path: str | None = None) -> dict[str, JSON]:
    made: dict[str, JSON] = {"_tool": "shout", "text": text}
    return made if path is None else {**made, "_outputPath": path}


DONE = say(solution(call("a", "a"), output="†state.a"))


class Sleeps:
    """Waits for nobody, and notes how long it should have."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@asynccontextmanager
async def asked(
    *behaviours: Behaviour,
    toolbox: Toolbox | None = None,
    store: Path | None = None,
    **settings: Any,
) -> AsyncGenerator[tuple[Bridge, FakeEndpoint, Sleeps]]:
    """A bridge whose mind is a fake endpoint."""
    async with endpoint(*behaviours) as fake:
        sleeps = Sleeps()
        configuration = ModelConfiguration(name="openai:tiny-1", base_url=fake.base_url, **settings)
        bridge = Bridge(toolbox=toolbox or Toolbox(shout), store=store)
        bridge.mind = ModelMind(configuration, bridge.secrets, sleep=sleeps)
        async with bridge:
            yield bridge, fake, sleeps


async def solved(bridge: Bridge, output: JSON = "A") -> Run:
    run = await bridge.solve("x", output_schema=TEXT)
    with anyio.fail_after(60):
        assert await run.wait() == "done", run.answer()
    assert run.answer()["output"] == output
    return run


async def failed(bridge: Bridge, status: str = "stalled") -> str:
    """What a run says that came to nothing."""
    run = await bridge.solve("x", output_schema=TEXT)
    with anyio.fail_after(60):
        assert await run.wait() == status
    return json.dumps(run.answer(), ensure_ascii=False)


# -- streaming -------------------------------------------------------------------------------------


async def test_a_call_runs_before_the_endpoint_has_ended_its_answer() -> None:
    ran = anyio.Event()

    @tool(read_only=True)
    def signal(text: str) -> str:
        """Say that it ran."""
        ran.set()
        return text

    whole = solution(
        {"_tool": "signal", "text": "a", "_outputPath": "a"},
        call("†state.a", "b"),
        output="†state.b",
    )
    first = whole[: whole.index("},") + 2]
    rest = whole[whole.index("},") + 2 :]
    async with asked(say(first, ran.wait, rest), toolbox=Toolbox(signal, shout)) as (
        bridge,
        fake,
        _,
    ):
        run = await solved(bridge)
        assert len(fake.bodies) == 1
        idea = bridge.store.ideas.get(run.id, caller=SEES_ALL)
        assert (idea.meta.mind, idea.meta.model) == ("model", "tiny-1")
        assert idea.meta.usage == {"input_tokens": 1200, "output_tokens": 34}
        assert run.answer()["usage"] == {"requests": 1, "tokens": 1234}


@pytest.mark.parametrize("cut", [1, 7, 64])
async def test_a_stream_may_be_cut_anywhere(cut: int) -> None:
    whole = solution(call("†† käse 🧀", "a"), output="†state.a")
    async with asked(say(*whole, cut=cut)) as (bridge, _, _sleeps):
        await solved(bridge, "† KÄSE 🧀")


@pytest.mark.parametrize(
    "pieces", [("<think>", "{}", "</think>"), ("<thi", 'nk>{"calls": [1', "]}</Think", ">\n")]
)
async def test_what_is_thought_is_no_part_of_the_answer(pieces: tuple[str, ...]) -> None:
    async with asked(say(*pieces, solution(output="b"), thought='{"calls": [')) as (
        bridge,
        fake,
        _,
    ):
        await solved(bridge, "b")
        assert len(fake.bodies) == 1


async def test_an_answer_that_breaks_off_after_a_call_is_not_asked_for_again() -> None:
    broken = say('{"calls": [{"_tool": "shout", "text": "a", "_outputPath": "a"}, {"_tool', drop)
    async with asked(broken, say(solution(output="†state.a"))) as (bridge, fake, sleeps):
        run = await solved(bridge)
        assert len(run.calls()) == 1
        assert (len(fake.bodies), sleeps.seconds) == (2, [])
        assert "was cut off" in fake.texts(1)


async def test_an_answer_that_breaks_off_before_a_call_closed_is_asked_for_again() -> None:
    async with asked(say('{"calls": [{"_tool": "sh', drop), DONE) as (bridge, fake, sleeps):
        run = await solved(bridge)
        assert len(run.calls()) == 1
        assert len(fake.bodies) == 2
        assert len(sleeps.seconds) == 1
        assert run.answer()["usage"] == {"requests": 1, "tokens": 1234, "partial": 1}


async def test_handlers_may_set_what_the_model_takes() -> None:
    def cool(message: Message, draft: Draft) -> None:
        draft.model["temperature"] = 0.25

    handlers = Handlers()
    handlers.register("cool", cool)
    async with endpoint(DONE) as fake:
        model = ModelConfiguration(
            name="openai:tiny-1", base_url=fake.base_url, settings={"max_tokens": 500}
        )
        async with Bridge(
            Configuration(model=model), toolbox=Toolbox(shout), handlers=handlers
        ) as bridge:
            run = await bridge.solve(
                "x", output_schema=TEXT, context=[{"type": "cool", "cool": {}}]
            )
            assert await run.wait(20) == "done"

        assert (fake.bodies[0]["model"], fake.bodies[0]["temperature"]) == ("tiny-1", 0.25)
        # Use the name that every server knows, because a server that does not know it would write
        # without end.
        assert fake.bodies[0]["max_tokens"] == 500
        assert set(fake.bodies[0]) == {*ASKED, "temperature", "max_tokens"}


@pytest.mark.parametrize("wanted", ["large-2", "openai:large-2", "tag:7b"])
async def test_a_handler_gets_the_model_that_it_sets(wanted: str) -> None:
    handlers = Handlers()
    handlers.register(
        "hard", lambda message, draft: draft.model.update({"model": str(message.value)})
    )
    async with endpoint(DONE, DONE) as fake:
        model = ModelConfiguration(name="openai:tiny-1", base_url=fake.base_url)
        async with Bridge(
            Configuration(model=model), toolbox=Toolbox(shout), handlers=handlers
        ) as bridge:
            for context in ([{"type": "hard", "hard": wanted}], []):
                run = await bridge.solve("x", output_schema=TEXT, context=context)
                assert await run.wait(20) == "done"

        assert [body["model"] for body in fake.bodies] == [wanted.removeprefix("openai:"), "tiny-1"]


async def test_a_handler_that_sets_a_model_which_cannot_be_chosen_gets_an_error() -> None:
    handlers = Handlers()
    handlers.register("hard", lambda message, draft: draft.model.update({"model": message.value}))
    async with endpoint(DONE) as fake:
        model = ModelConfiguration(name="openai:tiny-1", base_url=fake.base_url)
        async with Bridge(
            Configuration(model=model), toolbox=Toolbox(shout), handlers=handlers
        ) as bridge:
            for wanted, told in (
                ("anthropic:claude", "only models of the configured provider"),
                (3, "as a string"),
            ):
                run = await bridge.solve("x", context=[{"type": "hard", "hard": wanted}])
                assert await run.wait(20) == "failed"
                assert told in str(run.answer()["reason"])

            turns = await bridge.solve(
                "x", context=[{"type": "hard", "hard": "large-2"}], mind="turns"
            )
            assert await turns.wait(20) == "interrupted"
            assert "asks for the model 'large-2', but clients answer this run turn by turn" in str(
                turns.answer()["reason"]
            )

        assert fake.bodies == []


async def test_reasoning_is_asked_for_before_the_calls_by_a_setting() -> None:
    thinking = {
        "thought_process": "It is to be loud.",
        "calls": [call("a", "a")],
        "output": "†state.a",
    }
    async with endpoint(say(json.dumps(thinking))) as fake:
        model = ModelConfiguration(name="openai:tiny-1", base_url=fake.base_url)
        async with Bridge(
            Configuration(model=model, thought_process=True), toolbox=Toolbox(shout)
        ) as bridge:
            run = await bridge.solve("x", output_schema=TEXT)
            assert await run.result() == "A"
            assert bridge.store.ideas.get(run.id, caller=SEES_ALL).idea.solution == {
                **thinking,
                "output": "†state.a",
            }
        enforced = fake.bodies[0]["response_format"]["json_schema"]["schema"]
        assert list(enforced["properties"]) == ["thought_process", "calls", "output", "program"]
        assert enforced["required"][0] == "thought_process"
        # For the user's own server, this is also said in words.
        assert 'Before "calls" comes "thought_process"' in fake.texts(0)


# -- forms -----------------------------------------------------------------------------------------

REFUSALS = [
    (
        "The compiled grammar is too large, which would cause performance issues. "
        "Simplify your tool schemas."
    ),
    (
        "Invalid schema for response_format 'solution': In context=('properties', 'calls'), "
        "'oneOf' is not permitted."
    ),
    "Invalid JSON schema: $ref is not supported",
    (
        "response_format.json_schema: 'additionalProperties' is required to be "
        "supplied and to be false."
    ),
    "Schema nesting depth exceeds the limit of 5",
    "bad request",
]


@pytest.mark.parametrize("message", REFUSALS)
async def test_a_refused_schema_goes_into_the_prompt_and_that_is_remembered(message: str) -> None:
    refusal = Refuse(("json_schema",), Fail(400, message), say(solution(output="b")))
    async with asked(refusal) as (bridge, fake, sleeps):
        await solved(bridge, "b")
        assert fake.formats == ["json_schema", "json_object"]
        assert "- shout(text: string): Make text loud." in fake.texts(1)
        await solved(bridge, "b")
        assert fake.formats[2:] == ["json_object"], "it is asked at once as it takes it"
        assert sleeps.seconds == []


async def test_an_endpoint_without_any_json_mode_is_asked_in_plain_words() -> None:
    refusal = Refuse(
        ("json_schema", "json_object"),
        Fail(400, "'response_format.type' must be 'text'"),
        say(solution(output="b")),
    )
    async with asked(refusal) as (bridge, fake, _):
        await solved(bridge, "b")
        assert fake.formats == ["json_schema", "json_object", "none"]


@pytest.mark.parametrize(
    ("message", "requests"),
    [
        # The first is what llama-cpp-python says about json_schema; the second comes from a server
        # that does not say what went wrong.
        (
            (
                "[{'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), "
                "'msg': 'Input should be ...'}]"
            ),
            1,
        ),
        ("Internal Server Error", 2),
    ],
)
async def test_a_server_that_falls_over_json_schema_gets_the_schema_in_the_prompt(
    message: str, requests: int
) -> None:
    async with asked(Refuse(("json_schema",), Fail(500, message), say(solution(output="b")))) as (
        bridge,
        fake,
        _,
    ):
        await solved(bridge, "b")
        assert fake.formats == ["json_schema"] * requests + ["json_object"]
        assert "- shout(text: string): Make text loud." in fake.texts(requests)


async def test_a_passing_fault_is_no_refusal_of_the_schema() -> None:
    async with asked(Fail(500, "Internal Server Error"), DONE) as (bridge, fake, _):
        await solved(bridge)
        await solved(bridge)
        assert fake.formats == ["json_schema"] * 3


async def test_output_may_be_fixed_by_configuration() -> None:
    async with asked(DONE, output="prompted") as (bridge, fake, _):
        await solved(bridge)
        assert fake.formats == ["json_object"]
    async with asked(Fail(400, "json_schema is not supported"), output="native") as (
        bridge,
        fake,
        _,
    ):
        assert "json_schema is not supported" in await failed(bridge)
        assert set(fake.formats) == {"json_schema"}


async def test_a_model_that_ignores_the_schema_is_read_leniently() -> None:
    chatty = say(f"Sure! Here is the {{plan}}:\n```json\n{DONE.pieces[0]}\n```\nHope this helps.")
    async with asked(chatty) as (bridge, fake, _):
        await solved(bridge)
        assert len(fake.bodies) == 1


async def test_a_schema_that_a_server_drops_without_a_word_holds_all_the_same() -> None:
    ignored: list[JSON] = [
        {"_tool": "shout", "text": ["a"], "_outputPath": "a"},
        {"_tool": "yell", "text": "a"},
    ]
    dropping = say(solution(*ignored, output={"not": "a text"})), DONE
    async with asked(*dropping) as (bridge, fake, _):
        run = await solved(bridge)
        # The server accepted the schema but ignored it in its answer, none of which ran.
        assert fake.formats == ["json_schema"] * 2
        assert [
            (one.call.name, one.value) for one in run.calls() if one.status is CallStatus.DONE
        ] == [("shout", "A")]
        assert fake.texts(1).splitlines()[-3:] == [
            (
                'This failed: call 0 {"_tool": "shout", "text": ["a"], "_outputPath": "a"}:'
                ' parameters: text: found ["a"], expected text'
            ),
            """This failed: call 1 {"_tool": "yell", "text": "a"}: unknown tool 'yell'.""",
            'This failed: the output: found {"not": "a text"}, expected text',
        ]


# -- repairs ---------------------------------------------------------------------------------------


async def test_an_answer_that_is_no_json_goes_back_with_the_error_in_the_same_conversation() -> (
    None
):
    async with asked(say("I would call shout."), say('{"calls": [{"_tool": }]}'), DONE) as (
        bridge,
        fake,
        _,
    ):
        run = await solved(bridge)
        assert [one["role"] for one in fake.bodies[2]["messages"]][-4:] == [
            "assistant",
            "user",
            "assistant",
            "user",
        ]
        assert "I would call shout." in fake.texts(1)
        assert "it contains no JSON object" in fake.texts(1)
        assert "No part of it ran" in fake.texts(2)
        assert len(run.calls()) == 1
        # The connection of the bad answer was closed, so nobody knows how many tokens it took.
        assert run.answer()["usage"] == {"requests": 1, "tokens": 2468, "partial": 1}


async def test_a_model_that_never_writes_json_is_told_only_so_often() -> None:
    async with asked(say("No."), repairs=1) as (bridge, fake, _):
        told = await failed(bridge)
        assert "cannot be read 2 times in a row: it contains no JSON object" in told
        # The run stalls after two Requests, each of which was sent twice.
        assert len(fake.bodies) == 4


async def test_nothing_is_repaired_once_a_call_has_started() -> None:
    spoilt = say('{"calls": [{"_tool": "shout", "text": "a", "_outputPath": "a"}, nonsense]}')
    async with asked(spoilt, say(solution(output="†state.a"))) as (bridge, fake, _):
        run = await solved(bridge)
        assert len(run.calls()) == 1
        assert len(fake.bodies) == 2
        # Both contain the examples, but nothing from the bad answer is shown again.
        first, second = (
            [one["role"] for one in body["messages"]].count("assistant") for body in fake.bodies
        )
        assert first == second


# -- faults ----------------------------------------------------------------------------------------


async def test_a_busy_endpoint_is_asked_again_when_it_says_so() -> None:
    async with asked(Fail(429, "slow down", {"Retry-After": "7"}), DONE) as (bridge, fake, sleeps):
        await solved(bridge)
        assert sleeps.seconds == [7.0]
        assert len(fake.bodies) == 2


async def test_an_endpoint_that_stays_down_is_asked_less_and_less_often_and_then_not() -> None:
    async with asked(Fail(503, "overloaded, come back"), retries=3) as (bridge, fake, sleeps):
        told = await failed(bridge)
        assert "the model endpoint answered 503: overloaded, come back" in told
        assert len(fake.bodies) == 8
        first, second, third, *_ = sleeps.seconds
        assert first < second < third


async def test_an_endpoint_that_is_not_there_is_told() -> None:
    async with asked(DONE, retries=0) as (bridge, fake, _):
        configuration = ModelConfiguration(
            name="openai:tiny-1", base_url="http://127.0.0.1:9/v1", retries=0
        )
        async with ModelMind(configuration) as mind, Bridge(mind=mind) as other:
            assert "the model endpoint cannot be reached" in await failed(other)
        assert fake.bodies == []
        assert bridge.mind is not None


async def test_an_answer_without_a_word_is_asked_for_in_the_next_form_and_told_in_the_end() -> None:
    async with asked(Nothing(), DONE) as (bridge, fake, sleeps):
        await solved(bridge)
        assert (fake.formats, sleeps.seconds) == (["json_schema", "json_object"], [])
        # If a form has worked before, the form is not to blame.
        fake.behaviours[:] = [Nothing()]
        told = await failed(bridge)
        assert (
            "ended its response without sending any content: the Request may be too "
            "long for the model's context"
        ) in told
        assert fake.formats[2:] == ["json_object"] * 2
    async with asked(Nothing()) as (bridge, fake, sleeps):
        assert "without sending any content" in await failed(bridge)
        assert fake.formats == ["json_schema", "json_object", "none"] * 2


async def test_an_error_may_come_in_the_stream() -> None:
    refused = say(error="failed to parse grammar")
    broken = say(
        '{"calls": [{"_tool": "shout", "text": "a", "_outputPath": "a"}, ', error="out of memory"
    )
    async with asked(refused, broken, say(solution(output="†state.a"))) as (bridge, fake, sleeps):
        await solved(bridge)
        assert fake.formats == ["json_schema", "json_object", "json_object"]
        assert "out of memory" in fake.texts(2)
        assert sleeps.seconds == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"idle_timeout": 0.2}, "the model sent nothing for 0.2 seconds"),
        ({"timeout": 0.2}, "the model did not finish within 0.2 seconds"),
    ],
)
@pytest.mark.parametrize("silent", [Hang(), say('{"calls": [', anyio.sleep_forever)])
async def test_a_silent_endpoint_is_given_up(
    settings: dict[str, Any], told: str, silent: Behaviour
) -> None:
    async with asked(silent, **settings) as (bridge, _, _sleeps):
        assert told in await failed(bridge)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            say('{"calls": [{"_tool": "shout", "text": "aaa', finish="length"),
            "reached the token limit",
        ),
        (say(finish="stop", refusal="I can't help with that."), "refused.*I can't help with that."),
        (say('{"calls": [', finish="content_filter"), "content filter"),
    ],
)
async def test_why_a_model_stopped_is_told_in_words(answer: Say, told: str) -> None:
    async with asked(answer) as (bridge, fake, _):
        text = await failed(bridge)
        assert re.search(told, text), text
        assert len(fake.bodies) == 2, "the same limit would be reached again"


async def test_a_refused_key_is_told_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_KEY", "sk-tiny-0123456789")
    store = tmp_path / "ideas.sqlite"
    refused = Fail(401, "Incorrect API key provided: sk-tiny-0123456789")
    async with asked(refused, store=store, key_env="TINY_KEY") as (bridge, fake, _):
        told = await failed(bridge, "failed")
        assert "Incorrect API key provided: [secret:TINY_KEY]" in told
        assert fake.headers[0]["authorization"] == "Bearer sk-tiny-0123456789"
        # A Request that can never be answered is sent only once.
        assert len(fake.bodies) == 1

    stored = b"".join([await path.read_bytes() async for path in anyio.Path(tmp_path).iterdir()])
    assert b"[secret:TINY_KEY]" in stored
    assert b"sk-tiny-0123456789" not in stored


async def test_a_key_meant_for_another_endpoint_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-0123456789")
    async with asked(DONE) as (bridge, fake, _):
        await solved(bridge)
        assert "sk-real" not in json.dumps(fake.headers)


async def test_a_key_may_lie_in_the_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = keyrings.installed(monkeypatch)
    keyring.held["ideabridge", "TINY_KEY"] = "sk-ring-0123456789"
    async with asked(DONE, key_env="TINY_KEY") as (bridge, fake, _):
        await solved(bridge)
        assert fake.headers[0]["authorization"] == "Bearer sk-ring-0123456789"
        assert bridge.secrets.mask("sk-ring-0123456789") == "[secret:TINY_KEY]"


async def test_address_and_key_may_come_from_the_environment_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with endpoint(DONE) as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-local-0123456789")
        async with Bridge(Configuration(model="openai:tiny-1"), toolbox=Toolbox(shout)) as bridge:
            await solved(bridge)
        assert fake.headers[0]["authorization"] == "Bearer sk-local-0123456789"


async def test_cancelling_a_run_hangs_up() -> None:
    begun, gone = anyio.Event(), anyio.Event()

    async def wait() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            gone.set()

    async with asked(say("{", wait)) as (bridge, _, _sleeps):
        run = await bridge.solve("x")
        with anyio.fail_after(20):
            await begun.wait()
            run.cancel("enough")
            await gone.wait()
        assert run.status == "cancelled"


# -- what it took ----------------------------------------------------------------------------------


async def test_what_an_answer_took_is_told_when_it_has_ended() -> None:
    async with asked(DONE) as (bridge, _, _sleeps):
        run = await solved(bridge)
        assert run.answer()["usage"] == {"requests": 1, "tokens": 1234}
        assert bridge.store.ideas.get(run.idea or "", caller=SEES_ALL).meta.usage == {
            "input_tokens": 1200,
            "output_tokens": 34,
        }


COUNTING = {"openai_continuous_usage_stats": True}
BROKEN = (solution(call("a", "a"))[:-18], ' nonsense "output"', " and on", " and on")


async def test_of_an_answer_that_is_hung_up_on_what_is_known_counts() -> None:
    async with asked(say(*BROKEN), DONE, settings=COUNTING) as (bridge, _, _sleeps):
        run = await solved(bridge)
        # The second piece could not be read, and nothing after it was read.
        assert run.answer()["usage"] == {"requests": 2, "tokens": 1202 + 1234, "partial": 1}
        first, second = bridge.store.ideas.of_run(run.id)
        assert first.meta.usage == {"input_tokens": 1200, "output_tokens": 2, "partial": True}
        assert second.meta.usage == {"input_tokens": 1200, "output_tokens": 34}


async def test_what_a_provider_never_tells_is_said_to_be_missing() -> None:
    async with asked(say(*BROKEN), say(*DONE.pieces, usage=False)) as (bridge, _, _sleeps):
        run = await solved(bridge)
        assert run.answer()["usage"] == {"requests": 2, "tokens": 0, "partial": 2}


async def test_what_the_answer_of_a_cancelled_run_has_taken_counts(tmp_path: Path) -> None:
    begun = anyio.Event()

    async def wait() -> None:
        begun.set()
        await anyio.sleep_forever()

    answer = say(solution(call("a", "a"))[:-18], wait)
    async with asked(answer, store=tmp_path / "ideas.sqlite", settings=COUNTING) as (
        bridge,
        _,
        _sleeps,
    ):
        run = await bridge.solve("x")
        with anyio.fail_after(20):
            await begun.wait()
            while not run.calls():
                await run.runner.wait_changed()
            run.cancel("enough")

        told = {"requests": 1, "tokens": 1201, "partial": 1}
        assert run.answer()["usage"] == told
        run_id = run.id

    async with Bridge(store=tmp_path / "ideas.sqlite") as bridge:
        # The journal contains the usage.
        assert (await bridge.run(run_id)).answer()["usage"] == told


async def test_a_server_of_ones_own_is_not_billed_at_the_price_of_a_model_it_is_named_after() -> (
    None
):
    async with endpoint(DONE) as fake:
        model = ModelConfiguration(name="openai:gpt-4o-mini", base_url=fake.base_url)
        async with Bridge(Configuration(model=model), toolbox=Toolbox(shout)) as bridge:
            run = await solved(bridge)
            assert run.answer()["usage"] == {"requests": 1, "tokens": 1234}
            assert run.machine.usage.cost == 0


@pytest.mark.parametrize(
    ("url", "by_address", "details", "cost"),
    [
        # A million tokens cost 0.15 dollars for input and 0.60 dollars for output.
        ("https://api.openai.com/v1", False, None, 1200 * 0.15e-6 + 34 * 0.6e-6),
        ("https://api.openai.com/v1", True, None, 1200 * 0.15e-6 + 34 * 0.6e-6),
        ("http://127.0.0.1:8080/v1", True, None, None),
        ("https://proxy.example.com/v1", True, None, None),
        ("https://proxy.example.com/v1", True, {"cost": 0.25}, 0.25),
        ("https://api.openai.com/v1", False, {"cost": 0.25}, 0.25),
    ],
)
def test_the_cost_is_what_the_provider_says_else_the_price_at_its_address(
    url: str, by_address: bool, details: dict[str, Any] | None, cost: float | None
) -> None:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.usage import RequestUsage

    from ideabridge.bridge.minds.endpoint import cost_of

    answer = ModelResponse(
        parts=[],
        usage=RequestUsage(input_tokens=1200, output_tokens=34),
        model_name="gpt-4o-mini",
        provider_name="openai",
        provider_url=url,
        provider_details=details,
    )
    assert cost_of(answer, by_address=by_address) == (None if cost is None else pytest.approx(cost))
