"""Mutations of a session: any member of any message dropped, of another type, doubled, nested,
renamed, or huge.

What a message may have comes from the models of both protocol versions. A mutation is a list of
targets and edits, in JSON: `mutation(seed)` makes it, `broken_laws` runs a session with it and says
which laws it breaks.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, cast

import anyio
from mcp_types import methods
from pydantic import TypeAdapter, ValidationError

from ideabridge.bridge.modules.module import Module
from ideabridge.bridge.modules.offering import Kind
from ideabridge.tools.errors import IdeabridgeError
from tests.modules.conftest import modules_of
from tests.modules.servers.odd import HUGE, LEGACY, MODERN, RIGHT, Edit, Message, Server

from . import memory
from .laws import foreign_words, leaves

VERSIONS: Final = {"legacy": LEGACY, "modern": MODERN}
CALLS: Final = ("typed", "change", "fails", "picture", "blocks", "ask", "chatty", "look")
KINDS: Final[tuple[Kind, ...]] = ("resources", "templates", "prompts")
LISTS: Final[Mapping[Kind, str]] = {
    "resources": "resources/list",
    "templates": "resources/templates/list",
    "prompts": "prompts/list",
}
LONGEST: Final = 3600.0
"""Seconds, under the clock that jumps, in which a session ends."""

VALUES: Final[tuple[Any, ...]] = (
    None, True, False, "odd", "", "true", "null", "1", "\ufeff", HUGE,
    5, -1, 0, 1.5, 2**70, [], [None], [[]], {}, {"": None},
)  # fmt: skip


@dataclass
class Session:
    """What a session came to.

    Attributes:
        up: whether the module came up.
        listed: the annotations of each tool, by its name.
        values: of each call that gave one; `errors`: of each that gave an error.
        offered: the entries of each list.
        notes: of the module.
        sent: what each server of the session sent, and `received`.
    """

    up: bool = False
    listed: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    errors: dict[str, str] = field(default_factory=dict[str, str])
    offered: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    notes: list[str] = field(default_factory=list[str])
    sent: list[tuple[str, Message]] = field(default_factory=list[tuple[str, Message]])
    received: list[Message] = field(default_factory=list[Message])


@dataclass(frozen=True)
class Mutation:
    """A session with changes: those of the connection, and those of one call."""

    era: str
    edits: list[Edit]
    tool: str | None = None
    call: list[Edit] = field(default_factory=list[Edit])

    def to_json(self) -> str:
        """For a run of it alone."""
        return json.dumps([self.era, self.edits, self.tool, self.call])

    @classmethod
    def from_json(cls, written: str) -> Mutation:
        era, edits, tool, call = json.loads(written)
        return cls(era, edits, tool, call)

    @property
    def all(self) -> list[Edit]:
        return [*self.edits, *self.call]


# -- sessions --------------------------------------------------------------------------------------


async def in_memory(mutation: Mutation) -> Session:
    """A session with the odd server in this process, and what that sent and received."""
    memory.Child.servers.clear()
    done = await session(mutation, memory.entry(mutation.edits, mutation.era))
    for server in memory.Child.servers:
        done.sent += server.sent
        done.received += server.received
    return done


async def session(
    mutation: Mutation, entry: Mapping[str, Any], calls: Sequence[str] = CALLS
) -> Session:
    """Connect to a configured server, list its tools, call everything, and list the rest."""
    done = Session()
    with anyio.fail_after(LONGEST):
        async with modules_of({"odd": dict(entry)}) as modules:
            module = modules["odd"]
            await module.settle()
            done.up = module.state == "up"
            for tool in calls:
                await _call(module, tool, mutation, done)

            done.up = done.up or module.state == "up"
            done.listed = {tool.name: tool.annotations.to_json() for tool in module.tools}
            for kind in KINDS:
                try:
                    done.offered[kind] = [*await module.offered(kind)]
                except IdeabridgeError as error:
                    done.errors[kind] = str(error)

            status = module.status()
            done.notes = [*status.notes]
            if status.error:
                done.errors["status"] = status.error

    return done


@cache
def usual(era: str) -> Session:
    """A session without mutations."""
    return memory.run(lambda: in_memory(Mutation(era, [])))


async def _call(module: Module, tool: str, mutation: Mutation, done: Session) -> None:
    arguments: dict[str, Any] = {}
    if tool == mutation.tool:
        arguments["edits"] = json.dumps(mutation.call)
    try:
        done.values[tool] = await module.call(tool, arguments, progress=_ignore)
    except IdeabridgeError as error:
        done.errors[tool] = str(error)


async def _ignore(_progress: float, _total: float | None, _message: str | None) -> None:
    pass


# -- which members there are -----------------------------------------------------------------------


@cache
def recorded(era: str) -> dict[str, Message]:
    """A message for each target: a method, or "call NAME" for the answer to a call."""
    server = Server([], era)
    found: dict[str, Message] = {}
    if era == "modern":
        meta = {"io.modelcontextprotocol/protocolVersion": MODERN}
    else:
        meta = {}

    asks = ["initialize" if era == "legacy" else "server/discover", "tools/list", *LISTS.values()]
    for number, method in enumerate(asks):
        server.handle({"id": number, "method": method, "params": {"_meta": meta}})
        found[method] = server.sent[-1][1]

    for tool in CALLS:
        told = {"name": tool, "arguments": {}, "_meta": {**meta, "progressToken": 1}}
        before = len(server.sent)
        server.handle({"id": tool, "method": "tools/call", "params": told})
        for method, message in server.sent[before:]:
            found[f"call {tool}" if "id" in message and "method" not in message else method] = (
                message
            )

    if era == "legacy":
        server.handle({"id": "q1", "result": {"action": "decline"}})
        found["call ask"] = server.sent[-1][1]

    return found


def schema_of(target: str, era: str) -> dict[str, Any]:
    """The JSON Schema of what a message carries, by the protocol's models."""
    key = ("tools/call" if target.startswith("call ") else target, VERSIONS[era])
    for table in (methods.SERVER_RESULTS, methods.SERVER_NOTIFICATIONS, methods.SERVER_REQUESTS):
        model = cast("Mapping[tuple[str, str], Any]", table).get(key)
        if model is not None:
            return TypeAdapter(model).json_schema(by_alias=True)
    return {}


