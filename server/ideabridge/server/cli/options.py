"""The shared options of the commands, and `command`, which adds them and turns errors
into exit codes.

The module also has shell completion and the question whether to trust a project file.
"""

from __future__ import annotations

import errno
import functools
import inspect
import json
import os
import re
import shlex

# Python's own: it loads faster than the store's, and no store is open in this process
import sqlite3
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast
from urllib.parse import quote

import typer
from typer.models import ArgumentInfo, OptionInfo

from ideabridge.server.cli.console import (
    ExitCode,
    UsageError,
    at_terminal,
    err,
    error_json,
    exit_code,
    interruptible,
    leaves,
    out,
    own_error,
    print_json,
    print_table,
    report,
    say,
    show,
    wrapped,
)
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import printable, readable_json

if TYPE_CHECKING:
    from ideabridge.bridge.configuration import Configuration
    from ideabridge.bridge.modules.settings import ModuleConfiguration
    from ideabridge.bridge.trust import ProjectTrust


# Completion. The shell asks at each key press, so completion reads the configuration as plain JSON
# (the project's only if it is trusted) and the store by read-only SQL. If anything goes wrong, it
# offers nothing: the shell would print an error into the line that the person types.

Offers = list[tuple[str, str]]
"""(completed word, its description)."""

_MOST: Final = 100

_RUNS: Final = (
    "SELECT id, status || coalesce(': ' || title, '') FROM runs "
    "WHERE substr(id, 1, length(?1)) = ?1 AND parent IS NULL ORDER BY number DESC LIMIT ?2"
)
_NAMES: Final = (
    "SELECT name, description FROM publication_list WHERE live "
    "AND substr(name, 1, length(?1)) = ?1 "
    "ORDER BY name LIMIT ?2"
)
_VERSIONS: Final = (
    "SELECT name || '@' || version, description FROM publication_list "
    "WHERE substr(name || '@' || version, 1, length(?1)) = ?1 ORDER BY name, version DESC LIMIT ?2"
)
_IDEAS: Final = (
    "SELECT substr(id, 1, 12), coalesce(title, '') FROM idea_list "
    "WHERE substr(id, 1, length(?1)) = ?1 "
    "ORDER BY number DESC LIMIT ?2"
)
_TOOLS: Final = (
    "SELECT DISTINCT tool, module FROM call_list WHERE substr(tool, 1, length(?1)) = ?1 "
    "ORDER BY tool LIMIT ?2"
)
_TAGS: Final = (
    "SELECT DISTINCT tag, '' FROM tag_list WHERE substr(tag, 1, length(?1)) = ?1 "
    "ORDER BY tag LIMIT ?2"
)


def _from_store(*queries: str) -> Callable[[typer.Context, str], Offers]:
    """A completion that runs these queries, with the beginning of the word and the largest
    number of rows.
    """

    def complete(ctx: typer.Context, incomplete: str) -> Offers:
        offers: dict[str, str] = {}
        try:
            store = _store(ctx)
            if not store.is_file():
                return []
            address = f"file:{quote(str(store))}?mode=ro"
            with closing(sqlite3.connect(address, uri=True, timeout=0.1)) as connection:
                for query in queries:
                    for name, description in connection.execute(query, (incomplete, _MOST)):
                        offers.setdefault(str(name), " ".join(str(description or "").split())[:60])
        except (OSError, ValueError, RecursionError, IdeabridgeError, sqlite3.Error):
            return []

        return list(offers.items())

    return complete


def _hosts(incomplete: str) -> Offers:
    from ideabridge.server.hosts.host import HOSTS

    return [(host.name, host.title) for host in HOSTS if host.name.startswith(incomplete)]


def _modules(ctx: typer.Context, incomplete: str) -> Offers:
    names: dict[str, Any] = {}
    try:
        for _, content in _configurations(ctx):
            servers = content.get("mcpServers")
            names |= cast("dict[str, Any]", servers) if isinstance(servers, dict) else {}
    except (OSError, ValueError, RecursionError, IdeabridgeError):
        return []

    return [(name, "") for name in names if name.startswith(incomplete)]


def _ideas(ctx: typer.Context, incomplete: str) -> Offers:
    queries = (_VERSIONS,) if "@" in incomplete else (_NAMES, _RUNS, _IDEAS)
    return _from_store(*queries)(ctx, incomplete)


complete_names: Final = _from_store(_NAMES)
"""Completes a published name."""

