"""Check the values that a Python program passes to a bridge.

A failed check raises `ArgumentError`, which says which argument is wrong, what was expected and
what was found. If a value inside an argument is not JSON, `InvalidJSONError` is raised instead. The
parameters have the type `object` because the checks are meant for programs without a type checker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from ideabridge.tools.encoding import JSON, JSONObject, normalise
from ideabridge.tools.errors import ArgumentError

if TYPE_CHECKING:
    from ideabridge.bridge.plan import Plan

_DECODE: Final = "json.loads reads JSON text"


def check_parts(
    *,
    configuration: object,
    toolbox: object,
    store: object,
    handlers: object,
    mind: object,
    approver: object,
) -> None:
    """Check the arguments of `Bridge`."""
    from ideabridge.bridge.configuration import Configuration
    from ideabridge.bridge.context.messages import Handlers
    from ideabridge.bridge.store.store import Store
    from ideabridge.tools.toolbox import Toolbox

    if not isinstance(configuration, Configuration | None):
        hint = "read an object with parse_configuration, and a file with load_configuration"
        raise ArgumentError.of("configuration", "a Configuration", configuration, hint)
    if not isinstance(toolbox, Toolbox | None):
        raise ArgumentError.of(
            "toolbox", "a Toolbox", toolbox, "write Toolbox(f, g) with your functions f and g"
        )

    if not isinstance(store, Store | Path | str | None):
        raise ArgumentError.of("store", "a path or an open Store", store)
    if not isinstance(handlers, Handlers | None):
        hint = "make Handlers() and register each handler for its type of message"
        raise ArgumentError.of("handlers", "Handlers", handlers, hint)

    is_mind = isinstance(getattr(mind, "name", None), str) and callable(getattr(mind, "answer", 0))
    if mind is not None and not is_mind and (not callable(mind) or isinstance(mind, type)):
        hint = "to use a model endpoint, configure it: Bridge(Configuration(model=...))"
        expected = "a function that takes a Request, or an object with a name and a method `answer`"
        raise ArgumentError.of("mind", expected, mind, hint)

    check_approver(approver)


def check_approver(approver: object) -> None:
    """Check that an approver can be called, or is None."""
    if approver is not None and not callable(approver):
        raise ArgumentError.of("approver", "a function that takes an ApprovalRequest", approver)


def check_text(name: str, value: object) -> None:
    """Check that an argument is a string."""
    if not isinstance(value, str):
        raise ArgumentError.of(name, "text", value)


def check_object(name: str, value: object, hint: str = "") -> None:
    """Check that an argument is an object (a dict), or None."""
    if value is not None and not isinstance(value, Mapping):
        raise ArgumentError.of(
            name, "an object (a dict)", value, hint or (_DECODE if isinstance(value, str) else "")
        )


def read_object(name: str, value: object, hint: str = "") -> JSONObject | None:
    """Read an argument that is a JSON object or None."""
    check_object(name, value, hint)
    if value is None:
        return None
    return cast("JSONObject", normalise(value, what=name))


def read_objects(name: str, value: object) -> list[JSONObject]:
    """Read an argument that is a sequence of JSON objects."""
    objects: list[JSONObject] = []
    for place, element in enumerate(
        _listed(name, value, "a list of objects", "put it into a list")
    ):
        entry = read_object(f"{name}[{place}]", element)
        if entry is None:
            raise ArgumentError.of(f"{name}[{place}]", "an object (a dict)", None)
        objects.append(entry)

    return objects


def read_schema(name: str, value: object) -> JSONObject | None:
    """Read an argument that is a JSON Schema or None."""
    if isinstance(value, type):
        raise ArgumentError.of(
            name,
            "a JSON Schema (a dict)",
            value,
            f"pass a type as output: output={value.__name__}",
        )
    return read_object(
        name, value, "" if value is None else 'a schema is an object such as {"type": "integer"}'
    )


def check_type(name: str, value: object) -> None:
    """Check that an argument is None or a type, rather than a value.

    This does not check whether pydantic supports the type.
    """
    if isinstance(value, Mapping | bool | int | float | str | list | tuple):
        hint = "pass a JSON Schema as output_schema" if isinstance(value, Mapping) else ""
        raise ArgumentError.of(
            name, "a type, such as int or a pydantic model", cast("object", value), hint
        )


def read_names(name: str, value: object) -> list[str] | None:
    """Read an argument that is a collection of names or patterns, or None."""
    if value is None:
        return None
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        hint = f"write [{value!r}]" if isinstance(value, str) else ""
        raise ArgumentError.of(name, "a list of names or patterns", cast("object", value), hint)

    names = list(cast("Iterable[object]", value))
    for place, one in enumerate(names):
        if not isinstance(one, str):
            hint = "give the name of the tool"
            raise ArgumentError.of(f"{name}[{place}]", "text", one, hint)

    return cast("list[str]", names)


def read_messages(name: str, value: object) -> list[JSON]:
    """Read an argument that is a sequence of context messages, or None for an empty context."""
    if value is None:
        return []
    listed = _listed(
        name, value, "a list of messages", 'a message is {"role", "content"} or {"type", ...}'
    )
    return [normalise(message, what=f"{name}[{place}]") for place, message in enumerate(listed)]


def read_context_document(document: JSON, what: str) -> tuple[list[JSON], list[str]]:
    """Read a context that a person wrote: a list of messages, or an object with the list in its
    member `context`.

    Args:
        document: the list or the object.
        what: the name of the document in error messages.

    Returns:
        (messages, names). The names are those of the ignored members, such as the schema and the
        solution in the document of an idea.

    Raises:
        ArgumentError: the document has neither form.
    """
    unknown: list[str] = []
    messages = document
    if isinstance(document, dict):
        if "context" not in document:
            raise ArgumentError(
                f'{what}: expected a list of messages, or {{"context": [...]}}; found no context'
            )
        messages = document["context"]
        unknown = [name for name in document if name != "context"]

    if not isinstance(messages, list):
        raise ArgumentError.of(what, "a list of messages", messages)
    return messages, unknown


def read_given_plan(
    plan: object,
    *,
    calls: object = None,
    input: object = None,  # noqa: A002 - the vocabulary's word
    instances: object = None,
    output: object = None,
) -> Plan:
    """Read a plan from a program's arguments: either `plan`, or `calls`, `instances` and `output`.

    Args:
        plan: a `Plan`, or an object that `read_plan` reads.
        calls: the calls.
        instances: initial states keyed by instance.
        output: the output, with references.
        input: the input. Its properties replace those of the plan's own input.

    Raises:
        PlanError: the plan is malformed.
    """
    from dataclasses import replace

    from ideabridge.bridge.plan import Plan, read_plan

    document = read_object("input", input)
    if plan is None:
        if calls is None:
            raise ArgumentError("plan: expected either a plan or its calls, found neither")
        parts: dict[str, Any] = {"calls": read_objects("calls", calls)}
        parts |= {
            "input": document,
            "instances": read_object("instances", instances),
            "output": output,
        }
        return read_plan(parts)

    if calls is not None or instances is not None or output is not None:
        raise ArgumentError(
            "plan: expected either a plan or its parts (calls, instances and output), found both"
        )

    if not isinstance(plan, Plan):
        if not isinstance(plan, Mapping) and not _is_sequence(plan):
            hint = _DECODE if isinstance(plan, str) else ""
            raise ArgumentError.of("plan", 'a Plan, or {"calls": [...]}', plan, hint)
        plan = read_plan(cast("Mapping[str, object]", plan))

    if document is not None:
        plan = replace(plan, input={**(plan.input or {}), **document})
    return plan.by_instance()


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _listed(name: str, value: object, expected: str, hint: str) -> Sequence[object]:
    if not _is_sequence(value):
        raise ArgumentError.of(name, expected, value, hint)
    return cast("Sequence[object]", value)
