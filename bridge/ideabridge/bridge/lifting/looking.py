"""Looking: the explanations of a literal in all runs of a task, also where they took different branches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ideabridge.bridge.context.explanations import MOST, Branch, Condition, Explanation, operand_path
from ideabridge.bridge.context.references import DAGGER, Path
from ideabridge.bridge.context.state import Missing
from ideabridge.bridge.lifting.aligned import AlignedRun, ValueSource
from ideabridge.bridge.lifting.search import Found, Values, explain_runs, selects
from ideabridge.tools.encoding import JSON


class Looking:
    """Looks for explanations in several aligned runs; the values of each run are indexed once.

    Args:
        runs: the runs.
        several: whether they took several Requests: otherwise their author had seen no results.
        tests: by the place of a call that only some runs made, the test that says whether it is made.
    """

    def __init__(self, runs: Sequence[AlignedRun], several: bool, tests: Mapping[int, Condition]) -> None:
        self._runs = runs
        self._several = several
        self._tests = tests
        self._smallest: dict[tuple[int | None, Path], int] = {}
        self._values: dict[int, Values] = {}
        # By the identity of the run, which is kept, and the step: a run may have thousands of literals.
        self._seen: dict[tuple[int, int], frozenset[str]] = {}
        self._found: dict[tuple[int | None, Path], Found | None] = {}

    def look(self, place: int | None, keys: Path, value: JSON) -> Found | None:
        """Return the explanations of a literal that fit all runs; None if nothing existed that could explain it."""
        if place is not None and keys[:1] == ("_output",):
            return None
        if (place, keys) not in self._found:
            self._found[place, keys] = self._search(place, keys, value)
        return self._found[place, keys]

    def _search(self, place: int | None, keys: Path, value: JSON) -> Found | None:
        literals: dict[int, JSON] = {}
        for number, run in enumerate(self._runs):
            mine = number == 0 and (place is None or run.calls[place].is_made)
            here = value if mine else run.leaf(place, keys)
            if not isinstance(here, Missing):
                literals[number] = here
        tests = [(at, test) for at, test in self._tests.items() if place is None or at < place]
        return self._explain(place, keys, literals, tests)

    def _explain(
        self, place: int | None, keys: Path, literals: dict[int, JSON], tests: Sequence[tuple[int, Condition]]
    ) -> Found | None:
        """Return the explanations that fit some runs; where none does, one for each side of a test."""
        runs = [
            (here, self._values_of(number, self._runs[number]), self._before(self._runs[number], place))
            for number, here in literals.items()
        ]
        if not runs or not runs[0][2]:
            return None
        name = next((key for key in reversed(keys) if not key.isdecimal()), "")
        whole = explain_runs(runs, name)
        for number, (at, test) in enumerate(tests):
            made = {one: here for one, here in literals.items() if self._runs[one].calls[at].is_made}
            others = {one: here for one, here in literals.items() if one not in made}
            if not made or not others:
                continue
            then = self._explain(place, keys, made, tests[number + 1 :])
            if whole.is_explained:
                # What fits all runs by chance does not hide that a call may have given the value.
                root = self._runs[next(iter(made))].reference_to(ValueSource(at, ()))
                by = [one for one in then.by if _reads(one, root)] if then is not None and root is not None else []
                more = [Branch(test, one, whole.by[0]) for one in by if one not in whole.by]
                whole = Found([*whole.by, *more][:MOST], whole.cut or len(whole.by) + len(more) > MOST)
                continue
            otherwise = self._explain(place, keys, others, tests[number + 1 :])
            if then is None or otherwise is None or then.contradicted or otherwise.contradicted:
                continue
            by = [
                *(Branch(test, one, otherwise.by[0]) for one in then.by),
                *(Branch(test, then.by[0], one) for one in otherwise.by[1:]),
            ]
            smallest = min(len(made), len(others), self._smallest.get((place, keys), len(literals)))
            self._smallest[place, keys] = smallest
            return Found(list[Explanation](by[:MOST]), then.cut or otherwise.cut or len(by) > MOST)
        return whole

    def agreeing(self, place: int | None, keys: Path, first: Explanation) -> int:
        """Return how many of the runs have a value there; if its first explanation selects by a position: how many of
        them had a choice, at least 1.
        """
        if (place, keys) in self._smallest:
            return self._smallest[place, keys]
        there = [
            (number, run)
            for number, run in enumerate(self._runs)
            if (
                place is None or run.calls[place].is_made
                if number == 0
                else not isinstance(run.leaf(place, keys), Missing)
            )
        ]
        if not selects(first):
            return len(there)
        return max(1, sum(first.positions(self._values_of(number, run).read) for number, run in there))

    def _values_of(self, number: int, run: AlignedRun) -> Values:
        if number not in self._values:
            documents = {root: run.document(place) for place, root in _roots(run)}
            self._values[number] = Values({k: v for k, v in documents.items() if not isinstance(v, Missing)})
        return self._values[number]

    def _before(self, run: AlignedRun, place: int | None) -> frozenset[str]:
        """Return the roots of the values that the writer of a literal could have seen."""
        step = run.function.run.machine.step if place is None else run.calls[place].chosen
        key = id(run), step
        if key not in self._seen:
            self._seen[key] = frozenset(
                root for other, root in _roots(run) if other is None or (self._several and run.calls[other].step < step)
            )
        return self._seen[key]


def _reads(one: Explanation, root: str) -> bool:
    below = operand_path(root)
    return any(operand_path(text)[: len(below)] == below for text in one.references)


def _roots(run: AlignedRun) -> Iterator[tuple[int | None, str]]:
    """(place, reference) of the input and of each result that a reference can read, in the order of the plan."""
    if run.function.input:
        yield None, f"{DAGGER}input"
    for place in range(len(run.calls)):
        root = run.reference_to(ValueSource(place, ()))
        if root is not None:
            yield place, root
