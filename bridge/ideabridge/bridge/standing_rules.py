"""Store the rules by which people have allowed tools *always*, each in one workspace.

A rule is bound to the tool's definition, to the way the tool's server starts, and to the workspace.
If one of these changes, the rule no longer covers the tool, and calls to the tool ask again. A rule
covers only the calls of the person who gave it.

The rules of this machine's user are in `approvals.json` in the user's configuration folder, next to
`trust.json`. No project file can add or read rules. The rules of everyone else (the users of a
server) are settings in the store. Both are read again whenever they change, so a rule covers no
further calls once it is withdrawn. If the file cannot be used, none of the rules of this machine's
user apply.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

import platformdirs

from ideabridge.bridge.configuration import Configuration, start_definitions
from ideabridge.bridge.loop.event import Decider, JournalError, read_decider
from ideabridge.bridge.loop.standing import StandingTool, coverable
from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.rule_changes import ALWAYS, ASKS, RuleChange
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import LOCAL, SEES_ALL, Viewer, owner_of
from ideabridge.bridge.trust import TrustError, contains_home, read_own, write_own
from ideabridge.tools.encoding import JSON, JSONObject, content_hash, decode, encode, objects_in
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import visible
from ideabridge.tools.tool import Tool
from ideabridge.tools.typed import read_as, read_whole

logger: Final = logging.getLogger(__name__)

FILE_NAME: Final = "approvals.json"
MAX_RULES: Final = 1000
"""Maximum number of rules that one person can have."""

MAX_BYTES: Final = 2 * 1024 * 1024
"""Maximum size of one person's rules, in bytes."""

_MAX_TEXT: Final = 4096
_LATEST: Final = 253_000_000_000
"""The latest valid time in a rule, in seconds since 1970. This time is in the year 9987."""

LOCK_SECONDS: Final = 5.0
"""Time, in seconds, to wait while another process changes the rules."""

_SETTING: Final = "always "
_VERSION: Final = 1
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)

State: TypeAlias = Literal["holds", "outdated", "elsewhere"]
"""Whether a rule still covers its tool. `outdated`: the tool, or the way its server starts, has
changed. `elsewhere`: the rule belongs to another workspace.
"""


_Change: TypeAlias = "Callable[[Mapping[str, StandingRule]], Mapping[str, StandingRule]]"


_STATES: Final[dict[State, str]] = {
    "holds": "holds",
    "outdated": "outdated: the tool, or the way its server starts, has changed",
    "elsewhere": "applies in its workspace",
}


class StandingRuleError(IdeabridgeError):
    """The rules cannot be read or changed. The message says why."""


class RulesLockedError(StandingRuleError):
    """Another process is changing the rules."""


@dataclass(frozen=True, slots=True)
class StandingRule:
    """One rule: a tool that a person has allowed always.

    Attributes:
        owner: the caller whose calls the rule covers.
        workspace: see `workspace_of`.
        tool: the tool.
        server: the start definition of the tool's server or, for a tool from a tool file, a hash of
            the tool files.
        by: the person who gave the rule.
        at: the time when the rule was given, in seconds since 1970.
    """

    owner: str
    workspace: str
    tool: StandingTool
    server: str
    by: Decider
    at: float

    @property
    def id(self) -> str:
        """The id, computed from the owner, the workspace, the tool and the server."""
        return rule_id(self.owner, self.workspace, self.tool, self.server)

    @property
    def covered(self) -> str:
        """The SHA-256 in hex of everything that the rule is bound to: the owner, the workspace, the
        tool and the server.
        """
        return _covered(self.owner, self.workspace, self.tool, self.server)

    @property
    def subject(self) -> tuple[str, str, str, str]:
        """The values that identify the allowed tool, regardless of its definition. A person has at
        most one rule for each subject.
        """
        return (self.workspace, self.tool.module, self.tool.name, self.tool.activity)

    @property
    def cited(self) -> JSONObject:
        """The rule as a journal cites it: `{"id", "at"}`."""
        return {"id": self.id, "at": self.given}

    @property
    def given(self) -> str:
        """The time at which the rule was given, as ISO 8601 in UTC."""
        return datetime.fromtimestamp(self.at, UTC).isoformat(timespec="seconds")

    def to_json(self) -> JSONObject:
        """Return the rule as it is stored. The owner is stored next to it."""
        return {
            "workspace": self.workspace,
            "module": self.tool.module,
            "tool": self.tool.name,
            "activity": self.tool.activity,
            "digest": self.tool.digest,
            "server": self.server,
            "by": self.by.to_json(),
            "at": self.at,
        }


