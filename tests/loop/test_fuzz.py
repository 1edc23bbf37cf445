"""20,000 damaged Solutions over the machine: nothing escapes, nothing hangs, every fault is told.

`make test` runs a quarter of them, `make test-long` the others. The cases are the same on every
run; `IDEABRIDGE_FUZZ_SEED` takes others. A failing case names its number.
"""

from __future__ import annotations

import itertools
import os
import random

import pytest

from ideabridge.bridge.context.answer import AnswerReader, CallPiece, EndPiece, OutputPiece
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.effect import (
    Allow,
    AskApproval,
    AskMind,
    AskPlan,
    Cancel,
    Commit,
    Effect,
    Execute,
    Finish,
)
from ideabridge.bridge.loop.event import (
    AT_TERMINAL,
    ApprovalAsked,
    CallDecided,
    CallFinished,
    CallProposed,
    CallStarted,
    Event,
    GroupCommitted,
    OutcomeAsked,
    OutputProposed,
    Pattern,
    PlanAsked,
    PlanDecided,
    RequestMade,
    RunEnded,
    RunStarted,
    SolutionClosed,
    SolutionProposed,
    SolutionRejected,
    decider_of,
    event_from_json,
)
from ideabridge.bridge.loop.machine import Machine, finish_events
from ideabridge.bridge.loop.policy import allow_all
from ideabridge.bridge.loop.question import Edit, read_edit
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.runs.people import Decision, read_decision
from ideabridge.tools.encoding import JSON, JSONObject, decode_trusted, encode, normalise
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.reading import read_solution
from ideabridge.tools.tool import Tool
from tests.loop.driving import EFFECTS, READ_ONLY, TOOLS
from tests.loop.mutating import (
    CLOSED,
    CONTEXT,
    INSTANCES,
    OVER_INSTANCES,
    SOLUTIONS,
    Mutator,
    deep,
    odd,
)

SEED = int(os.environ.get("IDEABRIDGE_FUZZ_SEED", "1"))
SOLUTIONS_GIVEN = 20_000
PARTS = 16

