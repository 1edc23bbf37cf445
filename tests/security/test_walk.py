"""A walk through every route of the page and all that the server offers over MCP, as another
member and as nobody: for objects of each kind, the answer must be the one for something that
does not exist.

The routes come from the table of the application, and tools, resources, templates, prompts and
completions from the server, so that a new one is walked without a change here.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import anyio
import httpx2
import pytest
from mcp import Client, MCPError, types
from pydantic import BaseModel, ConfigDict
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from ideabridge.bridge.bridge import Bridge
from ideabridge.server.own_tools import OWN_NAMES
from ideabridge.server.server import Front
from ideabridge.server.ui.pages import routes_of
from ideabridge.server.ui.site import Site
from ideabridge.tools.names import safe_name
from tests.security.neighbours import MARKER, SHARED, Browser, Neighbours, Pair, serving, settle
from tests.server.serving import ERAS

pytestmark = pytest.mark.anyio

FIRST_LEVEL: Final = ("run", "prefix", "publication")
"""The kinds of the short walk: those by which objects are looked up."""

QUERY: Final = (
    "after",
    "assistant",
    "draft",
    "example",
    "file",
    "name",
    "new",
    "old",
    "q",
    "ref",
    "run",
    "tool",
    "user",
    "version",
    "which",
    "with",
    "words",
)
"""What pages read from their query. `test_the_walk_knows_every_query` compares it
with the pages."""

FORM: Final = ("name", "ref", "tool", "value", "version", "which", "with")
"""What forms name objects with."""

QUIET: Final = frozenset({"/ui/live", "/ui/sign-in", "/ui/sign-out"})
"""A stream without an end, and what ends the session of the walk. None of them is
about an object."""

_VOLATILE: Final = (
    (re.compile(r'name="secret" value="[^"]*"'), "SECRET"),
    (re.compile(r"\b(?:run|session)_[0-9a-f]{16}\b"), "RUN"),
    (re.compile(r"[0-9a-f]{64}"), "IDEA"),
    # Names that are similar are chosen from those that the visitor sees.
    (re.compile(r"\s*Did you mean [^?]*\?"), ""),
    (re.compile(r"; nearest(?: names)?: [a-z0-9_]+(?:, [a-z0-9_]+)*"), ""),
    (re.compile(r'data-revision="[^"]*"'), ""),
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|s|min|h)(?: ago)?\b"), "TIME"),
    (re.compile(r"just now"), "TIME"),
    (re.compile(r'data-age="\d+"'), "AGE"),
    # The memory that a server takes is measured again for each page.
    (re.compile(r'(?<="memory">)\d+(?:\.\d+)? [kMG]?B(?=<)'), "MEMORY"),
    # The version that was requested.
    (re.compile(r", not \d+"), ", not N"),
    (re.compile(r'"(?:time|created|seconds)": ?[^,}]*'), "TIME"),
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def neighbours(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Neighbours]:
    with serving(tmp_path_factory.mktemp("walk")) as served:
        await settle(served)
        yield served


def plain(text: str, name: str) -> str:
    """An answer without the name that was asked for, and without what differs between
    two equal answers.
    """
    if name:
        # An answer may contain the first part of NAME@VERSION or, for something that cannot be a
        # name, a suggestion. Read as a program, the id of an approval is a subtraction, and an
        # error names its second operand.
        for one in (name, safe_name(name), name.partition("@")[0], name.rpartition("-")[2]):
            text = text.replace(one, "NAME")
    for pattern, word in _VOLATILE:
        text = pattern.sub(word, text)
    return text


# -- the page --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A route of the page: its path with parameters, and its methods."""

    path: str
    methods: frozenset[str]

    def filled(self, name: str) -> str:
        """The path with a name in each parameter that is a text."""
        path = re.sub(r"\{[a-z]+:int\}", "0", self.path)
        path = re.sub(r"\{[a-z]+(:path)?\}", name.replace("/", "%2F"), path)
        assert "{" not in path, f"the walk does not know how to fill {self.path}"
        return path


def places(routes: list[BaseRoute], prefix: str = "") -> Iterator[Place]:
    for route in routes:
        if isinstance(route, Mount) and isinstance(route.app, StaticFiles):
            continue
        if isinstance(route, Mount):
            yield from places(route.routes, prefix + route.path)
        else:
            assert isinstance(route, Route), f"the walk does not know {route}"
            yield Place(prefix + route.path, frozenset(route.methods or ()))


async def page_places() -> list[Place]:
    """The routes of the application that a server serves."""
    found: list[Place] = []
    async with Bridge() as bridge, anyio.create_task_group() as group:
        site = Site(bridge, Front(bridge, group, "0"))
        found = list(places(site.application(routes_of(site)).routes))
        group.cancel_scope.cancel()

    assert len(found) > 30
    return [place for place in found if place.path not in QUIET]


