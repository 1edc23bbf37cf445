"""Signing in to servers on the page, with an authorization server that agrees at once."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Page, expect

from ideabridge.bridge.store.store import Store
from tests.modules.authorized import Authorized, authorized
from tests.ui.serving import client, send, served, stranger
from tests.waiting import wait_until

PAGE = "/ui/modules/tickets/sign-in"


@pytest.fixture
def tickets() -> Generator[Authorized]:
    """The server, in a thread of its own: Playwright's event loop occupies this one."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(authorized()) as server,
    ):
        yield server


@pytest.fixture
def site(tmp_path: Path, tickets: Authorized) -> Generator[str]:
    file = tmp_path / "config" / "ideabridge" / "ideabridge.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"mcpServers": {"tickets": {"url": tickets.url}}}), "utf-8")
    file.chmod(0o600)
    with Store.open(tmp_path / "ideas.sqlite"), served(tmp_path) as url:
        yield url


def began(http: httpx.Client) -> str:
    """Begin to sign in, and return the address that the page shows."""
    text = send(http, f"{PAGE}/begin", page=PAGE).text
    found = re.search(r'class="button good" href="([^"]+)"', text)
    assert found is not None, text[-1500:]
    return html.unescape(found[1])


def arrives_at(address: str) -> str:
    """The address that a browser ends up at after the sign-in."""
    answer = httpx.get(address)
    assert answer.status_code == 302
    return answer.headers["location"]


