"""Which results are shown whole, for any messages and any limits."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ideabridge.bridge.context.messages import CALLS, ContextParts, Handlers, Message
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


calls = st.lists(
    st.tuples(values, st.booleans(), st.none() | st.sampled_from(["a", "b", "c.d", "c.e"])),
    max_size=70,
)


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

    draft = Handlers().assemble(
        ContextParts([Message("user", "state", state, "state"), *messages]), shown=shown
    )
    text = "\n".join(str(one["content"]) for one in draft.texts)
    state_text = str(draft.texts[0]["content"])
    assert json.dumps(kept, ensure_ascii=False) in state_text, "what the author wrote is whole"

    # This is the same rule, written down a second time: first what was read, then what is newest.
    left = shown.request
    whole = set[str]()
    for reference, (_, _, value) in sorted(
        last.items(), key=lambda one: (one[1][1], one[1][0]), reverse=True
    ):
        size = len(encode(value))
        if size <= shown.value and size <= left:
            left -= size
            whole.add(reference)

    for reference, (place, _, value) in last.items():
        if reference.startswith("†results"):
            line = (
                f"{place} t"
                + (" †state.x" if "reads" in str(messages[place].value) else "")
                + f": done, {reference}"
            )
            is_listed = reference in whole or place >= len(listed) - 50
            assert (f"{line} = {encode_text(value)}" in text) is (reference in whole)
            assert (f"{line}, shortened: " in text) is (is_listed and reference not in whole)
        elif reference not in whole:
            assert reference in state_text, "it is named"

    assert draft.is_shortened is (len(whole) < len(last))
    unlisted = [
        one
        for one in list(enumerate(listed))[: max(0, len(listed) - 50)]
        if f"†results.{one[0]}" not in whole
    ]
    assert (f"{len(unlisted):,} earlier ones are not listed" in text) is bool(unlisted)


@given(calls, limits)
def test_a_long_run_shows_the_same_with_what_it_has_measured_before(
    listed: list[tuple[str, bool, str | None]], shown: Shown
) -> None:
    messages = [
        made(place, value, is_read=is_read, path=None)[0]
        for place, (value, is_read, _) in enumerate(listed)
    ]
    measures = Measures()
    for count in range(0, len(messages) + 1, 7):
        some = messages[:count]
        again = Handlers().assemble(ContextParts(some), shown=shown).texts
        assert (
            Handlers().assemble(ContextParts(some), shown=shown, measures=measures).texts == again
        )


def test_previews_of_a_state_with_very_many_results_are_bounded() -> None:
    state: JSONObject = {f"k{number}": "x" * 1000 for number in range(5000)}
    messages = [made(place, "", is_read=False, path=f"k{place}")[0] for place in range(5000)]
    draft = Handlers().assemble(
        ContextParts([Message("user", "state", state, "state"), *messages]),
        shown=Shown(4096, 32_768),
    )
    text = str(draft.texts[0]["content"])
    assert len(text) < 60_000
    assert "more are left out here: †state.k" in text
    assert str(draft.texts[1]["content"]).startswith(CALLS)


# -- reading ---------------------------------------------------------------------------------------

texts = st.text(alphabet='ab\n"é†😀', max_size=3000)
anything: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=9), inner),
)


@given(anything, st.integers(0, 50), st.none() | st.integers(1, 5000), st.integers(256, 2000))
def test_a_part_always_fits_so_that_it_is_shown_whole(
    value: JSON, start: int, length: int | None, most: int
) -> None:
    if isinstance(value, str | list):
        size = len(value)
    else:
        size = len(encode_text(value))

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
    read = ""
    start = 0
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


def added(*texts: str, kind: str = "page", instance: str = "") -> Message:
    return Message(
        "user", "data", {str(number): text for number, text in enumerate(texts)}, kind, instance
    )


def result_of(value: JSON, place: int = 0, instance: str = "") -> Message:
    where = f"†{instance}.results.{place}" if instance else f"†results.{place}"
    entry: JSONObject = {
        "place": place,
        "tool": "look",
        "status": "done",
        "value": where,
        "result": value,
    }
    return Message(
        "user", "call", {**entry, **({"instance": instance} if instance else {})}, "call", ""
    )


def text_of(*messages: Message, shown: Shown) -> str:
    return "\n".join(
        str(one["content"])
        for one in Handlers().assemble(ContextParts(messages), shown=shown).texts
    )


@pytest.mark.parametrize("instance", ["", "①"])
@pytest.mark.parametrize("value", [{"0": "x" * 300}, ["x" * 300], "x" * 300])
def test_data_that_a_call_has_returned_is_shown_once(value: JSON, instance: str) -> None:
    data = Message("user", "data", value, "page", instance)
    text = text_of(result_of(value, 0, instance), data, shown=Shown(4096, 32_768))
    assert text.count("x" * 300) == 1
    assert "which †①.data.page has" in text if instance else "which †data.page has" in text


def test_data_that_calls_have_added_counts_as_results() -> None:
    pages = [added(f"{number} {'x' * 3000}", kind=f"p{number}") for number in range(30)]
    calls = [result_of(page.value, number) for number, page in enumerate(pages)]
    text = text_of(*calls, *pages, shown=Shown(4096, 32_768))
    # The newest ones are shown in full, and the others are announced.
    assert text.count("x" * 3000) == 10
    assert [number for number in range(30) if f"here to a preview: †data.p{number};" in text] == [
        *range(13)
    ]
    assert [number for number in range(30) if f"left out here: †data.p{number}." in text] == [
        *range(13, 20)
    ]


def test_what_the_author_wrote_of_data_is_whole_beside_what_a_call_has_added() -> None:
    own = Message("user", "data", {"letter": "o" * 9000, "parts": {"first": "p" * 9000}}, "page")
    more = Message("user", "data", {"parts": {"second": "s" * 9000}, "log": "l" * 9000}, "page")
    text = text_of(own, result_of("done"), more, shown=Shown(4096, 32_768))
    assert ("o" * 9000 in text, "p" * 9000 in text) == (True, True)
    assert ("s" * 9000 in text, "l" * 9000 in text) == (False, False)
    assert '"shortened": "†data.page.parts.second"' in text
    # Without calls, the author wrote everything.
    assert "s" * 9000 in text_of(own, more, shown=Shown(4096, 32_768))


def test_a_result_that_data_has_only_in_part_is_shown_with_its_call() -> None:
    text = text_of(
        result_of({"0": "x" * 300, "1": True}), added("x" * 300), shown=Shown(4096, 32_768)
    )
    assert text.count("x" * 300) == 2
    one = Message("user", "data", {"text": "x" * 300, "n": 1}, "page")
    assert (
        text_of(result_of({"text": "x" * 300, "n": True}), one, shown=Shown(4096, 32_768)).count(
            "x" * 300
        )
        == 2
    )


def test_a_result_is_shown_with_its_call_where_a_handler_of_the_user_shows_the_data() -> None:
    handlers = Handlers()
    handlers.register("page", lambda _, draft: draft.say("user", "There is a page."))
    messages = [result_of({"0": "x" * 300}), added("x" * 300)]
    text = "\n".join(
        str(one["content"])
        for one in handlers.assemble(ContextParts(messages), shown=Shown(4096, 32_768)).texts
    )
    assert text.count("x" * 300) == 1
    assert "There is a page." in text
