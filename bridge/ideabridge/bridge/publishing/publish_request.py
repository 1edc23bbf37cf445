"""The request to publish a run, with all its options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from hashlib import sha256
from typing import Literal

from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.lifting.choices import Choices
from ideabridge.bridge.lifting.parameters import ParameterDecision, read_decisions
from ideabridge.bridge.loop.event import APPROVER, Decider, decider_of
from ideabridge.bridge.publishing.program_answer import ProgramAnswer
from ideabridge.bridge.store.idea import ANSWERS, Answer
from ideabridge.bridge.store.users import LOCAL, publisher_of
from ideabridge.tools.encoding import JSON, JSONObject, encode


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """The request to publish a run as a tool.

    Python, the command line, the page and `publish_idea` each create a request from their
    arguments. For the members, see `Bridge.publish`.

    Attributes:
        ref: the run, or an idea that the run ended with.
        name: the name of the tool.
        description: what the tool does, or None to use the description of the run or program.
        answer: how calls are answered.
        parameters: a person's decisions about parameters, in the form in which they are stored with
            the version.
        choices: a person's decisions about copied values, and the other runs of the same task.
        strict: whether a replay asks before it uses any undetermined value.
        or_solve: whether a mind continues if the plan produces no output.
        by: who made the choices.
        to: the audience (see `read_audience`), or None to leave the audience unchanged.
        program: a program that reproduces the runs, or None if none was written for them.
        caller: the user who publishes.
        decisions: the decisions in `parameters`, keyed by parameter name.

    Raises:
        PublicationError: `answer` is unknown, or `parameters` is malformed.
    """

    ref: str
    name: str
    _: KW_ONLY
    description: str | None = None
    answer: Answer = "auto"
    parameters: JSONObject = field(default_factory=dict[str, JSON])
    choices: Choices = field(default_factory=Choices)
    strict: bool = False
    or_solve: bool = False
    by: Decider = field(default_factory=lambda: decider_of(APPROVER))
    to: str | Sequence[str] | None = None
    program: ProgramAnswer | None = None
    caller: str = LOCAL
    decisions: Mapping[str, ParameterDecision] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if self.answer not in ANSWERS:
            raise PublicationError(f"answer: expected {', '.join(ANSWERS)}; found {self.answer!r}")
        object.__setattr__(self, "decisions", read_decisions(self.parameters))

    @property
    def refs(self) -> tuple[str, ...]:
        """The run, and the other runs of the same task."""
        return (self.ref, *self.choices.runs)

    @property
    def owner(self) -> str | None:
        """The owner of a new name, or None for the owner of the store, who publishes to
        everybody.
        """
        return publisher_of(self.caller)

    def digest_with(self, written: JSONObject) -> str:
        """Return a digest of the request.

        All requests to publish the same program from the same runs, under the same name and for the
        same audience, have the same digest.

        Args:
            written: the program as JSON, or the name of whoever writes it.
        """
        task = sha256("\0".join([self.caller, self.name, *self.refs]).encode()).hexdigest()
        to = self.to if self.to is None or isinstance(self.to, str) else list[JSON](self.to)
        return sha256(encode([task, to, written])).hexdigest()

    @property
    def decides_on_a_run(self) -> bool:
        """Whether a decision in the request applies only to what a run did."""
        decides = self.parameters or self.choices.take or self.choices.runs
        return bool(decides or self.strict or self.or_solve or self.program)

    def for_program(self, program: ProgramAnswer | None = None) -> PublishRequest:
        """Return a request to publish a program for the same runs, without a person's decisions
        about a plan.
        """
        return PublishRequest(
            self.ref,
            self.name,
            description=self.description,
            choices=Choices(runs=self.choices.runs),
            by=self.by,
            to=self.to,
            program=program,
            caller=self.caller,
        )

    def with_words_of_program(self) -> PublishRequest:
        """Return a copy of the request in which the program author's descriptions replace missing
        ones.
        """
        program = self.program
        if program is None:
            return self
        return dataclasses.replace(
            self,
            description=self.description or program.description,
            parameters={**program.parameters, **self.parameters},
        )


def program_to_publish(
    program: str | ProgramAnswer | Literal[False] | None, inputs: Sequence[JSON] | None
) -> ProgramAnswer | None:
    """Return the program passed to `Bridge.publish`, with the inputs of the runs, or None if no
    program was passed.

    Raises:
        PublicationError: `inputs` is passed without the source code of a program.
    """
    if isinstance(program, str):
        return ProgramAnswer(program, None if inputs is None else tuple(inputs))
    if inputs is not None:
        raise PublicationError(
            "inputs: only allowed if `program` contains source code; leave `inputs` out"
        )
    return program or None
