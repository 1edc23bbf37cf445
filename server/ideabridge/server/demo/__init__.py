"""The demo: two assistants, two MCP servers nobody here wrote, one plan that becomes a tool (`docs/cli.md`)."""
