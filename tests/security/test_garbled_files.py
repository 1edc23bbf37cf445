"""Generated mutations of ideabridge.json: no traceback, no neighbour lost, nothing loosened."""

from __future__ import annotations

import copy
import json
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge.configuration import Configuration, ConfigurationError, load_configuration
from ideabridge.bridge.loop.policy import approval_timeout, only_persons, policy_named
from ideabridge.bridge.modules.listing import is_allowed
from ideabridge.bridge.modules.settings import DEFAULT_SENDS, ModuleConfiguration
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Annotations, Tool

Place = tuple[int | str, ...]

SECRET = "sk-ant-REDACTED"
BASE: JSONObject = {
    "mcpServers": {
        "git": {
            "command": "uvx",
            "args": ["mcp-server-git", "--repository", "."],
            "env": {"GIT_TOKEN": SECRET, "PAGER": "cat"},
            "deny": ["delete_*", "push"],
            "record": False,
            "timeout": 30,
        },
        "files": {
            "command": "npx",
            "args": ["-y", "files", "/data"],
            "allow": ["read_*", "list_*"],
            "read_only": ["read_*"],
            "parallel": 1,
            "tools": {"list_x": {"description": "Lists.", "read_only": False}},
        },
        "web": {
            "type": "http",
            "url": "https://web.example/mcp",
            "headers": {"Authorization": f"Bearer {SECRET}"},
            "deny": ["drop_*"],
            "retry": {"post_*": 1},
            "sharing": "session",
        },
        "bank": {
            "url": "https://bank.example/mcp",
            "auth": {"issuer": "https://login.example", "client_id": "me", "scope": "read"},
        },
        "off": {"command": "never", "disabled": True},
    },
    "approval": {
        "default": "read_only",
        "by": "person",
        "timeout_seconds": 600,
        "rules": [
            {"module": "git", "tool": "commit", "then": "ask"},
            {"module": "web", "tool": "post_*", "then": "deny", "why": "nothing is posted"},
            {"module": "web", "read_only": True, "then": "ask"},
            {"module": "files", "destructive": False, "then": "allow"},
            {"tool": "log", "then": "allow"},
        ],
    },
    "limits": {"calls": 100, "wall_seconds": 60},
    "users": {"share": "admins"},
    "expose": ["modules"],
    "listed_ideas": 5,
    "sampling": {"max_tokens": 1000, "models": ["small"]},
    "theme": "unknown",
}
RESTRICTING = (
    "approval",
    "allow",
    "deny",
    "auth",
    "read_only",
    "disabled",
    "parallel",
    "retry",
    "record",
    "sharing",
)
"""The keys below which nothing may be loosened, whatever is garbled there."""

PATTERNS = ("post_*",)
"""The keys that are patterns of tool names."""

TOOLS = (
    "delete_repo",
    "drop_all",
    "push",
    "commit",
    "read_file",
    "write_file",
    "post_note",
    "log",
    "list_x",
)
ANNOTATIONS = (Annotations(), Annotations(read_only=True), Annotations(destructive=False))


AGAIN = "\0again"
"""The suffix of a key that stands in the text a second time."""


def text_of(value: JSON) -> str:
    """JSON text, in which a key can occur twice."""
    if isinstance(value, dict):
        members = [
            f"{json.dumps(key.removesuffix(AGAIN))}: {text_of(member)}"
            for key, member in value.items()
        ]
        return f"{{{', '.join(members)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(text_of, value))}]"
    return json.dumps(value)


def places_in(value: JSON, place: Place = ()) -> list[Place]:
    """The places of all values below a value."""
    members: list[tuple[int | str, JSON]] = []
    if isinstance(value, dict):
        members = list(value.items())
    elif isinstance(value, list):
        members = list(enumerate(value))
    places: list[Place] = []
    for key, member in members:
        places += [(*place, key), *places_in(member, (*place, key))]
    return places


ALL_PLACES = places_in(BASE)


