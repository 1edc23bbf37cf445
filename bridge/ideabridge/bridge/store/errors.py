"""Errors of ideas and of the store, one class per cause."""

from __future__ import annotations

from typing import Final

from ideabridge.tools.errors import IdeabridgeError


class StoreError(IdeabridgeError):
    """Base of every error of the store. It is raised itself only for a failure of SQLite that
    has no class here.
    """


class StoreVersionError(StoreError):
    """The store was written by a newer ideabridge, or by an earlier one whose stores this one
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
"""Errors that may pass by themselves: what could not be written is worth another attempt."""


class StoreGoneError(StoreError):
    """The store's file, or its log, was deleted, moved or replaced while it was open.
    The write is lost.
    """


class StoreClosedError(StoreError):
    """The store was used after `close`."""


class StoreExtraError(StoreError):
    """A store in PostgreSQL needs what is not installed: the extra `ideabridge[postgres]`, or
    PostgreSQL's programs.
    """


class StoreCopyError(StoreError):
    """A store cannot be copied there, or the copy differs from it."""


class UncountedCallError(StoreError):
    """The store could not be written, so a call of a module with a limit for all
    processes was not made.
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
    """SQL of a person is not one statement that reads, or takes too long."""


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
    """No run has this id, or the run is another caller's."""


class RunExistsError(StoreError):
    """A run of this id exists already."""


class PruningStoppedError(StoreError):
    """A pruning was stopped between two steps. Its completed steps remain, and the next
    pruning continues.
    """


class StaleDriverError(StoreError):
    """The epoch is not the run's current one: another driver took the run over, or
    it was released.
    """
