"""The command `ideabridge approvals`, which lists and makes the decisions that runs are waiting
for. It also lists and withdraws standing rules, which allow a tool permanently.
"""

from __future__ import annotations

import itertools
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.cli.console import (
    ExitCode,
    UsageError,
    at_terminal,
    confirm,
    err,
    interruptible,
    out,
    print_json,
    print_rows,
    report,
    say,
    show_line,
)
from ideabridge.server.cli.inputs import (
    call_lines,
    read_document_at,
    require_object,
    value_of,
    whole,
)
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.runs import status_text
from ideabridge.server.cli.stores import open_bridge, open_store, resolve_run, store_exists
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import age_text, whole_duration_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from rich.console import Console

    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.loop.question import Question
    from ideabridge.bridge.runs.people import Decision
    from ideabridge.bridge.standing_rules import ListedRule
    from ideabridge.bridge.store.store import Store
    from ideabridge.server.cli.follow import Followed
    from ideabridge.server.views.pending import Pending

app = typer.Typer(
    help="List and make the decisions that runs are waiting for, and withdraw standing rules.",
    no_args_is_help=True,
)

_DONE: Final = {
    "approve": "approved",
    "deny": "denied",
    "edit": "edited",
    "retry": "to be run again",
    "skip": "skipped",
    "value": "answered",
}


_LETS_HAPPEN: Final = ("approve", "retry")
"""The decisions that allow a call to run."""


@app.command("list")
@command("config", "project", "store", "json")
def list_approvals(
    options: Options,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]", help="Only this run: its id, the beginning of its id, or `last`."
        ),
    ] = None,
) -> None:
    """List the open decisions of every run: the whole call that would run, the reason for the
    question, and its age.

    This command only lists the decisions. It does not start or continue any run.
    """
    from ideabridge.server.views.pending import pending

    with open_store(options) as store:
        chosen = None if run is None else resolve_run(store, run)
        decisions = list(pending(store, chosen, caller=SEES_ALL))

    if options.json:
        print_json({"approvals": [decision.to_json() for decision in decisions]})
        return

    _show_all(decisions, show_line, out())
    if decisions:
        again = options.again
        say(f"to answer: ideabridge approvals decide DECISION RUN|APPROVAL...{again}", "dim")
        say(f"or one after another, at a terminal: ideabridge approvals decide{again}", "dim")
    elif chosen is not None:
        say(f"run {chosen.id} is not waiting for a decision ({status_text(chosen)})")
    else:
        say("nothing is waiting for a decision")


def _show_all(
    decisions: Iterable[Pending], write: Callable[[str, str | None], None], console: Console
) -> None:
    """Show open decisions, grouped by run. `write` prints one line to `console`."""
    for _, several in itertools.groupby(decisions, lambda decision: decision.record.id):
        for number, decision in enumerate(several):
            _show(decision, write, console, with_run=number == 0)


def _show(
    pending: Pending, write: Callable[[str, str | None], None], console: Console, *, with_run: bool
) -> None:
    from ideabridge.bridge.loop.event import LOCAL_USER
    from ideabridge.server.views.shown import TERMINAL

    if with_run:
        head = f"run {pending.record.id}: {pending.record.title}"
        if pending.record.caller != LOCAL_USER:
            head += f", of {pending.record.caller}"
        if pending.at_work:
            head += ", executed by another process"

        write(head, "bold")
        for grant in pending.grants:
            write(f"  granted: {grant}", "dim")

    beginning = pending.shown(TERMINAL)
    choices = ", ".join(beginning.choices(pending.question.choices))
    line = f"  {pending.approval} ({choices})"
    if beginning.sums:
        line += f", {beginning.sums}"

    write(line + _times(pending), "yellow")
    for line in pending.question.why.split("\n"):
        write(f"    {line}", None)

    if pending.question.asked is not None:
        write(
            f" server {pending.question.asked.module} asks the following, in its own words:",
            None,
        )

    width = console.width - 4 if console.is_terminal else None
    for line in _content_lines(pending.question, width):
        write(f"    {line}", None)


