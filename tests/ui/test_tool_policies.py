"""Whether calls of a tool ask, as the pages of servers and tools show and change it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from ideabridge.bridge.standing_rules import FILE_NAME
from ideabridge.bridge.store.store import Store
from tests.ui.serving import ask, client, link_to, seal, secret, send, served, stranger
from tests.ui.test_approvals import text_of
from tests.ui.test_servers import OWN, OWN_SERVER, SERVERS, configured
from tests.ui.test_shown import decide, key_of
from tests.waiting import wait_until

SAVE = {"_tool": "save", "_module": "own", "text": "one"}
TOOL = "/ui/modules/own/tools/save"
OFFER = f"{TOOL}?allow"
ALLOW = "/ui/modules/own/allow"


@pytest.fixture
def site(tmp_path: Path) -> Generator[str]:
    configured(tmp_path, SERVERS)
    with served(tmp_path) as url:
        yield url


def row(page: Page, title: str) -> Locator:
    """The row of a tool in a table of tools. The latest uses of a server's tools follow it."""
    link = page.get_by_role("link", name=title, exact=True)
    return page.get_by_role("row").filter(has=link).first


def shown_seal(http: httpx.Client, page: str = OFFER) -> str:
    """The seal of the form that lets a tool run without asking; empty if the page has none."""
    match = re.search(r'name="seal" value="([0-9a-f]{64})"', http.get(page).text)
    return "" if match is None else match[1]


def asks(http: httpx.Client) -> bool:
    """Whether a call of `save` asks."""
    run = ask(http, SAVE)
    return f'id="q-{run}' in http.get("/ui/approvals").text


def listed(http: httpx.Client) -> None:
    """Wait until the tools of the server are known."""
    wait_until(lambda: "save" in http.get("/ui/modules/own").text)


def test_a_tool_that_asks_runs_without_asking_after_the_page_said_what_follows(
    page: Page, site: str
) -> None:
    page.goto(f"{site}modules/own")
    save = row(page, "Save")
    expect(save.locator("[aria-current]")).to_have_text("Ask first")
    save.get_by_role("link", name="Run without asking").click()

    offer = page.get_by_role("region", name="Let Save run without asking?")
    expect(offer).to_contain_text("outside projects then runs at once, with any values")
    expect(offer).to_contain_text("The server does not say whether it changes anything.")
    expect(offer).to_contain_text("It asks again if the tool changes")
    # Nothing has changed yet.
    rule = page.locator(".rule")
    expect(rule.locator("[aria-current]")).to_have_text("Ask first")
    offer.get_by_role("link", name="Cancel").click()
    expect(offer).to_have_count(0)

    page.get_by_role("link", name="Run without asking").click()
    offer.get_by_role("button", name="Run without asking").click()
    expect(page.get_by_role("status")).to_contain_text("Save of own runs without asking.")
    expect(rule.locator("[aria-current]")).to_have_text("Run without asking")
    expect(rule).to_contain_text(re.compile("You always allowed it .*outside projects"))
    expect(offer).to_have_count(0)
    with client(site) as http:
        assert not asks(http)

    # One click undoes it.
    rule.get_by_role("button", name="Ask first").click()
    expect(page.get_by_role("status")).to_contain_text("From now on, Save of own asks again.")
    expect(rule.locator("[aria-current]")).to_have_text("Ask first")
    with client(site) as http:
        assert asks(http)


def test_a_choice_to_be_asked_is_changed_where_the_server_claims_nothing(
    page: Page, tmp_path: Path
) -> None:
    configured(tmp_path, {"own": {**OWN, "tools": {"save": {"read_only": False}}}})
    with served(tmp_path) as url:
        page.goto(link_to(url))
        page.goto(f"{url}modules/own/tools/save")
        rule = page.locator(".rule")
        expect(rule).to_contain_text("You chose to be asked.")
        # To follow the server would not help, because without this choice the tool asks, too.
        rule.get_by_role("link", name="Run without asking").click()
        page.get_by_role("button", name="Run without asking").click()
        expect(rule.locator("[aria-current]")).to_have_text("Run without asking")


