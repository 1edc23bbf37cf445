"""Modules: the configured MCP servers (DESIGN 4.10)."""
