"""The output of a run, as a table, tree, Markdown or image, and a run beside an earlier one."""

from __future__ import annotations

import re
import time
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from ideabridge.bridge.store.store import Store
from ideabridge.server.ui.outputs import ShownTable, ValueTree, shown_output
from ideabridge.tools.encoding import JSON, JSONObject
from tests.ui.serving import ask, served, stranger

ORDERS = {"_tool": "list_orders", "customer": "c1", "_outputPath": "orders"}
MARKDOWN = "# Report\n\n- one **bold**\n- <b>two</b> [a](javascript:x) ![i](//e.org/i.png) &zwj;\n"


def ended(http: httpx.Client, run_id: str) -> str:
    """The page of a run that has ended."""
    while True:
        page = http.get(f"/ui/runs/{run_id}").text
        if re.search(r'<p class="facts">\s*<span class="status s-done">', page):
            return page


def result_in(page: str) -> str:
    return page.partition('<section id="result"')[2].partition("</section>")[0]


def test_a_list_of_objects_is_a_table_with_its_json(http: httpx.Client) -> None:
    result = result_in(ended(http, ask(http, ORDERS, output="†state.orders")))
    assert re.findall('<th scope="col"(?: class="number")?>(.*?)</th>', result) == [
        "id",
        "customer",
        "total",
    ]
    assert re.findall('<th scope="col" class="number">(.*?)</th>', result) == ["id", "total"]
    assert re.findall('data-label="total">(.*?)<', result) == ["10", "40"]
    assert "As JSON" in result
    # The words of the JSON are coloured.
    assert '"customer": "c1"' in unescape(re.sub("</?span[^>]*>", "", result))


def test_nested_values_are_a_tree(http: httpx.Client) -> None:
    output: dict[str, Any] = {"of": {"who": "<i>", "orders": "†state.orders"}, "count": 2}
    result = result_in(ended(http, ask(http, ORDERS, output=output)))
    assert '<dl class="tree"><dt>of</dt>' in result
    assert '<span class="leaf">&lt;i&gt;</span>' in result
    assert '<table class="sheet output">' in result


def test_markdown_is_formatted_and_hides_nothing(http: httpx.Client) -> None:
    result = result_in(ended(http, ask(http, ORDERS, output=MARKDOWN)))
    formatted = result.partition('class="card written-text">')[2].partition("</div>")[0]
    assert "<h3>Report</h3>" in formatted
    assert "<strong>bold</strong>" in formatted
    for tag in ("<b>", "<a ", "<img", 'javascript:x"'):
        assert tag not in formatted
    assert "[a](javascript:x) ![i](//e.org/i.png) &amp;zwj;" in formatted
    assert "<summary>Source</summary>" in result


def test_numbers_of_a_table_in_markdown_are_aligned(http: httpx.Client) -> None:
    text = "# Orders\n\n- one\n\n| item | total |\n|---|---|\n| Lamp | 49.00 |\n| Rug | 1,240 |\n"
    result = result_in(ended(http, ask(http, ORDERS, output=text)))
    assert result.count('<td class="number">') == 2
    assert '<th class="number">total</th>' in result
    assert "<td>Lamp</td>" in result


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (MARKDOWN, "markdown"),
        ("one\ntwo", "text"),
        ("# one line", "text"),
        ("- a\n- b\n- c\n- d", "markdown"),
        ("- a\n- b", "text"),
        (12, "text"),
        ([], "text"),
        ([{"a": 1}], "table"),
        ([{"a": 1}, 2], "tree"),
        ({"a": None}, "tree"),
    ],
)
def test_a_value_is_shown_by_its_kind(value: Any, kind: str) -> None:
    assert shown_output(value).kind == kind


def test_a_table_with_short_rows_stays_a_table_on_phones() -> None:
    short = shown_output([{"id": 1, "name": "ann"}, {"id": 2, "name": "bob"}]).part
    long = shown_output([{"id": 1, "name": "ann"}, {"id": 2, "name": "bob " * 20}]).part
    assert isinstance(short, ShownTable)
    assert isinstance(long, ShownTable)
    assert short.is_short
    assert not long.is_short


