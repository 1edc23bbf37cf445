"""The options that commands share. `command` adds them, and turns errors into exit codes."""

from __future__ import annotations

import errno
import functools
import inspect
import os
import shlex
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

import typer

from ideabridge.server.cli.completion import default_store, set_completion
from ideabridge.server.cli.console import (
    ExitCode,
    UsageError,
    at_terminal,
    drop_output,
    exit_code,
    leaves,
    own_error,
    print_failure,
    print_json,
    print_table,
    report,
    say,
    show_line,
)
from ideabridge.server.cli.trust_dialogue import ask
from ideabridge.tools.encoding import JSON

if TYPE_CHECKING:
    from ideabridge.bridge.configuration import Configuration


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
        help="The input (†input): a JSON object, @FILE for a file that contains one, or "
        "key=value; may be repeated.",
    ),
]
LimitOption = Annotated[
    int,
    typer.Option(
        "--limit", "-n", metavar="N", min=1, max=500, help=("The maximum number to show.")
    ),
]
AfterOption = Annotated[
    str | None, typer.Option("--after", metavar="CURSOR", help="Continue after this cursor.")
]
ScopeOption = Annotated[
    Literal["user", "project"] | None,
    typer.Option(
        "--scope",
        "-s",
        metavar="SCOPE",
        help="user: your own configuration, for all projects. project: this project's file.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]

UndoOption = Annotated[bool, typer.Option("--undo", help="Undo what this command did last.")]

SecretOption = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        metavar="NAME",
        help="A variable or header whose value is a secret although it does not look like one; "
        "may be repeated.",
    ),
]
PlainOption = Annotated[
    list[str] | None,
    typer.Option(
        "--plain",
        metavar="NAME",
        help="A variable or header whose value is not a secret although it looks like one; may be "
        "repeated.",
    ),
]

_ADDED: Final[dict[str, tuple[Any, Any]]] = {
    "config": (ConfigOption, None),
    "project": (ProjectOption, None),
    "store": (StoreOption, None),
    "tools": (ToolsOption, None),
    "allow_all": (AllowAllOption, False),
    "json": (JsonOption, False),
    "scope": (ScopeOption, None),
    "undo": (UndoOption, False),
    "secret": (SecretOption, None),
    "plain": (PlainOption, None),
}


Line = tuple[str, str | None]
"""A line of text and its style."""


@dataclass(frozen=True, slots=True)
class Options:
    """The shared options on a command line, which can be before or after the command."""

    config: Path | None = None
    project: Path | None = None
    store: str | None = None
    tools: tuple[Path, ...] = ()
    allow_all: bool = False
    json: bool = False
    scope: Literal["user", "project"] | None = None
    undo: bool = False
    secret: list[str] | None = None
    plain: list[str] | None = None
    _loaded: list[Configuration] = field(default_factory=list, compare=False)

    @property
    def place(self) -> str | None:
        """The store that the command line specifies: an absolute path or an address."""
        from ideabridge.bridge.configuration import place_of
        from ideabridge.bridge.store.errors import StorePlaceError

        if self.store is None:
            return None
        if not self.store:
            raise UsageError("--store is empty; expected the path of a file")
        try:
            return place_of(self.store, Path.cwd())
        except StorePlaceError as error:
            raise UsageError(f"--store: {error}") from None

    @property
    def again(self) -> str:
        """These options as text to append to another command line."""
        words: list[str] = []
        if self.config is not None:
            words += ["--config", str(self.config)]
        if self.project is not None:
            words += ["--project", str(self.project)]
        if self.store is not None:
            words += ["--store", self.store]
        for file in self.tools:
            words += ["--tools", str(file)]
        if self.allow_all:
            words.append("--allow-all")

        return "".join(f" {shlex.quote(word)}" for word in words)

    def print_or_say(self, value: JSON, text: str) -> None:
        """With `--json`, print `value`. Otherwise, report what was done by printing `text` to
        standard error.
        """
        if self.json:
            print_json(value)
        else:
            say(text, "green")

    def print_lines(self, value: JSON, lines: Iterable[Line]) -> None:
        """With `--json`, print `value`. Otherwise print the lines."""
        if self.json:
            print_json(value)
        else:
            for text, style in lines:
                show_line(text, style)

    def print_rows(
        self,
        value: JSON,
        titles: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        empty: str,
        more: str | None = None,
    ) -> None:
        """With `--json`, print `value`. Otherwise print a table, or `empty` if there are no rows.
        `more` is the cursor for the next page.
        """
        if self.json:
            print_json(value)
        elif rows:
            print_table(titles, rows, cut=True)
            if more:
                say(f"to see more, add --after {more}", "dim")
        else:
            say(empty)

    def folder(self) -> Path:
        """Return the absolute path of the project folder. Raise `UsageError` if it is not a
        folder.
        """
        folder = (self.project or Path.cwd()).expanduser().absolute()
        if not folder.is_dir():
            raise UsageError(f"--project: {folder} is not a folder")
        return folder

    def project_file(self) -> Path | None:
        """Return the absolute path of the project's configuration file, or None if `--config` names
        a file outside the project.

        A repository can contain a host's configuration, which can start ideabridge with any options
        and in any folder of the repository. So `--config` also counts as the project's file if it
        is in the current folder while `--project` is another folder, or if it is anywhere in the
        repository of either folder.
        """
        from ideabridge.bridge.trust import FILE_NAME, is_project_file, repository_of

        if self.config is None:
            return self.folder() / FILE_NAME

        file = self.config.absolute()
        for folder in (self.folder(), Path.cwd()):
            if is_project_file(file, folder):
                return file

            repository = repository_of(folder)
            if repository is not None and is_project_file(file, repository):
                return file

        return None

    def configuration(self, *, asking: bool = True, tolerant: bool = False) -> Configuration:
        """Return the configuration, overridden by these options. The result always has a store.

        Args:
            asking: whether to ask the person at the terminal about an untrusted project file, and
                to report its settings that are ignored.
            tolerant: whether to report a broken project file and continue without it.

        Raises:
            ConfigurationError: see `load_configuration`.
            UsageError: a folder or a tool file does not exist.
        """
        from ideabridge.bridge.configuration import load_configuration, load_workspace

        if asking and self._loaded:
            # A command can read the configuration twice. Return the first result again, so that the
            # person is asked only once.
            return self._loaded[0]

        file = self.project_file()
        if file is None:
            loaded = load_configuration(self.config, project=self.folder())
        else:
            asks = ask if asking and at_terminal() else None
            loaded = load_workspace(file, project=self.folder(), ask=asks, tolerant=tolerant)

        if asking:
            if loaded.untrusted is not None:
                report(loaded.untrusted.told(anywhere=not at_terminal()))
            for line in (*loaded.refused, *loaded.warnings):
                report(line)

        complete = self._override(loaded)
        if asking:
            self._loaded.append(complete)

        return complete

    def _override(self, loaded: Configuration) -> Configuration:
        """Return the configuration from the files, overridden by these options."""
        files = [file.expanduser().absolute() for file in self.tools]
        for file in files:
            if not file.is_file():
                raise UsageError(f"--tools: {file} is not a file")

        changes: dict[str, Any] = {
            "logs": _log_folder(),
            "store": self.place or loaded.store or default_store(),
            "tools": tuple(dict.fromkeys([*loaded.tools, *map(str, files)])),
        }
        if loaded.untrusted is not None and self.place is not None:
            # These options choose the store, whatever the file says about it.
            keys = tuple(key for key in loaded.untrusted.keys if key != "store")
            changes["untrusted"] = replace(loaded.untrusted, keys=keys)

        if self.allow_all:
            changes["approval"] = "allow_all"
            changes["also"] = ()

        return loaded.model_copy(update=changes)


