"""Tasks over the memory server and the catalogue, each as a plan, as a program, and
as single calls.
"""

from __future__ import annotations

from typing import Any

from tests.programs.three_ways import Call, Task

from ideabridge.tools.encoding import JSONObject

ENTITIES = [
    {
        "name": name,
        "entityType": kind,
        "observations": [f"{name} likes {thing}", f"{name} lives in {city}"],
    }
    for name, kind, thing, city in (
        ("Ada", "person", "tea", "Rome"),
        ("Ben", "person", "maps", "Bern"),
        ("Cleo", "person", "tea", "Oslo"),
        ("Acme", "company", "steel", "Rome"),
        ("Blum", "company", "paper", "Lyon"),
    )
]
RELATIONS = [
    {"from": "Ada", "to": "Acme", "relationType": "works at"},
    {"from": "Ben", "to": "Acme", "relationType": "works at"},
    {"from": "Cleo", "to": "Blum", "relationType": "owns"},
]


# -- memory ----------------------------------------------------------------------------------------


async def _names(call: Call, i: dict[str, Any]) -> Any:
    found = await call("memory.search_nodes", query=i["query"])
    return sorted(one["name"] for one in found["entities"])


async def _by_type(call: Call, i: dict[str, Any]) -> Any:
    counts: dict[str, int] = {}
    for one in (await call("memory.read_graph"))["entities"]:
        counts[one["entityType"]] = counts.get(one["entityType"], 0) + 1
    return {kind: counts.get(kind, 0) for kind in i["kinds"]}


async def _employers(call: Call, i: dict[str, Any]) -> Any:
    graph = await call("memory.read_graph")
    names = [one["to"] for one in graph["relations"] if one["from"] == i["person"]]
    found = await call("memory.open_nodes", names=names)
    return [one["observations"] for one in found["entities"]]


async def _noted(call: Call, i: dict[str, Any]) -> Any:
    await call(
        "memory.add_observations", observations=[{"entityName": i["name"], "contents": [i["fact"]]}]
    )
    found = await call("memory.open_nodes", names=[i["name"]])
    return found["entities"][0]["observations"]


def memory_tasks(query: str, person: str, fact: str) -> list[Task]:
    """Tasks over the graph of `ENTITIES` and `RELATIONS`."""
    return [
        Task(
            f"names of entities about {query}",
            {"query": query},
            [
                ("memory.search_nodes", {"query": "†input.query"}),
                ("compute", {"code": "sorted(e['name'] for e in es)", "es": "†results.0.entities"}),
            ],
            "†results.1",
            "import memory\nfound = await memory.search_nodes(query=input['query'])\n"
            "sorted([one['name'] for one in found['entities']])",
            _names,
        ),
        Task(
            f"count entities by type for {query}",
            {"kinds": ["person", "company", query]},
            [
                ("memory.read_graph", {}),
                (
                    "compute",
                    {
                        "code": "{k: len([e for e in es if e['entityType'] == k]) for k in kinds}",
                        "es": "†results.0.entities",
                        "kinds": "†input.kinds",
                    },
                ),
            ],
            "†results.1",
            "import memory\ngraph = await memory.read_graph()\n"
            "types = [one['entityType'] for one in graph['entities']]\n"
            "{kind: types.count(kind) for kind in input['kinds']}",
            _by_type,
        ),
        Task(
            f"what is known of the companies of {person}",
            {"person": person},
            [
                ("memory.read_graph", {}),
                (
                    "compute",
                    {
                        "code": "[r['to'] for r in rs if r['from'] == p]",
                        "rs": "†results.0.relations",
                        "p": "†input.person",
                    },
                ),
                ("memory.open_nodes", {"names": "†results.1"}),
                ("pick", {"data": "†results.2", "path": "entities[].observations"}),
            ],
            "†results.3",
            "import memory\ngraph = await memory.read_graph()\n"
            "names = [one['to'] for one in graph['relations'] if one['from'] == input['person']]\n"
            "found = await memory.open_nodes(names=names)\n[one['observations'] for "
            "one in found['entities']]",
            _employers,
        ),
        Task(
            f"note a fact about {person}",
            {"name": person, "fact": fact},
            [
                (
                    "memory.add_observations",
                    {"observations": [{"entityName": "†input.name", "contents": ["†input.fact"]}]},
                ),
                ("memory.open_nodes", {"names": ["†input.name"]}),
            ],
            "†results.1.entities.0.observations",
            "import memory\nawait memory.add_observations("
            "observations=[{'entityName': input['name'], 'contents': [input['fact']]}])\n"
            "found = await "
            "memory.open_nodes(names=[input['name']])\nfound['entities'][0]['observations']",
            _noted,
        ),
    ]