_BY_METAVAR: Final[dict[str, Callable[..., Offers]]] = {
    "HOST": _hosts,
    "SERVER": _modules,
    "RUN": _from_store(_RUNS),
    "RUN|APPROVAL": _from_store(_RUNS),
    "REF": _ideas,
    "NAME@VERSION": _from_store(_VERSIONS),
    "TOOL": _from_store(_TOOLS),
    "TAG": _from_store(_TAGS),
}
"""The completion of an argument or an option's value, by its metavar."""


def _store(ctx: typer.Context) -> Path:
    """The file of the store of the command line, else of the configuration, else the default
    one.
    """
    chosen = _shared_option(ctx, "store")
    if chosen is not None:
        return Path(chosen).expanduser().absolute()

    for folder, content in _configurations(ctx):
        configured = content.get("store")
        if isinstance(configured, str):
            return folder / Path(configured).expanduser()

    return Path(default_store())


def _configurations(ctx: typer.Context) -> Iterator[tuple[Path, dict[str, Any]]]:
    """(folder, unchecked content) of each configuration that would be used, the one that overrides
    the others first.

    Raises:
        OSError, ValueError, TrustError: one cannot be read.
    """
    import platformdirs

    from ideabridge.bridge.trust import FILE_NAME, is_project_file, is_trusted, read_own

    project = (_shared_option(ctx, "project") or Path.cwd()).expanduser().absolute()
    chosen = _shared_option(ctx, "config")
    own = platformdirs.user_config_path("ideabridge") / FILE_NAME
    file = project / FILE_NAME if chosen is None else chosen.expanduser().absolute()
    if chosen is not None and not is_project_file(file, project):
        files = [file]
    else:
        files = [file, own] if file.is_file() and is_trusted(file) else [own]

    for file in files:
        if file.is_file():
            content = json.loads(read_own(file).decode("utf-8-sig"))
            yield file.parent, cast("dict[str, Any]", content) if isinstance(content, dict) else {}


