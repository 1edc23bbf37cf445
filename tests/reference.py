"""Writes the parts of the documents that come from the code: the schemas of `ideabridge.json` and
of an idea, the pages of the reference, and the tables in `docs/plans.md` and `docs/hosts.md`.

python -m tests.reference
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from unittest import mock

import anyio
from typer.main import get_command

from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.server_entry import (
    AUTH_SYNONYMS,
    IGNORED,
    KINDS,
    MILLISECONDS,
    SYNONYMS,
)
from ideabridge.bridge.store.portable import DOCUMENT_SCHEMA
from ideabridge.bridge.store.store import Store
from ideabridge.server.cli.app import app
from ideabridge.server.hosts.table import HOSTS, Place
from ideabridge.server.own_tools import OWN_TOOLS, tool_signature
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import JSON, JSONObject
from tests.tools.context import RecordingContext

DOCS: Final = Path(__file__).parent.parent / "docs"
PACKAGES: Final = ("ideabridge.bridge", "ideabridge.bridge.sync", "ideabridge.tools")
_COMMANDS: Final = """# Every command

The help of each command. [The command line](cli.md) explains what they have in common."""
_SETTINGS: Final = """# Every setting

The keys of `ideabridge.json`, from its schema. [Configuration](configuration.md) explains them."""
_TOOLS: Final = """# Every parameter of the server's tools