def test_hostile_values_make_small_pages_in_little_time() -> None:
    begun = time.process_time()
    objects: list[JSON] = [{f"m{n}": "x" * 1000 for n in range(1000)}] * 1000
    wide = shown_output(objects).part
    assert isinstance(wide, ShownTable)
    assert len(wide.columns) == 12
    assert len(str(wide.rows)) < 100_000
    assert wide.omitted_rows == 1000 - len(wide.rows)

    nested: Any = 1
    for _ in range(100):
        nested = {"a": nested, "rows": [{"b": "x" * 500}] * 500}
    tree = shown_output(nested).part
    assert isinstance(tree, ValueTree)
    assert len(str(tree)) < 200_000
    for unit in ("*", "**a", "> ", "|a|b|\n|-|-|\n", "[", "\u202e\n# a\n"):
        shown = shown_output("# a\n```\n```\n" + unit * 5000)
        assert "\u202e" not in shown.html
    assert time.process_time() - begun < 10


def test_an_image_alone_has_no_tree_beside_it() -> None:
    image: JSONObject = {"type": "image", "mimeType": "image/png", "data": "104 characters"}
    assert shown_output(image).kind == "images"
    assert shown_output([image, image]).kind == "images"
    assert shown_output([image, {"type": "text", "text": "a note"}]).kind == "table"
    assert shown_output({"photo": image}).kind == "tree"
    assert shown_output([]).kind == "text"


def test_the_page_of_an_image_folds_what_the_image_consists_of(http: httpx.Client) -> None:
    run_id = ask(http, {"_tool": "photograph", "order": 1})
    ended(http, run_id)
    page = http.get(f"/ui/runs/{run_id}/calls/0").text
    assert '<img class="result' in page
    assert "<dt>mimeType</dt>" not in page
    assert "<summary>As JSON</summary>" in page


def test_an_image_in_the_output_is_shown_to_whom_may_see_the_run(tmp_path: Path) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        tokens = {
            name: store.users.add_token(store.users.add(name, "member").name)[1]
            for name in ("ann", "bob")
        }
    with served(tmp_path) as url, stranger(url) as ann, stranger(url) as bob:
        ann.post("/ui/sign-in", data={"token": tokens["ann"]})
        bob.post("/ui/sign-in", data={"token": tokens["bob"]})
        run_id = ask(ann, {"_tool": "photograph", "order": 1}, output={"photo": "†results.0"})
        [address] = re.findall('src="(/ui/runs/[^"]+/images/0)"', result_in(ended(ann, run_id)))
        image = ann.get(address)
        assert image.headers["content-type"] == "image/png"
        assert image.content.startswith(b"\x89PNG")
        assert ann.get(address.replace("/0", "/1")).status_code == 404
        assert ann.get(address.replace("/0", "/x")).status_code == 404

        # Nobody else finds out that the run exists.
        own = ask(bob, ORDERS, output="†state.orders")
        ended(bob, own)
        for path in (
            address,
            f"/ui/runs/{run_id}/compare",
            f"/ui/runs/{own}/compare?with={run_id}",
        ):
            refused = bob.get(path)
            absent = bob.get(path.replace(run_id, "run_0000000000000000"))
            assert refused.status_code == absent.status_code == 404, path
            assert refused.text.replace(run_id, "") == absent.text.replace(
                "run_0000000000000000", ""
            )


def test_a_run_beside_an_earlier_one(http: httpx.Client) -> None:
    person = {"_tool": "find_customer", "id": "c1", "_outputPath": "who"}
    before = ask(http, ORDERS, person, output="†state.orders", name="look")
    ended(http, before)
    now = ask(http, ORDERS | {"customer": "c2"}, person, output="†state.orders", name="look")
    assert f'href="/ui/runs/{now}/compare"' in ended(http, now)

    page = unescape(http.get(f"/ui/runs/{now}/compare").text)
    # Runs are named after the input in which they differ.
    assert f'<option value="{before}" selected>customer c1, ' in page
    changed = _then_and_now("<del>c1</del>", "<ins>c2</ins>")
    assert f'<th scope="row">customer</th>{changed}' in page
    # The exact values of all that differs are at the end.
    assert page.count("<summary>As JSON</summary>") == 1
    # Each column has the name of its run.
    assert '<th scope="col">customer c1</th><th scope="col">customer c2</th>' in page
    assert "<summary>1 parameter differs: customer; " in page
    words = " ".join(re.sub("<[^>]*>", "", page).split())
    assert "The outputs differ. 1 of 2 calls differs: customer is c2 instead of c1." in words
    assert '<span class="minus">-  "customer": "c1"</span>' in page
    assert '<span class="plus">+  "customer": "c2"</span>' in page
    assert page.count('<tr class="is-same">') == 1

    third = ask(http, ORDERS | {"customer": "c2"}, output="†state.orders", name="look")
    ended(http, third)
    page = http.get(f"/ui/runs/{third}/compare?with={now}").text
    assert "1 of 2 calls differs" in page
    assert "The outputs are the same." in page
    assert "other run only" in page

    alone = ask(http, ORDERS, name="another title")
    ended(http, alone)
    assert "No earlier run has this title" in http.get(f"/ui/runs/{alone}/compare").text


