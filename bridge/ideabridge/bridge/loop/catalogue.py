"""Catalogue: the tools that a run may call, with the validators of their parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from typing import Final, cast

from ideabridge.bridge.context.references import quoted
from ideabridge.bridge.loop.event import JournalError
from ideabridge.tools.compose import admit_references
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ArgumentError, ToolDefinitionError, UnknownToolError
from ideabridge.tools.names import did_you_mean, skeleton
from ideabridge.tools.rename import ParameterNames
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import ANONYMOUS, IDEA, QUERY_FORMAT, Tool, ToolKey

MAX_QUALIFIED: Final = 300
"""A module is looked for in this many first characters of a name."""


class Catalogue:
    """The tools of a run, by `_tool` and `_module`. A catalogue does not change.

    Args:
        tools: the tools; of two with the same name and module, the later one counts.
        latent: keys of the tools without an activity: the mind writes their `_output`.
        missing: a text about modules that are not connected, added to the error for an unknown
            tool or module.
    """

    def __init__(
        self, tools: Iterable[Tool], latent: Iterable[ToolKey] = (), missing: str = ""
    ) -> None:
        self.missing = missing
        self._by_key: dict[ToolKey, Tool] = {tool.key: tool for tool in tools}
        # A tool that passes its calls to another one never stands for that one.
        passing = {
            tool.origin: tool for tool in self._by_key.values() if tool.passes_to is not None
        }
        own = {tool.origin: tool for tool in self._by_key.values() if tool.passes_to is None}
        self._by_origin: dict[ToolKey, Tool] = {**passing, **own}
        self._by_name: dict[str, list[Tool]] = {}
        for tool in sorted(self._by_key.values(), key=lambda one: one.passes_to is not None):
            self._by_name.setdefault(tool.name, []).append(tool)
            if tool.remote_name is not None and tool.module is not None:
                # With `_module`, a call may use the name that the module itself uses.
                self._by_key.setdefault((tool.module, tool.remote_name), tool)

        self.latent = frozenset(latent)
        self._json: tuple[list[JSON], list[JSON]] | None = None
        self._exact: dict[ToolKey, Validator] = {}
        self._admitted: dict[ToolKey, Validator] = {}
        self._names: dict[ToolKey, ParameterNames] = {}
        self._queries: dict[ToolKey, tuple[str, ...]] = {}

    @property
    def tools(self) -> list[Tool]:
        """The tools, each once, in the order of the constructor."""
        return [tool for key, tool in self._by_key.items() if key == tool.key]

    @property
    def _spelled(self) -> dict[str, str]:
        """The name that its module uses for each tool, by the name in the catalogue."""
        return {tool.name: tool.origin[1] for tool in self._by_key.values()}

    def find(self, name: str, module: str | None, *, briefly: bool = False) -> Tool:
        """Return the tool that a call names.

        Args:
            name: `_tool` of the call.
            module: `_module` of the call; None is enough if only one tool has the name.
            briefly: do not look for the nearest names.

        Raises:
            UnknownToolError: no tool, or more than one, has the name; the message has
                the nearest names.
        """
        tool = self._by_key.get((module, name))
        if tool is None and module == ANONYMOUS:
            # A clean room has the tools of its run.
            tool = self._by_key.get((None, name))

        if tool is not None:
            return tool

        def hint(text: str, known: Iterable[str]) -> str:
            return "" if briefly else did_you_mean(text, known, self._spelled)

        if module is not None and module.startswith(IDEA):
            raise UnknownToolError(
                _no_idea(module, name, [key for key in self._by_key if key[0] == module])
            )

        named = self._by_name.get(name, [])
        # Where an idea and a tool have one name, the tool is meant; `_module` calls the idea.
        meant = [tool for tool in named if not _is_idea(tool)] or named
        if module is None and len(meant) == 1:
            return meant[0]

        qualified = [] if named else self._qualified(name, module)
        if len(qualified) == 1:
            return qualified[0]
        if module is None and named:
            modules = ", ".join(repr(tool.module) for tool in named)
            raise UnknownToolError(
                f"several servers have a tool {quoted(name)}: add _module, one of {modules}"
            )

        if module == ANONYMOUS:
            own = [key[1] for key in self._by_key if key[0] in (None, ANONYMOUS)]
            raise UnknownToolError(f"a clean room has no tool {quoted(name)}.{hint(name, own)}")
        if module is not None:
            modules = {tool.module for tool in self._by_key.values() if tool.module is not None}
            if module not in modules:
                raise UnknownToolError(
                    f"unknown server {quoted(module)}.{hint(module, sorted(modules))}{self.missing}"
                )

            own = [tool.name for tool in self._by_key.values() if tool.module == module]
            raise UnknownToolError(
                f"server {quoted(module)} has no tool {quoted(name)}.{hint(name, own)}"
            )

        if briefly:
            raise UnknownToolError(f"unknown tool {quoted(name)}.{self.missing}")

        looks = skeleton(name[:MAX_QUALIFIED])
        alike = [tool for tool in self._by_key.values() if skeleton(tool.origin[1]) == looks]
        sharing = sorted({str(tool.module) for tool in alike if tool.origin[1] == name})
        if len(sharing) > 1:
            modules = ", ".join(map(repr, sharing))
            raise UnknownToolError(
                f"several servers have a tool {quoted(name)}: add _module, one of {modules}"
            )

        # A single tool that is not offered under its own name: the name belongs to another tool,
        # which is missing.
        if len({t.key for t in alike}) == 1:
            left = {tool.name for tool in alike if tool.name != tool.origin[1]}
        else:
            left = ()

        near = hint(name, [tool_name for tool_name in self._by_name if tool_name not in left])
        raise UnknownToolError(f"unknown tool {quoted(name)}.{near}{self.missing}")

    def beside(self, tool: Tool) -> str:
        """The end of an error: how to call the idea that has the same name as a tool; "" if there
        is no such idea.
        """
        ideas = [namesake for namesake in self._by_name.get(tool.name, ()) if _is_idea(namesake)]
        if not ideas or _is_idea(tool):
            return ""
        return (
            f"; the published idea {quoted(tool.name)} is called with "
            f'"_module": "{ideas[0].module}"'
        )

    def _qualified(self, name: str, module: str | None) -> list[Tool]:
        """The tools that `module.tool` or `module/tool` may mean. People read these names in
        lists of tools.
        """
        tools: dict[ToolKey, Tool] = {}
        for place, mark in enumerate(name[:MAX_QUALIFIED]):
            own = name[:place]
            if mark in "./" and module in (None, own):
                tool = self._by_key.get((own, name[place + 1 :]))
                if tool is not None:
                    tools[tool.key] = tool

        return list(tools.values())

    def same(self, tool: Tool) -> Tool | None:
        """The tool with the same module and the same name in it, whatever its name in this
        catalogue; else None.
        """
        return self._by_origin.get(tool.origin)

    def get(self, key: ToolKey) -> Tool | None:
        """The tool of this module (None: of this process), by its name in the catalogue or in the
        module; else None.
        """
        return self._by_origin.get(key) or self._by_key.get(key)

    def look_up(self, call: JSONObject) -> Tool | None:
        """The tool that a call names, or None."""
        name = call.get("_tool")
        module = call.get("_module")
        try:
            return self.find(str(name), module if isinstance(module, str) else None, briefly=True)
        except UnknownToolError:
            return None

    def used_by(self, calls: Iterable[JSON], more: Iterable[Tool] = ()) -> Catalogue:
        """A catalogue of the tools that calls name, and `more`: the tools that the journal of a
        plan needs. Unknown tools are skipped; the check of the plan reports them.
        """
        named = [call for call in calls if isinstance(call, dict)]
        codes = [
            self.get((None, code))
            for call in named
            if isinstance(code := call.get("_activity"), str)
        ]
        tools = [*map(self.look_up, named), *codes, *more]
        used = {tool.key: tool for tool in tools if tool is not None}
        return Catalogue(used.values(), [key for key in self.latent if key in used])

    def joined(self, tools: Iterable[Tool], latent: Iterable[ToolKey]) -> Catalogue:
        """A catalogue with more tools; those whose keys are in `latent` are latent."""
        more = list(tools)
        keys = {tool.key for tool in more}
        return Catalogue(
            [*self.tools, *more], [*self.latent, *(key for key in latent if key in keys)]
        )

    def exact(self, tool: Tool) -> Validator:
        """The validator of the tool's parameters, for values without references."""
        validator = self._exact.get(tool.key)
        if validator is None:
            validator = self._exact[tool.key] = Validator(tool.parameters, what="parameters")
        return validator

    def admitted(self, tool: Tool) -> Validator:
        """The validator of calls as written, which accepts a reference in place of any part of
        the parameters.
        """
        validator = self._admitted.get(tool.key)
        if validator is None:
            schema = admit_references(tool.parameters)
            validator = self._admitted[tool.key] = Validator(schema, what="parameters")
        return validator

    def names(self, tool: Tool) -> ParameterNames:
        """The names of the tool's parameters."""
        names = self._names.get(tool.key)
        if names is None:
            names = self._names[tool.key] = ParameterNames(tool.name, tool.parameters)
        return names

    def queries(self, tool: Tool) -> tuple[str, ...]:
        """The tool's parameters that are JMESPath expressions."""
        names = self._queries.get(tool.key)
        if names is None:
            properties = self.parameters_of(tool).items()
            names = self._queries[tool.key] = tuple(
                name for name, schema in properties if _is_query(schema)
            )
        return names

    def to_json(self) -> tuple[list[JSON], list[JSON]]:
        """(tools, latent keys) as a journal stores them; made once, so they must not be changed."""
        if self._json is None:
            self._json = self._to_json()
        return self._json

    def _to_json(self) -> tuple[list[JSON], list[JSON]]:
        tools: list[JSON] = []
        tools.extend(_stored(tool) for tool in self.tools)
        latent: list[JSON] = [[module, name] for module, name in sorted(self.latent, key=str)]
        return tools, latent

    @classmethod
    def from_json(cls, tools: list[JSON], latent: list[JSON], missing: str = "") -> Catalogue:
        """Read the catalogue that `to_json` wrote; `missing` is as in the constructor."""
        definitions = [Tool.from_json(tool) for tool in tools if isinstance(tool, dict)]
        keys: list[ToolKey] = []
        for pair in latent:
            if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], str):
                keys.append((pair[0] if isinstance(pair[0], str) else None, pair[1]))
        return cls(definitions, keys, missing)

    def parameters_of(self, tool: Tool) -> JSONObject:
        """The properties of the tool's parameters, by name."""
        properties = tool.parameters.get("properties")
        return properties if isinstance(properties, dict) else {}


