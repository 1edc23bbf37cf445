"""Find, read and write the MCP configurations of hosts (the programs that run assistants)."""
