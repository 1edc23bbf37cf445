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
from ideabridge.server.cli.console import print_json, print_value, report, say
from ideabridge.server.cli.exits import ExitCode, standing_in_terminal
from ideabridge.server.cli.progress import Board, Display, LiveDisplay, PlainDisplay, message_of
from ideabridge.server.cli.turning import Turns
from ideabridge.tools.encoding import JSON, JSONObject


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


async def follow(run: Run, *, quiet: bool = False, by_turns: bool = False) -> Outcome:
    """Stay with `run` until it has ended or waits for somebody who is not here.

    Args:
        run: a run started a moment ago.
        quiet: show nothing.
        by_turns: read solutions from standard input where the run needs one.
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
    async with _stopping_at_signals(run, outcome):
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
                if not standing_in_terminal():
                    if decline_all(run):
                        continue
                    outcome.pending = True
                    break
                with aside:
                    await ask_all(run)
        finally:
            if display is not None:
                display.close()
    return outcome


@asynccontextmanager
async def _stopping_at_signals(run: Run, outcome: Outcome) -> AsyncGenerator[None]:
    """Ctrl-C (and SIGTERM) cancel the run and its calls, remote ones too; what was done stays in the store."""

    async def watch(signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope) -> None:
        async for _ in signals:
            outcome.stopped = True
            run.cancel("stopped at the terminal")
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


def tell(outcome: Outcome, *, json: bool, extra: JSONObject | None = None) -> ExitCode:
    """Print how a run ended: the result on standard output, everything else on standard error.

    Args:
        outcome: of `follow`.
        json: one JSON object instead.
        extra: more members for the JSON object.
    """
    run = outcome.board.run
    answer = run.answer(whole=True)
    if json:
        calls: list[JSON] = [*outcome.board.rows()]
        print_json({**answer, "calls": calls, **(extra or {})})
    else:
        if "output" in answer:
            print_value(answer["output"])
        elif run.status == "done" or answer.get("state") or answer.get("results"):
            print_value({key: answer[key] for key in ("state", "results") if answer.get(key)})
        for error in run.errors():
            report(_error_line(error))
        idea = f", idea {run.idea[:12]}" if run.idea else ""
        reason = f" ({answer['reason']})" if answer.get("reason") else ""
        if "\n" in reason:
            report(str(answer["reason"]))
            reason = ""
        say(f"{run.id}: {run.status}{reason}{idea}", "dim")
    if run.status == "needs_solution":
        report(
            f"it waits for the solution of turn {run.turn}: give it to `ideabridge resume {run.id}` on standard input, "
            f"or in a host connected to this store (check_run with run {run.id}, then submit_solution)"
        )
    if outcome.pending:
        for entry in run.approvals():
            if isinstance(entry, dict):
                report(f"approval needed: {entry.get('why')}")
        report(
            "run it again with --allow-all, or at a terminal, or decide in a host connected to this store "
            f"(check_run and decide_approval with run {run.id})"
        )
    return outcome.code()


def _error_line(entry: JSONObject) -> str:
    call = entry.get("call")
    where = ""
    if isinstance(call, dict):
        where = f"{call.get('_id') or call.get('_tool')}: "
    return where + message_of(entry.get("error"))
