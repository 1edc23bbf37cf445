"""Lists of tools, resources, templates and prompts whose pages are odd: what arrived is
there, with a note.
"""

from __future__ import annotations

import sys
from typing import Any, get_args

import anyio
import pytest

from ideabridge.bridge.modules import connection, offering, pages
from ideabridge.bridge.modules.errors import ModuleListError
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.modules.offering import Kind
from ideabridge.bridge.modules.pages import MAX_EMPTY_PAGES, MAX_ENTRIES, Patience

from .conftest import SERVERS, Changes, modules_of

pytestmark = pytest.mark.anyio

KINDS: tuple[Kind, ...] = get_args(Kind)


def lists(mode: str) -> dict[str, Any]:
    """Configuration of the server whose lists are odd."""
    return {"command": sys.executable, "args": ["-I", "-S", str(SERVERS / "lists.py"), mode]}


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pauses, and little patience only with pages that hang."""
    monkeypatch.setattr(pages, "MAX_PAGES", 200)
    page = 0.3 if "hangs" in request.node.name else 30.0
    lists = (
        (connection, "_FIRST_LIST"),
        (connection, "_LATER_LIST"),
        (offering, "_ASKED"),
        (offering, "_BACKGROUND"),
    )
    for where, name in lists:
        monkeypatch.setattr(where, name, Patience(page, whole=60.0))

    for where, name in ((connection, "_LIST_AGAIN_SECONDS"), (offering, "_AGAIN_SECONDS")):
        monkeypatch.setattr(where, name, 0.05)


async def names_in(modules: Modules) -> dict[str, list[str]]:
    """The names in each of the four lists."""
    module = modules["m"]
    names = {"tools": [tool.name for tool in module.tools]}
    for kind in KINDS:
        names[kind] = [str(entry["name"]) for entry in await module.offered(kind)]
    return names


@pytest.mark.parametrize(
    ("mode", "entries", "note"),
    [
        ("repeated", 2, "gave the cursor of an earlier page for page 3"),
        ("alternating", 3, "gave the cursor of an earlier page for page 4"),
        ("empty", 1, "gave an empty cursor for page 2"),
        ("number", 2, "nextCursor: expected a string, got a number"),
        ("object", 1, "nextCursor: expected a string, got an object; left out"),
        ("flag", 1, "nextCursor: expected a string, got true; left out"),
        ("fails", 1, "did not send page 2 (the database is locked (-32603))"),
        ("hangs", 1, "did not send page 2 within 0.3 s"),
        ("no_entries", 1, "is missing; taken as []"),
        ("null_entries", 1, "expected a list, got nothing; taken as []"),
        ("many_pages", 200, "on more than 200 pages"),
        ("empty_pages", 1, f"sent {MAX_EMPTY_PAGES} pages without "),
        ("many_entries", MAX_ENTRIES, f"lists more than {MAX_ENTRIES:,} "),
    ],
)
async def test_what_arrived_is_there_with_a_note(mode: str, entries: int, note: str) -> None:
    async with modules_of({"m": lists(mode)}) as modules:
        with anyio.fail_after(30):
            await modules["m"].ready()
            names = await names_in(modules)
        expected = [f"e{number}" for number in range(entries)]
        assert names == dict.fromkeys(("tools", *KINDS), expected)
        notes = "\n".join(modules["m"].status().notes)
        for kind in ("tools", *KINDS):
            assert note in notes
            if note.endswith("page 2"):
                assert f"its list of {kind} ends after {entries:,} entries" in notes
        assert await modules["m"].call("e0", {}) == "done"


async def test_a_list_of_too_many_bytes_ends_before_them() -> None:
    async with modules_of({"m": lists("many_bytes")}) as modules:
        with anyio.fail_after(30):
            await modules["m"].ready()
        assert [tool.name for tool in modules.tools()] == ["e0", "e1", "e2", "e3"]
        assert "lists its tools in more than 33,554,432 bytes" in str(modules["m"].status().notes)


async def test_a_server_that_ignores_cursors_has_each_tool_once() -> None:
    async with modules_of({"m": lists("ignored")}) as modules:
        await modules["m"].ready(30)
        assert [tool.name for tool in modules.tools()] == ["e0", "e1"]
        notes = str(modules["m"].status().notes)
        assert "tool 'e0' is listed twice; ideabridge uses the first one" in notes
        assert "gave the cursor of an earlier page" in notes


@pytest.mark.parametrize("mode", ["fails", "hangs"])
async def test_the_rest_arrives_later(mode: str, changes: Changes) -> None:
    offered = Changes()
    async with modules_of({"m": lists(mode)}, changes) as modules:
        modules.on_event = lambda name, _event: offered(name)
        module = modules["m"]
        await module.ready(30)
        assert [tool.name for tool in module.tools] == ["e0"]
        assert [entry["name"] for entry in await module.offered("resources")] == ["e0"]
        before = len(offered.heard)
        # From now on, the module answers.
        await module.call("e0", {})
        await changes.until(lambda: len(module.tools) == 2)
        await offered.until(lambda: len(offered.heard) > before)
        assert [entry["name"] for entry in await module.offered("resources")] == ["e0", "e1"]
        assert module.status().notes == ()


async def test_a_first_list_that_fails_is_read_again(changes: Changes) -> None:
    async with modules_of({"m": lists("first_fails")}, changes) as modules:
        module = modules["m"]
        await module.ready(30)
        status = module.status()
        assert (status.state, status.tools) == ("up", 0)
        assert status.error == (
            "its tools could not be listed: the database is locked (-32603); ideabridge will "
            "ask it again"
        )
        assert status.error in status.notes
        assert not module.listed
        assert [one.name for one in modules.away()] == ["m"]
        with pytest.raises(
            ModuleListError,
            match=r"server 'm' is connected, but its tools could not be listed: the database",
        ):
            await module.call("e0", {})
        # What the module offers besides tools is there.
        assert [entry["name"] for entry in await module.offered("prompts")] == ["e0", "e1"]
        connected = module._connection  # pyright: ignore[reportPrivateUsage]
        assert connected is not None
        await connected.client.session.call_tool("any", {})
        await changes.until(lambda: [tool.name for tool in module.tools] == ["e0"])
        status = module.status()
        assert (status.error, status.tools, status.notes) == (None, 1, ())
        assert await module.call("e0", {}) == "done"


async def test_no_method_is_no_tools() -> None:
    async with modules_of({"m": lists("no_method")}) as modules:
        await modules["m"].ready(30)
        assert modules["m"].listed
        assert await names_in(modules) == {kind: [] for kind in ("tools", *KINDS)}
        assert modules["m"].status().notes == ()
