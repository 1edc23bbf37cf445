"""The MCP server and the command line."""
