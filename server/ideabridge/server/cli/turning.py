"""Turning: at the command line, whoever is on standard input writes the solutions of a run (DESIGN 5, "turns")."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from ideabridge.server.cli.console import err, report, say
from ideabridge.server.cli.modules import signature
from ideabridge.tools.encoding import JSON, JSONObject, decode, encode_text
from ideabridge.tools.errors import IdeabridgeError

if TYPE_CHECKING:
    from ideabridge.bridge.context.request import Request
    from ideabridge.bridge.run import Run


class Turns:
    """Asks for the solutions of one run.

    Args:
        run: the run. Of what its rooms ask, one after another is put.
        quiet: show nothing but errors, where nobody sits at a terminal.
    """

    def __init__(self, run: Run, *, quiet: bool) -> None:
        self._run = run
        self._quiet = quiet and not sys.stdin.isatty()
        self._shown: Request | None = None
        self._schema: JSON = None

    async def take(self) -> bool:
        """Show an open Request, read its solution from standard input and hand it in; False where none comes."""
        asking = next(self._run.open_requests(), None)
        if asking is None or asking.runner.request is None:
            return False
        if not self._quiet:
            self._show(asking.runner.request, asking.turn)
        try:
            text = await _read()
            if text is None:
                return False
            solution = decode(text, what="the solution")
            for note in await asking.patiently(lambda: asking.submit(asking.turn, solution)):
                say(f"note: {note}", "dim")
        except IdeabridgeError as error:
            report(str(error))
        return True

    def _show(self, request: Request, turn: int) -> None:
        # What has been seen is not shown again: after a malformed solution, its errors are what counts.
        if request is self._shown:
            return
        self._shown = request
        say(f"turn {turn}", "bold")
        for message in request.texts:
            say(f"[{message.get('role')}] {message.get('content')}")
        if request.schema != self._schema:
            self._schema = request.schema
            if sys.stdin.isatty():
                for line in _offered(request.schema):
                    say(line, "dim")
            else:
                say(f"schema: {encode_text(request.schema)}", "dim")
        say('write {"calls": [...], "output": ...}, and an empty line', "dim")


def _offered(schema: JSON) -> Iterator[str]:
    """What a person is told of the schema of a solution: the tools with their parameters, and what the output is."""
    schemas = _object(_object(schema).get("properties"))
    calls = _object(_object(schemas.get("calls")).get("items"))
    offered = calls.get("anyOf")
    for one in offered if isinstance(offered, list) else [calls]:
        taken = _object(_object(one).get("properties"))
        name = _object(taken.get("_tool")).get("const")
        if name is not None:
            description = str(_object(one).get("description") or "").split("\n")[0]
            own = {key: value for key, value in taken.items() if not key.startswith("_")}
            yield f"tool: {name}({signature({**_object(one), 'properties': own})})  {description}".rstrip()
    output = _object(schemas.get("output")).get("anyOf")
    wanted = [one for one in output if one != {"type": "null"}] if isinstance(output, list) else [schemas.get("output")]
    yield f"output: {' or '.join(map(encode_text, wanted))}"


def _object(value: JSON) -> JSONObject:
    return value if isinstance(value, dict) else {}


async def _read() -> str | None:
    """The text of one solution: up to an empty line, or to where it is one whole JSON value; None at the end."""
    text = ""
    while True:
        line = await _line()
        if not line or (text and not line.strip()):
            return text or None
        text += line if line.strip() else ""
        if text.rstrip().endswith("}") and _is_whole(text):
            return text


def _is_whole(text: str) -> bool:
    try:
        decode(text, what="the solution")
    except IdeabridgeError:
        return False
    return True


async def _line() -> str:
    """One line of standard input; "" at its end. Waiting can be cancelled (Ctrl-C)."""
    if not sys.stdin.isatty() or sys.platform == "win32":
        return await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    err().print("> ", end="")
    await anyio.wait_readable(sys.stdin)
    return sys.stdin.readline()
