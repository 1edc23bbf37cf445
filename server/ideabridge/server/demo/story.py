"""Story: the demo as a person wants to see it."""

from __future__ import annotations

from ideabridge.server.cli.console import fitted, show
from ideabridge.server.demo.checks import Checks
from ideabridge.server.demo.repository import Repository
from ideabridge.server.demo.timeline import Bar, draw, together
from ideabridge.tools.encoding import JSON, JSONObject, encode


class Story:
    """Prints each step as it happens.

    Args:
        quiet: print nothing.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._step = 0

    def _line(self, text: str = "", style: str | None = None) -> None:
        if not self._quiet:
            show(fitted(text), style)

    def _head(self, text: str) -> None:
        self._step += 1
        self._line()
        self._line(f"{self._step}. {text}", "bold cyan")

    def opening(self, repository: Repository) -> None:
        """What this is about."""
        self._line("ideabridge demo", "bold")
        self._line(f"repository {repository.root}, commits looked at: {repository.commits}; it is only read")
        self._line(
            "behind one `ideabridge serve`: mcp-server-git, mcp-server-time, and the Python tools of "
            "examples/git_history.py. No model is asked, and nothing leaves this machine.",
            "dim",
        )

    def connected(self, who: str, how: str) -> None:
        """An assistant has connected."""
        self._head(f"Assistant {who} connects {how}")

    def handing_over(self, asked: JSONObject) -> None:
        """The plan, call by call."""
        calls = asked["calls"]
        listed = calls if isinstance(calls, list) else []
        self._line(f"It hands over one plan of {len(listed)} calls ({len(encode(asked)):,} bytes), once:")
        for call in listed:
            if isinstance(call, dict):
                self._line(f"   {_call(call)}")

    def timeline(self, bars: list[Bar], at_once: int) -> None:
        """What ran when."""
        self._line("What ran when:")
        for line in draw(bars):
            self._line(f"   {line}", "green")
        pairs = together(bars)
        if pairs:
            self._line(f"   up to {at_once} calls at once, for example {pairs[0][0]} beside {pairs[0][1]}")

    def answer(self, output: JSONObject, seconds: float) -> None:
        """The report in the answer."""
        self._line(f"The answer, after {seconds:.2f} s:")
        for line in str(output.get("report")).split("\n"):
            self._line(f"   {line}", "yellow")

    def spared(self, calls: int, results: int, answer: int, tokens: JSON) -> None:
        """What never passed through a model."""
        came = f"The {calls} results had {results:,} bytes. {answer:,} bytes came back to the assistant"
        spared = "; the rest never had to pass through a model" if results > answer else ""
        self._line(f"{came}{spared}. One round trip instead of one for each call.")
        self._line(f"Tokens used by ideabridge: {tokens}", "bold")

    def published(self, name: str, how: str, told: JSONObject) -> None:
        """A run became a tool."""
        parameters = told.get("input_schema")
        properties = parameters.get("properties") if isinstance(parameters, dict) else None
        names = ", ".join(properties) if isinstance(properties, dict) else ""
        self._head(f"Assistant A publishes the run as the tool {name}({names}), answered by: {how}")
        self._line(f"   {told.get('description')}", "dim")

    def connecting(self, who: str, address: str) -> None:
        """Another assistant comes."""
        self._head(f"Assistant {who}, another process, connects over HTTP to {address}")

    def called(self, who: str, told: JSONObject, given: JSONObject) -> None:
        """It calls the new tool."""
        found = f"It speaks MCP {told.get('protocol')}, finds the tool among {told.get('tools')}"
        other = f"count={given.get('count')}, timezone={given.get('timezone')}"
        self._line(f"{found}, and calls it with other input: {other}")

    def recorded(self, seconds: float, refused: str) -> None:
        """A recorded answer."""
        self._line(f"The same input again: the stored answer, to the letter, in {seconds * 1000:.1f} ms; nothing ran.")
        if refused:
            self._line(f"Other input is refused: {refused}", "dim")

    def end(self, seconds: float, checks: Checks) -> None:
        """Whether every answer is right."""
        self._head("Every answer, held against git and the clock, asked apart from all this")
        for what, truth, why in checks.found:
            self._line(
                f"   {'✓' if truth else '✗'} {what}{f': {why}' if why else ''}", "green" if truth else "bold red"
            )
        self._line()
        if checks.wrong:
            self._line(f"{len(checks.wrong)} of {len(checks.found)} checks failed.", "bold red")
        else:
            self._line(f"All {len(checks.found)} checks hold. {seconds:.1f} s in all.", "bold green")


def _call(call: JSONObject) -> str:
    module = f"{call['_module']}." if call.get("_module") else ""
    given = ", ".join(f"{key}={value}" for key, value in call.items() if not key.startswith("_"))
    return f"{module}{call['_tool']}({given}) -> {call.get('_outputPath')}"
