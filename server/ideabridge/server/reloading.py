"""Make a running server follow its configuration files and tool files.

New content takes effect if it is valid and trusted. Otherwise the previous content stays in force,
and the problem is reported wherever a person or a model looks: in the answers from search_tools,
run_plan and check_run, in the instructions for new clients, on the page, by `doctor`, and on
standard error.
"""

from __future__ import annotations

import getpass
import logging
import os
import platform
import time
import traceback
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration, ConfigurationError, user_file
from ideabridge.bridge.modules.modules import SecretState, secret_states
from ideabridge.bridge.modules.settings import secrets_named
from ideabridge.bridge.modules.sign_ins import folder as folder_of_sign_ins
from ideabridge.bridge.modules.sign_ins import sign_in_files
from ideabridge.bridge.store.configuration_log import ChangeStatus, LoggedChange
from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.users import LOCAL
from ideabridge.bridge.stored_secrets import StoredSecretError, secrets_path
from ideabridge.bridge.trust import FILE_NAME, Untrusted, last_trusted, trust_path
from ideabridge.server.watching import FileState, SourceWatch, state_of
from ideabridge.tools.errors import IdeabridgeError, ToolFileBusyError, ToolFileError
from ideabridge.tools.names import printable_line, visible
from ideabridge.tools.tool_files import helpers_of, is_loading, load_tool_files_anew
from ideabridge.tools.toolbox import Toolbox

logger: Final = logging.getLogger(__name__)

TOOL_FILE_SECONDS: Final = 5.0
"""Maximum time, in seconds, for reimporting the tool files in one folder."""

_MOST_FILES: Final = 500
"""Maximum number of Python files in a folder that are watched after one of its tool files has
failed.
"""

_MOST_LINES: Final = 100
"""Maximum number of lines stored for one change."""

_ToolStates = dict[Path, FileState]


