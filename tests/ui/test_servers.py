"""Servers on the page: their states, their logs, and calls of their tools."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.ui.serving import ask, client, link_to, send, served
from tests.waiting import wait_until

OWN_SERVER = Path(__file__).parents[1] / "cli" / "own_server.py"
OWN: dict[str, Any] = {"command": sys.executable, "args": ["-I", str(OWN_SERVER)]}
SERVERS: dict[str, Any] = {
    "own": OWN,
    "broken": {"command": "/nowhere/server"},
    "later": {**OWN, "disabled": True},
}


def configured(folder: Path, servers: dict[str, Any]) -> Path:
    """Write the user's own configuration for a page that is `served` from a folder."""
    file = folder / "config" / "ideabridge" / "ideabridge.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    file.chmod(0o600)
    return file


@pytest.fixture
def site(tmp_path: Path) -> Generator[str]:
    configured(tmp_path, SERVERS)
    with served(tmp_path) as url:
        yield url


@pytest.mark.parametrize("width", [1280, 390])
def test_what_can_be_pressed_in_a_row_is_above_the_link_of_the_row(
    page: Page, site: str, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{site}modules")
    row = page.locator("tr.is-failing")
    expect(row.get_by_role("button", name="Retry broken")).to_be_enabled()
    # A click on the row itself would lead to the page of the server.
    row.get_by_role("link", name="Edit broken").click()
    expect(page).to_have_url(f"{site}servers/edit?name=broken")
    page.go_back()
    row.get_by_role("button", name="Retry broken").click(trial=True)


def test_the_list_has_a_light_for_each_server(page: Page, site: str) -> None:
    page.goto(f"{site}modules")
    table = page.get_by_role("table", name="Servers")
    links = {name: page.get_by_role("link", name=name, exact=True) for name in SERVERS}
    rows = {name: table.get_by_role("row").filter(has=link) for name, link in links.items()}
    expect(rows["own"]).to_contain_text("up")
    # The server's own page says how it runs.
    expect(rows["own"]).not_to_contain_text("own server starts")
    expect(rows["broken"]).to_contain_text("failing")
    # Servers that fail come first, with the reason below the name.
    first = table.locator("tbody tr").first
    expect(first).to_contain_text("broken")
    expect(first).to_contain_text("Cannot be started: the program '/nowhere/server' was not found")
    expect(first.get_by_role("link", name="Edit broken")).to_be_visible()
    expect(page.locator("#failing")).to_have_text("1")
    expect(rows["later"]).to_contain_text("off")
    facts = page.locator("#servers-state .facts > span")
    expect(facts).to_have_text(["1 server needs attention", "1 other is up", "1 off"])


def test_the_list_says_when_a_server_was_used_last(page: Page, site: str) -> None:
    page.goto(f"{site}modules")
    table = page.get_by_role("table", name="Servers")
    own = table.get_by_role("row").filter(has=page.get_by_role("link", name="own", exact=True))
    expect(own).to_contain_text("up")
    # Nothing is known until a run or a direct call has used one.
    expect(table.get_by_role("columnheader", name="Last used")).to_have_count(0)
    expect(table.locator("time")).to_have_count(0)
    with client(site) as http:
        ask(http, {"_tool": "where", "_module": "own"})
    expect(table.get_by_role("columnheader", name="Last used")).to_be_visible()
    expect(own.locator("time")).to_have_text(re.compile("just now|ago"))
    later = table.get_by_role("row").filter(has=page.get_by_role("link", name="later"))
    expect(later.locator("time")).to_have_count(0)
    own.get_by_role("link", name="own", exact=True).click()
    uses = page.get_by_role("table", name="Last calls of own").locator("tbody tr")
    expect(uses).to_have_count(1)
    expect(uses.get_by_role("cell").first).to_have_text("Where")


def test_a_reason_is_short_in_lists_and_whole_on_the_page_of_its_server(
    page: Page, site: str
) -> None:
    why = "annot be started: the program '/nowhere/server' was not found"
    with client(site) as http:
        # Before the first run, Home says how to begin.
        ask(http, {"_tool": "list_orders"})
    for path in ("modules", "home"):
        page.goto(f"{site}{path}")
        expect(page.locator(".failures")).to_have_text(f"C{why}")
    page.goto(f"{site}modules/broken")
    note = page.locator("#state .note")
    expect(note).to_contain_text(f"C{why}; is it installed and on PATH?")
    expect(note).to_contain_text("Check the command")
    note.get_by_role("link", name="Edit the command").click()
    expect(page.get_by_label("Command", exact=True)).to_have_value("/nowhere/server")


def test_home_names_failing_servers_first_and_the_others_in_a_line(page: Page, site: str) -> None:
    with client(site) as http:
        ask(http, {"_tool": "list_orders"})
    page.goto(f"{site}home")
    servers = page.locator("#servers")
    expect(servers.get_by_role("listitem")).to_contain_text("broken")
    expect(servers).to_contain_text("1 other is up")
    expect(servers.locator(".home-names")).to_have_text(["own", "later"])
    servers.get_by_role("link", name="Open broken").click()
    expect(page.get_by_role("heading", name="broken", exact=True)).to_be_visible()


def test_home_says_in_a_line_that_all_servers_are_up(page: Page, tmp_path: Path) -> None:
    configured(tmp_path, {"first": OWN, "second": OWN})
    with served(tmp_path) as url, client(url) as http:
        ask(http, {"_tool": "list_orders"})
        page.goto(link_to(url))
        page.goto(f"{url}home")
        servers = page.locator("#servers")
        expect(servers).to_contain_text("2 servers, all up")
        expect(servers.get_by_role("listitem")).to_have_count(0)
        expect(servers.locator(".home-names")).to_have_text("first, second")


def test_a_server_that_is_off_is_turned_on_where_its_tools_would_be(page: Page, site: str) -> None:
    page.goto(f"{site}modules/later")
    empty = page.locator("#tools")
    expect(empty).to_contain_text("This server is off. Turn it on to see its tools.")
    empty.get_by_role("button", name="Turn on").click()
    expect(page.get_by_role("status")).to_contain_text("later is turned on.")
    page.goto(f"{site}modules/later")
    page.get_by_role("button", name="Turn off").click()
    expect(page.get_by_role("button", name="Undo: later was turned off")).to_be_visible()


def test_an_empty_list_offers_its_buttons_once(page: Page, tmp_path: Path) -> None:
    configured(tmp_path, {})
    with served(tmp_path) as url:
        page.goto(link_to(url))
        page.goto(f"{url}modules")
        expect(page.get_by_text("No servers yet.")).to_be_visible()
        page.get_by_role("link", name="Import from an assistant").click()
        page.go_back()
        page.get_by_role("link", name="Add a server").click()
        expect(page.get_by_role("heading", name="Add a server")).to_be_visible()


def test_the_tools_of_a_server_are_a_table_with_a_page_for_each(page: Page, site: str) -> None:
    page.goto(f"{site}modules/own")
    table = page.get_by_role("table", name="Tools of own")
    expect(table.get_by_role("row", name="where")).to_contain_text("only reads")
    save = table.get_by_role("row", name="save")
    expect(save.locator("[aria-current]")).to_have_text("Ask first")
    expect(save).to_contain_text("nothing about changes")
    expect(save).to_contain_text("Keep a text in a file.")
    table.get_by_role("link", name="Speak").click()
    page.get_by_label("text", exact=True).fill("hello there")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_label("The output of the run")).to_contain_text("hello there")


