"""Servers are added, changed, imported, enabled, disabled and removed on the page, and each change
is undone.
"""

from __future__ import annotations

import html
import json
import os
import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from ideabridge.bridge.configuration import load_configuration
from ideabridge.bridge.store.store import Store
from ideabridge.server.ui.known_servers import KNOWN_SERVERS, KnownServer
from tests.npm import needs, program
from tests.ui.serving import (
    ask,
    client,
    link_to,
    secret,
    send,
    served,
    stranger,
    without_breaks,
)
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
    """Send the form for a new server, which is an address if the fields have one."""
    kind = "address" if "address" in fields else "command"
    return send(
        http, "/ui/servers/new", page="/ui/servers/add?start=other", **{"kind": kind, **fields}
    )


def confirm(http: httpx.Client, checked: httpx.Response, **fields: str) -> httpx.Response:
    """Save what the page `checked` shows before it is written."""
    draft = re.search(r'name="draft" value="([^"]+)"', checked.text)
    assert draft is not None, checked.text
    return send(http, "/ui/servers/save", page=str(checked.url), draft=draft[1], **fields)


def servers_in(file: Path) -> dict[str, Any]:
    text = file.read_text(encoding="utf-8").replace("// what my team uses", "")
    return json.loads(text)["mcpServers"]


def test_a_command_is_added_with_its_secret_and_works_at_once(
    page: Page, site: str, file: Path
) -> None:
    page.goto(f"{site}modules")
    page.get_by_role("link", name="Add a server").click()
    page.get_by_role("link", name="Something else").click()
    page.get_by_label("Name", exact=True).fill("own")
    page.get_by_label("Command", exact=True).fill(START)
    page.get_by_text("Advanced").click()
    variables = page.get_by_label("Environment variables (optional)")
    expect(variables).to_have_accessible_description(re.compile("which of them are secrets"))
    variables.fill(f"OWN_TOKEN={TOKEN}\nMODE=production")
    page.get_by_role("button", name="Add").click()
    # Only what looks like a secret is ticked. Nothing is written until this page is confirmed.
    expect(page.get_by_label("OWN_TOKEN is a secret")).to_be_checked()
    expect(page.get_by_label("MODE is a secret")).not_to_be_checked()
    expect(page.get_by_role("table", name="Values")).to_contain_text("production")
    expect(page.get_by_role("main")).to_contain_text(
        f"Nothing is written yet. It starts with {START}"
    )
    expect(page.get_by_role("main")).to_contain_text(f"It is written to {file}")
    assert TOKEN not in page.content()
    assert file.read_text(encoding="utf-8") == COMMENTED
    page.get_by_role("button", name="Add").click()
    note = page.get_by_role("status")
    expect(note).to_contain_text("own is added to")
    expect(note).to_contain_text("env.OWN_TOKEN is a secret")
    expect(page.locator("#state")).to_contain_text("up")
    expect(page.get_by_role("table", name="Tools of own")).to_contain_text("Where")

    text = file.read_text(encoding="utf-8")
    assert "// what my team uses" in text
    assert TOKEN not in text
    assert '"${secret:own-token}"' in text
    assert '"MODE": "production"' in text
    assert TOKEN not in page.content()
    # The server itself gets the secret, and its output is masked.
    page.get_by_role("link", name="Log", exact=True).click()
    expect(page.locator("#log")).to_contain_text("starts with [secret:own-token]")


def test_each_change_is_undone_in_one_click(page: Page, site: str, file: Path) -> None:
    with client(site) as http:
        add(http, name="own", command=START)

    added = file.read_text(encoding="utf-8")
    page.goto(f"{site}modules/own")
    page.get_by_role("button", name="Turn off").click()
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="own", exact=True))
    expect(row).to_contain_text("off")
    page.get_by_role("button", name="Undo").click()
    # Its tools are known, so it starts when it is used.
    expect(row).to_contain_text("idle")
    assert file.read_text(encoding="utf-8") == added

    page.get_by_role("link", name="own", exact=True).click()
    page.get_by_role("main").get_by_text("More", exact=True).click()
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("status")).to_contain_text("own is removed.")
    expect(row).to_have_count(0)
    page.get_by_role("button", name="Undo: own was removed").click()
    expect(page.get_by_role("status")).to_contain_text("own is back.")
    expect(row).to_have_count(1)
    assert file.read_text(encoding="utf-8") == added

    # The change before these added the server.
    page.get_by_role("button", name="Undo").click()
    expect(row).to_have_count(0)
    assert file.read_text(encoding="utf-8") == COMMENTED
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)