def _content_lines(question: Question, width: int | None) -> list[str]:
    """Return the lines that show the full content of a question."""
    from ideabridge.server.views.shown import content_of

    form = question.to_json().get("question")
    if form is not None or question.kind == "plan":
        return whole(form or content_of(question), width).split("\n")
    return call_lines(question.shown, width)


def _times(pending: Pending) -> str:
    """Return a phrase that says when the question was asked and how much time is left to decide."""
    now = time.time()
    text = ""
    if pending.asked is not None:
        text = f", asked {age_text(now - pending.asked)}"

    if pending.deadline is None:
        return text
    if pending.deadline <= now:
        return f"{text}, time is up: {_refused(pending)}"
    return f"{text}, {_refused(pending)} in {whole_duration_text(pending.deadline - now)}"


@app.command("decide")
@command("config", "project", "store", "tools", "allow_all", "json")
async def decide(
    options: Options,
    decision: Annotated[
        Literal["approve", "deny", "edit", "retry", "skip", "value"] | None,
        typer.Argument(
            help=(
                "approve, deny or edit: for a call or a plan. retry, skip or value: for an unknown "
                "outcome. value, deny or skip: for a server's question. If it is absent, "
                "ideabridge asks you at a terminal for each decision."
            )
        ),
    ] = None,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN|APPROVAL]...",
            help="A run (all of its decisions), or an approval as in `approvals list`; "
            "RUN:APPROVAL if several runs have the same approval.",
        ),
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="The reason, which a mind sees.")
    ] = None,
    call: Annotated[
        str | None, typer.Option("--call", metavar="JSON|@FILE", help="With edit: the call to run.")
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="JSON|@FILE", help="With edit of a plan: {calls, output}."),
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            "--value", metavar="JSON|@FILE", help="With value: the result, or the answer."
        ),
    ] = None,
    for_run: Annotated[
        bool,
        typer.Option(
            "--for-run",
            help="With approve of a call: also allow further calls of its tool in this run.",
        ),
    ] = False,
    most: Annotated[
        int | None,
        typer.Option("--max", metavar="N", help="With --for-run: at most N further calls."),
    ] = None,
    parameters: Annotated[
        str | None,
        typer.Option(
            "--parameters",
            metavar="JSON|@FILE",
            help="With --for-run: only calls whose parameters match this JSON schema.",
        ),
    ] = None,
    always: Annotated[
        bool,
        typer.Option(
            "--always",
            help="With approve of a call, at a terminal: allow its tool in this workspace from "
            "now on; see `approvals rules`.",
        ),
    ] = False,
) -> int:
    """Make decisions that runs are waiting for. This process continues the runs, and follows each
    as `run` does.

    To approve a call, the command needs the servers and tools of the run, including those of
    --tools. Denying always works.
    """
    from ideabridge.bridge.context.state import MISSING
    from ideabridge.bridge.loop.event import AT_TERMINAL, BY_COMMAND
    from ideabridge.bridge.runs.people import Decision

    if decision is None:
        if not at_terminal() or options.json:
            raise UsageError(
                "without a terminal, the command must name the decision: ideabridge approvals "
                "decide approve|deny|... RUN|APPROVAL..."
            )

        return await _decide(options, None, _by_run(options, None))

    if not targets:
        raise UsageError(
            "name the runs or approvals to decide on; `ideabridge approvals list` shows them"
        )

    _check_contents(decision, call=call, plan=plan, value=value)
    _check_always(decision, options, always=always, for_run=for_run)
    submitted = Decision(
        decision,
        call=_read_object(call, "--call"),
        reason=reason,
        by=AT_TERMINAL if at_terminal() else BY_COMMAND,
        value=MISSING if value is None else _read(value, "--value"),
        plan=_read_object(plan, "--plan"),
        grant=_grant(decision, for_run=for_run, most=most, parameters=parameters),
        always=always,
    )
    chosen = _by_run(options, targets)
    approvals = [approval for decisions in chosen.values() for approval in decisions]
    _check_choices(submitted, approvals)
    # Show the call to a person who allows a tool permanently, because that person must have seen
    # it.
    unnamed = [approval for approval in approvals if always or not _is_named(approval, targets)]
    if unnamed and decision in _LETS_HAPPEN and at_terminal() and not options.json:
        # Show the questions again, because they might have changed since someone last looked at
        # them.
        _show_all(unnamed, say, err())
        objects = "this" if len(unnamed) == 1 else f"these {len(unnamed)}"
        with interruptible():
            further = ", and allow the tool in this workspace from now on" if always else ""
            is_confirmed = confirm(f"{decision} {objects}{further}?")

        if not is_confirmed:
            say("left waiting", "yellow")
            return ExitCode.CANCELLED

    return await _decide(options, submitted, chosen)


