"""Stored and exported plans with removed kinds of explanations: they go on with the same
values, or they ask.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.context.explanations import read_explained
from ideabridge.bridge.context.state import read
from ideabridge.bridge.lifting.evidence import learn, read_record
from ideabridge.bridge.store.idea import Idea, IdeaMeta, NewPublication
from ideabridge.bridge.store.publications import Evidence
from ideabridge.bridge.store.removed_kinds import NOT_CONVERTED, converted, has_removed
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from tests.postgres import run_sql, server

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def people(city: str) -> list[dict[str, int | str]]:
    """Who lives in a city."""
    return [{"name": f"{name} of {city}", "age": len(name)} for name in ("Al", "Barbara", "Carl")]


@tool(read_only=True)
def note(text: str, day: str) -> str:
    """Note something, without any effect."""
    return f"{day}: {text}"


TOOLS = Toolbox(people, note)

TITLE: JSON = {
    "join": [
        {"constant": "Dear "},
        {"convert": "†results.0.0.name", "by": ["word", 0]},
        "†input.city",
    ]
}
OLDEST: JSON = {"item_of": "†results.0", "largest": "age", "take": ["name"]}
SHIFTED: JSON = {"convert": "†input.day", "by": ["date", "%Y-%m-%d", "%d/%m/%Y", 7]}
DAY: JSON = {
    "join": [
        {"convert": "†input.day", "by": ["part", "-", 2]},
        {"constant": "/"},
        {"convert": "†input.day", "by": ["part", "-", 1]},
    ]
}
NAMES: JSON = {"all_of": "†results.0", "take": ["name"]}

PLAN: JSONObject = {
    "calls": [
        {"_tool": "people", "city": "†input.city"},
        {"_tool": "note", "text": "Dear AlRome", "day": "01/01"},
        {"_tool": "note", "text": "†results.1", "day": "1"},
    ],
    "output": {"oldest": "Barbara of Rome", "noted": "†results.2", "names": []},
    "explained": [
        {"at": ["calls", "1", "text"], "by": [TITLE]},
        {"at": ["calls", "1", "day"], "by": [DAY, {"constant": "01/01"}]},
        {"at": ["output", "oldest"], "by": [OLDEST]},
        {"at": ["output", "names"], "by": [NAMES]},
    ],
    "seen": {"†results.1": {"text": {"empty": [False]}}},
    "watch": {"2": ["†results.0"]},
    "decisions": [2],
}

RECORD: JSONObject = {
    "run": "run_1",
    "by": "local",
    "kind": "run",
    "time": "2026-01-01T00:00:00.000Z",
    "values": [[["calls", "1", "day"], "02/01"]],
    "view": {"†input.day": "2026-01-02"},
}


def publish(store: Store, plan: JSONObject, name: str = "letter") -> None:
    idea = store.ideas.save(Idea([name], {}, {"calls": [], "output": None}), IdeaMeta())
    properties: JSONObject = {"city": {"type": "string"}, "day": {"type": "string"}}
    store.publications.publish(
        NewPublication(
            name=name,
            idea_id=idea,
            description="A test.",
            answer="auto",
            input_schema={"type": "object", "properties": properties},
            output_schema=None,
            annotations={},
            plan=plan,
            recorded={"input": {"city": "Rome", "day": "2026-01-01"}, "output": None},
        )
    )


AFTER = (
    "ALTER TABLE user_tokens DROP COLUMN profile",
    "DROP TABLE configuration_changes",
    "ALTER TABLE runs DROP COLUMN client",
)
"""Undo the migrations that follow the one that converts removed kinds."""


def in_sqlite(folder: Path) -> tuple[str, Callable[[], None]]:
    path = folder / "ideas.sqlite"

    def set_back() -> None:
        with closing(sqlite3.connect(path)) as connection:
            for statement in AFTER:
                connection.execute(statement)

            connection.execute("PRAGMA user_version=26")

    return str(path), set_back


def in_postgres(_: Path) -> tuple[str, Callable[[], None]]:
    address = server().address()

    def set_back() -> None:
        for statement in AFTER:
            run_sql(address, statement)

        run_sql(address, "UPDATE counters SET value = 4 WHERE key = 'schema'")

    return address, set_back


@pytest.mark.parametrize("kind", [in_sqlite, in_postgres])
async def test_a_stored_plan_goes_on_with_the_same_values(kind: Any, tmp_path: Path) -> None:
    address, set_back = kind(tmp_path)
    with Store.open(address) as store:
        publish(store, PLAN)
        one = Evidence(RECORD, {"explained": PLAN["explained"], "seen": {}})
        store.publications.add_evidence("letter", 1, lambda _, __: one)

    set_back()
    async with Bridge(toolbox=TOOLS, store=address) as bridge:
        publication = bridge.store.publications.get("letter", 1, caller=SEES_ALL)
        assert not has_removed(publication.plan)
        assert not has_removed({**(publication.plan or {}), **(publication.learned or {})})
        for city, day, said in (("Rome", "2026-01-01", "01/01"), ("Oslo", "2024-02-27", "27/02")):
            replay = await bridge.start_idea("letter", {"city": city, "day": day})
            assert replay.run is not None
            assert await replay.run.result() == {
                "oldest": f"Barbara of {city}",
                "noted": f"1: {said}: Dear Al{city}",
                "names": [f"{name} of {city}" for name in ("Al", "Barbara", "Carl")],
            }
            assert replay.run.errors() == []

        # What its evidence shows can be learned again.
        [kept] = bridge.store.evidence.records("letter", 1, caller=SEES_ALL)
        listed = (publication.plan or {})["explained"]
        assert isinstance(listed, list)
        record = read_record(kept)
        found, _ = learn([read_explained(one) for one in listed], {}, [record])
        [day_literal] = [one for one in found if one.at == ("calls", "3", "day")]
        assert [one.shown for one in day_literal.by] == ["†results.2.0"]


def test_what_has_no_removed_kind_stays_as_it_is() -> None:
    plan: JSONObject = {
        "calls": [{"_tool": "people", "city": "Rome"}],
        "explained": [{"at": ["calls", "0", "city"]}],
    }
    assert converted(plan).plan is plan


def test_all_that_names_a_place_moves() -> None:
    plan: JSONObject = {
        "calls": [
            {"_tool": "a", "x": "old"},
            {
                "_tool": "b",
                "x": ["†results.0.id || †results.0.key"],
                "_imports": ["results.0"],
                "_outputPath": "y",
            },
        ],
        "output": "†results.1",
        "explained": [
            {"at": ["calls", "0", "x"], "by": [{"all_of": "†input.n", "take": ["name"]}]},
            {
                "at": ["output"],
                "by": [
                    {"item_of": "†results.1", "where": {"k": "†results.0"}, "take": ["results"]}
                ],
            },
        ],
        "seen": {"†results.0": {}},
        "watch": {"1": ["†results.0"]},
        "decisions": [1],
    }
    found = converted(plan).plan
    code = read(found, ("calls", "0", "code"))
    assert found["calls"] == [
        {"_tool": "compute", "code": code, "input_": "†input"},
        {"_tool": "a", "x": "old"},
        {
            "_tool": "b",
            "x": ["†results.1.id || †results.1.key"],
            "_imports": ["†results.1"],
            "_outputPath": "y",
        },
    ]
    assert found["explained"] == [
        {"at": ["calls", "1", "x"], "by": ["†results.0.0"]},
        {
            "at": ["output"],
            "by": [{"item_of": "†results.2", "where": {"k": "†results.1"}, "take": ["results"]}],
        },
    ]
    assert (found["output"], found["seen"], found["watch"]) == (
        "†results.2",
        {"†results.1": {}},
        {"2": ["†results.1"]},
    )
    assert (found["decisions"], "strict" in found) == ([2], False)


async def asked_by(plan: JSONObject) -> list[str]:
    """Why the published plan asks, though it only reads."""
    async with Bridge(toolbox=TOOLS) as bridge:
        publish(bridge.store, converted(plan).plan)
        replay = await bridge.start_idea("letter", {"city": "Rome", "day": "2026-01-01"})
        assert replay.run is not None
        assert await replay.run.wait(20) == "needs_approval"
        return [one.why for one in replay.run.questions()]


async def test_what_is_no_expression_asks_and_is_never_silently_the_recorded_value() -> None:
    long: JSON = {"join": [{"constant": "x" * 5000}, "†input.city", "†input.day"]}
    calls: list[JSON] = [{"_tool": "note", "text": "recorded", "day": "†input.day"}]
    plan: JSONObject = {"calls": calls, "output": "†results.0"}
    [why] = await asked_by({**plan, "explained": [{"at": ["calls", "0", "text"], "by": [long]}]})
    assert why == f'calls.0.text is "recorded" (always "recorded"): {NOT_CONVERTED}'
    [why] = await asked_by({**plan, "explained": [{"at": ["calls", "0", "text"], "by": [SHIFTED]}]})
    assert why == f'calls.0.text is "recorded" (always "recorded"): {NOT_CONVERTED}'
    beside: list[JSON] = ["†input.city", long]
    [why] = await asked_by({**plan, "explained": [{"at": ["calls", "0", "text"], "by": beside}]})
    assert why == f'calls.0.text is "Rome" (†input.city): {NOT_CONVERTED}'


async def test_a_call_that_had_a_test_asks() -> None:
    calls: list[JSON] = [{"_tool": "note", "text": "†input.city", "day": "†input.day"}]
    test: JSONObject = {
        "at": ["calls", "0", "_when"],
        "by": [{"test": "†input.city", "equals": "Oslo"}],
    }
    [why] = await asked_by({"calls": calls, "output": "†results.0", "explained": [test]})
    assert why.startswith("calls.0: whoever made this call had already seen results")


async def test_an_exported_document_of_that_time_is_imported_with_the_same_values() -> None:
    async with Bridge(toolbox=TOOLS) as there:
        publish(there.store, PLAN)
        document = there.export_idea("letter")
    async with Bridge(toolbox=TOOLS) as bridge:
        saved = await bridge.import_idea(document, publish=True)
        assert saved.publication is not None
        assert not has_removed(saved.publication.plan)
        replay = await bridge.start_idea("letter", {"city": "Oslo", "day": "2024-02-27"})
        assert replay.run is not None
        output = await replay.run.result()
        assert output["oldest"] == "Barbara of Oslo"
        assert output["noted"] == "1: 27/02: Dear AlOslo"
