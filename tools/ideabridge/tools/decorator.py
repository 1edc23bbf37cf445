"""The decorator `@tool`, which creates a Tool and its Activity from a typed Python function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType, NoneType
from typing import (
    Annotated,
    Any,
    Final,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

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

from ideabridge.tools.encoding import JSON, JSONObject, ObjectLike, encode, normalise
from ideabridge.tools.errors import (
    ActivityError,
    ArgumentError,
    InvalidJSONError,
    LimitExceededError,
    ToolDefinitionError,
)
from ideabridge.tools.json_parts import part_at
from ideabridge.tools.keywords import map_schemas, show, show_path
from ideabridge.tools.message import DataMessage
from ideabridge.tools.names import MAX_TOOL_NAME, is_tool_name, safe_name
from ideabridge.tools.threads import compute_beside, run_tool_in_thread
from ideabridge.tools.tool import (
    DEFINITION,
    HINTS,
    META_PROPERTIES,
    Activity,
    ActivityContext,
    ActivityFunction,
    Annotations,
    Definition,
    Tool,
    check_definition,
)

# -- docstrings ------------------------------------------------------------------------------------

_SECTION: Final = re.compile(
    r"(Args|Arguments|Parameters|Params|Returns?|Yields?|Raises|Examples?|Notes?|Warnings?|See "
    r"Also|Attributes|Todo|References)\s*:\s*"
)
_PARAMETERS: Final = ("Args", "Arguments", "Parameters", "Params")
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^:]*\))?\s*:\s*(.*)")


def _read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Split a Google-style docstring into the text before the first section and the descriptions of
    the parameters.
    """
    lines = inspect.cleandoc(text).splitlines() if text else []
    body: list[str] = []
    parameters: dict[str, str] = {}
    section: str | None = None
    indent: int | None = None
    name: str | None = None
    for line in lines:
        heading = _SECTION.fullmatch(line)
        if heading is not None:
            section = heading[1]
            indent = None
            name = None
        elif section is None:
            body.append(line)
        elif section in _PARAMETERS and line.strip():
            depth = len(line) - len(line.lstrip())
            indent = depth if indent is None else indent
            entry = _ENTRY.fullmatch(line.strip()) if depth <= indent else None
            if entry is not None:
                name = str(entry[1])
                parameters[name] = entry[2].strip()
            elif name is not None and depth > indent:
                parameters[name] = f"{parameters[name]} {line.strip()}".strip()

    return _paragraphs(body), {name: text for name, text in parameters.items() if text}


def _paragraphs(lines: list[str]) -> str:
    """Join the lines of each paragraph. Indented lines and lists keep their line breaks."""
    result: list[str] = []
    for line in lines:
        previous = result[-1] if result else ""
        is_in_paragraph = previous != "" and not previous.startswith(" ")
        if is_in_paragraph and line.strip() and line[0] not in " -*>":
            result[-1] += f" {line.strip()}"
        else:
            result.append(line.rstrip())

    return "\n".join(result).strip()


# -- parameters and results ------------------------------------------------------------------------

_UNUSABLE: Final = (
    PydanticUserError,
    PydanticSchemaGenerationError,
    TypeError,
    ValueError,
    NameError,
    RecursionError,
)
_PROBLEMS: Final = 5
_ALIASES: Final = {"JSON": JSON, "JSONObject": JSONObject}
# The cast is needed because the overloads of `create_model` accept only fields that are known
# statically.
_make_model: Final = cast("Callable[..., type[BaseModel]]", create_model)


def _where(function: object) -> str:
    """Return a function's name and position for messages, such as `report (tools.py, line 12)`."""
    name = (
        getattr(function, "__qualname__", None)
        or getattr(function, "__name__", None)
        or type(function).__name__
    )
    code = getattr(inspect.unwrap(cast("Any", function)), "__code__", None)
    if code is None:
        return str(name)
    return f"{name} ({Path(code.co_filename).name}, line {code.co_firstlineno})"


def _hints_of(function: Callable[..., Any], place: str) -> dict[str, Any]:
    """Return the evaluated annotations of a function. Annotations of a local function can refer to
    names in the enclosing functions.
    """
    target: Any = function
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        target = getattr(function, "func", None) or cast("Any", type(function)).__call__

    # Replace these recursive aliases, because pydantic supports recursion only in its own kind of
    # aliases.
    names: dict[str, Any] = {"JSON": JsonValue, "JSONObject": dict[str, JsonValue]}
    scope = getattr(target, "__globals__", {})
    names = {
        name: value for name, value in names.items() if scope.get(name) in (None, _ALIASES[name])
    }
    try:
        with suppress(NameError):
            return get_type_hints(target, localns=names or None, include_extras=True)
        return get_type_hints(target, localns={**_outer_names(), **names}, include_extras=True)
    except Exception as error:  # noqa: BLE001 - annotations can run any code
        raise ToolDefinitionError(
            f"{place}: its annotations cannot be evaluated: {error}"
        ) from None


