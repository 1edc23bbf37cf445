"""Reading a Solution while it streams in."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ideabridge.bridge.context.answer import AnswerReader, CallPiece, EndPiece, OutputPiece, Piece
from ideabridge.tools.encoding import JSON
from ideabridge.tools.reading import read_solution


def read(text: str | bytes, cuts: int = 0) -> list[Piece]:
    """Every piece, the text cut at `cuts` random places."""
    answer = AnswerReader()
    places = sorted(random.Random(cuts).choices(range(len(text) + 1), k=cuts))
    pieces: list[Piece] = []
    before = 0
    for place in [*places, len(text)]:
        pieces += answer.feed(text[before:place])
        before = place

    return pieces + answer.close()


def calls(pieces: list[Piece]) -> list[JSON]:
    return [piece.call for piece in pieces if isinstance(piece, CallPiece)]


def end(pieces: list[Piece]) -> EndPiece:
    last = pieces[-1]
    assert isinstance(last, EndPiece)
    assert sum(isinstance(piece, EndPiece) for piece in pieces) == 1
    return last


VALUES: st.SearchStrategy[JSON] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(
    st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), max_size=5),
    VALUES,
    st.integers(0, 60),
    st.booleans(),
    st.sampled_from([None, 1]),
    st.sampled_from([("", ""), ("```json\n", "\n```"), ("Sure {here}: ", " Done. {}")]),
)
def test_cut_anywhere_it_reads_the_same(
    listed: list[JSON],
    output: JSON,
    cuts: int,
    as_bytes: bool,
    indent: int | None,
    around: tuple[str, str],
) -> None:
    document = {"thought_process": "so {that}", "calls": listed, "output": output}
    text = around[0] + json.dumps(document, ensure_ascii=False, indent=indent) + around[1]
    pieces = read(text.encode() if as_bytes else text, cuts)
    assert calls(pieces) == listed
    assert [piece.output for piece in pieces if isinstance(piece, OutputPiece)] == (
        [] if output is None else [output]
    )
    assert end(pieces) == EndPiece(None, {"thought_process": "so {that}"})


def test_each_call_is_given_the_moment_it_closes() -> None:
    text = '{"calls": [{"_tool": "a", "x": "}]\\""}, {"_tool": "b"}], "output": 12}'
    answer = AnswerReader()
    seen: list[tuple[str, Piece]] = []
    for number in range(len(text)):
        for piece in answer.feed(text[number]):
            seen.append((text[: number + 1], piece))

    assert seen[0][0].endswith('\\""}')
    assert seen[1][0].endswith('"b"}')
    assert seen[2] == (text, OutputPiece(12)), "a number closes with what follows it"
    assert answer.close() == [EndPiece(None, {})]


@given(st.integers(0, 200))
def test_what_breaks_off_keeps_its_prefix_and_says_so(cut: int) -> None:
    text = '{"calls": [{"_tool": "a"}, {"_tool": "b", "x": [1, 2]}], "output": {"done": true}}'
    whole = calls(read(text))
    pieces = read(text[:cut])
    assert calls(pieces) == whole[: len(calls(pieces))]
    assert (end(pieces).broken is None) == (cut >= len(text))


@pytest.mark.parametrize(
    ("text", "taken", "says"),
    [
        ("no JSON at all", 0, "contains no JSON object"),
        ('{"calls": [{"_tool": "a"}, {"_tool": "b", "_tool": "c"}]}', 1, "occurs twice"),
        ('{"calls": [{"_tool": "a"}], "calls": []}', 1, "'calls' occurs twice"),
        ('{"calls": [{"_tool": "a"}, {"_tool": "\\ud800"}]}', 1, "half a surrogate"),
        ('{"calls": [{"_tool": "a"} {"_tool": "b"}]}', 1, "'{' after a call"),
        ('{"calls": [{"_tool": "a"}, NaN]}', 1, "NaN is not JSON"),
        ('{"calls": [{"_tool": "a"}], "output": tru}', 1, "is not JSON"),
        ('{"calls": [{"_tool": "a"}], "output": ' + "[" * 200, 1, "is nested deeper"),
        ('{"calls" [{"_tool": "a"}]}', 0, "before a colon"),
        (b'{"calls": [{"_tool": "a"}, "\xff"]}', 0, "not UTF-8"),
    ],
)
def test_what_is_invalid_late_keeps_what_came_before(
    text: str | bytes, taken: int, says: str
) -> None:
    pieces = read(text)
    assert len(calls(pieces)) == taken
    assert says in str(end(pieces).broken)


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ('{"calls": "[{\\"_tool\\": \\"a\\"}]", "output": null}', [{"_tool": "a"}]),
        ('{"calls": {"_tool": "a"}}', [{"_tool": "a"}]),
        ('{"calls": null, "output": 1}', []),
        ('{"_tool": "a", "x": 1}', [{"_tool": "a", "x": 1}]),
        ('{"output": 1}', []),
        ("{}", []),
    ],
)
def test_what_models_write_now_and_then(text: str, listed: list[JSON]) -> None:
    pieces = read(text, 5)
    assert calls(pieces) == listed
    assert end(pieces).broken is None


@pytest.mark.parametrize(
    "given",
    [
        {
            "calls": [{"_tool": "a"}, '{"_tool": "b"}', "{no call", 5, None, {"tool": "c"}],
            "output": None,
        },
        {"calls": '```json\n[{"_tool": "a"}]\n```', "output": '{"a": 1}'},
        {"calls": 'Here: [{"_tool": "a"}]', "output": "see {this}"},
        {"calls": "", "output": ["{}"]},
    ],
)
def test_what_is_read_leniently_means_the_same_whole_and_streamed(given: JSON) -> None:
    text = json.dumps(given)
    solution, _ = read_solution(text.encode())
    pieces = read(text, 7)
    assert calls(pieces) == solution["calls"]
    assert [piece.output for piece in pieces if isinstance(piece, OutputPiece)] == (
        [] if solution["output"] is None else [solution["output"]]
    )
    assert end(pieces).broken is None


def test_the_cost_is_linear_whatever_the_pieces() -> None:
    # Count the joins instead of measuring time: a value that is cut into single characters is
    # joined once.
    text = '{"calls": [{"_tool": "a", "x": "' + "y" * 200_000 + '"}]}'
    answer = AnswerReader()
    pieces = [piece for char in text for piece in answer.feed(char)]
    assert len(calls([*pieces, *answer.close()])) == 1


@given(st.text(max_size=60), st.integers(0, 40), st.booleans())
def test_a_program_is_given_once_its_answer_is_complete(
    program: str, cuts: int, has_empty_calls: bool
) -> None:
    answer: dict[str, JSON] = {"thought_process": "hm", "program": f"1{program}"}
    if has_empty_calls:
        # Endpoints that enforce the schema require these members.
        answer = {"calls": [], **answer, "output": None}

    text = json.dumps(answer)
    assert read(text, cuts) == [EndPiece(None, {"thought_process": "hm"}, f"1{program}")]
    cut = end(read(text[:-1]))
    assert (cut.program, cut.broken is None) == (None, False)


@pytest.mark.parametrize("program", [None, "", " \n"])
def test_an_empty_program_is_none(program: JSON) -> None:
    pieces = read(json.dumps({"calls": [{"_tool": "a"}], "output": None, "program": program}))
    assert pieces == [CallPiece({"_tool": "a"}), EndPiece(None, {})]


def test_a_markdown_fence_is_no_part_of_a_program() -> None:
    assert (
        end(read(json.dumps({"program": "```python\nx = '```'\nx\n```\n"}))).program
        == "x = '```'\nx\n"
    )
    assert (
        end(read(json.dumps({"program": "x = '''\n```\na\n```\n'''"}))).program
        == "x = '''\n```\na\n```\n'''"
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            '{"program": "1", "calls": [{"_tool": "a"}], "output": null}',
            "leave out calls and output",
        ),
        (
            '{"calls": [{"_tool": "a"}], "output": null, "program": "1"}',
            "leave out calls and output",
        ),
        ('{"program": "1", "output": 2}', "leave out calls and output"),
        ('{"program": 5}', "program: found 5, expected text"),
        ('{"program": ["1"]}', "expected text"),
    ],
)
def test_what_is_no_program_is_told(text: str, error: str) -> None:
    for cuts in (0, 9):
        last = end(read(text, cuts))
        assert last.program is None
        assert error in (last.broken or "")
        # The journal contains the program.
        assert "program" in last.extra


def test_a_call_may_have_a_parameter_named_program() -> None:
    assert calls(read('{"_tool": "run", "program": "1"}')) == [{"_tool": "run", "program": "1"}]
