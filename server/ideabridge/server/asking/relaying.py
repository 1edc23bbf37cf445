"""Pass questions from servers (forms, addresses, sampling, roots) on to the clients of direct
calls.

The questions are checked and marked like those of runs, and the answers are checked, too; see
`modules/asking.py` and `forms`.

The client and the server can use different versions of the protocol:

    client      server      a question reaches the client
    2025-11-25  either      as a request during the call
    2026-07-28  2026-07-28  instead of the result; the server gets its own state back, and nothing
                            is held: the sealed state contains the questions, and the answers are
                            checked against them
    2026-07-28  2025-11-25  instead of the result; the call at the server is parked until the client
                            repeats its request

A parked call stays in this process until `ANSWER_SECONDS` after a question. If the client repeats
its request at another server on the same store, that server gets the result from this server (see
`elsewhere`).
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from typing import Any, Final, TypeVar, cast, get_args

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, TypeAdapter, ValidationError

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.context.inquiry import AnswerError
from ideabridge.bridge.driving.driver import is_gone, own_driver_name
from ideabridge.bridge.modules.asking import (
    MAX_ASKS,
    NOBODY,
    DirectClient,
    ModuleAsks,
    read_response,
)
from ideabridge.bridge.modules.errors import (
    LegacyQuestionError,
    ModuleInputRequiredError,
    ModuleProtocolError,
    SharedQuestionError,
    shown,
)
from ideabridge.bridge.modules.module import Module
from ideabridge.bridge.modules.offering import wire
from ideabridge.bridge.modules.requests import meta_to_pass_on
from ideabridge.bridge.secrets import Secrets
from ideabridge.bridge.store.users import user_of
from ideabridge.server.asking.elsewhere import CallsElsewhere
from ideabridge.server.asking.forms import marked_question
from ideabridge.server.asking.rounds import InputRequired, Round
from ideabridge.server.callers import Context, caller_of, client_key, session_id
from ideabridge.tools.encoding import JSON, JSONObject, objects_in
from ideabridge.tools.errors import IdeabridgeError

ANSWER_SECONDS: Final = 600.0
"""Time limit, in seconds, for a client's answer to a question. There is a limit because the call
occupies a place at its server, and the client might have disconnected without notice.
"""

MOST_PARKED: Final = 50
"""Maximum number of parked calls that one caller can have."""

AnswerT = TypeVar("AnswerT")
MessageT = TypeVar("MessageT", bound=BaseModel)

_MOST_LEVELS: Final = 4000
_MOST_NAMED: Final = 10_000
_LONGEST_URI: Final = 1000
_LEVELS: Final[tuple[types.LoggingLevel, ...]] = get_args(types.LoggingLevel)
_KINDS: Final = ("elicitation", "sampling", "roots")
_QUESTION: Final[TypeAdapter[types.InputRequest]] = TypeAdapter(types.InputRequest)
_RESPONSE: Final[TypeAdapter[types.InputResponse]] = TypeAdapter(types.InputResponse)


_ENDED: Final = (
    "the call that asked this question has ended: nobody answered in time, or the server was restarted. It "
    "may have taken effect: check before you call it again"
)


def redacted_message(message: MessageT, secrets: Secrets) -> MessageT:
    """Return a message to a client with all configured secrets removed.

    Every message sent on behalf of a server passes through this function, even if it was already
    checked.
    """
    wire_form = wire(message)
    redacted = secrets.redact(wire_form)
    if redacted is wire_form:
        return message
    return type(message).model_validate(redacted, by_name=False)


class ParkedCallError(IdeabridgeError):
    """Raised when a call cannot be parked, or is no longer parked."""


class RelayedClient:
    """The client of a direct call, acting as the server's `DirectClient`.

    Args:
        context: the request.
        secrets: the values to remove from every message to the client.
        last: the round that a repeated request continues.
        responses: the answers in a repeated request.
        log_level: the lowest level of log messages that the client wants, or None if it wants none.
    """

    def __init__(
        self,
        context: Context,
        secrets: Secrets,
        last: Round | None,
        responses: Mapping[str, types.InputResponse] | None,
        log_level: types.LoggingLevel | None,
    ) -> None:
        self._context = context
        self._secrets = secrets
        self.meta = meta_to_pass_on(context.meta)
        self.log_level: types.LoggingLevel | None = log_level
        self._capabilities: JSONObject | None = None
        self.state = None if last is None else last.state
        self.responses = responses

    def marked(
        self, module: str, question: types.InputRequest, fault: str | None
    ) -> types.InputRequest:
        """Return a question with the server's words marked."""
        return marked_question(module, question, fault)

    @property
    def takes_rounds(self) -> bool:
        """True if the client accepts questions instead of a result."""
        return self._context.session.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def capabilities(self) -> JSONObject:
        """The client's declared capabilities for answering questions, in wire form. Empty if the
        client cannot be asked.
        """
        if self._capabilities is None:
            session = self._context.session
            if self.takes_rounds or session.can_send_request:
                declared = session.client_capabilities
            else:
                declared = None
            declaration = {} if declared is None else wire(declared)
            self._capabilities = {
                kind: cast("JSON", declaration[kind]) for kind in _KINDS if kind in declaration
            }
        return self._capabilities

    @property
    def session(self) -> Hashable:
        """The client's session or, over HTTP without sessions, its connection."""
        return client_key(self._context)

    async def log(self, message: types.LoggingMessageNotificationParams) -> None:
        """Send a log message to the client on the stream of the request."""
        notification = types.LoggingMessageNotification(
            params=redacted_message(message, self._secrets)
        )
        await self._context.session.send_notification(notification, self._context.request_id)

    async def tell_completed(self, name: str) -> None:
        """Notify a client of the handshake era that the interaction at an address is complete.
        Clients of later eras are not notified.
        """
        if not self.takes_rounds:
            params = types.ElicitCompleteNotificationParams(elicitation_id=name)
            notification = types.ElicitCompleteNotification(
                params=redacted_message(params, self._secrets)
            )
            await self._context.session.send_notification(notification)

    async def ask(self, question: types.InputRequest) -> types.InputResponse:
        """Send the question as a request to the client, as protocols up to 2025-11-25 do.

        Raises:
            MCPError: the client returned this error, its response is not a valid answer, or it did
                not respond in time.
        """
        session = self._context.session
        metadata = ServerMessageMetadata(related_request_id=self._context.request_id)
        kind: type[Any] = types.ElicitResult
        if isinstance(question, types.CreateMessageRequest):
            if question.params.tools is None:
                kind = types.CreateMessageResult
            else:
                kind = types.CreateMessageResultWithTools
        elif isinstance(question, types.ListRootsRequest):
            kind = types.ListRootsResult

        try:
            redacted = redacted_message(question, self._secrets)
            return await session.send_request(redacted, kind, ANSWER_SECONDS, metadata)
        except ValidationError:
            raise MCPError(
                types.INVALID_REQUEST, f"the client's answer to {question.method} is not valid"
            ) from None


