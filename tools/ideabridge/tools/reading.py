"""Read Solutions written by models. Common deviations are accepted and reported."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final, cast

from ideabridge.tools.encoding import JSON, JSONObject, decode
from ideabridge.tools.errors import InvalidJSONError, ValueMismatchError
from ideabridge.tools.keywords import show

# The quantifiers are possessive, because otherwise the search would take quadratic time in the
# amount of white space.
_FENCE: Final = re.compile(r"```[ \t]*+[\w+-]*+[ \t]*+\r?\n(.*?)```", re.DOTALL)
_STARTS: Final = 50
_WHAT: Final = "the solution"
_AS_TEXT: Final = "the solution was given as JSON text; write the object itself"


@dataclass(frozen=True, slots=True)
class Solution:
    """The answer to a Request, without members that do not affect the calls or the output.

    `read_as` reads a Solution from an idea, or from the result of `read_solution`.

    Attributes:
        calls: the calls, as they were written.
        output: the output with its references unresolved, or None if there is none.
        program: the text of the program that produces the calls and the output, or None if there is
            none.
    """

    calls: list[JSON] = field(default_factory=list[JSON])
    output: JSON = None
    program: str | None = None


def read_solution(raw: JSON | str | bytes) -> tuple[JSONObject, list[str]]:
    """Read a Solution `{"calls": [...], "output": ...}`. Return it with one sentence for each
    deviation.

    The following deviations are accepted:
    - The whole Solution, its `calls` or a single call is written as JSON text. The JSON can be in a
      Markdown fence or surrounded by other text, provided that there is exactly one JSON value.
    - `output` is the text of a JSON object.
    - `calls` is a single call instead of an array.
    - The Solution is a bare array of calls.

    A missing `calls` becomes [] and a missing `output` becomes null. Other properties follow
    `calls` and `output`.

    Raises:
        ValueMismatchError: the value cannot be read as a Solution; the message says where, what was
            found and what was expected.
        LimitExceededError: the value is too large or too deeply nested.
    """
    notes: list[str] = []
    if isinstance(raw, bytes):
        value: JSON = raw.decode("utf-8", "replace")
    else:
        value = raw

    for _ in range(2):  # JSON text inside JSON text is read as well.
        if isinstance(value, str):
            value = _read_text(value, _WHAT, notes)

    if isinstance(raw, bytes) and notes[:1] == [_AS_TEXT]:
        del notes[0]  # An answer arrives as bytes, so this is not a deviation.

    if (
        isinstance(value, list)
        and value
        and all(isinstance(item, dict) and "_tool" in item for item in value)
    ):
        notes.append(
            'the solution was a bare array of calls; write {"calls": [...], "output": null}'
        )
        value = {"calls": value}

    if not isinstance(value, dict):
        raise _mismatch("", value, 'an object {"calls": [...], "output": ... or null}')

    if "_tool" in value and "calls" not in value and "output" not in value:
        notes.append('the solution was a single call; write {"calls": [...], "output": null}')
        value = {"calls": [value]}

    calls: list[JSON] = list(read_calls(value.get("calls"), notes))
    solution: JSONObject = {"calls": calls, "output": read_output(value.get("output"), notes)}
    solution.update((key, item) for key, item in value.items() if key not in solution)
    return solution, notes


def read_calls(calls: JSON, notes: list[str]) -> list[JSON]:
    """Read the `calls` of a Solution; see `read_solution`. An entry that is not a call is kept, so
    that only this entry fails.
    """
    if isinstance(calls, str) and calls.strip():
        calls = _read_text(calls, "calls", notes)

    if calls is None or calls == "":
        return []

    if isinstance(calls, dict):
        notes.append("calls was a single call; write an array of calls")
        calls = [calls]

    if not isinstance(calls, list):
        raise _mismatch("calls", calls, "an array of calls")
    return [read_call_text(call, f"calls.{index}", notes) for index, call in enumerate(calls)]


def read_call_text(call: JSON, where: str, notes: list[str]) -> JSON:
    """Return a call, decoded if it is written as JSON text. Other values are returned unchanged."""
    if not isinstance(call, str) or "{" not in call:
        return call
    try:
        return _read_text(call, where, notes)
    except ValueMismatchError:
        return call


def read_output(output: JSON, notes: list[str]) -> JSON:
    """Read the `output` of a Solution. A string is parsed only if it contains one JSON object,
    because any other string can be the output itself.
    """
    if not isinstance(output, str):
        return output

    body = _unfenced(output) or output
    if not body.lstrip().startswith("{"):
        return output

    try:
        value = decode(body, what="output")
    except InvalidJSONError:
        return output

    notes.append("output was JSON in a string; write the object itself")
    return value


BESIDE_PROGRAM: Final = (
    "program: a program makes its own calls and output, so leave out calls and output"
)
"""Why a Solution with both a program and calls or an output is malformed."""


def read_program(program: JSON) -> str | None:
    """Read the `program` of a Solution, removing any Markdown fence around it. Null and an empty
    string do not count as programs.

    Raises:
        ValueMismatchError: the program is not a string.
    """
    if program is None:
        return None
    if not isinstance(program, str):
        raise _mismatch("program", program, "text")

    text = program.strip()
    language, newline, body = text.partition("\n")
    if newline and language.startswith("```") and body.endswith("```") and "`" not in language[3:]:
        program = body.removesuffix("```")

    return program if program.strip() else None


def _mismatch(path: str, actual: JSON, expected: str) -> ValueMismatchError:
    return ValueMismatchError(f"{path or _WHAT}: found {show(actual)}, expected {expected}")


def _unfenced(text: str) -> str | None:
    match = _FENCE.search(text)
    return match[1] if match else None


def _read_text(text: str, what: str, notes: list[str]) -> JSON:
    """Return the JSON in a string: the whole string, the content of a fence, or the only JSON in
    prose.
    """
    readings = (
        (text, f"{what} was JSON in a string" if what != _WHAT else _AS_TEXT),
        (_unfenced(text), f"{what} was in a Markdown fence; write bare JSON"),
        (_embedded(text), f"{what} had other text around the JSON; write JSON only"),
    )
    fault = ""
    for candidate, note in readings:
        if candidate is not None:
            try:
                # Decode embedded JSON as strictly as any other JSON: with unique keys, bounded
                # depth and exact numbers.
                value = decode(candidate, what=what)
            except InvalidJSONError as error:
                fault = f"found the text {show(candidate)}, expected JSON ({error})"
            else:
                notes.append(note)
                return value

    raise ValueMismatchError(f"{what}: {fault}")


def _embedded(text: str) -> str | None:
    """Return the only JSON object or array of objects in prose, as text, or None if there is not
    exactly one.
    """
    decoder = json.JSONDecoder()
    texts: list[str] = []
    position = 0
    for _ in range(_STARTS):
        bracket = re.compile(r"[{\[]").search(text, position)
        if bracket is None:
            break

        start = bracket.start()
        try:
            value, end = cast("tuple[JSON, int]", decoder.raw_decode(text, start))
        except (ValueError, RecursionError):
            position = start + 1
            continue

        position = end
        if isinstance(value, dict) or (
            isinstance(value, list) and value and isinstance(value[0], dict)
        ):
            texts.append(text[start:end])

    return texts[0] if len(texts) == 1 else None


_PATH: Final = r"(?:\.[\w$-]+|\[\d+\]|\[\"(?:[^\"\\]|\\.)*\"\]|\['[^']*'\])*"
_REFERENCE: Final = rf"(?P<path>(?:state|input|data|results|item)\b(?!-){_PATH})"
_WRONG: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\$\s*{_REFERENCE}",  # $state.x
        rf"\$?\{{{{\s*[†$]?{_REFERENCE}\s*\}}}}",  # {{state.x}}, ${{state.x}}
        rf"[$†#@]\{{\s*[†$]?{_REFERENCE}\s*\}}",  # ${state.x}, †{state.x}
        rf"<\s*/?[†$]?{_REFERENCE}\s*/?>",  # <state.x>
        rf"@{_REFERENCE}",  # @state.x
        rf"‡\s*{_REFERENCE}",  # ‡state.x
        rf"†\s*[$@]{_REFERENCE}",  # †$state.x
        rf"[`\"']†{_REFERENCE}[`\"']",  # `†state.x`
        # Read JSONPath as a reference only if it names a place in a run, because `$.data.items` can
        # be a path into any document.
        rf"\$\.(?!data\b)(?!results\b(?!\.\d|\[\d)){_REFERENCE}",  # $.state.x
        rf"\{{\s*[†$]?{_REFERENCE}\s*\}}",  # {state.x}
    )
)
_REF: Final = re.compile(
    r"\$ref\s*:\s*[#/†$.]*(?P<path>[^\s#†$./][^\s]*)"
)  # $ref:state.x, $ref:#/state/x
_BARE: Final = frozenset({"state", "input", "data", "results", "item"})
_MARKS: Final = frozenset("$†#@<‡`\"'{")


def wrong_reference_hint(text: str) -> str | None:
    """Return the correct form of a reference in another notation, or None for any other string.

    `$state.x`, `$.state.x`, `{state.x}`, `{{state.x}}`, `${state.x}`, `<state.x>`, `@state.x`,
    `†{state.x}`, `$ref:state.x` -> `†state.x`. A kind without a path counts only in notations that
    are rare in ordinary text, because `<input>` can be HTML, `{item}` a placeholder, and `@data` a
    name.
    """
    if len(text) > 500:
        return None

    stripped = text.strip()
    if stripped[:1] not in _MARKS or (stripped[0] == "†" and stripped[1:2].isalnum()):
        return None

    for pattern in _WRONG:
        match = pattern.fullmatch(stripped)
        if match is not None:
            path = match["path"]
            if (
                path in _BARE
                and stripped[0] in "<@${"
                and not stripped.startswith(("${", "{{", "$.", "$item"))
            ):
                return None

            return f"†{_quoted_keys(path)}"

    named = _REF.fullmatch(stripped)
    if named is None:
        return None

    path = named["path"].replace("/", ".")
    if path.split(".", 1)[0].split("[", 1)[0] in _BARE:
        return f"†{path}"
    return f"†state.{path}"


def _quoted_keys(path: str) -> str:
    return re.sub(
        r"\['([^']*)'\]", lambda match: f"[{json.dumps(match[1], ensure_ascii=False)}]", path
    )


_WRONG_TARGETS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"\$\.?(?P<path>(?:\.|\[).*)",  # $.log, $["log"]
        r"\$?\{\{\s*(?P<path>[^{}]*?)\s*\}\}",  # {{log}}, ${{log}}
        r"[$†#]?\{\s*(?P<path>[^{}]*?)\s*\}",  # {log}, ${log}
        r"<\s*(?P<path>[^<>]*?)\s*>",  # <log>
    )
)


_KIND: Final = re.compile(r"^[†$]?(?:(?:state|input|data|results|item)(?=[.\[]|$))?")


def wrong_target_hint(text: str) -> str | None:
    """Return the correct form of an output path in another notation, or None for any other string.

    For example, `$.log`, `${log}` and `{{log}}` become `log`.
    """
    stripped = text[:500].strip()
    path = wrong_reference_hint(stripped)
    if path is None:
        matches = (pattern.fullmatch(stripped) for pattern in _WRONG_TARGETS)
        path = next((match["path"] for match in matches if match is not None), None)

    if path is None:
        return None
    return _KIND.sub("", _quoted_keys(path), count=1).lstrip(".") or "log"
