"""Errors of configured servers, one class for each cause.

Minds and people see the messages, so the messages are limited in length, and secrets in them are
masked (see `secrets`). Each message contains the server's name. The `outcome` of an error says
whether the failed call was sent, and whether it might have taken effect.
"""

from __future__ import annotations

import shlex
from typing import Final

from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError, Outcome

MAX_ERROR: Final = 4096
"""The maximum length, in characters, of an error's text."""


def shown(text: str, secrets: Secrets, limit: int = MAX_ERROR) -> str:
    """Prepare text from outside for an error message by masking its secrets and shortening it."""
    masked = secrets.mask_start(text, limit).encode("utf-8", "replace").decode()
    is_whole = len(text) <= limit and len(masked) <= limit
    return masked if is_whole else f"{masked[:limit]}… ({len(text):,} characters)"


def log_hint(module: str) -> str:
    """Return a clause with the command that shows the log of a server."""
    return f"`ideabridge servers logs {shlex.quote(module)}` shows what it wrote"


class ModuleError(IdeabridgeError):
    """The base class of all server errors.

    Args:
        module: the server's name in `mcpServers`.
        outcome: the outcome of the call, or None for the default of the class.

    Attributes:
        sent: what the tool's result contains besides the message, `{"structuredContent"?,
            "content"?}`, without secrets. It is not checked against the schema, so it does not
            become the value of the call.
    """

    sent: JSONObject | None = None

    def __init__(self, module: str, message: str, *, outcome: Outcome | None = None) -> None:
        super().__init__(message)
        self.module = module
        if outcome is not None:
            self.outcome = outcome


class UnknownModuleError(ModuleError):
    """Raised when no server with the given name is configured. The message suggests similar
    names.
    """

    outcome = "not_run"


class UnknownModuleToolError(ModuleError):
    """Raised when the server has no tool with the given name that can be called."""

    outcome = "not_run"


class ToolNotAllowedError(UnknownModuleToolError):
    """Raised when the configuration does not allow the tool (`allow` and `deny`), whether or not it
    exists.
    """


class ToolLeftOutError(UnknownModuleToolError):
    """Raised when the server lists the tool, but the tool's definition cannot be used. The message
    says why.
    """


class ModuleListError(ModuleError):
    """Raised when the server is up but has not listed its tools. The message says why. The server
    is asked again later.
    """

    outcome = "not_run"


class SharedQuestionError(ModuleError):
    """Raised when the server asked a question while calls from several sessions were running,
    without saying which call it belonged to. Nobody was asked.

    The call has ended. `repeatable` means that the call only reads, so that `Modules.using` can
    send it again over a connection that belongs only to its session.
    """

    def __init__(self, module: str, message: str, *, outcome: Outcome, repeatable: bool) -> None:
        super().__init__(module, message, outcome=outcome)
        self.repeatable = repeatable


class ClientWithoutSessionsError(ModuleError):
    """Raised when the server has a separate process or connection for each session, but the call
    comes from a client without sessions. The message says what the user can do.
    """

    outcome = "not_run"


class ModuleDisabledError(ModuleError):
    """Raised when the configuration disables the server."""

    outcome = "not_run"


class ModuleConfigurationError(ModuleError):
    """Raised when the server's configuration is unusable, for example because a variable is not
    set.
    """

    outcome = "not_run"


class ModuleConnectError(ModuleError):
    """Raised when the server cannot be reached: its command does not exist, its process ended, or
    it refused the connection or did not respond in time.

    `lasting` means that retrying soon is useless. `unreachable` means that no message was sent to
    the server.
    """

    outcome = "not_run"

    def __init__(
        self, module: str, message: str, *, lasting: bool = False, unreachable: bool = False
    ) -> None:
        super().__init__(module, message)
        self.lasting = lasting
        self.unreachable = unreachable


class ModuleSignInError(ModuleConnectError):
    """Raised when a person must sign in to the server or grant more scopes (`lasting`), or when the
    authorization server refuses or cannot be reached. The message says what the person can do.
    """

    def __init__(self, module: str, message: str, *, lasting: bool = True) -> None:
        super().__init__(module, message, lasting=lasting)


class ModuleDownError(ModuleError):
    """Raised when the connection ended during the call (outcome `unknown`) or before the call was
    sent (`not_run`).
    """

    outcome = "not_run"


class ModuleToolError(ModuleError):
    """Raised when the tool itself failed (`isError`). The message is the text of the result.

    Attributes:
        result: the whole result of a direct call, as protocol JSON, without secrets.
    """

    def __init__(
        self,
        module: str,
        message: str,
        result: JSONObject | None = None,
        *,
        sent: JSONObject | None = None,
    ) -> None:
        super().__init__(module, message)
        self.result = result
        self.sent = sent


class ModuleOutputError(ModuleError):
    """Raised when the result does not satisfy the tool's own output schema, or is not JSON.

    Attributes:
        result: the whole result of a direct call, as an error in protocol JSON, without
            secrets.
    """

    outcome = "ran"

    def __init__(
        self,
        module: str,
        message: str,
        result: JSONObject | None = None,
        *,
        sent: JSONObject | None = None,
    ) -> None:
        super().__init__(module, message)
        self.result = result
        self.sent = sent


class ModuleProtocolError(ModuleError):
    """Raised when the server responded with a JSON-RPC error (`failed`), or with something other
    than MCP (`unknown`).

    Attributes:
        code: the JSON-RPC error code, or None if the error has no code.
        said: the message of the JSON-RPC error, without any additions.
        data: the data of the error, without secrets.
    """

    def __init__(
        self,
        module: str,
        message: str,
        *,
        code: int | None = None,
        said: str = "",
        data: JSON = None,
        outcome: Outcome | None = None,
    ) -> None:
        super().__init__(module, message, outcome=outcome)
        self.code = code
        self.said = said
        self.data = data


class LegacyQuestionError(ModuleError):
    """Raised when the tool asked a question as in protocol versions up to 2025-11-25. Version
    2026-07-28 does not allow this during a call.

    Attributes:
        repeatable: True if it is safe to send the call again with the older protocol version.
    """

    def __init__(self, module: str, message: str, *, repeatable: bool = False) -> None:
        super().__init__(module, message)
        self.repeatable = repeatable


class ModuleTimeoutError(ModuleError):
    """Raised when the server did not respond within the timeout. The call was cancelled, but might
    have taken effect.
    """

    outcome = "unknown"


class ModuleInputRequiredError(ModuleError):
    """Raised when the server asks for something that is not available: the user's model (sampling),
    the user's folders (roots), a form that nobody can fill in, or answers to more rounds of
    questions than are allowed.
    """