class _ParkedCall:
    """A call to a server of the handshake era on behalf of a client of 2026-07-28.

    Any question from the server waits until the client repeats its request. The parked call acts as
    the server's `DirectClient`.
    """

    takes_rounds = False
    responses = None
    state = None

    def __init__(
        self, key: str, holder: str, caller: str, client: RelayedClient, secrets: Secrets
    ) -> None:
        self.key = key
        self._secrets = secrets
        self.name = f"{key} {holder}"
        self.caller = caller
        self.capabilities = client.capabilities
        self.meta = client.meta
        self.session = client.session
        self.log_level: types.LoggingLevel | None = client.log_level
        # The log of the client whose request began the call. It accepts no more messages once that
        # request has ended.
        self.log = client.log
        self.tell_completed = client.tell_completed
        self.marked = client.marked
        self.scope = anyio.CancelScope()
        self.is_parked = False
        self.taken = anyio.Event()
        self._questions: dict[str, JSONObject] = {}
        self._answers: dict[str, types.InputResponse] = {}
        self._question_count = 0
        self._result: Any = None
        self._error: BaseException | None = None
        self._ended = False
        self._moved = anyio.Event()
        self._answered = anyio.Event()

    async def run(self, call: Callable[[DirectClient], Awaitable[Any]]) -> None:
        """Await the call, and store its result in this object."""
        with self.scope:
            try:
                self._result = await call(self)
            except Exception as error:  # noqa: BLE001 - the request that waits raises it
                self._error = error

        if self.scope.cancelled_caught:
            self._error = ParkedCallError("the call was abandoned")

        self._ended = True
        self._moved.set()

    async def ask(self, question: types.InputRequest) -> types.InputResponse:
        """Ask a question, and wait until the client repeats its request with the answer."""
        self._question_count += 1
        name = f"question-{self._question_count}"
        self._questions[name] = wire(redacted_message(question, self._secrets))
        self._moved.set()
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                while name not in self._answers:
                    await self._answered.wait()
                    self._answered = anyio.Event()
        except TimeoutError:
            reason = f"{NOBODY} any more: the client did not return within {ANSWER_SECONDS:g} s"
            raise MCPError(types.INVALID_REQUEST, reason) from None
        finally:
            self._questions.pop(name, None)

        return self._answers.pop(name)

    def give(self, responses: Mapping[str, types.InputResponse]) -> None:
        """Pass the client's answers on to the server. Answers to questions that were not asked are
        ignored.
        """
        answers = {
            name: response for name, response in responses.items() if name in self._questions
        }
        self._answers.update(answers)
        for name in answers:
            del self._questions[name]
        if answers:
            self._answered.set()

    async def next(self) -> Any:
        """Return the result of the call.

        Raises:
            InputRequired: the server asks a question first.
        """
        while not self._ended and not self._questions:
            await self._moved.wait()
            if not self._ended:
                self._moved = anyio.Event()

        if self._questions and not self._ended:
            self.is_parked = True
            raise InputRequired({**self._questions}, Round("", parked=self.name))

        self.is_parked = False
        if self._error is not None:
            raise self._error
        return self._result


