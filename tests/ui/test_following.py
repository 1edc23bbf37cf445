"""The page of `ideabridge ui` follows the files of its server."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.serving import plain
from tests.trusting import write_own
from tests.waiting import until

from .serving import ask, client, served

pytestmark = pytest.mark.anyio


def page(http: httpx.Client, path: str) -> str:
    """The text of a page."""
    return html.unescape(http.get(path).text)


async def test_the_page_follows_the_files_of_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    servers: dict[str, Any] = {"docs": plain(tmp_path, "docs", "lookup")}
    file = write_own({"approval": "allow_all", "mcpServers": servers})
    with served(tmp_path) as url, client(url) as http:
        assert "/ui/modules/docs" in page(http, "/ui/modules")
        servers["mail"] = plain(tmp_path, "mail", "read_mail")
        write_own({"approval": "allow_all", "mcpServers": servers})
        await until(lambda: "/ui/modules/mail" in page(http, "/ui/modules"), 20)
        await until(lambda: "read_mail" in page(http, "/ui/modules/mail"), 20)
        run = ask(http, {"_tool": "read_mail", "_module": "mail", "x": "1"})
        await until(lambda: "done" in page(http, f"/ui/runs/{run}"), 20)

        file.write_text(json.dumps({"mcpServers": {}})[:12])
        await until(lambda: "cannot be used as it is now" in page(http, "/ui/home"), 20)
        servers_page = page(http, "/ui/modules")
        assert "cannot be used as it is now" in servers_page
        assert "/ui/modules/mail" in servers_page
        assert "Not in force" in page(http, "/ui/admin")

        write_own({"approval": "allow_all", "mcpServers": {"docs": servers["docs"]}})
        await until(lambda: "/ui/modules/mail" not in page(http, "/ui/modules"), 20)
        assert "cannot be used as it is now" not in page(http, "/ui/home")
        assert "Server mail was removed" in page(http, "/ui/admin")
