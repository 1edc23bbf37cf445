"""Describe the tool made from a lifted run, as a table for people and a short text for models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final, TypeAlias

from ideabridge.bridge.context.explanations import Explained, Read
from ideabridge.bridge.context.state import Missing
from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.aligned import AlignedRun
from ideabridge.bridge.lifting.alike import runs_like
from ideabridge.bridge.lifting.contrast import short
from ideabridge.bridge.lifting.draft import PlanDraft
from ideabridge.bridge.lifting.evidence import KINDS
from ideabridge.bridge.lifting.leaves import Leaf
from ideabridge.bridge.lifting.rows import (
    REQUIRED,
    ReportRow,
    rows_of,
    shortened,
)
from ideabridge.bridge.lifting.tables import table_rows
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.keywords import SchemaKeywords
from ideabridge.tools.names import joined
from ideabridge.tools.typed import read_as

_FOR_MODELS: Final = 2_000
"""The maximum size, in bytes, of a report for a model."""

_FOR_REST: Final = 200
"""The number of bytes of a report for a model that are reserved for the names of omitted parts."""

_LINE: Final = 240
_EXAMPLE: Final = 60
_ALTERNATIVES: Final = 3
_CALLS: Final = 8
"""The maximum number of calls or runs named on one line."""

_WIDE: Final = 100
"""The minimum width, in terminal columns, of a table that includes descriptions."""


@dataclass(frozen=True, slots=True)
class ReportedCall:
    """A call of a plan in the report: its tool, and whether a mind is asked for the result each
    time.
    """

    tool: str = "?"
    asks_mind: bool = False


@dataclass(frozen=True, slots=True)
class ReportedOffer:
    """A run of the same shape, with the paths of the values that would be determined by naming this
    run.
    """

    run: str = "?"
    settles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolReport:
    """A report for people and models. `read_as` reads it from the result of `report_of`, or from
    the report on a program.

    Attributes:
        left_open: why the run cannot be a plan, or None if it can.
        rows: the rows of the table.
        reproduces: the runs whose output a program reproduces, or None for a plan.
        copied: lines about values in a program that might be data.
        unreached: lines about calls in a program that no recorded run made.
        calls: the calls of a plan.
        left_out: the failed calls that a plan leaves out.
        consistent: whether the plan, given the recorded results, reproduces the run.
        difference: the first difference between the plan and the run, or None if the plan is
            consistent.
        confirmed_by: the other runs that the plan reproduces.
        not_confirmed_by: lines about runs that the plan does not reproduce.
        offers: the runs that could determine more values.
    """

    left_open: str | None = None
    rows: tuple[ReportRow, ...] = ()
    reproduces: tuple[str, ...] | None = None
    copied: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    calls: tuple[ReportedCall, ...] = ()
    left_out: tuple[str, ...] = ()
    consistent: bool = False
    difference: str | None = None
    confirmed_by: tuple[str, ...] = ()
    not_confirmed_by: tuple[str, ...] = ()
    offers: tuple[ReportedOffer, ...] = ()


def report_of(draft: PlanDraft, store: Store | None = None, caller: str = "") -> dict[str, Any]:
    """Return the report on a lifted run. The report never contains a whole result.

    Args:
        draft: the plan that is published from the run.
        store: the store to search for runs of the same shape, which the report offers as evidence,
            or None to offer none.
        caller: the owner of these runs.

    Returns:
        `{"run", "requests", "calls": [{"place", "tool", "asks_mind"?, "decision"?, "after"?}],
        "parameters": [{"name", "default"?, "required", "description"?, "fills": [paths]}],
        "literals": [{"path", "recorded", "from", "instead": [text...], "runs", "why"?}],
        "references", "taken", "rows": [the table, see `ReportRow`], "left_out": [text...],
        "consistent", "difference", "confirmed_by", "not_confirmed_by", "offers": [{"run",
        "settles": [paths]}]}`. `literals` lists only values that are not certain.
    """
    lifted = draft.lifted
    try:
        fault = draft.difference()
    except PublicationError as error:
        fault = str(error)

    agree: list[str] = []
    different: list[str] = []
    if fault is None:
        agree, different = draft.confirmations()

    offers: list[JSONObject] = []
    if store is not None:
        offers = list(_offers(draft, store, caller))

    leaves = {leaf.at: leaf for leaf in lifted.leaves}
    plan: JSONObject = {"calls": draft.calls, "output": draft.output}
    arguments = draft.arguments(lifted.aligned)
    rows = rows_of(draft.inputs.schema, arguments, draft.explained, plan)
    return {
        "run": lifted.function.run.id,
        "requests": lifted.requests,
        "calls": [_call(draft, place) for place in range(len(draft.calls))],
        "parameters": list(_parameters(draft)),
        "literals": [_literal(literal, leaves.get(literal.at)) for literal in draft.explained],
        "references": sum(leaf.reference is not None for leaf in lifted.leaves),
        "taken": dict(draft.chosen),
        "rows": [row.to_json() for row in rows],
        "left_out": [call.shown for call in lifted.left_out],
        "consistent": fault is None,
        "difference": fault,
        "confirmed_by": agree,
        "not_confirmed_by": different,
        "offers": offers,
    }


def _call(draft: PlanDraft, place: int) -> JSONObject:
    lifted = draft.lifted
    entry: JSONObject = {
        "place": place,
        "tool": WrittenCall.of(draft.calls[place]).tool,
    }
    if place in draft.asks_mind:
        entry["asks_mind"] = True

    if place in lifted.decisions:
        entry["decision"] = True

    if lifted.kept_order and lifted.kept_order[place]:
        entry["after"] = list[JSON](sorted(lifted.kept_order[place]))

    return entry


def _parameters(draft: PlanDraft) -> Iterator[JSONObject]:
    fills: dict[str, list[JSON]] = {}
    for parameter in draft.parameters:
        name = draft.inputs.renamed.get(parameter.name, parameter.name)
        fills.setdefault(name, []).extend(leaf.path for leaf in parameter.leaves)

    takes = read_as(SchemaKeywords, draft.inputs.schema)
    for name, raw in takes.properties.items():
        declared = object_or_empty(raw)
        entry: JSONObject = {"name": name, "required": name in takes.required}
        for key in ("default", "description"):
            if key in declared:
                entry[key] = declared[key]

        entry["fills"] = fills.get(name, [])
        yield entry


def _literal(literal: Explained, leaf: Leaf | None) -> JSONObject:
    first, *others = literal.by
    entry: JSONObject = {
        "path": leaf.path if leaf is not None else ".".join(literal.at),
        "recorded": None if leaf is None else short(leaf.value),
        "from": first.shown,
        "instead": [other.shown for other in others[:_ALTERNATIVES]],
        "more": max(0, len(others) - _ALTERNATIVES),
        "runs": literal.runs,
    }
    if literal.why:
        entry["why"] = literal.why
    elif literal.cut:
        entry["why"] = "ideabridge did not look for all explanations"

    return entry


def _offers(draft: PlanDraft, store: Store, caller: str) -> Iterator[JSONObject]:
    """Yield the runs of the same shape, each with the literals that would lose an explanation if
    the run were named.
    """
    for run in runs_like(draft.lifted, store, caller):
        read = partial(run.read, arguments=draft.arguments(run))
        settles = [
            ".".join(literal.at) for literal in draft.explained if _contradicts(run, read, literal)
        ]
        yield {"run": run.run_id, "settles": list[JSON](settles)}


def _contradicts(run: AlignedRun, read: Read, literal: Explained) -> bool:
    recorded = run.leaf(literal.at)
    if isinstance(recorded, Missing):
        return False
    return not all(explanation.gives(recorded, read) for explanation in literal.by)


# -- the report as text ----------------------------------------------------------------------------


Line: TypeAlias = tuple[str, str | None]
"""A line of text and its style."""

_PARAMETERS: Final = ("parameter", "example", "if it is left out")
_VALUES: Final = ("value", "example", "for other input")


def report_lines(report: JSONObject, width: int | None = None) -> list[Line]:
    """Format the report for a terminal, as lines with styles.

    Args:
        report: the result of `report_of`; or, for a program, `{"reproduces": [runs], "copied":
            [text...], "unreached"?: [text...], "rows"?}`; or, for a run that cannot be a plan,
            `{"left_open": text}`.
        width: the width of the terminal in columns, or None to make tables as wide as their cells.
    """
    content = read_as(ToolReport, report)
    if content.left_open is not None:
        return [(f"no plan: {content.left_open}", "yellow")]
    if content.reproduces is not None:
        return [*table_lines(content.rows, width), *_program_lines(content)]

    calls = [_call_in_words(call) for call in content.calls]
    in_rows: list[str] = []
    for name, equal in groupby(calls):
        count = len(list(equal))
        in_rows.append(f"{name} ({count} times)" if count > 1 else name)

    lines: list[Line] = [(f"calls {joined(in_rows, _CALLS)}", "bold")]
    lines += table_lines(content.rows, width)
    lines += [(f"left out: {text}", "dim") for text in content.left_out]
    lines += [(f"offered: {text}", "dim") for text in _offered(content)]
    return [*lines, *_checked_lines(content)]


def table_lines(rows: Sequence[ReportRow], width: int | None = None) -> list[Line]:
    """Format the table of a tool as lines: first its parameters, then the values that cannot be
    passed.

    Args:
        rows: the rows.
        width: the width of the terminal in columns, or None to make the table as wide as its cells.
    """
    parameters = [row for row in rows if row.is_parameter]
    values = [row for row in rows if not row.is_parameter]
    lines: list[Line] = []
    if parameters:
        lines += _table(_PARAMETERS, parameters, width)
    else:
        lines.append(("takes no input", "bold"))

    if values:
        lines += [("", None), *_table(_VALUES, values, width)]

    return [*lines, ("", None)]


def _table(
    heads: tuple[str, str, str], rows: Sequence[ReportRow], width: int | None
) -> Iterator[Line]:
    """Yield the lines of a table. Rows for uncertain values are yellow."""
    titles = [*heads]
    cells = [[row.name, shortened(row.example, _EXAMPLE), row.otherwise] for row in rows]
    if any(row.description for row in rows) and (width is None or width >= _WIDE):
        titles.append("description")
        for row, cell in zip(rows, cells, strict=True):
            cell.append(row.description)

    styles: list[str | None] = ["bold", *(None if row.is_certain else "yellow" for row in rows)]
    for number, line in table_rows(titles, cells, width):
        yield line, styles[number]


def _program_lines(report: ToolReport) -> Iterator[Line]:
    runs = joined(report.reproduces or (), _CALLS)
    yield f"with the recorded results, it reproduces {runs}", "green"
    for text in report.copied:
        yield (
            f"possibly a recorded value that the program should take from a result: {text}",
            "yellow",
        )
    for text in report.unreached:
        yield text, "yellow"


def _checked_lines(report: ToolReport) -> Iterator[Line]:
    """Yield lines that say whether the plan, given the recorded results, reproduces the run."""
    if not report.consistent:
        yield f"not self-consistent: {report.difference}", "red"
        return

    yield "self-consistent: the recorded results give the recorded output", "green"
    if report.confirmed_by:
        yield f"confirmed by {joined(report.confirmed_by, _CALLS)}", "green"

    for text in report.not_confirmed_by:
        yield f"  {text}", "yellow"


def evidence_line(records: Sequence[JSONObject]) -> str:
    """Return a line that says how many later runs support the explanations of a plan.

    Args:
        records: the records of the plan's evidence.
    """
    counts = Counter(str(record.get("kind")) for record in records)
    runs = [f"{counts[kind]} {words}" for kind, words in KINDS.items() if counts[kind]]
    if not runs:
        return "no further runs"
    return f"further runs: {', '.join(runs)}"


def report_text(report: JSONObject) -> str:
    """Format the report for a model in at most 2,000 bytes: the most important parts in full, and
    only the names of omitted parts.
    """
    groups = _groups(read_as(ToolReport, report))
    room = _FOR_MODELS - _FOR_REST
    lines: list[str] = []
    omitted: list[str] = []
    for name, texts in groups:
        left = 0
        for text in texts:
            line = text if len(text) <= _LINE else f"{text[: _LINE - 3]}..."
            size = len(line.encode()) + 1
            if left or size > room:
                left += 1
                continue

            lines.append(line)
            room -= size

        if left:
            omitted.append(f"{left} {name}")

    if omitted:
        lines.append(
            f"left out here: {', '.join(omitted)}; run `ideas show` in a terminal to see them"
        )

    return "\n".join(lines)


def _groups(report: ToolReport) -> list[tuple[str, list[str]]]:
    """Return the lines of a report for a model, grouped by subject, most important group first."""
    if report.left_open is not None:
        return [("reasons", [f"no plan: {report.left_open}"])]

    parameters = [row for row in report.rows if row.is_parameter]
    needed = [_row_text(row) for row in parameters if row.otherwise == REQUIRED]
    others = [_row_text(row) for row in parameters if row.otherwise != REQUIRED]
    if report.reproduces is not None:
        checked = [text for text, _ in _program_lines(report)]
        return [("checks", checked), ("required parameters", needed), ("parameters", others)]

    values = [row for row in report.rows if not row.is_parameter]
    return [
        ("checks", [text for text, _ in _checked_lines(report)]),
        ("required parameters", needed),
        ("uncertain values", [_row_text(row) for row in values if not row.is_certain]),
        ("parameters", others),
        ("certain values", [_row_text(row) for row in values if row.is_certain]),
        ("failed calls", [f"left out: {text}" for text in report.left_out]),
        ("runs on offer", [f"offered: {text}" for text in _offered(report)]),
    ]


def _row_text(row: ReportRow) -> str:
    example = f" (e.g. {shortened(row.example, _EXAMPLE)})" if row.example else ""
    return f"{row.name}{example}: {row.otherwise}"


def _call_in_words(call: ReportedCall) -> str:
    asks = " (a mind is asked each time)" if call.asks_mind else ""
    return f"{call.tool}{asks}"


def _offered(report: ToolReport) -> Iterator[str]:
    for offer in report.offers:
        if offer.settles:
            yield (
                f"run {offer.run} made the same calls with other data, and would settle "
                f"{joined(offer.settles, _CALLS)}"
            )
