"""Map the names of modules, tools and parameters to their names in programs.

A program imports one Python module for each MCP server (`import git`), as well as `tools` (the
tools of this process) and `ideas` (published ideas). Most names stay as they are: `git.git_log`. A
name that Python does not allow is changed: forbidden characters become `_`, `_` is appended to
keywords, and if two names become equal, `_2` is appended to the second. The mapping is one to one,
and depends only on the tools.
"""

from __future__ import annotations

import keyword
import re
import sys
import threading
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, Self

from ideabridge.bridge.context.reader import is_reader
from ideabridge.bridge.context.references import escaped
from ideabridge.bridge.errors import ProgramError
from ideabridge.bridge.programs.handles import CLASS, READ
from ideabridge.bridge.programs.stubs import described_parameters, function_signature, stub
from ideabridge.tools.changed import ToolChange, changed_tool, real_call
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.keywords import show
from ideabridge.tools.tool import ANONYMOUS, IDEA, META_PROPERTIES, Tool, ToolKey, is_idea

TOOLS: Final = "tools"
"""The module that contains the tools of this process."""

IDEAS: Final = "ideas"
"""The module that contains the published ideas."""

SERVERS: Final = "servers"
"""The module that exports every server under its own name."""

LONGEST_NAME: Final = 100
"""The maximum number of characters in a name."""

_OWN: Final = sys.stdlib_module_names | {
    "ask",
    "ideas",
    "input",
    "main",
    "program",
    "pydantic",
    "servers",
    "state",
    "tools",
}
"""Names that a server's module cannot have: the names of Python's own modules, and names that are
already defined for a program.
"""

_CACHED_STUBS: Final = 64
_STUBS: Final[dict[tuple[tuple[str, int], ...], tuple[list[Tool], str]]] = {}
"""The latest stubs with their tools, keyed by the names of the functions and the ids of the tools.
Each entry keeps its tools alive so that the ids cannot be reused. Computing the digest of a large
schema would take longer than making its stub.
"""

_LOCK: Final = threading.Lock()
"""Guards `_STUBS`, because program sessions ask for stubs in separate threads."""

_IMPORTED: Final = re.compile(
    r"\b(?:from|import)\b((?:[^\n;()\\]++|\\\r?\n|\((?:#[^\n]{0,300}+|[^()#]++){0,500}+\))*+)"
)
"""Matches the text between `from` or `import` and the end of the statement. The expression never
backtracks, and text in parentheses is limited, so a hostile program is read in linear time.
"""

_MEMBER: Final = re.compile(r"\.\s*(\w+)")

_OTHER: Final = re.compile(r"[^A-Za-z0-9_]+")
_NO_LETTER: Final = re.compile(r"\W+")


def identifier(name: str, other: re.Pattern[str] = _OTHER) -> str:
    """Return the Python identifier for a name.

    It contains only ASCII characters, because letters from other scripts can look like these.
    `other` matches the characters that `_` replaces.
    """
    # Normalise the name, because Python normalises identifiers to this form.
    beginning = unicodedata.normalize("NFKC", name[: 4 * LONGEST_NAME])
    text = other.sub("_", beginning)[:LONGEST_NAME]
    # Remove leading underscores, because the interpreter hides module members whose names begin
    # with one.
    text = text.lstrip("_") or "name"
    if text[0].isdecimal():
        text = f"n{text}"
    if keyword.iskeyword(text):
        text = f"{text}_"
    return text


def _parameter(name: str) -> str:
    """Return the identifier of a parameter.

    It can be in any script, because it could be confused only with another parameter of the same
    tool.
    """
    text = identifier(name, _NO_LETTER)
    # Check the result, because some Unicode letters and digits are not allowed in identifiers.
    if text.isidentifier() and text == unicodedata.normalize("NFKC", text):
        return text
    return identifier(name)


def _mapped(
    names: Iterable[str],
    reserved: Collection[str] = (),
    identify: Callable[[str], str] = identifier,
) -> dict[str, str]:
    """Return the real names, keyed by their identifiers. Names that need no change are mapped
    first, so that they stay as they are.
    """
    listed = dict.fromkeys(names)
    unreserved = [name for name in listed if name not in reserved]
    real_names = {name: name for name in unreserved if identify(name) == name}

    # For each identifier, the last number that was tried.
    numbers: dict[str, int] = {}
    changed = listed.keys() - real_names.keys()
    for name in sorted(changed):
        base = identify(name)
        if base in reserved:
            base = f"{base}_"

        text = base
        while text in reserved or text in real_names:
            # Try each number only once, no matter how many names have the same identifier.
            numbers[base] = numbers.get(base, 1) + 1
            text = f"{base.removesuffix('_')}_{numbers[base]}"

        real_names[text] = name

    return real_names


