"""Servers are added, imported, enabled, disabled and removed on the page, and each change is
undone.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from ideabridge.bridge.store.store import Store
from tests.ui.serving import ask, client, secret, send, served, stranger
from tests.waiting import wait_until

OWN_SERVER = Path(__file__).parents[1] / "cli" / "own_server.py"
START = f"{sys.executable} -I {OWN_SERVER}"
TOKEN = "ghp_pageadded12345678CCCC"
COMMENTED = '{\n  // what my team uses\n  "mcpServers": {}\n}\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The user's own configuration, for a page that is served from the same folder."""
    path = tmp_path / "config" / "ideabridge" / "ideabridge.json"
    path.parent.mkdir(parents=True)
    path.write_text(COMMENTED, encoding="utf-8")
    path.chmod(0o600)
    return path


@pytest.fixture
def site(tmp_path: Path, file: Path) -> Generator[str]:
    assert file.exists()
    project = tmp_path / "project"
    project.mkdir()
    with served(tmp_path, "--project", str(project)) as url:
        yield url


def add(http: httpx.Client, **fields: str) -> httpx.Response:
    return send(http, "/ui/servers/new", page="/ui/servers/add", **fields)


def test_a_command_is_added_with_its_secret_and_works_at_once(
    page: Page, site: str, file: Path
) -> None:
    page.goto(f"{site}modules")
    page.get_by_role("link", name="Add a server").click()
    page.get_by_label("Name", exact=True).fill("own")
    page.get_by_label("Command or address").fill(START)
    page.get_by_label("Environment of a command").fill(f"OWN_TOKEN={TOKEN}")
    page.get_by_role("button", name="Add").click()
    note = page.get_by_role("status")
    expect(note).to_contain_text("own is added to")
    expect(note).to_contain_text("env.OWN_TOKEN is a secret")
    expect(page.locator("#state")).to_contain_text("up")
    expect(page.get_by_role("table", name="Tools of own")).to_contain_text("where")

    text = file.read_text(encoding="utf-8")
    assert "// what my team uses" in text
    assert TOKEN not in text
    assert '"${secret:own-token}"' in text
    assert TOKEN not in page.content()
    # The server itself gets the secret, and its words are masked.
    page.get_by_role("link", name="Its log").click()
    expect(page.locator("#log")).to_contain_text("starts with [secret:own-token]")


def test_each_change_is_undone_in_one_click(page: Page, site: str, file: Path) -> None:
    with client(site) as http:
        add(http, name="own", start=START)

    added = file.read_text(encoding="utf-8")
    page.goto(f"{site}modules/own")
    page.get_by_role("button", name="Disable").click()
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="own", exact=True))
    expect(row).to_contain_text("off")
    page.get_by_role("button", name="Undo").click()
    # Its tools are known, so it starts when it is used.
    expect(row).to_contain_text("idle")
    assert file.read_text(encoding="utf-8") == added

    page.get_by_role("link", name="own", exact=True).click()
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("status")).to_contain_text("own is removed.")
    expect(row).to_have_count(0)
    page.get_by_role("button", name="Undo: own was removed").click()
    expect(page.get_by_role("status")).to_contain_text("own is back.")
    expect(row).to_have_count(1)
    assert file.read_text(encoding="utf-8") == added

    # The change before those is that it was added.
    page.get_by_role("button", name="Undo").click()
    expect(row).to_have_count(0)
    assert file.read_text(encoding="utf-8") == COMMENTED
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)


def test_what_cannot_be_used_is_refused_with_the_reason(site: str, file: Path) -> None:
    cases = [
        ({"name": "a", "start": ""}, "write the command"),
        ({"name": "a", "start": "run 'unclosed"}, "No closing quotation"),
        ({"name": "a", "start": "./run"}, "relative path"),
        ({"name": "a", "start": "example.com/mcp"}, "did you mean https://example.com/mcp?"),
        ({"name": "a", "start": "www.example.com"}, "did you mean https://www.example.com?"),
        ({"name": "a", "start": "localhost:9000/mcp"}, "did you mean http://localhost:9000/mcp?"),
        ({"name": "a", "start": "ftp://example.com"}, "did you mean https://example.com?"),
        ({"name": "anonymous", "start": "run"}, "this name is reserved"),
        ({"name": "a", "start": "run", "env": f"{TOKEN}"}, "a variable in line 1"),
        ({"name": "a", "start": "https://x.example/mcp", "headers": TOKEN}, "a header in line 1"),
    ]
    with client(site) as http:
        for fields, why in cases:
            answer = add(http, **fields)
            assert answer.status_code == 400
            assert why in answer.text
            assert TOKEN not in answer.text

        missing = add(http, name="gone", start="no-such-program --now")
        assert "no-such-program is not found on this machine" in missing.text
        assert '<p class="note ask" role="status">gone is added to' in missing.text
        send(http, "/ui/servers/change", name="gone", action="remove")
        add(http, name="own", start=START)
        assert "already has a server" in add(http, name="own", start=START).text

    assert json.loads(file.read_text(encoding="utf-8").replace("// what my team uses", ""))[
        "mcpServers"
    ].keys() == {"own"}


