"""Run the checks of `ideabridge doctor` and the page, and describe their results."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ideabridge.server.views.records import run_status
from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import counted, joined, size_text

if TYPE_CHECKING:
    from ideabridge.bridge.configuration import Configuration, Layer
    from ideabridge.bridge.modules.settings import ModuleStatus
    from ideabridge.bridge.store.store import Store
    from ideabridge.server.hosts.host import HostEnvironment
    from ideabridge.server.hosts.table import Host


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    Attributes:
        topic: what was checked, for example `store` or `module git`.
        text: what the check found.
        is_wrong: whether someone must fix what was checked.
        is_warning: whether what was checked works, but not as specified in a configuration file.
        hint: one or more lines with details, or with advice for a person.
        is_unused: whether there was nothing to check, which is not a problem.
    """

    topic: str
    text: str
    is_wrong: bool = False
    hint: str | None = None
    is_warning: bool = False
    is_unused: bool = False

    @property
    def parts(self) -> tuple[str, str]:
        """The kind and the name of what was checked, such as `("server", "git")`.

        The name is "" for anything other than a server or a client.
        """
        kind, _, name = self.topic.partition(" ")
        return (kind, name) if kind in ("server", "client") else (self.topic, "")

    @property
    def state(self) -> str:
        """The result of the check in one word."""
        if self.is_wrong:
            return "wrong"
        return "warning" if self.is_warning else "ok"


@dataclass(slots=True)
class Findings:
    """The results of checks, in the order of the checks. `watch` is called with each result as soon
    as it is known.
    """

    watch: Callable[[CheckResult], None] | None = None
    found: list[CheckResult] = field(default_factory=list[CheckResult])

    @property
    def wrong(self) -> int:
        """The number of results with `is_wrong`."""
        return sum(finding.is_wrong for finding in self.found)

    def add(
        self,
        topic: str,
        text: str,
        *,
        wrong: bool = False,
        hint: str | None = None,
        warning: bool = False,
        unused: bool = False,
    ) -> None:
        """Add a result."""
        finding = CheckResult(topic, text, wrong, hint, warning, unused)
        self.found.append(finding)
        if self.watch is not None:
            self.watch(finding)


def check_program(findings: Findings) -> None:
    """Check the versions of ideabridge, SQLite, and the interpreter for programs."""
    from importlib.metadata import version

    versions = ", ".join(f"{name} {version(name)}" for name in ("ideabridge", "mcp"))
    findings.add("program", f"{versions}, Python {platform.python_version()}, {sys.executable}")
    check_sqlite(findings)
    check_interpreter(findings)


def check_interpreter(findings: Findings) -> None:
    """Check whether programs and `compute` can run."""
    from ideabridge.bridge.errors import ProgramError
    from ideabridge.bridge.programs.sandbox import interpreter

    try:
        findings.add("interpreter", f"{interpreter()} runs programs")
    except ProgramError as error:
        findings.add(
            "interpreter",
            str(error),
            wrong=True,
            hint="Run `pip install pydantic-monty` if your plans use compute.",
        )


def check_sqlite(findings: Findings) -> None:
    """Check whether SQLite has a bug that slows down writes."""
    from ideabridge.bridge.store.sqlite import FIXED_IN, IS_FIXED, described

    if IS_FIXED:
        findings.add("sqlite", f"{described()}, without the WAL-reset bug")
        return
    findings.add(
        "sqlite",
        f"{described()}, which has the WAL-reset bug; ideabridge works around it, but some writes "
        "take longer",
        hint=(
            f"To get a fixed version (SQLite {FIXED_IN}), run `pip install pysqlite3`, or use a "
            "Python that has one."
        ),
    )


