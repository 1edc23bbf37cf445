"""Evidence: what records of further runs remove, confirm, and leave as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import Explained, read_explained, settle
from ideabridge.bridge.context.seen import grow
from ideabridge.bridge.context.state import MISSING
from ideabridge.bridge.lifting.evidence import (
    CONTRADICTED,
    MOST_VIEW_BYTES,
    Kind,
    Record,
    is_worth_keeping,
    learn,
    read_record,
    record_of,
    teach,
    view_of,
)
from ideabridge.bridge.loop.event import Decider
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import Toolbox
from ideabridge.tools.encoding import JSON
from tests.asking import ASKS
from tests.server.assuming import WRITING
from tests.server.assuming import publish as publish_plan
from tests.server.tools import write_note

AT = ("calls", "1", "n")


def _literal(*by: JSON) -> Explained:
    return read_explained({"at": list[JSON](AT), "by": list(by)})


def _record(value: JSON, kind: Kind = "person", **view: JSON) -> Record:
    return Record(
        "r",
        "ann",
        kind,
        "2026-11-22T00:00:00Z",
        {AT: value},
        {f"†input.{k}": v for k, v in view.items()},
    )


def test_a_run_removes_the_explanations_that_do_not_give_its_value() -> None:
    literal = _literal("†input.a", "†input.b", {"constant": 5})

    [learned], _ = learn([literal], {}, [_record(7, a=5, b=7)])

    assert learned.to_json()["by"] == ["†input.b"]
    assert settle(learned, {"†input.b": 9}.get).assumed is None


@pytest.mark.parametrize(
    "record", [_record(7, "assistant", a=5, b=7), Record("r", "ann", "run", "t", {AT: 7}, None)]
)
def test_the_choice_of_an_assistant_and_a_run_without_a_view_teach_nothing(record: Record) -> None:
    literal = _literal("†input.a", "†input.b")
    seen = {"†input.a": grow(None, 1)}

    assert learn([literal], seen, [record]) == ([literal], seen)


def test_runs_count_once_if_their_data_are_the_same() -> None:
    literal = _literal("†input.a.0")
    lists: list[JSON] = [[1, 2], [1.0, 2], [1, 3]]
    records = [
        Record("r", "ann", "run", "t", {AT: 1}, {"†input.a.0": 1, "†input.a": one}) for one in lists
    ]

    # A position is selected from the whole list, so the list is the data: 1.0 is the same as 1, but
    # [1, 3] is another list.
    assert [learn([literal], {}, records[:n])[0][0].runs for n in (1, 2, 3)] == [1, 1, 2]
    different = [_record(n, a=n) for n in range(5)]
    assert [learn([_literal("†input.a")], {}, different[:n])[0][0].runs for n in (1, 2, 3, 5)] == [
        1,
        2,
        3,
        3,
    ]


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
    first = _record(7, a=5, b=7)
    same = _record(8, a=5, b=8)
    assistant = _record(7, "assistant", a=7, b=7)

    assert is_worth_keeping(literals, {}, [], first)
    assert not is_worth_keeping(literals, {}, [first], first)
    assert is_worth_keeping(literals, {}, [first], same)
    assert not is_worth_keeping(literals, {}, [_record(n, b=n) for n in range(3)], _record(9, b=9))
    assert not is_worth_keeping(literals, {}, [assistant] * 3, assistant)
    assert not is_worth_keeping(literals, {}, [assistant] * 100, first)


def test_a_view_is_bounded() -> None:
    literals = [_literal("†input.a", "†input.gone")]

    assert view_of(literals, lambda text: 1 if text == "†input.a" else MISSING) == {"†input.a": 1}
    assert view_of(literals, lambda _: "x" * MOST_VIEW_BYTES) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "me"}, "evidence.kind: expected run, person or assistant"),
        ({"values": [["calls.1", 3]]}, r"evidence.values.0: expected \[place, value\]"),
        (
            {"view": {"†input.a": "x" * MOST_VIEW_BYTES}},
            "evidence.view: expected at most 65536 bytes of JSON, found 65",
        ),
        ({"view": {"a": 1}}, "a"),
        ({"more": 1}, "evidence: expected an object with run, by, kind, time, values, view"),
    ],
)
def test_a_malformed_record_is_refused(change: dict[str, JSON], message: str) -> None:
    good = _record(7, a=5).to_json()

    assert read_record(good) == _record(7, a=5)
    with pytest.raises(ExplanationError, match=message):
        read_record({**good, **change})


async def _replay(bridge: Bridge, folder: Path, words: str, by: Decider) -> str:
    """Call the idea `noted` with new words, and approve its call."""
    run = (await bridge.start_idea("noted", {"path": str(folder / "note"), "words": words})).run
    assert run is not None
    assert await run.wait(30) == "needs_approval"
    [asked] = run.pending()
    run.decide(asked.approval, "approve", by=by)
    await run.result()
    return run.id


@pytest.mark.anyio
async def test_a_person_who_confirms_a_replay_teaches_the_idea(tmp_path: Path) -> None:
    at = ("calls", "0", "text")
    publish_plan(tmp_path / "s.sqlite", "noted", WRITING)
    person = Decider("person", "terminal", "local")
    async with Bridge(ASKS, toolbox=Toolbox(write_note), store=tmp_path / "s.sqlite") as bridge:
        publications = bridge.store.publications
        published = publications.get("noted", 1, caller=SEES_ALL)

        def add(run: str) -> tuple[Record | None, Publication]:
            record = record_of(bridge.store, run, published)
            return record, publications.add_evidence(
                "noted",
                1,
                lambda told, known: teach(told, known, record) if record is not None else None,
            )

        for other in (Decider("assistant", "tool", "local"), Decider("person", "command", "local")):
            record, found = add(await _replay(bridge, tmp_path, "bye", other))
            assert record is not None
            assert (
                record.kind,
                found.learned is None or found.learned["explained"] == WRITING["explained"],
            ) == (
                "assistant",
                True,
            )

        record, found = add(await _replay(bridge, tmp_path, "bye", person))
        assert record is not None
        assert (record.kind, record.values, record.view) == (
            "person",
            {at: "bye"},
            {"†input.words": "bye"},
        )
        assert found.learned == {
            "explained": [{"at": list(at), "by": ["†input.words"]}],
            "seen": {},
        }

        # The name has learned, so the question about its call no longer gives this reason, but the
        # version still does.
        arguments = {"path": str(tmp_path / "note"), "words": "again"}
        run = (await bridge.start_idea("noted", arguments)).run
        assert run is not None
        assert await run.wait(30) == "needs_approval"
        assert "its explanations differ" not in run.pending()[0].why
        run.cancel()
        assert await run.wait(30) == "cancelled"
        assert add(run.id)[0] is None
        run = (await bridge.start_idea("noted@1", arguments)).run
        assert run is not None
        assert await run.wait(30) == "needs_approval"
        assert "its explanations differ" in run.pending()[0].why
        run.cancel()
