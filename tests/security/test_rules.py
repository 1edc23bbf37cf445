"""Rules hold whatever name a tool is reached by, and hold for direct calls too. Each direct
call is recorded.
"""

from typing import Any

import pytest

from ideabridge.bridge.loop.policy import direct_policy, policy_named
from ideabridge.bridge.modules.listing import is_allowed
from ideabridge.bridge.modules.settings import ModuleConfiguration
from ideabridge.tools.tool import Annotations, Tool


def tool(name: str, module: str | None = "Git", **told: Any) -> Tool:
    return Tool(name=name, description="", parameters={"type": "object"}, module=module, **told)


def verdict(one: Tool, *rules: dict[str, Any], default: str = "allow") -> str:
    setting: Any = {"rules": [dict(rule) for rule in rules], "default": default}
    return policy_named(setting)(one, {}).verdict


NAMES = [
    tool("Delete_Repo"),
    tool("delete_repo"),
    tool("DELETE_REPO"),
    tool("ｄｅｌｅｔｅ_repo"),
    tool("délete_repo"),
    tool("delete\u200b_repo"),
    tool("deleteRepo"),
    tool("delete-repo"),
    tool("wipe", remote_name="Delete_Repo"),
]


@pytest.mark.parametrize("one", NAMES, ids=lambda one: one.name.encode("unicode_escape").decode())
@pytest.mark.parametrize(
    "pattern",
    ["Delete_*", "delete_repo", "ＤＥＬＥＴＥ_*", "git.*", "git_delete_repo", "GIT/[C-E]*"],
)
@pytest.mark.parametrize("then", ["ask", "deny"])
def test_a_rule_that_restricts_holds_for_every_name_of_a_tool(
    one: Tool, pattern: str, then: str
) -> None:
    assert verdict(one, {"tool": pattern, "then": then}) == then
    assert verdict(one, {"module": "gIT", "tool": pattern, "then": then}) == then
    assert verdict(one, {"module": "other", "tool": pattern, "then": then}) == "allow"
    assert verdict(tool("commit", module="hub"), {"tool": pattern, "then": then}) == "allow"


@pytest.mark.parametrize("one", NAMES, ids=lambda one: one.name.encode("unicode_escape").decode())
def test_a_rule_that_allows_holds_only_as_it_is_written(one: Tool) -> None:
    for pattern in ("Delete_Repo", "delete_repo", "git.*", "Git.*", "git_*"):
        # A tool's name at its own module could also be the name of a tool of another module.
        written = pattern == one.name
        assert verdict(one, {"tool": pattern, "then": "allow"}, default="deny") == (
            "allow" if written else "deny"
        )
    assert verdict(one, {"module": "git", "then": "allow"}, default="deny") == "deny"
    assert verdict(one, {"module": "Git", "then": "allow"}, default="deny") == "allow"


def test_a_rule_that_holds_only_by_another_name_never_makes_a_verdict_milder() -> None:
    lower = {"tool": "delete_*", "then": "ask"}
    upper = {"tool": "Delete_*", "then": "deny"}
    assert verdict(tool("Delete_x"), lower, upper) == "deny"
    # Rules that match exactly decide in their order, so the first one counts.
    assert verdict(tool("delete_x"), lower, upper) == "ask"
    assert (
        verdict(
            tool("delete_x"),
            {"tool": "Delete_*", "then": "deny"},
            {"tool": "delete_x", "then": "allow"},
        )
        == "deny"
    )
    assert (
        verdict(
            tool("delete_x"),
            {"tool": "delete_x", "then": "allow"},
            {"tool": "Delete_*", "then": "deny"},
        )
        == "allow"
    )
    assert verdict(tool("Delete_x"), lower, default="deny") == "deny"
    assert verdict(tool("Delete_x"), lower, default="allow") == "ask"


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("default", "allow"),
        ("allow_all", "allow"),
        ({"default": "read_only", "rules": []}, "allow"),
        ({"default": "allow", "rules": []}, "allow"),
        ({"default": "ask", "rules": []}, "ask"),
        ({"default": "deny", "rules": []}, "deny"),
        ({"default": "deny", "rules": [{"tool": "wipe", "then": "allow"}]}, "allow"),
        ({"rules": [{"destructive": True, "then": "ask"}]}, "ask"),
        ({"rules": [{"tool": "git_wipe_123abc", "then": "deny"}]}, "deny"),
        ({"default": "deny", "rules": [{"tool": "git_wipe_123abc", "then": "allow"}]}, "deny"),
    ],
)
def test_rules_of_direct_calls(setting: Any, expected: str) -> None:
    one = tool("wipe", annotations=Annotations(destructive=True))
    assert direct_policy(setting, "git_wipe_123abc")(one, {}).verdict == expected


@pytest.mark.parametrize("name", [one.name for one in NAMES if one.remote_name is None])
def test_what_a_module_denies_is_denied_by_every_name_and_what_it_allows_as_written(
    name: str,
) -> None:
    for pattern in ("Delete_*", "git.delete_*", "GIT_*", "ｄelete_repo"):
        assert not is_allowed("Git", name, ModuleConfiguration(command="x", deny=(pattern,)))
        assert is_allowed("hub", name, ModuleConfiguration(command="x", deny=("push_*", "git.*")))
    assert is_allowed("Git", name, ModuleConfiguration(command="x", allow=("Delete_Repo",))) == (
        name == "Delete_Repo"
    )