def check_configuration(findings: Findings, configuration: Configuration) -> None:
    """Check the configuration: its files, rejected settings, and rules."""
    from ideabridge.bridge.loop.policy import approval_parts

    if configuration.source is None and configuration.untrusted is None:
        hint = (
            "Run `ideabridge servers import HOST --write` to create one from the servers that an "
            "assistant already has."
        )
        findings.add(
            "configuration",
            f"no file found; looked for {configuration.project / 'ideabridge.json'}",
            hint=hint,
        )

    for layer in configuration.layers:
        whose = "the project's, trusted" if layer.is_project else "yours"
        findings.add(
            "configuration", f"{layer.file} ({whose})", hint=_settings(configuration, layer)
        )
        for line in (*layer.narrowed, *layer.refused):
            findings.add("configuration", line, wrong=line in layer.refused)

    for line in (*configuration.notes, *configuration.names_without_effect):
        findings.add("configuration", line, warning=True)

    for reason in configuration.unusable_profiles.values():
        findings.add("profiles", reason, wrong=True)

    untrusted = configuration.untrusted
    if untrusted is not None:
        findings.add("configuration", untrusted.told(), wrong=True)
    for sentence in configuration.withheld:
        findings.add("configuration", sentence, wrong=True)

    parts = approval_parts(configuration.approval_setting)
    approval = " and ".join(
        dict.fromkeys(part if isinstance(part, str) else "rules" for part in parts)
    )
    requests = counted(configuration.limits.requests, "request")
    findings.add("rules", f"approval {approval}, order {configuration.order}, {requests} per run")


def _settings(configuration: Configuration, layer: Layer) -> str | None:
    """Return the servers and effective settings in a configuration file, or None if there are
    none.
    """
    above = configuration.layers[configuration.layers.index(layer) + 1 :]
    merging = ("$schema", "mcpServers", "tools", "limits", "sampling", "approval")
    settings: list[str] = []
    for key in layer.keys:
        if key == "mcpServers":
            names = [
                name for name in configuration.modules if configuration.layer_of(name) is layer
            ]
            own = [
                f"{name} (in place of yours)" if name in layer.replaced else name for name in names
            ]
            settings.append(f"servers {', '.join(own)}" if own else "no servers")
        elif key != "$schema" and (
            key in merging or not any(key in higher.keys for higher in above)
        ):
            settings.append(key)

    return f"used from this file: {'; '.join(settings)}" if settings else None


def check_store(findings: Findings, configuration: Configuration) -> None:
    """Open the configured store, and describe it."""
    from ideabridge.bridge.store.database import is_address
    from ideabridge.bridge.store.sqlite.files import file_exists, folder_to_create_in, rescued_of
    from ideabridge.bridge.store.store import Store

    path = str(configuration.store)
    is_server = is_address(path)
    try:
        exists = is_server or file_exists(Path(path))
    except IdeabridgeError as error:
        findings.add("store", str(error), wrong=True)
        return

    rescued = [] if is_server else rescued_of(Path(path))
    if rescued:
        names = ", ".join(file.name for file in rescued)
        hint = f"To use one, move it to {path} while nothing uses the store. Otherwise, delete it."
        findings.add(
            "store", f"saved from a store that was deleted while in use: {names}", hint=hint
        )

    if not exists:
        folder = folder_to_create_in(Path(path))
        if os.access(folder, os.W_OK | os.X_OK):
            findings.add("store", f"{path} does not exist yet; the first run creates it")
        else:
            reason = f"{path} does not exist yet, and {folder} cannot be written"
            findings.add("store", reason, wrong=True)
        return

    try:
        with Store.open(path) as store:
            describe_store(findings, store, configuration)
    except IdeabridgeError as error:
        findings.add("store", str(error), wrong=True)


def describe_store(findings: Findings, store: Store, configuration: Configuration) -> None:
    """Describe an open store: its size, its latest runs, and when old runs will be deleted.

    Raises:
        StoreError: the store cannot be read.
    """
    from collections import Counter

    from ideabridge.bridge.store.users import SEES_ALL

    runs = Counter(
        "done with errors" if run.status == "done" and run.summary.errors else run_status(run)[0]
        for run in store.runs.newest(SEES_ALL, limit=100, rooms=False)
    )
    published = len(store.publications.page(limit=100, caller=SEES_ALL).items)
    for change in store.configuration_log.newest(1, str(configuration.project)):
        if change.status == "withheld":
            findings.add(
                "configuration",
                "a running server keeps an earlier configuration, because a change to its files "
                f"cannot be used: {'; '.join(change.lines)}",
                warning=True,
            )

    retention = _retention(store, configuration)
    place = store.path if store.is_file else f"{store.path}, {store.engine()}"
    numbers = [_number_of_runs(number, status) for status, number in runs.most_common()]
    latest = ", ".join(numbers) or "no runs"
    findings.add(
        "store",
        f"{place}: {size_text(store.used_bytes())}; latest runs: {latest}; "
        f"{counted(published, 'published idea')}",
    )
    findings.add("retention", retention)


