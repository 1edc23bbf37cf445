"""Names every host takes, and the nearest ones; durations, ages and sizes in words."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ideabridge.tools.names import (
    age_text,
    did_you_mean,
    duration_text,
    is_safe_name,
    nearest,
    safe_name,
    size_text,
    whole_duration_text,
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("git_log", "git_log"),
        ("getWeather", "get_weather"),
        ("HTTPServer", "http_server"),
        ("Crème brûlée!", "creme_brulee"),
        ("3d-print", "t_3d_print"),
        ("__init__", "init"),
        ("日本", "tool"),
        ("", "tool"),
        ("a" * 80, "a" * 48),
    ],
)
def test_any_text_becomes_a_name(text: str, name: str) -> None:
    assert safe_name(text) == name


def test_taken_names_are_numbered_within_the_length() -> None:
    assert safe_name("log", {"log", "log_2"}) == "log_3"
    long = "a" * 48
    assert safe_name(long, {long}) == "a" * 46 + "_2"


@given(st.text(), st.sets(st.sampled_from(["a", "tool", "a_2"])))
def test_names_are_always_safe_and_free(text: str, taken: set[str]) -> None:
    name = safe_name(text, taken)
    assert is_safe_name(name)
    assert name not in taken


@pytest.mark.parametrize("text", ["", "A", "1a", "_a", "a-b", "a\n", "a" * 49, "ä"])
def test_what_is_no_safe_name(text: str) -> None:
    assert not is_safe_name(text)


def test_the_nearest_come_first() -> None:
    names = ["git_diff", "git_log", "fetch", "github_search"]
    assert nearest("git_lgo", names)[0] == "git_log"
    assert nearest("gitLog", names)[0] == "git_log"
    assert nearest("search", names) == ["github_search"]
    assert nearest("zzz", names) == []
    assert nearest("", names) == []


def test_the_question_is_asked_only_where_something_is_near() -> None:
    assert did_you_mean("fetsh", ["fetch", "x"]) == " Did you mean 'fetch'?"
    assert did_you_mean("log", ["log_a", "log_b"]) == " Did you mean 'log_a' or 'log_b'?"
    assert did_you_mean("q", ["fetch"]) == ""


def test_long_names_and_lists_are_bounded() -> None:
    start = time.process_time()
    nearest("a" * 1_000_000, ["a" * 1_000_000, *(f"name_{number}" for number in range(50_000))])
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("seconds", "text", "whole", "age"),
    [
        (-1, "0 ms", "0 s", "just now"),
        (0.0034, "3 ms", "0 s", "just now"),
        (1.254, "1.25 s", "1 s", "1 s ago"),
        (59.2, "59.2 s", "59 s", "59 s ago"),
        (125, "2 min 5 s", "2 min 5 s", "2 min ago"),
        (12_000, "3 h 20 min", "3 h 20 min", "3 h ago"),
        (90_000, "1 day", "1 day", "1 day ago"),
        (360_000, "4 days", "4 days", "4 days ago"),
    ],
)
def test_durations_and_ages_in_words(seconds: float, text: str, whole: str, age: str) -> None:
    assert duration_text(seconds) == text
    assert whole_duration_text(seconds) == whole
    assert age_text(seconds) == age


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1,023 bytes"),
        (1536, "1.5 KB"),
        (16 * 1024**2, "16 MB"),
        (int(60.2 * 1024**2), "60.2 MB"),
        (5000 * 1024**3, "5,000 GB"),
    ],
)
def test_sizes_in_words(size: int, text: str) -> None:
    assert size_text(size) == text
