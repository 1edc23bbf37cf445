"""The demo, in which two assistants use two existing MCP servers, and one plan becomes a tool
(`docs/cli.md`).
"""
