"""Publishing: ideas become tools."""
