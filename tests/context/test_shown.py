"""Which results are shown whole, for any messages and any limits."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ideabridge.bridge.context.messages import CALLS, Handlers, Message
from ideabridge.bridge.context.reader import is_reader, meant_reference, read_part
from ideabridge.bridge.context.shown import Measures, Shown
from ideabridge.tools.encoding import JSON, JSONObject, encode, encode_text

sizes = st.integers(0, 400)


def repeated(size: int, letter: str) -> str:
    return letter * size


values = st.builds(repeated, sizes, st.sampled_from("abcé†"))
limits = st.builds(Shown, st.integers(256, 600), st.integers(256, 3000))


def made(place: int, value: str, *, is_read: bool, path: str | None) -> tuple[Message, str]:
    """A call with this result, and its reference."""
    reference = f"†results.{place}" if path is None else f"†state.{path}"
    entry: JSONObject = {"place": place, "tool": "t", "status": "done", "value": reference}
    if is_read:
        entry["reads"] = "†state.x"
    if path is None:
        entry["result"] = value
    return Message("user", "call", entry, "call"), reference


calls = st.lists(st.tuples(values, st.booleans(), st.none() | st.sampled_from(["a", "b", "c.d", "c.e"])), max_size=70)


@given(calls, limits, st.text(max_size=2000))
def test_results_are_whole_within_the_limits_and_the_rest_is_announced(
    listed: list[tuple[str, bool, str | None]], shown: Shown, kept: str
) -> None:
    state: JSONObject = {"kept": kept, "c": {"kept": kept}}
    messages: list[Message] = []
    last: dict[str, tuple[int, bool, str]] = {}
    for place, (value, is_read, path) in enumerate(listed):
        message, reference = made(place, value, is_read=is_read, path=path)
        messages.append(message)
        last[reference] = (place, is_read, value)
        if path is not None:
            *above, key = path.split(".")
            held = state
            for one in above:
                inner = held[one]
                assert isinstance(inner, dict)
                held = inner
            held[key] = value
    draft = Handlers().assemble([Message("user", "state", state, "state"), *messages], shown=shown)
    text = "\n".join(str(one["content"]) for one in draft.texts)
    state_text = str(draft.texts[0]["content"])
    assert json.dumps(kept, ensure_ascii=False) in state_text, "what the author wrote is whole"

    # The same rule, written down again: what was read first, then what is newest.
    left, whole = shown.request, set[str]()
    for reference, (_, _, value) in sorted(last.items(), key=lambda one: (one[1][1], one[1][0]), reverse=True):
        size = len(encode(value))
        if size <= shown.value and size <= left:
            left -= size
            whole.add(reference)
    for reference, (place, _, value) in last.items():
        if reference.startswith("†results"):
            line = (
                f"{place} t" + (" †state.x" if "reads" in str(messages[place].value) else "") + f": done, {reference}"
            )
            is_listed = reference in whole or place >= len(listed) - 50
            assert (f"{line} = {encode_text(value)}" in text) is (reference in whole)
            assert (f"{line}, shortened: " in text) is (is_listed and reference not in whole)
        elif reference not in whole:
            assert reference in state_text, "it is named"
    assert draft.is_shortened is (len(whole) < len(last))
    unlisted = [one for one in list(enumerate(listed))[: max(0, len(listed) - 50)] if f"†results.{one[0]}" not in whole]
    assert (f"{len(unlisted):,} earlier ones are not listed" in text) is bool(unlisted)


@given(calls, limits)
def test_a_long_run_shows_the_same_with_what_it_has_measured_before(
    listed: list[tuple[str, bool, str | None]], shown: Shown
) -> None:
    messages = [made(place, value, is_read=is_read, path=None)[0] for place, (value, is_read, _) in enumerate(listed)]
    measures = Measures()
    for count in range(0, len(messages) + 1, 7):
        some = messages[:count]
        again = Handlers().assemble(some, shown=shown).texts
        assert Handlers().assemble(some, shown=shown, measures=measures).texts == again


def test_previews_of_a_state_with_very_many_results_are_bounded() -> None:
    state: JSONObject = {f"k{number}": "x" * 1000 for number in range(5000)}
    messages = [made(place, "", is_read=False, path=f"k{place}")[0] for place in range(5000)]
    draft = Handlers().assemble([Message("user", "state", state, "state"), *messages], shown=Shown(4096, 32_768))
    text = str(draft.texts[0]["content"])
    assert len(text) < 60_000
    assert "more are left out here: †state.k" in text
    assert str(draft.texts[1]["content"]).startswith(CALLS)


# -- reading ---------------------------------------------------------------------------------------------------------

texts = st.text(alphabet='ab\n"é†😀', max_size=3000)
anything: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=9), inner),
)


@given(anything, st.integers(0, 50), st.none() | st.integers(1, 5000), st.integers(256, 2000))
def test_a_part_always_fits_so_that_it_is_shown_whole(value: JSON, start: int, length: int | None, most: int) -> None:
    size = len(value) if isinstance(value, str | list) else len(encode_text(value))
    arguments: JSONObject = {"from": min(start, max(size - 1, 0))}
    if length is not None:
        arguments["length"] = length
    part = read_part(value, "†state.x", arguments, most)
    assert len(encode(part)) <= most
    if "text" in part:
        assert isinstance(value, str)
        first = part["from"]
        assert isinstance(first, int)
        assert part["text"] == value[first : first + len(str(part["text"]))]


@given(texts, st.text(alphabet='ab\n"', min_size=1, max_size=3), st.integers(256, 2000))
def test_what_is_found_is_there(value: str, wanted: str, most: int) -> None:
    found = read_part(value, "†state.x", {"find": wanted}, most)
    assert found["count"] == value.count(wanted)
    assert len(encode(found)) <= most
    matches = found["matches"]
    assert isinstance(matches, list)
    for match in matches:
        assert isinstance(match, dict)
        at = match["at"]
        assert isinstance(at, int)
        assert value.startswith(wanted, at)


def test_a_text_is_read_from_its_beginning_to_its_end() -> None:
    value = "".join(f'line {number}: "é†😀"\n' for number in range(500))
    read, start = "", 0
    while start < len(value):
        part = read_part(value, "†state.x", {"from": start}, 1000)
        read += str(part["text"])
        start = len(read)
    assert read == value


def test_references_are_meant_with_and_without_a_dagger() -> None:
    assert meant_reference("state.log") == "†state.log"
    assert meant_reference("†①.state.log") == "†①.state.log"
    assert meant_reference("①.state.log") == "†①.state.log"
    assert meant_reference("the log") == "the log"
    assert meant_reference({"a": 1}) == {"a": 1}
    assert not is_reader(None)