@dataclass(frozen=True, slots=True)
class ListedRule:
    """A rule, and whether it still covers its tool."""

    rule: StandingRule
    state: State

    @property
    def words(self) -> str:
        """A description of the state, for users."""
        return _STATES[self.state]

    def to_json(self) -> JSONObject:
        """Return the rule as `approvals rules --json` prints it."""
        rule = self.rule
        return {
            "id": rule.id,
            "state": self.state,
            "caller": rule.owner,
            "module": rule.tool.module or None,
            "tool": rule.tool.name,
            "workspace": rule.workspace or None,
            "by": str(rule.by),
            "at": rule.given,
        }


def rule_id(owner: str, workspace: str, tool: StandingTool, server: str) -> str:
    """Return the id of the rule for exactly this owner, workspace and tool. `server` is as in
    `StandingRule`.
    """
    return _covered(owner, workspace, tool, server)[:12]


def _covered(owner: str, workspace: str, tool: StandingTool, server: str) -> str:
    """Return the hash of everything that a rule is bound to; see `StandingRule.covered`."""
    covered: JSON = [
        owner,
        workspace,
        tool.module,
        tool.name,
        tool.activity,
        tool.digest,
        server,
    ]
    return content_hash({"covered": covered})


def workspace_of(configuration: Configuration) -> str:
    """Return the workspace of a configuration: the real path of its project folder, or "".

    A folder that contains the home folder is not a project.
    """
    if contains_home(configuration.project):
        return ""
    folder = os.path.realpath(configuration.project)
    # The name of a folder need not be valid UTF-8.
    return folder.encode(errors="backslashreplace").decode()


def servers_of(configuration: Configuration) -> dict[str, str]:
    """Return what rules are bound to besides the tool's definition, keyed by server.

    The value of a server identifies the way in which the server starts. The value under the key ""
    identifies the content of the tool files.

    If there are no tool files, the key "" is absent. The code of a tool that a program passes in
    cannot be identified, so no rule can be bound to that code.
    """
    servers = start_definitions(configuration)
    del servers[""]
    if not configuration.tools:
        return servers

    files: list[JSON] = []
    for file in configuration.tools:
        try:
            files.append(hashlib.sha256(Path(file).read_bytes()).hexdigest())
        except OSError:
            # The bridge has already reported that this file cannot be loaded.
            files.append(None)

    return {**servers, "": content_hash({"files": files})}


# -- reading ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RulesFile:
    version: int | None = None
    rules: list[JSON] | None = None


@dataclass(frozen=True, slots=True)
class _StoredRule:
    """A standing rule as `StandingRule.to_json` writes it."""

    workspace: str
    module: str
    tool: str
    activity: str
    digest: str
    server: str
    at: float
    by: JSON


