"""The command `ideabridge trust`, which shows what a project file does, trusts its exact content,
or revokes the trust.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ideabridge.server.cli.console import ExitCode, UsageError, at_terminal, print_json, report, say
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.trust_dialogue import ask, show_standing, standing_json, variables_named

if TYPE_CHECKING:
    from ideabridge.bridge.configuration import Configuration
    from ideabridge.bridge.trust import ProjectTrust


@command("config", "project", "json")
def trust(
    options: Options,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="The folder that contains the ideabridge.json. Default: the project.",
        ),
    ] = None,
    shows: Annotated[
        bool,
        typer.Option(
            "--show",
            help="Only show what it would do and what has changed. Exit code 0: it is trusted.",
        ),
    ] = False,
    hash_to_trust: Annotated[
        str | None,
        typer.Option(
            "--hash",
            metavar="HASH",
            help="Trust it without a question if this is its hash (see --show).",
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="NAME",
            help=("Allow it to use this environment variable; may be repeated."),
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="FILE",
            help="This file is only data, so its content may change; may be repeated.",
        ),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Withdraw the trust and the variables.")
    ] = False,
) -> int:
    """Show what a project's ideabridge.json would do, ask, and trust exactly this content.

    Trust covers the file and the files that it names as tools, commands and arguments, but not the
    files that those load. Trust ends when one of the covered files changes, unless you confirm that
    the file is only data of a server.
    """
    from ideabridge.bridge.configuration import is_user_file, user_configuration
    from ideabridge.bridge.trust import FILE_NAME, allow_variables, project_trust

    names = frozenset(env or ())
    _check_options(shows=shows, remove=remove, trusts=bool(names or hash_to_trust), data=bool(data))
    place = _project_folder(options, folder)
    file = (options.config or place / FILE_NAME).absolute()
    if remove:
        return _withdraw(file)
    if not file.is_file():
        raise UsageError(f"{file} does not exist")
    if is_user_file(file):
        say(f"{file} is your own configuration; it does not need to be trusted")
        return ExitCode.DONE

    standing, parsed = _read(file)
    user = user_configuration(place)
    confirmed = _confirmed(standing, data)
    is_trusted = standing.is_trusted and confirmed == standing.data
    if shows:
        show_standing(standing, parsed, user, confirmed, as_json=options.json)
        return ExitCode.DONE if is_trusted else ExitCode.FAILED

    if not is_trusted:
        if hash_to_trust is not None:
            _trust_hash(standing, confirmed, hash_to_trust)
        elif not _ask(standing, parsed, user, confirmed):
            say("nothing was trusted", "yellow")
            return ExitCode.FAILED

    if names:
        allow_variables(file, names)

    now = project_trust(standing.found)
    if options.json:
        print_json(standing_json(now, parsed, user, now.data))
    else:
        _say_trusted(now, parsed, names)

    return ExitCode.DONE


def ask_about(file: Path, project: Path) -> bool:
    """Ask the person at the terminal whether to trust the current content of a project file, unless
    it is already trusted. Return whether it is trusted afterwards.
    """
    from ideabridge.bridge.configuration import user_configuration

    standing, parsed = _read(file)
    if standing.is_trusted:
        return True
    return ask(standing, parsed, user_configuration(project), standing.data)


def _check_options(*, shows: bool, remove: bool, trusts: bool, data: bool) -> None:
    """Raise `UsageError` if the options contradict each other."""
    if sum((shows, remove, trusts)) > 1:
        raise UsageError("--show, --remove, and --hash or --env cannot be combined")
    if data and remove:
        raise UsageError(
            "--remove revokes everything; --data requires --show, --hash or a terminal"
        )


def _read(file: Path) -> tuple[ProjectTrust, Configuration]:
    """Read a project file, and report any problem with `trust.json`."""
    from ideabridge.bridge.configuration import read_project_file
    from ideabridge.bridge.trust import project_trust

    project_file, parsed = read_project_file(file, file.parent)
    standing = project_trust(project_file)
    if standing.problem is not None:
        report(standing.problem)
    return standing, parsed


def _project_folder(options: Options, folder: Path | None) -> Path:
    """Return the project folder from the argument, or from the options if the argument is None."""
    if folder is None:
        return options.folder()
    if options.config is not None:
        raise UsageError("give a folder or --config, not both")
    return folder.expanduser().absolute()


def _ask(
    standing: ProjectTrust, parsed: Configuration, user: Configuration, confirmed: frozenset[str]
) -> bool:
    """Ask the person at the terminal whether to trust a project file. If the answer is yes, store
    it.
    """
    if not at_terminal():
        # A script that could trust the current content would also trust the next change, which
        # nobody has seen.
        raise UsageError(
            "a person must review it at a terminal. `ideabridge trust --show` shows what it would "
            "do and its hash; `ideabridge trust --hash HASH` trusts exactly that"
        )

    return ask(standing, parsed, user, confirmed)


def _withdraw(file: Path) -> ExitCode:
    """Revoke the trust in a file, and its permission to use variables."""
    from ideabridge.bridge.trust import forget

    if forget(file):
        say(f"{file} is no longer trusted", "green")
        return ExitCode.DONE

    say(f"{file} is not trusted")
    return ExitCode.FAILED


def _trust_hash(standing: ProjectTrust, confirmed: frozenset[str], shown_hash: str) -> None:
    """Trust a project file without asking.

    Raises:
        UsageError: the file, or a file that it names, has changed since the hash was shown.
    """
    from ideabridge.bridge.trust import keep_trusted

    if shown_hash.strip().lower() != standing.found.hash(confirmed):
        raise UsageError(
            f"--hash: {standing.found.file} has changed since it was shown; review it again with "
            "--show and the same --data"
        )

    keep_trusted(standing.found, confirmed)


def _say_trusted(standing: ProjectTrust, parsed: Configuration, names: frozenset[str]) -> None:
    """Report that a file is trusted, which variables it is now allowed to use (`names`), and which
    ones it is still not allowed to use.
    """
    say(f"{standing.found.file} is trusted as it is now", "green")
    if names:
        say(f"it is allowed to use {', '.join(sorted(names))}", "green")

    for name in variables_named(parsed):
        if name not in standing.variables:
            say(standing.variables.refusal(name), "yellow")


def _confirmed(standing: ProjectTrust, named: list[str] | None) -> frozenset[str]:
    """Return the paths given with `--data`, as `--show` prints them. If the option is not set,
    return the paths that the person has already confirmed as data.

    Raises:
        UsageError: a file cannot be data.
    """
    if not named:
        return standing.data

    possible = {data_file.path: path for path, data_file in standing.found.data_files.items()}
    confirmed: set[str] = set()
    for text in named:
        if text in standing.found.data_files:
            path = text
        else:
            path = possible.get(Path(text).expanduser().absolute())
        if path is None:
            names = ", ".join(standing.found.data_files) or "none"
            raise UsageError(
                f"--data: {text} is not a file that can be data: no server names it in "
                "a place for data, or it may be code or a configuration. Files that "
                f"can be data here: {names}"
            )

        confirmed.add(path)

    return frozenset(confirmed)
