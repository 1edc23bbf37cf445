"""The pages of tools: what a tool runs as readable steps, where it comes from, who uses it, the
tools written by hand, and a suggestion that becomes a tool with one click.
"""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import httpx
from playwright.sync_api import Page, expect

from ideabridge.server.ui.readable_names import readable
from tests.ui.serving import ask, send, stranger, without_breaks
from tests.ui.test_approvals import approve
from tests.ui.test_outputs import ended
from tests.ui.test_runs import ORDERS

WRITTEN = """\
name: with_tax
description: The price with tax
context:
  - type: input
    input: {net: 100}
solution:
  calls:
    - {_tool: compute, code: net * 2, net: †input.net, _outputPath: gross}
  output: †state.gross
"""


def words_of(html: str) -> str:
    return " ".join(unescape(re.sub("<[^>]+>", " ", without_breaks(html))).split())


def write_idea(http: httpx.Client, text: str, name: str) -> None:
    shown = send(http, "/ui/write", "/ui/write", text=text, action="show").text
    seen = re.search('name="seen" value="([^"]+)"', shown)
    assert seen is not None
    saved = send(http, "/ui/write", "/ui/write", text=text, action="save", seen=seen[1])
    assert saved.url.path == f"/ui/ideas/{name}", words_of(saved.text)


def test_a_tool_says_what_it_runs_and_where_it_comes_from(http: httpx.Client) -> None:
    calls = [
        ORDERS | {"customer": "c1", "_outputPath": "orders"},
        {"_tool": "compute", "code": "len(o)", "o": "†state.orders"},
    ]
    made = ask(http, *calls, output="†results.1", name="count orders of c1")
    ended(http, made)
    path = f"/ui/ideas/publish?ref={made}"
    while "with the recorded answers, the tool gives the same result" not in (
        draft := http.get(path).text
    ):
        pass
    # The draft shows the plan before it is published, and proposes a name and a description without
    # the value of the parameter.
    assert 'name="name" value="count_orders"' in draft
    assert 'name="description" value="count orders"' in draft
    assert f'From <a href="/ui/runs/{made}">count orders of c1</a>' in draft
    assert "customer for List orders Name of the parameter" in words_of(draft)
    assert "In the run: c1 ." in words_of(draft)
    steps = words_of(draft.partition('<ol class="plan-steps">')[2].partition("</ol>")[0])
    assert steps.startswith("List orders customer the customer you enter Compute Formula len(o)")
    assert '<b title="list_orders">List orders</b>' in draft
    assert "Returns the result of Compute." in words_of(draft)
    assert steps.endswith(" o the result of List orders")
    assert "list_orders" in draft.partition('aria-label="What a call runs">')[2]

    tool = send(http, "/ui/ideas/publish", path, ref=made, name="count_orders", answer="plan").text
    words = words_of(tool)
    assert "made from count orders of c1" in words
    # Calls that do not wait for each other have one number; here, the second waits for the first.
    assert tool.count('<li><div class="plan-step">') == 2
    assert "At the same time" not in words
    assert 'The recorded input and output { "customer" : "c1" } 2' in words
    steps = words_of(tool.partition('<ol class="plan-steps">')[2].partition("</ol>")[0])
    assert steps.startswith("List orders customer the customer you enter Compute Formula len(o)")
    assert steps.endswith(" o the result of List orders")
    assert "used by" not in words

    called = send(http, "/ui/ideas/count_orders/call", "/ui/ideas/count_orders")
    run_id = called.url.params["run"]
    ended(http, run_id)
    used = http.get("/ui/ideas/count_orders").text
    assert "used by you : 1 run, the latest" in words_of(used)
    assert f'href="/ui/runs/{run_id}"' in used


def test_the_list_of_tools_says_how_often_each_ran(http: httpx.Client) -> None:
    write_idea(http, WRITTEN, "with_tax")
    row = words_of(rows_of(http)["with_tax"])
    assert row.startswith("With tax The price with tax. fixed steps only reads 0 ")
    # As long as no tool ran, there is no column for when each ran last.
    assert "Last run" not in http.get("/ui/ideas").text

    for _ in range(2):
        called = send(http, "/ui/ideas/with_tax/call", "/ui/ideas/with_tax", **{"p.net": "100"})
        ended(http, called.url.params["run"])

    row = words_of(rows_of(http)["with_tax"])
    assert re.search(" 2 (just now|[0-9]+ s ago) ", row), row


