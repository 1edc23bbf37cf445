"""The list of decisions, in a file and in PostgreSQL."""

from __future__ import annotations

from ideabridge.bridge.store.decisions import CitedRule, Decided
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.encoding import JSONObject

PERSON: JSONObject = {"kind": "person", "via": "page", "user": "ann"}
RULE: JSONObject = {"id": "0123456789ab", "at": "2026-11-03T09:30:00+00:00"}


def decided(call: int, **members: JSONObject | int | str) -> JSONObject:
    """The event of an approval."""
    approval: JSONObject = {"event": "call_decided", "call": call, "digest": ""}
    return {**approval, "decision": "approve", "by": PERSON, **members}


def write(store: Store, run: str, *events: JSONObject, caller: str = "ann") -> None:
    store.runs.create(run, kind="plan", caller=caller, title=run, fingerprint="")
    epoch = store.leases.acquire(run, "driver", 10, 0)
    assert epoch is not None
    store.runs.append(run, epoch, list(events))


def in_short(decisions: list[Decided]) -> list[tuple[str, int | None, int]]:
    return [(one.run, one.call, one.calls) for one in decisions]


def test_calls_of_one_rule_or_grant_are_one_decision_at_the_latest_of_them(store: Store) -> None:
    other: JSONObject = {**RULE, "id": "ba9876543210"}
    write(store, "first", decided(0), decided(1, rule=RULE), decided(2, rule=RULE))
    write(store, "second", decided(0, rule=other), decided(1), decided(2, granted=1))
    write(store, "third", decided(0, rule=RULE), decided(1), decided(2, granted=1))

    latest = store.decisions.latest("ann")
    assert in_short(latest) == [
        ("third", 2, 1),
        ("third", 1, 1),
        ("third", 0, 3),
        ("second", 2, 1),
        ("second", 1, 1),
        ("second", 0, 1),
        ("first", 0, 1),
    ]
    assert latest[2].rule == CitedRule("0123456789ab", "2026-11-03T09:30:00+00:00")
    assert (latest[0].granted, latest[0].rule) == (1, None)
    assert latest[2].by == PERSON
    assert not any(one.has_more for one in latest)
    # What a rule decided takes one place of the list, however many calls there are.
    assert in_short(store.decisions.latest("ann", 3)) == in_short(latest)[:3]


def test_rules_of_other_people_are_not_counted_together(store: Store) -> None:
    write(store, "hers", decided(0, rule=RULE))
    write(store, "his", decided(0, rule=RULE), decided(1, rule=RULE), caller="bob")
    assert in_short(store.decisions.latest("ann")) == [("hers", 0, 1)]
    assert in_short(store.decisions.latest("bob")) == [("his", 1, 2)]
    assert in_short(store.decisions.latest(SEES_ALL)) == [("his", 1, 2), ("hers", 0, 1)]


def test_what_is_too_far_back_is_not_counted(store: Store) -> None:
    many = [decided(call, rule=RULE) for call in range(1, 1002)]
    write(store, "run", decided(0), *many)
    (latest,) = store.decisions.latest("ann")
    assert (latest.calls, latest.has_more) == (1000, True)


def test_the_latest_decision_is_first_although_its_run_is_older(store: Store) -> None:
    write(store, "older", decided(0))
    write(store, "newer", decided(0))
    epoch = store.leases.acquire("older", "driver", 10, 0)
    assert epoch is not None
    store.runs.append("older", epoch, [decided(1)])
    assert [one.run for one in store.decisions.latest("ann")] == ["older", "newer", "older"]
