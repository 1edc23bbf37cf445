"""Parameters and result of a Python function, as schemas and as values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, NoneType
from typing import Annotated, Any, Final, cast, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails, PydanticSerializationError

from ideabridge.tools.activity import ActivityContext
from ideabridge.tools.encoding import JSON, JSONObject, encode, normalise
from ideabridge.tools.errors import ActivityError, InvalidJSONError, LimitExceededError, ToolDefinitionError
from ideabridge.tools.keywords import at, map_schemas, show, show_path
from ideabridge.tools.tool import META_PROPERTIES

_UNUSABLE: Final = (PydanticUserError, PydanticSchemaGenerationError, TypeError, ValueError, NameError, RecursionError)
_PROBLEMS: Final = 5
_ALIASES: Final = {"JSON": JSON, "JSONObject": JSONObject}
# Its overloads are for fields known in advance.
_make_model: Final = cast("Callable[..., type[BaseModel]]", create_model)


def where(function: object) -> str:
    """How messages name a function: `report (tools.py, line 12)`."""
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or type(function).__name__
    code = getattr(inspect.unwrap(cast("Any", function)), "__code__", None)
    if code is None:
        return str(name)
    return f"{name} ({Path(code.co_filename).name}, line {code.co_firstlineno})"


def hints_of(function: Callable[..., Any], place: str) -> dict[str, Any]:
    """The annotations of a function, evaluated; names defined beside a local function are found too.

    Raises:
        ToolDefinitionError: an annotation cannot be evaluated.
    """
    target: Any = function
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        target = getattr(function, "func", None) or cast("Any", type(function)).__call__
    # `JSON` is recursive, which only pydantic's own alias can say.
    names: dict[str, Any] = {"JSON": JsonValue, "JSONObject": dict[str, JsonValue]}
    scope = getattr(target, "__globals__", {})
    names = {name: value for name, value in names.items() if scope.get(name) in (None, _ALIASES[name])}
    try:
        return get_type_hints(target, localns=names or None, include_extras=True)
    except NameError:
        pass
    except Exception as error:  # noqa: BLE001 - evaluating annotations runs any code
        raise ToolDefinitionError(f"{place}: its annotations cannot be evaluated: {error}") from None
    try:
        return get_type_hints(target, localns={**_outer_names(), **names}, include_extras=True)
    except Exception as error:  # noqa: BLE001
        raise ToolDefinitionError(f"{place}: its annotations cannot be evaluated: {error}") from None


def _outer_names() -> dict[str, Any]:
    """Local names of the code that is defining a tool, the innermost winning."""
    names: dict[str, Any] = {}
    frame: FrameType | None = inspect.currentframe()
    for _ in range(12):
        if frame is None:
            break
        if not str(frame.f_globals.get("__name__", "")).startswith("ideabridge.tools."):
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


class _Schemas(GenerateJsonSchema):
    """JSON Schemas without titles that only repeat names."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic's own name

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _tidy(schema: dict[str, Any]) -> JSONObject:
    """The schema as JSON: definitions last, no title that is a model's name, no definition that says nothing."""
    try:
        tidied = normalise(schema, what="schema")
    except InvalidJSONError as error:
        raise ValueError(str(error)) from None
    assert isinstance(tidied, dict)
    definitions = tidied.pop("$defs", {})
    assert isinstance(definitions, dict)
    empty = {f"#/$defs/{name}" for name, definition in definitions.items() if definition == {}}

    def without_empty(part: JSONObject) -> JSONObject:
        return {word: value for word, value in part.items() if word != "$ref" or value not in empty}

    kept: JSONObject = {}
    for name, definition in definitions.items():
        if isinstance(definition, dict) and definition:
            if definition.get("title") == name:
                del definition["title"]
            kept[name] = map_schemas(definition, without_empty)
    result = map_schemas(tidied, without_empty)
    assert isinstance(result, dict)
    return {**result, "$defs": kept} if kept else result


class Parameters:
    """The parameters of a function: their closed schema, and a call's arguments as Python values."""

    def __init__(
        self, function: Callable[..., Any], hints: Mapping[str, Any], told: Mapping[str, str], place: str
    ) -> None:
        self._context: str | None = None
        self._fields: dict[str, str] = {}
        fields: dict[str, Any] = {}
        for parameter in inspect.signature(function).parameters.values():
            hint = _check(parameter, hints, place)
            if hint is ActivityContext:
                self._context = parameter.name
                continue
            # Fields have names of our own: a parameter may be called `schema` or `_private`, a field may not.
            field = f"p{len(fields)}"
            self._fields[field] = parameter.name
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[field] = (Annotated[hint, Field(alias=parameter.name)], default)
        config = ConfigDict(extra="forbid", strict=True)
        try:
            self._model = _make_model("Arguments", __config__=config, **fields)
            schema = self._model.model_json_schema(schema_generator=_Schemas, mode="validation")
            self.schema = _shown(_tidy(schema), told)
        except _UNUSABLE as error:
            raise ToolDefinitionError(f"{place}: {_culprit(fields, self._fields, error)}") from None

    def read(self, arguments: JSONObject, context: ActivityContext) -> dict[str, Any]:
        """Keyword arguments for the function.

        JSON's own conversions are made (a date from text, a float from 5, an int from 5.0), no others.

        Raises:
            ActivityError: the arguments do not fit.
        """
        try:
            model = self._model.model_validate_json(encode(arguments))
        except ValidationError as error:
            repaired = _whole_numbers(arguments, error.errors())
            try:
                model = self._model.model_validate_json(encode(repaired)) if repaired is not None else None
            except ValidationError as again:
                error = again
                model = None
            if model is None:
                raise ActivityError(_told(error.errors(include_url=False))) from None
        values = {name: getattr(model, field) for field, name in self._fields.items()}
        if self._context is not None:
            values[self._context] = context
        return values


