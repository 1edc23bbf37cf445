"""The door to a server with workspaces. `/mcp/w/NAME` leads to the workspace with this name, and
`/ui/w/NAME` leads to its pages.

Each workspace is served as if it were a separate server, with the configuration, tool files and
store of its folder. The first request to a workspace opens it, and it stays open until the server
ends. The servers in the user's own configuration are shared with `/mcp`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskGroup
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.store.users import LOCAL, owner_of
from ideabridge.server.transports.gate import CALLS, WORKSPACES, Admission, TokenDoor
from ideabridge.server.workspaces import UnknownWorkspaceError
from ideabridge.tools.errors import IdeabridgeError

logger: Final = logging.getLogger(__name__)

_WORKSPACE: Final = "ideabridge.workspace"
"""The key, in the scope of a request, of the workspace in its address."""

_DOOR: Final = "ideabridge.door"
"""The key, in the scope of a request, of the door to the request's workspace."""


@dataclass(frozen=True, slots=True)
class ServedWorkspace:
    """An open workspace.

    Attributes:
        bridge: the bridge of the workspace.
        door: the door of the workspace.
        pages: the application of its pages, or None if the server has no page.
        close: ends listening requests in the workspace, because the server is about to end.
    """

    bridge: Bridge
    door: TokenDoor
    pages: ASGIApp | None
    close: Callable[[], None]


@dataclass(slots=True)
class _Opening:
    """A workspace that is open, or being opened.

    Attributes:
        folder: the folder of the workspace.
        scope: the scope whose cancellation ends the workspace.
        settled: set when the workspace is open or opening it has failed.
        served: the open workspace, or None if it is not open.
        error: why the workspace could not be opened, or None if there was no error.
    """

    folder: Path
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    settled: anyio.Event = field(default_factory=anyio.Event)
    served: ServedWorkspace | None = None
    error: IdeabridgeError | None = None


class Workspaces:
    """The workspaces of a server over HTTP.

    Args:
        group: runs the open workspaces.
        folder_of: returns the folder registered under a name, or raises `UnknownWorkspaceError`.
        serve: serves a folder as a workspace with the given name, until its context ends.
    """

    def __init__(
        self,
        group: TaskGroup,
        folder_of: Callable[[str], Path],
        serve: Callable[[str, Path], AbstractAsyncContextManager[ServedWorkspace]],
    ) -> None:
        self._group = group
        self._folder_of = folder_of
        self._serve = serve
        self._openings: dict[str, _Opening] = {}

    def open_now(self) -> dict[str, ServedWorkspace]:
        """Return the open workspaces, keyed by name."""
        return {
            name: opening.served
            for name, opening in self._openings.items()
            if opening.served is not None
        }

    async def opened(self, name: str) -> ServedWorkspace:
        """Return a workspace, opening it if this is its first request.

        Raises:
            UnknownWorkspaceError: no folder is registered under this name.
            IdeabridgeError: the workspace cannot be opened.
        """
        try:
            folder = self._folder_of(name)
        except UnknownWorkspaceError:
            # The user has since removed the folder from the registered workspaces.
            self._end(name)
            raise

        opening = self._openings.get(name)
        if opening is not None and opening.folder != folder:
            self._end(name)
            opening = None
        if opening is None:
            opening = _Opening(folder)
            self._openings[name] = opening
            self._group.start_soon(self._run, name, opening, name=f"workspace {name}")

        await opening.settled.wait()
        if opening.served is None:
            raise opening.error or UnknownWorkspaceError(f"workspace {name!r} was closed")
        return opening.served

    def close(self) -> None:
        """End listening requests in open workspaces."""
        for served in self.open_now().values():
            served.close()

    def _end(self, name: str) -> None:
        opening = self._openings.pop(name, None)
        if opening is not None:
            opening.scope.cancel()

    async def _run(self, name: str, opening: _Opening) -> None:
        """Serve a workspace until it is ended. An error ends only this workspace; the next request
        opens it again.
        """
        try:
            with opening.scope:
                async with self._serve(name, opening.folder) as served:
                    opening.served = served
                    opening.settled.set()
                    await anyio.sleep_forever()
        except IdeabridgeError as error:
            logger.warning("workspace %s cannot be opened: %s", name, error)
            opening.error = error
        except Exception as error:
            logger.error("workspace %s has ended: %s", name, error, exc_info=error)
            opening.error = IdeabridgeError(
                f"workspace {name!r} failed; see the log of the service"
            )
        finally:
            if self._openings.get(name) is opening:
                del self._openings[name]
            opening.served = None
            opening.settled.set()


class WorkspaceDoor:
    """The door to `/mcp` and to workspaces. Only the user of this machine is allowed to use
    workspaces.

    Args:
        own: the door to `/mcp`, which identifies everyone before a workspace is looked up.
        workspaces: the workspaces, or None for a server without workspaces.
    """

    def __init__(self, own: TokenDoor, workspaces: Workspaces | None) -> None:
        self._own = own
        self._workspaces = workspaces

    async def identify(self, scope: Scope) -> Admission | ASGIApp:
        """See `Door`."""
        name = _workspace_named(scope)
        if name is None:
            return await self._own.identify(scope)

        admission = await self._own.identify({**scope, "path": CALLS})
        if not isinstance(admission, Admission):
            return admission
        if self._workspaces is None:
            text = "this server has no workspaces; only the server of `ideabridge service` does"
            return self.refusal(404, text, {})
        if admission.caller is None or owner_of(admission.caller) != LOCAL:
            return self.refusal(404, "workspaces are for the user of this machine only", {})

        try:
            served = await self._workspaces.opened(name)
        except UnknownWorkspaceError as error:
            return self.refusal(404, str(error), {})
        except IdeabridgeError as error:
            return self._own.refusal(503, str(error), {"Retry-After": "5"})

        scope[_DOOR] = served.door
        return await served.door.identify(scope)

    def holds(self, admission: Admission) -> bool:
        """See `Door`."""
        return self._own.holds(admission)

    def refusal(self, status: int, why: str, headers: Mapping[str, str]) -> Response:
        """See `Door`."""
        return self._own.refusal(status, why, headers)

    def close(self) -> None:
        """End listening requests in open workspaces."""
        if self._workspaces is not None:
            self._workspaces.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See `Door`."""
        door: TokenDoor = scope.get(_DOOR, self._own)
        await door(scope, receive, send)


def _workspace_named(scope: Scope) -> str | None:
    """Return the workspace in a request's address, or None if the address names none.

    If the address names a workspace, it is rewritten to `/mcp` and the rest of the path, where the
    workspace handles the request.
    """
    path: str = scope["path"]
    if path.startswith(WORKSPACES):
        name, slash, rest = path.removeprefix(WORKSPACES).partition("/")
        scope[_WORKSPACE] = name
        scope["path"] = f"{CALLS}{slash}{rest}".removesuffix("/")
        scope["raw_path"] = scope["path"].encode()
    return scope.get(_WORKSPACE)
