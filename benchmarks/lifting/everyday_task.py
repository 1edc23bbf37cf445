"""What an everyday task is, for `everyday.py` and the files of tasks."""

from __future__ import annotations

import ast
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar, cast

from benchmarks.lifting.everyday_world import Expectation, Value, World

RECORDED = "A"
OTHERS = ("B", "C")

T = TypeVar("T")


class CallFailedError(Exception):
    """A tool answered with an error, which is the text of this exception."""


class Hand(Protocol):
    """The hand of an assistant: it makes one call after the other."""

    async def call(self, tool: str, **parameters: object) -> str:
        """Make a call, and return the text of its answer.

        Raises:
            CallFailedError: the tool answered with an error.
        """
        ...


@dataclass(frozen=True)
class Scene:
    """A task in one of its variants: the world, and the letter of the variant."""

    world: World
    variant: str

    def pick(self, values: Mapping[str, T]) -> T:
        """What belongs to this variant."""
        return values[self.variant]


class Task(ABC):
    """A task that an assistant does by hand.

    `name` is the name that the tool gets, and the docstring is what the assistant says that it
    does. Variant A is recorded, and the tool is called for B and C, whose data have other values
    and other numbers of items.
    """

    name: ClassVar[str]

    @property
    def description(self) -> str:
        """What the assistant says that the tool does."""
        return inspect.getdoc(type(self)) or ""

    @abstractmethod
    def inputs(self, scene: Scene) -> dict[str, Value]:
        """What a person would tell the assistant: values by name."""

    @abstractmethod
    def prepare(self, scene: Scene) -> None:
        """Make the data of the variant in an empty world."""

    @abstractmethod
    async def do(self, hand: Hand, scene: Scene) -> None:
        """Do the task, call by call, reading and calculating in the head."""

    @abstractmethod
    def expected(self, scene: Scene) -> Expectation:
        """What is right, worked out from the data and not from the calls."""


def rows_of(text: str) -> list[dict[str, Value]]:
    """The rows in an answer of the SQLite server, which writes them as Python does."""
    return cast("list[dict[str, Value]]", ast.literal_eval(text))
