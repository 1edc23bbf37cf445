"""Turn runs into plans."""