def _read_rules(data: bytes, owner: str, what: str) -> dict[str, StandingRule]:
    """Read stored rules, keyed by id.

    Raises:
        StandingRuleError: the rules are damaged, so none of them applies.
    """
    if not data:
        return {}

    try:
        content = decode(data, what=what, max_bytes=MAX_BYTES)
    except IdeabridgeError as error:
        raise StandingRuleError(f"{error}; none of its rules apply") from None

    file = read_as(_RulesFile, content)
    stored = file.rules
    if file.version != _VERSION or stored is None:
        raise StandingRuleError(
            f'{what}: expected {{"version": {_VERSION}, "rules": [...]}}; none of its rules apply'
        )
    if len(stored) > MAX_RULES:
        raise StandingRuleError(
            f"{what}: expected at most {MAX_RULES:,} rules, found {len(stored):,}; none of its "
            "rules apply"
        )

    rules: dict[str, StandingRule] = {}
    for number, entry in enumerate(stored):
        rule = _read_rule(entry, owner)
        if rule is None:
            raise StandingRuleError(f"{what}: rules[{number}] is damaged; none of its rules apply")
        rules[rule.id] = rule

    return rules


def _read_rule(value: JSON, owner: str) -> StandingRule | None:
    """Read one stored rule. Return None if it is damaged."""
    stored = read_whole(_StoredRule, value)
    if stored is None or not 0 <= stored.at <= _LATEST or not _DIGEST.fullmatch(stored.digest):
        return None

    tool = StandingTool(stored.module, stored.tool, stored.activity, stored.digest)
    texts = (stored.workspace, stored.server, tool.module, tool.name, tool.activity)
    if any(len(text) > _MAX_TEXT for text in texts):
        return None

    try:
        by = read_decider(stored.by)
    except JournalError:
        return None

    if by.kind != "person" or len(by.user or "") > _MAX_TEXT:
        return None
    return StandingRule(owner, stored.workspace, tool, stored.server, by, float(stored.at))


def _written(rules: Iterable[StandingRule]) -> bytes:
    stored: list[JSON] = [rule.to_json() for rule in rules]
    data = encode({"version": _VERSION, "rules": stored})
    if len(data) > MAX_BYTES:
        raise StandingRuleError(
            f"your standing rules would take up {len(data):,} bytes; the limit is {MAX_BYTES:,}. "
            "Withdraw some with `ideabridge approvals rules --remove ID`"
        )
    return data


# -- the file of the user of this machine ----------------------------------------------------------


def rules_path() -> Path:
    """Return the path of the file that holds the rules of this machine's user."""
    return platformdirs.user_config_path("ideabridge") / FILE_NAME


@dataclass(frozen=True, slots=True)
class _ReadFile:
    """The content of the rules file as it was last read.

    Attributes:
        signature: values that identify the content, or an empty tuple if there was no file.
        rules: the rules, keyed by id.
        problem: why the file cannot be used, or None.
    """

    signature: tuple[int, ...] = ()
    rules: Mapping[str, StandingRule] = field(default_factory=dict[str, StandingRule])
    problem: str | None = None


class _RuleFile:
    """The rules of this machine's user."""

    def __init__(self) -> None:
        # Always replace `_last` as a whole, because a thread can change the rules while the event
        # loop is reading them.
        self._last = _ReadFile()

    def read(self) -> Mapping[str, StandingRule]:
        """Return the rules, keyed by id.

        Raises:
            StandingRuleError: the file cannot be used, so none of its rules applies.
        """
        path = rules_path()
        try:
            about = path.lstat()
        except FileNotFoundError:
            self._last = _ReadFile()
            return self._last.rules
        except OSError as error:
            raise StandingRuleError(
                f"{path} cannot be read: {error.strerror or error}; none of its rules apply"
            ) from None

        signature = (
            about.st_mtime_ns,
            about.st_size,
            about.st_ino,
            about.st_dev,
            about.st_mode,
            about.st_uid,
        )
        last = self._last
        if signature != last.signature:
            try:
                last = _ReadFile(signature, _read_file(path, about))
            except StandingRuleError as error:
                last = _ReadFile(signature, problem=str(error))
            self._last = last

        if last.problem is not None:
            raise StandingRuleError(last.problem)
        return last.rules

    def change(self, change: _Change, seconds: float = LOCK_SECONDS) -> Mapping[str, StandingRule]:
        """Replace the rules with `change(rules)` under a lock, and return the former rules.

        `seconds` is the maximum time to wait for another process.

        Raises:
            StandingRuleError: the file cannot be used or written.
        """
        path = rules_path()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _locked(path.with_name(f"{path.name}.lock"), seconds):
                before = self.read()
                after = change(before)
                if after != before:
                    write_own(path, _written(after.values()).decode())
                return before
        except OSError as error:
            raise StandingRuleError(
                f"{path} cannot be written to: {error.strerror or error}"
            ) from None


