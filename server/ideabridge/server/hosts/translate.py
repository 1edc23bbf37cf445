"""Translates a server's entry in a host's file into an entry of `mcpServers` in
`ideabridge.json`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from ideabridge.server.hosts.host import HostEnvironment
from ideabridge.tools.encoding import JSON, JSONObject

_VARIABLE: Final = re.compile(r"\$\{([^{}]*)\}")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_NAME: Final = re.compile(r"[^A-Za-z0-9]+")
_VSCODE_ONLY: Final = ("sandboxEnabled", "sandbox", "dev", "gallery")


@dataclass(slots=True)
class Translation:
    """The result of a translation.

    Attributes:
        entry: the entry of `ideabridge.json`.
        notes: hints for the user: variables to set, omitted keys.
        problem: why the server cannot be adopted, or None.
    """

    entry: JSONObject
    notes: list[str] = field(default_factory=list[str])
    problem: str | None = None


def translate_server(
    raw: JSONObject, environment: HostEnvironment, inputs: dict[str, str]
) -> Translation:
    """Translate the entry of one server.

    Args:
        raw: the entry in the host's file.
        environment: the values of variables such as `${workspaceFolder}`.
        inputs: the descriptions of VS Code's `inputs`, keyed by id.
    """
    result = Translation({})
    for key, value in raw.items():
        if key in _VSCODE_ONLY:
            result.notes.append(f"'{key}' is the host's own and was left out")
        elif key == "envFile":
            result.problem = (
                f"reads variables from a file ({value}); name each in 'env' there "
                'first: "TOKEN": "${TOKEN}"'
            )
        elif key == "env" and isinstance(value, dict):
            # In VS Code a null unsets a variable, and numbers are allowed. Here, every variable is
            # a string.
            members: JSONObject = {
                name: _as_text(text) for name, text in value.items() if text is not None
            }
            result.entry[key] = _translated(members, environment, inputs, result.notes)
        else:
            result.entry[key] = _translated(value, environment, inputs, result.notes)

    folder = result.entry.get("cwd")
    if isinstance(folder, str) and not folder.startswith(("/", "~", "${")):
        # The host resolves the path against the project; ideabridge resolves it against the
        # configuration file.
        result.entry["cwd"] = str(environment.project / folder)

    return result


def _as_text(value: JSON) -> JSON:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


def _translated(
    value: JSON, environment: HostEnvironment, inputs: dict[str, str], notes: list[str]
) -> JSON:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _variable(match, environment, inputs, notes), value)
    if isinstance(value, list):
        return [_translated(item, environment, inputs, notes) for item in value]
    if isinstance(value, dict):
        return {key: _translated(item, environment, inputs, notes) for key, item in value.items()}
    return value


def _variable(
    reference: re.Match[str],
    environment: HostEnvironment,
    inputs: dict[str, str],
    notes: list[str],
) -> str:
    """Return the text that replaces a host's reference to a variable or an input."""
    inside = reference.group(1)
    kind, _, name = inside.partition(":")
    if kind == "env" and _PLAIN_NAME.fullmatch(name):
        return f"${{{name}}}"
    if kind == "input" and name:
        variable = _NOT_NAME.sub("_", name).strip("_").upper() or "INPUT"
        if variable[0].isdigit():
            variable = f"INPUT_{variable}"

        label = repr(name)
        if inputs.get(name):
            label += f" ({inputs[name]})"

        note = f"the host asks for {label}: set the variable {variable} instead"
        if note not in notes:
            notes.append(note)

        return f"${{{variable}}}"

    is_windows = environment.platform == "win32"
    match inside:
        case "workspaceFolder" | "workspaceRoot":
            return str(environment.project)
        case "workspaceFolderBasename":
            return environment.project.name
        case "userHome":
            return "${USERPROFILE}" if is_windows else "${HOME}"
        case "pathSeparator" | "/":
            return "\\" if is_windows else "/"
        case _:
            # Any other variable is not changed. The check of ideabridge.json reports it if it is
            # unknown.
            return reference.group()


def is_ourselves(entry: JSONObject) -> bool:
    """Return whether an entry starts ideabridge, which cannot be its own module."""
    words = [entry.get("command")]
    arguments = entry.get("args")
    if isinstance(arguments, list):
        words += arguments

    words = [word for word in words if isinstance(word, str)]
    if "ideabridge.server" in words:
        return True
    return "serve" in words and any(_is_our_name(word) for word in words[: words.index("serve")])


def _is_our_name(word: str) -> bool:
    name = PurePath(word.replace("\\", "/")).name.lower().removesuffix(".exe")
    return re.split(r"[\[@=<>~! ]", name, maxsplit=1)[0] == "ideabridge"
