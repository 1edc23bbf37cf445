"""Commands that ask a model: `ideabridge solve --model`, stopped while the model is slow, and
`ideabridge ideas suggest`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.minds.fake import Fail, Say, endpoint, say
from tests.server.test_ending import STUBBORN, is_there
from tests.trusting import write_trusted

from .conftest import EXECUTABLE, Run

pytestmark = pytest.mark.anyio

COUNT = '{"calls": [{"_tool": "count", "items": [1, 2], "_outputPath": "n"}, '


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals there")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_stopped_solve_hangs_up_leaves_no_process_and_says_how_it_stands(
    project: Path, ideabridge: Run, number: signal.Signals
) -> None:
    told = project / "pid"
    os.mkfifo(told)
    asked, gone = anyio.Event(), anyio.Event()

    async def linger() -> None:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            gone.set()

    async with endpoint(say(COUNT, linger)) as fake:
        configuration: dict[str, Any] = {
            "store": "store.sqlite",
            "model": {"name": "openai:tiny-1", "base_url": fake.base_url},
            "mcpServers": {
                "stubborn": {"command": sys.executable, "args": ["-c", STUBBORN, str(told)]}
            },
        }
        write_trusted(project, configuration)
        command = [str(EXECUTABLE), "solve", "Count them.", "-t", "count"]
        async with await anyio.open_process(command, stdin=subprocess.DEVNULL) as process:
            with anyio.fail_after(60):
                child = int(await anyio.to_thread.run_sync(told.read_text))
                assert process.stderr is not None
                said = b""
                # The call at the beginning of the answer has ended, but the rest of the answer
                # never arrives.
                while b"count done" not in said:
                    said += await process.stderr.receive()

                await asked.wait()
                process.send_signal(number)
                said += b"".join([piece async for piece in process.stderr])
                assert await process.wait() == 130
                await gone.wait()

    assert not is_there(child)
    text = said.decode()
    assert "cancelled (stopped at the terminal)" in text
    assert "Traceback" not in text
    run = text[text.index("run_") :].split(":")[0]
    shown = ideabridge("runs", "show", run).stdout
    assert "the run ends: cancelled: stopped at the terminal" in shown
    # A run that a person has ended stays ended, and the command says so.
    again = ideabridge("resume", run)
    assert (again.returncode, again.stdout) == (2, "")
    assert f"run {run} has ended (cancelled); there is nothing to resume" in again.stderr


async def test_solve_tells_which_model_answers_and_no_key(project: Path, ideabridge: Run) -> None:
    write_trusted(project, '{"store": "store.sqlite"}')
    key = "sk-0123456789abcdef"
    async with endpoint(say('{"calls": [], "output": "hello"}')) as fake:
        own = {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": fake.base_url}
        done = await anyio.to_thread.run_sync(
            lambda: ideabridge("solve", "Say hello.", "--model", "openai:tiny-1", env=own)
        )

    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    place = fake.base_url.removeprefix("http://").partition("/")[0]
    assert f"mind: model (openai:tiny-1 at {place} is configured here)" in done.stderr
    assert key not in done.stderr


async def test_the_model_names_what_is_suggested(project: Path, ideabridge: Run) -> None:
    letter = {
        "_tool": "template",
        "text": "Dear {name}",
        "values": {"name": "†input.name"},
        "_outputPath": "letter",
    }
    count = {"_tool": "count", "items": ["†state.letter"]}
    (project / "plan.json").write_text(json.dumps({"calls": [letter, count]}))
    write_trusted(project, {"store": "store.sqlite"})
    for name in ("Ada", "Bo"):
        assert ideabridge("run", "plan.json", "-i", f"name={name}").returncode == 0

    async def suggested(answer: Say | Fail) -> tuple[str, list[str]]:
        async with endpoint(answer) as fake:
            model = {"name": "openai:tiny-1", "base_url": fake.base_url, "retries": 0}
            write_trusted(project, {"store": "store.sqlite", "model": model})
            done = await anyio.to_thread.run_sync(lambda: ideabridge("ideas", "suggest", "--json"))

        assert (done.returncode, done.stderr) == (0, "")
        told = json.loads(done.stdout)
        (suggestion,) = told["suggestions"]
        return suggestion["name"], told["notes"]

    solution = '{"calls": [], "output": {"names": ["write_letter"]}}'
    assert await suggested(say(solution)) == ("write_letter", [])
    name, (note,) = await suggested(Fail(401))
    assert name == "template_and_count"
    assert "because the model gave none: " in note
    assert "the model endpoint answered 401: no" in note
