"""Install a single HTTP server for all of a user's clients. systemd or launchd starts it when the
user signs in.

It listens on loopback, and needs a token, because other users and web pages on this machine can
also reach a loopback address. The token is a stored secret of the user.
"""

from __future__ import annotations

import os
import plistlib
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ideabridge.bridge.stored_secrets import (
    SecretOwner,
    find_secret,
    remove_secret,
    secret_value,
    set_secret,
)
from ideabridge.tools.errors import IdeabridgeError

TOKEN_SECRET: Final = "ideabridge-service"  # noqa: S105 - the name of the secret, not its value
"""The stored secret that clients of the service send."""

_UNIT: Final = "ideabridge.service"
_LABEL: Final = "dev.ideabridge.serve"
_COMMAND_SECONDS: Final = 30
"""Time limit, in seconds, for a system command."""

State = Literal["running", "stopped", "failed", "not installed"]


class ServiceError(IdeabridgeError):
    """Raised when the service cannot be installed, stopped or removed. The message says why."""


def service_token() -> str:
    """Return the token of the service. This function blocks.

    Raises:
        StoredSecretError: no token is stored, or it cannot be read.
    """
    return secret_value(SecretOwner(), TOKEN_SECRET, "", "")


def has_token() -> bool:
    """Return whether the token of the service is stored."""
    return find_secret(SecretOwner(), TOKEN_SECRET) is not None


def new_token() -> str:
    """Return a new, unguessable token. It is not stored yet."""
    return secrets.token_urlsafe(32)


def create_token(token: str | None = None) -> str:
    """Create the service's token, unless there already is one. This function blocks.

    Return a phrase that tells users where the token is stored.

    Args:
        token: the token, or None to create a new one.

    Raises:
        StoredSecretError: the token cannot be stored.
    """
    present = find_secret(SecretOwner(), TOKEN_SECRET)
    if present is not None:
        service_token()
        return "the keyring" if present.place == "keyring" else "the file of your secrets"
    return set_secret(SecretOwner(), TOKEN_SECRET, token or new_token(), {})


def service_command(
    program: Sequence[str],
    address: str,
    own: Path,
    store: str | None,
    *,
    ui: bool = False,
    metrics: bool = False,
) -> list[str]:
    """Return the command that the service runs.

    Args:
        program: the words that start ideabridge.
        address: the loopback address and port to listen on.
        own: the user's configuration.
        store: the store, or None to use the configured store.
        ui: whether the service has the page.
        metrics: whether the service has metrics.
    """
    words = [*program, "serve", "--http", address, "--service", "--config", str(own)]
    if store is not None:
        words += ["--store", store]
    if ui:
        words.append("--ui")
    if metrics:
        words.append("--metrics")
    return words


def forget_token() -> None:
    """Delete the token of the service. This function blocks.

    Raises:
        StoredSecretError: the token cannot be deleted.
    """
    remove_secret(SecretOwner(), TOKEN_SECRET)


@dataclass(frozen=True, slots=True)
class UserService:
    """The service as managed by systemd or launchd.

    Attributes:
        manager: systemd or launchd.
        file: the file that defines the service.
    """

    manager: Literal["systemd", "launchd"]
    file: Path

    def definition(self, command: Sequence[str], folder: Path) -> bytes:
        """Return the required content of the service's file.

        Args:
            command: the command that starts the server.
            folder: the folder that the command runs in.
        """
        if self.manager == "systemd":
            return _unit(command, folder).encode()
        return _property_list(command, folder)

    def install(self, command: Sequence[str], folder: Path) -> None:
        """Write the file, and start the service now and whenever the user signs in.

        Raises:
            ServiceError: the file cannot be written, or the manager rejects it.
        """
        content = self.definition(command, folder)
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_bytes(content)
        except OSError as error:
            raise ServiceError(f"{self.file} cannot be written to: {error.strerror}") from None

        if self.manager == "systemd":
            _run("systemctl", "--user", "daemon-reload")
            _run("systemctl", "--user", "enable", _UNIT)
            # Restart the service, because a running one would not use the new file.
            _run("systemctl", "--user", "restart", _UNIT)
        else:
            _try("launchctl", "bootout", _target())
            _run("launchctl", "bootstrap", _domain(), str(self.file))

    @property
    def url(self) -> str:
        """The URL of the installed service.

        Raises:
            ServiceError: the service is not installed, or its file is not what `install` wrote.
        """
        try:
            words = self._command(self.file.read_bytes())
            address = words[words.index("--http") + 1]
        except FileNotFoundError:
            raise ServiceError(
                "the service is not installed; run `ideabridge service install`"
            ) from None
        except (OSError, ValueError, KeyError, IndexError):
            raise ServiceError(
                f"{self.file} is not what `ideabridge service install` wrote; run that command "
                "again"
            ) from None
        return f"http://{address}/mcp"

    def _command(self, content: bytes) -> list[str]:
        if self.manager == "launchd":
            return list(plistlib.loads(content)["ProgramArguments"])
        [line] = [line for line in content.decode().splitlines() if line.startswith("ExecStart=")]
        return shlex.split(line.removeprefix("ExecStart="))

    def stop(self) -> None:
        """Stop the service until the user signs in again.

        Raises:
            ServiceError: the manager refuses to stop it.
        """
        if self.manager == "systemd":
            _run("systemctl", "--user", "stop", _UNIT)
        else:
            _run("launchctl", "bootout", _target())

    def uninstall(self) -> bool:
        """Stop the service, and remove its file. Return whether the service was installed.

        Raises:
            ServiceError: the file cannot be removed.
        """
        was_installed = self.file.exists()
        if self.manager == "systemd":
            _try("systemctl", "--user", "disable", "--now", _UNIT)
        else:
            _try("launchctl", "bootout", _target())

        try:
            self.file.unlink(missing_ok=True)
        except OSError as error:
            raise ServiceError(f"{self.file} cannot be removed: {error.strerror}") from None

        if self.manager == "systemd":
            _try("systemctl", "--user", "daemon-reload")
        return was_installed

    def state(self) -> State:
        """Return the state of the service as reported by its manager."""
        if not self.file.exists():
            return "not installed"
        if self.manager == "launchd":
            return "running" if _try("launchctl", "print", _target()) else "stopped"
        if _try("systemctl", "--user", "is-active", "--quiet", _UNIT):
            return "running"
        return "failed" if _try("systemctl", "--user", "is-failed", "--quiet", _UNIT) else "stopped"

    @property
    def log_command(self) -> str:
        """The command that shows the log of the service."""
        if self.manager == "systemd":
            return f"journalctl --user -u {_UNIT}"
        return f"tail {_log_file()}"


