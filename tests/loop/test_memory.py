"""What reads see of writes that finished in any order."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ideabridge.bridge.context import state as document
from ideabridge.bridge.context.errors import StateWriteError
from ideabridge.bridge.loop.memory import Memory, Write

PATHS = [("state", "log"), ("state", "deep", "log"), ("state", "grid", "0")]


@given(
    writes=st.lists(
        st.tuples(st.sampled_from(PATHS), st.sampled_from(["push", "push", "push", "set"])),
        max_size=12,
    ),
    wanted=st.sets(st.integers(0, 11)),
    path=st.sampled_from([("state",), *PATHS]),
)
def test_a_read_sees_the_writes_it_is_bound_to_one_after_another(
    writes: list[tuple[tuple[str, ...], Any]], wanted: set[int], path: tuple[str, ...]
) -> None:
    start: Any = {"state": {"log": [0], "grid": []}}
    memory = Memory({"": start})
    memory.begin()
    expected: Any = start
    for number, (where, method) in enumerate(writes):
        value: Any = [number] if method == "set" else number
        entry = Write(number, "", where, method, value)
        try:
            changed = memory.try_write([entry])
            if number in wanted:
                expected = document.write(expected, where, method, value)
        except StateWriteError:
            # Such a call fails and writes nothing.
            continue

        memory.commit([entry], changed)

    bound = sorted(number for number in wanted if number < len(writes))
    assert memory.read("", path, tuple(bound)) == document.read(expected, path)


@given(
    reads=st.lists(st.sampled_from(["results", "documents", "one", "state", "begin"]), max_size=12),
    instances=st.lists(st.sampled_from(["a", "b"]), min_size=12, max_size=12),
)
def test_results_that_somebody_has_stay_as_they_are_when_others_follow(
    reads: list[str], instances: list[str]
) -> None:
    memory = Memory({name: {"state": {}, "results": {}} for name in ("a", "b")})
    memory.begin()
    had: list[tuple[Any, Any]] = [(memory.base, copy.deepcopy(memory.base))]
    first = 0
    for number, what in enumerate(reads):
        instance = instances[number]
        writes = [Write(number, instance, ("results", str(number)), "set", {"id": number})]
        memory.commit(writes, memory.try_write(writes))
        bound = [call for call in range(first, number + 1) if instances[call] == instance]
        seen: Any = None
        if what == "results":
            seen = memory.read(instance, ("results",), bound)
        elif what == "documents":
            seen = dict(memory.documents)
        elif what == "one":
            seen = memory.read(instance, ("results", str(number)), bound)
        elif what == "state":
            state = [Write(number, instance, ("state", "n"), "set", number)]
            memory.commit(state, memory.try_write(state))
        else:
            memory.begin()
            first = number + 1
            seen = memory.base

        had.append((seen, copy.deepcopy(seen)))

    assert all(now == then for now, then in had)
    for instance in ("a", "b"):
        written = {
            str(number) for number, name in enumerate(instances[: len(reads)]) if name == instance
        }
        results = document.read(memory.documents[instance], ("results",))
        assert isinstance(results, dict)
        assert results.keys() == written
