"""What modules ask while they run a call reaches whoever made it, and the answer goes back to
that very call.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest

from ideabridge.bridge import ApprovalRequest, Bridge, Configuration, Decision, read_plan
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.errors import DecisionError, SecretGivenError
from ideabridge.bridge.loop.event import QuestionAnswered, QuestionAsked, QuestionRefused
from ideabridge.bridge.modules.errors import (
    ModuleInputRequiredError,
    ModuleTimeoutError,
    ModuleToolError,
)
from ideabridge.bridge.modules.fair_limiter import FairLimiter
from ideabridge.bridge.runs.run import Run
from ideabridge.tools.encoding import JSON
from tests import preloaded

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parent.parent / "modules" / "servers" / "asks.py"
RAW = SERVER.with_name("raw.py")
ERAS = ("modern", "legacy")
Approve = Callable[[ApprovalRequest], Awaitable[Decision]]


def stdio(era: str, **keys: Any) -> dict[str, Any]:
    options = ["--legacy"] if era == "legacy" else []
    return preloaded.module(SERVER, *options, **keys)


def configured(era: str, approval: JSON = "allow_all", **keys: Any) -> Configuration:
    modules: dict[str, JSON] = {"asks": stdio(era, **keys)}
    return parse_configuration({"mcpServers": modules, "approval": approval}, project=Path.cwd())


@asynccontextmanager
async def over_http(era: str) -> AsyncGenerator[dict[str, Any]]:
    """The configuration of a server of its own on loopback."""
    options = ["--legacy"] if era == "legacy" else []
    command = preloaded.python(SERVER, "--http", *options)
    async with await anyio.open_process(command, stdin=None, stderr=None) as process:
        assert process.stdout is not None
        with anyio.fail_after(20):
            port = int(await process.stdout.receive())
        try:
            yield {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
        finally:
            if process.returncode is None:
                process.kill()


async def start(bridge: Bridge, tool: str, **arguments: Any) -> Run:
    run = await bridge.run_plan(
        read_plan({"calls": [{"_tool": tool, **arguments, "_outputPath": "got"}]})
    )
    with anyio.fail_after(20):
        await run.wait()
    return run


def got(run: Run) -> tuple[str, list[dict[str, Any]]]:
    """Who a call was for, and each answer its module had."""
    assert run.status == "done", run.answer()
    assert run.errors() == []
    state: Any = run.given()
    who, *answers = state["got"].split("\n")
    return who.rstrip(":"), [json.loads(one) for one in answers]


def asked(run: Run) -> dict[str, Any]:
    [entry] = run.approvals()
    assert isinstance(entry, dict)
    return entry


async def journal(run: Run) -> list[Any]:
    return [
        event
        async for event in run
        if isinstance(event, QuestionAsked | QuestionAnswered | QuestionRefused)
    ]


def filling(**content: JSON) -> Approve:
    async def answer(request: ApprovalRequest) -> Decision:
        return Decision("value", value=dict(content), by="Ann")

    return answer


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("era", ERAS)
async def test_a_callback_answers_and_the_answer_goes_back_to_the_call(
    era: str, transport: str
) -> None:
    requests: list[ApprovalRequest] = []

    async def answer(request: ApprovalRequest) -> Decision:
        requests.append(request)
        return Decision("value", value={"name": "Ann", "seats": 2, "meals": ["rice"]}, by="Ann")

    async with over_http(era) as entry:
        configuration = parse_configuration(
            {"mcpServers": {"asks": entry if transport == "http" else stdio(era)}},
            project=Path.cwd(),
        )
        async with Bridge(configuration, approver=answer) as bridge:
            run = await start(bridge, "book", who="ann")
            assert bridge.modules["asks"].status().era == era
            assert got(run) == (
                "ann",
                [{"action": "accept", "content": {"name": "Ann", "seats": 2, "meals": ["rice"]}}],
            )
            [put, answered] = await journal(run)

    [request] = requests
    assert request.kind == "question"
    assert request.choices == ("value", "deny", "skip")
    assert request.call == {"_tool": "book", "_module": "asks", "_outputPath": "got", "who": "ann"}
    assert request.question is not None
    assert (request.question["module"], request.question["message"]) == ("asks", "Seats for ann?")
    assert (put.call, put.module, put.message, put.approval) == (
        0,
        "asks",
        "Seats for ann?",
        request.approval,
    )
    assert (answered.action, str(answered.by), answered.digest) == ("accept", "Ann", put.digest)


@pytest.mark.parametrize("era", ERAS)
async def test_it_is_declined_or_cancelled_as_the_person_says(era: str) -> None:
    decisions = {"no": Decision("deny", reason="none of its business"), "leave": Decision("skip")}

    async def answer(request: ApprovalRequest) -> Decision:
        return decisions[str(request.call["who"])]

    async with Bridge(configured(era), approver=answer) as bridge:
        for who, action in (("no", "decline"), ("leave", "cancel")):
            run = await start(bridge, "book", who=who)
            assert got(run) == (who, [{"action": action, "content": None}])
            assert (await journal(run))[1].action == action


@pytest.mark.parametrize("era", ERAS)
async def test_the_declared_capability_is_forms_and_no_addresses(era: str) -> None:
    async with Bridge(configured(era)) as bridge:
        await bridge.modules["asks"].ready(20)
        assert json.loads(str(await bridge.modules["asks"].call("capabilities", {}))) == {
            "elicitation": {"form": {}}
        }


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_that_does_not_fit_is_refused_and_asked_for_again(era: str) -> None:
    async with Bridge(configured(era)) as bridge:
        run = await start(bridge, "book", who="ann")
        assert run.status == "needs_approval"
        entry = asked(run)
        assert entry["question"]["message"] == "Seats for ann?"
        assert entry["choices"] == ["value", "deny", "skip"]
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"value": {"name": "Ann", "seats": 9}}, r"seats: found 9, expected at most 5"),
            ({"value": {"name": "Ann"}}, r"seats"),
            (
                {"value": {"name": "Ann", "seats": 2, "pin": "1"}},
                r"'pin' is not a field of its form; the fields are name, seats",
            ),
            ({"value": ["Ann", 2]}, r"an object that fits the form of the question"),
            ({}, r"an object that fits the form of the question"),
            ({"value": {"name": "x" * 200_000, "seats": 1}}, r"the limit is 100,000"),
        ]
        for given, why in wrong:
            with pytest.raises(DecisionError, match=why):
                run.decide(entry["approval"], "value", by="Ann", **given)
            assert run.status == "needs_approval"
        with pytest.raises(
            DecisionError, match=r"expected 'value', 'deny' or 'skip', found 'approve'"
        ):
            run.decide(entry["approval"], "approve", by="Ann")
        run.decide(entry["approval"], "value", by="Ann", value={"name": "Ann", "seats": 5})
        await run.wait(20)
        assert got(run) == ("ann", [{"action": "accept", "content": {"name": "Ann", "seats": 5}}])
        asking = await start(bridge, "book", who="bob")
        with pytest.raises(DecisionError, match=r"no approval"):
            asking.decide(entry["approval"], "skip", by="Ann")


@pytest.mark.parametrize("era", ERAS)
async def test_a_callback_whose_answer_does_not_fit_leaves_the_question(era: str) -> None:
    async with Bridge(configured(era), approver=filling(name="Ann", seats=0)) as bridge:
        run = await start(bridge, "book", who="ann")
        assert got(run)[1] == [{"action": "cancel", "content": None}]
        answered = (await journal(run))[1]
        assert "its decision is not valid" in answered.reason
        assert "seats: found 0" in answered.reason


@pytest.mark.parametrize("era", ERAS)
async def test_a_configured_secret_is_sent_in_no_answer_and_shown_in_no_question(era: str) -> None:
    secret = "sesame-open-now"
    async with Bridge(configured(era, env={"API_TOKEN": secret})) as bridge:
        run = await start(bridge, "book", who="ann")
        with pytest.raises(SecretGivenError, match=r"content.name contains the secret API_TOKEN"):
            run.decide(
                asked(run)["approval"],
                "value",
                by="Ann",
                value={"name": f"it is {secret}", "seats": 1},
            )

        assert run.status == "needs_approval"
        run.decide(asked(run)["approval"], "deny", by="Ann")
        await run.wait(20)
        probing = await start(bridge, "hostile", how="secret")
        told = json.dumps(asked(probing))
        assert "Is it [secret:API_TOKEN]?" in told
        assert secret not in told
        assert secret not in str([event async for event in run])

    async with Bridge(
        configured(era, env={"API_TOKEN": secret}), approver=filling(it=secret)
    ) as bridge:
        run = await start(bridge, "hostile", how="secret")
        assert got(run)[1] == [{"action": "cancel", "content": None}]


HOSTILE = {
    "huge": "its message has 100,000 characters; the limit is 4,000",
    "lines": "its message has 3,001 lines; the limit is 100",
    "wide": "its form has 60 fields; the limit is 50",
    "nested": (
        "field 'home' of its form has 'properties', which is not allowed in a form of plain values"
    ),
    "url": (
        "it asks the person to open an address (url mode), but a connected server may not "
        "choose addresses here"
    ),
}


@pytest.mark.parametrize("era", ERAS)
async def test_a_hostile_question_is_put_before_nobody_and_the_run_is_told_why(era: str) -> None:
    async def answer(request: ApprovalRequest) -> Decision:
        raise AssertionError(request)

    async with Bridge(configured(era), approver=answer) as bridge:
        for how, why in HOSTILE.items():
            run = await start(bridge, "hostile", how=how)
            assert got(run)[1] == [{"action": "decline", "content": None}], how
            told: Any = run.answer()
            [note] = told["notes"]
            assert why in note
            assert len(note) < 1000
            assert [type(event) for event in await journal(run)] == [QuestionRefused]


@pytest.mark.parametrize("era", ERAS)
async def test_sampling_is_refused_with_its_reason(era: str) -> None:
    async with Bridge(configured(era)) as bridge:
        run = await start(bridge, "sample")
        message = str(run.errors())
        assert "would use up the user's model" in message
        with pytest.raises(ModuleInputRequiredError if era == "modern" else ModuleToolError):
            await bridge.modules["asks"].call("sample", {})


async def test_a_module_that_asks_without_end_fails_its_call() -> None:
    async with Bridge(configured("modern"), approver=filling(name="Ann", seats=1)) as bridge:
        run = await start(bridge, "again")
        assert "keeps asking questions: 10 times in one call" in str(run.errors())
        assert len([one for one in await journal(run) if isinstance(one, QuestionAnswered)]) == 10


@pytest.mark.parametrize("era", ERAS)
async def test_two_questions_of_one_call_are_asked_one_after_the_other(era: str) -> None:
    messages: list[str] = []

    async def answer(request: ApprovalRequest) -> Decision:
        assert request.question is not None
        messages.append(str(request.question["message"]))
        return Decision("value", value={"name": messages[-1], "seats": len(messages)})

    async with Bridge(configured(era), approver=answer) as bridge:
        run = await start(bridge, "twice", who="ann")
        assert messages == ["First for ann?", "Second for ann?"]
        assert [one["content"]["seats"] for one in got(run)[1]] == [1, 2]


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_nobody_answers_in_time_is_cancelled(era: str) -> None:
    async with Bridge(configured(era, {"default": "allow", "timeout_seconds": 0.05})) as bridge:
        run = await bridge.run_plan(
            read_plan({"calls": [{"_tool": "book", "who": "ann", "_outputPath": "got"}]})
        )
        with anyio.fail_after(20):
            while not run.machine.ended:
                await run.runner.wait_changed()
            await run.wait()
        assert got(run) == ("ann", [{"action": "cancel", "content": None}])
        answered = (await journal(run))[1]
        assert (str(answered.by), answered.reason) == (
            "the timeout",
            "nobody decided within 0.05 s",
        )


@pytest.mark.parametrize("era", ERAS)
async def test_the_time_a_person_takes_is_not_the_modules(era: str) -> None:
    bridges: list[Bridge] = []

    async def answer(request: ApprovalRequest) -> Decision:
        # The person takes longer than a call may take: in the meantime, a call to another module
        # runs into its timeout.
        with pytest.raises(ModuleTimeoutError):
            await bridges[0].modules["other"].call("meet", {"who": "nobody"}, timeout=2.2)
        return Decision("value", value={"name": "Ann", "seats": 1})

    modules: dict[str, JSON] = {"asks": stdio(era, timeout=2), "other": stdio("modern")}
    configuration = parse_configuration({"mcpServers": modules}, project=Path.cwd())
    async with Bridge(configuration, approver=answer) as bridge:
        bridges.append(bridge)
        await bridge.modules["other"].ready(20)
        run = await bridge.run_plan(
            read_plan(
                {
                    "calls": [
                        {"_tool": "book", "_module": "asks", "who": "ann", "_outputPath": "got"}
                    ]
                }
            )
        )
        with anyio.fail_after(20):
            await run.wait()

        assert got(run)[1] == [{"action": "accept", "content": {"name": "Ann", "seats": 1}}]


# -- which call it belongs to ----------------------------------------------------------------------


async def test_calls_side_by_side_of_a_modern_module_each_get_their_own_answer() -> None:
    async def answer(request: ApprovalRequest) -> Decision:
        assert request.question is not None
        assert request.question["message"] == f"Seats for {request.call['who']}?"
        return Decision("value", value={"name": str(request.call["who"]), "seats": 1})

    async with Bridge(configured("modern"), approver=answer) as bridge:
        calls: list[JSON] = [
            {"_tool": "meet", "who": who, "_outputPath": who} for who in ("ann", "bob", "cy")
        ]
        run = await bridge.run_plan(read_plan({"calls": calls}))
        with anyio.fail_after(20):
            assert await run.wait() == "done"
        state: Any = run.given()
        for who, told in state.items():
            assert told.startswith(f"{who}:\n")
            assert json.loads(told.partition("\n")[2])["content"]["name"] == who


async def test_a_question_of_one_of_two_calls_reaches_nobody_where_it_does_not_say_of_which() -> (
    None
):
    people: list[tuple[str, str]] = []

    async def answer(request: ApprovalRequest) -> Decision:
        assert request.question is not None
        people.append((str(request.call["who"]), str(request.question["message"])))
        return Decision("value", value={"name": str(request.call["who"]), "seats": 1})

    async with Bridge(configured("legacy"), approver=answer) as bridge:
        runs: dict[str, Run] = {}

        async def meet(who: str) -> None:
            runs[who] = await start(bridge, "meet", who=who)

        async with anyio.create_task_group() as group:
            group.start_soon(meet, "ann")
            group.start_soon(meet, "bob")

        assert people == []
        for who, run in runs.items():
            assert got(run) == (who, [{"action": "cancel", "content": None}])
            notes: Any = run.answer()["notes"]
            assert (
                "2 of its calls were running, and the question does not say which of these calls "
                "it belongs to" in notes[0]
            )
            assert "run the call again" in notes[0]

        # From now on, its calls run one at a time, and each question finds its own call.
        async with anyio.create_task_group() as group:
            for who in ("ann", "bob", "cy", "di"):
                group.start_soon(meet, who)

        assert sorted(people) == [(who, f"Seats for {who}?") for who in ("ann", "bob", "cy", "di")]
        for who, run in runs.items():
            assert got(run)[1] == [{"action": "accept", "content": {"name": who, "seats": 1}}]


async def test_the_late_question_of_a_call_that_was_given_up_reaches_nobody() -> None:
    async def answer(request: ApprovalRequest) -> Decision:
        raise AssertionError(request)

    async with Bridge(configured("legacy"), approver=answer) as bridge:
        run = await bridge.run_plan(read_plan({"calls": [{"_tool": "stubborn", "who": "ann"}]}))
        started = anyio.Event()
        run.runner.progress_watchers.append(lambda _call, _done, _total, _note: started.set())
        with anyio.fail_after(20):
            await started.wait()
            run.cancel("no more of it")
        late = await start(bridge, "late")
        state: Any = late.given()
        assert '\\"action\\": \\"cancel\\"' in state["got"]
        notes: Any = late.answer()["notes"]
        # The call that was given up might not have ended here yet.
        given_up = (
            "one of its earlier calls was cancelled, and the question may belong to that call"
        )
        both = (
            "2 of its calls were running, and the question does not say which of these calls it "
            "belongs to"
        )
        assert given_up in notes[0] or both in notes[0]


async def test_a_module_takes_its_question_back_and_asks_another(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    os.mkfifo(shown)
    async with Bridge(configured("legacy")) as bridge:
        run = await start(bridge, "impatient", who="ann", shown=str(shown))
        assert asked(run)["question"]["message"] == "Quick, ann?"
        with anyio.fail_after(20):
            await anyio.to_thread.run_sync(shown.write_bytes, b"")
            while not run.approvals() or asked(run)["question"]["message"] != "Slowly, ann?":
                await run.runner.wait_changed()

        run.decide(asked(run)["approval"], "value", by="Ann", value={"name": "Ann", "seats": 1})
        with anyio.fail_after(20):
            await run.wait()

        assert got(run)[1] == [{"action": "accept", "content": {"name": "Ann", "seats": 1}}]
        _, taken, _, answered = await journal(run)
        assert (taken.action, str(taken.by), taken.reason) == (
            "cancel",
            "the server",
            "the server withdrew its question",
        )
        assert str(answered.by) == "Ann"


def raw() -> Configuration:
    modules: dict[str, JSON] = {"raw": preloaded.module(RAW)}
    return parse_configuration({"mcpServers": modules, "approval": "allow_all"}, project=Path.cwd())


async def test_a_question_of_a_call_that_is_answered_in_the_same_breath_reaches_no_other_call() -> (
    None
):
    async def answer(request: ApprovalRequest) -> Decision:
        raise AssertionError(request)

    async with Bridge(raw(), approver=answer) as bridge:
        runs: list[Run] = []

        async def pair() -> None:
            runs.append(await start(bridge, "pair"))

        async with anyio.create_task_group() as group:
            group.start_soon(pair)
            group.start_soon(pair)
        told = {cast("dict[str, str]", run.given())["got"] for run in runs}
        assert told == {"the first one", '{"action": "cancel"}'}


@pytest.mark.usefixtures("writes")
async def test_questions_that_a_module_takes_back_are_not_counted_as_unanswered() -> None:
    async with Bridge(raw()) as bridge:
        for _ in range(7):
            run = await start(bridge, "takes_back")
            with anyio.fail_after(20):
                while not run.machine.ended:
                    await run.runner.wait_changed()
                await run.wait()
            assert run.given() == {"got": "done"}, run.errors()
        assert bridge.modules["raw"].status().state == "up"


async def test_places_that_are_taken_away_are_given_to_nobody() -> None:
    limiter = FairLimiter(3)
    for who in "abc":
        await limiter.acquire(who)

    limiter.lower(1)
    order: list[str] = []

    async def wait(who: str) -> None:
        await limiter.acquire(who)
        order.append(who)

    async with anyio.create_task_group() as group:
        for who in "de":
            group.start_soon(wait, who)
            await anyio.wait_all_tasks_blocked()
        for expected in ([], [], ["d"], ["d", "e"]):
            limiter.release()
            await anyio.wait_all_tasks_blocked()
            assert order == expected


# -- ends, restarts, forks -------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_run_that_is_cancelled_takes_its_question_back(era: str) -> None:
    async with Bridge(configured(era)) as bridge:
        run = await start(bridge, "book", who="ann")
        run.cancel("enough")
        assert await run.wait() == "cancelled"
        again = await start(bridge, "book", who="bob")
        assert asked(again)["question"]["message"] == "Seats for bob?"


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_waited_for_an_answer_when_its_process_ended_runs_again_where_it_may(
    era: str, tmp_path: Path
) -> None:
    store = tmp_path / "ideas.sqlite"
    async with Bridge(configured(era), store=store) as bridge:
        run = await start(bridge, "book", who="ann")
        first = asked(run)["approval"]
        # A call that is running belongs to this process, so the run is not handed over while it
        # waits.
        assert bridge.store.runs.get(run.id).driver is not None  # pyright: ignore[reportOptionalMemberAccess]

    async with Bridge(configured(era), store=store) as bridge:
        run = await bridge.run(run.id)
        with anyio.fail_after(20):
            while not run.approvals() or asked(run)["approval"] == first:
                await run.runner.wait_changed()

        run.decide(asked(run)["approval"], "value", by="Ann", value={"name": "Ann", "seats": 3})
        with anyio.fail_after(20):
            await run.wait()

        assert got(run)[1] == [{"action": "accept", "content": {"name": "Ann", "seats": 3}}]
        lost = (await journal(run))[1]
        assert (lost.action, str(lost.by)) == ("cancel", "the bridge")
        assert "has died" in lost.reason


async def test_nobody_knows_what_came_of_a_call_that_changes_things_and_waited(
    tmp_path: Path,
) -> None:
    store = tmp_path / "ideas.sqlite"
    async with Bridge(configured("modern"), store=store) as bridge:
        run = await start(bridge, "order", who="ann")
        assert asked(run)["choices"] == ["value", "deny", "skip"]

    async with Bridge(configured("modern"), store=store) as bridge:
        run = await bridge.run(run.id)
        assert await run.wait(20) == "needs_approval"
        entry = asked(run)
        assert entry["choices"] == ["retry", "skip", "value"]
        run.decide(entry["approval"], "retry", by="Ann")
        with anyio.fail_after(20):
            await run.wait()

        run.decide(asked(run)["approval"], "value", by="Ann", value={"name": "Ann", "seats": 3})
        await run.wait(20)
        assert got(run)[1] == [{"action": "accept", "content": {"name": "Ann", "seats": 3}}]


async def test_a_fork_keeps_the_result_and_not_the_question() -> None:
    async with Bridge(configured("modern"), approver=filling(name="Ann", seats=2)) as bridge:
        run = await start(bridge, "book", who="ann")
        number = len([event async for event in run])
        fork = await bridge.fork(run.id, at=number - 1)
        with anyio.fail_after(20):
            assert await fork.wait() == "done"
        assert got(fork) == got(run)
        assert await journal(fork) == []


async def test_what_a_person_answered_a_module_is_given_to_no_later_call() -> None:
    people: list[str] = []

    async def answer(request: ApprovalRequest) -> Decision:
        people.append(str(request.call["who"]))
        return Decision("value", value={"name": str(len(people)), "seats": 1})

    async with Bridge(configured("modern"), approver=answer) as bridge:
        call: JSON = {"_tool": "book", "who": "†input.who", "_outputPath": "got"}
        plan = read_plan({"calls": [call], "input": {"who": "ann"}, "output": "†state.got"})
        run = await bridge.run_plan(plan)
        with anyio.fail_after(20):
            await run.result()

        assert (await bridge.publish(run.id, "seat", answer="auto")).annotations[
            "readOnlyHint"
        ] is True
        for number in (2, 3):
            replay = await bridge.start_idea("seat", {"who": "ann"})
            assert replay.answer == "plan"
            assert replay.run is not None
            with anyio.fail_after(20):
                assert f'"name": "{number}"' in str(await replay.run.result())

        assert people == ["ann", "ann", "ann"]


async def test_every_item_of_each_asks_for_itself() -> None:
    async def answer(request: ApprovalRequest) -> Decision:
        return Decision("value", value={"name": str(request.call["who"]), "seats": 1})

    async with Bridge(configured("modern"), approver=answer) as bridge:
        call: JSON = {
            "_tool": "book",
            "_each": "†input.people",
            "who": "†item",
            "_outputPath": "got",
        }
        run = await bridge.run_plan(
            read_plan({"calls": [call], "input": {"people": ["ann", "bob"]}})
        )
        with anyio.fail_after(20):
            assert await run.wait() == "done"
        state: Any = run.given()
        assert ["ann" in state["got"][0], "bob" in state["got"][1]] == [True, True]


async def test_a_call_of_a_room_asks_through_the_run() -> None:
    async with Bridge(configured("modern")) as bridge:
        await bridge.modules["asks"].ready(20)
        room: JSON = {
            "_tool": "solve",
            "_module": "anonymous",
            "task": "Book.",
            "tools": ["book"],
            "_outputPath": "got",
        }
        run = await bridge.run_plan(read_plan({"calls": [room]}))
        assert await run.wait(20) == "needs_solution"
        inner = await bridge.run(f"{run.id}.0")
        inner.submit(
            0, {"calls": [{"_tool": "book", "who": "ann", "_outputPath": "seat"}], "output": None}
        )
        with anyio.fail_after(20):
            while run.status != "needs_approval":
                await run.runner.wait_changed()
        entry = asked(run)
        assert entry["approval"].startswith("0/q0-")
        run.decide(entry["approval"], "value", by="Ann", value={"name": "Ann", "seats": 2})
        with anyio.fail_after(20):
            assert await run.wait() == "needs_solution"
        inner = await bridge.run(f"{run.id}.0")
        seat: Any = inner.value("†state.seat")
        assert '"seats": 2' in seat
