"""A session comes to the same over every transport: through pipes to a process, and over
HTTP in both forms.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Mapping
from itertools import count, islice
from typing import Any, Literal

import anyio
import pytest

from tests.modules.conftest import SERVERS
from tests.modules.servers.odd import Web

from . import memory
from .laws import foreign_words
from .mutations import CALLS, Mutation, Session, is_whole, mutation, session

pytestmark = pytest.mark.usefixtures("own_folder")

Transport = Literal["stdio", "json", "sse"]
NUMBER = 18
"""Mutations over each transport."""

AT_ONCE = 6
BOUNDS = {"connect_timeout": 20, "timeout": 20}
ASKED_BY_POST = frozenset({"ask"})
"""Over HTTP, the odd server does not ask: it would write the answer to another stream."""


@pytest.fixture(scope="module")
def web() -> Generator[Web]:
    server = Web()
    server.start()
    yield server
    server.close()


def chosen(transport: Transport) -> list[Mutation]:
    """Mutations that leave every message to be answered: a silent one would cost real seconds."""
    first = {"stdio": 2_000_000, "json": 3_000_000, "sse": 4_000_000}[transport]
    made = (mutation(seed) for seed in count(first))
    return list(
        islice((one for one in made if not any(is_whole(edit) for edit in one.all)), NUMBER)
    )


def entry_of(transport: Transport, number: int, made: Mutation, web: Web) -> Mapping[str, Any]:
    if transport == "stdio":
        script = str(SERVERS / "odd.py")
        return {
            "command": sys.executable,
            "args": ["-I", "-S", script, json.dumps(made.edits), made.era],
            **BOUNDS,
        }
    return {
        "url": web.add(f"{transport}{number}", made.edits, made.era, sse=transport == "sse"),
        **BOUNDS,
    }


@pytest.mark.parametrize("transport", ["stdio", "json", "sse"])
def test_a_session_comes_to_the_same_over_every_transport(transport: Transport, web: Web) -> None:
    made = chosen(transport)
    if transport == "stdio":
        calls = CALLS
    else:
        calls = tuple(tool for tool in CALLS if tool not in ASKED_BY_POST)

    expected = [in_memory(one, calls) for one in made]
    wrong: list[str] = []

    async def compare(number: int, one: Mutation, limit: anyio.CapacityLimiter) -> None:
        async with limit:
            real = await session(one, entry_of(transport, number, one, web), calls)

        for what in ("up", "listed", "values", "offered"):
            seen = getattr(real, what)
            wanted = getattr(expected[number], what)
            if seen != wanted:
                wrong.append(
                    f"ODD_MUTATION='{one.to_json()}': {what} is\n{seen}\nin "
                    f"memory\n{wanted}\n{real.errors}"
                )

        wrong.extend(foreign_words([*real.notes, *real.errors.values()]))

    async def compare_all() -> None:
        limit = anyio.CapacityLimiter(AT_ONCE)
        async with anyio.create_task_group() as group:
            for number, one in enumerate(made):
                group.start_soon(compare, number, one, limit)

    anyio.run(compare_all)
    assert not wrong, f"{len(wrong)} differences\n" + "\n".join(line[:1500] for line in wrong[:5])


def in_memory(made: Mutation, calls: tuple[str, ...]) -> Session:
    """The session with the odd server in this process, under the clock that jumps."""
    with pytest.MonkeyPatch.context() as patch:
        memory.use(patch)
        return memory.run(
            lambda: session(made, memory.entry(made.edits, made.era, **BOUNDS), calls)
        )
