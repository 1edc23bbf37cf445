"""Editing: changes one entry in a host's file, and leaves every other byte untouched."""
