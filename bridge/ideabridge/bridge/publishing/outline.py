"""The facts about a run that publishing needs, without the run's calls and their results.

Folding a long run takes seconds, so the process that lifts the run folds it only once, and returns
what the server needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from ideabridge.bridge.context.written_call import title_of_tools
from ideabridge.bridge.lifting.function import Function
from ideabridge.bridge.lifting.naming import first_sentence
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.publishing.programs import own_program
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.names import joined

_MOST_NAMED: Final = 8
"""The maximum number of tools, or of properties of the output, that a description names."""


@dataclass(frozen=True, slots=True)
class Outline:
    """The facts about a run that publishing needs.

    Attributes:
        run: the id of the run.
        idea: the id of the idea that the run ended with.
        status: the status that the run ended with.
        has_results: whether at least one call of the run succeeded.
        description: the description of the run's idea in one sentence, or "" if the run called no
            tool and has no task.
        input: the value of `†input`, or None if the idea takes no input.
        input_schema: the parameters of the tool.
        output_schema: the schema of the tool's result, or None if none was declared.
        result: the run's result as a function, or None if the run is not done.
        program: the program of the run, or None if the run also made calls outside a program.
        catalogue: the tools of the run.
    """

    run: str
    idea: str
    status: str
    has_results: bool
    description: str
    input: JSONObject | None
    input_schema: JSONObject
    output_schema: JSONObject | None
    result: JSON
    program: str | None
    catalogue: Catalogue

    @property
    def is_done(self) -> bool:
        """Whether the run ended successfully."""
        return self.status == "done"

    def to_json(self) -> JSONObject:
        """Return the outline as JSON, for another process."""
        members: dict[str, Any] = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self)
        }
        tools, latent = self.catalogue.to_json()
        return {**members, "catalogue": [tools, latent]}

    @classmethod
    def from_json(cls, raw: JSON) -> Outline:
        """Read what `to_json` wrote."""
        members = dict(cast("dict[str, Any]", raw))
        tools, latent = members.pop("catalogue")
        return cls(**members, catalogue=Catalogue.from_json(tools, latent))


def outline_of(function: Function) -> Outline:
    """Return the outline of a run to publish."""
    run = function.run
    return Outline(
        run=run.id,
        idea=function.stored.id,
        status=str(run.machine.status),
        has_results=run.has_results,
        description=function.stored.meta.description or _description_of(function),
        input=function.input,
        input_schema=function.input_schema,
        output_schema=function.output_schema,
        result=run.result if run.is_done else None,
        program=own_program(function),
        catalogue=run.machine.catalogue,
    )


def _description_of(function: Function) -> str:
    """Describe a run to models in one sentence, based on its task or, without a task, on the tools
    that it called and the properties of its output.
    """
    meta = function.stored.meta
    tools = list(meta.tools)
    texts = (
        message.value
        for message in function.run.machine.messages
        if message.type == "text" and message.role == "user"
    )
    # Use the task, shortened to one line.
    task = next((text for text in texts if isinstance(text, str) and text.strip()), meta.title)
    sentence = first_sentence(task)
    if sentence and task != title_of_tools(tools):
        return sentence
    if not tools:
        return ""

    output = function.run.result
    # A server wraps a result that is not an object in `result`, which means nothing to people.
    if isinstance(output, dict) and list(output) != ["result"]:
        members = list(output)
    else:
        members = []

    gives = f" and gives {first_names(members)}" if members else ""
    return f"Calls {first_names(tools)}{gives}"


def first_names(names: Sequence[str]) -> str:
    """Return the first few names in a list, and how many more there are."""
    return joined(names, _MOST_NAMED)