def _check_contents(
    decision: str, *, call: str | None, plan: str | None, value: str | None
) -> None:
    """Raise `UsageError` unless exactly the options that the decision needs are set."""
    for option, text, expected in (
        ("--call", call, "edit"),
        ("--plan", plan, "edit"),
        ("--value", value, "value"),
    ):
        if text is not None and decision != expected:
            raise UsageError(f"{option} requires {expected}, not {decision}")

    if decision == "edit" and (call is None) == (plan is None):
        raise UsageError("edit needs --call (or --plan, for a plan) with what should run instead")
    if decision == "value" and value is None:
        raise UsageError("value needs --value with the result of the call, or the answer")


@app.command("rules")
@command("config", "project", "store", "tools", "json")
def standing_rules(
    options: Options,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            "--remove",
            metavar="ID",
            help="Withdraw this rule: its id, or the beginning of it; may be repeated.",
        ),
    ] = None,
) -> None:
    """List the tools that people have allowed permanently, or withdraw such rules.

    A withdrawn rule covers no further calls, not even in servers that are already running.
    """
    from ideabridge.bridge.loop.event import AT_TERMINAL, BY_COMMAND
    from ideabridge.bridge.standing_rules import StandingRules

    by = AT_TERMINAL if at_terminal() else BY_COMMAND
    with _existing_store(options) as store:
        rules = StandingRules(options.configuration(), store)
        listed = rules.listed(SEES_ALL)
        chosen = [_rule_named(listed, text) for text in remove or ()]
        for rule in chosen:
            rules.withdraw(rule.rule, by)

    if remove:
        removed: list[JSON] = [rule.to_json() for rule in chosen]
        names = ", ".join(f"{rule.rule.id} ({rule.rule.tool.label})" for rule in chosen)
        options.print_or_say({"removed": removed}, f"withdrawn: {names}")
        return

    if options.json:
        print_json({"rules": [rule.to_json() for rule in listed]})
    elif listed:
        titles = ("rule", "tool", "workspace", "given", "by", "state")
        print_rows(titles, [_rule_row(rule) for rule in listed])
        say(f"to withdraw one: ideabridge approvals rules --remove RULE{options.again}", "dim")
    else:
        say("there are no standing rules, so no tool is allowed always")


@contextmanager
def _existing_store(options: Options) -> Generator[Store]:
    """Open the store, or an empty store if none exists yet."""
    from ideabridge.bridge.store.store import Store

    exists = store_exists(str(options.configuration().store))
    with open_store(options) if exists else Store.open(":memory:") as store:
        yield store


def _rule_named(listed: list[ListedRule], text: str) -> ListedRule:
    matches = [rule for rule in listed if text and rule.rule.id.startswith(text)]
    if len(matches) == 1:
        return matches[0]
    found = ", ".join(rule.rule.id for rule in matches[:5]) or "none"
    raise UsageError(
        f"--remove {text[:40]!r}: expected the id of one rule, or its beginning; matching: {found}"
    )


def _rule_row(listed: ListedRule) -> tuple[str, ...]:
    from ideabridge.bridge.store.users import LOCAL, person_of

    rule = listed.rule
    workspace = rule.workspace or "outside projects"
    if rule.owner != LOCAL:
        workspace += f", for {person_of(rule.owner)}"
    return (rule.id, rule.tool.label, workspace, rule.given[:10], str(rule.by), listed.words)


def _check_always(decision: str, options: Options, *, always: bool, for_run: bool) -> None:
    """Raise `UsageError` unless a person at a terminal can allow the tool permanently."""
    if not always:
        return
    if decision != "approve":
        raise UsageError(f"--always requires approve, not {decision}")
    if for_run:
        raise UsageError("give --always or --for-run, not both")
    if not at_terminal() or options.json:
        raise UsageError(
            "--always: only a person can choose to always allow a tool, which requires a terminal"
        )


