"""Errors of modules, one class for each cause.

Messages are bounded and masked (see `secrets`), because minds and people see them. Each names its module. The `outcome`
of an error says whether the call that failed was sent, and what is known of its effect.
"""

from __future__ import annotations

from typing import Final

from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.errors import IdeabridgeError, Outcome

MAX_ERROR: Final = 4096
"""Characters of the text of an error."""


def shown(text: str, secrets: Secrets, limit: int = MAX_ERROR) -> str:
    """Text from outside for an error message: without secrets, bounded."""
    # Masked before it is cut: half a secret would not be recognised.
    masked = secrets.mask(text[: limit * 4].encode("utf-8", "replace").decode())
    return masked if len(masked) <= limit else f"{masked[:limit]}… ({len(text):,} characters)"


class ModuleError(IdeabridgeError):
    """Base of every error of a module.

    Args:
        module: the module's name in `mcpServers`.
        outcome: what is known of the call; None: what the class says.
    """

    def __init__(self, module: str, message: str, *, outcome: Outcome | None = None) -> None:
        super().__init__(message)
        self.module = module
        if outcome is not None:
            self.outcome = outcome


class UnknownModuleError(ModuleError):
    """No module of this name is configured; the message names the nearest ones."""

    outcome = "not_run"


class UnknownModuleToolError(ModuleError):
    """The module has no such tool, or the configuration does not allow it."""

    outcome = "not_run"


class ModuleDisabledError(ModuleError):
    """The configuration says `disabled`."""

    outcome = "not_run"


class ModuleConfigurationError(ModuleError):
    """The module's configuration cannot be used here: a variable is not set, an address is malformed."""

    outcome = "not_run"


class ModuleConnectError(ModuleError):
    """The module did not come up: no such command, it ended, it refused, it did not answer in time.

    Args:
        lasting: trying again soon is of no use: the command does not exist, the server refuses this client.
    """

    outcome = "not_run"

    def __init__(self, module: str, message: str, *, lasting: bool = False) -> None:
        super().__init__(module, message)
        self.lasting = lasting


class ModuleDownError(ModuleError):
    """There is no connection: it ended under the call (`unknown`), or before the call was sent (`not_run`)."""

    outcome = "not_run"


class ModuleToolError(ModuleError):
    """The tool itself failed (`isError`); the message is what it said."""


class ModuleOutputError(ModuleError):
    """The result does not satisfy the tool's own output schema."""

    outcome = "ran"


class ModuleProtocolError(ModuleError):
    """The module answered with a JSON-RPC error (`failed`), or with what is not MCP (`unknown`).

    Attributes:
        code: the JSON-RPC error code, or None where there was none.
    """

    def __init__(self, module: str, message: str, *, code: int | None = None, outcome: Outcome | None = None) -> None:
        super().__init__(module, message, outcome=outcome)
        self.code = code


class ModuleTimeoutError(ModuleError):
    """No answer within the time-out; the module was told to stop, and may have done its work all the same."""

    outcome = "unknown"


class ModuleInputRequiredError(ModuleError):
    """The module asks for what it is not given: the user's model (sampling), folders, a form where nobody can be asked,
    or without end.
    """
