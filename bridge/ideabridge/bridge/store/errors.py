"""Errors of ideas and of the store, one class per cause."""

from __future__ import annotations

from typing import Final

from ideabridge.tools.errors import IdeabridgeError


class StoreError(IdeabridgeError):
    """Base of every error of the store. Raised itself only for a failure SQLite reports that has no class here."""


class StoreVersionError(StoreError):
    """The store was written by a newer ideabridge, or by an earlier one whose stores this one cannot migrate."""


class StoreFormatError(StoreError):
    """The file is not SQLite, is damaged, or is another program's database."""


class StoreAccessError(StoreError):
    """The file or its folder cannot be read or written (permissions, a folder, a read-only or foreign file system)."""


class StoreFullError(StoreError):
    """The disk, or the bound on the size of the store, leaves no room."""


class StoreBusyError(StoreError):
    """Another process held the store locked for longer than the busy time-out."""


PASSING: Final = (StoreBusyError, StoreFullError, StoreAccessError)
"""Errors that may pass by themselves: what could not be written is worth another attempt."""


class StoreGoneError(StoreError):
    """The store's file, or its log, was deleted, moved or replaced while it was open. What was to be kept is not."""


class StoreClosedError(StoreError):
    """The store was used after `close`."""


class UnknownIdeaError(StoreError):
    """No idea has this id, prefix, name, version or run; the message names the nearest names."""


class AmbiguousIdeaError(StoreError):
    """More than one idea starts with this prefix."""


class IdeaDocumentError(StoreError):
    """An exported idea that does not have the shape `export_idea` writes; the message says where."""


class TamperedIdeaError(StoreError):
    """An exported idea whose content does not have the id or request id it names."""


class SecretInIdeaError(StoreError):
    """An idea that holds a secret was to leave the store; the message says where, and never the secret."""


class CursorError(StoreError):
    """A page cursor or a limit this store did not give or does not take."""


class FilterError(StoreError):
    """A filter of a list or search that cannot be understood."""


class PublicationNameError(StoreError):
    """A name that cannot be a tool's; the message suggests one that can."""


class PublicationContentError(StoreError):
    """A publication that lacks what its way of answering needs (`plan`, `recorded`), or has an unknown way."""


class UnknownPublicationError(StoreError):
    """No publication has this name, or this version of it."""


class NameTakenError(StoreError):
    """The name is published by another owner."""


class UserError(StoreError):
    """A user, a token or an audience that cannot be so; the message says what was expected."""


class UnknownUserError(UserError):
    """No user has this name."""


class UnknownTokenError(UserError):
    """No token has this id."""


class UnknownRunError(StoreError):
    """No run has this id, or the run is another caller's."""


class RunExistsError(StoreError):
    """A run of this id exists already."""


class PruningStoppedError(StoreError):
    """A pruning was stopped between two of its steps; what it did holds, and the next one goes on."""


class StaleDriverError(StoreError):
    """The epoch is not the run's current one: another driver took the run over, or it was released."""
