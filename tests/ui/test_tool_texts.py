"""Tool texts: what a tool does, and what a person could ask for."""

from __future__ import annotations

import pytest

from ideabridge.server.ui.tool_texts import about_tool, opening_sentence, request_with
from ideabridge.tools.builtins import builtin_toolbox


@pytest.mark.parametrize(
    ("sentence", "values", "request_"),
    [
        (
            "Find the largest order of a customer",
            {"customer": "c0"},
            "Find the largest order of customer c0",
        ),
        ("Refund the order id", {"order_id": "7"}, "Refund order id 7"),
        ("List a customer's orders", {"customer": "c0"}, "List a customer's orders: customer c0"),
        ("Add tax", {"net": r"\1", "rate": "19"}, r"Add tax: net \1, rate 19"),
    ],
)
def test_a_value_stands_beside_its_name(
    sentence: str, values: dict[str, str], request_: str
) -> None:
    assert request_with(sentence, values) == request_


def test_each_built_in_tool_has_a_sentence_for_people() -> None:
    # The description of a built-in tool is for assistants.
    for tool in builtin_toolbox():
        assert about_tool(tool) != opening_sentence(tool.description)
