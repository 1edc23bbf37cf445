"""An MCP server with 43 tools on bare stdin and stdout: the back office of a shop, with the same
data at each start.

    python benchmarks/tokens_parts/catalogue.py

Seven kinds of records have six tools each. Changes are answered with the changed record and are not
kept, so that a task costs the same each time.
"""

from __future__ import annotations

import json
import sys
from typing import Any

Record = dict[str, Any]

ROWS = 24
CITIES = ("Rome", "Bern", "Oslo", "Lyon")
PEOPLE = ("Ada Blum", "Ben Cole", "Cleo Dorn", "Dan Eder", "Eva Falk", "Finn Gall")
WORDS = ("lamp", "desk", "chair", "shelf", "clock", "rug")

KINDS: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "customer": (
        "a person or company that buys from the shop",
        {
            "name": ("string", "Full name"),
            "email": ("string", "Address for letters and invoices"),
            "city": ("string", "City of the main address"),
            "segment": ("string", "One of consumer, business, public"),
            "since": ("string", "Date of the first order, YYYY-MM-DD"),
        },
    ),
    "order": (
        "a purchase of one customer",
        {
            "customer_id": ("integer", "The customer who ordered"),
            "status": ("string", "One of open, shipped, returned"),
            "total": ("number", "Sum in euros, with taxes"),
            "placed": ("string", "Date of the order, YYYY-MM-DD"),
            "product_id": ("integer", "The product that was ordered"),
        },
    ),
    "invoice": (
        "a bill for an order",
        {
            "customer_id": ("integer", "The customer who has to pay"),
            "status": ("string", "One of paid, unpaid, overdue"),
            "amount": ("number", "Sum in euros"),
            "due": ("string", "Date by which it is to be paid, YYYY-MM-DD"),
        },
    ),
    "ticket": (
        "a request of a customer to the support team",
        {
            "customer_id": ("integer", "The customer who asked"),
            "status": ("string", "One of open, waiting, closed"),
            "priority": ("string", "One of low, normal, high"),
            "subject": ("string", "What it is about, in one line"),
            "employee_id": ("integer", "Who works on it"),
        },
    ),
    "product": (
        "something that the shop sells",
        {
            "name": ("string", "Name in the shop"),
            "price": ("number", "Price of one piece in euros"),
            "stock": ("integer", "Pieces in the warehouse"),
            "supplier": ("string", "Name of the supplier"),
        },
    ),
    "employee": (
        "a person who works in the shop",
        {
            "name": ("string", "Full name"),
            "email": ("string", "Address at work"),
            "team": ("string", "One of sales, support, warehouse"),
            "city": ("string", "City of the office"),
        },
    ),
    "meeting": (
        "an entry of the calendar of the shop",
        {
            "title": ("string", "Title in the calendar"),
            "day": ("string", "Date, YYYY-MM-DD"),
            "employee_id": ("integer", "Who invited"),
            "minutes": ("integer", "How long it takes"),
        },
    ),
}
"""The kinds of records: what they are, and their members with JSON type and description."""


