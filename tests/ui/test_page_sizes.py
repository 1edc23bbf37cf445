"""No page is larger than 100 kB, however much the store, a run, or a question holds."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.runs.people import Decision
from ideabridge.bridge.runs.run import Run
from ideabridge.tools import ActivityError, Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from tests.asking import ASKS
from tests.ui.serving import client, served

pytestmark = pytest.mark.anyio

MOST_BYTES: Final = 100_000
RUNS: Final = 60
WAITING: Final = 45
NOTE: Final = 'The customer wrote: "It came late", and we pay the price back. ' * 8


@tool(read_only=True)
async def look(number: int, text: str = "") -> JSONObject:
    """Look something up."""
    return {"number": number + 1, "text": text}


@tool(read_only=True)
async def fail(number: int) -> str:
    """Fail."""
    raise ActivityError(f"there is no order {number}; {NOTE}")


@tool(read_only=True)
async def list_rows(count: int) -> list[JSON]:
    """Return a table."""
    return [{"id": number, "text": NOTE, "total": number * 1.5} for number in range(count)]


@tool(read_only=True)
async def write(count: int) -> str:
    """Return Markdown."""
    return "# Orders\n\n- **late**\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n" * count


@tool
async def pay(order: int, note: str) -> str:
    """Pay money back."""
    return f"paid for {order}: {note}"


async def ended(bridge: Bridge, calls: list[JSONObject], output: JSON, title: str) -> Run:
    run = await bridge.run_plan(calls=calls, output=output, title=title)
    await run.wait()
    return run


async def fill(path: Path) -> dict[str, str]:
    """Fill a store; returns the paths of pages, by what they show."""
    tools = Toolbox(look, fail, list_rows, write, pay)
    async with Bridge(ASKS, toolbox=tools, store=path) as bridge:
        for number in range(RUNS):
            title = f"Look up what the order {number} of the customer costs with tax and shipping"
            run = await ended(bridge, [{"_tool": "look", "number": number}], "†results.0", title)
            await bridge.publish(run.id, f"order_{number}", description=NOTE)

        for number in range(WAITING):
            asked = await ended(
                bridge, [{"_tool": "pay", "order": number, "note": NOTE}], None, f"Pay {number}"
            )
            if number < 20:
                [question] = asked.pending()
                await bridge.decide(asked, question.approval, Decision("deny", reason=NOTE))
                await asked.wait()

        chain: list[JSONObject] = []
        for number in range(300):
            value = f"†results.{number - 10}.number" if number >= 10 else number
            chain.append({"_tool": "look", "number": value, "text": NOTE})

        long = await ended(bridge, chain, "†results.299", "Three hundred calls")
        short = await ended(bridge, chain[:40], "†results.39", "Forty calls")
        other: list[JSONObject] = [{**call, "text": NOTE[1:]} for call in chain[:40]]
        changed = await ended(bridge, other, "†results.39", "Forty calls")
        numbers: list[JSON] = [*range(400)]
        each: JSONObject = {"_tool": "look", "_each": numbers, "number": "†item", "text": NOTE}
        items = await ended(bridge, [each], "†results.0", "Each of 400")
        failed = await ended(
            bridge, [{"_tool": "fail", "number": number} for number in range(120)], None, "Failures"
        )
        table = await ended(bridge, [{"_tool": "list_rows", "count": 1000}], "†results.0", "Table")
        text = await ended(bridge, [{"_tool": "write", "count": 300}], "†results.0", "Markdown")
        tree: JSON = {f"a {number}": {"b": [number, {"c": NOTE}]} for number in range(500)}
        nested = await ended(bridge, [], tree, "Tree")
        questions = await ended(
            bridge,
            [{"_tool": "pay", "order": number, "note": NOTE} for number in range(60)],
            None,
            "Sixty questions",
        )
        messages: list[JSON] = [
            {"role": "user", "content": f"Message {number}: {NOTE * 10}"} for number in range(40)
        ]
        answer: JSONObject = {"calls": [], "output": 1}
        idea = await bridge.save_idea({"context": messages, "schema": {}, "solution": answer})

    runs = {
        "short": short,
        "long": long,
        "each": items,
        "failed": failed,
        "table": table,
        "markdown": text,
        "tree": nested,
        "questions": questions,
    }
    pages = {f"run {name}": f"runs/{run.id}" for name, run in runs.items()}
    pages |= {f"call {name}": f"runs/{run.id}/calls/0" for name, run in runs.items()}
    del pages["call tree"]
    lists = ["home", "runs", "runs/direct", "approvals", "ideas", "ideas?show=saved"]
    lists += ["ideas?q=order", "ideas/order_1", "modules", "modules/tools", "servers/add"]
    lists += ["servers/add?start=filesystem", "servers/add?start=other"]
    lists += ["servers/import", "assistants", "playground", "write", "admin", "admin/doctor"]
    return {
        **pages,
        **{path: path for path in lists},
        "replayed": f"runs/{long.id}?at=500",
        "compared": f"runs/{changed.id}/compare?with={short.id}",
        "idea": f"ideas/id/{idea.idea_id}",
    }


async def test_no_page_is_larger_than_100_kb(tmp_path: Path) -> None:
    pages = await fill(tmp_path / "ideas.sqlite")
    sizes: dict[str, int] = {}
    with served(tmp_path) as url, client(url) as http:
        for name, path in pages.items():
            answer = http.get(f"/ui/{path}")
            assert answer.status_code == 200, name
            sizes[name] = len(answer.content)

        run = http.get(f"/ui/{pages['run table']}").text
        # What does not fit on a page is loaded on demand.
        output = http.get(f"/ui/{pages['run table']}/output")
        drawn = http.get(f"/ui/{pages['run questions']}?graph=all").text

        shown: list[str] = []
        link = "/ui/approvals"
        while link:
            page = http.get(link).text
            keys = page.split('id="q-')[1:]
            shown += [key.partition('"')[0] for key in keys]
            following = page.partition('rel="next" href="')[2].partition('"')[0]
            link = following and f"/ui/approvals{following}"

    assert {name: size for name, size in sizes.items() if size > MOST_BYTES} == {}
    assert "/output" in run
    assert [row["id"] for row in output.json()] == [*range(1000)]
    assert "Data flow of the run" in drawn
    # The pages of decisions show each of them once.
    assert len(shown) == len(set(shown)) == WAITING - 20 + 60
