"""Give each tool the same title on all pages. The title comes from the tool's server or file or, if
these give none, is the tool's name in words.

A title from a server is only a claim and could imitate another tool. A title that could be mistaken
for another tool's is not shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from jinja2 import pass_context
from jinja2.runtime import Context

from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.server.ui.readable_names import in_words, readable, run_name, title_in_words
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.names import skeleton, visible
from ideabridge.tools.tool import Tool
from ideabridge.tools.typed import read_as

_LONGEST: Final = 80
"""Maximum length, in characters, of a title. A longer title is cut."""


@dataclass(frozen=True, slots=True)
class ToolTitles:
    """The titles of the tools that a visitor may see.

    Attributes:
        by_server: for each server, the titles of its tools, keyed by name. A tool whose title is
            just its name in words has no entry. The server "" has the titles of the tools that a
            call can name without a server.
    """

    by_server: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])

    @classmethod
    def of_tools(cls, tools: Iterable[Tool]) -> ToolTitles:
        """Return the titles of tools, without titles that could be mistaken for another tool's."""
        listed = list(tools)
        shapes = Counter[tuple[str | None, str]]()
        for tool in listed:
            shapes.update({(tool.module, skeleton(text)) for text in _texts_of(tool)})

        names = Counter(tool.name for tool in listed)
        by_server: dict[str, dict[str, str]] = {}
        for tool in listed:
            title = _title_of(tool)
            is_unique = shapes[tool.module, skeleton(title)] == 1
            if not title or not is_unique:
                continue

            server = by_server.setdefault(tool.module or "", {})
            server[tool.name] = title
            # A call can also name the tool as its server does.
            server.setdefault(tool.name_in_module, title)
            if names[tool.name] == 1:
                by_server.setdefault("", {})[tool.name] = title
        return cls(by_server)

    @classmethod
    def from_json(cls, value: JSON) -> ToolTitles:
        """Read the result of `to_json` in a worker process."""
        return read_as(cls, value)

    def to_json(self) -> JSONObject:
        """Return the members as JSON."""
        return asdict(self)

    def of(self, name: str, server: str | None = None) -> str:
        """Return the title of a tool. Without `server`, return the title of this process's tool
        with this name or, if there is none, of the only tool with this name.
        """
        return self.by_server.get(server or "", {}).get(name) or readable(name)

    def of_tool(self, tool: Tool) -> str:
        """Return the title of a tool."""
        return self.of(tool.name, tool.module)

    def with_server(self, name: str, server: str | None) -> str:
        """Return the title of a tool followed by its server, such as `Add a note of notes`."""
        title = self.of(name, server)
        return f"{title} of {server}" if server else title

    def in_words(self, name: str) -> str:
        """Return the title of a tool for the middle of a sentence."""
        title = self.by_server.get("", {}).get(name)
        if title is None:
            return in_words(name)
        first = title.partition(" ")[0]
        # Leave a word such as `GitHub` as it is.
        return f"{title[:1].lower()}{title[1:]}" if first[1:].islower() else title

    def run_name(self, record: RunRecord) -> str:
        """Return the name of a run for people; see `run_name`."""
        return run_name(record, self.in_words)

    def title_in_words(self, title: str) -> str:
        """Return the title of a run or an idea; see `title_in_words`."""
        return title_in_words(title, self.in_words)


NO_TITLES: Final = ToolTitles()
"""The titles for a reader who can see no tools."""


def _title_of(tool: Tool) -> str:
    """Return the title that a tool declares, or "" if it declares none that a page can show."""
    declared = (tool.annotations.title or "").strip()
    beginning = declared[:_LONGEST]
    if visible(beginning) != beginning:
        return ""
    return declared if len(declared) <= _LONGEST else f"{declared[: _LONGEST - 1]}…"


def _texts_of(tool: Tool) -> list[str]:
    """Return the texts by which people may know a tool, which no other tool of its server can
    imitate with its title.
    """
    return [_title_of(tool), readable(tool.name), tool.name, tool.name_in_module]


# -- filters of templates, which read the titles from the page's values ----------------------------


@pass_context
def _title_of_name(context: Context, name: str, server: str | None = None) -> str:
    return _titles(context).of(name, server)


@pass_context
def _tool_title(context: Context, tool: Tool) -> str:
    return _titles(context).of_tool(tool)


@pass_context
def _run_name(context: Context, record: RunRecord) -> str:
    return _titles(context).run_name(record)


@pass_context
def _title_in_words(context: Context, title: str) -> str:
    return _titles(context).title_in_words(title)


def _titles(context: Context) -> ToolTitles:
    titles: ToolTitles = context["titles"]
    return titles


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "title_of": _title_of_name,
    "tool_title": _tool_title,
    "run_name": _run_name,
    "title_in_words": _title_in_words,
}
