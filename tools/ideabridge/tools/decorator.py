"""`@tool`: a typed Python function as a Tool and its Activity (DESIGN 2)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast, overload

import anyio.to_thread

from ideabridge.tools.activity import DEFINITION, Activity, ActivityContext, ActivityFunction, Definition
from ideabridge.tools.docstring import read_docstring
from ideabridge.tools.encoding import JSON, JSONObject, ObjectLike, normalise
from ideabridge.tools.errors import ArgumentError, ToolDefinitionError
from ideabridge.tools.names import is_safe_name, safe_name
from ideabridge.tools.signature import Parameters, Result, hints_of, where
from ideabridge.tools.tool import Annotations, Tool, check_definition

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
    """Make a tool of a typed function, which stays callable as before.

    The schema of the parameters comes from the annotations (pydantic's types, `Annotated`, `Field`, defaults), their
    descriptions from the docstring's `Args:`, the tool's description from the text before the docstring's sections, the
    output schema from the return annotation. A parameter annotated `ActivityContext` receives the context and is not
    in the schema. Async functions run in the event loop, others in a worker thread (which, when its call is
    cancelled, is left to end by itself).

    Args:
        function: the function, where the decorator stands without parentheses.
        name: the tool's name; by default the function's.
        description: what it does; by default from the docstring.
        title: a title for people.
        read_only: it changes nothing (`Annotations`, as the next three); None: not said.
        destructive: it may destroy something.
        idempotent: the same call twice does no more than once.
        open_world: it reaches beyond a closed domain, the web for example.
        output_schema: JSON Schema of the result, in place of the return annotation's.

    Raises:
        ToolDefinitionError: the function cannot be a tool; the message says which parameter and why.
    """
    annotations = Annotations(title, read_only, destructive, idempotent, open_world)

    def decorate(target: Function) -> Function:
        definition = _define(target, name, description, annotations, output_schema)
        try:
            setattr(target, DEFINITION, definition)
        except AttributeError:
            raise ToolDefinitionError(
                f"{where(target)}: takes no attributes, so it cannot be decorated; give it to tool_from or a Toolbox"
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
    """The Tool and Activity of a typed function, which is left as it is. See `tool`.

    Raises:
        ToolDefinitionError: as `tool`.
    """
    return _define(function, name, description, annotations or Annotations(), output_schema)


def _define(
    function: Callable[..., Any],
    name: str | None,
    description: str | None,
    annotations: Annotations,
    output_schema: ObjectLike | None,
) -> Definition:
    place = where(function)
    if inspect.isclass(function) or not callable(function):
        raise ToolDefinitionError(
            f"{place}: a tool is made of a function; write @tool above it, or @tool(name=..., read_only=True)"
        )
    _check_options(name, description, annotations, output_schema)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolDefinitionError(f"{place}: a generator cannot be a tool; return a list")
    if name is None:
        own = getattr(function, "__name__", None)
        if not isinstance(own, str) or own == "<lambda>":
            raise ToolDefinitionError(f"{place}: it has no name; say name=...")
        name = safe_name(own)
    elif not is_safe_name(name):
        raise ToolDefinitionError(
            f"{place}: the name {name!r} does not fit ^[a-z][a-z0-9_]{{0,47}}$; {safe_name(name)!r} would"
        )
    told, arguments = read_docstring(inspect.getdoc(function))
    hints = hints_of(function, place)
    parameters = Parameters(function, hints, arguments, place)
    result = Result(hints.get("return", Any), place)
    made = Tool(
        name=name,
        description=told if description is None else description,
        parameters=parameters.schema,
        output=result.schema if output_schema is None else _object(output_schema),
        annotations=annotations,
    )
    check_definition(made)
    return Definition(made, Activity(name, _runner(function, parameters, result), copies=True))


def _check_options(name: object, description: object, annotations: Annotations, output_schema: object) -> None:
    for option, value in (("name", name), ("description", description), ("title", annotations.title)):
        if not isinstance(value, str | None):
            raise ArgumentError.of(option, "text", value)
    flags = ("read_only", "destructive", "idempotent", "open_world")
    for option, value in zip(flags, (getattr(annotations, flag) for flag in flags), strict=True):
        if not isinstance(value, bool | None):
            raise ArgumentError.of(option, "True, False or None", value)
    if not isinstance(output_schema, Mapping | None):
        raise ArgumentError.of("output_schema", "a JSON Schema (an object)", output_schema)


def _object(schema: ObjectLike) -> JSONObject:
    return cast("JSONObject", normalise(schema, what="output_schema"))


def _runner(function: Callable[..., Any], parameters: Parameters, result: Result) -> ActivityFunction:
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - whether calling an object gives a coroutine
    )

    async def run(arguments: JSONObject, context: ActivityContext) -> JSON:
        values = parameters.read(arguments, context)
        call = functools.partial(function, **values)
        if is_async:
            returned = await call()
        else:
            # A thread cannot be stopped: a cancelled call leaves it behind rather than wait for it.
            returned = await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
            if inspect.isawaitable(returned):
                returned = await cast("Any", returned)
        return result.dump(returned)

    return run
