"""Forward the questions that a server asks during a call to the caller.

A run can be asked to fill in forms with plain values (MCP elicitation, form mode). The client of a
direct call can also be asked to open a URL, to sample from a model or to list its roots, if it
declares support for this. Each question is checked, limited in size and marked as the server's own
words before anybody sees it. Each answer is checked before it is sent to the server. The same
checks apply to runs and to direct calls.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Hashable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any, Final, Protocol, cast, get_args
from urllib.parse import urlsplit

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from ideabridge.bridge.context.inquiry import AnswerError, Asker, FormAnswer, Inquiry, read_answer
from ideabridge.bridge.context.state import MISSING, Missing
from ideabridge.bridge.modules.client_session import client_session
from ideabridge.bridge.modules.errors import ModuleInputRequiredError, shown
from ideabridge.bridge.modules.offering import wire
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSON, JSONObject, encode, normalise
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.json_parts import json_type, strings_in
from ideabridge.tools.keywords import Place, children, schemas_in
from ideabridge.tools.names import visible
from ideabridge.tools.schema import check_schema
from ideabridge.tools.typed import member, read_as

logger = logging.getLogger(__name__)

MESSAGE_CHARACTERS: Final = 4000
SCHEMA_BYTES: Final = 16_000
MOST_FIELDS: Final = 50
MOST_LINES: Final = 100

_LONGEST_NAME: Final = 100
_ALLOWED_UNPRINTABLE: Final = "\n\t\u200d\ufe0f"
"""The unprintable characters that values can contain: line endings, tabs, and the joiners and
selectors in emoji.
"""

_LONGEST_VALUE: Final = 1000
"""The maximum length, in characters, of a choice or of a default."""

_NOTES: Final = frozenset({"title", "description", "default"})
_TOP: Final = _NOTES | {"$schema", "type", "properties", "required", "additionalProperties"}
_PLAIN: Final = frozenset({"string", "number", "integer", "boolean", "null"})
_BOUNDS: Final = frozenset(
    {
        *("minLength", "maxLength", "pattern", "format", "enum", "enumNames", "const"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    }
)
_OF_LISTS: Final = frozenset({"items", "minItems", "maxItems", "uniqueItems"})
_CHOICES: Final = frozenset({"oneOf", "anyOf"})
_OF_CHOICES: Final = _NOTES | _BOUNDS | {"type"}
_OF_FIELDS: Final = _OF_CHOICES | _OF_LISTS | _CHOICES
_OF_ITEMS: Final = _CHOICES | {"type", "enum"}


_LONGEST_ADDRESS: Final = 2000
_SYSTEM_PROMPT: Final = 16_000
_MESSAGES: Final = 100
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class FormError(IdeabridgeError):
    """Raised when a question must not be passed on, because it is not a valid form or is
    hostile.
    """


def read_inquiry(module: str, params: types.ElicitRequestParams) -> Inquiry:
    """Check and read a server's question.

    Raises:
        FormError: the question must not be passed on. The message says why, for the server and the
            run.
    """
    if not isinstance(params, types.ElicitRequestFormParams):
        raise FormError(
            "it asks the person to open an address (url mode), but a connected server may not "
            "choose addresses here"
        )

    message = _read_message(params.message)
    try:
        schema = normalise(params.requested_schema, what="its form")
        size = len(encode(schema))
    except IdeabridgeError as error:
        raise FormError(str(error)[:500]) from None

    if size > SCHEMA_BYTES:
        raise FormError(f"its form has {size:,} bytes of JSON; the limit is {SCHEMA_BYTES:,}")
    assert isinstance(schema, dict)
    try:
        check_schema(schema, what="its form")
    except IdeabridgeError as error:
        raise FormError(str(error)[:500]) from None

    _check_form(schema)
    return Inquiry(module, message, schema)


def _read_message(message: str) -> str:
    if len(message) > MESSAGE_CHARACTERS:
        raise FormError(
            f"its message has {len(message):,} characters; the limit is {MESSAGE_CHARACTERS:,}"
        )

    if len(visible(message, keep="\n\t")) > MESSAGE_CHARACTERS:
        raise FormError(
            "its message contains invisible characters: with them escaped, it has more than "
            f"{MESSAGE_CHARACTERS:,} characters"
        )

    lines = message.count("\n") + 1
    if lines > MOST_LINES:
        raise FormError(f"its message has {lines:,} lines; the limit is {MOST_LINES}")
    try:
        return str(normalise(message, what="its message"))
    except IdeabridgeError as error:
        raise FormError(str(error)[:500]) from None


def _check_address(params: types.ElicitRequestURLParams) -> None:
    """Check that a person can see the whole address, and that it does not hide where it leads.

    Raises:
        FormError: the address is too long, malformed or misleading.
    """
    _read_message(params.message)
    address = params.url
    if len(address) > _LONGEST_ADDRESS:
        raise FormError(
            f"its address has {len(address):,} characters; the limit is {_LONGEST_ADDRESS:,}"
        )

    if not address.isascii() or not address.isprintable() or " " in address or "\\" in address:
        raise FormError("its address contains characters that are not allowed in an address")

    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        raise FormError("its address cannot be read") from None

    if "@" in parts.netloc:
        raise FormError("its address contains a user name, which could be mistaken for a host")
    if not host or (parts.scheme != "https" and not (parts.scheme == "http" and host in _LOOPBACK)):
        raise FormError("its address does not begin with https://")


def _check_sampling(params: types.CreateMessageRequestParams) -> None:
    """Check that a sampling request is within the limits.

    Raises:
        FormError: the system prompt is too long, or there are too many messages.
    """
    prompt = params.system_prompt or ""
    if len(prompt) > _SYSTEM_PROMPT:
        raise FormError(
            f"its system prompt has {len(prompt):,} characters; the limit is {_SYSTEM_PROMPT:,}"
        )
    if len(params.messages) > _MESSAGES:
        raise FormError(f"it has {len(params.messages):,} messages; the limit is {_MESSAGES}")


def read_response(
    module: str, question: types.InputRequest, response: types.InputResponse, secrets: Secrets
) -> types.InputResponse:
    """Convert a response from the client of a direct call to the form that the server receives.

    Raises:
        AnswerError: the response does not fit the question or contains a secret, so the server must
            not receive it.
    """
    for place, name in secrets.places(normalise(wire(response), what="the answer")):
        raise AnswerError(
            f"{place} contains the secret {name} from the configuration, which no server may "
            "receive; answer without it"
        )

    if not isinstance(question, types.ElicitRequest):
        return response
    if not isinstance(response, types.ElicitResult):
        raise AnswerError(f"expected an answer to a form, found {type(response).__name__}")

    params = question.params
    if response.action != "accept" or isinstance(params, types.ElicitRequestURLParams):
        return types.ElicitResult(action=response.action)

    schema = cast("JSONObject", params.requested_schema)
    return _result(FormAnswer("accept", read_answer(module, schema, response.content or {})))


# -- forms -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Values:
    """The keywords of a schema that determine which values a person can enter. `type` is a type or
    a list of types.
    """

    type: str | None = None
    several_types: tuple[str, ...] = field(default=(), metadata=member("type"))
    enum: list[JSON] | None = None
    const: JSON | Missing = MISSING

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the values."""
        return self.several_types if self.type is None else (self.type,)

    @property
    def is_plain(self) -> bool:
        """Whether the schema names at least one type, and only types of plain values."""
        return bool(self.types) and _PLAIN.issuperset(self.types)

    @property
    def is_listed(self) -> bool:
        """Whether the keywords list the values."""
        return self.enum is not None or not isinstance(self.const, Missing)

    @property
    def listed(self) -> list[JSON]:
        """The listed values."""
        values = self.enum or []
        return values if isinstance(self.const, Missing) else [*values, self.const]


