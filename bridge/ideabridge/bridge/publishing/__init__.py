"""Publishing: turns ideas into tools."""
