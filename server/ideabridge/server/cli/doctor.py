"""The command `ideabridge doctor`, which checks the program, the configuration, the store, the
servers, the mind and the hosts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ideabridge.server.cli.console import ExitCode, Rows, print_json, report
from ideabridge.server.cli.options import Options, command
from ideabridge.server.views import checks
from ideabridge.server.views.checks import CheckResult, Findings
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError

if TYPE_CHECKING:
    from ideabridge.bridge.configuration import Configuration


@command("config", "project", "store", "tools", "json")
async def doctor(options: Options) -> int:
    """Check everything that ideabridge would use in this folder, and explain the results. The exit
    code is 1 if something is wrong.
    """
    folder = options.folder()
    configuration: Configuration | None = None
    fault: IdeabridgeError | None = None
    try:
        configuration = options.configuration(asking=False, tolerant=True)
    except IdeabridgeError as error:
        fault = error

    topics = ["client claude-desktop"]
    if configuration is not None:
        topics += [f"server {name}" for name in configuration.modules]

    rows: Rows | None = None
    if not options.json:
        width = max(len(topic) for topic in topics)
        rows = Rows(("", "what", "found"), (1, width))

    def on_result(result: CheckResult) -> None:
        if rows is not None:
            _print_result(rows, result)

    findings = Findings(on_result)
    checks.check_program(findings)
    if fault is not None:
        findings.add("configuration", str(fault), wrong=True)

    if configuration is not None:
        checks.check_configuration(findings, configuration)
        checks.check_store(findings, configuration)
        checks.check_tool_files(findings, configuration)
        checks.check_rules(findings)
        await _modules(findings, configuration)
        await checks.check_mind(findings, configuration)

    checks.check_hosts(findings, folder, {})
    if options.json:
        print_json({"findings": list[JSON](map(_json, findings.found)), "wrong": findings.wrong})
    elif findings.wrong:
        verb = "is" if findings.wrong == 1 else "are"
        report(f"{findings.wrong} of these {verb} wrong")

    return ExitCode.FAILED if findings.wrong else ExitCode.DONE


def _print_result(rows: Rows, result: CheckResult) -> None:
    if result.is_wrong:
        rows.add(("✗", result.topic, result.text), "red")
    elif result.is_warning:
        rows.add(("!", result.topic, result.text), "yellow")
    else:
        rows.add(("✓", result.topic, result.text))

    for line in (result.hint or "").splitlines():
        rows.add(("", "", line), "dim")


def _json(result: CheckResult) -> JSONObject:
    entry: JSONObject = {
        "topic": result.topic,
        "state": result.state,
        "text": result.text,
    }
    if result.hint:
        entry["hint"] = result.hint
    return entry


async def _modules(findings: Findings, configuration: Configuration) -> None:
    from ideabridge.server.cli.connecting import Connecting

    if not configuration.modules:
        findings.add("servers", "no server is configured")
        return

    with Connecting(configuration) as connecting:
        from ideabridge.bridge.modules.modules import Modules
        from ideabridge.bridge.offer.tool_names import naming_notes
        from ideabridge.tools.toolbox import Toolbox

        async with Modules(configuration) as modules:
            await connecting.wait(modules, lambda status: checks.describe_module(findings, status))
            notes = naming_notes(Toolbox(), modules.known_tools())
            if notes:
                findings.add("names", "of servers' tools", hint="\n".join(notes[:20]))