def test_what_cannot_be_used_is_refused_with_the_reason(site: str, file: Path) -> None:
    cases = [
        ({"name": "a", "command": ""}, "write the command"),
        ({"name": "a", "command": "run 'unclosed"}, "No closing quotation"),
        ({"name": "a", "command": "./run"}, "relative path"),
        ({"name": "a", "command": '{"mcpServers": {"a": {"command": "npx"}}}'}, "this is JSON"),
        ({"name": "a", "command": "example.com/mcp"}, "did you mean https://example.com/mcp?"),
        ({"name": "a", "command": "www.example.com"}, "did you mean https://www.example.com?"),
        ({"name": "a", "command": "localhost:9/mcp"}, "did you mean http://localhost:9/mcp?"),
        ({"name": "a", "command": "ftp://example.com"}, "did you mean https://example.com?"),
        ({"name": "a", "command": "https://x.example/mcp"}, "choose “On the web”"),
        ({"name": "a", "address": ""}, "write the address"),
        ({"name": "a", "address": "example.com/mcp"}, "did you mean https://example.com/mcp?"),
        ({"name": "a", "address": "npx -y server"}, "expected https:// or http://"),
        ({"name": "anonymous", "command": "run"}, "this name is reserved"),
        ({"name": "a", "command": "run", "kind": "any"}, "choose where the server runs"),
        ({"name": "a", "command": "run", "env": f"{TOKEN}"}, "a variable in line 1"),
        ({"name": "a", "command": "run", "env": "A=1\n\nmalformed"}, "a variable in line 3"),
        ({"name": "a", "command": "run", "env": "A=•••"}, "is no longer known"),
        ({"name": "a", "command": "run", "parallel": "many"}, "expected a number"),
        ({"name": "a", "address": "https://x.example/mcp", "headers": TOKEN}, "a header in line 1"),
    ]
    with client(site) as http:
        for fields, why in cases:
            answer = add(http, **fields)
            assert answer.status_code == 400
            assert why in answer.text
            assert TOKEN not in answer.text

        missing = add(http, name="gone", command="no-such-program --now")
        assert "no-such-program was not found on this machine" in missing.text
        assert '<p class="note ask" role="status">gone is added to' in missing.text
        send(http, "/ui/servers/change", name="gone", action="remove")
        add(http, name="own", command=START)
        assert "already has a server" in add(http, name="own", command=START).text

    assert json.loads(file.read_text(encoding="utf-8").replace("// what my team uses", ""))[
        "mcpServers"
    ].keys() == {"own"}


def test_a_refusal_stands_at_its_field(page: Page, site: str, file: Path) -> None:
    with client(site) as http:
        add(http, name="own", command=START)
    before = file.read_text(encoding="utf-8")
    refused = page.get_by_role("alert")
    page.goto(f"{site}servers/add?start=other")
    for label, name, start, why in (
        ("Name", "idea:x", START, "this name is reserved"),
        ("Name", "own", START, "already has a server with this name"),
        ("Command", "web", "example.com/mcp", "did you mean https://example.com/mcp?"),
        ("Address", "web", "http://", "expected a host after http://"),
        ("Environment variables (optional)", "web", START, "a variable in line 1"),
    ):
        page.get_by_label("Name", exact=True).fill(name)
        if label == "Address":
            page.get_by_role("radio", name="On the web").check()
            page.get_by_label(label, exact=True).fill(start)
        else:
            page.get_by_role("radio", name="On this computer").check()
            page.get_by_label("Command", exact=True).fill(start)
            if not page.get_by_label("Environment variables").is_visible():
                page.get_by_text("Advanced").click()
            text = "no variable" if label.startswith("Environment") else ""
            page.get_by_label("Environment variables").fill(text)
        page.get_by_role("button", name="Add").click()
        expect(refused).to_contain_text(why)
        expect(refused).not_to_contain_text("mcpServers")
        field = page.get_by_role("textbox", name=label, exact=True)
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(field).to_have_accessible_description(re.compile(re.escape(why)))
        if name == "own":
            expect(refused.get_by_role("link")).to_have_attribute("href", "/ui/modules/own")

    assert file.read_text(encoding="utf-8") == before


