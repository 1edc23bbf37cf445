"""Compute what later runs of a published idea show about the copied literals in its plan.

A record is `{"run": id, "by": name, "kind": "run" | "person" | "assistant", "time": ISO 8601 text,
"values": [[at, value]...], "view": {REFERENCE: value} | null}`. `values` contains the values that
the run used, and `view` the data that the explanations read. A view larger than `MOST_VIEW_BYTES`
bytes is stored as null. Records are never changed or removed. `learn` computes what is known from
all records, so their order does not matter.

`learn` skips records of the kind `assistant` and records without a view. `record_of` makes the
record of a replay. It contains only values that a person confirmed or that were determined. Only
`record_of` reads the store. All other functions here are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import (
    RUNS_FOR_POSITION,
    Explained,
    Explanation,
    Read,
    operand_path,
    read_explained,
    references_of,
    same,
    settle,
)
from ideabridge.bridge.context.references import DAGGER, Path, holes_in, is_reference
from ideabridge.bridge.context.seen import grow
from ideabridge.bridge.context.state import MISSING, Missing
from ideabridge.bridge.context.state import read as read_path
from ideabridge.bridge.lifting.aligned import AlignedRun
from ideabridge.bridge.lifting.function import (
    Executed,
    Function,
    executed_calls,
    read_function,
    written_parameters,
)
from ideabridge.bridge.lifting.search import selects
from ideabridge.bridge.loop.event import CallDecided
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.runs.recorded import RecordedRun
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.publications import Evidence
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import LOCAL, owner_of
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.keywords import show

Kind: TypeAlias = Literal["run", "person", "assistant"]

KINDS: Final[Mapping[Kind, str]] = {
    "run": "named at publication",
    "person": "confirmed by a person",
    # Programs, command-line scripts and grants also count as this kind, because no person sees the
    # values that they confirm.
    "assistant": "not confirmed by a person",
}
"""The meaning of each kind of record, as text for users."""

MOST_VIEW_BYTES: Final = 65_536
"""The maximum size of a view, in bytes of JSON."""

RECORDS: Final = 100
"""The maximum number of records for one version of an idea."""

CONTRADICTED: Final = "no explanation yields the value that a run had"
"""The reason why a literal is never determined once a run has contradicted all of its
explanations.
"""


@dataclass(frozen=True)
class Record:
    """The evidence from one run.

    Attributes:
        run: the id of the run.
        by: who started the run.
        kind: `run` if the run was named at publication, `person` if a person confirmed the
            assumptions of the run, `assistant` if a mind confirmed them.
        time: when the run ended, as ISO 8601 text.
        values: the value of each literal, keyed by the literal's path; see `Explained.at`.
        view: the values of the references that the explanations read, or None if they are too
            large. A missing reference had no value.
    """

    run: str
    by: str
    kind: Kind
    time: str
    values: Mapping[Path, JSON]
    view: Mapping[str, JSON] | None

    @property
    def teaches(self) -> bool:
        """Whether the record can remove explanations."""
        return self.kind != "assistant" and self.view is not None

    def read(self, reference: str) -> JSON | Missing:
        """Return the value of a reference in the view, or MISSING if it has none."""
        return (self.view or {}).get(reference, MISSING)

    def to_json(self) -> JSONObject:
        """Return the record as JSON; see the docstring of this file."""
        values: list[JSON] = [[list[JSON](at), value] for at, value in self.values.items()]
        view: JSON = None if self.view is None else dict(self.view)
        return {
            "run": self.run,
            "by": self.by,
            "kind": self.kind,
            "time": self.time,
            "values": values,
            "view": view,
        }


def view_of(explained: Iterable[Explained], read: Read) -> dict[str, JSON] | None:
    """Return the values of all references that explanations read, or None if they exceed
    `MOST_VIEW_BYTES` bytes.
    """
    view: dict[str, JSON] = {}
    size = 2
    for reference in references_of(explained):
        value = read(reference)
        if isinstance(value, Missing):
            continue
        size += len(encode_text({reference: value}).encode())
        if size > MOST_VIEW_BYTES:
            return None
        view[reference] = value

    return view


def read_record(raw: JSON, *, where: str = "evidence") -> Record:
    """Read a record in the form that `Record.to_json` returns.

    Raises:
        ExplanationError: the record is malformed, or its view is too large. The message says where,
            and what was expected.
    """
    keys = ("run", "by", "kind", "time", "values", "view")
    if not isinstance(raw, dict) or sorted(raw) != sorted(keys):
        raise _malformed(where, f"an object with {', '.join(keys)}", raw)

    for key in ("run", "by", "time"):
        if not isinstance(raw[key], str):
            raise _malformed(f"{where}.{key}", "a string", raw[key])

    kind = raw["kind"]
    if kind not in ("run", "person", "assistant"):
        raise _malformed(f"{where}.kind", "run, person or assistant", kind)

    values = _read_values(raw["values"], f"{where}.values")
    view = _read_view(raw["view"], f"{where}.view")
    return Record(str(raw["run"]), str(raw["by"]), kind, str(raw["time"]), values, view)


def _read_values(raw: JSON, where: str) -> dict[Path, JSON]:
    if not isinstance(raw, list):
        raise _malformed(where, "an array of [place, value]", raw)

    values: dict[Path, JSON] = {}
    for number, entry in enumerate(raw):
        match entry:
            case [list() as at, value] if all(isinstance(key, str) for key in at):
                values[tuple(map(str, at))] = value
            case _:
                raise _malformed(f"{where}.{number}", "[place, value]", entry)

    return values


def _read_view(raw: JSON, where: str) -> JSONObject | None:
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise _malformed(where, "an object or null", raw)

    size = len(encode_text(raw).encode())
    if size > MOST_VIEW_BYTES:
        raise ExplanationError(
            f"{where}: expected at most {MOST_VIEW_BYTES} bytes of JSON, found {size}"
        )

    for reference in raw:
        operand_path(reference)

    return raw


def _malformed(where: str, expected: str, value: JSON) -> ExplanationError:
    return ExplanationError(f"{where}: expected {expected}, found {show(value)}")


def learn(
    explained: Iterable[Explained],
    profiles_before: Mapping[str, JSONObject],
    records: Sequence[Record],
) -> tuple[list[Explained], dict[str, JSONObject]]:
    """Return the literals and profiles of a version according to its evidence.

    Args:
        explained: the literals at publication.
        profiles_before: the profiles of the values that were read, keyed by reference; see
            `context/seen.py`.
        records: all of the version's records, including those of the runs that it was made from.

    A record removes the explanations that yield a different value. If that would leave no
    explanation, all of them stay, but the literal is never determined again, because no explanation
    describes where its value comes from.
    """
    teaching = [record for record in records if record.teaches]
    profiles = dict(profiles_before)
    for record in teaching:
        for reference, value in (record.view or {}).items():
            if reference in profiles:
                profiles[reference] = grow(profiles[reference], value)

    return [_learned(literal, teaching) for literal in explained], profiles


def _learned(explained: Explained, records: Iterable[Record]) -> Explained:
    about = [record for record in records if explained.at in record.values]
    if not about:
        return explained

    def fits(explanation: Explanation) -> bool:
        """Return whether an explanation gives the literal's value in every run."""
        return all(explanation.gives(record.values[explained.at], record.read) for record in about)

    left = tuple(filter(fits, explained.by))
    if not left:
        return replace(explained, why=explained.why or CONTRADICTED)

    # Count runs with the same data only once, because they show the same thing. Compare all data
    # that the literal's explanations read, including explanations that have since been removed.
    different: list[list[JSON | Missing]] = []
    first = left[0]
    is_selected = selects(first)
    for record in about:
        if len(different) == RUNS_FOR_POSITION:
            break
        if is_selected and not first.positions(record.read):
            # In this run, there was only one item or match to choose from, so it proves nothing
            # about the position.
            continue
        data = [record.read(reference) for reference in explained.references]
        if not any(_same_data(data, earlier) for earlier in different):
            different.append(data)

    before = explained.runs
    if is_selected and first != explained.by[0]:
        before = 1

    return replace(explained, by=left, runs=max(before, len(different)))


