"""Tool titles: a tool has one title on all pages, and none that a visitor may not see or that could
be mistaken.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from ideabridge.bridge.store.store import Store
from ideabridge.server.ui.tool_titles import ToolTitles
from ideabridge.tools.encoding import decode, encode_text
from ideabridge.tools.tool import Annotations, Tool
from tests.ui.serving import ask, client, served, stranger, without_breaks
from tests.ui.test_servers import configured
from tests.ui.test_shown import card_of, decide, key_of
from tests.waiting import wait_until

FREE_TIME = {"_tool": "find_free_time", "_module": "calendar", "day": "Monday"}
EVENT = {"_tool": "add_event", "_module": "calendar", "title": "Tea", "day": "Monday"}


def titled(name: str, title: str = "", module: str | None = None) -> Tool:
    return Tool(name, module=module, annotations=Annotations(title=title or None))


def titles_of(*tools: Tool) -> list[str]:
    titles = ToolTitles.of_tools(tools)
    return [titles.of_tool(tool) for tool in tools]


def test_a_tool_has_its_own_title_first() -> None:
    tools = [titled("open_issue"), titled("create_issue", "Open a ticket")]
    assert titles_of(*tools) == ["Open issue", "Open a ticket"]


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("Delete everything‮", "List files"),
        ("Delete\nfiles", "List files"),
        ("Lists the files " * 10, f"{('Lists the files ' * 10)[:79]}…"),
        ("Dateien öffnen", "Dateien öffnen"),
        ("  ", "List files"),
    ],
)
def test_a_title_is_short_and_without_hidden_characters(title: str, shown: str) -> None:
    assert titles_of(titled("list_files", title, "disk")) == [shown]


@pytest.mark.parametrize("title", ["Read a file", "read a fi1e", "Reаd a file", "Read file"])
def test_a_title_that_looks_like_another_tool_of_the_server_is_not_shown(title: str) -> None:
    tools = [titled("read_file", module="disk"), titled("wipe_disk", title, "disk")]
    if title != "Read file":
        tools[0] = titled("read_file", "Read a file", "disk")
    assert titles_of(*tools) == ["Read file", "Wipe disk"]


def test_another_server_may_have_a_tool_with_the_same_title() -> None:
    tools = [titled("search", "Search mail", "mail"), titled("find", "Search mail", "archive")]
    assert titles_of(*tools) == ["Search mail", "Search mail"]


def test_a_name_without_a_server_has_a_title_if_only_one_tool_has_the_name() -> None:
    tools = [titled("search", "Search mail", "mail"), titled("add", "Add a note", "notes")]
    tools.append(titled("search", "Search the web", "web"))
    titles = ToolTitles.of_tools(tools)
    assert titles.of("search") == "Search"
    assert titles.of("search", "web") == "Search the web"
    assert titles.of("add") == "Add a note"
    assert titles.in_words("add") == "add a note"


def test_titles_in_a_worker_process_are_the_same() -> None:
    titles = ToolTitles.of_tools([titled("add", "Add a note", "notes")])
    assert ToolTitles.from_json(decode(encode_text(titles.to_json()))) == titles


@contextmanager
def office(folder: Path, of_profile: Sequence[str] = ()) -> Generator[str]:
    """Serve the page with the server `calendar`, and a profile with these servers."""
    script = str(Path(__file__).with_name("office_servers.py"))
    file = configured(
        folder, {"calendar": {"command": sys.executable, "args": [script, "calendar"]}}
    )
    content = json.loads(file.read_text(encoding="utf-8"))
    content["profiles"] = {"narrow": {"servers": [*of_profile]}}
    file.write_text(json.dumps(content), encoding="utf-8")
    with served(folder) as url:
        yield url


def page_of(http: httpx.Client, path: str) -> str:
    return without_breaks(http.get(path).text)


def test_a_tool_has_the_same_title_on_every_page(tmp_path: Path) -> None:
    with office(tmp_path) as url, client(url) as http:
        wait_until(lambda: "Find free time" in page_of(http, "/ui/modules/calendar"))
        assert "Add an event" in page_of(http, "/ui/playground?kind=tool")
        run = ask(http, FREE_TIME, EVENT)
        key = key_of(http, run)
        assert "Called Find free time" in page_of(http, f"/ui/runs/{run}")
        assert "<h1>Add an event" in page_of(http, f"/ui/runs/{run}/calls/1")
        assert "Find free time, add an event" in page_of(http, "/ui/runs")

        # Whoever decides also sees which tool of which server has the title.
        card = without_breaks(card_of(http, run))
        assert "<h3>Add an event</h3>" in card
        assert '<code class="tool">add_event</code> of <span class="tool">calendar</span>' in card

        decide(http, key, "deny")
        assert "Add an event</a>" in page_of(http, "/ui/approvals/past")
        assert ">Add an event<" in page_of(http, f"/ui/runs/{run}/picture.svg")


def test_a_visitor_sees_no_title_of_a_server_that_their_profile_lost(tmp_path: Path) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.users.add("bob")
        _, token = store.users.add_token("bob", profile="narrow")

    with office(tmp_path, ["calendar"]) as url, stranger(url) as bob:
        bob.post("/ui/sign-in", data={"token": token})
        wait_until(lambda: "Add an event" in page_of(bob, "/ui/modules/calendar"))
        run = ask(bob, EVENT)
        key_of(bob, run)
        assert "Add an event" in page_of(bob, f"/ui/runs/{run}")

    with office(tmp_path) as url, stranger(url) as bob, client(url) as owner:
        bob.post("/ui/sign-in", data={"token": token})
        wait_until(lambda: "Add an event" in page_of(owner, "/ui/modules/calendar"))
        for path in (f"/ui/runs/{run}", "/ui/runs", "/ui/home", "/ui/playground?kind=tool"):
            # The card of the open decision has the description of the tool, as the run knows it.
            shown = page_of(bob, path).replace("Add an event to the calendar.", "")
            assert "add an event" not in shown.lower(), path
        assert "Add event" in page_of(bob, f"/ui/runs/{run}")