async def shown(browser: Browser, answer: httpx2.Response, name: str) -> str:
    """What a visitor gets: the answer, and what the next page says of it."""
    text = f"{answer.status_code} {answer.headers.get('location', '')}\n{answer.text}"
    if answer.status_code == 303 and browser.secret:
        # Every page shows what was refused, and this one costs least.
        text += (await browser.get("/ui/nowhere")).text
    return plain(text, name)


async def expect_same_pages(browser: Browser, place: Place, pair: Pair, *, deep: bool) -> None:
    """Every way in which a route can name an object: in its path, and in its query or form, by
    itself and with others.

    Not `deep`: the names of the query or form are not tried one by one.
    """
    keys = QUERY if "GET" in place.methods else FORM
    ways: list[tuple[str, ...]] = [("path",)] if "{" in place.path else []
    if deep:
        ways += [(key,) for key in keys]
    elif "{" not in place.path:
        ways += [keys, ("ref",)]

    for way in ways:
        answers: list[str] = []
        for name in (pair.real, pair.absent):
            path = place.filled(name if way == ("path",) else SHARED)
            given = {
                key: f"{name}:call_0" if key == "which" else name for key in way if key != "path"
            }
            answer = await (browser.get if "GET" in place.methods else browser.post)(path, **given)
            text = await shown(browser, answer, name)
            assert MARKER not in text.replace(pair.real, ""), (place, way, pair, text)
            answers.append(text)

        assert answers[0] == answers[1], (place, way, pair)


async def walk_pages(
    neighbours: Neighbours, who: str | None, kinds: tuple[str, ...], *, deep: bool
) -> None:
    async with neighbours.browser(who) as browser:
        for place in await page_places():
            for pair in neighbours.pairs:
                if pair.kind in kinds:
                    await expect_same_pages(browser, place, pair, deep=deep)


# -- the server ------------------------------------------------------------------------------------


def filling(schema: dict[str, Any], name: str) -> Any:
    """A value for a schema, with a name in the place of each text."""
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return filling(schema["anyOf"][0], name)
    match schema.get("type"):
        case "string":
            return name
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case "array":
            return [filling(schema.get("items", {}), name)]
        case "object":
            members = cast("dict[str, Any]", schema.get("properties", {}))
            return {key: filling(members[key], name) for key in schema.get("required", [])}
        case _:
            return name


def uses(tool: types.Tool, pair: Pair) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """For each parameter of a tool that takes a name, the arguments with the name of the
    object and with none.
    """
    schema = tool.input_schema
    members = cast("dict[str, Any]", schema.get("properties", {}))
    for key, member in members.items():
        arguments: list[dict[str, Any]] = []
        for name in (pair.real, pair.absent):
            given = filling(schema, name)
            if key not in given:
                given[key] = filling(member, name)

            # If this walk published something, it would change the answer to the next request.
            if tool.name == "publish_idea" and key != "name":
                given["name"] = "walked"

            arguments.append({**given, **({"wait_s": 0} if "wait_s" in members else {})})

        # The digit of a version also occurs in the words of other tools.
        is_search = "words" in arguments[0] and "version" in pair.kind
        if pair.real in json.dumps(arguments[0]) and not is_search:
            yield key, arguments

    if tool.name == "run_plan":
        for form in ("{}", "idea:{}"):
            calls = [
                [{"_tool": one, "_module": form.format(one), "text": "x"}]
                for one in (pair.real, pair.absent)
            ]
            yield "calls", [{"calls": one} for one in calls]


class Found(BaseModel):
    """Any result."""

    model_config = ConfigDict(extra="allow")


async def told(client: Client, method: str, name: str, /, **params: Any) -> str:
    """The answer to a request, result or error."""
    request = types.Request[dict[str, Any], str](method=method, params=params)
    try:
        answer = (await client.session.send_request(cast("Any", request), Found)).model_dump_json()
    except MCPError as error:
        answer = f"{error.code} {error} {error.data}"
    return plain(answer, name)


async def called(client: Client, tool: str, arguments: dict[str, Any], name: str) -> str:
    result = await client.call_tool(tool, arguments)
    return plain(result.model_dump_json(), name)


WAITING = (
    *("die", "say", "meet", "stubborn", "late", "impatient", "hold"),
    *("together", "order_together"),
)
"""Tools of the module that call others, end it, or wait for somebody."""


async def walk_tools(client: Client, pairs: list[Pair]) -> int:
    """Every tool, with the name of each object in each of its parameters."""
    count = 0
    tools = [tool async for tool in all_of(client)]
    assert OWN_NAMES - {"view_run"} <= {tool.name for tool in tools}
    for tool in tools:
        for pair in pairs:
            for key, arguments in uses(tool, pair):
                answers = [
                    await called(client, tool.name, one, name)
                    for one, name in zip(arguments, (pair.real, pair.absent), strict=True)
                ]
                count += 1
                assert MARKER not in "".join(answers).replace(pair.real, ""), (
                    tool.name,
                    key,
                    pair,
                    answers,
                )
                assert answers[0] == answers[1], (tool.name, key, pair)

    return count


