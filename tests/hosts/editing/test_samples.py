"""Editing files of hosts as their documentation and public repositories show them
(`tests/hosts/samples`): each entry in turn, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ideabridge.server.hosts.editing.host_text import HostText, text_of_bytes
from ideabridge.server.hosts.host import HostFileError
from tests.hosts.reading import SAMPLES, sample_of

ENTRY: Any = {"command": "ideabridge", "args": ["serve", "--project", "."]}

BARE_LIST = SAMPLES / "visual-studio" / "03-bare-list.expected.json"
FILES = [file for file in sorted(SAMPLES.glob("*/*.expected.json")) if file != BARE_LIST]


def places(expected: dict[str, Any]) -> list[tuple[str, ...]]:
    """The keys that lead to servers, for each place in the file."""
    listed = [expected, *expected.get("also", [])]
    return [tuple(one["place"]["keys"]) for one in listed if "place" in one]


def is_part(some: Iterable[int], everything: Iterable[int]) -> bool:
    """Whether bytes are left where others are taken away."""
    rest = iter(everything)
    return all(byte in rest for byte in some)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.name[:2]}")
def test_each_entry_is_added_replaced_and_removed_alone(file: Path) -> None:
    expected = json.loads(file.read_text(encoding="utf-8"))
    sample = sample_of(file)
    data = sample.read_bytes()
    before = text_of_bytes(sample, expected["format"], data)
    for keys in places(expected):
        add_and_remove(before, keys)
        for name, entry in before.entries(keys).items():
            remove_and_replace(before, keys, name, entry)


def add_and_remove(before: HostText, keys: tuple[str, ...]) -> None:
    assert before.before is not None
    missing = before.missing_parents(keys)
    after = before.with_entry(keys, "ideabridge", ENTRY)
    assert is_part(before.before, after.data)
    assert list(after.entries(keys)) == [*before.entries(keys), "ideabridge"]
    assert after.without_entry(keys, "ideabridge", parents=missing).data == before.before


def remove_and_replace(before: HostText, keys: tuple[str, ...], name: str, entry: Any) -> None:
    others = {key: value for key, value in before.entries(keys).items() if key != name}
    removed = before.without_entry(keys, name)
    assert removed.entries(keys) == others
    assert is_part(removed.data, before.data)
    replaced = before.with_entry(keys, name, ENTRY)
    assert {key: value for key, value in replaced.entries(keys).items() if key != name} == others
    if entry is not None:
        assert removed.with_entry(keys, name, entry).entries(keys) == before.entries(keys)


def test_a_list_in_place_of_an_object_is_left_alone() -> None:
    sample = sample_of(BARE_LIST)
    with pytest.raises(HostFileError, match="expected an object"):
        text_of_bytes(sample, "jsonc", sample.read_bytes())
