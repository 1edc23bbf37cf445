"""The recorded mind: answers from stored ideas, and says loudly how a Request it cannot
answer differs.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from ideabridge.bridge import Bridge, Configuration, Recorded, Store
from ideabridge.bridge.minds.recorded import recording, recording_of
from ideabridge.bridge.store.errors import IdeaDocumentError, StoreAccessError, TamperedIdeaError
from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject

pytestmark = pytest.mark.anyio

SCHEMA: JSONObject = {
    "type": "object",
    "properties": {"loud": {"type": "string"}},
    "required": ["loud"],
}
SECOND: JSON = {"calls": [], "output": {"loud": "†state.loud"}}


@tool(read_only=True)
def shout(text: str) -> str:
    """Make text loud."""
    return text.upper()


@tool(read_only=True)
def whisper(text: str) -> str:
    """Make text quiet."""
    return text.lower()


async def recorded(store: Store) -> str:
    """Solve the task by turns; gives the run."""
    async with Bridge(toolbox=Toolbox(shout), store=store) as bridge:
        run = await bridge.solve(
            "Shout.", input={"text": "hello"}, output_schema=SCHEMA, tools=["shout"]
        )
        run.submit(0, {"calls": [{"_tool": "shout", "text": "†input.text", "_outputPath": "loud"}]})
        assert await run.wait(30) == "needs_solution"
        run.submit(1, SECOND)
        assert await run.wait(30) == "done"
        return run.id


async def replayed(mind: Recorded, text: str = "hello", schema: JSONObject = SCHEMA) -> JSONObject:
    async with Bridge(toolbox=Toolbox(shout, whisper), mind=mind) as bridge:
        run = await bridge.solve(
            "Shout.", input={"text": text}, output_schema=schema, tools=["shout"]
        )
        await run.wait(30)
        for idea in bridge.store.ideas.of_run(run.id):
            assert idea.meta.mind == "recorded"
        return run.answer()


async def test_a_recorded_run_is_answered_again_step_by_step() -> None:
    with Store.open(":memory:") as store:
        run = await recorded(store)
        told = await replayed(Recorded(store))
        assert told["status"] == "done"
        assert told["output"] == {"loud": "HELLO"}
        assert told["mind"] == {"name": "recorded", "why": "a recording is configured here"}
        assert told["run"] != run
        assert told["idea"] == store.ideas.of_run(run)[-1].id


async def test_a_miss_ends_the_run_and_shows_the_nearest_request_and_the_difference() -> None:
    with Store.open(":memory:") as store:
        run = await recorded(store)
        told = await replayed(Recorded(store), text="goodbye")
        assert told["status"] == "failed"
        reason = str(told["reason"])
        first = store.ideas.of_run(run)[0]
        assert f"the nearest is idea {first.id[:12]} (step 1 of {run})" in reason
        assert '-      "text": "hello"' in reason
        assert '+      "text": "goodbye"' in reason
        assert "recorded schema" not in reason
        other: JSONObject = {"type": "object", "properties": {"loud": {"type": "integer"}}}
        reason = str((await replayed(Recorded(store), schema=other))["reason"])
        assert "recorded context" not in reason
        assert "--- recorded schema" in reason
        assert '"integer"' in reason


async def test_an_empty_recording_says_so() -> None:
    with Store.open(":memory:") as store:
        assert "the recording contains no ideas" in str((await replayed(Recorded(store)))["reason"])


async def test_a_recording_is_a_file_of_documents_or_a_store(tmp_path: Path) -> None:
    path = tmp_path / "ideas.sqlite"
    file = tmp_path / "recording.json"
    with Store.open(path) as store:
        documents = recording_of(
            store, await recorded(store), partial(store.export_idea, caller=SEES_ALL, results=True)
        )

    assert len(documents) == 2
    file.write_text(json.dumps(documents), encoding="utf-8")
    for place in (path, file):
        with recording(place) as mind:
            assert (await replayed(mind))["output"] == {"loud": "HELLO"}


async def test_a_file_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "recording.json"
    with pytest.raises(StoreAccessError, match="cannot be read"), recording(file):
        pass

    file.write_text('[{"solution": {}}]')
    with (
        pytest.raises(IdeaDocumentError, match=r"recording\.json: 0: .* context: missing"),
        recording(file),
    ):
        pass

    with Store.open(":memory:") as store:
        documents = recording_of(
            store, await recorded(store), partial(store.export_idea, caller=SEES_ALL, results=True)
        )

    documents[1]["solution"] = {"calls": [], "output": {"loud": "changed"}}
    file.write_text(json.dumps(documents))
    with pytest.raises(TamperedIdeaError), recording(file):
        pass


# -- recordings of earlier versions ----------------------------------------------------------------


async def test_a_run_that_was_recorded_before_ideas_stored_values_is_answered_again() -> None:
    """Then, a later context had previews of large values, and of the last 50 calls alone."""

    @tool(read_only=True)
    def page(number: int, size: int) -> str:
        """A page."""
        return f"begin{number} " + "x" * size

    state: JSON = {"type": "state", "state": {"title": "t"}}
    with recording(Path(__file__).with_name("recorded_before_values.json")) as mind:
        # Turn programs off, because what a Request says about them has since changed for other
        # reasons.
        async with Bridge(
            Configuration(programs=False), toolbox=Toolbox(page), mind=mind
        ) as bridge:
            run = await bridge.solve(
                "Read pages.", output_schema={"type": "string"}, tools=["page"], context=[state]
            )
            assert await run.wait(20) == "done", run.answer()
            assert run.answer()["output"] == "begin60 " + "x" * 500
            assert len(run.calls()) == 52


async def test_a_run_that_was_recorded_before_written_results_were_said_to_be_text_is_answered_again() -> (
    None
):
    title: JSONObject = {
        "name": "title",
        "description": "A title.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
    }
    mood: JSONObject = {
        "name": "mood",
        "parameters": title["parameters"],
        "output": {"enum": ["good", "bad"]},
    }
    context: list[JSON] = [{"type": "tool", "tool": title}, {"type": "tool", "tool": mood}]
    with recording(Path(__file__).with_name("recorded_before_text.json")) as mind:
        async with Bridge(mind=mind) as bridge:
            run = await bridge.solve(
                "Name the letter.",
                context=context,
                tools=["title", "mood"],
                input={"letter": "Dear all"},
                output_schema={"type": "string"},
            )
            assert await run.wait(20) == "done", run.answer()
            assert (run.answer()["output"], run.state["mood"]) == ("To all", "good")


async def test_a_long_recording_of_an_earlier_version_answers_from_its_first_ideas_too() -> None:
    document = json.loads(Path(__file__).with_name("recorded_before_text.json").read_text())[0]
    idea = Idea(document["context"], document["schema"], document["solution"])
    with Store.open(":memory:") as store:
        store.ideas.save(idea, IdeaMeta())
        with store.transaction():
            for number in range(600):
                store.ideas.save(Idea([number], {}, None), IdeaMeta())
        async with Bridge(mind=Recorded(store)) as bridge:
            run = await bridge.solve(
                context=idea.context, tools=["title", "mood"], output_schema={"type": "string"}
            )
            await run.wait(20)
            assert run.state["mood"] == "good"


async def test_a_run_in_which_values_were_read_is_answered_again() -> None:
    @tool(read_only=True)
    def page(size: int) -> str:
        """A page."""
        return "x" * size + " end"

    with Store.open(":memory:") as store:
        async with Bridge(toolbox=Toolbox(page), store=store) as bridge:
            run = await bridge.solve("Read.", tools=["page"], shown={"value": 1000})
            run.submit(0, {"calls": [{"_tool": "page", "size": 5000}]})
            assert await run.wait(30) == "needs_solution"
            run.submit(1, {"calls": [{"_tool": "read", "reference": "†results.0", "find": "end"}]})
            assert await run.wait(30) == "needs_solution"
            run.submit(2, {"calls": [], "output": "the end"})
            assert await run.wait(30) == "done"
        async with Bridge(toolbox=Toolbox(page), mind=Recorded(store)) as bridge:
            again = await bridge.solve("Read.", tools=["page"])
            assert await again.wait(30) == "done", again.answer()
            assert again.answer()["idea"] == run.answer()["idea"]