def test_pages_say_that_a_tool_was_always_allowed_until_that_is_withdrawn(
    page: Page, site: str
) -> None:
    with client(site) as http:
        key = key_of(http, ask(http, SAVE))
        assert "is always allowed" in decide(http, key, "always", seal=seal(http, key))

    page.goto(f"{site}modules/own")
    save = row(page, "Save")
    expect(save.locator("[aria-current]")).to_have_text("Run without asking")
    expect(save).to_contain_text(re.compile("You always allowed it .*outside projects"))
    page.goto(f"{site}ideas?show=servers")
    expect(row(page, "Save")).to_contain_text("runs without asking")

    page.goto(f"{site}modules/own/tools/save")
    rule = page.locator(".rule")
    expect(rule).to_contain_text("You always allowed it")
    expect(page.get_by_text("needs approval there")).to_have_count(0)
    page.get_by_role("button", name="Ask first: save").click()
    expect(page.get_by_role("status")).to_contain_text("From now on, Save of own asks again.")
    # The page of the tool stays open, and tells the truth again.
    expect(rule.locator("[aria-current]")).to_have_text("Ask first")
    expect(page.get_by_text("needs approval there")).to_be_visible()
    page.goto(f"{site}modules/own")
    expect(save.locator("[aria-current]")).to_have_text("Ask first")


