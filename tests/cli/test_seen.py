"""`ideabridge runs show --at`: the Request exactly as the mind had it, whoever the mind was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import load_configuration
from ideabridge.bridge.runs.run import Run
from ideabridge.server.main import main
from ideabridge.tools.encoding import JSON, content_hash
from tests.bridge.test_minds import Scripted, solution

from .test_history import here, told

__all__ = ["here"]

Told = list[tuple[str, list[Any]]]
"""(request id, what the mind read) in the order in which minds were asked."""


def look(name: str, **more: JSON) -> JSON:
    return {"_tool": "look", "name": name, **more}


ROOM: JSON = {
    "_tool": "solve",
    "_module": "anonymous",
    "task": "Say it.",
    "input": {"odd": "††state.x", "text": "é\u2028"},
    "_imports": ["†state.p"],
    "_outputPath": "said",
}


async def streamed_with_a_room(folder: Path) -> tuple[list[str], Told]:
    first = [
        '{"calls": [',
        json.dumps(look("a", _outputPath="p")),
        f", {json.dumps(look('nothing'))},",
    ]
    mind = Scripted(
        [*first, f"{json.dumps(ROOM)}], ", '"output": null}'],
        # The room asks again after a call in it has failed.
        solution([look("b")]),
        solution([], "said so"),
        solution([], "done"),
    )
    async with Bridge(load_configuration(project=folder), mind=mind) as bridge:
        run = await bridge.solve("Look.", tools=["look", "anonymous.solve"], input={"name": "x"})
        assert await run.wait() == "done"
        runs = [run.id, *(room.id for room in bridge.store.runs.rooms(run.id))]

    assert len(runs) == 2
    return runs, [(one.id, list(one.texts)) for one in mind.requests]


def asked(run: Run) -> str:
    """The first approval that is waited for."""
    return str(run.answer()["approvals"][0]["approval"])


async def turns_with_an_edit(folder: Path) -> tuple[list[str], Told]:
    seen: Told = []

    def note(run: Run) -> None:
        assert run.runner.request is not None
        seen.append((run.runner.request.id, list(run.runner.request.texts)))

    async with Bridge(load_configuration(project=folder)) as bridge:
        run = await bridge.solve("Send twice.", tools=["look", "send"], input={"name": "x" * 5000})
        note(run)
        send: JSON = {"_tool": "send", "text": "†input.name", "_outputPath": "sent"}
        run.submit(0, {"calls": [send, look("nothing"), {**send, "text": "no"}], "output": None})
        edited: JSON = {"_tool": "send", "text": "†edited"}
        assert await run.wait() == "needs_approval"
        run.decide(asked(run), "edit", by="me", call=edited, reason="shorter")
        # Both calls asked at the same time.
        assert await run.wait() == "needs_approval"
        run.decide(asked(run), "deny", by="me", reason="once is enough")
        assert await run.wait() == "needs_solution"
        note(run)
        run.submit(1, {"calls": [look("†state.sent")], "output": "†results.3"})
        assert await run.wait() == "done"

    return [run.id], seen


@pytest.mark.parametrize("minds", [streamed_with_a_room, turns_with_an_edit])
def test_the_id_of_a_request_is_that_of_what_is_shown(
    here: Path, capsys: pytest.CaptureFixture[str], minds: Any
) -> None:
    runs, seen = anyio.run(minds, here)
    capsys.readouterr()
    shown: dict[str, list[Any]] = {}
    ideas: list[str] = []
    for run in runs:
        assert main(["runs", "show", run, "--json"]) == 0
        answer = told(capsys)
        assert "broken" not in answer
        requests: list[str] = []
        for number, event in enumerate((one["event"] for one in answer["events"]), 1):
            if event["event"] == "request_made":
                requests.append(event["request"])

            if not requests:
                continue
            # Whatever has happened since, the Request of the mind is still the same.
            assert main(["runs", "show", run, "--at", str(number), "--json"]) == 0
            moment = told(capsys)
            parts = {
                "context": moment["messages"],
                "schema": moment["schema"],
                "shown": moment["shown"],
            }
            recomputed = content_hash(parts)
            assert recomputed == moment["request"] == requests[-1]
            assert moment["exact"] is True
            shown[recomputed] = moment["context"]

        for idea in answer["ideas"]:
            assert main(["ideas", "show", idea, "--json"]) == 0
            ideas.append(told(capsys)["request_id"])

        assert main(["runs", "show", run]) == 0
        assert main(["runs", "show", run, "--at", "2"]) == 0
        assert "as the mind saw it\n" in capsys.readouterr().out

    # No other Request was sent, and each is an idea.
    assert shown == dict(seen)
    assert sorted(ideas) == sorted(shown)
