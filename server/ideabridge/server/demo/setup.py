"""Setup: a temporary configuration with the two servers, the example's tools and a new store."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Final
from zoneinfo import available_timezones

from ideabridge.server.demo.errors import DemoSetupError
from ideabridge.server.demo.repository import Repository
from ideabridge.tools.encoding import JSONObject

TOOL_FILE: Final = "git_history.py"
_ZONES: Final = ("Europe/Berlin", "Asia/Tokyo")


def tool_file() -> Path:
    """The example's file of tools: in the checkout, or the copy that an installed package carries.

    Raises:
        DemoSetupError: it is in neither place.
    """
    here = Path(__file__).absolute()
    for place in (here.parent / TOOL_FILE, here.parents[4] / "examples" / TOOL_FILE):
        if place.is_file():
            return place
    raise DemoSetupError(f"examples/{TOOL_FILE} is missing; install ideabridge again, or run the demo from a checkout")


def check_servers() -> None:
    """Raises DemoSetupError where the servers are not installed."""
    missing = [name for name in ("mcp_server_git", "mcp_server_time") if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(name.replace("_", "-") for name in missing)
        raise DemoSetupError(f"{names} are missing; install them with: pip install 'ideabridge[demo]'")


def time_zones() -> tuple[str, str]:
    """Two time zones for the two assistants; both UTC on a machine without a time zone database."""
    known = available_timezones()
    first, second = (zone if zone in known else "UTC" for zone in _ZONES)
    return first, second


def write_configuration(folder: Path, repository: Repository) -> Path:
    """Write `ideabridge.json` into `folder`; returns its path. The store will be `ideas.sqlite` beside it."""
    check_servers()
    git = ["-m", "mcp_server_git", "--repository", str(repository.root)]
    content: JSONObject = {
        "mcpServers": {
            "git": {"command": sys.executable, "args": [*git], "env": {"GIT_OPTIONAL_LOCKS": "0"}},
            "time": {"command": sys.executable, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]},
        },
        "tools": [str(tool_file())],
        "store": "ideas.sqlite",
    }
    path = folder / "ideabridge.json"
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return path