class Reloading:
    """Follows the files of one server.

    Args:
        bridge: the open bridge of the server.
        read: reloads the configuration in the same way as at the start. This function blocks.
        followed: called after the bridge has switched to another configuration.
        report: writes a line for the server's operator.
        after: the `Reloading` of a server whose connected servers this server uses, or None if
            there is none. That server reads the files first, so that both agree on which connected
            servers they share.
    """

    def __init__(
        self,
        bridge: Bridge,
        read: Callable[[], Configuration],
        followed: Callable[[], None],
        report: Callable[[str], None],
        after: Reloading | None = None,
    ) -> None:
        self._after = after
        self._bridge = bridge
        self._read = read
        self._followed = followed
        self._report = report
        self._looking = anyio.Lock()
        # Files might have changed between the start of the process and the start of the watch.
        self._has_looked = False
        self._reported: tuple[str, ...] = ()
        # For each tool file that could not be loaded, the reason.
        self._faults: dict[str, str] = {}
        # The tool files that are waiting for an earlier import to end.
        self._waiting: set[str] = set()
        loaded = {*bridge.loaded_tool_files}
        for number, file in enumerate(
            file for file in bridge.configuration.tools if file not in loaded
        ):
            self._faults[file] = bridge.configuration.tool_faults[number]

        self._tool_states = {file: self._tool_files_of(file) for file in bridge.configuration.tools}
        # For each server, the state of its stored secrets when they were last read.
        self._secret_states: dict[str, frozenset[SecretState]] = {}
        # The files with sign-ins when they were last listed, each with the name of its server.
        self._sign_ins: dict[Path, str] = {}

    async def run(self) -> None:
        """Follow the files until cancelled."""
        self._secret_states = await self._read_secret_states(self._bridge.configuration)
        self._sign_ins = await anyio.to_thread.run_sync(sign_in_files)
        await SourceWatch(self.files, self.look, self._is_due).run()

    def _is_due(self) -> bool:
        """Return whether to read the files even though none has changed.

        This is the case when watching begins, and when tool files that were waiting for another
        import can be loaded.
        """
        if not self._has_looked:
            return True
        return bool(self._waiting) and not is_loading()

    def files(self) -> Collection[Path]:
        """Return the paths of the files that determine the configuration in force. Some of them
        might not exist.
        """
        configuration = self._bridge.configuration
        files = {user_file(), trust_path(), configuration.project.absolute() / FILE_NAME}
        files |= {layer.file for layer in configuration.layers}
        if configuration.untrusted is not None:
            files.add(configuration.untrusted.file)

        for states in self._tool_states.values():
            files |= states.keys()

        if any(secrets_named(entry) for entry in configuration.modules.values()):
            files.add(secrets_path())

        if any(entry.url for entry in configuration.modules.values()):
            files |= {folder_of_sign_ins(), *self._sign_ins}

        return files

    async def _follow_sign_outs(self) -> None:
        """Reconnect to each server that a person has signed out of, in this process or another.
        Otherwise, the connection would continue to use the tokens that it holds in memory.
        """
        before = self._sign_ins
        self._sign_ins = await anyio.to_thread.run_sync(sign_in_files, abandon_on_cancel=True)
        ended = {before[file] for file in before.keys() - self._sign_ins.keys()}
        configuration = self._bridge.configuration
        renewed = sorted(ended & configuration.modules.keys())
        if renewed:
            await self._bridge.reconfigure(configuration, renewed=renewed)

    async def _read_secret_states(
        self, configuration: Configuration
    ) -> dict[str, frozenset[SecretState]]:
        """Return the states of the stored secrets that each server gets.

        If the secrets cannot be read, return the previous states. A server that needs the secrets
        then reports the reason when it starts.
        """
        try:
            return await anyio.to_thread.run_sync(
                secret_states, configuration, abandon_on_cancel=True
            )
        except StoredSecretError as error:
            logger.warning("changes to stored secrets cannot be detected: %s", error)
            return self._secret_states

    async def look(self) -> None:
        """Read the files again, and apply any changes that can be applied."""
        try:
            if self._after is not None:
                await self._after.look()
            async with self._looking:
                await self._look()
        except Exception as error:  # noqa: BLE001 - the server goes on with what is in force
            trace = self._bridge.secrets.mask("".join(traceback.format_exception(error)))
            logger.error("changes to the configuration cannot be applied: %s", trace)

    async def _look(self) -> None:
        self._has_looked = True
        # Do this even if the configuration cannot be followed.
        await self._follow_sign_outs()
        before = self._bridge.configuration
        try:
            read = await anyio.to_thread.run_sync(self._read, abandon_on_cancel=True)
            secrets = await self._read_secret_states(read)
        except ConfigurationError as error:
            await self._keep(before, (_broken(error),), error.problems)
            return
        except IdeabridgeError as error:
            await self._keep(before, (_broken(error),), [str(error)])
            return

        untrusted = read.untrusted
        was_in_force = any(layer.is_project for layer in before.layers)
        if untrusted is not None and was_in_force and not _is_withdrawn(untrusted):
            message = untrusted.told_to_hosts(keeps_earlier=True)
            await self._keep(before, (message,), [untrusted.told()])
            return

        await self._follow(read, secrets)

    async def _keep(
        self, before: Configuration, sentences: tuple[str, ...], lines: Iterable[str]
    ) -> None:
        """Keep the configuration that is in force, and report why."""
        lines = list(lines)
        if before.withheld != sentences:
            await self._bridge.reconfigure(before.model_copy(update={"withheld": sentences}))
            self._followed()
            await self._log("withheld", lines)

        self._tell(lines)

    async def _log(self, status: ChangeStatus, lines: Iterable[str]) -> None:
        """Store the lines about a change, to be shown by the page and `doctor`."""
        configuration = self._bridge.configuration
        masked = tuple(self._bridge.secrets.mask(line) for line in lines)
        project = next((layer.file for layer in configuration.layers if layer.is_project), None)
        change = LoggedChange(
            at=time.time(),
            project=str(configuration.project),
            process=f"process {os.getpid()} on {platform.node()}",
            status=status,
            lines=masked[:_MOST_LINES],
            trusted_by="" if project is None else _user(),
            trusted_at=None if project is None else last_trusted(project),
        )
        try:
            await self._bridge.patiently(lambda: self._bridge.store.configuration_log.note(change))
        except StoreError as error:
            self._report(self._bridge.secrets.mask(f"the change is not stored: {error}"))

    def _tell(self, lines: Iterable[str]) -> None:
        """Report lines, unless they are the same as those last reported."""
        messages = tuple(lines)
        if messages == self._reported:
            return

        self._reported = messages
        for line in messages:
            self._report(self._bridge.secrets.mask(line))

    async def _follow(
        self, read: Configuration, secrets: dict[str, frozenset[SecretState]]
    ) -> None:
        before = self._bridge.configuration
        tools = await self._load_tools(read)
        faulty = {file for file in self._bridge.loaded_tool_files if file in self._faults}
        faults = {file: fault for file, fault in self._faults.items() if file in read.tools}
        self._faults = faults
        missing: list[str] = []
        withheld: list[str] = []
        for file, fault in faults.items():
            if file in faulty:
                withheld.append(
                    "A changed file of the user's tools could not be loaded, so its earlier tools "
                    f"stay in use: {fault}"
                )
            else:
                missing.append(fault)

        configuration = read.model_copy(
            update={"tool_faults": tuple(missing), "withheld": tuple(withheld)}
        )
        try:
            change = await self._bridge.reconfigure(configuration, tools, self._renewed(secrets))
        except ConfigurationError as error:
            await self._keep(self._bridge.configuration, (_broken(error),), error.problems)
            return

        self._secret_states = secrets
        self._followed()
        lines = [*change.lines(), *(f"tool file {file}: loaded again" for file in tools)]
        for line in lines:
            self._report(f"the configuration changed: {line}")

        if lines:
            await self._log("followed", lines)
        if configuration.withheld and configuration.withheld != before.withheld:
            await self._log("withheld", faults.values())

        self._tell([*faults.values(), *read.refused, *read.warnings])

    def _renewed(self, secrets: dict[str, frozenset[SecretState]]) -> list[str]:
        """Return the servers whose stored secrets have different names or values than before."""
        before = self._secret_states
        return [name for name, states in secrets.items() if states != before.get(name, frozenset())]

    # -- tool files --------------------------------------------------------------------------------

    def _tool_files_of(self, file: str) -> _ToolStates:
        """Return the files that the tools in a tool file depend on: the file and the modules that
        it imports from its folder.

        If the tool file could not be loaded, every Python file in the folder is included, because
        the tools might depend on any of them.
        """
        folder = Path(file).resolve().parent
        files = {Path(file), *helpers_of(folder)}
        if file in self._faults:
            files |= {*islice(folder.glob("*.py"), _MOST_FILES)}
        return {each: state_of(each) for each in files}

    async def _load_tools(self, read: Configuration) -> dict[str, Toolbox]:
        """Load the tool files that have changed, and return the tools of those that can be
        loaded.
        """
        loaded: dict[str, Toolbox] = {}
        for files in self._changed_folders(read):
            # Take the state before the import, so that a file that changes during the import is
            # loaded again.
            states = {file: self._tool_files_of(file) for file in files}
            for file, result in (await self._load_folder(read, files)).items():
                self._note(file, result, states[file])
                if isinstance(result, Toolbox):
                    loaded[file] = result

        self._tool_states = {
            file: states for file, states in self._tool_states.items() if file in read.tools
        }
        self._waiting.intersection_update(read.tools)
        return loaded

    def _changed_folders(self, read: Configuration) -> list[list[str]]:
        """Return, for each folder in which a tool file or a module that a tool file imports has
        changed, the tool files in the folder.
        """
        folders: dict[Path, list[str]] = {}
        changed: set[Path] = set()
        for file in read.tools:
            folder = Path(file).resolve().parent
            folders.setdefault(folder, []).append(file)
            before = self._tool_states.get(file)
            if before is None or before != {each: state_of(each) for each in before}:
                changed.add(folder)

        return [files for folder, files in folders.items() if folder in changed]

    def _note(self, file: str, result: Toolbox | ToolFileError, before: _ToolStates) -> None:
        """Record whether a tool file could be loaded, and which files the result depends on. A file
        that must wait still counts as changed.
        """
        if isinstance(result, Toolbox):
            self._faults.pop(file, None)
        else:
            self._faults[file] = printable_line(str(result))

        if isinstance(result, ToolFileBusyError):
            self._waiting.add(file)
            return

        self._waiting.discard(file)
        self._tool_states[file] = {**self._tool_files_of(file), **before}

    async def _load_folder(
        self, read: Configuration, files: list[str]
    ) -> dict[str, Toolbox | ToolFileError]:
        """Load the tool files in one folder in a thread, and wait up to `TOOL_FILE_SECONDS`.

        A thread cannot be stopped, so a longer import continues, but its result is not used.
        """
        expected = [(file, read.digest_of(file)) for file in files]
        scope = anyio.CancelScope(deadline=anyio.current_time() + TOOL_FILE_SECONDS)
        load = partial(
            load_tool_files_anew,
            expected,
            is_wanted=lambda: not scope.cancel_called,
            seconds=TOOL_FILE_SECONDS / 2,
        )
        with scope:
            return await anyio.to_thread.run_sync(load, abandon_on_cancel=True)
        reason = f"was not imported within {TOOL_FILE_SECONDS:g} s"
        return {file: ToolFileError(f"{file}: {reason}") for file in files}


def _is_withdrawn(untrusted: Untrusted) -> bool:
    """Return whether a person has withdrawn trust in a project file.

    If so, nothing from the file stays in force.
    """
    return not (untrusted.was_trusted or untrusted.problems or untrusted.problem)


def _user() -> str:
    """Return the name of the user who runs this process, whose trust in files applies."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return LOCAL


def _broken(error: IdeabridgeError) -> str:
    """Return a sentence for a model about files that cannot be used.

    It does not quote the files, because they can contain anything.
    """
    place = str(error).partition(": ")[0]
    return (
        "The configuration of ideabridge has changed and cannot be used as it is now "
        f"({visible(place)[:400]}), so the earlier configuration stays in force. Only the user can "
        "correct the files: `ideabridge doctor` says what is wrong. A corrected file takes effect "
        "at once."
    )
