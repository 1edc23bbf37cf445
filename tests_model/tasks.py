"""Tasks of one and two calls, and the tools they need. What the tools give, no model can know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject

WEATHER: Final = {"Oslo": "snow", "Cairo": "dust", "Rome": "drizzle", "Lima": "fog"}
PHONES: Final = {"Ada": "555-0134", "Linus": "555-0178", "Grace": "555-0192"}
HOMES: Final = {"Ada": "Cairo", "Linus": "Oslo", "Grace": "Lima"}


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(read_only=True)
def weather(city: str) -> str:
    """The weather in a city."""
    return WEATHER[city]


@tool(read_only=True)
def phone(name: str) -> str:
    """The phone number of a person."""
    return PHONES[name]


@tool(read_only=True)
def home(name: str) -> str:
    """The city where a person lives."""
    return HOMES[name]


@tool(read_only=True)
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


@tool(read_only=True)
def upper(text: str) -> str:
    """Write a text in capital letters."""
    return text.upper()


@tool(read_only=True)
def reverse(text: str) -> str:
    """Write a text backwards."""
    return text[::-1]


def toolbox() -> Toolbox:
    """The tools of all tasks; `join` is one of those that are always there."""
    return Toolbox(add, weather, phone, home, count_words, upper, reverse)


OFFERED: Final = ["add", "weather", "phone", "home", "count_words", "upper", "reverse", "join"]

_TEXT: Final[JSONObject] = {"type": "string"}
_NUMBER: Final[JSONObject] = {"type": "integer"}
_CITIES: Final[JSONObject] = {
    "type": "object",
    "properties": {"oslo": _TEXT, "rome": _TEXT},
    "required": ["oslo", "rome"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Task:
    """A task, and its only right output.

    Attributes:
        tools: those of the calls it takes, in order.
    """

    text: str
    tools: tuple[str, ...]
    expected: JSON
    output: JSONObject = field(default_factory=lambda: _TEXT)
    input: JSONObject | None = None

    @property
    def calls(self) -> int:
        """How many calls it takes."""
        return len(self.tools)


TASKS: Final = (
    Task("Add 17 and 25.", ("add",), 42, _NUMBER),
    Task("What is 120 plus 7?", ("add",), 127, _NUMBER),
    Task(
        "Add the numbers first and second of the input.",
        ("add",),
        1234,
        _NUMBER,
        {"first": 1200, "second": 34},
    ),
    Task("Count the words of the text 'the quick brown fox'.", ("count_words",), 4, _NUMBER),
    Task(
        "How many words are in the text of the input?",
        ("count_words",),
        6,
        _NUMBER,
        {"text": "plans run by flow of data"},
    ),
    Task("What is the weather in Oslo?", ("weather",), "snow"),
    Task("Tell me the weather in Lima.", ("weather",), "fog"),
    Task("What is the phone number of Ada?", ("phone",), "555-0134"),
    Task("Find the phone number of Linus.", ("phone",), "555-0178"),
    Task("In which city does Grace live?", ("home",), "Lima"),
    Task("Write 'hello' in capital letters.", ("upper",), "HELLO"),
    Task("Write the text 'stressed' backwards.", ("reverse",), "desserts"),
    Task(
        "Join the items of the input with '-'.",
        ("join",),
        "a-b-c",
        input={"items": ["a", "b", "c"]},
    ),
    Task("Add 5 and 6, then add 10 to the result.", ("add", "add"), 21, _NUMBER),
    Task(
        "Count the words of 'one two three', then add 100 to that.",
        ("count_words", "add"),
        103,
        _NUMBER,
    ),
    Task(
        "Get the weather in Rome, then write it in capital letters.",
        ("weather", "upper"),
        "DRIZZLE",
    ),
    Task(
        "Find the phone number of Grace, then write it backwards.", ("phone", "reverse"), "2910-555"
    ),
    Task(
        "Find the city where Ada lives, then tell the weather in that city.",
        ("home", "weather"),
        "dust",
    ),
    Task(
        "Write the text 'abc' backwards, then write that in capital letters.",
        ("reverse", "upper"),
        "CBA",
    ),
    Task(
        "Tell the weather in Oslo and the weather in Rome.",
        ("weather", "weather"),
        {"oslo": "snow", "rome": "drizzle"},
        _CITIES,
    ),
)
