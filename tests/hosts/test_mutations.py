"""No file of a host stops an import, and no bad entry takes its neighbours along: generated
mutations of the samples. `make test` tries some of them, `make test-long` many.
"""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ideabridge.server.hosts.adopt import Adoption
from ideabridge.server.hosts.block import paste_block
from ideabridge.server.hosts.host import HostFile
from ideabridge.server.hosts.table import Host, find_host
from ideabridge.tools.encoding import JSON, JSONObject

from .reading import SAMPLES, Machine, host_of, machine, platform_of, sample_of, shown

KEYS: Final = [
    *("command", "args", "env", "url", "headers", "cwd", "type", "timeout", "disabled", "enabled"),
    *("cmd", "envs", "uri", "httpUrl", "serverUrl", "environment", "transport", "transportType"),
    *("alwaysAllow", "autoApprove", "trust", "tools", "disabledTools", "includeTools", "oauth"),
    *("auth", "scopes", "envFile", "env_vars", "bearer_token_env_var", "requestOptions", "config"),
    *("settings", "source", "uses", "__proto__", "", "é\u2028", "x" * 300),
]
VALUES: Final[list[JSON]] = [
    *(None, True, False, 0, -1, 10**30, 1e308, "", " ", "x", "${X}", "${input:x}", "${", "$(x)"),
    *("{env:X}", "a b", "\n", "\x7f", "z" * 5000, "${a:${b}}", "C:\\x y\\z", "/dev/zero"),
    *([], [None], ["a", 1, None], [[]], [{"name": "a"}], {}, {"a": None}, {"a": {"b": []}}),
    *({"type": "http", "url": "https://e.example"}, {"path": "x"}, {"headers": {"a": "b"}}),
]
JUNK: Final = [*'{}[]",:\\#\n\t\0é=-&*', "/*", "//", "<<: *x", "!!python/x "]
MALFORMED: Final = {
    "json": ["nope", "[1 2]", '{"a": }', '{"a" "b"}', "tru", "1.2.3", "{,}", "'x'"],
    "toml": ["command = ", "command = [1", "x y z", "= 5", 'command = "abc', "a = 1\na = 2"],
    "yaml": ["cmd: [1", "cmd: *nope", 'cmd: "abc', "- x\n      y: z", "a: 1\n      a: 2"],
}
"""What no parser reads as the value of a server."""


@dataclass(frozen=True)
class Sample:
    """A sample, and where its host has it."""

    host: Host
    path: str
    data: bytes


@cache
def samples() -> list[Sample]:
    """All samples."""
    return [
        Sample(
            host_of(file.parent.name),
            json.loads(file.read_text(encoding="utf-8"))["path"],
            sample_of(file).read_bytes(),
        )
        for file in sorted(SAMPLES.glob("*/*.expected.json"))
    ]


@cache
def entries() -> list[JSONObject]:
    """The entries of the servers in all samples of JSON."""
    found: list[JSONObject] = []
    for file in SAMPLES.glob("*/*.json"):
        if ".expected." in file.name or ".beside." in file.name:
            continue
        try:
            content = json.loads(file.read_text(encoding="utf-8-sig"))
        except ValueError:
            continue

        if isinstance(content, list):
            continue
        place = HostFile(file, "user", ("mcpServers",)).located(content)
        servers = place.servers(content)
        found += [entry for entry in servers.values() if isinstance(entry, dict) and entry]

    return found