def _outer_names() -> dict[str, Any]:
    """Return the local variables visible where a tool is defined. Inner scopes take precedence."""
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
    """Generates JSON Schemas without titles that merely repeat a name."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic's own name

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _tidy(schema: dict[str, Any]) -> JSONObject:
    """Return the schema as JSON, with non-empty definitions last and without titles that merely
    repeat the names of models.
    """
    try:
        tidied = normalise(schema, what="schema")
    except InvalidJSONError as error:
        raise ValueError(str(error)) from None

    assert isinstance(tidied, dict)
    definitions = tidied.get("$defs", {})
    assert isinstance(definitions, dict)
    empty = {f"#/$defs/{name}" for name, definition in definitions.items() if definition == {}}
    for name, definition in definitions.items():
        if isinstance(definition, dict) and definition.get("title") == name:
            del definition["title"]

    result = map_schemas(
        tidied, lambda part: {k: v for k, v in part.items() if k != "$ref" or v not in empty}
    )
    assert isinstance(result, dict)
    definitions_used = result.pop("$defs", {})
    assert isinstance(definitions_used, dict)
    definitions_used = {
        name: definition
        for name, definition in definitions_used.items()
        if f"#/$defs/{name}" not in empty
    }
    return {**result, "$defs": definitions_used} if definitions_used else result


class _Parameters:
    """The parameters of a function: their closed schema, and the conversion of arguments to Python
    values.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        hints: Mapping[str, Any],
        descriptions: Mapping[str, str],
        place: str,
    ) -> None:
        self._context: str | None = None
        self._fields: dict[str, str] = {}
        fields: dict[str, Any] = {}
        for parameter in inspect.signature(function).parameters.values():
            hint = _check(parameter, hints, place)
            if hint is ActivityContext:
                self._context = parameter.name
                continue

            # Number the fields, because a parameter can be called `schema` or `_private`, but a
            # field of a model cannot.
            field = f"p{len(fields)}"
            self._fields[field] = parameter.name
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[field] = (Annotated[hint, Field(alias=parameter.name)], default)

        config = ConfigDict(extra="forbid", strict=True)
        try:
            self._model = _make_model("Arguments", __config__=config, **fields)
            schema = self._model.model_json_schema(schema_generator=_Schemas, mode="validation")
            self.schema = _described(_tidy(schema), descriptions)
        except _UNUSABLE as error:
            raise ToolDefinitionError(f"{place}: {_culprit(fields, self._fields, error)}") from None

    def read(self, arguments: JSONObject, context: ActivityContext) -> dict[str, Any]:
        """Return the keyword arguments for the function.

        Values are converted only where JSON requires it: a date from a string, a float from 5, an
        int from 5.0.

        Raises:
            ActivityError: the arguments are invalid.
        """
        try:
            try:
                model = self._model.model_validate_json(encode(arguments))
            except ValidationError as error:
                repaired = _whole_numbers(arguments, error.errors())
                if repaired is None:
                    raise
                model = self._model.model_validate_json(encode(repaired))
        except ValidationError as error:
            raise ActivityError(_mismatch(error.errors(include_url=False))) from None

        values = {name: getattr(model, field) for field, name in self._fields.items()}
        if self._context is not None:
            values[self._context] = context
        return values


def _described(tidied: JSONObject, descriptions: Mapping[str, str]) -> JSONObject:
    """Return the schema of the parameters, `properties` first, with the descriptions from the
    docstring.
    """
    properties = tidied.get("properties", {})
    assert isinstance(properties, dict)
    for name, text in descriptions.items():
        member = properties.get(name)
        if isinstance(member, dict):
            member.setdefault("description", text)

    closing = {
        word: tidied[word]
        for word in ("required", "additionalProperties", "$defs")
        if word in tidied
    }
    return {"type": "object", "properties": properties, **closing}


def _check(parameter: inspect.Parameter, hints: Mapping[str, Any], place: str) -> Any:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise ToolDefinitionError(
            f"{place}: parameter {stars}{name}: calls pass arguments by name, so declare each one"
        )

    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ToolDefinitionError(
            f"{place}: parameter {name!r} is positional-only, but calls pass arguments by name"
        )

    if name in META_PROPERTIES:
        raise ToolDefinitionError(
            f"{place}: parameter {name!r} has the name of a meta-property of calls; rename it"
        )

    if name not in hints:
        if name in ("self", "cls"):
            method = " (to turn a method into a tool, pass the bound method to a Toolbox)"
        else:
            method = ""
        raise ToolDefinitionError(f"{place}: parameter {name!r} has no annotation{method}")

    hint = hints[name]
    inner = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if ActivityContext in (inner, *get_args(inner)):
        return ActivityContext
    return hint


