"""Editing of hosts' files: one entry changes, and every other byte of the file stays."""