def test_the_list_of_tools_says_which_may_change_data(http: httpx.Client) -> None:
    write_idea(http, WRITTEN, "with_tax")
    refunding = WRITTEN.replace(
        "    - {_tool: compute",
        "    - {_tool: refund, order: 4, amount: 1}\n    - {_tool: compute",
    )
    write_idea(http, refunding.replace("with_tax", "with_refund"), "with_refund")
    rows = rows_of(http)
    assert "only reads" in rows["with_tax"]
    assert '<span class="tag ask">may change data</span>' in rows["with_refund"]
    # The page of the tool says the same, and so does each icon.
    page = http.get("/ui/ideas/with_refund").text
    assert "may change data" in page
    assert icon_in(rows["with_tax"]) != icon_in(rows["with_refund"]) == icon_in(page)


def test_a_search_finds_every_kind_of_tool_and_counts_each_kind(http: httpx.Client) -> None:
    write_idea(http, WRITTEN, "with_tax")
    # A part of a word of the description is enough.
    words = words_of(http.get("/ui/ideas?q=pri").text)
    assert "Results for “pri” Made here 1 " in words
    assert "Built in" in words_of(http.get("/ui/ideas?q=COMPUTE").text).partition("Results for")[2]
    found = words_of(http.get("/ui/ideas?q=e").text).partition("Results for")[2]
    assert found.index("Made here 1 ") < found.index("With tax") < found.index("Built in")
    # A kind without results is not named.
    assert "Saved runs" not in found
    assert found.index("From files") < found.index("List orders") < found.index("Built in")
    assert "No tool and no saved run has" in http.get("/ui/ideas?q=nothing+has+this").text


def test_results_of_all_kinds_have_the_same_columns(
    page: Page, site: str, http: httpx.Client
) -> None:
    write_idea(http, WRITTEN, "with_tax")
    page.goto(f"{site}ideas?q=e")
    made = page.get_by_role("table", name="Tools made here")
    built_in = page.get_by_role("table", name="Built-in tools")
    expect(built_in).to_be_visible()
    for shape in ("th.name", "th.about", "th.rule"):
        left = "(cell) => cell.getBoundingClientRect().left"
        assert made.locator(shape).evaluate(left) == built_in.locator(shape).evaluate(left)


def test_saved_runs_are_a_tab_of_runs(page: Page, site: str, http: httpx.Client) -> None:
    ended(http, ask(http, ORDERS))
    ended(http, ask(http, {"_tool": "find_customer", "id": "c1"}))
    page.goto(f"{site}ideas?show=saved")
    expect(page.get_by_role("navigation", name="Kinds of tools")).to_have_count(0)
    chosen = page.locator("nav [aria-current]")
    expect(chosen).to_have_text(["Runs", "Saved runs"])
    rows = page.get_by_role("table", name="Saved runs").locator("tbody tr")
    expect(rows).to_have_count(2)
    # A tool that a person wrote comes from no run.
    write_idea(http, WRITTEN, "with_tax")
    page.reload()
    expect(rows).to_have_count(2)
    page.get_by_label("Search saved runs").fill("find_customer")
    page.get_by_label("Search saved runs").press("Enter")
    expect(rows).to_have_count(1)
    page.get_by_label("Search saved runs").fill("nothing has this")
    page.get_by_label("Search saved runs").press("Enter")
    expect(page.get_by_text("No saved runs match.")).to_be_visible()


def test_built_in_tools_are_listed_and_lead_to_their_pages(page: Page, site: str) -> None:
    page.goto(f"{site}ideas")
    kinds = page.get_by_role("navigation", name="Kinds of tools")
    kinds.get_by_role("link", name="Built in").click()
    expect(kinds.locator("[aria-current]")).to_have_text(re.compile(r"Built in \d+"))
    page.get_by_role("table").get_by_role("link", name="Compute").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compute")


