"""Contexts: messages and their handlers, references, state."""
