"""Ask: a person at the terminal decides about a call (DESIGN 4.6)."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import anyio
import anyio.to_thread

from ideabridge.server.cli.console import clean, err, report, say
from ideabridge.tools.encoding import JSON, JSONObject, decode
from ideabridge.tools.errors import IdeabridgeError

if TYPE_CHECKING:
    from ideabridge.bridge.run import Run


@dataclass(frozen=True, slots=True)
class Decision:
    """What the person said."""

    decision: Literal["approve", "deny", "edit"]
    call: JSONObject | None = None
    reason: str | None = None


async def ask_all(run: Run) -> None:
    """Ask about every pending approval of a run, one after another, and hand the decisions in."""
    from ideabridge.bridge.errors import DecisionError

    for entry in run.approvals():
        if not isinstance(entry, dict):
            continue
        approval = str(entry["approval"])
        while True:
            decision = await _ask(entry)
            try:
                run.decide(
                    approval,
                    decision.decision,
                    by="the person at the terminal",
                    call=decision.call,
                    reason=decision.reason,
                )
                break
            except DecisionError as error:
                report(str(error))


async def _ask(entry: JSONObject) -> Decision:
    call = entry.get("call")
    say(f"? {entry.get('why')}", "bold yellow")
    say(json.dumps(call, ensure_ascii=False, indent=2))
    while True:
        answer = await _line("  run it? y(es), n(o) [reason], e(dit): ")
        if answer is None:
            return Decision("deny", reason="nobody answered at the terminal")
        word, _, reason = answer.strip().partition(" ")
        if word.lower() in ("y", "yes"):
            return Decision("approve")
        if word.lower() in ("n", "no"):
            return Decision("deny", reason=reason.strip() or None)
        if word.lower() in ("e", "edit"):
            edited = await _edit(call)
            if edited is not None:
                return Decision("edit", call=edited)
        else:
            say("  y runs the call, n (and a reason) does not, e lets you change it first")


async def _line(prompt: str) -> str | None:
    """One line from the terminal; None at its end. Waiting can be cancelled (Ctrl-C)."""
    err().print(clean(prompt), end="")
    if sys.platform == "win32":
        text = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    else:
        # A terminal gives whole lines: readable means that reading does not block.
        await anyio.wait_readable(sys.stdin)
        text = sys.stdin.readline()
    return text if text else None


async def _edit(call: JSON) -> JSONObject | None:
    """The call as the person changed it: in $VISUAL or $EDITOR, else typed as one line of JSON. None: not changed."""
    text = json.dumps(call, ensure_ascii=False, indent=2) + "\n"
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if editor:
        descriptor, name = tempfile.mkstemp(suffix=".json", text=True)
        path = anyio.Path(name)
        try:
            os.close(descriptor)
            await path.write_text(text, encoding="utf-8")
            words = [*shlex.split(editor), name]
            result = await anyio.run_process(words, stdin=None, stdout=None, stderr=None, check=False)
            if result.returncode:
                report(f"the editor ended with {result.returncode}; nothing is changed")
                return None
            changed = await path.read_text(encoding="utf-8")
        except OSError as error:
            report(f"the editor {editor!r} cannot be started: {error.strerror or error}")
            return None
        finally:
            await path.unlink(missing_ok=True)
    else:
        typed = await _line("  the call as JSON, in one line: ")
        if typed is None:
            return None
        changed = typed
    try:
        value = decode(changed, what="the edited call")
    except IdeabridgeError as error:
        report(str(error))
        return None
    if not isinstance(value, dict):
        report("the edited call: expected a JSON object")
        return None
    return value
