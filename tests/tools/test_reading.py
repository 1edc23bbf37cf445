"""Solutions as models write them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import IdeabridgeError, LimitExceededError, ValueMismatchError
from ideabridge.tools.reading import (
    read_output,
    read_solution,
    wrong_reference_hint,
    wrong_target_hint,
)

CALL: JSON = {"_tool": "a"}


def test_a_proper_solution_has_no_notes() -> None:
    solution: dict[str, JSON] = {
        "calls": [{"_tool": "a", "x": "{not json"}],
        "output": "[1]",
        "thought_process": "hm",
    }
    read, notes = read_solution({**solution})
    assert read == solution
    assert notes == []
    assert list(read) == ["calls", "output", "thought_process"]


@pytest.mark.parametrize(
    ("raw", "calls", "output", "note"),
    [
        ({}, [], None, None),
        ({"calls": None, "output": None}, [], None, None),
        ({"output": 3}, [], 3, None),
        (b'{"calls": []}', [], None, None),
        ('{"calls": []}', [], None, "JSON text"),
        ('"{\\"calls\\": []}"', [], None, "JSON text"),
        ({"calls": '[{"_tool": "a"}]'}, [CALL], None, "calls was JSON in a string"),
        ({"calls": CALL}, [CALL], None, "single call"),
        ({"calls": ['{"_tool": "a"}']}, [CALL], None, "calls.0 was JSON in a string"),
        ([CALL], [CALL], None, "bare array"),
        (CALL, [CALL], None, "single call"),
        ({"output": '{"a": 1}'}, [], {"a": 1}, "output was JSON in a string"),
        ({"output": '```json\n{"a": 1}\n```'}, [], {"a": 1}, "output was JSON in a string"),
        ({"output": "{a: 1}"}, [], "{a: 1}", None),
        ({"output": "see {this}"}, [], "see {this}", None),
        ('Sure:\n```json\n{"calls": [{"_tool": "a"}]}\n```\nDone.', [CALL], None, "Markdown fence"),
        (
            'Here it is: {"calls": [{"_tool": "a"}], "output": null} as asked {x}',
            [CALL],
            None,
            "other text around",
        ),
        (b'```\n{"output": 1}\n```', [], 1, "Markdown fence"),
        # Items that are not calls fail individually when the Solution is carried out.
        (
            {"calls": [CALL, 5, {"tool": "a"}, "{call"]},
            [CALL, 5, {"tool": "a"}, "{call"],
            None,
            None,
        ),
    ],
)
def test_what_models_do_is_read_and_noted(
    raw: JSON | bytes, calls: JSON, output: JSON, note: str | None
) -> None:
    solution, notes = read_solution(raw)
    assert solution["calls"] == calls
    assert solution["output"] == output
    assert (note is None) == (not notes)
    assert note is None or note in " ".join(notes)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (7, "the solution: found 7, expected an object"),
        (None, "the solution: found null, expected an object"),
        ([1], "the solution: found [1], expected an object"),
        ("I cannot.", 'the solution: found the text "I cannot.", expected JSON'),
        ('{"a": 1} {"b": 2}', "expected JSON"),
        ('{"calls": [{"_tool": "a"', "expected JSON"),
        ('{"a": 1, "a": 2}', "'a' occurs twice"),
        ({"calls": 3}, "calls: found 3, expected an array of calls"),
        ({"calls": "later"}, 'calls: found the text "later", expected JSON'),
    ],
)
def test_what_cannot_be_read_says_path_found_and_expected(raw: JSON, message: str) -> None:
    with pytest.raises(ValueMismatchError) as caught:
        read_solution(raw)
    assert message in str(caught.value)


def test_long_white_space_is_read_in_time_that_grows_with_its_length() -> None:
    text = f"```\n{' ' * 1_000_000}"
    begun = time.process_time()
    assert read_output(text, []) == text
    assert read_output("```" + text[4:], []) == "```" + text[4:]
    assert time.process_time() - begun < 5


def test_text_is_bounded() -> None:
    with pytest.raises(LimitExceededError):
        read_solution("[" * 500)


@given(st.text() | st.binary() | st.text('{}[]",:`a\\\n', max_size=60))
def test_any_text_is_read_or_refused(raw: str | bytes) -> None:
    try:
        solution, _ = read_solution(raw)
    except IdeabridgeError:
        return
    assert isinstance(solution["calls"], list)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("$state.x", "†state.x"),
        ("{{state.x}}", "†state.x"),
        ("{{ state.items.0.name }}", "†state.items.0.name"),
        ("${state.x}", "†state.x"),
        ("${{ input.x }}", "†input.x"),
        ("<state.x>", "†state.x"),
        ("@state.x", "†state.x"),
        ("†{state.x}", "†state.x"),
        ("$results.3", "†results.3"),
        ("{{data.user.name}}", "†data.user.name"),
        ("$item", "†item"),
        ("{{item}}", "†item"),
        ('$state["odd key"].x', '†state["odd key"].x'),
        ("$state['odd key']", '†state["odd key"]'),
        ("`†state.x`", "†state.x"),
        ("†state.x", None),
        ("state.x", None),
        ("costs $5", None),
        ("$state.x and more", None),
        ("see {{state.x}}", None),
        ("$statement", None),
        ("$state-of-art", None),
        ("<input>", None),
        ("@data", None),
        ("$.state.x", "†state.x"),
        ("$.results[0].x", "†results[0].x"),
        ("{state.x}", "†state.x"),
        ("{ item.name }", "†item.name"),
        ("$ref:state.x", "†state.x"),
        ("$ref: #/state/x", "†state.x"),
        ("$ref:log", "†state.log"),
        ("$.data.items", None),
        ("$.results", None),
        ("{state}", None),
        ("see $.state.x", None),
        ("see {state.x}", None),
        ("$ref:a b", None),
        ("{{name}}", None),
        ("", None),
    ],
)
def test_other_notations_are_told_the_right_form(text: str, hint: str | None) -> None:
    assert wrong_reference_hint(text) == hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("$.log", "log"),
        ("$.report.title", "report.title"),
        ("$state.log", "log"),
        ("$.state.log", "log"),
        ("{{log}}", "log"),
        ("{{ state.log }}", "log"),
        ("${log}", "log"),
        ("<log>", "log"),
        ("$['odd key']", '["odd key"]'),
        ("$log", None),
        ("log", None),
        ("†state.log", None),
        ('["$.log"]', None),
    ],
)
def test_output_paths_in_other_notations_are_told_the_right_form(
    text: str, hint: str | None
) -> None:
    assert wrong_target_hint(text) == hint


@given(st.text(max_size=600))
def test_hints_are_only_for_whole_strings(text: str) -> None:
    hint = wrong_reference_hint(text)
    assert hint is None or hint.startswith("†")
