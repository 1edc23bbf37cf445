"""Find the servers that a host does not start because one of its files refuses them by name,
command or address, outside their entries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ideabridge.server.hosts.host import HostEnvironment, HostFile, Scope
from ideabridge.server.hosts.table import Host, HostRefusal
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty, object_or_empty
from ideabridge.tools.json_parts import part_at

_MAX_PATTERN = 200
"""Maximum length of a pattern; a longer one matches nothing."""


@dataclass(frozen=True, slots=True)
class _List:
    """The servers and tools that one file refuses."""

    refusal: HostRefusal
    path: str
    content: JSON


@dataclass(slots=True)
class Refused:
    """What a host's files refuse about a server.

    Attributes:
        is_off: whether the host does not start the server.
        denied_tools: patterns of tools that the host does not offer.
        notes: hints for the user.
    """

    is_off: bool = False
    denied_tools: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])


class HostRefusals:
    """A host's refusals on one machine.

    Args:
        host: the host.
        environment: the folders and variables that locate the host's files.
        content_of: returns the content of a file, or its valid parts.
    """

    def __init__(
        self,
        host: Host,
        environment: HostEnvironment,
        content_of: Callable[[HostFile], JSONObject],
    ) -> None:
        self._title = host.title
        self._lists = list(_read(host, environment, content_of))

    def of(self, name: str, scope: Scope, entry: JSONObject) -> Refused:
        """Return what the host refuses about the given server.

        Args:
            name: the name of the server in the host.
            scope: who uses the server.
            entry: the entry of the server in `ideabridge.json`.
        """
        result = Refused()
        for refusal_list in self._lists:
            refusal = refusal_list.refusal
            if refusal.of and scope not in refusal.of:
                continue

            is_here_alone = scope == "user" and refusal.scope != "user"
            if not is_here_alone:
                result.denied_tools += _denied_tools(refusal_list, name)
            if not _refuses(refusal_list, name, entry):
                continue

            if is_here_alone:
                result.notes.append(
                    f"{self._title} does not start it in this project ({refusal_list.path})"
                )
            else:
                result.is_off = True
                result.notes.append(
                    f"{refusal_list.path} refuses it, so it is imported as disabled"
                )

        return result


def _read(
    host: Host, environment: HostEnvironment, content_of: Callable[[HostFile], JSONObject]
) -> Iterator[_List]:
    for refusal in host.refusals:
        file = refusal.file(environment)
        content = part_at(content_of(file), file.keys)
        if isinstance(content, list | dict):
            yield _List(refusal, str(file.path), content)


def _refuses(refusal_list: _List, name: str, entry: JSONObject) -> bool:
    items = list_or_empty(refusal_list.content)
    match refusal_list.refusal.kind:
        case "denied":
            return any(isinstance(item, dict) and _denies(item, name, entry) for item in items)
        case "only":
            return bool(items) and not _is_named(items, name)
        case "rules":
            return not {"", "*"}.isdisjoint(_tools_of_rules(items, name))
        case "tools":
            return any(
                pattern != "*" and pattern.endswith("*") and _matches(f"{name}_", pattern)
                for pattern in _tools_turned_off(refusal_list)
            )
        case _:
            return _is_named(items, name)


def _is_named(items: list[JSON], name: str) -> bool:
    return any(isinstance(item, str) and _matches(name, item) for item in items)


def _denies(item: JSONObject, name: str, entry: JSONObject) -> bool:
    if item.get("serverName") == name:
        return True

    words = item.get("serverCommand")
    if isinstance(words, list) and words:
        arguments = entry.get("args")
        return words == [entry.get("command"), *list_or_empty(arguments)]

    pattern = item.get("serverUrl")
    url = entry.get("url")
    if isinstance(pattern, str) and isinstance(url, str):
        return _matches(_with_lower_host(url), _with_lower_host(pattern))
    return False


def _tools_turned_off(refusal_list: _List) -> Iterator[str]:
    """Yield the patterns that turn tools off. They are matched against `SERVER_TOOL`."""
    patterns = object_or_empty(refusal_list.content)
    yield from (pattern for pattern, value in patterns.items() if value is False)


def _tools_of_rules(items: list[JSON], name: str) -> list[str]:
    """Return the server's tools that appear in rules such as `mcp__SERVER__TOOL`. A rule about the
    whole server yields "" as the tool.
    """
    # In its rules, the host replaces all other characters in the server's name with `_`.
    server = "mcp__" + re.sub(r"[^A-Za-z0-9_-]", "_", name)
    tools: list[str] = []
    for item in items:
        if item == server:
            tools.append("")
        elif isinstance(item, str) and item.startswith(f"{server}__"):
            tools.append(item.removeprefix(f"{server}__"))

    return tools


def _denied_tools(refusal_list: _List, name: str) -> list[str]:
    if refusal_list.refusal.kind == "rules":
        items = list_or_empty(refusal_list.content)
        return [tool for tool in _tools_of_rules(items, name) if tool not in ("", "*")]
    if refusal_list.refusal.kind != "tools":
        return []

    start = f"{name}_"
    patterns = [pattern for pattern in _tools_turned_off(refusal_list) if pattern.startswith(start)]
    return [pattern.removeprefix(start) for pattern in patterns if pattern != f"{start}*"]


def _matches(text: str, pattern: str) -> bool:
    """Return whether a string matches a pattern with `*` and `?`."""
    plain = pattern.replace("[", "[[]")
    return len(pattern) <= _MAX_PATTERN and fnmatchcase(text[:2000], plain)


def _with_lower_host(url: str) -> str:
    return re.sub(r"^[^/]*//[^/]*", lambda match: match.group().lower(), url)