@dataclass(frozen=True, slots=True)
class _Choices(_Values):
    """The values allowed for a field, or for the elements of a list."""

    one_of: tuple[_Values, ...] = field(default=(), metadata=member("oneOf"))
    any_of: tuple[_Values, ...] = field(default=(), metadata=member("anyOf"))

    @property
    def alternatives(self) -> tuple[_Values, ...]:
        """The schemas of the listed choices."""
        return (*self.one_of, *self.any_of)

    @property
    def is_choice(self) -> bool:
        """Whether values or alternatives are listed."""
        return self.is_listed or bool(self.alternatives)


@dataclass(frozen=True, slots=True)
class _Field(_Choices):
    items: _Choices | None = None


@dataclass(frozen=True, slots=True)
class _Form:
    type: str | None = None
    required: tuple[str, ...] = ()
    fields: dict[str, _Field] = field(
        default_factory=dict[str, _Field], metadata=member("properties")
    )


@dataclass(frozen=True, slots=True)
class _Words:
    """The human-readable strings in a form or in one of its parts. `labels` contains only the
    strings in `all_labels`.
    """

    default: JSON = None
    labels: tuple[str, ...] = field(default=(), metadata=member("enumNames"))
    all_labels: JSON | Missing = field(default=MISSING, metadata=member("enumNames"))


