"""Contexts: messages and their handlers, references, state (DESIGN 4.1, 4.3)."""