def test_tools_written_by_hand_are_a_part_of_those_made_here(
    page: Page, site: str, http: httpx.Client
) -> None:
    publish_orders(http)
    write_idea(http, WRITTEN, "with_tax")
    page.goto(f"{site}ideas")
    tools = page.get_by_role("table", name="Tools made here").locator("tbody tr")
    expect(tools).to_have_count(2)
    page.get_by_role("link", name="Written by hand").click()
    expect(tools).to_have_count(1)
    current = page.get_by_role("navigation", name="Kinds of tools").locator("[aria-current]")
    expect(current).to_have_text("Made here 2")


def test_the_page_of_a_tool_shows_what_a_call_returned(
    page: Page, site: str, http: httpx.Client
) -> None:
    write_idea(http, WRITTEN, "with_tax")
    page.goto(f"{site}ideas/with_tax")
    form = page.locator("#call-form")
    net = form.get_by_label("net")
    expect(net).to_have_attribute("placeholder", "for example, 100")
    net.fill("21")
    form.get_by_role("button", name="Run").click()
    trial = page.locator("#trial")
    expect(trial.get_by_label("The output of the run")).to_have_text("42")
    expect(net).to_have_value("21")
    trial.get_by_role("link", name="The run, step by step").click()
    expect(page.locator("#head .status")).to_have_text("done")


def icon_in(html: str) -> str:
    """Return what the first tile of a tool shows."""
    tile = re.search(r'<span class="tile of-tool.*?<path d="([^"]+)"', html)
    assert tile is not None, html
    return tile[1]


def rows_of(http: httpx.Client) -> dict[str, str]:
    """Return the HTML of each row of the list of tools, by the name of its tool."""
    table = http.get("/ui/ideas").text.partition("<tbody>")[2].partition("</tbody>")[0]
    rows = table.split("<tr>")[1:]
    return {row.partition("/ui/ideas/")[2].partition('"')[0]: row for row in rows}


def test_a_draft_names_runs_by_their_titles_and_says_each_value_once(
    page: Page, site: str, http: httpx.Client
) -> None:
    for customer in ("c1", "c2"):
        made = ask(http, ORDERS | {"customer": customer}, output="†results.0", name="all orders")
        ended(http, made)

    page.goto(f"{site}ideas/publish?ref={made}")
    form = page.get_by_role("main").locator("form.draft")
    expect(form).to_contain_text("with the recorded answers, the tool gives the same result")
    expect(page.get_by_role("table")).to_have_count(0)
    expect(
        form.get_by_role("group", name="What the tool asks for").locator(".hint b")
    ).to_have_text(["c2"])
    form.get_by_text("Compare with 1 similar run").click()
    expect(form.get_by_role("link", name="all orders")).to_be_visible()
    expect(form).to_contain_text("customer c1")
    assert "run_" not in page.get_by_role("main").inner_text()
    form.get_by_label("Name of the tool").fill("some_orders")
    form.get_by_role("button").click()
    expect(page.get_by_role("heading", name="Some orders", exact=True)).to_be_visible()
    page.get_by_role("link", name="Edit", exact=True).click()
    expect(page.get_by_role("heading", name="Change Some orders")).to_be_visible()


def test_parameters_with_the_same_value_become_one(
    page: Page, site: str, http: httpx.Client
) -> None:
    calls = [
        ORDERS | {"customer": "c1", "_outputPath": "orders"},
        {"_tool": "find_customer", "id": "c1", "_outputPath": "who"},
    ]
    made = ask(http, *calls, output="†state.who")
    ended(http, made)
    page.goto(f"{site}ideas/publish?ref={made}")
    expect(
        page.get_by_text("with the recorded answers, the tool gives the same result")
    ).to_be_visible()
    page.get_by_label("Name of the tool").fill("person")
    expect(page.locator("input[name$='.rename']")).to_have_count(1)
    expect(page.get_by_role("main")).to_contain_text(
        "Used in 2 places: customer for List orders, id for Find customer."
    )
    chosen = page.get_by_label("Ask, with this value as the default")
    expect(chosen).to_be_checked()
    preview = page.locator(".plan-steps")
    expect(preview.get_by_text("At the same time:")).to_be_visible()
    expect(preview).to_contain_text("the customer you enter")
    page.get_by_label("Always use this value").check()
    expect(preview).not_to_contain_text("you enter")
    expect(preview).to_contain_text("c1")
    chosen.check()
    expect(preview).to_contain_text("the customer you enter")
    page.locator("input[name='a.customer.rename']").fill("who")
    page.get_by_role("button", name="Make the tool").click()
    fields = page.locator("#call-form input[name^='p.']")
    expect(fields).to_have_count(1)
    expect(fields).to_have_attribute("name", "p.who")

    # The next version can separate them again, or keep what they had.
    page.get_by_role("link", name="Edit", exact=True).click()
    expect(page.get_by_role("main")).to_contain_text("Used in 2 places")
    page.get_by_text("Use different values in the 2 places").click()
    expect(page.get_by_label("id: the same as who")).to_be_checked()
    page.get_by_label("Always use this value").check()
    page.get_by_role("button", name="Save as the next version").click()
    expect(page.locator(".facts")).to_contain_text("version 2")
    expect(page.locator("#call-form")).to_contain_text("It takes no input.")
    page.get_by_role("link", name="Edit", exact=True).click()
    for name in ("customer", "id"):
        again = page.get_by_role("group", name=f"What a call does with {name}")
        expect(again.get_by_label("Always use the recorded value")).to_be_checked()
        again.get_by_label("Ask, with the recorded value as the default").check()
    page.get_by_role("button", name="Save as the next version").click()
    expect(fields).to_have_count(2)


