"""Say in a sentence or two what the calls of a run did, from its journal alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.failure import NOT_RUN, read_failure
from ideabridge.bridge.context.references import clipped
from ideabridge.bridge.loop.progress import Progress
from ideabridge.server.ui.call_names import CallName
from ideabridge.server.ui.stages import MOST_NAMED, stages_of
from ideabridge.server.ui.timeline import bar_status
from ideabridge.server.views.trace import CallBar, RuleOfCall, Trace
from ideabridge.tools.names import counted

_LONGEST_NAME: Final = 40
_WORDS: Final = {"asking": "waiting for a decision"}
"""Statuses in words, where the status itself does not fit into a sentence."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call with its title, its status on pages, and its state, which is None if the journal is
    not folded.
    """

    bar: CallBar
    title: str
    status: str
    progress: Progress | None

    @property
    def name(self) -> str:
        return clipped(self.title, _LONGEST_NAME) or "a call"


def sentence_of(
    trace: Trace,
    calls: Sequence[Progress],
    names: Sequence[CallName],
    most: int,
    explained: Collection[int] = (),
    *,
    is_left: bool = False,
) -> str:
    """Return what the calls of a run did, such as `Called List orders and Find customer at the same
    time, then Compute.`, or "" if there is nothing to say.

    Args:
        trace: the trace of the run.
        calls: the calls in the machine of the folded journal, or none if the journal was not
            folded.
        names: the names of the calls.
        most: the largest number of calls that ran at the same time.
        explained: the numbers of the calls whose errors the page shows, including who denied them.
        is_left: whether no process drives the run, so that none of its calls is still running.
    """
    listed: list[_Call] = []
    for bar in trace.bars:
        progress = calls[bar.number] if bar.number < len(calls) else None
        status = bar_status(bar, progress)
        if is_left and status == "running":
            status = "interrupted"
        listed.append(_Call(bar, names[bar.number].title, status, progress))

    if not listed:
        return ""
    if len(listed) > MOST_NAMED:
        return _in_numbers(listed, most)

    began = [call for call in listed if call.bar.started is not None]
    if began and all(call.status == "failed" for call in began) and len(began) == len(listed):
        return f"{_called(began)}, which {'all ' if len(began) > 1 else ''}failed."

    asking = [call for call in listed if call.status == "asking"]
    first = _called(began)
    if asking:
        asks = f"asks before {_subject(asking)}"
        first = f"{first}, then {asks}" if first else f"{asks[:1].upper()}{asks[1:]}"

    parts = [first, *_without_result(listed, explained), *_running(listed)]
    return " ".join(f"{part}." for part in parts if part)


@dataclass(frozen=True, slots=True)
class RuledCalls:
    """The calls of a run that a standing rule approved without asking.

    Attributes:
        calls: how many calls the rule approved.
        tools: the titles of their tools.
        rule: the rule.
    """

    calls: int
    tools: tuple[str, ...]
    rule: RuleOfCall


def ruled_calls(trace: Trace, names: Sequence[CallName]) -> list[RuledCalls]:
    """Return the calls of a run that standing rules approved, grouped by person and day."""
    rules: dict[tuple[str, str], RuleOfCall] = {}
    tools: dict[tuple[str, str], list[str]] = {}
    for bar in trace.bars:
        if bar.rule is not None:
            key = (bar.rule.by, bar.rule.at[:10])
            rules.setdefault(key, bar.rule)
            title = clipped(names[bar.number].title, _LONGEST_NAME)
            tools.setdefault(key, []).append(title)

    return [
        RuledCalls(len(tools[key]), tuple(dict.fromkeys(tools[key])), rule)
        for key, rule in rules.items()
    ]


def _in_numbers(listed: Sequence[_Call], most: int) -> str:
    """Return a sentence that counts the calls, such as `12 calls of 3 tools: 9 done, 3 failed`."""
    tools = {call.name for call in listed}
    if len(tools) == 1:
        of = listed[0].name
    else:
        of = f"{len(tools):,} tools"

    text = f"{counted(len(listed), 'call')} of {of}"
    if most > 1:
        text += f", up to {most:,} at the same time"

    statuses = Counter(call.status for call in listed)
    if len(statuses) > 1:
        parts = [f"{number:,} {_WORDS.get(status, status)}" for status, number in statuses.items()]
        text += f": {', '.join(parts)}"
    return f"{text}."


def _called(began: Sequence[_Call]) -> str:
    """Return which calls ran, in the order in which they began, and which ran at the same time.
    Return "" if no call has begun.
    """
    call_of = {call.bar.number: call for call in began}
    stages = [
        [call_of[bar.number] for bar in stage] for stage in stages_of(call.bar for call in began)
    ]
    texts: list[str] = []
    for stage in stages:
        text = _listed(stage)
        texts.append(f"{text} at the same time" if len(stage) > 1 else text)
    return f"Called {', then '.join(texts)}" if texts else ""


def _without_result(listed: Sequence[_Call], explained: Collection[int]) -> list[str]:
    """Return which calls have no result, and why if the reason is known. The page itself says who
    denied the explained calls.
    """
    denied = [call for call in listed if call.status == "denied"]
    failed = [call for call in listed if call.status == "failed"]
    stopped = [call for call in listed if call.status in ("cancelled", "interrupted")]
    not_run = [call for call in listed if call.status == "not run"]
    parts: list[str] = []
    if denied:
        is_explained = any(call.bar.number in explained for call in denied)
        deciders = "" if is_explained else _deciders(denied)
        parts.append(f"{_subject(denied)} {_were(denied)} denied{deciders}")
    if failed:
        parts.append(f"{_subject(failed)} failed")
    for call in stopped:
        parts.append(f"{call.name} was {call.status}")
    if not not_run:
        return parts

    text = f"{_subject(not_run)} did not run"
    has_one_cause = len(parts) == 1 and not stopped
    if has_one_cause and all(_reads_no_result(call) for call in not_run):
        return [f"{parts[0]}, so {text}"]
    return [*parts, text]


def _reads_no_result(call: _Call) -> bool:
    """Return whether a call did not run because a call that it depends on has no result."""
    return call.progress is not None and read_failure(call.progress.error).kind == NOT_RUN


def _running(listed: Sequence[_Call]) -> list[str]:
    """Return which calls are running."""
    running = [call for call in listed if call.status == "running"]
    if not running:
        return []
    return [f"{_subject(running)} {'is' if len(running) == 1 else 'are'} running"]


def _deciders(denied: Sequence[_Call]) -> str:
    """Return who denied the calls, or None if several people did or the journal does not say."""
    deciders = {_decider(call.bar) for call in denied}
    return f" by {deciders.pop()}" if len(deciders) == 1 and "" not in deciders else ""


def _decider(bar: CallBar) -> str:
    return bar.approvals[-1][0] if bar.approvals else ""


def _were(calls: Sequence[_Call]) -> str:
    return "was" if len(calls) == 1 else "were"


def _listed(calls: Iterable[_Call]) -> str:
    """Return the names of calls as a phrase. If several calls have the same name, it is followed by
    their number.
    """
    numbers = Counter(call.name for call in calls)
    return _joined(
        [name if number == 1 else f"{name} ({number} times)" for name, number in numbers.items()]
    )


def _subject(calls: Iterable[_Call]) -> str:
    """Return the names of calls as the beginning of a sentence, such as `3 calls of save`."""
    numbers = Counter(call.name for call in calls)
    return _joined(
        [name if number == 1 else f"{number} calls of {name}" for name, number in numbers.items()]
    )


def _joined(names: Sequence[str]) -> str:
    """Return the names joined into a phrase, such as `a, b and c`."""
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"
