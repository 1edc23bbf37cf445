"""The picture of a run: that of the README is drawn by the page, from a run of the demo's plan."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

from playwright.sync_api import Browser

from ideabridge.server.ui.readable_names import readable
from tests.ui.picture import GRAPHS, PICTURE, PLAN, badges, drawn, graph, keep, stills, words

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
    plan = json.loads(PLAN.read_text(encoding="utf-8"))
    calls = [readable(call["_tool"]) for call in plan["calls"]]
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


def test_a_picture_is_written_only_if_its_words_differ(tmp_path: Path) -> None:
    path = tmp_path / "page.svg"
    stored = "<svg><text>run_12ab took 5 ms</text></svg>"
    keep(path, stored)
    keep(path, "<svg><text>run_98cd took 7 ms</text></svg>")
    assert path.read_text(encoding="utf-8") == stored

    other = "<svg><text>run_98cd failed after 7 ms</text></svg>"
    keep(path, other)
    assert path.read_text(encoding="utf-8") == other


def test_the_pictures_of_pages_are_those_of_the_pages(browser: Browser, tmp_path: Path) -> None:
    for name, text in stills(browser, tmp_path).items():
        kept = (PICTURE.parent / f"{name}.svg").read_text(encoding="utf-8")
        assert words(kept) == words(text), (
            f"{name}: draw it again with `python -m tests.ui.picture`"
        )
        for foreign in ("<script", 'name="secret"', "http://127", "href="):
            assert foreign not in kept
