"""The tools that a run can call, with the validators of their parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from typing import Final

from ideabridge.bridge.context.references import escaped, quoted
from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.tools.changed import real_call
from ideabridge.tools.compose import admit_references
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty, object_or_empty, objects_in
from ideabridge.tools.errors import UnknownToolError
from ideabridge.tools.names import did_you_mean, skeleton
from ideabridge.tools.rename import ParameterNames
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import ANONYMOUS, IDEA, QUERY_FORMAT, Tool, ToolKey, is_idea

MAX_QUALIFIED: Final = 300
"""The number of characters at the beginning of a name that are searched for the name of a
server.
"""


class Catalogue:
    """The tools of a run, keyed by `_tool` and `_module`. A catalogue is immutable.

    A tool that the user's configuration changes (`Tool.is_changed`) is listed as the configuration
    shows it, but a look-up returns the tool as the server lists it. `as_real` turns a call to the
    changed tool into a call to the real tool.

    Args:
        tools: the tools. If two tools have the same name and server, the later one is used.
        latent: the keys of the tools without an activity, for which the mind writes `_output`.
        missing: a sentence about servers that are not connected. The error for an unknown tool or
            server ends with it.
        unlisted: tools that calls can name, but that are not shown to anyone.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        latent: Iterable[ToolKey] = (),
        missing: str = "",
        unlisted: Iterable[Tool] = (),
    ) -> None:
        self.missing = missing
        self.latent = frozenset(latent)
        self._listed: dict[ToolKey, Tool] = {tool.key: tool for tool in tools}
        self._unlisted = tuple(unlisted)

        own: list[Tool] = []
        passing: list[Tool] = []
        for tool in self._listed.values():
            if tool.passes_to is None:
                own.append(tool)
            else:
                passing.append(tool)

        real_tools = [tool.real for tool in passing if tool.is_changed]
        unshown = [*real_tools, *self._unlisted]

        # If several tools have the same origin, the last one counts. Tools that only forward their
        # calls come first, so that they never replace the tool that receives the calls.
        by_origin = [*passing, *unshown, *own]
        self._by_origin: dict[ToolKey, Tool] = {tool.origin: tool for tool in by_origin}
        self._by_key: dict[ToolKey, Tool] = dict(self._listed)
        self._by_name: dict[str, list[Tool]] = {}
        self._index_listed([*own, *passing])
        self._index_unshown(unshown)

        self._json: tuple[list[JSON], list[JSON]] | None = None
        self._exact: dict[ToolKey, Validator] = {}
        self._admitted: dict[ToolKey, Validator] = {}
        self._names: dict[ToolKey, ParameterNames] = {}
        self._queries: dict[ToolKey, tuple[str, ...]] = {}

    def _index_listed(self, tools: list[Tool]) -> None:
        """Index the listed tools by their names."""
        for tool in tools:
            self._by_name.setdefault(tool.name, []).append(tool)
            if tool.remote_name is not None and tool.module is not None:
                # A call that has `_module` can use the server's own name for the tool.
                self._by_key.setdefault((tool.module, tool.remote_name), tool)

    def _index_unshown(self, tools: list[Tool]) -> None:
        """Index the unlisted tools, which calls can name although they are not shown to anyone.

        The listed tools take precedence, because they are indexed first.
        """
        shown_names = frozenset(self._by_name)
        for tool in tools:
            self._by_key.setdefault(tool.key, tool)
            self._by_key.setdefault(tool.origin, tool)
            if tool.name not in shown_names:
                self._by_name.setdefault(tool.name, []).append(tool)

    @property
    def tools(self) -> list[Tool]:
        """The tools without duplicates, in the order given to the constructor."""
        return [*self._listed.values()]

    def find(self, name: str, module: str | None, *, briefly: bool = False) -> Tool:
        """Return the tool that a call names.

        Args:
            name: the call's `_tool`.
            module: the call's `_module`, which can be None if only one tool has the name.
            briefly: whether to omit the nearest names from the error.

        Raises:
            UnknownToolError: no tool, or more than one tool, has the name. The message suggests the
                nearest names.
        """
        tool = self._only(name, module)
        if tool is not None:
            return tool.real

        if module is None:
            message = self._why_not_one(name, briefly=briefly)
        else:
            message = self._why_not_in(module, name, briefly=briefly)
        raise UnknownToolError(message)

    def look_up(self, call: WrittenCall) -> Tool | None:
        """Return the tool that a call names, or None if it is unknown."""
        tool = self._only(call.tool, call.module)
        if tool is None:
            return None
        return tool.real

    def changed(self, call: WrittenCall) -> Tool | None:
        """Return the changed tool that a call names, or None if its tool is not changed."""
        tool = self._only(call.tool, call.module)
        if tool is None or not tool.is_changed:
            return None
        return tool

    def as_real(self, call: JSONObject) -> JSONObject:
        """Turn a call to a changed tool into a call to the real tool, with the server's name for
        the tool and with the defaults filled in.

        Defaults are never references. Any other call is returned unchanged.
        """
        tool = self.changed(WrittenCall.of(call))
        if tool is None:
            return call
        defaults = object_or_empty(escaped(tool.defaults))
        return real_call(call, tool, defaults)

    def _only(self, name: str, module: str | None) -> Tool | None:
        """Return the only tool that these names can refer to, or None if no tool or more than one
        matches.
        """
        tool = self._by_key.get((module, name))
        if tool is None and module == ANONYMOUS:
            # A clean room has the same tools as the run that it belongs to.
            tool = self._by_key.get((None, name))

        if tool is not None:
            return tool
        if is_idea(module):
            return None

        candidates = self._candidates(name, module)
        if len(candidates) != 1:
            return None
        return candidates[0]

    def _candidates(self, name: str, module: str | None) -> list[Tool]:
        """Return the tools that a name and a server could refer to even if they are not a tool's
        key.
        """
        namesakes = self._by_name.get(name)
        if namesakes is None:
            return self._qualified(name, module)
        if module is not None:
            return []

        # If an idea and a tool share a name, the name refers to the tool, and the idea can be
        # reached with `_module`.
        not_ideas = [tool for tool in namesakes if not is_idea(tool.module)]
        return not_ideas or namesakes

    def _why_not_in(self, module: str, name: str, *, briefly: bool) -> str:
        """Return a sentence that explains why a server has no tool named `name`."""
        if module.startswith(IDEA):
            return _no_idea(module, name, self._names_in(module))

        if module == ANONYMOUS:
            # A clean room has the same tools as the run that it belongs to.
            hint = self._hint(name, self._names_in(None, ANONYMOUS), briefly=briefly)
            return f"a clean room has no tool {quoted(name)}.{hint}"

        server_names = [tool.name for tool in self._listed.values() if tool.module == module]
        if server_names:
            hint = self._hint(name, server_names, briefly=briefly)
            return f"server {quoted(module)} has no tool {quoted(name)}.{hint}"

        modules = {tool.module for tool in self._by_key.values() if tool.module is not None}
        hint = self._hint(module, sorted(modules), briefly=briefly)
        return f"unknown server {quoted(module)}.{hint}{self.missing}"

    def _names_in(self, *modules: str | None) -> list[str]:
        """Return the names that calls can use for the tools of these servers."""
        return [name for module, name in self._by_key if module in modules]

    def _why_not_one(self, name: str, *, briefly: bool) -> str:
        """Return a sentence that explains why a name without a server does not identify exactly one
        tool.
        """
        namesakes = self._by_name.get(name)
        if namesakes:
            return _several(name, [tool.module for tool in namesakes])
        if briefly:
            return f"unknown tool {quoted(name)}.{self.missing}"

        # Tools are not always offered under the name that they have in their server.
        looks = skeleton(name[:MAX_QUALIFIED])
        alike = [tool for tool in self._by_key.values() if skeleton(_own_name(tool)) == looks]
        modules = {str(tool.module) for tool in alike if _own_name(tool) == name}
        if len(modules) > 1:
            return _several(name, sorted(modules))

        candidates = list(self._by_name)
        alike_keys = {tool.key for tool in alike}
        if len(alike_keys) == 1:
            # The only tool that looks like `name` may be offered under another name, because a tool
            # that is missing now has its own name. Do not suggest that other name.
            misleading = {tool.name for tool in alike if tool.name != _own_name(tool)}
            candidates = [other for other in candidates if other not in misleading]

        hint = self._hint(name, candidates)
        return f"unknown tool {quoted(name)}.{hint}{self.missing}"

    def _hint(self, name: str, candidates: Iterable[str], *, briefly: bool = False) -> str:
        """Return the end of an error message, which lists the known names closest to `name`."""
        if briefly:
            return ""
        own_names = {tool.name: _own_name(tool) for tool in self._by_key.values()}
        return did_you_mean(name, candidates, own_names)

    def beside(self, tool: Tool) -> str:
        """Return a hint about how to call an idea with the same name as a tool, or "" if there is
        none.
        """
        if is_idea(tool.module):
            return ""

        namesakes = self._by_name.get(tool.name, ())
        ideas = [namesake for namesake in namesakes if is_idea(namesake.module)]
        if not ideas:
            return ""
        return (
            f"; to call the published idea {quoted(tool.name)}, write "
            f'"_module": "{ideas[0].module}"'
        )

    def _qualified(self, name: str, module: str | None) -> list[Tool]:
        """Return the tools that `module.tool` or `module/tool`, as shown in lists of tools, could
        refer to.
        """
        tools: dict[ToolKey, Tool] = {}
        for position, character in enumerate(name[:MAX_QUALIFIED]):
            if character not in "./":
                continue

            named_module = name[:position]
            if module is not None and module != named_module:
                continue

            tool = self._by_key.get((named_module, name[position + 1 :]))
            if tool is not None:
                tools[tool.key] = tool

        return list(tools.values())

    def same(self, tool: Tool) -> Tool | None:
        """Return the tool in this catalogue that has the same server, and the same name on the
        server, as `tool`. Return None if there is none. The tool's name in this catalogue can be
        different.
        """
        same = self._by_origin.get(tool.origin)
        if same is None:
            return None
        return same.real

    def get(self, key: ToolKey) -> Tool | None:
        """Return the tool with this key, or None if there is none.

        The key is a server (None for this process) and the name of a tool, either in the catalogue
        or on the server.
        """
        tool = self._by_origin.get(key) or self._by_key.get(key)
        if tool is None:
            return None
        return tool.real

    def used_by(self, calls: Iterable[WrittenCall], more: Iterable[Tool] = ()) -> Catalogue:
        """Return a catalogue of the tools that the calls name, plus `more`: the tools that a plan's
        journal needs. Unknown tools are skipped, because checking the plan reports them.
        """
        called: list[Tool | None] = []
        activities: list[Tool | None] = []
        for call in calls:
            called.append(self._only(call.tool, call.module))
            if call.activity is not None:
                activities.append(self.get((None, call.activity)))

        tools: dict[ToolKey, Tool] = {}
        for tool in [*called, *activities, *more]:
            if tool is not None:
                tools[tool.key] = tool

        latent = self.latent.intersection(tools)
        return Catalogue(tools.values(), latent)

    def with_real(self, calls: Iterable[WrittenCall]) -> Catalogue:
        """Return a catalogue in which the changed tools that the calls name are replaced by the
        real tools.
        """
        tools = dict(self._listed)
        for call in calls:
            changed = self.changed(call)
            if changed is not None and changed.key in tools:
                tools[changed.key] = changed.real

        return Catalogue(tools.values(), self.latent, self.missing, self._unlisted)

    def joined(self, tools: Iterable[Tool], latent: Iterable[ToolKey]) -> Catalogue:
        """Return a catalogue with additional tools. Those whose keys are in `latent` are latent."""
        new_tools = list(tools)
        new_keys = {tool.key for tool in new_tools}
        return Catalogue(
            tools=[*self.tools, *new_tools],
            latent=self.latent | new_keys.intersection(latent),
            unlisted=self._unlisted,
        )

    def exact(self, tool: Tool) -> Validator:
        """Return the validator for parameters of the tool that contain no references."""
        validator = self._exact.get(tool.key)
        if validator is None:
            validator = Validator(tool.parameters, what="parameters")
            self._exact[tool.key] = validator

        return validator

    def admitted(self, tool: Tool) -> Validator:
        """Return the validator for calls as written. It accepts a reference instead of any part of
        the parameters.
        """
        validator = self._admitted.get(tool.key)
        if validator is None:
            schema = admit_references(tool.parameters)
            validator = Validator(schema, what="parameters")
            self._admitted[tool.key] = validator

        return validator

    def names(self, tool: Tool) -> ParameterNames:
        """Return the names of the tool's parameters."""
        names = self._names.get(tool.key)
        if names is None:
            names = ParameterNames(tool.name, tool.parameters)
            self._names[tool.key] = names

        return names

    def queries(self, tool: Tool) -> tuple[str, ...]:
        """Return the names of the tool's parameters that take JMESPath expressions."""
        queries = self._queries.get(tool.key)
        if queries is None:
            properties = self.parameters_of(tool)
            queries = tuple(name for name, schema in properties.items() if _is_query(schema))
            self._queries[tool.key] = queries

        return queries

    def to_json(self) -> tuple[list[JSON], list[JSON]]:
        """Return the tools and the latent keys as stored in a journal. The result is cached, so
        callers must not modify it.
        """
        if self._json is None:
            tools: list[JSON] = []
            tools.extend(stored_tool(tool) for tool in self.tools)
            self._json = (tools, stored_keys(self.latent))
        return self._json

    @classmethod
    def from_json(cls, tools: list[JSON], latent: list[JSON], missing: str = "") -> Catalogue:
        """Read a catalogue written by `to_json`. For `missing`, see the constructor."""
        definitions = [Tool.from_json(tool) for tool in objects_in(tools)]
        return cls(definitions, read_keys(latent), missing)

    def parameters_of(self, tool: Tool) -> JSONObject:
        """Return the properties of the tool's parameters, keyed by name."""
        return object_or_empty(tool.parameters.get("properties"))