def test_places_with_the_same_value_are_separated(
    page: Page, site: str, http: httpx.Client
) -> None:
    calls = [
        ORDERS | {"customer": "c1", "_outputPath": "orders"},
        {"_tool": "find_customer", "id": "c1", "_outputPath": "who"},
    ]
    made = ask(http, *calls, output="†state.who")
    ended(http, made)
    page.goto(f"{site}ideas/publish?ref={made}")
    expect(
        page.get_by_text("with the recorded answers, the tool gives the same result")
    ).to_be_visible()
    page.get_by_label("Name of the tool").fill("person")
    page.get_by_label("Ask each time").check()
    page.get_by_text("Use different values in the 2 places").click()
    page.get_by_label("id: the same as customer").uncheck()
    page.get_by_role("button", name="Make the tool").click()
    form = page.locator("#call-form")
    expect(form.locator("input[name='p.customer']")).to_have_attribute("required", "")
    expect(form.locator("input[name='p.id']")).to_have_accessible_description(
        re.compile("text Empty means c1")
    )
    # What an empty field means says that it may be left empty.
    expect(form.locator("input[name='p.id']")).to_have_attribute("placeholder", "c1, if left empty")
    expect(form).not_to_contain_text("optional")


def test_numbers_that_are_equal_stay_apart_until_a_person_joins_them(
    page: Page, site: str, http: httpx.Client
) -> None:
    made = ask(http, {"_tool": "refund", "order": 4, "amount": 4}, output="†results.0")
    approve(http, made)
    ended(http, made)
    page.goto(f"{site}ideas/publish?ref={made}")
    expect(
        page.get_by_text("with the recorded answers, the tool gives the same result")
    ).to_be_visible()
    page.get_by_label("Name of the tool").fill("repay")
    page.get_by_label("the same as order").check()
    page.get_by_role("button", name="Make the tool").click()
    fields = page.locator("#call-form input[name^='p.']")
    expect(fields).to_have_count(1)
    expect(fields).to_have_attribute("name", "p.order")


def test_a_name_is_proposed_without_words_that_only_suit_the_run(http: httpx.Client) -> None:
    orders = ORDERS | {"customer": "c1", "_outputPath": "orders"}
    person = {"_tool": "find_customer", "id": "c1"}
    cases = {
        # The tool whose result is returned, and what it asks for.
        "Orders of Mira Olsen": "list_orders_by_customer",
        "Mira's orders": "list_orders_by_customer",
        "Olsen, Mira and all her orders": "list_orders_by_customer",
        "Open orders of Mira Olsen": "open_orders",
        "All orders for c1": "all_orders",
    }
    for title, name in cases.items():
        made = ask(http, orders, person, output="†state.orders", name=title)
        ended(http, made)
        page = http.get(f"/ui/ideas/publish?ref={made}").text
        assert f'name="name" value="{name}"' in page, title
        described = re.search('name="description" value="([^"]*)"', page)
        assert described is not None
        assert described[1].lower().replace(" ", "_") == name

    both = ask(http, orders, person, name="Mira Olsen")
    ended(http, both)
    page = http.get(f"/ui/ideas/publish?ref={both}").text
    assert 'name="name" value="list_orders_and_find_customer"' in page
    # Who does not want the tool goes back to the run.
    assert f'<a class="button" href="/ui/runs/{both}">Cancel</a>' in page


