"""Options that many commands share, and what wraps every command: errors in one line, exit codes."""

from __future__ import annotations

import errno
import functools
import inspect
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer
from typer.models import ArgumentInfo, OptionInfo

from ideabridge.server.cli.completion import BY_METAVAR
from ideabridge.server.cli.console import as_error, print_json, report
from ideabridge.server.cli.exits import ExitCode, exit_code, leaves, own_error

if TYPE_CHECKING:
    from ideabridge.bridge.configuration import Configuration

ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The configuration. Default: ideabridge.json.")
]
ProjectOption = Annotated[
    Path | None, typer.Option("--project", metavar="DIR", help="The project folder. Default: the current one.")
]
StoreOption = Annotated[Path | None, typer.Option("--store", metavar="FILE", help="The SQLite file of ideas and runs.")]
ToolsOption = Annotated[
    list[Path] | None, typer.Option("--tools", metavar="FILE.py", help="A Python file with tools; may be repeated.")
]
AllowAllOption = Annotated[bool, typer.Option("--allow-all", help="Run every call without asking.")]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="JSON|@FILE|KEY=VALUE",
        help="What †input reads: a JSON object, @FILE with one, or key=value; may be repeated.",
    ),
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=500, help="How many at most.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]

_ADDED: Final[dict[str, tuple[Any, Any]]] = {
    "config": (ConfigOption, None),
    "project": (ProjectOption, None),
    "store": (StoreOption, None),
    "tools": (ToolsOption, None),
    "allow_all": (AllowAllOption, False),
    "json": (JsonOption, False),
}


@dataclass(frozen=True, slots=True)
class Options:
    """The shared options of one command line, wherever in it they stood."""

    config: Path | None = None
    project: Path | None = None
    store: Path | None = None
    tools: tuple[Path, ...] = ()
    allow_all: bool = False
    json: bool = False
    _loaded: list[Configuration] = field(default_factory=list, compare=False)

    @property
    def again(self) -> str:
        """The options as they are to be written behind another command that shall find the same."""
        named = (("--config", self.config), ("--project", self.project), ("--store", self.store))
        words = [word for option, value in named if value is not None for word in (option, str(value))]
        words += [word for file in self.tools for word in ("--tools", str(file))]
        words += ["--allow-all"] if self.allow_all else []
        return "".join(f" {shlex.quote(word)}" for word in words)

    def folder(self) -> Path:
        """The project folder, absolute.

        Raises:
            UsageError: it is no folder.
        """
        from ideabridge.server.cli.exits import UsageError

        folder = (self.project or Path.cwd()).expanduser().absolute()
        if not folder.is_dir():
            raise UsageError(f"--project: {folder} is no folder")
        return folder

    def project_file(self) -> Path | None:
        """The configuration file that counts as the project's, absolute; None: `--config` names one elsewhere.

        A repository can bring an entry for a host that starts us with any options in any folder of it, so `--config`
        names the project's file also where it is in the current folder and `--project` names another, and where it is
        elsewhere in the repository of either.
        """
        from ideabridge.bridge.trust import FILE_NAME, is_project_file, repository_of

        if self.config is None:
            return self.folder() / FILE_NAME
        file = self.config.absolute()
        folders = [one for folder in (self.folder(), Path.cwd()) for one in (folder, repository_of(folder))]
        return file if any(is_project_file(file, folder) for folder in folders if folder is not None) else None

    def configuration(self, *, asking: bool = True) -> Configuration:
        """The configuration with these options over it; the store always stands in it.

        Args:
            asking: ask the person at the terminal about a project file that is not trusted, and report what of it is
                not used.

        Raises:
            ConfigurationError: see `load_configuration`.
            UsageError: a folder or a file of tools is not there.
        """
        from ideabridge.bridge.configuration import load_configuration, load_workspace
        from ideabridge.server.cli.exits import UsageError, standing_in_terminal

        if asking and self._loaded:
            # A command may ask for it twice: a person is asked once.
            return self._loaded[0]
        file = self.project_file()
        if file is None:
            loaded = load_configuration(self.config, project=self.folder())
        else:
            ask = None
            if asking and standing_in_terminal():
                from ideabridge.server.cli.project_file import ask
            loaded = load_workspace(file, project=self.folder(), ask=ask)
        if asking and loaded.untrusted is not None:
            report(loaded.untrusted.told(anywhere=not standing_in_terminal()))
        if asking:
            for line in loaded.refused:
                report(line)
        files = [file.expanduser().absolute() for file in self.tools]
        for file in files:
            if not file.is_file():
                raise UsageError(f"--tools: {file} is no file")
        complete = loaded.model_copy(
            update={
                "store": str(self.store.expanduser().absolute()) if self.store else loaded.store or default_store(),
                "tools": tuple(dict.fromkeys([*loaded.tools, *map(str, files)])),
                "approval": "allow_all" if self.allow_all else loaded.approval,
                "also": () if self.allow_all else loaded.also,
            }
        )
        if asking:
            self._loaded.append(complete)
        return complete


