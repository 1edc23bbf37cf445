"""Editing YAML in its own bytes: configurations of goose and Continue as people leave them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from ideabridge.server.hosts.editing.host_text import HostText, read_host_text
from ideabridge.server.hosts.editing.yaml_text import parse_yaml
from ideabridge.server.hosts.host import HostFileError

ENTRY: Any = {"cmd": "ideabridge", "args": ["serve", "--x"], "envs": {"A": "no"}, "timeout": 300}
KEYS = ("extensions",)


def text_of(text: str) -> HostText:
    content = parse_yaml(text)
    assert isinstance(content, dict)
    return HostText(Path("config.yaml"), "yaml", text.encode(), text, content)


# -- generated documents ---------------------------------------------------------------------------

SCALARS = ("1", "1.50", "no", "'it''s'", '"a: # b"', "a # c", "", "~", "&x 5", "plain\n{i}  more")
BLOCKS = ("|\n{i}  a: b\n{i}  # no comment\n", "|-\n{i}  x\n\n", ">\n{i}  x\n{i}   y\n")
FLOWS = ("[]", "{{}}", "[a, 'b', {{c: 1}}]", '{{"k": 1, l: [x,\n{i}  y]}}', "[ # c\n{i}  1 ]")
GAPS = ("", "", "\n", "{i}# c - : x\n", "# at the margin\n", "\n\n")
ENDS = ("\n", "\n", " # c\n", "  \n", "\r\n")
NAMES = ("a", "'b c'", '"ž"', "d.e")


@st.composite
def mappings(draw: st.DrawFn, indent: str, names: Sequence[str]) -> str:
    lines: list[str] = []
    for name in names:
        gap = draw(st.sampled_from(GAPS)).format(i=indent)
        lines.append(f"{gap}{indent}{name}:{draw(values(indent))}")
    return "".join(lines)


@st.composite
def values(draw: st.DrawFn, indent: str) -> str:
    match draw(st.sampled_from(("scalar", "scalar", "block", "flow", "mapping", "list"))):
        case "block":
            return " " + draw(st.sampled_from(BLOCKS)).format(i=indent)
        case "flow":
            flow = draw(st.sampled_from(FLOWS)).format(i=indent)
            return f" {flow}{draw(st.sampled_from(ENDS))}"
        case "mapping" if len(indent) < 6:
            below = indent + draw(st.sampled_from(("  ", "    ")))
            return f"{draw(st.sampled_from(ENDS))}{draw(mappings(below, ['p', 'q']))}"
        case "list":
            return f"\n{indent}- x # c\n{indent}-\n{indent}- name: y\n{indent}  z: 1\n"
        case _:
            scalar = draw(st.sampled_from(SCALARS)).format(i=indent)
            return f" {scalar}{draw(st.sampled_from(ENDS))}"


@st.composite
def documents(draw: st.DrawFn, kinds: tuple[str, ...]) -> str:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    parts = [draw(mappings("", names[:1])), draw(mappings("", names[1:]))]
    indent = draw(st.sampled_from(("  ", "    ", " ")))
    servers = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=3))
    end = draw(st.sampled_from(ENDS))
    match draw(st.sampled_from(kinds)):
        case "block":
            block = draw(mappings(indent, servers))
            parts.insert(1, f"extensions:{end}{block}")
        case "flow":
            gap = draw(st.sampled_from(("", " ", "\n  ", " # c\n  ")))
            members = f",{gap or ' '}".join(f"{name}: {{cmd: x}}" for name in servers)
            last = draw(st.sampled_from(("", ",")))
            parts.insert(1, f"extensions: {{{gap}{members}{last}{gap}}}{end}")
        case "empty":
            parts.insert(1, f"extensions:{draw(st.sampled_from(('', ' {}')))}{end}")
        case "list":
            dash = draw(st.sampled_from(("", indent)))
            gap = draw(st.sampled_from(("", f"{dash}# - name: z\n")))
            parts.insert(
                1,
                f"extensions:{end}"
                + "".join(f"{gap}{dash}- name: {name}\n{dash}  cmd: x # c\n" for name in servers),
            )
        case _:
            pass

    start = draw(st.sampled_from(("", "# head\n", "---\n", "%YAML 1.2\n---\n")))
    text = start + "".join(parts) + draw(st.sampled_from(("", "# end\n", "\n\n")))
    return text.removesuffix("\n").removesuffix("\r") if draw(st.booleans()) else text


def is_valid(text: str) -> bool:
    try:
        return isinstance(parse_yaml(text), dict)
    except ValueError:
        return False


DOCUMENTS = documents(("none", "block", "flow", "empty", "list"))


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(DOCUMENTS)
@example("")
@example("# only a comment")
@example("a: 1")
def test_an_entry_is_added_and_removed_without_a_trace(text: str) -> None:
    add_and_remove(text)


@pytest.mark.long
@settings(deadline=None, max_examples=2000)
@given(DOCUMENTS)
def test_many_entries_are_added_and_removed_without_a_trace(text: str) -> None:
    add_and_remove(text)


def add_and_remove(text: str) -> None:
    assume(is_valid(text))
    # Exclude a block of text at the end that has no line break, because another line would change
    # it.
    assume(parse_yaml(f"{text}\n") == parse_yaml(text))
    before = text_of(text)
    missing = before.missing_parents(KEYS) if "extensions" not in before.content else 0
    after = before.with_entry(KEYS, "ideabridge", ENTRY)
    entry = after.entries(KEYS)["ideabridge"]
    is_list = isinstance(before.content.get("extensions"), list)
    assert entry == ({"name": "ideabridge", **ENTRY} if is_list else ENTRY)
    assert after.entries(KEYS) == {**before.entries(KEYS), "ideabridge": entry}

    # Nothing has been removed.
    rest = iter(after.text)
    assert all(character in rest for character in text)
    assert after.without_entry(KEYS, "ideabridge", parents=missing).text == text


@settings(deadline=None, max_examples=25)
@given(documents(("block", "flow", "list")), st.sampled_from(NAMES))
def test_an_entry_is_replaced_and_removed(text: str, server: str) -> None:
    assume(is_valid(text))
    before = text_of(text)
    name = next(iter(text_of(f"{server}:\n").content))
    assume(name in before.entries(KEYS))
    other = before.with_entry(KEYS, name, {"uri": "u"})
    again = other.with_entry(KEYS, name, {"uri": "v"}).with_entry(KEYS, name, {"uri": "u"})
    assert again.text == other.text

    removed = before.without_entry(KEYS, name)
    assert removed.entries(KEYS) == {
        key: value for key, value in before.entries(KEYS).items() if key != name
    }


# -- the form of what is written -------------------------------------------------------------------

GOOSE = """\
# goose
GOOSE_MODE: auto  # or smart
extensions:
    memory:   # built in
        type: builtin
        timeout: 3_00
    # shell:
    #   type: stdio

