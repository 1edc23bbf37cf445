"""Solutions as no mind should write them: valid ones, damaged in their structure or in their
text.
"""

from __future__ import annotations

import json
import random

from ideabridge.tools.encoding import JSON, JSONObject

INPUT: JSONObject = {
    "n": 1,
    "items": [{"v": 1}, {"v": "†state.a"}, 3],
    "text": "†state.a is only text",
}
CONTEXT: list[JSON] = [
    {"type": "input", "input": INPUT},
    {"type": "state", "state": {"old": {"v": "before"}, "list": [1, {"x": "[1, 2]"}]}},
]
CLOSED: list[JSON] = [
    {"type": "input", "input": INPUT},
    {
        "type": "state",
        "state": {"old": {"v": "before"}},
        "schema": {
            "type": "object",
            "properties": {
                "a": {"type": "integer"},
                "b": {},
                "old": {"type": "object"},
                "rows": {"type": "array"},
            },
            "required": ["a"],
        },
    },
]
INSTANCES: list[JSON] = [
    {"type": "input", "input": INPUT},
    {"type": "state", "state": {"name": "Ada"}, "_instance": "①"},
    {"type": "state", "state": {"name": "Grace"}, "_instance": "②"},
]
SOLUTIONS: list[JSONObject] = [
    {
        "calls": [
            {"_tool": "echo", "x": "†input.n", "_outputPath": "a"},
            {"_tool": "echo", "x": "†state.a", "y": "†state.old.v", "_outputPath": "b || failed"},
            {
                "_tool": "write",
                "x": {"deep": ["†state.b || †state.failed", "plain"]},
                "_outputPath": "c.d",
            },
        ],
        "output": {"all": "†state.c.d"},
    },
    {
        "calls": [
            {"_tool": "echo", "_each": "†input.items", "x": "†item.v", "_outputPath": "rows"},
            {
                "_tool": "echo",
                "_each": "†state.rows",
                "x": "†item || †input.n",
                "y": "†state.rows.0",
            },
            {"_tool": "write", "x": "†results.1", "_outputPath": "list", "_outputMethod": "push"},
            {"_tool": "write", "x": {"k": 1}, "_outputPath": "old", "_outputMethod": "merge"},
        ],
        "output": None,
    },
    {
        "calls": [
            {"_tool": "write", "x": 1, "_id": "one"},
            {"_tool": "write", "x": 2, "_id": "two", "_after": ["one"], "_outputPath": "p && q"},
            {
                "_tool": "typed",
                "number": 3,
                "names": ["†input.text", "b"],
                "_after": "two",
                "_outputPath": "t",
            },
            {
                "_tool": "judge",
                "text": "†state.t",
                "_output": {"mood": "good"},
                "_imports": ["input", "†state.old"],
            },
        ],
        "output": ["†state.t && †state.p", "††literal", 7],
    },
    {
        "calls": [
            {"_tool": "typed", "number": "†input.n", "names": [], "_outputPath": "n"},
            {"_tool": "echo", "x": "†state.later", "_outputPath": "early"},
            {"_tool": "echo", "x": "†state.n", "_outputPath": "later"},
        ],
        "output": "†state.early",
        "thought": "an extra member",
    },
]
"""Of a context without instances: see `CONTEXT`."""

OVER_INSTANCES: list[JSONObject] = [
    {
        "calls": [
            {"_tool": "echo", "_instance": "①", "x": "†state.name", "_outputPath": "who"},
            {"_tool": "echo", "_instance": "②", "x": "†①.state.who", "_outputPath": "who"},
            {"_tool": "typed", "_instance": "②", "number": 1, "names": ["†state.who"]},
        ],
        "output": None,
    }
]
"""Of a context with the instances ① and ②."""