def _number_of_runs(number: int, status: str) -> str:
    """Return how many runs have a given status: `1 done`, `1 needs approval`, `4 need approval`."""
    if number != 1 and status.startswith("needs_"):
        status = status.replace("needs_", "need_", 1)
    return f"{number} {status.replace('_', ' ')}"


def _retention(store: Store, configuration: Configuration) -> str:
    """Return a sentence that says which runs the servers delete, and when the next deletion
    happens.
    """
    import time
    from datetime import datetime

    from ideabridge.bridge.store.pruning import ROUND_SECONDS, Bounds

    settings = configuration.retention
    if settings is False or (settings.days is None and settings.runs is None):
        return "off: no run is deleted automatically"

    age = [] if settings.days is None else [f"older than {counted(settings.days, 'day')}"]
    number = [] if settings.runs is None else [f"beyond the newest {settings.runs:,}"]
    now = time.time()
    due = store.retention(Bounds(settings.days, settings.runs)).due(now)
    rule = f"servers delete runs {' or '.join(age + number)}, unless published or tagged"
    if not due.runs:
        return f"{rule}; no run is due"

    first = due.at or now
    when = (
        datetime.fromtimestamp(first if due.deletes else first + ROUND_SECONDS)
        .astimezone()
        .date()
        .isoformat()
    )
    return f"{rule}; up to {counted(due.runs, 'run')} from {when} on"


def check_tool_files(findings: Findings, configuration: Configuration) -> None:
    """Load the tool files, which runs their code."""
    from ideabridge.tools.tool_files import load_tool_file

    for file in configuration.tools:
        try:
            toolbox = load_tool_file(file, configuration.digest_of(file))
            names = [tool.name for tool in toolbox]
            names += [f"messages of type {kind}" for kind in toolbox.handlers]
        except IdeabridgeError as error:
            findings.add("tools", str(error), wrong=True)
        else:
            findings.add("tools", f"{file}: {', '.join(names) or 'none'}")


def check_rules(findings: Findings) -> None:
    """Check whether the file of standing rules is usable."""
    from ideabridge.bridge.standing_rules import own_rules

    try:
        rules = own_rules()
    except IdeabridgeError as error:
        findings.add("approvals", str(error), wrong=True)
        return

    if rules:
        listed = "`ideabridge approvals rules` lists them"
        findings.add("approvals", f"{counted(len(rules), 'tool')} allowed always; {listed}")


def describe_module(findings: Findings, status: ModuleStatus) -> None:
    """Describe the state of a server."""
    if status.state == "up":
        text = f"up: {counted(status.tools, 'tool')}, MCP {status.protocol_version or status.era}"
        findings.add(f"server {status.name}", text, hint="\n".join(status.notes) or None)
    elif status.state == "disabled":
        findings.add(f"server {status.name}", "turned off in the configuration", unused=True)
    elif status.state == "idle":
        text = f"idle: {counted(status.tools, 'tool')}, starts when it is used"
        findings.add(f"server {status.name}", text, hint="\n".join(status.notes) or None)
    else:
        problem = (status.error or "no answer yet").removeprefix(f"server {status.name!r} ")
        # The error itself already says that the server failed.
        if status.state != "failed" or status.error is None:
            problem = f"{status.state}: {problem}"
        findings.add(
            f"server {status.name}",
            problem,
            wrong=True,
            hint="\n".join(status.notes) or None,
        )