def _culprit(fields: Mapping[str, Any], names: Mapping[str, str], error: Exception) -> str:
    """Return a message that names the parameter whose schema pydantic cannot generate."""
    for field, (hint, default) in fields.items():
        try:
            alone = _make_model("Arguments", **{field: (hint, default)})
            alone.model_json_schema(schema_generator=_Schemas)
        except _UNUSABLE as own:
            return (
                f"parameter {names[field]!r} cannot be described by a JSON "
                f"Schema: {_first_line(own)}"
            )
    return f"its parameters cannot be described by a JSON Schema: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _mismatch(errors: Sequence[ErrorDetails]) -> str:
    lines: list[str] = []
    for error in errors[:_PROBLEMS]:
        path = show_path(tuple(error["loc"]))
        if error["type"] == "missing":
            lines.append(f"{path} is required")
            continue
        if error["type"] == "extra_forbidden":
            lines.append(f"{path} is not a parameter")
            continue

        try:
            value_found = show(normalise(error["input"]), 60)
        except (InvalidJSONError, LimitExceededError):
            value_found = type(error["input"]).__name__

        lines.append(f"{path}: found {value_found}: {error['msg']}")

    if len(errors) > _PROBLEMS:
        more = f"; and {len(errors) - _PROBLEMS} more"
    else:
        more = ""

    return f"the parameters do not fit: {'; '.join(lines)}{more}"


def _whole_numbers(arguments: JSONObject, errors: Sequence[ErrorDetails]) -> JSONObject | None:
    """Replace each number such as 5.0 in the errors with 5, because both are integers in JSON
    Schema.

    Return the new arguments, or None if the errors report no such number.
    """
    repaired: JSON = normalise(arguments)
    changed = False
    for error in errors:
        value = error["input"]
        if error["type"] != "int_type" or not isinstance(value, float) or not value.is_integer():
            continue

        *parents, last = error["loc"]
        target = part_at(repaired, parents)
        if isinstance(target, dict) and last in target:
            target[str(last)] = int(value)
            changed = True
        elif isinstance(target, list) and isinstance(last, int):
            target[last] = int(value)
            changed = True

    return repaired if changed and isinstance(repaired, dict) else None


class _Result:
    """The result of a function: its schema, if the annotation declares one, and the conversion of
    values to JSON.
    """

    def __init__(self, hint: Any, place: str) -> None:
        self.schema: JSONObject | None = None
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(hint)
            if hint is not Any and hint is not None and hint is not NoneType:
                schema = self._adapter.json_schema(mode="serialization", schema_generator=_Schemas)
                self.schema = _tidy(schema) or None
        except _UNUSABLE as error:
            raise ToolDefinitionError(
                f"{place}: the return annotation cannot be described by a JSON "
                f"Schema: {_first_line(error)}"
            ) from None

        name = getattr(hint, "__name__", None)
        if (
            self.schema is not None
            and get_origin(hint) is None
            and self.schema.get("title") == name
        ):
            del self.schema["title"]

    def dump(self, value: Any) -> JSON:
        """Return the value as JSON.

        Raises:
            ActivityError: the value is not JSON, or does not match the annotation.
        """
        dump = partial(self._adapter.dump_python, mode="json", warnings="error", by_alias=True)
        try:
            try:
                dumped = dump(value)
            except PydanticSerializationError:
                # Validate the value and try again, because many functions declare a model but
                # return a dict.
                dumped = dump(self._adapter.validate_python(value))
            return normalise(dumped, what="the result")
        except ValidationError as error:
            lines: list[str] = []
            for problem in error.errors()[:_PROBLEMS]:
                place = show_path(tuple(problem["loc"]))
                # A problem with the whole result has no place.
                lines.append(f"{place}: {problem['msg']}".lstrip(": "))

            raise ActivityError(
                f"its result does not match the return annotation: {'; '.join(lines)}"
            ) from None
        except (
            PydanticSerializationError,
            InvalidJSONError,
            LimitExceededError,
            ValueError,
        ) as error:
            raise ActivityError(
                f"it returned a value that is not JSON: {_first_line(error)}"
            ) from None


# -- decorator -------------------------------------------------------------------------------------

Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def tool(function: Function, /) -> Function: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    title: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    output_schema: ObjectLike | None = None,
) -> Callable[[Function], Function]: ...