@pytest.mark.parametrize("has_scripts", [True, False])
def test_only_the_fields_of_the_chosen_kind_are_shown(
    browser: Browser, site: str, file: Path, has_scripts: bool
) -> None:
    with browser.new_context(java_script_enabled=has_scripts) as context:
        page = context.new_page()
        page.goto(link_to(site))
        page.goto(f"{site}servers/add?start=other")
        command, variables, address, headers = (
            page.get_by_role("textbox", name=name)
            for name in ("Command", "Environment variables", "Address", "Headers")
        )
        for_command = (command, variables, page.get_by_role("textbox", name="Folder"))
        for_address = (address, headers)
        page.get_by_text("Advanced").click()
        for shown, hidden, kind in (
            (for_command, for_address, "On this computer"),
            (for_address, for_command, "On the web"),
        ):
            page.get_by_role("radio", name=kind).check()
            for field in shown:
                expect(field).to_be_visible()
                field.fill("left from another choice")
            for field in hidden:
                expect(field).to_be_hidden()

        # What was typed into a hidden field is not read.
        page.get_by_label("Name", exact=True).fill("web")
        address.fill("http://127.0.0.1:9/mcp")
        headers.fill("")
        page.get_by_label("A call may take, in seconds").fill("7")
        page.get_by_role("button", name="Add").click()
        expect(page.get_by_role("status")).to_contain_text("web is added")

    assert servers_in(file)["web"] == {"url": "http://127.0.0.1:9/mcp", "timeout": 7}


def test_a_refused_form_keeps_values_that_it_does_not_show(
    page: Page, site: str, file: Path
) -> None:
    page.goto(f"{site}servers/add?start=other")
    page.get_by_label("Name", exact=True).fill("idea:x")
    page.get_by_label("Command", exact=True).fill(START)
    page.get_by_text("Advanced").click()
    environment = page.get_by_label("Environment variables")
    environment.fill(f"OWN_TOKEN={TOKEN}\nMODE=production\nREMOVED=x\nEMPTY=")
    for _ in range(2):
        page.get_by_role("button", name="Add").click()
        expect(page.get_by_role("alert")).to_contain_text("reserved")
        expect(environment).to_have_value("OWN_TOKEN=•••\nMODE=•••\nREMOVED=•••\nEMPTY=")
        assert TOKEN not in page.content()

    page.get_by_label("Name", exact=True).fill("own")
    environment.fill("MODE=•••\nOWN_TOKEN=•••\nREGION=eu")
    page.get_by_role("button", name="Add").click()
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("status")).to_contain_text("own is added to")
    assert servers_in(file)["own"]["env"] == {
        "MODE": "production",
        "OWN_TOKEN": "${secret:own-token}",
        "REGION": "eu",
    }


def test_values_of_a_refused_form_belong_to_its_session(site: str, file: Path) -> None:
    with client(site) as mine, client(site) as theirs:
        refused = add(mine, name="idea:x", command="run", env=f"OWN_TOKEN={TOKEN}")
        form = re.search('name="refused" value="([^"]+)"', refused.text)
        assert form is not None
        fields = {"name": "x", "command": "run", "env": "OWN_TOKEN=•••", "refused": form[1]}
        assert "is no longer known" in add(theirs, **fields).text
        assert "OWN_TOKEN is a secret" in add(mine, **fields).text
    assert file.read_text(encoding="utf-8") == COMMENTED


def test_values_that_stay_readable_are_named(site: str) -> None:
    with client(site) as http:
        shown = add(
            http, name="own", command=START, env=f"REGION=eu\nOWN_TOKEN={TOKEN}\nHOME=${{HOME}}"
        )
        answer = confirm(http, shown, shown="env.REGION")
        assert "env.REGION: readable in that file" in answer.text
        assert "env.OWN_TOKEN is a secret" in answer.text


def test_a_person_decides_which_values_are_secrets(
    page: Page, site: str, file: Path, tmp_path: Path
) -> None:
    page.goto(f"{site}servers/add?start=other")
    page.get_by_label("Name", exact=True).fill("own")
    page.get_by_label("Command", exact=True).fill(START)
    page.get_by_text("Advanced").click()
    environment = "SORT_KEY=created_at\nTENANT=acme-incorporated"
    page.get_by_label("Environment variables").fill(environment)
    page.get_by_role("button", name="Add").click()
    page.get_by_label("SORT_KEY is a secret").uncheck()
    page.get_by_label("TENANT is a secret").check()
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("status")).to_contain_text("env.TENANT is a secret (you chose it)")
    env = servers_in(file)["own"]["env"]
    assert env == {"SORT_KEY": "created_at", "TENANT": "${secret:own-tenant}"}
    stored = tmp_path / ".local" / "share" / "ideabridge" / "secrets.json"
    assert "acme-incorporated" in stored.read_text(encoding="utf-8")


# -- choosing a known server ---------------------------------------------------------------------


