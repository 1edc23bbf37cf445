"""A Solution means the same streamed, whole, resumed or replayed, and its effects happen in
the listed order.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from ideabridge.bridge.loop.effect import Execute
from ideabridge.bridge.loop.event import CallFinished, RunStarted, SolutionProposed
from ideabridge.bridge.loop.settings import Settings
from ideabridge.tools.encoding import JSON, JSONObject, encode
from ideabridge.tools.tool import Annotations, Tool
from tests.loop.driving import ANY_PARAMETERS, READ_ONLY, TOOLS, Driven, started
from tests.loop.interpreter import CAUGHT, Interpreter, overlap, split

T = TypeVar("T")
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
INPUT: dict[str, JSON] = {"n": 1, "items": [{"v": 1}, {"v": 2}], "text": "†state.a is only text"}
OLD: dict[str, JSON] = {"v": "known before"}
STATE: dict[str, JSON] = {"a": 10, "old": {"v": "before"}}


def plain(value: JSON) -> JSON:
    """A value without what is no part of its meaning: what a failure says, and the
    order of members.
    """
    if isinstance(value, dict):
        if "kind" in value and "message" in value:
            return CAUGHT
        # The members are in the order in which their calls finished, which is not part of the
        # meaning either.
        return {key: plain(value[key]) for key in sorted(value)}

    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def result(parameters: JSON) -> JSON:
    """A pure function of the parameters, small whatever they are."""
    digest = hashlib.sha256(encode(plain(parameters))).hexdigest()[:6]
    return {"v": digest, "list": [digest, 1]}


@dataclass(frozen=True)
class Scenario:
    calls: list[JSONObject]
    output: JSON
    failing: frozenset[int]
    seed: int

    @property
    def start(self) -> RunStarted:
        # Use the run of a mind, which is asked once, because in it, malformed calls fail
        # individually.
        return started(
            [
                {"type": "input", "input": INPUT},
                {"type": "state", "state": STATE},
                {"type": "old", "old": OLD},
            ],
            mode="solve",
            tools=MODULES,
            settings=Settings(approval="allow_all", requests=1),
            output_schema={"not": {"type": "null"}},
        )

    def lane(self, call: JSONObject) -> tuple[str, bool]:
        [tool] = [one for one in MODULES if one.name == call["_tool"]]
        return tool.module or "", tool.annotations.read_only is not True

    @property
    def malformed(self) -> bool:
        """Whether a plan's author would be told that this cannot run."""
        probe = Driven()
        probe.post(self.start)
        return bool(probe.machine.check(SolutionProposed([*self.calls], self.output)).errors)

    @property
    def disjoint(self) -> bool:
        """Whether no two calls write overlapping paths."""
        written = [
            ("state", *split(part.strip()))
            for call in self.calls
            for part in str(call.get("_outputPath") or "").replace("&&", "||").split("||")
            if part
        ]
        return not any(overlap(one, two) for i, one in enumerate(written) for two in written[:i])


class World:
    """What the tools of a scenario act on: what each module has been told to change, in order.

    Args:
        scenario: the calls.
        done: (call, item) of what was done before, by runs of which this one takes up the journal.
    """

    def __init__(self, scenario: Scenario, done: Sequence[tuple[int, int | None]] = ()) -> None:
        self.scenario = scenario
        self.changes: dict[str, list[JSON]] = {}
        for index, item in done:
            self.act(index, item)

    def act(self, index: int, item: int | None) -> list[JSON] | None:
        """Change or look; what the module holds afterwards, None where it fails."""
        module, changes = self.scenario.lane(self.scenario.calls[index])
        seen = self.changes.setdefault(module, [])
        if index in self.scenario.failing and item in (None, 1):
            return None

        if changes:
            seen.append([index, item])

        return seen

    def run(self, index: int, item: int | None, parameters: JSON) -> tuple[bool, JSON]:
        seen = self.act(index, item)
        if seen is None:
            return (False, "it failed")
        return (True, result({"given": parameters, "seen": [*seen]}))

    def execute(self, effect: Execute) -> tuple[bool, JSON]:
        return self.run(effect.call.index, effect.item, effect.parameters)


