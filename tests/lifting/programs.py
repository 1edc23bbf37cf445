"""Random programs over tools, and minds that carry them out by hand: what lifting makes of their
runs must be right.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from zlib import crc32

from hypothesis import strategies as st

from ideabridge.bridge.context.references import escape
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.toolbox import Toolbox

WORDS = [
    "ann",
    "bob",
    "Zoë",
    "5",
    "5.0",
    "",
    "†state.x",
    "‡",
    "a.b",
    "true",
    "null",
    '{"a": 1}',
    "[1]",
    "ann bob",
    "name",
]


def _made(*values: JSON) -> int:
    return crc32(json.dumps(values).encode())


@tool(read_only=True)
def card(value: JSON) -> JSONObject:
    """A record."""
    made = _made(value)
    return {
        "owner": WORDS[made % 15],
        "backup": f"{value}+",
        "size": made % 7,
        "open": made % 3 > 0,
        "label": str(made % 9),
        "due": str(date(2026, 1, 1) + timedelta(made % 300)),
    }


@tool(read_only=True)
def shelf(value: JSON) -> list[JSON]:
    """Some books."""
    made = _made(value)
    return [
        {
            "title": f"{WORDS[(made + n) % 15]}{n % 2}",
            "pages": (made >> n) % 50 + n,
            "kind": WORDS[(made >> n) % 3],
            "lent": (made >> n) % 3 > 1,
        }
        for n in range(made % 4)
    ]


@tool(read_only=True)
def votes(value: JSON) -> JSONObject:
    """By name."""
    made = _made(value)
    return {
        ["ann", "bob", "carl", "dora"][(made + n) % 4]: ["red", "green", "blue"][(made >> n) % 3]
        for n in range(1 + made % 3)
    }


@tool(read_only=True)
def pair(left: JSON, right: JSON) -> str:
    """Two values as text."""
    return f"{left}-{right}"


@tool(read_only=True)
def number(value: JSON) -> float:
    """A number: sometimes whole."""
    return _made(value) % 12 / 2


@tool(read_only=True)
def report(value: JSON) -> str:
    """Some lines of text."""
    made = _made(value)
    owner = f"Owner: {['ann', 'bob', 'carl'][made % 3]} (since {2000 + made % 20})"
    return f"Ticket: ID-{made % 9_000}\n{owner}\nTotal {made % 700} items"


@tool
def told(value: JSON) -> JSONObject:
    """Says nothing of what it does."""
    made = _made(value)
    return {"id": f"id{made % 5}", "exists": made % 2 > 0, "echo": value}


TOOLS = Toolbox(card, shelf, votes, pair, number, report, told)
CODE: dict[str, Callable[..., JSON]] = {
    "card": card,
    "shelf": shelf,
    "votes": votes,
    "pair": pair,
    "number": number,
    "report": report,
    "told": told,
}
PARAMETERS = {
    "card": ["value"],
    "shelf": ["value"],
    "votes": ["value"],
    "pair": ["left", "right"],
    "number": ["value"],
    "report": ["value"],
    "told": ["value"],
}
FIELDS = {
    "card": ["owner", "backup", "size", "open", "label", "due", ""],
    "told": ["id", "exists", "echo", ""],
    "pair": [""],
    "number": [""],
    "report": [""],
}


class NoValueError(Exception):
    """The program has no value for this input."""


@dataclass(frozen=True)
class Way:
    """A kind of explanation that is listed, as a function of what is read.

    Attributes:
        of: the tool whose result is read: `shelf`, `report`; "": any member.
        made: the function; an exception says that there is no value.
    """

    of: str
    made: Callable[[JSON], JSON]


def _books(found: JSON) -> list[JSONObject]:
    assert isinstance(found, list)
    return [one for one in found if isinstance(one, dict)]


def _word(found: JSON) -> str:
    assert isinstance(found, str)
    return found


def _printed(found: JSON) -> str:
    assert not isinstance(found, bool | list | dict)
    assert found is not None
    if isinstance(found, float) and found.is_integer():
        return str(int(found))
    return str(found)


WAYS: dict[str, Way] = {
    "first": Way("shelf", lambda one: _books(one)[0]["title"]),
    "second": Way("shelf", lambda one: _books(one)[1]["title"]),
    "text": Way("", _printed),
    "number": Way("", lambda one: int(_word(one))),
    "loud": Way("", lambda one: _word(one).upper()),
    "quiet": Way("", lambda one: _word(one).lower()),
    "titled": Way("", lambda one: _word(one).title()),
    "stripped": Way("", lambda one: _word(one).strip()),
    "sentence": Way("", lambda one: f"Report for {_printed(one)}."),
}
"""What a program does with what it reads."""

LOOKUPS = ("title by kind",)
"""Ways that also read a member of the input: the kind of the books."""


@dataclass(frozen=True)
class Source:
    """Where a program takes a value from.

    Attributes:
        how: `read`: as it stands; `constant`; `any`: the first member's value of an object; one of
            WAYS or LOOKUPS.
        place: the call it reads; None: the input.
        key: the member; "": all of it; of `constant`: the value.
        by_hand: it is copied, not referred to.
        other: read instead of it where `flag` is false; of LOOKUPS: the kind.
        flag: (place, key) of what decides.
    """

    how: str
    place: int | None
    key: str
    by_hand: bool
    other: tuple[int | None, str] | None = None
    flag: tuple[int | None, str] | None = None

    def reads(self) -> Iterator[tuple[int | None, str]]:
        if self.how != "constant":
            yield self.place, self.key
        yield from (one for one in (self.other, self.flag) if one is not None)

    @property
    def refers(self) -> bool:
        """Whether it is written as a reference."""
        return self.how == "read" and not self.by_hand and self.flag is None

    def value(self, given: JSONObject, results: list[JSON]) -> JSON:
        """The value. NoValueError: the program has no value here."""
        if self.how == "constant":
            return self.key

        at = (self.place, self.key)
        if (
            self.flag is not None
            and self.other is not None
            and not member(self.flag, given, results)
        ):
            at = self.other

        found = member(at, given, results)
        if self.how == "read":
            return found
        try:
            if self.how in LOOKUPS and self.other is not None:
                kind = member(self.other, given, results)
                titles = [book["title"] for book in _books(found) if book["kind"] == kind]
                return titles[0]
            if self.how == "any":
                return next(iter(found.values())) if isinstance(found, dict) else None
            return WAYS[self.how].made(found)
        except (AssertionError, LookupError, ValueError, StopIteration):
            raise NoValueError from None

    def written(self, given: JSONObject, results: list[JSON]) -> JSON:
        if self.refers:
            start = "†input" if self.place is None else f"†results.{self.place}"
            return f"{start}.{self.key}" if self.key else start
        return literal(self.value(given, results))


def member(at: tuple[int | None, str], given: JSONObject, results: list[JSON]) -> JSON:
    place, key = at
    whole: JSON = given if place is None else results[place]
    return whole[key] if key and isinstance(whole, dict) else whole


def literal(value: JSON) -> JSON:
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, list):
        return [literal(one) for one in value]
    if isinstance(value, dict):
        return {key: literal(one) for key, one in value.items()}
    return value


@dataclass(frozen=True)
class Step:
    """A call. `flag`: what decides whether `tool` or `other` is called; `joined`: in the Request of
    the one before.
    """

    tool: str
    parameters: dict[str, Source]
    joined: bool
    other: str | None = None
    flag: tuple[int | None, str] | None = None

    def named(self, given: JSONObject, results: list[JSON]) -> str:
        if self.flag is None or self.other is None or member(self.flag, given, results):
            return self.tool
        return self.other


@dataclass(frozen=True)
class Program:
    steps: list[Step]
    output: dict[str, Source]
    single: bool

    def requests(self) -> list[list[int]]:
        """The steps of each Request."""
        found: list[list[int]] = []
        for place, step in enumerate(self.steps):
            if found and step.joined:
                found[-1].append(place)
            else:
                found.append([place])
        return found

    @property
    def outputs(self) -> dict[str, Source]:
        """The parts of the output by their paths."""
        if self.single:
            return {"output": self.output["a"]}
        return {f"output.{key}": one for key, one in self.output.items()}

    def takes(self) -> set[str]:
        """The members of the input that it reads."""
        read = [at for one in self.outputs.values() for at in one.reads()]
        for step in self.steps:
            read += [at for one in step.parameters.values() for at in one.reads()]
            read += [step.flag] if step.flag else []
        return {key for place, key in read if place is None}

    def given_output(self, given: JSONObject, results: list[JSON], *, written: bool) -> JSON:
        parts: JSONObject = {
            path.removeprefix("output."): one.written(given, results)
            if written
            else one.value(given, results)
            for path, one in self.outputs.items()
        }
        return parts["output"] if self.single else parts


@st.composite
def sources(draw: st.DrawFn, tools: list[str], last: int, *, copies: bool) -> Source:
    """A source over the input and the calls below `last`, all of which have been seen."""
    calls = [(place, name) for place, name in enumerate(tools[:last])]
    scalar: list[tuple[int | None, str]] = [(None, key) for key in ("a", "b", "n", "names")]
    scalar += [(place, key) for place, name in calls for key in FIELDS.get(name, [])] * 2
    if last:
        scalar += [(last - 1, key) for key in FIELDS.get(tools[last - 1], [])] * 6

    at = draw(st.sampled_from(scalar))
    by_hand = copies and draw(st.booleans())
    flags: list[tuple[int | None, str]] = [(None, "flag")]
    flags += [
        (place, {"card": "open", "told": "exists"}[name])
        for place, name in calls
        if name in ("card", "told")
    ]
    whole = [(place, name) for place, name in calls if name in ("shelf", "votes")]
    if whole and draw(st.integers(0, 2)) == 0:
        place, name = draw(st.sampled_from(whole))
        if name == "votes":
            return Source("any", place, "", True)

        ways = [one for one, way in WAYS.items() if way.of == name]
        how = draw(st.sampled_from([*ways, *LOOKUPS]))
        return Source(how, place, "", True, (None, "kind") if how in LOOKUPS else None)

    if draw(st.integers(0, 6)) > 0:
        return Source("read", *at, by_hand)

    kind = draw(
        st.sampled_from(["either", "constant", *(one for one, way in WAYS.items() if not way.of)])
    )
    if kind == "either":
        return Source(
            "read", *at, True, draw(st.sampled_from(scalar)), draw(st.sampled_from(flags))
        )

    if kind == "constant":
        return Source("constant", None, draw(st.sampled_from(WORDS)), True)
    return Source(kind, *at, True)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    tools: list[str] = []
    steps: list[Step] = []
    copies = draw(st.booleans())
    for place in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(list(PARAMETERS)))
        parameters = {key: draw(sources(tools, place, copies=copies)) for key in PARAMETERS[name]}
        mine = place - 1
        hand = any(
            one[0] == mine
            for source in parameters.values()
            if not source.refers
            for one in source.reads()
        )
        flags: list[tuple[int | None, str]] = [(None, "flag")]
        flags += [(at, "open") for at, one in enumerate(tools) if one == "card"]
        branch = name in ("card", "told") and draw(st.integers(0, 5)) == 0
        flag = draw(st.sampled_from(flags)) if branch else None
        joined = not hand and not (flag and flag[0] == mine) and draw(st.integers(0, 3)) > 0
        # What is copied, or decides, must have been seen, so nothing from this Request is used.
        if joined:
            start = place - 1
            while start > 0 and steps[start].joined:
                start -= 1

            seen = [
                one for source in parameters.values() if not source.refers for one in source.reads()
            ]
            joined = not any(
                at is not None and at >= start for at, _ in [*seen, *([flag] if flag else [])]
            )

        if flag is not None:
            # The two return different members, so nothing later reads them.
            tools.append("either")
            steps.append(Step("card", parameters, joined, "told", flag))
        else:
            tools.append(name)
            steps.append(Step(name, parameters, joined))

    output = {key: draw(sources(tools, len(tools), copies=copies)) for key in ("a", "b")}
    return Program(steps, output, draw(st.booleans()))


@st.composite
def inputs(draw: st.DrawFn) -> JSONObject:
    word = st.sampled_from(WORDS) | st.integers(0, 99).map("w{}".format)
    names: list[JSON] = [draw(word) for _ in range(draw(st.integers(0, 3)))]
    return {
        "a": draw(word),
        "b": draw(word),
        "n": draw(st.integers(0, 9)),
        "flag": draw(st.booleans()),
        "kind": draw(st.sampled_from(WORDS[:3])),
        "names": names,
    }
