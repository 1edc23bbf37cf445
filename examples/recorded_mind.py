"""A recording as the mind: a task that was solved once is solved again without a model, in
tests and demos.

    python examples/recorded_mind.py

The calls run again; only the solutions come from the recording. A Request that is not in the
recording ends the run, and the reason shows how it differs from the nearest one.
"""

from __future__ import annotations

import anyio

from ideabridge.bridge import Bridge, Recorded, Store
from ideabridge.tools import JSONObject

TASK = "How many names are there?"
SCHEMA: JSONObject = {"type": "integer"}
SOLUTIONS: list[JSONObject] = [
    {"calls": [{"_tool": "count", "items": "†input.names", "_outputPath": "number"}]},
    {"calls": [], "output": "†state.number"},
]


async def main() -> None:
    with Store.open(":memory:") as store:
        async with Bridge(store=store) as bridge:
            run = await bridge.solve(TASK, input={"names": ["Ada", "Grace"]}, output_schema=SCHEMA)
            for solution in SOLUTIONS:
                await run.wait()
                run.submit(run.turn, solution)
            print("by turns:", await run.result())
        async with Bridge(mind=Recorded(store)) as bridge:
            run = await bridge.solve(TASK, input={"names": ["Ada", "Grace"]}, output_schema=SCHEMA)
            print("recorded:", await run.result())
            run = await bridge.solve(TASK, input={"names": ["Ada", "Alan"]}, output_schema=SCHEMA)
            await run.wait()
            lines = str(run.answer()["reason"]).split("\n")
            print(f"{run.status}: {lines[0].split(';')[0].partition(' request')[0]}")
            print("\n".join(line for line in lines if line.startswith(("-  ", "+  "))))


anyio.run(main)