class ProgramNames:
    """The names of tools in programs.

    Args:
        tools: the tools that programs can call. Clean rooms are left out, because `ask` calls them.

    Attributes:
        tools: the tools, keyed by module and function.
        servers: the modules of the servers, keyed by their names in `from servers import NAME`.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        by_server = defaultdict[str, list[Tool]](list)
        for tool in tools:
            # Leave out the reading tool, because a program reads parts of values with its own
            # `tools.read`.
            if tool.module != ANONYMOUS and not is_reader(tool):
                by_server[_module_of(tool)].append(tool)

        tools_of_process = by_server.pop(f"{TOOLS}:", [])
        ideas = by_server.pop(f"{IDEAS}:", [])

        # The names in `import NAME`, which exclude those of the interpreter's modules, and then
        # those in `from servers import NAME`, where every name is free.
        imported = _mapped(by_server, _OWN)
        modules = {server: name for name, server in imported.items()}
        self.servers = {name: modules[server] for name, server in _mapped(by_server).items()}
        self.tools: dict[str, dict[str, Tool]] = {}
        for name, server in imported.items():
            self.tools[name] = _functions(by_server[server])

        self.tools[TOOLS] = _functions(tools_of_process, (READ, CLASS))
        self.tools[IDEAS] = _functions(ideas)
        self._parameters: dict[tuple[str, str], dict[str, str]] = {}
        self._places: dict[ToolKey, tuple[str, str]] = {}
        self.note_places()

    def note_places(self) -> None:
        """Record the module and function of each tool once `tools` is filled."""
        self._places = {}
        for module, functions in self.tools.items():
            for name, tool in functions.items():
                self._places[tool.key] = (module, name)

    @classmethod
    def of(cls, journaled: JSONObject, tools: Iterable[Tool]) -> Self:
        """Read the names returned by `used_by`, for tools with the same keys."""
        names = cls(())
        servers = journaled.get("servers")
        if isinstance(servers, dict):
            names.servers = {key: str(value) for key, value in servers.items()}

        tools_by_key = _by_journaled_key(tools)
        for module, keys in object_or_empty(journaled.get("modules")).items():
            functions = names.tools.setdefault(module, {})
            for function, key in object_or_empty(keys).items():
                functions[function] = _read_tool(function, key, tools_by_key)

        names.note_places()
        return names

    def used_by(self, program: str) -> JSONObject:
        """Return the names that a program might use, in the form that `of` reads: the names in its
        imports and those after a dot, even inside strings. Variables with the name of a tool do not
        count.

        The result is `{"modules": {MODULE: {FUNCTION: [module or null, tool, defaults?]}},
        "servers": {NAME: MODULE}}`, with the names that tools have on their servers. `defaults` are
        the defaults of a changed tool.
        """
        program = unicodedata.normalize("NFKC", program)
        imported: set[str] = set()
        from_servers: set[str] = set()
        for statement in _IMPORTED.findall(program):
            statement_words: list[str] = re.findall(r"\w+", statement)
            imported.update(statement_words)
            if statement_words[:1] == [SERVERS]:
                from_servers.update(statement_words)

        words = imported.union(_MEMBER.findall(program))
        servers = {name: module for name, module in self.servers.items() if name in from_servers}
        modules: JSONObject = {}
        for module, functions in self.tools.items():
            if module not in imported and module not in servers.values():
                continue

            journaled: JSONObject = {}
            for function, tool in functions.items():
                if function in words:
                    journaled[function] = _journaled(tool)

            modules[module] = journaled

        # A program that sleeps makes a call, so include the tool for it.
        sleep = self.find(TOOLS, "sleep")
        if "sleep" in words and sleep is not None:
            own = object_or_empty(modules.get(TOOLS))
            modules[TOOLS] = {**own, "sleep": [None, sleep.name]}

        stored: JSONObject = {"modules": modules}
        if servers:
            stored["servers"] = dict[str, JSON](servers)
        return stored

    @property
    def listed(self) -> list[Tool]:
        """Return the tools without duplicates."""
        return [tool for functions in self.tools.values() for tool in functions.values()]

    @cached_property
    def renamed(self) -> list[tuple[str, str]]:
        """Return the real name and the name in programs of each module, tool and parameter whose
        name changed.
        """
        modules: dict[tuple[str, str], None] = {}
        tools: list[tuple[str, str]] = []
        parameters: list[tuple[str, str]] = []
        for module, functions in self.tools.items():
            for name, tool in functions.items():
                function = f"{module}.{name}"
                if tool.module is not None and module not in (IDEAS, tool.module):
                    modules[tool.module, module] = None
                if _function_of(tool) != name:
                    tools.append((tool.label, function))

                for python_name, real_name in self.parameters(tool).items():
                    if real_name != python_name:
                        real = f"{tool.label}({real_name})"
                        parameters.append((real, f"{function}({python_name})"))

        return [*modules, *tools, *parameters]

    def place(self, tool: Tool) -> tuple[str, str] | None:
        """Return the module and function of a tool, or None if programs cannot call it."""
        return self._places.get(tool.key)

    def find(self, module: str, function: str) -> Tool | None:
        """Return the tool that a program names."""
        return self.tools.get(module, {}).get(function)

    def parameters(self, tool: Tool) -> Mapping[str, str]:
        """Return the real names of a tool's parameters, keyed by their names in programs."""
        place = self._places[tool.key]
        real_names = self._parameters.get(place)
        if real_names is None:
            described = described_parameters(tool.parameters)
            listed = [*described.properties, *sorted(described.required)]
            real_names = _mapped(listed, identify=_parameter)
            self._parameters[place] = real_names

        return real_names

    def signature(self, tool: Tool, observed: JSONObject | None = None) -> str:
        """Return the signature of a tool on one line, such as `git.git_log(repo_path: str,
        max_count: int = 10) -> Any`.

        Args:
            tool: a tool that programs can call.
            observed: the shape of earlier results of the tool.
        """
        name = ".".join(self._places[tool.key])
        return function_signature(name, tool, self.parameters(tool), observed)

    def stub(self, module: str) -> str:
        """Return the text of a module's `.pyi` file, which is created only once for the same
        tools.
        """
        functions = self.tools.get(module, {})
        key = tuple((name, id(tool)) for name, tool in functions.items())
        with _LOCK:
            cached = _STUBS.get(key)

        if cached is not None:
            _, text = cached
            return text

        text = stub((name, tool, self.parameters(tool)) for name, tool in functions.items())
        with _LOCK:
            while len(_STUBS) >= _CACHED_STUBS:
                oldest = next(iter(_STUBS))
                del _STUBS[oldest]

            _STUBS[key] = (list(functions.values()), text)

        return text

    def call(self, module: str, function: str, arguments: JSONObject) -> JSONObject:
        """Return the call that a program makes.

        Args:
            module: the name of the module in the program.
            function: the name of the tool in the program.
            arguments: the arguments in the form that calls use: with escaped strings, and with
                references in place of handles.

        Raises:
            ProgramError: the tool does not exist, or a parameter has the name of a meta-property.
        """
        tool = self.find(module, function)
        if tool is None:
            raise ProgramError(f"there is no tool {module}.{function}"[:300])

        names = self.parameters(tool)
        call: JSONObject = {"_tool": tool.name}
        if tool.module is not None:
            call["_module"] = tool.module

        for python_name, value in arguments.items():
            name = names.get(python_name, python_name)
            if name in META_PROPERTIES:
                raise ProgramError(f"{module}.{function}() has no parameter {show(name)}")
            if name in call:
                raise ProgramError(f"{module}.{function}() got the parameter {show(name)} twice")
            call[name] = value

        if tool.is_changed:
            return real_call(call, tool, object_or_empty(escaped(tool.defaults)))
        return call


