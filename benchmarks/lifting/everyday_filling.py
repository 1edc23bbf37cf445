"""How a reasonable person fills in the form of a tool: by rule, from names, descriptions and
examples in its schema.

Somebody who calls a tool knows the inputs of the task (values by name, as told by a person), and
what they were when the tool was made. The rules, for each parameter, in this order:

1. Its example (the default, or the first of `examples`) is the recorded value of an input: it gets
   the value of now. If several inputs had that value, the one whose name is most like the
   parameter's is taken.
2. Its example contains recorded values of inputs, as a path, a query or a title does: they are
   replaced. This is done only in a text of one line, and only if no other number is left in it
   (paths and SELECT aside), because such a number was worked out.
3. It has no example and its name is that of an input, or it is required: it gets the input whose
   name has the most words in common with its name and description, each input once.
4. Else it is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from benchmarks.lifting.everyday_world import Value

LONGEST = 300
"""Characters of a text in which a person replaces something."""

Schema = dict[str, Any]


@dataclass(frozen=True)
class Form:
    """A filled form: the arguments, and what could not be filled in although it is required."""

    arguments: dict[str, object]
    missing: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    """Inputs that no parameter took."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of a task when it was recorded, and now."""

    recorded: Mapping[str, Value]
    wanted: Mapping[str, Value]


def fill(schema: Schema, inputs: Inputs, examples: Mapping[str, object]) -> Form:
    """Fill in the form of a tool; examples: recorded values of parameters that the
    schema does not tell.
    """
    arguments, missing, used = _filled(schema, inputs, examples)
    unused = tuple(name for name in inputs.wanted if name not in used and _differs(inputs, name))
    return Form(arguments, tuple(missing), unused)


def _filled(
    schema: Schema, inputs: Inputs, examples: Mapping[str, object]
) -> tuple[dict[str, object], list[str], set[str]]:
    """The arguments of an object, the required ones that are missing, and the names of the inputs
    that were used.
    """
    arguments: dict[str, object] = {}
    open_names: list[str] = []
    used: set[str] = set()
    properties = cast("dict[str, Schema]", schema.get("properties", {}))
    for name, definition in properties.items():
        if definition.get("type") == "object" and "properties" in definition:
            inner, _, inner_used = _filled(definition, inputs, examples)
            used |= inner_used
            if inner:
                arguments[name] = inner

            continue

        example = _example(name, definition, examples)
        if example is None:
            open_names.append(name)
            continue

        value, sources = _from_example(name, definition, example, inputs)
        used |= sources
        if sources:
            arguments[name] = _typed(value, definition)
        elif name in schema.get("required", ()):
            arguments[name] = example

    missing: list[str] = []
    for name in open_names:
        is_required = name in schema.get("required", ())
        source = _by_name(
            name, properties[name], [key for key in inputs.wanted if key not in used], is_required
        )
        if source is not None:
            used.add(source)
            arguments[name] = _typed(inputs.wanted[source], properties[name])
        elif is_required:
            missing.append(name)

    return arguments, missing, used


def _example(name: str, definition: Schema, examples: Mapping[str, object]) -> object:
    if definition.get("default") is not None:
        return definition["default"]
    shown = cast("list[object]", definition.get("examples") or [])
    return shown[0] if shown else examples.get(name)


def _from_example(
    name: str, definition: Schema, example: object, inputs: Inputs
) -> tuple[object, set[str]]:
    """The value of now for a parameter with this example, and the inputs that it is made of."""
    equal = [key for key, value in inputs.recorded.items() if str(value) == str(example)]
    if equal:
        best = max(equal, key=lambda key: _likeness(key, name, definition))
        return inputs.wanted[best], {best}
    if not isinstance(example, str) or "\n" in example or len(example) > LONGEST:
        return example, set()
    return _replaced(example, inputs)


def _replaced(example: str, inputs: Inputs) -> tuple[str, set[str]]:
    """A text of one line in which recorded values give way to those of now."""
    by_text = {str(value): key for key, value in inputs.recorded.items()}
    texts = sorted(by_text, key=len, reverse=True)
    pattern = "|".join(
        rf"(?<![A-Za-z0-9]){re.escape(text)}(?![A-Za-z0-9])" for text in texts if text
    )
    rest = re.sub(pattern, "", example)
    if re.search(r"\d", rest) and not example.startswith(("/", "SELECT ")):
        return example, set()

    used = {by_text[text] for text in re.findall(pattern, example)}
    return re.sub(pattern, lambda match: str(inputs.wanted[by_text[match[0]]]), example), used


def _by_name(name: str, definition: Schema, candidates: list[str], is_required: bool) -> str | None:
    """The input that a parameter without an example seems to mean."""
    if name in candidates:
        return name
    if not is_required or not candidates:
        return None
    best = max(candidates, key=lambda key: _likeness(key, name, definition))
    return best if _likeness(best, name, definition) > 0 else None


def _likeness(key: str, name: str, definition: Schema) -> float:
    """How many words the name of an input shares with a parameter; those of its name count most."""
    words = _words(key)
    described = _words(str(definition.get("description", "")))
    return len(words & _words(name)) + len(words & described) / 10


def _words(text: str) -> set[str]:
    return {word.removesuffix("s") for word in re.findall(r"[a-z]+", text.lower())}


def _typed(value: object, definition: Schema) -> object:
    """A value in the type that the schema asks for, as a form converts what is typed into it."""
    kind = definition.get("type")
    if kind == "string" and isinstance(value, int | float):
        return str(value)
    if kind in ("integer", "number") and isinstance(value, str) and value.isdigit():
        return int(value)
    return value


def _differs(inputs: Inputs, name: str) -> bool:
    return inputs.recorded.get(name) != inputs.wanted.get(name)
