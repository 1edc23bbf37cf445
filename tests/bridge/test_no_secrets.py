"""Secrets of the configuration get into no journal and no idea, whoever writes them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ideabridge.bridge import ApprovalRules, Bridge, Configuration, read_plan
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.errors import RejectedSolutionError, SecretGivenError
from ideabridge.bridge.modules.settings import ModuleConfiguration
from ideabridge.bridge.store.portable import sealed
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import ActivityContext, Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject

pytestmark = pytest.mark.anyio

SECRET = "tr0ub4dor-and-three"
WITHOUT = "[secret:API_TOKEN]"


@tool(read_only=True)
def leak() -> dict[str, str]:
    """A tool that tells what it should not."""
    return {"header": f"Bearer {SECRET}", SECRET: "a key"}


@tool(read_only=True)
def shout(text: str) -> str:
    """Make text loud."""
    return text.upper()


@tool(read_only=True)
def say(context: ActivityContext) -> str:
    """Tell the mind something."""
    context.add_message({"role": "user", "content": f"it is {SECRET}"})
    return "said"


@tool(read_only=False)
def send(text: str) -> str:
    """Send."""
    return f"sent {text}"


def bridged(
    folder: Path, mind: Prepared | None = None, approval: str | ApprovalRules = "allow_all"
) -> Bridge:
    # The module never runs, but the values in its configuration are still secret.
    module = ModuleConfiguration(
        command="no-such-program", env={"API_TOKEN": SECRET}, disabled=True
    )
    configuration = Configuration.model_validate(
        {"mcpServers": {"m": module.model_dump(exclude_defaults=True)}}
    )
    configuration = configuration.model_copy(update={"approval": approval})
    toolbox = Toolbox(leak, shout, say, send)
    return Bridge(configuration, toolbox=toolbox, store=folder / "store.sqlite", mind=mind)


def kept(folder: Path) -> bytes:
    """Everything the store's files hold."""
    return b"".join(file.read_bytes() for file in sorted(folder.glob("store.sqlite*")))


class Prepared:
    """A mind with prepared answers, each in one piece."""

    name = "prepared"

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[Request] = []

    async def answer(self, request: Request) -> AsyncIterator[str | bytes]:
        self.asked.append(request)
        for piece in self.answers.pop(0):
            yield piece


@pytest.mark.parametrize(
    ("plan", "place"),
    [
        ({"calls": [{"_tool": "shout", "text": f"a {SECRET}"}]}, "calls.0.text"),
        ({"calls": [{"_tool": "shout", "text": "a"}], "output": [SECRET]}, "output.0"),
        (
            {"calls": [{"_tool": "shout", "text": "†input.a"}], "input": {"a": {SECRET: SECRET}}},
            "context.0.input.a",
        ),
    ],
)
async def test_a_plan_that_holds_one_is_refused_and_not_kept(
    tmp_path: Path, plan: JSONObject, place: str
) -> None:
    async with bridged(tmp_path) as bridge:
        with pytest.raises(
            SecretGivenError, match=rf"^{place} contains the secret API_TOKEN"
        ) as caught:
            await bridge.run_plan(read_plan(plan), title=f"with {SECRET}")
        assert SECRET not in str(caught.value)
        assert bridge.runs() == []
    assert SECRET.encode() not in kept(tmp_path)


async def test_a_task_that_holds_one_is_refused_and_not_kept(tmp_path: Path) -> None:
    async with bridged(tmp_path) as bridge:
        with pytest.raises(
            SecretGivenError, match=r"^context\.0\.content contains the secret API_TOKEN"
        ):
            await bridge.solve(f"log in with {SECRET}")
        schema: JSONObject = {"const": SECRET}
        with pytest.raises(SecretGivenError, match=r"^output_schema\.const contains"):
            await bridge.solve("log in", output_schema=schema)
        with pytest.raises(SecretGivenError, match=r"^context\.0\.state\.token contains"):
            async with bridge.session(state={"token": SECRET}):
                pass
        assert bridge.runs() == []
    assert SECRET.encode() not in kept(tmp_path)


async def test_a_turn_that_holds_one_stays_open(tmp_path: Path) -> None:
    async with bridged(tmp_path) as bridge:
        run = await bridge.solve("shout")
        held: JSON = {"calls": [{"_tool": "shout", "text": SECRET}], "output": None}
        with pytest.raises(
            RejectedSolutionError, match=r"calls\.0\.text contains the secret API_TOKEN"
        ) as caught:
            run.submit(0, held)
        assert SECRET not in str(caught.value)
        with pytest.raises(RejectedSolutionError):
            run.submit(0, {"calls": [{"_tool": SECRET}], "output": None})
        run.reject(0, f"no JSON, {SECRET}", f"no JSON: {SECRET}")
        assert run.status == "needs_solution"
        run.submit(0, {"calls": [], "output": "done"})
        assert await run.wait() == "done"
    assert SECRET.encode() not in kept(tmp_path)


