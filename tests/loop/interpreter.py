"""A naive sequential interpreter of plans, written without the machine: the oracle of the
property tests.

It holds for plans in which no two calls write overlapping paths. Each call is worked out when
somebody first asks for it, after the calls that the order of effects puts before it; what it reads
are copies of plain dictionaries.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable

from ideabridge.tools.encoding import JSON, JSONObject

Outcome = tuple[str, JSON]
"""("value", v) | ("failed", None) | ("skipped", None) | ("missing", None)"""


Lane = Callable[[JSONObject], "tuple[str, bool]"]
"""call -> (the module it belongs to, whether it may change something)."""

Run = Callable[[int, int | None, JSON], tuple[bool, JSON]]
"""(call, item, parameters) -> (succeeded, value) of one execution."""


def overlap(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    return all(a == b for a, b in zip(first, second, strict=False))


def split(text: str) -> tuple[str, ...]:
    return tuple(text.lstrip("†").split("."))


def get(root: JSON, path: tuple[str, ...]) -> Outcome:
    for key in path:
        if isinstance(root, dict) and key in root:
            root = root[key]
        elif isinstance(root, list) and key.isdigit() and int(key) < len(root):
            root = root[int(key)]
        else:
            return ("missing", None)
    return ("value", root)


def put(root: JSONObject, path: tuple[str, ...], value: JSON) -> None:
    for key in path[:-1]:
        child = root.setdefault(key, {})
        assert isinstance(child, dict)
        root = child
    root[path[-1]] = value


class Interpreter:
    def __init__(self, base: JSONObject, calls: list[JSONObject], run: Run, lane: Lane):
        self.base = base
        self.calls = calls
        self.run = run
        self.done: dict[int, str] = {}
        self.wrote: dict[int, list[tuple[tuple[str, ...], JSON]]] = {}
        self.told: dict[int, JSON] = {}
        self.circular = False
        lanes = [lane(call) for call in calls]
        self.own = [not module for module, _ in lanes]
        self.cycles: list[set[int]] = [set() for _ in calls]
        self.cycles = self.cycles_of_data()
        self.earlier = self.order(lanes)

    def cycles_of_data(self) -> list[set[int]]:
        """For each call, the calls that wait for it and that it waits for, by data alone.

        Data that the context has is read without waiting for these.
        """
        count = range(len(self.calls))
        reach = [self.data(index) for index in count]
        for through in count:
            for start in count:
                if through in reach[start]:
                    reach[start] |= reach[through]

        return [
            {other for other in count if other in reach[index] and index in reach[other]}
            for index in count
        ]

    # -- the order of effects ----------------------------------------------------------------------

    def order(self, lanes: list[tuple[str, bool]]) -> list[set[int]]:
        """What each call waits for because of the order of effects alone."""
        count = range(len(self.calls))
        listed = [
            {j for j in range(i) if lanes[i][0] == lanes[j][0] and (lanes[i][1] or lanes[j][1])}
            for i in count
        ]
        data = [self.data(i) for i in count]
        reach = [data[i] | listed[i] for i in count]
        for through in count:
            for start in count:
                if through in reach[start]:
                    reach[start] |= reach[through]

        # Within a cycle, data decides. What the data leaves open is ordered by which call is
        # needed first.
        place: dict[int, int] = {}
        cycle = [{j for j in count if j in reach[i] and i in reach[j]} for i in count]

        def walk(index: int, members: set[int]) -> None:
            if index in place or index not in members:
                return
            place[index] = -1
            for other in sorted(data[index]):
                walk(other, members)
            place[index] = sum(number >= 0 for number in place.values())

        for index in count:
            for member in sorted(cycle[index]):
                walk(member, cycle[index])

        # Calls that wait for each other only because of data keep their order, as long as nobody
        # needs the later one first.
        flow = [{*one} for one in data]
        for through in count:
            for start in count:
                if through in flow[start]:
                    flow[start] |= flow[through]

        rank = [
            (max(place.get(j, 0) for j in count if j == i or (j in flow[i] and i in flow[j])), i)
            for i in count
        ]

        def before(j: int, i: int) -> bool:
            return rank[j] < rank[i] if j in cycle[i] else j < i

        pairs = [(lanes[i], lanes[j]) for i in count for j in count]
        conflict = [(one[0] == two[0] and (one[1] or two[1])) for one, two in pairs]
        size = len(self.calls)
        return [
            {j for j in count if j != i and conflict[i * size + j] and before(j, i)} for i in count
        ]

    def data(self, index: int) -> set[int]:
        """The calls that a call waits for by what it reads and by `_after`."""
        call = self.calls[index]
        found: set[int] = set()
        after = call.get("_after", [])
        for name in after if isinstance(after, list) else []:
            found.update(i for i, other in enumerate(self.calls) if other.get("_id") == name)

        parameters = {key: value for key, value in call.items() if not key.startswith("_")}
        for text in references([call.get("_each"), parameters]):
            for alternative in text.split("||"):
                paths = [split(operand.strip()) for operand in alternative.split("&&")]
                bound = [self.bound(path, index) for path in paths]
                found.update(i for writers in bound for i in writers)
                if not any(bound) and all(
                    path[0] != "item" and get(self.base, path)[0] == "value" for path in paths
                ):
                    break

        return found

    # -- one call ----------------------------------------------------------------------------------

    def targets(self, index: int) -> list[tuple[str, ...]]:
        path = self.calls[index].get("_outputPath")
        if not isinstance(path, str):
            return [("results", str(index))]
        return [("state", *split(part.strip())) for part in re.split(r"\|\||&&", path)]

    def bound(self, path: tuple[str, ...], reader: int) -> list[int]:
        if path[0] == "data":
            # A module's code adds no data.
            adding = [i for i in range(reader) if self.own[i]]
            if get(self.base, path)[0] == "value":
                return [i for i in adding if i not in self.cycles[reader]]
            return adding

        if path[0] not in ("state", "results"):
            return []

        writers = [
            i for i in range(len(self.calls)) if any(overlap(t, path) for t in self.targets(i))
        ]
        earlier = [i for i in writers if i < reader]
        if earlier or get(self.base, path)[0] == "value":
            return earlier
        return [i for i in writers if i != reader]

    def operand(self, text: str, reader: int, item: JSON = None) -> Outcome:
        path = split(text)
        if path[0] == "item":
            return get({"item": item}, path)

        root = copy.deepcopy(self.base)
        untaken = failed = False
        for writer in self.bound(path, reader):
            self.work(writer)
            self.circular = self.circular or self.done[writer] == "working"
            if path[0] == "data":
                failed = failed or self.done[writer] == "failed"
                if writer in self.told:
                    put(root, ("data", f"k{writer}"), copy.deepcopy(self.told[writer]))
                continue

            if self.done[writer] == "failed":
                return ("failed", None)

            hits = [entry for entry in self.wrote.get(writer, []) if overlap(entry[0], path)]
            untaken = untaken or not hits
            for target, value in self.wrote.get(writer, []):
                put(root, target, copy.deepcopy(value))

        found = get(root, path)
        if path[0] == "data" and get(root, path[:2])[0] == "missing":
            return ("failed" if failed else "skipped", None)
        if found[0] == "missing" and untaken:
            return ("skipped", None)
        return found

    def expression(self, text: str, reader: int, item: JSON = None) -> Outcome:
        reasons: list[str] = []
        for alternative in text.split("||"):
            outcome: Outcome = ("missing", None)
            for operand in alternative.split("&&"):
                outcome = self.operand(operand.strip(), reader, item)
                if outcome[0] != "value":
                    break

            if outcome[0] == "value":
                return outcome
            reasons.append(outcome[0])

        for reason in ("skipped", "failed", "missing"):
            if reason in reasons:
                return (reason, None)
        return ("missing", None)

    def fill(self, value: JSON, reader: int, reasons: list[str], item: JSON = None) -> JSON:
        if isinstance(value, str) and value.startswith("††"):
            return value[1:]
        if isinstance(value, str) and value.startswith("†"):
            kind, found = self.expression(value, reader, item)
            if kind != "value":
                reasons.append(kind)
            return copy.deepcopy(found)

        if isinstance(value, list):
            return [self.fill(one, reader, reasons, item) for one in value]
        if isinstance(value, dict):
            return {key: self.fill(one, reader, reasons, item) for key, one in value.items()}
        return value

    def work(self, index: int) -> None:
        if index in self.done:
            return

        self.done[index] = "working"
        call = self.calls[index]
        for earlier in sorted(self.earlier[index]):
            # If the earlier call is already being worked out, it needs the result of this one, and
            # `work` returns immediately.
            self.work(earlier)

        after = call.get("_after", [])
        for name in after if isinstance(after, list) else []:
            before = next(i for i, other in enumerate(self.calls) if other.get("_id") == name)
            self.work(before)
            self.circular = self.circular or self.done[before] == "working"
            if self.done[before] == "failed":
                self.fail(index)
                return

        parameters = {key: value for key, value in call.items() if not key.startswith("_")}
        texts = references([call.get("_each"), parameters])
        for text in texts:
            if "_each" in call and "†item" in text:
                # This is read once per item, so it waits for every operand.
                for operand in re.split(r"\|\||&&", text):
                    for writer in self.bound(split(operand.strip()), index):
                        self.work(writer)
                        self.circular = self.circular or self.done[writer] == "working"

        level = [text for text in texts if not ("_each" in call and "†item" in text)]
        reasons = [
            kind for kind in (self.expression(text, index)[0] for text in level) if kind != "value"
        ]
        if not self.judged(index, reasons):
            return
        if "_each" in call:
            self.each(index, parameters, self.fill(call["_each"], index, []))
            return

        ok, value = self.run(index, None, self.fill(parameters, index, []))
        self.end(index, ok, value)

    def judged(self, index: int, reasons: list[str]) -> bool:
        if "failed" in reasons or ("missing" in reasons and "skipped" not in reasons):
            self.fail(index)
            return False
        if reasons:
            self.done[index] = "skipped"
            return False
        return True

    def each(self, index: int, parameters: JSON, items: JSON) -> None:
        if not isinstance(items, list):
            self.fail(index)
            return

        values: list[JSON] = []
        failed = False
        for number, item in enumerate(items):
            lacking: list[str] = []
            filled = self.fill(parameters, index, lacking, item)
            ok, value = (False, None) if lacking else self.run(index, number, filled)
            failed = failed or not ok
            values.append(value)

        self.end(index, not failed, values)

    def end(self, index: int, ok: bool, value: JSON) -> None:
        if not ok:
            self.fail(index)
            return

        call = self.calls[index]
        if call["_tool"] == "tell":
            # All items add data of the same kind, which is merged, and they do so in no fixed
            # order.
            self.told[index] = value

        targets = self.targets(index)
        either = "||" in str(call.get("_outputPath"))
        self.wrote[index] = [(target, value) for target in (targets[:1] if either else targets)]
        self.done[index] = "done"

    def fail(self, index: int) -> None:
        if "||" in str(self.calls[index].get("_outputPath")):
            # The rule says only that the failure is written there. What exactly it says is up to
            # the machine.
            self.wrote[index] = [(self.targets(index)[1], CAUGHT)]
            self.done[index] = "caught"
        else:
            self.done[index] = "failed"

    def interpret(self) -> tuple[list[str], JSONObject]:
        for index in range(len(self.calls)):
            self.work(index)

        root = copy.deepcopy(self.base)
        for index in range(len(self.calls)):
            for target, value in self.wrote.get(index, []):
                put(root, target, value)

        for index, value in self.told.items():
            put(root, ("data", f"k{index}"), value)

        return [self.done[index] for index in range(len(self.calls))], root


def references(value: JSON) -> list[str]:
    if isinstance(value, str):
        if value.startswith("†") and not value.startswith("††"):
            return [value]
        return []

    if isinstance(value, list):
        return [text for item in value for text in references(item)]
    if isinstance(value, dict):
        return [text for item in value.values() for text in references(item)]
    return []


CAUGHT: JSONObject = {"kind": "caught", "message": "caught"}
