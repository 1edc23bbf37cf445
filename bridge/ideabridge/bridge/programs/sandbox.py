"""Run the text of programs in worker processes with Monty, an interpreter for a subset of Python.

Theory of operation. `Sandbox` owns the workers. A `ProgramSession` runs one program once. It uses
its own thread, because each step of the interpreter blocks until the worker answers. The thread
passes `Step`s to the event loop, in order:

    step         meaning                                         what follows
    Called       the program calls a tool, and does not await    the program continues
                 it yet
    Waits        every task of the program waits for a result    the session continues with `answer`
    PrintedText  the program prints                              the program continues
    Ended        the value of its last expression                nothing
    Failed       an exception that nothing caught, a malformed   nothing
                 program, a limit, or a dead worker

A program does not have a real clock, true randomness, files or a network: the clock is frozen,
`random` is seeded, and any other request to the system fails inside the program. Two sessions of
the same program therefore take the same steps if they get the same results in the same order. This
makes it possible to resume a run: its program runs again, with the journaled results.

The interpreter is imported, and the first worker starts, when the first program runs.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import queue
import re
import signal
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import anyio

from ideabridge.bridge.errors import ProgramError
from ideabridge.bridge.programs.awaiting import Unawaited, unawaited
from ideabridge.bridge.programs.handles import (
    CLASS,
    HINT,
    READ,
    SHOWN,
    STUB,
    Handle,
    handed,
    read_part_of,
    written,
)
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import joined, size_text
from ideabridge.tools.syntax import parse_python
from ideabridge.tools.turns import FairPlaces, HeldProcess

if TYPE_CHECKING:
    from pydantic_monty import ExternalModule, Monty, MontySession, SyncSnapshot

LONGEST_PROGRAM: Final = 100_000
"""The maximum number of characters in a program."""

PRINTED: Final = 64 * 1024
"""The maximum number of characters of printed text that are kept."""

TURN_SECONDS: Final = 5.0
"""The maximum time, in seconds, for which a program can compute between two waits."""

PROGRAM_MEMORY: Final = 256 * 1024 * 1024
"""The maximum memory of a program, in bytes."""

RECURSION: Final = 500
READS: Final = 20_000
"""The maximum number of times that a program can read part of a result."""

_CHECK_SECONDS: Final = 2.0
"""The maximum time, in seconds, that checking a program can take, including what the program
computes before its first call.
"""

_WORKERS: Final = 16
SESSIONS: Final = 12
"""The maximum number of sessions that hold a worker at the same time. The remaining workers are
reserved for checking programs.
"""

_AGAIN: Final = 0.002
"""The approximate time, in seconds, that each call adds when a program runs again."""

_CHECKED: Final = 256
"""The number of programs whose check results the sandbox remembers."""

_MESSAGE: Final = 4_000
"""The maximum number of characters in an error."""

ASK: Final = "ask"
"""The function that asks the mind."""


@dataclass(frozen=True, slots=True, order=True)
class CallSite:
    """Where a call is in the text of a program: the line, from 1, and the number of bytes before
    the call in that line.

    Line 0 means that the interpreter does not report it.
    """

    line: int
    column: int

    def to_json(self) -> JSON:
        """Return `[line, column]`."""
        return [self.line, self.column]


@dataclass(frozen=True, slots=True)
class Called:
    """A call that the program makes.

    Attributes:
        number: the number of the call in its session.
        call: the call, with escaped strings, and with references in place of handles.
        site: where the call is in the text.
    """

    number: int
    call: JSONObject
    site: CallSite


@dataclass(frozen=True, slots=True)
class Waits:
    """The program is waiting for the results of calls."""


@dataclass(frozen=True, slots=True)
class PrintedText:
    """Text that the program has printed."""

    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The value of the program's last expression, in the form that calls use: with escaped strings,
    and with references in place of handles.
    """

    output: JSON


FailureKind: TypeAlias = Literal["malformed", "exception", "limit", "crashed", "missing"]


@dataclass(frozen=True, slots=True)
class Failed:
    """The end of a program that returned no value.

    Attributes:
        kind: `malformed` if the program was refused before any of it ran, `exception` if an
            exception was not caught, `limit` if the program reached a limit of time, memory or
            calls, `crashed` if its worker died, `missing` if the interpreter is missing.
        message: the reason, including the line.
    """

    kind: FailureKind
    message: str