async def test_an_answer_that_streams_in_breaks_off_where_one_stands_in_it(tmp_path: Path) -> None:
    whole = json.dumps(
        {"calls": [{"_tool": "shout", "text": "a"}, {"_tool": "shout", "text": SECRET}]}
    )
    cut = whole.index("}") + 1
    mind = Prepared([whole[:cut], whole[cut:]], ['{"calls": [], "output": "done"}'])
    async with bridged(tmp_path, mind) as bridge:
        run = await bridge.solve("shout")
        assert await run.wait() == "done"
        assert [call.value for call in run.calls()] == ["A"]

    assert "contains the secret API_TOKEN" in json.dumps(mind.asked[1].context_json)
    assert SECRET.encode() not in kept(tmp_path)


async def test_what_tools_give_and_say_is_kept_without(tmp_path: Path) -> None:
    calls = [{"_tool": "leak", "_outputPath": "a"}, {"_tool": "say"}]
    mind = Prepared([json.dumps({"calls": calls})], ['{"calls": [], "output": "done"}'])
    async with bridged(tmp_path, mind) as bridge:
        run = await bridge.solve("look")
        assert await run.wait() == "done"
        assert run.value("†state.a") == {"header": f"Bearer {WITHOUT}", WITHOUT: "a key"}

    assert f"it is {WITHOUT}" in json.dumps(mind.asked[1].context_json)
    assert SECRET.encode() not in kept(tmp_path)


async def test_a_decision_that_holds_one_decides_nothing(tmp_path: Path) -> None:
    async with bridged(tmp_path, approval=ApprovalRules(default="read_only")) as bridge:
        run = await bridge.run_plan(read_plan({"calls": [{"_tool": "send", "text": "x"}]}))
        assert await run.wait() == "needs_approval"
        approval = run.questions()[0].approval
        with pytest.raises(SecretGivenError, match=r"^edited\.text contains"):
            run.decide(approval, "edit", by="me", call={"_tool": "send", "text": SECRET})
        with pytest.raises(SecretGivenError, match=r"^reason contains"):
            run.decide(approval, "deny", by="me", reason=f"{SECRET} is wrong")
        assert run.status == "needs_approval"
        run.decide(approval, "approve", by="me")
        assert await run.wait() == "done"
    assert SECRET.encode() not in kept(tmp_path)


async def test_forks_and_publications_are_kept_without(tmp_path: Path) -> None:
    async with bridged(tmp_path) as bridge:
        run = await bridge.run_plan(
            read_plan(
                {
                    "calls": [{"_tool": "shout", "text": "†input.a", "_outputPath": "b"}],
                    "input": {"a": "x"},
                }
            )
        )
        assert await run.wait() == "done"
        with pytest.raises(SecretGivenError, match=r"^context\.0\.input\.a contains"):
            await bridge.fork(run.id, 1, input={"a": SECRET})
        with pytest.raises(SecretGivenError, match=r"^calls\.0\.text contains"):
            await bridge.fork(
                run.id, 1, solution={"calls": [{"_tool": "shout", "text": SECRET}], "output": None}
            )
        with pytest.raises(SecretGivenError, match=r"^description contains"):
            await bridge.publish(run.id, "shouts", description=f"with {SECRET}")
        assert (await bridge.publish(run.id, "shouts")).name == "shouts"
    assert SECRET.encode() not in kept(tmp_path)


async def test_why_a_run_was_ended_and_long_titles_are_kept_without(tmp_path: Path) -> None:
    async with bridged(tmp_path) as bridge:
        run = await bridge.solve("shout")
        run.cancel(f"it used {SECRET}")
        assert run.machine.reason == f"it used {WITHOUT}"
        plan = read_plan({"calls": [{"_tool": "shout", "text": "a"}]})
        cut = await bridge.run_plan(plan, title="x" * 190 + SECRET)
        assert await cut.wait() == "done"
    assert SECRET[:10].encode() not in kept(tmp_path)


async def test_an_import_that_holds_one_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    async with bridged(tmp_path) as bridge:
        raw: JSON = {
            "calls": [{"_tool": "shout", "text": "†input.a", "_outputPath": "b"}],
            "input": {"a": "x"},
        }
        run = await bridge.run_plan(read_plan(raw))
        assert await run.wait() == "done"
        await bridge.publish(run.id, "shouts", answer="recorded")
        document = bridge.export_idea("shouts", caller=SEES_ALL)
        told = document["publication"]
        assert isinstance(told, dict)
        changes: list[tuple[JSONObject, str]] = [
            (
                {"publication": {**told, "name": "others", "recorded": {"output": SECRET}}},
                r"recorded\.output",
            ),
            (
                {"publication": {**told, "name": "others", "input_schema": {"title": SECRET}}},
                "input_schema",
            ),
            ({"meta": {"tags": [SECRET]}}, r"meta\.tags\.0"),
        ]
        for changed, place in changes:
            for publish in (True, False):
                with pytest.raises(SecretGivenError, match=place):
                    await bridge.import_idea(sealed({**document, **changed}), publish=publish)
    assert SECRET.encode() not in kept(tmp_path)