def _shared_option(ctx: Any, name: str) -> Path | None:
    """The value of a shared option, given before or after the command."""
    while ctx is not None:
        if ctx.params.get(name) is not None:
            return Path(str(ctx.params[name]))
        ctx = ctx.parent
    return None


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="The configuration file. Default: ideabridge.json."
    ),
]
ProjectOption = Annotated[
    Path | None,
    typer.Option("--project", metavar="DIR", help="The project folder. Default: the current one."),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FILE",
        help="The SQLite file of ideas and runs, or postgresql://USER@HOST/DATABASE.",
    ),
]
ToolsOption = Annotated[
    list[Path] | None,
    typer.Option("--tools", metavar="FILE.py", help="A Python file with tools; may be repeated."),
]
AllowAllOption = Annotated[bool, typer.Option("--allow-all", help="Run every call without asking.")]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="JSON|@FILE|KEY=VALUE",
        help="The input (†input): a JSON object, @FILE with one, or key=value; may be repeated.",
    ),
]
LimitOption = Annotated[
    int, typer.Option("--limit", "-n", metavar="N", min=1, max=500, help="How many at most.")
]
AfterOption = Annotated[
    str | None, typer.Option("--after", metavar="CURSOR", help="Continue after this cursor.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]

_ADDED: Final[dict[str, tuple[Any, Any]]] = {
    "config": (ConfigOption, None),
    "project": (ProjectOption, None),
    "store": (StoreOption, None),
    "tools": (ToolsOption, None),
    "allow_all": (AllowAllOption, False),
    "json": (JsonOption, False),
}


Line = tuple[str, str | None]
"""(text, style)."""


@dataclass(frozen=True, slots=True)
class Options:
    """The shared options of one command line, given before or after the command."""

    config: Path | None = None
    project: Path | None = None
    store: str | None = None
    tools: tuple[Path, ...] = ()
    allow_all: bool = False
    json: bool = False
    _loaded: list[Configuration] = field(default_factory=list, compare=False)

    @property
    def place(self) -> str | None:
        """The store of the command line as an absolute path, or its address."""
        from ideabridge.bridge.configuration import place_of

        return place_of(self.store, Path.cwd()) if self.store else None

    @property
    def again(self) -> str:
        """The same options, as words for another command line."""
        named = (("--config", self.config), ("--project", self.project), ("--store", self.store))
        words = [
            word for option, value in named if value is not None for word in (option, str(value))
        ]
        words += [word for file in self.tools for word in ("--tools", str(file))]
        words += ["--allow-all"] if self.allow_all else []
        return "".join(f" {shlex.quote(word)}" for word in words)

    def print_or_say(self, value: JSON, text: str) -> None:
        """Print `value` with `--json`; else report `text`, what was done, on standard error."""
        if self.json:
            print_json(value)
        else:
            say(text, "green")

    def print_lines(self, value: JSON, lines: Iterable[Line]) -> None:
        """Print `value` with `--json`; else the lines."""
        if self.json:
            print_json(value)
        else:
            for text, style in lines:
                show(text, style)

    def print_rows(
        self,
        value: JSON,
        titles: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        empty: str,
        more: str | None = None,
    ) -> None:
        """Print `value` with `--json`; else a table, or `empty` without rows. `more` is the cursor
        of the next page.
        """
        if self.json:
            print_json(value)
        elif rows:
            print_table(titles, rows, cut=True)
            if more:
                say(f"more: --after {more}", "dim")
        else:
            say(empty)

    def folder(self) -> Path:
        """The absolute path of the project folder; `UsageError` if it is not a folder."""
        folder = (self.project or Path.cwd()).expanduser().absolute()
        if not folder.is_dir():
            raise UsageError(f"--project: {folder} is not a folder")
        return folder

    def project_file(self) -> Path | None:
        """The absolute path of the project's configuration file; None: `--config` is a file
        outside the project.

        A repository can contain an entry for a host that starts ideabridge with any options in any
        of its folders. So `--config` is the project's file also if it is in the current folder
        while `--project` is another folder, and if it is anywhere in the repository of either.
        """
        from ideabridge.bridge.trust import FILE_NAME, is_project_file, repository_of

        if self.config is None:
            return self.folder() / FILE_NAME

        file = self.config.absolute()
        folders = [
            candidate
            for folder in (self.folder(), Path.cwd())
            for candidate in (folder, repository_of(folder))
        ]
        if any(is_project_file(file, folder) for folder in folders if folder is not None):
            return file
        return None

    def configuration(self, *, asking: bool = True) -> Configuration:
        """The configuration, overridden by these options. It always has a store.

        Args:
            asking: ask the person at the terminal about a project file that is not trusted, and
                report which of its settings are ignored.

        Raises:
            ConfigurationError: see `load_configuration`.
            UsageError: a folder or a file of tools does not exist.
        """
        from ideabridge.bridge.configuration import load_configuration, load_workspace

        if asking and self._loaded:
            # A command may read it twice, but the person is asked once.
            return self._loaded[0]

        file = self.project_file()
        if file is None:
            loaded = load_configuration(self.config, project=self.folder())
        else:
            asks = ask if asking and at_terminal() else None
            loaded = load_workspace(file, project=self.folder(), ask=asks)

        if asking and loaded.untrusted is not None:
            report(loaded.untrusted.told(anywhere=not at_terminal()))

        if asking:
            for line in loaded.refused:
                report(line)

        files = [file.expanduser().absolute() for file in self.tools]
        for file in files:
            if not file.is_file():
                raise UsageError(f"--tools: {file} is not a file")

        untrusted = loaded.untrusted
        if untrusted is not None and self.place is not None:
            # The store is chosen here, whatever the file would say.
            untrusted = replace(
                untrusted, keys=tuple(key for key in untrusted.keys if key != "store")
            )

        complete = loaded.model_copy(
            update={
                "untrusted": untrusted,
                "store": self.place or loaded.store or default_store(),
                "tools": tuple(dict.fromkeys([*loaded.tools, *map(str, files)])),
                "approval": "allow_all" if self.allow_all else loaded.approval,
                "also": () if self.allow_all else loaded.also,
            }
        )
        if asking:
            self._loaded.append(complete)

        return complete


def default_store() -> str:
    """The path of the store if none is configured. Opening it creates its folder."""
    import platformdirs

    return str(platformdirs.user_data_path("ideabridge") / "ideas.sqlite")


def _merged(before: Options, after: dict[str, Any]) -> Options:
    """The options before the command, overridden by those after it."""
    tools = cast("list[Path]", after.pop("tools", None) or [])
    changes = {name: value for name, value in after.items() if value not in (None, False)}
    return replace(before, **changes, tools=(*before.tools, *tools))


_Command = Callable[..., int | None] | Callable[..., Coroutine[Any, Any, int | None]]


def command(*names: str) -> Callable[[_Command], Callable[..., None]]:
    """Add the shared options in `names` to a command, as one argument `options`, and turn its
    errors into exit codes.

    The command returns an exit code, or None for 0. It may be a coroutine function.
    """

    def decorate(function: _Command) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in signature.parameters.values()
            if parameter.name != "options"
        ]
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_ADDED[name][1],
                annotation=_ADDED[name][0],
            )
            for name in names
        ]

        @functools.wraps(function)
        def wrapper(**arguments: Any) -> None:
            before = arguments.pop("ctx").obj
            after = {name: arguments.pop(name) for name in names}
            options = _merged(before if isinstance(before, Options) else Options(), after)

            def work() -> int | None:
                result = function(options, **arguments)
                if not isinstance(result, Coroutine):
                    return result
                import anyio

                return anyio.run(lambda: result)

            code = guarded(work, json=options.json)
            if code:
                raise typer.Exit(code)

        parameters = [context, *own, *added]
        for parameter in parameters:
            _complete(parameter.annotation)

        wrapper.__dict__["__signature__"] = inspect.Signature(parameters)
        wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapper

    return decorate