def paths_of(target: str, era: str) -> list[list[Any]]:
    """The paths to all members that a message has or may have."""
    message = recorded(era)[target]
    schema = schema_of(target, era)
    carries = "result" if "result" in message else "params"
    paths: list[list[Any]] = [
        [],
        ["id"],
        ["jsonrpc"],
        ["method"],
        ["params"],
        ["error"],
        ["result"],
    ]
    _walk(message.get(carries), [schema], schema.get("$defs", {}), [carries], paths)
    if "method" in message:
        # This is a notification or request, so its members are beside `params`.
        _walk(message, [schema], schema.get("$defs", {}), [], paths)

    unique = {json.dumps(path): path for path in paths}
    # `look` shows that the rest works, so leave its definition alone.
    return [path for path in unique.values() if path[:3] != ["result", "tools", 0]]


def _walk(
    value: Any,
    schemas: Sequence[Any],
    definitions: Mapping[str, Any],
    path: list[Any],
    paths: list[list[Any]],
) -> None:
    paths.append(path)
    plain = [leaf for schema in schemas for leaf in _alternatives(schema, definitions)]
    if isinstance(value, dict):
        members: dict[str, list[Any]] = {name: [] for name in cast("dict[str, Any]", value)}
        for schema in plain:
            for name, member in schema.get("properties", {}).items():
                members.setdefault(name, []).append(member)
        for name, inner in members.items():
            if name in value:
                _walk(value[name], inner, definitions, [*path, name], paths)
            else:
                paths.append([*path, name])
    elif isinstance(value, list):
        items = [schema["items"] for schema in plain if isinstance(schema.get("items"), dict)]
        for index, item in enumerate(cast("list[Any]", value)):
            _walk(item, items, definitions, [*path, index], paths)
        paths.append([*path, len(cast("list[Any]", value))])


