"""The picture of a run: that of the README is drawn by the page, from a run of the demo's plan."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.ui.picture import GRAPHS, PICTURE, PLAN, drawn, graph

SVG = "{http://www.w3.org/2000/svg}"


def names(text: str) -> list[str]:
    """The names of the calls in a picture, from top to bottom."""
    root = ET.fromstring(text)
    return [one.text or "" for one in root.iter(f"{SVG}text") if one.get("x") == "16" and one.get("class") is None]


def test_the_picture_of_the_readme_is_that_of_the_demo(tmp_path: Path) -> None:
    calls = [call["_tool"] for call in json.loads(PLAN.read_text(encoding="utf-8"))["calls"]]
    new, kept = drawn(tmp_path), PICTURE.read_text(encoding="utf-8")
    assert names(new) == names(kept) == calls
    for text in (new, kept):
        assert "<script" not in text
        assert text.count('class="done"') == len(calls)


def test_the_graphs_of_the_documentation_are_those_of_the_code() -> None:
    for name, parts in GRAPHS.items():
        assert (PICTURE.parent / f"{name}.svg").read_text(encoding="utf-8") == graph(*parts)
