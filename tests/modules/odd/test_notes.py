"""People see what was odd about a module, in `servers list` and in `doctor`; no word of it
is a library's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import preloaded
from tests.modules.conftest import BIN, SERVERS
from tests.modules.servers.odd import Edit
from tests.trusting import write_trusted

from .laws import foreign_words

ODD: list[Edit] = [
    ["initialize", "raw", "Server ready.%M%"],
    ["initialize", "drop", ["result", "serverInfo"]],
    ["tools/list", "put", ["result", "tools", 0, "icons"], "x"],
    ["tools/list", "put", ["result", "tools", 3, "name"], 5],
    ["tools/list", "put", ["result", "tools", 4, "annotations", "readOnlyHint"], "true"],
]


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("words", [["servers", "list"], ["servers", "list", "--json"], ["doctor"]])
def test_people_see_what_was_odd(words: list[str], tmp_path: Path) -> None:
    odd = {
        "command": sys.executable,
        "args": ["-I", "-S", str(SERVERS / "odd.py"), json.dumps(ODD)],
    }
    write_trusted(tmp_path, {"mcpServers": {"odd": odd}})
    done = subprocess.run(
        [*preloaded.python(BIN / "ideabridge"), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    shown = " ".join((done.stdout + done.stderr).split())
    assert not foreign_words([done.stdout, done.stderr])
    for said in ("not a message", "icons", "'fails'", "readOnlyHint"):
        assert said in shown, done.stdout + done.stderr
