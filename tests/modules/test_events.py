"""Server-sent events: cut anywhere, with any line end, and bounded."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ideabridge.bridge.modules.events import Event, EventReader, LongEvent

LINES = st.sampled_from(
    [
        *(
            b"",
            b":",
            b": a comment",
            b"data",
            b"data:",
            b"data: one",
            b"data:two",
            b"data:  three",
            b"data: \xc3\xa9",
        ),
        *(
            b"event: message",
            b"event: odd",
            b"event:",
            b"id: 7",
            b"id:",
            b"id: a\x00b",
            b"retry: 20",
            b"retry: soon",
        ),
        *(b"unknown: field", b"DATA: loud", b" data: indented", b"data: \xef\xbb\xbf{}"),
    ]
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])


def naive(text: bytes) -> tuple[list[Event], str | None, int | None]:
    """The events of a whole stream, read in the simplest way."""
    lines = re.split(rb"\r\n|\n|\r", text.removeprefix(b"\xef\xbb\xbf"))
    events: list[Event] = []
    last_id: str | None = None
    retry: int | None = None
    name = ""
    data = list[bytes]()
    event_id = None
    for number, line in enumerate([*lines, b""]):
        if not line:
            is_whole = number < len(lines) - 1
            if joined := b"\n".join(data):
                events.append(Event(name or "message", joined))

            if event_id is not None and is_whole:
                last_id = event_id

            name = ""
            data = []
            event_id = None
            continue

        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode()
        elif field == b"id" and value and b"\0" not in value:
            event_id = value.decode()
        elif field == b"retry" and value.isdigit():
            retry = int(value)

    return events, last_id, retry


def read(
    text: bytes, cuts: list[int], limit: int = 1000
) -> tuple[list[Event | LongEvent], EventReader]:
    reader = EventReader(limit)
    events: list[Event | LongEvent] = []
    places = sorted({0, *(cut % (len(text) + 1) for cut in cuts), len(text)})
    for start, end in itertools.pairwise(places):
        events += reader.feed(text[start:end])
    return events + reader.end(), reader


@given(
    st.lists(st.tuples(LINES, ENDS)), st.booleans(), st.booleans(), st.lists(st.integers(0, 500))
)
def test_events_are_those_of_a_naive_reader(
    lines: list[tuple[bytes, bytes]], marked: bool, ended: bool, cuts: list[int]
) -> None:
    text = b"".join(line + end for line, end in lines)
    if not ended and lines:
        text = text[: len(text) - len(lines[-1][1])]

    if marked:
        text = b"\xef\xbb\xbf" + text

    events, reader = read(text, cuts)
    assert (events, reader.last_id, reader.retry) == naive(text)


@given(st.integers(1, 3000), st.lists(st.integers(0, 5000)), st.booleans())
def test_of_a_long_event_both_ends_are_kept_and_the_next_is_read(
    size: int, cuts: list[int], lines: bool
) -> None:
    parts = [b'{"id":1,', b"x" * size, b"}"]
    data = b"\ndata: ".join(parts) if lines else b"".join(parts)
    text = b"data: " + data + b"\n\n: comment\ndata: next\n\n"
    events, reader = read(text, cuts, limit=600)
    assert len(events) == 2
    assert events[1] == Event("message", b"next")
    if isinstance(events[0], LongEvent):
        assert events[0].start.startswith(b'{"id":1,')
        assert len(events[0].start) <= 512
        assert events[0].end.endswith(b"}")
        assert events[0].size > 600
    else:
        assert events[0].data == data.replace(b"\ndata: ", b"\n")

    assert reader.pending == 0


def test_comments_of_any_length_are_skipped() -> None:
    reader = EventReader(100)
    assert reader.feed(b": begins ") == []
    for _ in range(100):
        assert reader.feed(b"x" * 90) == []
    assert reader.pending <= 100
    assert reader.feed(b"\ndata: one\n\n") == [Event("message", b"one")]


@pytest.mark.parametrize("value", [b"a\xc3\xa9", b"a\x01b", b"x" * 2000, b"a\tb"])
def test_an_id_that_no_header_should_have_is_ignored(value: bytes) -> None:
    reader = EventReader(10_000)
    reader.feed(b"id: 1\n\nid: " + value + b"\n\n")
    assert reader.last_id == "1"
