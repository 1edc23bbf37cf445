"""Decide what a running bridge does when its configuration files change.

`change_between` compares two configurations. It does not start or stop anything. For each server it
decides:

    keep      its entry, its folders and its variables are the same, so its process stays
    adjust    only settings of its calls differ (`timeout`, `retry`, ...), so its process stays
    start     only the new configuration has it, or it was disabled
    stop      only the old configuration has it, or it is now disabled
    replace   anything else differs, or a stored secret has another value: a new process starts,
              and running calls end on the old process
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, Literal

from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.modules.settings import ModuleConfiguration, entry_digest

_ADJUSTABLE: Final = (
    "timeout",
    "connect_timeout",
    "order",
    "read_only",
    "tools",
    "retry",
    "record",
    "start",
    "idle",
)
"""Keys in a server's entry that are read for each call or connection, or while the server is
idle.
"""

AT_NEXT_START: Final = (
    "store",
    "durability",
    "auth",
    "users",
    "profiles",
    "retention",
    "model",
    "sampling",
)
"""Top-level keys that a running process does not change. They define who is allowed to use the
server, where the server stores its data, and which model it asks.
"""

_LIMITS_AT_NEXT_START: Final = ("result_bytes", "run_bytes")
"""The members of `limits` that are part of every connection and every run in memory."""

_AT_ONCE: Final = (
    "approval",
    "order",
    "limits",
    "thought_process",
    "shown",
    "programs",
    "program_mind",
    "own_tools",
    "schemas",
    "expose",
    "sessions",
    "listed_ideas",
    "notify",
)
"""Top-level keys whose new values apply to everything that starts after the change."""

Step = Literal["keep", "adjust", "start", "stop", "replace"]


@dataclass(frozen=True, slots=True)
class ConfigurationChange:
    """The differences between two configurations.

    Attributes:
        servers: the step for each server that either of the configurations contains. The steps are
            keyed by name, in the order of the new configuration.
        tool_files: the absolute paths of the tool files that only one of the configurations names.
        settings: the top-level keys whose new values apply to everything that begins from now on.
        at_next_start: the top-level keys whose new values apply after the next start.
        switched: the names of the servers that start or stop because they were turned on or
            off: both configurations contain them.
    """

    servers: dict[str, Step]
    tool_files: tuple[str, ...]
    settings: tuple[str, ...]
    at_next_start: tuple[str, ...]
    switched: frozenset[str]

    @property
    def is_empty(self) -> bool:
        """True if there are no differences."""
        steps = set(self.servers.values()) - {"keep"}
        return not (steps or self.tool_files or self.settings or self.at_next_start)

    def servers_to(self, *steps: Step) -> list[str]:
        """Return the names of the servers with one of these steps."""
        return [name for name, step in self.servers.items() if step in steps]

    def lines(self) -> list[str]:
        """Return a human-readable line for each difference. Apart from names and paths, the lines
        contain no values from the files.
        """
        past = {"start": "added", "stop": "removed", "replace": "replaced", "adjust": "adjusted"}
        switched = {"start": "turned on", "stop": "turned off"}
        lines: list[str] = []
        for name, step in self.servers.items():
            words = switched if name in self.switched else past
            if step in words:
                lines.append(f"server {name}: {words[step]}")

        lines += [f"tool file {path}" for path in self.tool_files]
        lines += [f"{key}: applies from now on" for key in self.settings]
        lines += [f"{key}: applies after the next start" for key in self.at_next_start]
        return lines


def change_between(
    before: Configuration, now: Configuration, renewed: Collection[str] = ()
) -> ConfigurationChange:
    """Return the changes from the configuration in force to a new configuration.

    Args:
        before: the configuration in force.
        now: the new configuration.
        renewed: the servers that need a new process even if their entries are the same.
    """
    names = dict.fromkeys([*now.modules, *before.modules])
    servers: dict[str, Step] = {}
    for name in names:
        step = _step_of(name, before, now)
        entry = now.modules.get(name)
        stays = step in ("keep", "adjust") and entry is not None and not entry.disabled
        servers[name] = "replace" if stays and name in renewed else step

    files = set(before.tools) ^ set(now.tools)
    settings = [key for key in _AT_ONCE if _differs(key, before, now)]
    at_next_start = [key for key in AT_NEXT_START if getattr(before, key) != getattr(now, key)]
    at_next_start += [
        f"limits.{key}"
        for key in _LIMITS_AT_NEXT_START
        if getattr(before.limits, key) != getattr(now.limits, key)
    ]
    return ConfigurationChange(
        servers,
        tuple(file for file in dict.fromkeys([*before.tools, *now.tools]) if file in files),
        tuple(settings),
        tuple(at_next_start),
        frozenset(
            name
            for name, step in servers.items()
            if step in ("start", "stop") and name in before.modules and name in now.modules
        ),
    )


def applicable(before: Configuration, now: Configuration) -> Configuration:
    """Return the new configuration, in which the settings that a running process cannot change keep
    their old values.
    """
    unchanged: dict[str, Any] = {key: getattr(before, key) for key in AT_NEXT_START}
    limits = {key: getattr(before.limits, key) for key in _LIMITS_AT_NEXT_START}
    return now.model_copy(
        update={
            **unchanged,
            "limits": now.limits.model_copy(update=limits),
            "embedded": before.embedded,
            "restricted_to": before.restricted_to,
        }
    )


def _differs(key: str, before: Configuration, now: Configuration) -> bool:
    if key == "approval":
        return before.approval_setting != now.approval_setting
    if key == "limits":
        return _limits_of_runs(before) != _limits_of_runs(now)
    if key == "expose":
        return (before.expose, before.unexposed) != (now.expose, now.unexposed)
    return getattr(before, key) != getattr(now, key)


def _limits_of_runs(configuration: Configuration) -> dict[str, Any]:
    return configuration.limits.model_dump(exclude={*_LIMITS_AT_NEXT_START})


def _step_of(name: str, before: Configuration, now: Configuration) -> Step:
    old = before.modules.get(name)
    new = now.modules.get(name)
    is_old = old is not None and not old.disabled
    is_new = new is not None and not new.disabled
    if old is None or new is None or not is_old or not is_new:
        if is_old:
            return "stop"
        return "start" if is_new else "keep"

    if _surroundings(name, before) != _surroundings(name, now):
        return "replace"
    if _process_of(old) != _process_of(new):
        return "replace"
    if entry_digest(old) != entry_digest(new):
        # A tool's default names a different secret, or the same secret in a different place.
        return "replace"
    return "keep" if old == new else "adjust"


def _process_of(entry: ModuleConfiguration) -> ModuleConfiguration:
    """Return a copy of an entry in which all settings that do not affect its process have their
    defaults.
    """
    fields = ModuleConfiguration.model_fields
    defaults = {key: fields[key].get_default(call_default_factory=True) for key in _ADJUSTABLE}
    return entry.model_copy(update=defaults)


def _surroundings(name: str, configuration: Configuration) -> tuple[object, ...]:
    """Return everything outside a server's entry that the server's process depends on."""
    return (
        configuration.folder_of(name),
        configuration.working_folder_of(name),
        _named_variables(name, configuration),
        configuration.secret_owner_of(name),
        configuration.log_file_of(name),
        configuration.exposes(name),
        configuration.unusable.get(name),
    )


def _named_variables(name: str, configuration: Configuration) -> frozenset[str] | None:
    """Return the variables that a server's entry names and is allowed to use. Return None if the
    entry is allowed to use all variables.
    """
    variables = configuration.variables_of(name)
    if variables is None:
        return None
    text = configuration.modules[name].model_dump_json()
    return frozenset(variable for variable in variables.names if f"${{{variable}" in text)
