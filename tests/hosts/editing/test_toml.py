"""Editing TOML in its own bytes: configurations of Codex as people and programs leave them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from ideabridge.server.hosts.editing.host_text import HostText, read_host_text
from ideabridge.server.hosts.host import HostFileError
from ideabridge.server.hosts.salvage import plain_toml

ENTRY: Any = {"command": "ideabridge", "args": ["serve"], "env": {"A": 'b"\\'}}
KEYS = ("mcp_servers",)


def text_of(text: str) -> HostText:
    return HostText(Path("config.toml"), "toml", text.encode(), text, plain_toml(text))


# -- generated documents ---------------------------------------------------------------------------

VALUES = (
    "1_000",
    "0x1F",
    "1e5",
    "1979-05-27T07:32:00Z",
    "true",
    '"# no comment ] ="',
    "'[x]\\'",
    '"""\n[mcp_servers.ideabridge]\n""\\""""',
    "'''\n[x]\n'''''",
    '[ "a", # one\n  "b", ]',
    "[]",
    "{ a.b = 1, 'c d' = [ {} ] }",
)
GAPS = ("", "", "\n", "  # c\n", "# [mcp_servers.x]\n", "\n\n# about what follows\n")
ENDS = ("\n", "\n", " # c\n", "  \n", "\r\n")
SERVERS = ("a", "'b.c'", '"ž"')


@st.composite
def pairs(draw: st.DrawFn, names: list[str]) -> str:
    lines: list[str] = []
    for name in names:
        equals = draw(st.sampled_from(("=", " = ", "\t=  ")))
        value = draw(st.sampled_from(VALUES))
        lines.append(
            f"{draw(st.sampled_from(GAPS))}{draw(st.sampled_from(('', '  ')))}{name}{equals}{value}"
            f"{draw(st.sampled_from(ENDS))}"
        )
    return "".join(lines)


@st.composite
def documents(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(("none", "tables", "header", "dotted", "inline", "below")))
    servers = draw(st.lists(st.sampled_from(SERVERS), unique=True, max_size=3))
    parts = [draw(pairs(draw(st.lists(st.sampled_from(("m", "n.o", '"p q"')), unique=True))))]
    sections = [f"[{name}]" for name in draw(st.permutations(("tools", "x.y")))]
    sections += ["[[list]]"] * draw(st.integers(0, 2))
    match kind:
        case "tables":
            sections += [f"[mcp_servers.{name}]" for name in servers]
            sections += [f"[ mcp_servers . {name} . env ] # c" for name in servers[:1]]
        case "header" | "below":
            sections.append("[mcp_servers]")
        case "dotted":
            parts += [f"mcp_servers.{name}.command = 'x'\n" for name in servers]
        case "inline":
            members = ", ".join(f"{name} = {{ command = 'x' }}" for name in servers)
            gap = draw(st.sampled_from(("", " ")))
            parts.append(f"mcp_servers = {{{gap}{members}{gap}}}{draw(st.sampled_from(ENDS))}")
        case _:
            pass

    for section in draw(st.permutations(sections)):
        names: list[str] = draw(
            st.lists(st.sampled_from(("k", "l.m", "'n'")), unique=True, max_size=2)
        )
        if section == "[mcp_servers]":
            names = [f"{name}.command" for name in servers] if kind == "below" else []
        head = f"{draw(st.sampled_from(GAPS))}{section}{draw(st.sampled_from(ENDS))}"
        parts.append(head + draw(pairs(names)))

    text = "".join(parts) + draw(st.sampled_from(("", "# end", "\n\n")))
    return text.removesuffix("\n") if draw(st.booleans()) else text


def is_valid(text: str) -> bool:
    try:
        plain_toml(text)
    except ValueError:
        return False
    return True


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
@example("")
@example("a = 1")
@example("mcp_servers = {}")
def test_an_entry_is_added_and_removed_without_a_trace(text: str) -> None:
    add_and_remove(text)


@pytest.mark.long
@settings(deadline=None, max_examples=2000)
@given(documents())
def test_many_entries_are_added_and_removed_without_a_trace(text: str) -> None:
    add_and_remove(text)


def add_and_remove(text: str) -> None:
    assume(is_valid(text))
    before = text_of(text)
    after = before.with_entry(KEYS, "ideabridge", ENTRY)
    expected = {
        **before.content,
        "mcp_servers": {**before.entries(KEYS), "ideabridge": ENTRY},
    }
    assert plain_toml(after.text) == expected

    # The text that was added is in one piece.
    start = len(common(text, after.text))
    end = len(common(text[::-1], after.text[::-1]))
    assert start + end >= len(text)
    assert after.without_entry(KEYS, "ideabridge").text == text


def common(one: str, other: str) -> str:
    length = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        length += 1
    return one[:length]


@settings(deadline=None, max_examples=40)
@given(documents(), st.sampled_from(SERVERS))
def test_an_entry_is_replaced_and_removed(text: str, server: str) -> None:
    assume(is_valid(text))
    before = text_of(text)
    name = next(iter(tomllib.loads(f"{server}=0")))
    assume(name in before.entries(KEYS))
    other = before.with_entry(KEYS, name, {"url": "u"})
    assert other.entries(KEYS) == {**before.entries(KEYS), name: {"url": "u"}}
    again = other.with_entry(KEYS, name, {"url": "v"}).with_entry(KEYS, name, {"url": "u"})
    assert again.text == other.text

    removed = before.without_entry(KEYS, name)
    assert name not in removed.entries(KEYS)
    assert {key: value for key, value in removed.content.items() if key != "mcp_servers"} == {
        key: value for key, value in before.content.items() if key != "mcp_servers"
    }


# -- the form of what is written -------------------------------------------------------------------

FILE = """\
model = "x" # the model

