"""The demo: two assistants, two MCP servers of others, and one plan that becomes a tool
(`docs/cli.md`).
"""
