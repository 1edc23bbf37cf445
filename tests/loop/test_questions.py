"""Calls whose modules ask, in the machine: they leave their place to others, and end with
what they asked.
"""

from __future__ import annotations

import pytest

from ideabridge.bridge.context.inquiry import Inquiry
from ideabridge.bridge.loop.event import (
    CallFinished,
    JournalError,
    OutcomeAsked,
    OutcomeDecided,
    QuestionAnswered,
    QuestionAsked,
    QuestionRefused,
    SolutionCancelled,
    SolutionProposed,
    decider_of,
)
from ideabridge.bridge.loop.machine import Machine, finish_events, resume_events
from ideabridge.bridge.loop.question import asked
from ideabridge.bridge.loop.settings import Settings
from ideabridge.tools.encoding import JSONObject

from .driving import Driven, started

FORM = Inquiry("asks", "Who?", {"type": "object", "properties": {"name": {"type": "string"}}})


def driven(parallel_calls: int = 16) -> Driven:
    run = Driven()
    run.post(started(settings=Settings(approval="allow_all", parallel_calls=parallel_calls)))
    run.post(SolutionProposed([{"_tool": "echo", "x": 1}, {"_tool": "echo", "x": 2}], None))
    return run


def question(run: Driven, call: int = 0) -> QuestionAsked:
    found = asked(run.machine.history[call], None, FORM, 1.0)
    assert found is not None
    return found


def test_a_parked_call_leaves_its_place_and_ends_whenever_it_is_answered() -> None:
    run = driven(parallel_calls=1)
    assert [effect.key for effect in run.running] == [(0, None)]
    first = question(run)
    run.post(first)
    assert [effect.key for effect in run.running] == [(0, None), (1, None)]
    assert not run.machine.waits_for_people
    run.post(CallFinished(1, value=2))
    assert run.machine.waits_for_people
    run.post(
        QuestionAnswered(0, first.digest, "accept", decider_of("Ann"), content={"name": "Ann"})
    )
    assert not run.machine.waits_for_people
    second = question(run)
    assert second.digest != first.digest
    run.post(second)
    # The call may end while it waits, because its module gave up.
    run.post(CallFinished(0, value=1))
    assert run.machine.status == "done"
    again = Machine()
    for event in run.journal:
        again.receive(event)

    assert (again.status, again.state) == (run.machine.status, run.machine.state)


def test_an_answer_is_bound_to_the_question_that_waits() -> None:
    run = driven()
    with pytest.raises(JournalError, match="no open question"):
        run.post(QuestionAnswered(0, "x", "cancel", decider_of("Ann")))

    one = question(run)
    run.post(one)
    with pytest.raises(JournalError, match="cannot ask now"):
        run.post(one)

    with pytest.raises(JournalError, match="the answer to a different question"):
        run.post(QuestionAnswered(0, question(run, 1).digest, "cancel", decider_of("Ann")))

    run.post(QuestionAnswered(0, one.digest, "decline", decider_of("Ann")))
    run.post(CallFinished(0, value=1))
    with pytest.raises(JournalError, match="is not running"):
        run.post(QuestionRefused(0, "asks", "Who?", "too late"))


def test_what_was_asked_in_a_process_that_died_is_cancelled_first() -> None:
    run = driven()
    one = question(run)
    run.post(one)
    again, events = resume_events(run.machine, 1.0)
    # The tool of both calls may run twice, so both run again.
    assert [effect.key for effect in again] == [(0, None), (1, None)]
    [gone] = events
    assert isinstance(gone, QuestionAnswered)
    assert (gone.digest, gone.action, str(gone.by)) == (one.digest, "cancel", "the bridge")
    run.post(gone)
    run.post(question(run))


def cut_off(run: Driven, call: int = 0) -> OutcomeAsked:
    """The module of a call ends while it runs: the question what came of it."""
    error: JSONObject = {"kind": "unknown", "message": "its server ended"}
    for event in finish_events(run.machine, CallFinished(call, error=error), 1.0):
        run.post(event)

    if isinstance(run.journal[-1], OutcomeAsked):
        last = run.journal[-1]
    else:
        last = run.journal[-2]

    assert isinstance(last, OutcomeAsked)
    return last


def test_a_call_in_doubt_leaves_its_place_and_its_parked_question_ends_with_it() -> None:
    run = driven(parallel_calls=1)
    run.post(question(run))
    assert [effect.key for effect in run.running] == [(0, None), (1, None)]
    doubt = cut_off(run)
    assert doubt.why == "its server ended"
    assert [type(event) for event in run.journal[-2:]] == [QuestionAnswered, OutcomeAsked]
    assert not run.machine.waits_for_people
    run.post(CallFinished(1, value=2))
    assert run.machine.waits_for_people
    with pytest.raises(JournalError, match="not in flight"):
        run.machine.receive(doubt)

    with pytest.raises(JournalError, match="cannot ask now"):
        run.machine.receive(question(run))

    run.post(OutcomeDecided(0, doubt.digest, "value", decider_of("Ann"), value=1))
    assert run.machine.status == "done"
    again = Machine()
    for event in run.journal:
        again.receive(event)

    assert (again.status, again.state) == (run.machine.status, run.machine.state)


def test_the_place_of_a_call_in_doubt_is_taken_at_once() -> None:
    run = driven(parallel_calls=1)
    doubt = cut_off(run)
    assert [effect.key for effect in run.running] == [(0, None), (1, None)]
    run.post(OutcomeDecided(0, doubt.digest, "retry", decider_of("Ann")))
    # The call waits for its turn, like any other call.
    assert len(run.running) == 2
    run.post(CallFinished(1, value=2))
    assert [effect.key for effect in run.running] == [(0, None), (1, None), (0, None)]
    assert cut_off(run).approval != doubt.approval


def test_a_call_in_doubt_that_is_cancelled_gives_its_place_up_only_once() -> None:
    run = driven()
    cut_off(run)
    assert not run.machine.waits_for_people
    run.machine.receive(SolutionCancelled("enough"))
    error: JSONObject = {"kind": "cancelled", "message": "enough"}
    run.machine.receive(CallFinished(0, error=error))
    # The other call is still running, but nobody is asked any more.
    assert not run.machine.waits_for_people


def test_an_item_in_doubt_is_not_caught() -> None:
    run = Driven()
    run.post(started(settings=Settings(approval="allow_all")))
    call: JSONObject = {
        "_tool": "echo",
        "_each": [1, 2],
        "x": "†item",
        "_outputPath": "sent || unsent",
    }
    run.post(SolutionProposed([call], None))
    run.post(CallFinished(0, 0, value=1))
    run.post(CallFinished(0, 1, error={"kind": "unknown", "message": "its server ended"}))
    assert run.statuses() == ["failed"]
