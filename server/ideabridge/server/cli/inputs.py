"""Read input from `--input`, from files, and from the person at the terminal."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from ideabridge.server.cli.console import (
    UsageError,
    err,
    interruptible,
    let_read,
    read_line,
    report,
    say,
)
from ideabridge.tools.documents import read_written
from ideabridge.tools.encoding import JSON, JSONObject, decode, object_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import SchemaKeywords, all_parameters, list_names
from ideabridge.tools.names import did_you_mean, readable_json, visible, wrap_visible
from ideabridge.tools.typed import read_as

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.context.assumption import Candidate
    from ideabridge.bridge.context.inquiry import Inquiry
    from ideabridge.bridge.loop.event import Event
    from ideabridge.bridge.plan import Plan
    from ideabridge.bridge.runs.people import ApprovalRequest, Decision
    from ideabridge.bridge.runs.run import Run


MAX_FILE_BYTES: Final = 128 * 1024 * 1024
"""Maximum size, in bytes, of a file that is read: twice the largest idea (`MAX_DOCUMENT_BYTES`),
because a file can be indented."""


def file_name(place: str) -> str:
    """Return the name for a file in messages: its full path, or `standard input` for `-`."""
    return "standard input" if place == "-" else str(Path(place).expanduser().absolute())


def about_file(file: str, error: IdeabridgeError) -> str:
    """Return a message about an error in a file. The message begins with the file's name, unless
    the error already names the file.
    """
    name = file_name(file)
    message = str(error)
    return message if name in message else f"{name}: {message}"


def read_document_at(place: str, label: str, *, follow: bool = True) -> JSON:
    """Read a document that a person might have written (JSON, JSON with comments, or YAML) from a
    file, or from standard input if `place` is `-`. Error messages begin with `label`.

    Symbolic links are followed only with `follow`, which is for paths that a person has specified.

    Raises:
        UsageError: the file cannot be read, is larger than `MAX_FILE_BYTES`, or is malformed.
    """
    data = read_bytes(place, label, follow=follow)
    name = file_name(place)
    if not data.strip():
        raise UsageError(f"{label}: {name} is empty")
    try:
        return read_written(data, what=name, name=place, max_bytes=MAX_FILE_BYTES)
    except IdeabridgeError as error:
        raise UsageError(f"{label}: {error}") from None


def read_solution_at(place: str, label: str) -> JSON:
    """Read a plan or a Solution: a program if the file name ends with `.py`, otherwise a document.
    Error messages begin with `label`.

    Raises:
        UsageError: see `read_document_at` and `read_text`.
    """
    if place.endswith(".py"):
        return {"program": read_text(place, label)}
    return read_document_at(place, label)


def read_text(place: str, label: str) -> str:
    """Read text from a file, or from standard input if `place` is `-`. Error messages begin with
    `label`.

    Raises:
        UsageError: the file cannot be read, is larger than `MAX_FILE_BYTES`, or is not UTF-8.
    """
    try:
        return read_bytes(place, label).decode()
    except UnicodeDecodeError as error:
        name = file_name(place)
        raise UsageError(f"{label}: {name} is not text in UTF-8: byte {error.start:,}") from None


def read_bytes(place: str, label: str, *, follow: bool = True) -> bytes:
    """Read a text file, or standard input if `place` is `-`, as UTF-8 without a byte order mark.

    UTF-16, which some Windows programs write, is converted to UTF-8. Error messages begin with
    `label`.

    Symbolic links are followed only with `follow`, which is for paths that a person has specified.

    Raises:
        UsageError: the file cannot be read, or is larger than `MAX_FILE_BYTES`.
    """
    name = file_name(place)
    try:
        if place == "-":
            with interruptible():
                data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
            if not follow:
                flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            with os.fdopen(os.open(Path(place).expanduser(), flags), "rb") as file:
                # Limit the read itself, too, because only a regular file says its size in advance.
                size = os.fstat(file.fileno()).st_size
                data = file.read(MAX_FILE_BYTES + 1) if size <= MAX_FILE_BYTES else None
    except (OSError, ValueError) as error:
        # If the path contains a NUL, this is a ValueError.
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{label}: {name} cannot be read: {reason}") from None

    if data is None or len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{label}: {name} is larger than the limit of {MAX_FILE_BYTES:,} bytes")

    return _as_utf8(data)


def _as_utf8(data: bytes) -> bytes:
    encoding = json.detect_encoding(data)
    if encoding.startswith("utf-8"):
        return data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode(encoding).encode()
    except UnicodeDecodeError:
        # Return the bytes unchanged, because the code that decodes them reports the error.
        return data


def read_input(words: list[str] | None, option: str = "--input") -> JSONObject | None:
    """Merge the values of `--input`, in order. Return None if the option is not set.

    Each value is a JSON object, `@FILE` for a file that contains one (`@-` for standard input), or
    `key=value`, where `value` is JSON or, if it is not valid JSON, a string. Any other value raises
    `UsageError`.
    """
    if words is None:
        return None

    result: JSONObject = {}
    for word in words:
        key, equals, text = word.partition("=")
        if word.lstrip().startswith("{"):
            try:
                value = decode(word, what=option)
            except IdeabridgeError as error:
                raise UsageError(str(error)) from None
            result.update(require_object(value, option))
        elif word.startswith("@"):
            result.update(require_object(read_document_at(word[1:], option), f"{option} {word}"))
        elif equals and key:
            result[key] = value_of(text)
        else:
            raise UsageError(
                f"{option}: expected a JSON object, @FILE or key=value, found {word[:60]!r}"
            )

    return result


def expect_names(arguments: JSONObject, names: Collection[str], taker: str) -> None:
    """Raise `UsageError` if the input has a member that is not in `names`, the members that `taker`
    accepts.
    """
    for name in arguments:
        if name in names:
            continue
        problem = f"--input: {taker} has no parameter {name[:60]!r}"
        if not names:
            raise UsageError(f"{problem}; it takes no input")

        message = f"{problem}; {list_names(names, 'parameter', 'parameters')}"
        hint = did_you_mean(name, names)
        raise UsageError(f"{message}.{hint}" if hint else message)


def expect_parameters(arguments: JSONObject, schema: JSONObject, taker: str) -> None:
    """Raise `UsageError` if a member of the input is not a parameter in the schema."""
    declared = all_parameters(schema)
    if declared is not None:
        expect_names(arguments, declared, taker)


def inputs_taken(bridge: Bridge, plan: Plan) -> Collection[str] | None:
    """Return the members of the input that the plan reads, or None if it might read any member.

    A plan with a latent call might read any member, because a mind sees the whole input.
    """
    from ideabridge.bridge.context.written_call import written_calls
    from ideabridge.bridge.offer.plan_tools import PlanTools
    from ideabridge.bridge.plan import inputs_read_by
    from ideabridge.bridge.publishing.programs import members_of_input
    from ideabridge.bridge.store.users import LOCAL

    if plan.program is not None:
        required, optional, uses_all = members_of_input(plan.program)
        return None if uses_all else {*required, *optional}

    catalogue = PlanTools(bridge.offer, plan, LOCAL).present()
    tools = [catalogue.look_up(call) for call in written_calls(plan.calls)]
    if any(tool is not None and tool.key in catalogue.latent for tool in tools):
        return None
    return inputs_read_by(plan)


def require_object(value: JSON, label: str) -> JSONObject:
    """Return the value if it is a JSON object. Otherwise, raise a `UsageError` that refers to it as
    `label`.
    """
    if not isinstance(value, dict):
        raise UsageError(f"{label}: expected a JSON object")
    return value


def value_of(text: str) -> JSON:
    """Decode a string as JSON. Return the string itself if it is not JSON."""
    try:
        return decode(text, what="value")
    except IdeabridgeError:
        return text


_NOBODY: Final = "nobody answered at the terminal"
_NESTED: Final = ("array", "object")
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


async def _choose(prompt: str, choices: tuple[str, ...], help: str) -> tuple[str, str | None]:  # noqa: A002
    """Return the person's choice and the text after it, or ("", None) at the end of input.

    A choice is typed as a word or its first letter. For any other input, `help` is printed.
    """
    await let_read()
    while True:
        answer = await read_line(f"  {prompt}: ")
        if answer is None:
            return "", None
        word, _, text = answer.strip().partition(" ")
        for choice in choices:
            if word.lower() in (choice, choice[0]):
                return choice, text.strip() or None
        for line in help.split("\n"):
            say(f"  {line}")


async def _ask_form(question: Inquiry, call: JSONObject) -> Decision:
    """Ask the person a question from a server that came up during `call`."""
    from ideabridge.bridge.runs.people import Decision

    say(f"? server {question.module} asks, in its own words:", "bold yellow")
    for text in question.message.split("\n"):
        say(_marked(visible(text), "  | "))

    say(" what you fill in goes to the server; do not write a password or a token into it")
    say(_marked(f"while it runs {readable_json(call)}", "  "))
    while True:
        match await _choose(
            "answer it? y(es), n(o) [reason], s(kip)",
            ("yes", "no", "skip"),
            "y fills in its form, n (with a reason) declines, s sends no answer",
        ):
            case "yes", _:
                content = await _fields(question.schema)
                if content is not None:
                    return Decision("value", value=content)
            case "no", reason:
                return Decision("deny", reason=reason)
            case "skip", _:
                return Decision("skip")
            case _:
                return Decision("skip", reason=_NOBODY)


async def ask_input(schema: JSONObject, present: JSONObject) -> JSONObject | None:
    """Ask the person for members in the schema that `present` lacks, required ones first.

    Returns:
        The complete input, or None if the person stopped.
    """
    result = dict(present)
    members = [entry for entry in _members(schema) if entry[0] not in present]
    for name, member, required in sorted(members, key=lambda entry: not entry[2]):
        while True:
            text = await _read_member("  ", name, member, required)
            if text is None:
                return None
            if not text and not required:
                break

            kind = member.get("type")
            value = text if kind == "string" else value_of(text)
            if text and _is(value, kind):
                result[name] = value
                break

            expected = f"  expected {member.get('type', 'a value')}"
            if kind in _NESTED:
                expected += ", as JSON"
            say(expected, "yellow")

    return result


def _members(schema: JSONObject) -> list[tuple[str, JSONObject, bool]]:
    """Return a tuple of name, schema, and whether it is required, for each member in the schema."""
    takes = read_as(SchemaKeywords, schema)
    return [
        (name, object_or_empty(member), name in takes.required)
        for name, member in takes.properties.items()
    ]


async def _read_member(mark: str, name: str, member: JSONObject, required: bool) -> str | None:
    prompt = _described(name, member)
    if not required:
        prompt += " (may be left out)"

    text = await read_line(_marked(f"{prompt}: ", mark))
    return None if text is None else text.strip()


def _marked(text: str, mark: str) -> str:
    """Return text from outside with a mark before each line. Without marks, the rest of a line that
    the terminal wraps would begin at the left edge, where it could be mistaken for a line from
    ideabridge.
    """
    if not sys.stderr.isatty():
        return f"{mark}{text}"
    return "\n".join(wrap_visible(text, err().width, first=mark, further=mark))


def _is(value: JSON, kind: JSON) -> bool:
    """Return whether the value has the JSON type `kind`, or True if `kind` is not a JSON type."""
    expected = _TYPES.get(kind) if isinstance(kind, str) else None
    return expected is None or (
        isinstance(value, expected) and (kind == "boolean" or not isinstance(value, bool))
    )


async def _fields(schema: JSONObject) -> JSONObject | None:
    """Ask the person for the fields of a server's form. Return the answers, or None if the person
    stops.
    """
    content: JSONObject = {}
    for name, field, required in _members(schema):
        text = await _read_member("  | ", name, field, required)
        if text is None:
            return None
        if text:
            content[name] = _value(text, field)
        elif "default" in field:
            content[name] = field["default"]

    return content


def _described(name: str, field: JSONObject) -> str:
    keywords = read_as(SchemaKeywords, field)
    parts = [str(field.get("title") or name)]
    if keywords.description is not None:
        parts.append(f"- {keywords.description}")

    is_list = keywords.items is not None
    choices = _choices(read_as(SchemaKeywords, keywords.items) if is_list else keywords)
    if choices and is_list:
        parts.append(f"[{' | '.join(choices)}], separated by commas if several")
    elif choices:
        parts.append(f"[{' | '.join(choices)}]")
    elif field.get("type") not in (None, "string"):
        parts.append(f"({field['type']})")

    if "default" in field:
        parts.append(f"(default {readable_json(field['default'])})")

    # Remove line breaks from the server's text, so that no part of it can pass for a line that
    # ideabridge wrote.
    return visible(" ".join(" ".join(parts).split()))


def _choices(field: SchemaKeywords) -> list[str]:
    alternatives = (*field.one_of, *field.any_of)
    constants = [schema["const"] for schema in alternatives if "const" in schema]
    return [str(choice) for choice in (*(field.enum or ()), *constants)]


def _value(text: str, field: JSONObject) -> JSON:
    kind = field.get("type")
    if kind == "array":
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind == "boolean":
        return {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}.get(
            text.lower(), text
        )

    if kind in ("number", "integer"):
        return value_of(text)
    return text


async def ask_all(run: Run) -> None:
    """Ask the person about every pending approval of a run, and submit the decisions.

    A question that is settled without the person, for example because its time runs out, is
    withdrawn.
    """
    for request in run.pending():
        await _settle(run, request)


async def decline_all(run: Run) -> bool:
    """Decline the servers' questions, because nobody is at a terminal and the calls end with this
    process. Return whether there were any questions.
    """
    from ideabridge.bridge.loop.event import NOBODY_THERE

    has_declined = False
    for request in run.pending():
        if request.inquiry is None:
            continue

        has_declined = True
        report(
            f"server {request.inquiry.module!r} asked something and was declined, because there is "
            "no terminal to answer at"
        )
        reason = "there is no terminal to answer at"
        await run.patiently(
            partial(run.decide, request.approval, "deny", by=NOBODY_THERE, reason=reason)
        )

    return has_declined


async def _settle(run: Run, request: ApprovalRequest) -> None:
    from ideabridge.bridge.errors import DecisionError
    from ideabridge.bridge.loop.event import AT_TERMINAL
    from ideabridge.bridge.standing_rules import StandingRuleError

    approval = request.approval
    while _is_pending(run, approval):
        decision = await _while_pending(run, request)
        if decision is None:
            report("this call is already settled; no decision is needed any more")
            return
        try:
            await run.patiently(partial(run.settle, approval, replace(decision, by=AT_TERMINAL)))
        except (DecisionError, StandingRuleError) as error:
            report(str(error))
        else:
            if decision.always:
                say("  allowed always; to withdraw it: ideabridge approvals rules", "green")


def _is_pending(run: Run, approval: str) -> bool:
    return any(request.approval == approval for request in run.pending())


async def _while_pending(run: Run, request: ApprovalRequest) -> Decision | None:
    """Ask for the person's decision. Return None if the question is settled in another way before
    the person answers.
    """
    import anyio

    with anyio.CancelScope() as scope:

        def watch(_event: Event) -> None:
            if not _is_pending(run, request.approval):
                scope.cancel()

        with run.watching(watch):
            return await _ask(request)

    return None


async def _ask(request: ApprovalRequest) -> Decision:
    from ideabridge.server.views.shown import plan_without_ids, sums_of

    if request.inquiry is not None:
        return await _ask_form(request.inquiry, request.call)

    width = err().width if sys.stderr.isatty() else None
    first, *reasons = request.why.split("\n")
    say(_marked(visible(first), "? "), "bold yellow")
    for reason in reasons:
        say(_marked(visible(reason), "  - "), "bold yellow")

    plan = request.plan
    if plan is not None:
        content: JSONObject = {key: plan.get(key) for key in ("calls", "output")}
        instances = plan.get("instances")
        count = instances if isinstance(instances, int) else 0
        say(f"  {sums_of('plan', content, count)}", "bold")
        say(whole(plan_without_ids(content), width))
        say("in this order (names and values shortened):", "dim")
        say(visible(str(plan.get("drawing")).rstrip("\n"), keep="\n "))
        return await _ask_whether(content, "plan")

    call = request.call
    sums = sums_of("call", call)
    if sums:
        say(f"  {sums}", "bold")

    for line in call_lines(call, width):
        say(line)
    if request.kind == "outcome":
        return await _ask_outcome()
    return await _ask_whether(call, "call", _alternatives(request), always=request.always)


def _alternatives(request: ApprovalRequest) -> list[tuple[str, Candidate]]:
    """Return the alternatives to the values assumed by a call, each with the location of the
    literal that it would replace.
    """
    return [
        (assumption.at, candidate)
        for assumption in request.assumed
        for candidate in assumption.choices[1:]
    ]


_UNBROKEN: Final = 1_000_000_000
"""A line width, in columns, at which no line is ever broken."""


def call_lines(call: JSONObject, width: int | None) -> list[str]:
    """Return the lines that show a call in full: its tool, and a table of its values.

    Lines have at most `width` columns, or any length if `width` is None.
    """
    from ideabridge.server.views.value_table import ValueTable, tool_of, values_of_call

    table = ValueTable(values_of_call(call), _UNBROKEN if width is None else width)
    return [_marked(f"call of {tool_of(call)}", "  "), *table.lines()]


def whole(value: JSON, width: int | None) -> str:
    """Return a value as indented JSON in which every character is visible.

    A line longer than `width` columns is continued on lines that begin with a mark. If `width` is
    None, lines can have any length.
    """
    lines: list[str] = []
    for text in readable_json(value, 2).split("\n"):
        inner = text.lstrip(" ")
        indent = text[: len(text) - len(inner)]
        if width is None:
            lines.append(text)
        else:
            lines += wrap_visible(inner, width, first=indent, further=f"{indent}  | ")

    return "\n".join(lines)


async def _ask_whether(
    content: JSONObject,
    kind: Literal["plan", "call"],
    alternatives: Sequence[tuple[str, Candidate]] = (),
    *,
    always: bool = False,
) -> Decision:
    """Ask the person whether to run a call or a plan. `always` says whether the person can allow
    the call's tool permanently.
    """
    from ideabridge.bridge.runs.people import Decision

    if alternatives:
        say("the assumed values could also be:")
        for number, (at, candidate) in enumerate(alternatives, 1):
            say(_marked(f"{number}: {visible(at)} {visible(candidate.choice)}", "  "))

    prompt, words, hint = _question_whether(kind, takes=bool(alternatives), always=always)
    while True:
        match await _choose(prompt, words, hint):
            case "yes", _:
                decision = Decision("approve")
            case "no", reason:
                decision = Decision("deny", reason=reason)
            case ("always" | "run") as word, text:
                decision = _further(word, text or "")
            case "take", text:
                decision = _take(content, alternatives, text or "")
            case "edit", _:
                decision = await _edit(content, kind)
            case _:
                decision = Decision("deny", reason=_NOBODY)

        if decision is not None:
            return decision


def _question_whether(
    kind: Literal["plan", "call"], *, takes: bool, always: bool
) -> tuple[str, tuple[str, ...], str]:
    """Return the prompt, the choices and the help text for asking whether to run a call or a
    plan.
    """
    prompt = "run it? y(es), n(o) [reason], e(dit)"
    words = ("yes", "no", "edit")
    hint = f"y runs the {kind}, n (with a reason) does not, e lets you change it first"
    if kind == "call":
        prompt = "run it? y(es), n(o) [reason], r(un) [N], e(dit)"
        words = (*words, "run")
        hint += (
            "\nr runs it, and runs further calls of its tool in this run without asking\nr N "
            "SCHEMA: at most N, and only those whose parameters match the JSON schema"
        )

    if always:
        prompt = prompt.replace("r(un)", "a(lways), r(un)")
        words = (*words, "always")
        hint += "\na runs it, and from now on runs its tool in this workspace without asking"

    if takes:
        prompt += ", t(ake) NUMBER..."
        words = (*words, "take")
        hint += "\nt with numbers runs it with these values instead"

    return prompt, words, hint


def _further(word: str, text: str) -> Decision | None:
    """Return the decision that `a` or `r [N] [SCHEMA]` describes, which also allows further calls.
    If the text is malformed, print an error and return None.
    """
    from ideabridge.bridge.runs.people import Decision

    if word == "always":
        return Decision("approve", always=True)

    try:
        return Decision("approve", grant=_grant(text))
    except IdeabridgeError as error:
        say(f"  {error}")
        return None


def _take(
    content: JSONObject, alternatives: Sequence[tuple[str, Candidate]], text: str
) -> Decision | None:
    """Return the decision that `t NUMBER...` describes. If the numbers are unusable, tell the
    person and return None.
    """
    from ideabridge.bridge.context.assumption import with_choices
    from ideabridge.bridge.runs.people import Decision

    values = _numbered(alternatives, text)
    if values is None:
        say(f"  t: expected numbers from 1 to {len(alternatives)}, at most one for each value")
        return None
    return Decision("edit", call=with_choices(content, values))


def _grant(text: str) -> JSONObject:
    """Read the grant in `r [N] [SCHEMA]`. Raise `InvalidJSONError` if the text after the number is
    not JSON.
    """
    grant: JSONObject = {"for": "run"}
    number, _, rest = text.partition(" ")
    if number.isdecimal():
        grant["max"] = int(number[:12])
    else:
        rest = text

    if rest.strip():
        grant["parameters"] = decode(rest, what="the schema")

    return grant


def _numbered(alternatives: Sequence[tuple[str, Candidate]], text: str) -> JSONObject | None:
    """Return the values selected by the numbers in `text`, keyed by the locations of their
    literals. Return None if the text is not a list of such numbers, or selects two values for one
    literal.

    Numbers start at 1, and are separated by spaces or commas.
    """
    from ideabridge.bridge.context.state import Missing

    values: JSONObject = {}
    for word in text.replace(",", " ").split():
        if not word.isdecimal() or not 0 < int(word) <= len(alternatives):
            return None

        at, candidate = alternatives[int(word) - 1]
        if isinstance(candidate.value, Missing) or at in values:
            return None
        values[at] = candidate.value

    return values or None


async def _ask_outcome() -> Decision:
    from ideabridge.bridge.runs.people import Decision

    hint = (
        "r runs the call again, s (with a reason) lets it fail as unknown, v with JSON sets its "
        "result"
    )
    while True:
        match await _choose(
            "what is its outcome? r(etry), s(kip) [reason], v(alue) JSON",
            ("retry", "skip", "value"),
            hint,
        ):
            case "retry", _:
                return Decision("retry")
            case "skip", reason:
                return Decision("skip", reason=reason)
            case "value", str(text):
                return Decision("value", value=value_of(text))
            case "value", _:
                say(f"  {hint}")
            case _:
                return Decision("skip", reason=_NOBODY)


async def _edit(content: JSONObject, kind: Literal["plan", "call"]) -> Decision | None:
    """Let the person edit a call or a plan in $VISUAL or $EDITOR, or type a replacement on one
    line. Return None if the result is unusable.
    """
    from ideabridge.bridge.runs.people import Decision

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if editor:
        text = await _edit_text(editor, readable_json(content, 2) + "\n")
    else:
        text = await read_line(f"  the {kind} as JSON, in one line: ")

    if text is None:
        return None

    try:
        edited = require_object(decode(text, what=f"the edited {kind}"), f"the edited {kind}")
    except IdeabridgeError as error:
        report(str(error))
        return None

    if kind == "plan":
        return Decision("edit", plan=edited)
    return Decision("edit", call=edited)


async def _edit_text(editor: str, text: str) -> str | None:
    """Let the person edit text in an editor, and return the result. If the editor fails, report
    this and return None.
    """
    import anyio

    descriptor, name = tempfile.mkstemp(suffix=".json", text=True)
    path = anyio.Path(name)
    try:
        os.close(descriptor)
        await path.write_text(text, encoding="utf-8")
        words = [*shlex.split(editor), name]
        result = await anyio.run_process(words, stdin=None, stdout=None, stderr=None, check=False)
        if result.returncode:
            report(f"the editor ended with exit code {result.returncode}; nothing was changed")
            return None

        return await path.read_text(encoding="utf-8")
    except OSError as error:
        report(f"the editor {editor!r} cannot be started: {error.strerror or error}")
        return None
    finally:
        await path.unlink(missing_ok=True)
