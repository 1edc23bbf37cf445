"""Outputs: what a run gives, typed by a pydantic model or any type pydantic knows."""

from __future__ import annotations

from typing import TypeVar, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from ideabridge.bridge.errors import OutputTypeError
from ideabridge.tools.encoding import JSON, JSONObject, encode, normalise

T = TypeVar("T")


def _adapter(model: type[T]) -> TypeAdapter[T]:
    try:
        return TypeAdapter(model)
    except PydanticUserError as error:
        raise OutputTypeError(f"{_name(model)} is no type of JSON: {str(error).splitlines()[0]}") from None


def _name(model: object) -> str:
    return getattr(model, "__name__", None) or str(model)


def schema_of(model: type[object]) -> JSONObject:
    """The JSON Schema a value must satisfy to become a `model`.

    Raises:
        OutputTypeError: pydantic makes no schema of it.
    """
    try:
        schema = _adapter(model).json_schema()
    except PydanticUserError as error:
        raise OutputTypeError(f"{_name(model)} has no JSON Schema: {str(error).splitlines()[0]}") from None
    return cast("JSONObject", normalise(schema, what=f"the schema of {_name(model)}"))


def typed(value: JSON, model: type[T]) -> T:
    """The value as a `model`, read as pydantic reads JSON.

    Raises:
        OutputTypeError: it does not fit; the message says where.
    """
    try:
        return _adapter(model).validate_json(encode(value))
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, one['loc'])) or 'the output'}: {one['msg']}" for one in error.errors()[:5]]
        raise OutputTypeError(f"the output is no {_name(model)}: {'; '.join(faults)}") from None