What a client is shown with `"own_tools": "all"`. [The server's tools](tools.md) says what is listed otherwise."""
_PYTHON: Final = """# Every public name in Python

Signatures and docstrings. [Public names](reference.md) is the overview;
[Using ideabridge from Python](embedding.md) shows how they work together."""
_VIEWS: Final = """# Every view of the store

[The store](store.md#views) says what a row of each view is."""
_EXAMPLES: Final[dict[str, JSONObject]] = {
    "pick": {
        "data": {"commits": [{"author": "Ada"}, {"author": "Bo"}]},
        "path": "commits[*].author",
    },
    "filter": {"items": [{"stars": 3}, {"stars": 40}], "where": "stars > `10`"},
    "join": {"items": ["a", "b", 3], "separator": ", "},
    "count": {"items": ["open", "closed", "open"], "by": "@"},
    "template": {
        "text": "{user}: {length(issues)} issues",
        "values": {"user": "Ada", "issues": [7, 9]},
    },
    "compute": {"code": "sum(hours) / len(hours)", "hours": [2, 4]},
    "sleep": {"seconds": 0},
}
"""Parameters of one call of each built-in tool."""

_WIDTH: Final = "100"
"""Columns of the help of a command."""


def configuration_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `ideabridge.json`, for editors. It accepts all forms that ideabridge
    reads without a remark, also those that are not in the settings themselves.
    """
    schema = Configuration.model_json_schema(by_alias=True)
    for name, field in Configuration.model_fields.items():
        if field.exclude:
            schema["properties"].pop(name)

    for name in ("Layer", "Untrusted", "Variables"):
        schema["$defs"].pop(name, None)

    module = schema["$defs"]["ModuleConfiguration"]
    module["description"] = (
        "One MCP server: a program to start (command) or an address to call (url)."
    )
    keys = module["properties"]
    keys["type"] = {**keys["type"], "anyOf": [{"enum": list(KINDS)}, {"type": "null"}]}
    keys |= {key: {"description": "Written by other hosts; ignored."} for key in sorted(IGNORED)}
    keys |= _others_names({key: ours for key, ours in SYNONYMS.items() if key not in keys})
    keys |= {
        key: {"type": "number", "description": f"The same as '{ours}', in milliseconds."}
        for key, ours in sorted(MILLISECONDS.items())
    }
    keys["enabled"] = {"type": "boolean", "description": "false: the same as 'disabled': true."}
    names: JSONObject = {"type": "array", "items": {"type": "string"}}
    keys["tools"] = _or_else(keys["tools"], names, "A list: the same as 'allow'.")

    settings_of_tool = schema["$defs"]["ToolSettings"]["properties"]
    settings_of_tool["hide"] = _or_else(
        settings_of_tool["hide"], names, "A list: the same as 'hide_parameters'."
    )

    auth = schema["$defs"]["AuthorizationSettings"]["properties"]
    auth |= _others_names(AUTH_SYNONYMS)
    auth["scopes"] = {"type": ["array", "string"], "description": "Another name for 'scope'."}
    auth["callbackPort"] = {"type": "integer", "description": "The port of 'redirect_uri'."}
    auth["enabled"] = {"type": "boolean", "description": "Written by other hosts; ignored."}
    schema |= {"title": "ideabridge.json", "description": "Configuration of ideabridge."}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _others_names(names: Mapping[str, str]) -> JSONObject:
    """The schemas of keys that other hosts write; `names` has ours for each."""
    return {
        key: {"description": f"Another host's name for '{ours}'."}
        for key, ours in sorted(names.items())
    }


def _or_else(schema: JSONObject, other: JSONObject, meaning: str) -> JSONObject:
    """A schema that also accepts another form, whose meaning is added to the description."""
    annotations = ("title", "default", "description")
    form: JSONObject = {key: value for key, value in schema.items() if key not in annotations}
    widened: JSONObject = {key: value for key, value in schema.items() if key in annotations}
    return {
        **widened,
        "anyOf": [form, other],
        "description": f"{schema['description']} {meaning}",
    }


def commands() -> str:
    """Every command with its help."""
    with mock.patch.dict(os.environ, {"COLUMNS": _WIDTH}):
        helps = list(_helps(get_command(app), None, "ideabridge"))
    return "\n\n".join(
        [_COMMANDS, *(f"## `{path}`\n\n```text\n{text.rstrip()}\n```" for path, text in helps)]
    )


def _helps(command: Any, parent: Any, name: str) -> Iterator[tuple[str, str]]:
    """(path, help) of a command and of those below it."""
    with command.context_class(command, info_name=name, parent=parent) as context:
        yield context.command_path, command.get_help(context)
        for below, one in getattr(command, "commands", {}).items():
            if not one.hidden:
                yield from _helps(one, context, below)


def settings() -> str:
    """Every key of `ideabridge.json`."""
    schema = configuration_schema()
    parts = [_SETTINGS, f"## The top level\n\n{_table(schema)}"]
    parts += [
        f"## `{name}`\n\n{_first(one)}\n\n{_table(one)}" for name, one in schema["$defs"].items()
    ]
    return "\n\n".join(parts)


def tools() -> str:
    """The server's own tools with their parameters."""
    parts = [_TOOLS]
    for tool in OWN_TOOLS:
        parts.append(
            f"## `{tool['name']}`\n\n{_cell(tool['description'])}\n\n{_table(tool['inputSchema'])}"
        )
    return "\n\n".join(parts)


def built_in_tools() -> str:
    """The built-in tools, each with an example and its result."""
    rows = ["| tool | what it does | example | result |", "|---|---|---|---|"]
    for tool in builtin_toolbox():
        what, _, _ = tool.description.partition("\n\n")
        example = _EXAMPLES[tool.name]
        result = anyio.run(builtin_toolbox().activity(tool.name).run, example, RecordingContext())
        cells = [
            _code(tool_signature(tool)),
            what,
            _code(json.dumps(example)),
            _code(json.dumps(result)),
        ]
        rows.append(f"| {' | '.join(map(_cell, cells))} |")

    return "\n".join(rows)


def hosts() -> str:
    """The hosts, with the files in which `install` adds a server."""
    rows = ["| name | client | project | your own | key | |", "|---|---|---|---|---|---|"]
    for host in HOSTS:
        places = [place for place in host.places if place.is_current]
        own = _host_files(place for place in places if place.scope == "user")
        shared = _host_files(place for place in places if place.scope == "project")
        alone = _host_files(place for place in places if place.scope == "local")
        if alone:
            shared += f"; for you alone {alone}"

        keys = dict.fromkeys(place.keys[-1] for place in places)
        cells = [_code(host.name), host.title, shared, own, _codes(keys), host.unsure]
        rows.append(f"| {' | '.join(cells)} |")

    return "\n".join(rows)


def _host_files(places: Iterable[Place]) -> str:
    """The files of places, of which the first counts unless another one exists."""
    starts = {"{project}/": "", "{home}": "~", "{config}": "~/.config", "{apps}": "APPS"}
    paths: dict[str, None] = {}
    for place in places:
        path = place.path
        for start, shown in starts.items():
            path = path.replace(start, shown)

        if "{project}" in place.keys:
            path += f": {'.'.join(place.keys)}".replace("{project}", "FOLDER")
        if place.platforms:
            system = "Windows" if "win32" in place.platforms else "Linux, macOS"
            paths[f"{_code(path)} ({system})"] = None
        else:
            paths[_code(path)] = None

    return ", ".join(paths)


def _codes(texts: Iterable[str]) -> str:
    return ", ".join(map(_code, texts))


def _table(schema: JSONObject) -> str:
    """The properties of an object as rows."""
    properties = schema.get("properties")
    required = schema.get("required")
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, one in (properties if isinstance(properties, dict) else {}).items():
        about = one if isinstance(one, dict) else {}
        needed = isinstance(required, list) and name in required
        if needed:
            default = "required"
        elif "default" in about:
            default = f"`{json.dumps(about['default'])}`"
        else:
            default = ""

        rows.append(f"| `{name}` | {_kind(about)} | {default} | {_first(about)} |")

    return "\n".join(rows) if len(rows) > 2 else "It has no parameters."


def _kind(schema: JSON) -> str:
    """The type that a schema describes, in words."""
    if not isinstance(schema, dict):
        return "any"
    if isinstance(reference := schema.get("$ref"), str):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"

    for key in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(key), list):
            return " or ".join(dict.fromkeys(map(_kind, options)))

    if isinstance(values := schema.get("enum"), list):
        return " or ".join(f"`{json.dumps(value)}`" for value in values)
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"

    kind = schema.get("type")
    if kind == "array":
        return f"array of {_kind(schema.get('items', {}))}"

    inner = schema.get("additionalProperties")
    if kind == "object" and isinstance(inner, dict):
        return f"object of {_kind(inner)}"
    if isinstance(kind, list):
        return " or ".join(map(str, kind))
    return str(kind or "any")


