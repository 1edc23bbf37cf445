"""Asking: what a person must accept before a lifted plan may answer for other inputs, and the report of a lifting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from ideabridge.bridge.context.references import Path, Reference, parse_reference
from ideabridge.bridge.context.state import Missing, parsed_text
from ideabridge.bridge.errors import PublicationError, UndecidedError
from ideabridge.bridge.lifting.draft import PlanDraft, replacement_of, unknown_path
from ideabridge.bridge.lifting.function import all_before, plan_machine, reads_of, same
from ideabridge.bridge.lifting.lift import Lifted
from ideabridge.bridge.lifting.origins import Leaf, ValueSource, names_of, short
from ideabridge.bridge.loop.call import Call
from ideabridge.bridge.loop.graph import Graph
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.loop.solution import rejection
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError

# -- results that nothing reads -------------------------------------------------------------------------------------


def unread_parts(lifted: Lifted, graph: Graph) -> dict[int, list[ValueSource]]:
    """Return, by place, the parts of results that nothing in the plan reads and that were the same in every run.

    A part is a member of an object that is not an object itself. If another run made the same calls with another value
    of the part, the part decided nothing.
    """
    read = _reads(lifted, graph)
    return {
        place: [part for part in _unread_paths(place, value, read) if not _differs(lifted, part)]
        for place in range(len(lifted.aligned.calls))
        if not isinstance(value := lifted.aligned.document(place), Missing)
    }


def unread_input(lifted: Lifted, graph: Graph) -> list[ValueSource]:
    """Return the parts of the run's input, and other parameters of the tool, that nothing in the plan reads."""
    read = _reads(lifted, graph)
    given = lifted.function.input or {}
    declared = lifted.function.input_schema.get("properties")
    more = [key for key in declared if key not in given] if isinstance(declared, dict) else []
    found = [*_unread_paths(None, given, read), *(ValueSource(None, (key,)) for key in more)]
    return [part for part in found if part.path and not _covered(part, read)]


def _reads(lifted: Lifted, graph: Graph) -> set[ValueSource]:
    found = (lifted.aligned.source_in_plan(operand) for operand in _operands(graph))
    return {source for source in found if source is not None}


def _unread_paths(place: int | None, value: JSON, read: set[ValueSource]) -> Iterator[ValueSource]:
    return (part for path in _members(value, ()) if not _covered(part := ValueSource(place, path), read))


def _covered(part: ValueSource, read: set[ValueSource]) -> bool:
    return any(ValueSource(part.place, part.path[:depth]) in read for depth in range(len(part.path) + 1))


def _operands(graph: Graph) -> Iterator[Reference]:
    for call in graph.calls:
        for read in call.reads:
            yield from read.expression.operands()
    for hole in graph.output_holes:
        yield from hole.expression.operands()


def _members(value: JSON, path: Path) -> Iterator[Path]:
    inner: JSON | Missing = parsed_text(value) if isinstance(value, str) else value
    if isinstance(inner, dict) and inner:
        for key, item in inner.items():
            yield from _members(item, (*path, key))
    else:
        yield path


def _differs(lifted: Lifted, part: ValueSource) -> bool:
    mine = lifted.aligned.value(part)
    there = [other.value(part) for other in lifted.others]
    return not isinstance(mine, Missing) and any(isinstance(one, Missing) or not same(one, mine) for one in there)


def named(parts: Iterable[ValueSource]) -> str:
    """Return the first parts in one line: `calls.0.level, calls.0.size`."""
    texts = [".".join(names_of(part.place, part.path)) for part in parts]
    return ", ".join(texts[:5]) + (f" and {len(texts) - 5} more" if len(texts) > 5 else "")


# -- order of effects -----------------------------------------------------------------------------------------------


