"""Convert explanations of removed kinds in stored plans into calls to `compute`.

`converted` inserts a call to `compute` with the expression from `python_of` before the call whose
literal is explained. The path to this call's result replaces the explanation. The plan therefore
reads and produces the same values as before, and code that shows or runs the plan does not need to
know the removed kinds. The places of the following calls change, and so does every `†results.N`.

An explanation that cannot become an expression (because it is too long or shifts a date) is left
out. The tests that decide whether a call is made are left out, too. In both cases, the plan becomes
strict: it asks before it uses the literal or makes the call, even if the call only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from ideabridge.bridge.context.earlier import WHEN
from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import Explanation, operand_path
from ideabridge.bridge.context.references import (
    Reference,
    format_reference,
    is_reference,
    parse_reference,
)
from ideabridge.bridge.context.removed import is_removed, python_of, read_earlier_explained
from ideabridge.bridge.context.state import MISSING, Missing, read
from ideabridge.bridge.store.published import plan_in_document, with_plan_in_document
from ideabridge.tools.computing import MAX_CODE
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode_text, list_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.typed import read_as

RunStatement: TypeAlias = "Callable[[str, tuple[Any, ...]], Iterable[Any]]"

NOT_CONVERTED: Final = "an earlier version explained it in a way that this version does not support"
"""The reason why a literal is never determined: its explanation could not be converted into an
expression.
"""

_KEPT_AS_WRITTEN: Final = (
    "_outputPath",
    "_id",
    "_after",
    "_tool",
    "_module",
    "_outputMethod",
    "_instance",
)


@dataclass(frozen=True, slots=True)
class ConvertedPlan:
    """A plan without removed kinds, and its data.

    Attributes:
        plan: the plan.
        learned: the plan's literals and profiles according to its evidence, or None if they are the
            plan's own.
        records: the evidence of the version.
    """

    plan: JSONObject
    learned: JSONObject | None = None
    records: list[JSONObject] = field(default_factory=list[JSONObject])


def has_removed(plan: JSON) -> bool:
    """Return whether a plan has explanations of removed kinds."""
    for literal in _literals(plan):
        if _is_test(literal) or any(map(is_removed, _by(literal))):
            return True

    return False


def converted(
    plan: JSONObject, learned: JSONObject | None = None, records: list[JSONObject] | None = None
) -> ConvertedPlan:
    """Convert a plan so that none of its explanations is of a removed kind.

    Args:
        plan: a published plan.
        learned: see `Publication.learned`.
        records: the evidence of the version; see `lifting/evidence.py`.
    """
    if not has_removed(plan):
        return ConvertedPlan(plan, learned, records or [])
    return _Conversion(plan).run(learned, records or [])


def convert_publications(run: RunStatement, mark: str) -> None:
    """Convert every publication in a store. Call this inside a transaction.

    Args:
        run: executes a statement, and returns its rows if it selects any.
        mark: the placeholder for a parameter in a statement: `?` or `%s`.
    """
    rows = [*run("SELECT number FROM publications WHERE plan IS NOT NULL ORDER BY number", ())]
    for (number,) in rows:
        [row] = run(f"SELECT plan, learned FROM publications WHERE number = {mark}", (number,))  # noqa: S608
        stored_plan, stored_learned = row
        plan = _decoded(stored_plan)
        if plan is None or not has_removed(plan):
            continue

        evidence = list(
            run(
                f"SELECT number, record FROM evidence WHERE publication = {mark} ORDER BY number",  # noqa: S608
                (number,),
            )
        )
        records = [_decoded(record) or {} for _, record in evidence]
        new = converted(plan, _decoded(stored_learned), records)
        learned: str | None = None
        if new.learned is not None:
            learned = encode_text(new.learned)

        values = (encode_text(new.plan), learned, number)
        run(
            f"UPDATE publications SET plan = {mark}, learned = {mark} WHERE number = {mark}",  # noqa: S608
            values,
        )
        for (place, _), record in zip(evidence, new.records, strict=True):
            run(
                f"UPDATE evidence SET record = {mark} WHERE number = {mark}",  # noqa: S608
                (encode_text(record), place),
            )


def _decoded(text: Any) -> JSONObject | None:
    if text is None:
        return None

    value = decode_trusted(str(text).encode("utf-8", "surrogatepass"))
    if not isinstance(value, dict):
        return None
    return value


def with_present_kinds(document: JSON) -> JSON:
    """Convert the document of an idea so that its published plan has no explanation of a removed
    kind.
    """
    plan = plan_in_document(document)
    if plan is None or not has_removed(plan):
        return document
    return with_plan_in_document(document, converted(plan).plan)


@dataclass(frozen=True, slots=True)
class _Literals:
    """The explained literals in a plan."""

    explained: tuple[JSONObject, ...] = ()


def _literals(plan: JSON) -> tuple[JSONObject, ...]:
    return read_as(_Literals, plan).explained


def _by(literal: JSONObject) -> list[JSON]:
    return list_or_empty(literal.get("by"))


def _place(literal: JSONObject) -> int | None:
    """Return the place of a literal's call, or None if the literal is malformed or part of the
    output.
    """
    match literal.get("at"):
        case ["calls", str(place), *_] if place.isdecimal() and len(place) < 10:
            return int(place)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class _Computing:
    """An explanation that becomes a call to `compute`.

    Attributes:
        explanation: the explanation.
        before: the place, in the old plan, of the call that follows the new one.
        code: the expression.
        names: the references that the expression reads, keyed by their names in it.
    """

    explanation: Explanation
    before: int
    code: str
    names: Mapping[str, str]

    def result(self, view: Mapping[str, JSON]) -> list[JSON]:
        """Return what the call returns for the data in a record of evidence, as a list with the
        value, or an empty list if there is none.
        """
        value = self.explanation.value(lambda text: view.get(text, MISSING))
        if isinstance(value, Missing):
            return []
        return [value]


class _Conversion:
    """The conversion of one plan."""

    def __init__(self, plan: JSONObject) -> None:
        self._plan = plan
        self._calls = list_or_empty(plan.get("calls"))
        self._asks = False
        computing_by_key: dict[tuple[int, str], _Computing] = {}
        for literal in _literals(plan):
            if _is_test(literal):
                continue

            before = self._before(literal)
            for raw in filter(is_removed, _by(literal)):
                key = (before, encode_text(raw))
                computing = _computing(raw, before)
                if computing is not None:
                    computing_by_key.setdefault(key, computing)

        # Sort the calls in the order in which they run. Calls at the same place keep their order.
        in_order = sorted(computing_by_key, key=lambda key: key[0])
        # The call for each explanation, keyed by the explanation's old place and form.
        self._computing = {key: computing_by_key[key] for key in in_order}
        # The new place of this call, with the same keys. Each new call before it adds one.
        self._results: dict[tuple[int, str], int] = {}
        for number, (before, form) in enumerate(in_order):
            self._results[before, form] = before + number

        # Maps the old place of each call to its new place.
        self._moved: list[int] = []
        for place in range(len(self._calls) + 1):
            new_calls = [before for before, _ in in_order if before <= place]
            self._moved.append(place + len(new_calls))

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
            moved: JSONObject = {}
            for place, texts in watch.items():
                moved[str(self._new_place(place))] = self._renumbered(texts)
            plan["watch"] = moved

        if self._asks:
            plan["strict"] = True

        if learned is not None:
            learned = self._moved_profiles({**learned, "explained": self._literals_of(learned)})

        return ConvertedPlan(plan, learned, [self._record(record) for record in records])

    def _before(self, literal: JSONObject) -> int:
        """Return the place of the call before which the explanations of a literal are computed."""
        place = _place(literal)
        if place is None:
            return len(self._calls)
        return place

    def _new_place(self, place: str | int) -> int:
        number = int(place)
        if number >= len(self._moved):
            # The plan has no such call.
            return number
        return self._moved[number]

    def _all_calls(self) -> list[JSON]:
        calls: list[JSON] = []
        for place in range(len(self._calls) + 1):
            for computing in self._computing.values():
                if computing.before != place:
                    continue

                new_call: JSONObject = {"_tool": "compute", "code": computing.code}
                for name, text in computing.names.items():
                    new_call[name] = self._renumbered(text)
                calls.append(new_call)

            # New calls behind the last call compute values of the output.
            if place < len(self._calls):
                calls.append(self._call(self._calls[place]))

        return calls

    def _call(self, call: JSON) -> JSON:
        if not isinstance(call, dict):
            return call

        moved: JSONObject = {}
        for key, value in call.items():
            if key in _KEPT_AS_WRITTEN:
                moved[key] = value
            elif key == "_imports" and isinstance(value, list):
                moved[key] = [self._renumbered(_with_dagger(text)) for text in value]
            else:
                moved[key] = self._renumbered(value)

        return moved

    def _renumbered(self, value: JSON) -> JSON:
        """Return a value in which the references to results use the new places."""
        if isinstance(value, list):
            return [self._renumbered(item) for item in value]
        if isinstance(value, dict):
            return {key: self._renumbered(member) for key, member in value.items()}
        if not isinstance(value, str) or not is_reference(value):
            return value

        try:
            expression = parse_reference(value)
        except IdeabridgeError:
            return value

        texts = [" && ".join(map(self._operand, operands)) for operands in expression.alternatives]
        return " || ".join(texts)

    def _operand(self, operand: Reference) -> str:
        if operand.kind != "results" or not operand.path:
            return operand.text

        call, *below = operand.path
        if not call.isdecimal():
            return operand.text

        place = str(self._new_place(call))
        return format_reference(("results", place, *below), operand.instance)

    # -- literals ----------------------------------------------------------------------------------

    def _literals_of(self, holder: JSONObject) -> list[JSON]:
        literals: list[JSON] = []
        for literal in _literals(holder):
            if _is_test(literal):
                self._asks = True
                continue

            before = self._before(literal)
            by = [self._explanation(raw, before) for raw in _by(literal)]
            left: list[JSON] = [raw for raw in by if raw is not None]
            moved: JSONObject = {**literal, "at": self._at(literal.get("at")), "by": left}
            if len(left) < len(by):
                self._asks = True
                moved["why"] = NOT_CONVERTED

            if not left:
                moved["by"] = [{"constant": self._recorded(literal)}]

            literals.append(moved)

        return literals

    def _explanation(self, raw: JSON, before: int) -> JSON:
        """Return the new form of an explanation, or None if there is no such form."""
        if not is_removed(raw):
            return _with_references(raw, self._renumbered)

        place = self._results.get((before, encode_text(raw)))
        if place is None:
            return None
        return f"†results.{place}.0"

    def _recorded(self, literal: JSONObject) -> JSON:
        path = tuple(map(str, list_or_empty(literal.get("at"))))
        recorded = read(self._plan, path)
        if isinstance(recorded, Missing):
            return None
        return recorded

    def _at(self, at: JSON) -> JSON:
        match at:
            case ["calls", str(place), *keys] if place.isdecimal():
                return ["calls", str(self._new_place(place)), *keys]
            case _:
                return at

    def _decisions(self) -> list[JSON]:
        places: set[int] = set()
        for place in list_or_empty(self._plan.get("decisions")):
            if isinstance(place, int):
                places.add(self._new_place(place))

        # The converted plan has no tests, so the calls that depended on a test might be decisions.
        for literal in _literals(self._plan):
            if _is_test(literal):
                places.add(self._new_place(self._before(literal)))

        return list[JSON](sorted(places))

    def _moved_profiles(self, holder: JSONObject) -> JSONObject:
        seen = holder.get("seen")
        if not isinstance(seen, dict):
            return holder

        moved = {str(self._renumbered(text)): profile for text, profile in seen.items()}
        return {**holder, "seen": moved}

    def _record(self, record: JSONObject) -> JSONObject:
        """Return a record of evidence whose view includes the result of each call to `compute`."""
        moved = dict(record)
        values = record.get("values")
        if isinstance(values, list):
            moved_values: list[JSON] = []
            for pair in values:
                match pair:
                    case [at, value] if not _is_test({"at": at}):
                        moved_values.append([self._at(at), value])
                    case _:
                        continue

            moved["values"] = moved_values

        view = record.get("view")
        if isinstance(view, dict):
            seen: JSONObject = {str(self._renumbered(text)): value for text, value in view.items()}
            for key, computing in self._computing.items():
                result = computing.result(view)
                reference = f"†results.{self._results[key]}"
                seen[reference] = result
                if result:
                    seen[f"{reference}.0"] = result[0]

            moved["view"] = seen

        return moved


def _is_test(literal: JSONObject) -> bool:
    """Return whether a literal is a test that decides whether a call is made."""
    return literal.get("at") == ["calls", str(_place(literal)), WHEN]


def _with_dagger(text: JSON) -> JSON:
    if isinstance(text, str) and not text.startswith("†"):
        return f"†{text}"
    return text


def _computing(raw: JSON, before: int) -> _Computing | None:
    """Return the `compute` call for an explanation, or None if it cannot become an expression."""
    names: dict[str, str] = {}

    def name(text: str) -> str:
        path = operand_path(text)
        name_in_code = f"{path[0]}_"
        if path[0] == "results":
            name_in_code = f"result_{path[1]}_"

        # The underscore at the end keeps the name apart from every other name in the expression and
        # from the parameters of `compute`.
        names[name_in_code] = text
        return name_in_code

    try:
        literal = read_earlier_explained({"at": ["output"], "by": [raw]})
        code = python_of(raw, name)
    except ExplanationError:
        return None

    if len(code) > MAX_CODE:
        return None
    return _Computing(literal.by[0], before, code, names)


def _with_references(raw: JSON, change: Callable[[JSON], JSON]) -> JSON:
    """Return an explanation with its references changed and its constants kept."""
    match raw:
        case str():
            return change(raw)
        case {"constant": _}:
            return raw
        case dict():
            changed: JSONObject = {}
            for key, value in raw.items():
                # `take` is a path below an item, not a reference.
                changed[key] = value if key == "take" else _with_references(value, change)
            return changed
        case list():
            return [_with_references(part, change) for part in raw]
        case _:
            return raw
