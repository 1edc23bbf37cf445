"""Ask: a person at the terminal answers what a run asks (DESIGN 4.6, 7)."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ideabridge.server.cli.console import err, report, say
from ideabridge.server.cli.fill_in import ask_form
from ideabridge.server.cli.inputs import value_of
from ideabridge.server.cli.typed import line
from ideabridge.tools.encoding import JSON, JSONObject, decode
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.visible import folded, visible

if TYPE_CHECKING:
    from ideabridge.bridge.loop.event import Event
    from ideabridge.bridge.people import Decision
    from ideabridge.bridge.run import Run


async def ask_all(run: Run) -> None:
    """Ask about every pending approval of a run, one after another, and hand the decisions in. A question that is
    settled without an answer (its time is up, say) is taken back.
    """
    for entry in run.approvals():
        if not isinstance(entry, dict):
            continue
        await _settle(run, str(entry["approval"]), entry)


async def decline_all(run: Run) -> bool:
    """Decline what modules ask, where nobody is at a terminal: their calls would be cut off when this process ends.

    Returns:
        Whether something was asked.
    """
    from ideabridge.bridge.loop.decider import NOBODY_THERE

    asked = [one for one in run.approvals() if isinstance(one, dict) and "question" in one]
    for entry in asked:
        question = entry.get("question")
        module = question.get("module") if isinstance(question, dict) else None
        report(f"module {module!r} asks something, and is declined: nobody is at a terminal to answer")
        reason = "nobody is at a terminal to answer"
        await run.patiently(partial(run.decide, str(entry["approval"]), "deny", by=NOBODY_THERE, reason=reason))
    return bool(asked)


async def _settle(run: Run, approval: str, entry: JSONObject) -> None:
    from ideabridge.bridge.errors import DecisionError
    from ideabridge.bridge.loop.decider import AT_TERMINAL

    while _is_pending(run, approval):
        decision = await _while_pending(run, approval, entry)
        if decision is None:
            report("this call is settled already; nobody needs to decide on it any more")
            return
        try:
            await run.patiently(partial(run.settle, approval, replace(decision, by=AT_TERMINAL)))
        except DecisionError as error:
            report(str(error))


def _is_pending(run: Run, approval: str) -> bool:
    return any(isinstance(one, dict) and one.get("approval") == approval for one in run.approvals())


async def _while_pending(run: Run, approval: str, entry: JSONObject) -> Decision | None:
    """What the person says; None where the call is settled before."""
    import anyio

    with anyio.CancelScope() as scope:

        def watch(_event: Event) -> None:
            if not _is_pending(run, approval):
                scope.cancel()

        with run.watching(watch):
            return await _ask(entry)
    return None


def _width() -> int | None:
    return err().width if sys.stderr.isatty() else None


async def _ask(entry: JSONObject) -> Decision:
    question = entry.get("question")
    if isinstance(question, dict):
        return await ask_form(question, entry.get("call"))
    say(f"? {entry.get('why')}", "bold yellow")
    plan = entry.get("plan")
    if isinstance(plan, dict):
        shown: JSONObject = {key: plan.get(key) for key in ("calls", "output")}
        say(whole(shown, _width()))
        say("in this order (names and values shortened):", "dim")
        say(visible(str(plan.get("drawing")).rstrip("\n"), keep="\n "))
        return await _ask_whether(shown, is_plan=True)
    say(whole(entry.get("call"), _width()))
    return await (_ask_outcome() if entry.get("choices") else _ask_whether(entry.get("call"), is_plan=False))


def whole(value: JSON, width: int | None) -> str:
    """All of a value, as JSON in lines, so that a person sees every character of it.

    Args:
        value: the value.
        width: columns of the terminal: what is longer goes on in lines that begin with a mark; None: nothing is broken.
    """
    lines: list[str] = []
    for text in json.dumps(value, ensure_ascii=False, indent=2).split("\n"):
        inner = text.lstrip(" ")
        indent = text[: len(text) - len(inner)]
        if width is None:
            lines.append(indent + visible(inner))
        else:
            lines += folded(visible(inner), width, first=indent, further=f"{indent}  | ")
    return "\n".join(lines)


async def _ask_whether(shown: JSON, *, is_plan: bool) -> Decision:
    from ideabridge.bridge.people import Decision

    what = "plan" if is_plan else "call"
    while True:
        answer = await line("  run it? y(es), n(o) [reason], e(dit): ")
        if answer is None:
            return Decision("deny", reason="nobody answered at the terminal")
        word, _, reason = answer.strip().partition(" ")
        if word.lower() in ("y", "yes"):
            return Decision("approve")
        if word.lower() in ("n", "no"):
            return Decision("deny", reason=reason.strip() or None)
        if word.lower() in ("e", "edit"):
            edited = await _edit(shown, what)
            if edited is not None:
                return Decision("edit", plan=edited) if is_plan else Decision("edit", call=edited)
        else:
            say(f"  y runs the {what}, n (and a reason) does not, e lets you change it first")


async def _ask_outcome() -> Decision:
    from ideabridge.bridge.people import Decision

    while True:
        answer = await line("  what came of it? r(etry), s(kip) [reason], v(alue) JSON: ")
        if answer is None:
            return Decision("skip", reason="nobody answered at the terminal")
        word, _, rest = answer.strip().partition(" ")
        if word.lower() in ("r", "retry"):
            return Decision("retry")
        if word.lower() in ("s", "skip"):
            return Decision("skip", reason=rest.strip() or None)
        if word.lower() in ("v", "value") and rest.strip():
            return Decision("value", value=value_of(rest.strip()))
        say("  r runs the call again, s (and a reason) lets it fail as unknown, v and JSON says what its result was")


async def _edit(call: JSON, what: str) -> JSONObject | None:
    """What is shown as the person changed it: in $VISUAL or $EDITOR, else typed as one line of JSON. None: as is."""
    text = json.dumps(call, ensure_ascii=False, indent=2) + "\n"
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if editor:
        descriptor, name = tempfile.mkstemp(suffix=".json", text=True)
        import anyio

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
        typed = await line(f"  the {what} as JSON, in one line: ")
        if typed is None:
            return None
        changed = typed
    try:
        value = decode(changed, what=f"the edited {what}")
    except IdeabridgeError as error:
        report(str(error))
        return None
    if not isinstance(value, dict):
        report(f"the edited {what}: expected a JSON object")
        return None
    return value
