"""Errors of ideas and of the store, one class per cause."""

from __future__ import annotations

from typing import Final

from ideabridge.tools.errors import IdeabridgeError


class StoreError(IdeabridgeError):
    """The base class of all store errors. It is raised directly only for a database failure without
    its own class.
    """


class StoreVersionError(StoreError):
    """The store was written by a newer version of ideabridge, or by a version so old that this
    version cannot migrate its stores.
    """


class StoreFormatError(StoreError):
    """The file is not SQLite, is damaged, or is another program's database."""


class StoreAccessError(StoreError):
    """The file or its folder cannot be read or written. For example, permissions are missing, the
    path is a folder, or the file system is read-only or does not support the store's log.
    """


class StorePlaceError(StoreError):
    """The location of a store names neither a file nor a PostgreSQL database."""


class StoreFullError(StoreError):
    """The disk is full, or the limit on the size of the store is reached."""


class StoreBusyError(StoreError):
    """Another process held the store's lock for longer than the busy timeout."""


PASSING: Final = (StoreBusyError, StoreFullError, StoreAccessError)
"""Errors that might be temporary, so that it is worth repeating the write."""


class StoreGoneError(StoreError):
    """The store's file, or its log, was deleted, moved or replaced while it was open.
    The write is lost.
    """


class StoreClosedError(StoreError):
    """The store was used after `close`."""


class StoreExtraError(StoreError):
    """Something that a PostgreSQL store needs is not installed: the extra `ideabridge[postgres]`,
    or PostgreSQL's programs.
    """


class StoreCopyError(StoreError):
    """A store cannot be copied to the target, or the copy differs from the store."""


class UncountedCallError(StoreError):
    """A call was not made, because its server has a limit for all processes together and the store
    that counts its calls could not be written.
    """

    outcome = "not_run"


class UnknownIdeaError(StoreError):
    """No idea has this id, prefix, name, version or run. The message suggests similar names."""


class AmbiguousIdeaError(StoreError):
    """More than one idea starts with this prefix."""


class IdeaDocumentError(StoreError):
    """An imported document does not have the shape that `export_idea` writes. The message names the
    place.
    """


class TamperedIdeaError(StoreError):
    """The content of an exported idea does not match the id or the request id that the document
    states.
    """


class SecretInIdeaError(StoreError):
    """An idea that contains a secret cannot be exported. The message says where the secret is, but
    does not contain it.
    """


class CursorError(StoreError):
    """A page cursor does not belong to this list, or a limit is out of bounds."""


class QueryError(StoreError):
    """A person's query is not a single read-only SQL statement, or it takes too long."""


class FilterError(StoreError):
    """A filter for a list or search is invalid."""


class PublicationNameError(StoreError):
    """A name is not valid for a tool. The message suggests a valid name."""


class PublicationContentError(StoreError):
    """A publication lacks the part that its `answer` needs (`plan` or `recorded`), or its
    `answer` is unknown.
    """


class UnknownPublicationError(StoreError):
    """No publication has this name, or the name does not have this version."""


class NotInProfileError(UnknownPublicationError):
    """The publication exists, but the caller's profile does not contain it."""


class NameTakenError(StoreError):
    """The name is published by another owner."""


class UserError(StoreError):
    """A user, a token or an audience is invalid. The message says what was expected."""


class UnknownUserError(UserError):
    """No user has this name."""


class UnknownTokenError(UserError):
    """No token has this id."""


class UnknownRunError(StoreError):
    """No run has this id, or the run belongs to another caller."""


class RunExistsError(StoreError):
    """A run with this id already exists."""


class PruningStoppedError(StoreError):
    """A pruning was stopped between two steps. The completed steps remain in effect, and the next
    pruning continues.
    """


class StaleDriverError(StoreError):
    """The epoch is not the run's current epoch, because another driver took the run over or the
    lease was released.
    """
