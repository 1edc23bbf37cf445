"""Revert the changes of setups, beginning with the latest change.

If nobody has changed a file since the setup, its previous bytes are restored. If another program
has changed it, that program's changes are kept: only the entries that the setup added are removed,
and those that it removed are added again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.loop.event import AT_TERMINAL
from ideabridge.bridge.standing_rules import StandingRuleError, StandingRules
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import LOCAL
from ideabridge.bridge.stored_secrets import SecretOwner, StoredSecretError, remove_secret
from ideabridge.bridge.trust import TrustError, forget, trust_command
from ideabridge.server.hosts.editing.host_text import EditedFile, file_digest
from ideabridge.server.hosts.editing.undo import remove_empty_folders, undo_file
from ideabridge.server.hosts.host import HostFileError
from ideabridge.server.service import ServiceError, user_service
from ideabridge.server.setup.record import (
    FileStep,
    RuleStep,
    SecretStep,
    ServiceStep,
    SetupRecord,
    SetupStep,
    TrustStep,
)
from ideabridge.tools.encoding import JSONObject


@dataclass(frozen=True, slots=True)
class UndoneStep:
    """The result of undoing a change of a setup.

    Attributes:
        what: the changed file or, for other kinds of change, the name of what was changed.
        result: `restored` if everything is as it was before the setup, `edited` if another program
            has written to the file since, so that only the setup's entries were changed, `left` if
            the change was not undone, and `failed` if it could not be undone and remains in the
            record.
        text: the result in words, for users.
    """

    what: str
    result: Literal["restored", "edited", "left", "failed"]
    text: str

    def to_json(self) -> JSONObject:
        """Return the attributes as JSON."""
        return {"what": self.what, "result": self.result, "text": self.text}


def describe_step(step: SetupStep) -> str:
    """Describe, for users, a change made by a setup."""
    match step:
        case FileStep():
            return f"{step.file.path} ({step.title})"
        case SecretStep():
            return f"the secret {step.name}"
        case TrustStep():
            return f"the trust in {step.file}"
        case ServiceStep():
            return f"the service {step.file}"
        case RuleStep():
            return f"the rule that {step.tool} is allowed always"
        case _:
            return step.text


def undo(records: Sequence[SetupRecord]) -> Iterator[UndoneStep]:
    """Undo setups, latest first, and yield the result for each change. Changes that cannot be
    undone stay in their records.

    Raises:
        SetupRecordError: a record cannot be written.
    """
    for record in reversed(records):
        for step in reversed(record.steps):
            undone = _undone(step)
            if undone.result != "failed":
                record.remove(step)
            if undone.result == "restored" and isinstance(step, FileStep):
                _remove_backup(step.file)
            yield undone


def _undone(step: SetupStep) -> UndoneStep:
    match step:
        case FileStep():
            try:
                return _undo_file(step)
            except HostFileError as error:
                return UndoneStep(str(step.file.path), "failed", str(error))
        case SecretStep():
            return _undo_secret(step)
        case TrustStep():
            return _undo_trust(step)
        case ServiceStep():
            return _undo_service(step)
        case RuleStep():
            return _undo_rule(step)
        case _:
            return UndoneStep("store", "left", step.text)


# -- files -----------------------------------------------------------------------------------------


def _undo_file(step: FileStep) -> UndoneStep:
    """Undo the changes to one file.

    Raises:
        HostFileError: the file cannot be written, or another program has written to it in a form
            that cannot be read.
    """
    file = step.file
    undone = undo_file(file)
    _remove_staged(file)
    path = str(file.path)
    match undone.how:
        case "restored":
            if step.mode is not None:
                Path(os.path.realpath(file.path)).chmod(step.mode)
            return UndoneStep(path, "restored", f"{path} is restored byte for byte")
        case "deleted":
            return UndoneStep(path, "restored", f"{path} did not exist before, so it is removed")
        case "nothing" if not file.path.exists():
            return UndoneStep(path, "restored", f"{path} does not exist")
        case "nothing":
            return UndoneStep(path, "restored", f"{path} is unchanged")
        case "entries":
            stay = f"; {', '.join(undone.left)} stay" if undone.left else ""
            return UndoneStep(
                path,
                "edited",
                f"{path} has changed since then, so only the entries of the setup were "
                f"restored{stay}",
            )


def _remove_staged(file: EditedFile) -> None:
    """Remove the temporary files that a setup or an undo left next to a file when it was killed."""
    target = Path(os.path.realpath(file.path))
    start = f".{target.name[:50]}."
    digests = {file.digest}
    if file.backup is not None and file.backup.exists():
        digests.add(file_digest(file.backup.read_bytes()))

    beside = [*target.parent.iterdir()] if target.parent.is_dir() else []
    for path in beside:
        is_staged = path.name.startswith(start) and path.is_file()
        if is_staged and file_digest(path.read_bytes()) in digests:
            path.unlink()

    remove_empty_folders(file)


def _remove_backup(file: EditedFile) -> None:
    """Remove the backup of a file whose previous bytes have been restored."""
    if file.backup is not None:
        file.backup.unlink(missing_ok=True)


# -- secrets, trust, services and rules ------------------------------------------------------------


def _undo_secret(step: SecretStep) -> UndoneStep:
    what = f"the secret {step.name}"
    try:
        removed = remove_secret(SecretOwner(step.file), step.name)
    except StoredSecretError as error:
        return UndoneStep(what, "failed", str(error))
    if removed:
        return UndoneStep(what, "restored", f"{what} is removed")
    return UndoneStep(what, "restored", f"{what} is not stored")


def _undo_trust(step: TrustStep) -> UndoneStep:
    what = f"the trust in {step.file}"
    try:
        forget(step.file)
    except TrustError as error:
        return UndoneStep(what, "failed", str(error))
    if step.was_trusted:
        command = trust_command(step.file, anywhere=True)
        return UndoneStep(
            what, "left", f"{step.file} is now not trusted; to review and trust it: {command}"
        )
    return UndoneStep(what, "restored", f"{step.file} is no longer trusted")


def _undo_service(step: ServiceStep) -> UndoneStep:
    what = f"the service {step.file}"
    try:
        was_installed = user_service().uninstall()
    except ServiceError as error:
        return UndoneStep(what, "failed", str(error))
    if was_installed:
        return UndoneStep(what, "restored", f"{what} is stopped and removed")
    return UndoneStep(what, "restored", f"{what} is not installed")


def _undo_rule(step: RuleStep) -> UndoneStep:
    what = f"the rule that {step.tool} is allowed always"
    try:
        with Store.open(":memory:") as store:
            rules = StandingRules(Configuration(), store)
            for listed in rules.listed(LOCAL):
                if listed.rule.id == step.id:
                    rules.withdraw(listed.rule, AT_TERMINAL)
    except StandingRuleError as error:
        return UndoneStep(what, "failed", str(error))
    return UndoneStep(what, "restored", f"{step.tool} is no longer always allowed")
