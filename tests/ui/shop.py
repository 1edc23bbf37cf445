"""Tools of a small shop, which the tests of the page run."""

from __future__ import annotations

import asyncio

from ideabridge.tools import ActivityError, tool

ORDERS: list[dict[str, object]] = [
    {"id": n, "customer": f"c{n % 3}", "total": 10.0 * n} for n in range(1, 7)
]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAIAAAACUFjqAAAAEklEQVR4nGNkYPj/nwEPYMInOXKlAZ4aBBO1QZGgAAAAAElFTkSuQmCC"


@tool(read_only=True)
async def list_orders(customer: str = "") -> list[dict[str, object]]:
    """List the orders, or those of one customer."""
    await asyncio.sleep(0.1)
    return [one for one in ORDERS if customer in ("", one["customer"])]


@tool(read_only=True)
async def find_customer(id: str) -> dict[str, str]:  # noqa: A002 - the name of the parameter
    """Look a customer up."""
    await asyncio.sleep(0.15)
    if id == "c9":
        raise ActivityError("there is no customer c9")
    return {"id": id, "name": f"Customer {id}", "mail": f"{id}@example.org"}


@tool
async def refund(order: int, amount: float, note: str = "") -> str:
    """Pay money back."""
    await asyncio.sleep(0.05)
    return f"refunded {amount:g} for order {order}{': ' if note else ''}{note}"


@tool(read_only=True)
async def photograph(order: int) -> dict[str, object]:
    """Return a picture of an order."""
    return {"type": "image", "mimeType": "image/png", "data": PIXEL, "order": order}


@tool(read_only=True)
async def read_review(order: int) -> str:
    """Return a review, which a stranger wrote."""
    return (
        f'<script>document.title = "owned {order}"</script><img src=x '
        'onerror="document.title=1">‮dlog'
    )