# -- the catalogue ---------------------------------------------------------------------------------


async def _subjects(call: Call, i: dict[str, Any]) -> Any:
    customer = (await call("office.search_customers", query=i["name"]))["rows"][0]
    found = await call("office.list_tickets", customer_id=customer["id"], status="open")
    return [one["subject"] for one in found["rows"]]


async def _revenue(call: Call, i: dict[str, Any]) -> Any:
    return sum(
        one["total"]
        for one in (await call("office.list_orders", customer_id=i["customer"]))["rows"]
    )


async def _addresses(call: Call, i: dict[str, Any]) -> Any:
    found = await call("office.list_tickets", priority=i["priority"], status="open")
    return [
        (await call("office.get_customer", id=one["customer_id"]))["email"] for one in found["rows"]
    ]


async def _owed(call: Call, i: dict[str, Any]) -> Any:
    sums: dict[str, float] = {}
    for one in (await call("office.list_invoices", status=i["status"]))["rows"]:
        key = str(one["customer_id"])
        sums[key] = sums.get(key, 0) + one["amount"]
    return sums


async def _short(call: Call, i: dict[str, Any]) -> Any:
    return [
        one["name"]
        for one in (await call("office.list_products"))["rows"]
        if one["stock"] < i["below"]
    ]


async def _closed(call: Call, i: dict[str, Any]) -> Any:
    found = await call("office.list_tickets", customer_id=i["customer"], status="waiting")
    changed = [
        await call("office.update_ticket", id=one["id"], status="closed") for one in found["rows"]
    ]
    return len(changed)


async def _hosts(call: Call, i: dict[str, Any]) -> Any:
    found = await call("office.list_meetings", day=i["day"])
    return [
        (await call("office.get_employee", id=one["employee_id"]))["name"] for one in found["rows"]
    ]


async def _largest(call: Call, i: dict[str, Any]) -> Any:
    orders = (await call("office.list_orders", status=i["status"]))["rows"]
    best = max(orders, key=lambda one: one["total"])
    return (await call("office.get_customer", id=best["customer_id"]))["name"]