TYPED: JSONObject = {
    "type": "object",
    "properties": {
        "number": {"type": "integer"},
        "names": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["number"],
    "additionalProperties": False,
}
JUDGED: JSONObject = {"type": "object", "properties": {"text": {}}, "additionalProperties": False}
ALL_TOOLS = [
    *TOOLS,
    Tool("typed", parameters=TYPED, annotations=READ_ONLY),
    Tool("judge", parameters=JUDGED, annotations=EFFECTS),
]

# Compile this only once, because compiling it for each case would take longer than the case itself.
CATALOGUE = Catalogue(ALL_TOOLS, [(None, "judge")])
TOLD = CATALOGUE.to_json()

OUTPUT: JSONObject = {"type": "object", "properties": {"all": {}}, "required": ["all"]}

NOTHING: JSONObject = {"calls": [], "output": None}
SETTLED = frozenset(("done", "caught", "failed", "skipped", "cancelled"))
PATTERNS: tuple[Pattern | None, ...] = (None, None, None, None, None, "all", "any", "race")


def began(chosen: random.Random, instances: bool) -> RunStarted:
    settings = Settings(
        order=chosen.choice(("effects", "all", "none")),
        parallel_calls=chosen.choice((1, 2, 16)),
        calls=40,
        items=20,
        requests=2,
        output_by_instance=instances and chosen.random() < 0.5,
        approval="default" if chosen.random() < 0.3 else "allow_all",
        planning="lazy" if chosen.random() < 0.15 else "eager",
    )
    if instances:
        context = INSTANCES
    elif chosen.random() < 0.3:
        context = CLOSED
    else:
        context = CONTEXT

    mode = "plan" if chosen.random() < 0.25 else "solve"
    schema = OUTPUT if chosen.random() < 0.5 else None
    tools, latent = TOLD
    return RunStarted(mode, context, tools, latent, settings.to_json(), schema)


def told(effect: Effect) -> JSON:
    """An effect as something to compare."""
    match effect:
        case Execute():
            return ["execute", effect.call.index, effect.item, effect.parameters, effect.latent]
        case AskApproval():
            return ["ask", effect.call.index, effect.approval, effect.digest, effect.resolved]
        case Allow():
            return ["allow", effect.call.index, effect.digest, effect.granted]
        case AskPlan():
            return ["plan", effect.approval, effect.digest]
        case AskMind():
            return ["mind", effect.step]
        case Cancel():
            return ["cancel", effect.call.index, effect.item, effect.error]
        case Commit():
            return ["commit", *effect.calls]
        case Finish():
            return ["finish", effect.status, effect.reason]


def status(machine: Machine) -> JSON:
    """All that a machine stands at: two that took the same events must be equal in it."""
    return [
        machine.phase,
        machine.step,
        machine.status,
        [one.status.value for one in machine.history],
        [one.value for one in machine.history],
        [one.error for one in machine.history],
        [told(effect) for effect in machine.due()],
        dict[str, JSON](machine.documents),
        [*machine.errors],
        [*machine.feedback.corrections],
        machine.output,
        [one.to_json() for one in machine.grants],
        sum(one.granted is not None for one in machine.history),
    ]


class Fuzzed:
    """A machine, and beside it one that is folded from the journal; the invariants hold
    after every event.
    """

    def __init__(self, chosen: random.Random) -> None:
        self.random = chosen
        self.machine = Machine(CATALOGUE)
        self.folded = Machine(CATALOGUE)
        self.events = 0
        self.running: list[Execute] = []
        self.asking: list[AskApproval] = []
        self.doubts: list[OutcomeAsked] = []
        self.doubted = 0
        self.ran: set[tuple[int, int | None]] = set()
        self.settled: dict[int, str] = {}
        self.pattern: Pattern | None = None
        self.planned = 0
        # For the call of each grant, the executions that the grant has approved.
        self.granted: dict[int, int] = {}
        self.most: dict[int, int] = {}

    def post(self, event: Event) -> None:
        value = decode_trusted(encode(event.to_json()))
        assert isinstance(value, dict)
        self.machine.receive(event)
        # A call that a lazy plan lists is not a call of the run until the plan has been accepted.
        self.planned += isinstance(event, CallProposed) and self.machine.settings.lazy
        self.folded.receive(event_from_json(value))
        self.events += 1
        self.check()

    def check(self) -> None:
        machine = self.machine
        assert status(machine) == status(self.folded), "the journal folds to another machine"
        executions = sum(max(1, len(one.items)) for one in machine.history)
        assert len(machine.due()) <= executions + 2
        # Listing, proposals, approvals and executions take only a few events each, so no run goes
        # on forever.
        most = 20 + 3 * len(machine.history) + 2 * executions + self.planned + 3 * self.doubted
        assert self.events <= most, "more events than anything needs"
        for index, one in enumerate(machine.history):
            now = one.status.value
            before = self.settled.get(index)
            # If a group fails, what it wrote is withdrawn. Nothing else ever changes.
            withdrawn = now == "cancelled" and self.pattern == "all" and before != "failed"
            assert before is None or before == now or withdrawn, (
                f"call {index} was {before} and is {now}"
            )
            if now in SETTLED:
                self.settled[index] = now
                assert (one.error is not None) == (now != "done")

        faults(machine.errors)

    def perform(self) -> None:
        """Acknowledge every effect that is due, as the runner does."""
        while True:
            due = self.machine.due()
            if not due:
                return
            match due[0]:
                case Execute() as effect:
                    key = (effect.call.index, effect.item)
                    assert key not in self.ran, f"call {key} ran twice"
                    self.ran.add(key)
                    self.running.append(effect)
                    self.post(CallStarted(*key))
                case AskApproval() as effect:
                    self.asking.append(effect)
                    self.post(ApprovalAsked(effect.call.index, effect.approval, effect.digest))
                case Allow(call, digest, granted, by):
                    self.asking = [one for one in self.asking if one.call.index != call.index]
                    listed = self.machine.history[call.index].items
                    self.granted[granted] = self.granted.get(granted, 0) + sum(
                        not one.finished for one in listed
                    )
                    assert self.granted[granted] <= self.most[granted], (
                        f"the grant of call {granted} allows too much"
                    )
                    self.post(CallDecided(call.index, digest, "approve", by, granted=granted))
                case AskPlan(approval, digest):
                    self.post(PlanAsked(approval, digest))
                    self.accept(digest)
                case AskMind(step):
                    self.post(RequestMade(step, "request"))
                case Cancel() as effect:
                    self.running = [
                        one for one in self.running if (one.call.index, one.item) != effect.key
                    ]
                    self.asking = [
                        one for one in self.asking if (one.call.index, None) != effect.key
                    ]
                    self.post(CallFinished(*effect.key, error=effect.error))
                case Commit(listed):
                    self.post(GroupCommitted(list(listed)))
                case Finish(status, reason):
                    self.post(RunEnded(status, reason))

    def move(self) -> bool:
        """Let one call end, or one person decide."""
        if self.doubts and (not self.running or self.random.random() < 0.5):
            self.say(self.doubts.pop(self.random.randrange(len(self.doubts))))
        elif self.asking and (not self.running or self.random.random() < 0.5):
            self.decide(self.asking.pop(self.random.randrange(len(self.asking))))
        elif self.running:
            self.end(self.running.pop(self.random.randrange(len(self.running))))
        else:
            return False

        self.perform()
        return True

    def accept(self, digest: str) -> None:
        """Accept a plan, deny it, or leave calls out of it."""
        question = self.machine.plan_question
        assert question is not None
        kind = self.random.random()
        if kind < 0.15:
            self.post(PlanDecided(digest, "deny", decider_of("somebody"), "why"))
            return

        shown = question.shown
        calls = shown["calls"]
        output = shown["output"]
        assert isinstance(calls, list)
        left = [call for call in calls if self.random.random() < 0.8]
        if kind < 0.4 and left and not self.machine.check(SolutionProposed(left, output)).errors:
            self.post(PlanDecided(digest, "edit", decider_of("somebody"), None, left, output))
            return

        self.post(PlanDecided(digest, "approve", decider_of("somebody")))

    def decide(self, effect: AskApproval) -> None:
        index = effect.call.index
        kind = self.random.randrange(3)
        if kind == 2:
            edited = gated(Mutator(self.random).structure(effect.resolved))
            edit = read_edit(self.machine.history[index], edited, self.machine.catalogue, allow_all)
            if isinstance(edit, Edit):
                tool = edit.tool.to_json() if edit.tool is not None else None
                self.post(
                    CallDecided(
                        index, effect.digest, "edit", decider_of("somebody"), None, edit.call, tool
                    )
                )
                return

        if kind and self.random.random() < 0.5:
            self.most[index] = self.random.randrange(1, 5)
            grant: JSONObject = {"for": "run", "max": self.most[index]}
            if self.random.random() < 0.3:
                grant["parameters"] = {"type": "object", "required": ["x"]}

            self.post(CallDecided(index, effect.digest, "approve", AT_TERMINAL, grant=grant))
            return

        self.post(
            CallDecided(
                index, effect.digest, "approve" if kind else "deny", decider_of("somebody"), "why"
            )
        )

    def say(self, asked: OutcomeAsked) -> None:
        """What came of an execution that was not answered."""
        decision = self.random.choice(("retry", "skip", "value"))
        if decision == "retry":
            self.ran.discard((asked.call, asked.item))
        by = decider_of("somebody")
        self.post(
            read_decision(
                self.machine, asked.approval, Decision(decision, by=by, value=decision), CATALOGUE
            )
        )

    def end(self, effect: Execute) -> None:
        index = effect.call.index
        item = effect.item
        if self.random.random() < 0.1:
            self.doubted += 1
            lost: JSONObject = {"kind": "unknown", "message": "its server ended"}
            for event in finish_events(self.machine, CallFinished(index, item, error=lost), 1.0):
                self.post(event)
                if isinstance(event, OutcomeAsked):
                    self.doubts.append(event)

            return

        if self.random.random() < 0.15:
            self.post(CallFinished(index, item, error={"kind": "runtime", "message": "it failed"}))
            return

        # The executor lets any JSON of at most 100 levels through.
        value: JSON = effect.latent if effect.is_latent else effect.parameters.get("x")
        if self.random.random() < 0.2:
            if self.random.random() < 0.1:
                value = deep(self.random, 99)
            else:
                value = odd(self.random)

        try:
            value = normalise(value)
        except IdeabridgeError as error:
            # The executor reports a result that is nested too deeply in this way.
            self.post(CallFinished(index, item, error={"kind": "runtime", "message": str(error)}))
            return

        self.post(CallFinished(index, item, value=value))

    # -- the ways a Solution comes -----------------------------------------------------------------

    def whole(self, raw: JSON | bytes) -> None:
        """Hand a Solution in; a malformed one is told and given up."""
        try:
            solution, _ = read_solution(
                raw if isinstance(raw, bytes) else normalise(raw, what="the solution")
            )
        except IdeabridgeError:
            # In a real run, the error is reported where the Solution arrives, and the Solution is
            # requested again. Here, go on with an empty one.
            solution = NOTHING

        calls = solution["calls"]
        output = solution["output"]
        assert isinstance(calls, list)
        pattern = self.random.choice(PATTERNS)
        if pattern is not None and self.random.random() < 0.7:
            output = None

        errors = self.machine.check(SolutionProposed(calls, output, pattern=pattern)).errors
        if errors:
            faults(errors)
            if self.machine.mode == "solve":
                self.post(SolutionRejected(solution, [*errors]))

            calls = []
            output = None
            pattern = None

        self.pattern = pattern
        extra = {key: value for key, value in solution.items() if key not in ("calls", "output")}
        self.post(SolutionProposed(calls, output, extra or None, pattern=pattern))
        self.perform()
        while self.move():
            pass

    def streamed(self, data: bytes) -> None:
        """Stream a Solution in, in pieces cut anywhere; calls end in between."""
        answer = AnswerReader()
        pieces = self.random.choice((1, 7, 7, 40, 40, 40, len(data) or 1))
        for start in range(0, len(data), pieces):
            if not self.take(answer, data[start : start + pieces]):
                break
        else:
            self.take(answer, None)

        while self.move():
            pass

    def take(self, answer: AnswerReader, data: bytes | None) -> bool:
        for piece in answer.close() if data is None else answer.feed(data):
            match piece:
                case CallPiece(call) if self.machine.calls_left:
                    self.post(CallProposed(call))
                case CallPiece():
                    self.post(SolutionClosed("too many calls"))
                    return False
                case OutputPiece(output):
                    self.post(OutputProposed(output))
                case EndPiece(broken, extra):
                    self.post(SolutionClosed(broken, extra or None))
                    self.perform()
                    return False
            self.perform()
            if self.random.random() < 0.3:
                self.move()
        return True


def gated(value: JSONObject) -> JSONObject:
    """The value as the gate lets it in: nothing where it nests too deep."""
    try:
        copied = normalise(value)
    except IdeabridgeError:
        return {}
    return copied if isinstance(copied, dict) else {}


def faults(errors: list[JSONObject]) -> None:
    """Each error says what is wrong, with text; those of calls stand in listing order."""
    places: list[int] = []
    for entry in errors:
        error = entry["error"]
        assert isinstance(error, dict)
        message = error["message"]
        assert isinstance(message, str)
        assert message.strip()
        assert len(message) < 20_000
        place = entry.get("place")
        if isinstance(place, int):
            places.append(place)

    assert places == sorted(places), "errors out of listing order"
    encode([*errors])


def run_case(number: int) -> int:
    """One run, whole and streamed; how many damaged Solutions both of them were given."""
    chosen = random.Random(f"{SEED}/{number}")
    instances = chosen.random() < 0.2
    start = began(chosen, instances)
    mutator = Mutator(chosen)
    texts: list[tuple[JSONObject | None, bytes]] = []
    for _ in range(2):
        solution = chosen.choice(OVER_INSTANCES if instances else SOLUTIONS)
        if chosen.random() < 0.6:
            damaged = mutator.structure(solution)
            texts.append((damaged, encode(normalise(damaged, max_depth=1_000))))
        else:
            texts.append((None, mutator.text(solution)))

    given: list[int] = []
    for streamed in (False, True):
        fuzzed = Fuzzed(chosen)
        fuzzed.post(start)
        fuzzed.perform()
        given.append(0)
        for value, data in texts:
            if fuzzed.machine.ended:
                break
            given[-1] += 1
            if streamed:
                fuzzed.streamed(data)
            else:
                fuzzed.whole(value if value is not None and chosen.random() < 0.5 else data)

        machine = fuzzed.machine
        assert machine.ended, machine.phase
        assert machine.due() == []
        assert all(one.settled for one in machine.history)

    return min(given)


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, PARTS))]
)
def test_damaged_solutions_only_ever_give_errors(part: int) -> None:
    given = 0
    for number in itertools.count(part, PARTS):
        if given >= SOLUTIONS_GIVEN // PARTS:
            return
        try:
            given += run_case(number)
        except Exception as error:
            error.add_note(f"case {number} of seed {SEED}")
            raise