def unbound_orders(graph: Graph, apart: Mapping[int, set[int]] | None = None) -> list[str]:
    """Return the calls of one module and instance that have effects and that neither data nor `_after` put in order.

    Args:
        graph: the graph of the plan.
        apart: for a plan of several Requests, by call, the calls that it follows only because it followed them in the
            run. Each Request waits for the previous one, so the run kept the order of all calls with effects.

    Returns:
        `calls.0, calls.1 (send, send)` for each module and instance; equal lines of several instances only once.
    """
    groups: dict[tuple[str | None, str], list[int]] = {}
    for call in graph.calls:
        if call.tool is not None and _counts(call, several=apart is not None):
            module = call.tool.module if apart is None else None
            groups.setdefault((module, call.instance), []).append(call.index)
    groups = {key: group for key, group in groups.items() if len(group) > 1}
    if not groups:
        return []
    waits = {call.index: graph.depends_on(call) - (apart or {}).get(call.index, set()) for call in graph.calls}
    awaited: dict[int, set[int]] = {index: set() for index in waits}
    for index, others in waits.items():
        for other in others:
            awaited[other].add(index)
    before, after = _reachable(waits), _reachable(awaited)
    found: dict[str, None] = {}
    for group in groups.values():
        all_of_it = _mask(group)
        loose = [index for index in group if (before[index] | after[index] | 1 << index) & all_of_it != all_of_it]
        if loose:
            calls = [graph.call(index) for index in loose[:20]]
            places = ", ".join(f"calls.{call.place}" for call in calls)
            more = f", and {len(loose) - 20} more" if len(loose) > 20 else ""
            found[f"{places}{more} ({', '.join(call.name for call in calls)})"] = None
    return list(found)


def _counts(call: Call, *, several: bool) -> bool:
    if call.has_latent or call.room == "latent" or call.tool is None:
        return False
    said = call.tool.annotations
    return said.read_only is not True if several else said.declares_effects


def _mask(indices: list[int]) -> int:
    mask = 0
    for index in indices:
        mask |= 1 << index
    return mask


def _reachable(steps: dict[int, set[int]]) -> dict[int, int]:
    """The calls that each call leads to, in one step or several, as a bit mask."""
    found: dict[int, int] = {}
    for root in steps:
        stack = [root]
        open_: set[int] = set()
        while stack:
            index = stack[-1]
            if index in found:
                stack.pop()
                continue
            left = [one for one in steps[index] if one not in found and one not in open_]
            if left and index not in open_:
                open_.add(index)
                stack.extend(left)
                continue
            # A cycle through later alternatives does not order the calls in it.
            stack.pop()
            mask = 0
            for one in steps[index]:
                mask |= 1 << one | found.get(one, 0)
            found[index] = mask
    return found


# -- what a person must accept --------------------------------------------------------------------------------------

Kind: TypeAlias = Literal[
    "constant", "proposal", "selection", "varies", "later", "unread", "order", "left_out", "course"
]

_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Ask:
    """One thing to accept.

    Attributes:
        kind: see `_MESSAGES`; `varies` cannot be accepted.
        path: its name in `choices.accept`.
        text: its description, one line.
        leaf: the part of the plan that it concerns.
    """

    kind: Kind
    path: str
    text: str
    leaf: Leaf | None = None


def asks_of(draft: PlanDraft) -> list[Ask]:
    """Return every question, accepted or not.

    Raises:
        PublicationError: the plan cannot run by itself.
    """
    return [*_of_leaves(draft), *_of_course(draft)]


def open_asks(draft: PlanDraft) -> list[Ask]:
    """The questions that nobody has accepted yet."""
    return [one for one in asks_of(draft) if one.kind == "varies" or not draft.choices.accepts(one.path)]


def _of_leaves(draft: PlanDraft) -> Iterator[Ask]:
    for leaf in draft.lifted.leaves:
        if replacement_of(draft, leaf) is not None or leaf.demanded:
            continue
        notes = [one.shown for one in leaf.origins[:4]]
        if leaf.edited is not None and leaf.place is not None:
            notes.append(f"calls.{leaf.place} ({draft.lifted.kept[leaf.place].name}): a person changed it")
        note = f" ({', '.join(notes)})" if notes else ""
        if leaf.reference is not None and leaf.varies is None:
            if leaf.selects:
                yield Ask("selection", leaf.path, f"{leaf.path}: {leaf.selects}{note}", leaf)
        elif leaf.varies:
            yield Ask("varies", leaf.path, f"{leaf.shown}, but {leaf.varies}{note}", leaf)
        else:
            yield Ask("proposal" if leaf.origins else "constant", leaf.path, f"{leaf.shown}{note}", leaf)