@pytest.mark.parametrize("known", KNOWN_SERVERS, ids=lambda known: known.name)
def test_each_known_server_fills_the_form_with_an_entry_that_can_be_used(
    known: KnownServer, site: str, file: Path, tmp_path: Path
) -> None:
    with client(site) as http:
        chosen = http.get("/ui/servers/add").text
        link = f'href="/ui/servers/add?start={known.name}"'
        assert link in chosen
        assert known.offers in chosen
        shown = http.get(f"/ui/servers/add?start={known.name}").text
        assert f"Published by {known.publisher}." in shown
        fields = dict(known.form(()).fields)
        start = fields.get("command", fields.get("address", ""))
        assert start in shown
        if not known.folder:
            # Nothing is written yet, and these would be downloaded or connected to.
            assert file.read_text(encoding="utf-8") == COMMENTED
            return

        checked = add(http, **fields, folder=str(tmp_path))
        assert f"{start} {tmp_path}" in without_breaks(checked.text)
        assert file.read_text(encoding="utf-8") == COMMENTED


def test_a_known_server_that_is_here_gets_another_name(site: str, file: Path) -> None:
    file.write_text('{"mcpServers": {"time": {"command": "x"}}}', encoding="utf-8")
    with client(site) as http:
        wait_until(lambda: "modules/time" in http.get("/ui/modules").text)
        assert http.get("/ui/servers/add").text.count("already added") == 1
        form = http.get("/ui/servers/add?start=time").text
        assert 'name="name" value="time2"' in form
        assert "You already have a server" in form


@pytest.mark.parametrize("known", KNOWN_SERVERS, ids=lambda known: known.name)
def test_the_entry_of_each_known_server_is_valid(known: KnownServer, tmp_path: Path) -> None:
    form = known.form(())
    entry: dict[str, Any] = {"url": form.get("address")}
    if known.command:
        entry = {"command": known.command[0], "args": [*known.command[1:], str(tmp_path)]}
    path = tmp_path / "ideabridge.json"
    path.write_text(json.dumps({"mcpServers": {known.name: entry}}), encoding="utf-8")
    configured = load_configuration(path).modules[known.name]
    assert configured.command == (known.command[0] if known.command else None)
    assert bool(known.command) != bool(known.address)