def user_service(platform: str = sys.platform, home: Path | None = None) -> UserService:
    """Return this user's service, whether or not it is installed.

    Raises:
        ServiceError: this system has neither a systemd user session nor launchd.
    """
    home = Path.home() if home is None else home
    if platform == "darwin":
        return UserService("launchd", home / "Library" / "LaunchAgents" / f"{_LABEL}.plist")

    if platform != "win32" and shutil.which("systemctl") is not None:
        # The user's service manager answers only inside a session of the user.
        if _try("systemctl", "--user", "show-environment"):
            folder = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
            return UserService("systemd", folder / "systemd" / "user" / _UNIT)
        raise ServiceError(
            "systemd has no session for this user here. Sign in as the user and run this in a "
            "terminal, or run `loginctl enable-linger` first; otherwise start `ideabridge serve "
            "--http` by other means"
        )

    raise ServiceError(
        "this system has neither a systemd user session nor launchd to start a service. Start "
        "`ideabridge serve --http` by other means"
    )


# -- files -----------------------------------------------------------------------------------------


def _unit(command: Sequence[str], folder: Path) -> str:
    variables = "".join(
        f"Environment={_quoted(f'{name}={value}')}\n" for name, value in _variables().items()
    )
    words = " ".join(map(_quoted_word, command))
    return (
        "[Unit]\n"
        "Description=ideabridge, one MCP server for all clients of this user\n"
        "\n"
        "[Service]\n"
        f"ExecStart={words}\n"
        f"WorkingDirectory={_specifiers_escaped(str(folder))}\n"
        f"{variables}"
        "Restart=on-failure\n"
        "RestartSec=2\n"
        "UMask=0077\n"
        "\n"
        "[Install]\n"
        "WantedBy=default.target\n"
    )


def _quoted(text: str) -> str:
    """Return a string as a single word for a unit file."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{_specifiers_escaped(escaped)}"'


def _quoted_word(text: str) -> str:
    """Quote a word of a command line for a unit file, in which `$` begins a variable."""
    return _quoted(text).replace("$", "$$")


def _specifiers_escaped(text: str) -> str:
    return text.replace("%", "%%")


def _property_list(command: Sequence[str], folder: Path) -> bytes:
    log = str(_log_file())
    return plistlib.dumps(
        {
            "Label": _LABEL,
            "ProgramArguments": [*command],
            "WorkingDirectory": str(folder),
            "EnvironmentVariables": dict(_variables()),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "StandardOutPath": log,
            "StandardErrorPath": log,
            "Umask": 0o077,
        }
    )


def _variables() -> Mapping[str, str]:
    """Return the environment variables that the service inherits from this command.

    A service manager would set a short PATH without the programs that start servers.
    """
    names = ("PATH", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def _log_file() -> Path:
    return Path.home() / "Library" / "Logs" / "ideabridge-service.log"


# -- commands --------------------------------------------------------------------------------------


def _domain() -> str:
    return f"gui/{os.getuid()}"


def _target() -> str:
    return f"{_domain()}/{_LABEL}"


def _run(*command: str) -> None:
    """Run a system command.

    Raises:
        ServiceError: the command fails.
    """
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceError(f"`{' '.join(command)}` failed: {error}") from None

    if ended.returncode:
        message = (ended.stderr or ended.stdout).strip()[:1000]
        raise ServiceError(f"`{' '.join(command)}` failed: {message or ended.returncode}")


def _try(*command: str) -> bool:
    """Run a system command, and return whether it succeeds."""
    try:
        _run(*command)
    except ServiceError:
        return False
    return True