def test_the_owner_signs_in_and_the_server_is_used_at_once(
    page: Page, site: str, tickets: Authorized
) -> None:
    page.goto(f"{site}modules/tickets")
    expect(page.locator("#state")).to_contain_text("needs sign-in")
    # The button is beside what it is for, and nowhere else.
    expect(page.get_by_role("link", name="Sign in", exact=True)).to_have_count(0)
    page.locator("#state").get_by_role("button", name="Sign in", exact=True).click()
    expect(page.locator("#sign-in")).to_contain_text(tickets.base.removeprefix("http://"))
    with page.expect_popup() as popup:
        page.get_by_role("link", name="Sign in on").click()
    expect(popup.value.get_by_text("has received the answer")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("You are signed in to tickets.")
    page.get_by_text("Where the sign-in is kept").click()
    kept = page.get_by_role("main").get_by_role("group")
    expect(kept).to_contain_text("ideabridge servers logout tickets")
    page.get_by_role("link", name="See its tools").click()
    expect(page.locator("#state")).to_contain_text("up")
    expect(page.locator("#state")).to_contain_text("You are signed in.")
    page.get_by_role("main").get_by_text("More", exact=True).click()
    expect(page.get_by_role("link", name="Sign in again")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Read", exact=True).click()
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_label("The output of the run")).to_have_text("read")


def test_signing_out_deletes_the_tokens_and_ends_the_connection(page: Page, site: str) -> None:
    with client(site) as http:
        send(http, f"{PAGE}/paste", page=PAGE, address=arrives_at(began(http)))
        wait_until(lambda: http.get("/ui/modules/tickets/tools/read").status_code == 200)

    page.goto(f"{site}modules/tickets")
    page.get_by_role("main").get_by_text("More", exact=True).click()
    page.get_by_role("button", name="Sign out of tickets").click()
    expect(page.get_by_role("status")).to_have_text("You are signed out of tickets.")
    expect(page.locator("#state")).to_contain_text("needs sign-in")
    # Nothing is left to delete.
    with client(site) as http:
        again = send(http, "/ui/modules/tickets/sign-out", page=PAGE)
        assert "You were not signed in to tickets." in again.text


def test_signing_out_reaches_the_connections_of_other_processes(tmp_path: Path, site: str) -> None:
    page = "/ui/modules/tickets"
    with client(site) as http:
        send(http, f"{PAGE}/paste", page=PAGE, address=arrives_at(began(http)))
        wait_until(lambda: "You are signed in." in http.get(page).text)
        with served(tmp_path) as second, client(second) as elsewhere:
            wait_until(lambda: "You are signed in." in elsewhere.get(page).text)
            send(http, f"{page}/sign-out", page=PAGE)
            wait_until(lambda: "tickets needs you to sign in." in elsewhere.get(page).text)


def test_only_who_signed_in_signs_out(tmp_path: Path, site: str) -> None:
    with client(site) as owner, stranger(site) as reader:
        send(owner, f"{PAGE}/paste", page=PAGE, address=arrives_at(began(owner)))
        wait_until(lambda: "You are signed in to tickets" in owner.get(PAGE).text)
        path = "/ui/modules/tickets/sign-out"
        # A reader has no session, and a form of another page has no secret.
        assert reader.post(path).status_code == 403
        assert owner.post(path).status_code == 403
        assert owner.get(path).status_code in (404, 405)

        with Store.open(tmp_path / "ideas.sqlite") as store:
            store.users.add("ada", "admin")
            token = store.users.add_token("ada")[1]
        with stranger(site) as ada:
            ada.post("/ui/sign-in", data={"token": token})
            # This is about the sign-in of ada, who has none.
            assert "You were not signed in" in send(ada, path, page=PAGE).text
        wait_until(lambda: "You are signed in." in owner.get("/ui/modules/tickets").text)


def test_a_browser_elsewhere_pastes_the_address_that_it_ends_up_at(site: str) -> None:
    with client(site) as http:
        address = began(http)
        arrived = arrives_at(address)
        wrong = arrived.replace("state=", "state=x")
        refused = send(http, f"{PAGE}/paste", page=PAGE, address=wrong)
        assert "is not the address" in refused.text
        send(http, f"{PAGE}/paste", page=PAGE, address=arrived)
        wait_until(lambda: "You are signed in to tickets" in http.get(PAGE).text)
        wait_until(lambda: http.get("/ui/modules/tickets/tools/read").status_code == 200)
        again = send(http, f"{PAGE}/paste", page=PAGE, address=arrived)
        assert "start again" in again.text


def test_who_signs_in_for_all_is_the_owner_and_users_do_so_for_themselves(
    tmp_path: Path, site: str, tickets: Authorized
) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store, stranger(site) as reader:
        assert 'href="/ui/modules/tickets/sign-in"' not in reader.get("/ui/modules/tickets").text
        assert reader.get(PAGE).status_code == 400
        assert reader.post(f"{PAGE}/begin").status_code == 403

        with client(site) as owner:
            # Without users, there is nobody to distinguish.
            assert "use this sign-in" not in owner.get(PAGE).text

        store.users.add("ada", "admin")
        token = store.users.add_token("ada")[1]
        with stranger(site) as ada, client(site) as owner:
            ada.post("/ui/sign-in", data={"token": token})
            assert "Only your own calls" in ada.get(PAGE).text
            assert "Each user signs in separately." in owner.get(PAGE).text
            arrived = arrives_at(began(ada))
            # Nobody else can complete this sign-in.
            assert "start again" in send(owner, f"{PAGE}/paste", page=PAGE, address=arrived).text
            send(ada, f"{PAGE}/paste", page=PAGE, address=arrived)
            wait_until(lambda: "You are signed in" in ada.get(PAGE).text)
            # The server itself still has no sign-in of its owner.
            missing = "needs you to sign in"
            wait_until(lambda: missing in owner.get("/ui/modules/tickets").text)


def test_an_address_that_runs_a_script_is_no_link(site: str, tickets: Authorized) -> None:
    def evil(metadata: dict[str, object]) -> None:
        metadata["authorization_endpoint"] = "javascript:alert(1)//"

    tickets.changed["/.well-known/oauth-authorization-server"] = evil
    with client(site) as http:
        text = send(http, f"{PAGE}/begin", page=PAGE).text
        assert "javascript:" not in text
        assert 'role="alert"' in text


def test_a_connection_that_fails_after_the_sign_in_is_told_apart_from_it(
    site: str, tickets: Authorized
) -> None:
    tickets.cuts_off = True
    with client(site) as http:
        send(http, f"{PAGE}/paste", page=PAGE, address=arrives_at(began(http)))
        wait_until(lambda: "but the connection failed" in http.get(PAGE).text)
        shown = html.unescape(re.sub("<[^>]+>", "", http.get(PAGE).text))
        assert "You are signed in to tickets." in shown
        reason = "server 'tickets' did not connect: can no longer be reached: "
        # A reason is a whole sentence of its own: no word follows it.
        found = re.search(rf"the connection failed: {reason}.*", shown)
        assert found is not None, shown[-1500:]
        assert not found[0].endswith(",")
        # The tokens are not lost: the server is used as soon as it answers.
        tickets.cuts_off = False
        send(http, "/ui/modules/tickets/retry", page="/ui/modules/tickets")
        wait_until(lambda: "You are signed in." in http.get("/ui/modules/tickets").text)
        assert http.get("/ui/modules/tickets/tools/read").status_code == 200


def test_the_tools_of_a_server_stay_known_after_the_sign_out_and_the_page_leads_to_the_sign_in(
    site: str,
) -> None:
    with client(site) as http:
        send(http, f"{PAGE}/paste", page=PAGE, address=arrives_at(began(http)))
        wait_until(lambda: http.get("/ui/modules/tickets/tools/read").status_code == 200)
        usable = http.get("/ui/modules/tickets/tools/read").text
        assert 'id="call-form"' in usable
        count = re.compile(r'<td class="number[^>]* data-unit="tools">(\d+)')
        before = count.findall(http.get("/ui/modules").text)
        send(http, "/ui/modules/tickets/sign-out", page=PAGE)
        wait_until(lambda: "tickets needs you to sign in." in http.get("/ui/modules/tickets").text)

        # What is known of the server is still shown, and counted; nothing offers to call it.
        shown = http.get("/ui/modules").text
        assert "needs sign-in" in shown
        assert count.findall(shown)[0] == before[0] != "0"
        tool = http.get("/ui/modules/tickets/tools/read").text
        assert 'id="call-form"' not in tool
        assert 'action="/ui/modules/tickets/sign-in/begin"' in tool

        # Where a link leads to the sign-in, no command is needed.
        for path in ("/ui/admin", "/ui/admin/doctor", "/ui/modules/tickets/log"):
            text = http.get(path).text
            assert 'href="/ui/modules/tickets/sign-in"' in text, path
            assert "servers login" not in text, path
