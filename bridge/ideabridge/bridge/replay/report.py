"""Report: what lifting found, part by part, so that a person can decide with one look (DESIGN 4.11)."""

from __future__ import annotations

from typing import Any

from ideabridge.bridge.context.reference import parse_reference
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.replay.asking import Ask, asks_of
from ideabridge.bridge.replay.decide import Decided, stands
from ideabridge.bridge.replay.leaves import Leaf, short
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError


def counts_of(decided: Decided) -> JSONObject:
    """How the parameters and the output were written: `{"references", "proposals", "constants", "taken"}`.

    `references`: by the mind; `proposals`: literals equal to what it had seen; `constants`: other literals; `taken`:
    literals in whose place a reference stands now.
    """
    leaves = decided.lifted.leaves
    references = sum(leaf.reference is not None for leaf in leaves)
    proposals = sum(leaf.reference is None and bool(leaf.origins) for leaf in leaves)
    taken = sum(leaf.reference is None and stands(decided, leaf) is not None for leaf in leaves)
    constants = len(leaves) - references - proposals
    return {"references": references, "proposals": proposals, "constants": constants, "taken": taken}


def report_of(decided: Decided) -> dict[str, Any]:
    """The report.

    Returns:
        `{"run", "requests", "calls": [{"place", "tool", "step", "parameters": [...], ...}], "output": [...],
        "left_out": [...], "asks": [{"path", "kind", "text", "accepted", "origins"}], "counts", "consistent",
        "confirmed_by", "not_confirmed_by", "plan"}`; a part is `{"path", "kind", "value", ...}`, where the kind is
        `input`, `derived`, `proposal` or `constant`.
    """
    lifted = decided.lifted
    calls: list[JSON] = []
    for place, call in enumerate(decided.calls):
        told: JSONObject = {"place": place, "tool": call.get("_tool") if isinstance(call, dict) else None}
        if place < len(lifted.kept):
            one = lifted.kept[place]
            told["step"] = one.step
            if one.edited is not None:
                told["edited_by"] = one.edited
            if lifted.kept_order and lifted.kept_order[place]:
                told["kept_after"] = list[JSON](sorted(lifted.kept_order[place]))
        if place in decided.asks_mind:
            told["asks_mind"] = True
        told["parameters"] = list[JSON](part_of(decided, leaf) for leaf in lifted.leaves if leaf.place == place)
        calls.append(told)
    try:
        asks, fault = asks_of(decided), decided.difference()
    except PublicationError as error:
        asks, fault = [], str(error)
    agree, differ = decided.confirmations() if fault is None else ([], [])
    rest = list[JSON](part_of(decided, leaf) for leaf in lifted.leaves if leaf.place is None)
    return {
        "run": lifted.run,
        "requests": lifted.requests,
        "calls": calls,
        "output": rest,
        "left_out": list[JSON](one.shown for one in lifted.left_out),
        "asks": list[JSON](_ask(decided, one) for one in asks),
        "counts": counts_of(decided),
        "consistent": fault is None,
        "difference": fault,
        "compared": list[JSON](other.run_id for other in lifted.others),
        "confirmed_by": list[JSON](agree),
        "not_confirmed_by": list[JSON](differ),
        "plan": decided.plan(),
    }


def part_of(decided: Decided, leaf: Leaf) -> JSONObject:
    """One part: what it is, and where it comes from."""
    told: JSONObject = {"path": leaf.path, "kind": "constant", "value": leaf.value}
    reference = stands(decided, leaf)
    if reference is not None:
        told["kind"] = _kind(reference)
        told["reference"] = reference
        told["by"] = "a person" if leaf.path in decided.choices.take else f"{leaf.agreed} runs"
    elif leaf.reference is not None:
        told["kind"] = _kind(leaf.reference)
        told["reference"] = leaf.reference
        told["by"] = "the mind"
    elif leaf.demanded:
        told["by"] = "the schema"
    elif leaf.origins:
        told["kind"] = "proposal"
    if told["kind"] == "constant" or told["kind"] == "proposal":
        told["accepted"] = leaf.demanded or (leaf.varies is None and decided.choices.accepts(leaf.path))
    if leaf.origins and reference is None:
        told["origins"] = [one.take for one in leaf.origins]
    for name, text in (("selects", leaf.selects), ("varies", leaf.varies), ("edited_by", leaf.edited)):
        if text is not None:
            told[name] = text
    return told


