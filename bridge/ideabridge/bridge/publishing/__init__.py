"""Turn ideas into tools."""
