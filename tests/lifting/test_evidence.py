"""Evidence: what records of further runs remove, confirm, and leave as it is."""

from __future__ import annotations

import pytest

from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import Explained, read_explained, settle
from ideabridge.bridge.context.seen import grow
from ideabridge.bridge.context.state import MISSING
from ideabridge.bridge.lifting.evidence import (
    CONTRADICTED,
    VIEW,
    Kind,
    Record,
    is_worth_keeping,
    learn,
    read_record,
    view_of,
)
from ideabridge.tools.encoding import JSON

AT = ("calls", "1", "n")


def _literal(*by: JSON) -> Explained:
    return read_explained({"at": list[JSON](AT), "by": list(by)})


def _record(value: JSON, kind: Kind = "person", **view: JSON) -> Record:
    return Record("r", "ann", kind, "2026-11-22T00:00:00Z", {AT: value}, {f"†input.{k}": v for k, v in view.items()})


def test_a_run_removes_the_explanations_that_do_not_give_its_value() -> None:
    literal = _literal("†input.a", "†input.b", {"constant": 5})

    [learned], _ = learn([literal], {}, [_record(7, a=5, b=7)])

    assert learned.to_json()["by"] == ["†input.b"]
    assert settle(learned, {"†input.b": 9}.get).assumed is None


@pytest.mark.parametrize("record", [_record(7, "assistant", a=5, b=7), Record("r", "ann", "run", "t", {AT: 7}, None)])
def test_the_choice_of_an_assistant_and_a_run_without_a_view_teach_nothing(record: Record) -> None:
    literal, seen = _literal("†input.a", "†input.b"), {"†input.a": grow(None, 1)}

    assert learn([literal], seen, [record]) == ([literal], seen)


def test_runs_count_once_if_their_data_are_the_same() -> None:
    literal = _literal("†input.a.0")
    lists: list[JSON] = [[1, 2], [1.0, 2], [1, 3]]
    records = [Record("r", "ann", "run", "t", {AT: 1}, {"†input.a.0": 1, "†input.a": one}) for one in lists]

    # A position is selected from the whole list, so this is the data: 1.0 is 1, and [1, 3] is another list.
    assert [learn([literal], {}, records[:n])[0][0].runs for n in (1, 2, 3)] == [1, 1, 2]
    different = [_record(n, a=n) for n in range(5)]
    assert [learn([_literal("†input.a")], {}, different[:n])[0][0].runs for n in (1, 2, 3, 5)] == [1, 2, 3, 3]


def test_a_literal_that_no_explanation_explains_is_never_determined_again() -> None:
    [learned], _ = learn([_literal("†input.a")], {}, [_record(7, a=5)])

    assert (learned.why, learned.to_json()["by"]) == (CONTRADICTED, ["†input.a"])
    assumed = settle(learned, {"†input.a": 5}.get).assumed
    assert assumed is not None
    assert assumed["why"] == CONTRADICTED


def test_profiles_grow_only_from_runs_that_count() -> None:
    seen = {"†input.a": grow(None, 5)}

    assert learn([], seen, [_record(-5, a=-5)])[1] == {"†input.a": grow(seen["†input.a"], -5)}
    assert learn([], seen, [_record(-5, "assistant", a=-5)])[1] == seen


def test_a_record_is_kept_only_if_it_adds_something() -> None:
    literals = [_literal("†input.a", "†input.b")]
    first, same, assistant = _record(7, a=5, b=7), _record(8, a=5, b=8), _record(7, "assistant", a=7, b=7)

    assert is_worth_keeping(literals, {}, [], first)
    assert not is_worth_keeping(literals, {}, [first], first)
    assert is_worth_keeping(literals, {}, [first], same)
    assert not is_worth_keeping(literals, {}, [_record(n, b=n) for n in range(3)], _record(9, b=9))
    assert not is_worth_keeping(literals, {}, [assistant] * 3, assistant)
    assert not is_worth_keeping(literals, {}, [assistant] * 100, first)


def test_a_view_is_bounded() -> None:
    literals = [_literal("†input.a", "†input.gone")]

    assert view_of(literals, lambda text: 1 if text == "†input.a" else MISSING) == {"†input.a": 1}
    assert view_of(literals, lambda _: "x" * VIEW) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "me"}, "evidence.kind: expected run, person or assistant"),
        ({"values": [["calls.1", 3]]}, r"evidence.values.0: expected \[place, value\]"),
        ({"view": {"†input.a": "x" * VIEW}}, "evidence.view: expected at most 65536 bytes of JSON, found 65"),
        ({"view": {"a": 1}}, "a"),
        ({"more": 1}, "evidence: expected an object with run, by, kind, time, values, view"),
    ],
)
def test_a_malformed_record_is_refused(change: dict[str, JSON], message: str) -> None:
    good = _record(7, a=5).to_json()

    assert read_record(good) == _record(7, a=5)
    with pytest.raises(ExplanationError, match=message):
        read_record({**good, **change})
