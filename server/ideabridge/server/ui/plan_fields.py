"""Plan fields: the fields of a `PlanForm` in the form in which its page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ideabridge.server.ui.forms import Field
from ideabridge.server.ui.plan_form import ANY_VALUE, FormStep, FormTools, FormValue, PlanForm
from ideabridge.server.ui.playground import group_of, place_of_group
from ideabridge.server.ui.tool_texts import about_tool
from ideabridge.tools.encoding import JSON, encode_text

_MOST_RESULTS: Final = 8
"""Number of the latest steps whose results a value can be chosen from. A list with all of them
would make the page of a long tool too large.
"""

_MOST_PARTS: Final = 8
"""Number of parts of the latest result that a list of choices names."""

_LONGEST_LINE: Final = 22
"""Number of characters that a field of one line shows."""

MOST_TOOLS: Final = 400
"""Number of tools that a person can choose from."""


@dataclass(frozen=True, slots=True)
class FormOption:
    """An option of a list of choices."""

    value: str
    words: str


@dataclass(frozen=True, slots=True)
class FormOptions:
    """Options under one heading."""

    title: str
    choices: tuple[FormOption, ...]


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A value of a step, or one that the tool returns.

    Attributes:
        prefix: the beginning of the names of its inputs.
        field: the field of the value that a person enters.
        value: the value.
        source: the option that is chosen.
        sources: the options that are not about a step.
        is_named_here: whether a person writes the name of the value, too.
    """

    prefix: str
    field: Field
    value: FormValue
    source: str
    sources: tuple[FormOption, ...]
    is_named_here: bool

    @property
    def is_long(self) -> bool:
        """True if the value needs several lines."""
        is_list = self.field.kind in ("json", "long") or self.value.source == "json"
        return is_list or "\n" in self.value.text or len(self.value.text) > _LONGEST_LINE

    @property
    def is_choice(self) -> bool:
        """True if a person chooses the value from a list."""
        return self.field.kind == "choice" and self.value.source != "json"


@dataclass(frozen=True, slots=True)
class ShownStep:
    """A step.

    Attributes:
        step: the step.
        about: what its tool does, or "" if the tool is not here.
        is_here: whether its tool is here.
        values: the values that it takes.
        others: the names of the parameters for which it has no value.
        results: the results that its values can come from.
        takes_more: whether its tool takes parameters of any name.
    """

    step: FormStep
    about: str
    is_here: bool
    values: list[ShownValue]
    others: list[str]
    results: list[FormOptions]
    takes_more: bool


@dataclass(frozen=True, slots=True)
class PlanFields:
    """The fields of a form.

    Attributes:
        form: the form.
        steps: its steps.
        returns: the values that the tool returns.
        results: the results that the returned values can come from.
        tools: the tools that a further step can call.
        left_out: the number of tools that are not among them.
    """

    form: PlanForm
    steps: list[ShownStep]
    returns: list[ShownValue]
    results: list[FormOptions]
    tools: list[FormOptions]
    left_out: int

    @classmethod
    def of(cls, form: PlanForm, tools: FormTools) -> PlanFields:
        """Show a form."""
        steps = [_shown_step(place, form, tools) for place in range(len(form.steps))]
        results = _results_before(len(form.steps), form, tools)
        returns = [
            _shown_value(f"r{number}", value, ANY_VALUE, results, is_named_here=True)
            for number, value in enumerate(form.returns)
        ]
        left_out = max(len(tools.all) - MOST_TOOLS, 0)
        return cls(form, steps, returns, results, _grouped(tools), left_out)


def _grouped(tools: FormTools) -> list[FormOptions]:
    """Return the tools to choose from, by server."""
    by_group: dict[str, list[FormOption]] = {}
    for tool in tools.all[:MOST_TOOLS]:
        choice = FormOption(encode_text(list[JSON](tool.key)), tool.name)
        by_group.setdefault(group_of(tool), []).append(choice)

    names = sorted(by_group, key=place_of_group)
    return [FormOptions(name, tuple(by_group[name])) for name in names]


def _results_before(place: int, form: PlanForm, tools: FormTools) -> list[FormOptions]:
    """Return the results of the latest steps before a place, and the parts of the latest one."""
    groups: list[FormOptions] = []
    for number in range(max(place - _MOST_RESULTS, 0), place):
        tool = form.steps[number].tool
        choices = [FormOption(f"step{number}", f"Result of step {number + 1}")]
        if number == place - 1:
            parts = tools.results(tool)[:_MOST_PARTS]
            choices += [
                FormOption(f"step{number}:{part}", f"{part} of step {place}") for part in parts
            ]
        groups.append(FormOptions(f"Step {number + 1}, {tool[1][:60]}", tuple(choices)))
    return groups


def _shown_step(place: int, form: PlanForm, tools: FormTools) -> ShownStep:
    step = form.steps[place]
    tool = tools.find(step.tool)
    fields = tools.fields(step.tool)
    results = _results_before(place, form, tools)
    values = [
        _shown_value(
            f"s{place}.v{number}",
            value,
            fields.get(value.name, ANY_VALUE),
            results,
            is_named_here=value.name not in fields,
        )
        for number, value in enumerate(step.values)
    ]
    present = {value.name for value in step.values}
    return ShownStep(
        step,
        about="" if tool is None else about_tool(tool),
        is_here=tool is not None,
        values=values,
        others=[name for name in fields if name not in present],
        results=results,
        takes_more=tools.takes_more(step.tool),
    )


def _shown_value(
    prefix: str,
    value: FormValue,
    field: Field,
    results: Sequence[FormOptions],
    *,
    is_named_here: bool,
) -> ShownValue:
    sources = [FormOption("value", "This value"), FormOption("ask", "Ask each time")]
    if value.source == "json":
        sources.append(FormOption("json", "This value, as JSON"))
    if not field.required or not value.source:
        sources.append(FormOption("", "Nothing" if prefix.startswith("r") else "Leave it out"))

    source: str = value.source
    if value.source == "step":
        source = f"step{value.step}"
        offered = {choice.value for group in results for choice in group.choices}
        if f"{source}:{value.part}" in offered:
            source = f"{source}:{value.part}"
        elif source not in offered:
            sources.append(FormOption(source, f"Result of step {value.step + 1}"))
    return ShownValue(prefix, field, value, source, tuple(sources), is_named_here)
