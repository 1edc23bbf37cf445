"""What is approved on the page is what was shown: a call is seen whole, and a click is meant for
what was there.
"""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from tests.ui.serving import ask, client, seal, send
from tests.ui.test_apps import EXTENSION, McpClient

HIDDEN: Final = "# harmless " + "x" * 30_000 + "\nrm -rf ~"
TAGS: Final = "".join(chr(0xE0000 + ord(one)) for one in "rm -rf ~")


def refund(order: int = 1, **more: Any) -> dict[str, Any]:
    return {"_tool": "refund", "order": order, "amount": 5, **more}


def key_of(http: httpx.Client, run_id: str) -> str:
    """`RUN:APPROVAL` of the decision that a run waits for."""
    while True:
        found = re.search(
            rf'name="which" value="({run_id}:[^"]+)">', http.get(f"/ui/runs/{run_id}").text
        )
        if found is not None:
            return found[1]


def card_of(http: httpx.Client, run_id: str, path: str = "/ui/approvals") -> str:
    """The card of a run's decision on a page."""
    key_of(http, run_id)
    cards = http.get(path).text.split("<article ")
    return next(card.partition("</article>")[0] for card in cards if f'id="q-{run_id}' in card)


def decide(http: httpx.Client, key: str, decision: str, **fields: str) -> str:
    return send(
        http, "/ui/approvals/decide", "/ui/approvals", which=key, decision=decision, **fields
    ).text


@pytest.mark.parametrize("what", ["long", "lines", "executions"])
def test_what_is_not_shown_whole_can_only_be_denied(http: httpx.Client, what: str) -> None:
    call = refund(note=HIDDEN if what == "long" else "\n" * 5000 + "rm -rf ~")
    if what == "executions":
        call = {"_tool": "refund", "_each": [{"order": n, "amount": 5} for n in range(3000)]}
        each = {"_tool": "refund", "_each": "†input.orders", "order": "†item", "amount": 5}
        run_id = ask(http, each, input={"orders": list(range(3000))})
    else:
        run_id = ask(http, call)

    card = card_of(http, run_id)
    buttons = re.findall(r'<button name="decision" value="(\w+)"', card)
    assert set(buttons) == {"deny"}
    assert "Show all" in card
    assert 'name="seal"' not in card
    key = key_of(http, run_id)
    # A decision does not count unless its form was made from the whole call, whatever the form
    # says.
    other = key_of(http, ask(http, refund(2)))
    for decision in ("approve", "grant", "edit", "fields"):
        for stolen in ("", "é", "0" * 64, seal(http, other)):
            answer = decide(http, key, decision, seal=stolen, value=json.dumps(refund()))
            assert "was not shown in full" in answer, (decision, stolen)

    several = {
        "secret": secret_of(http),
        "which": [key, other],
        "decision": "approve",
        f"seal.{other}": seal(http, other),
    }
    answer = http.post("/ui/approvals", data=several, headers=headers_of(http))
    assert "Nothing was decided." in answer.text
    assert key_of(http, run_id) == key

    whole = f"/ui/approvals/whole?which={key}"
    assert shown_in(card_of(http, run_id, whole)) == call
    if "_each" in call:
        assert "3,000 executions" in card

    assert "1 call approved" in decide(http, key, "approve", seal=seal(http, key, whole))


def secret_of(http: httpx.Client) -> str:
    found = re.search(r'name="secret" value="([^"]+)"', http.get("/ui/playground").text)
    assert found is not None
    return found[1]


def headers_of(http: httpx.Client) -> dict[str, str]:
    return {
        "Origin": str(http.base_url).rstrip("/"),
        "Referer": str(http.base_url.join("/ui/approvals")),
    }


def shown_in(card: str) -> dict[str, Any]:
    """The call that a card shows in a table."""
    tool = re.search('<code class="tool">(.*?)</code>', card)
    assert tool is not None
    rows = re.findall(
        '<td><code>(.*?)</code></td><td class="grow"><div[^>]*><pre class="value( plain)?">(.*?)</pre>'
        r'\s*(<p class="last-time">ends with a line break</p>)?',
        card,
        re.DOTALL,
    )
    # Each line break in JSON also begins a line of the table. A plain text is shown as it is.
    values = {
        unescape(name): unescape(value) + ("\n" if last_break else "")
        if plain
        else json.loads(unescape(value).replace("\\n\n", "\\n"))
        for name, plain, value, last_break in rows
    }
    return {"_tool": unescape(tool[1]), **values}


