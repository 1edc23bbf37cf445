"""Connect clients over stdio and HTTP, identify callers, and enforce limits."""
