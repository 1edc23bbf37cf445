"""The picture of a run: that of the README is drawn by the page, from a run of the demo's plan."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

from playwright.sync_api import Browser

from tests.ui.picture import GRAPHS, PICTURE, PLAN, badges, drawn, graph, stills

SVG = "{http://www.w3.org/2000/svg}"


def names(text: str) -> list[str]:
    """The names of the calls in a picture, from top to bottom."""
    root = ET.fromstring(text)
    return [
        one.text or ""
        for one in root.iter(f"{SVG}text")
        if one.get("x") == "16" and one.get("class") is None
    ]


def test_the_picture_of_the_readme_is_that_of_the_demo(tmp_path: Path) -> None:
    calls = [call["_tool"] for call in json.loads(PLAN.read_text(encoding="utf-8"))["calls"]]
    new = drawn(tmp_path)
    kept = PICTURE.read_text(encoding="utf-8")
    assert names(new) == names(kept) == calls
    for text in (new, kept):
        assert "<script" not in text
        assert text.count('class="done"') == len(calls)


def test_the_graphs_of_the_documentation_are_those_of_the_code() -> None:
    for name, parts in GRAPHS.items():
        assert (PICTURE.parent / f"{name}.svg").read_text(encoding="utf-8") == graph(*parts)
    assert (PICTURE.parent / "badges.svg").read_text(encoding="utf-8") == badges()


def words(text: str) -> str:
    """What a picture of a page says, without what differs each time: ids, times, and which
    call ended last.
    """
    root = ET.fromstring(text)
    for above in list(root.iter()):
        if "chart" in above.get("class", "").split():
            # The days of a chart are those of this week.
            for part in above.iter():
                part.text = ""
        for one in list(above):
            kinds = one.get("class", "").split()
            if one.tag.endswith(("}style", "}title")) or (
                "dim" in kinds and one.tag.endswith("}span")
            ):
                one.text = ""
                one[:] = []

    said = " ".join(" ".join(root.itertext()).split())
    # Which calls have ended when the picture is taken depends on how fast they are.
    said = re.sub(r"Since it was asked, [^.]*\.", "Since it was asked, #.", said)
    said = said.replace("just now", "0 s ago")
    return re.sub(r"run_[0-9a-f]+|\d[\d.,]*( ms| s| min)?", "#", said)


def test_the_pictures_of_pages_are_those_of_the_pages(browser: Browser, tmp_path: Path) -> None:
    for name, text in stills(browser, tmp_path).items():
        kept = (PICTURE.parent / f"{name}.svg").read_text(encoding="utf-8")
        assert words(kept) == words(text), (
            f"{name}: draw it again with `python -m tests.ui.picture`"
        )
        for foreign in ("<script", 'name="secret"', "http://127", "href="):
            assert foreign not in kept