def _kind(reference: str) -> str:
    try:
        operands = list(parse_reference(reference).operands())
    except IdeabridgeError:
        return "derived"
    return "input" if all(one.kind == "input" for one in operands) else "derived"


def _ask(decided: Decided, ask: Ask) -> JSONObject:
    told: JSONObject = {"path": ask.path, "kind": ask.kind, "text": ask.text}
    told["accepted"] = ask.kind != "varies" and decided.choices.accepts(ask.path)
    if ask.leaf is not None and ask.leaf.origins:
        told["origins"] = [one.take for one in ask.leaf.origins]
    return told


def report_lines(report: JSONObject) -> list[tuple[str, str | None]]:
    """The report for a terminal: (text, style) of each line."""
    counts = report["counts"]
    lines: list[tuple[str, str | None]] = [(f"run {report['run']}, {_requests(report['requests'])}", "bold")]
    if isinstance(counts, dict):
        told = "written as references: {references}; equal to a value seen before: {proposals}; constants: {constants}"
        lines.append((f"  {told.format(**counts)}; made references: {counts['taken']}", "dim"))
    for call in _objects(report["calls"]):
        notes = [f"Request {call['step']}"] if "step" in call else ["added"]
        notes += [f"changed by {call['edited_by']}"] if "edited_by" in call else []
        after = call.get("kept_after")
        notes += [f"after {', '.join(f'calls.{one}' for one in after)}"] if isinstance(after, list) else []
        notes += ["a mind is asked each time"] if call.get("asks_mind") else []
        lines.append((f"calls.{call['place']} {call['tool']}  ({'; '.join(notes)})", "cyan"))
        lines += [_part_line(part) for part in _objects(call["parameters"])]
    lines.append(("output", "cyan"))
    lines += [_part_line(part) for part in _objects(report["output"])]
    left_out = report["left_out"]
    lines += [(f"left out: {one}", "dim") for one in (left_out if isinstance(left_out, list) else [])]
    lines += _ask_lines(_objects(report["asks"]))
    if report["consistent"]:
        confirmed, compared = report["confirmed_by"], report["compared"]
        lines.append(("self-consistent: the recorded results give the recorded output", "green"))
        if confirmed:
            lines.append((f"confirmed by {_names(confirmed)}", "green"))
        elif compared:
            lines.append((f"compared with {_names(compared)}; not confirmed yet", "yellow"))
        differ = report["not_confirmed_by"]
        lines += [(f"  {one}", "dim") for one in (differ if isinstance(differ, list) else [])]
    else:
        lines.append((f"not self-consistent: {report['difference']}", "red"))
    return lines


def _ask_lines(asks: list[JSONObject]) -> list[tuple[str, str | None]]:
    lines: list[tuple[str, str | None]] = []
    for ask in asks:
        done = bool(ask["accepted"])
        mark = "accepted" if done else "must be taken from somewhere" if ask["kind"] == "varies" else "to accept"
        lines.append((f"{mark}: {ask['text']}", "dim" if done else "yellow"))
    return lines


def _part_line(part: JSONObject) -> tuple[str, str | None]:
    kind = str(part["kind"])
    what = short(part["value"])
    if "reference" in part:
        text = f"{kind} {part['reference']} (by {part['by']}), was {what}"
    elif kind == "proposal":
        text = f"proposal {what}, equal to {_origins(part)}"
    else:
        text = f"constant {what}" + (" (the schema allows nothing else)" if part.get("by") else "")
    for name in ("selects", "varies"):
        text += f"; {part[name]}" if name in part else ""
    styles = {"input": "green", "derived": "green", "proposal": "yellow", "constant": None}
    return f"  {part['path']}: {text}", styles[kind]


def _origins(part: JSONObject) -> str:
    found = part.get("origins")
    texts = [
        one
        if isinstance(one, str)
        else f"pick {one.get('pick')} from {one.get('from')}"
        if isinstance(one, dict)
        else ""
        for one in (found if isinstance(found, list) else [])
    ]
    return ", ".join(texts)


def _objects(value: JSON) -> list[JSONObject]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _names(value: JSON) -> str:
    return ", ".join(str(one) for one in value) if isinstance(value, list) else ""


def _requests(value: JSON) -> str:
    return "a plan" if not value else f"{value} Request{'' if value == 1 else 's'}"
