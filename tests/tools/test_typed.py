"""Typed documents: what `read_as` and `read_whole` take from JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.typed import member, read_as, read_whole, whole_document

_SIMPLE: st.SearchStrategy[JSON] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)
)
_VALUES: st.SearchStrategy[JSON] = st.recursive(
    _SIMPLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)


@dataclass(frozen=True, slots=True)
class _Author:
    name: str
    age: int | None = None


@dataclass(frozen=True, slots=True)
class _Book:
    title: str | None = None
    pages: int = 1
    price: float | None = None
    is_lent: bool = field(default=False, metadata=member("isLent"))
    tags: tuple[str, ...] = ()
    notes: list[JSON] = field(default_factory=list[JSON])
    places: dict[str, JSONObject] = field(default_factory=dict[str, JSONObject])
    authors: tuple[_Author, ...] = ()
    other: JSON = None


@dataclass(frozen=True, slots=True)
class _Progress:
    is_done: bool | None = field(default=None, metadata=member("done"))
    done: int | None = None


def test_two_fields_read_the_same_member_as_different_types() -> None:
    padding: JSONObject = {"a": 1, "b": 2, "c": 3}
    for more in ({}, padding):
        assert read_as(_Progress, {"done": True, **more}) == _Progress(is_done=True)
        assert read_as(_Progress, {"done": 3, **more}) == _Progress(done=3)


def test_every_field_is_read_from_its_member() -> None:
    whole: JSONObject = {
        "title": "Emma",
        "pages": 474,
        "price": 3,
        "isLent": True,
        "tags": ["novel"],
        "notes": [1, None],
        "places": {"Highbury": {}},
        "authors": [{"name": "Jane"}],
        "other": [{}],
        "unknown": 1,
    }
    assert read_as(_Book, whole) == _Book(
        "Emma", 474, 3, True, ("novel",), [1, None], {"Highbury": {}}, (_Author("Jane"),), [{}]
    )


def test_a_member_of_another_type_counts_as_absent_alone() -> None:
    odd: JSONObject = {
        "title": None,
        "pages": True,
        "price": "3",
        "isLent": 1,
        "tags": ["a", 2, None, "b"],
        "notes": {},
        "places": {"a": [], "b": {"c": 1}},
        "authors": [{"name": 3}, {"name": "Ann", "age": 1.5}, "Ben"],
        "is_lent": True,
    }
    assert read_as(_Book, odd) == _Book(
        tags=("a", "b"), places={"b": {"c": 1}}, authors=(_Author("Ann"),)
    )


def test_a_document_without_a_needed_member_is_none() -> None:
    assert read_whole(_Author, {"name": "Ann"}) == _Author("Ann")
    assert read_whole(_Author, {"age": 3}) is None
    assert read_whole(_Author, ["name"]) is None


@dataclass(frozen=True, slots=True)
class _Size:
    width: int = 0
    height: int = 0


@dataclass(frozen=True, slots=True)
class _Picture:
    document: JSONObject = field(metadata=whole_document())
    title: str = ""
    size: _Size = field(default=_Size(), metadata=whole_document())
    author: _Author | None = field(default=None, metadata=whole_document())


def test_a_field_can_be_read_from_the_whole_document() -> None:
    document: JSONObject = {"title": "Emma", "height": 3, "unknown": [1]}
    picture = read_whole(_Picture, document)
    assert picture == _Picture(document, "Emma", _Size(height=3))
    assert picture is not None
    assert picture.document is document
    named: JSONObject = {"name": "Ann"}
    assert read_whole(_Picture, named) == _Picture(named, author=_Author("Ann"))
    assert read_whole(_Picture, [document]) is None


@dataclass(frozen=True, slots=True)
class _Checked:
    name: str = ""

    def __post_init__(self) -> None:
        raise AssertionError("it is not called")


def test_a_dataclass_with_its_own_checks_is_refused() -> None:
    with pytest.raises(TypeError, match="_Checked has a __post_init__"):
        read_as(_Checked, {"name": "Ann"})


@given(st.one_of(_VALUES, st.dictionaries(st.sampled_from(list(_Book.__slots__)), _VALUES)))
def test_any_json_can_be_read(value: JSON) -> None:
    book = read_as(_Book, value)
    assert type(book.pages) is int
    assert type(book.is_lent) is bool
    assert all(type(tag) is str for tag in book.tags)
    assert all(type(author.name) is str for author in book.authors)


def test_objects_and_lists_of_a_subclass_are_read() -> None:
    class Marked(dict[str, JSON]):
        pass

    written = Marked(authors=[Marked(name="Ann")], places=Marked(a=Marked(b=1)))
    assert read_as(_Book, written) == _Book(places={"a": {"b": 1}}, authors=(_Author("Ann"),))
