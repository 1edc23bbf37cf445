"""Values at the edges of JSON: a run takes them, or says why not, and its journal reads back."""

from __future__ import annotations

from ideabridge.bridge.loop.event import CallProposed, SolutionClosed, event_from_json
from ideabridge.bridge.loop.settings import Settings
from ideabridge.tools.encoding import JSON, decode_trusted, encode
from tests.loop.driving import Driven, started


def nested(levels: int, value: JSON) -> JSON:
    for _ in range(levels):
        value = [value]
    return value


def test_an_integer_past_every_double_is_read_back_exactly() -> None:
    assert decode_trusted(encode({"n": 10**400})) == {"n": 10**400}


def test_integers_at_the_ends_of_64_bits_are_read_back_exactly() -> None:
    edges = [edge + step for edge in (-(2**63), 2**63, 2**64) for step in (-2, -1, 0, 1)]
    for number in [*edges, -(10**19), 10**19 + 1]:
        assert repr(decode_trusted(encode({"n": number}))) == repr({"n": number})
        assert decode_trusted(encode({"n": number}).decode()) == {"n": number}


def test_a_call_that_is_null_is_an_error_and_journaled_as_one() -> None:
    assert event_from_json(CallProposed(None).to_json()) == CallProposed(None)
    driven = Driven()
    driven.post(started(mode="solve"))
    driven.post(CallProposed(None))
    driven.post(SolutionClosed())
    assert driven.statuses() == ["failed"]
    assert "found null, expected a call" in driven.error_of(0)


def test_parameters_that_nest_too_deep_fail_their_call_alone() -> None:
    # The executor would reject an `echo` of 180 levels, but this one asks for approval and is
    # rejected before that.
    wide: list[JSON] = [{"_tool": "write", "x": nested(95, "†state.a")}, {"_tool": "echo", "x": 1}]
    driven = Driven().whole(
        started(
            [{"type": "state", "state": {"a": nested(90, 1)}}],
            settings=Settings(approval="default"),
        ),
        wide,
    )
    assert driven.statuses() == ["failed", "done"]
    assert "the resolved call" in driven.error_of(0)
    assert "is nested deeper than the limit" in driven.error_of(0)


def test_an_output_that_nests_too_deep_is_an_error() -> None:
    state: JSON = {"a": nested(90, 1)}
    driven = Driven().whole(
        started([{"type": "state", "state": state}]), [], nested(90, "†state.a")
    )
    assert driven.machine.status == "failed"
    (error,) = driven.machine.errors
    assert "is nested deeper than the limit" in str(error["error"])
