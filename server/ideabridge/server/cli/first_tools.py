"""After a setup, offer tools based on the logs of clients, and standing rules for tools that
clients call without asking. A person at a terminal is asked about each offer.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from ideabridge.server.cli.connecting import connected
from ideabridge.server.cli.console import (
    confirm,
    let_read,
    read_line,
    report,
    say,
    say_wrapped,
    working,
)
from ideabridge.server.cli.options import Options
from ideabridge.server.cli.publishing import publish_suggestion
from ideabridge.server.cli.stores import open_store
from ideabridge.server.setup.record import RemainingStep, RuleStep, SetupRecord
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import counted

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.history.importer import HistoryImport
    from ideabridge.bridge.publishing.suggestions import Suggestion
    from ideabridge.server.setup.plan import SetupPlan
    from ideabridge.tools.tool import Tool

_MOST_SUGGESTIONS = 3


async def offer_histories(options: Options, plan: SetupPlan, record: SetupRecord) -> None:
    """Ask for permission to read the logs of clients. If it is given, import the logs and offer the
    tools that they suggest.

    Args:
        options: the options of the command.
        plan: the plan of the setup. It maps the names in the logs to servers.
        record: receives the changes that an undo does not revert.

    Raises:
        StoreError: the store cannot be opened or written to.
    """
    from ideabridge.bridge.bridge import Bridge

    async with AsyncExitStack() as stack:
        store = stack.enter_context(open_store(options, create=True))
        bridge = Bridge(options.configuration(asking=False), store=store)
        histories = _histories(bridge, plan)
        if not histories:
            return

        _say_histories(histories)
        if not confirm("Read these logs?"):
            return

        record.add(
            RemainingStep(
                text=f"runs imported from logs are in {bridge.configuration.store} and stay there"
            )
        )
        await stack.enter_async_context(connected(bridge))
        for status in bridge.modules.away():
            _tell(status.error or f"server {status.name!r} has not answered yet", "yellow")
        for history in histories:
            await _take(history)
        await _offer_tools(options, bridge, record)


def _histories(bridge: Bridge, plan: SetupPlan) -> list[HistoryImport]:
    """Return the histories of those clients that have logs, none of which has been imported yet."""
    from ideabridge.bridge.history.host_logs import HISTORIES
    from ideabridge.bridge.store.users import LOCAL

    modules = bridge.configuration.enabled_modules
    histories: list[HistoryImport] = []
    for host in HISTORIES:
        names = {name: server for name, server in plan.names_in(host).items() if server in modules}
        history = bridge.history(host, modules=names)
        is_imported = bridge.store.runs.imported_count(LOCAL, host) > 0
        if modules and history.logs.inventory.files and not is_imported:
            histories.append(history)

    return histories


def _say_histories(histories: list[HistoryImport]) -> None:
    from ideabridge.server.setup.report import near

    say("")
    for history in histories:
        logs = counted(len(history.logs.inventory.files), "log")
        folder = near(history.logs.folders[0])
        _tell(f"{history.logs.title} has {logs} of its conversations, in {folder}")
    _tell(
        "ideabridge saves the calls to your servers, their results and what you asked for in your "
        "own store. Work that was done repeatedly can become a tool."
    )


async def _take(history: HistoryImport) -> None:
    with working(f"reading the logs of {history.logs.title}"):
        imported = await history.take()

    for path, reason in imported.failed.items():
        report(f"{path}: {reason}")
    new = [run for run in imported.runs if not run.why]
    calls = counted(sum(run.calls for run in new), "call")
    _tell(f"{history.logs.title}: {counted(len(new), 'run')} with {calls} saved", "green")


async def _offer_tools(options: Options, bridge: Bridge, record: SetupRecord) -> None:
    """Show the tools that the runs suggest, and publish those that the person selects."""
    from ideabridge.bridge.publishing.suggested_names import name_suggestions
    from ideabridge.bridge.publishing.suggestions import suggest
    from ideabridge.bridge.store.users import LOCAL

    suggestions = suggest(bridge.store, LOCAL, limit=_MOST_SUGGESTIONS)
    if not suggestions:
        _tell("the logs show no repeated work that could become a tool")
        return

    if bridge.mind is not None:
        with working("the model names the tools"):
            named = await name_suggestions(bridge, suggestions, LOCAL)

        suggestions = named.suggestions
        for note in named.notes:
            _tell(note, "yellow")

    say("")
    say("These could become tools, which every client can call:")
    for number, suggestion in enumerate(suggestions, start=1):
        _tell(f"{number}. {suggestion.signature}, done {counted(suggestion.times, 'time')}", "bold")
        effect = "may change something" if suggestion.changes else "only reads"
        _tell(f"   {' → '.join(suggestion.tools)} ({effect}): {suggestion.title}", "dim")
        if suggestion.open:
            text = f"   open: {suggestion.open[0].line}"
            more = len(suggestion.open) - 1
            if more:
                text = f"{text} (and {more} more)"
            _tell(text, "yellow")

    await let_read()
    for suggestion in await _ask_which(suggestions):
        try:
            publication = await publish_suggestion(bridge, suggestion, options)
        except IdeabridgeError as error:
            report(f"{suggestion.name}: {error}")
            continue
        name = publication.name
        record.add(
            RemainingStep(
                text=(
                    f"the tool {name} is published; to withdraw it, run `ideabridge ideas "
                    f"unpublish {name}`"
                )
            )
        )
        _tell(f"{name} is now a tool: {publication.description}", "green")


async def _ask_which(suggestions: list[Suggestion]) -> list[Suggestion]:
    """Ask which suggestions to publish, and repeat the question until the answer is clear."""
    numbers = ", ".join(str(number) for number in range(1, len(suggestions) + 1))
    question = f"Publish {numbers}, a(ll), or Enter for none: "
    if len(suggestions) == 1:
        question = "Publish it? [y/N]: "

    while True:
        line = await read_line(question)
        chosen = _chosen(suggestions, line or "")
        if chosen is not None:
            return chosen
        say("y or Enter" if len(suggestions) == 1 else f"{numbers}, a or Enter")


def _chosen(suggestions: list[Suggestion], line: str) -> list[Suggestion] | None:
    """Return the suggestions whose numbers are listed in `line`, or None if the line is unclear."""
    words = line.replace(",", " ").lower().split()
    if not words or words in (["n"], ["no"], ["none"]):
        return []
    if words in (["a"], ["all"]) or (len(suggestions) == 1 and words in (["y"], ["yes"])):
        return suggestions

    by_number = {str(number): suggestion for number, suggestion in enumerate(suggestions, 1)}
    if any(word not in by_number for word in words):
        return None
    return [suggestion for number, suggestion in by_number.items() if number in words]


async def offer_always(options: Options, plan: SetupPlan, record: SetupRecord) -> None:
    """Ask whether the tools that clients call without asking should also run in ideabridge without
    a question.

    Args:
        options: the options of the command.
        plan: the plan that the setup has carried out.
        record: receives the standing rules that the person creates.

    Raises:
        StandingRuleError: the rules cannot be changed.
    """
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.loop.event import AT_TERMINAL
    from ideabridge.bridge.standing_rules import allow_always

    configuration = options.configuration(asking=False)
    approved = {
        name: names
        for name, names in plan.approved().items()
        if name in configuration.modules and not configuration.modules[name].disabled
    }
    if not approved:
        return

    only = configuration.with_only(list(approved))
    async with connected(Bridge(only, store=":memory:")) as bridge:
        tools = [tool for tool in bridge.tools() if _is_approved(tool, approved)]

    if not tools:
        return

    say("")
    _tell(
        "Your clients call these tools without asking you. ideabridge asks before a call that may "
        "change something:"
    )
    for name in approved:
        listed = [tool.name_in_module for tool in tools if tool.module == name]
        if listed:
            _tell(f"   {name}: {', '.join(listed)}")

    if not confirm("Always allow them in this workspace?"):
        return
    for tool in tools:
        rule = allow_always(tool, configuration, AT_TERMINAL)
        record.add(RuleStep(id=rule.id, tool=rule.tool.label))
    _tell("`ideabridge approvals rules` lists them; --remove withdraws one", "green")


def _is_approved(tool: Tool, approved: dict[str, tuple[str, ...]]) -> bool:
    """Return whether a client calls a tool without asking, even though the tool might change
    something.
    """
    names = approved.get(tool.module or "", ())
    is_named = "*" in names or tool.name_in_module in names
    return is_named and tool.annotations.read_only is not True


def _tell(text: str, style: str | None = None) -> None:
    say_wrapped(text, style, further="   ")