def _alternatives(schema: Any, definitions: Mapping[str, Any]) -> list[dict[str, Any]]:
    if not isinstance(schema, dict):
        return []

    told = cast("dict[str, Any]", schema)
    if "$ref" in told:
        return _alternatives(definitions.get(told["$ref"].rpartition("/")[2]), definitions)

    found = [told]
    for word in ("anyOf", "oneOf", "allOf"):
        for one in told.get(word, []):
            found += _alternatives(one, definitions)

    return found


@cache
def targets(era: str) -> list[tuple[str, list[list[Any]]]]:
    """Each message of a session, and the paths in it."""
    return [(target, paths_of(target, era)) for target in recorded(era)]


def at(value: Any, path: Sequence[Any]) -> Any:
    """The member at a path; None if there is none."""
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value


# -- mutations -------------------------------------------------------------------------------------


def mutation(seed: int, *, most: int = 1) -> Mutation:
    """The mutation of a seed, with up to `most` changed members."""
    chance = random.Random(seed)
    era = chance.choice(("legacy", "modern"))
    edits: list[Edit] = []
    call: list[Edit] = []
    tool: str | None = None
    for _ in range(chance.randint(1, most)):
        (target, paths), *_ = chance.choices(
            targets(era), weights=[len(paths) ** 0.5 for _, paths in targets(era)]
        )
        path = chance.choice(paths)
        edit = _edit(chance, recorded(era)[target], path)
        if not target.startswith("call "):
            edits.append([target, *edit])
            continue

        name = target.removeprefix("call ")
        if tool in (None, name):
            tool = name
            call.append(["tools/call", *edit])

    return Mutation(era, edits, tool, call)


def _edit(chance: random.Random, message: Message, path: list[Any]) -> list[Any]:
    present = at(message, path)
    kinds = ["drop", "put", "put", "put", "put", "rename", "double", "nest", "swap"]
    match chance.choice(kinds):
        case "drop" if path:
            return ["drop", path]
        case "rename" if path and isinstance(path[-1], str):
            return ["rename", path, _renamed(path[-1])]
        case "double" if not path or isinstance(path[-1], int):
            return ["double", path]
        case "nest" if path:
            return [
                "put",
                path,
                chance.choice(([present], {"value": present}, [[present]], {"0": present})),
            ]
        case "swap" if path:
            others = [one for one in leaves(message) if one != present] or [None]
            return ["put", path, chance.choice(others)]
        case _:
            if path:
                return ["put", path, chance.choice(VALUES)]
            return ["put", ["extra"], chance.choice(VALUES)]


def _renamed(name: str) -> str:
    snake = re.sub("([A-Z])", lambda found: "_" + found[1].lower(), name)
    if snake != name:
        return snake
    if name:
        return name.title()
    return "x"


# -- laws ------------------------------------------------------------------------------------------


def broken_laws(mutation: Mutation) -> list[str]:
    """Run a session with a mutation; return what is wrong."""
    try:
        done = memory.run(lambda: in_memory(mutation))
    except memory.Stuck:
        return ["it hangs: nothing can wake it up"]
    except TimeoutError:
        return [f"it takes more than {LONGEST:g} s"]
    except BaseException as error:  # noqa: BLE001 - whatever leaves a module is the finding
        return [f"{type(error).__name__} leaves the server: {str(error)[:300]}"]

    wrong = [
        f"words of a library: {text[:300]}"
        for text in foreign_words([*done.errors.values(), *done.notes])
    ]
    wrong += _rest_works(mutation, done)
    wrong += _notes_exist(mutation, done)
    wrong += _hints_are_not_wider(done)
    wrong += _names_are_theirs(done)
    wrong += _failures_stay(done)
    wrong += _values_are_theirs(done)
    return wrong


