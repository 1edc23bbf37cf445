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
        calls: how many calls it takes.
    """

    text: str
    calls: int
    expected: JSON
    output: JSONObject = field(default_factory=lambda: _TEXT)
    input: JSONObject | None = None


TASKS: Final = (
    Task("Add 17 and 25.", 1, 42, _NUMBER),
    Task("What is 120 plus 7?", 1, 127, _NUMBER),
    Task("Add the numbers first and second of the input.", 1, 1234, _NUMBER, {"first": 1200, "second": 34}),
    Task("Count the words of the text 'the quick brown fox'.", 1, 4, _NUMBER),
    Task("How many words are in the text of the input?", 1, 6, _NUMBER, {"text": "plans run by flow of data"}),
    Task("What is the weather in Oslo?", 1, "snow"),
    Task("Tell me the weather in Lima.", 1, "fog"),
    Task("What is the phone number of Ada?", 1, "555-0134"),
    Task("Find the phone number of Linus.", 1, "555-0178"),
    Task("In which city does Grace live?", 1, "Lima"),
    Task("Write 'hello' in capital letters.", 1, "HELLO"),
    Task("Write the text 'stressed' backwards.", 1, "desserts"),
    Task("Join the items of the input with '-'.", 1, "a-b-c", input={"items": ["a", "b", "c"]}),
    Task("Add 5 and 6, then add 10 to the result.", 2, 21, _NUMBER),
    Task("Count the words of 'one two three', then add 100 to that.", 2, 103, _NUMBER),
    Task("Get the weather in Rome, then write it in capital letters.", 2, "DRIZZLE"),
    Task("Find the phone number of Grace, then write it backwards.", 2, "2910-555"),
    Task("Find the city where Ada lives, then tell the weather in that city.", 2, "dust"),
    Task("Write the text 'abc' backwards, then write that in capital letters.", 2, "CBA"),
    Task("Tell the weather in Oslo and the weather in Rome.", 2, {"oslo": "snow", "rome": "drizzle"}, _CITIES),
)
