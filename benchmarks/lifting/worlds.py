"""Worlds: one environment of a public data set, with its entities renamed, and really executed.

A world is an environment's data in which words, ids and numbers are replaced consistently: in the
data, in the true calls and in what the user names. World 0 is the data as it is. A renamed world
has the same structure, so the renamed calls are the true calls there; `Case.checked` executes them
and compares what they give with the renamed results. Words for which this does not hold (a city
that the implementation knows by name, a category) keep their value.
Dates keep their values too: the texts of these data sets name months and weekdays in prose.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from ideabridge.tools.encoding import JSON, JSONObject

_TOKENS = re.compile(r"[A-Za-z]+|\d+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?")
_SHORTEST = 3
_ORDINARY = """
the and for with from that this your you all any new not are was com org net www http https txt pdf docx csv json html
true false
"""
_COMMON = frozenset(_ORDINARY.split())


@dataclass(frozen=True)
class Step:
    """One true call."""

    tool: str
    arguments: JSONObject


@dataclass(frozen=True)
class ToolShape:
    """A tool of an environment. `reads`: it changes nothing."""

    name: str
    description: str
    parameters: JSONObject
    reads: bool


class Environment(Protocol):
    """One started environment: it keeps its state from call to call."""

    def call(self, tool: str, arguments: JSONObject) -> JSON:
        """What a call gives, as JSON.

        Raises:
            CallError: the environment refuses the call.
        """
        ...

    def state(self) -> JSON:
        """All that the environment holds now, as JSON."""
        ...


class CallError(Exception):
    """An environment refuses a call."""


@dataclass(frozen=True)
class Renaming:
    """What the words and numbers of one world are called. `number` 0 leaves all as it is."""

    number: int
    words: frozenset[str]

    def text(self, text: str) -> str:
        """The text in this world."""
        if not self.number:
            return text

        lowered = text.lower()
        if not any(word in lowered for word in self.words):
            return text

        kept = {at for date in _DATE.finditer(text) for at in range(*date.span())}
        return _TOKENS.sub(
            lambda found: found[0] if found.start() in kept else self._word(found[0]), text
        )

    def value(self, value: JSON) -> JSON:
        """The value in this world, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(one) for one in value]
        if isinstance(value, dict):
            return {self.text(key): self.value(one) for key, one in value.items()}
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int):
            return int(self.text(str(value))) if value >= 0 else value

        whole, _, fraction = repr(value).partition(".")
        if fraction.isdigit() and value >= 0:
            return float(f"{self.text(whole)}.{fraction}")
        return value

    def members(self, value: JSONObject) -> JSONObject:
        """The values of an object in this world; its own keys stay: they name
        parameters or fields.
        """
        return {key: self.value(one) for key, one in value.items()}

    def _word(self, word: str) -> str:
        """Another word of the same form: length, case, digits. Equal words in
        different case stay so.
        """
        if word.lower() not in self.words:
            return word

        seed = hashlib.sha256(f"{self.number} {word.lower()}".encode()).digest()
        if word.isdigit():
            shown = "".join(str(seed[place % 32] % 10) for place in range(len(word)))
            if word[0] == "0" or shown[0] != "0":
                return shown
            return f"{1 + seed[31] % 9}{shown[1:]}"

        # Alternate consonants and vowels, so that no renamed word is by chance a word of these
        # texts.
        letters = ("bdfgklmnprstvz", "aeiou")
        made = "".join(
            letters[place % 2][seed[place % 32] % len(letters[place % 2])]
            for place in range(len(word))
        )
        return "".join(
            to.upper() if of.isupper() else to for of, to in zip(word, made, strict=True)
        )


Start = Callable[[Renaming], Environment]


