"""Register the user's folders with the service, each under a name.

The address `/mcp/w/NAME` of the service leads to the folder registered under NAME. Only a command
run by the user can register a folder. A client can choose a name in an address, but never a folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

import platformdirs

from ideabridge.bridge.trust import TrustError, locked, read_own, write_own
from ideabridge.server.watching import FileState, state_of
from ideabridge.tools.encoding import decode, object_or_empty
from ideabridge.tools.errors import IdeabridgeError, InvalidJSONError
from ideabridge.tools.names import did_you_mean, shown_name

_MOST_FILE_BYTES: Final = 1_000_000
_LONGEST_NAME: Final = 48
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}")
_NOT_IN_NAME: Final = re.compile(r"[^a-z0-9_]+")
_SHOWN_CHARACTERS: Final = 64


class WorkspaceError(IdeabridgeError):
    """Raised when the registered workspaces cannot be read or changed. The message says why."""


class UnknownWorkspaceError(WorkspaceError):
    """Raised when no folder is registered under a name, or the folder no longer exists."""


def workspaces_file() -> Path:
    """Return the path of `workspaces.json`, which only the user is allowed to write to."""
    return platformdirs.user_config_path("ideabridge") / "workspaces.json"


def registered_workspaces() -> dict[str, Path]:
    """Return the registered folders, keyed and sorted by name.

    Raises:
        WorkspaceError: `workspaces.json` cannot be read, other users are allowed to write to it, or
            its content does not come from `register_workspace`.
    """
    path = workspaces_file()
    # Use the cache, because every request to a workspace asks for its folder.
    return _read(path, state_of(path))


@lru_cache(maxsize=1)
def _read(path: Path, _state: FileState) -> dict[str, Path]:
    try:
        content = object_or_empty(decode(read_own(path, _MOST_FILE_BYTES), what=str(path)))
    except FileNotFoundError:
        return {}
    except (TrustError, InvalidJSONError) as error:
        raise WorkspaceError(str(error)) from None
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be read: {error.strerror or error}") from None

    workspaces: dict[str, Path] = {}
    for name, folder in sorted(object_or_empty(content.get("workspaces")).items()):
        is_absolute = isinstance(folder, str) and Path(folder).is_absolute()
        if _NAME.fullmatch(name) is None or not is_absolute:
            raise WorkspaceError(
                f"{path}: workspaces: expected absolute folders under names of letters from a to "
                f"z, digits, _ and -; found {shown_name(name)[:_SHOWN_CHARACTERS]!r}"
            )
        workspaces[name] = Path(str(folder))
    return workspaces


def workspace_folder(name: str) -> Path:
    """Return the folder registered under a name.

    Raises:
        UnknownWorkspaceError: no folder is registered under this name, or the registered path is no
            longer a folder.
        WorkspaceError: see `registered_workspaces`.
    """
    workspaces = registered_workspaces()
    folder = workspaces.get(name)
    if folder is None:
        near = did_you_mean(name, workspaces)
        raise UnknownWorkspaceError(
            f"workspace {shown_name(name)[:_SHOWN_CHARACTERS]!r} is not registered.{near} "
            "`ideabridge install HOST --http --scope local` registers the folder in which it "
            "runs; `ideabridge service workspaces` lists what is registered"
        )
    if not folder.is_dir():
        raise UnknownWorkspaceError(
            f"the folder of workspace {name!r} no longer exists; run `ideabridge service forget "
            f"{name}` to remove it"
        )
    return folder


def register_workspace(folder: Path) -> str:
    """Register a folder, unless it is already registered, and return its name.

    Raises:
        WorkspaceError: `workspaces.json` cannot be written, or for one of the reasons of
            `registered_workspaces`.
    """
    folder = folder.resolve()
    workspaces: dict[str, Path] = {}

    def add(present: Mapping[str, Path]) -> Mapping[str, Path]:
        workspaces.update(present)
        if folder in workspaces.values():
            return present
        workspaces[_free_name(folder, present)] = folder
        return workspaces

    _change(add)
    return next(name for name, registered in workspaces.items() if registered == folder)


def forget_workspace(name: str) -> None:
    """Remove a name and its folder from the registered workspaces.

    Raises:
        UnknownWorkspaceError: no folder is registered under this name.
        WorkspaceError: as for `register_workspace`.
    """

    def remove(present: Mapping[str, Path]) -> Mapping[str, Path]:
        if name not in present:
            near = did_you_mean(name, present)
            raise UnknownWorkspaceError(
                f"workspace {shown_name(name)[:_SHOWN_CHARACTERS]!r} is not registered.{near}"
            )
        return {other: folder for other, folder in present.items() if other != name}

    _change(remove)


def _free_name(folder: Path, present: Mapping[str, Path]) -> str:
    """Return an unused name for a folder."""
    plain = _NOT_IN_NAME.sub("-", folder.name.lower()).strip("-_")[:_LONGEST_NAME] or "workspace"
    name = plain
    number = 1
    while name in present:
        number += 1
        ending = f"-{number}"
        name = f"{plain[: _LONGEST_NAME - len(ending)]}{ending}"
    return name


def _change(change: Callable[[Mapping[str, Path]], Mapping[str, Path]]) -> None:
    path = workspaces_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(path.with_name(f"{path.name}.lock")):
            present = registered_workspaces()
            changed = change(present)
            if changed != present:
                folders = {name: str(folder) for name, folder in sorted(changed.items())}
                content = {"version": 1, "workspaces": folders}
                write_own(path, json.dumps(content, indent=1))
    except TrustError as error:
        raise WorkspaceError(str(error)) from None
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be written to: {error.strerror or error}") from None