def publish_orders(http: httpx.Client, **fields: str) -> None:
    """Make a tool `orders` of a run that lists orders. Further fields belong to the form."""
    made = ask(http, ORDERS | {"customer": "c1"}, output="†results.0")
    ended(http, made)
    path = f"/ui/ideas/publish?ref={made}"
    while "with the recorded answers, the tool gives the same result" not in http.get(path).text:
        pass
    send(http, "/ui/ideas/publish", path, ref=made, name="orders", answer="plan", **fields)


def test_a_name_in_any_words_becomes_one_that_assistants_can_call(http: httpx.Client) -> None:
    made = ask(http, ORDERS | {"customer": "c1"}, output="†results.0")
    ended(http, made)
    path = f"/ui/ideas/publish?ref={made}"
    assert "All your assistants can use it." in words_of(http.get(path).text)
    form = {"ref": made, "answer": "plan"}
    tool = send(http, "/ui/ideas/publish", path, name="  Orders of Zoë's shop ", **form)
    assert tool.url.path == "/ui/ideas/orders_of_zoe_s_shop"
    words = words_of(tool.text)
    assert (
        "“Orders of Zoë's shop” is now the tool orders_of_zoe_s_shop. Each call runs its 1 step. "
        "Nothing ran now."
    ) in words
    assert "for all your assistants" in words


def test_a_name_is_refused_beside_its_field_and_what_was_typed_stays(http: httpx.Client) -> None:
    publish_orders(http)
    made = ask(http, ORDERS | {"customer": "c2"}, output="†results.0", name="more orders")
    ended(http, made)
    path = f"/ui/ideas/publish?ref={made}"
    refusals = {
        "Orders": "There is already a tool orders: Open orders , or choose another name",
        "日本": "The name needs a letter from a to z, or a digit.",
        "List orders": "already has a tool 'list_orders'; choose another",
        "Session": "ideabridge itself uses the name 'session'; choose another",
    }
    for typed, why in refusals.items():
        fields = {"a.customer.rename": "who", "description": "All of them"}
        page = send(http, "/ui/ideas/publish", path, ref=made, name=typed, **fields).text
        assert why in words_of(page.partition('id="refused-name"')[2].partition("</p>")[0]), page
        assert f'name="name" value="{typed}"' in page
        assert 'value="All of them"' in page
        assert 'name="a.customer.rename" value="who"' in page
    assert "version" not in words_of(rows_of(http)["orders"])


def test_a_tool_shows_its_parameters_once(page: Page, site: str, http: httpx.Client) -> None:
    write_idea(http, WRITTEN.replace("input: {", "required: [net]\n    input: {"), "with_tax")
    page.goto(f"{site}ideas/with_tax")
    field = page.locator("#call-form").get_by_label(re.compile("net"))
    expect(field).to_have_accessible_description(re.compile("a number · required For example: 100"))
    expect(page.get_by_role("main").get_by_role("table")).to_have_count(0)
    field.fill("7")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_label("The output of the run")).to_contain_text("14")


def test_what_is_done_less_often_unfolds_and_says_what_it_does(
    page: Page, site: str, http: httpx.Client
) -> None:
    publish_orders(http)
    page.goto(f"{site}ideas/orders")
    more = page.get_by_role("main").get_by_text("More", exact=True)
    unpublish = page.get_by_role("button", name="Unpublish")
    expect(unpublish).to_be_hidden()
    more.click()
    expect(unpublish).to_have_accessible_description(re.compile("no longer call it"))
    verify = page.get_by_role("button", name="Verify")
    expect(verify).to_have_accessible_description(re.compile("recorded output"))

    # A single version is not shown as a list, but can be pinned.
    expect(page.get_by_role("heading", name="Versions")).to_have_count(0)
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("orders means version 1, pinned.")
    more.click()
    page.get_by_role("button", name="Unpin").click()
    expect(page.get_by_role("status")).to_contain_text("orders means version 1.")

    publish_orders(http, description="All orders", replaces="orders")
    page.reload()
    expect(page.get_by_role("group", name="Versions").locator("tbody tr")).to_have_count(2)
    more.click()
    unpublish.click()
    expect(page.get_by_role("status")).to_contain_text("orders is no longer a tool.")


