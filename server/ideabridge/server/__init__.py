"""The MCP server and the command line (DESIGN 6)."""
