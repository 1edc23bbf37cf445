"""Errors of ideas and of the store, one class per cause."""

from __future__ import annotations

from typing import Final

from ideabridge.tools.errors import IdeabridgeError


class StoreError(IdeabridgeError):
    """The base class of all store errors, raised directly only for database failures without a
    class of their own.
    """


class StoreVersionError(StoreError):
    """Raised when the store was written by a newer version of ideabridge, or by a version too old
    to migrate from.
    """


class StoreFormatError(StoreError):
    """Raised when the file is not SQLite, is damaged, or is another program's database."""


class StoreAccessError(StoreError):
    """Raised when the file or its folder cannot be read or written.

    For example, permissions are missing, the path is a folder, or the file system is read-only or
    does not support the store's log.
    """


class StorePlaceError(StoreError):
    """Raised when the location of a store is neither a file nor a PostgreSQL database."""


class StoreFullError(StoreError):
    """Raised when the disk is full, or the store has reached its size limit."""


class StoreBusyError(StoreError):
    """Raised when another process held the store's lock for longer than the busy timeout."""


PASSING: Final = (StoreBusyError, StoreFullError, StoreAccessError)
"""Errors that might be temporary, so that it is worth repeating the write."""


class StoreGoneError(StoreError):
    """Raised when the store's file or its log was deleted, moved or replaced while it was open. The
    write is lost.
    """


class StoreClosedError(StoreError):
    """Raised when the store is used after `close`."""


class StoreExtraError(StoreError):
    """Raised when something that a PostgreSQL store needs is not installed: the extra
    `ideabridge[postgres]`, or PostgreSQL's programs.
    """


class StoreCopyError(StoreError):
    """Raised when a store cannot be copied to the target, or the copy differs from the store."""


class UncountedCallError(StoreError):
    """Raised when a call is not made because its server has a limit for all processes together, and
    the store that counts the calls could not be written.
    """

    outcome = "not_run"


class UnknownIdeaError(StoreError):
    """Raised when no idea has the given id, prefix, name, version or run. The message suggests
    similar names.
    """


class AmbiguousIdeaError(StoreError):
    """Raised when several ideas start with the given prefix."""


class IdeaDocumentError(StoreError):
    """Raised when an imported document does not have the shape that `export_idea` writes. The
    message says where.
    """


class TamperedIdeaError(StoreError):
    """Raised when the content of an exported idea does not match the id or the request id that its
    document states.
    """


class SecretInIdeaError(StoreError):
    """Raised when an idea cannot be exported because it contains a secret. The message says where
    the secret is, without revealing it.
    """


class CursorError(StoreError):
    """Raised when a page cursor does not belong to the list, or a limit is out of bounds."""


class QueryError(StoreError):
    """Raised when a person's query is not a single read-only SQL statement, or takes too long."""


class FilterError(StoreError):
    """Raised when a filter for a list or search is invalid."""


class PublicationNameError(StoreError):
    """Raised when a name is not valid for a tool. The message suggests a valid name."""


class PublicationContentError(StoreError):
    """Raised when a publication lacks the part that its `answer` needs (`plan` or `recorded`), or
    its `answer` is unknown.
    """


class UnknownPublicationError(StoreError):
    """Raised when no publication has the given name, or the name does not have the given
    version.
    """


class NotInProfileError(UnknownPublicationError):
    """Raised when a publication exists, but the caller's profile does not contain it."""


class NameTakenError(StoreError):
    """Raised when the name is published by another owner."""


class UserError(StoreError):
    """Raised when a user, a token or an audience is invalid. The message says what was expected."""


class UnknownUserError(UserError):
    """Raised when no user has the given name."""


class UnknownTokenError(UserError):
    """Raised when no token has the given id."""


class UnknownRunError(StoreError):
    """Raised when no run has the given id, or the run belongs to another caller."""


class RunExistsError(StoreError):
    """Raised when a run with the given id already exists."""


class PruningStoppedError(StoreError):
    """Raised when pruning is stopped between two steps. The completed steps remain in effect, and
    the next pruning continues from there.
    """


class StaleDriverError(StoreError):
    """Raised when the given epoch is not the run's current epoch, because another driver took the
    run over or the lease was released.
    """
