"""The graph of a run: boxes in columns, with arrows that run through no box."""

from __future__ import annotations

import re
from collections.abc import Sequence

import httpx
import pytest
from playwright.sync_api import Page

from ideabridge.server.ui.drawing import Arrow, Box, Drawing, place_boxes
from ideabridge.server.ui.stages import in_order, stages_of
from ideabridge.server.views.trace import CallBar, Trace
from tests.ui.serving import ask
from tests.ui.test_runs import ORDERS, ended

PERSON = {"_tool": "find_customer", "id": "c1", "_outputPath": "who"}
COUNTED = {"_tool": "compute", "code": "len(all)", "all": "†results.0"}
REFUND = {"_tool": "refund", "order": "†results.2", "amount": 5}


def drawn(arrows: str, stages: Sequence[str] = (), inputs: str = "") -> Drawing:
    """A drawing of boxes with one letter each, and arrows such as `a>b`."""
    pairs = [(arrow[0], arrow[2]) for arrow in arrows.split()]
    keys = dict.fromkeys([*"".join(stages), *(key for pair in pairs for key in pair)])
    boxes = [Box(key, key, status="given" if key in inputs else "done") for key in keys]
    return place_boxes(boxes, [Arrow(*pair, "data") for pair in pairs], stages)


def columns(drawing: Drawing) -> list[str]:
    """The keys of the boxes in each column, from left to right."""
    places = sorted({box.x for box in drawing.nodes})
    return [
        "".join(sorted(box.node.key for box in drawing.nodes if box.x == place)) for place in places
    ]


def test_calls_that_started_together_share_a_column() -> None:
    # `b` is only needed by `d`, but it started together with `a`.
    assert columns(drawn("a>c c>d b>d", ["ab", "c"])) == ["ab", "c", "d"]
    # A later stage is further to the right, even if it needs nothing of the earlier one.
    assert columns(drawn("a>c", ["a", "b", "c"])) == ["a", "b", "c"]
    assert columns(drawn("a>c", ["ab", "c"])) == ["ab", "c"]


def test_an_input_is_beside_the_first_call_that_reads_it() -> None:
    assert columns(drawn("a>b b>c i>c", inputs="i")) == ["a", "bi", "c"]
    assert columns(drawn("i>b a>c", ["ab"], inputs="i")) == ["i", "ab", "c"]


def test_no_arrow_runs_through_a_box() -> None:
    drawing = drawn("a>b b>c c>d a>d a>c")
    width, height = drawing.box
    for arrow, path in drawing.edges:
        y_of_lanes = [int(y) for y in re.findall(r" (\d+) H", path)]
        between = 1 if (arrow.source, arrow.target) != ("a", "d") else 2
        assert len(y_of_lanes) == (between if arrow.target in "cd" and arrow.source == "a" else 0)
        for box in drawing.nodes:
            assert not any(box.y <= y <= box.y + height for y in y_of_lanes if box.x > width)


def test_stages_are_told_in_the_order_in_which_calls_began() -> None:
    trace = Trace(
        bars=[
            CallBar(0, "asked", {}, asked=13.0),
            CallBar(1, "third", {}, started=12.0, finished=13.0),
            CallBar(2, "second", {}, started=10.1, finished=14.0),
            CallBar(3, "not run", {}),
            CallBar(4, "first", {}, started=10.0, finished=11.0),
        ]
    )
    stages = stages_of(trace.bars)
    assert [[bar.name for bar in stage] for stage in stages] == [["second", "first"], ["third"]]
    assert [bar.name for bar in in_order(trace)] == ["second", "first", "third", "asked", "not run"]

    # Many calls are in the order in which they were listed.
    trace.bars += [CallBar(number, "many", {}, started=0.0, event=1) for number in (5, 6)]
    assert [bar.number for bar in in_order(trace)] == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("width", [390, 500, 1280])
def test_the_graph_begins_at_the_left_unless_a_call_would_be_out_of_sight(
    page: Page, site: str, http: httpx.Client, width: int
) -> None:
    calls = (ORDERS, PERSON, COUNTED)
    done = ask(http, *calls, {**COUNTED, "all": "†state.who"})
    ended(http, done)
    asking = ask(http, *calls, REFUND)
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{site}runs/{done}")
    graph = page.locator("#graph .scroll")
    assert graph.evaluate("(graph) => graph.scrollLeft") == 0

    page.goto(f"{site}runs/{asking}")
    call = graph.locator(".s-asking").bounding_box()
    frame = graph.bounding_box()
    assert call is not None
    assert frame is not None
    beyond = frame["x"] + frame["width"] - call["x"] - call["width"]
    scrolled = graph.evaluate("(graph) => graph.scrollLeft")
    # It scrolls no further than until the call is visible, and not on a phone, where half of the
    # graph would be out of sight. There, the call itself is above the graph.
    assert (scrolled > 0) == (width == 500)
    if scrolled:
        assert beyond == pytest.approx(8, abs=1)
    elif width > 500:
        assert beyond > 0


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_words_of_a_graph_can_be_read(
    page: Page, site: str, http: httpx.Client, width: int
) -> None:
    narrow = ask(http, ORDERS, COUNTED)
    chain = [{**COUNTED, "all": f"†results.{number}"} for number in range(7)]
    wide = ask(http, ORDERS, *chain)
    page.set_viewport_size({"width": width, "height": 800})
    for run_id in (narrow, wide):
        ended(http, run_id)
        page.goto(f"{site}runs/{run_id}")
        heights = page.locator("#graph text").evaluate_all(
            "(texts) => texts.map((text) =>"
            " parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)"
        )
        assert min(heights) >= 11
        # Only the graph itself scrolls.
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_graph_explains_only_the_arrows_that_it_has(http: httpx.Client) -> None:
    assert "dotted arrow" not in ended(http, ask(http, ORDERS, COUNTED))
    first = {**ORDERS, "_id": "first"}
    # The second call waits for the first one, but reads nothing from it.
    page = ended(http, ask(http, first, {**PERSON, "_after": ["first"]}))
    assert "A dotted arrow says only that one waits for the other." in page