MODULES = [
    *TOOLS,
    Tool(
        "poke", parameters=ANY_PARAMETERS, annotations=Annotations(idempotent=True), module="other"
    ),
    Tool("look", parameters=ANY_PARAMETERS, annotations=READ_ONLY, module="other"),
]
BASE = [
    "†input.n",
    "†input.items",
    "†input.text",
    "†state.a",
    "†state.old.v",
    "†state.old",
    "†input.items.1.v",
]
ODD = ["†input.none", "†state.never", "†state", "†results.0", "†results.1.v", "†state.a.deep"]


# Create the strategies once and choose one from a list, because creating one for each of a hundred
# draws took longer than drawing.
COUNTS = st.integers(1, 8)
NAMES = st.permutations(["a", "b", "c", "d.x", "d.y", "old.v", "e", "f", "g"])
TO = [st.integers(0, most) for most in range(32)]
SEEDS = st.integers(0, 10_000)
FAILING = [st.frozensets(TO[count - 1], max_size=2) for count in range(1, 9)]


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    def one(options: Sequence[T]) -> T:
        return options[draw(TO[len(options) - 1])]

    count = draw(COUNTS)
    names = draw(NAMES)
    overlapping = draw(TO[3]) == 0
    paths: list[str | None] = []
    for index in range(count):
        kind = draw(TO[9])
        place = one(names[:4]) if overlapping else names[index]
        other = one(names) if overlapping else f"err{index}"
        paths.append(f"{place} || {other}" if kind >= 7 else place if kind >= 3 else None)

    # Where the result of each call can be read. Most references are to something that is really
    # written.
    written: list[list[str]] = []
    for index, path in enumerate(paths):
        if path:
            roots = [f"†state.{part.strip()}" for part in path.split("||")]
        else:
            roots = [f"†results.{index}"]
        written.append([root + tail for root in roots for tail in ("", ".v", ".list.0")])

    def operand(index: int) -> str:
        where = draw(TO[19])
        if where == 0:
            return one(ODD)
        if where < 5 or (index == 0 and where < 17):
            return one(BASE)

        # Most references go backwards. Now and then, one goes forwards, which may close a cycle.
        if where < 17 and index:
            known = written[:index]
        else:
            known = written[index + 1 :] or written[:index]

        return one(one(known)) if known else one(BASE)

    def value(index: int) -> JSON:
        shape = draw(TO[9])
        if shape < 5:
            return operand(index)
        if shape < 7:
            operator = one([" || ", " && "])
            return operator.join(operand(index) for _ in range(2 + draw(TO[1])))
        if draw(TO[3]) == 0 and index:
            return one(
                [
                    f"†data.k{one(range(index))}.v",
                    f"†data.k{one(range(index))} || †state.a",
                    "†data.old.v",
                ]
            )

        shapes: list[JSON] = [7, "††state.a", {"deep": [operand(index), "plain"]}]
        return shapes[shape - 7]

    calls: list[JSONObject] = []
    for index in range(count):
        if draw(TO[24]) == 0:
            tool = "ecko"
        else:
            tool = one(["echo", "echo", "write", "tell", "look", "poke"])

        call: JSONObject = {"_tool": tool, "x": value(index)}
        if draw(TO[1]):
            call["y"] = value(index)

        if paths[index] is not None:
            call["_outputPath"] = paths[index]

        if draw(TO[4]) == 0:
            earlier = [
                f"{root[:-2]}.list"
                for places in written[:index]
                for root in places
                if root.endswith(".v")
            ]
            lists: list[JSON] = ["†input.items", [1, {"v": 3}], [], *earlier]
            call["_each"] = one(lists)
            call["y"] = one(["†item", "†item.v || †state.a", "†item.v"])
            if tool == "tell":
                # What its items add would be merged in the order in which they end.
                call["_tool"] = "echo"

        if draw(TO[5]) == 0:
            call["_id"] = f"id{index}"

        calls.append(call)

    for index, call in enumerate(calls):
        ids = [other["_id"] for other in calls[: index if draw(TO[3]) else count] if "_id" in other]
        if ids and draw(TO[5]) == 0:
            after = one(ids)
            if after != call.get("_id"):
                call["_after"] = [after]

    failing = draw(FAILING[count - 1])
    outputs: list[JSON] = [None, "†state.b || †state.a", {"all": "†state"}]
    output = one(outputs)
    return Scenario(calls, output, failing, draw(SEEDS))


def check_invariants(driven: Driven) -> None:
    machine = driven.machine
    assert machine.ended
    assert not driven.running
    assert machine.due() == []
    assert len(driven.executions) == len(set(driven.executions)), "a call ran twice"
    assert all(progress.settled for progress in machine.history), driven.statuses()