async def check_mind(findings: Findings, configuration: Configuration) -> None:
    """Check which mind answers. No request is sent to a model, but the model's package and key must
    exist, and the user's own model server is asked for its list of models.
    """
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.minds.choice import AUTO, choose
    from ideabridge.bridge.minds.model import ModelMind

    try:
        mind = Bridge(configuration.model_copy(update={"tools": ()})).mind
        model, is_elsewhere = mind.check() if isinstance(mind, ModelMind) else (None, False)
    except IdeabridgeError as error:
        findings.add("mind", str(error), wrong=True)
        return

    asked = choose(AUTO, mind, samples=True)
    alone = choose(AUTO, mind)
    if asked != alone:
        findings.add(
            "mind",
            f"{asked.name} in clients that declare it, otherwise {alone.name}: no model is "
            "configured here",
        )
        return

    hint = None
    if is_elsewhere and configuration.limits.cost is not None:
        hint = (
            "limits.cost has no effect unless the address belongs to a provider whose prices are "
            "known"
        )

    text = alone.why if model is None else f"{model} is configured here"
    if isinstance(mind, ModelMind) and is_elsewhere:
        try:
            names = await mind.models()
        except IdeabridgeError as error:
            hint = hint or "Start the server, or correct `model` in the configuration."
            findings.add("mind", f"{error} ({text})", wrong=True, hint=hint)
            return

        text += _listed(mind.configuration.name.partition(":")[2], names)
    elif model is not None:
        text += " (it was not asked)"

    findings.add("mind", f"{alone.name}: {text}", hint=hint)


def _listed(name: str, names: list[str] | None) -> str:
    """Return a phrase that says whether a server has the configured model."""
    if names is None:
        return "; it answers, but does not list its models"
    if any(model in (name, f"{name}:latest") for model in names):
        return "; it answers, and has this model"
    shown = joined(names, 5) or "no models"
    return (
        f"; it answers, and lists {shown}: some servers accept any name, others would refuse this "
        "one"
    )


def check_hosts(findings: Findings, project: Path, called: Mapping[str, str]) -> None:
    """Check which hosts on this machine are configured to use ideabridge.

    Args:
        findings: receives the results.
        project: the project folder.
        called: how long ago each host last called, keyed by the host's title. A host can call even
            if no settings on this machine name ideabridge.
    """
    from ideabridge.server.hosts.host import HostEnvironment
    from ideabridge.server.hosts.table import HOSTS

    places = HostEnvironment(project=project)
    problems: dict[Path, str] = {}
    absent: list[str] = []
    unchecked: dict[tuple[Path, str], str] = {}
    seen: set[tuple[Path, str]] = set()
    for host in HOSTS:
        known = set(problems)
        found = _servers_of(host, places, problems)
        for path, problem in problems.items():
            if path not in known:
                findings.add(f"client {host.name}", problem, wrong=True)

        if found.ours:
            findings.add(f"client {host.name}", f"has ideabridge in {', '.join(found.ours)}")
        elif found.others or host.title in called:
            _describe_unconnected(findings, host, found.others, called.get(host.title))
        else:
            absent.append(host.title)

        new = [started for started in found.started if started.key not in seen]
        seen.update(started.key for started in new)
        unchecked.update((started.key, started.shown) for started in new if not started.can_check)
        _check_programs(findings, host, new)

    if unchecked:
        shown = list(unchecked.values())
        findings.add(
            "clients",
            f"not checked: {joined(shown, 5)}",
            hint="a server over HTTP, or a program whose path depends on variables or on the "
            "folder that the client starts it in",
        )
    if absent:
        hint = "Run `ideabridge install CLIENT` to set one up."
        text = f"not set up: {', '.join(absent)}"
        findings.add("other clients", text, hint=hint, unused=True)


def _describe_unconnected(findings: Findings, host: Host, others: int, called: str | None) -> None:
    """Describe a host whose settings do not name ideabridge."""
    text = "not connected on this computer"
    if called is not None:
        text += f", but it called {called}"
    hint = None
    if others:
        text += f"; has {counted(others, 'server')} of its own"
        hint = (
            f"Run `ideabridge servers import {host.name} --move`, and then `ideabridge install "
            f"{host.name} --write`."
        )
    findings.add(f"client {host.name}", text, hint=hint, unused=others > 0)