WORDS = (
    "†state.a", "†state.b", "†state.never", "†state", "†input.n", "†input.items", "†results.0", "†results.2.v",
    "†item", "†item.v", "†①.state.who", "†③.state.x", "†", "††", "†††state.a", "†state.", "†state..a", "†state[0]",
    "†state[", "†a || b", '†state["a"]', "†state.a || ", "†state.a && †state.b || †input.n", "† state.a", "$state.a",
    "{{state.a}}", "", "†state" + ".x" * 120, "†state." + "y" * 5000, "a || b", "a && b", "a || b || c",
    "a || b && c", "state.x", "input.n", "old.v.deeper", "list.0", "list.99", "list.-1", '["odd key"].x', "0", "\x00",
    "\u200b†state.a", "†state.\u202ea", "𝔘𝔫𝔦", "e\u0301", "\ufeff", "\uffff", "İ", "†state.²", "†results.²",
    "†results.٣", "1e999", "null", "[1, 2", '{"_tool": "echo"}', "echo", "ecko", "write", "typed", "judge", "one",
    "two", "set", "merge", "push", "①", "②", "a †state.a", "a ††state.a", "†state.a is", "{state.a}", "$.state.a",
    "$ref:state.a", "$.a", "typed.echo",
)  # fmt: skip
KEYS = (
    "_tool", "_module", "_activity", "_instance", "_imports", "_output", "_outputPath", "_outputMethod", "_each",
    "_after", "_id", "x", "y", "number", "names", "text", "calls", "output", "value", "_other", "", "†state.a",
    "_outputpath", "args", "\x00", "k" * 300,
)  # fmt: skip


def deep(random: random.Random, levels: int) -> JSON:
    """A value that nests `levels` deep, a reference at its bottom."""
    value: JSON = random.choice(WORDS)
    for _ in range(levels):
        if random.random() < 0.5:
            value = [value]
        else:
            value = {random.choice(KEYS): value}
    return value


def odd(random: random.Random) -> JSON:
    """Any JSON value, mostly one that nobody expects."""
    kind = random.randrange(14)
    if kind < 5:
        return random.choice(WORDS)
    if kind < 9:
        numbers: tuple[JSON, ...] = (
            0,
            -1,
            1.5,
            -0.0,
            1e308,
            5e-324,
            2**63,
            -(2**64),
            10**400,
            True,
            False,
            None,
        )
        return random.choice(numbers)

    if kind == 9:
        return [odd(random) for _ in range(random.randrange(4))]
    if kind == 10:
        return {random.choice(KEYS): odd(random) for _ in range(random.randrange(4))}
    if kind == 11:
        return deep(random, random.choice((3, 20, 90, 99)))
    return [] if kind == 12 else {}