def test_no_other_name_of_a_question_lets_it_happen_unseen(http: httpx.Client, site: str) -> None:
    run_id = ask(
        http, {"_tool": "solve", "_module": "anonymous", "task": "Refund it.", "tools": ["refund"]}
    )
    solver = McpClient(site, {})
    while not solver.call("check_run", run=run_id).get("requests"):
        pass

    [request] = solver.call("check_run", run=run_id)["requests"]
    solution = {"calls": [refund(note=HIDDEN)], "output": "done"}
    solver.call("submit_solution", run=request["run"], turn=request["turn"], solution=solution)
    solver.close()
    key = key_of(http, run_id)
    # The question of a room belongs to the run whose call the room answers, but the room also has
    # an id.
    in_room = f"{request['run']}:{key.rpartition('/')[2]}"
    for name in (in_room, f"{run_id}:none"):
        for decision in ("approve", "grant", "edit", "value", "deny"):
            assert "is not waiting for a decision" in decide(
                http, name, decision, value=json.dumps(refund())
            ), (name, decision)
        several = {"secret": secret_of(http), "which": [name], "decision": "approve"}
        assert (
            "Nothing was decided."
            in http.post("/ui/approvals", data=several, headers=headers_of(http)).text
        )

    assert key_of(http, run_id) == key
    whole = f"/ui/approvals/whole?which={key}"
    assert "1 call approved" in decide(http, key, "approve", seal=seal(http, key, whole))


def test_the_list_of_decisions_reads_no_calls(http: httpx.Client, tmp_path: Path) -> None:
    key = key_of(http, ask(http, refund()))
    edited = json.dumps(refund(note="padding " * 100_000))
    answer = decide(http, key, "edit", seal=seal(http, key), value=edited)
    assert "1 call edited" in answer
    assert "padding" not in http.get("/ui/approvals").text
    with Store.open(tmp_path / "ideas.sqlite") as store:
        [made] = store.decisions.latest(SEES_ALL)

    assert (made.call, made.decision) == (0, "edit")
    assert len(repr(made)) < 1_000


def test_a_seal_is_of_one_session(http: httpx.Client, site: str, tmp_path: Path) -> None:
    key = key_of(http, ask(http, refund()))
    with client(site) as other:
        assert "was not shown in full" in decide(other, key, "approve", seal=seal(http, key))
        assert "1 call approved" in decide(other, key, "approve", seal=seal(other, key))


@pytest.mark.parametrize(
    "hides",
    [
        "safe\u202etxt.exe",
        "a\u200bb\u2060",
        TAGS,
        "x\u2028y\u2029z",
        "a\ufe0f\ufe01",
        "\u3164\u115f\u00ad",
        "\\u202e",
    ],
)
def test_what_hides_in_a_call_is_written_out(http: httpx.Client, hides: str) -> None:
    call = refund(note=hides)
    # In a title, one variation selector belongs to the character before it, as in an emoji.
    run_id = ask(http, call, name="title " + hides.replace("\ufe0f", ""))
    page = (
        http.get("/ui/approvals").text
        + http.get(f"/ui/runs/{run_id}").text
        + http.get("/ui/runs").text
    )
    assert not re.search(
        "[\u00ad\u115f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\U000e0000-\U000e007f]",
        page,
    )
    card = card_of(http, run_id)
    # The text is JSON with the same value, both in the call and in its fields.
    assert shown_in(card) == call
    fields = re.findall(r'<textarea name="(?:value|call[^"]*)"[^>]*>([^<]+)</textarea>', page)
    assert fields
    assert all(json.loads(unescape(one)) == call for one in fields)


def test_a_tool_is_shown_with_what_it_sends(http: httpx.Client, site: str) -> None:
    # The number of the order may come from the input or be the same for every input.
    run_id = ask(http, refund(3), input={"order": 3, "why": "late"}, output="†results.0")
    key = key_of(http, run_id)
    decide(http, key, "approve", seal=seal(http, key))
    path = f"/ui/ideas/publish?ref={run_id}"
    # There is nothing to publish until the run has ended.
    while "with the recorded answers, the tool gives the same result" not in http.get(path).text:
        pass

    published = send(
        http,
        "/ui/ideas/publish",
        f"/ui/ideas/publish?ref={run_id}",
        ref=run_id,
        name="pay",
        answer="plan",
    )
    assert published.url.path == "/ui/ideas/pay", published.text[-2000:]
    text = unescape(re.sub("</?span[^>]*>", "", published.text))
    runs = json.loads(text.partition('aria-label="What a call runs">')[2].partition("</pre>")[0])
    assert runs["calls"][0]["order"] == {
        "†explained": ["†input.order", {"constant": 3}],
        "recorded": 3,
    }
    reader = McpClient(site, {})
    [file] = reader.ask("resources/read", {"uri": "skill://pay/pay/references/plan.json"})[
        "contents"
    ]
    assert json.loads(file["text"])["calls"] == runs["calls"]
    reader.close()