def is_whole(edit: Edit) -> bool:
    """True if an edit makes a whole message unusable, or decides what message it is."""
    _when, what, path, *_ = edit
    if what == "rename" and path == ["jsonrpc"]:
        # An object without `jsonrpc` and with an unknown member may be a line of a log.
        return True
    return (len(path) == 1 and path[0] in ("id", "result", "error", "method", "params")) or (
        what == "double" and not path
    )


def _handshake(edit: Edit) -> bool:
    return edit[0] in ("initialize", "server/discover")


def _rest_works(mutation: Mutation, done: Session) -> list[str]:
    wrong: list[str] = []
    unusable = any(
        (_handshake(edit) or edit[0] == "tools/list")
        and (
            is_whole(edit)
            or edit[2] == ["result", "tools"]
            or edit[2][:2] == ["result", "supportedVersions"]
        )
        for edit in mutation.edits
    )
    if not unusable:
        if not done.up:
            wrong.append(f"it does not come up: {done.errors.get('status', '')[:200]}")
        elif done.values.get("look") != RIGHT + "look" and mutation.tool != "look":
            wrong.append(f"`look` gives {done.values.get('look', done.errors.get('look'))!r}")

        odd = {
            edit[2][2] for edit in mutation.edits if edit[0] == "tools/list" and len(edit[2]) > 2
        }
        lost = [name for n, name in enumerate(("look", "typed", "change", "delete", "fails", "picture", "blocks"))
                if n not in odd and name not in done.listed]  # fmt: skip
        if lost and done.up:
            wrong.append(f"tools are missing: {lost}; notes: {done.notes}")

    if mutation.edits and all(edit[0] in LISTS.values() for edit in mutation.edits):
        wrong += _entries_remain(mutation, done)

    return wrong


def _entries_remain(mutation: Mutation, done: Session) -> list[str]:
    wrong: list[str] = []
    for kind, method in LISTS.items():
        edits = [edit for edit in mutation.edits if edit[0] == method]
        if any(is_whole(edit) or len(edit[2]) <= 2 for edit in edits):
            continue

        base = recorded(mutation.era)[method]["result"]
        entries = next(
            cast("list[Any]", value) for value in base.values() if isinstance(value, list)
        )
        least = len(entries) - len({edit[2][2] for edit in edits})
        if len(done.offered.get(kind, [])) < least:
            wrong.append(
                f"{kind} are missing: {len(done.offered.get(kind, []))} of "
                f"{least}; {done.errors.get(kind)}"
            )

    return wrong


def _notes_exist(mutation: Mutation, done: Session) -> list[str]:
    """Something is said where a message was not what the protocol says."""
    if done.notes or any(
        text != usual(mutation.era).errors.get(name) for name, text in done.errors.items()
    ):
        return []

    for method, message in done.sent:
        if "result" not in message or method not in ("tools/call", "tools/list", *LISTS.values()):
            continue
        if not _valid(method, VERSIONS[mutation.era], message["result"]):
            return [
                (
                    f"nothing is said about the odd answer to {method}: "
                    f"{json.dumps(mutation.all)[:200]}"
                )
            ]

    return []


def _valid(method: str, version: str, result: Any) -> bool:
    try:
        methods.parse_server_result(method, version, result)
    except (ValidationError, KeyError, ValueError, TypeError, AttributeError):
        return False
    return True


_WIDER: Final = {
    "readOnlyHint": True,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}
"""The value of each hint that lets a tool run with fewer questions."""