def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    title: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    output_schema: ObjectLike | None = None,
) -> Function | Callable[[Function], Function]:
    """Create a tool from a typed function, which remains callable as before.

    The schema of the parameters comes from the annotations (pydantic's types, `Annotated`, `Field`)
    and defaults, and the output schema comes from the return annotation. The docstring provides the
    description (the text before its sections) and the descriptions of parameters (`Args:`). A
    parameter annotated `ActivityContext` receives the context and is not in the schema. Async
    functions run in the event loop, and other functions run in a worker thread, which runs to
    completion even if the call is cancelled. A function that returns a `DataMessage` adds its data
    to the context of the run.

    Args:
        function: the function, if the decorator is used without parentheses.
        name: the tool's name; by default the function's name.
        description: what the tool does; by default from the docstring.
        title: a human-readable title.
        read_only: whether the tool changes nothing. For this hint and the next three, None means
            that the hint is not declared.
        destructive: whether the tool can destroy something.
        idempotent: whether repeating a call has no further effect.
        open_world: whether the tool reaches beyond a closed domain, for example to the web.
        output_schema: the JSON Schema of the result, instead of the one from the return annotation.

    Raises:
        ToolDefinitionError: the function cannot be a tool; the message names the parameter and the
            reason.
    """
    annotations = Annotations(title, read_only, destructive, idempotent, open_world)

    def decorate(target: Function) -> Function:
        definition = tool_from(
            target,
            name=name,
            description=description,
            annotations=annotations,
            output_schema=output_schema,
        )
        try:
            setattr(target, DEFINITION, definition)
        except AttributeError:
            raise ToolDefinitionError(
                f"{_where(target)} accepts no attributes, so it cannot be decorated; pass it to "
                "tool_from or a Toolbox"
            ) from None
        return target

    return decorate if function is None else decorate(function)


def tool_from(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    annotations: Annotations | None = None,
    output_schema: ObjectLike | None = None,
) -> Definition:
    """Return the Tool and the Activity of a typed function, leaving the function unchanged. See
    `tool`.

    Raises:
        ToolDefinitionError: as for `tool`.
    """
    annotations = annotations or Annotations()
    place = _where(function)
    if inspect.isclass(function) or not callable(function):
        raise ToolDefinitionError(
            f"{place}: expected a function; write @tool above its definition, or @tool(name=..., "
            "read_only=True)"
        )

    _check_options(name, description, annotations, output_schema)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolDefinitionError(
            f"{place}: a generator function cannot be a tool; return a list instead"
        )

    if name is None:
        own = getattr(function, "__name__", None)
        if not isinstance(own, str) or own == "<lambda>":
            raise ToolDefinitionError(f"{place}: the function has no name; pass name=...")
        # Replace letters that Python allows in names but MCP does not.
        name = own if is_tool_name(own) else safe_name(own)
    elif not is_tool_name(name):
        raise ToolDefinitionError(
            f"{place}: the name {name!r} does not match ^[A-Za-z0-9_.-]{{1,{MAX_TOOL_NAME}}}$, "
            f"which MCP requires; {safe_name(name)!r} does"
        )

    text, descriptions = _read_docstring(inspect.getdoc(function))
    hints = _hints_of(function, place)
    parameters = _Parameters(function, hints, descriptions, place)
    result = _Result(hints.get("return", Any), place)
    if output_schema is None:
        output = result.schema
    else:
        output = normalise(output_schema, what="output_schema")

    definition = Tool(
        name=name,
        description=text if description is None else description,
        parameters=parameters.schema,
        output=cast("JSONObject | None", output),
        annotations=annotations,
    )
    check_definition(definition)
    return Definition(
        definition, Activity(name, _runner(function, parameters, result), copies=True)
    )


def _check_options(
    name: object, description: object, annotations: Annotations, output_schema: object
) -> None:
    for option, value in (
        ("name", name),
        ("description", description),
        ("title", annotations.title),
    ):
        if not isinstance(value, str | None):
            raise ArgumentError.of(option, "text", value)

    for option in HINTS:
        if not isinstance(value := getattr(annotations, option), bool | None):
            raise ArgumentError.of(option, "True, False or None", value)

    if not isinstance(output_schema, Mapping | None):
        raise ArgumentError.of("output_schema", "a JSON Schema (an object)", output_schema)


def _runner(
    function: Callable[..., Any], parameters: _Parameters, result: _Result
) -> ActivityFunction:
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object can have an async `__call__`
    )

    async def run(arguments: JSONObject, context: ActivityContext) -> JSON | DataMessage[JSON]:
        values = await compute_beside(arguments, parameters.read, arguments, context)
        call = partial(function, **values)
        if is_async:
            returned = await call()
        else:
            returned = await run_tool_in_thread(call)
            if inspect.isawaitable(returned):
                returned = await cast("Any", returned)

        if isinstance(returned, DataMessage):
            message = cast("DataMessage[Any]", returned)
            data = await compute_beside(message.data, result.dump, message.data)
            return DataMessage(message.kind, data, message.description)

        return await compute_beside(returned, result.dump, returned)

    return run
