"""Idea as text: what it is, and what runs when it is called, every call of it whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ideabridge.server.cli.console import show
from ideabridge.tools.encoding import JSON, JSONObject

if TYPE_CHECKING:
    from ideabridge.bridge.ideas.portable import Document
    from ideabridge.bridge.ideas.records import Publication, StoredIdea
    from ideabridge.bridge.ideas.store import Store

Lines = list[tuple[str, str | None]]
"""(text, style) of each line."""

LONGEST = 2000
"""Characters shown of a message of a context and of a result; `export` has them whole. What runs is never cut."""


def result_of(store: Store, stored: StoredIdea) -> JSONObject:
    """What the run of the idea gave, if this store has the run and the idea was its last."""
    record = store.run(stored.meta.run) if stored.meta.run else None
    if record is None or record.summary is None or record.summary.get("idea") != stored.id:
        return {}
    # An earlier ideabridge noted what a run gave beside its journal, too.
    kept: JSONObject = {key: record.summary[key] for key in ("output", "state") if key in record.summary}
    if not kept:
        from ideabridge.bridge.loop.journaled import JournalError

        try:
            kept = _given(store, record.id)
        except JournalError as error:
            kept = {"error": str(error)}
    return {"run": record.id, "status": record.status, **kept, "reason": record.summary.get("reason")}


def _given(store: Store, run: str) -> JSONObject:
    """What a run that has ended gave, from its journal."""
    from ideabridge.bridge.loop.event import event_from_json
    from ideabridge.bridge.loop.machine import Machine
    from ideabridge.bridge.run_values import given_by

    machine = Machine()
    for _, event in store.events(run):
        machine.receive(event_from_json(event))
    return {"output" if machine.has_output else "state": given_by(machine)}


def idea_lines(stored: StoredIdea, result: JSONObject, publication: Publication | None) -> Lines:
    """The idea, readable."""
    meta = stored.meta
    lines: Lines = [(f"idea {stored.id}", "bold")]
    for name, text in (
        ("title", meta.title),
        ("saved", meta.time),
        ("run", f"{meta.run}, step {meta.step}" if meta.run else ""),
        ("mind", " ".join(part for part in (meta.mind, meta.model) if part)),
        ("outcome", meta.outcome),
        ("tools", ", ".join(meta.tools)),
    ):
        if text:
            lines.append((f"  {name + ':':<11}{text}", None))
    if publication is not None:
        state = "" if publication.live else " (not the one the name stands for now)"
        told = f"{publication.name}, version {publication.version}, answers by {publication.answer}{state}"
        lines.append((f"  {'published:':<11}{told}", "green"))
        lines += _indented(publication.description, 2)
        lines += _running(publication.answer, publication.plan, publication.recorded)
        lines.append(("context of its run", "bold"))
    else:
        lines.append(("context", "bold"))
    for message in stored.idea.context:
        lines += _message(message)
    if publication is None:
        lines.append(("plan", "bold"))
        lines += _plan(stored.idea.solution)
    if result:
        lines.append((f"result ({result['status']})", "bold"))
        if "error" in result:
            lines.append((f"  {result['error']}", None))
        else:
            lines += _value(result.get("output", result.get("state")), 2)
    return lines


def document_lines(document: Document) -> Lines:
    """What an exported idea would be here, readable."""
    lines: Lines = [(f"idea {document.idea.id}", "bold")]
    if document.meta.title:
        lines.append((f"  {'title:':<11}{document.meta.title}", None))
    if document.publication is None:
        return [*lines, ("plan", "bold"), *_plan(document.idea.solution)]
    told = document.publication_members()
    lines.append((f"  {'name:':<11}{told['name']}, answers by {told['answer']}", "green"))
    lines += _indented(told["description"], 2)
    for what in ("input_schema", "output_schema"):
        if told[what] is not None:
            lines.append((f"  {what}: {json.dumps(told[what], ensure_ascii=False)}", None))
    return [*lines, *_running(told["answer"], told["plan"], told["recorded"])]


def _running(answer: str, plan: JSON, recorded: JSON) -> Lines:
    """What a call of a publication does."""
    kept = recorded if isinstance(recorded, dict) else {}
    if answer == "recorded":
        lines: Lines = [("nothing runs; it answers, for the input it was recorded with, by", "bold")]
        return [*lines, *_whole(kept.get("output"), 2)]
    if answer != "solve" and isinstance(plan, dict):
        return [("the plan that runs", "bold"), *_plan(plan)]
    guide = kept.get("solve")
    body = guide if isinstance(guide, dict) else {}
    lines = [("a mind solves it anew; its run begins with", "bold")]
    context = body.get("context")
    for message in context if isinstance(context, list) else []:
        lines += _message(message, whole=True)
    lines.append((f"  tools: {json.dumps(body.get('tools'), ensure_ascii=False)}", None))
    return [*lines, ("guided by the plan", "bold"), *_plan(body.get("plan"))] if body.get("plan") else lines


def _plan(solution: JSON) -> Lines:
    """Calls and output of a plan or a solution, every value whole."""
    body = solution if isinstance(solution, dict) else {}
    calls = body.get("calls")
    lines: Lines = []
    for place, call in enumerate(calls if isinstance(calls, list) else []):
        lines += _call(place, call)
    for key, value in body.items():
        if key not in ("calls", "lifting", "reading") and value is not None:
            lines += [(f"  {key}", "cyan"), *_whole(value, 4)]
    return lines


def _message(message: JSON, *, whole: bool = False) -> Lines:
    shown = _whole if whole else _value
    if not isinstance(message, dict):
        return shown(message, 2)
    kind = str(message.get("type") or message.get("role") or "message")
    instance = f" {message['_instance']}" if message.get("_instance") else ""
    content = message.get("content", message.get(kind))
    return [(f"  {kind}{instance}", "cyan"), *shown(content, 4)]


def _call(place: int, call: JSON) -> Lines:
    if not isinstance(call, dict):
        return _whole(call, 2)
    module = f"{call['_module']}/" if call.get("_module") else ""
    writes = f" -> {call['_outputPath']}" if call.get("_outputPath") else ""
    name = f" ({call['_id']})" if call.get("_id") else ""
    lines: Lines = [(f"  {place}. {module}{call.get('_tool')}{name}{writes}", "cyan")]
    for key, value in call.items():
        if key in ("_tool", "_module", "_outputPath", "_id"):
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines += [
            (f"       {key}: {line}" if not index else f"         {line}", None)
            for index, line in enumerate(text.split("\n"))
        ]
    return lines


def _value(value: JSON, indent: int) -> Lines:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return _indented(_cut(text), indent)


def _whole(value: JSON, indent: int) -> Lines:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return _indented(text, indent)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text):,} characters)"


def _indented(text: str, indent: int) -> Lines:
    return [(" " * indent + line, None) for line in text.split("\n")]


def print_lines(lines: Lines) -> None:
    """Print them on standard output."""
    for text, style in lines:
        show(text, style)