def _first(schema: JSONObject) -> str:
    return _cell(str(schema.get("description", "")))


def _code(text: str) -> str:
    """A text as code, which may have backticks itself."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _cell(text: str) -> str:
    """A text as the cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def python() -> str:
    """Every public name with its signature and docstring."""
    parts = [_PYTHON]
    for package in PACKAGES:
        module = importlib.import_module(package)
        parts.append(f"## `{package}`")
        own = [
            name for name, one in vars(module).items() if getattr(one, "__module__", "") == package
        ]
        names: list[str] = getattr(
            module, "__all__", [name for name in own if not name.startswith("_")]
        )
        for name in sorted(names, key=str.lower):
            value: Any = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isroutine(value)):
                continue
            parts.append(f"### `{name}`\n\n{_signed(name, value)}")
            parts += [f"#### `{name}.{key}`\n\n{_signed(key, one)}" for key, one in _methods(value)]

    return "\n\n".join(parts)


def _methods(value: Any) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class that have docstrings, without inherited ones."""
    if not inspect.isclass(value) or issubclass(value, Exception):
        return
    for key, one in vars(value).items():
        raw: Any = getattr(one, "__func__", one)
        if isinstance(one, cached_property):
            # Callers read it like any other property.
            raw = property(one.func)
        if (
            not key.startswith("_")
            and (inspect.isfunction(raw) or isinstance(raw, property))
            and raw.__doc__
        ):
            yield key, raw


def _signed(name: str, value: Any) -> str:
    """A signature as code, and the docstring as it is written."""
    if inspect.isroutine(value) or isinstance(value, property):
        doc = inspect.getdoc(value)
    else:
        doc = value.__doc__

    text = inspect.cleandoc(doc or "")
    if isinstance(value, property):
        getter: Callable[..., Any] | None = value.fget
        returned = "" if getter is None else getter.__annotations__.get("return", "")
        signature = f"{name}: {returned}"
    elif inspect.isclass(value):
        # The signature of a protocol, an exception or a pydantic model says nothing.
        tells = (
            "__init__" in vars(value)
            and not issubclass(value, Exception)
            and not getattr(value, "_is_protocol", False)
        )
        signature = f"class {name}{_signature(value, returns=False) if tells else ''}"
    else:
        begin = "async def" if inspect.iscoroutinefunction(value) else "def"
        signature = f"{begin} {name}{_signature(value)}"

    return f"```py\n{signature}\n```" + (f"\n\n```text\n{text}\n```" if text else "")


class _Text(str):
    """An annotation, which a signature prints as it is, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _signature(value: Any, *, returns: bool = True) -> str:
    """The parameters, one a line if they are many, and what is returned."""
    found = inspect.signature(value)
    shown = [one.replace(annotation=_text(one.annotation)) for one in found.parameters.values()]
    if returns and found.return_annotation is not found.empty:
        returned = f" -> {found.return_annotation}"
    else:
        returned = ""

    # A default that has no literal would be printed with its address.
    whole = re.sub(
        r"<[^=]* at 0x[0-9a-f]+>",
        "...",
        str(found.replace(parameters=shown, return_annotation=found.empty)),
    )
    if len(whole) + len(returned) > 90:
        parts = [re.sub(r"<[^=]* at 0x[0-9a-f]+>", "...", str(one)) for one in shown]
        kinds = [one.kind for one in shown]
        if (
            inspect.Parameter.KEYWORD_ONLY in kinds
            and inspect.Parameter.VAR_POSITIONAL not in kinds
        ):
            parts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")

        whole = "(\n    " + ",\n    ".join(parts) + ",\n)"

    return whole + returned


