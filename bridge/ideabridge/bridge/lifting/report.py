"""Report: what a lifted run becomes as a tool, as a short table for people and models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from ideabridge.bridge.context.explanations import WHEN, Explained, read_explained, same
from ideabridge.bridge.context.state import Missing, read
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.aligned import AlignedRun, Leaf, short
from ideabridge.bridge.lifting.alike import runs_like
from ideabridge.bridge.lifting.draft import PlanDraft
from ideabridge.bridge.lifting.evidence import KINDS
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject

_FOR_MODELS: Final = 2_000
"""The most characters of a report for a model."""

_ALTERNATIVES: Final = 3


def report_of(draft: PlanDraft, store: Store | None = None, caller: str = "") -> dict[str, Any]:
    """The report of a lifting. It contains no whole results.

    Args:
        draft: the run as a plan.
        store: where runs of the same shape are looked for, to offer them; None: nowhere.
        caller: the owner of these runs.

    Returns:
        `{"run", "requests", "calls": [{"place", "tool", "asks_mind"?, "decision"?, "after"?}],
        "parameters": [{"name", "default"?, "required", "description"?, "fills": [paths]}],
        "literals": [{"path", "recorded", "from", "instead": [text...], "runs", "why"?}], "references", "taken",
        "left_out": [text...], "consistent", "difference", "confirmed_by", "not_confirmed_by",
        "offers": [{"run", "settles": [paths]}]}`. `literals` are those that are not known for certain.
    """
    lifted = draft.lifted
    calls: list[JSON] = []
    for place, call in enumerate(draft.calls):
        entry: JSONObject = {"place": place, "tool": call.get("_tool") if isinstance(call, dict) else None}
        if place in draft.asks_mind:
            entry["asks_mind"] = True
        if place in lifted.decisions:
            entry["decision"] = True
        if lifted.kept_order and lifted.kept_order[place]:
            entry["after"] = list[JSON](sorted(lifted.kept_order[place]))
        calls.append(entry)
    try:
        fault = draft.difference()
    except PublicationError as error:
        fault = str(error)
    agree, different = draft.confirmations() if fault is None else ([], [])
    leaves = {leaf.at: leaf for leaf in lifted.leaves}
    return {
        "run": lifted.function.run.id,
        "requests": lifted.requests,
        "calls": calls,
        "parameters": list[JSON](_parameters(draft)),
        "literals": [_literal(one, leaves.get(one.at)) for one in draft.explained],
        "references": sum(leaf.reference is not None for leaf in lifted.leaves),
        "taken": dict[str, JSON](draft.chosen),
        "left_out": list[JSON](one.shown for one in lifted.left_out),
        "consistent": fault is None,
        "difference": fault,
        "confirmed_by": list[JSON](agree),
        "not_confirmed_by": list[JSON](different),
        "offers": [] if store is None else list[JSON](_offers(draft, store, caller)),
    }


def _parameters(draft: PlanDraft) -> Iterator[JSONObject]:
    fills: dict[str, list[JSON]] = {}
    for one in draft.parameters:
        name = draft.inputs.renamed.get(one.name, one.name)
        fills.setdefault(name, []).extend(leaf.path for leaf in one.leaves)
    properties, required = draft.inputs.schema.get("properties"), draft.inputs.schema.get("required")
    for name, schema in (properties if isinstance(properties, dict) else {}).items():
        entry: JSONObject = {"name": name, "required": isinstance(required, list) and name in required}
        for key in ("default", "description") if isinstance(schema, dict) else ():
            if isinstance(schema, dict) and key in schema:
                entry[key] = schema[key]
        yield {**entry, "fills": fills.get(name, [])}


def _literal(one: Explained, leaf: Leaf | None) -> JSONObject:
    taken, *others = one.by
    entry: JSONObject = {
        "path": leaf.path if leaf is not None else ".".join(one.at),
        "recorded": None if leaf is None else short(leaf.value),
        "from": taken.shown,
        "instead": [other.shown for other in others[:_ALTERNATIVES]],
        "more": max(0, len(others) - _ALTERNATIVES),
        "runs": one.runs,
    }
    why = one.why or ("not every explanation was looked for" if one.cut else None)
    return entry if why is None else {**entry, "why": why}


def _alternative(one: Explained, calls: list[JSON]) -> JSONObject:
    """A call that is not always made, and when it is."""
    place = int(one.at[1])
    call = calls[place] if place < len(calls) else None
    literal = _literal(one, None)
    return {
        "place": place,
        "tool": call.get("_tool") if isinstance(call, dict) else None,
        "when": literal["from"],
        "instead": literal["instead"],
        "more": literal["more"],
        "runs": one.runs,
    }


def _alternative_line(one: JSONObject) -> str:
    instead = one["instead"] if isinstance(one["instead"], list) else []
    others = "".join(f"; or when {text}" for text in instead)
    return f"  calls.{one['place']} {one['tool']}: made when {one['when']}{others}{_more(one)}"


def _more(one: JSONObject) -> str:
    return f" and {one['more']} more" if one.get("more") else ""


def _offers(draft: PlanDraft, store: Store, caller: str) -> Iterator[JSONObject]:
    """Runs of the same shape, with the literals of which they would remove an explanation."""
    for run in runs_like(draft.lifted, store, caller):
        settles = [".".join(one.at) for one in draft.explained if _contradicts(draft, run, one)]
        yield {"run": run.run_id, "settles": list[JSON](settles)}


def _contradicts(draft: PlanDraft, run: AlignedRun, one: Explained) -> bool:
    arguments = draft.arguments(run)
    place = None if one.at[0] == "output" else int(one.at[1])
    there = run.leaf(place, one.at[1:] if place is None else one.at[2:])
    if isinstance(there, Missing):
        return False
    values = [each.value(lambda text: run.read(text, arguments)) for each in one.by]
    return any(isinstance(value, Missing) or not same(value, there) for value in values)


# -- for people and models ------------------------------------------------------------------------------------------


def report_lines(report: JSONObject) -> list[tuple[str, str | None]]:
    """The report for a terminal: (text, style) of each line. Of a program, the report is `{"reproduces": [runs],
    "copied": [text...], "unreached"?: [text...]}`, and of a run that is no plan `{"left_open": text}`.
    """
    if "left_open" in report:
        return [(f"no plan: {report['left_open']}", "yellow")]
    if "reproduces" in report:
        copied = report["copied"]
        listed = copied if isinstance(copied, list) else []
        return [
            (f"with the recorded results it does what it should: {_joined(report['reproduces'])}", "green"),
            *((f"written down, not taken from a result? {one}", "yellow") for one in listed),
            *((text, "yellow") for text in _texts(report.get("unreached"))),
        ]
    calls = ", ".join(f"{one['place']} {one['tool']}{_notes(one)}" for one in _objects(report["calls"]))
    lines: list[tuple[str, str | None]] = [(f"run {report['run']}: calls {calls}", "bold")]
    parameters = _objects(report["parameters"])
    lines += [("takes", "cyan")] if parameters else [("takes no input", "cyan")]
    for one in parameters:
        default = f" = {short(one['default'], 40)}" if "default" in one else ""
        needed = "" if default or one["required"] else ", may be left out"
        fills = f"  fills {_joined(one['fills'])}" if one["fills"] else ""
        lines.append((f"  {one['name']}{default}{needed}{fills}", None))
    literals = _objects(report["literals"])
    if literals:
        lines.append(("copied values: what is taken for other data, and what it may be instead", "cyan"))
    for one in literals:
        lines.append((f"  {one['path']} = {one['recorded']}", None))
        lines.append((f"    {consequence(one)}", "yellow" if one["instead"] or "why" in one else "green"))
    left_out = report["left_out"]
    lines += [(f"left out: {one}", "dim") for one in (left_out if isinstance(left_out, list) else [])]
    lines += [(f"offered: {text}", "dim") for text in _offered(report)]
    if report["consistent"]:
        confirmed = report["confirmed_by"]
        lines.append(("self-consistent: the recorded results give the recorded output", "green"))
        lines += [(f"confirmed by {_joined(confirmed)}", "green")] if confirmed else []
        different = report["not_confirmed_by"]
        lines += [(f"  {one}", "yellow") for one in (different if isinstance(different, list) else [])]
    else:
        lines.append((f"not self-consistent: {report['difference']}", "red"))
    return lines


def evidence_lines(publication: Publication, records: list[JSONObject]) -> list[tuple[str, str | None]]:
    """The copied values of a published plan, with their explanations and the runs that support them, for a terminal.

    Args:
        publication: the version, under its current evidence.
        records: the records of its evidence.
    """
    plan = publication.plan or {}
    listed = (publication.learned or plan).get("explained")
    explained = [read_explained(one) for one in listed] if isinstance(listed, list) else []
    if not explained:
        return []
    counts = Counter(str(one.get("kind")) for one in records)
    runs = [f"{counts[kind]} {words}" for kind, words in KINDS.items() if counts[kind]]
    lines: list[tuple[str, str | None]] = [(f"copied values (further runs: {', '.join(runs) or 'no others'})", "cyan")]
    listed_calls = plan.get("calls")
    for one in explained:
        if one.at[2:] == (WHEN,):
            alternative = _alternative(one, listed_calls if isinstance(listed_calls, list) else [])
            lines.append((_alternative_line(alternative), "yellow" if alternative["instead"] else "green"))
            continue
        recorded = read(plan, one.at)
        literal = _literal(one, None)
        lines.append((f"  {literal['path']} = {short(None if isinstance(recorded, Missing) else recorded)}", None))
        sure = "" if one.runs == 1 else f"; {one.runs} runs agree"
        lines.append(
            (f"    {consequence(literal)}{sure}", "yellow" if literal["instead"] or "why" in literal else "green")
        )
    return lines


def consequence(literal: JSONObject) -> str:
    """Return what becomes of a copied value when the data are others, in one line."""
    taken = str(literal["from"])
    instead = literal["instead"] if isinstance(literal["instead"], list) else []
    more = _more(literal)
    if taken.startswith("always "):
        text = f"stays {taken.removeprefix('always ')} for every input"
    else:
        text = f"follows {taken}"
    if "why" in literal:
        text += f" ({literal['why']})"
    if instead:
        others = [
            f"it stays {str(one).removeprefix('always ')}" if str(one).startswith("always ") else str(one)
            for one in instead
        ]
        text += f"; or {'; or '.join(others)}{more}"
    return text


def report_text(report: JSONObject) -> str:
    """The report for a model, at most 2,000 characters."""
    lines = [text for text, _ in report_lines(report)]
    kept: list[str] = []
    size = 0
    for number, line in enumerate(lines):
        line = line if len(line) <= 200 else f"{line[:197]}..."
        if size + len(line) + 1 > _FOR_MODELS - 40:
            kept.append(f"... and {len(lines) - number} more lines")
            break
        kept.append(line)
        size += len(line) + 1
    return "\n".join(kept)


def _notes(call: JSONObject) -> str:
    notes = ["a mind is asked each time"] if call.get("asks_mind") else []
    notes += ["may have been a decision"] if call.get("decision") else []
    return f" ({'; '.join(notes)})" if notes else ""


def _offered(report: JSONObject) -> Iterator[str]:
    for one in _objects(report["offers"]):
        settles = one["settles"]
        count = len(settles) if isinstance(settles, list) else 0
        what = f"would settle {_joined(settles)}" if count else "would settle nothing"
        yield f"run {one['run']} made the same calls with other data, and {what}"


def _objects(value: JSON) -> list[JSONObject]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _texts(value: JSON) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _joined(value: JSON) -> str:
    listed = [str(one) for one in value] if isinstance(value, list) else []
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