@pytest.fixture(scope="module")
def computer(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return machine(tmp_path_factory.mktemp("computer"))


def read(computer: Machine, host: Host, path: str, data: bytes) -> dict[str, Any]:
    """What the import says of each server in a file."""
    written = computer.put(path, data)
    try:
        adoptions: list[Adoption] = computer.find(host, platform_of(path)).adoptions
    finally:
        written.unlink()

    return {adoption.name: shown(adoption) for adoption in adoptions}


# -- files of which we know where each server is ---------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """A file in which each server has lines of its own."""

    host: Host
    path: str
    place: HostFile
    start: str
    blocks: tuple[str, ...]
    end: str
    names: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The key in `MALFORMED`."""
        return self.place.format if self.place.format in MALFORMED else "json"

    @property
    def text(self) -> str:
        return self.start + "".join(self.blocks) + self.end

    def end_of(self, number: int) -> int:
        """Where the text of a server ends."""
        return len(self.start) + sum(map(len, self.blocks[: number + 1]))

    def with_block(self, number: int, block: str) -> Layout:
        """The file with other lines for one server."""
        blocks = [*self.blocks]
        blocks[number] = block
        return replace(self, blocks=tuple(blocks))

    def read(self, computer: Machine) -> dict[str, Any]:
        """What the import says of each server."""
        return read(computer, self.host, self.path, self.text.encode())


PATHS: Final = {
    "codex": "~/.codex/config.toml",
    "goose": "~/.config/goose/config.yaml",
    "continue": "~/.continue/config.yaml",
    "cursor": "~/.cursor/mcp.json",
    "vscode": "{VSCODE_USER}/mcp.json",
}


def layout(chance: random.Random) -> Layout:
    """A file of some host, with servers of the samples."""
    host = find_host(chance.choice([*PATHS]))
    place = next(place for place in host.places if place.scope == "user")
    file = HostFile(SAMPLES, "user", place.keys, place.format, is_list=place.is_list)
    written = chance.sample(entries(), 4)
    names = tuple(f"server {number}" for number in range(len(written)))
    start, end = "# ours\n", ""
    if place.format == "yaml":
        start = f"{place.keys[0]}:\n"
    elif place.format != "toml":
        start, end = f"{{{json.dumps(place.keys[0])}: {{\n", "}}\n"

    blocks = tuple(block(file, name, entry) for name, entry in zip(names, written, strict=True))
    return Layout(host, PATHS[host.name], file, start, blocks, end, names)


def block(file: HostFile, name: str, entry: JSON) -> str:
    """The lines of one server."""
    members: JSON = entry
    if isinstance(entry, dict):
        members = {
            key: value for key, value in entry.items() if value is not None and key != "name"
        }

    if file.format == "toml":
        members = without_nulls(members)
        table: JSONObject = {"x": str(members)}
        if isinstance(members, dict):
            table = {**members}

        return paste_block(file, name, table) + "\n\n"
    if file.format == "yaml" and isinstance(members, dict):
        return paste_block(file, name, members).partition("\n")[2] + "\n"
    if file.format == "yaml":
        text = json.dumps(members)
        return f"  - {text}\n" if file.is_list else f"  {json.dumps(name)}: {text}\n"
    return f"{json.dumps(name)}: {json.dumps(members)},\n"


def without_nulls(value: JSON) -> JSON:
    """A value for TOML, which has no null."""
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return value


# -- mutations -------------------------------------------------------------------------------------


def mutated(entry: JSONObject, chance: random.Random) -> JSON:
    """An entry with keys added, taken away or renamed, and values of other types."""
    if chance.random() < 0.05:
        return value_of(chance)

    result = copy.deepcopy(entry)
    for _ in range(chance.randint(1, 4)):
        key = chance.choice([*result, *KEYS])
        inner = result.get(key)
        match chance.randint(0, 3):
            case 0:
                result.pop(key, None)
            case 1:
                result[chance.choice(KEYS)] = result.pop(key, None)
            case 2 if isinstance(inner, dict) and inner:
                inner[chance.choice([*inner])] = value_of(chance)
            case 2 if isinstance(inner, list) and inner:
                inner[0] = value_of(chance)
            case _:
                result[key] = value_of(chance)

    return result


def value_of(chance: random.Random) -> JSON:
    return copy.deepcopy(chance.choice(VALUES))


def try_entries(computer: Machine, chance: random.Random) -> None:
    """Mutate one entry. The others are read as before."""
    whole = layout(chance)
    before = whole.read(computer)
    number = chance.randrange(len(whole.blocks))
    name = whole.names[number]
    changed = mutated(chance.choice(entries()), chance)
    after = whole.with_block(number, block(whole.place, name, changed)).read(computer)
    for other in whole.names:
        assert other == name or after[other] == before[other], changed


def try_texts(computer: Machine, chance: random.Random) -> None:
    """Change characters of a sample, and perhaps cut it. Whatever it says then, the import ends."""
    sample = chance.choice(samples())
    text = sample.data.decode("utf-8-sig", errors="replace")
    for _ in range(chance.randint(1, 5)):
        start = chance.randint(0, len(text))
        end = start + chance.choice([0, 0, 1, 1, 5, 50, len(text)])
        text = text[:start] + chance.choice(["", *JUNK]) + text[end:]

    data = text.encode(chance.choice(["utf-8", "utf-8-sig", "utf-16"]))
    end = chance.choice([len(data), chance.randint(0, len(data))])
    read(computer, sample.host, sample.path, data[:end])


def try_cuts(computer: Machine, chance: random.Random) -> None:
    """Cut a file. What is whole before the cut is read as before. In JSON, nothing else is read as
    if it were whole; a table of TOML or YAML does not say where it ends.
    """
    whole = layout(chance)
    before = whole.read(computer)
    cut = chance.randint(0, len(whole.text))
    after = read(computer, whole.host, whole.path, whole.text[:cut].encode())
    for number, name in enumerate(whole.names):
        is_usable = name in after and after[name][0] != "unusable"
        if whole.end_of(number) <= cut or (whole.kind == "json" and is_usable):
            assert after[name] == before[name]


def try_malformed(computer: Machine, chance: random.Random) -> None:
    """Replace one server by what is malformed. The others are read as before."""
    whole = layout(chance)
    before = whole.read(computer)
    number = chance.randrange(len(whole.blocks))
    name = whole.names[number]
    bad = chance.choice(MALFORMED[whole.kind])
    first = whole.blocks[number].partition("\n")[0]
    if whole.kind == "json":
        lines = f"{json.dumps(name)}: {bad},\n"
    elif whole.kind == "toml":
        lines = f"{first}\n{bad}\n\n"
    else:
        lines = f"{first}\n      {bad}\n"

    after = whole.with_block(number, lines).read(computer)
    for other in whole.names:
        assert other == name or after[other] == before[other], lines

    assert after[name][0] == "unusable"


TRIALS: Final[dict[str, Callable[[Machine, random.Random], None]]] = {
    "entries": try_entries,
    "texts": try_texts,
    "cuts": try_cuts,
    "malformed": try_malformed,
}


def try_many(computer: Machine, kind: str, examples: int) -> None:
    # Turn shrinking off, because a smaller seed is not a smaller mutation.
    @settings(
        max_examples=examples,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(st.integers(0, 2**32 - 1))
    def trial(seed: int) -> None:
        TRIALS[kind](computer, random.Random(seed))

    trial()


@pytest.mark.parametrize("kind", TRIALS)
def test_mutations_take_nothing_along(kind: str, computer: Machine) -> None:
    try_many(computer, kind, 25)


@pytest.mark.long
@pytest.mark.parametrize("kind", TRIALS)
def test_many_mutations_take_nothing_along(kind: str, computer: Machine) -> None:
    try_many(computer, kind, 250)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cursor", '{"a":' * 200_000),
        ("cursor", '{"mcpServers": {' + '"a": {"b": [1 2]},' * 50_000),
        ("cursor", "[" * 999_999),
        ("codex", "[a.b.c.d.e.f]\nx=\n" * 50_000),
        ("goose", "a: [1\n" * 20_000),
        ("goose", "extensions:\n" + "  b: [1\n" * 20_000),
        ("continue", "mcpServers:\n" + "- a: [1\n" * 20_000),
    ],
    ids=lambda text: text[:20],
)
def test_a_file_with_many_broken_parts_is_read_in_time(
    name: str, text: str, computer: Machine
) -> None:
    started = time.process_time()
    read(computer, find_host(name), PATHS[name], text.encode())
    assert time.process_time() - started < 10
