"""Turn ideas into tools, and check that published ideas still work."""
