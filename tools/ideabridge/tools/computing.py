"""Evaluate one Python expression over named values, for the built-in tool `compute`.

The expression runs in Monty, an interpreter for a subset of Python, in a worker process. It has no
access to a clock, randomness, files or the network, so equal values give equal results. The workers
start when the first expression is evaluated, and stop with this process.
"""

from __future__ import annotations

import atexit
import keyword
import threading
from typing import TYPE_CHECKING, Any, Final

from anyio.lowlevel import RunVar

from ideabridge.tools.encoding import JSON, JSONObject, expect_written, normalise
from ideabridge.tools.errors import ActivityError, IdeabridgeError
from ideabridge.tools.keywords import show
from ideabridge.tools.syntax import parse_python
from ideabridge.tools.turns import FairPlaces, HeldProcess

if TYPE_CHECKING:
    from pydantic_monty import Monty

MAX_CODE: Final = 4_000
"""Maximum number of characters in an expression."""

_MODULES: Final = ("json", "math", "re")
"""Modules that an expression can use. None of them provides a clock or randomness."""

_MOST_SECONDS: Final = 5.0
_MOST_MEMORY: Final = 256 * 1024 * 1024
_MOST_DEPTH: Final = 500
WORKERS: Final = 4
"""Maximum number of processes that compute expressions."""

_MESSAGE: Final = 1_000


class _Pool:
    """The worker processes that evaluate expressions for this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._monty: Monty | None = None

    def get(self) -> Monty:
        with self._lock:
            if self._monty is None:
                pool: Monty = _library().Monty(min_processes=1, max_processes=WORKERS)
                self._monty = pool.__enter__()
                atexit.register(pool.__exit__, None, None, None)
            return self._monty


_POOL: Final = _Pool()


def _library() -> Any:
    try:
        import pydantic_monty
    except ImportError as error:
        raise ActivityError(
            f"compute needs pydantic-monty, which cannot be imported: {error}"
        ) from None
    return pydantic_monty


async def computed(code: str, values: JSONObject) -> JSON:
    """Return the value of an expression.

    Args:
        code: the expression.
        values: the values of the names in the expression, keyed by name.

    Raises:
        ActivityError: `code` is not an expression, fails, or takes too long, or its value is not
            JSON.
    """
    for name in values:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ActivityError(
                f"{show(name)}: expected a valid Python name, because the code uses it"
            )
    _check_expression(code)
    return await _turns().run(lambda process: _evaluate(code, values, process))


_TURNS: Final[RunVar[FairPlaces]] = RunVar("_TURNS")


def _turns() -> FairPlaces:
    """Return the places shared by the callers on this event loop, one per worker."""
    try:
        return _TURNS.get()
    except LookupError:
        turns = FairPlaces(WORKERS)
        _TURNS.set(turns)
        return turns


def _check_expression(code: str) -> None:
    if len(code) > MAX_CODE:
        raise ActivityError(f"code has {len(code):,} characters; the limit is {MAX_CODE:,}")
    try:
        parse_python(code.strip(), "eval")
    except SyntaxError as error:
        statements = _is_program(code)
        hint = "; use run_plan for a program with statements" if statements else ""
        where = f"line {error.lineno}, column {error.offset}: " if error.lineno else ""
        raise ActivityError(
            f"code: {where}expected one Python expression, found {show(code)}{hint}"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ActivityError(f"code: {error or 'it is nested too deeply'}") from None


def _is_program(code: str) -> bool:
    try:
        parse_python(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _evaluate(code: str, values: JSONObject, process: HeldProcess) -> JSON:
    library = _library()
    # Import only the modules that the code names, because importing one takes longer than
    # evaluating most expressions. A value with the same name takes precedence over the module.
    modules = ", ".join(name for name in _MODULES if name in code and name not in values)
    if modules:
        text = f"import {modules}\n(\n{code.strip()}\n)"
    else:
        text = f"(\n{code.strip()}\n)"

    try:
        with (
            _POOL.get().checkout(
                limits={
                    "max_turn_duration_secs": _MOST_SECONDS,
                    "max_memory": _MOST_MEMORY,
                    "max_recursion_depth": _MOST_DEPTH,
                },
                assert_message_annotations=False,
            ) as session,
            process.holding(session.worker_pid),
        ):
            result = session.feed_run(text, inputs=dict(values), print_callback=_no_print)
    except library.MontySyntaxError as error:
        raise ActivityError(f"code: {_cut(error.display('msg'))}") from None
    except library.MontyRuntimeError as error:
        if isinstance(error.exception(), NameError):
            names = f"; the code can use {', '.join(values)}" if values else ""
        else:
            names = ""
        raise ActivityError(f"code: {_cut(error.display('type-msg'))}{names}") from None
    except library.MontyError as error:
        raise ActivityError(f"code: {_cut(str(error))}") from None

    try:
        expect_written(result, what="the value of code")
        return normalise(result, what="the value of code")
    except IdeabridgeError as error:
        raise ActivityError(str(error)) from None


def _no_print(*_: object) -> None:
    """Discard the output of an expression."""


def _cut(text: str) -> str:
    if len(text) <= _MESSAGE:
        return text
    return f"{text[:_MESSAGE]}... ({len(text):,} characters)"
