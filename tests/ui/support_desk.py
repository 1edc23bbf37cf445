"""Tools of a shop's support desk, which the photographed runs call."""

from __future__ import annotations

import asyncio
import base64
import struct
import zlib
from dataclasses import dataclass

from ideabridge.tools import ActivityError, tool


@dataclass(frozen=True)
class Order:
    id: int
    customer: str
    item: str
    total: float
    status: str


@dataclass(frozen=True)
class Customer:
    id: str
    name: str
    mail: str
    city: str


CUSTOMERS = (
    Customer("C-104", "Ada Brandt", "ada.brandt@example.org", "Hamburg"),
    Customer("C-117", "Jonas Weber", "jonas.weber@example.org", "Leipzig"),
    Customer("C-131", "Mira Olsen", "mira.olsen@example.org", "Bergen"),
)

ORDERS = (
    Order(4702, "C-104", "Desk lamp", 49.0, "delivered"),
    Order(4711, "C-117", "Oak shelf", 189.0, "late"),
    Order(4718, "C-131", "Wool rug", 240.0, "delivered"),
    Order(4725, "C-104", "Office chair", 320.0, "late"),
    Order(4733, "C-117", "Mirror", 75.0, "returned"),
    Order(4740, "C-131", "Side table", 110.0, "packed"),
    Order(4752, "C-104", "Bookend", 18.5, "packed"),
)


def photo(width: int = 480, height: int = 300) -> bytes:
    """Return a PNG file: a box in front of a wall, lighter towards the top."""
    rows: list[bytes] = []
    for y in range(height):
        row = bytearray(b"\0")
        for x in range(width):
            is_box = 150 < x < 330 and 110 < y < 250
            is_tape = is_box and 232 < x < 248
            shade = 40 * y // height
            if is_tape:
                row += bytes((226, 208, 168))
            elif is_box:
                row += bytes((188 - shade, 142 - shade, 92 - shade // 2))
            else:
                row += bytes((226 - shade, 230 - shade, 236 - shade))
        rows.append(bytes(row))

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(rows))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


@tool(title="List orders", read_only=True)
async def list_orders(customer: str = "") -> list[Order]:
    """List the orders, or those of one customer.

    Args:
        customer: the number of a customer, such as C-104.
    """
    await asyncio.sleep(0.1)
    return [order for order in ORDERS if customer in ("", order.customer)]


@tool(title="Find a customer", read_only=True)
async def find_customer(number: str) -> Customer:
    """Find the name, the mail address and the city of a customer.

    Args:
        number: the number of the customer, such as C-104.
    """
    await asyncio.sleep(0.15)
    for customer in CUSTOMERS:
        if customer.id == number:
            return customer

    raise ActivityError(f"There is no customer {number}.")


@tool(title="Refund an order")
async def refund_order(order: int, amount: float, note: str = "") -> str:
    """Pay money back to the customer of an order.

    Args:
        order: the number of the order.
        amount: the amount in euros.
        note: a message to the customer.
    """
    await asyncio.sleep(0.05)
    return f"Refunded {amount:.2f} euros for order {order}."


@tool(title="Photo of an order", read_only=True)
async def photograph_order(order: int) -> dict[str, object]:
    """Return the photo of a packed order.

    Args:
        order: the number of the order.
    """
    data = base64.b64encode(photo()).decode()
    return {"type": "image", "mimeType": "image/png", "data": data, "order": order}
