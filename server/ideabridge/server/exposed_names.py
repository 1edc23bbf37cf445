"""Names of exposed tools: safe in every host, one tool each, and the same whoever comes up first (DESIGN 4.10, 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Final

from ideabridge.tools.names import safe_name
from ideabridge.tools.tool import Tool, ToolKey

MAX_EXPOSED: Final = 60 - len("mcp__ideabridge__")
"""Characters: hosts put a prefix before a name, and cap the whole at 60."""

_MARK: Final = 6
"""Characters of the hash that tells two tools apart whose names would be one when shortened or folded."""


def exposed_names(
    tools: Iterable[Tool], is_taken: Callable[[str, Tool], bool], given: Mapping[ToolKey, str] | None = None
) -> list[str]:
    """A name for each tool, in their order, at most `MAX_EXPOSED` characters of `a-z`, `0-9` and `_`.

    A tool has the name that it was given once. Else it keeps its own where that is safe and nobody else's; else the
    server's name goes before it; else a hash of both follows it. Where two would have the same name neither gets it,
    but that tools of this process go before those of modules: so no name depends on which module came up first.

    Args:
        tools: the tools of this process and of modules.
        is_taken: whether a name cannot be given to a tool, because somebody else has it.
        given: the names that tools were given before, by `Tool.origin`.
    """
    tools = list(tools)
    before = {place: (given or {}).get(tool.origin) for place, tool in enumerate(tools)}
    names: dict[int, str] = {
        place: name for place, name in before.items() if name is not None and not is_taken(name, tools[place])
    }
    taken: set[str] = {*names.values()}
    for ways in (_own, _with_module, _with_hash):
        # The names that are wanted this time, those of this process first.
        for of_module in (False, True):
            wanted = {
                place: name
                for place, tool in enumerate(tools)
                if place not in names and (tool.module is not None) == of_module and (name := ways(tool)) is not None
            }
            count = Counter(wanted.values())
            free = {
                place: name
                for place, name in wanted.items()
                if count[name] == 1 and name not in taken and not is_taken(name, tools[place])
            }
            names.update(free)
            taken.update(free.values())
    for place, tool in enumerate(tools):
        if place not in names:
            names[place] = _numbered(tool, taken, is_taken)
            taken.add(names[place])
    return [names[place] for place in range(len(tools))]


def _own(tool: Tool) -> str | None:
    name = safe_name(tool.name)
    # Nothing of it is a letter or digit that a name may have.
    lost = name == "tool" and "tool" not in tool.name.lower()
    return name if len(name) <= MAX_EXPOSED and not lost else None


def _with_module(tool: Tool) -> str | None:
    if tool.module is None:
        return None
    name = f"{safe_name(tool.module)}_{safe_name(tool.name)}"
    return name if len(name) <= MAX_EXPOSED else None


def _with_hash(tool: Tool) -> str:
    whole = f"{tool.module or ''}\n{tool.remote_name or tool.name}".encode(errors="replace")
    return f"{_cut(tool, _MARK)}_{sha256(whole).hexdigest()[:_MARK]}"


def _cut(tool: Tool, tail: int) -> str:
    return safe_name(tool.name)[: MAX_EXPOSED - tail - 1].rstrip("_")


def _numbered(tool: Tool, taken: set[str], is_taken: Callable[[str, Tool], bool]) -> str:
    """Two tools of one module with one name, or a hash that is taken: the order decides."""
    number = 2
    while (name := f"{_cut(tool, len(str(number)))}_{number}") in taken or is_taken(name, tool):
        number += 1
    return name