def test_a_refusal_stands_at_its_field(page: Page, site: str, file: Path) -> None:
    with client(site) as http:
        add(http, name="own", start=START)
    before = file.read_text(encoding="utf-8")
    refused = page.get_by_role("alert")
    page.goto(f"{site}servers/add")
    for label, name, start, why in (
        ("Name", "idea:x", START, "this name is reserved"),
        ("Name", "own", START, "already has a server of this name"),
        ("Command or address", "web", "example.com/mcp", "did you mean https://example.com/mcp?"),
        ("Command or address", "web", "http://", "expected a host after http://"),
        ("Environment of a command", "web", START, "a variable in line 1"),
    ):
        environment = page.get_by_label("Environment of a command")
        page.get_by_label("Name", exact=True).fill(name)
        page.get_by_label("Command or address").fill(start)
        environment.fill("no variable" if label.startswith("Environment") else "")
        page.get_by_role("button", name="Add").click()
        expect(refused).to_contain_text(why)
        expect(refused).not_to_contain_text("mcpServers")
        field = page.get_by_label(label, exact=True)
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(field).to_have_accessible_description(re.compile(re.escape(why)))
        if name == "own":
            expect(refused.get_by_role("link")).to_have_attribute("href", "/ui/modules/own")

    assert file.read_text(encoding="utf-8") == before


def test_values_that_stay_readable_are_named(site: str) -> None:
    with client(site) as http:
        answer = add(
            http, name="own", start=START, env=f"REGION=eu\nOWN_TOKEN={TOKEN}\nHOME=${{HOME}}"
        )
        assert "env.REGION: readable in that file" in answer.text
        assert "env.OWN_TOKEN is a secret" in answer.text


def test_removing_a_server_names_the_tools_that_need_it(site: str) -> None:
    with client(site) as http:
        add(http, name="own", start=START)
        run = ask(http, {"_tool": "where", "_module": "own"}, output="†results.0")
        wait_until(lambda: "Make it a tool" in http.get(f"/ui/runs/{run}").text)
        send(http, "/ui/ideas/publish", ref=run, name="place", answer="plan")
        removed = send(http, "/ui/servers/change", name="own", action="remove").text
        assert '<p class="note ask" role="status">own is removed.' in removed
        assert "Published tools that need it, and cannot be called now: place." in removed


def test_servers_of_an_assistant_are_ticked_and_copied(
    page: Page, tmp_path: Path, site: str, file: Path
) -> None:
    cursor = tmp_path / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    words = START.split()
    own = {"command": words[0], "args": words[1:], "env": {"OWN_TOKEN": TOKEN}}
    entries = {"own": own, "other": {"command": "other-server"}}
    cursor.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")

    page.goto(f"{site}modules")
    page.get_by_role("link", name="Import from an assistant").click()
    page.get_by_role("link", name="Cursor").click()
    table = page.get_by_role("table", name="Servers of cursor")
    expect(table.get_by_role("row", name="own")).to_contain_text("own_server.py")
    assert TOKEN not in page.content()
    page.get_by_label("Import other").uncheck()
    page.get_by_role("button", name="Copy those that are ticked").click()
    expect(page.get_by_role("status")).to_contain_text("1 server of Cursor copied: own.")
    page.get_by_role("link", name="own", exact=True).click()
    expect(page.locator("#state")).to_contain_text("up")
    assert TOKEN not in file.read_text(encoding="utf-8")

    page.goto(f"{site}modules")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("link", name="own", exact=True)).to_have_count(0)
    assert file.read_text(encoding="utf-8") == COMMENTED


def test_a_server_that_changed_after_it_was_shown_is_not_imported(
    tmp_path: Path, site: str, file: Path
) -> None:
    cursor = tmp_path / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    cursor.write_text('{"mcpServers": {"tool": {"command": "good"}}}', encoding="utf-8")
    with client(site) as http:
        shown = http.get("/ui/servers/import?host=cursor").text
        seal = shown.partition('name="seal.tool" value="')[2].partition('"')[0]
        cursor.write_text('{"mcpServers": {"tool": {"command": "evil"}}}', encoding="utf-8")
        form = {"host": "cursor", "which": "tool", "seal.tool": seal}
        answer = send(http, "/ui/servers/take", page="/ui/servers/import", **form)
        assert "has changed in" in answer.text
        assert "evil" not in file.read_text(encoding="utf-8")


