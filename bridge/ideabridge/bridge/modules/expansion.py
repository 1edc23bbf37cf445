"""Expansion: `${VAR}` in a module's configuration -> the values it is started with (DESIGN 4.10).

Only here do secrets leave the process environment, and each that does is known to `Secrets` first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ideabridge.bridge.modules.errors import ModuleConfigurationError
from ideabridge.bridge.modules.secrets import Secrets, is_secret_name
from ideabridge.bridge.modules.settings import ModuleConfiguration
from ideabridge.bridge.trust import Variables

_VARIABLE: Final = re.compile(r"\$?\$\{([^{}]*)\}")
_NAME: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_EDITOR_HINTS: Final = {
    "workspaceFolder": "the editor's folder is not known here; use a path relative to the configuration file, or 'cwd'",
    "workspaceRoot": "the editor's folder is not known here; use a path relative to the configuration file, or 'cwd'",
    "userHome": "write ${HOME}",
    "pathSeparator": "write / or \\",
}


@dataclass(frozen=True, slots=True)
class Launch:
    """What starts or reaches a module, with every variable filled in. Never shown, never stored."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] | None = None


def expand(
    module: str,
    configuration: ModuleConfiguration,
    *,
    environ: Mapping[str, str],
    folder: Path,
    secrets: Secrets,
    variables: Variables | None = None,
) -> Launch:
    """Fill in `${VAR}` and `${VAR:-default}`; `$${` stands for `${`.

    Args:
        module: the module's name, for messages.
        configuration: as written.
        environ: the process environment.
        folder: what `cwd` is relative to, and where a program without `cwd` runs.
        secrets: learns every value that must not be shown.
        variables: those that may be named; None: every one.

    Raises:
        ModuleConfigurationError: a variable without default is not set, may not be named, is an editor's
            (`${workspaceFolder}`), or the result is no address or header.
    """

    def fill(text: str, place: str, *, secret: bool) -> str:
        def value(match: re.Match[str]) -> str:
            if match.group().startswith("$$"):
                return match.group()[1:]
            name = match.group(1).partition(":-")[0]
            if variables is not None and name not in variables and environ.get(name):
                raise _error(module, place, variables.refusal(name))
            found = _lookup(match.group(1), environ, lambda why: _error(module, place, why))
            if secret or is_secret_name(name):
                secrets.add_env(name, found)
            return found

        return _VARIABLE.sub(value, text)

    command = fill(configuration.command or "", "command", secret=False)
    args = tuple(fill(text, f"args.{index}", secret=False) for index, text in enumerate(configuration.args))
    env = {name: fill(text, f"env.{name}", secret=True) for name, text in configuration.env.items()}
    for name, text in env.items():
        if not name or "=" in name or "\0" in name:
            raise _error(module, "env", f"{name[:40]!r} is not a name of a variable")
        secrets.add_env(name, text)
    cwd = str(folder / Path(fill(configuration.cwd or ".", "cwd", secret=False)).expanduser())
    url = fill(configuration.url or "", "url", secret=True)
    if url:
        secrets.add_url("url", url)
    headers = {name: fill(text, f"headers.{name}", secret=True) for name, text in configuration.headers.items()}
    for name, text in headers.items():
        secrets.add_header(name, text)
        if not _HEADER_NAME.fullmatch(name):
            raise _error(module, "headers", f"{name[:40]!r} is not a name of a header")
        if not text.isprintable() or not text.isascii():
            raise _error(module, f"headers.{name}", "a header has printable ASCII characters only")
    if url and not url.lower().startswith(("http://", "https://")):
        raise _error(module, "url", "expected an address that starts with http:// or https://")
    if command.startswith(("~", "./", "../")):
        command = str(folder / Path(command).expanduser())
    return Launch(command=command, args=args, env=env, cwd=cwd, url=url, headers=headers)


def learn_secrets(
    modules: Mapping[str, ModuleConfiguration],
    secrets: Secrets,
    *,
    environ: Mapping[str, str],
    folder_of: Callable[[str], Path],
    variables_of: Callable[[str], Variables | None],
) -> None:
    """Tell `secrets` every secret value of a configuration, with no module started; disabled modules' too.

    Args:
        modules: by name.
        secrets: learns the values.
        environ: the process environment.
        folder_of: the folder of a module, for `expand`.
        variables_of: the variables that a module may name, for `expand`.
    """
    for name, configuration in modules.items():
        folder, variables = folder_of(name), variables_of(name)
        try:
            expand(name, configuration, environ=environ, folder=folder, secrets=secrets, variables=variables)
        except ModuleConfigurationError:
            # It cannot start as it is: what stands written in it is a secret all the same.
            for key, text in configuration.env.items():
                secrets.add_env(key, text)
            for key, text in configuration.headers.items():
                secrets.add_header(key, text)
            secrets.add_url("url", configuration.url or "")


def _error(module: str, place: str, why: str) -> ModuleConfigurationError:
    return ModuleConfigurationError(module, f"mcpServers.{module}.{place}: {why}")


def _lookup(inside: str, environ: Mapping[str, str], error: Callable[[str], ModuleConfigurationError]) -> str:
    match = _NAME.fullmatch(inside)
    if match is None or inside in _EDITOR_HINTS:
        kind, _, name = inside.partition(":")
        hint = _EDITOR_HINTS.get(inside) or {
            "env": f"write ${{{name}}}",
            "input": "nobody is asked for values here; set a variable and write ${VAR}",
        }.get(kind, "expected ${VAR} or ${VAR:-default}")
        raise error(f"${{{inside[:80]}}} is not understood: {hint}")
    name, default = match.group(1), match.group(2)
    value = environ.get(name)
    # As in a shell, `:-` also covers a variable that is set to nothing.
    if default is not None and not value:
        return default
    if value is None:
        raise error(f"the variable {name} is not set; set it, or give a default: ${{{name}:-...}}")
    return value
