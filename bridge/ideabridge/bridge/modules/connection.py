"""Connection: one connection to a module, from its start to its end (SDK-NOTES).

An `mcp.Client` must be entered and left by one task and cannot be used again: `hold` is that task's whole life, a
new Connection is made for every attempt. Any number of other tasks call through `client` meanwhile.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, cast

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.client import Client
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ideabridge.bridge.modules.backchannel import Backchannel
from ideabridge.bridge.modules.errors import ModuleConnectError, ModuleError, ModuleProtocolError
from ideabridge.bridge.modules.expansion import Launch
from ideabridge.bridge.modules.http import REFUSED, HTTPTransport
from ideabridge.bridge.modules.listing import MAX_LISTING_BYTES, Listing, make_listing, read_pages, without_secrets
from ideabridge.bridge.modules.results import shown
from ideabridge.bridge.modules.secrets import Secrets
from ideabridge.bridge.modules.settings import ModuleConfiguration
from ideabridge.bridge.modules.status import Era
from ideabridge.bridge.modules.stdio import StdioTransport
from ideabridge.bridge.modules.tap import Tap

_REFRESH_SECONDS: Final = 0.25
_REFRESH_MOST: Final = 2.0
_LISTEN_AGAIN_SECONDS: Final = 1.0
_LISTEN_AGAIN_MOST: Final = 60.0
_WORDS: Final = 600
_NAME: Final = 200


@functools.cache
def _version() -> str:
    return importlib.metadata.version("ideabridge")


@dataclass(frozen=True, slots=True)
class Peer:
    """Who answered."""

    era: Era
    protocol_version: str
    server_name: str | None
    server_version: str | None
    instructions: str | None


class Connection:
    """One attempt to connect, and what comes of it.

    Attributes:
        peer: who answered; None until the module is up.
        done: set when it is over and everything of it is closed.
        timed_out: whether the module was mute while connecting.
        listing: its tools, refreshed when it says they changed.
        backchannel: tells which call a question belongs to.
    """

    def __init__(
        self,
        module: str,
        configuration: ModuleConfiguration,
        launch: Launch,
        *,
        legacy: bool,
        secrets: Secrets,
        max_bytes: int,
        on_listing: Callable[[], None],
        on_ask: Callable[[], None],
    ) -> None:
        self._module = module
        self._configuration = configuration
        self._secrets = secrets
        self._on_listing = on_listing
        self._stdio: StdioTransport | None = None
        if configuration.kind == "stdio":
            self._stdio = StdioTransport(module, launch, max_line_bytes=max_bytes)
        connect_timeout = configuration.connect_timeout
        self.backchannel = Backchannel(on_ask)
        self._tap = Tap(
            self._stdio
            or HTTPTransport(launch, configuration.kind, connect_timeout=connect_timeout, max_bytes=max_bytes),
            self.backchannel,
            lambda: self._changed.set(),
        )
        self.client = Client(
            self._tap,
            mode="legacy" if legacy or configuration.kind == "sse" else "auto",
            read_timeout_seconds=connect_timeout,
            message_handler=self._on_message,
            elicitation_callback=self.backchannel.elicit,
            client_info=types.Implementation(name="ideabridge", version=_version()),
            cache=None,
        )
        self._changed = anyio.Event()
        self._stop = anyio.Event()
        self._scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.timed_out = False
        self._cause = "ended the connection"
        self.peer: Peer | None = None
        self.listing = Listing()

    @property
    def usable(self) -> bool:
        """Whether calls can go through it."""
        return self.peer is not None and not self._tap.ended.is_set() and not self._stop.is_set()

    @property
    def protocol_fault(self) -> bool:
        """Whether it was ended because of what the module sent."""
        return self._tap.fault is not None or (self._stdio is not None and self._stdio.protocol_fault)

    @property
    def garbage(self) -> tuple[int, list[str]]:
        """How many lines of a child's output were no message, and the last few of them, masked."""
        if self._stdio is None:
            return 0, []
        return self._stdio.garbage, [self._secrets.mask(line) for line in self._stdio.garbage_lines]

    @property
    def left_out(self) -> int:
        """How many notifications of the module were too many."""
        return self._tap.left_out

    def stop(self) -> None:
        """End it: `hold` returns soon."""
        self._stop.set()
        self._cause = "was closed"
        if self.peer is None:
            self._scope.cancel()

    def end(self, during: str = "") -> str:
        """How it ended: "ended with exit code 3 while ...; its last words: ...", "was closed"."""
        if self._tap.fault is not None:
            return self._tap.fault + during
        if self._stdio is None or self._stdio.reason is None:
            return self._cause + during
        return self._stdio.reason + during + self._words()

    async def hold(self, on_up: Callable[[], None], on_down: Callable[[], None]) -> None:
        """Connect, list the tools, call `on_up`, and hold the connection until it ends.

        `on_down` is called as soon as the end is seen, before everything is closed.

        Raises:
            ModuleError: it did not come up; the message says why.
        """
        seconds = self._configuration.connect_timeout
        self._scope.deadline = anyio.current_time() + seconds
        try:
            with self._scope:
                await self._enter(on_up, on_down)
        except Exception as error:  # noqa: BLE001 - whatever one module does must not reach the others
            if self.peer is None:
                raise self._failure(error) from None
            self._cause = f"ended the connection: {_text(next(_leaves(error)), self._secrets)}"
        finally:
            self._stop.set()
            self.done.set()
        if self.peer is None:
            self.timed_out = anyio.current_time() >= self._scope.deadline
            what = (
                f"did not answer within {seconds:g} s{self._words()}"
                if self.timed_out
                else "was closed before it was up"
            )
            raise ModuleConnectError(self._module, f"module {self._module!r} {what}")

    async def _enter(self, on_up: Callable[[], None], on_down: Callable[[], None]) -> None:
        async with self.client as client:
            version = client.protocol_version
            self._tap.version = version
            self.listing = await self._list()
            info = client.server_info
            era: Era = "modern" if version in MODERN_PROTOCOL_VERSIONS else "legacy"
            instructions = client.instructions
            self.peer = Peer(
                era=era,
                protocol_version=version,
                server_name=shown(info.name, self._secrets, _NAME) if info else None,
                server_version=shown(info.version, self._secrets, _NAME) if info else None,
                instructions=shown(instructions, self._secrets) if instructions else None,
            )
            self._scope.deadline = float("inf")
            on_up()
            async with anyio.create_task_group() as group:
                group.start_soon(self._refresh)
                if era == "modern" and (tools := client.server_capabilities.tools) is not None and tools.list_changed:
                    group.start_soon(self._listen)
                group.start_soon(self._wait_for_stop, group.cancel_scope)
                await self._tap.ended.wait()
                on_down()
                group.cancel_scope.cancel()

    async def _wait_for_stop(self, scope: anyio.CancelScope) -> None:
        await self._stop.wait()
        scope.cancel()

    async def _list(self) -> Listing:
        async def read(cursor: str | None) -> types.ListToolsResult:
            params = types.PaginatedRequestParams(cursor=cursor) if cursor is not None else None
            page = await self.client.session.list_tools(params=params)
            if self._tap.listed > MAX_LISTING_BYTES:
                raise ModuleProtocolError(
                    self._module,
                    f"module {self._module!r} lists its tools in more than {MAX_LISTING_BYTES:,} bytes",
                )
            return page

        self._tap.notes.clear()
        self._tap.listed = 0
        try:
            found = await read_pages(self._module, read)
        except MCPError as error:
            # A server of resources or prompts only has no tools to list.
            if error.code != types.METHOD_NOT_FOUND:
                raise
            found = []
        notes = list(self._tap.notes)

        def listing() -> Listing:
            return without_secrets(make_listing(self._module, found, self._configuration, notes), self._secrets)

        # Compiling thousands of schemas, or a few hostile ones, takes a second, which nobody else should wait for.
        return await anyio.to_thread.run_sync(listing)

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed.set()

    async def _refresh(self) -> None:
        """List again when the module says that its tools changed, at most four times a second."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            began = anyio.current_time()
            try:
                listing = await self._list()
            except (MCPError, ModuleError, ValidationError) as error:
                notes = (*self.listing.notes, f"its changed tools could not be listed: {_text(error, self._secrets)}")
                listing = Listing(self.listing.tools, notes[-50:])
            if listing != self.listing:
                self.listing = listing
                self._on_listing()
            # A long list that changes all the time must not take all of our time.
            took = anyio.current_time() - began
            await anyio.sleep(max(_REFRESH_SECONDS, min(_REFRESH_MOST, 9 * took)))

    async def _listen(self) -> None:
        """2026: subscribe to changes; again, ever more seldom, when the stream is lost."""
        pause = _LISTEN_AGAIN_SECONDS
        while True:
            try:
                async with self.client.listen(tools_list_changed=True) as events:
                    pause = _LISTEN_AGAIN_SECONDS
                    # What changed before the subscription stood was not told.
                    self._changed.set()
                    async for _ in events:
                        self._changed.set()
            except MCPError as error:
                if error.code == types.METHOD_NOT_FOUND:
                    return
            except (SubscriptionLost, TimeoutError):
                pass  # listened to again below
            await anyio.sleep(pause)
            pause = min(pause * 2, _LISTEN_AGAIN_MOST)

    def _words(self) -> str:
        words = self._stdio.last_words if self._stdio is not None else []
        return f"; its last words: {shown(words[-1], self._secrets, _WORDS)}" if words else ""

    def _failure(self, error: Exception) -> ModuleError:
        leaves = list(_leaves(error))
        ours = next((leaf for leaf in leaves if isinstance(leaf, ModuleError)), None)
        if ours is not None:
            return ours
        name = f"module {self._module!r}"
        if self.protocol_fault:
            return ModuleProtocolError(self._module, f"{name} {self.end()}")
        if self._stdio is not None and self._stdio.reason not in (None, "was closed"):
            return ModuleConnectError(self._module, f"{name} {self.end(' before it was up')}")
        chosen = next((leaf for leaf in leaves if isinstance(leaf, MCPError)), leaves[0])
        lasting = isinstance(chosen, MCPError) and chosen.data == REFUSED
        what = f"{name} did not come up: {_text(chosen, self._secrets)}{self._words()}"
        return ModuleConnectError(self._module, what, lasting=lasting)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(part)
    else:
        yield error


def _text(error: BaseException, secrets: Secrets) -> str:
    if isinstance(error, ValidationError):
        return "it answered with what is not MCP"
    if isinstance(error, MCPError):
        return f"{shown(error.message, secrets, _WORDS)} ({error.code})"
    return shown(str(error) or type(error).__name__, secrets, _WORDS)
