"""Parse JSON objects from the store or from outside into dataclasses.

A dataclass declares the members of a document, and `read_as` reads each field from the member with
the same name:

    @dataclass(frozen=True, slots=True)
    class Profile:
        title: str | None = None
        tags: tuple[str, ...] = ()

    read_as(Profile, {"title": 3, "tags": ["a", None]})  # Profile(title=None, tags=("a",))

A field with the metadata `whole_document()` is read from the whole document, not from one member.
If its type is `JSONObject`, it is the document itself, with the members that no field reads.

The dataclass must have slots and no `__post_init__`.

A member of the wrong type counts as absent, and an element of the wrong type is omitted, so one
malformed member does not make the rest of a document unreadable. Documents that a person or a model
writes have their own readers, which report what is wrong.

This module does not use pydantic, which would need a validator for each field to omit single
members. It also takes twice as long, and copies every object that it reads.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

from ideabridge.tools.encoding import JSON

DocumentT = TypeVar("DocumentT")

_Read: TypeAlias = Callable[[JSON], object]
"""A function that takes a JSON value and returns the value of a field, or `_ABSENT`."""

_ABSENT: Final = object()

_MEMBER: Final = "member"

# `encoding` defines these names as strings that refer to themselves, so they cannot be evaluated.
_NAMES: Final = {"JSON": Any, "JSONObject": dict[str, Any]}


def read_as(document_type: type[DocumentT], document: JSON) -> DocumentT:
    """Read a document whose fields all have defaults. A value that is not a JSON object is read as
    an empty one.
    """
    read = read_whole(document_type, document)
    return document_type() if read is None else read


def read_whole(document_type: type[DocumentT], document: JSON) -> DocumentT | None:
    """Read a document, or return None if it is not a JSON object or lacks a member for a field
    without a default.
    """
    read = _reader(document_type)(document)
    return None if read is _ABSENT else typing.cast("DocumentT", read)


def member(name: str) -> dict[str, str]:
    """Return the metadata for a field that is read from the member `name`."""
    return {_MEMBER: name}


def whole_document() -> dict[str, None]:
    """Return the metadata for a field that is read from the whole document."""
    return {_MEMBER: None}


@cache
def _reader(expected: Any) -> _Read:
    """Return a function that reads a field of type `expected`.

    The type can be JSON, a type of JSON values, a tuple or mapping of these, a dataclass, or a
    union of one of these types and None.
    """
    if expected is Any:
        return lambda value: value
    if dataclasses.is_dataclass(expected):
        return _document_reader(typing.cast("type", expected))

    origin = typing.get_origin(expected)
    arguments = typing.get_args(expected)
    if origin in (types.UnionType, typing.Union):
        inner = [argument for argument in arguments if argument is not types.NoneType]
        return _reader(inner[0])
    if origin is tuple:
        return _elements_reader(_reader(arguments[0]))
    if origin is dict and arguments[1] is not Any:
        return _members_reader(_reader(arguments[1]))
    return _value_reader(origin or expected)


def _value_reader(expected: type) -> _Read:
    if expected in (dict, list):
        return lambda value: value if isinstance(value, expected) else _ABSENT
    # Compare the exact type, because booleans count as integers in Python, but not in JSON.
    accepted = (int, float) if expected is float else (expected,)
    return lambda value: value if type(value) in accepted else _ABSENT


def _elements_reader(read: _Read) -> _Read:
    def read_elements(value: JSON) -> object:
        if not isinstance(value, list):
            return _ABSENT
        return tuple([element for element in map(read, value) if element is not _ABSENT])

    return read_elements


def _members_reader(read: _Read) -> _Read:
    def read_members(value: JSON) -> object:
        if not isinstance(value, dict):
            return _ABSENT
        members = {name: read(inner) for name, inner in value.items()}
        return {name: inner for name, inner in members.items() if inner is not _ABSENT}

    return read_members


def _document_reader(document_type: type) -> _Read:
    if hasattr(document_type, "__post_init__"):
        raise TypeError(
            f"{document_type.__name__} has a __post_init__ method, which would never be called"
        )

    hints = typing.get_type_hints(document_type, localns=_NAMES)
    # This is a list of fields, not a mapping of members, because several fields can read the same
    # member, each as a different type.
    fields = [
        (
            field.metadata.get(_MEMBER, field.name),
            # Set the slots directly, because the constructor of a frozen dataclass takes twice as
            # long.
            getattr(document_type, field.name).__set__,
            _reader(hints[field.name]),
            field.default,
            field.default_factory,
        )
        for field in dataclasses.fields(document_type)
    ]
    new = typing.cast("Callable[[type], object]", object.__new__)

    def read_document(value: JSON) -> object:
        if not isinstance(value, dict):
            return _ABSENT

        # Keep this loop fast: logs and lists contain many documents.
        document = new(document_type)
        for name, set_field, read, default, make_default in fields:
            if name in value:
                inner = read(value[name])
            elif name is None:
                inner = read(value)
            else:
                inner = _ABSENT

            if inner is _ABSENT:
                if default is not dataclasses.MISSING:
                    inner = default
                elif make_default is not dataclasses.MISSING:
                    inner = make_default()
                else:
                    return _ABSENT
            set_field(document, inner)

        return document

    return read_document
