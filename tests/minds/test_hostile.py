"""A model endpoint that is broken or means harm: what it sends ends no run, and learns nothing."""

from __future__ import annotations

import json

import pytest

from ideabridge.bridge import Bridge, Configuration
from ideabridge.bridge.minds.errors import ModelSetupError
from ideabridge.bridge.minds.model import ModelMind
from ideabridge.bridge.minds.settings import ModelConfiguration
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import Toolbox
from ideabridge.tools.encoding import JSON

from .fake import Fail, Raw, Step, drop, endpoint, said, say
from .test_model import DONE, asked, call, environment, failed, shout, solution, solved

pytestmark = pytest.mark.anyio

__all__ = ["environment"]

HALF = rb"\ud800"
CALL = '{"calls": [{"_tool": "shout", "text": "a", "_outputPath": "a"}, '


def line(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


# -- what it sends ---------------------------------------------------------------------------------

GARBAGE = [
    line(b"{not json"),
    line(b"[1, 2]"),
    line(b"null"),
    line(b'{"choices": 7}'),
    line(b"[" * 100_000),
    line(b'{"choices": [{"delta": {"content": "\xff\xfe"}}]}'),
    b"event: weird\nhello\n: nothing\n\n",
]


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_garbage_in_a_stream_is_a_passing_fault(garbage: bytes) -> None:
    async with asked(say(garbage), DONE) as (bridge, fake, sleeps):
        await solved(bridge)
        assert (len(fake.bodies), len(sleeps.seconds)) == (2, 1)


@pytest.mark.parametrize(
    "garbage", [*GARBAGE, line(b'{"error": {"message": "no such model", "code": "401"}}')]
)
async def test_garbage_after_a_call_breaks_the_answer_off_and_not_the_run(garbage: bytes) -> None:
    async with asked(say(CALL, garbage), say(solution(output="†state.a"))) as (
        bridge,
        fake,
        sleeps,
    ):
        run = await solved(bridge)
        assert len(run.calls()) == 1
        assert (len(fake.bodies), sleeps.seconds) == (2, [])
        assert "was cut off" in fake.texts(1)


@pytest.mark.parametrize("after", [(drop,), ("\nHope this helps! {", drop), (line(b"{not json"),)])
async def test_what_goes_wrong_behind_a_whole_solution_does_no_harm(
    after: tuple[Step, ...],
) -> None:
    whole = solution(call("a", "a"), output="†state.a")
    async with asked(say(whole, *after)) as (bridge, fake, _):
        run = await solved(bridge)
        assert (len(fake.bodies), len(run.calls()), run.errors()) == (1, 1, [])


async def test_half_a_surrogate_pair_is_told_to_the_model() -> None:
    half = said("Well @", "tiny-1").replace(b"@", HALF)
    async with asked(say(half), DONE) as (bridge, fake, _):
        await solved(bridge)
        assert [one["content"] for one in fake.bodies[1]["messages"][-2:-1]] == ["Well ?"]


@pytest.mark.parametrize(
    ("name", "kept"), [(HALF + b"big", "big"), (b"m" * 100_000, "m" * 200), (rb"\u001b[0m", "[0m")]
)
async def test_the_name_of_a_model_is_kept_as_far_as_it_is_one(name: bytes, kept: str) -> None:
    answer = said(solution(output="b"), "MODEL").replace(b"MODEL", name)
    async with asked(say(answer, drop)) as (bridge, _, _sleeps):
        run = await solved(bridge, "b")
        assert bridge.store.ideas.get(run.id, caller=SEES_ALL).meta.model == kept


async def test_a_model_that_thinks_is_not_silent() -> None:
    thought = line(
        json.dumps({"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]}).encode()
    )

    async with asked(say(forever=thought), timeout=1, idle_timeout=0.4) as (bridge, _, _sleeps):
        assert "did not finish within 1 seconds" in await failed(bridge)


async def test_errors_are_told_without_what_a_terminal_obeys() -> None:
    async with asked(Fail(401, "\x1b[31mno\x00\u202e")) as (bridge, _, _sleeps):
        assert "answered 401: [31mno (is the key right" in await failed(bridge, "failed")


async def test_a_refusal_for_another_reason_is_no_refusal_of_a_schema_that_worked() -> None:
    async with asked(DONE, Fail(400, "your account is restricted")) as (bridge, fake, _):
        await solved(bridge)
        assert "your account is restricted" in await failed(bridge)
        assert fake.formats == ["json_schema"] * 3


def whole(message: dict[str, JSON], **more: JSON) -> bytes:
    choice: JSON = {
        "index": 0,
        "message": {"role": "assistant", **message},
        "finish_reason": "stop",
    }
    usage: JSON = {"prompt_tokens": 1200, "completion_tokens": 34, "total_tokens": 1234}
    head: dict[str, JSON] = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "tiny-1",
    }
    return json.dumps({**head, "choices": [choice], "usage": usage, **more}).encode()


MORE_THAN = "sent more than "


@pytest.mark.parametrize(
    ("endless", "told"),
    [
        (
            Raw(b"x" * 65_536, "application/json", 500, forever=True),
            f"{MORE_THAN}1,048,576 bytes in one answer",
        ),
        (
            Raw(b"data: " + b"x" * 1_000_000, "text/event-stream", forever=True),
            " bytes in one line",
        ),
        (Raw(b"{" + b"x" * 1_000_000, "application/json", forever=True), " bytes in one "),
        (
            Raw(b": " + b"x" * 1_000_000 + b"\n\n", "text/event-stream", forever=True),
            " bytes in one answer",
        ),
    ],
    ids=["error", "line", "object", "comments"],
)
async def test_an_answer_without_end_is_hung_up_on(endless: Raw, told: str) -> None:
    async with asked(endless) as (bridge, fake, _):
        said = await failed(bridge, "failed")
        assert MORE_THAN in said
        assert told in said
        assert len(fake.bodies) == 1


async def test_an_answer_packed_unasked_is_not_unpacked() -> None:
    packed = Raw(b"\x1f\x8b", "text/event-stream", headers={"Content-Encoding": "gzip"})
    async with asked(packed) as (bridge, fake, _):
        assert "compressed its response" in await failed(bridge, "failed")
        assert fake.headers[0]["accept-encoding"] == "identity"


async def test_a_web_page_is_told_at_once() -> None:
    async with asked(Raw(b"<html>Welcome</html>", "text/html; charset=utf-8")) as (bridge, fake, _):
        assert "a web page (text/html); is base_url right?" in await failed(bridge, "failed")
        assert len(fake.bodies) == 1


async def test_an_answer_that_comes_whole_though_a_stream_was_asked_for_is_read() -> None:
    answer = whole({"content": solution(call("a", "a"), output="†state.a")})
    async with asked(Raw(answer, "application/json")) as (bridge, fake, _):
        run = await solved(bridge)
        assert len(fake.bodies) == 1
        usage = bridge.store.ideas.get(run.id, caller=SEES_ALL).meta.usage
        assert usage is not None
        assert (usage["input_tokens"], usage["output_tokens"]) == (1200, 34)


async def test_whole_json_that_is_no_answer_is_told_at_once() -> None:
    async with asked(Raw(b'{"detail": "hello"}', "application/json")) as (bridge, fake, _):
        assert "not a chat completion" in await failed(bridge, "failed")
        assert len(fake.bodies) == 1


async def test_a_stream_told_as_json_is_read_as_the_stream_it_is() -> None:
    sent = said(solution(output="b"), "tiny-1") + b"data: [DONE]\n\n"
    async with asked(Raw(sent, "application/json")) as (bridge, fake, _):
        await solved(bridge, "b")
        assert len(fake.bodies) == 1


async def test_an_endpoint_that_is_down_is_named() -> None:
    async with endpoint(DONE) as fake:
        place = fake.base_url.removeprefix("http://").removesuffix("/v1")

    model = ModelConfiguration(
        name="openai:tiny-1", base_url=f"http://{place}/v1?token=hidden", retries=0
    )
    async with Bridge(Configuration(model=model), toolbox=Toolbox(shout)) as bridge:
        told = await failed(bridge)
        assert f"the model endpoint cannot be reached at {place}: " in told
        assert "hidden" not in told


# -- what it learns --------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_nobody_is_asked_where_an_endpoint_sends_us(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_KEY", "sk-tiny-0123456789")
    async with endpoint(DONE) as other:
        there = Fail(status, "there", {"Location": f"{other.base_url}/chat/completions"})
        async with asked(there, key_env="TINY_KEY") as (bridge, fake, _):
            assert f"answered {status}: ideabridge does not follow a redirect" in await failed(
                bridge, "failed"
            )
            assert len(fake.bodies) == 1
        assert other.headers == []


async def test_no_provider_sends_its_own_key_to_an_address_of_the_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OLLAMA_API_KEY", "sk-real-0123456789")
    monkeypatch.setenv("OTHER_KEY", "sk-other-0123456789")
    async with endpoint(DONE) as fake:
        for key_env, sent in ((None, "Bearer no-key"), ("OTHER_KEY", "Bearer sk-other-0123456789")):
            model = ModelConfiguration(
                name="ollama:tiny-1", base_url=fake.base_url, key_env=key_env
            )
            async with Bridge(Configuration(model=model), toolbox=Toolbox(shout)) as bridge:
                await solved(bridge)
            assert fake.headers[-1]["authorization"] == sent


async def test_bedrocks_own_token_is_not_sent_to_an_address_of_the_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "token-real-0123456789")
    model = ModelConfiguration(name="bedrock:anthropic.tiny-1", base_url="http://127.0.0.1:9/")

    def found(_kind: str) -> type[object]:
        return object

    # If boto3 is installed, the provider itself would use the token.
    monkeypatch.setattr("ideabridge.bridge.minds.endpoint.infer_provider_class", found)
    with pytest.raises(
        ModelSetupError, match=r"AWS_BEARER_TOKEN_BEDROCK would be sent to base_url"
    ):
        ModelMind(model).check()


@pytest.mark.parametrize("kind", ["openai", "ollama"])
async def test_nothing_but_retries_says_how_often_an_endpoint_is_asked(kind: str) -> None:
    async with endpoint(Fail(503)) as fake:
        model = ModelConfiguration(name=f"{kind}:tiny-1", base_url=fake.base_url, retries=0)
        async with Bridge(Configuration(model=model), toolbox=Toolbox(shout)) as bridge:
            await failed(bridge)
        # The run stalls after two Requests, each of which was sent once.
        assert len(fake.bodies) == 2
