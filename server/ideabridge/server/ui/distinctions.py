"""Find the values that distinguish runs with the same title in a list, such as `customer c1`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.errors import MessageError
from ideabridge.bridge.context.messages import read_context
from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.run_record import ENDED, RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.server.ui.shown_numbers import shown_value
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty, object_or_empty

_LONGEST: Final = 32
"""Maximum length, in characters, of a value. Values that differ only after that count as the
same.
"""

_MOST_BYTES: Final = 100_000
"""Maximum size, in bytes, of the events that are read from a run."""

_EVENTS: Final = 2
"""Number of events that are read from a run: its start, with the input, and the calls of a plan."""

_MOST_VALUES: Final = 20
_MOST_KEPT: Final = 2000
"""Maximum number of runs whose values are kept in memory."""


@dataclass(frozen=True, slots=True)
class Distinction:
    """A value that distinguishes a run from other runs with the same title.

    Attributes:
        place: where the value is: `input.NAME`, or `CALL.NAME` for a parameter of a call.
        name: the name of the input or the parameter.
        value: the value on one line, or its beginning.
    """

    place: str
    name: str
    value: str


class Distinctions:
    """Finds the distinctions between runs, and caches the values of the runs that it has read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, tuple[Distinction, ...]] = {}

    def of(self, records: Iterable[RunRecord]) -> dict[str, Distinction]:
        """Return the distinction of each run that shares its title with another given run, keyed by
        run. Runs without a distinction are left out.
        """
        by_title = defaultdict[str, list[RunRecord]](list)
        for record in records:
            by_title[record.title].append(record)

        distinctions: dict[str, Distinction] = {}
        for group in by_title.values():
            if len(group) > 1:
                distinctions.update(self._of_group(group))
        return distinctions

    def _of_group(self, group: Sequence[RunRecord]) -> dict[str, Distinction]:
        """Return the distinctions of runs with the same title, if possible from the same place in
        each run.
        """
        values = {record.id: self._values(record) for record in group}
        by_place = defaultdict[str, dict[str, str]](dict)
        for run_id, listed in values.items():
            for one in listed:
                by_place[one.place][run_id] = one.value

        different = {
            place: len(set(texts.values()))
            for place, texts in by_place.items()
            if len(texts) < len(group) or len(set(texts.values())) > 1
        }
        # If several places have equally many values, the first one comes first, because the sort is
        # stable.
        best = sorted(different, key=lambda place: -different[place])
        distinctions: dict[str, Distinction] = {}
        for run_id, listed in values.items():
            at_places = {one.place: one for one in listed}
            place = next((place for place in best if place in at_places), None)
            if place is not None:
                distinctions[run_id] = at_places[place]
        return distinctions

    def _values(self, record: RunRecord) -> tuple[Distinction, ...]:
        """Return the first values in a run: its input's members and its calls' parameters."""
        kept = self._kept.get(record.id)
        if kept is not None:
            return kept

        try:
            events = self._store.runs.beginning(record.id, _EVENTS, _MOST_BYTES)
            values = tuple(_values_in(events))
        except (StoreError, MessageError):
            # The run has been deleted, or its journal is damaged. The run's own page reports this,
            # and the list must still show the other runs.
            return ()
        if len(events) == _EVENTS or record.status in ENDED:
            # The first events of a run never change, so keep their values.
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[record.id] = values
        return values


def _values_in(events: Sequence[JSONObject]) -> Iterator[Distinction]:
    """Yield the values in the first events of a run."""
    count = 0
    for place, name, value in _named_values(events):
        if isinstance(value, str) and value.startswith("†"):
            # The value is a reference, so the actual value is still unknown.
            continue
        if count == _MOST_VALUES:
            return
        count += 1
        yield Distinction(f"{place}.{name}", name, shown_value(value, _LONGEST))


def _named_values(events: Sequence[JSONObject]) -> Iterator[tuple[str, str, JSON]]:
    """Yield the place, name and value of each member of the input and each parameter of a call."""
    for event in events:
        for message in read_context(list_or_empty(event.get("context"))):
            if message.type == "input" and not message.instance:
                for name, value in message.members.items():
                    yield "input", name, value

        for number, call in enumerate(list_or_empty(event.get("calls"))):
            for name, value in object_or_empty(call).items():
                if not name.startswith("_"):
                    yield str(number), name, value
