"""What the command line shows of images, and of what a tool sent although its call failed."""

from __future__ import annotations

import json
from pathlib import Path

from tests import preloaded
from tests.trusting import write_trusted

from .conftest import Run
from .terminal import at_terminal

GIVING = Path(__file__).parents[1] / "modules" / "servers" / "giving.py"
IMAGE = {"type": "image", "data": "A" * 4000, "mimeType": "image/png"}
WRONG = {"content": [IMAGE], "structuredContent": {"n": "three"}}


def test_an_image_is_whole_in_a_pipe_and_short_at_a_terminal(
    project: Path, ideabridge: Run
) -> None:
    configuration = {"mcpServers": {"one": preloaded.module(GIVING)}, "approval": "allow_all"}
    write_trusted(project, configuration)
    calls = [{"_tool": "give", "result": {"content": [IMAGE]}}, {"_tool": "typed", "result": WRONG}]
    (project / "plan.json").write_text(
        json.dumps({"calls": calls, "output": {"shot": "†results.0.0"}})
    )
    piped = ideabridge("run", "plan.json")
    shown = at_terminal(project, "run", "plan.json")
    whole = ideabridge("run", "plan.json", "--json")

    assert json.loads(piped.stdout) == {"shot": IMAGE}
    assert "4,000 characters" in shown
    assert IMAGE["data"] not in shown
    said = (
        "sent the following, which nobody checked: "
        '{"structuredContent":{"n":"three"},"content":[{"type":"image","data":"4,000'
    )
    assert said in piped.stderr
    [error] = json.loads(whole.stdout)["errors"]
    assert error["error"]["sent"] == {"structuredContent": {"n": "three"}, "content": [IMAGE]}
