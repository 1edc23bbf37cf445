"""Assistants are connected on the page, as `ideabridge install` does."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from ideabridge.bridge.store.direct_calls import DirectCall
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import LOCAL
from tests.ui.serving import client, send, served, stranger

CURSOR = '{\n  "mcpServers": {"mine": {"command": "mine"}}\n}\n'


@pytest.fixture
def cursor(tmp_path: Path) -> Path:
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text(CURSOR, encoding="utf-8")
    return file


@pytest.fixture
def site(tmp_path: Path, cursor: Path) -> Generator[str]:
    assert cursor.exists()
    project = tmp_path / "project"
    project.mkdir()
    with served(tmp_path, "--project", str(project)) as url:
        yield url


def test_an_empty_home_connects_an_assistant_and_runs_a_plan(
    page: Page, tmp_path: Path, site: str, cursor: Path
) -> None:
    page.goto(f"{site}home")
    page.get_by_role("button", name="Connect Cursor").click()
    expect(page.get_by_role("status")).to_have_text(
        "Cursor is connected. Restart Cursor, so that it sees ideabridge."
    )
    # The steps continue where they were left, and this one is done.
    expect(page).to_have_url(f"{site}home")
    step = page.locator(".steps > li").filter(has_text="Connect an assistant")
    expect(step.get_by_role("heading")).to_have_accessible_name("Connect an assistant (done)")
    entries = json.loads(cursor.read_text(encoding="utf-8"))["mcpServers"]
    assert entries["mine"] == {"command": "mine"}
    # The assistant uses the store of this page, so its runs appear here.
    assert entries["ideabridge"]["args"][-2:] == ["--store", str(tmp_path / "ideas.sqlite")]

    step.get_by_role("link", name="All assistants").click()
    expect(page.locator("#client-cursor .assistant-state")).to_have_text(
        "connected · has not called yet"
    )
    expect(page.locator("#client-cursor")).to_contain_text(f"{cursor}). Undo disconnects it.")
    page.get_by_role("button", name="Undo: Cursor").click()
    expect(page.get_by_role("status")).to_contain_text("Cursor is as it was before.")
    assert cursor.read_text(encoding="utf-8") == CURSOR
    expect(page.locator("#client-cursor")).not_to_contain_text("disconnect")

    page.goto(f"{site}home")
    page.get_by_role("button", name="Run an example").click()
    expect(page.get_by_label("The output of the run")).to_contain_text('"double": 10')


def test_only_assistants_of_this_machine_are_listed_at_once(
    page: Page, tmp_path: Path, site: str
) -> None:
    # Codex has a folder, but no file of servers yet.
    (tmp_path / ".codex").mkdir()
    page.goto(f"{site}assistants")
    for title in ("Cursor", "Codex"):
        expect(page.get_by_role("button", name=f"Connect {title}", exact=True)).to_be_visible()
    zed = page.get_by_role("button", name="Connect Zed", exact=True)
    expect(zed).to_be_hidden()
    page.get_by_text("Show all ").click()
    page.get_by_role("link", name="How to connect Zed", exact=True).click()
    expect(zed).to_be_visible()


def test_what_connect_does_is_said_once(page: Page, site: str, cursor: Path) -> None:
    page.goto(f"{site}assistants")
    expect(page.locator(".assistants details, .client-tiles details")).to_have_count(0)
    by_hand = page.locator(".by-hand")
    by_hand.get_by_text("How to connect each one").click()
    by_hand.get_by_text("Cursor", exact=True).click()
    expect(by_hand).to_contain_text(str(cursor))
    expect(by_hand.get_by_label("The entry for Cursor", exact=True)).to_contain_text("ideabridge")


def test_only_the_owner_writes_into_files_of_assistants(
    tmp_path: Path, site: str, cursor: Path
) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.users.add("ada", "admin")
        token = store.users.add_token("ada")[1]

    with stranger(site) as ada, client(site) as owner:
        ada.post("/ui/sign-in", data={"token": token})
        for path in ("assistants/write", "assistants/undo"):
            answer = send(ada, f"/ui/{path}", host="cursor")
            assert "only the owner" in answer.text

        assert "Connect Cursor" not in ada.get("/ui/assistants").text
        assert 'role="alert"' in send(owner, "/ui/assistants/write", host="nothing").text
        assert cursor.read_text(encoding="utf-8") == CURSOR


def test_a_damaged_file_is_named_and_left_alone(site: str, cursor: Path) -> None:
    cursor.write_text('{"mcpServers": {', encoding="utf-8")
    with client(site) as owner:
        text = owner.get("/ui/assistants").text
        assert "is not JSON" in text
        assert "Connect Cursor" not in text
        answer = send(owner, "/ui/assistants/write", host="cursor")
        assert "is not JSON" in answer.text
        assert cursor.read_text(encoding="utf-8") == '{"mcpServers": {'


def called_by(client: str) -> DirectCall:
    """A direct call of a program."""
    return DirectCall(
        at=time.time(),
        caller=LOCAL,
        client=client,
        session="",
        name="look",
        module=None,
        tool="look",
        parameters="",
        seconds=0.1,
        outcome="ok",
        run=None,
        bytes_in=2,
        bytes_out=2,
    )


def test_an_assistant_has_one_row_with_one_state(page: Page, tmp_path: Path, site: str) -> None:
    call = called_by("cursor-vscode 1.2.0")
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.direct_calls.add([call], call.at)

    page.goto(f"{site}assistants")
    row = page.get_by_role("listitem").filter(has_text="Cursor")
    expect(row.locator(".assistant-state")).to_have_text(re.compile("^called (just now|.* ago)$"))
    expect(row).to_contain_text("Calls ideabridge; not set up on this computer")
    expect(row).not_to_contain_text("connected")
    page.get_by_role("button", name="Set up here: Cursor").click()
    expect(row.locator(".assistant-state")).to_have_text(
        re.compile("^working · called (just now|.* ago)$")
    )
    expect(page.get_by_role("heading", name="Connected")).to_be_visible()


def test_the_menu_leads_to_the_assistants_that_called(
    page: Page, tmp_path: Path, site: str
) -> None:
    call = called_by("reader 1.2")
    page.goto(f"{site}modules")
    menu = page.get_by_role("navigation", name="Pages")
    menu.get_by_role("link", name="Assistants").click()
    expect(page.get_by_text("No assistant has called yet.")).to_be_visible()
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.direct_calls.add([call], call.at)
        seen = page.get_by_role("listitem").filter(has_text="reader 1.2")
        expect(seen).to_contain_text(re.compile("called (just now|.* ago)"))
        # The page does not know its settings, so it says nothing about them.
        expect(seen).not_to_contain_text("settings")

    # The page's earlier address still leads to it.
    page.goto(f"{site}connect")
    expect(page).to_have_url(f"{site}assistants")