def test_a_server_of_the_project_is_left_to_the_terminal(
    tmp_path: Path, site: str, file: Path
) -> None:
    with client(site) as http:
        mcp = tmp_path / "project" / ".mcp.json"
        mcp.write_text('{"mcpServers": {"cloned": {"command": "evil"}}}', encoding="utf-8")
        shown = http.get("/ui/servers/import?host=claude-code").text
        assert "cloned" in shown
        assert "has to be trusted at a terminal" in shown
        assert 'value="cloned"' not in shown
        form = {"host": "claude-code", "which": "cloned", "seal.cloned": ""}
        send(http, "/ui/servers/take", page="/ui/servers/import", **form)

    assert file.read_text(encoding="utf-8") == COMMENTED
    assert not (tmp_path / "project" / "ideabridge.json").exists()


def test_a_token_adds_no_command_and_reads_no_secret(tmp_path: Path, file: Path) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.users.add("ada", "admin")
        store.users.add("bob")
        tokens = {name: store.users.add_token(name)[1] for name in ("ada", "bob")}

    with served(tmp_path) as url, client(url) as owner:
        add(owner, name="own", start=START)
        before = file.read_text(encoding="utf-8")
        with stranger(url) as ada, stranger(url) as bob:
            for name, http in (("ada", ada), ("bob", bob)):
                http.post("/ui/sign-in", data={"token": tokens[name]})

            # A member changes nothing, and reads neither forms nor logs.
            for path in ("servers/add", "servers/import", "modules/own/log"):
                assert bob.get(f"/ui/{path}").status_code == 400

            for path, fields in (
                ("servers/new", {"name": "x", "start": "https://x.example/mcp"}),
                ("servers/change", {"name": "own", "action": "remove"}),
                ("servers/take", {"host": "cursor", "which": "x"}),
                ("servers/undo", {"edit": "x"}),
            ):
                send(bob, f"/ui/{path}", **fields)
                assert file.read_text(encoding="utf-8") == before

            # An admin adds addresses, but neither commands nor what reads the owner's secrets.
            for fields in (
                {"name": "x", "start": "evil"},
                {"name": "x", "start": "https://x.example/mcp", "headers": "A: ${HOME}"},
                {"name": "x", "start": "https://x.example/${secret:own-token}"},
            ):
                assert "the owner" in add(ada, **fields).text
                assert file.read_text(encoding="utf-8") == before

            assert ada.get("/ui/servers/import").status_code == 400
            form = {"host": "cursor", "which": "x"}
            assert "only the owner" in send(ada, "/ui/servers/take", **form).text

            # What an admin removed comes back by the owner's hand alone.
            send(ada, "/ui/servers/change", name="own", action="remove")
            assert file.read_text(encoding="utf-8") != before
            shown = ada.get("/ui/modules").text
            edit = shown.partition('name="edit" value="')[2].partition('"')[0]
            assert "bring a command back" in send(ada, "/ui/servers/undo", edit=edit).text
            send(owner, "/ui/servers/undo", edit=edit)
            assert file.read_text(encoding="utf-8") == before

            send(ada, "/ui/servers/change", name="own", action="disable")
            send(ada, "/ui/servers/change", name="own", action="enable")
            add(ada, name="remote", start="http://127.0.0.1:9/mcp")
            assert "http://127.0.0.1:9/mcp" in file.read_text(encoding="utf-8")


def test_a_form_of_another_site_or_session_changes_no_server(site: str, file: Path) -> None:
    with client(site) as http, stranger(site) as reader:
        forms = {
            "servers/new": {"name": "x", "start": "evil"},
            "servers/change": {"name": "x", "action": "remove"},
            "servers/take": {"host": "cursor", "which": "x"},
            "servers/undo": {"edit": "x"},
        }
        for path, fields in forms.items():
            form = {"secret": secret(http), **fields}
            evil = {"Origin": "https://evil.example"}
            assert http.post(f"/ui/{path}", data=form, headers=evil).status_code == 403
            assert http.post(f"/ui/{path}", data={**form, "secret": "x"}).status_code == 403
            assert reader.post(f"/ui/{path}", data=form).status_code == 403
            assert http.get(f"/ui/{path}").status_code == 405

        # Who has no session reads no file of this machine either.
        for path in ("servers/import", "servers/add"):
            answer = reader.get(f"/ui/{path}")
            assert answer.status_code == 400
            assert file.name not in answer.text

    assert file.read_text(encoding="utf-8") == COMMENTED