def _hints_are_not_wider(done: Session) -> list[str]:
    sent: dict[str, list[Any]] = {}
    for method, message in done.sent:
        tools = at(message, ["result", "tools"])
        if method == "tools/list" and isinstance(tools, list):
            for tool in cast("list[Any]", tools):
                if isinstance(at(tool, ["name"]), str):
                    sent.setdefault(tool["name"], []).append(at(tool, ["annotations"]))

    wrong: list[str] = []
    for name, hints in done.listed.items():
        for hint, wider in _WIDER.items():
            if hints.get(hint) is wider and not any(
                at(one, [hint]) is wider for one in sent.get(name, [])
            ):
                wrong.append(f"{hint} of {name} is {wider}, which the server never said")

    return wrong


def _names_are_theirs(done: Session) -> list[str]:
    names = {
        at(tool, ["name"])
        for method, message in done.sent
        if method == "tools/list" and isinstance(at(message, ["result", "tools"]), list)
        for tool in message["result"]["tools"]
        if isinstance(at(tool, ["name"]), str)
    }
    wrong = [
        f"tool {name!r} is listed, which the server has not"
        for name in done.listed
        if name not in names
    ]
    for message in done.received:
        if message.get("method") == "tools/call" and message["params"].get("name") not in CALLS:
            wrong.append(
                f"tool {message['params'].get('name')!r} is called, which nobody asked for"
            )
    return wrong


def _failures_stay(done: Session) -> list[str]:
    """What the module calls a failure is none of the values."""
    wrong: list[str] = []
    for name, messages in answers(done).items():
        if name in done.values and all(_is_failure(message) for message in messages):
            wrong.append(f"the failure of {name} became the value {str(done.values[name])[:200]!r}")
    return wrong


def _is_failure(message: Message) -> bool:
    """True if an answer says that the call failed. A text in `isError` is one,
    unless it says no.
    """
    said = at(message, ["result", "isError"])
    if isinstance(said, str):
        return said not in ("", "false", "null", "\ufeff")
    return said is True or ("result" not in message and message.get("error") is not None)


def answers(done: Session) -> dict[str, list[Message]]:
    """All that was answered with the id of each call, by the name of its tool."""
    calls = {
        json.dumps(message.get("id")): message["params"].get("name")
        for message in done.received
        if message.get("method") == "tools/call"
    }
    found: dict[str, list[Message]] = {}
    for method, message in done.sent:
        name = calls.get(json.dumps(message.get("id")))
        if method == "tools/call" and name is not None:
            found.setdefault(name, []).append(message)

    return found


_TAGS: Final = {"text", "image", "audio", "resource", "resource_link", "user", "assistant"}


def _values_are_theirs(done: Session) -> list[str]:
    """Every text and number of a value was sent by the module, in the answer to the call."""
    wrong: list[str] = []
    for name, messages in answers(done).items():
        if name not in done.values:
            continue

        results = [message.get("result") for message in messages]
        written = json.dumps(results, ensure_ascii=False)
        numbers = [leaf for leaf in leaves(results) if isinstance(leaf, int | float)]
        joined = _packed("\n".join([written, *(str(leaf) for leaf in leaves(results))]))
        for leaf in leaves(done.values[name]):
            if leaf is None or leaf in _TAGS or isinstance(leaf, dict | list):
                continue
            if not isinstance(leaf, str) and any(
                leaf == number for number in numbers if leaf is not True
            ):
                continue

            if isinstance(leaf, float) and f"{leaf:g}" in leaves(results):
                # The SDK reads some numbers, such as a priority, even if they were sent as text.
                continue
            if isinstance(leaf, str) and leaf.startswith(("image/", "audio/")) and done.notes:
                # The first bytes of the data say what it is, and the note says that nothing else
                # did.
                continue

            if any(_packed(part) not in joined for part in str(leaf).split("\n")):
                wrong.append(
                    f"the value of {name} has {str(leaf)[:200]!r}, which the server did not send"
                )

    return wrong


def _packed(text: str) -> str:
    """A text without spaces, because JSON in a text is written anew."""
    return text.replace(" ", "")