_TOLD: Final = """\
In place of calls and output (then [] and null), Python for loops, conditions and arithmetic:
import MODULE
found = await MODULE.TOOL(parameter=input["key"])
Arguments are named. A call starts where it is made; asyncio.gather waits for several. `input` and `state` are dicts. \
A failed call raises RuntimeError, a denied one PermissionError. The last expression is the output; None: you are \
asked again, with the calls and what was printed. Text is literal: no † references. Not there: inheritance, own \
exceptions, files, asyncio.create_task and wait, gather(return_exceptions=True). Results with fields are TypedDicts: \
index them; helper functions take them as Any. Results over 1 MB: tools.read(x, path). \
{asks}Tools:
"""
_ASKS: Final = "await ask(text, data, schema={...}) asks a mind. "

LISTED_CHARACTERS: Final = 4_000
"""The maximum number of characters of tool names that are shown to a mind."""


def program_schema(tools: Sequence[Tool]) -> JSONObject:
    """Return the schema of a program in a Solution, which tells a mind how to write a program, and
    what the modules contain.

    Only names are listed, because the schema of calls contains the parameters and the result of
    each tool.
    """
    names = ProgramNames(tools)
    lines: list[str] = []
    room = LISTED_CHARACTERS
    left = len(names.listed)
    for module, functions in names.tools.items():
        names_of_functions: list[str] = []
        for function in functions:
            room -= len(function) + 2
            if room < 0:
                break
            names_of_functions.append(function)

        left -= len(names_of_functions)
        if names_of_functions:
            lines.append(f"{module}: {', '.join(names_of_functions)}")

    if left:
        lines.append(f"... {left} more, named in the same way")

    can_ask = any(tool.module == ANONYMOUS for tool in tools)
    instructions = _TOLD.replace("{asks}", _ASKS if can_ask else "")
    return {"type": "string", "description": instructions + "\n".join(lines)}


