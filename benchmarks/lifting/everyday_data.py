"""Everyday tasks with a database and the clock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar
from zoneinfo import ZoneInfo

from benchmarks.lifting.everyday_task import Hand, Scene, Task, rows_of
from benchmarks.lifting.everyday_world import Expectation, Row, Value


def _only(text: str, column: str) -> Value:
    """One value of the first row of an answer."""
    return rows_of(text)[0][column]


class FilterByLabel(Task):
    """Writes the titles of the open tickets with a label to a Markdown file, by number."""

    name = "list_by_label"
    _labels: ClassVar = {"A": "bug", "B": "design", "C": "urgent"}
    _tickets: ClassVar[dict[str, Sequence[Row]]] = {
        "A": [
            (1, "Door sticks", "bug,wood", "open"),
            (2, "New colour", "wish", "open"),
            (3, "Lamp is dark", "bug", "closed"),
            (4, "Window rattles", "glass,bug", "open"),
        ],
        "B": [
            (7, "Logo", "design", "open"),
            (8, "Menu", "design,web", "open"),
            (9, "Font", "print,design", "open"),
        ],
        "C": [
            (3, "Fire", "urgent", "closed"),
            (4, "Rain", "urgent", "open"),
            (5, "Sun", "nice", "open"),
        ],
    }
    _files: ClassVar = {"A": "bugs.md", "B": "design.md", "C": "now.md"}

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {
            "label": scene.pick(self._labels),
            "file": scene.world.path(scene.pick(self._files)),
        }

    def prepare(self, scene: Scene) -> None:
        scene.world.table(
            "tickets", ("number", "title", "labels", "state"), scene.pick(self._tickets)
        )

    async def do(self, hand: Hand, scene: Scene) -> None:
        query = "SELECT number, title, labels, state FROM tickets ORDER BY number"
        rows = rows_of(await hand.call("read_query", query=query))
        label = scene.pick(self._labels)
        chosen = [
            row for row in rows if row["state"] == "open" and label in str(row["labels"]).split(",")
        ]
        text = "".join(f"- #{row['number']} {row['title']}\n" for row in chosen)
        await hand.call("write_file", path=scene.world.path(scene.pick(self._files)), content=text)

    def expected(self, scene: Scene) -> Expectation:
        numbers = scene.pick({"A": (1, 4), "B": (7, 8, 9), "C": (4,)})
        titles = {row[0]: row[1] for row in scene.pick(self._tickets)}
        text = "\n".join(f"- #{number} {titles[number]}" for number in numbers)
        return Expectation(files={scene.pick(self._files): text})


class PagesToEnd(Task):
    """Writes the names of all people of a city, read in pages of three, to a text file,
    one on each line.
    """

    name = "names_of_city"
    _cities: ClassVar = {"A": "Rome", "B": "Oslo", "C": "Lima"}
    _names: ClassVar = {
        "A": ["Ada", "Bea", "Cem", "Dan", "Eli", "Fay", "Gus"],
        "B": ["Hal", "Ida", "Jon"],
        "C": ["Kay", "Leo", "Mia", "Ned", "Ola", "Pia", "Quy", "Ray", "Sue", "Tom", "Uma"],
    }

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {"city": scene.pick(self._cities), "file": scene.world.path("names.txt")}

    def prepare(self, scene: Scene) -> None:
        pairs = [
            (name, city) for variant, city in self._cities.items() for name in self._names[variant]
        ]
        scene.world.table("people", ("name", "city"), sorted(pairs))

    async def do(self, hand: Hand, scene: Scene) -> None:
        names: list[str] = []
        is_at_end = False
        while not is_at_end:
            where = f"city = '{scene.pick(self._cities)}' ORDER BY name LIMIT 3 OFFSET {len(names)}"
            rows = rows_of(
                await hand.call("read_query", query=f"SELECT name FROM people WHERE {where}")
            )
            names += [str(row["name"]) for row in rows]
            is_at_end = len(rows) < 3

        await hand.call(
            "write_file",
            path=scene.world.path("names.txt"),
            content="".join(f"{name}\n" for name in names),
        )

    def expected(self, scene: Scene) -> Expectation:
        return Expectation(files={"names.txt": "\n".join(scene.pick(self._names))})


class BranchOnState(Task):
    """Comments on an issue, and closes it before that if it is still open."""

    name = "answer_issue"
    _numbers: ClassVar = {"A": 4, "B": 11, "C": 25}
    _texts: ClassVar = {
        "A": "Thank you, it is repaired.",
        "B": "Seen, too.",
        "C": "We will not do this.",
    }
    _issues: ClassVar[dict[str, Sequence[Row]]] = {
        "A": [(3, "Noise", "closed", "ann"), (4, "Smell", "open", "")],
        "B": [(11, "Dust", "closed", "bob"), (12, "Mud", "open", ""), (13, "Sand", "open", "")],
        "C": [(24, "Cold", "open", ""), (25, "Heat", "open", "")],
    }

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {"issue": scene.pick(self._numbers), "comment": scene.pick(self._texts)}

    def prepare(self, scene: Scene) -> None:
        scene.world.table(
            "issues", ("number", "title", "state", "closed_by"), scene.pick(self._issues)
        )
        scene.world.table("comments", ("issue", "text"), [])

    async def do(self, hand: Hand, scene: Scene) -> None:
        number = scene.pick(self._numbers)
        state = await hand.call(
            "read_query", query=f"SELECT state FROM issues WHERE number = {number}"
        )
        if _only(state, "state") == "open":
            change = "state = 'closed', closed_by = 'support'"
            await hand.call(
                "write_query", query=f"UPDATE issues SET {change} WHERE number = {number}"
            )

        values = f"({number}, '{scene.pick(self._texts)}')"
        await hand.call("write_query", query=f"INSERT INTO comments (issue, text) VALUES {values}")

    def expected(self, scene: Scene) -> Expectation:
        number = scene.pick(self._numbers)
        after: dict[str, Sequence[Row]] = {
            "A": [(3, "Noise", "closed", "ann"), (4, "Smell", "closed", "support")],
            "B": self._issues["B"],
            "C": [(24, "Cold", "open", ""), (25, "Heat", "closed", "support")],
        }
        return Expectation(
            tables={"issues": scene.pick(after), "comments": [(number, scene.pick(self._texts))]}
        )


class TextFromResults(Task):
    """Writes an invitation for a customer to a meeting in Berlin, with the time there and where
    the customer is.
    """

    name = "invitation"
    _people: ClassVar[Sequence[Row]] = (
        ("Kenji", "Mr Sato", "Asia/Tokyo"),
        ("Maria", "Ms Silva", "America/Sao_Paulo"),
        ("Ravi", "Dr Rao", "Asia/Kolkata"),
    )
    _names: ClassVar = {"A": "Kenji", "B": "Maria", "C": "Ravi"}
    _times: ClassVar = {"A": "09:00", "B": "15:30", "C": "11:15"}
    _zones: ClassVar = {"A": "Asia/Tokyo", "B": "America/Sao_Paulo", "C": "Asia/Kolkata"}

    def inputs(self, scene: Scene) -> dict[str, Value]:
        file = scene.world.path("invitation.txt")
        return {"customer": scene.pick(self._names), "time": scene.pick(self._times), "file": file}

    def prepare(self, scene: Scene) -> None:
        scene.world.table("customers", ("name", "title", "zone"), self._people)

    async def do(self, hand: Hand, scene: Scene) -> None:
        time = scene.pick(self._times)
        query = f"SELECT title, zone FROM customers WHERE name = '{scene.pick(self._names)}'"
        found = await hand.call("read_query", query=query)
        zone = _only(found, "zone")
        converted = await hand.call(
            "convert_time", source_timezone="Europe/Berlin", time=time, target_timezone=zone
        )
        there = json.loads(converted)["target"]["datetime"][11:16]
        text = self._letter(str(_only(found, "title")), time, there)
        await hand.call("write_file", path=scene.world.path("invitation.txt"), content=text)

    def _letter(self, title: str, here: str, there: str) -> str:
        return f"Dear {title},\nwe meet at {here} in Berlin, which is {there} for you.\n"

    def expected(self, scene: Scene) -> Expectation:
        here = scene.pick(self._times)
        title = next(str(row[1]) for row in self._people if row[0] == scene.pick(self._names))
        there = clock(here, "Europe/Berlin", scene.pick(self._zones))
        return Expectation(files={"invitation.txt": self._letter(title, here, there).rstrip()})


class LookUpCode(Task):
    """The tax rate of a country: its code from the table countries, the rate of the code from
    the table rates.
    """

    name = "tax_of_country"
    _countries: ClassVar = {"A": "Italy", "B": "Norway", "C": "Peru"}
    _codes: ClassVar[Sequence[Row]] = (
        ("Italy", "IT"),
        ("Norway", "NO"),
        ("Peru", "PE"),
        ("Spain", "ES"),
    )
    _rates: ClassVar[Sequence[Row]] = (("IT", 22.5), ("NO", 25.1), ("PE", 18.2), ("ES", 21.7))

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {"country": scene.pick(self._countries)}

    def prepare(self, scene: Scene) -> None:
        scene.world.table("countries", ("name", "code"), self._codes)
        scene.world.table("rates", ("code", "rate"), self._rates)

    async def do(self, hand: Hand, scene: Scene) -> None:
        query = f"SELECT code FROM countries WHERE name = '{scene.pick(self._countries)}'"
        code = _only(await hand.call("read_query", query=query), "code")
        await hand.call("read_query", query=f"SELECT rate FROM rates WHERE code = '{code}'")

    def expected(self, scene: Scene) -> Expectation:
        rates = {"A": "22.5", "B": "25.1", "C": "18.2"}
        forbidden = tuple(str(rate) for _, rate in self._rates if str(rate) != scene.pick(rates))
        return Expectation(answer=(scene.pick(rates),), forbidden=forbidden)


class MeetingInTwoZones(Task):
    """Writes what time a meeting is in two other places to meeting.txt: a line for each of
    the three places.
    """

    name = "meeting_times"
    _times: ClassVar = {"A": "15:00", "B": "08:45", "C": "20:10"}
    _zones: ClassVar = {
        "A": ("Asia/Dubai", "Asia/Tokyo", "America/Lima"),
        "B": ("Asia/Kolkata", "Asia/Kathmandu", "Africa/Nairobi"),
        "C": ("America/Bogota", "Asia/Singapore", "Asia/Dubai"),
    }

    def inputs(self, scene: Scene) -> dict[str, Value]:
        source, first, second = scene.pick(self._zones)
        return {
            "time": scene.pick(self._times),
            "source_timezone": source,
            "first_timezone": first,
            "second_timezone": second,
            "file": scene.world.path("meeting.txt"),
        }

    def prepare(self, scene: Scene) -> None:
        scene.world.write("readme.txt", "Meetings")

    async def do(self, hand: Hand, scene: Scene) -> None:
        time = scene.pick(self._times)
        source, *others = scene.pick(self._zones)
        lines = [f"{source} {time}\n"]
        for zone in others:
            answer = await hand.call(
                "convert_time", source_timezone=source, time=time, target_timezone=zone
            )
            lines.append(f"{zone} {json.loads(answer)['target']['datetime'][11:16]}\n")

        await hand.call("write_file", path=scene.world.path("meeting.txt"), content="".join(lines))

    def expected(self, scene: Scene) -> Expectation:
        time = scene.pick(self._times)
        zones = scene.pick(self._zones)
        return Expectation(
            files={
                "meeting.txt": "\n".join(f"{zone} {clock(time, zones[0], zone)}" for zone in zones)
            }
        )


class TopCustomer(Task):
    """The mail address of the customer with the largest order of a month."""

    name = "top_customer"
    _months: ClassVar = {"A": "2026-05", "B": "2026-08", "C": "2026-11"}
    _orders: ClassVar[dict[str, Sequence[Row]]] = {
        "A": [
            ("Ann", "2026-05", 120),
            ("Bob", "2026-05", 450),
            ("Cid", "2026-05", 300),
            ("Dora", "2026-08", 999),
        ],
        "B": [("Dora", "2026-08", 80), ("Ann", "2026-08", 20), ("Bob", "2026-07", 4000)],
        "C": [
            ("Bob", "2026-11", 1),
            ("Cid", "2026-11", 2),
            ("Dora", "2026-11", 3),
            ("Ann", "2026-11", 14),
            ("Cid", "2026-11", 5),
        ],
    }
    _mails: ClassVar[Sequence[Row]] = (
        ("Ann", "ann@example.org"),
        ("Bob", "robert@example.com"),
        ("Cid", "cid@example.net"),
        ("Dora", "d.ora@example.org"),
    )

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {"month": scene.pick(self._months)}

    def prepare(self, scene: Scene) -> None:
        scene.world.table("orders", ("customer", "month", "amount"), scene.pick(self._orders))
        scene.world.table("customers", ("name", "mail"), self._mails)

    async def do(self, hand: Hand, scene: Scene) -> None:
        query = f"SELECT customer, amount FROM orders WHERE month = '{scene.pick(self._months)}'"
        rows = rows_of(await hand.call("read_query", query=query))
        top = max(rows, key=lambda row: int(row["amount"] or 0))["customer"]
        await hand.call("read_query", query=f"SELECT mail FROM customers WHERE name = '{top}'")

    def expected(self, scene: Scene) -> Expectation:
        names = {"A": "robert@example.com", "B": "d.ora@example.org", "C": "ann@example.org"}
        forbidden = tuple(str(mail) for _, mail in self._mails if mail != scene.pick(names))
        return Expectation(answer=(scene.pick(names),), forbidden=forbidden)


class CloseAndComment(Task):
    """Closes the issue with a title, and comments that it is fixed in a version."""

    name = "close_by_title"
    _titles: ClassVar = {"A": "Door squeaks", "B": "Roof leaks", "C": "Lift stops"}
    _versions: ClassVar = {"A": "1.4", "B": "2.0.1", "C": "5"}
    _issues: ClassVar[dict[str, Sequence[Row]]] = {
        "A": [(17, "Door squeaks", "open"), (18, "Roof leaks", "open")],
        "B": [
            (204, "Door squeaks", "open"),
            (205, "Roof leaks", "open"),
            (206, "Lift stops", "open"),
        ],
        "C": [(3, "Lift stops", "open")],
    }

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {"title": scene.pick(self._titles), "version": scene.pick(self._versions)}

    def prepare(self, scene: Scene) -> None:
        scene.world.table("issues", ("id", "title", "state"), scene.pick(self._issues))
        scene.world.table("comments", ("issue", "text"), [(1, "Hello")])

    async def do(self, hand: Hand, scene: Scene) -> None:
        query = f"SELECT id, state FROM issues WHERE title = '{scene.pick(self._titles)}'"
        number = _only(await hand.call("read_query", query=query), "id")
        await hand.call(
            "write_query", query=f"UPDATE issues SET state = 'closed' WHERE id = {number}"
        )
        text = f"Fixed in {scene.pick(self._versions)}."
        await hand.call(
            "write_query", query=f"INSERT INTO comments (issue, text) VALUES ({number}, '{text}')"
        )

    def expected(self, scene: Scene) -> Expectation:
        number = scene.pick({"A": 17, "B": 205, "C": 3})
        rows = [
            (row[0], row[1], "closed" if row[0] == number else row[2])
            for row in scene.pick(self._issues)
        ]
        comment = (number, f"Fixed in {scene.pick(self._versions)}.")
        return Expectation(tables={"issues": rows, "comments": [(1, "Hello"), comment]})


class ReorderStock(Task):
    """Orders what is missing to the minimum of each article of a warehouse that has too few."""

    name = "reorder_stock"
    _houses: ClassVar = {"A": "north", "B": "south", "C": "east"}
    _stock: ClassVar[dict[str, Sequence[Row]]] = {
        "A": [
            ("north", "bolt", 5, 20),
            ("north", "nut", 50, 20),
            ("north", "screw", 12, 20),
            ("south", "nail", 0, 9),
        ],
        "B": [
            ("south", "pipe", 1, 4),
            ("south", "tap", 2, 3),
            ("south", "valve", 0, 7),
            ("south", "wire", 9, 9),
        ],
        "C": [("east", "brick", 90, 100), ("east", "tile", 500, 100), ("north", "bolt", 1, 20)],
    }

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {"warehouse": scene.pick(self._houses)}

    def prepare(self, scene: Scene) -> None:
        scene.world.table(
            "stock", ("warehouse", "article", "amount", "minimum"), scene.pick(self._stock)
        )
        scene.world.table("orders", ("warehouse", "article", "amount"), [])

    async def do(self, hand: Hand, scene: Scene) -> None:
        house = scene.pick(self._houses)
        query = (
            f"SELECT article, amount, minimum FROM stock WHERE warehouse = '{house}' "
            "ORDER BY article"
        )
        for row in rows_of(await hand.call("read_query", query=query)):
            missing = int(row["minimum"] or 0) - int(row["amount"] or 0)
            if missing > 0:
                values = f"('{house}', '{row['article']}', {missing})"
                await hand.call(
                    "write_query",
                    query=f"INSERT INTO orders (warehouse, article, amount) VALUES {values}",
                )

    def expected(self, scene: Scene) -> Expectation:
        orders: dict[str, Sequence[Row]] = {
            "A": [("north", "bolt", 15), ("north", "screw", 8)],
            "B": [("south", "pipe", 3), ("south", "tap", 1), ("south", "valve", 7)],
            "C": [("east", "brick", 10)],
        }
        return Expectation(tables={"orders": scene.pick(orders)})


class CopyOrder(Task):
    """Orders again what an order was, for another day."""

    name = "repeat_order"
    _orders: ClassVar[Sequence[Row]] = (
        (31, "tea", 4, "2026-01-10"),
        (32, "coffee", 12, "2026-01-12"),
        (33, "sugar", 1, "2026-02-01"),
    )
    _numbers: ClassVar = {"A": 31, "B": 33, "C": 32}
    _days: ClassVar = {"A": "2026-03-01", "B": "2026-04-15", "C": "2026-10-02"}

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {"order_id": scene.pick(self._numbers), "day": scene.pick(self._days)}

    def prepare(self, scene: Scene) -> None:
        scene.world.table("orders", ("id", "article", "amount", "day"), self._orders)
        scene.world.table("repeated", ("article", "amount", "day"), [])

    async def do(self, hand: Hand, scene: Scene) -> None:
        query = f"SELECT article, amount FROM orders WHERE id = {scene.pick(self._numbers)}"
        row = rows_of(await hand.call("read_query", query=query))[0]
        values = f"('{row['article']}', {row['amount']}, '{scene.pick(self._days)}')"
        await hand.call(
            "write_query", query=f"INSERT INTO repeated (article, amount, day) VALUES {values}"
        )

    def expected(self, scene: Scene) -> Expectation:
        row = next(row for row in self._orders if row[0] == scene.pick(self._numbers))
        return Expectation(tables={"repeated": [(row[1], row[2], scene.pick(self._days))]})


def clock(time: str, source: str, target: str) -> str:
    """A time of day (HH:MM) of today in one time zone as it is in another one."""
    hours, minutes = (int(part) for part in time.split(":"))
    today = datetime.now(ZoneInfo(source)).replace(hour=hours, minute=minutes)
    return today.astimezone(ZoneInfo(target)).strftime("%H:%M")


def tasks() -> list[Task]:
    """The tasks of this file."""
    return [
        FilterByLabel(),
        PagesToEnd(),
        BranchOnState(),
        TextFromResults(),
        LookUpCode(),
        MeetingInTwoZones(),
        TopCustomer(),
        CloseAndComment(),
        ReorderStock(),
        CopyOrder(),
    ]
