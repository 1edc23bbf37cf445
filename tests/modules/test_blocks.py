"""Content blocks that are taken out of values: nothing is lost, and nothing else is taken."""

from __future__ import annotations

import re
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from ideabridge.bridge.context.payloads import payload_of, without_payloads
from ideabridge.bridge.modules.blocks import MOST_BLOCKS, Blocks, native
from ideabridge.tools.encoding import JSON, encode

Object = dict[str, Any]


def _block(kind: str, **members: Any) -> Object:
    return {"type": kind, **members}


def _image(data: Any) -> Object:
    return _block("image", data=data, mimeType="image/png")


def _resource(**members: Any) -> Object:
    return _block("resource", resource=members)


DATA = st.sampled_from(["AAAA", "AAA=", "iVBORw0KGgo=", "QUJD"])
MEDIA = st.one_of(
    DATA.map(_image),
    DATA.map(lambda data: _block("audio", mimeType="AUDIO/wav", data=data)),
    DATA.map(lambda data: _resource(uri="file:///a", blob=data)),
    st.text(max_size=5).map(lambda text: _resource(uri="a:b", text=text)),
    st.just(_block("resource_link", uri="file:///b", name="b", size=3)),
)
ODD = st.one_of(
    st.sampled_from(["ui://x", "text/html", "no base64", None, 5, "{}"]).map(_image),
    st.sampled_from(["UI://ideabridge/run", " ui:x"]).map(
        lambda uri: _resource(uri=uri, text="<script>")
    ),
    MEDIA.map(lambda block: {**block, "more": 1}),
    st.just({"type": ["image"], "mimeType": "image/png"}),
)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=5), MEDIA, ODD)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
)


def restored(value: Any, blocks: list[Object]) -> Any:
    """A value with the blocks back in their places."""
    if isinstance(value, list):
        return [restored(item, blocks) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value

    members = cast("Object", value)
    number = re.fullmatch(r"content\[(\d+)\] of this answer", payload_of(members))
    if number is not None:
        return blocks[int(number[1]) - 1]
    return {key: restored(item, blocks) for key, item in members.items()}


@given(VALUES)
def test_blocks_stand_for_all_that_they_replace(value: JSON) -> None:
    before = encode(value)
    taken = Blocks()
    shown = taken.take(value)
    blocks = taken.place(shown, first=1, room=10**6, otherwise="too large")
    assert encode(value) == before
    assert len(blocks) <= MOST_BLOCKS
    assert all(native(block) == block for block in blocks)
    if "too large" not in encode(shown).decode():
        assert encode(restored(shown, blocks)) == before

    if not blocks:
        assert shown is value


@given(VALUES, st.integers(0, 300))
def test_blocks_keep_to_their_room_and_say_what_has_none(value: JSON, room: int) -> None:
    taken = Blocks()
    shown = taken.take(value)
    blocks = taken.place(shown, first=1, room=room, otherwise="too large")
    assert sum(len(encode(block)) for block in blocks) <= room
    text = encode(shown).decode()
    listed = len(taken.placeholders)
    assert (
        text.count("too large") + text.count("of this answer") + text.count('"resource_link"')
        >= listed
    )


def test_a_line_end_within_base64_goes_and_a_person_sees_sizes() -> None:
    image: dict[str, JSON] = {"type": "image", "data": "AAAA\nBBBB\n", "mimeType": "image/png"}
    assert native(image) == {**image, "data": "AAAABBBB"}
    sound: dict[str, JSON] = {"type": "audio", "data": "A" * 4000}
    odd: dict[str, JSON] = {**sound, "resource": 5}
    assert without_payloads(odd) == {**odd, "data": "4,000 characters"}
    shown = without_payloads([{"a": sound}, {"resource": {"blob": "AA"}}])
    assert shown == [
        {"a": {**sound, "data": "4,000 characters"}},
        {"resource": {"blob": "2 characters"}},
    ]
