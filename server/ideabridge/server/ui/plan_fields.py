"""The fields of a `PlanForm` as its page shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ideabridge.server.ui.form_tools import FormTools
from ideabridge.server.ui.forms import Field
from ideabridge.server.ui.plan_form import ANY_VALUE, FormStep, FormValue, PlanForm
from ideabridge.server.ui.playground import group_of, place_of_group
from ideabridge.server.ui.reference_words import parameter_title
from ideabridge.server.ui.tool_texts import about_tool
from ideabridge.tools.encoding import JSON, encode_text
from ideabridge.tools.tool import Tool

_MOST_RESULTS: Final = 8
"""Number of the latest steps whose results can be chosen for a value. A list of all results would
make the page of a long tool too large.
"""

_MOST_PARTS: Final = 400
"""Maximum number of result parts in all lists of choices on a page together."""

_LONGEST_LINE: Final = 22
"""Number of characters that a single-line field shows."""

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
    """A value that a step takes or the tool returns.

    Attributes:
        prefix: the prefix of its inputs' names.
        title: what people read as its name.
        field: the field for entering the value.
        value: the value.
        source: the chosen option.
        part: the part of a result that is not among the options, so that a person has to type it,
            or "".
        sources: the options that do not refer to a step.
        is_named_here: whether a person also types the name of the value.
    """

    prefix: str
    title: str
    field: Field
    value: FormValue
    source: str
    part: str
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
    """A step as the page shows it.

    Attributes:
        step: the step.
        title: the title of its tool.
        about: what its tool does, or "" if the tool is not available here.
        is_here: whether its tool is available here.
        values: the values that it takes.
        others: the names of the parameters that have no value.
        results: the results that its values can come from.
        takes_more: whether its tool takes parameters of any name.
    """

    step: FormStep
    title: str
    about: str
    is_here: bool
    values: list[ShownValue]
    others: list[str]
    results: list[FormOptions]
    takes_more: bool


@dataclass(frozen=True, slots=True)
class PlanFields:
    """The fields of a form as its page shows them.

    Attributes:
        form: the form.
        steps: its steps.
        returns: the values that the tool returns.
        results: the results that the returned values can come from.
        tools: the tools that another step can call.
        left_out: how many tools are not among them.
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
        results = _StepResults(form, tools)
        steps = [
            _shown_step(place, step, tools, results.before(place))
            for place, step in enumerate(form.steps)
        ]
        all_results = results.before(len(form.steps))
        returns = [
            _shown_value(
                f"r{number}", value, ANY_VALUE, all_results, title=value.name, is_named_here=True
            )
            for number, value in enumerate(form.returns)
        ]
        left_out = max(len(tools.all) - MOST_TOOLS, 0)
        return cls(form, steps, returns, all_results, _grouped(tools), left_out)


class _StepResults:
    """The results of the steps of a form, as options for the values of later steps."""

    def __init__(self, form: PlanForm, tools: FormTools) -> None:
        self._tools = tools
        self._keys = [step.tool for step in form.steps]
        self._titles = _distinct_titles([tools.title(key) for key in self._keys])
        values = len(form.returns) + sum(len(step.values) for step in form.steps)
        self._most_parts = _MOST_PARTS // max(values, 1)

    def before(self, place: int) -> list[FormOptions]:
        """Return the results of the latest steps before the step at `place`, with their parts. If
        there are too many parts, only those of the latest steps are listed.
        """
        first = max(place - _MOST_RESULTS, 0)
        room = self._most_parts
        latest_first: list[FormOptions] = []
        for number in reversed(range(first, place)):
            title = self._titles[number]
            parts = self._tools.parts(self._keys[number])[:room]
            room -= len(parts)
            options = [FormOption(f"step{number}", f"Result of {title}")]
            options += [
                FormOption(f"step{number}:{part.path}", f"{part.words} of {title}")
                for part in parts
            ]
            latest_first.append(FormOptions(title, tuple(options)))

        return latest_first[::-1]


def _distinct_titles(titles: Sequence[str]) -> list[str]:
    """Return the titles of steps, with the step number appended to titles that occur more than
    once.
    """
    totals = Counter(titles)
    return [
        f"{title} (step {number})" if totals[title] > 1 else title
        for number, title in enumerate(titles, 1)
    ]


def _grouped(tools: FormTools) -> list[FormOptions]:
    """Return the tools to choose from, by server."""
    by_group: dict[str, list[Tool]] = {}
    for tool in tools.all[:MOST_TOOLS]:
        by_group.setdefault(group_of(tool), []).append(tool)

    names = sorted(by_group, key=place_of_group)
    return [FormOptions(name, _choices_among(by_group[name], tools)) for name in names]


def _choices_among(group: Sequence[Tool], tools: FormTools) -> tuple[FormOption, ...]:
    """Return the tools of one group by title, with the tool name appended to titles that occur more
    than once.
    """
    titles = {tool.key: tools.title(tool.key) for tool in group}
    totals = Counter(titles.values())
    choices: list[FormOption] = []
    for tool in sorted(group, key=lambda tool: titles[tool.key]):
        title = titles[tool.key]
        words = f"{title} ({tool.name})" if totals[title] > 1 else title
        choices.append(FormOption(encode_text(list[JSON](tool.key)), words))
    return tuple(choices)


def _shown_step(
    place: int, step: FormStep, tools: FormTools, results: list[FormOptions]
) -> ShownStep:
    tool = tools.find(step.tool)
    fields = tools.fields(step.tool)
    values = [
        _shown_value(
            f"s{place}.v{number}",
            value,
            fields.get(value.name, ANY_VALUE),
            results,
            title=parameter_title(step.tool, value.name),
            is_named_here=value.name not in fields,
        )
        for number, value in enumerate(step.values)
    ]
    present = {value.name for value in step.values}
    return ShownStep(
        step,
        title=tools.title(step.tool),
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
    title: str,
    is_named_here: bool,
) -> ShownValue:
    sources = [FormOption("value", "Always this"), FormOption("ask", "Ask each time")]
    if value.source == "json":
        sources.append(FormOption("json", "Always this, as JSON"))
    if not field.required or not value.source:
        sources.append(FormOption("", "Nothing" if prefix.startswith("r") else "Leave it out"))

    source: str = value.source
    part = value.part
    if value.source == "step":
        source = f"step{value.step}"
        offered = {choice.value for group in results for choice in group.choices}
        if f"{source}:{part}" in offered:
            source = f"{source}:{part}"
            part = ""
        elif source not in offered:
            sources.append(FormOption(source, f"Result of step {value.step + 1}"))
    return ShownValue(prefix, title, field, value, source, part, tuple(sources), is_named_here)