[mcp_servers.a]
command = "a"
# args = []

# about tools
[tools]
web = true
"""


def test_a_table_comes_behind_its_siblings(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(FILE)
    after = read_host_text(path, "toml").with_entry(KEYS, "b c", {**ENTRY, "n": 1, "o": {}})
    assert after.text == FILE.replace(
        "# args = []\n",
        """\
# args = []

[mcp_servers."b c"]
command = "ideabridge"
args = ["serve"]
n = 1
o = {}

[mcp_servers."b c".env]
A = "b\\"\\\\"
""",
    )


def test_a_comment_above_the_next_table_stays() -> None:
    text = "[mcp_servers.a]\ncommand = 'a'\n\n# about tools\n[tools]\nweb = true\n"
    removed = text_of(text).without_entry(KEYS, "a")
    assert removed.text == "\n# about tools\n[tools]\nweb = true\n"


def test_every_part_of_an_entry_is_removed() -> None:
    text = (
        "mcp_servers.x.command = 'a' # c\n"
        "mcp_servers.x.args = [\n  'b', # ]\n]\n"
        "mcp_servers.y.command = 'b'\n"
        "[mcp_servers.x.env]\nA = '1'\n[other]\n[mcp_servers.x.tools.t]\nB = 2\n"
    )
    removed = text_of(text).without_entry(KEYS, "x")
    assert removed.text == "mcp_servers.y.command = 'b'\n[other]\n"
    replaced = text_of(text).with_entry(KEYS, "x", {"url": "u"})
    assert replaced.text == (
        "mcp_servers.y.command = 'b'\n[other]\n\n[mcp_servers.x]\nurl = \"u\"\n"
    )


def test_line_breaks_and_the_mark_stay() -> None:
    data = b"\xef\xbb\xbfa = 1\r\n"
    text = HostText(Path("x"), "toml", data, "a = 1\r\n", {"a": 1})
    after = text.with_entry(KEYS, "x", {"command": "c"})
    assert after.data == data + b'\r\n[mcp_servers.x]\r\ncommand = "c"\r\n'


@pytest.mark.parametrize(
    ("text", "entry", "message"),
    [
        ("mcp_servers = 5", ENTRY, "mcp_servers is 5; expected a table"),
        ("[[mcp_servers]]\n", ENTRY, "mcp_servers is a list; expected a table"),
        ("", {"a": None}, "null"),
        ("", {"a": "\ud83d"}, "surrogate"),
    ],
)
def test_what_cannot_be_written_is_refused(text: str, entry: Any, message: str) -> None:
    with pytest.raises(HostFileError, match=message):
        text_of(text).with_entry(KEYS, "x", entry)


def test_what_is_no_toml_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("a = 1\nb = \n")
    with pytest.raises(HostFileError, match=r"config\.toml is not TOML: .*line 2"):
        read_host_text(path, "toml")


def test_a_file_that_takes_long_to_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("# x\n" * 500_000)
    with pytest.raises(HostFileError, match="characters of TOML"):
        read_host_text(path, "toml")