def typo(key: str, kind: str, at: int) -> str:
    at %= len(key)
    match kind:
        case "drop":
            return key[:at] + key[at + 1 :] or "x"
        case "double":
            return key[:at] + key[at] + key[at:]
        case "replace":
            return f"{key[:at]}x{key[at + 1 :]}"
        case "swap":
            return key[:at] + key[at : at + 2][::-1] + key[at + 2 :]
        case "upper":
            return key.upper()
        case "hidden":
            return f"{key[:at]}\u200b{key[at:]}"
        case "camel":
            return "".join(part.capitalize() for part in key.split("_"))
        case _:
            return {"plural": f"{key}s", "comment": f"_{key}", "space": f" {key} "}[kind]


TYPOS = (
    *("drop", "double", "replace", "swap", "upper"),
    *("hidden", "camel", "plural", "comment", "space"),
)
CHANGES = ("null", "text", "number", "true", "wrap", "object", "empty", "join")


def changed(value: JSON, kind: str) -> JSON:
    """The value in another type, or the same where this makes it another valid value."""
    match kind:
        case "null":
            return None
        case "text":
            return value if isinstance(value, str) else json.dumps(value)
        case "number":
            return value if isinstance(value, int | float) else 7
        case "true":
            return value if isinstance(value, bool) else True
        case "wrap":
            return [value]
        case "object":
            return {"0": value}
        case "join":
            return ", ".join(map(str, value)) if isinstance(value, list) else value
        case _:
            return "" if not isinstance(value, str) else []


@st.composite
def garbled(draw: st.DrawFn, below: list[Place]) -> str:
    """The text of the file after one to three mutations at some of the places."""
    document = copy.deepcopy(BASE)
    for place in draw(st.lists(st.sampled_from(below), min_size=1, max_size=3, unique=True)):
        holder: JSON = document
        for part in place[:-1]:
            inner = cast("dict[int | str, JSON]", holder) if isinstance(holder, dict | list) else {}
            try:
                holder = inner[part]
            except (KeyError, IndexError, TypeError):
                holder = None

        key = place[-1]
        if isinstance(holder, list) and isinstance(key, int) and key < len(holder):
            holder[key] = changed(holder[key], draw(st.sampled_from(CHANGES)))
        elif isinstance(holder, dict) and isinstance(key, str) and key in holder:
            mutate(draw, holder, key)

    return text_of(document)


def mutate(draw: st.DrawFn, holder: JSONObject, key: str) -> None:
    # A pattern is the user's own text, so nothing shows whether it is wrong or intended.
    typos = () if key in PATTERNS else TYPOS
    kind = draw(st.sampled_from((*CHANGES, *typos, "again", "twice", "added")))
    value = holder[key]
    if kind == "again":
        holder[key + AGAIN] = changed(value, draw(st.sampled_from(CHANGES)))
    elif kind == "twice":
        holder[key + AGAIN] = value
    elif kind == "added":
        holder["surprise"] = value
    elif kind in CHANGES:
        holder[key] = changed(value, kind)
    else:
        wrong = typo(key, kind, draw(st.integers(0, 30)))
        del holder[key]
        holder[wrong] = value


