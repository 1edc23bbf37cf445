"""Modules: the configured MCP servers."""