def test_values_that_were_copied_are_shown_whole_before_they_are_published(
    http: httpx.Client,
) -> None:
    note = f"as agreed {'x' * 200} the end"
    run_id = ask(
        http, {"_tool": "list_orders", "customer": note}, input={"note": note}, output="†results.0"
    )
    while "with the recorded answers, the tool gives the same result" not in (
        page := http.get(f"/ui/ideas/publish?ref={run_id}").text
    ):
        pass
    [whole] = re.findall(r"<details><summary>Full value</summary>(.*?)</details>", page, re.DOTALL)
    assert note in whole


# -- in a browser ----------------------------------------------------------------------------------


def inbox(page: Page, site: str) -> Locator:
    page.goto(f"{site}approvals")
    expect(page.locator("#live")).to_have_text("● live")
    return page.locator("#cards article")


def test_show_all_comes_before_approve(page: Page, site: str) -> None:
    page.goto(site)
    with client(site) as http:
        run_id = ask(http, refund(note=HIDDEN))
        key_of(http, run_id)

    card = inbox(page, site).first
    expect(card.get_by_role("button", name="Deny")).to_be_visible()
    expect(card.get_by_role("button", name="Approve")).to_have_count(0)
    card.get_by_role("link", name="Show all").click()
    expect(page.get_by_label("The call that would run")).to_contain_text("rm -rf ~")
    page.get_by_role("button", name="Approve", exact=True).click()
    page.goto(f"{site}runs/{run_id}")
    expect(page.locator("#head .status")).to_have_text("done")


def test_a_new_question_moves_no_other_and_takes_no_click(page: Page, site: str) -> None:
    page.goto(site)
    with client(site) as http:
        first = key_of(http, ask(http, refund(1)))
        cards = inbox(page, site)
        expect(cards).to_have_count(1)
        box = cards.first.bounding_box()
        page.evaluate("window.stays = document.querySelector('#cards article')")
        for order in (2, 3):
            key_of(http, ask(http, refund(order)))
        expect(cards).to_have_count(3)
        # New cards come last, and the first card is the same element in the same place.
        assert page.evaluate("window.stays === document.querySelector('#cards article')")
        assert cards.first.bounding_box() == box
        expect(cards.nth(1)).to_contain_text('"order": 2')
        expect(cards.nth(2)).to_contain_text('"order": 3')
        order = page.evaluate(
            "[...document.querySelectorAll('#rows tr')].map((one) => one.id.slice(2))"
        )
        assert order[0] == first
        assert len(order) == 3
        # A card that was decided elsewhere stays in its place, but can no longer be decided.
        decide(http, first, "deny")
        expect(cards.first).to_contain_text("no longer pending")
        expect(cards).to_have_count(3)
        expect(cards.first.get_by_role("button", name="Approve", exact=True)).to_be_disabled()
        expect(page.locator("#rows tr").first.locator("input[type=checkbox]")).to_be_disabled()
        page.reload()
        expect(cards).to_have_count(2)


_MET: Final = """(button) => {
  button.style.animation = "none";
  button.getBoundingClientRect();
  button.style.animation = "";
  const [first] = button.getAnimations().filter((one) => one.animationName === "steady");
  const box = button.getBoundingClientRect();
  const meets = () => document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2) === button;
  first.pause();
  first.currentTime = 500;
  const early = meets();
  first.finish();
  return [early, meets()];
}"""
"""Whether a click at the place of a button that appears anew would meet it: in its first
second, and after it."""


def test_a_button_takes_no_click_before_the_script_of_its_page_is_there(
    page: Page, site: str
) -> None:
    page.goto(site)
    with client(site) as http:
        key_of(http, ask(http, refund(1)))

    page.route("**/ui.js*", lambda route: route.abort())
    page.goto(f"{site}approvals")
    cards = page.locator("#cards > article")
    expect(cards).to_have_count(1)
    for name in ("Approve", "Deny"):
        button = cards.first.get_by_role("button", name=name, exact=True)
        assert button.evaluate(_MET) == [False, True], name


def test_a_button_of_the_view_takes_no_click_without_a_script_either(page: Page, site: str) -> None:
    reader = McpClient(site, {"extensions": EXTENSION})
    [file] = reader.ask("resources/read", {"uri": "ui://ideabridge/run"})["contents"]
    reader.close()
    style = file["text"].partition("<style>")[2].partition("</style>")[0]
    # The policy of our pages does not allow styles from elsewhere.
    page.goto("about:blank")
    page.set_content(
        f"<style>{style}</style><section class='question'><button>Approve</button></section>"
    )
    assert page.get_by_role("button").evaluate(_MET) == [False, True]