def default_store() -> str:
    """The store where none is configured. Opening it makes its folder."""
    import platformdirs

    return str(platformdirs.user_data_path("ideabridge") / "ideas.sqlite")


def _merged(before: Options, given: dict[str, Any]) -> Options:
    """What stood before the command, with what stood after it over it."""
    tools = cast("list[Path]", given.pop("tools", None) or [])
    changes = {name: value for name, value in given.items() if value not in (None, False)}
    return replace(before, **changes, tools=(*before.tools, *tools))


def command(
    *names: str,
) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """Give a command the shared options in `names`, as one argument `options`; and turn errors into exit codes.

    The function returns an exit code, or None for 0.
    """

    def decorate(function: Callable[..., int | None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in signature.parameters.values()
            if parameter.name != "options"
        ]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_ADDED[name][1], annotation=_ADDED[name][0])
            for name in names
        ]

        @functools.wraps(function)
        def wrapper(**arguments: Any) -> None:
            before = arguments.pop("ctx").obj
            given = {name: arguments.pop(name) for name in names}
            options = _merged(before if isinstance(before, Options) else Options(), given)
            code = guarded(lambda: function(options, **arguments), json=options.json)
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
    """Let the shell complete what an argument or an option takes."""
    for told in getattr(annotation, "__metadata__", ()):
        if isinstance(told, ArgumentInfo | OptionInfo) and told.autocompletion is None and told.metavar is not None:
            told.autocompletion = BY_METAVAR.get(told.metavar.strip("[].").removesuffix("]"))


_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def _drop_output() -> None:
    """Let what is still to be written to standard output go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def guarded(work: Callable[[], int | None], *, json: bool = False) -> int:
    """Do `work`; errors become one line each on standard error (and, with `json`, one object) and an exit code."""
    try:
        return int(work() or 0)
    except (typer.Exit, typer.Abort, SystemExit):
        raise
    except KeyboardInterrupt:
        return ExitCode.CANCELLED
    except BrokenPipeError:
        # Whoever read our output has gone: nothing more can be told, and that is no fault.
        _drop_output()
        return ExitCode.DONE
    except BaseException as error:
        if os.environ.get("IDEABRIDGE_TRACEBACK"):
            raise
        known = own_error(error)
        if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
            _drop_output()
            code, message, kind = ExitCode.FAILED, f"the output cannot be written: {error.strerror}", "OutputError"
        elif known is not None:
            code, message, kind = exit_code(known), str(known), type(known).__name__
        elif any(isinstance(one, KeyboardInterrupt) for one in leaves(error)):
            return ExitCode.CANCELLED
        else:
            code, kind = ExitCode.INTERNAL, "InternalError"
            first = next(leaves(error))
            message = f"internal error: {type(first).__name__}: {first}".replace("\n", " ")
            message += " (IDEABRIDGE_TRACEBACK=1 shows where)"
        report(message)
        if json:
            print_json(as_error(message, kind, int(code)))
        return code
