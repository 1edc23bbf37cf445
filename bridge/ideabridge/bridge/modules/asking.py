"""Asking: the questions that a module asks during one call, passed to the caller.

A question is a form (MCP elicitation, form mode) with plain values. It is checked and bounded before a person sees it.
A form with anything else is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import anyio
import mcp_types as types

from ideabridge.bridge.context.inquiry import Asker, FormAnswer, Inquiry
from ideabridge.bridge.modules.errors import ModuleInputRequiredError, shown
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSON, JSONObject, encode, normalise
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import visible
from ideabridge.tools.schema import check_schema

MESSAGE_CHARACTERS: Final = 4000
SCHEMA_BYTES: Final = 16_000
FIELDS: Final = 50
LINES: Final = 100

_NAME: Final = 100
_KEPT: Final = "\n\t\u200d\ufe0f"
"""Characters that are allowed in values: line ends, tabs, and the joiners and selectors of emoji."""

_VALUE: Final = 1000
"""Characters of a choice or of a default."""

_NOTES: Final = frozenset({"title", "description", "default"})
_TOP: Final = _NOTES | {"$schema", "type", "properties", "required", "additionalProperties"}
_PLAIN: Final = frozenset({"string", "number", "integer", "boolean"})
_BOUNDS: Final = frozenset(
    {
        *("minLength", "maxLength", "pattern", "format", "enum", "enumNames", "const"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    }
)
_OF_LISTS: Final = frozenset({"items", "minItems", "maxItems", "uniqueItems"})
_CHOICES: Final = ("oneOf", "anyOf")


class FormError(IdeabridgeError):
    """Nobody is asked this question, because it is not a form, or is a hostile one."""


def read_inquiry(module: str, params: types.ElicitRequestParams) -> Inquiry:
    """Check and read the question of a module.

    Raises:
        FormError: nobody may be asked this; the message contains the reason for the module and the run.
    """
    if not isinstance(params, types.ElicitRequestFormParams):
        raise FormError("it wants an address to be opened (url mode), which a connected server does not choose here")
    if len(params.message) > MESSAGE_CHARACTERS:
        raise FormError(f"its message has {len(params.message):,} characters; at most {MESSAGE_CHARACTERS:,} are shown")
    if len(visible(params.message, keep="\n\t")) > MESSAGE_CHARACTERS:
        raise FormError(
            f"its message holds characters that a person cannot see: more than {MESSAGE_CHARACTERS:,} as escapes"
        )
    lines = params.message.count("\n") + 1
    if lines > LINES:
        raise FormError(f"its message has {lines:,} lines; at most {LINES} are shown")
    try:
        message = str(normalise(params.message, what="its message"))
        schema = normalise(params.requested_schema, what="its form")
        size = len(encode(schema))
    except IdeabridgeError as error:
        raise FormError(str(error)[:500]) from None
    if size > SCHEMA_BYTES:
        raise FormError(f"its form has {size:,} bytes of JSON; at most {SCHEMA_BYTES:,} are shown")
    assert isinstance(schema, dict)
    _check(schema)
    try:
        check_schema(schema, what="its form")
    except IdeabridgeError as error:
        raise FormError(str(error)[:500]) from None
    return Inquiry(module, message, schema)


def _check(schema: JSONObject) -> None:
    fields = schema.get("properties", {})
    if schema.get("type") != "object" or not isinstance(fields, dict):
        raise FormError("its form is not an object with properties")
    _known("its form", schema, _TOP)
    if len(fields) > FIELDS:
        raise FormError(f"its form has {len(fields)} fields; at most {FIELDS} are shown")
    if any(name not in fields for name in _list(schema.get("required")) if isinstance(name, str)):
        raise FormError("its form requires a field that it does not have, so nobody could fill it in")
    for name, field in fields.items():
        where = f"field {name[:60]!r} of its form"
        if not name or len(name) > _NAME or visible(name) != name:
            raise FormError(f"{where}: expected a name of 1 to {_NAME} characters that a person can see")
        if not isinstance(field, dict):
            raise FormError(f"{where} is not a schema")
        _check_field(where, field)


def _check_field(where: str, field: JSONObject) -> None:
    _known(where, field, _NOTES | _BOUNDS | _OF_LISTS | {"type", *_CHOICES})
    _check_words(where, field)
    kind = field.get("type")
    if kind == "array":
        items = field.get("items")
        if not isinstance(items, dict) or not any(key in items for key in ("enum", *_CHOICES)):
            raise FormError(f"{where} is a list of anything; expected a choice of texts")
        _known(f"the items of {where}", items, {"type", "enum", *_CHOICES})
        _check_choices(f"the items of {where}", items)
        return
    if "items" in field:
        raise FormError(f"{where} has items and is not a list")
    if not _is_plain(kind) and not any(key in field for key in ("enum", "const", *_CHOICES)):
        raise FormError(f"{where}: expected a text, a number, an integer, a boolean or a choice, found type {kind!r}")
    _check_choices(where, field)


def _check_choices(where: str, field: JSONObject) -> None:
    values: list[JSON] = [*_list(field.get("enum")), *([field["const"]] if "const" in field else [])]
    for key in _CHOICES:
        for one in _list(field.get(key)):
            if not isinstance(one, dict):
                raise FormError(f"{where}: {key} contains something that is not a schema")
            _known(f"a choice of {where}", one, _NOTES | _BOUNDS | {"type"})
            _check_words(f"a choice of {where}", one)
            if "const" not in one and "enum" not in one and not _is_plain(one.get("type")):
                raise FormError(f"a choice of {where} is not a plain value")
            values += [*_list(one.get("enum")), *([one["const"]] if "const" in one else [])]
    if any(isinstance(value, dict | list) for value in values):
        raise FormError(f"a choice of {where} is not a plain value")
    if any(isinstance(value, str) and not _is_seen(value) for value in values):
        raise FormError(f"a choice of {where} is too long, or holds characters that a person cannot see")


def _check_words(where: str, field: JSONObject) -> None:
    """Check that labels are texts, and that a person can see the whole of a default."""
    names = field.get("enumNames", [])
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise FormError(f"{where}: expected enumNames to be texts")
    for key in ("title", "description"):
        if not isinstance(field.get(key, ""), str):
            raise FormError(f"{where}: expected its {key} to be a text")
    default = field.get("default")
    for one in default if isinstance(default, list) else [default]:
        if isinstance(one, str) and not _is_seen(one):
            raise FormError(f"the default of {where} is too long, or holds characters that a person cannot see")


def _is_seen(value: str) -> bool:
    return len(value) <= _VALUE and visible(value, keep=_KEPT) == value


def _is_plain(kind: JSON) -> bool:
    if isinstance(kind, list):
        return bool(kind) and all(one in _PLAIN or one == "null" for one in kind)
    return kind in _PLAIN or kind == "null"


def _known(where: str, schema: JSONObject, known: frozenset[str] | set[str]) -> None:
    strange = next((key for key in schema if key not in known), None)
    if strange is not None:
        raise FormError(f"{where} says {strange[:60]!r}, which no form of plain values does")


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


# -- asking ----------------------------------------------------------------------------------------------------------

MAX_QUESTION_ROUNDS: Final = 10
"""The most times that one call may be answered with questions (2026)."""

QUESTIONS: Final = 20
"""The most questions that one call may ask a person."""

_MESSAGE: Final = 300


class Asking:
    """The questions of one call.

    Args:
        module: the module of the call.
        tool: the name of the call in errors.
        seconds: the time-out of the call, which is paused while a person is asked.
        asker: passes questions to the caller; None if nobody can be asked.
        secrets: values that are hidden.

    Attributes:
        scope: ends the call after its time-out.
        refused: messages to the caller about questions that nobody was asked.
    """

    def __init__(self, module: str, tool: str, seconds: float, asker: Asker | None, secrets: Secrets) -> None:
        self.scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)
        self.refused: list[str] = []
        self._module = module
        self._tool = tool
        self._asker = asker
        self._secrets = secrets
        self._asked = 0
        self._waiting = 0
        self._left = 0.0
        self._one = anyio.Lock()
        self._open: set[anyio.CancelScope] = set()
        self._ended = False

    async def put(self, params: types.ElicitRequestParams, *, apart: bool = False) -> types.ElicitResult:
        """Ask a question and wait for the answer. A question that cannot be asked is declined and reported to the run.

        Args:
            params: the question.
            apart: True if this task answers only the question: it is cancelled if the module withdraws the question.
        """
        try:
            inquiry = self._masked(read_inquiry(self._module, params))
        except FormError as error:
            return self.refuse(params.message, str(error))
        if self._asker is None:
            return self.refuse(params.message, "nobody can be asked by this call; call the tool within a run")
        self._asked += 1
        if self._asked > QUESTIONS:
            return self.refuse(params.message, f"one call may ask {QUESTIONS} questions, and this is one more")
        with self._stopped_clock(), anyio.CancelScope() as scope:
            self._open.add(scope)
            try:
                # A person sees one form of a call at a time.
                async with self._one:
                    return _result(await self._ask(self._asker, inquiry, apart=apart))
            finally:
                self._open.discard(scope)
        return types.ElicitResult(action="cancel")

    def _masked(self, inquiry: Inquiry) -> Inquiry:
        """The question without secrets, because it is shown and stored."""
        schema = self._secrets.redact(inquiry.schema)
        return replace(
            inquiry,
            message=self._secrets.mask(inquiry.message),
            schema=schema if isinstance(schema, dict) else inquiry.schema,
        )

    async def _ask(self, asker: Asker, inquiry: Inquiry, *, apart: bool) -> FormAnswer:
        if self._ended:
            return FormAnswer("cancel")
        try:
            return await asker.ask(inquiry)
        except anyio.get_cancelled_exc_class():
            if apart and not self._ended:
                asker.withdraw()
            raise

    def end(self) -> None:
        """End the call: open questions are cancelled, and no more are asked."""
        self._ended = True
        for scope in self._open:
            scope.cancel()

    def refuse(self, message: str, why: str) -> types.ElicitResult:
        """Decline a question, and report the reason to the caller."""
        said = shown(message, self._secrets, _MESSAGE)
        reason = shown(why, self._secrets, _MESSAGE)
        report = f"module {self._module!r} asked {said!r}, and was not answered: {reason}"
        # A module may repeat a question without end.
        if report not in self.refused and len(self.refused) < QUESTIONS:
            self.refused.append(report)
            if self._asker is not None:
                self._asker.refuse(said, reason)
        return types.ElicitResult(action="decline")

    async def answers(self, required: types.InputRequiredResult) -> dict[str, types.InputResponse]:
        """The answers to the questions in a result (2026), with which the call is sent again.

        Raises:
            ModuleInputRequiredError: a question is not a form, or nobody can be asked.
        """
        wanted = required.input_requests or {}
        other = next((one for one in wanted.values() if not isinstance(one, types.ElicitRequest)), None)
        if other is not None:
            raise ModuleInputRequiredError(self._module, f"{self._tool} asks for {refusal_of(other)}")
        if self._asker is None:
            why = f"{self._tool} asks the user for input, and nobody can be asked by this call; call it within a run"
            raise ModuleInputRequiredError(self._module, why)
        found: dict[str, types.InputResponse] = {}
        for name, request in wanted.items():
            if isinstance(request, types.ElicitRequest):
                found[name] = await self.put(request.params)
        return found

    @contextmanager
    def _stopped_clock(self) -> Generator[None]:
        """Pause the time-out of the call."""
        if self._waiting == 0:
            self._left = self.scope.deadline - anyio.current_time()
            self.scope.deadline = float("inf")
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                self.scope.deadline = anyio.current_time() + self._left


def refusal_of(request: types.InputRequest) -> str:
    """Name the request of a module that is always refused, with the reason."""
    if isinstance(request, types.CreateMessageRequest):
        return "an answer of a model (sampling), which is refused: a connected server would spend the user's model"
    return "the folders of its client (roots), which are not told to connected servers"


def _result(reply: FormAnswer) -> types.ElicitResult:
    if reply.action != "accept":
        return types.ElicitResult(action=reply.action)
    content: dict[str, str | int | float | bool | list[str] | None] = {}
    for name, value in (reply.content or {}).items():
        if isinstance(value, list):
            content[name] = [str(one) for one in value]
        elif not isinstance(value, dict):
            content[name] = value
    return types.ElicitResult(action="accept", content=content)
