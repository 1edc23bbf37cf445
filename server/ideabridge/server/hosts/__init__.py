"""The hosts of assistants: where their MCP configuration is, and how it is read and written."""
