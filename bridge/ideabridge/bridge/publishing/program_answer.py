"""A program submitted as a generalisation of runs, with its author's description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ideabridge.bridge.errors import PublicationError
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.keywords import show
from ideabridge.tools.names import printable_line

LONGEST_DESCRIPTION: Final = 300
"""The maximum length, in characters, of a mind's description of a tool."""

LONGEST_OF_PARAMETER: Final = 160
"""The maximum length, in characters, of a mind's description of a parameter."""


@dataclass(frozen=True, slots=True)
class ProgramAnswer:
    """A program, and what its author says about it.

    Attributes:
        program: the text of the program.
        inputs: for each run, in order, the additional properties of `input` that the program needs,
            with that run's values, or None if it needs no additional properties.
        description: what the tool does, or None if the author does not say.
        parameters: the author's descriptions of properties of `input`, in the form of the
            `parameters` argument of `Bridge.publish`.
        constants: recorded values that the program contains because they are the same for every
            input.
        is_of_mind: True if a mind wrote the program. Because a mind has read results that someone
            else wrote, its words are labelled as an assistant's, a recorded value in the text is
            refused unless `constants` names it, and only a person can share the tool with others.
    """

    program: str
    inputs: tuple[JSON, ...] | None = None
    description: str | None = None
    parameters: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    constants: tuple[JSON, ...] = ()
    is_of_mind: bool = False

    def to_json(self) -> JSONObject:
        """Return the answer in the form of `ANSWER_SCHEMA`."""
        form: JSONObject = {"program": self.program}
        if self.inputs is not None:
            form["inputs"] = list[JSON](self.inputs)

        if self.description is not None:
            form["description"] = self.description

        if self.parameters:
            form["parameters"] = dict[str, JSON](self.parameters)

        if self.constants:
            form["constants"] = list[JSON](self.constants)

        return form


def read_program_answer(raw: JSON) -> ProgramAnswer:
    """Read an answer from a mind, in the form of `ANSWER_SCHEMA`.

    Raises:
        PublicationError: the answer does not have this form. The message says where, and what was
            expected.
    """
    if not isinstance(raw, dict):
        raise PublicationError(f"expected an object with program, found {show(raw)}")

    program = raw.get("program")
    inputs = raw.get("inputs")
    description = raw.get("description")
    parameters = raw.get("parameters") or {}
    constants = raw.get("constants") or []
    if not isinstance(program, str):
        raise PublicationError(f"program: expected text, found {show(program)}")
    if inputs is not None and not isinstance(inputs, list):
        raise PublicationError(f"inputs: expected an array of objects, found {show(inputs)}")
    if description is not None and not isinstance(description, str):
        raise PublicationError(f"description: expected text, found {show(description)}")
    if not isinstance(parameters, dict):
        raise PublicationError(f"parameters: expected an object, found {show(parameters)}")
    if not isinstance(constants, list):
        raise PublicationError(f"constants: expected an array, found {show(constants)}")
    return ProgramAnswer(
        program,
        None if inputs is None else tuple(inputs),
        None if description is None else short_words(description, LONGEST_DESCRIPTION),
        {name: _short_parameter(parameter) for name, parameter in parameters.items()},
        tuple(constants),
        is_of_mind=True,
    )


def short_words(text: str, most: int) -> str:
    """Return text from a mind or a person as one line of limited length, without invisible
    characters.
    """
    line = printable_line(" ".join(text.split()))
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _short_parameter(parameter: JSON) -> JSON:
    if isinstance(parameter, dict):
        description = parameter.get("description")
    else:
        description = parameter

    if isinstance(description, str):
        description = short_words(description, LONGEST_OF_PARAMETER)

    if isinstance(parameter, dict):
        if "description" not in parameter:
            return parameter
        return {**parameter, "description": description}

    # Instead of an object, a mind can write only the description, as a string.
    if isinstance(description, str):
        return {"description": description}
    return parameter
