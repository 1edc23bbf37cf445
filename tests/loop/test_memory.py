"""What reads see of writes that finished in any order."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ideabridge.bridge.context import state as document
from ideabridge.bridge.context.errors import StateWriteError
from ideabridge.bridge.loop.memory import Memory, Write

PATHS = [("state", "log"), ("state", "deep", "log"), ("state", "grid", "0")]


@given(
    writes=st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from(["push", "push", "push", "set"])), max_size=12),
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
            expected = document.write(expected, where, method, value) if number in wanted else expected
        except StateWriteError:
            # Such a call fails, and writes nothing.
            continue
        memory.commit([entry], changed)
    bound = sorted(number for number in wanted if number < len(writes))
    assert memory.read("", path, tuple(bound)) == document.read(expected, path)
