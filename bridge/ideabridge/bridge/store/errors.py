"""Errors of ideas and of the store, one class per cause."""

from __future__ import annotations

from typing import Final

from ideabridge.tools.errors import IdeabridgeError


class StoreError(IdeabridgeError):
    """Base of every error of the store. Only a database failure without a class of its own raises
    it directly.
    """


class StoreVersionError(StoreError):
    """The store was written by a newer ideabridge, or by an old one whose stores this version
    cannot migrate.
    """


class StoreFormatError(StoreError):
    """The file is not SQLite, is damaged, or is another program's database."""


class StoreAccessError(StoreError):
    """The file or its folder cannot be read or written (permissions, a folder, a read-only or
    foreign file system).
    """


class StoreFullError(StoreError):
    """The disk, or the bound on the size of the store, leaves no room."""


class StoreBusyError(StoreError):
    """Another process held the store locked for longer than the busy time-out."""


PASSING: Final = (StoreBusyError, StoreFullError, StoreAccessError)
"""Errors that may resolve themselves, so that the write is worth another attempt."""


class StoreGoneError(StoreError):
    """The store's file, or its log, was deleted, moved or replaced while it was open.
    The write is lost.
    """


class StoreClosedError(StoreError):
    """The store was used after `close`."""


class StoreExtraError(StoreError):
    """A store in PostgreSQL needs the extra `ideabridge[postgres]` or PostgreSQL's programs, which
    are not installed.
    """


class StoreCopyError(StoreError):
    """A store cannot be copied to the target, or the copy differs from the store."""


class UncountedCallError(StoreError):
    """A call was not made: its module has a limit for all processes, and the store that counts its
    calls could not be written.
    """

    outcome = "not_run"


class UnknownIdeaError(StoreError):
    """No idea has this id, prefix, name, version or run; the message lists the nearest names."""


class AmbiguousIdeaError(StoreError):
    """More than one idea starts with this prefix."""


class IdeaDocumentError(StoreError):
    """An exported idea does not have the shape that `export_idea` writes; the message
    contains the place.
    """


class TamperedIdeaError(StoreError):
    """The content of an exported idea does not have the id or the request id that the
    document states.
    """


class SecretInIdeaError(StoreError):
    """An idea that contains a secret cannot be exported; the message contains the place, but
    not the secret.
    """


class CursorError(StoreError):
    """A page cursor does not come from this list, or a limit is out of bounds."""


class QueryError(StoreError):
    """A query of a person is not one SQL statement that reads, or takes too long."""


class FilterError(StoreError):
    """A filter of a list or search is invalid."""


class PublicationNameError(StoreError):
    """A name is not valid for a tool; the message suggests a valid one."""


class PublicationContentError(StoreError):
    """A publication lacks the part that its `answer` needs (`plan` or `recorded`), or its
    `answer` is unknown.
    """


class UnknownPublicationError(StoreError):
    """No publication has this name, or this version of it."""


class NameTakenError(StoreError):
    """The name is published by another owner."""


class UserError(StoreError):
    """A user, a token or an audience is invalid; the message says what was expected."""


class UnknownUserError(UserError):
    """No user has this name."""


class UnknownTokenError(UserError):
    """No token has this id."""


class UnknownRunError(StoreError):
    """No run has this id, or the run belongs to another caller."""


class RunExistsError(StoreError):
    """A run with this id exists already."""


class PruningStoppedError(StoreError):
    """A pruning was stopped between two steps. Its completed steps remain, and the next
    pruning continues.
    """


class StaleDriverError(StoreError):
    """The epoch is not the run's current one: another driver took the run over, or the lease was
    released.
    """
