"""The plans and programs of the crash test: the same number gives the same one, whoever asks."""

from __future__ import annotations

import random
import re
from typing import Any

Plan = dict[str, Any]

Execution = tuple[str, str]
"""The key of a call, and of an item the number it ran with."""

REPEATABLE = ("look", "put")

ONCE = ("bump", "fail")
"""Tools that do not say that they may run twice."""


def is_steady(number: int) -> bool:
    """Whether a plan holds only tools that may run twice: it must reach the output of an
    undisturbed run.
    """
    return number % 2 == 0


def plan_of(number: int, seed: int, slowness: int = 25) -> Plan:
    """A plan with a chain, a fan-out and an `_each`.

    Args:
        number: even: only read-only and idempotent tools, and an output. Odd: others too, no
            output, and a payment whose failure is caught, with a refund that runs where it failed.
        seed: of the whole test.
        slowness: most milliseconds a call takes.
    """
    draw = random.Random(f"{seed} {number}")
    steady = is_steady(number)
    names = REPEATABLE if steady else (*REPEATABLE, "bump")
    calls: list[Plan] = []

    def call(label: str, name: str, n: Any, **more: Any) -> None:
        key = f"{number}/{label}"
        calls.append(
            {
                "_tool": name,
                "key": key,
                "n": n,
                "ms": draw.randint(0, slowness),
                "_outputPath": label,
                **more,
            }
        )

    links = draw.randint(2, 5)
    for link in range(links):
        call(
            f"c{link}", draw.choice(names), "†input.n" if link == 0 else f"†state.c{link - 1}.value"
        )

    if not steady:
        call("pay", draw.choice(ONCE), "†input.n", _outputPath="pay || lost")
        call("refund", "put", 1, _imports=["†state.lost"])

    call("e", "put" if steady else "bump", "†item", _each="†input.items")
    fans = draw.randint(1, 5)
    for fan in range(fans):
        call(f"f{fan}", draw.choice(names), "†state.c0.value")

    # This call reads two branches, so it starts when the later one is done.
    call("j", names[-1], f"†state.f{fans - 1}.value", _imports=["†state.e", f"†state.c{links - 1}"])
    plan: Plan = {
        "name": str(number),
        "calls": calls,
        "input": {
            "n": number + 1,
            "items": [draw.randint(0, 999) * 10 + place for place in range(draw.randint(2, 6))],
        },
    }
    if steady:
        fan_out = [f"†state.f{fan}.value" for fan in range(fans)]
        plan["output"] = {
            "chain": f"†state.c{links - 1}.value",
            "each": "†state.e",
            "fan": fan_out,
            "join": "†state.j",
        }

    return plan


def program_of(number: int, seed: int, slowness: int = 25) -> Plan:
    """A program with a chain, calls at once, tasks, a condition and a loop.

    Args:
        number: even: only read-only and idempotent tools, and an output that depends on no moment.
            Odd: others too, and what fails is caught.
        seed: of the whole test.
        slowness: most milliseconds a call takes.
    """
    draw = random.Random(f"program {seed} {number}")
    names = REPEATABLE if is_steady(number) else (*REPEATABLE, "bump")
    count = 0

    def call(n: str) -> str:
        nonlocal count
        count += 1
        # A loop makes the same call several times, so `turn` distinguishes them.
        key = f"f'program{number}/{count}/{{turn}}'"
        return f"crash.{draw.choice(names)}(key={key}, n={n}, ms={draw.randint(0, slowness)})"

    first, one, other, looped, then, otherwise = map(
        call, ("input['n']", "n", "n + 1", "n + k", "n", "n % 7")
    )
    looped = looped.replace("{turn}", "{turn}-{k}")
    lines = [
        "import asyncio, crash",
        "turn = 0",
        "async def value(made):",
        "    try:",
        "        return (await made)['value']",
        "    except RuntimeError:",
        "        return 1",
        f"n = await value({first})",
        f"pair = [{one}, {other}]",
        "n += await value(pair[1]) - await value(pair[0])",
        f"n += sum(await asyncio.gather(*[value({looped}) for k in range({draw.randint(1, 4)})]))",
        f"for turn in range({draw.randint(1, 4)}):",
        f"    if n % {draw.randint(2, 4)}:",
        f"        n = await value({then})",
        "    else:",
        f"        n += await value({otherwise})",
        "    print('turn', turn)",
        "n",
    ]
    return {"name": str(number), "program": "\n".join(lines), "input": {"n": number + 1}}


def execution(call: Plan, plan: Plan, item: int | None) -> Execution:
    """How the log names an execution of a call: its key, and for an item of an `_each` the
    number it ran with.
    """
    key = call["key"]
    if key.startswith("†input."):
        found: Any = plan["input"]
        for part in key.removeprefix("†input.").split("."):
            found = found[part]
        key = found

    return key, "" if item is None else str(plan["input"]["items"][item])


_NAMES = {"": "plan", "program": "program", "R": "ideas", "S": "solve"}


def named_by(calls: list[Any]) -> tuple[str, int]:
    """(kind, number) of a run, as `begin_run` takes them, by the key of one of its calls."""
    key = next(str(call["key"]) for call in calls if "key" in call)
    found = re.match(r"(\D*)(\d+)", key)
    assert found is not None, key
    return _NAMES[found[1]], int(found[2])
