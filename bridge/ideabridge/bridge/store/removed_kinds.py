"""Stored plans with explanations of removed kinds: each such explanation becomes a call of `compute`.

`converted` puts `compute` with the expression of `python_of` before the call whose literal it explains, and the path to
its result in its place among the explanations of the literal. So the plan reads the same values and gives the same
values, and whoever shows or runs it needs to know nothing of the removed kinds. The calls that follow move, and with
them every `†results.N`.

What does not become an expression (it is too long) is left out, and so are the tests that say whether a call is made.
The plan is strict then: it asks before it uses the literal, or makes the call, also if the call only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from ideabridge.bridge.context.earlier import WHEN
from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import operand_path
from ideabridge.bridge.context.references import Reference, format_reference, is_reference, parse_reference
from ideabridge.bridge.context.removed import is_removed, python_of, read_earlier_explained
from ideabridge.bridge.context.state import MISSING, Missing, read
from ideabridge.tools.computing import MAX_CODE
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode_text
from ideabridge.tools.errors import IdeabridgeError

RunStatement: TypeAlias = "Callable[[str, tuple[Any, ...]], Iterable[Any]]"

NOT_CONVERTED: Final = "an earlier version explained it in a way that this one does not know"
"""Why a literal is never determined whose explanation did not become an expression."""

_KEPT_AS_WRITTEN: Final = ("_outputPath", "_id", "_after", "_tool", "_module", "_outputMethod", "_instance")


@dataclass(frozen=True, slots=True)
class ConvertedPlan:
    """A plan without removed kinds, and what belongs to it.

    Attributes:
        plan: the plan.
        learned: its literals and profiles under its evidence; None: as in the plan.
        records: its evidence.
    """

    plan: JSONObject
    learned: JSONObject | None = None
    records: list[JSONObject] = field(default_factory=list[JSONObject])


def has_removed(plan: JSON) -> bool:
    """Return whether a plan has explanations of removed kinds."""
    return any(
        one.get("at") == ["calls", str(_place(one)), WHEN] or any(map(is_removed, _by(one))) for one in _literals(plan)
    )


def converted(
    plan: JSONObject, learned: JSONObject | None = None, records: list[JSONObject] | None = None
) -> ConvertedPlan:
    """Return a plan in which no explanation is of a removed kind.

    Args:
        plan: a published plan.
        learned: see `Publication.learned`.
        records: the evidence of the version; see `lifting/evidence.py`.
    """
    if not has_removed(plan):
        return ConvertedPlan(plan, learned, records or [])
    return _Conversion(plan).run(learned, records or [])


def convert_publications(run: RunStatement, mark: str) -> None:
    """Convert every publication of a store, inside a transaction of the caller.

    Args:
        run: executes a statement, and returns its rows if it selects.
        mark: what stands for a parameter in a statement: `?` or `%s`.
    """
    numbers = [row[0] for row in run("SELECT number FROM publications WHERE plan IS NOT NULL ORDER BY number", ())]
    for number in numbers:
        [row] = run(f"SELECT plan, learned FROM publications WHERE number = {mark}", (number,))  # noqa: S608
        plan, learned = (_decoded(text) for text in row)
        if plan is None or not has_removed(plan):
            continue
        kept = list(run(f"SELECT number, record FROM evidence WHERE publication = {mark} ORDER BY number", (number,)))  # noqa: S608
        records = [_decoded(row[1]) or {} for row in kept]
        found = converted(plan, learned, records)
        values = encode_text(found.plan), None if found.learned is None else encode_text(found.learned), number
        run(f"UPDATE publications SET plan = {mark}, learned = {mark} WHERE number = {mark}", values)  # noqa: S608
        for (place, _), record in zip(kept, found.records, strict=True):
            run(f"UPDATE evidence SET record = {mark} WHERE number = {mark}", (encode_text(record), place))  # noqa: S608


def _decoded(text: Any) -> JSONObject | None:
    value = None if text is None else decode_trusted(str(text).encode("utf-8", "surrogatepass"))
    return value if isinstance(value, dict) else None


def with_present_kinds(document: JSON) -> JSON:
    """Return the document of an idea whose published plan has no explanation of a removed kind."""
    publication = document.get("publication") if isinstance(document, dict) else None
    plan = publication.get("plan") if isinstance(publication, dict) else None
    if not isinstance(document, dict) or not isinstance(publication, dict) or not isinstance(plan, dict):
        return document
    if not has_removed(plan):
        return document
    return {**document, "publication": {**publication, "plan": converted(plan).plan}}


def _literals(plan: JSON) -> list[JSONObject]:
    listed = plan.get("explained") if isinstance(plan, dict) else None
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _by(literal: JSONObject) -> list[JSON]:
    by = literal.get("by")
    return by if isinstance(by, list) else []


def _place(literal: JSONObject) -> int | None:
    """The place of the call of a literal; None: it belongs to the output, or its form is wrong."""
    match literal.get("at"):
        case ["calls", str(place), *_] if place.isdecimal() and len(place) < 10:
            return int(place)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class _Computing:
    """An explanation that becomes a call of `compute`.

    Attributes:
        raw: the explanation.
        before: the place of the call, in the old plan, before which it runs.
        code: the expression.
        names: the references that the expression reads, by their names in it.
    """

    raw: JSON
    before: int
    code: str
    names: Mapping[str, str]

    def value(self, view: Mapping[str, JSON]) -> JSON:
        """Its result for the data of a record of evidence: the list of the value, or of nothing."""

        def look(text: str) -> JSON | Missing:
            return view.get(text, MISSING)

        form: JSONObject = {"at": ["output"], "by": [self.raw]}
        found = read_earlier_explained(form).by[0].value(look)
        return [] if isinstance(found, Missing) else [found]


class _Conversion:
    """The conversion of one plan."""

    def __init__(self, plan: JSONObject) -> None:
        calls = plan.get("calls")
        self._plan = plan
        self._calls: list[JSON] = calls if isinstance(calls, list) else []
        self._computing: dict[tuple[int, str], _Computing] = {}
        self._asks = False
        for one in _literals(plan):
            place = _place(one)
            before = len(self._calls) if place is None else place
            for raw in _by(one):
                key = before, encode_text(raw)
                if is_removed(raw) and key not in self._computing and not self._is_test(one):
                    made = _computing(raw, before)
                    if made is not None:
                        self._computing[key] = made
        ordered = sorted(self._computing.values(), key=lambda one: one.before)
        self._moved = [place + sum(one.before <= place for one in ordered) for place in range(len(self._calls) + 1)]
        self._results: dict[tuple[int, str], int] = {}
        for number, one in enumerate(ordered):
            self._results[one.before, encode_text(one.raw)] = one.before + number

    def run(self, learned: JSONObject | None, records: list[JSONObject]) -> ConvertedPlan:
        """Return the converted plan."""
        listed = self._literals_of(self._plan)
        plan = self._moved_profiles({**self._plan, "explained": listed})
        plan["calls"] = self._all_calls()
        plan["output"] = self._renumbered(self._plan.get("output"))
        decisions = self._decisions()
        if decisions:
            plan["decisions"] = decisions
        watch = self._plan.get("watch")
        if isinstance(watch, dict):
            moved = {str(self._new_place(place)): self._renumbered(texts) for place, texts in watch.items()}
            plan["watch"] = dict[str, JSON](moved)
        if self._asks:
            plan["strict"] = True
        if learned is not None:
            learned = self._moved_profiles({**learned, "explained": self._literals_of(learned)})
        return ConvertedPlan(plan, learned, [self._record(one) for one in records])

    def _is_test(self, literal: JSONObject) -> bool:
        at = literal.get("at")
        return isinstance(at, list) and at[2:] == [WHEN]

    def _new_place(self, place: str | int) -> int:
        number = int(place)
        return self._moved[number] if number < len(self._moved) else number

    def _all_calls(self) -> list[JSON]:
        calls: list[JSON] = []
        ordered = sorted(self._computing.values(), key=lambda one: one.before)
        for place in range(len(self._calls) + 1):
            for one in ordered:
                if one.before == place:
                    values = {name: self._renumbered(text) for name, text in one.names.items()}
                    calls.append({"_tool": "compute", "code": one.code, **values})
            if place < len(self._calls):
                calls.append(self._call(self._calls[place]))
        return calls

    def _call(self, call: JSON) -> JSON:
        if not isinstance(call, dict):
            return call
        moved: JSONObject = {}
        for key, value in call.items():
            if key == "_imports" and isinstance(value, list):
                texts = [f"†{one}" if isinstance(one, str) and not one.startswith("†") else one for one in value]
                moved[key] = self._renumbered(texts)
            else:
                moved[key] = value if key in _KEPT_AS_WRITTEN else self._renumbered(value)
        return moved

    def _renumbered(self, value: JSON) -> JSON:
        """A value as written, with the new places in its references to results."""
        if isinstance(value, list):
            return [self._renumbered(one) for one in value]
        if isinstance(value, dict):
            return {key: self._renumbered(one) for key, one in value.items()}
        if not isinstance(value, str) or not is_reference(value):
            return value
        try:
            expression = parse_reference(value)
        except IdeabridgeError:
            return value
        texts = [" && ".join(map(self._operand, operands)) for operands in expression.alternatives]
        return " || ".join(texts)

    def _operand(self, operand: Reference) -> str:
        if operand.kind != "results" or not operand.path or not operand.path[0].isdecimal():
            return operand.text
        place = str(self._new_place(operand.path[0]))
        return format_reference(("results", place, *operand.path[1:]), operand.instance)

    # -- literals ----------------------------------------------------------------------------------------------

    def _literals_of(self, holder: JSONObject) -> list[JSON]:
        found: list[JSON] = []
        for one in _literals(holder):
            if self._is_test(one):
                self._asks = True
                continue
            place = _place(one)
            before = len(self._calls) if place is None else place
            by = [self._explanation(raw, before) for raw in _by(one)]
            kept: list[JSON] = [raw for raw in by if raw is not None]
            literal: JSONObject = {**one, "at": self._at(one.get("at")), "by": kept}
            if len(kept) < len(by):
                self._asks = True
                literal["why"] = NOT_CONVERTED
            if not kept:
                literal["by"] = [{"constant": self._recorded(one)}]
            found.append(literal)
        return found

    def _explanation(self, raw: JSON, before: int) -> JSON:
        """An explanation in its new form; None if it has none."""
        if not is_removed(raw):
            return _with_references(raw, self._renumbered)
        place = self._results.get((before, encode_text(raw)))
        return None if place is None else f"†results.{place}.0"

    def _recorded(self, literal: JSONObject) -> JSON:
        at = literal.get("at")
        found = read(self._plan, tuple(map(str, at)) if isinstance(at, list) else ())
        return None if isinstance(found, Missing) else found

    def _at(self, at: JSON) -> JSON:
        match at:
            case ["calls", str(place), *keys] if place.isdecimal():
                return ["calls", str(self._new_place(place)), *keys]
            case _:
                return at

    def _decisions(self) -> list[JSON]:
        listed = self._plan.get("decisions")
        places = [one for one in listed if isinstance(one, int)] if isinstance(listed, list) else []
        tested = [_place(one) for one in _literals(self._plan) if self._is_test(one)]
        found = {self._new_place(one) for one in (*places, *tested) if one is not None}
        return list[JSON](sorted(found))

    def _moved_profiles(self, holder: JSONObject) -> JSONObject:
        seen = holder.get("seen")
        if not isinstance(seen, dict):
            return holder
        return {**holder, "seen": {str(self._renumbered(text)): profile for text, profile in seen.items()}}

    def _record(self, record: JSONObject) -> JSONObject:
        """A record of evidence, in whose view each call of `compute` has its result."""
        values, view = record.get("values"), record.get("view")
        moved = dict(record)
        if isinstance(values, list):
            moved["values"] = [
                [self._at(one[0]), one[1]]
                for one in values
                if isinstance(one, list) and len(one) == 2 and not self._is_test({"at": one[0]})
            ]
        if isinstance(view, dict):
            seen: JSONObject = {str(self._renumbered(text)): value for text, value in view.items()}
            for (before, text), one in self._computing.items():
                value = one.value(view)
                place = self._results[before, text]
                seen[f"†results.{place}"] = value
                if isinstance(value, list) and value:
                    seen[f"†results.{place}.0"] = value[0]
            moved["view"] = seen
        return moved


def _computing(raw: JSON, before: int) -> _Computing | None:
    """The call of `compute` for an explanation; None if it does not become an expression."""
    names: dict[str, str] = {}

    def name(text: str) -> str:
        path = operand_path(text)
        called = f"result_{path[1]}" if path[0] == "results" else path[0]
        # No name of the expression, and none of the parameters of `compute`, may be this one.
        names[f"{called}_"] = text
        return f"{called}_"

    try:
        read_earlier_explained({"at": ["output"], "by": [raw]})
        code = python_of(raw, name)
    except ExplanationError:
        return None
    return None if len(code) > MAX_CODE else _Computing(raw, before, code, names)


def _with_references(raw: JSON, change: Callable[[JSON], JSON]) -> JSON:
    """The form of an explanation with other references; its constants stay."""
    match raw:
        case str():
            return change(raw)
        case {"constant": _}:
            return raw
        case dict():
            return {key: _with_references(value, change) if key != "take" else value for key, value in raw.items()}
        case list():
            return [_with_references(one, change) for one in raw]
        case _:
            return raw
