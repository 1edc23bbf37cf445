"""The trace of a run, from the events of a journal."""

from __future__ import annotations

from ideabridge.server.views.trace import Trace
from ideabridge.tools.encoding import JSONObject


def test_the_time_of_a_decision_counts_from_the_question_that_it_answers() -> None:
    events: list[JSONObject] = [
        {"event": "call_proposed", "call": {"_tool": "send"}},
        {"event": "approval_asked", "call": 0},
        {"event": "call_decided", "call": 0, "decision": "approve"},
        {"event": "approval_asked", "call": 0},
        {"event": "call_decided", "call": 0, "decision": "approve"},
    ]
    times = dict(enumerate([0.0, 10.0, 13.0, 100.0, 101.0]))
    trace = Trace()
    trace.add(list(enumerate(events))[:4], times)
    (bar,) = trace.bars
    assert (bar.status, bar.asked, bar.decided) == ("asking", 100.0, None)
    trace.add(list(enumerate(events))[4:], times)
    assert [seconds for _, seconds in bar.approvals] == [3.0, 1.0]
    assert (bar.asked, bar.decided) == (100.0, 101.0)