def _log_folder() -> Path:
    """Return the folder for server logs in the user's state folder."""
    import platformdirs

    return platformdirs.user_state_path("ideabridge") / "logs"


def _merged(before: Options, after: dict[str, Any]) -> Options:
    """Return the options before the command, overridden by the options after the command."""
    tools = cast("list[Path]", after.pop("tools", None) or [])
    changes = {name: value for name, value in after.items() if value not in (None, False)}
    return replace(before, **changes, tools=(*before.tools, *tools))


_Command = Callable[..., int | None] | Callable[..., Coroutine[Any, Any, int | None]]


def command(*names: str) -> Callable[[_Command], Callable[..., None]]:
    """Add the shared options in `names` to a command, which receives them as a single argument,
    `options`. Turn the command's errors into exit codes.

    The command returns an exit code, or None for 0. It can be a coroutine function.
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
                try:
                    import anyio

                    return anyio.run(lambda: result)
                finally:
                    # If Ctrl-C is pressed during the import, the coroutine never begins, and Python
                    # would warn about it.
                    result.close()

            code = guarded(work, json=options.json)
            if code != ExitCode.DONE:
                raise typer.Exit(code)

        parameters = [context, *own, *added]
        for parameter in parameters:
            set_completion(parameter.annotation)

        wrapper.__dict__["__signature__"] = inspect.Signature(parameters)
        wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapper

    return decorate


_UNUSABLE: Final = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ELOOP, errno.EROFS)
"""Errors caused by a path itself rather than by a bug."""

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def guarded(work: Callable[[], int | None], *, json: bool = False) -> int:
    """Run `work` and return its exit code. Report errors on standard error and, with `json`, also
    as an object on standard output.
    """
    try:
        return int(work() or 0)
    except (typer.Exit, typer.Abort, SystemExit):
        raise
    except BaseException as error:
        if all(isinstance(leaf, BrokenPipeError) for leaf in leaves(error)):
            # Nobody is reading the output any more, which is not an error.
            drop_output()
            return ExitCode.DONE

        failure = _failure_of(error)
        if failure.code != ExitCode.CANCELLED:
            if os.environ.get("IDEABRIDGE_TRACEBACK"):
                raise
            report(failure.message)

        if json:
            print_failure(failure.message, failure.kind, failure.code)

        return failure.code


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a command failed, in a form for people and programs."""

    code: ExitCode
    kind: str
    message: str


def _failure_of(error: BaseException) -> _Failure:
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves(error)):
        return _Failure(ExitCode.CANCELLED, "Stopped", "stopped by Ctrl-C")

    if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
        drop_output()
        message = f"the output cannot be written: {error.strerror}"
        return _Failure(ExitCode.FAILED, "OutputError", message)

    if isinstance(error, OSError) and error.filename is not None and error.errno in _UNUSABLE:
        message = f"{Path(str(error.filename)).absolute()} cannot be used: {error.strerror}"
        return _Failure(ExitCode.USAGE, "FileError", message)

    known = own_error(error)
    if known is not None:
        return _Failure(exit_code(known), type(known).__name__, str(known))

    first = next(leaves(error))
    message = f"internal error: {type(first).__name__}: {first}".replace("\n", " ")
    message += " (IDEABRIDGE_TRACEBACK=1 shows where)"
    return _Failure(ExitCode.INTERNAL, "InternalError", message)
