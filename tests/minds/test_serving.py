"""A configured model behind the server, and the example: over real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from tests import preloaded
from tests.server.sampled import FIRST, MALFORMED, OUTPUT, SECOND, prepare
from tests.server.serving import ERAS, call, configured, http_process, over_stdio

from .fake import Fail, Refuse, Say, endpoint, say

pytestmark = pytest.mark.anyio

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "model_mind.py"
ADD = {"_tool": "add", "a": "†input.a", "b": 2, "_outputPath": "sum"}


@pytest.mark.parametrize("era", ERAS)
async def test_solve_is_answered_by_the_configured_model(era: str, tmp_path: Path) -> None:
    answer = say(json.dumps({"calls": [ADD], "output": "†state.sum"}, ensure_ascii=False))
    async with endpoint(answer) as fake:
        model = {"name": "openai:tiny-1", "base_url": fake.base_url}
        async with over_stdio(configured(tmp_path, model=model), era) as client:
            asked: dict[str, Any] = {
                "task": "Add.",
                "input": {"a": 1},
                "output_schema": {"type": "integer"},
            }
            told = await call(client, "solve", **asked)
            assert (told["status"], told["output"]) == ("done", 3)
            assert told["mind"]["name"] == "model"
            assert told["usage"]["tokens"] == 1234
            assert (await call(client, "solve", **asked, mind="model"))["status"] == "done"
            assert (await call(client, "solve", **asked, mind="turns"))[
                "status"
            ] == "needs_solution"
        assert len(fake.bodies) == 2


def written(*solutions: dict[str, Any], cut: int) -> list[Say]:
    """A model's answers in a stream of pieces of `cut` bytes."""
    return [say(json.dumps(solution, ensure_ascii=False), cut=cut) for solution in solutions]


@pytest.mark.parametrize(
    "refuses", [(), ("json_schema", "json_object")], ids=["streamed", "refuses"]
)
async def test_the_task_of_every_mind_has_the_same_output(
    refuses: tuple[str, ...], tmp_path: Path
) -> None:
    # A model that streams does not get its malformed call back: the call fails, and the others have
    # run.
    answers = written(MALFORMED, FIRST, SECOND, cut=11)
    error = Fail(400, "Invalid schema for response_format: compiled grammar is too large")
    # Each refusal uses up one turn of the endpoint.
    refused = [Refuse(refuses, error, answers[0])] * len(refuses)
    said = [Refuse(refuses, error, answer) for answer in answers]
    async with endpoint(*refused, *said, *said) as fake:
        configuration, task = prepare(
            tmp_path, model={"name": "openai:tiny-1", "base_url": fake.base_url}
        )
        with http_process(configuration) as url:
            for number, era in enumerate(ERAS, 1):
                async with Client(url, mode=era, read_timeout_seconds=60) as client:
                    done = await call(client, "solve", **task)

                assert done["mind"]["name"] == "model"
                assert (done["status"], done["output"]) == ("done", OUTPUT)
                # What was refused once is never tried again, whoever asks.
                assert len(fake.bodies) == len(refuses) + 3 * number
                assert set(fake.formats[-3:]) == ({"none"} if refuses else {"json_schema"})


async def test_the_example_runs(tmp_path: Path) -> None:
    calls = [
        {"_tool": "read_text", "name": "first", "_outputPath": "text"},
        {"_tool": "count_words", "text": "†state.text", "_outputPath": "words"},
    ]
    answer = say(json.dumps({"calls": calls, "output": "†state.text"}, ensure_ascii=False), cut=9)
    async with endpoint(answer) as fake:
        command = [
            preloaded.interpreter(tmp_path),
            EXAMPLE,
            "--model",
            "openai:tiny-1",
            "Count the words.",
        ]
        environment = {"OPENAI_BASE_URL": fake.base_url, "PYTHONIOENCODING": "utf-8"}
        with anyio.fail_after(60):
            done = await anyio.run_process(command, env=environment, check=False)

    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.decode().splitlines()
    assert lines[-2:] == [
        "output: The quick brown fox jumps over the lazy dog.",
        "usage: {'requests': 1, 'tokens': 1234}",
    ]
    assert lines.count("  ran") == 2
