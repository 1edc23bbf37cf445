"""Input from a person: `--input` and file arguments, and the questions that are asked at the terminal."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ideabridge.server.cli.console import UsageError, err, read_line, report, say
from ideabridge.tools.encoding import JSON, JSONObject, decode
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import visible, wrap_visible

if TYPE_CHECKING:
    from ideabridge.bridge.loop.event import Event
    from ideabridge.bridge.runs.people import Decision
    from ideabridge.bridge.runs.run import Run


MAX_FILE_BYTES: Final = 128 * 1024 * 1024
"""How much is read of a file: twice the largest idea (`MAX_DOCUMENT_BYTES`), which may be written with indents."""


def read_json(place: str, what: str, *, follow: bool = True) -> JSON:
    """The JSON in a file, or on standard input where `place` is `-`.

    Args:
        place: names it.
        what: the option or argument, for errors.
        follow: whether a link is followed; only what a person named is.

    Raises:
        UsageError: it cannot be read, is larger than `MAX_FILE_BYTES`, or is not JSON.
    """
    name = "standard input" if place == "-" else place
    try:
        if place == "-":
            data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
            if not follow:
                flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            with os.fdopen(os.open(Path(place).expanduser(), flags), "rb") as file:
                # The size of what is no plain file is not known before it is read.
                size = os.fstat(file.fileno()).st_size
                data = file.read(MAX_FILE_BYTES + 1) if size <= MAX_FILE_BYTES else None
    except OSError as error:
        raise UsageError(f"{what}: {place} cannot be read: {error.strerror or error}") from None
    if data is None or len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{what}: {name} has more than {MAX_FILE_BYTES:,} bytes, which is all that is read")
    try:
        return decode(data.removeprefix(b"\xef\xbb\xbf"), what=name)
    except IdeabridgeError as error:
        raise UsageError(str(error)) from None


def read_input(words: list[str] | None, option: str = "--input") -> JSONObject | None:
    """What `--input` gives, taken together in order; None where it was not given.

    Each is a JSON object, `@FILE` with one (`@-`: standard input), or `key=value`, where the value is JSON if it
    reads as JSON, else text.

    Raises:
        UsageError: it is none of these.
    """
    if words is None:
        return None
    result: JSONObject = {}
    for word in words:
        key, equals, value = word.partition("=")
        if word.lstrip().startswith("{"):
            result.update(_object(_decoded(word, option), option))
        elif word.startswith("@"):
            result.update(_object(read_json(word[1:], option), f"{option} {word}"))
        elif equals and key:
            result[key] = value_of(value)
        else:
            raise UsageError(f"{option}: expected a JSON object, @FILE or key=value, found {word[:60]!r}")
    return result


def _decoded(word: str, option: str) -> JSON:
    try:
        return decode(word, what=option)
    except IdeabridgeError as error:
        raise UsageError(str(error)) from None


def _object(value: JSON, what: str) -> JSONObject:
    if not isinstance(value, dict):
        raise UsageError(f"{what}: expected a JSON object")
    return value


def as_object(value: JSON) -> JSONObject:
    """The value if it is a JSON object, else an empty object."""
    return value if isinstance(value, dict) else {}


def value_of(text: str) -> JSON:
    """The JSON a text is; the text itself where it is none."""
    try:
        return decode(text, what="value")
    except IdeabridgeError:
        return text


# -- forms -------------------------------------------------------------------------------------------------------------

_YES: Final = ("y", "yes", "true")
_NO: Final = ("n", "no", "false")

_NESTED: Final = ("array", "object")
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


async def ask_form(question: JSONObject, call: JSON) -> Decision:
    """What the person says to a module's question.

    Args:
        question: `{"module", "message", "schema"}`.
        call: the call that asks.
    """
    from ideabridge.bridge.runs.people import Decision

    say(f"? module {question.get('module')} asks, in its own words:", "bold yellow")
    for text in str(question.get("message")).split("\n"):
        say(f"  | {visible(text)}")
    say("  what you fill in goes to the module; do not write a password or a token into it")
    say(f"  while it runs {visible(json.dumps(call, ensure_ascii=False))}")
    while True:
        answer = await read_line("  answer it? y(es), n(o) [reason], s(kip): ")
        if answer is None:
            return Decision("skip", reason="nobody answered at the terminal")
        word, _, reason = answer.strip().partition(" ")
        if word.lower() in ("n", "no"):
            return Decision("deny", reason=reason.strip() or None)
        if word.lower() in ("s", "skip"):
            return Decision("skip")
        if word.lower() in ("y", "yes"):
            content = await _fields(question.get("schema"))
            if content is not None:
                return Decision("value", value=content)
        say("  y fills in its form, n (and a reason) tells it no, s tells it nothing")


async def ask_input(schema: JSONObject, given: JSONObject) -> JSONObject | None:
    """Ask the person for the input of a tool: what it requires, and then what may be left out.

    Args:
        schema: JSON Schema of the input.
        given: what is there already.

    Returns:
        The input with what was given, or None where the person stopped.
    """
    fields = schema.get("properties")
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    asked = {name: field for name, field in (fields if isinstance(fields, dict) else {}).items() if name not in given}
    found = dict(given)
    for name, field in sorted(asked.items(), key=lambda one: one[0] not in needed):
        told = field if isinstance(field, dict) else {}
        while True:
            typed = await read_line(f"  {_named(name, told)}{'' if name in needed else ' (may be left out)'}: ")
            if typed is None:
                return None
            text = typed.strip()
            if not text and name not in needed:
                break
            value = text if told.get("type") == "string" else value_of(text)
            if text and _is(value, told.get("type")):
                found[name] = value
                break
            say(
                f"  expected {told.get('type', 'a value')}{', as JSON' if told.get('type') in _NESTED else ''}",
                "yellow",
            )
    return found


def _is(value: JSON, kind: JSON) -> bool:
    """Whether a value is of a JSON type; of a kind that is not one, nothing is said."""
    expected = _TYPES.get(kind) if isinstance(kind, str) else None
    return expected is None or (isinstance(value, expected) and (kind == "boolean" or not isinstance(value, bool)))


async def _fields(schema: JSON) -> JSONObject | None:
    """What the person fills in; None where they stopped."""
    fields = schema.get("properties") if isinstance(schema, dict) else None
    required = schema.get("required") if isinstance(schema, dict) else None
    content: JSONObject = {}
    for name, field in (fields if isinstance(fields, dict) else {}).items():
        told = field if isinstance(field, dict) else {}
        needed = isinstance(required, list) and name in required
        typed = await read_line(f"  | {_named(name, told)}{'' if needed else ' (may be left out)'}: ")
        if typed is None:
            return None
        text = typed.strip()
        if text:
            content[name] = _value(text, told)
        elif "default" in told:
            content[name] = told["default"]
    return content


def _named(name: str, field: JSONObject) -> str:
    told = [str(field.get("title") or name)]
    if isinstance(field.get("description"), str):
        told.append(f"- {field['description']}")
    items = field.get("items")
    choices = _choices(items if isinstance(items, dict) else field)
    if choices:
        told.append(f"[{' | '.join(choices)}]" + (", several with commas" if isinstance(items, dict) else ""))
    elif field.get("type") not in (None, "string"):
        told.append(f"({field['type']})")
    if "default" in field:
        told.append(f"(default {json.dumps(field['default'], ensure_ascii=False)})")
    # One line, whatever the module wrote: none of it can pass for a line of ours.
    return visible(" ".join(" ".join(told).split()))


def _choices(field: JSONObject) -> list[str]:
    values = field.get("enum")
    found: list[JSON] = list(values) if isinstance(values, list) else []
    for key in ("oneOf", "anyOf"):
        alternatives = field.get(key)
        for one in alternatives if isinstance(alternatives, list) else []:
            if isinstance(one, dict) and "const" in one:
                found.append(one["const"])
    return [str(one) for one in found]


def _value(text: str, field: JSONObject) -> JSON:
    kind = field.get("type")
    if kind == "array":
        return [one.strip() for one in text.split(",") if one.strip()]
    if kind == "boolean":
        return text.lower() in _YES if text.lower() in (*_YES, *_NO) else text
    if kind in ("number", "integer"):
        return value_of(text)
    return text


# -- approvals ---------------------------------------------------------------------------------------------------------


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
    from ideabridge.bridge.loop.event import NOBODY_THERE

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
    from ideabridge.bridge.loop.event import AT_TERMINAL

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
            lines += wrap_visible(visible(inner), width, first=indent, further=f"{indent}  | ")
    return "\n".join(lines)


async def _ask_whether(shown: JSON, *, is_plan: bool) -> Decision:
    from ideabridge.bridge.runs.people import Decision

    what = "plan" if is_plan else "call"
    while True:
        answer = await read_line("  run it? y(es), n(o) [reason], e(dit): ")
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
    from ideabridge.bridge.runs.people import Decision

    while True:
        answer = await read_line("  what came of it? r(etry), s(kip) [reason], v(alue) JSON: ")
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
        typed = await read_line(f"  the {what} as JSON, in one line: ")
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
