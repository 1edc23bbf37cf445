"""Module errors, one class for each cause.

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
"""Maximum length, in characters, of an error's text."""


def shown(text: str, secrets: Secrets, limit: int = MAX_ERROR) -> str:
    """Prepare text from outside for an error message: mask its secrets, and shorten it."""
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
        sent: the parts of the tool's result that the message does not contain:
            `{"structuredContent"?, "content"?}`, without secrets. They are not checked against the
            schema, so they do not become the value of the call.
    """

    sent: JSONObject | None = None

    def __init__(self, module: str, message: str, *, outcome: Outcome | None = None) -> None:
        super().__init__(message)
        self.module = module
        if outcome is not None:
            self.outcome = outcome


class UnknownModuleError(ModuleError):
    """No server with this name is configured. The message suggests similar names."""

    outcome = "not_run"


class UnknownModuleToolError(ModuleError):
    """The server has no tool with this name that can be called."""

    outcome = "not_run"


class ToolNotAllowedError(UnknownModuleToolError):
    """The configuration does not allow the tool (`allow` and `deny`), whether or not it exists."""


class ToolLeftOutError(UnknownModuleToolError):
    """The server lists the tool, but the tool's definition cannot be used. The message says why."""


class ModuleListError(ModuleError):
    """The server is up but has not listed its tools. The message says why. The server is asked
    again later.
    """

    outcome = "not_run"


class SharedQuestionError(ModuleError):
    """The server asked a question while calls from several sessions were running, and did not say
    which call it belonged to, so ideabridge did not ask anybody.

    The call has ended. `repeatable` means that the call only reads, so that `Modules.using` can
    send the call again over a connection that belongs only to its session.
    """

    def __init__(self, module: str, message: str, *, outcome: Outcome, repeatable: bool) -> None:
        super().__init__(module, message, outcome=outcome)
        self.repeatable = repeatable


class ClientWithoutSessionsError(ModuleError):
    """The server has a separate process or connection for each session, but the call comes from a
    client without sessions. The message says what the user can do.
    """

    outcome = "not_run"


class ModuleDisabledError(ModuleError):
    """The configuration disables the server."""

    outcome = "not_run"


class ModuleConfigurationError(ModuleError):
    """The server's configuration is unusable, for example because a variable is not set."""

    outcome = "not_run"


class ModuleConnectError(ModuleError):
    """The server cannot be reached: its command does not exist, its process ended, or it refused or
    did not answer in time.

    `lasting` means that it is useless to try again soon. `unreachable` means that no message was
    sent to the server.
    """

    outcome = "not_run"

    def __init__(
        self, module: str, message: str, *, lasting: bool = False, unreachable: bool = False
    ) -> None:
        super().__init__(module, message)
        self.lasting = lasting
        self.unreachable = unreachable


class ModuleSignInError(ModuleConnectError):
    """A person must sign in to the server or grant more scopes (`lasting`), or the authorization
    server refuses or cannot be reached. The message says what the person can do.
    """

    def __init__(self, module: str, message: str, *, lasting: bool = True) -> None:
        super().__init__(module, message, lasting=lasting)


class ModuleDownError(ModuleError):
    """The connection ended during the call (outcome `unknown`) or before the call was sent
    (`not_run`).
    """

    outcome = "not_run"


class ModuleToolError(ModuleError):
    """The tool itself failed (`isError`). The message is the text of the result.

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
    """The result does not satisfy the tool's own output schema, or is not JSON.

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
    """The server answered with a JSON-RPC error (`failed`), or with something other than MCP
    (`unknown`).

    Attributes:
        code: the JSON-RPC error code, or None if the error has no code.
        said: only the message of the JSON-RPC error.
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
    """The tool asked a question as in the protocol versions up to 2025-11-25. Version 2026-07-28
    does not allow this during a call.

    Attributes:
        repeatable: True if it is safe to send the call again with the older protocol version.
    """

    def __init__(self, module: str, message: str, *, repeatable: bool = False) -> None:
        super().__init__(module, message)
        self.repeatable = repeatable


class ModuleTimeoutError(ModuleError):
    """The server did not answer within the timeout. The call was cancelled, but might have taken
    effect.
    """

    outcome = "unknown"


class ModuleInputRequiredError(ModuleError):
    """The server asks for something that is not available: the user's model (sampling), the user's
    folders (roots), a form that nobody can fill in, or answers to more rounds of questions than are
    allowed.
    """
