"""Find mentions of a server in hosts' rules about tools.

Once the server is removed from the host, these rules have no effect, because the server's tools
have other names in ideabridge. This module only searches the hosts' files for the names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from ideabridge.bridge.trust import TrustError, read_plain
from ideabridge.server.hosts.host import HostEnvironment
from ideabridge.server.hosts.table import Host, Place
from ideabridge.tools.names import visible

_MAX_BYTES: Final = 4 * 1024 * 1024
_MOST_FILES: Final = 500
_MOST_SHOWN: Final = 3
_MOST_WORD: Final = 200
"""Maximum number of characters shown from a rule. A repository can contain the file."""


@dataclass(frozen=True, slots=True)
class _Habits:
    """A host's files that name servers.

    Attributes:
        paths: the paths of the files, as in `Place`.
        pattern: matches a mention of a server. `{name}` stands for the name of the server.
        variable: see `Place`.
    """

    paths: tuple[str, ...]
    pattern: str
    variable: str = ""


_CLAUDE: Final = r"\bmcp__{name}(?:__[\w*.-]+|\b)"

_HABITS: Final[dict[str, tuple[_Habits, ...]]] = {
    "claude-code": (
        _Habits(
            ("{home}/.claude/settings.json", "{home}/.claude/settings.local.json"),
            _CLAUDE,
            "CLAUDE_CONFIG_DIR",
        ),
        _Habits(
            tuple(
                f"{folder}/.claude/{rest}"
                for folder in ("{home}", "{project}")
                for rest in ("settings.json", "settings.local.json", "agents/*.md", "commands/*.md")
            ),
            _CLAUDE,
        ),
    ),
    "cursor": (
        _Habits(
            ("{home}/.cursor/cli-config.json", "{project}/.cursor/cli.json"),
            r"\bMcp\({name}:[^)]*\)",
        ),
        _Habits(("{home}/.cursor/permissions.json",), r"(?<=\"){name}:[^\"]*"),
    ),
    "copilot-cli": (
        _Habits(
            ("{home}/.copilot/permissions-config.json",),
            r"(?<=\"serverName\": \"){name}(?=\")",
        ),
    ),
    "gemini-cli": (
        _Habits(("{home}/.gemini/policies/*.toml",), r"(?<=mcpName = \"){name}(?=\")"),
        _Habits(("{home}/.gemini/settings.json",), r"\bmcp_{name}_\w+"),
    ),
    "opencode": (
        _Habits(
            (
                "{config}/opencode/opencode.json",
                "{config}/opencode/opencode.jsonc",
                "{project}/opencode.json",
            ),
            r"(?<=\"){name}_[\w*]+(?=\"\s*:)",
        ),
    ),
    "zed": (_Habits(("{config}/zed/settings.json",), r"\bmcp:{name}:[\w*-]+"),),
    "kiro": (_Habits(("{home}/.kiro/agents/*.json",), r"@{name}(?:/[\w*-]+|\b)"),),
    "amazon-q": (_Habits(("{home}/.aws/amazonq/cli-agents/*.json",), r"@{name}(?:/[\w*-]+|\b)"),),
}
"""The rules about servers, according to the hosts' documentation."""


@dataclass(frozen=True, slots=True)
class Habit:
    """A host's file that names a server.

    Attributes:
        host: the title of the host.
        server: the name of the server in the host.
        path: the file.
        words: the first few distinct words that name the server.
        count: the number of distinct words that name the server.
    """

    host: str
    server: str
    path: Path
    words: tuple[str, ...]
    count: int

    @property
    def shown(self) -> str:
        """The words as text for users."""
        more = "" if self.count <= len(self.words) else f" and {self.count - len(self.words)} more"
        return f"{', '.join(self.words)}{more}"


def find_habits(host: Host, environment: HostEnvironment, names: Collection[str]) -> list[Habit]:
    """Return a host's files that name servers. Unreadable files are omitted, because the host
    cannot use them either.

    Args:
        host: the host.
        environment: the folders and variables that locate the host's files.
        names: the names of the servers in the host.
    """
    habits = [
        habit
        for habits in _HABITS.get(host.name, ())
        for path in _files(habits, environment)
        for habit in _habits_in(path, host, habits.pattern, names)
    ]
    return list(dict.fromkeys(habits))


def _files(habits: _Habits, environment: HostEnvironment) -> Iterator[Path]:
    for path in habits.paths:
        place = Place("user", path, variable=habits.variable)
        yield from (file.path for file in islice(place.files(environment), _MOST_FILES))


def _habits_in(path: Path, host: Host, pattern: str, names: Collection[str]) -> Iterator[Habit]:
    try:
        text = read_plain(path, _MAX_BYTES).decode("utf-8-sig")
    except (OSError, TrustError, UnicodeDecodeError):
        return

    for name in names:
        expression = pattern.replace("{name}", re.escape(_in_rules(name)))
        words = list(
            dict.fromkeys(visible(word[:_MOST_WORD]) for word in re.findall(expression, text))
        )
        if words:
            yield Habit(host.title, name, path, tuple(words[:_MOST_SHOWN]), len(words))


def _in_rules(name: str) -> str:
    """Return the name of a server as it appears in the names of its tools."""
    return re.sub(r"[^\w-]", "_", name)