@dataclass(frozen=True, slots=True)
class _HostServers:
    """The servers listed in a host's files.

    Attributes:
        ours: the files that list ideabridge, each with its scope.
        others: the number of other servers in the files.
        started: the servers in the files that the host currently uses.
    """

    ours: list[str]
    others: int
    started: list[_StartedServer]


@dataclass(frozen=True, slots=True)
class _StartedServer:
    """A server named in a host's file, and the program that starts it.

    Attributes:
        file: the host's file.
        name: the name of the server.
        program: the program, or None if the entry names no program, as for a server over HTTP.
    """

    file: Path
    name: str
    program: str | None

    @property
    def key(self) -> tuple[Path, str]:
        """The key that identifies the server. It is the same for all hosts that name the server,
        because several hosts can read the same file.
        """
        return self.file, self.name

    @property
    def shown(self) -> str:
        """The server and its file, for a person."""
        return f"{self.name} ({self.file})"

    @property
    def can_check(self) -> bool:
        """True if the program can be found without the host."""
        if self.program is None or any(sign in self.program for sign in "$%~"):
            return False
        # A command with spaces does not tell which program it is, because some hosts pass it to a
        # shell.
        is_name = Path(self.program).name == self.program and " " not in self.program
        return is_name or Path(self.program).is_absolute()

    @property
    def is_missing(self) -> bool:
        """True if the program can be looked up, but no such executable exists."""
        return self.can_check and shutil.which(self.program or "") is None


def _check_programs(findings: Findings, host: Host, servers: list[_StartedServer]) -> None:
    """Check whether the programs that a host would start as servers exist. No program is
    started.
    """
    from ideabridge.server.hosts.host import SERVER_NAME

    missing = [server for server in servers if server.is_missing]
    for server in missing:
        if server.name == SERVER_NAME:
            findings.add(
                f"client {host.name}",
                f"{server.file} starts ideabridge with {server.program}, which does not exist, is "
                "not executable, or is not on this PATH",
                wrong=True,
                hint=f"Run `ideabridge install {host.name} --write` to name an existing program.",
            )

    others = [server.shown for server in missing if server.name != SERVER_NAME]
    if others:
        whose = "The program of this server was"
        if len(others) > 1:
            whose = "The programs of these servers were"
        findings.add(
            f"client {host.name}",
            f"{counted(len(others), 'server')} of its own cannot start: {joined(others, 5)}",
            warning=True,
            hint=f"{whose} not found on this computer.",
        )


def _program_in(entry: JSON, key: str) -> str | None:
    """Return the program in a server's entry, which is a string or the first item of a list, or
    None if there is no program.
    """
    command = entry.get(key) if isinstance(entry, dict) else None
    if isinstance(command, list) and command:
        command = command[0]
    return command if isinstance(command, str) and command else None


def _servers_of(host: Host, places: HostEnvironment, problems: dict[Path, str]) -> _HostServers:
    """Read a host's files, and add the errors in each file to `problems`, keyed by path."""
    from ideabridge.server.hosts.host import SERVER_NAME, read_tolerantly

    own_names: list[str] = []
    others = 0
    started: list[_StartedServer] = []
    for file in host.files(places):
        try:
            document = read_tolerantly(file.path, file.format)
        except IdeabridgeError as error:
            problems.setdefault(file.path, str(error))
            continue

        if document.damage:
            problems.setdefault(file.path, f"{file.path}: {document.damage}")

        servers = file.servers(document.content)
        # A file that is not current is for an older version of the host, or for another host. Only
        # the import reads it.
        if file.is_current:
            others += sum(name != SERVER_NAME for name in servers)
            started += [
                _StartedServer(file.path, name, _program_in(entry, host.shape.command))
                for name, entry in servers.items()
            ]
        if SERVER_NAME in servers:
            own_names.append(f"{file.path} ({file.scope})")

    return _HostServers(own_names, others, started)