@dataclass
class Case:
    """One task of a data set: its true calls in world 0, and how to start its
    environment in any world.

    Attributes:
        prompt: what the user says, in world 0.
        tools: the tools of the environment.
        start: starts the environment anew.
        notes: what was left out of the ground truth, and why.
    """

    suite: str
    name: str
    prompt: str
    tools: Sequence[ToolShape]
    steps: list[Step]
    start: Start
    notes: list[str] = field(default_factory=list[str])
    words: frozenset[str] = frozenset()

    @property
    def part(self) -> str:
        """`seen` or `held out`: a fixed half each, by a hash of the name."""
        if hashlib.sha256(f"{self.suite} {self.name}".encode()).digest()[0] % 2:
            return "seen"
        return "held out"

    def world(self, number: int) -> Renaming:
        """The renaming of a world."""
        return Renaming(number, self.words)

    def given(self, world: Renaming) -> JSONObject:
        """The entities that the user names, as an input object: each argument whose value
        the prompt contains.
        """
        named: JSONObject = {}
        said = self.prompt.lower()
        for step in self.steps:
            for name, value in leaves(step.arguments):
                if value in named.values() or isinstance(value, bool) or not stands_in(said, value):
                    continue

                key = name
                count = 2
                while key in named:
                    key = f"{name}_{count}"
                    count = count + 1

                named[key] = value

        return {key: world.value(value) for key, value in named.items()}

    def says(self, value: JSON) -> bool:
        """True if the user names this value of world 0, or each part of it."""
        parts = leaves(value)
        return bool(parts) and all(stands_in(self.prompt.lower(), one) for _, one in parts)

    def true_steps(self, world: Renaming) -> list[Step]:
        """The true calls in a world."""
        return [Step(step.tool, world.members(step.arguments)) for step in self.steps]

    def executed(self, world: Renaming) -> list[JSON]:
        """What the true calls give in a world.

        Raises:
            CallError: the environment refuses one of them; its place is `where`.
        """
        environment = self.start(world)
        results: list[JSON] = []
        for place, step in enumerate(self.true_steps(world)):
            try:
                results.append(environment.call(step.tool, step.arguments))
            except CallError as error:
                raise CallError(f"call {place} ({step.tool}): {error}") from error

        return results

    def prepare(self, worlds: int) -> bool:
        """Leave out true calls that fail in world 0, and choose the words that can be
        renamed in all worlds.

        Returns:
            False if fewer than two calls remain.
        """
        self._drop_failing()
        if len(self.steps) < 2:
            return False

        said = [text for step in self.steps for _, text in leaves(step.arguments)]
        words = {token.lower() for one in said for token in _tokens(one)}
        right = self.executed(Renaming(0, frozenset()))
        for word in sorted(words):
            self.words = frozenset({word})
            if self._wrong(right, 2) is not None:
                words.remove(word)

        while words:
            self.words = frozenset(words)
            wrong = self._wrong(right, worlds)
            if wrong is None:
                return True

            culprits = {
                token.lower()
                for _, one in leaves(self.steps[wrong].arguments)
                for token in _tokens(one)
            }
            culprits &= words
            words = words - culprits if culprits else set[str]()

        self.words = frozenset()
        return True

    def _wrong(self, right: list[JSON], worlds: int) -> int | None:
        """The first call that does not give the renamed result in one of the worlds; None: all
        do.
        """
        for number in range(1, worlds):
            world = self.world(number)
            try:
                environment = self.start(world)
            except (ValueError, TypeError, KeyError):
                return 0
            for place, step in enumerate(self.true_steps(world)):
                try:
                    got = environment.call(step.tool, step.arguments)
                except CallError:
                    return place
                if _sorted(got) != _sorted(world.value(right[place])):
                    return place
        return None

    def _drop_failing(self) -> None:
        while True:
            environment = self.start(Renaming(0, frozenset()))
            for place, step in enumerate(self.steps):
                try:
                    environment.call(step.tool, step.arguments)
                except CallError as error:
                    self.notes.append(f"left out {step.tool}: {error}"[:200])
                    del self.steps[place]
                    break
            else:
                return


def leaves(value: JSON, name: str = "value") -> list[tuple[str, JSON]]:
    """The texts and numbers within a value, with the name of the member that holds each."""
    if isinstance(value, dict):
        return [one for key, inner in value.items() for one in leaves(inner, key)]
    if isinstance(value, list):
        return [one for inner in value for one in leaves(inner, name)]
    return [] if value is None else [(name, value)]


def stands_in(said: str, value: JSON) -> bool:
    """True if a text has the value, as a word of its own. `said` is in lower case."""
    text = (
        str(int(value) if isinstance(value, float) and value.is_integer() else value)
        .lower()
        .strip()
    )
    return (
        bool(text) and re.search(rf"(?<![a-z0-9]){re.escape(text)}(?![a-z0-9])", said) is not None
    )


def _tokens(value: JSON) -> list[str]:
    if isinstance(value, bool) or value is None:
        return []
    text = _DATE.sub(" ", str(value))
    if len(text) > 80:
        # A long text was written by a model, so its words are not entities.
        return []
    return [
        one for one in _TOKENS.findall(text) if len(one) >= _SHORTEST and one.lower() not in _COMMON
    ]


def _sorted(value: JSON) -> str:
    """A text that is equal for values that differ only in the order of lists and members."""
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{key}:{_sorted(one)}" for key, one in value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(sorted(_sorted(one) for one in value)) + "]"
    return json.dumps(value)


def as_json(value: object) -> JSON:
    """A value of an environment as JSON: models and dates by their JSON forms."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return cast("JSON", dump(mode="json"))
    if isinstance(value, dict):
        return {str(key): as_json(one) for key, one in cast("dict[object, object]", value).items()}
    if isinstance(value, (list, tuple, set)):
        return [as_json(one) for one in cast("Sequence[object]", value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
