"""Make the changes that the plan of a setup lists, and add each change to the record before making
it.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.modules.settings import entry_digest
from ideabridge.bridge.stored_secrets import set_secret
from ideabridge.bridge.trust import keep_trusted, look_at, may_be_trusted, project_trust
from ideabridge.server.hosts.editing.host_text import EditedFile, file_digest, read_host_text
from ideabridge.server.hosts.host import HostFileError
from ideabridge.server.service import TOKEN_SECRET, create_token, has_token
from ideabridge.server.setup.extraction import NewSecret
from ideabridge.server.setup.file_change import FileChange
from ideabridge.server.setup.plan import Choice, PlannedService, SetupPlan
from ideabridge.server.setup.record import (
    FileStep,
    SecretStep,
    ServiceStep,
    SetupRecord,
    TrustStep,
)
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.errors import IdeabridgeError


class SetupError(IdeabridgeError):
    """Raised when a setup cannot continue. The message says why; the record lists the changes that
    were made.
    """


@dataclass(slots=True)
class SetupOutcome:
    """The result of a setup.

    Attributes:
        written: the files that were changed.
        problems: a line for each host's file that could not be changed, saying why.
        secrets: the secrets that were stored, and where, as text for users.
        trusted: the project files that were trusted.
    """

    written: list[Path] = field(default_factory=list[Path])
    problems: list[str] = field(default_factory=list[str])
    secrets: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    trusted: list[Path] = field(default_factory=list[Path])


def carry_out(plan: SetupPlan, choice: Choice, record: SetupRecord) -> SetupOutcome:
    """Make the changes of a plan. If a host's file cannot be changed, the other files are still
    changed.

    Args:
        plan: the plan that the person has seen.
        choice: whether servers remain in their hosts.
        record: receives each change before it is made.

    Raises:
        StoredSecretError: a secret cannot be stored. No file has been changed.
        HostFileError: one of ideabridge's configurations cannot be written. No host's file has been
            changed.
        SetupRecordError: the record cannot be written.
        SetupError: another program has just changed the project's file.
        ServiceError: the service cannot be installed. No host's file has been changed.
    """
    outcome = SetupOutcome()
    # Check all project files before changing anything.
    expected_digests = _expected_digests(plan)
    for secret in plan.secrets:
        record.add(SecretStep(name=secret.name, file=secret.owner.file))
        users = _users_of(plan, secret)
        place = set_secret(secret.owner, secret.name, secret.value, users)
        outcome.secrets.append((secret.name, place))

    for change in plan.receiving():
        if not _write(change, record):
            continue

        outcome.written.append(change.path)
        expected_digest = expected_digests.get(change.path)
        if expected_digest is not None:
            _trust(change.path, expected_digest, record)
            outcome.trusted.append(change.path)

    if plan.service is not None and not plan.service.is_installed:
        _install(plan.service, record)
        outcome.written.append(plan.service.service.file)

    for change in plan.in_hosts(choice):
        try:
            if _write(change, record):
                outcome.written.append(change.path)
        except HostFileError as error:
            outcome.problems.append(f"{change.title}: {error}")

    return outcome


def _install(planned: PlannedService, record: SetupRecord) -> None:
    """Install the service, with its token."""
    if not has_token():
        record.add(SecretStep(name=TOKEN_SECRET, file=None))
        create_token(planned.token)

    record.add(ServiceStep(file=planned.service.file))
    planned.service.install(planned.command, Path.home())


def _expected_digests(plan: SetupPlan) -> dict[Path, str]:
    """Return the digest that each project file of a plan has after its change.

    Raises:
        SetupError: a file has changed since the person was asked.
    """
    expected_digests: dict[Path, str] = {}
    for change in plan.receiving():
        if change.project is not None:
            expected_digests[change.path] = _expected_digest(plan, change)

    return expected_digests


def _expected_digest(plan: SetupPlan, change: FileChange) -> str:
    """Return the digest that a project file has when the change is applied to the version that the
    person has seen.

    Raises:
        SetupError: the file has changed since the person was asked.
    """
    reviewed = plan.inventory.texts[change.path]
    current = read_host_text(change.path, change.format)
    if current.before != reviewed.before or not may_be_trusted(change.path):
        raise _changed_file(change.path)

    changed_file = change.applied(reviewed)
    return file_digest(changed_file.data)


def _changed_file(file: Path) -> SetupError:
    return SetupError(
        f"{file}: another program has just changed it, so it is not trusted; review it with "
        "`ideabridge trust`, then run the setup again"
    )


def _users_of(plan: SetupPlan, secret: NewSecret) -> dict[str, str]:
    """Return the servers that can use a secret, each with the digest of its entry.

    Every server in the user's own file is allowed to use all secrets of that file.
    """
    if secret.owner.file is None:
        return {}

    entries: JSONObject = {}
    for server in plan.servers:
        if secret in server.secrets:
            entries[server.name] = server.entry

    modules = parse_configuration({"mcpServers": entries}).modules
    return {name: entry_digest(module) for name, module in modules.items()}


def _write(change: FileChange, record: SetupRecord) -> bool:
    """Change a file. Return False if it already contains the entries.

    Raises:
        HostFileError: the file cannot be changed.
    """
    target = Path(os.path.realpath(change.path))
    mode: int | None = None
    if target.exists():
        mode = stat.S_IMODE(target.stat().st_mode)

    # The step for the edit, or None until the edit is about to be made.
    step: FileStep | None = None

    def note(file: EditedFile) -> None:
        nonlocal step
        # Forget the earlier step, because the edit is repeated if another program has written the
        # file in the meantime.
        if step is not None:
            record.remove(step)

        step = FileStep(title=change.title, file=file, mode=mode)
        record.add(step)

    text = change.applied(read_host_text(change.path, change.format))
    try:
        text.edit(private=change.is_private, project=change.project, note=note)
    except HostFileError:
        # The edit was not made.
        if step is not None:
            record.remove(step)
        raise

    return step is not None


def _trust(file: Path, expected: str, record: SetupRecord) -> None:
    """Trust a project file if it has exactly the bytes that the person agreed to."""
    trust = project_trust(look_at(file))
    if file_digest(trust.found.data) != expected:
        raise _changed_file(file)

    was_trusted = trust.before is not None and bool(trust.before.digests)
    record.add(TrustStep(file=file, was_trusted=was_trusted))
    keep_trusted(trust.found, trust.data)
