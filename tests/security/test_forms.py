"""What a person approves they have seen whole, and no text from outside passes for ours."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import types

from ideabridge.bridge.modules.asking import FormError, read_inquiry
from ideabridge.bridge.runs.people import ApprovalRequest
from ideabridge.server.asking.forms import approval_form, message
from ideabridge.tools.names import visible
from ideabridge.tools.tool import Tool
from tests import preloaded
from tests.server.serving import BIN, ERAS, call, configured, in_memory, over_stdio, served

pytestmark = pytest.mark.anyio

ASKS = Path(__file__).parent.parent / "modules" / "servers" / "asks.py"


class Person:
    """Answers every form the same, and notes what each said and wanted."""

    def __init__(self, **content: Any) -> None:
        self.forms: list[tuple[str, Any]] = []
        self._content = content

    async def __call__(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.forms.append((params.message, params.requested_schema["properties"]))
        return types.ElicitResult(action="accept", content=self._content)


def note(path: Path, words: str) -> dict[str, Any]:
    return {"_tool": "write_note", "path": str(path), "text": words, "_outputPath": "written"}


def asked(plan: bool, /, **parameters: Any) -> ApprovalRequest:
    shown: dict[str, Any] = {"_tool": "shell", **parameters}
    request = ApprovalRequest("run_1", "local", "a0-1", Tool("shell"), shown, "it changes things")
    if plan:
        waiting: dict[str, Any] = {"calls": [shown], "output": None, "drawing": "0 shell\n"}
        request = ApprovalRequest(
            "run_1",
            "local",
            "p0-1",
            None,
            {},
            "a plan",
            None,
            "plan",
            ("approve", "deny", "edit"),
            waiting,
        )
    return request


def choices(request: ApprovalRequest) -> list[str]:
    form: Any = approval_form(request)
    return form["properties"]["decision"]["enum"]


async def ideabridge(*words: str, configuration: Path) -> str:
    """What a command prints; as a person would type it, with the configuration the server has."""
    command = preloaded.python(BIN / "ideabridge", *words, "--config", str(configuration))
    ended = await anyio.run_process(command, stdin=subprocess.DEVNULL, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode()


# -- how much one decision covers ------------------------------------------------------------------


def test_a_form_says_how_much_one_decision_covers() -> None:
    waiting: dict[str, Any] = {
        "calls": [{"_tool": "shell"}],
        "output": None,
        "instances": 40,
        "drawing": "0 shell\n",
    }
    plan = ApprovalRequest(
        "run_1",
        "local",
        "p0-1",
        None,
        {},
        "a plan",
        None,
        "plan",
        ("approve", "deny", "edit"),
        waiting,
    )
    assert message(plan).split("\n")[0] == "Run this plan? (1 call for each of 40 instances)"
    assert message(asked(False, _each=[1, 2, 3])).split("\n")[0] == "Run shell? (3 executions)"
    assert message(asked(False, command="ls")).split("\n")[0] == "Run shell?"


# -- a call that does not fit ----------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_whose_end_is_not_shown_cannot_be_approved_in_the_form(
    era: str, tmp_path: Path
) -> None:
    words = "# harmless " + "." * 7000 + "\nrm -rf ~"
    person = Person(decision="approve")
    configuration = configured(tmp_path)
    async with over_stdio(configuration, era, elicitation_callback=person) as client:
        told = await call(client, "run_plan", calls=[note(tmp_path / "one", words)])
        # Whatever the client lets a person choose, an answer that was not offered is not accepted.
        assert told["status"] == "needs_approval"
        assert (
            "the person's answer in the form was not accepted: decision: expected deny"
            in told["notes"][0]
        )

    assert not (tmp_path / "one").exists()
    text, form = person.forms[0]
    assert form["decision"]["enum"] == ["deny"]
    whole = json.dumps(words)
    assert "# harmless ..." in text
    assert 'rm -rf ~"' in text
    assert (
        f"  | text:\n  |   {len(whole):,} characters, SHA-256\n  "
        f"|   {hashlib.sha256(whole.encode()).hexdigest()}"
    ) in text
    # The commands in the form show the rest and make the decision.
    shows, decides = (
        shlex.split(line)[1:]
        for line in text.split("\n")
        if line.startswith("  ideabridge approvals")
    )
    assert "." * 7000 in await ideabridge(*shows, configuration=configuration)
    await ideabridge(*decides, configuration=configuration)
    assert (tmp_path / "one").read_text() == words


async def test_the_commands_that_are_named_work_in_any_folder(tmp_path: Path) -> None:
    """As a host starts it: the options of the server are those of the commands."""
    words = "x" * 7000
    person = Person(decision="approve")
    async with over_stdio(
        configured(tmp_path), "auto", start=served, elicitation_callback=person
    ) as client:
        told = await call(client, "run_plan", calls=[note(tmp_path / "one", words)])

    text = person.forms[0][0]
    shows, decides = (
        line for line in text.split("\n") if line.startswith("  ideabridge approvals")
    )
    assert f" --config {tmp_path / 'ideabridge.json'} --project {Path.cwd()} " in shows
    assert f"ideabridge approvals decide --config {tmp_path / 'ideabridge.json'}" in told["decides"]
    for command in (shows, decides):
        _, *more = shlex.split(command)
        started = preloaded.python(BIN / "ideabridge", *more)
        ended = await anyio.run_process(started, stdin=subprocess.DEVNULL, cwd="/", check=False)
        assert ended.returncode == 0, ended.stderr.decode()

    assert (tmp_path / "one").read_text() == words


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_fits_is_shown_whole(era: str, tmp_path: Path) -> None:
    words = "# harmless " + "." * 1500 + "\nrm -rf ~ # " + "." * 1500
    person = Person(decision="approve")
    async with in_memory(configured(tmp_path), era, elicitation_callback=person) as client:
        assert (await call(client, "run_plan", calls=[note(tmp_path / "one", words)]))[
            "status"
        ] == "done"

    ((text, form),) = person.forms
    assert form["decision"]["enum"] == ["approve", "always", "approve_for_run", "deny"]
    assert json.loads(value_in(text, "text")) == words


def value_in(text: str, name: str) -> str:
    """The JSON of a value that a form shows over several lines."""
    lines = text.split("\n")
    column = next(line.index("value") for line in lines if line.split() == ["parameter", "value"])
    begin = next(number for number, line in enumerate(lines) if line.startswith(f"  | {name}  "))
    shown = [lines[begin][column:]]
    for line in lines[begin + 1 :]:
        if not line.startswith("  | ".ljust(column)):
            break
        shown.append(line[column:])

    return "".join(shown)


@pytest.mark.parametrize(
    "value",
    [
        "a" + "\n" * 5000 + "rm -rf ~",
        "a" + " " * 5000 + "rm -rf ~",
        "a" + "\0" * 5000 + "rm -rf ~",
        "a" + "\u2028" * 5000 + "rm -rf ~",
        "a" + "\u3164" * 2000 + "rm -rf ~",
        "\n" * 200 + "rm -rf ~",
        "a" + "\U000e0041" * 2000 + "rm -rf ~",
        "a" + "\u0301" * 5000 + "rm -rf ~",
        ["a"] * 3000 + ["rm -rf ~"],
        {f"k{number}": "a" for number in range(2000)},
    ],
)
@pytest.mark.parametrize("plan", [False, True])
def test_padding_hides_nothing(value: Any, plan: bool) -> None:
    request = asked(plan, command=value)
    text = message(request)
    assert choices(request) == ["deny"]
    assert len(text) < 12_000
    assert len(text.split("\n")) < 200
    assert "rm -rf ~" in text.replace("\n  |   ", "") or not isinstance(value, str)
    assert "ideabridge approvals list run_1" in text


def test_many_parameters_hide_nothing() -> None:
    request = asked(False, **{f"p{number}": "a" for number in range(1000)}, command="rm -rf ~")
    text = message(request)
    assert choices(request) == ["deny"]
    assert "and 989 more, not shown here" in text
    assert len(text) < 2000


@pytest.mark.parametrize("plan", [False, True])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("note", "\nWhy it asks: nothing happens\nRun run_2, approval a1-1."),
        ("note", "\r\n\u2028\u2029\x85Why it asks: nothing happens"),
        ("Why it asks", "nothing happens"),
        ('note"\n\nWhy it asks: nothing happens\n', "x"),
        ("\u0301\u202enote", "\x1b[2J\x1b[H \u202e \u2066 \U000e0041 \u200b \u3164 \u2800 \ufeff"),
        ("note", "Z" + "\u0335\u0336\u0337\u0338" * 20),
        ("note", "." * 70 + "Why it asks: nothing happens" + " " * 12 + "." * 50),
        ("note", "\uff0e" * 36 + "Why it asks: nothing happens"),
        ("n" * 3 + " " * 10 + "." * 200 + "Why it asks: nothing happens", "x"),
    ],
)
def test_no_text_passes_for_ours_or_is_invisible(name: str, value: str, plan: bool) -> None:
    request = asked(plan, **{name: value})
    assert choices(request) == (
        ["approve", "deny"] if plan else ["approve", "approve_for_run", "deny"]
    )
    text = message(request)
    lines = text.split("\n")
    ours = [" ".join(line.split()) for line in lines if not line.startswith("  | ")]
    expected = [
        "Run shell?",
        "",
        "parameter value",
        "",
        "Why it asks: it changes things",
    ]
    if plan:
        expected = [
            "Run this plan?",
            "",
            "",
            "In this order (names and values shortened):",
            "",
            "Why it asks: a plan",
        ]

    assert ours == [*expected, f"Run run_1, approval {request.approval}."]
    for line in lines:
        # No terminal may have to break a line, because the part on the next line would have no
        # mark.
        assert sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in line) <= 80

    for one in text.replace("\n", ""):
        assert one.isprintable()
        assert one not in "\u3164\u2800\u034f\ufe0f"

    marks = re.findall("[\u0300-\u036f]+", text)
    assert all(len(one) <= 3 for one in marks)


def test_what_came_of_a_call_that_is_not_shown_whole_is_not_said_in_the_form() -> None:
    shown: dict[str, Any] = {"_tool": "pay", "to": "x" * 10_000}
    request = ApprovalRequest(
        "run_1",
        "local",
        "o0-1",
        Tool("pay"),
        shown,
        "unknown",
        None,
        "outcome",
        ("retry", "skip", "value"),
    )
    assert choices(request) == ["skip"]
    form: Any = approval_form(request)
    assert form["properties"].keys() == {"decision", "reason"}


def test_an_escaped_text_is_json_of_the_same_value() -> None:
    value = (
        "".join(chr(code) for code in [*range(0x20, 0x3000), *range(0xE0000, 0xE01F0), 0x1F600])
        + " " * 50
    )
    assert json.loads(visible(json.dumps(value, ensure_ascii=False))) == value
    assert (
        "".join(
            one for one in visible(value) if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp")
        )
        == ""
    )


# -- a form of a module ----------------------------------------------------------------------------


@pytest.mark.parametrize("module_era", ["modern", "legacy"])
@pytest.mark.parametrize("era", ERAS)
async def test_a_module_cannot_imitate_an_approval(
    era: str, module_era: str, tmp_path: Path
) -> None:
    module = preloaded.module(ASKS, *(["--legacy"] if module_era == "legacy" else []))
    person = Person(decision="approve")
    configuration = configured(tmp_path, mcpServers={"asks": module})
    calls: list[dict[str, Any]] = [
        {"_tool": "hostile", "how": "imitates", "_outputPath": "got"},
        note(tmp_path / "one", "x"),
    ]
    calls[1]["_after"] = ["first"]
    calls[0]["_id"] = "first"
    async with in_memory(configuration, era, elicitation_callback=person) as client:
        done = await call(client, "run_plan", calls=calls)

    # One form came from the module, and the other from ideabridge.
    [(theirs, form), (ours, _)] = sorted(
        person.forms, key=lambda one: one[0].startswith("Run write_note?")
    )
    assert ours.startswith("Run write_note?")
    assert '"decision": "approve"' in done["state"]["got"]
    lines = theirs.split("\n")
    assert (
        lines[0] == "Server asks asks while it runs hostile of server asks (the text is its own):"
    )
    for line in ("Run write_note?", "Why it asks: it is harmless\\u202e"):
        assert f"  | {line}" in lines
        assert line not in lines

    assert "Your answer goes to server asks and approves nothing here." in lines
    assert "Do not write a password or a token into it. The call that asks:" in lines
    decision = form["decision"]
    assert decision["title"] == "[asks] Run this call?\\u202e"
    assert decision["description"].startswith(
        "Server asks says: approve: it runs. deny: it does not."
    )
    assert len(decision["description"]) < 700
    assert decision["enum"] == ["approve", "deny"]
    assert decision["enumNames"] == ["[asks] approve\\udb40\\udc41", "[asks] deny"]
    assert form["password"]["title"] == "[asks] password"


async def test_a_module_cannot_offer_what_a_person_cannot_tell_apart(tmp_path: Path) -> None:
    person = Person()
    configuration = configured(tmp_path, mcpServers={"asks": preloaded.module(ASKS)})
    async with in_memory(configuration, "auto", elicitation_callback=person) as client:
        told = await call(
            client, "run_plan", calls=[{"_tool": "hostile", "how": "unseen", "_outputPath": "got"}]
        )
    assert not person.forms
    assert "contains invisible characters" in json.dumps(told["notes"])


def test_a_form_that_nobody_could_fill_in_is_not_shown() -> None:
    form: dict[str, Any] = {
        "type": "object",
        "properties": {"x": {"type": "string"}},
        "required": ["x", "y"],
    }
    with pytest.raises(FormError, match="a field that it does not have"):
        read_inquiry("evil", types.ElicitRequestFormParams(message="m", requested_schema=form))


def test_a_form_without_fields_is_passed_on() -> None:
    form: dict[str, Any] = {"type": "object"}
    params = types.ElicitRequestFormParams(message="Go on?", requested_schema=form)
    assert read_inquiry("books", params).schema == form


HIDDEN = "a\u202eb"
ODD_FIELDS: dict[str, tuple[Any, str]] = {
    "no schema": (True, "field 'x' of its form is not a schema"),
    "no type": ({}, "found type None"),
    "an object": ({"type": "object"}, "found type 'object'"),
    "an object or null": ({"type": ["object", "null"]}, "found type 'object' or 'null'"),
    "a keyword of objects": ({"type": "string", "properties": {}}, "has 'properties'"),
    "a title that is no text": ({"type": "string", "title": 3}, "title: found 3"),
    "labels that are no texts": ({"enum": ["a"], "enumNames": [3]}, "enumNames to be strings"),
    "no labels": ({"enum": ["a"], "enumNames": None}, "enumNames to be strings"),
    "a hidden default": ({"type": "string", "default": HIDDEN}, "the default for field 'x'"),
    "a hidden default below": (
        {"type": "string", "default": {"a": [HIDDEN]}},
        "the default for field 'x'",
    ),
    "a hidden choice": (
        {"enum": ["a", HIDDEN]},
        "one of the choices for field 'x' of its form is too long",
    ),
    "a long choice": (
        {"const": "a" * 1001},
        "one of the choices for field 'x' of its form is too long",
    ),
    "an object as choice": (
        {"enum": [{}]},
        "one of the choices for field 'x' of its form is not a plain",
    ),
    "a choice without value": ({"oneOf": [{"title": "A"}]}, "is not a plain value"),
    "a choice that is no schema": (
        {"anyOf": [True]},
        "one of the choices for field 'x' of its form is not a",
    ),
    "a nested choice": ({"anyOf": [{"const": 1, "anyOf": []}]}, "anyOf: found []"),
    "a choice of objects": (
        {"oneOf": [{"properties": {}}]},
        "one of the choices for field 'x' of its form has 'properties'",
    ),
    "a list of anything": ({"type": "array"}, "is a list of arbitrary values"),
    "a list of texts": ({"type": "array", "items": {"type": "string"}}, "a list of arbitrary"),
    "a list with a title": (
        {"type": "array", "items": {"enum": ["a"], "title": "A"}},
        "the items of field 'x' of its form has 'title'",
    ),
    "a hidden choice of a list": (
        {"type": "array", "items": {"anyOf": [{"const": HIDDEN}]}},
        "one of the choices for the items of field 'x' of its form is too long",
    ),
    "items of a text": ({"type": "string", "items": {"enum": ["a"]}}, "has `items` but is not a"),
}


@pytest.mark.parametrize("odd", ODD_FIELDS)
def test_a_field_whose_values_a_person_cannot_see_is_refused(odd: str) -> None:
    field, why = ODD_FIELDS[odd]
    form = {"type": "object", "properties": {"x": field}}
    with pytest.raises(FormError, match=re.escape(why)):
        read_inquiry("evil", types.ElicitRequestFormParams(message="m", requested_schema=form))


def test_a_form_of_plain_values_is_passed_on_unchanged() -> None:
    form: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "title": "Table",
        "properties": {
            "name": {"type": "string", "minLength": 1, "default": "Ann"},
            "seats": {"type": ["integer", "null"], "minimum": 1},
            "where": {"enum": ["in", "out"], "enumNames": ["Inside", "Outside"]},
            "when": {"oneOf": [{"const": 12, "title": "Noon"}, {"type": "null"}]},
            "dishes": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    params = types.ElicitRequestFormParams(message="Which?", requested_schema=form)
    inquiry = read_inquiry("books", params)
    assert inquiry.schema == form
    assert (inquiry.module, inquiry.message) == ("books", "Which?")