def stored_tool(tool: Tool) -> JSONObject:
    """Return the definition of a tool as stored in a journal."""
    definition = tool.to_json()
    if tool.reaches is not None:
        definition["reaches"] = list[JSON](tool.reaches)
    return definition


def stored_keys(keys: Iterable[ToolKey]) -> list[JSON]:
    """Return the keys of tools as stored in a journal, sorted: `[[module, name]...]`."""
    return [[module, name] for module, name in sorted(keys, key=str)]


def read_keys(stored: Iterable[JSON]) -> list[ToolKey]:
    """Read the keys of tools from the form in a journal, `[[module, name]...]`. Entries in any
    other form are skipped.
    """
    keys: list[ToolKey] = []
    for pair in stored:
        match pair:
            case [str() | None as module, str() as name]:
                keys.append((module, name))
            case _:
                continue

    return keys


def has_wildcard(pattern: str) -> bool:
    """Return whether a pattern contains a wildcard."""
    return any(wildcard in pattern for wildcard in "*?[")


def matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that tells whether a name matches one of the patterns."""
    expressions = [translate(pattern) for pattern in patterns]
    if not expressions:
        # An empty expression would match every name.
        return lambda _: False

    compiled = re.compile("|".join(expressions))
    return lambda name: compiled.match(name) is not None


def _own_name(tool: Tool) -> str:
    """Return the name of a tool on its server."""
    _, name = tool.origin
    return name


def chosen_tools(tools: Iterable[Tool], patterns: Iterable[str]) -> list[Tool]:
    """Return the tools that match one of the patterns (such as `git_*`), by either of their names
    or by `module.name`.
    """
    # Most patterns are plain names, which are faster to look up than to match.
    exact: set[str] = set()
    wild: set[str] = set()
    for pattern in patterns:
        if has_wildcard(pattern):
            wild.add(pattern)
        else:
            exact.add(pattern)

    matches = matcher(wild)

    def is_chosen(tool: Tool) -> bool:
        names = [tool.name, f"{tool.module}.{tool.name}", tool.label]
        if tool.is_changed:
            names.append(tool.real.name)
        return any(name in exact or matches(name) for name in names)

    return [tool for tool in tools if is_chosen(tool)]


def _is_query(schema: JSON) -> bool:
    """Return whether a parameter takes a JMESPath expression. The parameter can be optional."""
    schemas = [schema, *list_or_empty(object_or_empty(schema).get("anyOf"))]
    return any(object_or_empty(part).get("format") == QUERY_FORMAT for part in schemas)


def _several(name: str, modules: Iterable[str | None]) -> str:
    listed = ", ".join(repr(module) for module in modules)
    return f"several servers have a tool {quoted(name)}: add _module, one of {listed}"


def _no_idea(module: str, name: str, idea_names: list[str]) -> str:
    if idea_names:
        return f"to call {quoted(module)}, set _tool to {quoted(idea_names[0])}, not {quoted(name)}"
    return (
        f"you have no published idea {quoted(module)}; search_ideas lists yours, and a run lists "
        "those it offers"
    )
