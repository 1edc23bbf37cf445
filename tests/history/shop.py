"""A server of a shop, over stdio: its tools are what the conversations of the tests call."""

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

ORDERS = {"ann": ["o-17", "o-23"], "bob": ["o-31"], "cleo": []}

server = MCPServer("shop")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def find_orders(customer: str) -> list[str]:
    """The orders of a customer, as structured content."""
    return ORDERS[customer]


@server.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
def describe(order: str) -> str:
    """An order, as text."""
    return f"Order {order}: {len(order) * 3} EUR"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def code(order: str) -> str:
    """The number of an order, as structured content that is a text."""
    return order.removeprefix("o-")


@server.tool(structured_output=False)
def send(to: str, text: str) -> str:
    """Send a message."""
    return f"sent to {to}: {text}"


server.run("stdio")
