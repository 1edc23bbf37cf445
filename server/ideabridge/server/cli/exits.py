"""Exit codes, and which error leads to which (`docs/cli.md` tells people)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import IntEnum
from typing import cast

from ideabridge.tools.errors import IdeabridgeError


class ExitCode(IntEnum):
    """What the process says when it ends."""

    DONE = 0
    FAILED = 1
    """What was asked for was done, and did not succeed: calls with errors, a module that is down, a wrong answer."""
    USAGE = 2
    """The command line, a plan, an input, a name or the configuration is wrong; nothing ran."""
    STORE = 3
    """The store cannot be opened, read or written."""
    WAITING = 4
    """A run waits for a person's approval, or for a solution."""
    INTERNAL = 70
    """A defect of ideabridge."""
    CANCELLED = 130
    """Ctrl-C."""


class UsageError(IdeabridgeError):
    """A command line that cannot be understood."""


_STORE = ("StoreVersionError", "StoreFormatError", "StoreAccessError", "StoreFullError", "StoreBusyError", "StoreError")
_FAILED = ("ModuleConnectError", "ModuleDownError", "ModuleToolError", "ModuleOutputError", "ModuleProtocolError")
_FAILED_TOO = ("ModuleTimeoutError", "ModuleInputRequiredError", "CheckFailedError", "InterruptedRunError")


def exit_code(error: IdeabridgeError) -> ExitCode:
    """The exit code of an error. By the name of its class, so that no error's module need be imported for it."""
    name = type(error).__name__
    if name in _STORE:
        return ExitCode.STORE
    if name in _FAILED or name in _FAILED_TOO:
        return ExitCode.FAILED
    return ExitCode.USAGE


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors inside groups of errors (task groups wrap what is raised in them)."""
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(inner)
    else:
        yield error


def own_error(error: BaseException) -> IdeabridgeError | None:
    """Our error in what was raised, if every part of it is ours or a cancellation."""
    found = [one for one in leaves(error) if type(one).__name__ != "CancelledError"]
    own = [one for one in found if isinstance(one, IdeabridgeError)]
    return own[0] if own and len(own) == len(found) else None


def standing_in_terminal() -> bool:
    """Whether a person sits before standard input and standard error."""
    return sys.stdin.isatty() and sys.stderr.isatty()
