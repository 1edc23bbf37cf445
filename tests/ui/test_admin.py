"""Admin: users with their invitations, sessions and limits; and who decides."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from ideabridge.bridge.store.configuration_log import LoggedChange
from ideabridge.bridge.store.store import Store
from ideabridge.server.ui.change_sentences import change_sentences
from ideabridge.server.ui.deciders import write_deciders
from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import ArgumentError
from tests.ui.serving import client, send, served, stranger

COMMENTED = '{\n  // ours\n  "limits": {"calls": 500}\n}\n'


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
    with served(tmp_path) as url:
        yield url


def test_an_invitation_has_what_a_user_needs(page: Page, site: str) -> None:
    page.goto(f"{site}admin")
    page.get_by_role("link", name="Users and sessions").click()
    page.get_by_role("link", name="Invite a user").click()
    page.get_by_label("Name", exact=True).fill("ann")
    page.get_by_role("button", name="Invite").click()
    invitation = page.get_by_label("The text to hand over").inner_text()
    address = site.removesuffix("/ui/")
    assert f"claude mcp add --transport http ideabridge {address}/mcp --header" in invitation
    token = re.search(r"header:  Authorization: Bearer (\S+)", invitation)
    assert token is not None
    with stranger(site) as ann:
        assert ann.post("/ui/sign-in", data={"token": token[1]}).url.path == "/ui/home"

    page.reload()
    expect(page.get_by_label("The text to hand over")).to_have_count(0)
    page.locator("summary", has_text="More").last.click()
    page.get_by_role("button", name="Disable").click()
    expect(page.get_by_role("status")).to_contain_text("ann: disable")


def test_a_button_at_the_top_opens_the_form_for_a_token(page: Page, site: str) -> None:
    with client(site) as http:
        send(http, "/ui/admin/users", page="/ui/admin", name="ann", action="add")
    page.goto(f"{site}admin/users/ann")
    label = page.get_by_label("For what")
    expect(label).to_be_hidden()
    page.get_by_role("link", name="New token").click()
    label.fill("laptop")
    page.get_by_role("link", name="Cancel").click()
    expect(label).to_be_hidden()
    page.get_by_role("link", name="New token").click()
    page.get_by_role("button", name="Make a token").click()
    expect(page.get_by_role("table", name="Tokens")).to_contain_text("laptop")


@pytest.mark.parametrize(
    ("lines", "sentences"),
    [
        (
            ("server mail: added", "server notes: added", "server web: turned off"),
            ["Servers mail and notes were added", "Server web was turned off"],
        ),
        (
            ("tool file /a/b.py", "tool file /a/c.py: loaded again", "limits: applies from now on"),
            [
                "Tool file /a/b.py was added or removed",
                "Tool file /a/c.py was loaded again",
                "Setting limits applies from now on",
            ],
        ),
    ],
)
def test_a_change_of_the_configuration_is_a_sentence(
    lines: tuple[str, ...], sentences: list[str]
) -> None:
    change = LoggedChange(1.0, "/project", "process 1", "followed", lines)
    assert change_sentences(change) == sentences
    # What is not in force is said in the words of its error.
    assert change_sentences(replace(change, status="withheld")) == [*lines]


def test_people_stand_beside_their_names_on_a_phone(page: Page, site: str) -> None:
    with client(site) as http:
        send(http, "/ui/admin/users", page="/ui/admin", name="ann", action="add")
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{site}admin?show=users")

    for row in page.locator(".people tbody tr").all():
        tile = row.locator(".tile").bounding_box()
        name = row.locator(".tiled > div").bounding_box()
        assert tile is not None
        assert name is not None
        assert tile["x"] >= 12
        assert tile["x"] + tile["width"] < name["x"]
        assert tile["y"] < name["y"] + name["height"]
    expect(page.locator(".people tbody tr")).not_to_have_count(0)


def test_values_have_the_width_of_a_phone(page: Page, site: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{site}admin?show=limits")
    row = page.locator(".data tr").first
    label = row.locator("th").bounding_box()
    value = row.locator("td").bounding_box()
    assert label is not None
    assert value is not None
    assert value["y"] >= label["y"] + label["height"] - 1
    assert value["width"] > 330


def test_nobody_disables_or_promotes_themselves(tmp_path: Path, site: str) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.users.add("ada", "admin")
        token = store.users.add_token("ada")[1]

    with stranger(site) as ada:
        ada.post("/ui/sign-in", data={"token": token})
        text = ada.get("/ui/admin/users/ada").text
        assert "This is you" in text
        assert 'value="disable"' not in text
        for action in ("disable", "member"):
            answer = send(ada, "/ui/admin/users", page="/ui/admin", name="ada", action=action)
            assert "your own role or state" in answer.text

        assert ada.get("/ui/admin").status_code == 200
        assert ada.get("/ui/admin/users/nobody").status_code == 400


def test_a_session_is_ended_but_the_owners_only_by_the_owner(tmp_path: Path, site: str) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.users.add("ada", "admin")
        token = store.users.add_token("ada")[1]

    with stranger(site) as ada, client(site) as owner:
        ada.post("/ui/sign-in", data={"token": token})
        shown = owner.get("/ui/admin?show=users").text
        # Both were here a moment ago.
        ages = re.findall(r'data-label="last used">(.*?)</td>', shown)
        assert len(ages) == 4
        assert "never" not in ages
        [theirs] = re.findall(r'name="session" value="([0-9a-f]+)"', shown)
        assert 'name="session"' not in ada.get("/ui/admin?show=users").text
        cookie = next(cookie.value for cookie in owner.cookies.jar)
        assert cookie is not None
        assert cookie not in shown

        send(owner, "/ui/admin/sessions", page="/ui/admin", session=theirs)
        assert ada.get("/ui/admin").url.path == "/ui/sign-in"
        again = send(owner, "/ui/admin/sessions", page="/ui/admin", session=theirs)
        assert "has already ended" in again.text


def test_all_other_sessions_are_ended_at_once(tmp_path: Path, site: str) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        for name in ("ada", "eve"):
            store.users.add(name, "admin")
        tokens = {name: store.users.add_token(name)[1] for name in ("ada", "eve")}

    with stranger(site) as ada, stranger(site) as eve, client(site) as owner:
        for name, http in (("ada", ada), ("eve", eve)):
            http.post("/ui/sign-in", data={"token": tokens[name]})

        # An admin can end the sessions of others, but not the owner's.
        answer = send(ada, "/ui/admin/sessions", page="/ui/admin", which="others")
        assert "1 session ended." in answer.text
        assert eve.get("/ui/admin").url.path == "/ui/sign-in"
        assert owner.get("/ui/admin").url.path == "/ui/admin"
        answer = send(owner, "/ui/admin/sessions", page="/ui/admin", which="others")
        assert "1 session ended." in answer.text
        assert ada.get("/ui/admin").url.path == "/ui/sign-in"
        assert "End other sessions" not in owner.get("/ui/admin?show=users").text


def test_sessions_say_where_they_began_and_old_ones_are_folded(page: Page, site: str) -> None:
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(client(site))
        page.goto(f"{site}admin?show=users")
        tables = page.get_by_role("table", name="Signed-in browsers")
        expect(tables.first.locator("tbody tr")).to_have_count(5)
        own = tables.first.get_by_role("row", name="this one")
        expect(own).to_contain_text("Chrome on")
        expect(own).to_contain_text("127.0.0.1")
        page.get_by_text("2 earlier sessions").click()
        expect(tables.nth(1).locator("tbody tr")).to_have_count(2)
        expect(tables.nth(1)).to_contain_text("python-httpx")


def test_what_is_wrong_says_what_helps(page: Page, tmp_path: Path, site: str, file: Path) -> None:
    cursor = tmp_path / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    cursor.write_text('{"mcpServers": {"it": {"command": "/nowhere"}}}', encoding="utf-8")
    broken = {"mcpServers": {"broken": {"command": "/nowhere/server"}}}
    file.write_text(json.dumps(broken), encoding="utf-8")
    page.goto(f"{site}modules")
    expect(page.get_by_role("row").filter(has_text="broken")).to_contain_text("failing")
    page.goto(f"{site}admin/doctor")
    warning = page.locator("#found .problem", has_text="1 server of its own cannot start: it")
    failed = page.locator("#found .problem", has_text="Server broken")
    expect(failed).to_contain_text("Server broken Cannot be started: the program")
    warning.get_by_role("link", name="Import and connect Cursor").click()
    expect(page.get_by_role("listitem").filter(has_text="/nowhere")).to_be_visible()
    page.goto(f"{site}admin/doctor")
    expect(warning).to_contain_text("Not connected on this computer; has 1 server of its own")
    # A button does the same.
    warning.get_by_text("In a terminal").click()
    expect(warning.locator("pre").first).to_have_text("ideabridge servers import cursor --move")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    warning.get_by_role("button", name="Copy command").first.click()
    expect(warning.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "ideabridge servers import cursor --move"
    warning.get_by_role("link", name="Cursor", exact=True).click()
    expect(page.get_by_role("heading", name="Assistants", exact=True)).to_be_visible()


def test_limits_are_written_in_place_and_hold_at_once(page: Page, site: str, file: Path) -> None:
    page.goto(f"{site}admin?show=limits")
    calls = page.get_by_label("Calls per run")
    expect(calls).to_have_value("500")
    expect(calls).to_have_accessible_description("calls Failed calls count, too.")
    calls.fill("1")
    page.get_by_label("Tokens per run").fill("1000")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("The limits are written")
    text = file.read_text(encoding="utf-8")
    assert "// ours" in text
    assert json.loads(text.replace("// ours", ""))["limits"] == {"calls": 1, "tokens": 1000}
    with client(site) as http:
        plan = json.dumps({"calls": [{"_tool": "list_orders"}, {"_tool": "list_orders"}]})
        form = {"kind": "plan", "text": plan, "input": "", "title": "", "action": "run"}
        assert "at most 1 in total" in send(http, "/ui/playground", **form).text

        for value, why in (("-1", "calls"), ("many", "expected a number"), ("", "expected")):
            fields = {
                "parallel_calls": "16",
                "calls": value,
                "requests": "50",
                "wall_seconds": "3600",
            }
            assert why in send(http, "/ui/admin/limits", page="/ui/admin", **fields).text
            assert file.read_text(encoding="utf-8") == text


def test_only_the_owner_changes_limits(tmp_path: Path, site: str, file: Path) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.users.add("ada", "admin")
        token = store.users.add_token("ada")[1]

    with stranger(site) as ada:
        ada.post("/ui/sign-in", data={"token": token})
        answer = send(ada, "/ui/admin/limits", page="/ui/admin", calls="1")
        assert "only the owner" in answer.text
        assert file.read_text(encoding="utf-8") == COMMENTED


def test_the_owner_lets_only_people_decide_and_undoes_it(page: Page, site: str, file: Path) -> None:
    page.goto(f"{site}approvals")
    beside = page.locator("#deciders")
    expect(beside).to_contain_text("You can answer in a chat, too.")
    passing_on = page.get_by_role("switch", name="Assistants may pass on my answers")
    expect(passing_on).to_be_checked()
    expect(passing_on).to_have_accessible_description(re.compile("calls directly also ask you"))
    expect(passing_on).to_have_text("Assistants may pass on my answers On")
    passing_on.click()
    expect(page.get_by_role("status")).to_contain_text("Only people decide now.")
    expect(beside).to_contain_text("Only people decide: here")
    text = file.read_text(encoding="utf-8")
    assert "// ours" in text
    written = json.loads(text.replace("// ours", ""))
    assert written == {"limits": {"calls": 500}, "approval": {"by": "person"}}

    expect(passing_on).not_to_be_checked()
    expect(passing_on).to_have_text("Assistants may pass on my answers Off")
    passing_on.click()
    expect(page.get_by_role("status")).to_contain_text("Assistants can pass on your answers.")
    expect(beside).to_contain_text("You can answer in a chat, too.")
    # The same bytes as before.
    assert file.read_text(encoding="utf-8") == COMMENTED


@pytest.mark.parametrize(
    ("written", "then"),
    [
        ("default", {"by": "person"}),
        ({"default": "ask", "rules": []}, {"default": "ask", "rules": [], "by": "person"}),
    ],
)
def test_who_decides_is_written_into_the_rules_of_the_file(
    tmp_path: Path, written: JSON, then: JSON
) -> None:
    path = tmp_path / "ideabridge.json"
    path.write_text(json.dumps({"approval": written}), encoding="utf-8")
    write_deciders(path, only_people=True)
    assert json.loads(path.read_text(encoding="utf-8")) == {"approval": then}


def test_nobody_decides_where_nothing_asks(tmp_path: Path, file: Path) -> None:
    allowed = '{"approval": "allow_all"}'
    file.write_text(allowed, encoding="utf-8")
    with served(tmp_path) as url, client(url) as http:
        assert "Assistants may pass on my answers" not in http.get("/ui/approvals").text
        answer = send(http, "/ui/approvals/deciders", page="/ui/approvals", by="people")
        assert "a configuration that the page cannot change" in answer.text
    with pytest.raises(ArgumentError, match="allows every call without asking"):
        write_deciders(file, only_people=True)
    assert file.read_text(encoding="utf-8") == allowed


def test_only_the_owner_chooses_who_decides(tmp_path: Path, site: str, file: Path) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.users.add("ada", "admin")
        store.users.add("mel", "member")
        tokens = [store.users.add_token(name)[1] for name in ("ada", "mel")]

    for token in tokens:
        with stranger(site) as http:
            http.post("/ui/sign-in", data={"token": token})
            page = http.get("/ui/approvals").text
            assert "Assistants may pass on my answers" not in page
            answer = send(http, "/ui/approvals/deciders", page="/ui/approvals", by="people")
            assert "only the owner" in answer.text

    with client(site) as http:
        # A form of another site does not have the secret.
        forged = http.post("/ui/approvals/deciders", data={"by": "people"})
        assert forged.status_code == 403
        odd = send(http, "/ui/approvals/deciders", page="/ui/approvals", by="nobody")
        assert "expected people or anyone" in odd.text

    with stranger(site) as http:
        refused = http.post("/ui/approvals/deciders", data={"by": "people", "secret": "x"})
        assert refused.url.path == "/ui/sign-in"
    assert file.read_text(encoding="utf-8") == COMMENTED
