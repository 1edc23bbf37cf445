"""What can go wrong with a module: one class per cause (DESIGN 4.5, 4.10).

Messages are bounded and masked (see `secrets`): they may reach a mind or a person. Each names its module.
"""

from __future__ import annotations

from ideabridge.tools.errors import IdeabridgeError


class ModuleError(IdeabridgeError):
    """Base of every error of a module.

    Attributes:
        module: the module's name in `mcpServers`.
    """

    def __init__(self, module: str, message: str) -> None:
        super().__init__(message)
        self.module = module


class UnknownModuleError(ModuleError):
    """No module of this name is configured; the message names the nearest ones."""


class UnknownModuleToolError(ModuleError):
    """The module has no such tool, or the configuration does not allow it."""


class ModuleDisabledError(ModuleError):
    """The configuration says `disabled`."""


class ModuleConfigurationError(ModuleError):
    """The module's configuration cannot be used here: a variable is not set, an address is malformed."""


class ModuleConnectError(ModuleError):
    """The module did not come up: no such command, it ended, it refused, it did not answer in time."""


class ModuleDownError(ModuleError):
    """The connection ended under a call: whether the call took effect is unknown."""


class ModuleToolError(ModuleError):
    """The tool itself failed (`isError`); the message is what it said."""


class ModuleOutputError(ModuleError):
    """The result does not satisfy the tool's own output schema."""


class ModuleProtocolError(ModuleError):
    """The module answered with a JSON-RPC error, or with what is not MCP.

    Attributes:
        code: the JSON-RPC error code, or None where there was none.
    """

    def __init__(self, module: str, message: str, *, code: int | None = None) -> None:
        super().__init__(module, message)
        self.code = code


class ModuleTimeoutError(ModuleError):
    """No answer within the time-out; the module was told to stop."""


class ModuleInputRequiredError(ModuleError):
    """The module asks for what it is not given: the user's model (sampling), folders, a form where nobody can be asked,
    or without end.
    """