@needs("@modelcontextprotocol/server-filesystem")
def test_a_person_adds_a_server_for_a_folder_without_knowing_its_command(
    tmp_path: Path, page: Page, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A program `npx` that starts the installed server, so that nothing is downloaded.
    programs = tmp_path / "programs"
    programs.mkdir()
    node, script = program("mcp-server-filesystem")
    npx = programs / "npx"
    npx.write_text(f'#!/bin/sh\nshift 2\nexec {node} {script} "$@"\n', encoding="utf-8")
    npx.chmod(0o700)
    folder = tmp_path / "my papers"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    with served(tmp_path) as site:
        page.goto(link_to(site))
        page.goto(f"{site}servers/add")
        page.get_by_role("link", name="Files in a folder").click()
        expect(page.get_by_label("Name", exact=True)).to_have_value("filesystem")
        question = page.get_by_label("Which folder?")
        for wrong, why in (("papers", "the whole path"), (f"{folder}/none", "no such folder")):
            question.fill(wrong)
            page.get_by_role("button", name="Continue").click()
            expect(page.get_by_role("alert")).to_contain_text(why)
            expect(question).to_have_value(wrong)

        question.fill(str(folder))
        page.get_by_role("button", name="Continue").click()
        command = f"npx -y @modelcontextprotocol/server-filesystem '{folder}'"
        expect(page.get_by_role("main")).to_contain_text(f"It starts with {command}")
        assert file.read_text(encoding="utf-8") == COMMENTED
        page.get_by_role("button", name="Add").click()
        expect(page.locator("#state")).to_contain_text("up")
        tools = page.get_by_role("table", name="Tools of filesystem")
        expect(tools).to_contain_text("List Directory")
        args = ["-y", "@modelcontextprotocol/server-filesystem", str(folder)]
        assert servers_in(file)["filesystem"] == {"command": "npx", "args": args}
        page.goto(f"{site}modules")
        page.get_by_role("button", name="Undo").click()
        expect(page.get_by_role("link", name="filesystem", exact=True)).to_have_count(0)
        assert file.read_text(encoding="utf-8") == COMMENTED


def test_a_choice_names_what_has_to_be_installed(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    needed = {known.name: known.needs for known in KNOWN_SERVERS}
    assert needed["filesystem"] == "Node.js"
    assert needed["git"] == "uv"
    assert needed["notion"] == ""
    for name in ("npx", "uvx"):
        (programs / name).write_text("", encoding="utf-8")
        (programs / name).chmod(0o700)
    assert not any(known.needs for known in KNOWN_SERVERS)


def test_choices_of_a_server_have_one_width(page: Page, site: str) -> None:
    page.goto(f"{site}servers/add")
    widths: set[int] = set()
    for choice in page.locator(".starts > li").all():
        box = choice.bounding_box()
        assert box is not None
        widths.add(round(box["width"]))
    assert len(widths) == 1


def test_servers_of_an_assistant_are_the_first_choice(
    page: Page, tmp_path: Path, site: str, file: Path
) -> None:
    cursor = tmp_path / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    entries = {"one": {"command": "one"}, "two": {"command": "two"}}
    cursor.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    page.goto(f"{site}servers/add")
    choice = page.get_by_role("main").get_by_role("listitem").first
    expect(choice).to_contain_text("Import from Cursor")
    expect(choice).to_contain_text("It has 2 servers of its own.")
    choice.get_by_role("link").click()
    page.get_by_role("button", name="Import 2 servers").click()
    page.goto(f"{site}servers/add")
    expect(page.get_by_text("Import from Cursor")).to_have_count(0)


def test_an_admin_chooses_among_addresses_alone(tmp_path: Path, file: Path) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.users.add("ada", "admin")
        token = store.users.add_token("ada")[1]
    with served(tmp_path) as url, stranger(url) as ada:
        assert "mcp-server-fetch" not in ada.get("/ui/servers/add?start=fetch").text
        ada.post("/ui/sign-in", data={"token": token})
        chosen = ada.get("/ui/servers/add").text
        assert "start=notion" in chosen
        assert "start=filesystem" not in chosen
        assert "mcp-server-fetch" not in ada.get("/ui/servers/add?start=fetch").text
        for folder in (str(tmp_path), str(tmp_path / "none")):
            fields = {"start": "filesystem", "name": "x", "command": "npx", "folder": folder}
            answer = add(ada, **fields).text
            assert "the owner" in answer
            assert "no such folder" not in answer
    assert file.read_text(encoding="utf-8") == COMMENTED


# -- changing --------------------------------------------------------------------------------------


@pytest.fixture
def own(site: str, file: Path) -> str:
    """The page over a server `own` with a secret and a readable variable."""
    with client(site) as http:
        env = f"OWN_TOKEN={TOKEN}\nREGION=eu"
        confirm(http, add(http, name="own", command=START, env=env), shown="env.REGION")
    assert servers_in(file)["own"]["env"] == {"OWN_TOKEN": "${secret:own-token}", "REGION": "eu"}
    return site


def test_a_server_is_changed_after_its_differences_were_shown(
    page: Page, own: str, file: Path
) -> None:
    before = file.read_text(encoding="utf-8")
    page.goto(f"{own}modules/own")
    page.get_by_role("link", name="Edit", exact=True).click()
    expect(page.get_by_label("Command", exact=True)).to_have_value(START)
    token = page.get_by_label("Value of OWN_TOKEN")
    expect(token).to_have_value("")
    expect(token).to_have_attribute("placeholder", re.compile("stored as own-token"))
    expect(page.get_by_label("Value of REGION")).to_have_value("eu")
    page.get_by_label("Value of REGION").fill("us")
    page.get_by_text("Advanced").click()
    page.get_by_label("A call may take, in seconds").fill("120")
    page.get_by_label("Never these tools").fill("save\nx_*")
    page.get_by_role("button", name="Show what changes").click()

    table = page.get_by_role("table", name="What changes")
    expect(table.get_by_role("row", name="env.REGION")).to_contain_text(re.compile("eu.*us"))
    expect(table.get_by_role("row", name="A call may take")).to_contain_text(
        re.compile("not set.*120")
    )
    expect(table.locator("tbody tr")).to_have_count(3)
    assert file.read_text(encoding="utf-8") == before
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("own is changed in")
    # The secret is still the same, and the tool has disappeared immediately.
    expect(page.locator("#state")).to_contain_text("up")
    expect(page.get_by_role("table", name="Tools of own")).not_to_contain_text("Save")
    assert TOKEN not in page.content()
    text = file.read_text(encoding="utf-8")
    assert "// what my team uses" in text
    changed = servers_in(file)["own"]
    assert changed["env"] == {"OWN_TOKEN": "${secret:own-token}", "REGION": "us"}
    assert (changed["timeout"], changed["deny"]) == (120, ["save", "x_*"])

    page.goto(f"{own}modules")
    page.get_by_role("button", name="Undo: own was changed").click()
    expect(page.get_by_role("status")).to_contain_text("own was changed")
    assert file.read_text(encoding="utf-8") == before


def edit(http: httpx.Client, name: str, **fields: str) -> httpx.Response:
    """Send the form that changes a server, with other values for some of its fields."""
    page = f"/ui/servers/edit?name={name}"
    shown = http.get(page).text
    filled = {
        field: html.unescape(value)
        for field, value in re.findall(r'<input [^>]*name="([^"]+)" value="([^"]*)"', shown)
        if field not in ("secret", "remove")
    }
    filled |= re.findall(r'type="radio" name="([^"]+)" value="([^"]+)" checked', shown)
    command = re.search(r'<textarea [^>]*name="command"[^>]*>\n([^<]*)</textarea>', shown)
    if command is not None:
        filled["command"] = html.unescape(command[1])
    return send(http, "/ui/servers/edited", page=page, **{**filled, **fields})


def test_a_refused_edit_keeps_what_was_typed(page: Page, own: str, file: Path) -> None:
    other = "ghp_anotherone12345678DDDD"
    page.goto(f"{own}servers/edit?name=own")
    page.get_by_label("Value of OWN_TOKEN").fill(other)
    page.get_by_label("Remove REGION").check()
    page.get_by_text("Advanced").click()
    page.get_by_label("A call may take, in seconds").fill("soon")
    page.get_by_role("button", name="Show what changes").click()
    expect(page.get_by_role("alert")).to_contain_text("expected a number")
    timeout = page.get_by_label("A call may take, in seconds")
    expect(timeout).to_be_visible()
    expect(timeout).to_have_value("soon")
    expect(page.get_by_label("Remove REGION")).to_be_checked()
    expect(page.get_by_label("Value of OWN_TOKEN")).to_have_value("•••")
    assert other not in page.content()
    timeout.fill("5")
    page.get_by_role("button", name="Show what changes").click()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("own is changed in")
    changed = servers_in(file)["own"]
    assert changed["env"] == {"OWN_TOKEN": "${secret:own-2-own-token}"}
    assert changed["timeout"] == 5


def begins_with(http: httpx.Client) -> str:
    """Call a tool of the server `own`, and return the token with which it says that it starts."""
    run = ask(http, {"_tool": "where", "_module": "own"}, output="†results.0")
    wait_until(lambda: "s-done" in http.get(f"/ui/runs/{run}").text)
    log = without_breaks(http.get("/ui/modules/own/log").text)
    newest = re.search("own server starts with ([^<]+)", log)
    assert newest is not None
    return newest[1]


def test_a_new_secret_replaces_one_and_the_former_comes_back(own: str, file: Path) -> None:
    before = file.read_text(encoding="utf-8")
    other = "ghp_anotherone12345678DDDD"
    with client(own) as http:
        shown = edit(http, "own", **{"value.env.OWN_TOKEN": other})
        assert "${secret:own-2-own-token}" in shown.text
        answer = confirm(http, shown, shown="env.OWN_TOKEN", is_secret="env.OWN_TOKEN")
        for page in (shown, answer):
            assert other not in page.text
        assert "Its former secret own-token stays" in answer.text
        assert begins_with(http) == "[secret:own-2-own-token]"

        # What was saved once is not saved again.
        assert "was already saved" in confirm(http, shown).text
        edit_id = re.search(r'name="edit" value="([^"]+)"', http.get("/ui/modules").text)
        assert edit_id is not None
        send(http, "/ui/servers/undo", edit=edit_id[1])
        assert file.read_text(encoding="utf-8") == before
        assert begins_with(http) == "[secret:own-token]"


def test_what_cannot_be_changed_so_is_refused_at_its_field(own: str, file: Path) -> None:
    before = file.read_text(encoding="utf-8")
    cases: list[tuple[dict[str, str], str]] = [
        ({}, "nothing would change"),
        ({"command": "./run"}, "relative path"),
        ({"command": ""}, "write the command"),
        ({"command": "https://x.example/mcp"}, "choose “On the web”"),
        # The fields that belong to an address are hidden.
        ({"address": "https://x.example/mcp", "headers": "A: b"}, "nothing would change"),
        ({"kind": "address", "address": ""}, "write the address"),
        ({"value.env.OWN_TOKEN": "•••"}, "is no longer known"),
        ({"env": TOKEN}, "a variable in line 1"),
        ({"timeout": "soon"}, "expected a number"),
        ({"timeout": "-1"}, "greater than 0"),
        ({"sharing": "all"}, "expected shared or session"),
        ({"seal": "another"}, "has changed since this page was shown"),
    ]
    with client(own) as http:
        for fields, why in cases:
            answer = edit(http, "own", **fields)
            assert answer.status_code == 400
            assert why in answer.text, (fields, answer.text)
            assert TOKEN not in answer.text
            assert file.read_text(encoding="utf-8") == before


def test_another_kind_of_server_takes_its_place(own: str, file: Path) -> None:
    with client(own) as http:
        shown = edit(
            http,
            "own",
            kind="address",
            address="http://127.0.0.1:9/mcp",
            headers="X-Team: dragons",
        )
        confirm(http, shown, shown="headers.X-Team")
        assert servers_in(file)["own"] == {
            "url": "http://127.0.0.1:9/mcp",
            "headers": {"X-Team": "dragons"},
        }
        # A header is not shown, and stays if its field is left empty.
        form = http.get("/ui/servers/edit?name=own").text
        assert "dragons" not in form
        confirm(http, edit(http, "own", address="http://127.0.0.1:9/other"))
        assert servers_in(file)["own"]["headers"] == {"X-Team": "dragons"}
        confirm(http, edit(http, "own", remove="headers.X-Team"))
        assert servers_in(file)["own"] == {"url": "http://127.0.0.1:9/other"}


def test_a_secret_in_a_command_is_neither_shown_nor_lost(tmp_path: Path, file: Path) -> None:
    entry = {"command": "run", "args": ["--token", TOKEN, "--fast"]}
    file.write_text(json.dumps({"mcpServers": {"own": entry}}), encoding="utf-8")
    with served(tmp_path) as url, client(url) as http:
        form = http.get("/ui/servers/edit?name=own").text
        assert TOKEN not in form
        confirm(http, edit(http, "own", command="run --token ghp_••• --slow"))
        assert servers_in(file)["own"]["args"] == ["--token", TOKEN, "--slow"]
        assert "is not shown" in edit(http, "own", command="run --token ••• --slow").text


def test_removing_a_server_names_the_tools_that_need_it(site: str) -> None:
    with client(site) as http:
        add(http, name="own", command=START)
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
    expect(page.locator("#main")).to_contain_text("From Cursor")
    offers = page.get_by_role("list", name="Servers of Cursor")
    own_offer = offers.get_by_role("listitem").filter(has_text="own_server.py")
    expect(own_offer).to_contain_text("Its password is stored in your computer's keyring.")
    expect(page.get_by_role("button", name="Import 2 servers")).to_be_visible()
    assert TOKEN not in page.content()
    page.get_by_label("Import other").uncheck()
    page.get_by_role("button", name="Import 1 server").click()
    expect(page.get_by_role("status")).to_contain_text("1 server of Cursor copied: own.")
    page.get_by_role("link", name="own", exact=True).click()
    expect(page.locator("#state")).to_contain_text("up")
    assert TOKEN not in file.read_text(encoding="utf-8")

    page.goto(f"{site}modules")
    page.get_by_role("button", name="Undo: own was imported from Cursor").click()
    expect(page.get_by_role("link", name="own", exact=True)).to_have_count(0)
    assert file.read_text(encoding="utf-8") == COMMENTED


def test_a_server_replaces_another_one_only_if_that_is_ticked(
    page: Page, tmp_path: Path, site: str, file: Path
) -> None:
    cursor = tmp_path / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    cursor.write_text('{"mcpServers": {"tool": {"command": "first"}}}', encoding="utf-8")
    page.goto(f"{site}servers/import?host=cursor")
    page.get_by_role("button", name="Import 1 server").click()
    expect(page.get_by_role("status")).to_contain_text("1 server of Cursor copied: tool.")

    cursor.write_text('{"mcpServers": {"tool": {"command": "second"}}}', encoding="utf-8")
    page.goto(f"{site}servers/import?host=cursor")
    offer = page.get_by_role("list", name="Servers of Cursor").get_by_role("listitem")
    expect(offer).to_contain_text("same name exists")
    expect(offer).to_contain_text("Yours starts first")
    expect(offer.get_by_label("Keep mine: tool")).to_be_checked()
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_role("alert")).to_contain_text("hoose the servers to import")
    assert "second" not in file.read_text(encoding="utf-8")

    page.get_by_label("Replace tool").check()
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_role("status")).to_contain_text("1 server of Cursor copied: tool.")
    written = file.read_text(encoding="utf-8")
    assert "second" in written
    assert "first" not in written