other: |
    extensions:
      x: 1
"""


def test_a_mapping_gets_the_lines_of_its_siblings() -> None:
    after = text_of(GOOSE).with_entry(KEYS, "x y", ENTRY)
    assert after.text == GOOSE.replace(
        "timeout: 3_00\n",
        """\
timeout: 3_00
    "x y":
      cmd: ideabridge
      args:
        - serve
        - "--x"
      envs:
        A: "no"
      timeout: 300
""",
    )


def test_an_element_of_a_list_is_found_by_its_name() -> None:
    text = "name: x\r\nmcpServers:\r\n- name: a # - b\r\n  command: x\r\n- name: b\r\n"
    keys = ("mcpServers",)
    before = text_of(text)
    after = before.with_entry(keys, "c", {"command": "run", "args": ["z"]})
    assert after.text == (f"{text}- name: c\r\n  command: run\r\n  args:\r\n    - z\r\n")
    assert after.without_entry(keys, "c").text == text
    assert before.without_entry(keys, "a").text == "name: x\r\nmcpServers:\r\n- name: b\r\n"
    assert before.with_entry(keys, "b", {"command": "z"}).text == (
        text.replace("- name: b", "- name: b\r\n  command: z")
    )


def test_a_missing_list_is_added() -> None:
    before = text_of("name: x\n")
    after = before.with_entry(("mcpServers",), "c", {"command": "run"}, listed=True)
    assert after.text == "name: x\nmcpServers:\n  - name: c\n    command: run\n"
    assert after.without_entry(("mcpServers",), "c", parents=1).text == before.text


def test_odd_entries_are_read_as_they_were_written() -> None:
    empty: list[Any] = [[], [{}]]
    entry: Any = {"a": "\x7f\u2028\ufeff", "yes": "12:30", "n": None, "l": [*empty, [1, "-"]]}
    after = text_of("").with_entry(KEYS, "- x: #", entry)
    assert after.entries(KEYS) == {"- x: #": entry}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extensions:\n  a: |\n    text", "without changing more of the file"),
        ("extensions: 5\n", "extensions is '5'; expected an object"),
        ("a: &x\n  b: 1\nextensions: *x\n", "extensions is an alias"),
        ("extensions: &x\n  b: 1\na: *x\n", "without changing more of the file"),
        ("extensions:\n  ? a\n  : 1\n", "line 2 contains more than the entry"),
    ],
)
def test_what_cannot_be_edited_is_refused(text: str, message: str) -> None:
    with pytest.raises(HostFileError, match=message):
        text_of(text).with_entry(KEYS, "x", ENTRY)


def test_what_is_no_yaml_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1\nb: [\n")
    with pytest.raises(HostFileError, match=r"config\.yaml is not YAML: .*line 3"):
        read_host_text(path, "yaml")
