"""The tests run the plans in docs/plans.md and compare the results with the page.

A fenced block `json plan` is a plan. The block after it contains the expected result. `json result`
has members of the answer, exactly as `Run.answer(whole=True)` returns them. `json dry run` is the
result of `Bridge.dry_run`. `text refused` is the message of the `PlanError`. `text drawing` and
`mermaid` are drawings by `Bridge.draw`.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.plan import read_plan
from ideabridge.tools.encoding import JSONObject, decode

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTCOMES = ("json result", "json dry run", "text refused", "text drawing", "mermaid")


@dataclass(frozen=True)
class Example:
    place: str
    plan: str
    kind: str
    outcome: str


def examples(name: str) -> list[Example]:
    text = (ROOT / name).read_text(encoding="utf-8")
    found: list[Example] = []
    waiting: tuple[str, str] | None = None
    for match in FENCE.finditer(text):
        kind = match.group(1).strip()
        body = match.group(2)
        place = f"{name}:{text.count(chr(10), 0, match.start()) + 1}"
        if kind == "json plan":
            assert waiting is None, f"{waiting and waiting[0]}: the plan has no result"
            waiting = (place, body)
        elif kind in OUTCOMES:
            assert waiting is not None, f"{place}: there is no plan before this"
            found.append(Example(*waiting, kind, body))
            waiting = None

    assert waiting is None, f"{waiting and waiting[0]}: the plan has no result"
    return found


PLANS = examples("docs/plans.md")


def expected(example: Example) -> JSONObject:
    value = decode(example.outcome, what=example.place)
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("example", PLANS, ids=[example.place for example in PLANS])
async def test_a_plan_returns_what_the_document_says(example: Example) -> None:
    plan = read_plan(decode(example.plan, what=example.place))
    async with Bridge() as bridge:
        if example.kind == "text refused":
            with pytest.raises(PlanError) as refused:
                await bridge.run_plan(plan)
            assert str(refused.value) == example.outcome.strip()
            return
        if example.kind == "json dry run":
            assert await bridge.dry_run(plan) == expected(example)
            return
        if example.kind in ("text drawing", "mermaid"):
            form = "mermaid" if example.kind == "mermaid" else "text"
            assert await bridge.draw(plan, form) == example.outcome
            return
        run = await bridge.run_plan(plan)
        assert await run.wait(20) == "done"
        answer = run.answer(whole=True)
        told = expected(example)
        assert {name: answer.get(name) for name in told} == told


def test_the_document_has_examples_of_each_kind() -> None:
    assert {example.kind for example in PLANS} == set(OUTCOMES)
    assert len(PLANS) >= 12


def test_json_in_the_documents_reads() -> None:
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for match in FENCE.finditer(path.read_text(encoding="utf-8")):
            if match.group(1).split(" ")[0] == "json":
                value = json.loads(match.group(2))
                assert isinstance(value, dict | list), path
