"""The hosts an assistant lives in: where their MCP configuration stands, and how it is read and written."""
