"""Idea as text: its context, plan and result, readable."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ideabridge.server.cli.console import show
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import META_PROPERTIES

if TYPE_CHECKING:
    from ideabridge.bridge.ideas.records import Publication, StoredIdea
    from ideabridge.bridge.ideas.store import Store

Lines = list[tuple[str, str | None]]
"""(text, style) of each line."""

LONGEST = 2000
"""Characters of one value shown; `export` has it whole."""


def result_of(store: Store, stored: StoredIdea) -> JSONObject:
    """What the run of the idea gave, if this store has the run and the idea was its last."""
    record = store.run(stored.meta.run) if stored.meta.run else None
    if record is None or record.summary is None or record.summary.get("idea") != stored.id:
        return {}
    kept: JSONObject = {key: record.summary[key] for key in ("output", "state", "reason") if key in record.summary}
    return {"run": record.id, "status": record.status, **kept}


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
    lines.append(("context", "bold"))
    for message in stored.idea.context:
        lines += _message(message)
    lines.append(("plan", "bold"))
    solution = stored.idea.solution if isinstance(stored.idea.solution, dict) else {}
    calls = solution.get("calls")
    for place, call in enumerate(calls if isinstance(calls, list) else []):
        lines += _call(place, call)
    if solution.get("output") is not None:
        lines.append(("  output", "cyan"))
        lines += _value(solution["output"], 4)
    if result:
        lines.append((f"result ({result['status']})", "bold"))
        lines += _value(result.get("output", result.get("state")), 2)
    return lines


def _message(message: JSON) -> Lines:
    if not isinstance(message, dict):
        return _value(message, 2)
    kind = str(message.get("type") or message.get("role") or "message")
    instance = f" {message['_instance']}" if message.get("_instance") else ""
    content = message.get("content", message.get(kind))
    return [(f"  {kind}{instance}", "cyan"), *_value(content, 4)]


def _call(place: int, call: JSON) -> Lines:
    if not isinstance(call, dict):
        return _value(call, 2)
    module = f"{call['_module']}/" if call.get("_module") else ""
    writes = f" -> {call['_outputPath']}" if call.get("_outputPath") else ""
    name = f" ({call['_id']})" if call.get("_id") else ""
    lines: Lines = [(f"  {place}. {module}{call.get('_tool')}{name}{writes}", "cyan")]
    for key, value in call.items():
        if key in META_PROPERTIES and key not in ("_each", "_after", "_instance", "_outputMethod", "_imports"):
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines += [
            (f"       {key}: {line}" if not index else f"         {line}", None)
            for index, line in enumerate(_cut(text).split("\n"))
        ]
    return lines


def _value(value: JSON, indent: int) -> Lines:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return _indented(_cut(text), indent)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text):,} characters)"


def _indented(text: str, indent: int) -> Lines:
    return [(" " * indent + line, None) for line in text.split("\n")]


def print_lines(lines: Lines) -> None:
    """Print them on standard output."""
    for text, style in lines:
        show(text, style)
