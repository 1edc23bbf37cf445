"""A server as people write it with the SDK: results that are no objects come wrapped, and one
schema is invalid.
"""

from __future__ import annotations

from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

READS = ToolAnnotations(read_only_hint=True)
server = MCPServer("wrapping")


class Found(BaseModel):
    result: str


class Row(BaseModel):
    name: str


@server.tool(annotations=READS)
def greet(name: str) -> str:
    """Greet somebody."""
    return f"hello {name}"


@server.tool(annotations=READS)
def rows() -> list[Row]:
    """Give the rows."""
    return [Row(name="Ada"), Row(name="Grace")]


@server.tool(annotations=READS)
def found() -> Found:
    """Give what was found."""
    return Found(result="x")


@server.tool(annotations=READS)
def broken(options: Annotated[str, Field(json_schema_extra={"type": "dict"})]) -> str:
    """Has a schema that is none."""
    return options


if __name__ == "__main__":
    server.run()
