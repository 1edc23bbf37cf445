"""Digests of tools: those of the definitions that modules send, before anything in
them is repaired.
"""

import copy
import json
from typing import Any

import pytest
from mcp_types import ListToolsResult, methods

from ideabridge.bridge.modules.listing import make_listing
from ideabridge.bridge.modules.oddities import Oddities
from ideabridge.bridge.modules.repairs import repair_result
from ideabridge.bridge.modules.settings import ModuleConfiguration
from ideabridge.tools.tool import Tool

from .definitions import DEFINITIONS, DIGESTS


def listed(definition: dict[str, Any], version: str = "2025-11-25") -> Tool | None:
    """The tool that a module with this definition has."""
    page: Any = repair_result(
        "tools/list", version, {"tools": [copy.deepcopy(definition)]}, Oddities()
    )
    result = methods.parse_server_result("tools/list", version, page)
    assert isinstance(result, ListToolsResult)
    tools = make_listing("m", result.tools, ModuleConfiguration(command="x")).tools
    return next(iter(tools.values()), None)


def tool_of(**members: Any) -> Tool:
    tool = listed({**DEFINITIONS["plain"], **members})
    assert tool is not None
    return tool


@pytest.mark.parametrize("name", DIGESTS)
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_no_pinned_tool_blocks(name: str, version: str) -> None:
    tool = listed(DEFINITIONS[name], version)
    assert tool is not None
    assert (tool.digest, tool.prose_digest) == DIGESTS[name]
    stored = Tool.from_json(json.loads(json.dumps(tool.to_json())))
    assert stored.digest == tool.digest


@pytest.mark.parametrize("word", ["true", "yes", 1, 1.0, "on"])
def test_a_word_for_true_is_no_hint_and_keeps_its_digest(word: Any) -> None:
    odd = tool_of(annotations={"readOnlyHint": word})
    assert odd.annotations.read_only is None
    assert odd.digest == tool_of(annotations={"readOnlyHint": True}).digest


def test_a_repaired_definition_has_the_digest_of_no_other() -> None:
    definitions: dict[str, dict[str, Any]] = {
        "none": {},
        "true": {"annotations": {"readOnlyHint": True}},
        "null": {"annotations": {"readOnlyHint": None}},
        "odd": {"annotations": {"readOnlyHint": "perhaps"}},
        "other": {"annotations": {"readOnlyHint": ["perhaps"]}},
        "beside": {"annotations": {"readOnlyHint": "perhaps", "destructiveHint": True}},
        "elsewhere": {"annotations": {"destructiveHint": "perhaps"}},
    }
    digests = {name: tool_of(**members).digest for name, members in definitions.items()}
    assert digests.pop("null") == digests["none"]
    assert len(set(digests.values())) == len(digests)


@pytest.mark.parametrize("odd", [{"icons": 5}, {"title": 5}, {"_meta": []}, {"execution": "x"}])
def test_what_is_no_part_of_the_essence_changes_no_digest(odd: dict[str, Any]) -> None:
    hints = {"annotations": {"readOnlyHint": True}}
    assert tool_of(**hints, **odd).digest == tool_of(**hints).digest