def _check_form(schema: JSONObject) -> None:
    """Check that a schema describes a form with plain values that a person can see in full."""
    form = read_as(_Form, schema)
    if form.type != "object":
        raise FormError("its form is not an object with properties")

    _check_parts(schema)
    if len(form.fields) > MOST_FIELDS:
        raise FormError(f"its form has {len(form.fields)} fields; the limit is {MOST_FIELDS}")
    if not form.fields.keys() >= set(form.required):
        raise FormError(
            "its form requires a field that it does not have, so nobody could fill it in"
        )

    for name, form_field in form.fields.items():
        where = _where(("properties", name))
        if not name or len(name) > _LONGEST_NAME or visible(name) != name:
            raise FormError(f"{where}: expected a name of 1 to {_LONGEST_NAME} visible characters")
        _check_field(where, form_field)


def _check_parts(form: JSONObject) -> None:
    """Check the keywords, labels and defaults of each schema in a form."""
    for place, schema in schemas_in(form):
        if place[:1] == ("additionalProperties",):
            # A person fills in only the fields, so only the schemas of the fields matter.
            continue

        where = _where(place)
        allowed = _allowed_at(place)
        strange = next((keyword for keyword in schema if keyword not in allowed), None)
        if strange is not None:
            raise FormError(
                f"{where} has {strange[:60]!r}, which is not allowed in a form of plain values"
            )

        for step, child in children(schema):
            if json_type(child) != "object" and step != ("additionalProperties",):
                raise FormError(f"{_where((*place, *step))} is not a schema")

        if place:
            _check_words(where, read_as(_Words, schema))


def _where(place: Place) -> str:
    """Return the phrase that error messages use for a part of a form."""
    match place:
        case ():
            return "its form"
        case (_, name):
            return f"field {str(name)[:60]!r} of its form"
        case (*outer, "items"):
            return f"the items of {_where(tuple(outer))}"
        case (*outer, _, _):
            return f"one of the choices for {_where(tuple(outer))}"
        case _:
            raise AssertionError(place)


def _allowed_at(place: Place) -> frozenset[str]:
    """Return the keywords that are allowed in a part of a form."""
    match place:
        case ():
            return _TOP
        case (_, _):
            return _OF_FIELDS
        case (*_, "items"):
            return _OF_ITEMS
        case _:
            return _OF_CHOICES


def _check_field(where: str, form_field: _Field) -> None:
    items = form_field.items
    if form_field.type == "array":
        if items is None or not items.is_choice:
            raise FormError(
                f"{where} is a list of arbitrary values; expected choices that are strings"
            )
        _check_choices(f"the items of {where}", items)
        return

    if items is not None:
        raise FormError(f"{where} has `items` but is not a list")
    if not form_field.is_plain and not form_field.is_choice:
        types = " or ".join(map(repr, form_field.types)) or None
        raise FormError(
            f"{where}: expected a string, a number, an integer, a boolean or a choice, found type "
            f"{types}"
        )

    _check_choices(where, form_field)


