"""Find the call that a server's question or log message belongs to, and tell the server which
questions it can ask.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, cast

import anyio
import mcp_types as types
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import JSONRPCRequest

from ideabridge.bridge.modules.asking import FORMS, NOBODY, Asking, Start, refusal_of
from ideabridge.tools.encoding import JSONObject

_CALLING: ContextVar[Asking | None] = ContextVar("calling", default=None)
_EVERYTHING: Final[JSONObject] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}
"""The capabilities that are declared to an exposed server outside any call. Its questions go to the
clients of direct calls, and some of these clients might be able to answer them.
"""

_MAY_ASK: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})
_MOST_ADDRESSES: Final = 1000
"""The maximum number of addresses that are remembered after a client was asked to open them. An
address is forgotten when the server reports that the interaction at the address is complete.
"""

_TOLD_SECONDS: Final = 5.0
_QUESTIONS: Final = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})


class Backchannel:
    """The unanswered calls on one connection, and the questions that the server asks during them.

    Up to protocol version 2025-11-25, a question does not say which call it belongs to, yet only
    the person who made that call may see it. Therefore, a question is passed on only if exactly one
    call is unanswered. Otherwise, it is cancelled, and every call in flight gets an error.

    Args:
        on_ask: called for each question. After the first question, the server's calls run one at a
            time.
        on_mixed: called with the number of sessions if the server asks while calls of several
            sessions are running. From then on, each session has its own connection.
        exposed: whether the server may ask the clients of direct calls.

    Attributes:
        start: starts a task of the connection, or None until the connection is up.
    """

    def __init__(
        self, on_ask: Callable[[], None], on_mixed: Callable[[int], None], *, exposed: bool
    ) -> None:
        self._asked = False
        self._on_ask = on_ask
        self._on_mixed = on_mixed
        self._declared = _EVERYTHING if exposed else FORMS
        self.start: Start | None = None
        # For each unanswered request, by id: its call, or None if the call was cancelled.
        self._unanswered: dict[str | int, Asking | None] = {}
        self._live: list[Asking] = []
        # For each question, by its id as a string: the calls that were unanswered when it arrived.
        self._asking: dict[str, list[Asking | None]] = {}
        # For each address, by the server's id for it: the call whose client was asked to open it.
        self._addresses: OrderedDict[str, Asking] = OrderedDict()

    @contextmanager
    def calling(self, asking: Asking) -> Generator[None]:
        """Record that the requests sent by this task belong to a call.

        If the call is cancelled, its unanswered requests are remembered, because the server might
        still ask questions about them.
        """
        self._live.append(asking)
        token = _CALLING.set(asking)
        was_cancelled = False
        try:
            yield
        except anyio.get_cancelled_exc_class():
            was_cancelled = True
            raise
        finally:
            _CALLING.reset(token)
            self._live.remove(asking)
            asking.end()
            for request, owner in list(self._unanswered.items()):
                if owner is asking and was_cancelled:
                    self._unanswered[request] = None
                elif owner is asking:
                    del self._unanswered[request]

    def sent(self, message: JSONRPCRequest) -> None:
        """Record a request that was sent."""
        asking = _CALLING.get()
        if message.method in _MAY_ASK:
            self._unanswered[message.id] = asking

        if asking is None:
            _declare(message, self._declared)
            return

        _declare(message, asking.capabilities)
        client = asking.client
        meta = _meta(message)
        if client is not None and types.CLIENT_CAPABILITIES_META_KEY in meta and client.log_level:
            # Since 2026-07-28, each request says from which level on the client wants log messages.
            meta[types.LOG_LEVEL_META_KEY] = client.log_level

    def answered(self, request: str | int) -> None:
        """Record that the server has answered a request, so that later questions cannot belong to
        it.
        """
        self._unanswered.pop(request, None)

    def asked(self, request: JSONRPCRequest) -> None:
        """Record a question from the server, and the calls that are unanswered now.

        This method receives the messages in order. `elicit`, by contrast, runs in another task,
        which might start after the call has been answered.
        """
        if request.method in _QUESTIONS:
            self._asking[str(request.id)] = list(self._unanswered.values())

    def logged(self, params: dict[str, Any]) -> None:
        """Forward a log message if all unanswered calls come from one client. The message does not
        say which call it belongs to, so it is dropped otherwise.
        """
        last: Asking | None = None
        sessions = set[object]()
        for asking in self._unanswered.values():
            if asking is None or asking.client is None:
                return
            last = asking
            sessions.add(asking.client.session)

        if last is not None and len(sessions) == 1 and self.start is not None:
            last.logged(params, self.start)

    def addressed(self, name: str | None, asking: Asking) -> None:
        """Record that the client of a call was asked to open an address. `name` is the id that the
        server chose for the address.
        """
        if name is None:
            return
        self._addresses[name] = asking
        if len(self._addresses) > _MOST_ADDRESSES:
            self._addresses.popitem(last=False)

    def completed(self, name: str) -> None:
        """Tell the client that was asked to open an address that the interaction there is
        complete.
        """
        asking = self._addresses.pop(name, None)
        if asking is None:
            return
        client = asking.client
        own_id = asking.own_ids.get(name)
        if client is None or own_id is None or self.start is None:
            return

        async def tell() -> None:
            # A client that has left, or does not read, must neither delay the server's connection
            # nor end it.
            with suppress(Exception), anyio.move_on_after(_TOLD_SECONDS):
                await client.tell_completed(own_id)

        self.start(tell)

    def settled(self, request: str) -> None:
        """Record that a question was answered, or that the server cancelled it."""
        self._asking.pop(request, None)

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Pass a question to the call that it belongs to, or cancel the question."""
        answer = await self._answer(context, types.ElicitRequest(params=params))
        if isinstance(answer, types.ElicitResult | types.ErrorData):
            return answer
        return _wrong(answer)

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
        """Pass a sampling request to the client of the direct call that the request belongs to, or
        refuse the request.
        """
        answer = await self._answer(context, types.CreateMessageRequest(params=params))
        if isinstance(answer, types.ElicitResult | types.ListRootsResult):
            return _wrong(answer)
        return answer

    async def list_roots(
        self, context: ClientRequestContext
    ) -> types.ListRootsResult | types.ErrorData:
        """Pass a request for roots to the client of the direct call that the request belongs to, or
        refuse the request.
        """
        answer = await self._answer(context, types.ListRootsRequest())
        if isinstance(answer, types.ListRootsResult | types.ErrorData):
            return answer
        return _wrong(answer)

    async def _answer(
        self, context: ClientRequestContext, question: types.InputRequest
    ) -> types.InputResponse | types.ErrorData:
        unanswered = self._asking.get(str(context.request_id), [])
        if not unanswered and not isinstance(question, types.ElicitRequest):
            return _refusal("the server asked outside a call")

        self._asked = True
        self._on_ask()
        live = [asking for asking in self._live if asking in unanswered]
        if len(live) == len(unanswered) == 1 and not live[0].is_mixed:
            return await self._answer_of(live[0], question)

        if len(live) == len(unanswered):
            reason = (
                f"{len(live)} of its calls were running, and the question does not say which of "
                "these calls it belongs to"
            )
        else:
            reason = (
                "one of its earlier calls was cancelled, and the question may belong to that call"
            )

        is_for_people = isinstance(question, types.ElicitRequest)
        if any(asking.is_mixed for asking in live):
            # The callers already know that the question cannot be assigned to a call, and their
            # calls are ending or are being sent again.
            return types.ElicitResult(action="cancel") if is_for_people else _refusal(reason)

        message = question.params.message if is_for_people else question.method
        sessions = {asking.session for asking in live}
        if len(sessions) > 1:
            self._on_mixed(len(sessions))
            advice = f"{reason}. From now on, each session has its own process of the server"
        else:
            advice = f"{reason}. From now on, its calls run one at a time: run the call again"
        for asking in live:
            asking.is_mixed = len(sessions) > 1
            asking.refuse(message, advice)

        if is_for_people and not any(asking.client for asking in live):
            return types.ElicitResult(action="cancel")
        return _refusal(reason)

    async def _answer_of(
        self, owner: Asking, question: types.InputRequest
    ) -> types.InputResponse | types.ErrorData:
        """Ask a question that belongs to the call of `owner`, and return the answer."""
        if owner.client is not None:
            if isinstance(question.params, types.ElicitRequestURLParams):
                self.addressed(question.params.elicitation_id, owner)
            try:
                return await owner.relay(question)
            except MCPError as error:
                return error.error

        if isinstance(question, types.ElicitRequest):
            return await owner.put(question.params, apart=True)
        return _refusal(refusal_of(question))

    @property
    def is_idle(self) -> bool:
        """Whether no call is running."""
        return not self._live

    @property
    def is_spent(self) -> bool:
        """Whether no call is running, but a question from a cancelled call could be mistaken for
        one from a later call.
        """
        return self._asked and not self._live and bool(self._unanswered)


def _declare(message: JSONRPCRequest, capabilities: JSONObject) -> None:
    """Declare exactly the given capabilities. By default, the SDK declares everything that it has a
    callback for.
    """
    params: dict[str, Any] = message.params or {}
    if message.method == "initialize":
        params["capabilities"] = {**capabilities}
    elif types.CLIENT_CAPABILITIES_META_KEY in _meta(message):
        params["_meta"] = {**_meta(message), types.CLIENT_CAPABILITIES_META_KEY: {**capabilities}}


def _meta(message: JSONRPCRequest) -> dict[str, Any]:
    meta = (message.params or {}).get("_meta")
    return cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}


def _refusal(why: str) -> types.ErrorData:
    return types.ErrorData(code=types.INVALID_REQUEST, message=f"{NOBODY}: {why}")


def _wrong(answer: types.InputResponse | types.ErrorData) -> types.ErrorData:
    return types.ErrorData(
        code=types.INVALID_REQUEST, message=f"the client answered with {type(answer).__name__}"
    )