def test_a_new_name_is_not_replaced_if_it_was_taken_meanwhile(
    tmp_path: Path, site: str, file: Path
) -> None:
    cursor = tmp_path / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    cursor.write_text('{"mcpServers": {"tool": {"command": "theirs"}}}', encoding="utf-8")
    with client(site) as http:
        shown = http.get("/ui/servers/import?host=cursor").text
        seal = shown.partition('name="seal.tool" value="')[2].partition('"')[0]
        taken = '{"mcpServers": {"tool": {"command": "mine"}}}'
        file.write_text(taken, encoding="utf-8")
        form = {"host": "cursor", "which": "tool", "seal.tool": seal}
        answer = send(http, "/ui/servers/take", page="/ui/servers/import", **form)
        assert "has changed" in answer.text
        assert file.read_text(encoding="utf-8") == taken


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
        add(owner, name="own", command=START)
        before = file.read_text(encoding="utf-8")
        with stranger(url) as ada, stranger(url) as bob:
            for name, http in (("ada", ada), ("bob", bob)):
                http.post("/ui/sign-in", data={"token": tokens[name]})

            # A member can change nothing, and reads neither forms nor logs.
            for path in (
                "servers/add",
                "servers/import",
                "servers/edit?name=own",
                "servers/check?draft=x",
                "modules/own/log",
            ):
                assert bob.get(f"/ui/{path}").status_code == 400

            for path, fields in (
                (
                    "servers/new",
                    {"name": "x", "kind": "address", "address": "https://x.example/mcp"},
                ),
                ("servers/change", {"name": "own", "action": "remove"}),
                ("servers/edited", {"name": "own", "address": "https://x.example/mcp"}),
                ("servers/save", {"draft": "x"}),
                ("servers/take", {"host": "cursor", "which": "x"}),
                ("servers/undo", {"edit": "x"}),
                ("modules/own/retry", {}),
            ):
                send(bob, f"/ui/{path}", **fields)
                assert file.read_text(encoding="utf-8") == before

            # An admin can add addresses, but neither commands nor anything that reads the owner's
            # secrets.
            for fields in (
                {"name": "x", "command": "evil"},
                {"name": "x", "address": "https://x.example/mcp", "headers": "A: ${HOME}"},
                {"name": "x", "address": "https://x.example/${secret:own-token}"},
            ):
                assert "the owner" in add(ada, **fields).text
                assert file.read_text(encoding="utf-8") == before

            # Nor can an admin change something that starts a command, or confirm what the owner
            # typed.
            shown = edit(owner, "own", timeout="5")
            assert "only the owner" in ada.get("/ui/servers/edit?name=own").text
            fields = {"name": "own", "command": START, "timeout": "6"}
            assert "only the owner" in send(ada, "/ui/servers/edited", **fields).text
            draft = re.search(r'name="draft" value="([^"]+)"', shown.text)
            assert draft is not None
            assert ada.get(f"/ui/servers/check?draft={draft[1]}").status_code == 400
            send(ada, "/ui/servers/save", draft=draft[1])
            assert file.read_text(encoding="utf-8") == before

            assert ada.get("/ui/servers/import").status_code == 400
            form = {"host": "cursor", "which": "x"}
            assert "only the owner" in send(ada, "/ui/servers/take", **form).text

            # Only the owner can bring back what an admin removed.
            send(ada, "/ui/servers/change", name="own", action="remove")
            assert file.read_text(encoding="utf-8") != before
            listed = ada.get("/ui/modules").text
            edit_id = listed.partition('name="edit" value="')[2].partition('"')[0]
            assert "restore a command" in send(ada, "/ui/servers/undo", edit=edit_id).text
            send(owner, "/ui/servers/undo", edit=edit_id)
            assert file.read_text(encoding="utf-8") == before

            send(ada, "/ui/servers/change", name="own", action="disable")
            send(ada, "/ui/servers/change", name="own", action="enable")
            add(ada, name="remote", address="http://127.0.0.1:9/mcp")
            assert "http://127.0.0.1:9/mcp" in file.read_text(encoding="utf-8")
            evil = {"kind": "command", "command": "evil"}
            for fields in (evil, {"address": "https://x.example/${HOME}"}):
                assert "the owner" in edit(ada, "remote", **fields).text
            confirm(ada, edit(ada, "remote", address="http://127.0.0.1:9/new"))
            assert "http://127.0.0.1:9/new" in file.read_text(encoding="utf-8")

            # Only the owner can change an address that gets a secret.
            shown = edit(owner, "remote", headers=f"Authorization: Bearer {TOKEN}")
            confirm(owner, shown, shown="headers.Authorization", is_secret="headers.Authorization")
            now = file.read_text(encoding="utf-8")
            assert "${secret:" in now
            stolen = {"name": "remote", "address": "https://evil.example/mcp"}
            assert "only the owner" in send(ada, "/ui/servers/edited", **stolen).text
            assert file.read_text(encoding="utf-8") == now


def test_a_form_of_another_site_or_session_changes_no_server(site: str, file: Path) -> None:
    with client(site) as http, stranger(site) as reader:
        forms = {
            "servers/new": {"name": "x", "kind": "command", "command": "evil"},
            "servers/change": {"name": "x", "action": "remove"},
            "servers/edited": {"name": "x", "command": "evil"},
            "servers/save": {"draft": "x"},
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

        # Without a session, nobody reads a file of this machine either.
        for path in ("servers/import", "servers/add"):
            answer = reader.get(f"/ui/{path}")
            assert answer.status_code == 400
            assert file.name not in answer.text

    assert file.read_text(encoding="utf-8") == COMMENTED