def loaded(text: str) -> Configuration | None:
    """The configuration in a text, or None if it is refused. No message contains the secret."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ideabridge.json"
        file.write_text(text, encoding="utf-8")
        configuration: Configuration | None = None
        try:
            configuration = load_configuration(file, project=folder)
            lines = configuration.warnings
        except ConfigurationError as error:
            lines = error.problems

    assert configuration is not None or lines
    assert SECRET[:12] not in "\n".join(lines)
    assert all(len(line) < 1000 for line in lines)
    return configuration


LEVELS = {"allow": 0, "ask": 1, "deny": 2}


def strictness(configuration: Configuration) -> list[int]:
    """What happens to each call of some tools: it runs, asks, or is denied."""
    policy = policy_named(configuration.approval_setting)
    levels: list[int] = []
    for server in (*cast("JSONObject", BASE["mcpServers"]), None):
        for name in TOOLS:
            for hints in ANNOTATIONS:
                entry = configuration.modules.get(server or "")
                is_there = server is None or (
                    entry is not None
                    and not entry.disabled
                    and server not in configuration.unusable
                    and is_allowed(server, name, entry)
                )
                tool = Tool(name, module=server, annotations=hints)
                verdict = policy(tool, {}).verdict if is_there else "deny"
                levels.append(LEVELS[verdict])

    return levels


def sends(entry: ModuleConfiguration, tool: str) -> int:
    """How many times a call of a tool that may run again is sent."""
    numbers = (number for pattern, number in entry.retry.items() if fnmatchcase(tool, pattern))
    return next(numbers, DEFAULT_SENDS)


def loaded_base() -> Configuration:
    configuration = loaded(text_of(BASE))
    assert configuration is not None
    assert configuration.unusable == {}
    [line] = configuration.warnings
    assert line.endswith("ideabridge.json: theme: unknown key. It is ignored.")
    return configuration


BEFORE = loaded_base()


def check_nothing_is_looser(text: str) -> None:
    after = loaded(text)
    if after is None:
        return

    pairs = zip(strictness(BEFORE), strictness(after), strict=True)
    assert all(now >= before for before, now in pairs)
    assert only_persons(after.approval_setting)
    timeout = approval_timeout(after.approval_setting)
    assert timeout is not None
    assert timeout <= 600
    for name, before in BEFORE.modules.items():
        entry = after.modules.get(name)
        if entry is None or entry.disabled or name in after.unusable:
            continue

        assert entry.parallel <= before.parallel
        assert entry.record <= before.record
        assert entry.sharing == before.sharing
        assert entry.auth == before.auth
        assert all(sends(entry, tool) <= sends(before, tool) for tool in TOOLS)
        for tool, settings_before in before.tools.items():
            assert entry.tools[tool].read_only == settings_before.read_only


def check_no_neighbour_is_lost(text: str, server: str | None) -> None:
    """Check that all servers but one are as before."""
    after = loaded(text)
    assert after is not None
    for name, entry in BEFORE.modules.items():
        if name != server:
            assert after.modules[name] == entry
            assert name not in after.unusable

    assert after.approval == BEFORE.approval
    assert after.limits == BEFORE.limits


RESTRICTED = [place for place in ALL_PLACES if set(place) & set(RESTRICTING)]
SERVERS = list(cast("JSONObject", BASE["mcpServers"]))
SERVER_PLACES = {
    name: [place for place in ALL_PLACES if place[:2] == ("mcpServers", name)] for name in SERVERS
}
LENIENT = [
    place for place in ALL_PLACES if place[0] in ("expose", "listed_ideas", "sampling", "theme")
]


@given(garbled(RESTRICTED))
@settings(max_examples=100, deadline=None)
def test_what_restricts_is_never_loosened(text: str) -> None:
    check_nothing_is_looser(text)


@pytest.mark.parametrize("server", SERVERS)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_a_garbled_entry_takes_no_neighbour_along(server: str, data: st.DataObject) -> None:
    check_no_neighbour_is_lost(data.draw(garbled(SERVER_PLACES[server])), server)


@given(garbled(LENIENT))
@settings(max_examples=10, deadline=None)
def test_garbled_preferences_take_no_server_along(text: str) -> None:
    check_no_neighbour_is_lost(text, None)


@st.composite
def cut(draw: st.DrawFn) -> str:
    """A text of the file that is cut, or in which one character is another."""
    text = draw(garbled(ALL_PLACES))
    at = draw(st.integers(0, len(text) - 1))
    character = draw(st.sampled_from(("", '"', "{", "]", ",", ":", "\\", "\u202e", "0")))
    return draw(st.sampled_from((text[:at], text[:at] + character + text[at + 1 :])))


@given(cut())
@settings(max_examples=30, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    loaded(text)


@pytest.mark.long
@given(data=st.data())
@settings(max_examples=1000, deadline=None)
def test_many_mutations(data: st.DataObject) -> None:
    check_nothing_is_looser(data.draw(garbled(RESTRICTED)))
    server = data.draw(st.sampled_from(SERVERS))
    check_no_neighbour_is_lost(data.draw(garbled(SERVER_PLACES[server])), server)
    loaded(data.draw(cut()))