def _stored(tool: Tool) -> JSONObject:
    """The definition of a tool as a journal stores it."""
    definition = tool.to_json()
    if tool.reaches is not None:
        definition["reaches"] = list[JSON](tool.reaches)
    return definition


def has_wildcard(pattern: str) -> bool:
    """Return whether a pattern may match other names than itself."""
    return any(wildcard in pattern for wildcard in "*?[")


def matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that tells whether a name matches one of the patterns."""
    expressions = [translate(pattern) for pattern in patterns]
    if not expressions:
        return lambda _: False
    compiled = re.compile("|".join(expressions))
    return lambda name: compiled.match(name) is not None


def _is_idea(tool: Tool) -> bool:
    return tool.module is not None and tool.module.startswith(IDEA)


def chosen_tools(tools: Iterable[Tool], patterns: Iterable[str]) -> list[Tool]:
    """The tools that match a pattern such as `git_*` by their name, or by `module.name` with either
    of their names.
    """
    wanted = set(patterns)
    matches = matcher(pattern for pattern in wanted if has_wildcard(pattern))
    plain = {pattern for pattern in wanted if not has_wildcard(pattern)}

    def is_chosen(tool: Tool) -> bool:
        names = (tool.name, f"{tool.module}.{tool.name}", tool.label)
        return any(name in plain or matches(name) for name in names)

    return [tool for tool in tools if is_chosen(tool)]


def _is_query(schema: JSON) -> bool:
    """Return whether a parameter is a JMESPath expression, or optionally one."""
    if not isinstance(schema, dict):
        return False
    branches = schema.get("anyOf")
    parts: list[JSON] = [schema, *(branches if isinstance(branches, list) else [])]
    return any(isinstance(part, dict) and part.get("format") == QUERY_FORMAT for part in parts)


def _no_idea(module: str, name: str, known: list[ToolKey]) -> str:
    if known:
        return f"{quoted(module)} is called with _tool {quoted(known[0][1])}, not {quoted(name)}"
    return (
        f"nothing is published to you as {quoted(module)}; search_ideas lists what is, and a "
        "run lists what it offers"
    )


# -- the tools of one request ----------------------------------------------------------------------

Latent = Callable[[Iterable[Tool]], Iterable[ToolKey]]
"""Returns the keys of the tools without code: the mind writes their `_output`."""


def change_of(
    base: Catalogue,
    asked: JSONObject | None,
    tools: Sequence[object],
    output_schema: object,
    latent: Latent,
) -> JSONObject | None:
    """The changes that handlers of messages made to the tools and the output schema; None if
    they made none.

    The result is `RequestMade.offered`, so a folded run accepts the same Solutions: `{"tools"?:
    [...], "latent"?: [...], "output_schema"?: ...}`. A tool is its number among the initial tools
    of the run, or the definition of a new one. `output_schema` is null if the output is text.

    Args:
        base: the initial tools of the run.
        asked: the initial output schema of the run.
        tools: the tools after the handlers ran.
        output_schema: the output schema after the handlers ran.
        latent: returns the keys of the tools without code.

    Raises:
        ArgumentError: a tool is not a Tool, or the schema is neither a dict nor None.
        ToolDefinitionError: two tools have the same name and module.
    """
    changed: JSONObject = {}
    if not isinstance(output_schema, dict | None):
        raise ArgumentError.of(
            "output_schema of a handler", "a JSON Schema (a dict) or None", output_schema
        )

    if output_schema != asked:
        changed["output_schema"] = cast("JSON", output_schema)

    initial = base.tools
    if len(tools) == len(initial) and all(
        tool is other for tool, other in zip(tools, initial, strict=True)
    ):
        return changed or None

    left: list[Tool] = []
    for tool in tools:
        if not isinstance(tool, Tool):
            raise ArgumentError.of("tools of a handler", "a Tool", tool)
        left.append(tool)

    keys = {tool.key for tool in left}
    if len(keys) < len(left):
        twice = next(
            tool.name
            for place, tool in enumerate(left)
            if tool.key in {other.key for other in left[:place]}
        )
        raise ToolDefinitionError(
            f"tools of a handler: {twice!r} is there twice; replace a tool in its place"
        )

    places = {id(tool): place for place, tool in enumerate(initial)}
    own = {tool.key for tool in initial}
    changed["tools"] = [places[id(tool)] if id(tool) in places else _stored(tool) for tool in left]
    latent_keys = [
        *(key for key in base.latent if key in keys),
        *latent(tool for tool in left if tool.key not in own),
    ]
    if latent_keys:
        changed["latent"] = [[module, name] for module, name in sorted(latent_keys, key=str)]

    return changed


def offered_by(base: Catalogue, changed: JSONObject | None) -> Catalogue:
    """The tools of a Request.

    Args:
        base: the initial tools of the run.
        changed: the result of `change_of`.

    Raises:
        JournalError: a number in it belongs to no initial tool.
    """
    listed = (changed or {}).get("tools")
    if not isinstance(listed, list):
        return base

    initial = base.tools
    latent = (changed or {}).get("latent")
    tools: list[Tool] = []
    for entry in listed:
        if isinstance(entry, dict):
            tools.append(Tool.from_json(entry))
        elif isinstance(entry, int) and 0 <= entry < len(initial):
            tools.append(initial[entry])
        else:
            raise JournalError(
                f"a Request offered tool {entry!r}, and the run began with {len(initial)}"
            )

    return Catalogue(
        tools, Catalogue.from_json([], latent if isinstance(latent, list) else []).latent
    )


class ToolOffer:
    """The tools and the output schema of a run, and what its current Request offers of them.

    Args:
        initial: the tools with which the run began.
        output_schema: its output schema.

    Attributes:
        initial, initial_schema: the arguments.
        current, output_schema: those of the current Request.
        every: every tool that the run has had.
    """

    def __init__(self, initial: Catalogue, output_schema: JSONObject | None = None) -> None:
        self.initial = self.current = self.every = initial
        self.initial_schema = self.output_schema = output_schema
        self._changed: JSONObject | None = None

    def change(self, changed: JSONObject | None) -> bool:
        """Make the offer of the next Request, and return whether it differs from that of
        the last Request.

        Args:
            changed: see `change_of`; None: the initial tools and output schema of the run.

        Raises:
            JournalError: see `offered_by`.
        """
        if changed == self._changed:
            return False

        # `offered_by` may raise: nothing has changed then.
        current = offered_by(self.initial, changed)
        self._changed = changed
        self.current = current
        keys = {tool.key for tool in self.every.tools}
        new = [tool for tool in self.current.tools if tool.key not in keys]
        if new:
            self.every = self.every.joined(new, self.current.latent)

        schema = (changed or {}).get("output_schema", self.initial_schema)
        self.output_schema = schema if isinstance(schema, dict) else None
        return True