def _read_file(path: Path, about: os.stat_result) -> dict[str, StandingRule]:
    # Reject a link, because it could lead into a folder that someone else controls, such as a
    # repository.
    if not stat.S_ISREG(about.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(about.st_mode) else "not a regular file"
        raise StandingRuleError(
            f"{path} is {kind}; expected a file of your own; none of its rules apply"
        )

    try:
        data = read_own(path, MAX_BYTES)
    except TrustError as error:
        raise StandingRuleError(f"{error}; none of its rules apply") from None
    except OSError as error:
        raise StandingRuleError(
            f"{path} cannot be read: {error.strerror or error}; none of its rules apply"
        ) from None

    if not data.strip():
        raise StandingRuleError(f"{path} is empty; delete the file")
    return _read_rules(data, LOCAL, str(path))


@contextmanager
def _locked(path: Path, seconds: float) -> Generator[None]:
    """Hold the lock that processes take to change the rules.

    Raises:
        RulesLockedError: another process holds the lock for more than `seconds`.
        OSError: the lock file cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        deadline = time.monotonic() + seconds
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                raise RulesLockedError(
                    f"{path}: another process has held this lock for {seconds:g} s"
                )
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            raise
        return False

    return True


# -- the rules of a bridge -------------------------------------------------------------------------


class StandingRules:
    """The rules that apply to the runs of one bridge.

    Args:
        configuration: this process's configuration, which says how servers start.
        store: the store, which contains the rules of everyone except this machine's user.

    Attributes:
        workspace: see `workspace_of`.
    """

    def __init__(self, configuration: Configuration, store: Store) -> None:
        self.workspace = workspace_of(configuration)
        self._servers: Mapping[str, str] = servers_of(configuration)
        self._settings = store.settings
        self._memory = store.tool_memory
        self._changes = store.rule_changes
        self._file = _RuleFile()
        self._reported = ""

    def follow(self, configuration: Configuration) -> None:
        """Switch to a new configuration of the same process.

        Rules no longer apply to servers that now start differently, or to tools from files that
        have changed.
        """
        self._servers = servers_of(configuration)

    def covering(self, caller: str, tool: StandingTool) -> StandingRule | None:
        """Return the caller's rule that covers a tool, or None. If the rules cannot be read, none
        of them applies.
        """
        server = self._servers.get(tool.module)
        if server is None:
            return None
        try:
            rules = self._read(owner_of(caller))
        except (StandingRuleError, StoreError) as error:
            if str(error) != self._reported:
                self._reported = str(error)
                logger.warning("%s", error)
            return None

        rule = rules.get(rule_id(owner_of(caller), self.workspace, tool, server))
        # Compare all members, because the id is so short that a server could craft a different
        # definition with the same id.
        if rule is None or (rule.workspace, rule.tool, rule.server) != (
            self.workspace,
            tool,
            server,
        ):
            return None
        return rule

    def can_bind(self, tool: StandingTool) -> bool:
        """Return whether a rule for a tool is possible here: whether the tool belongs to a server
        or a tool file of this configuration.
        """
        return tool.module in self._servers

    def rule_for(self, caller: str, tool: StandingTool, by: Decider) -> StandingRule:
        """Return a new rule by which a person always allows a tool. The rule is not stored yet.

        Raises:
            StandingRuleError: the tool's server is not in this configuration, or the rules cannot
                be changed.
        """
        server = self._servers.get(tool.module)
        if server is None:
            raise StandingRuleError(f"{tool.label} does not belong to any server or tool file here")

        caller = owner_of(caller)
        rule = StandingRule(caller, self.workspace, tool, server, by, time.time())
        _with_rule(self._read(caller), rule)
        return rule

    def is_bound(self, tool: StandingTool, bound: JSONObject | None) -> bool:
        """Return whether a tool's server starts here in the way that a run is bound to.

        Args:
            tool: the tool of one of the run's calls.
            bound: the start definitions to which the run is bound; see `RunStarted`.
        """
        server = self._servers.get(tool.module)
        if server is None:
            return False
        return not tool.module or (bound is not None and bound.get(tool.module) == server)

    def give(self, rule: StandingRule, seconds: float = LOCK_SECONDS) -> None:
        """Store a rule. It replaces an outdated rule that the same person gave for the same tool.

        Args:
            rule: the rule.
            seconds: the maximum time to wait while another process changes the rules.

        Raises:
            StandingRuleError, StoreError: the rules cannot be changed.
        """
        before = self._change(rule.owner, lambda rules: _with_rule(rules, rule), seconds)
        if rule.id not in before:
            self._record(rule, rule.at, rule.by, ASKS, ALWAYS)

    def listed(self, viewer: Viewer) -> list[ListedRule]:
        """Return the rules that a viewer is allowed to see, oldest first.

        Raises:
            StandingRuleError, StoreError: the rules cannot be read.
        """
        if viewer is not SEES_ALL:
            rules = list(self._read(owner_of(viewer)).values())
        else:
            rules = list(self._read(LOCAL).values())
            for key, data in self._settings.under(_SETTING).items():
                owner = key.removeprefix(_SETTING)
                rules += _read_rules(data, owner, _named(owner)).values()

        digests: dict[str, dict[str, str]] = {}
        listed: list[ListedRule] = []
        for rule in sorted(rules, key=lambda rule: rule.at):
            if rule.tool.module and rule.server not in digests:
                digests[rule.server] = self._digests(rule.server)
            listed.append(ListedRule(rule, self._state_of(rule, digests.get(rule.server))))

        return listed

    def _digests(self, server: str) -> dict[str, str]:
        """Return the digests of the tools that a server listed last, keyed by the names in its
        list.
        """
        tools = [Tool.from_json(entry) for entry in objects_in(self._memory.tools(server))]
        return {tool.name_in_module: tool.digest for tool in tools}

    def _state_of(self, rule: StandingRule, digests: Mapping[str, str] | None) -> State:
        """Return whether a rule still covers its tool. `digests` are the digests of the tools on
        the tool's server.
        """
        if rule.workspace != self.workspace:
            return "elsewhere"
        if self._servers.get(rule.tool.module) != rule.server:
            return "outdated"
        if not digests:
            # There is no digest to compare with, because the server has never listed its tools to
            # this process or the tool is from a tool file.
            return "holds"
        return "holds" if digests.get(rule.tool.name) == rule.tool.digest else "outdated"

    def withdraw(self, rule: StandingRule, by: Decider) -> bool:
        """Delete a rule. Return False if it has already been withdrawn.

        Args:
            rule: the rule.
            by: the person who withdraws it.

        Raises:
            StandingRuleError, StoreError: the rules cannot be changed.
        """

        def without(rules: Mapping[str, StandingRule]) -> Mapping[str, StandingRule]:
            return {key: other for key, other in rules.items() if key != rule.id}

        was_given = rule.id in self._change(rule.owner, without)
        if was_given:
            self._record(rule, time.time(), by, ALWAYS, ASKS)
        return was_given

    def _record(self, rule: StandingRule, at: float, by: Decider, before: str, after: str) -> None:
        """Store that a rule was given or withdrawn, for the list of past decisions."""
        change = RuleChange(at, by.to_json(), rule.tool.module, rule.tool.name, before, after)
        try:
            self._changes.add(rule.owner, change)
        except StoreError as error:
            # The rule itself has changed, so do not report that it has not.
            logger.warning("%s: this change is missing from the list: %s", rule.tool.label, error)

    def withdraw_all(self, caller: str, tool: StandingTool) -> None:
        """Delete the rules that a person gave for a tool here, for any of its definitions. An
        outdated rule would cover the tool again as soon as its definition changes back.

        Raises:
            StandingRuleError, StoreError: the rules cannot be changed.
        """
        subject = (self.workspace, tool.module, tool.name, tool.activity)

        def without(rules: Mapping[str, StandingRule]) -> Mapping[str, StandingRule]:
            return {key: rule for key, rule in rules.items() if rule.subject != subject}

        self._change(owner_of(caller), without)

    def _read(self, caller: str) -> Mapping[str, StandingRule]:
        if caller == LOCAL:
            return self._file.read()
        data = self._settings.get(f"{_SETTING}{caller}") or b""
        return _read_rules(data, caller, _named(caller))

    def _change(
        self, caller: str, change: _Change, seconds: float = LOCK_SECONDS
    ) -> Mapping[str, StandingRule]:
        """Replace the rules of a caller with `change(rules)`. Return the former rules."""
        if caller == LOCAL:
            return self._file.change(change, seconds)

        before: dict[str, StandingRule] = {}

        def changed(data: bytes) -> bytes:
            before.clear()
            before.update(_read_rules(data, caller, _named(caller)))
            return _written(change(before).values())

        self._settings.change(f"{_SETTING}{caller}", changed)
        return before


def _named(caller: str) -> str:
    return f"the standing rules of {caller} in the store"


def _with_rule(rules: Mapping[str, StandingRule], rule: StandingRule) -> Mapping[str, StandingRule]:
    """Return the rules plus a new one, which replaces any outdated rule for the same tool.

    Raises:
        StandingRuleError: there are too many rules, or the new rule could not be read back.
    """
    same = rules.get(rule.id)
    if same is not None and (same.subject, same.tool) == (rule.subject, rule.tool):
        # The person has already given this rule, perhaps in another process.
        return rules

    if _read_rule(rule.to_json(), rule.owner) != rule:
        raise StandingRuleError(
            f"a standing rule for {visible(rule.tool.label[:200])} is not possible: its name, or "
            "the path of the workspace, is too long"
        )

    others = {key: other for key, other in rules.items() if other.subject != rule.subject}
    if len(others) >= MAX_RULES:
        raise StandingRuleError(
            f"you have {len(others):,} standing rules, which is the limit; withdraw some with "
            "`ideabridge approvals rules --remove ID`"
        )
    return {**others, rule.id: rule}


def own_rules() -> list[StandingRule]:
    """Return the rules of this machine's user.

    Raises:
        StandingRuleError: the file of the rules cannot be used, so none of the rules applies.
    """
    return list(_RuleFile().read().values())


def allow_always(tool: Tool, configuration: Configuration, by: Decider) -> StandingRule:
    """Always allow a tool in a configuration's workspace, on behalf of this machine's user.

    Only a command that has asked the person at the terminal may call this.

    Args:
        tool: the tool as its server lists it now, or a Python tool.
        configuration: the configuration with which the tool is used.
        by: the person.

    Raises:
        StandingRuleError: the tool's server is not configured, or the rules cannot be changed.
    """
    standing = coverable(tool)
    servers = servers_of(configuration)
    if standing is None or standing.module not in servers:
        raise StandingRuleError(f"a standing rule for {tool.label} is not possible")

    server = servers[standing.module]
    rule = StandingRule(LOCAL, workspace_of(configuration), standing, server, by, time.time())
    _RuleFile().change(lambda rules: _with_rule(rules, rule))
    return rule
