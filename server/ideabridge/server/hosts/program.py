"""Find the command that a host uses to start ideabridge.

The command still works after the caches on this machine are cleared, and on the other machines of a
team that shares the host's file.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import platformdirs

from ideabridge.tools.encoding import JSONObject, decode, object_or_empty

_NAME: Final = "ideabridge"


@dataclass(frozen=True, slots=True)
class Program:
    """A command that starts ideabridge.

    Attributes:
        words: the program and its first arguments.
        note: what the user must do before the command works, or "" if it already works.
    """

    words: tuple[str, ...]
    note: str = ""


def this_program() -> list[str]:
    """Return the command that starts this ideabridge, as a list of words with an absolute path.

    Symbolic links are not resolved, because a link that a tool installer creates still works after
    an upgrade.
    """
    names = [_NAME]
    if sys.platform == "win32":
        names = [f"{_NAME}.exe", _NAME]

    started = Path(sys.argv[0])
    if started.name in names or started.stem == _NAME:
        command = shutil.which(str(started))
        if command:
            return [str(Path(command).absolute())]

    for name in names:
        beside = Path(sys.executable).parent / name
        if beside.is_file():
            return [str(beside.absolute())]

    # -P is needed because a host starts this program in the folder of a project, and files in that
    # folder must not take the place of Python modules.
    return [sys.executable, "-P", "-m", "ideabridge.server"]


def lasting_program(*, shared: bool) -> Program:
    """Return the command to write into a host's file.

    Args:
        shared: whether a team shares the file, so that it must not contain paths on this machine.
    """
    prefix = Path(sys.prefix)
    if _is_cached(prefix):
        return _runner(prefix, shared=shared)
    if not shared:
        return Program(tuple(this_program()))

    if shutil.which(_NAME) is not None:
        return Program((_NAME,))
    if shutil.which("uvx") is not None:
        return Program(
            ("uvx", "--from", _NAME, _NAME),
            "`ideabridge` is not on your PATH, so the entry starts the published one with uvx",
        )
    return Program(
        (_NAME,),
        "`ideabridge` is not on your PATH, so the client cannot start it yet. A team shares this "
        "file, so it must not contain a path of this machine: install ideabridge with `pipx "
        "install ideabridge`, or use --scope user",
    )


def _is_cached(prefix: Path) -> bool:
    """Return whether this program's environment is in a cache that can be cleared, as the
    environments of `uvx` and `pipx run` are.
    """
    caches = [platformdirs.user_cache_path()]
    # Other caches have a file with this name in them (Cache Directory Tagging Specification).
    caches += [folder for folder in prefix.parents if (folder / "CACHEDIR.TAG").is_file()]
    return any(prefix.is_relative_to(cache) for cache in caches) or ".cache" in prefix.parts


def _runner(prefix: Path, *, shared: bool) -> Program:
    """Return the command that recreates a cached environment."""
    runner = "pipx" if "pipx" in prefix.parts else "uvx"
    path = shutil.which(runner)
    program = runner if shared or path is None else str(Path(path).absolute())
    source, note = _source(shared=shared)
    if path is None:
        note = (
            f"{prefix} is in a cache, and `{runner}`, which creates it again, is not on your PATH: "
            "install it, or install ideabridge with `pipx install ideabridge` and run this again"
        )

    if runner == "pipx":
        spec = ("--spec", source) if source != _NAME else ()
        return Program((program, "run", *spec, _NAME), note)
    return Program((program, "--from", source, _NAME), note)


def _source(*, shared: bool) -> tuple[str, str]:
    """Return where the environment was installed from, in the notation of the runners, and a
    note.
    """
    origin = _origin()
    url = origin.get("url")
    if not isinstance(url, str):
        return _NAME, ""

    repository = origin.get("vcs_info")
    if isinstance(repository, dict):
        package = f"{repository.get('vcs')}+{url}"
        revision = repository.get("requested_revision") or repository.get("commit_id")
        if revision:
            package = f"{package}@{revision}"
        return package, ""
    if not url.startswith("file:"):
        return url, ""
    if shared:
        return _NAME, f"The entry starts the published ideabridge, not the one from {url}"
    return url, ""


def _origin() -> JSONObject:
    """Return the content of `direct_url.json`, which says where this package was installed from
    (PEP 610). The object is empty if the package comes from an index.
    """
    try:
        text = distribution(_NAME).read_text("direct_url.json")
    except PackageNotFoundError:
        return {}

    origin = decode(text, what="direct_url.json") if text else {}
    return object_or_empty(origin)