def test_a_button_takes_no_click_where_it_has_just_appeared_or_moved(page: Page, site: str) -> None:
    page.goto(site)
    with client(site) as http:
        key_of(http, ask(http, refund(1)))
        cards = inbox(page, site)
        key_of(http, ask(http, refund(2)))
        # The click comes together with the card, before anybody can have seen it.
        clicked = page.evaluate(
            """() => new Promise((done) => {
              const cards = document.getElementById("cards");
              const click = () => {
                const card = cards.children[1];
                if (!card) return false;
                const sent = [];
                const form = card.querySelector("form");
                form.onsubmit = () => sent.push(1) < 0;
                card.querySelector("button[value=approve]").click();
                done(sent.length);
                return true;
              };
              if (!click()) new MutationObserver(click).observe(cards, { childList: true });
            })"""
        )
        assert clicked == 0
        # A card that something has pushed down does not accept a click either.
        second = cards.nth(1)
        approve = second.get_by_role("button", name="Approve", exact=True)
        expect(approve).to_be_enabled()
        moved = second.evaluate(
            """(card) => {
              const sent = [];
              const form = card.querySelector("form");
              form.onsubmit = () => sent.push(1) < 0;
              card.parentElement.style.paddingTop = "40px";
              const button = card.querySelector("button[value=approve]");
              const held = [button.hasAttribute("data-held")];
              button.click();
              held.push(button.hasAttribute("data-held"));
              return [sent.length, ...held];
            }"""
        )
        # Only somebody who clicks sees the wait.
        assert moved == [0, False, True]
        expect(approve).to_be_enabled()
        expect(page.locator("[data-held]")).to_have_count(0)
        page.reload()
        cards.nth(1).get_by_role("button", name="Approve", exact=True).click()
        expect(page.get_by_text("1 call approved.")).to_be_visible()


def test_a_skipped_call_stands_on_the_page_of_its_run_with_the_reason(http: httpx.Client) -> None:
    text: dict[str, Any] = {"_tool": "template", "values": {}}
    run_id = ask(
        http, {**text, "text": "x", "_outputPath": "a || b"}, {**text, "text": "†state.b.message"}
    )
    page = unescape(http.get(f"/ui/runs/{run_id}").text)
    assert (
        "skipped: calls[1] template: †state.b.message: call 0 (template) took another branch"
        in page
    )


def test_ids_of_calls_are_on_no_page(http: httpx.Client) -> None:
    """A published run gives its calls ids, which say only what waits for what."""
    waiting = refund(1, _id="internal_1", _after=["internal_0"]), refund(2, _id="internal_2")
    run_id = ask(http, {"_tool": "find_customer", "id": "c1", "_id": "internal_0"}, *waiting)
    key = key_of(http, run_id)
    pages = ["/ui/approvals", f"/ui/approvals/whole?which={key}", f"/ui/runs/{run_id}"]
    pages += [f"/ui/runs/{run_id}/calls/{number}" for number in range(3)]
    for path in pages:
        assert "internal_" not in http.get(path).text, path

    # A call that a person has rewritten shows no id either, and runs in the same place.
    edited = json.dumps({"_tool": "refund", "order": 7, "amount": 4})
    assert "1 call edited" in decide(http, key, "edit", value=edited, seal=seal(http, key))
    assert "internal_" not in http.get(f"/ui/runs/{run_id}").text


def test_a_failed_call_is_named_by_its_tool(http: httpx.Client) -> None:
    run_id = ask(
        http, {"_tool": "find_customer", "id": "c9", "_id": "internal_0"}, output="†results.0"
    )
    while "status s-failed" not in (text := http.get(f"/ui/runs/{run_id}").text):
        pass
    assert "Find customer: there is no customer c9" in text
    assert "internal_0" not in text


def test_a_tool_is_allowed_always_and_asks_again_when_that_is_withdrawn(
    http: httpx.Client, tmp_path: Path
) -> None:
    first = ask(http, refund(1))
    card = card_of(http, first)
    assert "Approve and always allow" in card
    key = key_of(http, first)
    # As for every approval, the call was shown in full.
    assert "was not shown in full" in decide(http, key, "always", seal="0" * 64)
    answer = decide(http, key, "always", seal=seal(http, key))
    assert "1 call approved, and the tool is always allowed." in answer
    page = http.get("/ui/approvals").text
    assert "Every change asks you first." not in page
    assert f"{tmp_path}<" not in page  # The home folder of this server is no workspace.
    assert "outside projects" in page

    second = ask(http, refund(2))
    while "refunded" not in http.get(f"/ui/runs/{second}").text:
        pass

    rule = re.search(r'name="rule" value="([0-9a-f]+)"', page)
    assert rule is not None
    assert "the standing rule" in http.get(f"/ui/runs/{second}").text
    assert "there is no standing rule" in send(http, "/ui/approvals/rules", rule="none").text
    withdrawn = send(http, "/ui/approvals/rules", "/ui/approvals", rule=rule[1]).text
    assert "From now on, Refund asks again." in withdrawn
    assert "Every change asks you first." in withdrawn
    assert key_of(http, ask(http, refund(3)))