def _named_in(result: JSONObject) -> Iterator[str]:
    """Yield the URIs of the resources that a result mentions.

    They are in links, embedded resources (also within messages), and resource contents.
    """
    for block in objects_in(result.get("content")):
        yield from _named_by(block)

    for message in objects_in(result.get("messages")):
        yield from _named_by(message.get("content"))

    for contents in objects_in(result.get("contents")):
        if isinstance(uri := contents.get("uri"), str):
            yield uri


def _named_by(block: JSON) -> Iterator[str]:
    if not isinstance(block, dict):
        return

    if block.get("type") == "resource":
        named = block.get("resource")
    else:
        named = block

    if isinstance(named, dict) and block.get("type") in ("resource", "resource_link"):
        uri = named.get("uri")
        if isinstance(uri, str):
            yield uri


class Relaying:
    """Calls servers on behalf of clients, and relays the servers' questions. The task group must
    exist as long as the server does.

    Attributes:
        elsewhere: the calls that are parked on other servers.
    """

    def __init__(self, bridge: Bridge, group: TaskGroup) -> None:
        self._group = group
        self._modules = bridge.modules
        self._secrets = bridge.secrets
        self._name = own_driver_name()
        self.elsewhere = CallsElsewhere(
            bridge, group, lambda: self._parked, self._resumed, self._give_up
        )
        self._parked: dict[str, _ParkedCall] = {}
        # The log levels of clients of the handshake era, keyed by session. The number is limited,
        # because the SDK does not report the end of every session.
        self._levels: OrderedDict[str, types.LoggingLevel] = OrderedDict()
        # The server that first mentioned a resource to a caller, keyed by caller and URI.
        self._named: OrderedDict[tuple[str, str], str] = OrderedDict()

    def note_named(self, module: str, result: JSONObject, caller: str) -> None:
        """Record for a caller which resources a server's result mentions.

        They might be missing from the server's lists.
        """
        for uri in _named_in(result):
            if len(uri) <= _LONGEST_URI:
                self._named.setdefault((caller, uri), module)
                self._named.move_to_end((caller, uri))
        while len(self._named) > _MOST_NAMED:
            self._named.popitem(last=False)

    def module_that_named(self, uri: str, caller: str) -> str:
        """Return the server whose result first mentioned a resource to a caller, or "" if there is
        none.
        """
        return self._named.get((caller, uri), "")

    def set_level(self, session: str, level: types.LoggingLevel) -> types.LoggingLevel:
        """Record the lowest level of log messages that a session wants, and return the lowest level
        that any session wants.
        """
        self._levels[session] = level
        if len(self._levels) > _MOST_LEVELS:
            self._levels.popitem(last=False)
        return min(self._levels.values(), key=_LEVELS.index)

    def _level_of(self, context: Context) -> types.LoggingLevel | None:
        if context.session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            # A client that has set no level gets all messages.
            return self._levels.get(session_id(context), _LEVELS[0])
        level = (context.meta or {}).get(types.LOG_LEVEL_META_KEY)
        return level if level in _LEVELS else None

    async def answered(
        self,
        context: Context,
        last: Round | None,
        responses: Mapping[str, types.InputResponse] | None,
        module: str,
        call: Callable[[Module, DirectClient], Awaitable[AnswerT]],
    ) -> AnswerT:
        """Call a server with the caller's sign-in, and return the result.

        Args:
            context: the request of the client.
            last: the round that a repeated request continues.
            responses: the answers in a repeated request.
            module: the name of the server.
            call: calls the server on behalf of a client.

        Raises:
            InputRequired: the server asks a question first, and the client accepts questions
                instead of a result.
            ParkedCallError: too many calls are parked, or this call is no longer parked.
            MCPError: the server needs a capability that the client does not declare.
        """
        if last is not None and last.parked:
            key, _, holder = last.parked.partition(" ")
            if key in self._parked or holder == self._name or is_gone(holder):
                return await self._resumed(key, caller_of(context), responses or {})
            return await self.elsewhere.ask(key, caller_of(context), responses or {}, _ENDED)

        checked = None if last is None else self._checked(module, last, responses or {})
        client = RelayedClient(context, self._secrets, last, checked, self._level_of(context))
        user = user_of(caller_of(context))

        async def parked(client: DirectClient) -> AnswerT:
            # Use the server again, because the call continues after this request has ended.
            async with self._modules.using(module, user) as connected:
                return await call(connected, client)

        async def send() -> AnswerT:
            async with self._modules.using(module, user) as connected:
                return await self._answered(
                    client,
                    caller_of(context),
                    connected,
                    lambda client: call(connected, client),
                    parked,
                )

        try:
            return await send()
        except SharedQuestionError as error:
            if not error.repeatable:
                raise
            # The session now has its own connection to the server, so its client can be asked the
            # server's question.
            return await send()

    def _checked(
        self, module: str, last: Round, responses: Mapping[str, types.InputResponse]
    ) -> dict[str, types.InputResponse] | None:
        """Return the answers to a server's questions from the last round, or None if there are
        none.

        Raises:
            InputRequired: an answer is not accepted, so its question is asked again.
            ModuleInputRequiredError: the question was repeated too often, or cannot be repeated.
        """
        accepted = {
            name: _RESPONSE.validate_python(response, by_name=False)
            for name, response in last.given.items()
        }
        faults: dict[str, str] = {}
        are_forms = True
        for name, wire_question in last.questions.items():
            response = responses.get(name)
            if response is None:
                continue
            question = _QUESTION.validate_python(wire_question, by_name=False)
            try:
                accepted[name] = read_response(module, question, response, self._secrets)
            except AnswerError as error:
                faults[name] = shown(str(error), self._secrets)
                are_forms = are_forms and isinstance(question, types.ElicitRequest)

        if not faults:
            return accepted or None
        if last.tries + 1 >= MAX_ASKS or not are_forms:
            problem = f"the answer was not passed on: {next(iter(faults.values()))}"
            raise ModuleInputRequiredError(
                module, f"server {module!r} requires input from the client: {problem}"
            )

        responses_given = {name: wire(response) for name, response in accepted.items()}
        questions = {name: last.questions[name] for name in faults}
        following = Round(
            "", state=last.state, questions=questions, given=responses_given, tries=last.tries + 1
        )
        raise InputRequired(self._marked(module, questions, faults), following)

    def _marked(
        self, module: str, questions: Mapping[str, Any], faults: Mapping[str, str]
    ) -> JSONObject:
        """Return the questions of a round in wire form, marked as the server's."""
        marked: JSONObject = {}
        for name, wire_question in questions.items():
            question = marked_question(
                module, _QUESTION.validate_python(wire_question, by_name=False), faults.get(name)
            )
            marked[name] = wire(redacted_message(question, self._secrets))
        return marked

    async def _answered(
        self,
        client: RelayedClient,
        caller: str,
        module: Module,
        call: Callable[[DirectClient], Awaitable[AnswerT]],
        parked: Callable[[DirectClient], Awaitable[AnswerT]],
    ) -> AnswerT:
        parks = client.takes_rounds and bool(client.capabilities)
        if parks and await module.era_of_calls() == "legacy":
            return await self._begun(client, caller, parked)
        try:
            return await call(client)
        except ModuleAsks as asks:
            asks_nothing = asks.state is None and not asks.questions
            if asks_nothing:
                following = None
            else:
                following = Round("", state=asks.state, questions=asks.questions)
            raise InputRequired(self._marked(module.name, asks.questions, {}), following) from None
        except LegacyQuestionError as error:
            if not error.repeatable or not parks or await module.era_of_calls() != "legacy":
                raise
            return await self._begun(client, caller, parked)
        except ModuleProtocolError as error:
            if error.code != types.MISSING_REQUIRED_CLIENT_CAPABILITY or not client.takes_rounds:
                raise
            # Pass the error on, because the server knows which capabilities this client declares,
            # and its error names the one that is missing.
            raise MCPError(error.code, str(error), error.data) from None

    async def _begun(
        self, client: RelayedClient, caller: str, call: Callable[[DirectClient], Awaitable[AnswerT]]
    ) -> AnswerT:
        count = sum(1 for call in self._parked.values() if call.caller == caller and call.is_parked)
        if count >= MOST_PARKED:
            raise ParkedCallError(
                f"{count} of your calls are waiting for answers; the limit is {MOST_PARKED}"
            )

        parked = _ParkedCall(secrets.token_hex(16), self._name, caller, client, self._secrets)
        self._parked[parked.key] = parked
        self._group.start_soon(self._run, parked, call)
        return await self._next(parked)

    async def _resumed(
        self, key: str, caller: str, responses: Mapping[str, types.InputResponse]
    ) -> Any:
        parked = self._parked.get(key)
        if parked is None or parked.caller != caller:
            raise ParkedCallError(_ENDED)
        parked.give(responses)
        return await self._next(parked)

    def _give_up(self, key: str) -> None:
        if key in self._parked:
            self._parked[key].scope.cancel()

    async def _run(
        self, parked: _ParkedCall, call: Callable[[DirectClient], Awaitable[Any]]
    ) -> None:
        try:
            await parked.run(call)
        finally:
            if parked.is_parked and not parked.taken.is_set():
                # Keep the result of the call until the client repeats its request.
                with anyio.move_on_after(ANSWER_SECONDS):
                    await parked.taken.wait()
            self._parked.pop(parked.key, None)

    async def _next(self, parked: _ParkedCall) -> Any:
        try:
            result = await parked.next()
        except InputRequired:
            raise
        except BaseException:
            # Either the request was cancelled, or the call has failed.
            parked.scope.cancel()
            parked.taken.set()
            raise

        parked.taken.set()
        return result