def _same_data(left: list[JSON | Missing], right: list[JSON | Missing]) -> bool:
    for value, other in zip(left, right, strict=True):
        if isinstance(value, Missing) or isinstance(other, Missing):
            if value is not other:
                return False
        elif not same(value, other):
            return False
    return True


def is_worth_keeping(
    explained: Sequence[Explained],
    profiles: Mapping[str, JSONObject],
    records: Sequence[Record],
    new: Record,
) -> bool:
    """Return whether a record adds something to a version's records: it changes what is known, or
    is one of the first three records of the kind `assistant`.

    A version that has `RECORDS` records accepts no more.
    """
    if len(records) >= RECORDS:
        return False
    if new.kind == "assistant":
        return sum(record.kind == "assistant" for record in records) < RUNS_FOR_POSITION
    return learn(explained, profiles, [*records, new]) != learn(explained, profiles, records)


def teach(published: Publication, records: Iterable[JSONObject], new: Record) -> Evidence | None:
    """Convert the new record of a published version into the form that `Publications.add_evidence`
    stores.

    Args:
        published: the version as it was published.
        records: the version's records so far.
        new: the new record.

    Returns:
        The record, with what all records together teach, or None if the record adds nothing or the
        version has no explained values.
    """
    explained = explained_in(published.plan_parts.explained)
    if not explained:
        return None

    earlier = [
        read_record(record, where=f"evidence.{number}") for number, record in enumerate(records)
    ]
    profiles = published.plan_parts.seen
    # Store a named run even if it shows nothing new, because the published explanations are based
    # on it.
    if new.kind != "run" and not is_worth_keeping(explained, profiles, earlier, new):
        return None

    literals, grown = learn(explained, profiles, [*earlier, new])
    return Evidence(
        new.to_json(), {"explained": [literal.to_json() for literal in literals], "seen": {**grown}}
    )


