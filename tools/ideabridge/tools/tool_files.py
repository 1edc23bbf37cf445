"""Load Python files whose top level defines tools, activities and message handlers.

`load_tool_file` runs a file. `load_tool_files_anew` runs files from one folder again, while calls
might still be running code from an earlier load: a file and the modules in its folder become new
module objects, and the old module objects are left unchanged.

One process can have tool files from several independent folders. Therefore, while a file is
running, only modules from its own folder can be imported, even if a module in another folder has
the same name.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Generator, Iterable
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType
from typing import Final

from ideabridge.tools.errors import ToolDefinitionError, ToolFileBusyError, ToolFileError
from ideabridge.tools.message import handled_by
from ideabridge.tools.tool import Activity, Tool, definition_of
from ideabridge.tools.toolbox import Toolbox

_TOOL_FILE_NAME: Final = "_ideabridge_tools_"


def load_tool_file(path: str | Path, digest: str | None = None) -> Toolbox:
    """Run a Python file and return the tools and message handlers at its top level. Its code must
    be trusted.

    The result contains every Tool, Activity and Toolbox, and every function decorated with `@tool`
    or `@message_handler`, that the file defines or names in `__all__`. The file runs as a new
    module each time. It can import modules from its folder, but installed modules take precedence.
    Everything that it prints goes to standard error, because standard output might be used for a
    protocol. If `digest` is set, it must be the SHA-256 of the file (in hex).

    Raises:
        ToolFileError: the file cannot be read or run, has a different digest, or defines no tool.
            The message is one line with file, line and cause.
    """
    file = Path(path)
    try:
        source = file.read_bytes()
    except OSError as error:
        raise ToolFileError(f"{file} cannot be read: {error.strerror or error}") from None

    if digest is not None and hashlib.sha256(source).hexdigest() != digest:
        raise ToolFileError(
            f"{file} has changed since it was trusted; run `ideabridge trust` to review it"
        )

    module = _run(file.resolve(), source)
    return _tools_of(module, file)


def _tools_of(module: ModuleType, file: Path) -> Toolbox:
    toolbox = Toolbox()
    exported = getattr(module, "__all__", ())
    for name, value in list(vars(module).items()):
        if isinstance(value, Tool | Activity):
            toolbox.add(value)
        elif isinstance(value, Toolbox):
            toolbox.update(value)
        else:
            definition = definition_of(value)
            kind = handled_by(value)
            if getattr(value, "__module__", None) != module.__name__ and name not in exported:
                continue
            if definition is not None:
                toolbox.add(definition.tool, definition.activity)
            elif kind is not None:
                toolbox.add(value)

    if not toolbox.tools and not toolbox.activities and not toolbox.handlers:
        raise ToolFileError(
            f"{file} defines no tools; decorate a function with @tool from ideabridge.tools"
        )

    return toolbox


def _run(file: Path, source: bytes) -> ModuleType:
    digest = hashlib.sha256(str(file).encode("utf-8", "replace")).hexdigest()
    name = f"{_TOOL_FILE_NAME}{digest[:16]}"
    module = ModuleType(name)
    module.__file__ = str(file)
    if not _loading.acquire(timeout=_WAITS_SECONDS):
        raise ToolFileBusyError(f"{file}: {_STILL_LOADING}")
    try:
        with _alone(file.parent):
            _execute(file, source, module)
    finally:
        _loading.release()
    return module


@contextlib.contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Within this context, modules can be imported from `folder`, but not from other folders with
    tool files.
    """
    others = [Path(other) for other in _foreign if other != str(folder)]
    hidden = _helpers(others)
    for name in hidden:
        del sys.modules[name]

    for name, helper in _known.get(str(folder), {}).items():
        sys.modules.setdefault(name, helper)

    _foreign.setdefault(str(folder), frozenset(sys.modules))
    path = [place for place in sys.path if Path(place) not in others]
    before = list(sys.path)
    if str(folder) not in path:
        path.append(str(folder))
        before.append(str(folder))

    sys.path[:] = path
    # Python might have listed the folder just before a module was written into it. Forget only this
    # list, because `invalidate_caches` would make Python list every folder of `sys.path` again.
    sys.path_importer_cache.pop(str(folder), None)
    try:
        yield
    finally:
        added = [place for place in sys.path if place not in path]
        sys.path[:] = [*before, *added]
        _known[str(folder)] = _helpers([folder])
        for name, helper in hidden.items():
            # If both folders have a module with this name, keep the one that is registered now,
            # because each file already holds a reference to its own.
            sys.modules.setdefault(name, helper)


def _execute(file: Path, source: bytes, module: ModuleType) -> None:
    name = module.__name__
    before = sys.modules.get(name)
    # Register the module before running it, because its annotations are evaluated in the module
    # that has this name.
    sys.modules[name] = module
    try:
        code = compile(source, str(file), "exec", dont_inherit=True)
        with contextlib.redirect_stdout(sys.stderr):
            exec(code, module.__dict__)  # noqa: S102 - running the user's own file is what this is for
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a file of tools can fail in any way
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        # A message about a wrong definition already says where the definition is.
        if isinstance(error, ToolDefinitionError):
            where = file
        else:
            where = f"{file}{_line(error, file)}"
        raise ToolFileError(f"{where}: {_cause(error)}") from None