def _grant(
    decision: str, *, for_run: bool, most: int | None, parameters: str | None
) -> JSONObject | None:
    """Return the grant that `--for-run`, `--max` and `--parameters` describe."""
    if not for_run:
        if most is not None:
            raise UsageError("--max requires --for-run")
        if parameters is not None:
            raise UsageError("--parameters requires --for-run")
        return None

    if decision != "approve":
        raise UsageError(f"--for-run requires approve, not {decision}")

    grant: JSONObject = {"for": "run"}
    if most is not None:
        grant["max"] = most
    if parameters is not None:
        grant["parameters"] = _read_object(parameters, "--parameters")
    return grant


def _check_choices(submitted: Decision, approvals: list[Pending]) -> None:
    """Raise `UsageError` if an approval does not allow the decision."""
    decision = submitted.decision
    for_one = decision
    if submitted.grant is not None:
        for_one = "--for-run"
    elif submitted.always:
        for_one = "--always"

    if len(approvals) > 1 and for_one in ("--for-run", "--always", "edit", "value"):
        names = ", ".join(approval.approval for approval in approvals)
        raise UsageError(f"{for_one} applies to one approval; these are {names}")

    for approval in approvals:
        choices = approval.question.choices
        if decision not in choices:
            raise UsageError(
                f"{approval.approval} of run {approval.record.id} accepts {', '.join(choices)}; "
                f"found {decision}"
            )


def _is_named(decision: Pending, words: list[str]) -> bool:
    """Return whether one of the words refers to this decision itself, not only to its run."""
    approvals = [word.rpartition(":")[2] for word in words]
    return any(approval and decision.approval.startswith(approval) for approval in approvals)


def _read(text: str, option: str) -> JSON:
    """Read JSON from an option, or from a file if the option is `@FILE`. `--value` can also be
    plain text.
    """
    if text.startswith("@"):
        return read_document_at(text[1:], option)
    value = value_of(text)
    if option != "--value" and not isinstance(value, dict | list):
        raise UsageError(f"{option}: expected JSON or @FILE, found {text[:60]!r}")
    return value


def _read_object(text: str | None, option: str) -> JSONObject | None:
    """Read a JSON object from an option. Return None if the option is not set."""
    if text is None:
        return None
    return require_object(_read(text, option), option)


def _by_run(options: Options, words: list[str] | None) -> dict[str, list[Pending]]:
    """Return the open decisions that the words refer to, grouped by run. If `words` is None, return
    all open decisions.

    Raises:
        UnknownRunError, UsageError: a word matches no open decision, or more than one.
    """
    from ideabridge.server.views.pending import pending

    by_run: dict[str, list[Pending]] = {}
    with open_store(options) as store:
        chosen = list(pending(store, caller=SEES_ALL))
        if words is not None:
            chosen = [decision for word in words for decision in _matching(store, chosen, word)]

    for decision in chosen:
        decisions = by_run.setdefault(decision.record.id, [])
        if decision not in decisions:
            decisions.append(decision)

    return by_run


def _matching(store: Store, decisions: list[Pending], word: str) -> list[Pending]:
    from ideabridge.bridge.store.errors import UnknownRunError

    run, colon, approval = word.partition(":")
    candidates = decisions
    if colon:
        record = resolve_run(store, run)
        candidates = [decision for decision in decisions if decision.record.id == record.id]
    else:
        approval = word

    matches = [decision for decision in candidates if decision.approval == approval]
    matches = matches or [
        decision for decision in candidates if approval and decision.approval.startswith(approval)
    ]
    if len(matches) > 1:
        names = ", ".join(f"{decision.record.id}:{decision.approval}" for decision in matches[:5])
        raise UsageError(
            f"{word[:80]!r} is the beginning of more than one approval; write one of {names}"
        )

    if matches:
        return matches
    if colon:
        problem = f"{word[:80]!r}: run {run[:80]} has no such approval pending"
        if not candidates:
            raise UsageError(f"{problem}; it has no pending approvals")

        open_approvals = ", ".join(decision.approval for decision in candidates)
        raise UsageError(f"{problem}; the pending ones are {open_approvals}")

    try:
        record = resolve_run(store, word)
    except UnknownRunError as error:
        raise UsageError(
            f"{word[:80]!r} is neither a pending approval nor a run: {error}"
        ) from None

    matches = [
        decision
        for decision in decisions
        if record.id in (decision.record.id, decision.record.parent)
    ]
    if not matches:
        raise UsageError(f"run {record.id} is not waiting for a decision ({status_text(record)})")
    return matches


