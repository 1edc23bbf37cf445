"""The configured MCP servers, the connections to them, and their sign-ins and messages."""