def test_fields_of_the_output_that_differ_are_a_table(http: httpx.Client) -> None:
    before = ask(http, ORDERS, output={"who": {"name": "Ann"}, "total": 60.0}, name="sum")
    ended(http, before)
    now = ask(http, ORDERS, output={"who": {"name": "Ann"}, "total": 50, "late": True}, name="sum")
    ended(http, now)

    page = http.get(f"/ui/runs/{now}/compare").text
    assert "The outputs differ." in page
    table = page.partition('<table class="sheet compared">')[2].partition("</table>")[0]
    rows = re.findall(r'<th scope="row">([^<]*)</th>(.*?)</tr>', table)
    assert rows == [
        ("total", _then_and_now("<del>60</del>", "<ins>50</ins>")),
        ("late", _then_and_now("", "<ins>true</ins>")),
    ]
    assert "Output" in page.partition("<summary>As JSON</summary>")[2]


def test_only_the_words_that_differ_are_marked(http: httpx.Client) -> None:
    for text in ("Pay 20 euros back to Ann", "Pay 50 euros back to Ann"):
        now = ask(http, ORDERS, output={"note": text, "total": text[4:6]}, name="pay")
        ended(http, now)

    page = http.get(f"/ui/runs/{now}/compare").text
    note = _then_and_now(
        "<del>Pay <mark>20</mark> euros back to Ann</del>",
        "<ins>Pay <mark>50</mark> euros back to Ann</ins>",
    )
    assert note in page
    # If everything differs, nothing stands out.
    assert _then_and_now("<del>20</del>", "<ins>50</ins>") in page
    # What the comparison found comes before what is compared.
    assert page.index("The outputs differ.") < page.index("Compare with <select")


def _then_and_now(then: str, now: str) -> str:
    """The cells of a field that differs."""
    return f"<td>{then}</td><td>{now}</td>"


def test_large_runs_are_compared_in_a_worker(http: httpx.Client) -> None:
    def plan(first: int) -> list[dict[str, Any]]:
        return [
            {"_tool": "compute", "code": "a + 1", "a": first if n == 0 else n} for n in range(120)
        ]

    before = ask(http, *plan(0), name="many")
    ended(http, before)
    now = ask(http, *plan(5), name="many")
    ended(http, now)
    page = http.get(f"/ui/runs/{now}/compare").text
    assert "calls differs" in page
    assert "40 more calls not compared" in page


def test_columns_that_have_only_numbers_are_known() -> None:
    table = shown_output([{"a": 1, "b": True, "c": "1", "d": None}, {"a": 2.5, "d": 2}]).part
    assert isinstance(table, ShownTable)
    assert table.columns == ("a", "b", "c", "d")
    assert table.number_columns == {0}


def test_numbers_in_a_tree_have_equally_many_decimals(http: httpx.Client) -> None:
    price = {"id": 7, "net": 320.0, "tax": 60.8, "parts": [1, 2.5]}
    page = result_in(ended(http, ask(http, ORDERS, output=price)))
    leaves = re.findall(r'<span class="leaf">([^<]+)</span>', page)
    assert leaves == ["7", "320.00", "60.80", "1", "2.50"]
    # The exact values are below.
    assert "320.0" in page.partition("As JSON")[2]
    tiles = result_in(ended(http, ask(http, ORDERS, output={"total": 320.0, "item": "Chair"})))
    assert '<span class="leaf">320</span>' in tiles
    assert ">320<" in result_in(ended(http, ask(http, ORDERS, output=320.0)))
