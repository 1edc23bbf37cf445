"""What the machine is spared: sizes that took minutes, told by counting or by ending at all."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ideabridge.bridge.context.references import parse_reference
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.loop.call import Call, Read
from ideabridge.bridge.loop.effect import Execute
from ideabridge.bridge.loop.event import SolutionProposed
from ideabridge.bridge.loop.graph import components, emission
from ideabridge.bridge.loop.memory import Memory, Write
from ideabridge.bridge.loop.progress import Absent, CallStatus, Judge, Progress, Wait
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.plan import read_plan
from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import LimitExceededError
from tests.loop.driving import Driven, started


class Counting(dict[int, Progress]):
    """Progress by call that counts how often it is looked at."""

    looked = 0

    def __getitem__(self, key: int) -> Progress:
        self.looked += 1
        return super().__getitem__(key)


def bound(count: int) -> tuple[Memory, Counting, Read]:
    memory = Memory({"": {"state": {}, "results": {}}})
    progress = Counting(
        {index: Progress(Call(index, index, {}, name="echo")) for index in range(count)}
    )
    return memory, progress, Read(parse_reference("†state.log"), [[tuple(range(count))]])


def settle(
    memory: Memory, progress: Counting, index: int, status: CallStatus = CallStatus.DONE
) -> None:
    one = progress[index]
    one.status = status
    if status is CallStatus.DONE:
        one.wrote = (("state", "log"),)
        writes = [Write(index, "", ("state", "log"), "push", index)]
        memory.commit(writes, memory.try_write(writes))


def test_a_reader_passes_over_each_settled_writer_once() -> None:
    memory, progress, item = bound(1_000)
    judge = Judge(memory, progress)
    for index in range(1_000):
        assert judge.evaluate(item, "") == Wait(index)
        assert judge.waits(item) == Wait(index)
        settle(memory, progress, index)

    for _ in range(1_000):
        assert judge.evaluate(item, "") == list(range(1_000))
        assert judge.waits(item) is None

    assert progress.looked < 20_000, "a rescan for every writer would look a million times"


def test_a_reader_of_data_is_woken_once_where_calls_settle_in_order() -> None:
    memory, progress, _ = bound(1_000)
    judge = Judge(memory, progress)
    item = Read(parse_reference("†data.log"), [[tuple(range(1_000))]])
    for index in range(1_000):
        assert judge.evaluate(item, "") == Wait(999)
        settle(memory, progress, index)

    found = judge.evaluate(item, "")
    assert isinstance(found, Absent)
    assert found.why == "skipped"
    # Another reader waits for the last open call, and passes over each settled one only once.
    progress[500].status = CallStatus.WAITING
    item = Read(parse_reference("†data.log"), [[tuple(range(1_000))]])
    progress.looked = 0
    for _ in range(1_000):
        assert judge.evaluate(item, "") == Wait(500)

    assert progress.looked < 5_000, "a rescan for every look would look half a million times"


def test_a_failed_writer_is_told_of_before_the_later_ones_settle() -> None:
    memory, progress, item = bound(3)
    judge = Judge(memory, progress)
    settle(memory, progress, 0, CallStatus.FAILED)
    found = judge.evaluate(item, "")
    assert isinstance(found, Absent)
    assert found.why == "failed"
    assert judge.waits(item) == Wait(1)


def test_a_branch_not_taken_by_many_is_told_briefly() -> None:
    memory, progress, item = bound(1_000)
    for index in range(1_000):
        settle(memory, progress, index, CallStatus.SKIPPED)

    found = Judge(memory, progress).evaluate(item, "")
    assert isinstance(found, Absent)
    assert found.why == "skipped"
    assert len(found.message) < 500


# -- listed order ----------------------------------------------------------------------------------


def test_ten_thousand_calls_that_each_read_the_next_run_backwards() -> None:
    calls: list[JSON] = [{"_tool": "write", "x": f"†results.{n + 1}"} for n in range(1_999)]
    driven = Driven().whole(started(), [*calls, {"_tool": "write", "x": 7}])
    assert [call for call, _ in driven.executions] == list(range(1_999, -1, -1))
    chain = {n: [n + 1] for n in range(100_000)} | {100_000: []}
    assert emission(chain, {n: [n - 1] for n in range(1, 100_001)}) == [
        [n] for n in range(100_000, -1, -1)
    ]


def test_thousands_of_ordered_calls_and_fans_are_bound_in_one_pass() -> None:
    ordered: list[JSON] = [{"_tool": "write", "x": n} for n in range(1_000)]
    driven = Driven().whole(
        started(), [*ordered, {"_tool": "echo", "x": "†results.1001"}, {"_tool": "echo", "x": 1}]
    )
    assert [call for call, _ in driven.executions if call < 1_000] == list(range(1_000))
    fan: list[JSON] = [{"_tool": "write", "x": "†results.2000"} for _ in range(2_000)]
    driven = Driven().whole(started(), [*fan, {"_tool": "write", "x": 5}])
    assert [call for call, _ in driven.executions] == [2_000, *range(2_000)]


@pytest.mark.parametrize(
    ("data", "groups", "order"),
    [
        # An independent call of another group keeps its listed place before a call that is needed
        # early.
        ({0: [2], 1: [], 2: []}, [[0], [1, 2]], [[1], [2], [0]]),
        # No later call is moved before one that waits for data from another group.
        ({0: [2], 1: [], 2: []}, [[0, 1], [2]], [[2], [0], [1]]),
        # Within a group, data decides.
        ({0: [2], 1: [], 2: []}, [[0, 1, 2]], [[2], [0], [1]]),
        # A cycle of data is one part, and stays in its place.
        ({0: [], 1: [2], 2: [1], 3: []}, [[0, 1, 2, 3]], [[0], [1, 2], [3]]),
    ],
)
def test_listed_order_is_kept_where_data_allow(
    data: dict[int, list[int]], groups: list[list[int]], order: list[list[int]]
) -> None:
    listed = {after: [before] for group in groups for before, after in pairwise(group)}
    assert emission(data, listed) == order


def test_parts_come_after_all_they_lead_to() -> None:
    assert components({0: [1], 1: [2], 2: [1], 3: [0, 9]}) == [[1, 2], [0], [3]]


def test_ordered_calls_in_a_circle_through_a_later_alternative_still_run() -> None:
    calls: list[JSON] = [
        {"_tool": "write", "x": "†state.b", "_outputPath": "a"},
        {"_tool": "write", "x": "†state.c || †state.a", "_outputPath": "b"},
        {"_tool": "write", "x": 3, "_outputPath": "c"},
        {"_tool": "write", "x": 4, "_outputPath": "d"},
    ]
    whole = Driven().whole(started(), calls)
    assert whole.statuses() == ["done"] * 4
    assert [call for call, _ in whole.executions] == [2, 1, 0, 3]
    assert Driven().streamed(started(), calls).statuses() == ["done"] * 4


# -- what is told ----------------------------------------------------------------------------------


def problems(calls: list[JSON]) -> list[str]:
    driven = Driven()
    driven.post(started())
    return [
        str(entry["error"]) for entry in driven.machine.check(SolutionProposed(calls, None)).errors
    ]


@pytest.mark.parametrize(
    "call",
    [
        {"_tool": "t" * 1_000_000},
        {"_tool": "echo", "_module": "m" * 1_000_000},
        {"_tool": "echo", "x": "†" + "r" * 4_000},
        {"_tool": "echo", "x": "†state." + "r" * 4_000},
        {"_tool": "echo", "_outputPath": "state." + "p" * 4_000},
        {"_tool": "echo", "_instance": "i" * 1_000_000},
        {"_tool": "echo", "_after": ["a" * 1_000_000]},
        {"_tool": "echo", "_outputMethod": "a" * 1_000_000},
        {"_tool": "echo", "x": "$state." + "a" * 200},
    ],
)
def test_messages_never_give_a_long_text_back(call: JSON) -> None:
    found = problems([call])
    assert found
    assert sum(map(len, found)) < 2_000


def test_a_long_cycle_and_thousands_of_missing_values_are_told_briefly() -> None:
    count = 3_000
    cycle: list[JSON] = [
        {"_tool": "echo", "x": f"†results.{(n + 1) % count}"} for n in range(count)
    ]
    found = problems(cycle)
    assert len(found) == count
    assert max(map(len, found)) < 1_000
    missing = problems(
        [{"_tool": "echo", "x": f"†state.none{n}", "_outputPath": f"p{n}"} for n in range(count)]
    )
    assert len(missing) == count
    assert all("nothing supplies" in text for text in missing)


def test_a_plan_is_bounded_and_its_instances_can_be_named() -> None:
    with pytest.raises(LimitExceededError, match="bytes of JSON"):
        read_plan({"calls": [{"_tool": "echo", "x": "y" * 1_000_000} for _ in range(9)]})

    for name in ("", "a\u00a0b", "a\r", "state"):
        with pytest.raises(PlanError, match="_instance"):
            read_plan({"calls": [], "instances": {name: {}}})

    with pytest.raises(PlanError) as caught:
        read_plan({"calls": [], "k" * 1_000_000: 1})

    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("output", "by_instance"),
    [
        ("†state.o", True),
        (["†a.state.o", "†state.o"], True),
        ("†a.state.o || †state.o", True),
        (["†a.state.o", "†b.state.o"], False),
        ({"n": 5, "text": "††state.o"}, False),
        (None, True),
    ],
)
def test_an_output_is_a_map_by_instance_where_it_reads_inside_one(
    output: JSON, by_instance: bool
) -> None:
    plan: dict[str, JSON] = {"calls": [], "instances": {"a": {}, "b": {}}, "output": output}
    assert read_plan(plan).output_by_instance is by_instance
    assert read_plan({**plan, "instances": {}}).output_by_instance is False


# -- outputs by instance ---------------------------------------------------------------------------


def by_instance(
    output: JSON, schema: dict[str, JSON] | None = None, failing: tuple[int, ...] = (1,)
) -> Driven:
    """A plan over instances a and b; `failing` calls fail."""
    context: list[JSON] = [
        {"type": "state", "state": {"n": n}, "_instance": one} for n, one in enumerate("ab")
    ]
    calls: list[JSON] = [
        {"_tool": "echo", "_instance": one, "x": "†state.n", "_outputPath": "o"} for one in "ab"
    ]
    settings = Settings(approval="allow_all", output_by_instance=True)

    def execute(effect: Execute) -> tuple[bool, JSON]:
        if effect.call.index in failing:
            return (False, "boom")
        return (True, effect.parameters["x"])

    return Driven(execute).whole(
        started(context, settings=settings, output_schema=schema), calls, output
    )


def test_an_output_that_fails_in_one_instance_is_given_for_the_others() -> None:
    machine = by_instance("†state.o").machine
    assert (machine.status, machine.output) == ("done", {"a": 0})
    told = [str(entry["error"]) for entry in machine.errors if entry["call"] is None]
    assert len(told) == 1
    assert "output of b" in told[0]


def test_an_output_that_does_not_fit_its_schema_in_one_instance_is_given_for_the_others() -> None:
    machine = by_instance("†state.o", {"type": "integer", "maximum": 0}, failing=()).machine
    assert (machine.status, machine.output) == ("done", {"a": 0})
    assert [str(entry["error"]).count("the output of b") for entry in machine.errors] == [1]


def test_an_output_that_fails_in_every_instance_fails_the_run() -> None:
    machine = by_instance("†state.o", failing=(0, 1)).machine
    assert (machine.status, machine.has_output) == ("failed", False)
    assert len([entry for entry in machine.errors if entry["call"] is None]) == 2
    assert by_instance("†state.o", {"type": "string"}, failing=()).machine.status == "failed"
