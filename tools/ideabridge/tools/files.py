"""Python files of tools, named on the command line or in the configuration (DESIGN 2)."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from ideabridge.tools.activity import Activity, definition_of
from ideabridge.tools.errors import ToolDefinitionError, ToolFileError
from ideabridge.tools.tool import Tool
from ideabridge.tools.toolbox import Toolbox


def load_tool_file(path: str | Path, digest: str | None = None) -> Toolbox:
    """Run a Python file and collect the tools in it.

    Collected are, from the file's top level: functions decorated by `@tool` that it defines (or names in `__all__`),
    and every Tool, Activity and Toolbox. The file runs as a module of its own, afresh each time; what it imports from
    its own folder is found, after everything installed. What it prints goes to standard error: standard output may be
    a protocol's.

    Args:
        path: the file; it is trusted, for it is code.
        digest: the SHA-256 in hex that it must have; None: any.

    Raises:
        ToolFileError: it cannot be read or run, is another one, or holds no tool; one line with file, line and cause.
    """
    file = Path(path)
    try:
        source = file.read_bytes()
    except OSError as error:
        raise ToolFileError(f"{file}: cannot be read: {error.strerror or error}") from None
    if digest is not None and hashlib.sha256(source).hexdigest() != digest:
        raise ToolFileError(f"{file}: is not the file that was trusted; run `ideabridge trust` to look at it")
    module = _run(file.resolve(), source)
    toolbox = Toolbox()
    exported = getattr(module, "__all__", ())
    for name, value in list(vars(module).items()):
        if isinstance(value, Tool | Activity):
            toolbox.add(value)
        elif isinstance(value, Toolbox):
            toolbox.update(value)
        else:
            definition = definition_of(value)
            if definition and (getattr(value, "__module__", None) == module.__name__ or name in exported):
                toolbox.add(definition.tool, definition.activity)
    if not toolbox.tools and not toolbox.activities:
        raise ToolFileError(f"{file}: defines no tools; decorate a function with @tool from ideabridge.tools")
    return toolbox


def _run(file: Path, source: bytes) -> ModuleType:
    name = f"_ideabridge_tools_{hashlib.sha256(str(file).encode('utf-8', 'replace')).hexdigest()[:16]}"
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(file))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(file)
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    before = sys.modules.get(name)
    # Annotations are looked up by the module's name, so it is known before it runs.
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
        # A definition that is wrong says itself where it stands.
        where = file if isinstance(error, ToolDefinitionError) else f"{file}{_line(error, file)}"
        raise ToolFileError(f"{where}: {_cause(error)}") from None
    return module


def _line(error: BaseException, file: Path) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f", line {error.lineno}" if error.lineno else ""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f", line {lines[-1]}" if lines else ""


def _cause(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    text = " ".join(str(error).split())
    if isinstance(error, ToolDefinitionError):
        return text[:500]
    return f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__