def _of_course(draft: PlanDraft) -> Iterator[Ask]:
    lifted = draft.lifted
    for out in lifted.left_out:
        if out.matters:
            yield Ask("left_out", f"left_out.{out.index}", f"left_out.{out.index}: {out.shown}")
    if lifted.different_shapes:
        yield Ask("course", "course", f"course: {'; '.join(lifted.different_shapes[:5])}")
    graph = graph_of_plan(draft)
    if lifted.requests:
        yield from _unread_input(draft, graph)
    if lifted.requests > 1:
        unread = unread_parts(lifted, graph)
        open_ = {other for place in (*range(len(lifted.kept)), None) for other in _proposed(draft, place)}
        later = list(_later(draft, graph, unread, open_))
        yield from later
        yield from _unread(draft, graph, later, unread, open_)
    apart = dict(enumerate(lifted.kept_order)) if lifted.requests > 1 else None
    for order in unbound_orders(graph, apart):
        yield Ask("order", "order", f"order: {order}")


def graph_of_plan(draft: PlanDraft) -> Graph:
    """The graph of the plan as it would run.

    Raises:
        PublicationError: it cannot run by itself.
    """
    function = draft.lifted.function
    plan = draft.with_input(function.input or {})
    machine = plan_machine(function.run, draft.lifted.catalogue, plan)
    calls, places = plan.expanded()
    errors = machine.check(calls, plan.output, places)
    graph = machine.checked_graph
    if errors or graph is None:
        raise PublicationError(f"it cannot run by itself: {rejection(errors)}")
    return graph


def _later(draft: PlanDraft, graph: Graph, unread: dict[int, list[ValueSource]], open_: set[int]) -> Iterator[Ask]:
    kept = draft.lifted.kept
    steps = {call.index: reads_of(call) for call in graph.calls}
    for place, one in enumerate(kept):
        behind = all_before(steps, steps[place]) | _proposed(draft, place)
        if not one.chosen:
            continue
        said = f"later.{place}: calls.{place} ({one.name}) was proposed after results had been seen"
        if any(kept[other].chosen == one.chosen for other in steps[place] if other < len(kept)):
            # The call of its own Request that it reads is asked about instead.
            continue
        if not any(kept[other].step < one.chosen for other in behind if other < len(kept)):
            yield Ask("later", f"later.{place}", f"{said}, and reads none")
            continue
        seen = (other for other in unread if other not in open_ and kept[other].step < one.chosen)
        parts = [part for other in seen for part in unread[other]]
        if parts:
            yield Ask("later", f"later.{place}", f"{said} of which nothing reads {named(parts)}")


def _proposed(draft: PlanDraft, place: int | None) -> set[int]:
    """Return the calls that a call would read if its open proposals were taken: only these are asked about first."""
    return {
        origin.source.place
        for leaf in draft.lifted.leaves
        if leaf.place == place and replacement_of(draft, leaf) is None and not draft.choices.accepts(leaf.path)
        for origin in leaf.origins
        if origin.source.place is not None
    }


def _unread(
    draft: PlanDraft, graph: Graph, later: list[Ask], unread: dict[int, list[ValueSource]], open_: set[int]
) -> Iterator[Ask]:
    """Return questions about results that a mind saw and nothing reads: they may have influenced later calls."""
    kept = draft.lifted.kept
    read = {index for call in graph.calls for index in reads_of(call)} | open_
    for reads in graph.output_reads.values():
        for item in reads:
            read.update(index for alternative in item.bound for operand in alternative for index in operand or ())
    # What was seen before a call of `later` is named by that question.
    asked = max(
        (kept[place].chosen for place in range(len(kept)) if any(f"later.{place}" == one.path for one in later)),
        default=0,
    )
    for place, one in enumerate(kept):
        if not asked <= one.step < draft.lifted.requests - 1 or one.progress.status is not CallStatus.DONE:
            continue
        said = f"unread.{place}: the result of calls.{place} ({one.name}) had been seen, and nothing reads"
        if place not in read:
            yield Ask("unread", f"unread.{place}", f"{said} it")
        elif place not in open_ and unread[place]:
            yield Ask("unread", f"unread.{place}", f"{said} {named(unread[place])}")


def _unread_input(draft: PlanDraft, graph: Graph) -> Iterator[Ask]:
    """Return questions about parts of the input that a mind saw and nothing reads: they may have influenced calls."""
    open_ = {
        origin.source
        for leaf in draft.lifted.leaves
        if replacement_of(draft, leaf) is None and not draft.choices.accepts(leaf.path)
        for origin in leaf.origins
    }
    for part in unread_input(draft.lifted, graph):
        if not any(ValueSource(None, part.path[:depth]) in open_ for depth in range(len(part.path) + 1)):
            path = ".".join(("unread", "input", *names_of(None, part.path)[1:]))
            yield Ask("unread", path, f"{path}: the input was seen, and nothing reads this part of it")


