"""Translate the notations for variables in a host's file to the `${VAR}` of `ideabridge.json`.

A host obtains some values in ways that ideabridge cannot: it prompts the user, reads a setting, or
runs a command. Such a value is replaced by a variable, and a note says which variable to set. Text
that a host passes on unchanged is escaped, so that it never refers to one of ideabridge's variables
or secrets by accident.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import Final, Literal

from ideabridge.server.hosts.host import HostEnvironment
from ideabridge.tools.encoding import JSON, JSONObject, objects_in
from ideabridge.tools.json_parts import map_strings, part_at

Notation = Literal["braces", "dollar", "curly", "shell"]
"""A notation that only some hosts support. `braces`: `${X}`, perhaps with a default. `dollar`:
`$X`. `curly`: `{env:X}` and `{file:X}`. `shell`: `$(COMMAND)`, which ideabridge never runs.
"""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WITH_DEFAULT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(:-[^{}]*)?", re.DOTALL)
_CAMEL_CASE: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NOT_NAME: Final = re.compile(r"[^A-Za-z0-9]+")
_REFERENCE: Final = re.compile(
    r"\$\{\{\s*(?:secrets|inputs)\.(?P<block>[^{}]*?)\s*\}\}"
    r"|\$\{(?P<inside>[^{}]*)\}"
    r"|\{(?P<curly>(?:env|file):[^{}]*)\}"
    r"|\$(?P<dollar>[A-Za-z_][A-Za-z0-9_]*)"
)

_TAKEN_NAMES: Final = frozenset(
    {
        "APPDATA",
        "COMSPEC",
        "DISPLAY",
        "EDITOR",
        "HOME",
        "HOMEDRIVE",
        "HOMEPATH",
        "HOST",
        "HOSTNAME",
        "LANG",
        "LANGUAGE",
        "LOCALAPPDATA",
        "LOGNAME",
        "OLDPWD",
        "OS",
        "PATH",
        "PATHEXT",
        "PORT",
        "PWD",
        "SHELL",
        "SYSTEMROOT",
        "TEMP",
        "TERM",
        "TMP",
        "TMPDIR",
        "TZ",
        "USER",
        "USERNAME",
        "USERPROFILE",
        "VISUAL",
        "WINDIR",
    }
)
_TAKEN_STARTS: Final = ("DYLD_", "IDEABRIDGE_", "LC_", "LD_", "NODE_", "PYTHON", "XDG_")
"""Names, and prefixes of names, of variables that have a meaning for every program. No value from a
host gets such a name: `${input:path}` is not `${PATH}`.
"""


@dataclass(frozen=True, slots=True)
class Input:
    """A value that the host prompts the user for.

    Attributes:
        prompt: the text that the host shows.
        default: the value that the host suggests, or "" if it suggests none.
    """

    prompt: str = ""
    default: str = ""


def read_host_inputs(content: JSONObject, keys: tuple[str, ...] = ()) -> dict[str, Input]:
    """Return the `inputs` in a host's file, keyed by id. Default passwords are omitted.

    Args:
        content: the content of the file.
        keys: the keys that lead to the servers. The inputs are in the object that contains the
            servers, or at the top level of the file.
    """
    beside = part_at(content, (*keys[:-1], "inputs"))
    listed = beside if isinstance(beside, list) else content.get("inputs")
    inputs: dict[str, Input] = {}
    for entry in objects_in(listed):
        if not isinstance(entry.get("id"), str):
            continue

        default = entry.get("default")
        is_usable = isinstance(default, str | int | float) and not isinstance(default, bool)
        text = str(default) if is_usable and not entry.get("password") else ""
        inputs[str(entry["id"])] = Input(
            prompt=str(entry.get("description") or ""),
            default="" if re.search(r"[{}\0]", text) else text,
        )

    return inputs


@dataclass(slots=True)
class HostVariables:
    """Translates the strings in one entry.

    Attributes:
        title: the name of the host in notes.
        notations: the notations that the host supports besides those with a kind, such as
            `${env:X}`.
        project_names: the variables that the host sets to the project folder.
        environment: the folders that the variables of editors stand for.
        inputs: the values that the host asks for, keyed by id.
        notes: notes for the user about the translation.
    """

    title: str
    notations: frozenset[Notation]
    project_names: frozenset[str]
    environment: HostEnvironment
    inputs: Mapping[str, Input]
    notes: list[str] = field(default_factory=list[str])

    def translated(self, value: JSON, *, is_argument: bool = False) -> JSON:
        """Translate every string in a value.

        Args:
            value: the value to translate.
            is_argument: whether the value is an argument of a program, which might itself expand a
                `${X}` that the host passes on.
        """
        return map_strings(value, partial(self.text, is_argument=is_argument))

    def text(self, text: str, *, is_argument: bool = False) -> str:
        """Translate one string."""

        def replacement(match: re.Match[str]) -> str:
            if match["block"] is not None:
                return self._named("secret", match["block"])
            if match["inside"] is not None:
                return self._braces(match["inside"].strip(), match[0], is_argument=is_argument)
            if match["curly"] is not None:
                return self._curly(match["curly"], match[0])
            return f"${{{match['dollar']}}}" if "dollar" in self.notations else match[0]

        return _REFERENCE.sub(replacement, text)

    def _curly(self, inside: str, written: str) -> str:
        if "curly" not in self.notations:
            return written
        kind, _, name = inside.partition(":")
        return self._named(kind, name)

    def _braces(self, inside: str, written: str, *, is_argument: bool) -> str:
        plain = _WITH_DEFAULT.fullmatch(inside)
        known = self._editor_value(inside)
        if known is not None:
            return known
        if plain is None:
            kind, has_kind, name = inside.partition(":")
            if has_kind and name and kind in _KINDS and kind != "secret":
                return self._named(kind, name)
            return self._passed_on(written)
        if "braces" not in self.notations:
            if is_argument:
                return self._passed_on(written)
            self._note(
                f"{written} is a variable in ideabridge; {self.title} passes it on unchanged"
            )

        return f"${{{inside}}}"

    def _passed_on(self, written: str) -> str:
        """Escape a string so that the server receives it unchanged."""
        return f"${written}"

    def _editor_value(self, inside: str) -> str | None:
        """Return the replacement for an editor's variable without a kind, such as
        `${workspaceFolder}`, or None for any other variable.
        """
        is_windows = self.environment.platform == "win32"
        match inside:
            case "workspaceFolder" | "workspaceRoot" | "cwd":
                return as_written(str(self.environment.project))
            case "workspaceFolderBasename":
                return as_written(self.environment.project.name)
            case "userHome":
                return "${USERPROFILE}" if is_windows else "${HOME}"
            case "pathSeparator" | "/":
                return "\\" if is_windows else "/"
            case _ if inside in self.project_names:
                return as_written(str(self.environment.project))
            case _:
                return None

    def _named(self, kind: str, name: str) -> str:
        """Return the replacement for a variable with a kind, such as `env:X` or `input:x`."""
        if kind in ("env", "secret") and _WITH_DEFAULT.fullmatch(name):
            if kind == "secret":
                self._note(f"{self.title} keeps the secret {name!r}: set the variable {name}")
            return f"${{{name}}}"

        if kind.startswith("workspaceFolder") and name == self.environment.project.name:
            return as_written(str(self.environment.project))

        given = self.inputs.get(name, Input()) if kind == "input" else Input()
        prompt = f" ({given.prompt})" if given.prompt else ""
        variable = _variable_name(kind, name)
        what = _KINDS[kind].format(name=repr(name))
        note = f"{self.title} {what}{prompt}: set the variable {variable} instead"
        if given.default:
            note += f"; without it, {given.default!r} is used"

        self._note(note)
        default = f":-{given.default}" if given.default else ""
        return f"${{{variable}{default}}}"

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


_KINDS: Final = {
    "env": "reads the variable {name}",
    "secret": "keeps the secret {name}",
    "input": "asks for {name}",
    "config": "fills in its setting {name}",
    "command": "runs its command {name} for a value",
    "workspaceFolder": "fills in the folder {name} of its workspace",
    "workspaceFolderBasename": "fills in the folder {name} of its workspace",
    "file": "reads a value from the file {name}",
}
"""How the host obtains each kind of value."""


def as_written(text: str) -> str:
    """Escape a string for `ideabridge.json` so that no part of it is read as a variable."""
    return text.replace("${", "$${")


def _variable_name(kind: str, name: str) -> str:
    """Return the name of the variable that replaces a value that only the host can obtain."""
    if kind == "file":
        name = PurePath(name.replace("\\", "/")).name

    prefix = {"config": "config_", "command": "command_"}.get(kind, "")
    if kind.startswith("workspaceFolder"):
        prefix = "workspace_folder_"

    words = _CAMEL_CASE.sub("_", f"{prefix}{name}")
    variable = _NOT_NAME.sub("_", words).strip("_").upper()
    is_taken = variable in _TAKEN_NAMES or variable.startswith(_TAKEN_STARTS)
    if not variable or variable[0].isdigit() or is_taken:
        variable = f"INPUT_{variable}".rstrip("_")

    return variable
