"""Readable names: pages show the names of tools in words, and the names themselves below them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from ideabridge.server.ui.readable_names import readable, title_in_words, tool_title
from ideabridge.tools.tool import Annotations, Tool
from tests.ui.serving import ask


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("find_customer_and_mail", "Find customer and mail"),
        ("read-file", "Read file"),
        ("getURLForPage", "Get URL for page"),
        ("list_PRs", "List PRs"),
        ("getPRs", "Get PRs"),
        ("GitHub_search", "GitHub search"),
        ("files.read", "Files read"),
        ("sha256", "Sha256"),
        ("save", "Save"),
        ("HTTP_GET", "HTTP GET"),
        ("größte_bestellung", "Größte bestellung"),
        ("Orders of c2", "Orders of c2"),
        ("_hidden", "_hidden"),
        ("2 of 3", "2 of 3"),
        ("", ""),
    ],
)
def test_a_name_in_words(name: str, words: str) -> None:
    assert readable(name) == words


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("largest_order", "Largest order"),
        ("list_orders + find_customer", "List orders, find customer"),
        ("a_1 + b + c + d + e", "A 1, b, c and 2 more"),
        ("program: list_orders + refund", "Program: list orders, refund"),
        ("Who is customer c0?", "Who is customer c0?"),
        ("re-run the check", "re-run the check"),
    ],
)
def test_a_title_that_names_tools_in_words(title: str, words: str) -> None:
    assert title_in_words(title) == words


def test_a_tool_has_its_own_title_first() -> None:
    parameters: dict[str, Any] = {"type": "object"}
    plain = Tool("create_issue", "", parameters)
    titled = Tool("create_issue", "", parameters, annotations=Annotations(title="Open a ticket"))
    assert tool_title(plain) == "Create issue"
    assert tool_title(titled) == "Open a ticket"


def test_lists_show_the_words_and_the_name_below_them(http: httpx.Client) -> None:
    ask(http, {"_tool": "list_orders"}, {"_tool": "find_customer", "id": "c0"})
    page = http.get("/ui/runs").text
    assert ">List orders, find customer</a>" in page
    assert '<code class="code-name">list_<wbr>orders + find_<wbr>customer</code>' in page
    assert "List orders, find customer" in http.get("/ui/runs?words=list%20orders").text

    # Nothing is shown twice if only the capital letter differs.
    tools = http.get("/ui/ideas?show=built-in").text
    assert "<b>Compute</b>" in tools
    assert 'class="code-name">compute<' not in tools