# -- the error ------------------------------------------------------------------------------------------------------

_LET: Final = (
    'Let one read what the other gives, or accept the order (choices {"accept": ["order", ...]} or {"accept": true})'
)

_MESSAGES: Final[dict[Kind, tuple[str, str]]] = {
    "varies": (
        "these differ between the runs, and nothing explains them: {}",
        'say where they come from (choices {"take": {"calls.0.x": "†input.x"}})',
    ),
    "constant": (
        "these are constants, the same for every input: {}",
        'Make them references (†input...), accept them (choices {"accept": ["calls.0.x", ...]} or {"accept": true})',
    ),
    "proposal": (
        "these are equal to what had been seen before, which may be chance: {}",
        'Take where they come from (choices {"take": {"calls.0.x": "†input.x"}}), accept them, or name another run',
    ),
    "selection": (
        "these were selected after the values had been seen: {}",
        'Take a condition ({"take": {"calls.0.x": {"pick": "max_by(@, &a)", "from": "†results.0"}}}), or accept them',
    ),
    "later": (
        "these calls may have been chosen because of a result: {}",
        'Accept that they are always made (choices {"accept": ["later", ...]}), or name another run',
    ),
    "unread": (
        "what came after may have been chosen because of these results: {}",
        'Accept that it is always done (choices {"accept": ["unread", ...]})',
    ),
    "order": (
        "these calls have effects, and nothing but their listing puts them in order: {}",
        _LET,
    ),
    "left_out": (
        "these calls are left out: {}",
        'Accept it (choices {"accept": ["left_out", ...]})',
    ),
    "course": (
        "other runs of the same task did otherwise: {}",
        'Accept it (choices {"accept": ["course"]}), or name the runs that count ({"runs": [...]})',
    ),
}


def demand(draft: PlanDraft) -> None:
    """Check that exactly the existing questions were accepted.

    Raises:
        UndecidedError: a question is open.
        PublicationError: `accept` names a path without a question.
    """
    left = open_asks(draft)
    if left:
        paragraphs = list(_paragraphs(left))
        raise UndecidedError(
            f'{". And ".join(f"{what}. {how}" for what, how in paragraphs)}, or publish with answer "recorded"',
            [what for what, _ in paragraphs],
            [one.path for one in left if one.kind != "varies"],
            [one.path for one in left if one.kind == "varies"],
        )
    if isinstance(draft.choices.accept, bool):
        return
    leaves = [leaf.path for leaf in draft.lifted.leaves if leaf.reference is None or leaf.selects]
    known = [*leaves, *(one.path for one in asks_of(draft))]
    for path in draft.choices.accept:
        if not any(one == path or one.startswith(f"{path}.") for one in known):
            raise unknown_path("accept", path, known)


def _paragraphs(left: list[Ask]) -> Iterator[tuple[str, str]]:
    """(the open questions, how to answer them) for each kind."""
    for kind, (what, how) in _MESSAGES.items():
        texts = [one.text for one in left if one.kind == kind]
        if texts:
            more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
            yield what.format("; ".join(texts[:_SHOWN]) + more), how


# -- report ---------------------------------------------------------------------------------------------------------


def counts_of(draft: PlanDraft) -> JSONObject:
    """Count how the parameters and the output were written: `{"references", "proposals", "constants", "taken"}`.

    `references`: written by the mind; `proposals`: literals equal to a value it had seen; `constants`: other literals;
    `taken`: literals that a reference has replaced.
    """
    leaves = draft.lifted.leaves
    references = sum(leaf.reference is not None for leaf in leaves)
    proposals = sum(leaf.reference is None and bool(leaf.origins) for leaf in leaves)
    taken = sum(leaf.reference is None and replacement_of(draft, leaf) is not None for leaf in leaves)
    constants = len(leaves) - references - proposals
    return {"references": references, "proposals": proposals, "constants": constants, "taken": taken}