def _text(annotation: Any) -> Any:
    return _Text(annotation) if isinstance(annotation, str) else annotation


def views() -> str:
    """The views of the store with their columns."""
    parts = [_VIEWS]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ideas.sqlite"
        Store.open(path).close()
        with closing(sqlite3.connect(path)) as connection:
            names = [
                str(name)
                for (name,) in connection.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'view' ORDER BY name"
                )
            ]
            for name in names:
                columns = [
                    f"`{row[1]}`" for row in connection.execute(f"PRAGMA table_info({name})")
                ]
                parts.append(f"## `{name}`\n\n{', '.join(columns)}")

    return "\n\n".join(parts)


PAGES: Final[dict[str, Callable[[], str]]] = {
    "commands.md": commands,
    "settings.md": settings,
    "parameters.md": tools,
    "python.md": python,
    "views.md": views,
}
SCHEMAS: Final[dict[str, Callable[[], JSONObject]]] = {
    "ideabridge.schema.json": configuration_schema,
    "idea.schema.json": lambda: DOCUMENT_SCHEMA,
}
TABLES: Final[dict[str, Callable[[], str]]] = {"plans.md": built_in_tools, "hosts.md": hosts}
TABLE: Final = re.compile(
    r"(?<=<!-- `python -m tests\.reference` writes this table\. -->\n\n).*?(?=\n\n)", re.DOTALL
)
"""The table that this script writes in a page of `TABLES`."""

FILES: Final = (*SCHEMAS, *PAGES, *TABLES)
"""What this script writes, in `docs`."""


def content(name: str) -> str:
    """The text of one of FILES."""
    if name in SCHEMAS:
        return json.dumps(SCHEMAS[name](), indent=2) + "\n"
    if name in PAGES:
        heading, _, rest = PAGES[name]().partition("\n\n")
        return f"{heading}\n\n<!-- `python -m tests.reference` writes this page. -->\n\n{rest}\n"

    text = (DOCS / name).read_text(encoding="utf-8")
    table = TABLES[name]()
    replaced, count = TABLE.subn(lambda _: table, text)
    assert count == 1, f"docs/{name} has {count} tables to write, expected 1"
    return replaced


def main() -> None:
    """Write the files."""
    for name in FILES:
        (DOCS / name).write_text(content(name), encoding="utf-8")


if __name__ == "__main__":
    main()
