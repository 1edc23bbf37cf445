"""Draws docs/images/run.svg: a run of the demo's plan, with real servers, as the page draws it.

python -m tests.ui.picture
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

from tests.ui.serving import client, send, served

ROOT = Path(__file__).parent.parent.parent
PICTURE = ROOT / "docs" / "images" / "run.svg"
PLAN = ROOT / "examples" / "git_history.json"


def drawn(folder: Path) -> str:
    """Run the demo's plan over the repository of this project; returns the picture of the run."""
    folder = folder.resolve()
    modules = {name: {"command": sys.executable, "args": ["-m", f"mcp_server_{name}"]} for name in ("git", "time")}
    configuration = folder / "ideabridge.json"
    configuration.write_text(json.dumps({"mcpServers": modules}), encoding="utf-8")
    given = {"repo": str(ROOT), "count": 20, "timezone": "Europe/Berlin"}
    words = ["--config", str(configuration), "--tools", str(ROOT / "examples" / "git_history.py")]
    path = ""
    with served(folder, *words) as url, client(url) as http:
        for _ in range(2):
            # The first run starts the servers; the second shows what a user sees from then on.
            answer = send(
                http,
                "/ui/playground",
                kind="plan",
                text=PLAN.read_text(encoding="utf-8"),
                input=json.dumps(given),
                title="What happened in this repository?",
                action="run",
            )
            path = answer.url.path
            assert "/runs/run_" in path, answer.text
            with http.stream("GET", "/ui/live") as changes:
                for _ in changes.iter_lines():
                    if re.search(r'class="status s-done"', http.get(path).text.partition("</section>")[0]):
                        break
        return http.get(f"{path}/picture.svg").text


def main() -> None:
    """Draw, and write the file."""
    with tempfile.TemporaryDirectory() as name:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(drawn(Path(name)), encoding="utf-8")


if __name__ == "__main__":
    main()