def test_a_reader_gets_no_menu_of_changes(http: httpx.Client) -> None:
    publish_orders(http)
    with stranger(str(http.base_url)) as reader:
        shown = reader.get("/ui/ideas/orders").text
        assert "What it runs" in shown
        assert "Unpublish" not in shown
        assert "Verify" not in shown


def test_tools_that_are_written_by_hand_have_a_list(http: httpx.Client) -> None:
    assert "No tool is written by hand yet" in http.get("/ui/ideas?show=written").text
    publish_orders(http)
    write_idea(http, WRITTEN, "with_tax")
    listed = http.get("/ui/ideas?show=written").text
    assert 'href="/ui/ideas/with_tax"' in listed
    assert 'href="/ui/ideas/orders"' not in listed
    assert 'href="/ui/ideas/orders"' in http.get("/ui/ideas").text
    assert "not made from a run" in http.get("/ui/ideas/with_tax").text


def test_the_files_of_the_project_say_whether_they_are_in_force(
    page: Page, site: str, tmp_path: Path
) -> None:
    page.goto(f"{site}ideas?show=written")
    page.get_by_text("Folder and commands").click()
    expect(page.get_by_text("and has no files yet")).to_be_visible()
    folder = tmp_path / "ideas"
    folder.mkdir()
    (folder / "with_tax.yaml").write_text(WRITTEN, encoding="utf-8")
    (folder / "broken.yaml").write_text("context: []\nsolutoin: {}\n", encoding="utf-8")
    (folder / "linked.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    (folder / "notes.txt").write_text("no document", encoding="utf-8")

    page.reload()
    table = page.get_by_role("table", name="Files in the project")
    expect(table.locator("tbody tr")).to_have_count(2)
    expect(table.get_by_role("row", name="broken.yaml")).to_contain_text("Did you mean 'solution'?")
    row = table.get_by_role("row", name="with_tax.yaml")
    expect(row).to_contain_text("not saved")
    row.get_by_role("link", name="Open").click()
    page.get_by_role("button", name="Preview the tool").click()
    page.get_by_role("button", name="Save as a tool").click()
    expect(page.get_by_role("status")).to_contain_text("with_tax is now a tool.")

    page.goto(f"{site}ideas?show=written")
    expect(row).to_contain_text("in force")
    changed = WRITTEN.replace("net * 2", "net * 3")
    (folder / "with_tax.yaml").write_text(changed, encoding="utf-8")
    page.reload()
    expect(row).to_contain_text("the tool is version 1, which has different content")


def test_only_the_owner_reads_files_of_the_project(http: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / "ideas").mkdir()
    (tmp_path / "ideas" / "with_tax.yaml").write_text(WRITTEN, encoding="utf-8")
    (tmp_path / "secret.yaml").write_text("secret", encoding="utf-8")
    assert "net * 2" in http.get("/ui/write?file=with_tax.yaml").text
    for name in ("../secret.yaml", "ideas/with_tax.yaml", str(tmp_path / "secret.yaml"), "x.yaml"):
        answer = http.get("/ui/write", params={"file": name})
        assert answer.status_code == 400
        assert "has no document" in answer.text
    with stranger(str(http.base_url)) as reader:
        assert reader.get("/ui/write?file=with_tax.yaml").status_code == 400
        assert "with_tax.yaml" not in reader.get("/ui/ideas?show=written").text


def test_a_large_plan_shows_as_many_steps_as_fit(http: httpx.Client) -> None:
    values = {f"value_{number}": "word " * 20 for number in range(20)}
    calls = [{"_tool": "compute", "code": "1", **values} for _ in range(60)]
    solution = {"calls": calls, "output": "†results.0"}
    write_idea(http, json.dumps({"name": "many", "context": [], "solution": solution}), "many")
    page = http.get("/ui/ideas/many").text
    steps = page.partition('<ol class="plan-steps single">')[2].partition("</ol>")[0]
    shown = steps.count('<div class="plan-step">')
    assert 1 < shown < 60
    assert f"{60 - shown} more calls not shown." in page
    assert len(page.encode()) < 100_000


def test_a_program_is_coloured_and_whole(http: httpx.Client) -> None:
    program = "lines = [f'<b>{n}' for n in range(2)]  # all\nlines\n"
    document = json.dumps({"name": "counted", "context": [], "solution": {"program": program}})
    write_idea(http, document, "counted")
    page = http.get("/ui/ideas/counted").text
    part = page.partition('aria-label="The program that a call runs">')[2].partition("</pre>")[0]
    assert '<span class="h-k">for</span>' in part
    assert unescape(re.sub("<[^>]+>", "", part)).strip() == program.strip()


def test_a_suggestion_becomes_a_tool_with_one_click(
    page: Page, site: str, http: httpx.Client
) -> None:
    for customer in ("c0", "c1", "c2"):
        calls = [
            ORDERS | {"customer": customer, "_outputPath": "orders"},
            {"_tool": "find_customer", "id": customer},
        ]
        made = ask(http, *calls, output=["†state.orders", "†results.1"])
        ended(http, made)

    # The number of suggestions comes after the page, because finding them can take seconds.
    page.goto(f"{site}ideas")
    suggested = page.get_by_role("link", name="Suggested")
    expect(suggested).to_have_text("Suggested 1")
    suggested.click()
    expect(suggested).to_have_text("Suggested 1")
    card = page.locator("article.card").first
    expect(card).to_be_visible()
    expect(card.get_by_role("heading")).to_have_text("List orders, then find customer")
    expect(card).to_contain_text("These 2 steps ran 3 times in the same order.")
    expect(card).to_contain_text("As a tool, they are one call that asks for")
    # The steps in their order, and the latest runs.
    expect(card.locator(".suggested-steps > li")).to_have_text(["List orders", "Find customer"])
    expect(card.locator(".suggested-runs > li")).to_have_count(3)
    expect(card.locator("p b")).to_have_text(["customer"])
    expect(card).to_contain_text("They only read.")
    source = card.get_by_role("link", name="List orders, find customer").first
    expect(source).to_have_attribute("href", f"/ui/runs/{made}")
    # No address contains the secret of the session.
    review = card.get_by_role("link", name="Review it first").get_attribute("href")
    assert review is not None
    assert "secret" not in review
    name = card.locator("code").inner_text()
    expect(page.locator("button[aria-disabled=true]")).to_have_count(0)
    card.get_by_role("button", name="Make it a tool").click()
    expect(page.get_by_role("heading", name=readable(name), exact=True)).to_be_visible()
    # Nobody has to write the same value twice.
    expect(page.locator("#call-form").get_by_role("textbox")).to_have_count(1)
    # The page says how to ask for the new tool, and how assistants see it.
    made = page.locator(".made")
    expect(made).to_contain_text(f"mcp__ideabridge__{name}")
    expect(made.locator("blockquote")).to_contain_text("customer c")


def test_a_suggestion_with_doubts_is_reviewed_first(http: httpx.Client) -> None:
    for customer in ("c0", "c1", "c2"):
        calls = [
            ORDERS | {"customer": customer, "_outputPath": "orders"},
            {"_tool": "find_customer", "id": customer},
        ]
        ended(http, ask(http, *calls, output="†state.orders"))

    suggested = words_of(http.get("/ui/ideas?show=suggested").text)
    choice = "whether to return the result of Find customer, which no step uses."
    assert f"Still to choose: {choice} Review and make a tool" in suggested
    assert "Make it a tool" not in suggested


def test_a_draft_names_the_steps_whose_results_it_does_not_use(http: httpx.Client) -> None:
    calls = [
        ORDERS | {"_outputPath": "orders"},
        {"_tool": "compute", "code": "len(o)", "o": "†state.orders"},
        {"_tool": "find_customer", "id": "c1"},
    ]
    for output, unused in [
        ("†state.orders[0]", "Compute and Find customer"),
        ("†results.1", "Find"),
    ]:
        made = ask(http, *calls, output=output)
        ended(http, made)
        draft = words_of(http.get(f"/ui/ideas/publish?ref={made}").text)
        assert f"It does not use the result{'s' if ' and ' in unused else ''} of {unused}" in draft