async def _decide(
    options: Options, decision: Decision | None, chosen: dict[str, list[Pending]]
) -> int:
    from ideabridge.server.cli.follow import print_result, result_json

    if not chosen:
        say("nothing is waiting for a decision")
        return ExitCode.DONE

    codes: set[int] = set()
    answers: list[JSON] = []
    async with open_bridge(options) as bridge:
        for run_id, decisions in chosen.items():
            refused: list[str] = []
            try:
                outcome = await _settle(bridge, options, decision, decisions, refused)
            except IdeabridgeError as error:
                # Go on with the decisions for other runs.
                message = _why_not(error, decisions[0])
                report(message)
                answers.append({"run": run_id, "error": message})
                codes.add(ExitCode.FAILED)
                continue

            if refused:
                codes.add(ExitCode.FAILED)

            if outcome.stopped and outcome.run.status == "needs_approval":
                say("left waiting", "yellow")
                return ExitCode.CANCELLED

            if options.json:
                decided: list[JSON] = [
                    pending.approval for pending in decisions if pending.approval not in refused
                ]
                answers.append(result_json(outcome, {"decided": decided}))
                codes.add(outcome.code())
            else:
                codes.add(print_result(outcome, options))

    if options.json:
        print_json({"runs": answers})

    order = (ExitCode.CANCELLED, ExitCode.FAILED, ExitCode.WAITING)
    return next((code for code in order if code in codes), ExitCode.DONE)


async def _settle(
    bridge: Bridge,
    options: Options,
    decision: Decision | None,
    decisions: list[Pending],
    refused: list[str],
) -> Followed:
    """Submit the decision for the chosen questions of one run, or ask the person if `decision` is
    None. Then follow the run.

    Approvals that nobody can decide any more are reported, and added to `refused`. If the run
    accepts at least one decision, it is followed, because its calls run in this process.

    Raises:
        InterruptedRunError, DecisionError, FinishedRunError: this process cannot make the decision,
            or it is too late to make it.
    """
    from ideabridge.bridge.errors import DecisionError
    from ideabridge.bridge.standing_rules import StandingRuleError
    from ideabridge.server.cli.follow import follow

    record = decisions[0].record
    run = await bridge.run(record.id, caller=record.caller)
    if decision is None:
        say(f"run {record.id}: {record.title}", "bold")
        return await follow(run, leaves=True)

    for pending in decisions:
        try:
            await run.patiently(partial(run.settle, pending.approval, decision))
        except StandingRuleError as error:
            # The call has been approved and is running, so only report the error.
            report(str(error))
        except DecisionError as error:
            refused.append(pending.approval)
            if len(refused) == len(decisions):
                raise
            report(_why_not(error, pending))
            continue

        if not options.json:
            line = f"{_DONE[decision.decision]}: {pending.approval} of {record.id}"
            if decision.reason:
                line += f": {decision.reason}"
            say(line, "green")

    return await follow(run, quiet=options.json, asks=False)


def _why_not(error: Exception, pending: Pending) -> str:
    from ideabridge.bridge.errors import InterruptedRunError

    if isinstance(error, InterruptedRunError) and pending.at_work:
        return (
            f"run {pending.record.id} is executed by another process; decide in the host that runs "
            "it, or here after its other calls have ended"
        )

    if pending.deadline is not None and pending.deadline <= time.time():
        return (
            f"run {pending.record.id}: the time for {pending.approval} is up, "
            f"and it is {_refused(pending)}"
        )

    message = str(error)
    if pending.record.id in message:
        return message
    return f"run {pending.record.id}: {message}"


def _refused(pending: Pending) -> str:
    """Return a word for what happens to the call if nobody decides in time."""
    return "skipped" if pending.question.refusal == "skip" else "denied"
