"""Names of exposed tools: within limits, one tool each, and the same in whatever order
modules come up.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from ideabridge.bridge.offer.tool_names import offered_tools
from ideabridge.server.catalogue import MAX_EXPOSED, exposed_names
from ideabridge.server.own_tools import OWN_NAMES
from ideabridge.tools.tool import Tool
from ideabridge.tools.toolbox import Toolbox

LONG = "list_all_the_open_pull_requests_of_a_repository_by_"
NAMES = st.one_of(
    st.sampled_from(
        [
            "search",
            "Search",
            "search-",
            "sEARCH",
            "日本",
            "中国",
            "🙂",
            "run_plan",
            "tool",
            "a_search",
            "café",
        ]
    ),
    st.sampled_from(["author", "date", "label", "author_2"]).map(lambda end: LONG + end),
    st.text(min_size=1, max_size=80).filter(str.isprintable),
)
MODULES = st.sampled_from(["a", "b", "a-very-long-name-of-a-server-that-somebody-wrote", "日"])
TOOLS = st.lists(st.tuples(MODULES, NAMES), max_size=30, unique=True)


def nobody(_name: str, _tool: Tool) -> bool:
    return False


def own(name: str, _tool: Tool) -> bool:
    return name in OWN_NAMES


def named(
    pairs: list[tuple[str, str]], is_taken: Callable[[str, Tool], bool] = own
) -> dict[tuple[str | None, str], str]:
    """The names by module and the name there, as the server gives them."""
    tools = offered_tools(Toolbox(), [Tool(name, module=module) for module, name in pairs])
    names = exposed_names(tools, is_taken)
    whose = [(tool.module, tool.name_in_module) for tool in tools]
    return dict(zip(whose, names, strict=True))


@given(TOOLS)
def test_names_are_safe_short_and_unique(pairs: list[tuple[str, str]]) -> None:
    names = list(named(pairs).values())
    assert len(names) == len(pairs) == len(set(names))
    for name in names:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name), name
        assert len(f"mcp__ideabridge__{name}") <= 60
        assert name not in OWN_NAMES


@given(TOOLS.flatmap(lambda pairs: st.tuples(st.just(pairs), st.permutations(pairs))))
def test_names_do_not_depend_on_who_came_first(
    both: tuple[list[tuple[str, str]], list[tuple[str, str]]],
) -> None:
    one, other = both
    assert named(one) == named(other)


@given(TOOLS, st.tuples(MODULES, NAMES))
def test_a_tool_that_comes_takes_no_name_of_another(
    pairs: list[tuple[str, str]], new: tuple[str, str]
) -> None:
    before = named(pairs)
    given_to = {name: whose for whose, name in before.items()}

    def taken(name: str, tool: Tool) -> bool:
        return name in OWN_NAMES or given_to.get(name, (tool.module, tool.name_in_module)) != (
            tool.module,
            tool.name_in_module,
        )

    after = named([*pairs, new] if new not in pairs else pairs, taken)
    for whose, name in after.items():
        assert given_to.get(name, whose) == whose


def test_names_that_differ_by_case_do_not_depend_on_who_came_first() -> None:
    tools = [("a", "search"), ("b", "search"), ("a", "Search"), ("b", "Search")]
    assert all(named([*order]) == named(tools) for order in permutations(tools))


def test_names_keep_what_they_can() -> None:
    tools = [
        ("git", "git_status"),
        ("web", "openPage"),
        ("web", "日本"),
        ("git", "push-all"),
        ("web", "push_all"),
    ]
    names = named(tools, nobody)
    assert list(names.values()) == [
        "git_status",
        "open_page",
        "web_tool",
        "git_push_all",
        "web_push_all",
    ]


def test_long_names_stay_apart_and_say_what_they_are() -> None:
    names = named([("hub", LONG + end) for end in ("author", "date")], nobody)
    one, other = names.values()
    assert one != other
    assert len(one) == len(other) == MAX_EXPOSED
    assert one.startswith("list_all_the_open_pull_requests")
    # A tool has the same name whether or not the other one is listed.
    assert list(named([("hub", LONG + "date")], nobody).values()) == [other]


def test_tools_of_this_process_go_before_those_of_modules() -> None:
    assert exposed_names([Tool("find", module="web"), Tool("find")], nobody) == ["web_find", "find"]