def test_each_tool_of_a_server_has_its_code_name_and_a_claim(page: Page, tmp_path: Path) -> None:
    office = str(Path(__file__).with_name("office_servers.py"))
    configured(tmp_path, {"notes": {"command": sys.executable, "args": [office, "notes"]}})
    with served(tmp_path) as url:
        with client(url) as http:
            wait_until(lambda: "list_notes" in http.get("/ui/modules/notes").text)
            ask(http, {"_tool": "list_notes", "_module": "notes"})
        page.goto(link_to(url))
        page.goto(f"{url}modules/notes")
        rows = page.get_by_role("table", name="Tools of notes").locator("tbody tr")
        names = ["add_note", "delete_note", "list_notes", "read_note"]
        expect(rows.locator(".code-name")).to_have_text(names)
        claims = ["only adds", "can overwrite or delete", "only reads", "only reads"]
        expect(rows.locator("td.text")).to_have_text(claims)
        # The button at the top is the only way to the log.
        expect(page.get_by_role("heading", name="Last messages")).to_be_visible()
        expect(page.locator("a[href$='/log']")).to_have_count(1)

        # The rule has the claim of the server, so the head does not repeat it.
        rows.get_by_role("link", name="Add a note", exact=True).click()
        expect(page.locator(".page-head .facts")).to_have_text("add_note")
        expect(page.locator(".rule")).to_contain_text("The server says that it only adds.")


def test_admin_tells_servers_that_work_from_those_that_are_off(page: Page, site: str) -> None:
    page.goto(f"{site}modules/own")
    expect(page.locator("#state")).to_contain_text("up")
    page.goto(f"{site}admin")
    expect(page.locator(".admin-facts")).to_contain_text("1 of 2 works · 1 off")