def test_a_tool_is_allowed_only_as_its_page_showed_it(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(OWN_SERVER.read_text(encoding="utf-8"), encoding="utf-8")
    own = {"command": sys.executable, "args": ["-I", str(server)], "start": "eager"}
    configured(tmp_path, {"own": own})
    rules = tmp_path / "config" / "ideabridge" / FILE_NAME
    with served(tmp_path) as url, client(url) as http, client(url) as other:
        listed(http)
        sealed = shown_seal(http)
        assert sealed
        # A form without a seal, or with that of another session or of another tool.
        refund = shown_seal(http, "/ui/modules/tools/tools/refund?allow")
        assert refund
        for wrong in ("", "x", "é", refund, shown_seal(other)):
            refused = send(http, ALLOW, page=TOOL, tool="save", seal=wrong)
            assert "has changed since this page was shown" in refused.text
        assert not rules.exists()

        # The server now lists a tool of this name that takes something else.
        changed = server.read_text(encoding="utf-8").replace(
            '"Keep a text in a file.",\n        "inputSchema": {"type": "object", "properties": {',
            '"Keep a text in a file.",\n        "inputSchema": {"type": "object", "properties": '
            '{"to": {"type": "string"}, ',
        )
        assert '"to"' in changed
        server.write_text(changed, encoding="utf-8")
        for action in ("disable", "enable"):
            send(http, "/ui/servers/change", name="own", action=action)
        wait_until(lambda: 'name="p.to"' in http.get(TOOL).text)
        refused = send(http, ALLOW, page=TOOL, tool="save", seal=sealed)
        assert "has changed since this page was shown" in refused.text
        assert not rules.exists()

        # What the page shows now can be allowed.
        send(http, ALLOW, page=OFFER, tool="save", seal=shown_seal(http))
        assert len(json.loads(rules.read_text(encoding="utf-8"))["rules"]) == 1


def test_nobody_without_a_session_lets_a_tool_run(site: str, tmp_path: Path) -> None:
    with client(site) as http, stranger(site) as reader:
        listed(http)
        sealed = shown_seal(http)
        form = {"secret": secret(http), "tool": "save", "seal": sealed}
        evil = {"Origin": "https://evil.example"}
        assert http.post(ALLOW, data=form, headers=evil).status_code == 403
        assert http.post(ALLOW, data={**form, "secret": "x"}).status_code == 403
        assert reader.post(ALLOW, data=form).status_code == 403
        assert http.get(ALLOW).status_code == 405
        # A reader sees how it is, and gets neither the choice nor a seal.
        shown = reader.get(OFFER).text
        assert "asks first" in shown
        assert "Run without asking" not in shown
        assert sealed not in shown
    assert not (tmp_path / "config" / "ideabridge" / FILE_NAME).exists()


def test_what_a_rule_denies_or_allows_cannot_be_chosen(tmp_path: Path) -> None:
    file = configured(tmp_path, {"own": OWN})
    content = json.loads(file.read_text(encoding="utf-8"))
    denied = {"module": "own", "tool": "save", "then": "deny", "why": "nothing is saved"}
    allowed = {"module": "own", "tool": "speak", "then": "allow"}
    content["approval"] = {"rules": [denied, allowed]}
    file.write_text(json.dumps(content), encoding="utf-8")
    with served(tmp_path) as url, client(url) as http:
        listed(http)
        for tool, words in (("save", "Nothing is saved."), ("speak", "Your settings allow it.")):
            page = f"/ui/modules/own/tools/{tool}"
            shown = http.get(f"{page}?allow").text
            assert words in shown
            assert "segments" not in shown
            assert 'name="seal"' not in shown
            refused = send(http, ALLOW, page=page, tool=tool, seal="0" * 64)
            assert "cannot be allowed always here" in refused.text
        assert send(http, ALLOW, page=TOOL, tool="nothing", seal="").status_code == 404
    assert not (tmp_path / "config" / "ideabridge" / FILE_NAME).exists()


def test_a_user_lets_a_tool_run_for_their_own_calls_only(tmp_path: Path) -> None:
    configured(tmp_path, SERVERS)
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.users.add("ada", "admin")
        store.users.add("bob")
        tokens = {name: store.users.add_token(name)[1] for name in ("ada", "bob")}

    with served(tmp_path) as url, client(url) as owner, stranger(url) as ada, stranger(url) as bob:
        for name, http in (("ada", ada), ("bob", bob)):
            http.post("/ui/sign-in", data={"token": tokens[name]})
        listed(owner)
        # The seal of an admin, or of the owner, allows nothing for somebody else.
        for other in (owner, ada):
            send(bob, ALLOW, page=TOOL, tool="save", seal=shown_seal(other))
            assert asks(bob)

        send(bob, ALLOW, page=OFFER, tool="save", seal=shown_seal(bob))
        assert not asks(bob)
        assert all(asks(http) for http in (owner, ada))
        assert "You always allowed it" in bob.get(TOOL).text
        assert "You always allowed it" not in ada.get(TOOL).text


def test_a_tool_that_is_to_ask_asks_although_it_was_always_allowed_as_it_was(
    tmp_path: Path,
) -> None:
    configured(tmp_path, {"own": OWN})
    page = "/ui/modules/own/tools/speak"
    speak = {**SAVE, "_tool": "speak"}
    with served(tmp_path) as url, client(url) as http:
        listed(http)
        form = {"page": page, "name": "own", "tool": "speak"}
        send(http, "/ui/servers/asking", action="ask", **form)
        key = key_of(http, ask(http, speak))
        assert "is always allowed" in decide(http, key, "always", seal=seal(http, key))
        # The person undoes their choice, so the tool runs because its server says that it only
        # reads. The rule no longer covers it.
        edit = re.search(r'name="edit" value="([^"]+)"', http.get("/ui/modules").text)
        assert edit is not None
        send(http, "/ui/servers/undo", page="/ui/modules", edit=edit[1])
        assert "The server says that it only reads." in http.get(page).text

        # With the same choice, the tool is again as the rule knew it.
        chosen = send(http, "/ui/servers/asking", action="ask", **form)
        assert "speak of own asks first." in chosen.text
        assert "You chose to be asked." in chosen.text
        assert f'id="q-{ask(http, speak)}' in http.get("/ui/approvals").text


def past_changes(http: httpx.Client) -> list[str]:
    """The changes of rules among the past decisions, latest first, without their times."""
    table = http.get("/ui/approvals/past").text.partition("Past decisions</h1>")[2]
    rows = [text_of(row) for row in re.findall("<tr>.*?</tr>", table, re.DOTALL)]
    return [re.sub(r" (just now|\d+ \w+ ago)$", "", row) for row in rows if row.startswith("rule ")]


def test_a_change_of_a_rule_is_a_past_decision_of_its_own(tmp_path: Path) -> None:
    configured(tmp_path, {"own": OWN})
    given = "rule changed Save of own was ask first → now always allow you"
    withdrawn = "rule withdrawn Save of own was always allow → now ask first you"
    with served(tmp_path) as url, client(url) as http:
        listed(http)
        assert past_changes(http) == []
        send(http, ALLOW, page=OFFER, tool="save", seal=shown_seal(http))
        assert past_changes(http) == [given]
        page = http.get("/ui/approvals").text
        [rule] = re.findall(r'name="rule" value="([^"]+)"', page)
        beside = page.partition('id="past"')[2]
        assert f'<a href="{TOOL}">Save</a>' in beside
        send(http, "/ui/approvals/rules", page="/ui/approvals", rule=rule)
        assert past_changes(http) == [withdrawn, given]

        # A person gives the same rule with a decision.
        key = key_of(http, ask(http, SAVE))
        assert "is always allowed" in decide(http, key, "always", seal=seal(http, key))
        assert past_changes(http) == [given, withdrawn, given]

        # A tool that only reads runs without a rule.
        form = {"page": "/ui/modules/own/tools/speak", "name": "own", "tool": "speak"}
        send(http, "/ui/servers/asking", action="ask", **form)
        send(http, "/ui/servers/asking", action="follow", **form)
        assert past_changes(http)[:2] == [
            "rule changed Speak of own was ask first → now run without asking you",
            "rule changed Speak of own was run without asking → now ask first you",
        ]


def test_others_see_no_changes_of_rules_that_are_not_theirs(tmp_path: Path) -> None:
    configured(tmp_path, {"own": OWN})
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.users.add("bob")
        token = store.users.add_token("bob")[1]

    with served(tmp_path) as url, client(url) as http, stranger(url) as bob:
        bob.post("/ui/sign-in", data={"token": token})
        listed(http)
        send(http, ALLOW, page=OFFER, tool="save", seal=shown_seal(http))
        assert len(past_changes(http)) == 1
        assert past_changes(bob) == []

        wait_until(lambda: shown_seal(bob) != "")
        send(bob, ALLOW, page=OFFER, tool="save", seal=shown_seal(bob))
        assert len(past_changes(bob)) == 1
        # The owner sees everything, and by whom it was done.
        assert [change.rpartition("allow ")[2] for change in past_changes(http)][1] == "you"
        assert "bob" in past_changes(http)[0]


def test_a_rule_is_withdrawn_in_the_profile_in_which_it_was_given(tmp_path: Path) -> None:
    file = configured(tmp_path, {"own": OWN, "other": OWN})
    content = json.loads(file.read_text(encoding="utf-8"))
    content["profiles"] = {"narrow": {"servers": ["own"]}}
    file.write_text(json.dumps(content), encoding="utf-8")
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.users.add("bob")
        tokens = [store.users.add_token("bob", profile=name)[1] for name in ("narrow", None)]

    with served(tmp_path) as url, stranger(url) as narrow, stranger(url) as whole:
        for http, token in zip((narrow, whole), tokens, strict=True):
            http.post("/ui/sign-in", data={"token": token})
        offer = "/ui/modules/other/tools/save?allow"
        wait_until(lambda: shown_seal(whole, offer) != "" and shown_seal(narrow) != "")
        # A profile leads to no tool outside of it.
        form = {"tool": "save", "seal": shown_seal(whole, offer)}
        assert narrow.get(offer).status_code == 404
        assert send(narrow, "/ui/modules/other/allow", page=TOOL, **form).status_code == 404

        send(whole, "/ui/modules/other/allow", page=offer, **form)
        send(narrow, ALLOW, page=OFFER, tool="save", seal=shown_seal(narrow))
        assert not asks(narrow)
        rules = re.findall(r'name="rule" value="([^"]+)"', whole.get("/ui/approvals").text)
        assert len(rules) == 2
        shown = narrow.get("/ui/approvals").text
        [rule] = re.findall(r'name="rule" value="([^"]+)"', shown)
        assert "of other" not in shown
        assert "other.save" not in shown
        assert "of other" not in shown
        assert "of other" in whole.get("/ui/approvals").text
        [other] = {*rules} - {rule}
        refused = send(narrow, "/ui/approvals/rules", page=TOOL, rule=other)
        assert "there is no standing rule" in refused.text

        withdrawn = send(narrow, "/ui/approvals/rules", page=TOOL, rule=rule)
        assert "From now on, Save of own asks again." in withdrawn.text
        assert asks(narrow)