def ask_call(arguments: JSONObject) -> JSONObject:
    """Return the call that `ask(text, data, schema=...)` makes: a task for a mind that sees only
    the data. The arguments have the same form as in `ProgramNames.call`.

    Raises:
        ProgramError: an argument is wrong.
    """
    for name in arguments:
        if name not in ("text", "data", "schema"):
            raise ProgramError(f"ask() has no parameter {show(name)}")

    text = arguments.get("text")
    if not isinstance(text, str) or not text.strip():
        raise ProgramError(f"ask(): expected a string, found {show(text)}")

    schema = arguments.get("schema")
    if schema is not None and not isinstance(schema, dict):
        raise ProgramError(
            f"ask(): expected a JSON Schema (an object) as schema, found {show(schema)}"
        )

    call: JSONObject = {"_tool": "solve", "_module": ANONYMOUS, "task": text}
    data: JSON = arguments.get("data")
    if data is not None:
        call["input"] = {"data": data}

    if schema is not None:
        call["output_schema"] = schema

    return call


def _key_of(tool: Tool) -> ToolKey:
    """Return the key of a tool in journals.

    A tool that passes on its calls has its own key, which differs from that of the tool that
    answers them.
    """
    if tool.passes_to is not None:
        return tool.key
    return tool.origin


def _journaled(tool: Tool) -> list[JSON]:
    """Return the entry that a journal stores for the tool that a function calls; see `used_by`."""
    if tool.is_changed:
        return [*tool.origin, tool.defaults]
    return list[JSON](_key_of(tool))


def _by_journaled_key(tools: Iterable[Tool]) -> dict[ToolKey, Tool]:
    """Return the tools, keyed by the server and the name in entries of `_journaled`.

    Changed tools are replaced by the real tools. If several tools share a key, the one whose own
    `key` it is takes precedence.
    """
    real: dict[ToolKey, Tool] = {}
    by_key_of: dict[ToolKey, Tool] = {}
    by_key: dict[ToolKey, Tool] = {}
    for tool in tools:
        if tool.is_changed:
            real[tool.origin] = tool.real
        else:
            by_key_of[_key_of(tool)] = tool
            by_key[tool.key] = tool

    return real | by_key_of | by_key


def _read_tool(function: str, entry: JSON, tools: Mapping[ToolKey, Tool]) -> Tool:
    """Return the tool in an entry written by `_journaled`.

    Raises:
        ProgramError: the entry is malformed, or names another tool.
    """
    tool: Tool | None = None
    match entry:
        case [None | str() as module, str(name)]:
            tool = tools.get((module, name))
        case [str() as module, str(name), dict(defaults)]:
            real = tools.get((module, name))
            if real is not None:
                tool = changed_tool(real, ToolChange(function, defaults=defaults))
        case _:
            pass

    if tool is None:
        raise ProgramError(f"the run has no tool {show(entry)}")
    return tool


def _module_of(tool: Tool) -> str:
    """Return the server of a tool or, for a tool without a server, `tools:` or `ideas:`, which no
    server can be called.
    """
    if tool.module is None:
        return f"{TOOLS}:"
    if tool.module.startswith(IDEA):
        return f"{IDEAS}:"
    return tool.module


def _function_of(tool: Tool) -> str:
    """Return the real name of a function: the name of the idea, or the name of the tool on its
    server.

    A tool that passes on its calls keeps its own name, whatever the name of the tool that answers
    them.
    """
    if tool.is_changed:
        # Use the name without the prefix that avoids collisions.
        return tool.remote_name or tool.name
    if tool.passes_to is not None:
        return tool.name
    if is_idea(tool.module):
        return tool.module.removeprefix(IDEA)

    _, name = tool.origin
    return name


def _functions(tools: Iterable[Tool], reserved: Collection[str] = ()) -> dict[str, Tool]:
    """Return the tools, keyed by the names of their functions in programs."""
    by_real_name = {_function_of(tool): tool for tool in tools}
    names = _mapped(by_real_name, reserved)
    return {name: by_real_name[real_name] for name, real_name in names.items()}
