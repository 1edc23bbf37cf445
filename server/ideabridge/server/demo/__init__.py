"""The demo: two assistants, two existing MCP servers, and one plan that becomes a tool
(`docs/cli.md`).
"""
