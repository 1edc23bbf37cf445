"""Save the changes that an `ideabridge setup` makes, so that `--undo` can revert them.

Each change is added to the record before it is made, so even a setup that is killed halfway can be
undone. The records are in the user's data folder, and only the user can read them. They contain no
entries; only the backups of the files do.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ideabridge.bridge.trust import TrustError, locked, read_own, write_own
from ideabridge.server.hosts.editing.host_text import EditedFile
from ideabridge.server.hosts.editing.writing import backup_folder
from ideabridge.tools.errors import IdeabridgeError

_MAX_BYTES: Final = 16 * 1024 * 1024


class SetupRecordError(IdeabridgeError):
    """Raised when the record of a setup cannot be read or written. The message names the file."""


class FileStep(BaseModel):
    """A file that was written.

    Attributes:
        title: the display name of the file's owner.
        file: the data needed to undo the edit.
        mode: the previous permissions of the file, or None if the file did not exist.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["file"] = "file"
    title: str
    file: EditedFile
    mode: int | None


class SecretStep(BaseModel):
    """A secret that the setup stored. `file` is the configuration that the secret belongs to; see
    `StoredSecret`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["secret"] = "secret"
    name: str
    file: str | None


class TrustStep(BaseModel):
    """A project file that the setup trusted. `was_trusted` says whether it was already trusted
    before.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["trust"] = "trust"
    file: Path
    was_trusted: bool


class ServiceStep(BaseModel):
    """The service that the setup installed. `file` is the file that defines the service."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["service"] = "service"
    file: Path


class RuleStep(BaseModel):
    """A standing rule created when a person allowed a tool permanently. `id` is the id of the
    rule.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["rule"] = "rule"
    id: str
    tool: str


class RemainingStep(BaseModel):
    """A change that `--undo` does not revert. `text` describes the change, and how to revert it by
    hand.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["remaining"] = "remaining"
    text: str


SetupStep = FileStep | SecretStep | TrustStep | ServiceStep | RuleStep | RemainingStep
"""A change made by a setup."""

_STEPS: Final = TypeAdapter[list[SetupStep]](
    list[Annotated[SetupStep, Field(discriminator="kind")]]
)


class SetupRecord:
    """The record of one setup.

    Args:
        path: the file of the record, which exists if the record has steps.
        steps: the steps of the record.
    """

    def __init__(self, path: Path, steps: list[SetupStep]) -> None:
        self._path = path
        self._steps = steps

    @property
    def steps(self) -> tuple[SetupStep, ...]:
        """The steps, in order."""
        return tuple(self._steps)

    def add(self, step: SetupStep) -> None:
        """Add a step before the setup carries it out. Raise `SetupRecordError` if it cannot be
        saved.
        """
        self._steps.append(step)
        self._write()

    def remove(self, step: SetupStep) -> None:
        """Remove a step that was not carried out, or that was undone.

        If no steps are left, the file of the record is removed. Raise `SetupRecordError` if the
        record cannot be saved.
        """
        self._steps.remove(step)
        self._write()

    def _write(self) -> None:
        try:
            if self._steps:
                write_own(self._path, _STEPS.dump_json(self._steps, indent=1))
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(self._path, error) from None


def _unwritable(path: Path, error: OSError) -> SetupRecordError:
    return SetupRecordError(f"{path} cannot be written: {error.strerror or error}")


def _folder() -> Path:
    return platformdirs.user_data_path("ideabridge") / "setup"


@contextmanager
def one_at_a_time() -> Generator[None]:
    """Wait until no other process is running a setup, and make other processes wait meanwhile.

    Raises:
        SetupRecordError: the folder of the records cannot be written.
    """
    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = folder / ".lock"
        lock.touch(0o600)
    except OSError as error:
        raise _unwritable(folder, error) from None
    with locked(lock):
        yield


def setup_records() -> list[SetupRecord]:
    """Return the records of all setups that have not been undone, oldest first.

    Raises:
        SetupRecordError: a record cannot be read.
    """
    return [_read(_path(number)) for number in _numbers()]


def new_record() -> SetupRecord:
    """Return the record for a new setup. Its file is created with the first step."""
    return SetupRecord(_path(max(_numbers(), default=0) + 1), [])


def _numbers() -> list[int]:
    names = [path.stem for path in _folder().glob("*.json")]
    return sorted(int(name) for name in names if name.isdecimal())


def _path(number: int) -> Path:
    return _folder() / f"{number}.json"


def _read(path: Path) -> SetupRecord:
    try:
        return SetupRecord(path, _STEPS.validate_json(read_own(path, _MAX_BYTES)))
    except OSError as error:
        raise SetupRecordError(f"{path} cannot be read: {error.strerror or error}") from None
    except TrustError as error:
        raise SetupRecordError(str(error)) from None
    except ValidationError:
        raise SetupRecordError(
            f"{path} was not written by ideabridge; expected the steps of a setup. Copies of the "
            f"original files are in {backup_folder()}"
        ) from None