def run_whole(scenario: Scenario) -> Driven:
    driven = Driven(World(scenario).execute, scenario.seed)
    driven.whole(scenario.start, [*scenario.calls], scenario.output)
    check_invariants(driven)
    return driven


def same_meaning(one: Driven, two: Driven) -> None:
    assert one.statuses() == two.statuses()
    assert plain({**one.documents}) == plain({**two.documents})
    assert plain(one.machine.output) == plain(two.machine.output)
    assert one.machine.status == two.machine.status
    assert one.machine.errors == two.machine.errors


def finished(whole: Driven, cut: int) -> list[tuple[int, int | None]]:
    """What had finished where a journal is cut."""
    return [(one.call, one.item) for one in whole.journal[:cut] if isinstance(one, CallFinished)]


def resumed_after(whole: Driven, cut: int, scenario: Scenario, seed: int) -> Driven:
    world = World(scenario, finished(whole, cut))
    return Driven.resumed(whole.journal[:cut], world.execute, seed).finish_all()


def means_the_same_however_it_runs(scenario: Scenario) -> None:
    streamed = Driven(World(scenario).execute, scenario.seed + 1)
    streamed.streamed(scenario.start, [*scenario.calls], scenario.output)
    check_invariants(streamed)
    whole = run_whole(scenario)
    malformed = scenario.malformed
    event("malformed" if malformed else "well formed")
    if scenario.disjoint:
        base: JSONObject = {"input": INPUT, "state": STATE, "results": {}, "data": {"old": OLD}}
        if malformed:
            oracle = None
        else:
            oracle = Interpreter(base, scenario.calls, World(scenario).run, scenario.lane)

        statuses, documents = ([], {}) if oracle is None else oracle.interpret()
        if oracle is not None and not oracle.circular:
            event("oracle")
            assert whole.statuses() == statuses
            assert plain(whole.documents[""]) == plain(documents)

        same_meaning(whole, streamed)

    cut = random.Random(scenario.seed).randrange(3, len(whole.journal) + 1)
    resumed = resumed_after(whole, cut, scenario, scenario.seed + 2)
    assert resumed.machine.ended
    assert not {*finished(whole, cut)} & set(resumed.executions), "a finished call ran again"
    if scenario.disjoint:
        same_meaning(whole, resumed)


@settings(max_examples=250, suppress_health_check=SLOW)
@given(scenarios())
def test_random_plans_mean_the_same_however_they_run(scenario: Scenario) -> None:
    means_the_same_however_it_runs(scenario)


@pytest.mark.long
@settings(max_examples=2400, suppress_health_check=SLOW)
@given(scenarios())
def test_many_random_plans_mean_the_same_however_they_run(scenario: Scenario) -> None:
    means_the_same_however_it_runs(scenario)


@settings(max_examples=150, suppress_health_check=SLOW)
@given(scenarios())
def test_a_run_resumes_from_after_any_event(scenario: Scenario) -> None:
    whole = run_whole(scenario)
    if not scenario.disjoint:
        return
    for cut in range(3, len(whole.journal) + 1):
        resumed = resumed_after(whole, cut, scenario, scenario.seed + cut)
        same_meaning(whole, resumed)


def test_an_error_says_the_same_however_its_plan_runs() -> None:
    # When the last call fails, the second one may or may not have written `b` already. The errors
    # must not depend on that.
    calls: list[JSONObject] = [
        {"_tool": "echo", "x": "†item", "_each": "†input.items"},
        {"_tool": "echo", "x": "†input.n", "_outputPath": "b"},
        {"_tool": "ecko", "x": 7},
        {
            "_tool": "echo",
            "x": "†results.0.v || †state.never",
            "y": "†item",
            "_each": "†input.items",
        },
        {"_tool": "echo", "x": "†state.b.v.none", "y": "†data.old.none"},
    ]
    whole = run_whole(Scenario(calls, None, frozenset(), 0))
    for seed in range(60):
        scenario = Scenario(calls, None, frozenset(), seed)
        streamed = Driven(World(scenario).execute, seed + 1).streamed(scenario.start, [*calls])
        same_meaning(whole, streamed)
        same_meaning(whole, run_whole(scenario))

    text = whole.error_of(3)
    assert "†state has no 'never'; it has a, old" in text
    assert "it has a, old, b" not in text