async def all_of(client: Client) -> AsyncGenerator[types.Tool]:
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        for tool in page.tools:
            # The tools that are left out look nothing up in ideabridge.
            if tool.name not in WAITING:
                yield tool
        cursor = page.next_cursor
        if cursor is None:
            return


async def walk_offerings(client: Client, pairs: list[Pair]) -> None:
    """Every list, template, prompt, completion and skill."""
    for method in (
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
        "skills/list",
    ):
        assert MARKER not in await told(client, method, ""), method

    templates = [
        one.uri_template for one in (await client.list_resource_templates()).resource_templates
    ]
    uris = [*templates, "skill://{name}/walk-private/SKILL.md", "{name}"]
    prompts = [one.name for one in (await client.list_prompts()).prompts]
    for pair in pairs:
        requests: list[tuple[str, list[dict[str, Any]]]] = []
        names = (pair.real, pair.absent)
        for uri in uris:
            filled = [{"uri": re.sub(r"\{[a-z]+\}", name, uri)} for name in names]
            requests += [
                ("resources/read", filled),
                ("skills/get", filled),
                ("resources/subscribe", filled),
            ]

        requests.append(("prompts/get", [{"name": name} for name in names]))
        for task in ("get", "update", "cancel"):
            requests.append((f"tasks/{task}", [{"taskId": name} for name in names]))

        references: list[dict[str, Any]] = [
            {"type": "ref/resource", "uri": one} for one in templates
        ]
        references += [{"type": "ref/prompt", "name": one} for one in prompts]
        for reference in references:
            for key in ("name", "version"):
                arguments = [{"name": key, "value": name} for name in names]
                requests.append(
                    (
                        "completion/complete",
                        [{"ref": reference, "argument": one} for one in arguments],
                    )
                )
                versions = [
                    {"ref": reference, "argument": {"name": "version", "value": ""}} for _ in names
                ]
                context = [{"context": {"arguments": {"name": name}}} for name in names]
                asked = [{**one, **other} for one, other in zip(versions, context, strict=True)]
                requests.append(("completion/complete", asked))

        for method, asked in requests:
            answers = [
                await told(client, method, name, **one)
                for name, one in zip(names, asked, strict=True)
            ]
            assert MARKER not in "".join(answers).replace(pair.real, ""), (method, pair, answers)
            assert answers[0] == answers[1], (method, pair, asked)


# -- the walks -------------------------------------------------------------------------------------


def test_the_walk_knows_every_query() -> None:
    """A page that reads another name from its query is walked only if the name is here."""
    folder = Path(inspect.getfile(Site)).parent
    read = set[str]()
    for file in folder.glob("*.py"):
        source = file.read_text()
        read.update(
            re.findall(r'(?:query_params|asked)(?:\.get|\.getlist)?[\[(]"([a-z]+)"', source)
        )

    # These parameters choose a part of what was found rather than an object.
    parts = {"at", "calls", "events", "is", "key", "kind", "show", "since", "status", "until"}
    parts |= {"first", "graph", "host", "level"}
    # This one chooses from a list that is part of the program.
    parts |= {"start"}
    assert read - parts <= set(QUERY)


async def test_the_short_walk_of_another_member(neighbours: Neighbours) -> None:
    await walk_pages(neighbours, "bob", FIRST_LEVEL, deep=False)


async def test_the_short_walk_of_another_member_over_mcp(neighbours: Neighbours) -> None:
    pairs = [pair for pair in neighbours.pairs if pair.kind in FIRST_LEVEL]
    async with neighbours.client("bob") as client:
        assert await walk_tools(client, pairs) > 50
        await walk_offerings(client, pairs)


async def test_the_walk_of_nobody(neighbours: Neighbours) -> None:
    await walk_pages(neighbours, None, ("run",), deep=False)
    async with httpx2.AsyncClient() as http:
        for method in ("tools/list", "resources/read", "tasks/get"):
            message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}
            answer = await http.post(neighbours.url, json=message)
            assert answer.status_code == 401
            assert MARKER not in answer.text


@pytest.mark.long
async def test_the_whole_walk_of_the_page(neighbours: Neighbours) -> None:
    kinds = tuple(pair.kind for pair in neighbours.pairs)
    await walk_pages(neighbours, "bob", kinds, deep=True)
    await walk_pages(neighbours, None, kinds, deep=True)


@pytest.mark.long
@pytest.mark.parametrize("mode", ERAS)
async def test_the_whole_walk_over_mcp(neighbours: Neighbours, mode: str) -> None:
    async with neighbours.client("bob", mode=mode) as client:
        await walk_tools(client, neighbours.pairs)
        await walk_offerings(client, neighbours.pairs)
