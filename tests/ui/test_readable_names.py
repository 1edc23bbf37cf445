"""Readable names: pages show the names of tools in words, and the names themselves where they say
more than the words.
"""

from __future__ import annotations

import httpx
import pytest

from ideabridge.server.ui.readable_names import is_spelling_of, readable, title_in_words
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


@pytest.mark.parametrize(
    ("name", "title", "is_spelling"),
    [
        ("largest_order", "Largest order", True),
        ("largest-order", "Largest order", True),
        ("list_orders + find_customer", "List orders, find customer", True),
        ("a_1 + b + c + d + e", "A 1, b, c and 2 more", True),
        ("find_customer", "Find a customer", False),
        ("delete_all", "List files", False),
    ],
)
def test_a_name_that_says_nothing_beside_its_title(
    name: str, title: str, *, is_spelling: bool
) -> None:
    assert is_spelling_of(name, title) is is_spelling


def test_lists_show_the_words_and_the_name_as_their_tooltip(http: httpx.Client) -> None:
    ask(http, {"_tool": "list_orders"}, {"_tool": "find_customer", "id": "c0"})
    page = http.get("/ui/runs").text
    assert ">List orders, find customer</a>" in page
    assert 'title="list_orders + find_customer">List orders, find customer</a>' in page
    assert 'class="code-name"' not in page
    assert "List orders, find customer" in http.get("/ui/runs?words=list%20orders").text

    # Nothing is shown twice if only the capital letter differs.
    tools = http.get("/ui/ideas?show=built-in").text
    assert "<b>Compute</b>" in tools
    assert 'class="code-name">compute<' not in tools