def explained_in(listed: Sequence[JSON]) -> list[Explained]:
    """Read the explained literals of a published plan from its member `explained`.

    Raises:
        ExplanationError: a literal is malformed. The message says where, and what was expected.
    """
    return [
        read_explained(literal, where=f"explained.{number}")
        for number, literal in enumerate(listed)
    ]


# -- replays ---------------------------------------------------------------------------------------


def record_of(store: Store, run_id: str, published: Publication) -> Record | None:
    """Return the record of a replay of a published plan.

    A value counts if a person decided on the call that used it, or if it was determined. It does
    not count if nobody saw it, or if it fills a parameter, because the caller might have passed it.

    Args:
        store: the store that contains the run.
        run_id: a run of this plan.
        published: the version, as it was published.

    Returns:
        The record, or None unless all of these conditions hold: the run is done, its caller owns
        the version, someone decided on a call with explained values, the run made the plan's calls,
        and the run contains all data that the explanations read.

    Raises:
        PublicationError, ExplanationError: the run or the plan cannot be read.
    """
    stored = store.runs.get(run_id)
    if stored is None or stored.status != "done":
        return None
    if owner_of(stored.caller) != (published.owner or LOCAL):
        return None

    explained = explained_in(published.plan_parts.explained)
    if not explained:
        return None

    plan = published.plan or {}
    replay = _replay_of(plan, read_function(store, run_id, stored.caller))
    if replay is None or any(replay.source_at(text) is None for text in references_of(explained)):
        # The origin of a member of the state is uncertain, because another call might have
        # overwritten it.
        return None

    deciders = _deciders(replay.function.run)
    is_by_assistant = False
    is_decided = False
    values: dict[Path, JSON] = {}
    for literal in explained:
        if literal.at[0] != "calls":
            continue

        place = int(literal.at[1])
        decider = deciders.get(place)
        is_decided = is_decided or decider is not None
        is_by_assistant = is_by_assistant or decider == "assistant"
        is_skipped = replay.calls[place].progress.status is CallStatus.SKIPPED
        if is_skipped or _fills_parameter(plan, literal.at):
            continue

        value = _value_of(replay, place, literal.at)
        is_confirmed = decider is not None or settle(literal, replay.read).assumed is None
        if not isinstance(value, Missing) and is_confirmed:
            values[literal.at] = value

    if not is_decided:
        return None

    kind: Kind = "assistant" if is_by_assistant else "person"
    time = stored.updated or stored.created
    return Record(run_id, stored.caller, kind, time, values, view_of(explained, replay.read))


def _replay_of(plan: JSONObject, function: Function) -> AlignedRun | None:
    """Align a run with a plan, or return None if the run did not make the plan's calls."""
    calls = plan.get("calls")
    executed, left_out = executed_calls(function.run)
    if function.run.machine.mode != "plan" or function.instances or left_out:
        return None
    if not isinstance(calls, list) or len(executed) != len(calls):
        return None
    return AlignedRun(function, executed)


def _value_of(replay: AlignedRun, place: int, at: Path) -> JSON | Missing:
    """Return the value that a call used, or MISSING if it used none or several."""
    if at[2:] == ("_each",):
        return _each_value(replay.calls[place])
    return replay.leaf(at)


def _each_value(call: Executed) -> JSON | Missing:
    """Return the list of items that a replayed call ran for, or MISSING if none of its parameters
    is `†item`.

    The `_each` of the call cannot be used here, because it is the list in the plan.
    """
    items = call.progress.items
    for hole in holes_in(written_parameters(call.raw)):
        values = [read_path(item.parameters, hole.path) for item in items]
        present = [value for value in values if not isinstance(value, Missing)]
        if hole.expression.text == f"{DAGGER}item" and len(present) == len(items):
            return present

    return MISSING


def _deciders(run: RecordedRun) -> dict[int, Kind]:
    """Return who approved or edited each call, keyed by place: a person who saw the question, or an
    assistant.

    A grant or a standing rule counts as an assistant, because it approves a call without showing
    its values to anyone.
    """
    deciders: dict[int, Kind] = {}
    for event in run.events:
        if isinstance(event, CallDecided) and event.decision != "deny":
            # A script can give answers on a command line, so an answer from there does not prove
            # that a person saw the question.
            is_person = event.by.kind == "person" and event.by.via != "command" and event.was_asked
            place = run.machine.history[event.call].call.place
            deciders[place] = "person" if is_person else "assistant"

    return deciders


def _fills_parameter(plan: JSONObject, at: Path) -> bool:
    written = read_path(plan, at)
    return isinstance(written, str) and is_reference(written)
