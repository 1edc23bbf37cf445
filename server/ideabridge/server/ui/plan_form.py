"""A tool with fixed steps, as the fields of a form.

`PlanForm.of` reads the document of a tool, and `PlanForm.document` writes it back. A value has a
field of its own only if the field converts back to exactly this value. Everything else stays JSON,
so that a tool that is shown and submitted unchanged is still the same tool.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, cast

from ideabridge.bridge.store.idea import seen_type
from ideabridge.server.ui.access import FormFields
from ideabridge.server.ui.form_tools import FormTools
from ideabridge.server.ui.forms import Field, number_from
from ideabridge.server.ui.showing import as_json
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    decode,
    encode,
    encode_text,
    list_or_empty,
    object_or_empty,
)
from ideabridge.tools.errors import ArgumentError, IdeabridgeError
from ideabridge.tools.json_parts import with_sorted_keys
from ideabridge.tools.tool import META_PROPERTIES, ToolKey

MOST_STEPS: Final = 20
MOST_VALUES: Final = 48
"""Maximum number of values of all steps together and of values that a tool returns, so that a page
does not become too large.
"""

MOST_PARAMETERS: Final = 30

_FEW: Final = 4
"""A new step shows all values of its tool if there are at most this many. Otherwise it shows only
those that the tool requires.
"""

Source = Literal["", "value", "json", "ask", "step"]
"""Where a value comes from. "": nowhere, it is left out. value: the form, in the field of the
parameter. json: the form, as JSON. ask: the caller. step: the result of a step.
"""

_RESULT_NUMBER: Final = re.compile(r"(†results(?:\.|\[))(\d+)")
_CHANGED: Final = re.compile(r"[\x00-\x08\x0b-\x1f\ud800-\udfff]")
"""Matches characters that a browser changes when it sends a form."""

ANY_VALUE: Final = Field("", "any", "", "text or JSON", False, "", [], "", "", "")


@dataclass(frozen=True, slots=True)
class FormValue:
    """A value that a step takes or the tool returns.

    Attributes:
        name: the name of the parameter or of the returned value.
        source: see `Source`.
        text: the value as the form contains it.
        asked: for `ask`, the parameter of the tool.
        step: for `step`, the index of the step, from 0.
        part: for `step`, the part of its result, such as `orders[0].id`, or "" for all of it.
    """

    name: str
    source: Source = "value"
    text: str = ""
    asked: str = ""
    step: int = 0
    part: str = ""


_NOTHING: Final = (FormValue("", ""),)
"""The `returns` of a tool that returns nothing."""


@dataclass(frozen=True, slots=True)
class FormStep:
    """A call of a tool.

    Attributes:
        tool: the server and the name of the tool, as in the plan.
        values: the values of its parameters.
        target: `_outputPath`, or "".
        more: the other meta-properties, as JSON, or "".
    """

    tool: ToolKey
    values: tuple[FormValue, ...] = ()
    target: str = ""
    more: str = ""

    @property
    def key(self) -> str:
        """The server and the name of the tool, as one text."""
        return encode_text(list[JSON](self.tool))

    def reference(self, place: int, part: str) -> str:
        """Return the reference to a part of the result, given the index of this step as `place`."""
        whole = f"†results.{place}"
        if self.target:
            whole = self.target if self.target.startswith("†") else f"†state.{self.target}"
        if not part or part.startswith("["):
            return whole + part
        return f"{whole}.{part}"

    def part_in(self, text: str, place: int) -> str | None:
        """Return the part of the result that a reference stands for, or None if it refers to
        something else.
        """
        part = text.removeprefix(self.reference(place, "")).removeprefix(".")
        is_same = self.reference(place, part) == text
        return part if is_same and _on_one_line(part) == part else None


@dataclass(frozen=True, slots=True)
class AskedParameter:
    """A parameter that the tool asks its caller for.

    Attributes:
        name: the name of the parameter.
        example: an example, as text or JSON.
        description: what to enter.
    """

    name: str
    example: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class PlanForm:
    """The document of a tool with fixed steps, as a form contains it.

    Attributes:
        name: the name of the tool.
        description: what the tool does.
        steps: the calls that it makes.
        parameters: what it asks its callers for.
        schema: the schema of the parameters as JSON if the form cannot show it, otherwise "".
        returns: what it returns: a single value without a name, or values with names.
        rest: the other members of the document, as JSON, or "".
    """

    name: str = ""
    description: str = ""
    steps: tuple[FormStep, ...] = ()
    parameters: tuple[AskedParameter, ...] = ()
    schema: str = ""
    returns: tuple[FormValue, ...] = _NOTHING
    rest: str = ""

    # -- documents ---------------------------------------------------------------------------------

    @classmethod
    def of(cls, document: JSONObject, tools: FormTools) -> PlanForm:
        """Create the form from a document.

        Raises:
            ArgumentError: the form cannot show the document. The message says why.
        """
        rest = dict(document)
        solution = rest.pop("solution", None)
        if not isinstance(solution, dict) or "calls" not in solution:
            raise ArgumentError("Only a tool with fixed steps has a form. This one stays as text.")

        parameters: tuple[AskedParameter, ...] = ()
        schema = ""
        context = rest.pop("context", None)
        if isinstance(context, list) and context:
            parameters, schema = _parameters_in(context[0])
            others = context[1:] if parameters else context
            if others:
                rest["context"] = others

        name = str(rest.pop("name", ""))
        description = str(rest.pop("description", ""))
        reader = _Reader(tools, {parameter.name for parameter in parameters})
        steps = reader.steps(list_or_empty(solution["calls"]))
        returns = reader.returns(solution["output"]) if "output" in solution else _NOTHING
        form = cls(
            name, description, steps, parameters, schema, returns, as_json(rest) if rest else ""
        )
        if not form._stands_for(document, tools):
            raise ArgumentError("The form cannot show all of this tool, so it stays as text.")
        return form

    def _stands_for(self, document: JSONObject, tools: FormTools) -> bool:
        if not all(map(_survives, self._texts())):
            return False

        try:
            self.expect_small()
            return _is_same(self.with_asked_parameters().document(tools), document)
        except IdeabridgeError:
            return False

    def _texts(self) -> Iterator[str]:
        """Yield the texts that a browser sends back."""
        yield from (self.name, self.description, self.schema, self.rest)
        for parameter in self.parameters:
            yield from (parameter.name, parameter.example, parameter.description)
        for step in self.steps:
            yield from (step.target, step.more)
        for value in itertools.chain(self.returns, *(step.values for step in self.steps)):
            yield from (value.name, value.text, value.asked, value.part)

    def expect_small(self) -> None:
        """Raise `ArgumentError` if the form is too large for a page."""
        count = len(self.returns) + sum(len(step.values) for step in self.steps)
        if len(self.steps) > MOST_STEPS:
            raise ArgumentError(f"A form has at most {MOST_STEPS} steps. Write the tool as text.")
        if count > MOST_VALUES:
            raise ArgumentError(f"A form has at most {MOST_VALUES} values. Write the tool as text.")
        if len(self.parameters) > MOST_PARAMETERS:
            raise ArgumentError(
                f"A form asks for at most {MOST_PARAMETERS} values. Write the tool as text."
            )

    def document(self, tools: FormTools) -> JSONObject:
        """Return the document that the form describes.

        Raises:
            ArgumentError: a field does not contain a value of its type.
        """
        document = _object_in(self.rest, "What the form does not show")
        context: list[JSON] = []
        if self.parameters:
            context.append(_input_of(self.parameters, self.schema))
        document["context"] = [*context, *list_or_empty(document.get("context"))]
        if self.name.strip():
            document["name"] = _on_one_line(self.name)
        if self.description:
            document["description"] = self.description

        calls: list[JSON] = [self._call(place, tools) for place in range(len(self.steps))]
        solution: JSONObject = {"calls": calls}
        returned = [value for value in self.returns if value.source]
        if len(returned) == 1 and not returned[0].name:
            solution["output"] = self._written(returned[0], ANY_VALUE, "What it returns")
        elif returned:
            values: JSONObject = {}
            for value in returned:
                name = _new_name(value.name, values, "What it returns")
                values[name] = self._written(value, ANY_VALUE, "What it returns")
            solution["output"] = values
        document["solution"] = solution
        return document

    def _call(self, place: int, tools: FormTools) -> JSONObject:
        step = self.steps[place]
        module, tool = step.tool
        where = f"Step {place + 1}"
        fields = tools.fields(step.tool)
        call: JSONObject = {"_tool": tool}
        if module is not None:
            call["_module"] = module
        for value in step.values:
            if not value.source:
                continue
            name = _new_name(value.name, call, where)
            field = fields.get(name, ANY_VALUE)
            call[name] = self._written(value, field, f"{where}, {name}", place)

        call |= _object_in(step.more, f"{where}, how it runs")
        if step.target:
            call["_outputPath"] = step.target
        return call

    def _written(
        self, value: FormValue, field: Field, where: str, before: int = MOST_STEPS
    ) -> JSON:
        """Return a value as the plan contains it. A step that it comes from must be before step
        `before`.
        """
        if value.source == "ask":
            asked = value.asked.strip()
            if not asked:
                raise ArgumentError(f"{where}: name what the caller is asked for.")
            return f"†input.{asked}"
        if value.source == "step":
            if not 0 <= value.step < min(before, len(self.steps)):
                raise ArgumentError(f"{where}: choose a step that runs before it.")
            return self.steps[value.step].reference(value.step, value.part.strip())
        if value.source == "json":
            return _decoded(value.text, where, "JSON")
        return _read_text(value.text, field, where)

    # -- changes -----------------------------------------------------------------------------------

    def with_step(self, tool: ToolKey, tools: FormTools) -> PlanForm:
        """Return the form with a step added. If the tool returned the last step's result, it now
        returns that of the new step.
        """
        last = len(self.steps) - 1
        fields = tools.fields(tool).values()
        values = tuple(
            FormValue(field.name, "value" if field.required else "")
            for field in fields
            if field.required or len(fields) <= _FEW
        )
        returns = self.returns
        if returns in (_NOTHING, (FormValue("", "step", step=last),)):
            returns = (FormValue("", "step", step=last + 1),)
        return replace(self, steps=(*self.steps, FormStep(tool, values)), returns=returns)

    def with_value(self, place: int, name: str) -> PlanForm:
        """Return the form with a value added to the step at `place`. If `name` is empty, the person
        names the value.
        """
        steps = list(self.steps)
        step = steps[place]
        steps[place] = replace(step, values=(*step.values, FormValue(name)))
        return replace(self, steps=tuple(steps))

    def with_returned(self) -> PlanForm:
        """Return the form with another value that the tool returns."""
        return replace(self, returns=(*self.returns, FormValue("")))

    def in_order(self, order: Sequence[int]) -> PlanForm:
        """Return the form with only the steps in `order`, in this order."""
        places = {before: now for now, before in enumerate(order)}
        return replace(
            self,
            steps=tuple(
                replace(step, values=_with_places(step.values, places))
                for step in (self.steps[place] for place in order)
            ),
            returns=_with_places(self.returns, places),
        )

    def without_blanks(self) -> PlanForm:
        """Return the form without values that have not been entered yet."""
        return replace(
            self,
            steps=tuple(replace(step, values=_entered(step.values)) for step in self.steps),
            returns=_entered(self.returns),
        )

    def with_asked_parameters(self) -> PlanForm:
        """Return the form with a parameter for each value that the tool asks its caller for, and
        without parameters that are unused and have no example or description. Unused parameters
        stay if the form has a schema that it does not show, because the schema may say more about
        them.
        """
        every = [*self.returns, *(value for step in self.steps for value in step.values)]
        asked = [_root(value.asked) for value in every if value.source == "ask" and value.asked]
        parameters = [
            parameter
            for parameter in self.parameters
            if parameter.name
            and (
                self.schema or parameter.name in asked or parameter.example or parameter.description
            )
        ]
        known = {parameter.name for parameter in parameters}
        parameters += [AskedParameter(name) for name in dict.fromkeys(asked) if name not in known]
        return replace(self, parameters=tuple(parameters))


def _entered(values: Iterable[FormValue]) -> tuple[FormValue, ...]:
    return tuple(
        replace(value, source="") if value.source == "value" and not value.text.strip() else value
        for value in values
    )


def _root(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def _with_places(values: Iterable[FormValue], places: dict[int, int]) -> tuple[FormValue, ...]:
    """Return the values, with the indexes of the steps that they come from replaced according to
    `places`.
    """

    def renumbered(match: re.Match[str]) -> str:
        return f"{match[1]}{places.get(int(match[2]), match[2])}"

    moved: list[FormValue] = []
    for value in values:
        if value.source == "step" and value.step in places:
            moved.append(replace(value, step=places[value.step]))
        elif value.source == "step":
            moved.append(FormValue(value.name))
        else:
            moved.append(replace(value, text=_RESULT_NUMBER.sub(renumbered, value.text)))
    return tuple(moved)


class _Reader:
    """Reads the calls and the output of a plan.

    Args:
        tools: the tools that the plan can call.
        asked: the names of the parameters that the form shows.
    """

    def __init__(self, tools: FormTools, asked: set[str]) -> None:
        self._tools = tools
        self._asked = asked
        self._read: list[FormStep] = []

    def steps(self, calls: list[JSON]) -> tuple[FormStep, ...]:
        for call in calls:
            self._read.append(self._step(object_or_empty(call)))
        return tuple(self._read)

    def _step(self, call: JSONObject) -> FormStep:
        module = call.get("_module")
        key = (None if module is None else str(module), str(call.get("_tool", "")))
        target = call.get("_outputPath")
        more = {
            name: value
            for name, value in call.items()
            if name in META_PROPERTIES and name not in ("_tool", "_module", "_outputPath")
        }
        if not isinstance(target, str):
            target = ""

        fields = self._tools.fields(key)
        values = [
            self.value(name, value, fields.get(name, ANY_VALUE))
            for name, value in call.items()
            if name not in META_PROPERTIES
        ]
        return FormStep(key, tuple(values), target, as_json(more) if more else "")

    def returns(self, output: JSON) -> tuple[FormValue, ...]:
        if isinstance(output, dict) and output and "" not in output:
            return tuple(self.value(name, value, ANY_VALUE) for name, value in output.items())
        return (self.value("", output, ANY_VALUE),)

    def value(self, name: str, value: JSON, field: Field) -> FormValue:
        """Read a value that can come from the steps read so far."""
        if isinstance(value, str):
            path = value.removeprefix("†input.")
            if path != value and _root(path) in self._asked and _on_one_line(path) == path:
                return FormValue(name, "ask", asked=path)
            for place, step in enumerate(self._read):
                part = step.part_in(value, place)
                if part is not None:
                    return FormValue(name, "step", step=place, part=part)

        text = _as_text(value, field)
        if text is None:
            return FormValue(name, "json", as_json(value))
        return FormValue(name, "value", text)


# -- values ----------------------------------------------------------------------------------------


def _as_text(value: JSON, field: Field) -> str | None:
    """Return the text that represents a value in a field, or None if no text can."""
    text = value if isinstance(value, str) else as_json(value)
    if isinstance(value, str) and field.kind == "any" and not _reads_as(text, field, value):
        text = as_json(value)
    return text if _survives(text) and _reads_as(text, field, value) else None


def _reads_as(text: str, field: Field, value: JSON) -> bool:
    try:
        return _is_same(_read_text(text, field, ""), value)
    except ArgumentError:
        return False


def _read_text(text: str, field: Field, where: str) -> JSON:
    """Read the value in a field."""
    if not text.strip():
        raise ArgumentError(f"{where}: enter a value.")
    if field.kind in ("text", "long"):
        return text
    if field.kind == "any":
        try:
            return decode(text, what=where)
        except IdeabridgeError:
            return text

    value = _decoded(text, where, field.takes)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if field.kind == "number" and not is_number:
        raise ArgumentError(f"{where}: expected {field.takes}, found {text[:80]!r}.")
    if field.kind == "choice" and all(text != option for _, option in field.choices):
        raise ArgumentError(f"{where}: expected {field.takes}, found {text[:80]!r}.")
    return value


def _decoded(text: str, where: str, expected: str) -> JSON:
    try:
        return decode(text, what=where)
    except IdeabridgeError:
        raise ArgumentError(f"{where}: expected {expected}, found {text[:80]!r}.") from None


def _object_in(text: str, where: str) -> JSONObject:
    value = _decoded(text, where, "an object, as JSON") if text.strip() else {}
    if not isinstance(value, dict):
        raise ArgumentError(f"{where}: expected an object, as JSON.")
    return value


def _new_name(written: str, values: JSONObject, where: str) -> str:
    """Return the name of another value, which must not be taken.

    Raises:
        ArgumentError: the name is empty or taken.
    """
    name = _on_one_line(written)
    if not name:
        raise ArgumentError(f"{where}: every value needs a name.")
    if name in values or name in META_PROPERTIES:
        raise ArgumentError(f"{where}: the name {name[:80]!r} is taken.")
    return name


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _survives(text: str) -> bool:
    """Return whether a browser sends the text back unchanged."""
    return not text.startswith("\n") and _CHANGED.search(text) is None


def _is_same(first: JSON, second: JSON) -> bool:
    """Return whether two values are the same JSON, regardless of the order of members."""
    return encode(with_sorted_keys(first)) == encode(with_sorted_keys(second))


# -- parameters ------------------------------------------------------------------------------------


def _input_of(parameters: Iterable[AskedParameter], schema: str) -> JSONObject:
    """Return the message that declares the parameters. It contains a schema if a parameter has a
    description or lacks an example, which examples alone cannot express.
    """
    examples: JSONObject = {}
    properties: JSONObject = {}
    is_said = True
    for parameter in parameters:
        name = _new_name(parameter.name, properties, "What it asks for")
        keywords: JSONObject = {}
        if parameter.example:
            example = _read_text(parameter.example, ANY_VALUE, name)
            examples[name] = example
            keywords = seen_type(example)
        if parameter.description:
            keywords["description"] = _on_one_line(parameter.description)
        if parameter.description or not parameter.example:
            is_said = False
        properties[name] = keywords

    message: JSONObject = {"type": "input", "input": examples}
    if schema:
        message["schema"] = _object_in(schema, "The schema of the parameters")
    elif not is_said:
        required = list[JSON](properties)
        message["schema"] = {"type": "object", "properties": properties, "required": required}
    return message


def _parameters_in(message: JSON) -> tuple[tuple[AskedParameter, ...], str]:
    """Return the parameters that a message declares, with their schema if the form cannot show it.
    If the form cannot show the parameters either, return none of them.
    """
    message = object_or_empty(message)
    examples = object_or_empty(message.get("input"))
    schema = object_or_empty(message.get("schema"))
    properties = object_or_empty(schema.get("properties"))
    parameters: list[AskedParameter] = []
    for name in dict.fromkeys([*properties, *examples]):
        text = _as_text(examples[name], ANY_VALUE) if name in examples else ""
        description = object_or_empty(properties.get(name)).get("description", "")
        parameters.append(AskedParameter(name, text or "", str(description)))

    for written in ("", as_json(schema)):
        try:
            is_same = _is_same(_input_of(parameters, written), message)
        except ArgumentError:
            is_same = False
        if is_same:
            return tuple(parameters), written
    return (), ""


# -- forms -----------------------------------------------------------------------------------------


def read_plan_form(form: FormFields) -> PlanForm:
    """Read the fields of a form.

    Raises:
        ArgumentError: the form is too large or does not come from this page.
    """
    fields: dict[str, str] = {}
    for name, value in form.fields:
        fields.setdefault(name, value.replace("\r\n", "\n"))

    steps: list[FormStep] = []
    while f"s{len(steps)}.tool" in fields and len(steps) <= MOST_STEPS:
        place = f"s{len(steps)}"
        steps.append(
            FormStep(
                tool_key(fields[f"{place}.tool"]),
                _values_of(fields, f"{place}.v"),
                fields.get(f"{place}.target", ""),
                fields.get(f"{place}.more", ""),
            )
        )

    parameters: list[AskedParameter] = []
    while f"p{len(parameters)}.name" in fields and len(parameters) <= MOST_PARAMETERS:
        place = f"p{len(parameters)}"
        parameters.append(
            AskedParameter(
                fields[f"{place}.name"],
                fields.get(f"{place}.example", ""),
                fields.get(f"{place}.description", ""),
            )
        )

    read = PlanForm(
        fields.get("name", ""),
        fields.get("description", ""),
        tuple(steps),
        tuple(parameters),
        fields.get("schema", ""),
        _values_of(fields, "r") or _NOTHING,
        fields.get("rest", ""),
    )
    read.expect_small()
    return read.with_asked_parameters()


def _values_of(fields: dict[str, str], prefix: str) -> tuple[FormValue, ...]:
    values: list[FormValue] = []
    while f"{prefix}{len(values)}.source" in fields and len(values) <= MOST_VALUES:
        place = f"{prefix}{len(values)}"
        value = FormValue(
            fields.get(f"{place}.name", ""),
            "",
            fields.get(f"{place}.text", ""),
            fields.get(f"{place}.asked", ""),
            0,
            fields.get(f"{place}.part", ""),
        )
        values.append(_from_source(value, fields[f"{place}.source"]))
    return tuple(values)


def _from_source(value: FormValue, written: str) -> FormValue:
    """Return the value with the source chosen in its list: the name of a source, `step0` for the
    result of a step, or `step0:id` for a part of it.
    """
    if written == "ask":
        return replace(value, source="ask", asked=value.asked or value.name)
    if written in ("", "value", "json"):
        return replace(value, source=cast("Source", written))
    step, _, part = written.removeprefix("step").partition(":")
    return replace(value, source="step", step=number_from(step) or 0, part=part or value.part)


def tool_key(text: str) -> ToolKey:
    """Parse the key of a tool from a form.

    Raises:
        ArgumentError: the text is not the key of a tool.
    """
    try:
        key = decode(text, what="the tool")
    except IdeabridgeError:
        key = None
    match key:
        case [None | str() as module, str() as name]:
            return module, name
        case _:
            raise ArgumentError(f"{text[:80]!r} is not a tool. Choose one from the list.")
