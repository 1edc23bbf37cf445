"""Checks: every answer of the demo against what git and the clock say by themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from ideabridge.server.demo.repository import Repository
from ideabridge.tools.encoding import JSON, JSONObject, encode_text

LARGE: Final = 4_000_000
"""Bytes from which a patch may be refused: one result has at most 8 MiB of JSON."""


@dataclass(slots=True)
class Checks:
    """What was compared, and what came of it: (what, whether it holds, what was found otherwise)."""

    found: list[tuple[str, bool, str]] = field(default_factory=list[tuple[str, bool, str]])

    def same(self, what: str, ours: JSON, theirs: JSON) -> None:
        """Note whether two values are equal."""
        differs = "" if ours == theirs else f"got {encode_text(ours)[:200]}, expected {encode_text(theirs)[:200]}"
        self.found.append((what, ours == theirs, differs))

    def holds(self, what: str, truth: bool, otherwise: str = "") -> None:
        """Note whether something holds."""
        self.found.append((what, truth, "" if truth else otherwise))

    @property
    def wrong(self) -> list[str]:
        """What does not hold, one line each."""
        return [f"{what}: {why}" if why else what for what, truth, why in self.found if not truth]

    def to_json(self) -> list[JSON]:
        """For machines."""
        return [{"check": what, "holds": truth, **({"why": why} if why else {})} for what, truth, why in self.found]


def check_answer(checks: Checks, who: str, answer: JSONObject, repository: Repository, given: JSONObject) -> None:
    """Hold one answer of the plan against git and the time zone database.

    Args:
        checks: takes the findings.
        who: whose answer it is.
        answer: the plan's output.
        repository: is asked.
        given: the input: `count` and `timezone`.
    """
    zone = str(given["timezone"])
    count = given["count"]
    assert isinstance(count, int)
    facts = repository.facts(count, zone)
    checks.same(f"{who}: number of commits as git counts them", answer.get("commits"), facts["commits"])
    checks.same(f"{who}: commits by author as git tells them", _authors(answer.get("authors")), facts["authors"])
    checks.same(f"{who}: commits by weekday in {zone}", answer.get("weekdays"), facts["weekdays"])
    checks.same(f"{who}: the newest commit", answer.get("newest"), facts["newest"])
    _check_time(checks, who, str(answer.get("newest_there")), str(facts["newest_utc"]), zone)
    change = answer.get("change")
    _check_change(checks, who, change if isinstance(change, dict) else {}, repository.newest_change())


def _check_change(checks: Checks, who: str, told: JSONObject, expected: JSONObject | None) -> None:
    size = expected["bytes"] if expected is not None else 0
    if expected is None or ("message" in told and isinstance(size, int) and size > LARGE):
        what = f"{who}: a patch that cannot be had is told as such, and the plan went on"
        checks.holds(what, "message" in told, encode_text(told)[:200])
        return
    what = f"{who}: lines the newest commit changes, as git counts them"
    keys = ("added", "removed")
    checks.same(what, {key: told.get(key) for key in keys}, {key: expected[key] for key in keys})


def _authors(listed: JSON) -> JSONObject:
    found: JSONObject = {}
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict):
            found[str(one.get("name"))] = one.get("commits")
    return found


def _check_time(checks: Checks, who: str, told: str, utc: str, zone: str) -> None:
    """`told` is the UTC time of day `utc` as a clock in `zone` shows it on the day the plan ran."""
    what = f"{who}: the newest commit's time of day in {zone}"
    try:
        there = datetime.fromisoformat(told)
    except ValueError:
        checks.holds(what, truth=False, otherwise=f"{told!r} is no date")
        return
    right = there.astimezone(ZoneInfo(zone)).utcoffset() == there.utcoffset()
    at = there.astimezone(ZoneInfo("UTC")).strftime("%H:%M")
    checks.holds(what, right and at == utc, f"got {told}, which is {at} UTC; expected {utc} UTC")