def office_tasks(name: str, customer: int, *, priority: str, day: str, below: int) -> list[Task]:
    """Tasks over the records of the catalogue."""
    status: JSONObject = {"status": "unpaid" if customer % 2 else "overdue"}
    shipped: JSONObject = {"status": "shipped" if customer % 2 else "open"}
    return [
        Task(
            f"subjects of open tickets of the customer {name}",
            {"name": name},
            [
                ("office.search_customers", {"query": "†input.name"}),
                ("office.list_tickets", {"customer_id": "†results.0.rows.0.id", "status": "open"}),
                ("pick", {"data": "†results.1", "path": "rows[].subject"}),
            ],
            "†results.2",
            "import office\nfound = await office.search_customers(query=input['name'])\n"
            "tickets = await office.list_tickets(customer_id=found['rows'][0]['id'], "
            "status='open')\n"
            "[one['subject'] for one in tickets['rows']]",
            _subjects,
        ),
        Task(
            f"total of the orders of customer {customer}",
            {"customer": customer},
            [
                ("office.list_orders", {"customer_id": "†input.customer"}),
                ("pick", {"data": "†results.0", "path": "sum(rows[].total)"}),
            ],
            "†results.1",
            "import office\nfound = await office.list_orders(customer_id=input['customer'])\n"
            "sum([one['total'] for one in found['rows']])",
            _revenue,
        ),
        Task(
            f"email addresses of customers with open tickets of priority {priority}",
            {"priority": priority},
            [
                ("office.list_tickets", {"priority": "†input.priority", "status": "open"}),
                ("office.get_customer", {"id": "†item.customer_id"}, {"_each": "†results.0.rows"}),
                ("pick", {"data": "†results.1", "path": "[].email"}),
            ],
            "†results.2",
            "import asyncio, office\nfound = await "
            "office.list_tickets(priority=input['priority'], status='open')\n"
            "people = await asyncio.gather(*[office.get_customer(id=one['customer_id']) for "
            "one in found['rows']])\n"
            "[one['email'] for one in people]",
            _addresses,
        ),
        Task(
            f"sum of {status['status']} invoices by customer",
            status,
            [
                ("office.list_invoices", {"status": "†input.status"}),
                (
                    "compute",
                    {
                        "code": "{str(c): sum(r['amount'] for r in rows if r['customer_id'] == c)"
                        " for c in dict.fromkeys(r['customer_id'] for r in rows)}",
                        "rows": "†results.0.rows",
                    },
                ),
            ],
            "†results.1",
            "import office\nsums = {}\nfor one in (await "
            "office.list_invoices(status=input['status']))['rows']:\n"
            "    key = str(one['customer_id'])\n    "
            "sums[key] = sums.get(key, 0) + one['amount']\nsums",
            _owed,
        ),
        Task(
            f"names of products with fewer than {below} in stock",
            {"below": below},
            [
                ("office.list_products", {}),
                (
                    "compute",
                    {
                        "code": "[r['name'] for r in rows if r['stock'] < n]",
                        "rows": "†results.0.rows",
                        "n": "†input.below",
                    },
                ),
            ],
            "†results.1",
            "import office\nfound = await office.list_products()\n"
            "[one['name'] for one in found['rows'] if one['stock'] < input['below']]",
            _short,
        ),
        Task(
            f"close the waiting tickets of customer {customer}",
            {"customer": customer},
            [
                ("office.list_tickets", {"customer_id": "†input.customer", "status": "waiting"}),
                (
                    "office.update_ticket",
                    {"id": "†item.id", "status": "closed"},
                    {"_each": "†results.0.rows"},
                ),
                ("count", {"items": "†results.1"}),
            ],
            "†results.2",
            "import office\nfound = await office.list_tickets(customer_id=input['customer'], "
            "status='waiting')\n"
            "for one in found['rows']:\n    "
            "await office.update_ticket(id=one['id'], status='closed')\n"
            "len(found['rows'])",
            _closed,
        ),
        Task(
            f"employees who invited to the meetings of {day}",
            {"day": day},
            [
                ("office.list_meetings", {"day": "†input.day"}),
                ("office.get_employee", {"id": "†item.employee_id"}, {"_each": "†results.0.rows"}),
                ("pick", {"data": "†results.1", "path": "[].name"}),
            ],
            "†results.2",
            "import office\nnames = []\nfor one in (await "
            "office.list_meetings(day=input['day']))['rows']:\n"
            "    names.append((await office.get_employee(id=one['employee_id']))['name'])\nnames",
            _hosts,
        ),
        Task(
            f"customer with the largest {shipped['status']} order",
            shipped,
            [
                ("office.list_orders", {"status": "†input.status"}),
                ("pick", {"data": "†results.0", "path": "max_by(rows, &total).customer_id"}),
                ("office.get_customer", {"id": "†results.1"}),
            ],
            "†results.2.name",
            "import office\norders = (await office.list_orders(status=input['status']))['rows']\n"
            "best = orders[0]\nfor one in orders:\n    if one['total'] > best['total']:\n        "
            "best = one\n"
            "(await office.get_customer(id=best['customer_id']))['name']",
            _largest,
        ),
    ]


def more_tasks() -> list[Task]:
    """All tasks of this file."""
    return [
        *memory_tasks("tea", "Ada", "Ada has a boat"),
        *memory_tasks("Rome", "Ben", "Ben plays chess"),
        *office_tasks("Eva Falk 4", 3, priority="high", day="2026-11-12", below=9),
        *office_tasks("Cleo Dorn 2", 4, priority="low", day="2026-11-13", below=5),
    ]