def report_of(draft: PlanDraft) -> dict[str, Any]:
    """The report of a lifting.

    Returns:
        `{"run", "requests", "calls": [{"place", "tool", "step", "parameters": [...], ...}], "output": [...],
        "left_out": [...], "asks": [{"path", "kind", "text", "accepted", "origins"}], "counts", "consistent",
        "confirmed_by", "not_confirmed_by", "plan"}`; a part is `{"path", "kind", "value", ...}`, where the kind is
        `input`, `derived`, `proposal` or `constant`.
    """
    lifted = draft.lifted
    calls: list[JSON] = []
    for place, call in enumerate(draft.calls):
        entry: JSONObject = {"place": place, "tool": call.get("_tool") if isinstance(call, dict) else None}
        if place < len(lifted.kept):
            one = lifted.kept[place]
            entry["step"] = one.step
            if one.edited is not None:
                entry["edited_by"] = one.edited
            if lifted.kept_order and lifted.kept_order[place]:
                entry["kept_after"] = list[JSON](sorted(lifted.kept_order[place]))
        if place in draft.asks_mind:
            entry["asks_mind"] = True
        entry["parameters"] = list[JSON](part_of(draft, leaf) for leaf in lifted.leaves if leaf.place == place)
        calls.append(entry)
    try:
        asks, fault = asks_of(draft), draft.difference()
    except PublicationError as error:
        asks, fault = [], str(error)
    agree, differ = draft.confirmations() if fault is None else ([], [])
    rest = list[JSON](part_of(draft, leaf) for leaf in lifted.leaves if leaf.place is None)
    return {
        "run": lifted.run,
        "requests": lifted.requests,
        "calls": calls,
        "output": rest,
        "left_out": list[JSON](one.shown for one in lifted.left_out),
        "asks": list[JSON](_ask(draft, one) for one in asks),
        "counts": counts_of(draft),
        "consistent": fault is None,
        "difference": fault,
        "compared": list[JSON](other.run_id for other in lifted.others),
        "confirmed_by": list[JSON](agree),
        "not_confirmed_by": list[JSON](differ),
        "plan": draft.plan(),
    }


def part_of(draft: PlanDraft, leaf: Leaf) -> JSONObject:
    """One part of the plan with its origin."""
    entry: JSONObject = {"path": leaf.path, "kind": "constant", "value": leaf.value}
    reference = replacement_of(draft, leaf)
    if reference is not None:
        entry["kind"] = _kind(reference)
        entry["reference"] = reference
        entry["by"] = "a person" if leaf.path in draft.choices.take else f"{leaf.agreed} runs"
    elif leaf.reference is not None:
        entry["kind"] = _kind(leaf.reference)
        entry["reference"] = leaf.reference
        entry["by"] = "the mind"
    elif leaf.demanded:
        entry["by"] = "the schema"
    elif leaf.origins:
        entry["kind"] = "proposal"
    if entry["kind"] == "constant" or entry["kind"] == "proposal":
        entry["accepted"] = leaf.demanded or (leaf.varies is None and draft.choices.accepts(leaf.path))
    if leaf.origins and reference is None:
        entry["origins"] = [one.take for one in leaf.origins]
    for name, text in (("selects", leaf.selects), ("varies", leaf.varies), ("edited_by", leaf.edited)):
        if text is not None:
            entry[name] = text
    return entry


def _kind(reference: str) -> str:
    try:
        operands = list(parse_reference(reference).operands())
    except IdeabridgeError:
        return "derived"
    return "input" if all(one.kind == "input" for one in operands) else "derived"


def _ask(draft: PlanDraft, ask: Ask) -> JSONObject:
    entry: JSONObject = {"path": ask.path, "kind": ask.kind, "text": ask.text}
    entry["accepted"] = ask.kind != "varies" and draft.choices.accepts(ask.path)
    if ask.leaf is not None and ask.leaf.origins:
        entry["origins"] = [one.take for one in ask.leaf.origins]
    return entry


def report_lines(report: JSONObject) -> list[tuple[str, str | None]]:
    """The report for a terminal: (text, style) of each line."""
    counts = report["counts"]
    lines: list[tuple[str, str | None]] = [(f"run {report['run']}, {_requests(report['requests'])}", "bold")]
    if isinstance(counts, dict):
        template = (
            "written as references: {references}; equal to a value seen before: {proposals}; constants: {constants}"
        )
        lines.append((f"  {template.format(**counts)}; made references: {counts['taken']}", "dim"))
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