def _check_choices(where: str, choices: _Choices) -> None:
    values = choices.listed
    for alternative in choices.alternatives:
        if not alternative.is_listed and not alternative.is_plain:
            raise FormError(f"one of the choices for {where} is not a plain value")
        values = [*values, *alternative.listed]

    if any(json_type(value) in ("array", "object") for value in values):
        raise FormError(f"one of the choices for {where} is not a plain value")
    if not all(map(_is_seen, strings_in(values))):
        raise FormError(
            f"one of the choices for {where} is too long or contains invisible characters"
        )


def _check_words(where: str, words: _Words) -> None:
    """Check that labels are strings, and that a person can see the whole default."""
    if words.all_labels not in (MISSING, list(words.labels)):
        raise FormError(f"{where}: expected enumNames to be strings")
    if not all(map(_is_seen, strings_in(words.default))):
        raise FormError(f"the default for {where} is too long or contains invisible characters")


def _is_seen(value: str) -> bool:
    return len(value) <= _LONGEST_VALUE and visible(value, keep=_ALLOWED_UNPRINTABLE) == value


# -- asking ----------------------------------------------------------------------------------------

MAX_ASKS: Final = 3
"""The maximum number of times that a form is shown. If an answer is not accepted, the form is shown
again with the reason.
"""

MAX_QUESTION_ROUNDS: Final = 10
"""The maximum number of times that a server can answer one call with questions (version
2026-07-28).
"""

QUESTIONS: Final = 20
"""The maximum number of questions that one call can ask a person."""

_MESSAGE: Final = 300

MOST_TIMEOUTS: Final = 10
"""The limit on the total duration of a call that reports progress, as a multiple of its timeout."""
QUESTION_BYTES: Final = 256 * 1024
"""The limits, in bytes of JSON, on one question to the client of a direct call, on all questions
that replace one result (including the server's state), and on one log message.
"""

FORMS: Final[JSONObject] = {"elicitation": {"form": {}}}
"""The capabilities that a call in a run declares, as protocol JSON."""

LOG_MESSAGES: Final = 1000
"""The maximum number of log messages from a call that wait for a slow client. If there are more
messages, the oldest are dropped.
"""

_LOG_SECONDS: Final = 1.0
"""The maximum time, in seconds, that the result of a call is delayed while the call's log messages
and progress are forwarded.
"""

Start = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]
"""A function that starts a task."""

_LEVELS: Final = get_args(types.LoggingLevel)
_LOG_MESSAGE: Final = TypeAdapter(types.LoggingMessageNotificationParams)
_LOG_PARTS: Final = ("level", "logger", "data")

NOBODY: Final = "nobody was asked"
"""The prefix of every error about a question that did not reach the client of a direct call."""

_QUESTION: Final[TypeAdapter[types.InputRequest]] = TypeAdapter(types.InputRequest)
_KINDS: Final[Mapping[str, str]] = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""Maps the method of a question to the capability that a client needs to answer it."""


class DirectClient(Protocol):
    """The client of a direct call."""

    @property
    def capabilities(self) -> JSONObject:
        """The capabilities for questions that the client declares, as protocol JSON: `elicitation`,
        `sampling`, `roots`.
        """
        ...

    @property
    def takes_rounds(self) -> bool:
        """Whether the client accepts questions in place of a result, and then repeats the call with
        the answers (version 2026-07-28).
        """
        ...

    @property
    def responses(self) -> Mapping[str, types.InputResponse] | None:
        """The answers that the client sent when it repeated the call."""
        ...

    @property
    def state(self) -> str | None:
        """The server's state that the client sent back when it repeated the call."""
        ...

    @property
    def meta(self) -> types.RequestParamsMeta | None:
        """The `_meta` of the client's request, without the members about its connection."""
        ...

    @property
    def session(self) -> Hashable:
        """A value that identifies the client across its calls. Log messages for this client are
        sent to no other client.
        """
        ...

    @property
    def log_level(self) -> types.LoggingLevel | None:
        """The lowest level of log messages that the client wants, or None if it wants none."""
        ...

    def marked(
        self, module: str, question: types.InputRequest, fault: str | None
    ) -> types.InputRequest:
        """Return the question as a person or a model sees it, with the server's words marked as
        such.

        Args:
            module: the server that asks.
            question: the server's question, checked and without secrets.
            fault: why the last answer was not accepted, or None if there was no answer yet.
        """
        ...

    async def ask(self, question: types.InputRequest) -> types.InputResponse:
        """Ask a question that has been marked as the server's, during the call.

        Raises:
            MCPError: the client cannot be asked now, or it responded with this error.
        """
        ...

    async def log(self, message: types.LoggingMessageNotificationParams) -> None:
        """Pass a log message on to the client."""
        ...

    async def tell_completed(self, name: str) -> None:
        """Tell the client that the interaction is complete at the address that it was asked to
        open.
        """
        ...