def _line(error: BaseException, file: Path) -> str:
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(file)
    ]
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines = [error.lineno]
    return f", line {lines[-1]}" if lines and lines[-1] else ""


def _cause(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    text = " ".join(str(error).split())
    if isinstance(error, ToolDefinitionError):
        return text[:500]
    return f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__


# -- loading anew ----------------------------------------------------------------------------------

_foreign: Final[dict[str, frozenset[str]]] = {}
"""The names of the modules that were imported before the first tool file of a folder, keyed by
folder. These modules are shared with the rest of the process, so they are never imported again.
"""

_known: Final[dict[str, dict[str, ModuleType]]] = {}
"""The modules that tool files have imported from their folder, by name, keyed by folder."""

_loading: Final = threading.RLock()
"""Held while tool files are loaded, because `sys.modules` and `sys.stdout` belong to the whole
process.
"""

_WAITS_SECONDS: Final = 5.0
"""How long, in seconds, a load waits for an earlier load to end."""

_STILL_LOADING: Final = (
    "waits for a tool file that is still being imported; if that import never ends, restart "
    "ideabridge"
)


def is_loading() -> bool:
    """Return whether another thread is importing tool files."""
    if not _loading.acquire(blocking=False):
        return True

    _loading.release()
    return False


def load_tool_files_anew(
    files: Iterable[tuple[str, str | None]],
    is_wanted: Callable[[], bool] = lambda: True,
    seconds: float = 0.0,
) -> dict[str, Toolbox | ToolFileError]:
    """Run files from one folder again, together with the modules that they import from this folder.

    A file that fails does not affect the others. If all files fail, the modules in the folder are
    left unchanged.

    Args:
        files: the path of each file, and the digest that it must have; see `load_tool_file`.
        is_wanted: returns whether the caller is still waiting for the result. If not, the old
            modules in the folder are restored at the end.
        seconds: the time to wait for an earlier load that has not ended.

    Returns:
        The tools of each file, or the error that prevented it from being loaded, keyed by path.
    """
    files = list(files)
    if not _loading.acquire(timeout=seconds):
        return {path: ToolFileBusyError(f"{path}: {_STILL_LOADING}") for path, _ in files}

    try:
        folders = {Path(path).resolve().parent for path, _ in files}
        before = _take_out(folders)
        loaded: dict[str, Toolbox | ToolFileError] = {}
        for path, digest in files:
            try:
                loaded[path] = load_tool_file(path, digest)
            except ToolFileError as error:
                loaded[path] = error

        if not is_wanted() or all(isinstance(tools, ToolFileError) for tools in loaded.values()):
            _take_out(folders)
            sys.modules.update(before)
            for folder in folders:
                _known[str(folder)] = _helpers([folder])
        return loaded
    finally:
        _loading.release()


def helpers_of(folder: Path) -> list[Path]:
    """Return the files of the modules that tool files have imported from the given folder."""
    helpers = [*_known.get(str(folder), {}).values(), *_helpers([folder]).values()]
    files = dict.fromkeys(getattr(module, "__file__", None) for module in helpers)
    return [Path(file) for file in files if file is not None]


def _take_out(folders: Collection[Path]) -> dict[str, ModuleType]:
    """Remove the modules that belong to tool files in these folders from `sys.modules`, so that
    they are imported again. Return the removed modules.
    """
    helpers = _helpers(folders)
    for folder in folders:
        # A module from a different folder might since have replaced one of these modules.
        helpers = {**_known.pop(str(folder), {}), **helpers}

    for name, module in helpers.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
        file = getattr(module, "__file__", None)
        if file is not None:
            # Remove the stored bytecode, because Python recognises a changed source only by its
            # size and by its time in whole seconds, and both can stay the same.
            with contextlib.suppress(OSError, NotImplementedError):
                Path(cache_from_source(file)).unlink()

    importlib.invalidate_caches()
    return helpers


def _helpers(folders: Collection[Path]) -> dict[str, ModuleType]:
    """Return the modules that tool files have imported from these folders, keyed by name.

    A deeper module, such as one in a virtual environment, counts only if its top-level package is
    directly in the folder.
    """
    if not folders:
        # Return early, because looking up every imported module on disk would take longer than
        # loading most tool files.
        return {}

    places = {str(folder) for folder in folders}
    added = list(sys.modules)
    for place in places:
        foreign = _foreign.get(place, frozenset())
        added = [name for name in added if name not in foreign]

    # Use `get`, because another thread might import or remove modules in the meantime.
    modules = {name: sys.modules.get(name) for name in added}
    own = {
        name
        for name, module in modules.items()
        if "." not in name and not name.startswith(_TOOL_FILE_NAME) and _places_of(module) & places
    }
    return {
        name: module
        for name, module in modules.items()
        if module is not None and name.partition(".")[0] in own
    }


def _places_of(topmost: ModuleType | None) -> set[str]:
    """Return the folders that contain a module or package."""
    if topmost is None:
        return set()
    packages = [str(path) for path in getattr(topmost, "__path__", ())]
    file = getattr(topmost, "__file__", None)
    places = packages or ([file] if isinstance(file, str) else [])
    return {str(Path(place).resolve().parent) for place in places}
