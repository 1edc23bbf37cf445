"""Editing JSON in its own bytes: hosts' files as people and programs leave them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ideabridge.server.hosts.editing.host_text import HostText, read_host_text
from ideabridge.server.hosts.host import HostFileError
from ideabridge.tools.documents import blank_comments

ENTRY: Any = {"command": "ideabridge", "args": ["serve", "--project", "."]}
KEYS = ("mcpServers",)


def read(folder: Path, text: str | bytes) -> HostText:
    path = folder / "mcp.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_host_text(path)


# -- generated documents ---------------------------------------------------------------------------

GAPS = (
    "",
    "",
    "",
    " ",
    "\n",
    "\n  ",
    "\n\t\t",
    "\r\n    ",
    " /* a, } */ ",
    ' // "{,\n',
    "/**/\n  ",
)
NUMBERS = ("0", "-0", "1.50", "1E5", "12345678901234567890123", "0.1e-7")
WORDS = ('"a"', '"\\u00e9"', '"\\ud83d"', '"//x"', '"/*,}"', '"a\\"b"', '"žluť"', "null", "true")


@st.composite
def values(draw: st.DrawFn, depth: int = 0) -> str:
    kinds = ["number", "word"] if depth > 2 else ["number", "word", "list", "object", "object"]
    match draw(st.sampled_from(kinds)):
        case "number":
            return draw(st.sampled_from(NUMBERS))
        case "word":
            return draw(st.sampled_from(WORDS))
        case "list":
            items = draw(st.lists(values(depth + 1), max_size=3))
            return draw(bracketed("[", items, "]"))
        case _:
            return draw(objects(depth + 1))


@st.composite
def objects(draw: st.DrawFn, depth: int = 0, names: tuple[str, ...] = ()) -> str:
    keys = [*draw(st.lists(st.sampled_from(WORDS[:7]), max_size=3)), *names]
    gap = st.sampled_from(GAPS)
    members: list[str] = []
    for key in draw(st.permutations(keys)):
        if key in names:
            value = draw(objects(depth + 1) | st.just("null"))
        else:
            value = draw(values(depth + 1))
        members.append(f"{key}{draw(gap)}:{draw(gap)}{value}")
    return draw(bracketed("{", members, "}"))


@st.composite
def bracketed(draw: st.DrawFn, opening: str, items: list[str], closing: str) -> str:
    gap = st.sampled_from(GAPS)
    inside = ",".join(f"{draw(gap)}{item}{draw(gap)}" for item in items) or draw(gap)
    last = f",{draw(gap)}" if items and draw(st.booleans()) else ""
    return f"{opening}{inside}{last}{closing}"


@st.composite
def documents(draw: st.DrawFn) -> str:
    names: tuple[str, ...] = draw(st.sampled_from([(), ('"mcpServers"',)]))
    ends = st.sampled_from(("", "\n", "\r\n", " // end\n", "/* end */"))
    return f"{draw(ends)}{draw(objects(0, names))}{draw(ends)}"


def tokens(text: str) -> list[str]:
    """Everything of a text but blanks, in order."""
    return re.findall(r'"(?:\\.|[^"\\])*"|//[^\r\n]*|/\*.*?\*/|[^\s]', text, re.DOTALL)


def is_subsequence(some: list[str], everything: list[str]) -> bool:
    rest = iter(everything)
    return all(token in rest for token in some)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
@example("{}")
@example('{"mcpServers": {"a": 1 // b\n}}')
@example('{"mcpServers": {"a": 1, // b\n}}')
def test_an_entry_is_added_and_removed_without_a_trace(text: str) -> None:
    before = HostText(Path("x"), "jsonc", text.encode(), text, load(text))
    missing = before.missing_parents(KEYS)
    after = before.with_entry(KEYS, "ideabridge", ENTRY)

    servers = before.content.get("mcpServers")
    kept: dict[str, Any] = servers if isinstance(servers, dict) else {}
    assert load(after.text) == {**before.content, "mcpServers": {**kept, "ideabridge": ENTRY}}
    assert list(load(after.text)["mcpServers"]) == [*kept, "ideabridge"]
    if servers is not None or "mcpServers" not in before.content:
        assert is_subsequence(tokens(text), tokens(after.text))
        removed = after.without_entry(KEYS, "ideabridge", parents=missing)
        # An object that contains only line breaks becomes `{}`.
        assert re.sub(r"\{\s*\n\s*\}", "{}", removed.text) == re.sub(r"\{\s*\n\s*\}", "{}", text)


@given(documents())
def test_an_entry_is_replaced_in_its_place(text: str) -> None:
    first = HostText(Path("x"), "jsonc", text.encode(), text, load(text)).with_entry(
        KEYS, "ideabridge", ENTRY
    )
    other = first.with_entry(KEYS, "ideabridge", {"command": "other"})
    assert load(other.text)["mcpServers"]["ideabridge"] == {"command": "other"}
    removed = first.without_entry(KEYS, "ideabridge")
    assert other.without_entry(KEYS, "ideabridge").text == removed.text


def load(text: str) -> Any:
    return json.loads(blank_comments(text))


# -- the form of what is written -------------------------------------------------------------------


def added(folder: Path, text: str | bytes, keys: tuple[str, ...] = KEYS, **how: Any) -> str:
    return read(folder, text).with_entry(keys, "x", {"command": "c"}, **how).data.decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", '{\n  "mcpServers": {\n    "x": {\n      "command": "c"\n    }\n  }\n}\n'),
        ("{}", '{\n  "mcpServers": {\n    "x": {\n      "command": "c"\n    }\n  }\n}'),
        ('{"mcpServers":{}}', '{"mcpServers":{"x":{"command":"c"}}}'),
        (
            '{"mcpServers": {"a": {"url": "u"}}}',
            '{"mcpServers": {"a": {"url": "u"}, "x": {"command": "c"}}}',
        ),
        (
            '{\n\t"mcpServers": {\n\t\t"a": 1, // one\n\t}\n}\n',
            (
                '{\n\t"mcpServers": {\n\t\t"a": 1, // one\n\t\t"x": {\n\t\t\t"command": "c"\n\t\t},'
                "\n\t}\n}\n"
            ),
        ),
        (
            '{\n  "mcpServers": {\n    "a": 1 // one\n    // two\n  }\n}\n',
            (
                '{\n  "mcpServers": {\n    "a": 1, // one\n    "x": {\n'
                '      "command": "c"\n    }\n'
                "    // two\n  }\n}\n"
            ),
        ),
        (
            '\ufeff{\r\n    "mcpServers": {}\r\n}',
            (
                '\ufeff{\r\n    "mcpServers": {\r\n        "x": {\r\n            "command": "c"\r\n'
                "        }\r\n    }\r\n}"
            ),
        ),
        (
            '{\n  "mcpServers": null, "n": 1.50\n}',
            '{\n  "mcpServers": {\n    "x": {\n      "command": "c"\n    }\n  }, "n": 1.50\n}',
        ),
        (
            '{"mcpServers": [{"name": "a"}]}',
            '{"mcpServers": [{"name": "a"}, {"name": "x", "command": "c"}]}',
        ),
        (
            "// only a comment\n",
            (
                '// only a comment\n{\n  "mcpServers": {\n    "x": {\n      "command": "c"\n    }\n'
                "  }\n}\n"
            ),
        ),
    ],
)
def test_the_form_of_an_entry(text: str, expected: str, tmp_path: Path) -> None:
    assert added(tmp_path, text) == expected


def test_missing_parents_are_added_and_removed(tmp_path: Path) -> None:
    text = '{\n  "projects": {\n    "/a": {}\n  }\n}\n'
    keys = ("projects", "/b", "mcpServers")
    before = read(tmp_path, text)
    after = before.with_entry(keys, "x", ENTRY)
    assert json.loads(after.text)["projects"] == {"/a": {}, "/b": {"mcpServers": {"x": ENTRY}}}
    assert after.without_entry(keys, "x", parents=before.missing_parents(keys)).text == text
    assert after.without_entry(keys, "x").content["projects"] == {
        "/a": {},
        "/b": {"mcpServers": {}},
    }


def test_every_member_of_the_name_is_removed(tmp_path: Path) -> None:
    text = '{"mcpServers": {"x": 1, "a": 2, "x": 3}, "n": 1, "n": 2}'
    removed = read(tmp_path, text).without_entry(KEYS, "x")
    assert removed.text == '{"mcpServers": {"a": 2}, "n": 1, "n": 2}'


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('{"mcpServers": "no"}', KEYS),
        ('{"mcpServers": 5}', KEYS),
        ('{"projects": []}', ("projects", "p", "mcpServers")),
    ],
)
def test_what_is_no_object_is_left_alone(text: str, keys: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(HostFileError, match="expected an object"):
        added(tmp_path, text, keys)


def test_odd_entries_are_written_as_json(tmp_path: Path) -> None:
    entry: Any = {"half": "\ud83d", "text": "žluť", "quote": '"\\\n', "n": None, "l": [], "o": {}}
    after = read(tmp_path, "{}").with_entry(KEYS, 'a "b"\n', entry)
    assert json.loads(after.data)["mcpServers"] == {'a "b"\n': entry}


def test_a_deep_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostFileError, match="is nested too deeply"):
        read(tmp_path, '{"a": ' + "[" * 200_000 + "]" * 200_000 + "}")
