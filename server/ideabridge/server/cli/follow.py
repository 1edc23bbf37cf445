"""Follow: stay with a run until it has ended, ask the person where it waits, and stop it at Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from ideabridge.bridge.run import Run
from ideabridge.server.cli.ask import ask_all, decline_all
from ideabridge.server.cli.console import errors_told, print_json, print_value, report, say
from ideabridge.server.cli.exits import ExitCode, standing_in_terminal
from ideabridge.server.cli.options import Options
from ideabridge.server.cli.progress import Board, Display, LiveDisplay, PlainDisplay, message_of
from ideabridge.server.cli.turning import Turns
from ideabridge.tools.encoding import JSON, JSONObject, encode_text


@dataclass(slots=True)
class Outcome:
    """How following ended. `stopped`: the person ended it; `pending`: nobody is here to approve."""

    board: Board
    stopped: bool = False
    pending: bool = False

    def code(self) -> ExitCode:
        """The exit code it stands for."""
        if self.stopped:
            return ExitCode.CANCELLED
        run = self.board.run
        if self.pending or run.status == "needs_solution":
            return ExitCode.WAITING
        return ExitCode.DONE if run.status == "done" and not run.errors() else ExitCode.FAILED


async def follow(
    run: Run, *, quiet: bool = False, by_turns: bool = False, asks: bool = True, leaves: bool = False
) -> Outcome:
    """Stay with `run` until it has ended or waits for somebody who is not here.

    Args:
        run: a run started a moment ago.
        quiet: show nothing.
        by_turns: read solutions from standard input where the run needs one.
        asks: ask the person at the terminal, if there is one, for approvals.
        leaves: at Ctrl-C leave a run waiting that waits, instead of ending it.
    """
    board = Board(run)
    outcome = Outcome(board)
    turns = Turns(run, quiet=quiet)
    for progress in run.calls():
        if progress.standing.value == "running":
            from ideabridge.bridge.loop.event import CallStarted

            # Its first calls started before anybody could watch.
            board.take(CallStarted(progress.call.index))
    run.runner.watchers.append(board.take)
    run.runner.progress_watchers.append(lambda call, _done, _total, note: board.notes.update({call: note or ""}))
    async with _stopping_at_signals(run, outcome, leaves=leaves):
        display: Display | None = None
        if not quiet:
            display = LiveDisplay(board) if sys.stderr.isatty() else PlainDisplay(board)
            run.runner.watchers.append(display.changed)
            display.changed()
        try:
            while (status := await run.wait()) in ("needs_approval", "needs_solution"):
                aside = contextlib.nullcontext() if display is None else display.aside()
                if status == "needs_solution":
                    if not by_turns:
                        break
                    with aside:
                        if not await turns.take():
                            break
                    continue
                if not (asks and standing_in_terminal()):
                    if await decline_all(run):
                        continue
                    outcome.pending = True
                    break
                with aside:
                    await ask_all(run)
        except anyio.get_cancelled_exc_class():
            if not outcome.stopped:
                # Ctrl-C came before the signals were watched, and asyncio cancels us by itself.
                await _stop(run, leaves=leaves)
                say(f"{run.id}: {run.status}", "dim")
            raise
        finally:
            if display is not None:
                display.close()
    return outcome


async def _stop(run: Run, *, leaves: bool) -> None:
    """End a run because the person stopped the command; with `leaves`, not one that waits for a decision."""
    if not (leaves and run.status == "needs_approval"):
        await run.patiently(lambda: run.cancel("stopped at the terminal"))


@asynccontextmanager
async def _stopping_at_signals(run: Run, outcome: Outcome, *, leaves: bool) -> AsyncGenerator[None]:
    """Ctrl-C (and SIGTERM) cancel the run and its calls, remote ones too; what was done stays in the store."""

    async def watch(signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope) -> None:
        async for _ in signals:
            outcome.stopped = True
            await _stop(run, leaves=leaves)
            scope.cancel()
            return

    if sys.platform == "win32":
        # No signal handlers in this event loop there: KeyboardInterrupt ends the process, the journal keeps the rest.
        yield
        return
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with anyio.create_task_group() as group:
            group.start_soon(watch, signals, group.cancel_scope)
            yield
            group.cancel_scope.cancel()


def told_of(outcome: Outcome, extra: JSONObject | None = None) -> JSONObject:
    """How a run ended, for machines: its whole answer, with `calls`, and the members of `extra`."""
    calls: list[JSON] = [*outcome.board.rows()]
    return {**outcome.board.run.answer(whole=True), "calls": calls, **(extra or {})}


def tell(outcome: Outcome, options: Options, *, extra: JSONObject | None = None) -> ExitCode:
    """Print how a run ended: the result on standard output, everything else on standard error.

    Args:
        outcome: of `follow`.
        options: of the command; with `--json` one JSON object is printed instead.
        extra: more members for the JSON object.
    """
    run = outcome.board.run
    if options.json:
        print_json(told_of(outcome, extra))
    else:
        answer = run.answer(whole=True)
        if "output" in answer:
            print_value(answer["output"])
            if answer.get("state"):
                say(f"state: {encode_text(run.answer().get('state'))}", "dim")
        elif run.status == "done" or answer.get("state") or answer.get("results"):
            print_value({key: answer[key] for key in ("state", "results") if answer.get(key)})
        for error in run.errors():
            report(error_line(error))
        idea = f", idea {run.idea[:12]}" if run.idea else ""
        reason = f" ({answer['reason']})" if answer.get("reason") else ""
        if "\n" in reason:
            report(str(answer["reason"]))
            reason = ""
        say(f"{run.id}: {run.status}{errors_told(len(run.errors()))}{reason}{idea}", "dim")
    _advise(outcome, options)
    return outcome.code()


def _advise(outcome: Outcome, options: Options) -> None:
    """Say what a person can do about a run that waits. Nothing of it is to be run again."""
    run, again = outcome.board.run, options.again
    if run.status == "needs_solution":
        report(f"it waits for the solution of turn {run.turn}. A host connected to this store can hand it in, or you:")
        report(f"  ideabridge resume {run.id}{again} (reads it from standard input, and goes on)")
    if outcome.pending:
        choices: list[JSON] = []
        for entry in run.approvals():
            if isinstance(entry, dict):
                report(f"approval needed ({entry.get('approval')}): {entry.get('why')}")
                choices.append(entry.get("choices", ["approve", "deny"]))
        # To take a run up, the configuration must be the same: the options that made it stand in the advice.
        report("it waits in the store. A host connected to this store can decide, or you:")
        report(f"  ideabridge resume {run.id}{again} (asks you at a terminal, and goes on)")
        match choices:
            case [[first, *others], *rest] if all(one == choices[0] for one in rest):
                report(f"  ideabridge approvals decide {first} {run.id}{again} (or {', '.join(map(str, others))})")
            case _:
                report(f"  ideabridge approvals list {run.id}{again} (shows how each may be answered)")


def error_line(entry: JSONObject) -> str:
    """One error of a run: the call it is of, and what went wrong."""
    call = entry.get("call")
    where = ""
    if isinstance(call, dict):
        where = f"{call.get('_id') or call.get('_tool')}: "
    return where + message_of(entry.get("error"))