class Mutator:
    """Damages a Solution: `structure` as a JSON value, `text` as bytes."""

    def __init__(self, random: random.Random) -> None:
        self.random = random

    def structure(self, solution: JSONObject) -> JSONObject:
        """A copy with one to four parts damaged."""
        value: JSONObject = json.loads(json.dumps(solution))
        for _ in range(self.random.choice((1, 1, 1, 2, 2, 3, 4))):
            self._damage(value)
        return value

    def _damage(self, solution: JSONObject) -> None:
        chosen = self.random
        calls = solution.get("calls")
        if isinstance(calls, list) and calls and chosen.random() < 0.25:
            self._damage_list(calls)
            return

        if isinstance(calls, list) and chosen.random() < 0.35:
            objects = [call for call in calls if isinstance(call, dict)]
            if objects:
                # Set a member of a call, either to any JSON value or to a word that would make
                # sense elsewhere.
                value = odd(chosen) if chosen.random() < 0.6 else chosen.choice(WORDS)
                chosen.choice(objects)[chosen.choice(KEYS)] = value
                return

        parts = self._parts(solution)
        holder, key = chosen.choice(parts)
        kind = chosen.randrange(6)
        if isinstance(holder, list):
            assert isinstance(key, int)
            holder[key] = self._other(holder[key])
        elif kind == 0:
            del holder[str(key)]
        elif kind == 1:
            holder[chosen.choice(KEYS)] = holder.pop(str(key))
        else:
            holder[str(key)] = self._other(holder[str(key)])

    def _damage_list(self, calls: list[JSON]) -> None:
        chosen = self.random
        index = chosen.randrange(len(calls))
        match chosen.randrange(6):
            case 0:
                del calls[index]
            case 1:
                calls.insert(chosen.randrange(len(calls) + 1), json.loads(json.dumps(calls[index])))
            case 2:
                chosen.shuffle(calls)
            case 3:
                calls.insert(index, odd(chosen))
            case 4 if len(calls) < 30:
                # These calls read each other's results in a cycle.
                count = chosen.randrange(1, 4)
                calls.extend(
                    {"_tool": "echo", "x": f"†state.r{(one + 1) % count}", "_outputPath": f"r{one}"}
                    for one in range(count)
                )
            case _:
                calls[index] = odd(chosen)

    def _other(self, value: JSON) -> JSON:
        chosen = self.random
        if isinstance(value, str) and value and chosen.random() < 0.5:
            place = chosen.randrange(len(value))
            letter = chosen.choice("†.|&[]\"' \x00é0_\u202e😀")
            return chosen.choice(
                (
                    value[:place] + value[place + 1 :],
                    value[:place] + letter + value[place:],
                    value[:place],
                )
            )

        if chosen.random() < 0.2:
            return [value] if chosen.random() < 0.5 else {"value": value}
        return odd(chosen)

    def _parts(self, value: JSON) -> list[tuple[list[JSON] | JSONObject, int | str]]:
        found: list[tuple[list[JSON] | JSONObject, int | str]] = []
        todo: list[JSON] = [value]
        while todo:
            here = todo.pop()
            if isinstance(here, dict):
                found.extend((here, key) for key in here)
                todo.extend(here.values())
            elif isinstance(here, list):
                found.extend((here, index) for index in range(len(here)))
                todo.extend(here)

        return found or [({"calls": []}, "calls")]

    def text(self, solution: JSONObject) -> bytes:
        """Its text with some bytes damaged: cut, flipped, doubled, wrapped."""
        chosen = self.random
        data = json.dumps(
            solution, ensure_ascii=chosen.random() < 0.3, indent=chosen.choice((None, None, 1))
        ).encode()
        for _ in range(chosen.choice((1, 1, 2, 3))):
            data = self._damage_text(data)
        return data

    def _damage_text(self, data: bytes) -> bytes:
        chosen = self.random
        if not data:
            return b"{"

        place = chosen.randrange(len(data))
        end = min(len(data), place + chosen.randrange(1, 30))
        match chosen.randrange(10):
            case 0:
                return data[:place]
            case 1:
                return (
                    data[:place]
                    + bytes([data[place] ^ (1 << chosen.randrange(8))])
                    + data[place + 1 :]
                )
            case 2:
                return data[:place] + data[end:]
            case 3:
                return data[:end] + data[place:]
            case 4:
                token = chosen.choice(
                    (
                        b'"',
                        b"{",
                        b"}",
                        b"[",
                        b"]",
                        b",",
                        b":",
                        b"\\",
                        b"\x00",
                        b"\xff",
                        b"\\ud800",
                        b"NaN",
                        b"-",
                    )
                )
                return data[:place] + token + data[place:]
            case 5:
                return data.replace(b'"_tool"', b'"_tool": 1, "_tool"', 1)
            case 6:
                return data.replace(b'"output"', b'"calls": [], "output"', 1)
            case 7:
                return b"Here it is {as asked}:\n```json\n" + data + b'\n```\nDone {"x": 1}'
            case 8:
                return data.replace(
                    b'"x"',
                    b'"x": '
                    + chosen.choice((b"[" * 150, b"1" * 5000, b"1e999", b"-", b"tru"))
                    + b', "x"',
                    1,
                )
            case _:
                return data + chosen.choice((b"}", data, b"\n\n", b"]", b"{}"))