class ModuleAsks(Exception):  # noqa: N818 - not an error
    """Raised when a server answers a direct call with questions, which the client accepts in place
    of a result.

    Attributes:
        questions: the questions, keyed by name, as protocol JSON. They are checked and contain no
            secrets, but are not marked yet.
        state: the state that the server expects to get back.
    """

    def __init__(self, questions: JSONObject, state: str | None) -> None:
        super().__init__("the server asks")
        self.questions = questions
        self.state = state


class Asking:
    """The questions that a server asks during one call.

    Args:
        module: the server that is called.
        tool: the name of the tool in error messages.
        seconds: the timeout of the call. Its clock stops while a person is being asked.
        asker: passes questions to the caller, or None if nobody can be asked.
        secrets: the values to hide.
        client: the client of a direct call, which is asked instead of `asker`.

    Attributes:
        scope: ends the call after its timeout.
        allowed: the number of seconds that the call may take, excluding the time spent asking a
            person.
        refused: messages to the caller, one for each refused question.
        own_ids: maps the server's ids for addresses to the ids that the client gets.
        session: the session of the call's client; see `client_session`.
        is_mixed: whether the server has asked a question that might belong to another session's
            call.
    """

    def __init__(
        self,
        module: str,
        tool: str,
        seconds: float,
        asker: Asker | None,
        secrets: Secrets,
        client: DirectClient | None = None,
    ) -> None:
        self.client = client
        self.session = client_session()
        self.is_mixed = False
        self.scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)
        self.allowed = seconds
        self._seconds = seconds
        self.refused: list[str] = []
        self.own_ids: dict[str, str] = {}
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
        self._logs: deque[dict[str, Any]] = deque(maxlen=LOG_MESSAGES)
        self._passing: anyio.Event | None = None
        self._telling = 0
        self._told = anyio.Event()

    @property
    def capabilities(self) -> JSONObject:
        """The client capabilities declared to the server, as protocol JSON."""
        return FORMS if self.client is None else self.client.capabilities

    def extend(self) -> None:
        """Restart the timeout because the server has reported progress.

        No matter how often the timeout is restarted, the call takes at most `MOST_TIMEOUTS`
        timeouts.
        """
        left = self._left if self._waiting else self.scope.deadline - anyio.current_time()
        more = min(self._seconds - left, MOST_TIMEOUTS * self._seconds - self.allowed)
        if more <= 0:
            return
        self.allowed += more
        if self._waiting:
            self._left += more
        else:
            self.scope.deadline += more

    def logged(self, message: dict[str, Any], start: Start) -> None:
        """Forward a log message from the server to the client of a direct call.

        Args:
            message: the parameters of the notification.
            start: starts a task of the connection.
        """
        level = None if self.client is None else self.client.log_level
        if level is None or message.get("level") not in _LEVELS[_LEVELS.index(level) :]:
            return
        self._logs.append(message)
        if self._passing is None:
            self._passing = anyio.Event()
            start(self._pass_logs)

    async def _pass_logs(self) -> None:
        assert self.client is not None
        assert self._passing is not None
        try:
            while self._logs:
                sent = self._logs.popleft()
                # A server's own message can contain anything, so build a new one from known fields.
                parts = {part: sent[part] for part in _LOG_PARTS if part in sent}
                message = normalise({"data": None, **parts}, what="a log message")
                size = len(encode(message))
                if size > QUESTION_BYTES:
                    reason = (
                        f"(a log message of {size:,} bytes is left out; the limit is "
                        f"{QUESTION_BYTES:,})"
                    )
                    message = {"level": sent["level"], "data": reason}

                await self.client.log(_LOG_MESSAGE.validate_python(message, by_name=False))
        except Exception as error:  # noqa: BLE001 - a client that is gone must not end the connection of the module
            logger.warning(
                "a log message from server %r was not passed on: %s",
                self._module,
                type(error).__name__,
            )
            self._logs.clear()
        finally:
            self._passing.set()
            self._passing = None

    @contextmanager
    def telling(self) -> Generator[None]:
        """Delay the result of the call until the block ends, because the block forwards
        progress.
        """
        self._telling += 1
        try:
            yield
        finally:
            self._telling -= 1
            if self._telling == 0:
                self._told.set()
                self._told = anyio.Event()

    async def all_passed_on(self) -> None:
        """Wait up to a second until all log messages and progress have reached the client."""
        with anyio.move_on_after(_LOG_SECONDS):
            if self._passing is not None:
                await self._passing.wait()
            if self._telling:
                await self._told.wait()

    async def relay(self, question: types.InputRequest) -> types.InputResponse:
        """Ask the client of a direct call, during the call.

        Raises:
            MCPError: nobody could be asked, or the client responded with this error.
        """
        client = self.client
        assert client is not None
        question = self._askable(client, question)
        with self._stopped_clock(), anyio.CancelScope() as scope:
            self._open.add(scope)
            try:
                async with self._one:
                    return await self._answered(client, question)
            finally:
                self._open.discard(scope)

        raise MCPError(types.INVALID_REQUEST, f"{NOBODY}: the call has ended")

    async def _answered(
        self, client: DirectClient, question: types.InputRequest
    ) -> types.InputResponse:
        """Ask until an answer fits the question, at most `MAX_ASKS` times."""
        fault: str | None = None
        for _ in range(MAX_ASKS if isinstance(question, types.ElicitRequest) else 1):
            response = await client.ask(client.marked(self._module, question, fault))
            try:
                return read_response(self._module, question, response, self._secrets)
            except AnswerError as error:
                fault = shown(str(error), self._secrets)

        raise MCPError(types.INVALID_REQUEST, f"the answer was not passed on: {fault}")

    def _askable(self, client: DirectClient, question: types.InputRequest) -> types.InputRequest:
        """Return the question without secrets, or raise an error if the client cannot answer it."""
        kind = _KINDS[question.method]
        declared = client.capabilities.get(kind)
        if isinstance(question.params, types.ElicitRequestURLParams):
            mode = "url"
        else:
            mode = "form"

        self._asked += 1
        if not isinstance(declared, dict):
            if kind == "elicitation":
                instead = "; within a run (run_plan) it waits for a person"
            else:
                instead = ""
            raise self._nobody(question, f"the client does not declare {kind}{instead}")

        if kind == "elicitation" and mode not in declared and (mode == "url" or "url" in declared):
            raise self._nobody(question, f"the client does not declare {kind} of {mode}s")

        takes_tools = kind != "sampling" or "tools" in declared
        if not takes_tools and getattr(question.params, "tools", None) is not None:
            raise self._nobody(question, "the client does not declare sampling with tools")
        if self._asked > QUESTIONS:
            raise self._nobody(question, f"one call may ask at most {QUESTIONS} questions")

        try:
            question_json = normalise(wire(question), what="the question")
            size = len(encode(question_json))
            if size > QUESTION_BYTES:
                raise FormError(f"the question has {size:,} bytes; the limit is {QUESTION_BYTES:,}")

            return self._checked(question)
        except IdeabridgeError as error:
            raise self._nobody(question, str(error)[:500]) from None

    def _checked(self, question: types.InputRequest) -> types.InputRequest:
        """Return the question without secrets, after the same checks as in a run."""
        params = question.params
        if isinstance(params, types.ElicitRequestFormParams):
            inquiry = self._masked(read_inquiry(self._module, params))
            form = types.ElicitRequestFormParams(
                message=inquiry.message, requested_schema={**inquiry.schema}
            )
            return types.ElicitRequest(params=form)

        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitRequest(params=self._address(params))

        if isinstance(params, types.CreateMessageRequestParams):
            _check_sampling(params)
            # A server must not see the client's messages to other servers.
            question = types.CreateMessageRequest(
                params=params.model_copy(update={"include_context": "none"})
            )

        question_json = normalise(wire(question), what="the question")
        masked = self._secrets.redact(question_json)
        if masked is question_json:
            return question
        return _QUESTION.validate_python(masked, by_name=False)

    def _address(self, params: types.ElicitRequestURLParams) -> types.ElicitRequestURLParams:
        _check_address(params)
        if self._secrets.mask(params.url) != params.url:
            raise FormError("its address contains a secret from the configuration")

        # Clients that use version 2025-11-25 need an id, which does not exist in version
        # 2026-07-28. Create a new one for the client, because the server's own id can contain
        # anything.
        own_id = token_hex(8)
        if params.elicitation_id is not None:
            own_id = self.own_ids.setdefault(params.elicitation_id, own_id)

        return types.ElicitRequestURLParams(
            message=self._secrets.mask(params.message), url=params.url, elicitation_id=own_id
        )

    def addresses(self, client: DirectClient, error: MCPError) -> MCPError:
        """Check and mark the addresses in an error that asks the client to open them (2025-11-25).
        Return any other error unchanged.
        """
        if error.code != types.URL_ELICITATION_REQUIRED:
            return error

        try:
            asked = types.ElicitationRequiredErrorData.model_validate(error.data).elicitations
            checked = [types.ElicitRequest(params=self._address(address)) for address in asked]
        except (FormError, ValidationError) as fault:
            if isinstance(fault, FormError):
                reason = str(fault)
            else:
                reason = "its data does not consist of addresses"
            return MCPError(
                types.INVALID_REQUEST, f"{error.message} ({NOBODY} to open an address: {reason})"
            )

        marked = [wire(client.marked(self._module, address, None))["params"] for address in checked]
        return MCPError(error.code, error.message, {"elicitations": marked})

    def _nobody(self, question: types.InputRequest, why: str) -> MCPError:
        reason = f"{NOBODY} for {_KINDS[question.method]}: {why}"
        report = f"server {self._module!r}: {reason}"
        if report not in self.refused and len(self.refused) < QUESTIONS:
            self.refused.append(report)
        return MCPError(types.INVALID_REQUEST, reason)

    def asked_by(self, required: types.InputRequiredResult) -> ModuleAsks:
        """Convert the questions in a result to `ModuleAsks`, for a client that accepts questions in
        place of a result.

        Raises:
            ModuleInputRequiredError: the client cannot answer one of the questions.
        """
        client = self.client
        assert client is not None
        try:
            questions: dict[str, JSONObject] = {}
            for name, question in (required.input_requests or {}).items():
                sent = wire(self._askable(client, question))
                questions[name] = cast("JSONObject", normalise(sent, what="the question"))
        except MCPError as error:
            raise ModuleInputRequiredError(
                self._module, f"{self._tool} requires input from the client: {error.message}"
            ) from None

        for _, name in self._secrets.places({**questions}):
            # The names cannot be masked, because the server uses them to match the answers.
            raise ModuleInputRequiredError(
                self._module,
                f"{self._tool} asks questions whose names contain the secret {name} from the "
                "configuration",
            )

        size = len(encode({**questions})) + len(required.request_state or "")
        if size > QUESTION_BYTES:
            raise ModuleInputRequiredError(
                self._module,
                f"{self._tool} asks {len(questions)} questions, which total {size:,} bytes "
                f"including its state; the limit is {QUESTION_BYTES:,}",
            )

        return ModuleAsks({**questions}, required.request_state)

    async def put(
        self, params: types.ElicitRequestParams, *, apart: bool = False
    ) -> types.ElicitResult:
        """Ask a question and wait for the answer. A question that cannot be asked is declined and
        reported to the run.

        Args:
            params: the question.
            apart: True if this task does nothing but answer the question. The task is then
                cancelled if the server withdraws the question.
        """
        try:
            inquiry = self._masked(read_inquiry(self._module, params))
        except FormError as error:
            return self.refuse(params.message, str(error))

        if self._asker is None:
            return self.refuse(
                params.message, "this call cannot ask anybody; call the tool within a run"
            )

        self._asked += 1
        if self._asked > QUESTIONS:
            return self.refuse(params.message, f"one call may ask at most {QUESTIONS} questions")

        with self._stopped_clock(), anyio.CancelScope() as scope:
            self._open.add(scope)
            try:
                # Show a person only one of a call's forms at a time.
                async with self._one:
                    return _result(await self._ask(self._asker, inquiry, apart=apart))
            finally:
                self._open.discard(scope)

        return types.ElicitResult(action="cancel")

    def _masked(self, inquiry: Inquiry) -> Inquiry:
        """Return the question without secrets, because questions are shown and stored."""
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
        """End the call: cancel its open questions, and refuse new ones."""
        self._ended = True
        for scope in self._open:
            scope.cancel()

    def refuse(self, message: str, why: str) -> types.ElicitResult:
        """Decline a question, and report the reason to the caller."""
        asked = shown(message, self._secrets, _MESSAGE)
        reason = shown(why, self._secrets, _MESSAGE)
        report = f"server {self._module!r} asked {asked!r}, and got no answer: {reason}"
        # Report each refusal only once, because a server could repeat the same question endlessly.
        if report not in self.refused and len(self.refused) < QUESTIONS:
            self.refused.append(report)
            if self._asker is not None:
                self._asker.refuse(asked, reason)

        return types.ElicitResult(action="decline")

    async def answers(self, required: types.InputRequiredResult) -> dict[str, types.InputResponse]:
        """Ask the questions in a result (version 2026-07-28), and return the answers, with which
        the caller repeats the call.

        Raises:
            ModuleInputRequiredError: a question is not a form, or nobody can be asked.
        """
        requests = required.input_requests or {}
        if self.client is not None:
            try:
                return {name: await self.relay(question) for name, question in requests.items()}
            except MCPError as error:
                reason = shown(error.message, self._secrets, _MESSAGE)
                raise ModuleInputRequiredError(
                    self._module, f"{self._tool} requires input from the client: {reason}"
                ) from None

        unanswerable = next(
            (entry for entry in requests.values() if not isinstance(entry, types.ElicitRequest)),
            None,
        )
        if unanswerable is not None:
            raise ModuleInputRequiredError(
                self._module, f"{self._tool} asks for {refusal_of(unanswerable)}"
            )

        if self._asker is None:
            why = (
                f"{self._tool} asks the user for input, but this call cannot ask anybody; call it "
                "within a run"
            )
            raise ModuleInputRequiredError(self._module, why)

        answers: dict[str, types.InputResponse] = {}
        for name, request in requests.items():
            if isinstance(request, types.ElicitRequest):
                answers[name] = await self.put(request.params)

        return answers

    @contextmanager
    def _stopped_clock(self) -> Generator[None]:
        """Pause the call's timeout within this context."""
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
    """Return a phrase that names a kind of request that servers must not send, and says why."""
    if isinstance(request, types.CreateMessageRequest):
        return (
            "an answer from a model (sampling), which is refused, because a connected server would "
            "use up the user's model"
        )
    return "the folders of its client (roots), which connected servers may not see"


def _result(reply: FormAnswer) -> types.ElicitResult:
    if reply.action != "accept":
        return types.ElicitResult(action=reply.action)

    content: dict[str, str | int | float | bool | list[str] | None] = {}
    for name, value in (reply.content or {}).items():
        if isinstance(value, list):
            content[name] = [str(choice) for choice in value]
        elif not isinstance(value, dict):
            content[name] = value

    return types.ElicitResult(action="accept", content=content)
