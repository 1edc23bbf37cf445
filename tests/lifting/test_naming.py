"""Names of parameters and tools: what they fill tells them apart, and a number only what
nothing else does.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge.lifting.naming import (
    Filled,
    first_sentence,
    has_word,
    parameter_names,
    tool_name,
)
from ideabridge.tools.encoding import JSON
from ideabridge.tools.names import safe_name


def path(tool: str, value: JSON, key: str = "path") -> Filled:
    return Filled(tool, (key,), value)


def test_a_parameter_has_the_name_of_what_it_fills() -> None:
    assert parameter_names([path("git_log", 10, "max_count"), path("git_log", "/w/repo")]) == [
        "max_count",
        "path",
    ]


def test_paths_of_one_tool_are_told_apart_by_the_files_and_folders_that_they_name() -> None:
    filled = [
        path("create_directory", "/home/ann/notes"),
        path("create_directory", "/home/ann/notes/old/"),
        path("write_file", "/home/ann/notes/Week Report.md"),
        path("write_file", "out.csv"),
    ]

    assert parameter_names(filled) == ["notes_folder", "old_folder", "week_report_file", "out_file"]


def test_the_words_of_a_path_parameter_stay_in_its_name() -> None:
    filled = [path("move", "/a/new.txt", "source_path"), path("move", "/b/old.txt", "source_path")]

    assert parameter_names(filled) == ["source_new_file", "source_old_file"]


def test_tools_tell_equal_names_apart() -> None:
    filled = [path("git_log", 10, "limit"), path("list_issues", 50, "limit")]

    assert parameter_names(filled) == ["git_log_limit", "list_issues_limit"]


def test_the_object_around_a_value_tells_it_apart() -> None:
    filled = [Filled("book", ("from", "city"), "Paris"), Filled("book", ("to", "city"), "Rome")]

    assert parameter_names(filled) == ["from_city", "to_city"]


def test_the_key_that_a_value_was_copied_from_tells_it_apart() -> None:
    filled = [
        Filled("get_user", ("id",), 4, ("issue", "owner")),
        Filled("get_user", ("id",), 5, ("comments", "0", "author")),
        Filled("get_user", ("id",), 6, ("team", "id")),
    ]

    assert parameter_names(filled) == ["owner_id", "author_id", "team_id"]


def test_the_file_of_a_call_tells_its_other_values_apart() -> None:
    filled = [
        Filled("write_file", (key,), value, call=call)
        for call, name in enumerate(["week", "todo"])
        for key, value in [("path", f"/w/{name}.md"), ("content", f"# {name}")]
    ]

    assert parameter_names(filled) == ["week_file", "week_content", "todo_file", "todo_content"]


def test_what_nothing_tells_apart_is_counted_in_words() -> None:
    filled = [path("forecast", city, "city") for city in ("Paris", "Rome", "Oslo")]

    assert parameter_names(filled) == ["first_city", "second_city", "third_city"]


def test_words_end_at_ten_and_numbers_go_on() -> None:
    names = parameter_names([path("forecast", number, "day") for number in range(12)])

    assert names[9:] == ["tenth_day", "day_11", "day_12"]


def test_counted_names_of_several_tools_say_whose_they_are() -> None:
    filled = [path(tool, value, "text") for tool in ("say", "shout") for value in ("hi", "ho")]

    assert parameter_names(filled) == [
        "first_say_text",
        "second_say_text",
        "first_shout_text",
        "second_shout_text",
    ]


def test_a_name_of_the_input_is_not_taken_twice() -> None:
    assert parameter_names([path("git_log", 10, "limit")], {"limit"}) == ["git_log_limit"]
    assert parameter_names([path("limit", 10, "limit")], {"limit"}) == ["first_limit"]


def test_internal_keys_are_plain_names() -> None:
    filled = [
        Filled("find", ("_id",), "x1"),
        Filled("find", ("_each",), [1]),
        Filled("find", ("$set",), 1),
    ]

    assert parameter_names(filled) == ["id", "items", "set"]


FILLED = st.builds(
    Filled,
    st.sampled_from(["read_file", "write_file", "", "get"]),
    st.lists(
        st.sampled_from(["path", "0", "edits", "ünïcode", "_id", "first_path", "x" * 80, "", "9"]),
        max_size=3,
    ).map(tuple),
    st.sampled_from(
        [
            "/a/notes",
            "/a/notes/",
            "report.md",
            "https://a.org/b?c=/d/e.f",
            "..",
            "/",
            "x" * 100,
            5,
            None,
            [1],
        ]
    ),
    st.lists(st.sampled_from(["owner", "0", "id", "path"]), max_size=2).map(tuple),
    st.integers(0, 3) | st.none(),
)


@given(
    st.lists(FILLED, max_size=25), st.sets(st.sampled_from(["path", "first_path", "output", "id"]))
)
def test_every_name_is_one_of_its_own(filled: list[Filled], taken: set[str]) -> None:
    names = parameter_names(filled, taken)

    assert len(names) == len(filled)
    assert len(set(names)) == len(names)
    assert not taken & set(names)
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name) for name in names)


def test_a_tool_has_the_names_of_the_tools_that_it_calls() -> None:
    assert tool_name(["git_log", "render", "write_file"], ["path"]) == "git_log_and_write_file"
    assert tool_name(["write_file", "write_file"], []) == "write_file"
    assert tool_name(["API.listIssues", "send"], []) == "api_list_issues_and_send"


@pytest.mark.parametrize(
    ("tools", "name"),
    [
        (["git_status", "git_add", "git_commit"], "git_status_and_commit"),
        (["browser_navigate", "browser_snapshot"], "browser_navigate_and_snapshot"),
        (["API-post-search", "API-retrieve-a-page"], "api_post_search_and_retrieve_a_page"),
        (["get_issue", "get_issue_comments"], "get_issue_and_get_issue_comments"),
        (["do_it", "do_it_again"], "do_it_and_do_it_again"),
        (["s3_put_object"], "s3_put_object"),
        (["k8s_get_pods", "k8s_logs"], "k8s_get_pods_and_logs"),
        (["getIssueV2", "addComment"], "get_issue_v2_and_add_comment"),
        (["AWS_EC2_DescribeInstances"], "aws_ec2_describe_instances"),
        (["HTTPRequest", "parseJSON"], "http_request_and_parse_json"),
        (["bestellung_pr\u00fcfen"], "bestellung_prufen"),
        (
            ["list_pull_request_review_comments_for_repo", "create_pull_request_review_reply"],
            "list_pull_request_review_and_create_pull_request",
        ),
        (
            ["notion_retrieve_a_page_property", "notion_update_a_block_of_children"],
            "notion_retrieve_a_page_and_update_a_block",
        ),
    ],
)
def test_names_of_tools_read_well(tools: list[str], name: str) -> None:
    assert tool_name(tools, []) == name
    assert safe_name(name) == name


@settings(max_examples=50)
@given(
    st.lists(st.text(max_size=60) | st.from_regex(r"[A-Za-z0-9_.-]{1,99}"), min_size=1, max_size=3),
    st.lists(st.text(max_size=20), max_size=2),
)
def test_every_name_of_a_tool_has_a_word(tools: list[str], parameters: list[str]) -> None:
    name = safe_name(tool_name(tools, parameters))
    assert re.fullmatch(r"[a-z][a-z0-9_]{0,47}", name)
    assert has_word(name)
    assert not name.endswith("_")


def test_the_first_parameter_tells_tools_with_equal_names_apart() -> None:
    taken = {"find_and_send"}
    assert tool_name(["find", "send"], ["customerId"], taken) == "find_and_send_by_customer_id"
    assert tool_name(["find", "send"], [], taken) == "find_and_send"


def test_names_without_words_name_no_tool() -> None:
    assert tool_name(["i", "I", "i2"], ["recipient"]) == "recipient"
    assert tool_name(["\u67e5\u8be2"], []) == "repeated_calls"
    assert tool_name(["\u67e5\u8be2", "send"], []) == "send"


def test_a_description_is_a_whole_sentence() -> None:
    assert (
        first_sentence("\nWrite the report, e.g. for Paris. Then send it.")
        == "Write the report, e.g. for Paris."
    )
    assert first_sentence("Count the   open issues\nof anvil") == "Count the open issues"
    assert first_sentence("Use v1.2 of the API! Now.") == "Use v1.2 of the API!"
    assert first_sentence("") == ""


def test_a_sentence_that_is_too_long_describes_nothing() -> None:
    assert first_sentence(f"Write {'very ' * 60}much.") == ""