Step: TypeAlias = Called | Waits | PrintedText | Ended | Failed


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a call: a value, or an exception of a built-in type."""

    value: JSON = None
    exception: Literal["RuntimeError", "PermissionError"] | None = None
    message: str = ""


@dataclass(frozen=True)
class ImportedModule:
    """A module that programs can import.

    Attributes:
        functions: the names of the module's functions.
        stub: returns the text of the module's `.pyi` file. Called when a program imports the
            module.
        reads: whether the module also has the function that reads large results; see `handles.py`.
    """

    functions: Sequence[str]
    stub: Callable[[], str]
    reads: bool = False


@dataclass(frozen=True)
class Setting:
    """The modules, names and values that are available to a program when it begins.

    Attributes:
        modules: the modules, keyed by the names under which they can be imported.
        servers: the names of these modules, keyed by the names after `from servers import`. For
            example, a server called `time` is imported this way, because the interpreter has its
            own `time`.
        values: the values of global names, such as `input`.
        call: returns the call for the given module, function and arguments. The module is "" for
            `ask` and for calls that sleep. Raises `ProgramError` if there is no such call.
        now: the time of the frozen clock, in seconds since 1970.
        seed: the seed of the module `random`.
    """

    modules: Mapping[str, ImportedModule]
    servers: Mapping[str, str]
    values: JSONObject
    call: Callable[[str, str, JSONObject], JSONObject]
    now: float
    seed: str


@dataclass(frozen=True)
class AbsentServers:
    """Why a module that a program imports might be missing.

    Attributes:
        servers: sentences about why configured servers are not up, keyed by the names under which
            programs import them.
        why: other reasons, as sentences, each preceded by a space.
    """

    servers: Mapping[str, str] = field(default_factory=dict[str, str])
    why: str = ""


# Declare this exception, because the interpreter's type checker does not know it.
_GLOBALS: Final = """from typing import Any
class PermissionError(OSError): ...
input: dict[str, Any]
state: dict[str, Any]
async def ask(text: str, data: Any = None, *, schema: dict[str, Any] | None = None) -> Any: ...
"""


@cache
def monty() -> Any:
    """Return the interpreter's library.

    Raises:
        ProgramError: the interpreter is not installed.
    """
    try:
        import pydantic_monty
    except ImportError as error:
        raise ProgramError(
            f"programs need pydantic-monty, which cannot be imported: {error}"
        ) from None
    return pydantic_monty


def interpreter() -> str:
    """Return the name and version of the interpreter, as the journal records it."""
    return f"monty {monty().__version__}"


class Sandbox:
    """The worker processes that run programs. The first worker starts with the first program.

    `absent` returns why modules might be missing for a caller, which is used in errors about
    imports.
    """

    def __init__(
        self, absent: Callable[[str], AbsentServers] = lambda _caller: AbsentServers()
    ) -> None:
        self._absent = absent
        self._pool: Monty | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._checked: dict[tuple[str, tuple[str, ...], tuple[str, ...]], str] = {}
        # The sessions that have a worker.
        self._held: set[ProgramSession] = set()
        # A single slot, held by the session that is next in line for a worker. Callers take turns.
        self._next = FairPlaces(1)
        self._checks = FairPlaces(_WORKERS - SESSIONS)
        # Set when a session starts to wait or no longer needs a worker.
        self._changed = asyncio.Event()

    async def enter(self, session: ProgramSession) -> None:
        """Wait until a session can take a worker, or is closed.

        A program can wait for a call that another program answers. Therefore, if every worker is
        taken, a waiting session gives up its worker and runs again later. It does so only after it
        has waited for as long as running again would take, so this at most doubles the work.
        """
        async with self._next.place():
            while not session.is_closed and len(self._held) >= SESSIONS:
                self._changed.clear()
                waiting = [
                    holder
                    for holder in self._held
                    if holder.on_park is not None and holder.ripens is not None
                ]
                ripe = min(waiting, key=lambda holder: holder.ripens or 0.0, default=None)
                if ripe is None or ripe.on_park is None or ripe.ripens is None:
                    await self._changed.wait()
                elif (left := ripe.ripens - time.monotonic()) > 0:
                    with anyio.move_on_after(left):
                        await self._changed.wait()
                else:
                    self._held.discard(ripe)
                    ripe.on_park()
            self._held.add(session)

    def leave(self, session: ProgramSession) -> None:
        """Record that a session no longer needs a worker."""
        self._held.discard(session)
        self.note_change()

    def note_change(self) -> None:
        """Record that a session is waiting or was closed, so that another session can get its
        worker.
        """
        self._changed.set()

    def pool(self) -> Monty:
        """Return the workers. Blocks while they start.

        Raises:
            ProgramError: the interpreter is missing, or the sandbox is closed.
        """
        library = monty()
        with self._lock:
            if self._closed:
                raise ProgramError("the bridge was closed")
            if self._pool is None:
                pool: Monty = library.Monty(min_processes=1, max_processes=_WORKERS)
                self._pool = pool.__enter__()
            return self._pool

    def close(self) -> None:
        """Stop the workers."""
        with self._lock:
            self._closed = True
            pool = self._pool
            self._pool = None
        if pool is not None:
            pool.__exit__(None, None, None)

    async def check(self, program: str, setting: Setting, caller: str = "") -> str | None:
        """Return why a caller's program is malformed, for example because of its syntax, unknown
        names or wrong arguments, or None if it is well formed.

        The program runs up to its first call, which is not made.
        """
        # Use a thread, because creating the types of 500 tools takes 30 ms.
        absent = self._absent(caller)
        problem = await self._checks.run(
            lambda process: self._known_check(program, setting, absent, process)
        )
        return problem or None

    def _known_check(
        self, program: str, setting: Setting, absent: AbsentServers, process: HeldProcess
    ) -> str:
        # Besides the text, a check depends only on the stubs of the imported modules and on the
        # names that the error about an import can list.
        text = prepared(program, setting.servers)
        renamed = {module for server, module in setting.servers.items() if server in text}
        stubs = tuple(
            module.stub()
            for name, module in setting.modules.items()
            if name in text or name in renamed
        )
        key = (
            text,
            stubs,
            (*setting.modules, *setting.servers, *absent.servers.values(), absent.why),
        )
        with self._lock:
            problem = self._checked.get(key)

        if problem is None:
            problem = self._check(program, setting, absent, process)
            with self._lock:
                while len(self._checked) >= _CHECKED:
                    self._checked.pop(next(iter(self._checked)))
                self._checked[key] = problem

        return problem

    def _check(
        self, program: str, setting: Setting, absent: AbsentServers, process: HeldProcess
    ) -> str:
        library = monty()
        if len(program) > LONGEST_PROGRAM:
            return f"the program has {len(program):,} characters; the limit is {LONGEST_PROGRAM:,}"

        calls = _unawaited(program, setting)
        try:
            with (
                _checkout(self.pool(), setting, check=True) as session,
                process.holding(session.worker_pid),
            ):
                snapshot: Any = _start(session, program, setting, lambda _: None)
                while (
                    isinstance(snapshot, library.FunctionSnapshot)
                    and str(snapshot.function_name) in _IMPORTS
                ):
                    snapshot = snapshot.resume_auto()
        except library.MontyTypingError as error:
            functions = {
                function for module in setting.modules.values() for function in module.functions
            }
            text = prepared(program, setting.servers)
            return _certain(str(error), text, functions, setting, absent, calls)
        except library.MontySyntaxError as error:
            return _explained(error)
        except library.MontyRuntimeError as error:
            # Report these errors now, because they mean that the program uses a part of Python that
            # the interpreter does not have.
            if isinstance(error.exception(), ImportError) or _UNSUPPORTED in str(error):
                return _explained(error)
        except library.MontyError:
            # A program that fails only when it runs is not malformed.
            pass

        return _cut(
            "\n".join(f"line {call.line}, column {call.column}: {call.text}" for call in calls)
        )


def _checkout(
    pool: Monty, setting: Setting, *, check: bool, suspensions: int = 1_000
) -> MontySession:
    modules = {name: _factory(name, module) for name, module in setting.modules.items()}
    return pool.checkout(
        script_name="program.py",
        limits={
            "max_suspensions": suspensions,
            "max_turn_duration_secs": _CHECK_SECONDS if check else TURN_SECONDS,
            "max_memory": PROGRAM_MEMORY,
            "max_recursion_depth": RECURSION,
        },
        type_check=check,
        type_check_stubs=_GLOBALS if check else None,
        type_check_format="concise",
        assert_message_annotations=False,
        os_policy={
            "datetime": datetime.fromtimestamp(setting.now, UTC),
            "random_start": {"seed": setting.seed},
            "sleep": "call_host",
        },
        external_modules=modules,
    )


def _factory(name: str, module: ImportedModule) -> Callable[[], ExternalModule]:
    return lambda: _external(name, module)


def _external(name: str, module: ImportedModule) -> ExternalModule:
    members: dict[str, Any] = {function: _function(name, function) for function in module.functions}
    if module.reads:
        members |= {READ: _function(name, READ), CLASS: _handle_class()}
    return monty().ExternalModule(
        members, stubs=module.stub() + STUB if module.reads else module.stub()
    )


@cache
def _handle_class() -> Any:
    return monty().ClassType(Handle)


def _function(module: str, name: str) -> Callable[..., Any]:
    async def function(**_: Any) -> Any:
        """Do nothing. The interpreter needs only the name of this function, and the session makes
        the call.
        """

    function.__name__ = name
    function.__qualname__ = f"{module}.{name}"
    return function


def _start(
    session: MontySession, program: str, setting: Setting, on_print: Callable[[str], None]
) -> SyncSnapshot:
    async def ask(*_: Any, **__: Any) -> Any:
        """Do nothing. The interpreter needs only the name of this function, and the session asks
        the mind.
        """

    def printed(_: str, text: str) -> None:
        on_print(text)

    text = prepared(program, setting.servers)
    return session.feed_start(
        text, inputs=dict(setting.values), external_lookup={ASK: ask}, print_callback=printed
    )


def prepared(program: str, servers: Mapping[str, str]) -> str:
    """Return a program in which each `from servers import NAME` imports the module of that server;
    see `Setting`.

    Line numbers stay the same. Imports of other names are left unchanged, and fail.
    """
    if "servers" not in program:
        return program

    tree = parsed(program)
    if tree is None:
        # Either the interpreter will report the problem, or it accepts more than this version of
        # Python does, such as f"{row["name"]}", which is new in Python 3.12.
        def import_line(match: re.Match[str]) -> str:
            imported = _imported(match[2], servers) or match[0].lstrip()
            return f"{match[1]}{imported}"

        return _IMPORT_LINE.sub(import_line, program)

    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    lines = program.encode().split(b"\n")
    for node in sorted(imports, key=lambda statement: statement.lineno, reverse=True):
        if node.module != "servers" or node.level:
            continue
        if node.end_lineno is None or node.end_col_offset is None:
            continue

        imported = _imported(", ".join(map(ast.unparse, node.names)), servers)
        if imported is not None:
            first = node.lineno - 1
            last = node.end_lineno - 1
            start = lines[first][: node.col_offset]
            end = lines[last][node.end_col_offset :]
            lines[first : last + 1] = [start + imported.encode() + end, *[b""] * (last - first)]

    return b"\n".join(lines).decode()


def _imported(names: str, servers: Mapping[str, str]) -> str | None:
    """Return the statement that imports the modules of some servers, given names such as `time, git
    as g`, or None if one of the names is not a server.
    """
    pairs = [pair.split() for pair in names.split(",")]
    if any(name not in servers for name, *_ in pairs):
        return None

    imports: list[str] = []
    for name, *more in pairs:
        local_name = more[-1] if more else name
        imports.append(f"{servers[name]} as {local_name}")
    return f"import {', '.join(imports)}"


_IMPORT_LINE: Final = re.compile(
    r"^([ \t]*)from[ \t]+servers[ \t]+import[ \t]+(\w+([ \t]+as[ \t]+\w+)?([ \t]*,[ "
    r"\t]*\w+([ \t]+as[ \t]+\w+)?)*)",
    re.MULTILINE,
)


# -- findings of the type checker ------------------------------------------------------------------
# The checker rejects a lot of correct code: `re.search(...).group(1)`, `sum(row["n"] for row in
# rows)` over mixed rows, a tool called with `**arguments`. So a program is rejected only for code
# that fails whenever it runs. Other code that fails raises an exception in the program, and every
# value is validated when its call is made.

_FINDING: Final = re.compile(r"^program\.py:(\d+):(\d+): error\[([\w-]+)\] (.*)$", re.MULTILINE)

_SYNTAX: Final = "invalid-syntax"
_IMPORT: Final = "unresolved-import"

_MOST_NAMED: Final = 20
"""The maximum number of modules that the error about an import names."""

_CERTAIN: Final = frozenset(
    {
        _SYNTAX,
        _IMPORT,
        "missing-argument",
        "parameter-already-assigned",
        "too-many-positional-arguments",
        "unknown-argument",
        "unresolved-reference",
    }
)
"""The rules of the checker that find only code that always fails when it runs."""

_NOT_AWAITED: Final = "`CoroutineType["
_WRONG: Final = re.compile(
    r"Argument to function `(\w+)` is incorrect: Expected `(.*)`, found `(.*)`"
)


def _certain(
    findings: str,
    program: str,
    functions: Collection[str],
    setting: Setting,
    absent: AbsentServers,
    calls: Sequence[Unawaited],
) -> str:
    """Return the findings about code that always fails when it runs, each with its position, or ""
    if there are none.

    Args:
        findings: the output of the checker, one line per finding.
        program: the text of the program.
        functions: the names of the tools.
        setting: contains the modules of the tools.
        absent: why other modules are missing.
        calls: the calls that are not awaited.
    """
    lines = program.splitlines()
    stored = _stored_keys(program)
    certain: list[tuple[int, int, str]] = []
    rows: list[tuple[str, str, str, str]] = _FINDING.findall(findings)
    # If the syntax is wrong, report only that, because the checker then imports no modules and
    # finds fault with every use of one.
    syntax = [row for row in rows if row[2] == _SYNTAX]
    if not syntax:
        certain += [(call.line, call.column, call.text) for call in calls]

    lines_of_calls = {line for line, _, _ in certain}
    for row, column, rule, message in syntax or rows:
        line = int(row)
        place = int(column) - 1
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        if _NOT_AWAITED in message and line in lines_of_calls:
            continue
        if not _is_certain(rule, message, text[place:], functions, stored):
            continue

        missing = _MISSING_MEMBER.search(message)
        if missing is not None:
            message += _about_member(missing[1], missing[2], setting)
        elif rule == _IMPORT:
            message = _failed_import(message, text, setting, absent)
        elif _NOT_AWAITED in message:
            message = (
                f"{message}: the result of a call is not awaited; write `await` before the call"
            )

        certain.append((line, int(column), message))

    return _cut(
        "\n".join(
            f"line {line}, column {column}: {message}" for line, column, message in sorted(certain)
        )
    )


def _is_certain(
    rule: str, message: str, text: str, functions: Collection[str], stored: set[str] | None
) -> bool:
    """Return whether the code of a finding always fails when it runs.

    Args:
        rule: the rule of the checker.
        message: the message of the finding.
        text: the program, from where the finding starts to the end of the line.
        functions: the names of the tools.
        stored: see `_stored_keys`.
    """
    if rule in _CERTAIN or _NOT_AWAITED in message:
        return True
    match rule:
        case "unresolved-attribute":
            return "in union" not in message
        case "unsupported-operator":
            return " | " not in message
        case "invalid-key":
            return stored is not None and not _is_stored(message, stored)
        case "invalid-argument-type":
            return not text.startswith("**") and _never_fits(message, functions)
        case _:
            return False


def _unawaited(program: str, setting: Setting) -> list[Unawaited]:
    """Return the calls in a program that are not awaited, or [] if this Python cannot parse the
    program.
    """
    tree = parsed(prepared(program, setting.servers))
    if tree is None:
        return []
    tools = {
        name: frozenset({*module.functions, READ} if module.reads else module.functions)
        for name, module in setting.modules.items()
    }
    return unawaited(tree, tools, frozenset({ASK}))


def _failed_import(message: str, line: str, setting: Setting, absent: AbsentServers) -> str:
    """Return a message that says why an import fails: the server is not up, or the name is unknown.
    In the second case, the message lists other names.

    Args:
        message: the finding.
        line: the line of the import.
        setting: contains the modules that can be imported.
        absent: why other modules are missing.
    """
    is_from_servers = "`servers`" in message
    if is_from_servers:
        imported = _NAME.findall(line)
    else:
        imported = _IMPORTED_MODULE.findall(message)

    importable = setting.servers if is_from_servers else setting.modules
    away = [
        name
        for name in dict.fromkeys(imported)
        if name in absent.servers and name not in importable
    ]
    if away:
        return "; ".join(f"`{name}` cannot be imported: {absent.servers[name]}" for name in away)

    names = joined(sorted(importable), _MOST_NAMED) or "none"
    label = "the servers are" if is_from_servers else "the modules with tools are"
    reason = f".{absent.why}" if absent.why else ""
    return f"{message}; {label} {names}{reason}"


_MISSING_MEMBER: Final = re.compile(r"Module `(\w+)` has no member `(\w+)`")


def _about_member(name: str, member: str, setting: Setting) -> str:
    """Return a hint to append to the finding that a module lacks a member.

    The hint says either that the server is a different module, because Python has a module with the
    same name, or that the run has other tools of the module. It is "" if the module has no tools.
    """
    of_server = setting.servers.get(name, name)
    if of_server != name and of_server in setting.modules:
        has_member = member in setting.modules[of_server].functions
        if has_member:
            example = f": `import {of_server}`, then `{of_server}.{member}`"
        else:
            example = ""
        return f"; the tools of the server `{name}` are in the module `{of_server}`{example}"

    if name not in setting.modules:
        return ""

    names = joined(sorted(setting.modules[name].functions), _MOST_NAMED) or "none"
    return f": the run does not have this tool; here it has {names}"


_NAME: Final = re.compile(r"\w+")
_IMPORTED_MODULE: Final = re.compile(r"`(\w+)")


def _never_fits(message: str, functions: Collection[str]) -> bool:
    """Return whether the type of an argument rules out every value of the parameter."""
    match = _WRONG.fullmatch(message)
    if match is None or match[1] not in functions:
        return False

    expected = match[2]
    argument = match[3]
    # These might fit after all: a float can be a whole number, a string can be one of those listed,
    # and an object or array can contain parts of any type.
    plain = set(expected.split(" | ")) <= _PLAIN
    return argument.startswith("Literal[") or (plain and argument.partition("[")[0] in _FOUND)


_PLAIN: Final = frozenset({"str", "int", "float", "bool", "None"})
_FOUND: Final = frozenset({"str", "int", "bool", "bytes", "list", "dict", "None"})


def _stored_keys(program: str) -> set[str] | None:
    """Return the keys that a program sets, or None if this Python cannot parse the program.

    They matter because a program can add members to an object in a result, and read them
    afterwards.
    """
    tree = parsed(program)
    if tree is None:
        return None
    stores = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
    )
    return {str(node.slice.value) for node in stores if isinstance(node.slice, ast.Constant)}


def _is_stored(message: str, stored: Collection[str]) -> bool:
    """Return whether the program itself sets the key that a finding calls unknown."""
    key = _UNKNOWN_KEY.match(message)
    return key is not None and key[1] in stored


_UNKNOWN_KEY: Final = re.compile(r'Unknown key "(.*?)" for TypedDict')


def parsed(program: str) -> ast.Module | None:
    """Return the syntax tree of a program, or None if Python cannot parse it."""
    try:
        return parse_python(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


_UNSUPPORTED: Final = "The monty syntax parser does not yet support "

_LIMITS: Final = {
    "turn time": (
        f"time limit exceeded: a program may compute for at most {TURN_SECONDS:g} s "
        "between two calls"
    ),
    "memory": f"memory limit exceeded: a program may use at most {size_text(PROGRAM_MEMORY)}",
}
_LIMIT: Final = re.compile(
    r"\b(turn time|memory) limit exceeded: [\w.]+( bytes)? > [\w.]+( bytes)?"
)


def _explained(error: Any) -> str:
    """Return the text of an interpreter error, including the line of the program."""
    library = monty()
    frames = [
        frame for frame in error.traceback() if frame.filename in ("program.py", "<python-input-0>")
    ]
    where = f"line {frames[-1].line}: " if frames else ""
    kind = "type-msg" if isinstance(error, library.MontyRuntimeError) else "msg"
    text = _LIMIT.sub(lambda match: _LIMITS[match[1]], error.display(kind))
    return _cut(f"{where}{text.replace(_UNSUPPORTED, 'programs do not have ')}")


def _cut(text: str) -> str:
    if len(text) <= _MESSAGE:
        return text
    return f"{text[:_MESSAGE]}... ({len(text):,} characters)"


class ProgramSession:
    """Runs one program once.

    Args:
        sandbox: provides the worker.
        program: the text of the program.
        setting: the modules, names and values available to the program.
        on_steps: called in the event loop with the next steps.
        refer: returns the reference that replaces a handle in calls and outputs.
        calls: the maximum number of calls that the program may make.
        on_park: called when another session needs this session's worker while this session is
            waiting. It closes this session. If None, the session keeps its worker.

    Attributes:
        computes: whether the program might take a step before `answer` is called.
        on_park: see the argument.
        ripens: when a waiting session may give up its worker, by `time.monotonic`, or None while it
            is not waiting.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        program: str,
        setting: Setting,
        on_steps: Callable[[Sequence[Step]], None],
        refer: Callable[[Handle], JSON],
        *,
        calls: int,
        on_park: Callable[[], None] | None = None,
    ) -> None:
        self.computes = True
        self.on_park = on_park
        self.ripens: float | None = None
        self._sandbox = sandbox
        self._program = program
        self._setting = setting
        self._on_steps = on_steps
        self._calls = calls
        self._refer = refer
        # None until the program gets a handle. Until then, no value that it passes can contain one.
        self._handles: Callable[[Handle], JSON] | None = None
        # Parts of results that the program has read but not awaited yet, each with the id of its
        # call.
        self._parts: deque[tuple[int, Any]] = deque()
        self._reads = 0
        # The time, in seconds, that reads have taken since the program last waited for a call.
        self._reading = 0.0
        self._steps: deque[Step] = deque()
        self._answers: queue.SimpleQueue[tuple[int, Result] | None] = queue.SimpleQueue()
        self._ids: list[int] = []
        # The byte offset at which each line of the text begins. The list is filled at the first
        # call.
        self._lines: list[int] = []
        self._printed = 0
        self._pid: int | None = None
        self._closed = False
        self._arrived = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Run the program until it ends or the session is closed."""
        try:
            await self._sandbox.enter(self)
            if not self._closed:
                threading.Thread(target=self._run, name="program", daemon=True).start()
            while not self._closed:
                await self._arrived.wait()
                self._arrived.clear()
                self._hand_over()
        finally:
            self._sandbox.leave(self)

    def answer(self, number: int, result: Result) -> None:
        """Pass the result of a call to a waiting program."""
        self.computes = True
        self.ripens = None
        self._answers.put((number, result))

    @property
    def is_closed(self) -> bool:
        """Whether the session has been closed."""
        return self._closed

    def close(self) -> None:
        """End the session, even while it is computing. Steps that have not been passed on yet are
        dropped.
        """
        computes = self.computes
        self.computes = False
        self._closed = True
        self.ripens = None
        self._sandbox.note_change()
        self._answers.put(None)
        self._arrived.set()
        pid = self._pid
        if computes and pid is not None:
            # A worker that is computing can only be killed; the pool then replaces it. A worker
            # that is waiting is reused.
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    # -- in the event loop -------------------------------------------------------------------------

    def _hand_over(self) -> None:
        steps: list[Step] = []
        while self._steps:
            steps.append(self._steps.popleft())

        if steps and not self._closed:
            self.computes = not isinstance(steps[-1], Waits | Ended | Failed)
            if isinstance(steps[-1], Waits):
                self.ripens = time.monotonic() + _AGAIN * (1 + len(self._ids))
                self._sandbox.note_change()
            self._on_steps(steps)

    # -- in the thread -----------------------------------------------------------------------------

    def _put(self, step: Step) -> None:
        # Wake the event loop for each step, because it might have just found the queue empty.
        self._steps.append(step)
        self._loop.call_soon_threadsafe(self._arrived.set)

    def _run(self) -> None:
        try:
            step = self._interpret()
        except ProgramError as error:
            step = Failed("missing", str(error))
        except Exception as error:  # noqa: BLE001 - the run reports it
            step = Failed("crashed", f"{type(error).__name__}: {error}")
        if not self._closed:
            with contextlib.suppress(RuntimeError):
                # The event loop might already be closed.
                self._put(step)

    def _interpret(self) -> Step:
        library = monty()
        if len(self._program) > LONGEST_PROGRAM:
            return Failed(
                "malformed",
                f"the program has {len(self._program):,} characters; the limit is "
                f"{LONGEST_PROGRAM:,}",
            )

        try:
            session = _checkout(
                self._sandbox.pool(),
                self._setting,
                check=False,
                suspensions=4 * self._calls + 2 * READS,
            )
            with session:
                self._pid = session.worker_pid
                try:
                    return self._drive(_start(session, self._program, self._setting, self._print))
                finally:
                    self._pid = None
        except library.MontySyntaxError as error:
            return Failed("malformed", _explained(error))
        except library.MontyRuntimeError as error:
            inner = error.exception()
            # The error about a limit comes from the interpreter itself, not from a line of the
            # program.
            is_limit = isinstance(inner, TimeoutError | MemoryError) and "limit" in str(inner)
            text = _explained(error)
            if self._handles is not None and CLASS in text:
                text = f"{text} ({HINT})"

            return Failed("limit" if is_limit else "exception", text)
        except library.MontyCrashedError as error:
            # A single operation that exceeds the time limit of a turn, such as 10 ** 10 ** 8, is
            # stopped together with its worker.
            if error.timed_out:
                return Failed("limit", f"TimeoutError: {_LIMITS['turn time']}")
            return Failed("crashed", str(error))
        except library.MontyError as error:
            return Failed("exception", _cut(str(error)))

    def _drive(self, snapshot: Any) -> Step:
        library = monty()
        while not isinstance(snapshot, library.MontyComplete):
            if self._closed:
                return Failed("crashed", "closed")
            if len(self._ids) > self._calls:
                # The receiver of the steps already has the call that exceeds the limit, and can
                # report it in its own words.
                return Failed("limit", f"a program may make at most {self._calls:,} calls")
            if self._reading > TURN_SECONDS:
                return Failed(
                    "limit", f"tools.read() took more than {TURN_SECONDS:g} s between two calls"
                )
            if isinstance(snapshot, library.FutureSnapshot):
                if self._parts:
                    call, part = self._parts.popleft()
                    snapshot = snapshot.resume({call: part})
                    continue

                self._reading = 0.0
                self._put(Waits())
                answer = self._answers.get()
                if answer is None:
                    return Failed("crashed", "closed")
                snapshot = snapshot.resume({self._ids[answer[0]]: self._external(*answer)})
            elif isinstance(snapshot, library.FunctionSnapshot) and snapshot.object_id is not None:
                # A handle has no methods.
                snapshot = snapshot.resume_auto()
            elif isinstance(snapshot, library.FunctionSnapshot) and not snapshot.is_os_function:
                snapshot = self._call(snapshot)
            elif (
                isinstance(snapshot, library.FunctionSnapshot)
                and str(snapshot.function_name) in _SLEEPS
            ):
                snapshot = self._sleep(snapshot)
            else:
                snapshot = snapshot.resume_auto()

        try:
            return Ended(
                written(snapshot.output, self._handles, what="the value of the last expression")
            )
        except IdeabridgeError as error:
            return Failed("exception", str(error))

    def _call(self, snapshot: Any) -> Any:
        path, _, function = str(snapshot.function_name).rpartition(".")
        arguments: dict[str, Any] = dict(snapshot.kwargs)
        try:
            if not path:
                arguments |= dict(zip(("text", "data", "more"), snapshot.args, strict=False))
            elif function == READ and self._setting.modules[path].reads:
                return self._read(snapshot, arguments)
            elif snapshot.args:
                raise ProgramError(f"{function}() takes keyword arguments only")

            return self._make(snapshot, path, function, arguments)
        except IdeabridgeError as error:
            return snapshot.resume({"exc_type": "TypeError", "message": str(error)})

    def _sleep(self, snapshot: Any) -> Any:
        if str(snapshot.function_name) != "asyncio.sleep":
            message = "time.sleep() is not available; write await asyncio.sleep()"
            return snapshot.resume({"exc_type": "RuntimeError", "message": message})
        try:
            return self._make(
                snapshot, "", "sleep", {"seconds": snapshot.args[0] if snapshot.args else 0}
            )
        except IdeabridgeError as error:
            return snapshot.resume({"exc_type": "ValueError", "message": str(error)})

    def _make(self, snapshot: Any, module: str, function: str, raw: dict[str, Any]) -> Any:
        arguments = written(raw, self._handles, what=f"the arguments of {function}")
        call = self._setting.call(module, function, object_or_empty(arguments))
        self._ids.append(snapshot.call_id)
        self._put(Called(len(self._ids) - 1, call, self._site(snapshot)))
        return snapshot.resume({"future": ...})

    def _site(self, snapshot: Any) -> CallSite:
        """Return where the call of a snapshot is in the program's text.

        The interpreter counts the bytes of the text that it received.
        """
        position = snapshot.position
        if position is None:
            return CallSite(0, 0)

        if not self._lines:
            text = prepared(self._program, self._setting.servers).encode()
            self._lines = [0, *(newline.end() for newline in re.finditer(rb"\n", text))]

        line = bisect_right(self._lines, position.start)
        return CallSite(line, position.start - self._lines[line - 1])

    # -- large results -----------------------------------------------------------------------------

    def _external(self, number: int, result: Result) -> Any:
        """Return the result of a call in the form that the interpreter accepts."""
        if result.exception is not None:
            return {"exc_type": result.exception, "message": result.message}
        return self._value(handed(number, result.value))

    def _value(self, value: JSON | Handle) -> Any:
        if isinstance(value, Handle):
            self._handles = self._refer
            instance = monty().ClassInstance(value, class_type=_handle_class(), eager_attrs=SHOWN)
            return {"return_value": instance}
        return {"return_value": value}

    def _read(self, snapshot: Any, named: dict[str, Any]) -> Any:
        """Read part of a result. This does not count as a call, because the run already has the
        result, and the part is always the same.
        """
        self._reads += 1
        if self._reads > READS:
            message = f"a program may call tools.read() at most {READS:,} times"
            return snapshot.resume({"exc_type": "RuntimeError", "message": message})

        positional = dict(zip(("result", "path"), snapshot.args, strict=False))
        unknown = [*named.keys() - {"result", "path"}, *named.keys() & positional.keys()]
        if unknown or len(snapshot.args) > 2 or "result" not in {**positional, **named}:
            raise ProgramError('tools.read() takes a result and a path: tools.read(rows, "0.name")')

        arguments = {**positional, **named}
        begun = time.monotonic()
        try:
            part = self._value(read_part_of(arguments["result"], arguments.get("path", "")))
        except IdeabridgeError as error:
            part = {"exc_type": "RuntimeError", "message": _cut(str(error))}

        self._reading += time.monotonic() - begun
        self._parts.append((snapshot.call_id, part))
        return snapshot.resume({"future": ...})

    def _print(self, text: str) -> None:
        room = PRINTED - self._printed
        self._printed += len(text)
        if len(text) <= room:
            self._put(PrintedText(text))
        elif room >= 0:
            self._put(
                PrintedText(
                    f"{text[:room]}\n... (only the first {PRINTED:,} characters are kept)\n"
                )
            )


_IMPORTS: Final = ("import_stubs", "import")
_SLEEPS: Final = ("asyncio.sleep", "time.sleep")