def value(kind: str, member: str, n: int) -> Any:
    """A member of the record with this number."""
    person = PEOPLE[n % len(PEOPLE)]
    name = {
        "customer": f"{person} {n}",
        "product": f"{WORDS[n % len(WORDS)]} {n}",
        "employee": person,
    }.get(kind, "")
    found: Record = {
        "name": name,
        "email": f"{person.split()[0].lower()}{n}@example.com",
        "city": CITIES[n % len(CITIES)],
        "segment": ("consumer", "business", "public")[n % 3],
        "since": f"2024-0{1 + n % 9}-11",
        "customer_id": 1 + n % 7,
        "product_id": 1 + n % ROWS,
        "employee_id": 1 + n % len(PEOPLE),
        "status": {
            "order": ("open", "shipped", "returned"),
            "invoice": ("paid", "unpaid", "overdue"),
        }.get(kind, ("open", "waiting", "closed"))[n % 3],
        "total": round(20 + 7.5 * n, 2),
        "amount": round(35 + 4.25 * n, 2),
        "price": round(9.9 + 3 * n, 2),
        "placed": f"2026-0{1 + n % 9}-05",
        "due": f"2026-1{n % 3}-20",
        "priority": ("low", "normal", "high")[(n // 2) % 3],
        "subject": f"The {WORDS[n % len(WORDS)]} arrived broken",
        "stock": (n * 7) % 40,
        "supplier": f"{CITIES[(n + 1) % len(CITIES)]} Supplies",
        "team": ("sales", "support", "warehouse")[n % 3],
        "title": f"Review of the {WORDS[n % len(WORDS)]}",
        "day": f"2026-11-{10 + n % 5}",
        "minutes": 15 * (1 + n % 4),
    }
    return found[member]


DATA: dict[str, dict[int, Record]] = {
    kind: {
        n: {"id": n, **{member: value(kind, member, n) for member in members}}
        for n in range(1, ROWS + 1)
    }
    for kind, (_, members) in KINDS.items()
}


# -- tools -----------------------------------------------------------------------------------------


def schema(properties: Record, required: list[str]) -> Record:
    """The schema of an object."""
    return {"type": "object", "properties": properties, "required": required}


def tools() -> list[Record]:
    """The definitions of all tools."""
    found: list[Record] = []

    def add(
        name: str, text: str, properties: Record, required: list[str], output: Record, **hints: bool
    ) -> None:
        parts = {
            "inputSchema": schema(properties, required),
            "outputSchema": output,
            "annotations": hints,
        }
        found.append({"name": name, "description": text, **parts})

    for kind, (what, members) in KINDS.items():
        typed = {
            name: {"type": type_, "description": text} for name, (type_, text) in members.items()
        }
        number = {"type": "integer", "description": f"Number of the {kind}"}
        record = schema({"id": number, **typed}, ["id", *members])
        some = schema({"rows": {"type": "array", "items": record}}, ["rows"])
        limit = {"type": "integer", "description": "The largest number of records", "default": 50}
        text = {"type": "string", "description": "Words that are looked up in all texts"}
        filters = {
            name: {**one, "description": f"Only records with this value. {one['description']}"}
            for name, one in typed.items()
        }
        reading = {"readOnlyHint": True}
        changing = {"readOnlyHint": False, "destructiveHint": False}
        add(
            f"list_{kind}s",
            f"List records of the kind {kind}: {what}. Filters are combined.",
            {**filters, "limit": limit},
            [],
            some,
            **reading,
        )
        add(f"get_{kind}", f"Get one {kind}: {what}.", {"id": number}, ["id"], record, **reading)
        add(
            f"search_{kind}s",
            f"Full-text search for records of the kind {kind}.",
            {"query": text, "limit": limit},
            ["query"],
            some,
            **reading,
        )
        add(f"create_{kind}", f"Create a {kind}: {what}.", typed, list(members), record, **changing)
        update = {"id": number, **typed}
        add(
            f"update_{kind}",
            f"Change members of a {kind}; the others stay.",
            update,
            ["id"],
            record,
            **changing,
            idempotentHint=True,
        )
        add(
            f"delete_{kind}",
            f"Delete a {kind} for ever.",
            {"id": number},
            ["id"],
            record,
            readOnlyHint=False,
            destructiveHint=True,
        )

    counts = schema({kind: {"type": "integer"} for kind in KINDS}, list(KINDS))
    add(
        "count_records",
        "How many records of each kind there are.",
        {},
        [],
        counts,
        readOnlyHint=True,
    )
    return found


TOOLS = tools()


def run(name: str, given: Record) -> Record:
    """The structured result of a call.

    Raises:
        KeyError: there is no such record.
    """
    if name == "count_records":
        return {kind: len(records) for kind, records in DATA.items()}

    verb, _, noun = name.partition("_")
    records = DATA[noun if noun in DATA else noun.removesuffix("s")]
    if verb in ("list", "search"):
        limit = given.get("limit", 50)
        query = str(given.get("query", "")).lower()
        wanted = {member: one for member, one in given.items() if member not in ("limit", "query")}
        rows = [
            one
            for one in records.values()
            if all(one[member] == expected for member, expected in wanted.items())
            and query in " ".join(str(part) for part in one.values()).lower()
        ]
        return {"rows": rows[:limit]}

    if verb == "create":
        return {"id": len(records) + 1, **given}
    return {**records[given["id"]], **given}


# -- the wire --------------------------------------------------------------------------------------


def answered(message: Record) -> Record:
    """The result or error of a request."""
    method = message["method"]
    params = message.get("params", {})
    if method == "initialize":
        told: Record = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        return {"result": {**told, "serverInfo": {"name": "office", "version": "1"}}}
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    if method == "ping":
        return {"result": {}}
    if method != "tools/call":
        return {"error": {"code": -32601, "message": "no such method"}}

    try:
        value_ = run(params["name"], params.get("arguments") or {})
    except KeyError as error:
        return {
            "result": {
                "content": [{"type": "text", "text": f"there is no {error}"}],
                "isError": True,
            }
        }

    return {
        "result": {
            "content": [{"type": "text", "text": json.dumps(value_)}],
            "structuredContent": value_,
        }
    }


def main() -> None:
    """Serve until the client closes our input."""
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") is not None:
            answer = {"jsonrpc": "2.0", "id": message["id"], **answered(message)}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
