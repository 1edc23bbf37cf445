"""Transports: stdio and HTTP, the identities of callers, and limits."""