def _complete(annotation: Any) -> None:
    """Set the shell completion of an argument or an option."""
    for info in getattr(annotation, "__metadata__", ()):
        if (
            isinstance(info, ArgumentInfo | OptionInfo)
            and info.autocompletion is None
            and info.metavar is not None
        ):
            info.autocompletion = _BY_METAVAR.get(info.metavar.strip("[].").removesuffix("]"))


_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def _drop_output() -> None:
    """Discard what is still to be written to standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def guarded(work: Callable[[], int | None], *, json: bool = False) -> int:
    """Run `work` and return its exit code. An error is reported on standard error; with `json`
    also as one object.
    """
    try:
        return int(work() or 0)
    except (typer.Exit, typer.Abort, SystemExit):
        raise
    except KeyboardInterrupt:
        return ExitCode.CANCELLED
    except BrokenPipeError:
        # The reader of the output has gone, which is not an error.
        _drop_output()
        return ExitCode.DONE
    except BaseException as error:
        if os.environ.get("IDEABRIDGE_TRACEBACK"):
            raise
        known_error = own_error(error)
        if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
            _drop_output()
            code = ExitCode.FAILED
            message = f"the output cannot be written: {error.strerror}"
            kind = "OutputError"
        elif known_error is not None:
            code = exit_code(known_error)
            message = str(known_error)
            kind = type(known_error).__name__
        elif any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves(error)):
            return ExitCode.CANCELLED
        else:
            code = ExitCode.INTERNAL
            kind = "InternalError"
            first = next(leaves(error))
            message = f"internal error: {type(first).__name__}: {first}".replace("\n", " ")
            message += " (IDEABRIDGE_TRACEBACK=1 shows where)"
        report(message)
        if json:
            print_json(error_json(message, kind, int(code)))
        return code


_NAMED: Final = re.compile(r"\$?\$\{([A-Za-z_][A-Za-z0-9_]*)")
_INDENT: Final = 10
_SHOWN_FILES: Final = 20


def ask(
    standing: ProjectTrust,
    parsed: Configuration,
    user: Configuration,
    confirmed: frozenset[str] = frozenset(),
) -> bool:
    """Ask the person at the terminal whether to trust a project file and which files are data,
    and store a yes.

    Args:
        standing: whether the file is trusted.
        parsed: its configuration.
        user: the user's configuration.
        confirmed: the files that the person has named as data already.
    """
    from ideabridge.bridge.masking import shown_configuration
    from ideabridge.bridge.trust import keep_trusted

    _print(standing, parsed, user, confirmed, say, err().width)
    while True:
        match _typed("Trust it? y(es), n(o), s(how the file): "):
            case "y" | "yes":
                asked = [path for path in standing.found.data_files if path not in confirmed]
                data = {path for path in asked if _is_only_data(standing, path)}
                keep_trusted(standing.found, confirmed | data)
                return True
            case "s" | "show":
                content = cast("JSON", json.loads(standing.found.data.decode("utf-8-sig")))
                say(readable_json(shown_configuration(content), 2))
            case "" | "n" | "no":
                return False
            case _:
                say(
                    "y trusts exactly this content, n does not use it, s shows the file "
                    "itself, without its secrets"
                )


def _is_only_data(standing: ProjectTrust, path: str) -> bool:
    """Ask whether a file is data. Anything but a yes means that trust covers it."""
    places = ", ".join(standing.found.data_files[path].named_by)
    text = f"{path}: {places} names it. If it is data, trust does not end when it changes."
    _put(text, say, err().width, first="data?".ljust(_INDENT), further=" " * _INDENT)
    return _typed("Is it only data, and never code? y(es), n(o): ") in ("y", "yes")


def _typed(question: str) -> str:
    """Ask, and return the line that the person types, in lower case; "" at the end of the input."""
    sys.stderr.write(question)
    sys.stderr.flush()
    with interruptible():
        line = sys.stdin.readline()

    if not line:
        sys.stderr.write("\n")

    return line.strip().lower()


def show_standing(
    standing: ProjectTrust,
    parsed: Configuration,
    user: Configuration,
    confirmed: frozenset[str],
    *,
    as_json: bool,
) -> None:
    """Print the effects of a project file, and the hash of what would be trusted if
    `confirmed` is data.
    """
    from ideabridge.bridge.trust import trust_command

    if as_json:
        print_json(standing_json(standing, parsed, user, confirmed))
        return

    _print(standing, parsed, user, confirmed, show, out().width if sys.stdout.isatty() else None)
    unconfirmed = [path for path in standing.found.data_files if path not in confirmed]
    if unconfirmed:
        words = [word for path in (*sorted(confirmed), *unconfirmed) for word in ("--data", path)]
        command = trust_command(standing.found.file, "--show", *words)
        show(f"          If each is only data of its server: {command}")

    show(f"hash      {standing.found.hash(confirmed)}")


def _print(
    standing: ProjectTrust,
    parsed: Configuration,
    user: Configuration,
    confirmed: frozenset[str],
    write: Callable[[str], None],
    width: int | None,
) -> None:
    """Print the effects of a project file, wrapped to `width` columns; None: each
    effect is one line.
    """
    project_file = standing.found
    if standing.is_trusted and confirmed != standing.data:
        head = f"{project_file.file} is trusted, but not with these data files. It would do this:"
    elif standing.is_trusted and standing.before is not None:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(standing.before.at))
        head = f"{project_file.file} is trusted since {when}. It does this:"
    elif standing.changed:
        head = f"{project_file.file} has changed since it was trusted. It would do this:"
    else:
        head = f"{project_file.file} is not trusted. It would do this:"

    files = list(project_file.covered(confirmed))
    if len(files) > _SHOWN_FILES:
        more = f" and {len(files) - _SHOWN_FILES} more"
    else:
        more = ""

    lines = [
        ("", head),
        *((topic, path) for path, topic in standing.changed),
        *_effects(standing, parsed, user),
        ("covers", f"{', '.join(files[:_SHOWN_FILES])}{more}. What these load is not covered."),
        *_data_lines(standing, confirmed),
    ]
    for number, (topic, text) in enumerate(lines):
        indent = 0 if number == 0 else _INDENT
        _put(text, write, width, first=topic.ljust(indent), further=" " * indent)


def _put(
    text: str, write: Callable[[str], None], width: int | None, *, first: str, further: str
) -> None:
    """Print a text that may contain words of the file; no line of it begins where the lines of
    ideabridge begin.
    """
    plain = printable(text).replace("\n", "\\n").replace("\t", "\\t")
    for line in (
        [first + plain] if width is None else wrapped(plain, width, first=first, further=further)
    ):
        write(line)


def _data_lines(standing: ProjectTrust, confirmed: frozenset[str]) -> list[tuple[str, str]]:
    """(`data` or `data?`, file and who names it) of each file that can be data."""
    lines: list[tuple[str, str]] = []
    for path, data_file in standing.found.data_files.items():
        absent = "" if data_file.path.exists() else " (does not exist yet)"
        places = ", ".join(data_file.named_by)
        if path in confirmed:
            lines.append(
                ("data", f"{path}{absent}: {places} names it. Trust does not cover its content.")
            )
        else:
            lines.append(
                ("data?", f"{path}{absent}: {places} names it. Trust ends when it changes.")
            )

    return lines


def _effects(
    standing: ProjectTrust, parsed: Configuration, user: Configuration
) -> list[tuple[str, str]]:
    """(verb, object) of each effect of a project file, in full."""
    from ideabridge.bridge.configuration import ConfigurationError, lay_over
    from ideabridge.bridge.masking import shown_json
    from ideabridge.bridge.trust import trust_command

    lines: list[tuple[str, str]] = []
    for name, module in parsed.modules.items():
        lines += _module_lines(name, module)
        if name in user.modules:
            lines.append(("replace", f"your own server {name}"))

    lines += [("load", f"{path} as Python, in the process of ideabridge") for path in parsed.tools]
    (layer,) = parsed.layers
    raw = parsed.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for key in layer.keys:
        if key not in ("$schema", "mcpServers", "tools"):
            value = shown_json(parsed.store if key == "store" else raw.get(key))
            lines.append(
                ("set", f"{key}: {value if isinstance(value, str) else readable_json(value)}")
            )

    if parsed.store is not None and Path(parsed.store).exists():
        lines.append(
            (
                "warning",
                f"{parsed.store} exists already: its runs and published ideas are used as they are",
            )
        )

    for name, places in variables_named(parsed).items():
        command = trust_command(standing.found.file, "--env", name)
        if name in standing.variables:
            how = "allowed"
        else:
            how = f"not allowed; to allow it: {command}"
        lines.append(("variable", f"{name} (in {', '.join(places)}): {how}"))

    try:
        top = lay_over(user, parsed, standing).layers[-1]
    except ConfigurationError as error:
        return [*lines, ("refused", str(error))]

    return [
        *lines,
        *(("narrowed", line) for line in top.narrowed),
        *(("refused", line) for line in top.refused),
    ]


def _module_lines(name: str, module: ModuleConfiguration) -> list[tuple[str, str]]:
    from ideabridge.bridge.masking import shown_definition

    entry = cast(
        "dict[str, Any]", shown_definition(module.model_dump(mode="json", exclude_defaults=True))
    )
    state = " (disabled)" if module.disabled else ""
    if module.command is not None:
        where = f", in {entry['cwd']}" if module.cwd is not None else ""
        lines = [
            (
                "start",
                f"{name}{state}: {shlex.join([entry['command'], *entry.get('args', ())])}{where}",
            )
        ]
    else:
        lines = [("call", f"{name}{state}: {entry['url']}")]

    lines += [
        ("", f"with the variable {key}={value}") for key, value in entry.get("env", {}).items()
    ]
    lines += [
        ("", f"with the header {key}: {value}") for key, value in entry.get("headers", {}).items()
    ]
    lines += [("", f"with auth.{key}: {value}") for key, value in entry.get("auth", {}).items()]
    if module.views:
        lines.append(
            ("", "with its views: hosts run the scripts of its pages, which may call its tools")
        )

    return lines


def variables_named(parsed: Configuration) -> dict[str, list[str]]:
    """The environment variables in a project file that may hold a secret, each with its places."""
    from ideabridge.bridge.trust import HARMLESS

    places: dict[str, list[str]] = {}
    for module, entry in parsed.modules.items():
        texts = {"command": entry.command, "cwd": entry.cwd, "url": entry.url}
        texts |= {f"args.{number}": text for number, text in enumerate(entry.args)}
        texts |= {f"env.{key}": text for key, text in entry.env.items()}
        texts |= {f"headers.{key}": text for key, text in entry.headers.items()}
        if entry.auth is not None:
            keys = ("issuer", "client_id", "client_secret", "private_key")
            texts |= {f"auth.{key}": getattr(entry.auth, key) for key in keys}

        for place, text in texts.items():
            for match in _NAMED.finditer(text or ""):
                if not match.group().startswith("$$") and match.group(1) not in HARMLESS:
                    places.setdefault(match.group(1), []).append(f"mcpServers.{module}.{place}")

    model = parsed.model
    if model is not None and not isinstance(model, str) and model.key_env is not None:
        places.setdefault(model.key_env, []).append("model.key_env")

    return places


def standing_json(
    standing: ProjectTrust, parsed: Configuration, user: Configuration, confirmed: frozenset[str]
) -> JSONObject:
    """The effects of a project file as JSON, and the hash of what would be trusted if
    `confirmed` is data.
    """
    project_file = standing.found
    state = "untrusted"
    if standing.is_trusted and confirmed == standing.data:
        state = "trusted"
    elif standing.changed:
        state = "changed"

    effects: list[JSON] = [
        {"what": topic, "text": text} for topic, text in _effects(standing, parsed, user)
    ]
    changed: list[JSON] = [{"file": path, "what": topic} for path, topic in standing.changed]
    return {
        "file": str(project_file.file),
        "state": state,
        "hash": project_file.hash(confirmed),
        "files": dict(project_file.covered(confirmed)),
        "data_files": [
            {
                "file": path,
                "named_by": list[JSON](data_file.named_by),
                "confirmed": path in confirmed,
            }
            for path, data_file in project_file.data_files.items()
        ],
        "changed": changed,
        "variables": list[JSON](sorted(standing.variables.names)),
        "effects": effects,
    }