def test_a_tool_that_its_server_calls_read_only_asks_if_a_person_chooses_so(
    page: Page, site: str
) -> None:
    page.goto(f"{site}modules/own")
    speak = page.get_by_role("row").filter(has=page.get_by_role("link", name="Speak", exact=True))
    expect(speak).to_contain_text("only reads")
    expect(page.get_by_role("button", name="Ask first: save")).to_have_count(0)
    speak.get_by_role("button", name="Ask first").click()
    expect(page.get_by_role("status")).to_contain_text("speak of own asks first.")
    expect(speak.locator("[aria-current]")).to_have_text("Ask first")
    expect(speak).to_contain_text("You chose to be asked")
    where = page.get_by_role("row").filter(has=page.get_by_role("link", name="Where", exact=True))
    expect(where.locator("[aria-current]")).to_have_text("Run without asking")

    page.goto(f"{site}modules/own/tools/speak")
    page.get_by_role("button", name="Run without asking").click()
    expect(page.get_by_role("status")).to_contain_text("speak of own runs without asking again.")
    # The page of the tool stays open.
    expect(page.locator(".rule [aria-current]")).to_have_text("Run without asking")
    page.goto(f"{site}modules/own")
    expect(speak.locator("[aria-current]")).to_have_text("Run without asking")


def test_the_tools_of_servers_are_among_the_tools(page: Page, site: str) -> None:
    page.goto(f"{site}ideas")
    page.get_by_role("link", name="From servers").click()
    table = page.get_by_role("table", name="Tools from servers")
    speak = table.get_by_role("row", name=re.compile("^Speak"))
    expect(speak).to_contain_text("own")
    expect(speak).to_contain_text("only reads")

    page.get_by_label("Search all tools and saved runs").fill("standard ERROR")
    page.keyboard.press("Enter")
    expect(table.locator("tbody tr")).to_have_count(1)
    table.get_by_role("link", name="Speak").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Speak")


def test_the_log_is_searched_by_words_and_by_level(page: Page, site: str) -> None:
    page.goto(f"{site}modules/own")
    expect(page.get_by_role("table", name="Tools of own")).to_be_visible()
    page.get_by_role("link", name="Log", exact=True).click()
    log = page.get_by_role("table", name="Lines of the log")
    with client(site) as http:
        for text in ("first", "second"):
            send(http, "/ui/modules/own/call", tool="speak", **{"p.text": text})

    # The page follows the store, which contains the calls.
    expect(log).to_contain_text("said second")
    expect(log).to_contain_text("own server starts")
    page.get_by_label("Search the log").fill("FIRST")
    page.get_by_role("button", name="Filter").click()
    expect(log).to_contain_text("said first")
    expect(log).not_to_contain_text("second")
    page.get_by_label("Search the log").fill("")
    page.get_by_role("combobox", name="Show").select_option("warning")
    page.get_by_role("button", name="Filter").click()
    expect(log.locator("tbody tr")).to_have_count(2)
    page.get_by_role("combobox", name="Show").select_option("error")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("No line matches.")).to_be_visible()


def test_a_server_that_fails_is_tried_again_at_once(page: Page, tmp_path: Path, site: str) -> None:
    page.goto(f"{site}modules/own")
    expect(page.get_by_role("table", name="Tools of own")).to_be_visible()
    expect(page.get_by_role("button", name="Retry")).to_have_count(0)
    program = tmp_path / "late"
    configured(tmp_path, {"late": {"command": str(program), "args": OWN["args"]}})
    page.goto(f"{site}modules")
    page.get_by_role("button", name="Retry late").click()
    expect(page.locator("#state")).to_contain_text("failing")
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("status")).to_contain_text("ideabridge tried again: late is failing.")

    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
    program.chmod(0o700)
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("status")).to_contain_text("late is up.")
    expect(page.get_by_role("table", name="Tools of late")).to_contain_text("Where")


def test_damaged_notes_about_changes_hide_no_server(tmp_path: Path, site: str) -> None:
    notes = tmp_path / ".local" / "share" / "ideabridge" / "backups" / "edits.json"
    notes.parent.mkdir(parents=True, exist_ok=True)
    notes.write_text("[{", encoding="utf-8")
    with client(site) as http:
        for path in ("modules", "assistants", "home"):
            answer = http.get(f"/ui/{path}")
            assert answer.status_code == 200, path
            assert "is damaged" in answer.text, path


def test_unknown_tools_and_servers_are_refused(site: str) -> None:
    with client(site) as http:
        for path in ("own/tools/nothing", "nothing", "nothing/log", "nothing/tools/where"):
            answer = http.get(f"/ui/modules/{path}")
            assert answer.status_code == 404, path
            assert "<h1>Not found</h1>" in answer.text
            assert 'href="/ui/modules">All servers' in answer.text
            # Something that is merely missing is not an alarm.
            assert 'class="note bad"' not in answer.text
            assert "refused" not in answer.text