def _shown(tidied: JSONObject, told: Mapping[str, str]) -> JSONObject:
    """The schema of parameters with what the docstring says of them."""
    properties = tidied.pop("properties", {})
    assert isinstance(properties, dict)
    for name, text in told.items():
        member = properties.get(name)
        if isinstance(member, dict):
            member.setdefault("description", text)
    # Tools are read by models: what matters first.
    shown: JSONObject = {"type": "object", "properties": properties}
    shown.update((word, tidied[word]) for word in ("required", "additionalProperties", "$defs") if word in tidied)
    return shown


def _check(parameter: inspect.Parameter, hints: Mapping[str, Any], place: str) -> Any:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise ToolDefinitionError(f"{place}: parameter {stars}{name}: a call names each of its parameters")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ToolDefinitionError(f"{place}: parameter {name!r} is positional-only; a call names its parameters")
    if name in META_PROPERTIES:
        raise ToolDefinitionError(f"{place}: parameter {name!r} has the name of a meta-property of calls; rename it")
    if name not in hints:
        method = " (to make a tool of a method, give the bound method to a Toolbox)" if name in ("self", "cls") else ""
        raise ToolDefinitionError(f"{place}: parameter {name!r} has no annotation{method}")
    hint = hints[name]
    inner = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if ActivityContext in (inner, *get_args(inner)):
        return ActivityContext
    return hint


def _culprit(fields: Mapping[str, Any], names: Mapping[str, str], error: Exception) -> str:
    """Which parameter pydantic cannot make a schema of."""
    for field, (hint, default) in fields.items():
        try:
            alone = _make_model("Arguments", **{field: (hint, default)})
            alone.model_json_schema(schema_generator=_Schemas)
        except _UNUSABLE as own:
            return f"parameter {names[field]!r} cannot be told as a JSON Schema: {_first_line(own)}"
    return f"its parameters cannot be told as a JSON Schema: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _told(errors: Sequence[ErrorDetails]) -> str:
    lines: list[str] = []
    for error in errors[:_PROBLEMS]:
        path = show_path(tuple(error["loc"]))
        if error["type"] in ("missing", "extra_forbidden"):
            lines.append(f"{path}: {'is required' if error['type'] == 'missing' else 'is no parameter'}")
            continue
        try:
            found = show(normalise(error["input"]), 60)
        except (InvalidJSONError, LimitExceededError):
            found = type(error["input"]).__name__
        lines.append(f"{path}: found {found}: {error['msg']}")
    more = f"; and {len(errors) - _PROBLEMS} more" if len(errors) > _PROBLEMS else ""
    return f"the parameters do not fit: {'; '.join(lines)}{more}"


def _whole_numbers(arguments: JSONObject, errors: Sequence[ErrorDetails]) -> JSONObject | None:
    """The arguments with 5.0 as 5 where an integer was wanted (JSON Schema counts it as one); None without such."""
    repaired: JSON = normalise(arguments)
    changed = False
    for error in errors:
        value = error["input"]
        if error["type"] != "int_type" or not isinstance(value, float) or not value.is_integer():
            continue
        *parents, last = error["loc"]
        target = at(repaired, parents)
        if isinstance(target, dict) and last in target:
            target[str(last)] = int(value)
            changed = True
        elif isinstance(target, list) and isinstance(last, int):
            target[last] = int(value)
            changed = True
    return repaired if changed and isinstance(repaired, dict) else None


class Result:
    """What a function returns: its schema, where the annotation says one, and values as JSON."""

    def __init__(self, hint: Any, place: str) -> None:
        self.schema: JSONObject | None = None
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(hint)
            if hint is not Any and hint is not None and hint is not NoneType:
                schema = self._adapter.json_schema(mode="serialization", schema_generator=_Schemas)
                self.schema = _tidy(schema) or None
        except _UNUSABLE as error:
            raise ToolDefinitionError(
                f"{place}: the return annotation cannot be told as a JSON Schema: {_first_line(error)}"
            ) from None
        if self.schema is not None and get_origin(hint) is None and self.schema.get("title") == _name(hint):
            del self.schema["title"]

    def dump(self, value: Any) -> JSON:
        """The value as JSON.

        Raises:
            ActivityError: it is not what the annotation says, or not JSON.
        """
        try:
            try:
                dumped = self._adapter.dump_python(value, mode="json", warnings="error", by_alias=True)
            except PydanticSerializationError:
                # A dict where a model was promised, as functions often return, is made one first.
                dumped = self._adapter.dump_python(
                    self._adapter.validate_python(value), mode="json", warnings="error", by_alias=True
                )
            return normalise(dumped, what="the result")
        except ValidationError as error:
            raise ActivityError(f"it returned something else than it declares: {_returned(error)}") from None
        except (PydanticSerializationError, InvalidJSONError, LimitExceededError, ValueError) as error:
            raise ActivityError(f"it returned what is not JSON: {_first_line(error)}") from None


def _returned(error: ValidationError) -> str:
    return "; ".join(f"{show_path(tuple(e['loc']))}: {e['msg']}".lstrip(": ") for e in error.errors()[:_PROBLEMS])


def _name(hint: Any) -> str | None:
    return getattr(hint, "__name__", None)
